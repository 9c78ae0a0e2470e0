//! Writing a log.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::RangeBounds,
    sync::Arc,
};

use super::place::{LogName, RunFile, RunPlace};
use crate::{
    job::{Batch, ValueBytes, ValueName},
    stable::{
        Stable, StableError,
        format::{FramePlace, LONGEST, Sealing, StoreKeys},
    },
};

/// Bytes after which a segment is followed by another. Too small: many files; too large: a damaged byte costs more, and
/// what is dead in it is kept longer.
pub const SEGMENT: u64 = 64 << 20;

/// The first of the segments that are never forgotten. Results of root jobs stand there: no other result takes them up, so
/// that they need not be written twice.
const LASTING: u32 = 1 << 31;

/// Shared values are written together, up to so many bytes. Too small: many small writes. Too large: memory, and with a large result
/// more than a frame may have.
const GROUP: usize = 8 << 20;

/// A larger shared value is not written: no reader would take it.
const LARGEST_VALUE: usize = LONGEST - (1 << 20);

/// The writer of a log. A log has one.
pub struct LogWriter {
    stable: Arc<dyn Stable>,
    keys: StoreKeys,
    sealing: Sealing,
    place: RunPlace,
    log: LogName,
    current: SegmentPart,
    /// The segments with results of root jobs.
    lasting: SegmentPart,
    /// Bytes in the segments that may be there.
    segments: BTreeMap<u32, u64>,
}

/// A batch in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The segment that it begins in.
    pub segment: u32,
    /// The bytes that it takes.
    pub bytes: u64,
    /// Results of root jobs that mention a value that is not there: they have been left out.
    pub roots_left_out: usize,
    /// Other such results.
    pub left_out: usize,
}

/// Segments of a log, one after the other.
struct SegmentPart {
    /// The segment that is appended to.
    segment: u32,
    /// The shared values that stand in segments that are not to be forgotten.
    values: BTreeSet<ValueName>,
    /// Shared values that are too large.
    refused: BTreeSet<ValueName>,
}

impl SegmentPart {
    fn from(segment: u32) -> SegmentPart {
        SegmentPart {
            segment,
            values: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }
}

impl LogWriter {
    pub(super) fn new(
        stable: Arc<dyn Stable>,
        keys: StoreKeys,
        sealing: Sealing,
        place: RunPlace,
        log: LogName,
    ) -> LogWriter {
        LogWriter {
            stable,
            keys,
            sealing,
            place,
            log,
            current: SegmentPart::from(0),
            lasting: SegmentPart::from(LASTING),
            segments: BTreeMap::new(),
        }
    }

    /// As [`append_with`](LogWriter::append_with), with the values that are in the batch.
    ///
    /// # Errors
    /// The same.
    pub fn append(&mut self, mut batch: Batch) -> Result<Appended, StableError> {
        let values = std::mem::take(&mut batch.values).into_iter();
        let values: BTreeMap<_, _> = values.map(|value| (value.name, value.bytes)).collect();
        self.append_with(batch, &|name| values.get(&name).cloned())
    }

    /// Appends a batch; it is durable then. An empty one takes no bytes. `value` gives the shared values that the log does not have;
    /// results that mention one that it does not give either are left out.
    ///
    /// # Errors
    /// A failure of the store. A part of the batch may stand there: results of root jobs, which are written first, values, or what no
    /// reader takes for a batch. The next one goes to the next segment.
    pub fn append_with(
        &mut self,
        batch: Batch,
        value: &dyn Fn(ValueName) -> Option<Vec<u8>>,
    ) -> Result<Appended, StableError> {
        let (lasting, batch) = batch.apart();
        let segment = self.current.segment;
        let (of_roots, roots_left_out) =
            self.append_to(|writer| &mut writer.lasting, lasting, value)?;
        let (bytes, left_out) = self.append_to(|writer| &mut writer.current, batch, value)?;
        Ok(Appended {
            segment,
            bytes: of_roots + bytes,
            roots_left_out,
            left_out,
        })
    }

    /// Appends a batch to that part of the log, and before it the values that its results mention: a reader finds these first. Gives
    /// the bytes that it takes, and the number of results that were left out.
    fn append_to(
        &mut self,
        part: fn(&mut LogWriter) -> &mut SegmentPart,
        mut batch: Batch,
        value: &dyn Fn(ValueName) -> Option<Vec<u8>>,
    ) -> Result<(u64, usize), StableError> {
        let of_part = part(self);
        let lacking = &(&batch.needs() - &of_part.values) - &of_part.refused;
        let mut written = 0;
        let (mut group, mut grouped) = (Batch::default(), 0);
        for name in lacking {
            let Some(bytes) = value(name) else {
                continue;
            };
            let size = bytes.len();
            if size > LARGEST_VALUE {
                // Once is enough.
                part(self).refused.insert(name);
                tracing::warn!(
                    "a shared value of {} MiB is not stored, nor is what mentions it: more than {} MiB",
                    size >> 20,
                    LARGEST_VALUE >> 20
                );
                continue;
            }
            if grouped + size > GROUP {
                written += self.append_frame(part, &std::mem::take(&mut group))?;
                grouped = 0;
            }
            grouped += size;
            group.values.push(ValueBytes { name, bytes });
        }
        if grouped > GROUP {
            written += self.append_frame(part, &std::mem::take(&mut group))?;
        }
        // A reader finds them first there too.
        batch.values = group.values;
        let come = batch.values.iter().map(|value| value.name);
        let has = &part(self).values | &come.collect();
        let all = batch.facts.len();
        (batch.facts).retain(|fact| fact.needs().iter().all(|name| has.contains(name)));
        let left_out = all - batch.facts.len();
        written += self.append_frame(part, &batch)?;
        Ok((written, left_out))
    }

    /// Appends to the segment of that part, or to the next if it is full. Nothing, if the batch is empty.
    fn append_frame(
        &mut self,
        part: fn(&mut LogWriter) -> &mut SegmentPart,
        batch: &Batch,
    ) -> Result<u64, StableError> {
        if batch.is_empty() {
            return Ok(0);
        }
        let mut segment = part(self).segment;
        if self.length(segment) >= SEGMENT {
            segment += 1;
        }
        let written = self.write(segment, batch);
        let part = part(self);
        if written.is_ok() {
            part.segment = segment;
            (part.values).extend(batch.values.iter().map(|value| value.name));
        } else {
            part.segment = segment + 1;
        }
        written
    }

    fn write(&mut self, segment: u32, batch: &Batch) -> Result<u64, StableError> {
        let (path, offset) = (self.path(segment), self.length(segment));
        let place = FramePlace {
            path: &path,
            offset,
        };
        let frame = self.keys.encode(place, batch, self.sealing);
        let frame = frame.map_err(|error| StableError::Failed {
            path: path.clone(),
            error: io::Error::new(io::ErrorKind::InvalidInput, error),
        })?;
        // Known before it is written to: what a failure leaves there is removed with the others.
        self.segments.insert(segment, offset);
        self.stable.append(&path, &frame)?;
        let bytes = frame.len() as u64;
        self.segments.insert(segment, offset + bytes);
        Ok(bytes)
    }

    /// Lets the next batch begin a new segment, with all the values that its results mention.
    pub fn next_segment(&mut self) {
        let refused = std::mem::take(&mut self.current.refused);
        self.current = SegmentPart {
            refused,
            ..SegmentPart::from(self.current.segment + 1)
        };
    }

    /// The segment that the next batch goes to, unless it is full.
    #[must_use]
    pub fn segment(&self) -> u32 {
        self.current.segment
    }

    /// Does that value stand where results of root jobs do, or never will?
    #[must_use]
    pub fn has_lasting(&self, name: ValueName) -> bool {
        self.lasting.values.contains(&name) || self.lasting.refused.contains(&name)
    }

    /// Removes the segments before that one, except those with results of root jobs: what they held is written elsewhere, or
    /// not needed any more.
    ///
    /// # Errors
    /// A failure of the store. The next call tries to remove again what is left.
    pub fn forget_before(&mut self, segment: u32) -> Result<(), StableError> {
        self.forget(..segment.min(LASTING))
    }

    /// Removes all that this writer has written, because the run is no more.
    ///
    /// # Errors
    /// A failure of the store. The next call tries to remove again what is left.
    pub fn forget_all(&mut self) -> Result<(), StableError> {
        self.forget(..)
    }

    fn forget(&mut self, which: impl RangeBounds<u32>) -> Result<(), StableError> {
        let mut outcome = Ok(());
        let segments = self.segments.range(which).map(|(segment, _)| *segment);
        for segment in segments.collect::<Vec<_>>() {
            let path = self.place.path(RunFile::Segment(self.log, segment));
            match self.stable.delete(&path) {
                Ok(()) => _ = self.segments.remove(&segment),
                error => outcome = outcome.and(error),
            }
        }
        outcome
    }

    /// Bytes of the batches that stand in the log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    fn length(&self, segment: u32) -> u64 {
        self.segments.get(&segment).copied().unwrap_or(0)
    }

    fn path(&self, segment: u32) -> String {
        self.place.path(RunFile::Segment(self.log, segment))
    }
}
