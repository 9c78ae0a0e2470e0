//! L1: after a cut into two sides nobody is reborn in place, and one side comes over, not both. If one side elects a master just as the sides
//! meet, some of its nodes have begun to come over, and others have the side that stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use satin_runtime::node::{Notice, Peer, cluster::Cluster};

use super::{Invariant, Run, Seen};

#[derive(Default)]
pub(super) struct OneLivesOn {
    /// The lives under which each node has come in. (A node that was on its way in may have been taken for dead.)
    lives: BTreeMap<u32, BTreeSet<Peer>>,
    /// When each life became master.
    masters: BTreeMap<Peer, Duration>,
}

impl Invariant for OneLivesOn {
    fn name(&self) -> &'static str {
        "L1"
    }

    fn what(&self) -> &'static str {
        "after a cut one side lives on, and the other comes over"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let life = seen.cluster.joined(seen.node).map(|life| life.peer);
        self.lives.entry(seen.node).or_default().extend(life);
        let node = seen.cluster.node(seen.node);
        if let Some(life) = life
            && life == node.view().master()
            && !node.lacks_master()
        {
            self.masters.entry(life).or_insert(seen.cluster.now());
        }
        Ok(())
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let Some((cuts, healed)) = run
            .cuts
            .and_then(|cuts| Some((cuts, cuts.two_sides_met()?)))
        else {
            return Ok(());
        };
        let mut elections = self.masters.values();
        if elections.any(|at| at.abs_diff(healed) < cuts.moment) {
            return Ok(());
        }
        // (A node that comes in during a cut may be found dead before all know the ways to it.)
        for (node, lives) in self.lives.range(..cuts.founders) {
            let anew = lives.len().saturating_sub(1);
            let times = comes_over(run.cluster, *node);
            if anew > times {
                return Err(format!(
                    "node {node} has begun {anew} lives anew, and come over {times} times"
                ));
            }
        }
        let mut sites = run.cluster.sites().iter();
        let lives_on = |site: &str| {
            let founders = 0..cuts.founders;
            let mut here =
                founders.filter(|node| *run.cluster.node(*node).view().me().site == *site);
            here.all(|node| comes_over(run.cluster, node) == 0)
        };
        match sites.any(|site| lives_on(site)) {
            true => Ok(()),
            false => Err("after a cut nodes of each site have come over".into()),
        }
    }
}

/// How often a node has come over.
pub(crate) fn comes_over(cluster: &Cluster, node: u32) -> usize {
    let notices = cluster.notices(node).iter();
    notices
        .filter(|notice| matches!(notice, Notice::ComesOver))
        .count()
}
