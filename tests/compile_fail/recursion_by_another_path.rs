use satin::spawnable;

mod m {
    #[satin::spawnable]
    pub fn f(n: u64) -> u64 {
        if n < 2 { n } else { super::m::f(n - 1) + 1 }
    }
}

#[spawnable]
fn g(n: u64) -> u64 {
    n
}

fn main() {}
