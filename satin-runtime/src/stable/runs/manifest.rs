//! What stands in a run's files beside its logs.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::stable::format::FrameError;

/// The version of all that stands in a run. Runs of another are not resumed.
const VERSION: u32 = 3;

/// The most that is read of a manifest, an epoch or an exit code, in bytes: far more than a command line takes.
pub(super) const LONGEST_RECORD: u64 = 4 << 20;

/// The program that a run is a run of, as the process that asks is running it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The hash over all spawnable functions.
    pub hash: [u8; 32],
    /// The target platform of the executable.
    pub target: String,
    /// The BLAKE3 hash of the executable.
    pub executable: [u8; 32],
    /// The program's arguments, without the flags that are Satin's own.
    pub command_line: Vec<String>,
    /// True if other executables for the same target do the same: the user says so.
    pub mixed_builds: bool,
}

/// The first file of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The hash over all spawnable functions.
    pub(super) program: [u8; 32],
    /// The program's arguments.
    pub(super) command_line: Vec<String>,
    /// The first start.
    pub(super) start: Start,
}

/// One start of a run. Beside that of the manifest each epoch has one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Start {
    /// The name of the node that started it.
    pub(super) by: String,
    /// The id of the node that founded its pool.
    pub(super) founder: u128,
    /// Milliseconds since 1970.
    millis: u64,
    /// The target platform of the executable.
    pub(super) target: String,
    /// The BLAKE3 hash of the executable.
    pub(super) executable: [u8; 32],
}

impl Start {
    pub(super) fn now(by: &str, founder: u128, program: &Program) -> Start {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Start {
            by: by.into(),
            founder,
            millis: since.map_or(0, |since| since.as_millis() as u64),
            target: program.target.clone(),
            executable: program.executable,
        }
    }

    pub(super) fn time(&self) -> SystemTime {
        let since = Duration::from_millis(self.millis);
        let time = SystemTime::UNIX_EPOCH.checked_add(since);
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RunEnd {
    /// The exit code.
    pub(super) code: i32,
    /// The run is to stay. Otherwise it is being removed, or the removal was interrupted.
    pub(super) keep: bool,
}

/// The content of such a file, which is of this version.
pub(super) fn write<T: Serialize>(record: &T) -> Vec<u8> {
    postcard::to_stdvec(&(VERSION, record)).expect("memory takes all that is written")
}

/// The content of such a file.
pub(super) fn read<T: DeserializeOwned>(content: &[u8]) -> Result<T, RecordError> {
    match postcard::take_from_bytes(content) {
        Ok((VERSION, rest)) => match postcard::take_from_bytes(rest) {
            Ok((record, [])) => Ok(record),
            _ => Err(RecordError::Frame(FrameError::Malformed)),
        },
        Ok((version, _)) => Err(RecordError::Version(version)),
        Err(_) => Err(RecordError::Frame(FrameError::Malformed)),
    }
}

/// Reasons why such a file is not understood. The texts go on after "the run was started ..".
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum RecordError {
    /// The file is no frame, or not with these keys.
    #[error("with another credential, or its files are damaged")]
    Frame(#[from] FrameError),
    /// The file is not there.
    #[error("and has been removed in part since")]
    Missing,
    /// The file is of another version.
    #[error(
        "by another version of Satin: its files are of version {0}, and this one knows {VERSION}"
    )]
    Version(u32),
}
