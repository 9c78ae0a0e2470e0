//! The workflow: steps in an order in which each comes after what it reads. Knows nothing of how they are run.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::run::{Ended, Report};
use crate::step::{Finish, Outcome, Step, Work};

/// What a step reads.
#[derive(Clone, Copy)]
pub enum Source {
    /// The output of the step of that place in [`Workflow::steps`].
    Step(usize),
    /// The file of that place in [`Workflow::files`].
    File(usize),
}

/// A graph of steps.
pub struct Workflow {
    /// Each comes after the steps that it reads.
    pub steps: Vec<Step>,
    /// What each step reads, in the order of [`Step::reads`].
    pub sources: Vec<Vec<Source>>,
    /// The contents of files that steps read.
    pub files: Vec<Outcome>,
    /// The length of the longest path, if the file says it.
    pub known_critical_path: Option<Duration>,
}

/// A step as a file has it.
pub struct Entry {
    pub step: Step,
    /// Where it stands, for people: "line 7".
    pub place: String,
    /// The steps that it reads, each with the place where that is said.
    pub reads: Vec<(String, String)>,
    /// The files that it reads: places in the list of files.
    pub files: Vec<usize>,
}

impl Workflow {
    /// Puts the steps in order.
    ///
    /// # Errors
    /// If two have the same name, one reads a step that there is not, or some wait for each other in a circle.
    pub fn new(entries: Vec<Entry>, files: Vec<Outcome>) -> anyhow::Result<Self> {
        ensure!(!entries.is_empty(), "there is no step");
        let mut places = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let name = entry.step.name.as_str();
            if let Some(first) = places.insert(name, at) {
                anyhow::bail!(
                    "{}: there is a step `{name}` already ({}): give one of them another name",
                    entry.place,
                    entries[first].place
                );
            }
        }
        let before = |entry: &Entry| -> anyhow::Result<Vec<usize>> {
            let place = |(name, place): &(String, String)| {
                let at = places.get(name.as_str()).copied();
                at.with_context(|| {
                    format!(
                        "{place}: step `{}` reads `{name}`, but there is no step of that name{}",
                        entry.step.name,
                        similar(name, places.keys().copied())
                    )
                })
            };
            entry.reads.iter().map(place).collect()
        };
        let before: Vec<Vec<usize>> = entries.iter().map(before).collect::<anyhow::Result<_>>()?;
        let order = in_order(&before).map_err(|circle| {
            let names = circle.iter().map(|at| entries[*at].step.name.as_str());
            let names: Vec<&str> = names
                .chain([entries[circle[0]].step.name.as_str()])
                .collect();
            anyhow::anyhow!(
                "{}: these steps wait for each other in a circle, each for the next one: {}",
                entries[circle[0]].place,
                names.join(" -> ")
            )
        })?;

        let mut rank = vec![0; entries.len()];
        for (place, at) in order.iter().enumerate() {
            rank[*at] = place;
        }
        let mut entries: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
        let (mut steps, mut sources) = (Vec::new(), Vec::new());
        for at in order {
            let entry = entries[at].take().expect("an order has each step once");
            let read = before[at].iter().map(|step| Source::Step(rank[*step]));
            sources.push(
                read.chain(entry.files.into_iter().map(Source::File))
                    .collect(),
            );
            steps.push(entry.step);
        }
        Ok(Self {
            steps,
            sources,
            files,
            known_critical_path: None,
        })
    }

    pub fn has_commands(&self) -> bool {
        let is_command = |step: &Step| matches!(step.work, Work::Command { .. });
        self.steps.iter().any(is_command)
    }

    /// The steps that no other one reads.
    pub fn last(&self) -> Vec<usize> {
        let read: BTreeSet<usize> = self.edges().map(|(from, _)| from).collect();
        (0..self.steps.len())
            .filter(|at| !read.contains(at))
            .collect()
    }

    /// Each pair of a step and one that reads it.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        let of_step = |(to, sources): (usize, &'_ Vec<Source>)| {
            let steps = sources.iter().filter_map(|source| match source {
                Source::Step(from) => Some(*from),
                Source::File(_) => None,
            });
            steps.map(|from| (from, to)).collect::<Vec<_>>()
        };
        self.sources.iter().enumerate().flat_map(of_step)
    }

    /// The time of all timed steps.
    pub fn time(&self) -> Duration {
        let time = |step: &Step| match &step.work {
            Work::Timed { time, .. } => *time,
            Work::Command { .. } => Duration::ZERO,
        };
        self.steps.iter().map(time).sum()
    }

    /// The length of the longest path, as the timed steps have found it; none if there are none.
    pub fn critical_path(&self, report: &Report) -> Option<Duration> {
        let finished = report.ended.iter().filter_map(|ended| match ended {
            Ended::Timed(finish) => Some(finish.earliest),
            _ => None,
        });
        finished.max()
    }

    /// # Errors
    /// If a timed step did not see the values of the steps that it reads, or the critical path is not the one that the file says.
    pub fn check(&self, report: &Report) -> anyhow::Result<()> {
        let mut expected: Vec<Option<Finish>> = Vec::new();
        for ((step, sources), ended) in self.steps.iter().zip(&self.sources).zip(&report.ended) {
            let finish = match &step.work {
                Work::Timed { time, .. } => {
                    let read = sources.iter().filter_map(|source| match source {
                        Source::Step(at) => expected[*at].as_ref(),
                        Source::File(_) => None,
                    });
                    Some(Finish::after(&step.name, *time, read))
                }
                Work::Command { .. } => None,
            };
            if let Ended::Timed(found) = ended {
                ensure!(
                    Some(found) == finish.as_ref(),
                    "wrong answer: step `{}` has read something else than the steps before it have made",
                    step.name
                );
            }
            expected.push(finish);
        }
        if let (Some(known), Some(found)) = (self.known_critical_path, self.critical_path(report)) {
            ensure!(
                known == found,
                "wrong answer: the critical path takes {found:?}, but according to the file {known:?}"
            );
        }
        Ok(())
    }
}

/// An order in which each comes after those before it, as near to that of the list as can be; or else a circle.
fn in_order(before: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut after = vec![Vec::new(); before.len()];
    let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
    for (at, before) in before.iter().enumerate() {
        for from in before {
            after[*from].push(at);
        }
    }
    let mut ready: BTreeSet<usize> = (0..before.len()).filter(|at| missing[*at] == 0).collect();
    let mut order = Vec::new();
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for next in &after[at] {
            missing[*next] -= 1;
            if missing[*next] == 0 {
                ready.insert(*next);
            }
        }
    }
    if order.len() == before.len() {
        return Ok(order);
    }
    // Whoever is left waits for one that is left too: following those leads into a circle.
    let mut seen = Vec::new();
    let mut at = missing
        .iter()
        .position(|missing| *missing > 0)
        .expect("one is left");
    while !seen.contains(&at) {
        seen.push(at);
        let waits_for = before[at].iter().find(|from| missing[**from] > 0);
        at = *waits_for.expect("it waits for one that is left");
    }
    let begin = seen.iter().position(|is| *is == at).expect("just seen");
    Err(seen.split_off(begin))
}

/// `: did you mean ..?`, if one of the names is like this one.
fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let is_near = |other: &&str| {
        let (a, b) = (name.to_lowercase(), other.to_lowercase());
        a == b || a.starts_with(&b) || b.starts_with(&a) || differ_by_one(&a, &b)
    };
    match names.filter(is_near).min() {
        Some(near) => format!(": did you mean `{near}`?"),
        None => String::new(),
    }
}

/// Is one letter another one, missing, or too much?
fn differ_by_one(a: &str, b: &str) -> bool {
    let common = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a.as_bytes()[common..], &b.as_bytes()[common..]);
    let without_first = |bytes: &[u8]| bytes.get(1..).unwrap_or_default().to_vec();
    without_first(a) == without_first(b) || without_first(a) == b || without_first(b) == a
}
