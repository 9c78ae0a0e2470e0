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

use super::{Stable, StableError, is_path};

/// Files that are kept open. A node appends to one or two, a server to one for each node: too few cost it an `open` with
/// each batch, too many use up the process's descriptors.
const OPEN_FILES: usize = 64;

/// Attempts to make a file in a directory that another process removes because it is empty.
const ATTEMPTS: u32 = 8;

/// A directory as a store.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    /// See [`identity`].
    identity: (u64, u64),
    /// Files that were appended to, the latest last.
    open: Mutex<Vec<(String, Arc<Mutex<FileLog>>)>>,
}

/// A file that is appended to.
#[derive(Debug)]
struct FileLog {
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
        let probed = probe(&root).and_then(|()| identity(&root));
        let identity = probed.map_err(|error| StableError::Failed {
            path: root.display().to_string(),
            error: io::Error::new(
                error.kind(),
                format!(
                    "the store cannot be written to ({error}): give it a directory that all nodes see, in which this user \
                     may make files"
                ),
            ),
        })?;
        Ok(Directory {
            root,
            identity,
            open: Mutex::default(),
        })
    }

    /// An error if the directory is not at its place any more: what is written to files that are open is found by nobody then.
    fn is_there(&self) -> io::Result<()> {
        match identity(&self.root)? == self.identity {
            true => Ok(()),
            false => Err(ErrorKind::NotFound.into()),
        }
    }

    /// The file of that path.
    fn place(&self, path: &str) -> Result<PathBuf, StableError> {
        match is_path(path) {
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
    fn log(&self, path: &str, place: &Path) -> io::Result<Arc<Mutex<FileLog>>> {
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
    fn take(&self, path: &str) -> Option<Arc<Mutex<FileLog>>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|(known, _)| known == path)?;
        Some(open.remove(at).1)
    }

    fn open_log(&self, place: &Path) -> io::Result<FileLog> {
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
        Ok(FileLog { file, length })
    }

    /// Makes the entries of a directory durable, and those of all above it if some of these are new.
    fn sync(&self, directory: &Path, made: MadeDirectories) -> io::Result<()> {
        sync_directory(directory)?;
        let above = directory.ancestors().skip(1);
        match made {
            MadeDirectories::Nothing => Ok(()),
            MadeDirectories::Directories => above
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
        let log = self.is_there().and_then(|()| self.log(path, &place));
        let log = log.map_err(|error| failed(path, error))?;
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

impl FileLog {
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

/// Makes a file in that directory and removes it again.
fn probe(directory: &Path) -> io::Result<()> {
    make_directories(directory)?;
    let probe = directory.join(temporary_name());
    let written = write_new(&probe, b"probe");
    let removed = fs::remove_file(&probe);
    written.and(removed)
}

/// Whether directories were made for a file.
#[derive(Clone, Copy)]
enum MadeDirectories {
    Nothing,
    Directories,
}

/// Makes a file, and first the directory for it if need be.
fn with_directories(
    directory: &Path,
    mut make: impl FnMut() -> io::Result<()>,
) -> io::Result<MadeDirectories> {
    let mut made = MadeDirectories::Nothing;
    for _ in 0..ATTEMPTS {
        match make() {
            Err(error) if is_missing(&error) => {
                made = MadeDirectories::Directories;
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

/// What a directory keeps when it is moved.
#[cfg(unix)]
fn identity(directory: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(directory)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Elsewhere the directory of a file that is open can neither be moved nor removed.
#[cfg(not(unix))]
fn identity(_: &Path) -> io::Result<(u64, u64)> {
    Ok((0, 0))
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

fn failed(path: &str, error: io::Error) -> StableError {
    StableError::Failed {
        path: path.into(),
        error,
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A directory that is gone after the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            let name = format!("satin-test-{:016x}", rand::random::<u64>());
            Scratch(std::env::temp_dir().join(name))
        }

        fn open(&self) -> Directory {
            Directory::open(&self.0).expect("it can be written to")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn paths(store: &Directory, prefix: &str) -> Vec<String> {
        let files = store.list(prefix).expect("it can be listed");
        files.into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn what_is_written_is_there_for_others() {
        let scratch = Scratch::new();
        let (here, there) = (scratch.open(), scratch.open());
        here.create("p/run/manifest", b"first").expect("new");
        here.append("p/run/log/a", b"one").expect("new");
        here.append("p/run/log/a", b"two").expect("open");
        assert_eq!(there.read("p/run/log/a", 0..100).expect("there"), b"onetwo");
        assert_eq!(there.read("p/run/log/a", 2..4).expect("there"), b"et");
        assert_eq!(there.read("p/run/log/a", 4..4).expect("there"), b"");
        assert_eq!(there.read("p/run/log/a", 9..u64::MAX).expect("there"), b"");
        let listed = there.list("p/run/").expect("there");
        let expected = [("p/run/log/a".to_owned(), 6), ("p/run/manifest".into(), 5)];
        assert_eq!(listed, expected);
        // A later life of the process goes on behind what is there.
        there.append("p/run/log/a", b"!").expect("open");
        assert_eq!(
            there.read("p/run/log/a", 0..100).expect("there"),
            b"onetwo!"
        );
    }

    #[test]
    fn of_many_creators_one_succeeds_and_none_sees_a_part() {
        let scratch = Scratch::new();
        scratch.open();
        let create = |number: u8| {
            let made = scratch.open().create("p/epoch/1", &[number; 5000]);
            match made {
                Ok(()) => Some(number),
                Err(StableError::Exists(path)) => {
                    assert_eq!(path, "p/epoch/1");
                    None
                }
                Err(error) => panic!("{error}"),
            }
        };
        let winners: Vec<u8> = thread::scope(|scope| {
            let creators: Vec<_> = (0..8).map(|n| scope.spawn(move || create(n))).collect();
            let winners = creators
                .into_iter()
                .map(|one| one.join().expect("no panic"));
            winners.flatten().collect()
        });
        let [winner] = winners[..] else {
            panic!("{winners:?} have created the file");
        };
        let store = scratch.open();
        let bytes = store.read("p/epoch/1", 0..10_000).expect("there");
        assert_eq!(bytes, [winner; 5000]);
        assert_eq!(
            fs::read_dir(scratch.0.join("p/epoch"))
                .expect("there")
                .count(),
            1
        );
    }

    #[test]
    fn a_prefix_need_not_end_with_a_directory_and_temporaries_are_not_listed() {
        let scratch = Scratch::new();
        let store = scratch.open();
        for path in ["p/1/a", "p/10/a", "p/2/a", "q/1"] {
            store.create(path, b"").expect("new");
        }
        fs::write(scratch.0.join("p/1/.tmp-1"), b"").expect("written");
        assert_eq!(paths(&store, "p/1"), ["p/1/a", "p/10/a"]);
        assert_eq!(paths(&store, "p/1/"), ["p/1/a"]);
        assert_eq!(paths(&store, ""), ["p/1/a", "p/10/a", "p/2/a", "q/1"]);
        assert_eq!(
            paths(&store, "z/y/").len() + paths(&store, "p/1/a/b/").len(),
            0
        );
    }

    #[test]
    fn what_is_deleted_leaves_no_empty_directory() {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.append("p/run/log/a/0", b"x").expect("new");
        store.create("p/run/manifest", b"x").expect("new");
        store.delete("p/run/log/a/0").expect("there");
        assert!(!scratch.0.join("p/run/log").exists());
        store.delete("p/run/log/a/0").expect("gone is gone");
        // The file that was open is not the one that is appended to.
        store.append("p/run/log/a/0", b"y").expect("new");
        assert_eq!(store.read("p/run/log/a/0", 0..9).expect("there"), b"y");
        for path in ["p/run/log/a/0", "p/run/manifest"] {
            store.delete(path).expect("there");
        }
        assert!(scratch.0.exists() && !scratch.0.join("p").exists());
    }

    #[test]
    fn nothing_is_appended_in_a_directory_that_is_not_at_its_place() {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.append("p/run/log/a/0", b"one").expect("new");
        let elsewhere = Scratch::new();
        fs::rename(&scratch.0, &elsewhere.0).expect("moved");
        assert!(store.append("p/run/log/a/0", b"two").is_err());
        assert!(!scratch.0.exists());
        fs::rename(&elsewhere.0, &scratch.0).expect("moved back");
        store.append("p/run/log/a/0", b"two").expect("there");
        let read = |store: &Directory| store.read("p/run/log/a/0", 0..9).expect("there");
        assert_eq!(read(&store), b"onetwo");
        // Another directory of that name is not the one that has the log.
        fs::remove_dir_all(&scratch.0).expect("there");
        scratch.open().append("p/run/log/b/0", b"x").expect("new");
        assert!(store.append("p/run/log/a/0", b"three").is_err());
        assert!(store.append("p/run/log/a/1", b"three").is_err());
        assert_eq!(paths(&store, ""), ["p/run/log/b/0"]);
    }

    #[test]
    fn files_come_while_their_directories_go() {
        let scratch = Scratch::new();
        let store = scratch.open();
        thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for turn in 0..50 {
                        let path = format!("p/d/{thread}-{turn}");
                        store.create(&path, b"x").expect("new");
                        store.delete(&path).expect("there");
                    }
                });
            }
        });
        assert_eq!(paths(&store, "").len(), 0);
    }

    #[test]
    fn missing_files_are_told_from_failures() {
        let scratch = Scratch::new();
        let store = scratch.open();
        assert!(
            matches!(store.read("p/q", 0..1), Err(StableError::Missing(path)) if path == "p/q")
        );
        store.create("p", b"").expect("new");
        assert!(matches!(
            store.read("p/q", 0..1),
            Err(StableError::Missing(_))
        ));
        assert!(matches!(
            store.create("p", b""),
            Err(StableError::Exists(_))
        ));
        assert!(matches!(
            store.append("p/q", b""),
            Err(StableError::Failed { .. })
        ));
    }

    #[test]
    fn no_path_leads_out_of_the_store() {
        let scratch = Scratch::new();
        let store = scratch.open();
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "a/",
            "a/.tmp-1",
            "a b",
            "a\\b",
            "ä",
            ".",
        ] {
            let failed =
                |done: Result<(), StableError>| matches!(done, Err(StableError::Failed { .. }));
            assert!(failed(store.create(path, b"x")), "{path}");
            assert!(failed(store.append(path, b"x")), "{path}");
            assert!(failed(store.delete(path)), "{path}");
            assert!(failed(store.read(path, 0..1).map(drop)), "{path}");
        }
        assert!(store.list("../").is_err() && store.list("/etc/").is_err());
    }

    #[test]
    fn more_files_are_appended_to_than_are_kept_open() {
        let scratch = Scratch::new();
        let store = scratch.open();
        for byte in [b"x", b"y"] {
            for file in 0..OPEN_FILES + 5 {
                store.append(&format!("f{file}"), byte).expect("open");
            }
        }
        assert_eq!(store.open.lock().expect("no panic").len(), OPEN_FILES);
        let sizes = store.list("").expect("there");
        assert!(sizes.len() == OPEN_FILES + 5 && sizes.iter().all(|(_, size)| *size == 2));
    }

    /// Appending to a file opened for reading fails, as it would on a full disk.
    #[test]
    fn an_append_that_fails_is_tried_on_a_file_opened_anew() {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.append("a", b"one").expect("new");
        let broken = FileLog {
            file: File::open(scratch.0.join("a")).expect("there"),
            length: 3,
        };
        *store.open.lock().expect("no panic") = vec![("a".into(), Arc::new(Mutex::new(broken)))];
        assert!(matches!(
            store.append("a", b"two"),
            Err(StableError::Failed { .. })
        ));
        store.append("a", b"three").expect("opened anew");
        assert_eq!(store.read("a", 0..100).expect("there"), b"onethree");
    }

    /// The device takes no byte, as a full disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_no_part_of_a_batch() {
        let full = OpenOptions::new().append(true).open("/dev/full");
        let Ok(file) = full else {
            return;
        };
        let mut log = FileLog { file, length: 0 };
        let error = log.append(b"batch").expect_err("it is full");
        assert_eq!((error.kind(), log.length), (ErrorKind::StorageFull, 0));
    }

    #[cfg(unix)]
    #[test]
    fn files_are_for_this_user_only() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new();
        let store = scratch.open();
        store.create("p/a", b"x").expect("new");
        store.append("p/b", b"x").expect("new");
        let mode = |path: &str| {
            let metadata = fs::metadata(scratch.0.join(path)).expect("there");
            metadata.permissions().mode() & 0o777
        };
        assert_eq!(
            [mode(""), mode("p"), mode("p/a"), mode("p/b")],
            [0o700, 0o700, 0o600, 0o600]
        );
    }

    #[test]
    fn a_store_that_cannot_be_written_to_says_which_and_what_to_do() {
        let scratch = Scratch::new();
        fs::write(&scratch.0, b"a file").expect("written");
        let error = Directory::open(&scratch.0)
            .expect_err("it is a file")
            .to_string();
        fs::remove_file(&scratch.0).expect("there");
        assert!(
            error.starts_with(&scratch.0.display().to_string()),
            "{error}"
        );
        assert!(
            error.contains("give it a directory that all nodes see"),
            "{error}"
        );
    }
}
