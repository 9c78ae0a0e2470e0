//! Imaginary workers: real stacks of frames and deques, durations instead of work.
//!
//! Imaginary workers behave towards the node as real ones do: marked jobs look themselves up, a frame that waits can be
//! buried under others, and results of finished jobs are harvested. Flows have a file of their own, `flows`.

mod data;
mod flows;

use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    super::{DepartureId, Event, HarvestReader, HostedId, Rule, Taken, Terms, TookJobs},
    HeldValues,
    bounds::{BEST, BestLeaf},
    journal::Noted,
    program::{Program, Shape, Work, mix, padded},
};
use data::{DataStore, Wanted};
pub use flows::FlowsSeen;
use flows::{Boards, FlowUnderWay};

use crate::job::{
    Answer, Back, Deadly, Fact, Fingerprint, Gathered, Harvest, HeldValue, History, JobId, JobLoad,
    JobName, JobSample, Kept, Kin, Offer, OrphanIndex, OrphanNews, Parcel, Recall, RootName,
    RootRun, Saved, ValueName, ValueSize, Wants,
    codec::CodecError,
    function::most_kept,
    loans::SMALL,
    needs::{Decoded, Read, Value},
    orphans::{may_claim, would_deadlock},
};

/// The message of a leaf that panics, see [`Program::panics`].
pub const LEAF_PANICS: &str = "a leaf panics";

/// The place for the result of a frame.
#[derive(Clone, PartialEq, Debug)]
enum ResultPlace {
    Root(RootRun),
    Child { frame: u32, index: u32 },
    Hosted(HostedId, JobId),
}

/// A job that did not come from a job of the same node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum BottomJob {
    Root(RootRun),
    Hosted(HostedId),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum InvocationStep {
    /// The next phase begins.
    Enter,
    /// The invocation has computed, and will spawn so many children.
    Spawn(u32),
    /// The invocation waits at a sync.
    Wait,
}

/// Why a frame does not go on to its end.
#[derive(Clone, PartialEq, Debug)]
enum Stop {
    /// The result is not wanted any more.
    Aborted,
    /// The job will be run again elsewhere.
    GivenUp,
    /// A child panicked, with this message.
    Panicked(String),
}

impl BottomJob {
    /// The key of the job, if another node waits for it.
    fn hosted(self) -> Option<HostedId> {
        match self {
            BottomJob::Root(_) => None,
            BottomJob::Hosted(key) => Some(key),
        }
    }
}

/// The stage of a child of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChildState {
    /// A task of a flow: a result that it reads is missing.
    Waiting,
    /// A task of a flow: data that it reads are being brought.
    Fetching,
    Queued,
    Running,
    Away,
    /// The child is held for other nodes.
    Held,
    /// The result, if it has one.
    Done(Option<u64>),
}

/// A child of a frame.
#[derive(Clone, Copy, Debug)]
struct Kid {
    /// The child's work. Of a task that waits it is not known yet: that of its flow stands there.
    work: Work,
    /// The child's number if children are spawned in the usual order, see [`Program::changing`].
    natural: u32,
    is: ChildState,
}

/// An invocation under way, with its children.
struct Invocation {
    program: u32,
    work: Work,
    home: ResultPlace,
    /// The run of its root job.
    tag: RootRun,
    lane: u32,
    depth: u32,
    /// Differs between two executions of the same job.
    nonce: u64,
    /// A hash of its id.
    path: u64,
    /// True if its children look themselves up.
    marked: bool,
    /// True if the job had come back undone, with a mark.
    repairs: bool,
    /// True if data that it makes may be kept here.
    keeps: bool,
    phase: u32,
    step: InvocationStep,
    /// Children of the phases before this one.
    passed: u32,
    /// The children of this phase.
    children: Vec<Kid>,
    /// Number of children not yet settled.
    pending: u32,
    result: u64,
    stop: Option<Stop>,
    /// A race that is over.
    won: bool,
    /// The graph, if the invocation is a flow that has made its tasks.
    flow: Option<Box<FlowUnderWay>>,
}

/// A job in a deque.
#[derive(Clone, Copy, Debug)]
struct Spawned {
    frame: u32,
    index: u32,
    work: Work,
    back: Back,
    /// True if the job came back with a mark.
    repairs: bool,
}

/// A root job that no worker has begun.
#[derive(Clone, Copy, Debug)]
struct WaitingRoot {
    tag: RootRun,
    program: u32,
    work: Work,
    back: Back,
}

/// A job that is away.
#[derive(Clone, Copy, Debug)]
enum AwayWork {
    Spawned(Spawned),
    Root(WaitingRoot),
}

/// A job that is for other nodes.
#[derive(Clone, Debug)]
enum HeldWork {
    Own(Spawned),
    Root(WaitingRoot),
    Hosted(HostedId, Parcel),
}

/// An imaginary worker: its stack and its deque.
#[derive(Default)]
struct ImaginaryWorker {
    stack: Vec<u32>,
    deque: VecDeque<Spawned>,
    /// Number of jobs, the oldest, that can be taken from outside.
    public: usize,
    busy: bool,
    /// The time that its topmost frame computes, or has computed last.
    burst: Duration,
    /// The number of the burst: the end of one that has been put off says nothing.
    burst_number: u32,
    /// The end of the burst.
    burst_ends: Duration,
}

/// The end of a root job.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Finished {
    /// The result; true if it was computed here, false if it was claimed.
    Result(u64, bool),
    Panicked(String),
    /// The job was stopped, as nobody wants its result.
    Cancelled,
    /// The job was given up; these results of jobs below it were finished.
    GivenUp(Vec<Saved>),
}

/// Of so many looks of a worker with nothing to do at a job that is away, in one it does the job. Too small: nothing is stolen for
/// long. Too large: it is never seen.
const ONE_IN: u64 = 16;

/// The work that a node's workers have done.
#[derive(Clone, Copy, Default, Debug)]
pub struct WorkDone {
    /// Time computed, over all workers, as if none were [slow](super::Cluster::set_slowness).
    pub busy: Duration,
    /// Number of invocations begun.
    pub started: u64,
    /// Marked jobs that found themselves.
    pub claims: u64,
    /// Jobs that came back undone.
    pub came_back: u64,
    /// Results saved when jobs were given up.
    pub saved: u64,
    /// Jobs that were away and were done here.
    pub duplicates: u64,
}

/// A job that a worker here has run.
#[derive(Clone, Copy, Debug)]
struct RanHere {
    /// The worker.
    lane: u32,
    /// Number of children that the job had.
    children: u32,
}

/// The bytes of results of given tasks that a node keeps, as real ones do.
const ROOM: usize = 64 << 20;

/// The decision on a marked job that is about to run.
#[derive(Clone, PartialEq, Debug)]
enum RunVerdict {
    /// Claimed where it is an orphan.
    Claim,
    /// Held for others, or given up; and whether there may be an orphan below it.
    KeepOff(Deadly, bool),
    /// Run, with a mark or without.
    Run(bool),
}

/// The workers of one node.
pub(super) struct ImaginaryWorkers {
    lanes: Vec<ImaginaryWorker>,
    frames: Vec<Option<Invocation>>,
    free: Vec<u32>,
    roots: VecDeque<WaitingRoot>,
    boards: Boards,
    pub(super) data: DataStore,
    /// Tasks whose data are being brought.
    fetching: Vec<Spawned>,
    /// What is being brought, by the numbers of the requests.
    wanted: BTreeMap<u64, Wanted>,
    /// The last such number.
    tickets: u64,
    /// What can go, by the numbers of the nodes that keep it.
    unneeded: BTreeMap<u128, Vec<ValueName>>,
    /// The number of this node.
    me: u128,
    /// Nodes that have said that they leave.
    leaving_keepers: BTreeSet<u128>,
    hosted: VecDeque<(HostedId, Parcel)>,
    held: VecDeque<HeldWork>,
    running: BTreeMap<HostedId, u32>,
    /// The results that are kept of jobs below each root or hosted job.
    harvests: BTreeMap<BottomJob, Harvest>,
    /// Children that are done and whose results are not kept, or only for a store, with the number of children that each had.
    /// They stand in the way of nothing below them.
    bare: BTreeMap<BottomJob, BTreeMap<JobId, u32>>,
    /// Root and hosted jobs with a part that was stopped.
    stopped: BTreeSet<BottomJob>,
    /// Number of results that have been kept.
    facts: u64,
    /// Root jobs of `main` are marked in the first term too.
    pub(super) resumed: bool,
    away: BTreeMap<DepartureId, AwayWork>,
    recalled: BTreeSet<DepartureId>,
    departures: u64,
    index: OrphanIndex,
    /// The best known of each root job.
    best: BTreeMap<RootName, BestLeaf>,
    without: BTreeSet<Rule>,
    /// Draws which jobs that are away are done here as well.
    looks: u64,
    nonce: u64,
    armed: bool,
    /// The same of a node that asks ahead.
    surplus_armed: bool,
    fresh: bool,
    idle: u32,
    publishing: bool,
    /// A time of waiting for the nodes that keep what tasks need is running.
    is_patient: bool,
    /// Such a time begins, and is so long.
    pub(super) patience: Option<Duration>,
    /// The values that all jobs mention.
    pub(super) needs: Vec<ValueSize>,
    /// Where the node is, for tasks that do not take the same time everywhere.
    pub(super) place: usize,
    /// What was seen of given tasks that ran here, until the next take. Of other programs nothing is told: their data has one size.
    samples: Vec<JobSample>,
    /// A worker with more frames than this on its stack takes no more while it waits.
    pub(super) nesting: usize,
    /// Workers with nothing to do do jobs that are away, now and then.
    pub(super) twice: bool,
    /// Time after a request until jobs can be taken; `None`: at any time.
    pub(super) shy: Option<Duration>,
    /// One job in so many is worth the way to another node; 0: as the terms say.
    pub(super) picky: u64,
    pub(super) events: VecDeque<Event>,
    pub(super) finished: Vec<(RootRun, Finished)>,
    /// Bursts that began: the worker, and how long it computes.
    pub(super) bursts: Vec<(u32, Duration)>,
    /// Delay after which jobs are to become public, for the cluster to schedule.
    pub(super) publish: Option<Duration>,
    pub(super) done: WorkDone,
    /// Invocations begun, by a hash of the id, if the caller counts them.
    pub(super) begun: Option<Vec<u64>>,
    /// Entries for the journal, if there is one.
    pub(super) notes: Option<Vec<Noted>>,
    /// A job that kills its host has begun.
    pub(super) poisoned: bool,
    /// A child was not where it should have been.
    broken: Option<String>,
    /// A job that came back and was not away.
    stray: Option<String>,
    pub(super) flows: FlowsSeen,
}

impl ImaginaryWorkers {
    pub(super) fn new(threads: u32, nonce: u64, without: BTreeSet<Rule>) -> ImaginaryWorkers {
        ImaginaryWorkers {
            lanes: (0..threads).map(|_| ImaginaryWorker::default()).collect(),
            frames: Vec::new(),
            free: Vec::new(),
            roots: VecDeque::new(),
            boards: Boards::new(threads),
            data: DataStore::new(HeldValues::default()),
            fetching: Vec::new(),
            wanted: BTreeMap::new(),
            tickets: 0,
            unneeded: BTreeMap::new(),
            me: 0,
            leaving_keepers: BTreeSet::new(),
            hosted: VecDeque::new(),
            held: VecDeque::new(),
            running: BTreeMap::new(),
            harvests: BTreeMap::new(),
            bare: BTreeMap::new(),
            stopped: BTreeSet::new(),
            facts: 0,
            resumed: false,
            away: BTreeMap::new(),
            recalled: BTreeSet::new(),
            departures: 0,
            index: OrphanIndex::default(),
            best: BTreeMap::new(),
            without,
            nonce,
            looks: nonce,
            armed: false,
            surplus_armed: false,
            fresh: false,
            idle: 0,
            publishing: false,
            is_patient: false,
            patience: None,
            needs: Vec::new(),
            place: 0,
            samples: Vec::new(),
            nesting: 64,
            twice: false,
            shy: None,
            picky: 0,
            events: VecDeque::new(),
            finished: Vec::new(),
            bursts: Vec::new(),
            publish: None,
            done: WorkDone::default(),
            begun: None,
            notes: None,
            poisoned: false,
            broken: None,
            stray: None,
            flows: FlowsSeen::default(),
        }
    }

    /// Data of flows are among these values.
    pub(super) fn hold_data_in(&mut self, me: u128, values: &HeldValues) {
        self.me = me;
        self.data = DataStore::new(Arc::clone(values));
    }

    /// True if no job runs, waits or is away.
    pub(super) fn is_empty(&self) -> bool {
        self.away.is_empty()
            && self.roots.is_empty()
            && self.boards.all().next().is_none()
            && self.fetching.is_empty()
            && self.wanted.is_empty()
            && self.running.is_empty()
            && self.hosted.is_empty()
            && self.held.is_empty()
            && (self.lanes.iter()).all(|lane| lane.stack.is_empty() && lane.deque.is_empty())
    }

    pub(super) fn threads(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// Jobs of ours that are away.
    pub(super) fn away(&self) -> usize {
        self.away.len()
    }

    /// Hosted jobs that the workers have.
    pub(super) fn hosted(&self) -> impl Iterator<Item = HostedId> {
        let waiting = self.hosted.iter().map(|(key, _)| *key);
        let held = self.held.iter().filter_map(|held| match held {
            HeldWork::Hosted(key, _) => Some(*key),
            HeldWork::Own(_) | HeldWork::Root(_) => None,
        });
        waiting.chain(held).chain(self.running.keys().copied())
    }

    fn frame(&mut self, frame: u32) -> &mut Invocation {
        (self.frames[frame as usize].as_mut()).expect("a frame outlives what refers to it")
    }

    fn program_of(&self, frame: u32) -> (u32, RootRun) {
        let frame = self.frames[frame as usize].as_ref();
        let frame = frame.expect("a frame outlives what refers to it");
        (frame.program, frame.tag)
    }

    // ---- what there is to do

    fn push(
        &mut self,
        lane: u32,
        program: u32,
        tag: RootRun,
        work: Work,
        home: ResultPlace,
        marked: bool,
    ) {
        let (depth, path) = match &home {
            ResultPlace::Root(tag) => (1, descend(0, tag.name.number)),
            ResultPlace::Child { frame, index } => {
                let parent = self.frame(*frame);
                (parent.depth + 1, descend(parent.path, *index))
            }
            ResultPlace::Hosted(_, id) => (id.depth() as u32, id.path().fold(0, descend)),
        };
        self.nonce = mix(self.nonce);
        let frame = Invocation {
            program,
            work,
            home,
            tag,
            lane,
            depth,
            nonce: self.nonce,
            path,
            marked,
            repairs: false,
            keeps: false,
            phase: 0,
            step: InvocationStep::Enter,
            passed: 0,
            children: Vec::new(),
            pending: 0,
            result: 0,
            stop: None,
            won: false,
            flow: None,
        };
        self.done.started += 1;
        if let Some(begun) = &mut self.begun {
            begun.push(path);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() as u32 - 1
        });
        if let ResultPlace::Hosted(key, _) = &frame.home {
            self.running.insert(*key, place);
        }
        self.frames[place as usize] = Some(frame);
        self.lanes[lane as usize].stack.push(place);
    }

    /// A root job waits for a worker.
    pub(super) fn start_root(&mut self, tag: RootRun, program: u32, work: Work) {
        let marked = (tag.term > 0 || self.resumed) && tag.name.is_of_main();
        let history = History { marked, crashes: 0 };
        let back = Back {
            history,
            at_once: false,
            held: false,
            stays: false,
        };
        self.roots.push_back(WaitingRoot {
            tag,
            program,
            work,
            back,
        });
    }

    /// A burst has begun that ends at that time. Returns its number.
    pub(super) fn burst_begins(&mut self, lane: u32, ends: Duration) -> u32 {
        let lane = &mut self.lanes[lane as usize];
        lane.burst_number += 1;
        lane.burst_ends = ends;
        lane.burst_number
    }

    /// Computing takes `times` as long from `now` on: the bursts under way with their new numbers and ends.
    pub(super) fn slow_down(&mut self, now: Duration, times: f64) -> Vec<(u32, u32, Duration)> {
        let busy = (0..self.threads()).filter(|lane| self.lanes[*lane as usize].busy);
        let busy: Vec<u32> = busy.collect();
        let again = busy.into_iter().map(|lane| {
            let left = self.lanes[lane as usize].burst_ends.saturating_sub(now);
            let ends = now + left.mul_f64(times);
            (lane, self.burst_begins(lane, ends), ends)
        });
        again.collect()
    }

    /// The worker of that lane has computed; unless the burst has been put off.
    pub(super) fn burst_over(&mut self, lane: u32, number: u32) {
        let lane = &mut self.lanes[lane as usize];
        if !lane.busy || lane.burst_number != number {
            return;
        }
        lane.busy = false;
        let (top, time) = (lane.stack.last().copied(), lane.burst);
        if self.notes.is_none() {
            return;
        }
        let top = top.expect("a worker computes for its topmost frame");
        let (phase, work) = (self.frame(top).phase - 1, self.frame(top).work);
        self.note(top, |workers| Noted::Computed {
            job: JobName::new(workers.id(top), work.fingerprint()),
            phase,
            time,
        });
    }

    /// Makes an entry about a job of `main` that has to do with a frame.
    fn note(&mut self, frame: u32, noted: impl FnOnce(&ImaginaryWorkers) -> Noted) {
        if self.notes.is_some() && self.program_of(frame).1.name.is_of_main() {
            let noted = noted(self);
            self.notes.get_or_insert_default().push(noted);
        }
    }

    /// Makes the jobs public for which the node has asked.
    pub(super) fn published(&mut self) {
        self.publishing = false;
        for lane in &mut self.lanes {
            self.fresh |= lane.public < lane.deque.len();
            lane.public = lane.deque.len();
        }
    }

    /// Lets the workers do all that they can at this moment.
    pub(super) fn run(&mut self, programs: &[Program]) {
        while (0..self.threads()).any(|lane| self.advance(programs, lane)) {}
        self.tell_unneeded();
        let is_surplus = self.surplus_armed && self.boards.own() > self.lanes.len();
        let is_public = self.armed && self.takeable() > 0;
        if self.fresh && (is_public || is_surplus) {
            self.armed &= !is_public;
            self.surplus_armed &= !is_surplus;
            self.events.push_back(Event::Public);
        }
        let waits = self.hosted.is_empty();
        let free = |lane: &&ImaginaryWorker| !lane.busy && lane.stack.len() < self.nesting;
        let idle = self.lanes.iter().filter(free).count() as u32 * u32::from(waits);
        if idle != self.idle {
            self.idle = idle;
            self.events.push_back(Event::Idle(idle));
        }
    }

    /// True if the worker did something.
    fn advance(&mut self, programs: &[Program], lane: u32) -> bool {
        let mut did = false;
        while !self.lanes[lane as usize].busy {
            let top = self.lanes[lane as usize].stack.last().copied();
            did |= match top {
                Some(top) if self.step(programs, top) => true,
                _ if self.find(programs, lane) => true,
                _ => return did,
            };
        }
        did
    }

    /// The topmost frame goes on; false if it waits.
    fn step(&mut self, programs: &[Program], top: u32) -> bool {
        let best = &self.best;
        let frame = (self.frames[top as usize].as_mut()).expect("it is on a stack");
        let program = &programs[frame.program as usize];
        if frame.stop.is_some() && frame.pending == 0 {
            self.complete(programs, top);
            return true;
        }
        match frame.step {
            InvocationStep::Enter => {
                if frame.phase == 0 {
                    self.poisoned |= program.poison == Some(frame.work.seed);
                    frame.result = program.own(frame.work);
                    let known = best.get(&frame.tag.name);
                    if known.is_some_and(|best| program.prunes(frame.work, best.cost)) {
                        frame.result = Program::NOTHING;
                        self.complete(programs, top);
                        return true;
                    }
                }
                if let Some(result) = frame.flow_result(program) {
                    frame.result = result;
                    self.let_all_go(top);
                }
                let frame = (self.frames[top as usize].as_mut()).expect("it is on a stack");
                frame.passed += frame.children.len() as u32;
                frame.children.clear();
                match program.phase(frame.work, frame.phase) {
                    None => self.complete(programs, top),
                    Some((usual, children)) => {
                        let time = program.time_at(self.place, frame.work, usual);
                        frame.phase += 1;
                        frame.step = InvocationStep::Spawn(children);
                        if time > Duration::ZERO {
                            let lane = frame.lane;
                            self.lanes[lane as usize].busy = true;
                            self.lanes[lane as usize].burst = time;
                            self.done.busy += time;
                            self.bursts.push((lane, time));
                        }
                    }
                }
            }
            InvocationStep::Spawn(children) => self.spawn(programs, top, children),
            InvocationStep::Wait if frame.pending == 0 => {
                if !self.takes_home(programs, top) {
                    return false;
                }
                self.frame(top).step = InvocationStep::Enter;
            }
            InvocationStep::Wait => return false,
        }
        true
    }

    fn spawn(&mut self, programs: &[Program], top: u32, children: u32) {
        let (inherit, shy) = (!self.without.contains(&Rule::Inherit), self.shy.is_some());
        let index_is_void = self.index.is_void();
        let frame = (self.frames[top as usize].as_mut()).expect("it is on a stack");
        let program = &programs[frame.program as usize];
        if let Some(graph) = program.flow(frame.work) {
            return self.make_tasks(programs, top, graph);
        }
        let before = program.before(frame.result, frame.phase - 1);
        let turn = match program.changing && frame.nonce % 2 == 1 {
            true => (frame.nonce / 2 % u64::from(children.max(1))) as u32,
            false => 0,
        };
        let (work, first, lane) = (frame.work, frame.passed, frame.lane);
        let marked = frame.marked && inherit;
        let all = (0..children).map(|place| {
            let natural = first + (place + turn) % children;
            Kid {
                work: program.child(work, natural, before),
                natural,
                is: ChildState::Queued,
            }
        });
        frame.children = all.collect();
        frame.pending += children;
        frame.step = InvocationStep::Wait;
        // Children run in program order, and the deque is a stack: the last is pushed first, and is the first that others take.
        let jobs = (first..first + children)
            .zip(&frame.children)
            .rev()
            .map(|(index, child)| Spawned {
                frame: top,
                index,
                work: child.work,
                back: Back::default(),
                repairs: false,
            });
        if marked && !index_is_void {
            let jobs: Vec<Spawned> = jobs.collect();
            let id = self.id(top);
            for mut job in jobs {
                let child = id.child(job.index);
                match self.look_up(lane, &child, job.work, 0) {
                    RunVerdict::Claim => {
                        job.back.history.marked = true;
                        self.claim(programs, AwayWork::Spawned(job), child);
                        continue;
                    }
                    RunVerdict::KeepOff(is, marked) => {
                        job.back.history.marked = marked;
                        self.keep_off(programs, AwayWork::Spawned(job), is);
                        continue;
                    }
                    RunVerdict::Run(marked) => job.back.history.marked = marked,
                }
                self.lanes[lane as usize].deque.push_back(job);
            }
        } else {
            self.lanes[lane as usize].deque.extend(jobs);
        }
        let lane = &mut self.lanes[lane as usize];
        if !shy {
            lane.public = lane.deque.len();
        }
        self.fresh |= children > 0 && !shy;
        if self.armed {
            self.ask_to_publish();
        }
    }

    /// Finds a job for a worker that has none, or waits.
    fn find(&mut self, programs: &[Program], lane: u32) -> bool {
        let own = &self.lanes[lane as usize];
        let room = own.stack.len() < self.nesting;
        if let Some(job) = self.next_task(lane, room) {
            self.begin_task(programs, lane, job);
            return true;
        }
        let own = &self.lanes[lane as usize];
        let place = (own.deque.iter()).rposition(|job| !self.would_deadlock(lane, job));
        let own = &mut self.lanes[lane as usize];
        let mut job = place.and_then(|place| own.deque.remove(place));
        own.public = own.public.min(own.deque.len());
        if job.is_none() && room {
            let fit = |other: &ImaginaryWorker| {
                let front = other.deque.front();
                front.is_some_and(|front| !self.would_deadlock(lane, front))
            };
            let fit: Vec<bool> = self.lanes.iter().map(fit).collect();
            let others = self.lanes.iter_mut().zip(fit);
            let others = others.filter(|(_, fit)| *fit).map(|(lane, _)| lane);
            let oldest = others.min_by_key(|lane| {
                let frame = self.frames[lane.deque[0].frame as usize].as_ref();
                frame.map(|frame| frame.depth)
            });
            job = oldest.and_then(|lane| {
                lane.public = lane.public.saturating_sub(1);
                lane.deque.pop_front()
            });
        }
        if let Some(job) = job {
            self.begin(programs, lane, job);
            return true;
        }
        if !room {
            return false;
        }
        let task = self.boards.next(lane).or_else(|| self.late_task());
        if let Some(job) = task {
            self.begin_task(programs, lane, job);
        } else if let Some(root) = self.roots.pop_front() {
            if let Some(marked) = self.may_start(programs, lane, AwayWork::Root(root)) {
                self.push(
                    lane,
                    root.program,
                    root.tag,
                    root.work,
                    ResultPlace::Root(root.tag),
                    marked,
                );
            }
        } else if let Some((key, parcel)) = self.hosted.pop_front() {
            let work = Work::unpack(&parcel.arguments);
            let (program, tag) = (parcel.function, parcel.root_run());
            // Whether it is here already its host has looked, before it took it in.
            let marked = parcel.history.marked
                && !self.index.is_void()
                && self.index.kin(&parcel.id) != Kin::Nothing;
            self.push(
                lane,
                program,
                tag,
                work,
                ResultPlace::Hosted(key, parcel.id),
                marked,
            );
            let top = self.lanes[lane as usize].stack.last().copied();
            self.frame(top.expect("it has just been pushed")).keeps = parcel.keeps;
        } else {
            return self.duplicate(programs, lane);
        }
        true
    }

    /// A job of ours that a worker has taken begins, unless it is claimed or kept off.
    fn begin(&mut self, programs: &[Program], lane: u32, job: Spawned) {
        let (program, tag) = self.program_of(job.frame);
        let Some(marked) = self.may_start(programs, lane, AwayWork::Spawned(job)) else {
            return;
        };
        if self.must_fetch(&job) {
            return;
        }
        self.see_unclaimed(Some(lane), &job);
        let Spawned {
            frame, index, work, ..
        } = job;
        self.set_child(frame, index, ChildState::Running);
        self.push(
            lane,
            program,
            tag,
            work,
            ResultPlace::Child { frame, index },
            marked,
        );
        let top = self.lanes[lane as usize].stack.last().copied();
        let top = top.expect("it has just been pushed");
        self.frame(top).repairs = job.repairs;
    }

    /// A worker that has nothing else to do does a job that is away, now and then, at once. Of those whose leaves say or do more than
    /// their result none: a second run would offer bounds, or end the node.
    fn duplicate(&mut self, programs: &[Program], lane: u32) -> bool {
        if !self.twice {
            return false;
        }
        let Some(top) = self.lanes[lane as usize].stack.last().copied() else {
            return false;
        };
        let frame = self.frame(top);
        let program = &programs[frame.program as usize];
        let is_plain = program.panics == 0 && program.poison.is_none() && !program.bounded;
        if frame.stop.is_some() || !is_plain || matches!(program.shape, Shape::Best { .. }) {
            return false;
        }
        let is_fit = |job: &AwayWork| match job {
            AwayWork::Spawned(job) => {
                job.frame == top && job.back == Back::default() && self.has_data(job)
            }
            AwayWork::Root(_) => false,
        };
        let found = self.away.iter().find(|(_, job)| is_fit(job));
        let Some(departure) = found.map(|(departure, _)| *departure) else {
            return false;
        };
        self.looks = mix(self.looks);
        if !self.looks.is_multiple_of(ONE_IN) {
            return false;
        }
        let Some(AwayWork::Spawned(job)) = self.away.remove(&departure) else {
            unreachable!("it was found a line ago");
        };
        self.recalled.insert(departure);
        self.done.duplicates += 1;
        let result = program.below(job.work).result;
        self.events
            .push_back(Event::Recalled(departure, Recall::Done));
        self.child_done(programs, top, job.index, Ok(Some(result)), None, None);
        true
    }

    /// True if a helper would run a repair on top of an orphan that the repair will claim: each would wait for the other.
    /// The job's parent runs it then, or another node.
    fn would_deadlock(&self, lane: u32, job: &Spawned) -> bool {
        let stack = &self.lanes[lane as usize].stack;
        if !job.back.history.marked || self.running.is_empty() || stack.last() == Some(&job.frame) {
            return false;
        }
        let id = self.id(job.frame).child(job.index);
        would_deadlock(&id, self.hosts_on(lane))
    }

    fn hosts_on(&self, lane: u32) -> impl Iterator<Item = &JobId> {
        let stack = self.lanes[lane as usize].stack.iter();
        let frames = stack.filter_map(|frame| self.frames[*frame as usize].as_ref());
        frames.filter_map(|frame| match &frame.home {
            ResultPlace::Hosted(_, id) => Some(id),
            _ => None,
        })
    }

    fn complete(&mut self, programs: &[Program], place: u32) {
        let frame = self.frames[place as usize].take();
        let mut frame = frame.expect("the topmost frame is there");
        self.free.push(place);
        let top = self.lanes[frame.lane as usize].stack.pop();
        assert_eq!(top, Some(place), "a stack is last in, first out");
        assert_eq!(frame.pending, 0, "a frame outlives its children");
        let program = &programs[frame.program as usize];
        if frame.stop.is_none() && program.panics_at(frame.work) {
            frame.stop = Some(Stop::Panicked(LEAF_PANICS.into()));
        }
        let result = Program::salted(frame.work, frame.result);
        let bytes = program.result_bytes(frame.work);
        // A leaf that was cut off offers nothing.
        if frame.stop.is_none()
            && result != Program::NOTHING
            && let Some(found) = program.offers(frame.work)
            && self.improve(frame.tag.name, found)
        {
            let root = frame.tag.name;
            let (bound, value) = (BEST, found.write());
            let offer = Offer { bound, root, value };
            self.events.push_back(Event::Offered(offer));
        }
        match frame.home {
            ResultPlace::Root(tag) => {
                let saved = self.end_harvest(BottomJob::Root(tag), frame.tag);
                let finished = match frame.stop {
                    None => Finished::Result(result, true),
                    Some(Stop::Panicked(story)) => Finished::Panicked(story),
                    Some(Stop::Aborted) => Finished::Cancelled,
                    Some(Stop::GivenUp) => {
                        self.done.saved += saved.len() as u64;
                        Finished::GivenUp(saved)
                    }
                };
                self.finished.push((tag, finished));
            }
            ResultPlace::Child {
                frame: parent,
                index,
            } => {
                if frame.repairs && frame.stop.is_none() {
                    let id = self.id(parent).child(index);
                    self.events.push_back(Event::Repaired(id));
                }
                let outcome = match frame.stop {
                    None => Ok(Some(result)),
                    Some(Stop::Panicked(story)) => Err(story),
                    Some(_) => Ok(None),
                };
                if let Ok(Some(_)) = outcome
                    && program.given(frame.work).is_some()
                {
                    let (shape, _) = self.shape_of(programs, parent, index, frame.work);
                    let took = self.lanes[frame.lane as usize].burst;
                    let parts = program.parts(frame.work, result);
                    let parts = parts.iter().map(|part| part.bytes).sum::<u64>();
                    let back = bytes as u64 + parts;
                    self.samples.push(JobSample { shape, took, back });
                }
                let ran = RanHere {
                    lane: frame.lane,
                    children: frame.passed + frame.children.len() as u32,
                };
                self.child_done(programs, parent, index, outcome, Some(ran), None);
            }
            ResultPlace::Hosted(key, _) => {
                self.running.remove(&key);
                let saved = self.end_harvest(BottomJob::Hosted(key), frame.tag);
                let event = match frame.stop {
                    None => {
                        let took = self.lanes[frame.lane as usize].burst;
                        let (parts, home) = match program.is_task(frame.work, frame.keeps) {
                            true => self.keep_parts(program, &frame, result, took),
                            false => (None, 0),
                        };
                        let mut answer = self.answer_of(result, bytes + home);
                        if let Answer::Result { kept, .. } = &mut answer {
                            *kept = parts;
                        }
                        Event::Done(key, answer)
                    }
                    Some(Stop::Panicked(story)) => Event::Done(key, Answer::Panicked(story)),
                    Some(Stop::Aborted) => Event::Done(key, Answer::Aborted),
                    Some(Stop::GivenUp) => {
                        self.done.saved += saved.len() as u64;
                        Event::Saved(key, saved)
                    }
                };
                self.events.push_back(event);
            }
        }
    }

    /// A child is done, with that result; or has been aborted; or has panicked. `ran` is `None` if it was away.
    fn child_done(
        &mut self,
        programs: &[Program],
        parent: u32,
        index: u32,
        outcome: Result<Option<u64>, String>,
        ran: Option<RanHere>,
        kept: Option<&Kept>,
    ) {
        let result = *outcome.as_ref().unwrap_or(&None);
        self.set_child(parent, index, ChildState::Done(result));
        if let Some(result) = result {
            self.enter_parts(programs, parent, index, result, kept);
            let below = ran.map(|ran| ran.children);
            self.keep(programs, parent, index, result, below);
        }
        let frame = self.frame(parent);
        let program = &programs[frame.program as usize];
        frame.pending -= 1;
        if frame.stop.is_some() {
            return;
        }
        match outcome {
            Err(story) => {
                frame.stop = Some(Stop::Panicked(story));
                self.stop_children(parent, &Stop::Aborted);
            }
            Ok(Some(_)) if frame.flow.is_some() => {
                self.show_waiting(programs, parent, index, ran.map(|ran| ran.lane));
            }
            Ok(Some(result)) if !program.races(frame.work) => {
                let natural = frame.children[(index - frame.passed) as usize].natural;
                frame.result = program.add(frame.result, natural, result);
            }
            Ok(Some(_)) if !frame.won => {
                frame.won = true;
                self.stop_children(parent, &Stop::Aborted);
            }
            Ok(_) => {}
        }
    }

    fn set_child(&mut self, parent: u32, index: u32, now: ChildState) {
        if let ChildState::Running | ChildState::Away = now {
            self.see_begin(parent, index);
        }
        let frame = (self.frames[parent as usize].as_mut()).expect("it has children");
        let place = index.checked_sub(frame.passed).map(|place| place as usize);
        let Some(child) = place.and_then(|place| frame.children.get_mut(place)) else {
            let story = format!("child {index} is {now:?}, but its frame is past that sync");
            self.broken.get_or_insert(story);
            return;
        };
        if let ChildState::Done(_) = child.is {
            let story = format!("child {index} is done, and {now:?} again");
            self.broken.get_or_insert(story);
        }
        child.is = now;
    }

    // ---- stopping

    /// Stops the children of a frame, which are not waited for: they are aborted, or given up with it.
    fn stop_children(&mut self, parent: u32, why: &Stop) {
        self.stopped.insert(self.bottom(parent));
        let give_up = *why == Stop::GivenUp;
        let mut settled = Vec::new();
        for lane in &mut self.lanes {
            lane.deque.retain(|job| {
                let keep = job.frame != parent;
                if !keep {
                    settled.push(job.index);
                }
                keep
            });
            lane.public = lane.public.min(lane.deque.len());
        }
        settled.extend(self.boards.clear(parent));
        let tasks = (0..).zip(&self.frame(parent).children);
        let waiting = tasks.filter(|(_, task)| task.is == ChildState::Waiting);
        settled.extend(waiting.map(|(index, _)| index));
        settled.extend(self.let_all_go(parent));
        let held = self.held.len();
        self.held.retain(|held| match held {
            HeldWork::Own(job) if job.frame == parent => {
                settled.push(job.index);
                false
            }
            _ => true,
        });
        if self.held.len() < held {
            self.tell_held();
        }
        let away = self.away.iter();
        let away: Vec<(DepartureId, u32)> = away
            .filter_map(|(departure, job)| match job {
                AwayWork::Spawned(job) if job.frame == parent => Some((*departure, job.index)),
                _ => None,
            })
            .collect();
        let forgets =
            self.without.contains(&Rule::RecallTasks) && self.frame(parent).flow.is_some();
        for (departure, index) in away {
            match forgets {
                true => _ = self.away.remove(&departure),
                false => self.recall(departure, give_up),
            }
            settled.push(index);
        }
        for index in &settled {
            self.set_child(parent, *index, ChildState::Done(None));
        }
        self.frame(parent).pending -= settled.len() as u32;
        let is_child = |frame: &Invocation| matches!(frame.home, ResultPlace::Child { frame, .. } if frame == parent);
        for place in 0..self.frames.len() {
            if self.frames[place].as_ref().is_some_and(is_child) {
                self.stop(place as u32, why);
            }
        }
    }

    fn stop(&mut self, place: u32, why: &Stop) {
        let frame = self.frame(place);
        if frame.stop.is_none() {
            frame.stop = Some(why.clone());
            self.stop_children(place, why);
        }
    }

    fn recall(&mut self, departure: DepartureId, give_up: bool) {
        self.away.remove(&departure);
        self.recalled.insert(departure);
        let why = match give_up {
            true => Recall::Abandoned,
            false => Recall::Unwanted,
        };
        self.events.push_back(Event::Recalled(departure, why));
    }

    // ---- the harvest

    /// Keeps the result of a child, unless the child was too quick for that: of four one is. What was away, `below` is `None`
    /// then, is never too quick: it was worth the way.
    fn keep(
        &mut self,
        programs: &[Program],
        parent: u32,
        index: u32,
        result: u64,
        below: Option<u32>,
    ) {
        let frame = self.frames[parent as usize].as_ref();
        let frame = frame.expect("it has children");
        // Something above has been stopped, and what the child has computed may be anything.
        if frame.stop.is_some() {
            return;
        }
        let Some(child) =
            (index.checked_sub(frame.passed)).and_then(|at| frame.children.get(at as usize))
        else {
            return; // it is broken, and that has been noted
        };
        let program = &programs[frame.program as usize];
        let parts = program.parts(child.work, result);
        let parts: u64 = parts.iter().map(|part| part.bytes).sum();
        let given = program.given(child.work);
        // Stores of simulations are small: only where the sizes are told they count.
        let beside = given.map_or(0, |_| parts as usize);
        let bytes = program.result_bytes(child.work) + beside;
        let is_left = match given {
            // The sieve of real workers.
            Some(task) => bytes.max(task.arguments) > most_kept(task.times[0]),
            None if parts as usize > SMALL => true,
            None => below.is_some() && mix(frame.nonce ^ u64::from(index)).is_multiple_of(4),
        };
        // Of such a result only a part is here.
        let is_left = is_left || !frame.is_whole(index);
        let room = given.map_or(usize::MAX, |_| ROOM);
        let name = JobName::new(self.id(parent).child(index), self.fingerprint(child.work));
        let bottom = self.bottom(parent);
        // What is left need not be written.
        let answer = self.answer_of(result, if is_left { 0 } else { bytes });
        let bare = self.bare.entry(bottom).or_default();
        if is_left || !answer.needs().is_empty() {
            bare.insert(name.id.clone(), below.unwrap_or(0));
        } else {
            name.id.take_below(bare);
        }
        if is_left {
            return;
        }
        self.facts += 1;
        let under = bottom.hosted();
        let (job, number) = (name.clone(), self.facts);
        self.note(parent, |_| Noted::Kept { job, under });
        let hold = |name: &ValueName| HeldValue::new(Arc::new(ImaginaryValue(*name)));
        let fact = Fact {
            name,
            values: answer.needs().iter().map(hold).collect(),
            answer,
            took: Duration::ZERO,
            number,
        };
        (self.harvests.entry(bottom).or_default()).insert(fact, room);
    }

    /// The result of a job here, in so many bytes: one in two mentions the values that all jobs need.
    pub(super) fn answer_of(&self, result: u64, bytes: usize) -> Answer {
        let needs = match mix(result) % 2 {
            0 => self.needed(),
            _ => Vec::new(),
        };
        Answer::result(padded(&result.to_le_bytes(), bytes).into(), needs)
    }

    /// The root or hosted job that a frame is a part of.
    fn bottom(&self, frame: u32) -> BottomJob {
        let mut at = frame;
        loop {
            let frame = self.frames[at as usize].as_ref();
            match &frame.expect("a frame outlives what refers to it").home {
                ResultPlace::Root(run) => return BottomJob::Root(*run),
                ResultPlace::Hosted(key, _) => return BottomJob::Hosted(*key),
                ResultPlace::Child { frame, .. } => at = *frame,
            }
        }
    }

    /// A root or hosted job is over: what was kept below.
    fn end_harvest(&mut self, job: BottomJob, run: RootRun) -> Vec<Saved> {
        let harvest = self.harvests.remove(&job);
        self.bare.remove(&job);
        self.stopped.remove(&job);
        self.note_over(job.hosted());
        harvest.unwrap_or_default().take(run.name.fingerprint)
    }

    /// What is kept of a root or hosted job is not written any more.
    fn note_over(&mut self, under: Option<HostedId>) {
        if let Some(notes) = &mut self.notes {
            notes.push(Noted::Over { under });
        }
    }

    /// Bytes of the results that are kept of jobs of `main` under way.
    pub(super) fn harvested_bytes(&self) -> usize {
        let facts = self.harvests.values().flat_map(|harvest| harvest.since(0));
        facts
            .map(|fact| fact.name.id.as_bytes().len() + fact.answer.size())
            .sum()
    }

    /// The number of results that are kept of jobs under way, and the most that there can be: one for each child of an
    /// invocation under way, or of a child whose own result is not kept. Where results mention values it is twice as many: those
    /// that do, and those that do not. Jobs with a part that was stopped do not count: what is kept below that waits for the
    /// result of something above it, or is to be told.
    pub(super) fn harvested(&self) -> (usize, usize) {
        let facts = (self.harvests.iter())
            .filter(|(bottom, _)| !self.stopped.contains(bottom))
            .map(|(_, harvest)| harvest.since(0).count());
        let frames = self.frames.iter().flatten();
        let children = frames.map(|frame| frame.passed as usize + frame.children.len());
        let bare = self.bare.values().flat_map(BTreeMap::values);
        let room = children.sum::<usize>() + bare.map(|below| *below as usize).sum::<usize>();
        let kinds = 1 + usize::from(!self.needs.is_empty());
        (facts.sum(), kinds * room)
    }

    /// Tells what has been kept since the fact of that number.
    pub(super) fn harvest(&mut self, since: u64, reader: HarvestReader) {
        let mut gathered = Gathered::between(since, self.facts);
        let none = Harvest::default();
        for frame in self.frames.iter().flatten() {
            let (id, bottom) = match &frame.home {
                // It is not wanted, but what it waits for has not come back yet.
                _ if frame.stop == Some(Stop::Aborted) => continue,
                // No other node will run the root jobs of other threads.
                ResultPlace::Root(run) if run.name.is_of_main() => {
                    let id = JobId::ROOT.child(run.name.number);
                    (id, BottomJob::Root(*run))
                }
                ResultPlace::Hosted(key, id) => (id.clone(), BottomJob::Hosted(*key)),
                _ => continue,
            };
            let harvest = self.harvests.get(&bottom).unwrap_or(&none);
            gathered.add(id, harvest, frame.tag.name.fingerprint);
        }
        let harvested = Event::Harvested(reader, gathered.sorted());
        self.events.push_back(harvested);
    }

    /// Gives a hosted job up. Answered by `Saved`, or `Done`.
    pub(super) fn save(&mut self, key: HostedId) {
        if let Some(place) = self.hosted.iter().position(|(hosted, _)| *hosted == key) {
            self.hosted.remove(place);
            self.events.push_back(Event::Saved(key, Vec::new()));
        } else if self.unhold(key) {
            self.events.push_back(Event::Saved(key, Vec::new()));
        } else if let Some(frame) = self.running.get(&key).copied() {
            self.stop(frame, &Stop::GivenUp);
        }
    }

    /// Gives a root job up: true if it will be told as finished.
    pub(super) fn give_up_root(&mut self, tag: RootRun) -> bool {
        self.stop_root(tag, &Stop::GivenUp)
    }

    /// Stops a root job, as nobody wants its result: true if it will be told as finished.
    pub(super) fn cancel_root(&mut self, tag: RootRun) -> bool {
        self.stop_root(tag, &Stop::Aborted)
    }

    fn stop_root(&mut self, tag: RootRun, why: &Stop) -> bool {
        self.roots.retain(|root| root.tag != tag);
        let held = self.held.len();
        (self.held).retain(|held| !matches!(held, HeldWork::Root(root) if root.tag == tag));
        if self.held.len() < held {
            self.tell_held();
        }
        let is_root = |job: &AwayWork| matches!(job, AwayWork::Root(root) if root.tag == tag);
        let away = self.away.iter().find(|(_, job)| is_root(job));
        if let Some(departure) = away.map(|(departure, _)| *departure) {
            self.recall(departure, *why == Stop::GivenUp);
        }
        let is_root = |frame: &Invocation| frame.home == ResultPlace::Root(tag);
        let place = (self.frames.iter()).position(|frame| frame.as_ref().is_some_and(is_root));
        if let Some(place) = place {
            self.stop(place as u32, why);
        }
        place.is_some()
    }

    pub(super) fn abort(&mut self, key: HostedId) {
        if let Some(place) = self.hosted.iter().position(|(hosted, _)| *hosted == key) {
            self.hosted.remove(place);
            let done = Event::Done(key, Answer::Aborted);
            self.events.push_back(done);
        } else if self.unhold(key) {
            self.events.push_back(Event::Done(key, Answer::Aborted));
        } else if let Some(frame) = self.running.get(&key) {
            self.stop(*frame, &Stop::Aborted);
            self.note_over(Some(key));
        }
    }

    /// Hosted jobs that have not been started come back.
    pub(super) fn give_back(&mut self) {
        for (key, _) in self.hosted.drain(..) {
            self.events.push_back(Event::Done(key, Answer::Aborted));
        }
        let held: Vec<HostedId> = (self.held.iter())
            .filter_map(|held| match held {
                HeldWork::Hosted(key, _) => Some(*key),
                HeldWork::Own(_) | HeldWork::Root(_) => None,
            })
            .collect();
        for key in held {
            self.unhold(key);
            self.events.push_back(Event::Done(key, Answer::Aborted));
        }
    }

    /// True if that job was held.
    fn unhold(&mut self, key: HostedId) -> bool {
        let before = self.held.len();
        (self.held).retain(|held| !matches!(held, HeldWork::Hosted(is, _) if *is == key));
        let was_held = self.held.len() < before;
        if was_held {
            self.tell_held();
        }
        was_held
    }

    // ---- looking up

    /// Tells the workers what marked jobs are to find.
    pub(super) fn orphan(&mut self, news: OrphanNews) {
        if let OrphanNews::Settled(true) = news {
            self.boards.let_leave();
            self.fresh = true;
        }
        self.index.learn(news);
    }

    /// The fingerprint of a job; if the rule of fingerprints is left out, all are the same.
    fn fingerprint(&self, work: Work) -> Fingerprint {
        if self.without.contains(&Rule::Fingerprint) {
            return Fingerprint(0);
        }
        match self.without.contains(&Rule::TaskPrint) {
            true => Work { salt: 0, ..work }.fingerprint(),
            false => work.fingerprint(),
        }
    }

    /// As the workers of a process do it (`worker/repair.rs`); they make a fingerprint only where an id is not enough.
    fn look_up(&self, lane: u32, id: &JobId, work: Work, crashes: u32) -> RunVerdict {
        let (kin, fingerprint) = (self.index.kin(id), self.fingerprint(work));
        let is_it = kin == Kin::Here && self.index.is_known(id, fingerprint);
        if is_it && may_claim(id, self.hosts_on(lane)) {
            return RunVerdict::Claim;
        }
        let marked = kin != Kin::Nothing;
        match self.index.deadly(id, fingerprint, crashes) {
            Deadly::Not => RunVerdict::Run(marked),
            is => RunVerdict::KeepOff(is, marked),
        }
    }

    // ---- jobs that are for others

    /// Keeps a job of this node for other nodes, or gives it up.
    fn keep_off(&mut self, programs: &[Program], job: AwayWork, is: Deadly) {
        match (is, job) {
            (Deadly::Not, _) => {}
            (Deadly::Held(nodes), AwayWork::Spawned(mut job)) => {
                job.back.history.crashes = nodes;
                self.hold_own(job);
            }
            (Deadly::Held(nodes), AwayWork::Root(mut root)) => {
                root.back.history.crashes = nodes;
                self.hold_root(root);
            }
            (Deadly::GivenUp(story), AwayWork::Spawned(job)) => {
                self.child_done(programs, job.frame, job.index, Err(story), None, None);
            }
            (Deadly::GivenUp(story), AwayWork::Root(root)) => {
                self.finished.push((root.tag, Finished::Panicked(story)));
            }
        }
    }

    fn hold_root(&mut self, mut root: WaitingRoot) {
        root.back.held = true;
        self.held.push_back(HeldWork::Root(root));
        self.tell_held();
    }

    /// A job of ours is for other nodes.
    fn hold_own(&mut self, mut job: Spawned) {
        job.back.held = true;
        self.set_child(job.frame, job.index, ChildState::Held);
        self.held.push_back(HeldWork::Own(job));
        self.tell_held();
    }

    pub(super) fn hold(&mut self, key: HostedId, parcel: Parcel) {
        self.held.push_back(HeldWork::Hosted(key, parcel));
        self.tell_held();
    }

    /// The workers may run what is held.
    pub(super) fn release(&mut self) {
        for held in std::mem::take(&mut self.held) {
            self.run_held(held);
        }
        self.tell_held();
    }

    fn run_held(&mut self, held: HeldWork) {
        match held {
            HeldWork::Own(mut job) => {
                job.back.held = false;
                self.queue_again(job);
            }
            HeldWork::Root(mut root) => {
                root.back.held = false;
                self.roots.push_front(root);
            }
            HeldWork::Hosted(key, parcel) => self.start(key, parcel),
        }
    }

    /// Releases a single job of ours in the same way.
    pub(super) fn release_one(&mut self, name: &JobName) {
        let is_it = |held: &HeldWork| match held {
            HeldWork::Hosted(..) => false,
            held => self.name_of(held) == *name,
        };
        let place = self.held.iter().position(is_it);
        if let Some(held) = place.and_then(|place| self.held.remove(place)) {
            self.run_held(held);
            self.tell_held();
        }
    }

    fn tell_held(&mut self) {
        let names = self.held.iter().map(|held| self.name_of(held));
        let names = names.collect();
        self.events.push_back(Event::Held(names));
    }

    fn name_of(&self, held: &HeldWork) -> JobName {
        match held {
            HeldWork::Own(job) => {
                let id = self.id(job.frame).child(job.index);
                JobName::new(id, self.fingerprint(job.work))
            }
            HeldWork::Root(root) => {
                let id = JobId::ROOT.child(root.tag.name.number);
                JobName::new(id, self.fingerprint(root.work))
            }
            HeldWork::Hosted(_, parcel) => parcel.name(),
        }
    }

    fn queue_again(&mut self, job: Spawned) {
        if self.waits_again(&job) {
            return self.set_child(job.frame, job.index, ChildState::Waiting);
        }
        self.set_child(job.frame, job.index, ChildState::Queued);
        let lane = self.frame(job.frame).lane;
        let lane = &mut self.lanes[lane as usize];
        lane.deque.push_front(job);
        lane.public += 1;
        self.fresh = true;
    }

    /// A job of ours is about to start: does it do so with a mark? `None` if it is claimed or kept off instead.
    fn may_start(&mut self, programs: &[Program], lane: u32, job: AwayWork) -> Option<bool> {
        let (back, work) = match &job {
            AwayWork::Spawned(job) => (job.back, job.work),
            AwayWork::Root(root) => (root.back, root.work),
        };
        if !back.history.marked || back.at_once || self.index.is_void() {
            return Some(back.history.marked && !self.index.is_void());
        }
        let id = match &job {
            AwayWork::Spawned(job) => self.id(job.frame).child(job.index),
            AwayWork::Root(root) => JobId::ROOT.child(root.tag.name.number),
        };
        match self.look_up(lane, &id, work, back.history.crashes) {
            RunVerdict::Claim => self.claim(programs, job, id),
            RunVerdict::KeepOff(is, _) => self.keep_off(programs, job, is),
            RunVerdict::Run(marked) => return Some(marked),
        }
        None
    }

    fn claim(&mut self, programs: &[Program], job: AwayWork, id: JobId) {
        self.done.claims += 1;
        self.see_claim(&job);
        let (departure, parcel) = self.depart(programs, job, id);
        self.events.push_back(Event::Claimed(departure, parcel));
    }

    // ---- leaving and coming back

    fn takeable(&self) -> usize {
        self.held.len()
            + self.hosted.len()
            + self.boards.len()
            + self.lanes.iter().map(|lane| lane.public).sum::<usize>()
    }

    fn ask_to_publish(&mut self) {
        let hidden = |lane: &ImaginaryWorker| lane.public < lane.deque.len();
        if let Some(delay) = self.shy
            && !self.publishing
            && self.lanes.iter().any(hidden)
        {
            self.publishing = true;
            self.publish = Some(delay);
        }
    }

    /// The oldest job and siblings of it, never more than half of them, as far as the terms let them go.
    pub(super) fn take(&mut self, programs: &[Program], request: u64, most: u32, terms: &Terms) {
        let (mut jobs, mut not_worth) = (Vec::new(), Vec::new());
        self.drop_held_that_wait();
        let is_ahead = terms.wants() != Wants::Any;
        if let Some(held) = self.held.pop_front_if(|_| !is_ahead) {
            jobs.push(match held {
                HeldWork::Own(job) => {
                    let id = self.id(job.frame).child(job.index);
                    let (departure, parcel) = self.depart(programs, AwayWork::Spawned(job), id);
                    Taken::Own(departure, parcel)
                }
                HeldWork::Root(root) => {
                    let id = JobId::ROOT.child(root.tag.name.number);
                    let (departure, parcel) = self.depart(programs, AwayWork::Root(root), id);
                    Taken::Own(departure, parcel)
                }
                HeldWork::Hosted(key, parcel) => Taken::Hosted(key, parcel),
            });
            self.tell_held();
        } else if self.hosted.is_empty() || is_ahead {
            let taken = match self.take_tasks(programs, most, terms) {
                // Tasks are worth more to others than what lies below them.
                tasks if !tasks.is_empty() || is_ahead => tasks,
                _ => self.take_oldest(most),
            };
            for job in taken {
                let id = self.id(job.frame).child(job.index);
                let (shape, named) = self.shape_of(programs, job.frame, job.index, job.work);
                let mut values = self.needs.clone();
                values.extend(named);
                let load = JobLoad {
                    shape,
                    parts: 0,
                    values,
                    absent: self.absent_data(job.frame, job.index),
                };
                let looked_at =
                    mix(request ^ u64::from(job.index) << 32 ^ u64::from(job.frame) << 40);
                let is_picked = self.picky == 0 || looked_at.is_multiple_of(self.picky);
                if !is_picked || !terms.accept(&load) {
                    not_worth.push(load);
                    self.stays_after_all(job);
                    continue;
                }
                self.see_unclaimed(None, &job);
                let (departure, parcel) = self.depart(programs, AwayWork::Spawned(job), id);
                jobs.push(Taken::Own(departure, parcel));
            }
        } else {
            let most = self.hosted.len().div_ceil(2).min(most as usize);
            let taken = self.hosted.drain(..most);
            jobs.extend(taken.map(|(key, parcel)| Taken::Hosted(key, parcel)));
        }
        let left = self.takeable() as u32;
        let is_short = jobs.len() < most as usize;
        match is_ahead {
            true => self.surplus_armed = is_short,
            false => self.armed = is_short,
        }
        if is_short {
            self.fresh = false;
            if !is_ahead {
                self.ask_to_publish();
            }
        }
        self.events.push_back(Event::Took(TookJobs {
            request,
            jobs,
            left,
            not_worth,
            samples: std::mem::take(&mut self.samples),
        }));
    }

    /// The oldest public job and siblings of it, never more than half of them.
    fn take_oldest(&mut self, most: u32) -> Vec<Spawned> {
        let frames = &self.frames;
        let lanes = self.lanes.iter_mut().filter(|lane| lane.public > 0);
        let oldest = lanes.min_by_key(|lane| {
            let frame = frames[lane.deque[0].frame as usize].as_ref();
            frame.map(|frame| frame.depth)
        });
        let Some(lane) = oldest else {
            return Vec::new();
        };
        let parent = lane.deque[0].frame;
        let public = lane.deque.iter().take(lane.public);
        let siblings = public.take_while(|job| job.frame == parent).count();
        let most = siblings.div_ceil(2).min(most as usize);
        lane.public -= most;
        lane.deque.drain(..most).collect()
    }

    fn depart(&mut self, programs: &[Program], job: AwayWork, id: JobId) -> (DepartureId, Parcel) {
        self.departures += 1;
        let departure = DepartureId(self.departures);
        let (program, run, work, back) = match &job {
            AwayWork::Spawned(job) => {
                self.set_child(job.frame, job.index, ChildState::Away);
                let (program, tag) = self.program_of(job.frame);
                (program, tag, job.work, job.back)
            }
            AwayWork::Root(root) => (root.program, root.tag, root.work, root.back),
        };
        let (bytes, named, keeps) = match &job {
            AwayWork::Spawned(job) => {
                let (shape, named) = self.shape_of(programs, job.frame, job.index, work);
                (shape.own_bytes() as usize, named, shape.keeps)
            }
            AwayWork::Root(_) => (
                programs[program as usize].argument_bytes(work),
                Vec::new(),
                false,
            ),
        };
        self.away.insert(departure, job);
        let mut needs = self.needed();
        needs.extend(named.iter().map(|value| value.name));
        let parcel = Parcel {
            id,
            function: program,
            arguments: work.pack(bytes).into(),
            fingerprint: self.fingerprint(work),
            needs,
            lent: named.iter().map(|value| value.bytes).collect(),
            keeps,
            owner: 0,
            term: run.term,
            root: run.name.fingerprint,
            history: back.history,
        };
        (departure, parcel)
    }

    fn needed(&self) -> Vec<ValueName> {
        self.needs.iter().map(|value| value.name).collect()
    }

    fn id(&self, frame: u32) -> JobId {
        let mut path = Vec::new();
        let mut at = frame;
        loop {
            let frame = self.frames[at as usize].as_ref();
            match &frame.expect("a frame outlives what refers to it").home {
                ResultPlace::Root(tag) => path.push(tag.name.number),
                ResultPlace::Child { frame, index } => {
                    path.push(*index);
                    at = *frame;
                    continue;
                }
                ResultPlace::Hosted(_, id) => {
                    let above: Vec<u32> = id.path().collect();
                    path.extend(above.iter().rev());
                }
            }
            return path.into_iter().rev().collect();
        }
    }

    pub(super) fn start(&mut self, key: HostedId, parcel: Parcel) {
        self.hosted.push_back((key, parcel));
        self.fresh = true;
    }

    /// A job that is away is settled: it must be away, or have been recalled.
    fn come_back(&mut self, departure: DepartureId) -> Option<AwayWork> {
        let job = self.away.remove(&departure);
        // The recall of a job may cross its answer: once.
        if job.is_none() && !self.recalled.remove(&departure) {
            let story = format!("{departure:?} comes back a second time");
            self.stray.get_or_insert(story);
        }
        job
    }

    pub(super) fn deliver(
        &mut self,
        programs: &[Program],
        departure: DepartureId,
        answer: &Answer,
    ) {
        let outcome = match answer {
            Answer::Result { bytes, .. } => {
                let result = bytes.first_chunk().expect("a result has 8 bytes");
                Ok(u64::from_le_bytes(*result))
            }
            Answer::Panicked(story) => Err(story.clone()),
            Answer::Refused(_) | Answer::Aborted | Answer::Unfit(_) => {
                return self.put_back(departure, Back::default());
            }
        };
        match self.come_back(departure) {
            Some(AwayWork::Spawned(job)) => {
                if let Ok(result) = outcome {
                    self.see_answer(programs, &job, result);
                }
                let outcome = outcome.map(Some);
                let kept = answer.kept();
                self.child_done(programs, job.frame, job.index, outcome, None, kept);
            }
            Some(AwayWork::Root(root)) => {
                let finished = match outcome {
                    Ok(result) => Finished::Result(result, false),
                    Err(story) => Finished::Panicked(story),
                };
                self.finished.push((root.tag, finished));
            }
            None => self.refuse_kept(answer),
        }
    }

    /// An answer came that the workers do not take.
    pub(super) fn refuse_kept(&mut self, answer: &Answer) {
        if let Some(kept) = answer.kept() {
            for value in &kept.values {
                self.say_unneeded(Some(kept.at), value.name);
            }
        }
    }

    /// Facts that were known of the job before are not forgotten.
    pub(super) fn put_back(&mut self, departure: DepartureId, back: Back) {
        let job = self.come_back(departure);
        self.done.came_back += u64::from(job.is_some());
        match job {
            Some(AwayWork::Spawned(mut job)) => {
                job.back = back.after(job.back);
                if job.back.at_once {
                    let (frame, index) = (job.frame, job.index);
                    self.note(frame, |workers| {
                        Noted::AtOnce(workers.id(frame).child(index))
                    });
                }
                job.repairs |= back.history.marked;
                let is_task = self.frame(job.frame).flow.is_some();
                match (job.back.held, job.back.stays && is_task) {
                    (true, _) => self.hold_own(job),
                    (false, true) => self.keep_task(job),
                    (false, false) => self.queue_again(job),
                }
            }
            Some(AwayWork::Root(mut root)) => {
                root.back = back.after(root.back);
                match root.back.held {
                    true => self.hold_root(root),
                    false => self.roots.push_front(root),
                }
            }
            None => {}
        }
    }

    // ---- bounds

    /// Is that better than what was known of the root job?
    pub(super) fn improve(&mut self, root: RootName, found: BestLeaf) -> bool {
        let known = self.best.get(&root);
        let better = known.is_none_or(|known| found.cost < known.cost);
        if better {
            self.best.insert(root, found);
        }
        better
    }

    pub(super) fn forget_root(&mut self, root: RootName) {
        self.best.retain(|other, _| !root.ends(*other));
        self.data.forget_root(root);
    }

    /// The best that the workers know of a root job.
    pub(super) fn best_of(&self, root: RootName) -> Option<BestLeaf> {
        self.best.get(&root).copied()
    }

    // ---- looking inside

    /// Children of invocations under way that have no result.
    pub(super) fn unsettled(&self) -> usize {
        let children = self.frames.iter().flatten();
        let children = children.flat_map(|frame| &frame.children);
        let unsettled = children.filter(|child| !matches!(child.is, ChildState::Done(_)));
        unsettled.count()
    }

    /// The job that is away under that name.
    pub(super) fn id_of(&mut self, departure: DepartureId) -> Option<JobId> {
        match self.away.get(&departure).copied()? {
            AwayWork::Spawned(job) => Some(self.id(job.frame).child(job.index)),
            AwayWork::Root(root) => Some(JobId::ROOT.child(root.tag.name.number)),
        }
    }

    /// The jobs on the stack of a worker, from the bottom up.
    #[cfg(test)]
    pub(super) fn on_stack(&self, lane: usize) -> Vec<String> {
        let stack = self.lanes[lane].stack.iter();
        stack.map(|frame| self.id(*frame).to_string()).collect()
    }

    /// Names a job that came back although it was not away.
    pub(super) fn stray(&self) -> Option<&str> {
        self.stray.as_deref()
    }

    /// Is each child of each frame in exactly one place? Says which is not.
    pub(super) fn audit(&self) -> Result<(), String> {
        if let Some(story) = &self.broken {
            return Err(story.clone());
        }
        let mut places: BTreeMap<(u32, u32), ChildState> = BTreeMap::new();
        let queued = self.lanes.iter().flat_map(|lane| &lane.deque);
        let queued = queued.chain(self.boards.all());
        let queued = queued.map(|job| (job.frame, job.index, ChildState::Queued));
        let held = self.held.iter().filter_map(|held| match held {
            HeldWork::Own(job) => Some((job.frame, job.index, ChildState::Held)),
            HeldWork::Root(_) | HeldWork::Hosted(..) => None,
        });
        let queued = queued.chain(held);
        let away = self.away.values().filter_map(|job| match job {
            AwayWork::Spawned(job) => Some((job.frame, job.index, ChildState::Away)),
            AwayWork::Root(_) => None,
        });
        let running = self.lanes.iter().flat_map(|lane| &lane.stack);
        let running =
            running.filter_map(|place| match self.frames[*place as usize].as_ref()?.home {
                ResultPlace::Child { frame, index } => Some((frame, index, ChildState::Running)),
                _ => None,
            });
        for (frame, index, is) in queued.chain(away).chain(running) {
            if let Some(was) = places.insert((frame, index), is) {
                return Err(format!("child {index} of a frame is {was:?} and {is:?}"));
            }
        }
        let frames = (0..).zip(&self.frames);
        for (place, frame) in frames.filter_map(|(place, frame)| Some((place, frame.as_ref()?))) {
            let mut pending = 0;
            for (index, child) in (frame.passed..).zip(&frame.children) {
                let (found, is) = (places.remove(&(place, index)), child.is);
                let done = matches!(is, ChildState::Done(_));
                pending += u32::from(!done);
                let waits = matches!(is, ChildState::Waiting | ChildState::Fetching);
                let is_somewhere = !done && !waits;
                if found != is_somewhere.then_some(is) {
                    return Err(format!(
                        "child {index} of a frame is {is:?}, and {found:?} is found"
                    ));
                }
            }
            if pending != frame.pending {
                let said = frame.pending;
                return Err(format!("{pending} children pend, not {said}"));
            }
        }
        match places.first_key_value() {
            Some(((_, index), is)) => Err(format!("{is:?} child {index} belongs to no frame")),
            None => Ok(()),
        }
    }
}

/// A shared value that takes no memory.
struct ImaginaryValue(ValueName);

impl Value for ImaginaryValue {
    fn name(&self) -> ValueName {
        self.0
    }

    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn cost(&self) -> usize {
        0
    }

    fn decoded(&self, _: TypeId, read: &mut Read<'_>) -> Result<Decoded, CodecError> {
        read(&[])
    }
}

/// The hash of a child's id.
fn descend(path: u64, index: u32) -> u64 {
    mix(path ^ u64::from(index + 1))
}
