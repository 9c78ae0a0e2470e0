//! Any number of children with one closure that delivers their results: what loops and places expand to.
//!
//! The closure borrows the places from the first spawn to the sync, so nobody can read them in between. Children are
//! settled youngest first, as always, and delivered in spawn order, so a program computes the same on one core as
//! on a thousand.

use std::{
    cell::Cell,
    marker::PhantomData,
    mem::{self, MaybeUninit},
    ptr::NonNull,
    thread::panicking,
};

use super::{
    scope::{Pushed, Scope, collect, run_here, settle, try_finish},
    thread::Worker,
};
use crate::job::{
    function::{Function, JudgeOf, Prepared, Speculative},
    record::{Frame, Judge, Slot, flag},
};

/// What a group keeps of one statement that spawned: tickets and operands.
///
/// # Safety
/// `settle` and `try_settle` pop exactly the jobs that were pushed for the entry.
pub unsafe trait Entry<'s> {
    /// What the closure gets: results and operands.
    type Done;

    /// Settles the entry's children, the youngest of the scope, youngest first.
    ///
    /// # Safety
    /// The entry's children are the youngest of the scope.
    unsafe fn settle(self, scope: &Scope<'_>) -> Self::Done;

    /// As `settle`, among siblings that may fail; `None` if this entry's were stopped.
    ///
    /// # Safety
    /// As for `settle`.
    unsafe fn try_settle(self, scope: &Scope<'_>) -> Option<Self::Done>;

    /// Did a speculative call fail?
    fn failed(_: &Self::Done) -> bool {
        false
    }
}

/// A child in a group. Which one it is follows from the order, so that a loop keeps nothing but its jobs.
#[must_use]
pub struct Ticket<F>(PhantomData<fn() -> F>);

/// The ticket of a call followed by `?`.
#[must_use]
pub struct Spec<T>(pub T);

/// Operands that were evaluated at the spawn.
#[must_use]
pub struct Keep<O>(pub O);

/// One of several statements.
#[must_use]
pub enum Or<A, B> {
    /// The first.
    A(A),
    /// One of the others.
    B(B),
}

// SAFETY: each settles the one job that `Group::spawn` pushed for it.
unsafe impl<'s, F: Function> Entry<'s> for Ticket<F> {
    type Done = F::Out;

    #[inline(always)]
    unsafe fn settle(self, scope: &Scope<'_>) -> F::Out {
        let frame = scope.frame();
        // SAFETY: the caller promises that our child is the youngest.
        let pushed = unsafe { Pushed::below(scope.head.get()) };
        let here = settle(pushed.slot, frame);
        scope.head.set(pushed.slot);
        // SAFETY: the job is `F`'s, and popped, so that nobody settles it again.
        unsafe {
            if here {
                run_here::<F>(pushed, frame)
            } else {
                collect::<F>(pushed.slot)
            }
        }
    }

    #[inline]
    unsafe fn try_settle(self, scope: &Scope<'_>) -> Option<F::Out> {
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

    #[inline]
    unsafe fn settle(self, scope: &Scope<'_>) -> F::Out {
        // SAFETY: the caller's promise.
        unsafe { self.0.settle(scope) }
    }

    #[inline]
    unsafe fn try_settle(self, scope: &Scope<'_>) -> Option<F::Out> {
        // SAFETY: the caller's promise.
        let done = unsafe { self.0.try_settle(scope) };
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

    #[inline(always)]
    unsafe fn settle(self, _: &Scope<'_>) -> O {
        self.0
    }

    #[inline(always)]
    unsafe fn try_settle(self, _: &Scope<'_>) -> Option<O> {
        Some(self.0)
    }
}

// SAFETY: the one that was pushed does it.
unsafe impl<'s, A: Entry<'s>, B: Entry<'s>> Entry<'s> for Or<A, B> {
    type Done = Or<A::Done, B::Done>;

    #[inline(always)]
    unsafe fn settle(self, scope: &Scope<'_>) -> Self::Done {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Or::A(entry) => Or::A(entry.settle(scope)),
                Or::B(entry) => Or::B(entry.settle(scope)),
            }
        }
    }

    #[inline]
    unsafe fn try_settle(self, scope: &Scope<'_>) -> Option<Self::Done> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(match self {
                Or::A(entry) => Or::A(entry.try_settle(scope)?),
                Or::B(entry) => Or::B(entry.try_settle(scope)?),
            })
        }
    }

    fn failed(done: &Self::Done) -> bool {
        match done {
            Or::A(done) => A::failed(done),
            Or::B(done) => B::failed(done),
        }
    }
}

macro_rules! tuple_of_entries {
    ($($entry:ident $value:ident),+; $($reversed:ident)+) => {
        // SAFETY: the elements do it, in the reverse of the order in which they were pushed.
        unsafe impl<'s, $($entry: Entry<'s>),+> Entry<'s> for ($($entry,)+) {
            type Done = ($($entry::Done,)+);

            #[inline(always)]
            unsafe fn settle(self, scope: &Scope<'_>) -> Self::Done {
                let ($($value,)+) = self;
                // SAFETY: the caller's promise.
                $(let $reversed = unsafe { $reversed.settle(scope) };)+
                ($($value,)+)
            }

            #[inline]
            unsafe fn try_settle(self, scope: &Scope<'_>) -> Option<Self::Done> {
                let ($($value,)+) = self;
                // SAFETY: the caller's promise.
                $(let $reversed = unsafe { $reversed.try_settle(scope) };)+
                Some(($($value?,)+))
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

/// What a group keeps in memory: the closure, and what is not touched as long as all goes the usual way.
///
/// It stands apart from [`Group`] because a landing pad takes its address: a variable whose address is taken cannot live in a
/// register.
pub struct Delivery<'s, E: Entry<'s>, D: FnMut(E::Done), O: Order = InOrder> {
    deliver: D,
    entries: Entries<E>,
    rare: Option<Box<Rare<E::Done>>>,
    order: PhantomData<O>,
    /// Invariant: see [`Child`](super::Child).
    borrows: PhantomData<Cell<&'s ()>>,
}

/// What most groups never need.
struct Rare<T> {
    /// Results that do not fit on the stack.
    far: Vec<T>,
    /// A speculative call that failed before the sync, when the slots ran out.
    failed: Option<T>,
}

impl<T> Rare<T> {
    fn of(rare: &mut Option<Box<Rare<T>>>) -> &mut Rare<T> {
        rare.get_or_insert_with(|| {
            Box::new(Rare {
                far: Vec::new(),
                failed: None,
            })
        })
    }
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
            rare: None,
            order: PhantomData,
            borrows: PhantomData,
        }
    }

    /// On the way out of the function, or unwinding, or where the slots run out: whatever is pending is settled and
    /// delivered; or stopped, where nobody wants it any more.
    #[cold]
    #[inline(never)]
    fn complete(&mut self, base: *const Slot, frame: &Frame) {
        // The worker's own head is exact whenever user code runs, or unwinds.
        let head = Worker::of(base).head.get();
        let scope = Scope::resumed(head, frame);
        let rest = LeaveAll {
            scope: &scope,
            base,
        };
        if !panicking() && !frame.has(flag::ABORT) {
            self.try_settle_all(&scope, base);
        }
        drop(rest);
        self.entries.clear();
        Worker::of(base).head.set(base);
    }

    /// Settles everything; delivers it unless something has failed.
    fn try_settle_all(&mut self, scope: &Scope<'_>, base: *const Slot) {
        let mut done = Vec::new();
        let mut failed = self.take_failed();
        while let Some(entry) = self.entries.pop(scope, base) {
            // SAFETY: entries are settled in the reverse of the order in which they were pushed.
            let Some(result) = (unsafe { entry.try_settle(scope) }) else {
                continue;
            };
            if E::failed(&result) {
                failed = Some(result);
            } else if failed.is_none() {
                done.push(result);
            }
        }
        if failed.is_some() {
            Rare::of(&mut self.rare).failed = failed;
            return;
        }
        if scope.cancelled() {
            return; // a sibling outside of the group failed
        }
        done.into_iter().rev().for_each(&mut self.deliver);
    }

    fn take_failed(&mut self) -> Option<E::Done> {
        self.rare.as_mut()?.failed.take()
    }
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

    #[inline(always)]
    fn pop(&mut self, scope: &Scope<'_>, base: *const Slot) -> Option<E> {
        if const { Self::KEPT } {
            // SAFETY: `new` has made the vector.
            unsafe { self.0.assume_init_mut() }.pop()
        } else {
            // SAFETY: a value without a size has no bytes to read, and `push` forgot one for the job below the head.
            (scope.head.get() != base).then(|| unsafe { NonNull::dangling().read() })
        }
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
            // SAFETY: `new` has made the vector, and nobody uses it any more.
            unsafe { self.0.assume_init_drop() };
        }
    }
}

/// See the module's documentation.
///
/// Nothing here is passed by reference to a function that is not inlined: a group of a hot loop lives in registers.
pub struct Group<'g, 's, E: Entry<'s>, D: FnMut(E::Done), O: Order = InOrder> {
    scope: &'g Scope<'g>,
    base: *const Slot,
    full: bool,
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
        let Pushed { slot, .. } = self.scope.push(call, judge);
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
            self.cold.complete(self.base, self.scope.frame_ref());
        }
    }

    /// Waits for all children and delivers their results, in spawn order.
    #[inline(always)]
    pub fn sync(&mut self) {
        if O::ANY {
            while let Some(entry) = self.cold.entries.pop(self.scope, self.base) {
                // SAFETY: entries are settled in the reverse of the order in which they were pushed.
                (self.cold.deliver)(unsafe { entry.settle(self.scope) });
            }
        } else if const { mem::needs_drop::<E::Done>() } {
            let mut done = DropRest(Stack::new());
            self.settle_all(&mut done.0);
            self.deliver_all(&mut done.0);
        } else {
            let mut done = Stack::new();
            self.settle_all(&mut done);
            self.deliver_all(&mut done);
        }
    }

    #[inline(always)]
    fn settle_all(&mut self, done: &mut Stack<E::Done>) {
        while let Some(entry) = self.cold.entries.pop(self.scope, self.base) {
            // SAFETY: entries are settled in the reverse of the order in which they were pushed.
            let result = unsafe { entry.settle(self.scope) };
            if let Some(result) = done.push(result) {
                push_far(&mut self.cold.rare, result);
            }
        }
    }

    #[inline(always)]
    fn deliver_all(&mut self, done: &mut Stack<E::Done>) {
        if done.is_full() {
            deliver_far(&mut self.cold.rare, &mut self.cold.deliver);
        }
        while let Some(result) = done.pop() {
            (self.cold.deliver)(result);
        }
    }

    /// As [`Group::sync`]; if a speculative call failed the others are stopped, nothing is delivered, and the failure is
    /// returned.
    #[inline]
    pub fn try_sync(&mut self) -> Option<E::Done> {
        self.cold.try_settle_all(self.scope, self.base);
        self.cold.take_failed()
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

impl<'s, E: Entry<'s>, D: FnMut(E::Done), O: Order> Drop for Group<'_, 's, E, D, O> {
    /// Small enough to be inlined into landing pads.
    #[inline(always)]
    fn drop(&mut self) {
        self.scope.head.set(self.base);
        self.cold.complete(self.base, self.scope.frame_ref());
    }
}

/// Stops or finishes whatever is left, by its vtable alone.
struct LeaveAll<'g> {
    scope: &'g Scope<'g>,
    base: *const Slot,
}

impl Drop for LeaveAll<'_> {
    fn drop(&mut self) {
        while self.scope.head.get() != self.base {
            let slot = self.scope.head.get().wrapping_sub(1);
            self.scope.head.set(slot);
            // If the job's panic comes through, the older ones are still left.
            let rest = LeaveAll {
                scope: self.scope,
                base: self.base,
            };
            Worker::of(slot).leave(slot, self.scope.frame());
            mem::forget(rest);
        }
    }
}

/// Does it matter in which order results are delivered?
pub trait Order {
    /// It does not: a result is delivered as soon as it is settled.
    const ANY: bool;
}

/// It does: spawn order.
pub struct InOrder;

/// It does not.
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
    /// For `+=`.
    type Sum: Order;
    /// For `|=`, `&=` and `^=`.
    type Bits: Order;
    /// Its order, as a value.
    fn sum(&self) -> Self::Sum;
    /// Its order, as a value.
    fn bits(&self) -> Self::Bits;
}

/// The order for all other types. Method look-up tries [`Accumulate`] first, which needs one `&` less.
pub trait AccumulateInOrder {
    /// Spawn order.
    fn sum(&self) -> InOrder {
        InOrder
    }
    /// Spawn order.
    fn bits(&self) -> InOrder {
        InOrder
    }
}

/// The type of a place.
pub struct Place<T>(PhantomData<T>);

impl<T> Place<T> {
    /// The place's.
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

/// Results between their settling and their delivery, as many as fit on the stack. Drops nothing: see [`DropRest`].
struct Stack<T> {
    near: MaybeUninit<[u64; NEAR / 8]>,
    length: usize,
    values: PhantomData<T>,
}

/// Bytes on the stack per group.
const NEAR: usize = 256;

impl<T> Stack<T> {
    const CAPACITY: usize = match size_of::<T>() {
        _ if align_of::<T>() > 8 => 0,
        0 => usize::MAX,
        size => NEAR / size,
    };

    #[inline(always)]
    fn new() -> Self {
        // Field by field: written as one value, the compiler fills `near` with zeros.
        let mut stack = MaybeUninit::<Self>::uninit();
        // SAFETY: `length` is written, and `near` needs no value.
        unsafe {
            (&raw mut (*stack.as_mut_ptr()).length).write(0);
            stack.assume_init()
        }
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.length == Self::CAPACITY
    }

    /// Gives the value back if it does not fit.
    #[inline(always)]
    fn push(&mut self, value: T) -> Option<T> {
        if self.is_full() {
            return Some(value);
        }
        // SAFETY: there is room for another `T`, and `near` is aligned for it.
        unsafe {
            self.near
                .as_mut_ptr()
                .cast::<T>()
                .add(self.length)
                .write(value)
        };
        self.length += 1;
        None
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        self.length = self.length.checked_sub(1)?;
        // SAFETY: the element was written by `push`, and is read once.
        Some(unsafe { self.near.as_ptr().cast::<T>().add(self.length).read() })
    }
}

#[cold]
#[inline(never)]
fn push_far<T>(rare: &mut Option<Box<Rare<T>>>, value: T) {
    Rare::of(rare).far.push(value);
}

#[cold]
#[inline(never)]
fn deliver_far<T>(rare: &mut Option<Box<Rare<T>>>, deliver: &mut impl FnMut(T)) {
    while let Some(result) = rare.as_mut().and_then(|rare| rare.far.pop()) {
        deliver(result);
    }
}

/// Drops what is left in a stack.
struct DropRest<T>(Stack<T>);

impl<T> Drop for DropRest<T> {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
