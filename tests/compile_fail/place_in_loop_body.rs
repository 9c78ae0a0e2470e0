use satin::spawnable;

#[spawnable]
fn f(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let mut grid = vec![vec![0]; 3];
    for row in &mut grid {
        row.push(f(n - 1));
    }
    n
}

fn main() {}
