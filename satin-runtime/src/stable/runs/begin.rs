//! Beginning a run, or going on with one.

use std::{fmt, str::FromStr};

use super::{
    Runs,
    found::FoundRun,
    manifest::{Manifest, Program, Start},
    place::{RunFile, RunPlace},
};
use crate::{job::RunName, stable::StableError};

/// Runs of which the user is told why they are not resumed. Those before them are counted.
const REMARKS: usize = 5;

/// Which run is resumed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Resume {
    /// The newest unfinished run of the pool, program and command line; if there is none, a new one.
    #[default]
    Auto,
    /// None: the run is a new one.
    No,
    /// This one.
    Run(RunName),
}

/// A text that does not say which run is resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {}", Resume::EXPECTED)]
pub struct ResumeError;

impl Resume {
    /// The forms that the setting may have.
    pub const EXPECTED: &str = "auto, no, or a run's name of 16 hexadecimal digits";
}

impl FromStr for Resume {
    type Err = ResumeError;

    fn from_str(text: &str) -> Result<Resume, ResumeError> {
        match text.trim() {
            "auto" => Ok(Resume::Auto),
            "no" => Ok(Resume::No),
            name if name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                name.parse().map(Resume::Run).map_err(|_| ResumeError)
            }
            _ => Err(ResumeError),
        }
    }
}

impl fmt::Display for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resume::Auto => f.write_str("auto"),
            Resume::No => f.write_str("no"),
            Resume::Run(run) => run.fmt(f),
        }
    }
}

/// The wish to begin a run, or to go on with one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeginRequest {
    /// The pool's name.
    pub pool: String,
    /// The program that asks.
    pub program: Program,
    /// Which run is resumed.
    pub resume: Resume,
    /// True to resume also a run that comes to nothing again and again.
    pub force: bool,
    /// Epochs in a row without a batch after which only `force` resumes. Too small: a node that is stopped early stops
    /// the run; too large: a job that kills every node does so that often.
    pub max_crashes: u32,
    /// The name of the node that asks.
    pub by: String,
    /// The id of the node that founded its pool: a later master of the same pool goes on with the same epoch.
    pub founder: u128,
}

/// An epoch that has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// The run.
    pub place: RunPlace,
    /// The number of the epoch: 0 for a new run.
    pub epoch: u32,
    /// Texts for the user: why no former run is resumed although there are some.
    pub remarks: Vec<String>,
}

/// Reasons why no epoch begins. None of them changes a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// Another process was a moment earlier.
    #[error(
        "run {0}: another start of this program resumes it just now; let that one go on, or start a new run with --fresh"
    )]
    Race(RunName),
    /// There is no such run.
    #[error("the pool `{pool}` has no run {run}; `satin runs ls` shows those that there are")]
    Missing {
        /// The pool's name.
        pool: String,
        /// The run that was to be resumed.
        run: RunName,
    },
    /// The run has come to its end.
    #[error("run {run} is finished, {}; --fresh starts a new run", ending(*.code))]
    Finished {
        /// The run.
        run: RunName,
        /// Its exit code, if it can be read.
        code: Option<i32>,
    },
    /// The run's results may not be those of this program.
    #[error(
        "run {run} cannot be resumed: it was started {why}; start the same program with the same arguments, or a new run \
         with --fresh"
    )]
    Different {
        /// The run.
        run: RunName,
        /// What differs, after "it was started".
        why: String,
    },
    /// The run was started again and again, and nothing came of it.
    #[error(
        "run {run} was started {epochs} times without a result: each time all nodes died, or were stopped, before a job was \
         finished; find out why, then go on with it with --force, or start a new run with --fresh"
    )]
    NoProgress {
        /// The run.
        run: RunName,
        /// The number of starts since a result was last written.
        epochs: u32,
    },
    /// The store failed.
    #[error(
        "the store failed ({0}); see to it that this node can read and write it, and start again"
    )]
    Store(#[from] StableError),
}

fn ending(code: Option<i32>) -> String {
    match code {
        Some(code) => format!("with exit code {code}"),
        None => "with an exit code that cannot be read".into(),
    }
}

/// What is to be done for a request. Between the plan and its execution others may act on the same plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// The run, and the number of the epoch that is to begin.
    place: RunPlace,
    epoch: u32,
    remarks: Vec<String>,
}

impl Runs {
    /// Begins an epoch: of a run that is resumed, or of a new one. If the pool that asks has begun one already, that goes on.
    ///
    /// # Errors
    /// The run that is to be resumed cannot be, or the store failed.
    pub fn begin(&self, request: &BeginRequest) -> Result<EpochStart, BeginError> {
        let found = self.found(Some(&request.pool))?;
        let (left, found): (Vec<_>, Vec<_>) = found.into_iter().partition(FoundRun::is_left_over);
        if let Some(begun) = self.begun_before(request, &found)? {
            return Ok(begun);
        }
        let plan = self.plan(request, &found)?;
        let begun = self.execute(request, plan)?;
        // Only now is it known that enough of the store answers to tell what is left over from what cannot be seen.
        self.sweep(&left);
        Ok(begun)
    }

    /// The epoch that an earlier master of the same pool has begun, if no other pool has gone on with the run since.
    fn begun_before(
        &self,
        request: &BeginRequest,
        found: &[FoundRun],
    ) -> Result<Option<EpochStart>, BeginError> {
        for found in found.iter().filter(|found| !found.files.is_done) {
            let is_own = |start: &Start| start.founder == request.founder;
            let mut starts = found.starts.iter().rev();
            let Some((epoch, _)) = starts.find(|(_, start)| is_own(start)) else {
                continue;
            };
            if found.starts.last_key_value().map(|(last, _)| last) != Some(epoch) {
                return Err(BeginError::Race(found.place.run));
            }
            return Ok(Some(EpochStart {
                place: found.place.clone(),
                epoch: *epoch,
                remarks: Vec::new(),
            }));
        }
        Ok(None)
    }

    fn is_of_pool(
        &self,
        place: &RunPlace,
        epoch: u32,
        request: &BeginRequest,
    ) -> Result<bool, StableError> {
        let start = self.read_record::<Start>(place, RunFile::Epoch(epoch))?;
        Ok(matches!(start, Some(Ok(start)) if start.founder == request.founder))
    }

    /// `found` are the runs of the pool, the newest first.
    pub(super) fn plan(
        &self,
        request: &BeginRequest,
        found: &[FoundRun],
    ) -> Result<Plan, BeginError> {
        let new_run = |remarks| Plan {
            place: RunPlace {
                pool: request.pool.clone(),
                // After a partition both parts of a pool may have a master, and these begin the same run.
                run: new_name(request, found),
            },
            epoch: 0,
            remarks,
        };
        match request.resume {
            Resume::No => Ok(new_run(Vec::new())),
            Resume::Run(run) => self.plan_run(request, run),
            Resume::Auto => {
                let mut objections = Vec::new();
                for found in found {
                    if found.files.is_done {
                        continue;
                    }
                    match found.objection(&request.program) {
                        None => return resumption(found, request),
                        Some(why) => objections.push((found.place.run, why)),
                    }
                }
                Ok(new_run(remarks(&objections)))
            }
        }
    }

    fn plan_run(&self, request: &BeginRequest, run: RunName) -> Result<Plan, BeginError> {
        let pool = request.pool.clone();
        let place = RunPlace { pool, run };
        let Some(found) = self.find(&place)? else {
            let pool = place.pool;
            return Err(BeginError::Missing { pool, run });
        };
        if found.files.is_done {
            let code = found.end.map(|end| end.code);
            return Err(BeginError::Finished { run, code });
        }
        match found.objection(&request.program) {
            None => resumption(&found, request),
            Some(why) => Err(BeginError::Different { run, why }),
        }
    }

    pub(super) fn execute(
        &self,
        request: &BeginRequest,
        plan: Plan,
    ) -> Result<EpochStart, BeginError> {
        let Plan {
            place,
            epoch,
            remarks,
        } = plan;
        let start = Start::now(&request.by, request.founder, &request.program);
        if epoch == 0 {
            self.create_manifest(request, &place, start.clone())?;
        }
        match self.create_record(&place, RunFile::Epoch(epoch), &start) {
            Ok(()) => Ok(EpochStart {
                place,
                epoch,
                remarks,
            }),
            // After a partition both parts of a pool may have a master, and these go on with the same epoch.
            Err(StableError::Exists(_)) if self.is_of_pool(&place, epoch, request)? => {
                Ok(EpochStart {
                    place,
                    epoch,
                    remarks,
                })
            }
            Err(StableError::Exists(_)) => Err(BeginError::Race(place.run)),
            Err(error) => Err(error.into()),
        }
    }

    /// The manifest of a new run. A run without epochs, whose first start died at once, has one.
    fn create_manifest(
        &self,
        request: &BeginRequest,
        place: &RunPlace,
        start: Start,
    ) -> Result<(), StableError> {
        let manifest = Manifest {
            program: request.program.hash,
            command_line: request.program.command_line.clone(),
            start,
        };
        match self.create_record(place, RunFile::Manifest, &manifest) {
            Err(StableError::Exists(_)) => Ok(()),
            done => done,
        }
    }
}

/// The name of the run that a pool begins. The founder's id is random, so the name is too.
fn new_name(request: &BeginRequest, found: &[FoundRun]) -> RunName {
    let mut hasher = blake3::Hasher::new_derive_key("satin run 1");
    hasher.update(&request.founder.to_le_bytes());
    hasher.update(request.pool.as_bytes());
    let mut name = [0; 8];
    hasher.finalize_xof().fill(&mut name);
    let name = RunName(u64::from_le_bytes(name));
    // The founder's process may have had a pool before.
    let is_taken = found
        .iter()
        .any(|found| found.place.run == name && found.files.is_done);
    match is_taken {
        true => RunName(rand::random()),
        false => name,
    }
}

/// The plan to resume a run that nothing but its luck speaks against.
fn resumption(found: &FoundRun, request: &BeginRequest) -> Result<Plan, BeginError> {
    let run = found.place.run;
    let epochs = found.epochs_without_batch();
    if epochs >= request.max_crashes.max(1) && !request.force {
        return Err(BeginError::NoProgress { run, epochs });
    }
    Ok(Plan {
        place: found.place.clone(),
        epoch: found.next_epoch().ok_or(BeginError::NoProgress {
            run,
            epochs: u32::MAX,
        })?,
        remarks: Vec::new(),
    })
}

fn remarks(objections: &[(RunName, String)]) -> Vec<String> {
    let told = objections.iter().take(REMARKS);
    let mut remarks: Vec<String> = told
        .map(|(run, why)| format!("run {run} is not resumed: it was started {why}"))
        .collect();
    let others = objections.len().saturating_sub(REMARKS);
    if others > 0 {
        remarks.push(format!("nor are {others} older runs of this pool"));
    }
    remarks
}
