//! The settings of the network: from the words of file, environment and program to things with types.

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use bytesize::ByteSize;
use strum::VariantNames;

use crate::{
    config::{Config, Setting, SettingSource, SettingSources},
    exit,
    node::{self, Judgement, NodeEnd, Policy, RepairMode},
    observe::output::OutputUse,
    slurm::{self, SlurmTask},
    stable::{StoreUrl, runs::Resume},
};

/// All settings of the network, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The way to find the pool. `None`: this node founds it.
    pub join: Option<Join>,
    /// The address to listen on. Default: see [`bind_address`](super::discovery::bind_address).
    pub listen: Option<SocketAddr>,
    /// The address that others are told. Default: see [`advertised`](super::discovery::advertised).
    pub advertise: Option<SocketAddr>,
    /// The name of the site. Default: `default`.
    pub site: String,
    /// The credential file. `None` only for a node that is alone with a store, or one of a Slurm job: then it is [the
    /// user's](super::user_credential).
    pub credential: Option<PathBuf>,
    /// The pool's name; nodes of another are refused. Default: the name of the executable.
    pub pool: String,
    /// Number of nodes that must be in before the first root job starts. Default: 1.
    pub nodes: u32,
    /// The policy by which an idle node chooses whom to ask for work. Default: [`Policy::Crs`].
    pub policy: Policy,
    /// Which jobs are worth their way to another node. Default: [`Judgement::Learnt`].
    pub judgement: Judgement,
    /// The name of this node, for people. Default: host name and process number.
    pub name: String,
    /// Number of workers.
    pub threads: u32,
    /// Events are appended to this file. Default: none are written.
    pub events: Option<PathBuf>,
    /// Longest time that a node may take to leave when it is asked to. Default: [`GRACE`].
    pub grace: Duration,
    /// The use that is made of orphans. Default: [`RepairMode::Running`].
    pub repair: RepairMode,
    /// Nodes that one job may take down. Default: see [`node::ProtocolConfig`].
    pub max_crashes: u32,
    /// How long the pool is looked for. Default: for ever.
    pub give_up: Option<Duration>,
    /// How long after its start this node, once it is the master, ends the pool. Default: never.
    pub time_limit: Option<Duration>,
    /// Before a part without the master elects its own. Default: see [`node::ProtocolConfig`].
    pub partition_wait: Duration,
    /// Copies of finished results go to a neighbour in this time; zero: never. Default: see [`node::ProtocolConfig`].
    pub copy_every: Duration,
    /// The store in which finished results survive when all nodes die. Default: none.
    pub store: Option<StoreSettings>,
    /// The node leaves when this is there. Default: it stays.
    pub drain_when: Option<DrainWhen>,
    /// What becomes of the output of nodes. Default: [`OutputUse::Own`].
    pub output: OutputUse,
    /// What the exit code of this node says. Default: [`ExitRule::Own`].
    pub exit: ExitRule,
    /// The memory near which the node takes no further jobs. Default: [`MemoryLimit::OfSystem`].
    pub memory: MemoryLimit,
    /// Bytes for data that jobs have borrowed here last. Default: 256 MiB.
    pub flow_data: u64,
    /// The source of each setting, for errors that come later.
    #[doc(hidden)]
    pub sources: SettingSources,
}

/// A store, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Where it is.
    pub url: StoreUrl,
    /// Finished results are written in this time; zero: as soon as the last were written. Default: [`STORE_EVERY`], and
    /// [`S3_EVERY`] for S3.
    pub every: Duration,
    /// The run to go on with.
    pub resume: Resume,
    /// Go on with a run even if its last starts all ended before anything was stored.
    pub force: bool,
    /// What is stored stays when the run is done.
    pub keep: bool,
    /// What is stored is sealed.
    pub seal: bool,
}

/// The longest period in which copies go to a neighbour, or results to the store.
const LONGEST_PERIOD: Duration = Duration::from_secs(86_400);

/// The period in which results are written to a store, unless a setting says otherwise. Too short: the store is busy. Too long:
/// more is done again after all nodes have died.
pub const STORE_EVERY: Duration = Duration::from_secs(10);

/// The period in which results are written to S3, unless a setting says otherwise. Too short: it costs more, as each write of
/// each node is paid for, and takes some 50 ms. Too long: more is done again after all nodes have died.
pub const S3_EVERY: Duration = Duration::from_secs(60);

/// Where a node listens that is alone with a store: any port, of this machine only.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The shortest period in which copies go to a neighbour: that of the workers' beats.
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// A sign that tells a node to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainWhen {
    /// The file exists.
    File(PathBuf),
    /// The URL answers with status 200; plain `http://` only.
    Http(String),
    /// The cloud is about to take this spot machine away.
    Cloud {
        /// The cloud that this machine is of.
        cloud: Cloud,
        /// The URL of its metadata service, without a path.
        at: String,
    },
}

/// A cloud that gives notice before it takes a spot machine away.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Cloud {
    /// Amazon Web Services: notice of two minutes.
    Aws,
    /// Google Cloud: notice of thirty seconds.
    Google,
    /// Microsoft Azure: notice of thirty seconds.
    Azure,
}

/// The address of the metadata service, for all three clouds.
const METADATA: &str = "http://169.254.169.254";

/// What the exit code of a node says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum ExitRule {
    /// How the node ended: with 0 once `main` has ended on another node, or once the node has left.
    #[default]
    Own,
    /// How the run ended. A node that ends before the run ends with the code of the request to leave, which is 143 if there was
    /// none: whoever starts lost nodes anew has to start this one anew.
    Run,
}

impl ExitRule {
    /// The rule that `config` names.
    ///
    /// # Errors
    /// If it names none that there is.
    pub(crate) fn of(config: &Config) -> Result<ExitRule, SettingsError> {
        named("exit", config.exit.as_deref())
    }

    /// The exit code of a node whose part in its pool ended so.
    pub(crate) fn code(self, end: NodeEnd) -> i32 {
        match (self, end) {
            (ExitRule::Own, end) => end.own_code(),
            (ExitRule::Run, NodeEnd::Main(code) | NodeEnd::Pool(code)) => code,
            (ExitRule::Run, NodeEnd::Left | NodeEnd::Lost) => exit::asked_code(),
        }
    }
}

/// The memory that a node may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// What the control groups allow that the process is in.
    #[default]
    OfSystem,
    /// As many bytes; and what the control groups allow.
    Bytes(u64),
    /// Memory is not looked at.
    None,
}

/// A way to find the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// At an address of this list, `HOST:PORT` each. The first node that lives founds the pool.
    Hosts(Vec<String>),
    /// At any address that the name has, with this port.
    Dns(String, u16),
    /// At the addresses in this file. Each node appends its own.
    File(PathBuf),
    /// On the hosts of this Slurm job, at the port that this node listens on.
    Slurm,
}

/// A setting that makes no sense. Nothing has been started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A value of the wrong form.
    #[error("{}: expected {expected}", setting.with(value))]
    Value {
        /// The setting with the wrong value.
        setting: Setting,
        /// The value in question.
        value: String,
        /// The values that are allowed.
        expected: Cow<'static, str>,
    },
    /// A pool without a credential.
    #[error(
        "no credential is given, and a pool needs one: `satin keygen FILE` writes one; give all nodes a copy of the file, \
         and name it with --credential FILE (or SATIN_CREDENTIAL)"
    )]
    NoCredential,
    /// Without the number of a Slurm job, or with port 0, other nodes cannot know the port.
    #[error(
        "nodes that join by `slurm` must know each other's ports: start the program with srun and leave --listen (or SATIN_LISTEN) \
         out, or give all of them the same --listen 0.0.0.0:PORT"
    )]
    SlurmWithoutPort,
}

/// Time that a node may take to leave when it is asked to, unless a setting says otherwise.
pub const GRACE: Duration = Duration::from_secs(20);

/// The longest name of a node, a site or a pool, in bytes: names travel with every piece of news about a node.
pub const NAME_MAX: usize = 128;

/// More nodes than that do not make a pool.
pub const NODES_MAX: u32 = 65_536;

impl Settings {
    /// The settings that `config` means; `None` if it asks for no network: neither `SATIN_JOIN` nor `SATIN_LISTEN` is
    /// set. Settings with values are checked even then.
    ///
    /// # Errors
    /// If one makes no sense, or a pool is asked for without a credential.
    pub fn new(config: Config, threads: u32) -> Result<Option<Settings>, SettingsError> {
        let sources = config.sources.clone();
        Settings::checked(config, threads).map_err(|error| error.named(&sources))
    }

    fn checked(config: Config, threads: u32) -> Result<Option<Settings>, SettingsError> {
        let default = node::ProtocolConfig::default();
        let every = config.store_every;
        if let Some(every) = every.filter(|every| *every > LONGEST_PERIOD) {
            let seconds = every.as_secs_f64();
            return Err(wrong("store_every", seconds, "from 0 to 86400 seconds"));
        }
        let store = StoreSettings::new(&config)?;
        let join = set(config.join.as_deref()).map(Join::parse).transpose()?;
        let listen = address("listen", config.listen.as_deref())?;
        let advertise = advertise(config.advertise.as_deref())?;
        let by_slurm = join == Some(Join::Slurm);
        let cluster = || slurm::cluster(&slurm::variable).filter(|_| by_slurm);
        let site = name("site", config.site)?.or_else(cluster);
        let site = site.unwrap_or_else(|| "default".into());
        let has_store = store.is_some();
        let pool = name("pool", config.pool)?.unwrap_or_else(|| match by_slurm && !has_store {
            // All jobs of a user have one credential. With a store the next job goes on with the run of the last one.
            true => of_step(program()),
            false => program(),
        });
        let own_name = name("name", config.name)?.unwrap_or_else(host_and_process);
        let policy = named("steal", config.steal.as_deref())?;
        let judgement = named("worth", config.worth.as_deref())?;
        let repair = named("repair", config.repair.as_deref())?;
        let output = named("output", config.output.as_deref())?;
        let exit = named("exit", config.exit.as_deref())?;
        let drain_when = (set(config.drain_when.as_deref()).map(DrainWhen::parse)).transpose()?;
        let memory = MemoryLimit::parse(config.memory.as_deref())?;
        let flow_data = (set(config.flow_data.as_deref()).map(flow_data)).transpose()?;
        let flow_data = flow_data.unwrap_or(default.flow_data);
        let max_crashes = config.max_crashes.unwrap_or(default.max_crashes);
        if max_crashes == 0 {
            return Err(wrong(
                "max_crashes",
                max_crashes,
                "a number of nodes, 1 or more",
            ));
        }
        let copy_every = match config.buddy {
            Some(0) => Duration::ZERO,
            None | Some(1) => every.unwrap_or(default.copy_every).max(SHORTEST_PERIOD),
            Some(more) => return Err(wrong("buddy", more, "1 or 0")),
        };
        if store.is_some() && repair == RepairMode::Naive {
            let expected = "running or finished: with a store, results are kept";
            return Err(wrong("repair", "naive", expected));
        }
        let nodes = config.nodes.unwrap_or(1);
        if !(1..=NODES_MAX).contains(&nodes) {
            return Err(wrong("nodes", nodes, "a number of nodes from 1 to 65536"));
        }
        // With a store a node that is alone founds a pool on this machine.
        let listen = match &store {
            Some(_) if join.is_none() => listen.or(Some(LOOPBACK)),
            _ => listen,
        };
        if join.is_none() && listen.is_none() {
            return Ok(None);
        }
        let listen = match by_slurm {
            true => Some(slurm_address(listen)?),
            false => listen,
        };
        let credential = config
            .credential
            .filter(|path| !path.as_os_str().is_empty());
        // Nobody joins a node that listens on any port of its own machine: its credential is for the store alone.
        let is_alone = listen == Some(LOOPBACK) && join.is_none() && store.is_some();
        // The tasks of a job are one user's, and most often have one home directory, with that user's credential.
        if credential.is_none() && !is_alone && !by_slurm {
            return Err(SettingsError::NoCredential);
        }
        Ok(Some(Settings {
            join,
            listen,
            advertise,
            site,
            credential,
            pool,
            nodes,
            policy,
            judgement,
            name: own_name,
            threads,
            events: config.events.filter(|path| !path.as_os_str().is_empty()),
            give_up: config.give_up,
            time_limit: config.time_limit,
            grace: config.grace.unwrap_or(GRACE),
            repair,
            max_crashes,
            partition_wait: config.partition_wait.unwrap_or(default.partition_wait),
            copy_every,
            store,
            drain_when,
            output,
            exit,
            memory,
            flow_data,
            sources: config.sources,
        }))
    }

    /// Is the credential that of the user, unless there is another?
    pub(crate) fn uses_user_credential(&self) -> bool {
        self.store.is_some() || self.join == Some(Join::Slurm)
    }
}

impl StoreSettings {
    /// The store that `config` names, if it names one.
    fn new(config: &Config) -> Result<Option<StoreSettings>, SettingsError> {
        let resume = match set(config.resume.as_deref()) {
            None => Resume::Auto,
            Some(text) => text
                .parse()
                .map_err(|_| wrong("resume", text, "auto, no or the 16 digits of a run"))?,
        };
        let Some(text) = set(config.store.as_deref()) else {
            return Ok(None);
        };
        let url = text.parse::<StoreUrl>();
        let url = url.map_err(|_| wrong("store", text, StoreUrl::EXPECTED))?;
        let is_far = matches!(url, StoreUrl::S3 { .. });
        Ok(Some(StoreSettings {
            url,
            every: config.store_every.unwrap_or(match is_far {
                true => S3_EVERY,
                false => STORE_EVERY,
            }),
            resume,
            force: config.store_force.unwrap_or(false),
            keep: config.store_keep.unwrap_or(false),
            seal: config.store_seal.unwrap_or(is_far),
        }))
    }
}

impl MemoryLimit {
    fn parse(text: Option<&str>) -> Result<MemoryLimit, SettingsError> {
        const EXPECTED: &str = "a size such as 8GiB or 500MB, above 0, or no";
        match set(text) {
            None => Ok(MemoryLimit::OfSystem),
            Some("no") => Ok(MemoryLimit::None),
            Some(text) => match text.parse::<ByteSize>() {
                Ok(ByteSize(bytes)) if bytes > 0 => Ok(MemoryLimit::Bytes(bytes)),
                _ => Err(wrong("memory", text, EXPECTED)),
            },
        }
    }
}

/// The bytes that `SATIN_FLOW_DATA` says.
fn flow_data(text: &str) -> Result<u64, SettingsError> {
    let size = text.parse::<ByteSize>();
    let size = size.map_err(|_| wrong("flow_data", text, "a size such as 1GiB or 500MB"))?;
    Ok(size.as_u64())
}

impl Join {
    /// Reads the value of `SATIN_JOIN`.
    ///
    /// # Errors
    /// If it has none of the four forms.
    pub fn parse(text: &str) -> Result<Join, SettingsError> {
        const EXPECTED: &str = "HOST:PORT[,HOST:PORT..], dns:NAME:PORT, file:PATH or slurm";
        let error = || wrong("join", text, EXPECTED);
        let text = text.trim();
        if text == "slurm" {
            Ok(Join::Slurm)
        } else if let Some(path) = text.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(error());
            }
            Ok(Join::File(path.into()))
        } else if let Some(rest) = text.strip_prefix("dns:") {
            let (name, port) = host_and_port(rest).ok_or_else(error)?;
            Ok(Join::Dns(name.into(), port))
        } else {
            let hosts: Vec<&str> = text.split(',').map(str::trim).collect();
            if hosts.iter().any(|host| host_and_port(host).is_none()) {
                return Err(error());
            }
            Ok(Join::Hosts(hosts.into_iter().map(str::to_owned).collect()))
        }
    }
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Join::Hosts(hosts) => f.write_str(&hosts.join(",")),
            Join::Dns(name, port) => write!(f, "dns:{name}:{port}"),
            Join::File(path) => write!(f, "file:{}", path.display()),
            Join::Slurm => f.write_str("slurm"),
        }
    }
}

impl DrainWhen {
    /// Reads the value of `SATIN_DRAIN_WHEN`.
    ///
    /// # Errors
    /// If it has none of the forms.
    pub fn parse(text: &str) -> Result<DrainWhen, SettingsError> {
        const EXPECTED: &str = "aws, google, azure, file:PATH or http://HOST[:PORT]/PATH (https is not supported: let something \
                                on this machine that speaks it make a file)";
        let text = text.trim();
        let parsed = if let Some(path) = text.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            (!path.is_empty()).then(|| DrainWhen::File(path.into()))
        } else if text.starts_with("http://") {
            is_plain_url(text).then(|| DrainWhen::Http(text.into()))
        } else {
            let (cloud, at) = text.split_once('=').unwrap_or((text, METADATA));
            let at = is_plain_url(at).then(|| at.trim_end_matches('/').to_owned());
            (cloud.parse().ok().zip(at)).map(|(cloud, at)| DrainWhen::Cloud { cloud, at })
        };
        parsed.ok_or_else(|| wrong("drain_when", text, EXPECTED))
    }
}

impl fmt::Display for DrainWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DrainWhen::File(path) => write!(f, "file:{}", path.display()),
            DrainWhen::Http(url) => f.write_str(url),
            DrainWhen::Cloud { cloud, at } if at == METADATA => write!(f, "{cloud}"),
            DrainWhen::Cloud { cloud, at } => write!(f, "{cloud}={at}"),
        }
    }
}

/// Is it a URL of `http` with a host, and nothing that a request cannot hold?
fn is_plain_url(text: &str) -> bool {
    text.strip_prefix("http://").is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && rest.chars().all(|c| c.is_ascii_graphic())
    })
}

/// The address of a task of a Slurm job: each of a machine has a port of its own, from the one that is set, or the job's.
fn slurm_address(set: Option<SocketAddr>) -> Result<SocketAddr, SettingsError> {
    let task = SlurmTask::of_step(&slurm::variable);
    let first = match set {
        Some(set) => Some(set).filter(|set| set.port() != 0),
        None => (task.as_ref().and_then(SlurmTask::first_port))
            .map(|port| (Ipv4Addr::UNSPECIFIED, port).into()),
    };
    let mut address: SocketAddr = first.ok_or(SettingsError::SlurmWithoutPort)?;
    if let Some(task) = task {
        address.set_port(task.own_port(address.port()));
    }
    Ok(address)
}

/// The name of a pool for this step of a Slurm job alone.
fn of_step(program: String) -> String {
    match slurm::step(&slurm::variable) {
        Some(step) => format!("{program}-{}", shorten(&step)),
        None => program,
    }
}

/// A host, by name or address (one of IPv6 in brackets), and a port that one can dial.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    if let Ok(addr) = text.parse::<SocketAddr>() {
        let host = text.rsplit_once(':')?.0;
        return (addr.port() != 0).then_some((host, addr.port()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty() && host.chars().all(plain)).then_some((host, port))
}

/// A variable that is set to nothing is not set.
fn set(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

impl SettingsError {
    /// Names the setting as the one who has set it does.
    fn named(mut self, sources: &SettingSources) -> SettingsError {
        if let SettingsError::Value { setting, .. } = &mut self {
            *setting = sources.setting(setting.key);
        }
        self
    }
}

fn wrong(
    key: &'static str,
    value: impl fmt::Display,
    expected: impl Into<Cow<'static, str>>,
) -> SettingsError {
    SettingsError::Value {
        setting: Setting {
            key,
            source: SettingSource::Variable,
        },
        value: value.to_string(),
        expected: expected.into(),
    }
}

fn address(key: &'static str, text: Option<&str>) -> Result<Option<SocketAddr>, SettingsError> {
    const EXPECTED: &str = "IP:PORT, such as 0.0.0.0:7777, [::]:7777 or 127.0.0.1:0";
    set(text)
        .map(|text| text.parse().map_err(|_| wrong(key, text, EXPECTED)))
        .transpose()
}

fn advertise(text: Option<&str>) -> Result<Option<SocketAddr>, SettingsError> {
    let addr = address("advertise", text)?;
    match addr {
        Some(addr) if addr.ip().is_unspecified() || addr.port() == 0 => Err(wrong(
            "advertise",
            addr,
            "an address that other nodes can dial, such as 192.0.2.7:7777",
        )),
        addr => Ok(addr),
    }
}

fn name(key: &'static str, text: Option<String>) -> Result<Option<String>, SettingsError> {
    let Some(text) = set(text.as_deref()) else {
        return Ok(None);
    };
    if text.len() > NAME_MAX || text.chars().any(char::is_control) {
        return Err(wrong(key, text, "a name of at most 128 bytes"));
    }
    Ok(Some(text.into()))
}

/// Parses a value that has a name; if nothing is set, the default.
fn named<T>(key: &'static str, text: Option<&str>) -> Result<T, SettingsError>
where
    T: Default + FromStr + VariantNames,
{
    let Some(text) = set(text) else {
        return Ok(T::default());
    };
    text.parse().map_err(|_| {
        let (last, names) = T::VARIANTS.split_last().expect("there are values");
        wrong(key, text, format!("{} or {last}", names.join(", ")))
    })
}

/// The name of the executable, without directory and extension.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let stem = path.as_deref().and_then(|path| path.file_stem());
    stem.map_or("satin".into(), |stem| shorten(&stem.to_string_lossy()))
}

fn host_and_process() -> String {
    let host = hostname::get().map_or("node".into(), |host| host.to_string_lossy().into_owned());
    let short = host.split('.').next().unwrap_or("node");
    format!("{}-{}", shorten(short), std::process::id())
}

/// The text, cut to at most half of [`NAME_MAX`] bytes.
fn shorten(text: &str) -> String {
    let mut end = text.len().min(NAME_MAX / 2);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            listen: Some("127.0.0.1:0".into()),
            credential: Some("pool.pem".into()),
            sources: by_variables(),
            ..Config::default()
        }
    }

    /// All that is set here are variables.
    fn by_variables() -> SettingSources {
        let text = Some(String::new());
        let config = Config {
            join: text.clone(),
            listen: text.clone(),
            advertise: text.clone(),
            site: text.clone(),
            pool: text.clone(),
            steal: text.clone(),
            worth: text.clone(),
            repair: text,
            nodes: Some(1),
            max_crashes: Some(1),
            ..Default::default()
        };
        config.given_by(|_| SettingSource::Variable).sources
    }

    fn settings(config: Config) -> Settings {
        Settings::new(config, 2).expect("valid").expect("a network")
    }

    fn error(config: Config) -> String {
        Settings::new(config, 2).expect_err("nonsense").to_string()
    }

    #[test]
    fn a_program_of_its_own_needs_no_settings() {
        assert_eq!(Settings::new(Config::default(), 2), Ok(None));
        let empty = Config {
            join: Some(String::new()),
            listen: Some(" ".into()),
            ..Config::default()
        };
        assert_eq!(Settings::new(empty, 2), Ok(None));
    }

    #[test]
    fn a_store_in_s3_is_sealed_and_written_to_once_a_minute() {
        let with = |url: &str, change: fn(&mut Config)| {
            let mut config = config();
            config.store = Some(url.into());
            change(&mut config);
            let settings = settings(config);
            let store = settings.store.expect("it is set");
            (
                store.every.as_secs(),
                store.seal,
                settings.copy_every.as_secs(),
            )
        };
        assert_eq!(with("file:/scratch/s", |_| {}), (10, false, 2));
        assert_eq!(with("s3://bucket/a", |_| {}), (60, true, 2));
        let all: fn(&mut Config) = |config| {
            config.store_every = Some(Duration::from_secs(30));
            config.store_seal = Some(false);
        };
        assert_eq!(with("s3://bucket/a", all), (30, false, 30));
    }

    #[test]
    fn what_is_not_set_has_a_default() {
        let settings = settings(config());
        assert_eq!(settings.join, None);
        assert_eq!(settings.site, "default");
        assert_eq!((settings.nodes, settings.threads), (1, 2));
        assert_eq!(settings.policy, Policy::Crs);
        assert_eq!(settings.judgement, Judgement::Learnt);
        assert!(settings.name.ends_with(&format!("-{}", std::process::id())));
        assert!(!settings.pool.is_empty());
    }

    #[test]
    fn four_ways_to_join() {
        let hosts = |hosts: &[&str]| Join::Hosts(hosts.iter().map(|host| (*host).into()).collect());
        for (text, join) in [
            ("a:1", hosts(&["a:1"])),
            (
                "10.0.0.1:7777, [::1]:7,n-1.example:9",
                hosts(&["10.0.0.1:7777", "[::1]:7", "n-1.example:9"]),
            ),
            (
                "dns:satin.default.svc:7777",
                Join::Dns("satin.default.svc".into(), 7777),
            ),
            ("file:/shared/pool", Join::File("/shared/pool".into())),
            ("file:///shared/pool", Join::File("/shared/pool".into())),
            ("file:pool", Join::File("pool".into())),
            ("slurm", Join::Slurm),
        ] {
            assert_eq!(Join::parse(text), Ok(join), "{text}");
        }
        for text in [
            "a",
            "a:",
            ":1",
            "a:0",
            "a:1,",
            "a:65536",
            "file:",
            "dns:a",
            "::1:7",
            "a b:1",
            "10.0.0.1:0",
        ] {
            assert!(Join::parse(text).is_err(), "{text}");
        }
        for text in ["a:1,[::1]:2", "dns:a:1", "file:p", "slurm"] {
            assert_eq!(Join::parse(text).expect("valid").to_string(), text);
        }
    }

    #[test]
    fn errors_name_the_variable_and_say_what_it_may_be() {
        let listen = Config {
            listen: Some("localhost".into()),
            ..config()
        };
        assert_eq!(
            error(listen),
            "SATIN_LISTEN=\"localhost\": expected IP:PORT, such as 0.0.0.0:7777, [::]:7777 or 127.0.0.1:0"
        );
        let join = Config {
            join: Some("somewhere".into()),
            ..config()
        };
        assert_eq!(
            error(join),
            "SATIN_JOIN=\"somewhere\": expected HOST:PORT[,HOST:PORT..], dns:NAME:PORT, file:PATH or slurm"
        );
        let steal = Config {
            steal: Some("everything".into()),
            ..config()
        };
        assert_eq!(
            error(steal),
            "SATIN_STEAL=\"everything\": expected crs, rs or mw"
        );
        let worth = |word: &str| Config {
            worth: Some(word.into()),
            ..config()
        };
        assert_eq!(
            error(worth("never")),
            "SATIN_WORTH=\"never\": expected learnt or always"
        );
        assert_eq!(settings(worth("always")).judgement, Judgement::Always);
        let exit = |word: &str| Config {
            exit: Some(word.into()),
            ..config()
        };
        assert!(error(exit("0")).ends_with("expected own or run"));
        assert_eq!(settings(exit("run")).exit, ExitRule::Run);
        let advertise = Config {
            advertise: Some("0.0.0.0:7".into()),
            ..config()
        };
        assert!(error(advertise).starts_with("SATIN_ADVERTISE=\"0.0.0.0:7\": expected an address"));
        for (wrong, variable) in [
            (
                Config {
                    nodes: Some(0),
                    ..config()
                },
                "SATIN_NODES=\"0\"",
            ),
            (
                Config {
                    max_crashes: Some(0),
                    ..config()
                },
                "SATIN_MAX_CRASHES=\"0\"",
            ),
            (
                Config {
                    site: Some("a\nb".into()),
                    ..config()
                },
                "SATIN_SITE",
            ),
            (
                Config {
                    pool: Some("p".repeat(NAME_MAX + 1)),
                    ..config()
                },
                "SATIN_POOL",
            ),
        ] {
            assert!(error(wrong).starts_with(variable));
        }
    }

    #[test]
    fn nonsense_is_told_even_where_no_network_is_asked_for() {
        let steal = Config {
            steal: Some("x".into()),
            ..Config::default()
        };
        assert!(Settings::new(steal, 2).is_err());
    }

    #[test]
    fn how_a_node_leaves_and_what_is_repaired() {
        let default = settings(config());
        assert_eq!(default.grace, GRACE);
        assert_eq!(default.repair, RepairMode::Running);
        assert_eq!(default.drain_when, None);
        let set = settings(Config {
            repair: Some("finished".into()),
            max_crashes: Some(7),
            drain_when: Some("http://169.254.169.254/latest/meta-data/spot/instance-action".into()),
            ..config()
        });
        assert_eq!((set.repair, set.max_crashes), (RepairMode::Finished, 7));
        assert!(matches!(set.drain_when, Some(DrainWhen::Http(_))));
        for (text, path) in [("file:/gone", "/gone"), ("file:///gone", "/gone")] {
            assert_eq!(
                DrainWhen::parse(text),
                Ok(DrainWhen::File(path.into())),
                "{text}"
            );
        }
        for (text, cloud, at) in [
            ("aws", Cloud::Aws, "http://169.254.169.254"),
            ("google", Cloud::Google, "http://169.254.169.254"),
            ("azure", Cloud::Azure, "http://169.254.169.254"),
            (
                "azure=http://127.0.0.1:8080/",
                Cloud::Azure,
                "http://127.0.0.1:8080",
            ),
        ] {
            let at = at.into();
            let parsed = DrainWhen::parse(text).expect(text);
            assert_eq!(parsed, DrainWhen::Cloud { cloud, at }, "{text}");
            assert_eq!(parsed.to_string(), text.trim_end_matches('/'));
        }
        for text in [
            "/gone",
            "file:",
            "oracle",
            "AWS",
            "aws=",
            "aws=169.254.169.254",
            "aws=https://example.org",
            "https://example.org/",
            "http://",
            "http:///x",
            "http://a b",
        ] {
            let error = DrainWhen::parse(text).expect_err(text).to_string();
            assert!(error.contains("https is not supported"), "{error}");
        }
        let repair = Config {
            repair: Some("perhaps".into()),
            ..config()
        };
        assert_eq!(
            error(repair),
            "SATIN_REPAIR=\"perhaps\": expected running, finished or naive"
        );
    }

    #[test]
    fn no_pool_without_a_credential() {
        let none = Config {
            credential: None,
            ..config()
        };
        assert!(error(none).contains("satin keygen FILE"));
    }

    #[test]
    fn slurm_needs_a_port() {
        let slurm = |listen: Option<&str>| Config {
            join: Some("slurm".into()),
            listen: listen.map(Into::into),
            ..config()
        };
        assert!(error(slurm(None)).contains("srun"));
        assert!(error(slurm(Some("0.0.0.0:0"))).contains("SATIN_LISTEN"));
        assert_eq!(
            settings(slurm(Some("0.0.0.0:7777"))).join,
            Some(Join::Slurm)
        );
    }
}
