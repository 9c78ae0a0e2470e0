//! What a story, or the simulator, may do to a pool.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::super::{Event, Message, Peer};
use super::{
    Cluster, Happening, HeldBytes, ImaginaryNode, KnownProgram, Main, MainEnd, MainIs, Noted,
    Outcome, Path, Program, Promises, Running, Smallest, lock, program::imagined,
    workers::Finished,
};
use crate::job::{Answer, BoundName, Offer, RootName, RootRun, ValueName, ValueSize};

impl Cluster {
    /// A program that nodes can run; its result is computed at once, to compare.
    pub fn program(&mut self, program: Program) -> u32 {
        let outcome = program.sequential();
        self.programs.push(program);
        self.known.push(KnownProgram { outcome });
        self.programs.len() as u32 - 1
    }

    /// The right outcome of a program.
    #[must_use]
    pub fn outcome(&self, program: u32) -> Outcome {
        self.known[program as usize].outcome
    }

    /// `main` of that node calls a root job, now. Its result is compared with the right one.
    pub fn start_root(&mut self, node: u32, program: u32) -> RootRun {
        let tag = self.begin_root(node, program);
        self.run_node(node);
        tag
    }

    pub(super) fn begin_root(&mut self, node: u32, program: u32) -> RootRun {
        let work = self.programs[program as usize].root();
        let now = self.now;
        let slot = self.slot_mut(node);
        let tag = RootRun {
            term: slot.term,
            name: RootName {
                number: slot.roots,
                fingerprint: work.fingerprint(),
            },
        };
        slot.roots += 1;
        slot.running = Some(Running {
            tag,
            program,
            since: now,
            result: None,
        });
        slot.workers.events.push_back(Event::RootStarted(tag));
        slot.workers.start_root(tag, program, work);
        let is_higher = |highest: RootName| highest.number < tag.name.number;
        if self.highest_root.is_none_or(is_higher) {
            self.highest_root = Some(tag.name);
        }
        if self.cancelled.contains(&tag.name.number) {
            self.stop_root(node, tag);
        }
        tag
    }

    /// Sets the programs that the node's main calls once it may start roots, one after another; then the main ends the
    /// pool with that code.
    pub fn set_main(&mut self, node: u32, programs: &[u32], code: i32) {
        self.slot_mut(node).main = Some(Main::new(programs, Some(code)));
        self.go_on_with_main(node);
        self.run_node(node);
    }

    /// As [`set_main`](Cluster::set_main) for each node that is, or becomes, master: also for nodes to come. Without a code the
    /// pool does not end before [`end_main`](Cluster::end_main).
    pub fn set_main_everywhere(&mut self, programs: &[u32], code: Option<i32>) {
        let main = Main::new(programs, code);
        for node in 0..self.nodes() {
            self.slot_mut(node).main = Some(main.clone());
        }
        self.main = Some(main);
        for node in 0..self.nodes() {
            self.go_on_with_main(node);
            self.run_node(node);
        }
    }

    /// The mains that came to their end so far: more than one if there were two pools for a while.
    #[must_use]
    pub fn endings(&self) -> &[MainEnd] {
        &self.endings
    }

    pub(super) fn go_on_with_main(&mut self, node: u32) {
        let slot = &mut self.slots[node as usize];
        if slot.running.is_some() || !slot.may_start || slot.yields || !slot.alive {
            return;
        }
        let Some(main) = &mut slot.main else {
            return;
        };
        if let Some(program) = main.programs.pop_front() {
            self.begin_root(node, program);
        } else {
            let (code, term) = (main.code, slot.term);
            if !std::mem::replace(&mut main.over, true) {
                let results = slot.results.iter().filter(|(tag, _)| tag.term == term);
                let results = results.map(|(_, result)| *result).collect();
                self.endings.push(MainEnd {
                    node,
                    term,
                    panicked: !slot.panics.is_empty(),
                    results,
                });
            }
            if let Some(code) = code {
                slot.main = None;
                slot.workers.events.push_back(Event::MainEnded(code));
            }
        }
    }

    /// Each `main` that is over, and whose pool goes on, calls one more root job, which ends at once, if another `main` has
    /// called root jobs with higher numbers. Two that run side by side, in parts of a pool that do not reach each other, may
    /// cancel different root jobs, and so call more or fewer of them. What belongs to a root job of the one that yields is kept
    /// as long as the other may still call a root job of that number: it goes when that has called one, or with the pool.
    pub fn outlast_other_mains(&mut self) {
        for node in 0..self.nodes() {
            let is_over = self.is_alive(node) && self.main_of(node) == MainIs::Over;
            let Some(name) = self.highest_root.filter(|_| is_over) else {
                continue;
            };
            let slot = self.slot(node);
            let term = slot.term;
            if name.number >= slot.roots {
                let run = RootRun { term, name };
                // What is under way of it elsewhere need not be stored any more.
                self.note_seen(node, run);
                let events = &mut self.slot_mut(node).workers.events;
                events.extend([Event::RootStarted(run), Event::RootFinished(run)]);
                self.run_node(node);
            }
        }
    }

    /// Every main ends the pool with that code, at once or when it comes to its end.
    pub fn end_main(&mut self, code: i32) {
        if let Some(main) = &mut self.main {
            main.code = Some(code);
        }
        for node in 0..self.nodes() {
            if let Some(main) = &mut self.slot_mut(node).main {
                main.code = Some(code);
                self.go_on_with_main(node);
                self.run_node(node);
            }
        }
    }

    /// The stage of a node's main.
    #[must_use]
    pub fn main_of(&self, node: u32) -> MainIs {
        let slot = self.slot(node);
        match &slot.main {
            Some(main) if main.over => MainIs::Over,
            Some(_) if slot.may_start && slot.alive => MainIs::Running,
            _ => MainIs::Nowhere,
        }
    }

    /// `main` of that node does not want the root job any more that it waits for, and calls the same program again. A `main` that is run
    /// from the start cancels the root job of that number as well, as soon as it has called it. False if no root job is waited for.
    pub fn cancel_root(&mut self, node: u32) -> bool {
        let slot = self.slot_mut(node);
        let running = slot.running.filter(|running| running.result.is_none());
        let Some(Running { tag, .. }) = running.filter(|_| !slot.yields) else {
            return false;
        };
        self.cancelled.insert(tag.name.number);
        self.stop_root(node, tag);
        self.run_node(node);
        true
    }

    fn stop_root(&mut self, node: u32, tag: RootRun) {
        // From now on nobody wants what is under way of it, so it need not be stored.
        self.note_seen(node, tag);
        if !self.slot_mut(node).workers.cancel_root(tag) {
            self.finish_root(node, tag, Finished::Cancelled);
        }
    }

    /// Another node is to run `main`.
    pub(super) fn yield_main(&mut self, node: u32) {
        let slot = self.slot_mut(node);
        slot.main = None;
        slot.may_start = false;
        slot.yields = true;
        slot.yielded += 1;
        let running = slot.running.map(|running| running.tag);
        if !running.is_some_and(|tag| slot.workers.give_up_root(tag)) {
            slot.have_yielded(Vec::new());
        }
    }

    /// The node is to run `main`, from the start.
    pub(super) fn run_main(&mut self, node: u32, term: u32) {
        let main = self.main.clone();
        let slot = self.slot_mut(node);
        slot.main = main;
        slot.may_start = false;
        slot.yields = false;
        slot.term = term;
        slot.mains.push(term);
        slot.roots = 0;
        slot.running = None;
        self.make_shared(node);
    }

    /// Gives an event to a node.
    pub fn tell(&mut self, node: u32, event: Event) {
        self.slot_mut(node).workers.events.push_back(event);
        self.run_node(node);
    }

    /// Delivers a message that no node of this cluster has sent, on the link that stands between the two if there is one.
    pub fn forge(&mut self, to: u32, from: Peer, message: Message) {
        let other = self.index(from);
        let link = self.slot(to).links.get(&other);
        let epoch = link.map_or(0, |link| link.epoch);
        let event = Event::Received {
            from,
            epoch,
            message,
        };
        self.tell(to, event);
    }

    /// Makes the code of a node fine-grained: its jobs can be taken only `delay` after they were asked for.
    pub fn set_shy(&mut self, node: u32, delay: Option<Duration>) {
        self.slot_mut(node).workers.shy = delay;
    }

    /// The workers there find that jobs are not worth the way, all but one in so many; 0: as the terms say.
    pub fn set_picky(&mut self, node: u32, one_in: u64) {
        self.slot_mut(node).workers.picky = one_in;
    }

    /// Workers there with more frames than this on their stacks take no more while they wait.
    pub fn set_nesting(&mut self, node: u32, frames: usize) {
        self.slot_mut(node).workers.nesting = frames;
    }

    /// From now on workers of that node that have nothing to do do jobs that are away, now and then.
    pub fn do_jobs_twice(&mut self, node: u32) {
        self.slot_mut(node).workers.twice = true;
    }

    /// Counts every beginning of a job from now on, see [`runs`](Cluster::runs). To be called before there are nodes.
    pub fn count_runs(&mut self) {
        self.runs = Some(BTreeMap::new());
    }

    /// A value is made there.
    pub fn make_value(&mut self, node: u32, bytes: Vec<u8>) -> ValueName {
        let name = ValueName(*blake3::hash(&bytes).as_bytes());
        let bytes = HeldBytes::Written(bytes);
        lock(&self.slot(node).values).insert(name, bytes);
        name
    }

    /// A node has data of so many bytes that nobody has ever written; the number tells them apart.
    pub fn imagine_data(&mut self, node: u32, number: u64, bytes: u64) -> ValueName {
        let name = imagined(0, number, bytes);
        lock(&self.slot(node).values).insert(name, HeldBytes::Zeros(bytes));
        name
    }

    /// A byte of a value flips there.
    ///
    /// # Panics
    /// If the value is not there, or empty.
    pub fn spoil_value(&mut self, node: u32, name: ValueName) {
        let mut held = lock(&self.slot(node).values);
        match held.get_mut(&name) {
            Some(HeldBytes::Written(bytes)) => bytes[0] ^= 1,
            _ => panic!("a value that was made there"),
        }
    }

    /// A value is dropped there.
    pub fn drop_value(&mut self, node: u32, name: ValueName) {
        lock(&self.slot(node).values).remove(&name);
    }

    /// The pieces of a value that have come there are dropped, as by another pool of the same process.
    pub fn drop_pieces(&mut self, node: u32, name: ValueName) {
        self.slot_mut(node).parts.remove(&name);
    }

    /// That node has room for so many bytes of data that were borrowed, or that nothing reads any more; as many as it is configured for if it is
    /// not told.
    pub fn set_room(&mut self, node: u32, bytes: u64) {
        self.slot_mut(node).workers.data.set_room(bytes);
    }

    /// The data that tasks have borrowed there are dropped.
    pub fn forget_borrowed(&mut self, node: u32) {
        while self.slot_mut(node).workers.data.forget_one() {}
    }

    /// All jobs that leave that node need these values.
    pub fn set_needs(&mut self, node: u32, needs: &[ValueName]) {
        let size = |name: &ValueName| {
            let mut nodes = self.slots.iter();
            let bytes = nodes.find_map(|slot| Some(lock(&slot.values).get(name)?.len()));
            ValueSize {
                name: *name,
                bytes: bytes.unwrap_or(0),
            }
        };
        let needs = needs.iter().map(size).collect();
        self.slot_mut(node).workers.needs = needs;
    }

    /// A job there has found something better.
    pub fn offer(&mut self, node: u32, bound: BoundName, root: impl Into<RootName>, value: u64) {
        let root = root.into();
        let have = self.bound(node, bound, root);
        if have.is_some_and(|have| have <= value) {
            return;
        }
        let value = Smallest::write(value);
        let bounds = &mut self.slot_mut(node).bounds;
        bounds.insert((bound, root), value.clone());
        self.tell(node, Event::Offered(Offer { bound, root, value }));
    }

    /// Makes every hosted job improve that bound from now on, as the last act of the job. A node that has the job's
    /// answer must know the bound.
    pub fn promise(&mut self, bound: BoundName, root: impl Into<RootName>) {
        let (root, made) = (root.into(), BTreeMap::new());
        self.promises = Some(Promises { bound, root, made });
    }

    /// Number of promises made.
    #[must_use]
    pub fn promises(&self) -> usize {
        let made = |promises: &Promises| promises.made.len();
        self.promises.as_ref().map_or(0, made)
    }

    pub(super) fn make_promise(
        promises: &mut Promises,
        slot: &mut ImaginaryNode,
        answer: &Answer,
    ) -> Option<Event> {
        let Answer::Result { bytes, .. } = answer else {
            return None;
        };
        let Promises { bound, root, made } = promises;
        let better = u64::MAX - made.len() as u64;
        made.insert(bytes.to_vec(), better);
        let value = Smallest::write(better);
        slot.bounds.insert((*bound, *root), value.clone());
        let (bound, root) = (*bound, *root);
        Some(Event::Offered(Offer { bound, root, value }))
    }

    pub(super) fn is_kept(promises: &Promises, slot: &ImaginaryNode, answer: &Answer) -> bool {
        let made = match answer {
            Answer::Result { bytes, .. } => promises.made.get(&**bytes),
            _ => None,
        };
        made.is_none_or(|promised| {
            let known = slot.bounds.get(&(promises.bound, promises.root));
            known.is_some_and(|known| Smallest::read(known) <= *promised)
        })
    }

    /// Lets a node die without a word. Others lose their links to it when no message came for [`Wire::idle_timeout`](super::Wire::idle_timeout).
    pub fn crash(&mut self, node: u32) {
        self.slot_mut(node).alive = false;
        self.note(node, Noted::Gone);
        if self.slots.iter().all(|slot| !slot.alive) {
            self.note(node, Noted::AllGone);
        }
        let others: Vec<(u32, u64)> = (self.slot(node).links.iter())
            .filter(|(_, link)| link.up)
            .map(|(other, link)| (*other, link.epoch))
            .collect();
        for (other, epoch) in others {
            let (node, other) = (other, node);
            let lost = Happening::Lost { node, other, epoch };
            self.schedule(self.now + self.wire.idle_timeout, lost);
        }
    }

    /// A node is told to go.
    pub fn leave(&mut self, node: u32) {
        self.tell(node, Event::Leave);
    }

    /// Stops a node as by `SIGSTOP`: its events wait.
    pub fn freeze(&mut self, node: u32) {
        self.slot_mut(node).frozen = true;
        self.note(node, Noted::Stopped);
    }

    /// Lets a stopped node go on.
    pub fn thaw(&mut self, node: u32) {
        let slot = self.slot_mut(node);
        slot.frozen = false;
        let held = std::mem::take(&mut slot.held);
        for what in held {
            if !matches!(what, Happening::Timeout(_)) {
                self.schedule(self.now, what);
            }
        }
        let now = self.now;
        self.note(node, Noted::WentOn);
        self.slot_mut(node).timer = Some(now);
        self.schedule(now, Happening::Timeout(node));
    }

    /// Tells every live node that a node is dead, as if membership had found out.
    pub fn declare_dead(&mut self, node: u32) {
        let peer = self.peer(node);
        for other in (0..self.nodes()).filter(|other| *other != node) {
            if self.slot(other).alive {
                let now = self.now;
                let slot = self.slot_mut(other);
                slot.node.declare_dead(slot.clock.reads(now), peer);
                self.run_node(other);
            }
        }
    }

    /// Sets the path between two sites from now on.
    pub fn set_path(&mut self, a: &str, b: &str, path: Path) {
        let (a, b) = (self.site(a), self.site(b));
        self.wire.set_path(a, b, path);
    }

    /// Cuts two sites off from each other: messages wait, connections end after [`Wire::idle_timeout`](super::Wire::idle_timeout).
    pub fn partition(&mut self, a: &str, b: &str) {
        let (a, b) = (self.site(a), self.site(b));
        self.wire.cut(a, b);
        self.watch_silence();
    }

    /// Cuts a node off from all others.
    pub fn isolate(&mut self, node: u32) {
        self.wire.isolate(node);
        self.watch_silence();
    }

    pub(super) fn watch_silence(&mut self) {
        for a in 0..self.nodes() {
            let links = self.slot(a).links.iter();
            let cut: Vec<(u32, u64)> = links
                .filter(|(b, link)| link.up && a < **b && self.is_cut(a, **b))
                .map(|(b, link)| (*b, link.epoch))
                .collect();
            for (b, epoch) in cut {
                let at = self.now + self.wire.idle_timeout;
                self.schedule(at, Happening::Silent { a, b, epoch });
            }
        }
    }

    /// Ends all faults of the network: messages that waited arrive.
    pub fn heal(&mut self) {
        self.wire.heal();
        self.send_what_waited();
    }

    /// Ends the cut between two sites: messages between them that waited arrive. Other cuts go on.
    pub fn heal_sites(&mut self, a: &str, b: &str) {
        let (a, b) = (self.site(a), self.site(b));
        self.wire.heal_sites(a, b);
        self.send_what_waited();
    }

    /// What still does not come through waits on.
    fn send_what_waited(&mut self) {
        for node in 0..self.nodes() {
            let others: Vec<u32> = self.slot(node).links.keys().copied().collect();
            for other in others {
                let link = self.link(node, other);
                for (sender, message) in std::mem::take(&mut link.stalled) {
                    self.transmit(node, other, sender, message);
                }
            }
        }
    }

    /// The link between two nodes breaks, with everything on it; the second notices `later`.
    pub fn break_link(&mut self, a: u32, b: u32, later: Duration) {
        let link = self.link(a, b);
        if !link.up {
            return;
        }
        let epoch = link.epoch;
        self.lose(a, b, epoch);
        let (node, other) = (b, a);
        let lost = Happening::Lost { node, other, epoch };
        self.schedule(self.now + later, lost);
    }

    /// The sites that have had a node.
    #[must_use]
    pub fn sites(&self) -> &[Arc<str>] {
        &self.sites
    }

    /// The links that stand, each once.
    #[must_use]
    pub fn links(&self) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        for a in 0..self.nodes() {
            let links = self.slot(a).links.iter();
            all.extend(
                links
                    .filter(|(b, link)| link.up && a < **b)
                    .map(|(b, _)| (a, *b)),
            );
        }
        all
    }

    pub(super) fn site(&self, name: &str) -> u32 {
        let place = self.sites.iter().position(|site| **site == *name);
        place.expect("a site that has had a node") as u32
    }
}
