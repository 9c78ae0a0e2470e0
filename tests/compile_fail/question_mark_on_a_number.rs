use satin::spawnable;

#[spawnable]
fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let x = fib(n - 1)?;
    let y = fib(n - 2);
    x + y
}

fn main() {
    let _ = fib(3);
}
