//! Quicksort in place: jobs of uneven size that write through `&mut` halves of one slice.

use std::hint::black_box;

use super::Case;

/// Slices shorter than this are sorted by insertion, in every implementation alike.
const CUTOFF: usize = 32;

pub struct Quicksort {
    log2: u32,
    calls: u64,
    data: Vec<u32>,
    sorted: Vec<u32>,
    /// A fresh copy of `data` before a run, the run's result after it.
    work: Vec<u32>,
}

impl Quicksort {
    pub fn new(log2: u32) -> Self {
        let data = random_numbers(1 << log2);
        let mut work = data.clone();
        let calls = count_calls(&mut work);
        let mut sorted = data.clone();
        sorted.sort_unstable();
        Self {
            log2,
            calls,
            data,
            sorted,
            work,
        }
    }
}

impl Case for Quicksort {
    fn title(&self) -> String {
        format!("quicksort, 2^{}", self.log2)
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn prepare(&mut self) {
        self.work.copy_from_slice(&self.data);
    }

    fn seq(&mut self) -> u64 {
        sort_seq(black_box(&mut self.work));
        0
    }

    fn satin(&mut self) -> u64 {
        sort_satin(black_box(&mut self.work));
        0
    }

    fn rayon(&mut self) -> u64 {
        sort_rayon(black_box(&mut self.work));
        0
    }

    fn chili(&mut self, scope: &mut chili::Scope<'_>) -> u64 {
        sort_chili(scope, black_box(&mut self.work));
        0
    }

    fn check(&self, _answer: u64) -> bool {
        self.work == self.sorted
    }
}

/// The same numbers in every process: SplitMix64 (Steele, Lea, Flood 2014).
fn random_numbers(len: usize) -> Vec<u32> {
    let mut state = 0u64;
    std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    })
    .take(len)
    .collect()
}

fn insertion_sort(v: &mut [u32]) {
    for sorted in 1..v.len() {
        let new = v[sorted];
        let mut hole = sorted;
        while hole > 0 && v[hole - 1] > new {
            v[hole] = v[hole - 1];
            hole -= 1;
        }
        v[hole] = new;
    }
}

fn median_of_3(a: u32, b: u32, c: u32) -> u32 {
    a.min(b).max(a.max(b).min(c))
}

/// Splits by Hoare's partition: no element on the left is larger than any on the right, and neither side is empty. `v`
/// has at least nine elements. The pivot is the ninther of Bentley and McIlroy (1993), because one unlucky pivot near the
/// root would make the case one of load balancing rather than of spawns.
fn partition(v: &mut [u32]) -> (&mut [u32], &mut [u32]) {
    let sample = |eighths: usize| v[eighths * (v.len() - 1) / 8];
    let third = |from| median_of_3(sample(from), sample(from + 1), sample(from + 2));
    let pivot = median_of_3(third(0), third(3), third(6));
    let mut low = 0;
    let mut high = v.len() - 1;
    loop {
        while v[low] < pivot {
            low += 1;
        }
        while v[high] > pivot {
            high -= 1;
        }
        if low >= high {
            return v.split_at_mut(low);
        }
        v.swap(low, high);
        low += 1;
        high -= 1;
    }
}

fn count_calls(v: &mut [u32]) -> u64 {
    if v.len() < CUTOFF {
        insertion_sort(v);
        return 1;
    }
    let (left, right) = partition(v);
    1 + count_calls(left) + count_calls(right)
}

fn sort_seq(v: &mut [u32]) {
    if v.len() < CUTOFF {
        insertion_sort(v);
        return;
    }
    let (left, right) = partition(v);
    sort_seq(left);
    sort_seq(right);
}

#[satin::spawnable]
fn sort_satin(v: &mut [u32]) {
    if v.len() < CUTOFF {
        insertion_sort(v);
        return;
    }
    let (left, right) = partition(v);
    sort_satin(left);
    sort_satin(right);
}

fn sort_rayon(v: &mut [u32]) {
    if v.len() < CUTOFF {
        insertion_sort(v);
        return;
    }
    let (left, right) = partition(v);
    rayon::join(|| sort_rayon(left), || sort_rayon(right));
}

fn sort_chili(scope: &mut chili::Scope<'_>, v: &mut [u32]) {
    if v.len() < CUTOFF {
        insertion_sort(v);
        return;
    }
    let (left, right) = partition(v);
    scope.join(|s| sort_chili(s, left), |s| sort_chili(s, right));
}
