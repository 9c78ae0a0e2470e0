//! What marked jobs do: look themselves up among the orphans, and claim what somebody still has.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::sync::mpsc;

use common::{
    Watchdog,
    outside::{
        Told, answer, await_flag, claimed, done, during, fingerprint, flags, hear, held, hold, ids,
        listen, own, pool, raise, raised, take, written,
    },
    wait_for,
};
use satin::{
    Satin,
    job::{
        Answer, Back, Deadly, DepartureId, Fingerprint, History, HostedId, JobId, JobName,
        OrphanNews, Parcel, Recall,
    },
    spawn, spawnable, sync,
    worker::Gate,
};

/// Spawns a family, which is to leave before `go`.
#[spawnable]
fn top(children: u32, go: usize, ready: usize, on: usize, ran: usize) -> u32 {
    let sum = spawn!(common::outside::family(children, ready, on, ran));
    await_flag(go);
    sync!();
    sum
}

const MARKED: History = History {
    marked: true,
    crashes: 1,
};

/// A node died.
const LOST: Back = Back {
    history: MARKED,
    at_once: false,
    held: false,
    stays: false,
};

/// A claim was withdrawn.
const WITHDRAWN: Back = Back {
    history: MARKED,
    at_once: true,
    held: false,
    stays: false,
};

fn children(of: &JobId, numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    let numbers = numbers.into_iter();
    numbers.map(|number| of.child(number).to_string()).collect()
}

fn sorted(jobs: &[(DepartureId, Parcel)]) -> Vec<String> {
    let mut ids = ids(jobs);
    ids.sort();
    ids
}

/// As [`during`], with the job that the program spawns: the other workers are busy until it has left.
fn bereaved_of<R: Send>(
    pool: &Satin,
    program: impl FnOnce() -> R + Send,
    outside: impl FnOnce(&Gate, DepartureId, Parcel),
) -> R {
    let [begun, until] = flags();
    let others = pool.figures().len() as u32 - 1;
    std::thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| pool.run(|| hold(begun, until)));
        }
        wait_for("the others", || raised(begun) == others);
        during(pool, program, |gate| {
            let (token, parcel) = own(take(gate, 1)).remove(0);
            raise(until);
            outside(gate, token, parcel);
        })
    })
}

/// The flags of one run of [`top`].
#[derive(Clone, Copy)]
struct Flags {
    go: usize,
    ready: usize,
    on: usize,
    ran: usize,
}

/// Runs [`top`]; the family has left, and the rest is up to `story`. Gives the sum, and how many of the children ran.
fn bereaved(
    pool: &Satin,
    count: u32,
    story: impl FnOnce(&Gate, Flags, DepartureId, Parcel),
) -> (u32, u32) {
    let [go, ready, on, ran] = flags();
    let sum = bereaved_of(
        pool,
        || top(count, go, ready, on, ran),
        |gate, token, parcel| {
            let all = Flags { go, ready, on, ran };
            story(gate, all, token, parcel);
            raise(go);
            raise(on);
        },
    );
    (sum, raised(ran))
}

fn is_here(gate: &Gate, parcel: &Parcel) {
    gate.orphan(OrphanNews::Here(parcel.name()));
}

/// These children of a family are orphans.
fn are_here(gate: &Gate, family: &Parcel, numbers: &[u32], ran: usize) {
    for number in numbers {
        let print = fingerprint("unit", &(number, ran)).within(family.root);
        gate.orphan(OrphanNews::Here(JobName::new(
            family.id.child(*number),
            print,
        )));
    }
}

#[test]
fn a_job_that_was_put_back_claims_what_is_left_of_it() {
    let _watchdog = Watchdog::new("a_job_that_was_put_back_claims_what_is_left_of_it");
    for workers in [1, 3] {
        let pool = pool(workers);
        let told = listen(&pool);
        let (sum, ran) = bereaved(&pool, 5, |gate, flags, token, parcel| {
            is_here(gate, &parcel);
            assert!(gate.put_back(token, LOST));
            raise(flags.go);
            let (claim, again) = claimed(&told);
            let expected = Parcel {
                history: MARKED,
                ..parcel
            };
            assert_eq!(again, expected);
            assert_ne!(claim, token);
            assert!(gate.take(1).jobs.is_empty(), "it is away");
            assert!(gate.deliver(claim, answer(1000)));
            assert!(!gate.deliver(claim, answer(0)));
        });
        assert_eq!((sum, ran), (1000, 0));
    }
}

#[test]
fn that_a_job_that_came_back_is_done_is_told() {
    let _watchdog = Watchdog::new("that_a_job_that_came_back_is_done_is_told");
    for (back, is_told) in [(LOST, true), (WITHDRAWN, true), (Back::default(), false)] {
        let pool = pool(2);
        let told = listen(&pool);
        let mut id = None;
        let result = bereaved(&pool, 5, |gate, flags, token, parcel| {
            // Its other children are run as if nothing had happened.
            gate.orphan(OrphanNews::Here(JobName::new(
                parcel.id.child(9),
                Fingerprint(1),
            )));
            assert!(gate.put_back(token, back));
            raise(flags.go);
            await_flag(flags.ready);
            id = Some(parcel.id);
        });
        assert_eq!(result, (1 + 2 + 3 + 4, 5));
        let repaired = told.try_iter().filter_map(|told| match told {
            Told::Repaired(id) => Some(id),
            _ => None,
        });
        assert_eq!(
            repaired.collect::<Vec<JobId>>(),
            Vec::from_iter(id.filter(|_| is_told))
        );
    }
}

#[test]
fn a_claim_that_is_put_back_is_looked_up_again_or_run() {
    let _watchdog = Watchdog::new("a_claim_that_is_put_back_is_looked_up_again_or_run");
    for workers in [1, 3] {
        for refused in [false, true] {
            let pool = pool(workers);
            let told = listen(&pool);
            let result = bereaved(&pool, 5, |gate, flags, token, parcel| {
                is_here(gate, &parcel);
                assert!(gate.put_back(token, LOST));
                raise(flags.go);
                let (first, _) = claimed(&told);
                assert!(gate.put_back(first, LOST));
                let (second, _) = claimed(&told);
                assert_ne!(first, second);
                if refused {
                    assert!(gate.deliver(second, Answer::Refused("no room".into())));
                } else {
                    assert!(gate.put_back(second, WITHDRAWN));
                }
                await_flag(flags.ready);
            });
            assert_eq!(result, (1 + 2 + 3 + 4, 5));
        }
    }
}

#[test]
fn children_of_a_marked_job_are_claimed() {
    let _watchdog = Watchdog::new("children_of_a_marked_job_are_claimed");
    for workers in [1, 3] {
        let pool = pool(workers);
        let told = listen(&pool);
        let result = bereaved(&pool, 10, |gate, flags, token, parcel| {
            are_here(gate, &parcel, &[2, 5, 8], flags.ran);
            // This one has another fingerprint: a miss.
            gate.orphan(OrphanNews::Here(JobName::new(
                parcel.id.child(7),
                Fingerprint(1),
            )));
            let gone = fingerprint("unit", &(8u32, flags.ran)).within(parcel.root);
            gate.orphan(OrphanNews::Gone(JobName::new(parcel.id.child(8), gone)));
            assert!(gate.put_back(token, LOST));
            raise(flags.go);
            let [two, five] = [claimed(&told), claimed(&told)];
            assert_eq!(
                ids(&[two.clone(), five.clone()]),
                children(&parcel.id, [2, 5])
            );
            let inherited = History {
                crashes: 0,
                ..MARKED
            };
            assert_eq!(two.1.history, inherited);
            await_flag(flags.ready);
            assert!(gate.deliver(two.0, answer(1000)));
            assert!(gate.put_back(five.0, WITHDRAWN));
        });
        assert_eq!(result, ((0..10).sum::<u32>() - 2 + 1000, 9));
    }
}

/// A family of ten has left, and its node died. Takes all its children, once they have been spawned again.
fn spawned_again(pool: &Satin, settled: bool) -> Vec<(DepartureId, Parcel)> {
    let mut jobs = Vec::new();
    let result = bereaved(pool, 10, |gate, flags, token, parcel| {
        gate.orphan(OrphanNews::Settled(settled));
        // Elsewhere in the tree.
        let mut cousin = parcel.id.clone();
        let index = cousin.pop().expect("a family is below its root");
        gate.orphan(OrphanNews::Here(JobName::new(
            cousin.child(index + 1),
            Fingerprint(1),
        )));
        assert!(gate.put_back(token, LOST));
        raise(flags.go);
        await_flag(flags.ready);
        while jobs.len() < 10 {
            jobs.append(&mut own(take(gate, 100)));
        }
        assert_eq!(sorted(&jobs), children(&parcel.id, 0..10));
        for (token, parcel) in &jobs {
            let back = Back {
                history: parcel.history,
                at_once: false,
                held: false,
                stays: false,
            };
            assert!(gate.put_back(*token, back));
        }
    });
    assert_eq!(result, ((0..10).sum(), 10));
    jobs
}

#[test]
fn where_nothing_is_below_the_mark_is_dropped() {
    let _watchdog = Watchdog::new("where_nothing_is_below_the_mark_is_dropped");
    let publications =
        |pool: &Satin| -> u64 { pool.figures().iter().map(|of| of.publications).sum() };
    let mut published = [0, 0];
    for settled in [false, true] {
        let pool = pool(1);
        let _told = listen(&pool);
        let jobs = spawned_again(&pool, settled);
        assert!(
            jobs.iter()
                .all(|(_, parcel)| parcel.history.marked != settled),
            "{jobs:?}"
        );
        published[usize::from(settled)] = publications(&pool);
    }
    // Children of marked jobs pass the deque by.
    assert!(published[0] < published[1], "{published:?}");
}

/// Two children per level, both of which can leave.
#[spawnable]
fn tree(depth: u32, ready: usize, on: usize, ran: usize) -> u32 {
    if depth == 0 {
        raise(ran);
        return 1;
    }
    let a = spawn!(tree(depth - 1, ready, on, ran));
    let b = spawn!(tree(depth - 1, ready, on, ran));
    raise(ready);
    await_flag(on);
    sync!();
    a + b
}

#[spawnable]
fn above_a_tree(go: usize, ready: usize, on: usize, ran: usize) -> u32 {
    let sum = spawn!(tree(3, ready, on, ran));
    await_flag(go);
    sync!();
    sum
}

#[test]
fn marks_go_down_to_the_orphans_and_no_further() {
    let _watchdog = Watchdog::new("marks_go_down_to_the_orphans_and_no_further");
    let pool = pool(1);
    let told = listen(&pool);
    let [go, ready, on, ran] = flags();
    let sum = bereaved_of(
        &pool,
        || above_a_tree(go, ready, on, ran),
        |gate, token, parcel| {
            let orphan = parcel.id.child(1).child(0);
            let print = fingerprint("tree", &(1u32, ready, on, ran)).within(parcel.root);
            gate.orphan(OrphanNews::Here(JobName::new(orphan.clone(), print)));
            gate.orphan(OrphanNews::Settled(true));
            assert!(gate.put_back(token, LOST));
            raise(go);
            await_flag(ready);
            let mut jobs = own(take(gate, 1));
            jobs.append(&mut own(take(gate, 1)));
            let marks: Vec<_> = jobs.iter().map(|(_, job)| job.history.marked).collect();
            // Others take from the end of the program order.
            assert_eq!(ids(&jobs), children(&parcel.id, [1, 0]));
            assert_eq!(marks, [true, false]);
            for (token, job) in &jobs {
                let back = Back {
                    history: job.history,
                    at_once: false,
                    held: false,
                    stays: false,
                };
                assert!(gate.put_back(*token, back));
            }
            raise(on);
            let (claim, job) = claimed(&told);
            assert_eq!(job.id, orphan);
            assert!(gate.deliver(claim, answer(100)));
        },
    );
    assert_eq!((sum, raised(ran)), (4 + 100 + 2, 6));
}

/// Spawns a unit on each level, and calls itself for the next.
#[spawnable]
fn chain(depth: u32, ran: usize) -> u32 {
    if depth == 0 {
        return 0;
    }
    let here = spawn!(common::outside::unit(depth, ran));
    let below = satin::call!(chain(depth - 1, ran));
    sync!();
    here + below
}

#[spawnable]
fn above_a_chain(go: usize, ran: usize) -> u32 {
    let sum = spawn!(chain(10, ran));
    await_flag(go);
    sync!();
    sum
}

/// What is called inherits the mark; its children are looked up like those that are spawned.
#[test]
fn what_is_called_inherits_the_mark() {
    let _watchdog = Watchdog::new("what_is_called_inherits_the_mark");
    for (workers, settled) in [(1, false), (1, true), (3, true)] {
        let pool = pool(workers);
        let told = listen(&pool);
        let [go, ran] = flags();
        let sum = bereaved_of(
            &pool,
            || above_a_chain(go, ran),
            |gate, token, parcel| {
                // On the fifth level, below four calls.
                let called = (0..4).fold(parcel.id, |id, _| id.child(1));
                let print = fingerprint("unit", &(6u32, ran)).within(parcel.root);
                gate.orphan(OrphanNews::Here(JobName::new(called.child(0), print)));
                gate.orphan(OrphanNews::Settled(settled));
                assert!(gate.put_back(token, LOST));
                raise(go);
                let (claim, _) = claimed(&told);
                assert!(gate.deliver(claim, answer(1000)));
            },
        );
        assert_eq!((sum, raised(ran)), ((1..=10).sum::<u32>() - 6 + 1000, 9));
    }
}

/// Calls something long below which nothing is left, and spawns afterwards.
#[spawnable]
fn detour(ran: usize) -> u32 {
    let called = satin::call!(chain(500, ran));
    let spawned = spawn!(common::outside::unit(1000, ran));
    let last = spawn!(common::outside::unit(2000, ran));
    sync!();
    called + spawned + last
}

#[spawnable]
fn above_a_detour(go: usize, ran: usize) -> u32 {
    let sum = spawn!(detour(ran));
    await_flag(go);
    sync!();
    sum
}

/// Where the mark is dropped the deque is used at full speed; back above it spawns are looked up again.
#[test]
fn a_marked_job_looks_up_again_after_what_is_not_marked() {
    let _watchdog = Watchdog::new("a_marked_job_looks_up_again_after_what_is_not_marked");
    for workers in [1, 3] {
        let pool = pool(workers);
        let told = listen(&pool);
        let [go, ran] = flags();
        let sum = bereaved_of(
            &pool,
            || above_a_detour(go, ran),
            |gate, token, parcel| {
                // The one before is called, so it was never away.
                let print = fingerprint("unit", &(2000u32, ran)).within(parcel.root);
                gate.orphan(OrphanNews::Here(JobName::new(parcel.id.child(2), print)));
                gate.orphan(OrphanNews::Settled(true));
                assert!(gate.put_back(token, LOST));
                raise(go);
                let (claim, job) = claimed(&told);
                assert_eq!(job.id, parcel.id.child(2));
                assert!(gate.deliver(claim, answer(1)));
            },
        );
        let expected = (1..=500).sum::<u32>() + 1000 + 1;
        assert_eq!((sum, raised(ran)), (expected, 501));
    }
}

#[spawnable]
fn keeper(go: usize, ran: usize) -> Vec<u32> {
    let mut list = vec![1, 2];
    let added = spawn!(extend(&mut list, ran));
    await_flag(go);
    sync!();
    list.push(added);
    list
}

#[spawnable]
fn extend(list: &mut Vec<u32>, ran: usize) -> u32 {
    raise(ran);
    list.push(3);
    4
}

#[test]
fn an_answer_to_a_claim_changes_mutable_arguments() {
    let _watchdog = Watchdog::new("an_answer_to_a_claim_changes_mutable_arguments");
    for workers in [1, 3] {
        let pool = pool(workers);
        let told = listen(&pool);
        let [go, ran] = flags();
        let list = bereaved_of(
            &pool,
            || keeper(go, ran),
            |gate, token, parcel| {
                is_here(gate, &parcel);
                assert!(gate.put_back(token, LOST));
                raise(go);
                let (claim, _) = claimed(&told);
                let answer = (40u32, vec![1u32, 2, 30]);
                let bytes = written(&answer).into();
                let needs = vec![];
                assert!(gate.deliver(claim, Answer::result(bytes, needs)));
            },
        );
        assert_eq!((list, raised(ran)), (vec![1, 2, 30, 40], 0));
    }
}

/// A family that has died once goes to another pool, where its child number 1 is an orphan.
fn hosted_again(
    here: &Satin,
    there: &Satin,
    story: impl FnOnce(&Gate, &mpsc::Receiver<Told>, Flags, DepartureId) -> Answer,
) -> (u32, u32) {
    let told = listen(there);
    let _nobody = listen(here);
    bereaved(here, 3, |gate, flags, token, parcel| {
        assert_eq!((parcel.history, parcel.term), (History::default(), 7));
        assert!(gate.put_back(token, LOST));
        let (token, parcel) = own(take(gate, 1)).remove(0);
        assert_eq!((parcel.history, parcel.term), (MARKED, 7));
        are_here(&there.gate(), &parcel, &[1], flags.ran);
        there.gate().host(HostedId(3), parcel.clone());
        let (claim, child) = claimed(&told);
        assert_eq!((child.id, child.term), (parcel.id.child(1), 7));
        let answer = story(&there.gate(), &told, flags, claim);
        assert!(gate.deliver(token, answer));
    })
}

#[test]
fn marks_travel() {
    let _watchdog = Watchdog::new("marks_travel");
    for workers in [1, 3] {
        let (here, there) = (pool(1), pool(workers));
        here.gate().set_term(7);
        let result = hosted_again(&here, &there, |gate, told, flags, claim| {
            raise(flags.on);
            assert!(gate.deliver(claim, answer(100)));
            let (key, answer) = done(told);
            assert_eq!(key, HostedId(3));
            answer
        });
        assert_eq!(result, (2 + 100, 2));
    }
}

#[test]
fn a_claim_is_recalled_when_nobody_wants_it() {
    let _watchdog = Watchdog::new("a_claim_is_recalled_when_nobody_wants_it");
    for workers in [1, 3] {
        let (here, there) = (pool(1), pool(workers));
        here.gate().set_term(7);
        let (sum, _) = hosted_again(&here, &there, |gate, told, flags, claim| {
            await_flag(flags.ready);
            raise(flags.on);
            gate.abort_hosted(HostedId(3));
            let recalled = hear(told, |told| match told {
                Told::Recalled(token, why) => Some((*token, *why)),
                _ => None,
            });
            assert_eq!(recalled, (claim, Recall::Unwanted));
            assert_eq!(done(told), (HostedId(3), Answer::Aborted));
            assert!(!gate.deliver(claim, answer(100)));
            answer(5)
        });
        assert_eq!(sum, 5);
    }
}

#[test]
fn what_is_called_home_is_run() {
    let _watchdog = Watchdog::new("what_is_called_home_is_run");
    for workers in [1, 3] {
        let pool = pool(workers);
        let told = listen(&pool);
        let result = bereaved(&pool, 4, |gate, flags, token, parcel| {
            is_here(gate, &parcel);
            are_here(gate, &parcel, &[1, 2], flags.ran);
            assert!(gate.put_back(token, LOST));
            raise(flags.go);
            let (claim, _) = claimed(&told);
            gate.call_home();
            assert!(!gate.deliver(claim, answer(100)));
            // From now on nobody knows of orphans.
            is_here(gate, &parcel);
        });
        assert_eq!(result, (1 + 2 + 3, 4));
    }
}

/// A chain of so many jobs, each with a child beside it.
#[spawnable]
fn deep(length: u32, go: usize) -> u32 {
    await_flag(go);
    if length == 0 {
        return 0;
    }
    let beside = spawn!(link(length));
    let rest = spawn!(deep(length - 1, go));
    sync!();
    beside + rest
}

#[spawnable]
fn link(_number: u32) -> u32 {
    1
}

#[spawnable]
fn top_of_deep(length: u32, go: usize) -> u32 {
    let all = spawn!(deep(length, go));
    await_flag(go);
    sync!();
    all
}

#[test]
fn a_push_below_a_mark_does_not_walk_to_the_root() {
    const LENGTH: u32 = 500;
    let _watchdog = Watchdog::new("a_push_below_a_mark_does_not_walk_to_the_root");
    let pool = pool(1);
    let [go] = flags();
    let before = satin::worker::walked();
    let sum = bereaved_of(
        &pool,
        || top_of_deep(LENGTH, go),
        |gate, token, _| {
            // Not everybody has said what it has: so all that is below the job is looked up.
            gate.orphan(OrphanNews::Settled(false));
            assert!(gate.put_back(token, LOST));
            raise(go);
        },
    );
    assert_eq!(sum, LENGTH);
    let walked = satin::worker::walked() - before;
    assert!(walked > u64::from(LENGTH), "nothing was looked up");
    // Other tests walk too, but not so much.
    assert!(
        walked < 50 * u64::from(LENGTH),
        "{walked} frames were walked"
    );
}

/// It is for other nodes: whoever had it died with it.
const FOR_OTHERS: Back = Back { held: true, ..LOST };

#[test]
fn a_held_job_is_for_others_until_it_is_released() {
    let _watchdog = Watchdog::new("a_held_job_is_for_others_until_it_is_released");
    for workers in [1, 3] {
        let pool = pool(workers);
        let told = listen(&pool);
        let result = bereaved(&pool, 5, |gate, flags, token, parcel| {
            let name = parcel.name();
            assert!(gate.put_back(token, FOR_OTHERS));
            assert_eq!(held(&told, 1), std::slice::from_ref(&name));
            // Its owner waits for it, as if it were away.
            raise(flags.go);
            let (token, again) = own(take(gate, 3)).remove(0);
            assert_eq!(again.name(), name);
            assert_eq!(held(&told, 0), []);
            // Nobody was there for it after all.
            assert!(gate.put_back(token, Back::default()));
            assert_eq!(held(&told, 1), [name]);
            assert_eq!(raised(flags.ready), 0, "nobody runs it");
            gate.release();
            await_flag(flags.ready);
        });
        assert_eq!(result, (1 + 2 + 3 + 4, 5));
    }
}

#[test]
fn one_held_job_is_released_to_be_claimed() {
    let _watchdog = Watchdog::new("one_held_job_is_released_to_be_claimed");
    for workers in [1, 3] {
        let pool = pool(workers);
        let told = listen(&pool);
        let result = bereaved(&pool, 5, |gate, flags, token, parcel| {
            assert!(gate.put_back(token, FOR_OTHERS));
            raise(flags.go);
            is_here(gate, &parcel);
            gate.release_one(&JobName::new(parcel.id.clone(), Fingerprint(1)));
            gate.release_one(&parcel.name());
            let (claim, _) = claimed(&told);
            assert!(gate.deliver(claim, answer(1000)));
        });
        assert_eq!(result, (1000, 0));
    }
}

#[test]
fn a_child_that_took_down_nodes_is_held_by_its_name() {
    let _watchdog = Watchdog::new("a_child_that_took_down_nodes_is_held_by_its_name");
    for workers in [1, 3] {
        let pool = pool(workers);
        let told = listen(&pool);
        let result = bereaved(&pool, 10, |gate, flags, token, parcel| {
            let deadly = |number: u32, print: Fingerprint| {
                let is = Deadly::Held(2);
                gate.orphan(OrphanNews::Deadly(
                    JobName::new(parcel.id.child(number), print),
                    is,
                ));
            };
            let print = fingerprint("unit", &(7u32, flags.ran)).within(parcel.root);
            deadly(7, print);
            // Other work under that number.
            deadly(3, Fingerprint(1));
            assert!(gate.put_back(token, LOST));
            raise(flags.go);
            assert_eq!(held(&told, 1), [JobName::new(parcel.id.child(7), print)]);
            await_flag(flags.ready);
            let (token, child) = own(take(gate, 4)).remove(0);
            assert_eq!((child.id, child.history.crashes), (parcel.id.child(7), 2));
            assert!(gate.deliver(token, answer(1000)));
        });
        assert_eq!(result, ((0..10).sum::<u32>() - 7 + 1000, 9));
    }
}

#[test]
fn a_child_that_took_down_too_many_panics_and_does_not_run() {
    let _watchdog = Watchdog::new("a_child_that_took_down_too_many_panics_and_does_not_run");
    for workers in [1, 3] {
        let pool = pool(workers);
        let _told = listen(&pool);
        let [go, ready, on, ran] = flags();
        let outcome = bereaved_of(
            &pool,
            || std::panic::catch_unwind(|| top(1, go, ready, on, ran)),
            |gate, token, parcel| {
                let print = fingerprint("unit", &(0u32, ran)).within(parcel.root);
                let story = Deadly::GivenUp("it is given up".into());
                gate.orphan(OrphanNews::Deadly(
                    JobName::new(parcel.id.child(0), print),
                    story,
                ));
                assert!(gate.put_back(token, LOST));
                raise(go);
                raise(on);
            },
        );
        let panic = outcome.expect_err("its only child panics");
        let said = panic.downcast_ref::<String>().map(String::as_str);
        assert_eq!(said, Some("it is given up"));
        assert_eq!(raised(ran), 0);
    }
}

#[test]
fn a_held_job_goes_with_its_parent() {
    let _watchdog = Watchdog::new("a_held_job_goes_with_its_parent");
    let pool = pool(1);
    let told = listen(&pool);
    let [go, ready, on, ran] = flags();
    let result = bereaved_of(
        &pool,
        || either(go, ready, on, ran),
        |gate, token, _| {
            assert!(gate.put_back(token, FOR_OTHERS));
            assert_eq!(held(&told, 1).len(), 1);
            raise(go);
            assert_eq!(held(&told, 0), []);
        },
    );
    assert_eq!((result, raised(ran)), (Err(7), 0));
}

/// Spawns a family, which is to leave before `go`; then its other child fails.
#[spawnable]
fn either(go: usize, ready: usize, on: usize, ran: usize) -> Result<u32, u32> {
    let sum = spawn!(some_family(ready, on, ran))?;
    await_flag(go);
    let fails = spawn!(fails(7))?;
    sync!();
    Ok(sum + fails)
}

#[spawnable]
fn some_family(ready: usize, on: usize, ran: usize) -> Result<u32, u32> {
    let sum = spawn!(common::outside::family(3, ready, on, ran));
    sync!();
    Ok(sum)
}

#[spawnable]
fn fails(number: u32) -> Result<u32, u32> {
    Err(number)
}
