//! The times of the protocol that run out. A simulation whose faults are shorter than a time never meets what
//! follows when it is over, so simulations count; elsewhere they are not counted.

use strum::{Display, EnumCount, VariantArray};

/// A time of the protocol after whose end something else is done. Not among them: rates (of gossip,
/// comparisons, news), and waits for more of the same, which are over before anything can happen; and
/// times that are over before a pool stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, EnumCount, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Expiry {
    /// [`ProtocolConfig::partition_wait`](super::ProtocolConfig::partition_wait): a master is chosen although
    /// half of the pool is away.
    #[strum(serialize = "partition wait")]
    PartitionWait,
    /// The network has been quiet for a moment since the master fell silent: it was alone.
    Settle,
    /// The nodes before this one in line have not become master.
    Precedence,
    /// A master of whom this node has heard has not come into its view.
    Appears,
    /// The store has not answered, and `main` begins without what stands in it.
    #[strum(serialize = "open run")]
    OpenRun,
    /// A node has not told its orphan table, and `main` begins.
    #[strum(serialize = "catch up")]
    CatchUp,
    /// [`ProtocolConfig::suspicion`](super::ProtocolConfig::suspicion): a silent node is declared dead.
    Suspicion,
    /// A machine said that nobody listens there, and no word came from the node since.
    Refute,
    /// [`ProtocolConfig::redial`](super::ProtocolConfig::redial): a node that was lost is dialled.
    Redial,
    /// [`ProtocolConfig::cut_off`](super::ProtocolConfig::cut_off): a peer that nobody can reach is declared dead.
    #[strum(serialize = "cut off")]
    CutOff,
    /// A third node did not bring a peer to speak that cannot be reached directly.
    Call,
    /// A circuit has carried nothing for so long that it is closed.
    #[strum(serialize = "idle circuit")]
    CircuitIdle,
    /// A timer is so late that this node must have slept.
    Slept,
    /// A newcomer says that nobody answers.
    Search,
    /// [`ProtocolConfig::claim_patience`](super::ProtocolConfig::claim_patience): a claim is withdrawn.
    #[strum(serialize = "claim patience")]
    Claim,
    /// No other node has taken a job that has taken down nodes: it is run where it is.
    #[strum(serialize = "held job")]
    Held,
    /// What may be done by a site that was cut off has waited for it long enough.
    #[strum(serialize = "late job")]
    Late,
    /// Workers say nothing, and may have no room on their stacks: hosted jobs that have not begun go back.
    #[strum(serialize = "full stack")]
    FullStack,
    /// A node has not said that its orphans are announced, and is not waited for.
    #[strum(serialize = "flush wait")]
    Flush,
    /// Old flushings and closings are forgotten.
    #[strum(serialize = "remembered")]
    Remember,
    /// Hearsay about an owner is not on its sheet, and is not believed any more.
    Hearsay,
    /// A keeper has not said that it has what it was to keep, and is asked again.
    #[strum(serialize = "keep again")]
    Keep,
    /// A node that leaves stops waiting until what it has is in the store.
    #[strum(serialize = "last batch")]
    LastBatch,
    /// A draining node stops waiting for its jobs to be given up.
    #[strum(serialize = "giving up")]
    GivingUp,
    /// A draining node stops waiting for its heir.
    #[strum(serialize = "handing over")]
    HandingOver,
    /// A draining node stops waiting for acknowledgements.
    #[strum(serialize = "last words")]
    LastWords,
    /// A request for jobs has not been answered.
    Request,
    /// A peer that could not be reached is tried again.
    Reconnect,
    /// A holder of a shared value has said nothing for so long that another is asked.
    Fetch,
    /// A node that waits for a shared value is told that it is on its way.
    Soon,
    /// A node that asked for a shared value in vain is forgotten.
    Denied,
    /// A process that was declared dead has not come back, and the root jobs that only it would have ended
    /// go.
    #[strum(serialize = "comes back")]
    ComesBack,
}

/// Number of times that each [`Expiry`] ran out.
pub type Expired = [u64; Expiry::COUNT];

#[cfg(any(test, feature = "harness"))]
mod counts {
    use std::cell::Cell;

    use strum::EnumCount;

    use super::{Expired, Expiry};

    thread_local! {
        /// A simulation runs on one thread, with all its nodes.
        static COUNTS: Cell<Expired> = const { Cell::new([0; Expiry::COUNT]) };
    }

    pub(super) fn add(limit: Expiry) {
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

/// Counts, in simulations, that a time is over and something is done for it.
pub(crate) fn ran_out(limit: Expiry) {
    #[cfg(any(test, feature = "harness"))]
    counts::add(limit);
    let _ = limit;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_counted_under_its_own_name() {
        for (place, limit) in Expiry::VARIANTS.iter().enumerate() {
            // Counts that earlier tests of this thread left.
            let _ = take();
            ran_out(*limit);
            let counts = take();
            assert_eq!((counts[place], counts.iter().sum()), (1, 1), "{limit}");
        }
    }
}
