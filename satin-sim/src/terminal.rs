//! What the command prints: results on stdout, and how far it is on stderr, if that is a terminal.

use std::{
    fmt::Display,
    io::{IsTerminal as _, Write as _},
    sync::Mutex,
    time::{Duration, Instant},
};

/// Prints on stdout. The reader may be gone: `| head`.
pub fn say(text: &dyn Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Takes the status line away, before results are printed.
pub fn clear_line() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// A line on stderr that says how far a long run is, anew each second.
pub struct StatusLine {
    told: Mutex<Instant>,
}

impl StatusLine {
    /// Nothing is shown in the first second.
    #[must_use]
    pub fn new() -> StatusLine {
        StatusLine {
            told: Mutex::new(Instant::now()),
        }
    }

    /// Shows what `text` says, if it is time.
    ///
    /// # Panics
    /// If another thread has panicked in here.
    pub fn tell(&self, text: impl FnOnce() -> String) {
        let mut told = self.told.lock().expect("nobody panics with it");
        if told.elapsed() < Duration::from_secs(1) || !std::io::stderr().is_terminal() {
            return;
        }
        *told = Instant::now();
        eprint!("\r\x1b[K{}", text());
        let _ = std::io::stderr().flush();
    }
}

impl Default for StatusLine {
    fn default() -> StatusLine {
        StatusLine::new()
    }
}
