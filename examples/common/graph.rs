//! Pictures of the graphs of flows: which task waits for which, from what each changes and reads in the order of the program.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};
use std::hash::Hash;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// More tasks make a picture in which nothing can be seen, and Graphviz takes minutes for it.
const MOST: usize = 2000;

/// The picture that was asked for, if any.
#[derive(clap::Args, Clone, Debug)]
pub struct Picture {
    /// Also write the graph of the tasks to this file, as Graphviz text (`dot -Tsvg FILE`)
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
}

impl Picture {
    /// Writes the picture, if it was asked for.
    ///
    /// # Errors
    /// If there are too many tasks, or the file cannot be written.
    pub fn write<D: Data>(
        &self,
        name: &str,
        graph: impl FnOnce() -> Graph<D>,
    ) -> anyhow::Result<()> {
        match &self.dot {
            Some(path) => graph().write(name, path),
            None => Ok(()),
        }
    }
}

/// What names a piece of data.
pub trait Data: Copy + Eq + Hash {}

impl<T: Copy + Eq + Hash> Data for T {}

/// Tasks in the order of the program. A task waits for those that have last changed what it changes or reads.
pub struct Graph<D> {
    tasks: Vec<(&'static str, String)>,
    edges: Vec<(usize, usize)>,
    /// The task that has last changed the data.
    last: HashMap<D, usize>,
}

impl<D: Data> Graph<D> {
    pub fn new() -> Self {
        Graph {
            tasks: Vec::new(),
            edges: Vec::new(),
            last: HashMap::new(),
        }
    }

    /// One more task: a call of `function`, with what makes it differ from others.
    pub fn task(
        &mut self,
        function: &'static str,
        which: impl Display,
        changes: &[D],
        reads: &[D],
    ) {
        let task = self.tasks.len();
        let before = changes.iter().chain(reads);
        let mut before: Vec<usize> = before
            .filter_map(|data| self.last.get(data).copied())
            .collect();
        before.sort_unstable();
        before.dedup();
        self.edges
            .extend(before.iter().map(|before| (*before, task)));
        self.tasks.push((function, which.to_string()));
        self.last.extend(changes.iter().map(|data| (*data, task)));
    }

    fn write(&self, name: &str, path: &Path) -> anyhow::Result<()> {
        let tasks = self.tasks.len();
        ensure!(
            tasks <= MOST,
            "the graph has {tasks} tasks, and no more than {MOST} can be drawn: make the problem smaller, or its tiles larger"
        );
        std::fs::write(path, self.text(name))
            .with_context(|| format!("cannot write the graph to {}", path.display()))
    }

    fn text(&self, name: &str) -> String {
        const COLORS: [&str; 5] = ["gold", "palegreen", "lightskyblue", "lightgrey", "salmon"];
        let mut functions: Vec<&str> = Vec::new();
        let mut text = format!("digraph {name} {{\n  node [shape=box, style=filled];\n");
        for (task, (function, which)) in self.tasks.iter().enumerate() {
            let known = functions.iter().position(|known| known == function);
            let color = known.unwrap_or_else(|| {
                functions.push(function);
                functions.len() - 1
            });
            let color = COLORS[color % COLORS.len()];
            let line = format!("  t{task} [label=\"{function} {which}\", fillcolor={color}];");
            writeln!(text, "{line}").expect("strings can be written to");
        }
        for (from, to) in &self.edges {
            writeln!(text, "  t{from} -> t{to};").expect("strings can be written to");
        }
        text + "}\n"
    }
}
