//! The orphan table: who has the result of an orphan, or is still computing it.
//!
//! Each node owns a sheet, and nobody else writes on it: so there is nothing to agree on, and a version number
//! says which of two copies is newer. Every node keeps copies of all sheets, and one sorted index over them: "anything
//! at or below this id?" is one range look-up.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    time::Duration,
};

use super::super::{
    Action, NodeId, Page, Peer, SheetChange, View,
    expiry::{Expiry, ran_out},
};
use crate::job::{Deadly, Fingerprint, JobId, JobName, OrphanNews};

/// Changes of a sheet that are remembered one by one; who has missed more gets the whole sheet. Too small: whole sheets
/// go round. Too large: memory.
const REMEMBERED: usize = 4096;

/// A death is waited for so long: whoever has not said by then that it has announced its orphans is not waited for. Too
/// small: marks are dropped too early, and work is done twice. Too large: repairs look up every child for that long.
const FLUSH_WAIT: Duration = Duration::from_secs(20);

/// The time for which flushings and closings are remembered; by then all nodes know. Too small: a node that was cut off
/// for a while never hears of it. Too large: memory.
const REMEMBER: Duration = Duration::from_secs(60);

/// The time for which hearsay about an owner is believed; by then its own sheet says so. Too small: what is kept is
/// done again. Too large: it is claimed in vain.
const HEARSAY: Duration = Duration::from_secs(5);

/// An orphan id that is longer than this is not announced: nobody would find it worth its bytes.
const ID_MOST: usize = 64 << 10;

/// The sheet of one owner: its part of the table.
#[derive(Clone, Default, Debug)]
struct Sheet {
    version: u64,
    /// The changes that made the last versions, one each.
    log: VecDeque<SheetChange>,
    orphans: BTreeMap<JobName, bool>,
    /// The ended lives whose orphans the owner has announced, and when that was written here.
    flushed: BTreeMap<Peer, Duration>,
    /// The jobs whose orphans nobody needs any more, and when that was written here.
    closed: BTreeMap<JobId, Duration>,
    /// The lives that each of these jobs has taken down.
    deadly: BTreeMap<JobName, BTreeSet<Peer>>,
}

impl Sheet {
    fn is_blank(&self) -> bool {
        self.orphans.is_empty()
            && self.flushed.is_empty()
            && self.closed.is_empty()
            && self.deadly.is_empty()
    }

    fn write(&mut self, change: SheetChange, now: Duration) {
        match &change {
            SheetChange::Orphan { name, finished } => {
                self.orphans.insert(name.clone(), *finished);
            }
            SheetChange::Withdrawn(name) => {
                self.orphans.remove(name);
            }
            SheetChange::Flushed(peer) => {
                self.flushed.insert(*peer, now);
            }
            SheetChange::Closed(id) => {
                self.closed.insert(id.clone(), now);
            }
            SheetChange::Deadly(name, who) => {
                self.deadly.entry(name.clone()).or_default().insert(*who);
            }
            SheetChange::Harmless(name) => {
                self.deadly.remove(name);
            }
        }
        self.version += 1;
        self.log.push_back(change);
        if self.log.len() > REMEMBERED {
            self.log.pop_front();
        }
    }

    /// The changes that bring a copy of that version up to date.
    fn page(&self, owner: Peer, after: u64) -> Page {
        let missing = self.version.saturating_sub(after) as usize;
        // A copy without a version has nothing that changes could be applied to.
        if after > 0 && missing <= self.log.len() {
            let changes = self.log.iter().skip(self.log.len() - missing);
            return Page {
                owner,
                after,
                version: self.version,
                changes: changes.cloned().collect(),
            };
        }
        let orphans = self.orphans.iter();
        let orphans = orphans.map(|(name, finished)| SheetChange::Orphan {
            name: name.clone(),
            finished: *finished,
        });
        let flushed = self.flushed.keys().copied().map(SheetChange::Flushed);
        let closed = self.closed.keys().cloned().map(SheetChange::Closed);
        let deadly = self.deadly.iter().flat_map(|(name, whom)| {
            let whom = whom.iter();
            whom.map(|who| SheetChange::Deadly(name.clone(), *who))
        });
        Page {
            owner,
            after: 0,
            version: self.version,
            changes: (orphans.chain(flushed).chain(closed).chain(deadly)).collect(),
        }
    }
}

/// The meaning of a page that came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    /// The page says nothing new.
    Old,
    /// The page begins after what is known: changes in between were missed.
    Gap,
    /// The page was news. Holds the version of the copy before.
    New(u64),
}

/// The wait for what stands in stable storage.
struct Loading {
    /// The end of the wait.
    until: Duration,
    /// The sheet on which that is announced, and from which version on; `None`: the master has not told yet.
    sheet: Option<(Peer, u64)>,
}

/// The copies of all sheets, the own one among them.
pub(crate) struct Table {
    me: Peer,
    sheets: BTreeMap<Peer, Sheet>,
    /// All orphans of all sheets, and whether they are finished.
    index: BTreeMap<JobId, BTreeMap<(Fingerprint, Peer), bool>>,
    /// The ended lives whose orphans may not all be announced yet, each with the end of the wait for that.
    dead: BTreeMap<Peer, Duration>,
    /// Set while what stands in stable storage may not all be in the table.
    loading: Option<Loading>,
    /// The ended lives whose logs in stable storage this node reads.
    unread: BTreeSet<Peer>,
    /// Whether all nodes have announced everything, as the workers were told last.
    settled: bool,
    /// Ids that other nodes have closed, not looked at yet.
    closed: Vec<JobId>,
    /// Orphans that other nodes have announced, not looked at yet.
    announced: Vec<JobId>,
    /// Hearsay about owners, and how long it is believed if the owner's sheet does not say so.
    hearsay: VecDeque<(Duration, Peer, JobName)>,
    /// The deadly jobs that the workers were told of.
    deadly: BTreeMap<JobName, u32>,
    /// Is there a deadly job on any sheet?
    any_deadly: bool,
    /// Have sheets changed, as to deadly jobs, since the workers were told?
    deadly_changed: bool,
}

impl Table {
    pub(crate) fn new(me: Peer) -> Table {
        Table {
            me,
            sheets: BTreeMap::new(),
            index: BTreeMap::new(),
            dead: BTreeMap::new(),
            loading: None,
            unread: BTreeSet::new(),
            settled: true,
            closed: Vec::new(),
            announced: Vec::new(),
            hearsay: VecDeque::new(),
            deadly: BTreeMap::new(),
            any_deadly: false,
            deadly_changed: false,
        }
    }

    /// Is the table empty, and is no flushing waited for?
    pub(crate) fn is_blank(&self) -> bool {
        self.dead.is_empty() && self.sheets.values().all(Sheet::is_blank)
    }

    /// The number of orphans of all sheets.
    pub(crate) fn orphan_count(&self) -> usize {
        self.index.values().map(|entries| entries.len()).sum()
    }

    /// All orphans of all sheets: name, owner, and whether each is finished.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn orphans(&self) -> impl Iterator<Item = (JobName, Peer, bool)> {
        self.index.iter().flat_map(|(id, entries)| {
            entries.iter().map(|((fingerprint, owner), finished)| {
                let name = JobName::new(id.clone(), *fingerprint);
                (name, *owner, *finished)
            })
        })
    }

    /// The ids that any node has closed lately.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn all_closed(&self) -> impl Iterator<Item = &JobId> {
        self.sheets.values().flat_map(|sheet| sheet.closed.keys())
    }

    // ---- the own sheet

    fn write(&mut self, now: Duration, change: SheetChange) {
        self.note_deadly(&change);
        self.sheets.entry(self.me).or_default().write(change, now);
    }

    fn note_deadly(&mut self, change: &SheetChange) {
        let deadly = matches!(change, SheetChange::Deadly(..));
        self.any_deadly |= deadly;
        self.deadly_changed |= deadly || matches!(change, SheetChange::Harmless(..));
    }

    /// Announces that this node has that orphan.
    pub(crate) fn announce(
        &mut self,
        actions: &mut VecDeque<Action>,
        now: Duration,
        name: &JobName,
        finished: bool,
    ) {
        // Never announced, never found: its work is done again, which costs less than to spread
        // such an id.
        if name.id.as_bytes().len() > ID_MOST {
            return;
        }
        let change = SheetChange::Orphan {
            name: name.clone(),
            finished,
        };
        self.write(now, change);
        self.enter(actions, name, self.me, finished);
    }

    /// Withdraws an orphan: this node does not have it any more.
    pub(crate) fn withdraw(
        &mut self,
        actions: &mut VecDeque<Action>,
        now: Duration,
        name: &JobName,
    ) {
        let own = self.sheets.get(&self.me);
        // A sheet grows a version with each change: what it never said need not be taken back.
        if own.is_some_and(|own| own.orphans.contains_key(name)) {
            self.write(now, SheetChange::Withdrawn(name.clone()));
            self.strike(actions, name, self.me);
        }
    }

    /// A repair of this node is over: nobody wants anything at or below that job any more.
    pub(crate) fn close(&mut self, now: Duration, id: &JobId) {
        self.write(now, SheetChange::Closed(id.clone()));
    }

    // ---- jobs that take down whoever runs them

    /// Writes down that a job has taken down that life; or would, if it is this node's own. True if that is news.
    pub(crate) fn blame(&mut self, now: Duration, name: &JobName, who: Peer) -> bool {
        let own = self.sheets.entry(self.me).or_default();
        let known = own.deadly.get(name);
        // Words about one death come from several sides, and from the sheets of the dead: one entry
        // is enough.
        let news =
            name.id.as_bytes().len() <= ID_MOST && known.is_none_or(|known| !known.contains(&who));
        if news {
            self.write(now, SheetChange::Deadly(name.clone(), who));
        }
        news
    }

    /// Of that job, and of all below it, this node says nothing bad any more.
    pub(crate) fn acquit(&mut self, now: Duration, id: &JobId) {
        self.acquit_if(now, |at| id.is_ancestor_of(at));
    }

    /// The same of all root jobs of `main` before that one: they are over.
    pub(crate) fn acquit_before(&mut self, now: Duration, root: u32) {
        self.acquit_if(now, |at| at.root_number() < root);
    }

    /// The own sheet has few deadly jobs, and as a rule none.
    fn acquit_if(&mut self, now: Duration, is_it: impl Fn(&JobId) -> bool) {
        // Asked at the end of every job that was away: without deadly jobs there is nothing to
        // search.
        let Some(own) = self.sheets.get(&self.me).filter(|_| self.any_deadly) else {
            return;
        };
        let names = own.deadly.keys().filter(|name| is_it(&name.id));
        for name in names.cloned().collect::<Vec<_>>() {
            self.write(now, SheetChange::Harmless(name));
        }
    }

    /// How many that job has taken down. Who lives has not been.
    pub(crate) fn victims(&self, name: &JobName, view: &View) -> u32 {
        // Asked for every job that leaves or comes: the common case reads one flag.
        if !self.any_deadly {
            return 0;
        }
        let all = self.sheets.values();
        let here = all.filter_map(|sheet| sheet.deadly.get(name));
        // A node that seemed to die twice was there in between.
        let dead = here.flatten().filter(|who| !lives_on(view, **who));
        let dead = dead.map(|who| who.id);
        dead.collect::<BTreeSet<NodeId>>().len() as u32
    }

    /// The workers are told which jobs are deadly, if that has changed, and given up from so many nodes on.
    pub(crate) fn tell_deadly(&mut self, actions: &mut VecDeque<Action>, view: &View, most: u32) {
        if !std::mem::take(&mut self.deadly_changed) {
            return;
        }
        // Only here the flag is taken back: until then it may be true for nothing, which costs a
        // search.
        self.any_deadly = self.sheets.values().any(|sheet| !sheet.deadly.is_empty());
        let mut all: BTreeMap<JobName, BTreeSet<NodeId>> = BTreeMap::new();
        for (name, whom) in self.sheets.values().flat_map(|sheet| &sheet.deadly) {
            let whom = whom.iter().filter(|who| !lives_on(view, **who));
            let whom = whom.map(|who| who.id);
            all.entry(name.clone()).or_default().extend(whom);
        }
        let all = all
            .into_iter()
            .map(|(name, whom)| (name, whom.len() as u32));
        let deadly: BTreeMap<_, u32> = all.filter(|(_, count)| *count > 0).collect();
        let mut tell = |name: &JobName, is: Deadly| {
            let news = OrphanNews::Deadly(name.clone(), is);
            actions.push_back(Action::Orphan(news));
        };
        // The workers keep what they are told, so they must hear of a name that was acquitted.
        for name in self.deadly.keys().filter(|name| !deadly.contains_key(name)) {
            tell(name, Deadly::Not);
        }
        for (name, count) in &deadly {
            if self.deadly.get(name) != Some(count) {
                tell(
                    name,
                    match *count >= most {
                        true => Deadly::GivenUp(given_up(&name.id, *count)),
                        false => Deadly::Held(*count),
                    },
                );
            }
        }
        self.deadly = deadly;
    }

    /// The view has changed.
    pub(crate) fn look_at_deadly_again(&mut self) {
        // Counts depend on who lives: a node that comes back takes its false death back.
        self.deadly_changed |= self.any_deadly;
    }

    /// A node has come in, perhaps once more: then no job had taken it down before, whatever happens to it now.
    pub(crate) fn came_back(&mut self, now: Duration, peer: Peer) {
        let Some(own) = self.sheets.get(&self.me).filter(|_| self.any_deadly) else {
            return;
        };
        // A blame on the own life is a warning for the case that this node dies now: it stays.
        let is_it = |who: &Peer| who.id == peer.id && *who != self.me;
        let blamed = (own.deadly.iter()).filter(|(_, whom)| whom.iter().any(is_it));
        let blamed = blamed.map(|(name, whom)| {
            let others = whom.iter().filter(|who| !is_it(who));
            (name.clone(), others.copied().collect::<Vec<Peer>>())
        });
        for (name, others) in blamed.collect::<Vec<_>>() {
            // A sheet can only take back a whole name. What it says of other nodes is written once
            // more.
            self.write(now, SheetChange::Harmless(name.clone()));
            for who in others {
                self.blame(now, &name, who);
            }
        }
    }

    /// Takes over what the sheet of an ended life said of deadly jobs; if it died, also that they took it
    /// down itself.
    fn inherit(&mut self, now: Duration, peer: Peer, sheet: Sheet, died: bool) {
        for (name, whom) in sheet.deadly {
            // The entry of a node about itself counts only if it died: it was about to run the job
            // itself.
            for who in whom.into_iter().filter(|who| *who != peer || died) {
                self.blame(now, &name, who);
            }
        }
    }

    /// A life is over, and everything that this node hosted of it has been announced.
    pub(crate) fn life_ended(
        &mut self,
        actions: &mut VecDeque<Action>,
        now: Duration,
        peer: Peer,
        died: bool,
    ) {
        if let Some(sheet) = self.sheets.remove(&peer) {
            // The sheet goes, and with it what it said: the counts are to be made anew.
            self.deadly_changed |= self.any_deadly;
            self.inherit(now, peer, sheet, died);
        }
        // Hearsay is in the index alone, so the index is searched rather than the sheet.
        let all = self.index.iter().flat_map(|(id, entries)| {
            let of_peer = entries.keys().filter(|(_, owner)| *owner == peer);
            of_peer.map(|(fingerprint, _)| JobName::new(id.clone(), *fingerprint))
        });
        for name in all.collect::<Vec<_>>() {
            self.strike(actions, &name, peer);
        }
        self.dead.insert(peer, now + FLUSH_WAIT);
        // The caller has announced its orphans of that life before: this says that there are no
        // more.
        self.flush(now, peer);
    }

    /// This node is in a pool with a store: what stands there is to be in the table before marks are dropped.
    pub(crate) fn await_load(&mut self, now: Duration) {
        self.loading = Some(Loading {
            until: now + FLUSH_WAIT,
            sheet: None,
        });
    }

    /// That version of a node's sheet has all that stood in stable storage.
    pub(crate) fn load_until(&mut self, now: Duration, owner: Peer, version: u64) {
        self.loading = Some(Loading {
            until: now + FLUSH_WAIT,
            sheet: Some((owner, version)),
        });
    }

    /// May there be more in stable storage than in the table?
    pub(crate) fn is_loading(&mut self, view: &View) -> bool {
        let sheet = self.loading.as_ref().and_then(|loading| loading.sheet);
        if let Some((owner, version)) = sheet
            && (!view.is_alive(owner) || self.version(owner) >= version)
        {
            self.loading = None;
        }
        self.loading.is_some()
    }

    /// What stood in stable storage is in the table, or there is nothing.
    pub(crate) fn has_loaded(&mut self) {
        self.loading = None;
    }

    /// What an ended life has in stable storage is to be announced here too, when its log has been read.
    pub(crate) fn await_log(&mut self, peer: Peer) {
        self.unread.insert(peer);
    }

    /// The log of an ended life has been read, and what stood in it is announced.
    pub(crate) fn log_read(&mut self, now: Duration, peer: Peer) {
        if self.unread.remove(&peer) {
            self.flush(now, peer);
        }
    }

    fn flush(&mut self, now: Duration, peer: Peer) {
        if self.unread.contains(&peer) {
            return; // there is more to come
        }
        let own = self.sheets.entry(self.me).or_default();
        // Several nodes tell of one death: said once.
        if !own.flushed.contains_key(&peer) {
            self.write(now, SheetChange::Flushed(peer));
        }
    }

    /// Renames the own sheet: this node lives on under another name.
    pub(crate) fn rename(&mut self, actions: &mut VecDeque<Action>, now: Duration, me: Peer) {
        let old = self.sheets.remove(&self.me).unwrap_or_default();
        // Under the old name the other nodes drop the whole sheet, with the life that wrote it.
        for name in old.orphans.keys() {
            self.strike(actions, name, self.me);
        }
        self.me = me;
        // The orphans are still here, so they are announced again. Flushings and closings are
        // not: they were about lives and repairs of which the other nodes have heard.
        for (name, finished) in &old.orphans {
            self.announce(actions, now, name, *finished);
        }
        for (name, whom) in &old.deadly {
            for who in whom {
                // A warning about the own death goes on: the held job may still take this node
                // down, in its new life.
                let who = if who.id == me.id { me } else { *who };
                self.blame(now, name, who);
            }
        }
    }

    // ---- copies

    /// A page came in.
    pub(crate) fn read(
        &mut self,
        actions: &mut VecDeque<Action>,
        now: Duration,
        view: &View,
        page: Page,
    ) -> Read {
        let Page {
            owner,
            after,
            version,
            changes,
        } = page;
        // Only this node writes on its own sheet. The sheets of ended lives are gone, and must not
        // come back by gossip that is late.
        if owner == self.me || !view.is_alive(owner) {
            return Read::Old;
        }
        let sheet = self.sheets.entry(owner).or_default();
        let have = sheet.version;
        // Gossip comes by several ways: the same page again, or an older one.
        if version <= have {
            return Read::Old;
        }
        // Applied with changes missing in between, the copy would be wrong under a right version.
        if after > have {
            return Read::Gap;
        }
        // A whole sheet replaces the copy; a page of changes is applied to it.
        let whole = after == 0;
        let mut closed_before = BTreeMap::new();
        if !whole && version - after != changes.len() as u64 {
            return Read::Old; // it makes no sense: nobody sends such pages
        }
        let mut fresh = changes;
        if whole {
            let old = std::mem::take(sheet);
            // Entries that the owner withdrew while this node missed its changes are not in the new
            // sheet.
            for name in old.orphans.keys() {
                self.strike(actions, name, owner);
            }
            closed_before = old.closed;
            self.deadly_changed |= self.any_deadly;
        } else {
            // The page may begin before the copy's version: changes that are known would be applied
            // twice.
            fresh.drain(..(have - after) as usize);
        }
        for change in fresh {
            match &change {
                SheetChange::Orphan { name, finished } => {
                    self.announced.push(name.id.clone());
                    self.enter(actions, name, owner, *finished);
                }
                SheetChange::Withdrawn(name) => self.strike(actions, name, owner),
                // A life that is not in the view any more, or never was, has left nothing here that
                // is not announced. So this node says so too: the nodes that wait for all words
                // wait for its word as well.
                SheetChange::Flushed(dead) if !view.is_alive(*dead) => self.flush(now, *dead),
                SheetChange::Flushed(_) => {}
                // Results that are kept there since were kept by a node that knew of the closing.
                SheetChange::Closed(id) if closed_before.contains_key(id) => {}
                SheetChange::Closed(id) => self.closed.push(id.clone()),
                SheetChange::Deadly(..) | SheetChange::Harmless(..) => {}
            }
            self.note_deadly(&change);
            let sheet = self.sheets.entry(owner).or_default();
            sheet.write(change, now);
        }
        let sheet = self.sheets.entry(owner).or_default();
        // A whole sheet has fewer changes than versions, so `write` has counted too few.
        sheet.version = version;
        if whole {
            // The log must reach back change by change: this copy cannot tell the changes that it
            // never saw.
            sheet.log.clear();
        }
        Read::New(have)
    }

    /// Takes in hearsay about an owner: its sheet will say so too.
    pub(crate) fn hear(
        &mut self,
        actions: &mut VecDeque<Action>,
        now: Duration,
        owner: Peer,
        below: &[JobName],
    ) {
        for name in below {
            // Finished: an heir keeps results only.
            self.enter(actions, name, owner, true);
            self.hearsay.push_back((now + HEARSAY, owner, name.clone()));
        }
    }

    /// The owner says that it has it no more; its sheet will say so too.
    pub(crate) fn miss(&mut self, actions: &mut VecDeque<Action>, owner: Peer, name: &JobName) {
        self.strike(actions, name, owner);
    }

    fn enter(
        &mut self,
        actions: &mut VecDeque<Action>,
        name: &JobName,
        owner: Peer,
        finished: bool,
    ) {
        let entries = self.index.entry(name.id.clone()).or_default();
        // The workers know names, not owners: a second owner is no news to them.
        let known = entries.keys().any(|(is, _)| *is == name.fingerprint);
        entries.insert((name.fingerprint, owner), finished);
        if !known {
            let news = OrphanNews::Here(name.clone());
            actions.push_back(Action::Orphan(news));
        }
    }

    fn strike(&mut self, actions: &mut VecDeque<Action>, name: &JobName, owner: Peer) {
        let Some(entries) = self.index.get_mut(&name.id) else {
            return;
        };
        // Withdrawn twice, by a miss and by the sheet: the workers are told once.
        if entries.remove(&(name.fingerprint, owner)).is_none() {
            return;
        }
        let known = entries.keys().any(|(is, _)| *is == name.fingerprint);
        if entries.is_empty() {
            self.index.remove(&name.id);
        }
        // Another owner still has it: a marked job is to find that one.
        if !known {
            let news = OrphanNews::Gone(name.clone());
            actions.push_back(Action::Orphan(news));
        }
    }

    /// The ids that other nodes have closed since the last question.
    pub(crate) fn take_closed(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.closed)
    }

    /// The orphans that other nodes have announced since the last question.
    pub(crate) fn take_announced(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.announced)
    }

    // ---- questions

    /// The owner of that orphan: this node if it has it; else a node that has finished it rather than one that computes it.
    pub(crate) fn owner(&self, name: &JobName, view: &View) -> Option<Peer> {
        let entries = self.index.get(&name.id)?.iter();
        let entries = entries.filter(|((is, owner), _)| {
            *is == name.fingerprint && (*owner == self.me || view.is_alive(*owner))
        });
        // A result that is finished beats one that is near but still computed; the order of the
        // peers decides the rest, the same on every run of a simulation.
        let order = |((_, owner), finished): &(&(Fingerprint, Peer), &bool)| {
            let me = *owner == self.me;
            (!me, !**finished, !view.is_near(*owner), *owner)
        };
        entries.min_by_key(order).map(|((_, owner), _)| *owner)
    }

    /// Does that node compute an orphan at or below that job?
    pub(crate) fn runs_below(&self, id: &JobId, owner: Peer) -> bool {
        let below = self.index.range(id.clone()..);
        let mut below = below.take_while(|(at, _)| id.is_ancestor_of(at));
        below.any(|(_, entries)| {
            let mut entries = entries.iter();
            entries.any(|((_, is), finished)| *is == owner && !finished)
        })
    }

    /// Does anybody have that job, or anything below it?
    pub(crate) fn is_anything_at(&self, id: &JobId) -> bool {
        self.index.contains_key(id) || self.is_anything_below(id)
    }

    /// Does anybody have anything below that job?
    pub(crate) fn is_anything_below(&self, id: &JobId) -> bool {
        let after = (Bound::Excluded(id), Bound::Unbounded);
        let first = self.index.range::<JobId, _>(after).next();
        first.is_some_and(|(at, _)| id.is_ancestor_of(at))
    }

    /// Has somebody finished a job that contains that one? Then nobody will ask for it.
    pub(crate) fn is_covered(&self, id: &JobId, view: &View) -> bool {
        // From the id backwards: its ancestors stand before it in the order of ids.
        let mut before = self.index.range::<JobId, _>(..id).next_back();
        while let Some((at, _)) = before {
            before = if at.is_ancestor_of(id) {
                if self.is_finished(at, view) {
                    return true;
                }
                self.index.range::<JobId, _>(..at).next_back()
            } else {
                // An id of the table that is above `id` and before `at` is above both.
                let above = at.common_with(id);
                self.index.range(..=above).next_back()
            };
        }
        false
    }

    /// Is the result of a job of that id at any live node, whatever fingerprint it has?
    pub(crate) fn is_finished(&self, id: &JobId, view: &View) -> bool {
        let mut entries = self.index.get(id).into_iter().flatten();
        entries
            .any(|((_, owner), finished)| *finished && (*owner == self.me || view.is_alive(*owner)))
    }

    /// Is the result of that very job at any live node?
    pub(crate) fn has_result(&self, name: &JobName, view: &View) -> bool {
        let mut entries = self.index.get(&name.id).into_iter().flatten();
        entries.any(|((is, owner), finished)| {
            let is_there = *owner == self.me || view.is_alive(*owner);
            *finished && *is == name.fingerprint && is_there
        })
    }

    /// Does another node keep that result, that stays, and that comes before this one in the order of peers?
    pub(crate) fn is_kept_before(&self, name: &JobName, view: &View) -> bool {
        let mut entries = self.index.get(&name.id).into_iter().flatten();
        entries.any(|((is, owner), finished)| {
            let stays = view.is_alive(*owner) && !view.is_draining(*owner);
            *is == name.fingerprint && *finished && *owner < self.me && stays
        })
    }

    /// The fingerprint of any orphan of that id.
    pub(crate) fn any(&self, id: &JobId) -> Option<Fingerprint> {
        let mut entries = self.index.get(id)?.keys();
        entries.next().map(|(fingerprint, _)| *fingerprint)
    }

    /// The owners of that orphan.
    pub(crate) fn owners(&self, name: &JobName) -> BTreeSet<Peer> {
        let entries = self.index.get(&name.id);
        let entries = entries.into_iter().flat_map(BTreeMap::keys);
        let entries = entries.filter(|(is, _)| *is == name.fingerprint);
        entries.map(|(_, owner)| *owner).collect()
    }

    /// How new the copies are.
    pub(crate) fn versions(&self) -> Vec<(Peer, u64)> {
        // An own sheet without a change is not worth a word, and version 0 would ask for nothing.
        let sheets = self.sheets.iter().filter(|(_, sheet)| sheet.version > 0);
        sheets
            .map(|(owner, sheet)| (*owner, sheet.version))
            .collect()
    }

    /// The pages that a node with these copies lacks, and whether it has changes that are missing here.
    pub(crate) fn compare(&self, theirs: &[(Peer, u64)], view: &View) -> (Vec<Page>, bool) {
        let theirs: BTreeMap<Peer, u64> = theirs.iter().copied().collect();
        let version = |owner: &Peer| theirs.get(owner).copied().unwrap_or(0);
        let newer = self.sheets.iter();
        // A copy of a third node's sheet serves as well as the owner's: the versions are its own.
        let newer = newer.filter(|(owner, sheet)| sheet.version > version(owner));
        let pages = newer.map(|(owner, sheet)| sheet.page(*owner, version(owner)));
        let lack = theirs.iter().any(|(owner, version)| {
            let have = self.sheets.get(owner).map_or(0, |sheet| sheet.version);
            // Sheets of lives that are dead here are not asked for: they would be dropped on
            // arrival.
            *version > have && *owner != self.me && view.is_alive(*owner)
        });
        (pages.collect(), lack)
    }

    /// The changes of a sheet after that version.
    pub(crate) fn page(&self, owner: Peer, after: u64) -> Option<Page> {
        let sheet = self.sheets.get(&owner)?;
        (sheet.version > after).then(|| sheet.page(owner, after))
    }

    pub(crate) fn version(&self, owner: Peer) -> u64 {
        self.sheets.get(&owner).map_or(0, |sheet| sheet.version)
    }

    pub(crate) fn me(&self) -> Peer {
        self.me
    }

    // ---- time

    /// Looks whether every live node has announced everything. The workers are told when that changes.
    pub(crate) fn refresh_settled(
        &mut self,
        actions: &mut VecDeque<Action>,
        view: &View,
        strict: bool,
    ) {
        let is_loading = self.is_loading(view);
        // The own announcements are in the table before the life is entered among the dead.
        let has_read = |peer: Peer, dead: &Peer| peer == self.me && !self.unread.contains(dead);
        let has_flushed = |peer: Peer| {
            let sheet = self.sheets.get(&peer);
            (self.dead.keys()).all(|dead| {
                has_read(peer, dead) || sheet.is_some_and(|sheet| sheet.flushed.contains_key(dead))
            })
        };
        let is_announced = !is_loading && (view.members()).all(|member| has_flushed(member.peer));
        let settled = !strict || is_announced;
        // The marks of the workers depend on it, so they hear of both directions: the next death
        // unsettles it.
        if settled != self.settled {
            self.settled = settled;
            let news = OrphanNews::Settled(settled);
            actions.push_back(Action::Orphan(news));
        }
    }

    /// Has every live node announced what it had of the dead, as far as this node knows?
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let dead = self.dead.values().copied().min();
        let own = self.sheets.get(&self.me);
        let own = own.and_then(|own| {
            let written = own.flushed.values().chain(own.closed.values());
            written.min().map(|at| *at + REMEMBER)
        });
        let hearsay = self.hearsay.front().map(|(until, ..)| *until);
        let loading = self.loading.as_ref().map(|loading| loading.until);
        let all = dead.into_iter().chain(own).chain(hearsay).chain(loading);
        all.min()
    }

    /// Forgets what is old.
    pub(crate) fn handle_timeout(&mut self, actions: &mut VecDeque<Action>, now: Duration) {
        while let Some((until, owner, name)) = self.hearsay.front().cloned()
            && until <= now
        {
            self.hearsay.pop_front();
            let sheet = self.sheets.get(&owner);
            // By now the owner's own sheet would say so. If it does not, a claim there would be a
            // miss.
            if sheet.is_none_or(|sheet| !sheet.orphans.contains_key(&name)) {
                ran_out(Expiry::Hearsay);
                self.strike(actions, &name, owner);
            }
        }
        // A master without a store, or one that hangs, must not keep all marks for ever.
        self.loading.take_if(|loading| loading.until <= now);
        let dead = self.dead.len();
        // A live node that never says that it has flushed must not keep all marks for ever.
        self.dead.retain(|_, until| *until > now);
        if self.dead.len() < dead && !self.settled {
            ran_out(Expiry::Flush);
        }
        let Some(own) = self.sheets.get_mut(&self.me) else {
            return;
        };
        let before = own.flushed.len() + own.closed.len();
        own.flushed.retain(|_, at| *at + REMEMBER > now);
        own.closed.retain(|_, at| *at + REMEMBER > now);
        if own.flushed.len() + own.closed.len() < before {
            ran_out(Expiry::Remember);
            // The log does not hold what was forgotten, so the sheet is given out as a whole
            // from here on.
            own.version += 1;
            own.log.clear();
        }
    }
}

/// How that panic begins.
pub(crate) const GIVEN_UP: &str = "a job was given up";

/// The panic message for a job that has taken down so many nodes.
pub(crate) fn given_up(id: &JobId, nodes: u32) -> String {
    format!(
        "{GIVEN_UP}: {nodes} nodes died while they ran it; if the job was not the cause, raise SATIN_MAX_CRASHES (job {id})"
    )
}

/// Is the node there, in that life or another? Then it has not died.
fn lives_on(view: &View, who: Peer) -> bool {
    // Any life will do: a node that is back as the next generation has not died of anything.
    let lives = |generation| Peer { generation, ..who };
    view.is_any_alive(lives(0)..=lives(u32::MAX))
}
