//! Stories of values that jobs need, and of bounds that they improve.

use std::time::Duration;

use super::super::{
    Config, Message, Token,
    cluster::{Cluster, Path, Program, Shape, Smallest},
    message::How,
};
use crate::job::{Answer, BoundName, Offer, RootTag, ValueName};

const BEST: BoundName = BoundName(7);
const MIB: usize = 1 << 20;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn pool(seed: u64, sites: &[(&str, u32)]) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.form(&Config::default(), sites, 1);
    cluster
}

fn value(length: usize) -> Vec<u8> {
    (0..length)
        .map(|byte| (byte * 31 + byte / 251) as u8)
        .collect()
}

/// A root of many leaves, all of which need a value of that size that its node has made.
fn run_with_value(cluster: &mut Cluster, node: u32, length: usize) -> (ValueName, u32) {
    let name = cluster.make_value(node, value(length));
    cluster.set_needs(node, &[name]);
    let leaves = Program::new(Shape::Flat { jobs: 400 }, ms(10));
    let program = cluster.program(leaves);
    cluster.start_root(node, program);
    (name, program)
}

fn finish(cluster: &mut Cluster, node: u32, program: u32) {
    assert!(cluster.run_until(secs(60), |cluster| cluster.is_done(node)));
    cluster.check(node, &[program]);
}

#[test]
fn a_value_crosses_to_each_site_once() {
    for seed in 0..10 {
        let mut cluster = pool(seed, &[("a", 4), ("b", 4), ("c", 4)]);
        let (name, program) = run_with_value(&mut cluster, 0, 5 * MIB / 2);
        finish(&mut cluster, 0, program);
        let holders = (0..12)
            .filter(|node| cluster.has_value(*node, name))
            .count();
        assert!(holders > 9, "{holders} nodes worked");
        // Three pieces to each of two sites.
        assert_eq!(cluster.traffic.of("part").far, 6, "seed {seed}");
        assert_eq!(
            cluster.traffic.of("part").near as usize,
            3 * (holders - 1) - 6
        );
    }
}

#[test]
fn a_site_of_many_spreads_a_value_as_a_tree() {
    let mut cluster = pool(2, &[("a", 40)]);
    let (name, program) = run_with_value(&mut cluster, 0, 100);
    finish(&mut cluster, 0, program);
    let holders = (0..40)
        .filter(|node| cluster.has_value(*node, name))
        .count();
    assert_eq!(cluster.traffic.of("part").all() as usize, holders - 1);
    assert!(
        cluster.traffic.of("elsewhere").all() > 0,
        "not all from the one that made it"
    );
}

#[test]
fn an_empty_value_is_a_value() {
    let mut cluster = pool(3, &[("a", 1), ("b", 1)]);
    let (name, program) = run_with_value(&mut cluster, 0, 0);
    finish(&mut cluster, 0, program);
    assert!(cluster.has_value(1, name));
}

#[test]
fn a_slow_link_is_waited_for() {
    // 8 MiB at 1 MiB a second: longer than any patience; and the second node of the site waits for the first.
    let mut cluster = pool(4, &[("a", 1), ("b", 3)]);
    let slow = Path {
        rate: Some(MIB as u64),
        ..Path::new(ms(50))
    };
    cluster.set_path("a", "b", slow);
    let (name, program) = run_with_value(&mut cluster, 0, 8 * MIB);
    finish(&mut cluster, 0, program);
    cluster.run_for(secs(20));
    assert!((1..4).any(|node| cluster.has_value(node, name)));
    assert!(
        cluster.traffic.of("part").far <= 8,
        "{:?}",
        cluster.traffic.of("part")
    );
}

#[test]
fn whoever_was_to_give_it_dies() {
    for seed in 0..20 {
        let mut cluster = pool(seed, &[("a", 2), ("b", 4)]);
        let slow = Path {
            rate: Some(8 * MIB as u64),
            ..Path::new(ms(20))
        };
        cluster.set_path("a", "b", slow);
        let (name, program) = run_with_value(&mut cluster, 0, 4 * MIB);
        // The first of the other site that fetches it; others have been sent there.
        cluster.run_for(ms(100));
        let fetching = (2..6).find(|node| !cluster.has_value(*node, name));
        let Some(victim) = fetching else { continue };
        cluster.crash(victim);
        finish(&mut cluster, 0, program);
    }
}

#[test]
fn sent_to_a_dead_holder_the_first_is_asked_again_and_insisted_upon() {
    let mut cluster = pool(6, &[("a", 1), ("b", 3)]);
    let name = cluster.make_value(0, value(100));
    // Nodes 1 and 2 have asked for it: so the site is said to have it, but both have dropped it since.
    let root = RootTag { term: 0, number: 0 };
    for node in [1, 2] {
        let want = Message::Want {
            name,
            root,
            offset: 0,
            how: How::Anyhow,
        };
        let from = cluster.peer(node);
        cluster.forge(0, from, want);
    }
    cluster.run_for(ms(100));
    cluster.set_needs(0, &[name]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 20 }, ms(20)));
    cluster.start_root(0, program);
    finish(&mut cluster, 0, program);
    assert!((1..4).any(|node| cluster.has_value(node, name)));
    assert!(cluster.traffic.of("elsewhere").all() > 0);
    assert!(cluster.traffic.of("unavailable").all() > 0);
}

#[test]
fn a_value_that_came_damaged_is_fetched_from_another() {
    let mut cluster = pool(7, &[("a", 2)]);
    let name = cluster.make_value(0, value(100));
    cluster.set_needs(0, &[name]);
    cluster.make_value(1, value(100));
    cluster.drop_value(1, name);
    cluster.spoil_value(0, name);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 20 }, ms(20)));
    cluster.start_root(0, program);
    // Nobody else has it: the jobs go back to where they came from, and are done there.
    finish(&mut cluster, 0, program);
    assert!(!cluster.has_value(1, name));
}

#[test]
fn a_damaged_value_is_no_loss_if_somebody_else_has_it() {
    let mut cluster = pool(7, &[("a", 3)]);
    let name = cluster.make_value(0, value(100));
    cluster.make_value(2, value(100));
    cluster.spoil_value(0, name);
    cluster.set_needs(0, &[name]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 20 }, ms(20)));
    cluster.start_root(0, program);
    finish(&mut cluster, 0, program);
    assert!(cluster.has_value(1, name));
}

#[test]
fn a_connection_that_breaks_under_a_value_loses_nothing() {
    for seed in 0..10 {
        let mut cluster = pool(seed, &[("a", 1), ("b", 2)]);
        let slow = Path {
            rate: Some(20 * MIB as u64),
            ..Path::new(ms(20))
        };
        cluster.set_path("a", "b", slow);
        let (_, program) = run_with_value(&mut cluster, 0, 6 * MIB);
        for _ in 0..5 {
            cluster.run_for(ms(60));
            for (a, b) in cluster.links() {
                cluster.break_link(a, b, ms(1));
            }
        }
        let limit = secs(8);
        assert!(
            cluster.run_until(limit, |cluster| cluster.is_done(0)),
            "seed {seed}"
        );
        cluster.check(0, &[program]);
    }
}

#[test]
fn what_nobody_has_any_more_is_done_where_it_came_from() {
    let mut cluster = pool(8, &[("a", 2), ("b", 2)]);
    let name = ValueName([9; 32]);
    cluster.set_needs(0, &[name]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 20 }, ms(20)));
    cluster.start_root(0, program);
    finish(&mut cluster, 0, program);
    cluster.run_for(secs(30));
    assert!(
        (1..4).all(|node| cluster.is_empty(node)),
        "nothing waits for ever"
    );
}

#[test]
fn hints_go_with_their_root() {
    let mut cluster = pool(9, &[("a", 1), ("b", 2)]);
    let (_, program) = run_with_value(&mut cluster, 0, 100);
    finish(&mut cluster, 0, program);
    cluster.run_for(secs(1));
    for node in 0..3 {
        assert!(cluster.node(node).shared.is_empty(), "at {node}");
    }
}

// ---- bounds

fn root(cluster: &mut Cluster) -> RootTag {
    let long = Program::new(Shape::Flat { jobs: 1 }, secs(100));
    let program = cluster.program(long);
    cluster.start_root(0, program)
}

fn all_know(cluster: &Cluster, root: RootTag, best: u64) -> bool {
    (0..cluster.nodes()).all(|node| cluster.bound(node, BEST, root) == Some(best))
}

fn quiet(sites: &[(&str, u32)]) -> Cluster {
    let mut cluster = Cluster::new(1);
    let config = Config {
        fixed_members: true,
        ..Config::default()
    };
    cluster.form(&config, sites, 1);
    cluster
}

#[test]
fn an_offer_reaches_a_hundred_nodes_with_ninety_nine_messages() {
    let mut cluster = quiet(&[("a", 20), ("b", 20), ("c", 20), ("d", 20), ("e", 20)]);
    let root = root(&mut cluster);
    for (round, origin) in [0, 37, 99].into_iter().enumerate() {
        cluster.run_for(secs(1));
        let before = cluster.traffic.of("offers");
        let best = 100 - round as u64;
        cluster.offer(origin, BEST, root, best);
        let soon = cluster.run_until(ms(100), |cluster| all_know(cluster, root, best));
        assert!(soon, "from {origin}");
        cluster.run_for(secs(1));
        let after = cluster.traffic.of("offers");
        assert_eq!(after.far - before.far, 4);
        assert_eq!(after.near - before.near, 95);
    }
}

#[test]
fn a_large_site_passes_offers_along_a_tree() {
    let mut cluster = quiet(&[("a", 200), ("b", 200)]);
    let root = root(&mut cluster);
    cluster.run_for(secs(1));
    let before = cluster.traffic.of("offers").all();
    cluster.offer(123, BEST, root, 5);
    assert!(cluster.run_until(ms(200), |cluster| all_know(cluster, root, 5)));
    cluster.run_for(secs(1));
    assert_eq!(cluster.traffic.of("offers").all() - before, 399);
}

#[test]
fn a_burst_of_offers_is_combined() {
    let mut cluster = quiet(&[("a", 4), ("b", 4)]);
    let root = root(&mut cluster);
    cluster.run_for(secs(1));
    let before = cluster.traffic.of("offers").all();
    // A thousand improvements in 100 ms.
    for better in 0..1000 {
        cluster.offer(1, BEST, root, 5000 - better);
        cluster.run_for(Duration::from_micros(100));
    }
    assert!(cluster.run_until(ms(100), |cluster| all_know(cluster, root, 4001)));
    let messages = cluster.traffic.of("offers").all() - before;
    assert!(messages < 400, "{messages} messages");
}

#[test]
fn offers_that_are_no_better_are_not_passed_on() {
    let mut cluster = quiet(&[("a", 4), ("b", 4)]);
    let root = root(&mut cluster);
    cluster.offer(0, BEST, root, 5);
    cluster.run_for(secs(1));
    let before = cluster.traffic.all();
    let from = cluster.peer(4);
    let offer = Offer {
        bound: BEST,
        root,
        value: Smallest::write(6),
    };
    cluster.forge(0, from, Message::Offers(vec![offer]));
    cluster.run_for(ms(100));
    assert_eq!(cluster.traffic.all(), before);
    assert!(all_know(&cluster, root, 5));
}

#[test]
fn a_finished_roots_offers_are_dropped() {
    let mut cluster = pool(3, &[("a", 2)]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(50)));
    let root = cluster.start_root(0, program);
    cluster.offer(1, BEST, root, 5);
    cluster.run_for(ms(20));
    assert!(all_know(&cluster, root, 5));
    finish(&mut cluster, 0, program);
    cluster.run_for(secs(1));
    for node in 0..2 {
        assert_eq!(cluster.bound(node, BEST, root), None);
    }
    let from = cluster.peer(1);
    let offer = Offer {
        bound: BEST,
        root,
        value: Smallest::write(4),
    };
    cluster.forge(0, from, Message::Offers(vec![offer]));
    assert_eq!(cluster.bound(0, BEST, root), None, "too late");
}

#[test]
fn a_joiner_hears_the_bounds_with_its_welcome() {
    let mut cluster = pool(4, &[("a", 2)]);
    let root = root(&mut cluster);
    cluster.offer(1, BEST, root, 5);
    cluster.run_for(secs(1));
    let joiner = cluster.join(&Config::default(), "b", 1, 1);
    let told = |cluster: &Cluster| cluster.bound(joiner, BEST, root) == Some(5);
    assert!(cluster.run_until(ms(100), told));
}

#[test]
fn a_gateways_death_leaves_nobody_out() {
    let mut cluster = pool(5, &[("a", 1), ("b", 4)]);
    let root = root(&mut cluster);
    cluster.run_for(secs(1));
    cluster.offer(0, BEST, root, 5);
    // On the way, it dies.
    cluster.run_for(ms(2));
    let gateway = (cluster.peer(0).id.0 % 4) as u32 + 1;
    cluster.crash(gateway);
    let others = [1, 2, 3, 4].into_iter().filter(|node| *node != gateway);
    let others: Vec<u32> = others.collect();
    assert!(cluster.run_until(secs(10), |cluster| {
        others
            .iter()
            .all(|node| cluster.bound(*node, BEST, root) == Some(5))
    }));
}

#[test]
fn a_jobs_offers_arrive_no_later_than_its_result() {
    for seed in 0..20 {
        let mut cluster = pool(seed, &[("a", 2), ("b", 2), ("c", 2)]);
        let shape = Shape::Random {
            width: 4,
            height: 6,
            races: 0,
        };
        let program = cluster.program(Program::new(shape, ms(3)).seeded(seed));
        let root = cluster.start_root(0, program);
        cluster.promise(BEST, root);
        while !cluster.is_done(0) {
            // Connections break now and then, with offers on them.
            for (a, b) in cluster.links() {
                cluster.break_link(a, b, ms(2));
            }
            cluster.run_until(ms(57), |cluster| cluster.is_done(0));
        }
        cluster.check(0, &[program]);
    }
}

#[test]
fn large_answers_bring_all_bounds_themselves() {
    let mut cluster = quiet(&[("a", 2)]);
    let root = root(&mut cluster);
    cluster.offer(0, BEST, root, 5);
    let peer = cluster.peer(1);
    cluster.run_for(secs(1));
    let answers = |length: usize| {
        let bytes = vec![0; length];
        let needs = Vec::new();
        Message::Answers(vec![(Token(1), Answer::Result { bytes, needs })])
    };
    let node = cluster.node_mut(0);
    assert!(matches!(
        node.bounds.load(peer, answers(10)),
        Message::Answers(_)
    ));
    assert!(matches!(
        node.bounds.load(peer, answers(100_000)),
        Message::OffersWith(offers, _) if offers.len() == 1
    ));
}
