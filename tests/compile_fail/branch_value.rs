use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let x = if n > 5 { f(n - 1) } else { 0 };
    x + 1
}

fn main() {}
