//! The bar of a whole pool, as the events of its nodes tell how far it is.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use satin_runtime::{
    observe::{events::Event, lines},
    progress::{Progress, Words},
};

/// The time from one drawing to the next while nothing is told. Too short: drawing takes time. Too long: the seconds jump.
const REDRAW: Duration = Duration::from_secs(1);

/// Is there a screen for a bar, and does the environment not say no?
#[must_use]
pub fn is_wanted() -> bool {
    let is_unwanted = std::env::var("SATIN_PROGRESS").as_deref() == Ok("no");
    lines::has_terminal() && !is_unwanted
}

/// The bar of the root job that runs, whichever node runs `main`: neither the bar nor its time goes with a master that dies.
#[derive(Default)]
pub struct Bar {
    /// When each root job of `main` began first, by its number.
    began: HashMap<u32, Instant>,
    /// The number of the one that began last.
    runs: Option<u32>,
    told: Option<Told>,
    drawn: Option<Instant>,
}

/// The last word of a master.
struct Told {
    done: f64,
    is_guess: bool,
    nodes: usize,
    /// When the root job began.
    began: Instant,
}

impl Bar {
    /// Moves the bar as the event says.
    pub fn follow(&mut self, event: &Event, now: Instant) {
        match event {
            Event::RootStarted { root } => {
                self.began.entry(root.number).or_insert(now);
                // The next master calls the same one again.
                if self.runs.replace(root.number) != Some(root.number) {
                    self.told = None;
                }
            }
            Event::Progress {
                done,
                seconds,
                is_guess,
                nodes,
            } => {
                let elapsed = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
                let first = self.runs.and_then(|number| self.began.get(&number));
                let began = first.copied().or_else(|| now.checked_sub(elapsed));
                self.told = Some(Told {
                    done: *done,
                    is_guess: *is_guess,
                    nodes: *nodes,
                    began: began.unwrap_or(now),
                });
                self.draw(now);
            }
            Event::RootFinished { root } => {
                self.began.remove(&root.number);
                if self.runs == Some(root.number) {
                    self.runs = None;
                    if let Some(told) = &mut self.told {
                        (told.done, told.is_guess) = (1.0, false);
                        self.draw(now);
                        lines::leave_bar();
                    }
                }
            }
            // The next master has to look first how much is left.
            Event::Master { term: 1.., .. } => {
                if let Some(told) = &mut self.told {
                    told.is_guess = true;
                }
            }
            _ => {}
        }
    }

    /// Moves the seconds on.
    pub fn tick(&mut self, now: Instant) {
        let is_due = (self.drawn).is_some_and(|drawn| now.duration_since(drawn) >= REDRAW);
        if is_due && self.runs.is_some() {
            self.draw(now);
        }
    }

    fn draw(&mut self, now: Instant) {
        if let Some((done, words)) = self.words(now) {
            self.drawn = Some(now);
            lines::show_bar(done, words);
        }
    }

    /// The part that is done, and the words beside the bar.
    fn words(&self, now: Instant) -> Option<(f64, String)> {
        let told = self.told.as_ref()?;
        let elapsed = now.duration_since(told.began);
        let progress = Progress::told(told.done, elapsed, told.is_guess);
        let nodes = told.nodes;
        Some((told.done, Words { progress, nodes }.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use satin_runtime::job::RootTag;

    use super::*;

    #[test]
    fn a_bar_outlives_the_master_and_ends_full() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let root = |term| RootTag { term, number: 0 };
        let progress = |done, seconds| Event::Progress {
            done,
            seconds,
            is_guess: false,
            nodes: 3,
        };
        let mut bar = Bar::default();
        assert_eq!(bar.words(start), None);
        bar.follow(&Event::RootStarted { root: root(0) }, start);
        bar.follow(&progress(0.5, 30.0), at(30));
        let said = |bar: &Bar, seconds| bar.words(at(seconds)).expect("a bar").1;
        assert_eq!(said(&bar, 30), "50 % in 30 s, 30 s left, 3 nodes");
        // The master dies: the time goes on, and what is left is not known well.
        let site = "here".to_owned();
        bar.follow(&Event::Master { site, term: 1 }, at(40));
        assert_eq!(
            said(&bar, 40),
            "about 50 % in 40 s, about 40 s left, 3 nodes"
        );
        // The next one knows of less, and its own time is that since it is master.
        bar.follow(&Event::RootStarted { root: root(1) }, at(40));
        bar.follow(&progress(0.4, 2.0), at(42));
        assert_eq!(
            said(&bar, 60),
            "40 % in 1 min 0 s, 1 min 30 s left, 3 nodes"
        );
        bar.follow(&Event::RootFinished { root: root(1) }, at(80));
        assert_eq!(bar.words(at(80)).map(|(done, _)| done), Some(1.0));
        assert_eq!(said(&bar, 80), "100 % in 1 min 20 s, 3 nodes");
    }
}
