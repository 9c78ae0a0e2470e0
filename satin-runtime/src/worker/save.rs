//! The remains of a job that is given up: the results of children that were finished, but whose sync it had not passed.
//!
//! A result can be used again only with the fingerprint of the arguments that it was computed from, and those can be
//! hashed only before the job runs. The fingerprints of jobs on other nodes are known. A job that another worker of this
//! process steals is hashed on the way, near the top of the tree, if there are other nodes at all: there a steal is rare
//! and its result worth much. Jobs that an invocation runs by itself, inside its sync, are not saved.

use super::{
    frames::{place_of, root_of},
    gate::Delivered,
    thread::Worker,
};
use crate::job::{
    Answer, Fingerprint, JobName, Saved,
    record::{Frame, Slot, flag},
};

/// Levels below a root or hosted job whose fingerprints are recorded. Too small: little can be saved. Too large: every
/// theft hashes its arguments.
const RECORDED_LEVELS: usize = 6;

/// The invocation's children are to stop: are their results to be saved? The innermost that stops them decides.
pub(super) fn saves(mut frame: *const Frame) -> bool {
    // SAFETY: frames live as long as an invocation below them runs, and one of those asks.
    while let Some(here) = unsafe { frame.as_ref() } {
        if here.has(flag::ABORT) {
            return here.has(flag::SAVE);
        }
        frame = here.parent();
    }
    false
}

/// A child of the invocation has been stopped without a result: if its root or hosted job is being given up, whatever that
/// returns from now on means nothing.
pub(super) fn tear(frame: *const Frame) {
    if saves(frame)
        && let Some(root) = root_of(frame)
    {
        root.frame.raise(flag::TORN);
    }
}

/// Owner: saves the result of a child that another worker has done.
pub(super) fn save_result(job: &Slot) {
    let (Some(own), Some(root)) = (job.recorded(), root_of(job.parent.get())) else {
        return;
    };
    let fingerprint = own.within(root.run.name.fingerprint);
    // SAFETY: the job is done, and its result is the owner's, who calls.
    match unsafe { (job.function.get().save)(job) } {
        Ok(packed) => {
            let answer = Answer::Result {
                bytes: packed.bytes,
                needs: packed.needs,
            };
            save(job, fingerprint, answer);
        }
        Err(error) => {
            let function = job.function.get().info.name;
            tracing::debug!(function, %error, "a result cannot be saved");
        }
    }
}

/// Owner: saves the result of a child that another node has done.
pub(super) fn save_answer(job: &Slot, delivered: Delivered) {
    save(job, delivered.fingerprint, delivered.answer);
}

fn save(job: &Slot, fingerprint: Fingerprint, answer: Answer) {
    let parent = job.parent.get();
    if let (Some(place), Some(root)) = (place_of(parent, job.index()), root_of(parent)) {
        root.save(Saved {
            name: JobName::new(place.id, fingerprint),
            root: root.run.name.fingerprint,
            answer,
        });
    }
}

impl Worker {
    /// The fingerprint of a job that this worker has taken and is about to run, if another node may ask for it later.
    pub(super) fn print_to_record(&self, job: &Slot) -> Option<Fingerprint> {
        if !self.pool().is_heard() || !is_near_the_top(job.parent.get()) {
            return None;
        }
        // SAFETY: the job has not run, so its arguments are there, and ours.
        unsafe { (job.function.get().fingerprint)(job) }
    }
}

fn is_near_the_top(mut frame: *const Frame) -> bool {
    for _ in 0..=RECORDED_LEVELS {
        // SAFETY: the caller has a job of the invocation, so the chain above it lives.
        let here = unsafe { &*frame };
        if here.has(flag::NESTED) {
            return false;
        }
        if here.has(flag::ROOT) {
            return true;
        }
        frame = here.parent();
    }
    false
}
