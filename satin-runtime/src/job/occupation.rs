//! What a worker does at this moment, for those who take samples of it. The worker notes it where it changes, off the fast path:
//! a relaxed store to a byte of its own.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use serde::{Deserialize, Serialize};

/// The occupation of a worker.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    strum::EnumCount,
    strum::EnumIter,
    strum::FromRepr,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum Activity {
    /// A job of this node runs, or one that another worker of this node spawned.
    Run,
    /// A job that was stolen from another node runs.
    RunStolen,
    /// Nothing to run: a request for work to a node of the same site is under way.
    StealNear,
    /// Nothing to run: a request for work to a node of another site is under way.
    StealFar,
    /// Nothing to run, while a job on this worker's stack waits at a sync for a child that another worker or node has.
    Wait,
    /// Arguments or results are turned into bytes or back, or shared values are waited for.
    Transfer,
    /// A job runs that came back because the node that had it died, or the result of such a job is waited for.
    Repair,
    /// Nothing to run, and nobody was asked.
    Idle,
}

/// The occupation of one worker. Its own thread alone changes it.
#[derive(Debug)]
pub struct Occupation(AtomicU8);

impl Occupation {
    /// A worker that has not begun anything.
    #[must_use]
    pub fn new() -> Occupation {
        Occupation(AtomicU8::new(Activity::Idle as u8))
    }

    /// Reads it, from any thread.
    #[must_use]
    pub fn get(&self) -> Activity {
        Activity::from_repr(self.0.load(Ordering::Relaxed)).unwrap_or(Activity::Run)
    }

    /// Changes it, and returns what it was.
    pub fn replace(&self, now: Activity) -> Activity {
        let before = self.get();
        self.0.store(now as u8, Ordering::Relaxed);
        before
    }
}

impl Default for Occupation {
    fn default() -> Occupation {
        Occupation::new()
    }
}

thread_local! {
    /// The occupation of the worker that this thread is.
    static MINE: RefCell<Option<Arc<Occupation>>> = const { RefCell::new(None) };
}

/// From now on this thread is the worker of that occupation.
pub fn begin_thread(mine: Arc<Occupation>) {
    MINE.set(Some(mine));
}

/// Calls `act`; if this thread is a worker, it counts as occupied with `activity` meanwhile.
pub fn during<R>(activity: Activity, act: impl FnOnce() -> R) -> R {
    /// Puts back what the worker did before, also when `act` panics.
    struct Before(Option<(Arc<Occupation>, Activity)>);
    impl Drop for Before {
        fn drop(&mut self) {
            if let Some((mine, before)) = &self.0 {
                mine.replace(*before);
            }
        }
    }
    // The thread may be about to end: then nobody takes samples of it.
    let mine = MINE.try_with(|mine| mine.try_borrow().ok()?.clone());
    let _before = Before(mine.ok().flatten().map(|mine| {
        let before = mine.replace(activity);
        (mine, before)
    }));
    act()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_before_is_done_again_also_after_a_panic() {
        let mine = Arc::new(Occupation::new());
        let seen = Arc::clone(&mine);
        std::thread::spawn(move || {
            begin_thread(Arc::clone(&mine));
            mine.replace(Activity::Run);
            assert_eq!(
                during(Activity::Transfer, || mine.get()),
                Activity::Transfer
            );
            assert_eq!(mine.get(), Activity::Run);
            let panics = || during(Activity::Transfer, || panic!("in the user's serializer"));
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
            assert!(caught.is_err());
        })
        .join()
        .expect("no assertion failed");
        assert_eq!(seen.get(), Activity::Run);
        // A thread that is no worker.
        assert_eq!(during(Activity::Transfer, || 7), 7);
    }
}
