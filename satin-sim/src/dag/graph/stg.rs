//! Files of the Standard Task Graph Set (Tobita, Kasahara: A standard task graph set for fair evaluation of multiprocessor
//! scheduling algorithms, 2002).
//!
//! The first number is that of the tasks, without two dummies of no cost: the entry, task 0, and the exit, the last. Then each
//! task follows: its number, its cost, the number of its predecessors, and these. Lines that begin with `#` are comments.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Task, TaskGraph, TaskId};

/// The reason why a graph could not be read.
#[derive(thiserror::Error, Debug)]
pub enum StgError {
    /// The file or the folder cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A folder without graphs.
    #[error("{path} has no file that ends in .stg; name a file, or a folder with such files")]
    NoGraphs {
        /// The folder.
        path: PathBuf,
    },
    /// The text is no graph.
    #[error("{name} is no task graph of the Standard Task Graph Set: {what}")]
    Malformed {
        /// The name of the file.
        name: String,
        /// What is wrong, with the number of the line where there is one.
        what: String,
    },
}

/// A number of a file, and its line.
struct StgNumber<'t> {
    text: &'t str,
    line: usize,
}

impl StgNumber<'_> {
    fn whole(&self) -> Result<usize, String> {
        let StgNumber { text, line } = self;
        (text.parse()).map_err(|_| format!("line {line}: `{text}` is no whole number"))
    }

    fn cost(&self) -> Result<f64, String> {
        let StgNumber { text, line } = self;
        let cost = text.parse().ok();
        let cost = cost.filter(|cost: &f64| cost.is_finite() && *cost >= 0.0);
        cost.ok_or_else(|| format!("line {line}: `{text}` is no cost"))
    }
}

/// Reads a graph from a text, without its dummies.
///
/// # Errors
/// The text is no such graph; the error says where.
pub fn parse(name: &str, text: &str) -> Result<TaskGraph, StgError> {
    let graph = tasks(text).map(|tasks| TaskGraph {
        name: name.into(),
        tasks,
    });
    graph.map_err(|what| StgError::Malformed {
        name: name.into(),
        what,
    })
}

fn tasks(text: &str) -> Result<Vec<Task>, String> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, text)| !text.trim_start().starts_with('#'));
    let mut numbers = lines.flat_map(|(line, text)| {
        let words = text.split_whitespace();
        words.map(move |text| StgNumber { text, line })
    });
    let mut next = |what: &str| numbers.next().ok_or(format!("it ends before {what}"));
    let count = next("the number of tasks")?.whole()?;
    if count == 0 {
        return Err("it has no tasks".into());
    }
    let mut tasks = Vec::new();
    for id in 0..=count + 1 {
        let number = next(&format!("task {id}"))?;
        if number.whole()? != id {
            let (line, found) = (number.line, number.text);
            return Err(format!("line {line}: task {id} is expected, not {found}"));
        }
        let cost = next(&format!("the cost of task {id}"))?.cost()?;
        let of = format!("the predecessors of task {id}");
        let predecessors = next(&of)?.whole()?;
        let mut after: Vec<TaskId> = Vec::new();
        for _ in 0..predecessors {
            let number = next(&of)?;
            let predecessor = number.whole()?;
            if predecessor >= id {
                let line = number.line;
                return Err(format!(
                    "line {line}: task {id} cannot come after task {predecessor}: predecessors have smaller numbers"
                ));
            }
            // The entry is a dummy.
            after.extend(predecessor.checked_sub(1));
        }
        after.sort_unstable();
        after.dedup();
        let cost = cost.max(TaskGraph::LEAST_COST);
        tasks.push(Task { cost, after });
    }
    tasks.pop();
    tasks.remove(0);
    Ok(tasks)
}

/// Writes a graph as such a file, with its dummies.
#[must_use]
pub fn write(graph: &TaskGraph) -> String {
    use std::fmt::Write as _;
    let count = graph.tasks.len();
    let mut text = format!("{count:11}\n");
    let mut row = |id: usize, cost: f64, after: &[usize]| {
        let _ = write!(text, "{id:11}{cost:11}{:11}", after.len());
        for before in after {
            let _ = write!(text, "{before:11}");
        }
        text.push('\n');
    };
    row(0, 0.0, &[]);
    let mut is_read = vec![false; count];
    for (id, task) in graph.tasks.iter().enumerate() {
        let mut after: Vec<usize> = task.after.iter().map(|before| before + 1).collect();
        if after.is_empty() {
            after.push(0);
        }
        row(id + 1, task.cost, &after);
        for &before in &task.after {
            is_read[before] = true;
        }
    }
    let last = (0..count).filter(|&id| !is_read[id]).map(|id| id + 1);
    row(count + 1, 0.0, &last.collect::<Vec<_>>());
    let _ = writeln!(text, "# {}", graph.name);
    text
}

/// Reads the graph of a file, or all graphs (`*.stg`) of a folder in the order of their names.
///
/// # Errors
/// Nothing can be read there, a file is no graph, or the folder has none.
pub fn read(path: &Path) -> Result<Vec<TaskGraph>, StgError> {
    let unreadable = |source| StgError::Unreadable {
        path: path.into(),
        source,
    };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![read_file(path)?]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_some_and(|end| end == "stg") {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(StgError::NoGraphs { path: path.into() });
    }
    files.sort();
    files.iter().map(|file| read_file(file)).collect()
}

fn read_file(path: &Path) -> Result<TaskGraph, StgError> {
    let text = fs::read_to_string(path).map_err(|source| StgError::Unreadable {
        path: path.into(),
        source,
    })?;
    parse(&path.display().to_string(), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "
          3
          0  0  0
          1  5  1  0
          2  0  1  1
          3  7  2  1  2
          4  0  1  3
# Standard Task Graph Set Project
";

    #[test]
    fn dummies_are_left_out() {
        let graph = parse("small", SMALL).unwrap();
        let costs: Vec<f64> = graph.tasks.iter().map(|task| task.cost).collect();
        assert_eq!(costs, [5.0, TaskGraph::LEAST_COST, 7.0]);
        assert_eq!(graph.tasks[2].after, [0, 1]);
        assert_eq!(graph.edges(), 3);
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let graph = parse("small", SMALL).unwrap();
        assert_eq!(parse("small", &write(&graph)).unwrap(), graph);
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        for (text, error) in [
            ("", "it ends before the number of tasks"),
            ("0", "it has no tasks"),
            ("x", "line 1: `x` is no whole number"),
            ("1\n0 0 0\n1 5", "it ends before the predecessors of task 1"),
            ("1\n0 0 0\n2 5 0", "line 3: task 1 is expected, not 2"),
            ("1\n0 0 0\n1 -5 0", "line 3: `-5` is no cost"),
            (
                "2\n0 0 0\n1 5 1 2\n2 5 1 1\n3 0 0",
                "line 3: task 1 cannot come after task 2: predecessors have smaller numbers",
            ),
        ] {
            let start = "bad.stg is no task graph of the Standard Task Graph Set: ";
            let found = parse("bad.stg", text).unwrap_err().to_string();
            assert_eq!(found, format!("{start}{error}"));
        }
    }

    #[test]
    fn a_folder_without_graphs_is_an_error() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let error = read(&source).unwrap_err().to_string();
        assert!(error.contains("no file that ends in .stg"), "{error}");
        let error = read(Path::new("/nowhere/x.stg")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nowhere/x.stg"), "{error}");
    }
}
