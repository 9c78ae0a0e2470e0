//! Stories of pools in which not everybody reaches everybody.

use std::time::Duration;

use super::super::{
    Event, ProtocolConfig,
    cluster::{Cluster, Path, Program, Shape},
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A pool whose main calls one root job, which takes three nodes about twenty seconds.
fn busy(seed: u64, sites: &[(&str, u32)]) -> (Cluster, u32) {
    let mut cluster = Cluster::new(seed);
    cluster.wire.far = Path::new(ms(10));
    cluster.wire.idle_timeout = secs(2);
    cluster.form(&ProtocolConfig::default(), sites, 1);
    let shape = Shape::Knary {
        width: 4,
        height: 5,
        serial: 0,
    };
    let program = cluster.program(Program::new(shape, ms(60)).seeded(seed));
    cluster.set_main_everywhere(&[program], Some(0));
    (cluster, program)
}

/// The living nodes.
fn living(cluster: &Cluster) -> Vec<u32> {
    let nodes = 0..cluster.nodes();
    nodes.filter(|node| cluster.is_alive(*node)).collect()
}

/// Does the pool end everywhere, with the right answer?
fn ends_well(cluster: &mut Cluster, program: u32, limit: Duration) {
    let ended = |cluster: &Cluster| {
        let living = living(cluster);
        living.iter().all(|node| cluster.ended(*node).is_some())
    };
    assert!(cluster.run_until(limit, ended), "the pool ends everywhere");
    let right = cluster.outcome(program).result;
    assert!(!cluster.endings().is_empty());
    for ending in cluster.endings() {
        assert_eq!((ending.panicked, &*ending.results), (false, &[right][..]));
    }
}

/// Nobody was declared dead by mistake.
fn nobody_was_reborn(cluster: &Cluster) {
    for node in living(cluster) {
        assert_eq!(cluster.peer(node).generation, 0, "node {node}");
    }
}

#[test]
fn two_sites_that_never_see_each_other_again_finish_the_run_through_a_third() {
    // The pair with the master, with the master as the third, and at several moments.
    for (a, b) in [("a", "b"), ("b", "c"), ("a", "c")] {
        for seed in 0..6 {
            let (mut cluster, program) = busy(seed, &[("a", 1), ("b", 1), ("c", 1)]);
            cluster.run_for(ms(3000 + 737 * seed));
            cluster.partition(a, b);
            ends_well(&mut cluster, program, secs(120));
            nobody_was_reborn(&cluster);
        }
    }
}

#[test]
fn everything_goes_on_when_the_relay_dies() {
    for seed in 0..6 {
        let (mut cluster, program) = busy(seed, &[("a", 2), ("b", 2), ("c", 1), ("d", 1)]);
        cluster.run_for(secs(2));
        cluster.partition("a", "b");
        cluster.run_for(ms(5000 + 311 * seed));
        cluster.crash(4 + seed as u32 % 2);
        ends_well(&mut cluster, program, secs(120));
    }
}

#[test]
fn a_pair_that_meets_again_talks_directly() {
    for seed in 0..6 {
        let (mut cluster, program) = busy(seed, &[("a", 1), ("b", 1), ("c", 1)]);
        cluster.run_for(secs(1));
        cluster.partition("a", "b");
        cluster.run_for(ms(6000 + 411 * seed));
        cluster.heal();
        ends_well(&mut cluster, program, secs(120));
        nobody_was_reborn(&cluster);
    }
}

#[test]
fn sites_in_a_row_reach_each_other() {
    for seed in 0..4 {
        let sites = [("a", 1), ("c", 1), ("d", 1), ("b", 1)];
        let (mut cluster, program) = busy(seed, &sites);
        cluster.run_for(ms(1000 + 300 * seed));
        for (from, to) in [("a", "d"), ("a", "b"), ("c", "b")] {
            cluster.partition(from, to);
        }
        ends_well(&mut cluster, program, secs(180));
    }
}

#[test]
fn who_cannot_reach_the_master_comes_in_through_another() {
    for seed in 0..6 {
        let (mut cluster, program) = busy(seed, &[("a", 1), ("b", 1), ("c", 1)]);
        cluster.run_for(secs(1));
        cluster.partition("a", "b");
        cluster.run_for(ms(400 * seed));
        let newcomer = cluster.join(&ProtocolConfig::default(), "b", 1, 1 + seed as u32 % 2);
        let is_in = |cluster: &Cluster| cluster.joined(newcomer).is_some();
        assert!(cluster.run_until(secs(15), is_in), "seed {seed}");
        ends_well(&mut cluster, program, secs(120));
    }
}

#[test]
fn a_master_that_others_reach_through_a_third_hands_over() {
    for seed in 0..6 {
        let (mut cluster, program) = busy(seed, &[("a", 1), ("b", 1), ("c", 1)]);
        cluster.run_for(secs(1));
        cluster.partition("a", "b");
        cluster.run_for(ms(6000 + 100 * seed));
        cluster.tell(0, Event::Drain(secs(2)));
        ends_well(&mut cluster, program, secs(120));
    }
}

#[test]
fn values_come_through_a_third() {
    for seed in 0..4 {
        let mut cluster = Cluster::new(seed);
        cluster.wire.far = Path::new(ms(10));
        cluster.wire.idle_timeout = secs(2);
        cluster.form(
            &ProtocolConfig::default(),
            &[("a", 1), ("b", 2), ("c", 1)],
            1,
        );
        cluster.run_for(secs(1));
        cluster.partition("a", "b");
        cluster.run_for(secs(10));
        let name = cluster.make_value(0, vec![seed as u8; 100_000]);
        cluster.set_needs(0, &[name]);
        let program = cluster.program(Program::new(Shape::Flat { jobs: 60 }, ms(200)));
        cluster.set_main_everywhere(&[program], Some(0));
        ends_well(&mut cluster, program, secs(120));
        assert!(cluster.has_value(1, name) || cluster.has_value(2, name));
    }
}

#[test]
fn a_cut_in_one_direction_is_a_cut() {
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        let (mut cluster, program) = busy(3, &[("a", 1), ("b", 1), ("c", 1)]);
        cluster.run_for(secs(2));
        cluster.cut_way(from, to);
        ends_well(&mut cluster, program, secs(120));
    }
}

#[test]
fn who_is_reached_in_no_way_is_declared_dead_and_nobody_waits_for_it() {
    for seed in 0..4 {
        let mut cluster = Cluster::new(seed);
        cluster.wire.idle_timeout = secs(2);
        // The third is so far away that a call takes longer than anybody waits for one.
        cluster.wire.far = Path::new(ms(600));
        let config = ProtocolConfig {
            cut_off: ms(500),
            // They do not die: they are declared dead again and again.
            max_crashes: 1000,
            ..ProtocolConfig::default()
        };
        cluster.form(&config, &[("a", 1), ("b", 1), ("c", 1)], 1);
        let shape = Shape::Flat { jobs: 100 };
        let program = cluster.program(Program::new(shape, ms(500)));
        cluster.set_main_everywhere(&[program], Some(0));
        cluster.run_for(secs(5));
        cluster.cut_for_good(0, 1);
        ends_well(&mut cluster, program, secs(300));
        let reborn = [0, 1].map(|node| cluster.peer(node).generation);
        assert!(
            reborn != [0, 0],
            "seed {seed}: one of them was declared dead"
        );
    }
}
