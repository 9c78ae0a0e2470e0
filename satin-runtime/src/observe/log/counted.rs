//! Warnings and errors of this crate, wherever they come from, that say the same again: told once in a while, and counted.
//!
//! Warnings with a source that another can choose go through [`repeats`](crate::observe::repeats), whatever subscriber there is. This is the
//! net below all others: a store that fails, or a thread that cannot be had, may be told of by a loop.

use std::{
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use tracing::{Event, Level, Metadata};

use super::line::Fields;
use crate::observe::repeats::Repeats;

static LINES: Mutex<Repeats> = Mutex::new(Repeats::new());

/// Sums, and warnings that are counted before they come here.
const COUNTED_BEFORE: [&str; 2] = [
    "satin_runtime::observe::repeats",
    "satin_runtime::observe::log::counted",
];

/// Are there too many of such lines if they repeat themselves?
fn may_flood(of: &Metadata<'_>) -> bool {
    *of.level() <= Level::WARN
        && of.target().starts_with("satin_runtime")
        && !COUNTED_BEFORE.contains(&of.target())
}

/// True if the event gets a line; if not, the event has been counted.
pub(super) fn is_told(event: &Event<'_>) -> bool {
    let of = event.metadata();
    if !may_flood(of) {
        return true;
    }
    // Before the lock: a value that is written down might log.
    let text = text(event);
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.note(Instant::now(), of.name(), &text)
}

/// The message and the fields: lines that differ in a field are different.
fn text(event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let mut text = fields.message;
    for (name, value) in fields.others {
        // To memory: no error.
        let _ = write!(text, " {name}={value}");
    }
    text
}

/// Tells how many lines were left out since the first of their kind: of those kinds for which it is time, or of all. To be called now and
/// then.
pub(crate) fn tell_counted(all: bool) {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let sums = lines.take_sums(Instant::now(), all);
    drop(lines);
    for sum in sums {
        tracing::warn!("{}", sum.with_example());
    }
}
