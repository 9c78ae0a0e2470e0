//! Satin turns an ordinary recursive function into one that runs on every core of every machine you
//! have.
//!
//! ```
//! #[satin::spawnable]
//! fn fib(n: u32) -> u64 {
//!     if n < 2 {
//!         return n.into();
//!     }
//!     let x = fib(n - 1); // spawned: may run here or on another core
//!     let y = fib(n - 2);
//!     satin::sync!(); // from here on x and y are values
//!     x + y
//! }
//!
//! assert_eq!(fib(20), 6765);
//! ```
//!
//! Calling a spawnable function from ordinary code runs it on the pool and waits for the result. With nothing
//! configured that is all cores of this machine. [`macro@spawnable`] says where a spawned call may stand, what it may
//! take, and what is refused; the README has the rest.
//!
//! * A program: [`macro@main`], or [`run`] with the settings of its own command line ([`Args`]).
//! * A library, a test, several pools: [`Satin::builder`].
//!
//! # Data that all jobs need
//! A [`Shared`] value is made once and passed by handle: a node that takes a job fetches the value once.
//!
//! ```
//! use satin::{Shared, spawnable};
//!
//! #[spawnable]
//! fn count(words: &Shared<Vec<String>>, from: usize, to: usize) -> usize {
//!     if to - from == 1 {
//!         return words[from].len();
//!     }
//!     let middle = (from + to) / 2;
//!     count(words, from, middle) + count(words, middle, to)
//! }
//!
//! let words = Shared::new(vec!["to".to_owned(), "be".to_owned(), "not".to_owned()]);
//! assert_eq!(count(&words, 0, words.len()), 7);
//! ```
//!
//! A [`bound!`] is a value that only improves, and that all jobs know: it cuts off what cannot lead to anything better.
//!
//! ```
//! satin::bound! { static FOUND: satin::Or; }
//!
//! #[satin::spawnable]
//! fn contains(haystack: &[u32], needle: u32) -> bool {
//!     if haystack.len() > 1 {
//!         let (left, right) = haystack.split_at(haystack.len() / 2);
//!         return contains(left, needle) | contains(right, needle);
//!     }
//!     let found = haystack.first() == Some(&needle);
//!     found && !FOUND.prunes(&found) && { FOUND.offer(found); true }
//! }
//!
//! assert!(contains(&[2, 3, 5, 7, 11], 7));
//! assert_eq!(FOUND.get(), Some(true));
//! ```
//!
//! # Many machines
//! With `SATIN_LISTEN` or `SATIN_JOIN` (or the builder's [`listen`](Builder::listen) and [`join`](Builder::join)) the
//! process is a node of a pool: the master runs `main`, the others work for it. The README's "Many machines" says how;
//! the command `satin run` tries it out on one machine. With neither, no socket is opened.

pub use satin_macros::{bound, call, main, seq, spawn, spawnable, sync};
pub use satin_runtime::{
    config::{Config, ConfigError},
    data,
    data::{Bound, Lattice, Max, MaxWith, Min, MinWith, Or, Shared, Union},
    job, net, observe,
    satin::{BuildError, Builder, NodeInfo, Satin, node},
    worker,
    worker::hungry,
};

#[doc(hidden)]
pub use satin_runtime::private as __private;

#[cfg(feature = "clap")]
mod args;
#[cfg(feature = "clap")]
pub use args::Args;

/// What most programs need: `use satin::prelude::*;`.
pub mod prelude {
    pub use crate::{Satin, Shared, bound, call, seq, spawn, spawnable, sync};
}

/// Settings of a pool by hand: as [`Satin::builder`].
///
/// ```
/// # #[satin::spawnable]
/// # fn fib(n: u32) -> u64 {
/// #     if n < 2 { return n.into(); }
/// #     fib(n - 1) + fib(n - 2)
/// # }
/// let pool = satin::builder().threads(2).build()?;
/// assert_eq!(pool.run(|| fib(10)), 55);
/// # Ok::<(), satin::BuildError>(())
/// ```
#[must_use]
pub fn builder() -> Builder {
    Satin::builder()
}

/// Runs `main` as the main program of this node, with the program's own settings above those of the environment and
/// `satin.toml`.
///
/// With a network, the pool ends when `main` does. Nodes that are not the master serve instead, and exit with code 0
/// when the pool has ended. If the master is gone another node calls `main` from the start: it should be deterministic up
/// to its calls of spawnable functions, and what else it does may be done again. Asked to leave by SIGTERM or Ctrl-C, a node
/// hands over what it has and exits with code 0; asked twice, it goes at once.
///
/// If the settings make no sense, says so on stderr and exits with code 2.
///
/// ```
/// # #[satin::spawnable]
/// # fn fib(n: u32) -> u64 {
/// #     if n < 2 { return n.into(); }
/// #     fib(n - 1) + fib(n - 2)
/// # }
/// let settings = satin::Config { threads: Some(2), ..satin::Config::default() };
/// let answer = satin::run(settings, || fib(10));
/// assert_eq!(answer, 55);
/// ```
pub fn run<R>(settings: impl Into<Config>, main: impl FnMut() -> R) -> R {
    satin_runtime::satin::run(settings.into(), main)
}
