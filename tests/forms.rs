//! Every form in which a spawned call may stand: the value is right, and two children are really under way at once.
//!
//! The children of a form meet in [`meet`]: each waits, for a limited time, until the other is there too. A form that quietly
//! ran in sequence would count as alone.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]
#![deny(warnings, clippy::pedantic)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "jobs own their arguments, and forms need a `?`"
)]
#![allow(
    clippy::assign_op_pattern,
    clippy::bool_to_int_with_if,
    clippy::only_used_in_recursion,
    clippy::needless_range_loop,
    reason = "each form is written out as a user might"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use satin::{seq, spawn, spawnable, sync};
use serde::{Deserialize, Serialize};

/// How long a child waits for its sibling: far longer than a steal takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Jobs that are in [`meet`] now; two that see each other leave for good.
static PRESENT: AtomicU32 = AtomicU32::new(0);
static ALONE: AtomicU32 = AtomicU32::new(0);

/// Waits until a second child is here.
fn meet() {
    let ticket = PRESENT.fetch_add(1, SeqCst);
    let pair_is_full = (ticket / 2 + 1) * 2;
    let since = Instant::now();
    while PRESENT.load(SeqCst) < pair_is_full {
        if since.elapsed() > PATIENCE {
            ALONE.fetch_add(1, SeqCst);
            return;
        }
        std::thread::yield_now();
    }
}

/// Runs `form` on two workers, and checks that no child of it was alone.
fn together<R: Send>(form: impl FnOnce() -> R + Send) -> R {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    PRESENT.store(0, SeqCst);
    ALONE.store(0, SeqCst);
    let result = pool(form);
    assert_ne!(PRESENT.load(SeqCst), 0, "no child came");
    assert_eq!(
        ALONE.load(SeqCst),
        0,
        "the children were not under way together"
    );
    result
}

fn pool<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    satin::builder().threads(2).build().unwrap().run(run)
}

#[spawnable]
fn leaf(n: u64) -> u64 {
    meet();
    n
}

#[spawnable]
fn failing(n: u64) -> Result<u64, u64> {
    meet();
    Ok(n)
}

#[derive(Default, Debug, PartialEq, Clone, Serialize, Deserialize)]
struct Places {
    field: u64,
    list: Vec<u64>,
}

// ---------------------------------------------------------------------------------------------------------------- let
#[spawnable]
fn lets(n: u64) -> u64 {
    let x = spawn!(leaf(n));
    let y: u64 = 1 + spawn!(leaf(n + 1));
    sync!();
    x * 10 + y
}

#[spawnable]
fn lets_of_patterns(n: u64) -> (u64, u64) {
    if n < 10 {
        meet();
        return (n, n + 1);
    }
    let (a, mut b) = lets_of_patterns(1);
    let Some((c, 4)) = Some(lets_of_patterns(3)) else {
        return (0, 0);
    };
    b += 1;
    (a + b, c)
}

#[spawnable]
fn lets_with_work_between(n: u64) -> u64 {
    let a = spawn!(leaf(n));
    let data = [n, 2, 3];
    let b = spawn!(sum(&data));
    let c = 2;
    a + b + c
}

#[spawnable]
fn sum(xs: &[u64]) -> u64 {
    meet();
    xs.iter().sum()
}

#[spawnable]
fn first_assignment(n: u64) -> u64 {
    let x;
    x = spawn!(leaf(n));
    let y = spawn!(leaf(n));
    x + y
}

// ------------------------------------------------------------------------------------------------------------- places
#[spawnable]
fn assignments(n: u64) -> (u64, Vec<u64>, Places) {
    let mut x = 0;
    let mut v = vec![0; 3];
    let mut s = Places::default();
    let mut i = 0;
    x = spawn!(leaf(n)) + x;
    v[i] = spawn!(leaf(n + 1));
    i += 1;
    v[i] = spawn!(leaf(n + 2));
    s.field = spawn!(leaf(n + 3));
    (x, v, s)
}

#[spawnable]
fn compound(n: u64) -> (u64, Vec<u64>) {
    let mut total = 1;
    let mut v = vec![7; 2];
    total += spawn!(leaf(n));
    total *= spawn!(leaf(n + 1));
    for i in 0..v.len() {
        v[i] -= spawn!(leaf(i as u64));
    }
    (total, v)
}

#[spawnable]
fn method_calls(n: u64) -> (Places, BTreeMap<u64, u64>) {
    let mut s = Places::default();
    let mut map = BTreeMap::new();
    let mut key = n;
    s.list.push(spawn!(leaf(n)));
    map.insert(key, spawn!(leaf(n + 1)));
    key += 1;
    map.insert(key, 1 + spawn!(leaf(n + 2)));
    s.list.push(spawn!(leaf(n + 3)));
    assert_eq!(s.list.len(), 2);
    (s, map)
}

#[spawnable]
fn let_after_place(n: u64) -> u64 {
    let mut total = 0;
    total += spawn!(leaf(n));
    let y = 2 * spawn!(leaf(n));
    total + y
}

#[spawnable]
fn best_of(n: u64) -> u64 {
    let mut best = 0;
    for i in 0..n {
        best = best.max(spawn!(leaf(i)));
    }
    best
}

// ------------------------------------------------------------------------------------------------------- control flow
#[spawnable]
fn loops(n: u64) -> (Vec<u64>, u64) {
    let mut v = Vec::new();
    let mut total = 0;
    for i in 0..n {
        if i == 1 {
            continue;
        }
        match i % 3 {
            0 => v.push(spawn!(leaf(i))),
            1 => total += i * spawn!(leaf(i)),
            _ => {
                let i = i * 100;
                total += spawn!(leaf(i));
            }
        }
    }
    let mut i = 0;
    while i < 2 {
        v.push(spawn!(leaf(i)));
        i += 1;
    }
    (v, total)
}

#[spawnable]
fn loop_with_sync(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..n {
        total += spawn!(leaf(i));
        if i % 2 == 1 {
            sync!();
        }
    }
    total
}

#[spawnable]
fn nested_loops(n: u64) -> Vec<u64> {
    let mut rows = Vec::new();
    for row in 0..n {
        let mut sum = 0;
        for i in 0..2 {
            sum += spawn!(leaf(row + i));
        }
        rows.push(sum);
    }
    rows
}

#[spawnable]
fn branches(n: u64) -> u64 {
    let (x, y);
    if n > 3 {
        let a = spawn!(leaf(n));
        let b = spawn!(leaf(n));
        x = a + b;
        y = 1;
    } else {
        x = 0;
        y = 2;
    }
    x + y
}

#[spawnable]
fn early_return(out: &mut Vec<u64>, stop: u64) -> u64 {
    for i in 0..8 {
        out.push(spawn!(leaf(i)));
        if i == stop {
            return 99;
        }
    }
    7
}

// ---------------------------------------------------------------------------------------------------- bare, and `&mut`
#[spawnable]
fn sort(v: &mut [u64]) {
    if v.len() < 3 {
        meet();
        v.sort_unstable();
        return;
    }
    let (left, right) = v.split_at_mut(2);
    sort(left);
    sort(&mut right[..2]);
}

#[spawnable]
fn sort_chunks(v: &mut [u64]) {
    if v.len() < 3 {
        meet();
        v.sort_unstable();
        return;
    }
    for chunk in v.chunks_mut(2) {
        sort_chunks(chunk);
    }
}

#[spawnable]
fn lent(n: u64) -> Vec<u64> {
    let mut a = vec![n, 1];
    let mut b = vec![n, 2];
    spawn!(sort(&mut a));
    spawn!(sort(&mut b));
    a.extend(b);
    a
}

// -------------------------------------------------------------------------------------------------------- expressions
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Node {
    value: u64,
    children: Option<(Box<Node>, Box<Node>)>,
}

#[spawnable]
fn build(depth: u64, value: u64) -> Node {
    if depth == 0 {
        meet();
        return Node {
            value,
            children: None,
        };
    }
    Node {
        value,
        children: Some((
            Box::new(build(depth - 1, 2 * value)),
            Box::new(build(depth - 1, 2 * value + 1)),
        )),
    }
}

#[spawnable]
fn depth(node: &Node) -> u64 {
    match &node.children {
        None => {
            meet();
            1
        }
        Some((left, right)) => 1 + depth(left).max(depth(right)),
    }
}

#[spawnable]
fn tak(x: i64, y: i64, z: i64) -> i64 {
    if y >= x {
        z
    } else {
        tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y))
    }
}

#[spawnable]
fn condition(n: u64) -> u64 {
    if spawn!(leaf(n)) + spawn!(leaf(n)) > n {
        1
    } else {
        0
    }
}

#[spawnable]
fn tail_calls(n: u64, so_far: u64) -> u64 {
    if n == 0 {
        so_far
    } else {
        tail_calls(n - 1, so_far + n)
    }
}

// ---------------------------------------------------------------------------------------------------------- iterators
#[spawnable]
fn collected(n: u64) -> (Vec<u64>, u64, Option<u64>) {
    let all: Vec<u64> = (0..n).map(|i| spawn!(leaf(i))).collect();
    let sum = [5, 6]
        .iter()
        .map(|&i: &u64| {
            let j = i + 1;
            spawn!(leaf(j))
        })
        .sum::<u64>();
    (all, sum, (0..n).map(|i| spawn!(leaf(i))).max())
}

// -------------------------------------------------------------------------------------------------------- speculation
#[spawnable]
fn speculative(n: u64) -> Result<u64, u64> {
    let a = spawn!(failing(n))?;
    let b = 1 + spawn!(failing(n))?;
    let mut total = 0;
    for i in 0..2 {
        total += spawn!(failing(i))?;
    }
    let c = spawn!(failing(7))?;
    let d = spawn!(leaf(7));
    let mut all = vec![];
    all.push(spawn!(failing(1))?);
    all.push(spawn!(leaf(1)));
    Ok(a + b + total + c + d + all[0] + all[1] + (spawn!(failing(1))? + spawn!(failing(2))?))
}

#[spawnable]
fn search(lo: u32, hi: u32) -> Result<u32, u32> {
    if hi - lo == 1 {
        return if lo == 13 { Err(lo) } else { Ok(1) };
    }
    let middle = u32::midpoint(lo, hi);
    let a = search(lo, middle)?;
    let b = search(middle, hi)?;
    Ok(a + b)
}

#[spawnable]
fn search_in_loop(lo: u32, hi: u32) -> Result<u32, u32> {
    if hi - lo == 1 {
        return if lo == 13 { Err(lo) } else { Ok(1) };
    }
    let mut total = 0;
    for i in lo..hi {
        total += search_in_loop(i, i + 1)?;
    }
    Ok(total)
}

#[spawnable]
fn search_in_expression(lo: u32, hi: u32) -> Option<u32> {
    if hi - lo == 1 {
        return if lo == 13 { None } else { Some(1) };
    }
    let middle = u32::midpoint(lo, hi);
    Some(search_in_expression(lo, middle)? + search_in_expression(middle, hi)?)
}

// ------------------------------------------------------------------------------- methods, other functions, other verbs
#[derive(Serialize, Deserialize)]
struct Tree {
    value: u64,
    children: Vec<Tree>,
}

#[spawnable]
impl Tree {
    fn new(depth: u32) -> Tree {
        let children = if depth == 0 { 0 } else { 2 };
        Tree {
            value: 1,
            children: (0..children).map(|_| Tree::new(depth - 1)).collect(),
        }
    }

    /// The sum of all values.
    #[spawn]
    pub fn sum(&self) -> u64 {
        if self.children.is_empty() {
            meet();
        }
        let mut total = self.value;
        for child in &self.children {
            total += spawn!(child.sum());
        }
        total
    }

    #[spawn]
    fn grow(&mut self, by: u64) {
        if self.children.is_empty() {
            meet();
        }
        self.value += by;
        for child in &mut self.children {
            spawn!(child.grow(by));
        }
    }

    #[spawn(name = "deepest")]
    fn depth(tree: &Tree) -> u64 {
        let mut deepest = 0;
        for child in &tree.children {
            deepest = deepest.max(Self::depth(child));
        }
        deepest + 1
    }

    #[spawn]
    fn count_down(&self, n: u64) -> u64 {
        if n == 0 {
            meet();
            return self.value;
        }
        self.count_down(n - 1) + Tree::count_down(self, n - 1)
    }
}

mod other {
    use satin::{call, spawnable};

    #[spawnable(sequential_if = n > 100)]
    pub fn even(n: u64) -> bool {
        n == 0 || call!(super::odd(n - 1))
    }
}

#[spawnable]
fn odd(n: u64) -> bool {
    if n == 0 {
        return false;
    }
    let is = spawn!(other::even(n - 1));
    is
}

#[spawnable(sequential_if = n < 8)]
fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    fib(n - 1) + fib(n - 2)
}

#[test]
fn lets_are_parallel() {
    assert_eq!(together(|| lets(4)), 46);
    assert_eq!(together(|| lets_of_patterns(10)), (4, 3));
    assert_eq!(together(|| lets_with_work_between(4)), 4 + 9 + 2);
    assert_eq!(together(|| first_assignment(4)), 8);
}

#[test]
fn places_are_parallel() {
    assert_eq!(
        together(|| assignments(4)),
        (
            4,
            vec![5, 6, 0],
            Places {
                field: 7,
                list: vec![]
            }
        )
    );
    assert_eq!(together(|| compound(4)), (25, vec![7, 6]));
    assert_eq!(
        together(|| method_calls(4)),
        (
            Places {
                field: 0,
                list: vec![4, 7]
            },
            BTreeMap::from([(4, 5), (5, 7)])
        )
    );
    assert_eq!(together(|| let_after_place(4)), 12);
    assert_eq!(together(|| best_of(6)), 5);
}

#[test]
fn control_flow_is_parallel() {
    assert_eq!(together(|| loops(7)), (vec![0, 3, 6, 0, 1], 16 + 200 + 500));
    assert_eq!(together(|| loop_with_sync(6)), 15);
    assert_eq!(together(|| nested_loops(3)), [1, 3, 5]);
    assert_eq!(together(|| branches(4)), 9);
    let mut out = Vec::new();
    assert_eq!(together(|| early_return(&mut out, 3)), 99);
    assert_eq!(out, [0, 1, 2, 3]);
}

#[test]
fn lent_arguments_are_parallel() {
    let mut v = [4, 3, 2, 1];
    together(|| sort(&mut v));
    assert_eq!(v, [3, 4, 1, 2]);
    let mut v = [4, 3, 2, 1];
    together(|| sort_chunks(&mut v));
    assert_eq!(v, [3, 4, 1, 2]);
    assert_eq!(together(|| lent(9)), [1, 9, 2, 9]);
}

#[test]
fn expressions_are_parallel() {
    let tree = together(|| build(2, 1));
    assert_eq!(tree, build_in_sequence(2, 1));
    assert_eq!(together(|| depth(&tree)), 3);
    assert_eq!(pool(|| tak(8, 4, 2)), pool(|| seq!(tak(8, 4, 2))));
    assert_eq!(together(|| condition(4)), 1);
    assert_eq!(pool(|| tail_calls(1000, 0)), 500_500);
}

fn build_in_sequence(depth: u64, value: u64) -> Node {
    let child = |value| Box::new(build_in_sequence(depth - 1, value));
    Node {
        value,
        children: (depth > 0).then(|| (child(2 * value), child(2 * value + 1))),
    }
}

#[test]
fn iterators_are_parallel() {
    assert_eq!(together(|| collected(4)), (vec![0, 1, 2, 3], 13, Some(3)));
}

#[test]
fn speculation_is_parallel() {
    assert_eq!(together(|| speculative(4)), Ok(4 + 5 + 1 + 7 + 7 + 2 + 3));
}

#[test]
fn speculation_stops_at_a_failure() {
    pool(|| {
        assert_eq!(search(0, 16), Err(13));
        assert_eq!(search(14, 30), Ok(16));
        assert_eq!(search_in_loop(0, 16), Err(13));
        assert_eq!(search_in_loop(14, 30), Ok(16));
        assert_eq!(search_in_expression(0, 16), None);
        assert_eq!(search_in_expression(14, 30), Some(16));
    });
}

#[test]
fn methods_are_parallel() {
    let mut tree = Tree::new(3);
    assert_eq!(together(|| tree.sum()), 15);
    together(|| tree.grow(2));
    assert_eq!(together(|| tree.sum()), 45);
    assert_eq!(pool(|| Tree::depth(&tree)), 4);
    assert_eq!(together(|| tree.count_down(3)), 24);
}

#[test]
fn other_functions_and_twins() {
    assert!(pool(|| odd(7)));
    assert!(!pool(|| odd(8)));
    assert_eq!(pool(|| fib(20)), 6765);
    assert_eq!(seq!(fib(20)), 6765);
}

// ------------------------------------------------------------------------------------------------------ drops and panics
static LIVE: AtomicU32 = AtomicU32::new(0);

/// Counts how many of it there are.
#[derive(Serialize)]
struct Counted(u32);

impl Counted {
    fn new(n: u32) -> Counted {
        LIVE.fetch_add(1, SeqCst);
        Counted(n)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, SeqCst);
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Counted, D::Error> {
        u32::deserialize(from).map(Counted::new)
    }
}

#[spawnable]
fn booms(n: u32, counted: Counted, big: [u64; 9]) -> Counted {
    assert_ne!(n, 0, "boom");
    if n > 6 {
        return counted;
    }
    let a = booms(n + 8, Counted::new(1), big);
    let b = booms(n - 1, Counted::new(2), big);
    let mut all = vec![];
    for i in 0..2 {
        all.push(booms(n + 7 + i, Counted::new(3), big));
    }
    assert!(n != 3 || counted.0 != 77, "between spawn and sync");
    sync!();
    drop((a, b, all));
    counted
}

#[test]
fn every_value_is_dropped_once() {
    for (n, first) in [(0, 0), (1, 0), (4, 0), (4, 77), (3, 77), (7, 0)] {
        let outcome =
            std::panic::catch_unwind(|| pool(|| drop(booms(n, Counted::new(first), [9; 9]))));
        assert_eq!(outcome.is_err(), n < 7, "booms({n}, {first})");
        assert_eq!(LIVE.load(SeqCst), 0, "booms({n}, {first})");
    }
}

/// The halves are lent; a mention of the whole waits for both.
#[spawnable]
fn halves(xs: &mut [u64], deep: bool) -> u64 {
    if !deep {
        meet();
        for x in xs {
            *x += 1;
        }
        return 0;
    }
    let middle = xs.len() / 2;
    let (left, right) = xs.split_at_mut(middle);
    halves(left, false);
    halves(right, false);
    xs.iter().sum()
}

/// The same in a loop, with another function.
#[spawnable]
fn chunks(mut xs: Vec<u64>) -> u64 {
    for chunk in xs.chunks_mut(2) {
        spawn!(halves(chunk, false));
    }
    xs.iter().sum()
}

/// What is left over is no mention of the whole.
#[spawnable]
fn leftovers(mut xs: Vec<u64>) -> u64 {
    let mut rest = &mut xs[..];
    while rest.len() > 2 {
        let (chunk, tail) = rest.split_at_mut(2);
        spawn!(halves(chunk, false));
        rest = tail;
    }
    spawn!(halves(rest, false));
    xs.iter().sum()
}

#[test]
fn what_is_borrowed_through_a_variable_is_waited_for() {
    together(|| assert_eq!(halves(&mut [1, 2, 3, 4], true), 14));
    together(|| assert_eq!(chunks(vec![1, 2, 3, 4]), 14));
    together(|| assert_eq!(leftovers(vec![1, 2, 3, 4]), 14));
}

/// Functions whose names derives have for variables, with two underscores before them, beside types with such derives.
mod names {
    use super::{Deserialize, Serialize, spawnable};

    macro_rules! named {
        ($($name:ident)*) => {
            $(#[spawnable]
            pub fn $name(n: u64) -> u64 {
                if n < 2 { n } else { $name(n - 1) + $name(n - 2) }
            })*
            pub const ALL: &[fn(u64) -> u64] = &[$($name),*];
        };
    }
    named!(value map key data seq formatter field serializer deserializer content tag err ok start_value body_value entry_value job_value);

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    pub enum Tagged {
        Named { value: u64, key: Option<String> },
        Other(Plain),
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub struct Plain {
        pub data: Vec<u64>,
        #[serde(flatten)]
        pub map: std::collections::BTreeMap<String, u64>,
    }
}

#[test]
fn a_name_that_a_derive_uses_is_free() {
    pool(|| assert!(names::ALL.iter().all(|function| function(10) == 55)));
    let (data, map) = (vec![1], [("a".to_owned(), 2)].into());
    let plain = names::Tagged::Other(names::Plain { data, map });
    let text = serde_json::to_string(&plain).expect("writes");
    let back: names::Tagged = serde_json::from_str(&text).expect("reads");
    assert_eq!(back, plain);
    let key = Some("k".to_owned());
    let named = names::Tagged::Named { value: 1, key };
    let text = serde_json::to_string(&named).expect("writes");
    let back: names::Tagged = serde_json::from_str(&text).expect("reads");
    assert_eq!(back, named);
}
