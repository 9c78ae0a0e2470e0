use satin::{flow, r, spawnable, task};

#[spawnable]
fn double(n: &u64) -> u64 {
    2 * n
}

fn main() {
    flow!(|outer| {
        let n = outer.data(1_u64);
        flow!(|inner| {
            let n = task!(inner, double(r(n)));
            inner.take(n)
        })
    });
}
