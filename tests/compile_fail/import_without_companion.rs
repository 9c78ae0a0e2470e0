mod m {
    #[satin::spawnable]
    pub fn even(n: u64) -> bool {
        n % 2 == 0
    }
}
use m::even;
use satin::{spawn, spawnable};

#[spawnable]
fn odd(n: u64) -> bool {
    let is_even = spawn!(even(n));
    !is_even
}

fn main() {}
