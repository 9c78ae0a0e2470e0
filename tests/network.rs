//! Pools of several nodes over real sockets, all in this process.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    collections::BTreeSet,
    sync::Mutex,
    time::{Duration, Instant},
};

use bytemuck::{Pod, Zeroable};
use common::{PATIENCE, Watchdog};
use satin::{BuildError, Builder, Cancel, Cancelled, Satin, Shared, spawnable, sync};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// A credential that goes with the test.
fn key() -> NamedTempFile {
    let key = NamedTempFile::new().expect("a file");
    let text = satin::net::Credential::generate().expect("a key");
    std::fs::write(key.path(), text).expect("written");
    key
}

fn builder(name: &str, key: &NamedTempFile, threads: usize) -> Builder {
    satin::builder()
        .threads(threads)
        .credential(key.path())
        .pool("tests")
        .name(name)
}

fn address(pool: &Satin) -> String {
    pool.network().expect("a network").addr().to_string()
}

/// `nodes` nodes; the first is the master.
fn pool(nodes: usize, threads: usize) -> Vec<Satin> {
    let key = key();
    let first = builder("n0", &key, threads).listen("127.0.0.1:0");
    let mut pool = vec![first.build().expect("a founder")];
    for n in 1..nodes {
        let join = address(&pool[0]);
        let more = builder(&format!("n{n}"), &key, threads).join(join);
        pool.push(more.build().expect("let in"));
    }
    pool
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let x = fib(n - 1);
    let y = fib(n - 2);
    sync!();
    x + y
}

/// Leaves that wait until so many nodes run one of them.
#[spawnable]
fn meet(depth: u32, nodes: usize, place: usize) {
    if depth == 0 {
        wait_for_nodes(nodes, place);
        return;
    }
    meet(depth - 1, nodes, place);
    meet(depth - 1, nodes, place);
    sync!();
}

fn wait_for_nodes(nodes: usize, place: usize) {
    let since = Instant::now();
    let me = satin::node().name;
    MET.lock().expect("no panic")[place].insert(me);
    while MET.lock().expect("no panic")[place].len() < nodes {
        assert!(since.elapsed() < PATIENCE, "the others did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

static MET: Mutex<[BTreeSet<String>; 5]> = Mutex::new([const { BTreeSet::new() }; 5]);

#[test]
fn two_nodes_share_the_work() {
    let _watchdog = Watchdog::new("two_nodes_share_the_work");
    let nodes = pool(2, 1);
    nodes[0].run(|| meet(3, 2, 0));
    for n in [10, 20, 30] {
        assert_eq!(
            nodes[0].run(|| fib(n)),
            [55, 6765, 832_040][n as usize / 10 - 1]
        );
    }
}

/// Leaves of 10 ms, more of them than could ever be done.
#[spawnable]
fn long_search(depth: u32, place: usize) -> u64 {
    if depth == 60 {
        let me = satin::node().name;
        MET.lock().expect("no panic")[place].insert(me);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(10) {
            std::hint::spin_loop();
        }
        return 1;
    }
    long_search(depth + 1, place) + long_search(depth + 1, place)
}

#[test]
fn a_cancelled_call_stops_on_all_nodes_and_the_pool_goes_on() {
    const PLACE: usize = 4;
    let _watchdog = Watchdog::new("a_cancelled_call_stops_on_all_nodes_and_the_pool_goes_on");
    let nodes = pool(2, 2);
    for _ in 0..3 {
        MET.lock().expect("no panic")[PLACE].clear();
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            let search = || nodes[0].run_cancellable(&cancel, || long_search(0, PLACE));
            let run = scope.spawn(search);
            let met = || MET.lock().expect("no panic")[PLACE].len() == 2;
            wait_for("a job on each node", met);
            let since = Instant::now();
            cancel.cancel();
            assert_eq!(run.join().expect("no panic"), Err(Cancelled));
            let returned = since.elapsed();
            let are_idle = || nodes.iter().all(|node| node.gate().idle() == 2);
            wait_for("all workers are idle", are_idle);
            println!(
                "returned after {returned:?}, idle after {:?}",
                since.elapsed()
            );
        });
        assert_eq!(nodes[0].run(|| fib(20)), 6765);
    }
}

/// Plain data: its sequences travel as they lie in memory.
#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable, Serialize, Deserialize)]
#[repr(C)]
struct Complex {
    re: f64,
    im: f64,
}

/// Turns the values by a quarter, and returns them times their part of a shared value.
#[spawnable]
fn turn(values: &mut [Complex], at: usize, factors: &Shared<Vec<Complex>>) -> Vec<Complex> {
    if values.len() <= 200 {
        wait_for_nodes(2, 3);
        return turn_all(values, &factors[at..]);
    }
    let half = values.len() / 2;
    let (left, right) = values.split_at_mut(half);
    let a = turn(left, at, factors);
    let b = turn(right, at + half, factors);
    sync!();
    [a, b].concat()
}

fn turn_all(values: &mut [Complex], factors: &[Complex]) -> Vec<Complex> {
    for Complex { re, im } in values.iter_mut() {
        (*re, *im) = (-*im, *re);
    }
    let pairs = values.iter().zip(factors);
    let times = pairs.map(|(a, b)| Complex {
        re: a.re * b.re - a.im * b.im,
        im: a.re * b.im + a.im * b.re,
    });
    times.collect()
}

#[test]
fn plain_data_goes_to_another_node_and_comes_back() {
    let _watchdog = Watchdog::new("plain_data_goes_to_another_node_and_comes_back");
    let nodes = pool(2, 1);
    let mut values: Vec<Complex> = (0..5000u16)
        .map(|n| Complex {
            re: n.into(),
            im: 0.25,
        })
        .collect();
    let factors = values.clone();
    let mut turned = values.clone();
    let expected = turn_all(&mut turned, &factors);
    let answer = nodes[0].run(|| turn(&mut values, 0, &Shared::new(factors.clone())));
    assert_eq!((values, answer), (turned, expected));
}

#[test]
fn five_nodes_share_the_work() {
    let _watchdog = Watchdog::new("five_nodes_share_the_work");
    let nodes = pool(5, 1);
    nodes[0].run(|| meet(6, 5, 1));
    assert_eq!(nodes[0].run(|| fib(32)), 2_178_309);
}

fn nodes() -> usize {
    satin::node().nodes
}

fn nodes_after_wait() -> usize {
    satin::wait_for_nodes();
    nodes()
}

#[test]
fn root_jobs_wait_until_enough_nodes_are_in() {
    let _watchdog = Watchdog::new("root_jobs_wait_until_enough_nodes_are_in");
    let key = key();
    let first = builder("n0", &key, 1).listen("127.0.0.1:0").nodes(2);
    let first = first.build().expect("a founder");
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| first.run(|| (fib(5), nodes())));
        let waits = scope.spawn(|| first.run(nodes_after_wait));
        assert_eq!(first.run(nodes), 1);
        let second = builder("n1", &key, 1).join(address(&first)).build();
        let _second = second.expect("let in");
        assert_eq!(answer.join().expect("no panic"), (5, 2));
        assert_eq!(waits.join().expect("no panic"), 2);
        assert_eq!(first.run(nodes_after_wait), 2, "at once");
    });
}

#[test]
fn a_node_that_leaves_or_is_ended_says_goodbye() {
    let _watchdog = Watchdog::new("a_node_that_leaves_or_is_ended_says_goodbye");
    let mut nodes = pool(3, 1);
    let size = |nodes: &[Satin], at: usize| nodes[at].run(|| satin::node().nodes);
    wait_for("meeting", || (0..3).all(|at| size(&nodes, at) == 3));
    drop(nodes.pop());
    wait_for("the goodbye", || (0..2).all(|at| size(&nodes, at) == 2));
    let last = nodes.pop().expect("there are two");
    drop(nodes);
    let code = last.network().expect("a network").wait_until_over();
    assert_eq!(code.expect("a regular end"), 0);
    // It goes on alone.
    assert_eq!(last.run(|| fib(15)), 610);
}

#[test]
fn who_is_refused_is_told_why_and_what_to_do() {
    let _watchdog = Watchdog::new("who_is_refused_is_told_why_and_what_to_do");
    let (right, wrong) = (key(), key());
    let first = builder("n0", &right, 1).listen("127.0.0.1:0").build();
    let first = first.expect("a founder");
    let refused = builder("n1", &wrong, 1).join(address(&first)).build();
    let Err(BuildError::Network(error)) = refused else {
        panic!("it was to be refused");
    };
    assert!(error.to_string().contains("SATIN_CREDENTIAL"), "{error}");
    assert_eq!(first.run(|| fib(15)), 610);
}

// ---------------------------------------------------------------------------------------------------- what is large

#[spawnable]
fn sum(bytes: Vec<u8>, depth: u32) -> (u64, Vec<u8>) {
    if depth == 0 {
        return (bytes.iter().map(|byte| u64::from(*byte)).sum(), bytes);
    }
    let half = bytes.len() / 2;
    let (left, right) = (bytes[..half].to_vec(), bytes[half..].to_vec());
    let (a, left) = sum(left, depth - 1);
    let (b, right) = sum(right, depth - 1);
    sync!();
    (a + b, [left, right].concat())
}

#[test]
fn large_arguments_and_results_travel() {
    let _watchdog = Watchdog::new("large_arguments_and_results_travel");
    let nodes = pool(3, 1);
    let bytes: Vec<u8> = (0..8 << 20).map(|n: u32| (n * 31) as u8).collect();
    let expected: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    let (total, back) = nodes[0].run(|| sum(bytes.clone(), 4));
    assert_eq!(total, expected);
    assert!(back == bytes);
}

#[spawnable]
fn look(scene: Shared<Vec<u64>>, from: usize, to: usize) -> u64 {
    if to - from <= 1000 {
        return scene[from..to].iter().sum();
    }
    let middle = from.midpoint(to);
    let a = look(scene.clone(), from, middle);
    let b = look(scene.clone(), middle, to);
    sync!();
    a + b
}

#[test]
fn shared_values_come_to_where_jobs_need_them() {
    let _watchdog = Watchdog::new("shared_values_come_to_where_jobs_need_them");
    let nodes = pool(2, 1);
    let scene: Vec<u64> = (0..1 << 20).collect();
    let expected: u64 = scene.iter().sum();
    let length = scene.len();
    let scene = Shared::new(scene);
    assert_eq!(nodes[0].run(|| look(scene, 0, length)), expected);
}
