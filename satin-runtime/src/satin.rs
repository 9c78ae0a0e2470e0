//! The pool that a program sees: its workers, and what connects them with others.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use crate::observe::standing::NodeInfo;
use crate::{
    config::{Config, ConfigError, Resolved},
    exit,
    net::{Handle, NetError, Network, Settings, priority, settings::SettingsError},
    observe::{Figures, standing::Standing},
    worker::{self, Gate, StartError, Workers},
};

/// A pool of workers.
///
/// Dropping it waits for its threads; jobs of other threads that still run are finished first. Before that it says goodbye
/// to other nodes; if it is the master, their pool has ended then.
pub struct Satin {
    /// Goes before the workers do.
    network: Option<Network>,
    workers: Workers,
}

/// Settings of a pool by hand.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    config: Config,
}

/// Why a pool could not be made. Nothing has been started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The system has no room for the workers.
    #[error(transparent)]
    Workers(#[from] StartError),
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A setting of the network makes no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The pool of nodes could not be joined.
    #[error(transparent)]
    Network(#[from] NetError),
}

impl Builder {
    /// Starts from these settings.
    #[must_use]
    pub fn from_config(config: Config) -> Builder {
        Builder { config }
    }

    fn with(mut self, set: impl FnOnce(&mut Config)) -> Builder {
        set(&mut self.config);
        self
    }

    /// Number of workers; the default is the number of cores that this process may use.
    #[must_use]
    pub fn threads(self, threads: usize) -> Builder {
        self.with(|config| config.threads = Some(threads))
    }

    /// Stack of each worker in MiB, reserved and committed as it is used.
    #[must_use]
    pub fn stack(self, mib: usize) -> Builder {
        self.with(|config| config.stack = Some(mib))
    }

    /// Print the table of figures when the pool ends.
    #[must_use]
    pub fn stats(self, print: bool) -> Builder {
        self.with(|config| config.stats = Some(print))
    }

    /// Where to find the pool: `HOST:PORT[,HOST:PORT..]`, `dns:NAME:PORT`, `file:PATH` or `slurm`.
    #[must_use]
    pub fn join(self, at: impl Into<String>) -> Builder {
        self.with(|config| config.join = Some(at.into()))
    }

    /// The address to listen on, `IP:PORT`. With this and nowhere to find a pool the node founds one.
    #[must_use]
    pub fn listen(self, address: impl Into<String>) -> Builder {
        self.with(|config| config.listen = Some(address.into()))
    }

    /// The address that others are told; the default is the one that the node listens on.
    #[must_use]
    pub fn advertise(self, address: impl Into<String>) -> Builder {
        self.with(|config| config.advertise = Some(address.into()))
    }

    /// The site: nodes of one site have fast links between them.
    #[must_use]
    pub fn site(self, name: impl Into<String>) -> Builder {
        self.with(|config| config.site = Some(name.into()))
    }

    /// The credential file, the same for all nodes of a pool.
    #[must_use]
    pub fn credential(self, file: impl Into<PathBuf>) -> Builder {
        self.with(|config| config.credential = Some(file.into()))
    }

    /// The pool's name; nodes of another are refused. The default is the program's name.
    #[must_use]
    pub fn pool(self, name: impl Into<String>) -> Builder {
        self.with(|config| config.pool = Some(name.into()))
    }

    /// The first root job waits until so many nodes are in.
    #[must_use]
    pub fn nodes(self, nodes: u32) -> Builder {
        self.with(|config| config.nodes = Some(nodes))
    }

    /// Whom an idle node asks for work: `crs`, `rs` or `mw`.
    #[must_use]
    pub fn steal(self, policy: impl Into<String>) -> Builder {
        self.with(|config| config.steal = Some(policy.into()))
    }

    /// What people call this node; the default is host name and process number.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Builder {
        self.with(|config| config.name = Some(name.into()))
    }

    /// Append what happens to this file, a JSON object per line.
    #[must_use]
    pub fn events(self, file: impl Into<PathBuf>) -> Builder {
        self.with(|config| config.events = Some(file.into()))
    }

    /// Starts the workers, and with somewhere to join or to listen the network; returns when this node is in its pool.
    ///
    /// # Errors
    /// If a setting makes no sense, the system has no room, or the pool does not let this node in: nothing runs then.
    pub fn build(self) -> Result<Satin, BuildError> {
        let config = self.config.or(Config::load()?).resolve()?;
        Satin::start(config, |_| ())
    }
}

impl Satin {
    /// Settings of a pool by hand. What they do not say, the environment and `satin.toml` do.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `before` is called before there is a network, if there will be one.
    fn start(mut config: Resolved, before: fn(Handle)) -> Result<Satin, BuildError> {
        let settings = Settings::new(std::mem::take(&mut config.words), config.threads)?;
        // Workers step back behind the network thread, if there is one.
        let begin = if settings.is_some() {
            priority::step_back
        } else {
            || ()
        };
        let workers = Workers::start(&config, begin)?;
        let (name, site) = match &settings {
            Some(settings) => (settings.name.clone(), settings.site.clone()),
            None => (format!("node-{}", std::process::id()), "default".into()),
        };
        let info = NodeInfo::alone(name, site, workers.threads());
        let standing = Arc::new(Standing::new(info));
        standings().insert(workers.number(), Arc::clone(&standing));
        let mut satin = Satin {
            network: None,
            workers,
        };
        if let Some(settings) = settings {
            let network = Network::start(settings, satin.workers.gate(), standing, before)?;
            satin.network.insert(network).wait_until_in()?;
        }
        Ok(satin)
    }

    /// What connects this pool with other nodes, if anything does.
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The main program of this node: the master runs `main`, and the pool ends with it; others serve until then, and
    /// never return.
    fn run_as_main<R>(self, main: impl FnOnce() -> R) -> R {
        let Some(network) = &self.network else {
            return self.workers.run_as_main(main);
        };
        if !network.is_master() {
            match network.wait_until_over() {
                Ok(code) => exit::with(code),
                Err(error) => exit::with_error(1, &error),
            }
        }
        let result = self.workers.run_as_main(main);
        // Goodbye to the others, before this program does whatever it does next.
        drop(self);
        exit::forget();
        result
    }

    /// Runs `main` on the calling thread, with this pool as the one that spawnable functions run on.
    pub fn run<R>(&self, main: impl FnOnce() -> R) -> R {
        self.workers.run(main)
    }

    /// The gate through which jobs leave and enter this pool.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.workers.gate()
    }

    /// Number of workers.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.threads()
    }

    /// What each worker has counted so far.
    #[must_use]
    pub fn figures(&self) -> Vec<Figures> {
        self.workers.figures()
    }
}

impl Drop for Satin {
    fn drop(&mut self) {
        standings().remove(&self.workers.number());
    }
}

/// Who the pools of this process are, by their numbers.
static STANDINGS: Mutex<BTreeMap<u64, Arc<Standing>>> = Mutex::new(BTreeMap::new());

fn standings() -> MutexGuard<'static, BTreeMap<u64, Arc<Standing>>> {
    STANDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who I am: the pool that a call from here would go to.
#[must_use]
pub fn node() -> NodeInfo {
    let (pool, threads) = worker::current_pool();
    let standing = standings().get(&pool).map(Arc::clone);
    match standing {
        Some(standing) => standing.now(),
        // The pool that serves threads without one.
        None => NodeInfo::alone(
            format!("node-{}", std::process::id()),
            "default".into(),
            threads,
        ),
    }
}

/// Runs `main` as the main program of this node, with `program`'s settings above those of file and environment.
///
/// With a network, the pool ends when `main` does, with its exit code, however it ends. Nodes that are not the master serve
/// instead, and exit with code 0 when the pool has ended. Asked to end by Ctrl-C or SIGTERM, a node says goodbye first.
///
/// If the settings make no sense, or this node is not let into the pool, says so on stderr and exits with code 2.
pub fn run<R>(program: Config, main: impl FnOnce() -> R) -> R {
    let start = || -> Result<Satin, BuildError> {
        let config = program.or(Config::load()?);
        config.start_log()?;
        Satin::start(config.resolve()?, |network| {
            let on_request = network.clone();
            exit::at_exit(move |code| network.end(code.unwrap_or(0)));
            exit::on_request(move |code| on_request.end(code));
        })
    };
    match start() {
        Ok(satin) => satin.run_as_main(main),
        Err(error) => exit::with_error(2, &error),
    }
}

/// What `#[satin::main]` expands to.
#[doc(hidden)]
pub fn main<R>(main: impl FnOnce() -> R) -> R {
    run(Config::default(), main)
}
