use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let all: Option<Vec<u64>> = (0..n).map(|i| Some(f(i) + n.checked_sub(1)?)).collect();
    all.unwrap()[0]
}

fn main() {}
