//! Orphans: hosted jobs whose origin is gone, and results that are kept for whoever claims them.

use super::{
    super::{
        Context, Deal, HostedId, Identity, RepairMode, Rule,
        books::{HERE, Hosted, HostedState},
    },
    LifeEnd, Repair, ReturnReason,
};
use crate::job::{JobId, JobName, RootName, Saved};

impl Repair {
    /// The peer's life is over: what it hosted is done again, what is hosted for it becomes an orphan.
    pub(crate) fn life_ended(&mut self, cx: &mut Context<'_>, gone: &Identity, end: LifeEnd) {
        let peer = gone.peer;
        // First the announcements, then that they are all; and both before anything is looked up.
        let waiting: Vec<(Deal, HostedId)> = cx.books.of(peer).collect();
        for (deal, key) in waiting {
            let origin = cx.books.hosted(key);
            let origin = origin.and_then(|hosted| hosted.waiters.get(&deal).copied());
            // Struck out before the job is looked at: the dead one must not count among those who
            // wait.
            cx.books.unwait(deal);
            // Only the end of an origin makes an orphan. A claimant's end leaves the entry for the
            // next.
            match origin {
                Some(waiter) if waiter.origin => self.bereave(cx, key),
                _ => Repair::forget_if_idle(cx, key),
            }
        }
        // Sheets are written in all modes: at departures, and for root jobs. If this node goes on
        // as the next generation, the peer lives on, and its sheet with it.
        if end != LifeEnd::Ours {
            let died = end.is_death();
            cx.table.life_ended(cx.actions, cx.now, peer, died);
            let strict = cx.config.obeys(Rule::Flushed);
            cx.table.refresh_settled(cx.actions, cx.view, strict);
        }
        // Only now, after the orphans of this node are in the table: a repair looks itself up
        // when it starts, and would miss an orphan of this node that is not announced yet.
        let away: Vec<Deal> = cx.books.at(peer).map(|(deal, _)| deal).collect();
        let away = away.into_iter().filter(|_| cx.config.obeys(Rule::PutBack));
        for deal in away {
            // A departure takes nothing down. The count of a death may be the one too many.
            let victims = match end {
                LifeEnd::Died => self.blame(cx, deal),
                // A cut between sites takes nothing down either.
                LifeEnd::Silent | LifeEnd::Left | LifeEnd::Ours => 0,
            };
            if victims >= cx.config.max_crashes {
                self.give_up_on(cx, gone, deal.token, victims);
            } else {
                self.bring_back(cx, deal, ReturnReason::Ended(end));
            }
        }
        // The outbox goes too: no word may go to a life whose end was dealt with.
        cx.books.outboxes.remove(&peer);
        self.listed.remove(&peer);
        cx.books.forget_early_recalls(peer);
        self.reconnect.remove(&peer);
    }

    /// The origin of a hosted job does not wait for it any more, but somebody will: it is an orphan.
    pub(super) fn bereave(&mut self, cx: &mut Context<'_>, key: HostedId) {
        let Some(hosted) = cx.books.hosted(key) else {
            return;
        };
        // The workers are stopping with it, or the table has it already.
        if hosted.unwanted || hosted.orphan {
            return;
        }
        let others_wait = !hosted.waiters.is_empty();
        let done = match &hosted.state {
            // A job that was not done leaves nothing that could be claimed.
            HostedState::Done(answer) if answer.is_undone() => None,
            HostedState::Done(_) => Some(true),
            HostedState::Onwards(..) => Some(false),
            // No work is lost with the job, and the shared values that it needs may be gone.
            HostedState::Coming => None,
            HostedState::Started => Some(false),
        };
        match (cx.config.repair, done) {
            // Without claimants the job is stopped. With them it goes on, and must not wait for the
            // leave of an origin that is gone.
            (RepairMode::Naive, _) | (_, None) => {
                if !others_wait {
                    self.abandon(cx, key);
                } else {
                    self.begin_unasked(cx, key);
                }
            }
            // As in the original Satin: what runs is stopped, and the results of its finished
            // children are kept.
            (RepairMode::Finished, Some(false)) if !others_wait => {
                // A job that went onwards has no worker here to stop: its answer is kept when it
                // comes.
                if hosted.state == HostedState::Started {
                    self.give_up(cx, key);
                } else {
                    self.adopt_bereaved(cx, key, false);
                }
            }
            (_, Some(finished)) => self.adopt_bereaved(cx, key, finished),
        }
    }

    /// The origin of a hosted job has gone, and the job is wanted: it becomes an orphan of this node.
    fn adopt_bereaved(&mut self, cx: &mut Context<'_>, key: HostedId, finished: bool) {
        let is_orphan = self.adopt(cx, key, finished);
        cx.books.tally.orphans += u64::from(is_orphan);
    }

    /// Enters a hosted job in the orphan table as this node's, and announces it. False if no claim will come, or another
    /// entry of the name is as good.
    fn adopt(&mut self, cx: &mut Context<'_>, key: HostedId, finished: bool) -> bool {
        let Some(hosted) = cx.books.look(key) else {
            return false;
        };
        // The bounds of a root job that was over are for those only who wait for its parts: one that was under
        // way then is not used again, not in a later term either.
        let is_past = self.is_past(hosted);
        let is_awaited = !hosted.waiters.is_empty();
        // The process of the root job has been gone for a minute: no claim will ever come.
        if !is_awaited && (is_past || cx.homes.is_gone(cx.view, hosted.root)) {
            self.abandon(cx, key);
            return false;
        }
        if is_past {
            return false;
        }
        if !cx.books.orphan(key) {
            // Another orphan of that name is here, which is as good.
            let is_alone = |hosted: &Hosted| hosted.waiters.is_empty();
            if cx.books.look(key).is_some_and(is_alone) {
                self.abandon(cx, key);
            }
            return false;
        }
        let Some(hosted) = cx.books.look(key) else {
            return false;
        };
        let name = hosted.name.clone();
        if cx.config.obeys(Rule::Announce) {
            (cx.table).announce(cx.actions, cx.now, &name, finished);
        }
        // A whole result makes those of its parts, kept here too, useless.
        if finished {
            cx.books.keep_anew([name.clone()]);
            self.drop_spare(cx, &name.id);
        }
        true
    }

    /// A node has the result of that job: some results that are kept here, at or below it, are useless.
    pub(super) fn drop_spare(&mut self, cx: &mut Context<'_>, id: &JobId) {
        if cx.config.obeys(Rule::Closed) {
            for key in cx.books.orphans_below(id) {
                self.drop_if_spare(cx, key);
            }
        }
    }

    /// A result that is kept here goes if nobody will ask for it: somebody has that of a job around it, or keeps it too. Of
    /// root jobs there are to be two.
    fn drop_if_spare(&mut self, cx: &mut Context<'_>, key: HostedId) {
        let Some(hosted) = cx.books.look(key).filter(|hosted| hosted.orphan) else {
            return;
        };
        let name = &hosted.name;
        // Running orphans stay: their owner is told to stop by a closing, not by another's result.
        let is_kept = matches!(hosted.state, HostedState::Done(_)) && !name.id.is_root_job();
        // Of two that keep the same result, the one that comes later in order drops it, so that
        // not both do.
        let is_spare =
            cx.table.is_covered(&name.id, cx.view) || cx.table.is_kept_before(name, cx.view);
        if is_kept && is_spare {
            self.withdraw_entry(cx, key);
        }
    }

    /// An orphan that still runs is not needed any more: whoever waits for it gets the answer that came another way.
    fn hand_over(&mut self, cx: &mut Context<'_>, old: HostedId, new: HostedId) {
        let Some(hosted) = cx.books.hosted(old) else {
            return;
        };
        // The name goes on under the new entry, which is announced as finished right after.
        cx.table.withdraw(cx.actions, cx.now, &hosted.name);
        let waiters: Vec<(Deal, u64)> = (hosted.waiters.iter())
            .map(|(deal, waiter)| (*deal, waiter.came))
            .collect();
        // The books know one orphan of a name: the old one makes room before the new one is
        // adopted.
        cx.books.no_orphan(old);
        for (deal, came) in waiters {
            cx.books.unwait(deal);
            // The token stays the same: the claimant does not see which run its answer comes from.
            if deal.peer != HERE {
                cx.books.wait(new, deal, came, false);
                cx.books.outbox(deal.peer).answers.push(deal.token);
            } else if let Some(answer) = Repair::answer_for_here(cx, new) {
                self.take_answer(cx, deal, answer);
            }
        }
        self.abandon(cx, old);
    }

    /// Results that somebody will claim. They came in that term.
    pub(crate) fn keep(&mut self, cx: &mut Context<'_>, term: u32, saved: Vec<Saved>) {
        let has_roots = saved.iter().any(|saved| saved.name.id.is_root_job());
        self.keep_all(cx, term, saved);
        if has_roots {
            self.limit_root_results(cx);
        }
    }

    fn keep_all(&mut self, cx: &mut Context<'_>, term: u32, saved: Vec<Saved>) {
        for saved in saved {
            // Looked up now: after `keep` the name may stand for the new entry.
            let before = cx.books.orphan_of(&saved.name);
            // `None`: the result is here, perhaps said twice.
            let Some(key) = cx.books.keep(term, &saved) else {
                continue;
            };
            // The waiters of the orphan that still runs get the result that is there.
            if let Some(before) = before {
                self.hand_over(cx, before, key);
            }
            let is_kept = self.adopt(cx, key, true);
            cx.books.tally.kept += u64::from(is_kept);
        }
    }

    /// Keeps results that a node had taken which is gone, and of which a part is kept here. Whoever runs again what that node ran may claim them.
    pub(crate) fn keep_left_behind(&mut self, cx: &mut Context<'_>, results: Vec<(u32, Saved)>) {
        for (term, saved) in results {
            // It had been claimed here, and is an orphan still.
            if cx.books.untake(&saved.name) {
                continue;
            }
            // Another one of that name, with its own parts, is as good.
            let is_here = Repair::kept(cx, &saved.name).is_some();
            if is_here || cx.config.repair == RepairMode::Naive {
                cx.books.let_go(&saved.answer);
            } else {
                self.keep_all(cx, term, vec![saved]);
            }
        }
    }

    /// Keeps results that are in stable storage.
    pub(crate) fn keep_stored(&mut self, cx: &mut Context<'_>, term: u32, saved: Vec<Saved>) {
        let unwritten = cx.books.take_newly_kept();
        // All results of root jobs, however large together: `main` will call the oldest first.
        self.keep_all(cx, term, saved);
        cx.books.take_newly_kept();
        cx.books.keep_anew(unwritten);
    }

    /// `main` calls a root job. What is kept here of another one of that number, which had other arguments, is no result of
    /// its jobs: bounds that belong to that one may have pruned them.
    pub(crate) fn forget_other_root(&mut self, cx: &mut Context<'_>, root: RootName) {
        if !root.is_of_main() {
            return;
        }
        for key in cx.books.orphans_below(&root.job_name().id) {
            let is_other = |hosted: &Hosted| {
                hosted.root != root && matches!(hosted.state, HostedState::Done(_))
            };
            if cx.books.look(key).is_some_and(is_other) {
                self.withdraw_entry(cx, key);
            }
        }
    }

    /// The result that is kept here under that name.
    pub(crate) fn kept(cx: &Context<'_>, name: &JobName) -> Option<Saved> {
        let key = cx.books.orphan_of(name)?;
        let answer = Repair::answer_of(cx, key)?;
        Some(cx.books.look(key)?.saved(answer))
    }

    /// Of the results of root jobs that are kept here the oldest go, if they are too large together.
    fn limit_root_results(&mut self, cx: &mut Context<'_>) {
        let results = cx.books.root_results_by_size();
        let mut bytes: usize = results.iter().map(|(_, size)| size).sum();
        let newest = results.last().map(|(key, _)| *key);
        for (key, size) in results {
            // The newest stays whatever its size: it is the one that the next `main` needs first.
            if bytes <= cx.config.root_results || Some(key) == newest {
                return;
            }
            bytes -= size;
            self.withdraw_entry(cx, key);
        }
    }

    /// An orphan is not to be had here any more. Who waits for it already gets it.
    pub(super) fn withdraw_entry(&mut self, cx: &mut Context<'_>, key: HostedId) {
        let Some(hosted) = cx.books.hosted(key) else {
            return;
        };
        cx.table.withdraw(cx.actions, cx.now, &hosted.name);
        // Read before the entry changes. With waiters the job goes on: they were promised its
        // answer.
        let unwanted = hosted.waiters.is_empty();
        cx.books.no_orphan(key);
        if unwanted {
            self.abandon(cx, key);
        }
    }
}
