use std::{process::ExitCode, time::Duration};

use anyhow::{Result, bail, ensure};
use satin_cli::{coded::Coded, units};
use satin_runtime::{
    codes,
    net::observer::{Parting, SeenNode},
};

use super::at::At;

/// Ask nodes of a running pool to leave: they hand over their jobs, and no work is lost
#[derive(clap::Args)]
#[command(after_help = "\
A node that leaves finishes what it can within its grace, gives the rest back
with all finished parts, and exits with code 0. If it is the master, another node
runs `main` first. This command returns when all are gone.

Examples:
  satin drain delft-3 --join 192.0.2.7:7777 --credential pool.pem
  satin drain --site delft --join file:/shared/pool --credential pool.pem \\
    --pool fib
  satin drain n1 n2 --grace 1m --join n7:7777 --credential pool.pem")]
pub struct Drain {
    /// Names of the nodes that are to leave
    #[arg(value_name = "NODE", required_unless_present = "site")]
    nodes: Vec<String>,
    /// All nodes of this site
    #[arg(long, value_name = "NAME", conflicts_with = "nodes")]
    site: Option<String>,
    #[command(flatten)]
    at: At,
    /// Time, such as 1m, that each node may take to leave [default: as it was started with]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    grace: Option<Duration>,
}

impl Drain {
    pub fn run(self) -> Result<ExitCode> {
        let observer = self.at.observer()?;
        let nodes = self.choose(observer.status()?.nodes);
        let nodes = nodes.code(codes::NODE_NAME)?;
        let mut lost = 0;
        observer.drain(&nodes, self.grace, |node, departure| {
            let master = if node.is_master { " (the master)" } else { "" };
            let how = match departure {
                Parting::Leaving => "is about to leave",
                Parting::Left => "has left",
                Parting::Lost => {
                    lost += 1;
                    "is gone without a goodbye: it left or crashed"
                }
            };
            eprintln!("{}{master} {how}", node.name);
        })?;
        Ok(match lost {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    /// The nodes that are meant.
    fn choose(&self, all: Vec<SeenNode>) -> Result<Vec<SeenNode>> {
        if let Some(site) = &self.site {
            let there: Vec<SeenNode> = all
                .iter()
                .filter(|node| node.site == *site)
                .cloned()
                .collect();
            ensure!(
                !there.is_empty(),
                "no node is at the site `{site}`; sites: {}",
                list(all.iter().map(|node| &*node.site))
            );
            return Ok(there);
        }
        let mut chosen = Vec::new();
        for name in &self.nodes {
            match all
                .iter()
                .filter(|node| node.name == *name)
                .collect::<Vec<_>>()[..]
            {
                [node] => chosen.push(node.clone()),
                [] => bail!(
                    "no node is called `{name}`; nodes: {}",
                    list(all.iter().map(|node| &*node.name))
                ),
                [..] => bail!("several nodes are called `{name}`: give each a name of its own"),
            }
        }
        chosen.dedup();
        Ok(chosen)
    }
}

/// Each once, and not too many.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 16;
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
