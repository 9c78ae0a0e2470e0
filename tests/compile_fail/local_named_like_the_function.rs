use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let f = n;
    f
}

fn main() {}
