#![deny(deprecated)] // a warning of the macro: the use of something deprecated

use satin::{call, spawn, spawnable};

#[spawnable]
fn score(n: u64) -> Result<u64, String> {
    if n > 100 { Err("too large".into()) } else { Ok(n * 2) }
}

#[spawnable]
fn waits(n: u64) -> Result<u64, String> {
    let mut best = 0;
    for i in 0..n {
        let score = spawn!(score(i))?;
        best = best.max(score);
    }
    while let Some(i) = best.checked_sub(1) {
        if spawn!(score(i)).is_ok() {
            return Ok(i);
        }
        best = i;
    }
    Ok(best)
}

#[spawnable]
fn all_at_once(n: u64) -> Result<u64, String> {
    let mut scores = Vec::new();
    for i in 0..n {
        scores.push(spawn!(score(i))?);
    }
    for i in 0..n {
        let (low, high) = (spawn!(score(i))?, spawn!(score(n - i))?);
        scores.push(low.max(high));
    }
    let last = call!(score(n))?;
    Ok(scores.into_iter().fold(last, u64::max))
}

#[spawnable]
fn one_after_the_other(n: u64) -> Result<u64, String> {
    let mut score = n;
    for _ in 0..n {
        score = call!(score(score))?;
    }
    Ok(score)
}

#[spawnable]
#[allow(deprecated)]
fn silenced(n: u64) -> Result<u64, String> {
    let mut best = 0;
    for i in 0..n {
        let score = spawn!(score(i))?;
        best = best.max(score);
    }
    Ok(best)
}

fn main() {
    let _ = (waits(3), all_at_once(3), one_after_the_other(3), silenced(3));
}
