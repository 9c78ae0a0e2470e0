//! A store in a bucket of S3, or of another server that speaks its protocol: `s3://BUCKET[/PREFIX]`.
//!
//! Nothing can be appended to an object. So a file is made of one or more objects, its *pieces*:
//!
//! ```text
//! PREFIX/PATH              what `create` wrote
//! PREFIX/PATH@OFFSET       what one `append` wrote: OFFSET is its first byte in the file, in 16 hexadecimal digits
//! ```
//!
//! The file is what the pieces hold from its first byte to the first gap. An object is written as a whole or not at all, so
//! an append that fails leaves all of its batch or nothing. No path has an `@`.
//!
//! `connect` has the settings and TLS, `failure` the texts for people. Calls run on a [`StoreThread`]. The tests are in the crate
//! `s3-tests`, as the server that they need is large.

mod connect;
mod failure;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    io,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions,
    aws::AmazonS3,
    list::{PaginatedListOptions, PaginatedListStore},
    path::Path,
};
use tokio::time::timeout;

use self::failure::{Failure, Reach};
use super::{store_client::StoreThread, store_server::time_for};
use crate::stable::{Stable, StableError, is_path};

/// Pieces of a file that are read at once. Too few: a long log takes a round trip for each; too many: a small server
/// refuses some of them.
const READ_AT_ONCE: usize = 16;

/// Attempts to create a file while the server says that another attempt is under way, or does not answer. Too few: a start
/// fails for nothing; too many: it is known late that the server is gone.
const ATTEMPTS: u32 = 4;

/// Time between the first two attempts; it doubles.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The metadata of an object that names the call of `create` which made it: 32 hexadecimal digits.
const CREATOR: Attribute = Attribute::Metadata(Cow::Borrowed("satin-creator"));

/// The separator of a piece's path and its offset.
const AT: char = '@';

/// A bucket as a store. All calls block, and must not be made on a thread of an asynchronous runtime.
pub struct S3Store {
    objects: Arc<AmazonS3>,
    /// What all keys begin with: nothing, or a text that ends with `/`.
    prefix: String,
    reach: Reach,
    thread: Arc<StoreThread>,
    /// The length of each file that is appended to, in bytes. A file has one writer, so nobody else changes it.
    lengths: Mutex<HashMap<String, u64>>,
    /// The server has refused to create what is there already: so it knows conditional writes.
    is_exclusive: AtomicBool,
}

impl S3Store {
    /// The store in that bucket. `variables` are those of the environment: the ones that begin with `AWS_` say where the
    /// server is and which key it is asked with. The server is asked once for a list, so that a wrong setting is found out
    /// at once.
    ///
    /// # Errors
    /// A setting is wrong or missing, or the server does not answer or refuses; the error says what to do.
    pub fn open(
        bucket: &str,
        prefix: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<S3Store, StableError> {
        let (objects, reach) = connect::connect(bucket, prefix, variables)?;
        let thread = StoreThread::start().map_err(|error| reach.io_error("", error))?;
        let store = S3Store {
            objects: Arc::new(objects),
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            reach,
            thread,
            lengths: Mutex::default(),
            is_exclusive: AtomicBool::new(false),
        };
        let first = PaginatedListOptions {
            max_keys: Some(1),
            ..PaginatedListOptions::default()
        };
        let listed = store.page("", first);
        listed.map_err(|failure| store.reach.explain("", failure))?;
        Ok(store)
    }

    /// Waits for a call that sends or fetches so many bytes.
    fn wait_for<T: Send + 'static>(
        &self,
        bytes: usize,
        call: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, Failure> {
        let call = within(bytes, call);
        let answer = self.thread.wait_for(call);
        answer.unwrap_or(Err(Failure::ThreadDied))
    }

    fn key(&self, file: &str) -> Result<Path, Failure> {
        let key = Path::parse(format!("{}{file}", self.prefix));
        key.map_err(|error| Failure::Object(error.into()))
    }

    /// Refuses what is no path: its file could not be told from others.
    fn check(&self, path: &str) -> Result<(), StableError> {
        match is_path(path) {
            true => Ok(()),
            false => Err(self
                .reach
                .io_error(path, io::ErrorKind::InvalidInput.into())),
        }
    }

    fn known_lengths(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ----------------------------------------------------------------------------------------------------------- pieces

    /// A part of the list of objects whose keys begin with that, after the store's own prefix.
    fn page(
        &self,
        prefix: &str,
        options: PaginatedListOptions,
    ) -> Result<(Vec<ObjectMeta>, Option<String>), Failure> {
        let (objects, prefix) = (self.objects.clone(), format!("{}{prefix}", self.prefix));
        self.wait_for(0, async move {
            let prefix = Some(&*prefix).filter(|prefix| !prefix.is_empty());
            let page = objects.list_paginated(prefix, options).await?;
            Ok((page.result.objects, page.page_token))
        })
    }

    /// The pieces of all files whose paths begin with that, by path.
    fn files(&self, prefix: &str) -> Result<BTreeMap<String, Pieces>, Failure> {
        let mut files: BTreeMap<String, Pieces> = BTreeMap::new();
        let mut options = PaginatedListOptions::default();
        loop {
            let (objects, next) = self.page(prefix, options)?;
            for object in objects {
                let key = object.location.as_ref().strip_prefix(&self.prefix);
                // An object of somebody else's has the file of no path.
                if let Some((path, offset)) = key.and_then(parse) {
                    let pieces = files.entry(path.to_owned()).or_default();
                    pieces.0.push((offset, object));
                }
            }
            if next.is_none() {
                let in_order = |(path, pieces): (String, Pieces)| (path, pieces.in_order());
                return Ok(files.into_iter().map(in_order).collect());
            }
            options = PaginatedListOptions {
                page_token: next,
                ..PaginatedListOptions::default()
            };
        }
    }

    fn pieces(&self, path: &str) -> Result<Pieces, Failure> {
        let mut files = self.files(path)?;
        Ok(files.remove(path).unwrap_or_default())
    }

    /// Reads parts of objects.
    fn fetch(&self, parts: Vec<(Path, Range<u64>)>) -> Result<Vec<Bytes>, Failure> {
        let objects = self.objects.clone();
        let fetch = move |(key, range): (Path, Range<u64>)| {
            let (objects, length) = (objects.clone(), range.end - range.start);
            let call = async move { objects.get_range(&key, range).await };
            within(length as usize, call)
        };
        let all = stream::iter(parts).map(fetch).buffered(READ_AT_ONCE);
        let fetched = self.thread.wait_for(all.try_collect());
        fetched.unwrap_or(Err(Failure::ThreadDied))
    }

    // --------------------------------------------------------------------------------------------------------- creation

    /// Writes an object unless there is one of that key. `creator` names the call that does so.
    fn put_new(&self, key: &Path, bytes: &Bytes, creator: &str) -> Result<(), Failure> {
        let (objects, key, bytes) = (self.objects.clone(), key.clone(), bytes.clone());
        let options = PutOptions {
            mode: PutMode::Create,
            attributes: Attributes::from_iter([(CREATOR, creator.to_owned())]),
            ..PutOptions::default()
        };
        self.wait_for(bytes.len(), async move {
            objects.put_opts(&key, bytes.into(), options).await?;
            Ok(())
        })
    }

    /// The call that created the object; `None` if there is no object.
    fn creator(&self, key: &Path) -> Result<Option<String>, Failure> {
        let (objects, key) = (self.objects.clone(), key.clone());
        let found = self.wait_for(0, async move {
            let found = objects.get_opts(&key, GetOptions::new().with_head(true));
            let attributes = found.await?.attributes;
            let creator = attributes.get(&CREATOR);
            Ok(creator.map_or(String::new(), |creator| creator.to_string()))
        });
        match found {
            Ok(creator) => Ok(Some(creator)),
            Err(Failure::Object(Error::NotFound { .. })) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Writes an object unless there is one of that key. The server's answer does not decide: it may have been lost, and an
    /// attempt of our own be what is found there; or the server refuses because a competitor is at it, who then fails. What
    /// decides is who made the object that is there.
    fn create_object(&self, key: &Path, bytes: &Bytes) -> Result<ObjectCreation, Failure> {
        let creator = format!("{:032x}", rand::random::<u128>());
        let mut pause = BACK_OFF;
        let mut attempt = 1;
        loop {
            let failure = match self.put_new(key, bytes, &creator) {
                Ok(()) => return Ok(ObjectCreation::Done),
                Err(failure) if failure.is_refusal() => return Err(failure),
                Err(failure) => failure,
            };
            match self.creator(key)? {
                Some(found) if found == creator => return Ok(ObjectCreation::Done),
                Some(_) => return Ok(ObjectCreation::Exists),
                None if attempt == ATTEMPTS => return Err(failure),
                None => {}
            }
            attempt += 1;
            thread::sleep(pause);
            pause *= 2;
        }
    }

    /// Tries to create, once in a process, what has just been created: a server that does not know conditional writes lets
    /// everybody have the same epoch.
    fn check_exclusion(&self, key: &Path, bytes: &Bytes) -> Result<(), Failure> {
        if self.is_exclusive.load(Relaxed) {
            return Ok(());
        }
        match self.put_new(key, bytes, "a check") {
            Ok(()) => return Err(Failure::NotExclusive),
            Err(Failure::Object(Error::AlreadyExists { .. })) => {
                self.is_exclusive.store(true, Relaxed);
            }
            // What was to be created is there all the same; the next creation checks again.
            Err(failure) => tracing::debug!("it is not known whether S3 excludes: {failure}"),
        }
        Ok(())
    }
}

/// The outcome of an attempt to create a file.
#[derive(Clone, Copy)]
enum ObjectCreation {
    Done,
    Exists,
}

/// The pieces of a file, in the order of their offsets.
#[derive(Default)]
struct Pieces(Vec<(u64, ObjectMeta)>);

impl Pieces {
    fn in_order(mut self) -> Pieces {
        self.0
            .sort_by_key(|(offset, object)| (*offset, object.size));
        self
    }

    /// The pieces before the first gap, with their places in the file.
    fn contiguous(&self) -> impl Iterator<Item = (Range<u64>, &ObjectMeta)> {
        let mut end = 0;
        self.0.iter().map_while(move |(offset, object)| {
            let is_next = *offset == end;
            end = offset.saturating_add(object.size);
            is_next.then_some((*offset..end, object))
        })
    }

    fn length(&self) -> u64 {
        self.contiguous().last().map_or(0, |(place, _)| place.end)
    }
}

/// The path and the offset of the piece with that key, after the store's prefix. `None` for other objects.
fn parse(key: &str) -> Option<(&str, u64)> {
    let (path, offset) = match key.split_once(AT) {
        None => (key, 0),
        Some((path, digits)) => {
            let offset = u64::from_str_radix(digits, 16).ok()?;
            // A piece has one name: otherwise a copy of it under another could be read too.
            (format!("{offset:016x}") == digits).then_some((path, offset))?
        }
    };
    is_path(path).then_some((path, offset))
}

/// A call that fails when it takes too long for so many bytes.
async fn within<T>(
    bytes: usize,
    call: impl Future<Output = object_store::Result<T>>,
) -> Result<T, Failure> {
    let time = time_for(bytes);
    match timeout(time, call).await {
        Ok(answer) => answer.map_err(Failure::Object),
        Err(_) => Err(Failure::Silent(time)),
    }
}

impl Stable for S3Store {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
        self.check(path)?;
        let bytes = Bytes::copy_from_slice(bytes);
        let created = self.key(path).and_then(|key| {
            let creation = self.create_object(&key, &bytes)?;
            if let ObjectCreation::Done = creation {
                self.check_exclusion(&key, &bytes)?;
            }
            Ok(creation)
        });
        match created {
            Ok(ObjectCreation::Done) => Ok(()),
            Ok(ObjectCreation::Exists) => Err(StableError::Exists(path.into())),
            Err(failure) => Err(self.reach.explain(path, failure)),
        }
    }

    fn append(&self, path: &str, batch: &[u8]) -> Result<(), StableError> {
        self.check(path)?;
        let explain = |failure| self.reach.explain(path, failure);
        // Taken out: if this append fails, the length is not known any more.
        let known = self.known_lengths().remove(path);
        let offset = match known {
            Some(length) => length,
            None => self.pieces(path).map_err(explain)?.length(),
        };
        let key = self
            .key(&format!("{path}{AT}{offset:016x}"))
            .map_err(explain)?;
        let (objects, bytes) = (self.objects.clone(), Bytes::copy_from_slice(batch));
        // It may overwrite: only another attempt of the same writer can be there.
        let written = self.wait_for(
            batch.len(),
            async move { objects.put(&key, bytes.into()).await },
        );
        written.map_err(explain)?;
        let length = offset + batch.len() as u64;
        self.known_lengths().insert(path.into(), length);
        Ok(())
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError> {
        self.check(path)?;
        let explain = |failure| self.reach.explain(path, failure);
        let pieces = self.pieces(path).map_err(explain)?;
        if pieces.0.is_empty() {
            return Err(StableError::Missing(path.into()));
        }
        let parts = pieces.contiguous().filter_map(|(place, object)| {
            let part = range.start.max(place.start)..range.end.min(place.end);
            (!part.is_empty()).then(|| {
                let part = part.start - place.start..part.end - place.start;
                (object.location.clone(), part)
            })
        });
        match self.fetch(parts.collect()) {
            Ok(parts) => Ok(parts.concat()),
            // Somebody has removed the file meanwhile.
            Err(Failure::Object(Error::NotFound { .. })) => Err(StableError::Missing(path.into())),
            Err(failure) => Err(explain(failure)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError> {
        let files = self.files(prefix);
        let files = files.map_err(|failure| self.reach.explain(prefix, failure))?;
        let sizes = files
            .into_iter()
            .map(|(path, pieces)| (path, pieces.length()));
        Ok(sizes.collect())
    }

    fn delete(&self, path: &str) -> Result<(), StableError> {
        self.check(path)?;
        let explain = |failure| self.reach.explain(path, failure);
        self.known_lengths().remove(path);
        let pieces = self.pieces(path).map_err(explain)?;
        let keys: Vec<_> = (pieces.0.into_iter())
            .map(|(_, piece)| Ok(piece.location))
            .collect();
        let objects = self.objects.clone();
        let deleted = self.wait_for(0, async move {
            let deleted = objects.delete_stream(stream::iter(keys).boxed());
            deleted.try_for_each(|_| async { Ok(()) }).await
        });
        deleted.map_err(explain)
    }
}
