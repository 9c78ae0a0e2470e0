//! Values are walked no more often than what is learnt of that is worth: counted with trees that count how often their parts are written.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use common::{
    Watchdog,
    outside::{Told, await_flag, during, flags, hear, listen, raise},
};
use satin::{
    Satin,
    job::{JobLoad, JobTrip, RootTag, Saved},
    spawn, spawnable, sync,
    worker::{Gate, Judge, as_main},
};
use serde::{Deserialize, Serialize, Serializer};

/// Parts that have been looked at or written, by all tests of this process.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// The tests count one after the other.
static COUNTING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    let guard = COUNTING.lock().unwrap_or_else(|error| error.into_inner());
    SEEN.store(0, SeqCst);
    guard
}

/// The parts that were looked at or written while `run` ran.
fn seen<R>(run: impl FnOnce() -> R) -> (R, u64) {
    let before = SEEN.load(SeqCst);
    let result = run();
    (result, SEEN.load(SeqCst) - before)
}

/// A number that counts how often it is written.
#[derive(Clone, Deserialize)]
struct Part(u64);

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        SEEN.fetch_add(1, SeqCst);
        self.0.serialize(to)
    }
}

/// A tree of boxes.
#[derive(Clone, Serialize, Deserialize)]
struct Tree {
    part: Part,
    children: Option<Box<(Tree, Tree)>>,
}

impl Tree {
    /// With 2^levels - 1 parts.
    fn of(levels: u32) -> Tree {
        Tree {
            part: Part(1000),
            children: (levels > 1).then(|| Box::new((Tree::of(levels - 1), Tree::of(levels - 1)))),
        }
    }
}

/// The parts of a tree of that many levels.
const fn parts(levels: u32) -> u64 {
    (1 << levels) - 1
}

#[spawnable]
fn top(tree: &Tree) -> u64 {
    tree.part.0
}

#[spawnable]
fn same(tree: Tree) -> Tree {
    tree
}

#[spawnable]
fn change(tree: &mut Tree) {
    tree.part.0 -= 1;
}

fn pool() -> Satin {
    let pool = satin::builder().threads(1).stack(64);
    pool.build().expect("a pool")
}

/// Of short root jobs the tree is not read for each.
#[test]
fn short_root_jobs_with_large_arguments_are_hardly_ever_read() {
    const LEVELS: u32 = 15;
    const CALLS: u64 = 200;
    let _watchdog = Watchdog::new("short_root_jobs_with_large_arguments_are_hardly_ever_read");
    let _alone = alone();
    let pool = pool();
    let _told = listen(&pool);
    let mut tree = Tree::of(LEVELS);
    let mut calls = |call: fn(&mut Tree)| {
        let run = || pool.run(|| as_main(|| (0..CALLS).for_each(|_| call(&mut tree))));
        seen(run).1
    };
    for call in [
        |tree: &mut Tree| _ = top(tree),
        |tree: &mut Tree| {
            change(tree);
        },
        |tree: &mut Tree| {
            let moved = std::mem::replace(tree, Tree::of(1));
            *tree = same(moved);
        },
    ] {
        let seen = calls(call);
        // A look at each, and a reading of the first, or of a few if the machine is so busy that they take long.
        assert!(seen >= parts(LEVELS), "{seen}: the first is read");
        assert!(seen < CALLS * 256 + 10 * parts(LEVELS), "{seen}");
    }
}

/// Nobody listens: no other node will ever know of it.
#[test]
fn a_single_process_reads_nothing() {
    let _watchdog = Watchdog::new("a_single_process_reads_nothing");
    let _alone = alone();
    let pool = pool();
    let mut tree = Tree::of(10);
    let ((), seen) = seen(|| {
        pool.run(|| {
            as_main(|| {
                top(&tree);
                change(&mut tree);
                same(tree);
            });
        });
    });
    assert_eq!(seen, 0);
}

/// Takes long enough to be kept, as a result of a small tree would be.
#[spawnable]
fn long_change(tree: &mut Tree) {
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(60) {
        std::thread::yield_now();
    }
    tree.part.0 -= 1;
}

/// The same, with a first root job of its own: the fingerprint of another large tree would take too much of its time.
#[spawnable]
fn long_change_of_few(tree: &mut Tree) {
    long_change(tree);
}

fn result(told: &mpsc::Receiver<Told>) -> (RootTag, Saved) {
    hear(told, |told| match told {
        Told::Result(tag, saved) => Some((*tag, saved.clone())),
        _ => None,
    })
}

#[test]
fn a_result_of_more_parts_than_its_time_is_worth_is_not_written() {
    // With fewer bytes than would be kept of so many milliseconds.
    const LARGE: u32 = 18;
    const SMALL: u32 = 9;
    let _watchdog = Watchdog::new("a_result_of_more_parts_than_its_time_is_worth_is_not_written");
    let _alone = alone();
    let pool = pool();
    let (gate, told) = (pool.gate(), listen(&pool));
    gate.keep_roots(true);
    let (mut large, mut small) = (Tree::of(LARGE), Tree::of(SMALL));
    std::thread::scope(|scope| {
        let main = scope.spawn(|| {
            let calls = || {
                let ((), seen) = seen(|| long_change(&mut large));
                long_change_of_few(&mut small);
                seen
            };
            pool.run(|| as_main(calls))
        });
        let (tag, saved) = result(&told);
        assert_eq!(tag.number, 1, "the first one is not kept");
        assert!(saved.answer.size() as u64 > parts(SMALL));
        gate.root_kept(tag);
        let seen = main.join().expect("no panic");
        // It is read before it runs; beyond that it is only looked at.
        assert!(seen < parts(LARGE) + parts(LARGE) / 2, "{seen}");
    });
}

/// Jobs of less than so many bytes go.
struct Lighter(u64);

impl Judge for Lighter {
    fn accepts(&self, load: &JobLoad) -> bool {
        load.shape.bytes < self.0
    }

    fn trip(&self, _: &JobLoad) -> JobTrip {
        JobTrip::default()
    }
}

/// Spawns a call with that tree, which stays until `until`.
#[spawnable]
fn parent(tree: &Tree, ready: usize, until: usize) -> u64 {
    let top = spawn!(top(tree));
    raise(ready);
    await_flag(until);
    sync!();
    top
}

/// Asks for a job; when that has been answered, the number of jobs that come.
fn asked(gate: &Gate, told: &mpsc::Receiver<Told>, most: u64) -> usize {
    let judge: Arc<dyn Judge> = Arc::new(Lighter(most));
    match gate.take_for(0, 1, &judge) {
        Some(haul) => haul.jobs.len(),
        None => hear(told, |told| match told {
            Told::Took(jobs) => Some(jobs.len()),
            _ => None,
        }),
    }
}

#[test]
fn requests_walk_a_job_that_is_too_large_once() {
    const LEVELS: u32 = 18;
    let _watchdog = Watchdog::new("requests_walk_a_job_that_is_too_large_once");
    let _alone = alone();
    let pool = pool();
    let told = listen(&pool);
    let [ready, until] = flags();
    let tree = Tree::of(LEVELS);
    during(
        &pool,
        || parent(&tree, ready, until),
        |gate| {
            await_flag(ready);
            // Fewer than may be looked at: a lower bound says enough.
            let (jobs, looked_at) = seen(|| asked(gate, &told, 10_000));
            assert_eq!(jobs, 0);
            assert!((1..20_000).contains(&looked_at), "{looked_at}");
            let (jobs, more) = seen(|| (0..20).map(|_| asked(gate, &told, 10_000)).sum::<usize>());
            assert_eq!(jobs, 0);
            // Twenty times, unless what was found was no longer believed on a machine that was so busy.
            assert!(more < 5 * looked_at, "{more}");
            // More than that: it is written, but no more of it than may leave, and then it is known.
            let most = 200_000;
            let (jobs, written) = seen(|| asked(gate, &told, most));
            assert_eq!(jobs, 0);
            assert!(written < parts(LEVELS) / 2, "{written}");
            let (jobs, more) = seen(|| (0..20).map(|_| asked(gate, &told, most)).sum::<usize>());
            assert_eq!(jobs, 0);
            assert!(more < 5 * written, "{more}");
            raise(until);
        },
    );
}
