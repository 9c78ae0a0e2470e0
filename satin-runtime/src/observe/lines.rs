//! Lines for the person at the terminal: who is in, who has gone, what Ctrl-C does.
//!
//! Only a person reads them: where stderr is no terminal there are the log (`SATIN_LOG`), the events file, and what `satin run` says of its
//! nodes.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
};

/// Prints a line, if stderr is a terminal.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        // The terminal may be gone.
        let _ = writeln!(stderr, "satin: {line}");
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
