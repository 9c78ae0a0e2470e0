//! Bounds that are read out, in pools whose master goes: a result that is used again brings the bounds that belong to it.

mod common;

use std::{ffi::OsString, time::Duration};

use common::{example, finish, has, run, start, wait_for};
use satin::{MinWith, spawn, spawnable, sync};
use satin_cli::{
    faults::Fault,
    pool::{Outcome, Output, Plan},
};
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

fn on(sites: &str, program: Vec<OsString>, faults: &[&str]) -> Plan {
    let faults = faults.iter().map(|fault| fault.parse().expect("a fault"));
    Plan {
        threads: Some(1),
        faults: faults.collect::<Vec<Fault>>(),
        output: Output::Keep,
        ..Plan::new(program, sites.parse().expect("sites"))
    }
}

fn searches(name: &str, arguments: &[&str]) -> Vec<OsString> {
    let arguments = arguments.iter().map(OsString::from);
    [example(name).into_os_string()]
        .into_iter()
        .chain(arguments)
        .collect()
}

/// The search ended well, and its own check of value and witness with it.
#[track_caller]
fn says(outcome: &Outcome, answer: &str) {
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.stdout.matches(answer).count(), 1, "{outcome:#?}");
}

#[test]
fn a_main_that_begins_again_reads_the_same() {
    let this = std::env::current_exe().expect("a test knows its own path");
    let program = ["program", "--exact", "--nocapture"].map(OsString::from);
    let mut plan = on(
        "a:3",
        [this.into()].into_iter().chain(program).collect(),
        &[],
    );
    plan.env.push((PROGRAM.into(), "1".into()));
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
    let instance = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/nug15.dat");
    let program = searches("qap", &[instance, "--cold"]);
    let outcome = run(on("a:4", program, &["drain master@1.2s"]));
    says(&outcome, "cost 1150 (the known optimum)\n");
}

#[test]
fn a_drained_site_takes_no_bound_along() {
    let items = ["--items", "200", "--extra", "100", "--spread", "0"];
    let program = searches("knapsack", &[&items[..], &["--seed", "6"]].concat());
    let outcome = run(on("a:2,b:2", program, &["drain a@1s"]));
    says(&outcome, "value 67257 (the optimum)\n");
}
