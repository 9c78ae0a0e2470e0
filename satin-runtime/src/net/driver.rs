//! The driver of the node: it runs on the network thread, and all that the node has to know or to say passes through
//! [`Driver`].
//!
//! A message that comes in is handed to the node by the very task that has read it, and what the node answers is written
//! to the streams before that task goes back to sleep: a steal costs no more hops than an echo.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream};
use tokio::sync::Notify;

use super::{
    ExitRule, Join,
    bridge::{Bridge, BridgeNews, Pair, Piece},
    departures::NoticedDepartures,
    dial, discovery,
    door::{Crowd, Door, KnockQuota},
    greeting::Failure,
    limits,
    link::{Close, Link, write_large},
    packed::Body,
    progress::NetworkProgress,
    sampler::Sampler,
    sites::Sites,
    socket::SocketTraffic,
    storage::{RunFinish, Storage},
    thefts::Thefts,
    wire::{self, Frames},
};
use crate::{
    codes, data,
    exit::{self, INTERRUPTED, TIME_IS_OVER, TimeIsOver},
    job::{Answer, HostedId, Offer, function},
    node::{Action, Event, Identity, Message, Node, NodeId, Notice, Peer, message::Cargo, words},
    observe::{
        arrows::ComingJob,
        events::{self, EventLog, NodeFigures},
        lines::{self, Gathering},
        log::PanicGuard,
        look::{Activity, KeptFigures, NodeLook, WhyIdle},
        repeats,
        standing::Standing,
    },
};

/// Between two estimates of a round trip that the node is told.
const MEASURE: Duration = Duration::from_millis(500);

/// Time for which no job that is away is run here as well, after a node has died. Too short: a job that kills its hosts takes two at a time.
/// Too long: workers wait for what they could do.
const CAUTION: Duration = Duration::from_secs(60);

/// A root job is told to be further if it is by so much. Too small: the events file fills. Too large: people wonder.
const FURTHER: f64 = 0.01;

/// The exit code of a master whose pool was ended from outside: that of a process that SIGTERM has asked to end.
const STOPPED: i32 = 143;

/// Stands before the name of the node in the words of a panic.
const ON_NODE: &str = " on node ";

/// The state that the tasks of the network thread share.
pub(super) struct Net {
    pub(super) endpoint: Endpoint,
    pub(super) client: ClientConfig,
    pub(super) news: Arc<BridgeNews>,
    /// The node's next timeout has come nearer.
    pub(super) sooner: Notify,
    /// The node has done its work.
    pub(super) over: Notify,
    pub(super) driver: RefCell<Driver>,
}

impl Net {
    /// Runs `step` on the driver, and then everything that follows from it. A turn has one time: the clock is not read again in it, so that
    /// times do not run backwards from one step to the next.
    pub(super) fn turn<R>(self: &Rc<Self>, step: impl FnOnce(&mut Driver, Duration) -> R) -> R {
        // A task that panics takes nothing with it but itself.
        let _seen = PanicGuard;
        let mut driver = self.driver.borrow_mut();
        let now = driver.now();
        let result = step(&mut driver, now);
        driver.run(self, now);
        result
    }

    pub(super) fn handle(self: &Rc<Self>, event: Event) {
        self.turn(|driver, now| driver.tell(now, event));
    }
}

/// Attempts to connect to one address.
#[derive(Default)]
pub(super) struct Dial {
    /// The peers that the node meant to reach.
    pub(super) meant: Vec<Option<Peer>>,
    /// The number of the connection, once we have proposed it.
    pub(super) proposed: Option<u64>,
}

/// Messages for a peer to which no connection stands.
#[derive(Default)]
struct WaitingMessages {
    messages: VecDeque<Message>,
    gossip: usize,
}

/// Number of gossip messages that wait for a connection; older ones are dropped, as only the latest are worth anything.
/// Too small: news are lost that no later message repeats soon. Too large: old news take the place of new.
const WAITING_GOSSIP: usize = 4;

pub(super) enum DriverState {
    /// On the way into a pool.
    Joining {
        /// Addresses where the pool may be.
        candidates: Vec<SocketAddr>,
        /// The nodes that refused this node, and why, and since when.
        refused: BTreeMap<SocketAddr, String>,
        /// What came of the last attempt to reach each address, where that failed.
        tried: BTreeMap<SocketAddr, String>,
        since: Option<Instant>,
    },
    In,
    /// Ended with this exit code, and with a reason if something went wrong.
    Over(i32, Option<String>),
}

/// The one owner of the node.
pub(super) struct Driver {
    pub(super) node: Node,
    pub(super) bridge: Bridge,
    pub(super) door: Rc<Door>,
    pub(super) sources: KnockQuota,
    /// Handshakes of others that are under way.
    pub(super) crowd: Crowd,
    pub(super) links: HashMap<Peer, Link>,
    pub(super) dials: HashMap<SocketAddr, Dial>,
    /// The highest number of a connection between us and that node.
    epochs: HashMap<NodeId, u64>,
    /// The highest number of a connection to that node that stood.
    stood: HashMap<NodeId, u64>,
    waiting: HashMap<Peer, WaitingMessages>,
    /// Links to be flushed at the end of the turn.
    dirty: BTreeSet<Peer>,
    pub(super) state: DriverState,
    began: Instant,
    me: Peer,
    /// The time at which the timer will ring.
    armed: Option<Duration>,
    pub(super) progress: Arc<NetworkProgress>,
    standing: Arc<Standing>,
    events: Option<EventLog>,
    /// Takes samples of the workers while an observer looks, and keeps the latest events.
    sampler: Sampler,
    sites: Rc<Sites>,
    /// The reason that the last node gave that was asked for work in vain; `None` if it gave jobs.
    refused_work: Option<WhyIdle>,
    /// Bytes that were written to the store.
    stored_bytes: u64,
    pub(super) figures: NodeFigures,
    thefts: Thefts,
    pub(super) traffic: Arc<SocketTraffic>,
    idle: (u32, Duration),
    master: Option<Identity>,
    departures: NoticedDepartures,
    join: Option<Join>,
    storage: Option<Storage>,
    /// The address that others are told, as long as no peer has shown that it is right.
    guessed: Option<SocketAddr>,
    grace: Duration,
    exit: ExitRule,
    /// The number of nodes at which the first root job begins.
    wanted: usize,
    /// True if this node was asked to leave.
    leaving: bool,
    /// The pool of this master was ended from outside.
    stopped: bool,
    /// The part of the root job that was told last.
    told_part: f64,
    /// `main` has come to its end here.
    main_ended: bool,
    /// The news wait until an offer among them has been compared with others.
    compares: bool,
}

/// The parts from which a driver is made.
pub(super) struct Beginning {
    pub(super) node: Node,
    pub(super) bridge: Bridge,
    pub(super) door: Door,
    pub(super) began: Instant,
    pub(super) progress: Arc<NetworkProgress>,
    pub(super) standing: Arc<Standing>,
    pub(super) events: Option<EventLog>,
    pub(super) sampler: Sampler,
    pub(super) traffic: Arc<SocketTraffic>,
    pub(super) join: Option<Join>,
    pub(super) storage: Option<Storage>,
    /// The address that others are told, if it is a guess.
    pub(super) guessed: Option<SocketAddr>,
    pub(super) grace: Duration,
    pub(super) exit: ExitRule,
    /// The number of nodes at which the first root job begins.
    pub(super) wanted: u32,
}

impl Driver {
    pub(super) fn new(beginning: Beginning) -> Driver {
        let Beginning {
            node,
            bridge,
            door,
            began,
            progress,
            standing,
            events,
            sampler,
            traffic,
            join,
            storage,
            guessed,
            grace,
            exit,
            wanted,
        } = beginning;
        Driver {
            me: node.view().me().peer,
            figures: NodeFigures {
                threads: node.view().me().threads,
                ..NodeFigures::default()
            },
            node,
            bridge,
            door: Rc::new(door),
            sources: KnockQuota::default(),
            crowd: Crowd::default(),
            links: HashMap::new(),
            dials: HashMap::new(),
            epochs: HashMap::new(),
            stood: HashMap::new(),
            waiting: HashMap::new(),
            dirty: BTreeSet::new(),
            state: DriverState::Joining {
                candidates: Vec::new(),
                refused: BTreeMap::new(),
                tried: BTreeMap::new(),
                since: None,
            },
            began,
            armed: None,
            thefts: Thefts::default(),
            progress,
            standing,
            events,
            sampler,
            sites: Rc::default(),
            refused_work: None,
            stored_bytes: 0,
            traffic,
            idle: (0, Duration::ZERO),
            master: None,
            departures: NoticedDepartures::default(),
            join,
            storage,
            guessed,
            grace,
            exit,
            wanted: wanted as usize,
            leaving: false,
            stopped: false,
            told_part: 0.0,
            main_ended: false,
            compares: false,
        }
    }

    /// The time of a turn that begins.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn me(&self) -> &Identity {
        self.node.view().me()
    }

    pub(super) fn master(&self) -> Option<&Identity> {
        self.master.as_ref()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, DriverState::Over(..))
    }

    /// When the timer is to ring, as far as is known now; from now on it is armed.
    pub(super) fn arm(&mut self) -> Option<Instant> {
        self.armed = self.node.poll_timeout();
        self.armed.map(|at| self.began + at)
    }

    /// The pairs that code of the user has still to join for these offers, before the node may see them.
    fn missing_joins(&self, offers: &[Offer]) -> Vec<Pair> {
        let missing = |offer| self.bridge.joins.missing(offer, self.node.known(offer));
        offers.iter().filter_map(missing).collect()
    }

    /// A worker has nothing to do: if it waits for a job on another node, it may do that itself, if it knows what jobs cost.
    fn know_costs(&mut self) {
        self.node.seen(&self.bridge.samples());
        self.bridge.know_costs(self.node.costs());
    }

    /// News of other threads, and then the node's actions, until there are none.
    fn run(&mut self, net: &Rc<Net>, now: Duration) {
        net.news.look();
        while !self.is_over() {
            while !self.compares
                && let Some(mut event) = net.news.next()
            {
                self.sign(&mut event);
                if !self.missing_joins(offers_of(&event)).is_empty() {
                    // The events after the offers must not overtake them.
                    self.compares = true;
                    tokio::task::spawn_local(offered(Rc::clone(net), event));
                    break;
                }
                self.bridge.note(&event);
                if let Event::RootResult(_, saved, _) = &event
                    && let Some(storage) = &self.storage
                {
                    storage.hold(saved.answer.needs());
                }
                self.watch(&event, now);
                if let Event::Idle(1..) = event {
                    self.know_costs();
                }
                self.tell(now, event);
            }
            let Some(action) = self.node.poll_action() else {
                break;
            };
            tracing::trace!(target: "satin::node", "{}", words::wanted(&action));
            self.perform(net, now, action);
        }
        if !self.compares {
            net.news.be_quiet(self.node.may_wait());
        }
        self.flush(net);
        let asking = self.node.asking();
        self.sampler.asking(asking.near, asking.far);
        if self.is_over() {
            net.over.notify_one();
            return;
        }
        if self.me().peer != self.me {
            self.begin_again(net, now);
        }
        let next = self.node.poll_timeout();
        if next.is_some_and(|next| self.armed.is_none_or(|armed| next < armed)) {
            net.sooner.notify_one();
        }
    }

    /// Tells the node what happened.
    pub(super) fn tell(&mut self, now: Duration, event: Event) {
        tracing::trace!(target: "satin::node", "{}", words::told(&event));
        self.node.handle(now, event);
    }

    /// A panic that leaves this node says which it was; not one that has come from another.
    fn sign(&self, event: &mut Event) {
        if let Event::Done(_, Answer::Panicked(text)) = event
            && !text.contains(ON_NODE)
        {
            text.push_str(ON_NODE);
            text.push_str(&self.me().name);
        }
    }

    fn perform(&mut self, net: &Rc<Net>, now: Duration, action: Action) {
        match action {
            Action::Connect { addr, peer } => dial::dial(net, self, addr, peer),
            Action::Probe { addr, peer } => dial::probe_peer(net, addr, peer),
            Action::Send(to, message) => self.send(net, now, to, message),
            Action::Disconnect(peer) => self.disconnect(peer),
            Action::Take {
                request,
                most,
                terms,
            } => {
                if let Some(took) = self.bridge.take(request, most, terms) {
                    self.tell(now, took);
                }
            }
            Action::Start(key, parcel) => {
                self.figures.jobs += 1;
                (self.sampler).comes(key, || self.coming(now, key, parcel.function));
                self.bridge.start(key, parcel);
            }
            Action::Hold(key, parcel) => self.bridge.hold(key, parcel),
            Action::Release => self.bridge.release(),
            Action::ReleaseOne(name) => self.bridge.release_one(name),
            Action::Abort(key) => self.bridge.abort(key),
            Action::Deliver(departure, answer) => self.bridge.deliver(departure, answer),
            Action::PutBack(departure, back) => self.bridge.put_back(departure, back),
            Action::Unfit(unfit) => self.bridge.unfit(unfit),
            Action::Orphan(news) => self.bridge.orphan(news),
            Action::Save(key) => self.bridge.save(key),
            Action::Harvest { since, reader } => self.bridge.harvest(since, reader),
            Action::GiveBack => self.bridge.give_back(),
            Action::NotePart(departure, part) => self.bridge.note_part(departure, part),
            Action::KeepRoots(keep) => self.bridge.keep_roots(keep),
            Action::RootKept(root) => self.bridge.root_kept(root),
            Action::YieldMain => {
                self.storage.iter().for_each(Storage::main_stopped);
                self.progress.yield_main();
                self.bridge.stop_main();
            }
            Action::RunMain { term } => self.run_main(term),
            Action::Hungry(hungry) => self.bridge.set_hungry(hungry),
            Action::SendPart {
                to,
                name,
                offset,
                length,
            } => {
                let message = match crate::data::store().read(name, offset, length) {
                    Some((bytes, total)) => Message::Part {
                        name,
                        offset,
                        total,
                        bytes,
                    },
                    None => Message::Unavailable(name),
                };
                self.node.send(to, message);
            }
            Action::Store {
                name,
                root,
                lent,
                offset,
                total,
                bytes,
            } => {
                let piece = Piece {
                    offset,
                    total,
                    bytes,
                };
                self.bridge.store(name, root, lent, piece);
            }
            Action::DropPieces(name) => self.bridge.drop_pieces(name),
            Action::Borrowed(names) => self.bridge.borrowed(names),
            Action::Brought { ticket, value } => self.bridge.brought(ticket, value),
            Action::DropKept(names) => self.bridge.drop_kept(names),
            Action::KeeperLeaves(keeper) => self.bridge.keeper_leaves(keeper),
            Action::BringHome(name) => self.bridge.bring_home(name),
            Action::ForgetRoot(root) => self.bridge.forget_root(root),
            Action::Improve(offer) => self.bridge.improve(offer),
            Action::Storage(order) => {
                if let Some(storage) = &self.storage {
                    storage.order(self.me().peer, order);
                }
            }
            Action::Joined { me, master } => self.joined(me, master),
            Action::StartRoots => {
                self.wanted = 0;
                self.bridge.release_roots();
            }
            Action::End(end) => {
                if !self.is_over() {
                    self.state = DriverState::Over(self.exit.code(end), None);
                }
                if self.main_ended && self.is_master() {
                    let code = end.own_code();
                    self.write(events::Event::PoolEnded { code });
                }
            }
            Action::Tell(notice) => self.told(notice),
        }
    }

    /// If `main` has come to its end here, the run is done, and the store is told. The receiver ends when it knows.
    pub(super) fn finish_run(&self) -> Option<tokio::sync::oneshot::Receiver<()>> {
        let storage = self.storage.as_ref()?;
        let is_done = self.main_ended && self.is_master() && !self.progress.lock().broken_off;
        match self.state {
            DriverState::Over(code, None) if is_done => {
                let view = self.node.view();
                let has_others = view.len() > 1 || self.node.misses().next().is_some();
                Some(storage.finish(RunFinish {
                    code,
                    members: view.members().map(|member| member.peer.id).collect(),
                    has_others,
                }))
            }
            _ => None,
        }
    }

    /// If the pool is over, and this node has not ended it, its log is closed: the run may have been removed while it wrote. The
    /// receiver ends when that is done.
    pub(super) fn close_log(&self) -> Option<tokio::sync::oneshot::Receiver<()>> {
        let is_over = matches!(self.state, DriverState::Over(_, None));
        let storage = self.storage.as_ref();
        let storage = storage.filter(|_| is_over && !self.leaving && !self.main_ended);
        storage.map(Storage::close_log)
    }

    // ---------------------------------------------------------------------------------------------------- what happened

    /// Notes an event of the node for the figures and the events file.
    fn watch(&mut self, event: &Event, now: Duration) {
        match event {
            Event::Idle(workers) => {
                let (before, since) = std::mem::replace(&mut self.idle, (*workers, now));
                self.figures.idle_s += f64::from(before) * now.saturating_sub(since).as_secs_f64();
            }
            Event::RootStarted(root) => self.write(events::Event::RootStarted { root: root.tag() }),
            Event::RootFinished(root) => {
                self.write(events::Event::RootFinished { root: root.tag() })
            }
            Event::Written { bytes, .. } => self.stored_bytes += *bytes,
            Event::MainEnded(_) | Event::BrokenOff(_) => self.main_ended = true,
            // The process exits, whatever `main` does meanwhile.
            Event::Superseded(_) | Event::RunIsOver(_) if self.is_master() => self.leaving = true,
            Event::Drain(grace) => {
                tracing::info!(
                    ?grace,
                    "leaving: what is under way is finished or handed over"
                );
                if !self.leaving {
                    lines::say(format_args!(
                        "leaving, which takes up to {:.0} s; Ctrl-C again goes at once",
                        grace.as_secs_f64()
                    ));
                }
                self.leaving = true;
            }
            _ => {}
        }
    }

    /// Jobs that this node has put back because the nodes that had them were gone: how many of each function, by its own name.
    pub(super) fn jobs_put_back(&self) -> BTreeMap<String, u64> {
        let mut jobs = BTreeMap::new();
        for (number, count) in self.node.repairs() {
            if let Some(function) = function::by_number(*number) {
                let name = function::short_name(function.info.name);
                *jobs.entry(name.to_owned()).or_default() += count;
            }
        }
        for (name, count) in self.bridge.tasks_again() {
            *jobs
                .entry(function::short_name(name).to_owned())
                .or_default() += count;
        }
        jobs
    }

    pub(super) fn final_figures(&mut self) -> NodeFigures {
        let now = self.now();
        self.watch(&Event::Idle(0), now);
        self.figures_until(now)
    }

    /// The figures up to this moment.
    pub(super) fn figures_now(&mut self, now: Duration) -> NodeFigures {
        let (workers, _) = self.idle;
        self.watch(&Event::Idle(workers), now);
        self.figures_until(now)
    }

    fn figures_until(&self, now: Duration) -> NodeFigures {
        let (steal_us_p50, steal_us_p99) = self.thefts.percentiles();
        NodeFigures {
            steal_us_p50,
            steal_us_p99,
            tally: self.node.tally(),
            seconds: now.as_secs_f64(),
            given: self.bridge.given,
            bytes_sent: self.traffic.sent.load(std::sync::atomic::Ordering::Relaxed),
            bytes_received: self
                .traffic
                .received
                .load(std::sync::atomic::Ordering::Relaxed),
            done: self.bridge.progress().map(|progress| progress.done),
            ..self.figures
        }
    }

    /// A look at this node: what became known from the place `since` on, and how things stand.
    pub(super) fn look(&mut self, now: Duration, since: u64) -> NodeLook {
        let news = self.sampler.look(since);
        let activities = self.sampler.activities();
        let (values, value_bytes) = data::store().held();
        NodeLook {
            now_ms: events::unix_ms(),
            figures: self.figures_now(now),
            spans: news.spans,
            arrows: news.arrows,
            functions: news.functions,
            why_idle: activities.iter().map(|one| self.why_idle(*one)).collect(),
            sites: self
                .sites
                .read((self.links.values()).map(|link| (&*link.identity.site, &link.connection))),
            kept: KeptFigures {
                orphans: self.node.orphans() as u64,
                records: self.node.copies() as u64,
                record_bytes: self.bridge.harvested_bytes(),
                values,
                value_bytes,
                store_bytes: self.storage.is_some().then_some(self.stored_bytes),
            },
            events: news.events,
            next: news.next,
        }
    }

    /// The way of a hosted job of that function up to this moment, at which the workers get it; `None` if the node that gave it is gone.
    fn coming(&self, now: Duration, key: HostedId, number: u32) -> Option<ComingJob> {
        let arrival = self.node.arrival(key)?;
        let ready_ms = events::unix_ms();
        let waited_ms = now.saturating_sub(arrival.came).as_millis() as u64;
        Some(ComingJob {
            from: Arc::clone(&self.node.view().get(arrival.from)?.name),
            function: function::short_name(function::by_number(number)?.info.name),
            sent_ms: arrival.sent_ms,
            came_ms: ready_ms.saturating_sub(waited_ms),
            ready_ms,
        })
    }

    /// The reason why a worker that does this has nothing to run; `None` if it has something.
    fn why_idle(&self, activity: Activity) -> Option<WhyIdle> {
        match activity {
            Activity::Wait => return Some(WhyIdle::WaitsForChild),
            Activity::Idle | Activity::StealNear | Activity::StealFar => {}
            _ => return None,
        }
        Some(if self.leaving {
            WhyIdle::Leaving
        } else if self.node.has_full_memory() {
            WhyIdle::MemoryFull
        } else if self.node.waits_for_values() {
            WhyIdle::WaitsForValue
        } else if self.is_master() && self.bridge.progress().is_none() {
            WhyIdle::NoRootJob
        } else {
            self.refused_work.unwrap_or(WhyIdle::NoWork)
        })
    }

    /// Writes down how far the root job is that runs here, if it has come further.
    pub(super) fn tell_progress(&mut self) {
        let Some(progress) = self.bridge.progress() else {
            self.told_part = 0.0;
            return;
        };
        // Another root job has begun.
        self.told_part = self.told_part.min(progress.done);
        if progress.done >= self.told_part + FURTHER {
            self.told_part = progress.done;
            self.write(events::Event::Progress {
                done: progress.done,
                seconds: progress.elapsed.as_secs_f64(),
                is_guess: progress.is_guess,
                nodes: self.node.view().len(),
            });
        }
    }

    pub(super) fn write(&self, event: events::Event) {
        self.happened(&self.me().name, &event);
        if let Some(log) = &self.events {
            log.write(event);
        }
    }

    fn write_about(&self, who: &Identity, event: events::Event) {
        self.happened(&who.name, &event);
        if let Some(log) = &self.events {
            log.write_about(&who.name, event);
        }
    }

    /// Keeps an event for observers.
    fn happened(&self, name: &str, event: &events::Event) {
        self.sampler.happened(events::Record {
            event: event.clone(),
            name: name.into(),
            at_ms: events::unix_ms(),
        });
    }

    fn is_master(&self) -> bool {
        (self.master.as_ref()).is_some_and(|master| master.peer.id == self.me.id)
    }

    /// We are in, or another is master.
    fn joined(&mut self, me: Identity, master: Identity) {
        tracing::info!(stamp = me.stamp, master = %master.name, "this node is in the pool");
        let founded = matches!(self.state, DriverState::Joining { .. });
        if founded {
            self.state = DriverState::In;
        }
        let is_master = me.peer.id == master.peer.id;
        self.standing.update(|info| {
            info.is_master = is_master;
            info.master = master.name.to_string();
        });
        let was_master = self.is_master();
        let old = self.master.replace(master);
        self.say_moved(old.as_ref());
        self.count_nodes();
        self.progress.is_in(is_master);
        if is_master && !was_master {
            let old = old.map(|old| old.peer.id);
            for (who, event) in self.departures.untold(old) {
                self.write_about(&who, event);
            }
        }
        if founded {
            self.say_in(is_master);
        }
        // With a store the node says when.
        if founded && is_master && self.storage.is_none() {
            self.run_main(0);
        }
    }

    /// Tells the person at the terminal that this node is in.
    fn say_in(&self, is_master: bool) {
        let gathering = self.gathering();
        match &self.master {
            Some(master) if !is_master => {
                lines::say(format_args!("let in by {}, the master", master.name));
            }
            _ if gathering.nodes < gathering.wanted => lines::say(format_args!("{gathering}")),
            _ => {}
        }
    }

    fn gathering(&self) -> Gathering {
        Gathering {
            nodes: self.node.view().len(),
            wanted: self.wanted,
        }
    }

    /// Tells the person at the master's terminal what has become of a node.
    fn say_of(&self, who: &Identity, what: &str) {
        if self.is_master() && !self.is_over() {
            lines::say(format_args!("{} {what}: {}", who.name, self.gathering()));
        }
    }

    /// If the main thread waits for its turn, it runs `main` now; otherwise calls come from other threads, and go on at
    /// once.
    fn run_main(&mut self, term: u32) {
        let site = self.me().site.to_string();
        self.write(events::Event::Master { site, term });
        if !self.progress.run_main(term) {
            self.bridge.begin_main(term);
        }
    }

    /// Asks this node to leave, within the given grace or its settings'. False if that makes no sense: the node is not
    /// in, or it is master and no node would be left to go on.
    pub(super) fn drain(&mut self, now: Duration, grace: Option<Duration>) -> bool {
        let makes_sense = match self.state {
            DriverState::In => !self.is_master() || self.heirs() > 0,
            _ => false,
        };
        if makes_sense {
            let grace = grace.unwrap_or(self.grace).min(limits::GRACE);
            let event = Event::Drain(grace);
            self.watch(&event, now);
            self.tell(now, event);
        }
        makes_sense
    }

    /// Ends the pool of this master, as a request to end does where no other node could go on. False if this node is no master.
    pub(super) fn stop(&mut self, now: Duration) -> bool {
        let makes_sense = matches!(self.state, DriverState::In) && self.is_master();
        if makes_sense {
            tracing::warn!("somebody ends this pool (`satin stop`)");
            self.break_off(now, STOPPED);
        }
        makes_sense
    }

    fn break_off(&mut self, now: Duration, code: i32) {
        self.stopped = true;
        self.progress.lock().broken_off = true;
        let event = Event::BrokenOff(code);
        self.watch(&event, now);
        self.tell(now, event);
    }

    /// The time that this node may take is over: ends the pool if this node is the master, and this node's search if it is not in yet.
    pub(super) fn end_in_time(&mut self, now: Duration, limit: Duration) {
        let has_store = self.storage.as_ref().is_some_and(Storage::has_run);
        match self.state {
            DriverState::Joining { .. } => {
                tracing::warn!("{}", TimeIsOver { limit, has_store });
                self.state = DriverState::Over(TIME_IS_OVER, None);
            }
            DriverState::In if self.is_master() && !self.main_ended => {
                tracing::warn!("{}", TimeIsOver { limit, has_store });
                self.break_off(now, TIME_IS_OVER);
            }
            _ => {}
        }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// True if the process exits, whatever `main` does meanwhile: this node has handed over its jobs, or its pool was stopped.
    pub(super) fn is_drained(&self) -> bool {
        self.leaving && !self.main_ended || self.stopped
    }

    /// Number of other nodes that are to stay.
    fn heirs(&self) -> usize {
        let view = self.node.view();
        view.len().saturating_sub(
            view.draining()
                .chain([self.me])
                .collect::<BTreeSet<_>>()
                .len(),
        )
    }

    fn count_nodes(&self) {
        let nodes = self.node.view().len();
        self.standing.update(|info| info.nodes = nodes);
        self.progress.set_heirs(self.heirs());
    }

    /// Writes an event of another node, if this node is master; if not, keeps it, as this node may become master.
    fn tell_of(&mut self, who: &Identity, event: events::Event) {
        if self.is_master() {
            self.write_about(who, event);
        } else {
            self.departures.note(Instant::now(), who, event);
        }
    }

    /// A peer has dialled `ip`, and so this machine is reached by it. If the address that this node tells others was a
    /// guess, it may be another.
    pub(super) fn dialled_at(&mut self, now: Duration, ip: IpAddr) {
        let ip = ip.to_canonical();
        let Some(old) = self.guessed else { return };
        // A node that came by the loopback interface is on this machine, and its way tells nothing about others.
        if ip.is_loopback() || ip.is_unspecified() || !matches!(self.state, DriverState::In) {
            return;
        }
        self.guessed = None;
        let new = SocketAddr::from((ip, old.port()));
        if new == old {
            return;
        }
        self.tell(now, Event::Readdressed(new));
        if self.me().addr != new {
            tracing::warn!(
                "another node reaches this node at {new}, but this node tells other nodes the address {old}. If they cannot \
                 reach {old}, start this node with --advertise (SATIN_ADVERTISE) {new}"
            );
            return;
        }
        tracing::info!("this node tells other nodes the address {new} from now on, not {old}");
        let me = self.me().clone();
        if let Some(master) = self.master.as_mut().filter(|master| master.peer == me.peer) {
            *master = me;
        }
        if let Some(file @ Join::File(_)) = self.join.clone() {
            tokio::task::spawn_blocking(move || {
                if let Err(error) = discovery::rewrite(Some(&file), old, new) {
                    tracing::warn!("{error}");
                }
            });
        }
    }

    /// Strikes a node off the file of addresses: no other node is to look for it there any more.
    fn forget(&self, who: &Identity) {
        if let Some(file @ Join::File(_)) = self.join.clone()
            && self.is_master()
        {
            let addr = who.addr;
            tokio::task::spawn_blocking(move || {
                if let Err(error) = discovery::forget(Some(&file), &[addr]) {
                    tracing::warn!("{error}");
                }
            });
        }
    }

    fn told(&mut self, notice: Notice) {
        self.count_nodes();
        if let Notice::Left(who) | Notice::Dead(who) = &notice {
            self.bridge.keeper_gone(who.peer.id.0);
        }
        let site = |who: &Identity| who.site.to_string();
        match notice {
            Notice::Joined(who) => {
                tracing::info!(name = %who.name, site = %who.site, "a node joined");
                self.say_of(&who, "joined");
                self.tell_of(&who, events::Event::Joined { site: site(&who) });
            }
            Notice::Draining(who) => {
                tracing::info!(name = %who.name, site = %who.site, "a node is about to leave");
                self.tell_of(&who, events::Event::Draining { site: site(&who) });
            }
            Notice::Left(who) => {
                tracing::info!(name = %who.name, site = %who.site, "a node left");
                self.say_of(&who, "left");
                self.tell_of(&who, events::Event::Left { site: site(&who) });
            }
            Notice::Dead(who) => {
                // Once is enough: the others know it too.
                if self.is_master() {
                    tracing::warn!(name = %who.name, site = %who.site, "a node died; jobs that it had taken from others come back to them");
                } else {
                    tracing::info!(name = %who.name, site = %who.site, "a node died; jobs that it had taken from others come back to them");
                }
                self.tell_of(&who, events::Event::Dead { site: site(&who) });
                self.forget(&who);
                // Perhaps of a job: who ran the same job beside it would be the next.
                self.bridge.be_cautious(CAUTION);
            }
            Notice::Master(who) => {
                tracing::info!(name = %who.name, site = %who.site, "a node is the master now: it runs `main`");
            }
            Notice::CutOff => {
                tracing::warn!(
                    "this node is cut off from the master, and from much of the pool: it waits for them, and goes on with its jobs"
                );
                self.write(events::Event::CutOff {
                    site: site(self.me()),
                });
            }
            Notice::Branch => {
                tracing::warn!(
                    "this side of a cut goes on as a branch: it begins `main` again, here"
                );
                self.write(events::Event::Branch {
                    site: site(self.me()),
                });
            }
            Notice::ComesOver => {
                tracing::warn!(
                    "this node comes over to the other side of a cut: it keeps what it has finished, and gives up what it runs"
                );
                self.write(events::Event::ComesOver {
                    site: site(self.me()),
                });
            }
            // Who pressed Ctrl-C has ended all nodes, and knows.
            Notice::Failed(_) if exit::asked_code() == INTERRUPTED => {
                self.state = DriverState::Over(INTERRUPTED, None);
            }
            // What cannot begin a run says so itself.
            Notice::Failed(text) => self.fail(codes::with_code(text, Some(codes::POOL_LOST))),
            Notice::Warning(text) => tracing::warn!("{text}"),
        }
    }

    /// Tells the person at the terminal if `main` has moved from that node to another.
    fn say_moved(&self, from: Option<&Identity>) {
        let (Some(from), Some(who)) = (from, &self.master) else {
            return;
        };
        if from.peer.id == who.peer.id {
            return;
        }
        match who.peer.id == self.me.id {
            true => lines::say(format_args!(
                "this node is master now: `main` begins again here"
            )),
            false if self.leaving => {
                lines::say(format_args!(
                    "`main` now runs on {}; `satin stop` ends the pool",
                    who.name
                ));
            }
            false => lines::say(format_args!("{} is master now", who.name)),
        }
    }

    /// Ends this node, which cannot go on, with an error.
    pub(super) fn fail(&mut self, text: String) {
        self.state = DriverState::Over(1, Some(text));
    }

    // --------------------------------------------------------------------------------------------------------- sending

    fn send(&mut self, net: &Rc<Net>, now: Duration, to: Peer, mut message: Message) {
        self.thefts.sent(now, to, &message);
        if let Message::Steal { .. } = message {
            match self.node.view().is_near(to) {
                true => self.figures.asked_near += 1,
                false => self.figures.asked_far += 1,
            }
        }
        let given = message.jobs().len();
        if given > 0 {
            message.note_sent(events::unix_ms());
            if let Some(identity) = self.node.view().get(to) {
                self.sites.gave(&identity.site, given);
            }
        }
        if let Some(link) = self.links.get_mut(&to) {
            link.send(&message);
            self.dirty.insert(to);
            return;
        }
        let waiting = self.waiting.entry(to).or_default();
        if let Message::Gossip(_) = message {
            waiting.gossip += 1;
            if waiting.gossip > WAITING_GOSSIP
                && let Some(oldest) =
                    (waiting.messages.iter()).position(|old| matches!(old, Message::Gossip(_)))
            {
                waiting.messages.remove(oldest);
                waiting.gossip -= 1;
            }
        }
        waiting.messages.push_back(message);
        if waiting.messages.len() > limits::WAITING_MESSAGES {
            waiting.messages.pop_front();
        }
        // The node has asked for the connection; should it not, the messages are not to wait for ever.
        match self.node.view().get(to).map(|identity| identity.addr) {
            Some(addr) => dial::dial(net, self, addr, Some(to)),
            None => {
                let dialled = |dial: &Dial| dial.meant.contains(&Some(to));
                if !self.dials.values().any(dialled) {
                    self.waiting.remove(&to);
                }
            }
        }
    }

    /// The messages that wait for a connection which does not come to stand: the node decides whether to try again, or
    /// how else to send them.
    pub(super) fn take_waiting(&mut self, peer: Peer) -> Vec<Message> {
        let waiting = self.waiting.remove(&peer).unwrap_or_default();
        waiting.messages.into()
    }

    fn flush(&mut self, net: &Rc<Net>) {
        while let Some(peer) = self.dirty.pop_first() {
            let Some(link) = self.links.get_mut(&peer) else {
                continue;
            };
            let now = Instant::now();
            link.used = now;
            while let Some(body) = link.next_large() {
                let (net, epoch) = (Rc::clone(net), link.epoch);
                let (connection, traffic) = (link.connection.clone(), Rc::clone(&link.traffic));
                tokio::task::spawn_local(async move {
                    // If it cannot be written the connection is gone, which its reader will find too.
                    let _ = write_large(&connection, body, &traffic).await;
                    net.turn(|driver, _| driver.sent_large(peer, epoch));
                });
            }
            if link.flush().is_err() {
                continue; // its reader will find that it is gone
            }
            if link.is_stuck(now) {
                repeats::warn(
                    "closed the connection to a node",
                    &link.identity.name,
                    "the node has stopped reading what this node sends",
                );
                link.close(Close::Slow, "you have stopped reading what is sent");
            }
        }
    }

    fn sent_large(&mut self, peer: Peer, epoch: u64) {
        if let Some(link) = self.links.get_mut(&peer)
            && link.epoch == epoch
        {
            link.sent_large();
            self.dirty.insert(peer);
        }
    }

    // ----------------------------------------------------------------------------------------------------- connections

    /// The lowest number that the next connection to that node may have. Counted in twos: the lowest bit is set by
    /// [`Driver::settle_epoch`].
    pub(super) fn propose_epoch(&mut self, id: Option<NodeId>, at_least: u64) -> u64 {
        let known = id.and_then(|id| self.epochs.get(&id)).copied().unwrap_or(0);
        let next = (known.max(at_least) / 2 + 1) * 2;
        if let Some(id) = id {
            self.epochs.insert(id, next);
        }
        next
    }

    /// The number of a connection for which `dialler` proposed the number `proposed`. Two connections that were made at
    /// the same time from both sides get different numbers, the same on both sides.
    pub(super) fn settle_epoch(&mut self, dialler: NodeId, proposed: u64) -> u64 {
        let known = self.epochs.get(&dialler).copied().unwrap_or(0);
        let mut epoch = known.max(proposed) / 2 * 2 + u64::from(dialler < self.me.id);
        while self.has_stood(dialler, epoch) {
            epoch += 2;
        }
        self.epochs.insert(dialler, epoch.max(known));
        epoch
    }

    /// Has a connection to that node stood with this number or a higher one?
    pub(super) fn has_stood(&self, id: NodeId, epoch: u64) -> bool {
        self.stood.get(&id).is_some_and(|stood| epoch <= *stood)
    }

    pub(super) fn epoch_of(&self, id: NodeId) -> u64 {
        self.epochs.get(&id).copied().unwrap_or(0)
    }

    pub(super) fn link_at(&self, addr: SocketAddr) -> bool {
        self.links.values().any(|link| link.identity.addr == addr)
    }

    /// A connection stands, and both sides know its number. If there is one with a higher number already, it goes.
    ///
    /// # Errors
    /// This node has begun another life since it greeted as `me`: the connection would be one of the life before.
    #[expect(
        clippy::too_many_arguments,
        reason = "all that two greetings found out"
    )]
    pub(super) fn establish(
        &mut self,
        net: &Rc<Net>,
        now: Duration,
        me: Peer,
        identity: Identity,
        epoch: u64,
        connection: Connection,
        (send, recv): (SendStream, RecvStream),
        frames: Frames,
    ) -> Result<(), Failure> {
        if self.me().peer != me {
            connection.close(Close::Reborn.code(), b"I have begun another life");
            return Err(Failure::Crossed(epoch));
        }
        let peer = identity.peer;
        self.forget_strangers();
        for numbers in [&mut self.epochs, &mut self.stood] {
            let known = numbers.entry(peer.id).or_default();
            *known = epoch.max(*known);
        }
        if let Some(old) = self.links.get(&peer) {
            if old.epoch >= epoch {
                connection.close(Close::Replaced.code(), b"another connection took its place");
                return Ok(());
            }
            old.close(Close::Replaced, "another connection took its place");
        }
        let _ = send.set_priority(1);
        let round_trip = connection.rtt();
        tracing::debug!(name = %identity.name, epoch, ?round_trip, "connected");
        let link = Link::new(
            identity.clone(),
            epoch,
            connection.clone(),
            send,
            Instant::now(),
            &self.sites,
        );
        let unblock = Rc::clone(&link.unblock);
        self.links.insert(peer, link);
        self.progress.connected();
        self.tell(
            now,
            Event::Connected {
                peer: identity,
                epoch,
                round_trip,
            },
        );
        if let (Some(waiting), Some(link)) = (self.waiting.remove(&peer), self.links.get_mut(&peer))
        {
            for message in &waiting.messages {
                link.send(message);
            }
            self.dirty.insert(peer);
        }
        tokio::task::spawn_local(read(Rc::clone(net), peer, epoch, recv, frames));
        tokio::task::spawn_local(read_large(Rc::clone(net), peer, epoch, connection.clone()));
        tokio::task::spawn_local(read_datagrams(Rc::clone(net), peer, epoch, connection));
        tokio::task::spawn_local(write(Rc::clone(net), peer, epoch, unblock));
        self.make_room();
        Ok(())
    }

    /// The numbers of connections to nodes that are gone are kept for a while only.
    fn forget_strangers(&mut self) {
        if self.epochs.len() > 2 * limits::PEERS {
            let known: BTreeSet<NodeId> =
                self.node.view().members().map(|who| who.peer.id).collect();
            self.epochs.retain(|id, _| known.contains(id));
            self.stood.retain(|id, _| known.contains(id));
        }
    }

    /// Closes the links that have been silent longest, if there are too many. No peer died: the node is not told.
    fn make_room(&mut self) {
        let too_many = self.links.len().saturating_sub(limits::LINKS);
        if too_many == 0 {
            return;
        }
        let mut silent: Vec<(Instant, Peer)> = (self.links.iter())
            .filter(|(_, link)| link.used.elapsed() >= limits::SILENT && link.waiting() == 0)
            .map(|(peer, link)| (link.used, *peer))
            .collect();
        silent.sort_unstable();
        for (_, peer) in silent.into_iter().take(too_many) {
            self.links[&peer].close(Close::Silent, "nothing to say");
        }
    }

    /// The connection with that number is gone.
    fn lost(&mut self, now: Duration, peer: Peer, epoch: u64) {
        if self.links.get(&peer).is_none_or(|link| link.epoch != epoch) {
            return;
        }
        let link = self.links.remove(&peer).expect("it has just been there");
        let why = link.connection.close_reason();
        match why {
            Some(quinn::ConnectionError::ApplicationClosed(close))
                if [Close::Refused, Close::Malformed, Close::Slow]
                    .iter()
                    .any(|why| why.code() == close.error_code) =>
            {
                let text = wire::printable(&String::from_utf8_lossy(&close.reason));
                repeats::warn("a node closed the connection", &link.identity.name, text);
            }
            why => tracing::debug!(name = %link.identity.name, epoch, ?why, "disconnected"),
        }
        self.tell(now, Event::Disconnected { peer, epoch });
    }

    fn disconnect(&mut self, peer: Peer) {
        self.waiting.remove(&peer);
        if let Some(link) = self.links.remove(&peer) {
            tokio::task::spawn_local(link.finish());
        }
    }

    /// Begins another life of this node: its connections belong to the life before.
    fn begin_again(&mut self, net: &Rc<Net>, now: Duration) {
        self.me = self.me().peer;
        for (peer, link) in std::mem::take(&mut self.links) {
            link.close(Close::Reborn, "I have begun another life");
            let epoch = link.epoch;
            self.tell(now, Event::Disconnected { peer, epoch });
        }
        let (id, is_in) = (self.me.id.0, self.me().stamp != Identity::NOT_YET);
        if !is_in {
            // After a cut the node comes over to the other side. Until it is in there it is no master, or it would end the run of that side.
            self.master = None;
        }
        self.standing.update(|info| {
            info.id = id;
            info.is_master &= is_in;
        });
        self.run(net, now);
    }

    /// The run is over: the links are given to the caller, which lets all messages on them arrive.
    pub(super) fn take_links(&mut self) -> Vec<Link> {
        self.waiting.clear();
        self.links.drain().map(|(_, link)| link).collect()
    }

    // ------------------------------------------------------------------------------------------------------- receiving

    /// Bytes of a control stream. A message whose offers are to be compared by code of the user comes back, and what is
    /// behind it waits.
    fn received(
        &mut self,
        now: Duration,
        peer: Peer,
        epoch: u64,
        frames: &mut Frames,
    ) -> Result<Option<Message>, wire::WireError> {
        while let Some(body) = frames.next_frame()? {
            let message = wire::decode(body)?;
            if !self.missing_joins(message.offers()).is_empty() {
                return Ok(Some(message));
            }
            self.message(now, peer, epoch, message);
        }
        if let Some(link) = self.links.get_mut(&peer) {
            link.used = Instant::now();
            if link.measured.elapsed() > MEASURE {
                link.measured = link.used;
                let round_trip = link.connection.rtt();
                self.tell(now, Event::RoundTrip(peer, round_trip));
            }
        }
        Ok(None)
    }

    fn message(&mut self, now: Duration, from: Peer, epoch: u64, message: Message) {
        if self.links.get(&from).is_none_or(|link| link.epoch != epoch) {
            return; // of a connection that another has replaced
        }
        if let Message::Jobs { request, jobs, .. }
        | Message::OffersWith(_, Cargo::Jobs { request, jobs, .. }) = &message
        {
            self.thefts.answered(now, from, *request, jobs.len());
            match self.node.view().is_near(from) {
                true => self.figures.got_near += jobs.len() as u64,
                false => self.figures.got_far += jobs.len() as u64,
            }
            if let Some(link) = self.links.get(&from) {
                self.sites.took(&link.identity.site, jobs.len());
            }
            self.refused_work = jobs.is_empty().then_some(WhyIdle::NoWork);
        }
        if let Message::NotWorth(_) = message {
            self.refused_work = Some(WhyIdle::NotWorthIt);
        }
        self.tell(
            now,
            Event::Received {
                from,
                epoch,
                message,
            },
        );
    }

    fn malformed(&mut self, now: Duration, peer: Peer, epoch: u64, error: &wire::WireError) {
        let Some(link) = self.links.get(&peer).filter(|link| link.epoch == epoch) else {
            return;
        };
        repeats::warn(
            "closed the connection to a node that sent malformed data",
            format_args!("{} at {}", link.identity.name, link.identity.addr),
            error,
        );
        link.close(Close::Malformed, &error.to_string());
        (self.progress).refused(format!("{}: {error}", link.identity.addr));
        self.lost(now, peer, epoch);
    }
}

/// Has code of the user compare these offers with the node's values, aside, until no comparison is missing: the node's
/// values may change meanwhile.
async fn compare(net: &Rc<Net>, offers: &[Offer]) {
    loop {
        let joining = {
            let driver = net.driver.borrow();
            let missing = driver.missing_joins(offers);
            if missing.is_empty() || driver.is_over() {
                return;
            }
            driver.bridge.join(missing)
        };
        let _ = joining.await; // it ends when it is done, or nobody does it any more
    }
}

/// An event with offers, ahead of the news that wait.
async fn offered(net: Rc<Net>, event: Event) {
    compare(&net, offers_of(&event)).await;
    net.turn(|driver, now| {
        driver.compares = false;
        driver.tell(now, event);
    });
}

/// The offers that an event brings.
fn offers_of(event: &Event) -> &[Offer] {
    match event {
        Event::Offered(offer) => std::slice::from_ref(offer),
        Event::RunOpened { batch, .. } | Event::LogRead { batch, .. } => &batch.offers,
        _ => &[],
    }
}

/// Reads the control stream of a connection until it ends.
async fn read(net: Rc<Net>, peer: Peer, epoch: u64, mut recv: RecvStream, mut frames: Frames) {
    let mut first = frames.waiting() > 0;
    loop {
        if !std::mem::take(&mut first) {
            match recv.read_chunk(limits::LARGE, true).await {
                Ok(Some(chunk)) => frames.push(&chunk.bytes),
                Ok(None) | Err(_) => break,
            }
        }
        loop {
            let done = net.turn(|driver, now| {
                let done = driver.received(now, peer, epoch, &mut frames);
                if let Err(error) = &done {
                    driver.malformed(now, peer, epoch, error);
                }
                done
            });
            match done {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some(message)) => {
                    compare(&net, message.offers()).await;
                    net.turn(|driver, now| driver.message(now, peer, epoch, message));
                }
            }
        }
    }
    net.turn(|driver, now| driver.lost(now, peer, epoch));
}

/// Reads messages that come on streams of their own.
async fn read_large(net: Rc<Net>, peer: Peer, epoch: u64, connection: Connection) {
    while let Ok(mut stream) = connection.accept_uni().await {
        let net = Rc::clone(&net);
        // QUIC allows `limits::TRANSFERS` of them at once.
        tokio::task::spawn_local(async move {
            let message = match read_body(&mut stream).await {
                Ok(body) => body.and_then(|body| wire::decode_large(&body)),
                Err(_) => return,
            };
            if let Ok(message) = &message {
                compare(&net, message.offers()).await;
            }
            net.turn(|driver, now| match message {
                Ok(message) => driver.message(now, peer, epoch, message),
                Err(error) => driver.malformed(now, peer, epoch, &error),
            });
        });
    }
}

/// All bytes of a stream. Each is copied to its place as it comes: the datagrams that carry a message of a gibibyte would take more memory
/// than it does.
async fn read_body(
    stream: &mut RecvStream,
) -> Result<Result<Bytes, wire::WireError>, quinn::ReadError> {
    let mut body = Body::default();
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        if let Err(error) = body.push(&chunk.bytes) {
            return Ok(Err(error));
        }
        if body.is_packed() {
            // Unpacking takes longer than a short message can wait.
            tokio::task::yield_now().await;
        }
    }
    Ok(body.finish())
}

/// Reads the datagrams of a connection, which carry gossip.
async fn read_datagrams(net: Rc<Net>, peer: Peer, epoch: u64, connection: Connection) {
    while let Ok(datagram) = connection.read_datagram().await {
        net.turn(|driver, now| match wire::decode(&datagram) {
            Ok(message @ Message::Gossip(_)) => driver.message(now, peer, epoch, message),
            Ok(_) => driver.malformed(
                now,
                peer,
                epoch,
                &wire::WireError::Bounds("a message in a datagram"),
            ),
            Err(error) => driver.malformed(now, peer, epoch, &error),
        });
    }
}

/// Writes what the stream did not take at once.
async fn write(net: Rc<Net>, peer: Peer, epoch: u64, unblock: Rc<Notify>) {
    let connection = match net.driver.borrow().links.get(&peer) {
        Some(link) if link.epoch == epoch => link.connection.clone(),
        _ => return,
    };
    loop {
        tokio::select! {
            () = unblock.notified() => {}
            _ = connection.closed() => return,
        }
        let flushed = std::future::poll_fn(|cx| {
            let mut driver = net.driver.borrow_mut();
            match driver.links.get_mut(&peer) {
                Some(link) if link.epoch == epoch => link.poll_flush(cx).map(|done| done.is_ok()),
                _ => std::task::Poll::Ready(false),
            }
        });
        if !flushed.await {
            return;
        }
    }
}
