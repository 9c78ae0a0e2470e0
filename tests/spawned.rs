//! Root jobs whose callers await a future: on any executor, and no thread waits.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
};

use common::{Habits, Report, Watchdog, give_way, until, wait_for};
use satin::{Satin, par_map, spawnable};

satin::bound! {
    static HIGHEST: satin::Max<u64>;
}

#[spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 {
        give_way();
        return n.into();
    }
    fib(n - 1) + fib(n - 2)
}

#[spawnable]
fn square(number: &u64) -> u64 {
    give_way();
    HIGHEST.offer(*number);
    number * number
}

/// Calls another spawnable function as ordinary code does: a nested entry.
#[spawnable]
fn nested(n: u32) -> u64 {
    let helper = || fib(n);
    helper() + 1
}

fn pool(threads: usize) -> Satin {
    let builder = satin::builder().threads(threads).stack(16);
    builder.build().expect("a pool")
}

/// Unparks the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The least executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn current_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.build().expect("a runtime")
}

#[test]
fn the_least_executor_gets_the_result() {
    let pool = pool(2);
    assert_eq!(block_on(pool.spawn(|| fib(20))), 6765);
    let several = pool.spawn(|| (fib(10), par_map!(&[1, 2, 3], square), nested(12)));
    assert_eq!(block_on(several), (55, vec![1, 4, 9], 145));
    let borrowed = String::from("what is moved into it");
    assert_eq!(block_on(pool.spawn(move || borrowed.len())), 21);
}

#[test]
fn without_a_pool_of_its_own_the_future_is_of_the_one_that_a_call_goes_to() {
    let pool = pool(3);
    let threads = || block_on(satin::spawn_async(|| satin::node().threads));
    assert_eq!(pool.run(threads), 3);
    assert_eq!(block_on(satin::spawn_async(|| fib(15))), 610);
}

/// The root job ends only if the task beside it runs, on the only thread that there is.
#[test]
fn no_thread_of_the_runtime_waits() {
    let _watchdog = Watchdog::new("no_thread_of_the_runtime_waits");
    static GO: AtomicBool = AtomicBool::new(false);
    let pool = pool(2);
    let root = pool.spawn(|| {
        wait_for("the task beside", || GO.load(SeqCst));
        fib(15)
    });
    let beside = async {
        tokio::task::yield_now().await;
        GO.store(true, SeqCst);
    };
    let (result, ()) = current_thread().block_on(async { tokio::join!(root, beside) });
    assert_eq!(result, 610);
}

#[test]
fn many_at_once_on_a_runtime_of_several_threads() {
    let _watchdog = Watchdog::new("many_at_once_on_a_runtime_of_several_threads");
    let pool = pool(2);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).build().expect("a runtime");
    let tasks: Vec<_> = (0..50)
        .map(|n| runtime.spawn(pool.spawn(move || fib(n % 15))))
        .collect();
    for (n, task) in tasks.into_iter().enumerate() {
        let result = runtime.block_on(task).expect("a task that ends");
        assert_eq!(result, satin::seq!(fib(n as u32 % 15)));
    }
}

#[test]
fn jobs_of_a_spawned_root_leave_the_process() {
    let (a, b) = (pool(1), pool(2));
    let some_left = |report: &Report| report.travelled > 0;
    until(&a, &b, Habits::default(), some_left, || {
        assert_eq!(block_on(a.spawn(|| fib(20))), 6765);
    });
    let numbers: Vec<u64> = (0..200).collect();
    let squares: Vec<u64> = numbers.iter().map(|number| number * number).collect();
    // The second call: its jobs have other names than those of the first.
    until(&a, &b, Habits::default(), some_left, || {
        let numbers = numbers.clone();
        let both =
            block_on(a.spawn(move || (par_map!(&numbers, square), par_map!(&numbers, square))));
        assert_eq!(both, (squares.clone(), squares.clone()));
    });
}

#[test]
fn a_panic_comes_out_of_the_future_and_the_pool_goes_on() {
    let pool = pool(2);
    let root = pool.spawn(|| -> u64 { panic!("said by the closure") });
    let panic = catch_unwind(AssertUnwindSafe(|| block_on(root))).expect_err("a panic");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"said by the closure"));
    assert_eq!(block_on(pool.spawn(|| fib(10))), 55);
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_future_that_is_dropped_stops_nothing_and_its_result_is_dropped() {
    let pool = pool(1);
    let (dropped, ran) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let root = {
        let (dropped, ran) = (Arc::clone(&dropped), Arc::clone(&ran));
        pool.spawn(move || {
            fib(10);
            ran.store(true, SeqCst);
            Counted(dropped)
        })
    };
    drop(root);
    wait_for("the result is dropped", || dropped.load(SeqCst) == 1);
    assert!(ran.load(SeqCst));
    // A result that is there already.
    let root = {
        let dropped = Arc::clone(&dropped);
        pool.spawn(move || Counted(dropped))
    };
    wait_for("the root job is over", || {
        format!("{root:?}").contains("over")
    });
    drop(root);
    assert_eq!(dropped.load(SeqCst), 2);
}

#[test]
fn the_bound_of_a_root_is_there_when_its_future_is_ready() {
    let pool = pool(2);
    let squares = block_on(pool.spawn(|| par_map!(&[3, 9, 4], square)));
    assert_eq!(squares, [9, 81, 16]);
    assert_eq!(HIGHEST.get(), Some(9));
}

#[test]
fn a_root_that_has_not_begun_ends_with_its_pool() {
    let _watchdog = Watchdog::new("a_root_that_has_not_begun_ends_with_its_pool");
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static GO: AtomicBool = AtomicBool::new(false);
    let pool = pool(1);
    let first = pool.spawn(|| {
        BEGUN.store(true, SeqCst);
        wait_for("a word", || GO.load(SeqCst));
    });
    wait_for("the first to begin", || BEGUN.load(SeqCst));
    let kept = Arc::new(AtomicUsize::new(0));
    let second = {
        let counted = Counted(Arc::clone(&kept));
        pool.spawn(move || drop(counted))
    };
    let ends = std::thread::spawn(move || drop(pool));
    GO.store(true, SeqCst);
    ends.join().expect("the pool ends");
    block_on(first);
    // Whether it has begun or not, the future is ready, and the closure is gone.
    let end = catch_unwind(AssertUnwindSafe(|| block_on(second)));
    if let Err(panic) = end {
        let text = panic.downcast_ref::<&str>().expect("a text");
        assert!(text.contains("the pool has ended before"), "{text}");
    }
    assert_eq!(kept.load(SeqCst), 1);
}
