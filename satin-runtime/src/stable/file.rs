//! A store that is a directory which all nodes see: `file:PATH`.
//!
//! A new file is written under a temporary name and linked to its own one: so it is there as a whole or not at all, and
//! of several creators one succeeds, on NFS too. Names of temporaries begin with a dot; no segment of a path does.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::{Stable, StableError};

/// Files that are kept open. A node appends to one or two, a server to one for each node: too few cost it an `open` with
/// each batch, too many use up the process's descriptors.
const OPEN_FILES: usize = 64;

/// Attempts to make a file in a directory that another process removes because it is empty.
const ATTEMPTS: u32 = 8;

/// A directory as a store.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    /// Files that were appended to, the latest last.
    open: Mutex<Vec<(String, Arc<Mutex<Log>>)>>,
}

/// A file that is appended to.
#[derive(Debug)]
struct Log {
    file: File,
    /// Bytes that are durable.
    length: u64,
}

impl Directory {
    /// The store in that directory, which is made if need be. Its files are readable for this user only.
    ///
    /// # Errors
    /// The directory cannot be made, or not be written to; the error says what to do.
    pub fn open(root: impl Into<PathBuf>) -> Result<Directory, StableError> {
        let root = root.into();
        let directory = Directory {
            root,
            open: Mutex::default(),
        };
        directory.probe().map_err(|error| StableError::Failed {
            path: directory.root.display().to_string(),
            source: io::Error::new(
                error.kind(),
                format!(
                    "the store cannot be written to ({error}): give it a directory that all nodes see, in which this user \
                     may make files"
                ),
            ),
        })?;
        Ok(directory)
    }

    /// Makes a file and removes it again.
    fn probe(&self) -> io::Result<()> {
        make_directories(&self.root)?;
        let probe = self.root.join(temporary_name());
        let written = write_new(&probe, b"probe");
        let removed = fs::remove_file(&probe);
        written.and(removed)
    }

    /// The file of that path.
    fn place(&self, path: &str) -> Result<PathBuf, StableError> {
        let is_regular = |segment: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(allowed)
        };
        match path.split('/').all(is_regular) {
            true => Ok(self.root.join(path)),
            false => Err(failed(path, ErrorKind::InvalidInput.into())),
        }
    }

    fn create_at(&self, place: &Path, bytes: &[u8]) -> io::Result<()> {
        let parent = place.parent().unwrap_or(&self.root);
        let temporary = parent.join(temporary_name());
        let made = with_directories(parent, || write_new(&temporary, bytes))?;
        let linked = link(&temporary, place, bytes);
        // A temporary that stays takes some space, and is not listed.
        let _ = fs::remove_file(&temporary);
        linked?;
        self.sync(parent, made)
    }

    /// The open file of that path.
    fn log(&self, path: &str, place: &Path) -> io::Result<Arc<Mutex<Log>>> {
        let known = self.take(path);
        let log = match known {
            Some(log) => log,
            None => Arc::new(Mutex::new(self.open_log(place)?)),
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN_FILES {
            open.remove(0);
        }
        open.push((path.to_owned(), log.clone()));
        Ok(log)
    }

    /// Takes a file out of those that are open.
    fn take(&self, path: &str) -> Option<Arc<Mutex<Log>>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|(known, _)| known == path)?;
        Some(open.remove(at).1)
    }

    fn open_log(&self, place: &Path) -> io::Result<Log> {
        let parent = place.parent().unwrap_or(&self.root);
        let mut options = private();
        options.append(true).create(true);
        let mut file = None;
        let made = with_directories(parent, || {
            file = Some(options.open(place)?);
            Ok(())
        })?;
        let file = file.ok_or(ErrorKind::NotFound)?;
        let length = file.metadata()?.len();
        if length == 0 {
            self.sync(parent, made)?;
        }
        Ok(Log { file, length })
    }

    /// Makes the entries of a directory durable, and those of all above it if some of these are new.
    fn sync(&self, directory: &Path, made: Made) -> io::Result<()> {
        sync_directory(directory)?;
        let above = directory.ancestors().skip(1);
        match made {
            Made::Nothing => Ok(()),
            Made::Directories => above
                .take_while(|above| above.starts_with(&self.root))
                .try_for_each(sync_directory),
        }
    }

    /// Removes a file, and the directories that are empty then.
    fn remove(&self, place: &Path) -> io::Result<()> {
        match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let inside = |above: &&Path| *above != self.root && above.starts_with(&self.root);
        for above in place.ancestors().skip(1).take_while(inside) {
            if fs::remove_dir(above).is_err() {
                // Something is in it; or it is gone, and so is the reason to sync it.
                return allow_missing(sync_directory(above));
            }
        }
        sync_directory(&self.root)
    }

    /// Adds the files below a directory whose paths begin with `prefix`.
    fn walk(
        &self,
        directory: &str,
        prefix: &str,
        files: &mut Vec<(String, u64)>,
    ) -> io::Result<()> {
        let entries = match fs::read_dir(self.root.join(directory)) {
            // Another process has removed it meanwhile.
            Err(error) if is_missing(&error) => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            let path = format!("{directory}{name}");
            let metadata = match entry.metadata() {
                Err(error) if is_missing(&error) => continue,
                metadata => metadata?,
            };
            if metadata.is_dir() {
                let below = format!("{path}/");
                if below.starts_with(prefix) || prefix.starts_with(&below) {
                    self.walk(&below, prefix, files)?;
                }
            } else if path.starts_with(prefix) {
                files.push((path, metadata.len()));
            }
        }
        Ok(())
    }
}

impl Stable for Directory {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
        let place = self.place(path)?;
        let made = self.create_at(&place, bytes);
        made.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => StableError::Exists(path.into()),
            _ => failed(path, error),
        })
    }

    fn append(&self, path: &str, batch: &[u8]) -> Result<(), StableError> {
        let place = self.place(path)?;
        let log = self
            .log(path, &place)
            .map_err(|error| failed(path, error))?;
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.append(batch).map_err(|error| {
            // It is opened anew next time: what the descriptor can still do is not known.
            self.take(path);
            failed(path, error)
        })
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError> {
        let place = self.place(path)?;
        read_range(&place, range).map_err(|error| match is_missing(&error) {
            true => StableError::Missing(path.into()),
            false => failed(path, error),
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError> {
        let directory = prefix.rfind('/').map_or("", |end| &prefix[..=end]);
        if !directory.is_empty() {
            self.place(directory.trim_end_matches('/'))?;
        }
        let mut files = Vec::new();
        self.walk(directory, prefix, &mut files)
            .map_err(|error| failed(prefix, error))?;
        files.sort();
        Ok(files)
    }

    fn delete(&self, path: &str) -> Result<(), StableError> {
        let place = self.place(path)?;
        self.take(path);
        self.remove(&place).map_err(|error| failed(path, error))
    }
}

impl Log {
    /// Appends a batch as a whole, or nothing if that is still possible: the next one is not to stand behind a part.
    fn append(&mut self, batch: &[u8]) -> io::Result<()> {
        let appended = self
            .file
            .write_all(batch)
            .and_then(|()| self.file.sync_data());
        match appended {
            Ok(()) => self.length += batch.len() as u64,
            Err(_) => {
                let _ = self.file.set_len(self.length);
            }
        }
        appended
    }
}

/// Whether directories were made for a file.
#[derive(Clone, Copy)]
enum Made {
    Nothing,
    Directories,
}

/// Makes a file, and first the directory for it if need be.
fn with_directories(
    directory: &Path,
    mut make: impl FnMut() -> io::Result<()>,
) -> io::Result<Made> {
    let mut made = Made::Nothing;
    for _ in 0..ATTEMPTS {
        match make() {
            Err(error) if is_missing(&error) => {
                made = Made::Directories;
                allow_missing(make_directories(directory))?;
            }
            other => return other.map(|()| made),
        }
    }
    make().map(|()| made)
}

fn make_directories(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

/// How files are opened that only this user is to read.
fn private() -> OpenOptions {
    #[allow(unused_mut)]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn temporary_name() -> String {
    format!(".tmp-{:016x}", rand::random::<u64>())
}

/// Writes a file that must not exist yet, durably.
fn write_new(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private().write(true).create_new(true).open(place)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(place);
    }
    written
}

/// Gives the temporary its own name, unless that is taken.
fn link(temporary: &Path, place: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::hard_link(temporary, place) {
        // On NFS the answer to a link may be lost, and its repetition finds the name taken: by this file itself.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && has_two_names(temporary) => {
            Ok(())
        }
        // A file system without hard links. A reader may find a part of the file then, which no mac fits.
        Err(error) if has_no_links(&error) => write_new(place, bytes),
        linked => linked,
    }
}

fn has_no_links(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unsupported | ErrorKind::PermissionDenied | ErrorKind::TooManyLinks
    )
}

#[cfg(unix)]
fn has_two_names(temporary: &Path) -> bool {
    let metadata = fs::metadata(temporary);
    metadata.is_ok_and(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata) == 2)
}

#[cfg(not(unix))]
fn has_two_names(_: &Path) -> bool {
    false
}

#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Elsewhere a directory cannot be opened, and its entries are durable with the file.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

fn read_range(place: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut file = File::open(place)?;
    let end = range.end.min(file.metadata()?.len());
    let length = end.saturating_sub(range.start);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.seek(SeekFrom::Start(range.start))?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn failed(path: &str, source: io::Error) -> StableError {
    StableError::Failed {
        path: path.into(),
        source,
    }
}

/// No such file, or a file where a directory would have to be.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn allow_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
