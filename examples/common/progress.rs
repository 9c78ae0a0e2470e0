//! A live line on stderr for runs that take long. It is shown on a terminal only, so logs and tests never see it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

/// Shows a spinner until it is dropped.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// `state` says, a few times per second, how things stand.
    pub fn start(state: impl Fn() -> String + Clone + Send + Sync + 'static) -> Self {
        let state = move || match satin::progress() {
            Some(progress) => format!("{:.0} %, {}", 100.0 * progress.done, state()),
            None => state(),
        };
        let style = ProgressStyle::with_template("{spinner} {elapsed} {state}")
            .expect("the template is a constant")
            .with_key(
                "state",
                move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
                    // A line of progress that cannot be written is no reason to stop.
                    let _ = out.write_str(&state());
                },
            );
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// How many nodes of the search tree this process has visited, or tasks of a flow it has run.
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One atomic addition to memory that all workers share: cheap beside a microsecond of work, dear beside ten nanoseconds.
    pub fn add(&self, nodes: u64) {
        self.0.fetch_add(nodes, Ordering::Relaxed);
    }

    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Prints how large the search was. Other processes have their own counts.
    pub fn report(&self) {
        println!("visited {} in this process", self.nodes());
    }

    /// The count so far, of all tasks of the flow: `1,234 of 22,100 tasks`.
    pub fn tasks(&self, all: usize) -> String {
        let done = HumanCount(self.0.load(Ordering::Relaxed));
        format!("{done} of {} tasks", HumanCount(all as u64))
    }

    /// The count so far with its unit, for people: `1,234,567 nodes`.
    pub fn nodes(&self) -> String {
        format!("{} nodes", HumanCount(self.0.load(Ordering::Relaxed)))
    }
}
