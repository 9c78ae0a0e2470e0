//! Pools on machines that the system's `ssh` reaches.
//!
//! First each machine is looked at and gets the program, all at once; if one of them cannot be used, nothing starts.
//! Then the first machine's node founds the pool, and the others join it. Each node is the child of a shell there, at
//! the other end of an `ssh` of ours: it ends if that connection ends, and its credential goes with it.
//!
//! * [`hosts`]: the file that lists the machines.
//! * [`program`]: the executable.
//! * [`script`]: what the machines are told to do.
//! * [`ssh`]: how they are told.
//! * [`pool`]: the pool while it runs.

use std::{
    collections::HashMap, ffi::OsString, fmt::Write as _, net::IpAddr, path::PathBuf, sync::Mutex,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use satin_runtime::{config::Form, net::Credential};

use self::{
    hosts::{Host, LISTEN_PORT},
    program::LocalProgram,
    script::NodeScript,
    ssh::SshError,
};
use crate::store::{self, STORE};

pub mod hosts;
pub mod pool;
pub mod program;
pub mod script;
pub mod ssh;

/// A plan of a pool: the machines, the program, and how the pool is run.
#[derive(Clone, Debug)]
pub struct LaunchPlan {
    /// The machines. The first one's node founds the pool.
    pub hosts: Vec<Host>,
    /// The program, and its arguments.
    pub program: Vec<OsString>,
    /// The pool's credential file; `None`: with a store the user's, else a new one, which goes with the pool.
    pub credential: Option<PathBuf>,
    /// Events are written to this file, which is made anew.
    pub events: Option<PathBuf>,
    /// Is the program removed from the machines when the pool has ended?
    pub clean: bool,
}

/// A plan that is known to be sound here: the machines have not been asked yet.
pub struct Launch {
    nodes: Vec<PlannedNode>,
    arguments: Vec<String>,
    credential: String,
    events: Option<PathBuf>,
    clean: bool,
    grace_s: u64,
    /// Where the others find the first node.
    join: String,
}

struct PlannedNode {
    host: Host,
    program: LocalProgram,
    env: Vec<(String, String)>,
}

/// Machines that are asked at the same time. Too few: many machines take long. Too many: the copies share the way out of this
/// machine, and connections time out.
const AT_ONCE: usize = 16;

/// The grace of nodes where no setting says otherwise, in seconds.
const GRACE_S: u64 = satin_runtime::net::settings::GRACE.as_secs();

impl Launch {
    /// Reads what is needed here.
    ///
    /// # Errors
    /// If a program, the credential or an address cannot be found. No machine has been asked.
    pub fn new(plan: LaunchPlan) -> Result<Launch> {
        let (program, arguments) = plan.program.split_first().context("no program")?;
        let arguments = arguments.iter().map(|word| {
            let text = word.to_str().map(str::to_owned);
            text.with_context(|| format!("the argument {} is not UTF-8", word.display()))
        });
        let arguments = arguments.collect::<Result<Vec<String>>>()?;
        let inherited = script::inherited();
        let first = plan.hosts.first().context("no machine")?;
        let address = match &first.address {
            Some(address) => address.clone(),
            None => ssh::address(first)?,
        };
        let port = first.listen_port.unwrap_or(LISTEN_PORT);
        let join = host_and_port(&address, port);
        let count = plan.hosts.len();
        let mut programs = HashMap::new();
        let mut nodes = Vec::with_capacity(count);
        for (index, host) in plan.hosts.into_iter().enumerate() {
            let path = match &host.program {
                Some(path) => path.clone().into_os_string(),
                None => program.clone(),
            };
            let program = match programs.get(&path) {
                Some(program) => LocalProgram::clone(program),
                None => {
                    let program = LocalProgram::read(&path)?;
                    programs.insert(path, program.clone());
                    program
                }
            };
            let mut env = inherited.clone();
            env.extend(variables(&host, index, count, &address, &join));
            env.extend(host.env.clone());
            nodes.push(PlannedNode { host, program, env });
        }
        ensure_one_pool(&nodes)?;
        let grace = inherited.iter().find(|(name, _)| name == "SATIN_GRACE");
        let grace = grace.and_then(|(_, text)| <Duration as Form>::read(text));
        let grace_s = grace.map(|grace| grace.as_secs_f64().ceil() as u64);
        Ok(Launch {
            nodes,
            arguments,
            credential: credential(plan.credential, &inherited)?,
            events: plan.events,
            clean: plan.clean,
            grace_s: grace_s.unwrap_or(GRACE_S),
            join,
        })
    }

    /// The commands that would run, and what they would send, for people to read.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut text = String::new();
        let mut add = |title: &str, host: &Host, script: &str, shown: &str| {
            let _ = writeln!(
                text,
                "# {title}\n{} <<'END'\n{shown}END\n",
                ssh::shown(host, script)
            );
        };
        for node in &self.nodes {
            let PlannedNode { host, program, .. } = node;
            let LocalProgram { hash, name, .. } = program;
            let length = program.bytes.len();
            let probe = script::probe(host, hash, name);
            add(&format!("{}: look", host.name), host, &probe, &probe);
            let copy = script::copy(host, hash, name, length);
            let path = program.path.display();
            let then = format!(
                "{}: unless it is there, copy {path}, whose {length} bytes follow",
                host.name
            );
            add(&then, host, &copy, &copy);
            let script = self.script(node);
            add(
                &format!("{}: run the node", host.name),
                host,
                &script.text(),
                &script.shown(),
            );
        }
        text
    }

    fn script<'a>(&'a self, node: &'a PlannedNode) -> NodeScript<'a> {
        NodeScript {
            host: &node.host,
            hash: &node.program.hash,
            program: &node.program.name,
            arguments: &self.arguments,
            env: &node.env,
            credential: &self.credential,
            clean: self.clean,
            grace_s: self.grace_s,
        }
    }

    /// Looks at all machines and copies the program to those that do not have it; `tell` hears of each copy.
    ///
    /// # Errors
    /// If a machine cannot be used; the text names all of them. No node has been started.
    pub fn prepare(&self, tell: impl Fn(&str) + Sync) -> Result<()> {
        let queue = Mutex::new(self.nodes.iter());
        let faults = Mutex::new(Vec::new());
        let next = || queue.lock().expect("nobody panics with it").next();
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(self.nodes.len()) {
                scope.spawn(|| {
                    while let Some(node) = next() {
                        if let Err(fault) = node.prepare(&tell) {
                            faults.lock().expect("nobody panics with it").push(fault);
                        }
                    }
                });
            }
        });
        let faults = faults.into_inner().expect("nobody panics with it");
        let words: Vec<String> = faults.iter().map(|fault| format!("{fault:#}")).collect();
        match &words[..] {
            [] => Ok(()),
            [one] => bail!("{one}; nothing has been started"),
            all => bail!(
                "{} of {} machines cannot be used, and nothing has been started:\n  {}",
                all.len(),
                self.nodes.len(),
                all.join("\n  ")
            ),
        }
    }
}

impl Launch {
    /// Removes the program, if that is wanted, from the machines on which no node was started: the others have done it themselves. A
    /// machine that cannot be reached any more keeps it.
    fn clean_without_node(&self, started: usize) {
        for node in self.nodes.iter().skip(started).filter(|_| self.clean) {
            let script = script::remove(&node.host, &node.program.hash);
            let _ = ssh::run(&node.host, &script, &[]);
        }
    }
}

impl PlannedNode {
    fn prepare(&self, tell: &impl Fn(&str)) -> Result<()> {
        let PlannedNode { host, program, .. } = self;
        let LocalProgram { hash, name, .. } = program;
        let said = ssh::run(host, &script::probe(host, hash, name), &[])?;
        let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key));
        let machine = value("machine ").unwrap_or("of an unknown kind");
        if !program.runs_on(machine) {
            let built = program.machine.unwrap_or("another kind");
            bail!(
                "{host}: is {machine}, and {} was built for {built}; build it for {machine} too, and name that executable as \
                 `program` of this machine in the file of hosts",
                program.path.display()
            );
        }
        match value("program ") {
            Some("there") => Ok(()),
            Some(_) => {
                let bytes = &program.bytes;
                ssh::run(host, &script::copy(host, hash, name, bytes.len()), bytes)?;
                let size = crate::stats::bytes(bytes.len() as u64);
                tell(&format!("copied {name} ({size}) to {host}"));
                Ok(())
            }
            None => Err(SshError::Other {
                host: host.to_string(),
                command: "ssh".into(),
                said: "the machine runs commands, but prints nothing of them; its shell is no POSIX shell?".into(),
            }
            .into()),
        }
    }
}

/// All nodes must run programs of one name: it is the name of the pool, unless a setting says otherwise.
fn ensure_one_pool(nodes: &[PlannedNode]) -> Result<()> {
    let first = &nodes[0];
    let is_named = |node: &PlannedNode| node.env.iter().any(|(name, _)| name == "SATIN_POOL");
    for node in nodes {
        ensure!(
            node.program.name == first.program.name || nodes.iter().all(is_named),
            "the programs for {} and {} have different names, and a pool is called as its program: give the files the same \
             name, or set SATIN_POOL",
            first.host,
            node.host
        );
    }
    Ok(())
}

/// A host and a port, as `SATIN_JOIN` has them.
fn host_and_port(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

/// The settings of a node that make it one of this pool.
fn variables(
    host: &Host,
    index: usize,
    count: usize,
    first: &str,
    join: &str,
) -> Vec<(String, String)> {
    let mut variables = vec![
        ("SATIN_NAME", host.name.clone()),
        ("SATIN_NODES", count.to_string()),
    ];
    let mut set = |name, value: Option<String>| variables.extend(value.map(|value| (name, value)));
    set("SATIN_SITE", host.site.clone());
    set(
        "SATIN_THREADS",
        host.threads.map(|threads| threads.to_string()),
    );
    set("SATIN_JOIN", (index > 0).then(|| join.to_owned()));
    let own = host.address.as_deref().or((index == 0).then_some(first));
    let ip = own.and_then(|own| own.parse::<IpAddr>().ok());
    if let Some(port) = host.listen_port {
        let is_loopback = own == Some("localhost") || ip.is_some_and(|ip| ip.is_loopback());
        let all = match (is_loopback, ip) {
            (true, Some(ip)) => ip.to_string(),
            (true, None) => "127.0.0.1".into(),
            (false, Some(IpAddr::V6(_))) => "::".into(),
            (false, _) => "0.0.0.0".into(),
        };
        set("SATIN_LISTEN", Some(host_and_port(&all, port)));
        // An address in the file is meant for the others; one that `ssh` dials need not be.
        let told = ip.filter(|_| host.address.is_some() && !is_loopback);
        set(
            "SATIN_ADVERTISE",
            told.map(|ip| host_and_port(&ip.to_string(), port)),
        );
    }
    let own = |(name, value): (&str, String)| (name.to_owned(), value);
    variables.into_iter().map(own).collect()
}

/// The text of the credential file.
fn credential(given: Option<PathBuf>, inherited: &[(String, String)]) -> Result<String> {
    let has_store = |(name, value): &(String, String)| name == STORE && !value.is_empty();
    let file = match given {
        Some(file) => Some(file),
        None if inherited.iter().any(has_store) => Some(store::credential(None)?),
        None => None,
    };
    let Some(file) = file else {
        return Ok(Credential::generate()?);
    };
    // What is wrong with the file is told before anything starts.
    Credential::load(&file)?;
    std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

/// Time in which a node that is told to end twice ends before it is killed. Too short: nodes are killed that would end.
/// Too long: the command hangs.
pub(crate) const TOLD: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("hosts.toml");
        std::fs::write(&file, format!("[[host]]\n{text}")).expect("written");
        hosts::read(&file).expect("hosts").remove(0)
    }

    fn value(variables: &[(String, String)], name: &str) -> Option<String> {
        let found = variables.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.clone())
    }

    #[test]
    fn the_first_node_founds_and_the_others_join_it() {
        let first = host("host = \"n1\"\nsite = \"delft\"");
        let set = variables(&first, 0, 3, "n1.example", "n1.example:7777");
        assert_eq!(value(&set, "SATIN_LISTEN").as_deref(), Some("0.0.0.0:7777"));
        assert_eq!(value(&set, "SATIN_JOIN"), None);
        assert_eq!(value(&set, "SATIN_SITE").as_deref(), Some("delft"));
        let mut other = host("host = \"n2\"\nthreads = 4");
        other.listen_port = None;
        let set = variables(&other, 1, 3, "n1.example", "n1.example:7777");
        assert_eq!(
            value(&set, "SATIN_JOIN").as_deref(),
            Some("n1.example:7777")
        );
        assert_eq!(value(&set, "SATIN_LISTEN"), None);
        assert_eq!(value(&set, "SATIN_THREADS").as_deref(), Some("4"));
        assert_eq!(value(&set, "SATIN_NODES").as_deref(), Some("3"));
    }

    #[test]
    fn an_address_of_the_file_is_told_to_the_others() {
        let first = host("host = \"n1\"\naddress = \"192.0.2.1\"\nlisten_port = 9");
        let set = variables(&first, 0, 1, "192.0.2.1", "192.0.2.1:9");
        assert_eq!(
            value(&set, "SATIN_ADVERTISE").as_deref(),
            Some("192.0.2.1:9")
        );
        let far = host("host = \"n1\"\naddress = \"2001:db8::1\"");
        let set = variables(&far, 0, 1, "2001:db8::1", "");
        assert_eq!(value(&set, "SATIN_LISTEN").as_deref(), Some("[::]:7777"));
        assert_eq!(
            value(&set, "SATIN_ADVERTISE").as_deref(),
            Some("[2001:db8::1]:7777")
        );
        // What `ssh` dials may be the address of a translator.
        let set = variables(&host("host = \"192.0.2.1\""), 0, 1, "192.0.2.1", "");
        assert_eq!(value(&set, "SATIN_ADVERTISE"), None);
        let set = variables(&host("host = \"localhost\""), 0, 1, "localhost", "");
        assert_eq!(
            value(&set, "SATIN_LISTEN").as_deref(),
            Some("127.0.0.1:7777")
        );
    }
}
