//! A node that has used up its memory takes no jobs of others, until there is room again.
#![cfg(all(target_os = "linux", not(feature = "serial")))]
#![forbid(unsafe_code)]

mod common;

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use common::{PATIENCE, Watchdog};
use satin::{Satin, spawnable};
use tempfile::NamedTempFile;

const MIB: usize = 1 << 20;

/// Leaves that the second node has run.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Leaves of a millisecond.
#[spawnable]
fn tree(depth: u32) -> u64 {
    if depth == 0 {
        if satin::node().name == "small" {
            TAKEN.fetch_add(1, SeqCst);
        }
        std::thread::sleep(Duration::from_millis(1));
        return 1;
    }
    tree(depth - 1) + tree(depth - 1)
}

/// The bytes that this process has in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let row = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = row.expect("a row").trim().trim_end_matches(" kB");
    kib.parse::<usize>().expect("a number") << 10
}

/// Runs small programs until one of them says so, by the leaves that the second node has taken of it.
fn until(master: &Satin, what: &str, mut is_so: impl FnMut(u64) -> bool) {
    let since = Instant::now();
    loop {
        let before = TAKEN.load(SeqCst);
        assert_eq!(master.run(|| tree(7)), 128);
        if is_so(TAKEN.load(SeqCst) - before) {
            return;
        }
        assert!(since.elapsed() < PATIENCE / 2, "{what} did not happen");
    }
}

#[test]
fn a_node_over_its_limit_takes_no_jobs_until_it_is_below() {
    let _watchdog = Watchdog::new("a_node_over_its_limit_takes_no_jobs_until_it_is_below");
    let key = NamedTempFile::new().expect("a file");
    let text = satin::net::Credential::generate().expect("a key");
    std::fs::write(key.path(), text).expect("written");
    let builder = |name: &str| {
        satin::builder()
            .threads(1)
            .stack(16)
            .worth("always")
            .credential(key.path())
            .pool("tests")
            .name(name)
    };
    let limit = resident() + 256 * MIB;
    let large = builder("large").memory("no").listen("127.0.0.1:0");
    let large = large.build().expect("a founder");
    let join = large.network().expect("a network").addr().to_string();
    let small = builder("small").memory(limit.to_string()).join(join);
    let small = small.build().expect("let in");
    until(&large, "a theft", |taken| taken > 0);
    let ballast = black_box(vec![1_u8; 256 * MIB]);
    assert!(resident() > ballast.len());
    // A request may still be under way, and bring jobs.
    let mut in_vain = 0;
    until(&large, "the end of thefts", |taken| {
        in_vain = if taken == 0 { in_vain + 1 } else { 0 };
        in_vain == 5
    });
    drop(black_box(ballast));
    until(&large, "another theft", |taken| taken > 0);
    drop((large, small));
}
