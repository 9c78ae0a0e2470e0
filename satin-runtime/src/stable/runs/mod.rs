//! The runs in a store: who may begin or resume one, what is written of it, and what is loaded then.
//!
//! ```text
//! POOL/RUN/manifest              the program, its command line, when and by whom it was started
//! POOL/RUN/epoch/E               each start; of several at once, one can create the file
//! POOL/RUN/log/E-NODE-GEN/S      what one life of a node has written in one epoch, in segments
//! POOL/RUN/main/E-N/B            each start of `main` in an epoch; its last beat stays
//! POOL/RUN/done                  the exit code
//! ```
//!
//! All of them are frames of [`format`](super::format): runs of those who have another credential are seen, and not read.

mod begin;
mod details;
mod found;
mod load;
mod log;
mod mains;
mod manifest;
mod place;

use std::{collections::BTreeMap, fmt, io, sync::Arc, time::SystemTime};

use serde::{Serialize, de::DeserializeOwned};

use self::{
    found::{FoundRun, RunFiles},
    manifest::{LONGEST_RECORD, RecordError, RunEnd, Start},
    place::RunFile,
};
use super::{
    Stable, StableError,
    format::{FrameError, FramePlace, Sealing, StoreKeys},
};

pub use self::{
    begin::{BeginError, BeginRequest, EpochStart, Resume, ResumeError},
    details::{EpochDetails, LogDetails, RunDetails},
    load::LoadedRun,
    log::{Appended, LogWriter, SEGMENT},
    manifest::Program,
    place::{LogName, LogNameError, RunPlace},
};

/// The runs in a store, for those who have a credential.
#[derive(Clone)]
pub struct Runs {
    stable: Arc<dyn Stable>,
    keys: StoreKeys,
    sealing: Sealing,
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs")
            .field("sealing", &self.sealing)
            .finish_non_exhaustive()
    }
}

/// A run, for those who look at a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunState {
    /// The pool and the name.
    pub place: RunPlace,
    /// The program's arguments; empty if the run cannot be read.
    pub command_line: Vec<String>,
    /// The time of the first start; 1970 if the run cannot be read.
    pub started: SystemTime,
    /// The number of starts.
    pub epochs: u32,
    /// The bytes of all files.
    pub bytes: u64,
    /// The number of logs.
    pub logs: usize,
    /// The exit code, if the run is finished and is kept all the same.
    pub done: Option<i32>,
    /// False if the run was started with another credential or by another version, or if it is what an interrupted
    /// removal has left.
    pub readable: bool,
}

/// Reasons why a run is still in the store after its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// Its end could not be noted.
    #[error("its end is not in the store, so that it may be resumed: {0}")]
    NotNoted(StableError),
    /// Its end is noted, and not all of it could be removed.
    #[error(
        "not all of it could be removed from the store: {0}; the next start of this pool removes the rest"
    )]
    NotRemoved(StableError),
}

/// What stays in the store of a run that is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stays {
    /// All of it: the user wants to look at it.
    All,
    /// The exit code, until this pool is started again: nodes that are cut off do not know it yet.
    Note,
    /// Nothing.
    Nothing,
}

impl Runs {
    /// The runs in that store, for those who have that secret. What is written is sealed, so that only they can read it, if
    /// `seals` says so; what others have sealed is read in any case.
    #[must_use]
    pub fn new(stable: Arc<dyn Stable>, secret: &[u8], seals: bool) -> Runs {
        Runs {
            stable,
            keys: StoreKeys::derive(secret),
            sealing: match seals {
                true => Sealing::Sealed,
                false => Sealing::Plain,
            },
        }
    }

    /// All runs of a pool, or of all pools, the newest first.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn list(&self, pool: Option<&str>) -> Result<Vec<RunState>, StableError> {
        let found = self.found(pool)?;
        let runs = found.iter().filter(|found| !found.is_note());
        runs.map(|found| self.state(found)).collect()
    }

    /// The highest epoch of a run.
    ///
    /// # Errors
    /// [`StableError::Missing`] if the run has no epoch any more, or a failure of the store.
    pub fn epoch(&self, place: &RunPlace) -> Result<u32, StableError> {
        self.last_start(place).map(|(epoch, _)| epoch)
    }

    /// The epoch by which another pool than that founder's goes on with a run, if one does that is later than `epoch`. A master
    /// that hears of one ends.
    ///
    /// # Errors
    /// [`StableError::Missing`] if the run has no epoch any more, or a failure of the store.
    pub fn later_epoch(
        &self,
        place: &RunPlace,
        epoch: u32,
        founder: u128,
    ) -> Result<Option<u32>, StableError> {
        let (last, start) = self.last_start(place)?;
        Ok((last > epoch && start.founder != founder).then_some(last))
    }

    /// The last epoch of a run. One that cannot be read is none: whoever can write to the store can leave such a file there,
    /// but only who has the credential can start a run.
    fn last_start(&self, place: &RunPlace) -> Result<(u32, Start), StableError> {
        let prefix = epochs_of(place);
        let files = self.files(&prefix)?;
        let epochs = files.values().flat_map(|files| &files.epochs);
        for epoch in epochs.rev() {
            if let Some(Ok(start)) = self.read_record(place, RunFile::Epoch(*epoch))? {
                return Ok((*epoch, start));
            }
        }
        Err(StableError::Missing(prefix))
    }

    /// The writer of a log of that run. The caller sees to it that there is one only.
    #[must_use]
    pub fn writer(&self, place: &RunPlace, log: LogName) -> LogWriter {
        let (stable, keys) = (self.stable.clone(), self.keys.clone());
        LogWriter::new(stable, keys, self.sealing, place.clone(), log)
    }

    /// Has that run, of which there was an epoch, been removed?
    ///
    /// # Errors
    /// A failure of the store.
    pub fn is_removed(&self, place: &RunPlace) -> Result<bool, StableError> {
        let epochs = self.stable.list(&epochs_of(place))?;
        Ok(epochs.is_empty())
    }

    /// Notes that a run is finished, and removes what does not stay. The caller has seen that no other pool goes on with
    /// it: see [`later_epoch`](Runs::later_epoch).
    ///
    /// # Errors
    /// A failure of the store. The run is not resumed if its end could be noted.
    pub fn finish(&self, place: &RunPlace, code: i32, stays: Stays) -> Result<(), FinishError> {
        let end = RunEnd {
            code,
            keep: stays == Stays::All,
        };
        let noted = match self.create_record(place, RunFile::Done, &end) {
            Err(StableError::Exists(_)) => Ok(()),
            noted => noted,
        };
        let removed = match stays {
            Stays::All => return noted.map_err(FinishError::NotNoted),
            Stays::Note => self.remove_but_note(place),
            Stays::Nothing => self.remove(place),
        };
        // A full store has no room for the exit code, but it can be emptied.
        match (removed, noted) {
            (Ok(()), _) => Ok(()),
            (Err(error), Ok(())) => Err(FinishError::NotRemoved(error)),
            (Err(_), Err(error)) => Err(FinishError::NotNoted(error)),
        }
    }

    /// Removes what interrupted removals have left of runs, and what a node wrote after one.
    fn sweep(&self, left: &[FoundRun]) {
        for left in left {
            if let Err(error) = self.remove(&left.place) {
                let run = left.place.run;
                tracing::debug!("what is left of the run {run} stays in the store: {error}");
            }
        }
    }

    /// Removes all files of a run. As any subset of its results is in order, an interrupted removal does no harm; the
    /// epochs go first, so that a node that writes meanwhile sees that its run is gone and removes what it has written; the
    /// manifest goes last but one, so that what is left is seen, and the exit code last, and only if nothing else is left: a
    /// run that is finished is never resumed, not even if a server that was away brings its files back.
    ///
    /// # Errors
    /// A failure of the store. A part of the run is left then.
    pub fn remove(&self, place: &RunPlace) -> Result<(), StableError> {
        self.remove_but_note(place)?;
        self.stable.delete(&place.path(RunFile::Done))
    }

    fn remove_but_note(&self, place: &RunPlace) -> Result<(), StableError> {
        let (manifest, done) = (place.path(RunFile::Manifest), place.path(RunFile::Done));
        let mut outcome = Ok(());
        for prefix in [epochs_of(place), place.prefix()] {
            for (path, _) in self.stable.list(&prefix)? {
                if path != manifest && path != done {
                    outcome = outcome.and(self.stable.delete(&path));
                }
            }
        }
        outcome.and(self.stable.delete(&manifest))
    }

    /// The exit code of a run that is finished, if that is noted.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn end(&self, place: &RunPlace) -> Result<Option<i32>, StableError> {
        let end = self.read_record::<RunEnd>(place, RunFile::Done)?;
        Ok(end.and_then(Result::ok).map(|end| end.code))
    }

    /// The files below a prefix, by run.
    fn files(&self, prefix: &str) -> Result<BTreeMap<RunPlace, RunFiles>, StableError> {
        let mut runs: BTreeMap<RunPlace, RunFiles> = BTreeMap::new();
        for (path, bytes) in self.stable.list(prefix)? {
            if let Some((place, file)) = place::parse(&path) {
                runs.entry(place).or_default().add(file, bytes);
            }
        }
        Ok(runs)
    }

    /// The runs of a pool, or of all pools, the newest first. Those that cannot be read are last.
    fn found(&self, pool: Option<&str>) -> Result<Vec<FoundRun>, StableError> {
        let prefix = pool.map_or(String::new(), place::pool_prefix);
        let mut found = Vec::new();
        for (place, files) in self.files(&prefix)? {
            found.push(self.look_at(place, files)?);
        }
        found.sort_by_key(|found| std::cmp::Reverse(found.started()));
        Ok(found)
    }

    /// That run, if there is something of it.
    fn find(&self, place: &RunPlace) -> Result<Option<FoundRun>, StableError> {
        let files = self.files(&place.prefix())?.into_values().next();
        let found = files.map(|files| self.look_at(place.clone(), files));
        found.transpose()
    }

    fn look_at(&self, place: RunPlace, files: RunFiles) -> Result<FoundRun, StableError> {
        let manifest = self.read_record(&place, RunFile::Manifest)?;
        let manifest = manifest.unwrap_or(Err(RecordError::Missing));
        let end = match files.is_done {
            true => self
                .read_record(&place, RunFile::Done)?
                .and_then(Result::ok),
            false => None,
        };
        let mut starts = BTreeMap::new();
        for epoch in files.epochs.iter().filter(|_| manifest.is_ok()) {
            if let Some(Ok(start)) = self.read_record(&place, RunFile::Epoch(*epoch))? {
                starts.insert(*epoch, start);
            }
        }
        Ok(FoundRun {
            place,
            files,
            manifest,
            starts,
            end,
        })
    }

    fn state(&self, found: &FoundRun) -> Result<RunState, StableError> {
        let manifest = found.manifest.as_ref().ok();
        Ok(RunState {
            place: found.place.clone(),
            command_line: manifest.map_or(Vec::new(), |manifest| manifest.command_line.clone()),
            started: found.started(),
            epochs: match manifest {
                Some(_) => found.starts.len() as u32,
                None => found.files.epochs.len() as u32,
            },
            bytes: found.files.bytes,
            logs: found.files.logs.len(),
            done: found.end.map(|end| end.code),
            readable: manifest.is_some(),
        })
    }

    /// Reads a file that is one frame. `None` if it is not there.
    fn read_record<T: DeserializeOwned>(
        &self,
        place: &RunPlace,
        file: RunFile,
    ) -> Result<Option<Result<T, RecordError>>, StableError> {
        let path = place.path(file);
        let bytes = match self.stable.read(&path, 0..LONGEST_RECORD) {
            Err(StableError::Missing(_)) => return Ok(None),
            bytes => bytes?,
        };
        let place = FramePlace {
            path: &path,
            offset: 0,
        };
        let record = match self.keys.open(place, &bytes) {
            Ok((content, length)) if length == bytes.len() => manifest::read(&content),
            Ok(_) => Err(FrameError::Malformed.into()),
            Err(error) => Err(error.into()),
        };
        Ok(Some(record))
    }

    fn create_record<T: Serialize>(
        &self,
        place: &RunPlace,
        file: RunFile,
        record: &T,
    ) -> Result<(), StableError> {
        let path = place.path(file);
        let place = FramePlace {
            path: &path,
            offset: 0,
        };
        let frame = self
            .keys
            .frame(place, &manifest::write(record), self.sealing);
        let frame = frame.map_err(|error| StableError::Failed {
            path: path.clone(),
            error: io::Error::new(io::ErrorKind::InvalidInput, error),
        })?;
        self.stable.create(&path, &frame)
    }
}

/// What the paths of a run's epochs begin with.
fn epochs_of(place: &RunPlace) -> String {
    format!("{}epoch/", place.prefix())
}

#[cfg(test)]
mod tests;
