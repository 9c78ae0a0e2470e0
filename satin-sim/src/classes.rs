//! Classes of faults. The random schedules draw from each of them; each has dice of its own, so that a class that is left
//! out, or comes in, does not change what the others do to a seed.

use std::collections::BTreeSet;

use satin_runtime::node::cluster::mix;

use crate::faults::Dice;

/// A class of faults, or of programs, that a seed may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Ids are not in the order of joining.
    Ids,
    /// Messages arrive after their sender gave the link up.
    Late,
    /// Large messages are overtaken by others.
    Stray,
    /// Gossip comes late, twice and out of order.
    Gossip,
    /// Nodes of different speed.
    Slow,
    /// Network threads that need long for a message.
    Busy,
    /// Clocks that do not agree.
    Clocks,
    /// The usual settings, and work and faults that last minutes.
    Long,
    /// Workers with stacks of two to five frames.
    Shallow,
    /// All repair modes and policies.
    Modes,
    /// A job is given up after as many crashes as with the usual settings.
    Crashes,
    /// All jobs need a shared value.
    Shared,
    /// All leaves offer bounds, which main reads, and many programs are searches.
    Bounds,
    /// Leaves that panic.
    Panics,
    /// Root jobs of other threads than main's.
    Others,
    /// Several nodes that join.
    Joins,
    /// Many nodes die at one moment.
    Bursts,
    /// Any node dies, stops or is told to go, also one that drains or is about to come in.
    Undone,
    /// Any node is told to go at once, also one that drains.
    Leaves,
    /// Long partitions between sites.
    Partitions,
    /// Two nodes cannot reach each other.
    Pairs,
    /// No message passes from one node to another, but the way back is open.
    Ways,
    /// Two nodes can never reach each other again.
    Lasting,
    /// Nodes reach only their neighbours in a line.
    Lines,
    /// Neighbours have copies of finished results.
    Copies,
    /// There is a store; perhaps all nodes die at once, and others go on.
    Stores,
    /// Many jobs are not worth the way to another node.
    Worth,
    /// Root jobs that are cancelled, and called again.
    Cancels,
    /// Flows: jobs whose children wait for each other's results.
    Flows,
    /// Nodes drop the shared value that they have fetched, as they do with data that tasks have borrowed.
    Forgets,
    /// What tasks make stays where it was made, and nodes die that keep some of it.
    Keeps,
    /// Nodes have little room for data that tasks have borrowed, or none.
    Room,
    /// What is cut off seems to say that nobody listens there.
    Rejects,
    /// A link between two sites that is cut and heals again and again.
    Flaps,
    /// All sites are cut off from each other at once; each of these cuts has its own end.
    Threes,
    /// Cuts that end about when something is decided because of them: a suspicion, an election.
    Edges,
    /// The master is alone at its site, which is cut off.
    Solo,
    /// Pools of forty nodes, and of a hundred.
    Many,
    /// Nothing goes wrong but the way between sites, and what that costs is counted.
    Cuts,
}

/// Is a class among those that are tried by default?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Tried by default, and no invariant is violated.
    Tried,
    /// Finds faults that are known and not mended: tried only with `--with`.
    Open,
}

/// A class, and what is to be known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// The class.
    pub class: Class,
    /// The name on the command line.
    pub name: &'static str,
    /// A description in a line.
    pub what: &'static str,
    /// True if the class is tried by default.
    pub standing: Standing,
}

const fn tried(class: Class, name: &'static str, what: &'static str) -> About {
    let standing = Standing::Tried;
    About {
        class,
        name,
        what,
        standing,
    }
}

const fn open(class: Class, name: &'static str, what: &'static str) -> About {
    let standing = Standing::Open;
    About {
        class,
        name,
        what,
        standing,
    }
}

/// All of them. A class whose faults have been mended moves from `open` to `tried` here, and nowhere else.
pub const CLASSES: [About; 39] = [
    tried(
        Class::Flows,
        "flows",
        "flows, whose tasks wait for each other's results",
    ),
    tried(
        Class::Cancels,
        "cancels",
        "root jobs that are cancelled, and called again",
    ),
    tried(
        Class::Worth,
        "worth",
        "many jobs are not worth the way to another node",
    ),
    tried(
        Class::Stores,
        "stores",
        "a store, which may fail or be silent; all nodes die, and others go on",
    ),
    tried(
        Class::Copies,
        "copies",
        "neighbours have copies of finished results",
    ),
    tried(Class::Ids, "ids", "ids are not in the order of joining"),
    tried(
        Class::Late,
        "late",
        "messages arrive after their sender gave the link up",
    ),
    tried(Class::Stray, "stray", "large messages are overtaken"),
    tried(
        Class::Gossip,
        "gossip",
        "gossip comes late, twice and out of order",
    ),
    tried(Class::Slow, "slow", "nodes of different speed"),
    tried(
        Class::Busy,
        "busy",
        "network threads that need long for a message",
    ),
    tried(Class::Clocks, "clocks", "clocks that do not agree"),
    tried(
        Class::Long,
        "long",
        "the usual settings, and work and faults that last minutes",
    ),
    tried(
        Class::Shallow,
        "shallow",
        "workers with stacks of two to five frames",
    ),
    tried(Class::Modes, "modes", "all repair modes and policies"),
    // Rightly given up, now and then: three nodes did die while they ran the job, or two and one that is about to come back.
    open(Class::Crashes, "crashes", "SATIN_MAX_CRASHES as shipped"),
    tried(Class::Shared, "shared", "all jobs need a shared value"),
    tried(
        Class::Bounds,
        "bounds",
        "all leaves offer bounds, which main reads with their witnesses",
    ),
    tried(Class::Panics, "panics", "leaves that panic"),
    tried(
        Class::Others,
        "others",
        "root jobs of other threads than main's",
    ),
    tried(Class::Joins, "joins", "several newcomers"),
    tried(Class::Bursts, "bursts", "many nodes die at one moment"),
    tried(
        Class::Undone,
        "undone",
        "any node dies, stops or is told to go, also one that drains or joins",
    ),
    tried(
        Class::Leaves,
        "leaves",
        "any node is told to go at once, also one that drains",
    ),
    tried(
        Class::Partitions,
        "partitions",
        "long partitions between sites",
    ),
    tried(
        Class::Pairs,
        "pairs",
        "two nodes cannot reach each other for a while",
    ),
    tried(
        Class::Ways,
        "ways",
        "nothing passes from one node to another for a while",
    ),
    tried(
        Class::Lasting,
        "lasting",
        "two nodes can never reach each other again",
    ),
    tried(
        Class::Lines,
        "lines",
        "nodes reach only their neighbours in a line for a while",
    ),
    tried(
        Class::Forgets,
        "forgets",
        "nodes drop the shared value that they have fetched, or data that tasks have borrowed",
    ),
    tried(
        Class::Keeps,
        "keeps",
        "what tasks of flows make stays where it was made; nodes die that keep some of it",
    ),
    tried(
        Class::Room,
        "room",
        "nodes have little room for data that tasks have borrowed",
    ),
    open(
        Class::Rejects,
        "rejects",
        "what is cut off seems to say that nobody listens there",
    ),
    tried(
        Class::Flaps,
        "flaps",
        "links between sites that are cut and heal again and again",
    ),
    tried(
        Class::Threes,
        "threes",
        "all sites are cut off from each other; the cuts end apart",
    ),
    tried(
        Class::Edges,
        "edges",
        "cuts that end about when something is decided because of them",
    ),
    tried(
        Class::Solo,
        "solo",
        "the master is alone at its site, which is cut off",
    ),
    tried(Class::Many, "many", "now and then a pool of 40 nodes"),
    tried(
        Class::Cuts,
        "cuts",
        "nothing goes wrong but the way between sites, and what that costs is counted",
    ),
];

impl Class {
    /// The classes that are tried by default.
    #[must_use]
    pub fn usual() -> BTreeSet<Class> {
        let tried = CLASSES
            .iter()
            .filter(|about| about.standing == Standing::Tried);
        tried.map(|about| about.class).collect()
    }

    /// All classes.
    #[must_use]
    pub fn all() -> BTreeSet<Class> {
        CLASSES.iter().map(|about| about.class).collect()
    }

    /// The name on the command line.
    ///
    /// # Panics
    /// If it is not one of [`CLASSES`].
    #[must_use]
    pub fn name(self) -> &'static str {
        let about = CLASSES.iter().find(|about| about.class == self);
        about.expect("all classes are listed").name
    }

    /// True if faults of the class neither hit the master nor cut a node off.
    #[must_use]
    pub fn spares_master(self) -> bool {
        !matches!(
            self,
            Class::Undone
                | Class::Leaves
                | Class::Partitions
                | Class::Pairs
                | Class::Ways
                | Class::Lasting
                | Class::Lines
                | Class::Flaps
                | Class::Threes
                | Class::Edges
                | Class::Solo
                | Class::Cuts
        )
    }

    /// Dice for what this class does to a seed.
    #[must_use]
    pub fn dice(self, seed: u64) -> Dice {
        Dice::new(seed ^ mix(self as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_stands_in_the_list_once() {
        assert_eq!(Class::all().len(), CLASSES.len());
        let names: BTreeSet<&str> = CLASSES.iter().map(|about| about.name).collect();
        assert_eq!(names.len(), CLASSES.len());
        assert_eq!(CLASSES.len(), Class::Cuts as usize + 1);
    }
}
