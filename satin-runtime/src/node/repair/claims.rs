//! Claims: asking for the result of an orphan instead of computing it again, and being asked.

use super::{
    super::{
        Action, Context, Deal, DepartureId, HostedId, Peer, RepairMode, Rule, Token, Wanted,
        books::{HERE, Job, JobSource, OutstandingKind},
    },
    Repair, ReturnReason,
};
use crate::job::{Back, Parcel};

impl Repair {
    /// Does this node look up jobs that no mark tells to? Simulations leave out what the marks are for.
    pub(super) fn looks_up(cx: &Context<'_>) -> bool {
        let obeys = |rule| cx.config.obeys(rule);
        cx.config.repair != RepairMode::Naive && obeys(Rule::Mark) && obeys(Rule::Inherit)
    }

    /// A marked job of ours is an orphan somewhere.
    pub(crate) fn claimed(&mut self, cx: &mut Context<'_>, departure: DepartureId, parcel: Parcel) {
        // A worker got as far as a claim, so the workers are not stuck.
        cx.books.hands.move_on();
        self.claim_at_owner(cx, departure, Job::of(&parcel));
    }

    /// The result of a job of ours, which no worker has any more, is claimed where it is an orphan.
    pub(super) fn claim_at_owner(
        &mut self,
        cx: &mut Context<'_>,
        departure: DepartureId,
        mut job: Job,
    ) {
        // Simulations leave the rule out, to show that a result of other work is delivered then.
        if !cx.config.obeys(Rule::Fingerprint) {
            let other = cx.table.any(&job.name.id);
            job.name.fingerprint = other.unwrap_or(job.name.fingerprint);
        }
        let me = cx.table.me();
        let owner = cx.table.owner(&job.name, cx.view);
        let (source, kind) = (JobSource::Own(departure), OutstandingKind::Claim);
        // Put back, the job runs at once: its worker was about to begin with it.
        let back = Back {
            history: job.history,
            at_once: true,
            held: false,
            stays: false,
        };
        match owner {
            Some(owner) if owner == me => {
                // Without an entry in the books there is no answer to wait for, whatever the sheet
                // says.
                let mine = cx.books.orphan_of(&job.name);
                let Some(key) = mine.filter(|key| !self.is_hollow(cx, *key)) else {
                    cx.actions.push_back(Action::PutBack(departure, back));
                    return;
                };
                cx.books.tally.claims += 1;
                let deal = cx.books.away(HERE, source, kind, job, None);
                // A claim at this node is entered like any other, so it can be withdrawn: an orphan
                // may lie below its own repair on one stack, and each would wait for the other.
                cx.books.wait(key, deal, 0, false);
                // Done already: nobody would tell this waiter, as the answer went out before it
                // came.
                if let Some(answer) = Repair::answer_for_here(cx, key) {
                    cx.books.unwait(deal);
                    self.take_answer(cx, deal, answer);
                }
            }
            Some(owner) => {
                cx.books.tally.claims += 1;
                let name = job.name.clone();
                let sent = cx.links.epoch(owner);
                let Deal { token, .. } = cx.books.away(owner, source, kind, job, sent);
                let wanted = Wanted { token, name };
                cx.books.outbox(owner).claim.push(wanted);
            }
            // The orphan went while the workers told of the claim.
            None => {
                cx.actions.push_back(Action::PutBack(departure, back));
            }
        }
    }

    pub(crate) fn claim(&mut self, cx: &mut Context<'_>, from: Peer, wanted: Vec<Wanted>) {
        let came = cx.links.epoch(from).unwrap_or(0);
        for Wanted { token, name } in wanted {
            let deal = Deal::new(from, token);
            // Withdrawn before it came; or said twice, and entered already.
            if cx.books.was_recalled(deal) || cx.books.key(deal).is_some() {
                continue;
            }
            // A miss at once, never a wait: the claimant does the job itself.
            let orphan = cx.books.orphan_of(&name);
            let Some(key) = orphan.filter(|key| !self.is_hollow(cx, *key)) else {
                cx.books.outbox(from).miss.push(token);
                continue;
            };
            Repair::wait_too(cx, key, deal, came);
        }
    }

    /// Releases held jobs that are orphans somewhere: each will be claimed there.
    pub(super) fn claim_held(&mut self, cx: &mut Context<'_>) {
        // Said once; the workers tell what is still held then.
        self.held.retain(|name| {
            let claimed = cx.table.owner(name, cx.view).is_some();
            if claimed {
                cx.actions.push_back(Action::ReleaseOne(name.clone()));
            }
            !claimed
        });
    }

    pub(crate) fn missed(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            let deal = Deal::new(from, *token);
            if let Some(away) = cx.books.outstanding(deal) {
                // Struck out before the job starts again, or it would find the same owner in the
                // table and claim there once more, until that sheet's news arrive.
                cx.table.miss(cx.actions, from, &away.job.name);
                self.bring_back(cx, deal, ReturnReason::Missed);
            }
        }
    }

    pub(crate) fn have(cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            let is_news = cx.books.make_claim(Deal::new(from, *token));
            // Said again after a broken link: counted once.
            cx.books.tally.claims += u64::from(is_news);
        }
    }

    /// A thief that has the job already says so, instead of doing it once more.
    pub(super) fn has_already(
        &mut self,
        cx: &mut Context<'_>,
        deal: Deal,
        came: u64,
        parcel: &Parcel,
    ) -> bool {
        // An unmarked job was never cut short, so a second run of it is not looked for.
        if !parcel.history.marked || !cx.config.obeys(Rule::Have) {
            return false;
        }
        if cx.books.key(deal).is_some() {
            return true; // a token is given once
        }
        let found = cx.books.find(&parcel.name());
        let Some(key) = found.filter(|key| !self.is_hollow(cx, *key)) else {
            return false;
        };
        // The bounds of a root job that was over are for those only who wait for its parts: none is used for another run.
        if cx
            .books
            .look(key)
            .is_some_and(|hosted| self.is_past(hosted))
        {
            return false;
        }
        // The origin enters the theft as a claim, which it may withdraw if it has nothing else to
        // do.
        cx.books.outbox(deal.peer).have.push(deal.token);
        Repair::wait_too(cx, key, deal, came);
        true
    }

    /// Is that a result of which a part was kept here and has been let go? Then nobody finds it any more.
    fn is_hollow(&mut self, cx: &mut Context<'_>, key: HostedId) -> bool {
        let is_hollow = cx.books.is_hollow(key, cx.view.me().peer.id);
        if is_hollow {
            self.withdraw_entry(cx, key);
        }
        is_hollow
    }

    /// Adds a peer that waits for the answer of a hosted job, which may be here already.
    fn wait_too(cx: &mut Context<'_>, key: HostedId, deal: Deal, came: u64) {
        cx.books.wait(key, deal, came, false);
        // The answer went out before this waiter came, so it is said again, to this one.
        if cx
            .books
            .look(key)
            .is_some_and(|hosted| hosted.answer().is_some())
        {
            cx.books.outbox(deal.peer).answers.push(deal.token);
        }
    }

    pub(crate) fn disowned(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            let deal = Deal::new(from, *token);
            match cx.books.unwait(deal) {
                Some(key) => self.bereave(cx, key),
                // The job has not come yet, so nothing is lost.
                None => cx.books.expect(deal),
            }
        }
    }
}
