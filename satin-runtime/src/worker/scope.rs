//! An invocation and its children: spawn, sync, call. Almost everything here is inlined into user code, so values that go
//! to functions which are not inlined are passed by value: a `Scope` then lives in registers.

use std::{
    cell::Cell,
    marker::PhantomData,
    mem::forget,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use super::{
    gate,
    thread::{Worker, raise_abort},
};
use crate::job::{
    function::{Function, JudgeOf, Prepared, Speculative, Unroll},
    record::{Aborted, Cx, Frame, Judge, Payload, Slot, SlotState, flag},
};

/// An invocation that spawns: where its next child goes, and which number it gets.
pub struct Scope<'f> {
    pub(super) head: Cell<*const Slot>,
    next: Cell<u32>,
    frame: &'f Frame,
}

impl<'f> Scope<'f> {
    /// The scope of an invocation. Of those that are expanded into one another one looks at the stack.
    ///
    /// # Panics
    /// If the stack is nearly used up.
    #[inline(always)]
    pub fn new<L: Unroll>(cx: Cx, frame: &'f Frame) -> Scope<'f> {
        let worker = Worker::of(cx.head);
        if L::LAST && std::ptr::from_ref(frame).addr() < worker.stack_limit.get() {
            worker.too_deep();
        }
        Scope {
            head: Cell::new(cx.head),
            next: Cell::new(0),
            frame,
        }
    }

    #[inline(always)]
    pub(super) fn frame(&self) -> *const Frame {
        self.frame
    }

    /// Gives a call its number among the children of this invocation: they are numbered in program order, in whatever
    /// order they are pushed.
    #[inline(always)]
    pub fn plan<'s, P: Prepared<'s>>(&self, call: P) -> Planned<P> {
        let index = self.next.get();
        self.next.set(index.wrapping_add(1));
        Planned { call, index }
    }

    /// Pushes a job; the caller must see to it that it is settled, then call [`Scope::look`].
    #[inline(always)]
    pub(super) fn push<'s, P: Prepared<'s>>(
        &self,
        planned: Planned<P>,
        judge: Option<&'static Judge>,
    ) -> Pushed {
        let Planned { call, index } = planned;
        let args = call.into_args();
        let slot = self.head.get();
        // SAFETY: the head is the first free slot, ours, and within the area: its end was checked at the last look.
        let record = unsafe { &*slot };
        record.fill(<P::Function as Function>::VTABLE, self.frame, index, judge);
        // SAFETY: the slot is free.
        unsafe { record.put(args) };
        let head = slot.wrapping_add(1);
        self.head.set(head);
        // Of the slot, as `look` has it: the compiler finds the worker once.
        Worker::of(slot).set_head(head);
        Pushed { slot, index }
    }

    #[inline(always)]
    pub(super) fn frame_ref(&self) -> &'f Frame {
        self.frame
    }

    /// The place of a root job: its one child is the job.
    pub(super) fn of_root(head: *const Slot, frame: &'f Frame, number: u32) -> Scope<'f> {
        Scope {
            head: Cell::new(head),
            next: Cell::new(number),
            frame,
        }
    }

    /// The scope again, in a function that was not inlined into it. No child is spawned from it.
    pub(super) fn resumed(head: *const Slot, frame: &'f Frame) -> Scope<'f> {
        Scope {
            head: Cell::new(head),
            next: Cell::new(0),
            frame,
        }
    }

    /// The poll after a push: true if the slots run out.
    #[inline(always)]
    pub(super) fn look(&self, slot: *const Slot) -> bool {
        let worker = Worker::of(slot);
        worker.deque().must_look_after_push(slot.addr())
            && worker.look_after_push(slot.wrapping_add(1), self.frame)
    }

    /// The position of the next child.
    #[inline(always)]
    #[must_use]
    pub fn position(&self) -> Position {
        Position(self.head.get())
    }

    /// Creates a child without waiting for it. Such children are synced youngest first.
    #[inline(always)]
    pub fn spawn<'s, P: Prepared<'s>>(&self, planned: Planned<P>) -> Child<'_, 's, P::Function> {
        self.guarded(self.position(), planned, None)
    }

    /// Creates a child whose failure stops its siblings.
    #[inline(always)]
    pub fn spawn_speculative<'s, P>(&self, planned: Planned<P>) -> Child<'_, 's, P::Function>
    where
        P: Prepared<'s, Out: Speculative>,
    {
        self.guarded(
            self.position(),
            planned,
            Some(JudgeOf::<P::Function>::JUDGE),
        )
    }

    /// Creates one of several children that begin at `base`, oldest first. [`Scope::turn`] says in which order they are
    /// synced.
    #[inline(always)]
    pub fn spawn_above<'s, P: Prepared<'s>>(
        &self,
        base: Position,
        planned: Planned<P>,
    ) -> Child<'_, 's, P::Function> {
        self.guarded(base, planned, None)
    }

    /// As [`Scope::spawn_above`], a child whose failure stops its siblings.
    #[inline(always)]
    pub fn spawn_speculative_above<'s, P>(
        &self,
        base: Position,
        planned: Planned<P>,
    ) -> Child<'_, 's, P::Function>
    where
        P: Prepared<'s, Out: Speculative>,
    {
        self.guarded(base, planned, Some(JudgeOf::<P::Function>::JUDGE))
    }

    #[inline(always)]
    fn guarded<'s, P: Prepared<'s>>(
        &self,
        base: Position,
        planned: Planned<P>,
        judge: Option<&'static Judge>,
    ) -> Child<'_, 's, P::Function> {
        let Pushed { slot, index } = self.push(planned, judge);
        let child = Child {
            frame: self.frame,
            head: &self.head,
            base: base.0,
            index,
            borrows: PhantomData,
            function: PhantomData,
        };
        // The guard stands before anything can unwind.
        self.look(slot);
        child
    }

    /// Turns the children from `base` on round, so that the oldest is settled first: true. False if one of them has been
    /// stolen: then they stay as they are, and the youngest is settled first.
    #[inline(always)]
    #[must_use]
    pub fn turn(&self, base: Position) -> bool {
        let head = self.head.get();
        let worker = Worker::of(head);
        if !worker.claim(base.0) {
            return worker.turn_all(base.0, head);
        }
        // SAFETY: no thief has asked, and all of the jobs are private: above the split, and claimed.
        unsafe { turn(base.0, head, |a, b| a.exchange(b)) };
        worker.set_head(head);
        true
    }

    /// Runs a child here and now.
    #[inline(always)]
    pub fn run<'s, P: Prepared<'s>>(&self, planned: Planned<P>) -> P::Out {
        let Planned { call, index } = planned;
        <P::Function as Function>::call(
            Cx {
                head: self.head.get(),
                parent: self.frame,
            },
            index,
            call.into_args(),
        )
    }

    /// Runs a child here and now. It has an index like any other.
    #[inline(always)]
    pub fn call<'s, P: Prepared<'s>>(&self, call: P) -> P::Out {
        self.run(self.plan(call))
    }

    /// Runs something here and now that gets the place of a child, and is none of a known function.
    #[inline]
    pub(super) fn child<R>(&self, run: impl FnOnce(Cx, u32) -> R) -> R {
        let index = self.next.get();
        self.next.set(index.wrapping_add(1));
        let cx = Cx {
            head: self.head.get(),
            parent: self.frame,
        };
        run(cx, index)
    }

    /// As [`Scope::run`], among siblings that may fail: `None` if one of them did and stopped this one.
    #[inline]
    pub fn try_run<'s, P: Prepared<'s>>(&self, planned: Planned<P>) -> Option<P::Out> {
        if self.cancelled() {
            return None;
        }
        unless_sibling_failed(self.frame, self.head.get(), || self.run(planned))
    }

    /// If this is a failure, stops the other children of this invocation.
    #[inline]
    pub fn check<T: Speculative>(&self, result: &Option<T>) {
        if result.as_ref().is_some_and(Speculative::failed) {
            Worker::of(self.head.get()).abort_children(self.frame);
        }
    }

    /// True if a child has failed, so that the others have been stopped.
    #[inline]
    pub fn cancelled(&self) -> bool {
        self.frame.has(flag::ABORT)
    }
}

/// A call that has its number among its parent's children.
#[must_use]
pub struct Planned<P> {
    call: P,
    index: u32,
}

/// A place in the worker's array of slots.
#[derive(Clone, Copy)]
pub struct Position(pub(super) *const Slot);

/// Turns the jobs from `first` to before `past` round.
///
/// # Safety
/// The jobs are the caller's alone, and `exchange` may exchange any two of them.
#[inline(always)]
pub(super) unsafe fn turn(
    mut first: *const Slot,
    mut past: *const Slot,
    exchange: impl Fn(&Slot, &Slot),
) {
    loop {
        past = past.wrapping_sub(1);
        if first.addr() >= past.addr() {
            return;
        }
        // SAFETY: both lie in the area, and hold jobs.
        unsafe { exchange(&*first, &*past) };
        first = first.wrapping_add(1);
    }
}

/// A job in its slot.
#[derive(Clone, Copy)]
pub(super) struct Pushed {
    pub(super) slot: *const Slot,
    index: u32,
}

/// A spawned child, to be synced when it is the youngest: see [`Scope::turn`].
///
/// `'s` are the borrows in its arguments: they last until the guard is gone. Dropping the guard on the way out of the
/// function runs the child to its end; dropping it while unwinding stops the child, and waits until it has stopped.
#[must_use]
pub struct Child<'c, 's, F: Function> {
    frame: &'c Frame,
    head: &'c Cell<*const Slot>,
    /// The child stands here or above. A guard that is dropped early settles every job from here on: where children are
    /// turned round its own place may be that of a sibling, and the sibling's borrows end with it.
    base: *const Slot,
    index: u32,
    /// Invariant in `'s`: with a covariant guard, racy programs would compile.
    borrows: PhantomData<Cell<&'s ()>>,
    function: PhantomData<fn() -> F>,
}

impl<F: Function> Child<'_, '_, F> {
    /// Waits for the child and gives its result.
    ///
    /// # Panics
    /// Panics with the panic of the child.
    #[inline(always)]
    pub fn sync(self) -> F::Out {
        let pushed = self.pushed();
        let here = settle(pushed.slot, self.frame);
        self.head.set(pushed.slot);
        let frame: *const Frame = self.frame;
        forget(self);
        // SAFETY: `settle` said where the job is; the guard is gone, so it is not settled again.
        unsafe {
            if here {
                run_here::<F>(pushed, frame)
            } else {
                collect::<F>(pushed.slot)
            }
        }
    }

    /// As [`Child::sync`], among siblings that may fail: `None` if one of them did and stopped this one.
    #[inline]
    pub fn try_sync(self) -> Option<F::Out> {
        let (pushed, frame, head) = (self.pushed(), self.frame, self.head);
        let here = settle(pushed.slot, frame);
        head.set(pushed.slot);
        forget(self);
        // SAFETY: as in `sync`.
        unsafe { try_finish::<F>(here, pushed, frame) }
    }

    #[inline(always)]
    fn pushed(&self) -> Pushed {
        Pushed {
            slot: self.head.get().wrapping_sub(1),
            index: self.index,
        }
    }
}

impl<F: Function> Drop for Child<'_, '_, F> {
    #[inline(always)]
    fn drop(&mut self) {
        self.head.set(self.base);
        Worker::of(self.base).leave_all(self.base, self.frame);
    }
}

/// True if the youngest job is to be run here, false if it has been settled elsewhere.
#[inline(always)]
pub(super) fn settle(slot: *const Slot, frame: *const Frame) -> bool {
    let worker = Worker::of(slot);
    worker.claim(slot) || worker.settle(slot, frame)
}

/// Runs the youngest job in place of its slot.
///
/// # Safety
/// The slot holds a job of `F` that is the caller's, and that is not settled again.
#[inline(always)]
pub(super) unsafe fn run_here<F: Function>(pushed: Pushed, frame: *const Frame) -> F::Out {
    let Pushed { slot, index } = pushed;
    // SAFETY: the caller promises that a job of `F` is there.
    let args = unsafe {
        debug_assert_eq!(
            (*slot).function.get().info.name,
            F::VTABLE.info.name,
            "a ticket of another function"
        );
        (*slot).take()
    };
    F::call(
        Cx {
            head: slot,
            parent: frame,
        },
        index,
        args,
    )
}

/// The result of a job that was settled elsewhere.
///
/// # Safety
/// As for [`run_here`], and the job is settled.
#[cold]
#[inline(never)]
pub(super) unsafe fn collect<F: Function>(slot: *const Slot) -> F::Out {
    // SAFETY: the caller's promise.
    let job = unsafe { &*slot };
    match job.state() {
        // SAFETY: the state says that a result is there.
        SlotState::Done => unsafe { job.take() },
        // SAFETY: the state says that a payload is there.
        SlotState::Panicked => resume_unwind(unsafe { job.take::<Payload>() }),
        // SAFETY: the state says that the arguments and an answer are there.
        SlotState::Answered => unsafe { gate::import::<F>(job) }.unwrap_or_else(|| {
            let index = job.index();
            // SAFETY: it still has its arguments, and is the caller's.
            unsafe { run_here::<F>(Pushed { slot, index }, job.parent.get()) }
        }),
        SlotState::Aborted => raise_abort(),
        state => unreachable!("collected a job in state {state:?}"),
    }
}

/// The rest of a `try_sync`.
///
/// # Safety
/// As for [`run_here`] or [`collect`].
#[inline]
pub(super) unsafe fn try_finish<F: Function>(
    here: bool,
    pushed: Pushed,
    frame: &Frame,
) -> Option<F::Out> {
    if here && frame.has(flag::ABORT) {
        // SAFETY: the job is the caller's and has not run; a sibling failed, so it is not wanted any more.
        unsafe { ((*pushed.slot).function.get().drop_args)(&*pushed.slot) };
        return None;
    }
    unless_sibling_failed(frame, pushed.slot, || {
        // SAFETY: the caller's promise.
        unsafe {
            if here {
                run_here::<F>(pushed, frame)
            } else {
                collect::<F>(pushed.slot)
            }
        }
    })
}

/// Runs a child; `None` if it was stopped because a sibling failed. If the whole invocation is stopped, that unwinds on.
#[inline]
fn unless_sibling_failed<R>(
    frame: *const Frame,
    head: *const Slot,
    run: impl FnOnce() -> R,
) -> Option<R> {
    let worker = Worker::of(head);
    let before = worker.in_child_of.replace(frame);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    worker.in_child_of.set(before);
    match outcome {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Aborted>() && !worker.is_aborted(frame) => None,
        Err(payload) => resume_unwind(payload),
    }
}

impl Pushed {
    /// The youngest job, found by its position alone.
    ///
    /// # Safety
    /// A job stands in the slot below `head`.
    #[inline(always)]
    pub(super) unsafe fn below(head: *const Slot) -> Pushed {
        let slot = head.wrapping_sub(1);
        // SAFETY: the caller's promise.
        let index = unsafe { (*slot).index() };
        Pushed { slot, index }
    }
}
