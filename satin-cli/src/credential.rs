//! Credentials.

use std::path::Path;

use anyhow::Result;

/// Writes a new credential to `path`, readable for this user only.
///
/// # Errors
/// If there is something at `path`, or it cannot be written.
pub fn write_new(path: &Path) -> Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(b"no network yet\n")?;
    Ok(())
}
