//! Forced schedules: the turns of events that weaker rules do not survive, each by name.

use std::{collections::BTreeSet, fs, path::Path as FilePath, thread, time::Duration};

use satin_runtime::{
    job::{Fingerprint, History, JobId, JobName, Parcel},
    node::{
        Event, Message, Notice, Peer, ProtocolConfig, Request, RequestKind, Rule, Token,
        cluster::{Cluster, FlowForm, MainIs, Path, Program, Shape},
        inspect::{InspectedStage, OutstandingKind},
    },
};
use strum::VariantArray;

use common::{LONG, UNEVEN, main_ends_well, running};

mod common;

fn config() -> ProtocolConfig {
    ProtocolConfig {
        probe_period: Duration::from_millis(100),
        suspicion: Duration::from_millis(400),
        claim_patience: Duration::from_millis(50),
        max_crashes: 1000,
        ..ProtocolConfig::default()
    }
}

/// A pool with one worker each, whose master computes a tree.
fn pool(seed: u64, nodes: u32, config: &ProtocolConfig) -> Cluster {
    pool_for(UNEVEN, seed, nodes, config)
}

fn pool_for(shape: Shape, seed: u64, nodes: u32, config: &ProtocolConfig) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.count_runs();
    cluster.wire.idle_timeout = Duration::from_millis(600);
    cluster.form(config, &[("here", nodes)], 1);
    let program = Program::new(shape, Duration::from_millis(20)).seeded(seed);
    let program = cluster.program(program);
    cluster.set_main_everywhere(&[program], None);
    cluster
}

/// Does `thief` run something that it stole from `victim`?
fn hosts(cluster: &Cluster, thief: u32, victim: u32) -> bool {
    let victim = cluster.peer(victim);
    cluster.node(thief).inspect().hosted.iter().any(|hosted| {
        let waits = hosted.waiters.iter().any(|deal| deal.peer == victim);
        waits && hosted.stage == InspectedStage::Started
    })
}

/// Main comes to its end with the right answer, nothing is left, and the pool ends.
fn ends_well(cluster: &mut Cluster) {
    main_ends_well(cluster, &[0]);
}

/// So many seeds, each with a turn of events that must come about in most of them.
fn often(nodes: u32, config: &ProtocolConfig, mut story: impl FnMut(&mut Cluster) -> bool) {
    let mut told = 0;
    for seed in 0..60 {
        let mut cluster = pool(seed, nodes, config);
        if story(&mut cluster) {
            told += 1;
            ends_well(&mut cluster);
        }
    }
    assert!(told >= 20, "it came to that in {told} of 60 seeds");
}

#[test]
fn two_nodes_with_one_worker_each_and_one_dies() {
    often(2, &config(), |cluster| {
        let steals = |cluster: &Cluster| hosts(cluster, 1, 0);
        let stolen = cluster.run_until(LONG, steals);
        cluster.crash(1);
        stolen
    });
}

/// The origin of a job steals from its thief, so the job's child runs on top of what waits for the job. Then the thief dies:
/// the child is an orphan on the very node that does the job again.
#[test]
fn an_ancestor_is_stolen_from_below_and_orphan_and_repair_meet_on_one_node() {
    let mut claimed = 0;
    often(2, &config(), |cluster| {
        let both = |cluster: &Cluster| hosts(cluster, 1, 0) && hosts(cluster, 0, 1);
        let stolen = cluster.run_until(LONG, both);
        cluster.crash(1);
        let dead = |cluster: &Cluster| cluster.node(0).view().len() == 1;
        let noticed = cluster.run_until(LONG, dead);
        claimed += u32::from(!cluster.node(0).inspect().entries.is_empty());
        stolen && noticed
    });
    assert!(
        claimed > 0,
        "an orphan was there when its origin was found dead"
    );
}

/// Its thief's thief goes on, and its origin claims what it computes.
#[test]
fn what_was_stolen_from_the_dead_is_not_done_again() {
    let mut claims = 0;
    often(3, &config(), |cluster| {
        let chain = |cluster: &Cluster| hosts(cluster, 1, 0) && hosts(cluster, 2, 1);
        let stolen = cluster.run_until(LONG, chain);
        cluster.crash(1);
        if stolen {
            let over = |cluster: &Cluster| cluster.main_of(0) == MainIs::Over;
            assert!(cluster.run_until(LONG, over));
            claims += cluster.effort(0).claims;
        }
        stolen
    });
    assert!(claims > 0);
}

/// A thief goes whose own thief goes on, in a slow network: so often is the repair found to have an orphan, and claims it.
fn claims_after_chains(config: &ProtocolConfig, seeds: u64, go: impl Fn(&mut Cluster)) -> u32 {
    let mut claims = 0;
    for seed in 0..seeds {
        let mut cluster = pool(seed, 4, config);
        cluster.wire.near = Path::new(Duration::from_millis(60));
        let chain = |cluster: &Cluster| hosts(cluster, 1, 0) && hosts(cluster, 2, 1);
        let stolen = cluster.run_until(LONG, chain);
        go(&mut cluster);
        ends_well(&mut cluster);
        // Who does the job again may be anybody.
        let all = (0..4).map(|node| cluster.effort(node).claims as u32);
        claims += u32::from(stolen) * all.sum::<u32>();
    }
    claims
}

/// Rules without which the answer is as right, and work is done twice: too little of it for the random schedules to tell soon.
#[test]
fn without_its_rules_repair_finds_fewer_orphans() {
    let crash = |cluster: &mut Cluster| cluster.crash(1);
    // What is left to others waits until all have flushed anyhow. Nobody is there to take it if the others are about to leave.
    let crash_among_leavers = |cluster: &mut Cluster| {
        let drain = Event::Drain(Duration::from_secs(30));
        cluster.tell(2, drain.clone());
        cluster.tell(3, drain);
        cluster.run_for(Duration::from_millis(40));
        cluster.crash(1);
    };
    for rule in [Rule::Mark, Rule::Inherit, Rule::Flushed, Rule::Announce] {
        let claims = |config: &ProtocolConfig| match rule {
            // There is less to be found.
            Rule::Flushed => claims_after_chains(config, 400, crash_among_leavers),
            _ => claims_after_chains(config, 60, crash),
        };
        let without = ProtocolConfig {
            without: [rule].into(),
            ..config()
        };
        let (all, without) = thread::scope(|scope| {
            let all = scope.spawn(|| claims(&config()));
            let without = claims(&without);
            (all.join().expect("no panic"), without)
        });
        println!("{rule:?}: {without} claims, {all} with all rules");
        assert!(10 * without < 9 * all, "{rule:?}: {without} of {all}");
    }
}

/// Milliseconds computed beyond what these programs need.
fn done_twice(cluster: &Cluster, programs: &[u32]) -> u64 {
    let busy: Duration = (0..cluster.nodes())
        .map(|node| cluster.effort(node).busy)
        .sum();
    let needed: Duration = programs
        .iter()
        .map(|program| cluster.outcome(*program).time)
        .sum();
    busy.saturating_sub(needed).as_millis() as u64
}

/// Tells a story with all rules, and without that one. It says what came of it in each of the seeds in which it came to that; the sums.
fn with_and_without(
    rule: Rule,
    story: impl Fn(u64, &ProtocolConfig) -> Option<u64> + Sync,
) -> [u64; 2] {
    const SEEDS: u64 = 40;
    let sum = |without: &[Rule]| {
        let config = ProtocolConfig {
            without: without.iter().copied().collect(),
            // Copies at a neighbour would serve as well.
            copy_every: Duration::ZERO,
            // Nobody does what it has claimed, because that takes long.
            claim_patience: Duration::from_secs(5),
            ..config()
        };
        let told: Vec<u64> = (0..SEEDS).filter_map(|seed| story(seed, &config)).collect();
        let times = told.len() as u64;
        assert!(times >= SEEDS / 3, "{rule}: {times} of {SEEDS} seeds");
        told.iter().sum()
    };
    let sums = thread::scope(|scope| {
        let with = scope.spawn(|| sum(&[]));
        let without = sum(&[rule]);
        [with.join().expect("no panic"), without]
    });
    println!("{rule}: {} with it, {} without", sums[0], sums[1]);
    sums
}

/// A tree that is halved at each level. Its 512 leaves take 5 ms each.
const HALVES: Shape = Shape::Knary {
    width: 2,
    height: 9,
    serial: 0,
};

/// A pool whose master computes that tree.
fn pool_of_halves(seed: u64, nodes: u32, threads: u32, config: &ProtocolConfig) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.wire.idle_timeout = Duration::from_millis(600);
    cluster.form(config, &[("here", nodes)], threads);
    let program = Program::new(HALVES, Duration::from_millis(5)).seeded(seed);
    let program = cluster.program(program);
    cluster.set_main_everywhere(&[program], None);
    cluster
}

/// A leaf of the first root job, as that node would send it.
fn leaf_of(owner: Peer, name: JobName, root: Fingerprint) -> Parcel {
    Parcel {
        id: name.id,
        function: 0,
        arguments: vec![0; 24].into(),
        fingerprint: name.fingerprint,
        needs: Vec::new(),
        lent: Vec::new(),
        keeps: false,
        owner: owner.id.0,
        term: 0,
        root,
        history: History::default(),
    }
}

/// A theft of that job, under a token that no other theft has.
fn jobs(parcel: Parcel) -> Message {
    Message::Jobs {
        request: Request(1000),
        jobs: vec![(Token(1 << 40), parcel)],
        left: 0,
        sent_ms: 0,
    }
}

/// Rule `Liveness`: a job was under way when its sender died, and comes when that death has been dealt with. Without the rule it stays in the
/// books: nobody will say that it is not waited for.
#[test]
fn a_job_of_the_dead_is_not_taken_in() {
    let stays = |without: &[Rule]| {
        let config = ProtocolConfig {
            without: without.iter().copied().collect(),
            ..config()
        };
        let mut cluster = pool(1, 3, &config);
        let dead = cluster.peer(2);
        cluster.crash(2);
        let is_known = |cluster: &Cluster| !cluster.node(1).view().is_alive(dead);
        assert!(cluster.run_until(LONG, is_known));
        let name = JobName::new(JobId::ROOT.child(0).child(100), Fingerprint(7));
        cluster.forge(1, dead, jobs(leaf_of(dead, name, Fingerprint(8))));
        let is_of_the_dead = |cluster: &Cluster| {
            let hosted = cluster.node(1).inspect().hosted;
            let mut waiters = hosted.iter().flat_map(|hosted| &hosted.waiters);
            waiters.any(|deal| deal.peer == dead)
        };
        let is_over = |cluster: &Cluster| cluster.main_of(0) == MainIs::Over;
        assert!(cluster.run_until(LONG, is_over));
        cluster.run_for(LONG);
        let stays = is_of_the_dead(&cluster);
        if !stays {
            ends_well(&mut cluster);
        }
        stays
    };
    assert_eq!([stays(&[]), stays(&[Rule::Liveness])], [false, true]);
}

/// Rule `Have`: the host of a job dies that had got it from the master, and whose own thief goes on. The master begins the job anew, and gives
/// the thief the very child that it has, before the thief's word of that is there.
#[test]
fn what_a_node_runs_already_it_does_not_run_a_second_time_beside() {
    let story = |seed: u64, config: &ProtocolConfig| {
        let mut cluster = Cluster::new(seed);
        cluster.wire.idle_timeout = Duration::from_millis(600);
        cluster.form(config, &[("here", 3)], 2);
        let program = Program::new(HALVES, Duration::from_millis(5)).seeded(seed);
        let root = program.root().fingerprint();
        let program = cluster.program(program);
        cluster.set_main_everywhere(&[program], None);
        let chain = |cluster: &Cluster| hosts(cluster, 1, 0) && hosts(cluster, 2, 1);
        if !cluster.run_until(LONG, chain) {
            return None;
        }
        cluster.set_slowness(2, 1e4);
        let (master, dead) = (cluster.peer(0), cluster.peer(1));
        let hosted = cluster.node(2).inspect().hosted;
        let mut of_the_dead = hosted.iter().filter(|hosted| {
            hosted.stage == InspectedStage::Started
                && hosted.waiters.iter().any(|deal| deal.peer == dead)
        });
        let name = of_the_dead.next()?.name.clone();
        cluster.crash(1);
        let is_known = |cluster: &Cluster| !cluster.node(2).view().is_alive(dead);
        assert!(cluster.run_until(LONG, is_known));
        let again = Parcel {
            history: History {
                marked: true,
                crashes: 0,
            },
            ..leaf_of(master, name.clone(), root)
        };
        cluster.forge(2, master, jobs(again));
        let hosted = cluster.node(2).inspect().hosted;
        let runs = hosted
            .iter()
            .filter(|hosted| hosted.stage == InspectedStage::Started && hosted.name == name);
        let runs = runs.count() as u64;
        cluster.set_slowness(2, 1.0);
        ends_well(&mut cluster);
        // Another node may have taken it onwards.
        runs.checked_sub(1)
    };
    let [with, without] = with_and_without(Rule::Have, story);
    assert!(with == 0 && without >= 5, "{with} {without}");
}

/// Rule `Disown`: a node that leaves has a thief, which goes on. Who waits for the job of the one that leaves does it again, and finds that.
#[test]
fn what_others_do_for_a_node_that_leaves_is_not_done_again() {
    let story = |seed: u64, config: &ProtocolConfig| {
        let mut cluster = pool_of_halves(seed, 3, 1, config);
        let chain = |cluster: &Cluster| hosts(cluster, 1, 0) && hosts(cluster, 2, 1);
        let stolen = cluster.run_until(LONG, chain);
        cluster.run_for(Duration::from_millis(100));
        let stolen = stolen && chain(&cluster);
        cluster.tell(1, Event::Drain(Duration::from_millis(100)));
        ends_well(&mut cluster);
        stolen.then(|| done_twice(&cluster, &[0]))
    };
    let [with, without] = with_and_without(Rule::Disown, story);
    assert!(2 * with < without, "{with} {without}");
}

/// Rule `Disown`, of the master: what its thieves have of `main` is for the `main` that is run next. (Where that begins on top of an orphan, on
/// the stack of one worker, the orphan is done again elsewhere all the same. So there are several workers.)
#[test]
fn what_others_do_for_a_main_that_yields_is_not_done_again() {
    let story = |seed: u64, config: &ProtocolConfig| {
        let mut cluster = pool_of_halves(seed, 3, 3, config);
        let stolen = |cluster: &Cluster| hosts(cluster, 1, 0) && hosts(cluster, 2, 0);
        let is_stolen = cluster.run_until(LONG, stolen);
        cluster.run_for(Duration::from_millis(100));
        let is_stolen = is_stolen && stolen(&cluster);
        cluster.tell(0, Event::Drain(Duration::from_millis(100)));
        ends_well(&mut cluster);
        is_stolen.then(|| done_twice(&cluster, &[0]))
    };
    let [with, without] = with_and_without(Rule::Disown, story);
    assert!(4 * with < 3 * without, "{with} {without}");
}

/// Rule `Save`: a node that leaves is in the midst of a job, some of whose children are done.
#[test]
fn what_is_finished_of_a_job_that_is_given_up_is_not_done_again() {
    let story = |seed: u64, config: &ProtocolConfig| {
        let mut cluster = pool_of_halves(seed, 2, 1, config);
        let stolen = cluster.run_until(LONG, |cluster| hosts(cluster, 1, 0));
        cluster.run_for(Duration::from_millis(300));
        let stolen = stolen && hosts(&cluster, 1, 0);
        cluster.tell(1, Event::Drain(Duration::from_millis(100)));
        ends_well(&mut cluster);
        stolen.then(|| done_twice(&cluster, &[0]))
    };
    let [with, without] = with_and_without(Rule::Save, story);
    assert!(2 * with < without, "{with} {without}");
}

/// Rule `Replicate`: the master dies in its second root job. The result of the first is with others, for the next `main`.
#[test]
fn a_root_job_that_was_done_is_not_done_again_by_the_next_main() {
    let story = |seed: u64, config: &ProtocolConfig| {
        let mut cluster = Cluster::new(seed);
        cluster.wire.idle_timeout = Duration::from_millis(600);
        cluster.form(config, &[("here", 3)], 1);
        let programs = [seed, !seed].map(|seed| {
            let program = Program::new(HALVES, Duration::from_millis(5)).seeded(seed);
            cluster.program(program)
        });
        cluster.set_main_everywhere(&programs, None);
        let second = |cluster: &Cluster| {
            let hosted = cluster.node(1).inspect().hosted;
            hosted
                .iter()
                .any(|hosted| hosted.name.id.root_number() == 1)
        };
        let second = cluster.run_until(LONG, second);
        cluster.crash(0);
        main_ends_well(&mut cluster, &programs);
        second.then(|| done_twice(&cluster, &programs))
    };
    let [with, without] = with_and_without(Rule::Replicate, story);
    assert!(4 * with < without, "{with} {without}");
}

#[test]
fn a_request_of_the_dead_takes_no_job_along() {
    let mut cluster = pool(1, 3, &config());
    let dead = cluster.peer(2);
    cluster.crash(2);
    let is_known = |cluster: &Cluster| !cluster.node(0).view().is_alive(dead);
    assert!(cluster.run_until(LONG, is_known));
    for request in 0..20 {
        cluster.forge(
            0,
            dead,
            Message::Steal {
                request: Request(1000 + request),
                most: 1,
                kind: match request % 2 == 0 {
                    true => RequestKind::Lifeline,
                    false => RequestKind::Now,
                },
            },
        );
        cluster.run_for(Duration::from_millis(5));
        let outstanding = cluster.node(0).inspect().outstanding;
        assert!(outstanding.iter().all(|away| away.peer != dead));
    }
    ends_well(&mut cluster);
}

/// A node that was declared dead while others ran its jobs, and it ran theirs, comes back as another.
#[test]
fn a_node_is_reborn_with_jobs_outstanding_and_hosted() {
    let mut reborn = 0;
    often(3, &config(), |cluster| {
        let between = |cluster: &Cluster| {
            let thefts = cluster.node(1).inspect().outstanding;
            hosts(cluster, 1, 0)
                && thefts
                    .iter()
                    .any(|away| away.kind == OutstandingKind::Theft)
        };
        let stolen = cluster.run_until(LONG, between);
        let peer = cluster.peer(1);
        cluster.freeze(1);
        let given_up = |cluster: &Cluster| {
            [0, 2]
                .iter()
                .all(|node| !cluster.node(*node).view().is_alive(peer))
        };
        let stolen = stolen && cluster.run_until(LONG, given_up);
        cluster.thaw(1);
        let anew = |cluster: &Cluster| cluster.peer(1) != peer;
        reborn += u32::from(stolen && cluster.run_until(LONG, anew));
        stolen
    });
    assert!(reborn >= 15, "{reborn}");
}

/// A host of a long job pauses until all have given it up. What becomes of the job: is it run once, and its result claimed, or a
/// second time? That of `times` such pauses in which the host went on as the next generation.
fn runs_twice_after_rebirth(config: &ProtocolConfig) -> (u32, u32) {
    let (mut times, mut twice) = (0, 0);
    for seed in 0..40 {
        let shape = Shape::Flat { jobs: 2 };
        let mut cluster = Cluster::new(seed);
        cluster.count_runs();
        cluster.wire.idle_timeout = Duration::from_millis(600);
        cluster.form(config, &[("here", 2)], 1);
        // Both leaves last longer than the pause: the job that comes back waits until the other is done.
        let program = Program::new(shape, Duration::from_secs(8)).seeded(seed);
        let program = cluster.program(program);
        cluster.set_main_everywhere(&[program], None);
        assert!(cluster.run_until(LONG, |cluster| hosts(cluster, 1, 0)));
        let peer = cluster.peer(1);
        cluster.freeze(1);
        let alone = |cluster: &Cluster| !cluster.node(0).view().is_alive(peer);
        assert!(cluster.run_until(LONG, alone), "the other has given it up");
        cluster.thaw(1);
        assert!(cluster.run_until(LONG, |cluster| cluster.peer(1) != peer));
        times += 1;
        ends_well(&mut cluster);
        let runs = cluster.runs().expect("they are counted");
        twice += u32::from(runs.values().any(|runs| *runs > 1));
    }
    (times, twice)
}

/// Rule `Rebirth`: who goes on as the next generation has orphans, too, and those who gave it up claim them. Without it, it
/// goes on for nobody. (What it waits for itself comes back in any case, once the lists of both sides are compared.)
#[test]
fn what_a_reborn_node_runs_is_not_run_again() {
    let with = runs_twice_after_rebirth(&config());
    let without = runs_twice_after_rebirth(&ProtocolConfig {
        without: [Rule::Rebirth].into(),
        ..config()
    });
    println!("{with:?} {without:?}");
    assert!(with.1 <= with.0 / 4, "{with:?}");
    assert!(without.1 >= without.0 / 2, "{without:?}");
}

#[test]
fn a_master_dies_and_what_its_thieves_do_is_used() {
    let mut claims = 0;
    often(3, &config(), |cluster| {
        let stolen =
            cluster.run_until(LONG, |cluster| hosts(cluster, 1, 0) && hosts(cluster, 2, 0));
        cluster.crash(0);
        let over = |cluster: &Cluster| (1..3).any(|node| cluster.main_of(node) == MainIs::Over);
        assert!(cluster.run_until(LONG, over), "another runs main");
        claims += cluster.effort(1).claims + cluster.effort(2).claims;
        stolen
    });
    assert!(claims >= 15, "{claims}");
}

/// Flows side by side, so that there is always something for others.
const FLOW: Shape = Shape::Flow {
    form: Some(FlowForm::Chains),
    width: 5,
    steps: 5,
    height: 1,
};

/// The master dies while others run tasks of its flow. How many of those does the flow find that the next master begins anew, all seeds
/// together?
fn tasks_found_again(without: &[Rule]) -> u64 {
    let config = ProtocolConfig {
        without: without.iter().copied().collect(),
        ..config()
    };
    let mut found = 0;
    for seed in 0..40 {
        let mut cluster = pool_for(FLOW, seed, 3, &config);
        let stolen = |cluster: &Cluster| hosts(cluster, 1, 0) && hosts(cluster, 2, 0);
        assert!(cluster.run_until(LONG, stolen));
        cluster.crash(0);
        ends_well(&mut cluster);
        let nodes = 1..3;
        found += nodes
            .map(|node| cluster.flows_seen(node).found)
            .sum::<u64>();
    }
    found
}

#[test]
fn the_node_of_a_flow_dies_and_its_tasks_are_found_again() {
    let all = tasks_found_again(&[]);
    assert!(all >= 40, "{all} tasks of 80 were found");
    assert_eq!(tasks_found_again(&[Rule::LookUpTasks]), 0);
}

/// The second time the flow has other data, so in the places of its tasks are others: what is known of the old ones is of no use.
#[test]
fn a_flow_with_other_data_takes_no_old_result() {
    let wrong = |without: &[Rule]| {
        let config = ProtocolConfig {
            without: without.iter().copied().collect(),
            ..config()
        };
        let mut wrong = 0;
        for seed in 0..60 {
            let mut cluster = Cluster::new(seed);
            cluster.wire.idle_timeout = Duration::from_millis(600);
            cluster.form(&config, &[("here", 3)], 1);
            let mut program = Program::new(FLOW, Duration::from_millis(20)).seeded(seed);
            program.changing = true;
            let program = cluster.program(program);
            cluster.set_main_everywhere(&[program], None);
            let stolen = |cluster: &Cluster| hosts(cluster, 1, 0) && hosts(cluster, 2, 0);
            assert!(cluster.run_until(LONG, stolen));
            cluster.crash(0);
            let over = |cluster: &Cluster| (1..3).any(|node| cluster.main_of(node) == MainIs::Over);
            assert!(cluster.run_until(LONG, over));
            let right = cluster.outcome(program).result;
            wrong += u32::from(cluster.endings()[0].results != [right]);
        }
        wrong
    };
    assert_eq!(wrong(&[]), 0);
    assert!(wrong(&[Rule::TaskPrint]) > 5);
}

/// A pool falls apart, and both parts have a main. The one that is going to yield cancels its root job and calls another, which
/// the main that comes to its end never does. Nodes keep what belongs to it, as a main may still call it; and no longer than
/// that.
#[test]
fn what_belongs_to_a_root_job_of_the_main_that_yields_goes_when_the_other_has_called_as_many() {
    let config = ProtocolConfig {
        partition_wait: Duration::from_secs(2),
        ..config()
    };
    let shape = Shape::Knary {
        width: 3,
        height: 4,
        serial: 0,
    };
    let mut kept = 0;
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        cluster.wire.idle_timeout = Duration::from_millis(600);
        cluster.form(&config, &[("a", 2), ("b", 3)], 1);
        let program = Program::new(shape, Duration::from_secs(1)).seeded(seed);
        let program = cluster.program(program);
        cluster.set_main_everywhere(&[program], None);
        cluster.run_for(Duration::from_secs(1));
        cluster.partition("a", "b");
        let is_elected =
            |cluster: &Cluster| (2..5).any(|node| cluster.main_of(node) == MainIs::Running);
        assert!(cluster.run_until(LONG, is_elected), "the others elect");
        assert!(cluster.cancel_root(0), "the first main is under way");
        let works_for_second = |cluster: &Cluster| {
            let hosted = cluster.node(1).inspect().hosted;
            hosted.iter().any(|hosted| {
                let root = hosted.name.id.root_number();
                root == 1 && hosted.stage == InspectedStage::Started
            })
        };
        assert!(cluster.run_until(LONG, works_for_second));
        cluster.heal();
        let is_over = |cluster: &Cluster| {
            let is = |is| running(cluster).any(|node| cluster.main_of(node) == is);
            is(MainIs::Over) && !is(MainIs::Running)
        };
        assert!(cluster.run_until(LONG, is_over));
        cluster.run_for(LONG);
        let left = running(&cluster).map(|node| cluster.node(node).inspect().under_way());
        kept += u32::from(left.sum::<usize>() > 0);
        cluster.outlast_other_mains();
        ends_well(&mut cluster);
    }
    // Without that the story would tell nothing. (The nodes that come over forget most of it at once.)
    assert!(kept >= 5, "something was kept in {kept} of 20 seeds");
}

/// Workers with room for one or two frames: each of two nodes has taken in what the other waits for, and has no room to begin it.
#[test]
fn nodes_whose_stacks_are_full_do_not_wait_for_each_other() {
    for frames in [1, 2] {
        for seed in 0..150 {
            let mut cluster = pool(seed, 2 + seed as u32 % 2, &config());
            for node in 0..cluster.nodes() {
                cluster.set_nesting(node, frames);
            }
            ends_well(&mut cluster);
        }
    }
}

/// Who drains says so, finishes or hands over, and nobody takes it for dead.
#[test]
fn who_drains_leaves_and_is_not_found_dead() {
    often(3, &config(), |cluster| {
        let stolen = cluster.run_until(LONG, |cluster| hosts(cluster, 1, 0));
        let drain = Event::Drain(Duration::from_millis(30));
        cluster.tell(1, drain);
        assert!(cluster.run_until(LONG, |cluster| !cluster.is_alive(1)));
        assert_eq!(cluster.ended(1), Some(0));
        cluster.run_for(Duration::from_millis(100));
        for node in [0, 2] {
            let left = |notice: &Notice| matches!(notice, Notice::Left(_));
            let dead = |notice: &Notice| matches!(notice, Notice::Dead(_));
            assert!(cluster.notices(node).iter().any(left));
            assert!(!cluster.notices(node).iter().any(dead));
        }
        stolen
    });
}

/// A job that kills whoever runs it is given up before it has killed everybody.
#[test]
fn a_job_that_kills_its_hosts_does_not_kill_the_pool() {
    let config = ProtocolConfig {
        max_crashes: 2,
        ..config()
    };
    let shape = Shape::Knary {
        width: 3,
        height: 4,
        serial: 0,
    };
    let mut cluster = pool_for(shape, 3, 8, &config);
    // Whoever takes a child of the root dies.
    let host = |cluster: &Cluster| {
        running(cluster).find(|node| {
            let hosted = cluster.node(*node).inspect().hosted;
            let mut started = hosted
                .iter()
                .filter(|hosted| hosted.stage == InspectedStage::Started);
            *node > 0 && started.any(|hosted| hosted.name.id.depth() == 2)
        })
    };
    let over = |cluster: &Cluster| cluster.main_of(0) == MainIs::Over;
    let mut killed = 0;
    while cluster.run_until(LONG, |cluster| over(cluster) || host(cluster).is_some())
        && let Some(node) = host(&cluster).filter(|_| !over(&cluster))
    {
        killed += 1;
        cluster.crash(node);
    }
    assert!(over(&cluster));
    assert!((2..=6).contains(&killed), "{killed} nodes died");
    assert!(cluster.panics(0)[0].contains("SATIN_MAX_CRASHES"));
}

/// Each rule is left out by CI's run of mutations, or by a test.
#[test]
fn every_rule_is_left_out_somewhere() {
    let root = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| {
        let path = root.join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let ci = read(".ci/run");
    let lists = ci.lines().filter_map(|line| {
        let (name, list) = line.trim().split_once('=')?;
        let list = list.split_whitespace().next()?;
        matches!(name, "local rules" | "rules+").then_some(list)
    });
    let in_ci: BTreeSet<&str> = lists.flat_map(|list| list.split(',')).collect();
    let tests = [
        "satin-sim/tests/cuts.rs",
        "satin-sim/tests/schedules.rs",
        "satin-sim/tests/seeds.rs",
        "satin-runtime/src/node/repair/stories.rs",
        "satin-runtime/src/node/stable/tests.rs",
    ];
    let tests = tests.map(read).concat();
    let is_left_out = |rule: &Rule| {
        in_ci.contains(<&str>::from(rule)) || tests.contains(&format!("Rule::{rule:?}"))
    };
    let missed: Vec<&Rule> = Rule::VARIANTS
        .iter()
        .filter(|rule| !is_left_out(rule))
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
}
