//! Loans: data that several jobs borrow, one after the other or at once, as the tasks of a flow do. Where such a job is written, large data
//! stand in it by name, like shared values: a node that has them need not be sent them again.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::de::DeserializeOwned;

use super::{
    ValueName, ValueSize,
    codec::{self, CodecError, Effort},
    kinds::{Carried, Travels},
    needs::{self, HeldValue},
    scoped,
};

/// Data of at most so many bytes stand in each job that borrows them. Too small: names of data are asked for that would have come along. Too
/// large: data travel again with each job.
pub const SMALL: usize = 16 << 10;

/// Data that are lent.
pub trait Lendable: Send + Sync {
    /// Writes the data.
    ///
    /// # Errors
    /// As [`codec::write`].
    fn write(&self, effort: Effort) -> Result<Vec<u8>, CodecError>;

    /// The bytes of the data, about; `None` if that is not easily said.
    fn measure(&self) -> Option<u64>;

    /// The data's name, once they have one.
    fn named(&self) -> &LentName;
}

/// The name of data that are lent, which they get when they are to travel for the first time.
#[derive(Default)]
pub struct LentName {
    lent: OnceLock<LentValue>,
    /// A name by which data are known here that have none yet: a number, or 0.
    number: AtomicU64,
    /// The bytes of data that have no name yet, about, once they have been measured.
    bytes: OnceLock<Option<u64>>,
}

/// How data stand in a job that borrows them.
enum LentValue {
    /// As they are.
    Small,
    /// By name.
    Named {
        value: HeldValue,
        /// The shared values that they mention.
        mentions: Box<[HeldValue]>,
    },
    /// By name, and they are not here: another node has made them, and keeps them. They mention no shared values.
    Kept(ValueSize),
}

impl LentName {
    /// The name of data that another node keeps.
    pub fn kept(value: ValueSize) -> LentName {
        LentName {
            lent: OnceLock::from(LentValue::Kept(value)),
            ..LentName::default()
        }
    }

    /// The name, if the data have one.
    pub fn get(&self) -> Option<ValueName> {
        match self.lent.get()? {
            LentValue::Small => None,
            LentValue::Named { value, .. } => Some(value.name()),
            LentValue::Kept(value) => Some(value.name),
        }
    }

    /// Notes the data for the job that is being written on this thread, and gives their name; `None` if they are to stand in it as they
    /// are.
    fn name(&self, data: &dyn Lendable) -> Result<Option<ValueName>, CodecError> {
        let lent = match self.lent.get() {
            Some(lent) => lent,
            None => {
                let lent = name_now(data)?;
                self.lent.get_or_init(|| lent)
            }
        };
        Ok(match lent {
            LentValue::Small => None,
            LentValue::Named { value, mentions } => {
                note(value.name_and_size());
                needs::pass_on(mentions);
                Some(value.name())
            }
            LentValue::Kept(value) => {
                note(*value);
                Some(value.name)
            }
        })
    }

    /// Notes the data for the job that is being measured on this thread, under a name that is known in this process alone if they have no
    /// other. Their name, if they are not here to be measured.
    fn see(&self, data: &dyn Lendable) -> Option<ValueName> {
        match self.lent.get() {
            Some(LentValue::Kept(value)) => {
                note(*value);
                codec::has_elsewhere(value.bytes);
                return Some(value.name);
            }
            Some(LentValue::Named { value, mentions }) => {
                note(value.name_and_size());
                needs::pass_on(mentions);
            }
            Some(LentValue::Small) => {}
            None => {
                let measure = || as_list(false, || data.measure());
                let bytes = *self.bytes.get_or_init(measure);
                if let Some(bytes) = bytes.filter(|bytes| *bytes > SMALL as u64) {
                    let name = self.unnamed();
                    note(ValueSize { name, bytes });
                }
            }
        }
        None
    }

    fn unnamed(&self) -> ValueName {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            let (set, is) = (Ordering::Relaxed, Ordering::Relaxed);
            number = match self.number.compare_exchange(0, new, set, is) {
                Ok(_) => new,
                Err(other) => other,
            };
        }
        // No hash looks like that.
        let mut name = [0xFF; 32];
        name[..8].copy_from_slice(&number.to_le_bytes());
        ValueName(name)
    }
}

/// Writes the data, to find out their name, as far as the effort of what is being written on this thread allows that.
fn name_now(data: &dyn Lendable) -> Result<LentValue, CodecError> {
    let effort = match codec::most_named() {
        None => Effort::ANY,
        // Small data need no name.
        Some(named) => Effort::keeping(named.max(codec::most_bytes().min(SMALL))),
    };
    let write = || as_list(false, || data.write(effort));
    let (bytes, mentions) = needs::gather_of_part(write);
    let bytes = bytes.inspect_err(codec::has_failed)?;
    if bytes.len() <= SMALL {
        return Ok(LentValue::Small);
    }
    codec::has_named(bytes.len());
    let mentions: Box<[HeldValue]> = mentions.into();
    let value = needs::enter(bytes, &mentions);
    Ok(value.map_or(LentValue::Small, |value| LentValue::Named {
        value,
        mentions,
    }))
}

thread_local! {
    /// The data that the job borrows which is being written, or measured, on this thread, and that do not stand in it; `None` if none is.
    static LENT: RefCell<Option<Vec<ValueSize>>> = const { RefCell::new(None) };
    /// What is being written, or measured, is a list that a task borrows, and nothing inside of its elements.
    static IS_LIST: Cell<bool> = const { Cell::new(false) };
}

/// Writes or measures what a job borrows: a list of loans, or anything else.
pub(super) fn as_list<R>(is_list: bool, write: impl FnOnce() -> R) -> R {
    scoped::with(&IS_LIST, is_list, write)
}

/// Is it an element of a list that a task borrows which is to be written?
///
/// Elements of the same list elsewhere, as in a job to which the task has lent it further, stand there as they are: whether they have a
/// name depends on where the task has run.
pub fn is_element() -> bool {
    IS_LIST.get()
}

/// Writes or measures a job. Also gives the data that it borrows and that do not stand in it, each once.
pub fn gather<R>(write: impl FnOnce() -> R) -> (R, Vec<ValueSize>) {
    scoped::gather(&LENT, write)
}

fn note(value: ValueSize) {
    LENT.with_borrow_mut(|lent| {
        let Some(lent) = lent else { return };
        if !lent.iter().any(|known| known.name == value.name) {
            lent.push(value);
        }
    });
}

/// The name by which the data are to stand in the job that is being written on this thread; `None` if there is no such job, if the data are
/// small, or are only measured where they are.
///
/// # Errors
/// The data cannot be written, or not with as little effort as the job.
pub fn name_of(data: &dyn Lendable) -> Result<Option<ValueName>, CodecError> {
    if LENT.with_borrow(Option::is_none) {
        return Ok(None);
    }
    if codec::is_measuring() {
        return Ok(data.named().see(data));
    }
    data.named().name(data)
}

/// The name and the size of data that are to travel before a job is written that borrows them; `None` if they are small, or cannot be written.
pub fn name_ahead(data: &dyn Lendable) -> Option<ValueSize> {
    let is_small = |bytes: u64| bytes <= SMALL as u64;
    if data.named().lent.get().is_none() && data.measure().is_some_and(is_small) {
        return None;
    }
    let (named, values) = gather(|| data.named().name(data));
    let name = named.ok()??;
    values.into_iter().find(|value| value.name == name)
}

/// Reads data that a job borrows, by their name.
///
/// # Errors
/// They are not in this process, or cannot be read as such data.
pub fn read<T: Travels + Send + Sync>(name: ValueName) -> Result<Arc<T>, ReadError> {
    let value = find(name)?;
    let read = |bytes: &[u8]| {
        codec::read("deserializing borrowed data", bytes).map(|Carried(value): Carried<T>| value)
    };
    value.decoded(read).map_err(ReadError::Codec)
}

/// Reads data that a job is to change, by their name: a copy of its own.
///
/// # Errors
/// As [`read`].
pub fn read_own<T: DeserializeOwned>(name: ValueName) -> Result<T, ReadError> {
    let value = find(name)?;
    codec::read("deserializing data that a task changes", value.bytes()).map_err(ReadError::Codec)
}

fn find(name: ValueName) -> Result<HeldValue, ReadError> {
    needs::find(name).ok_or_else(|| {
        codec::is_absent();
        ReadError::NotHere(name)
    })
}

/// Why data that a job borrows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// They are elsewhere.
    #[error("the data {0:?} that the job borrows are not in this process")]
    NotHere(ValueName),
    /// Their bytes are no such data.
    #[error(transparent)]
    Codec(CodecError),
}

#[cfg(not(loom))] // which leaves the store out
#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::kinds::CarriedLoan;

    /// Numbers that are lent.
    struct Numbers {
        numbers: Vec<u64>,
        name: LentName,
    }

    impl Lendable for Numbers {
        fn write(&self, effort: Effort) -> Result<Vec<u8>, CodecError> {
            codec::write("writing", &self.numbers, effort)
        }

        fn measure(&self) -> Option<u64> {
            codec::measure(&self.numbers, 100)?.whole()
        }

        fn named(&self) -> &LentName {
            &self.name
        }
    }

    fn lend(count: u64) -> Numbers {
        crate::data::store();
        Numbers {
            // Nobody else has these.
            numbers: (count..2 * count).collect(),
            name: LentName::default(),
        }
    }

    fn write(lent: &Numbers, effort: Effort) -> (Result<Vec<u8>, CodecError>, Vec<ValueSize>) {
        gather(|| {
            codec::write(
                "writing",
                &CarriedLoan::lent(Some(&lent.numbers[..]), lent),
                effort,
            )
        })
    }

    #[test]
    fn what_is_large_is_written_by_its_name_where_it_is_lent() {
        let lent = lend(10_000);
        let plain = || codec::write("writing", &CarriedLoan::of(&lent.numbers[..]), Effort::ANY);
        let (bytes, values) = gather(plain);
        assert!(bytes.expect("bytes").len() > 80_000 && values.is_empty());
        let (bytes, values) = write(&lent, Effort::ANY);
        assert_eq!((bytes.expect("bytes").len(), values.len()), (33, 1));
        // Elsewhere it is read by that name, once for all who borrow it.
        let name = values[0].name;
        let [one, other] = [0, 1].map(|_| read::<Vec<u64>>(name).expect("numbers"));
        assert!(Arc::ptr_eq(&one, &other) && *one == lent.numbers);
        // With those who lend it, it is gone.
        drop(lent);
        assert!(matches!(read::<Vec<u64>>(name), Err(ReadError::NotHere(_))));
    }

    #[test]
    fn what_is_small_is_written_as_it_is() {
        let lent = lend(100);
        for effort in [Effort::QUICK, Effort::ANY] {
            let (bytes, values) = write(&lent, effort);
            assert!(bytes.expect("bytes").len() > 800 && values.is_empty());
        }
    }

    #[test]
    fn to_find_out_a_name_takes_more_than_little_effort() {
        let lent = lend(20_000);
        for effort in [
            Effort::QUICK,
            Effort::up_to(1 << 20),
            Effort::keeping(100_000),
        ] {
            write(&lent, effort).0.expect_err("too long");
        }
        let (first, _) = write(&lent, Effort::keeping(200_000));
        let (again, values) = write(&lent, Effort::QUICK);
        let first = first.expect("bytes");
        assert_eq!((first, values.len()), (again.expect("it has a name"), 1));
    }

    #[test]
    fn what_is_only_measured_gets_no_name_but_is_known() {
        let lent = lend(30_000);
        let measure = || {
            let loan = CarriedLoan::lent(Some(&lent.numbers[..]), &lent);
            let (bytes, values) = gather(|| codec::measure(&loan, 100));
            assert!(
                bytes.expect("they are numbers").bytes > 240_000,
                "it counts"
            );
            assert!(values[0].bytes > 240_000);
            values[0].name
        };
        let name = measure();
        assert_eq!(measure(), name);
        assert!(needs::find(name).is_none());
        let (_, values) = write(&lent, Effort::ANY);
        assert_ne!(values[0].name, name);
        assert_eq!(measure(), values[0].name);
    }
}
