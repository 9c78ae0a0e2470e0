use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let mut values = (0..n).map(|i| f(i));
    values.next().unwrap()
}

fn main() {}
