//! The pool that a program sees: its workers, and what connects them with others.

use std::{
    any::Any,
    collections::BTreeMap,
    io::{self, Write},
    panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    time::Duration,
};

pub use crate::observe::standing::NodeInfo;
use crate::{
    config::{Config, ConfigError, Resolved},
    exit, fence,
    job::record::Aborted,
    net::{
        Handle, NetError, Network, Settings, Turn, priority,
        settings::{ExitRule, SettingsError},
    },
    node::repair::GIVEN_UP,
    observe::{
        Figures,
        events::{Event, EventLog},
        log::{self, LogNode, LogScope},
        output::{self, OutputUse},
        repeats,
        standing::Standing,
    },
    progress::ProgressDisplay,
    seen::{PoolAccess, Seen, Views, WindowError},
    worker::{self, Cancel, Cancelled, Gate, RootKey, Spawned, StartError, TimedOut, Workers},
};

/// A pool of workers, with or without a network.
///
/// Dropping it waits for its threads; jobs of other threads that still run are finished first. Before that it says goodbye
/// to other nodes; if it is the master, their pool has ended then.
pub struct Satin {
    /// Goes before the workers do.
    network: Option<Network>,
    workers: Workers,
    shows_progress: bool,
    seen: Seen,
    /// Lines of the log that come of this pool are its node's.
    scope: LogScope,
    time_limit: Option<Duration>,
    exit: ExitRule,
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
    /// The report or the trace could not be written.
    #[error(transparent)]
    Window(#[from] WindowError),
}

/// The type of a method's argument, by the form of the setting.
macro_rules! argument {
    (String) => { impl Into<String> };
    (PathBuf) => { impl Into<PathBuf> };
    ($form:ident) => { $form };
}

macro_rules! builder {
    ($(
        $(#[$doc:meta])*
        $key:ident: $form:ident, $variable:literal, $value:literal, $help:literal, $default:literal, $expected:literal;
    )*) => {
        impl Builder {$(
            $(#[$doc])*
            #[must_use]
            pub fn $key(self, $key: argument!($form)) -> Builder {
                self.with(|config| config.$key = Some($key.into()))
            }
        )*}
    };
}

crate::config::settings!(builder);

impl Builder {
    /// Starts from these settings.
    ///
    /// ```
    /// # use satin_runtime::{config::Config, satin::Builder};
    /// let config = Config { threads: Some(2), ..Config::default() };
    /// assert_eq!(Builder::from_config(config).build()?.threads(), 2);
    /// # Ok::<(), satin_runtime::satin::BuildError>(())
    /// ```
    #[must_use]
    pub fn from_config(config: Config) -> Builder {
        Builder { config }
    }

    fn with(mut self, set: impl FnOnce(&mut Config)) -> Builder {
        set(&mut self.config);
        self
    }

    /// Starts the workers, and with somewhere to join or to listen the network; returns when this node is in its pool.
    ///
    /// # Errors
    /// If a setting makes no sense, the system has no room, or the pool does not let this node in: nothing runs then.
    ///
    /// ```
    /// # use satin_runtime::satin::Satin;
    /// let error = Satin::builder().listen("127.0.0.1:0").build().err().expect("no pool without a credential");
    /// assert!(error.to_string().contains("satin keygen"));
    /// ```
    pub fn build(self) -> Result<Satin, BuildError> {
        let config = self.config.or(Config::load()?).resolve()?;
        Satin::start(config, |_| ())
    }
}

impl Satin {
    /// Settings of a pool by hand. Settings that are left out come from the environment and `satin.toml`.
    ///
    /// ```
    /// # use satin_runtime::satin::Satin;
    /// let pool = Satin::builder().threads(2).stack(16).build()?;
    /// # Ok::<(), satin_runtime::satin::BuildError>(())
    /// ```
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `before` is called before there is a network, if there will be one.
    fn start(mut config: Resolved, before: fn(Handle)) -> Result<Satin, BuildError> {
        let seen = Seen::new(Views {
            dashboard: config.dashboard,
            report: config.config.report.take(),
            trace: config.config.trace.take(),
        })?;
        let settings = Settings::new(std::mem::take(&mut config.config), config.threads)?;
        let exit = settings
            .as_ref()
            .map_or(ExitRule::Own, |settings| settings.exit);
        let (name, site) = match &settings {
            Some(settings) => (settings.name.clone(), settings.site.clone()),
            None => (format!("node-{}", std::process::id()), "default".into()),
        };
        let scope = LogScope::begin(LogNode {
            name: name.clone(),
            site: site.clone(),
            has_network: settings.is_some(),
        });
        let in_scope = scope.enter();
        // Workers step back behind the network thread, if there is one.
        let begin = if settings.is_some() {
            priority::step_back
        } else {
            || ()
        };
        let workers = Workers::start(&config, begin)?;
        let info = NodeInfo::alone(name, site, workers.threads());
        let standing = Arc::new(Standing::new(info));
        standings().insert(workers.number(), Arc::clone(&standing));
        let mut satin = Satin {
            network: None,
            workers,
            shows_progress: config.progress,
            seen,
            scope,
            time_limit: config.time_limit,
            exit,
        };
        if let Some(settings) = settings {
            let access = PoolAccess::of(&settings);
            let network = Network::start(settings, satin.workers.gate(), standing, before)?;
            let network = satin.network.insert(network);
            network.wait_until_in()?;
            satin.seen.node_is_in(access, network);
        } else {
            satin.seen.process_begins(&satin.workers);
        }
        drop(in_scope);
        Ok(satin)
    }

    /// The connection of this pool with other nodes, if it has any.
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The main program of this node: the master runs `main`, and the pool ends with it; other nodes serve until the pool
    /// has ended, and never return, or until they become master themselves.
    fn run_as_main<R>(mut self, mut main: impl FnMut() -> R, goodbye: Goodbye) -> R {
        let _in_scope = self.scope.enter();
        let shown = self.show_progress();
        let Some(network) = &self.network else {
            let seen = self.seen.clone();
            exit::at_exit(move |_| seen.close());
            let _limit = self.time_limit.map(exit::after);
            return self.workers.run_as_main(main);
        };
        let (seen, handle) = (self.seen.clone(), network.handle());
        exit::at_exit(move |code| {
            seen.close();
            handle.end(code.unwrap_or(0));
        });
        let result = loop {
            match network.wait_for_turn(|term| self.workers.gate().begin_main(term)) {
                Ok(Turn::Over(code)) => exit::with(code),
                Err(error) if self.exit == ExitRule::Run => {
                    exit::with_error(exit::asked_code(), &error)
                }
                Err(error) => exit::with_failure(&error),
                Ok(Turn::Main) => {
                    self.seen.main_begins();
                    let run = || self.workers.run_as_main(&mut main);
                    match catch_unwind(AssertUnwindSafe(run)) {
                        Ok(result) => break result,
                        // Another node runs it now, and this one serves.
                        Err(payload) if payload.is::<Aborted>() => {}
                        Err(payload) => {
                            tell_of_afar(&*payload);
                            resume_unwind(payload)
                        }
                    }
                }
            }
        };
        drop(shown);
        self.seen.close();
        match goodbye {
            Goodbye::Now => {
                let log = self.network.as_mut().and_then(Network::take_event_log);
                drop(self);
                exit::at_exit(move |code| correct_the_end(log, code));
            }
            Goodbye::AtExit => exit::at_exit(move |code| {
                if let Some(network) = &self.network {
                    network.handle().end(code.unwrap_or(0));
                }
                drop(self);
            }),
        }
        result
    }

    /// Shows how far the root jobs are, unless a setting says no.
    fn show_progress(&self) -> Option<ProgressDisplay> {
        let standing = standings().get(&self.workers.number()).map(Arc::clone);
        standing
            .filter(|_| self.shows_progress)
            .map(|standing| ProgressDisplay::start(&self.workers, standing))
    }

    /// Runs `main` on the calling thread, with this pool as the one that spawnable functions run on.
    ///
    /// ```
    /// # use satin_runtime::satin::{Satin, node};
    /// let pool = Satin::builder().threads(2).build()?;
    /// assert_eq!(pool.run(|| node().threads), 2); // here: calls of spawnable functions
    /// # Ok::<(), satin_runtime::satin::BuildError>(())
    /// ```
    pub fn run<R>(&self, main: impl FnOnce() -> R) -> R {
        let _in_scope = self.scope.enter();
        self.workers.run(main)
    }

    /// Runs `main` on a worker of this pool, and gives a future of its result: as `satin::spawn_async`.
    ///
    /// # Example
    /// ```no_run
    /// # async fn page(pool: &satin_runtime::satin::Satin) {
    /// let answer = pool.spawn(|| 6 * 7).await;
    /// # let _: i32 = answer;
    /// # }
    /// ```
    pub fn spawn<R: Send + 'static>(
        &self,
        main: impl FnOnce() -> R + Send + 'static,
    ) -> Spawned<R> {
        self.workers.spawn(main)
    }

    /// As [`Satin::run`], until `cancel` says that it is to stop: see [`run_cancellable`](worker::run_cancellable).
    ///
    /// # Errors
    /// If it was cancelled.
    pub fn run_cancellable<R>(
        &self,
        cancel: &Cancel,
        main: impl FnOnce() -> R,
    ) -> Result<R, Cancelled> {
        self.run(|| worker::run_cancellable(cancel, main))
    }

    /// As [`Satin::run`], for so long at most: see [`run_timeout`](worker::run_timeout).
    ///
    /// # Errors
    /// If it was not done in time.
    pub fn run_timeout<R>(&self, time: Duration, main: impl FnOnce() -> R) -> Result<R, TimedOut> {
        self.run(|| worker::run_timeout(time, main))
    }

    /// The gate through which jobs leave and enter this pool.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.workers.gate()
    }

    /// Number of workers in this process.
    ///
    /// ```
    /// # use satin_runtime::satin::Satin;
    /// assert_eq!(Satin::builder().threads(3).build()?.threads(), 3);
    /// # Ok::<(), satin_runtime::satin::BuildError>(())
    /// ```
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.threads()
    }

    /// The counters of each worker so far.
    #[must_use]
    pub fn figures(&self) -> Vec<Figures> {
        self.workers.figures()
    }
}

impl Drop for Satin {
    fn drop(&mut self) {
        // While there is somebody to look at.
        self.seen.close();
        standings().remove(&self.workers.number());
        fence::closes(self.workers.number());
        let _in_scope = self.scope.enter();
        repeats::tell_sums(true);
    }
}

/// The states of this process's pools, by their numbers.
static STANDINGS: Mutex<BTreeMap<u64, Arc<Standing>>> = Mutex::new(BTreeMap::new());

fn standings() -> MutexGuard<'static, BTreeMap<u64, Arc<Standing>>> {
    STANDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of this node, in the pool that a call from here would go to.
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

/// The pool has ended, and the others have gone, when [`run`] returned; the exit code of the process is known only now.
fn correct_the_end(log: Option<EventLog>, code: Option<i32>) {
    if let (Some(log), Some(code)) = (log, code.filter(|code| *code != 0)) {
        log.write(Event::PoolEnded { code });
    }
}

/// Prints the panic of a job that ran on another node, and was printed there: here it ends `main`, and the user would not
/// know why.
fn tell_of_afar(payload: &(dyn Any + Send)) {
    if let Some(text) = payload.downcast_ref::<String>()
        && worker::came_from_afar(text)
    {
        let what = match text.starts_with(GIVEN_UP) {
            true => "",
            false => "a job panicked on another node: ",
        };
        let _ = writeln!(io::stderr(), "error: {what}{text}");
    }
}

/// Reports the first panic of a root job's jobs on this node, with the node's name: many jobs may fail at the same line
/// before they are stopped. A panic at another line is reported too.
fn tell_panics_once() {
    static ONCE: Once = Once::new();
    static TOLD: Mutex<Option<(RootKey, String)>> = Mutex::new(None);
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let Some(root) = worker::current_root() else {
                return usual(panic);
            };
            let place = panic.location().map(ToString::to_string);
            let this = Some((root, place.unwrap_or_default()));
            let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
            if *told == this {
                return;
            }
            *told = this;
            drop(told);
            let name = name_of(root.pool);
            let job = worker::current_job().map(|id| format!(", job {id} or one below it"));
            let job = job.unwrap_or_default();
            let _ = writeln!(io::stderr(), "a job on {name} panics{job}:");
            usual(panic);
        }));
    });
}

/// The name of the node in that pool, for people.
fn name_of(pool: u64) -> String {
    let standing = standings().get(&pool).map(Arc::clone);
    standing.map_or_else(|| "this node".into(), |standing| standing.now().name)
}

/// The moment at which the other nodes hear that `main` is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goodbye {
    /// At once, before the program goes on.
    Now,
    /// When the process exits, which is at once too: then its exit code is known.
    AtExit,
}

/// Runs `main` as the main program of this node, with `program`'s settings above those of file and environment.
///
/// With a network, the pool ends when `main` does, with its exit code, however it ends (a return is taken for success;
/// if the process exits with another code after that, the events tell it as well). Nodes that are not the master serve
/// instead, and exit with code 0 when the pool has ended. If the master is gone another node is elected and calls `main`
/// from the start; a node may be elected more than once, which is why `main` is `FnMut`.
///
/// Asked to leave by SIGTERM, Ctrl-C or the end of its terminal, a node of a pool hands over what it has, for
/// `SATIN_GRACE` seconds at most, and exits with code 0; if it is master, another node becomes that first. At the second
/// request it goes at once, with code 143, 130 or 129, as a node does that is alone. Of nodes that are all asked, the last
/// ends with that code too.
///
/// With `SATIN_EXIT=run` every node exits with the code of the run, or with 143 if the node ends before the run: a system that starts
/// lost nodes anew sees by it which ones to start.
///
/// When `SATIN_TIME_LIMIT` is over the pool ends, and the process that runs `main` exits with code 124.
///
/// If the settings make no sense, or this node is not let into the pool, says so on stderr and exits with code 2.
pub fn run<R>(program: Config, main: impl FnMut() -> R) -> R {
    run_until(program, main, Goodbye::Now)
}

fn run_until<R>(program: Config, main: impl FnMut() -> R, goodbye: Goodbye) -> R {
    let mut rule = ExitRule::default();
    let start = |rule: &mut ExitRule| -> Result<Satin, BuildError> {
        let config = program.or(Config::load()?);
        // A value that makes no sense is told of with the other settings of the network.
        *rule = ExitRule::of(&config).unwrap_or_default();
        let kept = keep_output(&config);
        config.start_log()?;
        if let Err(error) = kept {
            tracing::warn!(
                "what this process prints is not kept, as SATIN_OUTPUT wants: {error}; `satin log` and the master do not show it"
            );
        }
        tell_panics_once();
        Satin::start(config.resolve()?, |network| {
            network.expect_main();
            let (asked, stopped) = (network.clone(), network.clone());
            exit::on_request(move || asked.drain(), move |code| stopped.break_off(code));
            leave_when_drained(network.clone());
            exit::at_exit(move |code| network.end(code.unwrap_or(0)));
        })
    };
    match start(&mut rule) {
        Ok(satin) => satin.run_as_main(main, goodbye),
        // The settings make sense, and the run may go on without this node.
        Err(error @ BuildError::Network(NetError::Failed(_))) if rule == ExitRule::Run => {
            exit::with_error(exit::asked_code(), &error)
        }
        Err(error) => exit::with_error(2, &error),
    }
}

/// Begins to keep what this process prints, if others may ask for it.
fn keep_output(config: &Config) -> io::Result<()> {
    let asked_for = config.output.as_deref().map(str::trim);
    // A value that makes no sense is told of with the other settings of the network.
    let asked_for: OutputUse = asked_for
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    match asked_for != OutputUse::Own && config.network().is_some() {
        true => {
            output::start()?;
            // What is still on its way when the process exits is written then, even if that comes before there is a network.
            exit::at_exit(|_| ());
            Ok(())
        }
        false => Ok(()),
    }
}

/// When this node has handed everything over its process exits, whatever `main` does meanwhile: it runs elsewhere.
fn leave_when_drained(network: Handle) {
    let wait = move || exit::with(network.wait_until_drained());
    let thread = std::thread::Builder::new().name("satin-exit".into());
    if let Err(error) = log::spawn(thread, wait) {
        tracing::warn!(
            "cannot start a thread ({error}): if this node is the master and is asked to leave, it may stay until its `main` waits for a job"
        );
    }
}

/// The function that `#[satin::main]` expands to.
#[doc(hidden)]
pub fn main<R>(main: impl FnMut() -> R) -> R {
    run_until(Config::default(), main, Goodbye::AtExit)
}
