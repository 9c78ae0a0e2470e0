//! Clocks of nodes: no two of them need agree.

use std::time::Duration;

use super::{Cluster, program::mix};

const MILLION: u128 = 1_000_000;

/// The clock of one node, as against the virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Clock {
    /// The clock's reading when the virtual time began.
    ahead: Duration,
    /// Ticks that the clock gains in a million.
    gains: i32,
}

impl Clock {
    /// The clock's reading at that moment.
    pub(super) fn reads(self, at: Duration) -> Duration {
        self.ahead + nanos(at.as_nanos() * self.rate() / MILLION)
    }

    /// The first moment at which it reads that, or more.
    pub(super) fn moment(self, reading: Duration) -> Duration {
        let since = reading.saturating_sub(self.ahead).as_nanos();
        nanos((since * MILLION).div_ceil(self.rate()))
    }

    fn rate(self) -> u128 {
        (MILLION as i128 + i128::from(self.gains)) as u128
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(nanos as u64)
}

impl Cluster {
    /// Gives new nodes clocks that begin anywhere within an hour and gain or lose up to five of a hundred: far more than
    /// real ones do. A clock follows from the seed and the node's number.
    pub fn differ_clocks(&mut self, seed: u64) {
        self.clocks = Some(seed);
    }

    /// The clock of a node to come.
    pub(super) fn clock_of(&self, node: u32) -> Clock {
        self.clocks.map_or(Clock::default(), |seed| {
            let dice = mix(seed ^ u64::from(node));
            Clock {
                ahead: Duration::from_millis(dice % 3_600_000),
                gains: (mix(dice) % 100_001) as i32 - 50_000,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_never_early_on_its_own_clock() {
        let mut cluster = Cluster::new(1);
        cluster.differ_clocks(7);
        for node in 0..200 {
            let clock = cluster.clock_of(node);
            for reading in
                (0..50).map(|step| clock.ahead + Duration::from_nanos(step * 777_777_777))
            {
                let moment = clock.moment(reading);
                assert!(clock.reads(moment) >= reading);
                let before = moment.saturating_sub(Duration::from_nanos(2));
                assert!(moment.is_zero() || clock.reads(before) <= reading);
            }
        }
    }
}
