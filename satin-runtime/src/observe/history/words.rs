//! The history in words.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::observe::{
    advice::{Evidence, Finding, finding},
    events::Event,
    look::WhyIdle,
};

/// Says why a worker has nothing to run; goes on from "has nothing to run: ".
#[must_use]
pub fn reason_in_words(why: WhyIdle) -> &'static str {
    match why {
        WhyIdle::NoRootJob => "no root job is under way",
        WhyIdle::NoWork => "no other node has work to give",
        WhyIdle::NotWorthIt => "what others have is not worth the way",
        WhyIdle::WaitsForValue => "a stolen job waits for a shared value",
        WhyIdle::WaitsForChild => "a child that another node has is waited for",
        WhyIdle::Leaving => "the node is about to leave",
        WhyIdle::MemoryFull => "the memory is full",
    }
}

/// Says what a person can do about it, given what is known of the pool.
#[must_use]
pub fn advice_of(why: WhyIdle, seen: &Evidence) -> &'static str {
    match why {
        WhyIdle::NoRootJob => {
            "`main` runs code of its own, or waits: nothing to be done, unless that takes long."
        }
        WhyIdle::NoWork if finding(seen) == Finding::Unknown => {
            "There were times without a job for each worker: when many jobs move, near the end of a root job or after a death that is as it must be."
        }
        WhyIdle::NoWork => {
            "The program has fewer jobs than workers. Spawn more, smaller jobs, or use fewer nodes."
        }
        WhyIdle::NotWorthIt => {
            "Jobs are short for the data that they move. Make them larger, pass `Shared` values instead of copies, or keep to one site."
        }
        WhyIdle::WaitsForValue => {
            "Shared values are on their way. Make them smaller, or share them earlier."
        }
        WhyIdle::WaitsForChild => {
            "A job ends only with its slowest child. Cut large children into smaller ones."
        }
        WhyIdle::Leaving => "Nothing to be done: the node hands over its jobs and goes.",
        WhyIdle::MemoryFull => {
            "Raise `SATIN_MEMORY`, use fewer workers, or make the data of jobs smaller."
        }
    }
}

/// The event in words; `None` for events that are shown elsewhere.
pub(super) fn event_in_words(event: &Event, name: &str) -> Option<String> {
    Some(match event {
        Event::Node {
            site,
            addr,
            threads,
            ..
        } => {
            let workers = if *threads == 1 { "worker" } else { "workers" };
            format!("{name} in {site} listens at {addr}, with {threads} {workers}")
        }
        Event::Joined { site } => format!("{name} in {site} joined"),
        Event::Draining { site } => format!("{name} in {site} is about to leave"),
        Event::Left { site } => format!("{name} in {site} left"),
        Event::Dead { site } => format!("{name} in {site} died"),
        Event::CutOff { site } => format!("{name} in {site} is cut off from the master"),
        Event::Branch { site } => format!("{name} in {site} begins a branch"),
        Event::ComesOver { site } => format!("{name} in {site} comes over"),
        Event::Master { site, term: 0 } => format!("{name} in {site} runs main"),
        Event::Master { site, .. } => format!("{name} in {site} runs main now"),
        Event::RootStarted { root } => format!("root job {}.{} began", root.term, root.number),
        Event::RootFinished { root } => format!("root job {}.{} is done", root.term, root.number),
        Event::PoolEnded { code } => format!("the pool ended with exit code {code}"),
        Event::PutBack { jobs } => {
            let jobs = jobs_in_words(jobs);
            format!("{name} had given {jobs} to nodes that were gone, or gave them up: done again")
        }
        Event::Progress { .. } | Event::Stats(_) | Event::Unknown => return None,
    })
}

/// How many jobs, and of which functions: "3 jobs (2 of gemm, 1 of getrf)".
#[must_use]
pub fn jobs_in_words(jobs: &BTreeMap<String, u64>) -> String {
    let all: u64 = jobs.values().sum();
    let mut each: Vec<_> = jobs.iter().collect();
    each.sort_by_key(|(_, count)| Reverse(**count));
    let mut of: Vec<_> = (each.iter().take(MOST_NAMED))
        .map(|(name, count)| format!("{count} of {name}"))
        .collect();
    let others: u64 = each.iter().skip(MOST_NAMED).map(|(_, count)| **count).sum();
    if others > 0 {
        of.push(format!("{others} of others"));
    }
    let plural = if all == 1 { "" } else { "s" };
    format!("{all} job{plural} ({})", of.join(", "))
}

/// Functions that are named in a line, at most: more would not be read.
const MOST_NAMED: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_told_by_their_functions_the_most_first() {
        let told = |jobs: &[(&str, u64)]| {
            let jobs = jobs
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            jobs_in_words(&jobs.collect())
        };
        assert_eq!(told(&[("getrf", 1)]), "1 job (1 of getrf)");
        assert_eq!(
            told(&[("a", 1), ("gemm", 7), ("trsm", 2), ("b", 1), ("c", 1)]),
            "12 jobs (7 of gemm, 2 of trsm, 1 of a, 1 of b, 1 of others)"
        );
    }
}
