//! A large slice that is lent to a job on another node, and comes back changed: bytes a second, beside raw QUIC that carries as
//! many bytes there and back, and beside copies in memory.

use std::{
    cell::Cell,
    hint::black_box,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use comfy_table::Table;
use satin::net::Credential;
use serde::{Deserialize, Serialize};

use crate::{figures::median, launch::Launcher, raw, steal};

/// The least share of raw QUIC's bytes a second that is allowed.
const LEAST: f64 = 0.8;

/// A round of one of the ways; a line of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    bench: String,
    #[serde(rename = "impl")]
    way: Way,
    round: u32,
    mib: u32,
    /// Time there and back.
    seconds: f64,
}

impl Row {
    /// Twice the slice, as it goes there and back.
    fn mib_per_s(&self) -> f64 {
        2.0 * f64::from(self.mib) / self.seconds
    }
}

/// How long a thief's worker waits from one stolen job to the next, beside a transfer or alone; a line of the results. Where the way is
/// long several jobs come at a time, so the median may be less than a round trip: the 99th percentile is a round trip or more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SteadyRow {
    bench: String,
    round: u32,
    /// Bytes that moved beside the steals in the time of the round; none in the idle case.
    transferred_mib: u32,
    us_p50: f64,
    us_p99: f64,
}

/// The ways to move bytes there and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    /// A job with a `&mut` argument, stolen by another node.
    Satin,
    /// A stream of a connection.
    Quinn,
    /// Copies within this process.
    Memcpy,
}

/// Measures all ways, in rounds.
///
/// # Errors
/// If nothing arrives, or something else than was sent, or a signal came.
pub fn measure(launcher: &Launcher, mib: u32, rounds: u32) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let credential = folder.path().join("credential.pem");
    Credential::write_new(&credential)?;
    let bytes = (mib as usize) << 20;
    let mut rows = Vec::new();
    for round in 1..=rounds {
        for way in [Way::Quinn, Way::Satin, Way::Memcpy] {
            launcher.go_on()?;
            let seconds = match way {
                Way::Satin => by_job(&credential, bytes / size_of::<u64>())?,
                Way::Quinn => by_stream(&Credential::load(&credential)?, bytes)?,
                Way::Memcpy => by_copy(bytes / size_of::<u64>()),
            };
            let row = Row {
                bench: "worth".into(),
                way,
                round,
                mib,
                seconds,
            };
            let rate = row.mib_per_s();
            eprintln!("[{round}/{rounds}] {mib} MiB there and back, {way:?}: {rate:.0} MiB/s");
            rows.push(row);
        }
    }
    Ok(rows)
}

pub fn report<'a>(rows: impl Iterator<Item = &'a Row> + Clone) {
    let best = |way| {
        let rates = rows.clone().filter(|row| row.way == way);
        rates.map(Row::mib_per_s).max_by(f64::total_cmp)
    };
    let (Some(satin), Some(quinn), Some(memcpy)) =
        (best(Way::Satin), best(Way::Quinn), best(Way::Memcpy))
    else {
        return;
    };
    let mut table = Table::new();
    table.set_header(["there and back", "MiB/s", "of raw QUIC"]);
    for (name, rate) in [
        ("`&mut [u64]`, satin", satin),
        ("a stream, quinn", quinn),
        ("copies in memory", memcpy),
    ] {
        let (rate, share) = (format!("{rate:.0}"), format!("{:.3}", rate / quinn));
        table.add_row([name.to_owned(), rate, share]);
    }
    println!("{table}");
    println!(
        "satin / quinn, best of the rounds: {:.2}, required at least {LEAST}: {}",
        satin / quinn,
        if satin / quinn >= LEAST {
            "met"
        } else {
            "missed"
        }
    );
}

/// The longest wait for a stolen job beside a transfer that is allowed, as a multiple of the idle one: of the medians.
const MOST_BESIDE: f64 = 3.0;

/// Time for which steals are measured, idle and beside a transfer.
const BESIDE: Duration = Duration::from_secs(3);

/// Numbers of one result that moves beside the steals: 256 MiB.
const BESIDE_COUNT: usize = 32 << 20;

/// Jobs that are stolen in that time at least, or their waits say nothing.
const LEAST_STOLEN: usize = 20;

/// Measures how long a thief waits for its next job, alone and beside a transfer, in rounds.
///
/// # Errors
/// If nothing is stolen or transferred, or a signal came.
pub fn measure_beside(launcher: &Launcher, rounds: u32) -> Result<Vec<SteadyRow>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let credential = folder.path().join("credential.pem");
    Credential::write_new(&credential)?;
    let mut rows = Vec::new();
    for round in 1..=rounds {
        for count in [0, BESIDE_COUNT] {
            launcher.go_on()?;
            let mut given = 0;
            lock(&WAITS).clear();
            IS_UNDER_WAY.store(count == 0, Relaxed);
            steal::pair_of(2, &credential, || given = beside(count))?;
            let mut waits = std::mem::take(&mut *lock(&WAITS));
            ensure!(
                waits.len() >= LEAST_STOLEN,
                "only {} jobs were stolen beside the transfer",
                waits.len()
            );
            waits.sort_by(f64::total_cmp);
            let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
            ensure!(
                count == 0 || given > 0,
                "nothing was transferred beside the steals"
            );
            let row = SteadyRow {
                bench: "worth".into(),
                round,
                transferred_mib: ((given as usize * size_of::<u64>() * count) >> 20) as u32,
                us_p50: at(0.5),
                us_p99: at(0.99),
            };
            eprintln!(
                "[{round}/{rounds}] a wait for a stolen job beside {} MiB in {} s: {:.0} us ({} jobs)",
                row.transferred_mib,
                BESIDE.as_secs(),
                row.us_p50,
                waits.len()
            );
            rows.push(row);
        }
    }
    Ok(rows)
}

pub fn report_beside<'a>(rows: impl Iterator<Item = &'a SteadyRow> + Clone) {
    if rows.clone().next().is_none() {
        return;
    }
    let of = |is_idle: bool, us: fn(&SteadyRow) -> f64| {
        let rows = rows
            .clone()
            .filter(|row| (row.transferred_mib == 0) == is_idle);
        median(rows.map(us))
    };
    let (idle, beside) = (of(true, |row| row.us_p50), of(false, |row| row.us_p50));
    let late = [true, false].map(|is_idle| of(is_idle, |row| row.us_p99));
    println!(
        "a thief's wait for its next job, median (99th percentile): {idle:.0} us ({:.0}) alone, {beside:.0} us ({:.0}) beside a transfer: \
         {:.1} times, required at most {MOST_BESIDE}: {}",
        late[0],
        late[1],
        beside / idle,
        if beside / idle <= MOST_BESIDE {
            "met"
        } else {
            "missed"
        }
    );
}

/// A transfer is under way: from the end of the job that gives a result to the moment when it has been read.
static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// The microseconds for which the thief's workers have waited for their next job, if it was stolen as a transfer was under way.
static WAITS: Mutex<Vec<f64>> = Mutex::new(Vec::new());

thread_local! {
    /// When this worker's last job ended, if a transfer was under way then.
    static ENDED: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[satin::spawnable]
fn ticks(count: u32) {
    for _ in 0..count {
        satin::spawn!(tick());
    }
    satin::sync!();
}

#[satin::spawnable]
fn tick() {
    let is_stolen = satin::node().name == "thief";
    if let Some(ended) = ENDED.take().filter(|_| is_stolen)
        && IS_UNDER_WAY.load(Relaxed)
    {
        lock(&WAITS).push(ended.elapsed().as_secs_f64() * 1e6);
    }
    thread::sleep(TICK);
    ENDED.set((is_stolen && IS_UNDER_WAY.load(Relaxed)).then(Instant::now));
}

/// Time for which a stolen job sleeps.
const TICK: Duration = Duration::from_millis(1);

/// A job waits to be begun by the other node.
static IS_OFFERED: AtomicBool = AtomicBool::new(false);

/// The node that has begun [`be_stolen_from`]: none yet, the one that is to, the other.
static STOLEN_FROM: AtomicU32 = AtomicU32::new(0);
const NOBODY: u32 = 0;
const VICTIM: u32 = 1;
const THIEF: u32 = 2;

/// Jobs that sleep are stolen, and beside them, on the other worker, results of so many numbers are brought by the other node one
/// after the other; none if there are no numbers. Gives how many came.
#[satin::spawnable]
fn beside(count: usize) -> u32 {
    loop {
        STOLEN_FROM.store(NOBODY, Relaxed);
        satin::spawn!(be_stolen_from());
        let given = satin::call!(bring(count));
        satin::sync!();
        // The other node may have been quicker than the other worker: then it is tried again.
        if STOLEN_FROM.load(Relaxed) == VICTIM {
            return given;
        }
    }
}

#[satin::spawnable]
fn be_stolen_from() {
    if satin::node().name == "thief" {
        return STOLEN_FROM.store(THIEF, Relaxed);
    }
    STOLEN_FROM.store(VICTIM, Relaxed);
    let begin = Instant::now();
    while begin.elapsed() < BESIDE {
        // As long as there are other jobs, none is asked of the worker that brings.
        while IS_OFFERED.load(Relaxed) {
            thread::sleep(NAP);
        }
        satin::call!(ticks(16));
    }
}

#[satin::spawnable]
fn bring(count: usize) -> u32 {
    while STOLEN_FROM.load(Relaxed) == NOBODY {
        satin::spawn!(nap());
        satin::sync!();
    }
    if STOLEN_FROM.load(Relaxed) == THIEF {
        return 0;
    }
    let begin = Instant::now();
    let mut given = 0u32;
    while begin.elapsed() < BESIDE {
        if count == 0 {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        IS_AWAY.store(false, Relaxed);
        IS_OFFERED.store(true, Relaxed);
        let numbers = satin::spawn!(give(count));
        satin::call!(wait(BESIDE.saturating_sub(begin.elapsed())));
        IS_OFFERED.store(false, Relaxed);
        satin::sync!();
        IS_UNDER_WAY.store(false, Relaxed);
        given += u32::from(IS_AWAY.load(Relaxed) && numbers.len() == count);
    }
    given
}

#[satin::spawnable]
fn give(count: usize) -> Vec<u64> {
    if satin::node().name == "thief" {
        IS_AWAY.store(true, Relaxed);
        let numbers = mixed(count).collect();
        IS_UNDER_WAY.store(true, Relaxed);
        return numbers;
    }
    Vec::new()
}

/// Time after which a job that no other node has begun is run at home.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks whether another node has begun the job.
const NAP: Duration = Duration::from_micros(100);

/// True once the node `thief` has begun the job.
static IS_AWAY: AtomicBool = AtomicBool::new(false);

/// Numbers that look random: they cannot be compressed.
fn mixed(count: usize) -> impl Iterator<Item = u64> {
    (0..count as u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Lends a slice to another node, while this node's only worker waits. Gives the seconds from the spawn to the end of the sync.
fn by_job(credential: &Path, count: usize) -> Result<f64> {
    let mut lent: Vec<u64> = mixed(count).collect();
    IS_AWAY.store(false, Relaxed);
    let mut seconds = 0.0;
    steal::pair(credential, || seconds = lend(&mut lent))?;
    ensure!(
        IS_AWAY.load(Relaxed),
        "the other node did not take the slice within {} s",
        PATIENCE.as_secs()
    );
    let expected = mixed(count).map(|number| number.wrapping_add(1));
    ensure!(
        lent.into_iter().eq(expected),
        "the slice did not come back as it should"
    );
    Ok(seconds)
}

#[satin::spawnable]
fn lend(numbers: &mut [u64]) -> f64 {
    let begin = Instant::now();
    satin::spawn!(increment(numbers));
    satin::call!(wait(PATIENCE));
    satin::sync!();
    begin.elapsed().as_secs_f64()
}

#[satin::spawnable]
fn increment(numbers: &mut [u64]) {
    if satin::node().name == "thief" {
        IS_AWAY.store(true, Relaxed);
    }
    for number in numbers {
        *number = number.wrapping_add(1);
    }
}

/// Waits until another node has begun the slice's job. Spawns meanwhile, as a worker gives jobs away when it spawns.
#[satin::spawnable]
fn wait(patience: Duration) {
    let begin = Instant::now();
    while !IS_AWAY.load(Relaxed) && begin.elapsed() < patience {
        satin::spawn!(nap());
        satin::sync!();
    }
}

#[satin::spawnable]
fn nap() {
    thread::sleep(NAP);
}

/// Sends bytes on a stream, and gets them back when all have arrived.
fn by_stream(credential: &Credential, bytes: usize) -> Result<f64> {
    let sent: Vec<u8> = (0..bytes).map(|place| place as u8).collect();
    raw::connect(
        credential,
        async move |connection| {
            let mut received = vec![1; bytes];
            let (mut send, mut recv) = connection.accept_bi().await?;
            recv.read_exact(&mut received).await?;
            send.write_all(&received).await?;
            send.finish()?;
            connection.closed().await;
            Ok(())
        },
        async |connection| {
            let mut received = vec![1; bytes];
            let (mut send, mut recv) = connection.open_bi().await?;
            let begin = Instant::now();
            send.write_all(&sent).await?;
            recv.read_exact(&mut received).await?;
            let seconds = begin.elapsed().as_secs_f64();
            ensure!(received == sent, "raw QUIC brought other bytes");
            Ok(seconds)
        },
    )
}

fn by_copy(count: usize) -> f64 {
    let mut here = vec![1u64; count];
    let mut there = vec![2u64; count];
    let begin = Instant::now();
    there.copy_from_slice(black_box(&here));
    here.copy_from_slice(black_box(&there));
    black_box(&here);
    begin.elapsed().as_secs_f64()
}
