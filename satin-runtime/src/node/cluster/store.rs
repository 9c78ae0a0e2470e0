//! An imaginary store, which outlives all nodes of a cluster.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::Duration,
};

use rand::RngExt;

use super::super::{Event, MainStep, NodeId, Peer, RunEpoch, StorageOrder};
use super::{
    Cluster, Happening, Noted, Shape,
    bounds::{BEST, Smallest},
};
use crate::job::{
    Answer, Batch, Fingerprint, JobId, JobName, MainBeat, MainNumber, RunName, Saved, StoredFact,
};

/// A store that a cluster's nodes use.
#[derive(Clone, Debug)]
pub struct ImaginaryStore {
    /// The time between an order and its effect; and as long again until the node hears of it.
    pub latency: Duration,
    /// So many writes of a hundred fail; of these every second is done all the same.
    pub failing: u32,
    /// The store takes orders, does nothing, and never answers.
    pub is_silent: bool,
    /// The nodes that do not reach it: their orders fail.
    pub hidden_from: BTreeSet<u32>,
    /// Some did not reach it for a while.
    pub was_hidden: bool,
    runs: BTreeMap<RunName, ImaginaryRun>,
    /// A `main` that has begun while another went on.
    begun_beside: Option<String>,
    /// The jobs whose results it has, with their number.
    jobs: BTreeMap<JobName, u32>,
}

#[derive(Clone, Default, Debug)]
struct ImaginaryRun {
    /// The last epoch, and the pool that began it.
    epoch: u32,
    founder: Option<NodeId>,
    /// The exit code, once it is done.
    done: Option<i32>,
    latest_main: Option<MainBeat>,
    /// When that began, when it was last heard of, and the branches of its side when it began.
    began_at: Duration,
    beat_at: Duration,
    branches: u32,
    logs: BTreeMap<(u32, Peer), Vec<StoredBatch>>,
}

/// A batch in a log.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    /// The segment of the log that it stands in.
    pub segment: u32,
    /// The time at which it came to the store.
    pub at: Duration,
    /// Bytes of results that the writer had when it wrote this, those of root jobs left out.
    pub alive: usize,
    batch: Batch,
}

impl StoredBatch {
    /// Bytes of its results and bounds, as a node counts them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let facts = self.batch.facts.iter().map(|fact| fact.saved.size());
        let offers = self.batch.offers.iter().map(|offer| offer.value.len());
        facts.sum::<usize>() + offers.sum::<usize>()
    }

    /// Bytes of the results that are not those of root jobs.
    #[must_use]
    pub fn passing_bytes(&self) -> usize {
        let facts = self.batch.facts.iter().map(|fact| &fact.saved);
        let passing = facts.filter(|saved| !saved.name.id.is_root_job());
        passing.map(Saved::size).sum()
    }
}

impl ImaginaryStore {
    /// An empty store.
    #[must_use]
    pub fn new(latency: Duration) -> ImaginaryStore {
        ImaginaryStore {
            latency,
            failing: 0,
            is_silent: false,
            hidden_from: BTreeSet::new(),
            was_hidden: false,
            runs: BTreeMap::new(),
            begun_beside: None,
            jobs: BTreeMap::new(),
        }
    }

    /// Number of runs that are not done.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.runs.values().filter(|run| run.done.is_none()).count()
    }

    /// A `main` that has begun while the store saw another side's go on, if there was one.
    #[must_use]
    pub fn begun_beside(&self) -> Option<&str> {
        self.begun_beside.as_deref()
    }

    /// The node that has begun the latest `main` of any run.
    #[must_use]
    pub fn latest_main(&self) -> Option<NodeId> {
        let mains = self.runs.values().filter_map(|run| run.latest_main);
        mains
            .max_by_key(|main| main.number)
            .map(|main| NodeId(main.by))
    }

    /// Number of results that the store has.
    #[must_use]
    pub fn facts(&self) -> usize {
        let logs = self.runs.values().flat_map(|run| run.logs.values());
        logs.flatten().map(|stored| stored.batch.facts.len()).sum()
    }

    fn open(&mut self, known: Option<RunEpoch>, founder: NodeId, alive: &[Peer]) -> Event {
        let run = known.unwrap_or_else(|| {
            let mut latest = self.runs.iter().rev();
            match latest.find(|(_, run)| run.done.is_none()) {
                Some((name, run)) => RunEpoch {
                    epoch: run.epoch + u32::from(run.founder != Some(founder)),
                    run: *name,
                },
                None => RunEpoch {
                    epoch: 0,
                    run: RunName(self.runs.len() as u64),
                },
            }
        });
        let stored = self.runs.entry(run.run).or_default();
        if known.is_none() {
            (stored.epoch, stored.founder) = (run.epoch, Some(founder));
        }
        if let Some(code) = stored.done {
            return Event::RunIsOver(code);
        }
        let batch = stored.load(|epoch, peer| epoch != run.epoch || !alive.contains(&peer));
        Event::RunOpened { run, batch }
    }

    /// Number of runs that are done.
    #[must_use]
    pub fn finished(&self) -> usize {
        self.runs.len() - self.unfinished()
    }

    /// True if it has a result under that id, or above it.
    #[must_use]
    pub fn covers(&self, job: &JobId) -> bool {
        let mut at = job.clone();
        loop {
            let from = JobName::new(at.clone(), Fingerprint(0));
            let next = self.jobs.range(from..).next();
            if next.is_some_and(|(name, _)| name.id == at) {
                return true;
            }
            if at.pop().is_none() {
                return false;
            }
        }
    }

    /// The jobs whose results it has.
    pub fn jobs(&self) -> impl Iterator<Item = &JobName> {
        self.jobs.keys()
    }

    /// The log of a life.
    #[must_use]
    pub fn log(&self, run: RunEpoch, writer: Peer) -> &[StoredBatch] {
        let run_log = |stored: &'_ ImaginaryRun| stored.logs.contains_key(&(run.epoch, writer));
        let stored = self.runs.get(&run.run).filter(|stored| run_log(stored));
        stored.map_or(&[], |stored| &stored.logs[&(run.epoch, writer)])
    }

    fn write(&mut self, run: RunEpoch, writer: Peer, mut stored: StoredBatch, begins: bool) -> u32 {
        for fact in &stored.batch.facts {
            *self.jobs.entry(fact.saved.name.clone()).or_default() += 1;
        }
        let log = self.runs.entry(run.run).or_default();
        let log = log.logs.entry((run.epoch, writer)).or_default();
        let last = log.last().map_or(0, |stored| stored.segment);
        stored.segment = last + u32::from(begins);
        let segment = stored.segment;
        log.push(stored);
        segment
    }

    /// What a life has written is forgotten before that segment, except results of root jobs.
    fn forget(&mut self, writer: Peer, segment: u32) {
        for run in self.runs.values_mut() {
            for ((_, peer), log) in &mut run.logs {
                if *peer == writer {
                    forget_before(log, segment, &mut self.jobs);
                }
            }
        }
    }
}

impl ImaginaryRun {
    /// Begins the next `main`.
    fn begin_main(&mut self, epoch: u32, by: NodeId, now: Duration) -> MainBeat {
        (self.began_at, self.beat_at) = (now, now);
        let latest = self.latest_main.map(|latest| latest.number);
        let main = latest
            .filter(|latest| latest.epoch == epoch)
            .map_or(0, |latest| latest.main + 1);
        let begun = MainBeat {
            number: MainNumber { epoch, main },
            beat: 0,
            by: by.0,
        };
        *self.latest_main.insert(begun)
    }

    fn look_at_main(
        &mut self,
        run: RunEpoch,
        me: NodeId,
        step: MainStep,
        begun: &mut Option<MainBeat>,
        (now, beat): (Duration, Duration),
    ) -> Event {
        if let Some(code) = self.done {
            return Event::RunIsOver(code);
        }
        if step != MainStep::Wait && self.epoch > run.epoch {
            return Event::Superseded(self.epoch);
        }
        if step == MainStep::BeLatest {
            *begun = Some(self.begin_main(run.epoch, me, now));
        }
        let number = |main: &MainBeat| main.number;
        let is_own =
            begun.is_some() && begun.as_ref().map(number) == self.latest_main.as_ref().map(number);
        let latest = self.latest_main;
        if step == MainStep::GoOn && is_own {
            (self.latest_main.as_mut()).expect("it is the own").beat += 1;
            // A node that was stopped for long, and goes on, is as one that begins.
            if now > self.beat_at + 3 * beat {
                self.began_at = now;
            }
            self.beat_at = now;
        }
        Event::MainSeen { latest, is_own }
    }

    /// What stands in these logs.
    fn load(&self, wanted: impl Fn(u32, Peer) -> bool) -> Batch {
        let logs = self.logs.iter();
        let logs = logs.filter(|((epoch, peer), _)| wanted(*epoch, *peer));
        let mut all = Batch::default();
        let mut facts: BTreeMap<_, StoredFact> = BTreeMap::new();
        for stored in logs.flat_map(|(_, log)| log) {
            all.offers.extend(stored.batch.offers.iter().cloned());
            for fact in &stored.batch.facts {
                facts.insert(fact.saved.name.clone(), fact.clone());
            }
        }
        all.facts = facts.into_values().collect();
        all
    }
}

/// Forgets what stands in earlier segments, except results of root jobs.
fn forget_before(log: &mut Vec<StoredBatch>, segment: u32, jobs: &mut BTreeMap<JobName, u32>) {
    for stored in log.iter_mut().filter(|stored| stored.segment < segment) {
        let gone = stored.batch.facts.iter().map(|fact| &fact.saved.name);
        for job in gone.filter(|job| !job.id.is_root_job()) {
            if let Entry::Occupied(mut count) = jobs.entry(job.clone()) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        (stored.batch, _) = std::mem::take(&mut stored.batch).apart();
    }
    // What begins a segment may be empty, and stays.
    log.retain(|stored| stored.segment >= segment || !stored.batch.is_empty());
}

impl Cluster {
    /// The store, if the cluster has one.
    #[must_use]
    pub fn store(&self) -> Option<&ImaginaryStore> {
        self.store.as_ref()
    }

    /// Gives the cluster a store, or changes it.
    pub fn set_store(&mut self, store: ImaginaryStore) {
        self.store = Some(store);
    }

    /// The store, to be changed: faults of its begin and end.
    pub fn store_mut(&mut self) -> Option<&mut ImaginaryStore> {
        self.store.as_mut()
    }

    /// A node's process orders something from the store.
    pub(super) fn order(&mut self, node: u32, order: StorageOrder) {
        if let Some(store) = &self.store
            && !store.is_silent
        {
            let at = self.now + store.latency;
            let alive = match &order {
                StorageOrder::Write { .. } => self.alive_bytes(node),
                _ => 0,
            };
            let life = self.peer(node);
            let order = Box::new(order);
            let is_full = self.slot(node).node.writes_full_batch();
            let ordered = Happening::Ordered {
                node,
                life,
                order,
                alive,
                is_full,
            };
            self.schedule(at, ordered);
        }
    }

    /// Bytes of the results that a node has, those of root jobs left out.
    fn alive_bytes(&self, node: u32) -> usize {
        let slot = self.slot(node);
        let kept = slot.node.kept_results().into_iter();
        let kept = kept.filter(|saved| !saved.name.id.is_root_job());
        slot.workers.harvested_bytes() + kept.map(|saved| saved.size()).sum::<usize>()
    }

    /// The order of that life of a node has come to the store. What it does then is durable, though the node may die before it hears.
    pub(super) fn obey(
        &mut self,
        node: u32,
        me: Peer,
        order: StorageOrder,
        alive: usize,
        is_full: bool,
    ) {
        let dice = self.rng.random_range(0..200);
        let Some(store) = self.store.as_mut().filter(|store| !store.is_silent) else {
            return;
        };
        let mut answers = Vec::new();
        let is_hidden = store.hidden_from.contains(&node);
        let fails = is_hidden || dice / 2 < store.failing;
        match order {
            StorageOrder::Open {
                known,
                founder,
                alive,
            } => {
                // A node that was cut off before it heard of the run has nothing to look at.
                let is_known = known.is_some();
                // A founder that finds no store ends its pool: a user would start it again.
                let opened = match fails && founder != me.id {
                    true => Event::CannotOpenRun {
                        text: "the store is away".into(),
                        is_refused: false,
                    },
                    false => store.open(known, founder, &alive),
                };
                if let Event::RunOpened { run, .. } = &opened {
                    let slot = &mut self.slots[node as usize];
                    slot.workers.resumed |= run.epoch > 0;
                    slot.opened = Some(*run);
                    let stored = store.runs.entry(run.run).or_default();
                    let branches = slot.node.side().branches;
                    let beat = slot.node.beat_time();
                    let goes_on = stored.latest_main.filter(|latest| {
                        let is_recent = self.now < stored.beat_at + beat;
                        // Two sides that begin one at the same moment cannot know of each other.
                        let seen = stored.began_at + 2 * (beat + store.latency);
                        let is_seen = is_recent && seen < self.now;
                        latest.by != me.id.0 && latest.number.epoch == run.epoch && is_seen
                    });
                    if let Some(latest) = goes_on
                        && is_known
                        && branches > stored.branches
                        && store.failing == 0
                        && !store.was_hidden
                        && slot
                            .leaderless
                            .is_some_and(|since| since + 4 * beat < self.now)
                    {
                        store.begun_beside.get_or_insert_with(|| {
                            format!("node {node} begins `main` at another side of a cut, although {latest:?} goes on")
                        });
                    }
                    stored.branches = branches;
                    slot.begun_main = Some(stored.begin_main(run.epoch, me.id, self.now));
                }
                answers.push(opened);
            }
            StorageOrder::LookAtMain { run, and } => {
                let stored = store.runs.entry(run.run).or_default();
                let slot = &mut self.slots[node as usize];
                let beat = slot.node.beat_time();
                let begun = &mut slot.begun_main;
                answers.push(match fails {
                    true => Event::NoLook,
                    false => stored.look_at_main(run, me.id, and, begun, (self.now, beat)),
                });
            }
            StorageOrder::Write {
                number,
                run,
                batch,
                begins,
            } => {
                // What is written while a run is removed is removed by its writer.
                let is_removed = (store.runs.get(&run.run)).is_some_and(|run| run.done.is_some());
                let fails = fails || is_removed;
                if !is_removed && !is_hidden && (!fails || dice % 2 == 0) {
                    let copy = batch.clone();
                    let stored = StoredBatch {
                        segment: 0,
                        at: self.now,
                        alive,
                        batch,
                    };
                    let segment = store.write(run, me, stored, begins);
                    answers.push(Event::Written {
                        number,
                        segment,
                        bytes: 0,
                    });
                    let later = store.runs[&run.run].epoch;
                    if later > run.epoch {
                        answers.push(Event::Superseded(later));
                    }
                    self.check_written(run, &copy);
                    self.note(node, Noted::Written { is_full });
                }
                if fails {
                    let text = "the disk is full".into();
                    answers = vec![Event::NotWritten { number, text }];
                }
            }
            StorageOrder::Forget(_) if is_hidden => {}
            StorageOrder::Forget(segment) => {
                store.forget(me, segment);
                self.note(node, Noted::Forgot);
            }
            StorageOrder::ReadLog { run, peer } => {
                let run = store.runs.get(&run.run).filter(|_| !is_hidden);
                let batch = run.map(|run| run.load(|_, writer| writer == peer));
                answers.push(Event::LogRead {
                    peer,
                    batch: batch.unwrap_or_default(),
                });
            }
        }
        let at = self.now
            + self
                .store
                .as_ref()
                .map_or(Duration::ZERO, |store| store.latency);
        for answer in answers {
            let answer = Box::new(answer);
            self.schedule(at, Happening::Stored { node, answer });
        }
    }

    /// `main` came to its end at that node: the run is done, unless another pool goes on with it, or a later `main` at another side of a cut.
    pub(super) fn finish_run(&mut self, node: u32, run: RunEpoch, code: i32) {
        let slot = &self.slots[node as usize];
        let members = slot.node.view().members();
        let members: Vec<u128> = members.map(|member| member.peer.id.0).collect();
        if let Some(store) = &mut self.store
            && let Some(stored) = store.runs.get_mut(&run.run)
            && stored.epoch == run.epoch
            && stored
                .latest_main
                .is_none_or(|latest| members.contains(&latest.by))
        {
            stored.done = Some(code);
            stored.logs.clear();
            store.jobs.clear();
        }
    }

    /// Is each result of a batch what its program computes, and does the best stand beside it that its leaves have offered?
    fn check_written(&mut self, run: RunEpoch, batch: &Batch) {
        if self.stored_wrong.is_some() {
            return;
        }
        let Some(right) = &self.right else {
            return;
        };
        let stored = self
            .store
            .as_ref()
            .and_then(|store| store.runs.get(&run.run));
        for fact in &batch.facts {
            let (Answer::Result { bytes, .. }, Some(is)) =
                (&fact.saved.answer, right.get(&fact.saved.name.fingerprint))
            else {
                continue;
            };
            let root = fact.saved.root_name();
            let is_in = |batch: &Batch, best: u64| {
                let offers = batch.offers.iter();
                let mut offers = offers.filter(|offer| (offer.bound, offer.root) == (BEST, root));
                offers.any(|offer| Smallest::read(&offer.value) <= best)
            };
            let has_bound = is.bound.is_none_or(|best| {
                let logs = stored.into_iter().flat_map(|run| run.logs.values());
                is_in(batch, best) || logs.flatten().any(|stored| is_in(&stored.batch, best))
            });
            if is
                .result
                .is_some_and(|is| !bytes.starts_with(&is.to_le_bytes()))
            {
                self.stored_wrong = Some(format!("a wrong result is stored: {fact:?}"));
                return;
            }
            if !has_bound {
                let story = format!(
                    "a result is stored, and the bound that its leaves offered is not: {fact:?}"
                );
                self.stored_wrong = Some(story);
                return;
            }
        }
    }

    /// A result that stands in the store and is wrong, if there is one.
    #[must_use]
    pub fn stored_wrong(&self) -> Option<&str> {
        self.stored_wrong.as_deref()
    }

    /// From now on each result that is stored is compared with what the programs compute, and the bounds beside it with what its
    /// leaves offer. Races are left out, where both depend on which leaf was first, and of searches the results, as they depend
    /// on what others had found.
    pub fn know_results(&mut self) {
        let mut right = BTreeMap::new();
        for program in &self.programs {
            if matches!(program.shape, Shape::Random { races: 1.., .. }) {
                continue;
            }
            let is_search = matches!(program.shape, Shape::Best { .. });
            program.each_below(program.root(), &mut |work, outcome| {
                let known = RightFact {
                    result: (!is_search).then_some(outcome.result),
                    bound: outcome.bound,
                };
                right.insert(work.fingerprint(), known);
            });
        }
        self.right = Some(right);
    }
}

/// What is known of a job's result.
#[derive(Clone, Copy, Debug)]
pub(super) struct RightFact {
    /// The result, if it is the same in each run.
    result: Option<u64>,
    /// The best that the leaves below offer.
    bound: Option<u64>,
}
