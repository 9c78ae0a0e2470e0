//! Random trees under stress: every form, with failures, panics and counted values at random places, on pools of one
//! to four workers, with and without jobs that leave.
//!
//! A node decides everything by its seed, so a sequential walk tells what may come out. `SATIN_STRESS_RUNS` says how
//! many trees to run, `SATIN_STRESS_SEED` where to start: the seed of a failing run is printed, and `SATIN_STRESS_RUNS=1` with
//! it repeats that run (the schedule is the machine's).
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use common::{Habits, PATIENCE, Rng, beside, mix};
use satin::{Satin, spawn, spawnable, sync};
use serde::{Deserialize, Serialize};

// ------------------------------------------------------------------------------------------------------ counted values
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Counts how many of it there are. With its padding it is too large for a job record half of the time.
#[derive(Serialize, Debug)]
struct Counted(u64, Vec<u64>, bool);

impl Counted {
    fn new(value: u64) -> Counted {
        LIVE.fetch_add(1, SeqCst);
        Counted(value, vec![value; (value % 3) as usize], true)
    }

    /// For the value of a `return` from under children: rustc leaks it if one of them panics on the way out
    /// (rust-lang/rust#47949).
    fn uncounted(value: u64) -> Counted {
        Counted(value, vec![], false)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(
            self.1.iter().all(|copy| *copy == self.0),
            "a value is what it was"
        );
        LIVE.fetch_sub(i64::from(self.2), SeqCst);
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Counted, D::Error> {
        let (value, _, counted) = <(u64, Vec<u64>, bool)>::deserialize(from)?;
        Ok(if counted {
            Counted::new(value)
        } else {
            Counted::uncounted(value)
        })
    }
}

#[derive(Serialize, Deserialize, Debug)]
struct Failure(Counted);

// ------------------------------------------------------------------------------------------------------------ the plan
#[derive(Clone, Copy, PartialEq, Debug)]
enum Form {
    Leaf,
    Lets { speculative: [bool; 3] },
    Push { speculative: bool },
    Collect,
    Sum,
    Expression { speculative: bool },
    Slices,
    Phases,
    Early,
    Nested,
    Caught,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    None,
    Panic,
    Fail,
}

/// What a node does.
#[derive(Debug)]
struct Plan {
    form: Form,
    width: u64,
    /// Before the first spawn, between spawn and sync, after the last sync.
    events: [Event; 3],
    seed: u64,
}

/// The highest bits of a seed say how often things go wrong in its tree; children inherit them.
const MOOD: u64 = 3 << 62;

impl Plan {
    fn of(seed: u64, depth: u32) -> Plan {
        let mut rng = Rng(seed);
        // In 10,000.
        let (panics, failures) = [(0, 0), (0, 50), (40, 60), (1, 5)][(seed >> 62) as usize];
        let mut event = || match rng.below(10_000) {
            dice if dice < panics => Event::Panic,
            dice if dice < panics + failures => Event::Fail,
            _ => Event::None,
        };
        let events = [event(), event(), event()];
        let speculative = rng.below(2) == 0;
        let form = match rng.below(if depth == 0 { 1 } else { 16 }) {
            0 => Form::Leaf,
            1..=3 => Form::Lets {
                speculative: [speculative, rng.below(2) == 0, rng.below(2) == 0],
            },
            4..=6 => Form::Push { speculative },
            7 => Form::Collect,
            8 => Form::Sum,
            9 | 10 => Form::Expression { speculative },
            11 => Form::Slices,
            12 => Form::Phases,
            13 => Form::Early,
            14 => Form::Nested,
            _ => Form::Caught,
        };
        Plan {
            form,
            width: 1 + rng.below(4),
            events,
            seed,
        }
    }

    fn child(&self, index: u64) -> u64 {
        self.seed & MOOD | mix(self.seed ^ mix(index + 1)) & !MOOD
    }

    /// True if the node is to fail here.
    fn at(&self, moment: usize) -> bool {
        // Now and then somebody is slow, or the system takes the processor away.
        match mix(self.seed ^ moment as u64) % 64 {
            0 => std::thread::yield_now(),
            1..=3 => (0..200).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
        match self.events[moment] {
            Event::None => false,
            Event::Panic => panic!("planned: node {:x} at {moment}", self.seed),
            Event::Fail => true,
        }
    }

    fn failure(&self) -> Failure {
        Failure(Counted::new(self.seed))
    }

    fn failure_between(&self) -> Failure {
        Failure(Counted::uncounted(self.seed))
    }
}

const BEFORE: usize = 0;
const BETWEEN: usize = 1;
const AFTER: usize = 2;

fn fold(values: impl IntoIterator<Item = u64>) -> u64 {
    values
        .into_iter()
        .fold(11, |all, value| mix(all ^ value).wrapping_mul(3))
}

/// What a failure is worth to a parent that does not speculate: which one it is depends on the schedule.
const FAILED: u64 = 999;

fn worth(result: Result<Counted, Failure>) -> u64 {
    result.map_or(FAILED, |value| value.0)
}

// ------------------------------------------------------------------------------------------------------- the real thing
#[spawnable]
fn node(seed: u64, depth: u32, tag: Counted, shared: &[u64]) -> Result<Counted, Failure> {
    let plan = Plan::of(seed, depth);
    if plan.at(BEFORE) {
        return Err(plan.failure());
    }
    let shared_value = shared[(seed % shared.len() as u64) as usize];
    let below = depth.saturating_sub(1);
    let tags = |index: u64| Counted::new(mix(seed ^ index));
    let value;
    match plan.form {
        Form::Leaf => value = 1,
        Form::Lets {
            speculative: [true, true, third],
        } => {
            let a = node(plan.child(0), below, tags(0), shared)?;
            let b = node(plan.child(1), below, tags(1), shared)?.0;
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            sync!();
            if third {
                let c = node(plan.child(2), below, tags(2), shared)?;
                value = fold([a.0, b, c.0]);
            } else {
                let c = worth(node(plan.child(2), below, tags(2), shared));
                value = fold([a.0, b, c]);
            }
        }
        Form::Lets {
            speculative: [true, false, _],
        } => {
            let a = worth(node(plan.child(0), below, tags(0), shared));
            let b = node(plan.child(1), below, tags(1), shared)?;
            let c = node(plan.child(2), below, tags(2), shared);
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = fold([a, b.0, worth(c)]);
        }
        Form::Lets {
            speculative: [false, _, _],
        } => {
            let a = node(plan.child(0), below, tags(0), shared);
            let held = tags(7);
            let b = worth(node(plan.child(1), below, tags(1), shared));
            let c = node(plan.child(2), below, tags(2), shared);
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            sync!();
            drop(held);
            value = fold([worth(a), b, worth(c)]);
        }
        Form::Push { speculative: true } => {
            let mut all: Vec<Counted> = Vec::new();
            for i in 0..plan.width {
                all.push(node(plan.child(i), below, tags(i), shared)?);
            }
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = fold(all.iter().map(|one| one.0));
        }
        Form::Push { speculative: false } => {
            let mut all: Vec<Result<Counted, Failure>> = Vec::new();
            for i in 0..plan.width {
                all.push(node(plan.child(i), below, tags(i), shared));
            }
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = fold(all.into_iter().map(worth));
        }
        Form::Collect => {
            let all: Vec<Result<Counted, Failure>> = (0..plan.width)
                .map(|i| node(plan.child(i), below, tags(i), shared))
                .collect();
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = fold(all.into_iter().map(worth));
        }
        Form::Sum => {
            let mut total = 5u64;
            for i in 0..plan.width {
                total ^= spawn!(plain(plan.child(i), below, tags(i)));
            }
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = total;
        }
        Form::Expression { speculative: true } => {
            value = fold([
                node(plan.child(0), below, tags(0), shared)?.0,
                node(plan.child(1), below, tags(1), shared)?.0,
            ]);
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
        }
        Form::Expression { speculative: false } => {
            value = fold([
                worth(node(plan.child(0), below, tags(0), shared)),
                worth(node(plan.child(1), below, tags(1), shared)),
            ]);
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
        }
        Form::Slices => {
            let mut cells: Vec<u64> = (0..3 + plan.width).collect();
            let mut last = Counted::new(3);
            let stirred = spawn!(stir(plan.child(0), below, &mut cells, tags(0)));
            spawn!(replace(&mut last, plan.child(1)));
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            sync!();
            value = fold([stirred.0, fold(cells), last.0]);
        }
        Form::Phases => {
            let mut all: Vec<Counted> = Vec::new();
            for i in 0..plan.width {
                all.push(node(plan.child(i), below, tags(i), shared)?);
                if i == 1 {
                    sync!();
                }
            }
            let mut rest = Vec::new();
            for i in 0..plan.width {
                rest.push(spawn!(plain(plan.child(i), below, tags(i))));
            }
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = fold(all.iter().map(|one| one.0).chain(rest));
        }
        Form::Early => {
            let mut all = Vec::new();
            for i in 0..plan.width {
                all.push(spawn!(plain(plan.child(i), below, tags(i))));
                if i == 2 {
                    return Ok(Counted::uncounted(2));
                }
            }
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = fold(all);
        }
        Form::Nested => {
            let a = spawn!(plain(plan.child(0), below, tags(0)));
            let b = by_an_ordinary_call(plan.child(1), below, tags(1));
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = fold([a, b]);
        }
        Form::Caught => {
            let a = spawn!(plain(plan.child(0), below, tags(0)));
            let b = catch_unwind(|| by_an_ordinary_call(plan.child(1), below, tags(1)))
                .map_or(0, |_| 0);
            if plan.at(BETWEEN) {
                return Err(plan.failure_between());
            }
            value = fold([a, b]);
        }
    }
    if plan.at(AFTER) {
        return Err(plan.failure());
    }
    Ok(Counted::new(fold([value, tag.0, shared_value])))
}

/// No failures, only panics.
#[spawnable]
fn plain(seed: u64, depth: u32, tag: Counted) -> u64 {
    let plan = Plan::of(seed, depth);
    if plan.at(BEFORE) || depth == 0 {
        return tag.0;
    }
    let numbers = [seed, 1, 2];
    let a = plain(plan.child(0), depth - 1, Counted::new(1));
    let b = spawn!(node(plan.child(1), depth - 1, tag, &numbers));
    if plan.at(BETWEEN) {
        return 4;
    }
    sync!();
    fold([a, worth(b)])
}

fn by_an_ordinary_call(seed: u64, depth: u32, tag: Counted) -> u64 {
    let held = Counted::new(9);
    let value = plain(seed, depth, tag);
    value ^ held.0
}

#[spawnable]
fn stir(seed: u64, depth: u32, cells: &mut [u64], tag: Counted) -> Counted {
    let plan = Plan::of(seed, depth);
    if plan.at(BEFORE) || depth == 0 || cells.len() < 2 {
        cells.iter_mut().for_each(|cell| *cell = mix(*cell ^ seed));
        return tag;
    }
    let (left, right) = cells.split_at_mut(1 + (seed % (cells.len() as u64 - 1)) as usize);
    let a = stir(plan.child(0), depth - 1, left, Counted::new(1));
    let b = stir(plan.child(1), depth - 1, right, Counted::new(2));
    plan.at(BETWEEN);
    sync!();
    for cell in cells.chunks_mut(2) {
        let name = cell[0];
        stir(plan.child(name % 5), depth - 1, cell, Counted::new(3));
    }
    Counted::new(fold([a.0, b.0, tag.0]))
}

#[spawnable]
fn replace(place: &mut Counted, seed: u64) {
    *place = Counted::new(seed);
}

// ------------------------------------------------------------------------------------------------------ the expectation
/// What may come out of a node.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Outcome {
    value: Option<u64>,
    fails: bool,
    panics: bool,
}

const PANICS: Outcome = Outcome {
    value: None,
    fails: false,
    panics: true,
};
const FAILS: Outcome = Outcome {
    value: None,
    fails: true,
    panics: false,
};

impl Outcome {
    fn is(value: u64) -> Outcome {
        Outcome {
            value: Some(value),
            fails: false,
            panics: false,
        }
    }

    /// For a parent that does not speculate.
    fn worth(self) -> Outcome {
        // A node never both fails and has a value: failures are decided by seeds, and only a panic may come first.
        assert!(!self.fails || self.value.is_none());
        Outcome {
            value: if self.fails { Some(FAILED) } else { self.value },
            fails: false,
            ..self
        }
    }

    fn then(self, next: impl FnOnce(u64) -> Outcome) -> Outcome {
        let Some(value) = self.value else { return self };
        let next = next(value);
        Outcome {
            value: next.value,
            fails: self.fails || next.fails,
            panics: self.panics || next.panics,
        }
    }

    /// Siblings under way at once: whatever goes wrong in one of them may come first.
    fn all(outcomes: &[Outcome]) -> Outcome {
        Outcome {
            value: outcomes
                .iter()
                .map(|one| one.value)
                .collect::<Option<Vec<u64>>>()
                .map(fold),
            fails: outcomes.iter().any(|one| one.fails),
            panics: outcomes.iter().any(|one| one.panics),
        }
    }
}

impl Plan {
    fn expect(&self, moment: usize, next: impl FnOnce() -> Outcome) -> Outcome {
        match self.events[moment] {
            Event::None => next(),
            Event::Panic => PANICS,
            Event::Fail => FAILS,
        }
    }

    /// `moment` lies before the sync of what is under way.
    fn expect_between(&self, under_way: Outcome) -> Outcome {
        match self.events[BETWEEN] {
            Event::None => under_way,
            Event::Panic => PANICS,
            // On the way out everything is completed: a panic of a child comes through, unless a failure stops it.
            Event::Fail => Outcome {
                value: None,
                fails: true,
                panics: under_way.panics,
            },
        }
    }
}

fn expect_node(seed: u64, depth: u32, tag: u64, shared: &[u64]) -> Outcome {
    let plan = Plan::of(seed, depth);
    let shared_value = shared[(seed % shared.len() as u64) as usize];
    let below = depth.saturating_sub(1);
    let tags = |index: u64| mix(seed ^ index);
    let child = |index| expect_node(plan.child(index), below, tags(index), shared);
    let plain = |index| expect_plain(plan.child(index), below, tags(index));
    let many = |one: &dyn Fn(u64) -> Outcome| (0..plan.width).map(one).collect::<Vec<_>>();
    // The same, with the values themselves.
    let values = |all: &[Outcome]| {
        all.iter()
            .map(|one| one.value.unwrap_or(0))
            .collect::<Vec<_>>()
    };
    plan.expect(BEFORE, || {
        let value = match plan.form {
            Form::Leaf => Outcome::is(1),
            Form::Lets {
                speculative: [true, true, third],
            } => {
                let (a, b, c) = (child(0), child(1), child(2));
                let c = if third { c } else { c.worth() };
                let both = plan.expect_between(Outcome::all(&[a, b]));
                both.then(|_| c)
                    .then(|c| Outcome::is(fold([a.value.unwrap(), b.value.unwrap(), c])))
            }
            Form::Lets {
                speculative: [true, false, _],
            } => plan.expect_between(Outcome::all(&[
                child(0).worth(),
                child(1),
                child(2).worth(),
            ])),
            Form::Lets {
                speculative: [false, _, _],
            } => plan.expect_between(Outcome::all(&[
                child(0).worth(),
                child(1).worth(),
                child(2).worth(),
            ])),
            Form::Push { speculative: true } => plan.expect_between(Outcome::all(&many(&child))),
            Form::Push { speculative: false } | Form::Collect => {
                plan.expect_between(Outcome::all(&many(&|index| child(index).worth())))
            }
            Form::Sum => {
                let all = many(&plain);
                let total = values(&all).into_iter().fold(5, |total, one| total ^ one);
                plan.expect_between(Outcome::all(&all).then(|_| Outcome::is(total)))
            }
            Form::Expression { speculative } => {
                let child = |index| {
                    if speculative {
                        child(index)
                    } else {
                        child(index).worth()
                    }
                };
                Outcome::all(&[child(0), child(1)])
                    .then(|value| plan.expect(BETWEEN, || Outcome::is(value)))
            }
            Form::Slices => {
                let mut cells: Vec<u64> = (0..3 + plan.width).collect();
                let stirred = expect_stir(plan.child(0), below, &mut cells, tags(0));
                let total =
                    stirred.then(|value| Outcome::is(fold([value, fold(cells), plan.child(1)])));
                plan.expect_between(total)
            }
            Form::Phases => {
                let (first, rest) = (many(&child), many(&plain));
                // Not all are under way at once, but more is not promised.
                let (early, late) = first.split_at(first.len().min(2));
                let value = fold(values(&first).into_iter().chain(values(&rest)));
                let late: Vec<Outcome> = late.iter().chain(&rest).copied().collect();
                Outcome::all(early)
                    .then(|_| Outcome::all(&first[early.len()..]))
                    .then(|_| plan.expect_between(Outcome::all(&rest)))
                    .or_any_of(&late, plan.events[BETWEEN])
                    .then(|_| Outcome::is(value))
            }
            Form::Early => {
                let all = (0..plan.width.min(3)).map(plain).collect::<Vec<_>>();
                if plan.width > 2 {
                    // Out by the side door: what comes after is never asked.
                    return Outcome::all(&all).then(|_| Outcome::is(2));
                }
                plan.expect_between(Outcome::all(&all))
            }
            Form::Nested => {
                let (a, b) = (plain(0), plain(1).then(|value| Outcome::is(value ^ 9)));
                if b.value.is_none() {
                    return Outcome::all(&[b]);
                }
                // The nested one may panic before the other is asked.
                plan.expect_between(Outcome::all(&[a, b])).or_panic(b)
            }
            Form::Caught => plan.expect_between(Outcome::all(&[plain(0), Outcome::is(0)])),
        };
        value.then(|value| plan.expect(AFTER, || Outcome::is(fold([value, tag, shared_value]))))
    })
}

impl Outcome {
    fn or_panic(self, other: Outcome) -> Outcome {
        Outcome {
            panics: self.panics || other.panics,
            ..self
        }
    }

    /// What was not synced yet when something went wrong may go wrong itself.
    fn or_any_of(self, others: &[Outcome], between: Event) -> Outcome {
        if self.value.is_some() {
            return self;
        }
        let (fails, panics) = (
            others.iter().any(|one| one.fails),
            others.iter().any(|one| one.panics),
        );
        Outcome {
            value: None,
            fails: self.fails || fails || between == Event::Fail,
            panics: self.panics || panics || between == Event::Panic,
        }
    }
}

fn expect_plain(seed: u64, depth: u32, tag: u64) -> Outcome {
    let plan = Plan::of(seed, depth);
    match plan.events[BEFORE] {
        Event::Panic => return PANICS,
        Event::Fail => return Outcome::is(tag),
        Event::None if depth == 0 => return Outcome::is(tag),
        Event::None => {}
    }
    let a = expect_plain(plan.child(0), depth - 1, 1);
    let b = expect_node(plan.child(1), depth - 1, tag, &[seed, 1, 2]).worth();
    match plan.events[BETWEEN] {
        Event::Panic => PANICS,
        Event::Fail => Outcome::all(&[a, b]).then(|_| Outcome::is(4)),
        Event::None => Outcome::all(&[a, b]),
    }
}

fn expect_stir(seed: u64, depth: u32, cells: &mut [u64], tag: u64) -> Outcome {
    let plan = Plan::of(seed, depth);
    if plan.events[BEFORE] == Event::Panic {
        return PANICS;
    }
    if plan.events[BEFORE] == Event::Fail || depth == 0 || cells.len() < 2 {
        cells.iter_mut().for_each(|cell| *cell = mix(*cell ^ seed));
        return Outcome::is(tag);
    }
    let (left, right) = cells.split_at_mut(1 + (seed % (cells.len() as u64 - 1)) as usize);
    let a = expect_stir(plan.child(0), depth - 1, left, 1);
    let b = expect_stir(plan.child(1), depth - 1, right, 2);
    if plan.events[BETWEEN] == Event::Panic {
        return PANICS;
    }
    Outcome::all(&[a, b]).then(|_| {
        let mut parts = vec![];
        for cell in cells.chunks_mut(2) {
            let name = cell[0];
            parts.push(expect_stir(plan.child(name % 5), depth - 1, cell, 3));
        }
        Outcome::all(&parts).then(|_| Outcome::is(fold([a.value.unwrap(), b.value.unwrap(), tag])))
    })
}

// -------------------------------------------------------------------------------------------------------------- the runs
/// Kills the process if no run ends for a while.
struct Watchdog {
    runs: AtomicU64,
    seed: AtomicU64,
    over: AtomicBool,
}

impl Watchdog {
    fn watch(&self) {
        let mut seen = (0, Duration::ZERO);
        let step = Duration::from_millis(500);
        while !self.over.load(SeqCst) {
            std::thread::park_timeout(step);
            let runs = self.runs.load(SeqCst);
            seen = if runs == seen.0 {
                (runs, seen.1 + step)
            } else {
                (runs, Duration::ZERO)
            };
            if seen.1 > PATIENCE {
                eprintln!(
                    "stress: run {runs} hangs, SATIN_STRESS_SEED={}",
                    self.seed.load(SeqCst)
                );
                std::process::abort();
            }
        }
    }
}

struct Pools {
    homes: Vec<Satin>,
    away: Satin,
}

/// What may come out, and how many jobs travelled, were claimed, and were saved.
fn run(seed: u64, pools: &Pools) -> (Outcome, [usize; 3]) {
    let mut rng = Rng(mix(seed));
    let home = &pools.homes[rng.below(4) as usize];
    let remote = rng.below(2) == 0;
    let wild = rng.below(2) == 0;
    let (root, depth, tag) = (rng.next(), 2 + rng.below(12) as u32, rng.next());
    let shared: Vec<u64> = (0..1 + rng.below(9)).collect();
    let expected = expect_node(root, depth, tag, &shared);
    let program = || {
        catch_unwind(AssertUnwindSafe(|| {
            node(root, depth, Counted::new(tag), &shared)
        }))
    };
    let some = if wild { 15 } else { 0 };
    let orphan = if rng.below(2) == 0 { 40 } else { 0 };
    let habits = Habits {
        seed,
        put_back: some,
        refuse: some,
        lose: some,
        hoard: 0,
        late: some,
        orphan,
        most: 3,
        may_refuse: false,
        wanted: 0,
        forget: 0,
        beat: [0, 1, 16][(seed % 3) as usize],
    };
    let (result, counts) = match remote {
        true => {
            let (result, report) = beside(home, &pools.away, habits, |_| program());
            (result, [report.travelled, report.claimed, report.saved])
        }
        false => (home.run(program), [0, 0, 0]),
    };
    let how = || {
        format!(
            "{} workers, remote {remote}, wild {wild}, orphan {orphan}, depth {depth}, {expected:?}",
            home.threads()
        )
    };
    match result {
        Ok(Ok(value)) => assert_eq!(
            Some(value.0),
            expected.value,
            "the value is right ({})",
            how()
        ),
        Ok(Err(failure)) => assert!(expected.fails, "{failure:?} was not expected ({})", how()),
        Err(payload) => {
            let message = payload
                .downcast_ref::<String>()
                .map_or("no message", String::as_str);
            assert!(message.starts_with("planned:"), "{message} ({})", how());
            assert!(expected.panics, "{message} was not expected ({})", how());
        }
    }
    assert_eq!(
        LIVE.load(SeqCst),
        0,
        "what was made has been dropped, once ({})",
        how()
    );
    (expected, counts)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn random_trees() {
    quiet_about_planned_panics();
    let pool = |threads| {
        satin::builder()
            .threads(threads)
            .stack(64)
            .store_grain(Duration::ZERO)
            .build()
            .expect("a pool")
    };
    let pools = Pools {
        homes: (1..=4).map(pool).collect(),
        away: pool(2),
    };
    let dog = Arc::new(Watchdog {
        runs: 0.into(),
        seed: 0.into(),
        over: false.into(),
    });
    let watch = std::thread::spawn({
        let dog = Arc::clone(&dog);
        move || dog.watch()
    });
    let first = number("SATIN_STRESS_SEED", 1);
    let (mut values, mut failures, mut panics) = (0, 0, 0);
    let [mut travelled, mut claimed, mut saved] = [0; 3];
    let runs = number("SATIN_STRESS_RUNS", 300);
    for seed in first..first + runs {
        dog.seed.store(seed, SeqCst);
        match catch_unwind(AssertUnwindSafe(|| run(seed, &pools))) {
            Ok((expected, counts)) => {
                values += u64::from(expected.value.is_some());
                failures += u64::from(expected.fails);
                panics += u64::from(expected.panics);
                travelled += counts[0];
                claimed += counts[1];
                saved += counts[2];
            }
            Err(payload) => {
                let why = payload.downcast_ref::<String>().map_or("", String::as_str);
                eprintln!("stress: SATIN_STRESS_SEED={seed} failed: {why}");
                std::panic::resume_unwind(payload);
            }
        }
        dog.runs.fetch_add(1, SeqCst);
    }
    dog.over.store(true, SeqCst);
    watch.thread().unpark();
    watch.join().expect("the watchdog ends");
    println!(
        "{runs} runs: {values} may give a value, {failures} a failure, {panics} a panic; {travelled} jobs travelled, {claimed} \
         were claimed, {saved} saved"
    );
    if runs >= 300 {
        assert!(
            values > 0 && failures > 0 && panics > 0 && travelled > 0 && claimed > 0,
            "the runs cover everything"
        );
    }
}

fn quiet_about_planned_panics() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let planned = info
            .payload_as_str()
            .is_some_and(|text| text.starts_with("planned:"));
        if !planned {
            hook(info);
        }
    }));
}
