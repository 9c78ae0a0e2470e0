use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use satin_cli::{coded::Coded, pool::cannot_start};
use satin_runtime::{
    codes,
    config::{Args, Config, FLAGS, MARK},
    net::{Settings, settings::SettingsError},
};

/// Run a program as a node of a pool, here
#[derive(clap::Args)]
#[command(override_usage = "satin node [OPTIONS] -- PROGRAM [ARGS]...")]
#[command(after_help = "\
Each option of Satin sets the environment variable that is named beside it.
Without the option the variable counts, then satin.toml.

The program has to begin with #[satin::main] or satin::run: from there on it is
a node of the pool. This command becomes the program, with its exit code.

Examples:
  found a pool of four nodes, and start working when they all are there:
    satin node --listen 0.0.0.0:7777 --nodes 4 --credential pool.pem \\
      -- ./program 42
  join it from another machine:
    satin node --join 192.0.2.7:7777 --site delft --credential pool.pem \\
      -- ./program 42
  one command for all machines of a cluster; the first on the list that lives
  founds the pool:
    satin node --join n1:7777,n2:7777 --listen 0.0.0.0:7777 \\
      --credential pool.pem -- ./program 42
  in a Slurm job:
    srun --ntasks-per-node 1 satin node --join slurm --listen 0.0.0.0:7777 \\
      --credential pool.pem -- ./program 42")]
pub struct NodeCommand {
    /// The program and its arguments: the same on all nodes
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
    #[command(flatten)]
    settings: Args,
}

impl NodeCommand {
    /// Becomes the program: returns only if that fails.
    pub fn run(self) -> Result<ExitCode> {
        let config = Config::from(self.settings);
        let set = config.variables();
        ensure_pool(&set).code(codes::NO_POOL)?;
        ensure_sense(config)?;
        let (program, arguments) = self.program.split_first().context("no program")?;
        warn_of_strangers(program);
        let mut command = Command::new(program);
        let flags: Vec<String> = (set.iter())
            .filter_map(|(name, _)| Some(name.strip_prefix("SATIN_")?.to_lowercase()))
            .collect();
        command
            .args(arguments)
            .envs(set)
            .env(FLAGS, flags.join(","));
        let error = command.exec();
        Err(cannot_start(program, &error))
    }
}

/// A value that makes no sense is told before the program starts, which need not be one of Satin's.
fn ensure_sense(flags: Config) -> Result<()> {
    match Settings::new(flags, 1) {
        Err(error @ SettingsError::Value { .. }) => Err(error.into()),
        // The rest may come from other sources: the environment, the file, the program.
        _ => Ok(()),
    }
}

/// A node without a pool to found or to join would run the program alone.
fn ensure_pool(flags: &[(&str, OsString)]) -> Result<()> {
    let config = Config::load()?;
    let is_set = |name: &str, lower: &Option<String>| {
        let flag = flags.iter().find(|(flag, _)| *flag == name);
        let lower = lower.as_deref().map(OsStr::new);
        let value = flag.map(|(_, value)| value.as_os_str()).or(lower);
        value.is_some_and(|value| !value.is_empty())
    };
    ensure!(
        is_set("SATIN_JOIN", &config.join) || is_set("SATIN_LISTEN", &config.listen),
        "no pool is given: `--listen IP:PORT` founds one, `--join WHERE` joins one; see `satin node --help`"
    );
    Ok(())
}

/// Warns if the program is an executable without Satin in it. The executable may be a script's interpreter, or start
/// another program that has Satin: so it is started all the same.
fn warn_of_strangers(program: &OsStr) {
    let path = Path::new(program);
    let found = match path.components().count() {
        1 => std::env::var_os("PATH").and_then(|all| {
            let files = std::env::split_paths(&all).map(|dir| dir.join(path));
            files.into_iter().find(|file| file.is_file())
        }),
        _ => Some(path.into()),
    };
    // A file that cannot be read may be a program all the same; and a script contains no mark.
    let Some(Ok(bytes)) = found.map(std::fs::read) else {
        return;
    };
    let is_script = bytes.starts_with(b"#!");
    if !is_script && memchr::memmem::find(&bytes, MARK.as_bytes()).is_none() {
        eprintln!(
            "satin: {} does not use Satin: it is no node of the pool unless it starts a program that uses Satin",
            path.display()
        );
    }
}
