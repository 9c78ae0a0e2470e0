//! The protocol of `node` on QUIC.

pub mod credential;
pub mod discovery;
pub mod limits;
pub mod relay;
pub mod settings;
pub mod wire;

pub use credential::{Credential, CredentialError};
pub use settings::{Join, Settings};
