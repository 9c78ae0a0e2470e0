//! Stories of flows: the order of tasks and what is copied, one rule after the other, with tasks that are held until the test lets them go; and
//! what befalls tasks that are away.

#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc,
    },
};

use common::{
    Watchdog,
    outside::{
        Told, answer, await_flag, borrowed, departures, during, flags, hear, listen, own, parcel,
        raise, raised, take, written,
    },
    wait_for,
};
use satin::{
    Handle, Many, Satin, flow,
    job::{Answer, Back, DepartureId, HostedId, JobId, Recall},
    many, r, rw, spawnable, task,
    worker::{Gate, Outside},
};
use serde::{Deserialize, Serialize};

fn pool(threads: usize) -> Satin {
    satin::builder()
        .threads(threads)
        .stack(16)
        .build()
        .expect("a pool")
}

/// A step of a chain.
#[spawnable]
fn step(after: &u32) -> u32 {
    after + 1
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.expect("a panic with a message")
}

// ------------------------------------------------------------------------------------------------------ LU

/// The graph of LU of 2 x 2 tiles: of each task, the tasks whose tiles it uses.
///
/// ```text
///  make 00    make 01    make 10    make 11
///     │          │          │          │
///     ▼          ▼          │          │
///  getrf 00 ─► trsm_l 01    │          │
///     │          │          ▼          │
///     └──────────┼──────► trsm_u 10    │
///                │          │          ▼
///                └──────────┴──────► gemm 11 ─► getrf 11
/// ```
const LU: [(&str, &[usize]); 9] = [
    ("make 00", &[]),
    ("make 01", &[]),
    ("make 10", &[]),
    ("make 11", &[]),
    ("getrf 00", &[0]),
    ("trsm_l 01", &[1, 4]),
    ("trsm_u 10", &[2, 4]),
    ("gemm 11", &[3, 5, 6]),
    ("getrf 11", &[7]),
];

/// The tasks that need what that one makes, directly or not, and itself.
fn needs(task: usize) -> BTreeSet<usize> {
    let mut all = BTreeSet::from([task]);
    for (at, (_, inputs)) in LU.iter().enumerate() {
        if inputs.iter().any(|input| all.contains(input)) {
            all.insert(at);
        }
    }
    all
}

/// Where the tasks of a run say that they have begun, and wait until they may go on, and say that they end.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Stage {
    begun: [usize; 9],
    may_go_on: [usize; 9],
    ended: [usize; 9],
}

impl Stage {
    fn new() -> Stage {
        Stage {
            begun: flags(),
            may_go_on: flags(),
            ended: flags(),
        }
    }

    /// The task does `what` when it may.
    fn pass<R>(&self, task: usize, what: impl FnOnce() -> R) -> R {
        raise(self.begun[task]);
        await_flag(self.may_go_on[task]);
        let result = what();
        raise(self.ended[task]);
        result
    }

    /// Those that have got there.
    fn of(flags: &[usize; 9]) -> BTreeSet<usize> {
        (0..9).filter(|task| raised(flags[*task]) > 0).collect()
    }
}

#[spawnable]
fn tile(stage: Stage, task: usize) -> u64 {
    stage.pass(task, || 3 + task as u64)
}

#[spawnable]
fn getrf(a: &mut u64, stage: Stage, task: usize) {
    stage.pass(task, || *a = *a * 5 + 1);
}

#[spawnable]
fn trsm_l(a: &mut u64, l: &u64, stage: Stage, task: usize) {
    stage.pass(task, || *a = *a * 7 + *l);
}

#[spawnable]
fn trsm_u(a: &mut u64, u: &u64, stage: Stage, task: usize) {
    stage.pass(task, || *a = *a * 11 + *u);
}

#[spawnable]
fn gemm(c: &mut u64, a: &u64, b: &u64, stage: Stage, task: usize) {
    stage.pass(task, || *c = *c * 13 + *a * *b);
}

fn lu(stage: Stage) -> Vec<Vec<u64>> {
    const TILES: usize = 2;
    let mut next = 0..;
    let mut number = move || next.next().expect("there is no end of numbers");
    flow!(|g| {
        let mut row = |_| -> Vec<Handle<u64>> {
            let made = |_| task!(g, tile(stage, number()));
            (0..TILES).map(made).collect()
        };
        let a: Vec<_> = (0..TILES).map(&mut row).collect();
        for k in 0..TILES {
            task!(g, getrf(rw(a[k][k]), stage, number()));
            for j in k + 1..TILES {
                task!(g, trsm_l(rw(a[k][j]), r(a[k][k]), stage, number()));
            }
            for i in k + 1..TILES {
                task!(g, trsm_u(rw(a[i][k]), r(a[k][k]), stage, number()));
            }
            for i in k + 1..TILES {
                for j in k + 1..TILES {
                    task!(
                        g,
                        gemm(rw(a[i][j]), r(a[i][k]), r(a[k][j]), stage, number())
                    );
                }
            }
        }
        g.take_all(a)
    })
}

/// Each task in turn is held: those that need it do not begin, and all others end.
#[test]
fn the_graph_of_lu_2x2_is_figure_1() {
    const WORKERS: u32 = 4;
    let _watchdog = Watchdog::new("the_graph_of_lu_2x2_is_figure_1");
    let pool = pool(WORKERS as usize);
    let a_00 = 3 * 5 + 1;
    let (a_01, a_10) = (4 * 7 + a_00, 5 * 11 + a_00);
    let a_11 = (6 * 13 + a_10 * a_01) * 5 + 1;
    for (held, (name, _)) in LU.iter().enumerate() {
        let stage = Stage::new();
        let others: BTreeSet<usize> = (0..LU.len()).filter(|task| *task != held).collect();
        let free: BTreeSet<usize> = &others - &needs(held);
        let outside = |gate: &Gate| {
            others.iter().for_each(|task| raise(stage.may_go_on[*task]));
            wait_for("all that does not need the task, and the task", || {
                Stage::of(&stage.ended).is_superset(&free) && raised(stage.begun[held]) > 0
            });
            // When no other worker finds anything, nothing else can run.
            wait_for("rest", || gate.idle() == WORKERS - 1);
            let mut begun = free.clone();
            begun.insert(held);
            assert_eq!(Stage::of(&stage.begun), begun, "while {name} is held");
            assert_eq!(Stage::of(&stage.ended), free, "while {name} is held");
            raise(stage.may_go_on[held]);
        };
        let tiles = during(&pool, || lu(stage), outside);
        assert_eq!(tiles, [[a_00, a_01], [a_10, a_11]]);
    }
}

// ------------------------------------------------------------------------------------------------------ F2: rename

/// Shows a block of a sweep, once it may: it still has the numbers of that sweep.
#[spawnable]
fn show(block: &u64, begun: usize, until: usize) -> u64 {
    raise(begun);
    await_flag(until);
    *block
}

#[spawnable]
fn smooth(block: &mut u64, left: &u64, right: &u64) {
    *block = *block * 3 + *left * 5 + *right;
}

#[spawnable]
fn swept(_: &Many<u64>, flag: usize) {
    raise(flag);
}

#[test]
fn readers_of_one_sweep_do_not_hold_up_the_next() {
    const BLOCKS: usize = 3;
    const SWEEPS: usize = 5;
    let _watchdog = Watchdog::new("readers_of_one_sweep_do_not_hold_up_the_next");
    let neighbours = |at: usize| ((at + BLOCKS - 1) % BLOCKS, (at + 1) % BLOCKS);
    let mut plain = [1, 2, 3];
    let mut sweeps = vec![plain];
    for _ in 0..SWEEPS {
        for at in 0..BLOCKS {
            let (left, right) = neighbours(at);
            plain[at] = plain[at] * 3 + plain[left] * 5 + plain[right];
        }
        sweeps.push(plain);
    }
    // One of them does the work: the readers of the first sweep keep the others.
    let pool = pool(BLOCKS + 1);
    let [begun, until, all_are_swept] = flags();
    let program = || {
        flow!(|g| {
            let blocks = [1, 2, 3].map(|n| g.data(n));
            let mut shown = vec![];
            for sweep in 0..SWEEPS {
                for at in 0..BLOCKS {
                    let (left, right) = neighbours(at);
                    task!(g, smooth(rw(blocks[at]), r(blocks[left]), r(blocks[right])));
                }
                if sweep == 0 {
                    shown = blocks
                        .map(|block| task!(g, show(r(block), begun, until)))
                        .into();
                }
            }
            task!(g, swept(many(blocks), all_are_swept));
            (g.take_all(shown), g.take_all(blocks))
        })
    };
    let (shown, blocks) = during(&pool, program, |_| {
        wait_for("the readers", || raised(begun) as usize == BLOCKS);
        // Which wait for nothing but this.
        await_flag(all_are_swept);
        raise(until);
    });
    assert_eq!(shown, sweeps[1]);
    assert_eq!(blocks, sweeps[SWEEPS]);
}

// ------------------------------------------------------------------------------------------------------ F3: in place

static COPIES: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, Serialize, Deserialize)]
struct Tile(u32);

impl Clone for Tile {
    fn clone(&self) -> Tile {
        COPIES.fetch_add(1, SeqCst);
        Tile(self.0)
    }
}

/// Changes the tile, and tells how often a tile has been copied before.
#[spawnable]
fn raise_tile(tile: &mut Tile) -> u32 {
    tile.0 += 1;
    COPIES.load(SeqCst)
}

/// Reads the tile when it begins, and when it may end.
#[spawnable]
fn look_twice(tile: &Tile, begun: usize, until: usize) -> u32 {
    let before = tile.0;
    raise(begun);
    await_flag(until);
    assert_eq!(before, tile.0, "it has changed under its reader");
    before
}

/// A reader that runs, one that is on another node, and a loan: each costs the change beside it a copy, and none costs another.
#[test]
fn data_are_changed_in_place_if_nobody_else_reads_them() {
    let _watchdog = Watchdog::new("data_are_changed_in_place_if_nobody_else_reads_them");
    let pool = pool(2);
    let [begun, until, made, is_away] = flags();
    let program = || {
        flow!(|g| {
            let tile = g.data(Tile(0));
            let change = || *g.get(task!(g, raise_tile(rw(tile))));
            assert_eq!(change(), 0, "nobody reads it");

            let runs = task!(g, look_twice(r(tile), begun, until));
            await_flag(begun); // on the other worker
            assert_eq!(change(), 1, "a task reads it");
            assert_eq!(change(), 1, "it reads what was there before");
            raise(until);
            assert_eq!(g.take(runs), 1);
            assert_eq!(change(), 1, "it has read it");

            let [stays, stops] = flags();
            let busy = task!(g, common::outside::hold(stays, stops));
            await_flag(stays); // the other worker
            let away = task!(g, look_twice(r(tile), begun, until));
            raise(made);
            await_flag(is_away);
            assert_eq!(change(), 2, "a task on another node reads it");
            assert_eq!(change(), 2, "it reads what was there before");
            raise(made);
            assert_eq!(g.take(away), 4);
            assert_eq!(change(), 2, "it has read it");

            let loan = g.get(tile);
            assert_eq!(change(), 3, "the closure reads it");
            assert_eq!(change(), 3, "it reads what was there before");
            assert_eq!(loan.0, 7);
            drop(loan);
            assert_eq!(change(), 3, "it has read it");
            raise(stops);
            g.take(busy);
            g.take(tile).0
        })
    };
    let last = during(&pool, program, |gate| {
        await_flag(made);
        let (departure, parcel) = own(take(gate, 1)).remove(0);
        let arguments = (borrowed(Tile(4)), begun, until);
        assert_eq!(parcel.arguments.to_vec(), written(&arguments));
        raise(is_away);
        wait_for("the changes beside it", || raised(made) == 2);
        assert!(gate.deliver(departure, answer(4)));
    });
    assert_eq!(last, 10);
    assert_eq!(COPIES.load(SeqCst), 3);
}

// ------------------------------------------------------------------------------------------------------ F4: the window

static RAN: AtomicU32 = AtomicU32::new(0);

#[spawnable]
fn note_place(place: u32) {
    assert_eq!(RAN.fetch_add(1, SeqCst), place, "in the order of the text");
}

#[test]
fn a_closure_that_is_a_window_ahead_runs_tasks_first() {
    const WINDOW: u32 = 65_536;
    let _watchdog = Watchdog::new("a_closure_that_is_a_window_ahead_runs_tasks_first");
    pool(1).run(|| {
        flow!(|g| {
            for made in 0..WINDOW + 1000 {
                task!(g, note_place(made));
                let ran = RAN.load(SeqCst);
                assert!(made < ran + WINDOW, "{made} were made, {ran} ran");
                assert!(made >= WINDOW || ran == 0, "there was room for {made}");
            }
        });
        assert_eq!(RAN.load(SeqCst), WINDOW + 1000);
    });
}

// ------------------------------------------------------------------------------------------------------ slots that are used again

/// Stops the worker that recalls the first job, until it may go on.
struct Gatekeeper {
    recalled: mpsc::Sender<DepartureId>,
    go_on: usize,
}

impl Outside for Gatekeeper {
    fn done(&self, _: HostedId, _: Answer) {}

    fn recalled(&self, departure: DepartureId, _: Recall) {
        // Nobody listens any more if the test has failed.
        let _ = self.recalled.send(departure);
        await_flag(self.go_on);
    }
}

/// While a flow that has failed recalls one of its tasks, another one is answered and ends, and its slot goes to a task of another flow, which is
/// not recalled.
#[test]
fn a_flow_recalls_no_task_of_another_flow_that_has_got_its_slot() {
    let _watchdog = Watchdog::new("a_flow_recalls_no_task_of_another_flow_that_has_got_its_slot");
    let pool = pool(2);
    let gate = pool.gate();
    let [go_on, fails_at, made, runs_at, is_made, may_wait] = flags();
    let (recalled, recalls) = mpsc::channel();
    gate.listen(Arc::new(Gatekeeper { recalled, go_on }));
    let failing = || {
        flow!(|g| {
            let one = g.data(1);
            for _ in 0..2 {
                task!(g, step(r(one)));
            }
            raise(made);
            await_flag(fails_at);
            panic!("enough");
        })
    };
    let going_on = || {
        flow!(|g| {
            raise(is_made);
            await_flag(runs_at);
            let ten = g.data(10);
            let next = task!(g, step(r(ten)));
            raise(is_made);
            await_flag(may_wait);
            g.take(next)
        })
    };
    std::thread::scope(|scope| {
        let going_on = scope.spawn(|| pool.run(going_on));
        await_flag(is_made);
        // The other worker is this one's, so none is left for its tasks.
        let failing = scope.spawn(|| pool.run(|| catch_unwind(failing)));
        await_flag(made);
        let both = departures(&gate, 2);
        raise(fails_at);
        let first = recalls.recv().expect("a task is recalled");
        let other = both.into_iter().find(|departure| *departure != first);
        assert!(gate.deliver(other.expect("there are two"), answer(2)));
        // The clerk does one thing after the other: when it comes to this, the slot is free.
        let [is_free] = flags();
        gate.aside(move || raise(is_free));
        await_flag(is_free);
        raise(runs_at);
        wait_for("the other flow's task", || raised(is_made) == 2);
        let third = departures(&gate, 1)[0];
        raise(go_on);
        raise(may_wait);
        let payload = failing
            .join()
            .expect("it has caught it")
            .expect_err("it failed");
        assert_eq!(text_of(&*payload), "enough");
        assert!(gate.deliver(third, answer(11)), "it was recalled");
        assert_eq!(going_on.join().expect("it goes on"), 11);
    });
    assert!(recalls.try_recv().is_err(), "nothing else is recalled");
}

// ------------------------------------------------------------------------------------------------------ little stack

/// Of the 16 MiB of a worker's stack: with less than a quarter left it helps nobody.
const MOST_OF_THE_STACK: usize = 12 << 20;

/// Goes down from `top`, or from here if that is 0, until little of the stack is left, and opens a flow there: a task, and another that reads
/// what it makes.
#[spawnable]
fn far_down(top: usize, made: usize, go_on: usize, ran: usize) -> u32 {
    let frame = std::hint::black_box([0u8; 16 << 10]);
    let here = frame.as_ptr().addr();
    let top = top.max(here);
    let result = if top - here < MOST_OF_THE_STACK {
        satin::call!(far_down(top, made, go_on, ran))
    } else {
        flow!(|g| {
            let first = task!(g, noted(1, ran));
            let second = task!(g, step(r(first)));
            raise(made);
            await_flag(go_on);
            g.take(second)
        })
    };
    std::hint::black_box(&frame);
    result
}

#[spawnable]
fn noted(number: u32, ran: usize) -> u32 {
    raise(ran);
    number
}

#[test]
fn a_flow_with_little_stack_runs_its_tasks_that_come_back() {
    let _watchdog = Watchdog::new("a_flow_with_little_stack_runs_its_tasks_that_come_back");
    let pool = pool(1);
    // Before the flow waits, and while its worker sleeps.
    for is_asleep in [false, true] {
        let [made, go_on, ran] = flags();
        let program = || far_down(0, made, go_on, ran);
        let result = during(&pool, program, |gate| {
            await_flag(made);
            let first = departures(gate, 1)[0];
            let sleeps = || pool.figures()[0].sleeps;
            let before = sleeps();
            if is_asleep {
                raise(go_on);
                wait_for("sleep", || sleeps() > before);
            }
            assert!(gate.put_back(first, Back::default()));
            raise(go_on);
        });
        assert_eq!(result, 2);
        assert_eq!(raised(ran), 1);
    }
}

/// How often that has been raised by now.
#[spawnable]
fn after(_: &u32, ran: usize) -> u32 {
    raised(ran)
}

/// There may be more of those than the stack has room for.
#[test]
fn a_flow_with_little_stack_runs_no_task_of_another() {
    let _watchdog = Watchdog::new("a_flow_with_little_stack_runs_no_task_of_another");
    let pool = pool(1);
    let [begun, is_away, made, go_on, ran] = flags();
    let program = || {
        flow!(|g| {
            let one = g.data(1);
            let first = task!(g, step(r(one)));
            let other = task!(g, after(r(first), ran));
            raise(begun);
            await_flag(is_away);
            let deep = task!(g, far_down(0, made, go_on, ran));
            g.take_all([deep, other])
        })
    };
    let results = during(&pool, program, |gate| {
        await_flag(begun);
        let first = departures(gate, 1)[0];
        raise(is_away);
        await_flag(made);
        // The task of the flow far down comes back, which its worker looks for last.
        let inner = departures(gate, 1)[0];
        assert!(gate.put_back(inner, Back::default()));
        assert!(gate.deliver(first, answer(2)));
        // The clerk does one thing after the other: now the task of the flow above can run.
        let [is_ready] = flags();
        gate.aside(move || raise(is_ready));
        await_flag(is_ready);
        raise(go_on);
    });
    assert_eq!(results, [2, 1], "the other task ran after those far down");
}

// ------------------------------------------------------------------------------------------------------ destructors that panic

/// Panics when it is dropped, if it has that number.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Touchy(u32);

const WORST: u32 = 13;

impl Drop for Touchy {
    fn drop(&mut self) {
        assert!(
            self.0 != WORST || std::thread::panicking(),
            "it was dropped"
        );
    }
}

/// Makes a number harmless.
#[spawnable]
fn soothe(value: &mut Touchy) {
    value.0 = 0;
}

#[spawnable]
fn look_at(value: &Touchy, begun: usize, until: usize) -> u32 {
    raise(begun);
    await_flag(until);
    value.0
}

#[spawnable]
fn look_at_all(values: &Many<Touchy>, begun: usize, until: usize) -> u32 {
    raise(begun);
    await_flag(until);
    values.iter().map(|value| value.0).sum()
}

/// A task that reads what has been changed meanwhile is the last that holds it: the destructor runs when the task ends.
fn last_reader(is_list: bool, begun: usize, until: usize, go_on: usize) -> u32 {
    flow!(|g| {
        let value = g.data(Touchy(WORST));
        let seen = match is_list {
            true => task!(g, look_at_all(many([value]), begun, until)),
            false => task!(g, look_at(r(value), begun, until)),
        };
        await_flag(begun);
        task!(g, soothe(rw(value)));
        drop(g.get(value));
        let next = task!(g, step(r(seen)));
        let last = task!(g, step(r(next)));
        raise(until);
        await_flag(go_on);
        g.take(last)
    })
}

#[test]
fn the_panic_of_a_destructor_when_a_task_ends_is_that_of_its_flow() {
    let _watchdog = Watchdog::new("the_panic_of_a_destructor_when_a_task_ends_is_that_of_its_flow");
    let pool = pool(2);
    for is_list in [false, true] {
        let [begun, until, go_on] = flags();
        raise(go_on);
        let run = || catch_unwind(|| last_reader(is_list, begun, until, go_on));
        let payload = pool.run(run).expect_err("a destructor panics");
        assert!(text_of(&*payload).contains("it was dropped"));
        assert_eq!(pool.run(sound), 3);
    }
}

/// The pool works on.
fn sound() -> u32 {
    flow!(|g| {
        let one = g.data(1);
        let two = task!(g, step(r(one)));
        let three = task!(g, step(r(two)));
        g.take(three)
    })
}

/// The clerk ends a task that is answered while all workers are busy.
#[test]
fn the_panic_of_a_destructor_when_a_task_elsewhere_ends_is_that_of_its_flow() {
    let _watchdog =
        Watchdog::new("the_panic_of_a_destructor_when_a_task_elsewhere_ends_is_that_of_its_flow");
    let pool = pool(1);
    for is_list in [false, true] {
        let [begun, until, go_on] = flags();
        let run = || catch_unwind(|| last_reader(is_list, begun, until, go_on));
        let ended = during(&pool, run, |gate| {
            let reader = departures(gate, 1)[0];
            raise(begun);
            await_flag(until);
            assert!(gate.deliver(reader, answer(WORST)));
            gate.aside(move || raise(go_on));
        });
        let payload = ended.expect_err("a destructor panics");
        assert!(text_of(&*payload).contains("it was dropped"));
        assert_eq!(pool.run(sound), 3);
    }
}

/// Makes a value that must not be dropped, and fails.
#[spawnable]
fn spoil(value: &mut Touchy) {
    value.0 = WORST;
    panic!("the task");
}

/// What a task that fails leaves behind, and what those leave that wait for it, is dropped in silence.
#[test]
fn destructors_that_panic_after_a_panic_hold_up_nobody() {
    let _watchdog = Watchdog::new("destructors_that_panic_after_a_panic_hold_up_nobody");
    for threads in [1, 2] {
        let pool = pool(threads);
        let run = || {
            flow!(|g| {
                let value = g.data(Touchy(1));
                let others: Vec<_> = (0..3).map(|_| g.data(Touchy(WORST))).collect();
                task!(g, spoil(rw(value)));
                for other in others {
                    task!(g, never(rw(value), r(other), Touchy(WORST)));
                    task!(g, soothe(rw(other)));
                }
                g.take(value)
            })
        };
        let payload = pool.run(|| catch_unwind(run)).expect_err("a task fails");
        assert_eq!(text_of(&*payload), "the task");
        assert_eq!(pool.run(sound), 3);
    }
}

#[spawnable]
fn never(_: &mut Touchy, _: &Touchy, _: Touchy) {
    unreachable!("what it is to change is never there");
}

// ------------------------------------------------------------------------------------------------------ drains

/// The departures of so many tasks, by the numbers of the tasks.
fn numbered(gate: &Gate, count: usize) -> BTreeMap<u32, DepartureId> {
    let mut all = BTreeMap::new();
    while all.len() < count {
        let more = own(take(gate, 1)).into_iter();
        let number = |id: JobId| id.path().last().expect("a task has a number");
        all.extend(more.map(|(departure, parcel)| (number(parcel.id), departure)));
    }
    all
}

/// The node is about to leave: tasks that are away come home and are run here, and answers that still come are not wanted.
#[test]
fn tasks_that_are_away_when_a_node_is_drained_are_run_here() {
    let _watchdog = Watchdog::new("tasks_that_are_away_when_a_node_is_drained_are_run_here");
    for threads in [1, 3] {
        let pool = pool(threads);
        let [made, go_on, ran] = flags();
        let program = || {
            flow!(|g| {
                let all: Vec<_> = (0..4).map(|n| task!(g, noted(n, ran))).collect();
                let next = all
                    .into_iter()
                    .map(|n| task!(g, step(r(n))))
                    .collect::<Vec<_>>();
                raise(made);
                await_flag(go_on);
                g.take_all(next)
            })
        };
        let [begun, until] = flags();
        let all = std::thread::scope(|scope| {
            // The other workers are busy.
            for _ in 1..threads {
                scope.spawn(|| pool.run(|| common::outside::hold(begun, until)));
            }
            wait_for("the others", || raised(begun) as usize == threads - 1);
            during(&pool, program, |gate| {
                await_flag(made);
                let away = numbered(gate, 4);
                assert!(gate.deliver(away[&2], answer(100)));
                gate.call_home();
                for departure in away.into_values() {
                    assert!(!gate.deliver(departure, answer(100)), "it has come home");
                }
                raise(until);
                raise(go_on);
            })
        });
        assert_eq!(all, [1, 2, 101, 4]);
        assert_eq!(raised(ran), 3);
    }
}

/// A job whose flow is stopped, and which goes on as if nothing had happened.
#[spawnable]
fn stubborn(made: usize, go_on: usize, ran: usize) -> u32 {
    let inner = || {
        flow!(|g| {
            let all = [0, 1].map(|n| task!(g, noted(n, ran)));
            raise(made);
            await_flag(go_on);
            g.take_all(all).into_iter().sum()
        })
    };
    catch_unwind(AssertUnwindSafe(inner)).unwrap_or(7)
}

/// Whoever gives a job of another node up gives its flow up: what is away is abandoned, what was answered is handed on, and what the job
/// returns all the same is no result, also if none of its tasks has been stopped.
#[test]
fn a_job_that_is_given_up_in_a_flow_has_no_result_whatever_it_returns() {
    const KEY: HostedId = HostedId(3);
    let _watchdog =
        Watchdog::new("a_job_that_is_given_up_in_a_flow_has_no_result_whatever_it_returns");
    for answered in [1, 2] {
        let pool = common::outside::pool(1);
        let (gate, told) = (pool.gate(), listen(&pool));
        let [made, go_on, ran] = flags();
        let job = JobId::ROOT.child(0).child(1);
        gate.host(KEY, parcel(job, "stubborn", &(made, go_on, ran)));
        await_flag(made);
        let both = numbered(&gate, 2);
        for task in 0..answered {
            assert!(gate.deliver(both[&task], answer(5 + task)));
        }
        gate.save_hosted(KEY);
        raise(go_on);
        for task in answered..2 {
            let recalled = hear(&told, |told| match told {
                Told::Recalled(departure, why) => Some((*departure, *why)),
                _ => None,
            });
            assert_eq!(recalled, (both[&task], Recall::Abandoned));
        }
        let saved = hear(&told, |told| match told {
            Told::Saved(key, saved) => Some((*key, saved.clone())),
            Told::Done(key, answer) => panic!("{key:?} is done: {answer:?}"),
            _ => None,
        });
        assert_eq!(saved.0, KEY);
        let mut saved = saved.1;
        saved.sort_by(|a, b| a.name.cmp(&b.name));
        let saved: Vec<_> = saved.into_iter().map(|saved| saved.answer).collect();
        let expected: Vec<_> = (0..answered).map(|task| answer(5 + task)).collect();
        assert_eq!(saved, expected);
        for departure in both.into_values() {
            assert!(!gate.deliver(departure, answer(9)), "it is over");
        }
        assert_eq!(raised(ran), 0);
    }
}
