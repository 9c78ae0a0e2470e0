//! Loans: data that several jobs borrow, one after the other or at once, as the tasks of a flow do. Where such a job is written, large data
//! stand in it by name, like shared values: a node that has them need not be sent them again.
//!
//! An argument `&T` of a job is a bare reference when the job is written. Whoever lends the data says meanwhile which references are loans
//! ([`with`]), by their addresses.

use std::{
    cell::RefCell,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    ValueName, ValueSize,
    codec::{self, CodecError, Effort},
    kinds::{Carried, Travels},
    needs::{self, HeldValue},
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

/// A reference to data that are lent.
#[derive(Clone)]
pub struct Loan {
    address: usize,
    data: Arc<dyn Lendable>,
}

impl Loan {
    /// The reference is one to these data.
    pub fn new<T: ?Sized>(reference: &T, data: Arc<dyn Lendable>) -> Loan {
        let address = address_of(reference);
        Loan { address, data }
    }
}

fn address_of<T: ?Sized>(reference: &T) -> usize {
    std::ptr::from_ref(reference).cast::<()>().addr()
}

/// The loans among the arguments of a job.
pub type Loans = Arc<[Loan]>;

/// The name of data that are lent, which they get when they are to travel for the first time.
#[derive(Default)]
pub struct LentName {
    lent: OnceLock<Lent>,
    /// A name by which data are known here that have none yet: a number, or 0.
    number: AtomicU64,
}

/// How data stand in a job that borrows them.
enum Lent {
    /// As they are.
    Small,
    /// By name.
    Named {
        value: HeldValue,
        /// The shared values that they mention.
        mentions: Box<[HeldValue]>,
    },
}

impl LentName {
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
        let Lent::Named { value, mentions } = lent else {
            return Ok(None);
        };
        note(value.name_and_size());
        needs::pass_on(mentions);
        Ok(Some(value.name()))
    }

    /// Notes the data for the job that is being measured on this thread, under a name that is known in this process alone if they have no
    /// other.
    fn see(&self, data: &dyn Lendable) {
        match self.lent.get() {
            Some(Lent::Named { value, mentions }) => {
                note(value.name_and_size());
                needs::pass_on(mentions);
            }
            Some(Lent::Small) => {}
            None => {
                if let Some(bytes) = data.measure().filter(|bytes| *bytes > SMALL as u64) {
                    let name = self.unnamed();
                    note(ValueSize { name, bytes });
                }
            }
        }
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
fn name_now(data: &dyn Lendable) -> Result<Lent, CodecError> {
    let effort = match codec::most_named() {
        None => Effort::ANY,
        // Small data need no name.
        Some(named) => Effort::keeping(named.max(codec::most_bytes().min(SMALL))),
    };
    let (bytes, mentions) = needs::gather_of_part(|| data.write(effort));
    let bytes = bytes.inspect_err(codec::has_failed)?;
    if bytes.len() <= SMALL {
        return Ok(Lent::Small);
    }
    codec::has_named(bytes.len());
    let mentions: Box<[HeldValue]> = mentions.into();
    let value = needs::enter(bytes, &mentions);
    Ok(value.map_or(Lent::Small, |value| Lent::Named { value, mentions }))
}

/// A job is being written, or measured, on this thread.
struct Writing {
    loans: Loans,
    /// The data that it borrows and that do not stand in it.
    lent: Vec<ValueSize>,
}

thread_local! {
    static WRITING: RefCell<Option<Writing>> = const { RefCell::new(None) };
}

/// Writes or measures a job among whose arguments are these loans. Also gives the data that it borrows and that do not stand in it, each
/// once.
pub fn with<R>(loans: Option<&Loans>, write: impl FnOnce() -> R) -> (R, Vec<ValueSize>) {
    /// What is being written further out; restored also if `write` panics.
    struct Outer(Option<Writing>);

    impl Drop for Outer {
        fn drop(&mut self) {
            WRITING.set(self.0.take());
        }
    }

    let writing = loans.map(|loans| Writing {
        loans: Arc::clone(loans),
        lent: Vec::new(),
    });
    let _outer = Outer(WRITING.replace(writing));
    let result = write();
    let writing = WRITING.take();
    (
        result,
        writing.map(|writing| writing.lent).unwrap_or_default(),
    )
}

fn note(value: ValueSize) {
    WRITING.with_borrow_mut(|writing| {
        let Some(Writing { lent, .. }) = writing else {
            return;
        };
        if !lent.iter().any(|known| known.name == value.name) {
            lent.push(value);
        }
    });
}

/// The name by which the reference is to stand in the job that is being written on this thread; `None` if it is no loan, or the data are
/// small, or are only measured.
///
/// # Errors
/// The data cannot be written, or not with as little effort as the job.
pub(super) fn name_of<T: ?Sized>(reference: &T) -> Result<Option<ValueName>, CodecError> {
    let address = address_of(reference);
    let data = WRITING.with_borrow(|writing| {
        let loans = &writing.as_ref()?.loans;
        let loan = loans.iter().find(|loan| loan.address == address)?;
        Some(Arc::clone(&loan.data))
    });
    data.map_or(Ok(None), |data| name_of_data(&*data))
}

/// The same of data of which it is known that they are lent.
///
/// # Errors
/// As [`name_of`].
pub fn name_of_data(data: &dyn Lendable) -> Result<Option<ValueName>, CodecError> {
    if WRITING.with_borrow(Option::is_none) {
        return Ok(None);
    }
    if codec::is_measuring() {
        data.named().see(data);
        return Ok(None);
    }
    data.named().name(data)
}

/// Reads data that a job borrows, by their name.
///
/// # Errors
/// They are not in this process, or cannot be read as such data.
pub fn read<T: Travels + Send + Sync>(name: ValueName) -> Result<Arc<T>, ReadError> {
    let value = needs::find(name).ok_or(ReadError::NotHere(name))?;
    let read = |bytes: &[u8]| {
        codec::read("deserializing borrowed data", bytes).map(|Carried(value): Carried<T>| value)
    };
    value.decoded(read).map_err(ReadError::Codec)
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
            codec::measure(&self.numbers, 100)
        }

        fn named(&self) -> &LentName {
            &self.name
        }
    }

    fn lend(count: u64) -> (Arc<Numbers>, Loans) {
        crate::data::store();
        let lent = Arc::new(Numbers {
            // Nobody else has these.
            numbers: (count..2 * count).collect(),
            name: LentName::default(),
        });
        let loan = Loan::new::<[u64]>(&lent.numbers, Arc::<Numbers>::clone(&lent));
        (lent, Arc::from([loan]))
    }

    fn write(
        numbers: &[u64],
        loans: &Loans,
        effort: Effort,
    ) -> (Result<Vec<u8>, CodecError>, Vec<ValueSize>) {
        let write = || codec::write("writing", &CarriedLoan::of(numbers), effort);
        with(Some(loans), write)
    }

    #[test]
    fn what_is_large_is_written_by_its_name_where_it_is_a_loan() {
        let (lent, loans) = lend(10_000);
        let numbers = &lent.numbers[..];
        let alone = codec::write("writing", &CarriedLoan::of(numbers), Effort::ANY);
        assert!(alone.expect("bytes").len() > 80_000, "no loan");
        let (bytes, values) = write(numbers, &loans, Effort::ANY);
        assert_eq!((bytes.expect("bytes").len(), values.len()), (33, 1));
        // Elsewhere it is read by that name, once for all who borrow it.
        let name = values[0].name;
        let [one, other] = [0, 1].map(|_| read::<Vec<u64>>(name).expect("numbers"));
        assert!(Arc::ptr_eq(&one, &other) && *one == lent.numbers);
        // Another reference is no loan.
        let (bytes, values) = write(&numbers[1..], &loans, Effort::ANY);
        assert!(bytes.expect("bytes").len() > 70_000 && values.is_empty());
        // With those who lend it, it is gone.
        drop((lent, loans));
        assert!(matches!(read::<Vec<u64>>(name), Err(ReadError::NotHere(_))));
    }

    #[test]
    fn what_is_small_is_written_as_it_is() {
        let (lent, loans) = lend(100);
        for effort in [Effort::QUICK, Effort::ANY] {
            let (bytes, values) = write(&lent.numbers, &loans, effort);
            assert!(bytes.expect("bytes").len() > 800 && values.is_empty());
        }
    }

    #[test]
    fn to_find_out_a_name_takes_more_than_little_effort() {
        let (lent, loans) = lend(20_000);
        for effort in [
            Effort::QUICK,
            Effort::up_to(1 << 20),
            Effort::keeping(100_000),
        ] {
            write(&lent.numbers, &loans, effort)
                .0
                .expect_err("too long");
        }
        let (first, _) = write(&lent.numbers, &loans, Effort::keeping(200_000));
        let (again, values) = write(&lent.numbers, &loans, Effort::QUICK);
        assert_eq!(
            (first.expect("bytes"), values.len()),
            (again.expect("it has a name"), 1)
        );
    }

    #[test]
    fn what_is_only_measured_gets_no_name_but_is_known() {
        let (lent, loans) = lend(30_000);
        let measure = || {
            let measure = || codec::measure(&CarriedLoan::of(&lent.numbers[..]), 100);
            let (bytes, values) = with(Some(&loans), measure);
            assert!(bytes.expect("they are numbers") > 240_000, "it counts");
            assert!(values[0].bytes > 240_000);
            values[0].name
        };
        let name = measure();
        assert_eq!(measure(), name);
        assert!(needs::find(name).is_none());
        let (_, values) = write(&lent.numbers, &loans, Effort::ANY);
        assert_ne!(values[0].name, name);
        assert_eq!(measure(), values[0].name);
    }
}
