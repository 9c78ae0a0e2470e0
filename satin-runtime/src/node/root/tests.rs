//! Stories of masters, and of how pools end.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::super::{
    Action, Event, Identity, Message, MessageKind, Node, NodeId, Notice, Peer, ProtocolConfig,
    View,
    cluster::{Cluster, Path, Program, Shape, Smallest, address, mix},
};
use crate::job::{Fingerprint, RootName, RootRun};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn pool(nodes: u32, wanted: u32) -> Cluster {
    let mut cluster = Cluster::new(u64::from(nodes));
    let config = ProtocolConfig {
        nodes: wanted,
        ..ProtocolConfig::default()
    };
    cluster.boot(&config, "a", 1);
    for _ in 1..nodes {
        cluster.join(&config, "a", 1, 0);
    }
    cluster
}

/// The nodes of these sites have come in, one after another; the first is master.
fn grown(seed: u64, sites: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(seed);
    let config = ProtocolConfig::default();
    for (index, site) in sites.iter().enumerate() {
        match index {
            0 => cluster.boot(&config, site, 1),
            _ => cluster.join(&config, site, 1, 0),
        };
        // Their stamps are in the order of their numbers.
        cluster.run_for(ms(50));
    }
    assert!(cluster.run_until(secs(5), agree));
    cluster.run_for(secs(1) + ms(37 * (seed % 40)));
    cluster
}

/// The living nodes that are in.
fn living(cluster: &Cluster) -> impl Iterator<Item = u32> {
    let is_in = |node: &u32| cluster.is_alive(*node) && cluster.joined(*node).is_some();
    (0..cluster.nodes()).filter(is_in)
}

/// Does every living node see exactly the living nodes?
fn agree(cluster: &Cluster) -> bool {
    let living = || living(cluster);
    let peers: BTreeSet<_> = living().map(|node| cluster.peer(node)).collect();
    living().all(|node| {
        let members = cluster.node(node).view().members();
        members.map(|member| member.peer).eq(peers.iter().copied())
    })
}

#[test]
fn main_ends_and_so_does_the_pool() {
    let mut cluster = pool(4, 4);
    let leaf = Program::new(Shape::Flat { jobs: 3 }, Duration::from_millis(5));
    let program = cluster.program(leaf);
    cluster.set_main(0, &[program, program], 7);
    let ended = |cluster: &Cluster| (0..4).all(|node| cluster.ended(node).is_some());
    assert!(cluster.run_until(secs(5), ended));
    cluster.check(0, &[program, program]);
    let codes: Vec<_> = (0..4).map(|node| cluster.ended(node)).collect();
    assert_eq!(codes, [Some(7), Some(0), Some(0), Some(0)]);
    for node in 0..4 {
        let bad = |told: &Notice| matches!(told, Notice::Dead(_) | Notice::Failed(_));
        assert!(!cluster.notices(node).iter().any(bad), "nobody died");
    }
}

#[test]
fn root_jobs_wait_until_enough_nodes_are_in() {
    let mut cluster = pool(3, 4);
    let leaf = Program::new(Shape::Flat { jobs: 1 }, Duration::from_millis(1));
    let program = cluster.program(leaf);
    cluster.set_main(0, &[program], 0);
    cluster.run_for(secs(25));
    assert_eq!(cluster.ended(0), None);
    // People who wonder are told.
    let said =
        |notice: &Notice| matches!(notice, Notice::Warning(text) if text.contains("SATIN_NODES"));
    let told = cluster.notices(0).iter().filter(|notice| said(notice));
    assert_eq!(told.count(), 1);
    let config = ProtocolConfig::default();
    cluster.join(&config, "a", 1, 2);
    assert!(cluster.run_until(secs(2), |cluster| cluster.ended(0) == Some(0)));
}

/// Those who were to run `main` from the start, and of which term.
fn elected(cluster: &Cluster) -> Vec<(u32, u32)> {
    let of = |node| cluster.mains(node).iter().map(move |term| (node, *term));
    (0..cluster.nodes()).flat_map(of).collect()
}

/// Does every living node follow that one?
fn follow(cluster: &Cluster, master: u32) -> bool {
    let master = cluster.peer(master);
    living(cluster).all(|node| cluster.node(node).view().master() == master)
}

#[test]
fn a_master_that_is_killed_is_replaced_by_the_eldest() {
    for seed in 0..20 {
        let mut cluster = pool(5, 5);
        cluster.run_for(secs(1) + Duration::from_millis(61 * seed));
        cluster.crash(0);
        let elect = |cluster: &Cluster| !elected(cluster).is_empty();
        assert!(cluster.run_until(secs(5), elect), "seed {seed}");
        cluster.run_for(secs(20));
        assert_eq!(elected(&cluster), [(1, 1)], "seed {seed}");
        assert!(follow(&cluster, 1));
        assert!((1..5).all(|node| cluster.ended(node).is_none()));
    }
}

#[test]
fn a_master_that_leaves_is_replaced_at_once() {
    let mut cluster = pool(3, 3);
    cluster.run_for(secs(1));
    cluster.leave(0);
    let elect = |cluster: &Cluster| elected(cluster) == [(1, 1)];
    assert!(cluster.run_until(secs(2), elect));
    cluster.run_for(secs(20));
    assert_eq!(elected(&cluster), [(1, 1)]);
    assert!(follow(&cluster, 1));
}

#[test]
fn many_short_roots_are_told_together() {
    let mut cluster = pool(4, 4);
    let leaf = Program::new(Shape::Flat { jobs: 0 }, Duration::from_micros(100));
    let program = cluster.program(leaf);
    cluster.set_main(0, &[program; 1000], 0);
    assert!(cluster.run_until(secs(20), |cluster| cluster.ended(0).is_some()));
    let told = cluster.traffic.of(MessageKind::RootsDone).all();
    assert!(told <= 60, "{told} messages");
}

#[test]
fn a_master_that_falls_silent_alone_is_replaced_after_a_moment() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "a", "b", "b", "b"]);
        cluster.isolate(0);
        let elect = |cluster: &Cluster| !elected(cluster).is_empty();
        assert!(cluster.run_until(secs(10), elect), "seed {seed}");
        assert_eq!(elected(&cluster), [(1, 1)], "seed {seed}");
    }
}

#[test]
fn the_two_eldest_are_killed_at_once() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "b", "a", "b", "a"]);
        cluster.crash(0);
        cluster.crash(1);
        let elect = |cluster: &Cluster| !elected(cluster).is_empty();
        assert!(cluster.run_until(secs(5), elect), "seed {seed}");
        cluster.run_for(secs(20));
        assert_eq!(elected(&cluster), [(2, 1)], "seed {seed}");
        assert!(follow(&cluster, 2));
    }
}

#[test]
fn of_a_pool_of_two_one_is_left() {
    let mut cluster = grown(1, &["a", "b"]);
    cluster.crash(0);
    assert!(cluster.run_until(secs(5), |cluster| elected(cluster) == [(1, 1)]));
}

#[test]
fn the_elected_dies_before_it_says_so_or_just_after() {
    let sites = ["a", "a", "b", "b", "b"];
    for seed in 0..20 {
        let mut cluster = grown(seed, &sites);
        cluster.crash(0);
        let crash = cluster.now();
        let takes_over = |cluster: &Cluster| {
            let view = cluster.node(1).view();
            view.master() == view.me().peer
        };
        assert!(cluster.run_until(secs(5), takes_over), "seed {seed}");
        let took = cluster.now() - crash;
        for (early, late) in [
            (ms(1), ms(0)),
            (ms(0), ms(0)),
            (ms(0), ms(4)),
            (ms(0), ms(900)),
        ] {
            let mut cluster = grown(seed, &sites);
            cluster.crash(0);
            cluster.run_for(took - early + late);
            cluster.crash(1);
            let next = |cluster: &Cluster| !cluster.mains(2).is_empty();
            assert!(cluster.run_until(secs(5), next), "seed {seed}");
            cluster.run_for(secs(20));
            assert_eq!(cluster.mains(2).len(), 1, "seed {seed}");
            assert!(follow(&cluster, 2));
            assert!(cluster.mains(3).is_empty() && cluster.mains(4).is_empty());
        }
    }
}

#[test]
fn a_frozen_master_yields_when_it_thaws() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "b", "b"]);
        cluster.freeze(0);
        let elect = |cluster: &Cluster| elected(cluster) == [(1, 1)];
        assert!(cluster.run_until(secs(10), elect), "seed {seed}");
        cluster.run_for(secs(5 + seed));
        cluster.thaw(0);
        let settled = |cluster: &Cluster| cluster.yields(0) == 1 && agree(cluster);
        assert!(cluster.run_until(secs(5), settled), "seed {seed}");
        cluster.run_for(secs(20));
        assert_eq!(elected(&cluster), [(1, 1)], "seed {seed}");
        assert!(follow(&cluster, 1));
        assert_eq!(cluster.yields(0), 1);
        assert!((0..4).all(|node| cluster.ended(node).is_none()));
    }
}

#[test]
fn a_master_that_only_paused_stays() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "b", "b"]);
        cluster.freeze(0);
        cluster.run_for(ms(2500));
        cluster.thaw(0);
        cluster.run_for(secs(40));
        assert!(elected(&cluster).is_empty() && cluster.yields(0) == 0);
        assert!(follow(&cluster, 0));
    }
}

#[test]
fn a_master_that_was_declared_dead_by_mistake_stays() {
    let mut cluster = grown(2, &["a", "a", "b"]);
    let master = cluster.peer(0);
    let side = cluster.node(1).side();
    let dead = Message::DeclaredDead { peer: master, side };
    cluster.forge(0, cluster.peer(1), dead);
    assert_eq!(cluster.peer(0).generation, 1);
    cluster.run_for(secs(40));
    assert!(elected(&cluster).is_empty() && cluster.yields(0) == 0);
    assert!(agree(&cluster) && follow(&cluster, 0));
}

#[test]
fn who_joins_while_there_is_no_master_gets_in() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "b", "b"]);
        cluster.crash(0);
        cluster.run_for(ms(150 * (seed % 20)));
        let joiner = cluster.join(&ProtocolConfig::default(), "b", 1, 2 + seed as u32 % 2);
        let through_the_elected = cluster.join(&ProtocolConfig::default(), "b", 1, 1);
        let all_in = |cluster: &Cluster| {
            cluster.joined(joiner).is_some() && cluster.joined(through_the_elected).is_some()
        };
        assert!(cluster.run_until(secs(10), all_in), "seed {seed}");
        assert!(cluster.run_until(secs(10), agree), "seed {seed}");
        cluster.run_for(secs(10));
        assert_eq!(elected(&cluster), [(1, 1)], "seed {seed}");
        assert!(follow(&cluster, 1), "seed {seed}");
        let stamps: BTreeSet<u64> = (1..6)
            .map(|node| cluster.joined(node).unwrap().stamp)
            .collect();
        assert_eq!(stamps.len(), 5, "each has a stamp of its own");
        let stamp = cluster.joined(through_the_elected).unwrap().stamp;
        assert!(stamp > 1 << 32, "which the first master cannot have given");
    }
}

/// Only the master lets others in: if that is who has to be let in, somebody else must say so.
#[test]
fn who_is_named_master_before_it_hears_that_it_is_in_is_told_by_others() {
    let mut cluster = grown(1, &["a"]);
    let far = cluster.join(&ProtocolConfig::default(), "b", 1, 0);
    cluster.set_path("a", "b", Path::new(ms(200)));
    let sees =
        |node: u32, peer: Peer| move |cluster: &Cluster| cluster.node(node).view().is_alive(peer);
    let peer = cluster.peer(far);
    assert!(cluster.run_until(secs(5), sees(0, peer)));
    let near = cluster.join(&ProtocolConfig::default(), "a", 1, 0);
    assert!(cluster.run_until(ms(90), sees(near, peer)));
    cluster.break_link(0, far, Duration::ZERO);
    assert!(cluster.joined(far).is_none(), "its welcome is lost");
    cluster.set_main_everywhere(&[], None);
    cluster.tell(0, Event::Drain(ms(1)));
    let runs = |cluster: &Cluster| cluster.joined(far).is_some() && !cluster.mains(far).is_empty();
    assert!(cluster.run_until(secs(30), runs));
    assert!(agree(&cluster) && follow(&cluster, far));
}

#[test]
fn a_partition_that_does_not_last_changes_no_master() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "a", "b", "b", "b"]);
        cluster.partition("a", "b");
        cluster.run_for(secs(8 + seed));
        assert_eq!(cluster.node(4).view().len(), 3, "seed {seed}");
        cluster.heal();
        assert!(cluster.run_until(secs(20), agree), "seed {seed}");
        cluster.run_for(secs(40));
        assert!(elected(&cluster).is_empty(), "seed {seed}");
        assert_eq!(cluster.yields(0), 0);
        assert!(agree(&cluster) && follow(&cluster, 0), "seed {seed}");
    }
}

#[test]
fn a_partition_that_lasts_makes_two_masters_and_one_when_it_ends() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "a", "b", "b", "b"]);
        cluster.partition("a", "b");
        cluster.run_for(secs(30));
        assert!(elected(&cluster).is_empty(), "seed {seed}: not before 30 s");
        cluster.run_for(secs(15 + 4 * seed));
        assert_eq!(elected(&cluster), [(3, 1)], "seed {seed}");
        cluster.heal();
        let one = |cluster: &Cluster| agree(cluster) && follow(cluster, 0);
        assert!(cluster.run_until(secs(35), one), "seed {seed}");
        cluster.run_for(secs(40));
        assert_eq!(elected(&cluster), [(3, 1)], "seed {seed}");
        // The others were half of the nodes: their master led a branch, and comes over with them.
        assert_eq!((cluster.yields(0), cluster.yields(3)), (0, 1));
        assert!(one(&cluster), "seed {seed}");
        let lives = |node: u32| cluster.peer(node).generation;
        assert!((0..3).all(|node| lives(node) == 0), "seed {seed}");
        assert!((3..6).all(|node| lives(node) == 1), "seed {seed}");
        // Each is told to people once, by the nodes that it happens to.
        for node in 0..6 {
            let told = |what: Notice| {
                cluster
                    .notices(node)
                    .iter()
                    .filter(|told| **told == what)
                    .count()
            };
            let [off, branch, over] = [Notice::CutOff, Notice::Branch, Notice::ComesOver].map(told);
            let (is_other, leads) = (usize::from(node >= 3), usize::from(node == 3));
            assert_eq!(
                (off, branch, over),
                (is_other, leads, is_other),
                "seed {seed}, node {node}"
            );
        }
    }
}

#[test]
fn a_site_that_is_lost_with_the_master_is_waited_for() {
    for seed in 0..10 {
        let mut cluster = grown(seed, &["a", "a", "b", "b", "c", "c", "c"]);
        cluster.partition("a", "b");
        cluster.partition("a", "c");
        cluster.run_for(secs(30));
        assert!(elected(&cluster).is_empty(), "seed {seed}");
        cluster.run_for(secs(15));
        assert_eq!(elected(&cluster), [(2, 1)], "seed {seed}");
    }
}

#[test]
fn who_knows_that_the_pool_has_ended_elects_nobody() {
    for seed in 0..10 {
        let mut cluster = grown(seed, &["a", "a", "b", "b", "b"]);
        // The master's word reaches one node only, which has no connection to one other.
        let master = cluster.peer(0);
        let (term, code) = (0, 0);
        cluster.crash(0);
        let ended = Message::Ended {
            term,
            master: master.id,
            code,
        };
        cluster.forge(1, master, ended);
        let all = |cluster: &Cluster| (1..5).all(|node| cluster.ended(node) == Some(0));
        assert!(cluster.run_until(secs(5), all), "seed {seed}");
        assert!(elected(&cluster).is_empty());
    }
}

#[test]
fn a_draining_master_has_its_successor_elected_first() {
    let mut cluster = grown(3, &["a", "a", "b"]);
    cluster.tell(1, Event::Drain(secs(3600)));
    cluster.run_for(ms(100));
    let gone = |told: &Notice| matches!(told, Notice::Draining(_));
    cluster.tell(0, Event::Drain(secs(5)));
    assert_eq!(cluster.yields(0), 1);
    let next = |cluster: &Cluster| elected(cluster).last() == Some(&(2, 1));
    assert!(cluster.run_until(secs(2), next), "the other one drains too");
    assert!(cluster.notices(2).iter().any(gone));
}

#[test]
fn a_joiner_knows_who_is_about_to_leave() {
    let mut cluster = grown(4, &["a", "a", "a"]);
    cluster.tell(1, Event::Drain(secs(3600)));
    let joiner = cluster.join(&ProtocolConfig::default(), "a", 1, 2);
    let peer = cluster.peer(1);
    cluster.run_for(ms(300));
    for node in [0, 2, joiner] {
        if cluster.is_alive(1) {
            assert!(cluster.node(node).view().is_draining(peer), "{node}");
        }
    }
}

#[test]
fn a_master_that_never_appears_is_replaced() {
    let mut cluster = grown(6, &["a", "a", "b"]);
    let mut master = cluster.joined(0).unwrap().clone();
    master.peer.id = NodeId(77 << 96);
    cluster.forge(
        1,
        cluster.peer(2),
        Message::Master {
            term: 7,
            branches: 0,
            master,
        },
    );
    cluster.run_for(secs(1));
    assert_eq!(cluster.yields(0), 1, "everybody follows the better one");
    cluster.run_for(secs(5));
    assert!(elected(&cluster).is_empty(), "it is given time to appear");
    let elect = |cluster: &Cluster| elected(cluster) == [(0, 8)];
    assert!(cluster.run_until(secs(15), elect));
    cluster.run_for(secs(60));
    assert!(elect(&cluster) && follow(&cluster, 0));
}

#[test]
fn if_all_others_are_about_to_leave_the_run_is_lost_with_the_master() {
    let mut cluster = grown(7, &["a", "a"]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 9 }, secs(60)));
    cluster.start_root(0, program);
    cluster.run_for(secs(1));
    cluster.tell(1, Event::Drain(secs(3600)));
    cluster.run_for(secs(1));
    assert_eq!(cluster.ended(1), None, "it finishes its job");
    cluster.crash(0);
    assert!(cluster.run_until(secs(5), |cluster| cluster.ended(1) == Some(1)));
    let failed = |told: &Notice| matches!(told, Notice::Failed(text) if text.contains("a-0"));
    assert!(cluster.notices(1).iter().any(failed));
}

#[test]
fn half_of_the_nodes_that_fall_silent_with_the_master_are_waited_for() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "a", "a", "a", "a"]);
        (0..3).for_each(|node| cluster.isolate(node));
        cluster.run_for(secs(30));
        assert_eq!(cluster.node(4).view().len(), 3, "seed {seed}");
        assert!(elected(&cluster).is_empty(), "seed {seed}");
        let elect = |cluster: &Cluster| !cluster.mains(3).is_empty();
        assert!(cluster.run_until(secs(10), elect), "seed {seed}");
    }
}

#[test]
fn who_slept_through_an_election_does_not_elect_itself() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "a", "a"]);
        let master = cluster.peer(0);
        cluster.crash(0);
        let noticed = |cluster: &Cluster| !cluster.node(2).view().is_alive(master);
        assert!(cluster.run_until(secs(5), noticed));
        cluster.freeze(2);
        cluster.run_for(secs(120));
        cluster.thaw(2);
        cluster.run_for(secs(10));
        let itself = |told: &Notice| matches!(told, Notice::Master(who) if &*who.name == "a-2");
        assert!(!cluster.notices(2).iter().any(itself), "seed {seed}");
        assert!(agree(&cluster) && follow(&cluster, 1), "seed {seed}");
    }
}

#[test]
fn who_names_a_worse_master_is_told_the_better() {
    let mut cluster = grown(8, &["a", "a", "a"]);
    let master = cluster.joined(0).unwrap().clone();
    cluster.leave(0);
    assert!(cluster.run_until(secs(2), |cluster| elected(cluster) == [(1, 1)]));
    cluster.run_for(secs(1));
    let before = cluster.traffic.of(MessageKind::Master).all();
    let from = cluster.peer(1);
    cluster.forge(
        2,
        from,
        Message::Master {
            term: 0,
            branches: 0,
            master,
        },
    );
    assert_eq!(cluster.traffic.of(MessageKind::Master).all(), before + 1);
    assert!(follow(&cluster, 1));
}

#[test]
fn in_a_large_pool_the_news_costs_few_messages() {
    let mut cluster = Cluster::new(5);
    cluster.form(&ProtocolConfig::default(), &[("a", 100), ("b", 100)], 1);
    cluster.run_for(secs(2));
    cluster.crash(0);
    assert!(cluster.run_until(secs(10), |cluster| elected(cluster) == [(1, 1)]));
    cluster.run_for(secs(5));
    assert!(follow(&cluster, 1));
    let told = cluster.traffic.of(MessageKind::Master).all();
    assert!((199..5 * 199).contains(&told), "{told} messages");
    assert_eq!(elected(&cluster), [(1, 1)]);
}

#[test]
fn whatever_happens_there_is_one_master_in_the_end() {
    for seed in 0..40 {
        let mut cluster = grown(seed, &["a", "a", "a", "b", "b", "b", "c", "c"]);
        let sites = ["a", "b", "c"];
        let mut asleep = BTreeSet::new();
        for round in 0..30 {
            let dice = mix(seed * 1000 + round);
            cluster.run_for(ms(dice % 3000));
            let living: Vec<u32> = living(&cluster).collect();
            let node = living[(dice >> 16) as usize % living.len()];
            let (one, other) = (
                sites[(dice >> 20) as usize % 3],
                sites[(dice >> 24) as usize % 3],
            );
            match (dice >> 32) % 8 {
                0 if living.len() > 3 => cluster.crash(node),
                1 if living.len() > 3 => cluster.leave(node),
                2 if asleep.insert(node) => cluster.freeze(node),
                3 | 4 => {
                    if let Some(node) = asleep.pop_first() {
                        cluster.thaw(node);
                    }
                }
                5 if cluster.nodes() < 20 => {
                    cluster.join(&ProtocolConfig::default(), one, 1, node);
                }
                6 if one != other => cluster.partition(one, other),
                7 => cluster.heal(),
                _ => {}
            }
        }
        while let Some(node) = asleep.pop_first() {
            cluster.thaw(node);
        }
        cluster.heal();
        let one =
            |cluster: &Cluster| agree(cluster) && living(cluster).any(|node| follow(cluster, node));
        assert!(cluster.run_until(secs(90), one), "seed {seed}");
        cluster.run_for(secs(60));
        assert!(one(&cluster), "seed {seed}");
        let before: u32 = (0..cluster.nodes()).map(|node| cluster.yields(node)).sum();
        let mains = elected(&cluster).len();
        cluster.run_for(secs(60));
        let after: u32 = (0..cluster.nodes()).map(|node| cluster.yields(node)).sum();
        assert_eq!(
            (before, mains),
            (after, elected(&cluster).len()),
            "and rest is"
        );
    }
}

#[test]
fn of_a_pool_of_two_one_that_hears_nothing_waits() {
    for sites in [["a", "a"], ["a", "b"]] {
        let mut cluster = grown(1, &sites);
        cluster.isolate(0);
        cluster.run_for(secs(30));
        assert_eq!(cluster.node(1).view().len(), 1);
        assert!(
            elected(&cluster).is_empty(),
            "{sites:?}: it may be a partition"
        );
        let elect = |cluster: &Cluster| elected(cluster) == [(1, 1)];
        assert!(cluster.run_until(secs(15), elect), "{sites:?}");
    }
}

#[test]
fn the_only_node_of_the_masters_site_that_falls_silent_is_waited_for() {
    for seed in 0..10 {
        let mut cluster = grown(seed, &["a", "b", "b", "b", "c", "c"]);
        cluster.isolate(0);
        cluster.run_for(secs(30));
        assert!(elected(&cluster).is_empty(), "seed {seed}");
        let elect = |cluster: &Cluster| elected(cluster) == [(1, 1)];
        assert!(cluster.run_until(secs(15), elect), "seed {seed}");
    }
}

#[test]
fn the_only_node_of_the_masters_site_whose_end_is_known_is_replaced_at_once() {
    for seed in 0..10 {
        let mut cluster = grown(seed, &["a", "b", "b", "b", "c", "c"]);
        cluster.crash(0);
        let elect = |cluster: &Cluster| elected(cluster) == [(1, 1)];
        assert!(cluster.run_until(secs(5), elect), "seed {seed}");
    }
}

/// One node of a pool of so many, to be driven by hand; the first is master.
fn by_hand(nodes: u32, me: usize) -> (Node, Vec<Identity>) {
    let identity = |number: u32| Identity {
        peer: NodeId(u128::from(number) << 96).first_life(),
        name: format!("n{number}").into(),
        site: "a".into(),
        addr: address(number),
        stamp: u64::from(number),
        threads: 1,
    };
    let all: Vec<Identity> = (0..nodes).map(identity).collect();
    let view = View::of(all.iter().cloned().map(Arc::new)).seen_by(all[me].peer);
    let mut node = Node::formed(
        ProtocolConfig::default(),
        view,
        Box::new(Smallest),
        1,
        ms(0),
    );
    for (epoch, other) in (1..).zip(&all).filter(|(_, other)| **other != all[me]) {
        let connected = Event::Connected {
            peer: other.clone(),
            epoch,
            round_trip: ms(1),
        };
        node.handle(ms(0), connected);
    }
    node.handle_timeout(ms(0));
    (node, all)
}

/// What it says to whom.
fn said(node: &mut Node) -> Vec<(Peer, Message)> {
    let actions = std::iter::from_fn(|| node.poll_action());
    let said = actions.filter_map(|action| match action {
        Action::Send(to, message) => Some((to, message)),
        _ => None,
    });
    said.collect()
}

/// What came over the connection to that one.
fn received(from: &Identity, epoch: u64, message: Message) -> Event {
    Event::Received {
        from: from.peer,
        epoch,
        message,
    }
}

#[test]
fn a_master_that_yields_tells_all_who_may_follow_it() {
    let (mut node, all) = by_hand(9, 0);
    said(&mut node);
    let better = Message::Master {
        term: 1,
        branches: 0,
        master: all[8].clone(),
    };
    node.handle(ms(1), received(&all[8], 9, better.clone()));
    let said = said(&mut node);
    let told = said.iter().filter(|(_, message)| *message == better);
    let told: BTreeSet<Peer> = told.map(|(to, _)| *to).collect();
    assert_eq!(told, all[1..].iter().map(|who| who.peer).collect());
}

#[test]
fn who_missed_a_word_of_the_master_asks_for_it() {
    let (mut node, all) = by_hand(3, 2);
    let believed = Message::Master {
        term: 0,
        branches: 0,
        master: all[0].clone(),
    };
    let mut asked = Vec::new();
    while let Some(next) = node.poll_timeout().filter(|next| *next < secs(25)) {
        node.handle_timeout(next);
        asked.extend(said(&mut node));
        // The master lives.
        node.handle(next, received(&all[0], 1, Message::Pong(0)));
    }
    asked.retain(|(_, message)| matches!(message, Message::Master { .. }));
    assert_eq!(asked, vec![(all[0].peer, believed.clone()); 2]);

    let (mut master, all) = by_hand(3, 0);
    let run = RootRun {
        term: 0,
        name: RootName {
            number: 3,
            fingerprint: Fingerprint(1),
        },
    };
    master.handle(ms(1), Event::RootStarted(run));
    master.handle(ms(2), Event::RootFinished(run));
    said(&mut master);
    master.handle(ms(3), received(&all[2], 3, believed));
    let over = (all[2].peer, Message::RootsDone(vec![run]));
    assert!(said(&mut master).contains(&over));
}

#[test]
fn who_follows_another_master_tells_the_former_one() {
    let (mut node, all) = by_hand(5, 4);
    said(&mut node);
    let better = Message::Master {
        term: 1,
        branches: 0,
        master: all[1].clone(),
    };
    node.handle(ms(1), received(&all[1], 2, better.clone()));
    assert!(said(&mut node).contains(&(all[0].peer, better)));
}

#[test]
fn a_master_asks_others_whether_they_follow_it() {
    let (mut node, all) = by_hand(5, 0);
    let mut asked = BTreeSet::new();
    // In the first term nobody else can be master: it says so only when it asks.
    while let Some(next) = node.poll_timeout().filter(|next| *next < secs(500)) {
        node.handle_timeout(next);
        let masters = |(to, message)| matches!(message, Message::Master { .. }).then_some(to);
        asked.extend(said(&mut node).into_iter().filter_map(masters));
        for (other, epoch) in all[1..].iter().zip(2..) {
            node.handle(next, received(other, epoch, Message::Pong(0)));
        }
    }
    assert_eq!(asked, all[1..].iter().map(|who| who.peer).collect());
}

#[test]
fn who_waits_for_the_first_in_line_asks_it() {
    let (mut node, all) = by_hand(5, 4);
    // What the master said of its successor has been lost.
    node.handle(ms(1), received(&all[0], 1, Message::Goodbye));
    let mut asked = BTreeSet::new();
    while let Some(next) = node.poll_timeout().filter(|next| *next < secs(9)) {
        node.handle_timeout(next);
        for (to, message) in said(&mut node) {
            if let Message::Master { master, .. } = message {
                assert_eq!(master, all[0]);
                asked.insert(to);
            }
        }
        for (other, epoch) in all[1..4].iter().zip(2..) {
            node.handle(next, received(other, epoch, Message::Pong(0)));
        }
    }
    assert_eq!(asked, BTreeSet::from([all[1].peer]));
}

#[test]
fn the_next_in_line_acts_if_those_before_it_do_nothing() {
    let (mut node, all) = by_hand(3, 2);
    node.handle(ms(1), received(&all[0], 1, Message::Goodbye));
    let mut named = None;
    while let Some(next) = node.poll_timeout().filter(|next| *next < secs(60)) {
        node.handle_timeout(next);
        let is_own = |(_, message): &(Peer, Message)| matches!(message, Message::Master { master, .. } if *master == all[2]);
        if named.is_none() && said(&mut node).iter().any(is_own) {
            named = Some(next);
        }
        // The one before it lives, and believes something else.
        node.handle(next, received(&all[1], 2, Message::Pong(0)));
    }
    let turn = ProtocolConfig::default().partition_wait + secs(10);
    assert!(named.is_some_and(|at| at >= turn), "{named:?}");
}
