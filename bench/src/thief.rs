//! How long a thief from outside waits for a job: the thread that steals on behalf of other nodes, through the gate.
//!
//! The thief comes at random moments, asks until it gets a job, and puts the job back at once, so that it does not
//! change what it measures. One worker computes; the thief has the other core.

use std::{
    hint::black_box,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use satin::job::{Answer, Taken};
use serde::Serialize;

use crate::jsonl;

/// How long the thief waits for a job, in fine, coarse and flat programs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds per case
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Also write the figures to this file, as JSON Lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

type Program = fn() -> u64;

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    case: &'static str,
    thefts: usize,
    us_p50: f64,
    us_p99: f64,
    us_max: f64,
}

#[satin::spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    fib(n - 1) + fib(n - 2)
}

/// The time is up: what has not begun does nothing.
static STOP: AtomicBool = AtomicBool::new(false);

/// More leaves than a bench lasts, under a tree in which more jobs wait than the thief takes: it would else come to the end of what
/// there is, and wait for the next leaf with good reason.
#[satin::spawnable]
fn coarse(depth: u32, leaf_ms: u64) -> u64 {
    if depth == 0 || STOP.load(Relaxed) {
        return leaf(leaf_ms);
    }
    let mut sum = 0;
    for _ in 0..64 {
        sum += coarse(depth - 1, leaf_ms);
    }
    sum
}

#[satin::spawnable]
fn flat(leaves: u32, leaf_ms: u64) -> u64 {
    if leaves == 1 {
        return leaf(leaf_ms);
    }
    let mut sum = 0;
    for _ in 0..leaves {
        sum += flat(1, leaf_ms);
    }
    sum
}

/// Jobs so fine that the worker keeps its jobs to itself, and then some coarse ones, which nobody has asked for yet.
#[satin::spawnable]
fn mixed(leaf_ms: u64) -> u64 {
    let fine = satin::call!(fib(22));
    let mut sum = 0;
    for _ in 0..16 {
        sum += satin::spawn!(flat(1, leaf_ms));
    }
    satin::sync!();
    fine + sum
}

fn leaf(ms: u64) -> u64 {
    let start = Instant::now();
    let mut x = 1u64;
    while !STOP.load(Relaxed) && start.elapsed() < Duration::from_millis(ms) {
        (0..1000)
            .for_each(|_| x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)));
    }
    x & 1
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // A thief that runs what it takes is busy for a while: longer where jobs are coarse. As it refuses what it has taken, it
    // would otherwise take more than there are.
    let (short, long) = (Duration::from_micros(200), Duration::from_millis(16));
    let cases: [(&'static str, Program, Duration); 6] = [
        ("fib", || fib(black_box(32)), short),
        ("tree, leaves of 2 ms", || coarse(40, 2), long),
        ("loop, leaves of 2 ms", || flat(1 << 14, 2), long),
        ("loop, leaves of 200 ms", || flat(1 << 14, 200), long),
        ("fine, then leaves of 2 ms", || mixed(2), long),
        ("fine, then leaves of 200 ms", || mixed(200), 32 * long),
    ];
    let mut table = comfy_table::Table::new();
    table.set_header(["case", "thefts", "median us", "p99 us", "max us"]);
    let mut rows = Vec::new();
    for (case, program, pause) in cases {
        let waits = measure(program, Duration::from_secs_f64(args.seconds), pause)?;
        let at = |q: f64| waits[((waits.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e6;
        let row = Row {
            bench: "thief",
            case,
            thefts: waits.len(),
            us_p50: at(0.5),
            us_p99: at(0.99),
            us_max: at(1.0),
        };
        table.add_row([
            case.to_string(),
            row.thefts.to_string(),
            format!("{:.2}", row.us_p50),
            format!("{:.2}", row.us_p99),
            format!("{:.2}", row.us_max),
        ]);
        rows.push(row);
    }
    println!("{table}");
    println!("required: median under 1 us, p99 under 50 us");
    if let Some(path) = &args.json {
        jsonl::write(path, &rows)?;
    }
    Ok(())
}

/// Sorted waits of a thief beside one worker that runs `program` again and again.
fn measure(program: Program, time: Duration, pause: Duration) -> anyhow::Result<Vec<Duration>> {
    let pool = satin::builder().threads(1).build()?;
    STOP.store(false, Relaxed);
    let (running, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut waits = std::thread::scope(|threads| {
        let thief = threads.spawn(|| {
            let (gate, start) = (pool.gate(), Instant::now());
            let mut waits = Vec::new();
            let mut random = 1u64;
            while start.elapsed() < time {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let rest = Instant::now();
                while rest.elapsed() < pause.mul_f64((random >> 33) as f64 / f64::from(1u32 << 31))
                {
                    std::hint::spin_loop();
                }
                // Only while there is work in the tree does the wait say anything.
                if !running.load(Relaxed) {
                    continue;
                }
                let asked = Instant::now();
                let job = loop {
                    match gate.take(1).jobs.pop() {
                        Some(Taken::Own(token, _)) => break Some(token),
                        _ if !running.load(Relaxed) => break None,
                        _ => std::hint::spin_loop(),
                    }
                };
                let waited = asked.elapsed();
                if let Some(token) = job {
                    // Refused, it stays: put back, it would be the next that is taken.
                    gate.deliver(token, Answer::Refused(String::new()));
                    waits.push(waited);
                }
            }
            stop.store(true, Relaxed);
            STOP.store(true, Relaxed);
            waits
        });
        pool.run(|| {
            while !stop.load(Relaxed) {
                running.store(true, Relaxed);
                black_box(program());
                running.store(false, Relaxed);
            }
        });
        thief.join().expect("the thief does not panic")
    });
    waits.sort();
    anyhow::ensure!(!waits.is_empty(), "the thief got no job at all");
    Ok(waits)
}
