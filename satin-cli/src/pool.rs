//! Pools of processes on this machine, for trying things out.
//!
//! The first node of the first site starts first and founds the pool; when it listens, the others start and join it. Each
//! node is the leader of a process group of its own, so all processes that it starts go when it goes. Between sites there
//! may be a [`wan`](crate::wan). A pool goes on as long as a node may be master: when the first one is gone another node
//! runs `main`, and the events say which. Whatever happens, even if this process is killed, nothing is left behind: no
//! process, no file.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    fmt,
    fs::{self, File},
    io,
    net::SocketAddr,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use satin_runtime::{
    codes::{self, CodedError},
    config::Config,
    net::{Credential, Join, relay},
    observe::{
        events::{self, Event, Record},
        lines,
    },
    window::{Views, Window},
};
use tempfile::TempDir;

use self::act::Schedule;
use crate::{
    bar::{self, Bar},
    chronicle::Chronicle,
    faults::{self, Fault, What},
    guard::ProcessGuard,
    output::{self, Readers, Sink, Text},
    ports::Port,
    sites::Sites,
    store::{STORE, StoreUse},
    wan::{Wan, WanLink},
};

mod act;

/// A plan of a pool: the program, the sites, and how the pool is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program, and its arguments. All nodes run the same.
    pub program: Vec<OsString>,
    /// The sites, and the number of nodes at each.
    pub sites: Sites,
    /// Workers of each node. Default: the cores of this machine divided by the nodes, at least 1.
    pub threads: Option<u32>,
    /// The policy by which an idle node chooses whom to ask for work: `crs`, `rs` or `mw`.
    pub steal: Option<String>,
    /// The time after which the pool ends; `None`: what the environment says, or never.
    pub time_limit: Option<Duration>,
    /// The links between sites; `None`: this machine's own, without relays unless a partition is to come.
    pub wan: Option<WanLink>,
    /// The faults that happen while the pool runs.
    pub faults: Vec<Fault>,
    /// The store to which the nodes write what they finish, in case that all of them are lost.
    pub store: Option<StoreUse>,
    /// The pool's credential file; `None`: a new one, which goes with the pool. A store that is to be read again needs the
    /// same credential each time, by which its files are authenticated.
    pub credential: Option<PathBuf>,
    /// Events are written to this file, which is made anew.
    pub events: Option<PathBuf>,
    /// More variables for the environment of every node. They stand above the environment of this process, and below the
    /// variables that define the pool.
    pub env: Vec<(OsString, OsString)>,
    /// The use that is made of the nodes' output.
    pub output: Output,
    /// What is to be seen of the pool: dashboard, report, trace.
    pub views: Views,
}

/// The use that is made of the nodes' output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Shows all output: the master's goes where this process prints, the other nodes' goes to stderr, each line with the
    /// node's name and site. When another node becomes master, its output from then on goes to stdout. Output that the
    /// first master has printed stays printed.
    Show,
    /// Kept: the output is in the [`PoolOutcome`].
    Keep,
}

impl Plan {
    /// A plan for that program on those sites, with all other settings at their defaults.
    #[must_use]
    pub fn new<A: Into<OsString>>(program: impl IntoIterator<Item = A>, sites: Sites) -> Plan {
        Plan {
            program: program.into_iter().map(Into::into).collect(),
            sites,
            threads: None,
            steal: None,
            time_limit: None,
            wan: None,
            faults: Vec::new(),
            store: None,
            credential: None,
            events: None,
            env: Vec::new(),
            output: Output::Show,
            views: Views::default(),
        }
    }

    fn threads(&self) -> u32 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        self.threads.unwrap_or((cores / self.sites.nodes()).max(1))
    }
}

/// The end of a pool: exit codes, events and output.
#[derive(Debug)]
pub struct PoolOutcome {
    /// The exit code: that of `main`, wherever it came to its end; 128 and the signal's number, if the last master or we
    /// were ended by a signal; [`ALL_KILLED`] if all nodes were killed at once.
    pub code: i32,
    /// All events of the run, in the order in which they were written.
    pub records: Vec<Record>,
    /// The exit status of each node's process.
    pub nodes: BTreeMap<String, ExitStatus>,
    /// The output of the masters on stdout, if it was kept.
    pub stdout: String,
    /// The text on stderr, if it was kept: the other nodes' output, the masters' stderr, and messages of the launcher.
    pub stderr: String,
}

/// The exit code of a pool whose nodes were all killed at once ([`What::KillAll`]) before `main` came to its end: 128 and the
/// number of SIGKILL, as of a program that was killed.
pub const ALL_KILLED: i32 = 137;

/// The error for a program that the system does not start.
#[must_use]
pub fn cannot_start(program: &OsStr, error: &io::Error) -> anyhow::Error {
    let program = program.display();
    let text = format!(
        "cannot start {program}: {error}; name a program that is there and may be executed"
    );
    CodedError::new(codes::CANNOT_START, text).into()
}

/// Ends a pool from outside, for instance at Ctrl-C.
#[derive(Clone)]
pub struct Stopper(Sender<PoolNews>);

impl Stopper {
    /// Passes the signal on to all nodes, and kills them if they do not end soon. A second call kills them at once.
    pub fn stop(&self, signal: i32) {
        // A pool that is gone needs no stopping.
        let _ = self.0.send(PoolNews::Stop(signal));
    }
}

enum PoolNews {
    /// The process of that node has ended, but it is still there to be waited for, and so is its number.
    Ended(usize),
    Stop(i32),
}

/// The channel by which a pool is controlled; made before the pool, so that a signal can reach the pool while it starts.
pub struct Control {
    sender: Sender<PoolNews>,
    news: Receiver<PoolNews>,
}

impl Control {
    /// A channel for a new pool.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "it is not a value like any other"
    )]
    pub fn new() -> Control {
        let (sender, news) = channel();
        Control { sender, news }
    }

    /// A handle that ends the pool.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.sender.clone())
    }
}

/// A pool that runs. Dropping it kills it.
pub struct LocalPool {
    plan: Plan,
    control: Control,
    nodes: Vec<StartedNode>,
    readers: Readers,
    stdout: Text,
    stderr: Text,
    wan: Option<Wan>,
    events: PathBuf,
    chronicle: Chronicle,
    records: Vec<Record>,
    since_ms: u64,
    began: Instant,
    /// Number of nodes that are there from the beginning.
    first: usize,
    /// The node that runs `main`, as far as is known.
    master: usize,
    /// The node whose `main` came to its end, and the exit code that it told.
    ended_by: Option<(String, i32)>,
    /// The moment when that was told: its process may take longer, to note the end of the run in a store.
    over: Option<Instant>,
    /// How a node of the plan failed before it was in, so that the others would have waited for it for ever.
    missing: Option<ExitStatus>,
    schedule: Schedule,
    /// The last state that was told of each node.
    told: BTreeMap<String, &'static str>,
    stopping: Option<Stopping>,
    bar: Bar,
    guard: ProcessGuard,
    /// What people see of the pool.
    window: Option<Window>,
    scratch: TempDir,
}

struct StartedNode {
    name: String,
    site: String,
    port: Port,
    process: Child,
    ended: Option<(ExitStatus, Instant)>,
    reported: bool,
    /// True if the launcher has killed the node, on purpose.
    killed: bool,
    drained: bool,
    pause: Option<Pause>,
}

/// The way in which a node is stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pause {
    ForAWhile,
    ForGood,
}

/// How far we are in ending what does not end by itself.
#[derive(Clone, Copy)]
struct Stopping {
    step: EndingStep,
    since: Instant,
    /// The signal that the launcher was told to pass on.
    signal: Option<i32>,
}

impl Stopping {
    fn new(step: EndingStep, signal: Option<i32>) -> Stopping {
        Stopping {
            step,
            since: Instant::now(),
            signal,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EndingStep {
    /// The master has ended: the others are expected to.
    Expected,
    /// The nodes were told to end: now they hand over their jobs.
    Told,
    /// The nodes were told again: now they leave without handing over.
    ToldAgain,
    /// The nodes were killed.
    Killed,
}

/// Time for the other nodes to end by themselves when `main` is over and its process has ended. Too short: nodes that
/// still say goodbye are told to end. Too long: the command hangs behind a node that does not end.
const EXPECTED: Duration = Duration::from_secs(5);
/// Time between the first and the second signal, after that. Too short: a node may take both for a single signal.
const TWICE: Duration = Duration::from_millis(150);
/// Time for the nodes to end when they have been told twice, before they are killed. Too short: nodes are killed that
/// would end. Too long: the command hangs.
const TOLD: Duration = Duration::from_secs(3);
/// Longest wait for the first node to listen before the others start: perhaps the program does not use satin.
const FOUNDING: Duration = Duration::from_secs(5);
/// A node that ends longer than this before the master is reported, even if its exit code is 0. Too short: nodes that see
/// the end before the master ends are reported. Too long: a node that left early goes unnoticed.
const EARLY: Duration = Duration::from_secs(1);
/// Time between two looks at the events while the caller waits for an event.
const LOOK: Duration = Duration::from_millis(2);
/// Time between two looks at the clock otherwise.
const TICK: Duration = Duration::from_millis(100);
/// Time in which the rest of the pipes' contents arrives when all nodes have ended. Too short: the end of the output is
/// lost. Too long: a process left behind, which holds the pipe, delays the end.
const PIPES: Duration = Duration::from_secs(1);

impl LocalPool {
    /// Starts the processes of a pool.
    ///
    /// # Errors
    /// If a process cannot be started, or what it needs cannot be made. Nothing is left behind.
    pub fn start(plan: Plan, control: Control) -> Result<LocalPool> {
        plan.sites.check()?;
        faults::check(&plan.faults, &plan.sites)?;
        ensure!(!plan.program.is_empty(), "no program");
        let scratch = tempfile::Builder::new()
            .prefix("satin-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        let guard = ProcessGuard::start(scratch.path()).context("cannot start /bin/sh")?;
        give_credential(plan.credential.as_deref(), &scratch.path().join(CREDENTIAL))?;
        let events = match &plan.events {
            Some(file) => std::path::absolute(file)?,
            None => scratch.path().join("events"),
        };
        File::create(&events).with_context(|| format!("cannot write {}", events.display()))?;
        let parts = |fault: &Fault| matches!(fault.what, What::Partition(..));
        let needs_relays = plan.faults.iter().any(parts);
        let link = plan.wan.or(needs_relays.then(WanLink::default));
        let mut pool = LocalPool {
            chronicle: Chronicle::open(&events)?,
            wan: link.map(Wan::start).transpose()?,
            first: plan.sites.nodes() as usize,
            master: 0,
            ended_by: None,
            over: None,
            missing: None,
            schedule: Schedule::new(&plan.faults),
            told: BTreeMap::new(),
            control,
            nodes: Vec::new(),
            readers: Readers::new(),
            stdout: Text::default(),
            stderr: Text::default(),
            events,
            records: Vec::new(),
            since_ms: events::unix_ms(),
            began: Instant::now(),
            stopping: None,
            bar: Bar::default(),
            guard,
            window: None,
            scratch,
            plan,
        };
        let sites = pool.plan.sites.clone();
        let seats: Vec<(&str, Port)> = sites
            .0
            .iter()
            .flat_map(|site| (0..site.nodes).map(|_| site.name.as_str()))
            .map(|site| Ok((site, Port::claim()?)))
            .collect::<io::Result<_>>()
            .context("cannot find a free port")?;
        let all: Vec<(&str, SocketAddr)> = seats
            .iter()
            .map(|(site, port)| (*site, port.addr))
            .collect();
        pool.add_routes(&all)?;
        pool.open_window(&all)?;
        for (site, port) in seats {
            pool.launch(site, port)?;
            if pool.nodes.len() == 1 && !pool.founded() {
                break;
            }
        }
        Ok(pool)
    }

    /// Shows what is to be seen of the pool, which is about to be at these addresses.
    fn open_window(&mut self, all: &[(&str, SocketAddr)]) -> Result<()> {
        let views = self.plan.views.clone();
        if views.is_empty() {
            return Ok(());
        }
        views.check()?;
        let hosts = all.iter().map(|(_, addr)| addr.to_string()).collect();
        let program = Path::new(&self.plan.program[0]);
        let title = program.file_name().unwrap_or(program.as_os_str());
        let title = title.to_string_lossy();
        let join = Join::Hosts(hosts);
        let window = Window::on_pool(views, &title, None, join, &self.credential())?;
        if let Some(url) = window.url() {
            self.say(format_args!("dashboard: {url}"));
        }
        self.window = Some(window);
        Ok(())
    }

    /// The URL of the dashboard, if there is one.
    #[must_use]
    pub fn dashboard(&self) -> Option<&str> {
        self.window.as_ref()?.url()
    }

    /// Writes what is to be read of the pool, which is over.
    fn close_window(&mut self) {
        let Some(window) = self.window.take() else {
            return;
        };
        if let Err(error) = window.close() {
            return self.say(format_args!("{error}"));
        }
        for (what, file) in [
            ("report", &self.plan.views.report),
            ("trace", &self.plan.views.trace),
        ] {
            if let Some(file) = file {
                self.say(format_args!("{what}: {}", file.display()));
            }
        }
    }

    /// Adds a node to a site, new or not; it joins while the pool runs. Its name.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn add(&mut self, site: &str) -> Result<String> {
        let port = Port::claim().context("cannot find a free port")?;
        let new = self.nodes.iter().all(|node| node.site != site);
        self.add_routes(&[(site, port.addr)])?;
        if new {
            // Nodes that are there already are far from the new site.
            let others: Vec<(String, SocketAddr)> = self
                .nodes
                .iter()
                .map(|node| (node.site.clone(), node.port.addr))
                .collect();
            for (other, addr) in others {
                self.add_route(site, &other, addr)?;
            }
        }
        self.launch(site, port)
    }

    /// The links between sites, if they are emulated.
    #[must_use]
    pub fn wan(&self) -> Option<&Wan> {
        self.wan.as_ref()
    }

    /// The file in which this pool has its credential. The file goes with the pool.
    #[must_use]
    pub fn credential(&self) -> PathBuf {
        self.scratch.path().join(CREDENTIAL)
    }

    /// The process of a node that was started, be it running or not: the number of its process group too.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<u32> {
        let node = self.nodes.iter().find(|node| node.name == name)?;
        Some(node.process.id())
    }

    /// Sends a signal to all processes of a node; does nothing if it has ended.
    pub fn signal(&self, name: &str, signal: i32) {
        if let Some(node) = self.nodes.iter().find(|node| node.name == name) {
            node.signal(signal);
        }
    }

    /// A handle that ends this pool.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.control.stopper()
    }

    /// Whether every node has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.nodes.iter().all(|node| node.ended.is_some())
    }

    /// The text on stderr so far, if it is kept: see [`PoolOutcome::stderr`].
    #[must_use]
    pub fn stderr(&self) -> String {
        output::text(&self.stderr)
    }

    /// All events so far.
    ///
    /// # Errors
    /// If the events file cannot be read.
    pub fn records(&mut self) -> Result<&[Record]> {
        for record in self.chronicle.take()? {
            self.note(&record);
            self.records.push(record);
        }
        Ok(&self.records)
    }

    /// Waits until something has happened, or `patience` is over, or every node has ended: whether it has happened.
    ///
    /// # Errors
    /// If the events file cannot be read.
    pub fn wait_for(
        &mut self,
        patience: Duration,
        happened: impl Fn(&[Record]) -> bool,
    ) -> Result<bool> {
        let until = Instant::now() + patience;
        loop {
            if happened(self.records()?) {
                return Ok(true);
            }
            if Instant::now() >= until || self.has_ended() {
                return Ok(false);
            }
            self.step(LOOK);
        }
    }

    /// Waits for the end of the pool.
    ///
    /// # Errors
    /// If the events file cannot be read.
    pub fn wait(mut self) -> Result<PoolOutcome> {
        while !self.has_ended() {
            self.step(TICK);
        }
        self.records()?;
        lines::clear_bar();
        self.readers.finish(PIPES);
        self.records()?;
        self.close_window();
        let code = self.code();
        self.sum_up(code);
        self.tell_if_lost();
        self.tell_if_no_node(code);
        let ends = self.nodes.iter().filter_map(|node| {
            let (status, _) = node.ended?;
            Some((node.name.clone(), status))
        });
        Ok(PoolOutcome {
            code,
            nodes: ends.collect(),
            records: std::mem::take(&mut self.records),
            stdout: output::text(&self.stdout),
            stderr: output::text(&self.stderr),
        })
    }

    /// A program that ends well and has never been a node ran alone, perhaps in several processes, of which each has
    /// printed an answer of its own.
    fn tell_if_no_node(&self, code: i32) {
        let program = self.plan.program[0].to_string_lossy();
        if code == 0 && self.stopping_signal().is_none() && !self.schedule.anybody_was_in() {
            let alone = match self.nodes.len() {
                1 => "it ran alone".to_owned(),
                processes => format!("its {processes} processes ran alone"),
            };
            self.say(format_args!(
                "{program} was never a node of the pool: {alone}. A program that is to be a node begins with #[satin::main] \
                 or satin::run"
            ));
        }
    }

    fn stopping_signal(&self) -> Option<i32> {
        self.stopping.and_then(|stopping| stopping.signal)
    }

    /// Whether it is time to start the others: the first node listens, or does not seem to be a node at all.
    fn founded(&mut self) -> bool {
        let until = Instant::now() + FOUNDING;
        loop {
            let listens = |record: &Record| matches!(record.event, Event::Node { .. });
            if self
                .records()
                .is_ok_and(|records| records.iter().any(listens))
            {
                return true;
            }
            if self.nodes[0].ended.is_some() || self.stopping.is_some() {
                return false;
            }
            if Instant::now() >= until {
                return true;
            }
            self.step(LOOK);
        }
    }

    /// Handles what happens within `patience`.
    fn step(&mut self, patience: Duration) {
        let due = self.schedule.patience(Instant::now());
        match (self.control.news).recv_timeout(due.map_or(patience, |due| due.min(patience))) {
            Ok(PoolNews::Ended(index)) => self.ended(index),
            Ok(PoolNews::Stop(signal)) => self.stop(signal),
            // We hold a sender ourselves.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        // An error will come again, when the caller asks for the records.
        let _ = self.records();
        let now = Instant::now();
        self.bar.tick(now);
        self.act(now);
        self.stop_if_incomplete();
        if let Some(Stopping {
            step,
            since,
            signal,
        }) = self.stopping
        {
            match step {
                EndingStep::Expected if now > since + EXPECTED => {
                    for node in self.nodes.iter().filter(|node| node.ended.is_none()) {
                        self.say(format_args!(
                            "{} does not end though the pool has: stopping it",
                            node.name
                        ));
                    }
                    self.tell_all(raw(Signal::TERM), signal);
                }
                EndingStep::Told if now > since + TWICE => {
                    self.signal_all(signal.unwrap_or(raw(Signal::TERM)));
                    self.stopping = Some(Stopping::new(EndingStep::ToldAgain, signal));
                }
                EndingStep::ToldAgain if now > since + TOLD => self.kill_all(),
                _ => {}
            }
        }
        self.report(now);
    }

    fn is_running(&self, index: usize) -> bool {
        self.nodes[index].ended.is_none()
    }

    fn ended(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        // Processes that the node started and did not wait for go with it. Its number is not given to others before it is
        // waited for.
        node.signal(raw(Signal::KILL));
        let status = match node.process.wait() {
            Ok(status) => status,
            Err(error) => {
                let name = node.name.clone();
                self.say(format_args!("cannot wait for {name}: {error}"));
                ExitStatus::default()
            }
        };
        let node = &mut self.nodes[index];
        node.ended = Some((status, Instant::now()));
        self.guard.forget(node.process.id());
        if let Err(error) = self.remove_routes(index) {
            self.say(format_args!(
                "cannot close the relays of a node that has ended: {error:#}"
            ));
        }
        // Reads the events that the node wrote before it ended.
        let _ = self.records();
        if self.has_left_early(index, status) {
            let name = &self.nodes[index].name;
            self.tell(format_args!("{name} left before it was in"));
            self.nodes[index].reported = true;
        }
        if self.stopping.is_none() {
            self.go_on_without(index, status);
        }
    }

    /// Whether that node was asked to leave and did so before it was in: it had nothing to hand over, and ends as any process
    /// does that SIGTERM ends.
    fn has_left_early(&self, index: usize, status: ExitStatus) -> bool {
        let node = &self.nodes[index];
        let by_request = code(status) == 128 + raw(Signal::TERM);
        node.drained && !self.has_been_in(index) && by_request
    }

    /// Whether the pool can go on after the end of that node, and if not, what becomes of the others.
    fn go_on_without(&mut self, index: usize, status: ExitStatus) {
        let name = &self.nodes[index].name;
        if let Some((last, _)) = &self.ended_by {
            if last == name {
                self.expect_the_end();
            }
            return;
        }
        // A program that does not use Satin, or has not come so far: its first process is what counts.
        let never_a_pool = !self.has_been_in(0);
        let candidates = (0..self.nodes.len()).filter(|other| {
            let lives = self.is_running(*other) && self.nodes[*other].pause != Some(Pause::ForGood);
            lives && self.has_been_in(*other)
        });
        let was_master = index == self.master;
        match (never_a_pool, candidates.count()) {
            (true, _) if index != 0 => {}
            (true, _) if status.success() => self.expect_the_end(),
            // The others will never be let in.
            (true, _) if status.signal().is_none() => self.tell_all(raw(Signal::TERM), None),
            (false, 1..) => {
                if was_master && !self.nodes[index].killed && !self.nodes[index].drained {
                    self.tell(format_args!("{name} (the master) {}", ExitReason(status)));
                    self.nodes[index].reported = true;
                }
            }
            _ => {
                if !self.nodes[index].drained || !status.success() {
                    let master = if was_master { " (the master)" } else { "" };
                    let after = self.began.elapsed().as_secs_f64();
                    self.say(format_args!(
                        "{name}{master} {} after {after:.1} s: nobody is left who could be master, stopping the others",
                        ExitReason(status)
                    ));
                }
                self.tell_all(raw(Signal::TERM), None);
            }
        }
    }

    /// Root jobs begin when all nodes of the plan are in. Ends the pool if one of them has failed before. (One that has ended
    /// well may have heard that the program is over.)
    fn stop_if_incomplete(&mut self) {
        if self.stopping.is_some() || self.over.is_some() || !self.waits_for_nodes() {
            return;
        }
        let failed = (0..self.first.min(self.nodes.len())).find_map(|index| {
            let (status, _) = self.nodes[index].ended?;
            (!status.success() && !self.has_been_in(index)).then_some((index, status))
        });
        let Some((index, status)) = failed else {
            return;
        };
        self.missing = Some(status);
        self.nodes[index].reported = true;
        self.say(format_args!(
            "{} {} before it was in the pool, which begins when all nodes are in: stopping the others",
            self.nodes[index].name,
            ExitReason(status)
        ));
        self.tell_all(raw(Signal::TERM), None);
    }

    /// `main` is over. Ends the nodes that cannot find out by themselves.
    fn expect_the_end(&mut self) {
        self.stopping = Some(Stopping::new(EndingStep::Expected, None));
        for index in 0..self.nodes.len() {
            let never_in = index >= self.first && !self.has_been_in(index);
            if self.nodes[index].pause.is_some() {
                self.nodes[index].signal(raw(Signal::KILL));
            } else if never_in && self.ended_by.is_some() && self.is_running(index) {
                // No node is left that could let it in, or tell it that the pool has ended.
                let name = &self.nodes[index].name;
                self.tell(format_args!("{name} came too late to be let in"));
                self.nodes[index].reported = true;
                self.nodes[index].signal(raw(Signal::TERM));
            }
        }
    }

    /// Prints a message if a node has ended before its time.
    fn report(&mut self, now: Instant) {
        let end = (self
            .stopping
            .filter(|stopping| stopping.step == EndingStep::Expected))
        .map(|stopping| stopping.since);
        let stopped = self.stopping.is_some() && end.is_none();
        let last = self.ended_by.as_ref().map(|(name, _)| name.clone());
        let over = self.over.or(end);
        let mut news = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some((status, at)) = node.ended else {
                continue;
            };
            let is_last = last.as_ref() == Some(&node.name) || (last.is_none() && index == 0);
            if node.reported || node.killed || node.pause.is_some() || is_last {
                continue;
            }
            let early = over.is_none_or(|over| at + EARLY < over) && !node.drained;
            let wrong = !status.success();
            if stopped || (!wrong && !early) {
                node.reported = end.is_some();
            } else if wrong || now > at + EARLY {
                node.reported = true;
                news.push(format!(
                    "{} {} too early, after {:.1} s",
                    node.name,
                    ExitReason(status),
                    (at - self.began).as_secs_f64(),
                ));
            }
        }
        for news in news {
            self.say(format_args!("{news}"));
        }
    }

    fn stop(&mut self, signal: i32) {
        match self.stopping {
            Some(Stopping {
                signal: Some(_), ..
            }) => self.kill_all(),
            _ => {
                let what = match signal {
                    _ if signal == raw(Signal::INT) => "interrupted",
                    _ => "asked to end",
                };
                self.say(format_args!(
                    "{what}: all nodes are stopped; once more kills them"
                ));
                self.tell_all(signal, Some(signal));
            }
        }
    }

    fn tell_all(&mut self, signal: i32, told: Option<i32>) {
        self.signal_all(signal);
        self.stopping = Some(Stopping::new(EndingStep::Told, told));
    }

    fn signal_all(&mut self, signal: i32) {
        for index in 0..self.nodes.len() {
            self.nodes[index].signal(signal);
            self.resume(index);
        }
    }

    /// True if it was stopped.
    fn resume(&mut self, index: usize) -> bool {
        let was_stopped = self.nodes[index].pause.take().is_some();
        if was_stopped {
            self.nodes[index].signal(raw(Signal::CONT));
        }
        was_stopped
    }

    fn kill_all(&mut self) {
        for node in &self.nodes {
            node.signal(raw(Signal::KILL));
        }
        let signal = self.stopping_signal();
        self.stopping = Some(Stopping::new(EndingStep::Killed, signal));
    }

    /// Whether this process shows how far the pool is: its nodes do not, then.
    fn shows_bar(&self) -> bool {
        self.plan.output == Output::Show && bar::is_wanted()
    }

    /// What nodes are to show.
    fn progress_of_nodes(&self) -> String {
        match self.shows_bar() {
            true => "no".into(),
            false => std::env::var("SATIN_PROGRESS").unwrap_or_default(),
        }
    }

    /// Our own words, beside those of the nodes.
    fn say(&self, words: fmt::Arguments<'_>) {
        self.sink(Stream::Stderr)
            .put(format!("satin: {words}\n").as_bytes());
    }

    fn sink(&self, stream: Stream) -> Sink {
        match (self.plan.output, stream) {
            (Output::Keep, Stream::Stdout) => Sink::Kept(Text::clone(&self.stdout)),
            (Output::Keep, Stream::Stderr) => Sink::Kept(Text::clone(&self.stderr)),
            (Output::Show, Stream::Stdout) => Sink::Stdout,
            (Output::Show, Stream::Stderr) => Sink::Stderr,
        }
    }

    /// Other sites reach these new nodes by relays.
    fn add_routes(&mut self, new: &[(&str, SocketAddr)]) -> Result<()> {
        let mut sites: Vec<String> = self.nodes.iter().map(|node| node.site.clone()).collect();
        sites.extend(new.iter().map(|(site, _)| (*site).to_owned()));
        sites.sort_unstable();
        sites.dedup();
        for from in &sites {
            for (to, addr) in new.iter().filter(|(to, _)| to != from) {
                self.add_route(from, to, *addr)?;
            }
        }
        Ok(())
    }

    fn add_route(&mut self, from: &str, to: &str, addr: SocketAddr) -> Result<()> {
        let Some(wan) = &self.wan else { return Ok(()) };
        let relay = wan
            .relay(from, to, addr)
            .with_context(|| format!("cannot make a relay from {from} to {to}"))?;
        let mut text = fs::read_to_string(self.routes(from)).unwrap_or_default();
        text += &format!("{addr} {relay}\n");
        self.write_routes(from, &text)
    }

    /// Nodes read this file whenever they dial, so it changes at once or not at all.
    fn write_routes(&self, from: &str, text: &str) -> Result<()> {
        let file = self.routes(from);
        let new = file.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, &file)?;
        Ok(())
    }

    /// Takes a process that has ended out of the emulated network. Its machine would refuse datagrams, which emulated
    /// links cannot: so other nodes reach its port without them from now on; but not across a partition.
    fn remove_routes(&mut self, index: usize) -> Result<()> {
        let Some(wan) = &self.wan else { return Ok(()) };
        let node = &self.nodes[index];
        let gone = format!("{} ", node.port.addr);
        let mut sites: Vec<&str> = self.nodes.iter().map(|node| &*node.site).collect();
        sites.sort_unstable();
        sites.dedup();
        for from in sites {
            if from != node.site && !wan.is_cut(from, &node.site) {
                let text = fs::read_to_string(self.routes(from))?;
                let left = text.lines().filter(|line| !line.starts_with(&gone));
                let left: String = left.map(|line| format!("{line}\n")).collect();
                self.write_routes(from, &left)?;
            }
        }
        Ok(())
    }

    fn routes(&self, site: &str) -> PathBuf {
        self.scratch.path().join(format!("routes-of-{site}"))
    }

    /// What becomes of the nodes' output: this process shows it already.
    fn output_of_nodes(&self) -> String {
        let given = (self.plan.env.iter()).find(|(name, _)| name.as_os_str() == "SATIN_OUTPUT");
        let given = given.map(|(_, value)| value.to_string_lossy().into_owned());
        let given = given.or_else(|| Config::load().ok()?.output);
        match given {
            Some(given) if given.trim() == "all" => "kept".into(),
            given => given.unwrap_or_default(),
        }
    }

    fn launch(&mut self, site: &str, port: Port) -> Result<String> {
        let index = self.nodes.len();
        let number = self.nodes.iter().filter(|node| node.site == site).count();
        let name = format!("{site}-{number}");
        let program = Path::new(&self.plan.program[0]);
        let mut command = Command::new(program);
        command.args(&self.plan.program[1..]).process_group(0);
        for (variable, _) in std::env::vars_os() {
            if OURS.iter().any(|ours| variable == *ours) {
                command.env_remove(variable);
            }
        }
        command.envs(self.plan.env.iter().map(|(name, value)| (name, value)));
        command
            .env("SATIN_NAME", &name)
            .env("SATIN_SITE", site)
            .env("SATIN_LISTEN", port.addr.to_string())
            .env("SATIN_THREADS", self.plan.threads().to_string())
            .env("SATIN_CREDENTIAL", self.credential())
            .env("SATIN_NODES", self.plan.sites.nodes().to_string())
            .env("SATIN_PROGRESS", self.progress_of_nodes())
            .env("SATIN_OUTPUT", self.output_of_nodes())
            .env("SATIN_EVENTS", &self.events)
            .env(events::SINCE, self.since_ms.to_string());
        if let Some(store) = &self.plan.store {
            command.envs(store.variables());
        }
        if let Some(steal) = &self.plan.steal {
            command.env("SATIN_STEAL", steal);
        }
        if let Some(limit) = self.plan.time_limit {
            command.env("SATIN_TIME_LIMIT", limit.as_secs_f64().to_string());
        }
        if self.wan.is_some() {
            command.env(relay::VARIABLE, self.routes(site));
        }
        let living = self.nodes.iter().filter(|node| node.ended.is_none());
        let join: Vec<String> = living
            .take(JOIN_AT)
            .map(|node| node.port.addr.to_string())
            .collect();
        if index > 0 {
            command.env("SATIN_JOIN", join.join(","));
        }
        self.connect(&mut command, index);
        let mut process = command
            .spawn()
            .map_err(|error| cannot_start(program.as_os_str(), &error))?;
        self.guard.watch(process.id());
        self.read(&mut process, index, &name, site);
        let id = process.id();
        let sender = self.control.sender.clone();
        self.nodes.push(StartedNode {
            name: name.clone(),
            site: site.into(),
            port,
            process,
            ended: None,
            reported: false,
            killed: false,
            drained: false,
            pause: None,
        });
        std::thread::Builder::new()
            .name(format!("wait for {name}"))
            .spawn(move || {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                while let Some(pid) = pid(id)
                    && matches!(
                        waitid(WaitId::Pid(pid), options),
                        Err(rustix::io::Errno::INTR)
                    )
                {}
                let _ = sender.send(PoolNews::Ended(index));
            })?;
        Ok(name)
    }

    /// Connects a node's input and output.
    fn connect(&self, command: &mut Command, index: usize) {
        use std::io::IsTerminal;
        // A process group that is not in the foreground is stopped when it reads from the terminal.
        let reads = index == 0 && self.plan.output == Output::Show && !io::stdin().is_terminal();
        command.stdin(if reads {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        if index > 0 || self.plan.output == Output::Keep {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else if self.shows_bar() {
            // Text that the node writes past the bar would tear the bar apart.
            command.stderr(Stdio::piped());
            if io::stdout().is_terminal() {
                command.stdout(Stdio::piped());
            }
        }
    }

    fn read(&mut self, process: &mut Child, index: usize, name: &str, site: &str) {
        let prefix = match index {
            0 => String::new(),
            _ => format!("[{name} @ {site}] "),
        };
        let (out, err) = (self.sink(Stream::Stdout), self.sink(Stream::Stderr));
        match process.stdout.take() {
            Some(stdout) if index == 0 => self.readers.copy(stdout, out),
            Some(stdout) => {
                let (chronicle, name) = (self.chronicle.clone(), name.to_owned());
                let promoted = move || chronicle.is_master(&name);
                (self.readers).lines_until(stdout, prefix.clone(), err.clone(), promoted, out);
            }
            None => {}
        }
        if let Some(stderr) = process.stderr.take() {
            self.readers.lines(stderr, prefix, err);
        }
    }
}

#[derive(Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

impl Drop for LocalPool {
    fn drop(&mut self) {
        self.kill_all();
        let until = Instant::now() + TOLD;
        while !self.has_ended() && Instant::now() < until {
            self.step(LOOK);
        }
    }
}

impl StartedNode {
    fn signal(&self, signal: i32) {
        if self.ended.is_none()
            && let Some(pid) = pid(self.process.id())
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            // The process group may be gone already.
            let _ = kill_process_group(pid, signal);
        }
    }
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn raw(signal: Signal) -> i32 {
    signal.as_raw()
}

const CREDENTIAL: &str = "credential.pem";

/// Puts the pool's credential at `place`: a new one, or a link to the one that is given. Nodes are told `place` in both cases,
/// as the guard knows them by the name of its directory in their environment.
fn give_credential(given: Option<&Path>, place: &Path) -> Result<()> {
    let Some(given) = given else {
        return Ok(Credential::write_new(place)?);
    };
    // What is wrong with the file is told before anything starts.
    Credential::load(given)?;
    let given = std::path::absolute(given)?;
    std::os::unix::fs::symlink(&given, place)
        .with_context(|| format!("cannot link to {}", given.display()))
}

/// Number of addresses that a node that joins is told, in case that some of them are gone.
const JOIN_AT: usize = 4;

/// Variables that define a pool: never inherited from our own environment.
const OURS: [&str; 12] = [
    "SATIN_JOIN",
    "SATIN_ADVERTISE",
    "SATIN_POOL",
    "SATIN_NAME",
    "SATIN_SITE",
    "SATIN_WAN",
    "SATIN_EVENTS",
    "SATIN_EVENTS_SINCE",
    "SATIN_DASHBOARD",
    "SATIN_REPORT",
    "SATIN_TRACE",
    STORE,
];

/// The exit code that stands for how a process ended.
fn code(status: ExitStatus) -> i32 {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(by_signal).unwrap_or(1)
}

struct ExitReason(ExitStatus);

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "ended with exit code {code}"),
            (None, Some(signal)) => write!(f, "was ended by signal {signal}"),
            (None, None) => write!(f, "ended: {}", self.0),
        }
    }
}

/// The site of each node, as the nodes told.
#[must_use]
pub fn sites_of(records: &[Record]) -> HashMap<&str, &str> {
    records
        .iter()
        .filter_map(|record| match &record.event {
            Event::Node { site, .. } => Some((record.name.as_str(), site.as_str())),
            _ => None,
        })
        .collect()
}
