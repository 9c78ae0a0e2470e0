//! How far a root job is, beside the number of its leaves that are done.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use common::{
    Watchdog,
    outside::{answer, await_flag, departures, during, family, flags, raise},
    wait_for,
};
use satin::{Satin, flow, spawn, spawnable, sync, task};

/// The leaves of a test that are done.
type Count = AtomicU64;

static LOOP: Count = AtomicU64::new(0);
static PAIRS: Count = AtomicU64::new(0);
static SHARED: Count = AtomicU64::new(0);
static FAR: Count = AtomicU64::new(0);
static MANY: Count = AtomicU64::new(0);
static NESTED: Count = AtomicU64::new(0);
static FLOW: Count = AtomicU64::new(0);
static INNER_FLOWS: Count = AtomicU64::new(0);
static BEFORE: Count = AtomicU64::new(0);

fn count(which: u8) -> &'static Count {
    [
        &LOOP,
        &PAIRS,
        &SHARED,
        &FAR,
        &MANY,
        &NESTED,
        &FLOW,
        &INNER_FLOWS,
        &BEFORE,
    ][usize::from(which)]
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

/// A long loop whose results are delivered in order: what was not stolen is turned round.
#[spawnable]
fn many(which: u8) -> u64 {
    let mut leaves = Vec::new();
    for _ in 0..1500 {
        leaves.push(spawn!(pairs(which, 0)));
    }
    leaves.iter().sum()
}

/// What is said while the job runs is never far from the truth, and never goes back. The most that was said.
fn watch(pool: &Satin, which: u8, leaves: u64, job: impl Fn() -> u64 + Sync) -> f64 {
    // Workers look up ten times a second, and the job takes more than a second.
    watch_with(pool, which, leaves, 0.2, job)
}

/// The same; what is said may lag behind by that part.
fn watch_with(pool: &Satin, which: u8, leaves: u64, lag: f64, job: impl Fn() -> u64 + Sync) -> f64 {
    let mut most: f64 = 0.0;
    // The workers look up when they are asked: what is said is about the time of the question before, or later.
    let mut at_last_question = 0.0;
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
            let range = f64::min(before, at_last_question) - lag..after + 0.05;
            at_last_question = before;
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
    // A worker that helps another notes nothing of its own job meanwhile.
    assert!(watch_with(&pool(3), 2, 2187, 0.4, || triples(2, 7)) > 0.6);
}

#[test]
fn of_one_long_loop_is_said_what_is_done() {
    let _watchdog = Watchdog::new("of_one_long_loop_is_said_what_is_done");
    assert!(watch_with(&pool(2), 4, 1500, 0.4, || many(4)) > 0.6);
}

/// A job that calls a spawnable function as an ordinary one.
#[spawnable]
fn nested(which: u8, depth: u32) -> u64 {
    if depth == 0 {
        return triples(which, 4); // of another function: not spawned
    }
    let a = nested(which, depth - 1);
    let b = nested(which, depth - 1);
    sync!();
    a + b
}

#[test]
fn what_a_nested_entry_does_is_not_taken_for_done() {
    let _watchdog = Watchdog::new("what_a_nested_entry_does_is_not_taken_for_done");
    // Inside of it nothing is seen: what is said lags behind by such an entry, or more.
    watch_with(&pool(1), 5, 8 * 81, 1.0, || nested(5, 3));
}

#[spawnable]
fn step(which: u8) -> u64 {
    leaf(which)
}

#[spawnable]
fn steps(which: u8, count: u32) -> u64 {
    flow!(|g| {
        let steps: Vec<_> = (0..count).map(|_| task!(g, step(which))).collect();
        g.take_all(steps).iter().sum()
    })
}

#[test]
fn of_a_flow_is_said_which_of_its_tasks_are_over() {
    let _watchdog = Watchdog::new("of_a_flow_is_said_which_of_its_tasks_are_over");
    for threads in [1, 2] {
        FLOW.store(0, SeqCst);
        assert!(watch(&pool(threads), 6, 700, || steps(6, 700)) > 0.7);
    }
}

#[spawnable]
fn flows_below(which: u8) -> u64 {
    let a = spawn!(steps(which, 300));
    let b = spawn!(steps(which, 300));
    sync!();
    a + b
}

#[test]
fn of_flows_below_other_jobs_too() {
    let _watchdog = Watchdog::new("of_flows_below_other_jobs_too");
    assert!(watch(&pool(1), 7, 600, || flows_below(7)) > 0.7);
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

/// The worker looked at another root job a moment ago, and sleeps while it waits for this one.
#[test]
fn a_root_job_that_waits_for_others_from_its_beginning_is_known() {
    let _watchdog = Watchdog::new("a_root_job_that_waits_for_others_from_its_beginning_is_known");
    let pool = pool(1);
    watch_with(&pool, 8, 128, 1.0, || pairs(8, 7));
    let [ready, on, ran] = flags();
    let sum = during(
        &pool,
        || family(2, ready, on, ran),
        |gate| {
            await_flag(ready);
            let both = departures(gate, 2);
            raise(on);
            for departure in &both {
                gate.note_part(*departure, 0.5);
            }
            wait_for("half of it", || {
                gate.progress().is_some_and(|progress| progress.done == 0.5)
            });
            for departure in both {
                assert!(gate.deliver(departure, answer(7)));
            }
        },
    );
    assert_eq!(sum, 14);
}
