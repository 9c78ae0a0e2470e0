use satin::{flow, rw, spawnable, task};

#[derive(serde::Serialize, serde::Deserialize)]
struct Counter(u64);

#[spawnable]
fn count(counter: &mut Counter) {
    counter.0 += 1;
}

fn main() {
    flow!(|g| {
        let counter = g.data(Counter(0));
        task!(g, count(rw(counter)));
        g.take(counter)
    });
}
