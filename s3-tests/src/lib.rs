//! A server that speaks the protocol of S3, for tests of Satin's stores there. Empty without the feature `s3`.

#[cfg(feature = "s3")]
mod server;

#[cfg(feature = "s3")]
pub use server::{BUCKET, Fault, S3Server};
