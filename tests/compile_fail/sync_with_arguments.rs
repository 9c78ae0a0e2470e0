use satin::{spawnable, sync};

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let x = f(n - 1);
    sync!(x);
    x
}

fn main() {}
