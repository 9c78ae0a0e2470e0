//! The store of a pool: which one, with which of its runs the pool goes on, and the credential that its files need.
//!
//! A store outlives its pools, and its files are authenticated by the credential of the pool that wrote them. So pools that
//! are to read what earlier ones wrote need the same credential: [`user_credential`] keeps one for each user.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Context, Result, bail, ensure};
use satin_runtime::{
    net::Credential,
    stable::{
        Stable, StoreUrl,
        file::Directory,
        runs::{Resume, RunPlace},
    },
};

/// The use that a pool makes of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreUse {
    /// The store. A directory has an absolute path: nodes may run elsewhere.
    pub url: StoreUrl,
    /// The run with which the pool goes on; `None`: as the nodes' other settings say, by default [`Resume::Auto`].
    pub resume: Option<Resume>,
    /// True if a run is resumed in spite of what speaks against it, such as several starts in which nothing was finished.
    pub force: bool,
}

impl StoreUse {
    /// That store, with all else at its default.
    ///
    /// # Errors
    /// If the working directory is needed for an absolute path, and is gone.
    pub fn new(url: StoreUrl) -> Result<StoreUse> {
        Ok(StoreUse {
            url: absolute(url)?,
            resume: None,
            force: false,
        })
    }

    /// The variables by which nodes are told.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![(STORE, self.url.to_string())];
        let resume = self
            .resume
            .map(|resume| ("SATIN_RESUME", resume.to_string()));
        variables.extend(resume);
        if self.force {
            variables.push(("SATIN_STORE_FORCE", "1".into()));
        }
        variables
    }
}

/// The variable with the URL of the store.
pub const STORE: &str = "SATIN_STORE";

/// The store that a text means.
///
/// # Errors
/// If it is no URL of a store; the text says what is expected.
pub fn url(text: &str) -> Result<StoreUrl> {
    let url = text.parse().ok();
    url.with_context(|| format!("--store {text}: expected {}", StoreUrl::EXPECTED))
}

/// The URL with an absolute path, if it is that of a directory.
///
/// # Errors
/// If the working directory is needed, and is gone.
pub fn absolute(url: StoreUrl) -> Result<StoreUrl> {
    Ok(match url {
        StoreUrl::File(path) => {
            let absolute = std::path::absolute(&path);
            StoreUrl::File(absolute.with_context(|| format!("the store {}", path.display()))?)
        }
        url => url,
    })
}

/// A store that is there, to be looked at.
///
/// # Errors
/// If it is not there, cannot be opened, or is of a kind that this command does not open.
pub fn open(url: &StoreUrl) -> Result<Arc<dyn Stable>> {
    let StoreUrl::File(directory) = url else {
        bail!("{url}: `satin runs` opens directories only, as file:PATH");
    };
    // Opening it would make it: a slip of the finger is not to leave an empty store behind.
    ensure!(
        directory.is_dir(),
        "there is no store {url}: the directory does not exist"
    );
    let store = Directory::open(directory).with_context(|| format!("cannot open {url}"))?;
    Ok(Arc::new(store))
}

/// The time at which a file of that run was last written; `None` if the store does not tell.
#[must_use]
pub fn last_written(url: &StoreUrl, run: &RunPlace) -> Option<SystemTime> {
    match url {
        StoreUrl::File(directory) => last_written_below(&directory.join(run.prefix())),
        StoreUrl::Servers { .. } | StoreUrl::S3 { .. } => None,
    }
}

/// The time at which a file below that directory was last written.
fn last_written_below(directory: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let written = entries.filter_map(|entry| match entry.file_type().ok()?.is_dir() {
        true => last_written_below(&entry.path()),
        false => entry.metadata().ok()?.modified().ok(),
    });
    written.max()
}

/// The credential file for a store: the one that is given, else that of `SATIN_CREDENTIAL`, else the one that is kept for this
/// user.
///
/// # Errors
/// If there is none and none can be made. A file that is given is not looked at.
pub fn credential(given: Option<&Path>) -> Result<PathBuf> {
    let variable = std::env::var_os("SATIN_CREDENTIAL").filter(|value| !value.is_empty());
    let named = given.map(Path::to_owned).or(variable.map(PathBuf::from));
    named.map_or_else(user_credential, Ok)
}

/// The credential file that is kept for this user: `$XDG_STATE_HOME/satin/store.pem`, or below `~/.local/state`. It is made
/// when it is first asked for.
///
/// # Errors
/// If no home directory is known, or the file cannot be written.
pub fn user_credential() -> Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let file = user_credential_in(state, std::env::home_dir())?;
    keep_credential(&file)?;
    Ok(file)
}

/// The place of the user's credential. A path that is not absolute does not count, as the XDG base directory specification says.
fn user_credential_in(state: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf> {
    let home = home.map(|home| home.join(".local/state"));
    let state = [state, home].into_iter().flatten();
    let state = state.into_iter().find(|state| state.is_absolute());
    let state = state.context(
        "no home directory is known in which the credential of your stores could be kept; give one with `--credential FILE`, \
         as `satin keygen FILE` writes it",
    )?;
    Ok(state.join("satin/store.pem"))
}

/// Writes a credential to `file`, unless there is one. Of several that do so at once, one writes, and all find the same file,
/// never a part of it.
///
/// # Errors
/// If it cannot be written: then nothing is left behind.
pub fn keep_credential(file: &Path) -> Result<()> {
    if file.exists() {
        return Ok(());
    }
    let write = || -> io::Result<()> {
        let directory = file.parent().unwrap_or(Path::new("."));
        make_private(directory)?;
        // Readable for this user only, as all files of this kind.
        let mut new = tempfile::NamedTempFile::new_in(directory)?;
        let text = Credential::generate().map_err(io::Error::other)?;
        new.write_all(text.as_bytes())?;
        new.as_file().sync_all()?;
        match new.persist_noclobber(file) {
            // Without the directory's entry what a store holds could not be read any more.
            Ok(_) => fs::File::open(directory)?.sync_all(),
            Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(failed) => Err(failed.error),
        }
    };
    write().with_context(|| format!("cannot write the credential {}", file.display()))
}

/// Makes a directory for this user only; one that is there already stays as it is.
fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use satin_runtime::job::RunName;

    use super::*;

    fn variables(resume: Option<Resume>, force: bool) -> Vec<(&'static str, String)> {
        let url = StoreUrl::File("/scratch/s".into());
        StoreUse { url, resume, force }.variables()
    }

    #[test]
    fn nodes_are_told_by_variables() {
        let store = (STORE, "file:/scratch/s".to_owned());
        assert_eq!(variables(None, false), std::slice::from_ref(&store));
        let resume = |value: &str| ("SATIN_RESUME", value.to_owned());
        for (choice, value) in [
            (Resume::Auto, "auto"),
            (Resume::No, "no"),
            (Resume::Run(RunName(0x3f2a)), "0000000000003f2a"),
        ] {
            let told = variables(Some(choice), false);
            assert_eq!(told, [store.clone(), resume(value)]);
        }
        let forced = variables(None, true);
        assert_eq!(forced, [store, ("SATIN_STORE_FORCE", "1".into())]);
    }

    #[test]
    fn directories_have_absolute_paths() {
        let url = StoreUse::new("file:kept".parse().expect("a URL"))
            .expect("made")
            .url;
        let here = std::env::current_dir().expect("somewhere");
        assert_eq!(url, StoreUrl::File(here.join("kept")));
        let servers: StoreUrl = "satin://a:7800".parse().expect("a URL");
        assert_eq!(absolute(servers.clone()).expect("the same"), servers);
    }

    #[test]
    fn the_credential_is_kept_where_the_users_state_is() {
        let place = |state: Option<&str>, home: Option<&str>| {
            user_credential_in(state.map(PathBuf::from), home.map(PathBuf::from))
        };
        let found = |state, home| place(state, home).expect("a place").display().to_string();
        assert_eq!(
            found(Some("/state"), Some("/home/a")),
            "/state/satin/store.pem"
        );
        let default = "/home/a/.local/state/satin/store.pem";
        assert_eq!(found(None, Some("/home/a")), default);
        assert_eq!(found(Some("relative"), Some("/home/a")), default);
        let nowhere = place(Some(""), None).expect_err("no place").to_string();
        assert!(nowhere.contains("--credential FILE"), "{nowhere}");
    }

    #[test]
    fn the_credential_is_made_once_however_many_ask_for_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("deep/state/satin/store.pem");
        let begin = std::sync::Barrier::new(8);
        let seen = || {
            begin.wait();
            keep_credential(&file).expect("kept");
            Credential::load(&file).expect("a credential").fingerprint()
        };
        let seen: Vec<String> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(seen)).collect();
            let asked = asking.into_iter();
            asked
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        assert!(seen.iter().all(|print| *print == seen[0]), "{seen:?}");
        let directory = file.parent().expect("a directory");
        let left = fs::read_dir(directory).expect("readable").count();
        assert_eq!(left, 1, "no temporary file is left");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(directory)), (0o600, 0o700));
    }
}
