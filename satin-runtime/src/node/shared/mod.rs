//! Values and bounds: the things that jobs need beside their arguments.

mod bounds;
mod homes;
mod prefetch;
mod values;

pub use bounds::Bounds;
pub(crate) use homes::Homes;
pub use prefetch::Prefetch;
pub(crate) use values::Want;
pub use values::{PIECE, Values};

#[cfg(test)]
mod tests;
