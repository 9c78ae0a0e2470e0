//! The file that lists the machines of a pool: `hosts.toml`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::Spanned;

use crate::sites::is_name;

/// The UDP port of the first node, where the others find the pool, unless the file names another.
pub const LISTEN_PORT: u16 = 7777;

/// The directory on each machine, unless the file names another: relative to the home directory there.
const DIR: &str = ".cache/satin";

/// More machines than that are a slip of the finger; each has a process of `ssh` here.
const HOSTS_MAX: usize = 1024;

/// A machine, with every default filled in but those that are settings of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The destination for `ssh`: a name, an address or an alias of `~/.ssh/config`.
    pub host: String,
    /// The name of the node, which no other of the file has.
    pub name: String,
    /// The site of the node.
    pub site: Option<String>,
    /// Number of its workers.
    pub threads: Option<u32>,
    /// The user at that machine.
    pub user: Option<String>,
    /// The TCP port of its `sshd`.
    pub ssh_port: Option<u16>,
    /// More arguments for `ssh`.
    pub ssh_options: Vec<String>,
    /// The directory in which the program and, while the node runs, the credential are kept there.
    pub dir: String,
    /// The working directory of the program there; the home directory if there is none.
    pub workdir: Option<String>,
    /// The name or address by which other nodes reach this one.
    pub address: Option<String>,
    /// The UDP port of the node.
    pub listen_port: Option<u16>,
    /// The executable for this machine, here, if it is not that of the command line.
    pub program: Option<PathBuf>,
    /// More variables for the environment of the node.
    pub env: BTreeMap<String, String>,
}

/// A fault in the file. Nothing has been started.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}; write the machines of the pool into that file, see `satin launch --help`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no TOML, or has a key that does not exist, or a value of another form.
    #[error("{}: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The parser's error, which shows the line.
        source: Box<toml::de::Error>,
    },
    /// A machine that makes no sense.
    #[error("{}, line {line}: {fault}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, with the machine's `host`.
        line: usize,
        /// The fault, and what to do.
        fault: HostFault,
    },
    /// Too few or too many machines.
    #[error("{} lists {count} machines: expected 1 to {HOSTS_MAX}, each with a line `[[host]]` and a line `host = \"NAME\"`", path.display())]
    Count {
        /// The file.
        path: PathBuf,
        /// Number of machines in the file.
        count: usize,
    },
}

/// The fault of a machine in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostFault {
    /// `ssh` would take it for an option, or it is empty.
    #[error("host = {0:?} is no destination for ssh; use a name, an address, or USER@NAME")]
    Destination(String),
    /// No name for a node or site.
    #[error("{key} = {value:?}: use letters, digits, `-`, `_` and `.`")]
    Name {
        /// The key in the file.
        key: &'static str,
        /// The value in the file.
        value: String,
    },
    /// Two nodes of one name.
    #[error("two nodes are called {0:?}; give each a `name` of its own")]
    Twice(String),
    /// The number of threads is zero.
    #[error("threads = 0: use 1 or more, or leave the line out for all cores of the machine")]
    NoThreads,
    /// An address that other nodes are to be told, without the port.
    #[error(
        "`address` needs `listen_port` as well, except for the first machine, whose port is {LISTEN_PORT}"
    )]
    AddressWithoutPort,
    /// Two nodes of one machine on the same port.
    #[error(
        "another node of {host} has the UDP port {port}; give one of them another `listen_port`"
    )]
    SamePort {
        /// The machine.
        host: String,
        /// The port.
        port: u16,
    },
    /// A variable that the launcher sets itself.
    #[error("env.{0} is set by `satin launch` itself; {1}")]
    Ours(String, &'static str),
    /// No name of a variable.
    #[error("env.{0:?} is no name of a variable: use letters, digits and `_`")]
    Variable(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostsFile {
    #[serde(default)]
    defaults: HostDefaults,
    #[serde(default)]
    host: Vec<HostEntry>,
}

/// A table `[[host]]`: the keys of [`HostDefaults`], and those that make no sense for all machines. (Serde cannot flatten
/// and refuse unknown keys at once.)
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    host: Spanned<String>,
    name: Option<String>,
    address: Option<String>,
    site: Option<String>,
    threads: Option<u32>,
    user: Option<String>,
    ssh_port: Option<u16>,
    ssh_options: Option<Vec<String>>,
    dir: Option<String>,
    workdir: Option<String>,
    listen_port: Option<u16>,
    program: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// The table `[defaults]`: what counts for each machine that says nothing else.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HostDefaults {
    site: Option<String>,
    threads: Option<u32>,
    user: Option<String>,
    ssh_port: Option<u16>,
    ssh_options: Option<Vec<String>>,
    dir: Option<String>,
    workdir: Option<String>,
    listen_port: Option<u16>,
    program: Option<PathBuf>,
    env: BTreeMap<String, String>,
}

/// The machines in that file. The first one's node founds the pool.
///
/// # Errors
/// If the file cannot be read, or makes no sense; the text names the line.
pub fn read(path: &Path) -> Result<Vec<Host>, HostsError> {
    let text = std::fs::read_to_string(path).map_err(|source| HostsError::Unreadable {
        path: path.into(),
        source,
    })?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Host>, HostsError> {
    let HostsFile { defaults, host } = toml::from_str(text).map_err(|source| HostsError::Toml {
        path: path.into(),
        source: Box::new(source),
    })?;
    if !(1..=HOSTS_MAX).contains(&host.len()) {
        return Err(HostsError::Count {
            path: path.into(),
            count: host.len(),
        });
    }
    let base = path.parent().unwrap_or(Path::new(""));
    let mut hosts: Vec<Host> = Vec::with_capacity(host.len());
    let mut taken = TakenNames::default();
    for (index, entry) in host.into_iter().enumerate() {
        let at = entry.host.span().start;
        let fault = |fault| HostsError::Host {
            path: path.into(),
            line: text[..at].matches('\n').count() + 1,
            fault,
        };
        let mut host = entry.with(&defaults, base);
        if index == 0 {
            host.listen_port.get_or_insert(LISTEN_PORT);
        }
        host.check().map_err(fault)?;
        taken.take(&mut host).map_err(fault)?;
        hosts.push(host);
    }
    Ok(hosts)
}

impl HostEntry {
    fn with(self, defaults: &HostDefaults, base: &Path) -> Host {
        let host = self.host.into_inner();
        // The name of the user has its own key, but everybody writes it as for ssh.
        let (user, host) = match host.split_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host.to_owned()),
            None => (None, host),
        };
        let mut env = defaults.env.clone();
        env.extend(self.env);
        let program = self.program.or_else(|| defaults.program.clone());
        Host {
            name: self.name.unwrap_or_default(),
            site: self.site.or_else(|| defaults.site.clone()),
            threads: self.threads.or(defaults.threads),
            user: user.or(self.user).or_else(|| defaults.user.clone()),
            ssh_port: self.ssh_port.or(defaults.ssh_port),
            ssh_options: (self.ssh_options.as_ref())
                .or(defaults.ssh_options.as_ref())
                .cloned()
                .unwrap_or_default(),
            dir: self
                .dir
                .or_else(|| defaults.dir.clone())
                .unwrap_or_else(|| DIR.into()),
            workdir: self.workdir.or_else(|| defaults.workdir.clone()),
            address: self.address,
            listen_port: self.listen_port.or(defaults.listen_port),
            // As of all paths in a file, relative to the file.
            program: program.map(|program| base.join(program)),
            env,
            host,
        }
    }
}

/// Names and ports that machines further up in the file have.
#[derive(Default)]
struct TakenNames {
    names: HashSet<String>,
    numbers: HashMap<String, u32>,
    ports: HashSet<(String, u16)>,
}

impl TakenNames {
    fn take(&mut self, host: &mut Host) -> Result<(), HostFault> {
        if host.name.is_empty() {
            host.name = self.free_name(&host.host);
        }
        if !self.names.insert(host.name.clone()) {
            return Err(HostFault::Twice(host.name.clone()));
        }
        match host.listen_port {
            Some(port) if !self.ports.insert((host.host.clone(), port)) => {
                Err(HostFault::SamePort {
                    host: host.host.clone(),
                    port,
                })
            }
            _ => Ok(()),
        }
    }

    /// The first word of the machine's name, with a number if several are called so.
    fn free_name(&mut self, host: &str) -> String {
        let first = match host.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => host.split('.').next().unwrap_or(host).to_owned(),
        };
        let allowed = |c: char| {
            if is_name(c.encode_utf8(&mut [0; 4])) {
                c
            } else {
                '-'
            }
        };
        let first: String = first.chars().map(allowed).collect();
        loop {
            let number = self.numbers.entry(first.clone()).or_default();
            *number += 1;
            let name = match number {
                1 => first.clone(),
                number => format!("{first}-{number}"),
            };
            if !self.names.contains(&name) {
                return name;
            }
        }
    }
}

/// Variables that the launcher sets, and what to do instead of setting them.
const OURS: [(&str, &str); 9] = [
    (
        "SATIN_JOIN",
        "the first machine of the file founds the pool",
    ),
    ("SATIN_LISTEN", "use `listen_port`"),
    ("SATIN_ADVERTISE", "use `address` and `listen_port`"),
    ("SATIN_NAME", "use `name`"),
    ("SATIN_SITE", "use `site`"),
    (
        "SATIN_NODES",
        "the pool begins when all machines of the file are in",
    ),
    ("SATIN_CREDENTIAL", "use `satin launch --credential`"),
    ("SATIN_EVENTS", "use `satin launch --events`"),
    ("SATIN_EVENTS_SINCE", "use `satin launch --events`"),
];

/// Does the launcher set that variable itself?
pub(super) fn is_ours(variable: &str) -> bool {
    OURS.iter().any(|(ours, _)| variable == *ours)
}

impl Host {
    fn check(&self) -> Result<(), HostFault> {
        let plain = |text: &str| {
            !text.is_empty() && !text.starts_with('-') && text.chars().all(|c| c.is_ascii_graphic())
        };
        if !plain(&self.host) || self.user.as_deref().is_some_and(|user| !plain(user)) {
            return Err(HostFault::Destination(self.destination()));
        }
        let names = [("name", Some(&self.name)), ("site", self.site.as_ref())];
        for (key, value) in names {
            // A node without a name gets one.
            let is_fine = |value: &str| is_name(value) || (key == "name" && value.is_empty());
            let wrong = value.filter(|value| !is_fine(value));
            if let Some(value) = wrong {
                let value = value.clone();
                return Err(HostFault::Name { key, value });
            }
        }
        if self.threads == Some(0) {
            return Err(HostFault::NoThreads);
        }
        if self.address.is_some() && self.listen_port.is_none() {
            return Err(HostFault::AddressWithoutPort);
        }
        self.env.keys().try_for_each(|name| check_variable(name))
    }

    /// What `ssh` is told.
    #[must_use]
    pub fn destination(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.destination())
    }
}

fn check_variable(name: &str) -> Result<(), HostFault> {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.starts_with(begins) || !name.chars().all(goes_on) {
        return Err(HostFault::Variable(name.into()));
    }
    match OURS.iter().find(|(ours, _)| name == *ours) {
        Some((_, instead)) => Err(HostFault::Ours(name.into(), instead)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<Host> {
        parse(Path::new("conf/hosts.toml"), text).expect("hosts")
    }

    fn error(text: &str) -> String {
        let error = parse(Path::new("hosts.toml"), text).expect_err("no hosts");
        error.to_string()
    }

    #[test]
    fn a_name_is_enough() {
        let found = hosts("[[host]]\nhost = \"n1.delft.example\"\n[[host]]\nhost = \"me@n2\"\n");
        assert_eq!(
            [&*found[0].name, &*found[1].name],
            ["n1", "n2"],
            "{found:?}"
        );
        assert_eq!(found[0].listen_port, Some(LISTEN_PORT));
        assert_eq!(found[1].listen_port, None);
        assert_eq!(found[1].destination(), "me@n2");
        assert_eq!(found[0].dir, ".cache/satin");
    }

    #[test]
    fn a_machine_has_its_own_values_and_else_the_defaults() {
        let found = hosts(
            r#"
            [defaults]
            site = "delft"
            user = "me"
            threads = 4
            program = "bin/x86"
            env = { RUST_BACKTRACE = "1", A = "default" }
            [[host]]
            host = "a"
            [[host]]
            host = "b"
            site = "leiden"
            threads = 8
            env = { A = "own" }
            "#,
        );
        assert_eq!(found[0].site.as_deref(), Some("delft"));
        assert_eq!(
            (found[1].site.as_deref(), found[1].threads),
            (Some("leiden"), Some(8))
        );
        assert_eq!(found[1].destination(), "me@b");
        assert_eq!(found[1].program.as_deref(), Some(Path::new("conf/bin/x86")));
        let env: Vec<&str> = found[1].env.values().map(String::as_str).collect();
        assert_eq!(env, ["own", "1"]);
    }

    #[test]
    fn several_nodes_of_one_machine_have_different_names() {
        let found = hosts(
            "[[host]]\nhost = \"a\"\n[[host]]\nhost = \"a.example\"\n[[host]]\nhost = \"::1\"\n",
        );
        let names: Vec<&str> = found.iter().map(|host| &*host.name).collect();
        assert_eq!(names, ["a", "a-2", "--1"]);
    }

    #[test]
    fn errors_name_the_line_and_what_to_do() {
        for (text, expected) in [
            (
                "[[host]]\nhost = \"a\"\nthread = 4\n",
                "unknown field `thread`",
            ),
            ("[[host]]\nhost = \"a\"\nthread = 4\n", "line 3"),
            ("[[host]]\nhost = 7\n", "line 2"),
            ("[[host]\n", "line 1"),
            ("[[host]]\nname = \"a\"\n", "missing field `host`"),
            ("", "lists 0 machines"),
            (
                "[[host]]\n\nhost = \"-oProxyCommand=x\"\n",
                "line 3: host = ",
            ),
            (
                "[[host]]\nhost = \"a\"\nname = \"a b\"\n",
                "line 2: name = \"a b\"",
            ),
            (
                "[[host]]\nhost = \"a\"\nname = \"x\"\n[[host]]\nhost = \"b\"\nname = \"x\"\n",
                "line 5: two nodes",
            ),
            ("[[host]]\nhost = \"a\"\nthreads = 0\n", "threads = 0"),
            (
                "[[host]]\nhost = \"a\"\n[[host]]\nhost = \"b\"\naddress = \"192.0.2.1\"\n",
                "line 4: `address` needs",
            ),
            (
                "[[host]]\nhost = \"a\"\n[[host]]\nhost = \"a\"\nlisten_port = 7777\n",
                "line 4: another node of a",
            ),
            (
                "[[host]]\nhost = \"a\"\nenv = { SATIN_JOIN = \"b:1\" }\n",
                "env.SATIN_JOIN is set by",
            ),
            (
                "[[host]]\nhost = \"a\"\nenv = { \"A=B;\" = \"1\" }\n",
                "no name of a variable",
            ),
        ] {
            let error = error(text);
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.starts_with("hosts.toml"), "{error}");
        }
    }
}
