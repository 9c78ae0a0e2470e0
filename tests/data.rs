//! Shared values and bounds, in pools whose jobs leave the process as bytes and come back.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use common::{Habits, Report, Rng, Watchdog, until};
use satin::{
    Lattice, Max, Min, MinWith, Or, Satin, Shared, Union,
    job::Recall,
    job::{Answer, BoundName, DepartureId, HostedId, Offer, RootName, RootRun},
    spawnable,
    worker::Outside,
};
use satin_runtime::job::Lattices as _;
use serde::{Deserialize, Serialize};

/// Repeats the program until jobs of it have travelled.
fn travels(mut program: impl FnMut()) {
    let (a, b) = (pool(1), pool(2));
    let travelled = Cell::new(0);
    let enough = |report: &Report| {
        travelled.update(|sum| sum + report.travelled);
        travelled.get() > 1
    };
    until(&a, &b, Habits::default(), enough, &mut program);
}

fn pool(threads: usize) -> Satin {
    satin::builder()
        .threads(threads)
        .stack(16)
        .build()
        .expect("a pool")
}

// -------------------------------------------------------------------------------------------------------------- shared
static SERIALIZED: AtomicUsize = AtomicUsize::new(0);

/// Counts how often it is serialized.
#[derive(Debug, PartialEq, Deserialize)]
struct Table(Vec<u64>);

impl Serialize for Table {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SERIALIZED.fetch_add(1, SeqCst);
        serializer.serialize_newtype_struct("Table", &self.0)
    }
}

#[spawnable]
fn sum(table: &Shared<Table>, from: usize, to: usize) -> u64 {
    if to - from == 1 {
        return table.0[from];
    }
    let middle = (from + to) / 2;
    sum(table, from, middle) + sum(table, middle, to)
}

#[spawnable]
fn sum_by_value(table: Shared<Table>, from: usize, to: usize) -> u64 {
    if to - from == 1 {
        return table.0[from];
    }
    let middle = (from + to) / 2;
    sum_by_value(table.clone(), from, middle) + sum_by_value(table, middle, to)
}

#[test]
fn a_shared_value_is_serialized_once_and_only_when_it_travels() {
    let _watchdog = Watchdog::new("a shared value");
    let table = Shared::new(Table((0..4096).collect()));
    let all = 4095 * 4096 / 2;
    let alone = pool(2);
    assert_eq!(alone.run(|| sum(&table, 0, 4096)), all);
    assert_eq!(SERIALIZED.load(SeqCst), 0);

    travels(|| {
        assert_eq!(sum(&table, 0, 4096), all);
        assert_eq!(sum_by_value(table.clone(), 0, 4096), all);
    });
    assert_eq!(SERIALIZED.load(SeqCst), 1);
}

/// A value that is made in a job, in its result.
#[spawnable]
fn words(from: u32, to: u32) -> Vec<Shared<String>> {
    if to - from == 1 {
        return vec![Shared::new(format!("word {from}"))];
    }
    let middle = (from + to) / 2;
    let mut first = words(from, middle);
    let second = words(middle, to);
    satin::sync!();
    first.extend(second);
    first
}

#[test]
fn shared_values_are_in_results_too() {
    let _watchdog = Watchdog::new("shared values in results");
    travels(|| {
        let words = words(0, 256);
        let all = words.iter().zip(0..);
        assert!(all.clone().count() == 256);
        all.for_each(|(word, n)| assert_eq!(**word, format!("word {n}")));
    });
}

// -------------------------------------------------------------------------------------------------------------- bounds
satin::bound! {
    /// The least sum so far.
    pub static LEAST: Min<u64>;
    static MOST: Max<i16>;
    static CHEAPEST: MinWith<u64, Vec<u8>>;
    static ANY: Or;
    static SEEN: Union<std::collections::BTreeSet<u32>>;
    static LONGEST: Longest;
}

/// A lattice of one's own.
struct Longest;

impl Lattice for Longest {
    type Value = String;
    type Rank = usize;

    fn join(best: &mut String, other: String) -> bool {
        let is_better = (other.len(), &*best) > (best.len(), &other);
        if is_better {
            *best = other;
        }
        is_better
    }

    fn prunes(best: &String, length: &usize) -> bool {
        *length < best.len()
    }
}

/// Numbers from a seed, in rows: picks one of each, the sum is to be small.
#[spawnable]
fn least(rows: &[Vec<u64>], sum: u64) -> Option<u64> {
    if LEAST.prunes(&sum) {
        return None;
    }
    let Some((row, rest)) = rows.split_first() else {
        LEAST.offer(sum);
        return Some(sum);
    };
    let mut sums = Vec::new();
    for number in row {
        sums.push(least(rest, sum + number));
    }
    sums.into_iter().flatten().min()
}

#[spawnable]
fn cheapest(rows: &[Vec<u64>], sum: u64, picked: Vec<u8>) {
    if CHEAPEST.prunes(&sum) {
        return;
    }
    let Some((row, rest)) = rows.split_first() else {
        CHEAPEST.offer(sum, picked);
        return;
    };
    for (number, place) in row.iter().zip(0u8..) {
        let picked = picked.iter().copied().chain([place]).collect();
        cheapest(rest, sum + number, picked);
    }
}

fn rows(seed: u64, count: usize) -> Vec<Vec<u64>> {
    let mut rng = Rng(seed);
    (0..count)
        .map(|_| (0..4).map(|_| rng.below(1000)).collect())
        .collect()
}

fn expected(rows: &[Vec<u64>]) -> u64 {
    rows.iter().flat_map(|row| row.iter().min()).sum()
}

fn check_cheapest(rows: &[Vec<u64>]) {
    let (cost, picked) = CHEAPEST.get().expect("a solution");
    let sum = rows
        .iter()
        .zip(picked)
        .map(|(row, place)| row[usize::from(place)]);
    assert_eq!((cost, sum.sum()), (expected(rows), expected(rows)));
    assert_eq!(CHEAPEST.cost(), Some(cost));
}

#[test]
fn each_root_job_starts_bounds_afresh() {
    let _watchdog = Watchdog::new("bounds afresh");
    let pool = pool(2);
    pool.run(|| {
        for seed in 0..20 {
            let rows = rows(seed, 5);
            // A bound that remembered the run before would prune everything.
            let larger: Vec<_> = rows
                .iter()
                .map(|row| row.iter().map(|n| n + 10_000).collect())
                .collect();
            for rows in [rows, larger] {
                assert_eq!(least(&rows, 0), Some(expected(&rows)));
                assert_eq!(LEAST.get(), Some(expected(&rows)));
                cheapest(&rows, 0, vec![]);
                check_cheapest(&rows);
                assert_eq!(LEAST.get(), None);
                assert_eq!(satin::seq!(least(&rows, 0)), Some(expected(&rows)));
                assert_eq!(LEAST.get(), Some(expected(&rows)));
                satin::seq!(cheapest(&rows, 0, vec![]));
                check_cheapest(&rows);
            }
        }
    });
}

#[test]
fn root_jobs_at_the_same_time_do_not_disturb_each_other() {
    let _watchdog = Watchdog::new("concurrent roots");
    let pools = [pool(2), pool(2)];
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let pool = &pools[thread as usize % 2];
            scope.spawn(move || {
                pool.run(|| {
                    for round in 0..10 {
                        let rows = rows(thread * 100 + round, 5);
                        let shifted: Vec<Vec<u64>> = rows
                            .iter()
                            .map(|row| row.iter().map(|n| n + thread * 5000).collect())
                            .collect();
                        assert_eq!(least(&shifted, 0), Some(expected(&shifted)));
                        assert_eq!(LEAST.get(), Some(expected(&shifted)));
                        cheapest(&shifted, 0, vec![]);
                        check_cheapest(&shifted);
                    }
                });
            });
        }
    });
}

#[test]
fn bounds_of_jobs_that_travel() {
    let _watchdog = Watchdog::new("bounds of jobs that travel");
    let mut seed = 0;
    travels(|| {
        seed += 1;
        let rows = rows(seed, 6);
        assert_eq!(least(&rows, 0), Some(expected(&rows)));
    });
}

#[spawnable]
fn offer_all(from: u32, to: u32) -> bool {
    if to - from == 1 {
        SEEN.offer(std::iter::once(from).collect());
        MOST.offer(from as i16 - 30_000);
        LONGEST.join("x".repeat(from as usize));
        return ANY.offer(from == 99);
    }
    let middle = (from + to) / 2;
    offer_all(from, middle) | offer_all(middle, to)
}

#[test]
fn lattices_of_every_kind() {
    let _watchdog = Watchdog::new("lattices of every kind");
    let pool = pool(2);
    assert!(pool.run(|| offer_all(0, 100)));
    assert_eq!(SEEN.get(), Some((0..100).collect()));
    assert_eq!(MOST.get(), Some(99 - 30_000));
    assert!(MOST.prunes(&(98 - 30_000)) && !MOST.prunes(&(99 - 30_000)));
    assert_eq!(ANY.get(), Some(true));
    assert!(ANY.prunes(&false) && !ANY.prunes(&true));
    assert_eq!(LONGEST.get().map(|word| word.len()), Some(99));
    assert!(LONGEST.prunes(&98) && !LONGEST.prunes(&99));
    assert!(!MOST.offer(i16::MAX), "there is no root job here");
    assert_eq!(MOST.get(), Some(99 - 30_000));
}

/// What the network is told; at the end of a root job it forgets that at once, before the caller knows.
struct Ears(std::sync::Mutex<Vec<Offer>>, u64);

impl Outside for Ears {
    fn done(&self, _: HostedId, _: Answer) {}
    fn recalled(&self, _: DepartureId, _: Recall) {}
    fn root_finished(&self, root: RootRun) {
        satin::data::forget_root(self.1, root.name);
    }
    fn offered(&self, offer: Offer) {
        self.0.lock().expect("nobody panics").push(offer);
    }
}

#[spawnable]
fn offer_in_turn(values: &[u64]) -> Vec<bool> {
    values.iter().map(|value| LEAST.offer(*value)).collect()
}

#[spawnable]
fn what_is_known(wait: bool) -> Option<u64> {
    while wait && LEAST.get().is_none() {
        std::thread::yield_now();
    }
    LEAST.get()
}

#[test]
fn offers_go_out_and_come_in() {
    let _watchdog = Watchdog::new("offers go out and come in");
    let pool = pool(1);
    let ears = std::sync::Arc::new(Ears(Default::default(), pool.gate().number()));
    pool.gate().listen(ears.clone());
    let improved = pool.run(|| offer_in_turn(&[7, 9, 7, 3]));
    assert_eq!(improved, [true, false, false, true]);
    let offers = std::mem::take(&mut *ears.0.lock().expect("nobody panics"));
    let values: Vec<u64> = offers
        .iter()
        .map(|offer| postcard::from_bytes(&offer.value).expect("a number"))
        .collect();
    assert_eq!(values, [7, 3]);

    let lattices = satin::data::lattices();
    let join = |have: &Offer, new: &Offer| lattices.join(have.bound, &have.value, &new.value);
    assert_eq!(join(&offers[0], &offers[1]), Some(offers[1].value.clone()));
    assert_eq!(join(&offers[1], &offers[0]), None);

    // To the next root job, from another node; what cannot be read, and what nobody knows, does no harm.
    let root = RootName {
        number: offers[0].root.number + 1,
        ..offers[0].root
    };
    let number = pool.gate().number();
    for (bound, value) in [
        (offers[0].bound, vec![0x80]),
        (BoundName(1), vec![1]),
        (offers[0].bound, vec![5]),
    ] {
        satin::data::improve(number, &Offer { bound, root, value });
    }
    satin::data::improve(
        number + 1000,
        &Offer {
            root,
            ..offers[1].clone()
        },
    );
    assert_eq!(pool.run(|| what_is_known(true)), Some(5));
    assert!(ears.0.lock().expect("nobody panics").is_empty());
    assert_eq!(pool.run(|| what_is_known(false)), None);
    satin::data::forget_root(number + 1000, root);

    assert_eq!(pool.run(|| offer_in_turn(&[4])), [true]);
    assert_eq!(LEAST.get(), Some(4));
}
