//! Imaginary workers: real stacks of frames and deques, durations instead of work.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{
    super::{Departure, Event, HostKey, Taken},
    program::{Program, Work},
};
use crate::job::{Answer, Fingerprint, JobId, Parcel, Recall, Repair, RootTag, ValueName};

/// Where the result of a frame goes.
#[derive(Clone, PartialEq, Debug)]
enum Home {
    Root(RootTag),
    Child { frame: u32, index: u32 },
    Hosted(HostKey, JobId),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    /// Begins its next phase.
    Enter,
    /// Has computed, and will spawn so many.
    Spawn(u32),
    /// At a sync.
    Wait,
}

/// An invocation under way.
struct Frame {
    program: u32,
    work: Work,
    home: Home,
    lane: u32,
    depth: u32,
    phase: u32,
    step: Step,
    /// Children spawned so far, over all phases.
    spawned: u32,
    /// Children not yet settled.
    pending: u32,
    result: u64,
    aborted: bool,
    /// A race that is over.
    won: bool,
}

/// A job in a deque.
#[derive(Clone, Copy)]
struct Spawned {
    frame: u32,
    index: u32,
    work: Work,
}

/// One worker.
#[derive(Default)]
struct Lane {
    stack: Vec<u32>,
    deque: VecDeque<Spawned>,
    /// So many of the oldest can be taken from outside.
    public: usize,
    busy: bool,
}

/// What the workers of a node did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Effort {
    /// Time computed, over all workers.
    pub busy: Duration,
    /// Invocations begun.
    pub started: u64,
}

/// The workers of one node.
pub(super) struct Workers {
    lanes: Vec<Lane>,
    frames: Vec<Option<Frame>>,
    free: Vec<u32>,
    roots: VecDeque<(RootTag, u32, Work)>,
    hosted: VecDeque<(HostKey, Parcel)>,
    running: BTreeMap<HostKey, u32>,
    away: BTreeMap<Departure, Spawned>,
    recalled: BTreeSet<Departure>,
    departures: u64,
    armed: bool,
    fresh: bool,
    idle: u32,
    publishing: bool,
    pub(super) needs: Vec<ValueName>,
    /// A worker with more frames than this on its stack takes no more while it waits.
    pub(super) nesting: usize,
    /// Jobs can be taken only so long after somebody asked; `None`: at any time.
    pub(super) shy: Option<Duration>,
    pub(super) events: VecDeque<Event>,
    pub(super) finished: Vec<(RootTag, u64)>,
    /// Bursts that began: the worker, and how long it computes.
    pub(super) bursts: Vec<(u32, Duration)>,
    /// Publish so long from now.
    pub(super) publish: Option<Duration>,
    pub(super) done: Effort,
}

impl Workers {
    pub(super) fn new(threads: u32) -> Workers {
        Workers {
            lanes: (0..threads).map(|_| Lane::default()).collect(),
            frames: Vec::new(),
            free: Vec::new(),
            roots: VecDeque::new(),
            hosted: VecDeque::new(),
            running: BTreeMap::new(),
            away: BTreeMap::new(),
            recalled: BTreeSet::new(),
            departures: 0,
            armed: false,
            fresh: false,
            idle: 0,
            publishing: false,
            needs: Vec::new(),
            nesting: 64,
            shy: None,
            events: VecDeque::new(),
            finished: Vec::new(),
            bursts: Vec::new(),
            publish: None,
            done: Effort::default(),
        }
    }

    /// Nothing runs, waits or is away.
    pub(super) fn is_empty(&self) -> bool {
        self.away.is_empty()
            && self.roots.is_empty()
            && self.running.is_empty()
            && self.hosted.is_empty()
            && (self.lanes.iter()).all(|lane| lane.stack.is_empty() && lane.deque.is_empty())
    }

    pub(super) fn threads(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// Jobs of ours that are away.
    pub(super) fn away(&self) -> usize {
        self.away.len()
    }

    fn frame(&mut self, frame: u32) -> &mut Frame {
        (self.frames[frame as usize].as_mut()).expect("a frame outlives what refers to it")
    }

    fn push(&mut self, lane: u32, program: u32, work: Work, home: Home) {
        let depth = match &home {
            Home::Root(_) => 1,
            Home::Child { frame, .. } => self.frame(*frame).depth + 1,
            Home::Hosted(_, id) => id.path().count() as u32,
        };
        let frame = Frame {
            program,
            work,
            home,
            lane,
            depth,
            phase: 0,
            step: Step::Enter,
            spawned: 0,
            pending: 0,
            result: 0,
            aborted: false,
            won: false,
        };
        self.done.started += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() as u32 - 1
        });
        if let Home::Hosted(key, _) = &frame.home {
            self.running.insert(*key, place);
        }
        self.frames[place as usize] = Some(frame);
        self.lanes[lane as usize].stack.push(place);
    }

    /// A root job waits for a worker.
    pub(super) fn start_root(&mut self, tag: RootTag, program: u32, work: Work) {
        self.roots.push_back((tag, program, work));
    }

    /// A worker has computed.
    pub(super) fn burst_over(&mut self, lane: u32) {
        self.lanes[lane as usize].busy = false;
    }

    /// What was asked for can be taken now.
    pub(super) fn published(&mut self) {
        self.publishing = false;
        for lane in &mut self.lanes {
            self.fresh |= lane.public < lane.deque.len();
            lane.public = lane.deque.len();
        }
    }

    /// Everything that happens at this moment.
    pub(super) fn run(&mut self, programs: &[Program]) {
        while (0..self.threads()).any(|lane| self.advance(programs, lane)) {}
        if self.armed && self.fresh && self.takeable() > 0 {
            self.armed = false;
            self.events.push_back(Event::Public);
        }
        let waits = self.hosted.is_empty();
        let free = |lane: &&Lane| !lane.busy && lane.stack.len() < self.nesting;
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
                _ if self.find(lane) => true,
                _ => return did,
            };
        }
        did
    }

    /// The topmost frame goes on; false if it waits.
    fn step(&mut self, programs: &[Program], top: u32) -> bool {
        let frame = self.frame(top);
        let program = &programs[frame.program as usize];
        if frame.aborted && frame.pending == 0 {
            self.complete(programs, top);
            return true;
        }
        match frame.step {
            Step::Enter => match program.phase(frame.work, frame.phase) {
                None => self.complete(programs, top),
                Some((time, children)) => {
                    frame.phase += 1;
                    frame.step = Step::Spawn(children);
                    if time > Duration::ZERO {
                        let lane = frame.lane;
                        self.lanes[lane as usize].busy = true;
                        self.done.busy += time;
                        self.bursts.push((lane, time));
                    }
                }
            },
            Step::Spawn(children) => {
                let (first, work, lane) = (frame.spawned, frame.work, frame.lane);
                frame.spawned += children;
                frame.pending += children;
                frame.step = Step::Wait;
                let all = (first..first + children).map(|index| Spawned {
                    frame: top,
                    index,
                    work: program.child(work, index),
                });
                let lane = &mut self.lanes[lane as usize];
                lane.deque.extend(all);
                if self.shy.is_none() {
                    lane.public = lane.deque.len();
                }
                self.fresh |= children > 0 && self.shy.is_none();
                if self.armed {
                    self.ask_to_publish();
                }
            }
            Step::Wait if frame.pending == 0 => frame.step = Step::Enter,
            Step::Wait => return false,
        }
        true
    }

    /// Something to run for a worker that has nothing, or waits.
    fn find(&mut self, lane: u32) -> bool {
        let own = &mut self.lanes[lane as usize];
        let room = own.stack.len() < self.nesting;
        let mut job = own.deque.pop_back();
        own.public = own.public.min(own.deque.len());
        if job.is_none() && room {
            let others = self.lanes.iter_mut().filter(|lane| !lane.deque.is_empty());
            let oldest = others.min_by_key(|lane| {
                let frame = self.frames[lane.deque[0].frame as usize].as_ref();
                frame.map(|frame| frame.depth)
            });
            job = oldest.and_then(|lane| {
                lane.public = lane.public.saturating_sub(1);
                lane.deque.pop_front()
            });
        }
        if let Some(Spawned { frame, index, work }) = job {
            let program = self.frame(frame).program;
            self.push(lane, program, work, Home::Child { frame, index });
            return true;
        }
        if !room {
            return false;
        }
        if let Some((tag, program, work)) = self.roots.pop_front() {
            self.push(lane, program, work, Home::Root(tag));
        } else if let Some((key, parcel)) = self.hosted.pop_front() {
            let work = unpack(&parcel.arguments);
            self.push(lane, parcel.function, work, Home::Hosted(key, parcel.id));
        } else {
            return false;
        }
        true
    }

    fn complete(&mut self, programs: &[Program], place: u32) {
        let frame = self.frames[place as usize].take();
        let frame = frame.expect("the topmost frame is there");
        self.free.push(place);
        let top = self.lanes[frame.lane as usize].stack.pop();
        assert_eq!(top, Some(place), "a stack is last in, first out");
        assert_eq!(frame.pending, 0, "a frame outlives its children");
        let own = programs[frame.program as usize].own(frame.work);
        let result = own.wrapping_add(frame.result);
        match frame.home {
            Home::Root(tag) => self.finished.push((tag, result)),
            Home::Child {
                frame: parent,
                index,
            } => {
                let result = (!frame.aborted).then_some(result);
                self.settle(programs, parent, index, result);
            }
            Home::Hosted(key, _) => {
                self.running.remove(&key);
                let bytes = result.to_le_bytes().to_vec();
                let needs = Vec::new();
                let answer = match frame.aborted {
                    true => Answer::Aborted,
                    false => Answer::Result { bytes, needs },
                };
                self.events.push_back(Event::Done(key, answer));
            }
        }
    }

    /// A child is done, with that result; or has been aborted.
    fn settle(&mut self, programs: &[Program], parent: u32, index: u32, result: Option<u64>) {
        let frame = self.frame(parent);
        let program = &programs[frame.program as usize];
        frame.pending -= 1;
        let Some(result) = result else { return };
        if !program.races(frame.work) {
            let share = program.share(index, result);
            frame.result = frame.result.wrapping_add(share);
        } else if !frame.won && !frame.aborted {
            frame.won = true;
            self.abort_children(parent);
        }
    }

    fn abort_children(&mut self, parent: u32) {
        let mut settled = 0;
        for lane in &mut self.lanes {
            let before = lane.deque.len();
            lane.deque.retain(|job| job.frame != parent);
            settled += before - lane.deque.len();
            lane.public = lane.public.min(lane.deque.len());
        }
        let away = self.away.iter();
        let away: Vec<Departure> = away
            .filter(|(_, job)| job.frame == parent)
            .map(|(departure, _)| *departure)
            .collect();
        for departure in away {
            self.away.remove(&departure);
            self.recalled.insert(departure);
            self.events
                .push_back(Event::Recalled(departure, Recall::Unwanted));
            settled += 1;
        }
        self.frame(parent).pending -= settled as u32;
        let is_child =
            |frame: &Frame| matches!(frame.home, Home::Child { frame, .. } if frame == parent);
        for place in 0..self.frames.len() {
            if self.frames[place].as_ref().is_some_and(is_child) {
                self.abort_frame(place as u32);
            }
        }
    }

    fn abort_frame(&mut self, place: u32) {
        if !std::mem::replace(&mut self.frame(place).aborted, true) {
            self.abort_children(place);
        }
    }

    fn takeable(&self) -> usize {
        self.hosted.len() + self.lanes.iter().map(|lane| lane.public).sum::<usize>()
    }

    fn ask_to_publish(&mut self) {
        let hidden = |lane: &Lane| lane.public < lane.deque.len();
        if let Some(delay) = self.shy
            && !self.publishing
            && self.lanes.iter().any(hidden)
        {
            self.publishing = true;
            self.publish = Some(delay);
        }
    }

    /// The oldest job and siblings of it, never more than half of them.
    pub(super) fn take(&mut self, programs: &[Program], request: u64, most: u32) {
        let mut jobs = Vec::new();
        if self.hosted.is_empty() {
            let frames = &self.frames;
            let lanes = self.lanes.iter_mut().filter(|lane| lane.public > 0);
            let oldest = lanes.min_by_key(|lane| {
                let frame = frames[lane.deque[0].frame as usize].as_ref();
                frame.map(|frame| frame.depth)
            });
            if let Some(lane) = oldest {
                let parent = lane.deque[0].frame;
                let public = lane.deque.iter().take(lane.public);
                let siblings = public.take_while(|job| job.frame == parent).count();
                let most = siblings.div_ceil(2).min(most as usize);
                lane.public -= most;
                let taken: Vec<Spawned> = lane.deque.drain(..most).collect();
                jobs.extend(taken.into_iter().map(|job| self.depart(programs, job)));
            }
        } else {
            let most = self.hosted.len().div_ceil(2).min(most as usize);
            let taken = self.hosted.drain(..most);
            jobs.extend(taken.map(|(key, parcel)| Taken::Hosted(key, parcel)));
        }
        let left = self.takeable() as u32;
        if jobs.len() < most as usize {
            self.armed = true;
            self.fresh = false;
            self.ask_to_publish();
        }
        self.events.push_back(Event::Took {
            request,
            jobs,
            left,
        });
    }

    fn depart(&mut self, programs: &[Program], job: Spawned) -> Taken {
        self.departures += 1;
        let departure = Departure(self.departures);
        let program = self.frame(job.frame).program;
        self.away.insert(departure, job);
        let size = programs[program as usize].size.max(12);
        let mut arguments = Vec::with_capacity(size);
        arguments.extend_from_slice(&job.work.seed.to_le_bytes());
        arguments.extend_from_slice(&job.work.height.to_le_bytes());
        arguments.resize(size, 0);
        let parcel = Parcel {
            id: self.id(job.frame).child(job.index),
            function: program,
            arguments,
            fingerprint: Fingerprint(job.work.seed),
            needs: self.needs.clone(),
            term: 0,
            repair: Repair::default(),
        };
        Taken::Own(departure, parcel)
    }

    fn id(&mut self, frame: u32) -> JobId {
        let mut path = Vec::new();
        let mut at = frame;
        loop {
            match &self.frame(at).home {
                Home::Root(tag) => path.push(tag.number),
                Home::Child { frame, index } => {
                    path.push(*index);
                    at = *frame;
                    continue;
                }
                Home::Hosted(_, id) => {
                    let above: Vec<u32> = id.path().collect();
                    path.extend(above.iter().rev());
                }
            }
            return path.into_iter().rev().collect();
        }
    }

    pub(super) fn start(&mut self, key: HostKey, parcel: Parcel) {
        self.hosted.push_back((key, parcel));
        self.fresh = true;
    }

    pub(super) fn abort(&mut self, key: HostKey) {
        if let Some(place) = self.hosted.iter().position(|(hosted, _)| *hosted == key) {
            self.hosted.remove(place);
            let done = Event::Done(key, Answer::Aborted);
            self.events.push_back(done);
        } else if let Some(frame) = self.running.get(&key) {
            self.abort_frame(*frame);
        }
    }

    /// # Panics
    /// If the job is not away: an answer is delivered once.
    pub(super) fn deliver(&mut self, programs: &[Program], departure: Departure, answer: &Answer) {
        let Answer::Result { bytes, .. } = answer else {
            return self.put_back(departure);
        };
        if let Some(job) = self.away.remove(&departure) {
            let mut result = [0; 8];
            result.copy_from_slice(bytes);
            let result = u64::from_le_bytes(result);
            self.settle(programs, job.frame, job.index, Some(result));
        } else {
            let recalled = self.recalled.contains(&departure);
            assert!(recalled, "{departure:?} is delivered twice");
        }
    }

    /// # Panics
    /// If the job is not away.
    pub(super) fn put_back(&mut self, departure: Departure) {
        if let Some(job) = self.away.remove(&departure) {
            let lane = self.frame(job.frame).lane;
            let lane = &mut self.lanes[lane as usize];
            lane.deque.push_front(job);
            lane.public += 1;
            self.fresh = true;
        } else {
            let recalled = self.recalled.contains(&departure);
            assert!(recalled, "{departure:?} comes back twice");
        }
    }
}

fn unpack(arguments: &[u8]) -> Work {
    let (seed, height) = arguments.split_at(8);
    Work {
        seed: u64::from_le_bytes(seed.try_into().expect("8 bytes")),
        height: u32::from_le_bytes(height[..4].try_into().expect("4 bytes")),
    }
}
