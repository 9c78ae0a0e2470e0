//! Files of figures: a bench writes its measurements there, and reads those of an earlier run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Serialize, de::DeserializeOwned};

use crate::jsonl;

/// The options that name them.
#[derive(Debug, clap::Args)]
pub struct Files {
    /// Also write the figures to this file, as JSON Lines
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    json: Option<PathBuf>,
    /// Also draw the figures to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Measure nothing: show the figures that an earlier run wrote by --json
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

impl Files {
    /// The rows that an earlier run wrote, if `--from` names its file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn earlier<T: DeserializeOwned>(&self) -> Result<Option<Vec<T>>> {
        self.from.as_deref().map(jsonl::read).transpose()
    }

    /// Writes and draws, as far as that is wanted.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write<T: Serialize>(
        &self,
        rows: &[T],
        draw: impl FnOnce(&Path, &[T]) -> Result<()>,
    ) -> Result<()> {
        if let Some(path) = &self.json {
            jsonl::write(path, rows)?;
        }
        match &self.svg {
            Some(path) => draw(path, rows),
            None => Ok(()),
        }
    }
}
