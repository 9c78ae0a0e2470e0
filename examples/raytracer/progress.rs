//! The bar on the terminal while the picture is computed.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Pixels computed in this process. A job's changes to a static stay on the machine where it ran: with several nodes
/// each counts its own share. Good enough for a bar; a result must be returned.
static FINISHED: AtomicU64 = AtomicU64::new(0);

/// Called by jobs.
pub fn finished(pixels: usize) {
    FINISHED.fetch_add(pixels as u64, Ordering::Relaxed);
}

/// Runs `work`, which finishes `pixels` pixels, under a bar; without one if standard error is no terminal.
pub fn watched<R>(what: &'static str, pixels: u64, work: impl FnOnce() -> R) -> R {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let before = FINISHED.load(Ordering::Relaxed);
    let bar = ProgressBar::new(pixels)
        .with_style(style())
        .with_message(what);
    thread::scope(|scope| {
        // Dropped at the end of the scope's closure, also by a panic in `work`: that wakes and ends the thread.
        let (_working, done) = mpsc::channel::<()>();
        scope.spawn(move || {
            while done.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(FINISHED.load(Ordering::Relaxed) - before);
            }
            bar.finish_and_clear();
        });
        work()
    })
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} [{bar:40}] {percent:>3}% {elapsed_precise}, {eta} left")
        .expect("a valid template")
        .progress_chars("=> ")
}
