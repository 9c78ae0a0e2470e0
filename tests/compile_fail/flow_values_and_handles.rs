use satin::{flow, r, rw, spawnable, task};

#[spawnable]
fn add(to: &mut u64, what: &u64) {
    *to += what;
}

#[spawnable]
fn by_value(n: u64) -> u64 {
    n
}

fn main() {
    flow!(|g| {
        let sum = g.data(0_u64);
        let mut plain = 1_u64;
        task!(g, add(rw(sum), 1));
        task!(g, add(rw(sum), &plain));
        task!(g, add(&mut plain, r(sum)));
        task!(g, add(rw(sum), sum));
        task!(g, add(sum, r(sum)));
        task!(g, by_value(r(sum)));
        task!(g, by_value(sum));
        task!(g, add(rw(sum)));
        plain = g.take(plain);
    });
}
