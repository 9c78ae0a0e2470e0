//! Data of imaginary flows: what a task makes has parts, which are at home, with its flow, or kept by the node that made them.
//!
//! As in `worker/flow`: a task whose parts are elsewhere leaves with their names; a worker of the flow that is to run it has them
//! brought first. A part that nobody has any more is made again, by the task that made it, and before that by those whose parts that task
//! reads. What nothing reads any more is let go; what no task reads, the closure takes home at its end.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{ChildState, ImaginaryWorkers, Invocation, Spawned, flows::FlowUnderWay};
use crate::{
    job::{
        JobShape, Kept, KeptElsewhere, RootName, ValueName, ValueSize, function::most_kept,
        loans::SMALL,
    },
    node::{
        Event, Rule,
        cluster::{
            HeldBytes, HeldValues, lock,
            program::{Program, Work, mix},
        },
    },
};

/// Stands for all parts of what a task makes.
const ALL: u32 = u32::MAX;

/// A part of what a task has made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    value: ValueSize,
    /// It is here, with the flow.
    home: bool,
    /// The number of the node that keeps it.
    at: Option<u128>,
    /// The number of the request by which it is being brought.
    ticket: Option<u64>,
    /// Nothing reads it, and its keeper may drop it: if what was made of it is lost, it is asked for all the same.
    is_let_go: bool,
}

impl Part {
    fn is_gone(&self) -> bool {
        !self.home && self.at.is_none()
    }

    /// Must it be brought or made again before a task that reads it can run, here or elsewhere?
    fn is_missing(&self) -> bool {
        self.is_gone() || self.is_let_go
    }

    /// Do tasks that leave mention it by name?
    fn is_named(&self) -> bool {
        !self.home || self.value.bytes > SMALL as u64
    }
}

/// The data of a flow.
pub(super) struct FlowData {
    /// What each task reads: the tasks that made it, and the parts.
    takes: Vec<Vec<(u32, u32)>>,
    /// Who reads what each task makes.
    readers: Vec<Vec<(u32, u32)>>,
    /// What each task has made, if it is done.
    parts: Vec<Vec<Part>>,
    /// Tasks that are done again, as what they made was lost.
    again: Vec<bool>,
}

impl FlowData {
    pub(super) fn new(program: &Program, work: Work, inputs: &[&[u32]]) -> FlowData {
        let takes: Vec<Vec<(u32, u32)>> = (0..)
            .zip(inputs)
            .map(|(index, inputs)| match program.takes(work, index) {
                Some(takes) => takes.to_vec(),
                None => inputs.iter().map(|maker| (*maker, ALL)).collect(),
            })
            .collect();
        let mut readers = vec![Vec::new(); inputs.len()];
        for (reader, takes) in (0..).zip(&takes) {
            for (maker, part) in takes {
                readers[*maker as usize].push((reader, *part));
            }
        }
        FlowData {
            takes,
            readers,
            parts: vec![Vec::new(); inputs.len()],
            again: vec![false; inputs.len()],
        }
    }

    /// The parts that a task reads, as far as they have been made: their makers and numbers.
    fn read_by(&self, index: u32) -> impl Iterator<Item = (u32, u32, Part)> + '_ {
        let takes = self.takes[index as usize].iter();
        takes.flat_map(|(maker, part)| {
            let parts = (0..).zip(&self.parts[*maker as usize]);
            let parts = parts.filter(move |(number, _)| *part == ALL || number == part);
            parts.map(|(number, part)| (*maker, number, *part))
        })
    }

    /// Those of them that are not here.
    fn not_here(&self, index: u32) -> impl Iterator<Item = (u32, u32, Part)> + '_ {
        self.read_by(index).filter(|(_, _, part)| !part.home)
    }

    /// The node that keeps the first that the task reads of what is kept by one.
    pub(super) fn keeper(&self, index: u32, me: u128) -> Option<u128> {
        let mut parts = self.read_by(index);
        parts.find_map(|(_, _, part)| part.at.filter(|at| *at != me))
    }

    fn readers_of(&self, maker: u32, part: u32) -> impl Iterator<Item = u32> + '_ {
        let readers = self.readers[maker as usize].iter();
        let readers = readers.filter(move |(_, read)| *read == ALL || *read == part);
        readers.map(|(reader, _)| *reader)
    }

    /// The parts that no task reads.
    fn taken_home(&self) -> impl Iterator<Item = (u32, u32, Part)> + '_ {
        let tasks = (0..).zip(&self.parts);
        let parts = tasks.flat_map(|(maker, parts)| {
            let parts = (0..).zip(parts);
            parts.map(move |(number, part)| (maker, number, *part))
        });
        parts.filter(|(maker, part, _)| self.readers_of(*maker, *part).next().is_none())
    }

    /// Is a part missing that the task reads?
    pub(super) fn lacks(&self, index: u32) -> bool {
        self.read_by(index).any(|(_, _, part)| part.is_missing())
    }

    /// Is all that is missing for the task being brought?
    pub(super) fn is_brought(&self, index: u32) -> bool {
        let mut missing = self.read_by(index).filter(|(_, _, part)| part.is_missing());
        missing.all(|(_, _, part)| part.ticket.is_some())
    }

    pub(super) fn is_again(&self, index: u32) -> bool {
        self.again[index as usize]
    }

    /// Who reads any part of what that task makes.
    fn readers(&self, maker: u32) -> Vec<u32> {
        let readers = self.readers[maker as usize].iter();
        let mut readers: Vec<u32> = readers.map(|(reader, _)| *reader).collect();
        readers.dedup();
        readers
    }
}

/// The data of flows that are in a node's store of values.
pub(in crate::node::cluster) struct DataStore {
    values: HeldValues,
    /// What is kept for the owners of hosted tasks, as often as it was made.
    kept: BTreeMap<RootName, BTreeMap<ValueName, u32>>,
    /// What is at home, with flows of this node, as often as it was made.
    home: BTreeMap<ValueName, u32>,
    /// What has come for jobs that wait for it.
    awaited: BTreeMap<ValueName, (RootName, u64)>,
    /// What was borrowed, or kept before, the last first.
    recent: VecDeque<(RootName, ValueSize)>,
    /// Bytes of that.
    recent_bytes: u64,
    /// Bytes for which there is room; as its configuration says, once a node has it.
    room: u64,
    /// Values that were kept until their root job was over.
    pub(in crate::node::cluster) kept_to_the_end: u64,
}

impl DataStore {
    pub(super) fn new(values: HeldValues) -> DataStore {
        DataStore {
            values,
            kept: BTreeMap::new(),
            home: BTreeMap::new(),
            awaited: BTreeMap::new(),
            recent: VecDeque::new(),
            recent_bytes: 0,
            room: u64::MAX,
            kept_to_the_end: 0,
        }
    }

    pub(in crate::node::cluster) fn set_room(&mut self, bytes: u64) {
        self.room = bytes;
    }

    fn insert(&self, value: ValueSize) {
        let mut values = lock(&self.values);
        let bytes = HeldBytes::Zeros(value.bytes);
        values.entry(value.name).or_insert(bytes);
    }

    fn has(&self, name: ValueName) -> bool {
        lock(&self.values).contains_key(&name)
    }

    fn drop_unless_held(&self, name: ValueName) {
        let is_kept = self.kept.values().any(|kept| kept.contains_key(&name));
        let is_recent = self.recent.iter().any(|(_, value)| value.name == name);
        let is_awaited = self.awaited.contains_key(&name);
        if !is_kept && !is_recent && !is_awaited && !self.home.contains_key(&name) {
            lock(&self.values).remove(&name);
        }
    }

    fn keep(&mut self, root: RootName, value: ValueSize) {
        *(self.kept.entry(root).or_default())
            .entry(value.name)
            .or_default() += 1;
        self.insert(value);
    }

    /// The owners of these can do without them.
    pub(in crate::node::cluster) fn drop_kept(&mut self, names: &[ValueName]) {
        for name in names {
            let mut all = self.kept.iter_mut();
            let bytes = lock(&self.values).get(name).map_or(0, HeldBytes::len);
            if let Some((root, kept)) = all.find(|(_, kept)| kept.contains_key(name)) {
                let root = *root;
                take_one(kept, *name);
                self.borrowed(root, ValueSize { name: *name, bytes });
            }
            self.drop_unless_held(*name);
        }
        self.kept.retain(|_, kept| !kept.is_empty());
    }

    fn put_home(&mut self, value: ValueSize) {
        *self.home.entry(value.name).or_default() += 1;
        self.insert(value);
    }

    fn drop_home(&mut self, root: RootName, value: ValueSize) {
        take_one(&mut self.home, value.name);
        self.borrowed(root, value);
    }

    /// A value has come from elsewhere: it stays for the jobs that wait for it.
    pub(in crate::node::cluster) fn arrived(&mut self, root: RootName, value: ValueSize) {
        self.insert(value);
        self.awaited.insert(value.name, (root, value.bytes));
    }

    /// No job waits for these any more.
    pub(in crate::node::cluster) fn are_borrowed(&mut self, names: &[ValueName]) {
        for name in names {
            if let Some((root, bytes)) = self.awaited.remove(name) {
                self.borrowed(root, ValueSize { name: *name, bytes });
            }
        }
    }

    /// A job has borrowed the value, or nothing reads it any more: it stays as long as there is room.
    fn borrowed(&mut self, root: RootName, value: ValueSize) {
        self.insert(value);
        let before = self.recent.len();
        self.recent.retain(|(_, other)| other.name != value.name);
        self.recent_bytes -= value.bytes * (before - self.recent.len()) as u64;
        self.recent.push_front((root, value));
        self.recent_bytes += value.bytes;
        while self.recent_bytes > self.room && self.recent.len() > 1 {
            self.forget_one();
        }
    }

    /// Drops what was borrowed first.
    pub(in crate::node::cluster) fn forget_one(&mut self) -> bool {
        let Some((_, value)) = self.recent.pop_back() else {
            return false;
        };
        self.recent_bytes -= value.bytes;
        self.drop_unless_held(value.name);
        true
    }

    pub(super) fn forget_root(&mut self, root: RootName) {
        let kept = self.kept.extract_if(.., |other, _| root.ends(*other));
        let mut gone: Vec<ValueName> = kept.flat_map(|(_, kept)| kept.into_keys()).collect();
        self.kept_to_the_end += gone.len() as u64;
        self.recent.retain(|(other, value)| {
            let is_over = root.ends(*other);
            if is_over {
                gone.push(value.name);
                self.recent_bytes -= value.bytes;
            }
            !is_over
        });
        let awaited = self
            .awaited
            .extract_if(.., |_, (other, _)| root.ends(*other));
        gone.extend(awaited.map(|(name, _)| name));
        for name in gone {
            self.drop_unless_held(name);
        }
    }

    pub(in crate::node::cluster) fn has_borrowed(&self) -> bool {
        !self.recent.is_empty()
    }

    /// Number of values that are kept for others, and that are at home.
    pub(in crate::node::cluster) fn len(&self) -> (usize, usize) {
        let kept = self.kept.values().map(BTreeMap::len).sum();
        (kept, self.home.len())
    }
}

fn take_one(counts: &mut BTreeMap<ValueName, u32>, name: ValueName) {
    if let Some(times) = counts.get_mut(&name) {
        *times -= 1;
        if *times == 0 {
            counts.remove(&name);
        }
    }
}

/// What is missing of a flow's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    frame: u32,
    maker: u32,
    part: u32,
}

impl Invocation {
    fn data(&self) -> Option<&FlowData> {
        self.flow.as_deref().map(FlowUnderWay::data)
    }

    /// Is all that the task has made here, with the flow?
    pub(super) fn is_whole(&self, index: u32) -> bool {
        self.data().is_none_or(|data| {
            let mut parts = data.parts[index as usize].iter();
            parts.all(|part| part.home || part.is_gone())
        })
    }
}

impl ImaginaryWorkers {
    fn data_of(&mut self, frame: u32) -> Option<&mut FlowData> {
        self.frame(frame)
            .flow
            .as_deref_mut()
            .map(FlowUnderWay::data_mut)
    }

    // ---- the node that runs a task

    /// What is kept here of the result of a hosted task, and the bytes of what goes home.
    pub(super) fn keep_parts(
        &mut self,
        program: &Program,
        frame: &Invocation,
        result: u64,
        took: Duration,
    ) -> (Option<Box<Kept>>, usize) {
        let parts = program.parts(frame.work, result);
        let all: u64 = parts.iter().map(|part| part.bytes).sum();
        let is_large = all > most_kept(took) as u64;
        let dice = mix(frame.nonce);
        let is_kept = |number: u64, part: &ValueSize| match program.given(frame.work) {
            Some(_) => is_large && part.bytes > SMALL as u64,
            None => dice % 100 < program.keeps && !mix(dice ^ number).is_multiple_of(3),
        };
        let (mut values, mut home) = (Vec::new(), 0);
        for (number, part) in (0..).zip(&parts) {
            match frame.keeps && is_kept(number, part) {
                true => values.push(*part),
                false => home += part.bytes as usize,
            }
        }
        for value in &values {
            self.data.keep(frame.tag.name, *value);
        }
        let kept = (!values.is_empty()).then(|| Box::new(Kept { at: 0, values }));
        (kept, home)
    }

    // ---- the flow's node

    /// What a task would move if it left: its shape, and what it mentions by name.
    pub(super) fn shape_of(
        &self,
        programs: &[Program],
        parent: u32,
        index: u32,
        work: Work,
    ) -> (JobShape, Vec<ValueSize>) {
        let frame = self.frames[parent as usize].as_ref();
        let frame = frame.expect("it has children");
        let program = &programs[frame.program as usize];
        let (mut named, mut own) = (Vec::new(), program.argument_bytes(work) as u64);
        if let Some(data) = frame.data() {
            for (_, _, part) in data.read_by(index) {
                match part.is_named() {
                    true => named.push(part.value),
                    false => own += part.value.bytes,
                }
            }
        }
        let lent = named.iter().map(|value| value.bytes).sum();
        let shape = JobShape {
            function: frame.program,
            depth: frame.depth as u16 + 1,
            bytes: own + lent,
            is_more: false,
            lent,
            keeps: frame.flow.is_some() && program.keeps > 0,
        };
        (shape, named)
    }

    /// What a task reads and is not here.
    pub(super) fn absent_data(&self, parent: u32, index: u32) -> BTreeSet<ValueName> {
        let frame = self.frames[parent as usize].as_ref();
        let data = frame.and_then(Invocation::data).into_iter();
        let absent = data.flat_map(|data| data.not_here(index));
        absent.map(|(_, _, part)| part.value.name).collect()
    }

    /// A task is done: what it has made is here, or kept elsewhere.
    pub(super) fn enter_parts(
        &mut self,
        programs: &[Program],
        parent: u32,
        index: u32,
        result: u64,
        kept: Option<&Kept>,
    ) {
        let frame = self.frame(parent);
        let program = &programs[frame.program as usize];
        let Some(child) = frame.children.get(index as usize) else {
            return;
        };
        let made = program.parts(child.work, result);
        let Some(flow) = frame.flow.as_deref_mut() else {
            return;
        };
        let data = flow.data_mut();
        let keeper = |name: ValueName| {
            let is_kept = |kept: &&Kept| kept.values.iter().any(|value| value.name == name);
            kept.filter(is_kept).map(|kept| kept.at)
        };
        let parts = made.into_iter().map(|value| {
            let at = keeper(value.name);
            Part {
                value,
                home: at.is_none(),
                at,
                ticket: None,
                is_let_go: false,
            }
        });
        let parts: Vec<Part> = parts.collect();
        if frame.stop.is_some() {
            for part in parts {
                self.say_unneeded(part.at, part.value.name);
            }
            return;
        }
        data.parts[index as usize].clone_from(&parts);
        data.again[index as usize] = false;
        let mut makers: Vec<u32> = data.takes[index as usize]
            .iter()
            .map(|(maker, _)| *maker)
            .collect();
        makers.sort_unstable();
        makers.dedup();
        for part in &parts {
            match part.home {
                true => self.data.put_home(part.value),
                false => self.flows.kept += 1,
            }
        }
        for maker in makers.into_iter().chain([index]) {
            self.let_go_unread(parent, maker);
        }
        self.tell_to_prefetch(parent, index);
    }

    /// As `worker/flow/prefetch.rs`: tasks that wait for what a task has made are likely to run on the nodes that keep what else they read,
    /// and these may fetch it already.
    fn tell_to_prefetch(&mut self, parent: u32, maker: u32) {
        let me = self.me;
        let frame = self.frame(parent);
        let root = frame.tag.name;
        let Some(data) = frame.data() else { return };
        let mut told = Vec::new();
        for (number, part) in (0..).zip(&data.parts[maker as usize]) {
            if !part.is_named() || part.is_missing() {
                continue;
            }
            let waits = |reader: &u32| frame.children[*reader as usize].is == ChildState::Waiting;
            let readers = data.readers_of(maker, number).filter(waits);
            let keepers = readers.filter_map(|reader| data.keeper(reader, me));
            let others = keepers.filter(|keeper| Some(*keeper) != part.at);
            let at = part.at.filter(|_| !part.home);
            let mut others: Vec<u128> = others.collect();
            others.sort_unstable();
            others.dedup();
            told.extend(others.into_iter().map(|to| (to, part.value, at)));
        }
        for (to, value, at) in told {
            let wanted = Event::Prefetch {
                to,
                value,
                root,
                at,
            };
            self.events.push_back(wanted);
        }
    }

    fn let_go_unread(&mut self, parent: u32, maker: u32) {
        let frame = self.frame(parent);
        let Some(data) = frame.data() else {
            return;
        };
        let is_done =
            |reader: u32| matches!(frame.children[reader as usize].is, ChildState::Done(_));
        let numbers = 0..data.parts[maker as usize].len() as u32;
        let unread = numbers.filter(|part| {
            let mut readers = data.readers_of(maker, *part).peekable();
            // What no task reads the closure takes.
            readers.peek().is_some() && readers.all(is_done)
        });
        let unread: Vec<u32> = unread.collect();
        for part in unread {
            self.let_go_lightly(parent, maker, part);
        }
    }

    /// Nothing reads the part any more. Where it is it stays as long as there is room: it may be wanted once more, if what was made of it is
    /// lost.
    fn let_go_lightly(&mut self, parent: u32, maker: u32, part: u32) {
        let me = self.me;
        let root = self.frame(parent).tag.name;
        let data = self.data_of(parent).expect("it has parts");
        let part = &mut data.parts[maker as usize][part as usize];
        if part.is_missing() {
            return;
        }
        let before = *part;
        part.at = before.at.or(Some(me));
        (part.home, part.ticket, part.is_let_go) = (false, None, true);
        if before.home {
            self.data.drop_home(root, before.value);
        }
        self.say_unneeded(before.at, before.value.name);
        if let Some(ticket) = before.ticket {
            self.wanted.remove(&ticket);
        }
    }

    /// The flow is over, or the part is to be made again.
    fn let_part_go(&mut self, parent: u32, maker: u32, part: u32) {
        let root = self.frame(parent).tag.name;
        let data = self.data_of(parent).expect("it has parts");
        let part = &mut data.parts[maker as usize][part as usize];
        let Part {
            value,
            home,
            at,
            ticket,
            is_let_go,
        } = *part;
        (part.home, part.at, part.ticket) = (false, None, None);
        if home {
            self.data.drop_home(root, value);
        }
        self.say_unneeded(at.filter(|_| !is_let_go), value.name);
        if let Some(ticket) = ticket {
            self.wanted.remove(&ticket);
        }
    }

    pub(super) fn say_unneeded(&mut self, at: Option<u128>, name: ValueName) {
        if let Some(at) = at {
            self.unneeded.entry(at).or_default().push(name);
        }
    }

    /// The flow is over, or stops: all of its data can go. The tasks are returned that waited for theirs to be brought.
    pub(super) fn let_all_go(&mut self, parent: u32) -> Vec<u32> {
        let Some(data) = self.data_of(parent) else {
            return Vec::new();
        };
        let tasks = (0..).zip(&data.parts);
        let all = tasks.flat_map(|(maker, parts)| (0..parts.len() as u32).map(move |n| (maker, n)));
        let all: Vec<(u32, u32)> = all.collect();
        for (maker, part) in all {
            self.let_part_go(parent, maker, part);
        }
        if let Some(data) = self.data_of(parent) {
            data.parts.iter_mut().for_each(Vec::clear);
        }
        let fetching = self.fetching.extract_if(.., |job| job.frame == parent);
        fetching.map(|job| job.index).collect()
    }

    /// True if the task waits for data to be brought: a worker here was about to run it.
    pub(super) fn must_fetch(&mut self, job: &Spawned) -> bool {
        let Some(data) = self.data_of(job.frame) else {
            return false;
        };
        let missing = data.not_here(job.index);
        let missing: Vec<(u32, u32)> = missing.map(|(maker, part, _)| (maker, part)).collect();
        if missing.is_empty() {
            return false;
        }
        for (maker, part) in missing {
            self.fetch(job.frame, maker, part);
        }
        self.set_child(job.frame, job.index, ChildState::Fetching);
        self.fetching.push(*job);
        true
    }

    /// Are all data here that the task reads?
    pub(super) fn has_data(&self, job: &Spawned) -> bool {
        let frame = self.frames[job.frame as usize].as_ref();
        let data = frame.and_then(Invocation::data);
        data.is_none_or(|data| data.not_here(job.index).next().is_none())
    }

    fn fetch(&mut self, frame: u32, maker: u32, part: u32) {
        let ticket = self.tickets + 1;
        let root = self.frame(frame).tag.name;
        let data = self.data_of(frame).expect("it has parts");
        let one = &mut data.parts[maker as usize][part as usize];
        if let (false, Some(at), None) = (one.home, one.at, one.ticket) {
            one.ticket = Some(ticket);
            let name = one.value.name;
            self.tickets = ticket;
            self.wanted.insert(ticket, Wanted { frame, maker, part });
            let kept = KeptElsewhere {
                ticket,
                name,
                at,
                root,
            };
            self.events.push_back(Event::Bring(kept));
        }
    }

    /// A part has been brought, or is lost. False if nobody here asked for it.
    pub(in crate::node::cluster) fn brought(
        &mut self,
        programs: &[Program],
        ticket: u64,
        value: Option<ValueName>,
    ) -> bool {
        if ticket == 0 || ticket > self.tickets {
            return false;
        }
        let Some(Wanted { frame, maker, part }) = self.wanted.remove(&ticket) else {
            return true; // it was let go meanwhile
        };
        // It may have had to make room for others.
        let is_here = value.is_some_and(|name| self.data.has(name));
        let leaving = self.leaving_keepers.clone();
        let data = self.data_of(frame).expect("it has parts");
        let one = &mut data.parts[maker as usize][part as usize];
        one.ticket = None;
        one.home = is_here;
        let value = one.value;
        let is_let_go = std::mem::take(&mut one.is_let_go);
        let leaves = one.at.is_some_and(|at| leaving.contains(&at));
        let at = one.at.take_if(|_| !is_here || leaves || is_let_go);
        self.say_unneeded(at.filter(|_| !is_let_go), value.name);
        if is_here {
            self.flows.brought += 1;
            self.data.put_home(value);
        } else {
            self.flows.lost += 1;
            if !self.without.contains(&Rule::Lineage) {
                self.make_again(programs, frame, maker);
            }
        }
        self.look_at_fetching(programs, frame, maker);
        true
    }

    /// What this task made was lost: it is run again, after those whose parts it reads and that are gone.
    fn make_again(&mut self, programs: &[Program], frame: u32, maker: u32) {
        let is = self.frame(frame).children[maker as usize].is;
        if !matches!(is, ChildState::Done(_)) {
            return;
        }
        self.flows.again += 1;
        let data = self.data_of(frame).expect("it has parts");
        data.again[maker as usize] = true;
        let readers = data.readers(maker);
        let mut before: Vec<u32> = data
            .read_by(maker)
            .filter(|(_, _, part)| part.is_gone())
            .map(|(maker, ..)| maker)
            .collect();
        before.dedup();
        let let_go = data.read_by(maker).filter(|(_, _, part)| part.is_let_go);
        let let_go: Vec<(u32, u32)> = let_go.map(|(maker, part, _)| (maker, part)).collect();
        for part in 0..data.parts[maker as usize].len() as u32 {
            self.let_part_go(frame, maker, part);
        }
        let data = self.data_of(frame).expect("it has parts");
        data.parts[maker as usize].clear();
        let invocation = self.frame(frame);
        invocation.children[maker as usize].is = ChildState::Waiting;
        invocation.pending += 1;
        for reader in readers {
            self.wait_again(frame, reader);
        }
        for maker in before {
            self.make_again(programs, frame, maker);
        }
        for (maker, part) in let_go {
            self.fetch(frame, maker, part);
        }
        if self.frame(frame).has_inputs(maker) {
            self.make_ready(programs, frame, maker, None);
        }
    }

    /// A task that could run cannot any more: what it reads is being made again.
    fn wait_again(&mut self, frame: u32, index: u32) {
        if self.frame(frame).children[index as usize].is != ChildState::Queued {
            return;
        }
        let depth = self.frame(frame).depth;
        self.boards.remove(depth, frame, index);
        for lane in &mut self.lanes {
            let (before, public) = (lane.deque.len(), lane.public);
            lane.deque
                .retain(|job| job.frame != frame || job.index != index);
            lane.public = public.saturating_sub(before - lane.deque.len());
        }
        self.set_child(frame, index, ChildState::Waiting);
    }

    /// What that task made has come, or is made again: tasks that wait for it to be brought go on, or wait for it to be made.
    fn look_at_fetching(&mut self, programs: &[Program], frame: u32, maker: u32) {
        let Some(data) = self.frame(frame).data() else {
            return;
        };
        let readers = data.readers(maker);
        let reads = |job: &mut Spawned| job.frame == frame && readers.contains(&job.index);
        let waiting: Vec<Spawned> = self.fetching.extract_if(.., reads).collect();
        let waits_again = !self.without.contains(&Rule::Lineage);
        for job in waiting {
            let invocation = self.frame(frame);
            let data = invocation.data().expect("it is a flow");
            let is_home = data.not_here(job.index).next().is_none();
            if waits_again && !invocation.has_inputs(job.index) {
                self.set_child(frame, job.index, ChildState::Waiting);
            } else if is_home {
                let depth = invocation.depth;
                self.set_child(frame, job.index, ChildState::Queued);
                self.boards.push(None, depth, job);
                self.fresh = true;
            } else {
                self.fetching.push(job);
            }
        }
        self.show_waiting(programs, frame, maker, None);
    }

    /// All tasks of a flow are done: is all at home that its closure takes? What is not is brought, or made again.
    pub(super) fn takes_home(&mut self, programs: &[Program], frame: u32) -> bool {
        let Some(data) = self.frame(frame).data() else {
            return true;
        };
        let missing = data.taken_home().filter(|(_, _, part)| !part.home);
        let missing: Vec<(u32, u32, Part)> = missing.collect();
        for (maker, part, one) in &missing {
            match one.is_gone() {
                true => self.make_again(programs, frame, *maker),
                false => self.fetch(frame, *maker, *part),
            }
        }
        missing.is_empty()
    }

    /// A thief could not have that value: it is brought home, or made again.
    pub(in crate::node::cluster) fn bring_home(&mut self, name: ValueName) {
        for (frame, maker, part) in
            self.parts_that(|part| part.value.name == name && !part.is_missing())
        {
            self.fetch(frame, maker, part);
        }
    }

    /// The parts for which that holds, of all flows here: the flows' frames, their makers and numbers.
    fn parts_that(&self, is_it: impl Fn(&Part) -> bool) -> Vec<(u32, u32, u32)> {
        let mut found = Vec::new();
        for (frame, invocation) in (0..).zip(&self.frames) {
            let Some(data) = invocation.as_ref().and_then(Invocation::data) else {
                continue;
            };
            for (maker, parts) in (0..).zip(&data.parts) {
                let parts = (0..).zip(parts).filter(|(_, part)| is_it(part));
                found.extend(parts.map(|(number, _)| (frame, maker, number)));
            }
        }
        found
    }

    /// A node leaves: what it keeps for flows here is brought home.
    pub(in crate::node::cluster) fn keeper_leaves(&mut self, keeper: u128) {
        self.leaving_keepers.insert(keeper);
        for (frame, maker, part) in
            self.parts_that(|part| part.at == Some(keeper) && !part.is_let_go)
        {
            let data = self.data_of(frame).expect("it has parts");
            let one = &mut data.parts[maker as usize][part as usize];
            if one.home {
                let (at, name) = (one.at.take(), one.value.name);
                self.say_unneeded(at, name);
            } else {
                self.fetch(frame, maker, part);
            }
        }
    }

    /// Tells the keepers what can go.
    pub(super) fn tell_unneeded(&mut self) {
        for (at, names) in std::mem::take(&mut self.unneeded) {
            self.events.push_back(Event::Unneeded { at, names });
        }
    }

    // ---- for those who check it

    /// A task whose data are being brought, or were lost, and for which nothing is done.
    pub(super) fn forgotten_data(&self) -> Option<String> {
        for job in &self.fetching {
            let frame = self.frames[job.frame as usize].as_ref();
            let data = frame.and_then(Invocation::data)?;
            let mut missing = data.not_here(job.index);
            if missing.any(|(_, _, part)| part.ticket.is_none()) {
                let id = self.id(job.frame).child(job.index);
                return Some(format!("task {id} waits for data that nobody brings"));
            }
        }
        None
    }
}
