//! `Shared<T>`: an immutable value that is made once, and travels as a handle.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, de::DeserializeOwned, ser};

use super::store::{LARGEST_VALUE, StoredValue, store};
use crate::{
    job::{
        HeldValue, ValueName,
        codec::{self, CodecError, Effort},
        needs,
    },
    worker::{Flow, Handle},
};

/// An immutable value that all jobs may need: a scene, a matrix, a dictionary.
///
/// Made once and passed by handle, `&Shared<T>` or `Shared<T>`; [`Deref`] gives the value. When a job travels to another
/// node only the handle does: the value's name, the BLAKE3 hash of its bytes. A node fetches the value once, before the
/// first job that carries the handle starts there, from a node nearby that has it. On one machine a handle is an `Arc`,
/// and the value is not serialized, unless a store (`SATIN_STORE`) is to have a result that mentions it.
///
/// Changes through a `Mutex` or an atomic in the value stay on the machine where they are made. A value lives as long
/// as a handle of it, or a root job in which a handle has travelled; it can have at most 1 GiB of bytes. As a part of a
/// value that is serialized the handle is its name alone, which can be read again only where the value is.
pub struct Shared<T>(Arc<SharedInner<T>>);

struct SharedInner<T> {
    value: T,
    /// The value's place in the store, once it has travelled; or why it cannot.
    entry: OnceLock<Result<Arc<StoredValue>, String>>,
}

impl<T> Shared<T> {
    /// Makes a value shared. Nothing is serialized before a handle travels, or goes to a store.
    ///
    /// ```
    /// # use satin_runtime::data::Shared;
    /// let words = Shared::new(vec!["to", "be"]);
    /// let handle = words.clone(); // the same value
    /// assert_eq!(handle.len(), 2);
    /// ```
    pub fn new(value: T) -> Shared<T> {
        Shared(Arc::new(SharedInner {
            value,
            entry: OnceLock::new(),
        }))
    }

    /// True if the two are the same value in memory.
    ///
    /// ```
    /// # use satin_runtime::data::Shared;
    /// let one = Shared::new(1);
    /// assert!(Shared::ptr_eq(&one, &one.clone()));
    /// assert!(!Shared::ptr_eq(&one, &Shared::new(1)));
    /// ```
    #[must_use]
    pub fn ptr_eq(this: &Shared<T>, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&this.0, &other.0)
    }
}

impl<'g> Flow<'g> {
    /// Waits for what the tasks so far make of a handle's data, and takes it out of the flow as a shared value: see [`Flow::take`]. It may
    /// leave the flow, be an argument of jobs and tasks, and be brought into this flow or another: [`Flow::shared`].
    ///
    /// # Panics
    /// If the value has been taken out before, or forgotten.
    pub fn share<T: Clone + Send + Sync + 'static>(&self, handle: Handle<'g, T>) -> Shared<T> {
        Shared::new(self.take(handle))
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Shared<T> {
    /// The value's name, the same on every node and in every run: the BLAKE3 hash of its bytes.
    ///
    /// (Not a method: the value may have one of that name.)
    ///
    /// # Panics
    /// If the value cannot be serialized, or takes more than 1 GiB.
    ///
    /// ```
    /// # use satin_runtime::data::Shared;
    /// let name = Shared::name(&Shared::new("to be".to_owned()));
    /// assert_eq!(name, Shared::name(&Shared::new("to be".to_owned())));
    /// ```
    #[must_use]
    pub fn name(this: &Shared<T>) -> ValueName {
        match this.entry() {
            Ok(entry) => entry.name,
            Err(error) => panic!("a shared value has no name: {error}"),
        }
    }

    fn entry(&self) -> Result<&Arc<StoredValue>, &String> {
        let enter = || self.enter(MOST).map_err(|error| error.to_string());
        self.0.entry.get_or_init(enter).as_ref()
    }

    /// As [`entry`](Shared::entry), if no more than so many bytes are to be written and hashed for that.
    fn entry_within(&self, most: usize) -> Result<&Arc<StoredValue>, String> {
        if self.0.entry.get().is_none() {
            if most == 0 {
                return Err("it has no name yet".into());
            }
            // Too many bytes now may be few enough another time: the error is not kept.
            let entry = self.enter(Effort::keeping(most)).map_err(|error| {
                codec::has_failed(&error);
                error.to_string()
            })?;
            entry.is_for_harvest();
            codec::has_named(entry.bytes.len());
            self.0.entry.get_or_init(|| Ok(entry));
        }
        self.entry().map_err(String::clone)
    }

    /// Enters the value in the store.
    fn enter(&self, effort: Effort) -> Result<Arc<StoredValue>, CodecError> {
        let what = "serializing a shared value";
        let write = || codec::write_for::<T, T>(what, &self.0.value, effort);
        let (bytes, mentions) = needs::gather(write);
        let entry = store().enter(bytes?, &mentions);
        entry.remember(&self.0);
        Ok(entry)
    }
}

/// Largest size of a value.
const MOST: Effort = Effort::at_most(LARGEST_VALUE as usize);

/// Notes that the bytes which are being serialized or read mention this value, and the values that it mentions in turn.
/// False if no caller gathers such names.
fn note(entry: &Arc<StoredValue>) -> bool {
    for mentioned in entry.mentions.get().into_iter().flatten() {
        note(mentioned);
    }
    needs::note(entry)
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = match codec::most_named() {
            Some(most) => self.entry_within(most).map_err(ser::Error::custom)?,
            None => self.entry().map_err(ser::Error::custom)?,
        };
        if note(entry) {
            // Perhaps this was the last handle, as in the result of a job.
            store().put_in_transit(entry);
        }
        entry.name.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned + Send + Sync + 'static> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shared<T>, D::Error> {
        let name = ValueName::deserialize(deserializer)?;
        let entry = store().get(name).ok_or_else(|| {
            codec::is_absent();
            de::Error::custom(format_args!(
                "the shared value {name:?} is not in this process: its handle can be read only where the value is"
            ))
        })?;
        let read = |bytes: &[u8]| {
            Ok(SharedInner {
                value: codec::read("deserializing a shared value", bytes)?,
                entry: OnceLock::from(Ok(Arc::clone(&entry))),
            })
        };
        let decoded = HeldValue::new(Arc::<StoredValue>::clone(&entry)).decoded(read);
        let decoded = decoded.map_err(|error| {
            de::Error::custom(format_args!(
                "the shared value {name:?} is no {}: {error}",
                std::any::type_name::<T>()
            ))
        })?;
        note(&entry);
        Ok(Shared(decoded))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> AsRef<T> for Shared<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared::new(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.0.value).finish()
    }
}

/// Compares the values, not the handles.
impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        self.0.value == other.0.value
    }
}

impl<T: Eq> Eq for Shared<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        data::store::{PieceOutcome, in_turn},
        job::{Fingerprint, RootName},
        worker::RootKey,
    };

    fn over_the_wire<T: Serialize + DeserializeOwned>(
        value: &T,
    ) -> (Result<T, postcard::Error>, Vec<ValueName>) {
        let (bytes, needs) = needs::gather(|| postcard::to_stdvec(value));
        (
            postcard::from_bytes(&bytes.expect("it can be serialized")),
            needs,
        )
    }

    #[test]
    fn a_handle_travels_as_its_name() {
        let list = Shared::new(vec![1u32; 1000]);
        let bytes = postcard::to_stdvec(&list).expect("a list");
        assert_eq!(bytes, Shared::name(&list).0);
        let (copy, needs) = over_the_wire(&list);
        assert!(Shared::ptr_eq(&list, &copy.expect("the value is here")));
        assert_eq!(needs, [Shared::name(&list)]);
    }

    #[derive(
        Clone,
        Copy,
        PartialEq,
        Debug,
        Serialize,
        serde::Deserialize,
        bytemuck::Pod,
        bytemuck::Zeroable,
    )]
    #[repr(C)]
    struct Complex {
        re: f64,
        im: f64,
    }

    crate::plain!(Complex);

    #[test]
    #[cfg(target_endian = "little")]
    fn plain_data_in_a_value_is_one_piece() {
        let numbers = vec![Complex { re: 1.5, im: 2.5 }; 1000];
        let shared = Shared::new(numbers.clone());
        let name = Shared::name(&shared);
        let (bytes, _) = store().read(name, 0, u64::MAX).expect("it is here");
        assert!(bytes.ends_with(bytemuck::cast_slice(&numbers)));
        assert_eq!(bytes.len(), 16_000 + 4);
        assert_eq!(codec::read::<Vec<Complex>>("", &bytes), Ok(numbers));
    }

    #[test]
    fn a_value_is_named_for_the_harvest_if_it_is_small_enough() {
        let write = |value: &Shared<Vec<u8>>, most| {
            let what = "writing";
            let write = || codec::write(what, value, Effort::keeping(most));
            let (bytes, values) = needs::look(write);
            bytes.map(|_| values)
        };
        let long = Shared::new(vec![1; 1000]);
        write(&long, 500).expect_err("too long to be named");
        let values = write(&long, 2000).expect("named now");
        assert_eq!(
            (values[0].name(), values[0].cost()),
            (Shared::name(&long), 1006)
        );
        write(&long, 500).expect("it has a name");
        // What is inside counts as well.
        let nested = || Shared::new((Shared::new(vec![2u8; 1000]), Shared::new(vec![3u8; 1000])));
        let write = |most| {
            let nested = nested();
            let (bytes, values) = needs::look(|| codec::write("", &nested, Effort::keeping(most)));
            bytes.map(|_| values.len())
        };
        write(1500).expect_err("too much together");
        assert_eq!(write(2500), Ok(3));
        assert_eq!(codec::most_named(), None);
    }

    #[test]
    fn a_held_value_stays_and_so_does_what_comes_from_a_store() {
        let _turn = in_turn();
        let value = Shared::new("held".to_owned());
        let name = Shared::name(&value);
        let held = store().hold(&[name]).expect("it is here");
        drop(value);
        assert!(store().contains(name));
        assert_eq!((held[0].size(), held[0].cost()), (5, 0));
        drop(held);
        assert!(store().hold(&[name]).is_none());
        let root = RootKey {
            pool: 7_100,
            name: RootName {
                number: 1,
                fingerprint: Fingerprint(1),
            },
        };
        let bytes = postcard::to_stdvec("held").expect("a text");
        assert!(!store().put(name, b"another".to_vec(), [root]));
        assert!(store().put(name, bytes, [root]));
        assert!(store().contains(name));
        store().forget_root(root);
        assert!(!store().contains(name));
    }

    #[test]
    fn a_value_in_a_value_is_named_with_it() {
        let nested = || Shared::new((7, Shared::new("inside".to_owned())));
        let name = Shared::name(&nested());
        let mentions = |value| {
            let (bytes, needs) = needs::gather(|| postcard::to_stdvec(&value));
            bytes.expect("it can be serialized");
            needs
        };
        let needs = mentions(nested());
        assert_eq!((needs.len(), needs.last()), (2, Some(&name)));
        // Made here after it has come as bytes.
        let _turn = in_turn();
        let bytes = nested();
        let bytes = postcard::to_stdvec(&*bytes).expect("a pair");
        let root = RootKey {
            pool: 7_101,
            name: RootName {
                number: 1,
                fingerprint: Fingerprint(1),
            },
        };
        assert!(store().put(name, bytes, [root]));
        assert_eq!(mentions(nested()), needs);
        store().forget_root(root);
    }

    #[test]
    fn the_same_value_made_again_has_the_same_name() {
        let make = || Shared::new("the same value made again".to_owned());
        let (one, other) = (make(), make());
        assert_eq!(Shared::name(&one), Shared::name(&other));
        assert!(!Shared::ptr_eq(&one, &other) && one == other);
    }

    #[test]
    fn a_value_is_decoded_once_for_each_type() {
        let _turn = in_turn();
        let bytes = postcard::to_stdvec("decoded once for each type").expect("a text");
        let name = ValueName(*blake3::hash(&bytes).as_bytes());
        let total = bytes.len() as u64;
        assert_eq!(
            store().put_part(name, 0, total, bytes),
            PieceOutcome::Stored
        );
        let read = || postcard::from_bytes::<Shared<String>>(&name.0).expect("a text");
        let (one, other) = (read(), read());
        assert!(Shared::ptr_eq(&one, &other));
        assert_eq!(*one, "decoded once for each type");
        let boxed: Shared<Box<str>> = postcard::from_bytes(&name.0).expect("a text");
        assert_eq!(**boxed, **one);
        let error = postcard::from_bytes::<Shared<Vec<String>>>(&name.0);
        assert!(error.is_err(), "a text is no list of texts");
    }

    #[test]
    fn a_value_that_is_not_here_is_an_error() {
        let name = Shared::name(&Shared::new("gone at once".to_owned()));
        assert!(!store().contains(name));
        let missing = postcard::from_bytes::<Shared<String>>(&name.0);
        assert!(missing.is_err());
        let json = serde_json::to_string(&name).expect("a list of numbers");
        let error = serde_json::from_str::<Shared<String>>(&json).expect_err("it is gone");
        assert!(error.to_string().contains("is not in this process"));
    }

    #[derive(Serialize, serde::Deserialize)]
    struct Outer {
        inner: Shared<String>,
    }

    #[test]
    fn handles_in_values_are_needed_too() {
        let _turn = in_turn();
        let inner = Shared::new("an inner value".to_owned());
        let outer = Shared::new(Outer {
            inner: inner.clone(),
        });
        let both = [Shared::name(&inner), Shared::name(&outer)];
        for _ in 0..2 {
            assert_eq!(over_the_wire(&outer).1, both);
        }
        // The same where it has come from elsewhere, and is sent on.
        let bytes = store().read(both[1], 0, u64::MAX).expect("it is here").0;
        drop(outer);
        store().forget_root(ROOT);
        assert!(!store().contains(both[1]));
        let total = bytes.len() as u64;
        assert_eq!(
            store().put_part(both[1], 0, total, bytes),
            PieceOutcome::Stored
        );
        let outer: Shared<Outer> = postcard::from_bytes(&both[1].0).expect("both are here");
        assert_eq!(over_the_wire(&outer).1, both);
        assert!(Shared::ptr_eq(&outer.inner, &inner));
    }

    const fn root(number: u32) -> RootKey {
        RootKey {
            pool: 7_001,
            name: RootName {
                number,
                fingerprint: Fingerprint(1),
            },
        }
    }

    const ROOT: RootKey = root(0);

    #[derive(Serialize, serde::Deserialize)]
    struct Text(String);

    #[test]
    fn a_pinned_value_stays_and_stays_decoded() {
        let _turn = in_turn();
        let text = Shared::new(Text("pinned".to_owned()));
        let name = Shared::name(&text);
        assert!(store().pin(name, ROOT));
        let place = std::ptr::from_ref(&*text).addr();
        drop(text);
        let text: Shared<Text> = postcard::from_bytes(&name.0).expect("it is pinned");
        assert_eq!(std::ptr::from_ref(&*text).addr(), place);
        drop(text);
        store().forget_root(ROOT);
        assert!(!store().contains(name));
    }

    #[test]
    fn what_travelled_last_waits_to_be_pinned() {
        let _turn = in_turn();
        let name = {
            let result = Shared::new("the result of a job".to_owned());
            assert!(over_the_wire(&result).0.is_ok());
            Shared::name(&result)
        };
        let root = root(1);
        assert!(store().pin(name, root));
        store().forget_root(ROOT);
        let part = store().read(name, 1, 3);
        assert_eq!(part.map(|(bytes, _)| bytes), Some(b"the".to_vec()));
        store().forget_root(root);
        assert!(!store().contains(name));
    }

    #[test]
    fn what_cannot_be_serialized_says_so() {
        #[derive(serde::Deserialize)]
        struct Stubborn;
        impl Serialize for Stubborn {
            fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(ser::Error::custom("never"))
            }
        }
        let stubborn = Shared::new(Stubborn);
        assert!(serde_json::to_string(&stubborn).is_err());
    }
}
