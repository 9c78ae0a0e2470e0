//! A pool in memory: real [`Node`]s, an imaginary network, imaginary workers, a virtual clock.
//!
//! Tests of the protocol are stories on a [`Cluster`]; `satin-sim` is the same, grown up. The next event is decided by
//! (time, sequence) alone and all randomness comes from one seed, so every story replays the same.
//!
//! ```
//! use std::time::Duration;
//! use satin_runtime::node::{ProtocolConfig, cluster::{Cluster, Program, Shape}};
//!
//! let mut cluster = Cluster::new(1);
//! cluster.form(&ProtocolConfig::default(), &[("amsterdam", 2), ("delft", 2)], 1);
//! let shape = Shape::Knary { width: 4, height: 3, serial: 0 };
//! let program = cluster.program(Program::new(shape, Duration::from_millis(10)));
//! cluster.start_root(0, program);
//! assert!(cluster.run_until(Duration::from_secs(10), |cluster| cluster.is_done(0)));
//! ```

mod acts;
mod bounds;
mod clock;
mod faults;
mod graphs;
mod journal;
mod looks;
mod network;
mod program;
mod store;
mod threads;
mod turn;
mod wire;
mod workers;

#[cfg(test)]
mod tests;

pub use bounds::{BEST, BestLeaf, Sighting, Smallest};
pub use graphs::FlowForm;
pub use journal::{Note, Noted};
pub use program::{GivenTask, Outcome, Program, Shape, Work, mix};
pub use store::{ImaginaryStore, StoredBatch};
pub use threads::OtherRoot;
pub use wire::{Path, Wire, size};
pub use workers::{FlowsSeen, LEAF_PANICS, WorkDone};

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use strum::EnumCount;

use super::{
    DepartureId, Event, Identity, Lattices, Message, MessageKind, Node, NodeId, Notice, Peer,
    ProtocolConfig, RunEpoch, StorageOrder, View,
};
use crate::job::{BoundName, Fingerprint, MainBeat, RootName, RootRun, Saved, ValueName};
use clock::Clock;
use program::padded;
use workers::ImaginaryWorkers;

/// Time after which a peer to whom no connection can be made is given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// An event in the queue.
enum Happening {
    Arrive {
        to: u32,
        from: u32,
        sender: Peer,
        epoch: u64,
        /// In a box, as scheduled events are moved about a lot.
        message: Box<Message>,
    },
    Timeout(u32),
    /// A worker of a node has computed, unless the burst of that number was put off.
    BurstOver(u32, u32, u32),
    Publish(u32),
    /// Tasks have waited for the nodes that keep what they need.
    PatienceEnds(u32),
    Open {
        from: u32,
        to: u32,
        peer: Option<Peer>,
        attempt: u32,
    },
    Unreachable {
        node: u32,
        addr: SocketAddr,
        peer: Option<Peer>,
        attempt: u32,
    },
    /// A node hears that no process listens where a peer was.
    Gone {
        node: u32,
        peer: Peer,
    },
    /// An order of a node comes to the store.
    Ordered {
        node: u32,
        /// The life that gave the order: it writes to its own log, though the node may be in its next life by then.
        life: Peer,
        order: Box<StorageOrder>,
        /// Bytes of results that the node had when it gave the order to write.
        alive: usize,
        /// The batch of that order has no room for all that the node has to write.
        is_full: bool,
    },
    /// A node hears from the store.
    Stored {
        node: u32,
        answer: Box<Event>,
    },
    /// A node notices that a link is gone.
    Lost {
        node: u32,
        other: u32,
        epoch: u64,
    },
    /// If no message can pass between two nodes by now, both lose their link.
    Silent {
        a: u32,
        b: u32,
        epoch: u64,
    },
}

impl Happening {
    /// The node that it happens to.
    fn node(&self) -> Option<u32> {
        match self {
            Happening::Arrive { to, .. } => Some(*to),
            Happening::Timeout(node)
            | Happening::BurstOver(node, ..)
            | Happening::Publish(node)
            | Happening::PatienceEnds(node)
            | Happening::Unreachable { node, .. }
            | Happening::Gone { node, .. }
            | Happening::Ordered { node, .. }
            | Happening::Stored { node, .. }
            | Happening::Lost { node, .. } => Some(*node),
            Happening::Open { .. } | Happening::Silent { .. } => None,
        }
    }
}

struct Scheduled {
    at: Duration,
    sequence: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.sequence == other.sequence
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// A node's end of a link.
#[derive(Default)]
struct ImaginaryLink {
    epoch: u64,
    up: bool,
    /// The life of the other with which it stands, or stood last.
    peer: Option<Peer>,
    connecting: bool,
    /// Number of attempts to connect: the end of an attempt that has been overtaken says nothing of the next.
    attempts: u32,
    /// The peers that the node meant as well, since it has been connecting.
    meant: Vec<Option<Peer>>,
    /// True while the link is being closed: messages from now on wait for the next link.
    closing: bool,
    /// The next is wanted already.
    again: Option<(SocketAddr, Option<Peer>)>,
    /// When the last message on the ordered stream arrives.
    last: Duration,
    /// The time at which all messages have arrived, also those that may overtake others: a side that closes the link
    /// waits for that.
    arrived: Duration,
    /// The time at which the link is free to send again.
    free: Duration,
    /// The time at which the large messages have been sent that were to be sent so far.
    large_free: Duration,
    /// Wait for a connection to that life of the other.
    waiting: Vec<(Peer, Message)>,
    /// Sent, but nothing comes through.
    stalled: Vec<(Peer, Message)>,
}

impl ImaginaryLink {
    /// The messages that wait for a connection to that life of the other.
    fn take_waiting(&mut self, peer: Peer) -> Vec<Message> {
        let meant = (self.waiting).extract_if(.., |(to, _)| *to == peer);
        meant.map(|(_, message)| message).collect()
    }
}

/// A node and everything about it.
struct ImaginaryNode {
    node: Node,
    workers: ImaginaryWorkers,
    site: u32,
    addr: SocketAddr,
    links: BTreeMap<u32, ImaginaryLink>,
    timer: Option<Duration>,
    alive: bool,
    frozen: bool,
    held: Vec<Happening>,
    joined: Option<Identity>,
    ended: Option<i32>,
    may_start: bool,
    /// A value that it had fetched has been dropped there.
    forgets: bool,
    main: Option<Main>,
    /// The term of the main that runs here, or ran last.
    term: u32,
    roots: u32,
    running: Option<Running>,
    /// True if its main has been told to stop.
    yields: bool,
    /// Results of root jobs are told before main sees them.
    keeps: bool,
    results: BTreeMap<RootRun, u64>,
    panics: Vec<String>,
    notices: Vec<Notice>,
    /// Terms for which it was to run `main` from the start.
    mains: Vec<u32>,
    /// Its main came to its end.
    ends_main: bool,
    /// The run that it opened last, as master.
    opened: Option<RunEpoch>,
    /// The `main` that it has begun last, as the store knows it.
    begun_main: Option<MainBeat>,
    /// Since when it has no master; it stays when it becomes master itself.
    leaderless: Option<Duration>,
    /// The life that writes to the store, and the run, as they stand in the journal.
    writes: Option<(Peer, RunEpoch)>,
    /// Number of times that the node had to stop `main`.
    yielded: u32,
    values: HeldValues,
    parts: BTreeMap<ValueName, ValueParts>,
    /// The answers to requests for what others keep.
    brought: Vec<(u64, Option<ValueName>)>,
    /// The numbers of nodes of which it has heard that they leave, with what they keep.
    keepers_leaving: Vec<u128>,
    /// How much of its jobs that are away is done, as others have told.
    parts_done: BTreeMap<DepartureId, u16>,
    /// What it was to bring home, as another node could not have it.
    to_bring_home: Vec<ValueName>,
    bounds: BTreeMap<(BoundName, RootName), Vec<u8>>,
    hungry: bool,
    born: Duration,
    /// Root jobs that other threads than main's have called here.
    others: BTreeMap<RootRun, OtherRoot>,
    /// Factor by which computing takes longer here.
    slowness: f64,
    /// Addresses dialled without a peer in mind.
    dials: u64,
    clock: Clock,
    /// Time that its network thread needs for a message.
    handling: Duration,
    /// The time at which its network thread has handled all that came before.
    handled: Duration,
}

impl ImaginaryNode {
    fn has_value(&self, name: &ValueName) -> bool {
        lock(&self.values).contains_key(name)
    }

    fn have_yielded(&mut self, saved: Vec<Saved>) {
        self.running = None;
        self.workers.events.push_back(Event::Yielded(saved));
    }
}

/// The rest of a `main`.
#[derive(Clone, Debug)]
struct Main {
    programs: VecDeque<u32>,
    /// The exit code of `main`; `None`: it ends only when it is told to.
    code: Option<i32>,
    /// All root jobs are done.
    over: bool,
}

impl Main {
    fn new(programs: &[u32], code: Option<i32>) -> Main {
        Main {
            programs: programs.iter().copied().collect(),
            code,
            over: false,
        }
    }
}

/// The stage of a node's `main`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MainIs {
    /// The node runs no `main`.
    Nowhere,
    /// The `main` runs.
    Running,
    /// All root jobs of the `main` are done.
    Over,
}

/// The root job under way.
#[derive(Clone, Copy, Debug)]
struct Running {
    tag: RootRun,
    program: u32,
    since: Duration,
    /// The root job's result, which is not in safe hands yet.
    result: Option<u64>,
}

/// A `main` that came to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MainEnd {
    /// The node on which the main ended.
    pub node: u32,
    /// The term of the main: counts the masters.
    pub term: u32,
    /// Did a root job panic?
    pub panicked: bool,
    /// The results of its root jobs.
    pub results: Vec<u64>,
}

/// A value that has not come in full.
struct ValueParts {
    bytes: HeldBytes,
    missing: u64,
    /// Where the pieces begin that are here: some may come twice.
    here: BTreeSet<u64>,
}

impl ValueParts {
    fn read(&self, offset: u64, length: u64) -> Option<(Vec<u8>, u64)> {
        self.here
            .contains(&offset)
            .then(|| self.bytes.read(offset, length))
    }
}

/// Number of messages of a kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    /// Messages between nodes of one site.
    pub near: u64,
    /// Messages between sites.
    pub far: u64,
}

impl Count {
    /// Messages within sites and between sites.
    #[must_use]
    pub fn all(self) -> u64 {
        self.near + self.far
    }

    fn add(&mut self, near: bool, more: u64) {
        *(if near { &mut self.near } else { &mut self.far }) += more;
    }
}

/// The traffic on the network.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Messages, by [`MessageKind`]; without refusals.
    pub messages: [Count; MessageKind::COUNT],
    /// Messages that say that there is no job.
    pub refusals: Count,
    /// Number of jobs stolen.
    pub jobs: Count,
    /// Number of connections made.
    pub connections: Count,
    /// Bytes, roughly; only counted if [`Wire::near`] or [`Wire::far`] has a rate.
    pub bytes: Count,
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            messages: [Count::default(); MessageKind::COUNT],
            refusals: Count::default(),
            jobs: Count::default(),
            connections: Count::default(),
            bytes: Count::default(),
        }
    }
}

impl Traffic {
    /// Number of messages of all kinds.
    #[must_use]
    pub fn all(&self) -> u64 {
        let messages = self.messages.iter().chain([&self.refusals]);
        messages.map(|count| count.all()).sum()
    }

    /// Number of messages of that kind.
    #[must_use]
    pub fn of(&self, kind: MessageKind) -> Count {
        self.messages[kind as usize]
    }
}

/// A program and what is to come out.
struct KnownProgram {
    outcome: Outcome,
}

/// A pool in memory, with a virtual clock.
pub struct Cluster {
    now: Duration,
    sequence: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    slots: Vec<ImaginaryNode>,
    sites: Vec<Arc<str>>,
    programs: Vec<Program>,
    known: Vec<KnownProgram>,
    rng: SmallRng,
    /// The network; may be changed at any time.
    pub wire: Wire,
    /// The traffic over the wire.
    pub traffic: Traffic,
    /// Print what happens, in words.
    pub trace: bool,
    /// Number of events handled so far.
    pub steps: u64,
    /// Root jobs that take longer than this have their results kept by others, where the node asks for it.
    pub keep_after: Duration,
    /// The node to which the last event happened, if it was to one.
    pub touched: Option<u32>,
    main: Option<Main>,
    endings: Vec<MainEnd>,
    /// The numbers of the root jobs that main has cancelled.
    cancelled: BTreeSet<u32>,
    /// The root job with the highest number that any main has called.
    highest_root: Option<RootName>,
    to_the_dead: Option<String>,
    runs: Option<BTreeMap<u64, u32>>,
    promises: Option<Promises>,
    /// Made by every main, needed by all jobs.
    shared: Option<(ValueName, Vec<u8>)>,
    /// A node's number, by bits exclusive or, is in its id.
    scrambled: u32,
    /// Clocks differ, by that number.
    clocks: Option<u64>,
    sightings: Vec<Sighting>,
    store: Option<ImaginaryStore>,
    journal: Option<Vec<Note>>,
    /// What is known of the result of each job, by its fingerprint.
    right: Option<BTreeMap<Fingerprint, store::RightFact>>,
    stored_wrong: Option<String>,
}

/// Hosted jobs that improve a bound just before they are done.
struct Promises {
    bound: BoundName,
    root: RootName,
    /// The offer of each job that has made a promise, by the bytes of its result.
    made: BTreeMap<Vec<u8>, u64>,
}

/// A value that a node holds.
enum HeldBytes {
    /// Its bytes.
    Written(Vec<u8>),
    /// Imagined data of so many bytes.
    Zeros(u64),
}

impl HeldBytes {
    fn len(&self) -> u64 {
        match self {
            HeldBytes::Written(bytes) => bytes.len() as u64,
            HeldBytes::Zeros(bytes) => *bytes,
        }
    }

    /// At most so many of them from there on, and how many there are in all.
    fn read(&self, offset: u64, length: u64) -> (Vec<u8>, u64) {
        let total = self.len();
        let from = offset.min(total);
        let end = (offset + length).min(total);
        let bytes = match self {
            HeldBytes::Written(bytes) => bytes[from as usize..end as usize].to_vec(),
            HeldBytes::Zeros(_) => padded(&[], (end - from) as usize),
        };
        (bytes, total)
    }
}

type HeldValues = Arc<Mutex<BTreeMap<ValueName, HeldBytes>>>;

/// The answers of a node's imaginary process to its questions.
struct Process {
    held: HeldValues,
}

impl Process {
    fn new() -> (Box<Process>, HeldValues) {
        let held = HeldValues::default();
        let process = Process {
            held: Arc::clone(&held),
        };
        (Box::new(process), held)
    }
}

impl Lattices for Process {
    fn join(&self, bound: BoundName, have: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        Smallest.join(bound, have, new)
    }

    fn value_size(&self, name: ValueName) -> Option<u64> {
        Some(lock(&self.held).get(&name)?.len())
    }
}

fn lock(held: &HeldValues) -> MutexGuard<'_, BTreeMap<ValueName, HeldBytes>> {
    held.lock().expect("nobody panics with it")
}

impl Cluster {
    /// A pool that has no nodes yet.
    #[must_use]
    pub fn new(seed: u64) -> Cluster {
        Cluster {
            now: Duration::ZERO,
            sequence: 0,
            queue: BinaryHeap::new(),
            slots: Vec::new(),
            sites: Vec::new(),
            programs: Vec::new(),
            known: Vec::new(),
            rng: SmallRng::seed_from_u64(seed),
            wire: Wire::default(),
            traffic: Traffic::default(),
            trace: false,
            steps: 0,
            keep_after: Duration::from_millis(50),
            touched: None,
            main: None,
            endings: Vec::new(),
            cancelled: BTreeSet::new(),
            highest_root: None,
            to_the_dead: None,
            runs: None,
            promises: None,
            shared: None,
            scrambled: 0,
            clocks: None,
            sightings: Vec::new(),
            store: None,
            journal: None,
            right: None,
            stored_wrong: None,
        }
    }

    /// Makes a pool that stands beforehand: so many nodes at each site, numbered on from those there are, with so many
    /// workers each. The first is master. With [`ProtocolConfig::fixed_members`] no node looks for the dead.
    ///
    /// # Panics
    /// If there are nodes already.
    pub fn form(&mut self, config: &ProtocolConfig, sites: &[(&str, u32)], threads: u32) {
        assert!(self.slots.is_empty(), "a pool is formed once");
        let mut all = Vec::new();
        for (site, nodes) in sites {
            for _ in 0..*nodes {
                let index = all.len() as u32;
                let mut identity = self.identity(index, site, threads);
                identity.stamp = u64::from(index);
                all.push(identity);
            }
        }
        let view = View::of(all.iter().map(|identity| Arc::new(identity.clone())));
        for identity in &all {
            let seed = self.rng.random();
            let view = view.seen_by(identity.peer);
            let (process, held) = Process::new();
            let index = self.nodes();
            let reading = self.clock_of(index).reads(self.now);
            let node = Node::formed(config.clone(), view, process, seed, reading);
            self.admit(node, identity, held, config);
        }
        let master = all.first().cloned();
        for (slot, identity) in self.slots.iter_mut().zip(&all) {
            slot.joined = Some(identity.clone());
            slot.may_start = Some(identity.peer) == master.as_ref().map(|master| master.peer);
        }
    }

    /// A node starts, and will join or found a pool as `config` says. Returns its number.
    pub fn boot(&mut self, config: &ProtocolConfig, site: &str, threads: u32) -> u32 {
        let index = self.slots.len() as u32;
        let identity = self.identity(index, site, threads);
        let seed = self.rng.random();
        let (process, held) = Process::new();
        let reading = self.clock_of(index).reads(self.now);
        let node = Node::new(config.clone(), identity.clone(), process, seed, reading);
        self.admit(node, &identity, held, config)
    }

    /// A node starts and joins through another.
    pub fn join(&mut self, config: &ProtocolConfig, site: &str, threads: u32, through: u32) -> u32 {
        let mut config = config.clone();
        config.join = vec![self.addr(through)];
        config.may_found = false;
        self.boot(&config, site, threads)
    }

    fn identity(&mut self, index: u32, site: &str, threads: u32) -> Identity {
        let known = self.sites.iter().find(|known| ***known == *site).cloned();
        let site = known.unwrap_or_else(|| {
            let site: Arc<str> = site.into();
            self.sites.push(Arc::clone(&site));
            site
        });
        Identity {
            peer: NodeId(u128::from(index ^ self.scrambled) << 96).first_life(),
            name: format!("{site}-{index}").into(),
            site,
            addr: address(index),
            stamp: Identity::NOT_YET,
            threads,
        }
    }

    fn admit(
        &mut self,
        node: Node,
        identity: &Identity,
        values: HeldValues,
        config: &ProtocolConfig,
    ) -> u32 {
        let index = self.slots.len() as u32;
        let without = config.without.clone();
        let nonce = mix(u64::from(index));
        let mut workers = ImaginaryWorkers::new(identity.threads, nonce, without);
        workers.hold_data_in(identity.peer.id.0, &values);
        workers.data.set_room(config.flow_data);
        workers.begun = self.runs.is_some().then(Vec::new);
        workers.notes = self.journal.is_some().then(Vec::new);
        let site = self.site(&identity.site);
        self.slots.push(ImaginaryNode {
            node,
            workers,
            site,
            addr: identity.addr,
            links: BTreeMap::new(),
            timer: None,
            alive: true,
            frozen: false,
            held: Vec::new(),
            joined: None,
            ended: None,
            may_start: false,
            forgets: false,
            main: None,
            term: 0,
            roots: 0,
            running: None,
            yields: false,
            keeps: false,
            results: BTreeMap::new(),
            panics: Vec::new(),
            notices: Vec::new(),
            mains: Vec::new(),
            ends_main: false,
            opened: None,
            begun_main: None,
            leaderless: None,
            writes: None,
            yielded: 0,
            values,
            parts: BTreeMap::new(),
            brought: Vec::new(),
            keepers_leaving: Vec::new(),
            parts_done: BTreeMap::new(),
            to_bring_home: Vec::new(),
            bounds: BTreeMap::new(),
            hungry: false,
            born: self.now,
            others: BTreeMap::new(),
            slowness: 1.0,
            dials: 0,
            clock: self.clock_of(index),
            handling: Duration::ZERO,
            handled: Duration::ZERO,
        });
        self.mention_shared(index);
        let now = self.now;
        self.slots[index as usize].timer = Some(now);
        self.schedule(now, Happening::Timeout(index));
        index
    }

    // ---- time

    /// The next event happens; false if there is none.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(Scheduled { at, what, .. })) = self.queue.pop() else {
            return false;
        };
        self.now = at;
        self.steps += 1;
        self.touched = what.node();
        self.happen(what);
        true
    }

    /// Runs the pool for that time.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.next_at().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Runs until the condition holds, but at most for `limit`; false if it did not come to hold.
    pub fn run_until(&mut self, limit: Duration, condition: impl Fn(&Cluster) -> bool) -> bool {
        let end = self.now + limit;
        while !condition(self) {
            if self.next_at().is_none_or(|at| at > end) {
                return false;
            }
            self.step();
        }
        true
    }

    /// The time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        self.queue.peek().map(|Reverse(next)| next.at)
    }

    fn schedule(&mut self, at: Duration, what: Happening) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.queue.push(Reverse(Scheduled { at, sequence, what }));
    }

    fn happen(&mut self, what: Happening) {
        if let Some(node) = what.node() {
            let slot = self.slot_mut(node);
            if !slot.alive {
                return;
            }
            if slot.frozen {
                slot.held.push(what);
                return;
            }
        }
        // The end of a link waits its turn behind what came over it.
        if let Happening::Arrive { to: node, .. } | Happening::Lost { node, .. } = &what
            && let Some(later) = self.queues_until(*node)
        {
            // Put back: the event has not happened yet.
            self.steps -= 1;
            return self.schedule(later, what);
        }
        match what {
            Happening::Arrive {
                to,
                from,
                sender,
                epoch,
                message,
            } => {
                let stands = |node: u32, other: &u32| {
                    let link = self.slot(node).links.get(other);
                    link.is_some_and(|link| link.up && link.epoch == epoch)
                };
                let left = stands(from, &to) || !self.slot(from).alive || self.wire.late;
                if stands(to, &from) && left {
                    let slot = self.slot_mut(to);
                    slot.workers.events.push_back(Event::Received {
                        from: sender,
                        epoch,
                        message: *message,
                    });
                    self.run_node(to);
                }
            }
            Happening::Timeout(node) => {
                let now = self.now;
                let slot = self.slot_mut(node);
                if slot.timer == Some(now) {
                    slot.timer = None;
                    // The first one of all begins the node's life.
                    let (due, reading) = (slot.node.poll_timeout(), slot.clock.reads(now));
                    if slot.born == now || due.is_some_and(|due| due <= reading) {
                        slot.node.handle_timeout(reading);
                    }
                    self.run_node(node);
                }
            }
            Happening::BurstOver(node, lane, number) => {
                self.slot_mut(node).workers.burst_over(lane, number);
                self.run_node(node);
            }
            Happening::Publish(node) => {
                self.slot_mut(node).workers.published();
                self.run_node(node);
            }
            Happening::PatienceEnds(node) => {
                self.slot_mut(node).workers.patience_ends();
                self.run_node(node);
            }
            Happening::Open {
                from,
                to,
                peer,
                attempt,
            } => self.open(from, to, peer, attempt),
            Happening::Unreachable {
                node,
                addr,
                peer,
                attempt,
            } => {
                let other = index_of(addr);
                let link = self.link(node, other);
                if link.attempts != attempt {
                    let reached = link.up && peer == Some(self.peer(other));
                    if !reached {
                        let unsent = Vec::new();
                        self.tell(node, Event::Unreachable { addr, peer, unsent });
                    }
                    return;
                }
                link.connecting = false;
                let others = std::mem::take(&mut link.meant);
                let mut told = Vec::new();
                for peer in std::iter::once(peer).chain(others) {
                    let unsent = peer.map_or_else(Vec::new, |peer| link.take_waiting(peer));
                    told.push(Event::Unreachable { addr, peer, unsent });
                }
                told.into_iter().for_each(|event| self.tell(node, event));
            }
            Happening::Ordered {
                node,
                life,
                order,
                alive,
                is_full,
            } => self.obey(node, life, *order, alive, is_full),
            Happening::Stored { node, answer } => self.tell(node, *answer),
            Happening::Lost { node, other, epoch } => self.lose(node, other, epoch),
            Happening::Gone { node, peer } => self.tell(node, Event::Gone(peer)),
            Happening::Silent { a, b, epoch } => {
                if self.is_cut(a, b) {
                    self.lose(a, b, epoch);
                    self.lose(b, a, epoch);
                }
            }
        }
    }
}

pub(crate) fn address(index: u32) -> SocketAddr {
    let ip = Ipv4Addr::from_bits(0x0a00_0000 + index);
    SocketAddr::new(IpAddr::V4(ip), 7000)
}

fn index_of(addr: SocketAddr) -> u32 {
    match addr.ip() {
        IpAddr::V4(ip) if ip.to_bits() >> 24 == 10 => ip.to_bits() & 0xff_ffff,
        _ => u32::MAX,
    }
}
