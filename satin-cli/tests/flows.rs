//! Flows in pools of real processes, of which some die, leave or come: the answer is that of the program text.

mod common;

use std::{ffi::OsString, time::Duration};

use common::{faults, run};
use satin::{Handle, flow, r, rw, spawnable, task};
use satin_cli::pool::{Output, Plan, PoolOutcome};
use satin_runtime::observe::events::{Event, Record};

/// Set where this test is the program of a node: to the program's name.
const PROGRAM: &str = "SATIN_TEST_FLOWS";
const CHANGE: &str = "wavefront";
const READ: &str = "readers";
const PASS_ON: &str = "chains";
const MAKE: &str = "makers";

/// Rows and columns of the cells, and how often all of them are changed. Each change takes a while.
const SIDE: usize = 6;
const SWEEPS: usize = 20;

fn next(cell: u64, left: u64, above: u64) -> u64 {
    let seen = cell.rotate_left(7) ^ left.rotate_left(13) ^ above.rotate_left(29);
    seen.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1)
}

#[spawnable]
fn change(cell: &mut u64, left: &u64, above: &u64) {
    std::thread::sleep(Duration::from_millis(10));
    *cell = next(*cell, *left, *above);
}

/// A wavefront: a cell waits for the one to the left and the one above.
#[spawnable]
fn wavefront(sweeps: usize) -> u64 {
    flow!(|g| {
        let edge = g.data(0);
        let row = |y: usize| (0..SIDE).map(|x| g.data((y * SIDE + x) as u64)).collect();
        let cells: Vec<Vec<Handle<u64>>> = (0..SIDE).map(row).collect();
        for _ in 0..sweeps {
            for y in 0..SIDE {
                for x in 0..SIDE {
                    let left = if x == 0 { edge } else { cells[y][x - 1] };
                    let above = if y == 0 { edge } else { cells[y - 1][x] };
                    task!(g, change(rw(cells[y][x]), r(left), r(above)));
                }
            }
        }
        let all = g.take_all(cells).into_iter().flatten();
        all.fold(0, |sum, cell| next(sum, cell, 0))
    })
}

/// What all readers read, and how many they are.
const NUMBERS: u64 = 500_000;
const READERS: usize = 1000;

#[spawnable]
fn read(numbers: &[u64], at: usize) -> u64 {
    std::thread::sleep(Duration::from_millis(10));
    numbers[at]
}

/// Many tasks that read the same large data.
#[spawnable]
fn readers() -> u64 {
    flow!(|g| {
        let numbers: Vec<u64> = (0..NUMBERS)
            .map(|at| at.wrapping_mul(0x9e37_79b9))
            .collect();
        let numbers = g.data(numbers);
        let read: Vec<Handle<u64>> = (0..READERS)
            .map(|at| task!(g, read(r(numbers), at)))
            .collect();
        g.take_all(read).into_iter().fold(0, u64::wrapping_add)
    })
}

fn answer_of_readers() -> String {
    let read = (0..READERS as u64).map(|at| at.wrapping_mul(0x9e37_79b9));
    format!("readers {:016x}\n", read.fold(0, u64::wrapping_add))
}

/// How many chains there are, of how many steps, so that they take longer than it takes to find a death, and how many numbers each step
/// changes: more bytes than come home of so short a task.
const CHAINS: u64 = 8;
const STEPS: u64 = 120;
const LENGTH: u64 = 100_000;

fn stepped(number: u64, step: u64) -> u64 {
    next(number, step, 7)
}

#[spawnable]
fn step(numbers: &mut Vec<u64>, at: u64) {
    std::thread::sleep(Duration::from_millis(10));
    for number in numbers {
        *number = stepped(*number, at);
    }
}

/// Each step changes what the one before has left.
#[spawnable]
fn chains() -> u64 {
    flow!(|g| {
        let begin = |chain| (0..LENGTH).map(|at| at ^ (chain << 32)).collect();
        let chains: Vec<Handle<Vec<u64>>> = (0..CHAINS).map(|chain| g.data(begin(chain))).collect();
        for at in 0..STEPS {
            for chain in &chains {
                task!(g, step(rw(*chain), at));
            }
        }
        let all = g.take_all(chains).into_iter().flatten();
        all.fold(0, |sum, number| next(sum, number, 0))
    })
}

fn answer_of_chains() -> String {
    let all = (0..CHAINS).flat_map(|chain| (0..LENGTH).map(move |at| at ^ (chain << 32)));
    let ends = all.map(|number| (0..STEPS).fold(number, stepped));
    let sum = ends.fold(0, |sum, number| next(sum, number, 0));
    format!("chains {sum:016x}\n")
}

/// How many tasks make data of their own, and how many numbers each makes: more bytes than come home of so short a task.
const MAKERS: u64 = 500;
const NUMBERS_MADE: u64 = 20_000;

fn made(maker: u64) -> impl Iterator<Item = u64> {
    (0..NUMBERS_MADE).map(move |at| stepped(at, maker))
}

#[spawnable]
fn make(maker: u64) -> Vec<u64> {
    std::thread::sleep(Duration::from_millis(10));
    made(maker).collect()
}

#[spawnable]
fn grow(numbers: &[u64]) -> Vec<u64> {
    std::thread::sleep(Duration::from_millis(10));
    grown(numbers.iter().copied()).collect()
}

fn grown(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    numbers.map(|number| number.rotate_left(1))
}

#[spawnable]
fn digest(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |all, number| next(all, *number, 0))
}

/// Nothing is changed, and all data stay until the end, as their handles do.
#[spawnable]
fn makers() -> u64 {
    flow!(|g| {
        let all: Vec<Handle<u64>> = (0..MAKERS)
            .map(|maker| {
                let made = task!(g, make(maker));
                let grown = task!(g, grow(r(made)));
                task!(g, digest(r(grown)))
            })
            .collect();
        g.take_all(all).into_iter().fold(0, u64::wrapping_add)
    })
}

fn answer_of_makers() -> String {
    let digest = |maker| grown(made(maker)).fold(0, |all, number| next(all, number, 0));
    let all = (0..MAKERS).map(digest);
    format!("makers {:016x}\n", all.fold(0, u64::wrapping_add))
}

fn answer() -> String {
    let mut cells: Vec<u64> = (0..SIDE * SIDE).map(|cell| cell as u64).collect();
    for _ in 0..SWEEPS {
        for at in 0..cells.len() {
            let left = if at % SIDE == 0 { 0 } else { cells[at - 1] };
            let above = if at < SIDE { 0 } else { cells[at - SIDE] };
            cells[at] = next(cells[at], left, above);
        }
    }
    let sum = cells.into_iter().fold(0, |sum, cell| next(sum, cell, 0));
    format!("wavefront {sum:016x}\n")
}

/// Not a test: the program.
#[test]
fn program() {
    let Some(program) = std::env::var_os(PROGRAM) else {
        return;
    };
    satin::run(satin::Config::default(), || match program.to_str() {
        Some(READ) => println!("readers {:016x}", readers()),
        Some(PASS_ON) => println!("chains {:016x}", chains()),
        Some(MAKE) => println!("makers {:016x}", makers()),
        _ => println!("wavefront {:016x}", wavefront(SWEEPS)),
    });
}

/// Runs it on these sites while that happens.
#[track_caller]
fn is_right(sites: &str, what: &[&str]) -> PoolOutcome {
    gives(CHANGE, &answer(), sites, what)
}

#[track_caller]
fn gives(name: &str, answer: &str, sites: &str, what: &[&str]) -> PoolOutcome {
    let this = std::env::current_exe().expect("a test knows its own path");
    let program = ["program", "--exact", "--nocapture"].map(OsString::from);
    let program = [this.into()].into_iter().chain(program);
    let outcome = run(Plan {
        threads: Some(2),
        faults: faults(what),
        env: vec![
            (PROGRAM.into(), name.into()),
            ("SATIN_GRACE".into(), "1".into()),
            ("SATIN_MAX_CRASHES".into(), "20".into()),
        ],
        output: Output::Keep,
        ..Plan::new(program, sites.parse().expect("sites"))
    });
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.stdout.matches(answer).count(), 1, "{outcome:#?}");
    outcome
}

#[test]
fn tasks_run_on_all_nodes() {
    let outcome = is_right("a:3", &[]);
    for name in ["a-0", "a-1", "a-2"] {
        let figures = common::figures(&outcome, name);
        assert!(name == "a-0" || figures.jobs > 0, "{name}: {outcome:#?}");
    }
}

#[test]
fn nodes_with_tasks_may_die() {
    let outcome = is_right("a:3", &["kill a-1@0.6s", "kill a-2@1.2s"]);
    let deaths = outcome.records.iter();
    assert!(
        deaths
            .filter(|record| matches!(record.event, Event::Dead { .. }))
            .count()
            > 0
    );
    let told = outcome.records.iter().map(|record| match &record.event {
        Event::PutBack { jobs } => jobs.values().sum(),
        _ => 0,
    });
    let counted = outcome.records.iter().map(|record| match &record.event {
        Event::Stats(figures) => figures.tally.repairs,
        _ => 0,
    });
    let (told, counted): (u64, u64) = (told.sum(), counted.sum());
    assert_eq!(told, counted, "{outcome:#?}");
    let is_said = outcome.stderr.contains("; done again: ");
    assert_eq!(is_said, told > 0, "{outcome:#?}");
}

#[test]
fn the_node_that_runs_the_closure_may_die() {
    is_right("a:3", &["kill master@0.7s"]);
}

#[test]
fn all_but_one_may_die() {
    is_right(
        "a:2,b:2",
        &["kill b-1@0.3s", "kill master@0.6s", "kill master@1.5s"],
    );
}

#[test]
fn nodes_may_come_and_leave() {
    is_right(
        "a:2",
        &["join c@0.2s", "drain a-1@0.5s", "drain master@0.9s"],
    );
}

#[test]
fn what_tasks_read_travels_to_a_node_once() {
    let outcome = gives(READ, &answer_of_readers(), "a:2", &[]);
    let [here, there] = ["a-0", "a-1"].map(|name| common::figures(&outcome, name));
    assert!(there.jobs > 10, "{outcome:#?}");
    // Once, and half a megabyte to find out how fast the link is.
    assert!(here.bytes_sent < 3 * 8 * NUMBERS, "{outcome:#?}");
}

#[test]
fn what_tasks_read_is_had_from_whoever_lives() {
    for faults in [
        &["kill b-0@0.5s", "kill a-1@0.8s"][..],
        &["kill master@0.6s"],
    ] {
        let outcome = gives(READ, &answer_of_readers(), "a:2,b:2", faults);
        let dead = |record: &&Record| matches!(record.event, Event::Dead { .. });
        assert!(
            outcome.records.iter().filter(dead).count() > 0,
            "{outcome:#?}"
        );
        let worked = |name| common::figures(&outcome, name).jobs > 0;
        assert!(worked("b-1"), "{outcome:#?}");
    }
}

#[test]
fn what_tasks_pass_on_stays_where_it_was_made() {
    let outcome = gives(PASS_ON, &answer_of_chains(), "a:2", &[]);
    let [home, there] = ["a-0", "a-1"].map(|name| common::figures(&outcome, name));
    assert!(there.jobs > 10, "{outcome:#?}");
    let made = there.jobs * LENGTH * 8;
    assert!(home.bytes_received < made / 2, "{made}: {outcome:#?}");
}

#[test]
fn what_nodes_kept_that_die_is_made_again() {
    for faults in [
        &["kill b-0@0.5s", "kill a-1@0.8s", "kill b-1@1.2s"][..],
        &["kill b-1@0.5s", "kill master@0.8s"],
    ] {
        let outcome = gives(PASS_ON, &answer_of_chains(), "a:2,b:2", faults);
        let dead = |record: &&Record| matches!(record.event, Event::Dead { .. });
        assert!(
            outcome.records.iter().filter(dead).count() > 0,
            "{outcome:#?}"
        );
    }
}

/// The tasks that nobody has are run by all that live, and not only by the node that runs the closure now.
#[test]
fn a_flow_whose_node_died_is_run_by_all_that_live() {
    let outcome = gives(READ, &answer_of_readers(), "a:3", &["kill master@0.6s"]);
    let jobs = ["a-1", "a-2"].map(|name| common::figures(&outcome, name).jobs);
    // Before the death each had run some hundred, and now it is the half of the rest for the one that does not run the closure.
    let most = jobs.into_iter().max().unwrap_or(0);
    assert!(most > READERS as u64 / 4, "{jobs:?}: {outcome:#?}");
}

#[test]
fn what_nodes_keep_for_a_flow_whose_node_died_is_found() {
    let outcome = gives(MAKE, &answer_of_makers(), "a:3", &["kill master@0.9s"]);
    let tallies = ["a-1", "a-2"].map(|name| common::figures(&outcome, name).tally);
    let (kept, hits): (u64, u64) = (
        tallies.iter().map(|tally| tally.kept).sum(),
        tallies.iter().map(|tally| tally.hits).sum(),
    );
    assert!(kept > 20 && hits > 20, "{tallies:?}: {outcome:#?}");
}

#[test]
fn what_a_node_keeps_that_leaves_comes_home() {
    let faults = ["join c@0.2s", "drain a-1@0.5s", "drain c-0@1s"];
    gives(PASS_ON, &answer_of_chains(), "a:2", &faults);
}
