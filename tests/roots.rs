//! What `main`'s root jobs have on top of others: results that are kept elsewhere first, and a `main` that can be stopped
//! here and begun again.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread::{Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

use common::{
    Watchdog,
    outside::{
        Changed, Told, answer, await_flag, claimed, departures, family, fingerprint, flags, hear,
        hold, listen, pool, raise, raised, two_recalled, unit, written,
    },
    wait_for,
};
use satin::{
    Satin,
    job::{
        Answer, Back, History, JobId, JobName, OrphanNews, Recall, RootTag, Saved, record::Aborted,
    },
    spawnable,
    worker::{Gate, as_main},
};

/// Takes long enough to be kept.
#[spawnable]
fn slow(list: &mut Vec<u32>, ran: usize) -> u32 {
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(60) {
        std::thread::yield_now();
    }
    raise(ran);
    list.push(3);
    4
}

/// Takes as long, and returns so many bytes.
#[spawnable]
fn filled(length: usize) -> Vec<u8> {
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(60) {
        std::thread::yield_now();
    }
    vec![7; length]
}

#[test]
fn a_result_that_is_large_for_its_time_is_made_again_rather_than_kept() {
    let _watchdog =
        Watchdog::new("a_result_that_is_large_for_its_time_is_made_again_rather_than_kept");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    gate.keep_roots(true);
    std::thread::scope(|scope| {
        // 5 s would be worth a hundred megabytes.
        let main = main_on(scope, &pool, || {
            filled(100_000_000).len() + filled(300_000).len()
        });
        let (tag, saved) = result(&told);
        assert_eq!(tag.number, 1, "the first one is not kept");
        assert!(saved.answer.size() > 300_000);
        gate.root_kept(tag);
        assert_eq!(main.join().expect("no panic"), 100_300_000);
    });
}

fn slow_on_two(ran: usize) -> (Vec<u32>, u32) {
    let mut list = vec![1, 2];
    let result = slow(&mut list, ran);
    (list, result)
}

fn answer_of_slow(result: u32, list: &[u32]) -> Answer {
    Answer::result(written(&(result, list)).into(), vec![])
}

/// Runs `main` on a thread of its own.
fn main_on<'s, R>(
    scope: &'s Scope<'s, '_>,
    pool: &'s Satin,
    main: impl FnOnce() -> R + Send + 's,
) -> ScopedJoinHandle<'s, R>
where
    R: Send + 's,
{
    scope.spawn(|| pool.run(|| as_main(main)))
}

fn result(told: &mpsc::Receiver<Told>) -> (RootTag, Saved) {
    hear(told, |told| match told {
        Told::Result(tag, saved) => Some((*tag, saved.clone())),
        Told::Finished(tag) if tag.number > 0 => panic!("{tag:?} is not kept"),
        _ => None,
    })
}

fn yielded(told: &mpsc::Receiver<Told>) -> Vec<Saved> {
    hear(told, |told| match told {
        Told::Yielded(saved) => Some(saved.clone()),
        Told::Finished(tag) if tag.number < 1 << 31 => panic!("{tag:?} was stopped"),
        _ => None,
    })
}

fn is_aborted<R>(call: impl FnOnce() -> R) -> bool {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(_) => false,
        Err(payload) => payload.is::<Aborted>(),
    }
}

fn root(number: u32) -> JobId {
    JobId::ROOT.child(number)
}

/// What lets `main` go on that waits until its result is kept.
type Release = fn(&Gate, RootTag);

#[test]
fn main_sees_a_result_once_it_is_kept() {
    let _watchdog = Watchdog::new("main_sees_a_result_once_it_is_kept");
    let ways: [Release; 3] = [
        |gate, tag| {
            let number = tag.number + 1;
            gate.root_kept(RootTag { number, ..tag }); // is another's
            gate.root_kept(tag);
        },
        |gate, _| gate.keep_roots(false),
        |gate, _| gate.call_home(),
    ];
    for (release, workers) in ways.into_iter().zip([1, 2, 1]) {
        let pool = pool(workers);
        let (gate, told) = (pool.gate(), listen(&pool));
        let [ran] = flags();
        gate.keep_roots(true);
        std::thread::scope(|scope| {
            let main = main_on(scope, &pool, || {
                // Not worth it.
                assert_eq!(unit(7, ran), 7);
                slow_on_two(ran)
            });
            let (tag, saved) = result(&told);
            let print = fingerprint("slow", &(Changed::Here(vec![1u32, 2]), ran));
            let expected = Saved {
                name: JobName::new(root(1), print),
                root: print,
                answer: answer_of_slow(4, &[1, 2, 3]),
            };
            assert_eq!(saved, expected);
            assert_eq!((tag.number, tag.term), (1, 0));
            // Others are not kept, and the workers go on.
            assert_eq!(pool.run(|| slow_on_two(ran)), (vec![1, 2, 3], 4));
            assert!(!main.is_finished());
            let finished = told.try_iter().filter(|told| *told == Told::Finished(tag));
            assert_eq!(finished.count(), 0);
            release(&gate, tag);
            hear(&told, |told| (*told == Told::Finished(tag)).then_some(()));
            assert_eq!(main.join().expect("no panic"), (vec![1, 2, 3], 4));
        });
        assert_eq!(raised(ran), 3);
    }
}

#[test]
fn a_main_that_is_stopped_unwinds() {
    let _watchdog = Watchdog::new("a_main_that_is_stopped_unwinds");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [ready, on, ran] = flags();
    std::thread::scope(|scope| {
        let main = main_on(scope, &pool, || {
            assert!(is_aborted(|| family(3, ready, on, ran)));
            // And so does everything to come.
            assert!(is_aborted(|| unit(0, ran)));
        });
        await_flag(ready);
        let tokens = departures(&gate, 3);
        assert!(gate.deliver(tokens[1], answer(11)));
        gate.stop_main();
        raise(on);
        let lost = two_recalled(&told);
        let abandoned = [tokens[0], tokens[2]].map(|token| (token, Recall::Abandoned));
        assert_eq!(lost, abandoned);
        let root_print = fingerprint("family", &(3u32, ready, on, ran));
        let print = fingerprint("unit", &(1u32, ran)).within(root_print);
        let expected = Saved {
            name: JobName::new(root(0).child(1), print),
            root: root_print,
            answer: answer(11),
        };
        assert_eq!(yielded(&told), [expected]);
        main.join().expect("no panic");
        assert_eq!(raised(ran), 0);
        // Not so those of others.
        assert_eq!(pool.run(|| unit(5, ran)), 5);
        // Now there is none to stop.
        gate.stop_main();
        hear(&told, |told| matches!(told, Told::Yielded(_)).then_some(()));
    });
}

#[test]
fn main_stops_wherever_it_is() {
    let _watchdog = Watchdog::new("main_stops_wherever_it_is");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [ran, begun, until] = flags();
    // Its result waits to be kept.
    gate.keep_roots(true);
    std::thread::scope(|scope| {
        let main = main_on(scope, &pool, || is_aborted(|| slow_on_two(ran)));
        let (tag, _) = result(&told);
        gate.stop_main();
        assert_eq!(yielded(&told), []);
        assert!(main.join().expect("no panic"));
        gate.root_kept(tag);
    });
    // Its job has not been started; nor has that of another thread.
    gate.begin_main(3);
    gate.hold_roots();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| pool.run(|| unit(6, ran)));
        let main = main_on(scope, &pool, || {
            raise(begun);
            is_aborted(|| unit(5, ran))
        });
        await_flag(begun);
        // Before or after the call: it makes no difference.
        gate.stop_main();
        assert_eq!(yielded(&told), []);
        assert!(main.join().expect("no panic"));
        assert!(!other.is_finished());
        gate.release_roots();
        assert_eq!(other.join().expect("no panic"), 6);
    });
    // It has its result before it looks up, and that is worth keeping.
    gate.begin_main(4);
    gate.keep_roots(false);
    std::thread::scope(|scope| {
        let main = main_on(scope, &pool, || is_aborted(|| hold(begun, until)));
        wait_for("the job", || raised(begun) == 2);
        gate.stop_main();
        let since = Instant::now();
        wait_for("a while", || since.elapsed() > Duration::from_millis(60));
        raise(until);
        let print = fingerprint("hold", &(begun, until));
        let expected = Saved {
            name: JobName::new(root(0), print),
            root: print,
            answer: answer(1),
        };
        assert_eq!(yielded(&told), [expected]);
        assert!(main.join().expect("no panic"));
    });
}

#[test]
fn a_main_that_begins_again_claims_what_is_left() {
    let _watchdog = Watchdog::new("a_main_that_begins_again_claims_what_is_left");
    for workers in [1, 3] {
        let pool = pool(workers);
        let (gate, told) = (pool.gate(), listen(&pool));
        let [ready, on, ran] = flags();
        raise(on);
        let program = || (slow_on_two(ran), unit(7, ran), family(4, ready, on, ran));
        // The first time all of it runs, and no mark is on anything.
        std::thread::scope(|scope| {
            let main = main_on(scope, &pool, program);
            assert_eq!(main.join().expect("no panic"), ((vec![1, 2, 3], 4), 7, 6));
        });
        assert_eq!(raised(ran), 2 + 4);
        gate.stop_main();
        gate.begin_main(1);
        let here = |id: JobId, print| gate.orphan(OrphanNews::Here(JobName::new(id, print)));
        here(
            root(0),
            fingerprint("slow", &(Changed::Here(vec![1u32, 2]), ran)),
        );
        here(root(1), fingerprint("unit", &(7u32, ran)));
        let third = fingerprint("family", &(4u32, ready, on, ran));
        here(
            root(2).child(3),
            fingerprint("unit", &(3u32, ran)).within(third),
        );
        std::thread::scope(|scope| {
            let main = main_on(scope, &pool, program);
            let (claim, parcel) = claimed(&told);
            assert_eq!((parcel.id, parcel.term), (root(0), 1));
            assert!(parcel.history.marked);
            assert!(gate.take(1).jobs.is_empty(), "it stays");
            // Others go on meanwhile.
            if workers > 1 {
                assert_eq!(pool.run(|| unit(5, ran)), 5);
            }
            assert!(gate.deliver(claim, answer_of_slow(40, &[1, 2, 30])));
            let (claim, parcel) = claimed(&told);
            assert_eq!(parcel.id, root(1));
            let history = History {
                marked: true,
                crashes: 0,
            };
            let back = Back {
                history,
                at_once: true,
                held: false,
                stays: false,
            };
            assert!(gate.put_back(claim, back));
            let (claim, parcel) = claimed(&told);
            assert_eq!(parcel.id, root(2).child(3));
            assert!(gate.deliver(claim, answer(30)));
            let result = main.join().expect("no panic");
            assert_eq!(result, ((vec![1, 2, 30], 40), 7, 1 + 2 + 30));
        });
        let others = u32::from(workers > 1);
        assert_eq!(raised(ran), 6 + others + 1 + 3);
    }
}

#[test]
fn a_claim_of_main_is_recalled_when_it_is_stopped() {
    let _watchdog = Watchdog::new("a_claim_of_main_is_recalled_when_it_is_stopped");
    let pool = pool(2);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [ran] = flags();
    gate.begin_main(1);
    let print = fingerprint("unit", &(7u32, ran));
    gate.orphan(OrphanNews::Here(JobName::new(root(0), print)));
    std::thread::scope(|scope| {
        let main = main_on(scope, &pool, || is_aborted(|| unit(7, ran)));
        let (claim, _) = claimed(&told);
        gate.stop_main();
        let recalled = hear(&told, |told| match told {
            Told::Recalled(token, why) => Some((*token, *why)),
            _ => None,
        });
        assert_eq!(recalled, (claim, Recall::Abandoned));
        assert_eq!(yielded(&told), []);
        assert!(main.join().expect("no panic"));
    });
    assert_eq!(raised(ran), 0);
}
