//! Stories of repair: nodes die and leave, and what is done again is told.

use std::{collections::BTreeSet, time::Duration};

use super::super::{
    Deal, DepartureId, Event, Notice, ProtocolConfig, RepairMode, Rule,
    books::{HERE, HostedState, JobSource},
    cluster::{Cluster, Path, Program, Shape, mix},
};

const LONG: Duration = Duration::from_secs(300);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn tree(height: u32) -> Program {
    let shape = Shape::Knary {
        width: 3,
        height,
        serial: 0,
    };
    Program::new(shape, ms(20))
}

fn any(seed: u64) -> Program {
    let shape = Shape::Random {
        width: 4,
        height: 5,
        races: 10,
    };
    Program::new(shape, ms(20)).seeded(seed)
}

fn config(repair: RepairMode) -> ProtocolConfig {
    ProtocolConfig {
        repair,
        max_crashes: 100,
        ..ProtocolConfig::default()
    }
}

fn begun(cluster: &Cluster) -> u64 {
    (0..cluster.nodes())
        .map(|node| cluster.effort(node).started)
        .sum()
}

/// Nothing is left anywhere of a root job that is over.
fn assert_tidy(cluster: &mut Cluster) {
    cluster.run_for(Duration::from_secs(5));
    for node in (0..cluster.nodes()).filter(|node| cluster.is_alive(*node)) {
        assert!(cluster.node(node).is_settled(), "node {node} has books");
        assert!(cluster.is_empty(node), "node {node} has work");
        // Results of root jobs stay, for a `main` that is started again.
        let mut entries = cluster.node(node).inspect().entries;
        entries.retain(|entry| entry.name.id.depth() > 1);
        assert!(entries.is_empty(), "{entries:?}");
    }
}

/// Jobs begun beyond those that there are, when one of six nodes dies in the middle.
fn done_twice(seed: u64, config: &ProtocolConfig) -> u64 {
    let mut cluster = Cluster::new(seed);
    cluster.form(config, &[("amsterdam", 3), ("delft", 3)], 1);
    let program = cluster.program(tree(7));
    cluster.start_root(0, program);
    cluster.run_for(ms(2000 + 500 * seed));
    let victim = 1 + seed as u32 % 5;
    cluster.crash(victim);
    cluster.declare_dead(victim);
    assert!(cluster.run_until(LONG, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    assert_tidy(&mut cluster);
    begun(&cluster) - cluster.outcome(program).jobs
}

#[test]
fn orphans_that_run_on_save_more_than_finished_ones_and_those_more_than_nothing() {
    let all = |mode| -> u64 { (0..8).map(|seed| done_twice(seed, &config(mode))).sum() };
    let running = all(RepairMode::Running);
    let finished = all(RepairMode::Finished);
    let naive = all(RepairMode::Naive);
    assert!(
        running < finished && finished < naive,
        "running {running}, finished {finished}, naive {naive}"
    );
}

#[test]
fn what_a_buddy_has_copies_of_is_not_done_again() {
    let all = |copy_every| -> u64 {
        let config = ProtocolConfig {
            copy_every,
            ..config(RepairMode::Running)
        };
        (0..8).map(|seed| done_twice(seed, &config)).sum()
    };
    let (never, seldom, often) = (all(Duration::ZERO), all(ms(1000)), all(ms(50)));
    assert!(
        3 * often < never && often < seldom && seldom < never,
        "without copies {never}, each second {seldom}, each 50 ms {often}"
    );
}

#[test]
fn whoever_dies_when_the_result_is_right_and_nothing_is_left() {
    for seed in 0..200 {
        let mut cluster = Cluster::new(seed);
        let threads = 1 + seed as u32 % 2;
        let mode = match seed % 5 {
            0 => RepairMode::Naive,
            1 => RepairMode::Finished,
            _ => RepairMode::Running,
        };
        cluster.form(&config(mode), &[("amsterdam", 3), ("delft", 2)], threads);
        let program = cluster.program(any(seed));
        cluster.start_root(0, program);
        let mut dead = BTreeSet::new();
        for turn in 0..3 {
            cluster.run_for(ms(10 + (seed * 37 + turn * 91) % 300));
            let victim = 1 + (seed + turn) as u32 % 4;
            if turn < 1 + seed % 3 && dead.insert(victim) {
                cluster.crash(victim);
                cluster.declare_dead(victim);
            }
        }
        let done = cluster.run_until(LONG, |cluster| cluster.is_done(0));
        assert!(done, "seed {seed} hangs");
        cluster.check(0, &[program]);
        assert_tidy(&mut cluster);
    }
}

#[test]
fn an_orphan_that_runs_is_claimed_and_not_done_again() {
    let mut claims = 0;
    let mut hits = 0;
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        cluster.form(&config(RepairMode::Running), &[("here", 4)], 1);
        let program = cluster.program(tree(6));
        cluster.start_root(0, program);
        cluster.run_for(ms(700));
        cluster.crash(1);
        cluster.declare_dead(1);
        assert!(cluster.run_until(LONG, |cluster| cluster.is_done(0)));
        cluster.check(0, &[program]);
        for node in [0, 2, 3] {
            let tally = cluster.node(node).tally();
            claims += tally.claims;
            hits += tally.hits;
        }
    }
    assert!(hits > 0 && hits * 2 > claims, "{hits} of {claims}");
}

/// The jobs that nodes wait for and that workers elsewhere run, each with the number of nodes it passed; 0 for a claim at the very node.
fn waited_for(cluster: &Cluster) -> BTreeSet<(u32, DepartureId, u32)> {
    let alive = |node: &u32| cluster.is_alive(*node);
    let mut found = BTreeSet::new();
    for node in (0..cluster.nodes()).filter(alive) {
        let books = &cluster.node(node).books;
        for deal in books.all_away() {
            let away = books.look_away(deal).expect("it is away");
            let JobSource::Own(departure) = away.source else {
                continue;
            };
            let (mut waits, mut at, mut passed) = (node, deal, 0);
            loop {
                let (host, deal) = match at.peer == HERE {
                    true => (waits, at),
                    false => {
                        let waiter = cluster.peer(waits);
                        passed += 1;
                        (cluster.index(at.peer), Deal::new(waiter, at.token))
                    }
                };
                let books = &cluster.node(host).books;
                let Some(hosted) = books.key(deal).and_then(|key| books.look(key)) else {
                    break;
                };
                match &hosted.state {
                    HostedState::Started if alive(&host) => {
                        found.insert((node, departure, passed));
                        break;
                    }
                    HostedState::Onwards(next, _) => (waits, at) = (host, *next),
                    _ => break,
                }
            }
        }
    }
    found
}

/// Each node tells how far its hosted jobs are. All that wait for one must hear of it; returns those who waited.
fn tell_parts(cluster: &mut Cluster, way: Duration) -> BTreeSet<(u32, DepartureId, u32)> {
    let before = waited_for(cluster);
    for node in (0..cluster.nodes())
        .filter(|node| cluster.is_alive(*node))
        .collect::<Vec<_>>()
    {
        let parts = cluster.at_work(node).map(|job| (job, 1)).collect();
        cluster.tell(node, Event::PartsDone(parts));
    }
    cluster.run_for(way);
    let after = waited_for(cluster);
    let waits: BTreeSet<_> = before.intersection(&after).copied().collect();
    for (node, departure, passed) in &waits {
        let told = cluster.parts_done(*node).contains_key(departure);
        assert!(
            told,
            "node {node} waits for {departure:?}, {passed} nodes away"
        );
    }
    waits
}

#[test]
fn the_origin_of_a_job_that_went_onwards_hears_how_far_it_is() {
    let mut onwards = 0;
    let mut cluster = Cluster::new(1);
    cluster.wire.far = Path::new(ms(100));
    cluster.form(
        &config(RepairMode::Running),
        &[("here", 1), ("there", 4)],
        1,
    );
    let program = cluster.program(Program::new(Shape::Flat { jobs: 500 }, ms(1000)));
    cluster.start_root(0, program);
    for _ in 0..20 {
        cluster.run_for(ms(500));
        let waits = tell_parts(&mut cluster, ms(150));
        onwards += waits.iter().filter(|(.., passed)| *passed > 1).count();
    }
    assert!(onwards > 0, "nothing went onwards");
}

#[test]
fn a_job_that_kills_its_hosts_is_given_up() {
    let mut cluster = Cluster::new(1);
    let config = ProtocolConfig {
        max_crashes: 3,
        ..config(RepairMode::Running)
    };
    cluster.form(&config, &[("here", 5)], 1);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 2 }, ms(10_000)));
    cluster.start_root(0, program);
    for _ in 0..3 {
        assert!(cluster.run_until(LONG, |cluster| {
            (1..5).any(|node| cluster.is_alive(node) && cluster.at_work(node).next().is_some())
        }));
        let host = (1..5)
            .find(|node| cluster.is_alive(*node) && cluster.at_work(*node).next().is_some())
            .expect("somebody has it");
        cluster.crash(host);
        cluster.declare_dead(host);
        assert!(cluster.panics(0).is_empty());
    }
    assert!(cluster.run_until(LONG, |cluster| !cluster.panics(0).is_empty()));
    let story = &cluster.panics(0)[0];
    assert!(
        story.contains("3 nodes died") && story.contains("SATIN_MAX_CRASHES"),
        "{story}"
    );
}

#[test]
fn who_drains_hands_over_what_is_finished_and_leaves() {
    let mut again = 0;
    for seed in 0..40 {
        let mut cluster = Cluster::new(seed);
        let sites = [("amsterdam", 3), ("delft", 2)];
        cluster.form(&config(RepairMode::Running), &sites, 1 + seed as u32 % 2);
        let program = cluster.program(tree(6));
        cluster.start_root(0, program);
        cluster.run_for(ms(300 + seed * 20));
        let grace = ms(if seed % 2 == 0 { 5000 } else { 50 });
        let leaver = 1 + seed as u32 % 4;
        cluster.tell(leaver, Event::Drain(grace));
        let out = cluster.run_until(grace + ms(20), |cluster| !cluster.is_alive(leaver));
        assert!(out, "seed {seed}: it is still there");
        assert_eq!(cluster.ended(leaver), Some(0));
        assert!(cluster.run_until(LONG, |cluster| cluster.is_done(0)));
        cluster.check(0, &[program]);
        assert_tidy(&mut cluster);
        let left = |notice: &Notice| matches!(notice, Notice::Left(_));
        assert!(cluster.notices(0).iter().any(left));
        let dead = |notice: &Notice| matches!(notice, Notice::Dead(_));
        assert!(!cluster.notices(0).iter().any(dead));
        if seed % 2 == 0 {
            again += begun(&cluster) - cluster.outcome(program).jobs;
        }
    }
    assert!(
        again < 40,
        "{again} jobs were done again in spite of a long grace"
    );
}

#[test]
fn a_site_drains_at_once() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        cluster.form(
            &config(RepairMode::Running),
            &[("amsterdam", 2), ("delft", 3)],
            1,
        );
        let program = cluster.program(tree(6));
        cluster.start_root(0, program);
        cluster.run_for(ms(400 + seed * 31));
        for node in 2..5 {
            cluster.tell(node, Event::Drain(ms(400)));
        }
        let out = |cluster: &Cluster| (2..5).all(|node| !cluster.is_alive(node));
        assert!(cluster.run_until(ms(430), out), "seed {seed}");
        assert!(cluster.run_until(LONG, |cluster| cluster.is_done(0)));
        cluster.check(0, &[program]);
        assert_tidy(&mut cluster);
    }
}

#[test]
fn without_claims_being_withdrawn_some_runs_wait_for_ever() {
    let runs = |without: &[Rule]| {
        let mut hung = 0;
        for seed in 0..150 {
            let mut config = config(RepairMode::Running);
            config.without = without.iter().copied().collect();
            let mut cluster = Cluster::new(seed);
            cluster.form(&config, &[("here", 2 + seed as u32 % 3)], 1);
            let program = cluster.program(any(seed));
            cluster.start_root(0, program);
            for turn in 0..2 {
                cluster.run_for(ms(20 + (seed * 53 + turn * 17) % 200));
                let node = 1 + (seed + turn) as u32 % (cluster.nodes() - 1);
                if cluster.is_alive(node) {
                    cluster.crash(node);
                    cluster.declare_dead(node);
                }
                let config = config.clone();
                cluster.join(&config, "here", 1, 0);
            }
            let limit = Duration::from_secs(60);
            hung += u32::from(!cluster.run_until(limit, |cluster| cluster.is_done(0)));
        }
        hung
    };
    assert_eq!(runs(&[]), 0);
    assert!(runs(&[Rule::Withdraw]) > 0);
}

#[test]
fn what_is_kept_does_not_grow_with_the_number_of_departures() {
    for seed in 0..6 {
        let config = config(RepairMode::Running);
        let mut cluster = Cluster::new(seed);
        cluster.form(&config, &[("here", 6)], 1);
        let program = cluster.program(Program {
            leaf: ms(25),
            ..tree(9)
        });
        cluster.set_main_everywhere(&[program], None);
        for round in 0..60 {
            cluster.run_for(ms(1800));
            if !cluster.endings().is_empty() {
                break;
            }
            let (kept, unsettled) = (cluster.kept(), cluster.unsettled());
            // Near the end few jobs are under way.
            assert!(
                kept <= 4 * unsettled.max(25),
                "seed {seed}: after {round} departures {kept} results are kept, and {unsettled} jobs are under way"
            );
            // Any of them, also the master.
            let here: Vec<u32> = (0..cluster.nodes())
                .filter(|node| cluster.is_alive(*node))
                .collect();
            let leaver = here[mix(seed << 32 | round) as usize % here.len()];
            let stays = here.iter().find(|node| **node != leaver);
            cluster.join(&config, "here", 1, *stays.expect("there are six"));
            cluster.tell(leaver, Event::Drain(Duration::from_secs(1)));
        }
    }
}
