//! What a worker does at this moment, for those who take samples of it. The worker notes it where it changes, off the fast path:
//! relaxed stores to a byte and a word of its own.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use crossbeam::atomic::AtomicCell;
use serde::{Deserialize, Serialize};

use super::function::{VTable, short_name};

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
pub struct Occupation {
    activity: AtomicU8,
    /// The function of the job that the worker took last, of those that are not over; what that job spawned runs under its name.
    function: AtomicCell<Option<&'static VTable>>,
}

/// What a worker was seen to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// The occupation.
    pub activity: Activity,
    /// The own name of the function of the job that runs; `None` if none does.
    pub function: Option<&'static str>,
}

impl Occupation {
    /// A worker that has not begun anything.
    #[must_use]
    pub fn new() -> Occupation {
        Occupation {
            activity: AtomicU8::new(Activity::Idle as u8),
            function: AtomicCell::new(None),
        }
    }

    /// Reads it, from any thread.
    #[must_use]
    pub fn get(&self) -> Activity {
        Activity::from_repr(self.activity.load(Ordering::Relaxed)).unwrap_or(Activity::Run)
    }

    /// Reads it with the name of the function, from any thread.
    #[must_use]
    pub fn see(&self) -> Sighting {
        let activity = self.get();
        let runs = matches!(
            activity,
            Activity::Run | Activity::RunStolen | Activity::Repair
        );
        let function = self.function.load().filter(|_| runs);
        Sighting {
            activity,
            function: function.map(|function| short_name(function.info.name)),
        }
    }

    /// Changes it, and returns what it was.
    pub fn replace(&self, now: Activity) -> Activity {
        let before = self.get();
        self.activity.store(now as u8, Ordering::Relaxed);
        before
    }

    /// Notes the function of the job that runs from now on, and returns what was noted before.
    pub(crate) fn name(&self, function: Option<&'static VTable>) -> Option<&'static VTable> {
        let before = self.function.load();
        self.function.store(function);
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
    struct RestoreActivity(Option<(Arc<Occupation>, Activity)>);
    impl Drop for RestoreActivity {
        fn drop(&mut self) {
            if let Some((mine, before)) = &self.0 {
                mine.replace(*before);
            }
        }
    }
    // The thread may be about to end: then nobody takes samples of it.
    let mine = MINE.try_with(|mine| mine.try_borrow().ok()?.clone());
    let _before = RestoreActivity(mine.ok().flatten().map(|mine| {
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
