//! The imaginary network: how long messages take, and what becomes of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::super::{Envelope, Message, Relayed, Token, message::Cargo};
use crate::job::{Answer, Offer, Parcel, Saved};

/// The properties of a path between two sites, or between the nodes of a site.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Path {
    /// Time for a message there and one back.
    pub round_trip: Duration,
    /// Largest extra time of a message each way, evenly distributed.
    pub jitter: Duration,
    /// The share of [`Message::Gossip`] that is lost; the rest goes by streams, which repeat what was lost.
    pub loss: f64,
    /// Bytes a second on each link.
    pub rate: Option<u64>,
}

impl Path {
    /// A path with that round trip, without jitter, losses or a rate.
    #[must_use]
    pub const fn new(round_trip: Duration) -> Path {
        Path {
            round_trip,
            jitter: Duration::ZERO,
            loss: 0.0,
            rate: None,
        }
    }
}

/// The network between the nodes.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The path between nodes of one site.
    pub near: Path,
    /// Between sites that have no path of their own.
    pub far: Path,
    /// Messages with more bytes than this go on a stream of their own, and others overtake them.
    pub large: usize,
    /// Time without messages after which a link is given up.
    pub idle_timeout: Duration,
    /// Number of round trips until a connection stands.
    pub handshake: f64,
    paths: BTreeMap<(u32, u32), Path>,
    cut: BTreeSet<(u32, u32)>,
    isolated: BTreeSet<u32>,
    /// Pairs of nodes without a way from the first to the second.
    ways: BTreeSet<(u32, u32)>,
    /// The same, and it stays so when everything else heals.
    lasting: BTreeSet<(u32, u32)>,
    /// The share of their rate at which links send, from the first node to the second, where that is not all of it.
    speeds: BTreeMap<(u32, u32), f64>,
    /// True if messages that are under way when their sender gives a link up arrive all the same, until the receiver
    /// gives the link up too.
    pub late: bool,
    /// Largest extra time of a message on a stream of its own.
    pub stray: Duration,
    /// A firewall answers for what is cut off at another site that nobody listens there.
    pub rejects: bool,
    /// Share of [`Message::Gossip`] that comes a second time.
    pub gossip_twice: f64,
    /// Largest extra time of a tenth of [`Message::Gossip`], and of all that comes a second time.
    pub gossip_late: Duration,
}

impl Default for Wire {
    fn default() -> Wire {
        Wire {
            near: Path::new(Duration::from_micros(200)),
            far: Path::new(Duration::from_millis(10)),
            large: 64 << 10,
            idle_timeout: Duration::from_secs(5),
            handshake: 1.5,
            paths: BTreeMap::new(),
            cut: BTreeSet::new(),
            isolated: BTreeSet::new(),
            ways: BTreeSet::new(),
            lasting: BTreeSet::new(),
            speeds: BTreeMap::new(),
            late: false,
            stray: Duration::ZERO,
            rejects: false,
            gossip_twice: 0.0,
            gossip_late: Duration::ZERO,
        }
    }
}

impl Wire {
    /// The path between two sites.
    #[must_use]
    pub fn path(&self, a: u32, b: u32) -> Path {
        let usual = if a == b { self.near } else { self.far };
        if self.paths.is_empty() {
            return usual;
        }
        *self.paths.get(&(a.min(b), a.max(b))).unwrap_or(&usual)
    }

    pub(super) fn set_path(&mut self, a: u32, b: u32, path: Path) {
        self.paths.insert((a.min(b), a.max(b)), path);
    }

    pub(super) fn set_speed(&mut self, from: u32, to: u32, share: f64) {
        self.speeds.insert((from, to), share);
    }

    /// The share of its rate at which a link sends.
    pub(super) fn speed(&self, from: u32, to: u32) -> f64 {
        self.speeds.get(&(from, to)).copied().unwrap_or(1.0)
    }

    pub(super) fn cut(&mut self, a: u32, b: u32) {
        self.cut.insert((a.min(b), a.max(b)));
    }

    pub(super) fn heal_sites(&mut self, a: u32, b: u32) {
        self.cut.remove(&(a.min(b), a.max(b)));
    }

    pub(super) fn isolate(&mut self, node: u32) {
        self.isolated.insert(node);
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
        self.isolated.clear();
        self.ways.clear();
    }

    pub(super) fn cut_way(&mut self, from: u32, to: u32) {
        self.ways.insert((from, to));
    }

    pub(super) fn cut_for_good(&mut self, from: u32, to: u32) {
        self.lasting.insert((from, to));
    }

    /// Does nothing come through from the first node to the second, whatever their sites are?
    pub(super) fn is_cut(&self, from: u32, to: u32) -> bool {
        self.ways.contains(&(from, to))
            || self.lasting.contains(&(from, to))
            || self.isolated.contains(&from)
            || self.isolated.contains(&to)
    }

    /// Are any two sites cut off from each other?
    pub(super) fn cuts_sites(&self) -> bool {
        !self.cut.is_empty()
    }

    /// Does nothing come through between the two sites?
    pub(super) fn are_sites_cut(&self, a: u32, b: u32) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }
}

/// The size of a message on the wire in bytes, roughly.
#[must_use]
pub fn size(message: &Message) -> usize {
    let parcel = |parcel: &Parcel| {
        24 + parcel.id.as_bytes().len() + parcel.arguments.len() + 32 * parcel.needs.len()
    };
    let answer = |answer: &Answer| match answer {
        Answer::Result { bytes, needs, kept } => {
            let kept = kept.as_ref().map_or(0, |kept| 17 + 36 * kept.values.len());
            bytes.len() + 32 * needs.len() + kept
        }
        answer => answer.size().max(1),
    };
    let jobs = |jobs: &[(Token, Parcel)]| jobs.iter().map(|(_, job)| parcel(job)).sum::<usize>();
    let answers = |answers: &[(Token, Answer)]| {
        let each = answers.iter().map(|(_, is)| 8 + answer(is));
        each.sum::<usize>()
    };
    let kept = |saved: &[Saved]| {
        let each = saved.iter().map(|saved| 32 + answer(&saved.answer));
        each.sum::<usize>()
    };
    let offered = |offers: &[Offer]| {
        let each = offers.iter().map(|offer| 64 + offer.value.len());
        each.sum::<usize>()
    };
    16 + match message {
        Message::Jobs { jobs: these, .. } => jobs(these),
        Message::Answers(these) => answers(these),
        Message::OffersWith(offers, cargo) => {
            offered(offers)
                + match cargo {
                    Cargo::Jobs { jobs: these, .. } => jobs(these),
                    Cargo::Answers(these) => answers(these),
                    Cargo::Keep { saved, .. } | Cargo::Copies { saved, .. } => kept(saved),
                }
        }
        Message::Acknowledge(tokens) | Message::Recall(tokens) => 4 * tokens.len(),
        Message::Lists {
            outstanding,
            hosted,
        } => 4 * (outstanding.len() + hosted.len()),
        Message::Gossip(bytes) | Message::Part { bytes, .. } | Message::Trial(bytes) => bytes.len(),
        Message::Welcome {
            members,
            offers,
            lost,
            ..
        } => 64 * (members.len() + lost.len()) + offered(offers),
        Message::Offers(offers) | Message::LargeOffers { offers, .. } => offered(offers),
        Message::Table(pages) => pages.iter().map(|page| 32 + 40 * page.changes.len()).sum(),
        Message::Keep { saved, .. } | Message::Copies { saved, .. } => kept(saved),
        Message::Claim(wanted) => 40 * wanted.len(),
        Message::Relay(Envelope {
            what: Relayed::Message(bytes),
            ..
        }) => 48 + bytes.len(),
        _ => 32,
    }
}
