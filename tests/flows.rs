//! Flows in one process: what their tasks compute is what the program text says.

#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use common::{give_way, outside};
use satin::{
    Additive, Flow, Handle, Many, Satin, Shared, acc, flow, job::Back, many, r, rw, spawnable,
    sync, task,
};

fn on(threads: usize, run: impl FnOnce()) {
    let pool = satin::builder().threads(threads).build().expect("a pool");
    pool.run(run);
}

#[spawnable]
fn number(n: u64) -> u64 {
    n
}

#[spawnable]
fn mix(to: &mut u64, with: &u64) {
    *to = to.wrapping_mul(31).wrapping_add(*with);
}

#[spawnable]
fn sum_of(all: &Many<u64>) -> u64 {
    all.iter().copied().fold(0, u64::wrapping_add)
}

#[spawnable]
fn extend(list: &mut [u64], by: &str) {
    for (at, n) in list.iter_mut().enumerate() {
        *n += (by.len() + at) as u64;
    }
}

#[spawnable]
fn text(n: usize) -> String {
    "a".repeat(n)
}

#[test]
fn each_task_waits_for_what_it_reads() {
    for threads in [1, 2, 4] {
        on(threads, || {
            let got = flow!(|g| {
                let all: Vec<Handle<u64>> = (0..100).map(|n| task!(g, number(n))).collect();
                for round in 1..20 {
                    for at in 0..all.len() {
                        let other = all[(at * 7 + round) % all.len()];
                        if (at * 7 + round) % all.len() != at {
                            task!(g, mix(rw(all[at]), r(other)));
                        }
                    }
                }
                let sum = task!(g, sum_of(many(all.iter().copied())));
                (g.take(sum), g.take_all(all))
            });
            let mut all: Vec<u64> = (0..100).collect();
            for round in 1..20 {
                for at in 0..all.len() {
                    let other = (at * 7 + round) % all.len();
                    if other != at {
                        all[at] = all[at].wrapping_mul(31).wrapping_add(all[other]);
                    }
                }
            }
            let sum = all.iter().copied().fold(0, u64::wrapping_add);
            assert_eq!(got, (sum, all));
        });
    }
}

#[spawnable]
fn factorial(n: u64) -> u64 {
    flow!(|g| {
        let product = g.data(1);
        for factor in 1..=n {
            let factor = task!(g, number(factor));
            task!(g, times(rw(product), r(factor)));
        }
        g.take(product)
    })
}

#[spawnable]
fn times(product: &mut u64, factor: &u64) {
    *product *= factor;
}

#[spawnable]
fn sum_of_factorials(n: u64) -> u64 {
    if n == 0 {
        return 0;
    }
    let rest = sum_of_factorials(n - 1);
    let own = satin::call!(factorial(n));
    rest + own
}

#[test]
fn a_flow_stands_in_a_job_and_its_tasks_may_have_flows() {
    on(2, || {
        assert_eq!(sum_of_factorials(10), 4_037_913);
        let all = flow!(|g| {
            let all: Vec<_> = (0..10).map(|n| task!(g, factorial(n))).collect();
            g.take_all(all)
        });
        assert_eq!(all.iter().sum::<u64>(), 1 + 409_113);
    });
}

#[test]
fn arguments_without_names_are_arguments() {
    #[spawnable]
    fn nothing(_: &mut u64, _: &u64, _: u64) {}
    on(1, || {
        let n = flow!(|g| {
            let (a, b) = (g.data(1), g.data(2));
            task!(g, nothing(rw(a), r(b), 3));
            g.take(a)
        });
        assert_eq!(n, 1);
    });
}

#[test]
fn slices_and_text_are_borrowed_from_what_owns_them() {
    on(2, || {
        let list = flow!(|g| {
            let list = g.data(vec![1, 2, 3]);
            let text = task!(g, text(10));
            task!(g, extend(rw(list), r(text)));
            g.take(list)
        });
        assert_eq!(list, [11, 13, 15]);
    });
}

fn rounds<'g>(g: &Flow<'g>, n: Handle<'g, u64>, many: u32) {
    for _ in 0..many {
        task!(g, mix(rw(n), r(n)));
    }
}

#[test]
fn one_handle_may_be_read_and_changed_by_a_task() {
    on(2, || {
        let n = flow!(|g| {
            let n = g.data(1);
            rounds(g, n, 3);
            assert_eq!(*g.get(n), 32 * 32 * 32);
            g.take(n)
        });
        assert_eq!(n, 32 * 32 * 32);
    });
}

static COPIES: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Counted(u64);

impl Clone for Counted {
    fn clone(&self) -> Counted {
        COPIES.fetch_add(1, Ordering::Relaxed);
        Counted(self.0)
    }
}

#[spawnable]
fn count(up: &mut Counted) {
    up.0 += 1;
}

#[test]
fn what_nobody_reads_any_more_is_changed_in_place() {
    on(2, || {
        let (n, seen) = flow!(|g| {
            let n = g.data(Counted(0));
            for _ in 0..1000 {
                task!(g, count(rw(n)));
            }
            let seen = g.get(n);
            assert_eq!(COPIES.load(Ordering::Relaxed), 0);
            task!(g, count(rw(n)));
            (g.take(n).0, seen.0)
        });
        assert_eq!((n, seen), (1001, 1000));
        assert_eq!(COPIES.load(Ordering::Relaxed), 1);
    });
}

static MORE_COPIES: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Tile(u64);

impl Clone for Tile {
    fn clone(&self) -> Tile {
        MORE_COPIES.fetch_add(1, Ordering::Relaxed);
        Tile(self.0)
    }
}

#[spawnable]
fn add_tile(to: &mut Tile, what: &Tile) {
    to.0 += what.0;
}

#[test]
fn what_is_taken_out_is_not_copied_for_tasks_that_still_read_it() {
    on(2, || {
        let tiles = flow!(|g| {
            let tiles: Vec<_> = (1..=20).map(|n| g.data(Tile(n))).collect();
            for pair in tiles.windows(2) {
                task!(g, add_tile(rw(pair[1]), r(pair[0])));
            }
            g.take_all(tiles)
        });
        assert_eq!(tiles[19].0, 210);
        assert_eq!(MORE_COPIES.load(Ordering::Relaxed), 0);
    });
}

#[spawnable]
fn fail(n: u64) -> u64 {
    assert!(n != 50, "the task with {n}");
    n
}

#[test]
fn the_panic_of_a_task_is_that_of_the_flow_and_nothing_hangs() {
    for threads in [1, 3] {
        on(threads, || {
            let run = || {
                flow!(|g| {
                    let all: Vec<_> = (0..1000).map(|n| task!(g, fail(n))).collect();
                    for pair in all.windows(2) {
                        task!(g, mix(rw(pair[0]), r(pair[1])));
                    }
                    g.take_all(all)
                })
            };
            let payload = std::panic::catch_unwind(run).expect_err("a task fails");
            let text = payload.downcast_ref::<String>().expect("its message");
            assert_eq!(text, "the task with 50");
            // The pool works on.
            assert_eq!(factorial(5), 120);
        });
    }
}

#[test]
fn the_panic_of_the_closure_ends_the_flow() {
    on(2, || {
        let run = || {
            flow!(|g| {
                for n in 0..100 {
                    task!(g, number(n));
                }
                panic!("enough");
            })
        };
        let payload = std::panic::catch_unwind(run).expect_err("it panics");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"enough"));
    });
}

#[spawnable]
fn both(a: &mut u64, b: &mut u64) {
    std::mem::swap(a, b);
}

#[test]
fn two_changes_of_one_handle_in_a_task_are_a_panic() {
    on(2, || {
        let run = |which| {
            flow!(|g| {
                let n = g.data(1);
                match which {
                    0 => task!(g, both(rw(n), rw(n))),
                    1 => task!(g, both(rw(n), acc(n))),
                    2 => task!(g, both(acc(n), rw(n))),
                    _ => task!(g, both(acc(n), acc(n))), // adds twice
                };
            });
        };
        let panics = [0, 1, 2, 3].map(|which| std::panic::catch_unwind(|| run(which)).is_err());
        assert_eq!(panics, [true, true, true, false]);
    });
}

#[test]
fn a_handle_whose_change_was_refused_holds_up_nobody() {
    on(1, || {
        let run = || {
            flow!(|g| {
                let n = g.data(1);
                let twice = || task!(g, both(rw(n), rw(n)));
                assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(twice)).is_err());
                let m = g.data(1);
                task!(g, mix(rw(m), r(n)));
                g.take(m)
            })
        };
        assert!(std::panic::catch_unwind(run).is_err());
    });
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Touchy(u64);

impl Drop for Touchy {
    fn drop(&mut self) {
        assert!(self.0 != 2 || std::thread::panicking(), "it was dropped");
    }
}

#[spawnable]
fn touch(value: &mut Touchy, n: u64) {
    value.0 += n;
    assert!(value.0 < 2, "the task");
}

#[spawnable]
fn look_at(value: &Touchy) -> u64 {
    value.0
}

#[test]
fn destructors_that_panic_hold_up_nobody() {
    for threads in [1, 2] {
        on(threads, || {
            let run = || {
                flow!(|g| {
                    let value = g.data(Touchy(0));
                    task!(g, touch(rw(value), 1));
                    task!(g, touch(rw(value), 1));
                    let seen = task!(g, look_at(r(value)));
                    task!(g, touch(rw(value), 1));
                    g.take(seen)
                })
            };
            let payload = std::panic::catch_unwind(run).expect_err("a task fails");
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"the task"));
            assert_eq!(factorial(5), 120);
        });
    }
}

#[test]
fn arguments_are_bound_when_all_have_been_evaluated() {
    on(1, || {
        let seen = flow!(|g| {
            let (sum, n) = (g.data(0), g.data(1));
            let add_one = || {
                let one = g.data(1);
                task!(g, add(rw(n), r(one)));
                7
            };
            task!(g, add_times(rw(sum), r(n), add_one()));
            g.take(sum)
        });
        assert_eq!(seen, 14);
    });
}

#[spawnable]
fn add_times(to: &mut u64, what: &u64, times: u64) {
    *to += what * times;
}

#[spawnable]
fn add_sqrt(sum: &mut f64, of: f64) {
    *sum += of.sqrt();
}

#[spawnable]
fn halve(sum: &mut f64) {
    *sum /= 2.0;
}

/// The tree of additions that the documentation promises.
fn sum_as_promised(addends: &[f64], base: f64) -> f64 {
    let mut level = addends.to_vec();
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| pair.iter().copied().reduce(|a, b| a + b).expect("a pair"))
            .collect();
    }
    base + level[0]
}

#[test]
fn what_tasks_add_is_added_in_the_same_order_whoever_runs_when() {
    let squares: Vec<f64> = (0..37)
        .map(|n| f64::from(n) * 1e3_f64.powi(n % 5))
        .collect();
    let roots: Vec<f64> = squares.iter().map(|square| square.sqrt()).collect();
    let once = sum_as_promised(&roots, 0.25) / 2.0;
    let twice = sum_as_promised(&roots[..1], once);
    for threads in [1, 2, 4] {
        on(threads, || {
            let got = flow!(|g| {
                let sum = g.data(0.25);
                for square in &squares {
                    task!(g, add_sqrt(acc(sum), *square));
                }
                task!(g, halve(rw(sum)));
                task!(g, add_sqrt(acc(sum), squares[0]));
                g.take(sum)
            });
            assert_eq!(got.to_bits(), twice.to_bits(), "{threads}: {got}, {twice}");
        });
    }
}

#[spawnable]
fn put_at(to: &mut Vec<u64>, at: usize) {
    to.resize(at + 1, 0);
    to[at] += 1;
}

#[test]
fn vectors_are_added_element_by_element() {
    on(2, || {
        let got = flow!(|g| {
            let all = g.data(vec![10, 20]);
            for at in [2, 0, 2, 1] {
                task!(g, put_at(acc(all), at));
            }
            let before = g.data(7_u64);
            task!(g, mix(acc(before), r(before))); // the task reads what was there
            (g.take(all), g.take(before))
        });
        assert_eq!(got, (vec![11, 21, 2], 14));
    });
}

/// How many there are of each kind of [`Tallied`].
static COUNTS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Knows how many of its kind there are.
#[derive(serde::Serialize, serde::Deserialize)]
struct Tallied<const KIND: usize>(u64);

impl<const KIND: usize> Tallied<KIND> {
    fn new(n: u64) -> Self {
        COUNTS[KIND].fetch_add(1, Ordering::SeqCst);
        Tallied(n)
    }

    fn count() -> u32 {
        COUNTS[KIND].load(Ordering::SeqCst)
    }
}

impl<const KIND: usize> Clone for Tallied<KIND> {
    fn clone(&self) -> Self {
        Tallied::new(self.0)
    }
}

impl<const KIND: usize> Drop for Tallied<KIND> {
    fn drop(&mut self) {
        COUNTS[KIND].fetch_sub(1, Ordering::SeqCst);
    }
}

type Addend = Tallied<0>;
type Kept = Tallied<1>;

impl Additive for Addend {
    fn nothing() -> Addend {
        Addend::new(0)
    }
    fn add(&mut self, more: &Addend) {
        self.0 += more.0;
    }
}

#[spawnable]
fn add_one(to: &mut Addend) {
    to.0 += 1;
}

#[test]
fn few_of_many_addends_are_kept() {
    let pool = satin::builder().threads(2).flow_window(4_usize).build();
    pool.expect("a pool").run(|| {
        let (sum, most) = flow!(|g| {
            let sum = g.data(Addend::new(0));
            let mut most = 0;
            for _ in 0..1000 {
                task!(g, add_one(acc(sum)));
                most = most.max(Addend::count());
            }
            (g.take(sum).0, most)
        });
        assert_eq!(sum, 1000);
        // Ten sums of different sizes, and what the tasks of the window work on.
        assert!(most <= 32, "{most} were kept");
        assert_eq!(Addend::count(), 0);
    });
}

#[spawnable]
fn next(before: &Kept) -> Kept {
    Kept::new(before.0 + 1)
}

#[test]
fn what_is_forgotten_goes_when_no_task_needs_it() {
    on(2, || {
        let last = flow!(|g| {
            let mut at = g.data(Kept::new(0));
            for _ in 0..1000 {
                let next = task!(g, next(r(at)));
                g.forget(at);
                at = next;
            }
            let last = g.get(at).0;
            // The last one, and perhaps the one that its task has not dropped yet.
            let kept = Kept::count();
            assert!(kept <= 2, "{kept} are kept");
            last
        });
        assert_eq!((last, Kept::count()), (1000, 0));
        let forgotten = std::panic::catch_unwind(|| {
            flow!(|g| {
                let at = g.data(1_u64);
                g.forget(at);
                task!(g, mix(rw(at), r(at)));
            });
        });
        assert!(forgotten.is_err());
    });
}

static OVER: AtomicU32 = AtomicU32::new(0);

#[spawnable]
fn count_over() {
    OVER.fetch_add(1, Ordering::SeqCst);
}

/// Where a number stands in memory.
#[spawnable]
fn place_of(numbers: &[u64]) -> usize {
    numbers.as_ptr().addr()
}

#[test]
fn what_is_shared_is_read_where_it_is_and_changed_as_a_copy() {
    on(2, || {
        let (shared, counted) = (Shared::new(vec![1, 2, 3]), Arc::new(vec![4, 5, 6]));
        let places = [shared.as_ptr().addr(), counted.as_ptr().addr()];
        let (seen, changed, taken) = flow!(|g| {
            let (a, b) = (g.shared(&shared), g.shared(&counted));
            let seen = [a, b].map(|handle| task!(g, place_of(r(handle))));
            task!(g, extend(rw(a), r(g.data("xy".to_owned()))));
            let changed = g.share(a);
            // Into the flow again.
            let again = g.shared(&changed);
            let place = *g.get(task!(g, place_of(r(again))));
            assert_eq!(place, changed.as_ptr().addr());
            (g.take_all(seen), changed, g.take(b))
        });
        assert_eq!(seen, places);
        assert_eq!(*changed, [3, 5, 7]);
        assert_eq!((&*shared, &*counted), (&vec![1, 2, 3], &vec![4, 5, 6]));
        assert_eq!(taken, *counted);
        assert_ne!(taken.as_ptr(), counted.as_ptr(), "who takes it has a copy");
    });
}

#[test]
fn no_more_tasks_than_the_window_holds_are_not_over() {
    for (threads, window) in [(1, 1), (1, 8), (2, 8)] {
        let builder = satin::builder().threads(threads).flow_window(window);
        builder.build().expect("a pool").run(|| {
            OVER.store(0, Ordering::SeqCst);
            flow!(|g| {
                for made in 1..=100_u32 {
                    task!(g, count_over());
                    let over = OVER.load(Ordering::SeqCst);
                    assert!(made - over <= window as u32, "{over} of {made} are over");
                }
            });
            assert_eq!(OVER.load(Ordering::SeqCst), 100);
        });
    }
    let none = satin::builder().flow_window(0_usize).build();
    let error = none.err().expect("no window").to_string();
    assert!(error.contains("flow_window"), "{error}");
}

static NOTED: AtomicU32 = AtomicU32::new(0);

#[spawnable]
fn note() {
    NOTED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn who_gets_nothing_waits_for_it() {
    on(1, || {
        flow!(|g| {
            let first = task!(g, note());
            let () = *g.get(first);
            assert_eq!(NOTED.load(Ordering::SeqCst), 1);
            let second = task!(g, note());
            g.take(second);
            assert_eq!(NOTED.load(Ordering::SeqCst), 2);
        });
    });
}

#[test]
fn more_tasks_than_the_window_holds() {
    on(2, || {
        let n = flow!(|g| {
            let n = g.data(0);
            let one = g.data(1);
            for _ in 0..200_000 {
                task!(g, add(rw(n), r(one)));
            }
            g.take(n)
        });
        assert_eq!(n, 200_000);
    });
}

#[spawnable]
fn add(to: &mut u64, what: &u64) {
    *to += what;
}

#[test]
fn a_flow_that_is_cancelled_stops() {
    #[spawnable]
    fn wait_for_ever() {
        loop {
            satin::cancellation_point();
            std::thread::yield_now();
        }
    }
    on(2, || {
        let late = satin::run_timeout(Duration::from_millis(50), || {
            flow!(|g| {
                for _ in 0..4 {
                    task!(g, wait_for_ever());
                }
            });
        });
        assert!(late.is_err());
        assert_eq!(factorial(5), 120);
    });
}

// ------------------------------------------------------------------------------------------------------ through the gate

fn pools(workers: usize) -> (Satin, Satin) {
    (outside::pool(workers), outside::pool(2))
}

/// A task with children of its own.
#[spawnable]
fn fib(n: u64) -> u64 {
    if n < 2 {
        give_way();
        return n;
    }
    let x = fib(n - 1);
    let y = fib(n - 2);
    sync!();
    x + y
}

#[spawnable]
fn smooth(block: &mut [u64], left: &[u64], right: &[u64], times: u64) -> u64 {
    give_way();
    let ends = left.last().copied().unwrap_or(1) + right.first().copied().unwrap_or(1);
    for n in block.iter_mut() {
        *n = n.wrapping_mul(3).wrapping_add(ends).wrapping_add(times);
    }
    block.iter().copied().fold(0, u64::wrapping_add)
}

#[spawnable]
fn grow(to: &mut String, by: &str, n: &u64) {
    give_way();
    to.push_str(by);
    to.push_str(&n.to_string());
}

/// All kinds of arguments; the answer is that of [`sweeps_in_order`].
#[spawnable]
fn sweeps(blocks: usize, times: u64) -> (Vec<Vec<u64>>, u64, String) {
    flow!(|g| {
        let all: Vec<Handle<Vec<u64>>> = (0..blocks).map(|b| g.data(vec![b as u64; 4])).collect();
        let none = g.data(Vec::new());
        let text = g.data("t".to_owned());
        let word = g.data("w".to_owned());
        let mut sums = Vec::new();
        for time in 0..times {
            for b in 0..blocks {
                let left = if b == 0 { none } else { all[b - 1] };
                let right = all.get(b + 1).copied().unwrap_or(none);
                sums.push(task!(g, smooth(rw(all[b]), r(left), r(right), time)));
            }
            let n = task!(g, fib(time % 10));
            task!(g, grow(rw(text), r(word), r(n)));
            sums.push(n);
        }
        let sum = task!(g, sum_of(many(sums)));
        (g.take_all(all), g.take(sum), g.take(text))
    })
}

fn sweeps_in_order(blocks: usize, times: u64) -> (Vec<Vec<u64>>, u64, String) {
    let plain_fib = |n: u64| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
    let mut all: Vec<Vec<u64>> = (0..blocks).map(|b| vec![b as u64; 4]).collect();
    let (mut sum, mut text) = (0u64, "t".to_owned());
    for time in 0..times {
        for b in 0..blocks {
            let left = if b == 0 {
                None
            } else {
                all[b - 1].last().copied()
            };
            let right = all.get(b + 1).and_then(|all| all.first().copied());
            let ends = left.unwrap_or(1) + right.unwrap_or(1);
            for n in &mut all[b] {
                *n = n.wrapping_mul(3).wrapping_add(ends).wrapping_add(time);
            }
            sum = all[b].iter().copied().fold(sum, u64::wrapping_add);
        }
        text.push_str(&format!("w{}", plain_fib(time % 10)));
        sum = sum.wrapping_add(plain_fib(time % 10));
    }
    (all, sum, text)
}

#[test]
fn tasks_may_run_on_other_nodes_which_come_and_die() {
    let right = sweeps_in_order(6, 12);
    common::travels(pools, || assert_eq!(sweeps(6, 12), right));
}

#[test]
fn a_flow_of_ordinary_code_has_tasks_on_other_nodes_too() {
    let right: Vec<u64> = (0..12).map(|n| fib(n)).collect();
    common::travels(pools, || {
        let got = flow!(|g| {
            let all: Vec<_> = (0..12).map(|n| task!(g, fib(n))).collect();
            g.take_all(all)
        });
        assert_eq!(got, right);
    });
}

/// A job with a flow, which travels as a whole.
#[spawnable]
fn halves(depth: u64) -> u64 {
    if depth == 0 {
        let (_, sum, _) = satin::call!(sweeps(2, 3));
        return sum;
    }
    let a = halves(depth - 1);
    let b = halves(depth - 1);
    sync!();
    a.wrapping_add(b)
}

#[test]
fn a_job_with_a_flow_travels_and_its_tasks_travel_on() {
    let right = sweeps_in_order(2, 3).1.wrapping_mul(16);
    common::travels(pools, || assert_eq!(halves(4), right));
}

/// One step of a chain: what it is called with by the test that plays the other node does not matter.
#[spawnable]
fn step(after: &u32) -> u32 {
    after + 1
}

#[test]
fn an_answer_is_taken_in_while_all_workers_are_busy() {
    let pool = outside::pool(1);
    let [begun, until] = outside::flags();
    let program = || {
        flow!(|g| {
            // Made first, and so run first.
            let held = task!(g, outside::hold(begun, until));
            let one = g.data(1);
            let two = task!(g, step(r(one)));
            let three = task!(g, step(r(two)));
            g.take_all([three, held])
        })
    };
    let got = outside::during(&pool, program, |gate| {
        outside::await_flag(begun);
        for answer in [2, 3] {
            let departure = outside::departures(gate, 1)[0];
            assert!(gate.deliver(departure, outside::answer(answer)));
        }
        outside::raise(until);
    });
    assert_eq!(got, [3, 1]);
}

thread_local! {
    /// This thread is that of the network, which waits for no code of the user.
    static IS_NETWORK: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Watched(u32);

impl Clone for Watched {
    fn clone(&self) -> Watched {
        assert!(!IS_NETWORK.get(), "copied by the thread of the network");
        Watched(self.0)
    }
}

#[spawnable]
fn raise_watched(watched: &mut Watched) {
    watched.0 += 1;
}

#[test]
fn what_a_task_elsewhere_changes_is_not_copied_by_the_thread_of_the_network() {
    let pool = outside::pool(1);
    let [begun, until] = outside::flags();
    let program = || {
        flow!(|g| {
            let held = task!(g, outside::hold(begun, until));
            let both = [1, 5].map(|n| g.data(Watched(n)));
            let before = both.map(|watched| g.get(watched));
            for watched in both {
                task!(g, raise_watched(rw(watched)));
            }
            g.take(held);
            (
                before.map(|watched| watched.0),
                both.map(|watched| g.take(watched).0),
            )
        })
    };
    let got = outside::during(&pool, program, |gate| {
        IS_NETWORK.set(true);
        outside::await_flag(begun);
        // Both leave, although the clerk loads one at a time.
        let departures = outside::departures(gate, 2);
        outside::raise(until);
        for departure in departures {
            assert!(gate.put_back(departure, Back::default()));
        }
        IS_NETWORK.set(false);
    });
    assert_eq!(got, ([1, 5], [2, 6]));
}

/// A panic comes from wherever the task was.
#[spawnable]
fn sum_until(most: u64) -> u64 {
    flow!(|g| {
        let sum = g.data(0);
        for n in 0..100 {
            let n = task!(g, at_most(n, most));
            task!(g, add(rw(sum), r(n)));
        }
        g.take(sum)
    })
}

#[spawnable]
fn at_most(n: u64, most: u64) -> u64 {
    give_way();
    assert!(n <= most, "{n} is too much");
    n
}

#[test]
fn panics_cross_nodes() {
    common::travels(pools, || {
        assert_eq!(sum_until(100), 4950);
        let payload = std::panic::catch_unwind(|| sum_until(90)).expect_err("it panics");
        let text = payload.downcast_ref::<String>().expect("a message");
        assert!(text.contains("is too much"), "{text}");
    });
}
