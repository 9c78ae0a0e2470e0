//! Leaving on purpose, as far as jobs are concerned: which of them are given up, and who is told.

use super::{
    super::{
        Action, Context, Deal, HostedId, RepairMode, Rule,
        books::{HERE, HostedState, JobSource, OutstandingKind},
    },
    Repair, ReturnReason,
    closed::FinishedRoots,
};
use crate::job::{JobId, RootName};

impl Repair {
    /// Begins to leave: the node takes no more jobs, and gives back those that it has not begun.
    pub(crate) fn drain(cx: &mut Context<'_>) {
        cx.books.draining = true;
        // Jobs that no worker has begun go back now: others can do them at once, while the grace is
        // for those that run.
        cx.actions.push_back(Action::GiveBack);
    }

    /// `main` is being stopped here: what others have of it is wanted by the next `main`, and is to be found before that begins.
    pub(crate) fn disown_main(cx: &mut Context<'_>) {
        if cx.config.repair == RepairMode::Naive || !cx.config.obeys(Rule::Disown) {
            return;
        }
        let all: Vec<Deal> = cx.books.all_away().collect();
        // Jobs of other nodes that run here go on as long as there is time, and wait for their children.
        let keys: Vec<HostedId> = cx.books.hosted_keys().collect();
        let hosted: Vec<JobId> = (keys.into_iter())
            .filter_map(|key| Some(cx.books.look(key)?.name.id.clone()))
            .collect();
        let of_main = |deal: &Deal| {
            cx.books.look_away(*deal).is_some_and(|away| {
                let number = away.job.name.id.root_number();
                let is_own = matches!(away.source, JobSource::Own(_));
                let is_of_hosted = hosted.iter().any(|id| id.is_ancestor_of(&away.job.name.id));
                is_own
                    && !is_of_hosted
                    && away.kind == OutstandingKind::Theft
                    && number < RootName::OTHERS
            })
        };
        let deals: Vec<Deal> = all.into_iter().filter(of_main).collect();
        for deal in deals {
            // The workers recall it when they unwind, which may take long; it is nothing of theirs any more then.
            cx.books.back(deal);
            cx.books.outbox(deal.peer).disown.push(deal.token);
        }
    }

    /// Gives up the jobs that still run; their deals with the origins that wait for them are returned: they are to be told.
    pub(crate) fn give_all_up(&mut self, cx: &mut Context<'_>) -> Vec<(Deal, JobId)> {
        let mut given = Vec::new();
        let keys: Vec<HostedId> = cx.books.hosted_keys().collect();
        for key in keys {
            // The workers are stopping with an unwanted job already.
            let Some(hosted) = cx.books.hosted(key).filter(|hosted| !hosted.unwanted) else {
                continue;
            };
            let (state, id) = (hosted.state.clone(), hosted.name.id.clone());
            // Finished results go to the heir; and who waits for one gets it with the last words.
            if matches!(state, HostedState::Done(_)) {
                continue;
            }
            let waiters: Vec<(Deal, bool)> = (hosted.waiters.iter())
                .map(|(deal, waiter)| (*deal, waiter.origin))
                .collect();
            // No new claim may come for what ends here.
            cx.table.withdraw(cx.actions, cx.now, &hosted.name);
            for (deal, origin) in waiters {
                cx.books.unwait(deal);
                match (deal.peer == HERE, origin) {
                    // Of what this node claims at itself there is no answer any more: the
                    // worker that waits must go on.
                    (true, _) => self.bring_back(cx, deal, ReturnReason::Missed),
                    // An origin hears of it only when the heir has the results: told earlier, it
                    // would do again what is being saved.
                    (false, true) => given.push((deal, id.clone())),
                    // A claimant has the job itself, and does it.
                    (false, false) => cx.books.outbox(deal.peer).miss.push(deal.token),
                }
            }
            match state {
                HostedState::Started => self.give_up(cx, key),
                HostedState::Onwards(deal, _) => {
                    // The thief goes on as the owner of an orphan: its work is not lost with the
                    // node between.
                    cx.books.forget(key);
                    cx.books.back(deal);
                    cx.books.outbox(deal.peer).disown.push(deal.token);
                }
                // Not begun, so nothing is lost with it.
                HostedState::Coming | HostedState::Done(_) => self.abandon(cx, key),
            }
        }
        given
    }

    /// This node leaves its side of a cut, all of whose lives are over for it: what it runs for others is given up, and what is finished is kept.
    pub(crate) fn come_over(&mut self, cx: &mut Context<'_>) {
        // Nobody waits for any of it.
        self.give_all_up(cx);
        // Nor will `main`, which stops, do what has come back to it.
        self.forget_undone(|number| number < RootName::OTHERS);
        if cx.config.obeys(Rule::ForgetTime) {
            self.over = FinishedRoots::default();
        }
    }

    /// Tells the workers to stop with a hosted job, and to save what is finished below it.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_>, key: HostedId) {
        let save = cx.config.obeys(Rule::Save);
        // The tokens of the job are void from here on: an answer that is quicker goes to the saved
        // results.
        cx.books.disown(key);
        cx.books.give_up(key);
        cx.actions.push_back(match save {
            true => Action::Save(key),
            false => Action::Abort(key),
        });
    }

    /// Leaves at once: the origins of hosted jobs do them again, and outstanding jobs are not wanted any more.
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>) {
        cx.books.leaving = true;
        let hosted: Vec<HostedId> = cx.books.hosted_keys().collect();
        for key in hosted {
            if let Some(hosted) = cx.books.hosted(key)
                && !hosted.unwanted
                // A finished answer is said with the last words, rather than done again.
                && !matches!(hosted.state, HostedState::Done(..))
            {
                // The own claims need no word: this process ends.
                let waiters: Vec<Deal> = hosted.waiters.keys().copied().collect();
                for deal in waiters.into_iter().filter(|deal| deal.peer != HERE) {
                    cx.books.outbox(deal.peer).refused.push(deal.token);
                }
                self.abandon(cx, key);
            }
        }
        // Thieves are told now, in this last turn: later words of a life that has left are dropped.
        let away: Vec<Deal> = cx.books.all_away().collect();
        for deal in away.into_iter().filter(|deal| deal.peer != HERE) {
            cx.books.back(deal);
            cx.books.outbox(deal.peer).recall.push(deal.token);
        }
    }
}
