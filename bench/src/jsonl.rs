//! JSON Lines files: one object per row, for plots and for comparing runs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde::{Serialize, de::DeserializeOwned};

/// Writes `rows` to `path`, one JSON object per line; an older file is replaced.
pub fn write<T: Serialize>(path: &Path, rows: &[T]) -> anyhow::Result<()> {
    let write_all = || -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for row in rows {
            serde_json::to_writer(&mut file, row)?;
            file.write_all(b"\n")?;
        }
        Ok(file.flush()?)
    };
    write_all().with_context(|| format!("cannot write the results to {}", path.display()))
}

/// Reads rows that [`write()`] wrote.
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows: Result<Vec<T>, _> = text.lines().map(serde_json::from_str).collect();
    rows.with_context(|| format!("{}: not what --json of this bench writes", path.display()))
}
