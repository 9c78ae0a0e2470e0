//! The bytes of arguments and of results, which nobody looks into on their way: shared by all who hold them, so that a large
//! value is copied neither into the message that carries it, nor out of it, nor by who keeps it until it has arrived.
//!
//! On the wire a payload is a byte string. Two parties help to save the copies: the *writer* of messages, which can take the
//! payload itself where serde has only a slice of it to show (`written`), and the *reader*, which says what the bytes that
//! it reads are a part of (`reading`), so that a payload becomes a part of the same.

use std::{
    cell::{Cell, RefCell},
    fmt,
    ops::Deref,
};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use super::room;

/// Payloads of at least so many bytes are shared with messages. Too small: messages are written in many pieces, and a short
/// payload keeps them in memory. Too large: large values are copied once more.
pub const SHARED: usize = 64 << 10;

/// The least part that a payload must have of what it was read from, to stay a part of it; a shorter one is copied. Too small: one
/// payload of many keeps all of them in memory. Too large: payloads that come in pairs are copied.
const LEAST_PART: f64 = 0.4;

/// The bytes of arguments, or of a result.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Payload(Bytes);

thread_local! {
    /// The payload that is being serialized, for a writer that can take it.
    static WRITTEN: RefCell<Option<Bytes>> = const { RefCell::new(None) };
    /// There is such a writer on this thread.
    static IS_TAKEN: Cell<bool> = const { Cell::new(false) };
    /// All of the bytes that are being read.
    static READ: RefCell<Option<Bytes>> = const { RefCell::new(None) };
}

/// Restores what was there before, also if there is a panic.
struct RestoreCell<T: 'static>(
    &'static std::thread::LocalKey<RefCell<Option<T>>>,
    Option<T>,
);

impl<T> Drop for RestoreCell<T> {
    fn drop(&mut self) {
        let before = self.1.take();
        self.0.with_borrow_mut(|now| *now = before);
    }
}

/// Runs `write`, in which a writer asks for payloads by [`written`].
pub(crate) fn sharing<R>(write: impl FnOnce() -> R) -> R {
    let _before = RestoreCell(&WRITTEN, WRITTEN.take());
    let was_taken = IS_TAKEN.replace(true);
    let done = write();
    IS_TAKEN.set(was_taken);
    done
}

/// The payload that these bytes are all of, if one is just being serialized, is large, and there is a writer for it.
pub(crate) fn written(bytes: &[u8]) -> Option<Bytes> {
    if bytes.len() < SHARED {
        return None;
    }
    let payload = WRITTEN.take()?;
    (payload.as_ptr() == bytes.as_ptr() && payload.len() == bytes.len()).then_some(payload)
}

/// Runs `read`, which reads from these bytes: large payloads become parts of them.
pub(crate) fn reading<R>(bytes: &Bytes, read: impl FnOnce() -> R) -> R {
    let _before = RestoreCell(&READ, READ.replace(Some(bytes.clone())));
    read()
}

/// The same bytes as a part of what is being read on this thread; `None` if they are not, or few, or less than the part `least` of it.
pub(crate) fn part(bytes: &[u8], least: f64) -> Option<Bytes> {
    if bytes.len() < SHARED {
        return None;
    }
    READ.with_borrow(|all| {
        let all = all.as_ref()?;
        let start = bytes.as_ptr().addr().checked_sub(all.as_ptr().addr())?;
        let end = start.checked_add(bytes.len())?;
        let is_part = end <= all.len() && bytes.len() as f64 >= least * all.len() as f64;
        is_part.then(|| all.slice(start..end))
    })
}

impl Payload {
    /// The bytes, to be shared.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload(room::share(bytes))
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Payload {
        Payload(Bytes::copy_from_slice(bytes))
    }
}

impl FromIterator<u8> for Payload {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Payload {
        Payload(bytes.into_iter().collect())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.len() >= SHARED && IS_TAKEN.get() {
            WRITTEN.set(Some(self.0.clone()));
        }
        to.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Payload, D::Error> {
        from.deserialize_byte_buf(PayloadVisitor)
    }
}

struct PayloadVisitor;

impl Visitor<'_> for PayloadVisitor {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Payload, E> {
        Ok(part(bytes, LEAST_PART).map_or_else(|| bytes.into(), Payload))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Payload, E> {
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_payload_is_a_part_of_what_it_is_read_from() {
        let payload = Payload::from(vec![7; SHARED]);
        let bytes = Bytes::from(postcard::to_stdvec(&payload).expect("written"));
        let read = || postcard::from_bytes::<Payload>(&bytes).expect("read");
        let alone = read();
        let shared = reading(&bytes, read);
        assert!(shared == payload && alone == payload);
        let all = bytes.as_ptr_range();
        assert!(all.contains(&shared.as_ptr()) && !all.contains(&alone.as_ptr()));
    }

    #[test]
    fn a_short_payload_does_not_keep_what_it_is_read_from() {
        let payloads = vec![Payload::from(vec![7; SHARED]); 4];
        let bytes = Bytes::from(postcard::to_stdvec(&payloads).expect("written"));
        let read: Vec<Payload> = reading(&bytes, || postcard::from_bytes(&bytes)).expect("read");
        assert_eq!(read, payloads);
        assert!(!bytes.as_ptr_range().contains(&read[0].as_ptr()));
    }

    #[test]
    fn a_writer_gets_the_payload_itself_and_nothing_else() {
        let payload = Payload::from(vec![7; SHARED]);
        let write = || drop(postcard::to_stdvec(&payload).expect("written"));
        write();
        assert_eq!(written(&payload), None, "there was no writer");
        let taken = sharing(|| {
            write();
            let other = vec![7; SHARED];
            let wrong = written(&other);
            write();
            (wrong, written(&payload))
        });
        assert_eq!(taken, (None, Some(payload.0.clone())));
        assert_eq!(written(&payload), None);
    }
}
