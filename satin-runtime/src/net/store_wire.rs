//! The protocol of stores: one request for each stream, and its answer. Knows no connection.
//!
//! A request is the length of its body, four bytes in little-endian order, and the body, a [`StoreRequest`]; an answer is
//! a `Result<StoreReply, StoreRefusal>` and ends with the stream.

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_bytes::ByteBuf;

use super::limits;
use crate::stable::StableError;

/// Bytes of a request's length.
pub const LENGTH: usize = 4;

/// The longest body of a request.
pub const REQUEST: usize = limits::STORE_BYTES + limits::STORE_HEADER;

/// The longest answer.
pub const REPLY: usize = limits::STORE_PIECE + limits::STORE_HEADER;

/// A call of [`Stable`](crate::stable::Stable), as it travels.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreRequest<'b> {
    /// Makes a file, which must not be there.
    Create {
        /// The file.
        path: &'b str,
        /// All of it.
        #[serde(with = "serde_bytes")]
        bytes: &'b [u8],
    },
    /// Appends to a file, which is made if it is not there.
    Append {
        /// The file.
        path: &'b str,
        /// What is appended.
        #[serde(with = "serde_bytes")]
        bytes: &'b [u8],
    },
    /// A part of a file: at most [`limits::STORE_PIECE`] bytes.
    Read {
        /// The file.
        path: &'b str,
        /// The first byte.
        start: u64,
        /// The byte behind the last one.
        end: u64,
    },
    /// The files behind the path `after`; all, if that is empty.
    List {
        /// What their paths begin with.
        prefix: &'b str,
        /// The last path of the answer before.
        after: &'b str,
    },
    /// Removes a file.
    Delete {
        /// The file.
        path: &'b str,
    },
}

/// The answer to a request that was fulfilled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreReply {
    /// It is done.
    Done,
    /// What was to be read, or the part of it that is there.
    Bytes(ByteBuf),
    /// What was to be listed.
    Files {
        /// Paths and lengths, in order.
        files: Vec<(String, u64)>,
        /// True if there are more files behind the last one.
        more: bool,
    },
}

/// The reason why a request was not fulfilled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreRefusal {
    /// The file is there already.
    Exists,
    /// The file is not there.
    Missing,
    /// The disk, or the directory, says no.
    Failed(String),
}

impl StoreRequest<'_> {
    /// The request with its length. `None` if it is longer than a server takes.
    #[must_use]
    pub fn encode(&self) -> Option<Bytes> {
        let request = postcard::to_extend(self, vec![0; LENGTH]);
        let mut request = request.expect("memory takes all that is written");
        let length = request.len() - LENGTH;
        if length > REQUEST {
            return None;
        }
        request[..LENGTH].copy_from_slice(&(length as u32).to_le_bytes());
        Some(request.into())
    }

    /// True if the request may be made twice: the second time changes nothing, and is answered alike.
    #[must_use]
    pub fn can_be_repeated(&self) -> bool {
        match self {
            StoreRequest::Create { .. } | StoreRequest::Append { .. } => false,
            StoreRequest::Read { .. } | StoreRequest::List { .. } | StoreRequest::Delete { .. } => {
                true
            }
        }
    }

    /// The file or prefix that it is about.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            StoreRequest::Create { path, .. }
            | StoreRequest::Append { path, .. }
            | StoreRequest::Read { path, .. }
            | StoreRequest::Delete { path }
            | StoreRequest::List { prefix: path, .. } => path,
        }
    }

    /// Reads the body of a request. `None` if it is none, or its path leads out of the store.
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<StoreRequest<'_>> {
        let (request, rest) = postcard::take_from_bytes::<StoreRequest<'_>>(body).ok()?;
        let fits = match &request {
            StoreRequest::List { prefix, .. } => is_prefix(prefix),
            other => is_path(other.path()),
        };
        (fits && rest.is_empty()).then_some(request)
    }
}

/// The answer, as it travels.
#[must_use]
pub fn encode_reply(answer: &Result<StoreReply, StoreRefusal>) -> Vec<u8> {
    postcard::to_stdvec(answer).expect("memory takes all that is written")
}

/// Reads an answer; `None` if it is none.
#[must_use]
pub fn decode_reply(bytes: &[u8]) -> Option<Result<StoreReply, StoreRefusal>> {
    whole(bytes)
}

fn whole<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}

impl From<StableError> for StoreRefusal {
    fn from(error: StableError) -> StoreRefusal {
        match error {
            StableError::Exists(_) => StoreRefusal::Exists,
            StableError::Missing(_) => StoreRefusal::Missing,
            StableError::Failed { error, .. } => {
                let mut text = error.to_string();
                text.truncate(text.floor_char_boundary(limits::STORE_HEADER / 2));
                StoreRefusal::Failed(text)
            }
        }
    }
}

/// True of the path of a file: segments of `[A-Za-z0-9._-]`. None begins with a dot: such names are the store's own.
fn is_path(path: &str) -> bool {
    path.len() <= limits::STORE_PATH && path.split('/').all(is_segment)
}

/// True of the beginning of a path.
fn is_prefix(prefix: &str) -> bool {
    let is_begun = |segment: &str| segment.is_empty() || is_segment(segment);
    match prefix.rsplit_once('/') {
        Some((folders, begun)) => is_path(folders) && is_begun(begun),
        None => prefix.len() <= limits::STORE_PATH && is_begun(prefix),
    }
}

fn is_segment(segment: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were() {
        for request in [
            StoreRequest::Create {
                path: "fib/run/epoch/0",
                bytes: b"me",
            },
            StoreRequest::Append {
                path: "fib/run/log/0-a-0/00000000",
                bytes: &[0; 1000],
            },
            StoreRequest::Read {
                path: "a",
                start: 3,
                end: 7,
            },
            StoreRequest::List {
                prefix: "fib/ru",
                after: "fib/rub",
            },
            StoreRequest::List {
                prefix: "",
                after: "",
            },
            StoreRequest::Delete { path: "a/b" },
        ] {
            let bytes = request.encode().expect("short");
            let body = &bytes[LENGTH..];
            assert_eq!(bytes[..LENGTH], (body.len() as u32).to_le_bytes());
            assert_eq!(StoreRequest::decode(body), Some(request));
            assert_eq!(StoreRequest::decode(&body[..body.len() - 1]), None);
            assert_eq!(StoreRequest::decode(&[body, b"!"].concat()), None);
        }
    }

    #[test]
    fn no_path_leads_out_of_the_store() {
        for path in [
            "", "/", "/etc", "..", "../a", "a/../b", "a//b", "a/", ".", "a b", "a\\b", "\u{e4}",
            "a\0", ".a", "a/.b",
        ] {
            let request = StoreRequest::Delete { path };
            let bytes = request.encode().expect("short");
            assert_eq!(StoreRequest::decode(&bytes[LENGTH..]), None, "{path:?}");
        }
        for prefix in ["/", "../", "a/../b", "..", "//"] {
            assert!(!is_prefix(prefix), "{prefix}");
        }
        for prefix in ["", "a", "a/", "a/b", "a/b-", "a./b..c"] {
            assert!(is_prefix(prefix), "{prefix}");
        }
    }

    #[test]
    fn a_file_that_no_server_takes_is_not_sent() {
        let bytes = vec![0; REQUEST + 1];
        let (path, bytes) = ("a", &*bytes);
        assert_eq!(StoreRequest::Create { path, bytes }.encode(), None);
    }
}
