//! The progress of the root job, as people see it: a bar where stderr is a terminal, a line every 30 s where it is none.

use std::{
    fmt,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crossbeam::sync::{Parker, Unparker};

pub use crate::worker::Progress;
use crate::{
    observe::{
        lines::{self, Nodes, Short},
        log,
        standing::Standing,
    },
    worker::{Workers, current_progress},
};

/// The time from one look to the next. Too short: looking shows in the run. Too long: the bar jumps.
const EVERY: Duration = Duration::from_millis(250);

/// A root job that is done sooner shows nothing. Too short: something flashes up. Too long: people wonder.
const QUIET: Duration = Duration::from_secs(2);

/// The time between two lines where there is no terminal. Too short: logs fill. Too long: people wonder.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// A program has asked for the progress: it shows it itself.
static SHOWN_BY_PROGRAM: AtomicBool = AtomicBool::new(false);

/// How far the root job is that runs on the pool of the calling thread; `None` if none does, or on a node that does not run `main`.
///
/// It is an estimate from the tree: each job counts as a part of its parent, all children of an invocation for the same. On balanced trees it is
/// right within a few percent; of an irregular tree it is an honest guess, and says so. It never goes back.
///
/// A program that asks shows the progress in its own way: the bar that Satin draws otherwise (see `SATIN_PROGRESS`) is not drawn any more.
#[must_use]
pub fn progress() -> Option<Progress> {
    SHOWN_BY_PROGRAM.store(true, Ordering::Relaxed);
    current_progress()
}

/// Shows the progress of a pool until it is dropped.
pub(crate) struct ProgressDisplay {
    is_over: Arc<AtomicBool>,
    /// The thread that looks, and what wakes it; if the system gives no thread, nothing is shown.
    thread: Option<(Unparker, JoinHandle<()>)>,
}

impl ProgressDisplay {
    pub(crate) fn start(workers: &Workers, standing: Arc<Standing>) -> ProgressDisplay {
        let (parker, is_over) = (Parker::new(), Arc::new(AtomicBool::new(false)));
        let (unparker, over) = (parker.unparker().clone(), Arc::clone(&is_over));
        let watch = workers.watch();
        let show = move || {
            let mut view = ProgressView::default();
            while !over.load(Ordering::Relaxed) {
                parker.park_timeout(EVERY);
                let progress = watch.look_up();
                let is_wanted = !SHOWN_BY_PROGRAM.load(Ordering::Relaxed);
                view.show(progress.filter(|_| is_wanted), || standing.now().nodes);
            }
            view.clear();
        };
        let thread = std::thread::Builder::new().name("satin-progress".into());
        let thread = log::spawn(thread, show).ok();
        ProgressDisplay {
            is_over,
            thread: thread.map(|thread| (unparker, thread)),
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some((unparker, thread)) = self.thread.take() {
            unparker.unpark();
            let _ = thread.join();
        }
    }
}

/// What is shown.
#[derive(Default)]
struct ProgressView {
    has_bar: bool,
    last_line: Option<Instant>,
}

impl ProgressView {
    fn show(&mut self, progress: Option<Progress>, nodes: impl Fn() -> usize) {
        let Some(progress) = progress.filter(|progress| progress.elapsed >= QUIET) else {
            return self.clear();
        };
        let words = Words {
            progress,
            nodes: nodes(),
        };
        if lines::has_terminal() {
            self.has_bar = true;
            return lines::show_bar(progress.done, words.to_string());
        }
        let now = Instant::now();
        let last = *self.last_line.get_or_insert(now);
        if now.duration_since(last) >= LINE_EVERY {
            self.last_line = Some(now);
            let _ = writeln!(io::stderr(), "satin: {words}");
        }
    }

    /// No root job runs.
    fn clear(&mut self) {
        self.last_line = None;
        if std::mem::take(&mut self.has_bar) {
            lines::clear_bar();
        }
    }
}

/// The progress in words.
#[doc(hidden)]
pub struct Words {
    /// The progress.
    pub progress: Progress,
    /// Number of nodes in the pool.
    pub nodes: usize,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words { progress, nodes } = self;
        let about = if progress.is_guess { "about " } else { "" };
        let (percent, elapsed) = (100.0 * progress.done, Short(progress.elapsed));
        write!(f, "{about}{percent:.0} % in {elapsed}")?;
        if let Some(left) = progress.left().filter(|_| progress.done < 1.0) {
            write!(f, ", {about}{} left", Short(left))?;
        }
        if *nodes > 1 {
            write!(f, ", {}", Nodes(*nodes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_say_what_is_known() {
        let words = |done, seconds, is_guess, nodes| {
            let elapsed = Duration::from_secs(seconds);
            let progress = Progress::told(done, elapsed, is_guess);
            Words { progress, nodes }.to_string()
        };
        assert_eq!(words(0.25, 30, false, 1), "25 % in 30 s, 1 min 30 s left");
        assert_eq!(
            words(0.5, 7200, true, 3),
            "about 50 % in 2 h 0 min, about 2 h 0 min left, 3 nodes"
        );
        assert_eq!(words(0.0, 5, true, 1), "about 0 % in 5 s");
    }
}
