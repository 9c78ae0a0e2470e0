//! Walks along the chain of frames: from an invocation up to the job from outside in which it runs.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::job::{
    Harvest, JobId, RootRun, Saved,
    record::{Frame, STAYS, UNKNOWN, flag},
};

/// True if an invocation from `frame` up to the root has said that its children are to stop.
pub(super) fn children_aborted(mut frame: *const Frame) -> bool {
    // SAFETY: frames live as long as an invocation below them runs, and one of those asks.
    while let Some(here) = unsafe { frame.as_ref() } {
        if here.has(flag::ABORT) {
            return true;
        }
        frame = here.parent();
    }
    false
}

/// The invocation's children are to stop: is what is finished of the whole job to be handed on? The innermost that stops them
/// decides.
pub(super) fn hands_on(mut frame: *const Frame) -> bool {
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
    if hands_on(frame)
        && let Some(root) = root_of(frame)
    {
        root.frame.raise(flag::TORN);
    }
}

/// A job leaves the process: from now on the children of the invocations around it are harvested.
pub(super) fn harvest_above(mut frame: *const Frame) {
    // SAFETY: the caller has a job of the invocation, so the chain above it lives.
    let known = unsafe { (*frame).has(flag::HARVEST) };
    if known || root_of(frame).is_none_or(|root| root.frame.has(flag::FLEETING)) {
        return;
    }
    // SAFETY: as above.
    while let Some(here) = unsafe { frame.as_ref() } {
        if here.has(flag::HARVEST | flag::ROOT | flag::NESTED) {
            break; // all further up are harvested too
        }
        here.raise(flag::HARVEST);
        frame = here.parent();
    }
}

/// The invocations from `frame` upwards whose children are not harvested yet, and the first one whose children are, if there is one:
/// those of all further up are, too.
pub(super) fn young_above<'f>(mut frame: *const Frame) -> (Vec<&'f Frame>, Option<&'f Frame>) {
    let mut young = Vec::new();
    // SAFETY: frames live as long as an invocation below them runs, and one of those asks.
    while let Some(here) = unsafe { frame.as_ref() } {
        if here.has(flag::ROOT | flag::NESTED) {
            break;
        }
        if here.has(flag::HARVEST) {
            return (young, Some(here));
        }
        young.push(here);
        frame = here.parent();
    }
    (young, None)
}

/// Frames that were walked for the places of jobs, in all pools of this process.
static WALKED: AtomicU64 = AtomicU64::new(0);

pub(super) fn frames_walked(count: usize) {
    WALKED.fetch_add(count as u64, Ordering::Relaxed);
}

/// How many frames have been walked so far in order to tell where in the tree jobs stand. For tests.
#[doc(hidden)]
#[must_use]
pub fn walked() -> u64 {
    WALKED.load(Ordering::Relaxed)
}

/// The place of a job among all jobs of the pool.
#[derive(Clone, Debug)]
pub(super) struct JobPlace {
    /// The job's place in the execution tree.
    pub(super) id: JobId,
    /// The run of the root job that it is, or belongs to.
    pub(super) run: RootRun,
}

/// The place of child `index` of an invocation; `None` below a nested entry, where nothing has an id.
pub(super) fn place_of(frame: *const Frame, index: u32) -> Option<JobPlace> {
    let (place, steps) = walk_to_root(frame, index)?;
    frames_walked(steps);
    Some(place)
}

/// The place of child `index` of an invocation, and how many frames were walked for it.
pub(super) fn walk_to_root(mut frame: *const Frame, index: u32) -> Option<(JobPlace, usize)> {
    let mut up = vec![index];
    loop {
        // SAFETY: the caller holds an unsettled child of the invocation, so the chain above it lives.
        let here = unsafe { &*frame };
        if here.has(flag::NESTED) {
            return None;
        }
        if here.has(flag::ROOT) {
            // SAFETY: the flag says that the frame is the first field of a root frame.
            let root = unsafe { &*frame.cast::<RootFrame>() };
            let steps = up.len();
            let id = root.prefix.descendant(up.into_iter().rev());
            return Some((JobPlace { id, run: root.run }, steps));
        }
        up.push(here.index());
        frame = here.parent();
    }
}

/// The length of the id of an invocation, or [`STAYS`]. Frames remember it.
pub(super) fn depth_of(frame: *const Frame) -> u16 {
    let (mut here, mut steps) = (frame, 0);
    let known = loop {
        // SAFETY: the caller has an unsettled child of the invocation, so the chain above it lives.
        let frame = unsafe { &*here };
        if frame.depth() != UNKNOWN {
            break frame.depth();
        }
        if frame.has(flag::NESTED) {
            break STAYS;
        }
        if frame.has(flag::ROOT) {
            break 0; // a longer prefix is noted
        }
        steps += 1;
        here = frame.parent();
    };
    here = frame;
    for more in (1..=steps).rev() {
        // SAFETY: as above.
        let frame = unsafe { &*here };
        frame.note_depth(below(known, more));
        here = frame.parent();
    }
    below(known, steps)
}

/// The depth that lies `levels` levels below `depth`.
pub(super) fn below(depth: u16, levels: u32) -> u16 {
    if depth == STAYS {
        return STAYS;
    }
    u32::from(depth)
        .saturating_add(levels)
        .min(u32::from(STAYS) - 1) as u16
}

/// The bottom of a chain of frames.
///
/// The reference must not be kept any longer than the caller knows that an invocation of the chain runs.
pub(super) fn root_of<'f>(mut frame: *const Frame) -> Option<&'f RootFrame> {
    // SAFETY: frames live as long as an invocation below them runs, and one of those asks.
    while let Some(here) = unsafe { frame.as_ref() } {
        if here.has(flag::ROOT) {
            // SAFETY: the flag says that the frame is the first field of a root frame.
            return Some(unsafe { &*frame.cast::<RootFrame>() });
        }
        frame = here.parent();
    }
    None
}

/// The bottom of a chain of frames: a job that came from outside.
#[repr(C)]
pub(super) struct RootFrame {
    pub(super) frame: Frame,
    /// The id of the job's parent.
    prefix: JobId,
    /// The id of the job.
    pub(super) job: JobId,
    /// The root job that it belongs to.
    pub(super) run: RootRun,
    /// Results of jobs below.
    harvest: Mutex<Harvest>,
    /// The bytes of all results that the process keeps.
    all_bytes: Arc<AtomicUsize>,
}

impl RootFrame {
    /// The bottom below child `index` of the job `prefix`.
    pub(super) fn new(
        prefix: JobId,
        index: u32,
        run: RootRun,
        all_bytes: &Arc<AtomicUsize>,
    ) -> RootFrame {
        let frame = Frame::special(std::ptr::null(), flag::ROOT);
        frame.note_depth(below(0, prefix.depth() as u32));
        RootFrame {
            frame,
            job: prefix.child(index),
            prefix,
            run,
            harvest: Mutex::default(),
            all_bytes: Arc::clone(all_bytes),
        }
    }

    /// The results of jobs below that are kept.
    pub(super) fn harvest(&self) -> MutexGuard<'_, Harvest> {
        (self.harvest.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the results of jobs below.
    pub(super) fn take_harvest(&self) -> Vec<Saved> {
        let mut harvest = self.harvest();
        self.all_bytes.fetch_sub(harvest.bytes(), Ordering::Relaxed);
        harvest.take(self.run.name.fingerprint)
    }
}

impl Drop for RootFrame {
    /// The job is done: its own result stands for those of its parts.
    fn drop(&mut self) {
        let bytes = self.harvest().bytes();
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
