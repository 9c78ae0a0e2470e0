//! Command line flags for a program that parses its own.

use std::{path::PathBuf, time::Duration};

use satin_runtime::config::SettingSource;

use crate::Config;

/// Settings of Satin, to be flattened into a program's own flags. They stand above environment and `satin.toml`.
///
/// ```
/// #[derive(clap::Parser)]
/// struct Cli {
///     depth: u32,
///     #[command(flatten)]
///     satin: satin::Args,
/// }
///
/// let cli: Cli = clap::Parser::parse_from(["program", "12", "--threads", "2"]);
/// assert_eq!(satin::run(cli.satin, || satin::node().threads), 2);
/// # assert_eq!(cli.depth, 12);
/// ```
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Satin")]
pub struct Args {
    /// Worker threads [default: SATIN_THREADS, else all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Stack of each worker in MiB [default: SATIN_STACK, else 256]
    #[arg(long = "stack", value_name = "MIB")]
    pub stack: Option<usize>,
    /// Print a table of what each worker did at the end
    #[arg(long)]
    pub stats: bool,
    /// Where to find the pool: HOST:PORT[,HOST:PORT..], dns:NAME:PORT, file:PATH or slurm [default: SATIN_JOIN, else
    /// this process alone]
    #[arg(long, value_name = "WHERE")]
    pub join: Option<String>,
    /// Address to listen on; without --join this node founds the pool [default: SATIN_LISTEN, else with --join any port
    /// of the address from which this machine reaches the pool]
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<String>,
    /// The address that others are told [default: SATIN_ADVERTISE, else the one that leads to the pool]
    #[arg(long, value_name = "IP:PORT")]
    pub advertise: Option<String>,
    /// Name of the site, where links are fast [default: SATIN_SITE, else `default`]
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Credential file of the pool, as `satin keygen` writes it [default: SATIN_CREDENTIAL]
    #[arg(long, value_name = "FILE")]
    pub credential: Option<PathBuf>,
    /// Name of the pool [default: SATIN_POOL, else the program's name]
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// Start when so many nodes are in [default: SATIN_NODES, else 1]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Whom an idle node asks for work: crs, rs or mw [default: SATIN_STEAL, else crs]
    #[arg(long, value_name = "POLICY")]
    pub steal: Option<String>,
    /// Name of this node [default: SATIN_NAME, else host name and process number]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Seconds that a node which is asked to leave may take [default: SATIN_GRACE, else 20]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub grace: Option<Duration>,
    /// What is done with jobs whose origin is gone: running, finished or naive [default: SATIN_REPAIR, else running]
    #[arg(long, value_name = "MODE")]
    pub repair: Option<String>,
    /// Nodes that one job may take down before it is given up [default: SATIN_MAX_CRASHES, else 3]
    #[arg(long, value_name = "N")]
    pub max_crashes: Option<u32>,
    /// Seconds before a part of the pool without the master elects its own [default: SATIN_PARTITION_WAIT, else 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub partition_wait: Option<Duration>,
    /// Leave when this is there: file:PATH, or http://.. that answers 200 [default: SATIN_DRAIN_WHEN, else never]
    #[arg(long, value_name = "WHAT")]
    pub drain_when: Option<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::try_from_secs_f64);
    match seconds {
        Ok(Ok(seconds)) => Ok(seconds),
        _ => Err("expected a number of seconds".into()),
    }
}

impl From<Args> for Config {
    fn from(args: Args) -> Config {
        let config = Config {
            threads: args.threads,
            stack: args.stack,
            stats: args.stats.then_some(true),
            join: args.join,
            listen: args.listen,
            advertise: args.advertise,
            site: args.site,
            credential: args.credential,
            pool: args.pool,
            nodes: args.nodes,
            steal: args.steal,
            name: args.name,
            grace: args.grace,
            repair: args.repair,
            max_crashes: args.max_crashes,
            partition_wait: args.partition_wait,
            drain_when: args.drain_when,
            ..Config::default()
        };
        config.given_by(|_| SettingSource::Flag)
    }
}
