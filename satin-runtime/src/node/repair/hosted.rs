//! The life of a hosted job: it comes, goes to the workers once its values are here, and its answer goes to
//! all who wait for it.

use super::{
    super::{
        Action, Context, Deal, HostedId, Message, Peer, PendingArrival, Rule, Taken, Token,
        books::{HERE, HostedState, OutstandingKind},
    },
    Repair, ReturnReason, given_up,
};
use crate::job::{Answer, Back, Parcel, Saved};

impl Repair {
    /// Enters the jobs in the books as hosted; what is returned goes on once its values are here.
    pub(crate) fn arrived(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        sent_ms: u64,
        jobs: Vec<(Token, Parcel)>,
    ) -> Vec<PendingArrival> {
        // A request to steal may have been under way when this node began to leave. Its jobs go
        // back unseen, so that their origin gives them to others at once instead of waiting for the
        // goodbye.
        if cx.books.leaving || cx.books.draining {
            let tokens = jobs.into_iter().map(|(token, _)| token);
            cx.books.outbox(from).refused.extend(tokens);
            return Vec::new();
        }
        let came = cx.links.epoch(from).unwrap_or(0);
        let mut then = Vec::with_capacity(jobs.len());
        for (token, parcel) in jobs {
            let deal = Deal::new(from, token);
            // Large jobs travel by streams of their own, so a recall may overtake its job.
            // Without this check the job would run although its origin has forgotten the token.
            if cx.books.was_recalled(deal) {
                continue;
            }
            // Rule `Have`: were the job entered a second time, the orphan and its repair would run
            // side by side on this node.
            if self.has_already(cx, deal, came, &parcel) {
                continue;
            }
            // `None`: the token is known. A job that is said twice is hosted once.
            if let Some(key) = cx.books.host(cx.now, deal, came, sent_ms, &parcel) {
                // Counted while its values are fetched: the worker that will run it is idle, but
                // spoken for, so no further job is asked for on its behalf.
                cx.books.coming(key);
                then.push(PendingArrival::Start(key, parcel));
            }
        }
        then
    }

    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>, then: PendingArrival) {
        match then {
            PendingArrival::Start(key, parcel) => self.start(cx, key, parcel),
            PendingArrival::Refuse(key, name) => {
                // The fetch took its time: the job may have been recalled, or have lost its origin,
                // meanwhile.
                if let Some(hosted) = cx.books.hosted(key)
                    && hosted.state == HostedState::Coming
                {
                    // Its origin is told first: it may have to bring the value home.
                    if let Some(origin) = hosted.origin() {
                        let unavailable = Message::Unavailable(name);
                        cx.actions.push_back(Action::Send(origin, unavailable));
                    }
                    cx.books.no_more_coming(key);
                    // Refused rather than kept waiting: what nobody can give here is done where it
                    // came from.
                    self.finish(
                        cx,
                        key,
                        Answer::refused(&format!("nobody has {name:?} any more")),
                    );
                }
            }
            PendingArrival::Answer(deal, answer) => match answer {
                Answer::Refused(why) => self.refused(cx, deal, why),
                // The host did not do the job, so it is still to be done, and whoever waits
                // for it here must not get this for an answer.
                Answer::Aborted => self.bring_back(cx, deal, ReturnReason::Undone),
                // It is to be done here, and the workers are to offer it to nobody else.
                Answer::Unfit(unfit) => self.bring_home(cx, deal, unfit),
                answer => self.take_answer(cx, deal, answer),
            },
            PendingArrival::Local(ticket, name) => {
                let value = Some(name);
                cx.actions.push_back(Action::Brought { ticket, value });
            }
            PendingArrival::Lost(ticket, _) => {
                let value = None;
                cx.actions.push_back(Action::Brought { ticket, value });
            }
            // A shared value of the answer is to be had nowhere: only a run of the job makes it
            // again.
            PendingArrival::Redo(deal, _) => {
                if let Some(away) = cx.books.outstanding(deal)
                    && away.kind == OutstandingKind::Claim
                {
                    // As for an owner that has it no more: looked up again, the same would be found.
                    cx.table.miss(cx.actions, deal.peer, &away.job.name);
                }
                self.bring_back(cx, deal, ReturnReason::Unreadable);
            }
        }
    }

    /// A hosted job whose values are here goes to the workers.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, key: HostedId, parcel: Parcel) {
        let hosted = cx.books.look(key);
        // Values and leave to begin may arrive after the job was recalled or started another way:
        // the workers must not get the same parcel twice.
        let Some(hosted) = hosted.filter(|hosted| hosted.state == HostedState::Coming) else {
            return;
        };
        let victims = cx.table.victims(&hosted.name, cx.view);
        // The count may have grown while the job was on its way. The last check is here, before a
        // worker touches it: given up, the job takes down nobody else.
        if victims >= cx.config.max_crashes {
            cx.books.no_more_coming(key);
            let story = given_up(&parcel.id, victims);
            return self.finish(cx, key, Answer::Panicked(story));
        }
        // A deadly job waits for its origin's leave, so that the origin knows whom to blame. The
        // parcel is kept in the entry until `Go` comes.
        if !Repair::asks_before(cx, key, &parcel) {
            cx.books.given(cx.now, key);
            cx.actions.push_back(Action::Start(key, parcel));
        }
    }

    /// A hosted job that has taken down whoever had it is for others.
    fn hold(&mut self, cx: &mut Context<'_>, key: HostedId, parcel: Parcel) {
        if cx.books.look(key).is_some() {
            cx.books.given_to_hold(key);
            cx.actions.push_back(Action::Hold(key, parcel));
        }
    }

    /// A hosted job that had gone on is done here after all.
    pub(super) fn restart(&mut self, cx: &mut Context<'_>, key: HostedId, back: Back) {
        if let Some(hosted) = cx.books.hosted(key)
            // Only a job that went onwards can come back. If it was abandoned meanwhile, nobody
            // wants it.
            && let HostedState::Onwards(_, parcel) =
                std::mem::replace(&mut hosted.state, HostedState::Coming)
        {
            // The history may have grown on the way: the mark, and the nodes that the job took
            // down.
            let history = back.history;
            let parcel = Parcel { history, ..*parcel };
            cx.books.coming(key);
            // The turn of this node comes last: others get the chance to run what took down the
            // thief.
            if back.held {
                self.hold(cx, key, parcel);
            } else {
                self.start(cx, key, parcel);
            }
        }
    }

    /// A hosted job has come to its end. Returns the answer, to be kept, if the job was being given up
    /// and its end came first.
    pub(crate) fn done(
        &mut self,
        cx: &mut Context<'_>,
        key: HostedId,
        answer: Answer,
    ) -> Option<Saved> {
        cx.books.hands.move_on();
        // The workers are free of it in any case, also when nobody waits for its answer any more.
        cx.books.ended(cx.now, key);
        let Some(hosted) = cx.books.hosted(key) else {
            cx.books.let_go(&answer);
            return None;
        };
        // A job that was to be saved in parts got done as a whole, before its worker saw the
        // request: the whole result is worth more than its parts.
        if hosted.given_up && matches!(answer, Answer::Result { .. } | Answer::Panicked(_)) {
            return Some(cx.books.forget(key)?.saved(answer));
        }
        if hosted.unwanted {
            cx.books.let_go(&answer);
            self.forget_unwanted(cx, key);
        } else if hosted.state == HostedState::Started {
            cx.books.hands.done();
            self.finish(cx, key, answer);
        }
        None
    }

    /// The workers have given a hosted job up.
    pub(crate) fn saved(&mut self, cx: &mut Context<'_>, key: HostedId) {
        cx.books.ended(cx.now, key);
        self.forget_unwanted(cx, key);
    }

    /// The workers have stopped with a job that nobody wants: nobody will say that what came back below it is done.
    fn forget_unwanted(&mut self, cx: &mut Context<'_>, key: HostedId) {
        if let Some(hosted) = cx.books.forget(key) {
            // Repairs below it would stay in the memory of this node for good: the workers tell the
            // end of a repair only if it comes to one.
            self.forget_below(&hosted.name.id);
        }
    }

    /// The answer of a hosted job is to be sent to all who wait for it, and to be kept for who may claim it.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>, key: HostedId, answer: Answer) {
        let Some(hosted) = cx.books.hosted(key) else {
            return;
        };
        // A refusal or an abort is no result: claimants get a miss, and the table loses the entry.
        let undone = answer.is_undone();
        if matches!(answer, Answer::Result { .. }) {
            // The job came to its end, so it does not kill its hosts after all: what follows at or
            // below it is not held for others.
            cx.table.acquit(cx.now, &hosted.name.id);
        }
        hosted.state = HostedState::Done(answer);
        // Taken down now: what follows changes the entry, and may forget it.
        let waiters: Vec<(Deal, bool)> = (hosted.waiters.iter())
            .map(|(deal, waiter)| (*deal, waiter.origin))
            .collect();
        let kept = (hosted.orphan && !undone).then(|| hosted.name.clone());
        if hosted.orphan {
            let name = &hosted.name;
            // An entry in the table needs an answer, or a run, behind it.
            if undone {
                cx.table.withdraw(cx.actions, cx.now, name);
            } else if cx.config.obeys(Rule::Announce) {
                cx.table.announce(cx.actions, cx.now, name, true);
            }
        }
        if undone {
            // A claim that comes from now on is to be a miss, not a wait.
            cx.books.no_orphan(key);
        } else {
            // Repairs below this job were only needed for its result. The own name stays open if
            // the result is kept here: others are to find it.
            let (id, keeps) = (hosted.name.id.clone(), hosted.orphan);
            self.close_below(cx, &id, keeps);
        }
        for (deal, origin) in waiters {
            // A claim fails where the orphan was not done, and the claimant does the job itself. An
            // origin gets the refusal as an answer. What waits on this very node needs no message.
            match (deal.peer == HERE, undone && !origin) {
                (true, true) => {
                    cx.books.unwait(deal);
                    self.bring_back(cx, deal, ReturnReason::Missed);
                }
                (true, false) => {
                    cx.books.unwait(deal);
                    if let Some(answer) = Repair::answer_for_here(cx, key) {
                        self.take_answer(cx, deal, answer);
                    }
                }
                (false, true) => {
                    cx.books.unwait(deal);
                    cx.books.outbox(deal.peer).miss.push(deal.token);
                }
                // A peer stays a waiter until it acknowledges: the answer may be lost with the
                // connection.
                (false, false) => cx.books.outbox(deal.peer).answers.push(deal.token),
            }
        }
        Repair::forget_if_idle(cx, key);
        // Last, since it may withdraw entries below this one: results of its parts are
        // worth nothing now.
        if let Some(name) = kept {
            cx.books.keep_anew([name.clone()]);
            self.drop_spare(cx, &name.id);
        }
    }

    pub(super) fn answer_of(cx: &Context<'_>, key: HostedId) -> Option<Answer> {
        cx.books.look(key)?.answer().cloned()
    }

    /// The answer of a hosted job, if there is one, for this node's own workers.
    pub(super) fn answer_for_here(cx: &mut Context<'_>, key: HostedId) -> Option<Answer> {
        let hosted = cx.books.hosted(key)?;
        let answer = hosted.answer().cloned()?;
        hosted.taken = true;
        Some(answer)
    }

    /// A hosted job that is done, and that nobody waits for or may claim, is forgotten.
    pub(super) fn forget_if_idle(cx: &mut Context<'_>, key: HostedId) {
        if let Some(hosted) = cx.books.hosted(key)
            && hosted.waiters.is_empty()
            && !hosted.orphan
            && matches!(hosted.state, HostedState::Done(_))
        {
            cx.books.forget(key);
        }
    }

    pub(crate) fn acknowledged(cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            let deal = Deal::new(from, *token);
            if let Some(key) = cx.books.key(deal)
                && let Some(hosted) = cx.books.hosted(key)
                // Only an answer can be acknowledged: an entry without one is still needed.
                && matches!(hosted.state, HostedState::Done(..))
            {
                cx.books.take(key, deal);
                cx.books.unwait(deal);
                Repair::forget_if_idle(cx, key);
            }
        }
    }

    pub(crate) fn recall(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            let deal = Deal::new(from, *token);
            match cx.books.key(deal) {
                // Of several that wait one may go: the job is aborted only when the last one does.
                Some(_) => self.unwait(cx, deal),
                // The job went by a stream of its own, and comes later.
                None => cx.books.expect(deal),
            }
        }
    }

    /// A waiter does not wait for a hosted job any more.
    pub(super) fn unwait(&mut self, cx: &mut Context<'_>, deal: Deal) {
        let Some(key) = cx.books.unwait(deal) else {
            return;
        };
        // An orphan goes on without waiters: somebody may claim it later.
        if let Some(hosted) = cx.books.hosted(key)
            && hosted.waiters.is_empty()
            && !hosted.orphan
        {
            self.abandon(cx, key);
        } else {
            // Other peers wait still. If the one that left was the origin, whose leave the job
            // waited for, no other could give it: the job would stay for ever.
            self.begin_unasked(cx, key);
        }
    }

    /// Aborts a hosted job that is not wanted any more, here or wherever it went.
    pub(super) fn abandon(&mut self, cx: &mut Context<'_>, key: HostedId) {
        let Some(hosted) = cx.books.hosted(key) else {
            return;
        };
        match &hosted.state {
            HostedState::Started => {
                // Unwanted already: the workers have been told to stop, perhaps to save what is
                // finished below the job, and an abort now would lose that.
                if !hosted.unwanted {
                    cx.books.disown(key);
                    cx.actions.push_back(Action::Abort(key));
                }
            }
            HostedState::Onwards(deal, _) => {
                // The token is void before the thief is told: an answer that is on its way
                // changes nothing.
                let deal = *deal;
                cx.books.forget(key);
                cx.books.back(deal);
                self.let_go(cx, deal);
            }
            HostedState::Coming => {
                // The idle worker that was counted for it is free to be asked for again.
                cx.books.no_more_coming(key);
                cx.books.forget(key);
            }
            HostedState::Done(..) => {
                cx.books.forget(key);
            }
        }
    }

    /// Tells the peer that has a job of this node that the job is not wanted any more.
    pub(super) fn let_go(&mut self, cx: &mut Context<'_>, deal: Deal) {
        // A claim at this very node: no message leaves, but the orphan loses a waiter all the same.
        if deal.peer == HERE {
            self.unwait(cx, deal);
        } else {
            cx.books.outbox(deal.peer).recall.push(deal.token);
        }
    }

    /// Jobs that were taken stay after all.
    pub(crate) fn stay(cx: &mut Context<'_>, jobs: Vec<Taken>) {
        for job in jobs {
            let stays = match job {
                Taken::Own(departure, _) => Action::PutBack(departure, Back::default()),
                Taken::Hosted(key, parcel) => {
                    // A job that was held for others is held still: a theft that came to nothing is
                    // no leave to run it.
                    match cx.books.look(key).is_some_and(|hosted| hosted.held) {
                        true => Action::Hold(key, parcel),
                        false => Action::Start(key, parcel),
                    }
                }
            };
            cx.actions.push_back(stays);
        }
    }
}
