use satin::{Handle, flow, spawnable, task};

#[spawnable]
fn number(n: u64) -> u64 {
    n
}

fn main() {
    let number = flow!(|g| task!(g, number(1)));
    let mut kept: Vec<Handle<u64>> = Vec::new();
    flow!(|g| kept.push(task!(g, number(2))));
}
