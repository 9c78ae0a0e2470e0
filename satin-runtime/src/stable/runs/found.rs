//! A run as it is found in a store: which files it has, and what its manifest says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use super::{
    manifest::{Manifest, Program, RecordError, RunEnd, Start},
    place::{LogName, RunFile, RunPlace},
};

/// The files of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct RunFiles {
    /// The bytes of all files.
    pub(super) bytes: u64,
    /// The epochs that have a file, which need not be one that can be read.
    pub(super) epochs: BTreeSet<u32>,
    /// The segments of each log, with their sizes in bytes.
    pub(super) logs: BTreeMap<LogName, BTreeMap<u32, u64>>,
    pub(super) is_done: bool,
}

impl RunFiles {
    pub(super) fn add(&mut self, file: RunFile, bytes: u64) {
        self.bytes += bytes;
        match file {
            RunFile::Done => self.is_done = true,
            RunFile::Epoch(epoch) => {
                self.epochs.insert(epoch);
            }
            RunFile::Segment(log, segment) => {
                self.logs.entry(log).or_default().insert(segment, bytes);
            }
            RunFile::Manifest | RunFile::Main(..) | RunFile::Other => {}
        }
    }
}

/// A run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FoundRun {
    pub(super) place: RunPlace,
    pub(super) files: RunFiles,
    pub(super) manifest: Result<Manifest, RecordError>,
    /// The start of each epoch. A file that cannot be read is none.
    pub(super) starts: BTreeMap<u32, Start>,
    /// Its end, if that is noted and can be read.
    pub(super) end: Option<RunEnd>,
}

impl FoundRun {
    /// Is this no run any more, but what a removal has left, or what a node wrote after it?
    pub(super) fn is_left_over(&self) -> bool {
        let is_to_go = self.end.is_some_and(|end| !end.keep);
        let has_manifest = !matches!(self.manifest, Err(RecordError::Missing));
        is_to_go || (self.files.epochs.is_empty() && !has_manifest)
    }

    /// Is there nothing but the note that the run is over? It stays until all servers have forgotten the rest.
    pub(super) fn is_note(&self) -> bool {
        let is_rest = self.files.epochs.is_empty() && self.files.logs.is_empty();
        is_rest && self.is_left_over() && self.manifest == Err(RecordError::Missing)
    }

    /// The number of the next epoch. `None` if all are taken.
    pub(super) fn next_epoch(&self) -> Option<u32> {
        let mut epoch = self.starts.keys().last().map_or(Some(0), next);
        // What somebody has left in its place does not keep a run from going on.
        while epoch.is_some_and(|epoch| self.files.epochs.contains(&epoch)) {
            epoch = next(&epoch?);
        }
        epoch
    }

    /// The number of epochs since a node last wrote a batch.
    pub(super) fn epochs_without_batch(&self) -> u32 {
        let has_batch = |epoch: &u32| {
            let logs = self.files.logs.iter();
            let mut logs = logs.filter(|(log, _)| log.epoch == *epoch);
            logs.any(|(_, segments)| segments.values().any(|bytes| *bytes > 0))
        };
        let latest = self.starts.keys().rev();
        latest.take_while(|epoch| !has_batch(epoch)).count() as u32
    }

    pub(super) fn started(&self) -> SystemTime {
        let manifest = self.manifest.as_ref();
        manifest.map_or(SystemTime::UNIX_EPOCH, |manifest| manifest.start.time())
    }

    /// What speaks against going on with this run, after "it was started".
    pub(super) fn objection(&self, program: &Program) -> Option<String> {
        let manifest = match &self.manifest {
            Ok(manifest) => manifest,
            Err(error) => return Some(error.to_string()),
        };
        if manifest.program != program.hash {
            return Some(
                "by another program, or before this one was edited: the spawnable functions are not the same".into(),
            );
        }
        if manifest.command_line != program.command_line {
            return Some(format!(
                "with other arguments: `{}` instead of `{}`",
                printable(&manifest.command_line),
                printable(&program.command_line)
            ));
        }
        let is_other = |start: &Start| {
            start.target == program.target && start.executable != program.executable
        };
        let other_build = is_other(&manifest.start) || self.starts.values().any(is_other);
        (other_build && !program.mixed_builds).then(|| {
            "by another build of the program, whose functions may do something else (SATIN_MIXED_BUILDS=1 if they do the \
             same)"
                .into()
        })
    }
}

fn next(epoch: &u32) -> Option<u32> {
    epoch.checked_add(1)
}

/// Arguments as they go to people's terminals: short, and without control characters.
fn printable(words: &[String]) -> String {
    const MOST: usize = 200;
    let text = words.join(" ");
    let mut shown: String = (text.chars().take(MOST))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if shown.len() < text.len() {
        shown.push_str("..");
    }
    shown
}
