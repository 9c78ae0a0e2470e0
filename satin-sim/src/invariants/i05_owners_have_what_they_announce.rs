//! I5: the owner of an entry of the orphan table has that orphan, or withdraws the entry; at rest every node knows all
//! entries.

use std::collections::BTreeSet;

use satin_runtime::node::{
    cluster::Cluster,
    inspect::{InspectedEntry, Inspection},
};

use super::{Invariant, Run, Seen};

pub(super) struct OwnersHave;

impl Invariant for OwnersHave {
    fn name(&self) -> &'static str {
        "I5"
    }

    fn what(&self) -> &'static str {
        "the owner of an entry has that orphan, or withdraws the entry"
    }

    /// On its own sheet no node enters an orphan that it does not have.
    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let me = seen.cluster.peer(seen.node);
        for entry in seen.books.entries.iter().filter(|entry| entry.owner == me) {
            let here = seen
                .books
                .hosted
                .iter()
                .any(|hosted| hosted.orphan && hosted.name == entry.name);
            if !here {
                return Err(format!(
                    "node {} announces {}, and has it not",
                    seen.node, entry.name.id
                ));
            }
        }
        Ok(())
    }

    /// Once all messages have come, the other nodes know the sheets as they are.
    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        match strange_belief(run.cluster, run.books).filter(|_| run.done) {
            None => Ok(()),
            Some(story) => Err(story),
        }
    }
}

/// A node that believes that another has an orphan which that does not have, or that does not know of an orphan which
/// another has; in words.
pub(crate) fn strange_belief(cluster: &Cluster, books: &[(u32, Inspection)]) -> Option<String> {
    let own: BTreeSet<_> = (books.iter())
        .flat_map(|(node, books)| {
            let me = cluster.peer(*node);
            books.entries.iter().filter(move |entry| entry.owner == me)
        })
        .map(|entry| (entry.owner, &entry.name))
        .collect();
    let strange = books.iter().find_map(|(node, books)| {
        let mut entries = books.entries.iter();
        let strange = entries.find(|entry| !own.contains(&(entry.owner, &entry.name)));
        strange.map(|InspectedEntry { name, owner, .. }| {
            format!("node {node} still believes that {owner:?} has {}", name.id)
        })
    });
    strange.or_else(|| {
        books.iter().find_map(|(node, books)| {
            let here = books.entries.iter();
            let here: BTreeSet<_> = here.map(|entry| (entry.owner, &entry.name)).collect();
            let view = cluster.node(*node).view();
            let mut missed = own
                .difference(&here)
                .filter(|(owner, _)| view.is_alive(*owner));
            let (owner, name) = missed.next()?;
            Some(format!(
                "node {node} has not heard that {owner:?} has {}",
                name.id
            ))
        })
    })
}
