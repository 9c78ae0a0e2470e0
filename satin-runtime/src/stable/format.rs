//! The bytes in a store: frames that only a holder of the credential can make, and batches of results in them.
//!
//! A frame is `length u32 | mac u64 | payload`, little-endian. The mac is the beginning of a BLAKE3 hash, keyed with the
//! credential, over the frame's path, its offset and its payload: so a frame counts in its own place only. The payload
//! begins with its kind: plain, or sealed with XChaCha20-Poly1305.
//!
//! A batch is written by postcard, the same on all processors. Results of children of one job stand together, and
//! the job's id is written as far as it differs from the one before.
//!
//! Decoding never panics. Nothing is decoded before its mac has been found right, and nothing is allocated for a length
//! that a frame merely claims.

use std::{borrow::Cow, fmt, time::Duration};

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305,
    aead::{Aead, Payload},
};
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes;

use crate::job::{
    Answer, Batch, BoundName, Fingerprint, JobId, JobName, Offer, RootName, Saved, StoredFact,
    ValueBytes, ValueName,
};

/// Bytes of a frame before its payload.
const HEADER: usize = 12;

/// Bytes of a sealed payload's nonce. They are random: with 24 of them none is used twice.
const NONCE: usize = 24;

const PLAIN: u8 = 0;
const SEALED: u8 = 1;

/// The longest payload, in bytes. A reader takes a greater length for damage; a writer's buffer is far smaller.
pub const LONGEST: usize = 256 << 20;

/// Whether those who can read the store can read what is in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sealing {
    /// Anybody can read the frame.
    Plain,
    /// The frame can be read with the credential only.
    Sealed,
}

/// The place of a frame. A frame that is moved is no frame any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FramePlace<'p> {
    /// The path of the file.
    pub path: &'p str,
    /// The frame's first byte in the file.
    pub offset: u64,
}

/// Reasons why bytes are no frame, or hold no batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The bytes end in the middle of the frame: its writer died.
    #[error("the data ends in the middle")]
    Truncated,
    /// A length above [`LONGEST`].
    #[error("a frame of {0} bytes, where at most {LONGEST} are allowed")]
    TooLong(u64),
    /// The frame was made with another credential, for another place, or is damaged.
    #[error("the data is damaged, or was written with another credential")]
    Forged,
    /// The frame is in order, and its content is not understood: a later version wrote it.
    #[error("the data cannot be decoded")]
    Malformed,
}

/// The keys of a pool's store, made of its credential.
#[derive(Clone)]
pub struct StoreKeys {
    mac: [u8; 32],
    cipher: XChaCha20Poly1305,
}

impl fmt::Debug for StoreKeys {
    /// Keys are not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKeys")
    }
}

impl StoreKeys {
    /// The keys of those who have this secret.
    #[must_use]
    pub fn derive(secret: &[u8]) -> StoreKeys {
        let seal = blake3::derive_key("satin store seal 1", secret);
        StoreKeys {
            mac: blake3::derive_key("satin store 1", secret),
            cipher: XChaCha20Poly1305::new(&seal.into()),
        }
    }

    /// The content as a frame for that place.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] if no reader would take it.
    pub fn frame(
        &self,
        place: FramePlace<'_>,
        content: &[u8],
        sealing: Sealing,
    ) -> Result<Vec<u8>, FrameError> {
        let mut frame = vec![0; HEADER];
        match sealing {
            Sealing::Plain => {
                frame.push(PLAIN);
                frame.extend_from_slice(content);
            }
            Sealing::Sealed => {
                frame.push(SEALED);
                self.seal(place, content, &mut frame);
            }
        }
        let length = frame.len() - HEADER;
        if length > LONGEST {
            return Err(FrameError::TooLong(length as u64));
        }
        let mac = self.mac(place, &frame[HEADER..]);
        frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
        frame[4..HEADER].copy_from_slice(&mac.to_le_bytes());
        Ok(frame)
    }

    /// The content of the frame that stands in that place, at the beginning of `bytes`, and the length of the frame.
    ///
    /// # Errors
    /// The bytes do not begin with a frame that was made for that place with these keys.
    pub fn open<'b>(
        &self,
        place: FramePlace<'_>,
        bytes: &'b [u8],
    ) -> Result<(Cow<'b, [u8]>, usize), FrameError> {
        let (length, rest) = bytes.split_first_chunk().ok_or(FrameError::Truncated)?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(FrameError::TooLong(length as u64));
        }
        let (mac, rest) = rest.split_first_chunk().ok_or(FrameError::Truncated)?;
        let payload = rest.get(..length).ok_or(FrameError::Truncated)?;
        if u64::from_le_bytes(*mac) != self.mac(place, payload) {
            return Err(FrameError::Forged);
        }
        let content = match payload.split_first() {
            Some((&PLAIN, content)) => Cow::Borrowed(content),
            Some((&SEALED, sealed)) => Cow::Owned(self.unseal(place, sealed)?),
            _ => return Err(FrameError::Malformed),
        };
        Ok((content, HEADER + length))
    }

    /// The batch as a frame for that place.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] if no reader would take it.
    pub fn encode(
        &self,
        place: FramePlace<'_>,
        batch: &Batch,
        sealing: Sealing,
    ) -> Result<Vec<u8>, FrameError> {
        self.frame(place, &batch_bytes(batch), sealing)
    }

    fn mac(&self, place: FramePlace<'_>, payload: &[u8]) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.mac);
        hasher.update(&place_bytes(place)).update(payload);
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }

    fn seal(&self, place: FramePlace<'_>, content: &[u8], frame: &mut Vec<u8>) {
        let nonce: [u8; NONCE] = rand::random();
        let aad = &place_bytes(place);
        let sealed = self
            .cipher
            .encrypt(&nonce.into(), Payload { msg: content, aad });
        frame.extend_from_slice(&nonce);
        frame.extend(sealed.expect("no content is as long as the cipher's limit of 256 GiB"));
    }

    fn unseal(&self, place: FramePlace<'_>, sealed: &[u8]) -> Result<Vec<u8>, FrameError> {
        let (nonce, msg) = sealed
            .split_first_chunk::<NONCE>()
            .ok_or(FrameError::Malformed)?;
        let aad = &place_bytes(place);
        let content = self.cipher.decrypt(nonce.into(), Payload { msg, aad });
        content.map_err(|_| FrameError::Forged)
    }
}

/// The place, so that no two are written alike.
fn place_bytes(place: FramePlace<'_>) -> Vec<u8> {
    let FramePlace { path, offset } = place;
    let length = path.len() as u64;
    [
        &length.to_le_bytes(),
        path.as_bytes(),
        &offset.to_le_bytes(),
    ]
    .concat()
}

/// The batches of a segment, up to the first that is not whole.
#[derive(Debug)]
pub struct Batches<'b> {
    keys: &'b StoreKeys,
    path: &'b str,
    bytes: &'b [u8],
    position: usize,
    failure: Option<FrameError>,
}

impl<'b> Batches<'b> {
    /// The batches in `bytes`, which is the file of that path from its beginning.
    #[must_use]
    pub fn new(keys: &'b StoreKeys, path: &'b str, bytes: &'b [u8]) -> Batches<'b> {
        Batches {
            keys,
            path,
            bytes,
            position: 0,
            failure: None,
        }
    }

    /// The end of the last batch that was whole, in bytes from the beginning.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position as u64
    }

    /// The reason why there are no more batches although there are more bytes.
    #[must_use]
    pub fn torn(&self) -> Option<FrameError> {
        self.failure
    }

    fn read(&self) -> Result<(Batch, usize), FrameError> {
        let place = FramePlace {
            path: self.path,
            offset: self.position(),
        };
        let (content, length) = self.keys.open(place, &self.bytes[self.position..])?;
        Ok((read_batch(&content)?, length))
    }
}

impl Iterator for Batches<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if self.failure.is_some() || self.position == self.bytes.len() {
            return None;
        }
        match self.read() {
            Ok((batch, length)) => {
                self.position += length;
                Some(batch)
            }
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }
}

/// A batch as postcard writes it.
#[derive(Serialize, Deserialize)]
struct WrittenBatch<'b> {
    #[serde(borrow)]
    values: Vec<(ValueName, &'b Bytes)>,
    #[serde(borrow)]
    bounds: Vec<(RootName, BoundName, &'b Bytes)>,
    #[serde(borrow)]
    families: Vec<Family<'b>>,
}

/// Results of children of one job.
#[derive(Serialize, Deserialize)]
struct Family<'b> {
    root: RootName,
    /// Bytes of the parent's id that are the same as in the family before.
    shared: u32,
    /// The other bytes of the parent's id.
    #[serde(borrow)]
    parent: &'b Bytes,
    #[serde(borrow)]
    children: Vec<Child<'b>>,
}

/// The last index of the id, the fingerprint, the time that the job took in milliseconds, the result, and the shared values that it
/// mentions.
type Child<'b> = (u32, Fingerprint, u32, &'b Bytes, Cow<'b, [ValueName]>);

/// The content of a batch's frame.
#[doc(hidden)]
#[must_use]
pub fn batch_bytes(batch: &Batch) -> Vec<u8> {
    let mut kin: Vec<Kinsman<'_>> = batch.facts.iter().filter_map(Kinsman::of).collect();
    kin.sort_by(|one, other| one.place().cmp(&other.place()));
    let mut before: &[u8] = &[];
    let mut families = Vec::new();
    for kin in kin.chunk_by(Kinsman::is_sibling_of) {
        let parent = kin[0].parent;
        let shared = common_prefix(before, parent);
        families.push(Family {
            root: kin[0].root,
            shared: shared as u32,
            parent: Bytes::new(&parent[shared..]),
            children: kin.iter().map(|kinsman| kinsman.child.clone()).collect(),
        });
        before = parent;
    }
    let written = WrittenBatch {
        values: batch.values.iter().map(written_value).collect(),
        bounds: batch.offers.iter().map(written_bound).collect(),
        families,
    };
    postcard::to_stdvec(&written).expect("memory takes all that is written")
}

fn written_value(value: &ValueBytes) -> (ValueName, &Bytes) {
    (value.name, Bytes::new(&value.bytes))
}

fn written_bound(offer: &Offer) -> (RootName, BoundName, &Bytes) {
    (offer.root, offer.bound, Bytes::new(&offer.value))
}

/// A result on its way into a family.
struct Kinsman<'b> {
    root: RootName,
    parent: &'b [u8],
    child: Child<'b>,
}

impl<'b> Kinsman<'b> {
    /// `None` for what is not written.
    fn of(fact: &'b StoredFact) -> Option<Kinsman<'b>> {
        let Answer::Result {
            bytes,
            needs,
            kept: None,
        } = &fact.saved.answer
        else {
            return None;
        };
        let JobName { id, fingerprint } = &fact.saved.name;
        let mut parent = id.clone();
        let index = parent.pop()?;
        let millis = u32::try_from(fact.took.as_millis()).unwrap_or(u32::MAX);
        let (bytes, needs) = (Bytes::new(bytes), Cow::Borrowed(&needs[..]));
        Some(Kinsman {
            root: fact.saved.root_name(),
            // The id begins with the bytes of its parent's.
            parent: &id.as_bytes()[..parent.as_bytes().len()],
            child: (index, *fingerprint, millis, bytes, needs),
        })
    }

    /// Families in the order of their ids; within one, children in that of theirs.
    fn place(&self) -> (&'b [u8], RootName, u32, Fingerprint) {
        (self.parent, self.root, self.child.0, self.child.1)
    }

    fn is_sibling_of(&self, other: &Kinsman<'_>) -> bool {
        self.parent == other.parent && self.root == other.root
    }
}

fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

/// The batch that is the content of a frame.
///
/// # Errors
/// The content is no batch.
#[doc(hidden)]
pub fn read_batch(content: &[u8]) -> Result<Batch, FrameError> {
    let Ok((written, [])) = postcard::take_from_bytes::<WrittenBatch<'_>>(content) else {
        return Err(FrameError::Malformed);
    };
    let offer = |(root, bound, value): (_, _, &Bytes)| Offer {
        bound,
        root,
        value: value.to_vec(),
    };
    let value = |(name, bytes): (_, &Bytes)| ValueBytes {
        name,
        bytes: bytes.to_vec(),
    };
    let mut batch = Batch {
        values: written.values.into_iter().map(value).collect(),
        offers: written.bounds.into_iter().map(offer).collect(),
        facts: Vec::new(),
    };
    let mut parent = Vec::new();
    for family in &written.families {
        let shared = family.shared as usize;
        if shared > parent.len() {
            return Err(FrameError::Malformed);
        }
        parent.truncate(shared);
        parent.extend_from_slice(family.parent);
        family.read(&parent, &mut batch.facts)?;
    }
    Ok(batch)
}

impl Family<'_> {
    fn read(&self, parent: &[u8], facts: &mut Vec<StoredFact>) -> Result<(), FrameError> {
        let parent = JobId::try_from(parent.to_vec()).map_err(|_| FrameError::Malformed)?;
        for (index, fingerprint, millis, answer, needs) in &self.children {
            let id = parent.child(*index);
            if id.root_number() != self.root.number {
                return Err(FrameError::Malformed);
            }
            let saved = Saved {
                name: JobName::new(id, *fingerprint),
                root: self.root.fingerprint,
                answer: Answer::result(answer.to_vec().into(), needs.to_vec()),
            };
            facts.push(StoredFact {
                saved,
                took: Duration::from_millis((*millis).into()),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const PATH: &str = "p/0000000000000001/log/0-1-0/00000000";

    fn keys() -> StoreKeys {
        StoreKeys::derive(b"secret")
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        vec(any::<u8>(), 0..40)
    }

    fn fact() -> impl Strategy<Value = StoredFact> {
        let path = vec(prop_oneof![0..3u32, 246..250u32, any::<u32>()], 1..6);
        let hashes = (0..3u64, any::<u64>());
        let needs = vec(any::<[u8; 32]>().prop_map(ValueName), 0..2);
        (path, hashes, bytes(), needs, any::<u32>()).prop_map(
            |(path, (root, fingerprint), bytes, needs, millis)| StoredFact {
                saved: Saved {
                    name: JobName::new(path.into_iter().collect(), Fingerprint(fingerprint)),
                    root: Fingerprint(root),
                    answer: Answer::result(bytes.into(), needs),
                },
                took: Duration::from_millis(millis.into()),
            },
        )
    }

    fn offer() -> impl Strategy<Value = Offer> {
        (any::<(u64, u32, u64)>(), bytes()).prop_map(|((bound, number, root), value)| Offer {
            bound: BoundName(bound),
            root: RootName {
                number,
                fingerprint: Fingerprint(root),
            },
            value,
        })
    }

    fn batch() -> impl Strategy<Value = Batch> {
        let value = (any::<[u8; 32]>(), bytes()).prop_map(|(name, bytes)| ValueBytes {
            name: ValueName(name),
            bytes,
        });
        let parts = (vec(value, 0..3), vec(offer(), 0..4), vec(fact(), 0..12));
        parts.prop_map(|(values, offers, facts)| {
            sorted(Batch {
                values,
                offers,
                facts,
            })
        })
    }

    /// Facts come back in the order of families.
    fn sorted(mut batch: Batch) -> Batch {
        let place = |fact: &StoredFact| {
            let Answer::Result { bytes, .. } = fact.saved.answer.clone() else {
                panic!("only results are made");
            };
            let needs = fact.needs().to_vec();
            (
                fact.saved.name.clone(),
                fact.saved.root,
                fact.took,
                bytes,
                needs,
            )
        };
        batch.facts.sort_by_key(place);
        batch
    }

    /// The batches as a segment, and where each of them ends.
    fn segment(batches: &[Batch], sealing: Sealing) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for batch in batches {
            let place = FramePlace {
                path: PATH,
                offset: bytes.len() as u64,
            };
            bytes.extend(keys().encode(place, batch, sealing).expect("short enough"));
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn read(bytes: &[u8]) -> (Vec<Batch>, Option<FrameError>) {
        let keys = keys();
        let mut batches = Batches::new(&keys, PATH, bytes);
        let read = batches.by_ref().map(sorted).collect();
        (read, batches.torn())
    }

    fn sealing() -> impl Strategy<Value = Sealing> {
        prop_oneof![Just(Sealing::Plain), Just(Sealing::Sealed)]
    }

    proptest! {
        #[test]
        fn batches_come_back_whole(batches in vec(batch(), 0..4), sealing in sealing()) {
            let (bytes, ends) = segment(&batches, sealing);
            let keys = keys();
            let mut reader = Batches::new(&keys, PATH, &bytes);
            let got: Vec<Batch> = reader.by_ref().map(sorted).collect();
            prop_assert_eq!(got, batches);
            prop_assert_eq!((reader.torn(), reader.position()), (None, ends.last().map_or(0, |end| *end as u64)));
        }

        #[test]
        fn of_a_torn_segment_the_batches_before_come_back(batches in vec(batch(), 1..4), sealing in sealing(), cut in any::<prop::sample::Index>()) {
            let (bytes, ends) = segment(&batches, sealing);
            let cut = cut.index(bytes.len());
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let (got, torn) = read(&bytes[..cut]);
            prop_assert_eq!(&got[..], &batches[..whole]);
            let is_between = cut == 0 || ends.contains(&cut);
            prop_assert_eq!(torn, (!is_between).then_some(FrameError::Truncated));
        }

        #[test]
        fn a_byte_that_flips_costs_its_batch_and_those_behind(batches in vec(batch(), 1..4), sealing in sealing(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
            let (mut bytes, ends) = segment(&batches, sealing);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let whole = ends.iter().filter(|end| **end <= at).count();
            let (got, torn) = read(&bytes);
            prop_assert_eq!(&got[..], &batches[..whole]);
            prop_assert!(torn.is_some());
        }

        #[test]
        fn noise_does_no_harm(noise in vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(read(&noise).0, vec![]);
            if let Ok(batch) = read_batch(&noise) {
                let again = read_batch(&batch_bytes(&batch)).expect("what was read can be written");
                prop_assert_eq!(sorted(again), sorted(batch));
            }
        }

        #[test]
        fn a_batch_that_is_cut_or_goes_on_is_none(batch in batch(), cut in any::<prop::sample::Index>()) {
            let whole = batch_bytes(&batch);
            prop_assert_eq!(read_batch(&whole[..cut.index(whole.len())]), Err(FrameError::Malformed));
            prop_assert_eq!(read_batch(&[&whole[..], &[0]].concat()), Err(FrameError::Malformed));
        }
    }

    fn result(path: &[u32], answer: Answer) -> StoredFact {
        StoredFact {
            saved: Saved {
                name: JobName::new(path.iter().copied().collect(), Fingerprint(u64::MAX)),
                root: Fingerprint(1),
                answer,
            },
            took: Duration::from_millis(7),
        }
    }

    fn answer(bytes: &[u8]) -> Answer {
        Answer::result(bytes.into(), Vec::new())
    }

    #[test]
    fn a_frame_counts_in_its_place_and_with_its_keys_only() {
        for sealing in [Sealing::Plain, Sealing::Sealed] {
            let place = FramePlace {
                path: "a",
                offset: 7,
            };
            let frame = keys().frame(place, b"content", sealing).expect("short");
            let (content, length) = keys().open(place, &frame).expect("a frame");
            assert_eq!((&*content, length), (&b"content"[..], frame.len()));
            let elsewhere = FramePlace { offset: 8, ..place };
            assert_eq!(keys().open(elsewhere, &frame), Err(FrameError::Forged));
            let elsewhere = FramePlace { path: "b", ..place };
            assert_eq!(keys().open(elsewhere, &frame), Err(FrameError::Forged));
            let others = StoreKeys::derive(b"another secret");
            assert_eq!(others.open(place, &frame), Err(FrameError::Forged));
        }
    }

    #[test]
    fn only_what_is_sealed_cannot_be_read_without_the_credential() {
        let place = FramePlace {
            path: "a",
            offset: 0,
        };
        let text = b"the salaries of all employees";
        let shows = |sealing| {
            let frame = keys().frame(place, text, sealing).expect("short");
            frame.windows(text.len()).any(|window| window == text)
        };
        assert!(shows(Sealing::Plain) && !shows(Sealing::Sealed));
    }

    #[test]
    fn a_length_above_the_limit_is_refused() {
        let bytes = [0xff; 40];
        let error = read(&bytes).1;
        assert_eq!(error, Some(FrameError::TooLong(u32::MAX.into())));
        let place = FramePlace {
            path: "a",
            offset: 0,
        };
        let long = keys().frame(place, &vec![0; LONGEST], Sealing::Plain);
        assert_eq!(long, Err(FrameError::TooLong(LONGEST as u64 + 1)));
    }

    #[test]
    fn only_results_are_written() {
        let kept = result(&[0, 1], answer(b"kept"));
        let batch = Batch {
            facts: vec![
                result(&[0, 2], Answer::Panicked("no".into())),
                kept.clone(),
                result(&[0, 4], Answer::Aborted),
            ],
            ..Batch::default()
        };
        let read = read_batch(&batch_bytes(&batch)).expect("a batch");
        assert_eq!(read.facts, [kept]);
    }

    /// What is written of a result beside its bytes: the last index, the fingerprint, the time, the length.
    #[test]
    fn siblings_share_their_parents_id() {
        let path: Vec<u32> = (0..1000).collect();
        let of = |count: u32| {
            let child = |index| result(&[&path[..], &[index]].concat(), answer(b"1"));
            let batch = Batch {
                facts: (0..count).map(child).collect(),
                ..Batch::default()
            };
            batch_bytes(&batch).len()
        };
        assert!(of(1) > 1000);
        assert!(of(101) - of(1) < 100 * 16, "{}", of(101) - of(1));
    }

    #[test]
    fn results_of_one_root_job_do_not_become_those_of_another() {
        let kin = |root| StoredFact {
            saved: Saved {
                root: Fingerprint(root),
                ..result(&[0, 1], answer(&[root as u8])).saved
            },
            took: Duration::ZERO,
        };
        let batch = Batch {
            facts: vec![kin(1), kin(2)],
            ..Batch::default()
        };
        assert_eq!(read_batch(&batch_bytes(&batch)), Ok(batch));
    }
}
