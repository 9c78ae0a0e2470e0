//! Buddies: neighbours that have copies of what this node has harvested, so that its death costs a period, not its stacks.
//!
//! Each period the workers are asked for the facts that they have gathered since the buddy acknowledged the last ones, and for
//! the jobs under way that these are parts of. The buddy keeps copies apart, in the sender's name, and drops what is a part of
//! no job that is under way. When the sender dies the copies become results that are kept here, like those that a node hands
//! over when it leaves: they are announced before anybody looks for them. Every eighth period they go to another site, which
//! has its own copies.
//!
//! A word that is lost costs a period: the next one says the same and more. So nothing waits for an acknowledgement.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::super::{
    Action, Context, HarvestReader, Message, Peer, ProtocolConfig, RepairMode, View,
};
use crate::job::{Gathered, JobId, RootName, Saved};

/// Of so many periods one goes to another site. Too small: much goes over the long links. Too large: the loss of a whole site
/// costs as many periods.
const FAR: u64 = 8;

/// Bytes of results in one message, about; the rest goes with the next period. Too small: a large harvest is never through.
/// Too large: a link is busy for long.
const MESSAGE: usize = 16 << 20;

/// What a buddy knows.
#[derive(Default)]
struct Buddy {
    /// The node, once one has been chosen.
    peer: Option<Peer>,
    /// The buddy has all facts up to that number.
    has: u64,
    /// The jobs that the buddy knows to be under way.
    under: Vec<JobId>,
    /// The last word to the buddy, while that has not been acknowledged.
    sent: Option<UnconfirmedCopies>,
}

impl Buddy {
    /// May the buddy have copies?
    fn may_have_some(&self) -> bool {
        !self.under.is_empty() || self.sent.is_some()
    }
}

/// A word on its way to a buddy.
struct UnconfirmedCopies {
    number: u64,
    upto: u64,
    under: Vec<JobId>,
    /// Until then the answer is waited for.
    until: Duration,
}

/// A question to the workers.
struct HarvestRequest {
    is_far: bool,
    /// The term in which it was asked.
    term: u32,
}

/// The wait until a word is said again that was not acknowledged. Too small: large words go twice over slow links, and hold each
/// other up. Too large: a lost word costs more than a period.
const AGAIN: Duration = Duration::from_secs(1);

/// The rate that a link is thought to have at least, in bytes a second.
const RATE: f64 = 1e6;

/// The copies of one life, each with the term in which it came.
type Copies = BTreeMap<JobId, (u32, Saved)>;

/// The buddies of this node, and the nodes whose buddy it is.
#[derive(Default)]
pub(crate) struct Buddies {
    near: Buddy,
    far: Buddy,
    /// When the next period begins; `None` while nothing is under way, or the workers are being asked.
    due: Option<Duration>,
    /// The number of periods so far.
    periods: u64,
    /// What the workers are being asked; `None` if they are not.
    asked: Option<HarvestRequest>,
    /// The copies that this node has of others' facts, by their lives.
    copies: BTreeMap<Peer, Copies>,
}

impl Buddies {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.due
    }

    /// The end of a turn: a period begins when something is under way, or a buddy may believe so.
    pub(crate) fn look(&mut self, cx: &Context<'_>, runs_main: bool) {
        let is_on = !cx.config.copy_every.is_zero() && cx.config.repair != RepairMode::Naive;
        if !is_on || self.due.is_some() || self.asked.is_some() || cx.view.len() < 2 {
            return;
        }
        let have_some = self.near.may_have_some() || self.far.may_have_some();
        if runs_main || cx.books.hosts_any() || have_some {
            let every = cx.config.copy_every;
            let wait = match self.periods {
                0 => ProtocolConfig::first_period(every),
                _ => every,
            };
            self.due = Some(cx.now + wait);
        }
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        if self.due.is_none_or(|due| due > cx.now) {
            return;
        }
        self.due = None;
        self.periods += 1;
        let near = choose(cx.view, self.near.peer, true);
        let far = choose(cx.view, self.far.peer, false);
        // A node that is alone at its site has far neighbours only; and what only the far buddy has is to go soon.
        let only_far_has = self.far.may_have_some() && !self.near.may_have_some();
        let is_far =
            far.is_some() && (near.is_none() || only_far_has || self.periods.is_multiple_of(FAR));
        let (buddy, chosen) = match is_far {
            true => (&mut self.far, far),
            false => (&mut self.near, near),
        };
        if buddy.peer != chosen {
            // A new one knows nothing, and the former need not have anything any more.
            let former = std::mem::take(buddy);
            buddy.peer = chosen;
            if let Some(peer) = former.peer.filter(|_| former.may_have_some()) {
                let nothing = Message::Copies {
                    number: self.periods,
                    under: Vec::new(),
                    saved: Vec::new(),
                };
                cx.actions.push_back(Action::Send(peer, nothing));
            }
        }
        if buddy.peer.is_some() {
            self.asked = Some(HarvestRequest {
                is_far,
                term: cx.term,
            });
            let harvest = Action::Harvest {
                since: buddy.has,
                reader: HarvestReader::Buddy,
            };
            cx.actions.push_back(harvest);
        }
    }

    /// The workers have told what they have.
    pub(crate) fn gathered(&mut self, cx: &mut Context<'_>, gathered: Gathered) {
        // A root job of an earlier term may be over, and its bounds forgotten: what is left of it is not told again.
        let asked = self.asked.take();
        let Some(asked) = asked.filter(|asked| asked.term == cx.term) else {
            return;
        };
        let buddy = match asked.is_far {
            true => &mut self.far,
            false => &mut self.near,
        };
        // It may have left or died while the workers were asked.
        let Some(to) = buddy.peer.filter(|peer| cx.view.is_alive(*peer)) else {
            return;
        };
        let Gathered {
            under,
            facts,
            upto: all,
            ..
        } = gathered;
        if facts.is_empty() && under == buddy.under && buddy.sent.is_none() {
            return; // no news
        }
        // What is on its way is not sent twice, nor is anything after it: the next word says all.
        if buddy.sent.as_ref().is_some_and(|sent| cx.now < sent.until) {
            return;
        }
        let (mut last, mut upto, mut bytes, mut saved) = (buddy.has, all, 0, Vec::new());
        for fact in facts {
            if bytes + fact.saved.size() > MESSAGE && !saved.is_empty() {
                upto = last;
                break;
            }
            bytes += fact.saved.size();
            last = fact.number;
            saved.push(fact.saved);
        }
        let number = self.periods;
        let copies = Message::Copies {
            number,
            under: under.clone(),
            saved,
        };
        cx.actions.push_back(Action::Send(to, copies));
        buddy.sent = Some(UnconfirmedCopies {
            number,
            upto,
            under,
            until: cx.now + AGAIN + Duration::from_secs_f64(bytes as f64 / RATE),
        });
    }

    /// A buddy has what was sent under that number.
    pub(crate) fn copied(&mut self, from: Peer, number: u64) {
        for buddy in [&mut self.near, &mut self.far] {
            // The answer to an earlier word says nothing: the last one said the same and more.
            if buddy.peer == Some(from)
                && let Some(sent) = buddy.sent.take_if(|sent| sent.number == number)
            {
                (buddy.has, buddy.under) = (sent.upto, sent.under);
            }
        }
    }

    /// Another node wants copies kept of what it has harvested.
    pub(crate) fn copies(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        number: u64,
        under: &[JobId],
        saved: Vec<Saved>,
    ) {
        let copies = self.copies.entry(from).or_default();
        // A job that is not under way there any more has been answered, or given up.
        let is_wanted = |id: &JobId| under.iter().any(|job| job.is_ancestor_of(id));
        copies.retain(|id, _| is_wanted(id));
        for fact in saved {
            // The upper one of two facts suffices.
            fact.name.id.take_below(copies);
            copies.insert(fact.name.id.clone(), (cx.term, fact));
        }
        if copies.is_empty() {
            self.copies.remove(&from);
        }
        let copied = Message::Copied(number);
        cx.actions.push_back(Action::Send(from, copied));
    }

    /// A life is over. The copies that this node has of it, by the terms in which they came; none if it left, as it has handed
    /// over what it had.
    pub(crate) fn life_ended(&mut self, peer: Peer, died: bool) -> BTreeMap<u32, Vec<Saved>> {
        for buddy in [&mut self.near, &mut self.far] {
            if buddy.peer == Some(peer) {
                *buddy = Buddy::default();
            }
        }
        let mut by_term: BTreeMap<u32, Vec<Saved>> = BTreeMap::new();
        let copies = self.copies.remove(&peer).filter(|_| died);
        for (term, saved) in copies.unwrap_or_default().into_values() {
            by_term.entry(term).or_default().push(saved);
        }
        by_term
    }

    /// A root job is over, or no node will ever end it: nobody wants its parts.
    pub(crate) fn root_over(&mut self, root: RootName) {
        for copies in self.copies.values_mut() {
            copies.retain(|_, (_, saved)| !root.ends(saved.root_name()));
        }
        self.copies.retain(|_, copies| !copies.is_empty());
    }

    /// The root jobs of whose parts copies are here.
    pub(crate) fn roots(&self) -> impl Iterator<Item = RootName> {
        let all = self.copies.values().flat_map(BTreeMap::values);
        all.map(|(_, saved)| saved.root_name())
    }

    /// How many facts of others are here.
    pub(crate) fn len(&self) -> usize {
        self.copies.values().map(BTreeMap::len).sum()
    }
}

/// The buddy at the own site, or at another: the one of before, if it stays; otherwise the next node after this one, in the
/// order of all. A node of another machine goes first.
fn choose(view: &View, before: Option<Peer>, near: bool) -> Option<Peer> {
    let me = view.me();
    let mut fit = BTreeSet::new();
    for member in view.members() {
        let peer = member.peer;
        if peer != me.peer && !view.is_draining(peer) && view.is_near(peer) == near {
            let on_this_machine = member.addr.ip() == me.addr.ip();
            // Round the ring: those after this node come before those that precede it.
            fit.insert((on_this_machine, peer < me.peer, peer));
        }
    }
    let (on_this_machine, _, first) = *fit.first()?;
    let stays = |peer: &Peer| fit.contains(&(on_this_machine, *peer < me.peer, *peer));
    Some(before.filter(stays).unwrap_or(first))
}
