//! Spawnable functions as the runtime sees them: a trait that the macro implements, the vtable made from it, and the
//! registry of all of them.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    hash::Hasher as _,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    Answer, Fingerprint, HeldValue, JobSample, JobShape, Kept, Size, ValueName, ValueSize,
    codec::{self, CodecError, Effort},
    kinds::{Carried, CarriedRef, Kinds, Travels},
    loans, needs,
    numbers::plain,
    outcome::OutcomeWriter,
    parcel::UNFIT,
    payload,
    record::{Aborted, Cx, Judge, Payload, Slot, SlotState},
};
/// The arguments of a function, as a tuple.
pub type Args<'s, F> = <<F as Function>::Kinds as Kinds>::Args<'s>;

/// A spawnable function: the macro implements the trait for each, on a private marker type.
///
/// # Safety
/// `VTABLE` must be `VTable::of` this function, or of another with the same kinds, result and body (the marker of
/// another unrolling).
pub unsafe trait Function: 'static + Sized {
    /// The kinds of its arguments.
    type Kinds: Kinds;
    /// The function's result.
    type Out: Travels + Send;
    /// The erased form of the function.
    const VTABLE: &'static VTable;

    /// Runs the body as child `index` of the invocation in `cx`.
    fn call(cx: Cx, index: u32, args: Args<'_, Self>) -> Self::Out;
}

/// How often a body may still be expanded into itself: LLVM does not inline recursion.
pub trait Unroll: 'static {
    /// The budget with an expansion fewer.
    type Next: Unroll;
    /// No further: the next call is a real one.
    const LAST: bool;
}

/// No expansion is left.
pub struct U0;
/// A single expansion is left.
pub struct U1;
/// Two expansions are left.
pub struct U2;

impl Unroll for U0 {
    type Next = U0;
    const LAST: bool = true;
}
impl Unroll for U1 {
    type Next = U0;
    const LAST: bool = false;
}
impl Unroll for U2 {
    type Next = U1;
    const LAST: bool = false;
}

/// A call that may be spawned: a function and its arguments.
pub struct Call<'s, F: Function>(Args<'s, F>);

impl<'s, F: Function> Call<'s, F> {
    /// The call of `F` with these arguments.
    #[inline(always)]
    pub fn new(args: Args<'s, F>) -> Self {
        Call(args)
    }
}

/// A [`Call`] whose function has no name here: the companion of a spawnable function returns it.
pub trait Prepared<'s>: Sized {
    /// The function that is called.
    type Function: Function<Out = Self::Out>;
    /// The function's result.
    type Out;

    /// Takes the arguments out.
    fn into_args(self) -> Args<'s, Self::Function>;
}

impl<'s, F: Function> Prepared<'s> for Call<'s, F> {
    type Function = F;
    type Out = F::Out;

    #[inline(always)]
    fn into_args(self) -> Args<'s, F> {
        self.0
    }
}

/// Results that can be failures, for a spawned call followed by `?`.
#[diagnostic::on_unimplemented(
    message = "`?` follows a spawned call that returns `{Self}`, which is no failure",
    label = "neither a `Result`, nor an `Option`, nor a `ControlFlow`",
    note = "leave the `?` out, or let the spawned function return a `Result`, an `Option` or a `ControlFlow`"
)]
pub trait Speculative {
    /// The type that `?` yields.
    type Value;
    /// True if `?` would return.
    fn failed(&self) -> bool;
    /// The value that `?` yields.
    ///
    /// # Panics
    /// If this is a failure.
    fn value(self) -> Self::Value;
}

impl<T, E> Speculative for Result<T, E> {
    type Value = T;
    #[inline]
    fn failed(&self) -> bool {
        self.is_err()
    }
    fn value(self) -> T {
        self.ok().expect("only successes are asked for their value")
    }
}

impl<B, C> Speculative for ControlFlow<B, C> {
    type Value = C;
    #[inline]
    fn failed(&self) -> bool {
        self.is_break()
    }
    fn value(self) -> C {
        self.continue_value()
            .expect("only successes are asked for their value")
    }
}

impl<T> Speculative for Option<T> {
    type Value = T;
    #[inline]
    fn failed(&self) -> bool {
        self.is_none()
    }
    fn value(self) -> T {
        self.expect("only successes are asked for their value")
    }
}

/// The names of a function, for people and for other nodes.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Package, version, module path, `Self` and name, or the name that the attribute gives.
    pub name: &'static str,
    /// The types of arguments and result, as they are written.
    pub signature: &'static str,
    /// The source file of the function.
    pub file: &'static str,
    /// The line in that file.
    pub line: u32,
}

/// A function with its types erased.
pub struct VTable {
    /// The names of the function.
    pub info: Info,
    pub(crate) run: unsafe fn(&Slot, Cx, &mut Sieve<'_>) -> SlotState,
    pub(crate) export: unsafe fn(&Slot, Effort) -> Result<Packed, CodecError>,
    pub(crate) measure: unsafe fn(&Slot) -> Option<Size>,
    /// What the job borrows and is not in this process.
    pub(crate) absent: unsafe fn(&Slot) -> BTreeSet<ValueName>,
    pub(crate) run_bytes: RunBytes,
    pub(crate) finish: unsafe fn(&Slot, &super::Payload) -> Result<(), CodecError>,
    pub(crate) drop_args: unsafe fn(&Slot),
    pub(crate) drop_out: unsafe fn(&Slot),
    /// It is that of tasks, whose owner can do without large results: they may be kept where a task has run.
    pub(crate) keeps: bool,
}

/// Runs child `index` on serialized arguments; gives result and changed `&mut` arguments. The last argument: large parts of that may be kept here.
type RunBytes = fn(Cx, u32, &[u8], bool) -> Result<Packed, RemoteFailure>;

/// Serialized bytes, and the shared values that they mention.
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) needs: Vec<ValueSize>,
    /// Parts of a result that are kept here. With such the bytes are those of an [`Outcome`](super::outcome::Outcome).
    pub(crate) kept: Vec<HeldValue>,
}

impl From<Packed> for Answer {
    fn from(Packed { bytes, needs, kept }: Packed) -> Answer {
        let needs = needs.iter().map(|value| value.name).collect();
        let kept = (!kept.is_empty()).then(|| {
            let values = kept.iter().map(HeldValue::name_and_size).collect();
            Box::new(Kept { at: 0, values })
        });
        let bytes = bytes.into();
        Answer::Result { bytes, needs, kept }
    }
}

/// Why a job that came as bytes has no result.
#[derive(Debug)]
pub(crate) enum RemoteFailure {
    /// Arguments or result cannot be written or read.
    Codec(CodecError),
    Panicked(Payload),
    Aborted,
}

impl std::fmt::Debug for VTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.info.name)
    }
}

impl VTable {
    /// Makes the vtable of `F`.
    #[must_use]
    pub const fn of<F: Function>(info: Info) -> VTable {
        VTable {
            info,
            run: run::<F>,
            export: export::<F>,
            measure: measure::<F>,
            run_bytes: run_bytes::<F>,
            finish: finish::<F>,
            absent: |_| BTreeSet::new(),
            drop_args: drop_as::<Args<'static, F>>,
            drop_out: drop_as::<F::Out>,
            keeps: false,
        }
    }
}

/// Decides whether the result of a job that runs here is kept, and holds it then.
pub(crate) struct Sieve<'w> {
    /// Greatest number of bytes of arguments that are hashed. Without their fingerprint a result is of no use.
    most_hashed: usize,
    /// A result that took less time is not kept.
    grain: Duration,
    /// Results that mention shared values are kept too.
    values: bool,
    /// What is remembered of the size of its arguments.
    known: Option<Size>,
    /// The size of its arguments, and the time that measuring took, if they are not small.
    pub(crate) measured: Option<(Size, Duration)>,
    /// Bytes of the arguments that are borrowed by name.
    pub(crate) lent: u64,
    /// What the results stand for that the worker has kept.
    covered: Option<&'w Cell<Covered>>,
    /// What that was before the job ran.
    pub(crate) before: Covered,
    /// The time that the job took.
    pub(crate) took: Duration,
    /// The time that hashing its arguments and writing its result took, as far as that is worth a look at the clock.
    pub(crate) cost: Duration,
    /// The size of its arguments, and bytes of what it gives back, about; `None` if they were not measured.
    pub(crate) sizes: Option<(Size, u64)>,
    /// The fate of its result.
    pub(crate) caught: Caught,
}

/// The fate of a result at the sieve.
pub(crate) enum Caught {
    /// The result is not kept: there is none, or it is made again as quickly, or it cannot be kept.
    Nothing,
    /// The job took long, but its arguments are too many bytes to be hashed, or its result to be kept.
    TooLarge,
    /// No result of the function can travel, whatever its jobs compute.
    Unfit(CodecError),
    /// The result, with the fingerprint of the call, made from what its arguments were before the job ran.
    Fact(Fingerprint, WrittenResult),
}

/// A result that is kept.
pub(crate) struct WrittenResult {
    pub(crate) bytes: Vec<u8>,
    /// The shared values that it mentions.
    pub(crate) values: Vec<HeldValue>,
}

/// Arguments of at most so many bytes are written before their job runs and hashed after it, if it has taken long; larger ones are
/// hashed before. Too small: arguments of short jobs are hashed in vain. Too large: a deep recursion holds many bytes.
const HASHED_LATER: usize = 256;

/// Arguments and results up to this size may be kept of every job. Too small: results of short jobs with large arguments are
/// lost. Too large: hashing takes longer than the jobs.
const LEAST_KEPT: usize = 64 << 10;

/// Arguments and results above this size are kept of no job. Too small: results of long jobs are lost. Too large: the results of
/// few jobs take all the room.
const MOST_KEPT: usize = 16 << 20;

/// The number of bytes that may be hashed, or kept, for each second that a job takes. Too small: nothing is kept of programs
/// with large values. Too large: harvesting costs more than it saves.
const KEPT_PER_SECOND: f64 = 5e6;

/// A job that takes at least so long tells something of its function. Too short: each of many small jobs is measured. Too long:
/// nothing is known of a program of small jobs.
const TELLING: Duration = Duration::from_micros(500);

/// A result is not kept if that of one part is, and less than this part of its time, and less than a grain, would be lost. Too
/// small: much is done again. Too large: of a deep chain of calls the result of each is kept, one after the other.
const MOST_LOST: u32 = 16;

/// The most bytes of that part's result. Too small: of chains with such results each is kept. Too large: a large one stays
/// where the one above might be small.
const MOST_OF_LINK: usize = 1 << 10;

/// What the results stand for that a worker has kept: those only that no other one replaces.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Covered {
    /// The time that their jobs took.
    pub(crate) time: Duration,
    /// Their number.
    pub(crate) facts: u32,
    /// The bytes of their answers.
    pub(crate) bytes: usize,
}

impl<'w> Sieve<'w> {
    /// Lets results of jobs through that take at least `grain`; `before` is the time that a sibling took, or zero. `covered`
    /// tells what the results stand for that are kept.
    pub(crate) fn new(
        grain: Duration,
        before: Duration,
        covered: Option<&'w Cell<Covered>>,
    ) -> Self {
        Sieve {
            covered,
            before: covered.map(Cell::get).unwrap_or_default(),
            most_hashed: most_kept(before),
            grain,
            values: false,
            known: None,
            measured: None,
            lent: 0,
            took: Duration::ZERO,
            cost: Duration::ZERO,
            sizes: None,
            caught: Caught::Nothing,
        }
    }

    /// Keeps results that mention shared values too, or not.
    pub(crate) fn with_values(self, values: bool) -> Self {
        Sieve { values, ..self }
    }

    /// Walks no arguments that are known to be larger than what may be hashed.
    pub(crate) fn with_known(self, known: Option<Size>) -> Self {
        Sieve { known, ..self }
    }

    /// Keeps nothing.
    pub(crate) fn closed() -> Self {
        Sieve::new(Duration::MAX, Duration::ZERO, None)
    }

    /// Looks at a call before it runs: afterwards its arguments have been moved or changed. `effort` says with how much effort so many bytes may
    /// be written.
    pub(crate) fn see<F: Function>(
        &mut self,
        sent: &<F::Kinds as Kinds>::Sent<'_>,
        effort: fn(usize) -> Effort,
    ) -> CallSeen {
        let look = || CallSeen::of::<F>(sent, self.most_hashed, effort, self.known);
        let (seen, lent) = loans::gather(look);
        if let CallSeen::Large {
            size: Some(size),
            cost,
            ..
        } = seen
            && !cost.is_zero()
        {
            self.measured = Some((size, cost));
        }
        self.lent = lent.iter().map(|value| value.bytes).sum();
        seen
    }

    /// True if nothing is kept.
    pub(crate) fn is_closed(&self) -> bool {
        self.grain == Duration::MAX
    }

    /// What the results stand for that have been kept of the job's parts.
    fn parts(&self) -> Covered {
        let covered = self.covered.map(Cell::get).unwrap_or_default();
        Covered {
            time: covered.time.saturating_sub(self.before.time),
            facts: covered.facts.saturating_sub(self.before.facts),
            bytes: covered.bytes.saturating_sub(self.before.bytes),
        }
    }

    /// True if no result is kept of what the job has called: nothing of its time would be left.
    pub(crate) fn is_all_lost(&self) -> bool {
        self.parts().facts == 0
    }

    /// True if the job took long, and not only for a part of it whose result is kept already.
    fn is_worth_it(&self) -> bool {
        let parts = self.parts();
        let lost = self.took.saturating_sub(parts.time);
        let is_link = parts.facts <= 1 && parts.bytes <= MOST_OF_LINK;
        let loses_much = lost >= self.grain || lost * MOST_LOST >= self.took;
        self.took >= self.grain && (loses_much || !is_link)
    }

    fn catch<F: Function>(
        &self,
        call: CallSeen,
        out: &F::Out,
        held: &<F::Kinds as Kinds>::Held<'_>,
    ) -> Caught {
        if !self.is_worth_it() {
            return Caught::Nothing;
        }
        // Without the name of the call a result is of no use.
        let print = match call {
            CallSeen::Small(bytes) => Fingerprint::of(F::VTABLE.info.name, &bytes),
            CallSeen::Large {
                print: Ok(print), ..
            } => print,
            CallSeen::Large {
                print: Err(CodecError::TooLong { .. }),
                ..
            } => return Caught::TooLarge,
            CallSeen::Large { .. } => return Caught::Nothing,
        };
        let most = most_kept(self.took);
        let answer = (CarriedRef(out), F::Kinds::seen(held));
        // Whoever wants all results wants those too that are made again as quickly.
        if !self.grain.is_zero() && !is_quick_to_keep(&answer, self.took) {
            return Caught::TooLarge;
        }
        let effort = match self.values {
            true => Effort::keeping(most),
            false => Effort::up_to(most),
        };
        let write = || codec::write_for::<AnswerRead<F>, _>(WRITING_RESULT, &answer, effort);
        let (bytes, values) = needs::look(write);
        match bytes {
            // The values may be gone with this node, and then nobody could read the result.
            Ok(_) if !self.values && !values.is_empty() => Caught::Nothing,
            Ok(bytes) => Caught::Fact(print, WrittenResult { bytes, values }),
            Err(CodecError::TooLong { .. }) => Caught::TooLarge,
            Err(error) if error.is_of_type() => Caught::Unfit(error),
            Err(_) => Caught::Nothing,
        }
    }
}

/// The number of bytes that are worth keeping of a job that took, or probably takes, that time.
pub(crate) fn most_kept(took: Duration) -> usize {
    ((took.as_secs_f64() * KEPT_PER_SECOND) as usize).clamp(LEAST_KEPT, MOST_KEPT)
}

/// Parts of a result that may be written for each second that its job took: about a hundredth of that time. Too small: results of
/// many parts are lost. Too large: a result is written that would be made again as quickly.
const PARTS_PER_SECOND: f64 = 5e5;

/// A result of so many parts may be kept of every job. Too small: results of short jobs are lost. Too large: see
/// [`PARTS_PER_SECOND`].
const LEAST_PARTS: u32 = 1 << 12;

/// Is the result of a job that took so long written in next to none of that time?
fn is_quick_to_keep<T: Serialize>(answer: &T, took: Duration) -> bool {
    let most = LEAST_PARTS.max((took.as_secs_f64() * PARTS_PER_SECOND) as u32);
    codec::measure(answer, most).is_none_or(|size| !size.is_more && size.parts <= u64::from(most))
}

/// Runs the job in the slot, which the caller has taken, and leaves result or payload there. A result that is kept is in the
/// sieve too.
unsafe fn run<F: Function>(slot: &Slot, cx: Cx, sieve: &mut Sieve<'_>) -> SlotState {
    // SAFETY: the caller has taken this job of `F`, so its arguments are there and its own.
    let args = unsafe { slot.take::<Args<'_, F>>() };
    let seen = (!sieve.is_closed()).then(|| sieve.see::<F>(&F::Kinds::sent(&args), Effort::up_to));
    // SAFETY: the arguments have been taken, so the data is empty.
    unsafe { run_with::<F>(slot, cx, sieve, seen, args) }
}

/// Runs the job in the slot with these arguments, and leaves result or payload there. Unless the sieve is closed, the call has been seen.
///
/// # Safety
/// The caller has taken the job, and its data is empty.
pub(crate) unsafe fn run_with<F: Function>(
    slot: &Slot,
    cx: Cx,
    sieve: &mut Sieve<'_>,
    seen: Option<CallSeen>,
    args: Args<'_, F>,
) -> SlotState {
    let index = slot.index();
    let outcome = if let Some(seen) = seen {
        let mut held = F::Kinds::held(args);
        let began = Instant::now();
        let call = || F::call(cx, index, F::Kinds::relend(&mut held));
        let outcome = catch_unwind(AssertUnwindSafe(call));
        let ended = Instant::now();
        sieve.took = ended - began;
        sieve.cost = seen.cost();
        if let Ok(out) = &outcome
            && (sieve.took >= sieve.grain || sieve.took >= TELLING)
        {
            let back = || codec::measure(&(CarriedRef(out), F::Kinds::seen(&held)), FEW_PARTS);
            if sieve.took >= TELLING {
                sieve.sizes = seen
                    .size(sieve.lent)
                    .and_then(|size| Some((size, back()?.bytes)));
            }
            sieve.caught = sieve.catch::<F>(seen, out, &held);
            sieve.cost += ended.elapsed();
        }
        outcome
    } else {
        catch_unwind(AssertUnwindSafe(|| F::call(cx, index, args)))
    };
    match outcome {
        Ok(out) => {
            // SAFETY: the caller's promise.
            unsafe { slot.put(out) };
            SlotState::Done
        }
        Err(payload) if payload.is::<Aborted>() => SlotState::Aborted,
        Err(payload) => {
            // SAFETY: as above.
            unsafe { slot.put(payload) };
            SlotState::Panicked
        }
    }
}

unsafe fn export<F: Function>(slot: &Slot, effort: Effort) -> Result<Packed, CodecError> {
    // SAFETY: the caller has moved the slot to `Leaving`: the arguments of `F` are there, and no thread takes them.
    let args = unsafe { slot.peek::<Args<'_, F>>() };
    export_sent::<F>(&F::Kinds::sent(args), effort)
}

/// The arguments of a job as bytes.
pub(crate) fn export_sent<F: Function>(
    sent: &<F::Kinds as Kinds>::Sent<'_>,
    effort: Effort,
) -> Result<Packed, CodecError> {
    pack::<<F::Kinds as Kinds>::Own, _>(WRITING_ARGUMENTS, sent, effort)
}

/// The parts of a value that are looked at to find out its size. Too small: of trees of boxes only a lower bound is known that says
/// little. Too large: measuring takes longer than the answer is worth. (Measured: a part takes 5 to 10 ns.)
const PARTS: u32 = 1 << 14;

/// The same of a job that only may be of interest.
const FEW_PARTS: u32 = 2000;

/// The size of the arguments, about; `None` if that is not easily said.
unsafe fn measure<F: Function>(slot: &Slot) -> Option<Size> {
    // SAFETY: as for `export`.
    let args = unsafe { slot.peek::<Args<'_, F>>() };
    measure_sent::<F>(&F::Kinds::sent(args))
}

/// The size of these arguments, about; `None` if that is not easily said.
pub(crate) fn measure_sent<F: Function>(sent: &<F::Kinds as Kinds>::Sent<'_>) -> Option<Size> {
    codec::measure(sent, PARTS)
}

const WRITING_ARGUMENTS: &str = "serializing the arguments";
const READING_ARGUMENTS: &str = "deserializing the arguments";
const WRITING_RESULT: &str = "serializing the result";
const READING_RESULT: &str = "deserializing the result";

/// What is noted of a call before it runs, for the name of its result.
pub(crate) enum CallSeen {
    /// The arguments, as they are hashed.
    Small(Vec<u8>),
    /// The arguments are too many bytes to be held while the job runs, or cannot be written.
    Large {
        print: Result<Fingerprint, CodecError>,
        /// The size of the arguments, if that is easily said.
        size: Option<Size>,
        /// The time that looking took; zero if nobody has looked.
        cost: Duration,
    },
}

impl CallSeen {
    /// Looks at a call whose arguments are hashed if they are no more than `most` bytes, unless `known` says that they are more.
    fn of<F: Function>(
        sent: &<F::Kinds as Kinds>::Sent<'_>,
        most: usize,
        effort: fn(usize) -> Effort,
        known: Option<Size>,
    ) -> CallSeen {
        // About: what is half as large again may turn out to be small enough.
        let is_too_large = |size: Size| size.is_more || size.bytes / 2 > most as u64;
        if let Some(size) = known.filter(|size| is_too_large(*size)) {
            let what = WRITING_ARGUMENTS;
            return CallSeen::Large {
                print: Err(CodecError::TooLong { what, most }),
                size: Some(size),
                cost: Duration::ZERO,
            };
        }
        let write = |most| codec::write(WRITING_ARGUMENTS, sent, effort(most));
        let error = match write(HASHED_LATER) {
            Ok(bytes) => return CallSeen::Small(bytes),
            Err(error) => error,
        };
        let began = Instant::now();
        let hash = |bytes: Vec<u8>| Fingerprint::of(F::VTABLE.info.name, &bytes);
        let size = codec::measure(sent, PARTS);
        let print = match error {
            CodecError::TooLong { .. } if !size.is_some_and(is_too_large) => write(most).map(hash),
            error => Err(error),
        };
        CallSeen::Large {
            print,
            size,
            cost: began.elapsed(),
        }
    }

    /// The size of the arguments, if that is easily said; so many of their bytes are borrowed by name.
    fn size(&self, lent: u64) -> Option<Size> {
        match self {
            CallSeen::Small(bytes) => Some(Size {
                bytes: bytes.len() as u64 + lent,
                parts: 1,
                is_more: false,
            }),
            CallSeen::Large { size, .. } => *size,
        }
    }

    /// The time that looking took: next to none if the arguments are small.
    fn cost(&self) -> Duration {
        match self {
            CallSeen::Small(_) => Duration::ZERO,
            CallSeen::Large { cost, .. } => *cost,
        }
    }
}

/// The answer of a call that has returned here after that time, as [`read_answer`] reads it; `None` if it has more bytes than `most`,
/// or keeping it would take more than next to none of that time.
pub(crate) fn answer_to_keep<F: Function>(
    out: &F::Out,
    held: &<F::Kinds as Kinds>::Held<'_>,
    took: Duration,
    most: usize,
) -> Option<Packed> {
    let answer = (CarriedRef(out), F::Kinds::seen(held));
    if !is_quick_to_keep(&answer, took) {
        return None;
    }
    pack_answer::<F, _>(&answer, Effort::at_most(most)).ok()
}

/// Bytes of small arguments of a root job. Too small: root jobs with a few thousand numbers go without a fingerprint. Too large: short root
/// jobs wait while their arguments are read.
const SMALL_ROOT: u64 = 16 << 10;

/// Parts of small arguments of a root job. Too small, too large: see [`SMALL_ROOT`].
const FEW_PARTS_OF_ROOT: u32 = 256;

/// The size of a root job's arguments, as far as a quick look tells; `None` if that is not easily said.
pub(crate) fn size_of_root<F: Function>(args: &Args<'_, F>) -> Option<Size> {
    codec::measure(&F::Kinds::sent(args), FEW_PARTS_OF_ROOT)
}

/// Are arguments of that size read in a microsecond or two?
pub(crate) fn is_small_root(size: Size) -> bool {
    let is_short = !size.is_more && size.parts <= u64::from(FEW_PARTS_OF_ROOT);
    is_short && size.bytes <= SMALL_ROOT
}

/// The fingerprint of a call with these arguments, however many bytes they are, and that number; none if they cannot be serialized.
pub(crate) fn fingerprint_of_all<F: Function>(args: &Args<'_, F>) -> Option<(Fingerprint, u64)> {
    let mut hasher = Fingerprint::hasher(F::VTABLE.info.name);
    let mut length = 0;
    let mut hash = |bytes: &[u8]| {
        hasher.write(bytes);
        length += bytes.len() as u64;
    };
    codec::stream(WRITING_ARGUMENTS, &F::Kinds::sent(args), &mut hash).ok()?;
    Some((Fingerprint(hasher.finish()), length))
}

/// What a root job that has returned here after that time tells of its function, if it took long enough to tell anything. Its arguments
/// had that size.
pub(crate) fn sample_of_root<F: Function>(
    size: Size,
    out: &F::Out,
    held: &<F::Kinds as Kinds>::Held<'_>,
    took: Duration,
) -> Option<JobSample> {
    if took < TELLING {
        return None;
    }
    let back = codec::measure(&(CarriedRef(out), F::Kinds::seen(held)), FEW_PARTS)?;
    Some(JobSample {
        shape: JobShape {
            function: number_of(F::VTABLE)?,
            depth: 1,
            bytes: size.bytes,
            is_more: size.is_more,
            lent: 0,
            keeps: false,
        },
        took,
        back: back.bytes,
    })
}

fn run_bytes<F: Function>(
    cx: Cx,
    index: u32,
    arguments: &[u8],
    keeps: bool,
) -> Result<Packed, RemoteFailure> {
    let own: <F::Kinds as Kinds>::Own =
        codec::read(READING_ARGUMENTS, arguments).map_err(RemoteFailure::Codec)?;
    let began = Instant::now();
    let run = AssertUnwindSafe(|| {
        let mut held = F::Kinds::hold(own);
        let out = F::call(cx, index, F::Kinds::lend(&mut held));
        (Carried(out), F::Kinds::give_back(held))
    });
    let done = catch_unwind(run).map_err(|payload| match payload.is::<Aborted>() {
        true => RemoteFailure::Aborted,
        false => RemoteFailure::Panicked(payload),
    })?;
    let took = began.elapsed();
    let is_large = || codec::measure(&done, PARTS).is_some_and(|size| stays(size.bytes, took));
    let packed = match keeps && is_large() {
        true => pack_parts::<F>(&done, took),
        false => pack_answer::<F, _>(&done, Effort::ANY),
    };
    // A destructor that panics takes nothing with it that is wanted.
    let _ = codec::guard("dropping the result", || drop(done));
    packed.map_err(RemoteFailure::Codec)
}

/// Writes what is read as an `R`.
fn pack<R: DeserializeOwned, T: Serialize>(
    what: &'static str,
    value: &T,
    effort: Effort,
) -> Result<Packed, CodecError> {
    let write = || codec::write_for::<R, T>(what, value, effort);
    let (bytes, needs) = needs::gather_sizes(write);
    let kept = Vec::new();
    bytes.map(|bytes| Packed { bytes, needs, kept })
}

/// What a job gives, as it is read: its result, and its changed `&mut` arguments.
type AnswerRead<F> = (
    Carried<<F as Function>::Out>,
    <<F as Function>::Kinds as Kinds>::Back,
);

fn pack_answer<F: Function, T: Serialize>(
    answer: &T,
    effort: Effort,
) -> Result<Packed, CodecError> {
    pack::<AnswerRead<F>, T>(WRITING_RESULT, answer, effort)
}

/// Are so many bytes, which a task has made in that time, kept where they were made?
pub(crate) fn stays(bytes: u64, took: Duration) -> bool {
    bytes > most_kept(took) as u64
}

/// As [`pack`] of what a task gives; its large parts are kept here.
fn pack_parts<F: Function>(
    done: &(Carried<F::Out>, <F::Kinds as Kinds>::Back),
    took: Duration,
) -> Result<Packed, CodecError> {
    let (out, back) = done;
    let mut writer = OutcomeWriter::default();
    writer.add(out);
    F::Kinds::outputs(back, &mut |output| writer.add(output));
    let packed = writer.finish(took)?;
    match packed.kept.is_empty() {
        true => pack_answer::<F, _>(done, Effort::ANY),
        false => Ok(packed),
    }
}

/// Reads what a job that ran elsewhere gives: its result, and its changed `&mut` arguments.
pub(crate) fn read_answer<F: Function>(
    answer: &super::Payload,
) -> Result<(F::Out, <F::Kinds as Kinds>::Back), CodecError> {
    let read = || codec::read(READING_RESULT, answer);
    let (Carried(out), back): AnswerRead<F> = payload::reading(answer.bytes(), read)?;
    Ok((out, back))
}

/// Copies the changed `&mut` arguments back and drops the result. They stay if it cannot be read.
unsafe fn finish<F: Function>(slot: &Slot, answer: &super::Payload) -> Result<(), CodecError> {
    let (out, back) = read_answer::<F>(answer)?;
    // SAFETY: the caller says that the job is answered, which keeps its arguments, and that it is its own.
    let args = unsafe { slot.take::<Args<'_, F>>() };
    F::Kinds::copy_back(args, back);
    drop(out);
    Ok(())
}

unsafe fn drop_as<T>(slot: &Slot) {
    // SAFETY: the caller says that a `T` is there and that it is its own.
    drop(unsafe { slot.take::<T>() });
}

/// The judge of `F`'s results.
pub(crate) struct JudgeOf<F>(std::marker::PhantomData<F>);

impl<F: Function<Out: Speculative>> JudgeOf<F> {
    pub(crate) const JUDGE: &'static Judge = &Judge {
        // SAFETY: of the field: a result of `F` is in the slot.
        in_slot: |slot| unsafe { slot.peek::<F::Out>() }.failed(),
        in_bytes: |bytes| {
            // The result is the first half of what travels.
            let out = codec::read_beginning::<Carried<F::Out>>(READING_RESULT, bytes);
            let failed =
                out.and_then(|Carried(out)| codec::guard("judging the result", || out.failed()));
            failed.unwrap_or(false)
        },
    };
}

/// An entry in the registry: the macro submits a vtable for each function.
pub struct Registration(pub &'static VTable);

inventory::collect!(Registration);

/// All spawnable functions of this program, by stable name.
///
/// # Panics
/// If two functions share a stable name: the message shows both places, and the cure.
pub fn registered() -> &'static BTreeMap<&'static str, &'static VTable> {
    static REGISTRY: OnceLock<BTreeMap<&'static str, &'static VTable>> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut all = BTreeMap::new();
        for Registration(vtable) in inventory::iter::<Registration> {
            if let Some(other) = all.insert(vtable.info.name, *vtable) {
                let (a, b) = (vtable.info, other.info);
                panic!(
                    "two spawnable functions have the name `{}`: {}:{} and {}:{}; give one of them another with \
                     #[spawnable(name = \"..\")]",
                    a.name, a.file, a.line, b.file, b.line
                );
            }
        }
        all
    })
}

fn numbered() -> &'static [&'static VTable] {
    static NUMBERED: OnceLock<Vec<&'static VTable>> = OnceLock::new();
    NUMBERED.get_or_init(|| registered().values().copied().collect())
}

/// A function's own name: `work` of `package@1.0.0 module::work`, and of `package@1.0.0 work`.
pub(crate) fn short_name(name: &'static str) -> &'static str {
    name.rsplit([':', ' ']).next().unwrap_or(name)
}

/// The function with that number: its place among the registered ones, which is the same in all programs of one
/// [`program_hash`].
#[must_use]
pub fn by_number(number: u32) -> Option<&'static VTable> {
    numbered().get(number as usize).copied()
}

/// The number of a function, see [`by_number`]; `None` if it is not registered.
#[must_use]
pub fn number_of(function: &VTable) -> Option<u32> {
    let place =
        numbered().binary_search_by(|registered| registered.info.name.cmp(function.info.name));
    place.ok().map(|place| place as u32)
}

/// Writing arguments that takes longer is not for threads that have other things to do.
const QUICK: Duration = Duration::from_micros(100);

fn quick_ones() -> &'static [AtomicBool] {
    static QUICK_ONES: OnceLock<Vec<AtomicBool>> = OnceLock::new();
    QUICK_ONES.get_or_init(|| numbered().iter().map(|_| AtomicBool::new(false)).collect())
}

/// Are the arguments of the function with that number known to be written quickly? Not before they have been once.
pub(crate) fn is_quick(number: u32) -> bool {
    (quick_ones().get(number as usize)).is_some_and(|quick| quick.load(Ordering::Relaxed))
}

/// Notes how long it took to write its arguments while no thread waited; `None`: more than a quick writer may take.
pub(crate) fn note_effort(number: u32, took: Option<Duration>) {
    if let Some(quick) = quick_ones().get(number as usize) {
        quick.store(took.is_some_and(|took| took <= QUICK), Ordering::Relaxed);
    }
}

/// What is known of a function some of whose jobs have turned out to be unfit to travel.
#[derive(Default)]
struct UnfitFunction {
    /// The sum of their weights.
    weight: AtomicU32,
    /// What was wrong with the last of them, once the sum is [`UNFIT`].
    why: OnceLock<String>,
}

/// All functions, once a job of one has turned out to be unfit: as a rule none ever does.
static UNFIT_FUNCTIONS: OnceLock<Vec<UnfitFunction>> = OnceLock::new();

fn unfit_function(function: &VTable) -> Option<&'static UnfitFunction> {
    let all = UNFIT_FUNCTIONS.get()?;
    all.get(number_of(function)? as usize)
}

/// Notes that arguments or a result of the function cannot be written or read.
pub(crate) fn note_unfit(function: &VTable, weight: u32, why: &impl Display) {
    UNFIT_FUNCTIONS.get_or_init(|| {
        let each = |_| UnfitFunction::default();
        numbered().iter().map(each).collect()
    });
    if let Some(unfit) = unfit_function(function) {
        let sum = |sum: u32| Some(sum.saturating_add(weight));
        let before = (unfit.weight).fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        if before.is_ok_and(|before| before.saturating_add(weight) >= UNFIT) {
            unfit.why.get_or_init(|| why.to_string());
        }
    }
}

/// Do jobs of the function stay in this process?
pub(crate) fn is_unfit(function: &VTable) -> bool {
    unfit_function(function).is_some_and(|unfit| unfit.weight.load(Ordering::Relaxed) >= UNFIT)
}

/// Why they stay, if they do.
pub(crate) fn unfit_why(function: &VTable) -> Option<&'static str> {
    unfit_function(function)?.why.get().map(String::as_str)
}

/// A hash over all registered functions with their names and the types of their arguments, and over the types of plain data, whose
/// sequences travel as they lie in memory: programs with another hash cannot work together.
#[must_use]
pub fn program_hash() -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for (name, vtable) in registered() {
        for text in [name, vtable.info.signature] {
            hasher
                .update(&(text.len() as u64).to_le_bytes())
                .update(text.as_bytes());
        }
    }
    for (name, size) in plain::names_and_sizes() {
        hasher
            .update(&(name.len() as u64).to_le_bytes())
            .update(name.as_bytes())
            .update(&(size as u64).to_le_bytes());
    }
    hasher.finalize().into()
}

/// # Panics
/// If the linker dropped the function's registration.
pub(crate) fn assert_registered(vtable: &'static VTable) {
    assert!(
        registered().contains_key(vtable.info.name),
        "the spawnable function `{}` is not registered: the linker dropped its library; make sure that the program \
         names something of that crate (`use the_crate as _;`)",
        vtable.info.name
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_a_name_of_its_own_also_at_the_root_of_its_package() {
        let names = ["package@1.0.0 module::work", "package@1.0.0 work", "work"];
        assert_eq!(names.map(short_name), ["work"; 3]);
    }

    #[test]
    fn a_result_is_worth_keeping_for_what_its_parts_leave_out() {
        let ms = Duration::from_millis;
        let before = Covered {
            time: ms(70),
            facts: 7,
            bytes: 70_000,
        };
        let is_worth_it = |took, parts: u64, facts, bytes| {
            let covered = Cell::new(before);
            let mut sieve = Sieve::new(ms(10), ms(0), Some(&covered));
            covered.set(Covered {
                time: before.time + ms(parts),
                facts: before.facts + facts,
                bytes: before.bytes + bytes,
            });
            sieve.took = ms(took);
            assert_eq!(sieve.is_all_lost(), facts == 0);
            sieve.is_worth_it()
        };
        assert!(!is_worth_it(9, 0, 0, 0), "shorter than a grain");
        assert!(is_worth_it(10, 0, 0, 0));
        assert!(is_worth_it(1000, 990, 1, 8), "a grain of its own");
        assert!(is_worth_it(100, 93, 1, 8), "a sixteenth is left out");
        assert!(!is_worth_it(1000, 995, 1, 8), "a link of a chain");
        assert!(is_worth_it(1000, 995, 2, 8), "one result instead of two");
        assert!(is_worth_it(1000, 995, 1, 5000), "it may be small");
        // A job that ran on top while this one waited may have been kept as well.
        assert!(!is_worth_it(1000, 1200, 1, 8));
    }
}
