//! Tasks that do nothing: the graph of a Cholesky factorization, whose tasks have one, two or three accesses, most of them three.

use std::time::Instant;

use anyhow::ensure;
use satin::{Handle, flow, r, rw, spawnable, task};

use super::{Args, Case, Row, least};
use crate::{figures::median, pools::Pools};

#[spawnable]
fn factor(_tile: &mut u64) {}

#[spawnable]
fn solve(_tile: &mut u64, _left: &u64) {}

#[spawnable]
fn update(_tile: &mut u64, _left: &u64, _above: &u64) {}

/// The graph, over so many tiles in a row. Returns the number of tasks.
#[spawnable]
fn cholesky(n: usize) -> usize {
    flow!(|g| {
        let a: Vec<Vec<Handle<u64>>> = (0..n)
            .map(|i| (0..=i).map(|_| g.data(0)).collect())
            .collect();
        let mut tasks = 0;
        for k in 0..n {
            task!(g, factor(rw(a[k][k])));
            for i in k + 1..n {
                task!(g, solve(rw(a[i][k]), r(a[k][k])));
            }
            for i in k + 1..n {
                for j in k + 1..i {
                    task!(g, update(rw(a[i][j]), r(a[i][k]), r(a[j][k])));
                }
                task!(g, solve(rw(a[i][i]), r(a[i][k])));
            }
            tasks += 1 + (n - k - 1) + (n - k - 1) * (n - k) / 2;
        }
        tasks
    })
}

/// From the creation of the first task to the end of the last.
pub fn measure(args: &Args, pools: &[Pools; 2]) -> anyhow::Result<Vec<Row>> {
    let n = args.tiles as usize;
    let expected = n + n * (n - 1) + n * (n - 1) * n.saturating_sub(2) / 6;
    eprintln!("overhead: {} rounds of 2 runs", args.rounds);
    let mut times = [Vec::new(), Vec::new()];
    // The first round wakes threads and touches pages.
    for round in 0..=args.rounds.get() {
        for (pools, times) in pools.iter().zip(&mut times) {
            let began = Instant::now();
            let tasks = pools.satin(|| cholesky(n));
            let time = began.elapsed().as_secs_f64() * 1e3;
            ensure!(tasks == expected, "{tasks} tasks instead of {expected}");
            if round > 0 {
                times.push(time);
            }
        }
    }
    let row = |(pools, times): (&Pools, &Vec<f64>)| Row {
        bench: "flow",
        case: Case::Overhead,
        size: args.tiles,
        tile: 0,
        workers: pools.threads(),
        tasks: expected,
        rounds: times.len(),
        flow_ms_min: least(times),
        flow_ms_median: median(times.iter().copied()),
        task_ns: least(times) * 1e6 / expected as f64,
        against: None,
    };
    Ok(pools.iter().zip(&times).map(row).collect())
}
