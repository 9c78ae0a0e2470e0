//! All solutions of the N queens problem by bit masks, no cut-off: spawns in a loop, several children per job.

use std::hint::black_box;

use super::Case;

/// Solutions for boards of 0 to 16 (OEIS A000170).
const SOLUTIONS: [u64; 17] = [
    1, 1, 0, 0, 2, 10, 4, 40, 92, 352, 724, 2680, 14200, 73712, 365_596, 2_279_184, 14_772_512,
];

pub struct Nqueens {
    n: u32,
    calls: u64,
}

impl Nqueens {
    pub fn new(n: u32) -> Self {
        let calls = count_calls(all_columns(n), 0, 0, 0);
        Self { n, calls }
    }
}

impl Case for Nqueens {
    fn title(&self) -> String {
        format!("nqueens({})", self.n)
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn seq(&mut self) -> u64 {
        queens_seq(black_box(all_columns(self.n)), 0, 0, 0)
    }

    fn satin(&mut self) -> u64 {
        queens_satin(black_box(all_columns(self.n)), 0, 0, 0)
    }

    fn rayon(&mut self) -> u64 {
        queens_rayon(black_box(all_columns(self.n)), 0, 0, 0)
    }

    fn chili(&mut self, scope: &mut chili::Scope<'_>) -> u64 {
        queens_chili(scope, black_box(all_columns(self.n)), 0, 0, 0)
    }

    fn check(&self, answer: u64) -> bool {
        answer == SOLUTIONS[self.n as usize]
    }
}

// All functions below fill the next row of a board, given as four sets of columns: `all` it has, those that hold a
// queen (`columns`), and those of this row that a queen above attacks along a diagonal (`left`, `right`).

fn all_columns(n: u32) -> u32 {
    (1 << n) - 1
}

/// The lowest column of a set that is not empty.
fn lowest(set: u32) -> u32 {
    set & set.wrapping_neg()
}

fn count_calls(all: u32, columns: u32, left: u32, right: u32) -> u64 {
    let mut free = all & !(columns | left | right);
    let mut calls = 1;
    while free != 0 {
        let queen = lowest(free);
        free ^= queen;
        calls += count_calls(
            all,
            columns | queen,
            (left | queen) << 1,
            (right | queen) >> 1,
        );
    }
    calls
}

fn queens_seq(all: u32, columns: u32, left: u32, right: u32) -> u64 {
    if columns == all {
        return 1;
    }
    let mut free = all & !(columns | left | right);
    let mut solutions = 0;
    while free != 0 {
        let queen = lowest(free);
        free ^= queen;
        solutions += queens_seq(
            all,
            columns | queen,
            (left | queen) << 1,
            (right | queen) >> 1,
        );
    }
    solutions
}

#[satin::spawnable]
fn queens_satin(all: u32, columns: u32, left: u32, right: u32) -> u64 {
    if columns == all {
        return 1;
    }
    let mut free = all & !(columns | left | right);
    let mut solutions = 0;
    while free != 0 {
        let queen = lowest(free);
        free ^= queen;
        solutions += queens_satin(
            all,
            columns | queen,
            (left | queen) << 1,
            (right | queen) >> 1,
        );
    }
    solutions
}

/// Halves the row by `join`: the fastest of the ways to write this with rayon. On one thread, as a multiple of
/// `queens_seq` for 12 queens, roughly: this 1.8; `join` of the first queen with the rest of the row 2.6; a
/// parallel iterator over the ordinals of the queens 3.2, over a `Vec` of them 5; `rayon::scope` and a `spawn`
/// per queen 15.
fn queens_rayon(all: u32, columns: u32, left: u32, right: u32) -> u64 {
    if columns == all {
        return 1;
    }
    row_rayon(all & !(columns | left | right), all, columns, left, right)
}

/// Puts the row's queen on each column of the set `free` in turn.
fn row_rayon(free: u32, all: u32, columns: u32, left: u32, right: u32) -> u64 {
    match free.count_ones() {
        0 => 0,
        1 => queens_rayon(all, columns | free, (left | free) << 1, (right | free) >> 1),
        _ => {
            let (low, high) = halves(free);
            let (a, b) = rayon::join(
                || row_rayon(low, all, columns, left, right),
                || row_rayon(high, all, columns, left, right),
            );
            a + b
        }
    }
}

/// chili has no loops: halves the row by `join`, too.
fn queens_chili(
    scope: &mut chili::Scope<'_>,
    all: u32,
    columns: u32,
    left: u32,
    right: u32,
) -> u64 {
    if columns == all {
        return 1;
    }
    row_chili(
        scope,
        all & !(columns | left | right),
        all,
        columns,
        left,
        right,
    )
}

/// Puts the row's queen on each column of the set `free` in turn.
fn row_chili(
    scope: &mut chili::Scope<'_>,
    free: u32,
    all: u32,
    columns: u32,
    left: u32,
    right: u32,
) -> u64 {
    match free.count_ones() {
        0 => 0,
        1 => queens_chili(
            scope,
            all,
            columns | free,
            (left | free) << 1,
            (right | free) >> 1,
        ),
        _ => {
            let (low, high) = halves(free);
            let (a, b) = scope.join(
                |s| row_chili(s, low, all, columns, left, right),
                |s| row_chili(s, high, all, columns, left, right),
            );
            a + b
        }
    }
}

/// The lower and the upper half of a set of columns, by their number.
fn halves(set: u32) -> (u32, u32) {
    let mut upper = set;
    for _ in 0..set.count_ones() / 2 {
        upper ^= lowest(upper);
    }
    (set ^ upper, upper)
}
