//! The failure detector: foca, and what it wants done.
//!
//! Time here is the time that this process was awake (see [`super::Membership`]). Timers are kept in the
//! order of when they are due, and then of when they were requested.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU8, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use foca::{
    Foca, Member, NoCustomBroadcast, Notification, PeriodicParams, PostcardCodec, State, Timer,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};

use super::super::{Identity, NodeId, Peer, ProtocolConfig};

/// Bytes in a packet, at most, so that it fits into a QUIC datagram on any path. Too small: more packets for
/// the same news. Too large: packets are lost on some paths.
const LARGEST_PACKET: NonZeroUsize = NonZeroUsize::new(1150).expect("not zero");
/// The number of members that are asked to probe a member which did not answer, and that are told news at
/// once. Too small: news go slowly, and one bad path is taken for a death. Too large: noise.
const FAN_OUT: NonZeroUsize = NonZeroUsize::new(3).expect("not zero");
/// The time between two rounds of gossip, while there is news. Too small: more wake-ups. Too large: deaths
/// are known later.
const GOSSIP_PERIOD: Duration = Duration::from_millis(200);
/// The time between two requests for a random part of another member's list. Too small: noise. Too
/// large: what lost packets left out is missing for longer.
const FEED_PERIOD: Duration = Duration::from_secs(10);
/// The growth of the time of suspicion with each doubling of the pool, as news take longer to
/// reach everybody. Too small: false deaths in large pools. Too large: deaths are known late there.
const SUSPICION_PER_DOUBLING: Duration = Duration::from_millis(500);

/// The life of a node, as foca knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Life {
    pub(super) identity: Arc<Identity>,
    /// The knowledge about its end. The same life with more of that wins, so that "left" is never taken for
    /// "died".
    pub(super) ending: PresumedEnd,
}

impl Life {
    fn new(identity: Arc<Identity>) -> Life {
        Life {
            identity,
            ending: PresumedEnd::Unknown,
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.identity.peer
    }
}

impl PartialEq for Life {
    fn eq(&self, other: &Life) -> bool {
        // Stamp and address may change within a life. The ending must count: only as another
        // identity can it replace what foca knows.
        (self.peer(), self.ending) == (other.peer(), other.ending)
    }
}

impl Eq for Life {}

impl foca::Identity for Life {
    type Addr = NodeId;

    fn renew(&self) -> Option<Life> {
        // Foca asks for this when others say that this node is dead.
        let mut identity = Identity::clone(&self.identity);
        identity.peer.generation = identity.peer.generation.checked_add(1)?;
        Some(Life::new(Arc::new(identity)))
    }

    fn addr(&self) -> NodeId {
        self.peer().id
    }

    fn win_addr_conflict(&self, adversary: &Life) -> bool {
        // The newer generation first: it implies the end of the older one, however that ended.
        (self.peer().generation, self.ending) > (adversary.peer().generation, adversary.ending)
    }
}

/// How a life ended, if it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum PresumedEnd {
    /// The node fell silent, which may be the network's fault.
    Unknown,
    /// The machine of the node says that nobody listens there any more.
    Gone,
    /// The node said goodbye.
    OnPurpose,
}

/// The findings of foca.
#[derive(Debug)]
pub(super) enum DetectorNews {
    /// A node is there.
    Up(Arc<Identity>),
    /// The life is over.
    Down(Life),
    /// A node goes on as another life, or more is known of the end of its life.
    Renamed(Life, Life),
    /// The node itself was declared dead, and goes on under that identity.
    Reborn(Arc<Identity>),
    /// The member did not answer a direct probe, or is suspected by now.
    Silent(Peer),
}

#[derive(Default)]
struct Effects {
    packets: Vec<(Peer, Vec<u8>)>,
    timers: Vec<(Duration, Timer<Life>)>,
    news: Vec<DetectorNews>,
}

impl foca::Runtime<Life> for Effects {
    fn notify(&mut self, notification: Notification<'_, Life>) {
        self.news.push(match notification {
            Notification::MemberUp(life) => DetectorNews::Up(Arc::clone(&life.identity)),
            Notification::MemberDown(life) => DetectorNews::Down(life.clone()),
            Notification::Rename(old, new) => DetectorNews::Renamed(old.clone(), new.clone()),
            Notification::Rejoin(life) => DetectorNews::Reborn(Arc::clone(&life.identity)),
            // Foca tells of itself: how many members it probes is nothing to act on.
            Notification::Active | Notification::Idle | Notification::Defunct => return,
        });
    }

    fn send_to(&mut self, to: Life, data: &[u8]) {
        self.packets.push((to.peer(), data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Life>, after: Duration) {
        self.timers.push((after, event));
    }
}

/// Foca, its timers, and the effects that have not been fetched yet.
pub(super) struct Detector {
    foca: Foca<Life, PostcardCodec, SmallRng, NoCustomBroadcast>,
    /// By due time and order of request; each with the time when it was requested.
    timers: BTreeMap<(Duration, u64), (Duration, Timer<Life>)>,
    /// Orders timers that are due at the same moment, so that every run does the same.
    sequence: u64,
    /// When each member that is, or was, suspected was last heard of.
    heard: BTreeMap<Peer, Duration>,
    effects: Effects,
    /// The size of the pool for which foca's numbers were made.
    sized_for: usize,
}

/// How long a node of a pool of that size is suspected before it is declared dead.
pub(crate) fn suspicion(config: &ProtocolConfig, members: usize) -> Duration {
    let doublings = members.max(1).ilog2();
    config.suspicion + SUSPICION_PER_DOUBLING * doublings
}

fn numbers(config: &ProtocolConfig, members: usize) -> foca::Config {
    let doublings = members.max(1).ilog2() as u8;
    foca::Config {
        probe_period: config.probe_period,
        // The other half of the period is for the members that ask in this node's stead.
        probe_rtt: config.probe_period / 2,
        num_indirect_probes: FAN_OUT,
        // News are passed on so often, to random others: a share of one in e^so many misses them,
        // and heals slowly.
        max_transmissions: NonZeroU8::new(8 + 2 * doublings).expect("not zero"),
        suspect_to_down_after: suspicion(config, members),
        // The dead stay dead: there are only as many as there were nodes.
        remove_down_after: None,
        max_packet_size: LARGEST_PACKET,
        // A node tells those that are down itself, with its side: see `Membership::gossip`.
        notify_down_members: false,
        periodic_announce: Some(PeriodicParams {
            frequency: FEED_PERIOD,
            num_members: NonZeroUsize::MIN,
        }),
        // Silent nodes are dialled instead, in turns: see `lost`.
        periodic_announce_to_down_members: None,
        periodic_gossip: Some(PeriodicParams {
            frequency: GOSSIP_PERIOD,
            num_members: FAN_OUT,
        }),
    }
}

impl Detector {
    pub(super) fn new(me: Arc<Identity>, config: &ProtocolConfig, rng: &mut SmallRng) -> Detector {
        let rng = SmallRng::seed_from_u64(rng.random());
        Detector {
            foca: Foca::new(Life::new(me), numbers(config, 1), rng, PostcardCodec),
            timers: BTreeMap::new(),
            sequence: 0,
            heard: BTreeMap::new(),
            effects: Effects::default(),
            sized_for: 1,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.timers.keys().next().map(|(due, _)| *due)
    }

    /// Enters members that live, as they say themselves or the master says. They are news to others only
    /// if they are news here.
    pub(super) fn insert(&mut self, now: Duration, lives: impl IntoIterator<Item = Arc<Identity>>) {
        self.enter(now, lives, Member::alive, true);
    }

    /// As [`insert`](Detector::insert), for members that everybody knows.
    pub(super) fn insert_known(
        &mut self,
        now: Duration,
        lives: impl IntoIterator<Item = Arc<Identity>>,
    ) {
        // Not spread: a pool of thousands that is formed beforehand would say thousands of
        // things that all know.
        self.enter(now, lives, Member::alive, false);
    }

    /// Enters lives that are over. The other members know that, or need not.
    pub(super) fn insert_over(
        &mut self,
        now: Duration,
        lives: impl IntoIterator<Item = Arc<Identity>>,
    ) {
        self.enter(now, lives, Member::down, false);
    }

    fn enter(
        &mut self,
        now: Duration,
        lives: impl IntoIterator<Item = Arc<Identity>>,
        as_member: fn(Life) -> Member<Life>,
        is_news: bool,
    ) {
        let members = lives.into_iter().map(|life| as_member(Life::new(life)));
        let done = self.foca.apply_many(members, is_news, &mut self.effects);
        debug_assert!(done.is_ok(), "{done:?}");
        self.take_timers(now);
    }

    /// Ends a life: the node is dead, or left on purpose.
    pub(super) fn end(&mut self, now: Duration, identity: Arc<Identity>, ending: PresumedEnd) {
        let life = Life { identity, ending };
        self.apply(now, Member::down(life));
    }

    /// Suspects a member: everybody is told that it may be dead. It hears so too, by and by, and refutes that
    /// if it can. Returns whether it is suspected now, and of which incarnation.
    pub(super) fn suspect(&mut self, now: Duration, peer: Peer) -> Option<u16> {
        let (incarnation, state) = self.state(peer)?;
        match state {
            State::Alive => {
                let life = self.life(peer)?;
                self.apply(now, Member::new(life, incarnation, State::Suspect));
                Some(incarnation)
            }
            // Suspected by foca already: the same incarnation is to be refuted.
            State::Suspect => Some(incarnation),
            State::Down => None,
        }
    }

    /// Has the member not refuted the suspicion of that incarnation?
    pub(super) fn is_still_suspect(&self, peer: Peer, incarnation: u16) -> bool {
        self.state(peer) == Some((incarnation, State::Suspect))
    }

    fn apply(&mut self, now: Duration, member: Member<Life>) {
        let once = std::iter::once(member);
        let done = self.foca.apply_many(once, true, &mut self.effects);
        debug_assert!(done.is_ok(), "{done:?}");
        self.spread(now);
    }

    /// Tell a few others what is new, now.
    pub(super) fn spread(&mut self, now: Duration) {
        let done = self.foca.gossip(&mut self.effects);
        debug_assert!(done.is_ok(), "{done:?}");
        self.take_timers(now);
    }

    fn member(&self, id: NodeId) -> Option<&Member<Life>> {
        let mut all = self.foca.iter_membership_state();
        all.find(|member| member.id().peer().id == id)
    }

    fn life(&self, peer: Peer) -> Option<Life> {
        let member = self.member(peer.id)?;
        (member.id().peer() == peer).then(|| member.id().clone())
    }

    fn state(&self, peer: Peer) -> Option<(u16, State)> {
        let member = self.member(peer.id)?;
        (member.id().peer() == peer).then(|| (member.incarnation(), member.state()))
    }

    pub(super) fn is_active(&self, peer: Peer) -> bool {
        (self.state(peer)).is_some_and(|(_, state)| state != State::Down)
    }

    /// The members that may be dead: whether they are will be known soon.
    pub(super) fn suspects(&self) -> BTreeSet<Peer> {
        let all = self.foca.iter_membership_state();
        let suspects = all.filter(|member| member.state() == State::Suspect);
        suspects.map(|member| member.id().peer()).collect()
    }

    /// Has anything been heard of a node, dead or alive?
    pub(super) fn is_known(&self, id: NodeId) -> bool {
        self.member(id).is_some()
    }

    /// Is that life over?
    pub(super) fn is_over(&self, peer: Peer) -> bool {
        self.member(peer.id).is_some_and(|member| {
            let known = member.id().peer().generation;
            // A newer generation implies the end of the older one.
            known > peer.generation || known == peer.generation && member.state() == State::Down
        })
    }

    /// Begins another life: a peer said that it has declared this node dead.
    pub(super) fn begin_anew(&mut self, now: Duration) {
        let life = self.foca.identity();
        // Generations do not wrap around: a number that was used stands for a life that is over.
        let Some(next) = foca::Identity::renew(life) else {
            return;
        };
        let identity = Arc::clone(&next.identity);
        // Foca does this by itself when gossip says so; here the word came from a member over a
        // stream.
        if self.foca.change_identity(next, &mut self.effects).is_ok() {
            self.effects.news.push(DetectorNews::Reborn(identity));
        }
        self.take_timers(now);
    }

    /// Takes in a packet. A packet that does not parse changes nothing.
    pub(super) fn receive(&mut self, now: Duration, packet: &[u8]) {
        let _malformed = self.foca.handle_data(packet, &mut self.effects);
        self.take_timers(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let (asked, timer) = entry.remove();
            if let Timer::ChangeSuspectToDown {
                member_id,
                incarnation,
                ..
            } = &timer
            {
                let peer = member_id.peer();
                // A member that has been heard of since lives, even if its refutation was lost. And
                // foca 2.0.0 tells a member that it is dead when this timer is due, even if it has
                // refuted the suspicion.
                let heard = self.heard.get(&peer).is_some_and(|heard| *heard > asked);
                if heard || !self.is_still_suspect(peer, *incarnation) {
                    continue;
                }
            }
            // Foca does not tell who failed to answer a direct probe: that it asks others in its
            // stead shows it.
            let direct = match &timer {
                Timer::SendIndirectProbe { probed_id, .. } => Some(probed_id.peer()),
                _ => None,
            };
            let sent = self.effects.packets.len();
            // After a pause foca complains of an incomplete probe; it recovers by itself.
            let _complaint = self.foca.handle_timer(timer, &mut self.effects);
            if let Some(peer) = direct
                && self.effects.packets.len() > sent
            {
                self.effects.news.push(DetectorNews::Silent(peer));
            }
            // Within the loop: a timer may ask for another one that is due already.
            self.take_timers(now);
        }
    }

    fn take_timers(&mut self, now: Duration) {
        for (after, timer) in self.effects.timers.drain(..) {
            if let Timer::ChangeSuspectToDown { member_id, .. } = &timer {
                let peer = member_id.peer();
                // From now on words of the member are noted: a word after this moment refutes the
                // suspicion.
                self.heard.entry(peer).or_default();
                self.effects.news.push(DetectorNews::Silent(peer));
            }
            let place = (now + after, self.sequence);
            self.timers.insert(place, (now, timer));
            self.sequence += 1;
        }
    }

    /// Notes that a message of the member came.
    pub(super) fn heard(&mut self, now: Duration, peer: Peer) {
        // Only members under suspicion are noted: as a rule a message costs one look-up in an empty
        // map.
        if let Some(heard) = self.heard.get_mut(&peer) {
            *heard = now;
        }
    }

    pub(super) fn forget(&mut self, peer: Peer) {
        self.heard.remove(&peer);
    }

    pub(super) fn take_news(&mut self) -> Vec<DetectorNews> {
        std::mem::take(&mut self.effects.news)
    }

    pub(super) fn take_packets(&mut self) -> Vec<(Peer, Vec<u8>)> {
        std::mem::take(&mut self.effects.packets)
    }

    /// Fits foca's numbers to the number of members.
    pub(super) fn resize(&mut self, config: &ProtocolConfig, members: usize) {
        // The numbers depend on doublings only, and foca is not to be set up anew with each joiner.
        if members.ilog2() != self.sized_for.ilog2() {
            self.sized_for = members;
            let done = self.foca.set_config(numbers(config, members));
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }
}
