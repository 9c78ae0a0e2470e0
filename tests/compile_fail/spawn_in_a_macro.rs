use satin::{spawn, spawnable};

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    assert!(spawn!(f(n - 1)) > 2);
    n
}

fn main() {}
