//! How fast a seed's time runs. Most seeds are short, with times of the protocol that are short too; some have the usual
//! settings, and work and faults that last as long as they do in reality: only there what takes minutes runs out.

use std::time::Duration;

use satin_runtime::node::{
    ProtocolConfig,
    cluster::{Program, Wire},
};

use crate::faults::Dice;

/// The pace of time in a seed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Pace {
    /// Factor by which work takes longer.
    work: u32,
    /// Factor by which faults of several kinds last longer.
    pub(crate) faults: u32,
    /// Factor by which the time grows until everything must be done and at rest.
    pub(crate) patience: u32,
}

impl Pace {
    /// A short seed: the factors are 1.
    const SHORT: Pace = Pace {
        work: 1,
        faults: 1,
        patience: 1,
    };

    /// A long seed if there are dice for it.
    pub(crate) fn of(long: Option<Dice>) -> Pace {
        long.map_or(Pace::SHORT, |mut dice| Pace {
            work: dice.one_of(&[20, 60, 200]),
            faults: dice.one_of(&[1, 4, 15]),
            patience: 20,
        })
    }

    pub(crate) fn is_long(self) -> bool {
        self != Pace::SHORT
    }

    /// The settings that fit a short seed, or the usual ones.
    pub(crate) fn config(self, short: ProtocolConfig) -> ProtocolConfig {
        match self.is_long() {
            false => short,
            true => ProtocolConfig {
                max_crashes: short.max_crashes,
                without: short.without,
                ..ProtocolConfig::default()
            },
        }
    }

    pub(crate) fn stretch(self, program: &mut Program) {
        program.leaf *= self.work;
        program.inner *= self.work;
    }

    /// Time without messages after which a link is given up.
    pub(crate) fn idle_timeout(self) -> Duration {
        match self.is_long() {
            false => Duration::from_millis(600),
            true => Wire::default().idle_timeout,
        }
    }
}
