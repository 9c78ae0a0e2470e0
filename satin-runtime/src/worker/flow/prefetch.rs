//! What is made is shown to the tasks that wait for it; and nodes that will run some of these are told what they may fetch already.
//!
//! A task that still waits is likely to run on the node that keeps what it changes, or else what it reads first. What else it needs can be on
//! its way there before the last of it has been made: then the task begins as soon as that is.

use std::sync::{Arc, atomic::Ordering};

use super::{
    core::FlowCore,
    task::{TaskHead, TaskRef, input_is_there, keeper_of_waiting},
    version::Version,
    waiters::Waiting,
};
use crate::{
    job::{
        RootName,
        kinds::Travels,
        loans::{self, Lendable},
    },
    worker::{pool::Pool, thread::quietly},
};

/// So many data are written, or wait to be, so that others may fetch them before they are needed. Too few: these are fetched when they are needed. Too
/// many: thieves wait, as the clerk writes their jobs after that; and data that a task is about to change are copied.
const MOST_WRITTEN: usize = 2;

/// Where tasks go that have all that they have waited for.
pub struct Show<'s> {
    /// None where tasks run where they stand: nobody waits there.
    to: Option<Ready<'s>>,
}

struct Ready<'s> {
    pool: &'s Pool,
    core: &'s FlowCore,
    show: &'s mut dyn FnMut(TaskRef),
}

impl<'s> Show<'s> {
    pub(super) fn of(
        pool: &'s Pool,
        core: &'s FlowCore,
        show: &'s mut dyn FnMut(TaskRef),
    ) -> Show<'s> {
        Show {
            to: Some(Ready { pool, core, show }),
        }
    }

    /// Nobody waits.
    pub(super) fn nobody() -> Show<'s> {
        Show { to: None }
    }

    /// The version has been made here, or never will be.
    pub(super) fn made<T: Travels + Send + Sync>(&mut self, version: Arc<Version<T>>) {
        let waiting = version.waiters.close();
        match &self.to {
            Some(to) if to.core.has_away() && version.look().is_some() => {
                self.waiting(version, None, waiting);
            }
            // The usual case, and the one that is to be fast.
            _ => {
                quietly(|| drop(version));
                self.show(waiting);
            }
        }
    }

    /// The version has been made, and is kept by that node, or here.
    pub(super) fn waiting(
        &mut self,
        version: Arc<dyn Lendable>,
        at: Option<u128>,
        waiting: Waiting<TaskHead>,
    ) {
        if let Some(to) = &self.to {
            to.prefetch(version, at, &waiting);
        }
        self.show(waiting);
    }

    fn show(&mut self, waiting: Waiting<TaskHead>) {
        waiting.show(|task| {
            // SAFETY: each stack shows a task once.
            let ready = unsafe { input_is_there(task) };
            match (&mut self.to, ready) {
                (Some(to), Some(ready)) => (to.show)(ready),
                (Some(_), None) => {}
                (None, _) => unreachable!("nobody waits"),
            }
        });
    }
}

impl Ready<'_> {
    /// Tells the nodes where tasks are likely to run that wait for the version and for others, that they may fetch it.
    fn prefetch(&self, version: Arc<dyn Lendable>, at: Option<u128>, waiting: &Waiting<TaskHead>) {
        let mut nodes = Vec::new();
        waiting.look(|task| {
            // SAFETY: the version has not been shown.
            let keeper = unsafe { keeper_of_waiting(task) };
            nodes.extend(keeper.filter(|keeper| Some(*keeper) != at));
        });
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| self.pool.boards.may_ask(*node));
        let written = &self.pool.boards.written;
        if nodes.is_empty() {
            return quietly(|| drop(version));
        }
        let root = self.core.root;
        if at.is_some() {
            tell(self.pool, &*version, at, &nodes, root);
            return quietly(|| drop(version));
        }
        // To find out its name the version is written, and that is code of the user.
        if written.fetch_add(1, Ordering::Relaxed) < MOST_WRITTEN {
            let pool = self.pool.boards.pool();
            return self.pool.clerk.run(move || {
                let Some(pool) = pool.upgrade() else { return };
                quietly(|| {
                    tell(&pool, &*version, None, &nodes, root);
                    drop(version);
                });
                pool.boards.written.fetch_sub(1, Ordering::Relaxed);
            });
        }
        written.fetch_sub(1, Ordering::Relaxed);
        quietly(|| drop(version));
    }
}

fn tell(pool: &Pool, version: &dyn Lendable, at: Option<u128>, nodes: &[u128], root: RootName) {
    if let Some(value) = loans::name_ahead(version) {
        for to in nodes {
            pool.tell(|outside| outside.prefetch(*to, value, root, at));
        }
    }
}
