//! Discovery of the pool: from the words of `SATIN_JOIN` to addresses.
//!
//! Every function here may block, on name servers or on a lock; the network thread calls them from a helper thread, again
//! and again until the node is in: names get addresses, files get lines.
//!
//! **Founding a pool.** All nodes see the addresses in the same order. A node that is on the list may found the
//! pool, if no node on the list is in a pool and no node before it lives; a node that is not on the list only joins. So
//! [`Candidates::join`] holds this node's own address too, in its place. Of the pods of an Indexed Job of Kubernetes that join by a
//! name only the first may found the pool.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    path::{Path, PathBuf},
};

use super::{
    interfaces::{self, Choice},
    settings::{Join, NODES_MAX},
};
use crate::slurm::{self, SlurmTask};

/// The addresses that a look at [`Join`] brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Addresses where the pool may be found. This node's own address is among them if it may found the pool.
    pub join: Vec<SocketAddr>,
    /// Whether this node may found the pool.
    pub may_found: bool,
}

/// Reasons why no node can be found at present.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// No name server knows any of the names now. Worth another try.
    #[error("{names}: no addresses found ({source})")]
    Names {
        /// The names that were looked up.
        names: String,
        /// The last answer of the name server.
        source: io::Error,
    },
    /// The file of `SATIN_JOIN=file:PATH` cannot be used. Nothing in it was changed.
    #[error("cannot join by file:{}: {source}; every node must be able to read and write that file", path.display())]
    File {
        /// The file of addresses.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `SATIN_JOIN=slurm` outside of a Slurm job.
    #[error(
        "cannot join by `slurm`: SLURM_JOB_ID and SLURM_JOB_NODELIST are not set; start the program with srun, and commands that \
         look at its pool in the job too"
    )]
    NoSlurm,
    /// The list of hosts is not one.
    #[error("{list:?} is no list of hosts: {reason}")]
    HostList {
        /// The list of hosts.
        list: String,
        /// The fault in the list.
        reason: &'static str,
    },
    /// No way leads from this machine to any address of the pool. Worth another try: a network may come up.
    #[error("no network route leads from this machine to {names}")]
    NoRoute {
        /// The names or addresses of the pool.
        names: String,
    },
}

impl DiscoveryError {
    /// Whether it may go away by itself: then the node should go on asking, and else give up.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            DiscoveryError::Names { .. } | DiscoveryError::NoRoute { .. }
        )
    }
}

/// Addresses where the pool may be found, for a node that listens on `listening` and tells others to dial `me`. For a
/// file: also makes sure that the file has a line for `me`, so call this only when the socket stands.
///
/// # Errors
/// No node can be found at present.
pub fn addresses(
    join: Option<&Join>,
    listening: SocketAddr,
    me: SocketAddr,
) -> Result<Candidates, DiscoveryError> {
    let found = match join {
        None => {
            return Ok(Candidates {
                join: Vec::new(),
                may_found: true,
            });
        }
        Some(Join::File(path)) => in_file(path, |lines| {
            let known = lines.iter().any(|line| line.parse() == Ok(me));
            if !known {
                lines.push(me.to_string());
            }
        })?,
        Some(join) => resolve(join, listening)?,
    };
    let mut candidates = candidates(found, listening, me);
    if let Some(Join::Dns(..)) = join {
        let index = std::env::var(JOB_INDEX).ok();
        candidates.may_found &= is_first_of_job(index.as_deref());
    }
    Ok(candidates)
}

/// The variable in which Kubernetes tells a pod of an Indexed Job its place among the others.
const JOB_INDEX: &str = "JOB_COMPLETION_INDEX";

/// False for a pod of an Indexed Job of Kubernetes that is not the first. Pods that start at the same moment see each other in the name
/// one after the other, so two of them could found a pool each.
fn is_first_of_job(index: Option<&str>) -> bool {
    index.is_none_or(|index| index == "0")
}

/// Addresses of a pool, for a caller that is no part of it.
///
/// # Errors
/// No node can be found at present.
pub fn look(join: &Join) -> Result<Vec<SocketAddr>, DiscoveryError> {
    match join {
        Join::File(path) => {
            let text = std::fs::read_to_string(path).map_err(|source| DiscoveryError::File {
                path: path.clone(),
                source,
            })?;
            let lines = text.lines();
            Ok(lines.filter_map(|line| line.trim().parse().ok()).collect())
        }
        Join::Slurm => {
            let job = SlurmTask::of_job(&slurm::variable).ok_or(DiscoveryError::NoSlurm)?;
            tasks(&job, job.first_port().ok_or(DiscoveryError::NoSlurm)?, join)
        }
        join => resolve(join, (std::net::Ipv4Addr::UNSPECIFIED, 0).into()),
    }
}

/// The address to bind where the settings name none: any port of the address from which this node reaches the pool. The
/// loopback interface's where the pool is on this machine, as far as is known, or where there is no node to reach yet.
///
/// IPv4 goes before IPv6: a node that listens on all addresses of either is reached by it.
///
/// # Errors
/// If there is no way to the pool at present.
pub fn bind_address(join: Option<&Join>) -> Result<SocketAddr, DiscoveryError> {
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    let found = listed(join, any)?;
    let mut sources: Vec<IpAddr> = (found.iter())
        .filter_map(|addr| interfaces::source_towards(*addr))
        .collect();
    sources.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    let in_file = matches!(join, None | Some(Join::File(_)));
    match (sources.first(), join) {
        (Some(source), _) => Ok((*source, 0).into()),
        // Lines of a file may be of another day, and a node that finds no pool there founds one.
        (None, Some(join)) if !in_file && !found.is_empty() => Err(DiscoveryError::NoRoute {
            names: join.to_string(),
        }),
        _ => Ok((Ipv4Addr::LOCALHOST, 0).into()),
    }
}

/// The address that others are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// The address that other nodes are told.
    pub addr: SocketAddr,
    /// True if no setting says which of this machine's addresses others can dial: a peer that has dialled another address
    /// knows better.
    pub is_guess: bool,
    /// Addresses that a guess could have been too.
    pub others: Vec<IpAddr>,
}

impl From<SocketAddr> for Advertised {
    fn from(addr: SocketAddr) -> Advertised {
        Advertised {
            addr,
            is_guess: false,
            others: Vec::new(),
        }
    }
}

/// The address that others are told, for a node that listens on `listening`: `advertise` if it is set, else the one it
/// listens on. If that stands for all of its addresses: the one on the list of `join`, the one from which it reaches those
/// on the list, or the one that its interfaces suggest.
///
/// # Errors
/// No node on the list can be found at present.
pub fn advertised(
    join: Option<&Join>,
    listening: SocketAddr,
    advertise: Option<SocketAddr>,
) -> Result<Advertised, DiscoveryError> {
    if let Some(addr) = advertise {
        return Ok(addr.into());
    }
    if !listening.ip().is_unspecified() {
        return Ok(listening.into());
    }
    let found = listed(join, listening)?;
    let on_list = found
        .iter()
        .find(|addr| is_mine(**addr, listening, None) && !addr.ip().is_loopback());
    // A node that reaches the pool by the loopback interface shares a machine with a member, but perhaps not with all.
    let by_route = || {
        let can_be_dialled =
            |ip: &IpAddr| !ip.is_loopback() && (listening.is_ipv6() || ip.is_ipv4());
        let sources = found
            .iter()
            .filter_map(|addr| interfaces::source_towards(*addr));
        sources
            .filter(can_be_dialled)
            .map(|ip| SocketAddr::from((ip, listening.port())))
            .next()
    };
    Ok(match on_list.copied().or_else(by_route) {
        Some(addr) => addr.into(),
        None => {
            let Choice { ip, others } = interfaces::own_address(listening.ip());
            Advertised {
                addr: (ip, listening.port()).into(),
                is_guess: true,
                others,
            }
        }
    })
}

/// The addresses on the list of `join`, for a node that listens on `listening`.
fn listed(join: Option<&Join>, listening: SocketAddr) -> Result<Vec<SocketAddr>, DiscoveryError> {
    match join {
        None => Ok(Vec::new()),
        Some(Join::File(path)) => in_file(path, |_| {}),
        Some(join) => resolve(join, listening),
    }
}

/// In the file of `SATIN_JOIN=file:PATH` this node has another address from now on; does nothing for other ways to join.
///
/// # Errors
/// If the file cannot be used.
pub fn rewrite(
    join: Option<&Join>,
    old: SocketAddr,
    new: SocketAddr,
) -> Result<(), DiscoveryError> {
    if let Some(Join::File(path)) = join {
        in_file(path, |lines| {
            for line in lines.iter_mut().filter(|line| line.parse() == Ok(old)) {
                *line = new.to_string();
            }
        })?;
    }
    Ok(())
}

/// Removes the lines of nodes that do not answer from the file of `SATIN_JOIN=file:PATH`, or a node's own when it leaves;
/// does nothing for other ways to join. A node that lives after all appends itself again when it looks the next time.
///
/// # Errors
/// If the file cannot be used.
pub fn forget(join: Option<&Join>, gone: &[SocketAddr]) -> Result<(), DiscoveryError> {
    if let Some(Join::File(path)) = join
        && path.exists()
    {
        in_file(path, |lines| {
            lines.retain(|line| !line.parse().is_ok_and(|addr| gone.contains(&addr)));
        })?;
    }
    Ok(())
}

fn candidates(found: Vec<SocketAddr>, listening: SocketAddr, me: SocketAddr) -> Candidates {
    let mut seen = BTreeSet::new();
    let join: Vec<SocketAddr> = found
        .into_iter()
        .map(|addr| {
            if is_mine(addr, listening, Some(me)) {
                me
            } else {
                addr
            }
        })
        .filter(|addr| seen.insert(*addr))
        .take(NODES_MAX as usize)
        .collect();
    Candidates {
        may_found: join.contains(&me),
        join,
    }
}

/// Whether a datagram to `addr` would come back to this node.
fn is_mine(addr: SocketAddr, listening: SocketAddr, me: Option<SocketAddr>) -> bool {
    Some(addr) == me
        || addr == listening
        || (addr.port() == listening.port()
            && listening.ip().is_unspecified()
            && is_local(addr.ip()))
}

/// True for an address of this machine: no other can be bound to.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

fn resolve(join: &Join, listening: SocketAddr) -> Result<Vec<SocketAddr>, DiscoveryError> {
    match join {
        Join::Hosts(hosts) => resolve_all(hosts.iter().map(String::as_str), join),
        Join::Dns(name, port) => {
            let name = format!("{name}:{port}");
            let mut found = resolve_all([name.as_str()], join)?;
            // Name servers give the addresses in any order, and we need the same on all nodes.
            found.sort_unstable();
            Ok(found)
        }
        Join::Slurm => {
            let task = SlurmTask::of_step(&slurm::variable).ok_or(DiscoveryError::NoSlurm)?;
            tasks(&task, task.first_of(listening.port()), join)
        }
        Join::File(_) => Ok(Vec::new()),
    }
}

/// The addresses of all tasks, where the first one of each machine listens on the port `first`.
fn tasks(task: &SlurmTask, first: u16, join: &Join) -> Result<Vec<SocketAddr>, DiscoveryError> {
    let machines = expand_hosts(&task.machines)?;
    let names = machines.iter().enumerate().flat_map(|(number, host)| {
        let ports = task.ports(number, first);
        ports.map(move |port| format!("{host}:{port}"))
    });
    let names: Vec<String> = names.take(NODES_MAX as usize).collect();
    resolve_all(names.iter().map(String::as_str), join)
}

/// The addresses of all names, in the order of the names. Names without an address are passed over if any has one.
fn resolve_all<'a>(
    names: impl IntoIterator<Item = &'a str>,
    join: &Join,
) -> Result<Vec<SocketAddr>, DiscoveryError> {
    let mut found = Vec::new();
    let mut failure = None;
    for name in names {
        match name.to_socket_addrs() {
            Ok(addrs) => found.extend(addrs),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(source) if found.is_empty() => Err(DiscoveryError::Names {
            names: join.to_string(),
            source,
        }),
        _ => Ok(found),
    }
}

/// Changes the lines of a file under a lock, and says which addresses are in it then. The file is made if need be.
fn in_file(
    path: &Path,
    change: impl FnOnce(&mut Vec<String>),
) -> Result<Vec<SocketAddr>, DiscoveryError> {
    let inner = || -> io::Result<Vec<SocketAddr>> {
        let mut file: File = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut lines: Vec<String> = text.lines().map(|line| line.trim().into()).collect();
        lines.retain(|line: &String| !line.is_empty());
        let before = lines.clone();
        change(&mut lines);
        if lines != before {
            let mut text = lines.join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            // A reader takes the lock too, so the file is never seen half written.
            file.rewind()?;
            file.set_len(0)?;
            file.write_all(text.as_bytes())?;
        }
        file.unlock()?;
        Ok(lines.iter().filter_map(|line| line.parse().ok()).collect())
    };
    inner().map_err(|source| DiscoveryError::File {
        path: path.into(),
        source,
    })
}

/// The names in a list of hosts in Slurm's notation: `login,gpu[1-3,7],rack[1-2]n[01-16]`. Numbers keep their leading
/// zeros.
///
/// # Errors
/// If the list is malformed, or names more hosts than a pool may have nodes.
pub fn expand_hosts(list: &str) -> Result<Vec<String>, DiscoveryError> {
    let error = |reason| DiscoveryError::HostList {
        list: list.into(),
        reason,
    };
    let mut hosts = Vec::new();
    let mut rest = list.trim();
    loop {
        let (pattern, after) =
            split_pattern(rest).ok_or_else(|| error("a bracket is left open"))?;
        let names = expand_pattern(pattern.trim()).map_err(error)?;
        hosts.extend(names);
        if hosts.len() > NODES_MAX as usize {
            return Err(error("more than 65536 hosts"));
        }
        match after {
            Some(after) => rest = after,
            None => return Ok(hosts),
        }
    }
}

/// Up to the first comma outside of brackets, and what follows it.
fn split_pattern(list: &str) -> Option<(&str, Option<&str>)> {
    let mut open = false;
    for (at, c) in list.char_indices() {
        match c {
            '[' => open = true,
            ']' => open = false,
            ',' if !open => return Some((&list[..at], Some(&list[at + 1..]))),
            _ => {}
        }
    }
    (!open).then_some((list, None))
}

fn expand_pattern(pattern: &str) -> Result<Vec<String>, &'static str> {
    if pattern.is_empty() {
        return Err("a name is empty");
    }
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((text, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']').ok_or("a bracket is left open")?;
        let numbers = expand_ranges(ranges)?;
        if names.len().saturating_mul(numbers.len()) > NODES_MAX as usize {
            return Err("more than 65536 hosts");
        }
        names = names
            .iter()
            .flat_map(|name| {
                numbers
                    .iter()
                    .map(move |number| format!("{name}{text}{number}"))
            })
            .collect();
        rest = after;
    }
    if rest.contains(']') {
        return Err("a bracket is closed that was not open");
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// Writes ranges such as `1-3,7` or `001-016` out as numbers.
fn expand_ranges(ranges: &str) -> Result<Vec<String>, &'static str> {
    const NUMBER: &str = "a range is not of the form 3 or 3-7";
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(from) || !digits(to) {
            return Err(NUMBER);
        }
        let width = from.len();
        let (from, to): (u64, u64) = (
            from.parse().map_err(|_| NUMBER)?,
            to.parse().map_err(|_| NUMBER)?,
        );
        if to < from {
            return Err("a range ends before it begins");
        }
        if to - from >= u64::from(NODES_MAX) || numbers.len() > NODES_MAX as usize {
            return Err("more than 65536 hosts");
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn local(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn hosts(list: &[&str]) -> Join {
        Join::Hosts(list.iter().map(|host| (*host).into()).collect())
    }

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path =
                std::env::temp_dir().join(format!("satin-join-{}-{name}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            Scratch(path)
        }
        fn text(&self) -> String {
            std::fs::read_to_string(&self.0).expect("readable")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn who_has_no_one_to_join_founds() {
        let found = addresses(None, local(5), local(5)).expect("nothing to look up");
        assert_eq!((found.join, found.may_found), (vec![], true));
    }

    #[test]
    fn of_an_indexed_job_only_the_first_pod_may_found() {
        for (index, may) in [
            (None, true),
            (Some("0"), true),
            (Some("1"), false),
            (Some("10"), false),
        ] {
            assert_eq!(is_first_of_job(index), may, "{index:?}");
        }
    }

    #[test]
    fn only_who_is_on_the_list_may_found_and_finds_itself_in_its_place() {
        let list = hosts(&["127.0.0.1:5", "127.0.0.1:6", "127.0.0.1:5"]);
        let found = addresses(Some(&list), local(6), local(6)).expect("addresses");
        assert_eq!(found.join, [local(5), local(6)]);
        assert!(found.may_found);
        let found = addresses(Some(&list), local(7), local(7)).expect("addresses");
        assert_eq!(found.join, [local(5), local(6)]);
        assert!(!found.may_found);
    }

    #[test]
    fn an_address_of_this_machine_is_me_if_i_listen_on_all() {
        let everywhere: SocketAddr = ([0, 0, 0, 0], 6).into();
        let told: SocketAddr = ([192, 0, 2, 1], 6).into();
        let list = hosts(&["192.0.2.9:6", "127.0.0.1:6"]);
        let found = addresses(Some(&list), everywhere, told).expect("addresses");
        assert_eq!(found.join, [([192, 0, 2, 9], 6).into(), told]);
        assert!(found.may_found);
    }

    #[test]
    fn names_that_nobody_knows_are_a_temporary_error() {
        let list = hosts(&["name.invalid:7"]);
        let error = addresses(Some(&list), local(5), local(5)).expect_err("no such name");
        assert!(error.is_temporary());
        assert!(
            error
                .to_string()
                .starts_with("name.invalid:7: no addresses found")
        );
        let list = hosts(&["name.invalid:7", "127.0.0.1:7"]);
        let found = addresses(Some(&list), local(5), local(5)).expect("one of two");
        assert_eq!(found.join, [local(7)]);
    }

    #[test]
    fn names_have_their_addresses_in_the_same_order_everywhere() {
        let join = Join::Dns("localhost".into(), 9);
        let found = addresses(Some(&join), local(5), local(5)).expect("localhost");
        assert!(found.join.contains(&local(9)) && found.join.is_sorted());
    }

    #[test]
    fn what_others_are_told() {
        let everywhere: SocketAddr = ([0, 0, 0, 0], 6).into();
        let told: SocketAddr = ([192, 0, 2, 1], 7).into();
        let known =
            |join, listening, advertise| advertised(join, listening, advertise).expect("known");
        assert_eq!(known(None, local(5), None), local(5).into());
        assert_eq!(known(None, everywhere, Some(told)), told.into());
    }

    /// A founder, a node beside others in a file, and a node that joins on the same machine: others may come from another
    /// machine.
    #[test]
    fn who_listens_everywhere_tells_an_address_of_an_interface() {
        let everywhere: SocketAddr = ([0, 0, 0, 0], 6).into();
        let file = Scratch::new("everywhere");
        let expected = interfaces::own_address(everywhere.ip());
        for join in [
            None,
            Some(Join::File(file.0.clone())),
            Some(hosts(&["127.0.0.1:9"])),
        ] {
            let told = advertised(join.as_ref(), everywhere, None).expect("known");
            assert_eq!(told.addr, (expected.ip, 6).into());
            assert_eq!((told.is_guess, &told.others), (true, &expected.others));
        }
    }

    #[test]
    fn who_names_no_address_listens_on_the_way_to_the_pool() {
        let bound = |join: Option<&Join>| bind_address(join).expect("known");
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        assert_eq!(bound(None), loopback);
        assert_eq!(bound(Some(&hosts(&["127.0.0.1:9"]))), loopback);
        assert_eq!(bound(Some(&Join::Dns("localhost".into(), 9))), loopback);
        let file = Scratch::new("bound");
        assert_eq!(bound(Some(&Join::File(file.0.clone()))), loopback);
        // On a machine with a network, the way to another machine does not begin at the loopback interface.
        let there = interfaces::source_towards(([192, 0, 2, 200], 9).into());
        let mixed = hosts(&["127.0.0.1:9", "192.0.2.200:9"]);
        let expected = there.map_or(loopback, |ip| (ip, 0).into());
        assert_eq!(bound(Some(&mixed)), expected);
        std::fs::write(&file.0, "192.0.2.200:9\n").expect("written");
        assert_eq!(bound(Some(&Join::File(file.0.clone()))), expected);
    }

    #[test]
    fn a_line_of_a_file_gets_another_address() {
        let file = Scratch::new("rewritten");
        let join = Join::File(file.0.clone());
        for port in 1..=2 {
            addresses(Some(&join), local(port), local(port)).expect("appended");
        }
        rewrite(Some(&join), local(1), local(7)).expect("written");
        assert_eq!(file.text(), "127.0.0.1:7\n127.0.0.1:2\n");
    }

    #[test]
    fn a_file_gets_a_line_for_each_node_and_the_first_line_comes_first() {
        let file = Scratch::new("lines");
        let join = Join::File(file.0.clone());
        let first = addresses(Some(&join), local(1), local(1)).expect("made");
        assert_eq!((first.join, first.may_found), (vec![local(1)], true));
        let second = addresses(Some(&join), local(2), local(2)).expect("read");
        assert_eq!(second.join, [local(1), local(2)]);
        addresses(Some(&join), local(2), local(2)).expect("read");
        assert_eq!(file.text(), "127.0.0.1:1\n127.0.0.1:2\n");
    }

    #[test]
    fn lines_of_the_dead_are_removed_and_the_living_come_back() {
        let file = Scratch::new("dead");
        let join = Join::File(file.0.clone());
        for port in 1..=3 {
            addresses(Some(&join), local(port), local(port)).expect("appended");
        }
        forget(Some(&join), &[local(1), local(2)]).expect("removed");
        assert_eq!(file.text(), "127.0.0.1:3\n");
        let found = addresses(Some(&join), local(2), local(2)).expect("appended");
        assert_eq!(found.join, [local(3), local(2)]);
        forget(Some(&join), &[local(2), local(3)]).expect("removed");
        assert_eq!(file.text(), "");
    }

    #[test]
    fn a_file_with_other_words_in_it_is_no_obstacle() {
        let file = Scratch::new("words");
        std::fs::write(&file.0, "# the pool of Friday\n\n127.0.0.1:1\nhalf a li").expect("written");
        let join = Join::File(file.0.clone());
        let found = addresses(Some(&join), local(2), local(2)).expect("appended");
        assert_eq!(found.join, [local(1), local(2)]);
        assert!(file.text().ends_with("half a li\n127.0.0.1:2\n"));
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error_that_says_so() {
        let join = Join::File("/nonexistent/pool".into());
        let error = addresses(Some(&join), local(2), local(2)).expect_err("no directory");
        assert!(!error.is_temporary());
        assert!(
            error
                .to_string()
                .starts_with("cannot join by file:/nonexistent/pool: ")
        );
    }

    #[test]
    fn many_nodes_append_themselves_at_once() {
        const NODES: u16 = 16;
        let file = Scratch::new("many");
        let join = &Join::File(file.0.clone());
        let founders: usize = std::thread::scope(|scope| {
            let nodes: Vec<_> = (1..=NODES)
                .map(|port| {
                    scope.spawn(move || {
                        let found = addresses(Some(join), local(port), local(port));
                        found.expect("appended").join[0] == local(port)
                    })
                })
                .collect();
            nodes
                .into_iter()
                .map(|node| usize::from(node.join().expect("no panic")))
                .sum()
        });
        assert_eq!(founders, 1, "one node sees itself first");
        assert_eq!(file.text().lines().count(), usize::from(NODES));
    }

    #[test]
    fn lists_of_hosts() {
        let expand = |list| expand_hosts(list).expect("a list");
        assert_eq!(expand("login"), ["login"]);
        assert_eq!(
            expand("a,gpu[1-3,7],b"),
            ["a", "gpu1", "gpu2", "gpu3", "gpu7", "b"]
        );
        assert_eq!(expand("n[08-10]"), ["n08", "n09", "n10"]);
        assert_eq!(
            expand("n[098-101].x"),
            ["n098.x", "n099.x", "n100.x", "n101.x"]
        );
        assert_eq!(expand("r[1-2]n[1-2]"), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        for wrong in [
            "",
            ",",
            "a,",
            "a[",
            "a]",
            "a[]",
            "a[1-]",
            "a[2-1]",
            "a[x]",
            "a[1][",
            "a[1-99999999]",
            "a[1-999]b[1-999]",
            "a[99999999999999999999999]",
            "a[-1]",
            "a[1,,2]",
        ] {
            assert!(expand_hosts(wrong).is_err(), "{wrong}");
        }
    }

    /// A piece of a pattern, and what it stands for.
    fn piece() -> impl Strategy<Value = (String, Vec<String>)> {
        let text = "[a-z.-]{1,4}".prop_map(|text| (text.clone(), vec![text]));
        let range = (0..200_u64, 0..9_u64, 1..5_usize).prop_map(|(from, more, width)| {
            let to = from + more;
            let width = format!("{from:0width$}").len();
            let text = format!("{from:0width$}-{to:0width$}");
            let names: Vec<String> = (from..=to).map(|n| format!("{n:0width$}")).collect();
            (text, names)
        });
        let ranges = prop::collection::vec(range, 1..3).prop_map(|ranges| {
            let text: Vec<_> = ranges.iter().map(|range| range.0.clone()).collect();
            let names = ranges.into_iter().flat_map(|range| range.1).collect();
            (format!("[{}]", text.join(",")), names)
        });
        prop_oneof![text, ranges]
    }

    proptest! {
        #[test]
        fn expansion_is_the_inverse_of_writing(
            patterns in prop::collection::vec(prop::collection::vec(piece(), 1..4), 1..4)
        ) {
            let text: Vec<String> = patterns
                .iter()
                .map(|pieces| pieces.iter().map(|piece| piece.0.as_str()).collect())
                .collect();
            let mut expected = Vec::new();
            for pieces in &patterns {
                let mut names = vec![String::new()];
                for (_, alternatives) in pieces {
                    names = names
                        .iter()
                        .flat_map(|name| alternatives.iter().map(move |more| format!("{name}{more}")))
                        .collect();
                }
                expected.extend(names);
            }
            prop_assert_eq!(expand_hosts(&text.join(",")).expect("a list"), expected);
        }

        #[test]
        fn no_text_makes_it_panic(text in r"[a-c0-9,\[\]é-]{0,24}") {
            if let Ok(hosts) = expand_hosts(&text) {
                prop_assert!(hosts.iter().all(|host| !host.is_empty()));
            }
        }
    }
}
