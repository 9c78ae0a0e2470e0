//! Lines for the person at the terminal: who is in, who has gone, what Ctrl-C does; and the bar below them.
//!
//! Only a person reads them: where stderr is no terminal there are the log (`SATIN_LOG`), the events file, and what `satin run` says of its
//! nodes.

use std::{
    fmt,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output;

/// How often the bar is drawn, at most: what indicatif takes for standard error.
const FRAMES_PER_SECOND: u8 = 20;

/// The bar below all other output, while there is one.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn bar() -> MutexGuard<'static, Option<ProgressBar>> {
    BAR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is there a screen for lines and a bar?
#[must_use]
pub fn has_terminal() -> bool {
    output::is_terminal()
}

/// Shows a bar with these words beside it, or moves it; `done` is a part of 1. Not where stderr is no terminal.
pub fn show_bar(done: f64, words: String) {
    if !has_terminal() {
        return;
    }
    let mut bar = bar();
    let bar = bar.get_or_insert_with(|| {
        let style = ProgressStyle::with_template("[{bar:30}] {msg}");
        let style = style.expect("a valid template").progress_chars("=> ");
        let bar = ProgressBar::new(1000).with_style(style);
        if let Some(terminal) = output::terminal() {
            bar.set_draw_target(ProgressDrawTarget::term(terminal, FRAMES_PER_SECOND));
        }
        bar
    });
    bar.set_message(words);
    bar.set_position((1000.0 * done) as u64);
}

/// Is there a bar on the screen? What is not a whole line must wait then: the bar would be drawn behind it.
#[must_use]
pub fn has_bar() -> bool {
    bar().is_some()
}

/// Leaves the bar full on the screen, if there is one: all is done, and took that time.
pub fn fill_bar(took: Duration) {
    if let Some(bar) = bar().take() {
        bar.set_position(1000);
        bar.abandon_with_message(format!("100 % in {}", Short(took)));
    }
}

/// Leaves the bar on the screen as it is, if there is one.
pub fn leave_bar() {
    if let Some(bar) = bar().take() {
        bar.abandon();
    }
}

/// Takes the bar off the screen, if there is one.
pub fn clear_bar() {
    if let Some(bar) = bar().take() {
        bar.finish_and_clear();
    }
}

/// Writes to the terminal while no bar is in the way.
pub fn beside_bar<R>(write: impl FnOnce() -> R) -> R {
    match &*bar() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Stderr, for writers that know nothing of the bar.
pub(crate) struct BesideBar;

impl Write for BesideBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        beside_bar(|| output::write_log(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Prints a line, if stderr is a terminal.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    if has_terminal() {
        // The terminal may be gone.
        let _ = BesideBar.write_all(format!("satin: {line}\n").as_bytes());
    }
}

/// Prints a line that people need, also where stderr is no terminal.
#[cfg(feature = "dashboard")]
pub(crate) fn tell(line: fmt::Arguments<'_>) {
    // There may be no reader any more.
    let _ = BesideBar.write_all(format!("satin: {line}\n").as_bytes());
}

/// A time with its two largest units.
pub(crate) struct Short(pub(crate) Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0..60 => write!(f, "{seconds} s"),
            60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            3600..86_400 => write!(f, "{} h {} min", seconds / 3600, seconds / 60 % 60),
            86_400.. => write!(f, "{} d {} h", seconds / 86_400, seconds / 3600 % 24),
        }
    }
}

/// A number of nodes.
#[derive(Clone, Copy)]
pub(crate) struct Nodes(pub(crate) usize);

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nodes(count) = *self;
        write!(f, "{count} node{}", if count == 1 { "" } else { "s" })
    }
}

/// The nodes that are in, and for how many more the first root job waits.
#[derive(Clone, Copy)]
pub(crate) struct Gathering {
    pub(crate) nodes: usize,
    /// At so many nodes it begins.
    pub(crate) wanted: usize,
}

impl fmt::Display for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gathering { nodes, wanted } = *self;
        write!(f, "{} in the pool", Nodes(nodes))?;
        match wanted.saturating_sub(nodes) {
            0 => Ok(()),
            more => write!(f, "; waiting for {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_said_while_it_is() {
        let said = |nodes, wanted| Gathering { nodes, wanted }.to_string();
        assert_eq!(said(1, 3), "1 node in the pool; waiting for 2 more");
        assert_eq!(said(3, 3), "3 nodes in the pool");
        assert_eq!(said(4, 3), "4 nodes in the pool");
    }
}
