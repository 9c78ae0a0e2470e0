//! The feature `serial`: plain sequential programs, with shared values and bounds.
#![cfg(feature = "serial")]

use satin::{Min, MinWith, Shared, spawn, spawnable};

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
