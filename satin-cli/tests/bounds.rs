//! Bounds that are read out, in pools whose master goes: a result that is used again brings the bounds that belong to it.

mod common;

use std::{ffi::OsString, time::Duration};

use common::{KNAPSACK, QAP, Search, faults, finish, has, plan, run, start, wait_for};
use satin::{MinWith, spawn, spawnable, sync};
use satin_cli::pool::{Output, Plan};
use satin_runtime::{job::RootTag, observe::events::Event};

/// Set where this test is the program of a node.
const PROGRAM: &str = "SATIN_TEST_BOUNDS";

satin::bound! {
    /// The cheapest leaf, and its number.
    static CHEAPEST: MinWith<u64, Vec<u32>>;
}

/// Offers what the leaves cost.
#[spawnable]
fn leaves(from: u32, to: u32) {
    if to - from == 1 {
        CHEAPEST.offer(u64::from(from.abs_diff(11)) + 5, vec![from]);
        return;
    }
    let middle = from.midpoint(to);
    spawn!(leaves(from, middle));
    spawn!(leaves(middle, to));
    sync!();
}

/// Takes a while on a few nodes.
#[spawnable]
fn pauses(count: u32) -> u32 {
    let mut ended = Vec::new();
    for _ in 0..count {
        ended.push(pause(200));
    }
    sync!();
    ended.into_iter().sum()
}

#[spawnable]
fn pause(ms: u64) -> u32 {
    std::thread::sleep(Duration::from_millis(ms));
    1
}

/// Not a test: the program.
#[test]
fn program() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    satin::run(satin::Config::default(), || {
        leaves(0, 64);
        println!("first: {:?}", CHEAPEST.get());
        println!("second: {}", pauses(40));
    });
}

/// That search on these sites, and what is to happen to it: it ends well, and its own check of value and witness with it.
#[track_caller]
fn is_right(search: &Search, sites: &str, what: &[&str]) {
    let outcome = run(Plan {
        wan: None,
        faults: faults(what),
        ..plan(search.name, search.arguments, sites)
    });
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let answers = outcome.stdout.matches(search.answer).count();
    assert_eq!(answers, 1, "{outcome:#?}");
}

#[test]
fn a_main_that_begins_again_reads_the_same() {
    let this = std::env::current_exe().expect("a test knows its own path");
    let program = ["program", "--exact", "--nocapture"].map(OsString::from);
    let program = [this.into()].into_iter().chain(program);
    let plan = Plan {
        threads: Some(1),
        env: vec![(PROGRAM.into(), "1".into())],
        output: Output::Keep,
        ..Plan::new(program, "a:3".parse().expect("sites"))
    };
    let mut pool = start(plan);
    wait_for(&mut pool, |records| {
        has(records, "a-0", |event| {
            let second = |root: &RootTag| root.number == 1;
            matches!(event, Event::RootStarted { root } if second(root))
        })
    });
    pool.signal("a-0", 9);
    let outcome = finish(pool);
    let next = |event: &Event| matches!(event, Event::Master { term: 1, .. });
    let next = (outcome.records.iter()).find(|record| next(&record.event));
    assert!(next.is_some(), "{outcome:#?}");
    let told = "first: Some((5, [11]))\n";
    assert!(outcome.stdout.contains(told), "{outcome:#?}");
    assert!(!outcome.stdout.contains("None"), "{outcome:#?}");
    assert!(outcome.stdout.contains("second: 40\n"), "{outcome:#?}");
}

#[test]
fn a_drained_master_takes_no_bound_along() {
    is_right(&QAP, "a:4", &["drain master@1.2s"]);
}

#[test]
fn a_drained_site_takes_no_bound_along() {
    is_right(&KNAPSACK, "a:2,b:2", &["drain a@1s"]);
}
