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

mod bounds;
mod clock;
mod faults;
mod program;
mod threads;
mod wire;
mod words;
mod workers;

#[cfg(test)]
mod tests;

pub use bounds::{BEST, BestLeaf, Sighting, Smallest};
pub use program::{Outcome, Program, Shape, Work, mix};
pub use threads::OtherRoot;
pub use wire::{Path, Wire, size};
pub use workers::{LEAF_PANICS, WorkDone};

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use strum::EnumCount;

use super::{
    Action, Event, HostedId, Identity, Lattices, Message, MessageKind, Node, NodeId, Notice, Peer,
    ProtocolConfig, View,
    inspect::{InspectedHosted, InspectedStage},
};
use crate::job::{Answer, BoundName, JobId, Offer, RootName, RootRun, RootTag, Saved, ValueName};
use clock::Clock;
use workers::{Finished, ImaginaryWorkers};

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
    BurstOver(u32, u32),
    Publish(u32),
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
            | Happening::BurstOver(node, _)
            | Happening::Publish(node)
            | Happening::Unreachable { node, .. }
            | Happening::Gone { node, .. }
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
    /// Wait for a connection to that life of the other.
    waiting: Vec<(Peer, Message)>,
    /// Sent, but nothing comes through.
    stalled: Vec<(Peer, Message)>,
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
    /// Number of times that the node was to stop it.
    yielded: u32,
    values: HeldValues,
    parts: BTreeMap<ValueName, ValueParts>,
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
    /// Time that its network thread needs for a message,
    handling: Duration,
    /// and the time at which it has done what came before.
    handled: Duration,
}

impl ImaginaryNode {
    fn have_yielded(&mut self, saved: Vec<Saved>) {
        self.running = None;
        self.workers.events.push_back(Event::Yielded(saved));
    }
}

/// The rest of a `main`.
#[derive(Clone, Debug)]
struct Main {
    programs: VecDeque<u32>,
    /// Not before it is told to, if there is none.
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
    bytes: Vec<u8>,
    missing: u64,
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
}

/// Hosted jobs that improve a bound just before they are done.
struct Promises {
    bound: BoundName,
    root: RootName,
    /// The offer of each job that has made a promise, by the bytes of its result.
    made: BTreeMap<Vec<u8>, u64>,
}

type HeldValues = Arc<Mutex<BTreeMap<ValueName, Vec<u8>>>>;

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

    fn holds(&self, name: ValueName) -> bool {
        lock(&self.held).contains_key(&name)
    }
}

fn lock(held: &HeldValues) -> MutexGuard<'_, BTreeMap<ValueName, Vec<u8>>> {
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
            to_the_dead: None,
            runs: None,
            promises: None,
            shared: None,
            scrambled: 0,
            clocks: None,
            sightings: Vec::new(),
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
            peer: Peer {
                id: NodeId(u128::from(index ^ self.scrambled) << 96),
                generation: 0,
            },
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
        let mut workers = ImaginaryWorkers::new(identity.threads, mix(u64::from(index)), without);
        workers.begun = self.runs.is_some().then(Vec::new);
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
            yielded: 0,
            values,
            parts: BTreeMap::new(),
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
        if let Some((name, _)) = &self.shared {
            let name = *name;
            self.set_needs(index, &[name]);
        }
        let now = self.now;
        self.slots[index as usize].timer = Some(now);
        self.schedule(now, Happening::Timeout(index));
        index
    }

    // ---- what a story may ask

    /// The virtual time, from the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Number of nodes there have been.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The node of that number.
    #[must_use]
    pub fn node(&self, node: u32) -> &Node {
        &self.slot(node).node
    }

    /// A node, for tests that look inside.
    #[cfg(test)]
    pub(crate) fn node_mut(&mut self, node: u32) -> &mut Node {
        &mut self.slot_mut(node).node
    }

    /// The id and life of a node at this moment.
    #[must_use]
    pub fn peer(&self, node: u32) -> Peer {
        self.node(node).view().me().peer
    }

    /// The address at which a node can be reached.
    #[must_use]
    pub fn addr(&self, node: u32) -> SocketAddr {
        self.slot(node).addr
    }

    /// The number of a node.
    #[must_use]
    pub fn index(&self, peer: Peer) -> u32 {
        (peer.id.0 >> 96) as u32 ^ self.scrambled
    }

    /// True if the node runs.
    #[must_use]
    pub fn is_alive(&self, node: u32) -> bool {
        self.slot(node).alive
    }

    /// The identity under which the node came in, if it did.
    #[must_use]
    pub fn joined(&self, node: u32) -> Option<&Identity> {
        self.slot(node).joined.as_ref()
    }

    /// The code with which the pool ended for it.
    #[must_use]
    pub fn ended(&self, node: u32) -> Option<i32> {
        self.slot(node).ended
    }

    /// The notices that the node has given.
    #[must_use]
    pub fn notices(&self, node: u32) -> &[Notice] {
        &self.slot(node).notices
    }

    /// The terms for which it was to run `main` from the start: a founder's is not among them.
    #[must_use]
    pub fn mains(&self, node: u32) -> &[u32] {
        &self.slot(node).mains
    }

    /// How often it was to stop `main`, because another runs it.
    #[must_use]
    pub fn yields(&self, node: u32) -> u32 {
        self.slot(node).yielded
    }

    /// True if the node has said last that others are hungry.
    #[must_use]
    pub fn is_hungry(&self, node: u32) -> bool {
        self.slot(node).hungry
    }

    /// True if the node has been stopped, see [`freeze`](Cluster::freeze).
    #[must_use]
    pub fn is_frozen(&self, node: u32) -> bool {
        self.slot(node).frozen
    }

    /// How often it dialled an address without a peer in mind: to come in, or to find the lost.
    #[must_use]
    pub fn dials(&self, node: u32) -> u64 {
        self.slot(node).dials
    }

    /// The panics of root jobs on a node.
    #[must_use]
    pub fn panics(&self, node: u32) -> &[String] {
        &self.slot(node).panics
    }

    /// Is each child of each frame there in exactly one place: queued, running, away or done?
    ///
    /// # Errors
    /// A child is in none of these places, or in several; the error says which.
    pub fn audit(&self, node: u32) -> Result<(), String> {
        self.slot(node).workers.audit()
    }

    /// An answer that came to a job there which was not away.
    #[must_use]
    pub fn stray_answer(&self, node: u32) -> Option<&str> {
        self.slot(node).workers.stray()
    }

    /// A message that was sent to a life whose end the sender knew.
    #[must_use]
    pub fn sent_to_the_dead(&self) -> Option<&str> {
        self.to_the_dead.as_deref()
    }

    /// The hosted jobs that its workers have.
    pub fn at_work(&self, node: u32) -> impl Iterator<Item = HostedId> {
        self.slot(node).workers.hosted()
    }

    /// How often jobs were begun, by a hash of their ids; since [`count_runs`](Cluster::count_runs).
    #[must_use]
    pub fn runs(&self) -> Option<&BTreeMap<u64, u32>> {
        self.runs.as_ref()
    }

    /// The work that the node's workers have done.
    #[must_use]
    pub fn effort(&self, node: u32) -> WorkDone {
        self.slot(node).workers.done
    }

    /// The time its workers had nothing to compute, added up.
    #[must_use]
    pub fn idle_time(&self, node: u32) -> Duration {
        let slot = self.slot(node);
        let all = (self.now - slot.born) * slot.workers.threads();
        all.saturating_sub(slot.workers.done.busy)
    }

    /// Jobs of live nodes that have been spawned and have no result.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let nodes = (0..self.nodes()).filter(|node| self.is_alive(*node));
        nodes.map(|node| self.slot(node).workers.unsettled()).sum()
    }

    /// Number of results of finished orphans that live nodes keep for later claims.
    #[must_use]
    pub fn kept(&self) -> usize {
        let nodes = (0..self.nodes()).filter(|node| self.is_alive(*node));
        let kept = nodes.map(|node| {
            let hosted = self.node(node).inspect().hosted;
            let is_kept = |job: &&InspectedHosted| job.orphan && job.stage == InspectedStage::Done;
            hosted.iter().filter(is_kept).count()
        });
        kept.sum()
    }

    /// Are its workers without anything, and is none of its jobs away?
    #[must_use]
    pub fn is_empty(&self, node: u32) -> bool {
        self.slot(node).workers.is_empty()
    }

    /// Number of the node's jobs that are away.
    #[must_use]
    pub fn away(&self, node: u32) -> usize {
        self.slot(node).workers.away()
    }

    /// True if the node has run all root jobs of its main.
    #[must_use]
    pub fn is_done(&self, node: u32) -> bool {
        let slot = self.slot(node);
        let of_term = slot.results.keys().filter(|tag| tag.term == slot.term);
        slot.roots > 0 && slot.running.is_none() && of_term.count() == slot.roots as usize
    }

    /// The value of a bound there.
    #[must_use]
    pub fn bound(&self, node: u32, bound: BoundName, root: impl Into<RootName>) -> Option<u64> {
        let value = self.slot(node).bounds.get(&(bound, root.into()));
        value.map(|bytes| Smallest::read(bytes))
    }

    /// Does it hold that value in full?
    #[must_use]
    pub fn has_value(&self, node: u32, name: ValueName) -> bool {
        lock(&self.slot(node).values).contains_key(&name)
    }

    /// Number of values of which only some pieces have come.
    #[must_use]
    pub fn values_in_pieces(&self, node: u32) -> usize {
        self.slot(node).parts.len()
    }

    fn slot(&self, node: u32) -> &ImaginaryNode {
        &self.slots[node as usize]
    }

    fn slot_mut(&mut self, node: u32) -> &mut ImaginaryNode {
        &mut self.slots[node as usize]
    }

    // ---- what a story may do

    /// A program that nodes can run; its result is computed at once, to compare.
    pub fn program(&mut self, program: Program) -> u32 {
        let outcome = program.sequential();
        self.programs.push(program);
        self.known.push(KnownProgram { outcome });
        self.programs.len() as u32 - 1
    }

    /// The right outcome of a program.
    #[must_use]
    pub fn outcome(&self, program: u32) -> Outcome {
        self.known[program as usize].outcome
    }

    /// `main` of that node calls a root job, now. Its result is compared with the right one.
    pub fn start_root(&mut self, node: u32, program: u32) -> RootRun {
        let tag = self.begin_root(node, program);
        self.run_node(node);
        tag
    }

    fn begin_root(&mut self, node: u32, program: u32) -> RootRun {
        let work = self.programs[program as usize].root();
        let now = self.now;
        let slot = self.slot_mut(node);
        let tag = RootRun {
            term: slot.term,
            name: RootName {
                number: slot.roots,
                fingerprint: work.fingerprint(),
            },
        };
        slot.roots += 1;
        slot.running = Some(Running {
            tag,
            program,
            since: now,
            result: None,
        });
        slot.workers.events.push_back(Event::RootStarted(tag));
        slot.workers.start_root(tag, program, work);
        tag
    }

    /// Sets the programs that the node's main calls once it may start roots, one after another; then the main ends the
    /// pool with that code.
    pub fn set_main(&mut self, node: u32, programs: &[u32], code: i32) {
        self.slot_mut(node).main = Some(Main::new(programs, Some(code)));
        self.go_on_with_main(node);
        self.run_node(node);
    }

    /// As [`set_main`](Cluster::set_main) for each node that is, or becomes, master: also for nodes to come. Without a code the
    /// pool does not end before [`end_main`](Cluster::end_main).
    pub fn set_main_everywhere(&mut self, programs: &[u32], code: Option<i32>) {
        let main = Main::new(programs, code);
        for node in 0..self.nodes() {
            self.slot_mut(node).main = Some(main.clone());
        }
        self.main = Some(main);
        for node in 0..self.nodes() {
            self.go_on_with_main(node);
            self.run_node(node);
        }
    }

    /// The mains that came to their end so far: more than one if there were two pools for a while.
    #[must_use]
    pub fn endings(&self) -> &[MainEnd] {
        &self.endings
    }

    fn go_on_with_main(&mut self, node: u32) {
        let slot = &mut self.slots[node as usize];
        if slot.running.is_some() || !slot.may_start || slot.yields || !slot.alive {
            return;
        }
        let Some(main) = &mut slot.main else {
            return;
        };
        if let Some(program) = main.programs.pop_front() {
            self.begin_root(node, program);
        } else {
            let (code, term) = (main.code, slot.term);
            if !std::mem::replace(&mut main.over, true) {
                let results = slot.results.iter().filter(|(tag, _)| tag.term == term);
                let results = results.map(|(_, result)| *result).collect();
                self.endings.push(MainEnd {
                    node,
                    term,
                    panicked: !slot.panics.is_empty(),
                    results,
                });
            }
            if let Some(code) = code {
                slot.main = None;
                slot.workers.events.push_back(Event::MainEnded(code));
            }
        }
    }

    /// Every main ends the pool with that code, at once or when it comes to its end.
    pub fn end_main(&mut self, code: i32) {
        if let Some(main) = &mut self.main {
            main.code = Some(code);
        }
        for node in 0..self.nodes() {
            if let Some(main) = &mut self.slot_mut(node).main {
                main.code = Some(code);
                self.go_on_with_main(node);
                self.run_node(node);
            }
        }
    }

    /// The stage of a node's main.
    #[must_use]
    pub fn main_of(&self, node: u32) -> MainIs {
        let slot = self.slot(node);
        match &slot.main {
            Some(main) if main.over => MainIs::Over,
            Some(_) if slot.may_start && slot.alive => MainIs::Running,
            _ => MainIs::Nowhere,
        }
    }

    /// Another node is to run `main`.
    fn yield_main(&mut self, node: u32) {
        let slot = self.slot_mut(node);
        slot.main = None;
        slot.may_start = false;
        slot.yields = true;
        slot.yielded += 1;
        let running = slot.running.map(|running| running.tag);
        if !running.is_some_and(|tag| slot.workers.give_up_root(tag)) {
            slot.have_yielded(Vec::new());
        }
    }

    /// The node is to run `main`, from the start.
    fn run_main(&mut self, node: u32, term: u32) {
        let main = self.main.clone();
        let slot = self.slot_mut(node);
        slot.main = main;
        slot.may_start = false;
        slot.yields = false;
        slot.term = term;
        slot.mains.push(term);
        slot.roots = 0;
        slot.running = None;
        self.make_shared(node);
    }

    /// Gives an event to a node.
    pub fn tell(&mut self, node: u32, event: Event) {
        self.slot_mut(node).workers.events.push_back(event);
        self.run_node(node);
    }

    /// Delivers a message that no node of this cluster has sent, on the link that stands between the two if there is one.
    pub fn forge(&mut self, to: u32, from: Peer, message: Message) {
        let other = self.index(from);
        let link = self.slot(to).links.get(&other);
        let epoch = link.map_or(0, |link| link.epoch);
        let event = Event::Received {
            from,
            epoch,
            message,
        };
        self.tell(to, event);
    }

    /// Makes the code of a node fine-grained: its jobs can be taken only `delay` after they were asked for.
    pub fn set_shy(&mut self, node: u32, delay: Option<Duration>) {
        self.slot_mut(node).workers.shy = delay;
    }

    /// Workers there with more frames than this on their stacks take no more while they wait.
    pub fn set_nesting(&mut self, node: u32, frames: usize) {
        self.slot_mut(node).workers.nesting = frames;
    }

    /// Counts every beginning of a job from now on, see [`runs`](Cluster::runs). To be called before there are nodes.
    pub fn count_runs(&mut self) {
        self.runs = Some(BTreeMap::new());
    }

    /// A value is made there.
    pub fn make_value(&mut self, node: u32, bytes: Vec<u8>) -> ValueName {
        let name = ValueName(*blake3::hash(&bytes).as_bytes());
        lock(&self.slot(node).values).insert(name, bytes);
        name
    }

    /// A byte of a value flips there.
    ///
    /// # Panics
    /// If the value is not there, or empty.
    pub fn spoil_value(&mut self, node: u32, name: ValueName) {
        let mut held = lock(&self.slot(node).values);
        let bytes = held.get_mut(&name).expect("a value that is there");
        bytes[0] ^= 1;
    }

    /// A value is dropped there.
    pub fn drop_value(&mut self, node: u32, name: ValueName) {
        lock(&self.slot(node).values).remove(&name);
    }

    /// All jobs that leave that node need these values.
    pub fn set_needs(&mut self, node: u32, needs: &[ValueName]) {
        self.slot_mut(node).workers.needs = needs.to_vec();
    }

    /// A job there has found something better.
    pub fn offer(&mut self, node: u32, bound: BoundName, root: impl Into<RootName>, value: u64) {
        let root = root.into();
        let have = self.bound(node, bound, root);
        if have.is_some_and(|have| have <= value) {
            return;
        }
        let value = Smallest::write(value);
        let bounds = &mut self.slot_mut(node).bounds;
        bounds.insert((bound, root), value.clone());
        self.tell(node, Event::Offered(Offer { bound, root, value }));
    }

    /// Makes every hosted job improve that bound from now on, as the last act of the job. A node that has the job's
    /// answer must know the bound.
    pub fn promise(&mut self, bound: BoundName, root: impl Into<RootName>) {
        let (root, made) = (root.into(), BTreeMap::new());
        self.promises = Some(Promises { bound, root, made });
    }

    /// Number of promises made.
    #[must_use]
    pub fn promises(&self) -> usize {
        let made = |promises: &Promises| promises.made.len();
        self.promises.as_ref().map_or(0, made)
    }

    fn make_promise(
        promises: &mut Promises,
        slot: &mut ImaginaryNode,
        answer: &Answer,
    ) -> Option<Event> {
        let Answer::Result { bytes, .. } = answer else {
            return None;
        };
        let Promises { bound, root, made } = promises;
        let better = u64::MAX - made.len() as u64;
        made.insert(bytes.clone(), better);
        let value = Smallest::write(better);
        slot.bounds.insert((*bound, *root), value.clone());
        let (bound, root) = (*bound, *root);
        Some(Event::Offered(Offer { bound, root, value }))
    }

    fn is_kept(promises: &Promises, slot: &ImaginaryNode, answer: &Answer) -> bool {
        let made = match answer {
            Answer::Result { bytes, .. } => promises.made.get(bytes),
            _ => None,
        };
        made.is_none_or(|promised| {
            let known = slot.bounds.get(&(promises.bound, promises.root));
            known.is_some_and(|known| Smallest::read(known) <= *promised)
        })
    }

    /// Lets a node die without a word. Others lose their links to it when no message came for [`Wire::idle_timeout`].
    pub fn crash(&mut self, node: u32) {
        self.slot_mut(node).alive = false;
        let others: Vec<(u32, u64)> = (self.slot(node).links.iter())
            .filter(|(_, link)| link.up)
            .map(|(other, link)| (*other, link.epoch))
            .collect();
        for (other, epoch) in others {
            let (node, other) = (other, node);
            let lost = Happening::Lost { node, other, epoch };
            self.schedule(self.now + self.wire.idle_timeout, lost);
        }
    }

    /// A node is told to go.
    pub fn leave(&mut self, node: u32) {
        self.tell(node, Event::Leave);
    }

    /// Stops a node as by `SIGSTOP`: its events wait.
    pub fn freeze(&mut self, node: u32) {
        self.slot_mut(node).frozen = true;
    }

    /// Lets a stopped node go on.
    pub fn thaw(&mut self, node: u32) {
        let slot = self.slot_mut(node);
        slot.frozen = false;
        let held = std::mem::take(&mut slot.held);
        for what in held {
            if !matches!(what, Happening::Timeout(_)) {
                self.schedule(self.now, what);
            }
        }
        let now = self.now;
        self.slot_mut(node).timer = Some(now);
        self.schedule(now, Happening::Timeout(node));
    }

    /// Tells every live node that a node is dead, as if membership had found out.
    pub fn declare_dead(&mut self, node: u32) {
        let peer = self.peer(node);
        for other in (0..self.nodes()).filter(|other| *other != node) {
            if self.slot(other).alive {
                let now = self.now;
                let slot = self.slot_mut(other);
                slot.node.declare_dead(slot.clock.reads(now), peer);
                self.run_node(other);
            }
        }
    }

    /// Sets the path between two sites from now on.
    pub fn set_path(&mut self, a: &str, b: &str, path: Path) {
        let (a, b) = (self.site(a), self.site(b));
        self.wire.set_path(a, b, path);
    }

    /// Cuts two sites off from each other: messages wait, connections end after [`Wire::idle_timeout`].
    pub fn partition(&mut self, a: &str, b: &str) {
        let (a, b) = (self.site(a), self.site(b));
        self.wire.cut(a, b);
        self.watch_silence();
    }

    /// Cuts a node off from all others.
    pub fn isolate(&mut self, node: u32) {
        self.wire.isolate(node);
        self.watch_silence();
    }

    fn watch_silence(&mut self) {
        for a in 0..self.nodes() {
            let links = self.slot(a).links.iter();
            let cut: Vec<(u32, u64)> = links
                .filter(|(b, link)| link.up && a < **b && self.is_cut(a, **b))
                .map(|(b, link)| (*b, link.epoch))
                .collect();
            for (b, epoch) in cut {
                let at = self.now + self.wire.idle_timeout;
                self.schedule(at, Happening::Silent { a, b, epoch });
            }
        }
    }

    /// Ends all faults of the network: messages that waited arrive.
    pub fn heal(&mut self) {
        self.wire.heal();
        for node in 0..self.nodes() {
            let others: Vec<u32> = self.slot(node).links.keys().copied().collect();
            for other in others {
                let link = self.link(node, other);
                for (sender, message) in std::mem::take(&mut link.stalled) {
                    self.transmit(node, other, sender, message);
                }
            }
        }
    }

    /// The link between two nodes breaks, with everything on it; the second notices `later`.
    pub fn break_link(&mut self, a: u32, b: u32, later: Duration) {
        let link = self.link(a, b);
        if !link.up {
            return;
        }
        let epoch = link.epoch;
        self.lose(a, b, epoch);
        let (node, other) = (b, a);
        let lost = Happening::Lost { node, other, epoch };
        self.schedule(self.now + later, lost);
    }

    /// The sites that have had a node.
    #[must_use]
    pub fn sites(&self) -> &[Arc<str>] {
        &self.sites
    }

    /// The links that stand, each once.
    #[must_use]
    pub fn links(&self) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        for a in 0..self.nodes() {
            let links = self.slot(a).links.iter();
            all.extend(
                links
                    .filter(|(b, link)| link.up && a < **b)
                    .map(|(b, _)| (a, *b)),
            );
        }
        all
    }

    fn site(&self, name: &str) -> u32 {
        let place = self.sites.iter().position(|site| **site == *name);
        place.expect("a site that has had a node") as u32
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
            Happening::BurstOver(node, lane) => {
                self.slot_mut(node).workers.burst_over(lane);
                self.run_node(node);
            }
            Happening::Publish(node) => {
                self.slot_mut(node).workers.published();
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
                    let meant = (link.waiting).extract_if(.., |(to, _)| Some(*to) == peer);
                    let unsent = meant.map(|(_, message)| message).collect();
                    told.push(Event::Unreachable { addr, peer, unsent });
                }
                told.into_iter().for_each(|event| self.tell(node, event));
            }
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

    // ---- links

    fn link(&mut self, node: u32, other: u32) -> &mut ImaginaryLink {
        self.slot_mut(node).links.entry(other).or_default()
    }

    fn path(&self, a: u32, b: u32) -> Path {
        self.wire.path(self.slot(a).site, self.slot(b).site)
    }

    fn connect(&mut self, node: u32, addr: SocketAddr, peer: Option<Peer>) {
        let other = index_of(addr);
        let refused = |attempt| Happening::Unreachable {
            node,
            addr,
            peer,
            attempt,
        };
        if other as usize >= self.slots.len() || other == node {
            let attempt = self.link(node, other).attempts;
            return self.schedule(self.now, refused(attempt));
        }
        let link = self.link(node, other);
        if link.up && link.closing {
            link.again = Some((addr, peer));
            return;
        }
        if link.up {
            return;
        }
        if std::mem::replace(&mut link.connecting, true) {
            link.meant.push(peer);
            return;
        }
        link.attempts += 1;
        let attempt = link.attempts;
        if !self.slot(other).alive || self.is_cut(node, other) {
            self.schedule(self.now + CONNECT_TIMEOUT, refused(attempt));
        } else {
            let handshake = (self.path(node, other).round_trip).mul_f64(self.wire.handshake);
            let (from, to) = (node, other);
            let open = Happening::Open {
                from,
                to,
                peer,
                attempt,
            };
            self.schedule(self.now + handshake, open);
        }
    }

    /// Probes an address: the machine of a dead process answers that no process listens; a machine that is cut off does
    /// not answer.
    fn probe(&mut self, node: u32, addr: SocketAddr, peer: Peer) {
        let other = index_of(addr);
        if other as usize >= self.slots.len() || self.slot(other).alive || self.is_cut(node, other)
        {
            return;
        }
        let at = self.now + self.path(node, other).round_trip;
        self.schedule(at, Happening::Gone { node, peer });
    }

    fn open(&mut self, from: u32, to: u32, peer: Option<Peer>, attempt: u32) {
        let addr = self.addr(to);
        let link = self.link(from, to);
        let stands = link.connecting && link.attempts == attempt;
        if !self.slot(from).alive || !stands {
            return;
        }
        if !self.slot(to).alive || self.slot(to).frozen || self.is_cut(from, to) {
            let unreachable = Happening::Unreachable {
                node: from,
                addr,
                peer,
                attempt,
            };
            return self.schedule(self.now + CONNECT_TIMEOUT, unreachable);
        }
        let epoch = self.link(from, to).epoch.max(self.link(to, from).epoch) + 1;
        let near = self.slot(from).site == self.slot(to).site;
        self.traffic.connections.add(near, 1);
        let round_trip = self.path(from, to).round_trip;
        for (node, other) in [(from, to), (to, from)] {
            let now = self.now;
            let link = self.link(node, other);
            link.up = true;
            link.closing = false;
            link.connecting = false;
            link.meant.clear();
            link.epoch = epoch;
            link.last = now;
            link.arrived = now;
            link.free = now;
            link.stalled.clear();
            let waiting = std::mem::take(&mut link.waiting);
            let sender = self.peer(node);
            for (_, message) in waiting {
                self.transmit(node, other, sender, message);
            }
            let peer = self.node(other).view().me().clone();
            let connected = Event::Connected {
                peer,
                epoch,
                round_trip,
            };
            self.slot_mut(node).workers.events.push_back(connected);
        }
        self.run_node(from);
        self.run_node(to);
    }

    fn lose(&mut self, node: u32, other: u32, epoch: u64) {
        if !self.slot(node).alive {
            return;
        }
        let link = self.link(node, other);
        let mut again = None;
        if link.epoch == epoch && link.up {
            link.up = false;
            link.closing = false;
            link.stalled.clear();
            again = link.again.take();
        }
        let peer = self.peer(other);
        self.tell(node, Event::Disconnected { peer, epoch });
        if let Some((addr, peer)) = again {
            self.connect(node, addr, peer);
        }
    }

    fn send(&mut self, node: u32, to: Peer, message: Message) {
        let other = self.index(to);
        if other as usize >= self.slots.len() {
            return;
        }
        let sender = self.peer(node);
        let link = self.link(node, other);
        if link.up && !link.closing {
            self.transmit(node, other, sender, message);
        } else {
            link.waiting.push((to, message));
        }
    }

    /// Over the link that stands.
    fn transmit(&mut self, node: u32, other: u32, sender: Peer, message: Message) {
        let near = self.slot(node).site == self.slot(other).site;
        if self.trace
            && let Some(words) = words::message(&message)
        {
            let who = format!("{} -> {other}", words::name(sender));
            self.say(&who, &words);
        }
        let count = match message.kind() {
            MessageKind::Jobs if message.jobs().is_empty() => &mut self.traffic.refusals,
            kind => &mut self.traffic.messages[kind as usize],
        };
        count.add(near, 1);
        self.traffic.jobs.add(near, message.jobs().len() as u64);
        let gossip = matches!(message, Message::Gossip(_));
        let path = self.path(node, other);
        if self.is_cut_way(node, other) {
            if !gossip {
                self.link(node, other).stalled.push((sender, message));
            }
            return;
        }
        if gossip && path.loss > 0.0 && self.rng.random_bool(path.loss) {
            return;
        }
        let size = size(&message);
        let mut latency = path.round_trip / 2;
        if path.jitter > Duration::ZERO {
            latency += path.jitter.mul_f64(self.rng.random());
        }
        let large = size > self.wire.large;
        latency += self.astray(gossip, large);
        let again = gossip.then(|| self.again()).flatten();
        let now = self.now;
        let link = self.link(node, other);
        let mut leaves = now;
        if let Some(rate) = path.rate {
            let takes = Duration::from_secs_f64(size as f64 / rate as f64);
            // A large transfer shares the link: a small message need not wait for its end.
            leaves = link.free.max(now) + takes;
            link.free = if large { now + takes / 2 } else { leaves };
        }
        let mut arrives = leaves + latency;
        if !large && !gossip {
            arrives = arrives.max(link.last);
            link.last = arrives;
        }
        if !gossip {
            link.arrived = link.arrived.max(arrives);
        }
        let epoch = link.epoch;
        if path.rate.is_some() {
            self.traffic.bytes.add(near, size as u64);
        }
        let (to, from) = (other, node);
        let message = Box::new(message);
        if let Some(later) = again {
            let message = message.clone();
            self.schedule(
                arrives + later,
                Happening::Arrive {
                    to,
                    from,
                    sender,
                    epoch,
                    message,
                },
            );
        }
        self.schedule(
            arrives,
            Happening::Arrive {
                to,
                from,
                sender,
                epoch,
                message,
            },
        );
    }

    // ---- a node's turn

    /// Carries out all that follows at this moment from an event of a node.
    fn run_node(&mut self, index: u32) {
        loop {
            let now = self.now;
            let slot = &mut self.slots[index as usize];
            if !slot.alive {
                return;
            }
            slot.workers.run(&self.programs);
            let bursts = std::mem::take(&mut slot.workers.bursts);
            let slowness = slot.slowness;
            for (lane, time) in &bursts {
                self.schedule(
                    now + time.mul_f64(slowness),
                    Happening::BurstOver(index, *lane),
                );
            }
            let slot = &mut self.slots[index as usize];
            slot.workers.bursts = bursts;
            slot.workers.bursts.clear();
            if let Some(delay) = slot.workers.publish.take() {
                self.schedule(now + delay, Happening::Publish(index));
            }
            let slot = &mut self.slots[index as usize];
            if let Some(begun) = &mut slot.workers.begun
                && let Some(runs) = &mut self.runs
            {
                for path in begun.drain(..) {
                    *runs.entry(path).or_default() += 1;
                }
            }
            if let Some((tag, finished)) = slot.workers.finished.pop() {
                self.finish_root(index, tag, finished);
            }
            let slot = &mut self.slots[index as usize];
            while let Some(event) = slot.workers.events.pop_front() {
                if let Event::Done(_, answer) = &event
                    && let Some(promises) = &mut self.promises
                    && let Some(offered) = Cluster::make_promise(promises, slot, answer)
                {
                    slot.node.handle(slot.clock.reads(now), offered);
                }
                if self.trace
                    && let Some(words) = words::event(&event)
                {
                    let who = words::name(slot.node.view().me().peer);
                    words::say(now, &who, &words);
                }
                slot.node.handle(slot.clock.reads(now), event);
            }
            let mut any = false;
            while let Some(action) = self.slots[index as usize].node.poll_action() {
                any = true;
                self.perform(index, action);
            }
            if !any && self.slots[index as usize].workers.events.is_empty() {
                break;
            }
        }
        if self.slots[index as usize].workers.poisoned {
            return self.crash(index);
        }
        let slot = &mut self.slots[index as usize];
        let due = slot.node.poll_timeout();
        if let Some(due) = due.map(|due| slot.clock.moment(due))
            && slot.timer.is_none_or(|timer| due < timer)
        {
            let due = due.max(self.now);
            slot.timer = Some(due);
            self.schedule(due, Happening::Timeout(index));
        }
    }

    fn finish_root(&mut self, node: u32, tag: RootRun, finished: Finished) {
        let (now, keep_after) = (self.now, self.keep_after);
        let slot = self.slot_mut(node);
        if let Some(other) = slot.others.get_mut(&tag) {
            other.finish(finished);
            slot.workers.events.push_back(Event::RootFinished(tag));
            return;
        }
        let Some(running) = slot.running.filter(|running| running.tag == tag) else {
            // The root job had to be given up before the next main could start.
            return;
        };
        match finished {
            Finished::GivenUp(saved) => slot.have_yielded(saved),
            _ if slot.yields => slot.have_yielded(Vec::new()),
            Finished::Result(result, ours) => {
                if slot.keeps && ours && now >= running.since + keep_after {
                    slot.running = Some(Running {
                        result: Some(result),
                        ..running
                    });
                    let saved = Saved {
                        id: JobId::ROOT.child(tag.name.number),
                        fingerprint: self.programs[running.program as usize].root().fingerprint(),
                        root: tag.name.fingerprint,
                        answer: Answer::Result {
                            bytes: result.to_le_bytes().to_vec(),
                            needs: Vec::new(),
                        },
                    };
                    let events = &mut self.slot_mut(node).workers.events;
                    events.push_back(Event::RootResult(tag.tag(), saved));
                } else {
                    self.main_sees(node, tag, result);
                }
            }
            Finished::Panicked(story) => {
                slot.panics.push(story);
                slot.running = None;
                if let Some(main) = &mut slot.main {
                    main.programs.clear();
                    main.code = main.code.map(|_| 101);
                }
                slot.workers.events.push_back(Event::RootFinished(tag));
                self.go_on_with_main(node);
            }
        }
    }

    fn root_kept(&mut self, node: u32, tag: RootTag) {
        let running = self.slot(node).running;
        if let Some(running) = running.filter(|running| running.tag.tag() == tag)
            && let Some(result) = running.result
        {
            self.main_sees(node, running.tag, result);
        }
    }

    fn main_sees(&mut self, node: u32, tag: RootRun, result: u64) {
        self.look_at_bound(node, tag, result);
        let slot = self.slot_mut(node);
        slot.workers.events.push_back(Event::RootFinished(tag));
        slot.results.insert(tag, result);
        slot.running = None;
        self.go_on_with_main(node);
    }

    /// Are all results of all roots right?
    ///
    /// # Panics
    /// If a root's result is wrong. `programs` are those that the node was given, in order.
    pub fn check(&self, node: u32, programs: &[u32]) {
        let slot = self.slot(node);
        let results = slot.results.iter().filter(|(tag, _)| tag.term == slot.term);
        let results = results.map(|(_, result)| result);
        let right = programs.iter().map(|program| self.outcome(*program).result);
        assert!(results.copied().eq(right), "a result is wrong");
    }

    /// A line of the trace.
    pub fn say(&self, who: &str, what: &str) {
        words::say(self.now, who, what);
    }

    fn perform(&mut self, node: u32, action: Action) {
        if self.trace {
            let slot = self.slot_mut(node);
            let away = match &action {
                Action::Deliver(departure, _) | Action::PutBack(departure, _) => {
                    slot.workers.id_of(*departure)
                }
                _ => None,
            };
            if let Some(words) = words::action(&action, away) {
                self.say(&words::name(self.peer(node)), &words);
            }
        }
        let programs = &self.programs;
        let slot = &mut self.slots[node as usize];
        match action {
            Action::Connect { addr, peer } => {
                slot.dials += u64::from(peer.is_none());
                self.connect(node, addr, peer);
            }
            Action::Probe { addr, peer } => self.probe(node, addr, peer),
            Action::Send(to, message) => {
                if !message.is_about_membership() && !slot.node.view().is_alive(to) {
                    let kind = message.kind();
                    let story = format!("node {node} sends {kind} to {to:?}, whose life is over");
                    self.to_the_dead.get_or_insert(story);
                }
                self.send(node, to, message);
            }
            Action::Disconnect(peer) => {
                let other = self.index(peer);
                let half = self.path(node, other).round_trip / 2;
                let link = self.link(node, other);
                if link.up && !std::mem::replace(&mut link.closing, true) {
                    let (epoch, arrived) = (link.epoch, link.arrived);
                    let at = (self.now + half).max(arrived);
                    for (node, other) in [(node, other), (other, node)] {
                        self.schedule(at, Happening::Lost { node, other, epoch });
                    }
                }
            }
            Action::Take { request, most } => slot.workers.take(programs, request, most),
            Action::Start(key, parcel) => {
                let here = |name| lock(&slot.values).contains_key(name);
                assert!(
                    parcel.needs.iter().all(here),
                    "a job starts with its values"
                );
                slot.workers.start(key, parcel);
            }
            Action::Abort(key) => slot.workers.abort(key),
            Action::Deliver(departure, answer) => {
                let kept = |promises: &Promises| Cluster::is_kept(promises, slot, &answer);
                assert!(
                    self.promises.as_ref().is_none_or(kept),
                    "an answer arrives before what its job had offered"
                );
                slot.workers.deliver(programs, departure, &answer);
            }
            Action::Hold(key, parcel) => slot.workers.hold(key, parcel),
            Action::Release => slot.workers.release(),
            Action::ReleaseOne(id, fingerprint) => slot.workers.release_one(&(id, fingerprint)),
            Action::PutBack(departure, back) => slot.workers.put_back(departure, back),
            Action::Orphan(news) => slot.workers.orphan(news),
            Action::Save(key) => slot.workers.save(key),
            Action::KeepRoots(keep) => slot.keeps = keep,
            Action::RootKept(tag) => self.root_kept(node, tag),
            Action::YieldMain => self.yield_main(node),
            Action::RunMain { term } => self.run_main(node, term),
            Action::GiveBack => slot.workers.give_back(),
            Action::Hungry(hungry) => slot.hungry = hungry,
            Action::SendPart {
                to,
                name,
                offset,
                length,
            } => {
                let message = match lock(&slot.values).get(&name) {
                    None => Message::Unavailable(name),
                    Some(value) => {
                        let total = value.len() as u64;
                        let from = offset.min(total) as usize;
                        let end = (offset + length).min(total) as usize;
                        let bytes = value[from..end].to_vec();
                        Message::Part {
                            name,
                            offset,
                            total,
                            bytes,
                        }
                    }
                };
                slot.node.send(to, message);
            }
            Action::Store {
                name,
                root: _,
                offset,
                total,
                bytes,
            } => {
                let parts = slot.parts.entry(name).or_insert_with(|| ValueParts {
                    bytes: vec![0; total as usize],
                    missing: total,
                });
                let place = offset as usize..offset as usize + bytes.len();
                parts.bytes[place].copy_from_slice(&bytes);
                parts.missing -= bytes.len() as u64;
                if parts.missing == 0 {
                    let all = slot.parts.remove(&name).expect("it was there").bytes;
                    let right = *blake3::hash(&all).as_bytes() == name.0;
                    slot.workers.events.push_back(match right {
                        true => Event::Stored(name),
                        false => Event::Corrupt(name),
                    });
                    if right {
                        lock(&slot.values).insert(name, all);
                    }
                }
            }
            Action::DropPieces(name) => _ = slot.parts.remove(&name),
            Action::ForgetRoot(tag) => {
                slot.bounds.retain(|(_, root), _| !tag.ends(*root));
                slot.workers.forget_root(tag);
            }
            Action::Improve(offer) => {
                if offer.bound == BEST {
                    slot.workers
                        .improve(offer.root, BestLeaf::read(&offer.value));
                }
                let place = slot.bounds.entry((offer.bound, offer.root));
                let have = place.or_insert_with(|| offer.value.clone());
                if let Some(better) = Smallest.join(offer.bound, have, &offer.value) {
                    *have = better;
                }
            }
            Action::Joined { me, .. } => slot.joined = Some(me),
            Action::StartRoots => {
                slot.may_start = true;
                self.go_on_with_main(node);
            }
            Action::End(code) => self.end(node, code),
            Action::Tell(notice) => slot.notices.push(notice),
        }
    }

    /// The process exits, after what it sent has arrived.
    fn end(&mut self, node: u32, code: i32) {
        self.slot_mut(node).ended = Some(code);
        // Actions that the node was about to take at this moment still happen.
        while let Some(action) = self.slot_mut(node).node.poll_action() {
            if let Action::Send(to, message) = action {
                self.send(node, to, message);
            } else if let Action::Tell(notice) = action {
                self.slot_mut(node).notices.push(notice);
            }
        }
        let slot = self.slot_mut(node);
        slot.alive = false;
        let links: Vec<(u32, u64, Duration)> = (slot.links.iter())
            .filter(|(_, link)| link.up)
            .map(|(other, link)| (*other, link.epoch, link.arrived))
            .collect();
        for (other, epoch, arrived) in links {
            let half = self.path(node, other).round_trip / 2;
            let at = (self.now + half).max(arrived);
            let (node, other) = (other, node);
            self.schedule(at, Happening::Lost { node, other, epoch });
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
