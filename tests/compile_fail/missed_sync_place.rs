use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let mut v = vec![n];
    let look = || 1;
    let alias = &mut v;
    alias.push(f(n - 1));
    let first = v[0];
    alias.push(f(n - 2));
    first + look()
}

fn main() {}
