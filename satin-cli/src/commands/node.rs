use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use satin_runtime::config::{Config, FLAGS, MARK};

/// Run a program as a node of a pool, here
#[derive(clap::Args)]
#[command(override_usage = "satin node [OPTIONS] -- PROGRAM [ARGS]...")]
#[command(after_help = "\
Each option is the variable of the environment named beside it; without it the
variable counts, then satin.toml.

The program has to begin with #[satin::main] or satin::run: it is a node of the
pool from there on. This command becomes the program, with its exit code.

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
    /// Where to find the pool: HOST:PORT[,HOST:PORT..], dns:NAME:PORT, file:PATH or slurm [SATIN_JOIN]
    #[arg(long, value_name = "WHERE")]
    join: Option<String>,
    /// Address to listen on; without --join this node founds a pool. Default with --join: any port of the address from
    /// which this machine reaches the pool [SATIN_LISTEN]
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,
    /// The address that others are told, if they cannot use the one that this node listens on. Default where it listens
    /// on all addresses, as 0.0.0.0: the one that leads to the pool, or that of the default route [SATIN_ADVERTISE]
    #[arg(long, value_name = "IP:PORT")]
    advertise: Option<String>,
    /// The site: nodes of one site have fast links between them [SATIN_SITE]
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// The pool's credential, made by `satin keygen` [SATIN_CREDENTIAL]
    #[arg(long, value_name = "FILE")]
    credential: Option<PathBuf>,
    /// The pool's name; nodes of another are refused [SATIN_POOL]
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Work begins when so many nodes are in [SATIN_NODES]
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Worker threads [SATIN_THREADS]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Whom an idle node asks for work: crs, rs or mw [SATIN_STEAL]
    #[arg(long, value_name = "POLICY", value_parser = ["crs", "rs", "mw"])]
    steal: Option<String>,
    /// What people call this node [SATIN_NAME]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Append events to this file, a JSON object per line [SATIN_EVENTS]
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Seconds that this node may take when it is asked to leave [SATIN_GRACE]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<f64>,
    /// What is done with jobs whose origin is gone [SATIN_REPAIR]
    #[arg(long, value_name = "MODE", value_parser = ["running", "finished", "naive"])]
    repair: Option<String>,
    /// Nodes that one job may take down before it is given up [SATIN_MAX_CRASHES]
    #[arg(long, value_name = "N")]
    max_crashes: Option<u32>,
    /// Seconds before a part of the pool without the master elects its own [SATIN_PARTITION_WAIT]
    #[arg(long, value_name = "SECONDS")]
    partition_wait: Option<f64>,
    /// Leave when this is there: file:PATH, or http://.. that answers 200 [SATIN_DRAIN_WHEN]
    #[arg(long, value_name = "WHAT")]
    drain_when: Option<String>,
    /// Stack of each worker in MiB [SATIN_STACK]
    #[arg(long, value_name = "MIB")]
    stack: Option<u32>,
    /// Filter of the log on stderr, such as info or satin_runtime=debug [SATIN_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Print the table of figures at the end [SATIN_STATS]
    #[arg(long)]
    stats: bool,
    /// The program and its arguments: the same on all nodes
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl NodeCommand {
    /// Becomes the program.
    pub fn run(self) -> Result<ExitCode> {
        let number = |number: Option<u32>| number.map(|number| number.to_string().into());
        let seconds = |number: Option<f64>| number.map(|number| number.to_string().into());
        let path = |path: Option<PathBuf>| path.map(PathBuf::into_os_string);
        let variables: [(&'static str, Option<OsString>); 19] = [
            ("SATIN_JOIN", self.join.map(Into::into)),
            ("SATIN_LISTEN", self.listen.map(Into::into)),
            ("SATIN_ADVERTISE", self.advertise.map(Into::into)),
            ("SATIN_SITE", self.site.map(Into::into)),
            ("SATIN_CREDENTIAL", path(self.credential)),
            ("SATIN_POOL", self.pool.map(Into::into)),
            ("SATIN_NODES", number(self.nodes)),
            ("SATIN_THREADS", number(self.threads)),
            ("SATIN_STEAL", self.steal.map(Into::into)),
            ("SATIN_NAME", self.name.map(Into::into)),
            ("SATIN_EVENTS", path(self.events)),
            ("SATIN_GRACE", seconds(self.grace)),
            ("SATIN_REPAIR", self.repair.map(Into::into)),
            ("SATIN_MAX_CRASHES", number(self.max_crashes)),
            ("SATIN_PARTITION_WAIT", seconds(self.partition_wait)),
            ("SATIN_DRAIN_WHEN", self.drain_when.map(Into::into)),
            ("SATIN_STACK", number(self.stack)),
            ("SATIN_LOG", self.log.map(Into::into)),
            ("SATIN_STATS", self.stats.then(|| "1".into())),
        ];
        let set = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let set: Vec<(&str, OsString)> = set.collect();
        ensure_pool(&set)?;
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
        Err(error).with_context(|| format!("cannot start {}", program.to_string_lossy()))
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
        "a node of which pool? `--listen IP:PORT` founds one, `--join WHERE` joins one; see `satin node --help`"
    );
    Ok(())
}

/// Says so if the program is an executable without Satin in it. It may be a script's interpreter, or start another program
/// that has: so it is started all the same.
fn warn_of_strangers(program: &OsStr) {
    let path = Path::new(program);
    let found = match path.components().count() {
        1 => std::env::var_os("PATH").and_then(|all| {
            let files = std::env::split_paths(&all).map(|dir| dir.join(path));
            files.into_iter().find(|file| file.is_file())
        }),
        _ => Some(path.into()),
    };
    // Who cannot be read may be a program all the same; and a script is none.
    let Some(Ok(bytes)) = found.map(std::fs::read) else {
        return;
    };
    let is_script = bytes.starts_with(b"#!");
    if !is_script && memchr::memmem::find(&bytes, MARK.as_bytes()).is_none() {
        eprintln!(
            "satin: {} does not use Satin: unless it starts a program that does, no node comes of it",
            path.display()
        );
    }
}
