//! Parts that the forced schedules and the stories of cuts share.

use std::time::Duration;

use satin_runtime::node::cluster::{Cluster, MainIs, Shape};

/// Virtual time within which anything comes about that comes about at all.
pub const LONG: Duration = Duration::from_secs(120);

/// Uneven, so that who is done early steals from who is not.
pub const UNEVEN: Shape = Shape::Random {
    width: 3,
    height: 5,
    races: 0,
};

pub fn running(cluster: &Cluster) -> impl Iterator<Item = u32> {
    (0..cluster.nodes()).filter(|node| cluster.is_alive(*node))
}

/// A main that calls these programs comes to its end with the right answers, nothing is left, and the pool ends.
pub fn main_ends_well(cluster: &mut Cluster, programs: &[u32]) {
    let is_over = |cluster: &Cluster| {
        running(cluster).any(|node| cluster.main_of(node) == MainIs::Over)
            && running(cluster).all(|node| cluster.main_of(node) != MainIs::Running)
    };
    assert!(cluster.run_until(LONG, is_over), "main comes to its end");
    let right = programs.iter().map(|program| cluster.outcome(*program));
    let right: Vec<u64> = right.map(|outcome| outcome.result).collect();
    for ending in cluster.endings() {
        assert_eq!(ending.results, right);
    }
    let rests = |cluster: &Cluster| {
        let mut nodes = running(cluster);
        nodes.all(|node| {
            let books = cluster.node(node).inspect();
            cluster.is_empty(node) && books.under_way() == 0
        })
    };
    assert!(cluster.run_until(LONG, rests), "nothing is left");
    for node in running(cluster) {
        assert_eq!(cluster.audit(node), Ok(()));
        assert_eq!(cluster.stray_answer(node), None);
    }
    cluster.end_main(0);
    let is_gone = |cluster: &Cluster| running(cluster).next().is_none();
    assert!(cluster.run_until(LONG, is_gone), "everybody ends");
}
