//! The parts of a run, for those who look at a store.

use std::time::SystemTime;

use super::{
    Runs,
    manifest::Start,
    place::{LogName, RunPlace},
};
use crate::stable::StableError;

/// The starts and the logs of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RunDetails {
    /// Each start, in order.
    pub epochs: Vec<EpochDetails>,
    /// Each log, in the order of epochs.
    pub logs: Vec<LogDetails>,
}

/// One start of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EpochDetails {
    /// The number of the epoch: counts the starts.
    pub number: u32,
    /// The time of the start; `None` if the file cannot be read, and then the following texts are empty.
    pub started: Option<SystemTime>,
    /// The name of the node that started it.
    pub by: String,
    /// The target platform of the executable.
    pub target: String,
}

/// A log of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogDetails {
    /// The epoch and the life of a node.
    pub name: LogName,
    /// The number of segments.
    pub segments: usize,
    /// The bytes of all segments.
    pub bytes: u64,
}

impl Runs {
    /// The parts of that run; none of them, if there is no such run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn details(&self, place: &RunPlace) -> Result<RunDetails, StableError> {
        let Some(found) = self.find(place)? else {
            return Ok(RunDetails::default());
        };
        let epochs = found.files.epochs.iter().map(|number| {
            let start = found.starts.get(number);
            EpochDetails {
                number: *number,
                started: start.map(Start::time),
                by: start.map_or(String::new(), |start| start.by.clone()),
                target: start.map_or(String::new(), |start| start.target.clone()),
            }
        });
        let logs = found.files.logs.iter().map(|(name, segments)| LogDetails {
            name: *name,
            segments: segments.len(),
            bytes: segments.values().sum(),
        });
        Ok(RunDetails {
            epochs: epochs.collect(),
            logs: logs.collect(),
        })
    }
}
