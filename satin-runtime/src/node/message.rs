//! The messages between nodes.
//!
//! Messages between two nodes arrive in order, each once, as long as their connection lives; except
//! [`Message::Gossip`], which may be lost or overtake others, and large ones, which others may overtake.

use std::{cmp::Reverse, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use strum::{Display, EnumCount, EnumDiscriminants, VariantArray};

use super::{
    identity::{Identity, NodeId, Peer},
    storage_order::RunEpoch,
};
use crate::job::{
    Answer, JobId, JobName, Offer, Parcel, RootName, RootRun, Saved, ValueName, ValueSize,
};

/// The name of a theft or a claim. Given by the node that waits for the answer, new for each: a job that is taken again
/// gets another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Token(pub u64);

/// A theft or a claim, as one of its two nodes knows it: the other node, and the token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Deal {
    /// The other node, in the life in which the deal was made.
    pub peer: Peer,
    /// The token, whichever of the two has given it.
    pub token: Token,
}

impl Deal {
    /// The deal with that peer under that token.
    #[must_use]
    pub const fn new(peer: Peer, token: Token) -> Deal {
        Deal { peer, token }
    }
}

/// The number of a request of a thief; each thief counts its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Request(pub u64);

/// How long a request for work stands, and for whom it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RequestKind {
    /// Workers have nothing to do: it is to be answered soon.
    Now,
    /// As above, but it is kept until there is something to give.
    Lifeline,
    /// The workers have tasks, and the next ones are to be there when these are done: it is kept until there are more tasks than
    /// others will soon begin.
    Ahead,
}

impl RequestKind {
    /// Is it kept until there is something to give?
    #[must_use]
    pub fn stands(self) -> bool {
        self != RequestKind::Now
    }
}

/// How long a job was at its thief, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spent {
    /// From its arrival until a worker began with it.
    pub waited: u64,
    /// From then on until it was done.
    pub took: u64,
}

impl Spent {
    /// From its arrival until it was done.
    #[must_use]
    pub fn in_all(self) -> Duration {
        Duration::from_micros(self.waited.saturating_add(self.took))
    }
}

/// A message between two nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(
    name(MessageKind),
    doc = "The kind of a message.",
    allow(missing_docs),
    derive(PartialOrd, Ord, Hash, Display, EnumCount, VariantArray),
    strum(serialize_all = "kebab-case")
)]
pub enum Message {
    // ---- steal
    /// "Have you a job for me?"
    Steal {
        /// The number of the request, which the answer gives back.
        request: Request,
        /// The number of jobs, at most.
        most: u32,
        /// How long it stands, and for whom it is.
        kind: RequestKind,
    },
    /// Jobs for a request, each with its token; none if there is none now. With that the request is over, lifelines too.
    Jobs {
        /// The number of the request that is answered.
        request: Request,
        /// The jobs, the oldest first, each with the token of its theft.
        jobs: Vec<(Token, Parcel)>,
        /// The number of jobs that the victim has beside those, about.
        left: u32,
        /// When the victim's driver sent them, in milliseconds since 1970 of its clock; 0 if it has not said so. For people who watch:
        /// nothing depends on it.
        sent_ms: u64,
    },
    /// Of the jobs that are here none is worth the way to the thief. With that the request is over.
    NotWorth(Request),
    /// The request that stands is not wanted any more.
    Cut(Request),
    /// So long these stolen jobs were here, whose answers follow: the rest of the time was their way.
    Spent(Vec<(Token, Spent)>),
    /// Bytes that say nothing: how long do they take? Answered by [`Message::TrialArrived`].
    Trial(#[serde(with = "serde_bytes")] Vec<u8>),
    /// So many bytes of a trial have arrived.
    TrialArrived(u64),
    /// So much of these stolen jobs is done, in parts of 65,535. For people who watch: nothing depends on it.
    PartsDone(Vec<(Token, u16)>),
    /// Answers of stolen jobs; the thief keeps them until they are acknowledged.
    Answers(Vec<(Token, Answer)>),
    /// "I have these answers", so they can be forgotten.
    Acknowledge(Vec<Token>),
    /// Abort these stolen jobs: they are not wanted any more.
    Recall(Vec<Token>),
    /// After a connection was made anew: what the sender has outstanding at, and hosted from, the receiver.
    Lists {
        /// The jobs that the receiver has stolen from the sender.
        outstanding: Vec<Token>,
        /// The jobs that the sender has stolen from the receiver.
        hosted: Vec<Token>,
    },

    // ---- repair
    /// "I have, or compute, these jobs already": the thefts are claims from now on.
    Have(Vec<Token>),
    /// Make these stolen jobs orphans: their origin does not wait for them any more, but a repair will.
    Disown(Vec<Token>),
    /// "Give me the results of these orphans." Answered by [`Message::Answers`] or [`Message::Miss`];
    /// [`Message::Recall`] withdraws it.
    Claim(Vec<Wanted>),
    /// "I have them no more."
    Miss(Vec<Token>),
    /// News of orphan tables.
    Table(Vec<Page>),
    /// How new the sender's copies of the nodes' tables are. Answered by what is newer.
    Versions(Vec<(Peer, u64)>),
    /// "Keep these results in your name." Answered by [`Message::Kept`].
    Keep {
        /// The number of the request, which the answer gives back.
        number: u64,
        /// The results.
        saved: Vec<Saved>,
    },
    /// "They are safe with me": the number of the request to keep results.
    Kept(u64),
    /// "Have copies of these results, in case that I die." Answered by [`Message::Copied`].
    Copies {
        /// The number of the request, which the answer gives back.
        number: u64,
        /// The jobs that the sender has under way: copies of results that are parts of none can go.
        under: Vec<JobId>,
        /// The results that the sender has gathered since the last that the receiver acknowledged.
        saved: Vec<Saved>,
    },
    /// "I have them": the number of the request to have copies.
    Copied(u64),
    /// "I have to give up this job that I stole from you", with what others keep of it.
    Abandon {
        /// The token of the theft.
        token: Token,
        /// The node that keeps the results.
        heir: Option<Peer>,
        /// The results that are kept.
        below: Vec<JobName>,
    },
    /// "I have a worker for these stolen jobs, which have taken down nodes before." Answered by [`Message::Go`]: from then on
    /// the death of the sender counts.
    Begin(Vec<Token>),
    /// "Begin with them."
    Go(Vec<Token>),
    /// "I am about to leave": never again a thief, an heir or a master.
    Draining,

    // ---- membership
    /// A packet of foca.
    Gossip(#[serde(with = "serde_bytes")] Vec<u8>),
    /// "Let me in." Answered by [`Message::Welcome`] from the master, by [`Message::Ask`] from others.
    Join {
        /// The node.
        who: Identity,
        /// The side of a cut to which the node comes over: one that will come over too does not let it in.
        toward: Option<Side>,
    },
    /// "The master is over there."
    Ask(Identity),
    /// "You are in."
    Welcome {
        /// The join stamp of the newcomer.
        stamp: u64,
        /// The term: how many masters there have been before.
        term: u32,
        /// The branches that lead to that term: see [`Side::branches`].
        branches: u32,
        /// The node that founded the pool.
        founder: NodeId,
        /// The nodes that are in, the master first.
        members: Vec<Identity>,
        /// Members that are about to leave.
        draining: Vec<Peer>,
        /// Bounds of the roots under way.
        offers: Vec<Offer>,
        /// Lives that fell silent: perhaps the other part of a partition, which the newcomer helps to look for.
        lost: Vec<Identity>,
    },
    /// "I am in, as this, at this side." To those who do not know that.
    Here {
        /// The sender.
        who: Identity,
        /// The side of the sender.
        side: Side,
        /// "Are you in too?" Answered by the same.
        asks: bool,
    },
    /// "I am going", after everything has been settled.
    Goodbye,
    /// "You were declared dead: that life of yours is over." Who has lost the sender too compares the two sides of the cut; who has not goes on
    /// as the next generation, unless the sender sees too few nodes.
    DeclaredDead {
        /// The life that is over.
        peer: Peer,
        /// The side of the sender.
        side: Side,
    },
    /// "Our side of a cut comes over to that one."
    GiveWay {
        /// The other side.
        side: Side,
        /// The address of a node there.
        to: SocketAddr,
    },
    /// "I, at that side, have lost that one." A node that sees it tells it so, by [`Message::DeclaredDead`], unless that side has a
    /// master and comes over to its own; a node that has never heard of it looks for it.
    Missed {
        /// The node that is lost.
        who: Identity,
        /// The side of the node that says so.
        side: Side,
    },
    /// "Are you there?" Answered by [`Message::Pong`] with the same number.
    Ping(u64),
    /// "I am."
    Pong(u64),
    /// For a node that the sender cannot reach, through one that may: see `node/relay`.
    Relay(Envelope),

    // ---- root
    /// "That is the master of that term."
    Master {
        /// The term, which counts the masters.
        term: u32,
        /// The branches that lead to it: see [`Side::branches`].
        branches: u32,
        /// The master's identity.
        master: Identity,
    },
    /// `main` is over, and the pool with it. A node that hears it from the master of the day passes it on.
    Ended {
        /// The term of the master whose `main` it was.
        term: u32,
        /// The master of that term.
        master: NodeId,
        /// The exit code.
        code: i32,
    },
    /// "That run goes on": what each node has finished goes to its own log of that run.
    Run {
        /// The run; `None` if there is none, as the store does not answer.
        run: Option<RunEpoch>,
        /// The version of the sender's sheet that has what stood in the store.
        version: u64,
    },
    /// Drop what belongs to these root jobs: they are over.
    RootsDone(Vec<RootRun>),
    /// "Which of these root jobs, which threads of yours have called, are over?" Answered by [`Message::RootsDone`], if any is.
    AreOver(Vec<RootName>),

    // ---- shared
    /// "Give me that value from there on."
    Want {
        /// The name of the value.
        name: ValueName,
        /// The root job that needs it.
        root: RootName,
        /// The first byte of the piece that is wanted.
        offset: u64,
        /// The way in which the value is to be had.
        how: How,
        /// Jobs borrow it: it need not be kept until the root job is over.
        lent: bool,
    },
    /// A piece of a value.
    Part {
        /// The name of the value.
        name: ValueName,
        /// The first byte of the piece.
        offset: u64,
        /// Bytes of the whole value.
        total: u64,
        /// The bytes of the piece.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// "Somebody of your site has it, or fetches it already."
    Elsewhere(ValueName, Peer),
    /// "I am still fetching it myself: wait."
    Soon(ValueName),
    /// "My next tasks for you will read that." Advice: nothing waits for it.
    Prefetch(Prefetch),
    /// "I have not fetched that, and shall not until a job needs it."
    NotPrefetched(ValueName),
    /// "What you keep of these for me can go."
    Unneeded(Vec<ValueName>),
    /// "I have it no more." The sender says later if it has the value again: [`Message::Available`].
    Unavailable(ValueName),
    /// "I have it by now."
    Available(ValueName),
    /// "That node waits for me to give it, and I wait for you." Passed on by each node that waits in turn,
    /// until one does not, or it comes back to the first: then that node waits for itself.
    Waits {
        /// The value's name.
        name: ValueName,
        /// The first of the nodes that wait.
        who: Peer,
        /// The node for which that one waits.
        whom: Peer,
        /// How often it has been passed on.
        hops: u8,
    },
    /// Better bounds, combined.
    Offers(Vec<Offer>),
    /// Better bounds, and what must not arrive before them.
    OffersWith(Vec<Offer>, Cargo),
    /// Better bounds with so many bytes that others may overtake them. Answered by [`Message::Had`]; until then what must
    /// not arrive before them carries them too.
    LargeOffers {
        /// A number that the answer gives back.
        version: u64,
        /// The bounds, as in [`Message::Offers`].
        offers: Vec<Offer>,
    },
    /// "I have those bounds."
    Had(u64),
}

impl Message {
    /// The kind of the message; of offers with a cargo that of the cargo.
    #[must_use]
    pub fn kind(&self) -> MessageKind {
        match self {
            Message::OffersWith(_, Cargo::Jobs { .. }) => MessageKind::Jobs,
            Message::OffersWith(_, Cargo::Answers(_)) => MessageKind::Answers,
            Message::OffersWith(_, Cargo::Keep { .. }) => MessageKind::Keep,
            Message::OffersWith(_, Cargo::Copies { .. }) => MessageKind::Copies,
            message => message.into(),
        }
    }

    /// The jobs that the message brings.
    #[must_use]
    pub fn jobs(&self) -> &[(Token, Parcel)] {
        match self {
            Message::Jobs { jobs, .. } | Message::OffersWith(_, Cargo::Jobs { jobs, .. }) => jobs,
            _ => &[],
        }
    }

    /// Jobs that the message brings are sent at this moment, in milliseconds since 1970.
    pub fn note_sent(&mut self, now_ms: u64) {
        if let Message::Jobs { sent_ms, .. } | Message::OffersWith(_, Cargo::Jobs { sent_ms, .. }) =
            self
        {
            *sent_ms = now_ms;
        }
    }

    /// The offers that the message brings.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        match self {
            Message::Offers(offers) | Message::OffersWith(offers, _) => offers,
            _ => &[],
        }
    }

    /// Is the message about which nodes are there? Such messages are heard whichever node sends them;
    /// all others only from live members.
    #[must_use]
    pub fn is_about_membership(&self) -> bool {
        use Message as M;
        matches!(
            self,
            M::Gossip(_)
                | M::Join { .. }
                | M::Ask(_)
                | M::Welcome { .. }
                | M::Here { .. }
                | M::Goodbye
                | M::DeclaredDead { .. }
                | M::GiveWay { .. }
                | M::Ping(_)
                | M::Pong(_)
                | M::Relay(_)
                | M::Ended { .. }
                | M::Master { .. }
        )
    }
}

/// A side of a cut, as one of its nodes sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Side {
    /// The elections of a master, up to that of the day, by nodes that were no more than half of those that were there before: the others may
    /// have gone on with the former master.
    pub branches: u32,
    /// The term of the master of the day.
    pub term: u32,
    /// The stamp and the number of that master.
    pub master: Option<(u64, NodeId)>,
    /// The master is at this side, as far as the node knows.
    pub has_master: bool,
    /// The nodes at this side.
    pub members: u32,
}

impl Side {
    /// Do nodes at both follow the same master, or wait for it?
    #[must_use]
    pub fn is_same(&self, other: &Side) -> bool {
        let of = |side: &Side| (side.branches, side.term, side.master);
        self.master.is_some() && of(self) == of(other)
    }

    /// Does this side come over to that one? (Rule H4 of the design puts fewer branches first. But a side that waits, because the store says that its
    /// `main` goes on, may wait for long: it is of more use at a branch.) A side that has a master stays, then the one with fewer branches, then that of the later term, then that of
    /// the elder master. Two sides without a master wait until one has one.
    #[must_use]
    pub fn gives_way_to(&self, other: &Side) -> bool {
        let order = |side: &Side| (side.branches, Reverse(side.term), side.master);
        match (self.has_master, other.has_master) {
            (_, false) => false,
            (false, true) => true,
            (true, true) => order(other) < order(self),
        }
    }
}

/// A value that will be needed, and where it is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Prefetch {
    /// The value.
    pub value: ValueSize,
    /// The root job of which its flow is a part.
    pub root: RootName,
    /// The node that has it.
    pub from: Peer,
}

/// An envelope that a third node passes on, between two that cannot reach each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// The end that speaks.
    pub from: Peer,
    /// The end that is spoken to.
    pub to: Peer,
    /// The epoch of the circuit; of a call: the highest that the caller knows of any connection between the
    /// two.
    pub epoch: u64,
    /// The contents.
    pub what: Relayed,
}

/// The contents of an [`Envelope`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Relayed {
    /// "Let us talk through the node that brings you this." Answered by [`Relayed::Accept`].
    Call(Identity),
    /// "Yes": the circuit stands.
    Accept(Identity),
    /// A [`Message`], as bytes: the relay need not understand it. (And nothing that is decoded may nest without end.)
    Message(#[serde(with = "serde_bytes")] Vec<u8>),
    /// No such circuit stands, or no way leads to the other end any more. Said by an end, or by the relay in the other's name.
    Broken,
    /// "I have no more to say": the circuit can go.
    Done,
}

/// An orphan's result that a claimant wants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// The token by which the claimant knows it.
    pub token: Token,
    /// The job whose result is claimed.
    pub name: JobName,
}

/// A part of one node's orphan table, from one version to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Page {
    /// The owner of the sheet.
    pub owner: Peer,
    /// The changes are those after this version; 0: the whole sheet, which replaces older copies.
    pub after: u64,
    /// The version that it makes.
    pub version: u64,
    /// The changes, in the order in which they happened.
    pub changes: Vec<SheetChange>,
}

/// A change of an orphan table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SheetChange {
    /// The owner has that orphan, or what it left.
    Orphan {
        /// The job's name.
        name: JobName,
        /// Is its result there?
        finished: bool,
    },
    /// The owner does not have that orphan any more.
    Withdrawn(JobName),
    /// The owner has announced everything that it hosts of that life.
    Flushed(Peer),
    /// A repair of its own is over: nobody wants anything at or below that job any more.
    Closed(JobId),
    /// A job has taken down that life; or, if it is the owner's own life, would have if the owner died now.
    Deadly(JobName, Peer),
    /// The owner says it of no node any more.
    Harmless(JobName),
}

/// How a value is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum How {
    /// From you, or from somebody of my site to whom you gave it.
    Anyhow,
    /// Do not send me elsewhere: I have been there.
    Insist,
    /// From you; if you have it not, fetch it from that node, and keep it for my site.
    Fetch(Peer),
}

/// The messages that offers may travel with. (Not a [`Message`] again: nothing that is decoded may nest without end.)
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cargo {
    /// As [`Message::Jobs`].
    Jobs {
        /// The number of the request that is answered.
        request: Request,
        /// The jobs, the oldest first, each with the token of its theft.
        jobs: Vec<(Token, Parcel)>,
        /// The number of jobs that the victim has beside those, about.
        left: u32,
        /// When the victim's driver sent them, in milliseconds since 1970 of its clock; 0 if it has not said so. For people who watch:
        /// nothing depends on it.
        sent_ms: u64,
    },
    /// As [`Message::Answers`].
    Answers(Vec<(Token, Answer)>),
    /// As [`Message::Keep`].
    Keep {
        /// The number of the request, which the answer gives back.
        number: u64,
        /// The results.
        saved: Vec<Saved>,
    },
    /// As [`Message::Copies`].
    Copies {
        /// The number of the request, which the answer gives back.
        number: u64,
        /// The jobs that the sender has under way.
        under: Vec<JobId>,
        /// The results.
        saved: Vec<Saved>,
    },
}

impl From<Cargo> for Message {
    fn from(cargo: Cargo) -> Message {
        match cargo {
            Cargo::Jobs {
                request,
                jobs,
                left,
                sent_ms,
            } => Message::Jobs {
                request,
                jobs,
                left,
                sent_ms,
            },
            Cargo::Answers(answers) => Message::Answers(answers),
            Cargo::Keep { number, saved } => Message::Keep { number, saved },
            Cargo::Copies {
                number,
                under,
                saved,
            } => Message::Copies {
                number,
                under,
                saved,
            },
        }
    }
}
