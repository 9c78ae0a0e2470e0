use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    (0..n).map(f).sum()
}

fn main() {}
