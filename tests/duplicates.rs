//! Nobody waits for what it could do sooner: jobs on other nodes that are done here too, and private jobs that thieves seize while
//! their owner computes.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    sync::Arc,
    thread::{self, ThreadId},
    time::Duration,
};

use common::{
    Watchdog,
    outside::{
        Told, answer, await_flag, during, family, flags, hear, listen, own, raise, raised, take,
    },
    wait_for,
};
use satin::{
    Satin,
    job::{Answer, Back, DepartureId, JobCost, JobLoad, JobTrip, Recall},
    spawn, spawnable, sync,
    worker::{Gate, Judge},
};

/// Lets everything go, over a link with that round trip; but nothing by another thread than that of the test, which would not know of it.
struct Far(Duration, ThreadId);

impl Judge for Far {
    fn accepts(&self, _: &JobLoad) -> bool {
        thread::current().id() == self.1
    }

    fn trip(&self, _: &JobLoad) -> JobTrip {
        JobTrip {
            round_trip: self.0,
            ..JobTrip::default()
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn pool(duplicates: bool) -> Satin {
    satin::builder()
        .threads(1)
        .stack(16)
        .duplicate(u32::from(duplicates))
        .build()
        .expect("a pool")
}

/// Takes a job for a node that is that far away, once there is one.
fn take_for(gate: &Gate, way: Duration) -> DepartureId {
    let judge: Arc<dyn Judge> = Arc::new(Far(way, thread::current().id()));
    let taken = std::cell::RefCell::new(None);
    wait_for("a job", || {
        // Once it is known that their arguments are quickly written; `warm_up` has seen to that, unless it was interrupted.
        let haul = gate.take_for(0, 1, &judge);
        *taken.borrow_mut() = haul.filter(|haul| !haul.jobs.is_empty());
        if taken.borrow().is_none() {
            let again = own(gate.take(1));
            again
                .into_iter()
                .for_each(|(token, _)| _ = gate.put_back(token, Back::default()));
        }
        taken.borrow().is_some()
    });
    own(taken.take().expect("a job")).remove(0).0
}

/// Jobs take a millisecond here, and their way the round trip.
fn know(gate: &Gate) {
    gate.know_costs(Arc::new(|_, trip| {
        Some(JobCost {
            took: Duration::from_millis(1),
            way: trip.round_trip,
        })
    }));
}

/// So that the arguments of such a job are known to be written quickly.
fn warm_up(gate: &Gate) {
    let (token, _) = own(take(gate, 1)).remove(0);
    assert!(gate.put_back(token, Back::default()));
}

/// The oldest job leaves for a node an hour away, and its owner goes on to its sync, and knows what it takes here.
fn send_away(gate: &Gate, ready: usize, go: usize) -> DepartureId {
    await_flag(ready);
    warm_up(gate);
    let token = take_for(gate, HOUR);
    know(gate);
    raise(go);
    token
}

fn duplicates(pool: &Satin) -> u64 {
    pool.figures().iter().map(|worker| worker.duplicates).sum()
}

#[test]
fn a_job_that_would_come_back_late_is_done_here_as_well() {
    let _watchdog = Watchdog::new("a_job_that_would_come_back_late_is_done_here_as_well");
    is_done_here_too(send_away);
}

#[test]
fn an_unknown_job_far_away_is_done_here_as_well() {
    let _watchdog = Watchdog::new("an_unknown_job_far_away_is_done_here_as_well");
    is_done_here_too(|gate, ready, go| {
        await_flag(ready);
        warm_up(gate);
        let token = take_for(gate, HOUR);
        raise(go);
        token
    });
}

/// The owner of a job that leaves so does it too, and its answer counts.
fn is_done_here_too(leave: impl FnOnce(&Gate, usize, usize) -> DepartureId) {
    let pool = pool(true);
    let told = listen(&pool);
    let [ready, go, ran] = flags();
    let sum = during(
        &pool,
        || family(2, ready, go, ran),
        |gate| {
            let token = leave(gate, ready, go);
            hear(&told, |told| {
                (*told == Told::Recalled(token, Recall::Done)).then_some(())
            });
            assert!(
                !gate.deliver(token, answer(1000)),
                "the first answer counts"
            );
        },
    );
    assert_eq!((sum, raised(ran), duplicates(&pool)), (1, 2, 1));
}

#[test]
fn after_a_death_every_job_is_waited_for_until_the_caution_ends() {
    let _watchdog = Watchdog::new("after_a_death_every_job_is_waited_for_until_the_caution_ends");
    is_waited_for(true, |gate, ready, go| {
        gate.be_cautious(HOUR);
        send_away(gate, ready, go)
    });
}

/// The owner of a job that leaves so waits until the other node has answered.
fn is_waited_for(is_on: bool, leave: impl FnOnce(&Gate, usize, usize) -> DepartureId) {
    let pool = pool(is_on);
    let told = listen(&pool);
    let [ready, go, ran] = flags();
    let sum = during(
        &pool,
        || family(2, ready, go, ran),
        |gate| {
            let token = leave(gate, ready, go);
            hear(&told, |told| (*told == Told::Idle(1)).then_some(()));
            assert!(gate.deliver(token, answer(1000)), "nobody was quicker");
        },
    );
    assert!(sum >= 1000, "{sum}");
    assert_eq!(duplicates(&pool), 0);
}

#[test]
fn what_is_near_or_not_to_be_done_twice_is_waited_for() {
    let _watchdog = Watchdog::new("what_is_near_or_not_to_be_done_twice_is_waited_for");
    for (is_on, way, is_known) in [(true, Duration::ZERO, false), (false, HOUR, true)] {
        is_waited_for(is_on, |gate, ready, go| {
            await_flag(ready);
            warm_up(gate);
            let token = take_for(gate, way);
            if is_known {
                know(gate);
            }
            raise(go);
            token
        });
    }
}

/// Spawns until it is stopped.
#[spawnable]
fn restless(begun: usize, level: u32) -> u32 {
    if level == 0 {
        return 0;
    }
    raise(begun);
    let mut sum = 0;
    loop {
        sum += spawn!(restless(begun, level - 1));
        sync!();
        if sum > 0 {
            return sum;
        }
    }
}

#[spawnable]
fn parent_of_restless(ready: usize, go: usize, begun: usize) -> u32 {
    let a = spawn!(restless(begun, 1));
    let b = spawn!(restless(begun, 0));
    raise(ready);
    await_flag(go);
    sync!();
    a + b
}

#[test]
fn the_second_run_stops_when_the_answer_comes() {
    let _watchdog = Watchdog::new("the_second_run_stops_when_the_answer_comes");
    let pool = pool(true);
    let _told = listen(&pool);
    let [ready, go, begun] = flags();
    let sum = during(
        &pool,
        || parent_of_restless(ready, go, begun),
        |gate| {
            let token = send_away(gate, ready, go);
            await_flag(begun); // by the worker itself: nobody else has it
            assert!(gate.deliver(token, answer(77)));
        },
    );
    assert_eq!((sum, duplicates(&pool)), (77, 1));
}

/// Changes what it has borrowed, and consumes what it was given.
#[spawnable]
fn double(numbers: &mut [u64], words: Vec<String>, panics: bool) -> usize {
    assert!(!panics, "on purpose");
    for number in numbers {
        *number *= 2;
    }
    words.len()
}

#[spawnable]
fn lends(ready: usize, go: usize, panics: bool) -> (usize, Vec<u64>) {
    let mut numbers: Vec<u64> = (0..100).collect();
    let mut others = vec![1];
    let words = vec!["a".to_owned(), "b".to_owned()];
    let count = spawn!(double(&mut numbers, words, panics));
    let more = spawn!(double(&mut others, Vec::new(), false));
    raise(ready);
    await_flag(go);
    sync!();
    (count + more, numbers)
}

/// As [`lends`], to a single job, which panics.
#[spawnable]
fn lends_to_one(ready: usize, go: usize) -> usize {
    let mut numbers: Vec<u64> = (0..100).collect();
    let count = spawn!(double(&mut numbers, Vec::new(), true));
    raise(ready);
    await_flag(go);
    sync!();
    count
}

#[test]
fn what_was_lent_is_changed_once() {
    let _watchdog = Watchdog::new("what_was_lent_is_changed_once");
    let pool = pool(true);
    let _told = listen(&pool);
    let [ready, go] = flags();
    let (count, numbers) = during(
        &pool,
        || lends(ready, go, false),
        |gate| {
            send_away(gate, ready, go);
        },
    );
    assert_eq!(count, 2);
    assert!(numbers.into_iter().eq((0..100).map(|number| 2 * number)));
    assert_eq!(duplicates(&pool), 1);
}

#[test]
fn a_panic_of_the_second_run_is_that_of_the_job() {
    let _watchdog = Watchdog::new("a_panic_of_the_second_run_is_that_of_the_job");
    let pool = pool(true);
    let _told = listen(&pool);
    let [ready, go] = flags();
    let outcome = std::thread::scope(|scope| {
        let program = scope.spawn(|| pool.run(|| lends_to_one(ready, go)));
        send_away(&pool.gate(), ready, go);
        program.join()
    });
    let payload = outcome.expect_err("a panic");
    let text = payload.downcast_ref::<String>().expect("a text");
    assert!(text.contains("on purpose"), "{text}");
}

#[test]
fn what_comes_back_undone_while_it_runs_a_second_time_is_done_once_more() {
    let _watchdog =
        Watchdog::new("what_comes_back_undone_while_it_runs_a_second_time_is_done_once_more");
    let pool = pool(true);
    let _told = listen(&pool);
    let [ready, go, begun] = flags();
    let sum = during(
        &pool,
        || parent_of_restless(ready, go, begun),
        |gate| {
            let token = send_away(gate, ready, go);
            await_flag(begun);
            assert!(gate.put_back(token, Back::default()));
            wait_for("the next run", || raised(begun) == 2);
            assert!(!gate.deliver(token, Answer::Aborted), "it is not away");
            let (child, _) = own(take(gate, 1)).remove(0);
            assert!(gate.deliver(child, answer(5)));
        },
    );
    assert_eq!(sum, 5);
}

#[spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    fib(n - 1) + fib(n - 2)
}

#[spawnable]
fn leaf(begun: usize, until: usize) -> u32 {
    raise(begun);
    await_flag(until);
    1
}

#[spawnable]
fn coarse(begun: usize, until: usize, ran: usize) -> u32 {
    // So many quick looks, and the worker keeps its jobs to itself.
    let fine = satin::call!(fib(15));
    assert_eq!(fine, 610);
    let mut sum = 0;
    for _ in 0..4 {
        sum += spawn!(common::outside::unit(10, ran));
    }
    let leaf = satin::call!(leaf(begun, until));
    sync!();
    sum + leaf
}

/// The owner computes, and never looks up; thieves have all of its jobs all the same.
#[test]
#[cfg(target_os = "linux")]
fn a_worker_in_a_long_leaf_is_robbed() {
    let _watchdog = Watchdog::new("a_worker_in_a_long_leaf_is_robbed");
    let pool = pool(true);
    let [begun, until, ran] = flags();
    let sum = during(
        &pool,
        || coarse(begun, until, ran),
        |gate| {
            await_flag(begun);
            for number in 1..=4 {
                let (token, _) = own(take(gate, 1)).remove(0);
                assert!(gate.deliver(token, answer(number)));
            }
            raise(until);
        },
    );
    assert_eq!((sum, raised(ran)), (1 + 2 + 3 + 4 + 1, 0));
    let seized: u64 = pool.figures().iter().map(|worker| worker.seized).sum();
    assert!(seized > 0);
}

#[spawnable]
fn leaves(begun: usize, until: usize) -> u32 {
    let fine = satin::call!(fib(15));
    assert_eq!(fine, 610);
    let mut sum = 0;
    for _ in 0..16 {
        sum += spawn!(leaf(begun, until));
    }
    sync!();
    sum
}

/// In its sync, in the first of many leaves.
#[test]
#[cfg(target_os = "linux")]
fn a_worker_in_the_first_of_many_leaves_is_robbed() {
    let _watchdog = Watchdog::new("a_worker_in_the_first_of_many_leaves_is_robbed");
    let pool = pool(true);
    let [begun, until] = flags();
    let sum = during(
        &pool,
        || leaves(begun, until),
        |gate| {
            await_flag(begun);
            for number in 0..8 {
                let (token, _) = own(take(gate, 1)).remove(0);
                assert!(gate.deliver(token, answer(100)), "{number}");
            }
            raise(until);
        },
    );
    assert_eq!(sum, 8 * 100 + 8);
}

/// The same by the other worker of the process, which would sleep until its neighbour looks up.
#[test]
#[cfg(target_os = "linux")]
fn a_neighbour_does_not_wait_for_a_long_leaf() {
    let _watchdog = Watchdog::new("a_neighbour_does_not_wait_for_a_long_leaf");
    let pool = satin::builder()
        .threads(2)
        .stack(16)
        .build()
        .expect("a pool");
    let [begun, until, ran] = flags();
    let sum = during(
        &pool,
        || coarse(begun, until, ran),
        |_| {
            await_flag(begun);
            wait_for("the neighbour", || raised(ran) == 4);
            raise(until);
        },
    );
    assert_eq!(sum, 41);
}
