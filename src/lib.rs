//! stub
pub use satin_macros::{call, main, seq, spawn, spawnable, sync};
/// stub
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// Worker threads [default: all cores]
    #[arg(long)]
    pub threads: Option<usize>,
}
/// stub: configures the pool of the process from the arguments, then runs `main`
pub fn run<R>(_args: Args, main: impl FnOnce() -> R) -> R { main() }
/// stub
pub struct NodeInfo { /** workers of this process */ pub threads: usize }
/// stub
pub fn node() -> NodeInfo { NodeInfo { threads: 2 } }
