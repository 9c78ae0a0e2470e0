//! Hosted jobs: jobs of other nodes that wait here, run here, and end here.

use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::Ordering,
};

use super::super::{
    each::NotHere,
    frames::RootFrame,
    pool::{Pool, RootKey},
    progress::RunningJob,
    thread::{Bottom, Worker},
};
use super::{
    ledger::{FrameRef, lock},
    note_unfit,
};
use crate::{
    job::{
        Answer, Gathered, HeldValue, HostedId, JobId, Parcel, Saved, Taken, Unfit,
        codec::{self, CodecError},
        function::{self, RemoteFailure, VTable},
        needs,
        parcel::UNFIT,
        record::{Cx, Slot, flag},
    },
    observe::events,
};

/// The hosted jobs of this process: jobs of other nodes, each under its key.
#[derive(Default)]
pub(super) struct HostedJobs {
    pub(super) jobs: HashMap<HostedId, HostedJob>,
    /// Keys of the jobs that wait; a job may be gone meanwhile.
    pub(super) queue: VecDeque<HostedId>,
    /// Keys of the jobs that are for other nodes; a job may be gone meanwhile.
    pub(super) held: VecDeque<HostedId>,
    /// The data that jobs borrow by name, of those that do.
    borrowed: HashMap<HostedId, Vec<HeldValue>>,
}

impl HostedJobs {
    /// Holds the data that the job borrows, until it is gone.
    pub(super) fn borrow(&mut self, key: HostedId, parcel: &Parcel) {
        if !parcel.lent.is_empty() {
            let data = needs::find_all(parcel.lent_names());
            self.borrowed.insert(key, data);
        }
    }

    pub(super) fn remove(&mut self, key: HostedId) -> Option<HostedJob> {
        self.borrowed.remove(&key);
        self.jobs.remove(&key)
    }
}

pub(super) enum HostedJob {
    Waiting(Parcel),
    Held(Parcel),
    /// A worker is about to run it.
    Starting {
        /// Flags that the job's frame gets when it starts, see [`flag`].
        flags: u32,
    },
    Running {
        frame: FrameRef,
        /// The number of its function.
        function: u32,
    },
}

/// A hosted job that a worker is about to run.
pub(in crate::worker) struct HostedTask {
    pub(super) key: HostedId,
    pub(super) parcel: Parcel,
}

impl HostedTask {
    pub(in crate::worker) fn function(&self) -> Option<&'static VTable> {
        function::by_number(self.parcel.function)
    }

    pub(in crate::worker) fn run(self, worker: &Worker, head: *const Slot) {
        let key = self.key;
        match self.end(worker, head) {
            HostedEnd::Answered(answer) => worker.pool().tell(|outside| outside.done(key, answer)),
            HostedEnd::GivenUp(saved) => worker.pool().tell(|outside| outside.saved(key, saved)),
        }
    }

    pub(super) fn end(self, worker: &Worker, head: *const Slot) -> HostedEnd {
        let pool = worker.pool();
        let HostedTask { key, parcel } = self;
        let refused = |why| {
            pool.forget_hosted(key);
            HostedEnd::Answered(Answer::Refused(why))
        };
        // They may have made room for others. Read without them, the job would be taken for one that cannot travel.
        let borrowed = parcel.lent_names().iter();
        if let Some(absent) = borrowed.copied().find(|name| needs::find(*name).is_none()) {
            return refused(format!("the data {absent:?} are not here any more"));
        }
        let root_run = parcel.root_run();
        let mut above = parcel.id;
        let Some(index) = above.pop() else {
            return refused("a job without an id".into());
        };
        let Some(function) = function::by_number(parcel.function) else {
            return refused(format!("no function has the number {}", parcel.function));
        };
        // Whether it is an orphan itself the node has seen to.
        let marked = parcel.history.marked && !pool.ledger.orphans.clears(&above.child(index));
        let root = RootFrame::new(above, index, root_run, &pool.beats.bytes);
        let parent = &raw const root.frame;
        if let Some(stage) = lock(&pool.ledger.hosted).jobs.get_mut(&key) {
            if let HostedJob::Starting { flags } = *stage
                && flags != 0
            {
                pool.stop_children(&root.frame, flags);
            }
            *stage = HostedJob::Running {
                frame: FrameRef(parent),
                function: parcel.function,
            };
        }
        pool.arrows.begins(key, worker.index, events::unix_ms);
        let run = || {
            if worker.is_stopped(parent) {
                return Err(RemoteFailure::Aborted);
            }
            let cx = Cx { head, parent };
            (function.run_bytes)(cx, index, &parcel.arguments, parcel.keeps)
        };
        let bottom = Bottom {
            head,
            parent,
            index,
            marked,
            part: Some(RunningJob::Hosted(key)),
        };
        let outcome = worker.hosting(root.job.clone(), || worker.on_bottom(bottom, None, run));
        pool.forget_hosted(key);
        let aborted = matches!(outcome, Err(RemoteFailure::Aborted));
        if root.frame.has(flag::SAVE) && (aborted || root.frame.has(flag::TORN)) {
            return HostedEnd::GivenUp(root.take_harvest());
        }
        HostedEnd::Answered(match outcome {
            Ok(packed) => {
                if !packed.kept.is_empty() {
                    let (pool, name) = (pool.number, root_run.name);
                    let root = RootKey { pool, name };
                    worker
                        .pool()
                        .tell(|outside| outside.keeps(root, &packed.kept));
                }
                packed.into()
            }
            Err(RemoteFailure::Codec(error)) => unfit(function, &error),
            Err(RemoteFailure::Aborted) => match function::unfit_why(function) {
                // Perhaps it was given up for that; if not, nobody waits for the answer.
                Some(why) => Answer::Unfit(Unfit {
                    function: parcel.function,
                    weight: UNFIT,
                    why: why.into(),
                }),
                None => Answer::Aborted,
            },
            Err(RemoteFailure::Panicked(payload)) => match payload.downcast::<NotHere>() {
                Ok(why) => unfit(why.function, &why.error),
                Err(payload) => {
                    let text = named(message(&*payload), &root.job);
                    codec::drop_payload(payload);
                    Answer::Panicked(text)
                }
            },
        })
    }
}

/// The answer of a job whose arguments or result are at fault; or, in a loop, those of a call of that function.
fn unfit(function: &'static VTable, error: &CodecError) -> Answer {
    // Unregistered, or without a number: the next one may have it.
    let Some(number) = function::number_of(function) else {
        return Answer::Refused(error.to_string());
    };
    // Its own parts need not try. Its origin tells.
    note_unfit(function, error.weight(), error, false);
    Answer::Unfit(Unfit {
        function: number,
        weight: error.weight(),
        why: error.to_string(),
    })
}

/// The end of a hosted job.
pub(super) enum HostedEnd {
    Answered(Answer),
    GivenUp(Vec<Saved>),
}

/// The text of a panic's payload, or a general sentence if the payload has no text.
pub(super) fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    codec::message(payload).unwrap_or("a job panicked")
}

/// A panic that has crossed from one node to another ends with the job that it began in.
pub(super) const OF_JOB: &str = " (job ";

/// The text with the name of the job, unless the text comes from a job further down, which has a name already.
pub(super) fn named(text: &str, id: &JobId) -> String {
    match came_from_afar(text) {
        true => text.into(),
        false => format!("{text}{OF_JOB}{id})"),
    }
}

/// True if that panic has come from another node.
pub(crate) fn came_from_afar(text: &str) -> bool {
    text.contains(OF_JOB)
}

impl Pool {
    /// No result of the function can travel: hosted jobs of it that are under way go home, before more is computed in vain. Their origins
    /// tell people of it; here this process does, unless it runs a job of another one.
    pub(in crate::worker) fn give_up_unfit(
        &self,
        function: &'static VTable,
        error: &CodecError,
        is_hosting: bool,
    ) {
        note_unfit(function, error.weight(), error, !is_hosting);
        // Not that of all loops, say.
        let number = function::number_of(function).filter(|_| function::is_unfit(function));
        let Some(number) = number else {
            return;
        };
        for job in lock(&self.ledger.hosted).jobs.values() {
            if let HostedJob::Running {
                frame: FrameRef(frame),
                function,
            } = job
                && *function == number
            {
                // SAFETY: the frame lives as long as its entry, and we hold the lock.
                self.stop_children(unsafe { &**frame }, flag::ABORT);
            }
        }
    }

    /// Gathers the facts of the hosted jobs that are under way.
    pub(super) fn gather_hosted(&self, gathered: &mut Gathered) {
        for job in lock(&self.ledger.hosted).jobs.values() {
            if let HostedJob::Running { frame, .. } = job {
                // SAFETY: the frame lives as long as its entry, and we hold the lock.
                unsafe { frame.gather(gathered) };
            }
        }
    }

    pub(in crate::worker) fn has_hosted(&self) -> bool {
        self.ledger.waiting.load(Ordering::Relaxed) > 0
    }

    /// A hosted job, for a worker that can run one.
    pub(in crate::worker) fn next_hosted(&self, can_run: impl Fn() -> bool) -> Option<HostedTask> {
        if !self.has_hosted() || !can_run() {
            return None;
        }
        let mut hosted = lock(&self.ledger.hosted);
        while let Some(key) = hosted.queue.pop_front() {
            let Some(stage) = hosted.jobs.get_mut(&key) else {
                continue;
            };
            if let HostedJob::Waiting(_) = stage {
                let start = HostedJob::Starting { flags: 0 };
                let HostedJob::Waiting(parcel) = std::mem::replace(stage, start) else {
                    unreachable!("it waited a line ago");
                };
                self.ledger.waiting.fetch_sub(1, Ordering::Relaxed);
                return Some(HostedTask { key, parcel });
            }
        }
        None
    }

    /// Takes back up to `most` hosted jobs that have not been started: the last one, and siblings of it.
    pub(super) fn unstart(&self, most: usize) -> Vec<Taken> {
        let mut jobs: Vec<Taken> = Vec::new();
        if most == 0 {
            return jobs;
        }
        let mut hosted = lock(&self.ledger.hosted);
        let mut parent: Option<JobId> = None;
        while jobs.len() < most
            && let Some(&key) = hosted.queue.back()
        {
            if let Some(HostedJob::Waiting(parcel)) = hosted.jobs.get(&key) {
                if parent
                    .as_ref()
                    .is_some_and(|id| !id.is_sibling_of(&parcel.id))
                {
                    break;
                }
                let Some(HostedJob::Waiting(parcel)) = hosted.remove(key) else {
                    unreachable!("it waited a line ago");
                };
                self.ledger.waiting.fetch_sub(1, Ordering::Relaxed);
                parent.get_or_insert_with(|| parcel.id.clone());
                jobs.push(Taken::Hosted(key, parcel));
            }
            hosted.queue.pop_back();
        }
        jobs
    }

    /// The job's frame is about to die.
    pub(super) fn forget_hosted(&self, key: HostedId) {
        lock(&self.ledger.hosted).remove(key);
    }

    /// The pool has ended: gives the hosted jobs back that are held, and those that wait to be started.
    pub(in crate::worker) fn refuse_hosted(&self) {
        while let Some(Taken::Hosted(key, _)) = self.unhold() {
            self.tell(|outside| outside.done(key, Answer::Aborted));
        }
        while let Some(task) = self.next_hosted(|| true) {
            self.forget_hosted(task.key);
            self.tell(|outside| outside.done(task.key, Answer::Aborted));
        }
    }
}
