//! The protocol of `node` on QUIC.

pub mod discovery;
pub mod relay;
pub mod settings;

pub use settings::{Join, Settings};
