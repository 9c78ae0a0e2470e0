//! Stories of pools that form, grow and shrink.

use std::{collections::BTreeSet, time::Duration};

use super::super::{
    Event, Identity, Message, MessageKind, NodeId, Notice, ProtocolConfig, Request, Side,
    cluster::{Cluster, Program, Shape, address, mix},
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Does every living node see exactly the living nodes?
fn agrees(cluster: &Cluster) -> bool {
    let living: Vec<u32> = (0..cluster.nodes())
        .filter(|node| cluster.is_alive(*node))
        .collect();
    let peers: BTreeSet<_> = living.iter().map(|node| cluster.peer(*node)).collect();
    living.iter().all(|node| {
        let view = cluster.node(*node).view();
        view.members()
            .map(|member| member.peer)
            .eq(peers.iter().copied())
    })
}

/// Nobody here thinks that the node lives.
fn declared_dead(cluster: &Cluster, node: u32) -> bool {
    let peer = cluster.peer(node);
    let others = (0..cluster.nodes()).filter(|other| cluster.is_alive(*other) && *other != node);
    others
        .into_iter()
        .all(|other| !cluster.node(other).view().is_alive(peer))
}

fn was_told(cluster: &Cluster, node: u32, what: impl Fn(&Notice) -> bool) -> bool {
    cluster.notices(node).iter().any(what)
}

fn deaths(cluster: &Cluster) -> usize {
    let dead = |notice: &&Notice| matches!(notice, Notice::Dead(_));
    let of = |node| cluster.notices(node).iter().filter(dead).count();
    (0..cluster.nodes()).map(of).sum()
}

/// A founder, and others that join through it.
fn grown(seed: u64, sites: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(seed);
    let config = ProtocolConfig::default();
    for (index, site) in sites.iter().enumerate() {
        if index == 0 {
            cluster.boot(&config, site, 1);
        } else {
            cluster.join(&config, site, 1, 0);
        }
    }
    let nodes = sites.len();
    let all_in = |cluster: &Cluster| agrees(cluster) && cluster.node(0).view().len() == nodes;
    assert!(cluster.run_until(secs(5), all_in), "{nodes} nodes come in");
    cluster
}

#[test]
fn a_node_with_no_one_to_join_founds_at_once() {
    let mut cluster = Cluster::new(1);
    let founder = cluster.boot(&ProtocolConfig::default(), "here", 1);
    assert!(cluster.run_until(ms(1), |cluster| cluster.joined(founder).is_some()));
    assert_eq!(cluster.joined(founder).unwrap().stamp, 0);
    assert!(was_told(&cluster, founder, |told| matches!(
        told,
        Notice::Master(_)
    )));
}

/// The driver needs a moment to find out that there is nobody to ask; the others do not wait for that.
#[test]
fn a_founder_founds_though_others_stand_at_the_door_already() {
    let mut cluster = Cluster::new(5);
    let waits = ProtocolConfig {
        may_found: false,
        ..ProtocolConfig::default()
    };
    let founder = cluster.boot(&waits, "here", 1);
    let joiner = cluster.join(&waits, "there", 1, founder);
    cluster.run_for(secs(1));
    cluster.tell(
        founder,
        Event::Candidates {
            join: Vec::new(),
            may_found: true,
        },
    );
    assert!(cluster.run_until(ms(1), |cluster| cluster.joined(founder).is_some()));
    assert!(cluster.run_until(secs(2), |cluster| cluster.joined(joiner).is_some()));
}

#[test]
fn a_node_joins_through_any_member() {
    let mut cluster = grown(2, &["here", "here", "there"]);
    let config = ProtocolConfig::default();
    for through in 0..3 {
        let joiner = cluster.join(&config, "there", 1, through);
        assert!(cluster.run_until(ms(200), |cluster| cluster.joined(joiner).is_some()));
        assert!(
            cluster.run_until(ms(800), agrees),
            "joined through {through}"
        );
    }
    let stamps: BTreeSet<u64> = (0..6)
        .map(|node| cluster.joined(node).unwrap().stamp)
        .collect();
    assert_eq!(stamps, (0..6).collect());
    assert_eq!(deaths(&cluster), 0);
}

#[test]
fn all_start_at_the_same_moment_with_the_same_list() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        let addrs: Vec<_> = (0..4).map(address).collect();
        for _ in 0..4 {
            let config = ProtocolConfig {
                join: addrs.clone(),
                may_found: true,
                ..ProtocolConfig::default()
            };
            cluster.boot(&config, "here", 1);
        }
        let all_in = |cluster: &Cluster| (0..4).all(|node| cluster.joined(node).is_some());
        assert!(cluster.run_until(secs(3), all_in));
        assert!(cluster.run_until(secs(1), agrees), "one pool, not several");
        assert_eq!(
            cluster.joined(0).unwrap().stamp,
            0,
            "the first of the list founds"
        );
    }
}

#[test]
fn a_later_one_of_the_list_founds_if_those_before_are_not_there() {
    let mut cluster = Cluster::new(4);
    let config = ProtocolConfig {
        join: vec![address(77), address(0)],
        ..ProtocolConfig::default()
    };
    let node = cluster.boot(&config, "here", 1);
    assert!(cluster.run_until(secs(5), |cluster| cluster.joined(node).is_some()));
}

#[test]
fn a_joiner_whose_contact_is_dead_asks_the_next() {
    let mut cluster = grown(5, &["here", "here"]);
    cluster.crash(1);
    let config = ProtocolConfig {
        join: vec![cluster.addr(1), cluster.addr(0)],
        may_found: false,
        ..ProtocolConfig::default()
    };
    let joiner = cluster.boot(&config, "here", 1);
    assert!(cluster.run_until(ms(500), |cluster| cluster.joined(joiner).is_some()));
}

#[test]
fn a_joiner_waits_for_a_pool_and_says_so_now_and_then() {
    let mut cluster = Cluster::new(6);
    let config = ProtocolConfig {
        join: vec![address(1)],
        may_found: false,
        ..ProtocolConfig::default()
    };
    let joiner = cluster.boot(&config, "here", 1);
    cluster.run_for(secs(60));
    let warnings = cluster.notices(joiner).len();
    assert!(
        (2..=7).contains(&warnings),
        "{warnings} warnings in a minute"
    );
    cluster.boot(&ProtocolConfig::default(), "here", 1);
    assert!(cluster.run_until(secs(4), |cluster| cluster.joined(joiner).is_some()));
}

#[test]
fn twenty_join_at_once() {
    for seed in 0..5 {
        let mut cluster = grown(seed, &["a", "b", "c"]);
        let config = ProtocolConfig::default();
        for joiner in 0..20 {
            cluster.join(&config, ["a", "b", "c"][joiner % 3], 1, joiner as u32 % 3);
        }
        let all_in = |cluster: &Cluster| (0..23).all(|node| cluster.joined(node).is_some());
        assert!(cluster.run_until(ms(300), all_in), "in within 0.3 s");
        let known = cluster.run_until(ms(1500), agrees);
        assert!(known, "everybody knows everybody");
        let stamps: BTreeSet<u64> = (0..23)
            .map(|node| cluster.joined(node).unwrap().stamp)
            .collect();
        assert_eq!(stamps.len(), 23, "each has a stamp of its own");
        assert_eq!(deaths(&cluster), 0);
    }
}

#[test]
fn gossip_may_be_lost() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed);
        cluster.wire.near.loss = 0.2;
        cluster.wire.far.loss = 0.2;
        let config = ProtocolConfig::default();
        cluster.boot(&config, "a", 1);
        for joiner in 1..10 {
            cluster.join(&config, ["a", "b"][joiner % 2], 1, joiner as u32 / 2);
        }
        let all = |cluster: &Cluster| agrees(cluster) && cluster.node(0).view().len() == 10;
        assert!(cluster.run_until(secs(15), all));
        cluster.run_for(secs(120));
        assert_eq!(deaths(&cluster), 0, "and nobody is declared dead for it");
        assert!(agrees(&cluster));
    }
}

#[test]
fn a_killed_node_is_known_everywhere_within_three_seconds() {
    let mut worst = Duration::ZERO;
    for seed in 0..40 {
        let mut cluster = grown(seed, &["a", "a", "a", "a", "b", "b", "b", "b"]);
        cluster.run_for(ms(500 + 37 * seed));
        let victim = 1 + seed as u32 % 7;
        cluster.crash(victim);
        let killed = cluster.now();
        let known = cluster.run_until(secs(3), |cluster| declared_dead(cluster, victim));
        assert!(known, "seed {seed}");
        worst = worst.max(cluster.now() - killed);
        let dead =
            |told: &Notice| matches!(told, Notice::Dead(who) if who.peer == cluster.peer(victim));
        assert!(was_told(&cluster, 0, dead));
        assert_eq!(deaths(&cluster), 7, "nobody else");
    }
    assert!(worst < ms(2500), "{worst:?}");
}

#[test]
fn half_of_a_site_is_killed_at_once() {
    for seed in 0..10 {
        let mut cluster = grown(seed, &["a", "a", "b", "b", "b", "b", "b", "b"]);
        cluster.run_for(secs(1));
        let victims = [3, 4, 5];
        victims.iter().for_each(|victim| cluster.crash(*victim));
        let all = |cluster: &Cluster| victims.iter().all(|victim| declared_dead(cluster, *victim));
        assert!(cluster.run_until(secs(5), all), "seed {seed}");
    }
}

#[test]
fn a_silent_machine_is_known_everywhere_within_ten_seconds() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "a", "a", "b", "b", "b", "b"]);
        cluster.run_for(secs(1));
        let victim = 1 + seed as u32 % 7;
        cluster.isolate(victim);
        let known = cluster.run_until(secs(10), |cluster| declared_dead(cluster, victim));
        assert!(known, "seed {seed}");
        let peer = cluster.peer(victim);
        let others = (0..8).filter(|node| *node != victim);
        for other in others {
            let view = cluster.node(other).view();
            assert!(!view.is_alive(peer) && view.len() == 7, "nobody else");
        }
    }
}

#[test]
fn a_pause_shorter_than_suspicion_changes_nothing() {
    for seed in 0..20 {
        let mut cluster = grown(seed, &["a", "a", "a", "b", "b"]);
        cluster.run_for(secs(1));
        let sleeper = seed as u32 % 5;
        cluster.freeze(sleeper);
        cluster.run_for(ms(2500));
        cluster.thaw(sleeper);
        cluster.run_for(secs(20));
        assert_eq!(deaths(&cluster), 0, "seed {seed}");
        assert!(agrees(&cluster));
        assert_eq!(cluster.peer(sleeper).generation, 0);
    }
}

#[test]
fn who_was_declared_dead_comes_back_as_the_next_generation() {
    for seed in 0..10 {
        let mut cluster = grown(seed, &["a", "a", "a", "b", "b"]);
        cluster.run_for(secs(1));
        let sleeper = 1 + seed as u32 % 4;
        let first = cluster.peer(sleeper);
        cluster.freeze(sleeper);
        assert!(cluster.run_until(secs(10), |cluster| declared_dead(cluster, sleeper)));
        cluster.run_for(secs(5));
        cluster.thaw(sleeper);
        assert!(cluster.run_until(secs(5), agrees), "seed {seed}");
        let second = cluster.peer(sleeper);
        assert_eq!((second.id, second.generation), (first.id, 1));
        assert_eq!(cluster.joined(sleeper).unwrap().peer, second);
        cluster.run_for(secs(20));
        assert!(agrees(&cluster));
        assert_eq!(cluster.peer(sleeper).generation, 1, "and stays");
        assert_eq!(cluster.ended(sleeper), None, "its master lives");
    }
}

#[test]
fn a_rebirth_severs_both_ways() {
    let mut cluster = grown(3, &["a", "a", "a"]);
    let (master, other) = (cluster.peer(0), cluster.peer(1));
    let side = cluster.node(0).side();
    let dead = Message::DeclaredDead { peer: other, side };
    cluster.forge(1, master, dead);
    assert_eq!(cluster.peer(1).generation, 1);
    assert!(cluster.run_until(secs(2), agrees));
    for node in [0, 2] {
        let dead = |told: &Notice| matches!(told, Notice::Dead(who) if who.peer == other);
        assert!(
            was_told(&cluster, node, dead),
            "the newer generation implies the older one's death"
        );
    }
    // What the old life said late is not heard any more: a request from the dead takes no job with it.
    let program = cluster.program(Program::new(Shape::Flat { jobs: 50 }, ms(100)));
    cluster.start_root(0, program);
    cluster.run_for(secs(1));
    let away = cluster.away(0);
    let steal = Message::Steal {
        request: Request(99),
        most: 9,
        kind: crate::node::RequestKind::Now,
    };
    cluster.forge(0, other, steal);
    assert_eq!(cluster.away(0), away);
    assert!(cluster.run_until(secs(9), |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    assert!(agrees(&cluster));
}

#[test]
fn who_says_goodbye_has_left_and_not_died() {
    let mut cluster = grown(7, &["a", "a", "a", "b", "b"]);
    cluster.run_for(secs(1));
    let peer = cluster.peer(3);
    cluster.leave(3);
    assert_eq!(cluster.ended(3), Some(0));
    assert!(cluster.run_until(ms(100), |cluster| declared_dead(cluster, 3)));
    cluster.run_for(secs(20));
    assert_eq!(deaths(&cluster), 0);
    for node in [0, 1, 2, 4] {
        let left = |told: &Notice| matches!(told, Notice::Left(who) if who.peer == peer);
        assert!(was_told(&cluster, node, left));
    }
}

#[test]
fn goodbyes_that_are_not_heard_are_gossip() {
    // The leaver's word reaches one node only; all others hear from that one that it left.
    let mut cluster = grown(8, &["a", "a", "a", "a"]);
    cluster.run_for(secs(1));
    let peer = cluster.peer(3);
    cluster.forge(1, peer, Message::Goodbye);
    cluster.crash(3);
    assert!(cluster.run_until(secs(1), |cluster| declared_dead(cluster, 3)));
    assert_eq!(deaths(&cluster), 0);
}

#[test]
fn a_lost_connection_is_evidence_and_no_proof() {
    let mut cluster = grown(9, &["a", "a", "b", "b"]);
    cluster.run_for(secs(5));
    for _ in 0..20 {
        for (a, b) in cluster.links() {
            cluster.break_link(a, b, ms(3));
        }
        cluster.run_for(ms(300));
    }
    cluster.run_for(secs(10));
    assert_eq!(deaths(&cluster), 0);
    assert!(agrees(&cluster));
}

#[test]
fn an_idle_pool_says_little() {
    let mut cluster = grown(
        10,
        &[
            "a", "a", "a", "a", "b", "b", "b", "b", "c", "c", "c", "c", "d", "d", "d", "d",
        ],
    );
    cluster.run_for(secs(60));
    let before = cluster.traffic.clone();
    cluster.run_for(secs(60));
    let messages = cluster.traffic.all() - before.all();
    let each = messages as f64 / 16.0 / 60.0;
    assert!(each < 10.0, "{each} messages a second and node");
}

#[test]
fn a_joiner_gives_its_stamp_to_whom_it_met_before() {
    let mut cluster = grown(11, &["a", "a"]);
    let joiner = cluster.join(&ProtocolConfig::default(), "a", 1, 1);
    assert!(cluster.run_until(ms(50), |cluster| {
        let view = cluster.node(1).view();
        let known = view.get(cluster.peer(joiner));
        known.is_some_and(|known| known.stamp != Identity::NOT_YET)
    }));
}

#[test]
fn garbage_from_a_member_changes_nothing() {
    let mut cluster = grown(12, &["a", "a"]);
    let peer = cluster.peer(1);
    for length in 0..200_usize {
        let packet = (0..length).map(|byte| (byte * 31 + length) as u8).collect();
        cluster.forge(0, peer, Message::Gossip(packet));
    }
    cluster.tell(
        0,
        Event::Candidates {
            join: Vec::new(),
            may_found: true,
        },
    );
    cluster.run_for(secs(5));
    assert!(agrees(&cluster));
    assert_eq!(deaths(&cluster), 0);
}

#[test]
fn whatever_happens_to_the_others_all_agree_in_the_end() {
    for seed in 0..40 {
        let mut cluster = grown(seed, &["a", "a", "a", "b", "b", "b", "c", "c"]);
        let mut asleep = BTreeSet::new();
        for round in 0..40 {
            let dice = mix(seed * 1000 + round);
            cluster.run_for(ms(dice % 1500));
            let nodes = u64::from(cluster.nodes());
            let node = 1 + ((dice >> 16) % (nodes - 1)) as u32;
            match (dice >> 32) % 8 {
                0 => cluster.crash(node),
                1 => cluster.leave(node),
                2..=3 if asleep.insert(node) => cluster.freeze(node),
                4..=5 => {
                    if let Some(node) = asleep.pop_first() {
                        cluster.thaw(node);
                    }
                }
                6 if nodes < 20 => {
                    cluster.join(
                        &ProtocolConfig::default(),
                        ["a", "b", "c"][node as usize % 3],
                        1,
                        0,
                    );
                }
                _ => {
                    let links = cluster.links();
                    if let Some((a, b)) = links.get(dice as usize % links.len().max(1)) {
                        cluster.break_link(*a, *b, ms(dice % 100));
                    }
                }
            }
        }
        while let Some(node) = asleep.pop_first() {
            cluster.thaw(node);
        }
        cluster.run_for(secs(30));
        assert!(agrees(&cluster), "seed {seed}");
        let well = |node| cluster.ended(node).is_none_or(|code| code == 0);
        assert!((0..cluster.nodes()).all(well), "nobody lost the master");
        let settled = deaths(&cluster);
        cluster.run_for(secs(30));
        assert_eq!(deaths(&cluster), settled, "and rest is");
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let story = || {
        let mut cluster = grown(13, &["a", "a", "b", "b"]);
        let shape = Shape::Flat { jobs: 10 };
        let program = cluster.program(Program::new(shape, ms(10)));
        cluster.start_root(0, program);
        cluster.crash(2);
        cluster.run_for(secs(20));
        (cluster.steps, format!("{:?}", cluster.traffic))
    };
    assert_eq!(story(), story());
}

/// The sites are apart for so long.
fn apart(cluster: &mut Cluster, time: Duration) {
    cluster.partition("a", "b");
    cluster.run_for(time);
    assert!(!agrees(cluster), "each part sees itself only");
    cluster.heal();
}

#[test]
fn parts_meet_again_however_long_they_were_apart() {
    for seed in 0..2 {
        let mut cluster = grown(seed, &["a", "a", "b", "b"]);
        apart(&mut cluster, secs(700 + 1000 * seed));
        assert!(cluster.run_until(secs(120), agrees), "seed {seed}");
    }
}

#[test]
fn newcomers_look_for_those_who_were_lost_before_they_came() {
    let config = ProtocolConfig::default();
    let mut cluster = grown(3, &["a", "a", "b", "b"]);
    cluster.partition("a", "b");
    cluster.run_for(secs(20));
    let newcomer = cluster.join(&config, "a", 1, 0);
    assert!(cluster.run_until(secs(5), |cluster| cluster.joined(newcomer).is_some()));
    cluster.run_for(secs(5));
    // Of the one part the newcomer alone is left, of whom the other part has never heard.
    cluster.crash(0);
    cluster.crash(1);
    cluster.run_for(secs(60));
    cluster.heal();
    assert!(cluster.run_until(secs(120), agrees));
}

#[test]
fn a_newcomer_whom_the_master_did_not_name_to_the_others_becomes_one_of_them() {
    for seed in 0..8 {
        let mut cluster = grown(seed, &["a", "a", "a"]);
        cluster.cut_ways([(0, 1), (1, 0), (0, 2), (2, 0)]);
        let newcomer = cluster.join(&ProtocolConfig::default(), "a", 1, 0);
        assert!(cluster.run_until(secs(5), |cluster| cluster.joined(newcomer).is_some()));
        assert!(!cluster.node(1).view().is_alive(cluster.peer(newcomer)));
        cluster.leave(0);
        let one_pool = |cluster: &Cluster| {
            let follows = |node| cluster.node(node).view().master();
            agrees(cluster) && follows(newcomer) == follows(1)
        };
        assert!(cluster.run_until(secs(60), one_pool), "seed {seed}");
        let lives = cluster.peer(newcomer).generation;
        assert!(lives <= 1, "{lives} lives one after another, seed {seed}");
    }
}

/// A firewall may say that nobody listens at another site, and be wrong: the nodes there are looked for.
#[test]
fn parts_meet_though_a_firewall_says_that_nobody_is_there() {
    for (seed, cut) in (0..6).zip([3, 5, 10, 20, 40, 90]) {
        let mut cluster = grown(seed, &["a", "a", "a", "b", "b", "b"]);
        cluster.wire.rejects = true;
        cluster.partition("a", "b");
        cluster.run_for(secs(cut));
        cluster.heal();
        let lost = (0..6).filter(|node| cluster.node(*node).view().len() < 6);
        assert!(cut < 10 || lost.count() == 6, "a cut of {cut} s is noticed");
        assert!(cluster.run_until(secs(60), agrees), "after {cut} s");
    }
}

#[test]
fn parts_meet_though_one_of_them_sleeps() {
    for sleeper in 0..4 {
        let mut cluster = grown(u64::from(sleeper), &["a", "a", "b", "b"]);
        cluster.partition("a", "b");
        cluster.run_for(secs(20));
        cluster.freeze(sleeper);
        cluster.run_for(secs(20));
        cluster.heal();
        let awake = |cluster: &Cluster| {
            let awake = || (0..4).filter(|node| *node != sleeper);
            awake().all(|a| {
                let view = cluster.node(a).view();
                awake().all(|b| view.is_alive(cluster.peer(b)))
            })
        };
        assert!(
            cluster.run_until(secs(120), awake),
            "all but {sleeper} meet"
        );
        cluster.thaw(sleeper);
        assert!(cluster.run_until(secs(120), agrees), "and {sleeper} too");
    }
}

#[test]
fn those_who_never_come_back_are_looked_for_without_end_and_at_a_bounded_rate() {
    let mut cluster = grown(6, &["a", "a", "a", "a", "b", "b"]);
    cluster.partition("a", "b");
    cluster.run_for(secs(610));
    let dials = |cluster: &Cluster| (0..4).map(|node| cluster.dials(node)).sum::<u64>();
    let before = dials(&cluster);
    cluster.run_for(secs(900));
    let each = secs(900).as_secs_f64() / (dials(&cluster) - before) as f64;
    assert!(
        (4.0..16.0).contains(&each),
        "an attempt of the part every {each} s"
    );
}

/// They never reach each other, and both followed their own master before there was anybody between them.
#[test]
fn two_who_lost_each_other_for_good_are_one_pool_as_soon_as_somebody_sees_both() {
    for seed in 0..4 {
        let mut cluster = grown(seed, &["a", "a"]);
        cluster.cut_for_good(0, 1);
        let apart = |cluster: &Cluster| (0..2).all(|node| cluster.node(node).view().len() == 1);
        assert!(cluster.run_until(secs(60), apart), "seed {seed}");
        cluster.run_for(secs(60));
        cluster.join(&ProtocolConfig::default(), "a", 1, 0);
        assert!(cluster.run_until(secs(120), agrees), "seed {seed}");
        let masters = (0..3).map(|node| cluster.node(node).view().master());
        assert_eq!(masters.collect::<BTreeSet<_>>().len(), 1, "seed {seed}");
    }
}

/// A side without a master, as that of any node for a while.
const OURS: Side = Side {
    branches: 0,
    term: 0,
    master: None,
    has_master: false,
    members: 2,
};

fn missed(who: &Identity, side: Side) -> Message {
    let who = who.clone();
    Message::Missed { who, side }
}

/// A node of a side that comes over may be let in by both.
#[test]
fn whom_a_side_misses_that_comes_over_lives_on() {
    let mut cluster = grown(5, &["a", "a", "a"]);
    cluster.run_for(secs(5));
    let (seen, from) = (cluster.node(2).view().me().clone(), cluster.peer(1));
    let branch = Side {
        branches: 1,
        term: 1,
        master: Some((9, NodeId(9))),
        has_master: true,
        ..OURS
    };
    cluster.forge(0, from, missed(&seen, branch));
    cluster.run_for(secs(10));
    assert_eq!(cluster.peer(2), seen.peer);
}

/// Between the two there may be no way, and no gossip revives a life that is over.
#[test]
fn who_was_declared_dead_hears_it_from_those_who_see_it() {
    let mut cluster = grown(3, &["a", "a", "a"]);
    cluster.run_for(secs(5));
    let before = cluster.traffic.of(MessageKind::DeclaredDead).all();
    let seen = cluster.node(2).view().me().clone();
    let from = cluster.peer(1);
    cluster.forge(0, from, missed(&seen, OURS));
    let again = |cluster: &Cluster| cluster.peer(2).generation > seen.peer.generation;
    assert!(cluster.run_until(secs(10), again), "it lives on as another");
    assert!(cluster.traffic.of(MessageKind::DeclaredDead).all() > before);
    assert!(cluster.run_until(secs(10), agrees));
}

#[test]
fn whom_only_others_miss_is_looked_for_too() {
    let mut cluster = grown(7, &["a", "a"]);
    cluster.run_for(secs(5));
    let before = cluster.dials(0);
    let mut stranger = cluster.node(1).view().me().clone();
    stranger.peer.id.0 ^= 1 << 100;
    stranger.addr = address(40);
    let from = cluster.peer(1);
    cluster.forge(0, from, missed(&stranger, OURS));
    cluster.run_for(secs(120));
    assert!(cluster.dials(0) > before);
    // But a node whose end is known is not.
    cluster.join(&ProtocolConfig::default(), "a", 1, 0);
    cluster.run_for(secs(5));
    let left = cluster.node(2).view().me().clone();
    cluster.leave(2);
    cluster.run_for(secs(5));
    cluster.forge(1, from, missed(&left, OURS));
    let misses = |node: u32| cluster.node(node).misses().any(|peer| peer == left.peer);
    assert!(!misses(0) && !misses(1));
}
