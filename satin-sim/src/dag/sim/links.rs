//! Versions on their way. A link sends one at a time: first what is wanted, in the order in which it was asked for, then copies.

use super::{
    Event, Input, Purpose, Sim, State, TaskId, Transfer, VersionId, Violation, members, only,
};
use crate::dag::world::{PROCESSORS_MAX, ProcessorId};

impl Sim<'_> {
    /// A granted task asks for an input that exists.
    pub(super) fn ask(&mut self, task: TaskId, input: usize, to: ProcessorId) {
        if self.progress[task].inputs[input] != Input::Missing {
            return;
        }
        let version = self.graph.tasks[task].inputs[input];
        if self.holders[version] & only(to) != 0 {
            return self.arrived(task, input, to);
        }
        if self.under_way[version] & only(to) != 0 {
            self.progress[task].inputs[input] = Input::Coming;
            return;
        }
        let Some(from) = self.best_source(version, to) else {
            return;
        };
        // Before the link looks which of its versions are still wanted.
        self.progress[task].inputs[input] = Input::Coming;
        self.under_way[version] |= only(to);
        let size = self.graph.versions[version].size;
        let link = self.link(from, to);
        self.links[link].wanted.push_back(version);
        self.loads[link].backlog += size;
        self.outcome.sent += size;
        self.next_transfer(link);
    }

    /// The holder from which a version would come first.
    fn best_source(&self, version: VersionId, to: ProcessorId) -> Option<ProcessorId> {
        let size = self.graph.versions[version].size;
        let time = |from| self.loads[self.link(from, to)].time(size);
        let holders = members(self.holders[version]);
        let holders = holders.filter(|&from| self.processors[from].is_believed);
        holders.min_by(|&a, &b| time(a).total_cmp(&time(b)))
    }

    /// Does a task there wait for that version?
    fn is_wanted(&self, version: VersionId, to: ProcessorId) -> bool {
        let mut readers = self.graph.versions[version].readers.iter();
        readers.any(|reader| {
            self.states[reader.task] == State::Granted(to)
                && self.progress[reader.task].inputs[reader.input] == Input::Coming
        })
    }

    /// Are all tasks done that read that version?
    fn is_consumed(&self, version: VersionId) -> bool {
        let mut readers = self.graph.versions[version].readers.iter();
        readers.all(|reader| self.states[reader.task] == State::Done)
    }

    /// An idle link sends the next version, if both its ends live.
    pub(super) fn next_transfer(&mut self, link: usize) {
        let (from, to) = (link / self.world.processors, link % self.world.processors);
        if self.links[link].current.is_some()
            || !self.processors[from].is_alive
            || !self.processors[to].is_alive
        {
            return;
        }
        while let Some(version) = self.links[link].wanted.pop_front() {
            if self.is_wanted(version, to) {
                return self.begin_transfer(link, version, Purpose::Wanted);
            }
            // Its reader was taken elsewhere.
            self.under_way[version] &= !only(to);
            let size = self.graph.versions[version].size;
            self.loads[link].take(size);
        }
        while let Some(version) = self.links[link].copies.pop_front() {
            let has_it = (self.holders[version] | self.under_way[version]) & only(to) != 0;
            if !has_it && !self.is_consumed(version) {
                self.under_way[version] |= only(to);
                return self.begin_transfer(link, version, Purpose::Copy);
            }
        }
    }

    fn begin_transfer(&mut self, link: usize, version: VersionId, purpose: Purpose) {
        self.links[link].current = Some(Transfer {
            version,
            purpose,
            left: self.graph.versions[version].size,
            since: self.now,
        });
        self.time_transfer(link);
    }

    /// Notes what the link has sent until now.
    pub(super) fn settle_transfer(&mut self, link: usize) {
        let (now, link) = (self.now, &mut self.links[link]);
        if let Some(transfer) = &mut link.current {
            transfer.left = (transfer.left - (now - transfer.since) * link.speed).max(0.0);
            transfer.since = now;
        }
    }

    /// Says anew when the current transfer ends.
    pub(super) fn time_transfer(&mut self, link: usize) {
        self.links[link].generation += 1;
        let (from, to) = (link / self.world.processors, link % self.world.processors);
        if !self.processors[from].is_alive || !self.processors[to].is_alive {
            return;
        }
        if let Some(transfer) = self.links[link].current {
            let at = self.now + transfer.left / self.links[link].speed;
            let generation = self.links[link].generation;
            self.schedule(at, Event::TransferEnds { link, generation });
        }
    }

    pub(super) fn transfer_ends(&mut self, link: usize) -> Result<(), Violation> {
        let (from, to) = (link / self.world.processors, link % self.world.processors);
        let transfer = self.links[link].current.take();
        let transfer = transfer.expect("the event is of this generation");
        let version = transfer.version;
        let size = self.graph.versions[version].size;
        if !self.is_planned() {
            self.loads[link].slowness = 1.0 / self.links[link].speed;
        }
        match transfer.purpose {
            Purpose::Wanted => self.loads[link].take(size),
            Purpose::Copy => self.outcome.copied += size,
        }
        self.under_way[version] &= !only(to);
        if self.holders[version] & only(from) == 0 {
            return Err(self.violation(format!(
                "processor {from} has sent version {version}, which it does not have"
            )));
        }
        if self.policy.receivers_hold() {
            self.holders[version] |= only(to);
        }
        for reader in &self.graph.versions[version].readers {
            if self.states[reader.task] == State::Granted(to)
                && self.progress[reader.task].inputs[reader.input] == Input::Coming
            {
                self.arrived(reader.task, reader.input, to);
            }
        }
        self.next_transfer(link);
        Ok(())
    }

    fn arrived(&mut self, task: TaskId, input: usize, on: ProcessorId) {
        let progress = &mut self.progress[task];
        progress.inputs[input] = Input::Here;
        progress.missing -= 1;
        if progress.missing == 0 {
            self.start_next(on);
        }
    }

    /// The time from now until a version that is under way is there.
    pub(super) fn rest_of_transfer(&self, version: VersionId, to: ProcessorId) -> f64 {
        for from in 0..self.world.processors {
            let index = self.link(from, to);
            let link = &self.links[index];
            if let Some(transfer) = link.current.filter(|current| current.version == version) {
                let sent = (self.now - transfer.since) * link.speed;
                return (transfer.left - sent).max(0.0) * self.loads[index].slowness;
            }
        }
        self.graph.versions[version].size
    }

    /// The time from now until all inputs of a task would be on each processor. Of those that are not made yet: as it is expected.
    pub(super) fn times_to_gather(&self, task: TaskId, live: &[ProcessorId]) -> Times {
        let mut added = [[0.0; PROCESSORS_MAX]; PROCESSORS_MAX];
        let mut longest = [0.0_f64; PROCESSORS_MAX];
        for &version in &self.graph.tasks[task].inputs {
            let holders = self.holders[version];
            let size = self.graph.versions[version].size;
            if holders == 0 {
                let writer = self.graph.versions[version].writer;
                let Some(on) = self.states[writer].processor() else {
                    continue;
                };
                let made = self.progress[writer].expected_end - self.now;
                for &to in live {
                    let slowness = self.loads[self.link(on, to)].slowness;
                    let sending = if on == to { 0.0 } else { size * slowness };
                    longest[to] = longest[to].max(made + sending);
                }
                continue;
            }
            for &to in live {
                if holders & only(to) != 0 {
                    continue;
                }
                let added = &mut added[to];
                let mut best = (f64::INFINITY, to);
                for from in members(holders) {
                    let time = self.loads[self.link(from, to)].time(added[from] + size);
                    if time < best.0 {
                        best = (time, from);
                    }
                }
                let (time, from) = best;
                added[from] += size;
                longest[to] = longest[to].max(time);
            }
        }
        longest
    }
}

/// A time for each processor.
pub(super) type Times = [f64; PROCESSORS_MAX];
