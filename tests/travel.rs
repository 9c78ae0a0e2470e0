//! Jobs that leave the process as bytes and come back: every form and every kind of argument computes the same.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]
#![allow(
    clippy::too_many_arguments,
    clippy::only_used_in_recursion,
    reason = "all kinds of them"
)]

mod common;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{CStr, OsStr},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use bytemuck::{Pod, Zeroable};
use common::{Habits, PATIENCE, Report, Watchdog, beside, give_way, mix, outside, until, wait_for};
use satin::{Satin, Shared, seq, spawn, spawnable, sync};
use serde::{Deserialize, Serialize, Serializer};

fn pools(workers: usize) -> (Satin, Satin) {
    (outside::pool(workers), outside::pool(2))
}

fn travels(program: impl FnMut()) {
    common::travels(pools, program);
}

// --------------------------------------------------------------------------------------------------------------- forms
#[spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 {
        give_way();
        return n.into();
    }
    let x = fib(n - 1);
    let y = fib(n - 2);
    sync!();
    x + y
}

#[spawnable]
fn fib_expression(n: u32) -> u64 {
    if n < 2 {
        give_way();
        n.into()
    } else {
        fib_expression(n - 1) + fib_expression(n - 2)
    }
}

#[spawnable]
fn nqueens(n: u32, columns: u32, left: u32, right: u32) -> u64 {
    let all = (1 << n) - 1;
    if columns == all {
        give_way();
        return 1;
    }
    let mut solutions = 0;
    let mut free = all & !(columns | left | right);
    while free != 0 {
        let here = free & free.wrapping_neg();
        free ^= here;
        solutions += nqueens(n, columns | here, (left | here) << 1, (right | here) >> 1);
    }
    solutions
}

#[spawnable]
fn leaves(depth: u32, name: u64) -> Vec<u64> {
    if depth == 0 {
        give_way();
        return vec![name];
    }
    let mut parts: Vec<Vec<u64>> = Vec::new();
    for i in 0..3 {
        parts.push(leaves(depth - 1, name * 3 + i));
    }
    parts.concat()
}

#[spawnable]
fn mapped(depth: u32, name: u64) -> Vec<u64> {
    if depth == 0 {
        give_way();
        return vec![name];
    }
    let parts: Vec<Vec<u64>> = (0..3).map(|i| mapped(depth - 1, name * 3 + i)).collect();
    parts.concat()
}

#[spawnable]
fn table(depth: u32, first: u64) -> (BTreeMap<u64, u64>, [u64; 2]) {
    if depth == 0 {
        give_way();
        return (BTreeMap::from([(first, mix(first))]), [first, 1]);
    }
    let mut parts = BTreeMap::new();
    let mut sums = [0; 2];
    for i in 0..2 {
        parts.insert(i, table(depth - 1, first * 2 + i));
    }
    let mut all = BTreeMap::new();
    for (_, (part, [sum, count])) in parts {
        all.extend(part);
        sums[0] += sum;
        sums[1] += count;
    }
    (all, sums)
}

#[test]
fn straight_lines_travel() {
    travels(|| assert_eq!(fib(20), 6765));
    travels(|| assert_eq!(fib_expression(19), 4181));
}

#[test]
fn loops_travel() {
    travels(|| assert_eq!(nqueens(8, 0, 0, 0), 92));
    travels(|| assert_eq!(leaves(6, 0), (0..729).collect::<Vec<_>>()));
    travels(|| {
        let (map, sums) = table(8, 0);
        assert!(map.into_iter().eq((0..256).map(|key| (key, mix(key)))));
        assert_eq!(sums, [255 * 128, 256]);
    });
}

#[test]
fn iterators_travel() {
    travels(|| assert_eq!(mapped(6, 0), (0..729).collect::<Vec<_>>()));
}

// ----------------------------------------------------------------------------------------------------------- arguments
#[spawnable]
fn quicksort(v: &mut [u64]) {
    if v.len() < 8 {
        give_way();
        v.sort_unstable();
        return;
    }
    let pivot = v[v.len() / 2];
    let (mut i, mut j) = (0, v.len() - 1);
    loop {
        while v[i] < pivot {
            i += 1;
        }
        while v[j] > pivot {
            j -= 1;
        }
        if i >= j {
            break;
        }
        v.swap(i, j);
        i += 1;
        j -= 1;
    }
    let (left, right) = v.split_at_mut(i);
    quicksort(left);
    quicksort(right);
}

#[spawnable]
fn sum(v: &[u64]) -> u64 {
    match v {
        [] => 0,
        [one] => {
            give_way();
            *one
        }
        _ => {
            let (left, right) = v.split_at(v.len() / 2);
            sum(left) + sum(right)
        }
    }
}

#[spawnable]
fn reversed(text: &str) -> String {
    let middle = (text.len() / 2..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    if text.chars().nth(1).is_none() || middle == text.len() {
        give_way();
        return text.chars().rev().collect();
    }
    let mut back = reversed(&text[middle..]);
    let front = reversed(&text[..middle]);
    back.push_str(&front);
    back
}

/// What a path, an `OsStr` and a `CStr` are on the other side of the gate.
#[spawnable]
fn names(depth: u32, path: &Path, os: &OsStr, c: &CStr) -> Vec<String> {
    if depth == 0 {
        give_way();
        let seen = [
            format!("{}", path.display()),
            format!("{os:?}"),
            format!("{c:?}"),
        ];
        return seen.into();
    }
    let below = path.join(depth.to_string());
    let mut one = names(depth - 1, &below, os, c);
    let other = names(depth - 1, path, os, c);
    one.extend(other);
    one
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Tree {
    value: u64,
    children: Vec<Tree>,
}

impl Tree {
    fn of(depth: u32, value: u64) -> Tree {
        let children = if depth == 0 { 0 } else { 3 };
        Tree {
            value,
            children: (0..children)
                .map(|i| Tree::of(depth - 1, value * 3 + i))
                .collect(),
        }
    }

    fn sum_in_sequence(&self) -> u64 {
        self.value + self.children.iter().map(Tree::sum_in_sequence).sum::<u64>()
    }
}

#[spawnable]
impl Tree {
    #[spawn]
    fn sum(&self) -> u64 {
        give_way();
        let mut total = self.value;
        for child in &self.children {
            total += spawn!(child.sum());
        }
        total
    }

    #[spawn]
    fn grow(&mut self, by: u64) {
        give_way();
        self.value += by;
        for child in &mut self.children {
            spawn!(child.grow(by));
        }
    }

    #[spawn]
    fn into_values(self) -> Vec<u64> {
        give_way();
        let mut parts: Vec<Vec<u64>> = vec![vec![self.value]];
        for child in self.children {
            parts.push(spawn!(child.into_values()));
        }
        parts.concat()
    }
}

#[spawnable]
fn depth_of(tree: &Tree) -> u32 {
    give_way();
    let mut deepest = 0;
    for child in &tree.children {
        deepest = deepest.max(depth_of(child));
    }
    deepest + 1
}

/// Its length changes at another node too.
#[spawnable]
fn fill(list: &mut Vec<String>, depth: u32, name: u64) {
    if depth == 0 {
        give_way();
        list.push(format!("leaf {name}"));
        return;
    }
    let mut left = Vec::new();
    let mut right = Vec::new();
    fill(&mut left, depth - 1, 2 * name);
    fill(&mut right, depth - 1, 2 * name + 1);
    sync!();
    list.append(&mut left);
    list.append(&mut right);
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[repr(align(128))]
struct Aligned(u64);

type Big = ([u64; 16], [u64; 16], String);

#[spawnable]
fn spilled(
    n: u32,
    aligned: Aligned,
    big: Big,
    all: &[Aligned],
    last: &mut Aligned,
) -> (Aligned, Big) {
    let places = [&raw const aligned, &raw const *last, all.as_ptr()];
    assert!(
        places.iter().all(|place| place.addr() % 128 == 0),
        "an over-aligned value is aligned everywhere"
    );
    if n == 0 {
        give_way();
        last.0 += all.len() as u64;
        return (aligned, big);
    }
    let mut other = *last;
    let (a, mut x) = spilled(n - 1, Aligned(aligned.0 + 1), big.clone(), all, last);
    let (b, y) = spilled(
        n - 1,
        Aligned(aligned.0),
        big.clone(),
        &all[1..],
        &mut other,
    );
    sync!();
    last.0 += other.0;
    x.0[n as usize] += y.0[n as usize] + 1;
    (Aligned(a.0 + b.0), x)
}

#[spawnable]
fn many(
    n: u32,
    a: &str,
    b: &[u8],
    c: &mut u64,
    d: &mut [u16],
    e: String,
    f: Option<u8>,
    g: (),
    h: &Tree,
) -> u64 {
    if n == 0 {
        give_way();
        *c += 1;
        d[0] += 1;
        return a.len() as u64
            + b.len() as u64
            + e.len() as u64
            + u64::from(f.unwrap_or(0))
            + h.value;
    }
    let (mut c1, mut c2) = (0, 0);
    let (d1, d2) = d.split_at_mut(1 << (n - 1));
    let x = many(n - 1, a, b, &mut c1, d1, e.clone(), f, g, h);
    let y = many(n - 1, a, b, &mut c2, d2, e, f, g, h);
    sync!();
    *c += c1 + c2;
    x + y
}

#[test]
fn mutable_slices_travel() {
    let unsorted: Vec<u64> = (0..3000).map(mix).collect();
    let mut sorted = unsorted.clone();
    sorted.sort_unstable();
    travels(|| {
        let mut v = unsorted.clone();
        quicksort(&mut v);
        assert_eq!(v, sorted);
    });
}

#[test]
fn borrowed_arguments_travel() {
    let numbers: Vec<u64> = (0..2000).collect();
    travels(|| assert_eq!(sum(&numbers), 1999 * 1000));
    let text = "A man, a plan, a canal – Panamá! ".repeat(20);
    let expected: String = text.chars().rev().collect();
    travels(|| assert_eq!(reversed(&text), expected));
}

#[test]
fn borrowed_paths_and_system_strings() {
    let (path, os, c) = (Path::new("/a/b"), OsStr::new("os"), c"c");
    let expected = seq!(names(6, path, os, c));
    travels(|| assert_eq!(names(6, path, os, c), expected));
}

#[test]
fn methods_travel() {
    let tree = Tree::of(5, 1);
    let expected = tree.sum_in_sequence();
    travels(|| assert_eq!(tree.sum(), expected));
    travels(|| assert_eq!(depth_of(&tree), 6));
    travels(|| {
        assert_eq!(
            tree.clone().into_values().into_iter().sum::<u64>(),
            expected
        )
    });
    travels(|| {
        let mut tree = tree.clone();
        tree.grow(2);
        assert_eq!(tree.sum_in_sequence(), expected + 2 * 364);
    });
}

#[test]
fn mutable_arguments_travel() {
    let expected: Vec<String> = (0..256).map(|name| format!("leaf {name}")).collect();
    travels(|| {
        let mut list = vec!["head".into()];
        fill(&mut list, 8, 0);
        assert_eq!((&*list[0], &list[1..]), ("head", &*expected));
    });
}

#[test]
fn big_and_over_aligned_arguments_travel() {
    let run = |sequential| {
        let all = [Aligned(1); 10];
        let mut last = Aligned(5);
        let big = ([1; 16], [2; 16], "big".to_string());
        let result = if sequential {
            seq!(spilled(7, Aligned(3), big, &all, &mut last))
        } else {
            spilled(7, Aligned(3), big, &all, &mut last)
        };
        (result, last)
    };
    let expected = run(true);
    travels(|| assert_eq!(run(false), expected));
}

/// Plain data. Serde is not asked: of a sequence it would say that it cannot be written.
#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable, Deserialize)]
#[repr(C)]
struct Sample {
    at: u64,
    value: [f32; 2],
}

impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("field by field"))
    }
}

/// Mentioned in no signature.
#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable, Deserialize)]
#[repr(transparent)]
struct Hidden(u32);

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("field by field"))
    }
}

satin::plain!(Hidden);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Track {
    name: String,
    samples: Vec<Sample>,
    marks: Option<Box<[Hidden]>>,
}

type Colors = Vec<[u8; 4]>;

#[spawnable]
fn mix_tracks(
    depth: u32,
    lent: &[Sample],
    changed: &mut [Sample],
    shared: &Shared<Vec<Sample>>,
    track: Track,
    colors: Colors,
) -> Vec<Sample> {
    if depth == 0 {
        give_way();
        let marks = track.marks.as_deref().unwrap_or_default();
        for (sample, mark) in changed.iter_mut().zip(marks) {
            sample.at += u64::from(mark.0);
        }
        let last = Sample {
            at: colors.len() as u64,
            ..lent[0]
        };
        return [&track.samples[..], &shared[..], &[last]].concat();
    }
    let (first, second) = changed.split_at_mut(changed.len() / 2);
    let (lower, upper) = lent.split_at(lent.len() / 2);
    let a = mix_tracks(
        depth - 1,
        lower,
        first,
        shared,
        track.clone(),
        colors.clone(),
    );
    let b = mix_tracks(depth - 1, upper, second, shared, track, colors);
    sync!();
    [a, b].concat()
}

#[test]
fn plain_data_travels_in_one_piece_wherever_it_stands() {
    let samples: Vec<Sample> = (0..320)
        .map(|at| Sample {
            at,
            value: [at as f32, f32::INFINITY],
        })
        .collect();
    let track = Track {
        name: "first".into(),
        samples: samples[7..10].to_vec(),
        marks: Some(vec![Hidden(3); 5].into()),
    };
    let run = |sequential| {
        let mut changed = samples.clone();
        let (track, shared) = (track.clone(), Shared::new(samples[..20].to_vec()));
        let colors = vec![[1, 2, 3, 4]; 9];
        let result = if sequential {
            seq!(mix_tracks(
                5,
                &samples,
                &mut changed,
                &shared,
                track,
                colors
            ))
        } else {
            mix_tracks(5, &samples, &mut changed, &shared, track, colors)
        };
        (result, changed)
    };
    let expected = run(true);
    travels(|| assert_eq!(run(false), expected));
}

#[test]
fn many_arguments_travel() {
    let tree = Tree::of(1, 40);
    travels(|| {
        let (mut c, mut d) = (0, vec![0; 128]);
        let total = many(
            7,
            "abc",
            b"defg",
            &mut c,
            &mut d,
            "hi".into(),
            Some(1),
            (),
            &tree,
        );
        assert_eq!((total, c, d), (128 * 50, 128, vec![1; 128]));
    });
}

// ------------------------------------------------------------------------------------------------------------ functions
mod parity {
    use satin::{spawn, spawnable};

    #[spawnable(name = "travel/even")]
    pub fn even(n: u64) -> u64 {
        if n == 0 {
            super::give_way();
            return 1;
        }
        let a = spawn!(super::odd(n - 1));
        let b = spawn!(super::odd(n - 1));
        a + b
    }
}

#[spawnable]
fn odd(n: u64) -> u64 {
    if n == 0 {
        give_way();
        return 0;
    }
    spawn!(parity::even(n - 1)) + spawn!(parity::even(n - 1))
}

#[test]
fn mutual_recursion_travels() {
    travels(|| assert_eq!((parity::even(10), odd(9)), (1024, 512)));
}

// ----------------------------------------------------------------------------------------------------------- job ids
fn unique_ids(report: &Report, run: impl std::fmt::Debug) {
    let ids: HashSet<_> = report.taken.iter().map(|taken| &taken.id).collect();
    assert_eq!(
        ids.len(),
        report.taken.len(),
        "an id twice in run {run:?}: {:?}",
        report.taken
    );
}

#[test]
fn ids_are_unique_and_fingerprints_say_what_is_computed() {
    let (a, b) = pools(2);
    let mut prints: HashMap<(&str, Vec<u8>), _> = HashMap::new();
    let mut calls: HashMap<_, (&str, Vec<u8>)> = HashMap::new();
    let mut repeated = 0;
    let since = Instant::now();
    for run in 0.. {
        if run >= 40 && repeated >= 10 {
            break;
        }
        assert!(
            since.elapsed() < PATIENCE,
            "the same call did not leave again and again"
        );
        let habits = Habits {
            wanted: 3,
            ..Habits::default()
        };
        let (value, report) = beside(&a, &b, habits, |_| fib(18));
        assert_eq!(value, 2584);
        unique_ids(&report, run);
        for taken in report.taken {
            let path: Vec<u32> = taken.id.path().collect();
            assert!(
                path.len() >= 2,
                "a child of the root at least: {}",
                taken.id
            );
            // Root jobs of threads other than main's are numbered from the middle of the range on.
            assert_eq!(path[0], (1 << 31) + run, "{}", taken.id);
            assert!(
                path[1..].iter().all(|index| *index < 2),
                "fib has two children: {}",
                taken.id
            );
            // The path says which call it is: 0 takes one off, 1 takes two off.
            let n: u32 = postcard::from_bytes(&taken.arguments).expect("one number");
            assert_eq!(
                18 - path[1..].iter().map(|index| index + 1).sum::<u32>(),
                n,
                "{}",
                taken.id
            );
            let call = (taken.function, taken.arguments);
            repeated += usize::from(prints.contains_key(&call));
            assert_eq!(
                *prints.entry(call.clone()).or_insert(taken.fingerprint),
                taken.fingerprint
            );
            assert_eq!(
                calls.entry(taken.fingerprint).or_insert(call.clone()),
                &call,
                "a collision"
            );
        }
    }
}

#[test]
fn ids_of_loops_count_on_over_the_syncs() {
    #[spawnable]
    fn looped(depth: u32, width: u32) -> u64 {
        if depth == 0 {
            give_way();
            return 1;
        }
        let mut total = 0;
        for i in 0..width {
            total += looped(depth - 1, width);
            if i % 3 == 2 {
                sync!();
            }
        }
        let more = looped(depth - 1, width);
        total + more
    }
    let (a, b) = pools(1);
    let habits = Habits {
        most: 64,
        wanted: 30,
        ..Habits::default()
    };
    let report = until(
        &a,
        &b,
        habits,
        |report| {
            report
                .taken
                .iter()
                .any(|taken| taken.id.path().skip(1).any(|index| index > 2))
        },
        || assert_eq!(looped(4, 8), 9 * 9 * 9 * 9),
    );
    unique_ids(&report, "loops");
    assert!(
        report
            .taken
            .iter()
            .all(|taken| taken.id.path().skip(1).all(|index| index < 9))
    );
}

// --------------------------------------------------------------------------------------------------------- speculation
#[spawnable]
fn find(lo: u64, hi: u64, wanted: u64) -> Result<u64, u64> {
    if hi - lo == 1 {
        give_way();
        return if lo == wanted { Err(lo) } else { Ok(1) };
    }
    let middle = u64::midpoint(lo, hi);
    let a = find(lo, middle, wanted)?;
    let b = find(middle, hi, wanted)?;
    Ok(a + b)
}

#[spawnable]
fn find_in_loop(lo: u64, hi: u64, wanted: u64) -> Option<u64> {
    if hi - lo == 1 {
        give_way();
        return (lo != wanted).then_some(1);
    }
    let mut total = 0;
    for i in 0..4 {
        let step = (hi - lo) / 4;
        total += find_in_loop(lo + i * step, lo + (i + 1) * step, wanted)?;
    }
    Some(total)
}

#[test]
fn speculation_travels() {
    travels(|| assert_eq!(find(0, 1 << 14, 1 << 20), Ok(1 << 14)));
    travels(|| assert_eq!(find(0, 1 << 14, 16_000), Err(16_000)));
    travels(|| assert_eq!(find_in_loop(0, 1 << 12, 1 << 20), Some(1 << 12)));
    travels(|| assert_eq!(find_in_loop(0, 1 << 12, 4_000), None));
}

/// Goes up when the test says so: children wait for it.
static GO: AtomicBool = AtomicBool::new(false);
/// Jobs of [`endless`] that have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// One test at a time uses these, and [`LIVE`].
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    GO.store(false, SeqCst);
    BEGUN.store(0, SeqCst);
    guard
}

/// Never ends by itself.
#[spawnable]
fn endless(n: u64, held: Counted) -> Result<Counted, u64> {
    if n > 0 {
        return Ok(held);
    }
    BEGUN.fetch_add(1, SeqCst);
    loop {
        let mut v = Vec::new();
        for i in 1..4 {
            v.push(endless(i, Counted::new(1)));
        }
        sync!();
        assert!(v.iter().all(Result::is_ok));
    }
}

/// Fails once the test says so.
#[spawnable]
fn decoy(n: u64) -> Result<u64, u64> {
    wait_for("GO", || GO.load(SeqCst));
    Err(n)
}

/// The first child is called at home, the last is what others take.
#[spawnable]
fn race_of_lets() -> Result<u64, u64> {
    let a = spawn!(decoy(3))?;
    let b = spawn!(endless(0, Counted::new(5)))?;
    Ok(a + u64::from(b.0))
}

#[spawnable]
fn loops_without_end() -> Result<u64, u64> {
    let mut all = vec![];
    for _ in 0..3 {
        all.push(spawn!(endless(0, Counted::new(5)))?);
    }
    Ok(all.len() as u64)
}

#[spawnable]
fn race_against_a_loop() -> Result<u64, u64> {
    let a = spawn!(decoy(3))?;
    let b = spawn!(loops_without_end())?;
    Ok(a + b)
}

/// The one that is to stop waits in an inner invocation, which has no failing child of its own.
#[spawnable]
fn race_of_generations(depth: u32) -> Result<u64, u64> {
    let a = spawn!(decoy(3))?;
    let b = spawn!(generation(depth))?;
    Ok(a + b)
}

/// Speculates, except for the last: that one never fails by itself.
#[spawnable]
fn generation(depth: u32) -> Result<u64, u64> {
    if depth == 0 {
        let a = spawn!(endless(0, Counted::new(5)));
        let b = spawn!(endless(1, Counted::new(6)));
        sync!();
        return Ok(u64::from(a.is_ok()) + u64::from(b.is_ok()));
    }
    let a = generation(depth - 1)?;
    let b = spawn!(endless(1, Counted::new(6)))?;
    Ok(a + u64::from(b.0))
}

/// Fails at home and, at the same moment, elsewhere.
#[spawnable]
fn race_of_failures() -> Result<u64, u64> {
    let a = spawn!(decoy(4))?;
    let b = spawn!(decoy_elsewhere(3))?;
    Ok(a + b)
}

#[spawnable]
fn decoy_elsewhere(n: u64) -> Result<u64, u64> {
    BEGUN.fetch_add(1, SeqCst);
    wait_for("GO", || GO.load(SeqCst));
    Err(n)
}

#[spawnable]
fn race_against_a_panic() -> u64 {
    let a = spawn!(panics_on_go());
    let b = spawn!(endless(0, Counted::new(5)));
    sync!();
    a + u64::from(b.is_ok())
}

#[spawnable]
fn panics_on_go() -> u64 {
    wait_for("GO", || GO.load(SeqCst));
    panic!("planned: the sibling")
}

/// Runs `program` on one worker; its sibling fails when a job has left, and if `begun`, has begun elsewhere.
fn race<R: Send>(habits: Habits, begun: bool, program: impl Fn() -> R) -> (R, Report) {
    let (a, b) = pools(1);
    race_between(&a, &b, habits, begun, program)
}

fn race_between<R: Send>(
    a: &Satin,
    b: &Satin,
    habits: Habits,
    begun: bool,
    program: impl Fn() -> R,
) -> (R, Report) {
    GO.store(false, SeqCst);
    BEGUN.store(0, SeqCst);
    let (result, report) = beside(a, b, habits, |watch| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for("a departure", || {
                    watch.taken.load(SeqCst) > 0 && (!begun || BEGUN.load(SeqCst) > 0)
                });
                GO.store(true, SeqCst);
            });
            program()
        })
    });
    assert_eq!(
        LIVE.load(SeqCst),
        0,
        "all that was made is dropped: {report:?}"
    );
    (result, report)
}

#[test]
fn an_aborted_job_is_recalled_and_stops() {
    let _alone = alone();
    let _watchdog = Watchdog::new("an_aborted_job_is_recalled_and_stops");
    let running = Habits {
        most: 1,
        ..Habits::default()
    };
    let never_answers = Habits {
        hoard: 100,
        most: 1,
        ..Habits::default()
    };
    for program in [
        race_of_lets,
        race_against_a_loop,
        || race_of_generations(0),
        || race_of_generations(1),
    ] {
        for (habits, begun) in [(running, true), (never_answers, false)] {
            let (result, report) = race(habits, begun, program);
            assert_eq!(result, Err(3));
            assert_eq!(
                (report.recalled, report.aborted),
                (1, usize::from(begun)),
                "{report:?}"
            );
        }
    }
}

/// The job that is away fails by itself while its sibling fails at home: either its answer comes first, or the recall.
#[test]
fn a_failure_elsewhere_is_answered_or_recalled() {
    let _alone = alone();
    let _watchdog = Watchdog::new("a_failure_elsewhere_is_answered_or_recalled");
    let habits = Habits {
        most: 1,
        ..Habits::default()
    };
    for _ in 0..10 {
        let (result, report) = race(habits, true, race_of_failures);
        assert!(matches!(result, Err(3 | 4)), "{result:?}");
        assert_eq!(report.travelled + report.recalled, 1, "{report:?}");
        assert!(report.aborted <= report.recalled, "{report:?}");
    }
}

#[spawnable]
fn same(n: u64) -> u64 {
    n
}

#[spawnable]
fn wide(n: u64) -> u64 {
    let mut total = 0;
    for i in 0..n {
        total += spawn!(same(i));
    }
    total
}

fn wide_by_an_ordinary_call(n: u64) -> u64 {
    wide(n)
}

static SURVIVED: AtomicBool = AtomicBool::new(false);

/// Catches what unwinds it, and spawns on.
#[spawnable]
fn catches() -> Result<u64, u64> {
    // Long enough for the worker to forget that somebody had asked.
    (0..100).for_each(|_| assert_eq!(wide_by_an_ordinary_call(100), 4950));
    BEGUN.fetch_add(1, SeqCst);
    let caught = catch_unwind(|| while wide_by_an_ordinary_call(100) == 4950 {});
    assert!(caught.is_err());
    let total = wide_by_an_ordinary_call(2);
    SURVIVED.store(true, SeqCst);
    Ok(total)
}

#[spawnable]
fn race_against_one_that_catches() -> Result<u64, u64> {
    let a = spawn!(decoy(3))?;
    let b = spawn!(catches())?;
    Ok(a + b)
}

/// The worker is alone in its pool: nobody but the abort asks it to look up.
#[test]
fn an_abort_is_not_forgotten_while_it_unwinds() {
    let _alone = alone();
    let _watchdog = Watchdog::new("an_abort_is_not_forgotten_while_it_unwinds");
    let habits = Habits {
        most: 1,
        ..Habits::default()
    };
    let one = || satin::builder().threads(1).build().expect("a pool");
    let (a, b) = (one(), one());
    for _ in 0..10 {
        let (result, report) = race_between(&a, &b, habits, true, race_against_one_that_catches);
        assert_eq!(result, Err(3));
        assert!(!SURVIVED.load(SeqCst), "{report:?}");
        assert_eq!((report.recalled, report.aborted), (1, 1), "{report:?}");
    }
}

#[test]
fn a_panic_recalls_what_is_away() {
    let _alone = alone();
    let _watchdog = Watchdog::new("a_panic_recalls_what_is_away");
    let habits = Habits {
        most: 1,
        ..Habits::default()
    };
    let (message, report) = race(habits, true, || panic_of(race_against_a_panic));
    assert_eq!(message, "planned: the sibling");
    assert_eq!((report.recalled, report.aborted), (1, 1));
    let never_answers = Habits {
        hoard: 100,
        most: 1,
        ..Habits::default()
    };
    let (message, report) = race(never_answers, false, || panic_of(race_against_a_panic));
    assert_eq!(message, "planned: the sibling");
    assert_eq!((report.recalled, report.aborted), (1, 0));
}

/// Goes up when the job elsewhere may fail.
static FAIL: AtomicBool = AtomicBool::new(false);

#[spawnable]
fn leaves_early() -> u64 {
    let a = spawn!(endless(0, Counted::new(5)));
    wait_for("GO", || GO.load(SeqCst));
    if GO.load(SeqCst) {
        return 7;
    }
    a.map_or(1, |_| 2)
}

#[spawnable]
fn race_on_the_way_out() -> Result<u64, u64> {
    let a = spawn!(leaves_early());
    let b = spawn!(failing_elsewhere())?;
    Ok(a + b)
}

#[spawnable]
fn failing_elsewhere() -> Result<u64, u64> {
    wait_for("FAIL", || FAIL.load(SeqCst));
    Err(9)
}

/// The invocation that is aborted stands in its way out, and waits there for a child that nobody will ever answer.
#[test]
fn an_abort_reaches_an_invocation_on_its_way_out() {
    let _alone = alone();
    let _watchdog = Watchdog::new("an_abort_reaches_an_invocation_on_its_way_out");
    FAIL.store(false, SeqCst);
    let (a, b) = pools(1);
    let (result, report) = beside(&a, &b, Habits::default(), |watch| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for("both are away", || {
                    watch.taken.load(SeqCst) >= 2 && BEGUN.load(SeqCst) > 0
                });
                // The worker runs until it may leave: when it sleeps it is on its way out.
                let sleeps = || a.figures()[0].sleeps;
                let before = sleeps();
                GO.store(true, SeqCst);
                wait_for("the way out", || sleeps() > before);
                FAIL.store(true, SeqCst);
            });
            race_on_the_way_out()
        })
    });
    assert_eq!(result, Err(9));
    assert_eq!((report.recalled, LIVE.load(SeqCst)), (1, 0), "{report:?}");
}

// -------------------------------------------------------------------------------------------------- panics, and drops
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Counts how many of it there are.
#[derive(Serialize, Debug)]
struct Counted(u32);

impl Counted {
    fn new(n: u32) -> Counted {
        LIVE.fetch_add(1, SeqCst);
        Counted(n)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, SeqCst);
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Counted, D::Error> {
        u32::deserialize(from).map(Counted::new)
    }
}

fn panic_of<R>(run: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(_) => panic!("it did not panic"),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => (*payload.downcast::<&str>().expect("a message")).into(),
        },
    }
}

#[spawnable]
fn mined(lo: u32, hi: u32, mine: u32, held: Counted, lent: &mut Counted) -> Counted {
    if hi - lo == 1 {
        give_way();
        assert_ne!(lo, mine, "stepped on mine {mine}");
        lent.0 += held.0;
        return held;
    }
    let middle = u32::midpoint(lo, hi);
    let mut other = Counted::new(0);
    let left = mined(lo, middle, mine, Counted::new(1), lent);
    let right = mined(middle, hi, mine, Counted::new(1), &mut other);
    sync!();
    lent.0 += other.0;
    Counted::new(left.0 + right.0)
}

#[test]
fn panics_travel_with_their_message() {
    let _alone = alone();
    let _watchdog = Watchdog::new("panics_travel_with_their_message");
    for workers in [1, 2] {
        let (a, b) = pools(workers);
        let message = RefCell::new(String::new());
        let mut with_id = 0;
        let since = Instant::now();
        for round in 0.. {
            assert!(
                since.elapsed() < PATIENCE,
                "no panic came back from elsewhere"
            );
            let habits = Habits {
                seed: round,
                wanted: 4,
                ..Habits::default()
            };
            let ((), report) = beside(&a, &b, habits, |_| {
                *message.borrow_mut() =
                    panic_of(|| mined(0, 256, 200, Counted::new(1), &mut Counted::new(0)));
            });
            let message = message.borrow();
            let rest = message
                .split("stepped on mine 200")
                .nth(1)
                .expect("the message of the job");
            assert_eq!(LIVE.load(SeqCst), 0, "{report:?}");
            if let Some(at) = rest.find("(job ") {
                assert_eq!(rest.matches("(job ").count(), 1, "{message}");
                let id = rest[at + 5..]
                    .strip_suffix(')')
                    .expect("the id in brackets");
                assert!(
                    report.taken.iter().any(|taken| taken.id.to_string() == id),
                    "{message}"
                );
                with_id += 1;
                if with_id == 3 {
                    break;
                }
            }
        }
    }
}

#[test]
fn nothing_leaks() {
    let _alone = alone();
    travels(|| {
        let mut lent = Counted::new(0);
        let result = mined(0, 256, 1000, Counted::new(1), &mut lent);
        assert_eq!((result.0, lent.0), (256, 256));
        drop((result, lent));
        // The other pool drops its own before it answers; nobody may have waited for orphans.
        wait_for("the end of all values", || LIVE.load(SeqCst) == 0);
    });
}

// ------------------------------------------------------------------------------------------- values that do not travel
/// Some values cannot be (de)serialized: jobs with them are done where they are.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Stubborn {
    value: u64,
    how: u8,
}

/// Attempts to serialize one that cannot be, or to read it back.
static TRIED: AtomicU64 = AtomicU64::new(0);

const NO_SERIALIZE: u8 = 1;
const NO_DESERIALIZE: u8 = 2;
const PANIC_SERIALIZE: u8 = 3;
const PANIC_DESERIALIZE: u8 = 4;

impl Serialize for Stubborn {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if matches!(self.how, NO_SERIALIZE | PANIC_SERIALIZE) {
            TRIED.fetch_add(1, SeqCst);
        }
        match self.how {
            NO_SERIALIZE => Err(serde::ser::Error::custom("planned: cannot be serialized")),
            PANIC_SERIALIZE => panic!("planned: panics when serialized"),
            _ => (self.value, self.how).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Stubborn {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Stubborn, D::Error> {
        let (value, how) = Deserialize::deserialize(from)?;
        if matches!(how, NO_DESERIALIZE | PANIC_DESERIALIZE) {
            TRIED.fetch_add(1, SeqCst);
        }
        match how {
            NO_DESERIALIZE => Err(serde::de::Error::custom("planned: cannot be deserialized")),
            PANIC_DESERIALIZE => panic!("planned: panics when deserialized"),
            _ => Ok(Stubborn { value, how }),
        }
    }
}

/// For each way a function of its own: one whose jobs cannot travel is not tried for ever.
macro_rules! stubborn {
    ($($name:ident)*) => {$(
        #[spawnable]
        fn $name(n: u32, value: Stubborn) -> u64 {
            if n == 0 {
                give_way();
                return value.value;
            }
            let a = $name(n - 1, value);
            let b = $name(n - 1, value);
            a + b
        }
    )*};
}

stubborn! { not_written not_read panics_when_written panics_when_read }

macro_rules! stubborn_result {
    ($($name:ident)*) => {$(
        #[spawnable]
        fn $name(n: u32, how: u8) -> Stubborn {
            if n == 0 {
                give_way();
                return Stubborn { value: 2, how };
            }
            let a = $name(n - 1, how);
            let b = $name(n - 1, how);
            Stubborn {
                value: a.value + b.value,
                how,
            }
        }
    )*};
}

stubborn_result! { result_not_written result_not_read result_panics_when_written result_panics_when_read }

#[test]
fn jobs_that_cannot_travel_run_at_home() {
    let _watchdog = Watchdog::new("jobs_that_cannot_travel_run_at_home");
    let habits = Habits {
        may_refuse: true,
        ..Habits::default()
    };
    type OfArgument = fn(u32, Stubborn) -> u64;
    let arguments: [(u8, OfArgument); 4] = [
        (NO_SERIALIZE, |n, value| not_written(n, value)),
        (NO_DESERIALIZE, |n, value| not_read(n, value)),
        (PANIC_SERIALIZE, |n, value| panics_when_written(n, value)),
        (PANIC_DESERIALIZE, |n, value| panics_when_read(n, value)),
    ];
    for (how, program) in arguments {
        let (a, b) = pools(1);
        TRIED.store(0, SeqCst);
        let enough = |report: &Report| {
            assert_eq!(report.travelled, 0, "{how}");
            assert!(report.taken.is_empty(), "{how}: {report:?}");
            TRIED.load(SeqCst) > 0
        };
        until(&a, &b, habits, enough, || {
            assert_eq!(program(8, Stubborn { value: 2, how }), 512)
        });
    }
    type OfResult = fn(u32, u8) -> Stubborn;
    let results: [(u8, OfResult); 4] = [
        (NO_SERIALIZE, |n, how| result_not_written(n, how)),
        (NO_DESERIALIZE, |n, how| result_not_read(n, how)),
        (PANIC_SERIALIZE, |n, how| result_panics_when_written(n, how)),
        (PANIC_DESERIALIZE, |n, how| result_panics_when_read(n, how)),
    ];
    for (how, program) in results {
        let (a, b) = pools(1);
        let enough = |report: &Report| {
            assert!(report.returned < 100, "they go back and forth: {report:?}");
            report.returned > 0
        };
        until(&a, &b, habits, enough, || {
            assert_eq!(program(8, how).value, 512)
        });
    }
}
