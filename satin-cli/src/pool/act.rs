//! The schedule of faults carried out on a pool, and the messages about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use satin_runtime::{
    observe::{
        events::{self, Event, Record},
        history::jobs_in_words,
    },
    stable::runs::Resume,
};

use super::{ALL_KILLED, LocalPool, Pause, code, raw};
use crate::{
    faults::{self, Fault, What, Who},
    store::StoreUse,
    wan::Cut,
};

/// Time for the other nodes of a site that is asked to leave to say so, before the master is asked. Too short: the master
/// may hand over to a node that leaves too.
const AFTER_OTHERS: Duration = Duration::from_millis(100);

/// The acts that are still to happen, and the counts of those that have.
#[derive(Default)]
pub(super) struct Schedule {
    /// The acts that are still to happen, by time; at the same time the first goes first.
    queue: Vec<(Duration, Act)>,
    /// The moment when all nodes of the plan were in.
    began: Option<Instant>,
    done: Done,
    /// True if all nodes were killed at once.
    all_killed: bool,
    /// Root jobs have begun, or may have: they wait for no node any more.
    has_begun: bool,
    /// Nodes that have been in the pool at some time.
    seen: BTreeSet<String>,
}

#[derive(Clone, Debug)]
enum Act {
    Begin(Fault),
    /// Sends SIGCONT to these nodes.
    Continue(Vec<usize>),
    /// Sends SIGTERM to that node.
    Ask(usize),
    /// The end of the partition of these sites.
    Heal(String, String, Cut),
}

/// Number of nodes that each kind of fault has hit.
#[derive(Clone, Copy, Default)]
struct Done {
    killed: usize,
    stopped: usize,
    drained: usize,
    joined: usize,
    partitions: usize,
}

impl Schedule {
    pub(super) fn new(faults: &[Fault]) -> Schedule {
        let queue = faults::in_order(faults)
            .into_iter()
            .map(|fault| (fault.at, Act::Begin(fault.clone())));
        Schedule {
            queue: queue.collect(),
            ..Schedule::default()
        }
    }

    /// Longest sleep that does not miss the next act of the schedule.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        /// Time between two looks whether all nodes are in.
        const LOOK: Duration = Duration::from_millis(10);
        let (at, _) = self.queue.first()?;
        Some(match self.began {
            Some(began) => (began + *at).saturating_duration_since(now),
            None => LOOK,
        })
    }

    /// Was any node ever in?
    pub(super) fn anybody_was_in(&self) -> bool {
        !self.seen.is_empty()
    }

    fn insert(&mut self, at: Duration, act: Act) {
        let place = self.queue.partition_point(|(other, _)| *other <= at);
        self.queue.insert(place, (at, act));
    }

    fn next_due(&mut self, now: Instant) -> Option<(Duration, Act)> {
        let (at, _) = self.queue.first()?;
        (self.began? + *at <= now).then(|| self.queue.remove(0))
    }
}

impl LocalPool {
    /// Carries out the acts that are due.
    pub(super) fn act(&mut self, now: Instant) {
        // Nothing more happens to a pool that is ended.
        while self.stopping.is_none()
            && let Some((at, act)) = self.schedule.next_due(now)
        {
            match act {
                Act::Begin(fault) => self.begin(at, fault.what),
                Act::Continue(nodes) => {
                    for index in nodes {
                        if self.is_running(index) && self.resume(index) {
                            self.tell(format_args!("continued {}", self.called(index)));
                        }
                    }
                }
                // A node that is asked twice leaves at once, without handing over.
                Act::Ask(index) if self.is_running(index) && !self.nodes[index].drained => {
                    self.schedule.done.drained += 1;
                    self.nodes[index].drained = true;
                    self.nodes[index].signal(raw(Signal::TERM));
                    self.tell(format_args!("asked {} to leave", self.called(index)));
                }
                Act::Ask(_) => {}
                Act::Heal(a, b, cut) => {
                    if let Some(wan) = &self.wan {
                        wan.heal_between(&a, &b, cut);
                    }
                    self.tell(format_args!("{a} and {b} reach each other again"));
                }
            }
        }
    }

    fn begin(&mut self, at: Duration, what: What) {
        match what {
            What::Kill(who) => {
                for index in self.meant(&who) {
                    self.schedule.done.killed += 1;
                    self.nodes[index].killed = true;
                    self.nodes[index].signal(raw(Signal::KILL));
                    self.tell(format_args!("killed {}", self.called(index)));
                }
            }
            What::KillAll => self.kill_whole_pool(),
            What::Stop(who, until) => {
                let nodes = self.meant(&who);
                for index in nodes.iter().copied() {
                    self.schedule.done.stopped += 1;
                    let pause = until.map_or(Pause::ForGood, |_| Pause::ForAWhile);
                    self.nodes[index].pause = Some(pause);
                    self.nodes[index].signal(raw(Signal::STOP));
                    self.tell(format_args!("stopped {}", self.called(index)));
                }
                if let Some(until) = until {
                    self.schedule.insert(until.max(at), Act::Continue(nodes));
                }
            }
            What::Drain(who) => {
                for index in self.meant(&who) {
                    // The master last: then it knows that the others are no successors.
                    let wait = if index == self.master {
                        AFTER_OTHERS
                    } else {
                        Duration::ZERO
                    };
                    self.schedule.insert(at + wait, Act::Ask(index));
                }
            }
            What::Join(site) => match self.add(&site) {
                Ok(name) => {
                    self.schedule.done.joined += 1;
                    self.tell(format_args!("started {name}"));
                }
                Err(error) => self.tell(format_args!("no node joins at {site}: {error:#}")),
            },
            What::Partition(a, b, until, cut) => {
                self.schedule.done.partitions += 1;
                if let Some(wan) = &self.wan {
                    wan.partition(&a, &b, cut);
                }
                let why = match cut {
                    Cut::Silence => "",
                    Cut::Reject => ": a firewall rejects everything",
                };
                self.tell(format_args!("{a} and {b} do not reach each other{why}"));
                if let Some(until) = until {
                    self.schedule.insert(until.max(at), Act::Heal(a, b, cut));
                }
            }
        }
    }

    /// Kills every process of the pool, which is its end.
    fn kill_whole_pool(&mut self) {
        // First all signals, then the rest: nodes that outlive the others would begin a repair.
        self.kill_all();
        self.schedule.all_killed = true;
        let running = self.nodes.iter_mut().filter(|node| node.ended.is_none());
        let mut count = 0;
        for node in running {
            node.killed = true;
            count += 1;
        }
        self.schedule.done.killed += count;
        match count {
            1 => self.tell(format_args!("killed the only node")),
            _ => self.tell(format_args!("killed all {count} nodes")),
        }
    }

    /// Whether all nodes were killed before `main` came to its end.
    fn was_lost(&self) -> bool {
        self.schedule.all_killed && self.ended_by.is_none()
    }

    /// Says what is left of a run whose nodes were all killed.
    pub(super) fn tell_if_lost(&self) {
        if !self.was_lost() {
            return;
        }
        match &self.plan.store {
            Some(StoreUse { url, resume, .. }) => {
                let without = match resume {
                    Some(Resume::No) => ", without --fresh,",
                    _ => "",
                };
                self.say(format_args!(
                    "all nodes were killed; what they had finished is in {url}: the same command{without} goes on from there"
                ));
            }
            None => self.say(format_args!(
                "all nodes were killed, and their work is lost; with `--store URL` the same command would go on"
            )),
        }
    }

    /// The nodes that are meant and still run; prints a message if there are none.
    fn meant(&self, who: &Who) -> Vec<usize> {
        let is_meant = |index: usize| match who {
            Who::Master => index == self.master,
            Who::Named(name) => {
                let node = &self.nodes[index];
                node.name == *name || node.site == *name
            }
        };
        let meant: Vec<usize> = (0..self.nodes.len())
            .filter(|index| self.is_running(*index) && is_meant(*index))
            .collect();
        if meant.is_empty() {
            self.tell(format_args!("{who} is gone already"));
        }
        meant
    }

    fn called(&self, index: usize) -> String {
        let name = &self.nodes[index].name;
        match index == self.master {
            true => format!("{name} (the master)"),
            false => name.clone(),
        }
    }

    /// A line about what happened, with the time.
    pub(super) fn tell(&self, words: std::fmt::Arguments<'_>) {
        let since = self.schedule.began.unwrap_or(self.began);
        self.say(format_args!(
            "{:.1} s: {words}",
            since.elapsed().as_secs_f64()
        ));
    }

    /// Adds an event to what people see of the pool: the last ones come when no node is left that could be looked at.
    fn show(&self, record: &Record) {
        let Some(window) = &self.window else { return };
        let at_ms = self.since_ms + record.at_ms;
        let mut history = window.history();
        history.note_event(Record {
            at_ms,
            ..record.clone()
        });
    }

    /// A node has told something.
    pub(super) fn note(&mut self, record: &Record) {
        self.show(record);
        // A node that was stopped, and goes on when the pool has ended, may begin `main` once more.
        if self.shows_bar() && self.ended_by.is_none() {
            self.bar.follow(&record.event, Instant::now());
        }
        let name = &record.name;
        let index = self.nodes.iter().position(|node| node.name == *name);
        match &record.event {
            Event::Master { term, .. } => {
                self.enter(record);
                // The first waits for all nodes of the plan; those after it do not.
                self.schedule.has_begun |= *term > 0;
                if let Some(index) = index
                    && std::mem::replace(&mut self.master, index) != index
                    && self.stopping.is_none()
                {
                    self.tell(format_args!(
                        "{name} is master now: `main` begins again there"
                    ));
                }
            }
            Event::RootStarted { .. } => self.schedule.has_begun = true,
            Event::Joined { .. } => {
                self.enter(record);
                let late = index.is_some_and(|index| index >= self.first);
                self.tell_if_faulty(late, name, "is in");
            }
            Event::Dead { .. } => {
                self.tell_if_faulty(true, name, "was found dead");
            }
            Event::CutOff { .. } => {
                self.tell_if_faulty(true, name, "is cut off from the master");
            }
            Event::Branch { .. } => self.tell_if_faulty(true, name, "begins a branch"),
            Event::ComesOver { .. } => self.tell_if_faulty(true, name, "comes over"),
            Event::Draining { .. } => {
                // Ours are told already.
                let other = index.is_some_and(|index| !self.nodes[index].drained);
                self.tell_if_faulty(other, name, "is about to leave");
                self.was_drained(index);
            }
            Event::Left { .. } => {
                self.tell_if_faulty(true, name, "has left");
                self.was_drained(index);
            }
            Event::PoolEnded { code } => match &mut self.ended_by {
                None => {
                    self.ended_by = Some((name.clone(), *code));
                    self.over = Some(Instant::now());
                }
                // The node has exited with another code than its `main` has told.
                Some((last, told)) if last == name => *told = *code,
                Some(_) => {}
            },
            _ => {}
        }
    }

    /// A node leaves, whoever has asked it to: it does not end too early.
    fn was_drained(&mut self, index: Option<usize>) {
        if let Some(index) = index {
            self.nodes[index].drained = true;
        }
    }

    /// A new master says once more what the old one may not have told.
    fn tell_if_faulty(&mut self, worth: bool, name: &str, what: &'static str) {
        let known = worth && self.told.insert(name.to_owned(), what) == Some(what);
        if worth && !known && !self.plan.faults.is_empty() && self.stopping.is_none() {
            self.tell(format_args!("{name} {what}"));
        }
    }

    /// Notes that a node is in. When all nodes of the plan have been in, the clock of the schedule begins.
    fn enter(&mut self, record: &Record) {
        self.schedule.seen.insert(record.name.clone());
        let planned = &self.nodes[..self.first.min(self.nodes.len())];
        let all = planned.len() == self.first
            && (planned.iter()).all(|node| self.schedule.seen.contains(&node.name));
        if all && self.schedule.began.is_none() {
            let ago = events::unix_ms().saturating_sub(self.since_ms + record.at_ms);
            let now = Instant::now();
            let began = now.checked_sub(Duration::from_millis(ago));
            self.schedule.began = Some(began.unwrap_or(now));
        }
    }

    /// Was that node let in at some time?
    pub(super) fn has_been_in(&self, index: usize) -> bool {
        self.schedule.seen.contains(&self.nodes[index].name)
    }

    /// Is there a master that waits until all nodes of the plan are in?
    pub(super) fn waits_for_nodes(&self) -> bool {
        let all_were_in = self.schedule.began.is_some();
        let has_begun = all_were_in || self.schedule.has_begun;
        !has_begun && self.has_been_in(self.master) && self.is_running(self.master)
    }

    /// Prints a line about the faults, if the plan has any.
    pub(super) fn sum_up(&self, code: i32) {
        if self.plan.faults.is_empty() {
            return;
        }
        let Done {
            killed,
            stopped,
            drained,
            joined,
            partitions,
        } = self.schedule.done;
        let mut text = String::new();
        for (count, what) in [
            (killed, "killed"),
            (stopped, "stopped"),
            (drained, "asked to leave"),
            (joined, "started later"),
            (
                partitions,
                if partitions == 1 {
                    "partition"
                } else {
                    "partitions"
                },
            ),
        ] {
            if count > 0 {
                let _ = write!(text, "{count} {what}, ");
            }
        }
        let _ = write!(text, "exit code {code}");
        let figures = self
            .records
            .iter()
            .filter_map(|record| match &record.event {
                Event::Stats(figures) => Some(figures),
                _ => None,
            });
        let reused: u64 = figures.map(|figures| figures.tally.hits).sum();
        let mut again: BTreeMap<String, u64> = BTreeMap::new();
        for record in &self.records {
            if let Event::PutBack { jobs } = &record.event {
                for (function, count) in jobs {
                    *again.entry(function.clone()).or_default() += count;
                }
            }
        }
        if !again.is_empty() {
            let _ = write!(text, "; done again: {}", jobs_in_words(&again));
        }
        if reused > 0 {
            let jobs = if reused == 1 { "job" } else { "jobs" };
            let _ = write!(text, "; {reused} {jobs} kept by others and reused");
        }
        let never: Vec<String> = (self.schedule.queue.iter())
            .filter_map(|(_, act)| match act {
                Act::Begin(fault) => Some(fault.to_string()),
                _ => None,
            })
            .collect();
        if !never.is_empty() {
            let _ = write!(
                text,
                "; too late to happen, as the pool had ended: {}",
                never.join(", ")
            );
        }
        self.say(format_args!("{text}"));
    }

    /// The exit code of the pool.
    pub(super) fn code(&self) -> i32 {
        if let Some(signal) = self.stopping.and_then(|stopping| stopping.signal) {
            return 128 + signal;
        }
        if self.was_lost() {
            return ALL_KILLED;
        }
        if let Some(status) = self.missing {
            return code(status);
        }
        let ended_by = self.ended_by.as_ref();
        let last =
            ended_by.and_then(|(name, _)| (self.nodes.iter()).position(|node| node.name == *name));
        let status = self.nodes[last.unwrap_or(self.master)].ended;
        match (status, ended_by) {
            // A crash after `main` is no matter of the pool.
            (Some((status, _)), Some((_, told))) if status.code().is_none() => *told,
            (Some((status, _)), _) => code(status),
            (None, _) => 1,
        }
    }
}
