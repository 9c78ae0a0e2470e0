//! What one step does, and what comes of it: a function of the step and of what it reads, on whichever node it runs.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use satin::{Many, Or};
use serde::{Deserialize, Serialize};

use crate::common::random::mix;
use crate::store::{self, Content, Key};

satin::bound! {
    /// A step has failed, on whichever node: no other one is to begin.
    static FAILED: Or;
}

/// Steps that have ended in this process.
pub static DONE: Steps = Steps(AtomicUsize::new(0));

/// A number of steps.
pub struct Steps(AtomicUsize);

impl Steps {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A step, with all that is needed to do it but the values that it reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    pub name: String,
    pub work: Work,
    /// The names of what it reads: those of the files in its folder.
    pub reads: Vec<String>,
}

/// What a step does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Runs a command of `sh`, whose output is what it prints, or the file of that name in its folder.
    Command { run: String, output: Option<String> },
    /// Takes that time.
    Timed { time: Duration, how: TimedWork },
}

/// How a timed step passes its time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum TimedWork {
    Sleep,
    Compute,
}

/// What comes of a step, and what those that read it get.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// A command's output, or a file that was there before.
    File(File),
    /// A timed step has passed its time.
    Timed(Finish),
    Failed(Failure),
    /// Another step has failed before this one began.
    NotRun,
}

/// The content of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct File {
    pub content: Content,
    pub bytes: Vec<u8>,
    /// What it was made of; none of a file that was there before.
    pub key: Option<Key>,
    /// An earlier run has made it.
    pub is_found: bool,
}

/// What timed steps make: it shows whether each has read what it should.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    /// The time from the begin to the end of the step, if nothing but what it reads holds up a step.
    pub earliest: Duration,
    /// Of the names of all steps that lead here, and their order.
    pub digest: u64,
}

impl Finish {
    /// Of a step of that name and time which reads these.
    pub fn after<'a>(name: &str, time: Duration, read: impl Iterator<Item = &'a Self>) -> Self {
        let own = name
            .bytes()
            .fold(0, |digest, byte| mix(digest ^ u64::from(byte)));
        let mut finish = Self {
            earliest: Duration::ZERO,
            digest: own,
        };
        for read in read {
            finish.earliest = finish.earliest.max(read.earliest);
            finish.digest = mix(finish.digest).wrapping_add(read.digest);
        }
        finish.earliest += time;
        finish
    }
}

/// Why a step has no output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub reason: String,
    /// The last lines that its command has written there.
    pub stderr: String,
}

impl Failure {
    fn without_stderr(error: &anyhow::Error) -> Self {
        Self {
            reason: format!("{error:#}"),
            stderr: String::new(),
        }
    }
}

/// Does the step, unless one has failed.
#[satin::spawnable]
pub fn perform(step: Step, inputs: &Many<Outcome>) -> Outcome {
    if FAILED.get() == Some(true) {
        return Outcome::NotRun;
    }
    let inputs: Vec<&Outcome> = inputs.iter().collect();
    let outcome = perform_on(&step, &inputs);
    if let Outcome::Failed(_) = outcome {
        FAILED.offer(true);
    }
    outcome
}

/// Does the step, if it has all that it reads.
pub fn perform_on(step: &Step, inputs: &[&Outcome]) -> Outcome {
    let is_there = |input: &&Outcome| matches!(input, Outcome::File(_) | Outcome::Timed(_));
    if !inputs.iter().all(is_there) {
        return Outcome::NotRun;
    }
    let outcome = match &step.work {
        Work::Timed { time, how } => {
            how.pass(*time);
            let read = inputs.iter().filter_map(|input| match input {
                Outcome::Timed(finish) => Some(finish),
                _ => None,
            });
            Outcome::Timed(Finish::after(&step.name, *time, read))
        }
        Work::Command { run, output } => match make(step, run, output.as_deref(), inputs) {
            Ok(Ok(file)) => Outcome::File(file),
            Ok(Err(failure)) => Outcome::Failed(failure),
            Err(error) => Outcome::Failed(Failure::without_stderr(&error)),
        },
    };
    DONE.add_one();
    outcome
}

/// The files among what a step reads, each with the name that it has for the step.
fn files<'a>(step: &'a Step, inputs: &[&'a Outcome]) -> Vec<(&'a str, &'a File)> {
    let names = step.reads.iter().map(String::as_str);
    let file = |(name, input): (&'a str, &&'a Outcome)| match input {
        Outcome::File(file) => Some((name, file)),
        _ => None,
    };
    names.zip(inputs).filter_map(file).collect()
}

/// The command's output: found in the directory of outputs, if this process has it, or else made, and put there.
fn make(
    step: &Step,
    run: &str,
    output: Option<&str>,
    inputs: &[&Outcome],
) -> anyhow::Result<Result<File, Failure>> {
    let inputs = files(step, inputs);
    let contents = inputs.iter().map(|(name, file)| (*name, &file.content));
    let key = Key::of(run, output, contents);
    let store = store::here();
    if let Some(content) = store.and_then(|store| store.find(&key))
        && let Some(store) = store
    {
        return Ok(Ok(store.load(content, key)?));
    }
    let bytes = match execute(run, output, &inputs)? {
        Ok(bytes) => bytes,
        Err(failure) => return Ok(Err(failure)),
    };
    let file = File {
        content: Content::of(&bytes),
        bytes,
        key: Some(key),
        is_found: false,
    };
    if let Some(store) = store {
        store.keep(&file)?;
    }
    Ok(Ok(file))
}

/// Runs the command in a folder with its inputs.
fn execute(
    run: &str,
    output: Option<&str>,
    inputs: &[(&str, &File)],
) -> anyhow::Result<Result<Vec<u8>, Failure>> {
    let folder = tempfile::tempdir().context("cannot make a folder for the command")?;
    for (name, file) in inputs {
        let path = folder.path().join(name);
        std::fs::write(&path, &file.bytes)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut command = Command::new("sh");
    command.arg("-c").arg(run).current_dir(folder.path());
    let ran = command.output().context("cannot start `sh`")?;
    if !ran.status.success() {
        return Ok(Err(Failure {
            reason: format!("`{}` ended with {}", first_line(run), ran.status),
            stderr: last_lines(&ran.stderr),
        }));
    }
    let Some(output) = output else {
        return Ok(Ok(ran.stdout));
    };
    match std::fs::read(folder.path().join(Path::new(output))) {
        Ok(bytes) => Ok(Ok(bytes)),
        Err(error) => Ok(Err(Failure {
            reason: format!("`{}` has left no file `{output}`: {error}", first_line(run)),
            stderr: last_lines(&ran.stderr),
        })),
    }
}

/// What is shown of a command's standard error.
const LAST_LINES: usize = 10;

fn last_lines(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

fn first_line(command: &str) -> String {
    let command = command.trim();
    match command.split_once('\n') {
        Some((first, _)) => format!("{first} .."),
        None => command.to_owned(),
    }
}

impl TimedWork {
    fn pass(self, time: Duration) {
        match self {
            Self::Sleep => std::thread::sleep(time),
            Self::Compute => {
                let begin = Instant::now();
                while begin.elapsed() < time {
                    black_box((0..100).fold(0, |number, _| mix(black_box(number))));
                }
            }
        }
    }
}
