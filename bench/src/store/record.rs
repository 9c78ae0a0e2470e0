//! The price of one result: of the worker that keeps it, of the thread that writes it, and of a start that finds it again.

use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use satin_cli::sites::Sites;
use satin_runtime::{
    job::{Answer, Batch, Fingerprint, JobName, Saved, StoredFact},
    stable::{
        StoreUrl,
        runs::{BeginRequest, LogName, Program, Resume},
    },
};
use serde::{Deserialize, Serialize};

use super::{
    Bench, Row,
    keeping::{Keeping, seconds},
    show, table, verdict,
};
use crate::{launch, programs::LIMIT};

/// What the writing thread does: it encodes batches and appends them, durably.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppendRow {
    bench: String,
    /// Results in a batch.
    batch: u32,
    /// Batches in one measurement.
    batches: u32,
    /// Time of a batch, the shortest mean of all measurements.
    batch_us: f64,
    /// That time by the number of results.
    result_us: f64,
    /// Bytes of a result in the log.
    result_bytes: f64,
}

/// What the worker does: a flat loop of which each result is kept and written, beside the same with nothing kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerRow {
    bench: String,
    /// Jobs, and so results, but for those of the first two beats (20 ms).
    jobs: u32,
    job_us: u64,
    rounds: u32,
    #[serde(flatten)]
    keeping: Keeping,
    /// The shortest run with nothing kept.
    off_s: f64,
    /// The shortest run with all kept.
    on_s: f64,
    /// The difference by the number of jobs.
    result_us: f64,
}

/// A start with many results in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResumeRow {
    bench: String,
    /// Results that are in the store when the run goes on.
    results: usize,
    /// Time from the start of the process until the first job that is not in the store is done.
    first_job_s: f64,
    /// The same of a run that begins, with nothing in the store.
    fresh_first_job_s: f64,
}

/// Results of a large harvest.
const MANY: u32 = 100_000;
/// Results of a usual period of 10 s of a worker.
const FEW: u32 = 350;
/// Microseconds of a job of the flat loop.
const JOB_US: u64 = 20;

/// A store that is written to as often as it can be, with each result, however short its job was.
const ALL: Keeping = all_every(0.0);

/// A store that gets each result, in that period in seconds.
const fn all_every(every_s: f64) -> Keeping {
    Keeping::Store {
        every_s,
        grain_ms: 0.0,
    }
}

/// Measures all three.
pub fn measure(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let batches = if bench.args.quick { 20 } else { 100 };
    let mut rows = Vec::new();
    for (batch, batches) in [(MANY, 3), (FEW, batches)] {
        let row = append(bench, batch, batches)?;
        eprintln!(
            "[record] batches of {batch} results: {:.2} us a result, {:.0} us a batch",
            row.result_us, row.batch_us
        );
        rows.push(Row::Append(row));
    }
    let flat = Flat::build(bench)?;
    for row in flat.worker()? {
        eprintln!(
            "[record] {} jobs: off {:.3} s, {} {:.3} s: {:.2} us a result",
            row.jobs, row.off_s, row.keeping, row.on_s, row.result_us
        );
        rows.push(Row::Worker(row));
    }
    let row = flat.resume()?;
    eprintln!(
        "[record] {} results in the store: first new job after {:.2} s, after {:.2} s with none",
        row.results, row.first_job_s, row.fresh_first_job_s
    );
    rows.push(Row::Resume(row));
    Ok(rows)
}

/// Appends batches to a log of a run that nobody runs.
fn append(bench: &Bench<'_>, batch: u32, batches: u32) -> Result<AppendRow> {
    let runs = bench.stores.runs(&bench.stores.fresh()?)?;
    let begun = runs.begin(&BeginRequest {
        pool: "bench".into(),
        program: Program {
            hash: [0; 32],
            target: "bench".into(),
            executable: [0; 32],
            command_line: Vec::new(),
            mixed_builds: false,
        },
        resume: Resume::No,
        force: false,
        max_crashes: 3,
        by: "bench".into(),
        founder: 0,
    })?;
    let log = LogName {
        epoch: begun.epoch,
        node: 0,
        generation: 0,
    };
    let mut writer = runs.writer(&begun.place, log);
    let facts = (0..batch).map(fact).collect();
    let batch_of_facts = Batch {
        facts,
        ..Batch::default()
    };
    let mut shortest = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..bench.args.rounds().max(3) {
        let all = vec![batch_of_facts.clone(); batches as usize];
        let begin = Instant::now();
        for batch_of_facts in all {
            bytes = writer.append(batch_of_facts)?.bytes;
        }
        shortest = shortest.min(begin.elapsed());
        writer.next_segment();
        writer.forget_before(writer.segment())?;
    }
    let batch_us = shortest.as_secs_f64() * 1e6 / f64::from(batches);
    Ok(AppendRow {
        bench: "store".into(),
        batch,
        batches,
        batch_us,
        result_us: batch_us / f64::from(batch),
        result_bytes: bytes as f64 / f64::from(batch),
    })
}

/// A result of the tree of width 8 below a root job, of 8 bytes.
fn fact(number: u32) -> StoredFact {
    let digits = (0..6).rev().map(|digit| (number >> (3 * digit)) % 8);
    StoredFact {
        saved: Saved {
            name: JobName::new(
                std::iter::once(0).chain(digits).collect(),
                Fingerprint(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            ),
            root: Fingerprint(1),
            answer: Answer::result(u64::from(number).to_le_bytes().to_vec().into(), Vec::new()),
        },
        took: Duration::from_millis(1),
    }
}

/// The flat loop.
struct Flat<'b> {
    bench: &'b Bench<'b>,
    program: OsString,
    steps: u64,
}

impl<'b> Flat<'b> {
    fn build(bench: &'b Bench<'b>) -> Result<Flat<'b>> {
        let program = bench.launcher.example("knary")?;
        let steps = launch::steps(&program, Duration::from_micros(JOB_US))?;
        Ok(Flat {
            bench,
            program: program.into_os_string(),
            steps,
        })
    }

    fn words(&self, jobs: u32) -> Vec<OsString> {
        let (jobs, micros, steps) = (jobs.to_string(), JOB_US.to_string(), self.steps.to_string());
        let words = ["1", &jobs, &micros, "--steps", &steps].map(OsString::from);
        std::iter::once(self.program.clone()).chain(words).collect()
    }

    fn worker(&self) -> Result<Vec<WorkerRow>> {
        let jobs = if self.bench.args.quick {
            MANY / 2
        } else {
            MANY
        };
        let rounds = self.bench.args.rounds().max(3);
        let ways = [Keeping::Off, all_every(1.0), ALL];
        let mut shortest = ways.map(|_| f64::INFINITY);
        for _ in 0..rounds {
            for (keeping, shortest) in ways.into_iter().zip(&mut shortest) {
                let one = Sites::alike(1, 1);
                let plan = keeping.plan(&self.bench.stores, self.words(jobs), one)?;
                let story = self.bench.launcher.run(plan, LIMIT, |_| Ok(()))?;
                *shortest = shortest.min(story.seconds());
            }
        }
        let off_s = shortest[0];
        let kept = ways.into_iter().zip(shortest).skip(1);
        let rows = kept.map(|(keeping, on_s)| WorkerRow {
            bench: "store".into(),
            jobs,
            job_us: JOB_US,
            rounds,
            keeping,
            off_s,
            on_s,
            result_us: (on_s - off_s) * 1e6 / f64::from(jobs),
        });
        Ok(rows.collect())
    }

    /// Kills the loop when the store has many results, and goes on with it.
    fn resume(&self) -> Result<ResumeRow> {
        let jobs = 3 * MANY;
        let folder = tempfile::tempdir().context("cannot make a temporary directory")?;
        let count = folder.path().join("count");
        let mut words = self.words(jobs);
        words.extend(["--count".into(), count.clone().into()]);
        let store = self.bench.stores.fresh()?;
        let fresh_first_job_s = self.first_job(&words, &store, &count, Ending::AfterMany)?;
        let results = self.results(&store)?;
        let first_job_s = self.first_job(&words, &store, &count, Ending::AtOnce)?;
        Ok(ResumeRow {
            bench: "store".into(),
            results,
            first_job_s,
            fresh_first_job_s,
        })
    }

    /// Starts the loop, and kills it when it has done enough: the time from its start until its first job was done.
    fn first_job(
        &self,
        words: &[OsString],
        store: &StoreUrl,
        count: &Path,
        ending: Ending,
    ) -> Result<f64> {
        let done = || std::fs::metadata(count).map_or(0, |file| file.len());
        let before = done();
        let one = Sites::alike(1, 1);
        let plan = ALL.plan_in(store.clone(), &self.bench.stores, words.to_vec(), one)?;
        let begin = Instant::now();
        let mut first = None;
        self.bench.launcher.kill(plan, LIMIT, |pool| {
            ensure!(
                pool.wait_for(LIMIT, |_| done() > before)?,
                "no job was done that is not in the store"
            );
            first = Some(begin.elapsed().as_secs_f64());
            if ending == Ending::AfterMany {
                let enough = u64::from(MANY) * 6 / 5;
                pool.wait_for(LIMIT, |_| done() >= enough)?;
                // What was done last is still to be written.
                pool.wait_for(seconds(0.2), |_| false)?;
            }
            Ok(())
        })?;
        first.context("no job was done")
    }

    /// The results in the store, of the only run there.
    fn results(&self, store: &StoreUrl) -> Result<usize> {
        let runs = self.bench.stores.runs(store)?;
        let all = runs.list(None)?;
        let [run] = &all[..] else {
            anyhow::bail!("{store} has {} runs, not one", all.len());
        };
        let loaded = runs.load(&run.place, &|_| true)?;
        Ok(loaded.batch.facts.len())
    }
}

/// When the loop is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// When the first job is done.
    AtOnce,
    /// When more than [`MANY`] jobs are done.
    AfterMany,
}

/// Prints the figures.
pub fn report(rows: &[Row], said: &mut Vec<String>) {
    const RESULT_US: f64 = 5.0;
    const FIRST_JOB_S: f64 = 2.0;
    let mut figures = table(&["record", "figure"]);
    for row in rows {
        match row {
            Row::Append(row) => {
                figures.add_row([
                    format!("written, {} results at once", row.batch),
                    format!(
                        "{:.2} us a result, {:.0} us a batch, {:.1} bytes a result",
                        row.result_us, row.batch_us, row.result_bytes
                    ),
                ]);
                if row.batch == MANY {
                    let what = format!(
                        "a result of a large harvest is written in {:.2} us, required at most {RESULT_US}",
                        row.result_us
                    );
                    verdict(said, what, row.result_us <= RESULT_US);
                }
            }
            Row::Worker(row) => {
                figures.add_row([
                    format!(
                        "kept by a worker, {} jobs of {} us, {}",
                        row.jobs, row.job_us, row.keeping
                    ),
                    format!(
                        "{:.2} us a result ({:.3} s, {:.3} s with nothing kept)",
                        row.result_us, row.on_s, row.off_s
                    ),
                ]);
                let what = format!(
                    "a result costs its worker {:.2} us ({}), required at most {RESULT_US}",
                    row.result_us, row.keeping
                );
                verdict(said, what, row.result_us <= RESULT_US);
            }
            Row::Resume(row) => {
                figures.add_row([
                    format!("found again, {} results", row.results),
                    format!(
                        "first new job after {:.2} s ({:.2} s with none)",
                        row.first_job_s, row.fresh_first_job_s
                    ),
                ]);
                let what = format!(
                    "with {} results in the store the first new job is done after {:.2} s, required at most {FIRST_JOB_S} s with {MANY}",
                    row.results, row.first_job_s
                );
                verdict(said, what, row.first_job_s <= FIRST_JOB_S);
            }
            _ => {}
        }
    }
    show("record: what a result costs", figures, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_result_stands_for_another() {
        let names = (0..1000).map(|number| fact(number).saved.name.id.to_string());
        let distinct: std::collections::BTreeSet<String> = names.collect();
        assert_eq!(distinct.len(), 1000);
    }
}
