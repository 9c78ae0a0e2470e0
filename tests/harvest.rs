//! The harvest: which results are kept, and what becomes of them when a job is given up.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    time::Duration,
};

use common::{
    Watchdog,
    outside::{
        Changed, Told, answer, await_flag, done, family, fingerprint, flags, hear, hold, listen,
        own, parcel, pool, raise, raised, take,
    },
    wait_for,
};
use satin::{
    Satin, Shared,
    job::{Answer, Back, DepartureId, Fingerprint, HostedId, JobId, JobName, Recall, Saved},
    spawn, spawnable, sync,
    worker::Gate,
};

fn job() -> JobId {
    JobId::ROOT.child(0).child(1)
}

const KEY: HostedId = HostedId(3);

/// The job ended: it was given up, and this was saved.
fn saved(told: &mpsc::Receiver<Told>) -> Vec<Saved> {
    let mut saved = hear(told, |told| match told {
        Told::Saved(key, saved) => Some((*key, saved.clone())),
        Told::Done(key, answer) => panic!("{key:?} is done: {answer:?}"),
        _ => None,
    });
    assert_eq!(saved.0, KEY);
    saved.1.sort_by(|a, b| a.name.cmp(&b.name));
    saved.1
}

fn recalled(told: &mpsc::Receiver<Told>) -> (DepartureId, Recall) {
    hear(told, |told| match told {
        Told::Recalled(token, why) => Some((*token, *why)),
        _ => None,
    })
}

fn unit_of(parent: &JobId, number: u32, ran: usize, answer: Answer) -> Saved {
    Saved {
        name: JobName::new(parent.child(number), fingerprint("unit", &(number, ran))),
        root: Fingerprint(0),
        answer,
    }
}

/// Takes all of a family's children, the oldest first.
fn take_all(gate: &Gate, count: usize) -> Vec<DepartureId> {
    let mut tokens = Vec::new();
    while tokens.len() < count {
        tokens.extend(own(take(gate, 100)).iter().map(|(token, _)| *token));
    }
    tokens
}

#[test]
fn answers_are_saved_and_the_rest_is_abandoned() {
    let _watchdog = Watchdog::new("answers_are_saved_and_the_rest_is_abandoned");
    for workers in [1, 3] {
        let pool = pool(workers);
        let (gate, told) = (pool.gate(), listen(&pool));
        let [begun, until, ready, on, ran] = flags();
        // The others are busy.
        std::thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(|| pool.run(|| hold(begun, until)));
            }
            wait_for("the others", || raised(begun) as usize == workers - 1);
            gate.host(KEY, parcel(job(), "family", &(5u32, ready, on, ran)));
            await_flag(ready);
            let tokens = take_all(&gate, 5);
            assert!(gate.deliver(tokens[0], answer(10)));
            let panicked = Answer::Panicked("a mine".into());
            assert!(gate.deliver(tokens[1], panicked));
            assert!(gate.put_back(tokens[2], Back::default()));
            assert!(gate.deliver(tokens[4], answer(14)));
            gate.save_hosted(KEY);
            raise(on);
            assert_eq!(recalled(&told), (tokens[3], Recall::Abandoned));
            // That a job panicked is no result: run again it may go well.
            let expected = [(0, answer(10)), (4, answer(14))]
                .map(|(number, answer)| unit_of(&job(), number, ran, answer));
            assert_eq!(saved(&told), expected);
            assert!(!gate.deliver(tokens[3], answer(13)));
            assert_eq!(raised(ran), 0);
            raise(until);
        });
    }
}

/// As [`family`], and one whose arguments change while it runs.
#[spawnable]
fn mixed(ready: usize, on: usize, ran: usize) -> u32 {
    let mut counted = 0;
    let a = spawn!(common::outside::unit(0, ran));
    let b = spawn!(count(&mut counted, ran));
    let c = spawn!(common::outside::unit(2, ran));
    raise(ready);
    await_flag(on);
    sync!();
    a + b + c + counted
}

#[spawnable]
fn count(counted: &mut u32, ran: usize) -> u32 {
    *counted += 1;
    raise(ran);
    1
}

#[test]
fn what_other_workers_have_done_is_saved() {
    let _watchdog = Watchdog::new("what_other_workers_have_done_is_saved");
    for heard in [true, false] {
        let pool = pool(2);
        let gate = pool.gate();
        let mut told = heard.then(|| listen(&pool));
        let [ready, on, ran] = flags();
        gate.host(KEY, parcel(job(), "mixed", &(ready, on, ran)));
        wait_for("the children", || raised(ran) == 3);
        // Who does not listen yet has nothing recorded.
        let told = told.get_or_insert_with(|| listen(&pool));
        // The last of them is settled a little later.
        wait_for("the other worker", || pool.gate().take(0).left == 0);
        gate.save_hosted(KEY);
        raise(on);
        let counting = Saved {
            name: JobName::new(
                job().child(1),
                fingerprint("count", &(Changed::Here(0u32), ran)),
            ),
            root: Fingerprint(0),
            // With what the job has left in its argument.
            answer: Answer::result(
                postcard::to_stdvec(&(1u32, 1u32)).expect("numbers").into(),
                vec![],
            ),
        };
        let [first, last] = [0, 2].map(|number| unit_of(&job(), number, ran, answer(number)));
        let expected = [first, counting, last];
        let expected = if heard { &expected[..] } else { &[] };
        assert_eq!(saved(told), expected);
    }
}

#[spawnable]
fn grandparent(ready: usize, on: usize, ran: usize, up: usize) -> u32 {
    let a = spawn!(common::outside::unit(0, ran));
    // Others take the last first.
    let b = spawn!(common::outside::family(3, ready, on, ran));
    await_flag(up);
    sync!();
    a + b
}

/// The other worker has stolen the family, and waits for its children.
#[test]
fn all_stacks_below_a_job_are_given_up() {
    let _watchdog = Watchdog::new("all_stacks_below_a_job_are_given_up");
    let pool = pool(2);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [ready, on, ran, up] = flags();
    gate.host(KEY, parcel(job(), "grandparent", &(ready, on, ran, up)));
    await_flag(ready);
    let tokens = take_all(&gate, 4);
    // The aunt is the shallowest.
    assert!(gate.deliver(tokens[0], answer(20)));
    assert!(gate.deliver(tokens[2], answer(11)));
    raise(on);
    gate.save_hosted(KEY);
    let mut lost = [recalled(&told), recalled(&told)];
    lost.sort_by_key(|(token, _)| *token);
    let abandoned = [tokens[1], tokens[3]].map(|token| (token, Recall::Abandoned));
    assert_eq!(lost, abandoned);
    raise(up);
    let expected = [
        unit_of(&job(), 0, ran, answer(20)),
        unit_of(&job().child(1), 1, ran, answer(11)),
    ];
    assert_eq!(saved(&told), expected);
}

#[test]
fn a_job_may_be_quicker() {
    let _watchdog = Watchdog::new("a_job_may_be_quicker");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [begun, until] = flags();
    gate.host(KEY, parcel(job(), "hold", &(begun, until)));
    await_flag(begun);
    // One that has not been started is given up at once.
    gate.host(HostedId(4), parcel(job(), "hold", &(begun, until)));
    gate.save_hosted(HostedId(4));
    let at_once = hear(&told, |told| match told {
        Told::Saved(key, saved) => Some((*key, saved.len())),
        _ => None,
    });
    assert_eq!(at_once, (HostedId(4), 0));
    gate.save_hosted(KEY);
    raise(until);
    assert_eq!(done(&told), (KEY, answer(1)));
    assert_eq!(raised(begun), 1);
}

/// Catches what unwinds it.
#[spawnable]
fn stubborn(ready: usize, on: usize, ran: usize) -> u32 {
    catch_unwind(AssertUnwindSafe(|| entry(ready, on, ran))).unwrap_or(1000)
}

fn entry(ready: usize, on: usize, ran: usize) -> u32 {
    family(3, ready, on, ran)
}

#[test]
fn what_is_made_of_a_job_that_was_given_up_is_no_result() {
    let _watchdog = Watchdog::new("what_is_made_of_a_job_that_was_given_up_is_no_result");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [ready, on, ran] = flags();
    gate.host(KEY, parcel(job(), "stubborn", &(ready, on, ran)));
    await_flag(ready);
    gate.save_hosted(KEY);
    raise(on);
    assert_eq!(saved(&told), []);
}

/// Runs children one after the other until it is told to go on.
#[spawnable]
fn one_by_one(on: usize, ran: usize) -> u32 {
    let (mut sum, mut number) = (0u32, 0);
    while raised(on) == 0 {
        let a = spawn!(common::outside::unit(number, ran));
        // The last one before a sync is called, not spawned: it is a part of this job.
        let b = spawn!(common::outside::unit(number + 1, ran));
        sync!();
        sum = sum.wrapping_add(a + b);
        number += 2;
    }
    sum
}

/// As [`one_by_one`], and then waits as a leaf does, without a look at what others want.
#[spawnable]
fn one_by_one_and_wait(on: usize, waits: usize, until: usize, ran: usize) -> u32 {
    let (mut sum, mut number) = (0u32, 0);
    while raised(on) == 0 {
        let a = spawn!(common::outside::unit(number, ran));
        let b = spawn!(common::outside::unit(number + 1, ran));
        sync!();
        sum = sum.wrapping_add(a + b);
        number += 2;
    }
    raise(waits);
    await_flag(until);
    sum
}

/// Spawns a row of children, and another, until it is told to go on.
#[spawnable]
fn row_by_row(on: usize, ran: usize) -> u32 {
    let (mut sum, mut number) = (0u64, 0);
    while raised(on) == 0 {
        for _ in 0..100 {
            sum += u64::from(spawn!(common::outside::unit(number, ran)));
            number += 1;
        }
        sync!();
    }
    sum as u32
}

/// As [`one_by_one`], where a child changes what it is lent.
#[spawnable]
fn lent_by_turns(on: usize, ran: usize) -> u32 {
    let mut counted = 0;
    while raised(on) == 0 {
        let one = spawn!(count(&mut counted, ran));
        let two = spawn!(common::outside::unit(2, ran));
        sync!();
        assert_eq!((one, two), (1, 2));
    }
    counted
}

fn number_of_harvested(pool: &Satin) -> u64 {
    pool.figures().iter().map(|worker| worker.harvested).sum()
}

/// Hosts the job until results have been kept, gives it up, and returns them.
fn given_up(pool: &Satin, function: &str, on: usize, ran: usize) -> Vec<Saved> {
    let (gate, told) = (pool.gate(), listen(pool));
    gate.host(KEY, parcel(job(), function, &(on, ran)));
    wait_for("the harvest", || number_of_harvested(pool) > 1000);
    gate.save_hosted(KEY);
    let saved = saved(&told);
    raise(on);
    saved
}

#[test]
fn what_a_worker_has_run_itself_is_kept() {
    let _watchdog = Watchdog::new("what_a_worker_has_run_itself_is_kept");
    for function in ["one_by_one", "row_by_row"] {
        let pool = pool(1);
        let [on, ran] = flags();
        let saved = given_up(&pool, function, on, ran);
        assert!(saved.len() > 100, "{function}: {}", saved.len());
        for kept in saved {
            let number = kept.name.id.path().last().expect("a child");
            assert_eq!(
                kept,
                unit_of(&job(), number, ran, answer(number)),
                "{function}"
            );
        }
    }
}

/// Three children and one that is called, each of which takes many beats.
#[spawnable]
fn long_leaves(ran: usize) -> u32 {
    let a = spawn!(long_leaf(0, ran));
    let b = spawn!(long_leaf(1, ran));
    let c = spawn!(long_leaf(2, ran));
    let d = spawn!(long_leaf(3, ran));
    sync!();
    a + b + c + d
}

#[spawnable]
fn long_leaf(number: u32, ran: usize) -> u32 {
    std::thread::sleep(Duration::from_millis(300));
    common::outside::unit(number, ran)
}

/// One leaf is lost, as it ended before the invocation was known to live long, and not two.
#[test]
fn of_long_leaves_the_second_is_kept() {
    let _watchdog = Watchdog::new("of_long_leaves_the_second_is_kept");
    let pool = pool(1);
    let [ran] = flags();
    let (gate, told) = (pool.gate(), listen(&pool));
    gate.host(KEY, parcel(job(), "long_leaves", &ran));
    assert_eq!(done(&told), (KEY, answer(6)));
    assert_eq!(number_of_harvested(&pool), 3);
}

/// A stair of that many levels, at whose foot children run one after the other.
#[spawnable]
fn stair(on: usize, ran: usize) -> u32 {
    let down = spawn!(step(LEVELS, on, ran));
    let beside = spawn!(common::outside::unit(0, ran));
    sync!();
    down.wrapping_add(beside)
}

/// No more than names may have for nothing: the children take no time.
const LEVELS: u32 = 55;

#[spawnable]
fn step(level: u32, on: usize, ran: usize) -> u32 {
    if level == 0 {
        let foot = spawn!(one_by_one(on, ran));
        sync!();
        return foot;
    }
    let down = spawn!(step(level - 1, on, ran));
    let beside = spawn!(common::outside::unit(level, ran));
    sync!();
    down.wrapping_add(beside)
}

/// Names far down in the tree, which are found from landmarks on the way.
#[test]
fn what_is_kept_far_down_has_its_name() {
    let _watchdog = Watchdog::new("what_is_kept_far_down_has_its_name");
    let pool = pool(1);
    let [on, ran] = flags();
    let saved = given_up(&pool, "stair", on, ran);
    assert!(saved.len() > 100, "{}", saved.len());
    // All the way down the first child.
    let foot = job().descendant((0..LEVELS + 2).map(|_| 0));
    for kept in saved {
        let number = kept.name.id.path().last().expect("a child");
        assert_eq!(kept, unit_of(&foot, number, ran, answer(number)));
    }
}

/// Its root job may be over, and the bounds forgotten that the results were computed under.
#[test]
fn of_a_job_that_is_not_wanted_nothing_is_told() {
    let _watchdog = Watchdog::new("of_a_job_that_is_not_wanted_nothing_is_told");
    let pool = pool(1);
    let (gate, told) = (pool.gate(), listen(&pool));
    let [on, waits, until, ran] = flags();
    let arguments = (on, waits, until, ran);
    gate.host(KEY, parcel(job(), "one_by_one_and_wait", &arguments));
    wait_for("the harvest", || number_of_harvested(&pool) > 100);
    raise(on);
    await_flag(waits);
    assert!(gate.gather(0).facts.len() > 100);
    gate.abort_hosted(KEY);
    assert_eq!(gate.gather(0).facts.len(), 0);
    raise(until);
    done(&told);
}

#[test]
fn what_a_child_has_changed_is_kept_with_its_result() {
    let _watchdog = Watchdog::new("what_a_child_has_changed_is_kept_with_its_result");
    let pool = pool(1);
    let [on, ran] = flags();
    let saved = given_up(&pool, "lent_by_turns", on, ran);
    assert!(saved.len() > 100);
    for kept in saved {
        let number = kept.name.id.path().last().expect("a child");
        if !number.is_multiple_of(2) {
            continue; // the child that is lent nothing
        }
        let before = number / 2;
        assert_eq!(kept.name.fingerprint, fingerprint("count", &(before, ran)));
        let bytes = postcard::to_stdvec(&(1u32, before + 1)).expect("numbers");
        assert_eq!(kept.answer, Answer::result(bytes.into(), vec![]));
    }
}

#[spawnable]
fn fibs(on: usize, _ran: usize) -> u32 {
    let mut sum = 0u32;
    while raised(on) == 0 {
        let a = spawn!(fib(20));
        let b = spawn!(fib(20));
        sync!();
        sum = sum.wrapping_add(a + b);
    }
    sum
}

#[spawnable]
fn fib(n: u32) -> u32 {
    if n < 2 {
        return n;
    }
    let a = spawn!(fib(n - 1));
    let b = spawn!(fib(n - 2));
    sync!();
    a + b
}

/// Workers steal from each other meanwhile, and beats come at any moment.
#[test]
fn what_is_kept_is_right() {
    let _watchdog = Watchdog::new("what_is_kept_is_right");
    let fibonacci: Vec<u32> = std::iter::successors(Some((0, 1)), |(a, b)| Some((*b, a + b)))
        .map(|(a, _)| a)
        .take(21)
        .collect();
    for workers in [1, 3] {
        let pool = pool(workers);
        let [on, ran] = flags();
        let saved = given_up(&pool, "fibs", on, ran);
        assert!(!saved.is_empty());
        for (place, kept) in saved.iter().enumerate() {
            let path = kept.name.id.path().skip(job().depth() + 1);
            let n = path.fold(20, |n, child| n - 1 - child);
            assert_eq!(
                kept.name.fingerprint,
                fingerprint("fib", &n),
                "{}",
                kept.name.id
            );
            assert_eq!(
                kept.answer,
                answer(fibonacci[n as usize]),
                "{}",
                kept.name.id
            );
            let next = saved.get(place + 1);
            assert!(next.is_none_or(|next| !kept.name.id.is_ancestor_of(&next.name.id)));
        }
    }
}

/// As [`one_by_one`], where a child returns a value that other nodes would have to fetch.
#[spawnable]
fn sharing(on: usize, ran: usize) -> u32 {
    let mut sum = 0u32;
    while raised(on) == 0 {
        let a = spawn!(shared(sum));
        let b = spawn!(common::outside::unit(1, ran));
        sync!();
        assert_eq!(*a, sum);
        sum = sum.wrapping_add(b);
    }
    sum
}

#[spawnable]
fn shared(value: u32) -> Shared<u32> {
    Shared::new(value)
}

/// The value may be gone with its node, and then nobody could read the result.
#[test]
fn a_result_that_mentions_a_shared_value_is_not_kept() {
    let _watchdog = Watchdog::new("a_result_that_mentions_a_shared_value_is_not_kept");
    let pool = pool(1);
    let [on, ran] = flags();
    let saved = given_up(&pool, "sharing", on, ran);
    assert!(saved.len() > 100);
    for kept in saved {
        let unit = fingerprint("unit", &(1u32, ran));
        assert_eq!(kept.name.fingerprint, unit, "{}", kept.name.id);
    }
}
