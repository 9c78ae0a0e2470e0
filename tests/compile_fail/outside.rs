use satin::{call, spawn, sync};

fn f(n: u64) -> u64 {
    n
}

fn g() -> u64 {
    let x = spawn!(f(1));
    let y = call!(f(1));
    sync!();
    x + y
}

fn main() {}
