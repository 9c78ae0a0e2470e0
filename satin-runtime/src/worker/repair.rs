//! Marked jobs: jobs that may have been run before, in whole or in part, by a node that is gone.
//!
//! A marked job looks itself up among the orphans before it runs, and so does each child it spawns: a result that another
//! node still has is claimed there instead of being computed again. Where nothing is at or below a job the mark is
//! dropped, and the job runs as usual. No unmarked job looks anything up. `worker/README.md` tells how the deque is kept
//! out of all that.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use super::{
    frames::{self, JobPlace, below},
    gate::{length_of, pack},
    pool::Pool,
    thread::Worker,
};
use crate::job::{
    Back, Deadly, History, JobId, JobName, Kin, OrphanIndex, OrphanNews,
    codec::Effort,
    orphans::{may_claim, would_deadlock},
    record::{Frame, STAYS, Slot, flag},
};

/// The orphan table as far as the workers know it: each marked job reads here, and the node writes.
#[derive(Default)]
pub(super) struct Orphans(RwLock<KnownOrphans>);

#[derive(Default)]
struct KnownOrphans {
    index: OrphanIndex,
    /// True if no node would answer a claim any more.
    closed: bool,
}

impl Orphans {
    pub(super) fn learn(&self, news: OrphanNews) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !known.closed {
            known.index.learn(news);
        }
    }

    /// Forgets all orphans: from now on there are none.
    pub(super) fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = KnownOrphans {
            index: OrphanIndex::default(),
            closed: true,
        };
    }

    fn kin(&self, id: &JobId) -> Kin {
        self.read().index.kin(id)
    }

    /// True if a job need not look anything up, nor any below it.
    pub(super) fn clears(&self, id: &JobId) -> bool {
        self.kin(id) == Kin::Nothing
    }

    /// May a job of that id be one that others are to run?
    pub(super) fn is_suspect(&self, id: &JobId) -> bool {
        self.read().index.is_suspect(id)
    }

    fn deadly(&self, name: &JobName, crashes: u32) -> Deadly {
        self.read()
            .index
            .deadly(&name.id, name.fingerprint, crashes)
    }

    /// If that job is known, does what must be done before it can become unknown.
    fn if_known<R>(&self, name: &JobName, act: impl FnOnce() -> R) -> Option<R> {
        let known = self.read();
        let is_known = known.index.is_known(&name.id, name.fingerprint);
        is_known.then(act)
    }

    fn read(&self) -> RwLockReadGuard<'_, KnownOrphans> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of a look-up for a job that is about to run.
pub(super) enum LookUp {
    /// The job is away, held for others, or waits for its data, and no longer the caller's: neither slot nor parent may be touched.
    Elsewhere,
    Run {
        marked: bool,
        /// The job's place in the tree, if that was asked: its children need not ask again.
        place: Option<JobPlace>,
    },
}

impl LookUp {
    fn run(marked: bool) -> LookUp {
        let place = None;
        LookUp::Run { marked, place }
    }
}

impl Pool {
    /// The history with which that child of a marked invocation, which the caller has, leaves before a worker has looked it up, if it may.
    pub(super) fn may_leave(&self, parent: *const Frame, index: u32) -> Option<History> {
        let place = frames::place_of(parent, index)?; // below a nested entry it stays
        self.ledger.orphans.read().index.may_leave(&place.id)
    }

    /// Looks up a job that the caller has taken to run it.
    fn examine(&self, worker: &Worker, job: &Slot, back: Back) -> LookUp {
        let History { marked, .. } = back.history;
        if !marked || back.at_once {
            return LookUp::run(marked);
        }
        match worker.place_of(job.parent.get(), job.index()) {
            Some(place) => self.look_up(worker, job, place, back.history),
            None => LookUp::run(false),
        }
    }

    fn look_up(&self, worker: &Worker, job: &Slot, place: JobPlace, history: History) -> LookUp {
        let id = &place.id;
        let kin = self.ledger.orphans.kin(id);
        let is_claimed = match kin {
            Kin::Nothing | Kin::Perhaps => false,
            Kin::Here if !worker.with_hosted(|hosted| may_claim(id, hosted.iter())) => false,
            Kin::Here => self.is_heard() && self.claim(job, place.clone(), history),
        };
        tracing::debug!(job = %place.id, ?kin, is_claimed, "a marked job has looked itself up");
        let marked = kin != Kin::Nothing;
        let history = History { marked, ..history };
        // A job that is held for others has all that it needs: nobody would look meanwhile whether that is still to be had.
        let waits = || {
            let back = Back {
                history,
                ..Back::default()
            };
            self.ledger.orphans.is_suspect(id) && worker.waits_for_data(job, back)
        };
        if is_claimed || waits() || self.hold_if_deadly(job, &place, history) {
            return LookUp::Elsewhere;
        }
        LookUp::Run {
            marked,
            place: marked.then_some(place),
        }
    }

    /// Holds a job that has taken down nodes before for other nodes, unless they have been asked already; after too many
    /// crashes gives the job up. True if the job is not the caller's any more.
    fn hold_if_deadly(&self, job: &Slot, place: &JobPlace, history: History) -> bool {
        let orphans = &self.ledger.orphans;
        if !self.is_heard() || !orphans.is_suspect(&place.id) {
            return false;
        }
        let Ok(parcel) = pack(job, place.clone(), history, Effort::ANY) else {
            return false; // nobody else can run it
        };
        let name = JobName::new(parcel.id, parcel.fingerprint);
        let crashes = match orphans.deadly(&name, history.crashes) {
            Deadly::Not => return false,
            Deadly::Held(nodes) => nodes,
            Deadly::GivenUp(story) => {
                self.give_up(job, story);
                return true;
            }
        };
        let back = Back {
            history: History { crashes, ..history },
            at_once: false,
            held: true,
            stays: false,
        };
        self.hold(job, length_of(&place.id), back, name);
        true
    }

    /// False if the job is not the orphan that has its id.
    fn claim(&self, job: &Slot, place: JobPlace, history: History) -> bool {
        let depth = depth_of(job);
        let parcel = match pack(job, place, history, Effort::ANY) {
            Ok(parcel) => parcel,
            Err(error) => {
                let function = job.function.get().info.name;
                tracing::debug!(function, %error, "a job cannot be looked up");
                return false;
            }
        };
        let name = parcel.name();
        let claimed = self.ledger.orphans.if_known(&name, || {
            let back = Back {
                history,
                at_once: false,
                held: false,
                stays: false,
            };
            self.enter_away(job, depth, back, name.fingerprint, |departure| {
                // Before any thread can recall the job: the outside hears of the claim first.
                self.tell(|outside| outside.claimed(departure, parcel));
            });
        });
        if claimed.is_none() {
            tracing::info!(job = %name.id, "the orphan of this id has other arguments");
        }
        claimed.is_some()
    }
}

/// How deep in the tree a job stands, or that it stays: a root job is run where its caller is.
pub(super) fn depth_of(job: &Slot) -> u16 {
    let parent = job.parent.get();
    // SAFETY: the caller has the job, which is unsettled, so its parent lives.
    let is_root = unsafe { (*parent).has(flag::ROOT) };
    match is_root {
        true => STAYS,
        false => below(frames::depth_of(parent), 1),
    }
}

impl Worker {
    /// Looks up a job that this worker has taken to run, and tells what becomes of it.
    pub(super) fn examine(&self, job: &Slot, back: Back) -> LookUp {
        self.pool().examine(self, job, back)
    }

    /// Would a repair that this worker runs, to help out, come to lie on top of an orphan that it will claim? Each would
    /// wait for the other. Its parent runs it, or another worker.
    pub(super) fn would_deadlock(&self, job: &Slot, back: Back) -> bool {
        if !back.history.marked || self.with_hosted(<[JobId]>::is_empty) {
            return false;
        }
        let place = self.place_of(job.parent.get(), job.index());
        place.is_some_and(|place| {
            self.with_hosted(|hosted| would_deadlock(&place.id, hosted.iter()))
        })
    }

    /// A marked job is done: if it had come back, what others keep of it is not wanted any more.
    pub(super) fn tell_repaired(&self, job: &Slot) {
        if self.pool().is_repaired(job)
            && let Some(place) = self.place_of(job.parent.get(), job.index())
        {
            self.pool().tell(|outside| outside.repaired(place.id));
        }
    }

    /// Owner: the next push must look up, if the job that runs here is marked.
    pub(super) fn stay_marked(&self) {
        if self.bottom.get().marked {
            self.deque().stay_asked();
        }
    }

    /// Are the children of that invocation, which runs here, to be looked up?
    pub(super) fn is_marked(&self, frame: *const Frame) -> bool {
        let bottom = self.bottom.get();
        if !bottom.marked {
            return false;
        }
        if frame == bottom.parent {
            return true; // the place of a root job
        }
        let (mut here, mut below) = (frame, frame);
        loop {
            // SAFETY: between the invocation that runs and the bottom of its job everything lives.
            let above = unsafe { &*here };
            if above.has(flag::CLEAN | flag::NESTED) {
                clean_up_to(here, frame);
                return false;
            }
            if above.has(flag::MARKED) || above.parent() == bottom.parent {
                break;
            }
            (below, here) = (here, above.parent());
        }
        if here == frame {
            return true;
        }
        // Called, not spawned, below a marked invocation, and asked for the first time.
        let clears = |frame: *const Frame| {
            // SAFETY: as above.
            let called = unsafe { &*frame };
            self.place_of(called.parent(), called.index())
                .is_none_or(|place| self.pool().ledger.orphans.clears(&place.id))
        };
        if clears(below) {
            clean_up_to(here, frame);
            return false;
        }
        let clear = clears(frame);
        // SAFETY: the invocation runs.
        let called = unsafe { &*frame };
        called.raise(if clear { flag::CLEAN } else { flag::MARKED });
        !clear
    }

    /// A child of a marked invocation, the youngest job of this worker, has been pushed: it leaves the deque at once. It
    /// becomes a claim, or one of the jobs that came back undone, which can be looked up again when it starts.
    pub(super) fn set_aside(&self, head: *const Slot, frame: *const Frame) {
        // All older children of the invocation have gone the same way, so the deque was empty below.
        self.deque().restart(head.addr());
        // SAFETY: the slot below the head has just been filled, and is private.
        let job = unsafe { &*head.wrapping_sub(1) };
        let Some(place) = self.place_of(frame, job.index()) else {
            unreachable!("nothing below a nested entry is marked");
        };
        let depth = depth_of(job);
        let verdict = self.pool().look_up(
            self,
            job,
            place,
            History {
                marked: true,
                crashes: 0,
            },
        );
        if let LookUp::Run { marked, .. } = verdict {
            let history = History { marked, crashes: 0 };
            let back = Back {
                history,
                at_once: false,
                held: false,
                stays: false,
            };
            self.pool().come_back(job, depth, back);
        }
    }
}

/// Neither the invocation of `frame` nor any between it and that of `above` need look anything up. Who asks for one of them
/// next, or for one below, has a short way: deep trees would be walked up again and again.
fn clean_up_to(above: *const Frame, frame: *const Frame) {
    let mut here = frame;
    while here != above {
        // SAFETY: the caller has come this way, from an invocation that runs.
        let clean = unsafe { &*here };
        clean.raise(flag::CLEAN);
        here = clean.parent();
    }
}
