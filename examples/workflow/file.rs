//! Workflows from TOML files: `words.toml` is the reference of what can stand in one.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use toml::Spanned;

use crate::graph::{Entry, Workflow};
use crate::step::{File, Outcome, Step, TimedWork, Work};
use crate::store::Content;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkflowFile {
    #[serde(default, rename = "step")]
    steps: Vec<StepEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepEntry {
    name: Spanned<String>,
    run: Option<String>,
    seconds: Option<Spanned<f64>>,
    #[serde(default)]
    reads: Vec<Spanned<String>>,
    #[serde(default)]
    files: Vec<Spanned<String>>,
    output: Option<Spanned<String>>,
}

/// Reads a workflow. Its files are looked for beside it.
pub fn parse(text: &str, path: &Path, how: TimedWork) -> anyhow::Result<Workflow> {
    let file: WorkflowFile = toml::from_str(text)?;
    ensure!(!file.steps.is_empty(), "there is no [[step]]");
    let mut reader = Reader {
        text,
        folder: path.parent().unwrap_or(Path::new("")),
        files: Vec::new(),
        known: HashMap::new(),
    };
    let entries = file.steps.into_iter().map(|entry| reader.entry(entry, how));
    let entries = entries.collect::<anyhow::Result<_>>()?;
    Workflow::new(entries, reader.files)
}

struct Reader<'a> {
    text: &'a str,
    folder: &'a Path,
    files: Vec<Outcome>,
    /// The places of files by their names.
    known: HashMap<String, usize>,
}

impl Reader<'_> {
    fn entry(&mut self, entry: StepEntry, how: TimedWork) -> anyhow::Result<Entry> {
        let place = self.place(&entry.name.span());
        let name = entry.name.into_inner();
        ensure!(
            is_file_name(&name),
            "{place}: `{name}` cannot be the name of a step, which is that of a file: use letters, digits, and `.`, `-`, `_` after the first"
        );
        let work = match (entry.run, entry.seconds) {
            (Some(run), None) => Work::Command {
                run,
                output: self.output(entry.output)?,
            },
            (None, Some(seconds)) => {
                let place = self.place(&seconds.span());
                let time = Duration::try_from_secs_f64(*seconds.get_ref());
                let time = time.ok().with_context(|| {
                    format!(
                        "{place}: expected a number of seconds, found `{}`",
                        seconds.get_ref()
                    )
                })?;
                Work::Timed { time, how }
            }
            (Some(_), Some(_)) => bail!(
                "{place}: step `{name}` has both `run` and `seconds`: a step is a command, or takes a time"
            ),
            (None, None) => bail!(
                "{place}: step `{name}` does nothing: give it `run = \"a command\"`, or `seconds = 0.5`"
            ),
        };
        let mut reads = Vec::new();
        for read in entry.reads {
            reads.push((self.place(&read.span()), read.into_inner()));
        }
        let mut files = Vec::new();
        let mut names: Vec<String> = reads.iter().map(|(_, name)| name.clone()).collect();
        for file in entry.files {
            let place = self.place(&file.span());
            let file = file.into_inner();
            let last = Path::new(&file).file_name().unwrap_or_default();
            let last = last.to_string_lossy().into_owned();
            files.push(self.file(&file).with_context(|| {
                format!("{place}: step `{name}` reads a file that cannot be read")
            })?);
            names.push(last);
        }
        for (at, read) in names.iter().enumerate() {
            ensure!(
                !names[..at].contains(read),
                "{place}: step `{name}` reads two things named `{read}`, and its folder can have but one"
            );
        }
        let reads = reads.into_iter().map(|(place, name)| (name, place));
        Ok(Entry {
            reads: reads.collect(),
            step: Step {
                name,
                work,
                reads: names,
            },
            place,
            files,
        })
    }

    fn output(&self, output: Option<Spanned<String>>) -> anyhow::Result<Option<String>> {
        let Some(output) = output else {
            return Ok(None);
        };
        let place = self.place(&output.span());
        let output = output.into_inner();
        let is_inside = Path::new(&output)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        ensure!(
            is_inside && !output.is_empty(),
            "{place}: `{output}` cannot be an output: it is a file in the folder in which the command runs"
        );
        Ok(Some(output))
    }

    /// The place of a file in the list of files.
    fn file(&mut self, name: &str) -> anyhow::Result<usize> {
        if let Some(known) = self.known.get(name) {
            return Ok(*known);
        }
        let path = self.folder.join(name);
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        self.files.push(Outcome::File(File {
            content: Content::of(&bytes),
            bytes,
            key: None,
            is_found: true,
        }));
        let at = self.files.len() - 1;
        self.known.insert(name.to_owned(), at);
        Ok(at)
    }

    /// The place for people: "line 7".
    fn place(&self, span: &Range<usize>) -> String {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("line {line}")
    }
}

fn is_file_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
    let first = name.chars().next();
    name.chars().all(is_plain) && first.is_some_and(|first| first.is_alphanumeric() || first == '_')
}
