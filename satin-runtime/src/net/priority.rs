//! Priorities of threads, for machines with fewer cores than threads.
//!
//! A steal that waits for a worker's time slice costs milliseconds instead of a tenth of one. So workers step back a
//! little, and the network thread, which is busy for moments only, stays as it is. No process needs rights for that.

/// How much nicer a worker is than the network thread.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Lets the other threads of this process go before the calling worker thread, when there is a network. Does nothing on
/// systems other than Linux, where priorities belong to processes.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        // On Linux "this process" means this thread.
        let set = getpriority_process(None)
            .and_then(|now| setpriority_process(None, (now + NICE).min(19)));
        if let Err(error) = set {
            tracing::debug!("cannot change the priority of a worker: {error}");
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn a_worker_steps_back_and_nobody_else() {
        let before = getpriority_process(None).expect("a priority");
        let other = std::thread::spawn(|| {
            step_back();
            getpriority_process(None).expect("a priority")
        });
        assert_eq!(other.join().expect("no panic"), (before + NICE).min(19));
        assert_eq!(getpriority_process(None).expect("a priority"), before);
    }
}
