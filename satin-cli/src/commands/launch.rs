use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use anyhow::Result;
use satin_cli::launch::{
    Launch, LaunchPlan, hosts,
    pool::{LaunchControl, LaunchedPool},
};

/// Run a program on machines that ssh reaches
#[derive(clap::Args)]
#[command(override_usage = "satin launch --hosts FILE [OPTIONS] -- PROGRAM [ARGS]...")]
#[command(after_help = "\
FILE lists the machines, for example:

  [defaults]
  user = \"me\"

  [[host]]
  host = \"n1.delft.example\"    # its node founds the pool, on UDP port 7777
  site = \"delft\"

  [[host]]
  host = \"n2.leiden.example\"
  site = \"leiden\"
  threads = 8

Other keys: name, address and listen_port (what the other nodes dial), ssh_port,
ssh_options, dir (where the program is kept), workdir, program (an executable
for this machine), env. `ssh HOST true` must work without a question.

The program is copied to machines that do not have it, and the credential to
each node for as long as it runs. The first node runs `main`: its output and
exit code are those of this command, also when another node goes on with `main`.
The output of the others goes to stderr, with their names. Ctrl-C asks all nodes
to leave, a second one ends them at once. Settings in SATIN_* variables go along
to all nodes.

Examples:
  satin launch --hosts hosts.toml -- ./program 42
  satin launch --hosts hosts.toml --stats --credential pool.pem \\
    -- ./program 42
  satin launch --hosts hosts.toml --dry-run -- ./program 42
  satin launch --hosts hosts.toml --clean -- ./program 42")]
pub struct LaunchCommand {
    /// The file that lists the machines
    #[arg(long, value_name = "FILE")]
    hosts: PathBuf,
    /// Credential file of the pool [default: with a store the user's own; else a new one, which goes with the pool]
    #[arg(
        long,
        value_name = "FILE",
        env = "SATIN_CREDENTIAL",
        hide_env_values = true
    )]
    credential: Option<PathBuf>,
    /// Write the events of the run to this file, a JSON object per line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Print the figures of each node and site at the end, on stderr
    #[arg(long)]
    stats: bool,
    /// Remove the program from the machines at the end
    #[arg(long)]
    clean: bool,
    /// Print the commands that would run, and what they would send, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// The program and its arguments: the same on all machines
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl LaunchCommand {
    pub fn run(self) -> Result<ExitCode> {
        let launch = Launch::new(LaunchPlan {
            hosts: hosts::read(&self.hosts)?,
            program: self.program,
            credential: self.credential.filter(|file| !file.as_os_str().is_empty()),
            events: self.events,
            clean: self.clean,
        })?;
        if self.dry_run {
            print!("{}", launch.shown());
            return Ok(ExitCode::SUCCESS);
        }
        launch.prepare(|words| eprintln!("satin: {words}"))?;
        let control = LaunchControl::new();
        let stopper = control.stopper();
        super::stop_at_signals(move |signal| stopper.stop(signal))?;
        let outcome = LaunchedPool::start(launch, control)?.wait()?;
        if self.stats {
            super::print_figures(&outcome.records);
        }
        // A code that does not fit into a byte is not a success.
        Ok(ExitCode::from(u8::try_from(outcome.code).unwrap_or(1)))
    }
}
