use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let mut v = vec![vec![n]];
    v.last_mut().unwrap().push(f(n - 1));
    n
}

fn main() {}
