//! How many nodes at which sites.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// A site and its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The name of the site; its nodes are `NAME-0`, `NAME-1`, ..
    pub name: String,
    /// How many of them there are to begin with.
    pub nodes: u32,
}

/// The sites of a pool. The first node of the first site is the first master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sites(pub Vec<Site>);

/// Whether sites and nodes may be called so: letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.chars().all(plain)
}

/// More processes than that on one machine are a slip of the finger.
const NODES_MAX: u32 = 1024;

impl Sites {
    /// Sites `s0`, `s1`, .. with equally many nodes each.
    #[must_use]
    pub fn alike(sites: u32, nodes: u32) -> Sites {
        let site = |number| Site {
            name: format!("s{number}"),
            nodes,
        };
        Sites((0..sites).map(site).collect())
    }

    /// Number of nodes in all.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.0.iter().map(|site| site.nodes).sum()
    }

    /// Whether this makes a pool: between 1 and 1,024 nodes, no site twice.
    ///
    /// # Errors
    /// A name or a number is not allowed.
    pub fn check(&self) -> Result<()> {
        let all = self.0.iter().map(|site| u64::from(site.nodes)).sum::<u64>();
        ensure!(
            (1..=u64::from(NODES_MAX)).contains(&all),
            "{all} nodes: expected 1 to {NODES_MAX}"
        );
        for (index, site) in self.0.iter().enumerate() {
            ensure!(site.nodes > 0, "the site `{}` has no nodes", site.name);
            ensure!(
                self.0[..index].iter().all(|other| other.name != site.name),
                "the site `{}` is named twice",
                site.name
            );
        }
        Ok(())
    }
}

impl FromStr for Sites {
    type Err = anyhow::Error;

    /// Parses `2x4` or `amsterdam:2,delft:3`.
    fn from_str(text: &str) -> Result<Sites> {
        let expected =
            || format!("expected SITESxNODES or NAME:NODES[,NAME:NODES..], not `{text}`");
        let sites = if text.contains(':') {
            let mut sites = Vec::new();
            for site in text.split(',') {
                let (name, nodes) = site.split_once(':').with_context(expected)?;
                let name = name.trim();
                if !is_name(name) {
                    bail!(
                        "`{name}` is no valid name for a site: use letters, digits, `-`, `_` and `.`"
                    );
                }
                sites.push(Site {
                    name: name.into(),
                    nodes: nodes.trim().parse().ok().with_context(expected)?,
                });
            }
            Sites(sites)
        } else {
            let (sites, nodes) = text.split_once(['x', 'X']).with_context(expected)?;
            let number = |text: &str| text.trim().parse::<u32>().ok().with_context(expected);
            let (sites, nodes) = (number(sites)?, number(nodes)?);
            ensure!(
                sites <= NODES_MAX,
                "{sites} sites: expected at most {NODES_MAX}"
            );
            Sites::alike(sites, nodes)
        };
        sites.check()?;
        Ok(sites)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_say_it() {
        let two: Sites = "2x3".parse().expect("sites");
        assert_eq!(two, Sites::alike(2, 3));
        assert_eq!((two.nodes(), two.0[1].name.as_str()), (6, "s1"));
        let named: Sites = "amsterdam:2, delft:3".parse().expect("sites");
        assert_eq!(named.nodes(), 5);
        assert_eq!(named.0[1].name, "delft");
    }

    #[test]
    fn what_makes_no_pool() {
        for text in [
            "",
            "2",
            "x",
            "2x",
            "0x2",
            "2x0",
            "a:0",
            "a:1,a:2",
            "a:1,",
            "a b:1",
            ":1",
            "a:x",
            "999x999",
            "9999999999x1",
        ] {
            assert!(text.parse::<Sites>().is_err(), "{text}");
        }
    }
}
