//! Systems on which the output of a process is not kept.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use super::OutputPage;
use crate::observe::lines::beside_bar;

/// Keeps nothing.
///
/// # Errors
/// Always.
pub(crate) fn start() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// No lines.
pub(crate) fn page(_: u64) -> OutputPage {
    OutputPage::default()
}

/// Returns at once: no lines will come.
pub(crate) async fn more_than(_: u64, _: Duration) {}

/// Returns at once: nothing is on its way.
pub(crate) async fn settled() {}

/// Is standard error a terminal?
pub(crate) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// No other terminal than standard error.
pub(crate) fn terminal() -> Option<console::Term> {
    None
}

/// Writes a part of the log.
pub(crate) fn write_log(bytes: &[u8]) -> io::Result<usize> {
    io::stderr().write(bytes)
}

/// Writes what another node has printed.
pub(crate) fn show(bytes: &[u8]) -> io::Result<()> {
    beside_bar(|| io::stderr().write_all(bytes))
}
