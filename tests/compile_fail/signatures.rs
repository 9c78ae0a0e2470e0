use std::borrow::Cow;

use satin::spawnable;

#[spawnable]
fn generic<T>(x: T) -> u64 {
    0
}

#[spawnable]
fn bounded(x: u64) -> u64
where
    u64: Copy,
{
    x
}

#[spawnable]
const fn constant(x: u64) -> u64 {
    x
}

#[spawnable]
async fn asynchronous(x: u64) -> u64 {
    x
}

#[spawnable]
unsafe fn risky(x: u64) -> u64 {
    x
}

#[spawnable]
extern "C" fn foreign(x: u64) -> u64 {
    x
}

#[spawnable]
fn impl_trait(x: impl Copy) -> u64 {
    0
}

#[spawnable]
fn trait_object(x: &dyn Fn()) -> u64 {
    0
}

#[spawnable]
fn reference_result(x: &u64) -> &u64 {
    x
}

#[spawnable]
fn inner_lifetime(x: Cow<'_, str>) -> u64 {
    0
}

#[spawnable]
fn inner_reference(x: Vec<&str>) -> u64 {
    0
}

#[spawnable]
fn forever(x: &'static str) -> u64 {
    0
}

#[spawnable]
fn pattern((a, b): (u64, u64)) -> u64 {
    a + b
}

#[spawnable]
fn pointer(x: *const u8) -> u64 {
    0
}

#[spawnable]
fn string(x: &mut str) -> u64 {
    0
}

#[spawnable]
fn thirteen(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8, m: u8) -> u64 {
    0
}

fn main() {}
