//! Observers: programs that look at a pool, ask nodes to leave, and end it, without being part of it. The command line tool
//! is one.
//!
//! An observer connects to any node, proves that it holds the pool's credential, and greets as one; the pool's name must be
//! right if it gives one, the program need not. After the greetings it asks, as often as it likes, and is answered: a frame each. A node
//! answers for itself alone; to ask another to leave, the observer connects to that one, whose address it has learnt.

use std::{
    collections::BTreeSet,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time::timeout};

use super::{
    credential::{Credential, CredentialError},
    discovery::{self, DiscoveryError},
    greeting::{self, Failure},
    limits,
    link::Close,
    relay,
    settings::Join,
    socket, transport,
    wire::{self, Frames, Greeting, Hello, Reason, Role, WireError},
};
pub use crate::observe::look::SeenNode;
use crate::{
    node::{Identity, NodeId},
    observe::{events::NodeFigures, output::OutputPage},
};

/// A question of an observer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// Asks which nodes are in the pool.
    Status,
    /// Leave, and hand over what you have, within that time, or that of your settings.
    Drain {
        /// Longest time for leaving; `None`: the node's setting.
        grace: Option<Duration>,
    },
    /// Asks what the node has counted so far.
    Figures,
    /// End the pool, whose master you are: `main` ends where it is.
    Stop,
    /// Asks what became known from that place on, and how things stand.
    Look(u64),
    /// Asks for what the node has printed.
    Output {
        /// The number of the first line that is wanted.
        since: u64,
        /// Answer only when there is one, or after a moment.
        waits: bool,
    },
}

/// The answer of a node to an observer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ObserverAnswer {
    /// The nodes of the pool, as the answering node sees them.
    Status(Vec<SeenNode>),
    /// The node is about to leave.
    Leaving,
    /// The node stays; the text says why.
    Staying(String),
    /// [`NodeFigures`] as JSON: the form has no length that is known before.
    Figures(String),
    /// The pool is about to end.
    Stopping,
    /// [`NodeLook`](crate::observe::look::NodeLook) as JSON, as it contains figures.
    Look(String),
    /// What the node has printed.
    Output(OutputPage),
}

/// A pool, as one of its nodes sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenPool {
    /// The name of the pool.
    pub name: String,
    /// Its nodes, sorted by site and name.
    pub nodes: Vec<SeenNode>,
}

/// The next question or answer; `None` at the end.
pub(super) async fn next<T: for<'de> Deserialize<'de>>(
    recv: &mut RecvStream,
    frames: &mut Frames,
) -> Result<Option<T>, WireError> {
    loop {
        if let Some(body) = frames.next_frame()? {
            return wire::exactly(body).map(Some);
        }
        match recv.read_chunk(limits::LARGE, true).await {
            Ok(Some(chunk)) => frames.push(&chunk.bytes),
            Ok(None) | Err(_) => return Ok(None),
        }
    }
}

// ------------------------------------------------------------------------------------------------ the observer's side

/// Reasons why nothing was seen, or no node leaves. Nodes that were asked before go on leaving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserverError {
    /// The credential cannot be used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The addresses of the pool cannot be found out.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The system gives no socket.
    #[error("cannot open a socket: {0}")]
    Socket(#[from] std::io::Error),
    /// No node that might be in the pool answers, or lets the observer in.
    #[error("no node of {} answers: {}", MeantPool(pool), TriedAddresses(tried))]
    Nobody {
        /// The name of the pool; empty if any was meant.
        pool: String,
        /// Each address, and what came of it.
        tried: Vec<(SocketAddr, String)>,
    },
    /// A node was asked to leave, and stays.
    #[error("{name} stays: {why}")]
    Stays {
        /// The name of the node.
        name: String,
        /// The node's reason.
        why: String,
    },
    /// No node is master at the moment: another is about to be elected.
    #[error("the pool `{0}` has no master at the moment: try again")]
    NoMaster(String),
    /// The master was about to end the pool, and is gone without a goodbye: another may have begun `main` again.
    #[error(
        "{0}, the master, was lost before it had ended the pool: look with `satin status` whether another runs `main`"
    )]
    MasterLost(String),
}

struct MeantPool<'t>(&'t str);

impl fmt::Display for MeantPool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => f.write_str("any pool"),
            name => write!(f, "the pool `{name}`"),
        }
    }
}

/// Addresses where nobody lets this process in, each with the reason.
pub(super) struct TriedAddresses<'t>(pub(super) &'t [(SocketAddr, String)]);

impl fmt::Display for TriedAddresses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no address of the pool is known");
        }
        for (index, (addr, why)) in self.0.iter().take(3).enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(f, "{comma}{addr}: {why}")?;
        }
        match self.0.len().saturating_sub(3) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// The fate of a node that was asked to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    /// The node will leave.
    Leaving,
    /// The node has said goodbye.
    Left,
    /// The node is gone without a goodbye: left or crashed.
    Lost,
}

/// Looks at one pool from outside.
pub struct Observer {
    pub(super) runtime: tokio::runtime::Runtime,
    pub(super) dialler: Dialler,
    pub(super) join: Join,
}

/// The settings that are needed to connect.
#[derive(Clone)]
pub(super) struct Dialler {
    client: ClientConfig,
    pub(super) pool: String,
    /// The sockets for IPv4 and for IPv6, once each was needed: one serves all connections.
    endpoints: Arc<Mutex<[Option<Endpoint>; 2]>>,
}

/// A node that has no room for a connection is tried again after that time. Too short: what is too much becomes more. Too long: people wait.
const BUSY: Duration = Duration::from_millis(200);

/// An open connection to a node.
pub(super) struct Ear {
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
    frames: Frames,
    /// The name of the node's pool.
    pool: String,
}

impl Observer {
    /// For the pool of that name (`None`: whatever it is called), to be found as `join` says, with its credential. Does not connect
    /// yet.
    ///
    /// # Errors
    /// If the credential cannot be used, or the system does not give what is needed.
    pub fn new(
        join: Join,
        credential: &Path,
        pool: Option<&str>,
    ) -> Result<Observer, ObserverError> {
        let credential = Credential::load(credential)?;
        let pool = pool.unwrap_or_default().into();
        let client = transport::client(&credential);
        Observer::dialling(join, Dialler::new(client, pool))
    }

    pub(super) fn dialling(join: Join, dialler: Dialler) -> Result<Observer, ObserverError> {
        Ok(Observer {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            dialler,
            join,
        })
    }

    /// What a watcher is made of.
    pub(super) fn into_parts(self) -> (tokio::runtime::Runtime, Dialler, Join) {
        (self.runtime, self.dialler, self.join)
    }

    /// The pool, as the first node says that answers.
    ///
    /// # Errors
    /// No node answers.
    pub fn status(&self) -> Result<SeenPool, ObserverError> {
        let addrs = discovery::look(&self.join)?;
        self.runtime.block_on(self.dialler.status(addrs))
    }

    /// As [`status`](Observer::status), for one who knows nodes of the pool already: any of these may answer as well.
    ///
    /// # Errors
    /// No node answers.
    pub fn status_again(&self, known: &[SeenNode]) -> Result<SeenPool, ObserverError> {
        let known = known.iter().map(|node| node.addr).collect();
        let search = search(self.dialler.clone(), self.join.clone(), known);
        self.runtime.block_on(search)
    }

    /// What each of these nodes has counted so far, in their order; `None` for those that do not answer.
    pub fn figures(&self, nodes: &[SeenNode]) -> Vec<Option<NodeFigures>> {
        self.runtime.block_on(async {
            let mut asked = JoinSet::new();
            for (place, node) in nodes.iter().enumerate() {
                let (dialler, addr) = (self.dialler.clone(), node.addr);
                asked.spawn(async move { (place, dialler.figures(addr).await) });
            }
            let mut figures = vec![None; nodes.len()];
            while let Some(answered) = asked.join_next().await {
                if let Ok((place, answer)) = answered {
                    figures[place] = answer;
                }
            }
            figures
        })
    }

    /// Ends the pool: `main` ends where it is, with exit code 143, and all nodes leave. With a store the same command goes on with the
    /// run. Returns when the master is gone, and says which that was.
    ///
    /// # Errors
    /// The master cannot be reached, or there is none, or it crashes meanwhile.
    pub fn stop(&self) -> Result<SeenNode, ObserverError> {
        let SeenPool { name, nodes } = self.status()?;
        let master = nodes.into_iter().find(|node| node.is_master);
        let master = master.ok_or(ObserverError::NoMaster(name))?;
        self.runtime.block_on(async {
            let ear = self.dialler.ask(&master, Question::Stop).await?;
            match ear.wait_until_gone().await {
                Parting::Lost => Err(ObserverError::MasterLost(master.name)),
                Parting::Leaving | Parting::Left => Ok(master),
            }
        })
    }

    /// Asks these nodes to leave, the master last so that no successor is chosen among them, and waits until they are gone;
    /// `told` hears of each step.
    ///
    /// # Errors
    /// If one cannot be reached, or stays. Those that were asked before leave all the same, and are waited for.
    pub fn drain(
        &self,
        nodes: &[SeenNode],
        grace: Option<Duration>,
        mut told: impl FnMut(&SeenNode, Parting),
    ) -> Result<(), ObserverError> {
        let mut order: Vec<&SeenNode> = nodes.iter().collect();
        order.sort_by_key(|seen| seen.is_master);
        self.runtime.block_on(async {
            let mut leaving = JoinSet::new();
            let mut outcome = Ok(());
            for seen in order {
                match self.dialler.ask(seen, Question::Drain { grace }).await {
                    Ok(ear) => {
                        told(seen, Parting::Leaving);
                        let seen = seen.clone();
                        leaving.spawn(async move { (seen, ear.wait_until_gone().await) });
                    }
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
            while let Some(gone) = leaving.join_next().await {
                if let Ok((seen, departure)) = gone {
                    told(&seen, departure);
                }
            }
            outcome
        })
    }
}

/// The members, as the first node says that answers: of those that are known, or else of those where the pool is to be found.
pub(super) async fn search(
    dialler: Dialler,
    join: Join,
    known: Vec<SocketAddr>,
) -> Result<SeenPool, ObserverError> {
    let listed = tokio::task::spawn_blocking(move || discovery::look(&join)).await;
    let listed = match listed {
        Ok(Ok(listed)) => listed,
        // What is known may do.
        Ok(Err(_)) if !known.is_empty() => Vec::new(),
        Ok(Err(error)) => return Err(error.into()),
        Err(error) => return Err(std::io::Error::other(error).into()),
    };
    let all: BTreeSet<SocketAddr> = known.into_iter().chain(listed).collect();
    dialler.status(all).await
}

impl Dialler {
    pub(super) fn new(client: ClientConfig, pool: String) -> Dialler {
        Dialler {
            client,
            pool,
            endpoints: Arc::default(),
        }
    }

    /// The pool, as the first of these nodes says that answers.
    pub(super) async fn status(
        &self,
        addrs: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<SeenPool, ObserverError> {
        let mut tried = Vec::new();
        for addr in addrs {
            match self.status_at(addr).await {
                Ok(seen) => return Ok(seen),
                Err(why) => tried.push((addr, why)),
            }
        }
        Err(ObserverError::Nobody {
            pool: self.pool.clone(),
            tried,
        })
    }

    async fn status_at(&self, addr: SocketAddr) -> Result<SeenPool, String> {
        self.connect(addr).await?.members().await
    }

    async fn figures(&self, addr: SocketAddr) -> Option<NodeFigures> {
        let mut ear = self.connect(addr).await.ok()?;
        match ear.ask(Question::Figures).await.ok()? {
            ObserverAnswer::Figures(text) => serde_json::from_str(&text).ok(),
            _ => None,
        }
    }

    /// Asks a node to go, or to end its pool; what it hears then is its goodbye.
    pub(super) async fn ask(
        &self,
        seen: &SeenNode,
        question: Question,
    ) -> Result<Ear, ObserverError> {
        let asked = async {
            let mut ear = self.connect(seen.addr).await?;
            let answer = ear.ask(question).await?;
            Ok::<_, String>((ear, answer))
        };
        let stays = |why| ObserverError::Stays {
            name: seen.name.clone(),
            why,
        };
        match asked.await {
            Ok((ear, ObserverAnswer::Leaving | ObserverAnswer::Stopping)) => Ok(ear),
            Ok((_, ObserverAnswer::Staying(why))) => Err(stays(wire::printable(&why))),
            Ok((_, other)) => Err(stays(format!("its answer makes no sense: {other:?}"))),
            Err(why) => Err(stays(format!("it cannot be asked at {}: {why}", seen.addr))),
        }
    }

    pub(super) async fn connect(&self, addr: SocketAddr) -> Result<Ear, String> {
        let mut why = greeting::NO_ANSWER.to_owned();
        let greeted = timeout(limits::HANDSHAKE, async {
            loop {
                match self.greet(addr).await {
                    // A node that others knock at too has room again in a moment.
                    Err(Failure::Refused(Reason::Busy, text)) => why = text,
                    greeted => return greeted,
                }
                tokio::time::sleep(BUSY).await;
            }
        });
        match greeted.await {
            Ok(Ok(ear)) => Ok(ear),
            Ok(Err(failure)) => Err(failure.text().into()),
            Err(_) => Err(why),
        }
    }

    async fn greet(&self, addr: SocketAddr) -> Result<Ear, Failure> {
        let endpoint = self
            .endpoint(addr)
            .map_err(|error| Failure::Silence(error.to_string()))?;
        let route = relay::route(addr);
        let connecting = endpoint
            .connect_with(self.client.clone(), route, "satin")
            .map_err(|error| Failure::Silence(error.to_string()))?;
        let connection = tokio::select! {
            connected = connecting => connected?,
            () = greeting::nobody_listens(addr) => return Err(Failure::Silence(greeting::NO_PROCESS.into())),
        };
        let (mut send, mut recv) = connection.open_bi().await?;
        let hello = Greeting::Hello(Box::new(self.hello()));
        greeting::write_greeting(&mut send, &hello).await?;
        match greeting::read_greeting(&mut recv).await? {
            (Greeting::Hello(hello), frames) => Ok(Ear {
                pool: hello.pool,
                connection,
                send,
                recv,
                frames,
            }),
            (Greeting::Refused(refusal), _) => Err(refusal.into()),
        }
    }

    /// The socket by which that address is reached.
    fn endpoint(&self, addr: SocketAddr) -> std::io::Result<Endpoint> {
        let mut endpoints = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let place = &mut endpoints[usize::from(addr.is_ipv6())];
        if let Some(endpoint) = place {
            return Ok(endpoint.clone());
        }
        Ok(place.insert(socket::client_endpoint(addr)?).clone())
    }

    fn hello(&self) -> Hello {
        Hello {
            pool: self.pool.clone(),
            program: [0; 32],
            executable: [0; 32],
            target: String::new(),
            identity: Identity {
                peer: NodeId(rand::random()).first_life(),
                name: format!("observer-{}", std::process::id()).as_str().into(),
                site: "".into(),
                addr: (Ipv4Addr::UNSPECIFIED, 0).into(),
                stamp: Identity::NOT_YET,
                threads: 0,
            },
            role: Role::Observer,
            command_line: Vec::new(),
            epoch: 0,
            meant: None,
            has_store: false,
        }
    }
}

impl Ear {
    pub(super) async fn ask(&mut self, question: Question) -> Result<ObserverAnswer, String> {
        let asked = async {
            let written = self.send.write_all(&wire::frame(&question)).await;
            written.map_err(|error| error.to_string())?;
            let answer = next(&mut self.recv, &mut self.frames).await;
            answer
                .map_err(|error| error.to_string())?
                .ok_or_else(|| "it closed the connection".to_owned())
        };
        match timeout(limits::HANDSHAKE, asked).await {
            Ok(answer) => answer,
            Err(_) => Err("it does not answer".into()),
        }
    }

    /// The nodes of the pool, as this one sees them.
    pub(super) async fn members(&mut self) -> Result<SeenPool, String> {
        match self.ask(Question::Status).await? {
            ObserverAnswer::Status(mut nodes) => {
                nodes.sort_by(|a, b| (&a.site, &a.name).cmp(&(&b.site, &b.name)));
                Ok(SeenPool {
                    name: wire::printable(&self.pool),
                    nodes,
                })
            }
            other => Err(format!("its answer makes no sense: {other:?}")),
        }
    }

    /// Has the node closed the connection of its own accord?
    pub(super) fn has_said_goodbye(&self) -> bool {
        match self.connection.close_reason() {
            Some(ConnectionError::ApplicationClosed(close)) => {
                close.error_code == Close::Bye.code()
            }
            _ => false,
        }
    }

    async fn wait_until_gone(self) -> Parting {
        match self.connection.closed().await {
            ConnectionError::ApplicationClosed(_) => Parting::Left,
            _ => Parting::Lost,
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.connection.close(Close::Bye.code(), b"bye");
    }
}
