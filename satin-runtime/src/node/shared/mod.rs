//! Values and bounds: what jobs need beside their arguments.

mod bounds;
mod values;

pub use bounds::Bounds;
pub use values::Values;
