//! The books: what was stolen from here, and what was stolen by here.
//!
//! A theft is named by the other side and the token that the victim gave it, never by a job's id: a job and its second
//! execution may both be here.

use std::{collections::BTreeMap, time::Duration};

use super::super::{Departure, HostKey, Peer, Token};
use crate::job::{Answer, Parcel};

/// Where a job that is away came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// One that a worker here had spawned.
    Own(Departure),
    /// One that was hosted here: its answer goes on to its origin.
    Hosted(HostKey),
}

/// A job that is away.
#[derive(Clone, Debug)]
pub(super) struct Outstanding {
    pub(super) source: Source,
    /// The epoch of the connection it went by; `None` while it waits for one.
    pub(super) sent: Option<u64>,
    /// Its answer is here, and waits for values.
    pub(super) answering: bool,
}

/// How far a hosted job is.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum State {
    /// Its values are not here yet.
    Coming,
    /// The workers have it.
    Started,
    /// Another node took it before it was started. The parcel is kept in case it comes back.
    Onwards(Peer, Token, Box<Parcel>),
    /// Done; the answer is kept until the origin has it. The epoch is that of the connection it went by: `Err` if it was
    /// not sent yet, `Ok(None)` if it waits for a connection.
    Done(Answer, Result<Option<u64>, NotSent>),
}

/// It is to be sent at the end of the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NotSent;

/// A hosted job.
#[derive(Clone, Debug)]
pub(super) struct Hosted {
    pub(super) origin: Peer,
    pub(super) token: Token,
    /// The epoch of the connection it came by.
    pub(super) came: u64,
    pub(super) state: State,
    /// When it was given to the workers, in the order of such things.
    pub(super) started: u64,
    /// When that was.
    pub(super) since: Duration,
    /// Nobody waits for its answer any more.
    pub(super) unwanted: bool,
}

/// Everything that is under way between this node and others.
#[derive(Default)]
pub(super) struct Books {
    outstanding: BTreeMap<(Peer, Token), Outstanding>,
    departures: BTreeMap<Departure, (Peer, Token)>,
    hosted: BTreeMap<HostKey, Hosted>,
    keys: BTreeMap<(Peer, Token), HostKey>,
    tokens: u64,
    host_keys: u64,
}

const fn all_of(peer: Peer) -> std::ops::RangeInclusive<(Peer, Token)> {
    (peer, Token(0))..=(peer, Token(u64::MAX))
}

impl Books {
    // ---- away

    /// A job goes to a peer.
    pub(super) fn away(&mut self, peer: Peer, source: Source, sent: Option<u64>) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        if let Source::Own(departure) = source {
            self.departures.insert(departure, (peer, token));
        }
        let outstanding = Outstanding {
            source,
            sent,
            answering: false,
        };
        self.outstanding.insert((peer, token), outstanding);
        token
    }

    pub(super) fn outstanding(&mut self, peer: Peer, token: Token) -> Option<&mut Outstanding> {
        self.outstanding.get_mut(&(peer, token))
    }

    /// It is not away any more.
    pub(super) fn back(&mut self, peer: Peer, token: Token) -> Option<Source> {
        let source = self.outstanding.remove(&(peer, token))?.source;
        if let Source::Own(departure) = source {
            self.departures.remove(&departure);
        }
        Some(source)
    }

    pub(super) fn whereabouts(&self, departure: Departure) -> Option<(Peer, Token)> {
        self.departures.get(&departure).copied()
    }

    /// What is at a peer.
    pub(super) fn at(&self, peer: Peer) -> impl Iterator<Item = (Token, &Outstanding)> {
        let range = self.outstanding.range(all_of(peer));
        range.map(|((_, token), outstanding)| (*token, outstanding))
    }

    // ---- hosted

    /// A job came from a peer; `None` if it is here already.
    pub(super) fn host(&mut self, origin: Peer, token: Token, came: u64) -> Option<HostKey> {
        let place = self.keys.entry((origin, token));
        let std::collections::btree_map::Entry::Vacant(place) = place else {
            return None;
        };
        self.host_keys += 1;
        let key = HostKey(self.host_keys);
        place.insert(key);
        let hosted = Hosted {
            origin,
            token,
            came,
            state: State::Coming,
            started: 0,
            since: Duration::ZERO,
            unwanted: false,
        };
        self.hosted.insert(key, hosted);
        Some(key)
    }

    pub(super) fn hosted(&mut self, key: HostKey) -> Option<&mut Hosted> {
        self.hosted.get_mut(&key)
    }

    pub(super) fn key(&self, origin: Peer, token: Token) -> Option<HostKey> {
        self.keys.get(&(origin, token)).copied()
    }

    /// The origin does not know it any more: only the workers do.
    pub(super) fn disown(&mut self, key: HostKey) {
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.unwanted = true;
            self.keys.remove(&(hosted.origin, hosted.token));
        }
    }

    /// Nothing is to be known of it any more.
    pub(super) fn forget(&mut self, key: HostKey) -> Option<Hosted> {
        let hosted = self.hosted.remove(&key)?;
        if !hosted.unwanted {
            self.keys.remove(&(hosted.origin, hosted.token));
        }
        Some(hosted)
    }

    /// What a peer waits for.
    pub(super) fn of(&self, origin: Peer) -> impl Iterator<Item = (Token, HostKey)> {
        let range = self.keys.range(all_of(origin));
        range.map(|((_, token), key)| (*token, *key))
    }

    /// Of what a peer waits for, what came by connections before this epoch.
    pub(super) fn of_before(
        &self,
        origin: Peer,
        epoch: u64,
    ) -> impl Iterator<Item = (Token, HostKey)> {
        let old = move |key: &HostKey| self.hosted[key].came < epoch;
        self.of(origin).filter(move |(_, key)| old(key))
    }

    pub(super) fn hosted_keys(&self) -> impl Iterator<Item = HostKey> {
        self.hosted.keys().copied()
    }

    /// Everything that is away.
    pub(super) fn all_away(&self) -> impl Iterator<Item = (Peer, Token)> {
        self.outstanding.keys().copied()
    }

    // ---- both

    /// Is anything under way between here and there?
    pub(super) fn concern(&self, peer: Peer) -> bool {
        self.at(peer).next().is_some() || self.of(peer).next().is_some()
    }

    /// A connection stands, so what waited for one went by it.
    pub(super) fn connected(&mut self, peer: Peer, epoch: u64) {
        for (_, outstanding) in self.outstanding.range_mut(all_of(peer)) {
            outstanding.sent.get_or_insert(epoch);
        }
        for key in self.keys.range(all_of(peer)).map(|(_, key)| *key) {
            if let Some(Hosted {
                state: State::Done(_, Ok(sent)),
                ..
            }) = self.hosted.get_mut(&key)
            {
                sent.get_or_insert(epoch);
            }
        }
    }

    #[cfg(any(test, feature = "harness"))]
    pub(super) fn inspect(&self, inspection: &mut super::super::inspect::Inspection) {
        use super::super::inspect::{Hosted, Kind, Outstanding, Stage};
        let away = self.outstanding.keys().map(|(peer, token)| Outstanding {
            peer: *peer,
            token: *token,
            kind: Kind::Theft,
        });
        inspection.outstanding.extend(away);
        let hosted = self.hosted.iter().map(|(key, hosted)| Hosted {
            key: *key,
            waiters: vec![(hosted.origin, hosted.token)],
            stage: match hosted.state {
                State::Coming => Stage::Coming,
                State::Started => Stage::Started,
                State::Onwards(..) => Stage::Onwards,
                State::Done(..) => Stage::Done,
            },
            orphan: None,
            unwanted: hosted.unwanted,
        });
        inspection.hosted.extend(hosted);
    }

    #[cfg(any(test, feature = "harness"))]
    pub(super) fn is_empty(&self) -> bool {
        self.outstanding.is_empty() && self.hosted.is_empty()
    }
}
