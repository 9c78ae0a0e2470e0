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
    observer::{
        Dialler, Ear, Observer, ObserverAnswer, ObserverError, Question, SeenNode, SeenPool, search,
    },
    settings::Join,
    wire,
};
use crate::observe::{events::unix_ms, history::Gone, log, look::NodeLook};

/// The time from one look to the next. Too short: looks show in the run. Too long: people wait for what they see.
const EVERY: Duration = Duration::from_secs(1);

/// The same in the first seconds, so that something is seen of short runs.
const EVERY_AT_FIRST: Duration = Duration::from_millis(200);

/// The number of those. Too small: short runs are over before much is seen. Too large: large pools are asked too often.
const FIRST: u32 = 25;

/// The time for which a last look waits for answers. Too short: what nodes behind slow links did last is not seen. Too long: the end of a
/// program waits for a node that hangs.
const SOON: Duration = Duration::from_secs(2);

/// Hears what a watcher sees. Called from the watcher's thread.
pub trait Watching: Send + 'static {
    /// The pool's name, and the nodes that are in it, as one of them says. No two of them have the same name.
    fn nodes(&mut self, pool: &str, nodes: &[SeenNode], now_ms: u64);

    /// A look at a node, whose clock is so many milliseconds ahead of this one.
    fn look(&mut self, node: &SeenNode, look: NodeLook, ahead_ms: i64);

    /// A node is not in the pool any more, or has not answered.
    fn gone(&mut self, node: &SeenNode, gone: Gone, now_ms: u64);

    /// No node answers at the moment, for this reason.
    fn lost(&mut self, why: &str, now_ms: u64);
}

/// An order to a watcher.
enum WatchOrder {
    /// Ask these nodes to leave, by their names; the answer says what went wrong.
    Drain(Vec<String>, mpsc::Sender<Result<(), String>>),
    /// Look once more, and tell when that is done.
    Look(mpsc::Sender<()>),
    /// Look no more. Handles may live on.
    End,
}

/// Looks at a pool until it is dropped.
pub struct Watcher {
    orders: orders::UnboundedSender<WatchOrder>,
    thread: Option<JoinHandle<()>>,
}

/// Gives orders to a [`Watcher`] from anywhere.
#[derive(Clone)]
pub struct WatcherHandle(orders::UnboundedSender<WatchOrder>);

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
            looks: JoinSet::new(),
            is_searching: false,
            parting: BTreeMap::new(),
            told,
        };
        let thread = std::thread::Builder::new().name("satin-watcher".into());
        let thread = log::spawn(thread, move || {
            runtime.block_on(round.go_on(receiver));
            // A search for addresses may hang in the system.
            runtime.shutdown_background();
        })?;
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
        let _ = self.orders.send(WatchOrder::End);
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
            .send(WatchOrder::Drain(names, sender))
            .map_err(|_| over())?;
        answer.recv().map_err(|_| over())?
    }

    /// Looks at all nodes now, and returns when that is done; at once if the watcher has ended.
    pub fn look_now(&self) {
        let (sender, done) = mpsc::channel();
        if self.0.send(WatchOrder::Look(sender)).is_ok() {
            let _ = done.recv();
        }
    }
}

/// A node that is watched.
struct Watched {
    seen: SeenNode,
    /// The connection; `None` while a look uses it, and where none stands.
    ear: Option<Ear>,
    /// A look at it is under way.
    is_asked: bool,
    /// The place from which its news are to be read.
    next: u64,
    /// The node has closed its connection as one does that leaves.
    said_goodbye: bool,
}

/// What came of a look.
enum LookOutcome {
    /// At a node: its news, and the members if it was asked for them.
    Looked(SocketAddr, Result<Box<Answered>, NoLook>),
    /// For the members, at all addresses where there might be one.
    Searched(Result<SeenPool, String>),
}

struct Answered {
    ear: Ear,
    look: NodeLook,
    ahead_ms: i64,
    members: Option<SeenPool>,
}

/// A look that did not come about.
struct NoLook {
    said_goodbye: bool,
}

/// The looks at the nodes of a pool. Each goes its own way: a node that does not answer delays no other.
struct Round<W> {
    dialler: Dialler,
    join: Join,
    watched: BTreeMap<SocketAddr, Watched>,
    looks: JoinSet<LookOutcome>,
    /// Nodes are being searched for.
    is_searching: bool,
    /// Nodes that are no members any more, while looks at them are under way, whose outcome tells how they went.
    parting: BTreeMap<SocketAddr, SeenNode>,
    told: W,
}

impl<W: Watching> Round<W> {
    /// Looks again and again, until the orders end.
    async fn go_on(mut self, mut orders: orders::UnboundedReceiver<WatchOrder>) {
        let (mut next, mut begun) = (tokio::time::Instant::now(), 0);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => {
                    self.begin_looks();
                    begun += 1;
                    let every = if begun <= FIRST { EVERY_AT_FIRST } else { EVERY };
                    next = tokio::time::Instant::now() + every;
                }
                Some(done) = self.looks.join_next() => self.done(done.ok()),
                order = orders.recv() => match order {
                    None | Some(WatchOrder::End) => return,
                    Some(WatchOrder::Drain(names, answer)) => {
                        let asking = ask_to_leave(self.dialler.clone(), self.meant(&names));
                        // Looks go on meanwhile.
                        tokio::spawn(async move {
                            let _ = answer.send(asking.await);
                        });
                    }
                    Some(WatchOrder::Look(answer)) => {
                        self.look_now().await;
                        let _ = answer.send(());
                    }
                },
            }
        }
    }

    /// Begins a look at each node at which none is under way, and asks one of them who is there.
    fn begin_looks(&mut self) {
        let mut asks_for_members = true;
        for (addr, watched) in &mut self.watched {
            if watched.is_asked {
                continue;
            }
            watched.is_asked = true;
            // A connection that stands is the sign of a node that answers.
            let with_members = watched.ear.is_some() && std::mem::take(&mut asks_for_members);
            let (addr, ear, next) = (*addr, watched.ear.take(), watched.next);
            let dialler = self.dialler.clone();
            self.looks.spawn(async move {
                LookOutcome::Looked(addr, look_at(dialler, addr, ear, next, with_members).await)
            });
        }
        if asks_for_members && !self.is_searching {
            self.is_searching = true;
            let known = self.watched.keys().copied().collect();
            let search = search(self.dialler.clone(), self.join.clone(), known);
            self.looks.spawn(async {
                LookOutcome::Searched(search.await.map_err(|error| error.to_string()))
            });
        }
    }

    /// Looks at all nodes; those that do not answer soon are not waited for.
    async fn look_now(&mut self) {
        let until = tokio::time::Instant::now() + SOON;
        // Looks that are under way come to an end first: the next news follow on theirs.
        self.finish_looks(until).await;
        self.begin_looks();
        self.finish_looks(until).await;
    }

    async fn finish_looks(&mut self, until: tokio::time::Instant) {
        while let Ok(Some(done)) = tokio::time::timeout_at(until, self.looks.join_next()).await {
            self.done(done.ok());
        }
    }

    /// A look is done; `None` if it panicked.
    fn done(&mut self, done: Option<LookOutcome>) {
        match done {
            Some(LookOutcome::Looked(addr, looked)) => self.looked(addr, looked),
            Some(LookOutcome::Searched(found)) => {
                self.is_searching = false;
                match found {
                    Ok(pool) => self.meet(pool),
                    Err(why) => self.told.lost(&why, unix_ms()),
                }
            }
            None => {}
        }
    }

    fn looked(&mut self, addr: SocketAddr, looked: Result<Box<Answered>, NoLook>) {
        if let Some(seen) = self.parting.remove(&addr) {
            // An answer of one that is no member any more comes from one that is on its way out.
            let gone = match looked {
                Ok(_) | Err(NoLook { said_goodbye: true }) => Gone::Left,
                Err(_) => Gone::Dead,
            };
            return self.told.gone(&seen, gone, unix_ms());
        }
        let Some(watched) = self.watched.get_mut(&addr) else {
            return;
        };
        watched.is_asked = false;
        match looked {
            Ok(answered) => {
                (watched.ear, watched.next) = (Some(answered.ear), answered.look.next);
                self.told
                    .look(&watched.seen, answered.look, answered.ahead_ms);
                if let Some(pool) = answered.members {
                    self.meet(pool);
                }
            }
            Err(NoLook { said_goodbye }) => {
                watched.said_goodbye |= said_goodbye;
                if !watched.said_goodbye {
                    self.told.gone(&watched.seen, Gone::Silent, unix_ms());
                }
            }
        }
    }

    /// Notes who is there, and who is not any more.
    fn meet(&mut self, pool: SeenPool) {
        let SeenPool { name, mut nodes } = pool;
        tell_apart(&mut nodes);
        let now_ms = unix_ms();
        let before = std::mem::take(&mut self.watched);
        for seen in &nodes {
            let fresh = Watched {
                seen: seen.clone(),
                ear: None,
                is_asked: false,
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
                _ if old.is_asked => drop(self.parting.insert(addr, old.seen)),
                _ => {
                    let said = old.ear.is_some_and(|ear| ear.has_said_goodbye());
                    let gone = match said || old.said_goodbye {
                        true => Gone::Left,
                        false => Gone::Dead,
                    };
                    self.told.gone(&old.seen, gone, now_ms);
                }
            }
        }
        self.told.nodes(&name, &nodes, now_ms);
    }

    /// The nodes of these names, the master last; or the name of each that there is not.
    fn meant(&self, names: &[String]) -> Vec<Result<SeenNode, String>> {
        let of_name = |name: &String| {
            let mut seen = self.watched.values().map(|watched| &watched.seen);
            let found = seen.find(|seen| seen.name == *name).cloned();
            found.ok_or_else(|| format!("no node of the pool is called `{name}`"))
        };
        let mut meant: Vec<_> = names.iter().map(of_name).collect();
        meant.sort_by_key(|seen| seen.as_ref().is_ok_and(|seen| seen.is_master));
        meant
    }
}

/// Asks these nodes to leave, one after the other; the first thing that goes wrong is the outcome, and the others are asked all the same.
async fn ask_to_leave(
    dialler: Dialler,
    meant: Vec<Result<SeenNode, String>>,
) -> Result<(), String> {
    let mut outcome = Ok(());
    for seen in meant {
        let asked = match seen {
            Ok(seen) => {
                let asked = dialler.ask(&seen, Question::Drain { grace: None }).await;
                asked.map(drop).map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        outcome = outcome.and(asked);
    }
    outcome
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

/// Asks a node for its news, on the connection if one stands; and who is in the pool.
async fn look_at(
    dialler: Dialler,
    addr: SocketAddr,
    ear: Option<Ear>,
    next: u64,
    with_members: bool,
) -> Result<Box<Answered>, NoLook> {
    let silent = NoLook {
        said_goodbye: false,
    };
    let mut ear = match ear {
        Some(ear) => ear,
        None => dialler.connect(addr).await.map_err(|_| silent)?,
    };
    let (sent, sent_ms) = (Instant::now(), unix_ms());
    let answer = ear.ask(Question::Look(next)).await;
    // The node's clock was read about half way between question and answer.
    let here_ms = sent_ms + (sent.elapsed() / 2).as_millis() as u64;
    let look: Option<NodeLook> = match answer {
        Ok(ObserverAnswer::Look(text)) => serde_json::from_str(&text).ok(),
        _ => None,
    };
    let Some(look) = look else {
        return Err(NoLook {
            said_goodbye: ear.has_said_goodbye(),
        });
    };
    let members = match with_members {
        true => ear.members().await.ok(),
        false => None,
    };
    Ok(Box::new(Answered {
        ahead_ms: look.now_ms as i64 - here_ms as i64,
        ear,
        look,
        members,
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
