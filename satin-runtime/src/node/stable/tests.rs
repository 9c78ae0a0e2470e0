//! Stories of stable storage: all nodes die, and others go on.

use std::time::Duration;

use super::super::{
    Event, Notice, ProtocolConfig, Rule,
    cluster::{Cluster, ImaginaryStore, MainIs, Program, Shape},
};

const LONG: Duration = Duration::from_secs(300);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn config() -> ProtocolConfig {
    ProtocolConfig {
        store_every: Some(ms(200)),
        copy_every: Duration::ZERO,
        max_crashes: 100,
        ..ProtocolConfig::default()
    }
}

/// Each leaf takes 20 ms, and all together 44 s.
fn tree() -> Program {
    let shape = Shape::Knary {
        width: 3,
        height: 7,
        serial: 0,
    };
    let mut tree = Program::new(shape, ms(20));
    tree.bounded = true;
    tree
}

/// A cluster with a store, whose every main calls that program.
fn cluster(seed: u64, store: ImaginaryStore) -> (Cluster, u32) {
    let mut cluster = Cluster::new(seed);
    cluster.set_store(store);
    let program = cluster.program(tree());
    cluster.know_results();
    cluster.set_main_everywhere(&[program], None);
    (cluster, program)
}

/// Starts a pool of so many nodes: one founds it. Returns the founder.
fn start(cluster: &mut Cluster, config: &ProtocolConfig, nodes: u32) -> u32 {
    let founder = cluster.boot(config, "amsterdam", 1);
    for place in 1..nodes {
        let site = ["amsterdam", "delft"][place as usize % 2];
        cluster.join(config, site, 1, founder);
    }
    founder
}

fn kill_all(cluster: &mut Cluster) {
    for node in 0..cluster.nodes() {
        if cluster.is_alive(node) {
            cluster.crash(node);
        }
    }
}

fn is_over(cluster: &Cluster) -> bool {
    let mut nodes = (0..cluster.nodes()).filter(|node| cluster.is_alive(*node));
    nodes.any(|node| cluster.main_of(node) == MainIs::Over)
}

/// Jobs begun by nodes from that number on.
fn begun_from(cluster: &Cluster, first: u32) -> u64 {
    let nodes = first..cluster.nodes();
    nodes.map(|node| cluster.effort(node).started).sum()
}

/// All of a pool die after a while, so many others go on. Returns how many jobs there are, and how many of them the others begin.
fn gone_on(seed: u64, config: &ProtocolConfig, before: u32, after: u32) -> (u64, u64) {
    let (mut cluster, program) = cluster(seed, ImaginaryStore::new(ms(5)));
    start(&mut cluster, config, before);
    cluster.run_for(ms(5000 + 300 * seed));
    assert!(!is_over(&cluster));
    kill_all(&mut cluster);
    let founder = start(&mut cluster, config, after);
    assert!(cluster.run_until(LONG, is_over), "seed {seed} hangs");
    cluster.check(founder, &[program]);
    assert!(cluster.stored_wrong().is_none());
    let right = cluster.outcome(program).bound;
    let seen = cluster.sightings().last().expect("main looks");
    assert_eq!(seen.bound.map(|bound| bound.cost), right);
    (cluster.outcome(program).jobs, begun_from(&cluster, founder))
}

#[test]
fn others_go_on_where_a_pool_was_lost() {
    for (seed, before, after) in [(1, 4, 4), (2, 4, 1), (3, 4, 8), (4, 1, 3), (5, 2, 2)] {
        let (jobs, begun) = gone_on(seed, &config(), before, after);
        // A part of the 44 s that all takes was done. What the workers did in a period is lost, and what they were at.
        let seconds = before as f64 * (5.0 + 0.3 * seed as f64);
        let left = jobs as f64 * (1.0 - seconds / 44.0);
        assert!(
            (begun as f64) < left + 100.0,
            "{before} to {after}: {begun} of {jobs} begun again, where {left} were left"
        );
    }
}

#[test]
fn logs_that_are_written_anew_and_small_batches_lose_nothing() {
    let mut config = config();
    config.store_log = 500;
    config.store_batch = 300;
    for (seed, before, after) in [(1, 4, 4), (2, 1, 1)] {
        let (jobs, begun) = gone_on(seed, &config, before, after);
        assert!(begun < jobs * 9 / 10, "{begun} of {jobs} begun again");
    }
}

/// The word which run goes on may be lost with the connection that it was said on.
#[test]
fn who_was_cut_off_when_the_run_began_hears_of_it() {
    // The store is slow to open: by then the other node cannot be reached.
    let (mut cluster, _) = cluster(1, ImaginaryStore::new(ms(100)));
    let config = config();
    let master = start(&mut cluster, &config, 2);
    let both = |cluster: &Cluster| (0..2).all(|node| cluster.node(node).view().len() == 2);
    assert!(cluster.run_until(ms(10_000), both));
    assert!(cluster.node(master).run_epoch().is_none());
    // Too short for a death.
    cluster.isolate(1);
    cluster.run_for(ms(300));
    cluster.heal();
    cluster.break_link(0, 1, Duration::ZERO);
    cluster.run_for(ms(10_000));
    let run = cluster.node(master).run_epoch();
    assert!(run.is_some());
    assert_eq!(cluster.node(1).run_epoch(), run);
}

/// What is superseded goes although all is written anew more often than what was before is forgotten.
#[test]
fn a_log_that_is_always_written_anew_does_not_grow() {
    let mut config = config();
    (config.store_every, config.store_log) = (Some(Duration::ZERO), 0);
    let (mut cluster, _) = cluster(1, ImaginaryStore::new(ms(1)));
    let lone = start(&mut cluster, &config, 1);
    let mut most = Vec::new();
    for _ in 0..2 {
        let mut facts = 0;
        for _ in 0..150 {
            cluster.run_for(ms(100));
            assert_eq!(cluster.main_of(lone), MainIs::Running);
            facts = facts.max(cluster.store().expect("there").facts());
        }
        most.push(facts);
    }
    // In the second quarter of a minute it has no more than in the first.
    assert!(most[1] < most[0] * 3 / 2, "results in the log: {most:?}");
}

#[test]
fn a_lone_node_finds_all_of_its_root_jobs_again() {
    let mut config = config();
    config.store_log = 100;
    let mut cluster = Cluster::new(1);
    cluster.set_store(ImaginaryStore::new(ms(5)));
    let small = Shape::Knary {
        width: 2,
        height: 3,
        serial: 0,
    };
    let programs: Vec<u32> = (0..40)
        .map(|_| cluster.program(Program::new(small, ms(20))))
        .collect();
    cluster.set_main_everywhere(&programs, None);
    start(&mut cluster, &config, 1);
    // Each root job has 8 leaves.
    cluster.run_for(ms(4000));
    kill_all(&mut cluster);
    let founder = start(&mut cluster, &config, 1);
    assert!(cluster.run_until(LONG, is_over));
    cluster.check(founder, &programs);
    let (jobs, begun) = (40 * 15, begun_from(&cluster, founder));
    // 2.4 of 6.4 s were left.
    assert!(begun < jobs * 9 / 20, "{begun} of {jobs} begun again");
}

#[test]
fn a_pool_whose_nodes_all_have_to_leave_writes_what_it_has() {
    for nodes in [1, 4] {
        // The next period would be in half an hour.
        let mut config = config();
        config.store_every = Some(ms(1_800_000));
        let (mut cluster, program) = cluster(1, ImaginaryStore::new(ms(5)));
        start(&mut cluster, &config, nodes);
        let time = ms(26_000 / u64::from(nodes));
        cluster.run_for(time);
        for node in 0..nodes {
            cluster.tell(node, Event::Drain(ms(30_000)));
        }
        let is_gone = |cluster: &Cluster| (0..nodes).all(|node| !cluster.is_alive(node));
        assert!(cluster.run_until(LONG, is_gone));
        let founder = start(&mut cluster, &config, 2);
        assert!(cluster.run_until(LONG, is_over));
        cluster.check(founder, &[program]);
        let (jobs, begun) = (cluster.outcome(program).jobs, begun_from(&cluster, founder));
        // More than half of the 44 s was done.
        assert!(
            begun < jobs / 2,
            "of {nodes} nodes: {begun} of {jobs} begun again"
        );
    }
}

#[test]
fn who_begins_before_it_is_loaded_does_more_again() {
    let jobs_of = |rule: Option<Rule>| {
        let mut config = config();
        config.without.extend(rule);
        let (mut cluster, _) = cluster(1, ImaginaryStore::new(ms(1000)));
        start(&mut cluster, &config, 4);
        cluster.run_for(ms(6000));
        kill_all(&mut cluster);
        let founder = start(&mut cluster, &config, 4);
        assert!(cluster.run_until(LONG, is_over));
        begun_from(&cluster, founder)
    };
    let (with, without) = (jobs_of(None), jobs_of(Some(Rule::LoadFirst)));
    assert!(
        with < without,
        "{with} jobs with the rule, {without} without"
    );
}

#[test]
fn the_log_of_a_node_that_dies_is_read() {
    let jobs_of = |rule: Option<Rule>| {
        let mut config = config();
        config.without.extend(rule);
        let (mut cluster, _) = cluster(1, ImaginaryStore::new(ms(5)));
        start(&mut cluster, &config, 4);
        cluster.run_for(ms(5000));
        cluster.crash(1);
        assert!(cluster.run_until(LONG, is_over));
        begun_from(&cluster, 0)
    };
    let (with, without) = (jobs_of(None), jobs_of(Some(Rule::ReadLogs)));
    assert!(
        with < without,
        "{with} jobs with the rule, {without} without"
    );
}

/// The master reads it in the log of the node that kept it, hands it on, and dies when the store is away.
#[test]
fn the_result_of_a_root_job_that_is_over_comes_from_a_log_with_its_bounds() {
    let mut cluster = Cluster::new(1);
    cluster.set_store(ImaginaryStore::new(ms(5)));
    let small = Shape::Knary {
        width: 3,
        height: 4,
        serial: 0,
    };
    let mut first = Program::new(small, ms(20));
    first.bounded = true;
    let programs = [first, tree()].map(|program| cluster.program(program));
    cluster.set_main_everywhere(&programs, None);
    start(&mut cluster, &config(), 2);
    assert!(cluster.run_until(LONG, |cluster| !cluster.sightings().is_empty()));
    cluster.run_for(ms(1000));
    cluster.crash(1);
    cluster.run_for(ms(8000));
    cluster.join(&config(), "amsterdam", 1, 0);
    cluster.run_for(ms(1000));
    cluster.store_mut().expect("there").is_silent = true;
    cluster.crash(0);
    assert!(cluster.run_until(LONG, is_over));
    let seen = cluster.sightings().iter().filter(|seen| seen.node == 2);
    let seen: Vec<_> = seen.collect();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.is_right(&cluster)), "{seen:?}");
}

#[test]
fn the_next_master_goes_on_with_the_same_epoch() {
    let (mut cluster, program) = cluster(1, ImaginaryStore::new(ms(5)));
    let founder = start(&mut cluster, &config(), 4);
    cluster.run_for(ms(6000));
    cluster.crash(founder);
    assert!(cluster.run_until(LONG, is_over));
    let master = (1..4).find(|node| cluster.main_of(*node) == MainIs::Over);
    let master = master.expect("another node has become master");
    cluster.check(master, &[program]);
    let run = cluster.node(master).run_epoch().expect("it goes on");
    assert_eq!(run.epoch, 0);
}

#[test]
fn of_two_pools_that_go_on_with_a_run_the_earlier_one_ends() {
    let (mut cluster, program) = cluster(1, ImaginaryStore::new(ms(5)));
    let earlier = start(&mut cluster, &config(), 2);
    cluster.run_for(ms(3000));
    let later = start(&mut cluster, &config(), 2);
    assert!(cluster.run_until(LONG, |cluster| !cluster.is_alive(earlier)));
    assert_eq!(cluster.ended(earlier), Some(75));
    assert_eq!(cluster.store().expect("there").unfinished(), 1);
    assert!(cluster.run_until(LONG, is_over));
    cluster.check(later, &[program]);
    cluster.end_main(0);
    assert!(cluster.run_until(LONG, |cluster| !cluster.is_alive(later)));
    let store = cluster.store().expect("there");
    assert_eq!((store.unfinished(), store.facts()), (0, 0));
}

#[test]
fn without_epochs_two_pools_work_on_one_run() {
    let works_on = |rule: Option<Rule>| {
        let mut config = config();
        config.without.extend(rule);
        let (mut cluster, _) = cluster(1, ImaginaryStore::new(ms(5)));
        let earlier = start(&mut cluster, &config, 2);
        cluster.run_for(ms(3000));
        start(&mut cluster, &config, 2);
        cluster.run_for(ms(3000));
        cluster.is_alive(earlier) && cluster.main_of(earlier) == MainIs::Running
    };
    assert_eq!([None, Some(Rule::Epoch)].map(works_on), [false, true]);
}

const SECOND: Duration = Duration::from_secs(1);

/// Two nodes at each of two sites, which are cut off from each other in the middle of much work. Returns the master and the other site's nodes.
fn cut_in_two(rule: Option<Rule>) -> (Cluster, u32, [u32; 2]) {
    let mut config = config();
    config.without.extend(rule);
    let mut cluster = Cluster::new(1);
    cluster.set_store(ImaginaryStore::new(ms(5)));
    let mut tree = tree();
    tree.leaf = ms(300);
    let program = cluster.program(tree);
    cluster.know_results();
    cluster.set_main_everywhere(&[program], None);
    let master = start(&mut cluster, &config, 4);
    cluster.run_for(5 * SECOND);
    cluster.partition("amsterdam", "delft");
    (cluster, master, [1, 3])
}

/// How often these nodes were to run `main`.
fn mains(cluster: &Cluster, nodes: [u32; 2]) -> usize {
    let mains = nodes.map(|node| cluster.mains(node).len());
    mains.iter().sum()
}

fn all_see_all(cluster: &Cluster) -> bool {
    (0..4).all(|node| cluster.node(node).view().len() == 4)
}

#[test]
fn no_side_elects_a_master_while_the_store_says_that_main_goes_on() {
    let mains_in_a_cut = |rule| {
        let (mut cluster, master, others) = cut_in_two(rule);
        cluster.run_for(90 * SECOND);
        let mains = mains(&cluster, others);
        cluster.heal();
        assert!(cluster.run_until(LONG, all_see_all));
        assert!(cluster.run_until(LONG, is_over));
        assert_eq!(cluster.main_of(master), MainIs::Over);
        cluster.check(master, &[0]);
        mains
    };
    assert_eq!([None, Some(Rule::OneMain)].map(mains_in_a_cut), [0, 1]);
}

#[test]
fn when_main_does_not_go_on_the_other_side_elects_a_master() {
    let (mut cluster, master, others) = cut_in_two(None);
    cluster.run_for(60 * SECOND);
    for node in [master, 2] {
        cluster.crash(node);
    }
    assert_eq!(mains(&cluster, others), 0);
    let elected = |cluster: &Cluster| mains(cluster, others) == 1;
    assert!(cluster.run_until(21 * SECOND, elected));
    assert!(cluster.run_until(LONG, is_over));
}

#[test]
fn when_the_run_is_over_the_other_side_ends_too() {
    let (mut cluster, master, others) = cut_in_two(None);
    cluster.run_for(40 * SECOND);
    cluster.run_until(2 * LONG, |cluster| cluster.main_of(master) == MainIs::Over);
    cluster.end_main(3);
    cluster.run_for(10 * SECOND);
    for node in others {
        assert_eq!(cluster.ended(node), Some(0));
        let told = |notice: &Notice| matches!(notice, Notice::Warning(text) if text.contains("exit code 3"));
        assert!(cluster.notices(node).iter().any(told));
    }
    assert_eq!(mains(&cluster, others), 0);
    assert_eq!(cluster.store().expect("there").finished(), 1);
}

#[test]
fn only_the_latest_main_removes_the_run() {
    let (mut cluster, master, others) = cut_in_two(None);
    // The master's site loses the store with the other site.
    (cluster.store_mut().expect("there").hidden_from).extend([master, 2]);
    cluster.run_for(60 * SECOND);
    assert_eq!(mains(&cluster, others), 1);
    cluster.store_mut().expect("there").hidden_from.clear();
    cluster.run_for(20 * SECOND);
    let warned =
        |notice: &Notice| matches!(notice, Notice::Warning(text) if text.contains("may publish"));
    assert!(cluster.notices(master).iter().any(warned));
    assert!(cluster.run_until(2 * LONG, |cluster| cluster.main_of(master) == MainIs::Over));
    // The later one dies before it comes to its end: the run is to be resumed.
    others.into_iter().for_each(|node| cluster.crash(node));
    cluster.end_main(0);
    assert!(cluster.run_until(LONG, |cluster| !cluster.is_alive(master)));
    assert_eq!(cluster.store().expect("there").finished(), 0);
}

/// Its side has lost the store for a while. When the other side has come over to it, its `main` is the latest again.
#[test]
fn a_main_that_wins_is_the_latest() {
    let (mut cluster, master, others) = cut_in_two(None);
    (cluster.store_mut().expect("there").hidden_from).extend([master, 2]);
    cluster.run_for(60 * SECOND);
    assert_eq!(mains(&cluster, others), 1);
    cluster.store_mut().expect("there").hidden_from.clear();
    cluster.heal();
    assert!(cluster.run_until(LONG, all_see_all));
    cluster.run_for(20 * SECOND);
    let latest = cluster.store().expect("there").latest_main();
    assert_eq!(latest, Some(cluster.peer(master).id));
    assert!(cluster.run_until(2 * LONG, is_over));
    cluster.end_main(0);
    assert!(cluster.run_until(LONG, |cluster| !cluster.is_alive(master)));
    assert_eq!(cluster.store().expect("there").finished(), 1);
}

#[test]
fn a_store_that_never_answers_stops_nobody() {
    let mut store = ImaginaryStore::new(ms(5));
    store.is_silent = true;
    let (mut cluster, program) = cluster(1, store);
    let founder = start(&mut cluster, &config(), 4);
    assert!(cluster.run_until(LONG, is_over));
    cluster.check(founder, &[program]);
    let warned =
        |notice: &Notice| matches!(notice, Notice::Warning(text) if text.contains("store"));
    assert!(cluster.notices(founder).iter().any(warned));
}

/// Seed 300249316: a node that had been master before, and had found that the store does not answer, waited for it without end.
#[test]
fn a_store_that_never_answers_stops_no_master_that_was_one_before() {
    let mut store = ImaginaryStore::new(ms(5));
    store.is_silent = true;
    let (mut cluster, program) = cluster(1, store);
    let first = start(&mut cluster, &config(), 2);
    let runs = |cluster: &Cluster, node| cluster.main_of(node) == MainIs::Running;
    assert!(cluster.run_until(LONG, |cluster| runs(cluster, first)));
    cluster.run_for(ms(100));
    cluster.isolate(first);
    let is_master = |cluster: &Cluster, node: u32| !cluster.mains(node).is_empty();
    assert!(cluster.run_until(LONG, |cluster| is_master(cluster, 1)));
    cluster.heal();
    assert!(cluster.run_until(LONG, |cluster| !runs(cluster, first)));
    cluster.crash(1);
    assert!(cluster.run_until(LONG, |cluster| cluster.main_of(first) == MainIs::Over));
    cluster.check(first, &[program]);
}

/// A disk that hangs says neither yes nor no.
#[test]
fn a_write_without_an_answer_is_reported() {
    let (mut cluster, _) = cluster(1, ImaginaryStore::new(ms(5)));
    let mut config = config();
    config.store_every = Some(ms(1000));
    let founder = start(&mut cluster, &config, 1);
    cluster.run_for(ms(2500));
    cluster.store_mut().expect("there").is_silent = true;
    let late = |cluster: &Cluster| {
        let notices = cluster.notices(founder).iter();
        let told = notices
            .filter(|notice| matches!(notice, Notice::Warning(text) if text.contains("not taken")));
        told.count()
    };
    cluster.run_for(ms(30_000));
    assert_eq!(late(&cluster), 0);
    cluster.run_for(ms(35_000));
    assert_eq!(late(&cluster), 1);
}

#[test]
fn what_could_not_be_written_goes_with_the_next_batch() {
    let mut store = ImaginaryStore::new(ms(5));
    store.failing = 100;
    let (mut cluster, _) = cluster(1, store);
    start(&mut cluster, &config(), 2);
    cluster.run_for(ms(5000));
    cluster.store_mut().expect("there").failing = 0;
    cluster.run_for(ms(3000));
    kill_all(&mut cluster);
    let founder = start(&mut cluster, &config(), 2);
    assert!(cluster.run_until(LONG, is_over));
    let (jobs, begun) = (cluster.outcome(0).jobs, begun_from(&cluster, founder));
    // Two workers had 8 of the 22 s that they need.
    assert!(begun < jobs * 3 / 4, "{begun} of {jobs} begun again");
}
