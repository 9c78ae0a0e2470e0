//! Types whose code fails: what travels between two nodes is (de)serialized, compared and dropped by the user's code, and
//! no failure there may be the end of a node. Each test says what the program gets instead.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use common::{PATIENCE, Watchdog, wait_for};
use satin::{Builder, Min, MinWith, Satin, bound, spawn, spawnable, sync};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tempfile::NamedTempFile;

/// Two nodes of one thread each, with stacks of so many MiB; the first is the master.
fn pool(stack: usize) -> Vec<Satin> {
    let key = NamedTempFile::new().expect("a file");
    let text = satin::net::Credential::generate().expect("a key");
    std::fs::write(key.path(), text).expect("written");
    let builder = |name: &str| -> Builder {
        satin::builder()
            .threads(1)
            .stack(stack)
            .credential(key.path())
            .pool("attacks")
            .name(name)
    };
    let master = builder("master").listen("127.0.0.1:0").build();
    let master = master.expect("a founder");
    let addr = master.network().expect("a network").addr().to_string();
    let guest = builder("guest").join(addr).build().expect("let in");
    vec![master, guest]
}

fn is_guest() -> bool {
    satin::node().name == "guest"
}

/// Which nodes have come to which place.
static MET: Mutex<[BTreeSet<String>; 8]> = Mutex::new([const { BTreeSet::new() }; 8]);

/// Waits until both nodes have been here: so one of two siblings has travelled.
fn meet(place: usize) {
    MET.lock().expect("no panic")[place].insert(satin::node().name);
    wait_for("the other node", || {
        MET.lock().expect("no panic")[place].len() == 2
    });
}

/// The pool still works, on both nodes.
fn is_unharmed(pool: &[Satin], place: usize) {
    assert_eq!(pool[0].run(|| both(place)), 2);
}

#[spawnable]
fn both(place: usize) -> u32 {
    let a = spawn!(one(place));
    let b = spawn!(one(place));
    sync!();
    a + b
}

#[spawnable]
fn one(place: usize) -> u32 {
    meet(place);
    1
}

// ---------------------------------------------------------------------------------------------------- bounds

/// Cannot be read.
#[derive(Clone, Serialize)]
struct Trap(u32);

impl<'de> Deserialize<'de> for Trap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Trap, D::Error> {
        let number = u32::deserialize(deserializer)?;
        panic!("the witness {number} is a trap");
    }
}

/// Can be compared by workers only.
#[derive(Clone, Serialize, Deserialize)]
struct Grumpy(u64);

/// Comparisons on the thread that answers the other nodes.
static ON_NETWORK_THREAD: AtomicU32 = AtomicU32::new(0);

fn compare() {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    if name.starts_with("satin-net") {
        ON_NETWORK_THREAD.fetch_add(1, SeqCst);
    }
    assert!(
        !name.starts_with("satin-net") && !name.starts_with("satin-codec"),
        "compared on {name}"
    );
}

impl PartialEq for Grumpy {
    fn eq(&self, other: &Grumpy) -> bool {
        compare();
        self.0 == other.0
    }
}

impl PartialOrd for Grumpy {
    fn partial_cmp(&self, other: &Grumpy) -> Option<Ordering> {
        compare();
        self.0.partial_cmp(&other.0)
    }
}

bound! {
    static TRAPPED: MinWith<u64, Trap>;
    static GRUMPY: Min<Grumpy>;
}

#[spawnable]
fn offer_traps(offer: u32) -> u32 {
    meet(0);
    // Each node has one, and the other's is better or worse.
    let cost = u64::from(is_guest());
    TRAPPED.offer(10 - cost, Trap(offer));
    TRAPPED.offer(5 - cost, Trap(offer));
    1
}

#[spawnable]
fn offer_grumpy_ones(offer: u32) -> u32 {
    meet(1);
    GRUMPY.offer(Grumpy(u64::from(100 + offer + u32::from(is_guest()))));
    GRUMPY.offer(Grumpy(u64::from(offer + u32::from(is_guest()))));
    1
}

#[spawnable]
fn trapped_offers() -> u32 {
    let mut sum = 0;
    for offer in 0..2 {
        sum += spawn!(offer_traps(offer));
    }
    sync!();
    sum
}

#[spawnable]
fn grumpy_offers() -> u32 {
    let mut sum = 0;
    for offer in 0..2 {
        sum += spawn!(offer_grumpy_ones(offer));
    }
    sync!();
    sum
}

#[test]
fn a_witness_that_panics_when_it_is_read_is_refused() {
    let _watchdog = Watchdog::new("a_witness_that_panics_when_it_is_read_is_refused");
    let pool = pool(16);
    assert_eq!(pool[0].run(trapped_offers), 2);
    is_unharmed(&pool, 2);
}

#[test]
fn a_cost_that_panics_when_it_is_compared_is_refused() {
    let _watchdog = Watchdog::new("a_cost_that_panics_when_it_is_compared_is_refused");
    let pool = pool(16);
    assert_eq!(pool[0].run(grumpy_offers), 2);
    is_unharmed(&pool, 3);
    assert_eq!(ON_NETWORK_THREAD.load(SeqCst), 0, "somebody waited for it");
}

// ---------------------------------------------------------------------------------------------------- arguments

/// Panics when it is written, and counts.
struct Unwritable;

static WRITTEN: AtomicU32 = AtomicU32::new(0);

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        WRITTEN.fetch_add(1, SeqCst);
        panic!("it cannot be written");
    }
}

impl<'de> Deserialize<'de> for Unwritable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Unwritable, D::Error> {
        Err(de::Error::custom("nobody can have written it"))
    }
}

/// Panics when it is read, and counts.
#[derive(Serialize)]
struct Unreadable(u32);

static READ: AtomicU32 = AtomicU32::new(0);

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Unreadable, D::Error> {
        READ.fetch_add(1, SeqCst);
        panic!("it cannot be read");
    }
}

#[spawnable]
fn hold_unwritable(_thing: Unwritable) -> u32 {
    wait_for("a theft", || WRITTEN.load(SeqCst) > 0);
    1
}

#[spawnable]
fn hold_unreadable(thing: Unreadable) -> u32 {
    wait_for("a theft", || READ.load(SeqCst) > 0);
    thing.0
}

#[spawnable]
fn hold_some_unwritable() -> u32 {
    let mut sum = 0;
    for _ in 0..3 {
        sum += spawn!(hold_unwritable(Unwritable));
    }
    sync!();
    sum
}

#[spawnable]
fn hold_some_unreadable() -> u32 {
    let mut sum = 0;
    for _ in 0..3 {
        sum += spawn!(hold_unreadable(Unreadable(1)));
    }
    sync!();
    sum
}

#[test]
fn a_job_whose_arguments_panic_when_they_are_written_stays_at_home() {
    let _watchdog =
        Watchdog::new("a_job_whose_arguments_panic_when_they_are_written_stays_at_home");
    let pool = pool(16);
    assert_eq!(pool[0].run(hold_some_unwritable), 3);
    is_unharmed(&pool, 4);
}

#[test]
fn a_job_whose_arguments_panic_when_they_are_read_comes_back() {
    let _watchdog = Watchdog::new("a_job_whose_arguments_panic_when_they_are_read_comes_back");
    let pool = pool(16);
    assert_eq!(pool[0].run(hold_some_unreadable), 3);
    is_unharmed(&pool, 5);
}

// ---------------------------------------------------------------------------------------------------- results

#[spawnable]
fn return_unwritable(place: usize) -> Unwritable {
    meet(place);
    Unwritable
}

#[spawnable]
fn return_unreadable(place: usize) -> Unreadable {
    meet(place);
    Unreadable(1)
}

#[spawnable]
fn returns_unwritable() -> u32 {
    let a = spawn!(return_unwritable(6));
    let b = spawn!(return_unwritable(6));
    sync!();
    let _: (Unwritable, Unwritable) = (a, b);
    2
}

#[spawnable]
fn returns_unreadable() -> u32 {
    let a = spawn!(return_unreadable(7));
    let b = spawn!(return_unreadable(7));
    sync!();
    a.0 + b.0
}

#[test]
fn a_job_whose_result_panics_when_it_is_written_is_run_at_home() {
    let _watchdog = Watchdog::new("a_job_whose_result_panics_when_it_is_written_is_run_at_home");
    let pool = pool(16);
    assert_eq!(pool[0].run(returns_unwritable), 2);
}

#[test]
fn a_job_whose_result_panics_when_it_is_read_is_run_at_home() {
    let _watchdog = Watchdog::new("a_job_whose_result_panics_when_it_is_read_is_run_at_home");
    let pool = pool(16);
    assert_eq!(pool[0].run(returns_unreadable), 2);
    assert_eq!(pool[0].run(|| leaf_sum(List::of(3))), 3);
}

// ---------------------------------------------------------------------------------------------------- depth

/// A list, each link in a box. Dropped in a loop: that is the program's own business, wherever it runs.
#[derive(Serialize, Deserialize)]
struct List(Option<Box<Link>>);

#[derive(Serialize, Deserialize)]
struct Link {
    value: u8,
    rest: List,
}

impl List {
    fn of(length: u32) -> List {
        let mut list = List(None);
        for _ in 0..length {
            let (value, rest) = (1, std::mem::replace(&mut list, List(None)));
            list = List(Some(Box::new(Link { value, rest })));
        }
        list
    }

    fn sum(&self) -> u32 {
        let mut sum = 0;
        let mut here = self;
        while let Some(link) = &here.0 {
            sum += u32::from(link.value);
            here = &link.rest;
        }
        sum
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut link) = next {
            next = link.rest.0.take();
        }
    }
}

#[spawnable]
fn leaf_sum(list: List) -> u32 {
    list.sum()
}

/// Sums lists, and makes others: each node has one of the two jobs, or one node both, if they are too deep to travel.
#[spawnable]
fn there_and_back(list: List, at: usize, nodes: usize) -> List {
    let since = std::time::Instant::now();
    DEEP.lock().expect("no panic")[at].insert(satin::node().name);
    while DEEP.lock().expect("no panic")[at].len() < nodes {
        assert!(since.elapsed() < PATIENCE, "the job does not travel");
        std::thread::yield_now();
    }
    List::of(list.sum())
}

static DEEP: Mutex<[BTreeSet<String>; 3]> = Mutex::new([const { BTreeSet::new() }; 3]);

#[spawnable]
fn two_lists(length: u32, at: usize, nodes: usize) -> u32 {
    let a = spawn!(there_and_back(List::of(length), at, nodes));
    let b = spawn!(there_and_back(List::of(length), at, nodes));
    sync!();
    a.sum() + b.sum()
}

#[test]
fn a_list_deeper_than_the_stack_of_a_thread_travels_and_comes_back() {
    let _watchdog =
        Watchdog::new("a_list_deeper_than_the_stack_of_a_thread_travels_and_comes_back");
    let pool = pool(256);
    // The network thread had two mebibytes: enough for a tenth of it.
    assert_eq!(pool[0].run(|| two_lists(300_000, 0, 2)), 600_000);
}

#[test]
fn a_list_deeper_than_any_stack_ends_no_node() {
    let _watchdog = Watchdog::new("a_list_deeper_than_any_stack_ends_no_node");
    let pool = pool(16);
    // It stays at home, since it cannot be written.
    assert_eq!(pool[0].run(|| two_lists(1_000_000, 1, 1)), 2_000_000);
    is_unharmed_after_lists(&pool);
}

fn is_unharmed_after_lists(pool: &[Satin]) {
    assert_eq!(pool[0].run(|| two_lists(10, 2, 2)), 20);
}

/// A result that is too deep to travel, of arguments that are not.
#[spawnable]
fn grow(length: u32) -> List {
    List::of(length)
}

#[spawnable]
fn grow_two(length: u32) -> u32 {
    let a = spawn!(grow_there(length));
    let b = spawn!(grow_there(length));
    sync!();
    a.sum() + b.sum()
}

static GROWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

#[spawnable]
fn grow_there(length: u32) -> List {
    GROWN.lock().expect("no panic").insert(satin::node().name);
    wait_for("both nodes", || GROWN.lock().expect("no panic").len() == 2);
    List::of(length)
}

#[test]
fn a_result_deeper_than_any_stack_ends_no_node() {
    let _watchdog = Watchdog::new("a_result_deeper_than_any_stack_ends_no_node");
    let pool = pool(16);
    // Where it was made it cannot be written: it is made again at home.
    assert_eq!(pool[0].run(|| grow_two(1_000_000)), 2_000_000);
    assert_eq!(pool[0].run(|| grow(5)).sum(), 5);
}
