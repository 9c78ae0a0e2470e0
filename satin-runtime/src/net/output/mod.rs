//! What nodes have printed, as far as they keep it: for observers, and for the terminal of the node that runs `main`.
//!
//! Each node numbers its lines. A reader asks a node for those from a number on, over one connection; the node holds its answer back until there
//! is a line, or for [`OUTPUT_WAIT`](super::limits::OUTPUT_WAIT). A node that cannot be reached directly is not heard: no node passes on the
//! output of others.

mod follow;
mod reader;
mod shown;

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use self::{follow::Following, reader::NodeReader};
use super::{
    discovery,
    observer::{Observer, ObserverError, SeenNode},
};
use crate::observe::output::OutputLine;
pub(super) use shown::OutputShown;

/// News of the output of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputNews {
    /// The name of the node.
    pub name: String,
    /// Its site.
    pub site: String,
    /// What there is to tell.
    pub what: NodeOutput,
}

/// What there is to tell of the output of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeOutput {
    /// A line that it printed.
    Line(OutputLine),
    /// Lines that it printed before the next one, and does not keep any more; how many.
    Dropped(u64),
    /// The node keeps nothing of what it prints.
    NotKept,
    /// The node does not answer; why.
    NoAnswer(String),
}

impl OutputNews {
    /// The beginning of each line of that node where lines of several are shown.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("[{} @ {}] ", self.name, self.site)
    }
}

/// News that may wait for the one who prints them. Too small: nodes are asked in small steps. Too large: memory, for text that is late.
const NEWS: usize = 256;

impl Observer {
    /// What these nodes have printed, as far as they keep it, in the order of their clocks; of each node in its own order.
    pub fn output(&self, nodes: &[SeenNode]) -> Vec<OutputNews> {
        self.runtime.block_on(async {
            let mut reading = JoinSet::new();
            for node in nodes {
                let mut reader = NodeReader::new(self.dialler.clone(), node.clone(), 0);
                reading.spawn(async move { reader.collect().await });
            }
            let mut all = Vec::new();
            while let Some(read) = reading.join_next().await {
                all.extend(read.ok());
            }
            in_time_order(all)
        })
    }

    /// Tells what nodes print, and have printed, until the pool is over: of those that are there, and those that come. `told` is called by
    /// this thread.
    ///
    /// # Errors
    /// The pool cannot be found.
    pub fn follow_output(
        &self,
        is_wanted: impl Fn(&SeenNode) -> bool,
        told: impl FnMut(OutputNews),
    ) -> Result<(), ObserverError> {
        let (_never, is_over) = watch::channel(false);
        self.follow_output_until(is_over, || true, is_wanted, told)
    }

    /// As [`follow_output`](Observer::follow_output), until `is_over`, when all that has been printed by then is told; or while
    /// `goes_on` says so, which is asked now and then.
    pub(super) fn follow_output_until(
        &self,
        is_over: watch::Receiver<bool>,
        goes_on: impl Fn() -> bool,
        is_wanted: impl Fn(&SeenNode) -> bool,
        mut told: impl FnMut(OutputNews),
    ) -> Result<(), ObserverError> {
        discovery::look(&self.join)?;
        let (news, mut comes) = mpsc::channel(NEWS);
        let mut following = Following::new(self.dialler.clone(), self.join.clone(), news, is_over);
        self.runtime.block_on(async {
            let tell = async {
                while let Some(news) = comes.recv().await {
                    told(news);
                }
            };
            let follow = async move { following.run(goes_on, is_wanted).await };
            let (outcome, ()) = tokio::join!(follow, tell);
            outcome
        })
    }
}

/// Lines in the order of their times; what is told of a node stays before the line that it came before.
fn in_time_order(mut parts: Vec<Vec<OutputNews>>) -> Vec<OutputNews> {
    let mut timed: Vec<(u64, OutputNews)> = Vec::new();
    // Nodes answer in any order.
    parts.sort_by(|a, b| names(a).cmp(&names(b)));
    for part in parts {
        let mut next = 0;
        let times: Vec<u64> = part
            .iter()
            .rev()
            .map(|news| {
                if let NodeOutput::Line(line) = &news.what {
                    next = line.at_ms;
                }
                next
            })
            .collect();
        timed.extend(times.into_iter().rev().zip(part));
    }
    timed.sort_by_key(|(at_ms, _)| *at_ms);
    timed.into_iter().map(|(_, news)| news).collect()
}

fn names(part: &[OutputNews]) -> Option<(&str, &str)> {
    part.first().map(|news| (&*news.site, &*news.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::output::OutputStream;

    fn news(name: &str, what: NodeOutput) -> OutputNews {
        OutputNews {
            name: name.into(),
            site: "delft".into(),
            what,
        }
    }

    fn line(at_ms: u64) -> NodeOutput {
        NodeOutput::Line(OutputLine {
            at_ms,
            stream: OutputStream::Stdout,
            text: Vec::new(),
        })
    }

    #[test]
    fn lines_of_several_nodes_are_in_the_order_of_their_times() {
        let parts = vec![
            vec![
                news("b", NodeOutput::Dropped(7)),
                news("b", line(5)),
                news("b", line(5)),
            ],
            vec![news("c", NodeOutput::NotKept)],
            vec![news("a", line(3)), news("a", line(5)), news("a", line(9))],
        ];
        let all: Vec<String> = in_time_order(parts)
            .iter()
            .map(|news| match &news.what {
                NodeOutput::Line(line) => format!("{}{}", news.name, line.at_ms),
                _ => news.name.clone(),
            })
            .collect();
        assert_eq!(all, ["c", "a3", "a5", "b", "b5", "b5", "a9"]);
    }
}
