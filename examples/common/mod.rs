//! What all examples share: `--sequential` and `--compare`, the closing lines with the time and the speed-up, the live
//! line of progress, random numbers, checks of sorted ones and of bits, pictures of graphs, and the reading of input files. Knows nothing of
//! any single example.
#![allow(dead_code, reason = "every example uses its own part of this module")]

pub mod bits;
pub mod graph;
pub mod input;
pub mod progress;
pub mod random;
pub mod sorted;

use std::thread;
use std::time::{Duration, Instant};

/// The stack of the thread that runs the sequential program, as large as a worker's.
const STACK: usize = 256 << 20;

/// How to run: in parallel unless told otherwise.
#[derive(clap::Args, Clone, Debug)]
pub struct Mode {
    /// Run as plain sequential Rust, without a single spawn
    #[arg(long, conflicts_with = "compare")]
    sequential: bool,
    /// Run sequentially too, and print the measured speed-up
    #[arg(long)]
    compare: bool,
}

impl Mode {
    /// True if the program is to run twice.
    pub fn compares(&self) -> bool {
        self.compare
    }

    /// Runs the program in the way that was asked for, and checks every answer that comes out.
    ///
    /// `setup` makes the input before each run (or resets what the run before left); its time does not count.
    ///
    /// # Errors
    /// What `check` says of an answer.
    pub fn measure<I: Send, R: Send>(
        &self,
        setup: impl Fn() -> I,
        parallel: impl FnOnce(I) -> R,
        sequential: impl FnOnce(I) -> R + Send,
        check: impl Fn(&R) -> anyhow::Result<()>,
    ) -> anyhow::Result<Run<R>> {
        let baseline = if self.sequential || self.compare {
            let input = setup();
            let (answer, time) = on_large_stack(|| {
                let start = Instant::now();
                (sequential(input), start.elapsed())
            })?;
            check(&answer)?;
            if self.sequential {
                return Ok(Run {
                    answer,
                    time,
                    speed_up: SpeedUp::None,
                    on: None,
                });
            }
            Some(time)
        } else {
            None
        };

        let input = setup();
        // Their coming is not the program's time.
        satin::wait_for_nodes();
        let (start, cpu_before) = (Instant::now(), cpu_time());
        let answer = parallel(input);
        let (time, cpu_after) = (start.elapsed(), cpu_time());
        check(&answer)?;
        let node = satin::node();
        let speed_up = match (baseline, cpu_before, cpu_after) {
            (Some(sequential), ..) => SpeedUp::Measured { sequential },
            // Of other nodes' processor time this one knows nothing.
            (None, Some(before), Some(after)) if node.nodes == 1 => SpeedUp::Estimated {
                cpu: after.saturating_sub(before),
            },
            _ => SpeedUp::None,
        };
        Ok(Run {
            answer,
            time,
            speed_up,
            on: Some(node),
        })
    }
}

/// A finished run whose answer was found right.
pub struct Run<R> {
    pub answer: R,
    time: Duration,
    speed_up: SpeedUp,
    /// Where it ran; `None` if sequentially.
    on: Option<satin::NodeInfo>,
}

enum SpeedUp {
    /// Sequential time over parallel time.
    Measured {
        sequential: Duration,
    },
    /// Processor time over wall time: how many cores were busy, be it with useful work or not.
    Estimated {
        cpu: Duration,
    },
    None,
}

impl<R> Run<R> {
    /// Billions of operations a second, of so many in the run.
    pub fn giga(&self, operations: f64) -> f64 {
        operations * 1e-9 / self.time.as_secs_f64()
    }

    /// Prints the closing lines: time, and speed-up where there is something to say about it.
    pub fn report(&self) {
        let time = self.time.as_secs_f64();
        match &self.on {
            Some(node) if node.nodes > 1 => {
                println!("time {time:.3} s on {} nodes", node.nodes);
            }
            Some(node) if node.threads == 1 => println!("time {time:.3} s on 1 worker"),
            Some(node) => println!("time {time:.3} s on {} workers", node.threads),
            None => println!("time {time:.3} s sequential"),
        }
        match self.speed_up {
            SpeedUp::Measured { sequential } => {
                let sequential = sequential.as_secs_f64();
                println!(
                    "speed-up {:.2} (measured, {sequential:.3} s sequential)",
                    sequential / time
                );
            }
            SpeedUp::Estimated { cpu } if cpu >= CPU_TIME_MIN => {
                println!(
                    "speed-up {:.2} (estimated, --compare measures it)",
                    cpu.as_secs_f64() / time
                );
            }
            SpeedUp::Estimated { .. } | SpeedUp::None => {}
        }
    }
}

/// Runs `f` where deep recursion is as welcome as on a worker.
pub fn on_large_stack<R: Send>(f: impl FnOnce() -> R + Send) -> anyhow::Result<R> {
    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .name("sequential".into())
            .stack_size(STACK)
            .spawn_scoped(scope, f)?;
        Ok(handle
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The kernel counts processor time in ticks of 10 ms; an estimate from a few of them would be noise.
const CPU_TIME_MIN: Duration = Duration::from_millis(100);

/// User and system time of this process, all threads. `None` where there is no `/proc`.
fn cpu_time() -> Option<Duration> {
    // The command's name, in parentheses, may contain anything; the numbers follow the last parenthesis. utime and
    // stime are fields 14 and 15 of the line, in ticks of USER_HZ, which is 100 on every Linux there is.
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(10 * (utime + stime)))
}
