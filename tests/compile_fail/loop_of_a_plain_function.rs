use satin::{par_map, par_reduce, spawnable};

fn plain(x: &u64) -> u64 {
    *x
}

#[spawnable]
fn square(x: &u64) -> u64 {
    x * x
}

fn main() {
    let xs = [1, 2, 3];
    par_map!(&xs, plain);
    par_map!(&xs, |x| plain(x));
    par_reduce!(&xs, square, u64::wrapping_add);
}
