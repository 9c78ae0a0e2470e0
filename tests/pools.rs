//! Pools: several in one process, calls from everywhere, deep and wide recursion, idling and ending.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]
#![allow(
    clippy::only_used_in_recursion,
    reason = "recursion without an end is tested"
)]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    },
};

use common::{Watchdog, wait_for};
use satin::{Satin, spawn, spawnable, sync};
use serde::{Deserialize, Serialize};

fn pool(threads: usize) -> Satin {
    satin::builder().threads(threads).build().expect("a pool")
}

fn panic_of<R>(run: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(_) => panic!("it did not panic"),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => (*payload.downcast::<&str>().expect("a message")).into(),
        },
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

#[test]
fn several_pools_live_beside_each_other() {
    let _watchdog = Watchdog::new("several_pools_live_beside_each_other");
    let pools: Vec<Satin> = (1..=4).map(pool).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            for pool in &pools {
                scope.spawn(|| (0..5).for_each(|_| assert_eq!(pool.run(|| fib(20)), 6765)));
            }
        }
    });
}

#[test]
fn many_threads_call_at_once() {
    let _watchdog = Watchdog::new("many_threads_call_at_once");
    let pool = pool(2);
    let start = Barrier::new(32);
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (pool, start) = (&pool, &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..10 {
                    let n = (thread + n) % 16;
                    let expected =
                        [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610][n as usize];
                    assert_eq!(pool.run(|| fib(n)), expected);
                }
            });
        }
    });
}

#[test]
fn the_default_pool_serves_threads_without_one() {
    let _watchdog = Watchdog::new("the_default_pool_serves_threads_without_one");
    assert_eq!(fib(15), 610);
    assert_eq!(
        std::thread::spawn(|| fib(15)).join().expect("no panic"),
        610
    );
}

#[spawnable]
fn asks_for_threads() -> usize {
    satin::node().threads
}

#[test]
fn a_node_knows_its_threads() {
    let (three, two) = (pool(3), pool(2));
    assert_eq!((three.threads(), two.threads()), (3, 2));
    three.run(|| {
        assert_eq!(satin::node().threads, 3);
        assert_eq!(two.run(|| satin::node().threads), 2);
        assert_eq!(asks_for_threads(), 3);
        assert_eq!(satin::node().threads, 3);
        assert_eq!(two.run(asks_for_threads), 2);
    });
}

// -------------------------------------------------------------------------------------------------------- nested entries
static PRESENT: AtomicU64 = AtomicU64::new(0);

#[spawnable]
fn meets(depth: u32) -> u64 {
    if depth == 0 {
        PRESENT.fetch_add(1, SeqCst);
        wait_for("a meeting of two siblings", || PRESENT.load(SeqCst) >= 2);
        return 1;
    }
    let x = meets(depth - 1);
    let y = meets(depth - 1);
    x + y
}

fn ordinary(depth: u32) -> u64 {
    meets(depth)
}

#[spawnable]
fn enters_again(n: u64) -> u64 {
    let before: Vec<u64> = (0..8).map(|i| spawn!(same(n + i))).collect();
    let one = spawn!(same(n));
    let inner = ordinary(1);
    before.iter().sum::<u64>() + one + inner
}

#[spawnable]
fn same(n: u64) -> u64 {
    n
}

#[test]
fn a_nested_entry_is_right_and_parallel() {
    let _watchdog = Watchdog::new("a_nested_entry_is_right_and_parallel");
    assert_eq!(pool(2).run(|| enters_again(10)), 108 + 10 + 2);
}

#[spawnable]
fn nests(depth: u32, n: u64) -> u64 {
    if depth == 0 {
        return n;
    }
    let a = nests(depth - 1, 2 * n);
    let held = [n; 5];
    let b = nests_ordinarily(depth - 1, 2 * n + 1);
    sync!();
    a + b + held[4] - n
}

fn nests_ordinarily(depth: u32, n: u64) -> u64 {
    nests(depth, n)
}

#[test]
fn nested_entries_nest() {
    let _watchdog = Watchdog::new("nested_entries_nest");
    for threads in [1, 2, 4] {
        assert_eq!(
            pool(threads).run(|| nests(10, 1)),
            (1024..2048).sum::<u64>()
        );
    }
}

#[spawnable]
fn outer(n: u64, on: &Other) -> u64 {
    if n == 0 {
        let pools = OTHER.lock().unwrap();
        return pools.as_ref().expect("another pool").run(|| fib(on.0));
    }
    outer(n - 1, on) + outer(n - 1, on)
}

#[derive(Serialize, Deserialize)]
struct Other(u32);

static OTHER: std::sync::Mutex<Option<Satin>> = std::sync::Mutex::new(None);

#[test]
fn a_job_may_call_another_pool() {
    let _watchdog = Watchdog::new("a_job_may_call_another_pool");
    *OTHER.lock().unwrap() = Some(pool(2));
    assert_eq!(pool(2).run(|| outer(4, &Other(10))), 16 * 55);
    *OTHER.lock().unwrap() = None;
}

// --------------------------------------------------------------------------------------------------------- deep and wide
#[spawnable]
fn deep(n: u64) -> u64 {
    if n == 0 {
        return 0;
    }
    let below = deep(n - 1);
    let leaf = deep(0);
    1 + below + leaf
}

#[test]
fn recursion_may_be_deep() {
    let _watchdog = Watchdog::new("recursion_may_be_deep");
    for threads in [1, 2] {
        assert_eq!(pool(threads).run(|| deep(20_000)), 20_000);
    }
}

#[test]
fn too_deep_recursion_is_a_clear_panic() {
    let _watchdog = Watchdog::new("too_deep_recursion_is_a_clear_panic");
    for threads in [1, 2] {
        let small = satin::builder()
            .threads(threads)
            .stack(1)
            .build()
            .expect("a pool");
        let message = small.run(|| panic_of(|| deep(1_000_000)));
        assert!(message.contains("SATIN_STACK"), "{message}");
        assert_eq!(small.run(|| fib(10)), 55, "the pool still works");
    }
}

#[spawnable]
fn endless(n: u64) -> u64 {
    let a = endless(n + 1);
    let b = endless(n + 2);
    sync!();
    a ^ b
}

#[spawnable]
fn endless_in_a_loop(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..3 {
        total += endless_in_a_loop(n + i);
    }
    total
}

/// Some hundred thousand invocations unwind, each with siblings that wait: it ends only if none of them looks at those above.
#[test]
fn recursion_without_an_end_is_a_clear_panic_soon() {
    let _watchdog = Watchdog::new("recursion_without_an_end_is_a_clear_panic_soon");
    for (threads, endless) in [1, 2].into_iter().zip([endless, endless_in_a_loop]) {
        let large = satin::builder()
            .threads(threads)
            .stack(64)
            .build()
            .expect("a pool");
        let message = large.run(|| panic_of(|| endless(0)));
        assert!(
            message.contains("check that the recursion ends"),
            "{message}"
        );
        assert_eq!(large.run(|| fib(10)), 55, "the pool still works");
    }
}

#[spawnable]
fn flat(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..n {
        total += spawn!(same(i));
    }
    total
}

#[test]
fn a_loop_may_be_long() {
    let _watchdog = Watchdog::new("a_loop_may_be_long");
    for threads in [1, 3] {
        assert_eq!(pool(threads).run(|| flat(1_000_000)), 499_999_500_000);
    }
}

/// More children than a worker has slots.
#[test]
fn a_loop_may_be_longer_than_the_slots() {
    let _watchdog = Watchdog::new("a_loop_may_be_longer_than_the_slots");
    let n = 20_000_000;
    assert_eq!(pool(2).run(|| flat(n)), n * (n - 1) / 2);
}

// ------------------------------------------------------------------------------------------------------- panic and abort
static LIVE: AtomicI64 = AtomicI64::new(0);

#[derive(Serialize, Debug)]
struct Counted(u64);

impl Counted {
    fn new(value: u64) -> Counted {
        LIVE.fetch_add(1, SeqCst);
        Counted(value)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, SeqCst);
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Counted, D::Error> {
        u64::deserialize(from).map(Counted::new)
    }
}

#[spawnable]
fn holds(n: u64, held: Counted) -> Counted {
    assert!(n != 0, "planned: nothing to hold");
    held
}

#[spawnable]
fn holds_many(n: u64, bad: u64) -> u64 {
    let first = spawn!(holds(1, Counted::new(1)));
    let mut all: Vec<Counted> = Vec::new();
    for i in 1..n {
        all.push(spawn!(holds(bad.abs_diff(i), Counted::new(i))));
    }
    let last = spawn!(holds(1, Counted::new(1)));
    sync!();
    all.iter().map(|one| one.0).sum::<u64>() + first.0 + last.0
}

#[test]
fn a_panic_drops_the_results_of_the_siblings() {
    let _watchdog = Watchdog::new("a_panic_drops_the_results_of_the_siblings");
    for threads in [1, 2, 3] {
        let pool = pool(threads);
        for bad in [1, 2, 50, 99] {
            assert_eq!(
                pool.run(|| panic_of(|| holds_many(100, bad))),
                "planned: nothing to hold"
            );
            assert_eq!(LIVE.load(SeqCst), 0, "{threads} threads, {bad}");
        }
        assert_eq!(pool.run(|| holds_many(100, 1000)), 4952);
        assert_eq!(LIVE.load(SeqCst), 0);
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);
static CAUGHT: AtomicU64 = AtomicU64::new(0);
static SURVIVED: AtomicBool = AtomicBool::new(false);

/// Catches whatever unwinds, and goes on.
#[spawnable]
fn stubborn(depth: u32) -> Result<u64, u64> {
    if depth == 0 {
        return Ok(1);
    }
    STARTED.store(true, SeqCst);
    let rounds = catch_unwind(|| {
        while ordinary_leaf() == 1 {
            std::hint::spin_loop();
        }
    });
    assert!(rounds.is_err());
    CAUGHT.fetch_add(1, SeqCst);
    let mut all = Vec::new();
    for _ in 0..2 {
        all.push(stubborn(0)?);
    }
    SURVIVED.store(true, SeqCst);
    Ok(all.len() as u64)
}

fn ordinary_leaf() -> u64 {
    flat(2)
}

#[spawnable]
fn stops_the_other() -> Result<u64, u64> {
    let a = spawn!(stubborn(1))?;
    let b = spawn!(fails_when_started())?;
    Ok(a + b)
}

#[spawnable]
fn fails_when_started() -> Result<u64, u64> {
    wait_for("the sibling", || STARTED.load(SeqCst));
    Err(5)
}

#[test]
fn catching_does_not_swallow_an_abort() {
    let _watchdog = Watchdog::new("catching_does_not_swallow_an_abort");
    assert_eq!(pool(2).run(stops_the_other), Err(5));
    assert_eq!((CAUGHT.load(SeqCst), SURVIVED.load(SeqCst)), (1, false));
}

// ------------------------------------------------------------------------------------------------------ idling and ending
/// In a process of its own: the others would use the processor.
#[cfg(target_os = "linux")]
#[test]
fn an_idle_pool_uses_no_processor() {
    const CHILD: &str = "SATIN_TEST_IDLE";
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().expect("this program");
        let arguments = ["--exact", "an_idle_pool_uses_no_processor", "--nocapture"];
        let run = std::process::Command::new(program)
            .args(arguments)
            .env(CHILD, "1")
            .output()
            .expect("it starts");
        assert!(
            run.status.success(),
            "{}{}",
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&run.stderr)
        );
        return;
    }
    let pool = pool(4);
    assert_eq!(pool.run(|| fib(20)), 6765);
    // Let everybody fall asleep: as long as the clock still ticks, they have not.
    let nap = || std::thread::sleep(std::time::Duration::from_millis(1000));
    nap();
    let before = ticks();
    nap();
    let used = ticks() - before;
    assert!(
        used <= 2,
        "an idle pool used {used} hundredths of a second in a second"
    );
}

/// Processor time of this process, in hundredths of a second.
#[cfg(target_os = "linux")]
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // `utime` and `stime`, the 14th and 15th field of all.
    [11, 12]
        .iter()
        .map(|field| fields[*field].parse::<u64>().expect("a number"))
        .sum()
}

struct AtExit;

static EXITS: AtomicU64 = AtomicU64::new(0);

impl Drop for AtExit {
    fn drop(&mut self) {
        EXITS.fetch_add(1, SeqCst);
    }
}

thread_local! {
    static AT_EXIT: AtExit = const { AtExit };
}

#[spawnable]
fn marks_its_thread(n: u64) -> u64 {
    if n == 0 {
        AT_EXIT.with(|_| ());
        PRESENT_HERE.fetch_add(1, SeqCst);
        wait_for("all workers", || PRESENT_HERE.load(SeqCst) >= 4);
        return 1;
    }
    let mut total = 0;
    for _ in 0..4 {
        total += marks_its_thread(n - 1);
    }
    total
}

static PRESENT_HERE: AtomicU64 = AtomicU64::new(0);

#[test]
fn dropping_a_pool_joins_its_threads() {
    let _watchdog = Watchdog::new("dropping_a_pool_joins_its_threads");
    let pool = pool(4);
    assert_eq!(pool.run(|| marks_its_thread(1)), 4);
    assert_eq!(EXITS.load(SeqCst), 0);
    drop(pool);
    assert_eq!(EXITS.load(SeqCst), 4, "all four threads have ended");
    for threads in 1..20 {
        drop(self::pool(threads % 4 + 1));
    }
}

#[test]
fn the_program_has_one_hash() {
    let hash = satin::job::program_hash();
    assert_eq!(hash, satin::job::program_hash());
    assert_ne!(hash, [0; 32]);
    assert!(
        satin::job::registered()
            .keys()
            .any(|name| name.ends_with("pools::fib"))
    );
}
