//! The life of a hosted job: it comes, goes to the workers once its values are here, and its answer goes to all who wait for it.

use super::{
    super::{
        Action, Context, HostedId, Peer, Rule, Taken, Then, Token,
        books::{HERE, HostedState},
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
        jobs: Vec<(Token, Parcel)>,
    ) -> Vec<Then> {
        if cx.books.leaving || cx.books.draining {
            let tokens = jobs.into_iter().map(|(token, _)| token);
            cx.books.outbox(from).refused.extend(tokens);
            return Vec::new();
        }
        let came = cx.links.epoch(from).unwrap_or(0);
        let mut then = Vec::with_capacity(jobs.len());
        for (token, parcel) in jobs {
            if cx.books.was_recalled(from, token) {
                continue;
            }
            if self.has_already(cx, (from, token), came, &parcel) {
                continue;
            }
            if let Some(key) = cx.books.host(from, token, came, &parcel) {
                cx.books.hands.expect();
                then.push(Then::Start(key, parcel));
            }
        }
        then
    }

    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>, then: Then) {
        match then {
            Then::Start(key, parcel) => self.start(cx, key, parcel),
            Then::Refuse(key, name) => {
                if let Some(hosted) = cx.books.hosted(key)
                    && hosted.state == HostedState::Coming
                {
                    cx.books.hands.no_more_coming();
                    self.finish(
                        cx,
                        key,
                        Answer::refused(&format!("nobody has {name:?} any more")),
                    );
                }
            }
            Then::Answer(peer, token, answer) => match answer {
                Answer::Refused(_) if Repair::has_survived(cx, peer, token) => {
                    self.bring_back(cx, peer, token, ReturnReason::Refused);
                }
                Answer::Refused(_) | Answer::Aborted => {
                    self.bring_back(cx, peer, token, ReturnReason::Undone);
                }
                answer => self.take_answer(cx, peer, token, answer),
            },
            Then::Redo(peer, token, _) => self.bring_back(cx, peer, token, ReturnReason::Undone),
        }
    }

    /// A hosted job whose values are here goes to the workers.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, key: HostedId, parcel: Parcel) {
        let hosted = cx.books.look(key);
        if hosted.is_none_or(|hosted| hosted.state != HostedState::Coming) {
            return;
        }
        let victims = cx.table.victims((&parcel.id, parcel.fingerprint), cx.view);
        if victims >= cx.config.max_crashes {
            cx.books.hands.no_more_coming();
            let story = given_up(&parcel.id, victims);
            return self.finish(cx, key, Answer::Panicked(story));
        }
        if !Repair::asks_before(cx, key, &parcel) {
            Repair::give(cx, key);
            cx.actions.push_back(Action::Start(key, parcel));
        }
    }

    /// The workers have a hosted job from now on.
    fn give(cx: &mut Context<'_>, key: HostedId) {
        let started = cx.books.hands.give(cx.now);
        if let Some(hosted) = cx.books.hosted(key) {
            hosted.state = HostedState::Started;
            hosted.started = started;
            hosted.since = cx.now;
        }
        cx.books.look_again();
    }

    /// A hosted job that has taken down whoever had it is for others.
    fn hold(&mut self, cx: &mut Context<'_>, key: HostedId, parcel: Parcel) {
        if let Some(hosted) = cx.books.hosted(key) {
            hosted.state = HostedState::Started;
            // No worker that was idle is busy with it.
            hosted.started = 0;
            hosted.held = true;
            cx.books.hands.give_to_hold();
            cx.actions.push_back(Action::Hold(key, parcel));
        }
    }

    /// A hosted job that had gone on is done here after all.
    pub(super) fn restart(&mut self, cx: &mut Context<'_>, key: HostedId, back: Back) {
        if let Some(hosted) = cx.books.hosted(key)
            && let HostedState::Onwards(_, _, parcel) =
                std::mem::replace(&mut hosted.state, HostedState::Coming)
        {
            let history = back.history;
            let parcel = Parcel { history, ..*parcel };
            cx.books.hands.expect();
            if back.held {
                self.hold(cx, key, parcel);
            } else {
                self.start(cx, key, parcel);
            }
        }
    }

    /// If it was given up, and was quicker, its answer is to be kept: it is returned.
    pub(crate) fn done(
        &mut self,
        cx: &mut Context<'_>,
        key: HostedId,
        answer: Answer,
    ) -> Option<Saved> {
        cx.books.hands.move_on();
        cx.books.ended(key);
        let hosted = cx.books.hosted(key)?;
        if hosted.given_up && matches!(answer, Answer::Result { .. } | Answer::Panicked(_)) {
            return Some(cx.books.forget(key)?.saved(answer));
        }
        if hosted.unwanted {
            self.forget_unwanted(cx, key);
        } else if hosted.state == HostedState::Started {
            cx.books.hands.done();
            self.finish(cx, key, answer);
        }
        None
    }

    /// The workers have given a hosted job up.
    pub(crate) fn saved(&mut self, cx: &mut Context<'_>, key: HostedId) {
        cx.books.ended(key);
        self.forget_unwanted(cx, key);
    }

    /// The workers have stopped with a job that nobody wants: nobody will say that what came back below it is done.
    fn forget_unwanted(&mut self, cx: &mut Context<'_>, key: HostedId) {
        if let Some(hosted) = cx.books.forget(key) {
            self.forget_below(&hosted.id);
        }
    }

    /// The answer of a hosted job is to be sent to all who wait for it, and to be kept for who may claim it.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>, key: HostedId, answer: Answer) {
        let Some(hosted) = cx.books.hosted(key) else {
            return;
        };
        let undone = matches!(answer, Answer::Refused(_) | Answer::Aborted);
        if matches!(answer, Answer::Result { .. }) {
            cx.table.acquit(cx.now, &hosted.id);
        }
        hosted.state = HostedState::Done(answer);
        let waiters: Vec<((Peer, Token), bool)> = (hosted.waiters.iter())
            .map(|(waiter, is)| (*waiter, is.origin))
            .collect();
        let kept = (hosted.orphan && !undone).then(|| hosted.id.clone());
        if hosted.orphan {
            let name = (&hosted.id, hosted.fingerprint);
            if undone {
                cx.table.withdraw((cx.actions, cx.now), name);
            } else if cx.config.obeys(Rule::Announce) {
                cx.table.announce((cx.actions, cx.now), name, true);
            }
        }
        if undone {
            cx.books.no_orphan(key);
        } else {
            let (id, keeps) = (hosted.id.clone(), hosted.orphan);
            self.close_below(cx, &id, keeps);
        }
        for ((peer, token), origin) in waiters {
            match (peer == HERE, undone && !origin) {
                (true, true) => {
                    cx.books.unwait(HERE, token);
                    self.bring_back(cx, HERE, token, ReturnReason::Missed);
                }
                (true, false) => {
                    cx.books.unwait(HERE, token);
                    if let Some(answer) = Repair::answer_of(cx, key) {
                        self.take_answer(cx, HERE, token, answer);
                    }
                }
                (false, true) => {
                    cx.books.unwait(peer, token);
                    cx.books.outbox(peer).miss.push(token);
                }
                (false, false) => cx.books.outbox(peer).answers.push(token),
            }
        }
        Repair::forget_if_idle(cx, key);
        if let Some(id) = kept {
            self.drop_spare(cx, &id);
        }
    }

    pub(super) fn answer_of(cx: &Context<'_>, key: HostedId) -> Option<Answer> {
        cx.books.look(key)?.answer().cloned()
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
            if let Some(key) = cx.books.key(from, *token)
                && let Some(hosted) = cx.books.hosted(key)
                && matches!(hosted.state, HostedState::Done(..))
            {
                cx.books.unwait(from, *token);
                Repair::forget_if_idle(cx, key);
            }
        }
    }

    pub(crate) fn recall(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            match cx.books.key(from, *token) {
                Some(_) => self.unwait(cx, from, *token),
                // The job went by a stream of its own, and comes later.
                None => cx.books.expect(from, *token),
            }
        }
    }

    /// A waiter does not wait for a hosted job any more.
    pub(super) fn unwait(&mut self, cx: &mut Context<'_>, peer: Peer, token: Token) {
        let Some(key) = cx.books.unwait(peer, token) else {
            return;
        };
        if let Some(hosted) = cx.books.hosted(key)
            && hosted.waiters.is_empty()
            && !hosted.orphan
        {
            self.abandon(cx, key);
        } else {
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
                if !hosted.unwanted {
                    cx.books.disown(key);
                    cx.actions.push_back(Action::Abort(key));
                }
            }
            HostedState::Onwards(peer, token, _) => {
                let (peer, token) = (*peer, *token);
                cx.books.forget(key);
                cx.books.back(peer, token);
                self.let_go(cx, peer, token);
            }
            HostedState::Coming => {
                cx.books.hands.no_more_coming();
                cx.books.forget(key);
            }
            HostedState::Done(..) => {
                cx.books.forget(key);
            }
        }
    }

    /// Tells the peer that has a job of this node that the job is not wanted any more.
    pub(super) fn let_go(&mut self, cx: &mut Context<'_>, peer: Peer, token: Token) {
        if peer == HERE {
            self.unwait(cx, HERE, token);
        } else {
            cx.books.outbox(peer).recall.push(token);
        }
    }

    /// Jobs that were taken stay after all.
    pub(crate) fn stay(cx: &mut Context<'_>, jobs: Vec<Taken>) {
        for job in jobs {
            let stays = match job {
                Taken::Own(departure, _) => Action::PutBack(departure, Back::default()),
                Taken::Hosted(key, parcel) => {
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
