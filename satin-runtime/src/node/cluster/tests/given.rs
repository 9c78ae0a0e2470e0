//! Flows whose graphs are told task by task: tasks take their times and move their bytes.

use super::*;
use crate::job::JobSample;

const SECOND: Duration = Duration::from_secs(1);

/// A task that takes a second everywhere, and moves nothing.
fn task(reads: &[u32]) -> GivenTask {
    GivenTask {
        reads: reads.to_vec(),
        times: vec![SECOND],
        arguments: 0,
        result: 0,
        outputs: Vec::new(),
        takes: Vec::new(),
    }
}

/// Nodes that run the flow of these tasks, from the start; nobody looks for the dead.
fn nodes(count: u32, rate: Option<u64>, tasks: Vec<GivenTask>) -> (Cluster, u32) {
    let mut cluster = Cluster::new(1);
    cluster.wire.near.rate = rate;
    let config = ProtocolConfig {
        fixed_members: true,
        ..ProtocolConfig::default()
    };
    cluster.form(&config, &[("here", count)], 1);
    let program = cluster.program(Program::of_tasks(tasks));
    (cluster, program)
}

/// Runs the program on node 0 to its end: how long it takes.
fn time(cluster: &mut Cluster, program: u32) -> Duration {
    let begins = cluster.now();
    cluster.start_root(0, program);
    assert!(cluster.run_until(1000 * SECOND, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    cluster.now() - begins
}

fn is_about(time: Duration, seconds: f64) {
    let off = time.as_secs_f64() - seconds;
    assert!((0.0..0.05).contains(&off), "{time:?} is not {seconds} s");
}

#[test]
fn tasks_follow_what_they_read_and_run_side_by_side() {
    let diamond = || vec![task(&[]), task(&[0]), task(&[0]), task(&[1, 2])];
    for (count, seconds) in [(1, 4.0), (2, 3.0)] {
        let (mut cluster, program) = nodes(count, None, diamond());
        is_about(time(&mut cluster, program), seconds);
        assert_eq!(cluster.flows_seen(0).too_early, None);
    }
}

#[test]
#[should_panic(expected = "task 1 reads what stands before it")]
fn a_task_that_reads_itself_is_refused() {
    _ = Program::of_tasks(vec![task(&[]), task(&[1])]);
}

#[test]
fn a_task_takes_its_time_at_the_place_where_it_runs() {
    let mut slow = task(&[]);
    slow.times = vec![SECOND, 7 * SECOND];
    for (place, seconds) in [(0, 1.0), (1, 7.0)] {
        let (mut cluster, program) = nodes(1, None, vec![slow.clone()]);
        cluster.set_place(0, place);
        is_about(time(&mut cluster, program), seconds);
    }
}

#[test]
fn what_is_under_way_becomes_slow_and_fast_with_its_node() {
    let (mut cluster, program) = nodes(1, None, vec![task(&[]); 2]);
    cluster.start_root(0, program);
    cluster.run_for(SECOND / 2);
    cluster.set_slowness(0, 4.0);
    cluster.run_for(SECOND);
    // Half and a quarter of the first task are done.
    cluster.set_slowness(0, 0.5);
    let left = SECOND.mul_f64(0.125 + 0.5);
    cluster.run_for(left - SECOND / 100);
    assert!(!cluster.is_done(0));
    cluster.run_for(SECOND / 50);
    assert!(cluster.is_done(0));
    cluster.check(0, &[program]);
}

/// The time of two tasks on two nodes of which the second goes to the other node, with so many bytes there and back.
fn with_bytes(rate: u64, arguments: usize, result: usize, share: f64) -> Duration {
    let moves = GivenTask {
        arguments,
        result,
        ..task(&[])
    };
    let (mut cluster, program) = nodes(2, Some(rate), vec![task(&[]), moves]);
    cluster.set_link_speed(0, 1, share);
    time(&mut cluster, program)
}

#[test]
fn what_a_task_reads_and_makes_takes_its_way_there_and_back() {
    is_about(with_bytes(100_000, 0, 0, 1.0), 1.0);
    // Little is risked as long as nothing is known: 64 kB in all.
    is_about(with_bytes(100_000, 30_000, 0, 1.0), 1.3);
    is_about(with_bytes(100_000, 0, 50_000, 1.0), 1.5);
    is_about(with_bytes(100_000, 30_000, 50_000, 1.0), 1.8);
    is_about(with_bytes(100_000, 30_000, 50_000, 0.5), 2.1);
}

#[test]
fn tasks_that_are_not_worth_the_way_stay() {
    let elsewhere = |bytes: usize| {
        let moves = GivenTask {
            arguments: bytes,
            result: bytes,
            ..task(&[])
        };
        let (mut cluster, program) = nodes(2, Some(1_000_000), vec![moves; 40]);
        let took = time(&mut cluster, program);
        (took.as_secs() < 30, cluster.effort(1).started)
    };
    // Half a second of a task's own may go into its way, there and back.
    let (sooner, light) = elsewhere(100_000);
    assert!(sooner && light > 12, "{light}");
    let (sooner, heavy) = elsewhere(2_000_000);
    assert!(!sooner && heavy < 3, "{heavy}");
}

#[test]
fn workers_tell_what_given_tasks_took() {
    let mut first = task(&[]);
    (first.arguments, first.result) = (5000, 300);
    let mut outside = Outside::new(Program::of_tasks(vec![first, task(&[0])]));
    outside.host(false);
    outside.run(2);
    outside
        .workers
        .take(&outside.programs, 1, 1, &Terms::default());
    let took = outside.workers.events.pop_back();
    let Some(Event::Took(TookJobs { samples, .. })) = took else {
        panic!("{took:?}");
    };
    let [JobSample { shape, took, back }] = samples[..] else {
        panic!("{samples:?}");
    };
    assert_eq!((shape.depth, shape.bytes), (2, 5000));
    assert_eq!((took, back), (SECOND, 300));
}

#[test]
fn large_messages_are_sent_one_after_another_and_small_ones_pass_them() {
    let (mut cluster, _) = nodes(2, Some(1_000_000), vec![task(&[])]);
    let (addr, peer) = (cluster.addr(1), cluster.peer(1));
    cluster.connect(0, addr, Some(peer));
    cluster.run_for(SECOND);
    let begins = cluster.now();
    for _ in 0..4 {
        cluster.send(0, peer, Message::Trial(vec![0; 500_000]));
    }
    cluster.send(0, peer, Message::TrialArrived(0));
    let mut arrivals = Vec::new();
    while arrivals.len() < 5 {
        let before = cluster.queue.len();
        let next = cluster.queue.peek();
        let is_one = next.is_some_and(|Reverse(next)| {
            matches!(&next.what, Happening::Arrive { to: 1, message, .. }
                if matches!(**message, Message::Trial(_) | Message::TrialArrived(_)))
        });
        assert!(before > 0 && cluster.step());
        if is_one {
            arrivals.push((cluster.now() - begins).as_secs_f64());
        }
    }
    for (arrival, expected) in arrivals.iter().zip([0.0, 0.5, 1.0, 1.5, 2.0]) {
        assert!((arrival - expected).abs() < 0.01, "{arrivals:?}");
    }
}
