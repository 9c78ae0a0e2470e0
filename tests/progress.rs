//! How far a root job is, beside the number of its leaves that are done.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use common::Watchdog;
use satin::{Satin, spawnable, sync};

/// The leaves of a test that are done.
type Count = AtomicU64;

static LOOP: Count = AtomicU64::new(0);
static PAIRS: Count = AtomicU64::new(0);
static SHARED: Count = AtomicU64::new(0);
static FAR: Count = AtomicU64::new(0);

fn count(which: u8) -> &'static Count {
    [&LOOP, &PAIRS, &SHARED, &FAR][usize::from(which)]
}

/// Takes much longer than all around it.
fn leaf(which: u8) -> u64 {
    thread::sleep(Duration::from_millis(2));
    count(which).fetch_add(1, SeqCst);
    1
}

#[spawnable]
fn triples(which: u8, depth: u32) -> u64 {
    if depth == 0 {
        return leaf(which);
    }
    let mut leaves = 0;
    for _ in 0..3 {
        leaves += triples(which, depth - 1);
    }
    leaves
}

#[spawnable]
fn pairs(which: u8, depth: u32) -> u64 {
    if depth == 0 {
        return leaf(which);
    }
    let a = pairs(which, depth - 1);
    let b = pairs(which, depth - 1);
    sync!();
    a + b
}

/// What is said while the job runs is never far from the truth, and never goes back. The most that was said.
fn watch(pool: &Satin, which: u8, leaves: u64, job: impl Fn() -> u64 + Sync) -> f64 {
    let mut most: f64 = 0.0;
    thread::scope(|scope| {
        let running = scope.spawn(|| pool.run(&job));
        while !running.is_finished() {
            let before = count(which).load(SeqCst) as f64 / leaves as f64;
            let Some(progress) = pool.run(satin::progress) else {
                continue; // it has not begun, or is over
            };
            let after = count(which).load(SeqCst) as f64 / leaves as f64;
            assert!(progress.done >= most, "{progress:?} after {most}");
            most = progress.done;
            // Workers look up ten times a second, and the job takes more than a second.
            let range = before - 0.2..after + 0.05;
            assert!(
                range.contains(&most),
                "{progress:?}, but {before} to {after}"
            );
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(running.join().expect("no panic"), leaves);
    });
    assert_eq!(pool.run(satin::progress), None, "nothing is under way");
    most
}

fn pool(threads: usize) -> Satin {
    let builder = satin::builder().threads(threads).stack(16);
    builder.build().expect("a pool")
}

#[test]
fn of_loops_is_said_what_is_done() {
    let _watchdog = Watchdog::new("of_loops_is_said_what_is_done");
    assert!(watch(&pool(1), 0, 729, || triples(0, 6)) > 0.7);
}

#[test]
fn of_pairs_is_said_what_is_done() {
    let _watchdog = Watchdog::new("of_pairs_is_said_what_is_done");
    assert!(watch(&pool(1), 1, 512, || pairs(1, 9)) > 0.7);
}

#[test]
fn what_other_workers_have_done_counts() {
    let _watchdog = Watchdog::new("what_other_workers_have_done_counts");
    assert!(watch(&pool(3), 2, 2187, || triples(2, 7)) > 0.7);
}

#[test]
fn what_other_nodes_have_done_counts() {
    let _watchdog = Watchdog::new("what_other_nodes_have_done_counts");
    let key = tempfile::NamedTempFile::new().expect("a file");
    let text = satin::net::Credential::generate().expect("a key");
    std::fs::write(key.path(), text).expect("written");
    let node = |name: &str| {
        let builder = satin::builder().threads(1).pool("tests").name(name);
        builder.credential(key.path())
    };
    let first = node("first").listen("127.0.0.1:0").nodes(2u32);
    let first = first.build().expect("a founder");
    let addr = first.network().expect("a network").addr().to_string();
    let _second = node("second").join(addr).build().expect("let in");
    // Nodes tell each other once a second.
    let job = || pairs(3, 11);
    let mut most: f64 = 0.0;
    thread::scope(|scope| {
        let running = scope.spawn(|| first.run(job));
        while !running.is_finished() {
            if let Some(progress) = first.run(satin::progress) {
                assert!(progress.done >= most, "{progress:?} after {most}");
                most = progress.done;
            }
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(running.join().expect("no panic"), 2048);
    });
    // Without the other node's half it would stay below.
    assert!(most > 0.6, "{most}");
}
