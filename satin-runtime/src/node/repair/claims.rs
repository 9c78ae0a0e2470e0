//! Claims: asking for the result of an orphan instead of computing it again, and being asked.

use super::{
    super::{
        Action, Context, Departure, HostKey, Peer, Rule, Token, Wanted,
        books::{HERE, Hosted, Job, Kind, Source},
    },
    Repair, Why,
};
use crate::job::{Back, Parcel};

impl Repair {
    /// A marked job of ours is an orphan somewhere.
    pub(crate) fn claimed(&mut self, cx: &mut Context<'_>, departure: Departure, parcel: Parcel) {
        cx.books.hands.move_on();
        let mut job = Job::of(&parcel);
        if !cx.config.obeys(Rule::Fingerprint) {
            job.fingerprint = cx.table.any(&job.id).unwrap_or(job.fingerprint);
        }
        let me = cx.table.me();
        let owner = cx.table.owner(&job.id, job.fingerprint, cx.view);
        let source = (Source::Own(departure), Kind::Claim);
        let back = Back {
            repair: job.repair,
            at_once: true,
            held: false,
        };
        let mine = || cx.books.orphan_of(&job.id, job.fingerprint);
        match owner {
            Some(owner) if owner == me => {
                let Some(key) = mine() else {
                    cx.actions.push_back(Action::PutBack(departure, back));
                    return;
                };
                cx.books.tally.claims += 1;
                let token = cx.books.away(HERE, source, job, None);
                cx.books.wait(key, (HERE, token), 0, false);
                if let Some(answer) = Repair::answer_of(cx, key) {
                    cx.books.unwait(HERE, token);
                    self.take_answer(cx, HERE, token, answer);
                }
            }
            Some(owner) => {
                cx.books.tally.claims += 1;
                let (id, fingerprint) = (job.id.clone(), job.fingerprint);
                let sent = cx.links.epoch(owner);
                let token = cx.books.away(owner, source, job, sent);
                let wanted = Wanted {
                    token,
                    id,
                    fingerprint,
                };
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
        for Wanted {
            token,
            id,
            fingerprint,
        } in wanted
        {
            if cx.books.was_recalled(from, token) || cx.books.key(from, token).is_some() {
                continue;
            }
            let Some(key) = cx.books.orphan_of(&id, fingerprint) else {
                cx.books.outbox(from).miss.push(token);
                continue;
            };
            Repair::wait_too(cx, key, (from, token), came);
        }
    }

    /// Releases held jobs that are orphans somewhere: each will be claimed there.
    pub(super) fn claim_held(&mut self, cx: &mut Context<'_>) {
        // Said once; the workers tell what is still held then.
        self.held.retain(|(id, fingerprint)| {
            let claimed = cx.table.owner(id, *fingerprint, cx.view).is_some();
            if claimed {
                cx.actions
                    .push_back(Action::ReleaseOne(id.clone(), *fingerprint));
            }
            !claimed
        });
    }

    pub(crate) fn missed(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            if let Some(away) = cx.books.outstanding(from, *token) {
                let name = (&away.job.id, away.job.fingerprint);
                cx.table.miss(cx.actions, from, name);
                self.bring_back(cx, from, *token, Why::Missed);
            }
        }
    }

    pub(crate) fn have(cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            cx.books.tally.claims += u64::from(cx.books.is_claim(from, *token));
        }
    }

    /// A thief that has the job already says so, instead of doing it once more.
    pub(super) fn has_already(
        &mut self,
        cx: &mut Context<'_>,
        (from, token): (Peer, Token),
        came: u64,
        parcel: &Parcel,
    ) -> bool {
        if !parcel.repair.marked || !cx.config.obeys(Rule::Have) {
            return false;
        }
        if cx.books.key(from, token).is_some() {
            return true; // a token is given once
        }
        let Some(key) = cx.books.find(&parcel.id, parcel.fingerprint) else {
            return false;
        };
        let is_past = |hosted: &Hosted| self.over.is_past(hosted.term, &hosted.id);
        if cx.books.look(key).is_some_and(is_past) {
            return false; // its bounds are gone
        }
        cx.books.outbox(from).have.push(token);
        Repair::wait_too(cx, key, (from, token), came);
        true
    }

    /// One more peer waits for the answer of a hosted job, which may be here already.
    fn wait_too(cx: &mut Context<'_>, key: HostKey, waiter: (Peer, Token), came: u64) {
        cx.books.wait(key, waiter, came, false);
        if cx
            .books
            .look(key)
            .is_some_and(|hosted| hosted.answer().is_some())
        {
            let (peer, token) = waiter;
            cx.books.outbox(peer).answers.push(token);
        }
    }

    pub(crate) fn disowned(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            match cx.books.unwait(from, *token) {
                Some(key) => self.bereave(cx, key),
                // The job has not come yet, so nothing is lost.
                None => cx.books.expect(from, *token),
            }
        }
    }
}
