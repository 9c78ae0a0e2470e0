//! The store of a pool: which one, with which of its runs the pool goes on, and the credential that its files need.
//!
//! A store outlives its pools, and its files are authenticated by the credential of the pool that wrote them. So pools that
//! are to read what earlier ones wrote need the same credential: [`user_credential`] keeps one for each user.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Context, Result};
use satin_runtime::{
    codes::{self, CodedError},
    net::{Credential, storage_url, user_credential},
    stable::{
        Stable, StoreUrl,
        runs::{Resume, RunPlace},
    },
};

use crate::coded::Coded;

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
    let expected = || format!("--store {text}: expected {}", StoreUrl::EXPECTED);
    url.with_context(expected).code(codes::WRONG_VALUE)
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
/// If it is not there, or cannot be opened.
pub fn open(url: &StoreUrl, credential: &Credential) -> Result<Arc<dyn Stable>> {
    // Opening it would make it: a slip of the finger is not to leave an empty store behind.
    if let StoreUrl::File(directory) = url
        && !directory.is_dir()
    {
        let text = format!("there is no store {url}: the directory does not exist");
        return Err(CodedError::new(codes::NO_STORE, text).into());
    }
    storage_url::open(url, credential).with_context(|| format!("cannot open {url}"))
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
    Ok(match named {
        Some(file) => file,
        None => user_credential()?,
    })
}

#[cfg(test)]
mod tests {
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
}
