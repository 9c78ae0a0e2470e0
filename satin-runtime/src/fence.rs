//! Fences: of two runs of `main` only the latest publishes.
//!
//! A cut network or a store out of reach can make a pool run `main` twice at once, and a paused machine can go on with a `main` that
//! has been replaced. Results are right in each, but both may write the same file. A [`Fence`] is a number that the store gives to
//! each start of `main`, each time a higher one, and [`Fence::publish`] refuses what comes from an older one.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use crate::{
    job::{MainNumber, RunName},
    worker,
};

/// The longest wait for the store. Too short: a store that is slow for a moment makes a program fail at its end. Too long: people wait for a store
/// that does not answer.
const WAIT: Duration = Duration::from_secs(60);

/// The right of the latest `main` of a run to publish, from [`fence`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    run: RunName,
    number: MainNumber,
}

/// Reasons why there is no fence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoFence {
    /// The pool has no store, which is what knows the latest `main`.
    #[error(
        "a fence needs a store: start all nodes with the same SATIN_STORE, a place that all of them see"
    )]
    NoStore,
    /// This node is not the one that runs `main`, or its `main` began without the store, or the pool is over.
    #[error(
        "a fence is for `main`, on the node that runs it, once the store has been opened for it"
    )]
    NotMain,
    /// A later `main` of this run has begun.
    #[error("a later `main` of this run has begun on another node: that one publishes")]
    Later,
    /// The store failed, or did not answer for a minute.
    #[error("the store does not say which `main` is the latest: {0}")]
    Store(String),
}

/// Reasons why nothing was published. The file is what it was before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A later `main` of the same run has published there.
    #[error("{} was published by a later `main` of this run, and stays as it is", .path.display())]
    Later {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Asks the store whether the `main` that runs here is the latest of its run, and waits for the answer: if another `main` has just come over from the
/// other side of a cut, for some seconds. Call it when there is something to publish, not at the beginning: a later `main` may begin at
/// any time.
///
/// In a process that is in no pool with others there is one `main`, which always has a fence.
///
/// # Errors
/// There is no store, it does not answer, this node does not run `main`, or a later one has begun: see [`NoFence`].
pub fn fence() -> Result<Fence, NoFence> {
    let (pool, _) = worker::current_pool();
    let (to, answer) = mpsc::channel();
    match desks().get(&pool) {
        None if HAD_POOL.load(Ordering::Relaxed) => return Err(NoFence::NotMain),
        None => {
            // Another process is another run.
            return Ok(Fence {
                run: RunName(rand::random()),
                number: MainNumber { epoch: 0, main: 0 },
            });
        }
        Some(None) => return Err(NoFence::NoStore),
        Some(Some(desk)) => (desk.ask)(FenceRequest(to)),
    }
    answer.recv_timeout(WAIT).unwrap_or_else(|error| {
        Err(NoFence::Store(match error {
            RecvTimeoutError::Disconnected => "the pool has ended".into(),
            RecvTimeoutError::Timeout => "no answer came".into(),
        }))
    })
}

impl Fence {
    /// The number of the fence: each later `main` of the run has a higher one. It can be given to a database or a lock service that
    /// refuses older numbers.
    #[must_use]
    pub fn number(&self) -> u64 {
        u64::from(self.number.epoch) << 32 | u64::from(self.number.main)
    }

    /// Replaces a file, as a whole, unless a later `main` of the same run has published there. What another run published is replaced.
    ///
    /// The number of the last fence is kept beside the file, in `.NAME.fence`. The directory must be the same for all nodes that
    /// may run `main`, on a file system that has locks (NFS from version 4 on).
    ///
    /// # Errors
    /// A later `main` has published there, or a file cannot be written: see [`PublishError`].
    pub fn publish(
        &self,
        path: impl AsRef<Path>,
        bytes: impl AsRef<[u8]>,
    ) -> Result<(), PublishError> {
        let path = path.as_ref();
        let failed = |at: &Path| {
            let path = at.to_owned();
            move |error| PublishError::Io { path, error }
        };
        let Some(name) = path.file_name() else {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "that is no name of a file");
            return Err(failed(path)(error));
        };
        let beside = |end: &str| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(end);
            path.with_file_name(hidden)
        };
        let (lock_path, new) = (beside(".fence"), beside(".new"));
        let mut lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&lock_path)
            .map_err(failed(&lock_path))?;
        // Until the file is closed.
        lock.lock().map_err(failed(&lock_path))?;
        let last = read_number(&mut lock).map_err(failed(&lock_path))?;
        if last.is_some_and(|last| last.run == self.run && last.number > self.number) {
            let path = path.to_owned();
            return Err(PublishError::Later { path });
        }
        let written = write_whole(&new, bytes.as_ref());
        // The number first: if this process dies in between, an older `main` does not publish after all.
        let noted = written
            .map_err(failed(&new))
            .and_then(|()| self.write_number(&mut lock).map_err(failed(&lock_path)));
        let published = noted.and_then(|()| fs::rename(&new, path).map_err(failed(path)));
        if published.is_err() {
            let _ = fs::remove_file(&new); // the error before says what is wrong
        }
        published
    }

    fn write_number(&self, lock: &mut File) -> io::Result<()> {
        let MainNumber { epoch, main } = self.number;
        let line = format!("{} {epoch} {main}\n", self.run);
        // Over the line before, which is never away: if this fails, no older `main` takes it for nothing.
        lock.rewind()?;
        lock.write_all(line.as_bytes())?;
        lock.set_len(line.len() as u64)?;
        lock.sync_all()
    }
}

/// The fence by which the file was published last. `None` if it was not, or if what stands there is no fence.
fn read_number(lock: &mut File) -> io::Result<Option<Fence>> {
    let mut text = Vec::new();
    lock.take(256).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let mut words = text.split_whitespace();
    let mut fence = || {
        Some(Fence {
            run: words.next()?.parse().ok()?,
            number: MainNumber {
                epoch: words.next()?.parse().ok()?,
                main: words.next()?.parse().ok()?,
            },
        })
    };
    Ok(fence())
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The party of a pool that answers requests for fences: the thread of the store.
pub(crate) struct FenceDesk {
    ask: Box<dyn Fn(FenceRequest) + Send + Sync>,
}

impl FenceDesk {
    pub(crate) fn new(ask: impl Fn(FenceRequest) + Send + Sync + 'static) -> FenceDesk {
        FenceDesk { ask: Box::new(ask) }
    }
}

/// A thread waits for a fence. If the request is dropped, it waits no more.
pub(crate) struct FenceRequest(mpsc::Sender<Result<Fence, NoFence>>);

impl FenceRequest {
    pub(crate) fn answer(self, answer: Result<(RunName, MainNumber), NoFence>) {
        let answer = answer.map(|(run, number)| Fence { run, number });
        let _ = self.0.send(answer); // the thread may have been cancelled
    }
}

/// The desks of this process's pools that have a network, by the pools' numbers; `None` if a pool has no store.
static DESKS: Mutex<BTreeMap<u64, Option<FenceDesk>>> = Mutex::new(BTreeMap::new());

/// This process was, or is, in a pool: what runs beside that pool, or after it, may not be the latest.
static HAD_POOL: AtomicBool = AtomicBool::new(false);

fn desks() -> MutexGuard<'static, BTreeMap<u64, Option<FenceDesk>>> {
    DESKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a pool has a network from now on, and perhaps a store.
pub(crate) fn opens(pool: u64, desk: Option<FenceDesk>) {
    HAD_POOL.store(true, Ordering::Relaxed);
    desks().insert(pool, desk);
}

/// Notes that a pool has ended.
pub(crate) fn closes(pool: u64) {
    desks().remove(&pool);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_main(run: u64, epoch: u32, main: u32) -> Fence {
        Fence {
            run: RunName(run),
            number: MainNumber { epoch, main },
        }
    }

    #[test]
    fn an_older_main_publishes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("table.csv");
        let text = || fs::read_to_string(&path).expect("published");
        let (old, new) = (of_main(1, 0, 3), of_main(1, 1, 0));
        assert!(old.number() < new.number());
        old.publish(&path, "old").expect("nobody was before");
        old.publish(&path, "old again").expect("it is the same");
        assert_eq!(text(), "old again");
        new.publish(&path, "new").expect("it is later");
        let refused = old.publish(&path, "late");
        assert!(
            matches!(refused, Err(PublishError::Later { .. })),
            "{refused:?}"
        );
        assert_eq!(text(), "new");
        // Another run has nothing to do with that one.
        of_main(2, 0, 0)
            .publish(&path, "another")
            .expect("published");
        assert_eq!(text(), "another");
        let names = fs::read_dir(directory.path()).expect("it is there");
        assert_eq!(names.count(), 2, "the file and its fence");
    }

    #[test]
    fn what_cannot_be_written_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("table.csv");
        let fence = of_main(1, 0, 0);
        let missing = directory.path().join("nowhere/table.csv");
        assert!(matches!(
            fence.publish(missing, "x"),
            Err(PublishError::Io { .. })
        ));
        assert!(matches!(
            fence.publish("/", "x"),
            Err(PublishError::Io { .. })
        ));
        // Somebody's directory in the place of the new file.
        fence.publish(&path, "kept").expect("published");
        fs::create_dir(directory.path().join(".table.csv.new")).expect("created");
        assert!(fence.publish(&path, "x").is_err());
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "kept");
    }
}
