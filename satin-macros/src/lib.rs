//! The macros of [satin](https://docs.rs/satin): use them through that crate.
//!
//! Expansions, and why they are safe, are explained in this crate's `README.md`.

mod bound;
mod flow;
mod in_place;
mod loops;
mod main_attribute;
mod spawnable;
mod task;

use proc_macro::TokenStream;

use in_place::{InPlace, Standing};
use loops::LoopKind;

/// Makes the calls of a function to itself run in parallel, on every core of every machine of the pool.
///
/// ```
/// #[satin::spawnable]
/// fn fib(n: u32) -> u64 {
///     if n < 2 {
///         return n.into();
///     }
///     let x = fib(n - 1); // spawned: may run here, on another core, or at another site
///     let y = fib(n - 2); // spawned
///     satin::sync!(); // from here on x and y are values
///     x + y
/// }
/// assert_eq!(fib(20), 6765);
/// ```
///
/// The function keeps its signature. Called from ordinary code it runs as a root job and blocks for the result.
///
/// # Which calls spawn
/// Calls to itself (`fib(..)`; in methods `self.solve(..)` and `Self::solve(..)`), and every call in [`spawn!`]. A call
/// in tail position is a plain call. Any other call of another spawnable function is an ordinary nested call, which
/// waits: it is warned of once at run time.
///
/// # Where a spawned call may stand
/// In the function's body, and in any block, loop, `if` or `match` in it:
///
/// | form | what happens at the sync |
/// | --- | --- |
/// | `let x = f(..);` `let x: T = 1 + f(..);` `let (a, b) = f(..);` `let Some(x) = f(..) else { .. };` | the variables become the value; the rest of the expression runs at the sync |
/// | `x = f(..);` `v[i] = f(..);` `s.field = f(..);` | the place is assigned; an index is evaluated at the spawn |
/// | `x += f(..);` and the other compound assignments | applied in spawn order |
/// | `v.push(f(..));` `map.insert(k, f(..));`, a method call on a place | called in spawn order; other arguments are evaluated at the spawn |
/// | `f(..);` | waits |
/// | `xs.iter().map(\|x\| f(x)).collect()`, `.sum()`, `.min()`, `.max()`, `.fold(..)`, .. | filled in order |
/// | `f(a) + f(b)`, `(f(a), f(b))`, `Node { l: f(a), r: f(b) }`, `max(f(a), f(b))` | all are spawned, and synced there |
/// | any of these with `?`: `let x = f(..)?;` | the first failure aborts the siblings and is returned |
///
/// A loop that spawns waits after it, not in it:
///
/// ```
/// #[satin::spawnable]
/// fn leaves(depth: u32, width: u32) -> u64 {
///     if depth == 0 {
///         return 1;
///     }
///     let mut total = 0;
///     for _ in 0..width {
///         total += leaves(depth - 1, width);
///     }
///     total // mentions a place that the children write: a sync is implied
/// }
/// assert_eq!(leaves(3, 4), 64);
/// ```
///
/// # When children are waited for
/// A sync stands at [`sync!`]; before the first statement that mentions a spawned variable, a place that a child will
/// write, or a variable lent by `&mut`; and at every way out of the function. A program that would read too early does
/// not compile.
///
/// # Arguments and results
/// `T`, `&T`, `&[T]`, `&str`, `&Path`, `&mut T` and `&mut [T]`, where `T` is
/// `Serialize + DeserializeOwned + Send + 'static` (and `Sync` behind a `&`). On one machine nothing is copied. Results
/// are owned. Functions cannot be generic.
///
/// Sequences of numbers, and of types that derive `bytemuck::Pod` (plain data), travel as they lie in memory: see `satin::plain!`.
///
/// # Methods
/// On an inherent `impl` block every method with `#[spawn]` becomes a job:
///
/// ```
/// # use serde::{Serialize, Deserialize};
/// use satin::{spawn, spawnable};
///
/// #[derive(Serialize, Deserialize)]
/// struct Tree {
///     value: u64,
///     children: Vec<Tree>,
/// }
///
/// #[spawnable]
/// impl Tree {
///     #[spawn]
///     fn sum(&self) -> u64 {
///         let mut total = self.value;
///         for child in &self.children {
///             total += spawn!(child.sum());
///         }
///         total
///     }
/// }
/// # let leaf = |value| Tree { value, children: vec![] };
/// # assert_eq!(Tree { value: 1, children: vec![leaf(2), leaf(3)] }.sum(), 6);
/// ```
///
/// # Options
/// * `#[spawnable(sequential_if = n < 20)]`: where the condition holds, runs the sequential twin (see [`seq!`]).
/// * `#[spawnable(order = program)]`: the children of a loop that a worker runs itself run as the program spawns them.
///   So they do wherever results are more than added up, or the body has a `?` or calls a method of a static such as a
///   bound; elsewhere, in a loop that adds up unsigned numbers, the last child runs first, which is about a tenth faster
///   where jobs are tiny. Say it where the bound is looked at in another function. `order = last` is the opposite.
/// * `#[spawnable(name = "fibonacci")]`: the name by which nodes know the function, if two would have the same.
///
/// Methods take them on `#[spawn(..)]`.
#[proc_macro_attribute]
pub fn spawnable(options: TokenStream, item: TokenStream) -> TokenStream {
    if SERIAL {
        spawnable::serial(item.into()).into()
    } else {
        spawnable::spawnable(options.into(), item.into()).into()
    }
}

/// Makes every node of a pool run the same program: the master runs `main`, the others serve as workers until it ends.
///
/// ```no_run
/// #[satin::main]
/// fn main() {
///     println!("{} threads", satin::node().threads);
/// }
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    if SERIAL {
        item
    } else {
        main_attribute::main(options.into(), item.into()).into()
    }
}

/// Spawns a call of another spawnable function, or of the same on another receiver: `spawn!(even(n - 1))`,
/// `spawn!(left.sum())`.
///
/// Works in a [`macro@spawnable`] function, wherever a call to itself would spawn. It takes the function by its name in
/// the same module, or by its path (`spawn!(module::even(n))`): a `use` of the function alone does not bring along what
/// the macro has made beside it.
///
/// ```
/// use satin::{spawn, spawnable};
///
/// /// From each even number two ways lead down to the next.
/// #[spawnable]
/// fn even(n: u32) -> u64 {
///     if n < 2 { u64::from(n == 0) } else { spawn!(odd(n - 1)) + even(n - 2) }
/// }
///
/// #[spawnable]
/// fn odd(n: u32) -> u64 {
///     if n < 1 { 0 } else { spawn!(even(n - 1)) }
/// }
///
/// assert_eq!(even(10), 32);
/// ```
#[proc_macro]
pub fn spawn(call: TokenStream) -> TokenStream {
    if SERIAL { call } else { outside("spawn!(..)") }
}

/// Calls a spawnable function as a child that runs here and now: `call!(fib(n - 1))`.
///
/// Works in a [`macro@spawnable`] function, in closures and beside `&&` too, where no call may spawn.
///
/// ```
/// use satin::{call, spawnable};
///
/// /// Is there a way through the maze? The second half is only looked at if there is none through the first.
/// #[spawnable]
/// fn leads_out(maze: &[bool]) -> bool {
///     match maze {
///         [] => false,
///         [open] => *open,
///         _ => {
///             let (left, right) = maze.split_at(maze.len() / 2);
///             call!(leads_out(left)) || call!(leads_out(right))
///         }
///     }
/// }
///
/// assert!(leads_out(&[false, false, true, false]));
/// ```
#[proc_macro]
pub fn call(call: TokenStream) -> TokenStream {
    if SERIAL { call } else { outside("call!(..)") }
}

/// Runs a spawnable function, and everything below it, as plain Rust without any spawn: the baseline of measurements.
///
/// ```
/// # #[satin::spawnable] fn fib(n: u32) -> u64 { if n < 2 { n.into() } else { fib(n - 1) + fib(n - 2) } }
/// assert_eq!(satin::seq!(fib(20)), fib(20));
/// ```
#[proc_macro]
pub fn seq(call: TokenStream) -> TokenStream {
    if SERIAL {
        call
    } else {
        spawnable::sequential(call.into()).into()
    }
}

/// Calls a spawnable function for each element of a slice, on all workers of all nodes, and gives the results in the order of the elements.
///
/// ```
/// #[satin::spawnable]
/// fn square(x: &u64) -> u64 {
///     x * x
/// }
///
/// assert_eq!(satin::par_map!(&[1, 2, 3], square), [1, 4, 9]);
/// ```
///
/// The first argument is a slice, `&[T]` with a `T` that is `Sync`, or what is coerced to one, such as a `&Vec<T>`. The second is a
/// [`macro@spawnable`] function by its name (by its path, if it is in another module), which gets a `&T`; or a closure that calls one, with
/// more arguments or other ones, as in `|n| fib(*n)`:
///
/// ```
/// use satin::{Shared, par_map, spawnable};
///
/// #[spawnable]
/// fn count(word: &str, text: &Shared<String>) -> usize {
///     text.matches(word).count()
/// }
///
/// let text = Shared::new("to be or not to be".to_owned());
/// let words = ["to".to_owned(), "or".to_owned()];
/// assert_eq!(par_map!(&words, |word| count(word, &text)), [2, 1]);
/// ```
///
/// # What runs where
/// In ordinary code the loop is a root job, which the caller waits for; in the body of a spawnable function it is a child of that job, and
/// is waited for where it stands. The range of elements is halved down to single elements, each half is a job, and a worker without
/// work takes the largest that is left: there is no grain to choose, and an element that nobody takes costs some nanoseconds more than the
/// call. Elements of less than 100 ns are better taken in chunks ([`par_chunks!`]).
///
/// Elements are borrowed where they are. When a range of elements goes to another node, the arguments of their calls are serialized: what
/// all calls need, and is large, is passed as a `Shared`. The arguments of a call are evaluated where the element runs, or where its
/// range leaves, and perhaps more than once; they should have no effects.
///
/// # Failures
/// The results are collected whatever they are: of a function that returns a `Result` a `Vec<Result<..>>`, and no element is left out
/// because another failed. `.into_iter().collect::<Result<Vec<_>, _>>()` gives the first error. A loop of spawns with a `?` stops the others
/// at the first failure (see [`macro@spawnable`]).
///
/// # Panics
/// Panics with the panic of a call; elements that have not begun are not run then.
#[proc_macro]
pub fn par_map(arguments: TokenStream) -> TokenStream {
    in_place(InPlace::Loop(LoopKind::Map), arguments)
}

/// Calls a spawnable function for each chunk of so many elements of a slice, on all workers of all nodes, and gives the results in order.
///
/// ```
/// #[satin::spawnable]
/// fn sum(numbers: &[u64]) -> u64 {
///     numbers.iter().sum()
/// }
///
/// let numbers: Vec<u64> = (0..10).collect();
/// assert_eq!(satin::par_chunks!(&numbers, 4, sum), [6, 22, 17]);
/// ```
///
/// As [`par_map!`], for elements of which each is too little work for a call, and for functions that want several: the function takes a
/// `&[T]`. The last chunk may be shorter. Chunks of numbers travel as they lie in memory.
///
/// # Panics
/// If the size is zero; and as [`par_map!`].
#[proc_macro]
pub fn par_chunks(arguments: TokenStream) -> TokenStream {
    in_place(InPlace::Loop(LoopKind::Chunks), arguments)
}

/// Calls a spawnable function for each element of a slice, on all workers of all nodes, and puts the results together by another one;
/// `None` if there are no elements.
///
/// ```
/// use satin::{par_reduce, spawnable};
///
/// #[spawnable]
/// fn letters(word: &str) -> usize {
///     word.chars().count()
/// }
///
/// #[spawnable]
/// fn larger(a: usize, b: usize) -> usize {
///     a.max(b)
/// }
///
/// let words = ["to".to_owned(), "question".to_owned(), "be".to_owned()];
/// assert_eq!(par_reduce!(&words, |word| letters(word), larger), Some(8));
/// ```
///
/// With a size as the second argument the function is called for chunks, as in [`par_chunks!`]:
///
/// ```
/// # use satin::{par_reduce, spawnable};
/// #[spawnable]
/// fn sum(numbers: &[u64]) -> u64 {
///     numbers.iter().sum()
/// }
///
/// #[spawnable]
/// fn add(a: u64, b: u64) -> u64 {
///     a + b
/// }
///
/// let numbers: Vec<u64> = (0..10_000).collect();
/// assert_eq!(par_reduce!(&numbers, 1000, sum, add), Some(49_995_000));
/// ```
///
/// The last argument is a spawnable function of two results by its name; `a` comes before `b`. It should be associative. Which results are
/// put together depends on the number of elements alone, so a sum of floats is the same in every run, on any number of nodes. The rest is
/// as in [`par_map!`].
///
/// # Panics
/// If the size is zero; and as [`par_map!`].
#[proc_macro]
pub fn par_reduce(arguments: TokenStream) -> TokenStream {
    in_place(InPlace::Loop(LoopKind::Reduce), arguments)
}

/// Runs sequential code whose calls become tasks: each waits for the data that it reads, and for nothing else.
///
/// ```
/// use satin::{flow, r, rw, spawnable, task};
///
/// #[spawnable]
/// fn numbers(from: u64) -> Vec<u64> {
///     (from..from + 1000).collect()
/// }
///
/// #[spawnable]
/// fn add(sum: &mut u64, numbers: &[u64]) {
///     *sum += numbers.iter().sum::<u64>();
/// }
///
/// let sum = flow!(|g| {
///     let sum = g.data(0);
///     for part in 0..4 {
///         let part = task!(g, numbers(part * 1000)); // all at the same time
///         task!(g, add(rw(sum), r(part))); // each when its numbers are there, in this order
///     }
///     g.take(sum) // waits
/// });
/// assert_eq!(sum, 7_998_000);
/// ```
///
/// The closure runs once, in order; its [`task!`]s are made, not waited for. Which task waits for which follows from what each reads and
/// changes, as their functions' signatures say: `&T` reads, `&mut T` reads and changes, a result is new. The values are those that the same code
/// has when each call is made at once, bit for bit, on any number of nodes.
///
/// The closure gets a [`Flow`], which has `data` to bring values in, `get` to look at one, `take` and `take_all` to have them. Handles
/// cannot leave the closure. In ordinary code a flow is a root job, in the body of a spawnable function a child of that job.
///
/// # Panics
/// Panics with the panic of the closure or of a task; tasks that have not begun are not run then.
///
/// [`Flow`]: https://docs.rs/satin/latest/satin/struct.Flow.html
#[proc_macro]
pub fn flow(arguments: TokenStream) -> TokenStream {
    in_place(InPlace::Flow, arguments)
}

/// A call in a [`flow!`], as a task: `task!(g, f(rw(a), r(b), 3))` for a spawnable `fn f(a: &mut A, b: &B, n: u32)`.
///
/// ```
/// use satin::{Many, flow, many, r, rw, spawnable, task};
///
/// #[spawnable]
/// fn word(n: usize) -> String {
///     "x".repeat(n)
/// }
///
/// #[spawnable]
/// fn append(text: &mut String, more: &str) {
///     text.push_str(more);
/// }
///
/// #[spawnable]
/// fn lengths(texts: &Many<String>) -> usize {
///     texts.iter().map(String::len).sum()
/// }
///
/// let all = flow!(|g| {
///     let (a, b) = (task!(g, word(3)), task!(g, word(4)));
///     task!(g, append(rw(a), r(b)));
///     let all = task!(g, lengths(many([a, b])));
///     g.take(all)
/// });
/// assert_eq!(all, 11);
/// ```
///
/// What the function borrows is named by a handle: `r(handle)` for a `&T`, `rw(handle)` for a `&mut T` (whose `T` must be `Clone`, as
/// others may still read what was there) or `acc(handle)` to add to it, `many(handles)` for a `&Many<T>`. All other arguments are values. The result is a handle of what the
/// function returns.
#[proc_macro]
pub fn task(arguments: TokenStream) -> TokenStream {
    task::expand(arguments.into(), SERIAL).into()
}

fn in_place(form: InPlace, arguments: TokenStream) -> TokenStream {
    let standing = match SERIAL {
        true => Standing::Sequential(""),
        false => Standing::Outside,
    };
    form.expand(arguments.into(), standing)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Declares bounds: statics whose values only improve, for branch and bound.
///
/// ```
/// use satin::{Min, spawnable};
///
/// satin::bound! {
///     /// The least sum so far.
///     pub static BEST: Min<u32>;
/// }
///
/// /// Picks one number of each row; the sum is to be small.
/// #[spawnable]
/// fn least(rows: &[Vec<u32>], sum: u32) -> Option<u32> {
///     if BEST.prunes(&sum) {
///         return None; // somebody, somewhere, has found better
///     }
///     let Some((row, rest)) = rows.split_first() else {
///         BEST.offer(sum);
///         return Some(sum);
///     };
///     let mut sums = Vec::new();
///     for number in row {
///         sums.push(least(rest, sum + number));
///     }
///     sums.into_iter().flatten().min()
/// }
///
/// let rows = [vec![5, 3, 8], vec![2, 7], vec![9, 4, 6]];
/// assert_eq!(least(&rows, 0), Some(9));
/// assert_eq!(BEST.get(), Some(9));
/// ```
///
/// The type says what better means: [`Min`], [`Max`], [`Or`] or [`Union`], [`MinWith`] or [`MaxWith`] with a solution, or a
/// [`Lattice`] of your own. A bound has `offer`, `get` and `prunes`; see [`Bound`].
///
/// A job that finds something offers it, and jobs everywhere see it soon. Each root job starts the bound afresh.
///
/// # Why `Min` does not prune ties
/// The offer of a job survives the job. If the job's node dies, the job is done again, and its own first offer stands.
/// Were jobs left out that can only equal the best, the job would not find its solution a second time, and no job would
/// have it. So `Min` leaves out what is strictly worse, and the results of the calls are right on their own account.
/// [`MinWith`] keeps the solution beside its cost: it is safe, so ties are left out too, and the answer is the bound's
/// value in the end.
///
/// ```
/// # use satin::{MinWith, spawnable};
/// satin::bound! {
///     static CHEAPEST: MinWith<u32, Vec<usize>>;
/// }
///
/// #[spawnable]
/// fn search(rows: &[Vec<u32>], sum: u32, picked: Vec<usize>) {
///     if CHEAPEST.prunes(&sum) {
///         return;
///     }
///     let Some((row, rest)) = rows.split_first() else {
///         CHEAPEST.offer(sum, picked);
///         return;
///     };
///     for (place, number) in row.iter().enumerate() {
///         let picked = picked.iter().copied().chain([place]).collect();
///         search(rest, sum + number, picked);
///     }
/// }
///
/// search(&[vec![5, 3, 8], vec![2, 7], vec![9, 4, 6]], 0, vec![]);
/// assert_eq!(CHEAPEST.get(), Some((9, vec![1, 0, 1])));
/// ```
///
/// [`Min`]: https://docs.rs/satin/latest/satin/struct.Min.html
/// [`Max`]: https://docs.rs/satin/latest/satin/struct.Max.html
/// [`Or`]: https://docs.rs/satin/latest/satin/struct.Or.html
/// [`Union`]: https://docs.rs/satin/latest/satin/struct.Union.html
/// [`MinWith`]: https://docs.rs/satin/latest/satin/struct.MinWith.html
/// [`MaxWith`]: https://docs.rs/satin/latest/satin/struct.MaxWith.html
/// [`Lattice`]: https://docs.rs/satin/latest/satin/trait.Lattice.html
/// [`Bound`]: https://docs.rs/satin/latest/satin/struct.Bound.html
#[proc_macro]
pub fn bound(bounds: TokenStream) -> TokenStream {
    bound::bound(bounds.into()).into()
}

/// Waits for every child that this invocation has spawned.
///
/// Works in a [`macro@spawnable`] function. It is implied wherever a result is needed, so it is written for the reader,
/// or to bound how many children a loop has under way.
///
/// ```
/// use satin::{spawnable, sync};
///
/// /// Sorts both halves, which must be done before they are merged.
/// #[spawnable]
/// fn sort(numbers: &mut [u32]) {
///     if numbers.len() > 1 {
///         let (left, right) = numbers.split_at_mut(numbers.len() / 2);
///         sort(left);
///         sort(right);
///         sync!();
///         numbers.sort(); // fast, where two halves are sorted
///     }
/// }
///
/// let mut numbers = [3, 1, 2];
/// sort(&mut numbers);
/// assert_eq!(numbers, [1, 2, 3]);
/// ```
#[proc_macro]
pub fn sync(_nothing: TokenStream) -> TokenStream {
    if SERIAL {
        quote::quote!(()).into()
    } else {
        outside("sync!()")
    }
}

/// The feature `serial`: every macro leaves the plain sequential program.
const SERIAL: bool = cfg!(feature = "serial");

fn outside(what: &str) -> TokenStream {
    let message = format!(
        "`{what}` works in a `#[spawnable]` function only, and there not inside another macro"
    );
    syn::Error::new(proc_macro2::Span::call_site(), message)
        .into_compile_error()
        .into()
}
