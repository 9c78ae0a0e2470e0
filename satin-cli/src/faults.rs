//! Faults that happen to a pool while it runs: nodes are killed, stopped and drained, others join, links break.
//!
//! Times count from the moment when all nodes of the plan are in. That is when work begins (nodes are told to wait for
//! each other), so the same schedule hits the same work each time, however long the start took.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    sites::{Sites, is_name},
    units,
    wan::Cut,
};

/// A fault, and its time.
///
/// As text it is what the flags of `satin run` say: `kill amsterdam-1@3s`, `kill all@5s`, `stop master@3s..9s`,
/// `drain delft@3s`, `join delft@5s`, `partition amsterdam|delft@4s..9s`, `partition amsterdam|delft@4s..9s reject`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// When, counted from the moment when all nodes of the plan are in.
    pub at: Duration,
    /// The kind of fault, and the nodes or sites that it concerns.
    pub what: What,
}

/// A kind of fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// SIGKILL: as if the power were gone.
    Kill(Who),
    /// SIGKILL of every process of the pool at once: the run is over. A store keeps what the nodes had finished.
    KillAll,
    /// SIGSTOP, and SIGCONT later: as if the machine paused. Without an end it is continued only to be ended with the pool.
    Stop(Who, Option<Duration>),
    /// SIGTERM: it is asked to leave, and hands over what it has.
    Drain(Who),
    /// A node is started at that site, which may be new.
    Join(String),
    /// No datagram passes between these two sites any more, until then, or to the end.
    Partition(String, String, Option<Duration>, Cut),
}

/// The nodes that a fault concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// The node that runs `main` at that moment.
    Master,
    /// The node of that name, or all nodes of that site that run at that moment.
    Named(String),
}

/// The word for every node of a pool.
const ALL: &str = "all";

impl What {
    fn until(&self) -> Option<Duration> {
        match self {
            What::Stop(_, until) | What::Partition(_, _, until, _) => *until,
            What::Kill(_) | What::KillAll | What::Drain(_) | What::Join(_) => None,
        }
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Fault> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        let form = match verb {
            "kill" => "NODE@TIME or all@TIME, such as amsterdam-1@3s",
            "stop" => "NODE@TIME or NODE@FROM..TO, such as amsterdam-1@3s..9s",
            "drain" => "NODE@TIME or SITE@TIME, such as amsterdam@3s",
            "join" => "SITE@TIME, such as delft@5s",
            "partition" => {
                "SITE|SITE@FROM..TO, such as 'amsterdam|delft@4s..9s' or 'amsterdam|delft@4s..9s reject'"
            }
            _ => bail!("expected kill, stop, drain, join or partition, not `{verb}`"),
        };
        let expected = || format!("expected {form}, not `{rest}`");
        let (whom, times) = rest.rsplit_once('@').with_context(expected)?;
        let (times, cut) = match times.trim().rsplit_once(' ') {
            Some((times, "reject")) if verb == "partition" => (times, Cut::Reject),
            _ => (times, Cut::Silence),
        };
        let (from, to) = match times.split_once("..") {
            Some((from, to)) => (from, Some(to)),
            None => (times, None),
        };
        let time = |text: &str| {
            let time = units::duration(text).map_err(anyhow::Error::msg);
            if verb == "partition" {
                return time.with_context(expected);
            }
            time
        };
        let at = time(from)?;
        let until = to.map(time).transpose()?;
        let has_end = matches!(verb, "stop" | "partition");
        ensure!(until.is_none() || has_end, expected());
        if let (Some(until), Some(to)) = (until, to) {
            ensure!(at < until, "`{rest}` ends ({to}) before it begins ({from})");
        }
        let name = |text: &str| {
            let text = text.trim();
            is_name(text)
                .then(|| text.to_owned())
                .with_context(expected)
        };
        let who = || {
            Ok::<_, anyhow::Error>(match name(whom)? {
                name if name == "master" => Who::Master,
                name if name == ALL => bail!(
                    "`{verb} {rest}`: only `kill` happens to all nodes at once; name a node, a site or master"
                ),
                name => Who::Named(name),
            })
        };
        let what = match verb {
            "kill" if whom.trim() == ALL => What::KillAll,
            "kill" => What::Kill(who()?),
            "stop" => What::Stop(who()?, until),
            "drain" => What::Drain(who()?),
            "join" => What::Join(name(whom)?),
            _ => {
                let (a, b) = whom.split_once('|').with_context(expected)?;
                What::Partition(name(a)?, name(b)?, until, cut)
            }
        };
        Ok(Fault { at, what })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Kill(who) => write!(f, "kill {who}")?,
            What::KillAll => write!(f, "kill {ALL}")?,
            What::Stop(who, _) => write!(f, "stop {who}")?,
            What::Drain(who) => write!(f, "drain {who}")?,
            What::Join(site) => write!(f, "join {site}")?,
            What::Partition(a, b, ..) => write!(f, "partition {a}|{b}")?,
        }
        // Not `as_secs_f64`, which makes 1.3900000000000001 of 1,390 ms.
        let seconds = |time: Duration| time.as_micros() as f64 / 1e6;
        write!(f, "@{}s", seconds(self.at))?;
        if let Some(until) = self.what.until() {
            write!(f, "..{}s", seconds(until))?;
        }
        match &self.what {
            What::Partition(_, _, _, Cut::Reject) => f.write_str(" reject"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Master => f.write_str("master"),
            Who::Named(name) => f.write_str(name),
        }
    }
}

/// Checks that all faults can happen in a pool that begins with these sites. Nodes that are to join count from then
/// on; they are numbered like those that are there from the beginning.
///
/// # Errors
/// A fault concerns a node or site that is not there. The error names those that are.
pub fn check(faults: &[Fault], sites: &Sites) -> Result<()> {
    let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
    for site in &sites.0 {
        nodes.insert(site.name.clone(), site.nodes);
    }
    for fault in in_order(faults) {
        let about = || format!("`{fault}`");
        match &fault.what {
            What::Kill(who) | What::Stop(who, _) | What::Drain(who) => {
                check_who(who, &nodes).with_context(about)?;
            }
            What::KillAll => ensure!(
                !nodes.contains_key(ALL),
                "`{fault}`: there is a site called `{ALL}`: give the site another name"
            ),
            What::Join(site) => *nodes.entry(site.clone()).or_insert(0) += 1,
            What::Partition(a, b, _, cut) => {
                ensure!(
                    *cut == Cut::Silence || cfg!(target_os = "linux"),
                    "`{fault}`: a firewall that rejects needs Linux; without `reject` the links are silent"
                );
                for site in [a, b] {
                    ensure!(
                        nodes.contains_key(site),
                        "`{fault}`: there is no site `{site}` then; sites: {}",
                        list(nodes.keys().cloned())
                    );
                }
                ensure!(
                    a != b,
                    "`{fault}`: the links within a site cannot be broken; name two sites"
                );
            }
        }
    }
    Ok(())
}

fn check_who(who: &Who, nodes: &BTreeMap<String, u32>) -> Result<()> {
    let Who::Named(name) = who else {
        ensure!(
            !nodes.contains_key("master"),
            "there is a site called `master`: name one of its nodes, such as master-0"
        );
        return Ok(());
    };
    let is_node = nodes
        .iter()
        .any(|(site, count)| (0..*count).any(|number| *name == format!("{site}-{number}")));
    match (is_node, nodes.contains_key(name)) {
        (true, true) => bail!("`{name}` is both a node and a site: give the site another name"),
        (true, false) | (false, true) => Ok(()),
        (false, false) => {
            let names = nodes
                .iter()
                .flat_map(|(site, count)| (0..*count).map(move |n| format!("{site}-{n}")));
            bail!(
                "there is no node or site `{name}` then; nodes: {}; sites: {}",
                list(names),
                list(nodes.keys().cloned())
            )
        }
    }
}

/// The first few names, as text.
fn list(names: impl Iterator<Item = String>) -> String {
    const MOST: usize = 16;
    let mut names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    let mut text = names.join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

/// Sorted by time; faults of the same time stay in the order in which they were given.
#[must_use]
pub fn in_order(faults: &[Fault]) -> Vec<&Fault> {
    let mut order: Vec<&Fault> = faults.iter().collect();
    order.sort_by_key(|fault| fault.at);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Fault {
        text.parse().expect("a fault")
    }

    fn error(text: &str) -> String {
        format!("{:#}", text.parse::<Fault>().expect_err("nonsense"))
    }

    fn refused(faults: &[&str], sites: &str) -> String {
        let faults: Vec<Fault> = faults.iter().map(|text| fault(text)).collect();
        let sites = sites.parse().expect("sites");
        format!("{:#}", check(&faults, &sites).expect_err("nonsense"))
    }

    #[test]
    fn what_people_write() {
        let seconds = Duration::from_secs;
        let node = |name: &str| Who::Named(name.into());
        for (text, at, what) in [
            ("kill amsterdam-1@3s", 3, What::Kill(node("amsterdam-1"))),
            ("kill master@0", 0, What::Kill(Who::Master)),
            ("kill all@5s", 5, What::KillAll),
            ("stop a-1@3s", 3, What::Stop(node("a-1"), None)),
            (
                "stop a-1 @ 3s..2m",
                3,
                What::Stop(node("a-1"), Some(seconds(120))),
            ),
            ("drain delft@3s", 3, What::Drain(node("delft"))),
            ("join delft@5s", 5, What::Join("delft".into())),
            (
                "partition a|b@4s..9s",
                4,
                What::Partition("a".into(), "b".into(), Some(seconds(9)), Cut::Silence),
            ),
            (
                "partition a|b@4s .. 9s  reject",
                4,
                What::Partition("a".into(), "b".into(), Some(seconds(9)), Cut::Reject),
            ),
            (
                "partition a|b@4s reject",
                4,
                What::Partition("a".into(), "b".into(), None, Cut::Reject),
            ),
        ] {
            let parsed = fault(text);
            assert_eq!((parsed.at, &parsed.what), (seconds(at), &what), "{text}");
            assert_eq!(
                fault(&parsed.to_string()),
                parsed,
                "as text it says the same"
            );
        }
    }

    #[test]
    fn what_means_nothing_is_told_with_an_example() {
        assert_eq!(
            error("kill a-1"),
            "expected NODE@TIME or all@TIME, such as amsterdam-1@3s, not `a-1`"
        );
        assert!(error("kill a-1@soon").starts_with("expected a number of seconds"));
        assert!(
            error("kill a-1@3s..4s").starts_with("expected NODE@TIME"),
            "it has no end"
        );
        assert!(error("stop a-1@4s..3s").contains("before it begins"));
        assert!(error("stop a-1@..").starts_with("expected a number of seconds"));
        assert!(error("partition a@4s..9s").contains("such as 'amsterdam|delft@4s..9s'"));
        assert_eq!(
            error("partition a|b@4s..9s refuse"),
            "expected SITE|SITE@FROM..TO, such as 'amsterdam|delft@4s..9s' or 'amsterdam|delft@4s..9s reject', \
             not `a|b@4s..9s refuse`: expected a number of seconds, or a time such as 30ms, 1.5s or 5m, not `9s refuse`"
        );
        assert!(error("partition a|b reject@4s").starts_with("expected SITE|SITE@FROM..TO"));
        assert!(error("kill a-1@3s reject").starts_with("expected a number of seconds"));
        assert!(error("kill @3s").starts_with("expected NODE@TIME"));
        assert!(error("join a b@3s").starts_with("expected SITE@TIME"));
        assert!(error("burn a@3s").starts_with("expected kill, stop"));
        assert!(error("kill all@3s..4s").starts_with("expected NODE@TIME"));
        for verb in ["stop", "drain"] {
            assert_eq!(
                error(&format!("{verb} all@3s")),
                format!(
                    "`{verb} all@3s`: only `kill` happens to all nodes at once; name a node, a site or master"
                )
            );
        }
    }

    #[test]
    fn who_is_not_there_is_refused_before_anything_starts() {
        assert_eq!(
            refused(&["kill a-2@3s"], "a:2,b:1"),
            "`kill a-2@3s`: there is no node or site `a-2` then; nodes: a-0, a-1, b-0; sites: a, b"
        );
        // Refused, as the node joins only later.
        let early = ["join a@5s", "kill a-2@3s"];
        assert!(refused(&early, "a:2,b:1").starts_with("`kill a-2@3s`"));
        let later = ["join a@5s", "kill a-2@6s", "join c@1s", "partition a|c@2s"].map(fault);
        check(&later, &"a:2,b:1".parse().expect("sites")).expect("all are there");
        assert!(refused(&["partition a|c@1s..2s"], "a:2,b:1").contains("no site `c`"));
        assert!(refused(&["partition a|a@1s..2s"], "a:2,b:1").contains("name two sites"));
        assert!(refused(&["drain a-1@1s"], "a:2,a-1:1").contains("both a node and a site"));
        assert!(refused(&["kill master@1s"], "master:2").contains("master-0"));
        assert!(refused(&["kill all@1s"], "all:2").contains("a site called `all`"));
    }
}
