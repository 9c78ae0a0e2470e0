use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    if n > 3 && f(n - 1) > 2 { 1 } else { 0 }
}

fn main() {}
