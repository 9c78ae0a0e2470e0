//! Which `main` of a run is the latest, and whether it goes on.
//!
//! Each master creates the next file of its epoch before its `main` begins, and gives a sign of life from time to time: a *beat*, which is a
//! file that is created before the one of the last beat is removed. Of several masters that begin at once each gets a number of its own. So
//! nodes that have lost their master, and see the store, know whether its `main` goes on; and only the latest `main` may remove the run.

use serde::{Deserialize, Serialize};

use super::{
    Runs,
    place::{self, RunFile, RunPlace},
};
use crate::{
    job::{MainBeat, MainNumber},
    stable::StableError,
};

/// How often the files are listed, at most, because one is gone before it is read. Too few: a slow store says nothing of a `main` that goes on. Too
/// many: it is asked without end.
const ATTEMPTS: u32 = 4;

/// What stands in each of these files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct MainRecord {
    /// The id of the node that runs it.
    by: u128,
}

impl Runs {
    /// Begins the next `main` of an epoch.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn begin_main(
        &self,
        place: &RunPlace,
        epoch: u32,
        by: u128,
    ) -> Result<MainBeat, StableError> {
        let files = self.mains(place)?;
        let taken = files.iter().filter(|(number, _)| number.epoch == epoch);
        let last = taken.map(|(number, _)| number.main).max();
        let mut number = MainNumber {
            epoch,
            main: last.map_or(0, |last| last.saturating_add(1)),
        };
        loop {
            let file = RunFile::Main(number, 0);
            match self.create_record(place, file, &MainRecord { by }) {
                // Another master was a moment earlier.
                Err(StableError::Exists(_)) if number.main < u32::MAX => number.main += 1,
                created => {
                    created?;
                    return Ok(MainBeat {
                        number,
                        beat: 0,
                        by,
                    });
                }
            }
        }
    }

    /// The `main` goes on.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn beat(&self, place: &RunPlace, last: &mut MainBeat) -> Result<(), StableError> {
        let MainBeat { number, beat, by } = *last;
        let next = beat.saturating_add(1);
        match self.create_record(place, RunFile::Main(number, next), &MainRecord { by }) {
            // An attempt of which this node has not heard that it went well.
            Err(StableError::Exists(_)) => {}
            created => created?,
        }
        last.beat = next;
        self.stable.delete(&place.path(RunFile::Main(number, beat)))
    }

    /// The last beat of the latest `main` of a run. `None` if none has begun.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn latest_main(&self, place: &RunPlace) -> Result<Option<MainBeat>, StableError> {
        for _ in 0..ATTEMPTS {
            let mut files = self.mains(place)?;
            files.sort_unstable();
            loop {
                let Some((number, beat)) = files.pop() else {
                    return Ok(None);
                };
                match self.read_record::<MainRecord>(place, RunFile::Main(number, beat))? {
                    Some(Ok(MainRecord { by })) => return Ok(Some(MainBeat { number, beat, by })),
                    // Whoever can write to the store can leave such a file there, but only who has the credential can begin a `main`.
                    Some(Err(_)) => {}
                    // The next beat has taken its place.
                    None => break,
                }
            }
        }
        Err(StableError::Missing(mains_of(place)))
    }

    fn mains(&self, place: &RunPlace) -> Result<Vec<(MainNumber, u32)>, StableError> {
        let files = self.stable.list(&mains_of(place))?;
        let files = files.iter().filter_map(|(path, _)| place::parse(path));
        let mains = files.filter_map(|(_, file)| match file {
            RunFile::Main(number, beat) => Some((number, beat)),
            _ => None,
        });
        Ok(mains.collect())
    }
}

/// What the paths of the starts of `main` begin with.
fn mains_of(place: &RunPlace) -> String {
    format!("{}main/", place.prefix())
}
