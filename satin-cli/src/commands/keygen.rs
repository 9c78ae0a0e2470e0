use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use satin_runtime::net::Credential;

/// Write a new credential: a process that holds a copy may be a node of the pool
#[derive(clap::Args)]
#[command(after_help = "\
The file holds a private key and its certificate. A process that has the file
can make the nodes of the pool work, and can read what they compute: treat the
file like a password. It is readable for you alone, and is never overwritten.

Examples:
  satin keygen pool.pem
  scp pool.pem node1: && ssh node1 satin node --listen 0.0.0.0:7777 \\
    --credential pool.pem -- ./program 42")]
pub struct Keygen {
    /// The file to write; no file of that name may exist yet
    file: PathBuf,
}

impl Keygen {
    pub fn run(self) -> Result<ExitCode> {
        Credential::write_new(&self.file)?;
        eprintln!(
            "wrote {}; give every node of the pool a copy",
            self.file.display()
        );
        Ok(ExitCode::SUCCESS)
    }
}
