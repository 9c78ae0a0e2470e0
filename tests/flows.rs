//! Flows in one process: what their tasks compute is what the program text says.

#![cfg(not(feature = "serial"))]

use std::sync::atomic::{AtomicU32, Ordering};

use satin::{Flow, Handle, Many, flow, many, r, rw, spawnable, task};

fn on(threads: usize, run: impl FnOnce()) {
    let pool = satin::builder().threads(threads).build().expect("a pool");
    pool.run(run);
}

#[spawnable]
fn number(n: u64) -> u64 {
    n
}

#[spawnable]
fn mix(to: &mut u64, with: &u64) {
    *to = to.wrapping_mul(31).wrapping_add(*with);
}

#[spawnable]
fn sum_of(all: &Many<u64>) -> u64 {
    all.iter().copied().fold(0, u64::wrapping_add)
}

#[spawnable]
fn extend(list: &mut [u64], by: &str) {
    for (at, n) in list.iter_mut().enumerate() {
        *n += (by.len() + at) as u64;
    }
}

#[spawnable]
fn text(n: usize) -> String {
    "a".repeat(n)
}

#[test]
fn each_task_waits_for_what_it_reads() {
    for threads in [1, 2, 4] {
        on(threads, || {
            let got = flow!(|g| {
                let all: Vec<Handle<u64>> = (0..100).map(|n| task!(g, number(n))).collect();
                for round in 1..20 {
                    for at in 0..all.len() {
                        let other = all[(at * 7 + round) % all.len()];
                        if (at * 7 + round) % all.len() != at {
                            task!(g, mix(rw(all[at]), r(other)));
                        }
                    }
                }
                let sum = task!(g, sum_of(many(all.iter().copied())));
                (g.take(sum), g.take_all(all))
            });
            let mut all: Vec<u64> = (0..100).collect();
            for round in 1..20 {
                for at in 0..all.len() {
                    let other = (at * 7 + round) % all.len();
                    if other != at {
                        all[at] = all[at].wrapping_mul(31).wrapping_add(all[other]);
                    }
                }
            }
            let sum = all.iter().copied().fold(0, u64::wrapping_add);
            assert_eq!(got, (sum, all));
        });
    }
}

#[spawnable]
fn factorial(n: u64) -> u64 {
    flow!(|g| {
        let product = g.data(1);
        for factor in 1..=n {
            let factor = task!(g, number(factor));
            task!(g, times(rw(product), r(factor)));
        }
        g.take(product)
    })
}

#[spawnable]
fn times(product: &mut u64, factor: &u64) {
    *product *= factor;
}

#[spawnable]
fn sum_of_factorials(n: u64) -> u64 {
    if n == 0 {
        return 0;
    }
    let rest = sum_of_factorials(n - 1);
    let own = satin::call!(factorial(n));
    rest + own
}

#[test]
fn a_flow_stands_in_a_job_and_its_tasks_may_have_flows() {
    on(2, || {
        assert_eq!(sum_of_factorials(10), 4_037_913);
        let all = flow!(|g| {
            let all: Vec<_> = (0..10).map(|n| task!(g, factorial(n))).collect();
            g.take_all(all)
        });
        assert_eq!(all.iter().sum::<u64>(), 1 + 409_113);
    });
}

#[test]
fn slices_and_text_are_borrowed_from_what_owns_them() {
    on(2, || {
        let list = flow!(|g| {
            let list = g.data(vec![1, 2, 3]);
            let text = task!(g, text(10));
            task!(g, extend(rw(list), r(text)));
            g.take(list)
        });
        assert_eq!(list, [11, 13, 15]);
    });
}

fn rounds<'g>(g: &Flow<'g>, n: Handle<'g, u64>, many: u32) {
    for _ in 0..many {
        task!(g, mix(rw(n), r(n)));
    }
}

#[test]
fn one_handle_may_be_read_and_changed_by_a_task() {
    on(2, || {
        let n = flow!(|g| {
            let n = g.data(1);
            rounds(g, n, 3);
            assert_eq!(*g.get(n), 32 * 32 * 32);
            g.take(n)
        });
        assert_eq!(n, 32 * 32 * 32);
    });
}

static COPIES: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Counted(u64);

impl Clone for Counted {
    fn clone(&self) -> Counted {
        COPIES.fetch_add(1, Ordering::Relaxed);
        Counted(self.0)
    }
}

#[spawnable]
fn count(up: &mut Counted) {
    up.0 += 1;
}

#[test]
fn what_nobody_reads_any_more_is_changed_in_place() {
    on(2, || {
        let (n, seen) = flow!(|g| {
            let n = g.data(Counted(0));
            for _ in 0..1000 {
                task!(g, count(rw(n)));
            }
            assert_eq!(COPIES.load(Ordering::Relaxed), 0);
            let seen = g.get(n);
            task!(g, count(rw(n)));
            (g.take(n).0, seen.0)
        });
        assert_eq!((n, seen), (1001, 1000));
        assert_eq!(COPIES.load(Ordering::Relaxed), 1);
    });
}

#[spawnable]
fn fail(n: u64) -> u64 {
    assert!(n != 50, "the task with {n}");
    n
}

#[test]
fn the_panic_of_a_task_is_that_of_the_flow_and_nothing_hangs() {
    for threads in [1, 3] {
        on(threads, || {
            let run = || {
                flow!(|g| {
                    let all: Vec<_> = (0..1000).map(|n| task!(g, fail(n))).collect();
                    for pair in all.windows(2) {
                        task!(g, mix(rw(pair[0]), r(pair[1])));
                    }
                    g.take_all(all)
                })
            };
            let payload = std::panic::catch_unwind(run).expect_err("a task fails");
            let text = payload.downcast_ref::<String>().expect("its message");
            assert_eq!(text, "the task with 50");
            // The pool works on.
            assert_eq!(factorial(5), 120);
        });
    }
}

#[test]
fn the_panic_of_the_closure_ends_the_flow() {
    on(2, || {
        let run = || {
            flow!(|g| {
                for n in 0..100 {
                    task!(g, number(n));
                }
                panic!("enough");
            })
        };
        let payload = std::panic::catch_unwind(run).expect_err("it panics");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"enough"));
    });
}

#[test]
fn two_changes_of_one_handle_in_a_task_are_a_panic() {
    #[spawnable]
    fn both(a: &mut u64, b: &mut u64) {
        std::mem::swap(a, b);
    }
    on(2, || {
        let run = || {
            flow!(|g| {
                let n = g.data(1);
                task!(g, both(rw(n), rw(n)));
            })
        };
        assert!(std::panic::catch_unwind(run).is_err());
    });
}

#[test]
fn more_tasks_than_the_window_holds() {
    on(2, || {
        let n = flow!(|g| {
            let n = g.data(0);
            let one = g.data(1);
            for _ in 0..200_000 {
                task!(g, add(rw(n), r(one)));
            }
            g.take(n)
        });
        assert_eq!(n, 200_000);
    });
}

#[spawnable]
fn add(to: &mut u64, what: &u64) {
    *to += what;
}

#[test]
fn a_flow_that_is_cancelled_stops() {
    #[spawnable]
    fn wait_for_ever() {
        loop {
            satin::cancellation_point();
            std::thread::yield_now();
        }
    }
    on(2, || {
        let late = satin::run_timeout(std::time::Duration::from_millis(50), || {
            flow!(|g| {
                for _ in 0..4 {
                    task!(g, wait_for_ever());
                }
            });
        });
        assert!(late.is_err());
        assert_eq!(factorial(5), 120);
    });
}
