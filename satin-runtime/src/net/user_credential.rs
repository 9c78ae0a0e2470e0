//! The credential that is kept for a user. What stands in a store is authenticated by the credential of the pool that wrote it,
//! so pools that are to go on with what earlier ones wrote need the same one.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::credential::{Credential, CredentialError};
use crate::stable::{Stable, StableError, file::Directory};

/// The name of the file.
const FILE: &str = "store.pem";

/// The credential file that is kept for this user: `$XDG_STATE_HOME/satin/store.pem`, or below `~/.local/state`. It is made
/// when it is first asked for.
///
/// # Errors
/// If no home directory is known, or the file cannot be written.
pub fn user_credential() -> Result<PathBuf, CredentialError> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let directory = directory(state, std::env::home_dir())?;
    keep_credential(&directory)
}

/// The directory of the user's credential. A path that is not absolute does not count, as the XDG base directory specification
/// says.
fn directory(state: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf, CredentialError> {
    let home = home.map(|home| home.join(".local/state"));
    let mut places = state.into_iter().chain(home);
    let state = places.find(|state| state.is_absolute());
    Ok(state.ok_or(CredentialError::NoHome)?.join("satin"))
}

/// Writes a credential to that directory, unless there is one. Of several that do so at once, one writes, and all find the same
/// file, never a part of it.
fn keep_credential(directory: &Path) -> Result<PathBuf, CredentialError> {
    let file = directory.join(FILE);
    if file.exists() {
        return Ok(file);
    }
    let text = Credential::generate()?;
    let kept = Directory::open(directory).and_then(|kept| kept.create(FILE, text.as_bytes()));
    match kept {
        Ok(()) | Err(StableError::Exists(_)) => Ok(file),
        Err(error) => Err(CredentialError::Unwritable {
            path: file,
            source: io::Error::other(error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn the_credential_is_kept_where_the_users_state_is() {
        let place = |state: Option<&str>, home: Option<&str>| {
            directory(state.map(PathBuf::from), home.map(PathBuf::from))
        };
        let found = |state, home| place(state, home).expect("a place").display().to_string();
        assert_eq!(found(Some("/state"), Some("/home/a")), "/state/satin");
        let default = "/home/a/.local/state/satin";
        assert_eq!(found(None, Some("/home/a")), default);
        assert_eq!(found(Some("relative"), Some("/home/a")), default);
        let nowhere = place(Some(""), None).expect_err("no place").to_string();
        assert!(nowhere.contains("--credential FILE"), "{nowhere}");
    }

    #[test]
    fn the_credential_is_made_once_however_many_ask_for_it() {
        let name = format!("satin-user-{:016x}", rand::random::<u64>());
        let scratch = std::env::temp_dir().join(name);
        let directory = scratch.join("state/satin");
        let begin = std::sync::Barrier::new(8);
        let seen = || {
            begin.wait();
            let file = keep_credential(&directory).expect("kept");
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
        let left = fs::read_dir(&directory).expect("readable").count();
        assert_eq!(left, 1, "no temporary file is left");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(
            (mode(&directory.join(FILE)), mode(&directory)),
            (0o600, 0o700)
        );
        fs::remove_dir_all(&scratch).expect("removed");
    }
}
