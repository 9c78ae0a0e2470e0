//! Arrows: the ways that jobs of other nodes have come to the workers of this one. The network thread says what comes, a worker says when it
//! begins, and whoever looks takes the arrows that follow. While nobody looks nothing is noted.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::look::Arrow;
use crate::job::HostedId;

/// Arrows that are kept between two looks, those of the jobs that were longest on their way. Too small: little is seen of who feeds whom. Too
/// large: the looks at a pool of tiny jobs fill a network, and nobody can tell the arrows apart.
pub(crate) const MOST: usize = 48;

/// Jobs on their way at which all of them are forgotten: some never begin here. Too small: what waits long for a worker has no arrow. Too
/// large: memory (64 bytes each).
const COMING: usize = 1 << 12;

/// A job of another node that the workers of this one have, before one begins with it.
#[derive(Clone, Debug)]
pub(crate) struct ComingJob {
    /// The name of the node that gave it.
    pub(crate) from: Arc<str>,
    /// The name of the job's function.
    pub(crate) function: &'static str,
    /// When that node sent it, in milliseconds since 1970 of its clock; 0 if that is not known.
    pub(crate) sent_ms: u64,
    /// When it was here, in milliseconds since 1970.
    pub(crate) came_ms: u64,
    /// When the shared values and the data that it needs were here too.
    pub(crate) ready_ms: u64,
}

/// The arrows of one pool of workers.
#[derive(Debug, Default)]
pub(crate) struct Arrows {
    is_watched: AtomicBool,
    noted: Mutex<NotedArrow>,
}

#[derive(Debug, Default)]
struct NotedArrow {
    coming: HashMap<HostedId, ComingJob>,
    /// Jobs that have begun, with the worker and the time: by the length of their way, and by a number.
    begun: BTreeMap<(u64, u64), (ComingJob, u32, u64)>,
    number: u64,
}

impl Arrows {
    /// Does anybody look?
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// From now on somebody looks, or nobody.
    pub(crate) fn watch(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
        if !is_watched {
            *lock(&self.noted) = NotedArrow::default();
        }
    }

    /// The workers are about to get that job.
    pub(crate) fn comes(&self, key: HostedId, job: ComingJob) {
        let mut noted = lock(&self.noted);
        if noted.coming.len() >= COMING {
            noted.coming.clear();
        }
        noted.coming.insert(key, job);
    }

    /// A worker begins with that job; `now_ms` is asked for if somebody looks.
    pub(crate) fn begins(&self, key: HostedId, worker: u32, now_ms: impl FnOnce() -> u64) {
        if !self.is_watched() {
            return;
        }
        let mut noted = lock(&self.noted);
        let Some(job) = noted.coming.remove(&key) else {
            return;
        };
        let now_ms = now_ms();
        // Clocks of two nodes differ, so a job may seem to have come before it was sent.
        let way_ms = match job.sent_ms {
            0 => 0,
            sent_ms => job.came_ms.saturating_sub(sent_ms),
        };
        let length_ms = way_ms + now_ms.saturating_sub(job.came_ms);
        let shortest = noted.begun.first_key_value().map(|(key, _)| *key);
        if noted.begun.len() >= MOST
            && let Some(shortest) = shortest
        {
            if length_ms <= shortest.0 {
                return;
            }
            noted.begun.remove(&shortest);
        }
        let place = (length_ms, noted.number);
        noted.number += 1;
        noted.begun.insert(place, (job, worker, now_ms));
    }

    /// Takes the arrows of the jobs that have begun since the last take, at most [`MOST`], in the order in which they began.
    pub(crate) fn take(&self) -> Vec<Arrow> {
        let begun = std::mem::take(&mut lock(&self.noted).begun);
        let arrows = begun.into_values().map(|(job, worker, begun_ms)| Arrow {
            from: job.from.to_string(),
            worker,
            function: job.function.into(),
            sent_ms: job.sent_ms,
            came_ms: job.came_ms,
            ready_ms: job.ready_ms,
            begun_ms,
        });
        let mut arrows: Vec<Arrow> = arrows.collect();
        arrows.sort_by_key(|arrow| arrow.begun_ms);
        arrows
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(came_ms: u64) -> ComingJob {
        ComingJob {
            from: "delft-1".into(),
            function: "fib",
            sent_ms: came_ms - 3,
            came_ms,
            ready_ms: came_ms + 1,
        }
    }

    #[test]
    fn nothing_is_noted_while_nobody_looks() {
        let arrows = Arrows::default();
        arrows.comes(HostedId(1), job(100));
        arrows.begins(HostedId(1), 0, || panic!("no clock is read"));
        arrows.watch(true);
        arrows.watch(false);
        arrows.watch(true);
        // What came before is forgotten.
        arrows.begins(HostedId(1), 0, || panic!("no clock is read"));
        assert_eq!(arrows.take(), []);
    }

    #[test]
    fn an_arrow_goes_from_the_node_that_gave_the_job_to_the_worker_that_begins_with_it() {
        let arrows = Arrows::default();
        arrows.watch(true);
        arrows.comes(HostedId(7), job(100));
        arrows.begins(HostedId(8), 1, || 120);
        assert_eq!(arrows.take(), []);
        arrows.begins(HostedId(7), 1, || 120);
        let arrow = Arrow {
            from: "delft-1".into(),
            worker: 1,
            function: "fib".into(),
            sent_ms: 97,
            came_ms: 100,
            ready_ms: 101,
            begun_ms: 120,
        };
        assert_eq!(arrows.take(), [arrow]);
        assert_eq!(arrows.take(), []);
    }

    #[test]
    fn of_many_jobs_those_are_kept_that_were_longest_on_their_way() {
        let arrows = Arrows::default();
        arrows.watch(true);
        let many = 4 * COMING as u64;
        for number in 0..many {
            let key = HostedId(number);
            arrows.comes(key, job(1_000_000 + number));
            // The longer, the later in each thousand.
            arrows.begins(key, 0, || 1_000_000 + number + number % 1_000);
            // Another that never begins.
            arrows.comes(HostedId(many + number), job(1_000_000));
        }
        assert!(lock(&arrows.noted).coming.len() <= COMING);
        let kept = arrows.take();
        assert_eq!(kept.len(), MOST);
        assert!(kept.is_sorted_by_key(|arrow| arrow.begun_ms));
        let shortest = kept.iter().map(|arrow| arrow.begun_ms - arrow.came_ms);
        assert!(shortest.min() > Some(990));
    }
}
