//! Stories of masters, and of how pools end.

use std::time::Duration;

use super::super::{
    Config, Notice,
    cluster::{Cluster, Program, Shape},
};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn pool(nodes: u32, wanted: u32) -> Cluster {
    let mut cluster = Cluster::new(u64::from(nodes));
    let config = Config {
        nodes: wanted,
        ..Config::default()
    };
    cluster.boot(&config, "a", 1);
    for _ in 1..nodes {
        cluster.join(&config, "a", 1, 0);
    }
    cluster
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
    cluster.run_for(secs(5));
    assert_eq!(cluster.ended(0), None);
    let config = Config::default();
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
    let mut living = (0..cluster.nodes()).filter(|node| cluster.is_alive(*node));
    let master = cluster.peer(master);
    living.all(|node| cluster.node(node).view().master() == master)
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
    let told = cluster.traffic.of("roots done").all();
    assert!(told <= 60, "{told} messages");
}
