//! The pool while it runs: a session of `ssh` for each node.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use satin_runtime::observe::{
    events::{self, Event, Record},
    lines,
};

use super::{
    Launch, TOLD,
    script::MARK,
    ssh::{self, SSH_FAILED},
};
use crate::{
    bar::{self, Bar},
    chronicle::Chronicle,
    output::{Readers, Sink},
};

/// The end of a pool.
#[derive(Debug)]
pub struct LaunchOutcome {
    /// The exit code: that of `main`, wherever it came to its end; 128 and the signal's number, if we were ended by one.
    pub code: i32,
    /// All events of the run, in the order in which they arrived here.
    pub records: Vec<Record>,
}

/// Ends a pool from outside, for instance at Ctrl-C.
#[derive(Clone)]
pub struct LaunchStopper(Sender<LaunchNews>);

impl LaunchStopper {
    /// Asks all nodes to leave: what is finished goes to a store, if there is one. A second call ends them without that, and a third
    /// kills them.
    pub fn stop(&self, signal: i32) {
        // A pool that is gone needs no stopping.
        let _ = self.0.send(LaunchNews::Stop(signal));
    }
}

/// The channel by which a pool is controlled; made before the pool, so that a signal can reach the pool while it starts.
pub struct LaunchControl {
    sender: Sender<LaunchNews>,
    news: Receiver<LaunchNews>,
}

impl LaunchControl {
    /// A channel for a new pool.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "it is not a value like any other"
    )]
    pub fn new() -> LaunchControl {
        let (sender, news) = channel();
        LaunchControl { sender, news }
    }

    /// A handle that ends the pool.
    #[must_use]
    pub fn stopper(&self) -> LaunchStopper {
        LaunchStopper(self.sender.clone())
    }

    /// Was the pool stopped before it began?
    fn stopped(&self) -> Option<i32> {
        self.news.try_iter().find_map(|news| match news {
            LaunchNews::Stop(signal) => Some(signal),
            LaunchNews::Ended(..) => None,
        })
    }
}

enum LaunchNews {
    Ended(usize, SessionEnd),
    Stop(i32),
}

/// The end of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SessionEnd {
    /// The node has ended with this exit code.
    Exited(i32),
    /// The machine says why there is no node.
    Failed(String),
    /// `ssh` has ended without a word of the node.
    Lost,
}

impl SessionEnd {
    fn code(&self) -> i32 {
        match self {
            SessionEnd::Exited(code) => *code,
            SessionEnd::Failed(_) => 1,
            SessionEnd::Lost => SSH_FAILED,
        }
    }
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionEnd::Exited(126) => f.write_str(
                "ended with exit code 126: its shell could not execute the program, which was built for another system?",
            ),
            SessionEnd::Exited(127) => f.write_str(
                "ended with exit code 127: its shell did not find the program or what it needs",
            ),
            SessionEnd::Exited(code) => write!(f, "ended with exit code {code}"),
            SessionEnd::Failed(fault) => write!(f, "did not start: {fault}"),
            SessionEnd::Lost => f.write_str("is lost: the connection of ssh has ended"),
        }
    }
}

/// Longest wait for the first node to listen before the others start: perhaps the program does not use Satin. Too short: others
/// look for a node that is not there yet, and go on looking. Too long: a program without Satin begins late.
const FOUNDING: Duration = Duration::from_secs(20);
/// Time for the other nodes to end by themselves when `main` is over. Too short: nodes that still say goodbye are told to end.
/// Too long: the command hangs behind a node that does not end.
const EXPECTED: Duration = Duration::from_secs(8);
/// Time after which it is said who has not joined. Too short: it is said of every slow start. Too long: a stranger gives up first.
const SLOW_JOIN: Duration = Duration::from_secs(20);
/// Between two looks at the events.
const TICK: Duration = Duration::from_millis(50);
/// Time in which the rest of the output arrives when all nodes have ended. Too short: the end of the output is lost. Too long: a
/// process left behind, which holds the pipe, delays the end.
const PIPES: Duration = Duration::from_secs(2);
/// Bytes of the longest line of stderr; a longer one is cut in pieces, so that it cannot fill our memory.
const LINE_MAX: u64 = 64 << 10;
/// Time for which output of a node that is not known to be master is held back, as the news that it is comes another way.
/// Too short: the first words of a new master are shown as those of a job. Too long: the output of jobs is late.
const NEWS_OF_MASTER: Duration = Duration::from_millis(200);

struct Session {
    name: String,
    child: Child,
    words: Option<ChildStdin>,
    end: Option<SessionEnd>,
    was_in: bool,
    /// The node could not listen at its port.
    port_taken: Arc<AtomicBool>,
}

/// How far we are in ending what does not end by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndingStage {
    /// `main` is over: the others are expected to end.
    Expected,
    /// The nodes were asked to leave.
    Asked,
    /// The nodes were told to end at once.
    Told,
    /// The nodes were killed.
    Killed,
}

/// A pool that runs. Dropping it ends it.
pub struct LaunchedPool {
    launch: Launch,
    control: LaunchControl,
    sessions: Vec<Session>,
    readers: Readers,
    events: PathBuf,
    since_ms: u64,
    chronicle: Chronicle,
    records: Vec<Record>,
    began: Instant,
    master: usize,
    /// The node whose `main` came to its end, and the exit code that it told.
    ended_by: Option<(String, i32)>,
    /// The exit code of a node without which the pool could not begin.
    missing: Option<i32>,
    ending: Option<(EndingStage, Instant)>,
    signal: Option<i32>,
    all_were_in: bool,
    told_of_slow: bool,
    bar: Bar,
    _scratch: tempfile::TempDir,
}

impl LaunchedPool {
    /// Starts the nodes, on machines that are [prepared](Launch::prepare).
    ///
    /// # Errors
    /// If there is no `ssh`, or the events file cannot be written. Nodes that were started end.
    pub fn start(launch: Launch, control: LaunchControl) -> Result<LaunchedPool> {
        let scratch = tempfile::Builder::new()
            .prefix("satin-launch-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        let events = match &launch.events {
            Some(file) => std::path::absolute(file)?,
            None => scratch.path().join("events"),
        };
        File::create(&events).with_context(|| format!("cannot write {}", events.display()))?;
        let signal = control.stopped();
        let mut pool = LaunchedPool {
            chronicle: Chronicle::open(&events)?,
            control,
            sessions: Vec::new(),
            readers: Readers::new(),
            events,
            since_ms: events::unix_ms(),
            records: Vec::new(),
            began: Instant::now(),
            master: 0,
            ended_by: None,
            missing: None,
            ending: None,
            signal,
            all_were_in: false,
            told_of_slow: false,
            bar: Bar::default(),
            _scratch: scratch,
            launch,
        };
        for index in 0..pool.launch.nodes.len() {
            if pool.signal.is_some() {
                break;
            }
            pool.start_node(index)?;
            if index == 0 && !pool.founded() {
                break;
            }
        }
        Ok(pool)
    }

    /// Waits for the end of the pool.
    ///
    /// # Errors
    /// If the events file cannot be read.
    pub fn wait(mut self) -> Result<LaunchOutcome> {
        while self.sessions.iter().any(|session| session.end.is_none()) {
            self.step(TICK);
        }
        self.take_events()?;
        lines::clear_bar();
        self.readers.finish(PIPES);
        self.take_events()?;
        self.launch.clean_without_node(self.sessions.len());
        let code = self.code();
        let nobody_in = self.sessions.iter().all(|session| !session.was_in);
        if code == 0 && nobody_in && self.signal.is_none() {
            self.say(format_args!(
                "{} was never a node of the pool: each machine ran it alone. A program that is to be a node begins with \
                 #[satin::main] or satin::run",
                self.launch.nodes[0].program.name
            ));
        }
        Ok(LaunchOutcome {
            code,
            records: std::mem::take(&mut self.records),
        })
    }

    fn start_node(&mut self, index: usize) -> Result<()> {
        let node = &self.launch.nodes[index];
        let mut script = self.launch.script(node);
        let since = (events::SINCE.to_owned(), self.since_ms.to_string());
        // A bar needs a terminal, and there is none: the events tell us how far the pool is.
        let progress = ("SATIN_PROGRESS".to_owned(), "no".to_owned());
        let mut env = node.env.clone();
        env.push(since);
        if bar::is_wanted() {
            env.push(progress);
        }
        script.env = &env;
        let mut child = ssh::start(&node.host, &script.text())?;
        let name = node.host.name.clone();
        let prefix = match (index, &node.host.site) {
            (0, _) => String::new(),
            (_, Some(site)) => format!("[{name} @ {site}] "),
            (_, None) => format!("[{name}] "),
        };
        let port_taken = Arc::new(AtomicBool::new(false));
        if let Some(stdout) = child.stdout.take() {
            self.read_stdout(index, &name, prefix.clone(), stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            let reader = StderrReader {
                events: OpenOptions::new().append(true).open(&self.events)?,
                prefix,
                port_taken: Arc::clone(&port_taken),
            };
            let sender = self.control.sender.clone();
            std::thread::Builder::new()
                .name(format!("stderr of {name}"))
                .spawn(move || {
                    let end = reader.read(stderr);
                    let _ = sender.send(LaunchNews::Ended(index, end));
                })?;
        }
        self.sessions.push(Session {
            words: child.stdin.take(),
            name,
            child,
            end: None,
            was_in: false,
            port_taken,
        });
        Ok(())
    }

    fn read_stdout(
        &mut self,
        index: usize,
        name: &str,
        prefix: String,
        stdout: impl Read + Send + 'static,
    ) {
        if index == 0 {
            self.readers.copy(stdout, Sink::Stdout);
            return;
        }
        let (chronicle, name) = (self.chronicle.clone(), name.to_owned());
        let mut asked = Instant::now();
        let promoted = move || {
            // Once, where output begins: a job that prints much is not held up.
            if !chronicle.is_master(&name) && asked.elapsed() > NEWS_OF_MASTER {
                std::thread::sleep(NEWS_OF_MASTER);
            }
            asked = Instant::now();
            chronicle.is_master(&name)
        };
        self.readers
            .lines_until(stdout, prefix, Sink::Stderr, promoted, Sink::Stdout);
    }

    /// Whether it is time to start the others: the first node listens, or does not seem to be a node at all.
    fn founded(&mut self) -> bool {
        let until = Instant::now() + FOUNDING;
        loop {
            self.step(TICK);
            if self.sessions[0].end.is_some() || self.ending.is_some() {
                return false;
            }
            let listens = |record: &Record| matches!(record.event, Event::Node { .. });
            if self.records.iter().any(listens) || Instant::now() >= until {
                return true;
            }
        }
    }

    /// Handles what happens within `patience`.
    fn step(&mut self, patience: Duration) {
        match self.control.news.recv_timeout(patience) {
            Ok(LaunchNews::Ended(index, end)) => self.ended(index, end),
            Ok(LaunchNews::Stop(signal)) => self.stop(signal),
            // We hold a sender ourselves.
            Err(_) => {}
        }
        // An error will come again, when the caller asks for the records.
        let _ = self.take_events();
        self.bar.tick(Instant::now());
        self.tell_of_slow();
        match self.ending {
            Some((EndingStage::Expected, since)) if since.elapsed() > EXPECTED => {
                self.tell_all("TERM");
                self.ending = Some((EndingStage::Told, Instant::now()));
            }
            Some((EndingStage::Told, since)) if since.elapsed() > TOLD => self.kill_all(),
            Some((EndingStage::Killed, since)) if since.elapsed() > TOLD => self.hang_up(),
            Some((EndingStage::Asked, since)) if since.elapsed() > self.patience() => {
                self.kill_all()
            }
            _ => {}
        }
    }

    /// Time that nodes may take to leave.
    fn patience(&self) -> Duration {
        Duration::from_secs(self.launch.grace_s) + EXPECTED
    }

    fn take_events(&mut self) -> Result<()> {
        for record in self.chronicle.take()? {
            self.note(&record);
            self.records.push(record);
        }
        Ok(())
    }

    fn note(&mut self, record: &Record) {
        if bar::is_wanted() {
            self.bar.follow(&record.event, Instant::now());
        }
        let name = &record.name;
        let index = (self.sessions.iter()).position(|session| session.name == *name);
        match &record.event {
            Event::Joined { .. } => self.enter(index),
            Event::Master { term, .. } => {
                self.enter(index);
                self.all_were_in |= *term > 0;
                if let Some(index) = index
                    && std::mem::replace(&mut self.master, index) != index
                    && self.ending.is_none()
                {
                    self.say(format_args!(
                        "{name} is master now: `main` begins again there"
                    ));
                }
            }
            Event::RootStarted { .. } => self.all_were_in = true,
            Event::PoolEnded { code } => {
                self.ended_by = Some((name.clone(), *code));
                if self.ending.is_none() {
                    self.ending = Some((EndingStage::Expected, Instant::now()));
                }
            }
            _ => {}
        }
    }

    fn enter(&mut self, index: Option<usize>) {
        if let Some(index) = index {
            self.sessions[index].was_in = true;
        }
        let all = self.sessions.len() == self.launch.nodes.len()
            && self.sessions.iter().all(|session| session.was_in);
        if all && !std::mem::replace(&mut self.all_were_in, true) && lines::has_terminal() {
            let count = self.sessions.len();
            self.say(format_args!(
                "{count} nodes are in; find them at {}",
                self.launch.join
            ));
        }
    }

    /// Says once who has not joined: most often a firewall.
    fn tell_of_slow(&mut self) {
        let is_time = self.began.elapsed() > SLOW_JOIN;
        if self.told_of_slow || self.all_were_in || self.ending.is_some() || !is_time {
            return;
        }
        self.told_of_slow = true;
        let late = self.sessions.iter().filter(|session| !session.was_in);
        let late: Vec<&str> = late.map(|session| &*session.name).collect();
        self.say(format_args!(
            "still waiting for {} to join at {}: if that goes on, a firewall stops UDP between the machines, or the name means \
             another machine there (see `address` and `listen_port`)",
            late.join(", "),
            self.launch.join
        ));
    }

    fn ended(&mut self, index: usize, end: SessionEnd) {
        let session = &mut self.sessions[index];
        drop(session.words.take());
        session.end = Some(end.clone());
        // Its `ssh` ends too, unless a process that the node left behind holds the other end of its output.
        let until = Instant::now() + PIPES;
        while matches!(session.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        session.hang_up();
        let _ = session.child.wait();
        // What the node told before it ended.
        let _ = self.take_events();
        self.go_on_without(index, &end);
    }

    /// Whether the pool can go on after the end of that node, and if not, what becomes of the others.
    fn go_on_without(&mut self, index: usize, end: &SessionEnd) {
        let Session {
            name,
            was_in,
            port_taken,
            ..
        } = &self.sessions[index];
        let is_first = index == 0 && !was_in;
        if self.ending.is_some() {
            return;
        }
        if is_first && *end == SessionEnd::Exited(0) {
            // No program of Satin.
            self.ending = Some((EndingStage::Expected, Instant::now()));
            return;
        }
        let can_go_on = self
            .sessions
            .iter()
            .any(|other| other.end.is_none() && other.was_in);
        if can_go_on && (*was_in || self.all_were_in) {
            let left = was_in
                .then_some(())
                .filter(|()| *end == SessionEnd::Exited(0));
            match left {
                Some(()) => self.say(format_args!("{name} has left")),
                None => self.say(format_args!("{name} {end}; the pool goes on")),
            }
            return;
        }
        let hint = match port_taken.load(Ordering::Relaxed) {
            true => format!(
                ". Its port is taken: give {name} another `listen_port` in the file of hosts, or end the program that has it"
            ),
            false => String::new(),
        };
        let when = match was_in {
            true => "and no other node is in",
            false => "before it was in the pool, which begins when all nodes are in",
        };
        let words = format!("{name} {end}, {when}: the others are stopped{hint}");
        self.say(format_args!("{words}"));
        self.missing = Some(end.code());
        self.tell_all("TERM");
        self.ending = Some((EndingStage::Told, Instant::now()));
    }

    fn stop(&mut self, signal: i32) {
        let step = self
            .ending
            .filter(|_| self.signal.is_some())
            .map(|(step, _)| step);
        self.signal = Some(signal);
        match step {
            None | Some(EndingStage::Expected) => {
                let up_to = self.launch.grace_s;
                self.say(format_args!(
                    "interrupted: all nodes are asked to leave, which may take up to {up_to} s; once more ends them at once"
                ));
                self.tell_all("TERM");
                self.ending = Some((EndingStage::Asked, Instant::now()));
            }
            Some(EndingStage::Asked) => {
                self.say(format_args!(
                    "all nodes are told to end at once; once more kills them"
                ));
                self.tell_all("TERM");
                self.ending = Some((EndingStage::Told, Instant::now()));
            }
            Some(EndingStage::Told | EndingStage::Killed) => self.kill_all(),
        }
    }

    /// Sends a word to all nodes that run.
    fn tell_all(&mut self, word: &str) {
        for session in &mut self.sessions {
            if let Some(words) = &mut session.words {
                // A connection that is gone ends its node.
                let _ = words.write_all(format!("{word}\n").as_bytes());
            }
        }
    }

    fn kill_all(&mut self) {
        self.tell_all("KILL");
        self.ending = Some((EndingStage::Killed, Instant::now()));
    }

    /// Ends the connections: machines that do not answer are given up.
    fn hang_up(&mut self) {
        for session in &mut self.sessions {
            session.hang_up();
        }
        self.ending = Some((EndingStage::Killed, Instant::now()));
    }

    fn say(&self, words: fmt::Arguments<'_>) {
        Sink::Stderr.put(format!("satin: {words}\n").as_bytes());
    }

    fn code(&self) -> i32 {
        if let Some(signal) = self.signal {
            return 128 + signal;
        }
        if let Some(code) = self.missing {
            return code;
        }
        let end = |index: usize| {
            self.sessions
                .get(index)
                .and_then(|session| session.end.as_ref())
        };
        match &self.ended_by {
            Some((name, told)) => {
                let index = (self.sessions.iter()).position(|session| session.name == *name);
                match index.and_then(end) {
                    Some(SessionEnd::Exited(code)) => *code,
                    // The connection broke after the end of `main`.
                    _ => *told,
                }
            }
            None => end(self.master).map_or(1, SessionEnd::code),
        }
    }
}

impl Drop for LaunchedPool {
    fn drop(&mut self) {
        // Machines end their nodes when the connection ends.
        for session in &mut self.sessions {
            drop(session.words.take());
            session.hang_up();
            let _ = session.child.wait();
        }
    }
}

impl Session {
    fn hang_up(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            // It may end at this moment by itself.
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }
}

/// Reads the standard error of a session: lines for us among those of the node.
struct StderrReader {
    events: File,
    prefix: String,
    port_taken: Arc<AtomicBool>,
}

impl StderrReader {
    /// Reads until the node has ended, or the connection.
    fn read(mut self, stderr: impl Read) -> SessionEnd {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            match stderr.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return SessionEnd::Lost,
            }
            // The program may have begun a line.
            let mark = line.iter().position(|byte| *byte == MARK);
            let (theirs, ours) = line.split_at(mark.unwrap_or(line.len()));
            if !theirs.is_empty() {
                self.show(theirs);
            }
            if let Some(end) = self.take(ours) {
                return end;
            }
        }
    }

    fn show(&self, line: &[u8]) {
        if memchr::memmem::find(line, b"cannot listen on").is_some() {
            self.port_taken.store(true, Ordering::Relaxed);
        }
        let mut whole = [self.prefix.as_bytes(), line].concat();
        if whole.last() != Some(&b'\n') {
            whole.push(b'\n');
        }
        Sink::Stderr.put(&whole);
    }

    /// Takes a line for us: the end of the session, if it tells that.
    fn take(&mut self, line: &[u8]) -> Option<SessionEnd> {
        if let Some(fault) = ssh::fault(line) {
            return Some(SessionEnd::Failed(fault));
        }
        let record = line.strip_prefix(&[MARK])?;
        if let Some(code) = record.strip_prefix(b"exit ") {
            let code = std::str::from_utf8(code).ok()?.trim().parse().ok()?;
            return Some(SessionEnd::Exited(code));
        }
        // A write to a file that is open for appending is whole.
        let _ = self.events.write_all(record);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (SessionEnd, String, bool) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let port_taken = Arc::new(AtomicBool::new(false));
        let reader = StderrReader {
            events: file.reopen().expect("open"),
            prefix: "[n2] ".into(),
            port_taken: Arc::clone(&port_taken),
        };
        let end = reader.read(text.as_bytes());
        let events = std::fs::read_to_string(file.path()).expect("readable");
        (end, events, port_taken.load(Ordering::Relaxed))
    }

    #[test]
    fn lines_of_the_node_and_lines_for_us_come_apart() {
        let (end, events, _) =
            read("words\n\x1e{\"a\":1}\nhalf a line\x1e{\"b\":2}\n\x1eexit 3\nlost\n");
        assert_eq!(end, SessionEnd::Exited(3));
        assert_eq!(events, "{\"a\":1}\n{\"b\":2}\n");
    }

    #[test]
    fn a_session_that_ends_without_a_word_is_lost() {
        assert_eq!(read("Connection reset\n").0, SessionEnd::Lost);
        let failed = SessionEnd::Failed("the disk is full".into());
        assert_eq!(read("\x1efail the disk is full\n").0, failed);
    }

    #[test]
    fn a_port_that_is_taken_is_noticed() {
        assert!(read("error: cannot listen on 0.0.0.0:7777: in use\n").2);
        assert!(!read("error\n").2);
    }
}
