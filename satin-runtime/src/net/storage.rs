//! The thread that talks to the store: calls of a store block, and no other thread waits for them.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::bridge::BridgeNews;
use crate::{
    data,
    job::{Batch, BoundName, Offer, RootName},
    node::{Event, Peer, RunEpoch, StorageOrder},
    stable::{
        StableError,
        runs::{BeginRequest, LogName, LogWriter, RunPlace, Runs},
    },
    worker::Gate,
};

/// Between two looks of a master whether another pool goes on with its run. Too short: a store is asked for nothing. Too
/// long: two pools do the same work.
const LOOK: Duration = Duration::from_secs(1);

/// What the thread is asked to do.
enum Request {
    /// An order of the node, in the life that it lives and perhaps as master.
    Node {
        me: Peer,
        is_master: bool,
        order: StorageOrder,
    },
    /// The run is done, with that exit code.
    Finish(i32, oneshot::Sender<()>),
}

/// The node's way to the store. Dropping it lets what was ordered be done, and does not wait for that.
pub(super) struct Storage {
    requests: mpsc::Sender<Request>,
    _thread: JoinHandle<()>,
}

/// The parts from which the thread is made.
pub(super) struct StorageParts {
    pub(super) runs: Runs,
    pub(super) request: BeginRequest,
    /// What is stored stays when the run is done.
    pub(super) keep: bool,
    pub(super) gate: Gate,
    pub(super) news: Arc<BridgeNews>,
}

impl Storage {
    pub(super) fn start(parts: StorageParts) -> std::io::Result<Storage> {
        let (requests, queue) = mpsc::channel();
        let mut desk = Desk {
            parts,
            writer: None,
            looked: None,
        };
        let thread = std::thread::Builder::new()
            .name("satin-store".into())
            // Bounds of the user's are joined here.
            .stack_size(desk.parts.gate.stack_size())
            .spawn(move || {
                while let Ok(request) = queue.recv() {
                    desk.serve(request);
                }
            })?;
        Ok(Storage {
            requests,
            _thread: thread,
        })
    }

    fn ask(&self, request: Request) {
        // If the thread has panicked, the node goes on without a store.
        let _ = self.requests.send(request);
    }

    pub(super) fn order(&self, me: Peer, is_master: bool, order: StorageOrder) {
        self.ask(Request::Node {
            me,
            is_master,
            order,
        });
    }

    /// The run is done, with that exit code. The receiver ends when the store knows.
    pub(super) fn finish(&self, code: i32) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        self.ask(Request::Finish(code, done));
        is_done
    }
}

/// The thread's own state.
struct Desk {
    parts: StorageParts,
    /// The log that is written, and whose it is.
    writer: Option<(RunEpoch, Peer, LogWriter)>,
    /// The run of this node as master, and when it was looked for a later epoch.
    looked: Option<(RunEpoch, Instant)>,
}

impl Desk {
    fn serve(&mut self, request: Request) {
        match request {
            Request::Node {
                me,
                is_master,
                order,
            } => self.obey(me, is_master, order),
            Request::Finish(code, done) => {
                self.finish(code);
                let _ = done.send(()); // the network thread may be on its way out
            }
        }
    }

    fn obey(&mut self, me: Peer, is_master: bool, order: StorageOrder) {
        match order {
            StorageOrder::Open {
                known,
                founder,
                alive,
            } => {
                self.parts.request.founder = founder.0;
                let opened = self.open(known, &alive);
                self.parts.news.tell(match opened {
                    Ok((run, batch)) => Event::RunOpened { run, batch },
                    Err(text) => Event::CannotOpenRun(text),
                });
            }
            StorageOrder::Write {
                number,
                run,
                batch,
                begins,
            } => {
                let written = self.write(me, run, &batch, begins);
                self.parts.news.tell(match written {
                    Ok(segment) => Event::Written { number, segment },
                    Err(error) => Event::NotWritten {
                        number,
                        text: error.to_string(),
                    },
                });
                if is_master {
                    self.look(run);
                }
            }
            StorageOrder::Forget(segment) => {
                if let Some((_, _, writer)) = &mut self.writer
                    && let Err(error) = writer.forget_before(segment)
                {
                    tracing::debug!("old segments stay in the store: {error}");
                }
            }
            StorageOrder::ReadLog { run, peer } => {
                let place = self.place(run);
                let is_of_life =
                    |log: &LogName| log.node == peer.id.0 && log.generation == peer.generation;
                let batch = self.load(&place, &is_of_life).unwrap_or_else(|error| {
                    tracing::warn!("what a dead node had stored cannot be read: {error}");
                    Batch::default()
                });
                self.parts.news.tell(Event::LogRead { peer, batch });
            }
        }
    }

    fn place(&self, run: RunEpoch) -> RunPlace {
        RunPlace {
            pool: self.parts.request.pool.clone(),
            run: run.run,
        }
    }

    /// Finds the run, or begins one, and loads what no live node has.
    fn open(
        &mut self,
        known: Option<RunEpoch>,
        alive: &[Peer],
    ) -> Result<(RunEpoch, Batch), String> {
        let run = match known {
            Some(run) => run,
            None => self.begin()?,
        };
        self.looked = Some((run, Instant::now()));
        let place = self.place(run);
        let is_gone = |log: &LogName| {
            let is_it = |peer: &Peer| peer.id.0 == log.node && peer.generation == log.generation;
            log.epoch != run.epoch || !alive.iter().any(is_it)
        };
        let batch = self
            .load(&place, &is_gone)
            .map_err(|error| format!("the run {} cannot be loaded: {error}", run.run))?;
        if known.is_none() && run.epoch > 0 {
            let took: Duration = batch.facts.iter().map(|fact| fact.took).sum();
            tracing::warn!(
                "goes on with run {} (start {}): {} results, which took {:.1} s of a worker, are in the store",
                run.run,
                run.epoch + 1,
                batch.facts.len(),
                took.as_secs_f64(),
            );
        }
        Ok((run, batch))
    }

    fn begin(&self) -> Result<RunEpoch, String> {
        let begun = self.parts.runs.begin(&self.parts.request);
        let begun = begun.map_err(|error| error.to_string())?;
        for remark in &begun.remarks {
            tracing::warn!("begins a new run: {remark}");
        }
        if begun.epoch > 0 {
            // Before `main` begins: its root jobs are to look themselves up.
            self.parts.gate.resume_main();
        }
        Ok(RunEpoch {
            run: begun.place.run,
            epoch: begun.epoch,
        })
    }

    fn load(
        &self,
        place: &RunPlace,
        wanted: &dyn Fn(&LogName) -> bool,
    ) -> Result<Batch, StableError> {
        let loaded = self.parts.runs.load(place, wanted)?;
        for segment in &loaded.torn {
            tracing::info!("{segment} ends early: a node died while it wrote");
        }
        let Batch { offers, facts } = loaded.batch;
        let offers = best_of(offers);
        Ok(Batch { offers, facts })
    }

    fn write(
        &mut self,
        me: Peer,
        run: RunEpoch,
        batch: &Batch,
        begins: bool,
    ) -> Result<u32, StableError> {
        let is_it = |(of, life, _): &(RunEpoch, Peer, LogWriter)| (*of, *life) == (run, me);
        if !self.writer.as_ref().is_some_and(is_it) {
            let place = self.place(run);
            // A run that is done may have been removed: its files do not come back.
            self.parts.runs.epoch(&place)?;
            let log = LogName {
                epoch: run.epoch,
                node: me.id.0,
                generation: me.generation,
            };
            self.writer = Some((run, me, self.parts.runs.writer(&place, log)));
        }
        let Some((_, _, writer)) = &mut self.writer else {
            return Ok(0);
        };
        if begins {
            writer.next_segment();
        }
        writer.append(batch)?;
        Ok(writer.segment())
    }

    /// Looks now and then whether another pool goes on with the run.
    fn look(&mut self, run: RunEpoch) {
        let is_due = |(of, at): (RunEpoch, Instant)| of != run || at.elapsed() >= LOOK;
        if !self.looked.is_none_or(is_due) {
            return;
        }
        self.looked = Some((run, Instant::now()));
        if let Some(epoch) = self.later_epoch(run) {
            self.parts.news.tell(Event::Superseded(epoch));
        }
    }

    fn later_epoch(&self, run: RunEpoch) -> Option<u32> {
        let epoch = self.parts.runs.epoch(&self.place(run)).ok()?;
        (epoch > run.epoch).then_some(epoch)
    }

    fn finish(&mut self, code: i32) {
        let Some((run, _)) = self.looked else {
            return;
        };
        if self.later_epoch(run).is_some() {
            return; // it is another pool's by now
        }
        self.writer = None;
        let place = self.place(run);
        if let Err(error) = self.parts.runs.finish(&place, code, self.parts.keep) {
            tracing::warn!("the run {} stays in the store: {error}", run.run);
        }
    }
}

/// The join of all offers for each bound.
fn best_of(offers: Vec<Offer>) -> Vec<Offer> {
    let mut best: BTreeMap<(RootName, BoundName), Vec<u8>> = BTreeMap::new();
    for offer in offers {
        let place = best.entry((offer.root, offer.bound));
        let have = place.or_insert_with(|| offer.value.clone());
        if let Some(better) = data::join(offer.bound, have, &offer.value) {
            *have = better;
        }
    }
    let offers = best
        .into_iter()
        .map(|((root, bound), value)| Offer { bound, root, value });
    offers.collect()
}
