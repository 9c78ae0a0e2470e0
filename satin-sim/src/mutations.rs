//! Does the simulator find out when a rule is left out? For each rule of repair it must: by an invariant that is violated,
//! or because more work is done twice than with all rules.

use std::ops::Range;

use satin_runtime::node::Rule;

use crate::{
    seeds::{self, Summary},
    trial::Options,
};

/// All rules, and what they are called on the command line.
pub const RULES: [(Rule, &str); 17] = [
    (Rule::PutBack, "put-back"),
    (Rule::Mark, "mark"),
    (Rule::Inherit, "inherit"),
    (Rule::Flushed, "flushed"),
    (Rule::Announce, "announce"),
    (Rule::AntiEntropy, "anti-entropy"),
    (Rule::Withdraw, "withdraw"),
    (Rule::Tokens, "tokens"),
    (Rule::Liveness, "liveness"),
    (Rule::Rebirth, "rebirth"),
    (Rule::Have, "have"),
    (Rule::Closed, "closed"),
    (Rule::Welcome, "welcome"),
    (Rule::Disown, "disown"),
    (Rule::Save, "save"),
    (Rule::Fingerprint, "fingerprint"),
    (Rule::Replicate, "replicate"),
];

/// How a rule is called.
///
/// # Panics
/// If it is not one of [`RULES`].
#[must_use]
pub fn name(rule: Rule) -> &'static str {
    let known = RULES.iter().find(|(known, _)| *known == rule);
    known.expect("all rules are listed").1
}

/// With a rule left out more than so many times the work is done twice that is done twice with all rules: then it is
/// found out.
pub const BOUND: f64 = 1.02;

/// How a mutation was found.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// An invariant was violated.
    Violated {
        /// By this seed.
        seed: u64,
        /// Which.
        invariant: &'static str,
        /// How.
        sentence: String,
    },
    /// So many times as much work was done twice.
    Twice(f64),
    /// It was not: this is how many times as much work was done twice.
    NotAtAll(f64),
}

/// Leaves one rule out after the other.
pub fn check(
    seeds: Range<u64>,
    jobs: u32,
    options: &Options,
    rules: &[Rule],
    mut tell: impl FnMut(Rule, &Found, &Summary),
) -> Summary {
    let quiet = |_: &Summary| {};
    let whole = seeds::run(seeds.clone(), jobs, options, &quiet, &|_| false);
    for rule in rules {
        let mut options = options.clone();
        options.without.insert(*rule);
        let until = |summary: &Summary| summary.violated > 0;
        let without = seeds::run(seeds.clone(), jobs, &options, &quiet, &until);
        let times = without.twice.as_secs_f64() / whole.twice.as_secs_f64().max(1e-9);
        let found = match without.violations.first() {
            Some(trial) if trial.violation.is_some() => {
                let violation = trial.violation.clone().expect("it was there a line ago");
                Found::Violated {
                    seed: trial.seed,
                    invariant: violation.invariant,
                    sentence: violation.sentence,
                }
            }
            _ if times > BOUND => Found::Twice(times),
            _ => Found::NotAtAll(times),
        };
        tell(*rule, &found, &without);
    }
    whole
}
