use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let mut v = Vec::new();
    while v.len() < 9 {
        v.push(f(n - 1));
    }
    v[0]
}

fn main() {}
