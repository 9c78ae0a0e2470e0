//! The root: who is master, which root jobs are under way, and when the pool ends.

use std::time::Duration;

use super::{Context, Identity, Peer, View};
use crate::job::RootTag;

/// The master and its root jobs.
pub struct Roots {}

#[expect(unused_variables, clippy::unused_self, reason = "to be filled")]
impl Roots {
    pub(crate) fn new(view: &View) -> Roots {
        Roots {}
    }
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        None
    }
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {}

    pub(crate) fn joined(&mut self, cx: &mut Context<'_>, peer: Peer) {}
    pub(crate) fn sever(&mut self, cx: &mut Context<'_>, peer: Peer) {}
    pub(crate) fn welcome(&mut self, cx: &mut Context<'_>, term: u32, members: &[Identity]) {}

    pub(crate) fn started(&mut self, cx: &mut Context<'_>, tag: RootTag) {}
    pub(crate) fn finished(&mut self, cx: &mut Context<'_>, tag: RootTag) {}
    pub(crate) fn main_ended(&mut self, cx: &mut Context<'_>, code: i32) {}
    pub(crate) fn ended(&mut self, cx: &mut Context<'_>, from: Peer, code: i32) {}
}
