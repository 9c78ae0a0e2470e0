use satin::{par_chunks, par_map, par_reduce, spawnable};

#[spawnable]
fn square(x: &u64) -> u64 {
    x * x
}

#[spawnable]
fn by_value(x: u64) -> u64 {
    x
}

#[spawnable]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[spawnable]
fn in_a_job(xs: &[u64]) -> u64 {
    println!("{:?}", par_map!(xs, square));
    par_map!(xs, |x| *x + 1).len() as u64
}

fn main() {
    let xs = [1, 2, 3];
    par_map!(&xs, by_value);
    par_map!(&xs, |x| x * x);
    par_map!(&xs, |x| {
        let y = *x;
        square(&y)
    });
    par_map!(&xs);
    par_map!();
    par_map!(&xs, 7);
    par_chunks!(&xs, square);
    par_reduce!(&xs, square);
    par_reduce!(&xs, square, |a, b| a + b);
    par_reduce!(&xs, square, square);
    par_reduce!(&xs, square, add, add, add);
}
