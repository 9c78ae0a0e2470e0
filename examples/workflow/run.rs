//! Running all steps of a workflow: as a flow, or one after the other.

use anyhow::Context;
use satin::{Handle, flow, many, task};

use crate::graph::{Source, Workflow};
use crate::step::{self, Failure, Finish, Outcome, Step, Work};
use crate::store::{Content, Key, Store};

/// What has become of each step.
pub struct Report {
    pub ended: Vec<Ended>,
}

/// What has become of a step.
#[derive(Clone)]
pub enum Ended {
    /// An earlier run has made its output.
    Found(Content),
    Made(Content),
    Timed(Finish),
    Failed(Failure),
    NotRun,
}

impl Report {
    pub fn count(&self, is: impl Fn(&Ended) -> bool) -> usize {
        self.ended.iter().filter(|ended| is(ended)).count()
    }
}

impl Ended {
    /// What has become of the step; its output is in the directory of outputs then.
    fn of(step: &Step, outcome: &Outcome, store: Option<&Store>) -> anyhow::Result<Self> {
        Ok(match outcome {
            Outcome::File(file) => {
                if let Some(store) = store {
                    store.keep(file).with_context(|| {
                        format!("cannot keep the output of step `{}`", step.name)
                    })?;
                }
                match file.is_found {
                    true => Self::Found(file.content),
                    false => Self::Made(file.content),
                }
            }
            Outcome::Timed(finish) => Self::Timed(finish.clone()),
            Outcome::Failed(failure) => Self::Failed(failure.clone()),
            Outcome::NotRun => Self::NotRun,
        })
    }
}

/// The outputs of an earlier run that are known to be those of this one: of steps all of whose inputs are known.
fn found(workflow: &Workflow, store: Option<&Store>) -> Vec<Option<(Content, Key)>> {
    let mut found: Vec<Option<(Content, Key)>> = Vec::new();
    for (step, sources) in workflow.steps.iter().zip(&workflow.sources) {
        let content = |source: &Source| match source {
            Source::Step(at) => found[*at].map(|(content, _)| content),
            Source::File(at) => match &workflow.files[*at] {
                Outcome::File(file) => Some(file.content),
                _ => None,
            },
        };
        let contents: Option<Vec<Content>> = sources.iter().map(content).collect();
        let is_there = match (&step.work, contents, store) {
            (Work::Command { run, output }, Some(contents), Some(store)) => {
                let inputs = step.reads.iter().map(String::as_str).zip(&contents);
                let key = Key::of(run, output.as_deref(), inputs);
                store.find(&key).map(|content| (content, key))
            }
            _ => None,
        };
        found.push(is_there);
    }
    found
}

/// Runs the workflow as a flow: a task per step, but for those whose outputs are found.
///
/// The flow stands in ordinary code, so its closure runs in this process, where the directory of outputs is.
pub fn in_parallel(workflow: &Workflow, store: Option<&Store>) -> anyhow::Result<Report> {
    let found = found(workflow, store);
    let mut is_read = vec![false; workflow.steps.len()];
    for (from, _) in workflow.edges().filter(|(_, to)| found[*to].is_none()) {
        is_read[from] = true;
    }
    flow!(|g| {
        let files = workflow.files.iter().map(|file| g.data(file.clone()));
        let files: Vec<Handle<Outcome>> = files.collect();
        let mut made: Vec<Option<Handle<Outcome>>> = Vec::new();
        for (at, step) in workflow.steps.iter().enumerate() {
            let handle = match (found[at], store) {
                (Some((content, key)), Some(store)) if is_read[at] => {
                    Some(g.data(Outcome::File(store.load(content, key)?)))
                }
                (Some(_), _) => None,
                (None, _) => {
                    let inputs = workflow.sources[at].iter().map(|source| match source {
                        Source::Step(at) => made[*at].expect("it is read"),
                        Source::File(at) => files[*at],
                    });
                    Some(task!(g, step::perform(step.clone(), many(inputs))))
                }
            };
            made.push(handle);
        }
        let mut ended = Vec::new();
        for ((step, handle), found) in workflow.steps.iter().zip(made).zip(&found) {
            ended.push(match (handle, found) {
                (_, Some((content, _))) => Ended::Found(*content),
                (Some(handle), None) => Ended::of(step, &g.get(handle), store)?,
                (None, None) => Ended::NotRun,
            });
        }
        Ok(Report { ended })
    })
}

/// Runs one step after the other, up to the first that fails.
pub fn in_order(workflow: &Workflow, store: Option<&Store>) -> anyhow::Result<Report> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut ended = Vec::new();
    let mut has_failed = false;
    for (step, sources) in workflow.steps.iter().zip(&workflow.sources) {
        let input = |source: &Source| match source {
            Source::Step(at) => &outcomes[*at],
            Source::File(at) => &workflow.files[*at],
        };
        let inputs: Vec<&Outcome> = sources.iter().map(input).collect();
        let outcome = match has_failed {
            true => Outcome::NotRun,
            false => step::perform_on(step, &inputs),
        };
        has_failed |= matches!(outcome, Outcome::Failed(_));
        ended.push(Ended::of(step, &outcome, store)?);
        outcomes.push(outcome);
    }
    Ok(Report { ended })
}
