use satin::{spawn, spawnable};

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    spawn!(n);
    n
}

fn main() {}
