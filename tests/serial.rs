//! The feature `serial`: plain sequential programs, with shared values, bounds and flows.
#![cfg(feature = "serial")]

use std::cell::RefCell;

use satin::{Handle, Many, Min, MinWith, Shared, flow, many, r, rw, spawn, spawnable, task};

satin::bound! {
    static LEAST: Min<u64>;
    static CHEAPEST: MinWith<u64, Vec<usize>>;
}

/// Picks a number of each row; the sum is to be small.
#[spawnable]
fn least(rows: &Shared<Vec<Vec<u64>>>, row: usize, sum: u64) -> Option<u64> {
    if LEAST.prunes(&sum) {
        return None;
    }
    let Some(numbers) = rows.get(row) else {
        LEAST.offer(sum);
        return Some(sum);
    };
    let mut sums = Vec::new();
    for number in numbers {
        sums.push(least(rows, row + 1, sum + number));
    }
    satin::sync!();
    sums.into_iter().flatten().min()
}

struct Rows(Vec<Vec<u64>>);

#[spawnable]
impl Rows {
    #[spawn]
    fn cheapest(&self, sum: u64, picked: Vec<usize>) {
        if CHEAPEST.prunes(&sum) {
            return;
        }
        let Some(numbers) = self.0.get(picked.len()) else {
            CHEAPEST.offer(sum, picked);
            return;
        };
        for (place, number) in numbers.iter().enumerate() {
            let picked = picked.iter().copied().chain([place]).collect();
            spawn!(self.cheapest(sum + number, picked));
        }
    }
}

#[test]
fn each_call_from_ordinary_code_starts_bounds_afresh() {
    let rows = vec![vec![5, 3, 8], vec![2, 7], vec![9, 4, 6]];
    let larger: Vec<Vec<u64>> = rows
        .iter()
        .map(|row| row.iter().map(|number| number + 100).collect())
        .collect();
    for (rows, sum) in [(rows, 9), (larger, 309)] {
        let shared = Shared::new(rows.clone());
        assert_eq!(least(&shared, 0, 0), Some(sum));
        assert_eq!(LEAST.get(), Some(sum));
        assert_eq!(satin::seq!(least(&shared, 0, 0)), Some(sum));
        Rows(rows).cheapest(0, vec![]);
        assert_eq!(CHEAPEST.get(), Some((sum, vec![1, 0, 1])));
        assert_eq!(LEAST.get(), None);
    }
    assert!(!LEAST.offer(1), "there is no call that it could be for");
}

#[spawnable]
fn half(number: &f32) -> f32 {
    number / 2.0
}

#[spawnable]
fn total(numbers: &[f32]) -> f32 {
    numbers.iter().sum()
}

#[spawnable]
fn added(a: f32, b: f32) -> f32 {
    a + b
}

#[spawnable]
fn halves(numbers: &[f32]) -> Vec<f32> {
    satin::par_map!(numbers, half)
}

#[test]
fn parallel_loops_are_sequential_ones() {
    let numbers = [1.0, 2.0, 3.0, 4.0, 5.0];
    assert_eq!(halves(&numbers), [0.5, 1.0, 1.5, 2.0, 2.5]);
    assert_eq!(
        satin::par_chunks!(&numbers, 2, |chunk| total(chunk)),
        [3.0, 7.0, 5.0]
    );
    assert_eq!(satin::par_reduce!(&numbers, half, added), Some(7.5));
    assert_eq!(satin::par_reduce!(&numbers, 2, total, added), Some(15.0));
}

#[spawnable]
fn number(n: u64) -> u64 {
    n
}

#[spawnable]
fn text(n: usize) -> String {
    "x".repeat(n)
}

#[spawnable]
fn mix(to: &mut u64, with: &u64, factor: u64) {
    *to = *to * factor + with;
}

#[spawnable]
fn lengthen(numbers: &mut [u64], by: &str) {
    numbers.iter_mut().for_each(|n| *n += by.len() as u64);
}

#[spawnable]
fn append(numbers: &mut Vec<u64>, more: &[u64]) {
    numbers.extend(more);
}

#[spawnable]
fn sum(numbers: &Many<u64>) -> u64 {
    numbers.iter().sum()
}

thread_local! {
    static SEEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

#[spawnable]
fn note(n: &u64) {
    SEEN.with_borrow_mut(|seen| seen.push(*n));
}

#[test]
fn a_flow_is_its_program_text() {
    let (all, total) = flow!(|g| {
        let all: Vec<Handle<u64>> = (0..4).map(|n| task!(g, number(n))).collect();
        for at in 1..all.len() {
            task!(g, note(r(all[at])));
            task!(g, mix(rw(all[at]), r(all[at - 1]), 10));
            task!(g, note(r(all[at])));
        }
        let total = task!(g, sum(many(all.iter().copied())));
        task!(g, mix(rw(all[0]), r(total), 1)); // after `total` has read it
        assert_eq!(*g.get(total), 10 + 30 + 60);
        g.take_all((all, total))
    });
    assert_eq!((all, total), (vec![100, 10, 30, 60], 100));
    // Each task has run where it stands.
    assert_eq!(SEEN.take(), [1, 10, 2, 30, 3, 60]);
}

#[spawnable]
fn add(to: &mut f64, more: f64) {
    assert_eq!(*to, 0.0, "it begins with nothing");
    *to += more;
}

#[test]
fn what_is_added_is_added_in_the_order_of_other_features() {
    let sum = flow!(|g| {
        let sum = g.data(1.0);
        for more in [1e100, 1.0, -1e100] {
            task!(g, add(satin::acc(sum), more));
        }
        g.take(sum)
    });
    // (1e100 + 1) + -1e100, and that to 1.
    assert_eq!(sum, 1.0);
}

#[test]
fn tasks_borrow_slices_and_text_from_what_owns_them() {
    let (numbers, kept) = flow!(|g| {
        let (numbers, word) = (g.data(vec![1, 2]), task!(g, text(3)));
        let before = g.get(numbers);
        task!(g, lengthen(rw(numbers), r(word)));
        // It may read what it changes: then as it was before.
        task!(g, append(rw(numbers), r(numbers)));
        (g.take(numbers), before.clone())
    });
    assert_eq!((numbers, kept), (vec![4, 5, 4, 5], vec![1, 2]));
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

struct Tile(u64);

#[spawnable]
impl Tile {
    #[spawn]
    fn value(&self) -> u64 {
        self.0
    }
}

#[test]
fn a_flow_stands_in_a_spawnable_function_and_a_task_may_be_a_method() {
    let both = flow!(|g| {
        let tile = g.data(Tile(7));
        g.take_all([task!(g, factorial(5)), task!(g, Tile::value(r(tile)))])
    });
    assert_eq!(both, [120, 7]);
}
