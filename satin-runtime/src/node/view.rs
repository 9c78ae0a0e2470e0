//! The view: the nodes that are in the pool, as this node sees it.
//!
//! The tables are in sorted order, so that decisions are the same whenever the events are. They are shared
//! until they change: thousands of simulated nodes that know the same pool keep it once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rand::{Rng, RngExt};

use super::identity::{Identity, NodeId, Peer};

/// The live nodes, this one included, by site.
#[derive(Clone, Debug)]
pub struct View {
    me: Arc<Identity>,
    tables: Arc<Tables>,
    /// The node that was named master; if none was yet, the eldest is.
    master: Option<NodeId>,
    /// Members that are about to leave.
    draining: BTreeSet<Peer>,
}

#[derive(Clone, Debug, Default)]
struct Tables {
    members: BTreeMap<Peer, Arc<Identity>>,
    /// Members of each site, in the order of `Peer`.
    sites: BTreeMap<Arc<str>, Vec<Peer>>,
}

impl View {
    /// A pool of one.
    #[must_use]
    pub fn new(me: Identity) -> View {
        let me = Arc::new(me);
        let mut view = View {
            me: Arc::clone(&me),
            tables: Arc::default(),
            master: None,
            draining: BTreeSet::new(),
        };
        view.insert(me);
        view
    }

    /// A pool of all these, seen by the first.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn of(members: impl IntoIterator<Item = Arc<Identity>>) -> View {
        let mut tables = Tables::default();
        let mut first = None;
        for identity in members {
            first.get_or_insert_with(|| Arc::clone(&identity));
            let site = tables.sites.entry(Arc::clone(&identity.site));
            site.or_default().push(identity.peer);
            tables.members.insert(identity.peer, identity);
        }
        for members in tables.sites.values_mut() {
            members.sort_unstable();
            members.dedup();
        }
        View {
            me: first.expect("a pool has a member"),
            tables: Arc::new(tables),
            master: None,
            draining: BTreeSet::new(),
        }
    }

    /// The same pool, seen by another of its members.
    ///
    /// # Panics
    /// If `me` is not in it.
    #[must_use]
    pub fn seen_by(&self, me: Peer) -> View {
        View {
            me: Arc::clone(&self.tables.members[&me]),
            tables: Arc::clone(&self.tables),
            master: self.master,
            draining: self.draining.clone(),
        }
    }

    /// The identity of this node.
    #[must_use]
    pub fn me(&self) -> &Identity {
        &self.me
    }

    /// Changes the identity of this node: it has been given a stamp, or begins another life.
    pub fn set_me(&mut self, me: Identity) {
        let old = self.me.peer;
        // A node that begins another life while it drains goes on draining.
        let draining = self.is_draining(old);
        self.remove(old);
        self.me = Arc::new(me);
        let me = Arc::clone(&self.me);
        self.insert(me);
        if draining {
            self.set_draining(self.me.peer);
        }
    }

    /// Enters a node that came in. An older generation of it is to be removed first.
    pub fn insert(&mut self, identity: Arc<Identity>) {
        // Copied only now: thousands of simulated nodes share the tables that they have in common.
        let tables = Arc::make_mut(&mut self.tables);
        let members = tables.sites.entry(Arc::clone(&identity.site)).or_default();
        // The same node may be inserted again, with another stamp or address.
        if let Err(place) = members.binary_search(&identity.peer) {
            members.insert(place, identity.peer);
        }
        tables.members.insert(identity.peer, identity);
    }

    /// Removes a node that is gone. Returns its identity; `None` if it was not in.
    pub fn remove(&mut self, peer: Peer) -> Option<Arc<Identity>> {
        // Asked before the tables are copied for nothing.
        if !self.tables.members.contains_key(&peer) {
            return None;
        }
        let tables = Arc::make_mut(&mut self.tables);
        let gone = tables.members.remove(&peer)?;
        self.draining.remove(&peer);
        if let Some(members) = tables.sites.get_mut(&gone.site) {
            members.retain(|member| *member != peer);
            // An empty site would still count among the sites that lifelines and offers go to.
            if members.is_empty() {
                tables.sites.remove(&gone.site);
            }
        }
        Some(gone)
    }

    /// A live node.
    #[must_use]
    pub fn get(&self, peer: Peer) -> Option<&Identity> {
        self.tables.members.get(&peer).map(|identity| &**identity)
    }

    /// Is that life in the view?
    #[must_use]
    pub fn is_alive(&self, peer: Peer) -> bool {
        self.tables.members.contains_key(&peer)
    }

    /// The life of that node which is in the view.
    pub(crate) fn life_of(&self, id: NodeId) -> Option<Peer> {
        let generation = u32::MAX;
        let mut lives = (self.tables.members).range(id.first_life()..=Peer { id, generation });
        lives.next().map(|(peer, _)| *peer)
    }

    /// Is any of these lives in the view?
    pub(crate) fn is_any_alive(&self, lives: std::ops::RangeInclusive<Peer>) -> bool {
        self.tables.members.range(lives).next().is_some()
    }

    /// The number of nodes that are in, this node included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.members.len()
    }

    /// Is the pool empty? Never: this node is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.members.is_empty()
    }

    /// Notes that a live member, perhaps this node, is about to leave: no thief, heir or master any more.
    /// True if that is news.
    pub(crate) fn set_draining(&mut self, peer: Peer) -> bool {
        self.is_alive(peer) && self.draining.insert(peer)
    }

    /// Is that node about to leave?
    #[must_use]
    pub fn is_draining(&self, peer: Peer) -> bool {
        self.draining.contains(&peer)
    }

    /// The members that are about to leave.
    pub fn draining(&self) -> impl Iterator<Item = Peer> {
        self.draining.iter().copied()
    }

    /// Notes that a node runs `main`. True if that is news.
    pub(crate) fn set_master(&mut self, id: NodeId) -> bool {
        self.master.replace(id) != Some(id)
    }

    /// The member that runs `main`. If it is gone, or was not named yet, the member that has been in for
    /// longest.
    #[must_use]
    pub fn master(&self) -> Peer {
        // The master may be in a later life than the one in which it was named.
        let lives = |id| {
            let life = |generation| Peer { id, generation };
            let lives = self.tables.members.range(life(0)..=life(u32::MAX));
            lives.map(|(peer, _)| *peer).next_back()
        };
        if let Some(master) = self.master.and_then(lives) {
            return master;
        }
        let members = self.members();
        let eldest = members.min_by_key(|identity| (identity.stamp, identity.peer));
        eldest.map_or(self.me.peer, |identity| identity.peer)
    }

    /// All members, in the order of `Peer`.
    pub fn members(&self) -> impl Iterator<Item = &Identity> + Clone {
        self.tables.members.values().map(|identity| &**identity)
    }

    /// As [`members`](View::members), to be kept.
    pub fn shared(&self) -> impl Iterator<Item = &Arc<Identity>> {
        self.tables.members.values()
    }

    /// The sites and their members, in order.
    pub fn sites(&self) -> impl Iterator<Item = (&str, &[Peer])> {
        let sites = self.tables.sites.iter();
        sites.map(|(site, members)| (&**site, &**members))
    }

    /// The members of a site, in order.
    #[must_use]
    pub fn site(&self, site: &str) -> &[Peer] {
        self.tables.sites.get(site).map_or(&[], |members| members)
    }

    /// Does the peer stand at this node's site?
    #[must_use]
    pub fn is_near(&self, peer: Peer) -> bool {
        self.get(peer)
            .is_some_and(|identity| identity.site == self.me.site)
    }

    /// A random other node of this site, each as likely.
    pub fn random_near(&self, rng: &mut impl Rng) -> Option<Peer> {
        let members = self.site(&self.me.site);
        self.random_other(members, rng)
    }

    /// A random node of another site, each as likely.
    pub fn random_far(&self, rng: &mut impl Rng) -> Option<Peer> {
        let far = self.len().checked_sub(self.site(&self.me.site).len())?;
        // Drawn over the nodes, not over the sites: else a node of a small site would be asked more
        // often.
        let mut place = (far > 0).then(|| rng.random_range(0..far))?;
        for (_, members) in self.sites().filter(|(site, _)| *site != &*self.me.site) {
            match members.get(place) {
                Some(peer) => return Some(*peer),
                None => place -= members.len(),
            }
        }
        None
    }

    /// A random other node of the pool, each as likely.
    pub fn random(&self, rng: &mut impl Rng) -> Option<Peer> {
        let others = self.len() - 1;
        let near = self.site(&self.me.site).len() - 1;
        if others == 0 {
            None
        } else if rng.random_range(0..others) < near {
            self.random_near(rng)
        } else {
            self.random_far(rng)
        }
    }

    fn random_other(&self, members: &[Peer], rng: &mut impl Rng) -> Option<Peer> {
        let others = members.len().checked_sub(1).filter(|others| *others > 0)?;
        // A place is drawn among the others, and the own one stepped over: one draw is enough.
        let mine = members.binary_search(&self.me.peer).unwrap_or(others);
        let place = rng.random_range(0..others);
        Some(members[if place < mine { place } else { place + 1 }])
    }
}
