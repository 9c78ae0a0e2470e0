//! Values: fetched before the job that needs them starts, once, from the own site if somebody there has them.

use std::time::Duration;

use super::super::{Context, Peer, Then};
use crate::job::{RootTag, ValueName};

/// Which values are here, under way, and waited for.
#[derive(Default)]
pub struct Values {}

#[expect(unused_variables, clippy::unused_self, reason = "to be filled")]
impl Values {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        None
    }
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {}

    /// Returns what may go on at once; otherwise fetches what is missing, beginning with `from`.
    pub(crate) fn bring(&mut self, cx: &mut Context<'_>, from: Peer, then: Then) -> Option<Then> {
        Some(then)
    }
    /// A value is here: what waited for it, and for nothing else, goes on.
    pub(crate) fn stored(&mut self, cx: &mut Context<'_>, name: ValueName) -> Vec<Then> {
        Vec::new()
    }
    pub(crate) fn corrupt(&mut self, cx: &mut Context<'_>, name: ValueName) {}
    /// What waited for a value that nobody else has any more cannot go on.
    pub(crate) fn sever(&mut self, cx: &mut Context<'_>, peer: Peer) -> Vec<Then> {
        Vec::new()
    }
    pub(crate) fn root_done(&mut self, cx: &mut Context<'_>, tag: RootTag) {}

    pub(crate) fn wanted(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        name: ValueName,
        offset: u64,
        insist: bool,
    ) {
    }
    pub(crate) fn part(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        name: ValueName,
        offset: u64,
        total: u64,
        bytes: Vec<u8>,
    ) {
    }
    pub(crate) fn elsewhere(&mut self, cx: &mut Context<'_>, name: ValueName, peer: Peer) {}
    pub(crate) fn unavailable(&mut self, cx: &mut Context<'_>, from: Peer, name: ValueName) {}
}
