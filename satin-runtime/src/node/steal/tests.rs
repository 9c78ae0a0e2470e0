//! Stories about stealing.

use std::time::Duration;

use super::super::{
    Config,
    cluster::{Cluster, Path, Program, Shape},
};

const MS: Duration = Duration::from_millis(1);

fn fixed() -> Config {
    Config {
        fixed_members: true,
        ..Config::default()
    }
}

fn knary(height: u32) -> Shape {
    Shape::Knary {
        width: 4,
        height,
        serial: 0,
    }
}

/// Runs a program on node 0 and returns how much of the workers' time was spent on it.
fn efficiency(cluster: &mut Cluster, program: Program) -> f64 {
    let program = cluster.program(program);
    let outcome = cluster.outcome(program);
    let start = cluster.now();
    cluster.start_root(0, program);
    let limit = outcome.time + Duration::from_secs(60);
    assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
    cluster.check(0, &[program]);
    let workers: u32 = (0..cluster.nodes())
        .map(|node| cluster.node(node).view().me().threads)
        .sum();
    outcome.time.as_secs_f64() / (cluster.now() - start).as_secs_f64() / f64::from(workers)
}

/// Nobody has anything of anybody.
fn assert_settled(cluster: &Cluster) {
    for node in (0..cluster.nodes()).filter(|node| cluster.is_alive(*node)) {
        assert!(cluster.is_empty(node), "node {node} still works");
        assert!(
            cluster.node(node).is_settled(),
            "the books of node {node} are not empty"
        );
    }
}

#[test]
fn two_nodes_share_a_tree() {
    let mut cluster = Cluster::new(1);
    cluster.form(&fixed(), &[("here", 2)], 1);
    let efficiency = efficiency(&mut cluster, Program::new(knary(5), 10 * MS));
    assert!(efficiency > 0.99, "{efficiency}");
    cluster.run_for(100 * MS);
    assert_settled(&cluster);
}

#[test]
fn two_sites_far_apart_share_a_tree() {
    let mut cluster = Cluster::new(1);
    cluster.wire.far = Path::new(100 * MS);
    cluster.form(&fixed(), &[("here", 2), ("there", 2)], 1);
    let efficiency = efficiency(&mut cluster, Program::new(knary(6), 10 * MS));
    assert!(efficiency > 0.9, "{efficiency}");
    cluster.run_for(1000 * MS);
    assert_settled(&cluster);
}
