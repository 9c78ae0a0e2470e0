//! What the closure of a flow works with: the flow, and handles of data.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
    marker::PhantomData,
    ops::Deref,
    sync::Arc,
};

use super::{
    FlowCore, Waiter,
    arguments::Parts,
    away::Missing,
    sums::{Addends, Summed},
    task::{self, is_nothing},
    version::Version,
};
use crate::{
    job::function::Function,
    worker::thread::{Worker, raise_abort},
};

/// A piece of data of one flow: whatever a task makes of it, in the order of the program. Cannot leave the flow's closure.
pub struct Handle<'g, T> {
    at: u32,
    brand: PhantomData<(Brand<'g>, fn() -> T)>,
}

/// Invariant in `'g`, so that a handle of one flow is not taken for that of another.
type Brand<'g> = fn(&'g ()) -> &'g ();

/// The place of a handle that names nothing, as it is the result of a function without one.
pub(super) const NOTHING: u32 = u32::MAX;

impl<T> Clone for Handle<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<'_, T> {}

impl<T> fmt::Debug for Handle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.at).finish()
    }
}

impl<T> Handle<'_, T> {
    fn new(at: u32) -> Self {
        let brand = PhantomData;
        Handle { at, brand }
    }

    pub(super) fn place(self) -> u32 {
        self.at
    }
}

/// A flow, as its closure sees it: see the macro `flow!`.
pub struct Flow<'g> {
    state: &'g FlowState,
    brand: PhantomData<Brand<'g>>,
}

/// The part of a flow that its closure alone uses.
pub(super) struct FlowState {
    /// The worker that runs the closure, and what the tasks have in common; none if tasks run where they stand.
    parallel: Option<(*const Worker, *const FlowCore)>,
    /// The number of the next task.
    next: Cell<u32>,
    /// The last version of each handle's data, as far as the closure has come; none once it has been taken.
    versions: RefCell<Vec<Option<ErasedVersion>>>,
    /// What is to be added to handles, by their places, before they are used in another way.
    addends: RefCell<HashMap<u32, Addends>>,
}

pub(super) type ErasedVersion = Arc<dyn Any + Send + Sync>;

/// Tells versions apart, while both live.
fn address(version: &ErasedVersion) -> usize {
    Arc::as_ptr(version).addr()
}

const TAKEN: &str = "the value of this handle has been taken out of the flow, or forgotten";

const CHANGED_TWICE: &str = "a task cannot change the same handle in two of its arguments";

impl FlowState {
    pub(super) fn new(worker: &Worker, core: &FlowCore) -> FlowState {
        FlowState {
            parallel: Some((worker, core)),
            next: Cell::new(0),
            versions: RefCell::default(),
            addends: RefCell::default(),
        }
    }

    pub(super) fn sequential() -> FlowState {
        FlowState {
            parallel: None,
            next: Cell::new(0),
            versions: RefCell::default(),
            addends: RefCell::default(),
        }
    }

    /// Drops all versions.
    pub(super) fn forget(&self) {
        drop((self.versions.take(), self.addends.take()));
    }

    fn parallel(&self) -> Option<(&Worker, &FlowCore)> {
        let (worker, core) = self.parallel?;
        // SAFETY: both outlive the closure, in which alone this is used.
        Some(unsafe { (&*worker, &*core) })
    }
}

/// A value that a flow has made, where it is: [`Flow::get`].
pub struct Made<T>(Arc<Version<T>>);

impl<T> Deref for Made<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.look().expect("the flow has waited for it")
    }
}

impl<T: fmt::Debug> fmt::Debug for Made<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'g> Flow<'g> {
    pub(super) fn of(state: &'g FlowState) -> Flow<'g> {
        let brand = PhantomData;
        Flow { state, brand }
    }

    /// Brings a value into the flow, for tasks to read and to change.
    pub fn data<T: Send + Sync + 'static>(&self, value: T) -> Handle<'g, T> {
        self.enter(Version::made(value))
    }

    /// Brings a value into the flow that stays where it is, such as a [`Shared`](crate::data::Shared) or an `Arc`: tasks read it there, and one that
    /// changes the handle's data works on a copy.
    pub fn shared<S>(&self, value: &S) -> Handle<'g, S::Target>
    where
        S: Deref<Target: Sized + Send + Sync + 'static> + Clone + Send + Sync + 'static,
    {
        self.enter(Version::shared(Arc::new(value.clone())))
    }

    /// Waits for what the tasks so far make of a handle's data, and lends it; the worker runs other tasks meanwhile. The handle can be used
    /// further: a task that changes the data while the loan lives works on a copy.
    ///
    /// Of a task without a result all tasks so far are waited for.
    ///
    /// # Panics
    /// If the value has been taken out of the flow, or forgotten.
    pub fn get<T: Send + Sync + 'static>(&self, handle: Handle<'g, T>) -> Made<T> {
        self.wait_for_nothing(handle);
        Made(self.wait(self.version(handle)))
    }

    /// Waits for what the tasks so far make of a handle's data, and for those that read it, and takes it out of the flow. While a loan of it
    /// ([`Flow::get`]) lives, it is a copy that is taken, when all tasks are over. Of a task without a result all tasks so far are waited for.
    ///
    /// # Panics
    /// If the value has been taken out before, or forgotten.
    pub fn take<T: Clone + Send + Sync + 'static>(&self, handle: Handle<'g, T>) -> T {
        self.wait_for_nothing(handle);
        let version = self.wait(self.version(handle));
        if handle.at != NOTHING {
            self.state.versions.borrow_mut()[handle.at as usize] = None;
        }
        if let Some((worker, core)) = self.state.parallel() {
            // Tasks that read it hold it until they have run: to wait for them costs less than a copy.
            // Where other nodes keep data, it may be held by tasks that only might run again.
            let is_alone = || Arc::strong_count(&version) == 1 || core.has_away();
            worker.wait_for_tasks(core, is_alone);
            if core.is_over(worker) {
                core.raise();
            }
        }
        Version::take(version).expect("the flow has waited for it")
    }

    /// The handle is not used any more: its data go as soon as no task of those so far needs them. Without that the last version of each handle stays
    /// until the flow ends.
    ///
    /// A task, or a call of [`Flow::get`] or [`Flow::take`], that uses the handle nevertheless panics.
    pub fn forget<T>(&self, handle: Handle<'g, T>) {
        if handle.at != NOTHING {
            let addends = self.state.addends.borrow_mut().remove(&handle.at);
            let version = self.state.versions.borrow_mut()[handle.at as usize].take();
            drop((addends, version)); // destructors of the user may run
        }
    }

    /// Takes all values of a vector, an array or a tuple of handles, or of vectors of such, out of the flow: see [`Flow::take`].
    ///
    /// # Panics
    /// If a value has been taken out before, or forgotten.
    pub fn take_all<H: TakeAll<'g>>(&self, handles: H) -> H::Values {
        if self.state.parallel.is_some() {
            // First everything is made, and then all of it that other nodes keep comes at once.
            handles.await_all(self);
            handles.ask_all(self);
        }
        handles.take_all(self)
    }

    /// A call of a function, as a task: the macro `task!`.
    #[doc(hidden)]
    pub fn task<F, P>(&self, parts: P) -> Handle<'g, F::Out>
    where
        F: Function<Out: Sync>,
        P: Parts<F::Kinds>,
    {
        self.make_task::<F, P, false>(parts)
    }

    /// The same, of a task that stays in this process.
    pub(super) fn task_that_stays<F, P>(&self, parts: P) -> Handle<'g, F::Out>
    where
        F: Function<Out: Sync>,
        P: Parts<F::Kinds>,
    {
        self.make_task::<F, P, true>(parts)
    }

    fn make_task<F, P, const IS_LOCAL: bool>(&self, parts: P) -> Handle<'g, F::Out>
    where
        F: Function<Out: Sync>,
        P: Parts<F::Kinds>,
    {
        let Some((worker, core)) = self.state.parallel() else {
            unreachable!("a task of a flow without workers is a plain call")
        };
        self.make_room(worker, core);
        let (handle, out) = match is_nothing::<F::Out>() {
            true => (Handle::new(NOTHING), None),
            false => {
                let out = Version::empty();
                (self.enter(Arc::clone(&out)), Some(out))
            }
        };
        parts.install(self);
        let index = self.state.next.get();
        self.state.next.set(index.wrapping_add(1));
        core.one_more();
        if let Some(ready) = task::make::<F, P, IS_LOCAL>(core, index, parts, out) {
            worker.pool().boards.push(Some(worker), ready);
            worker.pool().tell_ready(1);
        }
        handle
    }

    /// If very many tasks are not over, or the flow is, does something about it.
    fn make_room(&self, worker: &Worker, core: &FlowCore) {
        let window = worker.pool().flow_window;
        if core.live() >= window {
            worker.wait_for_tasks(core, || core.live() < window);
        }
        if core.is_over(worker) {
            core.raise();
        }
    }

    /// Of a task without a result nothing is noted, so to wait for that is to wait for all tasks so far.
    fn wait_for_nothing<T>(&self, handle: Handle<'g, T>) {
        if handle.at == NOTHING
            && let Some((worker, core)) = self.state.parallel()
        {
            worker.wait_for_tasks(core, || false);
            if core.is_over(worker) {
                core.raise();
            }
        }
    }

    /// Waits until a version has been made, or given up.
    fn await_made<T>(&self, version: &Version<T>) {
        if !version.waiters.are_closed()
            && let Some((worker, core)) = self.state.parallel()
        {
            worker.wait_for_tasks(core, || version.waiters.are_closed());
        }
    }

    fn wait<T: Send + Sync + 'static>(&self, version: Arc<Version<T>>) -> Arc<Version<T>> {
        self.await_made(&version);
        self.bring(&version);
        if version.look().is_none() {
            // Its task has been given up; the flow says why.
            match self.state.parallel() {
                Some((_, core)) => core.raise(),
                None => raise_abort(),
            }
        }
        version
    }

    /// Waits until data are here that another node keeps.
    fn bring<T: Send + Sync + 'static>(&self, version: &Arc<Version<T>>) {
        if version.is_missing()
            && let Some((worker, core)) = self.state.parallel()
        {
            // Until they are here, this counts as a task.
            core.one_more();
            let waiter = Some(Waiter::Closure(core));
            match Missing::new(version).want(worker.pool(), waiter) {
                true => worker.wait_for_tasks(core, || !version.is_missing()),
                false => core.one_less(worker.pool()),
            }
        }
    }

    fn enter<T: Send + Sync + 'static>(&self, version: Arc<Version<T>>) -> Handle<'g, T> {
        let mut versions = self.state.versions.borrow_mut();
        let at = u32::try_from(versions.len()).unwrap_or(NOTHING);
        assert!(at < NOTHING, "a flow has no more than {NOTHING} handles");
        versions.push(Some(version));
        Handle::new(at)
    }

    pub(super) fn is_parallel(&self) -> bool {
        self.state.parallel.is_some()
    }

    /// A task is about to be made that adds to this handle: neighbours among what is to be added to it so far become one. Returns where the version
    /// is that is the last one.
    pub(super) fn add_up_to_now<T>(&self, handle: Handle<'_, T>) -> usize {
        let addends = self.state.addends.borrow_mut().remove(&handle.at);
        if let Some(mut addends) = addends {
            addends.add_neighbours(self);
            self.state.addends.borrow_mut().insert(handle.at, addends);
        }
        address(&self.last(handle.at))
    }

    /// What a task makes is to be added to the handle at that place, before that is used in another way.
    ///
    /// # Panics
    /// If `there` is not the last version: the task changes the handle, too.
    pub(super) fn add_later<T: Summed>(&self, at: u32, there: usize, version: Arc<Version<T>>) {
        assert!(address(&self.last(at)) == there, "{CHANGED_TWICE}");
        let mut addends = self.state.addends.borrow_mut();
        addends
            .entry(at)
            .or_insert_with(Addends::of::<T>)
            .push(version);
    }

    /// Adds what is to be added to the handle at that place.
    fn add_up(&self, at: u32) {
        if self.state.addends.borrow().is_empty() {
            return; // the usual case, and each access comes here
        }
        let addends = self.state.addends.borrow_mut().remove(&at);
        if let Some(addends) = addends {
            let there = self.state.versions.borrow_mut()[at as usize].take();
            let sum = addends.add_to(self, there.unwrap_or_else(|| self.is_gone()));
            self.state.versions.borrow_mut()[at as usize] = Some(sum);
        }
    }

    /// The last version of the handle at that place.
    fn last(&self, at: u32) -> ErasedVersion {
        let version = self.state.versions.borrow()[at as usize].clone();
        version.unwrap_or_else(|| self.is_gone())
    }

    /// The data of a handle are not there any more: they were taken out, or the flow has been stopped when they were about to be made.
    fn is_gone(&self) -> ! {
        if let Some((worker, core)) = self.state.parallel()
            && core.is_over(worker)
        {
            core.raise();
        }
        panic!("{TAKEN}");
    }

    /// The version that is the last one of the handle's data.
    pub(super) fn version<T: Send + Sync + 'static>(
        &self,
        handle: Handle<'_, T>,
    ) -> Arc<Version<T>> {
        let version: ErasedVersion = match handle.at {
            NOTHING => Version::made(()),
            at => {
                self.add_up(at);
                self.last(at)
            }
        };
        let version = version.downcast::<Version<T>>();
        version.expect("a handle has the type of its data")
    }

    /// From now on this version is the last one.
    ///
    /// # Panics
    /// If `from` is not the last one: a task changes one handle twice.
    pub(super) fn replace<T: Send + Sync + 'static>(
        &self,
        at: u32,
        from: &Arc<Version<T>>,
        to: Arc<Version<T>>,
    ) {
        if at == NOTHING {
            return;
        }
        let mut versions = self.state.versions.borrow_mut();
        let last = &mut versions[at as usize];
        let is_last = last
            .as_ref()
            .is_some_and(|last| std::ptr::addr_eq(Arc::as_ptr(last), Arc::as_ptr(from)));
        // What was to be added before has been, when the argument was bound.
        let adds_too = self.state.addends.borrow().contains_key(&at);
        assert!(is_last && !adds_too, "{CHANGED_TWICE}");
        *last = Some(to);
    }
}

/// Handles whose values are taken out of a flow together: [`Flow::take_all`].
pub trait TakeAll<'g> {
    /// The values, in the form in which the handles are.
    type Values;
    /// Takes them.
    fn take_all(self, flow: &Flow<'g>) -> Self::Values;
    /// Waits until they have been made.
    #[doc(hidden)]
    fn await_all(&self, flow: &Flow<'g>);
    /// Fetches those that other nodes keep.
    #[doc(hidden)]
    fn ask_all(&self, flow: &Flow<'g>);
}

impl<'g, T: Clone + Send + Sync + 'static> TakeAll<'g> for Handle<'g, T> {
    type Values = T;

    fn take_all(self, flow: &Flow<'g>) -> T {
        flow.take(self)
    }

    fn await_all(&self, flow: &Flow<'g>) {
        flow.await_made(&flow.version(*self));
    }

    fn ask_all(&self, flow: &Flow<'g>) {
        let version = flow.version(*self);
        if version.is_missing()
            && let Some((worker, _)) = flow.state.parallel()
        {
            Missing::new(&version).want(worker.pool(), None);
        }
    }
}

impl<'g, H: TakeAll<'g>> TakeAll<'g> for Vec<H> {
    type Values = Vec<H::Values>;

    fn take_all(self, flow: &Flow<'g>) -> Self::Values {
        self.into_iter().map(|each| each.take_all(flow)).collect()
    }

    fn await_all(&self, flow: &Flow<'g>) {
        self.iter().for_each(|each| each.await_all(flow));
    }

    fn ask_all(&self, flow: &Flow<'g>) {
        self.iter().for_each(|each| each.ask_all(flow));
    }
}

impl<'g, H: TakeAll<'g>, const N: usize> TakeAll<'g> for [H; N] {
    type Values = [H::Values; N];

    fn take_all(self, flow: &Flow<'g>) -> Self::Values {
        self.map(|each| each.take_all(flow))
    }

    fn await_all(&self, flow: &Flow<'g>) {
        self.iter().for_each(|each| each.await_all(flow));
    }

    fn ask_all(&self, flow: &Flow<'g>) {
        self.iter().for_each(|each| each.ask_all(flow));
    }
}

impl<'g, A: TakeAll<'g>, B: TakeAll<'g>> TakeAll<'g> for (A, B) {
    type Values = (A::Values, B::Values);

    fn take_all(self, flow: &Flow<'g>) -> Self::Values {
        (self.0.take_all(flow), self.1.take_all(flow))
    }

    fn await_all(&self, flow: &Flow<'g>) {
        self.0.await_all(flow);
        self.1.await_all(flow);
    }

    fn ask_all(&self, flow: &Flow<'g>) {
        self.0.ask_all(flow);
        self.1.ask_all(flow);
    }
}
