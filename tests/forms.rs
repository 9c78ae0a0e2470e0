//! Every form.
use satin::{call, seq, spawn, spawnable, sync};

#[spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 { return n.into(); }
    let x = fib(n - 1);
    let y = fib(n - 2);
    satin::sync!();
    x + y
}
#[spawnable]
fn fib_expression(n: u32) -> u64 {
    if n < 2 { n.into() } else { fib_expression(n - 1) + fib_expression(n - 2) }
}
#[spawnable]
fn queens(n: usize, row: usize, columns: Vec<usize>) -> u64 {
    if row == n { return 1; }
    let mut count = 0;
    for column in 0..n {
        let free = columns.iter().enumerate().all(|(r, &c)| c != column && row - r != column.abs_diff(c));
        if free {
            let mut columns = columns.clone();
            columns.push(column);
            count += queens(n, row + 1, columns);
        }
    }
    count
}
#[spawnable]
fn quicksort(v: &mut [u32]) {
    if v.len() < 2 { return; }
    let pivot = v.len() - 1;
    let mut store = 0;
    for i in 0..pivot { if v[i] < v[pivot] { v.swap(i, store); store += 1; } }
    v.swap(store, pivot);
    let (left, right) = v.split_at_mut(store);
    quicksort(left);
    quicksort(&mut right[1..]);
}
#[spawnable]
fn pushes(n: u32) -> Vec<u64> {
    if n == 0 { return vec![0]; }
    let mut all = Vec::new();
    for i in 0..n {
        all.push(spawn!(fib(i)));
    }
    let mut i = 0;
    while i < 3 { all.push(call!(fib(i))); i += 1; }
    all
}
#[derive(serde::Serialize, serde::Deserialize)]
struct Tree { value: u64, children: Vec<Tree> }
#[spawnable]
impl Tree {
    /// Doc.
    #[spawn]
    pub fn sum(&self) -> u64 {
        let mut total = self.value;
        for child in &self.children {
            total += spawn!(child.sum());
        }
        total
    }
    fn new(depth: u32) -> Tree { Tree { value: 1, children: (0..if depth == 0 { 0 } else { 3 }).map(|_| Tree::new(depth - 1)).collect() } }
    #[spawn]
    fn grow(&mut self, depth: u32) -> u32 {
        if depth == 0 { return 0; }
        self.value += 1;
        let n = self.children.len() as u32;
        let mut below = 0;
        for child in &mut self.children {
            below += spawn!(child.grow(depth - 1));
        }
        n + below
    }
}
#[spawnable]
fn mapped(n: u32) -> u64 {
    if n < 2 { return 1; }
    let all: Vec<u64> = (0..n).map(|i| mapped(i)).collect();
    all.iter().sum::<u64>() + (0..2).map(|i| mapped(i)).sum::<u64>()
}
#[spawnable]
fn search(lo: u32, hi: u32) -> Result<u32, u32> {
    if hi - lo == 1 { return if lo == 13 { Err(lo) } else { Ok(1) }; }
    let middle = (lo + hi) / 2;
    let a = search(lo, middle)?;
    let b = search(middle, hi)?;
    Ok(a + b)
}
#[spawnable]
fn search_group(lo: u32, hi: u32) -> Result<u32, u32> {
    if hi - lo == 1 { return if lo == 13 { Err(lo) } else { Ok(1) }; }
    let mut total = 0;
    for i in lo..hi { total += search_group(i, i + 1)?; }
    Ok(total)
}
#[spawnable]
fn search_expression(lo: u32, hi: u32) -> Option<u32> {
    if hi - lo == 1 { return if lo == 13 { None } else { Some(1) }; }
    let m = (lo + hi) / 2;
    Some(search_expression(lo, m)? + search_expression(m, hi)?)
}

fn pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    satin::builder().threads(2).build().unwrap().run(f)
}
#[test]
fn slice() {
    pool(|| {
        assert_eq!(fib(20), 6765);
        assert_eq!(seq!(fib(20)), 6765);
        assert_eq!(fib_expression(20), 6765);
        assert_eq!(queens(8, 0, vec![]), 92);
        let mut v: Vec<u32> = (0..1000).map(|i| i * 7919 % 1009).collect();
        let mut w = v.clone(); w.sort();
        quicksort(&mut v);
        assert_eq!(v, w);
        assert_eq!(pushes(8), [0, 1, 1, 2, 3, 5, 8, 13, 0, 1, 1]);
        let mut t = Tree::new(4);
        assert_eq!(t.sum(), 121);
        assert_eq!(t.grow(3), 3 + 9 + 27);
        assert_eq!(mapped(4), mapped_plain(4));
        assert_eq!(search(0, 16), Err(13));
        assert_eq!(search(14, 30), Ok(16));
        assert_eq!(search_group(0, 16), Err(13));
        assert_eq!(search_group(14, 30), Ok(16));
        assert_eq!(search_expression(0, 16), None);
        assert_eq!(search_expression(14, 30), Some(16));
    })
}
fn mapped_plain(n: u32) -> u64 { if n < 2 { 1 } else { (0..n).map(mapped_plain).sum::<u64>() + 2 } }
