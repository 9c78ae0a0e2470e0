//! I13: at rest every node sees exactly the nodes that run, and all follow the same master: parts of a pool that had lost
//! each other have met again. Two parts are pools of their own if no way leads from the one to the other, or if no node
//! of the one has ever heard of those nodes of the other that it can reach, and the other way round.

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

/// A node that does not see exactly the nodes that can be reached from it, directly or through others, or that follows
/// another master than they; in words.
pub(crate) fn differing_views(cluster: &Cluster, nodes: &[u32]) -> Option<String> {
    let mut parts: Vec<Vec<u32>> = Vec::new();
    for node in nodes {
        let mut part = vec![*node];
        // A node that comes to a part may know those of others whom it reaches, or reach those whom it knows.
        while let Some(met) = parts.iter().position(|other| meet(cluster, &part, other)) {
            part.extend(parts.swap_remove(met));
        }
        parts.push(part);
    }
    let mut parts = parts.iter();
    parts.find_map(|part| differing_in_part(cluster, part))
}

/// True if two parts of a pool must find each other. Members of a part tell each other whom they miss: one of them can
/// reach a node of the other part of which one of them has heard.
fn meet(cluster: &Cluster, one: &[u32], other: &[u32]) -> bool {
    let knows =
        |part: &[u32], node| (part.iter()).any(|member| cluster.has_heard_of(*member, node));
    let mut pairs = one.iter().flat_map(|a| other.iter().map(|b| (*a, *b)));
    pairs.any(|(a, b)| cluster.reaches(a, b) && (knows(one, b) || knows(other, a)))
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
