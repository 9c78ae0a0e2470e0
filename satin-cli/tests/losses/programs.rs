//! The programs that are killed. Each is a test of this executable, which does nothing unless it is started as a node.
//!
//! Leaves sleep: so many workers share a processor, and what is lost does not depend on its speed. Each leaf appends a byte to
//! a file, so its length says how many were done.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    hint::black_box,
    io::Write as _,
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use satin::{Config, Handle, MinWith, Shared, bound, flow, r, rw, spawn, spawnable, sync, task};

/// Set where this executable is a program: the file that counts leaves.
pub const COUNT: &str = "SATIN_TEST_LOSSES_COUNT";

/// The file without which [`GATED`] does not end.
pub const GATE: &str = "SATIN_TEST_LOSSES_GATE";

/// Far longer than the 1 ms below which results are not kept.
pub const LEAF: Duration = Duration::from_millis(3);

/// The leaves of a root job.
pub const LEAVES: u64 = 512;

/// A program of this file.
#[derive(Clone, Copy)]
pub struct Program {
    pub name: &'static str,
    /// The number of leaves that any run does, if that is always the same.
    pub leaves: Option<u64>,
    answer: fn(u64) -> String,
}

/// `?`: of three root jobs the second fails.
pub const SUMS: Program = Program {
    name: "sums",
    leaves: None,
    answer: |factor| {
        let sum = |to| (0..to).map(|leaf| value(leaf, factor)).fold(0, plus);
        let (all, half) = (sum(LEAVES), sum(LEAVES / 2));
        format!("sums {all:016x}, {BAD} fails, {half:016x}\n")
    },
};

/// `&mut`: the second root job goes on with what the first has left in the same cells.
pub const CELLS: Program = Program {
    name: "cells",
    leaves: Some(2 * LEAVES),
    answer: |factor| {
        let twice = |cell| value(value(cell, factor), factor);
        let sum = (0..LEAVES).map(twice).fold(0, plus);
        format!("cells {sum:016x}\n")
    },
};

/// `Shared`, as an argument and in results.
pub const TABLES: Program = Program {
    name: "tables",
    leaves: Some(2 * LEAVES),
    answer: |factor| {
        let sum = (0..LEAVES).map(|leaf| value(!leaf, factor)).fold(0, plus);
        format!("tables {sum:016x}, {:016x}\n", plus(sum, sum))
    },
};

/// `bound!`: the root job gives nothing but a bound with its witness.
pub const BEST: Program = Program {
    name: "best",
    leaves: Some(LEAVES),
    answer: |factor| {
        let cost = |leaf: &u64| value(*leaf, factor);
        let best = (0..LEAVES).min_by_key(cost).expect("there are leaves");
        format!("best {:016x} at [{best}]\n", cost(&best))
    },
};

/// A flow: cells are changed time and again, each by its neighbours.
pub const SWEEPS: Program = Program {
    name: "sweeps",
    leaves: Some(LEAVES),
    answer: |factor| {
        let mut cells: Vec<u64> = (0..CELLS_OF_FLOW as u64).collect();
        for _ in 0..LEAVES / CELLS_OF_FLOW as u64 {
            for at in 0..cells.len() {
                let (left, right) = neighbours(at);
                let seen = plus(plus(cells[left], cells[at]), cells[right]);
                cells[at] = value(seen, factor);
            }
        }
        format!("sweeps {:016x}\n", cells.into_iter().fold(0, plus))
    },
};

/// A run that does not end before there is a file.
pub const GATED: Program = Program {
    name: "gated",
    leaves: None,
    answer: |_| "gated 0\n".into(),
};

impl Program {
    pub const ALL: [Program; 5] = [SUMS, CELLS, TABLES, BEST, SWEEPS];

    /// The time that one worker takes at least.
    pub fn least_ms(self) -> u64 {
        self.leaves.unwrap_or(LEAVES) * LEAF.as_millis() as u64
    }

    /// The arguments of that executable, which is this one or a copy of it.
    pub fn command(self, executable: &Path) -> Vec<OsString> {
        let test = format!("programs::{}", self.name);
        let arguments = [&test, "--exact", "--nocapture"].map(OsString::from);
        [executable.into()].into_iter().chain(arguments).collect()
    }

    /// Stands on stdout once.
    pub fn answer(self) -> String {
        (self.answer)(factor())
    }

    /// The answer of an executable whose body is another.
    pub fn answer_of_body(self, body: u8) -> String {
        (self.answer)(u64::from(body))
    }
}

pub fn this_executable() -> std::path::PathBuf {
    std::env::current_exe().expect("a test knows its own path")
}

/// The last byte is a number that goes into all answers: a copy of this executable with another one is the same program with
/// an edited body.
static BODY: [u8; 24] = *b"what a leaf computes is\x01";

/// The bytes that stand in the executable for the body of this program, and those for that of another one.
pub fn bodies(other: u8) -> [Vec<u8>; 2] {
    let this = black_box(&BODY).to_vec();
    let mut edited = this.clone();
    *edited.last_mut().expect("not empty") = other;
    [this, edited]
}

fn factor() -> u64 {
    u64::from(black_box(&BODY)[23])
}

fn value(of: u64, factor: u64) -> u64 {
    of.wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_mul(2 * factor + 1)
}

fn plus(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}

/// A leaf of any program.
fn work(of: u64) -> u64 {
    static DONE: OnceLock<File> = OnceLock::new();
    std::thread::sleep(LEAF);
    let open = || {
        let file = std::env::var_os(COUNT).expect("this is a node");
        let file = OpenOptions::new().create(true).append(true).open(file);
        file.expect("it can be written")
    };
    let mut done = DONE.get_or_init(open);
    done.write_all(b".").expect("it can be written");
    value(of, factor())
}

/// Runs `main` if this process is a node.
fn main_of<R>(main: impl FnMut() -> R) {
    if std::env::var_os(COUNT).is_some() {
        satin::run(Config::default(), main);
    }
}

// ------------------------------------------------------------------------------------------------------------------ `?`

/// The leaf that fails in the second root job.
const BAD: u64 = 300;

/// The sum of these leaves, unless there is the bad one among them.
#[spawnable]
fn sum(from: u64, to: u64, bad: Option<u64>) -> Result<u64, u64> {
    if to - from == 1 {
        let value = work(from);
        return match bad == Some(from) {
            true => Err(from),
            false => Ok(value),
        };
    }
    let middle = from.midpoint(to);
    let left = sum(from, middle, bad)?;
    let right = sum(middle, to, bad)?;
    sync!();
    Ok(plus(left, right))
}

#[test]
fn sums() {
    main_of(|| {
        let all = sum(0, LEAVES, None).expect("none is bad");
        let bad = sum(0, LEAVES, Some(BAD)).expect_err("one is bad");
        let half = sum(0, LEAVES / 2, None).expect("none is bad");
        println!("sums {all:016x}, {bad} fails, {half:016x}");
    });
}

// --------------------------------------------------------------------------------------------------------------- `&mut`

/// Changes each cell. A cell that was changed twice has a wrong value.
#[spawnable]
fn change(cells: &mut [u64]) {
    if let [cell] = cells {
        *cell = work(*cell);
        return;
    }
    let (left, right) = cells.split_at_mut(cells.len() / 2);
    change(left);
    change(right);
}

#[test]
fn cells() {
    main_of(|| {
        let mut cells: Vec<u64> = (0..LEAVES).collect();
        change(&mut cells);
        change(&mut cells);
        let sum = cells.into_iter().fold(0, plus);
        println!("cells {sum:016x}");
    });
}

// -------------------------------------------------------------------------------------------------------------- `Shared`

#[spawnable]
fn total(table: &Shared<Vec<u64>>, from: usize, to: usize) -> u64 {
    if to - from == 1 {
        return work(table[from]);
    }
    let middle = from.midpoint(to);
    let left = total(table, from, middle);
    let right = total(table, middle, to);
    sync!();
    plus(left, right)
}

/// The same, in values that are made by leaves.
#[spawnable]
fn totals(table: &Shared<Vec<u64>>, from: usize, to: usize) -> Vec<Shared<u64>> {
    if to - from == 1 {
        return vec![Shared::new(work(table[from]))];
    }
    let middle = from.midpoint(to);
    let mut left = totals(table, from, middle);
    let right = totals(table, middle, to);
    sync!();
    left.extend(right);
    left
}

#[test]
fn tables() {
    main_of(|| {
        let table = Shared::new((0..LEAVES).map(|leaf| !leaf).collect::<Vec<_>>());
        let sum = total(&table, 0, table.len());
        let totals = totals(&table, 0, table.len());
        let twice = totals.iter().fold(sum, |sum, total| plus(sum, **total));
        println!("tables {sum:016x}, {twice:016x}");
    });
}

// -------------------------------------------------------------------------------------------------------------- `bound!`

bound! {
    static CHEAPEST: MinWith<u64, Vec<u64>>;
}

#[spawnable]
fn look(from: u64, to: u64) {
    if to - from == 1 {
        CHEAPEST.offer(work(from), vec![from]);
        return;
    }
    let middle = from.midpoint(to);
    look(from, middle);
    look(middle, to);
}

#[test]
fn best() {
    main_of(|| {
        look(0, LEAVES);
        let (cost, witness) = CHEAPEST.get().expect("there are leaves");
        println!("best {cost:016x} at {witness:?}");
    });
}

// ------------------------------------------------------------------------------------------------------------------ flows

/// Every second one can be changed at the same time.
const CELLS_OF_FLOW: usize = 32;

/// The cells to the left and to the right.
fn neighbours(at: usize) -> (usize, usize) {
    let many = CELLS_OF_FLOW;
    ((at + many - 1) % many, (at + 1) % many)
}

#[spawnable]
fn change_by(cell: &mut u64, left: &u64, right: &u64) {
    *cell = work(plus(plus(*left, *cell), *right));
}

#[spawnable]
fn sweep(times: u64) -> u64 {
    flow!(|g| {
        let cells: Vec<Handle<u64>> = (0..CELLS_OF_FLOW as u64).map(|at| g.data(at)).collect();
        for _ in 0..times {
            for at in 0..cells.len() {
                let (left, right) = neighbours(at);
                task!(g, change_by(rw(cells[at]), r(cells[left]), r(cells[right])));
            }
        }
        g.take_all(cells).into_iter().fold(0, plus)
    })
}

#[test]
fn sweeps() {
    main_of(|| println!("sweeps {:016x}", sweep(LEAVES / CELLS_OF_FLOW as u64)));
}

// ---------------------------------------------------------------------------------------------------------------- a gate

#[spawnable]
fn ticks(from: u64, to: u64) -> u64 {
    if to - from == 1 {
        work(from);
        return 0;
    }
    let middle = from.midpoint(to);
    let left = ticks(from, middle);
    let right = ticks(middle, to);
    sync!();
    left + right
}

/// Something to do, and to store, until somebody opens the gate.
#[spawnable]
fn wait_for_the_gate() -> u64 {
    let gate = std::env::var_os(GATE).expect("this program has a gate");
    let mut sum = 0;
    for round in 0.. {
        if Path::new(&gate).exists() {
            break;
        }
        let left = spawn!(ticks(32 * round, 32 * round + 16));
        let right = spawn!(ticks(32 * round + 16, 32 * round + 32));
        sync!();
        sum += left + right;
    }
    sum
}

#[test]
fn gated() {
    main_of(|| println!("gated {}", wait_for_the_gate()));
}
