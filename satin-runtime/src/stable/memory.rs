//! A store in memory, for tests: its calls can be made to fail, and its files to be damaged.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{Stable, StableError};

/// A store in memory. It survives nothing but its users.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<MemoryState>,
}

/// The calls of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StableCall {
    /// [`Stable::create`].
    Create,
    /// [`Stable::append`].
    Append,
    /// [`Stable::read`].
    Read,
    /// [`Stable::list`].
    List,
    /// [`Stable::delete`].
    Delete,
}

#[derive(Debug, Default)]
struct MemoryState {
    files: BTreeMap<String, Vec<u8>>,
    /// Of each kind of call: how many go well yet, and how many fail then.
    failing: BTreeMap<StableCall, (u32, u32)>,
    /// Bytes that a failing append leaves of its batch.
    torn: usize,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Lets the next calls of that kind fail: so many, and then no more.
    pub fn fail(&self, call: StableCall, times: u32) {
        self.fail_after(call, 0, times);
    }

    /// As [`fail`](Memory::fail), after so many calls of that kind that go well.
    pub fn fail_after(&self, call: StableCall, well: u32, times: u32) {
        self.state().failing.insert(call, (well, times));
    }

    /// Lets appends that fail leave so many bytes of their batch. Without that they leave none.
    pub fn tear(&self, bytes: usize) {
        self.state().torn = bytes;
    }

    /// Changes the bytes of a file behind everybody's back.
    ///
    /// # Panics
    /// There is no such file.
    pub fn damage(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        change(state.files.get_mut(path).expect("there is such a file"));
    }

    /// All files and their bytes.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.state().files.clone()
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    fn call(&mut self, call: StableCall, path: &str) -> Result<(), StableError> {
        match self.failing.get_mut(&call) {
            Some((well, _)) if *well > 0 => {
                *well -= 1;
                Ok(())
            }
            Some((_, times)) if *times > 0 => {
                *times -= 1;
                Err(StableError::Failed {
                    path: path.into(),
                    error: io::Error::other("the test lets this call fail"),
                })
            }
            _ => Ok(()),
        }
    }
}

impl Stable for Memory {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
        let mut state = self.state();
        state.call(StableCall::Create, path)?;
        if state.files.contains_key(path) {
            return Err(StableError::Exists(path.into()));
        }
        state.files.insert(path.into(), bytes.into());
        Ok(())
    }

    fn append(&self, path: &str, batch: &[u8]) -> Result<(), StableError> {
        let mut state = self.state();
        let done = state.call(StableCall::Append, path);
        let written = match done {
            Ok(()) => batch,
            Err(_) => &batch[..state.torn.min(batch.len())],
        };
        let file = state.files.entry(path.into()).or_default();
        file.extend_from_slice(written);
        done
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError> {
        let mut state = self.state();
        state.call(StableCall::Read, path)?;
        let file = state.files.get(path);
        let file = file.ok_or_else(|| StableError::Missing(path.into()))?;
        let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(file.len());
        let (start, end) = (within(range.start), within(range.end));
        Ok(file[start..end.max(start)].to_vec())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError> {
        let mut state = self.state();
        state.call(StableCall::List, prefix)?;
        let files = state.files.range(prefix.to_owned()..);
        let begins = files.take_while(|(path, _)| path.starts_with(prefix));
        let sizes = begins.map(|(path, bytes)| (path.clone(), bytes.len() as u64));
        Ok(sizes.collect())
    }

    fn delete(&self, path: &str) -> Result<(), StableError> {
        let mut state = self.state();
        state.call(StableCall::Delete, path)?;
        state.files.remove(path);
        Ok(())
    }
}
