use satin::{flow, many, r, rw, spawnable, task};

#[spawnable]
fn read(text: &String) -> usize {
    text.len()
}

#[spawnable]
fn change(text: &mut String) {
    text.clear();
}

#[spawnable]
fn change_all(numbers: &mut [u64]) {
    numbers.fill(0);
}

#[spawnable]
fn total(numbers: &satin::Many<u64>) -> u64 {
    numbers.iter().sum()
}

fn main() {
    flow!(|g| {
        let text = g.data(String::new());
        let numbers = g.data(vec![1, 2]);
        task!(g, read(rw(text)));
        task!(g, change(r(text)));
        task!(g, change_all(r(numbers)));
        task!(g, total(r(numbers)));
        task!(g, read(many([text])));
        task!(g, read(r(numbers)));
    });
}
