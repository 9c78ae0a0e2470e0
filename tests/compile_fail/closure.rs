use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let later = || f(n - 1);
    later()
}

fn main() {}
