//! Values and bounds: what jobs need beside their arguments.

mod bounds;
mod values;

pub use bounds::Bounds;
pub(crate) use values::Want;
pub use values::{PIECE, Values};

#[cfg(test)]
mod tests;
