use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let mut i = 0;
    while f(i) < 3 {
        i += 1;
    }
    i
}

fn main() {}
