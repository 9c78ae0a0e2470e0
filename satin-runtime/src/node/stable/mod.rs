//! Stable storage, as a node uses it: what outlives all nodes.
//!
//! A run is one program, from its first start to its end. The master of a pool that has begun finds the run in the store, or
//! makes a new one, and tells all nodes. From then on each node writes, once a period, what it has that no job above has
//! taken up yet: the facts that its workers have harvested, and the results that it keeps for others. When all nodes have
//! died, the master of the next pool loads these, keeps them as it would keep those of a node that has left, and calls
//! `main`: its jobs find themselves in the orphan table.
//!
//! The rules, and what goes wrong without them:
//!
//! * **Load first** ([`Rule::LoadFirst`]): root jobs wait until what earlier epochs wrote is in the master's table; and no node
//!   begins a job of another, or drops a mark, before that is in its own. Otherwise jobs are begun before it is known what is
//!   done, and all of it is done again.
//! * **Bounds** ([`Rule::StoredBounds`]): a batch begins with the bounds of its root jobs, read after its facts were
//!   collected. Otherwise a result comes back, and the optimum that it offered, or was pruned by, does not. A log that is read
//!   when its node dies may have the result of a root job that is over here: its bounds are kept beside that. Of jobs that are
//!   not wanted any more nothing is collected: their root job may be over, and its bounds forgotten.
//! * **Values**: the log has the values that a result mentions before the result, and whoever loads the result has them before
//!   anybody claims it. Otherwise nobody could read it. (The driver sees to that: the node knows names only.)
//! * **One writer**: a life appends to its own log only.
//! * **Inherit** ([`Rule::ReadLogs`]): when a node dies, the master reads its log, and only then says that it has announced
//!   all that is left of it. Otherwise what was written is done again, although somebody will load it some day.
//! * **Never wait**: nothing but the first root job waits for the store, and that not for ever. One batch is on its way at a
//!   time; what cannot be written stays where it is, and goes with the next.
//! * **Epoch** ([`Rule::Epoch`]): each start of a run is an epoch, which one of several starts gets. A master that finds a
//!   higher epoch ends, and removes nothing. Otherwise two pools work on one run, and the first that is done deletes it
//!   under the other's hands.
//! * **One main** ([`Rule::OneMain`]): the master creates a file in the store before its `main` begins, and gives a sign of life there from
//!   time to time. A side of a cut that has lost the master, and sees the store, elects none while these signs go on; and only the
//!   latest `main` removes the run. Otherwise both sides run `main` although both see the store, both print, and the first that is done removes
//!   the run under the other's hands. (A side that does not see the store cannot know: its `main` is not the latest then, and publishes
//!   nothing.)
//! * **Covered** ([`Rule::Covered`]): now and then a node writes all that is alive anew, and forgets its earlier segments two
//!   periods later; nothing is written anew before that. Forgotten at once, the parts of a job whose result its origin has not
//!   written yet would be nowhere.
//! * **Subsume**: of two facts the upper one suffices. Where they are gathered and where they are loaded the lower one goes.
//!
//! The other rules hold elsewhere: that a result is whole, and its fingerprint taken before the job runs, in the harvest; what
//! a torn log, another program or another credential are worth, in `stable`.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Action, Context, HarvestReader, MainStep, Message, NodeId, Notice, Peer, PendingArrival,
    ProtocolConfig, Rule, RunEpoch, StorageOrder,
    expiry::{Expiry, ran_out},
    repair::Repair,
    shared::Bounds,
};
use crate::job::{Answer, Batch, Gathered, JobName, MainBeat, Offer, Saved, StoredFact};

#[cfg(test)]
mod tests;

/// The shortest period. Too small: the machine is busy with small writes; at 10 ms QAP on all cores took 6 % longer. Too large:
/// who wants the least to be lost loses more.
const SHORTEST: Duration = Duration::from_millis(50);

/// The wait of a new master for the store. Too small: what a slow store has is done again. Too large: a store that never
/// answers delays every master by that.
const OPEN_MOST: Duration = Duration::from_secs(60);

/// The wait before what could not be written is tried again, at least. Too small: a store in trouble has no rest.
const AGAIN: Duration = Duration::from_secs(1);

/// The wait before a master that could not find the run looks again. Too small: a store in trouble has no rest. Too large:
/// nothing is written for so long after the trouble.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The longest wait of a node that leaves for its last batch, and the part of its grace that it waits at most. Too small: a
/// period is lost if all nodes leave together. Too large: less time for handing over.
const LAST_BATCH: (Duration, u32) = (Duration::from_secs(2), 4);

/// A batch that is on its way for so long is reported, and again whenever so much time has passed. Too small: words about a store
/// that is slow for a moment. Too large: people learn late that nothing is stored.
const LATE: Duration = Duration::from_secs(60);

/// The bytes of results of root jobs that wait to be written, at most: else the oldest goes. Too small: results of a `main` that
/// calls many are not stored while the store has a rest. Too large: memory, while it takes nothing.
const MOST_ROOTS: usize = 512 << 20;

/// A larger result is not written: a batch may have 256 MiB.
const LARGEST: usize = 240 << 20;

/// All that is alive is written anew once so many times as much has been written since. Too small: the same is written again
/// and again. Too large: logs grow.
const GROWTH: usize = 4;

/// The time between two signs of life of `main`, at most, and the part of [`ProtocolConfig::partition_wait`] that it is at most. Too short: the store
/// has no rest. Too long: what died alone is missed late by those who are cut off from it.
const BEAT: (Duration, u32) = (Duration::from_secs(5), 6);

/// A `main` that has missed so many signs of life does not go on. Too few: a store that is slow for a moment makes a second `main`. Too many: the
/// end of one that died in a cut is noticed late.
const BEATS: u32 = 3;

/// The shortest time between two signs of life. Too short: the store has no rest.
const SHORTEST_BEAT: Duration = Duration::from_millis(100);

/// A batch on its way to the store.
struct Writing {
    number: u64,
    since: Duration,
    /// When people are told that the store has not taken it yet.
    late: Duration,
    /// The facts of the workers up to this number are in the batch.
    upto: u64,
    /// The results of others that are in the batch.
    kept: BTreeSet<JobName>,
    /// So many of the results of root jobs are in the batch.
    roots: usize,
    offers: Vec<Offer>,
    bytes: usize,
    /// There was no room for more in the batch.
    is_full: bool,
}

/// A batch that is being filled.
struct Filling {
    facts: Vec<StoredFact>,
    bytes: usize,
    /// The most that it is to have.
    most: usize,
    is_full: bool,
}

/// This node is master.
#[derive(Clone, Copy)]
pub(crate) struct Mastery {
    /// The node that founded the pool.
    pub(crate) founder: NodeId,
    /// `main` waits for what stands in the store.
    pub(crate) main_waits: bool,
}

/// What follows a node's last batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterLast {
    /// The node leaves, and has to have done so then.
    Leave(Duration),
    /// The pool ends with that exit code, although `main` has not come to its end.
    End(i32),
}

impl AfterLast {
    /// What follows if this node is asked twice: the end goes before, and else what is sooner.
    fn or(self, other: AfterLast) -> AfterLast {
        match (self, other) {
            (AfterLast::Leave(one), AfterLast::Leave(other)) => AfterLast::Leave(one.min(other)),
            (end @ AfterLast::End(_), _) | (_, end) => end,
        }
    }
}

/// This node is to go, and writes what it has before.
#[derive(Clone, Copy)]
struct LastBatch {
    /// The batch is waited for until then.
    until: Duration,
    then: AfterLast,
}

/// All that is alive is being written anew.
#[derive(Clone, Copy, Default)]
struct Rewrite {
    /// The segment that it begins with, once the first batch stands there.
    first: Option<u32>,
    bytes: usize,
}

/// What this node has in stable storage.
#[derive(Default)]
pub(crate) struct Storage {
    /// The run that goes on.
    run: Option<RunEpoch>,
    /// The term for whose `main` the driver has been told to look for the run.
    opened_for: Option<u32>,
    /// The driver is looking for the run until then.
    opening: Option<Duration>,
    /// The store does not answer: nobody is to wait for it.
    is_without: bool,
    /// When a master without a store looks for the run once more.
    again: Option<Duration>,
    /// When the next period begins; `None` while there is no run, or one is being served.
    due: Option<Duration>,
    /// The workers are being asked for facts above that number, since that term.
    asked: Option<(u64, u32)>,
    writing: Option<Writing>,
    rewrite: Option<Rewrite>,
    /// The number of the last batch.
    number: u64,
    /// The facts of the workers up to this number are written.
    has: u64,
    /// Results of root jobs that are not written yet, with the bounds that belong to each: those go when a root job is over.
    roots: Vec<(StoredFact, Vec<Offer>)>,
    root_bytes: usize,
    /// Results of others that are kept here and stand in this life's log, without those of root jobs, which stay there.
    kept: BTreeSet<JobName>,
    /// The bounds as they were written last.
    offers: Vec<Offer>,
    /// Bytes that were written since all was, and then.
    since_whole: usize,
    whole: usize,
    /// The segments before that one are forgotten then.
    forget: Option<(Duration, u32)>,
    /// When this node looks next which `main` is the latest, and what it does then.
    beat: Option<(Duration, MainStep)>,
    /// The latest `main`, as the store said last.
    latest: Option<MainBeat>,
    /// When that last changed.
    changed: Duration,
    /// The store has been asked, and has not answered yet.
    is_looking: bool,
    /// A later `main` than that of this node runs at another side of a cut: the user has been told.
    is_behind: bool,
    last: Option<LastBatch>,
    /// The next period begins at once.
    hurries: bool,
    /// Jobs of other nodes that begin when what stands in the store is in the table.
    put_off: Vec<(Peer, PendingArrival)>,
}

impl Storage {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let forget = self.forget.map(|(at, _)| at);
        let last = self.last.map(|last| last.until);
        let late = self.writing.as_ref().map(|writing| writing.late);
        let beat = self.beat.map(|(at, _)| at);
        let times = [self.opening, self.again, self.due, forget, last, late, beat];
        times.into_iter().flatten().min()
    }

    /// The run that goes on, if it is known.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn run(&self) -> Option<RunEpoch> {
        self.run
    }

    /// This node looks whether the `main` of the master that it has lost goes on.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn waits_for_main(&self) -> bool {
        matches!(self.beat, Some((_, MainStep::Wait)))
    }

    /// A batch is on its way that has no room for all that is to be written.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn writes_full_batch(&self) -> bool {
        let writing = self.writing.as_ref();
        writing.is_some_and(|writing| writing.is_full)
    }

    /// This node leaves its side of a cut: the run that goes on is that of the other side.
    pub(crate) fn come_over(&mut self) {
        self.opened_for = None;
        (self.opening, self.again) = (None, None);
    }

    /// This node has come in: no mark is dropped before what stands in the store is in its table.
    pub(crate) fn come_in(&mut self, cx: &mut Context<'_>) {
        // The next life has a log of its own, and how much may be in that does not depend on what the former one had.
        (self.forget, self.rewrite) = (None, None);
        (self.since_whole, self.whole) = (0, 0);
        if cx.config.has_store() && self.run.is_none() && cx.config.obeys(Rule::LoadFirst) {
            cx.table.await_load(cx.now);
        }
    }

    /// A job of another node has come before what stands in the store: it waits for that.
    pub(crate) fn put_off(&mut self, from: Peer, job: PendingArrival) {
        self.put_off.push((from, job));
    }

    /// The jobs that need not wait any more.
    pub(crate) fn take_put_off(&mut self, cx: &mut Context<'_>) -> Vec<(Peer, PendingArrival)> {
        match self.put_off.is_empty() || cx.table.is_loading(cx.view) {
            true => Vec::new(),
            false => std::mem::take(&mut self.put_off),
        }
    }

    /// The end of a turn: a new master looks for the run, and a period begins when there is one.
    pub(crate) fn look(
        &mut self,
        cx: &mut Context<'_>,
        mastery: Option<Mastery>,
        lacks_master: bool,
    ) {
        let step = match mastery {
            Some(_) => Some(MainStep::GoOn),
            None => lacks_master.then_some(MainStep::Wait),
        };
        match step.filter(|_| self.run.is_some() && self.opening.is_none()) {
            None => self.beat = None,
            Some(step) if self.beat.is_none_or(|(_, before)| before != step) => {
                // A node that has lost its master looks at once: later signs of life are compared with this one.
                let wait = match step {
                    MainStep::Wait => Duration::ZERO,
                    _ => beat_time(cx.config),
                };
                self.latest = None;
                self.beat = Some((cx.now + wait, step));
            }
            Some(_) => {}
        }
        if mastery.is_none() {
            // The next master asks the store itself.
            (self.opening, self.again) = (None, None);
        }
        if let Some(mastery) = mastery
            && self.opened_for != Some(cx.term)
            && cx.config.has_store()
        {
            self.opened_for = Some(cx.term);
            self.open(cx, mastery);
        }
        let is_busy = self.due.is_some() || self.asked.is_some() || self.writing.is_some();
        if let Some(every) = cx.config.store_every
            && self.run.is_some()
            && !is_busy
        {
            let wait = match self.number {
                _ if self.hurries => Duration::ZERO,
                0 => ProtocolConfig::first_period(every),
                _ => every,
            };
            self.due = Some(cx.now + wait.max(SHORTEST));
        }
    }

    /// True if the master has waited for the store for long enough.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some((_, segment)) = self.forget.take_if(|(at, _)| *at <= cx.now) {
            order(cx, StorageOrder::Forget(segment));
        }
        if self.due.take_if(|due| *due <= cx.now).is_some() {
            self.hurries = false;
            let much = GROWTH * self.whole + cx.config.store_log;
            // While earlier segments wait to be forgotten none begins: the wait would begin anew, and with periods that are short
            // enough it would never end.
            let is_settled = self.rewrite.is_none() && self.forget.is_none();
            if is_settled && self.since_whole > much {
                self.rewrite = Some(Rewrite::default());
                self.has = 0;
                cx.books.keep_anew(std::mem::take(&mut self.kept));
            }
            self.asked = Some((self.has, cx.term));
            let harvest = Action::Harvest {
                since: self.has,
                reader: HarvestReader::Storage,
            };
            cx.actions.push_back(harvest);
        }
        if let (Some((at, step)), Some(run)) = (&mut self.beat, self.run)
            && *at <= cx.now
        {
            *at = cx.now + beat_time(cx.config);
            // A slow store is asked once: later questions would have the same answer.
            if !std::mem::replace(&mut self.is_looking, true) {
                order(cx, StorageOrder::LookAtMain { run, and: *step });
            }
        }
        if let Some(writing) = &mut self.writing
            && writing.late <= cx.now
        {
            writing.late = cx.now + LATE;
            let text = format!(
                "the store has not taken what was to be written {} s ago, and nothing is stored until it does",
                cx.now.saturating_sub(writing.since).as_secs()
            );
            cx.actions.push_back(Action::Tell(Notice::Warning(text)));
        }
        if self.again.take_if(|again| *again <= cx.now).is_some() {
            self.opened_for = None;
        }
        let is_late = self.opening.take_if(|until| *until <= cx.now).is_some();
        if is_late {
            ran_out(Expiry::OpenRun);
            self.is_without = true;
            self.tell_all(cx);
            let text = "the store does not answer: what earlier nodes have finished is done again";
            cx.actions
                .push_back(Action::Tell(Notice::Warning(text.into())));
        }
        is_late
    }

    // ---- which `main` goes on

    /// The store has answered.
    pub(crate) fn looked(&mut self) {
        self.is_looking = false;
    }

    /// The store has said which `main` is the latest. To a node that has lost its master: for how long that one goes on at least.
    pub(crate) fn main_seen(
        &mut self,
        cx: &mut Context<'_>,
        latest: Option<MainBeat>,
        is_own: bool,
    ) -> Option<Duration> {
        self.looked();
        let (_, step) = self.beat?;
        let before = std::mem::replace(&mut self.latest, latest);
        let goes_on = before.is_some() && latest.is_some() && before != latest;
        if before != latest {
            self.changed = cx.now;
        }
        let patience = beat_time(cx.config) * BEATS;
        if step == MainStep::Wait {
            let waits = goes_on && cx.config.obeys(Rule::OneMain);
            return waits.then_some(patience);
        }
        if is_own {
            self.is_behind = false;
            return None;
        }
        let run = self.run?;
        let members = || cx.view.members().map(|member| member.peer.id.0);
        let is_here = latest.is_none_or(|latest| members().any(|id| id == latest.by));
        // A member of this side, which has one `main`, has begun that one; or it does not go on.
        if is_here || cx.now >= self.changed + patience {
            let and = MainStep::BeLatest;
            self.is_looking = true;
            order(cx, StorageOrder::LookAtMain { run, and });
        } else if goes_on && !std::mem::replace(&mut self.is_behind, true) {
            let text = "`main` has begun anew at another side of a cut, as this side did not reach the store: that one may publish, this one may not";
            cx.actions
                .push_back(Action::Tell(Notice::Warning(text.into())));
        }
        None
    }

    // ---- leaving

    /// This node is to leave. True if it writes what it has before: all other nodes may have been asked to leave too, so that
    /// nobody takes over anything.
    pub(crate) fn writes_last(&mut self, cx: &mut Context<'_>, then: AfterLast) -> bool {
        if self.run.is_none() {
            return false;
        }
        let (most, part) = LAST_BATCH;
        let wait = match then {
            AfterLast::Leave(end) => most.min(end.saturating_sub(cx.now) / part),
            AfterLast::End(_) => most,
        };
        let until = cx.now + wait;
        if let Some(last) = &mut self.last {
            last.until = last.until.min(until);
            last.then = last.then.or(then);
            return true;
        }
        self.last = Some(LastBatch { until, then });
        self.hurries = true;
        if self.due.is_some() {
            self.due = Some(cx.now);
        }
        true
    }

    /// What follows, once this node has written what it had.
    pub(crate) fn has_written_last(&mut self, cx: &Context<'_>) -> Option<AfterLast> {
        let is_busy = self.hurries || self.asked.is_some() || self.writing.is_some();
        let last = (self.last).take_if(|last| !is_busy || last.until <= cx.now)?;
        if is_busy {
            ran_out(Expiry::LastBatch);
        }
        Some(last.then)
    }

    // ---- the run

    /// This node has become master: the driver looks for the run, and loads what is not with a live node.
    fn open(&mut self, cx: &mut Context<'_>, mastery: Mastery) {
        // A `main` that has begun without the store does not wait for it. One that this node has been elected to run does, as
        // every other, although this node may have been master before, and have found that the store does not answer.
        if mastery.main_waits || !self.is_without {
            self.opening = Some(cx.now + cx.config.paced(OPEN_MOST));
        }
        let alive = cx.view.members().map(|member| member.peer);
        let open = StorageOrder::Open {
            known: self.run,
            founder: mastery.founder,
            alive: alive.collect(),
        };
        order(cx, open);
    }

    /// The run is there.
    pub(crate) fn opened(&mut self, cx: &mut Context<'_>, run: RunEpoch) {
        (self.opening, self.again) = (None, None);
        self.begin(cx, run);
        self.tell_all(cx);
    }

    /// Tells a node which run goes on.
    pub(crate) fn welcome(&self, cx: &mut Context<'_>, peer: Peer) {
        if self.run.is_some() || self.is_without {
            let version = cx.table.version(cx.table.me());
            let run = self.run;
            let told = Message::Run { run, version };
            cx.actions.push_back(Action::Send(peer, told));
        }
    }

    /// Tells all others which run goes on, or that none does.
    fn tell_all(&self, cx: &mut Context<'_>) {
        cx.table.has_loaded();
        let me = cx.view.me().peer;
        let others = cx.view.members().map(|member| member.peer);
        for peer in others.filter(|peer| *peer != me).collect::<Vec<_>>() {
            self.welcome(cx, peer);
        }
    }

    /// The store cannot be used: this master, which is not the first, goes on without it.
    pub(crate) fn cannot_open(&mut self, cx: &mut Context<'_>, text: &str) {
        self.opening = None;
        self.again = Some(cx.now + cx.config.paced(LOOK_AGAIN));
        if std::mem::replace(&mut self.is_without, true) {
            return; // all have been told
        }
        self.tell_all(cx);
        let warning = format!(
            "{text}; what earlier nodes have finished is done again, unless a live node has it; nothing is stored until the \
             store answers"
        );
        cx.actions.push_back(Action::Tell(Notice::Warning(warning)));
    }

    /// Another node says which run goes on.
    pub(crate) fn told(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        run: Option<RunEpoch>,
        version: u64,
    ) {
        if cx.config.obeys(Rule::LoadFirst) {
            cx.table.load_until(cx.now, from, version);
        }
        // After a partition two parts may have begun one each: all go on with the later.
        match (run, self.run) {
            (Some(run), known) if known.is_none_or(|known| known < run) => self.begin(cx, run),
            // The sender, who is master, has not heard of it.
            (told, Some(known)) if told != Some(known) => self.welcome(cx, from),
            _ => {}
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>, run: RunEpoch) {
        if self.run == Some(run) {
            if std::mem::take(&mut self.is_without) {
                let roots = cx.books.root_results();
                cx.books.keep_anew(roots);
            }
            return;
        }
        // What stands in the log of another run does not count for this one.
        let written = std::mem::take(&mut self.kept);
        let writing = self.writing.take().into_iter();
        cx.books.keep_anew(written);
        cx.books.keep_anew(writing.flat_map(|writing| writing.kept));
        let roots = cx.books.root_results();
        cx.books.keep_anew(roots);
        *self = Storage {
            run: Some(run),
            opened_for: self.opened_for,
            opening: self.opening,
            again: self.again,
            number: self.number,
            roots: std::mem::take(&mut self.roots),
            root_bytes: self.root_bytes,
            last: self.last,
            hurries: self.hurries,
            put_off: std::mem::take(&mut self.put_off),
            ..Storage::default()
        };
    }

    // ---- writing

    /// A root job of `main` has this result.
    pub(crate) fn root(&mut self, cx: &mut Context<'_>, saved: &Saved, bounds: &Bounds) {
        let is_written = cx.config.has_store() && (self.run.is_some() || !self.is_without);
        if is_written && let Some(fact) = stored(saved.clone(), Duration::ZERO) {
            let offers = match cx.config.obeys(Rule::StoredBounds) {
                true => bounds.of(saved.root_name()),
                false => Vec::new(),
            };
            self.root_bytes += fact.saved.size();
            self.roots.push((fact, offers));
            self.make_room_for_roots(cx);
        }
    }

    /// A store that takes nothing for hours must not fill the memory: the oldest result of a root job that is not on its way goes.
    fn make_room_for_roots(&mut self, cx: &mut Context<'_>) {
        let on_their_way = self.writing.as_ref().map_or(0, |writing| writing.roots);
        while self.root_bytes > MOST_ROOTS && self.roots.len() > on_their_way + 1 {
            let (fact, _) = self.roots.remove(on_their_way);
            self.root_bytes -= fact.saved.size();
            let text = format!(
                "the store takes nothing, and there is no more room for results of root jobs that are to be written: root job {} is \
                 computed again if all nodes die",
                fact.saved.root_name().number
            );
            cx.actions.push_back(Action::Tell(Notice::Warning(text)));
        }
    }

    /// The workers have told what they have.
    pub(crate) fn gathered(&mut self, cx: &mut Context<'_>, gathered: Gathered, bounds: &Bounds) {
        // The answer to an earlier question may lack facts that are to be written.
        let asked = self.asked.take_if(|(since, _)| *since == gathered.since);
        let (Some((_, term)), Some(run)) = (asked, self.run) else {
            return;
        };
        if term != cx.term {
            // A root job of the earlier term may be over, and its bounds forgotten: what is left of it is not told again.
            self.hurries = true;
            return;
        }
        let mut filling = Filling {
            facts: Vec::new(),
            bytes: 0,
            most: cx.config.store_batch,
            is_full: false,
        };
        // What may be large goes first, or there would never be room for it beside what the workers bring anew.
        let roots = self.fill_with_roots(cx, &mut filling);
        let kept = self.fill_with_kept(cx, &mut filling);
        let mut upto = self.has;
        let is_all = gathered.facts.into_iter().all(|fact| {
            let number = fact.number;
            let fits = match stored(fact.saved, fact.took) {
                Some(fact) => add(cx, &mut filling, fact),
                None => true,
            };
            if fits {
                upto = number;
            }
            fits
        });
        if is_all {
            upto = gathered.upto;
        }
        let Filling {
            facts,
            mut bytes,
            is_full,
            ..
        } = filling;
        // Read last: what is in the batch was computed under them.
        let mut offers = match cx.config.obeys(Rule::StoredBounds) {
            true => bounds.of_main(),
            false => Vec::new(),
        };
        let begins = self.rewrite.is_some_and(|rewrite| rewrite.first.is_none());
        let is_news = !facts.is_empty() || (offers != self.offers && !offers.is_empty());
        let now_offered = offers.clone();
        for (_, of_root) in self.roots.iter().take(roots) {
            offers.extend(of_root.iter().cloned());
        }
        bytes += offers.iter().map(|offer| offer.value.len()).sum::<usize>();
        let writing = Writing {
            number: self.number + 1,
            since: cx.now,
            late: cx.now + LATE,
            upto,
            kept,
            roots,
            offers: now_offered,
            bytes,
            is_full,
        };
        if !is_news && !begins {
            // Nothing is to be written: as good as written.
            return self.have(cx, writing, None);
        }
        self.number += 1;
        self.writing = Some(writing);
        let write = StorageOrder::Write {
            number: self.number,
            run,
            batch: Batch {
                offers,
                facts,
                ..Batch::default()
            },
            begins,
        };
        order(cx, write);
    }

    /// Adds the results that this node keeps for others and that are to be written. Returns their names.
    fn fill_with_kept(&self, cx: &mut Context<'_>, filling: &mut Filling) -> BTreeSet<JobName> {
        let mut kept = BTreeSet::new();
        for name in cx.books.take_newly_kept() {
            let saved = Repair::kept(cx, &name);
            let Some(fact) = saved.and_then(|saved| stored(saved, Duration::ZERO)) else {
                continue;
            };
            if add(cx, filling, fact) {
                kept.insert(name);
            } else {
                cx.books.keep_anew([name]);
            }
        }
        kept
    }

    /// Adds the results of root jobs that are to be written. Returns how many of them are done with.
    fn fill_with_roots(&self, cx: &mut Context<'_>, filling: &mut Filling) -> usize {
        let mut roots = self.roots.iter();
        let fits = roots.position(|(fact, _)| !add(cx, filling, fact.clone()));
        fits.unwrap_or(self.roots.len())
    }

    /// The batch of that number is in the store, in that segment of the log.
    pub(crate) fn written(&mut self, cx: &mut Context<'_>, number: u64, segment: u32, bytes: u64) {
        let Some(mut writing) = self.writing.take_if(|writing| writing.number == number) else {
            return;
        };
        // With the values that came along, of which a node knows the names only.
        writing.bytes = writing.bytes.max(bytes as usize);
        self.have(cx, writing, Some(segment));
    }

    /// What was in that batch stands in the store, in that segment; `None` if there was nothing to write.
    fn have(&mut self, cx: &mut Context<'_>, writing: Writing, segment: Option<u32>) {
        self.has = writing.upto;
        self.offers = writing.offers;
        let written = self.roots.drain(..writing.roots);
        let written = written.map(|(fact, _)| fact.saved.size());
        self.root_bytes -= written.sum::<usize>();
        let kept = writing.kept.into_iter();
        self.kept.extend(kept.filter(|name| !name.id.is_root_job()));
        if writing.is_full {
            // The rest goes at once.
            self.hurries = true;
        }
        let Some(mut rewrite) = self.rewrite.take() else {
            self.since_whole += writing.bytes;
            return;
        };
        rewrite.first = rewrite.first.or(segment);
        rewrite.bytes += writing.bytes;
        if writing.is_full {
            self.rewrite = Some(rewrite);
            return;
        }
        (self.since_whole, self.whole) = (0, rewrite.bytes);
        let every = cx.config.store_every.unwrap_or_default().max(SHORTEST);
        // What is not alive any more went with its job's result to the job's origin, which writes that within a period.
        let wait = match cx.config.obeys(Rule::Covered) {
            true => every * 2 + AGAIN,
            false => Duration::ZERO,
        };
        self.forget = rewrite.first.map(|first| (cx.now + wait, first));
    }

    /// The batch of that number could not be written.
    pub(crate) fn not_written(&mut self, cx: &mut Context<'_>, number: u64, text: String) {
        let Some(writing) = self.writing.take_if(|writing| writing.number == number) else {
            return;
        };
        cx.books.keep_anew(writing.kept);
        let every = cx.config.store_every.unwrap_or_default();
        self.due = Some(cx.now + every.max(AGAIN));
        let warning = format!("what is finished cannot be stored: {text}; tried again");
        cx.actions.push_back(Action::Tell(Notice::Warning(warning)));
    }

    // ---- reading

    /// A node has died. True if the master, which this node is, reads its log.
    pub(crate) fn reads_log(&self, cx: &mut Context<'_>, peer: Peer, is_master: bool) -> bool {
        let run = (self.run).filter(|_| is_master && cx.config.obeys(Rule::ReadLogs));
        if let Some(run) = run {
            order(cx, StorageOrder::ReadLog { run, peer });
        }
        run.is_some()
    }
}

/// The time between two signs of life of `main`.
pub(crate) fn beat_time(config: &ProtocolConfig) -> Duration {
    let (most, part) = BEAT;
    (config.partition_wait / part).clamp(SHORTEST_BEAT, most)
}

fn order(cx: &mut Context<'_>, order: StorageOrder) {
    cx.actions.push_back(Action::Storage(order));
}

/// Adds a result to a batch, unless it is too large for any. False if there is no room for it in this one.
fn add(cx: &mut Context<'_>, filling: &mut Filling, fact: StoredFact) -> bool {
    let bytes = fact.saved.size();
    if bytes > LARGEST {
        let text = format!(
            "a result of {} MiB is not stored, as it has more than {} MiB: if all nodes die, it is computed again",
            bytes >> 20,
            LARGEST >> 20,
        );
        cx.actions.push_back(Action::Tell(Notice::Warning(text)));
        return true;
    }
    // The first one goes whatever its size.
    filling.is_full |= !filling.facts.is_empty() && filling.bytes + bytes > filling.most;
    if !filling.is_full {
        filling.bytes += bytes;
        filling.facts.push(fact);
    }
    !filling.is_full
}

/// The result as it stands in the store, if it may.
fn stored(saved: Saved, took: Duration) -> Option<StoredFact> {
    // What is kept by a node is lost with it.
    let is_whole = matches!(saved.answer, Answer::Result { kept: None, .. });
    let fits = is_whole && saved.root_name().is_of_main();
    fits.then_some(StoredFact { saved, took })
}
