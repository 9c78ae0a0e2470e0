//! Parallel loops: what they give is what a sequential loop gives, wherever their elements run.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use common::{Habits, Report, Watchdog, give_way, mix, until, wait_for};
use proptest::prelude::*;
use satin::{Satin, Shared, par_chunks, par_map, par_reduce, seq, spawnable};
use serde::{Deserialize, Serialize};

#[spawnable]
fn mixed(number: &u64) -> u64 {
    give_way();
    mix(*number)
}

#[spawnable]
fn larger_by(number: u64, by: u64) -> u64 {
    number.wrapping_add(by)
}

#[spawnable]
fn folded(numbers: &[u64]) -> u64 {
    give_way();
    numbers.iter().fold(7, |sum, number| mix(sum ^ number))
}

#[spawnable]
fn text_of(number: &u64) -> String {
    give_way();
    format!("{number},")
}

/// Associative, but not commutative.
#[spawnable]
fn joined(first: String, second: String) -> String {
    first + &second
}

#[spawnable]
fn halved(numbers: &[f32]) -> f32 {
    give_way();
    numbers.iter().map(|number| number / 2.0).sum()
}

#[spawnable]
fn added(a: f32, b: f32) -> f32 {
    a + b
}

fn pool(threads: usize) -> Satin {
    let builder = satin::builder().threads(threads).stack(16);
    builder.store_grain(Duration::ZERO).build().expect("a pool")
}

fn travels(program: impl FnMut()) {
    common::travels(|workers| (pool(workers), pool(2)), program);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_loop_gives_what_a_sequential_one_gives(
        numbers in proptest::collection::vec(any::<u64>(), 0..200),
        size in 1usize..50,
        by in any::<u64>(),
    ) {
        let expected: Vec<u64> = numbers.iter().map(|number| mix(*number)).collect();
        prop_assert_eq!(par_map!(&numbers, mixed), expected);
        let expected: Vec<u64> = numbers.iter().map(|number| number.wrapping_add(by)).collect();
        prop_assert_eq!(par_map!(&numbers, |number| larger_by(*number, by)), expected);
        let expected: Vec<u64> = numbers.chunks(size).map(|chunk| seq!(folded(chunk))).collect();
        prop_assert_eq!(par_chunks!(&numbers, size, folded), expected);
        let texts: Vec<String> = numbers.iter().map(|number| format!("{number},")).collect();
        let expected = texts.into_iter().reduce(|first, second| first + &second);
        prop_assert_eq!(par_reduce!(&numbers, text_of, joined), expected);
    }
}

#[test]
fn nothing_and_a_single_element_are_loops_too() {
    let none: [u64; 0] = [];
    assert!(par_map!(&none, mixed).is_empty());
    assert!(par_chunks!(&none, 3, folded).is_empty());
    assert_eq!(par_reduce!(&none, text_of, joined), None);
    assert_eq!(par_map!(&[5], mixed), [mix(5)]);
    assert_eq!(par_chunks!(&[5], 3, folded), [mix(7 ^ 5)]);
    assert_eq!(par_reduce!(&[5], text_of, joined).as_deref(), Some("5,"));
}

#[test]
fn parts_of_loops_travel() {
    let numbers: Vec<u64> = (0..500).collect();
    let expected: Vec<u64> = numbers.iter().map(|number| mix(*number)).collect();
    travels(|| assert_eq!(par_map!(&numbers, mixed), expected));
    let expected: Vec<u64> = numbers.chunks(7).map(|chunk| seq!(folded(chunk))).collect();
    travels(|| assert_eq!(par_chunks!(&numbers, 7, folded), expected));
}

#[test]
fn parts_of_reductions_travel_and_keep_their_order() {
    let numbers: Vec<u64> = (0..300).collect();
    let expected: String = numbers.iter().map(|number| format!("{number},")).collect();
    travels(|| {
        let text = par_reduce!(&numbers, text_of, joined);
        assert_eq!(text.as_deref(), Some(&expected[..]));
    });
}

/// A sum of floats depends on the order in which they are added.
#[test]
fn a_sum_of_floats_is_the_same_wherever_it_is_made() {
    #[spawnable]
    fn sum(numbers: &[f32]) -> f32 {
        par_reduce!(numbers, 3, halved, added).unwrap_or(0.0)
    }

    let numbers: Vec<f32> = (0..999).map(|n| (mix(n) >> 40) as f32 / 7.0).collect();
    let expected = seq!(sum(&numbers)).to_bits();
    let backwards: f32 = numbers.iter().rev().map(|number| number / 2.0).sum();
    assert_ne!(backwards.to_bits(), expected, "the order is to matter");
    travels(|| {
        let sum = par_reduce!(&numbers, 3, halved, added);
        assert_eq!(sum.map(f32::to_bits), Some(expected));
    });
    travels(|| assert_eq!(sum(&numbers).to_bits(), expected));
}

// ---------------------------------------------------------------------------------------------------------- arguments
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Tree {
    value: u64,
    children: Vec<Tree>,
}

#[spawnable]
impl Tree {
    #[spawn]
    fn sum(&self, factor: u64) -> u64 {
        give_way();
        let mut total = self.value * factor;
        for child in &self.children {
            total += satin::spawn!(child.sum(factor));
        }
        total
    }
}

/// What an element needs beside itself, and what it gives, may be handles of shared values.
#[spawnable]
fn word(at: usize, text: &Shared<Vec<String>>, scale: Option<u32>) -> (Shared<String>, u32) {
    give_way();
    (Shared::new(text[at].repeat(2)), scale.unwrap_or(0))
}

#[test]
fn elements_may_be_methods_that_spawn() {
    let leaf = |value| Tree {
        value,
        children: Vec::new(),
    };
    let trees: Vec<Tree> = (0..40)
        .map(|value| Tree {
            value,
            children: (0..value % 5).map(leaf).collect(),
        })
        .collect();
    let expected: Vec<u64> = trees.iter().map(|tree| seq!(tree.sum(3))).collect();
    travels(|| {
        assert_eq!(par_map!(&trees, |tree| tree.sum(3)), expected);
    });
}

#[test]
fn shared_values_go_along_and_come_back() {
    let places: Vec<usize> = (0..60).collect();
    travels(|| {
        let text: Vec<String> = places.iter().map(ToString::to_string).collect();
        let text = Shared::new(text);
        let words = par_map!(&places, |at| word(*at, &text, Some(7)));
        for (at, (word, scale)) in words.iter().enumerate() {
            assert_eq!((&**word, *scale), (&text[at].repeat(2), 7));
        }
    });
}

// ------------------------------------------------------------------------------------------------------------- in jobs
#[spawnable]
fn row(at: usize, columns: &[u64]) -> u64 {
    let products = par_map!(columns, |column| larger_by(*column, at as u64));
    products.iter().fold(0, |sum, product| mix(sum ^ product))
}

/// A loop beside children, and in both branches of a condition.
#[spawnable]
fn nested(depth: u32, numbers: &[u64]) -> u64 {
    if depth == 0 {
        return par_map!(numbers, mixed)
            .into_iter()
            .fold(0, u64::wrapping_add);
    }
    let first = nested(depth - 1, numbers);
    let inside: u64 = if depth.is_multiple_of(2) {
        par_chunks!(numbers, 4, folded).len() as u64
    } else {
        let length = par_reduce!(numbers, |number| text_of(number), joined);
        length.map_or(0, |text| text.len() as u64)
    };
    let second = nested(depth - 1, numbers);
    satin::sync!();
    first ^ second.rotate_left(1) ^ inside
}

#[test]
fn loops_stand_in_jobs_and_their_parts_travel() {
    let columns: Vec<u64> = (0..20).map(mix).collect();
    let rows: Vec<usize> = (0..20).collect();
    let expected: Vec<u64> = rows.iter().map(|at| seq!(row(*at, &columns))).collect();
    travels(|| {
        assert_eq!(par_map!(&rows, |at| row(*at, &columns)), expected);
    });
    let expected = seq!(nested(4, &columns));
    travels(|| assert_eq!(nested(4, &columns), expected));
}

#[test]
fn parts_of_loops_in_jobs_leave_the_process() {
    let (a, b) = (pool(1), pool(1));
    let numbers: Vec<u64> = (0..100).collect();
    // The job has no other children than the parts of its loop.
    let some_left = |report: &Report| report.travelled > 0;
    let expected = seq!(nested(0, &numbers));
    until(&a, &b, Habits::default(), some_left, || {
        assert_eq!(nested(0, &numbers), expected);
    });
}

// ------------------------------------------------------------------------------------------------------------ failures

/// A result that cannot be written.
#[derive(Deserialize, Debug, PartialEq)]
struct Stubborn(u64);

impl Serialize for Stubborn {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it stays where it is"))
    }
}

static STUBBORN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Goes on when it has begun on two nodes.
#[spawnable]
fn stubborn(number: &u64) -> Stubborn {
    let met = || STUBBORN.lock().expect("no panic");
    let me = satin::node().name;
    met().insert(me);
    wait_for("elements on two nodes", || met().len() >= 2);
    Stubborn(mix(*number))
}

#[test]
fn a_part_whose_results_cannot_travel_is_run_at_home() {
    let _watchdog = Watchdog::new("a_part_whose_results_cannot_travel_is_run_at_home");
    let key = tempfile::NamedTempFile::new().expect("a file");
    let text = satin::net::Credential::generate().expect("a key");
    std::fs::write(key.path(), text).expect("written");
    let node = |n: usize| {
        let builder = satin::builder().threads(1).credential(key.path());
        builder.pool("stubborn").name(format!("n{n}"))
    };
    let first = node(0).listen("127.0.0.1:0").build().expect("a founder");
    let to = first.network().expect("a network").addr().to_string();
    let _other = node(1).join(&to).build().expect("let in");
    let numbers: Vec<u64> = (0..32).collect();
    let expected: Vec<Stubborn> = numbers
        .iter()
        .map(|number| Stubborn(mix(*number)))
        .collect();
    assert_eq!(first.run(|| par_map!(&numbers, stubborn)), expected);
}

static BEGUN: AtomicUsize = AtomicUsize::new(0);

#[spawnable]
fn careful(number: &u64) -> u64 {
    BEGUN.fetch_add(1, SeqCst);
    assert!(*number != 0, "a zero among the numbers");
    *number
}

#[spawnable]
fn checked(number: &u64) -> Result<u64, String> {
    match number {
        0..10 => Ok(*number),
        _ => Err(format!("{number} is too large")),
    }
}

#[test]
fn a_panic_ends_the_loop_and_the_pool_goes_on() {
    let pool = pool(1);
    let mut numbers = vec![1; 1000];
    numbers[3] = 0;
    let run = || pool.run(|| par_map!(&numbers, careful));
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
    let text = panic.downcast_ref::<&str>().expect("a text");
    assert!(text.contains("a zero among the numbers"), "{text}");
    // On one worker the elements run in order.
    assert_eq!(BEGUN.load(SeqCst), 4);
    numbers[3] = 1;
    assert_eq!(pool.run(|| par_map!(&numbers, careful)), numbers);
}

#[test]
fn failures_are_results_like_others() {
    let numbers = [3, 12, 5, 99];
    let all = par_map!(&numbers, checked);
    assert_eq!((&all[0], &all[2]), (&Ok(3), &Ok(5)));
    let first = all.into_iter().collect::<Result<Vec<_>, _>>();
    assert_eq!(first.unwrap_err(), "12 is too large");
}

#[test]
fn a_chunk_of_no_elements_is_refused() {
    let refused = |run: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
        let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(text.contains("needs at least one element"), "{text}");
    };
    refused(&|| drop(par_chunks!(&[1, 2], 0, folded)));
    refused(&|| assert_eq!(par_reduce!(&[1.0], 0, halved, added), None));
}

// ------------------------------------------------------------------------------------------------------------- network
/// The nodes that have begun an element.
static MET: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

#[spawnable]
fn on_three_nodes(number: u64, text: &Shared<String>) -> (Shared<String>, u64) {
    let met = || MET.lock().expect("no panic");
    let me = satin::node().name;
    met().insert(me);
    wait_for("elements on three nodes", || met().len() >= 3);
    (Shared::new(format!("{number} {}", **text)), mix(number))
}

#[test]
fn a_loop_runs_on_all_nodes() {
    let _watchdog = Watchdog::new("a_loop_runs_on_all_nodes");
    let key = tempfile::NamedTempFile::new().expect("a file");
    let text = satin::net::Credential::generate().expect("a key");
    std::fs::write(key.path(), text).expect("written");
    let node = |n: usize| {
        let builder = satin::builder().threads(1).credential(key.path());
        builder.pool("loops").name(format!("n{n}"))
    };
    let first = node(0).listen("127.0.0.1:0").build().expect("a founder");
    let to = first.network().expect("a network").addr().to_string();
    let _others = [1, 2].map(|n| node(n).join(&to).build().expect("let in"));
    let numbers: Vec<u64> = (0..32).collect();
    let text = Shared::new("of three".to_owned());
    let all = first.run(|| par_map!(&numbers, |number| on_three_nodes(*number, &text)));
    for (number, (text, value)) in (0..).zip(&all) {
        assert_eq!(
            (&text[..], *value),
            (&format!("{number} of three")[..], mix(number))
        );
    }
    assert_eq!(all.len(), numbers.len());
    let sums = first.run(|| par_reduce!(&numbers, text_of, joined));
    let expected: String = numbers.iter().map(|number| format!("{number},")).collect();
    assert_eq!(sums, Some(expected));
}
