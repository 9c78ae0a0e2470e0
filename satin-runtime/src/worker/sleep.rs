//! How workers sleep, and who wakes them.
//!
//! A worker that finds nothing enters the list, asks every other worker, looks once more, and parks. The request that it
//! leaves behind makes the next spawn anywhere publish and wake it. A publisher looks at the list after a sequentially
//! consistent fence, a worker that goes to sleep looks for public jobs after such a fence: at least one of them sees the
//! other.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicUsize,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::Duration,
};

use crossbeam::sync::{Parker, Unparker};

/// The sleepers of a pool.
pub(super) struct Sleep {
    count: AtomicUsize,
    list: Mutex<Vec<u32>>,
    unparkers: Vec<Unparker>,
    parkers: Vec<Mutex<Parker>>,
}

impl Sleep {
    pub(super) fn new(workers: u32) -> Sleep {
        let parkers: Vec<Parker> = (0..workers).map(|_| Parker::new()).collect();
        Sleep {
            count: AtomicUsize::new(0),
            list: Mutex::new(Vec::new()),
            unparkers: parkers
                .iter()
                .map(|parker| parker.unparker().clone())
                .collect(),
            parkers: parkers.into_iter().map(Mutex::new).collect(),
        }
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a worker in the list of sleepers.
    pub(super) fn lie_down(&self, worker: u32) {
        self.list().push(worker);
        self.count.fetch_add(1, SeqCst);
        fence(SeqCst);
    }

    /// Leaves the list; false if another thread has taken this worker off it, to wake it.
    pub(super) fn get_up(&self, worker: u32) -> bool {
        let mut list = self.list();
        let place = list.iter().position(|sleeper| *sleeper == worker);
        if let Some(place) = place {
            list.swap_remove(place);
            self.count.fetch_sub(1, SeqCst);
        }
        place.is_some()
    }

    /// Parks the calling thread, which is that worker's, at most for that time if one is given.
    pub(super) fn park(&self, worker: u32, at_most: Option<Duration>) {
        let parker = self.parkers[worker as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match at_most {
            Some(time) => parker.park_timeout(time),
            None => parker.park(),
        }
    }

    /// Wakes that worker wherever it parks.
    pub(super) fn unpark(&self, worker: u32) {
        self.unparkers[worker as usize].unpark();
    }

    /// Wakes up to `most` sleepers. True if others sleep on.
    pub(super) fn wake(&self, most: u64) -> bool {
        if self.count.load(Relaxed) == 0 {
            return false;
        }
        let mut list = self.list();
        for _ in 0..most {
            let Some(worker) = list.pop() else { break };
            self.count.fetch_sub(1, SeqCst);
            self.unpark(worker);
        }
        !list.is_empty()
    }

    /// Wakes all workers, listed or not.
    pub(super) fn wake_all(&self) {
        self.unparkers.iter().for_each(Unparker::unpark);
    }
}
