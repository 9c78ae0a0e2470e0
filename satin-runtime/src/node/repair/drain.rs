//! Leaving on purpose, as far as jobs are concerned: which of them are given up, and who is told.

use super::{
    super::{
        Action, Context, HostedId, Peer, Rule, Token,
        books::{HERE, HostedState},
    },
    Given, Repair, ReturnReason,
};

impl Repair {
    /// Begins to leave: the node takes no more jobs, and gives back those that it has not begun.
    pub(crate) fn drain(cx: &mut Context<'_>) {
        cx.books.draining = true;
        cx.actions.push_back(Action::GiveBack);
    }

    /// Gives up the jobs that still run; the origins that wait for them are returned, to be told.
    pub(crate) fn give_all_up(&mut self, cx: &mut Context<'_>) -> Vec<Given> {
        let mut given = Vec::new();
        let keys: Vec<HostedId> = cx.books.hosted_keys().collect();
        for key in keys {
            let Some(hosted) = cx.books.hosted(key).filter(|hosted| !hosted.unwanted) else {
                continue;
            };
            let state = hosted.state.clone();
            if matches!(state, HostedState::Done(_)) {
                continue;
            }
            let name = (hosted.id.clone(), hosted.fingerprint);
            let waiters: Vec<((Peer, Token), bool)> = (hosted.waiters.iter())
                .map(|(waiter, is)| (*waiter, is.origin))
                .collect();
            cx.table.withdraw((cx.actions, cx.now), (&name.0, name.1));
            for ((peer, token), origin) in waiters {
                cx.books.unwait(peer, token);
                match (peer == HERE, origin) {
                    (true, _) => self.bring_back(cx, HERE, token, ReturnReason::Missed),
                    (false, true) => given.push(Given {
                        origin: peer,
                        token,
                    }),
                    (false, false) => cx.books.outbox(peer).miss.push(token),
                }
            }
            match state {
                HostedState::Started => self.give_up(cx, key),
                HostedState::Onwards(peer, token, _) => {
                    cx.books.forget(key);
                    cx.books.back(peer, token);
                    cx.books.outbox(peer).disown.push(token);
                }
                HostedState::Coming | HostedState::Done(_) => self.abandon(cx, key),
            }
        }
        given
    }

    /// The workers are to stop with it, and to save what is finished below it.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_>, key: HostedId) {
        let save = cx.config.obeys(Rule::Save);
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
                && !matches!(hosted.state, HostedState::Done(..))
            {
                let waiters: Vec<(Peer, Token)> = hosted.waiters.keys().copied().collect();
                for (peer, token) in waiters.into_iter().filter(|(peer, _)| *peer != HERE) {
                    cx.books.outbox(peer).refused.push(token);
                }
                self.abandon(cx, key);
            }
        }
        let away: Vec<(Peer, Token)> = cx.books.all_away().collect();
        for (peer, token) in away.into_iter().filter(|(peer, _)| *peer != HERE) {
            cx.books.back(peer, token);
            cx.books.outbox(peer).recall.push(token);
        }
    }
}
