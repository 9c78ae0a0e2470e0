//! Where settings come from. Lowest first: defaults, `satin.toml` in the working directory, `SATIN_*` in the
//! environment, then what the program says.

use std::{fs, io, path::Path};

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::worker::{Builder, Satin};

/// Settings; what is `None` is left to the next lower source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Workers. Too many compete for the cores, too few leave some idle. Default: the cores that this process may use.
    pub threads: Option<usize>,
    /// Stack of a worker in MiB, reserved and committed as it is used. Too small, and deep recursion ends in a panic
    /// that says so; too large, and the address space of a small machine runs out. Default: 256.
    pub stack: Option<usize>,
    /// Print the table of figures at the end. Default: no.
    pub stats: Option<bool>,
    /// The `tracing` filter of the log on stderr. Default: `warn`.
    pub log: Option<String>,
}

/// A setting that makes no sense. Nothing has been started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// `satin.toml` is there and cannot be read.
    #[error("cannot read satin.toml: {0}; correct it or remove it")]
    Unreadable(#[source] io::Error),
    /// `satin.toml` is no TOML, or has keys that do not exist.
    #[error("satin.toml: {0}")]
    Toml(#[source] toml::de::Error),
    /// A value of the wrong form.
    #[error("{name}={value:?}: expected {expected}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it is set to.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
}

/// Settings with every default filled in.
pub(crate) struct Resolved {
    pub(crate) threads: u32,
    pub(crate) stack_mib: usize,
    pub(crate) stats: bool,
}

const DEFAULT_STACK_MIB: usize = 256;

impl Default for Resolved {
    fn default() -> Resolved {
        Resolved {
            threads: 1,
            stack_mib: DEFAULT_STACK_MIB,
            stats: false,
        }
    }
}

/// The worker's number has 16 bits in a job record.
const MOST_THREADS: usize = 1 << 16;

const STACK_MIB: std::ops::RangeInclusive<usize> = 1..=65_536;

impl Config {
    /// `satin.toml` and the environment.
    ///
    /// # Errors
    /// If either says something that makes no sense.
    pub fn load() -> Result<Config, ConfigError> {
        let file = Config::from_file(Path::new("satin.toml"))?;
        Ok(Config::from_variables(|name| std::env::var(name).ok())?.or(file))
    }

    fn from_file(path: &Path) -> Result<Config, ConfigError> {
        match fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(ConfigError::Toml),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
            Err(error) => Err(ConfigError::Unreadable(error)),
        }
    }

    fn from_variables(get: impl Fn(&'static str) -> Option<String>) -> Result<Config, ConfigError> {
        fn parse<T>(
            name: &'static str,
            value: Option<String>,
            expected: &'static str,
            parse: impl Fn(&str) -> Option<T>,
        ) -> Result<Option<T>, ConfigError> {
            let Some(value) = value else { return Ok(None) };
            match parse(value.trim()) {
                Some(parsed) => Ok(Some(parsed)),
                None => Err(ConfigError::Value {
                    name,
                    value,
                    expected,
                }),
            }
        }
        let number = |text: &str| text.parse().ok();
        let switch = |text: &str| match text {
            "1" | "true" | "on" | "yes" => Some(true),
            "" | "0" | "false" | "off" | "no" => Some(false),
            _ => None,
        };
        Ok(Config {
            threads: parse(
                "SATIN_THREADS",
                get("SATIN_THREADS"),
                "a number of workers, 1 or more",
                number,
            )?,
            stack: parse(
                "SATIN_STACK",
                get("SATIN_STACK"),
                "a number of MiB, 1 or more",
                number,
            )?,
            stats: parse("SATIN_STATS", get("SATIN_STATS"), "1 or 0", switch)?,
            log: get("SATIN_LOG"),
        })
    }

    /// These settings, and where they say nothing those of `lower`.
    #[must_use]
    pub fn or(self, lower: Config) -> Config {
        Config {
            threads: self.threads.or(lower.threads),
            stack: self.stack.or(lower.stack),
            stats: self.stats.or(lower.stats),
            log: self.log.or(lower.log),
        }
    }

    pub(crate) fn resolve(self) -> Result<Resolved, ConfigError> {
        let threads = self
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let wrong = |name, value: usize, expected| ConfigError::Value {
            name,
            value: value.to_string(),
            expected,
        };
        if !(1..MOST_THREADS).contains(&threads) {
            return Err(wrong(
                "SATIN_THREADS",
                threads,
                "a number of workers from 1 to 65535",
            ));
        }
        let stack_mib = self.stack.unwrap_or(DEFAULT_STACK_MIB);
        if !STACK_MIB.contains(&stack_mib) {
            return Err(wrong(
                "SATIN_STACK",
                stack_mib,
                "a number of MiB from 1 to 65536",
            ));
        }
        Ok(Resolved {
            threads: threads as u32,
            stack_mib,
            stats: self.stats.unwrap_or(false),
        })
    }

    /// The log goes to stderr, unless the program has set up `tracing` itself.
    pub(crate) fn start_log(&self) -> Result<(), ConfigError> {
        let text = self.log.as_deref().unwrap_or("warn");
        let filter = EnvFilter::try_new(text).map_err(|_| ConfigError::Value {
            name: "SATIN_LOG",
            value: text.into(),
            expected: "a tracing filter such as `info` or `satin=debug`",
        })?;
        // An error means that the program has a subscriber of its own: that one stays.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .try_init();
        Ok(())
    }
}

/// Runs `main` as the main program of this node, with `program`'s settings above those of file and environment.
///
/// If the settings make no sense, says so on stderr and exits with code 2.
pub fn run<R>(program: Config, main: impl FnOnce() -> R) -> R {
    let start = || -> Result<Satin, crate::worker::BuildError> {
        let config = program.or(Config::load()?);
        config.start_log()?;
        Builder::from_config(config).build()
    };
    match start() {
        Ok(satin) => satin.run_as_main(main),
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(2);
        }
    }
}

/// What `#[satin::main]` expands to.
#[doc(hidden)]
pub fn main<R>(main: impl FnOnce() -> R) -> R {
    run(Config::default(), main)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&'static str, &str)]) -> Result<Config, ConfigError> {
        Config::from_variables(|name| {
            set.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn the_environment_stands_above_the_file() {
        let file: Config = toml::from_str("threads = 3\nstack = 64").expect("valid");
        let both = variables(&[("SATIN_THREADS", " 5 ")])
            .expect("valid")
            .or(file);
        assert_eq!((both.threads, both.stack), (Some(5), Some(64)));
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_variable() {
        let error = variables(&[("SATIN_THREADS", "many")])
            .expect_err("nonsense")
            .to_string();
        assert_eq!(
            error,
            "SATIN_THREADS=\"many\": expected a number of workers, 1 or more"
        );
        assert!(variables(&[("SATIN_STATS", "perhaps")]).is_err());
        assert!(toml::from_str::<Config>("thraeds = 3").is_err());
        assert!(
            Config {
                threads: Some(0),
                ..Config::default()
            }
            .resolve()
            .is_err()
        );
    }
}
