//! A job that kills whoever runs it, in pools of real processes.

mod common;

use std::{ffi::OsString, time::Duration};

use common::run;
use satin::{spawnable, sync};
use satin_cli::{
    pool::{Output, Plan, PoolOutcome},
    sites::Sites,
};
use satin_runtime::observe::events::Event;

/// Set where this test is the program of a node: the leaf that kills it.
const PROGRAM: &str = "SATIN_TEST_CRASHES";

/// Nodes that a job may take down, and those that may die before anybody knows that it is this job: the master that ran it
/// first, a second run of it beside the first, and one that begins with it in the second before the death of another is known.
const MOST: u32 = 3;
const SLACK: u32 = 3;

#[spawnable]
fn leaves(from: u32, to: u32, poison: u32) -> u32 {
    if to - from == 1 {
        if from == poison {
            std::process::abort();
        }
        std::thread::sleep(Duration::from_millis(20));
        return 1;
    }
    let middle = from.midpoint(to);
    let left = leaves(from, middle, poison);
    let right = leaves(middle, to, poison);
    sync!();
    left + right
}

/// Not a test: the program.
#[test]
fn program() {
    let Some(poison) = std::env::var(PROGRAM).ok() else {
        return;
    };
    let poison = poison.parse().expect("a leaf");
    satin::run(satin::Config::default(), || {
        println!("{} leaves", leaves(0, 256, poison));
    });
}

/// The work begins when all nodes are in: a node that has been let in by nobody but a master that this leaf kills at once would wait for a pool
/// that is gone.
fn poisoned(leaf: u32, sites: &str, threads: u32) -> PoolOutcome {
    let sites: Sites = sites.parse().expect("sites");
    let nodes: u32 = sites.0.iter().map(|site| site.nodes).sum();
    let this = std::env::current_exe().expect("a test knows its own path");
    let program = ["program", "--exact", "--nocapture"].map(OsString::from);
    let program = [this.into()].into_iter().chain(program);
    run(Plan {
        threads: Some(threads),
        env: vec![
            (PROGRAM.into(), leaf.to_string().into()),
            ("SATIN_MAX_CRASHES".into(), MOST.to_string().into()),
            ("SATIN_NODES".into(), nodes.to_string().into()),
        ],
        output: Output::Keep,
        ..Plan::new(program, sites)
    })
}

/// The run ends with the story of the job, and not with the last node.
#[track_caller]
fn is_given_up(outcome: &PoolOutcome) {
    assert_ne!(outcome.code, 0, "{outcome:#?}");
    let story = "error: a job was given up: ";
    assert!(outcome.stderr.contains(story), "{outcome:#?}");
    assert!(!outcome.stdout.contains("leaves\n"), "{outcome:#?}");
    let mut dead: Vec<_> = (outcome.records.iter())
        .filter_map(|record| match &record.event {
            Event::Dead { .. } => Some(&record.name),
            _ => None,
        })
        .collect();
    dead.sort_unstable();
    dead.dedup();
    assert!(
        dead.len() <= (MOST + SLACK) as usize,
        "{dead:?} died: {outcome:#?}"
    );
}

#[test]
fn a_leaf_that_the_master_would_run_first_is_given_up() {
    is_given_up(&poisoned(0, "a:7", 1));
}

#[test]
fn a_leaf_that_thieves_run_is_given_up() {
    is_given_up(&poisoned(255, "a:5,b:4", 1));
}

#[test]
fn a_leaf_is_given_up_where_nodes_have_two_workers() {
    is_given_up(&poisoned(100, "a:7", 2));
}

#[test]
fn without_such_a_leaf_nobody_dies() {
    let outcome = poisoned(1000, "a:3", 1);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.stdout.contains("256 leaves\n"), "{outcome:#?}");
}
