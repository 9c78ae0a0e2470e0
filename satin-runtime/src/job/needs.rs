//! The shared values that a job or a result mentions: noted while it is serialized, fetched by the receiver before it is
//! read.

use std::{
    any::{Any, TypeId},
    cell::{Cell, RefCell},
    fmt,
    sync::{Arc, OnceLock},
};

use super::{ValueName, ValueSize, codec::CodecError, scoped};

/// A shared value of this process.
pub trait Value: Send + Sync {
    /// Its name.
    fn name(&self) -> ValueName;

    /// Its bytes.
    fn bytes(&self) -> &[u8];

    /// The number of bytes that are in memory only because it is held.
    fn cost(&self) -> usize;

    /// What its bytes stand for, as a value of that type: read by `read` if nobody has it.
    ///
    /// # Errors
    /// That of `read`.
    fn decoded(&self, id: TypeId, read: &mut Read<'_>) -> Result<Decoded, CodecError>;
}

/// What the bytes of a shared value stand for.
pub type Decoded = Arc<dyn Any + Send + Sync>;

/// Reads the bytes of a shared value.
pub type Read<'r> = dyn FnMut(&[u8]) -> Result<Decoded, CodecError> + 'r;

/// Holds a shared value: it stays in this process as long as this does.
#[derive(Clone)]
pub struct HeldValue {
    name: ValueName,
    value: Arc<dyn Value>,
}

impl HeldValue {
    /// Holds that value.
    pub fn new(value: Arc<dyn Value>) -> HeldValue {
        let name = value.name();
        HeldValue { name, value }
    }

    /// The value's name.
    #[must_use]
    pub fn name(&self) -> ValueName {
        self.name
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.value.bytes()
    }

    /// The number of its bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes().len()
    }

    /// Its name and size.
    #[must_use]
    pub fn name_and_size(&self) -> ValueSize {
        let bytes = self.size() as u64;
        ValueSize {
            name: self.name,
            bytes,
        }
    }

    /// The number of bytes that are in memory only because it is held, as of now.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.value.cost()
    }

    /// What its bytes stand for: read by `read` if nobody here has it.
    ///
    /// # Errors
    /// That of `read`.
    pub(crate) fn decoded<T: Any + Send + Sync>(
        &self,
        read: impl Fn(&[u8]) -> Result<T, CodecError>,
    ) -> Result<Arc<T>, CodecError> {
        let mut read = |bytes: &[u8]| -> Result<Decoded, CodecError> { Ok(Arc::new(read(bytes)?)) };
        let decoded = self.value.decoded(TypeId::of::<T>(), &mut read)?;
        let Ok(decoded) = decoded.downcast() else {
            unreachable!("it was asked for by its type");
        };
        Ok(decoded)
    }
}

impl fmt::Debug for HeldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldValue({:?}, {} bytes)", self.name(), self.size())
    }
}

thread_local! {
    /// The values gathered so far; `None` as long as no caller gathers.
    static NOTED: RefCell<Option<Vec<HeldValue>>> = const { RefCell::new(None) };
    /// True while a value is only looked at, and goes nowhere.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `serialize` and gives beside its result the names of the values that it noted, each once.
pub fn gather<R>(serialize: impl FnOnce() -> R) -> (R, Vec<ValueName>) {
    let (result, values) = gather_values(serialize);
    (result, values.iter().map(HeldValue::name).collect())
}

/// As [`gather`], with the sizes of the values.
pub fn gather_sizes<R>(serialize: impl FnOnce() -> R) -> (R, Vec<ValueSize>) {
    let (result, values) = gather_values(serialize);
    (
        result,
        values.iter().map(HeldValue::name_and_size).collect(),
    )
}

fn gather_values<R>(serialize: impl FnOnce() -> R) -> (R, Vec<HeldValue>) {
    scoped::gather(&NOTED, serialize)
}

/// As [`gather`], of a value that stays: the values that it mentions are held for the caller, and need not be kept for a
/// receiver.
pub fn look<R>(serialize: impl FnOnce() -> R) -> (R, Vec<HeldValue>) {
    scoped::with(&LOOKING, true, || gather_values(serialize))
}

/// Runs `serialize`, which writes a part of what is being serialized on this thread, and gives the values that the part mentions beside
/// its result. [`pass_on`] notes them for the whole.
pub(crate) fn gather_of_part<R>(serialize: impl FnOnce() -> R) -> (R, Vec<HeldValue>) {
    let is_gathered = NOTED.with_borrow(Option::is_some);
    match is_gathered {
        true => gather_values(serialize),
        // The whole goes nowhere, and so does the part.
        false => look(serialize),
    }
}

/// Notes that what is being serialized mentions these values, which are known from its parts.
pub(crate) fn pass_on(values: &[HeldValue]) {
    NOTED.with_borrow_mut(|noted| {
        let Some(noted) = noted else { return };
        for value in values {
            if !noted.iter().any(|known| known.name() == value.name()) {
                noted.push(value.clone());
            }
        }
    });
}

/// Where the values of this process are, as the layer that has them says.
pub(crate) struct Keeper {
    /// Finds a value by its name.
    pub(crate) find: fn(ValueName) -> Option<HeldValue>,
    /// Enters a value, which mentions these, as bytes: it stays as long as it is held.
    pub(crate) enter: fn(Vec<u8>, &[HeldValue]) -> HeldValue,
}

static KEEPER: OnceLock<Keeper> = OnceLock::new();

/// Sets where the values of this process are, once: the store of values does.
pub(crate) fn kept_by(keeper: Keeper) {
    KEEPER.get_or_init(|| keeper);
}

/// Holds the value of that name, if it is in this process.
pub(crate) fn find(name: ValueName) -> Option<HeldValue> {
    (KEEPER.get()?.find)(name)
}

/// Holds those of these values that are in this process.
pub(crate) fn find_all(names: &[ValueName]) -> Vec<HeldValue> {
    names.iter().filter_map(|name| find(*name)).collect()
}

/// Does somebody keep values in this process?
pub(crate) fn is_kept() -> bool {
    KEEPER.get().is_some()
}

/// Enters a value as bytes. `None` if nobody keeps values in this process.
pub(crate) fn enter(bytes: Vec<u8>, mentions: &[HeldValue]) -> Option<HeldValue> {
    Some((KEEPER.get()?.enter)(bytes, mentions))
}

/// Notes that the value which is being serialized mentions this value. False if it need not be kept for a receiver.
pub fn note<V: Value + 'static>(value: &Arc<V>) -> bool {
    NOTED.with_borrow_mut(|noted| {
        let Some(values) = noted else { return false };
        let name = value.name();
        if !values.iter().any(|noted| noted.name() == name) {
            values.push(HeldValue::new(Arc::<V>::clone(value)));
        }
        !LOOKING.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbered(u8);

    impl Value for Numbered {
        fn name(&self) -> ValueName {
            name(self.0)
        }

        fn bytes(&self) -> &[u8] {
            std::slice::from_ref(&self.0)
        }

        fn cost(&self) -> usize {
            1
        }

        fn decoded(&self, _: TypeId, read: &mut Read<'_>) -> Result<Decoded, CodecError> {
            read(&[self.0])
        }
    }

    fn name(number: u8) -> ValueName {
        ValueName([number; 32])
    }

    fn note(number: u8) -> bool {
        super::note(&Arc::new(Numbered(number)))
    }

    #[test]
    fn each_value_is_noted_once_and_only_inside() {
        assert!(!note(1));
        let (result, names) = gather(|| {
            note(2);
            note(3);
            note(2);
            7
        });
        assert_eq!((result, names), (7, vec![name(2), name(3)]));
        assert_eq!(gather(|| ()).1, vec![]);
        let (is_sent, values) = look(|| note(4));
        assert_eq!((is_sent, values[0].name()), (false, name(4)));
        assert!(gather(|| note(5)).0);
    }

    #[test]
    fn gathering_within_gathering_keeps_the_two_apart() {
        let ((), outer) = gather(|| {
            note(1);
            assert_eq!(gather(|| note(2)), (true, vec![name(2)]));
            note(3);
        });
        assert_eq!(outer, vec![name(1), name(3)]);
    }

    #[test]
    fn a_panic_leaves_nothing_behind() {
        let ((), outer) = gather(|| {
            note(1);
            let inner = std::panic::catch_unwind(|| {
                gather(|| {
                    note(2);
                    std::panic::resume_unwind(Box::new(()));
                })
            });
            assert!(inner.is_err());
        });
        assert_eq!(outer, vec![name(1)]);
    }
}
