//! The network thread, from its start to its end, as the rest of the process sees it.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt, io,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use quinn::{Endpoint, TokioRuntime};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Join, Settings, accept,
    bridge::{Bridge, BridgeNews, Joins, LocalLattices},
    credential::{Credential, CredentialError},
    dial,
    discovery::{self, Advertised, DiscoveryError},
    door::Door,
    driver::{Beginning, Driver, DriverState, Net},
    greeting::NO_ANSWER,
    limits,
    link::Close,
    memory, notice,
    observer::TriedAddresses,
    output::OutputShown,
    progress::{NetworkProgress, NodeStage},
    sampler::Sampler,
    settings::{SettingsError, StoreSettings},
    socket::{self, Counted, Names, SocketTraffic},
    storage::{Storage, StorageParts},
    storage_url, transport,
    user_credential::user_credential,
};
use crate::{
    codes::{self, ErrorCode},
    config::Setting,
    data, fence,
    job::codec,
    node::{self, Event, Identity, Node, NodeId, RepairMode},
    observe::{
        events::{Event as Record, EventLog, NodeFigures},
        log,
        output::OutputUse,
        repeats,
        standing::Standing,
    },
    stable::runs::{BeginRequest, Runs},
    worker::Gate,
};

/// Between two looks at where the pool may be, while this node is on its way in.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The exit code of a program whose `main` panics.
const PANIC: i32 = 101;

/// Reasons why this node is in no pool. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The credential cannot be used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The addresses of the pool, or of this node, cannot be found out.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The address to listen on cannot be used.
    #[error("cannot listen on {addr}: {source}; {remedy}")]
    Listen {
        /// The advice to the user.
        remedy: String,
        /// The address that was to be listened on.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The system gives no thread, or what it needs.
    #[error("cannot start the network thread: {0}")]
    Thread(io::Error),
    /// The events file cannot be written.
    #[error("cannot write the events file: {source}; correct {setting}")]
    Events {
        /// The setting that names the file.
        setting: Setting,
        /// The system's error.
        source: io::Error,
    },
    /// Joining failed: this node was not let in, or its pool is gone. The text ends with its code.
    #[error("{0}")]
    Failed(String),
}

impl NetError {
    fn failed(text: impl fmt::Display, code: ErrorCode) -> NetError {
        NetError::Failed(codes::with_code(text, Some(code)))
    }
}

/// The network of one pool of workers: a thread of its own, which runs the node.
///
/// Dropping it leaves the pool, and ends it if this node is the master: with a goodbye, waiting a moment for it to arrive.
pub struct Network {
    /// The events file, for events after the end.
    events: Option<EventLog>,
    news: Arc<BridgeNews>,
    progress: Arc<NetworkProgress>,
    traffic: Arc<SocketTraffic>,
    shown: Option<Arc<OutputShown>>,
    grace: Duration,
    addr: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

/// The end of the main thread's wait on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Run `main`: this node is master.
    Main,
    /// The pool has ended, or this node has left it: with this code.
    Over(i32),
}

/// Does something to a [`Network`] from anywhere, for as long as it lives.
#[derive(Clone)]
pub struct Handle {
    news: Arc<BridgeNews>,
    progress: Arc<NetworkProgress>,
    /// The output of other nodes, if it is shown here.
    shown: Option<Arc<OutputShown>>,
    grace: Duration,
}

impl Handle {
    /// Notes that a thread runs `main` when its [turn](Network::wait_for_turn) comes.
    pub(crate) fn expect_main(&self) {
        self.progress.lock().expects_main = true;
    }

    /// Asks this node to leave, with time to hand over its jobs: returns at once. False if that makes no sense: the node
    /// is not in, or it is master and no node would be left to go on.
    pub fn drain(&self) -> bool {
        let makes_sense = {
            let now = self.progress.lock();
            match now.stage {
                NodeStage::In { is_master } => !is_master || now.heirs > 0,
                _ => false,
            }
        };
        if makes_sense {
            self.news.tell(Event::Drain(self.grace.min(limits::GRACE)));
        }
        makes_sense
    }

    /// Waits until this node has left because it was asked to, or its pool was stopped; for ever if it ends in another way. The exit code.
    pub(crate) fn wait_until_drained(&self) -> i32 {
        self.progress.wait(|now| match now.stage {
            NodeStage::Ended(code) if now.closed && now.drained => Some(now.end_code(code)),
            _ => None,
        })
    }

    /// Ends this process's part, with this exit code. If this node is master, the pool ends; otherwise the node leaves.
    /// Returns when all peers have been told, or after a while.
    pub fn end(&self, code: i32) {
        // While the others are still there.
        if let Some(shown) = self.shown.as_ref().filter(|_| self.progress.is_master()) {
            shown.finish();
        }
        self.end_by(Event::MainEnded(code));
    }

    /// If this node is master, the pool ends by that event.
    fn end_by(&self, end: Event) {
        self.news.tell(match self.progress.is_master() {
            true => end,
            false => Event::Leave,
        });
        self.await_close();
    }

    /// As [`end`](Handle::end), before `main` has come to its end: with a store, the same program goes on from there.
    pub fn break_off(&self, code: i32) {
        self.progress.lock().broken_off = true;
        self.end_by(Event::BrokenOff(code));
    }

    fn await_close(&self) {
        let most = limits::GOODBYE * 2 + limits::FINISH;
        if !self.progress.wait_for(most, |now| now.closed) {
            tracing::warn!(
                "the network thread does not end in time; this node no longer waits for it"
            );
        }
    }
}

impl Network {
    /// Starts the network thread: binds the socket, and begins to join or to found a pool as `settings` say. Before that,
    /// `before` gets the handle by which it can be ended.
    ///
    /// # Errors
    /// If the settings or the system do not allow it.
    pub fn start(
        settings: Settings,
        gate: Gate,
        standing: Arc<Standing>,
        before: impl FnOnce(Handle),
    ) -> Result<Network, NetError> {
        // From now on data that jobs borrow travel by their names.
        data::store();
        let progress = Arc::new(NetworkProgress::new());
        let news = Arc::new(BridgeNews::default());
        let traffic = Arc::new(SocketTraffic::default());
        let credential = match &settings.credential {
            Some(path) => Credential::load(path)?,
            None if settings.uses_user_credential() => Credential::load(&user_credential()?)?,
            None => {
                let error = SettingsError::NoCredential;
                return Err(NetError::Failed(codes::explained(&error)));
            }
        };
        let events = settings.events.as_deref();
        let events = events.map(|path| EventLog::open(path, &settings.name));
        let setting = settings.sources.setting("events");
        let events = events
            .transpose()
            .map_err(|source| NetError::Events { setting, source })?;
        let late_events = (events.as_ref().map(EventLog::try_clone).transpose())
            .map_err(|source| NetError::Events { setting, source })?;
        let keeps_results = settings.repair != RepairMode::Naive;
        let has_store = settings.store.is_some();
        let shows_output = settings.output == OutputUse::All;
        let shown = shows_output.then(|| Arc::new(OutputShown::new()));
        let (client, pool) = (transport::client(&credential), settings.pool.clone());
        let setting_up = SettingUp {
            settings,
            credential,
            gate: gate.clone(),
            standing,
            events,
            news: Arc::clone(&news),
            progress: Arc::clone(&progress),
            traffic: Arc::clone(&traffic),
        };
        let grace = setting_up.settings.grace;
        before(Handle {
            news: Arc::clone(&news),
            progress: Arc::clone(&progress),
            shown: shown.clone(),
            grace,
        });
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("satin-net".into())
            // As large as a worker's: offers of a lattice of the user's are compared here.
            .stack_size(gate.stack_size());
        let thread =
            log::spawn(thread, move || live(setting_up, &ready)).map_err(NetError::Thread)?;
        let addr = match is_ready.recv() {
            Ok(Ok(addr)) => addr,
            Ok(Err(error)) => {
                let _ = thread.join();
                return Err(error);
            }
            Err(_) => return Err(NetError::Thread(io::Error::other("it panicked"))),
        };
        gate.listen(Arc::clone(&news) as _);
        if keeps_results {
            gate.harvest();
            if has_store {
                gate.harvest_values();
            }
        }
        if let Some(shown) = &shown {
            shown.start(client, pool, addr, Arc::clone(&progress));
        }
        Ok(Network {
            events: late_events,
            news,
            progress,
            traffic,
            shown,
            grace,
            addr,
            thread: Some(thread),
        })
    }

    /// Waits until this node is in. True if it is the master.
    ///
    /// # Errors
    /// If it is not let in.
    pub fn wait_until_in(&self) -> Result<bool, NetError> {
        self.progress.wait(|now| {
            let entrance = now.entrance()?;
            Some(entrance.map_err(|text| NetError::Failed(text.into())))
        })
    }

    /// Waits until the pool has ended, and returns the code it ended with; for others than the master that is 0.
    ///
    /// # Errors
    /// If it did not end as it should have.
    pub fn wait_until_over(&self) -> Result<i32, NetError> {
        self.progress.wait(|now| match &now.stage {
            _ if !now.closed => None,
            NodeStage::Failed(text) => Some(Err(NetError::Failed(text.clone()))),
            NodeStage::Ended(code) => Some(Ok(now.end_code(*code))),
            _ => Some(Err(NetError::failed(
                "the network thread has died",
                codes::NETWORK_DIED,
            ))),
        })
    }

    /// Waits until it is this node's turn to run `main`, or everything is over.
    ///
    /// # Errors
    /// If it did not end as it should have.
    ///
    /// The term goes to `begin` while the turn cannot be taken away again.
    pub(crate) fn wait_for_turn(&self, begin: impl Fn(u32)) -> Result<Turn, NetError> {
        let turn = self.progress.wait(|now| match now.turn.take() {
            Some(term) => {
                begin(term);
                Some(Some(()))
            }
            None => now.closed.then_some(None),
        });
        match turn {
            Some(()) => Ok(Turn::Main),
            None => self.wait_until_over().map(Turn::Over),
        }
    }

    /// Is this node in, and the master?
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.progress.is_master()
    }

    /// The address at which this machine reaches this node.
    #[cfg(feature = "dashboard")]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        super::interfaces::reached_here(self.addr)
    }

    /// The address that this node listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Takes the event log, for events after the network has ended.
    pub(crate) fn take_event_log(&mut self) -> Option<EventLog> {
        self.events.take()
    }

    /// A handle to end the network from elsewhere.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            news: Arc::clone(&self.news),
            progress: Arc::clone(&self.progress),
            shown: self.shown.clone(),
            grace: self.grace,
        }
    }

    /// Connections to other nodes that came to stand so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.progress.lock().connections
    }

    /// Connections that were refused so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.progress.lock().refused
    }

    /// The last few refusals, with reasons; the latest comes last.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.progress.lock().refusals.iter().cloned().collect()
    }

    /// Handshakes of others that have begun and not come to their end.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        (self.traffic.unfinished).load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Datagrams so far that were not QUIC, or not for this node. They were dropped.
    #[must_use]
    pub fn noise(&self) -> u64 {
        self.traffic
            .noise
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The counters of this node, once the network has ended.
    #[must_use]
    pub fn figures(&self) -> NodeFigures {
        self.progress.lock().figures
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        match std::thread::panicking() {
            true => self.handle().break_off(PANIC),
            false => self.handle().end(0),
        }
        let closed = self.progress.lock().closed;
        if let Some(thread) = self.thread.take()
            && closed
            && thread.join().is_err()
        {
            tracing::error!("the network thread panicked");
        }
    }
}

struct SettingUp {
    settings: Settings,
    credential: Credential,
    gate: Gate,
    standing: Arc<Standing>,
    events: Option<EventLog>,
    news: Arc<BridgeNews>,
    progress: Arc<NetworkProgress>,
    traffic: Arc<SocketTraffic>,
}

/// Tells waiting threads that the network thread is over, however it ends.
struct Closing(Arc<NetworkProgress>, Arc<BridgeNews>, Gate);

impl Drop for Closing {
    fn drop(&mut self) {
        self.1.close();
        self.2.release_roots();
        self.2.keep_roots(false);
        self.0.change(|now| {
            if let NodeStage::Joining | NodeStage::In { .. } = now.stage {
                let text = "the network thread has died";
                now.stage = NodeStage::Failed(codes::with_code(text, Some(codes::NETWORK_DIED)));
            }
            now.closed = true;
        });
    }
}

fn live(setting_up: SettingUp, ready: &mpsc::Sender<Result<SocketAddr, NetError>>) {
    codec::measure_stack(setting_up.gate.stack_size());
    let _closing = Closing(
        Arc::clone(&setting_up.progress),
        Arc::clone(&setting_up.news),
        setting_up.gate.clone(),
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(NetError::Thread(error)))),
    };
    let news = Arc::clone(&setting_up.news);
    runtime.block_on(async {
        let set_up = tokio::select! {
            biased;
            set_up = set_up(setting_up) => set_up,
            // As long as there is no node the only news is that this process is to end. A name server or a store may need long.
            () = news.bell.notified() => Err(NetError::Failed("this process is asked to end".into())),
        };
        match set_up {
            Ok((net, settings)) => {
                let addr = net.endpoint.local_addr();
                let _ = ready.send(addr.map_err(NetError::Thread));
                run(net, settings).await;
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    });
    // Name servers and stores may keep a helper busy; it is not waited for.
    runtime.shutdown_background();
}

async fn set_up(setting_up: SettingUp) -> Result<(Rc<Net>, Settings), NetError> {
    let SettingUp {
        settings,
        credential,
        gate,
        standing,
        events,
        news,
        progress,
        traffic,
    } = setting_up;
    let began = Instant::now();
    let Standpoint {
        socket,
        listening,
        advertised,
    } = take_up(&settings).await?;
    let listen = |source| listen_error(&settings, listening, source);
    let names = Names::new(rand::random());
    let socket = Counted::new(socket, Arc::clone(&traffic), names.clone()).map_err(listen)?;
    let mut endpoint = Endpoint::new_with_abstract_socket(
        transport::endpoint(&names),
        Some(transport::server(&credential)),
        Arc::new(socket),
        Arc::new(TokioRuntime),
    )
    .map_err(listen)?;
    let client = transport::client(&credential);
    endpoint.set_default_client_config(client.clone());
    let addr = advertised.addr;
    if !advertised.others.is_empty() {
        let others: Vec<String> = (advertised.others.iter())
            .map(|ip| SocketAddr::from((*ip, addr.port())).to_string())
            .collect();
        tracing::warn!(
            "this node listens on all addresses of this machine, and tells other nodes the address {addr}. If they cannot \
             reach it, name another address with --advertise (SATIN_ADVERTISE) {}",
            others.join(" or ")
        );
    }
    let me = Identity {
        peer: NodeId(rand::random()).first_life(),
        name: settings.name.as_str().into(),
        site: settings.site.as_str().into(),
        addr,
        stamp: Identity::NOT_YET,
        threads: settings.threads,
    };
    standing.update(|info| {
        info.id = me.peer.id.0;
        info.is_master = false;
        info.master = String::new();
    });
    let config = node::ProtocolConfig {
        policy: settings.policy,
        judgement: settings.judgement,
        nodes: settings.nodes,
        repair: settings.repair,
        max_crashes: settings.max_crashes,
        store_every: settings.store.as_ref().map(|store| store.every),
        partition_wait: settings.partition_wait,
        copy_every: settings.copy_every,
        flow_data: settings.flow_data,
        // Empty until the search has found where the pool may be.
        join: Vec::new(),
        may_found: false,
        ..node::ProtocolConfig::default()
    };
    tracing::info!(name = %me.name, site = %me.site, %listening, %addr,
        credential = credential.fingerprint(), "listening");
    if let Some(log) = &events {
        log.write(Record::Node {
            site: settings.site.clone(),
            pid: std::process::id(),
            addr,
            threads: settings.threads,
        });
    }
    let joins = Arc::<Joins>::default();
    let lattices = Box::new(LocalLattices {
        lattices: data::lattices(),
        joins: Arc::clone(&joins),
    });
    let pool = settings.pool.clone();
    let has_store = settings.store.is_some();
    let door = tokio::task::spawn_blocking(move || Door::new(pool, has_store));
    let door = door.await.map_err(|error| NetError::Thread(error.into()))?;
    gate.set_home(me.peer.id.home());
    gate.set_number(me.peer.id.0);
    let storage = match &settings.store {
        None => None,
        Some(store) => {
            let (gate, news) = (gate.clone(), Arc::clone(&news));
            Some(open_store(&settings, store, &Arc::new(credential), &door, gate, news).await?)
        }
    };
    fence::opens(gate.number(), storage.as_ref().map(Storage::fences));
    let node = Node::new(config, me, lattices, rand::random(), began.elapsed());
    let sampler = Sampler::new(gate.watch());
    let bridge = Bridge::new(gate, Arc::clone(&news), joins);
    bridge.hold_roots();
    let driver = Driver::new(Beginning {
        node,
        bridge,
        door,
        began,
        progress,
        standing,
        events,
        sampler,
        traffic,
        join: settings.join.clone(),
        storage,
        guessed: advertised.is_guess.then_some(addr),
        grace: settings.grace,
        exit: settings.exit,
        wanted: settings.nodes,
    });
    let net = Net {
        endpoint,
        client,
        news,
        sooner: Notify::new(),
        over: Notify::new(),
        driver: RefCell::new(driver),
    };
    Ok((Rc::new(net), settings))
}

/// Opens the store. A node that cannot is in no pool: it would lose what the others think is safe.
async fn open_store(
    settings: &Settings,
    store: &StoreSettings,
    credential: &Arc<Credential>,
    door: &Door,
    gate: Gate,
    news: Arc<BridgeNews>,
) -> Result<Storage, NetError> {
    let opening = {
        let (url, credential) = (store.url.clone(), Arc::clone(credential));
        // Who asks this process to end does not wait for it.
        tokio::task::spawn_blocking(move || storage_url::open(&url, &credential))
    };
    let opened = opening.await;
    let opened = opened.map_err(|error| NetError::Thread(error.into()))?;
    let stable = opened.map_err(|error| {
        let setting = settings.sources.setting("store");
        let text = format!(
            "the store {} cannot be used: {error}; correct {setting}",
            store.url
        );
        NetError::failed(text, codes::STORE_FAILED)
    })?;
    let parts = StorageParts {
        runs: Runs::new(stable, credential.secret(), store.seal),
        request: BeginRequest {
            pool: settings.pool.clone(),
            program: door.program(),
            resume: store.resume,
            force: store.force,
            max_crashes: settings.max_crashes,
            by: settings.name.clone(),
            // The node says when it knows.
            founder: 0,
        },
        every: store.every,
        keep: store.keep,
        gate,
        news,
    };
    Storage::start(parts).map_err(NetError::Thread)
}

/// The addresses of a node: its socket, the address that is bound, and the address that others are told.
struct Standpoint {
    socket: std::net::UdpSocket,
    listening: SocketAddr,
    advertised: Advertised,
}

/// Binds the socket. In the file of `SATIN_JOIN=file:PATH` others find this node from here on.
async fn take_up(settings: &Settings) -> Result<Standpoint, NetError> {
    let patience = Patience::new(settings);
    let bind_address = {
        let join = settings.join.clone();
        move || discovery::bind_address(join.as_ref())
    };
    let mut addr = match settings.listen {
        Some(addr) => addr,
        None => ask(patience, bind_address.clone()).await?,
    };
    loop {
        let listen = |source| listen_error(settings, addr, source);
        let socket = socket::bind(addr).map_err(listen)?;
        socket.set_nonblocking(true).map_err(listen)?;
        let listening = socket.local_addr().map_err(listen)?;
        let (join, advertise) = (settings.join.clone(), settings.advertise);
        let advertised = ask(patience, move || {
            discovery::advertised(join.as_ref(), listening, advertise)
        })
        .await?;
        let (me, join) = (advertised.addr, settings.join.clone());
        if let Some(Join::File(_)) = join {
            ask(patience, move || {
                discovery::addresses(join.as_ref(), listening, me)
            })
            .await?;
            if settings.listen.is_none() && addr.ip().is_loopback() {
                // Nodes that came at the same moment may be on other machines, to which no way leads from here.
                let better = ask(patience, bind_address.clone()).await?;
                if !better.ip().is_loopback() {
                    addr = better;
                    let join = settings.join.clone();
                    ask(patience, move || discovery::forget(join.as_ref(), &[me])).await?;
                    continue;
                }
            }
        }
        return Ok(Standpoint {
            socket,
            listening,
            advertised,
        });
    }
}

fn listen_error(settings: &Settings, addr: SocketAddr, source: io::Error) -> NetError {
    let setting = settings.sources.setting("listen");
    let remedy = match settings.listen {
        // The number of the job has led to that port, or a setting for all tasks.
        Some(_)
            if settings.join == Some(Join::Slurm) && source.kind() == io::ErrorKind::AddrInUse =>
        {
            "another program on this machine has that port, perhaps another step of this job: name the first of some free ports for \
             all nodes with --listen 0.0.0.0:PORT (or SATIN_LISTEN)"
                .into()
        }
        Some(_) => format!("correct {setting}"),
        None => "name an address with --listen IP:PORT (or SATIN_LISTEN)".into(),
    };
    NetError::Listen {
        remedy,
        addr,
        source,
    }
}

/// Asks where the pool or this node is, until there is an answer: name servers and networks may need a while, but no longer than the
/// node looks for its pool.
async fn ask<R: Send + 'static>(
    patience: Patience,
    question: impl Fn() -> Result<R, DiscoveryError> + Clone + Send + 'static,
) -> Result<R, NetError> {
    loop {
        let asked = tokio::task::spawn_blocking(question.clone()).await;
        match asked.map_err(|error| NetError::Thread(error.into()))? {
            Err(error) if error.is_temporary() => {
                if let Some(most) = patience.is_over() {
                    return Err(NetError::failed(
                        given_up(most, &error.to_string()),
                        codes::GAVE_UP,
                    ));
                }
                repeats::warn("cannot join the pool yet", error, "the node tries again");
                sleep(LOOK_AGAIN).await;
            }
            other => return Ok(other?),
        }
    }
}

/// How long the pool is looked for.
#[derive(Clone, Copy)]
struct Patience {
    began: Instant,
    most: Option<Duration>,
}

impl Patience {
    /// From now on.
    fn new(settings: &Settings) -> Patience {
        Patience {
            began: Instant::now(),
            most: settings.give_up,
        }
    }

    /// The time that is over, if it is.
    fn is_over(self) -> Option<Duration> {
        self.most.filter(|most| self.began.elapsed() >= *most)
    }
}

async fn run(net: Rc<Net>, settings: Settings) {
    let join = settings.join.clone();
    tokio::task::spawn_local(accept::accept(Rc::clone(&net)));
    tokio::task::spawn_local(keep_time(Rc::clone(&net)));
    tokio::task::spawn_local(keep_count(Rc::clone(&net)));
    tokio::task::spawn_local(keep_telling(Rc::clone(&net)));
    tokio::task::spawn_local(memory::watch(Rc::clone(&net), settings.memory));
    data::store().set_recent_room(settings.flow_data);
    if let Some(when) = settings.drain_when.clone() {
        tokio::task::spawn_local(notice::watch(Rc::clone(&net), when));
    }
    if let Some(limit) = settings.time_limit {
        tokio::task::spawn_local(keep_limit(Rc::clone(&net), limit));
    }
    tokio::task::spawn_local(look(Rc::clone(&net), settings));
    net.over.notified().await;
    wind_up(&net).await;
    if let Some(file @ Join::File(_)) = join {
        let me = net.driver.borrow().me().addr;
        // The file may lie on a machine that does not answer.
        let forget = tokio::task::spawn_blocking(move || discovery::forget(Some(&file), &[me]));
        if let Ok(Ok(Err(error))) = timeout(limits::GOODBYE / 4, forget).await {
            tracing::warn!("{error}");
        }
    }
}

/// Rings when the node's next timeout is due, or when other threads have news.
async fn keep_time(net: Rc<Net>) {
    loop {
        let due = {
            let mut driver = net.driver.borrow_mut();
            if driver.is_over() {
                return;
            }
            driver.arm()
        };
        let ring = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = net.news.bell.notified() => net.turn(|_, _| ()),
            () = net.sooner.notified() => {}
            () = ring => net.turn(|driver, now| driver.node.handle_timeout(now)),
        }
    }
}

/// Ends the pool when its time is over. A node that is not the master then may be that later.
async fn keep_limit(net: Rc<Net>, limit: Duration) {
    let began = net.driver.borrow().began();
    match began.checked_add(limit) {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => return,
    }
    loop {
        let is_over = net.turn(|driver, now| {
            driver.end_in_time(now, limit);
            driver.is_over()
        });
        if is_over {
            return;
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Sums up, now and then, what was warned of and only counted.
async fn keep_count(net: Rc<Net>) {
    let mut known = 0;
    loop {
        sleep(limits::SUMS).await;
        let shed = (net.driver.borrow().traffic.shed).load(std::sync::atomic::Ordering::Relaxed);
        if shed > known {
            let more = shed - known;
            let text =
                format_args!("{more} first packets were dropped; nodes of the pool try again");
            repeats::warn("too many handshakes arrive", "network", text);
            known = shed;
        }
        repeats::tell_sums(false);
    }
}

/// Tells others, now and then, how far their jobs are, and the events file how far the root job is.
async fn keep_telling(net: Rc<Net>) {
    loop {
        sleep(limits::PARTS).await;
        // The news first: another root job may have begun.
        net.turn(|_, _| ());
        net.turn(|driver, now| {
            driver.tell_progress();
            let parts = driver.bridge.parts_done();
            if !parts.is_empty() {
                driver.tell(now, Event::PartsDone(parts));
            }
        });
    }
}

/// Looks where the pool may be, again and again until this node is in.
async fn look(net: Rc<Net>, settings: Settings) {
    let me = net.driver.borrow().me().addr;
    let Ok(listening) = net.endpoint.local_addr() else {
        return;
    };
    let mut known = None;
    let patience = Patience::new(&settings);
    loop {
        let join = settings.join.clone();
        let asked =
            tokio::task::spawn_blocking(move || discovery::addresses(join.as_ref(), listening, me));
        match asked.await {
            Ok(Ok(found)) => {
                if known.as_ref() != Some(&found) {
                    let event = Event::Candidates {
                        join: found.join.clone(),
                        may_found: found.may_found,
                    };
                    net.turn(|driver, now| {
                        if let DriverState::Joining {
                            candidates,
                            refused,
                            ..
                        } = &mut driver.state
                        {
                            candidates.clone_from(&found.join);
                            if refused.is_empty() {
                                driver.tell(now, event);
                            }
                        }
                    });
                    known = Some(found);
                }
            }
            Ok(Err(error)) if error.is_temporary() => {
                repeats::warn("cannot join the pool yet", error, "the node tries again")
            }
            Ok(Err(error)) => return net.turn(|driver, _| driver.fail(codes::explained(&error))),
            Err(error) => {
                return net.turn(|driver, _| {
                    driver.fail(codes::with_code(error, Some(codes::NETWORK_DIED)))
                });
            }
        }
        sleep(LOOK_AGAIN).await;
        let go_on = net.turn(|driver, _| match &driver.state {
            DriverState::Joining {
                since: Some(since), ..
            } if since.elapsed() >= limits::REFUSED => {
                dial::give_up_joining(driver);
                false
            }
            DriverState::Joining {
                candidates, tried, ..
            } => match patience.is_over() {
                None => true,
                Some(most) => {
                    let text = given_up(most, &not_let_in(candidates, tried));
                    driver.fail(codes::with_code(text, Some(codes::GAVE_UP)));
                    false
                }
            },
            _ => false,
        });
        if !go_on {
            break;
        }
    }
}

/// What a node says that gives up after so long.
fn given_up(most: Duration, why: &str) -> String {
    format!(
        "{why}, and {most:?} have passed (--give-up, SATIN_GIVE_UP): is the pool running, with the same name, program and credential?"
    )
}

/// Why no pool has let a node in.
fn not_let_in(candidates: &[SocketAddr], tried: &BTreeMap<SocketAddr, String>) -> String {
    let at: Vec<(SocketAddr, String)> = (candidates.iter())
        .map(|addr| {
            let why = tried.get(addr).map_or(NO_ANSWER, String::as_str);
            (*addr, why.to_owned())
        })
        .collect();
    match at.is_empty() {
        true => "no address of a pool was found".into(),
        false => format!("no pool lets this node in: {}", TriedAddresses(&at)),
    }
}

/// Ends the network when all messages have been sent, or are to arrive within a moment.
async fn wind_up(net: &Rc<Net>) {
    let finished = net.driver.borrow().finish_run();
    if let Some(finished) = finished
        && timeout(limits::FINISH, finished).await.is_err()
    {
        tracing::warn!("the store does not say that the run is done: it may be resumed");
    }
    let closed = net.driver.borrow().close_log();
    let (links, figures, progress, drained) = {
        let mut driver = net.driver.borrow_mut();
        let links = driver.take_links();
        driver.bridge.leave();
        let figures = driver.final_figures();
        let jobs = driver.jobs_put_back();
        if !jobs.is_empty() {
            driver.write(Record::PutBack { jobs });
        }
        driver.write(Record::Stats(figures));
        let drained = driver.is_drained();
        (links, figures, Arc::clone(&driver.progress), drained)
    };
    net.news.close();
    let mut saying: JoinSet<()> = JoinSet::new();
    for link in links {
        saying.spawn_local(link.finish());
    }
    let _ = timeout(limits::GOODBYE, async {
        while saying.join_next().await.is_some() {}
    })
    .await;
    net.endpoint.close(Close::Bye.code(), b"bye");
    let _ = timeout(limits::GOODBYE / 4, net.endpoint.wait_idle()).await;
    if let Some(closed) = closed {
        let _ = timeout(limits::CLOSE_LOG, closed).await;
    }
    repeats::tell_sums(true);
    let driver = net.driver.borrow();
    let stage = match &driver.state {
        DriverState::Over(_, Some(text)) => NodeStage::Failed(text.clone()),
        DriverState::Over(code, None) => NodeStage::Ended(*code),
        _ => NodeStage::Failed(codes::with_code(
            "the network thread came to a sudden end",
            Some(codes::NETWORK_DIED),
        )),
    };
    progress.change(|now| {
        now.stage = stage;
        now.drained = drained;
        now.figures = figures;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_port_and_a_firewall_are_told_apart() {
        let addr = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let tried = BTreeMap::from([(addr(1), super::super::greeting::NO_PROCESS.to_owned())]);
        let said = not_let_in(&[addr(1), addr(2)], &tried);
        assert!(
            said.contains("192.0.2.1:1: no process listens there on UDP"),
            "{said}"
        );
        assert!(said.contains("192.0.2.1:2: no answer came"), "{said}");
        assert!(said.contains("firewall"), "{said}");
    }
}
