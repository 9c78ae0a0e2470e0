//! The order of execution. On one worker a job's children run in program order, as in the sequential twin, in every form in
//! which they may stand: a search that puts its promising branch first looks there first. Only where a loop adds up numbers, and
//! its function is no search, the last one runs first.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]
#![allow(clippy::unnecessary_wraps, reason = "forms need a `?`")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use satin::{seq, spawn, spawnable, sync};

/// What has run, in this order.
static RECORD: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn record(what: u64) {
    RECORD
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(what);
}

/// The record, for one test alone.
fn record_alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `form` gives, and the order in which it ran.
fn recorded<R>(form: impl FnOnce() -> R) -> (R, Vec<u64>) {
    RECORD
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
    let result = form();
    let ran = std::mem::take(&mut *RECORD.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(!ran.is_empty(), "nothing ran");
    (result, ran)
}

/// Runs on one worker what `seq` runs as a plain program.
fn compare<R: Send + PartialEq + std::fmt::Debug>(
    name: &str,
    pool: impl Fn() -> R + Send + Sync,
    seq: impl FnOnce() -> R,
) {
    let _alone = record_alone();
    let expected = recorded(seq);
    let one = satin::builder().threads(1).build().expect("a pool");
    one.run(|| {
        assert_eq!(recorded(&pool), expected, "{name}, as the pool starts");
        // By now the worker publishes only if somebody asks.
        for _ in 0..200 {
            std::hint::black_box(many(20));
        }
        assert_eq!(recorded(&pool), expected, "{name}");
    });
}

macro_rules! in_program_order {
    ($($form:ident($($argument:expr),*)),+ $(,)?) => {$(
        compare(stringify!($form), || $form($($argument),*), || seq!($form($($argument),*)));
    )+};
}

#[spawnable]
fn many(n: u64) -> u64 {
    let mut count = 1;
    for i in 0..n.min(4) {
        count += many(n / 4 - i.min(n / 4));
    }
    count
}

#[spawnable]
fn note(n: u64) -> u64 {
    record(n);
    n
}

#[spawnable]
fn failing(n: u64, fails: bool) -> Result<u64, u64> {
    record(n);
    if fails { Err(n) } else { Ok(n) }
}

/// A child that has children itself.
#[spawnable]
fn twice(n: u64) -> u64 {
    let a = spawn!(note(10 * n));
    let b = spawn!(note(10 * n + 1));
    sync!();
    a + b
}

// ---------------------------------------------------------------------------------------------------- straight-line code
#[spawnable]
fn lets() -> u64 {
    let a = spawn!(twice(1));
    let (b, c) = (spawn!(note(2)), spawn!(note(3)));
    let d: u64 = 7 + spawn!(twice(4)) * 2;
    sync!();
    a + b + c + d
}

/// Statements run where they stand, and these children not before the sync: no plain program does that.
#[spawnable]
fn lets_with_work_between() -> u64 {
    let a = spawn!(note(1));
    record(100);
    let data = [1, 2, 3];
    let b = spawn!(twice(2));
    let c = spawn!(sum(&data));
    record(101);
    let d = spawn!(note(4));
    a * b + c * d
}

#[spawnable]
fn sum(xs: &[u64]) -> u64 {
    record(3);
    xs.iter().sum()
}

#[spawnable]
fn work_after() -> u64 {
    let a = spawn!(note(1));
    let b = spawn!(note(2));
    let c = 5;
    sync!();
    a + b + c
}

#[spawnable]
fn bare() {
    spawn!(note(1));
    spawn!(note(2));
    spawn!(twice(3));
}

#[spawnable]
fn late_init() -> u64 {
    let (x, y);
    x = spawn!(note(1));
    y = spawn!(note(2));
    let z = spawn!(note(3));
    x + y + z
}

#[spawnable]
fn expression() -> u64 {
    let sum = spawn!(note(1)) + 2 * spawn!(twice(2)) + spawn!(note(3)) + 1;
    sum.max(spawn!(note(4)) + spawn!(note(5)))
}

/// What an argument needs runs where the argument is evaluated; meanwhile others may take what stands before it.
#[spawnable]
fn arguments() -> u64 {
    spawn!(note(spawn!(note(1)) + spawn!(note(2)))) + spawn!(note(spawn!(note(4)) + 5))
}

#[spawnable]
fn tail() -> u64 {
    let _a = spawn!(note(1));
    let _b = spawn!(note(2));
    spawn!(note(3)) + spawn!(note(4))
}

#[spawnable]
fn argument_that_spawns() -> u64 {
    let a = spawn!(note(spawn!(note(1)) + 10));
    let b = spawn!(note(12));
    a + b
}

// ------------------------------------------------------------------------------------------------------ places and loops
#[spawnable]
fn places() -> (u64, Vec<u64>, BTreeMap<u64, u64>) {
    let (mut total, mut list, mut map) = (0, vec![0; 2], BTreeMap::new());
    total += spawn!(note(1));
    list[1] = spawn!(twice(2));
    map.insert(7, spawn!(note(3)));
    total -= spawn!(note(1));
    list.push(spawn!(note(5)) + spawn!(note(6)));
    let last = spawn!(note(7));
    sync!();
    (total + last, list, map)
}

#[spawnable]
fn loops(n: u64) -> (u64, Vec<u64>) {
    let (mut total, mut list) = (0, vec![]);
    for i in 0..n {
        match i % 3 {
            0 => total += spawn!(note(i)),
            1 => list.push(spawn!(twice(i)) + spawn!(note(1000 + i))),
            _ => {
                spawn!(note(i));
            }
        }
    }
    (total, list)
}

#[spawnable]
fn nested_loops(n: u64) -> Vec<u64> {
    let mut rows = vec![];
    for row in 0..n {
        for column in 0..n {
            rows.push(spawn!(note(10 * row + column)));
        }
    }
    rows
}

#[spawnable]
fn let_before_a_loop(n: u64) -> u64 {
    let a = spawn!(note(1));
    let b = spawn!(twice(2));
    let mut total = 0;
    for i in 100..100 + n {
        total += i * spawn!(note(i));
    }
    total + a - b
}

#[spawnable]
fn loop_with_sync(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..n {
        total += spawn!(note(i));
        total += spawn!(twice(i));
        if i % 2 == 1 {
            sync!();
        }
    }
    total
}

#[spawnable]
fn iterators(n: u64) -> (Vec<u64>, u64) {
    let all: Vec<u64> = (0..n).map(|i| spawn!(twice(i))).collect();
    let largest = (0..n).map(|i| spawn!(note(i)) + 1).max();
    (all, largest.unwrap_or(0))
}

#[spawnable]
fn early_return(out: &mut Vec<u64>) -> u64 {
    for i in 0.. {
        out.push(spawn!(note(i)));
        if i == 5 {
            return 99;
        }
    }
    7
}

#[spawnable]
fn early_return_of_lets(leaves: bool) -> u64 {
    let a = spawn!(note(1));
    let b = spawn!(note(2));
    let c = 3;
    let d = spawn!(twice(4));
    if leaves {
        return c;
    }
    let e = spawn!(note(5));
    a + b + d + e
}

// ----------------------------------------------------------------------------------------------------------- speculation
#[spawnable]
fn tried(failing_one: u64) -> Result<u64, u64> {
    let a = spawn!(failing(1, failing_one == 1))?;
    let b = 1 + spawn!(failing(2, failing_one == 2))?;
    let c = spawn!(failing(3, failing_one == 3))?;
    sync!();
    let sum = spawn!(failing(4, failing_one == 4))? + spawn!(failing(5, failing_one == 5))?;
    Ok(a + b + c + sum)
}

#[spawnable]
fn tried_in_a_loop(failing_one: u64) -> Result<Vec<u64>, u64> {
    let mut all = vec![];
    for i in 0..6 {
        all.push(spawn!(failing(i, i >= failing_one))?);
    }
    Ok(all)
}

#[spawnable]
fn tried_before_a_loop(failing_one: u64) -> Result<u64, u64> {
    let first = spawn!(failing(1, failing_one == 1))?;
    let mut total = 0;
    for i in 2..5 {
        total += spawn!(failing(i, i == failing_one))?;
    }
    Ok(first + total)
}

/// The first solution in program order.
#[spawnable]
fn first_of(lo: u64, hi: u64) -> Result<(), u64> {
    if hi - lo == 1 {
        record(lo);
        return if lo % 7 == 6 { Err(lo) } else { Ok(()) };
    }
    let middle = u64::midpoint(lo, hi);
    first_of(lo, middle)?;
    first_of(middle, hi)?;
    Ok(())
}

#[test]
fn straight_line_code_runs_in_program_order() {
    in_program_order!(lets(), work_after(), bare(), late_init(), expression());
    in_program_order!(tail(), argument_that_spawns());
}

#[test]
fn statements_between_run_where_they_stand_and_the_children_in_program_order() {
    let _alone = record_alone();
    let one = satin::builder().threads(1).build().expect("a pool");
    one.run(|| {
        for _ in 0..100 {
            let (result, ran) = recorded(lets_with_work_between);
            assert_eq!(result, 41 + 6 * 4);
            assert_eq!(ran, [100, 101, 1, 20, 21, 3, 4]);
            assert_eq!(recorded(arguments), (12, vec![1, 2, 4, 3, 9]));
        }
    });
}

#[test]
fn places_and_loops_run_in_program_order() {
    in_program_order!(places(), loops(20), nested_loops(5), loop_with_sync(7));
    in_program_order!(let_before_a_loop(5), iterators(6));
    in_program_order!(
        early_return(&mut vec![]),
        early_return_of_lets(false),
        early_return_of_lets(true)
    );
}

#[test]
fn the_first_failure_in_program_order_is_found_first() {
    for failing_one in 0..7 {
        in_program_order!(tried(failing_one), tried_in_a_loop(failing_one));
        in_program_order!(tried_before_a_loop(failing_one));
    }
    in_program_order!(first_of(0, 32), first_of(8, 13));
}

// --------------------------------------------------------------------------------------------------------------- searches
satin::bound! {
    static MOST: satin::Max<u64>;
}

/// Items by value for weight, the best first; the branch that takes the item stands first.
#[spawnable]
fn knapsack(items: &[(u64, u64)], room: u64, value: u64) -> u64 {
    let Some(((weight, worth), rest)) = items.split_first() else {
        MOST.offer(value);
        record(0);
        return value;
    };
    if MOST
        .get()
        .is_some_and(|most| value + room * worth / weight <= most)
    {
        return 0;
    }
    record(0);
    if *weight > room {
        return knapsack(rest, room, value);
    }
    let with = knapsack(rest, room - weight, value + worth);
    let without = knapsack(rest, room, value);
    with.max(without)
}

/// The promising ones first, in a loop.
#[spawnable]
fn tour(map: &[u64], here: usize, visited: u64, length: u64) -> u64 {
    let cities = map.len().isqrt();
    if MOST.get().is_some_and(|most| u64::MAX - length <= most) {
        return u64::MAX;
    }
    record(0);
    if visited.count_ones() as usize == cities {
        MOST.offer(u64::MAX - length);
        return length;
    }
    let mut next: Vec<usize> = (0..cities)
        .filter(|city| visited >> city & 1 == 0)
        .collect();
    next.sort_by_key(|city| map[here * cities + city]);
    let mut shortest = u64::MAX;
    for city in next {
        let length = length + map[here * cities + city];
        shortest = shortest.min(tour(map, city, visited | 1 << city, length));
    }
    shortest
}

/// Adds up what the children give, and does nothing else.
#[spawnable]
fn count(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..n {
        total += spawn!(note(i));
    }
    total
}

#[spawnable(order = program)]
fn count_in_order(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..n {
        total += spawn!(note(i));
    }
    total
}

#[spawnable]
fn count_below_a_bound(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..n {
        if MOST.get() != Some(i) {
            total += spawn!(note(i));
        }
    }
    total
}

#[spawnable(order = last)]
fn count_below_a_bound_last_first(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..n {
        if MOST.get() != Some(i) {
            total += spawn!(note(i));
        }
    }
    total
}

/// Adds up floats, which round.
#[spawnable]
fn add(n: u64) -> f64 {
    let mut total = 0.0;
    for i in 0..n {
        total += spawn!(tenth(i));
    }
    total
}

#[spawnable]
fn tenth(n: u64) -> f64 {
    record(n);
    n as f64 * 0.1
}

fn items(number: u64) -> Vec<(u64, u64)> {
    let mut items: Vec<(u64, u64)> = (0..number)
        .map(|i| (10 + i * 37 % 41, 30 + i * 61 % 97))
        .collect();
    items.sort_by_key(|(weight, worth)| std::cmp::Reverse(worth * 1000 / weight));
    items
}

fn map(cities: u64) -> Vec<u64> {
    let place = |city: u64| (city * 7919 % 101, city * 104_729 % 103);
    let pairs = (0..cities).flat_map(|a| (0..cities).map(move |b| (place(a), place(b))));
    pairs
        .map(|(a, b)| a.0.abs_diff(b.0) + a.1.abs_diff(b.1))
        .collect()
}

#[test]
fn a_mere_count_runs_the_last_child_first_unless_told_otherwise() {
    in_program_order!(count_in_order(9), count_below_a_bound(9), add(9));
    let _alone = record_alone();
    let one = satin::builder().threads(1).build().expect("a pool");
    one.run(|| {
        let last_first = (36, (0..9).rev().collect());
        assert_eq!(recorded(|| count(9)), last_first);
        assert_eq!(recorded(|| count_below_a_bound_last_first(9)), last_first);
    });
}

#[test]
fn a_search_looks_at_as_few_nodes_as_the_sequential_one() {
    let items = items(60);
    in_program_order!(knapsack(&items, 400, 0));
    let map = map(9);
    in_program_order!(tour(&map, 0, 1, 0));
}
