//! I20, which is K6: results that others stand for do not pile up, neither at the workers nor in the store.
//!
//! What the workers of a node keep is one result for each child of an invocation under way, or of a child that was not kept itself
//! and so leaves its own children. What a node keeps for others, the thefts that it answered and nobody has covered, I15 bounds.
//!
//! A log has what is alive, and what was before. Superseded results leave it when all that is alive is written anew, which begins when four
//! times as much has been written since, and a little while later the rest goes. So what is in the log longer than that takes is
//! no more than five times what was alive when it was written anew, what a log may have in any case, and one batch.
//!
//! The log is checked while the store answers and no write fails, as in I18, and not soon after a batch was full: then there
//! was more to write than fits into one, and what is written anew takes several. Results of root jobs stay, and do not count.

use std::{collections::BTreeMap, time::Duration};

use satin_runtime::node::cluster::{Noted, StoredBatch};

use super::{Invariant, Seen};

/// As in `node/stable`: all is written anew when so many times as much has been written since.
const GROWTH: usize = 4;

#[derive(Default)]
pub(super) struct LogsBounded {
    /// So much of the journal has been read.
    read: usize,
    /// The last moment at which a node was not at liberty to write as it should, or had more to write than fits.
    hindered: BTreeMap<u32, Duration>,
    /// Number of times that a log was looked at which had anything so old.
    checked: u64,
}

impl Invariant for LogsBounded {
    fn name(&self) -> &'static str {
        "I20"
    }

    fn what(&self) -> &'static str {
        "results that others stand for do not pile up"
    }

    fn checked(&self) -> Option<u64> {
        Some(self.checked)
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let Some((store, writes)) = seen.store().filter(|(store, _)| store.failing == 0) else {
            return Ok(());
        };
        let journal = seen.cluster.journal();
        let mut written = Vec::new();
        for note in &journal[std::mem::replace(&mut self.read, journal.len())..] {
            match note.what {
                Noted::Written { is_full } => {
                    if is_full {
                        self.hindered.insert(note.node, note.at);
                    }
                    written.push(note.node);
                }
                Noted::Ready | Noted::WentOn => _ = self.hindered.insert(note.node, note.at),
                _ => {}
            }
        }
        for node in written {
            LogsBounded::check_harvest(seen, node)?;
            let Some(run) = seen.cluster.node(node).run_epoch() else {
                continue;
            };
            // What is to be written anew may have to wait until the time before is forgotten.
            let horizon = (writes.cycle() + writes.forgetting()) * 2;
            let then = seen.cluster.now().saturating_sub(horizon);
            if self
                .hindered
                .get(&node)
                .is_none_or(|hindered| *hindered > then)
            {
                continue;
            }
            let log = store.log(run, seen.cluster.peer(node));
            self.checked += u64::from(log.iter().any(|batch| batch.at < then));
            check_log(log, then, seen)
                .map_err(|story| format!("the log of node {node} has {story}"))?;
        }
        Ok(())
    }
}

impl LogsBounded {
    fn check_harvest(seen: &Seen<'_>, node: u32) -> Result<(), String> {
        let (kept, most) = seen.cluster.harvested(node);
        match kept <= most {
            true => Ok(()),
            false => Err(format!(
                "the workers of node {node} keep {kept} results, and have {most} children that they can be of"
            )),
        }
    }
}

/// Is what is older than that no more than it may be?
fn check_log(log: &[StoredBatch], then: Duration, seen: &Seen<'_>) -> Result<(), String> {
    let old = log.iter().filter(|batch| batch.at < then);
    let bytes: usize = old.clone().map(StoredBatch::passing_bytes).sum();
    // The last of the segments that began so long ago: those before it are to be gone.
    let anew = old.clone().next_back().filter(|batch| batch.segment > 0);
    let anew = anew.and_then(|last| log.iter().find(|batch| batch.segment == last.segment));
    if let Some(first) = anew.filter(|first| first.passing_bytes() > first.alive) {
        let (bytes, alive) = (first.passing_bytes(), first.alive);
        return Err(format!(
            "{bytes} bytes written anew, and {alive} were alive"
        ));
    }
    let batch = log.iter().map(StoredBatch::bytes).max().unwrap_or(0);
    let anew = anew.map_or(0, |first| {
        let is_all = first.passing_bytes() == first.alive;
        // Where the first batch had room for a part only, there was time for more results before the last.
        let since = if is_all { 0 } else { batch };
        first.bytes() - first.passing_bytes() + first.alive + since
    });
    let most = (1 + GROWTH) * anew + seen.config.store_log + batch;
    match bytes <= most {
        true => Ok(()),
        false => Err(format!(
            "{bytes} bytes from before {then:?}, and may have {most}, as {anew} were alive when it was written anew"
        )),
    }
}
