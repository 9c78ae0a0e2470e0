//! Graphs of the Standard Task Graph Set: the number of tasks, then a line for each with its number, its cost, the number of its
//! predecessors, and these. The first and the last are dummies of cost 0, not counted. Comments come last; one says how long the
//! critical path is.

use std::time::Duration;

use anyhow::Context;

use crate::common::input::Words;
use crate::graph::{Entry, Workflow};
use crate::step::{Step, TimedWork, Work};

/// No public graph has more.
const MOST_TASKS: usize = 1_000_000;

/// Reads a graph, a unit of whose costs takes so long.
pub fn parse(text: &str, unit: Duration, how: TimedWork) -> anyhow::Result<Workflow> {
    let numbered = text.lines().zip(1..).map(|(line, number)| (number, line));
    let is_comment = |line: &str| line.trim_start().starts_with('#');
    let mut words = Words::numbered(numbered.clone().filter(|(_, line)| !is_comment(line)));

    let count: usize = words.expect_valid("a number of tasks, at most 1000000", |count| {
        *count <= MOST_TASKS
    })?;
    let mut entries = Vec::new();
    for task in 0..count + 2 {
        words.expect_valid(&format!("task {task}"), |number: &usize| *number == task)?;
        let cost: u32 = words.expect(&format!("the cost of task {task}"))?;
        let predecessors = words.expect_valid(
            &format!("the number of predecessors of task {task}, at most {task}"),
            |number: &usize| *number <= task,
        )?;
        let mut reads = Vec::new();
        for _ in 0..predecessors {
            let what = format!("a predecessor of task {task}, one from 0 to {}", count + 1);
            let from = words.expect_valid(&what, |from: &usize| *from <= count + 1)?;
            reads.push((from.to_string(), format!("task {task}")));
        }
        let step = Step {
            name: task.to_string(),
            work: Work::Timed {
                time: unit * cost,
                how,
            },
            reads: reads.iter().map(|(name, _)| name.clone()).collect(),
        };
        entries.push(Entry {
            step,
            place: format!("task {task}"),
            reads,
            files: Vec::new(),
        });
    }
    words.expect_end()?;
    let mut workflow = Workflow::new(entries, Vec::new())?;

    let length = numbered
        .filter(|(_, line)| is_comment(line))
        .find_map(|(number, line)| {
            let (what, length) = line.split_once(':')?;
            what.contains("CP Length")
                .then_some((number, length.trim()))
        });
    if let Some((number, length)) = length {
        let units: u32 = length.parse().with_context(|| {
            format!("line {number}: expected the length of the critical path, found `{length}`")
        })?;
        workflow.known_critical_path = Some(unit * units);
    }
    Ok(workflow)
}
