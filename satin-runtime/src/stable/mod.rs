//! Stable storage: what survives when every node of a pool dies. It knows no node.
//!
//! * [`Stable`] is a store: five calls that block, on files of its own kind. `file` is a directory that all nodes see. Stores
//!   that need a network are in `net`.
//! * [`servers`] uses several stores as one.
//! * `format` says how batches of results stand in a log, so that whoever has not the credential can neither forge nor, if
//!   sealed, read them, and a torn end does no harm.
//! * `runs` says which files a run has, who may resume it, and what is loaded then.
//!
//! Everything in a store is a set of facts that never change. So nothing is updated, logs are only appended to by the one
//! life of a node that owns them, and a lost log costs work, never the answer.

pub mod file;
pub mod format;
#[cfg(any(test, feature = "harness"))]
pub mod memory;
pub mod runs;
pub mod servers;

use std::{fmt, io, ops::Range, path::PathBuf, str::FromStr};

/// A store. All calls block, and what they have done is durable when they return.
///
/// Paths are relative, of segments of `[A-Za-z0-9._-]`, separated by `/`. No segment begins with a dot.
pub trait Stable: Send + Sync {
    /// Writes a new file as a whole. Of several that create the same path at once, one succeeds.
    ///
    /// # Errors
    /// [`StableError::Exists`] if there is a file of that name, or a failure of the store.
    fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError>;

    /// Appends to a file, which is created if need be. A path has one writer.
    ///
    /// # Errors
    /// A failure of the store. The file may end with a part of the batch then.
    fn append(&self, path: &str, batch: &[u8]) -> Result<(), StableError>;

    /// Reads a range of a file; less, if the file ends before the range does.
    ///
    /// # Errors
    /// [`StableError::Missing`] if there is no such file, or a failure of the store.
    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError>;

    /// The files whose paths begin with that, in order, with their sizes in bytes.
    ///
    /// # Errors
    /// A failure of the store.
    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError>;

    /// Removes a file. One that is not there is removed already.
    ///
    /// # Errors
    /// A failure of the store.
    fn delete(&self, path: &str) -> Result<(), StableError>;
}

/// True for the paths that files of a store may have.
pub(crate) fn is_path(path: &str) -> bool {
    let is_segment = |segment: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(allowed)
    };
    path.split('/').all(is_segment)
}

/// Reasons why a store did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StableError {
    /// A file exists already that was to be created.
    #[error("{0} exists already")]
    Exists(String),
    /// A file is not there that was to be read.
    #[error("{0} does not exist")]
    Missing(String),
    /// The store failed.
    #[error("{path}: {error}")]
    Failed {
        /// The path, or what else the store calls it.
        path: String,
        /// The system's error.
        error: io::Error,
    },
}

/// The URL of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreUrl {
    /// `file:PATH`: a directory that all nodes see.
    File(PathBuf),
    /// `satin://HOST:PORT[,HOST:PORT..][?copies=N]`: servers, each log on that number of them.
    Servers {
        /// The servers, `HOST:PORT` each.
        servers: Vec<String>,
        /// The number of servers that hold each log.
        copies: u32,
    },
    /// `s3://BUCKET[/PREFIX]`.
    S3 {
        /// The bucket.
        bucket: String,
        /// What all keys begin with; without slashes at its ends.
        prefix: String,
    },
}

/// A text that is no URL of a store.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {}", StoreUrl::EXPECTED)]
pub struct StoreUrlError;

impl StoreUrl {
    /// The forms that a URL may have.
    pub const EXPECTED: &str =
        "file:PATH, satin://HOST:PORT[,HOST:PORT..][?copies=N] or s3://BUCKET[/PREFIX]";

    /// The number of servers that hold each log, unless the URL says otherwise.
    pub const COPIES: u32 = 2;
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.is_empty() {
                true => Err(StoreUrlError),
                false => Ok(StoreUrl::File(path.into())),
            };
        }
        if let Some(rest) = text.strip_prefix("satin://") {
            let (list, copies) = match rest.split_once('?') {
                None => (rest, None),
                Some((list, query)) => {
                    let copies = query.strip_prefix("copies=").ok_or(StoreUrlError)?;
                    (list, Some(copies.parse().map_err(|_| StoreUrlError)?))
                }
            };
            let servers: Vec<String> = list
                .trim_end_matches('/')
                .split(',')
                .map(|server| server.trim().to_owned())
                .collect();
            let is_server = |server: &String| {
                server.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
                })
            };
            let copies = copies.unwrap_or_else(|| StoreUrl::COPIES.min(servers.len() as u32));
            let fits = (1..=servers.len()).contains(&(copies as usize));
            return match fits && servers.iter().all(is_server) {
                true => Ok(StoreUrl::Servers { servers, copies }),
                false => Err(StoreUrlError),
            };
        }
        let rest = text.strip_prefix("s3://").ok_or(StoreUrlError)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        match bucket.is_empty() {
            true => Err(StoreUrlError),
            false => Ok(StoreUrl::S3 {
                bucket: bucket.into(),
                prefix: prefix.trim_matches('/').into(),
            }),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::File(path) => write!(f, "file:{}", path.display()),
            StoreUrl::Servers { servers, copies } => {
                write!(f, "satin://{}?copies={copies}", servers.join(","))
            }
            StoreUrl::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            StoreUrl::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_back_as_they_are_shown() {
        for text in [
            "file:/scratch/satin",
            "satin://a:7800,b.example:7800?copies=2",
            "satin://[::1]:7800?copies=1",
            "s3://bucket",
            "s3://bucket/a/b",
        ] {
            let url: StoreUrl = text.parse().expect(text);
            assert_eq!(url.to_string(), text);
        }
        let servers: StoreUrl = "satin://a:1,b:2,c:3".parse().expect("a URL");
        assert_eq!(servers.to_string(), "satin://a:1,b:2,c:3?copies=2");
        for text in [
            "",
            "/scratch",
            "file:",
            "satin://",
            "satin://a",
            "satin://a:0",
            "satin://a:1?copies=2",
            "satin://a:1?copies=0",
            "satin://a:1?kopies=1",
            "s3://",
            "https://example.org",
        ] {
            assert_eq!(text.parse::<StoreUrl>(), Err(StoreUrlError), "{text}");
        }
    }
}
