use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    println!("{}", f(n - 1));
    n
}

fn main() {}
