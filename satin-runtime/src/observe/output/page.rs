//! Lines as they travel from a node to those who ask for them.

use serde::{Deserialize, Serialize};

/// The stream that a line was printed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A line that a node printed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputLine {
    /// When it came to its end, in milliseconds since 1970, by the node's own clock.
    pub at_ms: u64,
    /// Where it was printed to.
    pub stream: OutputStream,
    /// The bytes, without the line's end. They need not be text.
    #[serde(with = "serde_bytes")]
    pub text: Vec<u8>,
}

/// Some lines of a node, in the order in which it printed them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OutputPage {
    /// False if the node does not keep what it prints.
    pub is_kept: bool,
    /// The number of the first of these lines; if it is higher than the one that was asked for, those between have been dropped.
    pub first: u64,
    /// The lines.
    pub lines: Vec<OutputLine>,
    /// True if there are more.
    pub has_more: bool,
}

impl OutputPage {
    /// The number of the line that comes next.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.lines.len() as u64
    }
}
