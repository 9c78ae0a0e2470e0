//! The events that the nodes have told so far, for the pool and for threads that read the nodes' output.
//!
//! A node that becomes master writes that to the events file before it calls `main`. So a reader that has seen output of
//! `main`, and looks here after that, finds that the node is master.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use satin_runtime::observe::events::{Event, EventTail, Record};

/// Shared by all who look.
#[derive(Clone)]
pub struct Chronicle(Arc<Mutex<ChronicleInner>>);

struct ChronicleInner {
    tail: EventTail,
    /// Read, and not taken yet.
    fresh: Vec<Record>,
    master: Option<String>,
    error: Option<io::Error>,
}

impl Chronicle {
    /// Reads the events from this file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(events: &Path) -> io::Result<Chronicle> {
        Ok(Chronicle(Arc::new(Mutex::new(ChronicleInner {
            tail: EventTail::open(events)?,
            fresh: Vec::new(),
            master: None,
            error: None,
        }))))
    }

    /// Takes the events that were told since the last call.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn take(&self) -> io::Result<Vec<Record>> {
        let mut inner = self.look();
        match inner.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut inner.fresh)),
        }
    }

    /// Does that node run `main`, as far as has been told?
    pub fn is_master(&self, name: &str) -> bool {
        self.look().master.as_deref() == Some(name)
    }

    fn look(&self) -> MutexGuard<'_, ChronicleInner> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.tail.read() {
            Ok(records) => {
                let last = records.iter().rev().find(|record| is_master(record));
                if let Some(record) = last {
                    inner.master = Some(record.name.clone());
                }
                inner.fresh.extend(records);
            }
            Err(error) => inner.error = Some(error),
        }
        inner
    }
}

fn is_master(record: &Record) -> bool {
    matches!(record.event, Event::Master { .. })
}
