//! What is done again: all nodes are killed at a random moment, and the run goes on on other nodes.
//!
//! Each leaf is counted in a file when it is done, on whatever node: leaves beyond those of the tree were done twice. Leaves that
//! were under way when their node died are not counted; the limit has one for each worker.

use anyhow::Result;
use satin_cli::sites::Sites;
use satin_runtime::stable::StoreUrl;
use serde::{Deserialize, Serialize};

use super::{Bench, Panels, keeping::Keeping, show, table, verdict};
use crate::{chart, launch::Knary};

/// A run that was lost, and gone on with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    bench: String,
    #[serde(flatten)]
    keeping: Keeping,
    /// Nodes that were killed, with a worker each.
    nodes: u32,
    /// Nodes on which it went on.
    resumed_on: u32,
    leaf_ms: u32,
    leaves: u64,
    /// When all were killed, since the root job was called.
    killed_s: f64,
    /// Leaves that were done by then.
    done: u64,
    /// Time of the second start, from the call of the root job to its result.
    resumed_s: f64,
    /// Leaves that were done twice.
    again: u64,
    /// The time that these take, summed over the workers.
    again_s: f64,
    /// The most that is allowed: workers x (period + leaf) + 1 s.
    limit_s: f64,
}

/// The levels of the tree: 3,125 leaves.
const LEVELS: u32 = 5;

/// The periods, in seconds: short beside the run, so that the limit says something. 0 is SEL.
const PERIODS: [f64; 2] = [1.0, 0.0];

/// Measures runs on 1, 2, .. nodes that all are killed.
pub fn measure(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let (most_nodes, leaf_ms) = if bench.args.quick { (2, 2) } else { (4, 4) };
    let mut random = Random(bench.args.seed);
    let mut rows = Vec::new();
    for round in 1..=bench.args.rounds() {
        for nodes in 1..=most_nodes {
            // All runs take equally long.
            let knary = Knary::sleeping(&bench.launcher, LEVELS, leaf_ms * nodes)?;
            for every_s in PERIODS {
                let at = 0.15 + 0.7 * random.fraction();
                let resumed_on = 1 + (random.fraction() * f64::from(2 * nodes)) as u32;
                let doomed = Doomed {
                    nodes,
                    every_s,
                    leaf_ms: leaf_ms * nodes,
                    at,
                    resumed_on,
                };
                let what = format!("[lost, round {round}] {nodes} nodes");
                let Some(row) = bench.attempt(&what, || doomed.run(bench, &knary))? else {
                    continue;
                };
                eprintln!(
                    "{what} killed after {:.2} s, {}, resumed on {resumed_on}: {} of {} leaves \
                     again, {:.2} s of a worker, at most {:.2} s",
                    row.killed_s, row.keeping, row.again, row.done, row.again_s, row.limit_s,
                );
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// A run that is to be lost.
struct Doomed {
    nodes: u32,
    every_s: f64,
    leaf_ms: u32,
    /// The moment when all nodes are killed, as a part of the ideal time.
    at: f64,
    resumed_on: u32,
}

impl Doomed {
    fn run(&self, bench: &Bench<'_>, knary: &Knary) -> Result<Row> {
        let keeping = Keeping::every(self.every_s);
        let store = bench.stores.fresh()?;
        let plan = |url: StoreUrl, nodes: u32| {
            keeping.plan_in(url, &bench.stores, knary.words(), Sites::alike(1, nodes))
        };
        let at = knary.ideal(self.nodes).mul_f64(self.at);
        let killed_s = knary.lose(&bench.launcher, plan(store.clone(), self.nodes)?, at)?;
        let done = knary.done()?;
        let (story, all) = knary.go_on(&bench.launcher, plan(store, self.resumed_on)?)?;
        let again = all - knary.leaves();
        let leaf_s = f64::from(self.leaf_ms) / 1000.0;
        Ok(Row {
            bench: "store".into(),
            keeping,
            nodes: self.nodes,
            resumed_on: self.resumed_on,
            leaf_ms: self.leaf_ms,
            leaves: knary.leaves(),
            killed_s,
            done,
            resumed_s: story.seconds(),
            again,
            again_s: again as f64 * leaf_s,
            limit_s: f64::from(self.nodes) * (self.every_s + leaf_s) + 1.0,
        })
    }
}

/// The numbers of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    /// From 0 up to 1, which is not reached.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Prints the runs, and whether any did more again than is allowed.
pub fn report(rows: &[&Row], said: &mut Vec<String>) {
    let mut runs = table(&[
        "kept",
        "nodes",
        "killed at s",
        "resumed on",
        "leaf ms",
        "leaves done",
        "again",
        "again, s of a worker",
        "at most, s",
    ]);
    for row in rows {
        runs.add_row([
            row.keeping.to_string(),
            row.nodes.to_string(),
            format!("{:.2}", row.killed_s),
            row.resumed_on.to_string(),
            row.leaf_ms.to_string(),
            row.done.to_string(),
            row.again.to_string(),
            format!("{:.2}", row.again_s),
            format!("{:.2}", row.limit_s),
        ]);
    }
    show("lost: knary, all nodes killed and resumed", runs, 1);
    if !rows.is_empty() {
        let over = rows.iter().filter(|row| row.again_s > row.limit_s).count();
        let what = format!(
            "all nodes killed, {} runs, all with the right answer; more than workers x (period + leaf) + 1 s done again in {over}",
            rows.len()
        );
        verdict(said, what, over == 0);
    }
}

/// The most that was done again, by number of nodes, beside what is allowed.
pub fn draw(rows: &[&Row], panels: &mut Panels) {
    let mut worst: Vec<(String, f64, f64)> = Vec::new();
    for row in rows {
        let (kept, nodes) = (row.keeping.to_string(), f64::from(row.nodes));
        let limit = format!("{kept}, allowed");
        for (name, figure) in [(kept, row.again_s), (limit, row.limit_s)] {
            match worst
                .iter_mut()
                .find(|(other, at, _)| *other == name && *at == nodes)
            {
                Some((_, _, most)) => *most = figure.max(*most),
                None => worst.push((name, nodes, figure)),
            }
        }
    }
    let words = [
        "all killed and resumed",
        "nodes that were killed",
        "done again, seconds of a worker",
    ];
    panels.add(words, 0.0..1.0, chart::lines(worst));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_moments() {
        let draw = |seed| {
            let mut random = Random(seed);
            [random.fraction(), random.fraction()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let drawn = draw(1);
        let is_in = |moment: &f64| (0.0..1.0).contains(moment);
        assert!(drawn.iter().all(is_in) && drawn[0] != drawn[1], "{drawn:?}");
    }
}
