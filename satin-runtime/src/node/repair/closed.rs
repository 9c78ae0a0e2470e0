//! Jobs that are over: a job that is done needs none of the results any more that were kept at or below it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    super::{
        Context, Deal, DepartureId, Rule,
        books::{Hosted, HostedState, Job, JobSource, OutstandingKind},
    },
    Repair,
};
use crate::job::{JobId, RootName, RootTag};

/// The number of root jobs, the last ones, whose results a node keeps. Too small: a `main` that is started
/// again does older ones again. Too large: memory, as long as `main` runs.
const ROOT_RESULTS: u32 = 4096;

/// Terms of which it is remembered which root jobs are over, the latest. Too small: what is left of an earlier run is used again
/// without the bounds that it had. Too large: memory.
const TERMS: usize = 1024;

/// Root jobs that are over, for the question whether an orphan may still be wanted. Orphans outlive terms, so what ended is
/// remembered by the term of its run, and a new `main` takes nothing back. `EndedRoots` in `node/shared/bounds.rs` answers for
/// bounds, which begin anew with every `main`: there only the present one counts.
#[derive(Default)]
pub(super) struct FinishedRoots {
    /// The highest number of a root job of `main` that is over, by the term of the run. `main` calls them one after another.
    of_main: BTreeMap<u32, u32>,
    /// The numbers of root jobs of other threads, the last few. They are not called again in the next term.
    others: BTreeSet<u32>,
    /// The same numbers, in the order in which they ended: the first is forgotten first.
    order: VecDeque<u32>,
}

impl FinishedRoots {
    pub(super) fn insert(&mut self, tag: RootTag) {
        if tag.number < RootName::OTHERS {
            let highest = self.of_main.entry(tag.term).or_default();
            *highest = tag.number.max(*highest);
            if self.of_main.len() > TERMS {
                self.of_main.pop_first();
            }
            return;
        }
        if self.others.insert(tag.number) {
            self.order.push_back(tag.number);
        }
        if self.order.len() > ROOT_RESULTS as usize
            && let Some(oldest) = self.order.pop_front()
        {
            self.others.remove(&oldest);
        }
    }

    /// Is that job, of a run in that term, a part of a root job that is over since? A root job itself never is: its result stays.
    pub(super) fn is_past(&self, term: u32, id: &JobId) -> bool {
        let Some(number) = id.path().next().filter(|_| !id.is_root_job()) else {
            return false;
        };
        if number >= RootName::OTHERS {
            return self.others.contains(&number);
        }
        // `main` calls one root job after another: with this number all smaller ones are over.
        let mut since = self.of_main.range(term..);
        since.any(|(_, highest)| number <= *highest)
    }
}

impl Repair {
    /// True if the root job of which that hosted job is a part has been over since it came.
    pub(super) fn is_past(&self, hosted: &Hosted) -> bool {
        self.over.is_past(hosted.term, &hosted.name.id)
    }

    /// True if that job is a part of a root job that has been over since that term began.
    pub(crate) fn is_over(&self, term: u32, id: &JobId) -> bool {
        self.over.is_past(term, id)
    }

    /// A job that had come back is done here.
    pub(crate) fn repaired(&mut self, cx: &mut Context<'_>, id: &JobId) {
        self.close_below(cx, id, false);
    }

    /// A job of this node is done: what others keep of it, from runs of it that did not come to their end, nobody wants.
    pub(super) fn close_if_kept(&mut self, cx: &mut Context<'_>, id: &JobId) {
        // Programs that see no death have nothing in the table, and write no closings.
        if cx.config.obeys(Rule::Closed) && cx.table.is_anything_at(id) {
            cx.table.close(cx.now, id);
            self.closed(cx, id);
        }
    }

    /// A job is done that may have repairs below it: nobody wants what they could have claimed. If its own result is kept here,
    /// for others, that is wanted.
    pub(super) fn close_below(&mut self, cx: &mut Context<'_>, id: &JobId, keeps: bool) {
        for repair in self.forget_below(id) {
            // The own name stays open where the result is kept for others: a closing would
            // withdraw it.
            if cx.config.obeys(Rule::Closed) && !(keeps && repair == *id) {
                cx.table.close(cx.now, &repair);
                self.closed(cx, &repair);
            }
        }
    }

    /// Forgets what came back at or below that job. The repairs among it are returned.
    pub(super) fn forget_below(&mut self, id: &JobId) -> Vec<JobId> {
        // Every job that was away asks so at its end: without a death there is no search.
        if self.repairs.is_empty() && self.withdrawn.is_empty() {
            return Vec::new();
        }
        id.take_below(&mut self.withdrawn);
        let repairs: Vec<JobId> = (self.repairs.range(id.clone()..))
            .take_while(|repair| id.is_ancestor_of(repair))
            .cloned()
            .collect();
        for repair in &repairs {
            self.repairs.remove(repair);
        }
        repairs
    }

    /// A node has the result of that job: no orphan at or below it is wanted. The result of a root job stays, in case
    /// `main` is started again.
    pub(crate) fn closed(&mut self, cx: &mut Context<'_>, id: &JobId) {
        for key in cx.books.orphans_below(id) {
            // The next master calls the root jobs of `main` again, and finds their results here.
            let stays = |hosted: &Hosted| {
                hosted.name.id.is_root_job() && matches!(hosted.state, HostedState::Done(_))
            };
            if !cx.books.look(key).is_some_and(stays) {
                self.withdraw_entry(cx, key);
            }
        }
    }

    /// Other nodes have announced these orphans: results among them make some of those that are kept here useless.
    pub(crate) fn heard_of(&mut self, cx: &mut Context<'_>, orphans: &[JobId]) {
        for id in orphans {
            if cx.table.is_finished(id, cx.view) {
                self.drop_spare(cx, id);
            }
        }
        if Repair::looks_up(cx) {
            self.claim_finished(cx);
        }
    }

    /// Jobs that are away have been done elsewhere, by a side of a cut that has come over: their results are claimed there, and the runs stop.
    fn claim_finished(&mut self, cx: &mut Context<'_>) {
        let done = cx.books.all_away().filter_map(|deal| {
            let away = cx.books.look_away(deal)?;
            let JobSource::Own(departure) = away.source else {
                return None; // its origin does so
            };
            let is_run = away.kind == OutstandingKind::Theft && !away.answering;
            let is_done = is_run && cx.table.has_result(&away.job.name, cx.view);
            is_done.then_some((deal, departure))
        });
        let done: Vec<(Deal, DepartureId)> = done.collect();
        let is_done = |_, job: &Job| cx.table.has_result(&job.name, cx.view);
        for (departure, job) in self.late.take(is_done) {
            self.claim_at_owner(cx, departure, job);
        }
        for (deal, departure) in done {
            if let Some(away) = cx.books.back(deal) {
                self.let_go(cx, deal);
                self.repairs.insert(away.job.name.id.clone());
                self.claim_at_owner(cx, departure, away.job);
            }
        }
    }

    /// Other nodes have announced these orphans. Those of a root job that is over nobody will want; the master says so
    /// to whoever missed the end of it, and of root jobs of other threads everybody who knows.
    pub(crate) fn close_past(&mut self, cx: &mut Context<'_>, orphans: &[JobId], is_master: bool) {
        let past = orphans.iter().filter(|id| {
            // The master says so for all, so that not every node does. Of other threads' root
            // jobs it may not have heard.
            let may = is_master || id.root_number() >= RootName::OTHERS;
            may && self.over.is_past(cx.term, id)
        });
        let numbers: BTreeSet<u32> = past.filter_map(|id| id.path().next()).collect();
        for number in numbers {
            if cx.config.obeys(Rule::Closed) {
                // The whole root job is closed: one entry serves for all orphans below it.
                cx.table.close(cx.now, &JobId::ROOT.child(number));
            }
        }
    }

    /// Forgets a root job that is under way nowhere any more.
    pub(crate) fn forget_root(&mut self, cx: &mut Context<'_>, root: RootName) {
        cx.table.acquit(cx.now, &JobId::ROOT.child(root.number));
        self.forget_undone(|number| number == root.number);
        // Each process numbers the root jobs of its threads from the same number on: orphans
        // of another process's stay.
        for key in cx.books.orphans_below(&JobId::ROOT.child(root.number)) {
            let belongs = |hosted: &Hosted| hosted.root == root;
            if cx.books.look(key).is_some_and(belongs) {
                self.withdraw_entry(cx, key);
            }
        }
    }

    /// A root job of this node is over: whoever is not told so finds it in the table.
    pub(crate) fn close_root(&mut self, cx: &mut Context<'_>, root: RootName) {
        let id = JobId::ROOT.child(root.number);
        cx.table.acquit(cx.now, &id);
        // Nodes that are under way with it are told directly. Only a node that keeps something
        // of it may have been missed.
        if cx.config.obeys(Rule::Closed) && cx.table.is_anything_below(&id) {
            cx.table.close(cx.now, &id);
        }
    }

    /// A root job is over. Its own result stays, in case `main` is started again.
    pub(crate) fn root_over(&mut self, cx: &mut Context<'_>, tag: RootTag) {
        let root = JobId::ROOT.child(tag.number);
        self.forget_undone(|number| {
            // Root jobs of `main` come one after another: with this one all before it are over too,
            // also those whose end this node did not hear of. Those of other threads overlap.
            number == tag.number || number < tag.number && tag.number < RootName::OTHERS
        });
        // Each end drops the result of the root job that is so many older: the number of kept
        // results is bounded while `main` runs.
        if let Some(oldest) = tag.number.checked_sub(ROOT_RESULTS) {
            for key in cx.books.orphans_below(&JobId::ROOT.child(oldest)) {
                self.withdraw_entry(cx, key);
            }
        }
        cx.table.acquit(cx.now, &root);
        if tag.number < RootName::OTHERS {
            cx.table.acquit_before(cx.now, tag.number);
        }
        self.over.insert(tag);
        self.closed(cx, &root);
    }

    /// Root jobs of these numbers are over, and so is all that came back of them.
    pub(super) fn forget_undone(&mut self, is_over: impl Fn(u32) -> bool) {
        self.withdrawn.retain(|id, _| !is_over(id.root_number()));
        self.repairs.retain(|id| !is_over(id.root_number()));
    }
}
