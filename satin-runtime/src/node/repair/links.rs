//! Repairs the losses of a broken connection: both sides compare what is under way between them, and say
//! again what has not arrived.

use std::time::Duration;

use super::{
    super::{
        Action, Context, Deal, HostedId, Message, Peer, Token,
        books::{HostedState, NotSent},
        expiry::{Expiry, ran_out},
        links::Way,
    },
    Repair, ReturnReason,
};

/// The wait until a connection that is needed, and could not be made, is tried again. Too small: noise
/// towards what may be dead. Too large: answers come late once the peer can be reached again.
const RECONNECT: Duration = Duration::from_millis(500);

impl Repair {
    pub(crate) fn connected(&mut self, cx: &mut Context<'_>, peer: Peer, epoch: u64) {
        self.reconnect.remove(&peer);
        cx.books.connected(peer, epoch);
        // A job that was recalled before it came would have come by the old connection: it never
        // will now.
        cx.books.forget_early_recalls(peer);
        // Without anything under way there is nothing to compare: a first meeting costs no message.
        if cx.books.concern(peer) {
            self.list(cx, peer, epoch);
        }
        // Answers and questions that went by an older connection may not have arrived.
        let waiting: Vec<(Deal, HostedId)> = cx.books.of(peer).collect();
        for (deal, key) in waiting {
            let token = deal.token;
            if let Some(hosted) = cx.books.hosted(key)
                && let Some(waiter) = hosted.waiters.get_mut(&deal)
            {
                match &hosted.state {
                    HostedState::Done(_) if matches!(waiter.sent, Ok(Some(sent)) if sent < epoch) =>
                    {
                        // Said again, since an answer is kept until it is acknowledged. An
                        // answer that waited for a connection goes by this one anyway.
                        waiter.sent = Err(NotSent);
                        cx.books.outbox(peer).answers.push(token);
                    }
                    HostedState::Done(_) => {}
                    // Perhaps it was a theft, and the word that the job is here already was lost.
                    _ if !waiter.origin => cx.books.outbox(peer).have.push(token),
                    // The question, or the leave that answered it, may be lost: the job would wait
                    // for ever.
                    _ if hosted.asks.is_some() => cx.books.outbox(peer).begin.push(token),
                    _ => {}
                }
            }
        }
    }

    pub(crate) fn disconnected(&self, cx: &mut Context<'_>, peer: Peer) {
        self.reach(cx, peer);
    }

    pub(crate) fn unreachable(&mut self, cx: &mut Context<'_>, peer: Peer) {
        // Alive means reachable: as long as the view has the peer, the jobs between the two depend
        // on a connection.
        if cx.books.concern(peer) && cx.view.is_alive(peer) {
            self.reconnect.insert(peer, cx.now + RECONNECT);
        }
    }

    /// If something is under way between here and there, a connection must stand.
    fn reach(&self, cx: &mut Context<'_>, peer: Peer) {
        if cx.books.concern(peer)
            && let Way::Connect(addr) = cx.links.way(peer, cx.view)
        {
            let peer = Some(peer);
            let connect = Action::Connect { addr, peer };
            cx.links.watch(&connect);
            cx.actions.push_back(connect);
        }
    }

    fn list(&mut self, cx: &mut Context<'_>, peer: Peer, epoch: u64) {
        // Once for each connection: the list of the other side is answered by ours, and that one
        // not again.
        self.listed.insert(peer, epoch);
        let lists = Message::Lists {
            outstanding: cx.books.at(peer).map(|(deal, _)| deal.token).collect(),
            hosted: cx.books.of(peer).map(|(deal, _)| deal.token).collect(),
        };
        cx.actions.push_back(Action::Send(peer, lists));
    }

    /// After a connection was made anew: what got lost with the old one?
    pub(crate) fn compare(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        mut outstanding: Vec<Token>,
        mut hosted: Vec<Token>,
    ) {
        let Some(epoch) = cx.links.epoch(from).filter(|_| cx.view.is_alive(from)) else {
            return;
        };
        // The other side saw a new connection first, or had something under way of which this one
        // knows nothing.
        if self.listed.get(&from) != Some(&epoch) {
            self.list(cx, from, epoch);
        }
        outstanding.sort_unstable();
        hosted.sort_unstable();
        // Thefts of which the thief knows nothing: the reply was lost. Those of this connection may be on their way.
        let lost = cx.books.at(from).filter(|(deal, away)| {
            // An answer that waits for its values proves that the theft arrived: the thief may have
            // forgotten it after the acknowledgement.
            let old = away.sent.is_some_and(|sent| sent < epoch);
            old && !away.answering && hosted.binary_search(&deal.token).is_err()
        });
        let lost: Vec<Deal> = lost.map(|(deal, _)| deal).collect();
        for deal in lost {
            self.bring_back(cx, deal, ReturnReason::Lost);
        }
        // Jobs that the origin does not wait for: the acknowledgement, or the recall, was lost. Those that came by this
        // connection may have overtaken the list.
        let unwanted = cx.books.of_before(from, epoch);
        let unwanted = unwanted.filter(|(deal, _)| outstanding.binary_search(&deal.token).is_err());
        let unwanted: Vec<Deal> = unwanted.map(|(deal, _)| deal).collect();
        for deal in unwanted {
            self.unwait(cx, deal);
        }
    }

    pub(super) fn reconnect_if_due(&mut self, cx: &mut Context<'_>) {
        let due = self.reconnect.iter().filter(|(_, at)| **at <= cx.now);
        let due: Vec<Peer> = due.map(|(peer, _)| *peer).collect();
        for peer in due {
            ran_out(Expiry::Reconnect);
            self.reconnect.remove(&peer);
            self.reach(cx, peer);
        }
    }
}
