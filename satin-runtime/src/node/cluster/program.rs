//! Imaginary programs: trees of jobs whose shape, durations and results follow from a seed.

use std::time::Duration;

/// One invocation, small enough to travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// What it computes, and how its subtree looks.
    pub seed: u64,
    /// Levels below it, at most.
    pub height: u32,
}

/// The shape of a tree of jobs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// Every inner job has `width` children, `height` levels deep; the first `serial` of them one after another, the
    /// others at once.
    Knary {
        /// Children of each inner job.
        width: u32,
        /// Levels below the root.
        height: u32,
        /// So many children are waited for, each, before the others are spawned.
        serial: u32,
    },
    /// Unbalanced tree search: the number of children is geometrically distributed around `branching`, `height` levels
    /// deep at most. Subtrees differ by orders of magnitude, and nobody knows beforehand.
    Uts {
        /// Children, on average.
        branching: f64,
        /// Levels below the root.
        height: u32,
    },
    /// A root with so many leaves, spawned by one loop.
    Flat {
        /// Leaves.
        jobs: u32,
    },
    /// Anything: up to `width` children in each of up to three phases, uneven durations, `height` levels deep at most.
    Random {
        /// Children in a phase, at most.
        width: u32,
        /// Levels below the root.
        height: u32,
        /// Of a hundred inner jobs so many are races: the first child that is done aborts the others.
        races: u32,
    },
}

/// A tree of jobs and how long they take.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Its shape.
    pub shape: Shape,
    /// How long a leaf takes.
    pub leaf: Duration,
    /// How long each phase of an inner job takes before it spawns.
    pub inner: Duration,
    /// Bytes of arguments; a job needs 12 at least.
    pub size: usize,
    /// Where its randomness comes from.
    pub seed: u64,
}

impl Program {
    /// Leaves take `leaf`, inner jobs a microsecond.
    #[must_use]
    pub fn new(shape: Shape, leaf: Duration) -> Program {
        let (inner, size) = (Duration::from_micros(1), 12);
        Program {
            shape,
            leaf,
            inner: inner.min(leaf),
            size,
            seed: 0,
        }
    }

    /// The same with other random numbers.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Program {
        Program { seed, ..self }
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> Work {
        let height = match self.shape {
            Shape::Knary { height, .. }
            | Shape::Uts { height, .. }
            | Shape::Random { height, .. } => height,
            Shape::Flat { .. } => 1,
        };
        Work {
            seed: mix(self.seed),
            height,
        }
    }

    /// Child number `index` of a job.
    #[must_use]
    pub fn child(&self, work: Work, index: u32) -> Work {
        Work {
            seed: mix(work.seed ^ mix(u64::from(index) + 1)),
            height: work.height - 1,
        }
    }

    /// How long the job computes before it spawns the children of that phase, and how many they are; `None` after the
    /// last phase.
    #[must_use]
    pub fn phase(&self, work: Work, phase: u32) -> Option<(Duration, u32)> {
        if work.height == 0 {
            return (phase == 0).then(|| (self.leaf_time(work), 0));
        }
        match self.shape {
            Shape::Knary { width, serial, .. } => match phase {
                p if p < serial => Some((self.inner, 1)),
                p if p == serial => Some((self.inner, width - serial)),
                _ => None,
            },
            Shape::Flat { jobs } => (phase == 0).then_some((self.inner, jobs)),
            Shape::Uts { branching, .. } => (phase == 0).then(|| {
                // Geometric with that mean.
                let chance = branching / (1.0 + branching);
                let children = (1.0 - unit(work.seed)).ln() / chance.ln();
                let children = children.floor().min(100.0) as u32;
                let time = if children == 0 { self.leaf } else { self.inner };
                (time, children)
            }),
            Shape::Random { width, races, .. } => {
                let dice = mix(work.seed ^ 0x5eed);
                let phases = if self.is_race(work, races) {
                    1
                } else {
                    1 + dice % 3
                };
                (u64::from(phase) < phases).then(|| {
                    let children = mix(dice ^ u64::from(phase)) % u64::from(width + 1);
                    (self.inner, children as u32)
                })
            }
        }
    }

    fn leaf_time(&self, work: Work) -> Duration {
        match self.shape {
            Shape::Random { .. } => self.leaf.mul_f64(2.0 * unit(mix(work.seed ^ 0x1eaf))),
            _ => self.leaf,
        }
    }

    /// Does the first child that is done abort the others?
    #[must_use]
    pub fn races(&self, work: Work) -> bool {
        matches!(self.shape, Shape::Random { races, .. } if self.is_race(work, races))
    }

    fn is_race(&self, work: Work, races: u32) -> bool {
        work.height > 0 && mix(work.seed ^ 0x4ace) % 100 < u64::from(races)
    }

    /// What a job adds to its result.
    #[must_use]
    pub fn own(&self, work: Work) -> u64 {
        mix(work.seed ^ 0x0e5)
    }

    /// What a child's result adds to its parent's.
    #[must_use]
    pub fn share(&self, index: u32, result: u64) -> u64 {
        mix(result ^ (u64::from(index) << 32))
    }

    /// Result, number of jobs and time of the whole tree, on one worker. Races count as if nothing were aborted.
    #[must_use]
    pub fn sequential(&self) -> Outcome {
        self.below(self.root())
    }

    fn below(&self, work: Work) -> Outcome {
        let mut all = Outcome {
            result: self.own(work),
            jobs: 1,
            leaves: 0,
            time: Duration::ZERO,
        };
        let race = self.races(work);
        let (mut phase, mut index) = (0, 0);
        while let Some((time, children)) = self.phase(work, phase) {
            all.time += time;
            for _ in 0..children {
                let child = self.below(self.child(work, index));
                if !race {
                    let share = self.share(index, child.result);
                    all.result = all.result.wrapping_add(share);
                }
                all.jobs += child.jobs;
                all.leaves += child.leaves;
                all.time += child.time;
                index += 1;
            }
            phase += 1;
        }
        all.leaves += u64::from(index == 0);
        all
    }
}

/// What a program comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Its result.
    pub result: u64,
    /// Its jobs.
    pub jobs: u64,
    /// Those without children.
    pub leaves: u64,
    /// The sum of their durations.
    pub time: Duration,
}

/// Scatters bits (splitmix64).
#[must_use]
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn unit(seed: u64) -> f64 {
    (mix(seed) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knary_has_the_leaves_it_should() {
        let shape = Shape::Knary {
            width: 4,
            height: 7,
            serial: 0,
        };
        let outcome = Program::new(shape, Duration::from_millis(10)).sequential();
        assert_eq!(outcome.leaves, 16_384);
        assert_eq!(outcome.time.as_millis(), 163_845);
    }
}
