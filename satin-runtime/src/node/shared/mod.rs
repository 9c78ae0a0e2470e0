//! Values and bounds: the things that jobs need beside their arguments.

mod bounds;
mod homes;
mod prefetch;
mod values;

pub use bounds::Bounds;
pub(crate) use homes::Homes;
pub use values::{PIECE, Values};
pub(crate) use values::{Waits, Want};

#[cfg(test)]
mod tests;
