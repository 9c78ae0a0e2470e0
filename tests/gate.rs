//! What the gate promises to whoever stands outside: which jobs leave, how they come back, and what is told.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{sync::atomic::Ordering::SeqCst, time::Instant};

use common::{
    Habits, PATIENCE, Watchdog, beside,
    outside::{
        Told, answer, await_flag, done, during, family, flags, hear, ids, listen, own, pool, raise,
        raised, take,
    },
    wait_for,
};
use satin::{
    hungry,
    job::{Answer, Back, DepartureId, HostedId, Parcel, Taken, ValueName, by_number},
    spawn, spawnable, sync,
    worker::{Haul, current_root},
};

#[test]
fn siblings_leave_together_and_never_more_than_half() {
    let _watchdog = Watchdog::new("siblings_leave_together_and_never_more_than_half");
    let pool = pool(1);
    let [ready, go, ran] = flags();
    let sum = during(
        &pool,
        || family(10, ready, go, ran),
        |gate| {
            await_flag(ready);
            assert!(gate.take(0).jobs.is_empty());
            let haul = gate.take(100);
            assert_eq!(haul.left, 5);
            let first = own(haul);
            let root = first[0].1.id.path().next().expect("a root");
            let expected = |numbers: std::ops::Range<u32>| -> Vec<String> {
                numbers.map(|child| format!("{root}.{child}")).collect()
            };
            assert_eq!(ids(&first), expected(0..5));
            assert_eq!(ids(&own(gate.take(2))), expected(5..7), "two of five");
            assert_eq!(ids(&own(gate.take(100))), expected(7..9), "half of three");
            assert_eq!(ids(&own(gate.take(100))), expected(9..10), "half of one");
            assert!(gate.take(100).jobs.is_empty());

            // What comes back can be taken again, under another token, and siblings together.
            assert!(
                first
                    .iter()
                    .all(|(token, _)| gate.put_back(*token, Back::default()))
            );
            let again = own(gate.take(2));
            assert_eq!(ids(&again), expected(0..2));
            assert!(
                !gate.put_back(first[0].0, Back::default()),
                "a stale token changes nothing"
            );
            assert!(gate.deliver(again[0].0, answer(1000)));
            assert!(!gate.deliver(again[0].0, answer(0)));
            // What is refused stays.
            assert!(gate.deliver(again[1].0, Answer::Refused("no room".into())));
            assert_eq!(ids(&own(gate.take(100))), expected(2..4));
            raise(go);
            // The owner does what came back; nobody answers the others: they come back now.
            for token in 0..20 {
                gate.put_back(DepartureId(token), Back::default());
            }
        },
    );
    assert_eq!(sum, 1000 + (1..10).sum::<u32>());
    assert_eq!(raised(ran), 9);
}

#[spawnable]
fn generations(ready: usize, go: usize, ran: usize) -> u32 {
    let mut sum = 0;
    // The other worker steals the first, whose children are deeper.
    sum += spawn!(common::outside::family(4, ready, go, ran));
    await_flag(ready);
    for child in 0..2 {
        sum += spawn!(common::outside::unit(child, ran));
    }
    raise(ready);
    await_flag(go);
    sync!();
    sum
}

#[test]
fn the_shallowest_of_all_deques_goes_first() {
    let _watchdog = Watchdog::new("the_shallowest_of_all_deques_goes_first");
    let pool = pool(2);
    let [ready, go, ran] = flags();
    let sum = during(
        &pool,
        || generations(ready, go, ran),
        |gate| {
            wait_for("both", || raised(ready) == 2);
            let haul = gate.take(100);
            assert_eq!(haul.left, 4);
            let first = own(haul);
            let depths = |jobs: &[(DepartureId, Parcel)]| -> Vec<usize> {
                jobs.iter().map(|(_, parcel)| parcel.id.depth()).collect()
            };
            assert_eq!(depths(&first), [2, 2], "{first:?}");
            let second = own(gate.take(100));
            assert_eq!(depths(&second), [3, 3], "half of four: {second:?}");
            // One of those that come back, shallower than what is public.
            assert!(gate.put_back(first[1].0, Back::default()));
            assert_eq!(ids(&own(gate.take(1))), ids(&first[1..]));
            raise(go);
            for token in 0..20 {
                gate.put_back(DepartureId(token), Back::default());
            }
        },
    );
    assert_eq!(sum, 6 + 1);
}

/// Raises `begun`, then waits for `hold`.
#[spawnable]
fn parent_of_holding(children: u32, ready: usize, go: usize, begun: usize, hold: usize) -> u32 {
    let mut sum = 0;
    for _ in 0..children {
        sum += spawn!(common::outside::hold(begun, hold));
    }
    raise(ready);
    await_flag(go);
    sync!();
    sum
}

/// So many foreign jobs: siblings, calls of [`holding`].
fn foreign(count: u32, begun: usize, hold: usize) -> Vec<Parcel> {
    let elsewhere = pool(1);
    let [ready, go] = flags();
    let mut parcels = Vec::new();
    let sum = during(
        &elsewhere,
        || parent_of_holding(count, ready, go, begun, hold),
        |gate| {
            await_flag(ready);
            while parcels.len() < count as usize {
                for (token, parcel) in own(gate.take(count)) {
                    parcels.push(parcel);
                    assert!(gate.deliver(token, answer(5)));
                }
            }
            raise(go);
        },
    );
    assert_eq!(sum, 5 * count);
    parcels
}

/// A worker that looks for work runs what came back while its owner is busy.
#[test]
fn what_comes_back_is_stolen_by_other_workers() {
    let _watchdog = Watchdog::new("what_comes_back_is_stolen_by_other_workers");
    let pool = pool(2);
    for asleep in [false, true] {
        let [ready, go, ran, begun, hold] = flags();
        let told = listen(&pool);
        // The other worker is kept busy until the job has left.
        let job = foreign(1, begun, hold).remove(0);
        pool.gate().host(HostedId(7), job);
        await_flag(begun);
        let sleeps = || pool.figures().iter().map(|of| of.sleeps).sum::<u64>();
        let before = sleeps();
        during(
            &pool,
            || family(1, ready, go, ran),
            |gate| {
                await_flag(ready);
                let jobs = own(take(gate, 1));
                if asleep {
                    raise(hold);
                    wait_for("sleep", || sleeps() > before);
                }
                assert!(gate.put_back(jobs[0].0, Back::default()));
                raise(hold);
                // The owner waits for `go`.
                await_flag(ran);
                raise(go);
            },
        );
        assert_eq!(done(&told), (HostedId(7), answer(1)));
    }
}

#[test]
fn foreign_jobs_leave_again_until_they_are_started() {
    let _watchdog = Watchdog::new("foreign_jobs_leave_again_until_they_are_started");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [begun, hold] = flags();
    let parcels = foreign(6, begun, hold);
    let stranger = foreign(1, begun, hold).remove(0);
    gate.host(HostedId(0), parcels[0].clone());
    await_flag(begun);
    gate.host(HostedId(100), stranger.clone());
    for (key, parcel) in (1..).zip(&parcels[1..]) {
        gate.host(HostedId(key), parcel.clone());
    }
    let hosted = |haul: Haul| -> Vec<u64> {
        let jobs = haul.jobs.into_iter().map(|job| match job {
            Taken::Hosted(HostedId(key), parcel) => {
                let sent = if key == 100 {
                    &stranger
                } else {
                    &parcels[key as usize]
                };
                assert_eq!(parcel, *sent);
                key
            }
            Taken::Own(..) => panic!("there are none"),
        });
        jobs.collect()
    };
    assert_eq!(hosted(gate.take(2)), [5, 4]);
    assert_eq!(hosted(gate.take(100)), [3, 2], "half of four");
    gate.abort_hosted(HostedId(1));
    assert_eq!(done(&told), (HostedId(1), Answer::Aborted), "at once");
    assert_eq!(hosted(gate.take(100)), [100], "half of one");
    assert_eq!(hosted(gate.take(100)), Vec::<u64>::new());
    gate.abort_hosted(HostedId(5));
    raise(hold);
    assert_eq!(done(&told), (HostedId(0), answer(1)));
    gate.host(HostedId(6), parcels[5].clone());
    assert_eq!(done(&told), (HostedId(6), answer(1)));
}

/// Spawns until it is stopped.
#[spawnable]
fn restless(begun: usize, level: u32) -> u32 {
    if level > 0 {
        return 0;
    }
    raise(begun);
    loop {
        let (a, b) = (restless(begun, 1), restless(begun, 1));
        sync!();
        assert_eq!(a + b, 0);
    }
}

#[spawnable]
fn parent_of_restless(ready: usize, go: usize, begun: usize) -> u32 {
    let answer = spawn!(restless(begun, 0));
    raise(ready);
    await_flag(go);
    sync!();
    answer
}

#[test]
fn a_foreign_job_that_runs_can_be_aborted() {
    let _watchdog = Watchdog::new("a_foreign_job_that_runs_can_be_aborted");
    let [ready, go, begun] = flags();
    let (elsewhere, here) = (pool(1), pool(2));
    let told = listen(&here);
    let answer = during(
        &elsewhere,
        || parent_of_restless(ready, go, begun),
        |gate| {
            await_flag(ready);
            let (token, parcel) = own(take(gate, 1)).remove(0);
            here.gate().host(HostedId(3), parcel);
            await_flag(begun);
            here.gate().abort_hosted(HostedId(3));
            assert_eq!(done(&told), (HostedId(3), Answer::Aborted));
            assert!(gate.deliver(token, answer(9)));
            raise(go);
        },
    );
    assert_eq!(answer, 9);
}

#[test]
fn a_job_that_makes_no_sense_is_refused() {
    let _watchdog = Watchdog::new("a_job_that_makes_no_sense_is_refused");
    let here = pool(1);
    let told = listen(&here);
    let [begun, hold] = flags();
    let job = foreign(1, begun, hold).remove(0);
    let unknown = Parcel {
        function: u32::MAX,
        ..job.clone()
    };
    let nameless = Parcel {
        id: satin::job::JobId::ROOT,
        ..job.clone()
    };
    let bereft = Parcel {
        needs: vec![ValueName([9; 32])],
        lent: vec![20_000],
        ..job.clone()
    };
    let cut = Parcel {
        arguments: vec![].into(),
        ..job
    };
    for (key, parcel) in (0..).zip([unknown, nameless, bereft, cut]) {
        here.gate().host(HostedId(key), parcel);
        let (of, answer) = done(&told);
        let is_right = match key {
            // Arguments that cannot be read.
            3 => matches!(answer, Answer::Unfit(_)),
            _ => matches!(answer, Answer::Refused(_)),
        };
        assert!(of == HostedId(key) && is_right, "{key}: {answer:?}");
    }
    assert_eq!(raised(begun), 0);
}

#[spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    fib(n - 1) + fib(n - 2)
}

#[test]
fn what_is_public_is_told_once_to_whom_it_was_missing() {
    let _watchdog = Watchdog::new("what_is_public_is_told_once_to_whom_it_was_missing");
    let pool = pool(1);
    let told = listen(&pool);
    let publics = || told.try_iter().filter(|told| *told == Told::Public).count();
    assert_eq!(pool.run(|| fib(15)), 610);
    assert_eq!(publics(), 0, "nobody had asked");
    for _ in 0..3 {
        assert!(pool.gate().take(1).jobs.is_empty());
        assert!(pool.gate().take(1).jobs.is_empty());
        assert_eq!(pool.run(|| fib(15)), 610);
        assert_eq!(publics(), 1);
    }
    // A take that found enough asks for nothing.
    let pool = self::pool(1);
    let told = listen(&pool);
    let publics = || told.try_iter().filter(|told| *told == Told::Public).count();
    let [ready, go, ran] = flags();
    during(
        &pool,
        || family(1, ready, go, ran),
        |gate| {
            await_flag(ready);
            let (token, _) = own(gate.take(1)).remove(0);
            assert_eq!(publics(), 0);
            assert!(gate.put_back(token, Back::default()));
            raise(go);
        },
    );
    assert_eq!(pool.run(|| fib(15)), 610);
    assert_eq!(publics(), 0);
}

#[spawnable]
fn enters(ready: usize, go: usize, ran: usize) -> u32 {
    let a = spawn!(common::outside::unit(1, ran));
    // Stands above the nested entry.
    let b = spawn!(common::outside::unit(2, ran));
    let nested = nested_entry(ready, go, ran);
    a + b + nested
}

fn nested_entry(ready: usize, go: usize, ran: usize) -> u32 {
    family(3, ready, go, ran)
}

#[test]
fn what_is_below_a_nested_entry_never_leaves() {
    let _watchdog = Watchdog::new("what_is_below_a_nested_entry_never_leaves");
    let pool = pool(1);
    let told = listen(&pool);
    // From now on depths are noted.
    assert!(pool.gate().take(1).jobs.is_empty());
    let [ready, go, ran] = flags();
    let sum = during(
        &pool,
        || enters(ready, go, ran),
        |gate| {
            await_flag(ready);
            let above = own(gate.take(100));
            assert_eq!(above.len(), 2, "{above:?}");
            // Others take from the end.
            assert!(above[0].1.id > above[1].1.id && above[0].1.id.is_sibling_of(&above[1].1.id));
            assert!(gate.take(5).jobs.is_empty());
            above
                .iter()
                .for_each(|(token, _)| assert!(gate.put_back(*token, Back::default())));
            raise(go);
        },
    );
    assert_eq!((sum, raised(ran)), (1 + 2 + 3, 5));
    drop(told);
}

#[test]
fn the_idle_are_counted() {
    let _watchdog = Watchdog::new("the_idle_are_counted");
    let pool = pool(2);
    let told = listen(&pool);
    let idle = |wanted: u32| {
        hear(&told, |told| (*told == Told::Idle(wanted)).then_some(()));
    };
    idle(2);
    // Whoever comes later is told what it is now.
    let told = listen(&pool);
    let idle = |wanted: u32| {
        hear(&told, |told| (*told == Told::Idle(wanted)).then_some(()));
    };
    idle(2);
    let [ready, go, ran, begun, hold] = flags();
    let jobs = foreign(2, begun, hold);
    during(
        &pool,
        || family(1, ready, go, ran),
        |gate| {
            await_flag(ready);
            // The one child may have been stolen or not: one of two has nothing to do in the end.
            idle(1);
            gate.host(HostedId(0), jobs[0].clone());
            idle(0);
            raise(go);
        },
    );
    raise(hold);
    idle(2);
    assert_eq!(pool.run(hungry_in_a_job), 1);
}

/// The owner of a job that is away waits in its sync, and counts as idle.
#[test]
fn who_waits_in_a_sync_is_idle_and_helps() {
    let _watchdog = Watchdog::new("who_waits_in_a_sync_is_idle_and_helps");
    let pool = pool(1);
    let told = listen(&pool);
    let [ready, go, ran, begun, hold] = flags();
    let job = foreign(1, begun, hold).remove(0);
    raise(hold);
    let sum = during(
        &pool,
        || family(1, ready, go, ran),
        |gate| {
            await_flag(ready);
            let (token, _) = own(gate.take(1)).remove(0);
            told.try_iter().for_each(drop);
            raise(go);
            hear(&told, |told| (*told == Told::Idle(1)).then_some(()));
            gate.host(HostedId(0), job);
            assert_eq!(done(&told), (HostedId(0), answer(1)));
            hear(&told, |told| (*told == Told::Idle(1)).then_some(()));
            assert!(gate.deliver(token, answer(77)));
        },
    );
    assert_eq!(sum, 77);
}

#[spawnable]
fn hungry_in_a_job() -> u32 {
    let since = Instant::now();
    while !hungry() {
        assert!(since.elapsed() < PATIENCE, "the other worker is not idle");
        std::thread::yield_now();
    }
    1
}

#[spawnable]
fn asks_whether_hungry() -> bool {
    hungry()
}

#[test]
fn other_nodes_may_be_hungry() {
    let alone = pool(1);
    assert!(!alone.run(asks_whether_hungry));
    alone.gate().set_hungry(true);
    assert!(alone.run(asks_whether_hungry) && alone.run(hungry));
    alone.gate().set_hungry(false);
    assert!(!alone.run(asks_whether_hungry));
}

#[test]
fn roots_wait_until_they_are_released() {
    let _watchdog = Watchdog::new("roots_wait_until_they_are_released");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [begun, hold] = flags();
    raise(hold);
    let job = foreign(1, begun, hold).remove(0);
    gate.set_term(4);
    gate.hold_roots();
    std::thread::scope(|scope| {
        let root = scope.spawn(|| pool.run(|| fib(10)));
        // The worker runs foreign jobs, again and again, and goes to sleep, but starts no root.
        for key in 0..3 {
            gate.host(HostedId(key), job.clone());
            done(&told);
            hear(&told, |told| match told {
                Told::Started(_) => panic!("the root was held"),
                Told::Idle(1) => Some(()),
                _ => None,
            });
        }
        assert!(!root.is_finished());
        gate.release_roots();
        assert_eq!(root.join().expect("no panic"), 55);
    });
    let started = hear(&told, |told| match told {
        Told::Started(tag) => Some(*tag),
        _ => None,
    });
    assert_eq!(started.term, 4);
    // Told before the caller had its result.
    let finished: Vec<_> = told
        .try_iter()
        .filter(|told| matches!(told, Told::Finished(_)))
        .collect();
    assert_eq!(finished, [Told::Finished(started)]);
}

#[spawnable]
fn knows_its_root(depth: u32, number: Option<u32>) -> u32 {
    let here = current_root().expect("a job has a root").name.number;
    assert_eq!(here, number.unwrap_or(here), "of depth {depth}");
    if depth == 0 {
        return 1;
    }
    let a = knows_its_root(depth - 1, Some(here));
    let b = knows_its_root(depth - 1, Some(here));
    sync!();
    // Whatever this worker has run meanwhile.
    assert_eq!(
        current_root().map(|root| root.name.number),
        Some(here),
        "of depth {depth}"
    );
    a + b
}

fn pool_and_number() -> (u64, u32) {
    let root = current_root().expect("a job has a root");
    (root.pool, root.name.number)
}

#[spawnable]
fn root_of_a_nested_entry() -> ((u64, u32), (u64, u32)) {
    let nested = nested_root();
    (pool_and_number(), nested)
}

fn nested_root() -> (u64, u32) {
    root_alone()
}

#[spawnable]
fn root_alone() -> (u64, u32) {
    pool_and_number()
}

#[test]
fn every_job_knows_its_root() {
    let _watchdog = Watchdog::new("every_job_knows_its_root");
    assert_eq!(current_root(), None);
    for workers in [1, 3] {
        let (here, elsewhere) = (pool(workers), pool(2));
        let ((), report) = beside(&here, &elsewhere, Habits::default(), |watch| {
            let since = Instant::now();
            while watch.taken.load(SeqCst) < 50 && since.elapsed() < PATIENCE {
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| {
                            assert_eq!(here.run(|| knows_its_root(10, None)), 1024);
                        });
                    }
                });
            }
        });
        assert!(report.travelled > 0, "{report:?}");
        let (outer, nested) = here.run(root_of_a_nested_entry);
        assert_eq!(outer, nested);
        let other = here.run(root_alone);
        assert_eq!(other.0, outer.0, "one pool");
        assert_ne!(other.1, outer.1);
        assert_ne!(elsewhere.run(root_alone).0, other.0);
    }
}

/// Many small jobs, in batches, as two nodes would pass them to each other.
#[test]
fn many_jobs_pass_in_batches() {
    let _watchdog = Watchdog::new("many_jobs_pass_in_batches");
    let (a, b) = (pool(1), pool(1));
    let (told, [ready, go, ran]) = (listen(&b), flags());
    let (children, mut passed) = (20_000, 0);
    let sum = during(
        &a,
        || family(children, ready, go, ran),
        |gate| {
            await_flag(ready);
            // Those that are private now are done at home.
            raise(go);
            while raised(ran) < children {
                let jobs = own(gate.take(64));
                let count = jobs.len();
                for (token, parcel) in jobs {
                    assert!(by_number(parcel.function).is_some());
                    b.gate().host(HostedId(token.0), parcel);
                }
                for _ in 0..count {
                    let (key, answer) = done(&told);
                    assert!(gate.deliver(DepartureId(key.0), answer));
                }
                passed += count;
            }
        },
    );
    assert!(passed > 0);
    assert_eq!(sum, (0..children).sum::<u32>());
    assert_eq!(raised(ran), children);
}
