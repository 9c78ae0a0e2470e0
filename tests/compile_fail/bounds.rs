use satin::{Min, bound};

bound! {}

bound! {
    const BEST: Min<u64>;
}

bound! {
    static mut BEST: Min<u64>;
}

bound! {
    pub static BEST: Min<u64> = 5;
}

bound! {
    static BEST: u64;
}

fn main() {}
