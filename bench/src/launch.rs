//! Runs of examples on pools of processes of this machine, one after the other, until the user presses Ctrl-C.
//!
//! Knows how a run is started, watched and read; not what is measured by it.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use satin::observe::events::{Event, Record};
use satin_cli::{
    build::{self, BuildTarget},
    faults::{Fault, What},
    pool::{ALL_KILLED, Control, LocalPool, Output, Plan, PoolOutcome, Stopper},
    sites::Sites,
};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Treatment of the jobs of nodes that are gone: `SATIN_REPAIR`.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Repair {
    /// Orphans run on, and their results are used
    Running,
    /// Orphans that run are stopped; results of their finished children are used, as in the original Satin
    Finished,
    /// All is done again
    Naive,
}

impl Repair {
    /// A plan for that program, with a worker per node.
    pub fn plan<A: Into<OsString>>(
        self,
        program: impl IntoIterator<Item = A>,
        sites: Sites,
    ) -> Plan {
        Plan {
            threads: Some(1),
            env: vec![("SATIN_REPAIR".into(), self.to_string().into())],
            output: Output::Keep,
            ..Plan::new(program, sites)
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Repair::Running => "running",
            Repair::Finished => "finished",
            Repair::Naive => "naive",
        })
    }
}

/// The error of a bench that a signal has ended, with its number.
#[derive(Debug)]
pub struct Interrupted(pub i32);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended by signal {}; nothing was kept", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Starts runs of programs on pools.
pub struct Launcher {
    profile: Option<String>,
    control: Arc<Mutex<Signals>>,
}

#[derive(Default)]
struct Signals {
    came: Option<i32>,
    pool: Option<Stopper>,
}

impl Launcher {
    /// Builds in that profile, or for release. From now on signals end the run that is under way, and this program after it.
    ///
    /// # Errors
    /// If signals cannot be watched.
    pub fn new(profile: Option<String>) -> Result<Launcher> {
        let control = Arc::new(Mutex::new(Signals::default()));
        let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])
            .context("cannot watch signals")?;
        let watched = Arc::clone(&control);
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in &mut signals {
                    let mut control = watched.lock().unwrap_or_else(PoisonError::into_inner);
                    control.came = Some(signal);
                    if let Some(pool) = &control.pool {
                        pool.stop(signal);
                    }
                }
            })?;
        Ok(Launcher { profile, control })
    }

    /// The executable of an example of this workspace, built if need be.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn example(&self, name: &str) -> Result<PathBuf> {
        let options = build::BuildOptions {
            package: Some("satin-examples".into()),
            profile: self.profile.clone(),
            ..build::BuildOptions::default()
        };
        let built = build::build(&BuildTarget::Example(name.into()), &options);
        self.go_on()?;
        built
    }

    /// Runs it to its end. `meddle` is called when the processes have been started.
    ///
    /// # Errors
    /// If it does not end well within `limit`, or not at all; says what it printed. [`Interrupted`] if a signal came.
    pub fn run(
        &self,
        plan: Plan,
        limit: Duration,
        meddle: impl FnOnce(&mut LocalPool) -> Result<()>,
    ) -> Result<Story> {
        let outcome = self.outcome(plan, limit, meddle)?;
        check_code(&outcome, 0)?;
        Story::new(outcome.records, outcome.stdout)
    }

    /// Runs it until all its nodes are killed, `at` after all of them are in. Gives the time from the first call of the root job
    /// until then, in seconds.
    ///
    /// # Errors
    /// If it ends before that, or not at all; says what it printed. [`Interrupted`] if a signal came.
    pub fn lose(&self, mut plan: Plan, at: Duration, limit: Duration) -> Result<f64> {
        let nodes = plan.sites.nodes() as usize;
        let what = What::KillAll;
        plan.faults.push(Fault { at, what });
        let outcome = self.outcome(plan, limit, |_| Ok(()))?;
        check_code(&outcome, ALL_KILLED)?;
        let all_in_ms = all_in_ms(&outcome.records, nodes).context("not all nodes came in")?;
        let started_ms = outcome.records.iter().find(|record| is_start(record));
        let started_ms = started_ms.context("the root job was not called")?.at_ms;
        Ok((all_in_ms as f64 - started_ms as f64) / 1000.0 + at.as_secs_f64())
    }

    /// Runs it until `meddle` is done, and kills all its nodes.
    ///
    /// # Errors
    /// That of `meddle`, or of the start. [`Interrupted`] if a signal came.
    pub fn kill(
        &self,
        plan: Plan,
        limit: Duration,
        meddle: impl FnOnce(&mut LocalPool) -> Result<()>,
    ) -> Result<()> {
        // A pool that is dropped is killed.
        self.watched(limit, plan, |mut pool| meddle(&mut pool))
    }

    /// Runs it to its end, however it ends.
    fn outcome(
        &self,
        plan: Plan,
        limit: Duration,
        meddle: impl FnOnce(&mut LocalPool) -> Result<()>,
    ) -> Result<PoolOutcome> {
        self.watched(limit, plan, |mut pool| {
            meddle(&mut pool)?;
            pool.wait()
        })
    }

    /// Starts the pool, and gives it to `use_it`. The pool is ended if that takes longer than `limit`, or if a signal comes.
    fn watched<T>(
        &self,
        limit: Duration,
        plan: Plan,
        use_it: impl FnOnce(LocalPool) -> Result<T>,
    ) -> Result<T> {
        let control = Control::new();
        let stopper = control.stopper();
        self.signals().pool = Some(stopper.clone());
        let (over, is_over) = mpsc::channel::<()>();
        let late = std::thread::spawn(move || {
            let late = is_over.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                stopper.stop(SIGTERM);
            }
            late
        });
        let outcome = self
            .go_on()
            .and_then(|()| LocalPool::start(plan, control))
            .and_then(use_it);
        drop(over);
        let late = late.join().unwrap_or(false);
        self.signals().pool = None;
        self.go_on()?;
        ensure!(!late, "the run did not end within {} s", limit.as_secs());
        outcome
    }

    /// # Errors
    /// [`Interrupted`] if a signal came.
    pub fn go_on(&self) -> Result<()> {
        match self.signals().came {
            Some(signal) => Err(Interrupted(signal).into()),
            None => Ok(()),
        }
    }

    fn signals(&self) -> std::sync::MutexGuard<'_, Signals> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Errors
/// If the run ended otherwise.
fn check_code(outcome: &PoolOutcome, expected: i32) -> Result<()> {
    ensure!(
        outcome.code == expected,
        "the run ended with exit code {}, not {expected}:\n{}{}",
        outcome.code,
        outcome.stdout,
        outcome.stderr
    );
    Ok(())
}

fn is_start(record: &Record) -> bool {
    matches!(record.event, Event::RootStarted { .. })
}

/// The time at which this number of nodes was in.
fn all_in_ms(records: &[Record], nodes: usize) -> Option<u64> {
    let mut names = BTreeSet::new();
    let is_in =
        |record: &&Record| matches!(record.event, Event::Joined { .. } | Event::Master { .. });
    let mut ins = records.iter().filter(is_in);
    ins.find(|record| {
        names.insert(record.name.as_str());
        names.len() == nodes
    })
    .map(|record| record.at_ms)
}

/// The story of a run: its events, and its only root job.
pub struct Story {
    records: Vec<Record>,
    stdout: String,
    started_ms: u64,
    finished_ms: u64,
}

impl Story {
    fn new(records: Vec<Record>, stdout: String) -> Result<Story> {
        let finished = |record: &&Record| matches!(record.event, Event::RootFinished { .. });
        let started = records.iter().find(|record| is_start(record));
        let finished = records.iter().rfind(finished);
        let (Some(started), Some(finished)) = (started, finished) else {
            anyhow::bail!("the run had no root job, or did not tell of its end");
        };
        Ok(Story {
            started_ms: started.at_ms,
            finished_ms: finished.at_ms,
            records,
            stdout,
        })
    }

    /// Time from the first call of the root job to its result, wherever that was had, in seconds.
    pub fn seconds(&self) -> f64 {
        self.since_start(self.finished_ms)
    }

    /// Seconds from the start of the root job until then; negative before it.
    pub fn since_start(&self, at_ms: u64) -> f64 {
        (at_ms as f64 - self.started_ms as f64) / 1000.0
    }

    /// The time at which this number of nodes was in, and so the clock of the schedule of faults began.
    pub fn all_in_ms(&self, nodes: usize) -> Option<u64> {
        all_in_ms(&self.records, nodes)
    }

    /// The first event of that kind about each of these nodes; the last of these events. `None` if a node has none.
    pub fn last_of_firsts(&self, names: &[String], kind: impl Fn(&Event) -> bool) -> Option<u64> {
        let firsts = names.iter().map(|name| {
            let is_it = |record: &&Record| record.name == *name && kind(&record.event);
            self.records.iter().find(is_it).map(|record| record.at_ms)
        });
        let firsts: Option<Vec<u64>> = firsts.collect();
        firsts?.into_iter().max()
    }

    /// The first event of that kind about any of these nodes.
    pub fn first_of(&self, names: &[String], kind: impl Fn(&Event) -> bool) -> Option<u64> {
        let is_it = |record: &&Record| names.contains(&record.name) && kind(&record.event);
        self.records.iter().find(is_it).map(|record| record.at_ms)
    }

    /// When a master of a later term began to run `main`.
    pub fn main_again_ms(&self) -> Option<u64> {
        let again = |record: &&Record| matches!(record.event, Event::Master { term: 1.., .. });
        self.records.iter().find(again).map(|record| record.at_ms)
    }

    /// The output of the masters.
    pub fn stdout(&self) -> &str {
        &self.stdout
    }
}

/// The options that say what knary does.
#[derive(Debug, clap::Args)]
pub struct Work {
    /// Leaves compute; otherwise they sleep, and so there may be more workers than cores
    #[arg(long)]
    pub compute: bool,
    /// Levels of the tree, of width 5: 6 levels are 15,625 leaves
    #[arg(long, default_value_t = 6)]
    depth: u32,
    /// Build knary in this profile [default: release]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

impl Work {
    /// # Errors
    /// Makes a launcher, as [`Launcher::new`].
    pub fn launcher(&self) -> Result<Launcher> {
        Launcher::new(self.profile.clone())
    }

    /// Builds knary with leaves of `ms` milliseconds.
    ///
    /// # Errors
    /// Builds the program, as [`Knary::build`].
    pub fn build(&self, launcher: &Launcher, ms: u32) -> Result<Knary> {
        Knary::build(launcher, self.depth, Leaf::new(self.compute, ms))
    }
}

/// Number of `workers` that compute at the same time: each needs a core.
pub fn computing_at_once(workers: u32) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    f64::from(workers.min(cores))
}

/// The program knary with a worker per node, and how many leaves it is to have done: of a [flow](Knary::flow), tasks.
pub struct Knary {
    arguments: Vec<OsString>,
    leaves: u64,
    /// What the program calls them.
    counted: &'static str,
    leaf: Leaf,
    folder: tempfile::TempDir,
}

/// The work of a leaf of knary.
#[derive(Clone, Copy)]
enum Leaf {
    /// The leaf sleeps for this time, and so there may be more workers than cores.
    Sleeps(Duration),
    /// The leaf computes, for about this time on a core of its own.
    Computes(Duration),
}

impl Leaf {
    /// Sleeping or computing leaves of `ms` milliseconds.
    fn new(computes: bool, ms: u32) -> Leaf {
        let time = Duration::from_millis(ms.into());
        match computes {
            true => Leaf::Computes(time),
            false => Leaf::Sleeps(time),
        }
    }

    fn time(self) -> Duration {
        match self {
            Leaf::Sleeps(time) | Leaf::Computes(time) => time,
        }
    }
}

/// Children of every inner node.
const WIDTH: u32 = 5;

/// Factor on the ideal after which, with [`START`] more, a run counts as hung. Too small: slow machines fail. Too large:
/// a hung run costs time.
const PATIENCE: f64 = 5.0;
/// Time that a run may take beyond [`PATIENCE`] times the ideal before it counts as hung.
const START: Duration = Duration::from_secs(60);

impl Knary {
    /// Builds knary with leaves that sleep for `ms` milliseconds.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn sleeping(launcher: &Launcher, depth: u32, ms: u32) -> Result<Knary> {
        Knary::build(launcher, depth, Leaf::new(false, ms))
    }

    /// # Errors
    /// If it cannot be built, or its leaves cannot be calibrated.
    fn build(launcher: &Launcher, depth: u32, leaf: Leaf) -> Result<Knary> {
        ensure!(depth < 13, "--depth {depth}: that many leaves take forever");
        let leaves = u64::from(WIDTH).pow(depth);
        Knary::counting(launcher, depth, leaf, (leaves, "leaves"))
    }

    /// Builds knary as a flow of so many tasks, each of which computes for `ms` milliseconds.
    ///
    /// # Errors
    /// If it cannot be built, or its tasks cannot be calibrated.
    pub fn flow(launcher: &Launcher, tasks: u32, ms: u32) -> Result<Knary> {
        // Its tree is as deep as the tasks need.
        let counted = (u64::from(tasks), "tasks");
        let mut knary = Knary::counting(launcher, 0, Leaf::new(true, ms), counted)?;
        let flow = ["--tasks".into(), tasks.to_string().into()];
        knary.arguments.extend(flow);
        Ok(knary)
    }

    fn counting(
        launcher: &Launcher,
        depth: u32,
        leaf: Leaf,
        (leaves, counted): (u64, &'static str),
    ) -> Result<Knary> {
        let program = launcher.example("knary")?;
        let folder = tempfile::Builder::new()
            .prefix("satin-bench-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        let mut arguments: Vec<OsString> = vec![
            program.clone().into(),
            depth.to_string().into(),
            WIDTH.to_string().into(),
            leaf.time().as_micros().to_string().into(),
        ];
        match leaf {
            Leaf::Sleeps(_) => arguments.push("--sleep".into()),
            Leaf::Computes(time) => {
                arguments.extend(["--steps".into(), steps(&program, time)?.to_string().into()]);
            }
        }
        arguments.extend(["--count".into(), count(&folder).into()]);
        Ok(Knary {
            arguments,
            leaves,
            counted,
            leaf,
            folder,
        })
    }

    /// Number of leaves in the tree; of a [flow](Knary::flow), of tasks.
    pub fn leaves(&self) -> u64 {
        self.leaves
    }

    /// Number of `workers` that work at the same time: computing workers need a core.
    pub fn at_once(&self, workers: u32) -> f64 {
        match self.leaf {
            Leaf::Sleeps(_) => f64::from(workers),
            Leaf::Computes(_) => computing_at_once(workers),
        }
    }

    /// The time that a leaf takes.
    pub fn leaf(&self) -> Duration {
        self.leaf.time()
    }

    /// The program and its arguments.
    pub fn words(&self) -> Vec<OsString> {
        self.arguments.clone()
    }

    /// A plan for it; `repair` is what becomes of orphans.
    pub fn plan(&self, sites: Sites, repair: Repair) -> Plan {
        repair.plan(self.words(), sites)
    }

    /// Runs a [`plan`](Knary::plan); returns the story, and how many leaves were done.
    ///
    /// # Errors
    /// As [`Launcher::run`]; if fewer leaves were done than there are.
    pub fn run(
        &self,
        launcher: &Launcher,
        plan: Plan,
        meddle: impl FnOnce(&mut LocalPool) -> Result<()>,
    ) -> Result<(Story, u64)> {
        self.forget()?;
        let limit = self.limit(&plan);
        self.check(launcher.run(plan, limit, meddle)?)
    }

    /// Runs a plan until all its nodes are killed, `at` after all of them are in. Gives the time from the first call of the root
    /// job until then, in seconds.
    ///
    /// # Errors
    /// As [`Launcher::lose`].
    pub fn lose(&self, launcher: &Launcher, plan: Plan, at: Duration) -> Result<f64> {
        self.forget()?;
        let limit = self.limit(&plan);
        launcher.lose(plan, at, limit)
    }

    /// Goes on with a run that was [lost](Knary::lose), by a plan with the same store; returns the story, and how many leaves
    /// were done in all.
    ///
    /// # Errors
    /// As [`Knary::run`].
    pub fn go_on(&self, launcher: &Launcher, plan: Plan) -> Result<(Story, u64)> {
        let limit = self.limit(&plan);
        self.check(launcher.run(plan, limit, |_| Ok(()))?)
    }

    /// The time of a run at best.
    pub fn ideal(&self, nodes: u32) -> Duration {
        let leaves = self.leaves() as f64;
        self.leaf.time().mul_f64(leaves / self.at_once(nodes))
    }

    /// The time after which a run counts as hung.
    fn limit(&self, plan: &Plan) -> Duration {
        START + self.ideal(plan.sites.nodes()).mul_f64(PATIENCE)
    }

    /// Number of leaves that were done so far, by all runs since the last one that was not gone on with.
    ///
    /// # Errors
    /// If the file of `--count` cannot be read.
    pub fn done(&self) -> Result<u64> {
        Ok(fs::metadata(count(&self.folder))?.len())
    }

    fn forget(&self) -> Result<()> {
        fs::write(count(&self.folder), "").context("cannot empty the file of --count")
    }

    /// # Errors
    /// If the answer is wrong, or fewer leaves were done than there are.
    fn check(&self, story: Story) -> Result<(Story, u64)> {
        let done = self.done()?;
        let answer = format!("= {} {}", self.leaves, self.counted);
        ensure!(
            story.stdout().contains(&answer) && done >= self.leaves,
            "there are {} {}, {done} were done, and knary said:\n{}",
            self.leaves,
            self.counted,
            story.stdout()
        );
        Ok((story, done))
    }
}

fn count(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("count")
}

/// Steps of a leaf that takes so long, as knary measures them. They are measured once: were `main` to measure them, a new
/// master would have other jobs than the old one.
///
/// # Errors
/// If knary cannot be started, or does not say it.
pub fn steps(knary: &Path, time: Duration) -> Result<u64> {
    let micros = time.as_micros().to_string();
    let output = Command::new(knary)
        .args(["0", "1", &micros, "--sequential"])
        .output()
        .context("cannot start knary")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let steps = text.split("--steps ").nth(1).and_then(|rest| {
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        number.parse().ok()
    });
    steps.with_context(|| format!("knary did not say how many steps a leaf has:\n{text}"))
}

/// Seconds of the computation, as an example tells them in its last lines.
///
/// # Errors
/// If there is no such line in its output.
pub fn told_seconds(stdout: &str) -> Result<f64> {
    let line = stdout.lines().find_map(|line| line.strip_prefix("time "));
    let seconds = line.and_then(|rest| rest.split(' ').next()?.parse().ok());
    seconds.with_context(|| format!("no time in what the program printed:\n{stdout}"))
}
