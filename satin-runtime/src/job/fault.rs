//! The fault of a type whose values cannot travel.
//!
//! Serde's errors keep no text on their way through postcard. So the writer or reader notes here, on its thread, what it found, and
//! [`codec`](super::codec) puts that into its error. The innermost place counts, and what was found first.

use std::{any::type_name, cell::RefCell, fmt};

use serde::ser;

/// A fault, and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    why: Why,
    place: Option<FaultPlace>,
    /// The error of postcard, if there is one.
    error: Option<postcard::Error>,
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Code of the user, or the format, says no; `None` before that is known.
    Unknown,
    /// A field is left out of some values.
    LeftOut,
    /// Other numbers of parts were announced and written.
    Count {
        /// The parts that were announced.
        announced: usize,
        /// The parts that were written.
        written: usize,
    },
    /// A map does not know how many entries it has.
    NoLength,
    /// `Deserialize` asks the bytes what they are.
    AsksFormat,
    /// Bytes are left when all is read.
    BytesLeft(usize),
    /// Other fields are read than were written.
    Fields {
        /// The fields that are written.
        written: u32,
        /// The fields that are read.
        read: usize,
    },
    /// A variant is read as another one, or as none.
    Variant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum FaultPlace {
    Field(&'static str, &'static str),
    /// A type, by its name in serde or in Rust.
    Type(&'static str),
}

impl Fault {
    /// Is the type at fault, and not this value of it?
    #[must_use]
    pub fn is_of_type(&self) -> bool {
        self.why != Why::Unknown
    }

    /// A fault of all values of a type.
    pub(super) fn of_type<T>(why: Why) -> Fault {
        Fault {
            why,
            place: Some(FaultPlace::Type(type_name::<T>())),
            error: None,
        }
    }
}

impl fmt::Display for FaultPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultPlace::Field(of, field) => write!(f, "`{field}` of `{of}`"),
            FaultPlace::Type(name) => write!(f, "`{name}`"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}"),
            None => f.write_str("a value"),
        }?;
        match self.why {
            Why::Unknown => match &self.error {
                Some(error) => write!(f, " cannot be written or read: {error}"),
                None => f.write_str(" cannot be written or read"),
            },
            Why::LeftOut => f.write_str(
                " is left out of some values, and who reads them expects it; take `skip_serializing_if` away",
            ),
            Why::Count { announced, written } => write!(
                f,
                " announces {announced} parts and writes {written}; correct its `Serialize`"
            ),
            Why::NoLength => f.write_str(
                " does not say how many entries it has; take `flatten` away, or give the number in its `Serialize`",
            ),
            Why::AsksFormat => f.write_str(
                " can be read only from a format that says what follows; take `untagged`, `tag` or `flatten` away, or send its \
                 text (`serde_json::to_string`)",
            ),
            Why::BytesLeft(bytes) => write!(
                f,
                " is read with {bytes} bytes left; its `Deserialize` must read all that its `Serialize` writes"
            ),
            Why::Fields { written, read } => write!(
                f,
                " writes {written} fields and reads {read}; take `skip` instead of `skip_serializing` or `skip_deserializing`"
            ),
            Why::Variant => f.write_str(
                " is read as another variant; put variants with `skip` behind all others, and give each one name for both ways",
            ),
        }
    }
}

thread_local! {
    static FAULT: RefCell<Option<Fault>> = const { RefCell::new(None) };
}

/// Nothing has been found yet.
pub(super) fn forget() {
    FAULT.with_borrow_mut(|fault| {
        // Next to always there is none.
        if fault.is_some() {
            *fault = None;
        }
    });
}

/// What was found on this thread, where a `T` was written or read, which has ended in that error.
#[cold]
pub(super) fn found<T: ?Sized>(error: postcard::Error) -> Fault {
    note(Why::Unknown, type_name::<T>(), "");
    let fault = FAULT.with_borrow(Clone::clone);
    let mut fault = fault.expect("noted a line ago");
    fault.error = Some(error);
    fault
}

/// Notes what was found, in the field or type that is named; an empty name is none.
#[cold]
pub(super) fn note(why: Why, of: &'static str, field: &'static str) {
    FAULT.with_borrow_mut(|fault| {
        let place = match (of, field) {
            ("", _) => None,
            (of, "") => Some(FaultPlace::Type(of)),
            (of, field) => Some(FaultPlace::Field(of, field)),
        };
        let error = None;
        let fault = fault.get_or_insert(Fault {
            why,
            place: None,
            error,
        });
        // What is known says more than where it became an error.
        if fault.why == Why::Unknown && why != Why::Unknown {
            fault.why = why;
            fault.place = place.or(fault.place.take());
        } else if fault.place.is_none() {
            fault.place = place;
        }
    });
}

/// As [`note`], with an error for serde.
#[cold]
pub(super) fn raise<E: ser::Error>(why: Why, of: &'static str, field: &'static str) -> E {
    note(why, of, field);
    E::custom("see the fault")
}

/// The error has come from within that field.
#[cold]
pub(super) fn within<E>(error: E, of: &'static str, field: &'static str) -> E {
    note(Why::Unknown, of, field);
    error
}

/// The error has come from within a value of that type.
#[cold]
pub(super) fn within_type<T: ?Sized, E>(error: E) -> E {
    note(Why::Unknown, type_name::<T>(), "");
    error
}
