//! The way from the running job down to an invocation, kept from one question to the next: in a deep tree names have thousands
//! of levels, and those that are asked for one after the other share nearly all of them.
//!
//! Some invocations on the way are *landmarks* ([`flag::NAMED`]): a walk that comes upon one knows the rest. A landmark is
//! on the stack of the worker that keeps it, and so are all landmarks around it; so as long as it lives, they do. One that
//! has ended is below the one at which the next walk ends, and is forgotten then. An invocation that comes to lie at the same
//! address has no flag, until it becomes a landmark itself.

use crate::job::{
    JobId,
    record::{Frame, flag},
};

/// The levels from one landmark to the next. Too few: many landmarks in a deep tree. Too many: long walks.
const APART: usize = 16;

/// The last landmarks, among which an invocation is looked for: after a job on top whose parent lies further up, invocations may have the
/// flag and be none any more. Too few: longer walks. Too many: each such invocation is compared with all of them.
const LOOKED_AT: usize = 64;

/// What a worker knows of the ways below the job that it runs.
#[derive(Default)]
pub(super) struct KnownWay {
    /// Begins with the ids of all landmarks: each is a prefix of the next one's.
    id: JobId,
    /// Outermost first.
    landmarks: Vec<Landmark>,
}

#[derive(Clone, Copy)]
struct Landmark {
    frame: *const Frame,
    /// The length of its id, in bytes.
    length: usize,
}

/// Where a walk upwards ends: at a landmark, by its number, or at the running job.
pub(super) enum WalkEnd {
    Landmark(usize),
    Job(JobId),
}

impl KnownWay {
    /// The number of the landmark that the invocation is, if it is one.
    pub(super) fn landmark(&self, frame: &Frame) -> Option<usize> {
        if !frame.has(flag::NAMED) {
            return None;
        }
        let last = self.landmarks.iter().enumerate().rev().take(LOOKED_AT);
        let mut last = last.map(|(number, known)| (number, known.frame));
        last.find_map(|(number, known)| std::ptr::eq(known, frame).then_some(number))
    }

    /// The id of child `index` of the innermost invocation of `below`, which lead there from the end of a walk, innermost
    /// first; or of the end, if there are none. `is_own` tells which are on the stack of this worker.
    pub(super) fn follow(
        &mut self,
        end: WalkEnd,
        below: &[&Frame],
        index: u32,
        is_own: impl Fn(&Frame) -> bool,
    ) -> JobId {
        match end {
            WalkEnd::Landmark(number) => {
                self.landmarks.truncate(number + 1);
                self.id.truncate(self.landmarks[number].length);
            }
            WalkEnd::Job(id) => {
                self.landmarks.clear();
                self.id = id;
            }
        }
        for (level, frame) in below.iter().rev().enumerate() {
            self.id.push(frame.index());
            if level % APART == APART - 1 && is_own(frame) {
                frame.raise(flag::NAMED);
                self.landmarks.push(Landmark {
                    frame: std::ptr::from_ref(*frame),
                    length: self.id.as_bytes().len(),
                });
            }
        }
        self.id.child(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::record::Cx;

    /// The invocations of a chain, outermost first.
    fn chain(indices: &[u32]) -> Vec<Frame> {
        let cx = Cx {
            head: std::ptr::null(),
            parent: std::ptr::null(),
        };
        indices.iter().map(|index| Frame::new(cx, *index)).collect()
    }

    fn inwards(frames: &[Frame]) -> Vec<&Frame> {
        frames.iter().rev().collect()
    }

    #[test]
    fn a_walk_ends_at_a_landmark_that_lives() {
        let job = JobId::ROOT.child(3).child(7);
        let indices: Vec<u32> = (0..200).map(|level| level * 3).collect();
        let frames = chain(&indices);
        let mut known = KnownWay::default();
        let end = || WalkEnd::Job(job.clone());
        let whole = job.descendant(indices.iter().copied());
        let id = known.follow(end(), &inwards(&frames), 9, |_| true);
        assert_eq!(id, whole.child(9));

        let found: Vec<_> = frames.iter().map(|frame| known.landmark(frame)).collect();
        let levels: Vec<_> = (0..200).filter(|at| found[*at].is_some()).collect();
        assert_eq!(levels[..3], [15, 31, 47]);
        assert_eq!(found[31], Some(1));

        // From the second landmark another way down. The third is no way to anywhere, though it may still have its flag.
        let other = chain(&[1, 300, 2]);
        let id = known.follow(WalkEnd::Landmark(1), &inwards(&other), 5, |_| true);
        let below = indices[..32].iter().copied().chain([1, 300, 2, 5]);
        assert_eq!(id, job.descendant(below));
        assert_eq!(known.landmark(&frames[47]), None);
        assert_eq!(known.landmark(&frames[31]), Some(1));

        let id = known.follow(WalkEnd::Landmark(0), &[], 8, |_| true);
        let below = indices[..16].iter().copied().chain([8]);
        assert_eq!(id, job.descendant(below));
    }

    #[test]
    fn what_lies_on_the_stack_of_another_worker_is_no_landmark() {
        let indices: Vec<u32> = (0..200).collect();
        let frames = chain(&indices);
        let mut known = KnownWay::default();
        let own = std::ptr::from_ref(&frames[127]);
        let is_own = |frame: &Frame| std::ptr::eq(frame, own);
        known.follow(WalkEnd::Job(JobId::ROOT), &inwards(&frames), 0, is_own);
        assert_eq!(known.landmark(&frames[127]), Some(0));
        assert!(!frames[63].has(flag::NAMED) && known.landmark(&frames[63]).is_none());
    }
}
