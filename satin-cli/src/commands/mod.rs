//! A file per subcommand: its flags, and what it does with the library.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use satin_cli::{stats, tables};
use satin_runtime::{config::Config, observe::events::Record};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

mod at;

pub mod dashboard;
pub mod drain;
pub mod explain;
pub mod k8s;
pub mod keygen;
pub mod launch;
pub mod log;
pub mod node;
pub mod run;
pub mod runs;
pub mod status;
pub mod stop;
pub mod store;
pub mod top;

/// Calls `stop` with each signal that asks this process to end.
fn stop_at_signals(stop: impl Fn(i32) + Send + 'static) -> Result<()> {
    // A SIGHUP that `nohup` has ignored stays ignored.
    let hangup = (!satin_runtime::exit::ignores_hangup()).then_some(SIGHUP);
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))
            .context("cannot watch signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in &mut signals {
                stop(signal);
            }
        })
        .context("cannot watch signals")?;
    Ok(())
}

/// Prints the figures of each node and site, on stderr.
fn print_figures(records: &[Record]) {
    let width = tables::width(io::stderr().is_terminal());
    match stats::table(records, width) {
        Some(table) => {
            eprintln!("{table}");
            let memory_is_limited = Config::load().is_ok_and(|config| config.memory.is_some());
            if let Some(words) = stats::conclusion(records, memory_is_limited) {
                eprintln!("\n{words}");
            }
        }
        None => eprintln!("satin: no node reported its figures"),
    }
}
