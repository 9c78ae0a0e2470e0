//! Stories about stealing.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::super::{
    Action, Event, Identity, Message, MessageKind, Node, NodeId, Notice, Peer, Policy,
    ProtocolConfig, RepairMode, Request, RequestKind, Taken, Token, TookJobs, View,
    cluster::{BEST, Cluster, Path, Program, Shape, Smallest},
};
use crate::{
    job::{
        Answer, Back, BoundName, Fingerprint, History, JobId, JobLoad, JobName, JobSample,
        JobShape, Lattices, Offer, Parcel, Recall, RootName, RootRun, RootTag, Saved, ValueName,
        ValueSize, Wants,
    },
    node::{DepartureId, HostedId, Page, SheetChange, Terms},
};

const MS: Duration = Duration::from_millis(1);

/// Of the longest answers.
const MIB: usize = 1 << 20;

fn fixed() -> ProtocolConfig {
    ProtocolConfig {
        fixed_members: true,
        copy_every: Duration::ZERO,
        root_results: MIB,
        ..ProtocolConfig::default()
    }
}

fn knary(height: u32) -> Shape {
    Shape::Knary {
        width: 4,
        height,
        serial: 0,
    }
}

/// Runs a program on node 0 and returns how much of the workers' time was spent on it.
fn efficiency(cluster: &mut Cluster, program: Program) -> f64 {
    let program = cluster.program(program);
    let outcome = cluster.outcome(program);
    let start = cluster.now();
    cluster.start_root(0, program);
    let limit = outcome.time + Duration::from_secs(60);
    assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    let workers: u32 = (0..cluster.nodes())
        .map(|node| cluster.node(node).view().me().threads)
        .sum();
    outcome.time.as_secs_f64() / (cluster.now() - start).as_secs_f64() / f64::from(workers)
}

/// Nobody has anything of anybody.
fn assert_settled(cluster: &Cluster) {
    for node in (0..cluster.nodes()).filter(|node| cluster.is_alive(*node)) {
        assert!(cluster.is_empty(node), "node {node} still works");
        assert!(
            cluster.node(node).is_settled(),
            "the books of node {node} are not empty"
        );
    }
}

#[test]
fn two_nodes_share_a_tree() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 2)], 1);
    let efficiency = efficiency(&mut cluster, Program::new(knary(5), 10 * MS));
    assert!(efficiency > 0.99, "{efficiency}");
    cluster.run_for(100 * MS);
    assert_settled(&cluster);
}

#[test]
fn phases_one_after_another_are_shared_too() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 8)], 1);
    let shape = Shape::Knary {
        width: 4,
        height: 6,
        serial: 1,
    };
    let efficiency = efficiency(&mut cluster, Program::new(shape, 10 * MS));
    assert!(efficiency > 0.8, "{efficiency}");
}

#[test]
fn a_loop_of_leaves_is_shared_too() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 16)], 1);
    let shape = Shape::Flat { jobs: 4000 };
    let efficiency = efficiency(&mut cluster, Program::new(shape, 10 * MS));
    assert!(efficiency > 0.9, "{efficiency}");
}

#[test]
fn two_sites_far_apart_share_a_tree() {
    let mut cluster = Cluster::new(1);
    cluster.wire.far = Path::new(100 * MS);
    cluster.form(&fixed(), &[("here", 2), ("there", 2)], 1);
    let efficiency = efficiency(&mut cluster, Program::new(knary(6), 10 * MS));
    assert!(efficiency > 0.9, "{efficiency}");
    cluster.run_for(1000 * MS);
    assert_settled(&cluster);
}

#[test]
fn siblings_come_together_over_a_long_link_and_are_stolen_on() {
    let mut cluster = Cluster::new(1);
    cluster.wire.far = Path::new(100 * MS);
    cluster.form(&fixed(), &[("here", 1), ("there", 4)], 1);
    let shape = Shape::Flat { jobs: 500 };
    let efficiency = efficiency(&mut cluster, Program::new(shape, 50 * MS));
    assert!(efficiency > 0.8, "{efficiency}");
    let replies = cluster.traffic.of(MessageKind::Jobs).far;
    assert!(cluster.traffic.jobs.far >= 2 * replies, "{replies} replies");
    // Leaves have no children, so what was stolen at the other site was hosted there.
    assert!(cluster.traffic.jobs.near > 0);
    cluster.run_for(1000 * MS);
    assert_settled(&cluster);
}

#[test]
fn a_burst_of_work_wakes_everybody_by_lifelines() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 64)], 1);
    cluster.run_for(Duration::from_secs(60));
    let program = cluster.program(Program::new(Shape::Flat { jobs: 5000 }, 20 * MS));
    cluster.start_root(0, program);
    let all_work = |cluster: &Cluster| (0..64).all(|node| cluster.effort(node).started > 0);
    // Six steps of half a round trip and a handshake, and the time to find what to give.
    assert!(cluster.run_until(10 * MS, all_work));
    let limit = Duration::from_secs(10);
    assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
}

#[test]
fn a_burst_of_work_wakes_all_sites() {
    let mut cluster = Cluster::new(1);
    cluster.wire.far = Path::new(20 * MS);
    let sites: Vec<String> = (0..16).map(|site| format!("s{site}")).collect();
    let sites: Vec<(&str, u32)> = sites.iter().map(|site| (&**site, 2)).collect();
    cluster.form(&fixed(), &sites, 1);
    cluster.run_for(Duration::from_secs(60));
    let program = cluster.program(Program::new(knary(7), 20 * MS));
    cluster.start_root(0, program);
    let all_work = |cluster: &Cluster| (0..32).all(|node| cluster.effort(node).started > 0);
    // At most four steps from site to site, each with a handshake.
    assert!(cluster.run_until(400 * MS, all_work));
}

#[test]
fn an_idle_pool_is_silent() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 16), ("there", 16)], 1);
    cluster.run_for(Duration::from_secs(60));
    let before = cluster.traffic.all();
    cluster.run_for(Duration::from_secs(60));
    let each = (cluster.traffic.all() - before) as f64 / 32.0 / 60.0;
    assert!(each < 2.0, "{each} messages per node and second");
}

#[test]
fn a_node_that_computes_says_nothing() {
    let mut cluster = Cluster::new(1);
    let config = ProtocolConfig {
        copy_every: Duration::ZERO,
        ..fixed()
    };
    cluster.form(&config, &[("here", 2)], 1);
    let program = cluster.program(Program::new(
        Shape::Flat { jobs: 2 },
        Duration::from_secs(60),
    ));
    cluster.start_root(0, program);
    cluster.run_for(Duration::from_secs(1));
    let before = cluster.traffic.all();
    cluster.run_for(Duration::from_secs(50));
    assert_eq!(cluster.traffic.all(), before);
}

#[test]
fn what_lost_a_race_is_recalled_wherever_it_went() {
    let mut recalls = 0;
    for seed in 0..30 {
        let mut cluster = Cluster::new(seed);
        cluster.form(&fixed(), &[("here", 3), ("there", 3)], 1);
        let shape = Shape::Random {
            width: 6,
            height: 5,
            races: 60,
        };
        let program = Program::new(shape, 10 * MS).seeded(seed);
        let program = cluster.program(program);
        cluster.start_root(0, program);
        let limit = Duration::from_secs(100);
        assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
        cluster.check(0, &[program]);
        cluster.run_for(Duration::from_secs(1));
        assert_settled(&cluster);
        recalls += cluster.traffic.of(MessageKind::Recall).all();
    }
    assert!(recalls > 10, "{recalls} recalls");
}

#[test]
fn a_broken_connection_loses_nothing_and_nothing_is_done_twice() {
    let mut cluster = Cluster::new(1);
    cluster.wire.near = Path::new(2 * MS);
    cluster.form(&fixed(), &[("here", 3)], 1);
    let program = cluster.program(Program::new(knary(5), 5 * MS));
    cluster.start_root(0, program);
    let mut breaks = 0;
    while !cluster.is_done(0) {
        cluster.run_for(7 * MS);
        for (a, b) in cluster.links() {
            cluster.break_link(a, b, MS);
            breaks += 1;
        }
    }
    cluster.check(0, &[program]);
    assert!(breaks > 100);
    let started: u64 = (0..3).map(|node| cluster.effort(node).started).sum();
    assert_eq!(started, cluster.outcome(program).jobs);
    cluster.run_for(Duration::from_secs(1));
    assert_settled(&cluster);
}

#[test]
fn the_jobs_of_a_dead_thief_are_done_again() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 4)], 1);
    let program = cluster.program(Program::new(knary(6), 10 * MS));
    cluster.start_root(0, program);
    for node in [3, 1] {
        cluster.run_for(500 * MS);
        cluster.crash(node);
        cluster.run_for(500 * MS);
        cluster.declare_dead(node);
    }
    let limit = Duration::from_secs(100);
    assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    cluster.run_for(Duration::from_secs(1));
    assert_settled(&cluster);
}

#[test]
fn the_jobs_of_a_node_that_leaves_are_done_by_others() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 3)], 1);
    let program = cluster.program(Program::new(knary(5), 10 * MS));
    cluster.start_root(0, program);
    cluster.run_for(500 * MS);
    cluster.leave(1);
    let limit = Duration::from_secs(100);
    assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    cluster.run_for(Duration::from_secs(1));
    assert_settled(&cluster);
}

#[test]
fn a_request_from_the_dead_takes_no_job() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 2)], 1);
    let dead = cluster.peer(1);
    cluster.crash(1);
    cluster.declare_dead(1);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 10 }, 10 * MS));
    cluster.start_root(0, program);
    for lifeline in [false, true] {
        cluster.forge(0, dead, asks_for_one(lifeline));
    }
    let limit = 101 * MS;
    assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
    assert_eq!(cluster.traffic.all(), 0);
}

#[test]
fn policy_mw_asks_the_master_alone() {
    let mut cluster = Cluster::new(1);
    let policy = Policy::Mw;
    let config = ProtocolConfig { policy, ..fixed() };
    cluster.form(&config, &[("here", 4)], 1);
    let program = cluster.program(Program::new(knary(5), 5 * MS));
    cluster.start_root(0, program);
    while !cluster.is_done(0) {
        cluster.step();
        for node in 1..4 {
            assert_eq!(cluster.away(node), 0, "only the master is stolen from");
        }
    }
    cluster.check(0, &[program]);
    assert!((1..4).all(|node| cluster.effort(node).started > 0));
}

#[test]
fn a_fine_grained_victim_is_given_the_time_to_publish() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 2)], 1);
    cluster.set_shy(0, Some(MS / 10));
    cluster.run_for(Duration::from_secs(10));
    let program = Program::new(Shape::Flat { jobs: 1000 }, MS / 10);
    let efficiency = efficiency(&mut cluster, program);
    assert!(efficiency > 0.8, "{efficiency}");
}

#[test]
fn tiny_jobs_flow_as_fast_as_they_are_done() {
    // 50,000 a second each, and a round trip that is ten of them.
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 2)], 1);
    let leaf = Duration::from_micros(20);
    let program = Program::new(Shape::Flat { jobs: 100_000 }, leaf);
    let efficiency = efficiency(&mut cluster, program);
    assert!(efficiency > 0.95, "{efficiency}");
    let messages = cluster.traffic.all();
    assert!(
        messages < 50_000,
        "{messages} messages for 50,000 stolen jobs"
    );
}

/// Warnings of a node to which another of its site is as far away, each time, as these milliseconds say, and the other site is 30 ms away.
fn warnings_of(near_ms: &[u32]) -> usize {
    let (mut node, [far, _, near]) = by_hand_as(1, fixed());
    node.handle(MS, Event::RoundTrip(far, 30 * MS));
    for millis in near_ms {
        node.handle(MS, Event::RoundTrip(near, *millis * MS));
    }
    let told = actions(&mut node).into_iter();
    told.filter(|action| matches!(action, Action::Tell(Notice::Warning(_))))
        .count()
}

#[test]
fn a_wrong_site_name_is_noticed() {
    assert_eq!(warnings_of(&[25; 30]), 1, "told once");
}

#[test]
fn a_busy_machine_is_no_wrong_site_name() {
    assert_eq!(warnings_of(&[40, 40, 40, 40, 3, 40, 40, 40, 40, 40, 40]), 0);
    assert_eq!(warnings_of(&[40, 40]), 0, "that is too few to say");
}

/// A node in a pool of three, two of them at another site, to be driven by hand.
fn by_hand() -> (Node, [Peer; 3]) {
    by_hand_as(0, fixed())
}

/// The node of that number.
fn by_hand_as(me: usize, config: ProtocolConfig) -> (Node, [Peer; 3]) {
    by_hand_in(me, config, Box::new(Smallest), "there")
}

/// The same, of a process that knows this, where the nodes 1 and 2 stand at that site.
fn by_hand_in(
    me: usize,
    config: ProtocolConfig,
    process: Box<dyn Lattices + Send>,
    site: &str,
) -> (Node, [Peer; 3]) {
    let identity = |number: u32| Identity {
        peer: NodeId(u128::from(number)).first_life(),
        name: format!("n{number}").into(),
        site: if number == 0 { "here" } else { site }.into(),
        addr: SocketAddr::from(([127, 0, 0, 1], 7000 + number as u16)),
        stamp: u64::from(number),
        threads: 1,
    };
    let all = [0, 1, 2].map(identity);
    let peers = [0, 1, 2].map(|number: usize| all[number].peer);
    let view = View::of(all.clone().map(Arc::new)).seen_by(peers[me]);
    let mut node = Node::formed(config, view, process, 1, Duration::ZERO);
    for peer in all.into_iter().filter(|other| other.peer != peers[me]) {
        let (epoch, round_trip) = (1, 100 * MS);
        let connected = Event::Connected {
            peer,
            epoch,
            round_trip,
        };
        node.handle(Duration::ZERO, connected);
    }
    (node, peers)
}

fn actions(node: &mut Node) -> Vec<Action> {
    std::iter::from_fn(|| node.poll_action()).collect()
}

fn parcel() -> Parcel {
    Parcel {
        id: JobId::ROOT.child(0).child(1),
        function: 0,
        arguments: vec![1, 2, 3].into(),
        fingerprint: Fingerprint(7),
        needs: Vec::new(),
        lent: Vec::new(),
        keeps: false,
        owner: 0,
        term: 0,
        root: Fingerprint(0),
        history: History::default(),
    }
}

fn jobs_of(request: Request, jobs: Vec<(Token, Parcel)>) -> Message {
    Message::Jobs {
        request,
        jobs,
        left: 0,
        sent_ms: 0,
    }
}

fn received(from: Peer, message: Message) -> Event {
    let epoch = 1;
    Event::Received {
        from,
        epoch,
        message,
    }
}

fn kind(lifeline: bool) -> RequestKind {
    match lifeline {
        true => RequestKind::Lifeline,
        false => RequestKind::Now,
    }
}

/// The first request of a thief, for one job.
fn asks_for_one(lifeline: bool) -> Message {
    Message::Steal {
        request: Request(1),
        most: 1,
        kind: kind(lifeline),
    }
}

/// A thief asks for one job: under which number the workers are to give it.
fn take_for(node: &mut Node, now: Duration, thief: Peer, lifeline: bool) -> u64 {
    node.handle(now, received(thief, asks_for_one(lifeline)));
    let take = actions(node);
    let [
        Action::Take {
            request, most: 1, ..
        },
    ] = take[..]
    else {
        panic!("{take:?}");
    };
    request
}

#[test]
fn a_job_that_comes_too_late_is_kept_until_its_answer_is_acknowledged() {
    let (mut node, _) = by_hand();
    node.handle(MS, Event::Idle(1));
    let asked = actions(&mut node);
    let [Action::Send(victim, Message::Steal { request, .. })] = asked[..] else {
        panic!("{asked:?}");
    };
    // Work turned up here, and the request was given up long ago.
    node.handle(2 * MS, Event::Idle(0));
    node.handle_timeout(5000 * MS);
    assert_eq!(actions(&mut node), []);
    let jobs = vec![(Token(5), parcel())];
    node.handle(5001 * MS, received(victim, jobs_of(request, jobs)));
    let started = actions(&mut node);
    let [Action::Start(key, _)] = started[..] else {
        panic!("{started:?}");
    };
    let answer = Answer::Panicked("so be it".into());
    node.handle(5002 * MS, Event::Done(key, answer.clone()));
    let answers = Message::Answers(vec![(Token(5), answer)]);
    assert_eq!(actions(&mut node), [Action::Send(victim, answers)]);
    assert!(!node.is_settled());
    let acknowledge = Message::Acknowledge(vec![Token(5)]);
    node.handle(5003 * MS, received(victim, acknowledge));
    assert_eq!(actions(&mut node), []);
    assert!(node.is_settled());
}

#[test]
fn a_recall_may_overtake_its_job() {
    let (mut node, [_, victim, _]) = by_hand();
    node.handle(MS, received(victim, Message::Recall(vec![Token(5)])));
    let (request, jobs) = (Request(1), vec![(Token(5), parcel())]);
    node.handle(2 * MS, received(victim, jobs_of(request, jobs)));
    assert_eq!(actions(&mut node), []);
    assert!(node.is_settled());
}

#[test]
fn a_job_may_pass_through_and_its_answer_comes_back_the_same_way() {
    let (mut node, [_, victim, thief]) = by_hand();
    let (request, jobs) = (Request(1), vec![(Token(5), parcel())]);
    node.handle(MS, received(victim, jobs_of(request, jobs)));
    let started = actions(&mut node);
    let [Action::Start(key, _)] = started[..] else {
        panic!("{started:?}");
    };
    // It has waited for a while: what comes from another site does not go on to yet another at once.
    let request = take_for(&mut node, 200 * MS, thief, false);
    let (jobs, left) = (vec![Taken::Hosted(key, parcel())], 0);
    let took = Event::Took(TookJobs {
        request,
        jobs,
        left,
        ..TookJobs::default()
    });
    node.handle(200 * MS, took);
    let given = actions(&mut node);
    let token = match &given[..] {
        [Action::Send(to, Message::Jobs { jobs, .. })] if *to == thief => jobs[0].0,
        _ => panic!("{given:?}"),
    };
    let answer = Answer::Panicked("so be it".into());
    let answers = Message::Answers(vec![(token, answer.clone())]);
    node.handle(300 * MS, received(thief, answers));
    let onwards = Message::Answers(vec![(Token(5), answer)]);
    assert_eq!(actions(&mut node), [Action::Send(victim, onwards)]);
    // The acknowledgement has time.
    let due = node.poll_timeout().expect("there is something to say");
    node.handle_timeout(due);
    let acknowledge = Message::Acknowledge(vec![token]);
    assert_eq!(actions(&mut node), [Action::Send(thief, acknowledge)]);
    let acknowledge = Message::Acknowledge(vec![Token(5)]);
    node.handle(due, received(victim, acknowledge));
    assert!(node.is_settled());
}

/// A thief cannot have what a job needs. The node that owns the job runs it: without that thieves may take it in turn, without end.
#[test]
fn a_job_that_was_refused_goes_home_and_stays_there() {
    let refused = || Answer::refused("nobody has its data any more");
    let give = |node: &mut Node, at, thief, job| {
        let request = take_for(node, at, thief, false);
        let took = Event::Took(TookJobs {
            request,
            jobs: vec![job],
            ..TookJobs::default()
        });
        node.handle(at, took);
        match &actions(node)[..] {
            [Action::Send(to, Message::Jobs { jobs, .. })] if *to == thief => jobs[0].0,
            given => panic!("{given:?}"),
        }
    };
    let answer = |node: &mut Node, at, thief, token| {
        let answers = Message::Answers(vec![(token, refused())]);
        node.handle(at, received(thief, answers));
        actions(node)
    };
    let (mut node, [_, thief, _]) = by_hand();
    let own = Taken::Own(DepartureId(9), parcel());
    let token = give(&mut node, MS, thief, own);
    let back = Back {
        stays: true,
        ..Back::default()
    };
    let came = answer(&mut node, 2 * MS, thief, token);
    assert_eq!(came, [Action::PutBack(DepartureId(9), back)]);
    // It has come through this node, which may lack its data by now too.
    let (mut node, [_, victim, thief]) = by_hand();
    let jobs = vec![(Token(5), parcel())];
    node.handle(MS, received(victim, jobs_of(Request(1), jobs)));
    let started = actions(&mut node);
    let [Action::Start(key, _)] = started[..] else {
        panic!("{started:?}");
    };
    let hosted = Taken::Hosted(key, parcel());
    let token = give(&mut node, 200 * MS, thief, hosted);
    let came = answer(&mut node, 300 * MS, thief, token);
    let onwards = Message::Answers(vec![(Token(5), refused())]);
    assert_eq!(came, [Action::Send(victim, onwards)]);
}

#[test]
fn a_recall_that_was_lost_with_the_connection_is_made_up_for() {
    let (mut node, [_, victim, _]) = by_hand();
    let (request, jobs) = (Request(1), vec![(Token(5), parcel())]);
    node.handle(MS, received(victim, jobs_of(request, jobs)));
    let started = actions(&mut node);
    let [Action::Start(key, _)] = started[..] else {
        panic!("{started:?}");
    };
    let connected = Event::Connected {
        peer: node.view().get(victim).expect("it is in").clone(),
        epoch: 2,
        round_trip: 100 * MS,
    };
    node.handle(2 * MS, connected);
    let lists = Message::Lists {
        outstanding: Vec::new(),
        hosted: vec![Token(5)],
    };
    assert_eq!(actions(&mut node), [Action::Send(victim, lists)]);
    let (outstanding, hosted) = (Vec::new(), Vec::new());
    let lists = Event::Received {
        from: victim,
        epoch: 2,
        message: Message::Lists {
            outstanding,
            hosted,
        },
    };
    node.handle(3 * MS, lists);
    assert_eq!(actions(&mut node), [Action::Abort(key)]);
    node.handle(4 * MS, Event::Done(key, Answer::Aborted));
    assert_eq!(actions(&mut node), []);
    assert!(node.is_settled());
}

#[test]
fn what_nobody_can_give_makes_the_program_know() {
    let (mut node, [_, thief, _]) = by_hand();
    let request = take_for(&mut node, MS, thief, true);
    assert_eq!(request, 1);
    let (jobs, left) = (Vec::new(), 0);
    let took = Event::Took(TookJobs {
        request,
        jobs,
        left,
        ..TookJobs::default()
    });
    node.handle(MS, took);
    assert_eq!(actions(&mut node), [Action::Hungry(true)]);
    node.handle(2 * MS, received(thief, Message::Cut(Request(1))));
    assert_eq!(actions(&mut node), [Action::Hungry(false)]);
}

#[test]
fn any_tree_comes_out_right_whatever_the_network_does() {
    let (mut stolen, mut lists) = (0, 0);
    for seed in 0..200 {
        let mut dice = SmallRng::seed_from_u64(seed);
        let mut cluster = Cluster::new(seed);
        let policy = [Policy::Crs, Policy::Rs, Policy::Mw][dice.random_range(0..3)];
        let config = ProtocolConfig { policy, ..fixed() };
        let (here, there) = (dice.random_range(2..6), dice.random_range(0..5));
        let threads = dice.random_range(1..4);
        cluster.wire.near.jitter = MS / 10 * dice.random_range(0..3);
        cluster.wire.far = Path {
            jitter: MS * dice.random_range(0..20),
            loss: 0.2,
            ..Path::new(MS * dice.random_range(1..50))
        };
        // Some messages go on streams of their own, and are overtaken.
        cluster.wire.large = dice.random_range(40..200);
        cluster.form(&config, &[("here", here), ("there", there)], threads);
        if dice.random_bool(0.3) {
            for node in 0..cluster.nodes() {
                cluster.set_shy(node, Some(MS / 20));
            }
        }
        let races = dice.random_range(0..20) * dice.random_range(0..2);
        let shape = Shape::Random {
            width: dice.random_range(4..6),
            height: dice.random_range(3..7),
            races,
        };
        let leaf = MS / 100 * dice.random_range(0..1000);
        let mut program = Program::new(shape, leaf).seeded(seed);
        program.size = dice.random_range(12..150);
        let program = cluster.program(program);
        cluster.start_root(0, program);
        let limit = cluster.now() + cluster.outcome(program).time + Duration::from_secs(30);
        let mut crashes = dice.random_range(0..3) * dice.random_range(0..2);
        let no_crash = crashes == 0;
        while !cluster.is_done(0) {
            assert!(cluster.now() < limit, "seed {seed} hangs");
            cluster.run_for(MS * dice.random_range(1..50));
            for _ in 0..dice.random_range(0..4) {
                let links = cluster.links();
                if !links.is_empty() {
                    let (a, b) = links[dice.random_range(0..links.len())];
                    let (a, b) = if dice.random_bool(0.5) {
                        (a, b)
                    } else {
                        (b, a)
                    };
                    cluster.break_link(a, b, MS * dice.random_range(0..100));
                }
            }
            if crashes > 0 && dice.random_bool(0.05) {
                let node = dice.random_range(1..cluster.nodes());
                crashes -= 1;
                cluster.crash(node);
                cluster.run_for(MS * dice.random_range(0..100));
                cluster.declare_dead(node);
            }
        }
        cluster.check(0, &[program]);
        if no_crash && races == 0 {
            let started: u64 = (0..cluster.nodes())
                .map(|node| cluster.effort(node).started)
                .sum();
            assert_eq!(
                started,
                cluster.outcome(program).jobs,
                "seed {seed}: done twice"
            );
        }
        cluster.run_for(Duration::from_secs(20));
        for node in (0..cluster.nodes()).filter(|node| cluster.is_alive(*node)) {
            assert!(
                cluster.is_empty(node),
                "seed {seed}: node {node} still works"
            );
            let settled = cluster.node(node).is_settled();
            assert!(
                settled,
                "seed {seed}: the books of node {node} are not empty"
            );
        }
        stolen += cluster.traffic.jobs.all();
        lists += cluster.traffic.of(MessageKind::Lists).all();
    }
    assert!(
        stolen > 10_000 && lists > 3000,
        "{stolen} stolen, {lists} lists"
    );
}

/// Another connection to that peer stands, because the one before broke.
fn reconnected(node: &Node, peer: Peer) -> Event {
    let identity = node.view().get(peer).expect("a member").clone();
    Event::Connected {
        peer: identity,
        epoch: 2,
        round_trip: 100 * MS,
    }
}

#[test]
fn answers_that_are_said_again_go_in_pieces() {
    let (mut node, [_, origin, _]) = by_hand();
    let jobs = (0..4).map(|index| {
        let id = JobId::ROOT.child(0).child(index);
        (Token(u64::from(index)), Parcel { id, ..parcel() })
    });
    node.handle(MS, received(origin, jobs_of(Request(1), jobs.collect())));
    for action in actions(&mut node) {
        if let Action::Start(key, _) = action {
            let answer = Answer::result(vec![0; 7 * MIB].into(), Vec::new());
            node.handle(2 * MS, Event::Done(key, answer));
        }
    }
    node.handle_timeout(1000 * MS);
    actions(&mut node);
    let again = reconnected(&node, origin);
    node.handle(2000 * MS, again);
    node.handle_timeout(3000 * MS);
    let mut tokens = 0;
    for action in actions(&mut node) {
        if let Action::Send(_, Message::Answers(answers)) = action {
            assert!(
                answers.len() <= 2,
                "{} answers in one message",
                answers.len()
            );
            tokens += answers.len();
        }
    }
    assert_eq!(tokens, 4);
}

#[test]
fn that_a_job_is_here_already_is_said_again_after_a_broken_link() {
    let (mut node, [_, first, second]) = by_hand();
    let first_job = vec![(Token(5), parcel())];
    node.handle(MS, received(first, jobs_of(Request(1), first_job)));
    let marked = History {
        marked: true,
        crashes: 0,
    };
    let repair = Parcel {
        history: marked,
        ..parcel()
    };
    node.handle(
        2 * MS,
        received(second, jobs_of(Request(2), vec![(Token(9), repair)])),
    );
    let have = Action::Send(second, Message::Have(vec![Token(9)]));
    assert!(actions(&mut node).contains(&have));
    let again = reconnected(&node, second);
    node.handle(3 * MS, again);
    assert!(actions(&mut node).contains(&have));
}

#[test]
fn a_claim_that_was_aborted_closes_its_orphan() {
    let (mut node, [_, owner, _]) = by_hand();
    let job = parcel();
    let page = Page {
        owner,
        after: 0,
        version: 1,
        changes: vec![SheetChange::Orphan {
            name: job.name(),
            finished: false,
        }],
    };
    node.handle(MS, received(owner, Message::Table(vec![page])));
    node.handle(2 * MS, Event::Claimed(DepartureId(1), job.clone()));
    node.handle(3 * MS, Event::Recalled(DepartureId(1), Recall::Unwanted));
    actions(&mut node);
    node.handle_timeout(100 * MS);
    let told = is_closed(&actions(&mut node), &job.id);
    assert!(told, "the orphan runs on until its root job ends");
}

/// Are others told that nobody wants what they have at or below that job?
fn is_closed(actions: &[Action], id: &JobId) -> bool {
    let closed = SheetChange::Closed(id.clone());
    actions.iter().any(|action| match action {
        Action::Send(_, Message::Table(pages)) => {
            pages.iter().any(|page| page.changes.contains(&closed))
        }
        _ => false,
    })
}

fn root_result(number: u32, bytes: usize) -> Saved {
    let print = Fingerprint(u64::from(number));
    Saved {
        name: JobName::new(JobId::ROOT.child(number), print),
        root: print,
        answer: Answer::result(vec![0; bytes].into(), Vec::new()),
    }
}

#[test]
fn main_goes_on_while_a_large_result_is_on_its_way_but_not_far_ahead() {
    let (mut node, _) = by_hand();
    let mut goes_on_at_once = |number, bytes| {
        let tag = RootTag { term: 0, number };
        let result = Event::RootResult(tag, root_result(number, bytes), Duration::ZERO);
        node.handle(MS, result);
        let actions = actions(&mut node);
        let sent = actions
            .iter()
            .filter(|action| matches!(action, Action::Send(_, Message::Keep { .. })));
        assert_eq!(sent.count(), 2, "it is kept in any case");
        actions.contains(&Action::RootKept(tag))
    };
    assert!(goes_on_at_once(0, 40 << 20));
    assert!(
        !goes_on_at_once(1, 100),
        "two keepers have 40 MiB to come each"
    );
}

#[test]
fn main_waits_for_keepers_that_are_near_beside_the_time_that_its_root_job_took() {
    let (mut node, [near, far, _]) = by_hand();
    for (peer, round_trip) in [(near, MS), (far, 100 * MS)] {
        node.handle(MS, Event::RoundTrip(peer, round_trip));
    }
    let mut goes_on_at_once = |number, patience| {
        let tag = RootTag { term: 0, number };
        node.handle(
            MS,
            Event::RootResult(tag, root_result(number, 10), patience),
        );
        actions(&mut node).contains(&Action::RootKept(tag))
    };
    assert!(!goes_on_at_once(0, 200 * MS));
    assert!(goes_on_at_once(1, MS / 2));
}

#[test]
fn a_keeper_that_is_about_to_leave_is_not_waited_for() {
    let (mut node, [_, leaver, stayer]) = by_hand();
    let tag = RootTag { term: 0, number: 0 };
    node.handle(
        MS,
        Event::RootResult(tag, root_result(0, 10), Duration::MAX),
    );
    let kept = actions(&mut node)
        .into_iter()
        .find_map(|action| match action {
            Action::Send(to, Message::Keep { number, .. }) if to == stayer => Some(number),
            _ => None,
        });
    let kept = kept.expect("both are asked");
    node.handle(2 * MS, received(leaver, Message::Draining));
    node.handle(3 * MS, received(stayer, Message::Kept(kept)));
    assert!(actions(&mut node).contains(&Action::RootKept(tag)));
}

#[test]
fn the_results_of_root_jobs_that_are_kept_are_bounded_by_bytes() {
    let (mut node, [_, master, _]) = by_hand();
    let most = fixed().root_results;
    for (number, bytes) in [(0, 10), (1, most / 2), (2, most / 2), (3, 2 * most)] {
        let saved = vec![root_result(number, bytes)];
        let number = u64::from(number);
        node.handle(MS, received(master, Message::Keep { number, saved }));
        actions(&mut node);
        let hosted = node.inspect().hosted;
        let kept: Vec<u32> = (hosted.iter())
            .filter_map(|hosted| hosted.name.id.path().next())
            .collect();
        let expected: &[u32] = match number {
            0 => &[0],
            1 => &[0, 1],
            2 => &[1, 2],
            _ => &[3],
        };
        assert_eq!(kept, expected);
    }
}

/// The first page of the owner's sheet: these orphans are finished there.
fn finished(owner: Peer, names: &[JobName]) -> Event {
    let entries = names.iter().map(|name| SheetChange::Orphan {
        name: name.clone(),
        finished: true,
    });
    let changes: Vec<SheetChange> = entries.collect();
    let version = changes.len() as u64;
    let page = Page {
        owner,
        after: 0,
        version,
        changes,
    };
    received(owner, Message::Table(vec![page]))
}

fn result_of(id: &JobId) -> Saved {
    Saved {
        name: JobName::new(id.clone(), Fingerprint(7)),
        ..root_result(7, 10)
    }
}

/// The node keeps the result of that job for whoever will claim it.
fn keep(node: &mut Node, from: Peer, id: &JobId) {
    let saved = vec![result_of(id)];
    node.handle(MS, received(from, Message::Keep { number: 1, saved }));
    actions(node);
    assert_eq!(node.inspect().hosted.len(), 1);
}

#[test]
fn a_kept_result_goes_when_somebody_has_that_of_a_job_around_it() {
    let (mut node, [_, owner, _]) = by_hand();
    let parent = JobId::ROOT.child(0).child(1);
    let child = parent.child(2);
    keep(&mut node, owner, &child);
    let sibling = JobId::ROOT.child(0).child(2);
    let elsewhere = [
        JobName::new(sibling, Fingerprint(1)),
        JobName::new(child.child(0), Fingerprint(2)),
    ];
    node.handle(2 * MS, finished(owner, &elsewhere));
    assert_eq!(node.inspect().hosted.len(), 1, "nobody else has it");
    let around = [&elsewhere[..], &[JobName::new(parent, Fingerprint(3))]].concat();
    node.handle(3 * MS, finished(owner, &around));
    assert!(node.inspect().hosted.is_empty(), "nobody will ask for it");
    // And what comes later does not stay.
    let saved = vec![result_of(&child)];
    node.handle(4 * MS, received(owner, Message::Keep { number: 2, saved }));
    assert!(node.inspect().hosted.is_empty());
}

#[test]
fn of_two_nodes_that_keep_a_result_one_does_so() {
    let (mut node, [before, _, after]) = by_hand_as(1, fixed());
    let id = JobId::ROOT.child(0).child(1);
    keep(&mut node, before, &id);
    let name = JobName::new(id, Fingerprint(7));
    node.handle(2 * MS, finished(after, std::slice::from_ref(&name)));
    assert_eq!(node.inspect().hosted.len(), 1, "the other one gives way");
    node.handle(3 * MS, finished(before, &[name]));
    assert!(node.inspect().hosted.is_empty(), "this one gives way");
}

#[test]
fn the_answer_of_a_job_closes_what_others_keep_of_it() {
    let (mut node, [_, thief, owner]) = by_hand();
    let token = give(&mut node, thief, vec![parcel()])[0][0];
    let below = parcel().id.child(3);
    node.handle(
        2 * MS,
        finished(owner, &[JobName::new(below, Fingerprint(1))]),
    );
    let answer = Answer::Panicked("so be it".into());
    let answers = Message::Answers(vec![(token, answer)]);
    node.handle(3 * MS, received(thief, answers));
    actions(&mut node);
    node.handle_timeout(100 * MS);
    assert!(is_closed(&actions(&mut node), &parcel().id));
}

#[test]
fn what_a_dead_node_had_is_forgotten_in_all_modes() {
    for repair in [RepairMode::Running, RepairMode::Finished, RepairMode::Naive] {
        let config = ProtocolConfig { repair, ..fixed() };
        let (mut node, [_, owner, _]) = by_hand_as(0, config);
        let name = parcel().name();
        node.handle(MS, finished(owner, &[name]));
        assert_eq!(node.inspect().entries.len(), 1);
        node.declare_dead(2 * MS, owner);
        assert!(node.inspect().entries.is_empty(), "{repair:?}");
    }
}

/// A job of a root job that another thread than main's has called in that process.
fn of_another_thread(home: Peer) -> Parcel {
    Parcel {
        id: JobId::ROOT.child(RootName::OTHERS).child(1),
        root: home.id.home(),
        ..parcel()
    }
}

#[test]
fn orphans_of_a_root_job_go_when_its_process_does_not_come_back() {
    let (mut node, [_, home, between]) = by_hand();
    let jobs = [(home, Token(5)), (between, Token(6))];
    for (origin, token) in jobs {
        let id = of_another_thread(home).id.child(token.0 as u32);
        let job = Parcel {
            id,
            ..of_another_thread(home)
        };
        let jobs = jobs_of(Request(1), vec![(token, job)]);
        node.handle(MS, received(origin, jobs));
    }
    actions(&mut node);
    node.declare_dead(2 * MS, home);
    actions(&mut node);
    assert_eq!(node.inspect().entries.len(), 1, "it may come back");
    let late = Duration::from_secs(61);
    node.handle_timeout(late);
    let aborts = |actions: &[Action]| {
        let mut actions = actions.iter();
        actions.any(|action| matches!(action, Action::Abort(_)))
    };
    assert!(aborts(&actions(&mut node)), "nobody will claim the orphan");
    assert!(node.inspect().entries.is_empty());
    // And what is left of it without anybody who waits does not become one.
    node.declare_dead(late + MS, between);
    assert!(aborts(&actions(&mut node)));
    assert!(node.inspect().entries.is_empty());
}

/// Seed 110709651: the bounds of a root job go when it is over, and a part that was under way then came back in the next term
/// without them.
#[test]
fn what_was_under_way_when_a_root_job_ended_is_not_used_again_in_a_later_term() {
    let (mut node, [master, _, origin]) = by_hand_as(1, fixed());
    let job = parcel();
    let jobs = jobs_of(Request(1), vec![(Token(5), job.clone())]);
    node.handle(MS, received(origin, jobs));
    let started = actions(&mut node).into_iter();
    let key = started
        .filter_map(|action| match action {
            Action::Start(key, _) => Some(key),
            _ => None,
        })
        .next();
    node.handle(2 * MS, Event::Done(key.expect("it runs"), one_byte()));
    node.handle(
        3 * MS,
        received(master, Message::RootsDone(vec![job.root_run()])),
    );
    let named = node.view().get(master).expect("it is in").clone();
    let news = Message::Master {
        term: 1,
        branches: 0,
        master: named,
    };
    node.handle(4 * MS, received(master, news));
    node.declare_dead(5 * MS, origin);
    actions(&mut node);
    assert!(node.inspect().entries.is_empty(), "its bounds are gone");
    assert!(node.inspect().hosted.is_empty());
}

#[test]
fn what_is_left_of_the_root_job_of_another_thread_is_not_kept_once_it_is_over_in_any_term() {
    let (mut node, [_, home, other]) = by_hand();
    let job = of_another_thread(home);
    node.handle(
        MS,
        received(other, jobs_of(Request(1), vec![(Token(6), job.clone())])),
    );
    let master = node.view().get(other).expect("it is in").clone();
    let news = Message::Master {
        term: 1,
        branches: 0,
        master,
    };
    node.handle(2 * MS, received(other, news));
    node.handle(
        3 * MS,
        received(home, Message::RootsDone(vec![job.root_run()])),
    );
    actions(&mut node);
    node.declare_dead(4 * MS, other);
    actions(&mut node);
    assert!(node.inspect().entries.is_empty());
}

fn one_byte() -> Answer {
    Answer::result(vec![1].into(), Vec::new())
}

/// Gives the thief these jobs; under which tokens.
fn give(node: &mut Node, thief: Peer, jobs: Vec<Parcel>) -> Vec<Vec<Token>> {
    let jobs = jobs.into_iter().zip(1..);
    let jobs = jobs.map(|(parcel, number)| Taken::Own(DepartureId(number), parcel));
    give_at(node, MS, thief, jobs.collect())
}

fn give_at(node: &mut Node, now: Duration, thief: Peer, jobs: Vec<Taken>) -> Vec<Vec<Token>> {
    let request = take_for(node, now, thief, false);
    let took = Event::Took(TookJobs {
        request,
        jobs,
        ..TookJobs::default()
    });
    node.handle(now, took);
    let messages = actions(node).into_iter().filter_map(|action| match action {
        Action::Send(_, Message::Jobs { jobs, .. }) => {
            Some(jobs.into_iter().map(|(token, _)| token).collect())
        }
        _ => None,
    });
    messages.collect()
}

#[test]
fn siblings_that_are_large_go_in_pieces() {
    let (mut node, [_, thief, _]) = by_hand();
    let siblings = (0..5).map(|index| Parcel {
        id: JobId::ROOT.child(0).child(index),
        arguments: vec![0; if index == 4 { 20 } else { 7 } * MIB].into(),
        ..parcel()
    });
    let given = give(&mut node, thief, siblings.collect());
    let sizes: Vec<usize> = given.iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 2, 1]);
}

#[test]
fn a_theft_that_turns_out_to_be_a_claim_is_counted_as_one() {
    let (mut node, [_, thief, _]) = by_hand();
    let tokens = give(&mut node, thief, vec![parcel()]).concat();
    // Said twice: the link broke.
    for _ in 0..2 {
        node.handle(2 * MS, received(thief, Message::Have(tokens.clone())));
    }
    let answer = Answer::Panicked("so be it".into());
    node.handle(
        3 * MS,
        received(thief, Message::Answers(vec![(tokens[0], answer)])),
    );
    let tally = node.tally();
    assert_eq!((tally.claims, tally.hits), (1, 1));
}

#[test]
fn what_others_keep_of_a_job_is_closed_when_that_has_been_done_again_here() {
    let (mut node, [_, thief, owner]) = by_hand();
    give(&mut node, thief, vec![parcel()]);
    node.declare_dead(2 * MS, thief);
    let below = parcel().id.child(3);
    node.handle(
        3 * MS,
        finished(owner, &[JobName::new(below, Fingerprint(1))]),
    );
    // Another job is done first.
    for done in [JobId::ROOT.child(0).child(0), parcel().id] {
        node.handle_timeout(50 * MS);
        assert!(!is_closed(&actions(&mut node), &parcel().id));
        node.handle(50 * MS, Event::Repaired(done));
    }
    node.handle_timeout(100 * MS);
    assert!(is_closed(&actions(&mut node), &parcel().id));
}

#[test]
fn what_came_back_below_a_job_that_nobody_wants_is_forgotten_with_it() {
    let (mut node, [_, origin, thief]) = by_hand();
    let jobs = jobs_of(Request(1), vec![(Token(5), parcel())]);
    node.handle(MS, received(origin, jobs));
    let started = |action: Action| match action {
        Action::Start(key, _) => Some(key),
        _ => None,
    };
    let key = actions(&mut node).into_iter().find_map(started).unwrap();
    let child = Parcel {
        id: parcel().id.child(1),
        ..parcel()
    };
    give(&mut node, thief, vec![child]);
    node.handle(3 * MS, received(origin, Message::Recall(vec![Token(5)])));
    assert!(actions(&mut node).contains(&Action::Abort(key)));
    // The workers have not stopped yet.
    node.declare_dead(4 * MS, thief);
    assert_eq!(node.inspect().undone, 1);
    node.handle(5 * MS, Event::Done(key, Answer::Aborted));
    assert_eq!(node.inspect().undone, 0);
}

#[test]
fn a_main_that_is_about_to_stop_closes_nothing_that_the_next_one_may_claim() {
    for is_followed in [false, true] {
        let (mut node, [_, master, owner]) = by_hand();
        let name = RootName {
            number: 0,
            fingerprint: Fingerprint(7),
        };
        let root = RootRun { term: 0, name };
        node.handle(MS, Event::RootStarted(root));
        let below = JobId::ROOT.child(0).child(1);
        node.handle(
            2 * MS,
            finished(owner, &[JobName::new(below, Fingerprint(1))]),
        );
        if is_followed {
            let master = node.view().get(master).unwrap().clone();
            let told = Message::Master {
                term: 1,
                branches: 0,
                master,
            };
            node.handle(3 * MS, received(owner, told));
        }
        node.handle(4 * MS, Event::RootFinished(root));
        actions(&mut node);
        node.handle_timeout(50 * MS);
        let closed = is_closed(&actions(&mut node), &JobId::ROOT.child(0));
        assert_eq!(closed, !is_followed);
    }
}

#[test]
fn who_asks_a_node_that_leaves_to_keep_something_is_told_that_it_leaves() {
    let (mut node, [_, asker, _]) = by_hand();
    node.handle(MS, Event::Drain(1000 * MS));
    actions(&mut node);
    let keep = Message::Keep {
        number: 1,
        saved: Vec::new(),
    };
    node.handle(2 * MS, received(asker, keep));
    assert!(actions(&mut node).contains(&Action::Send(asker, Message::Draining)));
}

#[test]
fn a_job_that_was_refused_here_is_taken_in_when_it_comes_again() {
    let (mut node, [_, origin, _]) = by_hand();
    let job = vec![(Token(5), parcel())];
    node.handle(MS, received(origin, jobs_of(Request(1), job)));
    let started = |node: &mut Node| {
        let keys = actions(node).into_iter().filter_map(|action| match action {
            Action::Start(key, _) => Some(key),
            _ => None,
        });
        keys.collect::<Vec<_>>()
    };
    let first = started(&mut node);
    node.handle(
        2 * MS,
        Event::Done(first[0], Answer::Refused("no room".into())),
    );
    assert_eq!(started(&mut node), []);
    // Its origin has not said yet that it has heard that.
    let marked = History {
        marked: true,
        crashes: 0,
    };
    let again = Parcel {
        history: marked,
        ..parcel()
    };
    let jobs = jobs_of(Request(2), vec![(Token(6), again)]);
    node.handle(3 * MS, received(origin, jobs));
    assert_eq!(started(&mut node).len(), 1);
}

#[test]
fn bounds_of_a_root_job_stay_until_the_master_that_it_was_run_for_has_its_result() {
    let (mut node, [master, ..]) = by_hand_as(1, fixed());
    let job = Parcel {
        id: JobId::ROOT.child(0),
        root: parcel().fingerprint,
        ..parcel()
    };
    let run = job.root_run();
    let jobs = jobs_of(Request(1), vec![(Token(5), job)]);
    node.handle(MS, received(master, jobs));
    let offer = Offer {
        bound: BEST,
        root: run.name,
        value: Smallest::write(3),
    };
    node.handle(2 * MS, Event::Offered(offer.clone()));
    let key = actions(&mut node)
        .into_iter()
        .find_map(|action| match action {
            Action::Start(key, _) => Some(key),
            _ => None,
        });
    let answer = Answer::result(vec![1].into(), Vec::new());
    node.handle(3 * MS, Event::Done(key.expect("it runs"), answer));
    // The master has it, and what it said of that is lost with it.
    node.handle(4 * MS, received(master, Message::RootsDone(vec![run])));
    node.declare_dead(5 * MS, master);
    assert_eq!(
        node.inspect().entries.len(),
        1,
        "the next one will ask for it"
    );
    assert_eq!(node.known(&offer), Some(&*offer.value));
}

/// Seed 300154199: the end of a root job had reached everybody but the node that waits for a part of it.
#[test]
fn who_has_not_heard_of_the_end_of_a_root_job_gets_the_bounds_of_its_parts() {
    let job = parcel();
    let run = job.root_run();
    let offer = |value| Offer {
        bound: BEST,
        root: run.name,
        value: Smallest::write(value),
    };
    for (comes_late, known_before) in [(false, true), (false, false), (true, true), (true, false)] {
        let (mut node, [master, _, origin]) = by_hand_as(1, fixed());
        let comes = received(origin, jobs_of(Request(1), vec![(Token(5), job.clone())]));
        let over = received(master, Message::RootsDone(vec![run]));
        let (first, second) = match comes_late {
            false => (comes, over),
            true => (over, comes),
        };
        node.handle(MS, first);
        if known_before {
            node.handle(2 * MS, Event::Offered(offer(4)));
        }
        node.handle(3 * MS, second);
        node.handle(4 * MS, Event::Offered(offer(3)));
        let key = actions(&mut node)
            .into_iter()
            .find_map(|action| match action {
                Action::Start(key, _) => Some(key),
                _ => None,
            });
        node.handle(5 * MS, Event::Done(key.expect("it runs"), one_byte()));
        let told = actions(&mut node).into_iter();
        let answers: Vec<_> = told
            .filter_map(|action| match action {
                Action::Send(to, message) if message.kind() == MessageKind::Answers => {
                    Some((to, message.offers().to_vec()))
                }
                _ => None,
            })
            .collect();
        let story = format!("late: {comes_late}, known before: {known_before}");
        assert_eq!(answers, [(origin, vec![offer(3)])], "{story}");
    }
}

fn task() -> Parcel {
    Parcel {
        keeps: true,
        ..parcel()
    }
}

/// Requests for work among what a node says.
fn requests(actions: &[Action]) -> Vec<(Peer, RequestKind, u32, Request)> {
    let asked = actions.iter().filter_map(|action| match action {
        Action::Send(
            to,
            Message::Steal {
                request,
                most,
                kind,
            },
        ) => Some((*to, *kind, *most, *request)),
        _ => None,
    });
    asked.collect()
}

/// The job that the workers are given.
fn started(actions: &[Action]) -> HostedId {
    let start = actions.iter().find_map(|action| match action {
        Action::Start(key, _) => Some(*key),
        _ => None,
    });
    start.expect("the workers get a job")
}

#[test]
fn the_next_tasks_of_a_flow_are_asked_for_before_the_last_ones_are_done() {
    let (mut node, [_, owner, _]) = by_hand();
    node.handle(MS, Event::Idle(1));
    let (_, _, _, request) = requests(&actions(&mut node))[0];
    node.handle(
        2 * MS,
        received(owner, jobs_of(request, vec![(Token(5), task())])),
    );
    let told = actions(&mut node);
    assert_eq!(requests(&told), [], "nobody knows how long a task takes");
    node.handle(60 * MS, Event::Done(started(&told), one_byte()));
    actions(&mut node);
    // A task takes 58 ms, and the next one comes after 100 ms: so two are to be on their way.
    node.handle(
        200 * MS,
        received(owner, jobs_of(Request(9), vec![(Token(6), task())])),
    );
    let told = actions(&mut node);
    let [(to, kind, most, request)] = requests(&told)[..] else {
        panic!("{told:?}");
    };
    assert_eq!((to, kind, most), (owner, RequestKind::Ahead, 2));
    let key = started(&told);
    node.handle(210 * MS, Event::Idle(0));
    assert_eq!(requests(&actions(&mut node)), [], "it stands");
    // As many as that are enough.
    let jobs = vec![(Token(7), task()), (Token(8), task())];
    node.handle(220 * MS, received(owner, jobs_of(request, jobs)));
    assert_eq!(requests(&actions(&mut node)), []);
    node.handle(260 * MS, Event::Done(key, one_byte()));
    let told = actions(&mut node);
    let [(_, RequestKind::Ahead, 1, request)] = requests(&told)[..] else {
        panic!("{told:?}");
    };
    node.handle(280 * MS, Event::Done(HostedId(key.0 + 1), one_byte()));
    assert_eq!(cuts(&actions(&mut node)), []);
    node.handle(290 * MS, Event::Done(HostedId(key.0 + 2), one_byte()));
    let cut = cuts(&actions(&mut node));
    assert_eq!(cut, [(owner, request)], "there are none left");
}

/// The requests that are cut.
fn cuts(actions: &[Action]) -> Vec<(Peer, Request)> {
    let cut = actions.iter().filter_map(|action| match action {
        Action::Send(to, Message::Cut(request)) => Some((*to, *request)),
        _ => None,
    });
    cut.collect()
}

/// A node with one worker, which runs a task from its owner and has asked that for the next ones: when, and by which request.
fn asks_ahead() -> (Node, [Peer; 3], Request) {
    let (mut node, peers) = by_hand();
    for (at, token) in [(1, 5), (100, 6)] {
        node.handle(at * MS, Event::Idle(1));
        let jobs = vec![(Token(token), task())];
        node.handle(at * MS, received(peers[1], jobs_of(Request(1), jobs)));
        node.handle(at * MS, Event::Idle(0));
        let told = actions(&mut node);
        if token == 5 {
            node.handle(60 * MS, Event::Done(started(&told), one_byte()));
            continue;
        }
        let asked = requests(&told);
        let ahead = asked.iter().find(|asked| asked.1 == RequestKind::Ahead);
        let (to, _, _, request) = *ahead.expect("it asks ahead");
        assert_eq!(to, peers[1]);
        return (node, peers, request);
    }
    unreachable!("it has asked in the second round")
}

#[test]
fn no_task_is_asked_for_ahead_if_those_here_borrow_more_than_half_of_what_there_is_room_for() {
    let half = fixed().flow_data / 2;
    for (bytes, asks) in [(half, true), (half + 1, false)] {
        let (mut node, [_, owner, _], request) = asks_ahead();
        let borrows = Parcel {
            needs: vec![ValueName([7; 32])],
            lent: vec![bytes],
            ..task()
        };
        let jobs = jobs_of(request, vec![(Token(7), borrows)]);
        node.handle(110 * MS, received(owner, jobs));
        let told = actions(&mut node);
        let is_ahead = matches!(requests(&told)[..], [(_, RequestKind::Ahead, 1, _)]);
        assert_eq!(is_ahead, asks, "{bytes} bytes: {told:?}");
    }
}

#[test]
fn the_next_tasks_are_asked_for_where_the_last_ones_came_from() {
    let (mut node, [_, owner, other], request) = asks_ahead();
    let jobs = vec![(Token(7), task())];
    node.handle(110 * MS, received(other, jobs_of(Request(1), jobs)));
    let told = actions(&mut node);
    assert_eq!(cuts(&told), [(owner, request)]);
    let [(to, RequestKind::Ahead, _, _)] = requests(&told)[..] else {
        panic!("{told:?}");
    };
    assert_eq!(to, other);
}

#[test]
fn who_runs_a_job_of_a_tree_too_or_leaves_asks_for_no_tasks() {
    let (mut node, [_, owner, other], request) = asks_ahead();
    let jobs = vec![(Token(7), parcel())];
    node.handle(110 * MS, received(other, jobs_of(Request(1), jobs)));
    assert_eq!(cuts(&actions(&mut node)), [(owner, request)]);
    let (mut node, [_, owner, _], request) = asks_ahead();
    node.handle(110 * MS, Event::Leave);
    assert_eq!(cuts(&actions(&mut node)), [(owner, request)]);
    let (mut node, [_, owner, _], request) = asks_ahead();
    node.handle(110 * MS, Event::MemoryFull(true));
    assert_eq!(cuts(&actions(&mut node)), [(owner, request)]);
    // One that was lost is said again.
    let (mut node, [_, owner, _], request) = asks_ahead();
    node.handle(6000 * MS, Event::Idle(0));
    let told = actions(&mut node);
    assert_eq!(cuts(&told), [(owner, request)]);
    assert!(matches!(requests(&told)[..], [(_, RequestKind::Ahead, ..)]));
}

#[test]
fn who_keeps_what_tasks_need_gets_these_before_others_and_an_idle_node_is_not_forgotten() {
    let (mut node, [_, keeper, idle]) = by_hand();
    let none = |request| {
        Event::Took(TookJobs {
            request,
            ..TookJobs::default()
        })
    };
    node.handle(MS, received(idle, asks(1, true)));
    let (request, _) = the_take(&mut node);
    node.handle(2 * MS, none(request));
    let ahead = Message::Steal {
        request: Request(1),
        most: 1,
        kind: RequestKind::Ahead,
    };
    node.handle(3 * MS, Event::KeptFor(keeper.id));
    node.handle(3 * MS, received(keeper, ahead));
    let (request, terms) = the_take(&mut node);
    assert_eq!(terms.wants(), Wants::Kept);
    let all = TookJobs {
        request,
        jobs: vec![Taken::Own(DepartureId(1), task())],
        ..TookJobs::default()
    };
    node.handle(4 * MS, Event::Took(all));
    assert_eq!(given(&actions(&mut node)), [keeper]);
    node.handle(5 * MS, Event::Public);
    let (_, terms) = the_take(&mut node);
    assert_eq!(terms.wants(), Wants::Any);
}

#[test]
fn jobs_of_a_tree_are_not_asked_for_ahead() {
    let (mut node, [_, owner, _]) = by_hand();
    node.handle(MS, Event::Idle(1));
    actions(&mut node);
    for (round, token) in [(1, 5), (2, 6)] {
        let jobs = vec![(Token(token), parcel())];
        node.handle(
            round * 200 * MS,
            received(owner, jobs_of(Request(token), jobs)),
        );
        let told = actions(&mut node);
        assert_eq!(requests(&told), []);
        let done = Event::Done(started(&told), one_byte());
        node.handle(round * 200 * MS + 60 * MS, done);
        actions(&mut node);
    }
}

#[test]
fn who_asks_ahead_waits_until_there_is_more_than_others_take() {
    let (mut node, [_, busy, idle]) = by_hand();
    let ahead = Message::Steal {
        request: Request(1),
        most: 2,
        kind: RequestKind::Ahead,
    };
    node.handle(MS, received(busy, ahead));
    let (request, terms) = the_take(&mut node);
    assert_eq!(terms.wants(), Wants::Surplus);
    let too_few = TookJobs {
        request,
        ..TookJobs::default()
    };
    node.handle(2 * MS, Event::Took(too_few));
    let told = actions(&mut node);
    assert_eq!(
        told,
        [],
        "it stands, nobody is asked anew, and nobody is hungry"
    );
    // What is not for that one is for one that has nothing to do.
    node.handle(3 * MS, received(idle, asks(2, false)));
    let (request, terms) = the_take(&mut node);
    assert_eq!(terms.wants(), Wants::Any);
    node.handle(4 * MS, took_one(request, task()));
    let told = actions(&mut node);
    assert_eq!(given(&told), [idle]);
    // There is more: but others come first.
    let (request, terms) = take_among(told);
    assert_eq!(terms.wants(), Wants::Surplus);
    let too_few = TookJobs {
        request,
        ..TookJobs::default()
    };
    node.handle(5 * MS, Event::Took(too_few));
    node.handle(6 * MS, received(idle, asks(3, true)));
    let (request, terms) = the_take(&mut node);
    assert_eq!(terms.wants(), Wants::Any);
    node.handle(7 * MS, took_one(request, task()));
    let (request, terms) = the_take(&mut node);
    assert_eq!(terms.wants(), Wants::Surplus);
    node.handle(8 * MS, took_one(request, task()));
    assert_eq!(given(&actions(&mut node)), [busy]);
}

#[test]
fn the_answer_of_an_orphan_that_had_gone_on_is_kept() {
    let (mut node, [_, origin, thief]) = by_hand();
    let jobs = jobs_of(Request(1), vec![(Token(5), parcel())]);
    node.handle(MS, received(origin, jobs));
    let key = actions(&mut node)
        .into_iter()
        .find_map(|action| match action {
            Action::Start(key, _) => Some(key),
            _ => None,
        });
    // Long after it came, another node takes it.
    let late = Duration::from_secs(5);
    let jobs = vec![Taken::Hosted(key.expect("it runs"), parcel())];
    let token = give_at(&mut node, late, thief, jobs)[0][0];
    node.declare_dead(late + MS, origin);
    let answer = one_byte();
    let answers = Message::Answers(vec![(token, answer)]);
    node.handle(late + 2 * MS, received(thief, answers));
    let entries = node.inspect().entries;
    assert!(entries.len() == 1 && entries[0].finished, "{entries:?}");
}

// ---- jobs that are worth the way, and others

/// What the workers have seen: a job with so many bytes of arguments, and as many of result, took that long.
fn sample(bytes: u64, took: Duration) -> JobSample {
    JobSample {
        shape: shape(bytes),
        took,
        back: bytes,
    }
}

fn shape(bytes: u64) -> JobShape {
    JobShape {
        function: 0,
        depth: 1,
        bytes,
        is_more: false,
        lent: 0,
        keeps: false,
    }
}

/// The workers have found nothing that is worth the way, and have seen that.
fn found_nothing_worth(request: u64, samples: Vec<JobSample>) -> Event {
    Event::Took(TookJobs {
        request,
        not_worth: vec![shape(1000).into()],
        samples,
        ..TookJobs::default()
    })
}

/// When the lifeline that hangs here is served again.
fn hangs_until(node: &Node) -> Duration {
    let victim = &node.steal.victim;
    victim.next_timeout().expect("the lifeline hangs on")
}

#[test]
fn who_asks_in_vain_because_nothing_is_worth_it_is_told_so() {
    let (mut node, [_, thief, _]) = by_hand();
    let request = take_for(&mut node, MS, thief, false);
    node.handle(MS, found_nothing_worth(request, Vec::new()));
    let told = Action::Send(thief, Message::NotWorth(Request(1)));
    assert_eq!(actions(&mut node), [told]);
    assert_eq!(node.tally().not_worth, 1);
}

#[test]
fn for_a_while_after_many_refusals_no_job_is_looked_at_for_that_thief() {
    let (mut node, [_, thief, other]) = by_hand();
    let request = take_for(&mut node, MS, thief, false);
    let in_vain = TookJobs {
        request,
        not_worth: vec![shape(1000).into(); 30],
        ..TookJobs::default()
    };
    node.handle(MS, Event::Took(in_vain));
    actions(&mut node);
    let steal = |request| Message::Steal {
        request: Request(request),
        most: 1,
        kind: RequestKind::Now,
    };
    node.handle(2 * MS, received(thief, steal(2)));
    let told = Action::Send(thief, Message::NotWorth(Request(2)));
    assert_eq!(actions(&mut node), [told]);
    // Others are served, and so is this one later on.
    let request = take_for(&mut node, 3 * MS, other, false);
    node.handle(
        3 * MS,
        Event::Took(TookJobs {
            request,
            ..TookJobs::default()
        }),
    );
    actions(&mut node);
    node.handle(32 * MS, received(thief, steal(3)));
    let take = actions(&mut node);
    assert!(
        take.iter()
            .any(|action| matches!(action, Action::Take { .. })),
        "{take:?}"
    );
}

#[test]
fn a_lifeline_that_follows_a_refusal_is_looked_at() {
    let (mut node, [_, thief, other]) = by_hand();
    let request = take_for(&mut node, MS, thief, false);
    node.handle(MS, found_nothing_worth(request, Vec::new()));
    actions(&mut node);
    let request = take_for(&mut node, 2 * MS, thief, true);
    node.handle(2 * MS, found_nothing_worth(request, Vec::new()));
    assert!(hangs_until(&node) > 2 * MS);
    // What is not worth the way there may be worth another.
    take_for(&mut node, 3 * MS, other, true);
}

#[test]
fn each_of_two_lifelines_hangs_for_as_long_as_it_was_told_to() {
    let (mut node, [_, thief, other]) = by_hand();
    // The first is passed over until 26 ms, the second until 27 ms.
    for (at, peer) in [(MS, thief), (2 * MS, other)] {
        let request = take_for(&mut node, at, peer, true);
        node.handle(at, found_nothing_worth(request, Vec::new()));
        actions(&mut node);
    }
    assert_eq!(hangs_until(&node), 26 * MS);
    node.handle_timeout(26 * MS);
    let take = actions(&mut node);
    assert!(matches!(take[..], [Action::Take { .. }]), "{take:?}");
    assert_eq!(hangs_until(&node), 27 * MS, "the other hangs on");
}

#[test]
fn a_lifeline_to_a_node_whose_jobs_are_not_worth_it_is_served_more_and_more_seldom() {
    let (mut node, [_, thief, _]) = by_hand();
    let mut request = take_for(&mut node, MS, thief, true);
    let (mut now, mut waits) = (MS, Vec::new());
    for _ in 0..12 {
        node.handle(now, found_nothing_worth(request, Vec::new()));
        assert!(!(actions(&mut node).iter()).any(|action| matches!(action, Action::Send(..))));
        let next = hangs_until(&node);
        waits.push(next - now);
        now = next;
        node.handle_timeout(now);
        let take = actions(&mut node);
        let [Action::Take { request: next, .. }] = take[..] else {
            panic!("{take:?}");
        };
        request = next;
    }
    assert!(waits.is_sorted(), "{waits:?}");
    assert_eq!((waits[0], waits[11]), (25 * MS, 250 * MS), "{waits:?}");
    // When something is worth it at last, the lifeline brings it.
    let took = TookJobs {
        request,
        jobs: vec![Taken::Own(DepartureId(1), parcel())],
        ..TookJobs::default()
    };
    node.handle(now, Event::Took(took));
    let is_brought =
        |action: &Action| matches!(action, Action::Send(to, Message::Jobs { .. }) if *to == thief);
    assert!(actions(&mut node).iter().any(is_brought));
}

#[test]
fn a_link_is_tried_once_it_matters_how_fast_it_is() {
    let (mut node, [_, thief, _]) = by_hand();
    let request = take_for(&mut node, MS, thief, true);
    // A job of a megabyte took a second here.
    let seen = sample(1 << 20, 1000 * MS);
    node.handle(MS, found_nothing_worth(request, vec![seen]));
    assert_eq!(actions(&mut node), [Action::Hungry(true)]);
    let next = hangs_until(&node);
    node.handle_timeout(next);
    let trial = actions(&mut node);
    let [
        Action::Send(to, Message::Trial(ref bytes)),
        Action::Take {
            request, ref terms, ..
        },
    ] = trial[..]
    else {
        panic!("no trial");
    };
    assert_eq!(to, thief);
    assert!(
        !terms.accept(&shape(1 << 20).into()),
        "nobody knows how far that is"
    );
    node.handle(next, found_nothing_worth(request, Vec::new()));
    // A hundred megabytes a second: two megabytes take 20 ms.
    let took = Duration::from_secs_f64(bytes.len() as f64 / 1e8);
    let round_trip = 100 * MS;
    let arrived = Message::TrialArrived(bytes.len() as u64);
    node.handle(next + took + round_trip, received(thief, arrived));
    let next = hangs_until(&node);
    node.handle_timeout(next);
    let take = actions(&mut node);
    let [Action::Take { ref terms, .. }] = take[..] else {
        panic!("{take:?}");
    };
    assert!(terms.accept(&shape(1 << 20).into()));
    assert!(
        terms.accept(&shape(8 << 20).into()),
        "more bytes, but more work"
    );
    assert!(
        terms.accept(&shape(2 << 10).into()),
        "it is next to nothing"
    );
}

/// All jobs mention this value, which this process has.
struct WithValue(ValueName, u64);

impl Lattices for WithValue {
    fn join(&self, _: BoundName, _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn value_size(&self, name: ValueName) -> Option<u64> {
        (name == self.0).then_some(self.1)
    }
}

const VALUE: ValueName = ValueName([7; 32]);

/// A node that has a value of that size, in a pool with two of another site, or of its own.
fn with_value(bytes: u64, site: &str) -> (Node, [Peer; 3]) {
    by_hand_in(0, fixed(), Box::new(WithValue(VALUE, bytes)), site)
}

fn mentioning(index: u32) -> Parcel {
    Parcel {
        id: JobId::ROOT.child(0).child(index),
        needs: vec![VALUE],
        ..parcel()
    }
}

fn load(bytes: u64) -> JobLoad {
    let values = vec![ValueSize { name: VALUE, bytes }];
    JobLoad {
        values,
        ..shape(3).into()
    }
}

/// The take that the node makes now: its number and its terms.
fn the_take(node: &mut Node) -> (u64, Terms) {
    take_among(actions(node))
}

fn take_among(actions: Vec<Action>) -> (u64, Terms) {
    let take = actions.into_iter().find_map(|action| match action {
        Action::Take { request, terms, .. } => Some((request, terms)),
        _ => None,
    });
    take.expect("the workers are asked")
}

/// That job is taken under that number, and there are more.
fn took_one(request: u64, job: Parcel) -> Event {
    Event::Took(TookJobs {
        request,
        jobs: vec![Taken::Own(DepartureId(request), job)],
        left: 9,
        ..TookJobs::default()
    })
}

/// The thieves to which jobs went.
fn given(actions: &[Action]) -> Vec<Peer> {
    let given = actions.iter().filter_map(|action| match action {
        Action::Send(to, Message::Jobs { jobs, .. }) if !jobs.is_empty() => Some(*to),
        _ => None,
    });
    given.collect()
}

fn asks(request: u64, lifeline: bool) -> Message {
    Message::Steal {
        request: Request(request),
        most: 1,
        kind: kind(lifeline),
    }
}

#[test]
fn a_value_is_paid_once_for_each_site() {
    let bytes = 1 << 20;
    let (mut node, [_, one, other]) = with_value(bytes, "there");
    node.handle(MS, received(one, asks(1, true)));
    let (request, terms) = the_take(&mut node);
    assert!(!terms.accept(&load(bytes)), "it lacks the value");
    node.handle(MS, took_one(request, mentioning(1)));
    node.handle(MS, received(one, asks(2, true)));
    let (request, terms) = the_take(&mut node);
    assert!(terms.accept(&load(bytes)), "a job has taken it there");
    // The other stands where that one stands.
    node.handle(MS, took_one(request, mentioning(2)));
    node.handle(MS, received(other, asks(1, true)));
    let (request, terms) = the_take(&mut node);
    assert!(terms.accept(&load(bytes)));
    // It has dropped it.
    node.handle(MS, took_one(request, mentioning(3)));
    for peer in [one, other] {
        node.handle(2 * MS, received(peer, Message::Unavailable(VALUE)));
    }
    node.handle(2 * MS, received(other, asks(2, true)));
    let (_, terms) = the_take(&mut node);
    assert!(!terms.accept(&load(bytes)));
}

#[test]
fn the_end_of_a_root_job_is_the_end_of_its_values_elsewhere() {
    let bytes = 1 << 20;
    let (mut node, [_, thief, _]) = with_value(bytes, "there");
    node.handle(MS, received(thief, asks(1, true)));
    let (request, _) = the_take(&mut node);
    // The root job of another thread, of which any node may say that it is over.
    let id = JobId::ROOT.child(RootName::OTHERS).child(1);
    let job = Parcel {
        id,
        ..mentioning(1)
    };
    let root = job.root_run();
    node.handle(MS, took_one(request, job));
    node.handle(
        2 * MS,
        received(thief, Message::RootsDone(vec![mentioning(1).root_run()])),
    );
    node.handle(2 * MS, received(thief, Message::RootsDone(vec![root])));
    node.handle(2 * MS, received(thief, asks(2, true)));
    let (_, terms) = the_take(&mut node);
    assert!(!terms.accept(&load(bytes)));
}

#[test]
fn at_the_own_site_each_node_fetches_a_value_itself() {
    let bytes = 1 << 20;
    let (mut node, [_, one, other]) = with_value(bytes, "here");
    node.handle(MS, received(one, asks(1, true)));
    let (request, _) = the_take(&mut node);
    node.handle(MS, took_one(request, mentioning(1)));
    node.handle(MS, received(other, asks(1, true)));
    let (_, terms) = the_take(&mut node);
    assert!(!terms.accept(&load(bytes)));
}

#[test]
fn who_holds_the_value_is_served_before_who_lacks_it_but_not_for_ever() {
    for lifeline in [false, true] {
        let (mut node, [_, lacks, holds]) = with_value(1 << 20, "here");
        // That one has had a job that mentions the value.
        node.handle(MS, received(holds, asks(1, lifeline)));
        let (request, _) = the_take(&mut node);
        node.handle(MS, received(lacks, asks(1, lifeline)));
        let mut served = Vec::new();
        let mut next = request;
        for number in 2..8 {
            // It waits, behind the other, when the next asker is chosen.
            node.handle(MS, received(holds, asks(number, lifeline)));
            node.handle(MS, took_one(next, mentioning(number as u32)));
            let done = actions(&mut node);
            served.extend(given(&done));
            let take = done.iter().find_map(|action| match action {
                Action::Take { request, .. } => Some(*request),
                _ => None,
            });
            next = take.expect("there are more, and some wait");
        }
        let expected = [holds, holds, holds, holds, lacks, holds];
        assert_eq!(served, expected, "lifelines: {lifeline}");
    }
}

#[test]
fn who_lacks_a_small_value_is_served_in_turn() {
    let (mut node, [_, lacks, holds]) = with_value(1000, "here");
    node.handle(MS, received(holds, asks(1, true)));
    let (request, _) = the_take(&mut node);
    node.handle(MS, received(lacks, asks(1, true)));
    node.handle(MS, received(holds, asks(2, true)));
    node.handle(MS, took_one(request, mentioning(1)));
    let (request, _) = the_take(&mut node);
    node.handle(MS, took_one(request, mentioning(2)));
    assert_eq!(given(&actions(&mut node)), [lacks]);
}

#[test]
fn a_node_that_lacks_the_value_is_served_when_no_other_asks() {
    let (mut node, [_, lacks, _]) = with_value(1 << 20, "here");
    for number in 1..4 {
        node.handle(MS, received(lacks, asks(number, false)));
        let (request, _) = the_take(&mut node);
        node.handle(MS, took_one(request, mentioning(number as u32)));
        assert_eq!(given(&actions(&mut node)), [lacks]);
    }
}

/// A tree whose jobs all read a value of 10 MB spreads nearly as well as one that reads none.
#[test]
fn a_tree_over_a_large_value_spreads_at_once() {
    let run = |value: Option<usize>| {
        let mut cluster = Cluster::new(1);
        cluster.form(&fixed(), &[("here", 4)], 1);
        if let Some(bytes) = value {
            cluster.share(vec![7; bytes]);
        }
        let program = cluster.program(Program::new(knary(6), 10 * MS));
        cluster.start_root(0, program);
        if value.is_some() {
            // As its main has done.
            cluster.make_value(0, vec![7; value.unwrap_or(0)]);
        }
        let begun = cluster.now();
        let limit = Duration::from_secs(100);
        assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
        cluster.check(0, &[program]);
        (cluster.now() - begun).as_secs_f64()
    };
    let (without, with) = (run(None), run(Some(10 << 20)));
    assert!(with < 1.1 * without, "{with} s, and {without} s without");
}

#[test]
fn a_node_without_memory_takes_no_jobs_until_there_is_room_again() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 2)], 1);
    // By now it hangs on the other, and would be given jobs as soon as there are some.
    cluster.run_for(1000 * MS);
    cluster.tell(1, Event::MemoryFull(true));
    cluster.run_for(100 * MS); // until its lifeline is cut
    let program = cluster.program(Program::new(knary(6), 10 * MS));
    cluster.start_root(0, program);
    cluster.run_for(5000 * MS);
    assert_eq!(cluster.effort(1).started, 0);
    cluster.tell(1, Event::MemoryFull(false));
    let limit = Duration::from_secs(60);
    assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    assert!(cluster.effort(1).started > 100, "it does its part again");
    cluster.run_for(100 * MS);
    assert_settled(&cluster);
}

#[test]
fn a_node_whose_memory_is_full_goes_on_with_what_it_has_and_gives_to_others() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 3)], 1);
    let program = cluster.program(Program::new(knary(6), 10 * MS));
    cluster.start_root(0, program);
    let limit = Duration::from_secs(60);
    assert!(cluster.run_until(limit, |cluster| cluster.effort(1).started > 10));
    // The root's node is full, and the others live of it.
    cluster.tell(0, Event::MemoryFull(true));
    cluster.tell(1, Event::MemoryFull(true));
    let before = cluster.effort(1).started;
    assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    assert!(cluster.effort(1).started >= before);
    assert!(cluster.effort(2).started > 100);
    cluster.run_for(100 * MS);
    assert_settled(&cluster);
}

#[test]
fn a_root_job_that_is_cancelled_leaves_nothing_behind_within_a_second() {
    let mut cluster = Cluster::new(1);
    cluster.wire.far = Path::new(30 * MS);
    cluster.form(&fixed(), &[("here", 2), ("there", 2)], 2);
    let far_more = Program::new(knary(8), 10 * MS);
    let program = cluster.program(far_more);
    cluster.start_root(0, program);
    let works = |cluster: &Cluster, node| cluster.effort(node).started > 100;
    let all_work = |cluster: &Cluster| (0..4).all(|node| works(cluster, node));
    assert!(cluster.run_until(Duration::from_secs(60), all_work));
    assert!(cluster.cancel_root(0), "it is under way");
    cluster.run_for(500 * MS);
    assert_settled(&cluster);
    assert!(!cluster.cancel_root(0), "it is over");
    // The pool goes on.
    let program = cluster.program(Program::new(knary(4), 10 * MS));
    let tag = cluster.start_root(0, program);
    assert_eq!(tag.name.number, 1);
    let all_rest = |cluster: &Cluster| (0..4).all(|node| cluster.is_empty(node));
    assert!(cluster.run_until(Duration::from_secs(60), all_rest));
    cluster.check(0, &[program]);
}
