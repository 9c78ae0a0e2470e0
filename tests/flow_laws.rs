//! Laws of flows. A random program is interpreted by plain code, step by step, and run as a flow: in whatever permitted order its tasks
//! run, on however many workers, here or on another node, it gives the same; and each value that it has made is dropped once.

#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
};

use common::{
    Habits, PATIENCE, Report, Rng, Watchdog, beside, give_way, mix,
    outside::{self, Told, done, during, own},
    wait_within,
};
use proptest::{
    prelude::*,
    test_runner::{TestCaseResult, TestRunner},
};
use satin::{
    Flow, Handle, Made, Many, Satin, flow,
    job::{DepartureId, HostedId, Parcel},
    many, r, rw, spawn, spawnable, sync, task,
    worker::Gate,
};
use serde::{Deserialize, Serialize};

// ------------------------------------------------------------------------------------------------------ counted values

/// The instances that have been made and not been dropped: the run that each belongs to, and its number.
static ALIVE: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
static DROPPED_TWICE: AtomicU64 = AtomicU64::new(0);

fn alive() -> MutexGuard<'static, BTreeSet<(u64, u64)>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, SeqCst)
}

/// Numbers of runs that have this bit are large data as they travel: those that tasks make elsewhere are kept there.
const LARGE: u64 = 1 << 60;

/// More bytes than come home of a task that takes no time.
const MANY_BYTES: usize = 70_000;

/// A number in a run of a program. Each instance of it is known until it is dropped.
#[derive(Debug)]
struct Number {
    run: u64,
    value: u64,
    instance: u64,
}

impl Number {
    fn new(run: u64, value: u64) -> Number {
        let instance = next_number();
        alive().insert((run, instance));
        Number {
            run,
            value,
            instance,
        }
    }
}

impl Clone for Number {
    fn clone(&self) -> Number {
        Number::new(self.run, self.value)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if !alive().remove(&(self.run, self.instance)) {
            DROPPED_TWICE.fetch_add(1, SeqCst);
        }
    }
}

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let ballast = match self.run & LARGE {
            0 => Vec::new(),
            _ => vec![7u8; MANY_BYTES],
        };
        (self.run, self.value, ballast).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
        let (run, value, _): (u64, u64, Vec<u8>) = Deserialize::deserialize(from)?;
        Ok(Number::new(run, value))
    }
}

/// No value of that run is left, on whatever node it was, and none was dropped twice.
fn all_are_dropped(run: u64) {
    wait_within(PATIENCE / 2, "the end of all values", || {
        alive().range((run, 0)..=(run, u64::MAX)).next().is_none()
    });
    assert_eq!(DROPPED_TWICE.load(SeqCst), 0, "a value was dropped twice");
}

// ------------------------------------------------------------------------------------------------------ what steps compute

/// Depends on each of the numbers, and on their order.
fn blend(salt: u64, numbers: &[u64]) -> u64 {
    let step = |sum: u64, number: &u64| mix(sum.rotate_left(9) ^ number);
    numbers.iter().fold(mix(salt), step)
}

fn values(row: &[Number]) -> Vec<u64> {
    row.iter().map(|number| number.value).collect()
}

fn stirred(row: &[u64], with: &[u64], by: u64, salt: u64) -> Vec<u64> {
    let each = |at| blend(salt, &[row[at], with[at % with.len()], by, at as u64]);
    (0..row.len()).map(each).collect()
}

fn made_row(length: usize, value: u64) -> Vec<u64> {
    (0..length as u64).map(|at| mix(value ^ at)).collect()
}

/// What [`tree`] gives.
fn plain_tree(depth: u64, seed: u64) -> u64 {
    match depth {
        0 => mix(seed),
        _ => {
            let below = |side| plain_tree(depth - 1, mix(seed ^ side));
            blend(seed, &[below(1), below(2)])
        }
    }
}

/// What the task [`with_a_flow`] gives.
fn plain_inner(salt: u64, a: u64, b: u64) -> u64 {
    let (mut first, mut second) = (mix(a), mix(b));
    for round in 0..2 {
        first = blend(salt ^ round, &[first, second]);
        second = blend(salt ^ round, &[second, first]);
    }
    blend(salt, &[first, second])
}

// ------------------------------------------------------------------------------------------------------ tasks

#[spawnable]
fn make(run: u64, value: u64) -> Number {
    give_way();
    Number::new(run, value)
}

#[spawnable]
fn make_row(run: u64, length: usize, value: u64) -> Vec<Number> {
    let row = made_row(length, value).into_iter();
    row.map(|value| Number::new(run, value)).collect()
}

#[spawnable]
fn of_one(salt: u64, a: &Number) -> Number {
    give_way();
    Number::new(a.run, blend(salt, &[a.value]))
}

#[spawnable]
fn of_two(a: &Number, salt: u64, b: &Number) -> Number {
    give_way();
    Number::new(a.run, blend(salt, &[a.value, b.value]))
}

#[spawnable]
fn of_three(a: &Number, b: &Number, c: &Number, salt: u64) -> Number {
    give_way();
    Number::new(a.run, blend(salt, &[a.value, b.value, c.value]))
}

#[spawnable]
fn of_many(all: &Many<Number>, run: u64, salt: u64) -> Number {
    give_way();
    let all: Vec<u64> = all.iter().map(|number| number.value).collect();
    Number::new(run, blend(salt, &all))
}

#[spawnable]
fn of_row(row: &[Number], run: u64, salt: u64) -> Number {
    give_way();
    Number::new(run, blend(salt, &values(row)))
}

#[spawnable]
fn change(to: &mut Number, salt: u64, with: &Number) {
    give_way();
    to.value = blend(salt, &[to.value, with.value]);
}

/// Changes a number, and makes one.
#[spawnable]
fn change_and_make(a: &Number, to: &mut Number, b: &Number, salt: u64) -> Number {
    give_way();
    let before = to.value;
    to.value = blend(salt, &[before, a.value, b.value]);
    Number::new(a.run, blend(salt, &[b.value, before]))
}

#[spawnable]
fn change_both(a: &mut Number, b: &mut Number, salt: u64) {
    give_way();
    (a.value, b.value) = (
        blend(salt, &[a.value, b.value]),
        blend(salt, &[b.value, a.value]),
    );
}

#[spawnable]
fn stir(row: &mut [Number], with: &[Number], by: &Number, salt: u64) {
    give_way();
    let stirred = stirred(&values(row), &values(with), by.value, salt);
    for (number, value) in row.iter_mut().zip(stirred) {
        number.value = value;
    }
}

#[spawnable]
fn grow(row: &mut Vec<Number>, by: &Number) {
    give_way();
    row.push(by.clone());
}

#[spawnable]
fn tree(depth: u64, seed: u64) -> u64 {
    if depth == 0 {
        give_way();
        return mix(seed);
    }
    let a = tree(depth - 1, mix(seed ^ 1));
    let b = tree(depth - 1, mix(seed ^ 2));
    sync!();
    blend(seed, &[a, b])
}

/// A task that spawns.
#[spawnable]
fn with_children(salt: u64, of: &Number) -> Number {
    let value = spawn!(tree(3, blend(salt, &[of.value])));
    sync!();
    Number::new(of.run, value)
}

/// A task with a flow of its own.
#[spawnable]
fn with_a_flow(salt: u64, a: &Number, b: &Number) -> Number {
    let run = a.run;
    flow!(|g| {
        let first = task!(g, make(run, mix(a.value)));
        let second = g.data(Number::new(run, mix(b.value)));
        for round in 0..2 {
            task!(g, change(rw(first), salt ^ round, r(second)));
            task!(g, change(rw(second), salt ^ round, r(first)));
        }
        let both = task!(g, of_two(r(first), salt, r(second)));
        g.take(both)
    })
}

/// What the panic of a program says.
const ON_PURPOSE: &str = "the program fails on purpose";

#[spawnable]
fn fail(to: &mut Number) {
    give_way();
    panic!("{ON_PURPOSE}: {}", to.value);
}

// ------------------------------------------------------------------------------------------------------ programs

/// A step. Numbers and rows have names, which count from 0; a step that makes one gives it the next name.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Step {
    Data(u64),
    Make(u64),
    MakeRow {
        length: usize,
        value: u64,
    },
    OfOne {
        salt: u64,
        a: usize,
    },
    OfTwo {
        salt: u64,
        a: usize,
        b: usize,
    },
    OfThree {
        salt: u64,
        a: usize,
        b: usize,
        c: usize,
    },
    OfMany {
        salt: u64,
        all: Vec<usize>,
    },
    OfRow {
        salt: u64,
        row: usize,
    },
    Change {
        to: usize,
        salt: u64,
        with: usize,
    },
    ChangeAndMake {
        a: usize,
        to: usize,
        b: usize,
        salt: u64,
    },
    ChangeBoth {
        a: usize,
        b: usize,
        salt: u64,
    },
    Stir {
        row: usize,
        with: usize,
        by: usize,
        salt: u64,
    },
    Grow {
        row: usize,
        by: usize,
    },
    WithChildren {
        salt: u64,
        of: usize,
    },
    WithAFlow {
        salt: u64,
        a: usize,
        b: usize,
    },
    /// The name is given to what another one names.
    Rename {
        name: usize,
        to: usize,
    },
    /// The name is given to something new.
    Replace {
        name: usize,
        salt: u64,
        of: usize,
    },
    /// The closure looks at the number; what it sees goes into all later steps.
    Look {
        at: usize,
    },
    /// A loan that is kept.
    Keep {
        of: usize,
    },
    /// The oldest loan that is kept is looked at, and given up.
    GiveUp,
    /// The number is taken out, changed, and brought in again, under all of its names.
    TakeOut {
        all: Vec<usize>,
        salt: u64,
    },
    /// The closure rests: only where somebody decides how long.
    Rest,
    /// The task that changes it panics.
    Fail {
        to: usize,
    },
    /// The closure panics.
    Burst,
}

/// What a program gives.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Outcome {
    numbers: Vec<u64>,
    rows: Vec<Vec<u64>>,
    /// What the closure has looked at.
    seen: Vec<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Program {
    steps: Vec<Step>,
    /// Of each number at the end, the first name of the same.
    first_names: Vec<usize>,
    /// Of each task, the tasks whose results it uses.
    #[serde(skip)]
    inputs: Vec<BTreeSet<usize>>,
    /// The steps at which the closure waits, and the end.
    #[serde(skip)]
    rests: BTreeMap<usize, Rest>,
}

/// A place at which the closure waits.
#[derive(Clone, Debug)]
struct Rest {
    /// So many tasks have been made before.
    made: usize,
    /// These have to be over.
    needs: BTreeSet<usize>,
}

/// What is drawn of a step: its kind, and from what the names in it follow.
type Draw = (u8, [u16; 3]);

/// A piece of data, as the program is written.
#[derive(Default)]
struct Piece {
    writer: Option<usize>,
    readers: BTreeSet<usize>,
}

/// Writes a program, and its graph.
#[derive(Default)]
struct Author {
    program: Program,
    pieces: Vec<Piece>,
    /// The pieces that names stand for.
    numbers: Vec<usize>,
    rows: Vec<usize>,
    /// The loans that are kept: of what the task has made of the piece.
    loans: VecDeque<(usize, Option<usize>)>,
}

impl Author {
    fn piece(&mut self, writer: Option<usize>) -> usize {
        self.pieces.push(Piece {
            writer,
            readers: BTreeSet::new(),
        });
        self.pieces.len() - 1
    }

    /// Enters a task that reads and changes those pieces.
    fn task(&mut self, reads: &[usize], changes: &[usize]) -> usize {
        let task = self.program.inputs.len();
        let used = reads.iter().chain(changes);
        let inputs = used.filter_map(|piece| self.pieces[*piece].writer);
        self.program.inputs.push(inputs.collect());
        for piece in reads {
            self.pieces[*piece].readers.insert(task);
        }
        for piece in changes {
            self.pieces[*piece] = Piece {
                writer: Some(task),
                readers: BTreeSet::new(),
            };
        }
        task
    }

    /// The same, of one that makes a number.
    fn maker(&mut self, reads: &[usize], changes: &[usize]) {
        let task = self.task(reads, changes);
        let piece = self.piece(Some(task));
        self.numbers.push(piece);
    }

    fn rest(&mut self, needs: BTreeSet<usize>) {
        let made = self.program.inputs.len();
        let at = self.program.steps.len();
        self.program.rests.insert(at, Rest { made, needs });
    }

    fn data(&mut self, value: u64) {
        let piece = self.piece(None);
        self.numbers.push(piece);
        self.program.steps.push(Step::Data(value));
    }

    fn step(&mut self, (kind, drawn): Draw) {
        let number = |at: usize| usize::from(drawn[at]) % self.numbers.len();
        let row = |at: usize| usize::from(drawn[at]) % self.rows.len();
        let (a, b, c) = (number(0), number(1), number(2));
        let (row_a, row_b) = (row(0), row(1));
        let salt = mix(u64::from(drawn[0]) << 32 | u64::from(drawn[1]) << 16 | u64::from(drawn[2]));
        let of = |name: usize| self.numbers[name];
        let (piece_a, piece_b, piece_c) = (of(a), of(b), of(c));
        let (piece_row, piece_with) = (self.rows[row_a], self.rows[row_b]);
        let step = match kind % 40 {
            0 => return self.data(salt),
            1 => {
                self.maker(&[], &[]);
                Step::Make(salt)
            }
            2 => {
                let task = self.task(&[], &[]);
                let piece = self.piece(Some(task));
                self.rows.push(piece);
                let length = 1 + a % 4;
                Step::MakeRow {
                    length,
                    value: salt,
                }
            }
            3 => {
                self.maker(&[piece_a], &[]);
                Step::OfOne { salt, a }
            }
            4 | 5 => {
                self.maker(&[piece_a, piece_b], &[]);
                Step::OfTwo { salt, a, b }
            }
            6 => {
                self.maker(&[piece_a, piece_b, piece_c], &[]);
                Step::OfThree { salt, a, b, c }
            }
            7 | 8 => {
                let all: Vec<usize> = (0..self.numbers.len())
                    .filter(|at| at % 3 == a % 3)
                    .collect();
                let pieces: Vec<usize> = all.iter().map(|name| self.numbers[*name]).collect();
                self.maker(&pieces, &[]);
                Step::OfMany { salt, all }
            }
            9 => {
                self.maker(&[piece_row], &[]);
                Step::OfRow { salt, row: row_a }
            }
            15..=18 if piece_a != piece_b => {
                self.task(&[], &[piece_a, piece_b]);
                Step::ChangeBoth { a, b, salt }
            }
            10..=18 => {
                self.task(&[piece_b], &[piece_a]);
                Step::Change {
                    to: a,
                    salt,
                    with: b,
                }
            }
            19 | 20 => {
                self.maker(&[piece_b, piece_c], &[piece_a]);
                Step::ChangeAndMake {
                    a: b,
                    to: a,
                    b: c,
                    salt,
                }
            }
            21..=23 => {
                self.task(&[piece_with, piece_c], &[piece_row]);
                Step::Stir {
                    row: row_a,
                    with: row_b,
                    by: c,
                    salt,
                }
            }
            24 => {
                self.task(&[piece_b], &[piece_row]);
                Step::Grow { row: row_a, by: b }
            }
            25 => {
                self.maker(&[piece_a], &[]);
                Step::WithChildren { salt, of: a }
            }
            26 => {
                self.maker(&[piece_a, piece_b], &[]);
                Step::WithAFlow { salt, a, b }
            }
            27 | 28 => {
                self.numbers[a] = piece_b;
                Step::Rename { name: a, to: b }
            }
            29 | 30 => {
                let task = self.task(&[piece_b], &[]);
                self.numbers[a] = self.piece(Some(task));
                Step::Replace {
                    name: a,
                    salt,
                    of: b,
                }
            }
            31 => {
                self.rest(self.pieces[piece_a].writer.into_iter().collect());
                Step::Look { at: a }
            }
            32 | 33 => {
                self.rest(self.pieces[piece_a].writer.into_iter().collect());
                let loan = (piece_a, self.pieces[piece_a].writer);
                self.loans.push_back(loan);
                Step::Keep { of: a }
            }
            34 if !self.loans.is_empty() => {
                self.loans.pop_front();
                Step::GiveUp
            }
            35 => {
                let Piece { writer, readers } = &self.pieces[piece_a];
                let needs = match self.loans.contains(&(piece_a, *writer)) {
                    // What is on loan is copied when all tasks are over.
                    true => (0..self.program.inputs.len()).collect(),
                    false => readers.iter().copied().chain(*writer).collect(),
                };
                self.rest(needs);
                let names = 0..self.numbers.len();
                let all: Vec<usize> = names
                    .filter(|name| self.numbers[*name] == piece_a)
                    .collect();
                let again = self.piece(None);
                all.iter().for_each(|name| self.numbers[*name] = again);
                Step::TakeOut { all, salt }
            }
            _ => {
                self.rest(BTreeSet::new());
                Step::Rest
            }
        };
        self.program.steps.push(step);
    }
}

impl Program {
    fn of(draws: &[Draw]) -> Program {
        let mut author = Author::default();
        (0..3).for_each(|value| author.data(value));
        for value in 0..2 {
            let task = author.task(&[], &[]);
            let piece = author.piece(Some(task));
            author.rows.push(piece);
            author
                .program
                .steps
                .push(Step::MakeRow { length: 3, value });
        }
        draws.iter().for_each(|draw| author.step(*draw));
        author.rest((0..author.program.inputs.len()).collect());
        let numbers = author.numbers.iter();
        let first = |piece| author.numbers.iter().position(|is| is == piece);
        author.program.first_names = numbers.map(|piece| first(piece).expect("itself")).collect();
        author.program
    }

    /// The program with a failure in it.
    fn with_failure(mut self, at: u16, is_of_closure: bool) -> Program {
        // After those that make what every program has.
        let to = usize::from(at) % 3;
        let at = 5 + usize::from(at) % (self.steps.len() - 4);
        let step = match is_of_closure {
            true => Step::Burst,
            false => Step::Fail { to },
        };
        self.steps.insert(at, step);
        self
    }

    /// What the program text says.
    fn interpret(&self) -> Outcome {
        let mut plain = Plain::default();
        self.steps.iter().for_each(|step| plain.step(step));
        let Plain {
            numbers,
            cells,
            rows,
            loans,
            mut seen,
            ..
        } = plain;
        seen.extend(loans);
        let numbers = numbers.into_iter().map(|cell| cells[cell]).collect();
        Outcome {
            numbers,
            rows,
            seen,
        }
    }
}

/// A program as plain code has it.
#[derive(Default)]
struct Plain {
    /// The cell that each name stands for.
    numbers: Vec<usize>,
    cells: Vec<u64>,
    rows: Vec<Vec<u64>>,
    loans: VecDeque<u64>,
    seen: Vec<u64>,
    /// What the closure has looked at goes into all that it does afterwards.
    carry: u64,
}

impl Plain {
    fn of(&self, name: usize) -> u64 {
        self.cells[self.numbers[name]]
    }

    fn cell(&mut self, value: u64) -> usize {
        self.cells.push(value);
        self.cells.len() - 1
    }

    fn add(&mut self, value: u64) {
        let cell = self.cell(value);
        self.numbers.push(cell);
    }

    fn set(&mut self, name: usize, value: u64) {
        self.cells[self.numbers[name]] = value;
    }

    fn step(&mut self, step: &Step) {
        let carry = self.carry;
        match *step {
            Step::Data(value) | Step::Make(value) => self.add(value ^ carry),
            Step::MakeRow { length, value } => self.rows.push(made_row(length, value ^ carry)),
            Step::OfOne { salt, a } => self.add(blend(salt ^ carry, &[self.of(a)])),
            Step::OfTwo { salt, a, b } => self.add(blend(salt ^ carry, &[self.of(a), self.of(b)])),
            Step::OfThree { salt, a, b, c } => {
                let all = [self.of(a), self.of(b), self.of(c)];
                self.add(blend(salt ^ carry, &all));
            }
            Step::OfMany { salt, ref all } => {
                let all: Vec<u64> = all.iter().map(|name| self.of(*name)).collect();
                self.add(blend(salt ^ carry, &all));
            }
            Step::OfRow { salt, row } => self.add(blend(salt ^ carry, &self.rows[row])),
            Step::Change { to, salt, with } => {
                let value = blend(salt ^ carry, &[self.of(to), self.of(with)]);
                self.set(to, value);
            }
            Step::ChangeAndMake { a, to, b, salt } => {
                let (of_a, before, of_b) = (self.of(a), self.of(to), self.of(b));
                self.set(to, blend(salt ^ carry, &[before, of_a, of_b]));
                self.add(blend(salt ^ carry, &[of_b, before]));
            }
            Step::ChangeBoth { a, b, salt } => {
                let (of_a, of_b) = (self.of(a), self.of(b));
                self.set(a, blend(salt ^ carry, &[of_a, of_b]));
                self.set(b, blend(salt ^ carry, &[of_b, of_a]));
            }
            Step::Stir {
                row,
                with,
                by,
                salt,
            } => {
                let (row_is, with) = (&self.rows[row], &self.rows[with]);
                self.rows[row] = stirred(row_is, with, self.of(by), salt ^ carry);
            }
            Step::Grow { row, by } => {
                let by = self.of(by);
                self.rows[row].push(by);
            }
            Step::WithChildren { salt, of } => {
                self.add(plain_tree(3, blend(salt ^ carry, &[self.of(of)])));
            }
            Step::WithAFlow { salt, a, b } => {
                self.add(plain_inner(salt ^ carry, self.of(a), self.of(b)));
            }
            Step::Rename { name, to } => self.numbers[name] = self.numbers[to],
            Step::Replace { name, salt, of } => {
                self.numbers[name] = self.cell(blend(salt ^ carry, &[self.of(of)]));
            }
            Step::Look { at } => {
                self.seen.push(self.of(at));
                self.carry = blend(carry, &[self.of(at)]);
            }
            Step::Keep { of } => self.loans.push_back(self.of(of)),
            Step::GiveUp => self.seen.extend(self.loans.pop_front()),
            Step::TakeOut { ref all, salt } => {
                let cell = self.cell(blend(salt ^ carry, &[self.of(all[0])]));
                all.iter().for_each(|name| self.numbers[*name] = cell);
            }
            Step::Rest => {}
            Step::Fail { .. } | Step::Burst => unreachable!("{ON_PURPOSE}"),
        }
    }
}

/// A program as a flow has it.
struct Player<'g, 'f> {
    g: &'f Flow<'g>,
    run: u64,
    numbers: Vec<Handle<'g, Number>>,
    rows: Vec<Handle<'g, Vec<Number>>>,
    loans: VecDeque<Made<Number>>,
    seen: Vec<u64>,
    carry: u64,
}

impl Player<'_, '_> {
    fn step(&mut self, step: &Step) {
        let (g, run, carry) = (self.g, self.run, self.carry);
        let (numbers, rows) = (&self.numbers, &self.rows);
        let made = match *step {
            Step::Data(value) => g.data(Number::new(run, value ^ carry)),
            Step::Make(value) => task!(g, make(run, value ^ carry)),
            Step::MakeRow { length, value } => {
                let row = task!(g, make_row(run, length, value ^ carry));
                return self.rows.push(row);
            }
            Step::OfOne { salt, a } => task!(g, of_one(salt ^ carry, r(numbers[a]))),
            Step::OfTwo { salt, a, b } => {
                task!(g, of_two(r(numbers[a]), salt ^ carry, r(numbers[b])))
            }
            Step::OfThree { salt, a, b, c } => {
                let [a, b, c] = [a, b, c].map(|name| r(numbers[name]));
                task!(g, of_three(a, b, c, salt ^ carry))
            }
            Step::OfMany { salt, ref all } => {
                let all = all.iter().map(|name| numbers[*name]);
                task!(g, of_many(many(all), run, salt ^ carry))
            }
            Step::OfRow { salt, row } => task!(g, of_row(r(rows[row]), run, salt ^ carry)),
            Step::Change { to, salt, with } => {
                task!(g, change(rw(numbers[to]), salt ^ carry, r(numbers[with])));
                return;
            }
            Step::ChangeAndMake { a, to, b, salt } => {
                let (a, to, b) = (r(numbers[a]), rw(numbers[to]), r(numbers[b]));
                task!(g, change_and_make(a, to, b, salt ^ carry))
            }
            Step::ChangeBoth { a, b, salt } => {
                task!(g, change_both(rw(numbers[a]), rw(numbers[b]), salt ^ carry));
                return;
            }
            Step::Stir {
                row,
                with,
                by,
                salt,
            } => {
                let (row, with, by) = (rw(rows[row]), r(rows[with]), r(numbers[by]));
                task!(g, stir(row, with, by, salt ^ carry));
                return;
            }
            Step::Grow { row, by } => {
                task!(g, grow(rw(rows[row]), r(numbers[by])));
                return;
            }
            Step::WithChildren { salt, of } => {
                task!(g, with_children(salt ^ carry, r(numbers[of])))
            }
            Step::WithAFlow { salt, a, b } => {
                task!(g, with_a_flow(salt ^ carry, r(numbers[a]), r(numbers[b])))
            }
            Step::Rename { name, to } => {
                self.numbers[name] = self.numbers[to];
                return;
            }
            Step::Replace { name, salt, of } => {
                self.numbers[name] = task!(g, of_one(salt ^ carry, r(numbers[of])));
                return;
            }
            Step::Look { at } => {
                let value = g.get(numbers[at]).value;
                self.seen.push(value);
                self.carry = blend(carry, &[value]);
                return;
            }
            Step::Keep { of } => return self.loans.push_back(g.get(numbers[of])),
            Step::GiveUp => {
                let loan = self.loans.pop_front();
                return self.seen.extend(loan.map(|loan| loan.value));
            }
            Step::TakeOut { ref all, salt } => {
                let mut number = g.take(numbers[all[0]]);
                number.value = blend(salt ^ carry, &[number.value]);
                let again = g.data(number);
                all.iter().for_each(|name| self.numbers[*name] = again);
                return;
            }
            Step::Rest => return,
            Step::Fail { to } => {
                task!(g, fail(rw(numbers[to])));
                return;
            }
            Step::Burst => panic!("{ON_PURPOSE}, by its closure"),
        };
        self.numbers.push(made);
    }
}

/// Plays the program in a flow; `rest` is called before each step that waits, and at the end.
fn play<'g>(g: &Flow<'g>, program: &Program, run: u64, rest: &dyn Fn(usize)) -> Outcome {
    let mut player = Player {
        g,
        run,
        numbers: vec![],
        rows: vec![],
        loans: VecDeque::new(),
        seen: vec![],
        carry: 0,
    };
    for (at, step) in program.steps.iter().enumerate() {
        if matches!(
            step,
            Step::Look { .. } | Step::Keep { .. } | Step::TakeOut { .. } | Step::Rest
        ) {
            rest(at);
        }
        player.step(step);
    }
    rest(program.steps.len());
    let Player {
        numbers,
        rows,
        loans,
        mut seen,
        ..
    } = player;
    let names = program.first_names.iter();
    let mut taken: BTreeMap<usize, u64> = BTreeMap::new();
    let numbers = names.map(|first| {
        let take = || g.take(numbers[*first]).value;
        *taken.entry(*first).or_insert_with(take)
    });
    let numbers = numbers.collect();
    let rows = g.take_all(rows).iter().map(|row| values(row)).collect();
    seen.extend(loans.iter().map(|loan| loan.value));
    Outcome {
        numbers,
        rows,
        seen,
    }
}

// ------------------------------------------------------------------------------------------------------ how it is tried

fn draws() -> impl Strategy<Value = Vec<Draw>> {
    proptest::collection::vec((any::<u8>(), any::<[u16; 3]>()), 1..80)
}

/// Tries so many cases. A smaller one that fails is looked for in 300 runs and 20 s at most.
fn law<S: Strategy>(cases: u32, of: &S, holds: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 300,
        max_shrink_time: 20_000,
        ..ProptestConfig::default()
    };
    if let Err(error) = TestRunner::new(config).run(of, holds) {
        panic!("{error}");
    }
}

// ------------------------------------------------------------------------------------------------------ every order

/// Where the closure rests until it may go on.
struct Turnstile {
    rests: mpsc::Sender<usize>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Turnstile {
    fn pass(&self, step: usize) {
        self.rests.send(step).expect("the referee waits");
        let go = self.go.lock().unwrap_or_else(PoisonError::into_inner);
        go.recv().expect("the referee lets the closure go on");
    }
}

/// The other node: it runs what the referee gives it.
struct Host {
    pool: Satin,
    told: mpsc::Receiver<Told>,
}

/// A task that the referee has taken.
struct InHand {
    departure: DepartureId,
    parcel: Parcel,
    answer: Option<satin::job::Answer>,
}

/// Takes each task as soon as it can run, and decides in which order they are run: there is one worker, and it never gets one, as the closure
/// rests on it until the referee has no more to do.
struct Referee<'r> {
    gate: &'r Gate,
    host: &'r Host,
    program: &'r Program,
    rng: Rng,
    in_hand: BTreeMap<usize, InHand>,
    over: BTreeSet<usize>,
    /// In this order they were answered.
    order: Vec<usize>,
}

impl Referee<'_> {
    fn lead(&mut self, rests: &mpsc::Receiver<usize>, go: &mpsc::Sender<()>) {
        let end = self.program.steps.len();
        loop {
            let at = rests.recv().expect("the closure rests at the end");
            let Rest { made, needs } = &self.program.rests[&at];
            loop {
                self.take_all(*made);
                let may_end = needs.is_subset(&self.over);
                if self.in_hand.is_empty() || may_end && self.rng.below(3) == 0 {
                    break;
                }
                self.act();
            }
            assert!(needs.is_subset(&self.over), "nothing is left to be run");
            go.send(()).expect("the closure rests");
            if at == end {
                return;
            }
        }
    }

    /// Takes what the program text lets run by now, and sees that nothing else can be taken.
    fn take_all(&mut self, made: usize) {
        let inputs = &self.program.inputs[..made];
        let can_run: BTreeSet<usize> = (0..made)
            .filter(|task| !self.over.contains(task) && inputs[*task].is_subset(&self.over))
            .collect();
        let (gate, in_hand) = (self.gate, std::cell::RefCell::new(&mut self.in_hand));
        let take_some = || {
            for (departure, parcel) in own(gate.take(8)) {
                let task = parcel.id.path().last().expect("a task has a number") as usize;
                let waits_for = inputs.get(task);
                assert!(
                    can_run.contains(&task),
                    "task {task} can run, which waits for {waits_for:?}"
                );
                let taken = InHand {
                    departure,
                    parcel,
                    answer: None,
                };
                let twice = in_hand.borrow_mut().insert(task, taken);
                assert!(twice.is_none(), "task {task} can be taken twice");
            }
        };
        wait_within(PATIENCE / 2, "each task whose inputs are there", || {
            take_some();
            can_run.len() == in_hand.borrow().len()
        });
        take_some();
    }

    /// Does something with one of the tasks.
    fn act(&mut self) {
        let at = self.rng.below(self.in_hand.len() as u64) as usize;
        let task = *self.in_hand.keys().nth(at).expect("there are so many");
        match self.rng.below(6) {
            0 => self.put_back(task),
            1 => self.run(task),
            _ => self.answer(task),
        }
    }

    fn put_back(&mut self, task: usize) {
        let InHand { departure, .. } = self.in_hand.remove(&task).expect("it is in hand");
        let back = satin::job::Back::default();
        assert!(self.gate.put_back(departure, back), "it is away");
        assert!(!self.gate.put_back(departure, back), "it is back");
    }

    fn run(&mut self, task: usize) {
        let in_hand = self.in_hand.get_mut(&task).expect("it is in hand");
        if in_hand.answer.is_some() {
            return;
        }
        let key = HostedId(in_hand.departure.0);
        self.host.pool.gate().host(key, in_hand.parcel.clone());
        let (of, answer) = done(&self.host.told);
        assert_eq!(of, key);
        in_hand.answer = Some(answer);
    }

    fn answer(&mut self, task: usize) {
        self.run(task);
        let in_hand = self.in_hand.remove(&task).expect("it is in hand");
        let answer = in_hand.answer.expect("it has just run");
        assert!(self.gate.deliver(in_hand.departure, answer.clone()));
        assert!(!self.gate.deliver(in_hand.departure, answer), "twice");
        self.over.insert(task);
        self.order.push(task);
    }
}

/// Whatever the referee decides, the program gives what its text says; and at each moment just those tasks can run whose inputs are there.
#[test]
fn in_every_permitted_order_a_flow_gives_what_the_program_text_says() {
    let pool = outside::pool(1);
    let host = outside::pool(1);
    let host = Host {
        told: outside::listen(&host),
        pool: host,
    };
    let (tried, reordered, put_in_front) = (Cell::new(0u32), Cell::new(0u32), Cell::new(0usize));
    law(800, &(draws(), any::<u64>()), |(draws, seed)| {
        let program = Program::of(&draws);
        let run = next_number();
        let _watchdog = Watchdog::new(format!("{seed}, {program:?}"));
        let (rests, is_at) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let turnstile = Turnstile {
            rests,
            go: Mutex::new(may_go),
        };
        let mut order = Vec::new();
        let outcome = during(
            &pool,
            || flow!(|g| play(g, &program, run, &|step| turnstile.pass(step))),
            |gate| {
                let (is_at, go) = (is_at, go);
                let mut referee = Referee {
                    gate,
                    host: &host,
                    program: &program,
                    rng: Rng(seed),
                    in_hand: BTreeMap::new(),
                    over: BTreeSet::new(),
                    order: vec![],
                };
                referee.lead(&is_at, &go);
                order = referee.order;
            },
        );
        prop_assert_eq!(outcome, program.interpret());
        all_are_dropped(run);
        prop_assert_eq!(order.len(), program.inputs.len());
        tried.update(|tried| tried + 1);
        let swaps = order.windows(2).filter(|pair| pair[0] > pair[1]).count();
        reordered.update(|sum| sum + u32::from(swaps > 0));
        put_in_front.update(|sum| sum + swaps);
        Ok(())
    });
    let (tried, reordered) = (tried.get(), reordered.get());
    println!("{reordered} of {tried} programs ran out of the order of their text");
    assert!(
        reordered > tried / 2 && put_in_front.get() > 2 * tried as usize,
        "of {tried} programs {reordered} ran in another order than that of the text"
    );
}

// ------------------------------------------------------------------------------------------------------ workers, and a thief

/// Where the flow of a program stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In ordinary code.
    Plain,
    /// In a root job.
    Root,
    /// In two jobs that run beside each other, and may leave.
    TwoJobs,
}

#[spawnable]
fn whole(program: Program, run: u64) -> Outcome {
    give_way();
    flow!(|g| play(g, &program, run, &|_| ()))
}

#[spawnable]
fn twice(program: Program, run: u64) -> (Outcome, Outcome) {
    let a = spawn!(whole(program.clone(), run));
    let b = spawn!(whole(program, run));
    sync!();
    (a, b)
}

impl Place {
    fn run(self, program: &Program, run: u64) -> Outcome {
        match self {
            Place::Plain => flow!(|g| play(g, program, run, &|_| ())),
            Place::Root => whole(program.clone(), run),
            Place::TwoJobs => {
                let (a, b) = twice(program.clone(), run);
                assert_eq!(a, b, "the same program");
                a
            }
        }
    }
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![Just(Place::Plain), Just(Place::Root), Just(Place::TwoJobs)]
}

/// A thief that answers late and out of turn, puts back, refuses and loses; or one whose victims believe that it dies.
fn habits() -> impl Strategy<Value = Habits> {
    let unruly = Habits {
        put_back: 15,
        refuse: 5,
        lose: 15,
        late: 50,
        beat: 4,
        ..Habits::default()
    };
    let crashing = Habits {
        lose: 10,
        late: 20,
        orphan: 50,
        beat: 4,
        ..Habits::default()
    };
    let late = Habits {
        late: 80,
        ..Habits::default()
    };
    let kind = prop_oneof![Just(late), Just(unruly), Just(crashing)];
    (kind, any::<u64>(), 1usize..12, 1usize..8).prop_map(|(kind, seed, wanted, most)| Habits {
        seed,
        wanted,
        most,
        ..kind
    })
}

/// Pools of 1, 2 and 4 workers, and the other node.
struct Pools {
    all: [Satin; 3],
    other: Satin,
    reports: Mutex<Report>,
}

impl Pools {
    fn new() -> Pools {
        Pools {
            all: [1, 2, 4].map(outside::pool),
            other: outside::pool(2),
            reports: Mutex::default(),
        }
    }

    /// Runs the program on each of the pools, with a thief beside, and adds up what the thief does.
    fn on_each(&self, habits: Habits, program: impl Fn()) {
        for pool in &self.all {
            let ((), report) = beside(pool, &self.other, habits, |_| program());
            let mut sum = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
            sum.travelled += report.travelled;
            sum.returned += report.returned;
            sum.recalled += report.recalled;
            sum.late += report.late;
            sum.claimed += report.claimed;
            sum.panicked += report.panicked;
            sum.brought += report.brought;
            sum.forgotten += report.forgotten;
            sum.prefetched += report.prefetched;
        }
    }

    /// So many random programs give on each of the pools what their text says, beside a thief of such habits. The numbers of their runs have
    /// these bits.
    fn agree(&self, cases: u32, habits: impl Strategy<Value = Habits>, bits: u64) {
        law(
            cases,
            &(draws(), place(), habits),
            |(draws, place, habits)| {
                let program = Program::of(&draws);
                let run = next_number() | bits;
                let _watchdog = Watchdog::new(format!("{place:?}, {habits:?}, {program:?}"));
                let expected = program.interpret();
                self.on_each(habits, || assert_eq!(place.run(&program, run), expected));
                all_are_dropped(run);
                Ok(())
            },
        );
    }

    fn report(self) -> Report {
        let report = self.reports.into_inner();
        report.unwrap_or_else(PoisonError::into_inner)
    }
}

#[test]
fn on_workers_here_and_elsewhere_a_flow_gives_what_the_program_text_says() {
    let pools = Pools::new();
    pools.agree(300, habits(), 0);
    let report = pools.report();
    println!("{report:?}");
    assert!(
        report.travelled > 0 && report.returned > 0 && report.late > 0 && report.claimed > 0,
        "the thief has done of everything: {report:?}"
    );
}

/// What tasks make elsewhere stays there, and may be lost there.
#[test]
fn what_is_kept_elsewhere_comes_when_it_is_needed_or_is_made_again() {
    satin::data::store();
    let pools = Pools::new();
    let habits = (habits(), prop_oneof![Just(0u64), Just(30), Just(100)]);
    let habits = habits.prop_map(|(habits, forget)| Habits { forget, ..habits });
    pools.agree(100, habits, LARGE);
    let report = pools.report();
    println!("{report:?}");
    assert!(
        report.brought > report.forgotten && report.forgotten > 0,
        "data were kept elsewhere, and some were lost: {report:?}"
    );
    assert!(
        report.prefetched > 0,
        "nothing was to be fetched for tasks that waited: {report:?}"
    );
}

#[test]
fn a_panic_anywhere_is_that_of_the_flow_and_each_value_is_dropped_once() {
    let pools = Pools::new();
    let failure = (any::<u16>(), prop::bool::weighted(0.25));
    let cases = (draws(), failure, place(), habits());
    law(
        300,
        &cases,
        |(draws, (at, is_of_closure), place, habits)| {
            let program = Program::of(&draws).with_failure(at, is_of_closure);
            let run = next_number();
            let _watchdog = Watchdog::new(format!("{place:?}, {habits:?}, {program:?}"));
            pools.on_each(habits, || {
                let run = || place.run(&program, run);
                let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("it fails");
                let text = payload.downcast_ref::<String>().expect("a message");
                assert!(text.contains(ON_PURPOSE), "{text}");
            });
            all_are_dropped(run);
            Ok(())
        },
    );
    let report = pools.report();
    println!("{report:?}");
    assert!(
        report.travelled > 0 && report.panicked > 0 && report.recalled > 0,
        "tasks panic elsewhere too: {report:?}"
    );
}
