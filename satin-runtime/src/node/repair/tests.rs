//! Laws of the orphan table, without nodes.

use std::{
    collections::{BTreeSet, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use proptest::{collection::vec, prelude::*};

use super::{
    super::{Action, Identity, NodeId, Peer, View},
    Table,
    table::Read,
};
use crate::job::{Deadly, Fingerprint, JobId, JobName, OrphanNews};

const NODES: u64 = 3;

fn identity(number: u64) -> Identity {
    Identity {
        peer: NodeId(u128::from(number)).first_life(),
        name: format!("node-{number}").into(),
        site: "here".into(),
        addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 7000 + number as u16)),
        stamp: number,
        threads: 1,
    }
}

struct One {
    table: Table,
    view: View,
    actions: VecDeque<Action>,
    /// What its workers know.
    index: BTreeSet<JobName>,
    settled: bool,
}

impl One {
    fn all() -> Vec<One> {
        let view = View::of((0..NODES).map(|number| Arc::new(identity(number))));
        let one = |number| {
            let me = identity(number).peer;
            One {
                table: Table::new(me),
                view: view.seen_by(me),
                actions: VecDeque::new(),
                index: BTreeSet::new(),
                settled: true,
            }
        };
        (0..NODES).map(one).collect()
    }

    fn tell_workers(&mut self) {
        for action in self.actions.drain(..) {
            match action {
                Action::Orphan(OrphanNews::Here(name)) => {
                    assert!(self.index.insert(name), "told twice");
                }
                Action::Orphan(OrphanNews::Gone(name)) => {
                    assert!(self.index.remove(&name), "it was not there");
                }
                Action::Orphan(OrphanNews::Settled(settled)) => self.settled = settled,
                action => panic!("a table does not ask for {action:?}"),
            }
        }
    }

    fn known(&self) -> BTreeSet<JobName> {
        let orphans = self.table.orphans();
        orphans.map(|(name, ..)| name).collect()
    }
}

/// `from` tells `to` what it lacks, as two nodes do when they compare.
fn compare(all: &mut [One], from: usize, to: usize) {
    let theirs = all[to].table.versions();
    let (pages, _) = all[from].table.compare(&theirs, &all[from].view);
    let to = &mut all[to];
    for page in pages {
        let read = to
            .table
            .read(&mut to.actions, Duration::ZERO, &to.view, page);
        assert_ne!(read, Read::Gap);
    }
    to.tell_workers();
}

#[derive(Clone, Debug)]
enum Step {
    Announce(usize, u32, u64, bool),
    Withdraw(usize, u32, u64),
    /// A page of the first's own sheet, from that version on, reaches the second.
    Tell(usize, usize, u64),
    Compare(usize, usize),
    Close(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES as usize;
    prop_oneof![
        (node.clone(), 0..4u32, 0..2u64, any::<bool>())
            .prop_map(|(node, id, is, finished)| Step::Announce(node, id, is, finished)),
        (node.clone(), 0..4u32, 0..2u64).prop_map(|(node, id, is)| Step::Withdraw(node, id, is)),
        (node.clone(), node.clone(), 0..6u64).prop_map(|(a, b, after)| Step::Tell(a, b, after)),
        (node.clone(), node.clone()).prop_map(|(a, b)| Step::Compare(a, b)),
        (node, 0..4u32).prop_map(|(node, id)| Step::Close(node, id)),
    ]
}

proptest! {
    /// Whatever was told in whatever order, lost or twice: once everybody has compared, all copies are the same, and the
    /// workers of each node know what its table knows.
    #[test]
    fn copies_converge(steps in vec(step(), 0..60)) {
        let mut all = One::all();
        for step in steps {
            match step {
                Step::Announce(node, id, is, finished) => {
                    let One { table, actions, .. } = &mut all[node];
                    let name = JobName::new(JobId::ROOT.child(id), Fingerprint(is));
                    table.announce(actions, Duration::ZERO, &name, finished);
                }
                Step::Withdraw(node, id, is) => {
                    let One { table, actions, .. } = &mut all[node];
                    let name = JobName::new(JobId::ROOT.child(id), Fingerprint(is));
                    table.withdraw(actions, Duration::ZERO, &name);
                }
                Step::Close(node, id) => {
                    all[node].table.close(Duration::ZERO, &JobId::ROOT.child(id));
                }
                Step::Tell(from, to, after) => {
                    let me = all[from].table.me();
                    if let Some(page) = all[from].table.page(me, after) {
                        let to = &mut all[to];
                        to.table.read(&mut to.actions, Duration::ZERO, &to.view, page);
                    }
                }
                Step::Compare(from, to) => compare(&mut all, from, to),
            }
            all.iter_mut().for_each(One::tell_workers);
        }
        for _ in 0..2 {
            for from in 0..all.len() {
                for to in 0..all.len() {
                    compare(&mut all, from, to);
                }
            }
        }
        let known = all[0].known();
        for one in &all {
            prop_assert_eq!(&one.known(), &known);
            prop_assert_eq!(&one.index, &known);
        }
    }
}

#[test]
fn a_mark_stays_until_everybody_has_flushed() {
    let mut all = One::all();
    let dead = identity(2).peer;
    all.pop();
    for one in &mut all {
        one.view.remove(dead);
    }
    all[0]
        .table
        .life_ended(&mut VecDeque::new(), Duration::ZERO, dead, true);
    let settle = |one: &mut One| {
        one.table.refresh_settled(&mut one.actions, &one.view, true);
        one.tell_workers();
        one.settled
    };
    assert!(!settle(&mut all[0]), "node 1 has not spoken");
    all[1]
        .table
        .life_ended(&mut VecDeque::new(), Duration::ZERO, dead, true);
    compare(&mut all, 1, 0);
    assert!(settle(&mut all[0]));
}

#[test]
fn who_never_speaks_is_not_waited_for_for_ever() {
    let mut one = One::all().remove(0);
    let dead = identity(2).peer;
    one.view.remove(dead);
    one.table
        .life_ended(&mut VecDeque::new(), Duration::ZERO, dead, true);
    let due = one.table.next_timeout().expect("it waits");
    one.table.handle_timeout(&mut one.actions, due);
    one.table.refresh_settled(&mut one.actions, &one.view, true);
    one.tell_workers();
    assert!(one.settled);
    while let Some(due) = one.table.next_timeout() {
        one.table.handle_timeout(&mut one.actions, due);
    }
    assert!(one.table.is_blank(), "nothing is kept for ever");
}

#[test]
fn what_a_dead_node_had_is_not_looked_for_there() {
    let mut all = One::all();
    let [name, other] = [1, 2].map(|is| JobName::new(JobId::ROOT.child(0), Fingerprint(is)));
    let One { table, actions, .. } = &mut all[2];
    table.announce(actions, Duration::ZERO, &name, true);
    compare(&mut all, 2, 0);
    let one = &mut all[0];
    let dead = identity(2).peer;
    assert_eq!(one.table.owner(&name, &one.view), Some(dead));
    assert_eq!(one.table.owner(&other, &one.view), None);
    one.view.remove(dead);
    one.table
        .life_ended(&mut one.actions, Duration::ZERO, dead, true);
    one.tell_workers();
    assert!(one.index.is_empty());
    assert_eq!(one.table.owner(&name, &one.view), None);
}

/// A job, and a node that is not there any more.
fn poison() -> (JobName, Peer) {
    let id = JobId::ROOT.child(0).child(3);
    (JobName::new(id, Fingerprint(7)), identity(9).peer)
}

#[test]
fn whom_a_job_took_down_is_known_when_its_origin_is_gone() {
    let (name, gone) = poison();
    let other = JobName::new(name.id.clone(), Fingerprint(8));
    for (died, victims) in [(true, 2), (false, 1)] {
        let mut all = One::all();
        let me = all[0].table.me();
        all[0].table.blame(Duration::ZERO, &name, gone);
        // And it is about to run the job itself.
        all[0].table.blame(Duration::ZERO, &name, me);
        compare(&mut all, 0, 1);
        let one = &mut all[1];
        assert_eq!(one.table.victims(&name, &one.view), 1);
        one.view.remove(me);
        one.table
            .life_ended(&mut one.actions, Duration::ZERO, me, died);
        assert_eq!(one.table.victims(&name, &one.view), victims);
        assert_eq!(one.table.victims(&other, &one.view), 0);
        one.table.acquit(Duration::ZERO, &JobId::ROOT.child(0));
        assert_eq!(one.table.victims(&name, &one.view), 0);
    }
}

#[test]
fn who_comes_back_was_not_taken_down() {
    let (name, _) = poison();
    let mut all = One::all();
    let one = &mut all[0];
    let first = identity(2).peer;
    one.view.remove(first);
    one.table.blame(Duration::ZERO, &name, first);
    assert_eq!(one.table.victims(&name, &one.view), 1);
    let mut again = identity(2);
    again.peer.generation = 1;
    let second = again.peer;
    one.view.insert(Arc::new(again));
    assert_eq!(one.table.victims(&name, &one.view), 0);
    one.table.came_back(Duration::ZERO, second);
    // If it dies now, that was another job.
    one.view.remove(second);
    assert_eq!(one.table.victims(&name, &one.view), 0);
}

#[test]
fn workers_are_told_whose_jobs_are_for_others_and_whose_for_nobody() {
    let (name, gone) = poison();
    let mut all = One::all();
    let one = &mut all[0];
    let told = |one: &mut One| {
        one.table.tell_deadly(&mut one.actions, &one.view, 2);
        let told = one.actions.drain(..).map(|action| match action {
            Action::Orphan(OrphanNews::Deadly(told, deadly)) => {
                assert_eq!(told, name);
                deadly
            }
            action => panic!("a table does not ask for {action:?}"),
        });
        told.collect::<Vec<Deadly>>()
    };
    assert_eq!(told(one), []);
    one.table.blame(Duration::ZERO, &name, gone);
    assert_eq!(told(one), [Deadly::Held(1)]);
    assert_eq!(told(one), []);
    one.table.blame(Duration::ZERO, &name, identity(8).peer);
    let [Deadly::GivenUp(story)] = &told(one)[..] else {
        panic!("it has taken down two");
    };
    assert!(story.contains("2 nodes died"), "{story}");
    one.table.acquit(Duration::ZERO, &name.id);
    assert_eq!(told(one), [Deadly::Not]);
}
