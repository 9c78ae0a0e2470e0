//! The root: who is master, which root jobs are under way, and when the pool ends.
//!
//! The master is the founder: the live node with the smallest (stamp, id). When it is gone, so is the pool: choosing
//! another is all that is missing in `Roots::sever`.

use std::time::Duration;

use super::{Action, Context, Identity, Message, Notice, Peer, View};
use crate::job::RootTag;

#[cfg(test)]
mod tests;

/// Root jobs that are over are told to the others together: after so long at the latest, longer in large pools (see
/// [`told_after`]).
const TELL_AFTER: Duration = Duration::from_millis(50);
/// So many in one message.
const TELL_MOST: usize = 4096;

/// The master and its root jobs.
pub struct Roots {
    master: Option<Identity>,
    /// Counts the masters; the founder's is 0.
    term: u32,
    /// The highest stamp that this node has issued.
    issued: u64,
    /// Root jobs may start.
    released: bool,
    /// The pool has ended.
    code: Option<i32>,
    /// Over, and not told to the others yet.
    over: Vec<RootTag>,
    tell: Option<Duration>,
}

/// The master says nothing more often than a pool of that size can bear.
fn told_after(members: usize) -> Duration {
    TELL_AFTER * (1 + members as u32 / 64)
}

impl Roots {
    pub(crate) fn new(view: &View) -> Roots {
        let in_already = view
            .members()
            .filter(|member| member.stamp != Identity::NOT_YET);
        Roots {
            master: in_already
                .min_by_key(|member| (member.stamp, member.peer))
                .cloned(),
            term: 0,
            issued: 0,
            released: false,
            code: None,
            over: Vec::new(),
            tell: None,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.tell
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        if self.tell.is_some_and(|tell| tell <= cx.now) {
            self.tell_over(cx);
        }
    }

    /// The master of the day, in its current life if it is this node.
    pub(crate) fn master<'v>(&'v self, view: &'v View) -> Option<&'v Identity> {
        let master = self.master.as_ref()?;
        let me = view.me();
        Some(if master.peer.id == me.peer.id {
            me
        } else {
            master
        })
    }

    pub(crate) fn is_master(&self, view: &View) -> bool {
        self.master(view)
            .is_some_and(|master| master.peer == view.me().peer)
    }

    pub(crate) fn term(&self) -> u32 {
        self.term
    }

    /// The exit code of the pool, once it has ended.
    pub(crate) fn code(&self) -> Option<i32> {
        self.code
    }

    /// The next place in the order of joining.
    pub(crate) fn issue_stamp(&mut self, view: &View) -> u64 {
        let stamps = view.members().map(|member| member.stamp);
        let taken = stamps.filter(|stamp| *stamp != Identity::NOT_YET).max();
        self.issued = self.issued.max(taken.unwrap_or(0)) + 1;
        self.issued
    }

    pub(crate) fn founded(&mut self, me: &Identity) {
        self.master = Some(me.clone());
    }

    pub(crate) fn welcome(&mut self, term: u32, members: &[Identity]) {
        self.master = members.first().cloned();
        self.term = term;
    }

    /// This node is in, or in its next life.
    pub(crate) fn come_in(&mut self, cx: &mut Context<'_>) {
        let Some(master) = self.master(cx.view).cloned() else {
            return;
        };
        let me = cx.view.me().clone();
        cx.actions.push_back(Action::Joined {
            me,
            master: master.clone(),
        });
        cx.actions.push_back(Action::Tell(Notice::Master(master)));
        self.release(cx);
    }

    pub(crate) fn joined(&mut self, cx: &mut Context<'_>) {
        self.release(cx);
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        let enough = cx.view.len() >= cx.config.nodes as usize;
        if enough && !self.released && self.is_master(cx.view) {
            self.released = true;
            cx.actions.push_back(Action::StartRoots);
        }
    }

    /// A node is gone. Without its master a pool is over.
    pub(crate) fn sever(&mut self, cx: &mut Context<'_>, peer: Peer) {
        let Some(master) = self.master.as_ref().filter(|master| master.peer == peer) else {
            return;
        };
        if self.code.is_none() && peer.id != cx.view.me().peer.id {
            let (name, site) = (&master.name, &master.site);
            let text = format!(
                "the master, {name} at {site}, is gone, and with it the run: start the pool again",
            );
            self.code = Some(1);
            cx.actions.push_back(Action::Tell(Notice::Failed(text)));
            cx.actions.push_back(Action::End(1));
        }
    }

    pub(crate) fn finished(&mut self, cx: &mut Context<'_>, tag: RootTag) {
        self.over.push(tag);
        let after = told_after(cx.view.len());
        self.tell.get_or_insert(cx.now + after);
        if self.over.len() >= TELL_MOST {
            self.tell_over(cx);
        }
    }

    /// A master that is about to leave chooses its successor. False if it is not master.
    pub(crate) fn abdicate(&mut self, cx: &mut Context<'_>) -> bool {
        let _ = cx;
        false
    }

    fn tell_over(&mut self, cx: &mut Context<'_>) {
        self.tell = None;
        let over = std::mem::take(&mut self.over);
        if !over.is_empty() {
            to_others(cx, &Message::RootsDone(over));
        }
    }

    /// `main` is over, here: so is the pool.
    pub(crate) fn main_ended(&mut self, cx: &mut Context<'_>, code: i32) {
        if self.code.is_none() {
            self.code = Some(code);
            to_others(cx, &Message::Ended(code));
            cx.actions.push_back(Action::End(code));
        }
    }

    /// The master says that the pool is over. (Its code is for whoever called the program there; here all went well.)
    pub(crate) fn ended(&mut self, cx: &mut Context<'_>, from: Peer, code: i32) {
        let entitled = self
            .master
            .as_ref()
            .is_none_or(|master| master.peer == from);
        if entitled && self.code.is_none() {
            self.code = Some(code);
            cx.actions.push_back(Action::End(0));
        }
    }
}

fn to_others(cx: &mut Context<'_>, message: &Message) {
    let me = cx.view.me().peer;
    for member in cx.view.members().filter(|member| member.peer != me) {
        let send = Action::Send(member.peer, message.clone());
        cx.actions.push_back(send);
    }
}
