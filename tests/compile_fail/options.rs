use satin::spawnable;

#[spawnable(cutoff = 20)]
fn f(n: u64) -> u64 {
    n
}

#[spawnable(name)]
fn g(n: u64) -> u64 {
    n
}

#[spawnable(order = first)]
fn h(n: u64) -> u64 {
    n
}

fn main() {}
