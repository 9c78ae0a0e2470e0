//! Command line flags for a program that parses its own.

use crate::Config;

/// Settings of Satin, to be flattened into a program's own flags. They stand above environment and `satin.toml`.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Satin")]
pub struct Args {
    /// Worker threads [default: SATIN_THREADS, else all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Stack of each worker in MiB [default: SATIN_STACK, else 256]
    #[arg(long = "stack", value_name = "MIB")]
    pub stack: Option<usize>,
    /// Print a table of what each worker did at the end
    #[arg(long)]
    pub stats: bool,
}

impl From<Args> for Config {
    fn from(args: Args) -> Config {
        Config {
            threads: args.threads,
            stack: args.stack,
            stats: args.stats.then_some(true),
            log: None,
        }
    }
}
