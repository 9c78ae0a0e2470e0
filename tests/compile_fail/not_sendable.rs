use std::cell::RefCell;

use satin::spawnable;

#[spawnable]
fn cell(x: &RefCell<u64>) -> u64 {
    *x.borrow()
}

fn main() {}
