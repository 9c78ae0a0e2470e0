//! Follows the output of the nodes of a pool, those that come later too.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::SocketAddr,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};

use super::{
    NodeOutput, OutputNews, in_time_order,
    reader::{NodeReader, ReadingEnd},
};
use crate::net::{
    discovery, limits,
    observer::{Dialler, ObserverError, SeenNode, SeenPool},
    settings::Join,
};

/// Between two looks who is in the pool. Too short: the pool is asked for nothing. Too long: what a new node prints is seen late.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Nodes that are asked at once who is in the pool. Too small: a pool is thought to be over whose other nodes live. Too large: many connections.
const ASKED_AT_ONCE: usize = 16;

/// A node, as one follows it: the name may be given again, the address too.
type NodeKey = (String, SocketAddr);

/// Those who are followed, and how far.
pub(super) struct Following {
    dialler: Dialler,
    join: Join,
    news: mpsc::Sender<OutputNews>,
    is_over: watch::Receiver<bool>,
    readers: JoinSet<(NodeReader, ReadingEnd)>,
    /// Nodes that have a reader, or keep nothing.
    followed: HashSet<NodeKey>,
    /// The next line of those that were followed.
    since: HashMap<NodeKey, u64>,
    /// Nodes that did not answer: that is told once.
    silent: HashSet<NodeKey>,
    /// Addresses of nodes that were seen.
    seen: Vec<SocketAddr>,
}

impl Following {
    pub(super) fn new(
        dialler: Dialler,
        join: Join,
        news: mpsc::Sender<OutputNews>,
        is_over: watch::Receiver<bool>,
    ) -> Following {
        Following {
            dialler,
            join,
            news,
            is_over,
            readers: JoinSet::new(),
            followed: HashSet::new(),
            since: HashMap::new(),
            silent: HashSet::new(),
            seen: Vec::new(),
        }
    }

    pub(super) async fn run(
        &mut self,
        goes_on: impl Fn() -> bool,
        is_wanted: impl Fn(&SeenNode) -> bool,
    ) -> Result<(), ObserverError> {
        let first = self.look().await?;
        let first: Vec<SeenNode> = first.into_iter().filter(&is_wanted).collect();
        self.tell_backlog(first).await;
        while goes_on() {
            let is_last = *self.is_over.borrow();
            // A pool that was there, and cannot be found any more, is over.
            let Ok(nodes) = self.look().await else { break };
            for node in nodes.into_iter().filter(&is_wanted) {
                self.follow(node);
            }
            if is_last {
                break;
            }
            self.wait().await;
        }
        let finished = async {
            while let Some(ended) = self.readers.join_next().await {
                self.has_ended(ended).await;
            }
        };
        let _ = timeout(limits::LAST_OUTPUT, finished).await;
        Ok(())
    }

    /// The nodes of the pool at this moment.
    async fn look(&mut self) -> Result<Vec<SeenNode>, ObserverError> {
        let nodes = match self.seen.first() {
            Some(first) => match self.dialler.status([*first]).await {
                Ok(pool) => pool.nodes,
                Err(_) => self.look_elsewhere().await?,
            },
            None => {
                let named = discovery::look(&self.join)?;
                self.dialler.status(named).await?.nodes
            }
        };
        self.seen = nodes.iter().map(|node| node.addr).collect();
        Ok(nodes)
    }

    /// Asks several nodes at once, as the one that was asked so far is gone, and perhaps its pool.
    async fn look_elsewhere(&self) -> Result<Vec<SeenNode>, ObserverError> {
        let named = discovery::look(&self.join).unwrap_or_default();
        let others = self.seen.iter().skip(1).copied().chain(named);
        let others: BTreeSet<SocketAddr> = others.collect();
        let mut asked: JoinSet<Result<SeenPool, ObserverError>> = JoinSet::new();
        for addr in others.into_iter().take(ASKED_AT_ONCE) {
            let dialler = self.dialler.clone();
            asked.spawn(async move { dialler.status([addr]).await });
        }
        let mut failure = discovery::look(&self.join).err().map(ObserverError::from);
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(pool)) => return Ok(pool.nodes),
                Ok(Err(error)) => failure = Some(error),
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| ObserverError::NoMaster(self.dialler.pool.clone())))
    }

    /// Tells what had been printed before: of all nodes together, in the order of the times.
    async fn tell_backlog(&mut self, nodes: Vec<SeenNode>) {
        let mut reading = JoinSet::new();
        for node in nodes {
            let mut reader = NodeReader::new(self.dialler.clone(), node, 0);
            reading.spawn(async move { (reader.collect().await, reader) });
        }
        let mut parts = Vec::new();
        while let Some(read) = reading.join_next().await {
            let Ok((part, reader)) = read else { continue };
            let key = key(&reader.node);
            match part.last().map(|news| &news.what) {
                Some(NodeOutput::NotKept) => drop(self.followed.insert(key)),
                Some(NodeOutput::NoAnswer(_)) => drop(self.silent.insert(key)),
                _ => drop(self.since.insert(key, reader.since)),
            }
            parts.push(part);
        }
        for news in in_time_order(parts) {
            // An error: nobody wants them.
            let _ = self.news.send(news).await;
        }
    }

    fn follow(&mut self, node: SeenNode) {
        let key = key(&node);
        if !self.followed.insert(key.clone()) {
            return;
        }
        let since = self.since.get(&key).copied().unwrap_or(0);
        let mut reader = NodeReader::new(self.dialler.clone(), node, since);
        let (news, is_over) = (self.news.clone(), self.is_over.clone());
        self.readers.spawn(async move {
            let end = reader.follow(&news, is_over).await;
            (reader, end)
        });
    }

    /// Waits until it is time to look again.
    async fn wait(&mut self) {
        let mut is_over = self.is_over.clone();
        tokio::select! {
            () = sleep(LOOK_AGAIN) => {}
            _ = is_over.wait_for(|is_over| *is_over) => {}
        }
        while let Some(ended) = self.readers.try_join_next() {
            self.has_ended(ended).await;
        }
    }

    async fn has_ended(&mut self, ended: Result<(NodeReader, ReadingEnd), JoinError>) {
        let Ok((reader, end)) = ended else { return };
        let key = key(&reader.node);
        self.since.insert(key.clone(), reader.since);
        let what = match end {
            ReadingEnd::NotKept => NodeOutput::NotKept,
            ReadingEnd::NoAnswer(why) => {
                self.followed.remove(&key);
                match self.silent.insert(key) {
                    true => NodeOutput::NoAnswer(why),
                    false => return,
                }
            }
            ReadingEnd::Gone | ReadingEnd::Done => {
                self.followed.remove(&key);
                return;
            }
        };
        let _ = self.news.send(reader.news(what)).await;
    }
}

fn key(node: &SeenNode) -> NodeKey {
    (node.name.clone(), node.addr)
}
