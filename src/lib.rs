//! stub docs
pub use satin_macros::{call, main, seq, spawn, spawnable, sync};
#[doc(hidden)]
pub use satin_runtime::private as __private;
pub use satin_runtime::{
    config::{Config, ConfigError},
    job, observe, worker,
    worker::{BuildError, Builder, NodeInfo, Satin, node},
};

#[cfg(feature = "clap")]
mod args;
#[cfg(feature = "clap")]
pub use args::Args;

/// Settings of a pool by hand: `Satin::builder()`.
#[must_use]
pub fn builder() -> Builder {
    Builder::default()
}

/// Runs `main` as the main program of this node.
pub fn run<R>(settings: impl Into<Config>, main: impl FnOnce() -> R) -> R {
    satin_runtime::config::run(settings.into(), main)
}
