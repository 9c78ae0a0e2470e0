//! Any number of children with one closure that delivers their results: what loops and places expand to.
//!
//! The closure borrows the places from the first spawn to the sync, so nobody can read them in between. Children are
//! settled youngest first, as always, and delivered in spawn order, so a program computes the same on one core as
//! on a thousand.

use std::{
    cell::Cell,
    marker::PhantomData,
    mem::{MaybeUninit, align_of, size_of},
    thread::panicking,
};

use super::{
    scope::{Pushed, Scope, run_here, collect, settle, try_finish},
    thread::Worker,
};
use crate::job::{
    function::{Function, JudgeOf, Prepared, Speculative},
    record::{Judge, Slot, flag},
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
        unsafe { if here { run_here::<F>(pushed, frame) } else { collect::<F>(pushed.slot) } }
    }

    #[inline]
    unsafe fn try_settle(self, scope: &Scope<'_>) -> Option<F::Out> {
        let frame = scope.frame();
        // SAFETY: as above.
        let pushed = unsafe { Pushed::below(scope.head.get()) };
        if scope.cancelled() && Worker::of(pushed.slot).take_back(pushed.slot) {
            scope.head.set(pushed.slot);
            Worker::of(pushed.slot).leave(pushed.slot, frame);
            return None;
        }
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

/// See the module's documentation.
pub struct Group<'g, 's, E: Entry<'s>, D: FnMut(E::Done)> {
    scope: &'g Scope<'g>,
    base: *const Slot,
    pending: Vec<E>,
    deliver: D,
    /// A speculative call that failed before the sync, when the slots ran out.
    failed: Option<E::Done>,
    full: bool,
    /// Invariant: see [`Child`](super::Child).
    borrows: PhantomData<Cell<&'s ()>>,
}

impl<'g, 's, E: Entry<'s>, D: FnMut(E::Done)> Group<'g, 's, E, D> {
    /// An empty group on top of what the scope has.
    #[inline(always)]
    pub fn new(scope: &'g Scope<'g>, deliver: D) -> Self {
        Group {
            scope,
            base: scope.head.get(),
            pending: Vec::new(),
            deliver,
            failed: None,
            full: false,
            borrows: PhantomData,
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
    fn spawn_judged<P: Prepared<'s>>(&mut self, call: P, judge: Option<&'static Judge>) -> Ticket<P::Function> {
        let Pushed { slot, .. } = self.scope.push(call, judge);
        if self.scope.look(slot) {
            self.full = true;
        }
        Ticket(PhantomData)
    }

    /// Keeps an entry until the sync.
    #[inline(always)]
    pub fn push(&mut self, entry: E) {
        self.pending.push(entry);
        if self.full {
            self.make_room();
        }
    }

    /// The slots run out: overflow is a call, and never a limit on loops.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        self.full = false;
        if self.failed.is_none() {
            self.failed = self.try_sync();
        }
    }

    /// Waits for all children and delivers their results, in spawn order.
    #[inline(always)]
    pub fn sync(&mut self) {
        let mut done = Stack::new();
        while let Some(entry) = self.pending.pop() {
            // SAFETY: entries are settled in the reverse of the order in which they were pushed.
            done.push(unsafe { entry.settle(self.scope) });
        }
        while let Some(result) = done.pop() {
            (self.deliver)(result);
        }
    }

    /// As [`Group::sync`]; if a speculative call failed the others are stopped, nothing is delivered, and the failure is
    /// returned.
    #[inline]
    pub fn try_sync(&mut self) -> Option<E::Done> {
        let mut done = Stack::new();
        let mut failed = self.failed.take();
        while let Some(entry) = self.pending.pop() {
            // SAFETY: as above.
            let Some(result) = (unsafe { entry.try_settle(self.scope) }) else { continue };
            if E::failed(&result) {
                failed = Some(result);
            } else if failed.is_none() {
                done.push(result);
            }
        }
        if failed.is_some() {
            return failed;
        }
        debug_assert!(!self.scope.cancelled(), "a group was stopped, but nothing in it failed");
        while let Some(result) = done.pop() {
            (self.deliver)(result);
        }
        None
    }

    /// Syncs and gives the borrows back.
    #[inline(always)]
    pub fn end(mut self) {
        self.sync();
    }

    /// Syncs as [`Group::try_sync`] does and gives the borrows back.
    #[inline]
    pub fn try_end(mut self) -> Option<E::Done> {
        self.try_sync()
    }
}

impl<'s, E: Entry<'s>, D: FnMut(E::Done)> Drop for Group<'_, 's, E, D> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.scope.head.get() != self.base {
            self.leave();
        }
    }
}

impl<'s, E: Entry<'s>, D: FnMut(E::Done)> Group<'_, 's, E, D> {
    /// On the way out of the function, or unwinding, with children that are not settled.
    #[cold]
    #[inline(never)]
    fn leave(&mut self) {
        let complete = !panicking() && !self.scope.frame_has(flag::ABORT);
        if complete {
            let _unless_it_unwinds = LeaveAll { scope: self.scope, base: self.base };
            // A failure on the way out of the function is nobody's: what else was done is delivered.
            let _ = self.try_sync();
        } else {
            drop(LeaveAll { scope: self.scope, base: self.base });
        }
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
            let rest = LeaveAll { scope: self.scope, base: self.base };
            Worker::of(slot).leave(slot, self.scope.frame());
            std::mem::forget(rest);
        }
    }
}

/// Results between their settling and their delivery: on the stack as long as they fit.
struct Stack<T> {
    near: [MaybeUninit<u64>; NEAR / 8],
    length: usize,
    far: Vec<T>,
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
        Stack { near: [MaybeUninit::uninit(); NEAR / 8], length: 0, far: Vec::new() }
    }

    #[inline(always)]
    fn push(&mut self, value: T) {
        if self.length < Self::CAPACITY {
            // SAFETY: there is room for another `T`, and `near` is aligned for it.
            unsafe { self.near.as_mut_ptr().cast::<T>().add(self.length).write(value) };
            self.length += 1;
        } else {
            self.far.push(value);
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        if let Some(value) = self.far.pop() {
            return Some(value);
        }
        self.length = self.length.checked_sub(1)?;
        // SAFETY: the element was written by `push`, and is read once.
        Some(unsafe { self.near.as_ptr().cast::<T>().add(self.length).read() })
    }
}

impl<T> Drop for Stack<T> {
    #[inline(always)]
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
