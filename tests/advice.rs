//! What is told of calls that run in sequence by accident. The program is this test itself, started again.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

use std::{process::Command, time::Duration};

use satin::{call, spawn, spawnable};

/// What the program does.
const WAY: &str = "SATIN_TEST_ADVICE";

/// Long enough for another worker to come, if there is anything to take.
#[spawnable]
fn work(n: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(15));
    n
}

#[spawnable]
fn plain(n: u64) -> u64 {
    let mut results = Vec::new();
    for i in 0..n {
        results.push(work(i)); // the place that is told
    }
    results.iter().sum()
}

#[spawnable]
fn meant(n: u64) -> u64 {
    let mut results = Vec::new();
    for i in 0..n {
        results.push(call!(work(i)));
    }
    results.iter().sum()
}

#[spawnable]
fn spawned(n: u64) -> u64 {
    let mut results = Vec::new();
    for i in 0..n {
        results.push(spawn!(work(i)));
    }
    results.iter().sum()
}

/// Not a test: the program.
#[test]
fn program() {
    let Ok(way) = std::env::var(WAY) else {
        return;
    };
    match &*way {
        "plain" => assert_eq!(plain(8), 28),
        "meant" => assert_eq!(meant(8), 28),
        "spawned" => (0..6).for_each(|_| assert_eq!(spawned(8), 28)),
        "from main" => assert_eq!((0..8).map(|i| work(i)).sum::<u64>(), 28),
        other => panic!("{other}?"),
    }
}

/// What the program says on stderr with two workers.
fn said(way: &str) -> String {
    let this = std::env::current_exe().expect("a test has a path");
    let output = Command::new(this)
        .args(["--exact", "program", "--nocapture"])
        .env(WAY, way)
        .env("SATIN_THREADS", "2")
        .env_remove("SATIN_LOG")
        .output()
        .expect("the test starts again");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn count(said: &str, what: &str) -> usize {
    said.matches(what).count()
}

#[test]
fn a_plain_call_in_a_job_is_told_once_and_where() {
    let said = said("plain");
    assert_eq!(count(&said, "a job calls `work`"), 1, "{said}");
    assert_eq!(count(&said, "tests/advice.rs:23:22"), 1, "{said}");
    assert!(said.contains("spawn!(work(..))"), "{said}");
}

#[test]
fn a_call_that_is_meant_is_not_told() {
    let said = said("meant");
    assert_eq!(count(&said, "a job calls"), 0, "{said}");
}

#[test]
fn root_jobs_one_after_the_other_are_told_once_if_nobody_could_help() {
    let said = said("from main");
    assert_eq!(count(&said, "ran one after the other"), 1, "{said}");
    assert_eq!(count(&said, "a job calls"), 0, "{said}");
}

#[test]
fn root_jobs_that_others_share_are_not_told() {
    let said = said("spawned");
    assert_eq!(count(&said, "ran one after the other"), 0, "{said}");
    assert_eq!(count(&said, "a job calls"), 0, "{said}");
}
