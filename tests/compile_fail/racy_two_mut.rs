use satin::{spawn, spawnable};

#[spawnable]
fn sort(v: &mut Vec<u64>) {
    v.sort();
}

#[spawnable]
fn sum(v: &Vec<u64>) -> u64 {
    v.iter().sum()
}

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let mut v = vec![n];
    let w = std::convert::identity(&mut v);
    spawn!(sort(w));
    let first = v[0];
    first
}

fn main() {}
