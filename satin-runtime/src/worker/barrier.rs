//! A pair of barriers of which one is free: the light one, which the owner of a deque passes at each pop, keeps the compiler from
//! reordering; the heavy one, of a thief in need, makes every thread of the process pass a real one (`membarrier` of Linux).
//!
//! If a thread writes `a`, passes a light barrier, and reads `b`, and another writes `b`, passes a heavy one, and reads `a`, then at
//! least one of them sees what the other has written.

/// The owner's side.
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

/// The other side. False, and no barrier, if the system has none: then light ones are none either. Takes some microseconds.
pub(crate) fn heavy() -> bool {
    #[cfg(loom)]
    {
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        true
    }
    #[cfg(all(target_os = "linux", not(loom)))]
    {
        use rustix::thread::{MembarrierCommand, membarrier};
        register() && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
    #[cfg(not(any(target_os = "linux", loom)))]
    false
}

/// Tells the system that this process will send such barriers; quick as long as it has one thread. False if the system has none.
pub(crate) fn register() -> bool {
    #[cfg(all(target_os = "linux", not(loom)))]
    {
        use std::sync::LazyLock;

        use rustix::thread::{MembarrierCommand, membarrier};
        static HAS: LazyLock<bool> =
            LazyLock::new(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
        *HAS
    }
    #[cfg(not(all(target_os = "linux", not(loom))))]
    false
}
