//! What the figures of a pool say, and what a person can do about it: for `satin run --stats` and the dashboard alike.
//!
//! Advice is given only where it is known to be right. Where there may be several reasons, none is named.

/// What is known of a pool.
#[derive(Clone, Copy, Default, Debug)]
pub struct Evidence {
    /// Number of workers of all nodes.
    pub threads: u32,
    /// Jobs that nodes took from others and ran.
    pub jobs: u64,
    /// Jobs that came to nodes; more than ran, if some could not be run where they came.
    pub came: u64,
    /// How often a job stayed, as it was not worth the way.
    pub stayed: u64,
    /// Jobs that were put back, because the node that had them was gone or gave them up.
    pub repairs: u64,
    /// The memory of some node is limited (`SATIN_MEMORY`): a node that is full takes no jobs.
    pub memory_is_limited: bool,
}

/// The reason why workers had nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// Jobs stayed, as their data would have cost more than their work.
    Stayed,
    /// No job left its node.
    NoneLeft,
    /// There were fewer jobs than workers.
    FewJobs,
    /// It may have been several things.
    Unknown,
}

/// A pool in which each worker got so many jobs of others had enough of them. Too small: pools with too few jobs get no advice. Too large:
/// people are told to spawn more jobs where there are thousands.
const ENOUGH: u64 = 100;

/// Why workers of a pool had nothing to do.
#[must_use]
pub fn finding(seen: &Evidence) -> Finding {
    let Evidence {
        threads,
        jobs,
        came,
        stayed,
        repairs,
        memory_is_limited,
    } = *seen;
    match () {
        () if stayed > jobs => Finding::Stayed,
        () if memory_is_limited || repairs > 0 || came > jobs => Finding::Unknown,
        () if jobs == 0 => Finding::NoneLeft,
        () if jobs >= ENOUGH * u64::from(threads.max(1)) => Finding::Unknown,
        () => Finding::FewJobs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_where_it_is_right() {
        let few = Evidence {
            threads: 4,
            jobs: 30,
            came: 30,
            ..Evidence::default()
        };
        assert_eq!(finding(&few), Finding::FewJobs);
        let stayed = Evidence { stayed: 31, ..few };
        assert_eq!(finding(&stayed), Finding::Stayed);
        let none = Evidence {
            jobs: 0,
            came: 0,
            ..few
        };
        assert_eq!(finding(&none), Finding::NoneLeft);
    }

    #[test]
    fn of_what_may_have_several_reasons_nothing_is_said() {
        let few = Evidence {
            threads: 4,
            jobs: 30,
            came: 30,
            ..Evidence::default()
        };
        let bounced = Evidence { came: 90, ..few };
        let full = Evidence {
            memory_is_limited: true,
            ..few
        };
        let died = Evidence { repairs: 1, ..few };
        let lu = Evidence {
            jobs: 44_807,
            came: 44_807,
            ..few
        };
        for seen in [bounced, full, died, lu] {
            assert_eq!(finding(&seen), Finding::Unknown, "{seen:?}");
        }
    }
}
