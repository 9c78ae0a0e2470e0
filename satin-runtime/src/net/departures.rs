//! Nodes that came and went, as far as the master may have had no time to tell: a node that becomes master tells it
//! instead.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    node::{Identity, NodeId},
    observe::events::Event,
};

/// Number of arrivals and departures that are remembered. Too small: a new master tells an incomplete story. Too large:
/// memory.
const MOST: usize = 1024;

/// Longest time for which a master may have been dead before that was noticed. Events in between are told, though they
/// may have been told: rather twice than never. Too short: events are lost. Too long: more are told twice.
const DOUBT: Duration = Duration::from_secs(10);

/// The arrivals and departures that this node has noticed and not told, as it was not master.
#[derive(Default)]
pub(super) struct NoticedDepartures(VecDeque<Noticed>);

struct Noticed {
    at: Instant,
    who: Identity,
    event: Event,
}

impl NoticedDepartures {
    pub(super) fn note(&mut self, now: Instant, who: &Identity, event: Event) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(Noticed {
            at: now,
            who: who.clone(),
            event,
        });
    }

    /// Arrivals and departures that this node, which is master now, after `old`, has to tell. If the old master handed
    /// over, it has told all but its own departure.
    pub(super) fn untold(&mut self, old: Option<NodeId>) -> Vec<(Identity, Event)> {
        let noticed = std::mem::take(&mut self.0);
        let died = noticed.iter().find_map(|noticed| {
            let is_old = Some(noticed.who.peer.id) == old;
            (is_old && matches!(noticed.event, Event::Dead { .. })).then_some(noticed.at)
        });
        let untold = noticed.into_iter().filter(|noticed| {
            Some(noticed.who.peer.id) == old || died.is_some_and(|died| noticed.at + DOUBT >= died)
        });
        untold.map(|noticed| (noticed.who, noticed.event)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u128) -> Identity {
        Identity {
            peer: NodeId(id).first_life(),
            name: format!("n{id}").as_str().into(),
            site: "s".into(),
            addr: ([127, 0, 0, 1], 1).into(),
            stamp: 0,
            threads: 1,
        }
    }

    fn site() -> String {
        "s".into()
    }

    /// Node 2 dies long before, 3 shortly before, 4 after the master, which is 1.
    fn story(end_of_master: Event) -> Vec<String> {
        let (mut departures, start) = (NoticedDepartures::default(), Instant::now());
        let mut at = |seconds, id, event| {
            departures.note(start + Duration::from_secs(seconds), &node(id), event);
        };
        at(0, 2, Event::Dead { site: site() });
        at(55, 3, Event::Dead { site: site() });
        at(60, 1, end_of_master);
        at(61, 4, Event::Left { site: site() });
        let untold = departures.untold(Some(NodeId(1)));
        assert!(departures.untold(None).is_empty(), "each is told once");
        untold
            .into_iter()
            .map(|(who, _)| who.name.to_string())
            .collect()
    }

    #[test]
    fn what_the_dead_master_may_not_have_told_is_told() {
        assert_eq!(story(Event::Dead { site: site() }), ["n3", "n1", "n4"]);
    }

    #[test]
    fn a_master_that_hands_over_has_told_everything_but_its_own_departure() {
        assert_eq!(story(Event::Draining { site: site() }), ["n1"]);
    }
}
