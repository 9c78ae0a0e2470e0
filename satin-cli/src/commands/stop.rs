use std::process::ExitCode;

use anyhow::Result;

use super::at::At;

/// End a running pool: `main` ends where it is, and all nodes leave
#[derive(clap::Args)]
#[command(after_help = "\
The master ends with exit code 143, the other nodes with 0. What was computed is
lost, unless the pool has a store: then the same command goes on with the run.
To let single nodes leave, and lose nothing, see `satin drain`.

Examples:
  satin stop --join 192.0.2.7:7777 --credential pool.pem
  satin stop --join file:/shared/pool --credential pool.pem --pool fib")]
pub struct Stop {
    #[command(flatten)]
    at: At,
}

impl Stop {
    pub fn run(self) -> Result<ExitCode> {
        let master = self.at.observer()?.stop()?;
        eprintln!("{} (the master) has ended the pool", master.name);
        Ok(ExitCode::SUCCESS)
    }
}
