//! I13: at rest every node sees exactly the nodes that run, and all follow the same master: parts of a pool that had lost each
//! other have met again. Nodes that no way leads to, through others either, are a pool of their own; so are nodes of which
//! nobody who can reach them has ever heard, and who have heard of nobody whom they can reach.

use std::collections::BTreeSet;

use satin_runtime::node::cluster::Cluster;

use super::{Invariant, Run};

pub(super) struct ViewsAgree;

impl Invariant for ViewsAgree {
    fn name(&self) -> &'static str {
        "I13"
    }

    fn what(&self) -> &'static str {
        "at rest all views agree"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let nodes: Vec<u32> = run.books.iter().map(|(node, _)| *node).collect();
        match differing_views(run.cluster, &nodes).filter(|_| run.done) {
            None => Ok(()),
            Some(story) => Err(story),
        }
    }
}

/// Does any of these nodes see somebody else than all who can be reached from it, directly or through others, or follow
/// another master than they?
pub(crate) fn differing_views(cluster: &Cluster, nodes: &[u32]) -> Option<String> {
    let finds = |a, b| cluster.reaches(a, b) && (cluster.has_met(a, b) || cluster.has_met(b, a));
    let mut left: BTreeSet<u32> = nodes.iter().copied().collect();
    while let Some(first) = left.pop_first() {
        let mut part = vec![first];
        let mut next = 0;
        while let Some(node) = part.get(next).copied() {
            let reached = left.iter().filter(|other| finds(node, **other));
            part.extend(reached);
            left.retain(|other| !part.contains(other));
            next += 1;
        }
        if let Some(story) = differing_in_part(cluster, &part) {
            return Some(story);
        }
    }
    None
}

fn differing_in_part(cluster: &Cluster, nodes: &[u32]) -> Option<String> {
    let peers: BTreeSet<_> = nodes.iter().map(|node| cluster.peer(*node)).collect();
    let master = cluster.node(*nodes.first()?).view().master();
    nodes.iter().find_map(|node| {
        let view = cluster.node(*node).view();
        let seen: BTreeSet<_> = view.members().map(|member| member.peer).collect();
        if let Some(missing) = peers.difference(&seen).next() {
            return Some(format!("node {node} does not see {missing:?}, which runs"));
        }
        if let Some(gone) = seen.difference(&peers).next() {
            return Some(format!(
                "node {node} still sees {gone:?}, which does not run"
            ));
        }
        let other = view.master();
        (other != master).then(|| format!("node {node} follows {other:?}, and others {master:?}"))
    })
}
