//! Loops of programs without spawns: `seq!`, sequential twins, the feature `serial`. What is put together, and in which order, is the same.

use super::middle;

/// As [`par_map`](super::par_map), one after the other.
pub fn seq_map<'a, T, R>(elements: &'a [T], call: impl Fn(&'a T) -> R) -> Vec<R> {
    elements.iter().map(call).collect()
}

/// As [`par_chunks`](super::par_chunks), one after the other.
///
/// # Panics
/// If `size` is zero.
#[track_caller]
pub fn seq_chunks<'a, T, R>(elements: &'a [T], size: usize, call: impl Fn(&'a [T]) -> R) -> Vec<R> {
    elements.chunks(size).map(call).collect()
}

/// As [`par_reduce`](super::par_reduce), one after the other.
pub fn seq_reduce<'a, T, R>(
    elements: &'a [T],
    call: impl Fn(&'a T) -> R,
    join: impl Fn(R, R) -> R,
) -> Option<R> {
    let call = |at: usize| call(&elements[at]);
    (!elements.is_empty()).then(|| reduce(0, elements.len(), &call, &join))
}

/// As [`par_reduce_chunks`](super::par_reduce_chunks), one after the other.
///
/// # Panics
/// If `size` is zero.
#[track_caller]
pub fn seq_reduce_chunks<'a, T, R>(
    elements: &'a [T],
    size: usize,
    call: impl Fn(&'a [T]) -> R,
    join: impl Fn(R, R) -> R,
) -> Option<R> {
    let chunks: Vec<&'a [T]> = elements.chunks(size).collect();
    seq_reduce(&chunks, |chunk| call(chunk), join)
}

fn reduce<R>(from: usize, to: usize, call: &impl Fn(usize) -> R, join: &impl Fn(R, R) -> R) -> R {
    if to - from == 1 {
        return call(from);
    }
    let middle = middle(from, to);
    let (a, b) = (
        reduce(from, middle, call, join),
        reduce(middle, to, call, join),
    );
    join(a, b)
}
