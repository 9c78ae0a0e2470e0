//! Graphs of tiled programs: LU and Cholesky factorisations, and sweeps of Gauss-Seidel over blocks.
//!
//! Costs have the proportions of dense kernels of order b, in units of b^3/5: a factorisation of a tile 1.7 (Cholesky) or 3.3
//! (LU), a triangular solve 5, an update 10 (5 on the diagonal of Cholesky's). A last task collects the result.

use std::collections::BTreeMap;

use super::{Task, TaskGraph, TaskId};

/// A tile or block: its row and column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Tile {
    row: usize,
    column: usize,
}

const fn tile(row: usize, column: usize) -> Tile {
    Tile { row, column }
}

/// Makes a graph as a flow does: a task comes after the last earlier writers of what it reads and writes.
#[derive(Default)]
struct TiledProgram {
    tasks: Vec<Task>,
    writers: BTreeMap<Tile, TaskId>,
}

impl TiledProgram {
    fn task(&mut self, cost: f64, writes: Tile, reads: &[Tile]) {
        let accesses = std::iter::once(&writes).chain(reads);
        let after = accesses.filter_map(|tile| self.writers.get(tile).copied());
        let mut after: Vec<TaskId> = after.collect();
        after.sort_unstable();
        after.dedup();
        self.writers.insert(writes, self.tasks.len());
        self.tasks.push(Task { cost, after });
    }

    fn collect(mut self, name: String) -> TaskGraph {
        let mut after: Vec<TaskId> = self.writers.values().copied().collect();
        after.sort_unstable();
        let cost = TaskGraph::LEAST_COST;
        self.tasks.push(Task { cost, after });
        TaskGraph {
            name,
            tasks: self.tasks,
        }
    }
}

/// LU factorisation of `n` times `n` tiles, without pivoting.
#[must_use]
pub fn lu(n: usize) -> TaskGraph {
    let mut program = TiledProgram::default();
    for k in 0..n {
        program.task(3.3, tile(k, k), &[]);
        for j in k + 1..n {
            program.task(5.0, tile(k, j), &[tile(k, k)]);
            program.task(5.0, tile(j, k), &[tile(k, k)]);
        }
        for i in k + 1..n {
            for j in k + 1..n {
                program.task(10.0, tile(i, j), &[tile(i, k), tile(k, j)]);
            }
        }
    }
    program.collect(format!("lu:{n}"))
}

/// Cholesky factorisation of `n` times `n` tiles, of which the lower half is used.
#[must_use]
pub fn cholesky(n: usize) -> TaskGraph {
    let mut program = TiledProgram::default();
    for k in 0..n {
        program.task(1.7, tile(k, k), &[]);
        for i in k + 1..n {
            program.task(5.0, tile(i, k), &[tile(k, k)]);
        }
        for i in k + 1..n {
            for j in k + 1..i {
                program.task(10.0, tile(i, j), &[tile(i, k), tile(j, k)]);
            }
            program.task(5.0, tile(i, i), &[tile(i, k)]);
        }
    }
    program.collect(format!("cholesky:{n}"))
}

/// Sweeps of Gauss-Seidel over `n` times `n` blocks, each of which reads its four neighbours.
#[must_use]
pub fn gauss_seidel(n: usize, sweeps: usize) -> TaskGraph {
    let mut program = TiledProgram::default();
    for _ in 0..sweeps {
        for row in 0..n {
            for column in 0..n {
                let mut reads = Vec::new();
                if row > 0 {
                    reads.push(tile(row - 1, column));
                }
                if column > 0 {
                    reads.push(tile(row, column - 1));
                }
                if row + 1 < n {
                    reads.push(tile(row + 1, column));
                }
                if column + 1 < n {
                    reads.push(tile(row, column + 1));
                }
                program.task(5.0, tile(row, column), &reads);
            }
        }
    }
    program.collect(format!("gauss-seidel:{n},{sweeps}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lu_of_2x2_tiles_is_a_diamond_and_an_end() {
        let after: Vec<_> = lu(2).tasks.into_iter().map(|task| task.after).collect();
        let expected: [&[TaskId]; 6] = [&[], &[0], &[0], &[1, 2], &[3], &[0, 1, 2, 4]];
        assert_eq!(after, expected);
    }

    #[test]
    fn graphs_have_the_tasks_of_their_programs() {
        // n + n(n-1) + n(n-1)(2n-1)/6, and the end.
        assert_eq!(lu(8).tasks.len(), 8 + 56 + 140 + 1);
        // n + n(n-1)/2 + (n-1)n(n+1)/6, and the end.
        assert_eq!(cholesky(8).tasks.len(), 8 + 28 + 84 + 1);
        assert_eq!(gauss_seidel(16, 2).tasks.len(), 513);
    }

    #[test]
    fn a_sweep_waits_for_no_reader_of_the_sweep_before() {
        let sweeps = gauss_seidel(2, 2);
        // The first block of the second sweep reads itself and its neighbours, all as the first sweep left them.
        assert_eq!(sweeps.tasks[4].after, [0, 1, 2]);
    }
}
