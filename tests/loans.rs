//! Data that tasks of flows read: large ones stand in a task that leaves by their name, and so travel to a node once.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::sync::{Arc, Mutex};

use common::{
    Habits, Watchdog, beside,
    outside::{
        Told, answer, await_flag, during, flags, hear, listen, own, pool, raise, take, written,
    },
};
use satin::{
    Many, Shared, data, flow,
    job::{Answer, Back, DepartureId, JobLoad, JobTrip, Kept, Parcel, ValueName, ValueSize, Wants},
    many, r, rw, spawn, spawnable, sync, task,
    worker::{Gate, Judge},
};

/// Numbers that are too many to stand in each task that reads them.
fn long(from: u64) -> Vec<u64> {
    (from..from + 10_000).collect()
}

/// Numbers that are few enough.
fn short() -> Vec<u64> {
    (0..1_000).collect()
}

fn name_of(numbers: &[u64]) -> ValueName {
    Shared::name(&Shared::new(numbers.to_vec()))
}

#[spawnable]
fn sum_of(numbers: &[u64], more: u64) -> u64 {
    numbers.iter().sum::<u64>() + more
}

#[spawnable]
fn sum_of_all(lists: &Many<Vec<u64>>) -> u64 {
    lists.iter().flatten().sum()
}

#[spawnable]
fn sum_of_tree(tree: &Tree) -> u64 {
    tree.leaves.iter().sum()
}

#[spawnable]
fn increase(numbers: &mut [u64], by: &[u64]) {
    numbers
        .iter_mut()
        .zip(by)
        .for_each(|(number, by)| *number += by);
}

/// Data of which a part is a shared value.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Tree {
    name: String,
    leaves: Shared<Vec<u64>>,
}

/// Takes so many tasks, one at a time.
fn taken(gate: &Gate, count: usize) -> Vec<(DepartureId, Parcel)> {
    (0..count).map(|_| own(take(gate, 1)).remove(0)).collect()
}

fn put_back(gate: &Gate, jobs: &[(DepartureId, Parcel)]) {
    for (departure, _) in jobs {
        assert!(gate.put_back(*departure, Back::default()));
    }
}

#[test]
fn large_data_stand_in_a_task_by_their_name_and_small_ones_as_they_are() {
    let _watchdog =
        Watchdog::new("large_data_stand_in_a_task_by_their_name_and_small_ones_as_they_are");
    data::store();
    let pool = pool(1);
    let [begun, until] = flags();
    let program = || {
        flow!(|g| {
            let (large, small) = (g.data(long(1_000_000)), g.data(short()));
            let sums = [
                task!(g, sum_of(r(large), 0)),
                task!(g, sum_of(r(large), 1)),
                task!(g, sum_of(r(small), 2)),
            ];
            raise(begun);
            await_flag(until);
            g.take_all(sums)
        })
    };
    let sums = during(&pool, program, |gate| {
        await_flag(begun);
        let jobs = taken(gate, 3); // the last first
        let parcels: Vec<&Parcel> = jobs.iter().map(|(_, parcel)| parcel).collect();
        assert!(parcels[0].lent.is_empty() && parcels[0].arguments.len() > 1_000);
        for parcel in &parcels[1..] {
            assert!(parcel.arguments.len() < 100, "the data stay");
            assert_eq!(parcel.lent_names(), [name_of(&long(1_000_000))]);
            assert!(parcel.lent[0] > 80_000);
            assert_eq!(data::store().size_of(parcel.needs[0]), Some(parcel.lent[0]));
        }
        assert_ne!(parcels[1].fingerprint, parcels[2].fingerprint);
        assert!(gate.deliver(jobs[1].0, answer(7)));
        put_back(gate, &[jobs[0].clone(), jobs[2].clone()]);
        raise(until);
    });
    assert_eq!(sums, [10_049_995_000, 7, 499_502]);
    assert!(
        !data::store().contains(name_of(&long(1_000_000))),
        "the flow is over, and its data are gone"
    );
}

/// A node whose workers have tasks, and that asks for the next ones.
struct Busy;

impl Judge for Busy {
    fn accepts(&self, _: &JobLoad) -> bool {
        true
    }

    fn wants(&self) -> Wants {
        Wants::Surplus
    }

    fn trip(&self, _: &JobLoad) -> JobTrip {
        JobTrip::default()
    }
}

#[test]
fn who_asks_ahead_gets_tasks_that_the_workers_here_do_not_begin_next() {
    let _watchdog =
        Watchdog::new("who_asks_ahead_gets_tasks_that_the_workers_here_do_not_begin_next");
    let pool = pool(1);
    let told = listen(&pool);
    let [begun, until] = flags();
    let program = || {
        flow!(|g| {
            let small = g.data(short());
            let sums = [0, 1, 2].map(|more| task!(g, sum_of(r(small), more)));
            raise(begun);
            await_flag(until);
            g.take_all(sums)
        })
    };
    let sums = during(&pool, program, |gate| {
        await_flag(begun);
        let busy: Arc<dyn Judge> = Arc::new(Busy);
        let ahead = || match gate.take_for(0, 8, &busy) {
            Some(haul) => own(haul),
            // It is not known yet that their data are quickly written.
            None => hear(&told, |told| match told {
                Told::Took(jobs) => Some(jobs.clone()),
                _ => None,
            }),
        };
        let mut jobs = ahead();
        assert_eq!(jobs.len(), 2, "one is left for the worker");
        assert_eq!(ahead().len(), 0);
        // One that has nothing to do gets what is left.
        jobs.extend(taken(gate, 1));
        assert_eq!(ahead().len(), 0);
        put_back(gate, &jobs);
        raise(until);
    });
    assert_eq!(sums, [499_500, 499_501, 499_502]);
}

/// The fingerprint of a task says what it reads, whether that has a name yet or not: else its result would not be found again.
#[test]
fn a_task_has_one_fingerprint_wherever_it_runs() {
    let _watchdog = Watchdog::new("a_task_has_one_fingerprint_wherever_it_runs");
    data::store();
    let pool = pool(1);
    let prints = |numbers: fn() -> Vec<u64>| {
        let [begun, until] = flags();
        let mut prints = Vec::new();
        let program = || {
            flow!(|g| {
                let numbers = g.data(numbers());
                let sums = [
                    task!(g, sum_of(r(numbers), 5)),
                    task!(g, sum_of(r(numbers), 5)),
                ];
                raise(begun);
                await_flag(until);
                g.take_all(sums)
            })
        };
        let sums = during(&pool, program, |gate| {
            await_flag(begun);
            let jobs = taken(gate, 2);
            prints.extend(jobs.iter().map(|(_, parcel)| parcel.fingerprint));
            put_back(gate, &jobs);
            raise(until);
        });
        assert_eq!(sums[0], sums[1]);
        prints
    };
    for numbers in [|| long(3_000_000), short] {
        let (first, again) = (prints(numbers), prints(numbers));
        assert_eq!(first[0], first[1]);
        assert_eq!(first, again);
    }
    assert_ne!(prints(|| long(3_000_000))[0], prints(|| long(4_000_000))[0]);
}

/// What is changed while others read it elsewhere is a copy: the name stands for what they were to read.
#[test]
fn who_changes_data_that_are_read_elsewhere_works_on_a_copy() {
    let _watchdog = Watchdog::new("who_changes_data_that_are_read_elsewhere_works_on_a_copy");
    data::store();
    let pool = pool(1);
    let [begun, until, changed] = flags();
    let program = || {
        flow!(|g| {
            let (numbers, by) = (g.data(long(2_000_000)), g.data(vec![1]));
            let sum = task!(g, sum_of(r(numbers), 0));
            raise(begun);
            await_flag(until);
            task!(g, increase(rw(numbers), r(by)));
            let first = g.get(numbers)[0];
            raise(changed);
            (first, g.take(sum))
        })
    };
    let (first, sum) = during(&pool, program, |gate| {
        await_flag(begun);
        let (departure, parcel) = taken(gate, 1).remove(0);
        raise(until);
        await_flag(changed);
        // Whoever has the task may fetch what it reads at any time.
        let name = parcel.lent_names()[0];
        let (bytes, _) = data::store().read(name, 0, u64::MAX).expect("it is here");
        let numbers = satin::job::codec::read::<Vec<u64>>("reading", &bytes);
        assert_eq!(numbers, Ok(long(2_000_000)));
        assert!(gate.deliver(departure, answer(3)));
    });
    assert_eq!((first, sum), (2_000_001, 3));
}

#[test]
fn tasks_elsewhere_read_what_they_borrow_by_name() {
    let _watchdog = Watchdog::new("tasks_elsewhere_read_what_they_borrow_by_name");
    data::store();
    let (a, b) = (pool(1), pool(1));
    let program = || {
        flow!(|g| {
            let tree = g.data(Tree {
                name: "x".repeat(20_000),
                leaves: Shared::new(long(7)),
            });
            let lists: Vec<_> = (0..3).map(|from| g.data(long(from))).collect();
            let few = g.data(vec![1]);
            let mut sums = Vec::new();
            for more in 0..40 {
                let list = lists[more % 3];
                task!(g, increase(rw(list), r(few)));
                sums.push(task!(g, sum_of(r(list), more as u64)));
                sums.push(task!(g, sum_of_all(many(lists.clone()))));
                sums.push(task!(g, sum_of_tree(r(tree))));
            }
            g.take_all(sums)
        })
    };
    let alone = a.run(program);
    let mut named = 0;
    for seed in 0.. {
        if seed >= 5 && named > 0 {
            break; // It is by chance which tasks leave, if any do.
        }
        assert!(seed < 500, "no task that left borrowed anything by name");
        let habits = Habits {
            seed,
            put_back: 10,
            lose: 10,
            ..Habits::default()
        };
        let (sums, report) = beside(&a, &b, habits, |_| program());
        assert_eq!(sums, alone);
        named += report.taken.iter().filter(|job| job.borrows).count();
    }
}

/// Lends the lists further, to a job of its own.
#[spawnable]
fn pass_on(lists: &Many<Vec<u64>>, begun: usize, until: usize) -> u64 {
    let sum = spawn!(sum_of_all(lists));
    raise(begun);
    await_flag(until);
    sync!();
    sum
}

#[spawnable]
fn collect(lists: &Many<Vec<u64>>) -> Many<Vec<u64>> {
    lists.clone()
}

/// Where the task runs elsewhere its lists have come by name, or with it: what it spawns must not depend on that.
#[test]
fn what_a_task_lends_further_stands_there_as_it_is() {
    let _watchdog = Watchdog::new("what_a_task_lends_further_stands_there_as_it_is");
    data::store();
    let pool = pool(1);
    let [begun, until] = flags();
    let program = || {
        flow!(|g| {
            let lists = [g.data(long(5_000_000)), g.data(long(6_000_000))];
            let sum = task!(g, pass_on(many(lists), begun, until));
            g.take(sum)
        })
    };
    let sum = during(&pool, program, |gate| {
        await_flag(begun);
        let jobs = taken(gate, 1);
        let parcel = &jobs[0].1;
        assert!(parcel.lent.is_empty() && parcel.arguments.len() > 160_000);
        put_back(gate, &jobs);
        raise(until);
    });
    let sum_of = |from| long(from).iter().sum::<u64>();
    assert_eq!(sum, sum_of(5_000_000) + sum_of(6_000_000));
}

#[test]
fn data_have_one_name_whatever_is_inside() {
    let _watchdog = Watchdog::new("data_have_one_name_whatever_is_inside");
    data::store();
    let pool = pool(1);
    let [begun, until] = flags();
    let program = || {
        flow!(|g| {
            let lists = [g.data(long(7_000_000)), g.data(long(8_000_000))];
            let all = task!(g, collect(many(lists)));
            let sum = g.get(all).iter().flatten().sum::<u64>();
            let sums = [
                task!(g, sum_of_all(r(all))),
                task!(g, sum_of_all(many(lists))),
            ];
            raise(begun);
            await_flag(until);
            (sum, g.take_all(sums))
        })
    };
    let (sum, sums) = during(&pool, program, |gate| {
        await_flag(begun);
        let jobs = taken(gate, 2);
        let [by_list, whole] = [&jobs[0].1, &jobs[1].1];
        assert_eq!(by_list.lent_names().len(), 2);
        let [name] = whole.lent_names() else {
            panic!("{whole:?}");
        };
        assert!(data::store().size_of(*name) > Some(160_000), "all of it");
        put_back(gate, &jobs);
        raise(until);
    });
    assert_eq!(sums, [sum, sum]);
}

#[spawnable]
fn long_of(from: u64) -> Vec<u64> {
    long(from)
}

/// A part of the outcome of a task that has run elsewhere, as it travels.
#[derive(serde::Serialize)]
enum Part {
    Here(Vec<u8>),
    Kept(ValueSize),
}

/// What a task gives that has made this list elsewhere, where it is kept; and nothing else, unless the list is its result.
fn kept_elsewhere(list: &[u64], is_result: bool) -> Answer {
    let (name, bytes) = (name_of(list), 80_000);
    let value = ValueSize { name, bytes };
    let mut parts = vec![Part::Kept(value)];
    if !is_result {
        parts.insert(0, Part::Here(Vec::new()));
    }
    Answer::Result {
        bytes: written(&(7u64, parts)).into(),
        needs: Vec::new(),
        kept: Some(Box::new(Kept {
            at: 0,
            values: vec![value],
        })),
    }
}

/// Two lists, one made of the other.
fn increased() -> [Vec<u64>; 2] {
    let first = long(12_000_000);
    let mut second = first.clone();
    increase(&mut second, &[5, 6]);
    [first, second]
}

#[test]
fn tasks_pass_data_on_elsewhere_and_what_is_lost_there_is_made_again_here() {
    let _watchdog =
        Watchdog::new("tasks_pass_data_on_elsewhere_and_what_is_lost_there_is_made_again_here");
    data::store();
    let pool = pool(1);
    let [begun, until] = flags();
    let program = || {
        flow!(|g| {
            let list = task!(g, long_of(12_000_000));
            task!(g, increase(rw(list), r(g.data(vec![5, 6]))));
            let sum = task!(g, sum_of(r(list), 1));
            raise(begun);
            await_flag(until);
            let list = g.get(list).clone();
            (list, g.take(sum))
        })
    };
    let (list, sum) = during(&pool, program, |gate| {
        await_flag(begun);
        let [first, second] = increased();
        let make = taken(gate, 1).remove(0);
        assert!(make.1.keeps);
        assert!(gate.deliver(make.0, kept_elsewhere(&first, true)));
        let change = taken(gate, 1).remove(0);
        assert!(change.1.arguments.len() < 100, "what it changes stays");
        assert_eq!(change.1.lent_names(), [name_of(&first)]);
        assert!(!data::store().contains(name_of(&first)));
        assert!(gate.deliver(change.0, kept_elsewhere(&second, false)));
        let read = taken(gate, 1).remove(0);
        assert_eq!(read.1.lent_names(), [name_of(&second)]);
        assert!(gate.deliver(read.0, answer(7)));
        // Nobody outside brings anything: both tasks run here, as the closure asks for what the second has made.
        raise(until);
    });
    assert_eq!((list, sum), (increased()[1].clone(), 7));
}

/// A node to which all may go, and what it is told of that.
#[derive(Default)]
struct Weighs(Mutex<Vec<JobLoad>>);

impl Judge for Weighs {
    fn accepts(&self, load: &JobLoad) -> bool {
        self.0.lock().expect("nobody panics").push(load.clone());
        true
    }

    fn trip(&self, _: &JobLoad) -> JobTrip {
        JobTrip::default()
    }
}

/// Data that would have to come here, too, are nothing that a task costs by leaving.
#[test]
fn the_judge_of_a_task_is_told_what_is_not_here_either() {
    let _watchdog = Watchdog::new("the_judge_of_a_task_is_told_what_is_not_here_either");
    data::store();
    let pool = pool(1);
    let [begun, until] = flags();
    let sum = during(
        &pool,
        || sum_of_made(18_000_000, begun, until),
        |gate| {
            await_flag(begun);
            let make = taken(gate, 1).remove(0);
            assert!(gate.deliver(make.0, kept_elsewhere(&long(18_000_000), true)));
            let weighs = Arc::new(Weighs::default());
            let judge: Arc<dyn Judge> = Arc::<Weighs>::clone(&weighs);
            // Then it is known that such a task is quickly written.
            put_back(gate, &taken(gate, 1));
            let haul = gate.take_for(0, 1, &judge);
            let read = own(haul.expect("no thread of its own is needed"));
            let loads = std::mem::take(&mut *weighs.0.lock().expect("nobody panics"));
            assert!(!loads.is_empty());
            for load in loads {
                assert_eq!(load.absent, [name_of(&long(18_000_000))].into());
                assert_eq!(load.shape.lent, 80_000);
            }
            assert!(gate.deliver(read[0].0, answer(7)));
            raise(until);
        },
    );
    assert_eq!(sum, 7);
}

/// A flow whose first task makes a list that the second one reads.
fn sum_of_made(from: u64, begun: usize, until: usize) -> u64 {
    flow!(|g| {
        let list = task!(g, long_of(from));
        let sum = task!(g, sum_of(r(list), 1));
        raise(begun);
        await_flag(until);
        g.take(sum)
    })
}

/// What comes of a flow whose first task has made another list elsewhere than it makes here, if that is lost there.
fn made_otherwise(is_strict: bool) -> Result<u64, String> {
    data::store();
    let pool = satin::builder().threads(1).flow_strict(is_strict).build();
    let pool = pool.expect("a pool");
    let [begun, until] = flags();
    let program = || sum_of_made(14_000_000, begun, until);
    let gate = pool.gate();
    std::thread::scope(|scope| {
        let flow = scope.spawn(|| pool.run(program));
        await_flag(begun);
        let make = taken(&gate, 1).remove(0);
        assert!(gate.deliver(make.0, kept_elsewhere(&long(15_000_000), true)));
        raise(until); // Nobody outside brings anything.
        flow.join()
            .map_err(|panic| *panic.downcast().expect("a text"))
    })
}

#[test]
fn a_task_that_makes_something_else_when_it_runs_again_ends_its_flow_if_that_is_set() {
    let _watchdog =
        Watchdog::new("a_task_that_makes_something_else_when_it_runs_again_ends_its_flow");
    let here = long(14_000_000).iter().sum::<u64>() + 1;
    assert_eq!(made_otherwise(false), Ok(here));
    let story = made_otherwise(true).expect_err("the flow panics");
    assert!(story.contains("long_of` has run a second time"), "{story}");
}

/// Whoever has a task that took down a node runs it elsewhere, and there nobody would have its data.
#[test]
fn a_task_that_only_others_may_run_waits_here_until_its_data_have_been_made_again() {
    let _watchdog =
        Watchdog::new("a_task_that_only_others_may_run_waits_here_until_its_data_have_been_made");
    data::store();
    let pool = pool(1);
    let [begun, until] = flags();
    let program = || sum_of_made(13_000_000, begun, until);
    let sum = during(&pool, program, |gate| {
        await_flag(begun);
        let list = long(13_000_000);
        let make = taken(gate, 1).remove(0);
        assert!(gate.deliver(make.0, kept_elsewhere(&list, true)));
        let read = taken(gate, 1).remove(0);
        let back = Back {
            held: true,
            ..Back::default()
        };
        assert!(gate.put_back(read.0, back));
        assert!(gate.take(1).jobs.is_empty(), "it waits for its data");
        assert!(!data::store().contains(name_of(&list)));
        raise(until);
        let again = taken(gate, 1).remove(0);
        assert_eq!(again.1.id, read.1.id);
        assert_eq!(again.1.lent_names(), [name_of(&list)]);
        assert!(
            data::store().contains(name_of(&list)),
            "it has been made again"
        );
        assert!(gate.deliver(again.0, answer(7)));
    });
    assert_eq!(sum, 7);
}
