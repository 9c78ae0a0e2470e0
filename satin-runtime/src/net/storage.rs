//! The thread that talks to the store. Its calls block: only a thread that asks for a fence waits for them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::oneshot;

use super::bridge::BridgeNews;
use crate::{
    codes, data,
    fence::{FenceDesk, FenceRequest, NoFence},
    job::{Batch, BoundName, HeldValue, MainBeat, Offer, RootName, ValueBytes, ValueName},
    node::{Event, MainStep, NodeId, Peer, RunEpoch, StorageOrder},
    observe::log,
    stable::{
        StableError,
        runs::{Appended, BeginError, BeginRequest, LogName, LogWriter, RunPlace, Runs, Stays},
    },
    worker::{Gate, RootKey},
};

/// The bytes of values that are held until the results of root jobs that mention them are written, at most. Too small: such results
/// are not stored, as the values are gone by then. Too large: memory.
const MOST_HELD: usize = 256 << 20;

/// What the thread is asked to do.
enum StorageRequest {
    /// An order of the node, in the life that it lives.
    Node { me: Peer, order: StorageOrder },
    /// The run is done.
    Finish(RunFinish, oneshot::Sender<()>),
    /// The pool is over, and with it perhaps the run.
    CloseLog(oneshot::Sender<()>),
    /// A root job has a result that mentions these values: they stay until it is written.
    Hold(Vec<HeldValue>),
    /// `main` asks for a fence.
    Fence(FenceRequest),
    /// `main` does not run here any more.
    MainStopped,
}

/// The end of a run, as the node sees it that has run `main`.
pub(super) struct RunFinish {
    /// The exit code.
    pub(super) code: i32,
    /// The nodes of this side, all of which have heard of the end, or will.
    pub(super) members: Vec<NodeId>,
    /// There are other nodes, some of which may be at another side of a cut, and look into the store.
    pub(super) has_others: bool,
}

/// The node's way to the store. Dropping it lets what was ordered be done, and does not wait for that.
pub(super) struct Storage {
    requests: mpsc::Sender<StorageRequest>,
    has_run: Arc<AtomicBool>,
    _thread: JoinHandle<()>,
}

/// The parts from which the thread is made.
pub(super) struct StorageParts {
    pub(super) runs: Runs,
    pub(super) request: BeginRequest,
    /// The period of writing.
    pub(super) every: Duration,
    /// What is stored stays when the run is done.
    pub(super) keep: bool,
    pub(super) gate: Gate,
    pub(super) news: Arc<BridgeNews>,
}

impl Storage {
    pub(super) fn start(parts: StorageParts) -> std::io::Result<Storage> {
        let (requests, queue) = mpsc::channel();
        let has_run = Arc::new(AtomicBool::new(true));
        let mut desk = StorageDesk {
            parts,
            has_run: Arc::clone(&has_run),
            writer: None,
            has_failed: false,
            held: VecDeque::new(),
            main: None,
            fences: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("satin-store".into())
            // Bounds of the user's are joined here.
            .stack_size(desk.parts.gate.stack_size());
        let serve = move || {
            for request in queue {
                desk.serve(request);
            }
        };
        let thread = log::spawn(thread, serve)?;
        Ok(Storage {
            requests,
            has_run,
            _thread: thread,
        })
    }

    /// False if the run was not in the store any more when that was last looked at.
    pub(super) fn has_run(&self) -> bool {
        self.has_run.load(Ordering::Relaxed)
    }

    fn ask(&self, request: StorageRequest) {
        // The thread ends after this end of the queue.
        let _ = self.requests.send(request);
    }

    pub(super) fn order(&self, me: Peer, order: StorageOrder) {
        self.ask(StorageRequest::Node { me, order });
    }

    /// The run is done. The receiver ends when the store knows.
    pub(super) fn finish(&self, finish: RunFinish) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        self.ask(StorageRequest::Finish(finish, done));
        is_done
    }

    /// `main` does not run here any more: another node runs it.
    pub(super) fn main_stopped(&self) {
        self.ask(StorageRequest::MainStopped);
    }

    /// The way by which `main` asks for a fence.
    pub(super) fn fences(&self) -> FenceDesk {
        let requests = self.requests.clone();
        FenceDesk::new(move |request| {
            let _ = requests.send(StorageRequest::Fence(request)); // without a thread the request is dropped, and whoever waits hears of that
        })
    }

    /// Holds the values that a root job's result mentions until that is written.
    pub(super) fn hold(&self, needs: &[ValueName]) {
        if !needs.is_empty()
            && let Some(values) = data::store().hold(needs)
        {
            self.ask(StorageRequest::Hold(values));
        }
    }

    /// The pool is over. The receiver ends when nothing of this node's is left of a run that has been removed.
    pub(super) fn close_log(&self) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        self.ask(StorageRequest::CloseLog(done));
        is_done
    }
}

/// The thread's own state.
struct StorageDesk {
    parts: StorageParts,
    /// The run was in the store when that was last looked at.
    has_run: Arc<AtomicBool>,
    /// The log that is written, and whose it is.
    writer: Option<(RunEpoch, Peer, LogWriter)>,
    /// The last batch could not be written.
    has_failed: bool,
    /// The values that results of root jobs mention which are not written yet.
    held: VecDeque<HeldValue>,
    /// The `main` that this node has begun last, as master of that run, and its last sign of life.
    main: Option<(RunEpoch, MainBeat)>,
    /// Requests that wait: the latest `main` was not that of this node when they were made. With each goes how often it has been looked at.
    fences: Vec<(FenceRequest, u32)>,
}

impl StorageDesk {
    fn serve(&mut self, request: StorageRequest) {
        match request {
            StorageRequest::Node { me, order } => {
                // Bounds are joined by code of the user's, and values of a damaged store may be any.
                let failed = failed(&order);
                let answer = panic::catch_unwind(AssertUnwindSafe(|| self.obey(me, order)));
                if let Some(answer) = answer.unwrap_or(failed) {
                    self.parts.news.tell(answer);
                }
            }
            StorageRequest::Finish(finish, done) => {
                self.finish(&finish);
                let _ = done.send(()); // the network thread may be on its way out
            }
            StorageRequest::Hold(values) => self.hold(values),
            StorageRequest::Fence(request) => self.fence(request),
            StorageRequest::MainStopped => {
                self.main = None;
                self.refuse_fences(&NoFence::Later);
            }
            StorageRequest::CloseLog(done) => {
                self.close_log();
                let _ = done.send(()); // the same
            }
        }
    }

    fn obey(&mut self, me: Peer, order: StorageOrder) -> Option<Event> {
        match order {
            StorageOrder::Open {
                known,
                founder,
                alive,
            } => {
                self.parts.request.founder = founder.0;
                let opened = self.open(me, known, &alive);
                Some(opened.unwrap_or_else(|error| Event::CannotOpenRun {
                    text: codes::explained(&error),
                    is_refused: !matches!(error, BeginError::Store(_)),
                }))
            }
            StorageOrder::LookAtMain { run, and } => {
                let seen = self.look_at_main(me, run, and);
                self.note_run(run, seen.as_ref().err());
                match seen {
                    Ok(seen) => {
                        if !matches!(seen, Event::MainSeen { .. }) {
                            self.refuse_fences(&NoFence::Later);
                        }
                        Some(seen)
                    }
                    Err(error) => {
                        tracing::debug!("no look at the run {}: {error}", run.run);
                        self.refuse_fences(&NoFence::Store(error.to_string()));
                        Some(Event::NoLook)
                    }
                }
            }
            StorageOrder::Write {
                number,
                run,
                batch,
                begins,
            } => {
                let written = self.write(me, run, batch, begins);
                self.has_failed = written.is_err();
                Some(match written {
                    Ok(Appended { segment, bytes, .. }) => Event::Written {
                        number,
                        segment,
                        bytes,
                    },
                    Err(error) => Event::NotWritten {
                        number,
                        text: error.to_string(),
                    },
                })
            }
            StorageOrder::Forget(segment) => {
                if let Some((_, _, writer)) = &mut self.writer
                    && let Err(error) = writer.forget_before(segment)
                {
                    tracing::debug!("old segments stay in the store: {error}");
                }
                None
            }
            StorageOrder::ReadLog { run, peer } => {
                let place = self.place(run);
                let is_of_process = |log: &LogName| is_of_process(log, &peer);
                let batch = self.load(&place, &is_of_process).unwrap_or_else(|error| {
                    tracing::warn!("what a dead node had stored cannot be read: {error}");
                    Batch::default()
                });
                Some(Event::LogRead { peer, batch })
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
        me: Peer,
        known: Option<RunEpoch>,
        alive: &[Peer],
    ) -> Result<Event, BeginError> {
        let run = match known {
            Some(run) => run,
            None => self.begin()?,
        };
        let place = self.place(run);
        if known.is_some() {
            if let Some(code) = self.parts.runs.end(&place)? {
                return Ok(Event::RunIsOver(code));
            }
            // Of a run that was removed nothing comes back.
            let epoch = self.parts.runs.epoch(&place);
            self.note_run(run, epoch.as_ref().err());
            epoch?;
        }
        self.begin_main(me, run)?;
        let is_gone = |log: &LogName| {
            log.epoch != run.epoch || !alive.iter().any(|peer| is_of_process(log, peer))
        };
        let batch = self.load(&place, &is_gone)?;
        if known.is_none() && run.epoch > 0 {
            tracing::warn!(
                "goes on with run {} (start {}): {} results are in the store; done again: what was under way, and {}",
                run.run,
                run.epoch + 1,
                batch.facts.len(),
                match self.parts.every {
                    Duration::ZERO => "what each worker did since the last write".to_owned(),
                    every => format!("of each worker at most its last {every:?}"),
                },
            );
        }
        Ok(Event::RunOpened { run, batch })
    }

    /// From now on the `main` of this node is the latest.
    fn begin_main(&mut self, me: Peer, run: RunEpoch) -> Result<(), StableError> {
        let (place, by) = (self.place(run), me.id.0);
        let begun = self.parts.runs.begin_main(&place, run.epoch, by)?;
        self.main = Some((run, begun));
        Ok(())
    }

    /// Looks which `main` of the run is the latest.
    fn look_at_main(
        &mut self,
        me: Peer,
        run: RunEpoch,
        step: MainStep,
    ) -> Result<Event, StableError> {
        let place = self.place(run);
        if let Some(code) = self.parts.runs.end(&place)? {
            return Ok(Event::RunIsOver(code));
        }
        if let Some(epoch) = self.later_epoch(run)? {
            return Ok(Event::Superseded(epoch));
        }
        if step == MainStep::BeLatest {
            self.begin_main(me, run)?;
        }
        let latest = self.parts.runs.latest_main(&place)?;
        let is_own = self.is_own(latest);
        if step == MainStep::GoOn
            && is_own
            && let Some((_, main)) = &mut self.main
        {
            self.parts.runs.beat(&place, main)?;
        }
        self.answer_fences(is_own);
        Ok(Event::MainSeen { latest, is_own })
    }

    /// Is the latest `main` that of this node?
    fn is_own(&self, latest: Option<MainBeat>) -> bool {
        let own = self.main.map(|(_, main)| main.number);
        own.is_some() && own == latest.map(|latest| latest.number)
    }

    fn fence(&mut self, request: FenceRequest) {
        let Some((run, _)) = self.main else {
            return request.answer(Err(NoFence::NotMain));
        };
        let latest = self.parts.runs.latest_main(&self.place(run));
        self.fences.push((request, 0));
        match latest {
            Ok(latest) => self.answer_fences(self.is_own(latest)),
            Err(error) => self.refuse_fences(&NoFence::Store(error.to_string())),
        }
    }

    fn refuse_fences(&mut self, why: &NoFence) {
        for (request, _) in self.fences.drain(..) {
            request.answer(Err(why.clone()));
        }
    }

    /// Answers those who have asked for a fence. If the latest `main` is not that of this node they wait until that has been looked at twice: its
    /// side may just have come over.
    fn answer_fences(&mut self, is_own: bool) {
        for (request, looks) in std::mem::take(&mut self.fences) {
            match self.main {
                Some((run, main)) if is_own => request.answer(Ok((run.run, main.number))),
                _ if looks < 2 => self.fences.push((request, looks + 1)),
                _ => request.answer(Err(NoFence::Later)),
            }
        }
    }

    fn begin(&self) -> Result<RunEpoch, BeginError> {
        let begun = self.parts.runs.begin(&self.parts.request)?;
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
        let mut batch = loaded.batch;
        batch.offers = best_of(batch.offers);
        self.keep_values(&mut batch);
        Ok(batch)
    }

    /// Keeps the values of what was loaded as long as the root jobs are not over whose results mention them.
    fn keep_values(&self, batch: &mut Batch) {
        let pool = self.parts.gate.number();
        let mut mentioned: BTreeMap<ValueName, BTreeSet<RootName>> = BTreeMap::new();
        for fact in &batch.facts {
            for value in fact.needs() {
                let roots = mentioned.entry(*value).or_default();
                roots.insert(fact.saved.root_name());
            }
        }
        for ValueBytes { name, bytes } in batch.values.drain(..) {
            let roots = mentioned.remove(&name).unwrap_or_default().into_iter();
            let roots = roots.map(|name| RootKey { pool, name });
            if !data::store().put(name, bytes, roots) {
                tracing::warn!(
                    "the shared value {name:?} in the store is damaged: what mentions it is done again"
                );
                batch.facts.retain(|fact| !fact.needs().contains(&name));
            }
        }
    }

    fn write(
        &mut self,
        me: Peer,
        run: RunEpoch,
        batch: Batch,
        begins: bool,
    ) -> Result<Appended, StableError> {
        let is_it = |(of, life, _): &(RunEpoch, Peer, LogWriter)| (*of, *life) == (run, me);
        let is_new = !self.writer.as_ref().is_some_and(is_it);
        let place = self.place(run);
        if is_new || self.has_failed {
            // A run that is done may have been removed: its files do not come back. Nor do those of a store that was moved.
            let epoch = self.parts.runs.epoch(&place);
            self.note_run(run, epoch.as_ref().err());
            epoch?;
        }
        if is_new {
            let log = LogName {
                epoch: run.epoch,
                node: me.id.0,
                generation: me.generation,
            };
            self.writer = Some((run, me, self.parts.runs.writer(&place, log)));
        }
        let Some((_, _, writer)) = &mut self.writer else {
            unreachable!("it has just been made");
        };
        if begins {
            writer.next_segment();
        }
        let value = |name| Some(data::store().read(name, 0, u64::MAX)?.0);
        let appended = writer.append_with(batch, &value)?;
        if appended.roots_left_out > 0 {
            tracing::warn!(
                "the result of a root job is not stored, as shared values that it mentions are gone: it is done again if all nodes die"
            );
        }
        if appended.left_out > 0 {
            // Mostly parts of a result that comes with the next batch.
            let results = appended.left_out;
            tracing::debug!(
                results,
                "not stored: shared values that they mention are gone"
            );
        }
        self.held.retain(|value| !writer.has_lasting(value.name()));
        Ok(appended)
    }

    fn hold(&mut self, values: Vec<HeldValue>) {
        self.held.extend(values);
        let mut bytes: usize = self.held.iter().map(HeldValue::size).sum();
        while bytes > MOST_HELD
            && let Some(value) = self.held.pop_front()
        {
            bytes -= value.size();
        }
    }

    /// The store has been asked for the run. Says so once if the run is not there any more, or there again.
    fn note_run(&self, RunEpoch { run, .. }: RunEpoch, failed: Option<&StableError>) {
        let has_run = match failed {
            None => true,
            Some(StableError::Missing(_)) => false,
            Some(_) => return, // that says nothing of the run
        };
        match (self.has_run.swap(has_run, Ordering::Relaxed), has_run) {
            (true, false) => tracing::warn!(
                "the run {run} is not in the store any more: its files were removed, or the store was removed or moved. Nothing more is \
                 stored until they are back; if all nodes die before, the run begins anew"
            ),
            (false, true) => tracing::warn!("the run {run} is in the store again"),
            _ => {}
        }
    }

    fn later_epoch(&self, run: RunEpoch) -> Result<Option<u32>, StableError> {
        let founder = self.parts.request.founder;
        let runs = &self.parts.runs;
        runs.later_epoch(&self.place(run), run.epoch, founder)
    }

    fn finish(&mut self, finish: &RunFinish) {
        let opened = self.main.map(|(run, _)| run);
        let written = self.writer.as_ref().map(|(run, ..)| *run);
        if let Some(run) = opened.or(written) {
            self.finish_run(run, finish);
        }
        // After a partition this pool may have gone on with the run of the other part.
        if let Some(run) = written.filter(|run| opened.is_some_and(|opened| opened.run != run.run))
        {
            match self.parts.runs.is_removed(&self.place(run)) {
                Ok(true) => self.close_log(), // the other part is over too
                _ => self.finish_run(run, finish),
            }
        }
    }

    fn finish_run(&mut self, run: RunEpoch, finish: &RunFinish) {
        let place = self.place(run);
        let name = run.run;
        match self.is_needed(run, &finish.members) {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!(
                    "the run {name} stays in the store: another start of it, or a later `main` at another side of a cut, goes on with it"
                );
                return;
            }
            // A store that was moved has no run either.
            Err(StableError::Missing(_)) => {
                tracing::warn!(
                    "the end of the run {name} is not noted, as the run is not in the store: it may be resumed if its files come back"
                );
                return self.close_log();
            }
            Err(error) => {
                tracing::warn!("the run {name} stays in the store, and may be resumed: {error}");
                return self.close_log();
            }
        }
        self.writer.take_if(|(written, ..)| *written == run);
        let stays = match finish.has_others {
            _ if self.parts.keep => Stays::All,
            true => Stays::Note,
            false => Stays::Nothing,
        };
        if let Err(error) = self.parts.runs.finish(&place, finish.code, stays) {
            tracing::warn!("the run {name}: {error}");
        }
    }

    /// Does another pool go on with that run, or a later `main` of this one at another side of a cut?
    fn is_needed(&self, run: RunEpoch, members: &[NodeId]) -> Result<bool, StableError> {
        if self.later_epoch(run)?.is_some() {
            return Ok(true);
        }
        let latest = self.parts.runs.latest_main(&self.place(run))?;
        let is_here = |latest: MainBeat| members.contains(&NodeId(latest.by));
        Ok(!self.is_own(latest) && !latest.is_none_or(is_here))
    }

    /// The pool is over. If its run has been removed, what this node was writing meanwhile goes too.
    fn close_log(&mut self) {
        let Some((run, _, mut writer)) = self.writer.take() else {
            return;
        };
        let is_removed = self.parts.runs.is_removed(&self.place(run));
        if is_removed.is_ok_and(|is_removed| is_removed)
            && let Err(error) = writer.forget_all()
        {
            tracing::debug!("segments of a removed run stay in the store: {error}");
        }
    }
}

/// The answer to an order in which user code has panicked.
fn failed(order: &StorageOrder) -> Option<Event> {
    let text = "code of the program panicked while bounds were joined";
    match order {
        StorageOrder::Open { .. } => Some(Event::CannotOpenRun {
            text: text.into(),
            is_refused: false,
        }),
        StorageOrder::Write { number, .. } => Some(Event::NotWritten {
            number: *number,
            text: text.into(),
        }),
        StorageOrder::LookAtMain { .. } => Some(Event::NoLook),
        StorageOrder::Forget(_) => None,
        StorageOrder::ReadLog { peer, .. } => Some(Event::LogRead {
            peer: *peer,
            batch: Batch::default(),
        }),
    }
}

/// Was that log written by the process of this life? A process keeps what it had in earlier lives.
fn is_of_process(log: &LogName, life: &Peer) -> bool {
    log.node == life.id.0 && log.generation <= life.generation
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
