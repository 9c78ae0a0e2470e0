//! What this process prints, kept for those who ask: `satin log`, and the master's terminal.
//!
//! Standard output and standard error are pipes then, of which a thread copies every byte to where it would have gone, and each line into a
//! ring. Nothing waits for a reader: the ring drops its oldest lines, and counts them. Only on Unix.

#[cfg(unix)]
mod capture;
mod page;
#[cfg(unix)]
mod ring;

#[cfg(not(unix))]
#[path = "no_capture.rs"]
mod capture;

use serde::{Deserialize, Serialize};

#[cfg(unix)]
pub(crate) use capture::finish;
pub(crate) use capture::{is_terminal, more_than, page, settled, show, start, terminal, write_log};
pub use page::{OutputLine, OutputPage, OutputStream};

/// What becomes of the output of nodes.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    strum::EnumString,
    strum::VariantNames,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum OutputUse {
    /// The output goes where the process was started to write, and is not kept.
    #[default]
    Own,
    /// The last lines are kept, for `satin log`.
    Kept,
    /// As `Kept`; and the node that runs `main` shows what the others print.
    All,
}
