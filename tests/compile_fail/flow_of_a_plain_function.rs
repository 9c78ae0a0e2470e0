use satin::{flow, spawnable, task};

fn plain(n: u64) -> u64 {
    n
}

#[spawnable]
fn marked(n: u64) -> u64 {
    n
}

fn main() {
    flow!(|g| {
        task!(g, plain(1));
        task!(g, marked(1));
        task!(g, u64::from(7_u32));
    });
}
