//! Any number of children with one closure that delivers their results: loops and places expand to it.
//!
//! The closure borrows the places from the first spawn to the sync, so they cannot be read in between. At the sync the
//! jobs are turned round, so that they are popped in program order; each result is delivered as soon as it is there, in
//! spawn order, so a program computes the same on one core as on a thousand.

use std::{
    cell::Cell,
    marker::PhantomData,
    mem::{self, MaybeUninit},
    ptr::NonNull,
    thread::panicking,
};

use super::{
    scope::{Position, Pushed, Scope, collect, run_here, settle, try_finish, turn},
    thread::{LeaveAll, Worker},
};
use crate::job::{
    function::{Args, Function, JudgeOf, Prepared, Speculative},
    record::{Frame, Judge, Slot, flag},
};

/// The tickets and operands that a group keeps of one statement that spawned.
///
/// # Safety
/// `settle` and `try_settle` pop exactly [`Entry::jobs`] jobs, those that were pushed for the entry; `exchange` may exchange
/// any two jobs of entries of the type.
pub unsafe trait Entry<'s> {
    /// The results and operands that the closure gets.
    type Done;
    /// How alike the jobs of an entry are.
    const JOBS: Jobs;

    /// Number of jobs that belong to the entry.
    fn jobs(&self) -> usize;

    /// Exchanges the places of two jobs.
    ///
    /// # Safety
    /// The two jobs belong to entries of this type, are the caller's alone, and have not begun.
    #[inline(always)]
    unsafe fn exchange(a: &Slot, b: &Slot) {
        // SAFETY: the caller's promise.
        unsafe { a.exchange(b) }
    }

    /// Settles the entry's children, the youngest of the scope.
    ///
    /// # Safety
    /// The entry's children are the youngest of the scope, and have been turned round.
    unsafe fn settle(self, scope: &Scope<'_>) -> Self::Done;

    /// As `settle`, among siblings that may fail; `None` if this entry's were stopped.
    ///
    /// # Safety
    /// The entry's children are the youngest of the scope, and stand as `stands` says.
    unsafe fn try_settle(self, scope: &Scope<'_>, stands: Stands) -> Option<Self::Done>;

    /// True if a speculative call failed.
    fn failed(_: &Self::Done) -> bool {
        false
    }
}

/// How alike the jobs of several entries are: alike jobs are exchanged faster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// No jobs at all.
    None,
    /// Jobs of one and the same function.
    Alike,
    /// Jobs of different functions.
    Mixed,
}

/// The order in which jobs stand in their slots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// The first in program order is the youngest.
    Turned,
    /// The last in program order is the youngest.
    AsPushed,
}

/// A child in a group. Its number follows from the order, so that a loop keeps nothing but its jobs.
#[must_use]
pub struct Ticket<F>(PhantomData<fn() -> F>);

/// The ticket of a call followed by `?`.
#[must_use]
pub struct Spec<T>(pub T);

/// Operands that were evaluated at the spawn.
#[must_use]
pub struct Keep<O>(pub O);

/// An entry of one of several statements that spawn.
#[must_use]
pub enum Either<A, B> {
    /// An entry of the first statement.
    A(A),
    /// An entry of another statement.
    B(B),
}

// SAFETY: each settles the one job that `Group::spawn` pushed for it, and these are all `F`'s.
unsafe impl<'s, F: Function> Entry<'s> for Ticket<F> {
    type Done = F::Out;
    const JOBS: Jobs = Jobs::Alike;

    fn jobs(&self) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn exchange(a: &Slot, b: &Slot) {
        // SAFETY: the caller's promise: both are jobs of `F`.
        unsafe { a.exchange_alike::<Args<'static, F>>(b) }
    }

    #[inline(always)]
    unsafe fn settle(self, scope: &Scope<'_>) -> F::Out {
        let frame = scope.frame();
        // SAFETY: the caller promises that our child is the youngest.
        let pushed = unsafe { Pushed::below(scope.head.get()) };
        let here = settle(pushed.slot, frame);
        scope.head.set(pushed.slot);
        // SAFETY: the job is `F`'s, and popped, so that it is not settled again.
        unsafe {
            if here {
                run_here::<F>(pushed, frame)
            } else {
                collect::<F>(pushed.slot)
            }
        }
    }

    #[inline]
    unsafe fn try_settle(self, scope: &Scope<'_>, _: Stands) -> Option<F::Out> {
        let frame = scope.frame_ref();
        // SAFETY: as above.
        let pushed = unsafe { Pushed::below(scope.head.get()) };
        let here = settle(pushed.slot, frame);
        scope.head.set(pushed.slot);
        // SAFETY: as above.
        unsafe { try_finish::<F>(here, pushed, frame) }
    }
}

// SAFETY: the inner ticket does it.
unsafe impl<'s, F: Function<Out: Speculative>> Entry<'s> for Spec<Ticket<F>> {
    type Done = F::Out;
    const JOBS: Jobs = Jobs::Alike;

    fn jobs(&self) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn exchange(a: &Slot, b: &Slot) {
        // SAFETY: the caller's promise; the judge is `F`'s as well.
        unsafe { Ticket::<F>::exchange(a, b) }
    }

    #[inline]
    unsafe fn settle(self, scope: &Scope<'_>) -> F::Out {
        // SAFETY: the caller's promise.
        unsafe { self.0.settle(scope) }
    }

    #[inline]
    unsafe fn try_settle(self, scope: &Scope<'_>, stands: Stands) -> Option<F::Out> {
        // SAFETY: the caller's promise.
        let done = unsafe { self.0.try_settle(scope, stands) };
        scope.check(&done);
        done
    }

    fn failed(done: &F::Out) -> bool {
        done.failed()
    }
}

// SAFETY: no job belongs to it.
unsafe impl<O> Entry<'_> for Keep<O> {
    type Done = O;
    const JOBS: Jobs = Jobs::None;

    fn jobs(&self) -> usize {
        0
    }

    #[inline(always)]
    unsafe fn settle(self, _: &Scope<'_>) -> O {
        self.0
    }

    #[inline(always)]
    unsafe fn try_settle(self, _: &Scope<'_>, _: Stands) -> Option<O> {
        Some(self.0)
    }
}

// SAFETY: the one that was pushed does it; jobs of several statements may be of several functions.
unsafe impl<'s, A: Entry<'s>, B: Entry<'s>> Entry<'s> for Either<A, B> {
    type Done = Either<A::Done, B::Done>;
    const JOBS: Jobs = Jobs::Mixed;

    fn jobs(&self) -> usize {
        match self {
            Either::A(entry) => entry.jobs(),
            Either::B(entry) => entry.jobs(),
        }
    }

    #[inline(always)]
    unsafe fn settle(self, scope: &Scope<'_>) -> Self::Done {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Either::A(entry) => Either::A(entry.settle(scope)),
                Either::B(entry) => Either::B(entry.settle(scope)),
            }
        }
    }

    #[inline]
    unsafe fn try_settle(self, scope: &Scope<'_>, stands: Stands) -> Option<Self::Done> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(match self {
                Either::A(entry) => Either::A(entry.try_settle(scope, stands)?),
                Either::B(entry) => Either::B(entry.try_settle(scope, stands)?),
            })
        }
    }

    fn failed(done: &Self::Done) -> bool {
        match done {
            Either::A(done) => A::failed(done),
            Either::B(done) => B::failed(done),
        }
    }
}

/// How alike the jobs of a tuple of entries are.
const fn jobs_of(parts: &[Jobs]) -> Jobs {
    let (mut all, mut at) = (Jobs::None, 0);
    while at < parts.len() {
        all = match (all, parts[at]) {
            (all, Jobs::None) => all,
            (Jobs::None, part) => part,
            _ => Jobs::Mixed, // perhaps of one function, but that cannot be asked here
        };
        at += 1;
    }
    all
}

macro_rules! tuple_of_entries {
    ($($entry:ident $value:ident),+; $($reversed:ident)+) => {
        // SAFETY: the elements do it, in the order in which their jobs stand.
        unsafe impl<'s, $($entry: Entry<'s>),+> Entry<'s> for ($($entry,)+) {
            type Done = ($($entry::Done,)+);
            const JOBS: Jobs = jobs_of(&[$($entry::JOBS),+]);

            fn jobs(&self) -> usize {
                let ($($value,)+) = self;
                0 $(+ $value.jobs())+
            }

            #[inline(always)]
            unsafe fn exchange(a: &Slot, b: &Slot) {
                // SAFETY: the caller's promise; all jobs are those of the one element that is not `None`.
                unsafe {
                    $(if const { matches!((Self::JOBS, $entry::JOBS), (Jobs::Alike, Jobs::Alike)) } {
                        return $entry::exchange(a, b);
                    })+
                    a.exchange(b);
                }
            }

            #[inline(always)]
            unsafe fn settle(self, scope: &Scope<'_>) -> Self::Done {
                let ($($value,)+) = self;
                // SAFETY: the caller's promise.
                $(let $value = unsafe { $value.settle(scope) };)+
                ($($value,)+)
            }

            #[inline]
            unsafe fn try_settle(self, scope: &Scope<'_>, stands: Stands) -> Option<Self::Done> {
                let ($($value,)+) = self;
                // SAFETY: the caller's promise.
                unsafe {
                    if stands == Stands::Turned {
                        $(let $value = $value.try_settle(scope, stands);)+
                        Some(($($value?,)+))
                    } else {
                        $(let $reversed = $reversed.try_settle(scope, stands);)+
                        Some(($($value?,)+))
                    }
                }
            }

            fn failed(($($value,)+): &Self::Done) -> bool {
                $($entry::failed($value))||+
            }
        }
    };
}

tuple_of_entries!(A a; a);
tuple_of_entries!(A a, B b; b a);
tuple_of_entries!(A a, B b, C c; c b a);
tuple_of_entries!(A a, B b, C c, D d; d c b a);
tuple_of_entries!(A a, B b, C c, D d, E e; e d c b a);
tuple_of_entries!(A a, B b, C c, D d, E e, F f; f e d c b a);
tuple_of_entries!(A a, B b, C c, D d, E e, F f, G g; g f e d c b a);
tuple_of_entries!(A a, B b, C c, D d, E e, F f, G g, H h; h g f e d c b a);

/// The part of a group that stays in memory: the closure, and fields that are not touched as long as all goes the usual
/// way.
///
/// Apart from [`Group`] because a landing pad takes its address: a variable whose address is taken cannot live in a
/// register.
pub struct Delivery<'s, E: Entry<'s>, D: FnMut(E::Done), O: Order = InOrder> {
    deliver: D,
    entries: Entries<E>,
    order: PhantomData<O>,
    /// A speculative call that failed before the sync, when the slots ran out.
    failed: Option<Box<E::Done>>,
    /// Invariant in `'s`, for the reason given at [`Child`](super::Child).
    borrows: PhantomData<Cell<&'s ()>>,
}

impl<'s, E: Entry<'s>, D: FnMut(E::Done)> Delivery<'s, E, D> {
    /// The closure that delivers: one call per entry, in spawn order.
    #[inline(always)]
    pub fn new(deliver: D) -> Self {
        Delivery::ordered(InOrder, deliver)
    }
}

impl<'s, E: Entry<'s>, D: FnMut(E::Done), O: Order> Delivery<'s, E, D, O> {
    /// The closure that delivers, where the order may not matter.
    #[inline(always)]
    pub fn ordered(_: O, deliver: D) -> Self {
        Delivery {
            deliver,
            entries: Entries::new(),
            order: PhantomData,
            failed: None,
            borrows: PhantomData,
        }
    }

    /// Settles and delivers all pending children on the way out of the function, or unwinding, or where the slots run
    /// out; or stops them, where they are not wanted any more.
    #[cold]
    #[inline(never)]
    fn complete(&mut self, base: *const Slot, frame: &Frame, stands: Stands) {
        let worker = Worker::of(base);
        let rest = LeaveAll {
            worker,
            base,
            frame,
        };
        if !panicking() && !frame.has(flag::ABORT) {
            // The worker's own head is exact whenever user code runs, or unwinds.
            let scope = Scope::resumed(worker.head(), frame);
            self.try_settle_all(&scope, base, stands);
        }
        drop(rest);
        self.entries.clear();
        worker.set_head(base);
    }

    /// Settles everything; delivers it, in spawn order, unless something has failed.
    #[cold]
    #[inline(never)]
    fn try_settle_all(&mut self, scope: &Scope<'_>, base: *const Slot, stands: Stands) {
        let mut older = self.entries.take(scope, base);
        let turned = match stands {
            Stands::Turned => std::mem::take(&mut older),
            Stands::AsPushed => turn_youngest(&mut older, scope, base),
        };
        let mut failed = self.failed.take();
        let mut keep = |result: Option<E::Done>| {
            let result = result?;
            if !E::failed(&result) {
                return Some(result);
            }
            failed.get_or_insert_with(|| Box::new(result));
            None
        };
        let (mut first, mut then) = (Vec::new(), Vec::new());
        for entry in turned {
            // SAFETY: the jobs of these are the youngest, and were turned round.
            then.extend(keep(unsafe { entry.try_settle(scope, Stands::Turned) }));
        }
        while let Some(entry) = older.pop() {
            // SAFETY: its jobs are the youngest that are left.
            first.extend(keep(unsafe { entry.try_settle(scope, Stands::AsPushed) }));
        }
        self.failed = failed;
        if self.failed.is_some() || scope.cancelled() {
            return; // what the function returns is that failure, or the one of a sibling outside of the group
        }
        let in_order = first.into_iter().rev().chain(then);
        in_order.for_each(&mut self.deliver);
    }
}

/// Turns the jobs round that have not been stolen. Their entries are split off from those of which a job has been
/// stolen, which are older.
fn turn_youngest<'s, E: Entry<'s>>(
    entries: &mut Vec<E>,
    scope: &Scope<'_>,
    base: *const Slot,
) -> Vec<E> {
    let (worker, head) = (Worker::of(base), scope.head.get());
    let ours = worker.retake(base);
    let (mut older, mut first) = (0, base);
    while first.addr() < ours.addr() && older < entries.len() {
        first = first.wrapping_add(entries[older].jobs());
        older += 1;
    }
    // SAFETY: what was retaken is ours alone, and all of it belongs to these entries.
    unsafe { turn(first, head, |a, b| E::exchange(a, b)) };
    worker.answer_after_turn(head);
    entries.split_off(older)
}

/// The entries of a group, oldest first. Where all are alike there is nothing to keep: they follow from the number of jobs.
struct Entries<E>(MaybeUninit<Vec<E>>);

impl<E> Entries<E> {
    const KEPT: bool = size_of::<E>() != 0;

    #[inline(always)]
    fn new() -> Self {
        Entries(if Self::KEPT {
            MaybeUninit::new(Vec::new())
        } else {
            MaybeUninit::uninit()
        })
    }

    #[inline(always)]
    fn push(&mut self, entry: E) {
        if const { Self::KEPT } {
            // SAFETY: `new` has made the vector.
            unsafe { self.0.assume_init_mut() }.push(entry);
        } else {
            mem::forget(entry);
        }
    }

    /// All of them; the group is empty then.
    fn take<'s>(&mut self, scope: &Scope<'_>, base: *const Slot) -> Vec<E>
    where
        E: Entry<'s>,
    {
        if Self::KEPT {
            // SAFETY: `new` has made the vector.
            return mem::take(unsafe { self.0.assume_init_mut() });
        }
        let jobs = (scope.head.get().addr() - base.addr()) / size_of::<Slot>();
        let mut all = Vec::new();
        for _ in 0..jobs {
            // SAFETY: a value without a size has no bytes to read, and `push` forgot one for each that is made here.
            let entry = unsafe { NonNull::<E>::dangling().read() };
            let of_each = entry.jobs();
            if all.len() * of_each < jobs {
                all.push(entry);
            }
        }
        all
    }

    fn clear(&mut self) {
        if Self::KEPT {
            // SAFETY: `new` has made the vector.
            unsafe { self.0.assume_init_mut() }.clear();
        }
    }
}

impl<E> Drop for Entries<E> {
    #[inline(always)]
    fn drop(&mut self) {
        if const { Self::KEPT } {
            // SAFETY: `new` has made the vector, and it is not used any more.
            unsafe { self.0.assume_init_drop() };
        }
    }
}

/// Any number of spawned children with one closure for their results; see the module's documentation.
///
/// No part of a group is passed by reference to a function that is not inlined: a group of a hot loop lives in registers.
pub struct Group<'g, 's, E: Entry<'s>, D: FnMut(E::Done), O: Order = InOrder> {
    scope: &'g Scope<'g>,
    base: *const Slot,
    full: bool,
    stands: Stands,
    cold: &'g mut Delivery<'s, E, D, O>,
}

impl<'g, 's, E: Entry<'s>, D: FnMut(E::Done), O: Order> Group<'g, 's, E, D, O> {
    /// An empty group on top of what the scope has.
    #[inline(always)]
    pub fn new(scope: &'g Scope<'g>, delivery: &'g mut Delivery<'s, E, D, O>) -> Self {
        Group {
            scope,
            base: scope.head.get(),
            full: false,
            stands: Stands::AsPushed,
            cold: delivery,
        }
    }

    /// Creates a child. Its ticket must be pushed next, in an entry with its siblings of the same statement.
    #[inline(always)]
    pub fn spawn<P: Prepared<'s>>(&mut self, call: P) -> Ticket<P::Function> {
        self.spawn_judged(call, None)
    }

    /// Creates a child whose failure stops its siblings.
    #[inline(always)]
    pub fn spawn_speculative<P>(&mut self, call: P) -> Ticket<P::Function>
    where
        P: Prepared<'s, Out: Speculative>,
    {
        self.spawn_judged(call, Some(JudgeOf::<P::Function>::JUDGE))
    }

    #[inline(always)]
    fn spawn_judged<P: Prepared<'s>>(
        &mut self,
        call: P,
        judge: Option<&'static Judge>,
    ) -> Ticket<P::Function> {
        let Pushed { slot, .. } = self.scope.push(self.scope.plan(call), judge);
        if self.scope.look(slot) {
            self.full = true;
        }
        Ticket(PhantomData)
    }

    /// Keeps an entry until the sync.
    #[inline(always)]
    pub fn push(&mut self, entry: E) {
        self.cold.entries.push(entry);
        if self.full {
            // The slots run out: overflow is a call, and never a limit on loops.
            self.full = false;
            self.scope.head.set(self.base);
            self.cold
                .complete(self.base, self.scope.frame_ref(), Stands::AsPushed);
        }
    }

    /// The children were turned round by [`Scope::turn`], together with older ones that began at `base`.
    #[inline(always)]
    pub fn turned(&mut self, base: Position) {
        self.base = base.0;
        self.stands = Stands::Turned;
    }

    /// Waits for all children and delivers their results, in spawn order if that matters.
    #[inline(always)]
    pub fn sync(&mut self) {
        let as_pushed = const { O::ANY && !Entries::<E>::KEPT };
        if !as_pushed && !self.turn() {
            return self
                .cold
                .try_settle_all(self.scope, self.base, Stands::AsPushed);
        }
        if const { Entries::<E>::KEPT } {
            for entry in self.cold.entries.take(self.scope, self.base) {
                // SAFETY: the entry's jobs are the youngest, and were turned round.
                (self.cold.deliver)(unsafe { entry.settle(self.scope) });
            }
        } else {
            while self.scope.head.get() != self.base {
                // SAFETY: a value without a size has no bytes to read, and `push` forgot one for the jobs below the head.
                let entry = unsafe { NonNull::<E>::dangling().read() };
                // SAFETY: as above.
                (self.cold.deliver)(unsafe { entry.settle(self.scope) });
            }
        }
    }

    /// Turns the children round. False if any of them has been stolen: then none is turned.
    #[inline(always)]
    fn turn(&self) -> bool {
        let (base, head) = (self.base, self.scope.head.get());
        if self.stands == Stands::Turned || head == base {
            return true;
        }
        let worker = Worker::of(base);
        if !worker.claim(base) {
            return worker.turn_all(base, head);
        }
        // SAFETY: no thief has asked, and all of the jobs are private: above the split, and claimed.
        unsafe { turn(base, head, |a, b| E::exchange(a, b)) };
        worker.set_head(head);
        true
    }

    /// As [`Group::sync`]; if a speculative call failed the others are stopped, nothing is delivered, and the failure is
    /// returned.
    #[inline]
    pub fn try_sync(&mut self) -> Option<E::Done> {
        self.cold.try_settle_all(self.scope, self.base, self.stands);
        self.cold.failed.take().map(|failed| *failed)
    }

    /// Syncs and gives the borrows back.
    #[inline(always)]
    pub fn end(mut self) {
        self.sync();
        mem::forget(self);
    }

    /// Syncs as [`Group::try_sync`] does and gives the borrows back.
    #[inline]
    pub fn try_end(mut self) -> Option<E::Done> {
        let failed = self.try_sync();
        mem::forget(self);
        failed
    }
}

/// Does it matter in which order children run, and results are delivered?
pub trait Order {
    /// True if the order does not matter: the youngest job is popped first, as it stands, and its result delivered at
    /// once.
    const ANY: bool;
}

/// Order matters: children run and are delivered in program order.
pub struct InOrder;

/// Order does not matter: children are popped and delivered as they stand.
pub struct AnyOrder;

impl Order for InOrder {
    const ANY: bool = false;
}

impl Order for AnyOrder {
    const ANY: bool = true;
}

/// Numbers to which a compound assignment adds.
///
/// The sum of unsigned numbers is the same in any order, and so is whether it overflows; that of signed numbers may
/// overflow on the way in one order and not in another, and floats round.
pub trait Accumulate {
    /// The order that `+=` needs.
    type Sum: Order;
    /// The order that `|=`, `&=` and `^=` need.
    type Bits: Order;
    /// The value of `Sum`, for inference.
    fn sum(&self) -> Self::Sum;
    /// The value of `Bits`, for inference.
    fn bits(&self) -> Self::Bits;
}

/// The order for all other types. Method look-up tries [`Accumulate`] first, which needs one `&` less.
pub trait AccumulateInOrder {
    /// Program order, for `+=`.
    fn sum(&self) -> InOrder {
        InOrder
    }
    /// Program order, for bit operations.
    fn bits(&self) -> InOrder {
        InOrder
    }
}

/// The type of a place.
pub struct Place<T>(PhantomData<T>);

impl<T> Place<T> {
    /// The type of the given place.
    #[inline(always)]
    pub fn of(_: &T) -> Place<T> {
        Place(PhantomData)
    }
}

impl<T> AccumulateInOrder for &Place<T> {}

macro_rules! accumulate {
    ($sum:ident: $($number:ty)*) => {$(
        impl Accumulate for Place<$number> {
            type Sum = $sum;
            type Bits = AnyOrder;
            #[inline(always)]
            fn sum(&self) -> $sum {
                $sum
            }
            #[inline(always)]
            fn bits(&self) -> AnyOrder {
                AnyOrder
            }
        }
    )*};
}

accumulate!(AnyOrder: u8 u16 u32 u64 u128 usize);
accumulate!(InOrder: i8 i16 i32 i64 i128 isize bool);

impl<'s, E: Entry<'s>, D: FnMut(E::Done), O: Order> Drop for Group<'_, 's, E, D, O> {
    /// Small enough to be inlined into landing pads.
    #[inline(always)]
    fn drop(&mut self) {
        self.scope.head.set(self.base);
        self.cold
            .complete(self.base, self.scope.frame_ref(), self.stands);
    }
}
