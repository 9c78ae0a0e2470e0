use std::{ffi::OsString, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;
use satin_cli::{
    build::{self, BuildTarget},
    coded::Coded,
    faults::{self, Fault},
    pool::{Control, LocalPool, Output, Plan},
    sites::Sites,
    store::{self, STORE, StoreUse},
    units,
    wan::WanLink,
};
use satin_runtime::{
    codes::{self, CodedError},
    config::{Form, TIME},
    node::Policy,
    stable::runs::Resume,
    window::Views,
};
use strum::VariantNames;

/// Run a program on a pool of processes on this machine, to try it out
#[derive(clap::Args)]
#[command(override_usage = "satin run [OPTIONS] --example NAME [-- ARGS...]
       satin run [OPTIONS] --bin NAME [-- ARGS...]
       satin run [OPTIONS] -- PROGRAM [ARGS...]")]
#[command(after_help = "\
The first node of the first site is the master: it runs `main`, and its output
and exit code are those of this command. The output of the other nodes goes to
stderr, with their names. When the master is gone, another node runs `main` from
the start: its output and exit code are those of this command from then on.
Ctrl-C ends all nodes; nothing is left behind.

The program has to begin with #[satin::main] or satin::run. A warning tells when
a program ends well without ever having been a node of the pool; its exit code
is that of this command.

Examples:
  satin run --nodes 4 --example fib -- 42
  satin run --sites 2x2 --wan-rtt 30ms --example raytracer
  satin run --sites amsterdam:2,delft:3 --wan-rtt 5ms --wan-rate 100mbit \\
    --stats -- ./program --its-own-flag
  satin run --sites 4x4 --threads 1 --wan-rtt 100ms --steal rs \\
    --events events.jsonl --bin myprogram

Look at the pool in a browser, and keep what was seen:
  satin run --nodes 4 --dashboard=127.0.0.1:0 --example fib -- 45
  satin run --nodes 4 --report run.html --trace run.json --example fib -- 45

Faults, at the same moments in each run:
  satin run --sites 2x2 --kill s0-1@1s --example raytracer
  satin run --nodes 4 --kill master@1s --stats \\
    --example knary -- 6 5 10000 --sleep
  satin run --sites amsterdam:2,delft:2 --join leiden@1s --drain amsterdam@2s \\
    --example raytracer
  satin run --sites a:2,b:2 --partition 'a|b@1s..3s' --stop b-1@4s..5s \\
    --example fib -- 45
  satin run --sites a:2,b:2 --partition 'a|b@1s..3s reject' --example raytracer

All nodes may be lost, if there is a store: the same command on any other nodes
goes on where the run was. When `--kill all@TIME` has happened, the exit code is
137.
  satin run --store file:/shared/store --sites 2x2 --kill all@3s -- ./program 42
  satin run --store file:/shared/store --nodes 2 -- ./program 42
  satin run --store file:/shared/store --fresh --nodes 2 -- ./program 42")]
pub struct Run {
    /// Number of nodes at a single site [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "sites", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Sites and their nodes: 2x4 (sites s0 and s1 of 4 nodes each) or amsterdam:2,delft:3
    #[arg(long, value_name = "SITES")]
    sites: Option<Sites>,
    /// Worker threads of each node [default: the cores divided by the nodes, at least 1]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// The policy by which an idle node chooses whom to ask for work: its own site first and others beside it (crs), any
    /// node (rs), the master (mw) [default: crs]
    #[arg(long, value_name = "POLICY", value_parser = PossibleValuesParser::new(Policy::VARIANTS), hide_possible_values = true)]
    steal: Option<String>,
    /// Write the events of the run to this file, a JSON object per line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Time, such as 30m, after which the pool ends, with exit code 124; with a store the same command goes on with the run
    #[arg(long, value_name = "TIME", value_parser = time_limit)]
    time_limit: Option<Duration>,
    /// Print the figures of each node and site at the end, on stderr
    #[arg(long)]
    stats: bool,
    /// Show the pool in a browser while it runs: the URL is printed [default address: 127.0.0.1:8787]
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:8787")]
    dashboard: Option<SocketAddr>,
    /// Write a report on the run to this file, a page that can be passed on
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write a trace of the run to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// After `--`: the program, unless cargo builds it, and its arguments
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<OsString>,
    #[command(flatten)]
    wan: WanFlags,
    #[command(flatten)]
    faults: FaultFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    build: BuildFlags,
}

/// Any of these makes the links between sites slow; those within a site stay as they are.
#[derive(clap::Args)]
#[command(next_help_heading = "Links between sites")]
struct WanFlags {
    /// Round-trip time between two sites, such as 30ms
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    wan_rtt: Option<Duration>,
    /// Bits per second between two sites, in each direction, such as 100mbit
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    wan_rate: Option<u64>,
    /// Share of datagrams between sites that are lost, such as 0.1%
    #[arg(long, value_name = "SHARE", value_parser = units::share)]
    wan_loss: Option<f64>,
    /// Largest variation of a datagram's delay, up or down, such as 2ms; the order of datagrams stays
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    wan_jitter: Option<Duration>,
}

/// The faults that the pool is to suffer.
#[derive(clap::Args)]
#[command(next_help_heading = "Faults (each may be given several times)")]
struct FaultFlags {
    /// Kill a node (SIGKILL): NODE is a name such as amsterdam-1, a site (all its nodes), or master (the node that runs
    /// `main` then). `all@TIME` kills every process of the pool at once: the exit code is 137 then. Times count from the
    /// moment when all nodes are in, which is when work begins
    #[arg(long, value_name = "NODE@TIME", value_parser = fault("kill"))]
    kill: Vec<Fault>,
    /// Stop a node (SIGSTOP), and let it go on at TO (SIGCONT); without an end it stays stopped
    #[arg(long, value_name = "NODE@FROM[..TO]", value_parser = fault("stop"))]
    stop: Vec<Fault>,
    /// Ask a node to leave (SIGTERM): it hands over its jobs
    #[arg(long, value_name = "NODE@TIME", value_parser = fault("drain"))]
    drain: Vec<Fault>,
    /// Start another node at a site, which may be new
    #[arg(long, value_name = "SITE@TIME", value_parser = fault("join"))]
    join: Vec<Fault>,
    /// Break all links between two sites; without an end for good. Datagrams are lost in silence; with `reject` a firewall
    /// answers that no process listens (on Linux)
    #[arg(long, value_name = "SITE|SITE@FROM[..TO] [reject]", value_parser = fault("partition"))]
    partition: Vec<Fault>,
}

/// What becomes of finished work if all nodes are lost.
#[derive(clap::Args)]
#[command(next_help_heading = "Store")]
struct StoreFlags {
    /// Keep what is finished there, in case that all nodes are lost; the same command goes on from there. URL is file:PATH,
    /// satin://HOST:PORT[,HOST:PORT..][?copies=N] or s3://BUCKET[/PREFIX]
    #[arg(long, value_name = "URL", env = STORE, hide_env_values = true)]
    store: Option<String>,
    /// Go on with this run of the store; without RUN with the newest unfinished one of this program and command line, which
    /// is the default
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "")]
    resume: Option<String>,
    /// Begin a new run, whatever the store has
    #[arg(long, conflicts_with_all = ["resume", "force"])]
    fresh: bool,
    /// Resume even if the last starts of the run finished nothing
    #[arg(long)]
    force: bool,
    /// Credential file of the pool [default: with a store that of SATIN_CREDENTIAL, or one that is kept for you; else a new one]
    #[arg(long, value_name = "FILE")]
    credential: Option<PathBuf>,
}

fn time_limit(text: &str) -> Result<Duration, String> {
    let time = Form::read(text).filter(|time: &Duration| !time.is_zero());
    time.ok_or_else(|| format!("expected {TIME}, above 0"))
}

fn fault(verb: &'static str) -> impl Fn(&str) -> Result<Fault, String> + Clone {
    move |text| {
        let fault = format!("{verb} {text}").parse();
        fault.map_err(|error: anyhow::Error| format!("{error:#}"))
    }
}

#[derive(clap::Args)]
#[command(next_help_heading = "Program")]
struct BuildFlags {
    /// Build this example with cargo, and run it
    #[arg(long, value_name = "NAME", conflicts_with = "bin")]
    example: Option<String>,
    /// Build this binary with cargo, and run it
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,
    /// Package of the workspace that has the example or binary
    #[arg(short, long, value_name = "NAME")]
    package: Option<String>,
    /// Features to build the program with
    #[arg(short = 'F', long, value_name = "FEATURES")]
    features: Vec<String>,
    /// Profile to build the program in [default: release]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

impl WanFlags {
    fn link(&self) -> Option<WanLink> {
        let WanFlags {
            wan_rtt: rtt,
            wan_rate: rate,
            wan_loss: loss,
            wan_jitter: jitter,
        } = *self;
        let any = rtt.is_some() || rate.is_some() || loss.is_some() || jitter.is_some();
        any.then(|| WanLink {
            rtt: rtt.unwrap_or_default(),
            rate,
            loss: loss.unwrap_or_default(),
            jitter: jitter.unwrap_or_default(),
        })
    }
}

impl FaultFlags {
    fn all(&self) -> Vec<Fault> {
        let FaultFlags {
            kill,
            stop,
            drain,
            join,
            partition,
        } = self;
        [&kill[..], stop, drain, join, partition].concat()
    }
}

impl StoreFlags {
    /// The store that the pool is to use, if any.
    fn plan(&self) -> Result<Option<StoreUse>> {
        let Some(url) = self.store.as_deref().filter(|url| !url.is_empty()) else {
            let flags = [
                ("--resume", self.resume.is_some()),
                ("--fresh", self.fresh),
                ("--force", self.force),
            ];
            if let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) {
                bail!("{flag} needs a store: add `--store URL`, or set {STORE}");
            }
            return Ok(None);
        };
        Ok(Some(StoreUse {
            resume: self.resume().code(codes::WRONG_VALUE)?,
            force: self.force,
            ..StoreUse::new(store::url(url)?)?
        }))
    }

    fn resume(&self) -> Result<Option<Resume>> {
        Ok(match self.resume.as_deref() {
            None => self.fresh.then_some(Resume::No),
            Some("") => Some(Resume::Auto),
            Some(run) => Some(run.parse().ok().with_context(|| {
                format!("--resume {run}: expected the name of a run, as `satin runs ls` shows it")
            })?),
        })
    }

    /// The credential file, if it is not to be a new one.
    fn credential(&self, store: Option<&StoreUse>) -> Result<Option<PathBuf>> {
        match store {
            Some(_) => store::credential(self.credential.as_deref()).map(Some),
            None => Ok(self.credential.clone()),
        }
    }
}

impl BuildFlags {
    fn target(&self) -> Option<BuildTarget> {
        let example = self.example.clone().map(BuildTarget::Example);
        example.or_else(|| self.bin.clone().map(BuildTarget::Bin))
    }
}

impl Run {
    pub fn run(self) -> Result<ExitCode> {
        let sites = match &self.sites {
            Some(sites) => sites.clone(),
            None => Sites::alike(1, self.nodes.unwrap_or(2)),
        };
        sites.check().code(codes::WRONG_VALUE)?;
        let wan = self.wan.link();
        if wan.is_some() && sites.0.len() == 1 {
            let text = format!(
                "--wan-.. needs links between sites, but there is only one site: add --sites 2x{}",
                sites.nodes().div_ceil(2)
            );
            return Err(CodedError::new(codes::ONE_SITE, text).into());
        }
        let faults = self.faults.all();
        // Before anything is built.
        faults::check(&faults, &sites).code(codes::WRONG_FAULT)?;
        let store = self.store.plan().code(codes::STORE_NOT_GIVEN)?;
        let credential = self.store.credential(store.as_ref())?;
        let program = self.program().code(codes::NO_PROGRAM)?;
        let plan = Plan {
            threads: self.threads,
            steal: self.steal,
            time_limit: self.time_limit,
            wan,
            faults,
            store,
            credential,
            events: self.events,
            output: Output::Show,
            views: Views {
                dashboard: self.dashboard,
                report: self.report,
                trace: self.trace,
            },
            ..Plan::new(program, sites)
        };
        let control = Control::new();
        let stopper = control.stopper();
        super::stop_at_signals(move |signal| stopper.stop(signal))?;
        let outcome = LocalPool::start(plan, control)?.wait()?;
        if self.stats {
            super::print_figures(&outcome.records);
        }
        // A code that does not fit into a byte is not a success.
        Ok(ExitCode::from(u8::try_from(outcome.code).unwrap_or(1)))
    }

    /// The program and its arguments, built if need be.
    fn program(&self) -> Result<Vec<OsString>> {
        let Some(target) = self.build.target() else {
            if self.arguments.is_empty() {
                bail!(
                    "no program is given: use `--example NAME`, `--bin NAME`, or `-- PROGRAM [ARGS]`; see `satin run --help`"
                );
            }
            return Ok(self.arguments.clone());
        };
        let options = build::BuildOptions {
            package: self.build.package.clone(),
            features: self.build.features.clone(),
            profile: self.build.profile.clone(),
        };
        let executable = build::build(&target, &options).code(codes::CANNOT_BUILD)?;
        let arguments = self.arguments.iter().cloned();
        Ok(std::iter::once(executable.into_os_string())
            .chain(arguments)
            .collect())
    }
}
