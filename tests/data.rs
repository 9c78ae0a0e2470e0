//! Shared values and bounds, in pools whose jobs leave the process as bytes and come back.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use common::{Habits, Watchdog, until};
use satin::{Satin, Shared, spawnable};
use serde::{Deserialize, Serialize};

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
    let table = Shared::new(Table((0..512).collect()));
    let all = 511 * 512 / 2;
    let alone = pool(2);
    assert_eq!(alone.run(|| sum(&table, 0, 512)), all);
    assert_eq!(SERIALIZED.load(SeqCst), 0);

    let (a, b) = (pool(1), pool(2));
    until(
        &a,
        &b,
        Habits::default(),
        |report| report.travelled > 1,
        || {
            assert_eq!(sum(&table, 0, 512), all);
            assert_eq!(sum_by_value(table.clone(), 0, 512), all);
        },
    );
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
    let (a, b) = (pool(1), pool(2));
    until(
        &a,
        &b,
        Habits::default(),
        |report| report.travelled > 1,
        || {
            let words = words(0, 256);
            let all = words.iter().zip(0..);
            assert!(all.clone().count() == 256);
            all.for_each(|(word, n)| assert_eq!(**word, format!("word {n}")));
        },
    );
}
