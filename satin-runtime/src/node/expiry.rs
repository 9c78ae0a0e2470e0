//! Which times of the protocol run out. A simulation whose faults are shorter than a time never meets what follows when it is
//! over, so simulations count; elsewhere nothing is counted.

/// A time of the protocol after whose end something else is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// [`Config::partition_wait`](super::Config::partition_wait): a master is chosen although half of the pool is away.
    PartitionWait,
    /// Those before in line have not become master.
    Precedence,
    /// [`Config::cut_off`](super::Config::cut_off): a peer that nobody can reach is declared dead.
    CutOff,
    /// A draining node stops waiting for its jobs to be given up.
    GivingUp,
    /// A draining node stops waiting for its heir.
    HandingOver,
    /// A draining node stops waiting for acknowledgements.
    LastWords,
    /// A newcomer says that nobody answers.
    Search,
}

/// All of them, with their names.
pub const LIMITS: [(Limit, &str); 7] = [
    (Limit::PartitionWait, "partition wait"),
    (Limit::Precedence, "precedence"),
    (Limit::CutOff, "cut off"),
    (Limit::GivingUp, "giving up"),
    (Limit::HandingOver, "handing over"),
    (Limit::LastWords, "last words"),
    (Limit::Search, "search"),
];

/// How often each of [`LIMITS`] ran out.
pub type Expired = [u64; LIMITS.len()];

#[cfg(any(test, feature = "harness"))]
mod counts {
    use std::cell::Cell;

    use super::{Expired, LIMITS, Limit};

    thread_local! {
        /// A simulation runs on one thread, with all its nodes.
        static COUNTS: Cell<Expired> = const { Cell::new([0; LIMITS.len()]) };
    }

    pub(super) fn add(limit: Limit) {
        let mut counts = COUNTS.get();
        counts[limit as usize] += 1;
        COUNTS.set(counts);
    }

    /// How often each ran out on this thread since this was last asked.
    #[must_use]
    pub fn take() -> Expired {
        COUNTS.take()
    }
}

#[cfg(any(test, feature = "harness"))]
pub use counts::take;

/// That time is over, and something is done for it.
pub(crate) fn ran_out(limit: Limit) {
    #[cfg(any(test, feature = "harness"))]
    counts::add(limit);
    let _ = limit;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_counted_under_its_own_name() {
        for (place, (limit, name)) in LIMITS.into_iter().enumerate() {
            // Counts that earlier tests of this thread left.
            let _ = take();
            ran_out(limit);
            let counts = take();
            assert_eq!((counts[place], counts.iter().sum()), (1, 1), "{name}");
        }
    }
}
