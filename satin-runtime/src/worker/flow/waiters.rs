//! Who waits for a version: a stack of links that the version's writer closes once.
//!
//! Links lie in the tasks that wait, so entering one takes no memory. The creator of a task enters its links, one after the other, while
//! writers on other threads close their stacks: a link is either in the stack when it is closed, and its task is told then, or it is not
//! let in, and the version is there.

use crate::atomic::{AtomicPtr, AtomicU32, Cell, Ordering};

/// A place in a stack of waiters, of one task.
pub struct Link<T> {
    next: Cell<*mut Link<T>>,
    task: Cell<*const T>,
}

impl<T> Default for Link<T> {
    fn default() -> Link<T> {
        Link {
            next: Cell::new(std::ptr::null_mut()),
            task: Cell::new(std::ptr::null()),
        }
    }
}

/// The tasks that wait for one version.
pub struct Waiters<T>(AtomicPtr<Link<T>>);

/// The stack's head once it has been closed.
fn closed<T>() -> *mut Link<T> {
    std::ptr::without_provenance_mut(usize::MAX)
}

impl<T> Waiters<T> {
    /// Nobody waits yet.
    pub(super) fn new() -> Waiters<T> {
        Waiters(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Nobody needs to wait.
    pub(super) fn none() -> Waiters<T> {
        Waiters(AtomicPtr::new(closed()))
    }

    /// True once the stack has been closed: what its writer did before can be seen then.
    pub(super) fn are_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == closed()
    }

    /// Enters the task. False if the stack has been closed.
    ///
    /// # Safety
    /// The link is in no stack, and it and the task live until the stack has been closed and the task taken out.
    pub(super) unsafe fn add(&self, link: &Link<T>, task: *const T) -> bool {
        link.task.set(task);
        let this = std::ptr::from_ref(link).cast_mut();
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            if head == closed() {
                return false;
            }
            link.next.set(head);
            // Release: who closes the stack sees the link.
            match (self.0).compare_exchange_weak(head, this, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
    }

    /// Closes the stack. Those that were in it are shown when the caller has let go of the version: who changes it next finds it to be the only
    /// one's.
    pub(super) fn close(&self) -> Waiting<T> {
        // Release: who finds it closed sees what the writer did. Acquire: the links.
        Waiting(self.0.swap(closed(), Ordering::AcqRel))
    }
}

/// Tasks that have waited for a version which is there now.
#[must_use]
pub(super) struct Waiting<T>(*mut Link<T>);

impl<T> Waiting<T> {
    /// Looks at each of them, before they are shown.
    pub(super) fn look(&self, mut look: impl FnMut(*const T)) {
        let mut at = self.0;
        while !at.is_null() && at != closed() {
            // SAFETY: as in `show`, and none of the tasks has been taken out.
            let link = unsafe { &*at };
            look(link.task.get());
            at = link.next.get();
        }
    }

    /// Shows each of them. It may be gone when `show` has returned.
    pub(super) fn show(self, mut show: impl FnMut(*const T)) {
        let mut at = self.0;
        while !at.is_null() && at != closed() {
            // SAFETY: whoever entered the link promised that it lives until its task has been taken out.
            let link = unsafe { &*at };
            let (next, task) = (link.next.get(), link.task.get());
            show(task);
            at = next;
        }
    }
}

/// The number of versions that a task still waits for, and one more while it is being made.
pub(super) struct Pending(AtomicU32);

impl Pending {
    /// Of a task that is being made.
    pub(super) fn new() -> Pending {
        Pending(AtomicU32::new(1))
    }

    /// One more.
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less. True if there is none left: then the task is the caller's.
    pub(super) fn remove(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    use super::*;

    /// A task that waits for two versions, and what their writers have written.
    struct WaiterStory {
        task: Pending,
        links: [Link<u32>; 2],
        versions: [(Waiters<u32>, UnsafeCell<u32>); 2],
        runs: loom::sync::atomic::AtomicU32,
    }

    // SAFETY: the cells are looked at as the protocol allows, which is what is tested.
    unsafe impl Sync for WaiterStory {}
    // SAFETY: as above.
    unsafe impl Send for WaiterStory {}

    impl WaiterStory {
        fn write(&self, which: usize) {
            let (waiters, value) = &self.versions[which];
            // SAFETY: the one writer.
            value.with_mut(|value| unsafe { *value = 7 });
            let waiting = waiters.close();
            waiting.look(|_| assert_eq!(self.runs.load(Ordering::Relaxed), 0));
            waiting.show(|_| {
                if self.task.remove() {
                    self.run();
                }
            });
        }

        fn make(&self) {
            for (link, (waiters, _)) in self.links.iter().zip(&self.versions) {
                self.task.add();
                // SAFETY: the story outlives its threads.
                if !unsafe { waiters.add(link, std::ptr::null()) } {
                    self.task.remove();
                }
            }
            if self.task.remove() {
                self.run();
            }
        }

        fn run(&self) {
            for (_, value) in &self.versions {
                // SAFETY: all writers are done.
                assert_eq!(value.with(|value| unsafe { *value }), 7);
            }
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn loom_a_task_runs_once_when_both_versions_are_there() {
        loom::model(|| {
            let version = || (Waiters::new(), UnsafeCell::new(0));
            let story = Arc::new(WaiterStory {
                task: Pending::new(),
                links: [Link::default(), Link::default()],
                versions: [version(), version()],
                runs: loom::sync::atomic::AtomicU32::new(0),
            });
            let writers = [0, 1].map(|which| {
                let story = Arc::clone(&story);
                thread::spawn(move || story.write(which))
            });
            story.make();
            for writer in writers {
                writer.join().expect("it ends");
            }
            assert_eq!(story.runs.load(Ordering::Relaxed), 1);
        });
    }
}
