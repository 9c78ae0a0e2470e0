//! Orphans: hosted jobs whose origin is gone, and results that are kept for whoever claims them.

use super::{
    super::{
        Context, HostKey, Identity, Peer, RepairMode, Rule, Token,
        books::{HERE, Hosted, State},
    },
    End, Repair, Why,
};
use crate::job::{Answer, Fingerprint, JobId, Saved};

impl Repair {
    /// The peer's life is over: what it hosted is done again, what is hosted for it becomes an orphan.
    pub(crate) fn sever(&mut self, cx: &mut Context<'_>, gone: &Identity, end: End) {
        let peer = gone.peer;
        // First the announcements, then that they are all; and both before anything is looked up.
        let waiting: Vec<(Token, HostKey)> = cx.books.of(peer).collect();
        for (token, key) in waiting {
            let origin = cx.books.hosted(key);
            let origin = origin.and_then(|hosted| hosted.waiters.get(&(peer, token)).copied());
            cx.books.unwait(peer, token);
            match origin {
                Some(waiter) if waiter.origin => self.bereave(cx, key),
                _ => Repair::forget_if_idle(cx, key),
            }
        }
        // Sheets are written in all modes: at departures, and for root jobs.
        if end != End::Ours {
            let died = end == End::Died;
            cx.table.bury((cx.actions, cx.now), peer, died);
            let strict = cx.config.obeys(Rule::Flushed);
            cx.table.settle(cx.actions, cx.view, strict);
        }
        let away: Vec<Token> = cx.books.at(peer).map(|(token, _)| token).collect();
        let away = away.into_iter().filter(|_| cx.config.obeys(Rule::PutBack));
        for token in away {
            let victims = match end {
                End::Died => self.blame(cx, peer, token),
                End::Left | End::Ours => 0,
            };
            if victims >= cx.config.max_crashes {
                self.give_up_on(cx, gone, (token, victims));
            } else {
                self.bring_back(cx, peer, token, Why::Ended(end));
            }
        }
        cx.books.outboxes.remove(&peer);
        self.listed.remove(&peer);
        cx.books.forget_early_recalls(peer);
        self.reconnect.remove(&peer);
    }

    /// The origin of a hosted job does not wait for it any more, but somebody will: it is an orphan.
    pub(super) fn bereave(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let Some(hosted) = cx.books.hosted(key) else {
            return;
        };
        if hosted.unwanted || hosted.orphan {
            return;
        }
        let others_wait = !hosted.waiters.is_empty();
        let done = match &hosted.state {
            State::Done(Answer::Refused(_) | Answer::Aborted) => None,
            State::Done(_) => Some(true),
            State::Onwards(..) => Some(false),
            // No work is lost with the job, and the shared values that it needs may be gone.
            State::Coming => None,
            State::Started => Some(false),
        };
        match (cx.config.repair, done) {
            (RepairMode::Naive, _) | (_, None) => {
                if !others_wait {
                    self.abandon(cx, key);
                } else {
                    self.begin_unasked(cx, key);
                }
            }
            (RepairMode::Finished, Some(false)) if !others_wait => {
                if hosted.state == State::Started {
                    self.give_up(cx, key);
                } else {
                    self.adopt(cx, key, false);
                }
            }
            (_, Some(finished)) => self.adopt(cx, key, finished),
        }
    }

    /// Makes a hosted job an orphan of this node, and announces it.
    pub(super) fn adopt(&mut self, cx: &mut Context<'_>, key: HostKey, finished: bool) {
        let Some(hosted) = cx.books.look(key) else {
            return;
        };
        // A root job that was over took the bounds of its parts along: what was under way then is not used again, not in a later
        // term either.
        let is_past = self.over.is_past(hosted.term, &hosted.id);
        let is_awaited = !hosted.waiters.is_empty();
        if !is_awaited && (is_past || cx.homes.is_gone(cx.view, hosted.root)) {
            return self.abandon(cx, key);
        }
        if is_past {
            return;
        }
        if !cx.books.orphan(key) {
            // Another orphan of that name is here, which is as good.
            let is_alone = |hosted: &Hosted| hosted.waiters.is_empty();
            if cx.books.look(key).is_some_and(is_alone) {
                self.abandon(cx, key);
            }
            return;
        }
        cx.books.tally.orphans += 1;
        let Some(hosted) = cx.books.look(key) else {
            return;
        };
        let id = hosted.id.clone();
        if cx.config.obeys(Rule::Announce) {
            let name = (&id, hosted.fingerprint);
            cx.table.announce((cx.actions, cx.now), name, finished);
        }
        if finished {
            self.drop_spare(cx, &id);
        }
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
    fn drop_if_spare(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let Some(hosted) = cx.books.look(key).filter(|hosted| hosted.orphan) else {
            return;
        };
        let (id, fingerprint) = (&hosted.id, hosted.fingerprint);
        let is_kept = matches!(hosted.state, State::Done(_)) && !id.is_root_job();
        let is_spare =
            cx.table.is_covered(id, cx.view) || cx.table.is_kept_before(id, fingerprint, cx.view);
        if is_kept && is_spare {
            self.withdraw_entry(cx, key);
        }
    }

    /// An orphan that still runs is not needed any more: whoever waits for it gets the answer that came another way.
    fn hand_over(&mut self, cx: &mut Context<'_>, old: HostKey, new: HostKey) {
        let Some(hosted) = cx.books.hosted(old) else {
            return;
        };
        let name = (&hosted.id, hosted.fingerprint);
        cx.table.withdraw((cx.actions, cx.now), name);
        let waiters: Vec<((Peer, Token), u64)> = (hosted.waiters.iter())
            .map(|(waiter, is)| (*waiter, is.came))
            .collect();
        cx.books.no_orphan(old);
        for ((peer, token), came) in waiters {
            cx.books.unwait(peer, token);
            if peer != HERE {
                cx.books.wait(new, (peer, token), came, false);
                cx.books.outbox(peer).answers.push(token);
            } else if let Some(answer) = Repair::answer_of(cx, new) {
                self.take_answer(cx, HERE, token, answer);
            }
        }
        self.abandon(cx, old);
    }

    /// Results that somebody will claim.
    pub(crate) fn keep(&mut self, cx: &mut Context<'_>, saved: Vec<Saved>) {
        for saved in saved {
            let name = (saved.id.clone(), saved.fingerprint);
            let before = cx.books.orphan_of(&name.0, name.1);
            let Some(key) = cx.books.keep(cx.term, &saved) else {
                continue;
            };
            // The waiters of the orphan that still runs get the result that is there.
            if let Some(before) = before {
                self.hand_over(cx, before, key);
            }
            self.adopt(cx, key, true);
            if name.0.is_root_job() {
                self.limit_root_results(cx);
            }
        }
    }

    /// The result that is kept here under that name.
    pub(crate) fn kept(cx: &Context<'_>, id: &JobId, fingerprint: Fingerprint) -> Option<Saved> {
        let key = cx.books.orphan_of(id, fingerprint)?;
        let answer = Repair::answer_of(cx, key)?;
        Some(cx.books.look(key)?.saved(answer))
    }

    /// Of the results of root jobs that are kept here the oldest go, if they are too large together.
    fn limit_root_results(&mut self, cx: &mut Context<'_>) {
        let results = cx.books.root_results_by_size();
        let mut bytes: usize = results.iter().map(|(_, size)| size).sum();
        let newest = results.last().map(|(key, _)| *key);
        for (key, size) in results {
            if bytes <= cx.config.root_results || Some(key) == newest {
                return;
            }
            bytes -= size;
            self.withdraw_entry(cx, key);
        }
    }

    /// An orphan is not to be had here any more. Who waits for it already gets it.
    pub(super) fn withdraw_entry(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let Some(hosted) = cx.books.hosted(key) else {
            return;
        };
        let name = (&hosted.id, hosted.fingerprint);
        cx.table.withdraw((cx.actions, cx.now), name);
        let unwanted = hosted.waiters.is_empty();
        cx.books.no_orphan(key);
        if unwanted {
            self.abandon(cx, key);
        }
    }
}
