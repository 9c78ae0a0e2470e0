//! Where settings come from. Lowest first: defaults, `satin.toml` in the working directory, `SATIN_*` in the
//! environment, then what the program says.

#[cfg(feature = "clap")]
mod args;
mod form;
mod table;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Once,
    time::Duration,
};

use serde::Deserialize;

use crate::slurm;

#[cfg(feature = "clap")]
pub use args::Args;
pub use form::{Form, TIME};
pub(crate) use table::settings;

use crate::observe::log::{self, LogForm};

/// The source of a setting's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SettingSource {
    /// A flag, of the program or of `satin node`.
    Flag,
    /// The program, in its code.
    #[default]
    Program,
    /// A variable of the environment.
    Variable,
    /// The file `satin.toml`.
    File,
}

/// The sources of settings' values, by their keys; a setting without an entry has been set by the program in its code.
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
    /// The key, as in `satin.toml`.
    pub key: &'static str,
    /// The source of the value.
    pub source: SettingSource,
}

impl Setting {
    /// The name of the variable in the environment.
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

macro_rules! config {
    ($(
        $(#[$doc:meta])*
        $key:ident: $form:ident, $variable:literal, $value:literal, $help:literal, $default:literal, $expected:literal;
    )*) => {
        /// Settings; a setting that is `None` is left to the next lower source.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Config {
            $(
                $(#[$doc])*
                #[serde(default, deserialize_with = "form::in_file")]
                pub $key: Option<$form>,
            )*
            /// Sources of the values, so that an error can name them. A value without a source was set by the program.
            #[doc(hidden)]
            #[serde(skip)]
            pub sources: SettingSources,
        }

        /// All settings, in the order of the book's table.
        pub const SETTINGS: &[SettingRow] = &[$(SettingRow {
            key: stringify!($key),
            variable: $variable,
            takes_value: <$form as Form>::ARGUMENTS > 0,
            help: $help,
            default: $default,
        }),*];

        impl Config {
            /// The settings here, and where they have no value those of `lower`.
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

            /// The settings that are set, as variables of the environment: names and values.
            #[must_use]
            pub fn variables(&self) -> Vec<(&'static str, OsString)> {
                let all = [$((
                    $variable,
                    self.$key.as_ref().map(Form::write),
                )),*];
                let set = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
                set.collect()
            }

            fn from_variables(
                get: impl Fn(&'static str) -> Option<String>,
            ) -> Result<Config, ConfigError> {
                let flags = get(FLAGS).unwrap_or_default();
                let source = |key: &str| match flags.split(',').any(|flag| flag == key) {
                    true => SettingSource::Flag,
                    false => SettingSource::Variable,
                };
                let setting = |key| Setting { key, source: source(key) };
                let config = Config {
                    $($key: read(setting(stringify!($key)), get($variable), $expected)?,)*
                    sources: SettingSources::default(),
                };
                config.given_by(source).counted()
            }
        }
    };
}

settings!(config);

/// A row of the table of settings, for those who show it.
#[derive(Clone, Copy, Debug)]
pub struct SettingRow {
    /// The key in `satin.toml`; with hyphens, the flag.
    pub key: &'static str,
    /// The variable of the environment.
    pub variable: &'static str,
    /// Whether the flag has a value.
    pub takes_value: bool,
    /// The help of the setting, in Markdown.
    pub help: &'static str,
    /// The value of a setting that is not set, in words, in Markdown.
    pub default: &'static str,
}

fn read<F: Form>(
    setting: Setting,
    value: Option<String>,
    expected: &'static str,
) -> Result<Option<F>, ConfigError> {
    let Some(value) = value else { return Ok(None) };
    match F::read(&value) {
        Some(read) => Ok(Some(read)),
        None => Err(ConfigError::Value {
            setting,
            value,
            expected,
        }),
    }
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
const OF_TESTS: [&str; 5] = [
    "SATIN_TEST_",
    "SATIN_CHAOS",
    "SATIN_LOSSES",
    "SATIN_STRESS_",
    "SATIN_DATA",
];

/// The flags that programs and `satin node` have for settings; true for those with a value.
pub(crate) fn flags() -> impl Iterator<Item = (String, bool)> {
    SETTINGS.iter().map(|row| {
        let (key, source) = (row.key, SettingSource::Flag);
        (Setting { key, source }.flag(), row.takes_value)
    })
}

/// The objection to the name of a variable that begins with `SATIN_`, if there is any.
fn objection(variable: &str) -> Option<String> {
    let rest = variable.strip_prefix("SATIN_")?;
    let settings = SETTINGS.iter().map(|row| row.variable);
    let known: Vec<&str> = settings.chain(NO_SETTINGS).collect();
    let is_test = OF_TESTS.iter().any(|test| variable.starts_with(test));
    if is_test || known.contains(&variable) {
        return None;
    }
    // The common beginning says nothing about likeness.
    let likeness =
        |name: &&str| strsim::jaro_winkler(&rest.to_uppercase(), &name["SATIN_".len()..]);
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
        /// The setting with the wrong value.
        setting: Setting,
        /// The value that it was set to.
        value: String,
        /// The values that are allowed.
        expected: &'static str,
    },
}

/// Settings with every default filled in.
pub(crate) struct Resolved {
    pub(crate) threads: u32,
    pub(crate) stack_mib: usize,
    pub(crate) store_grain: Duration,
    pub(crate) flow_window: u64,
    pub(crate) flow_strict: bool,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) stats: bool,
    pub(crate) duplicate: bool,
    /// Does the node that runs `main` show how far it is?
    pub(crate) progress: bool,
    /// Where the dashboard listens.
    pub(crate) dashboard: Option<SocketAddr>,
    /// All settings, for the network, which checks its own.
    pub(crate) config: Config,
}

/// The cores that this process may use; of a Slurm job, no more than Slurm has promised.
fn default_threads(join: Option<&str>) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    match join.map(str::trim) {
        Some("slurm") => slurm::threads(&slurm::variable, available),
        _ => available,
    }
}

const DEFAULT_STACK_MIB: usize = 256;

const DEFAULT_STORE_GRAIN: Duration = Duration::from_millis(1);

const DEFAULT_FLOW_WINDOW: usize = 1 << 16;

impl Default for Resolved {
    fn default() -> Resolved {
        Resolved {
            threads: 1,
            stack_mib: DEFAULT_STACK_MIB,
            store_grain: DEFAULT_STORE_GRAIN,
            flow_window: DEFAULT_FLOW_WINDOW as u64,
            flow_strict: false,
            time_limit: None,
            stats: false,
            duplicate: true,
            progress: true,
            dashboard: None,
            config: Config::default(),
        }
    }
}

/// The worker's number has 16 bits in a job record.
const MOST_THREADS: usize = 1 << 16;

const STACK_MIB: std::ops::RangeInclusive<usize> = 1..=65_536;

impl Config {
    /// The settings in `satin.toml` and the environment.
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

    /// These settings, if what is counted in nodes is at least one.
    fn counted(self) -> Result<Config, ConfigError> {
        for (key, count) in [("nodes", self.nodes), ("max_crashes", self.max_crashes)] {
            if count == Some(0) {
                return Err(ConfigError::Value {
                    setting: self.sources.setting(key),
                    value: "0".into(),
                    expected: "a number of nodes, 1 or more",
                });
            }
        }
        Ok(self)
    }

    pub(crate) fn resolve(self) -> Result<Resolved, ConfigError> {
        let threads = self
            .threads
            .unwrap_or_else(|| default_threads(self.join.as_deref()));
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
        let flow_window = self.flow_window.unwrap_or(DEFAULT_FLOW_WINDOW);
        if flow_window == 0 {
            return Err(wrong("flow_window", 0, "a number of tasks, 1 or more"));
        }
        if self.time_limit == Some(Duration::ZERO) {
            let expected = "a number of seconds, or a time such as 30m, above 0";
            return Err(wrong("time_limit", 0, expected));
        }
        let duplicate = match self.duplicate {
            None | Some(1) => true,
            Some(0) => false,
            Some(more) => return Err(wrong("duplicate", more as usize, "1 or 0")),
        };
        let progress = match self.progress.as_deref().map(str::trim) {
            None | Some("" | "auto") => true,
            Some("no") => false,
            Some(text) => {
                return Err(ConfigError::Value {
                    setting: self.sources.setting("progress"),
                    value: text.into(),
                    expected: "auto or no",
                });
            }
        };
        let dashboard = match self.dashboard.as_deref().map(str::trim) {
            None | Some("") => None,
            Some(text) => Some(text.parse().map_err(|_| ConfigError::Value {
                setting: self.sources.setting("dashboard"),
                value: text.into(),
                expected: "an address and a port, such as 127.0.0.1:8787",
            })?),
        };
        Ok(Resolved {
            dashboard,
            threads: threads as u32,
            stack_mib,
            store_grain: self.store_grain.unwrap_or(DEFAULT_STORE_GRAIN),
            flow_window: flow_window as u64,
            flow_strict: self.flow_strict.unwrap_or(false),
            time_limit: self.time_limit,
            stats: self.stats.unwrap_or(false),
            duplicate,
            progress,
            config: self,
        })
    }

    /// Starts the log, to stderr, unless the program has set up `tracing` itself.
    ///
    /// # Errors
    /// The setting `log` is no filter, or `log_format` no form.
    pub fn start_log(&self) -> Result<(), ConfigError> {
        let text = self.log.as_deref().unwrap_or("warn");
        let filter = log::filter(text).ok_or_else(|| ConfigError::Value {
            setting: self.sources.setting("log"),
            value: text.into(),
            expected: "a tracing filter such as `info`, `satin=debug` or, for everything, `trace`",
        })?;
        let form = match self.log_format.as_deref().map(str::trim) {
            None | Some("") => LogForm::default(),
            Some(text) => text.parse().map_err(|_| ConfigError::Value {
                setting: self.sources.setting("log_format"),
                value: text.into(),
                expected: "text or json",
            })?,
        };
        log::start(filter, form);
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

    /// A value that is of every form, in each source.
    #[test]
    fn every_setting_has_a_variable_a_key_and_a_flag() {
        let environment = Config::from_variables(|name| (name != FLAGS).then(|| "1".into()));
        let environment = environment.expect("valid");
        let all: Vec<(&str, OsString)> = SETTINGS
            .iter()
            .map(|row| (row.variable, "1".into()))
            .collect();
        assert_eq!(environment.variables(), all);
        let in_file = |row: &SettingRow| {
            let forms = ["1", "\"1\"", "true"].map(|value| format!("{} = {value}\n", row.key));
            let valid = |line: &String| toml::from_str::<Config>(line).is_ok();
            forms.into_iter().find(valid).expect("a form fits")
        };
        let file: String = SETTINGS.iter().map(in_file).collect();
        let file: Config = toml::from_str(&file).expect("valid");
        let given = file.clone().given_by(|_| SettingSource::Variable);
        assert_eq!(given, environment);
        assert_eq!(Config::default().or(file.clone()), file);
        for row in SETTINGS {
            assert_eq!(row.variable, format!("SATIN_{}", row.key.to_uppercase()));
        }
    }

    #[test]
    fn the_book_has_the_table_of_settings() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/settings.md");
        let page = fs::read_to_string(path).expect("the page of the settings");
        let rows: Vec<&str> = (page.lines())
            .filter(|line| line.starts_with("| `SATIN_"))
            .collect();
        let table: Vec<String> = SETTINGS
            .iter()
            .map(|row| {
                let flag = Setting {
                    key: row.key,
                    source: SettingSource::Flag,
                };
                format!(
                    "| `{}` | `{}` | `{flag}` | {} | {} |",
                    row.variable, row.key, row.help, row.default
                )
            })
            .collect();
        assert_eq!(rows.join("\n"), table.join("\n"));
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
        assert!(SETTINGS.iter().any(|row| row.variable == MARK));
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
    fn times_may_have_units() {
        let give_up = |text| variables(&[("SATIN_GIVE_UP", text)]).map(|config| config.give_up);
        for text in ["300", "5m", "4m 60s", "5min"] {
            let five = Some(Duration::from_secs(300));
            assert_eq!(give_up(text).expect("valid"), five, "{text}");
        }
        assert!(give_up("5 moons").is_err());
        for text in [
            "1.5s",
            "1500ms",
            "1s 500ms",
            "1500000us",
            "1500000µs",
            "1.5",
        ] {
            let some = Some(Duration::from_millis(1500));
            assert_eq!(give_up(text).expect("valid"), some, "{text}");
            let file = format!("give_up = \"{text}\"");
            let file: Config = toml::from_str(&file).expect("valid");
            assert_eq!(file.give_up, some, "{text}");
        }
        for wrong in ["\"5 moons\"", "-1", "true"] {
            let file = toml::from_str::<Config>(&format!("give_up = {wrong}"));
            let said = file.expect_err("nonsense").to_string();
            assert!(said.contains(TIME), "{said}");
        }
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
        assert!(variables(&[("SATIN_GRACE", "-1")]).is_err());
        assert!(variables(&[("SATIN_GRACE", "20 moons")]).is_err());
        assert!(variables(&[("SATIN_MAX_CRASHES", "0")]).is_err());
        assert!(variables(&[("SATIN_NODES", "0")]).is_err());
        let no_time = variables(&[("SATIN_TIME_LIMIT", "0s")]).expect("a time");
        let error = no_time.resolve().err().expect("nonsense").to_string();
        assert_eq!(
            error,
            "SATIN_TIME_LIMIT=\"0\": expected a number of seconds, or a time such as 30m, above 0"
        );
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
        let twice = Config {
            duplicate: Some(2),
            ..Config::default()
        };
        assert!(twice.resolve().is_err());
    }
}
