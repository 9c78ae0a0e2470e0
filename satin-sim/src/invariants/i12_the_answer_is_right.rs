//! I12: the answer is right, wherever a root job came to its end; so is the bound that came with it, with its witness; and a
//! panic is seen.

use satin_runtime::node::cluster::{LEAF_PANICS, MainEnd, OtherRoot, Sighting};

use super::{Invariant, Run, Seen};

pub(super) struct Right;

impl Invariant for Right {
    fn name(&self) -> &'static str {
        "I12"
    }

    fn what(&self) -> &'static str {
        "the answer is right"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let mut panics = seen.cluster.panics(seen.node).iter();
        match panics.find(|story| !(seen.panics && story.contains(LEAF_PANICS))) {
            None => Ok(()),
            Some(story) => Err(format!(
                "a root job at node {} panicked: {story}",
                seen.node
            )),
        }
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let mut endings = run.cluster.endings().iter();
        if let Some(ending) = endings.find(|ending| !is_right(ending, run)) {
            let MainEnd {
                node,
                term,
                panicked,
                results,
            } = ending;
            let (right, panics) = (run.right, run.panics);
            return Err(format!(
                "main at node {node} in term {term} got {results:x?} (panic: {panicked}), which should be {right:x?} (panic: {panics})"
            ));
        }
        check_bounds(run)?;
        (run.books.iter()).try_for_each(|(node, _)| check_others(run, *node))
    }
}

fn is_right(ending: &MainEnd, run: &Run<'_>) -> bool {
    match run.panics {
        true => ending.panicked && run.right.starts_with(&ending.results),
        false => !ending.panicked && ending.results == run.right,
    }
}

/// Offers precede the results that they lead to: the best of all leaves, with a witness that is worth it.
fn check_bounds(run: &Run<'_>) -> Result<(), String> {
    let mut sightings = run.cluster.sightings().iter();
    let Some(seen) = sightings.find(|seen| !seen.is_right(run.cluster)) else {
        return Ok(());
    };
    let right = run.cluster.outcome(seen.program).bound;
    let Sighting {
        node, tag, bound, ..
    } = seen;
    Err(format!(
        "main at node {node} has the result of {tag:?}, and the bound is {bound:?} there, which should be {right:?} with its witness"
    ))
}

/// The root jobs that other threads called, on nodes that are still there.
fn check_others(run: &Run<'_>, node: u32) -> Result<(), String> {
    let is_right = |other: &OtherRoot| {
        let right = run.cluster.outcome(other.program).result;
        match &other.outcome {
            Some(Ok(result)) => *result == right,
            Some(Err(story)) => run.panics && story.contains(LEAF_PANICS),
            None => false,
        }
    };
    match run.cluster.others(node).find(|(_, other)| !is_right(other)) {
        None => Ok(()),
        Some((tag, other)) => Err(format!(
            "{tag:?} of another thread of node {node}: {other:?}"
        )),
    }
}
