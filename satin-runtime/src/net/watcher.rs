//! A watcher: looks at all nodes of a pool once a second, as an observer, and tells somebody of what it sees. Dashboard, report, trace and
//! `satin top` live on it. It keeps a connection to each node, so that each look costs a question and an answer.
//!
//! It runs on a thread of its own, in a node's process or in one that is no node: what it needs is the credential and an address.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::{sync::mpsc as orders, task::JoinSet};

use super::{
    discovery, limits,
    observer::{Dialler, Ear, Observer, ObserverAnswer, ObserverError, Question, SeenNode},
    settings::Join,
    wire,
};
use crate::observe::{events::unix_ms, look::NodeLook};

/// The time from one look to the next. Too short: looks show in the run. Too long: people wait for what they see.
const EVERY: Duration = Duration::from_secs(1);

/// The same in the first seconds, so that something is seen of short runs.
const EVERY_AT_FIRST: Duration = Duration::from_millis(200);

/// The number of those. Too small: short runs are over before much is seen. Too large: large pools are asked too often.
const FIRST: u32 = 25;

/// The time for which an answer is waited for. Too short: a node behind a slow link is called silent. Too long: a node that hangs delays
/// the looks at others.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a node that is not there any more went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// On purpose.
    Left,
    /// It died, or nobody knows.
    Lost,
}

/// Hears what a watcher sees. Called from the watcher's thread.
pub trait Watching: Send + 'static {
    /// The pool's name, and the nodes that are in it, as one of them says. No two of them have the same name.
    fn nodes(&mut self, pool: &str, nodes: &[SeenNode], now_ms: u64);

    /// A look at a node, whose clock is so many milliseconds ahead of this one.
    fn look(&mut self, node: &SeenNode, look: NodeLook, ahead_ms: i64);

    /// A node that is in the pool has not answered.
    fn silent(&mut self, node: &SeenNode, now_ms: u64);

    /// A node is not in the pool any more.
    fn gone(&mut self, node: &SeenNode, gone: Gone, now_ms: u64);

    /// No node answers at the moment, for this reason.
    fn lost(&mut self, why: &str, now_ms: u64);
}

/// An order to a watcher.
enum Order {
    /// Ask these nodes to leave, by their names; the answer says what went wrong.
    Drain(Vec<String>, mpsc::Sender<Result<(), String>>),
    /// Look once more, and tell when that is done.
    Look(mpsc::Sender<()>),
    /// Look no more. Handles may live on.
    End,
}

/// Looks at a pool until it is dropped.
pub struct Watcher {
    orders: orders::UnboundedSender<Order>,
    thread: Option<JoinHandle<()>>,
}

/// Gives orders to a [`Watcher`] from anywhere.
#[derive(Clone)]
pub struct WatcherHandle(orders::UnboundedSender<Order>);

impl Watcher {
    /// Begins to look at the pool of that name (`None`: whatever it is called), to be found as `join` says.
    ///
    /// # Errors
    /// If the credential cannot be used, or the system does not give what is needed.
    pub fn start(
        join: Join,
        credential: &Path,
        pool: Option<&str>,
        told: impl Watching,
    ) -> Result<Watcher, ObserverError> {
        let (runtime, dialler, join) = Observer::new(join, credential, pool)?.into_parts();
        let (sender, receiver) = orders::unbounded_channel();
        let round = Round {
            dialler,
            join,
            watched: BTreeMap::new(),
            told,
        };
        let thread = std::thread::Builder::new()
            .name("satin-watcher".into())
            .spawn(move || runtime.block_on(round.go_on(receiver)))?;
        Ok(Watcher {
            orders: sender,
            thread: Some(thread),
        })
    }

    /// For orders from elsewhere. Orders after the end of the watcher fail.
    #[must_use]
    pub fn handle(&self) -> WatcherHandle {
        WatcherHandle(self.orders.clone())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // If the thread has ended, it hears nothing.
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl WatcherHandle {
    /// Asks these nodes to leave, the master last. Returns when all have been asked.
    ///
    /// # Errors
    /// If one cannot be asked, or stays: the text says which and why. The others leave all the same.
    pub fn drain(&self, names: Vec<String>) -> Result<(), String> {
        let (sender, answer) = mpsc::channel();
        let over = || "nobody looks at the pool any more".to_owned();
        self.0
            .send(Order::Drain(names, sender))
            .map_err(|_| over())?;
        answer.recv().map_err(|_| over())?
    }

    /// Looks at all nodes now, and returns when that is done; at once if the watcher has ended.
    pub fn look_now(&self) {
        let (sender, done) = mpsc::channel();
        if self.0.send(Order::Look(sender)).is_ok() {
            let _ = done.recv();
        }
    }
}

/// A node that is watched.
struct Watched {
    seen: SeenNode,
    ear: Option<Ear>,
    /// The place from which its news are to be read.
    next: u64,
    /// The node has closed its connection as one does that leaves.
    said_goodbye: bool,
}

/// A look that did not come about.
struct NoLook {
    said_goodbye: bool,
}

struct Round<W> {
    dialler: Dialler,
    join: Join,
    watched: BTreeMap<SocketAddr, Watched>,
    told: W,
}

impl<W: Watching> Round<W> {
    /// Looks again and again, until the orders end.
    async fn go_on(mut self, mut orders: orders::UnboundedReceiver<Order>) {
        let mut looks = 0;
        loop {
            self.look().await;
            looks += 1;
            let every = if looks <= FIRST {
                EVERY_AT_FIRST
            } else {
                EVERY
            };
            let next = tokio::time::Instant::now() + every;
            loop {
                let order = tokio::select! {
                    () = tokio::time::sleep_until(next) => break,
                    order = orders.recv() => order,
                };
                match order {
                    None | Some(Order::End) => return,
                    Some(Order::Drain(names, answer)) => {
                        let _ = answer.send(self.drain(&names).await);
                    }
                    Some(Order::Look(done)) => {
                        self.look().await;
                        let _ = done.send(());
                    }
                }
            }
        }
    }

    async fn look(&mut self) {
        match self.members().await {
            Ok((pool, nodes)) => self.meet(&pool, nodes),
            Err(why) => return self.told.lost(&why, unix_ms()),
        }
        let mut looks = JoinSet::new();
        for (addr, watched) in &mut self.watched {
            let (addr, ear, next) = (*addr, watched.ear.take(), watched.next);
            let dialler = self.dialler.clone();
            looks.spawn(async move { (addr, look_at(dialler, addr, ear, next).await) });
        }
        while let Some(done) = looks.join_next().await {
            let Ok((addr, looked)) = done else { continue };
            let Some(watched) = self.watched.get_mut(&addr) else {
                continue;
            };
            match looked {
                Ok((ear, look, ahead_ms)) => {
                    (watched.ear, watched.next) = (Some(ear), look.next);
                    self.told.look(&watched.seen, look, ahead_ms);
                }
                Err(NoLook { said_goodbye }) => {
                    watched.said_goodbye |= said_goodbye;
                    if !watched.said_goodbye {
                        self.told.silent(&watched.seen, unix_ms());
                    }
                }
            }
        }
    }

    /// The pool's name and nodes, as the first of those says that are known, or else of those where the pool is to be found.
    async fn members(&mut self) -> Result<(String, Vec<SeenNode>), String> {
        for watched in self.watched.values_mut() {
            let Some(mut ear) = watched.ear.take() else {
                continue;
            };
            if let Ok(Ok(ObserverAnswer::Status(nodes))) =
                tokio::time::timeout(PATIENCE, ear.ask(Question::Status)).await
            {
                let pool = ear.pool();
                watched.ear = Some(ear);
                return Ok((pool, nodes));
            }
        }
        let join = self.join.clone();
        let listed = tokio::task::spawn_blocking(move || discovery::look(&join)).await;
        let listed = match listed {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(error) => return Err(error.to_string()),
        };
        let known = self.watched.keys().copied();
        let mut why = "no address of the pool is known".to_owned();
        for addr in known
            .chain(listed)
            .collect::<std::collections::BTreeSet<_>>()
        {
            let asked = async {
                let mut ear = self.dialler.connect(addr).await?;
                match ear.ask(Question::Status).await? {
                    ObserverAnswer::Status(nodes) => Ok((ear.pool(), nodes)),
                    other => Err(format!("its answer makes no sense: {other:?}")),
                }
            };
            match asked.await {
                Ok(seen) => return Ok(seen),
                Err(text) => why = format!("{addr}: {text}"),
            }
        }
        Err(why)
    }

    /// Notes who is there, and who is not any more.
    fn meet(&mut self, pool: &str, mut nodes: Vec<SeenNode>) {
        tell_apart(&mut nodes);
        nodes.sort_by(|a, b| (&a.site, &a.name).cmp(&(&b.site, &b.name)));
        let now_ms = unix_ms();
        let before = std::mem::take(&mut self.watched);
        for seen in &nodes {
            let fresh = Watched {
                seen: seen.clone(),
                ear: None,
                next: 0,
                said_goodbye: false,
            };
            self.watched.insert(seen.addr, fresh);
        }
        for (addr, old) in before {
            match self.watched.get_mut(&addr) {
                Some(watched) if watched.seen.name == old.seen.name => {
                    *watched = Watched {
                        seen: watched.seen.clone(),
                        ..old
                    };
                }
                _ => {
                    let said = old.ear.is_some_and(|ear| ear.has_said_goodbye());
                    let gone = match said || old.said_goodbye {
                        true => Gone::Left,
                        false => Gone::Lost,
                    };
                    self.told.gone(&old.seen, gone, now_ms);
                }
            }
        }
        self.told.nodes(pool, &nodes, now_ms);
    }

    async fn drain(&mut self, names: &[String]) -> Result<(), String> {
        let is_meant = |seen: &&SeenNode| names.contains(&seen.name);
        let mut meant: Vec<SeenNode> = self
            .watched
            .values()
            .map(|watched| &watched.seen)
            .filter(is_meant)
            .cloned()
            .collect();
        if let Some(name) = names
            .iter()
            .find(|name| !meant.iter().any(|seen| seen.name == **name))
        {
            return Err(format!("no node of the pool is called `{name}`"));
        }
        meant.sort_by_key(|seen| seen.is_master);
        let mut outcome = Ok(());
        for seen in &meant {
            let asked = self
                .dialler
                .ask(seen, Question::Drain { grace: None })
                .await;
            outcome = outcome.and(asked.map(drop).map_err(|error| error.to_string()));
        }
        outcome
    }
}

/// Names that several nodes have get the address of each: whoever reads of a node is to know which it is.
fn tell_apart(nodes: &mut [SeenNode]) {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes.iter_mut() {
        node.name = wire::printable(&node.name);
        *count.entry(node.name.clone()).or_default() += 1;
    }
    for node in nodes.iter_mut().filter(|node| count[&node.name] > 1) {
        node.name = format!("{}@{}", node.name, node.addr);
    }
}

/// Asks a node for its news, on the connection if one stands.
async fn look_at(
    dialler: Dialler,
    addr: SocketAddr,
    ear: Option<Ear>,
    next: u64,
) -> Result<(Ear, NodeLook, i64), NoLook> {
    let silent = NoLook {
        said_goodbye: false,
    };
    let asked = async {
        let mut ear = match ear {
            Some(ear) => ear,
            None => match dialler.connect(addr).await {
                Ok(ear) => ear,
                Err(_) => return Err(silent),
            },
        };
        let (sent, sent_ms) = (Instant::now(), unix_ms());
        let answer = ear.ask(Question::Look(next)).await;
        // The node's clock was read about half way between question and answer.
        let here_ms = sent_ms + (sent.elapsed() / 2).as_millis() as u64;
        let look: Option<NodeLook> = match answer {
            Ok(ObserverAnswer::Look(text)) => serde_json::from_str(&text).ok(),
            _ => None,
        };
        match look {
            Some(look) => {
                let ahead_ms = look.now_ms as i64 - here_ms as i64;
                Ok((ear, look, ahead_ms))
            }
            None => Err(NoLook {
                said_goodbye: ear.has_said_goodbye(),
            }),
        }
    };
    let patience = PATIENCE + limits::HANDSHAKE;
    let looked = tokio::time::timeout(patience, asked).await;
    looked.unwrap_or(Err(NoLook {
        said_goodbye: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_name_are_told_apart() {
        let node = |name: &str, port| SeenNode {
            name: name.into(),
            site: "s".into(),
            addr: ([127, 0, 0, 1], port).into(),
            threads: 1,
            is_master: false,
            is_leaving: false,
        };
        let mut nodes = [node("a", 1), node("b", 2), node("a", 3)];
        tell_apart(&mut nodes);
        let names = nodes.map(|node| node.name);
        assert_eq!(names, ["a@127.0.0.1:1", "b", "a@127.0.0.1:3"]);
    }
}
