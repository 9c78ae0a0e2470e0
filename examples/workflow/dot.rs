//! A picture of the graph, for `dot` of Graphviz.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use crate::graph::Workflow;
use crate::run::{Ended, Report};
use crate::step::Work;

/// Writes the picture.
pub fn write(workflow: &Workflow, report: &Report, path: &Path) -> anyhow::Result<()> {
    std::fs::write(path, draw(workflow, report))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn draw(workflow: &Workflow, report: &Report) -> String {
    let mut text =
        "digraph workflow {\n  rankdir=LR;\n  node [shape=box, style=filled];\n".to_owned();
    for (step, ended) in workflow.steps.iter().zip(&report.ended) {
        let colour = match ended {
            Ended::Found(_) => "palegreen",
            Ended::Made(_) | Ended::Timed(_) => "lightblue",
            Ended::Failed(_) => "salmon",
            Ended::NotRun => "lightgrey",
        };
        let label = match &step.work {
            Work::Timed { time, .. } => format!("{}\\n{time:?}", step.name),
            Work::Command { .. } => step.name.clone(),
        };
        let _ = writeln!(
            text,
            "  \"{}\" [label=\"{label}\", fillcolor={colour}];",
            step.name
        );
    }
    for (from, to) in workflow.edges() {
        let (from, to) = (&workflow.steps[from].name, &workflow.steps[to].name);
        let _ = writeln!(text, "  \"{from}\" -> \"{to}\";");
    }
    text + "}\n"
}
