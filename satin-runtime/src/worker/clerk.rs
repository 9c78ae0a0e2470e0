//! The clerk: a thread with a worker's stack, beside the workers, for code of the user that the network thread would have to
//! run otherwise.
//!
//! The network thread steals for others while the workers are busy, and hears of bounds whatever else waits. The user's
//! code that it would have to run (writing arguments, reading and comparing offers, judging results, dropping shared
//! values) may panic, recurse without end or take long, and meanwhile the other nodes would get no answer. So the network
//! thread leaves such code to the clerk.
//!
//! Tasks are run one after the other, in the order in which they came. *Ordered* ones are waited for by what comes after them
//! (see [`Gate::after_offers`](super::Gate::after_offers)): a result must not overtake the offers that came before it.
//! The thread starts with the first task: a pool without a network has none.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

use crate::{job::codec, observe::log};

/// The clerk of a pool; see the module's documentation.
pub(super) struct Clerk {
    desk: Arc<ClerkDesk>,
    /// Stack size of the clerk's thread, in bytes.
    stack: usize,
}

#[derive(Default)]
struct ClerkDesk {
    state: Mutex<ClerkState>,
    bell: Condvar,
    /// Tasks that have not been done.
    all: AtomicUsize,
    /// Ordered ones among them.
    ordered: AtomicUsize,
}

#[derive(Default)]
struct ClerkState {
    tasks: VecDeque<ClerkTask>,
    thread: Thread,
}

#[derive(Default)]
enum Thread {
    #[default]
    NotYet,
    Runs(JoinHandle<()>),
    /// Could not be started, or has been closed: tasks are run where they come from.
    Gone,
}

struct ClerkTask {
    run: Box<dyn FnOnce() + Send>,
    ordered: bool,
}

impl ClerkDesk {
    fn lock(&self) -> MutexGuard<'_, ClerkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, task: ClerkTask) {
        if let Err(error) = codec::guard("a task of the network", task.run) {
            tracing::warn!("{error}");
        }
        // Release: a thread that finds none left sees their effects.
        if task.ordered {
            self.ordered.fetch_sub(1, Ordering::Release);
        }
        self.all.fetch_sub(1, Ordering::Release);
    }

    /// Runs tasks until the clerk is closed: the thread's main loop.
    fn serve(&self) {
        loop {
            let mut state = self.lock();
            let task = loop {
                if let Some(task) = state.tasks.pop_front() {
                    break task;
                }
                if let Thread::Gone = state.thread {
                    return;
                }
                state = self
                    .bell
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            self.run(task);
        }
    }
}

impl Clerk {
    pub(super) fn new(stack: usize) -> Clerk {
        Clerk {
            desk: Arc::default(),
            stack,
        }
    }

    /// The size of its stack, in bytes: that of a worker's.
    pub(super) fn stack(&self) -> usize {
        self.stack
    }

    /// Is nothing under way that has to come first?
    pub(super) fn is_in_order(&self) -> bool {
        self.desk.ordered.load(Ordering::Acquire) == 0
    }

    /// Is nothing at all under way?
    pub(super) fn is_idle(&self) -> bool {
        self.desk.all.load(Ordering::Acquire) == 0
    }

    /// Leaves a task to the clerk's thread, which runs it soon.
    pub(super) fn run(&self, run: impl FnOnce() + Send + 'static) {
        let run = Box::new(run);
        self.push(ClerkTask {
            run,
            ordered: false,
        });
    }

    /// Leaves an ordered task to the clerk's thread; the callers whose tasks must not overtake it ask
    /// [`Clerk::is_in_order`].
    pub(super) fn run_ordered(&self, run: impl FnOnce() + Send + 'static) {
        self.desk.ordered.fetch_add(1, Ordering::Relaxed);
        let run = Box::new(run);
        self.push(ClerkTask { run, ordered: true });
    }

    fn push(&self, task: ClerkTask) {
        self.desk.all.fetch_add(1, Ordering::Relaxed);
        let mut state = self.desk.lock();
        if let Thread::NotYet = state.thread {
            state.thread = self.start();
        }
        if let Thread::Gone = state.thread {
            drop(state);
            return self.desk.run(task);
        }
        state.tasks.push_back(task);
        drop(state);
        self.desk.bell.notify_one();
    }

    fn start(&self) -> Thread {
        let (desk, size) = (Arc::clone(&self.desk), self.stack);
        let serve = move || {
            codec::measure_stack(size);
            desk.serve();
        };
        let thread = std::thread::Builder::new()
            .name("satin-codec".into())
            .stack_size(size);
        match log::spawn(thread, serve) {
            Ok(thread) => Thread::Runs(thread),
            Err(error) => {
                tracing::warn!(
                    "cannot start the thread that serializes stolen jobs ({error}): the network thread serializes them instead"
                );
                Thread::Gone
            }
        }
    }

    /// Waits until all tasks are done. Later tasks are run at once, by the threads that bring them.
    pub(super) fn close(&self) {
        let thread = std::mem::replace(&mut self.desk.lock().thread, Thread::Gone);
        self.desk.bell.notify_one();
        if let Thread::Runs(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn tasks_are_done_in_order_whatever_one_of_them_does() {
        let clerk = Clerk::new(1 << 20);
        let (done, is_done) = mpsc::channel();
        for number in 0..100 {
            let done = done.clone();
            clerk.run_ordered(move || {
                done.send(number).expect("somebody listens");
                assert_ne!(number, 50, "a task that panics");
            });
        }
        clerk.close();
        assert!(clerk.is_in_order());
        clerk.run(move || done.send(100).expect("somebody listens"));
        assert_eq!(
            is_done.iter().collect::<Vec<_>>(),
            (0..101).collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_must_come_first_is_known_until_it_is_done() {
        let clerk = Clerk::new(1 << 20);
        let (go, may_go) = mpsc::channel::<()>();
        assert!(clerk.is_idle());
        clerk.run_ordered(move || may_go.recv().expect("it is told"));
        assert!(!clerk.is_in_order() && !clerk.is_idle());
        go.send(()).expect("it listens");
        clerk.close();
        assert!(clerk.is_in_order() && clerk.is_idle());
        assert_eq!(clerk.stack(), 1 << 20);
    }
}
