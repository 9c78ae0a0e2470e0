//! Bounds: offers are combined, and spread to everybody soon.

use std::time::Duration;

use super::super::{Context, Lattices, Peer};
use crate::job::{Offer, RootTag};

/// The best known values, and what is to be passed on.
#[derive(Default)]
pub struct Bounds {}

#[expect(unused_variables, clippy::unused_self, reason = "to be filled")]
impl Bounds {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        None
    }
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {}

    /// A worker here has found something better.
    pub(crate) fn offered(&mut self, cx: &mut Context<'_>, offer: Offer, lattices: &dyn Lattices) {}
    /// Another node says so.
    pub(crate) fn improve(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        offers: Vec<Offer>,
        lattices: &dyn Lattices,
    ) {
    }
    pub(crate) fn sever(&mut self, peer: Peer) {}
    pub(crate) fn root_done(&mut self, tag: RootTag) {}
}
