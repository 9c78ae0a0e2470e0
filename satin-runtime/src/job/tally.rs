//! Counts of what a node did about deaths and departures, and of thefts that were not worth it.

use serde::{Deserialize, Serialize};

/// A new count is a row here, and the place that counts: events, sums and the table of `satin run --stats` follow.
macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Counts of what a node did about deaths and departures, and of thefts that were not worth it.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Tally {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Tally {
            /// Adds the counts of another node.
            pub fn add(&mut self, more: &Tally) {
                $(self.$name += more.$name;)*
            }

            /// The counts with their names, in the order of the table.
            #[must_use]
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

tally! {
    /// Jobs put back because the node that had them was gone, or gave them up.
    repairs;
    /// Jobs that became orphans here: their origin died or left.
    orphans;
    /// Results of other nodes that are kept here: of root jobs, of nodes that left, copies of those of nodes that died, and what these had
    /// taken from here of tasks of flows.
    kept;
    /// Results that this node claimed.
    claims;
    /// Claims that brought the result.
    hits;
    /// Claims whose owner did not have the result any more.
    misses;
    /// Claims that were withdrawn, because this node had nothing else to run.
    withdrawn;
    /// How often a job stayed although another node asked: to do it here costs less than its way.
    not_worth;
    /// Jobs that were away and were done here sooner, by a worker that had nothing else to do.
    duplicates;
}
