//! Where the files of a run stand in a store.

use std::{fmt, str::FromStr};

use crate::job::{MainNumber, RunName};

/// A run of a pool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunPlace {
    /// The pool's name.
    pub pool: String,
    /// The run's name.
    pub run: RunName,
}

/// The log of one life of a node, in one epoch of a run. No other life writes to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogName {
    /// The epoch: counts the starts of the run.
    pub epoch: u32,
    /// The node's id.
    pub node: u128,
    /// The node's life: counts its returns to the pool.
    pub generation: u32,
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogName {
            epoch,
            node,
            generation,
        } = self;
        write!(f, "{epoch}-{node:032x}-{generation}")
    }
}

/// A text that is no log's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected EPOCH-NODE-GENERATION")]
pub struct LogNameError;

impl FromStr for LogName {
    type Err = LogNameError;

    fn from_str(text: &str) -> Result<LogName, LogNameError> {
        let parts: Vec<&str> = text.split('-').collect();
        let [epoch, node, generation] = parts[..] else {
            return Err(LogNameError);
        };
        let name = LogName {
            epoch: epoch.parse().map_err(|_| LogNameError)?,
            node: u128::from_str_radix(node, 16).map_err(|_| LogNameError)?,
            generation: generation.parse().map_err(|_| LogNameError)?,
        };
        // A log has one name: otherwise a copy of it under another could be read too.
        match name.to_string() == text {
            true => Ok(name),
            false => Err(LogNameError),
        }
    }
}

/// A file of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RunFile {
    Manifest,
    Epoch(u32),
    Segment(LogName, u32),
    /// A `main`, and one of its beats.
    Main(MainNumber, u32),
    Done,
    /// A shared value, or a file of a later version: it goes with the run.
    Other,
}

impl RunPlace {
    /// What the paths of all files of the run begin with.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("{}{}/", pool_prefix(&self.pool), self.run)
    }

    /// The path of one of the run's files.
    pub(super) fn path(&self, file: RunFile) -> String {
        let prefix = self.prefix();
        match file {
            RunFile::Manifest => format!("{prefix}manifest"),
            RunFile::Epoch(epoch) => format!("{prefix}epoch/{epoch}"),
            RunFile::Segment(log, segment) => format!("{prefix}log/{log}/{segment:08x}"),
            RunFile::Main(MainNumber { epoch, main }, beat) => {
                format!("{prefix}main/{epoch}-{main}/{beat}")
            }
            RunFile::Done => format!("{prefix}done"),
            RunFile::Other => format!("{prefix}value/"),
        }
    }
}

/// What the paths of all files of a pool begin with.
pub(super) fn pool_prefix(pool: &str) -> String {
    format!("{}/", encoded(pool))
}

/// The run and the file that a path is of; `None` for files that are no run's.
pub(super) fn parse(path: &str) -> Option<(RunPlace, RunFile)> {
    let (pool, rest) = path.split_once('/')?;
    let (run, file) = rest.split_once('/')?;
    let place = RunPlace {
        pool: decoded(pool)?,
        run: run.parse().ok()?,
    };
    let of_another_name = !path.starts_with(&place.prefix());
    (!of_another_name).then(|| (place, parse_file(file)))
}

fn parse_file(file: &str) -> RunFile {
    let known = match file.split('/').collect::<Vec<_>>()[..] {
        ["manifest"] => Some(RunFile::Manifest),
        ["done"] => Some(RunFile::Done),
        ["epoch", epoch] => epoch.parse().ok().map(RunFile::Epoch),
        ["log", log, segment] => parse_segment(log, segment),
        ["main", main, beat] => parse_beat(main, beat),
        _ => None,
    };
    known.unwrap_or(RunFile::Other)
}

fn parse_segment(log: &str, segment: &str) -> Option<RunFile> {
    let segment = u32::from_str_radix(segment, 16).ok()?;
    Some(RunFile::Segment(log.parse().ok()?, segment))
}

fn parse_beat(main: &str, beat: &str) -> Option<RunFile> {
    let (epoch, main) = main.split_once('-')?;
    let (epoch, main) = (epoch.parse().ok()?, main.parse().ok()?);
    Some(RunFile::Main(
        MainNumber { epoch, main },
        beat.parse().ok()?,
    ))
}

/// A pool's name as a segment of a path: other characters than letters, digits, `.` and `-` as `_` and two hexadecimal
/// digits for each byte. So is a `.` at the beginning, where it has a meaning of its own. No name at all is `_`.
fn encoded(pool: &str) -> String {
    if pool.is_empty() {
        return "_".into();
    }
    let mut segment = String::new();
    for (at, byte) in pool.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || byte == b'-' || (byte == b'.' && at > 0);
        match is_plain {
            true => segment.push(char::from(byte)),
            false => segment.push_str(&format!("_{byte:02X}")),
        }
    }
    segment
}

fn decoded(segment: &str) -> Option<String> {
    let mut parts = segment.split('_');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts.filter(|part| !(part.is_empty() && segment == "_")) {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_pool_has_a_path_of_its_own(pool in ".*", run: u64) {
            let place = RunPlace { pool, run: RunName(run) };
            let path = place.path(RunFile::Done);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
            prop_assert!(path.bytes().all(allowed) && !path.starts_with('.'), "{}", path);
            prop_assert_eq!(parse(&path), Some((place, RunFile::Done)));
        }

        #[test]
        fn every_file_is_known_by_its_path(epoch: u32, node: u128, generation: u32, segment: u32) {
            let place = RunPlace { pool: "p".into(), run: RunName(7) };
            let log = LogName { epoch, node, generation };
            let main = MainNumber { epoch, main: segment };
            let files = [RunFile::Manifest, RunFile::Epoch(epoch), RunFile::Segment(log, segment), RunFile::Main(main, generation), RunFile::Done];
            for file in files {
                prop_assert_eq!(parse(&place.path(file)), Some((place.clone(), file)));
            }
        }

        #[test]
        fn any_path_is_looked_at_without_a_panic(path in "[a-z0-9_/.-]{0,40}|.*") {
            let _ = parse(&path);
            let _ = path.parse::<LogName>();
        }
    }

    #[test]
    fn files_of_others_are_no_runs() {
        for path in [
            "README",
            "p/README",
            "p/1/manifest",
            "p/zz/done",
            "_G0/0000000000000001/done",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
        let name = "1-000000000000000000000000000000ff-2".parse::<LogName>();
        let log = LogName {
            epoch: 1,
            node: 255,
            generation: 2,
        };
        assert_eq!(name, Ok(log));
        assert_eq!("1-ff-2".parse::<LogName>(), Err(LogNameError));
    }
}
