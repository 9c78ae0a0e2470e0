//! The history in words.

use crate::observe::{events::Event, look::WhyIdle};

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

/// Says what a person can do about it.
#[must_use]
pub fn advice_of(why: WhyIdle) -> &'static str {
    match why {
        WhyIdle::NoRootJob => {
            "`main` runs code of its own, or waits: nothing to be done, unless that takes long."
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
        Event::Master { site, term: 0 } => format!("{name} in {site} runs main"),
        Event::Master { site, .. } => format!("{name} in {site} runs main now"),
        Event::RootStarted { root } => format!("root job {}.{} began", root.term, root.number),
        Event::RootFinished { root } => format!("root job {}.{} is done", root.term, root.number),
        Event::PoolEnded { code } => format!("the pool ended with exit code {code}"),
        Event::Progress { .. } | Event::Stats(_) | Event::Unknown => return None,
    })
}
