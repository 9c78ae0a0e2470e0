//! Where settings come from. Lowest first: defaults, `satin.toml` in the working directory, `SATIN_*` in the
//! environment, then what the program says.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    sync::Once,
    time::Duration,
};

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

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
    /// Where to find the pool: `HOST:PORT[,HOST:PORT..]`, `dns:NAME:PORT`, `file:PATH` or `slurm`. Default: nowhere.
    pub join: Option<String>,
    /// The address to listen on, `IP:PORT`. With this and nowhere to find a pool the node founds one. Default: no
    /// network, or with `join` any port of the address from which this machine reaches the pool; the loopback interface's where
    /// nobody is to be reached yet.
    pub listen: Option<String>,
    /// The address that others are told. Default: the one that the node listens on. Needed behind a translator of
    /// addresses.
    pub advertise: Option<String>,
    /// The site: nodes of one site have fast links between them. Where it is wrong, work travels far that could stay
    /// near. Default: `default`.
    pub site: Option<String>,
    /// The credential file, the same for all nodes. No pool without one; `satin keygen` writes it.
    pub credential: Option<PathBuf>,
    /// The pool's name; nodes of another are refused. Default: the program's name.
    pub pool: Option<String>,
    /// The master starts its first root job when so many nodes are in. Too many, and it waits for ever. Default: 1.
    pub nodes: Option<u32>,
    /// Whom an idle node asks for work: `crs`, `rs` or `mw`. Default: `crs`.
    pub steal: Option<String>,
    /// What people call this node. Default: host name and process number.
    pub name: Option<String>,
    /// Append what happens to this file, a JSON object per line. Default: nothing is written.
    pub events: Option<PathBuf>,
    /// So long a node that is asked to leave may take to finish what it can and to hand over the rest; in the file a
    /// number of seconds. Too short, and work is given up that was nearly done; longer than what a system waits before it
    /// kills, and nothing is handed over. Default: 20 s.
    #[serde(default, deserialize_with = "in_seconds")]
    pub grace: Option<Duration>,
    /// What is done with jobs whose origin is gone: `running` (they run on), `finished` (only their finished children
    /// are kept) or `naive` (nothing is kept); the last two to compare with. Default: `running`.
    pub repair: Option<String>,
    /// Nodes that one job may take down before it is given up with a panic. Default: 3.
    pub max_crashes: Option<u32>,
    /// So long the part of a broken pool that is without the master waits before it elects its own; in the file a
    /// number of seconds. Too short, and a short break of the network makes two pools; too long, and the loss of the
    /// master's site is made good late. Default: 30 s.
    #[serde(default, deserialize_with = "in_seconds")]
    pub partition_wait: Option<Duration>,
    /// The node leaves when this is there: `file:PATH`, once the file exists, or `http://..`, once that answers with
    /// status 200. Default: never.
    pub drain_when: Option<String>,
    /// Where each value came from, so that an error can name it. What is not in there the program has set.
    #[doc(hidden)]
    #[serde(skip)]
    pub sources: SettingSources,
}

/// Who gave a setting its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SettingSource {
    /// A flag, of the program or of `satin node`.
    Flag,
    /// The program, in its code.
    #[default]
    Program,
    /// A variable of the environment.
    Variable,
    /// `satin.toml`.
    File,
}

/// Where the values of settings came from, by their keys; those that are not in here the program has set in its code.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingSources(BTreeMap<&'static str, SettingSource>);

impl SettingSources {
    pub(crate) fn setting(&self, key: &'static str) -> Setting {
        Setting {
            key,
            source: self.0.get(key).copied().unwrap_or_default(),
        }
    }
}

/// A setting, as the one who has set it calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// As in `satin.toml`.
    pub key: &'static str,
    /// Who gave it its value.
    pub source: SettingSource,
}

impl Setting {
    /// What it is called in the environment.
    fn variable(self) -> String {
        format!("SATIN_{}", self.key.to_uppercase())
    }

    fn flag(self) -> String {
        format!("--{}", self.key.replace('_', "-"))
    }

    /// The setting and its value, as they were written.
    pub(crate) fn with(self, value: &str) -> String {
        match self.source {
            SettingSource::Flag => format!("{} {value}", self.flag()),
            SettingSource::Variable => format!("{}={value:?}", self.variable()),
            SettingSource::File => format!("satin.toml: {} = {value:?}", self.key),
            SettingSource::Program => {
                format!("{} = {value:?}, which the program has set", self.key)
            }
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            SettingSource::Flag => f.write_str(&self.flag()),
            SettingSource::Variable => f.write_str(&self.variable()),
            SettingSource::File => write!(f, "`{}` in satin.toml", self.key),
            SettingSource::Program => write!(f, "`{}`, which the program has set", self.key),
        }
    }
}

/// What is to be done for every setting is written once, here.
macro_rules! settings {
    ($($key:ident),* $(,)?) => {
        /// The keys of all settings.
        const KEYS: &[&str] = &[$(stringify!($key)),*];

        impl Config {
            /// These settings, and where they say nothing those of `lower`.
            #[must_use]
            pub fn or(mut self, lower: Config) -> Config {
                $(if self.$key.is_none() {
                    let key = stringify!($key);
                    self.sources.0.remove(key);
                    if let Some(source) = lower.sources.0.get(key) {
                        self.sources.0.insert(key, *source);
                    }
                    self.$key = lower.$key;
                })*
                self
            }

            /// All that is set here came from there.
            #[doc(hidden)]
            #[must_use]
            pub fn given_by(mut self, source: impl Fn(&'static str) -> SettingSource) -> Config {
                $(if self.$key.is_some() {
                    self.sources.0.insert(stringify!($key), source(stringify!($key)));
                })*
                self
            }
        }
    };
}

settings! {
    threads, stack, stats, log, join, listen, advertise, site, credential, pool, nodes, steal, name, events, grace, repair,
    max_crashes, partition_wait, drain_when,
}

/// The variable by which `satin node` tells which settings were flags of its own: their keys, with commas between. Errors
/// then name the flags.
pub const FLAGS: &str = "SATIN_FLAGS";

/// Every program that reads these settings has this text in it; `satin node` looks for it.
pub const MARK: &str = "SATIN_PARTITION_WAIT";

/// Variables that are no settings.
const NO_SETTINGS: [&str; 4] = [
    FLAGS,
    "SATIN_MIXED_BUILDS",
    "SATIN_EVENTS_SINCE",
    "SATIN_WAN",
];

/// Variables that the tests of Satin itself use begin with these.
const OF_TESTS: [&str; 4] = ["SATIN_TEST_", "SATIN_CHAOS", "SATIN_STRESS_", "SATIN_DATA"];

/// The flags that programs and `satin node` have for settings; true for those with a value.
pub(crate) fn flags() -> impl Iterator<Item = (String, bool)> {
    KEYS.iter().map(|key| {
        let source = SettingSource::Flag;
        (Setting { key, source }.flag(), *key != "stats")
    })
}

/// What is wrong with the name of a variable that begins with `SATIN_`, if anything is.
fn objection(variable: &str) -> Option<String> {
    let rest = variable.strip_prefix("SATIN_")?;
    let settings = KEYS
        .iter()
        .map(|key| format!("SATIN_{}", key.to_uppercase()));
    let known: Vec<String> = settings.chain(NO_SETTINGS.map(String::from)).collect();
    let is_test = OF_TESTS.iter().any(|test| variable.starts_with(test));
    if is_test || known.iter().any(|name| name == variable) {
        return None;
    }
    // The common beginning says nothing about likeness.
    let likeness =
        |name: &String| strsim::jaro_winkler(&rest.to_uppercase(), &name["SATIN_".len()..]);
    let nearest = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let meant = nearest
        .filter(|name| likeness(name) > LIKE)
        .map(|name| format!(": did you mean {name}?"));
    Some(format!(
        "{variable} is no setting of Satin{}",
        meant.unwrap_or_else(|| ", and has no effect".into())
    ))
}

/// A name that is less like a known one is not taken for it.
const LIKE: f64 = 0.8;

/// A number of seconds, with or without a fraction.
fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

fn in_seconds<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let number = Option::<f64>::deserialize(from)?;
    let seconds = number.map(Duration::try_from_secs_f64).transpose();
    seconds.map_err(serde::de::Error::custom)
}

/// The settings of the network as they were written, whoever wrote them. Each field is one variable of the
/// environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// `SATIN_JOIN`
    pub join: Option<String>,
    /// `SATIN_LISTEN`
    pub listen: Option<String>,
    /// `SATIN_ADVERTISE`
    pub advertise: Option<String>,
    /// `SATIN_SITE`
    pub site: Option<String>,
    /// `SATIN_CREDENTIAL`
    pub credential: Option<PathBuf>,
    /// `SATIN_POOL`
    pub pool: Option<String>,
    /// `SATIN_NODES`
    pub nodes: Option<u32>,
    /// `SATIN_STEAL`
    pub steal: Option<String>,
    /// `SATIN_NAME`
    pub name: Option<String>,
    /// `SATIN_EVENTS`
    pub events: Option<PathBuf>,
    /// `SATIN_GRACE`
    pub grace: Option<Duration>,
    /// `SATIN_REPAIR`
    pub repair: Option<String>,
    /// `SATIN_MAX_CRASHES`
    pub max_crashes: Option<u32>,
    /// `SATIN_PARTITION_WAIT`
    pub partition_wait: Option<Duration>,
    /// `SATIN_DRAIN_WHEN`
    pub drain_when: Option<String>,
    /// Who set each of them.
    #[doc(hidden)]
    pub sources: SettingSources,
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
    #[error("{}: expected {expected}", setting.with(value))]
    Value {
        /// Which.
        setting: Setting,
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
    /// For the network, which checks them.
    pub(crate) words: Words,
}

const DEFAULT_STACK_MIB: usize = 256;

impl Default for Resolved {
    fn default() -> Resolved {
        Resolved {
            threads: 1,
            stack_mib: DEFAULT_STACK_MIB,
            stats: false,
            words: Words::default(),
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

    /// Does it ask for a network?
    pub(crate) fn network(&self) -> Option<String> {
        let is_set = |text: &&String| !text.trim().is_empty();
        let join = self.join.as_ref().map(|join| ("join", join));
        let listen = self.listen.as_ref().map(|listen| ("listen", listen));
        let (key, value) = join
            .into_iter()
            .chain(listen)
            .find(|(_, text)| is_set(text))?;
        Some(self.sources.setting(key).with(value))
    }

    fn from_file(path: &Path) -> Result<Config, ConfigError> {
        match fs::read_to_string(path) {
            Ok(text) => {
                let config: Config = toml::from_str(&text).map_err(ConfigError::Toml)?;
                Ok(config.given_by(|_| SettingSource::File))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
            Err(error) => Err(ConfigError::Unreadable(error)),
        }
    }

    fn from_variables(get: impl Fn(&'static str) -> Option<String>) -> Result<Config, ConfigError> {
        fn parse<T>(
            setting: Setting,
            value: Option<String>,
            expected: &'static str,
            parse: impl Fn(&str) -> Option<T>,
        ) -> Result<Option<T>, ConfigError> {
            let Some(value) = value else { return Ok(None) };
            match parse(value.trim()) {
                Some(parsed) => Ok(Some(parsed)),
                None => Err(ConfigError::Value {
                    setting,
                    value,
                    expected,
                }),
            }
        }
        let flags = get(FLAGS).unwrap_or_default();
        let source = |key: &str| match flags.split(',').any(|flag| flag == key) {
            true => SettingSource::Flag,
            false => SettingSource::Variable,
        };
        let setting = |key| Setting {
            key,
            source: source(key),
        };
        let number = |text: &str| text.parse().ok();
        let number_of = |text: &str| text.parse().ok().filter(|number: &u32| *number > 0);
        let switch = |text: &str| match text {
            "1" | "true" | "on" | "yes" => Some(true),
            "" | "0" | "false" | "off" | "no" => Some(false),
            _ => None,
        };
        let config = Config {
            threads: parse(
                setting("threads"),
                get("SATIN_THREADS"),
                "a number of workers, 1 or more",
                number,
            )?,
            stack: parse(
                setting("stack"),
                get("SATIN_STACK"),
                "a number of MiB, 1 or more",
                number,
            )?,
            stats: parse(setting("stats"), get("SATIN_STATS"), "1 or 0", switch)?,
            log: get("SATIN_LOG"),
            join: get("SATIN_JOIN"),
            listen: get("SATIN_LISTEN"),
            advertise: get("SATIN_ADVERTISE"),
            site: get("SATIN_SITE"),
            credential: get("SATIN_CREDENTIAL").map(PathBuf::from),
            pool: get("SATIN_POOL"),
            nodes: parse(
                setting("nodes"),
                get("SATIN_NODES"),
                "a number of nodes, 1 or more",
                number_of,
            )?,
            steal: get("SATIN_STEAL"),
            name: get("SATIN_NAME"),
            events: get("SATIN_EVENTS").map(PathBuf::from),
            grace: parse(
                setting("grace"),
                get("SATIN_GRACE"),
                "a number of seconds",
                seconds,
            )?,
            repair: get("SATIN_REPAIR"),
            max_crashes: parse(
                setting("max_crashes"),
                get("SATIN_MAX_CRASHES"),
                "a number of nodes, 1 or more",
                number_of,
            )?,
            partition_wait: parse(
                setting("partition_wait"),
                get(MARK),
                "a number of seconds",
                seconds,
            )?,
            drain_when: get("SATIN_DRAIN_WHEN"),
            sources: SettingSources::default(),
        };
        Ok(config.given_by(source))
    }

    pub(crate) fn resolve(self) -> Result<Resolved, ConfigError> {
        let threads = self
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let wrong = |key, value: usize, expected| ConfigError::Value {
            setting: self.sources.setting(key),
            value: value.to_string(),
            expected,
        };
        if !(1..MOST_THREADS).contains(&threads) {
            return Err(wrong(
                "threads",
                threads,
                "a number of workers from 1 to 65535",
            ));
        }
        let stack_mib = self.stack.unwrap_or(DEFAULT_STACK_MIB);
        if !STACK_MIB.contains(&stack_mib) {
            return Err(wrong("stack", stack_mib, "a number of MiB from 1 to 65536"));
        }
        Ok(Resolved {
            threads: threads as u32,
            stack_mib,
            stats: self.stats.unwrap_or(false),
            words: Words {
                join: self.join,
                listen: self.listen,
                advertise: self.advertise,
                site: self.site,
                credential: self.credential,
                pool: self.pool,
                nodes: self.nodes,
                steal: self.steal,
                name: self.name,
                events: self.events,
                grace: self.grace,
                repair: self.repair,
                max_crashes: self.max_crashes,
                partition_wait: self.partition_wait,
                drain_when: self.drain_when,
                sources: self.sources,
            },
        })
    }

    /// The log goes to stderr, unless the program has set up `tracing` itself.
    pub(crate) fn start_log(&self) -> Result<(), ConfigError> {
        let text = self.log.as_deref().unwrap_or("warn");
        let filter = EnvFilter::try_new(text).map_err(|_| ConfigError::Value {
            setting: self.sources.setting("log"),
            value: text.into(),
            expected: "a tracing filter such as `info` or `satin=debug`",
        })?;
        // An error means that the program has a subscriber of its own: that one stays.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .try_init();
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            for objection in names.filter_map(|name| objection(&name)) {
                tracing::warn!("{objection}");
            }
        });
        Ok(())
    }
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
    fn every_setting_has_a_variable_and_a_key() {
        let network = [
            ("JOIN", "a:1"),
            ("LISTEN", "127.0.0.1:0"),
            ("ADVERTISE", "192.0.2.7:7"),
            ("SITE", "delft"),
            ("CREDENTIAL", "pool.pem"),
            ("POOL", "p"),
            ("NODES", "3"),
            ("STEAL", "rs"),
            ("NAME", "n"),
            ("EVENTS", "e.jsonl"),
            ("GRACE", "7"),
            ("REPAIR", "naive"),
            ("MAX_CRASHES", "5"),
            ("PARTITION_WAIT", "9"),
            ("DRAIN_WHEN", "file:/gone"),
            ("LOG", "info"),
            ("THREADS", "2"),
            ("STACK", "8"),
            ("STATS", "1"),
        ];
        let environment = Config::from_variables(|name| {
            // Where flags come from is no setting.
            if name == FLAGS {
                return None;
            }
            let key = name.strip_prefix("SATIN_").expect("a prefix");
            let set = network.iter().find(|(of, _)| *of == key);
            Some(set.expect("a setting that is tested").1.into())
        })
        .expect("valid");
        let file: String = network
            .iter()
            .map(|(key, value)| match *value {
                "1" => format!("{} = true\n", key.to_lowercase()),
                number if number.parse::<u32>().is_ok() => {
                    format!("{} = {number}\n", key.to_lowercase())
                }
                text => format!("{} = {text:?}\n", key.to_lowercase()),
            })
            .collect();
        let file: Config = toml::from_str(&file).expect("valid");
        assert_eq!(
            file.clone().given_by(|_| SettingSource::Variable),
            environment
        );
        assert_eq!(network.len(), KEYS.len());
        assert_eq!(Config::default().or(file.clone()), file);
        let words = file.resolve().expect("valid").words;
        assert_eq!(words.join.as_deref(), Some("a:1"));
        assert_eq!(
            (words.nodes, words.events),
            (Some(3), Some("e.jsonl".into()))
        );
        assert_eq!(words.grace, Some(Duration::from_secs(7)));
        assert_eq!(words.drain_when.as_deref(), Some("file:/gone"));
    }

    #[test]
    fn an_error_names_what_was_set() {
        let none = |_: &'static str| -> Option<String> { None };
        let said = |config: Config| {
            let lower = Config::from_variables(none).expect("nothing");
            let resolved = config.or(lower).resolve();
            resolved.err().expect("no workers").to_string()
        };
        let by = |source| {
            Config {
                threads: Some(0),
                ..Config::default()
            }
            .given_by(|_| source)
        };
        let rest = ": expected a number of workers from 1 to 65535";
        for (source, name) in [
            (SettingSource::Flag, "--threads 0"),
            (SettingSource::Variable, "SATIN_THREADS=\"0\""),
            (SettingSource::File, "satin.toml: threads = \"0\""),
            (
                SettingSource::Program,
                "threads = \"0\", which the program has set",
            ),
        ] {
            assert_eq!(said(by(source)), format!("{name}{rest}"));
        }
        // `satin node` hands its flags over as variables.
        let flag = variables(&[("SATIN_MAX_CRASHES", "0"), (FLAGS, "join,max_crashes")]);
        let said = flag.expect_err("none").to_string();
        assert!(said.starts_with("--max-crashes 0: expected"), "{said}");
        // The one that counts is named, not the one below it.
        let file = Config {
            threads: Some(0),
            ..Config::default()
        }
        .given_by(|_| SettingSource::File);
        let both = variables(&[("SATIN_THREADS", "0")])
            .expect("a number")
            .or(file);
        let said = both.resolve().err().expect("no workers").to_string();
        assert!(said.starts_with("SATIN_THREADS"), "{said}");
    }

    #[test]
    fn a_variable_that_is_no_setting_is_told_with_the_nearest_one() {
        for (variable, nearest) in [
            ("SATIN_THREAD", "SATIN_THREADS"),
            ("SATIN_CREDENTIALS", "SATIN_CREDENTIAL"),
            ("SATIN_GRACE_PERIOD", "SATIN_GRACE"),
            ("SATIN_Site", "SATIN_SITE"),
            ("SATIN_LSITEN", "SATIN_LISTEN"),
        ] {
            let said = objection(variable).expect("unknown");
            assert_eq!(
                said,
                format!("{variable} is no setting of Satin: did you mean {nearest}?")
            );
        }
        let said = objection("SATIN_XYZ").expect("unknown");
        assert_eq!(said, "SATIN_XYZ is no setting of Satin, and has no effect");
        for known in [
            "SATIN_MAX_CRASHES",
            "SATIN_MIXED_BUILDS",
            "SATIN_TEST_WAY",
            "PATH",
        ] {
            assert_eq!(objection(known), None);
        }
        assert!(KEYS.contains(&&*MARK["SATIN_".len()..].to_lowercase()));
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        let half = Some(Duration::from_millis(500));
        assert_eq!(
            variables(&[("SATIN_GRACE", "0.5")]).expect("valid").grace,
            half
        );
        let file: Config = toml::from_str("grace = 0.5").expect("valid");
        assert_eq!(file.grace, half);
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
        assert!(variables(&[("SATIN_NODES", "0")]).is_err());
        assert!(variables(&[("SATIN_GRACE", "-1")]).is_err());
        assert!(variables(&[("SATIN_GRACE", "20s")]).is_err());
        assert!(variables(&[("SATIN_MAX_CRASHES", "0")]).is_err());
        assert!(toml::from_str::<Config>("grace = -1").is_err());
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
