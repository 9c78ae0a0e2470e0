//! Reads what one node prints.

use tokio::{sync::mpsc, sync::watch, time::timeout};

use super::{NodeOutput, OutputNews};
use crate::{
    net::{
        limits,
        observer::{Dialler, Ear, ObserverAnswer, Question, SeenNode},
    },
    observe::output::OutputPage,
};

/// How the reading of a node came to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ReadingEnd {
    /// All has been read that had been printed when reading was to end.
    Done,
    /// The node keeps nothing.
    NotKept,
    /// The node could not be reached.
    NoAnswer(String),
    /// The node has closed the connection, or nobody wants the news.
    Gone,
}

/// A node, and how far its lines have been read.
pub(super) struct NodeReader {
    dialler: Dialler,
    pub(super) node: SeenNode,
    /// The number of the next line.
    pub(super) since: u64,
}

impl NodeReader {
    pub(super) fn new(dialler: Dialler, node: SeenNode, since: u64) -> NodeReader {
        NodeReader {
            dialler,
            node,
            since,
        }
    }

    /// All that the node has printed.
    pub(super) async fn collect(&mut self) -> Vec<OutputNews> {
        let mut all = Vec::new();
        let end = async {
            let mut ear = self.dialler.connect(self.node.addr).await?;
            loop {
                let page = self.ask(&mut ear, false).await?;
                if !page.is_kept {
                    return Ok(Some(NodeOutput::NotKept));
                }
                let has_more = page.has_more;
                all.extend(self.take(page));
                if !has_more {
                    return Ok(None);
                }
            }
        };
        let end = end
            .await
            .unwrap_or_else(|why| Some(NodeOutput::NoAnswer(why)));
        all.extend(end.map(|what| self.news(what)));
        all
    }

    /// Reads what the node prints until it is gone; or until `is_over`, when what it has printed is read to its end.
    pub(super) async fn follow(
        &mut self,
        news: &mpsc::Sender<OutputNews>,
        mut is_over: watch::Receiver<bool>,
    ) -> ReadingEnd {
        let reading = async {
            let mut ear = match self.dialler.connect(self.node.addr).await {
                Ok(ear) => ear,
                Err(why) => return ReadingEnd::NoAnswer(why),
            };
            loop {
                match self.ask(&mut ear, true).await {
                    Ok(page) if !page.is_kept => return ReadingEnd::NotKept,
                    Ok(page) => {
                        for one in self.take(page) {
                            if news.send(one).await.is_err() {
                                return ReadingEnd::Gone;
                            }
                        }
                    }
                    Err(_) => return ReadingEnd::Gone,
                }
            }
        };
        tokio::select! {
            biased;
            _ = is_over.wait_for(|is_over| *is_over) => {}
            end = reading => return end,
        }
        // The question that waits is not waited for: another connection.
        if let Ok(rest) = timeout(limits::LAST_OUTPUT, self.collect()).await {
            for one in rest {
                if news.send(one).await.is_err() {
                    return ReadingEnd::Gone;
                }
            }
        }
        ReadingEnd::Done
    }

    async fn ask(&self, ear: &mut Ear, waits: bool) -> Result<OutputPage, String> {
        let since = self.since;
        match ear.ask(Question::Output { since, waits }).await? {
            ObserverAnswer::Output(page) => Ok(page),
            other => Err(format!("its answer makes no sense: {other:?}")),
        }
    }

    /// The news of a page, which has been read now.
    fn take(&mut self, page: OutputPage) -> Vec<OutputNews> {
        let dropped = page.first.saturating_sub(self.since);
        self.since = page.next();
        let dropped = (dropped > 0).then_some(NodeOutput::Dropped(dropped));
        let lines = page.lines.into_iter().map(NodeOutput::Line);
        let all = dropped.into_iter().chain(lines);
        all.map(|what| self.news(what)).collect()
    }

    pub(super) fn news(&self, what: NodeOutput) -> OutputNews {
        OutputNews {
            name: self.node.name.clone(),
            site: self.node.site.clone(),
            what,
        }
    }
}
