//! What nodes say to each other.
//!
//! Messages between two nodes arrive in order, each once, as long as their connection lives; except
//! [`Message::Gossip`], which may be lost or overtake others, and large ones, which others may overtake.

use serde::{Deserialize, Serialize};

use super::identity::{Identity, NodeId, Peer};
use crate::job::{Answer, Fingerprint, JobId, Offer, Parcel, RootName, RootRun, Saved, ValueName};

/// Names one theft. Given by the victim, new for each: a job that is taken again gets another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Token(pub u64);

/// Numbers the requests of a thief.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Request(pub u64);

/// A message between two nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    // ---- steal
    /// "Have you a job for me?"
    Steal {
        /// To be given back.
        request: Request,
        /// So many at most.
        most: u32,
        /// Keep this request until you have something: a lifeline. Otherwise it is answered soon.
        lifeline: bool,
    },
    /// Jobs for a request, each with its token; none if there is none now. With that the request is over, lifelines too.
    Jobs {
        /// Of the request.
        request: Request,
        /// The oldest first.
        jobs: Vec<(Token, Parcel)>,
        /// So many more there are, about.
        left: u32,
    },
    /// The lifeline is not wanted any more.
    Cut(Request),
    /// Answers of stolen jobs; the thief keeps them until they are acknowledged.
    Answers(Vec<(Token, Answer)>),
    /// "I have these answers", so they can be forgotten.
    Acknowledge(Vec<Token>),
    /// Abort these stolen jobs: they are not wanted any more.
    Recall(Vec<Token>),
    /// After a connection was made anew: what the sender has outstanding at, and hosted from, the receiver.
    Lists {
        /// Stolen from the sender.
        outstanding: Vec<Token>,
        /// Stolen by the sender.
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
        /// To be given back.
        number: u64,
        /// The results.
        saved: Vec<Saved>,
    },
    /// "They are safe with me."
    Kept(u64),
    /// "I have to give up this job that I stole from you", with what others keep of it.
    Abandon {
        /// Of the theft.
        token: Token,
        /// The node that keeps the results.
        heir: Option<Peer>,
        /// The results that are kept.
        below: Vec<(JobId, Fingerprint)>,
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
    Join(Identity),
    /// "The master is over there."
    Ask(Identity),
    /// You are in.
    Welcome {
        /// Your join stamp.
        stamp: u64,
        /// How many masters there have been.
        term: u32,
        /// The nodes that are in, the master first.
        members: Vec<Identity>,
        /// Members that are about to leave.
        draining: Vec<Peer>,
        /// Bounds of the roots under way.
        offers: Vec<Offer>,
        /// Lives that fell silent: perhaps the other part of a partition, which the newcomer helps to look for.
        lost: Vec<Identity>,
    },
    /// "I am in, as this." To those who met the sender before it had its stamp.
    Here(Identity),
    /// "I am going", after everything has been settled.
    Goodbye,
    /// "You were declared dead: that life of yours is over." Who is told so goes on as the next generation.
    DeclaredDead(Peer),
    /// "I have lost that one": whoever sees it tells it so, by [`Message::DeclaredDead`]; whoever has never heard of it looks for it.
    Missed(Identity),
    /// "Are you there?" Answered by [`Message::Pong`] with the same number.
    Ping(u64),
    /// "I am."
    Pong(u64),
    /// For a node that the sender cannot reach, through one that may: see `node/relay`.
    Relay(Envelope),

    // ---- root
    /// "That is the master of that term."
    Master {
        /// Counts the masters.
        term: u32,
        /// The master's identity.
        master: Identity,
    },
    /// `main` is over, and the pool with it. Whoever hears it from the master of the day passes it on.
    Ended {
        /// Of the master whose `main` it was.
        term: u32,
        /// The master of that term.
        master: NodeId,
        /// The exit code.
        code: i32,
    },
    /// Drop what belongs to these root jobs: they are over.
    RootsDone(Vec<RootRun>),
    /// "Which of these root jobs, which threads of yours have called, are over?" Answered by [`Message::RootsDone`], if any is.
    AreOver(Vec<RootName>),

    // ---- shared
    /// "Give me that value from there on."
    Want {
        /// Which.
        name: ValueName,
        /// The root job that needs it.
        root: RootName,
        /// From this byte.
        offset: u64,
        /// If that is not the simplest thing.
        how: How,
    },
    /// A piece of a value.
    Part {
        /// Which.
        name: ValueName,
        /// Where the piece begins.
        offset: u64,
        /// How long the whole is.
        total: u64,
        /// The piece.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// "Somebody of your site has it, or fetches it already."
    Elsewhere(ValueName, Peer),
    /// "I am still fetching it myself: wait."
    Soon(ValueName),
    /// "I have it no more." Who says so says later if it has it again: [`Message::Available`].
    Unavailable(ValueName),
    /// "I have it by now."
    Available(ValueName),
    /// "That node waits for me to give it, and I wait for you." Passed on by who waits in turn, until somebody does not, or
    /// it comes back to that node: then it waits for itself.
    Waits {
        /// The value's name.
        name: ValueName,
        /// The first of those who wait.
        who: Peer,
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
        /// To be given back.
        version: u64,
        /// As in [`Message::Offers`].
        offers: Vec<Offer>,
    },
    /// "I have those bounds."
    Had(u64),
}

impl Message {
    /// The offers that it brings.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        match self {
            Message::Offers(offers) | Message::OffersWith(offers, _) => offers,
            _ => &[],
        }
    }

    /// Is it about who is there? Such messages are heard whoever sends them; all others only from live members.
    #[must_use]
    pub fn is_about_membership(&self) -> bool {
        use Message as M;
        matches!(
            self,
            M::Gossip(_)
                | M::Join(_)
                | M::Ask(_)
                | M::Welcome { .. }
                | M::Here(_)
                | M::Goodbye
                | M::DeclaredDead(_)
                | M::Ping(_)
                | M::Pong(_)
                | M::Relay(_)
                | M::Ended { .. }
                | M::Master { .. }
        )
    }
}

/// An envelope that a third node passes on, between two that cannot reach each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// The one end.
    pub from: Peer,
    /// The other.
    pub to: Peer,
    /// Of the circuit; of a call: the highest that the caller knows of any connection between the two.
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
    /// "There is nothing to say any more."
    Done,
}

/// An orphan's result that somebody wants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// By which the claimant knows it.
    pub token: Token,
    /// The id of the job whose result is claimed.
    pub id: JobId,
    /// The fingerprint of what it is to have computed.
    pub fingerprint: Fingerprint,
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
    /// In the order in which they happened.
    pub changes: Vec<SheetChange>,
}

/// A change of an orphan table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SheetChange {
    /// The owner has that orphan, or what it left.
    Orphan {
        /// The job's id.
        id: JobId,
        /// The fingerprint of what it computes.
        fingerprint: Fingerprint,
        /// Is its result there?
        finished: bool,
    },
    /// The owner does not have that orphan any more.
    Withdrawn(JobId, Fingerprint),
    /// The owner has announced everything that it hosts of that life.
    Flushed(Peer),
    /// A repair of its own is over: nobody wants anything at or below that job any more.
    Closed(JobId),
    /// A job has taken down that life; or, if it is the owner's own life, would have if the owner died now.
    Deadly(JobId, Fingerprint, Peer),
    /// The owner does not say so of anybody any more.
    Harmless(JobId, Fingerprint),
}

/// How a value is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum How {
    /// From you, or from somebody of my site to whom you gave it.
    Anyhow,
    /// Do not send me elsewhere: I have been there.
    Insist,
    /// If you have it not, fetch it from there, and keep it for our site.
    Fetch(Peer),
}

/// The messages that offers may travel with. (Not a [`Message`] again: nothing that is decoded may nest without end.)
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cargo {
    /// As [`Message::Jobs`].
    Jobs {
        /// Of the request.
        request: Request,
        /// The oldest first.
        jobs: Vec<(Token, Parcel)>,
        /// As there.
        left: u32,
    },
    /// As [`Message::Answers`].
    Answers(Vec<(Token, Answer)>),
    /// As [`Message::Keep`].
    Keep {
        /// To be given back.
        number: u64,
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
            } => Message::Jobs {
                request,
                jobs,
                left,
            },
            Cargo::Answers(answers) => Message::Answers(answers),
            Cargo::Keep { number, saved } => Message::Keep { number, saved },
        }
    }
}
