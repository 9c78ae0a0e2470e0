//! Jobs and answers as bytes: written when a job leaves, read by the owner of what comes back.

use std::{panic::resume_unwind, sync::atomic::Ordering, time::Instant};

use super::{
    super::{frames::JobPlace, sizes::Sizes},
    Judge,
    ledger::SlotRef,
    note_unfit,
};
use crate::job::{
    Answer, Back, Fingerprint, HeldValue, History, JobId, JobLoad, JobShape, JobTrip, Parcel, Size,
    Taken, ValueSize, Wants,
    codec::{CodecError, Effort, LARGEST},
    function::{self, Args, Function, Packed, VTable},
    kinds::Kinds,
    loans, needs,
    outcome::Outcome,
    parcel::UNFIT,
    record::{STAYS, Slot},
};

/// The node that is to get jobs.
#[derive(Clone, Copy, Default)]
pub(super) struct Thief {
    /// Its number.
    pub(super) node: u128,
    /// What it is to get.
    pub(super) wants: Wants,
}

impl Thief {
    pub(super) fn of(judge: &dyn Judge) -> Thief {
        Thief {
            node: judge.thief(),
            wants: judge.wants(),
        }
    }
}

/// Jobs on their way out. They have left their deques and stay in their slots until their arguments are written.
pub(super) struct Leavers {
    pub(super) hosted: Vec<Taken>,
    pub(super) own: Vec<Leaver>,
    /// Number of jobs that the caller wants.
    pub(super) most: u32,
    pub(super) thief: Thief,
    /// About how many there were.
    pub(super) all: usize,
    /// True if held jobs are among them: then the outside is told which are still held.
    pub(super) had_held: bool,
    pub(super) called_home: u64,
}

pub(super) struct Leaver {
    pub(super) slot: SlotRef,
    pub(super) place: JobPlace,
    pub(super) back: Back,
    /// The job as bytes, once the arguments are written.
    pub(super) parcel: Option<Parcel>,
    /// The shared values that it mentions, and the data that it borrows by name, once it has been measured or written.
    pub(super) values: Vec<ValueSize>,
    /// Bytes of the data that it borrows by name.
    pub(super) lent: u64,
    /// The judge has let it go by its size.
    pub(super) is_measured: bool,
    /// A task of a flow that may have run before: by the time at which a worker runs it here others may have announced that they have it.
    pub(super) is_looked_up: bool,
    /// What it looked like to the judge.
    pub(super) shape: Option<JobShape>,
    /// The way that it is to go.
    pub(super) trip: JobTrip,
}

impl Leaver {
    pub(super) fn job(&self) -> &Slot {
        // SAFETY: the job was taken to leave: its slot and the frames above it live until it is settled.
        unsafe { &*self.slot.0 }
    }

    /// The state in which the job comes back, as it stays.
    pub(super) fn back_to_stay(&self) -> Back {
        let mut back = self.back;
        back.history.marked |= self.is_looked_up;
        back
    }

    /// Writes the arguments, if that is known to be quick for this function. False if it is not.
    pub(super) fn pack_quickly(&mut self) -> bool {
        let number = function::number_of(self.job().function.get());
        let Some(number) = number.filter(|number| function::is_quick(*number)) else {
            return false;
        };
        let packed = self.pack(Effort::QUICK);
        if packed.is_err() {
            function::note_effort(number, None);
        }
        packed.is_ok()
    }

    /// Writes the arguments, however long it takes, and notes how long that was. Of a job that is too large to be measured no more is
    /// written than may leave: with more it stays, and its load is returned.
    pub(super) fn pack_patiently(
        &mut self,
        judge: Option<&dyn Judge>,
        sizes: &Sizes,
    ) -> Result<Option<JobLoad>, CodecError> {
        let most = judge.and_then(|judge| self.most_that_leaves(judge));
        let began = Instant::now();
        let packed = self.pack(most.map_or(Effort::ANY, Effort::at_most));
        let size = match (&self.parcel, &packed, most) {
            (Some(parcel), Ok(()), _) => Some(known(JobShape::of(parcel).bytes)),
            (_, Err(CodecError::TooLong { .. }), Some(most)) => Some(Size {
                bytes: most as u64,
                parts: 0,
                is_more: true,
            }),
            _ => None,
        };
        if let Some(size) = size.filter(|_| self.is_too_large_to_measure()) {
            let (function, depth) = (self.job().function.get(), length_of(&self.place.id));
            sizes.note(function, depth, size, began.elapsed());
            if size.is_more {
                return Ok(self.load(size));
            }
        }
        packed?;
        if let Some(parcel) = &self.parcel {
            let is_short = parcel.arguments.len() <= Effort::QUICK.most();
            let took = is_short.then(|| began.elapsed());
            function::note_effort(parcel.function, took);
        }
        Ok(None)
    }

    /// Is only a lower bound known of the job's size?
    fn is_too_large_to_measure(&self) -> bool {
        self.shape.is_some_and(|shape| shape.is_more)
    }

    /// The bytes that the job may have at most so that the judge lets it go, about, if only a lower bound is known of them, and the
    /// judge lets a job of so many go.
    fn most_that_leaves(&self, judge: &dyn Judge) -> Option<usize> {
        let shape = self
            .shape
            .filter(|shape| shape.is_more && !self.back.held)?;
        let mut bytes = shape.bytes;
        let goes = |bytes| {
            let size = Size {
                bytes,
                parts: 0,
                is_more: true,
            };
            self.load(size).is_some_and(|load| judge.accepts(&load))
        };
        while bytes < LARGEST as u64 && goes(bytes) {
            bytes = bytes.saturating_mul(2);
        }
        Some(LARGEST.min(usize::try_from(bytes).unwrap_or(LARGEST)))
    }

    /// Does the judge let the job go? Its load, if not. Its arguments are measured, unless it is remembered what that gave; if
    /// it cannot be done, as when they mention a value that has no name yet, the job may go for now.
    pub(super) fn measure_for(&mut self, judge: &dyn Judge, sizes: &Sizes) -> Result<(), JobLoad> {
        if let Some(bytes) = self.length() {
            return self.judged(judge, Some(known(bytes)));
        }
        let (function, depth) = (self.job().function.get(), length_of(&self.place.id));
        let remembered = sizes.get(function, depth);
        let size = remembered.or_else(|| {
            let began = Instant::now();
            let size = self.measure()?;
            if size.is_more {
                sizes.note(function, depth, size, began.elapsed());
            }
            Some(size)
        });
        // What only may be so large is judged again once it is written.
        self.is_measured = remembered.is_none() && size.is_some_and(|size| !size.is_more);
        self.judged(judge, size)
    }

    /// The size of the arguments, about, without writing them; the values that they mention are noted.
    fn measure(&mut self) -> Option<Size> {
        let job = self.job();
        // SAFETY: the job was taken to leave: its arguments are there, and no other thread takes them.
        let measure = || unsafe { (job.function.get().measure)(job) };
        let ((size, values), lent) = loans::gather(|| needs::look(measure));
        self.values = values.iter().map(HeldValue::name_and_size).collect();
        self.note_lent(&lent);
        size
    }

    fn note_lent(&mut self, lent: &[ValueSize]) {
        borrowed_last(&mut self.values, lent);
        self.lent = lent.iter().map(|value| value.bytes).sum();
    }

    /// The same of a job whose arguments have been written.
    pub(super) fn may_leave(&mut self, judge: &dyn Judge) -> Result<(), JobLoad> {
        self.judged(judge, self.length().map(known))
    }

    /// The bytes of the arguments, once they are written, and of what they borrow by name.
    fn length(&self) -> Option<u64> {
        self.parcel
            .as_ref()
            .map(|parcel| JobShape::of(parcel).bytes)
    }

    /// The load of the job, if its arguments are of that size; `None` if its function is not registered.
    fn load(&self, size: Size) -> Option<JobLoad> {
        let shape = JobShape {
            function: function::number_of(self.job().function.get())?,
            depth: length_of(&self.place.id),
            bytes: size.bytes,
            is_more: size.is_more,
            lent: self.lent,
            keeps: self.job().function.get().keeps,
        };
        // SAFETY: the job was taken to leave: its arguments are there, and no other thread takes them.
        let absent = unsafe { (self.job().function.get().absent)(self.job()) };
        Some(JobLoad {
            shape,
            parts: size.parts,
            values: self.values.clone(),
            absent,
        })
    }

    fn judged(&mut self, judge: &dyn Judge, size: Option<Size>) -> Result<(), JobLoad> {
        let Some(load) = size.and_then(|size| self.load(size)) else {
            return Ok(()); // what keeps it is told when it is written
        };
        // What is for other nodes only goes to one, whatever that costs.
        if self.back.held {
            return Ok(());
        }
        (self.shape, self.trip) = (Some(load.shape), judge.trip(&load));
        match judge.accepts(&load) {
            true => Ok(()),
            false => Err(load),
        }
    }

    pub(super) fn pack(&mut self, effort: Effort) -> Result<(), CodecError> {
        let (place, history) = (self.place.clone(), self.back.history);
        let (parcel, values) = pack_with_sizes(self.job(), place, history, effort)?;
        self.lent = JobShape::of(&parcel).lent;
        self.parcel = Some(parcel);
        self.values = values;
        Ok(())
    }
}

/// A size of so many bytes.
fn known(bytes: u64) -> Size {
    Size {
        bytes,
        parts: 0,
        is_more: false,
    }
}

/// The length of an id, which is how deep its job stands.
pub(in crate::worker) fn length_of(id: &JobId) -> u16 {
    id.depth().min(usize::from(STAYS) - 1) as u16
}

/// A job as it travels. The caller has taken it; its arguments stay.
pub(in crate::worker) fn pack(
    job: &Slot,
    place: JobPlace,
    history: History,
    effort: Effort,
) -> Result<Parcel, CodecError> {
    pack_with_sizes(job, place, history, effort).map(|(parcel, _)| parcel)
}

/// As [`pack`], with the sizes of the values that the job mentions.
fn pack_with_sizes(
    job: &Slot,
    place: JobPlace,
    history: History,
    effort: Effort,
) -> Result<(Parcel, Vec<ValueSize>), CodecError> {
    let vtable = job.function.get();
    let function = function::number_of(vtable).ok_or(CodecError::Unregistered)?;
    let (packed, lent) = export(job, effort)?;
    let JobPlace { id, run } = place;
    let own = Fingerprint::of(vtable.info.name, &packed.bytes);
    let mut values = packed.needs;
    borrowed_last(&mut values, &lent);
    let parcel = Parcel {
        fingerprint: match id.is_root_job() {
            true => own,
            false => own.within(run.name.fingerprint),
        },
        id,
        function,
        arguments: packed.bytes.into(),
        needs: values.iter().map(|value| value.name).collect(),
        lent: lent.iter().map(|value| value.bytes).collect(),
        keeps: vtable.keeps,
        owner: 0,
        term: run.term,
        root: run.name.fingerprint,
        history,
    };
    Ok((parcel, values))
}

/// Adds what a job borrows to the values that it mentions, behind them.
fn borrowed_last(values: &mut Vec<ValueSize>, lent: &[ValueSize]) {
    values.retain(|value| lent.iter().all(|lent| lent.name != value.name));
    values.extend(lent);
}

/// The arguments of a job as bytes, and the data that they borrow by name. The caller has taken it; its arguments stay.
pub(super) fn export(job: &Slot, effort: Effort) -> Result<(Packed, Vec<ValueSize>), CodecError> {
    // SAFETY: the caller has taken the job and not run it, so its arguments are there and no other thread takes them.
    let export = || unsafe { (job.function.get().export)(job, effort) };
    let (packed, lent) = loans::gather(export);
    Ok((packed?, lent))
}

/// The answer of a job that was away.
pub(in crate::worker) struct WholeAnswer {
    pub(in crate::worker) answer: Answer,
    /// The shared values that it mentions: here until it has been read.
    pub(in crate::worker) values: Vec<HeldValue>,
}

impl From<Answer> for WholeAnswer {
    /// An answer that mentions no value.
    fn from(answer: Answer) -> WholeAnswer {
        let values = Vec::new();
        WholeAnswer { answer, values }
    }
}

/// Owner: takes the answer off an answered job.
pub(in crate::worker) fn take_answer(job: &Slot) -> WholeAnswer {
    let whole: *mut WholeAnswer = job
        .extra
        .swap(std::ptr::null_mut(), Ordering::Relaxed)
        .cast();
    // SAFETY: the job is answered, so `deliver` put a box there, and each is taken once.
    *unsafe { Box::from_raw(whole) }
}

/// Owner: the result of an answered job, with its `&mut` arguments copied back. `None` if it cannot be read: then the job, which still has
/// its arguments, is to be run here.
///
/// # Safety
/// The slot holds an answered job of `F`, the caller's.
pub(in crate::worker) unsafe fn import<F: Function>(job: &Slot) -> Option<F::Out> {
    let opened = open::<F>(job);
    if let Err(Unopened::Unreadable(error)) = &opened {
        note_unfit(F::VTABLE, UNFIT, error, true);
        return None;
    }
    // SAFETY: an answered job keeps its arguments.
    let args = unsafe { job.take::<Args<'_, F>>() };
    let (out, back) = opened.unwrap_or_else(|unopened| unopened.unwind(F::VTABLE));
    F::Kinds::copy_back(args, back);
    Some(out)
}

/// Why an answer is no result.
enum Unopened {
    Unreadable(CodecError),
    Panicked(String),
    Aborted,
}

impl Unopened {
    fn unwind(self, function: &VTable) -> ! {
        match self {
            Unopened::Unreadable(error) => panic!(
                "the result of `{}`, which another node has sent, cannot be read: {error}",
                function.info.name
            ),
            Unopened::Panicked(message) => resume_unwind(Box::new(message)),
            Unopened::Aborted => super::super::thread::raise_abort(),
        }
    }
}

/// Owner: what an answered job gives: its result, and its changed `&mut` arguments.
fn open<F: Function>(job: &Slot) -> Result<(F::Out, <F::Kinds as Kinds>::Back), Unopened> {
    let WholeAnswer { answer, values } = take_answer(job);
    let _until_read = values;
    match answer {
        Answer::Result { bytes, .. } => {
            function::read_answer::<F>(&bytes).map_err(Unopened::Unreadable)
        }
        Answer::Panicked(message) => Err(Unopened::Panicked(message)),
        Answer::Aborted | Answer::Refused(_) | Answer::Unfit(_) => Err(Unopened::Aborted),
    }
}

/// What a task that has run elsewhere gives.
pub(in crate::worker) enum OpenedAnswer<F: Function> {
    /// Its result, and its changed `&mut` arguments.
    Whole(F::Out, <F::Kinds as Kinds>::Back),
    /// The same in parts, of which some are kept by that node.
    Parts(Outcome, u128),
}

/// Owner: as [`open`], of a task.
pub(in crate::worker) fn open_parts<F: Function>(job: &Slot) -> OpenedAnswer<F> {
    // SAFETY: the job is answered, so `deliver` put a box there, and nobody has taken it yet.
    let whole = unsafe { &*job.extra.load(Ordering::Relaxed).cast::<WholeAnswer>() };
    let Some(at) = whole.answer.kept().map(|kept| kept.at) else {
        let (out, back) = open::<F>(job).unwrap_or_else(|unopened| unopened.unwind(F::VTABLE));
        return OpenedAnswer::Whole(out, back);
    };
    let WholeAnswer { answer, values } = take_answer(job);
    let _until_read = values;
    let Answer::Result { bytes, .. } = answer else {
        unreachable!("of others nothing is kept")
    };
    match Outcome::read(&bytes) {
        Ok(outcome) => OpenedAnswer::Parts(outcome, at),
        Err(error) => Unopened::Unreadable(error).unwind(F::VTABLE),
    }
}

/// The end of an answered job whose result is dropped.
pub(in crate::worker) enum Finished {
    Done,
    /// Its result cannot be read: the job, which still has its arguments, is to be run here.
    Unreadable,
    Panicked(String),
}

/// Owner: as [`import`], by the vtable, with the result dropped.
///
/// # Safety
/// The slot holds an answered job, the caller's.
pub(in crate::worker) unsafe fn finish(job: &Slot) -> Finished {
    let function = job.function.get();
    let WholeAnswer { answer, values } = take_answer(job);
    let _until_read = values;
    if let Answer::Result { bytes, .. } = &answer {
        // SAFETY: an answered job keeps its arguments.
        return match unsafe { (function.finish)(job, bytes) } {
            Ok(()) => Finished::Done,
            Err(error) => {
                note_unfit(function, UNFIT, &error, true);
                Finished::Unreadable
            }
        };
    }
    // SAFETY: as above.
    unsafe { (function.drop_args)(job) };
    match answer {
        Answer::Panicked(message) => Finished::Panicked(message),
        _ => Finished::Done,
    }
}
