//! The cost of a theft between two nodes: the round trip of a steal beside that of raw QUIC, and how many small jobs a
//! second pass from one node to the other.
//!
//! The two sides live in this process, each with a thread and an endpoint of its own, on loopback.

use std::{
    hint::black_box,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use satin::{Satin, net::Credential};
use serde::Serialize;

use crate::{figures::median, jsonl, raw};

/// The round trip of a steal beside that of raw QUIC; small jobs per second between two nodes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds per case and round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds, each with every case; the medians count
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Also write the figures to this file, as JSON Lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Row {
    RoundTrip {
        bench: &'static str,
        case: &'static str,
        #[serde(rename = "impl")]
        who: &'static str,
        us_p50: f64,
        us_p99: f64,
    },
    Jobs {
        bench: &'static str,
        case: String,
        #[serde(rename = "impl")]
        who: &'static str,
        jobs_per_s: f64,
    },
}

/// Bodies of small jobs, in microseconds.
const BODIES: [u64; 3] = [0, 10, 100];

/// Time between two round trips, in which a thief would compute.
const PAUSE: Duration = Duration::from_millis(1);

/// About what a steal and its answer carry.
const PING_BYTES: usize = 8;
const PONG_BYTES: usize = 64;

/// Measures, and reports the results.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(args.seconds);
    let folder = std::env::temp_dir().join(format!("satin-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure(args, time, &folder.join("credential.pem"));
    std::fs::remove_dir_all(&folder)?;
    let (quinn, satin, jobs) = measured?;

    let mut rows = Vec::new();
    let mut table = comfy_table::Table::new();
    table.set_header(["round trip", "median us", "p99 us"]);
    for (who, trips) in [("quinn", &quinn), ("satin", &satin)] {
        let (us_p50, us_p99) = (
            median(trips.iter().map(|t| t.0)),
            median(trips.iter().map(|t| t.1)),
        );
        table.add_row([
            who.to_string(),
            format!("{us_p50:.1}"),
            format!("{us_p99:.1}"),
        ]);
        rows.push(Row::RoundTrip {
            bench: "steal",
            case: "round_trip",
            who,
            us_p50,
            us_p99,
        });
    }
    println!("{table}");
    let ratios = satin
        .iter()
        .zip(&quinn)
        .map(|(satin, quinn)| satin.0 / quinn.0);
    println!(
        "satin / quinn, median of the rounds: {:.2} (required: at most 1.3)",
        median(ratios)
    );

    let mut table = comfy_table::Table::new();
    table.set_header(["small jobs", "jobs/s"]);
    for (body, rates) in BODIES.into_iter().zip(&jobs) {
        let jobs_per_s = median(rates.iter().copied());
        table.add_row([format!("{body} us"), format!("{jobs_per_s:.0}")]);
        let case = format!("jobs_{body}us");
        rows.push(Row::Jobs {
            bench: "steal",
            case,
            who: "satin",
            jobs_per_s,
        });
    }
    println!("{table}");
    println!("required: at least 50,000 a second with empty bodies");
    if let Some(path) = &args.json {
        jsonl::write(path, &rows)?;
    }
    Ok(())
}

type Trips = Vec<(f64, f64)>;

fn measure(
    args: &Args,
    time: Duration,
    credential: &std::path::Path,
) -> anyhow::Result<(Trips, Trips, Vec<Vec<f64>>)> {
    Credential::write_new(credential)?;
    let (mut quinn, mut satin) = (Vec::new(), Vec::new());
    let mut jobs = vec![Vec::new(); BODIES.len()];
    for _ in 0..args.rounds {
        quinn.push(raw_round_trip(&Credential::load(credential)?, time)?);
        let figures = pair(credential, || {
            let start = Instant::now();
            while start.elapsed() < time {
                sleepers(1 << 10, PAUSE.as_micros() as u64);
            }
        })?;
        satin.push((figures.steal_us_p50, figures.steal_us_p99));
        for (body, rates) in BODIES.into_iter().zip(&mut jobs) {
            let mut seconds = 0.0;
            let figures = pair(credential, || {
                let start = Instant::now();
                while start.elapsed() < time {
                    spinners(1 << 16, body);
                }
                seconds = start.elapsed().as_secs_f64();
            })?;
            rates.push(figures.jobs as f64 / seconds);
        }
    }
    Ok((quinn, satin, jobs))
}

/// Runs `program` on a node with one worker, `victim`, beside another that steals, `thief`; returns the counts of the thief.
///
/// # Errors
/// If there is no pool, or the thief gets no job.
pub fn pair(
    credential: &std::path::Path,
    program: impl FnOnce(),
) -> anyhow::Result<satin::observe::events::NodeFigures> {
    pair_of(1, credential, program)
}

/// The same, of nodes with so many workers each.
///
/// # Errors
/// As [`pair`].
pub fn pair_of(
    threads: usize,
    credential: &std::path::Path,
    program: impl FnOnce(),
) -> anyhow::Result<satin::observe::events::NodeFigures> {
    let node = |name: &str| {
        Satin::builder()
            .threads(threads)
            .credential(credential)
            .name(name)
            .pool("bench")
            // What moves is measured here, and not whether it should.
            .worth("always")
    };
    let victim = node("victim").listen("127.0.0.1:0").nodes(2).build()?;
    let network = victim
        .network()
        .context("a node that listens has a network")?;
    let thief = node("thief").join(network.addr().to_string()).build()?;
    victim.run(program);
    drop(victim);
    let network = thief
        .network()
        .context("a node that joined has a network")?;
    network.wait_until_over()?;
    let figures = network.figures();
    ensure!(figures.jobs > 0, "the thief got no job at all");
    Ok(figures)
}

#[satin::spawnable]
fn sleepers(count: u32, micros: u64) {
    if count == 1 {
        return thread::sleep(Duration::from_micros(micros));
    }
    for _ in 0..count {
        sleepers(1, micros);
    }
}

#[satin::spawnable]
fn spinners(count: u32, micros: u64) {
    if count == 1 {
        let start = Instant::now();
        while micros > 0 && start.elapsed() < Duration::from_micros(micros) {
            black_box(0);
        }
        return;
    }
    for _ in 0..count {
        spinners(1, micros);
    }
}

/// Median and 99th percentile of an echo on one bidirectional stream.
fn raw_round_trip(credential: &Credential, time: Duration) -> anyhow::Result<(f64, f64)> {
    let mut trips = raw::connect(
        credential,
        async |connection| {
            let (mut send, mut recv) = connection.accept_bi().await?;
            let mut ping = [0; PING_BYTES];
            while recv.read_exact(&mut ping).await.is_ok() {
                send.write_all(&[0; PONG_BYTES]).await?;
            }
            Ok(())
        },
        async |connection| {
            let (mut send, mut recv) = connection.open_bi().await?;
            let (start, mut trips, mut pong) = (Instant::now(), Vec::new(), [0; PONG_BYTES]);
            while start.elapsed() < time {
                tokio::time::sleep(PAUSE).await;
                let asked = Instant::now();
                send.write_all(&[0; PING_BYTES]).await?;
                recv.read_exact(&mut pong).await?;
                trips.push(asked.elapsed().as_secs_f64() * 1e6);
            }
            Ok(trips)
        },
    )?;
    trips.sort_by(f64::total_cmp);
    let at = |share: f64| trips[((trips.len() - 1) as f64 * share) as usize];
    Ok((at(0.5), at(0.99)))
}
