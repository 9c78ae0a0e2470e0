//! Writing a log.

use std::{collections::BTreeMap, io, ops::RangeBounds, sync::Arc};

use super::place::{LogName, RunFile, RunPlace};
use crate::{
    job::Batch,
    stable::{
        Stable, StableError,
        format::{FramePlace, Sealing, StoreKeys},
    },
};

/// Bytes after which a segment is followed by another. Too small: many files; too large: a damaged byte costs more, and
/// what is dead in it is kept longer.
pub const SEGMENT: u64 = 64 << 20;

/// The first of the segments that are never forgotten. Results of root jobs stand there: no other result takes them up, so
/// that they need not be written twice.
const LASTING: u32 = 1 << 31;

/// The writer of a log. A log has one.
pub struct LogWriter {
    stable: Arc<dyn Stable>,
    keys: StoreKeys,
    sealing: Sealing,
    place: RunPlace,
    log: LogName,
    /// The segment that is appended to.
    segment: u32,
    /// The segment that results of root jobs are appended to.
    lasting: u32,
    /// Bytes in the segments that may be there.
    segments: BTreeMap<u32, u64>,
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
            segment: 0,
            lasting: LASTING,
            segments: BTreeMap::new(),
        }
    }

    /// Appends a batch; it is durable then. Gives the bytes that it takes; an empty one takes none.
    ///
    /// # Errors
    /// A failure of the store. A part of the batch may stand there: results of root jobs, which are written first, or what no
    /// reader takes for a batch. The next one goes to the next segment.
    pub fn append(&mut self, batch: Batch) -> Result<u64, StableError> {
        let (lasting, batch) = batch.apart();
        let mut bytes = 0;
        if !lasting.is_empty() {
            let (written, next) = self.append_to(self.lasting, &lasting);
            self.lasting = next;
            bytes += written?;
        }
        if !batch.is_empty() {
            let (written, next) = self.append_to(self.segment, &batch);
            self.segment = next;
            bytes += written?;
        }
        Ok(bytes)
    }

    /// Appends to that segment, or to the next if it is full. Gives the bytes, and the segment to which the next batch goes.
    fn append_to(&mut self, mut segment: u32, batch: &Batch) -> (Result<u64, StableError>, u32) {
        if self.length(segment) >= SEGMENT {
            segment += 1;
        }
        let written = self.write(segment, batch);
        let next = match written {
            Ok(_) => segment,
            Err(_) => segment + 1,
        };
        (written, next)
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

    /// Lets the next batch begin a new segment.
    pub fn next_segment(&mut self) {
        self.segment += 1;
    }

    /// The segment that the next batch goes to, unless it is full.
    #[must_use]
    pub fn segment(&self) -> u32 {
        self.segment
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
