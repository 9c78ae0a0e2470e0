//! The events file: the events of a pool, a JSON object per line, for people, scripts, and `satin run`.
//!
//! Several processes write to one file. Each line is a single write to a file opened for appending, so lines never mix
//! on a local file system; on a network file system give each node a file of its own. This module knows what events
//! look like, not when they happen.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::job::{RootTag, Tally};

/// The variable that names the moment from which [`Record::at_ms`] counts, in milliseconds since 1970, so that all
/// nodes that one launcher starts count from the same moment.
pub const SINCE: &str = "SATIN_EVENTS_SINCE";

/// A line of the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The event itself.
    #[serde(flatten)]
    pub event: Event,
    /// The node that it happened to; not always the one that wrote it.
    pub name: String,
    /// When, in milliseconds since [`SINCE`], or else since the node that wrote it was started.
    pub at_ms: u64,
}

/// An event in the life of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The node listens. Written by the node itself.
    Node {
        /// The node's site.
        site: String,
        /// The id of its process.
        pid: u32,
        /// The address at which other nodes reach it.
        addr: SocketAddr,
        /// Number of its workers.
        threads: u32,
    },
    /// The node was let in. Written by the master, like all that follow but those that say otherwise. A new master tells
    /// the events that the old master may not have told, so departures around the change may be told twice.
    Joined {
        /// The node's site.
        site: String,
    },
    /// The node is about to leave, and hands over its jobs.
    Draining {
        /// The node's site.
        site: String,
    },
    /// The node left on purpose.
    Left {
        /// The node's site.
        site: String,
    },
    /// The node died.
    Dead {
        /// The node's site.
        site: String,
    },
    /// The node is cut off from its master, and waits for it. Written by itself.
    CutOff {
        /// The node's site.
        site: String,
    },
    /// The node begins `main` again at its side of a cut: a branch. Written by itself.
    Branch {
        /// The node's site.
        site: String,
    },
    /// The node comes over to the other side of a cut. Written by itself.
    ComesOver {
        /// The node's site.
        site: String,
    },
    /// The node runs `main`. Written by itself, before `main` is called.
    Master {
        /// The node's site.
        site: String,
        /// Number of masters before this one.
        #[serde(default)]
        term: u32,
    },
    /// A root job was called by the node's `main`.
    RootStarted {
        /// The root job.
        root: RootTag,
    },
    /// A root job has its result.
    RootFinished {
        /// The root job.
        root: RootTag,
    },
    /// The root job that runs is so far, on the node that runs `main`. Told when it has come further by a hundredth.
    Progress {
        /// The part that is done, from 0 to 1.
        done: f64,
        /// Seconds that the root job has run.
        seconds: f64,
        /// Is the part a guess?
        is_guess: bool,
        /// Number of nodes in the pool.
        nodes: usize,
    },
    /// The node's `main` is over, and with it the pool. Told again if the process exits with another code than that: the
    /// last event counts.
    PoolEnded {
        /// The exit code of the pool.
        code: i32,
    },
    /// Jobs that the node has put back in the course of its life because the nodes that had them were gone, or gave them up: how many of each
    /// function, by its own name. Written by the node itself, at its end.
    PutBack {
        /// The functions and their jobs.
        jobs: BTreeMap<String, u64>,
    },
    /// The node's figures, at its end. Written by the node itself.
    Stats(NodeFigures),
    /// An event of a later version; readers pass it over.
    #[serde(other)]
    Unknown,
}

/// The figures that a node counted from its start to its end.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFigures {
    /// Number of workers.
    pub threads: u32,
    /// Time for which the node was there, in seconds.
    pub seconds: f64,
    /// Jobs from other nodes that it ran.
    pub jobs: u64,
    /// Jobs that other nodes took from it: its own, and those that it passed on.
    pub given: u64,
    /// Jobs that its workers spawned, where that is counted.
    pub spawns: Option<u64>,
    /// Requests for work to nodes of its own site.
    pub asked_near: u64,
    /// Jobs that came of them.
    pub got_near: u64,
    /// Requests for work to nodes of other sites.
    pub asked_far: u64,
    /// Jobs that came of them.
    pub got_far: u64,
    /// Time from a request until jobs were here, lifelines aside: the median of the last thefts, in microseconds.
    pub steal_us_p50: f64,
    /// The 99th percentile of these times, in microseconds.
    pub steal_us_p99: f64,
    /// Bytes sent to other nodes, with all overheads.
    pub bytes_sent: u64,
    /// Bytes received from other nodes, with all overheads.
    pub bytes_received: u64,
    /// Time that workers had nothing to do, summed over them.
    pub idle_s: f64,
    /// The part of the root job that is done, from 0 to 1, on the node that runs `main` while one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<f64>,
    /// Counts of what the node did about deaths and departures; in JSON they stand beside the others.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Writes events. Any thread may.
pub struct EventLog {
    file: File,
    name: String,
    /// The moment from which times count, in milliseconds since 1970.
    since: u64,
    /// A file that cannot be written is reported once.
    failed: AtomicBool,
}

impl EventLog {
    /// Appends to `path`, which is made if it is not there. `name` is this node's.
    ///
    /// # Errors
    /// If the file cannot be opened. Nothing has been written.
    pub fn open(path: &Path, name: &str) -> io::Result<EventLog> {
        let since = std::env::var(SINCE)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        Ok(EventLog {
            file: OpenOptions::new().create(true).append(true).open(path)?,
            name: name.into(),
            since: since.unwrap_or_else(unix_ms),
            failed: AtomicBool::new(false),
        })
    }

    /// The same file, for another thread.
    pub(crate) fn try_clone(&self) -> io::Result<EventLog> {
        Ok(EventLog {
            file: self.file.try_clone()?,
            name: self.name.clone(),
            since: self.since,
            failed: AtomicBool::new(false),
        })
    }

    /// Writes what happened to this node.
    pub fn write(&self, event: Event) {
        self.write_about(&self.name, event);
    }

    /// Writes what happened to the node `name`.
    pub fn write_about(&self, name: &str, event: Event) {
        let record = Record {
            event,
            name: name.into(),
            at_ms: unix_ms().saturating_sub(self.since),
        };
        let written = serde_json::to_string(&record)
            .map_err(io::Error::from)
            .and_then(|line| (&self.file).write_all((line + "\n").as_bytes()));
        if let Err(error) = written
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "cannot write to the events file: {error}; events are missing there, the run goes on"
            );
        }
    }
}

/// Milliseconds since 1970, as [`SINCE`] wants them.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Reads events while they are written.
pub struct EventTail {
    file: File,
    /// The beginning of a line whose end has not been written yet.
    part: Vec<u8>,
}

impl EventTail {
    /// Reads `path` from its beginning.
    ///
    /// # Errors
    /// The file cannot be opened, for instance because it is not there yet.
    pub fn open(path: &Path) -> io::Result<EventTail> {
        Ok(EventTail {
            file: File::open(path)?,
            part: Vec::new(),
        })
    }

    /// Reads the events that have been written since the last call. Lines that are no events are passed over.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&mut self) -> io::Result<Vec<Record>> {
        self.file.read_to_end(&mut self.part)?;
        let whole = self.part.iter().rposition(|byte| *byte == b'\n');
        let rest = self.part.split_off(whole.map_or(0, |end| end + 1));
        let lines = std::mem::replace(&mut self.part, rest);
        let records = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        Ok(records
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("satin-events-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn events_are_json_objects_with_flat_fields() {
        let record = Record {
            event: Event::Node {
                site: "delft".into(),
                pid: 7,
                addr: "127.0.0.1:9".parse().expect("an address"),
                threads: 2,
            },
            name: "delft-1".into(),
            at_ms: 12,
        };
        let text = serde_json::to_string(&record).expect("JSON");
        assert_eq!(
            text,
            r#"{"event":"node","site":"delft","pid":7,"addr":"127.0.0.1:9","threads":2,"name":"delft-1","at_ms":12}"#
        );
        assert_eq!(
            serde_json::from_str::<Record>(&text).expect("the same"),
            record
        );
    }

    #[test]
    fn every_event_comes_back_as_it_was() {
        let root = RootTag { term: 1, number: 2 };
        let site = || "s0".to_string();
        let all = [
            Event::Joined { site: site() },
            Event::Left { site: site() },
            Event::Dead { site: site() },
            Event::Draining { site: site() },
            Event::CutOff { site: site() },
            Event::Branch { site: site() },
            Event::ComesOver { site: site() },
            Event::Master {
                site: site(),
                term: 1,
            },
            Event::RootStarted { root },
            Event::RootFinished { root },
            Event::PoolEnded { code: -3 },
            Event::Stats(NodeFigures {
                jobs: 5,
                spawns: Some(3),
                idle_s: 0.25,
                ..NodeFigures::default()
            }),
        ];
        let path = scratch("all");
        let log = EventLog::open(&path, "me").expect("opened");
        for event in &all {
            log.write(event.clone());
        }
        let read = EventTail::open(&path)
            .and_then(|mut tail| tail.read())
            .expect("read");
        let events: Vec<_> = read.iter().map(|record| record.event.clone()).collect();
        assert_eq!(events, all);
        assert!(read.iter().all(|record| record.name == "me"));
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn a_reader_waits_for_the_end_of_a_line_and_passes_over_what_it_does_not_know() {
        let path = scratch("tail");
        let mut file = File::create(&path).expect("made");
        let mut tail = EventTail::open(&path).expect("opened");
        let mut write = |text: &str| file.write_all(text.as_bytes()).expect("written");
        write("{\"event\":\"pool_en");
        assert_eq!(tail.read().expect("read"), []);
        write("ded\",\"name\":\"a\",\"at_ms\":1,\"code\":0}\nnonsense\n");
        write("{\"event\":\"eclipse\",\"name\":\"b\",\"at_ms\":2,\"depth\":1}\n");
        let events: Vec<_> = tail.read().expect("read");
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].event, Event::PoolEnded { code: 0 });
        assert_eq!(events[1].event, Event::Unknown);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn lines_of_several_writers_do_not_mix() {
        const LINES: u64 = 500;
        let path = scratch("mix");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    let log = EventLog::open(path, &format!("node-{writer}")).expect("opened");
                    for jobs in 0..LINES {
                        log.write(Event::Stats(NodeFigures {
                            jobs,
                            ..NodeFigures::default()
                        }));
                    }
                });
            }
        });
        let read = EventTail::open(&path)
            .and_then(|mut tail| tail.read())
            .expect("read");
        assert_eq!(read.len() as u64, 4 * LINES);
        std::fs::remove_file(path).expect("removed");
    }
}
