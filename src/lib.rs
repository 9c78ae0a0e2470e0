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
//! Calling a spawnable function from ordinary code runs it on the pool and waits for the result. Without settings the
//! pool is all cores of this machine. [`macro@spawnable`] tells where a spawned call may stand, which arguments it may
//! take, and what is refused; the book, in `docs/` of the repository, has the rest.
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
//! # Numbers and plain data
//! Slices, vectors and boxes of numbers travel between machines as they lie in memory, and so do those of types that derive
//! `bytemuck::Pod`, wherever in an argument, a result or a shared value they stand. [`plain!`] tells the details.
//!
//! # Many machines
//! With `SATIN_LISTEN` or `SATIN_JOIN` (or the builder's [`listen`](Builder::listen) and [`join`](Builder::join)) the
//! process is a node of a pool: the master runs `main`, the others work for it. With neither, no socket is opened.
//!
//! ```no_run
//! #[satin::spawnable]
//! fn fib(n: u32) -> u64 {
//!     if n < 2 { n.into() } else { fib(n - 1) + fib(n - 2) }
//! }
//!
//! #[satin::main] // on the other nodes it works for the master, and never returns
//! fn main() {
//!     println!("{}", fib(40));
//! }
//! ```
//!
//! ```text
//! satin keygen pool.pem                                                              # once; every node needs a copy
//! satin node --listen 192.0.2.7:7777 --credential pool.pem -- ./program               # founds the pool
//! satin node --join   192.0.2.7:7777 --credential pool.pem -- ./program               # joins it, now or later
//! satin run --sites here:2,there:2 --wan-rtt 30ms -- ./program                        # or all on this machine, to try it
//! ```
//!
//! Machines may crash, leave and join while a program runs, and its answer stays that of one machine: a job that was lost is run again
//! ([`macro@main`] says what that asks of `main`). Arguments and results travel, so they implement serde's traits; borrowed ones are
//! copied when they leave the machine, and only then.
//!
//! # Settings and errors
//! Each setting is a method of [`Builder`], a field of [`Config`], a flag of [`Args`], a variable `SATIN_..` and a key of `satin.toml`; the
//! methods say what too small and too large values do. Errors end with a code that `satin explain` explains. A job that panics stops
//! its siblings, and its panic comes out of the call in `main`.
//!
//! # Features
//! `clap` (on by default): [`Args`]. `s3`: stores in buckets. `serial`: every macro leaves the plain sequential program.

pub use satin_macros::{
    bound, call, flow, main, par_chunks, par_map, par_reduce, seq, spawn, spawnable, sync, task,
};

pub use satin_runtime::plain;

/// # Example
/// ```
/// let config = satin::Config { threads: Some(2), ..satin::Config::default() };
/// assert_eq!(satin::run(config, || satin::node().threads), 2);
/// ```
pub use satin_runtime::config::Config;

/// # Example
/// ```
/// let config = satin::Config { threads: Some(0), ..satin::Config::default() };
/// let error = satin::Builder::from_config(config).build().err().expect("no pool without a worker");
/// assert!(matches!(error, satin::BuildError::Config(_)), "{error}");
/// ```
pub use satin_runtime::config::ConfigError;

/// # Example
/// ```
/// satin::bound! { static HIGHEST: satin::Max<u64>; }
///
/// #[satin::spawnable]
/// fn highest(numbers: &[u64]) {
///     match numbers {
///         [] => {}
///         [one] => { HIGHEST.offer(*one); }
///         _ => {
///             let (left, right) = numbers.split_at(numbers.len() / 2);
///             highest(left);
///             highest(right);
///         }
///     }
/// }
///
/// highest(&[2, 7, 1, 8]);
/// assert_eq!(HIGHEST.get(), Some(8));
/// assert!(HIGHEST.prunes(&7));
/// ```
pub use satin_runtime::data::Bound;

pub use satin_runtime::data::Lattice;

/// # Example
/// ```
/// satin::bound! { static MOST: satin::Max<u64>; }
/// # #[satin::spawnable] fn look() { MOST.offer(3); MOST.offer(5); }
/// # look();
/// // After jobs have offered 3 and 5:
/// assert_eq!(MOST.get(), Some(5));
/// assert!(MOST.prunes(&4) && !MOST.prunes(&5));
/// ```
pub use satin_runtime::data::Max;

/// # Example
/// ```
/// satin::bound! { static RICHEST: satin::MaxWith<u64, String>; }
/// # #[satin::spawnable] fn look() { RICHEST.offer(3, "tin".into()); RICHEST.offer(5, "gold".into()); }
/// # look();
/// // After jobs have offered 3 with "tin" and 5 with "gold":
/// assert_eq!(RICHEST.get(), Some((5, "gold".to_owned())));
/// ```
pub use satin_runtime::data::MaxWith;

/// # Example
/// ```
/// satin::bound! { static LEAST: satin::Min<u64>; }
/// # #[satin::spawnable] fn look() { LEAST.offer(5); LEAST.offer(3); }
/// # look();
/// // After jobs have offered 5 and 3:
/// assert_eq!(LEAST.get(), Some(3));
/// assert!(LEAST.prunes(&4) && !LEAST.prunes(&3));
/// ```
pub use satin_runtime::data::Min;

/// # Example
/// ```
/// satin::bound! { static CHEAPEST: satin::MinWith<u64, Vec<u8>>; }
/// # #[satin::spawnable] fn look() { CHEAPEST.offer(5, vec![1, 4]); CHEAPEST.offer(3, vec![2, 1]); }
/// # look();
/// // After jobs have offered 5 and 3, each with its solution:
/// assert_eq!(CHEAPEST.get(), Some((3, vec![2, 1])));
/// assert!(CHEAPEST.prunes(&3));
/// ```
pub use satin_runtime::data::MinWith;

/// # Example
/// ```
/// satin::bound! { static FOUND: satin::Or; }
/// # #[satin::spawnable] fn look() { FOUND.offer(true); }
/// # look();
/// // After a job has offered `true`:
/// assert_eq!(FOUND.get(), Some(true));
/// ```
pub use satin_runtime::data::Or;

/// # Example
/// ```
/// use satin::{Shared, spawnable};
///
/// #[spawnable]
/// fn count(text: &Shared<String>, from: usize, to: usize) -> usize {
///     if to - from < 4 {
///         return text.as_bytes()[from..to].iter().filter(|byte| **byte == b'e').count();
///     }
///     let middle = (from + to) / 2;
///     count(text, from, middle) + count(text, middle, to)
/// }
///
/// let text = Shared::new("every job borrows the handle".to_owned());
/// assert_eq!(count(&text, 0, text.len()), 4);
/// ```
pub use satin_runtime::data::Shared;

/// # Example
/// ```
/// use std::collections::BTreeSet;
///
/// satin::bound! { static SEEN: satin::Union<BTreeSet<u8>>; }
/// # #[satin::spawnable] fn look() { SEEN.offer(BTreeSet::from([1])); SEEN.offer(BTreeSet::from([4])); }
/// # look();
/// // After jobs have offered {1} and {4}:
/// assert_eq!(SEEN.get(), Some(BTreeSet::from([1, 4])));
/// ```
pub use satin_runtime::data::Union;

/// # Example
/// ```
/// let error = satin::builder().threads(0).build().err().expect("no pool without a worker");
/// println!("cannot start: {error}");
/// ```
pub use satin_runtime::satin::BuildError;

/// # Example
/// ```
/// let pool = satin::builder().threads(2).stack(16).build()?;
/// assert_eq!(pool.run(|| satin::node().threads), 2);
/// # Ok::<(), satin::BuildError>(())
/// ```
pub use satin_runtime::satin::Builder;

/// # Example
/// ```
/// let satin::NodeInfo { name, site, threads, .. } = satin::node();
/// println!("{name} at {site}: {threads} workers");
/// ```
pub use satin_runtime::satin::NodeInfo;

/// # Example
/// ```
/// # #[satin::spawnable]
/// # fn fib(n: u32) -> u64 {
/// #     if n < 2 { return n.into(); }
/// #     fib(n - 1) + fib(n - 2)
/// # }
/// let pool: satin::Satin = satin::builder().threads(2).build()?;
/// assert_eq!(pool.run(|| fib(12)), 144);
/// # Ok::<(), satin::BuildError>(())
/// ```
pub use satin_runtime::satin::Satin;

/// # Example
/// ```
/// # use std::time::Duration;
/// let progress: Option<satin::Progress> = satin::progress();
/// if let Some(progress) = progress {
///     let left = progress.left().unwrap_or(Duration::MAX);
///     println!("{:.0} %, {left:?} left", 100.0 * progress.done);
/// }
/// ```
pub use satin_runtime::progress::{Progress, progress};

/// # Example
/// ```
/// # #[satin::spawnable]
/// # fn table(n: u32) -> String { n.to_string() }
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("table.csv");
/// let table = table(7);
/// // The latest `main` of the run publishes, and no other.
/// satin::fence()?.publish(&path, &table)?;
/// # assert_eq!(std::fs::read_to_string(path)?, "7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use satin_runtime::fence::fence;

/// # Example
/// ```
/// // A number for a service that refuses what comes with an older one.
/// let fence: satin::Fence = satin::fence()?;
/// println!("{}", fence.number());
/// # Ok::<(), satin::NoFence>(())
/// ```
pub use satin_runtime::fence::Fence;

/// # Example
/// ```
/// match satin::fence() {
///     Ok(fence) => println!("this `main` may publish, as number {}", fence.number()),
///     Err(satin::NoFence::NoStore) => println!("nobody knows"),
///     Err(why) => println!("nothing is published: {why}"),
/// }
/// ```
pub use satin_runtime::fence::NoFence;

/// # Example
/// ```
/// let nowhere = satin::fence()?.publish("/no/such/directory/table.csv", "r,exponent");
/// assert!(matches!(nowhere, Err(satin::PublishError::Io { .. })));
/// # Ok::<(), satin::NoFence>(())
/// ```
pub use satin_runtime::fence::PublishError;

/// # Example
/// ```
/// assert!(satin::node().threads > 0);
/// ```
pub use satin_runtime::satin::node;

/// # Example
/// ```
/// /// Splits as long as somebody looks for work.
/// #[satin::spawnable]
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() < 1000 || !satin::hungry() {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     sum(left) + sum(right)
/// }
/// assert_eq!(sum(&[1; 5000]), 5000);
/// ```
pub use satin_runtime::worker::hungry;

/// # Example
/// ```
/// use satin::{Cancel, Cancelled};
///
/// /// Sees about 2^n leaves.
/// #[satin::spawnable]
/// fn search(n: u32) -> u64 {
///     if n == 0 {
///         return 1;
///     }
///     search(n - 1) + search(n - 1)
/// }
///
/// # #[cfg(not(feature = "serial"))] {
/// let cancel = Cancel::new();
/// let from_elsewhere = cancel.clone();
/// std::thread::spawn(move || from_elsewhere.cancel()); // as a Ctrl-C handler would
/// // This one would take years.
/// assert_eq!(satin::run_cancellable(&cancel, || search(60)), Err(Cancelled));
/// # }
/// assert_eq!(search(10), 1024);
/// ```
pub use satin_runtime::worker::{Cancel, Cancelled, run_cancellable};

/// # Example
/// The best that a search has found in the time that there was:
///
/// ```
/// use std::time::Duration;
/// use satin::{Max, bound, run_timeout, spawnable};
///
/// bound! { static BEST: Max<u64>; }
///
/// /// Would see 2^60 leaves.
/// #[spawnable]
/// fn search(depth: u32, n: u64) {
///     BEST.offer(n % 1000);
///     if depth < 60 {
///         search(depth + 1, 2 * n);
///         search(depth + 1, 2 * n + 1);
///     }
/// }
///
/// # #[cfg(not(feature = "serial"))] {
/// let late = run_timeout(Duration::from_millis(50), || search(0, 1)).unwrap_err();
/// assert_eq!(late.after, Duration::from_millis(50));
/// println!("{late}, but found {:?}", BEST.get());
/// # }
/// ```
pub use satin_runtime::worker::{TimedOut, run_timeout};

/// # Example
/// ```
/// #[satin::spawnable]
/// fn steps(many: u64) -> u64 {
///     let mut sum = 0;
///     for step in 0..many {
///         sum += step;
///         if step % 1_000_000 == 0 {
///             satin::cancellation_point();
///         }
///     }
///     sum
/// }
///
/// # #[cfg(not(feature = "serial"))] {
/// let hundred_ms = std::time::Duration::from_millis(100);
/// assert!(satin::run_timeout(hundred_ms, || steps(1 << 60)).is_err());
/// # }
/// assert_eq!(steps(10), 45);
/// ```
pub use satin_runtime::worker::cancellation_point;

/// # Example
/// ```
/// satin::wait_for_nodes(); // as many as `SATIN_NODES` says
/// println!("{} nodes", satin::node().nodes);
/// ```
pub use satin_runtime::worker::wait_for_nodes;

/// # Example
/// ```
/// # #[satin::spawnable]
/// # fn fib(n: u32) -> u64 {
/// #     if n < 2 { return n.into(); }
/// #     fib(n - 1) + fib(n - 2)
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), satin::BuildError> {
/// let pool = satin::builder().threads(2).build()?;
/// let result: satin::Spawned<u64> = pool.spawn(|| fib(12));
/// assert_eq!(result.await, 144);
/// # Ok(())
/// # }
/// ```
pub use satin_runtime::worker::Spawned;

/// Runs `main` as a root job of the pool that a call from here would go to, and gives a future of its result. No thread waits: `main`
/// runs on a worker, the spawnable functions and parallel loops that it calls are spread over all workers of all nodes, and the future's waker
/// is called at the end. Any executor will do; as [`Satin::spawn`], for the pool of [`macro@main`] and [`run`].
///
/// ```
/// # #[satin::spawnable]
/// # fn fib(n: u32) -> u64 {
/// #     if n < 2 { return n.into(); }
/// #     fib(n - 1) + fib(n - 2)
/// # }
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() {
///     let (a, b) = tokio::join!(satin::spawn_async(|| fib(10)), satin::spawn_async(|| fib(20)));
///     assert_eq!((a, b), (55, 6765));
/// }
/// ```
///
/// `main` should leave waiting to the caller: while it blocks on something else than a spawnable function, its worker does nothing. Its calls
/// run one after the other. The root job begins whether the future is polled or not, and dropping the future does not stop it. When its node dies
/// the job is lost, as its caller is; jobs of it that were on other nodes that die are done again, as those of any root job.
///
/// # Panics
/// If the pool has ended. The future panics with the panic of `main`.
pub fn spawn_async<R: Send + 'static>(main: impl FnOnce() -> R + Send + 'static) -> Spawned<R> {
    worker::spawn(main)
}

/// # Example
/// A function that makes a part of a flow:
///
/// ```
/// use satin::{Flow, Handle, flow, rw, spawnable, task};
///
/// #[spawnable]
/// fn double(n: &mut u64) {
///     *n *= 2;
/// }
///
/// fn double_thrice<'g>(g: &Flow<'g>, n: Handle<'g, u64>) {
///     for _ in 0..3 {
///         task!(g, double(rw(n)));
///     }
/// }
///
/// let n = flow!(|g| {
///     let n = g.data(1);
///     double_thrice(g, n);
///     if *g.get(n) == 8 {
///         double_thrice(g, n);
///     }
///     g.take(n)
/// });
/// assert_eq!(n, 64);
/// ```
pub use satin_runtime::worker::Flow;

/// # Example
/// ```
/// use satin::{Handle, flow, rw, spawnable, task};
///
/// #[spawnable]
/// fn push(all: &mut Vec<u32>, n: u32) {
///     all.push(n);
/// }
///
/// let all = flow!(|g| {
///     let all: Handle<Vec<u32>> = g.data(Vec::new());
///     for n in 0..3 {
///         task!(g, push(rw(all), n)); // each waits for the one before
///     }
///     g.take(all)
/// });
/// assert_eq!(all, [0, 1, 2]);
/// ```
pub use satin_runtime::worker::Handle;

/// # Example
/// ```
/// use satin::{Many, flow, many, spawnable, task};
///
/// #[spawnable]
/// fn largest(all: &Many<u64>) -> Option<u64> {
///     all.iter().copied().max()
/// }
///
/// let largest = flow!(|g| {
///     let all = [3, 1, 4].map(|n| g.data(n));
///     let largest = task!(g, largest(many(all)));
///     g.take(largest)
/// });
/// assert_eq!(largest, Some(4));
/// ```
pub use satin_runtime::worker::{Many, many};

/// # Example
/// ```
/// use satin::flow;
///
/// let length = flow!(|g| {
///     let text = g.data("to be".to_owned());
///     let made: satin::Made<String> = g.get(text); // lends, waits if it must
///     made.len()
/// });
/// assert_eq!(length, 5);
/// ```
pub use satin_runtime::worker::Made;

/// # Example
/// ```
/// use satin::{flow, r, rw, spawnable, task};
///
/// #[spawnable]
/// fn add(to: &mut f64, what: &f64) {
///     *to += what;
/// }
///
/// let sum = flow!(|g| {
///     let (a, b) = (g.data(1.0), g.data(2.0));
///     task!(g, add(rw(a), r(b)));
///     task!(g, add(rw(b), r(a))); // reads what the first has made
///     g.take_all((a, b))
/// });
/// assert_eq!(sum, (3.0, 5.0));
/// ```
pub use satin_runtime::worker::{r, rw};

/// # Example
/// Data of your own to which tasks add:
///
/// ```
/// use satin::{Additive, acc, flow, spawnable, task};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Default, Serialize, Deserialize)]
/// struct Mean {
///     sum: f64,
///     count: u64,
/// }
///
/// impl Additive for Mean {
///     fn nothing() -> Mean {
///         Mean::default()
///     }
///     fn add(&mut self, more: &Mean) {
///         self.sum += more.sum;
///         self.count += more.count;
///     }
/// }
///
/// #[spawnable]
/// fn measure(mean: &mut Mean, value: f64) {
///     mean.sum += value;
///     mean.count += 1;
/// }
///
/// let mean = flow!(|g| {
///     let mean = g.data(Mean::nothing());
///     for value in [1.0, 2.0, 6.0] {
///         task!(g, measure(acc(mean), value));
///     }
///     g.take(mean)
/// });
/// assert_eq!(mean.sum / mean.count as f64, 3.0);
/// ```
pub use satin_runtime::worker::Additive;

/// # Example
/// ```
/// use satin::{acc, flow, spawnable, task};
///
/// #[spawnable]
/// fn divisors_below(sum: &mut u64, n: u64, most: u64) {
///     *sum += (1..most).filter(|d| n.is_multiple_of(*d)).sum::<u64>();
/// }
///
/// let sum = flow!(|g| {
///     let sum = g.data(0);
///     for n in [6, 28, 496] {
///         task!(g, divisors_below(acc(sum), n, n)); // all three at once
///     }
///     g.take(sum)
/// });
/// assert_eq!(sum, 6 + 28 + 496);
/// ```
pub use satin_runtime::worker::acc;

// For the command `satin`, the benches and the tests; no promise holds here between releases.
#[doc(hidden)]
pub use satin_runtime::{data, job, net, observe, worker};

#[doc(hidden)]
pub use satin_runtime::private as __private;

/// The code in the README and in the pages of the book compiles, and does what it says. A test (`satin-cli/tests/book.rs`) looks
/// that no page with code is left out.
#[cfg(all(doctest, not(feature = "serial")))]
mod documents {
    #[doc = include_str!("../docs/src/loops.md")]
    mod loops {}
    #[doc = include_str!("../docs/src/flows.md")]
    mod flows {}
    #[doc = include_str!("../docs/src/coming-from-rayon.md")]
    mod coming_from_rayon {}
    #[doc = include_str!("../docs/src/when-every-machine-dies.md")]
    mod when_every_machine_dies {}
    #[doc = include_str!("../docs/src/cancel-and-limits.md")]
    mod cancel_and_limits {}
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/src/first-program.md")]
    mod first_program {}
    #[doc = include_str!("../docs/src/forms-of-spawn.md")]
    mod forms_of_spawn {}
    #[doc = include_str!("../docs/src/arguments.md")]
    mod arguments {}
    #[doc = include_str!("../docs/src/speculation.md")]
    mod speculation {}
    #[doc = include_str!("../docs/src/shared-values-and-bounds.md")]
    mod shared_values_and_bounds {}
    #[doc = include_str!("../docs/src/why-is-it-not-parallel.md")]
    mod why_is_it_not_parallel {}
    #[doc = include_str!("../docs/src/coming-from-java-satin.md")]
    mod coming_from_java_satin {}
    #[doc = include_str!("../docs/src/coming-from-mpi.md")]
    mod coming_from_mpi {}
    #[doc = include_str!("../docs/src/coming-from-ray-and-dask.md")]
    mod coming_from_ray_and_dask {}
    #[doc = include_str!("../docs/src/coming-from-openmp-and-starpu.md")]
    mod coming_from_openmp_and_starpu {}
}

/// # Example
/// ```
/// #[derive(clap::Parser)]
/// struct Cli {
///     depth: u32,
///     #[command(flatten)]
///     satin: satin::Args,
/// }
///
/// let cli: Cli = clap::Parser::parse_from(["program", "12", "--threads", "2"]);
/// assert_eq!(satin::run(cli.satin, || satin::node().threads), 2);
/// # assert_eq!(cli.depth, 12);
/// ```
#[cfg(feature = "clap")]
pub use satin_runtime::config::Args;

/// The items that most programs need: `use satin::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Satin, Shared, bound, call, flow, par_chunks, par_map, par_reduce, r, rw, seq, spawn,
        spawnable, sync, task,
    };
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
/// to its calls of spawnable functions, and its other effects may happen again. Asked to leave by SIGTERM, Ctrl-C or the
/// end of its terminal, a node hands over its jobs and exits with code 0; asked twice, it goes at once.
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
