//! Whole pools of real processes: the examples, unchanged, on several nodes at several sites.

mod common;

use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

use common::{ended_well, example, figures, finish, has, plan, run, start, wait_for};
use satin_cli::wan::{Cut, WanLink};
use satin_runtime::observe::events::{Event, Record};

/// That example prints that, on two sites of two nodes.
#[track_caller]
fn prints(name: &str, arguments: &[&str], expected: &str) {
    let outcome = run(plan(name, arguments, "2x2"));
    ended_well(&outcome);
    assert!(
        outcome.stdout.contains(expected),
        "expected {expected:?}: {outcome:#?}"
    );
}

/// What that example prints before its time on one process, to the last bit, it prints on two sites of two nodes.
#[track_caller]
fn prints_as_alone(name: &str, arguments: &[&str]) {
    let alone = std::process::Command::new(example(name))
        .args(arguments)
        .output()
        .expect("it starts");
    let alone = String::from_utf8_lossy(&alone.stdout).into_owned();
    let (answer, _) = alone
        .split_once("time ")
        .unwrap_or_else(|| panic!("no time: {alone}"));
    prints(name, arguments, answer);
}

#[test]
fn fib() {
    prints("fib", &["33"], "fib(33) = 3524578\n");
}

#[test]
fn fib_expression() {
    prints("fib_expression", &["33"], "fib(33) = 3524578\n");
}

#[test]
fn nqueens() {
    prints("nqueens", &["12"], "nqueens(12) = 14200 (ok)\n");
}

#[test]
fn quicksort() {
    prints("quicksort", &["300000"], "quicksort(300000) in order");
}

#[test]
fn sorts_by_value_and_with_a_buffer() {
    prints_as_alone("mergesort", &["100000"]);
    prints_as_alone("cilksort", &["100000"]);
}

#[test]
fn fft() {
    prints_as_alone("fft", &["15"]);
}

#[test]
fn products_of_matrices() {
    prints_as_alone("strassen", &["256"]);
    prints_as_alone("strassen", &["256", "--plain"]);
}

#[test]
fn mandelbrot() {
    let steps = "mandelbrot(512 x 512) right, 17296704 steps, area ";
    prints("mandelbrot", &["9"], steps);
}

#[test]
fn treesum_of_a_tree_that_is_moved_or_shared() {
    let sum = "treesum(20000) = 9803927361871283201 (ok)\n";
    prints("treesum", &["20000"], sum);
    prints("treesum", &["20000", "--shared"], sum);
}

#[test]
fn uts() {
    prints(
        "uts",
        &["--tree", "T3"],
        "T3: 4112897 nodes, depth 1572, 3599034 leaves (ok)\n",
    );
}

#[test]
fn tsp() {
    prints("tsp", &[], "cost 3323 (the known optimum)\n");
}

#[test]
fn sat() {
    prints("sat", &["--pigeons", "7"], "\nUNSATISFIABLE\n");
    prints("sat", &["--random", "60"], "SATISFIABLE\n");
}

#[test]
fn qap() {
    let alone = std::process::Command::new(example("qap"))
        .output()
        .expect("it starts");
    let alone = String::from_utf8_lossy(&alone.stdout).into_owned();
    let cost = alone
        .lines()
        .find(|line| line.contains("cost"))
        .unwrap_or_else(|| panic!("no cost: {alone}"));
    prints("qap", &[], cost);
}

#[test]
fn knary() {
    prints("knary", &["4", "5", "1000"], "knary(4, 5) = 625 leaves");
}

/// The same picture, to the last bit, as on one machine.
#[test]
fn raytracer() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (alone, together) = (
        scratch.path().join("alone.png"),
        scratch.path().join("together.png"),
    );
    let size = ["--width", "160", "--height", "90", "--samples", "2"];
    let arguments = |out: &Path| -> Vec<OsString> {
        let out = [OsString::from("--out"), out.into()];
        size.iter().map(OsString::from).chain(out).collect()
    };
    let status = std::process::Command::new(example("raytracer"))
        .args(arguments(&alone))
        .output()
        .expect("it starts")
        .status;
    assert!(status.success());
    let mut plan = plan("raytracer", &[], "2x2");
    plan.program.extend(arguments(&together));
    ended_well(&run(plan));
    let read = |path: &Path| std::fs::read(path).expect("a picture");
    assert!(read(&alone) == read(&together), "the pictures differ");
}

#[test]
fn what_happens_is_told_in_order() {
    let outcome = run(plan("fib", &["25"], "amsterdam:1,delft:2"));
    ended_well(&outcome);
    let at = |name: &str, what: fn(&Event) -> bool| {
        let is = |record: &Record| record.name == name && what(&record.event);
        let place = outcome.records.iter().position(is);
        place.unwrap_or_else(|| panic!("nothing of the kind about {name}: {outcome:#?}"))
    };
    let listens = |event: &Event| matches!(event, Event::Node { .. });
    let joined = |event: &Event| matches!(event, Event::Joined { .. });
    let started = at("amsterdam-0", |event| {
        matches!(event, Event::RootStarted { .. })
    });
    let finished = at("amsterdam-0", |event| {
        matches!(event, Event::RootFinished { .. })
    });
    let ended = at("amsterdam-0", |event| {
        matches!(event, Event::PoolEnded { .. })
    });
    assert!(
        at("amsterdam-0", listens)
            < at("amsterdam-0", |event| matches!(event, Event::Master { .. }))
    );
    for name in ["delft-0", "delft-1"] {
        assert!(at(name, listens) < at(name, joined));
        // The first root job waits for all three.
        assert!(at(name, joined) < finished);
        figures(&outcome, name);
    }
    assert!(started < finished && finished < ended);
    assert!(
        !outcome
            .records
            .iter()
            .any(|record| matches!(record.event, Event::Dead { .. } | Event::Unknown))
    );
}

#[test]
fn a_node_that_joins_later_helps() {
    // 3,125 leaves of 20 ms: a minute for one, and nobody waits for four.
    let mut lone = plan("knary", &["5", "5", "20000", "--sleep"], "a:1");
    lone.wan = Some(WanLink::default());
    let mut pool = start(lone);
    wait_for(&mut pool, |records| {
        has(records, "a-0", |event| {
            matches!(event, Event::RootStarted { .. })
        })
    });
    let began = Instant::now();
    for site in ["a", "b", "b", "b", "b", "b"] {
        pool.add(site).expect("added");
    }
    for name in ["a-1", "b-0", "b-4"] {
        wait_for(&mut pool, |records| {
            has(records, name, |event| matches!(event, Event::Joined { .. }))
        });
    }
    let took = began.elapsed();
    let outcome = finish(pool);
    ended_well(&outcome);
    for name in ["a-1", "b-0", "b-4"] {
        assert!(figures(&outcome, name).jobs > 0, "{outcome:#?}");
    }
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_sort_is_not_dragged_to_a_site_that_is_not_worth_it() {
    let mut slow = plan("mergesort", &["4000000"], "a:1,b:1");
    slow.wan = Some(WanLink {
        rtt: Duration::from_millis(20),
        rate: Some(100_000_000),
        ..WanLink::default()
    });
    let outcome = run(slow);
    ended_well(&outcome);
    assert!(outcome.stdout.contains("mergesort(4000000) in order"));
    assert!(figures(&outcome, "a-0").tally.not_worth > 0, "{outcome:#?}");
    // Half of the numbers are 16 MB: there and back they would take 2.6 s.
    let back = figures(&outcome, "b-0").bytes_sent;
    assert!(back < 8_000_000, "{back} bytes: {outcome:#?}");
}

#[test]
fn a_link_that_loses_and_delays_loses_no_job() {
    let mut bad = plan("nqueens", &["12"], "2x2");
    bad.wan = Some(WanLink {
        rtt: Duration::from_millis(20),
        rate: Some(20_000_000),
        loss: 0.02,
        jitter: Duration::from_millis(5),
    });
    let outcome = run(bad);
    ended_well(&outcome);
    assert!(
        outcome.stdout.contains("nqueens(12) = 14200 (ok)\n"),
        "{outcome:#?}"
    );
}

#[test]
fn a_short_partition_loses_nothing() {
    let mut pool = start(plan("knary", &["5", "5", "5000", "--sleep"], "a:1,b:2"));
    wait_for(&mut pool, |records| {
        has(records, "a-0", |event| {
            matches!(event, Event::RootStarted { .. })
        })
    });
    let wan = pool.wan().expect("sites");
    wan.partition("a", "b", Cut::Silence);
    std::thread::sleep(Duration::from_millis(500)); // the partition itself
    wan.heal();
    let outcome = finish(pool);
    ended_well(&outcome);
    assert!(outcome.stdout.contains("= 3125 leaves"), "{outcome:#?}");
}

#[test]
fn the_code_is_that_of_the_masters_main() {
    let outcome = run(plan("tsp", &["/nonexistent/file.tsp"], "2x2"));
    assert_eq!(outcome.code, 1, "{outcome:#?}");
    let ended = |record: &Record| matches!(record.event, Event::PoolEnded { .. });
    assert!(outcome.records.iter().any(ended), "{outcome:#?}");
    let complaints = outcome.stderr.matches("/nonexistent/file.tsp").count();
    assert_eq!(complaints, 1, "only the master runs `main`: {outcome:#?}");
}

#[test]
fn arguments_that_make_no_sense_are_told_once() {
    let outcome = run(plan("fib", &["a-lot"], "2x2"));
    assert_eq!(outcome.code, 2, "{outcome:#?}");
    assert_eq!(
        outcome.stderr.matches("invalid value").count(),
        1,
        "{outcome:#?}"
    );
}

#[test]
fn ctrl_c_ends_every_node_at_once() {
    let mut pool = start(plan("knary", &["9", "9", "1000", "--sleep"], "2x2"));
    wait_for(&mut pool, |records| {
        has(records, "s0-0", |event| {
            matches!(event, Event::RootStarted { .. })
        })
    });
    let began = Instant::now();
    pool.stopper().stop(2);
    let outcome = finish(pool);
    assert_eq!(outcome.code, 130, "{outcome:#?}");
    assert!(
        outcome
            .stderr
            .contains("satin: interrupted: all nodes are stopped")
    );
    // The last node finds that nobody is left who could be master.
    let noise = ["begins again", "error:"];
    assert!(
        !noise.iter().any(|noise| outcome.stderr.contains(noise)),
        "{outcome:#?}"
    );
    assert_eq!(outcome.nodes.len(), 4);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn every_policy_gets_there() {
    for policy in ["crs", "rs", "mw"] {
        let mut plan = plan("nqueens", &["11"], "2x2");
        plan.steal = Some(policy.into());
        let outcome = run(plan);
        ended_well(&outcome);
        assert!(
            outcome.stdout.contains("nqueens(11) = 2680 (ok)\n"),
            "{outcome:#?}"
        );
    }
}
