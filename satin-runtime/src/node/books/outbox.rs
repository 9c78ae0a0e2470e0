//! Outboxes: words for a peer are gathered during a turn, and said in one message of each kind.

use std::time::Duration;

use super::{
    super::{Deal, Message, Peer, Token, Wanted},
    Books, HostedState,
};
use crate::job::Answer;

/// Bytes of jobs or answers in one message, at most; a larger one goes alone. Too small: a message for each. Too
/// large: siblings that are taken together, or after a broken link what was not acknowledged, are longer than a message may be:
/// the link breaks, and then the next one.
const PIECE_BYTES: usize = 16 << 20;

/// Words for a peer, to be said at the end of the turn or a little later.
#[derive(Default)]
pub(crate) struct Outbox {
    /// When it is said at the latest; `None` if nothing is in it.
    pub(crate) due: Option<Duration>,
    /// Hosted jobs whose answers are to be sent.
    pub(crate) answers: Vec<Token>,
    /// Thefts that are handed back undone, as this node leaves.
    pub(crate) refused: Vec<Token>,
    /// Answers that have come.
    pub(crate) acknowledge: Vec<Token>,
    /// Thefts and claims that are not wanted any more.
    pub(crate) recall: Vec<Token>,
    /// Thefts whose jobs become orphans at the peer.
    pub(crate) disown: Vec<Token>,
    /// Thefts whose jobs are here already.
    pub(crate) have: Vec<Token>,
    /// Results that are claimed.
    pub(crate) claim: Vec<Wanted>,
    /// Claims whose orphans are not here.
    pub(crate) miss: Vec<Token>,
    /// Deadly jobs that this node is about to begin.
    pub(crate) begin: Vec<Token>,
    /// Deadly jobs that the peer may begin.
    pub(crate) go: Vec<Token>,
}

impl Outbox {
    /// Does a word in here hold up the peer as long as it is not said?
    pub(crate) fn is_urgent(&self) -> bool {
        // All but answers and acknowledgements: the peer computes, or waits, until it hears
        // of these.
        !(self.recall.is_empty()
            && self.refused.is_empty()
            && self.disown.is_empty()
            && self.have.is_empty()
            && self.claim.is_empty()
            && self.miss.is_empty()
            && self.begin.is_empty()
            && self.go.is_empty())
    }
}

impl Books {
    /// The messages for that peer, in order. Answers are noted as sent by the connection of this epoch.
    pub(crate) fn messages(
        &mut self,
        peer: Peer,
        epoch: Option<u64>,
        outbox: Outbox,
    ) -> impl Iterator<Item = Message> + use<> {
        let mut answers = Vec::with_capacity(outbox.answers.len() + outbox.refused.len());
        for token in outbox.answers {
            let deal = Deal::new(peer, token);
            // The job may have been recalled later in the same turn: then there is no waiter any
            // more.
            if let Some(key) = self.key(deal)
                && let Some(hosted) = self.hosted(key)
                && let HostedState::Done(answer) = &hosted.state
                && let Some(waiter) = hosted.waiters.get_mut(&deal)
            {
                // Noted with the connection: if a newer one stands before the acknowledgement, the
                // answer is said again.
                waiter.sent = Ok(epoch);
                answers.push((token, answer.clone()));
            }
        }
        let refused = outbox.refused.into_iter();
        // A refused job has no entry in the books, or none any more: there is no answer to look up.
        answers.extend(refused.map(|token| (token, Answer::Aborted)));
        fn some<T>(all: Vec<T>, message: fn(Vec<T>) -> Message) -> Option<Message> {
            (!all.is_empty()).then(|| message(all))
        }
        // Before the answers: a theft must be known as a claim when its answer comes.
        let have = some(outbox.have, Message::Have);
        let messages = [
            some(outbox.acknowledge, Message::Acknowledge),
            some(outbox.disown, Message::Disown),
            some(outbox.recall, Message::Recall),
            some(outbox.claim, Message::Claim),
            some(outbox.miss, Message::Miss),
            some(outbox.begin, Message::Begin),
            some(outbox.go, Message::Go),
        ];
        let messages = messages.into_iter().flatten();
        let answers = in_pieces(answers, |(_, answer)| answer.size());
        let answers = answers.into_iter().filter(|piece| !piece.is_empty());
        let answers = answers.map(Message::Answers);
        have.into_iter().chain(answers).chain(messages)
    }
}

/// Jobs or answers, as many in each message as fit. If there are none, one message without any: a request is to be answered.
pub(crate) fn in_pieces<T>(all: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut pieces = vec![Vec::new()];
    let mut room = PIECE_BYTES;
    for one in all {
        let size = size(&one);
        if size > room
            // A single part that is too large goes alone, not behind an empty message.
            && let Some([_, ..]) = pieces.last().map(Vec::as_slice)
        {
            pieces.push(Vec::new());
            room = PIECE_BYTES;
        }
        room = room.saturating_sub(size);
        if let Some(piece) = pieces.last_mut() {
            piece.push(one);
        }
    }
    pieces
}
