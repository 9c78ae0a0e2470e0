//! A file per subcommand: its flags, and what it does with the library.

use std::time::Duration;

use anyhow::{Context, Result};
use satin_cli::coded::Coded;
use satin_runtime::codes;

mod at;

pub mod dashboard;
pub mod drain;
pub mod explain;
pub mod keygen;
pub mod log;
pub mod node;
pub mod run;
pub mod runs;
pub mod status;
pub mod stop;
pub mod store;
pub mod top;

/// The time that a flag gives in seconds, if it is given.
fn seconds(flag: &str, given: Option<f64>) -> Result<Option<Duration>> {
    let time = given.map(Duration::try_from_secs_f64).transpose();
    let expected = || format!("{flag}: expected a number of seconds");
    time.with_context(expected).code(codes::WRONG_VALUE)
}
