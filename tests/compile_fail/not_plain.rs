use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// Derives what travels, but not what makes it plain data.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Point {
    x: f64,
    y: f64,
}

satin::plain!(Point);

/// The other way round.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Complex {
    re: f64,
    im: f64,
}

satin::plain!([u8; 3], Complex);

fn main() {}
