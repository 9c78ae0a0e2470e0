//! Calls that are cancelled: everything below them stops, and the pool goes on.
#![cfg(all(panic = "unwind", not(feature = "serial")))]
#![forbid(unsafe_code)]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use common::{
    Watchdog,
    outside::{
        Told, answer, await_flag, claimed, departures, family, fingerprint, flags, hear, hold,
        listen, pool, raise, raised, two_recalled, unit,
    },
    wait_for,
};
use satin::{
    Cancel, Cancelled, TimedOut, call, cancellation_point,
    job::{JobId, JobName, OrphanNews, Recall, record::Aborted},
    run_cancellable, seq, spawn, spawnable, sync,
    worker::as_main,
};

/// About 2^n leaves; says at `begun` that one has been seen.
#[spawnable]
fn tree(n: u32, begun: usize) -> u64 {
    if n == 0 {
        raise(begun);
        return 1;
    }
    tree(n - 1, begun) + tree(n - 1, begun)
}

/// More than could ever be done.
const ENDLESS: u32 = 60;

/// Cancels once the flag is up.
fn cancel_at(flag: usize) -> Cancel {
    let cancel = Cancel::new();
    let from_elsewhere = cancel.clone();
    std::thread::spawn(move || {
        await_flag(flag);
        from_elsewhere.cancel();
    });
    cancel
}

#[test]
fn a_cancelled_call_stops_with_everything_below_it() {
    let _watchdog = Watchdog::new("a_cancelled_call_stops_with_everything_below_it");
    for threads in 1..=4 {
        let pool = pool(threads);
        for _ in 0..5 {
            let [begun, after] = flags();
            let cancel = cancel_at(begun);
            let result = pool.run_cancellable(&cancel, || tree(ENDLESS, begun));
            assert_eq!(result, Err(Cancelled));
            assert!(cancel.is_cancelled());
            // No job of it runs any more: all leaves that have been seen were seen before.
            let seen = raised(begun);
            assert_eq!(pool.run(|| tree(10, after)), 1024);
            assert_eq!(raised(begun), seen);
        }
    }
}

#[test]
fn a_cancel_before_the_call_calls_nothing_and_one_after_it_changes_nothing() {
    let [begun] = flags();
    let pool = pool(2);
    let cancel = Cancel::new();
    assert_eq!(pool.run_cancellable(&cancel, || tree(3, begun)), Ok(8));
    cancel.cancel();
    cancel.cancel();
    let calls = || unreachable!("it is not called");
    assert_eq!(pool.run_cancellable::<u64>(&cancel, calls), Err(Cancelled));
    // A result that is there counts.
    let late = Cancel::new();
    let result = pool.run_cancellable(&late, || {
        let leaves = tree(3, begun);
        late.cancel();
        leaves
    });
    assert_eq!(result, Ok(8));
    // The next call of a cancelled run is none.
    let late = Cancel::new();
    let result = pool.run_cancellable(&late, || {
        late.cancel();
        tree(3, begun)
    });
    assert_eq!(result, Err(Cancelled));
    assert_eq!(raised(begun), 16);
}

#[test]
fn a_handle_stops_all_the_calls_under_it() {
    let _watchdog = Watchdog::new("a_handle_stops_all_the_calls_under_it");
    let pools = [pool(1), pool(2)];
    let cancel = Cancel::new();
    let begun = flags::<3>();
    std::thread::scope(|scope| {
        let (cancel, [one, two]) = (&cancel, &pools);
        let calls = [(one, begun[0]), (two, begun[1]), (two, begun[2])];
        let runs = calls.map(|(pool, begun)| {
            scope.spawn(move || pool.run_cancellable(cancel, || tree(ENDLESS, begun)))
        });
        await_flag(begun[0]);
        wait_for("a call", || raised(begun[1]) + raised(begun[2]) > 0);
        cancel.cancel();
        for run in runs {
            assert_eq!(run.join().expect("no panic"), Err(Cancelled));
        }
    });
}

#[test]
fn a_call_that_waits_for_a_worker_need_not_wait_any_longer() {
    let _watchdog = Watchdog::new("a_call_that_waits_for_a_worker_need_not_wait_any_longer");
    let pool = pool(1);
    let [busy, until, begun] = flags();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let holds = scope.spawn(|| pool.run(|| hold(busy, until)));
        await_flag(busy);
        let waits = scope.spawn(|| pool.run_cancellable(&cancel, || tree(ENDLESS, begun)));
        let stays = scope.spawn(|| pool.run(|| tree(2, begun)));
        cancel.cancel();
        assert_eq!(waits.join().expect("no panic"), Err(Cancelled));
        assert_eq!(raised(begun), 0, "the only worker is busy");
        raise(until);
        assert_eq!(stays.join().expect("no panic"), 4);
        assert_eq!(holds.join().expect("no panic"), 1);
    });
    // The same where none may start, as nodes are missing.
    pool.gate().hold_roots();
    let late = pool.run_timeout(Duration::from_millis(1), || tree(2, begun));
    assert!(late.is_err());
    let late = pool.run_timeout(Duration::from_millis(1), satin::wait_for_nodes);
    assert!(late.is_err());
    pool.gate().release_roots();
    assert_eq!(pool.run(|| tree(2, begun)), 4);
}

#[test]
fn a_call_that_is_not_done_in_time_is_stopped() {
    let _watchdog = Watchdog::new("a_call_that_is_not_done_in_time_is_stopped");
    let pool = pool(2);
    let [begun] = flags();
    let after = Duration::from_millis(20);
    let late = pool.run_timeout(after, || tree(ENDLESS, begun));
    assert_eq!(late, Err(TimedOut { after }));
    let text = late.expect_err("it is late").to_string();
    assert!(text.contains("not done after 20ms"), "{text}");
    assert_eq!(pool.run_timeout(Duration::MAX, || tree(3, begun)), Ok(8));
}

#[test]
fn scopes_may_stand_in_one_another() {
    let _watchdog = Watchdog::new("scopes_may_stand_in_one_another");
    let pool = pool(2);
    let [first, second, third] = flags();
    // The inner one ends its own call only.
    let (outer, inner) = (Cancel::new(), cancel_at(first));
    let result = pool.run_cancellable(&outer, || {
        let inside = run_cancellable(&inner, || tree(ENDLESS, first));
        assert_eq!(inside, Err(Cancelled));
        tree(3, second)
    });
    assert_eq!(result, Ok(8));
    // The outer one ends both.
    let (outer, inner) = (cancel_at(third), Cancel::new());
    let result = pool.run_cancellable(&outer, || {
        let _ = run_cancellable(&inner, || tree(ENDLESS, third));
        unreachable!("it unwinds")
    });
    assert_eq!(result.map(|()| 0), Err(Cancelled));
    assert!(!inner.is_cancelled());
}

/// Counts in `gone` when it is dropped.
struct Counted {
    gone: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        raise(self.gone);
    }
}

#[spawnable]
fn with_values(n: u32, begun: usize, made: usize, gone: usize) -> u64 {
    raise(made);
    let _counted = Counted { gone };
    if n == 0 {
        raise(begun);
        return 1;
    }
    with_values(n - 1, begun, made, gone) + with_values(n - 1, begun, made, gone)
}

#[test]
fn destructors_run() {
    let _watchdog = Watchdog::new("destructors_run");
    let pool = pool(3);
    let [begun, made, gone] = flags();
    let cancel = cancel_at(begun);
    let result = pool.run_cancellable(&cancel, || with_values(ENDLESS, begun, made, gone));
    assert_eq!(result, Err(Cancelled));
    assert_eq!(raised(made), raised(gone));
}

/// Doubles all values, and then waits for ever in each leaf.
#[spawnable]
fn double(values: &mut [u32], begun: usize) {
    if values.len() > 1 {
        let (left, right) = values.split_at_mut(values.len() / 2);
        double(left, begun);
        double(right, begun);
    } else {
        values.iter_mut().for_each(|value| *value *= 2);
        raise(begun);
        loop {
            cancellation_point();
            std::thread::yield_now();
        }
    }
}

#[test]
fn values_behind_mutable_arguments_are_the_callers_again() {
    let _watchdog = Watchdog::new("values_behind_mutable_arguments_are_the_callers_again");
    let pool = pool(2);
    let [begun] = flags();
    let mut values = [1; 64];
    let cancel = cancel_at(begun);
    let result = pool.run_cancellable(&cancel, || double(&mut values, begun));
    assert_eq!(result, Err(Cancelled));
    let doubled = values.iter().filter(|value| **value == 2).count();
    assert!((1..=2).contains(&doubled), "{values:?}");
    assert_eq!(doubled, raised(begun) as usize);
}

#[spawnable]
fn panics(begun: usize, until: usize) -> u64 {
    hold(begun, until);
    panic!("seven of nine");
}

#[test]
fn a_panic_comes_through() {
    let pool = pool(2);
    let [begun, until] = flags();
    let cancel = Cancel::new();
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| pool.run_cancellable(&cancel, || panics(begun, until)));
        await_flag(begun);
        cancel.cancel();
        raise(until);
        run.join()
    });
    let payload = outcome.expect_err("it panics");
    assert_eq!(payload.downcast_ref(), Some(&"seven of nine"));
}

/// User code that catches whatever unwinds.
#[spawnable]
fn catches(begun: usize) -> u64 {
    let run = AssertUnwindSafe(|| call!(tree(ENDLESS, begun)));
    catch_unwind(run).unwrap_or(17)
}

#[test]
fn what_a_job_returns_after_it_was_stopped_is_no_result() {
    let _watchdog = Watchdog::new("what_a_job_returns_after_it_was_stopped_is_no_result");
    let pool = pool(2);
    let [begun] = flags();
    let cancel = cancel_at(begun);
    let result = pool.run_cancellable(&cancel, || catches(begun));
    assert_eq!(result, Err(Cancelled));
}

/// Gives up its search, and goes on.
#[spawnable]
fn tries(depth: u32, begun: usize, flag: usize) -> u64 {
    if depth > 0 {
        return tries(depth - 1, begun, flag) + tries(depth - 1, begun, flag);
    }
    let cancel = Cancel::new();
    let stopper = cancel.clone();
    std::thread::spawn(move || {
        await_flag(begun);
        stopper.cancel();
    });
    let result = run_cancellable(&cancel, || tree(ENDLESS, begun));
    assert_eq!(result, Err(Cancelled));
    // What stands outside of the scope is not stopped.
    tree(1, flag)
}

#[test]
fn a_job_may_cancel_what_it_calls() {
    let _watchdog = Watchdog::new("a_job_may_cancel_what_it_calls");
    for threads in 1..=3 {
        let pool = pool(threads);
        let [begun, flag] = flags();
        assert_eq!(pool.run(|| tries(3, begun, flag)), 16);
    }
}

/// Is stopped from outside while it waits in a scope of its own.
#[spawnable]
fn waits_inside(begun: usize, after: usize) -> u64 {
    let result = run_cancellable(&Cancel::new(), || tree(ENDLESS, begun));
    raise(after);
    result.unwrap_or(0)
}

#[test]
fn a_job_that_is_stopped_itself_does_not_go_on_after_its_own_scope() {
    let _watchdog =
        Watchdog::new("a_job_that_is_stopped_itself_does_not_go_on_after_its_own_scope");
    let pool = pool(2);
    let [begun, after] = flags();
    let cancel = cancel_at(begun);
    let result = pool.run_cancellable(&cancel, || waits_inside(begun, after));
    assert_eq!(result, Err(Cancelled));
    assert_eq!(raised(after), 0);
}

/// Calls a spawnable function while it is dropped.
struct CallsAtEnd(usize);

impl Drop for CallsAtEnd {
    fn drop(&mut self) {
        assert_eq!(tree(3, self.0), 8);
    }
}

#[test]
fn destructors_may_call_while_a_cancelled_call_unwinds() {
    let _watchdog = Watchdog::new("destructors_may_call_while_a_cancelled_call_unwinds");
    let pool = pool(1);
    let [begun, at_end] = flags();
    let cancel = cancel_at(begun);
    let result = pool.run_cancellable(&cancel, || {
        let _calls = CallsAtEnd(at_end);
        tree(ENDLESS, begun)
    });
    assert_eq!(result, Err(Cancelled));
    assert_eq!(raised(at_end), 8);
}

/// Computes without a spawn.
#[spawnable]
fn turns_round(begun: usize) -> u64 {
    raise(begun);
    loop {
        cancellation_point();
        std::thread::yield_now();
    }
}

#[spawnable]
fn rounds(begun: usize) -> u64 {
    (0..8).map(|_| turns_round(begun)).sum()
}

#[test]
fn a_leaf_stops_at_a_cancellation_point() {
    let _watchdog = Watchdog::new("a_leaf_stops_at_a_cancellation_point");
    cancellation_point(); // outside of jobs there is nothing to stop
    for threads in 1..=2 {
        let pool = pool(threads);
        let [alone, one_of_many, flag] = flags();
        let cancel = cancel_at(alone);
        let result = pool.run_cancellable(&cancel, || turns_round(alone));
        assert_eq!(result, Err(Cancelled));
        let cancel = cancel_at(one_of_many);
        let result = pool.run_cancellable(&cancel, || rounds(one_of_many));
        assert_eq!(result, Err(Cancelled));
        assert_eq!(pool.run(|| tree(2, flag)), 4);
    }
}

/// A job whose own calls, which are not spawned, have a time limit: one that turns round itself, and one below a plain function.
#[spawnable]
fn limits_its_leaves(begun: usize) -> bool {
    let own = satin::run_timeout(Duration::from_millis(20), || plainly(begun));
    let below = satin::run_timeout(Duration::from_millis(20), || calls_plainly(begun));
    own.is_err() && below.is_err()
}

/// A function that the macro does not see: its call is a nested entry.
fn plainly(begun: usize) -> u64 {
    turns_round(begun)
}

#[spawnable]
fn calls_plainly(begun: usize) -> u64 {
    plainly(begun)
}

#[test]
fn leaves_stop_in_calls_of_jobs_and_of_spawned_closures_too() {
    let _watchdog = Watchdog::new("leaves_stop_in_calls_of_jobs_and_of_spawned_closures_too");
    for threads in 1..=2 {
        let pool = pool(threads);
        let [in_job, in_closure, flag] = flags();
        assert!(pool.run(|| limits_its_leaves(in_job)));
        let spawned = pool.spawn(move || {
            let stopped =
                satin::run_timeout(Duration::from_millis(20), || calls_plainly(in_closure));
            stopped.is_err()
        });
        assert!(
            tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime")
                .block_on(spawned)
        );
        assert_eq!(pool.run(|| tree(2, flag)), 4);
    }
}

/// Fails once its sibling runs.
#[spawnable]
fn fails(at: usize) -> Option<u64> {
    await_flag(at);
    None
}

#[spawnable]
fn turns_round_and_may_fail(begun: usize) -> Option<u64> {
    Some(turns_round(begun))
}

#[spawnable]
fn races(begun: usize) -> Option<u64> {
    let turning = spawn!(turns_round_and_may_fail(begun))?;
    let failing = spawn!(fails(begun))?;
    sync!();
    Some(turning + failing)
}

#[test]
fn a_sibling_that_fails_stops_a_leaf_at_its_cancellation_point() {
    let _watchdog = Watchdog::new("a_sibling_that_fails_stops_a_leaf_at_its_cancellation_point");
    let [begun] = flags();
    assert_eq!(pool(2).run(|| races(begun)), None);
}

#[test]
fn jobs_that_are_away_are_recalled_and_their_answers_dropped() {
    let _watchdog = Watchdog::new("jobs_that_are_away_are_recalled_and_their_answers_dropped");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [ready, on, ran] = flags();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let call = || as_main(|| family(3, ready, on, ran));
            let result = pool.run_cancellable(&cancel, call);
            assert_eq!(result, Err(Cancelled));
            pool.run(|| as_main(|| unit(7, ran)))
        });
        await_flag(ready);
        let tokens = departures(&gate, 3);
        assert!(gate.deliver(tokens[1], answer(11)));
        cancel.cancel();
        raise(on);
        let lost = two_recalled(&told);
        let unwanted = [tokens[0], tokens[2]].map(|token| (token, Recall::Unwanted));
        assert_eq!(lost, unwanted);
        // As a root job that has panicked, it is over: others forget what they keep of it.
        hear(&told, |told| match told {
            Told::Finished(tag) if tag.number == 0 => Some(()),
            Told::Yielded(_) | Told::Result(..) => panic!("told {told:?}"),
            _ => None,
        });
        assert!(!gate.deliver(tokens[0], answer(12)), "it is late");
        assert_eq!(run.join().expect("no panic"), 7);
    });
    assert_eq!(raised(ran), 1, "one that was called later");
    let everything = gate.gather(0);
    assert!(everything.facts.is_empty(), "{everything:?}");
}

#[test]
fn a_root_job_that_others_run_already_is_not_waited_for() {
    let _watchdog = Watchdog::new("a_root_job_that_others_run_already_is_not_waited_for");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [ran] = flags();
    gate.begin_main(1);
    let print = fingerprint("unit", &(7u32, ran));
    gate.orphan(OrphanNews::Here(JobName::new(JobId::ROOT.child(0), print)));
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| pool.run_cancellable(&cancel, || as_main(|| unit(7, ran))));
        let (claim, _) = claimed(&told);
        cancel.cancel();
        let recalled = hear(&told, |told| match told {
            Told::Recalled(token, why) => Some((*token, *why)),
            _ => None,
        });
        assert_eq!(recalled, (claim, Recall::Unwanted));
        assert_eq!(run.join().expect("no panic"), Err(Cancelled));
    });
    assert_eq!(raised(ran), 0);
}

#[test]
fn a_main_that_is_stopped_does_not_see_that_it_was_cancelled() {
    let _watchdog = Watchdog::new("a_main_that_is_stopped_does_not_see_that_it_was_cancelled");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [ready, on, ran] = flags();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let main = scope.spawn(|| {
            let call = || pool.run_cancellable(&cancel, || family(3, ready, on, ran));
            let outcome = catch_unwind(AssertUnwindSafe(|| as_main(call)));
            outcome.expect_err("it unwinds").is::<Aborted>()
        });
        await_flag(ready);
        cancel.cancel();
        gate.stop_main();
        raise(on);
        hear(&told, |told| matches!(told, Told::Yielded(_)).then_some(()));
        assert!(main.join().expect("caught"));
    });
}

#[test]
fn sequential_programs_are_not_stopped() {
    let [flag] = flags();
    let cancel = Cancel::new();
    let leaves = run_cancellable(&cancel, || {
        cancel.cancel();
        seq!(tree(4, flag))
    });
    assert_eq!(leaves, Ok(16));
}
