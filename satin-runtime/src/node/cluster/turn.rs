//! A node's turn: what follows at one moment from what happened to it.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    time::Duration,
};

use super::super::{Action, Event, Lattices, Message, Notice, words};
use super::workers::Finished;
use super::{
    BEST, BestLeaf, Cluster, Happening, HeldBytes, Noted, Promises, Running, Smallest, ValueParts,
    lock, program::is_imagined,
};
use crate::job::{Answer, Back, JobId, JobName, RootRun, RootTag, Saved, ValueSize};

impl Cluster {
    /// Carries out all that follows at this moment from an event of a node.
    pub(super) fn run_node(&mut self, index: u32) {
        loop {
            let now = self.now;
            let slot = &mut self.slots[index as usize];
            if !slot.alive {
                return;
            }
            slot.workers.run(&self.programs);
            let bursts = std::mem::take(&mut slot.workers.bursts);
            for (lane, time) in &bursts {
                let slot = &mut self.slots[index as usize];
                let ends = now + time.mul_f64(slot.slowness);
                let number = slot.workers.burst_begins(*lane, ends);
                self.schedule(ends, Happening::BurstOver(index, *lane, number));
            }
            let slot = &mut self.slots[index as usize];
            slot.workers.bursts = bursts;
            slot.workers.bursts.clear();
            if let Some(delay) = slot.workers.publish.take() {
                self.schedule(now + delay, Happening::Publish(index));
            }
            let slot = &mut self.slots[index as usize];
            if let Some(patience) = slot.workers.patience.take() {
                self.schedule(now + patience, Happening::PatienceEnds(index));
            }
            let slot = &mut self.slots[index as usize];
            if let Some(begun) = &mut slot.workers.begun
                && let Some(runs) = &mut self.runs
            {
                for path in begun.drain(..) {
                    *runs.entry(path).or_default() += 1;
                }
            }
            self.copy_notes(index);
            let slot = &mut self.slots[index as usize];
            if let Some((tag, finished)) = slot.workers.finished.pop() {
                self.finish_root(index, tag, finished);
            }
            let slot = &mut self.slots[index as usize];
            while let Some(event) = slot.workers.events.pop_front() {
                slot.ends_main |= matches!(event, Event::MainEnded(_));
                if let Event::Done(_, answer) = &event
                    && let Some(promises) = &mut self.promises
                    && let Some(offered) = Cluster::make_promise(promises, slot, answer)
                {
                    slot.node.handle(slot.clock.reads(now), offered);
                }
                if self.trace
                    && let Some(words) = words::event(&event)
                {
                    let who = words::name(slot.node.view().me().peer);
                    print_line(now, &who, &words);
                }
                slot.node.handle(slot.clock.reads(now), event);
            }
            let mut any = false;
            while let Some(action) = self.slots[index as usize].node.poll_action() {
                any = true;
                self.perform(index, action);
            }
            if !any && self.slots[index as usize].workers.events.is_empty() {
                break;
            }
        }
        self.note_run(index);
        if self.slots[index as usize].workers.poisoned {
            return self.crash(index);
        }
        let slot = &mut self.slots[index as usize];
        let (master, me) = (slot.node.side().master, slot.node.view().me().peer.id);
        if slot.node.lacks_master() {
            slot.leaderless.get_or_insert(self.now);
        } else if master.is_none_or(|(_, master)| master != me) {
            slot.leaderless = None;
        }
        let due = slot.node.poll_timeout();
        if let Some(due) = due.map(|due| slot.clock.moment(due))
            && slot.timer.is_none_or(|timer| due < timer)
        {
            let due = due.max(self.now);
            slot.timer = Some(due);
            self.schedule(due, Happening::Timeout(index));
        }
    }

    pub(super) fn finish_root(&mut self, node: u32, tag: RootRun, finished: Finished) {
        let (now, keep_after) = (self.now, self.keep_after);
        let slot = self.slot_mut(node);
        if let Some(other) = slot.others.get_mut(&tag) {
            other.finish(finished);
            slot.workers.events.push_back(Event::RootFinished(tag));
            return;
        }
        let Some(running) = slot.running.filter(|running| running.tag == tag) else {
            // The root job had to be given up before the next main could start.
            return;
        };
        match finished {
            Finished::GivenUp(saved) => slot.have_yielded(saved),
            _ if slot.yields => slot.have_yielded(Vec::new()),
            Finished::Result(result, ours) => {
                if slot.keeps && ours && now >= running.since + keep_after {
                    slot.running = Some(Running {
                        result: Some(result),
                        ..running
                    });
                    let bytes = size_of_val(&result);
                    let answer = slot.workers.answer_of(result, bytes);
                    let saved = Saved {
                        name: JobName::new(
                            JobId::ROOT.child(tag.name.number),
                            self.programs[running.program as usize].root().fingerprint(),
                        ),
                        root: tag.name.fingerprint,
                        answer,
                    };
                    self.note(node, Noted::RootKept(saved.name.clone()));
                    let events = &mut self.slot_mut(node).workers.events;
                    events.push_back(Event::RootResult(tag.tag(), saved, Duration::MAX));
                } else {
                    self.main_sees(node, tag, result);
                }
            }
            Finished::Cancelled => {
                slot.running = None;
                if let Some(main) = &mut slot.main {
                    main.programs.push_front(running.program);
                }
                slot.workers.events.push_back(Event::RootFinished(tag));
                self.go_on_with_main(node);
            }
            Finished::Panicked(story) => {
                slot.panics.push(story);
                slot.running = None;
                if let Some(main) = &mut slot.main {
                    main.programs.clear();
                    main.code = main.code.map(|_| 101);
                }
                slot.workers.events.push_back(Event::RootFinished(tag));
                self.note_seen(node, tag);
                self.go_on_with_main(node);
            }
        }
    }

    pub(super) fn root_kept(&mut self, node: u32, tag: RootTag) {
        let running = self.slot(node).running;
        if let Some(running) = running.filter(|running| running.tag.tag() == tag)
            && let Some(result) = running.result
        {
            self.main_sees(node, running.tag, result);
        }
    }

    pub(super) fn note_seen(&mut self, node: u32, tag: RootRun) {
        if tag.name.is_of_main() {
            self.note(node, Noted::RootSeen(tag.name.number));
        }
    }

    pub(super) fn main_sees(&mut self, node: u32, tag: RootRun, result: u64) {
        self.look_at_bound(node, tag, result);
        self.note_seen(node, tag);
        let slot = self.slot_mut(node);
        slot.workers.events.push_back(Event::RootFinished(tag));
        slot.results.insert(tag, result);
        slot.running = None;
        self.go_on_with_main(node);
    }

    /// Are all results of all roots right?
    ///
    /// # Panics
    /// If a root's result is wrong. `programs` are those that the node was given, in order.
    pub fn check(&self, node: u32, programs: &[u32]) {
        let slot = self.slot(node);
        let results = slot.results.iter().filter(|(tag, _)| tag.term == slot.term);
        let results = results.map(|(_, result)| result);
        let right = programs.iter().map(|program| self.outcome(*program).result);
        assert!(results.copied().eq(right), "a result is wrong");
    }

    /// A line of the trace.
    pub fn say(&self, who: &str, what: &str) {
        print_line(self.now, who, what);
    }

    pub(super) fn perform(&mut self, node: u32, action: Action) {
        if self.trace {
            let slot = self.slot_mut(node);
            let away = match &action {
                Action::Deliver(departure, _) | Action::PutBack(departure, _) => {
                    slot.workers.id_of(*departure)
                }
                _ => None,
            };
            if let Some(words) = words::action(&action, away) {
                self.say(&words::name(self.peer(node)), &words);
            }
        }
        let programs = &self.programs;
        let slot = &mut self.slots[node as usize];
        match action {
            Action::Connect { addr, peer } => {
                slot.dials += u64::from(peer.is_none());
                self.connect(node, addr, peer);
            }
            Action::Probe { addr, peer } => self.probe(node, addr, peer),
            Action::Send(to, message) => {
                if !message.is_about_membership() && !slot.node.view().is_alive(to) {
                    let kind = message.kind();
                    let story = format!("node {node} sends {kind} to {to:?}, whose life is over");
                    self.to_the_dead.get_or_insert(story);
                }
                self.send(node, to, message);
            }
            Action::Disconnect(peer) => {
                let other = self.index(peer);
                let half = self.path(node, other).round_trip / 2;
                let link = self.link(node, other);
                link.waiting.retain(|(to, _)| *to != peer);
                if link.up && !std::mem::replace(&mut link.closing, true) {
                    let (epoch, arrived) = (link.epoch, link.arrived);
                    let at = (self.now + half).max(arrived);
                    for (node, other) in [(node, other), (other, node)] {
                        self.schedule(at, Happening::Lost { node, other, epoch });
                    }
                }
            }
            Action::Take {
                request,
                most,
                terms,
            } => slot.workers.take(programs, request, most, &terms),
            Action::Start(key, parcel) => {
                if parcel.needs.iter().all(|name| slot.has_value(name)) {
                    slot.workers.start(key, parcel);
                } else {
                    // A job may wait for leave to begin, or go onwards and come back, for longer than a value is kept.
                    // What it borrows may go meanwhile, to make room, or as its owner can do without.
                    let may_go = slot.forgets || !parcel.lent.is_empty();
                    assert!(may_go, "a job starts with its values");
                    let refused = Answer::refused("its value is not here any more");
                    slot.workers.events.push_back(Event::Done(key, refused));
                }
            }
            Action::Abort(key) => slot.workers.abort(key),
            Action::Deliver(departure, answer) => {
                let kept = |promises: &Promises| Cluster::is_kept(promises, slot, &answer);
                assert!(
                    self.promises.as_ref().is_none_or(kept),
                    "an answer arrives before what its job had offered"
                );
                if answer.needs().iter().all(|name| slot.has_value(name)) {
                    slot.workers.deliver(programs, departure, &answer);
                } else {
                    // An answer may be kept here for longer than a value that it mentions.
                    assert!(slot.forgets, "an answer arrives before what it mentions");
                    slot.workers.refuse_kept(&answer);
                    let at_once = Back {
                        at_once: true,
                        ..Back::default()
                    };
                    slot.workers.put_back(departure, at_once);
                }
            }
            Action::Hold(key, parcel) => slot.workers.hold(key, parcel),
            Action::Release => slot.workers.release(),
            Action::ReleaseOne(name) => slot.workers.release_one(&name),
            Action::PutBack(departure, back) => slot.workers.put_back(departure, back),
            // Every job of a program here can travel.
            Action::Unfit(..) => {}
            Action::Orphan(news) => slot.workers.orphan(news),
            Action::Save(key) => slot.workers.save(key),
            Action::Harvest { since, reader } => slot.workers.harvest(since, reader),
            Action::KeepRoots(keep) => slot.keeps = keep,
            Action::RootKept(tag) => self.root_kept(node, tag),
            Action::YieldMain => self.yield_main(node),
            Action::RunMain { term } => self.run_main(node, term),
            Action::GiveBack => slot.workers.give_back(),
            // For people who watch.
            Action::NotePart(departure, part) => {
                slot.parts_done.insert(departure, part);
            }
            Action::Hungry(hungry) => slot.hungry = hungry,
            Action::SendPart {
                to,
                name,
                offset,
                length,
            } => {
                let whole = |value: &HeldBytes| value.read(offset, length);
                let read = lock(&slot.values).get(&name).map(whole);
                let arriving = || slot.parts.get(&name)?.read(offset, length);
                let message = match read.or_else(arriving) {
                    None => Message::Unavailable(name),
                    Some((bytes, total)) => Message::Part {
                        name,
                        offset,
                        total,
                        bytes,
                    },
                };
                slot.node.send(to, message);
            }
            Action::Store {
                name,
                root,
                lent: _,
                offset,
                total,
                bytes,
            } => {
                let is_imagined = is_imagined(name);
                let is_first = !slot.parts.contains_key(&name);
                let parts = slot.parts.entry(name).or_insert_with(|| ValueParts {
                    bytes: match is_imagined {
                        true => HeldBytes::Zeros(total),
                        false => HeldBytes::Written(vec![0; total as usize]),
                    },
                    missing: total,
                    here: BTreeSet::new(),
                });
                if let HeldBytes::Written(all) = &mut parts.bytes {
                    let place = offset as usize..offset as usize + bytes.len();
                    all[place].copy_from_slice(&bytes);
                }
                if parts.here.insert(offset) {
                    parts.missing -= bytes.len() as u64;
                }
                if parts.missing > 0 {
                    let stored = Event::PieceStored {
                        name,
                        offset,
                        is_first,
                    };
                    slot.workers.events.push_back(stored);
                } else {
                    let all = slot.parts.remove(&name).expect("it was there").bytes;
                    let right = match &all {
                        HeldBytes::Written(all) => *blake3::hash(all).as_bytes() == name.0,
                        HeldBytes::Zeros(_) => true,
                    };
                    slot.workers.events.push_back(match right {
                        true => Event::Stored(name),
                        false => Event::Corrupt(name),
                    });
                    if is_imagined {
                        let bytes = total;
                        (slot.workers.data).arrived(root, ValueSize { name, bytes });
                    } else if right {
                        lock(&slot.values).insert(name, all);
                    }
                }
            }
            Action::DropPieces(name) => _ = slot.parts.remove(&name),
            Action::Borrowed(names) => slot.workers.data.are_borrowed(&names),
            Action::Brought { ticket, value } => {
                if !slot.workers.brought(programs, ticket, value) {
                    slot.brought.push((ticket, value));
                }
            }
            Action::DropKept(names) => slot.workers.data.drop_kept(&names),
            Action::BringHome(name) => {
                slot.to_bring_home.push(name);
                slot.workers.bring_home(name);
            }
            Action::KeeperLeaves(keeper) => {
                slot.keepers_leaving.push(keeper);
                slot.workers.keeper_gone(keeper);
                slot.workers.keeper_leaves(keeper);
            }
            Action::ForgetRoot(tag) => {
                slot.bounds.retain(|(_, root), _| !tag.ends(*root));
                slot.workers.forget_root(tag);
            }
            Action::Improve(offer) => {
                if offer.bound == BEST {
                    slot.workers
                        .improve(offer.root, BestLeaf::read(&offer.value));
                }
                let place = slot.bounds.entry((offer.bound, offer.root));
                let have = place.or_insert_with(|| offer.value.clone());
                if let Some(better) = Smallest.join(offer.bound, have, &offer.value) {
                    *have = better;
                }
            }
            Action::Storage(order) => self.order(node, order),
            Action::Joined { me, .. } => slot.joined = Some(me),
            Action::StartRoots => {
                slot.may_start = true;
                self.go_on_with_main(node);
            }
            Action::End(end) => {
                if slot.ends_main {
                    // After a partition the pool may have gone on with the run of the other part.
                    let runs = [slot.opened, slot.node.run_epoch()];
                    for run in runs.into_iter().flatten() {
                        self.finish_run(node, run, end.own_code());
                    }
                }
                self.end(node, end.own_code());
            }
            Action::Tell(notice) => {
                if let Notice::Left(who) | Notice::Dead(who) = &notice {
                    slot.workers.keeper_gone(who.peer.id.0);
                }
                slot.notices.push(notice);
            }
        }
    }

    /// The process exits, after what it sent has arrived.
    pub(super) fn end(&mut self, node: u32, code: i32) {
        self.slot_mut(node).ended = Some(code);
        // Actions that the node was about to take at this moment still happen.
        while let Some(action) = self.slot_mut(node).node.poll_action() {
            if let Action::Send(to, message) = action {
                self.send(node, to, message);
            } else if let Action::Tell(notice) = action {
                self.slot_mut(node).notices.push(notice);
            }
        }
        self.note(node, Noted::Gone);
        let slot = self.slot_mut(node);
        slot.alive = false;
        let links: Vec<(u32, u64, Duration)> = (slot.links.iter())
            .filter(|(_, link)| link.up)
            .map(|(other, link)| (*other, link.epoch, link.arrived))
            .collect();
        for (other, epoch, arrived) in links {
            let half = self.path(node, other).round_trip / 2;
            let at = (self.now + half).max(arrived);
            let (node, other) = (other, node);
            self.schedule(at, Happening::Lost { node, other, epoch });
        }
    }
}

/// Prints a line of the trace; a reader that has gone does not matter.
fn print_line(now: Duration, who: &str, what: &str) {
    let now = now.as_secs_f64();
    let _ = writeln!(io::stdout(), "{now:>12.6} {who:<9} {what}");
}
