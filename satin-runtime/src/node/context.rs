//! The state that every conversation may use.

use std::{collections::VecDeque, time::Duration};

use rand::rngs::SmallRng;

use super::{
    Action, Message, NodeId, Prefetch, ProtocolConfig, View, books, links, repair, shared,
};
use crate::job::{RootName, ValueName, ValueSize};

/// The state that every conversation may use.
pub(crate) struct Context<'n> {
    pub(crate) now: Duration,
    /// The term of the master of the day.
    pub(crate) term: u32,
    pub(crate) config: &'n ProtocolConfig,
    pub(crate) view: &'n mut View,
    pub(crate) rng: &'n mut SmallRng,
    pub(crate) actions: &'n mut VecDeque<Action>,
    pub(crate) links: &'n mut links::Links,
    pub(crate) books: &'n mut books::Books,
    pub(crate) table: &'n mut repair::Table,
    pub(crate) homes: &'n mut shared::Homes,
}

impl Context<'_> {
    /// Tells the node `to` to fetch a value that it will need: from this node, or from the node `at` that keeps it.
    pub(super) fn tell_to_prefetch(
        &mut self,
        to: NodeId,
        value: ValueSize,
        root: RootName,
        at: Option<NodeId>,
    ) {
        let me = self.view.me().peer;
        let from = at.map_or(Some(me), |at| self.view.life_of(at));
        let to = self.view.life_of(to).filter(|to| *to != me);
        if let (Some(to), Some(from)) = (to, from)
            && to != from
            && !self.books.holders.of(value.name).any(|peer| peer == to)
        {
            self.books.holders.note(to, value.name, root);
            let wanted = Prefetch { value, root, from };
            self.actions
                .push_back(Action::Send(to, Message::Prefetch(wanted)));
        }
    }

    /// Lets a keeper drop parts of results that the node `by` needs no more: each value once.
    pub(crate) fn unneeded(&mut self, by: NodeId, keeper: NodeId, names: Vec<ValueName>) {
        if keeper == self.view.me().peer.id {
            self.books.kept_here.drop(by, &names);
            return self.actions.push_back(Action::DropKept(names));
        }
        for name in &names {
            self.books.holders.let_go(keeper, *name);
        }
        // If the keeper is gone, so is what it kept.
        if let Some(peer) = self.view.life_of(keeper) {
            let unneeded = Message::Unneeded(names);
            self.actions.push_back(Action::Send(peer, unneeded));
        }
    }
}
