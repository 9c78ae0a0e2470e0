//! The shared values that this process has, as bytes, by name.
//!
//! A value lives as long as a handle of it does, or a root job for which it is pinned. Data that jobs borrow by name, as tasks of flows do, live at
//! home as long as who lends them; elsewhere those are kept that were borrowed last. Bytes that other nodes may be
//! about to fetch, or that have just come, and that are not pinned yet are *in transit*: they live until they are pinned,
//! or until any root job is over. Data that have come for a job which will borrow them live until it has done so, or its own root job is over.
//! Should that be too early, they are fetched once more, or the job that made them is done again.

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use super::roots;
use crate::{
    job::{HeldValue, ValueName, codec::CodecError, needs},
    worker::RootKey,
};

/// No shared value takes more bytes: making a larger one travel is an error, and what claims to be larger is not
/// accepted.
pub const LARGEST_VALUE: u64 = 1 << 30;

/// The store of this process.
pub fn store() -> &'static Store {
    static STORE: LazyLock<Store> = LazyLock::new(|| {
        needs::kept_by(needs::Keeper {
            find: |name| Some(HeldValue::new(store().get(name)?)),
            enter: |bytes, mentions| {
                let mentions: Vec<ValueName> = mentions.iter().map(HeldValue::name).collect();
                HeldValue::new(store().enter(bytes, &mentions))
            },
        });
        Store::default()
    });
    &STORE
}

/// Shared values by name. There is one, [`store()`], for all pools of the process.
#[derive(Default)]
pub struct Store {
    values: Mutex<StoredValues>,
    arriving: Mutex<HashMap<ValueName, Arriving>>,
}

#[derive(Default)]
struct StoredValues {
    entries: HashMap<ValueName, Weak<StoredValue>>,
    pinned: BTreeMap<RootKey, HashMap<ValueName, Pin>>,
    /// With the root job of the jobs that wait for it, if they borrow it.
    in_transit: HashMap<ValueName, (Arc<StoredValue>, Option<RootKey>)>,
    /// Parts of results that are kept here for who owns their jobs, each as often as it was made.
    kept: BTreeMap<RootKey, HashMap<ValueName, (Pin, u32)>>,
    recent: Recent,
}

/// Values that jobs have borrowed here one after the other, as the tasks of flows do: those of the last ones are kept.
struct Recent {
    /// By the number of the last job that borrowed it.
    values: BTreeMap<u64, (RootKey, Pin)>,
    numbers: HashMap<ValueName, u64>,
    next: u64,
    bytes: usize,
    /// Bytes for which there is room; the node says how many.
    room: usize,
}

/// So many are kept however large they are: a job needs all that it borrows at a time. Too few: jobs that borrow much are refused. Too
/// many: memory.
const LEAST_RECENT: usize = 16;

impl Default for Recent {
    fn default() -> Recent {
        Recent {
            values: BTreeMap::new(),
            numbers: HashMap::new(),
            next: 0,
            bytes: 0,
            room: usize::MAX,
        }
    }
}

impl Recent {
    /// A job borrows the value. Those that are not kept any more are returned.
    fn note(&mut self, root: RootKey, pin: Pin) -> Vec<Pin> {
        let mut gone: Vec<Pin> = self.remove(pin.0.name).into_iter().collect();
        self.bytes += pin.0.bytes.len();
        self.numbers.insert(pin.0.name, self.next);
        self.values.insert(self.next, (root, pin));
        self.next += 1;
        while self.bytes > self.room
            && self.values.len() > LEAST_RECENT
            && let Some((_, (_, pin))) = self.values.pop_first()
        {
            self.bytes -= pin.0.bytes.len();
            self.numbers.remove(&pin.0.name);
            gone.push(pin);
        }
        gone
    }

    fn remove(&mut self, name: ValueName) -> Option<Pin> {
        let number = self.numbers.remove(&name)?;
        let (_, pin) = self.values.remove(&number)?;
        self.bytes -= pin.0.bytes.len();
        Some(pin)
    }

    /// Those of root jobs that are over.
    fn remove_all(&mut self, is_over: impl Fn(&RootKey) -> bool) -> Vec<Pin> {
        let over = self.values.values().filter(|(root, _)| is_over(root));
        let over: Vec<ValueName> = over.map(|(_, pin)| pin.0.name).collect();
        over.into_iter()
            .filter_map(|name| self.remove(name))
            .collect()
    }
}

/// The outcome of a piece that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceOutcome {
    /// The piece is kept; others are missing.
    More {
        /// No other piece was there.
        is_first: bool,
    },
    /// The value is complete.
    Stored,
    /// The pieces do not make up what the name says, or say so themselves; all of them have been dropped.
    Corrupt,
}

impl Store {
    /// How many values are here, and the bytes of them.
    #[must_use]
    pub fn held(&self) -> (u64, u64) {
        let values = lock(&self.values);
        let here = values.entries.values().filter_map(Weak::upgrade);
        here.fold((0, 0), |(count, bytes), value| {
            (count + 1, bytes + value.bytes.len() as u64)
        })
    }

    /// Is the value here?
    pub fn contains(&self, name: ValueName) -> bool {
        self.get(name).is_some()
    }

    /// The number of the value's bytes, if it is here.
    pub fn size_of(&self, name: ValueName) -> Option<u64> {
        Some(self.get(name)?.bytes.len() as u64)
    }

    /// At most `length` bytes of the value from `offset` on, and the number of bytes that it has in all; `None` if they
    /// are not here. Of a value that is still arriving the pieces that have come can be read.
    pub fn read(&self, name: ValueName, offset: u64, length: u64) -> Option<(Vec<u8>, u64)> {
        let read = |entry: Arc<StoredValue>| {
            let bytes = slice(&entry.bytes, offset, length);
            (bytes.to_vec(), entry.bytes.len() as u64)
        };
        if let Some(entry) = self.get(name) {
            return Some(read(entry));
        }
        let arriving = lock(&self.arriving);
        match arriving.get(&name) {
            Some(value) => Some((value.read(offset, length)?.to_vec(), value.total)),
            // Its last piece may have come since.
            None => self.get(name).map(read),
        }
    }

    /// Keeps a piece of a value that comes from elsewhere. Pieces may come in any order, and more than once.
    pub fn put_part(
        &self,
        name: ValueName,
        offset: u64,
        total: u64,
        bytes: Vec<u8>,
    ) -> PieceOutcome {
        let mut all = lock(&self.arriving);
        if self.contains(name) {
            all.remove(&name);
            return PieceOutcome::Stored;
        }
        let is_first = !all.contains_key(&name);
        let arriving = all.entry(name).or_insert_with(|| Arriving::new(total));
        if !arriving.accepts(offset, total, bytes.len() as u64) {
            all.remove(&name);
            return PieceOutcome::Corrupt;
        }
        arriving.put(offset, bytes);
        if !arriving.is_complete() {
            return PieceOutcome::More { is_first };
        }
        let Some(arrived) = all.remove(&name) else {
            unreachable!("it has just been there");
        };
        if arrived.hasher.finalize().as_bytes() != &name.0 {
            return PieceOutcome::Corrupt;
        }
        let entry = self.insert_whole(name, arrived.start, None);
        // Only now: who reads finds the value in one of the two places.
        drop(all);
        self.put_in_transit(&entry);
        PieceOutcome::Stored
    }

    /// Drops the pieces of a value that is not whole: no node will bring the others.
    pub fn drop_pieces(&self, name: ValueName) {
        drop(lock(&self.arriving).remove(&name));
    }

    /// Keeps a value that comes as a whole as long as these root jobs are not over. False if the bytes do not have that name.
    pub fn put(
        &self,
        name: ValueName,
        bytes: Vec<u8>,
        roots: impl IntoIterator<Item = RootKey>,
    ) -> bool {
        if blake3::hash(&bytes).as_bytes() != &name.0 {
            return false;
        }
        let _entry = self.insert(name, bytes, None);
        for root in roots {
            self.pin(name, root);
        }
        true
    }

    /// Holds these values, unless one of them is not here.
    pub fn hold(&self, names: &[ValueName]) -> Option<Vec<needs::HeldValue>> {
        let hold = |name: &ValueName| Some(needs::HeldValue::new(self.get(*name)?));
        names.iter().map(hold).collect()
    }

    /// Keeps the value as long as this root job is not over. False if it is not here.
    pub fn pin(&self, name: ValueName, root: RootKey) -> bool {
        let Some(entry) = self.get(name) else {
            return false;
        };
        if roots::is_forgotten(root) {
            return true; // nobody would ever say again that it is over
        }
        let pin = Pin::new(entry);
        let mut values = lock(&self.values);
        let before = values.pinned.entry(root).or_default().insert(name, pin);
        let transit = values.in_transit.remove(&name);
        // Destructors of dropped values may look into the books themselves.
        drop(values);
        drop((before, transit));
        true
    }

    /// So many bytes are for values that jobs have borrowed here last.
    pub fn set_recent_room(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        lock(&self.values).recent.room = bytes;
    }

    /// A job of this root job borrows the value: it is kept as one of those that were borrowed last. False if it is not here.
    pub fn keep_recent(&self, name: ValueName, root: RootKey) -> bool {
        let Some(entry) = self.get(name) else {
            return false;
        };
        if roots::is_forgotten(root) {
            return true; // as for `pin`
        }
        let pin = Pin::new(entry);
        let mut values = lock(&self.values);
        let transit = values.in_transit.remove(&name);
        let gone = values.recent.note(root, pin);
        // Destructors of dropped values may look into the books themselves.
        drop(values);
        drop((transit, gone));
        true
    }

    /// Jobs of this root job that wait for the value will borrow it: it is kept until it [has been borrowed](Store::borrowed). False if it is
    /// not here.
    pub fn keep_until_borrowed(&self, name: ValueName, root: RootKey) -> bool {
        let Some(entry) = self.get(name) else {
            return false;
        };
        if !roots::is_forgotten(root) {
            let mut values = lock(&self.values);
            values.in_transit.insert(name, (entry, Some(root)));
        }
        true
    }

    /// No job waits for these any more: they are kept as those that were borrowed last.
    pub fn borrowed(&self, names: &[ValueName]) {
        for name in names {
            let of = lock(&self.values)
                .in_transit
                .get(name)
                .and_then(|(_, of)| *of);
            if let Some(root) = of {
                self.keep_recent(*name, root);
            }
        }
    }

    /// Keeps a part of a result for the owner of the job that has made it, until the owner can do without it, or the root job is over.
    pub fn keep(&self, name: ValueName, root: RootKey) {
        let Some(entry) = self.get(name) else { return };
        if roots::is_forgotten(root) {
            return; // as for `pin`
        }
        let pin = Pin::new(entry);
        let mut values = lock(&self.values);
        let kept = values.kept.entry(root).or_default();
        let mut other = None;
        match kept.get_mut(&name) {
            Some((_, times)) => {
                *times += 1;
                other = Some(pin);
            }
            None => drop(kept.insert(name, (pin, 1))),
        }
        drop(values);
        drop(other);
    }

    /// The owner can do without these, each of which was kept for it once.
    pub fn drop_kept(&self, names: &[ValueName]) {
        let mut gone = Vec::new();
        let mut values = lock(&self.values);
        for name in names {
            let mut all = values.kept.iter_mut();
            let Some((root, kept)) = all.find(|(_, kept)| kept.contains_key(name)) else {
                continue;
            };
            let root = *root;
            if let Some((_, times)) = kept.get_mut(name)
                && *times > 1
            {
                *times -= 1;
            } else if let Some((pin, _)) = kept.remove(name) {
                // Jobs here may borrow it still.
                gone.extend(values.recent.note(root, pin));
            }
        }
        values.kept.retain(|_, kept| !kept.is_empty());
        // Destructors of dropped values may look into the books themselves.
        drop(values);
        drop(gone);
    }

    /// The root job is over: values that were kept for it alone go; if it is a root job of `main`, so do the values that
    /// were kept for those before it.
    pub fn forget_root(&self, root: RootKey) {
        let mut values = lock(&self.values);
        let is_over = |other: &RootKey, _: &mut _| root.ends(*other);
        let pinned: Vec<_> = values.pinned.extract_if(.., is_over).collect();
        let kept = values.kept.extract_if(.., |other, _| root.ends(*other));
        let kept: Vec<_> = kept.collect();
        let is_over =
            |_: &ValueName, (_, of): &mut (_, Option<RootKey>)| of.is_none_or(|of| root.ends(of));
        let in_transit: Vec<_> = values.in_transit.extract_if(is_over).collect();
        let recent = values.recent.remove_all(|other| root.ends(*other));
        drop(values);
        drop((pinned, in_transit, kept, recent));
    }

    /// Is any value kept for some root job, so that a root job that is over may let some go?
    pub fn keeps_any(&self) -> bool {
        let values = lock(&self.values);
        !(values.pinned.is_empty()
            && values.kept.is_empty()
            && values.in_transit.is_empty()
            && values.recent.values.is_empty())
    }

    pub(super) fn get(&self, name: ValueName) -> Option<Arc<StoredValue>> {
        lock(&self.values).entries.get(&name)?.upgrade()
    }

    /// The values of these names, as far as they are here.
    pub(super) fn all(&self, names: &[ValueName]) -> Vec<Arc<StoredValue>> {
        names.iter().filter_map(|name| self.get(*name)).collect()
    }

    /// Enters a value that was made here, or finds it: these are the names of the values that it mentions.
    pub(super) fn enter(&self, mut bytes: Vec<u8>, mentions: &[ValueName]) -> Arc<StoredValue> {
        bytes.shrink_to_fit(); // they stay for as long as the value
        let name = ValueName(*blake3::hash(&bytes).as_bytes());
        self.insert(name, bytes, Some(self.all(mentions)))
    }

    /// Enters a value, or finds it. The values that it mentions are known if it was made here, else once it has been
    /// decoded.
    pub(super) fn insert(
        &self,
        name: ValueName,
        bytes: Vec<u8>,
        mentions: Option<Vec<Arc<StoredValue>>>,
    ) -> Arc<StoredValue> {
        let entry = self.insert_whole(name, bytes, mentions);
        // Pieces that came before it was made here.
        drop(lock(&self.arriving).remove(&name));
        entry
    }

    /// The same for a value of which no pieces are here.
    fn insert_whole(
        &self,
        name: ValueName,
        bytes: Vec<u8>,
        mentions: Option<Vec<Arc<StoredValue>>>,
    ) -> Arc<StoredValue> {
        let fresh = Arc::new(StoredValue {
            name,
            bytes,
            mentions: mentions.map_or_else(OnceLock::new, OnceLock::from),
            decoded: Mutex::default(),
            pins: AtomicUsize::new(0),
            is_for_harvest: AtomicBool::new(false),
        });
        let mut values = lock(&self.values);
        let known = values.entries.get(&name).and_then(Weak::upgrade);
        if let Some(known) = &known {
            // It may have come as bytes.
            if let Some(mentions) = fresh.mentions.get() {
                known.mentions.get_or_init(|| mentions.clone());
            }
        } else {
            values.entries.insert(name, Arc::downgrade(&fresh));
        }
        drop(values);
        known.unwrap_or(fresh)
    }

    pub(super) fn put_in_transit(&self, entry: &Arc<StoredValue>) {
        let mut values = lock(&self.values);
        let is_pinned = values
            .pinned
            .values()
            .any(|names| names.contains_key(&entry.name));
        if !is_pinned {
            let entry = (Arc::clone(entry), None);
            values.in_transit.entry(entry.0.name).or_insert(entry);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value in the store, as bytes.
pub(super) struct StoredValue {
    pub(super) name: ValueName,
    pub(super) bytes: Vec<u8>,
    /// The values whose handles are in this value: a node that gets it will want those.
    pub(super) mentions: OnceLock<Vec<Arc<StoredValue>>>,
    decoded: Mutex<Decoded>,
    /// Changed while `decoded` is locked.
    pins: AtomicUsize,
    /// It was entered because a result that mentions it is kept.
    is_for_harvest: AtomicBool,
}

/// The values that the bytes have been decoded to, once for each type.
#[derive(Default)]
struct Decoded {
    values: HashMap<TypeId, Weak<dyn Any + Send + Sync>>,
    /// As long as there are pins. Jobs come and go, and each would decode it again.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
}

impl needs::Value for StoredValue {
    fn name(&self) -> ValueName {
        self.name
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn cost(&self) -> usize {
        match self.is_for_harvest.load(Ordering::Relaxed) && !self.is_pinned() {
            true => self.bytes.len(),
            false => 0,
        }
    }

    fn decoded(
        &self,
        id: TypeId,
        read: &mut needs::Read<'_>,
    ) -> Result<needs::Decoded, CodecError> {
        // Other threads that want the value wait meanwhile. Values that are mentioned in it have locks of their own, and
        // no value mentions itself: its name is a hash.
        let mut decoded = lock(&self.decoded);
        if let Some(value) = decoded.values.get(&id).and_then(Weak::upgrade) {
            return Ok(value);
        }
        let (value, mentions) = needs::gather(|| read(&self.bytes));
        let value = value?;
        self.mentions.get_or_init(|| store().all(&mentions));
        decoded.remember(id, &value, self.is_pinned());
        Ok(value)
    }
}

impl StoredValue {
    /// Notes the value from which the bytes were made, so that they need not be decoded.
    pub(super) fn remember<T: Any + Send + Sync>(&self, value: &Arc<T>) {
        let value: needs::Decoded = Arc::<T>::clone(value);
        lock(&self.decoded).remember(TypeId::of::<T>(), &value, self.is_pinned());
    }

    /// Notes that it was entered because a result that mentions it is kept.
    pub(super) fn is_for_harvest(&self) {
        self.is_for_harvest.store(true, Ordering::Relaxed);
    }

    fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Relaxed) > 0
    }
}

impl Decoded {
    fn remember(&mut self, id: TypeId, value: &needs::Decoded, is_pinned: bool) {
        self.values.insert(id, Arc::downgrade(value));
        if is_pinned {
            self.kept.push(Arc::clone(value));
        }
    }
}

impl Drop for StoredValue {
    fn drop(&mut self) {
        let mut values = lock(&store().values);
        // The same value may have been entered again meanwhile.
        let is_gone = |entry: &Weak<StoredValue>| entry.strong_count() == 0;
        if values.entries.get(&self.name).is_some_and(is_gone) {
            values.entries.remove(&self.name);
        }
    }
}

/// Keeps a value, and what it has been decoded to.
struct Pin(Arc<StoredValue>);

impl Pin {
    fn new(entry: Arc<StoredValue>) -> Pin {
        let mut decoded = lock(&entry.decoded);
        entry.pins.fetch_add(1, Ordering::Relaxed);
        decoded.kept = decoded.values.values().filter_map(Weak::upgrade).collect();
        drop(decoded);
        Pin(entry)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut decoded = lock(&self.0.decoded);
        if self.0.pins.fetch_sub(1, Ordering::Relaxed) == 1 {
            let kept = std::mem::take(&mut decoded.kept);
            drop(decoded);
            drop(kept);
        }
    }
}

/// A value of which pieces are missing.
struct Arriving {
    total: u64,
    /// The bytes from the beginning, without gaps.
    start: Vec<u8>,
    /// The hash so far, of `start`.
    hasher: blake3::Hasher,
    /// Pieces that came too early, by their offset.
    later: BTreeMap<u64, Vec<u8>>,
    later_bytes: u64,
}

impl Arriving {
    fn new(total: u64) -> Arriving {
        Arriving {
            total,
            start: Vec::new(),
            hasher: blake3::Hasher::new(),
            later: BTreeMap::new(),
            later_bytes: 0,
        }
    }

    fn accepts(&self, offset: u64, total: u64, length: u64) -> bool {
        total == self.total
            && total <= LARGEST_VALUE
            && offset.checked_add(length).is_some_and(|end| end <= total)
            // Pieces that overlap must not make us keep more than the value itself.
            && self.later_bytes + length <= total
    }

    fn put(&mut self, offset: u64, bytes: Vec<u8>) {
        let there = self.later.entry(offset).or_default();
        if there.len() < bytes.len() {
            self.later_bytes += (bytes.len() - there.len()) as u64;
            *there = bytes;
        }
        while let Some(next) = self.later.first_entry() {
            let have = self.start.len() as u64;
            let Some(known) = have.checked_sub(*next.key()) else {
                break;
            };
            let piece = next.remove();
            self.later_bytes -= piece.len() as u64;
            let new = piece.get(known as usize..).unwrap_or_default();
            self.hasher.update(new);
            self.start.extend_from_slice(new);
        }
    }

    /// The same bytes as of the whole value, if they have come.
    fn read(&self, offset: u64, length: u64) -> Option<&[u8]> {
        let length = length.min(self.total.checked_sub(offset)?);
        let have = self.start.len() as u64;
        if offset + length <= have {
            return Some(slice(&self.start, offset, length));
        }
        let piece = self.later.get(&offset)?;
        (piece.len() as u64 >= length).then(|| slice(piece, 0, length))
    }

    fn is_complete(&self) -> bool {
        self.start.len() as u64 == self.total
    }
}

/// As many of these bytes as there are.
fn slice(bytes: &[u8], offset: u64, length: u64) -> &[u8] {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let length = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(bytes.len() - start);
    &bytes[start..start + length]
}

/// Takes a test's turn: values in transit go when any root job is over, so tests that look at them, or end a root job,
/// run one at a time.
#[cfg(test)]
pub(super) fn in_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lock(&TURN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::job::{Fingerprint, RootName};

    const FIRST: PieceOutcome = PieceOutcome::More { is_first: true };
    const MORE: PieceOutcome = PieceOutcome::More { is_first: false };

    fn name_of(bytes: &[u8]) -> ValueName {
        ValueName(*blake3::hash(bytes).as_bytes())
    }

    fn root(number: u32) -> RootKey {
        // Beyond those of tests in other files: the store is the whole process'.
        RootKey {
            pool: 7_000,
            name: RootName {
                number,
                fingerprint: Fingerprint(1),
            },
        }
    }

    proptest! {
        #[test]
        fn pieces_may_come_in_any_order_and_overlap(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            cuts in proptest::collection::vec((0..300usize, 1..80usize), 0..12),
            seed: u64,
        ) {
            let store = Store::default();
            let name = name_of(&bytes);
            let total = bytes.len();
            let whole = (0..total.max(1)).step_by(64).map(|at| (at, 64));
            let mut pieces: Vec<_> = cuts.into_iter().chain(whole).collect();
            let mut random = seed;
            for i in (1..pieces.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(i, (random >> 33) as usize % (i + 1));
            }
            let mut progress = MORE;
            for (at, length) in pieces {
                let at = at.min(total);
                let end = (at + length).min(total);
                progress = store.put_part(name, at as u64, total as u64, bytes[at..end].to_vec());
                if progress == PieceOutcome::Corrupt {
                    // Too many overlapping pieces, more bytes than the whole: then from the beginning.
                    progress = store.put_part(name, 0, total as u64, bytes.clone());
                }
                // What has come can be passed on.
                let read = store.read(name, at as u64, (end - at) as u64);
                prop_assert_eq!(read, Some((bytes[at..end].to_vec(), total as u64)));
                prop_assert_eq!(store.read(name, total as u64 + 1, 1).map(|(bytes, _)| bytes), store.contains(name).then(Vec::new));
            }
            prop_assert_eq!(progress, PieceOutcome::Stored);
            prop_assert_eq!(store.read(name, 0, u64::MAX), Some((bytes.clone(), total as u64)));
        }
    }

    #[test]
    fn a_wrong_hash_is_corrupt_and_can_be_made_good() {
        let store = Store::default();
        let (good, bad) = (b"the value".to_vec(), b"the valve".to_vec());
        let name = name_of(&good);
        assert_eq!(store.put_part(name, 0, 9, bad), PieceOutcome::Corrupt);
        assert!(!store.contains(name));
        assert_eq!(store.put_part(name, 0, 9, good), PieceOutcome::Stored);
        assert!(store.contains(name));
    }

    #[test]
    fn a_value_that_is_given_up_leaves_nothing() {
        let store = Store::default();
        let name = name_of(b"0123456789");
        assert_eq!(store.put_part(name, 0, 10, b"01234".to_vec()), FIRST);
        store.drop_pieces(name);
        assert!(lock(&store.arriving).is_empty());
        // The rest comes after all.
        assert_eq!(store.put_part(name, 5, 10, b"56789".to_vec()), FIRST);
        assert_eq!(
            store.put_part(name, 0, 10, b"01234".to_vec()),
            PieceOutcome::Stored
        );
    }

    #[test]
    fn pieces_that_contradict_each_other_are_corrupt() {
        let store = Store::default();
        let name = name_of(b"anything");
        let put = |offset, total, length| store.put_part(name, offset, total, vec![0; length]);
        assert_eq!(put(0, LARGEST_VALUE + 1, 4), PieceOutcome::Corrupt);
        assert_eq!(put(7, 8, 2), PieceOutcome::Corrupt);
        assert_eq!(put(u64::MAX, 8, 2), PieceOutcome::Corrupt);
        assert_eq!(put(4, 8, 4), FIRST);
        assert_eq!(put(0, 9, 4), PieceOutcome::Corrupt);
        // And nothing of that is left.
        assert!(lock(&store.arriving).is_empty());
    }

    #[test]
    fn reads_stay_within_the_value() {
        let store = Store::default();
        let name = name_of(b"0123456789");
        assert_eq!(store.read(name, 0, 1), None);
        assert_eq!(
            store.put_part(name, 0, 10, b"0123456789".to_vec()),
            PieceOutcome::Stored
        );
        for (offset, length, part) in [
            (0, 4, "0123"),
            (8, 4, "89"),
            (10, 1, ""),
            (u64::MAX, u64::MAX, ""),
        ] {
            let expected = Some((part.as_bytes().to_vec(), 10));
            assert_eq!(store.read(name, offset, length), expected);
        }
    }

    #[test]
    fn a_value_lives_as_long_as_one_of_its_roots() {
        let _turn = in_turn();
        let store = store();
        let bytes = b"a_value_lives_as_long_as_one_of_its_roots".to_vec();
        let (name, total) = (name_of(&bytes), bytes.len() as u64);
        assert!(!store.pin(name, root(1)));
        assert_eq!(store.put_part(name, 0, total, bytes), PieceOutcome::Stored);
        assert!(store.pin(name, root(1)) && store.pin(name, root(2)) && store.pin(name, root(2)));
        store.forget_root(root(1));
        assert!(store.contains(name));
        store.forget_root(root(2));
        assert!(!store.contains(name));
        assert!(!lock(&store.values).entries.contains_key(&name));
    }

    fn enter(text: &str) -> Arc<StoredValue> {
        let bytes = text.as_bytes().to_vec();
        store().insert(name_of(&bytes), bytes, None)
    }

    #[test]
    fn of_borrowed_data_those_are_kept_that_were_borrowed_last() {
        let _turn = in_turn();
        let text = |number: usize| format!("text number {number:03}"); // 15 bytes
        let names: Vec<ValueName> = (0..20).map(|number| enter(&text(number)).name).collect();
        let mut recent = Recent::default();
        let mut borrow = |number: usize, most: usize| {
            recent.room = most;
            let gone = recent.note(root(number as u32 % 2), Pin::new(enter(&text(number))));
            let left = (gone.len(), recent.bytes);
            drop(gone);
            left
        };
        for number in 0..18 {
            assert_eq!(borrow(number, 270), (0, 15 * (number + 1)));
        }
        assert_eq!(borrow(0, 270), (1, 270), "the same again, in its new place");
        assert_eq!(
            borrow(18, 270),
            (1, 270),
            "the second goes, which is the oldest"
        );
        assert_eq!(
            borrow(19, 1),
            (3, 240),
            "there is no room, but some are kept"
        );
        let here = |name: &ValueName| store().contains(*name);
        let gone: Vec<usize> = (0..20).filter(|number| !here(&names[*number])).collect();
        assert_eq!(gone, [1, 2, 3, 4]);
        drop(recent.remove_all(|other| *other == root(1)));
        assert_eq!(recent.bytes, 8 * 15);
        assert!(!here(&names[5]) && here(&names[6]));
        assert!(recent.values.len() == 8 && recent.numbers.len() == 8);
    }

    #[test]
    fn there_is_as_much_room_for_borrowed_data_as_is_set() {
        let store = Store::default();
        let count = |room| {
            store.set_recent_room(room);
            let all: Vec<_> = (0..20)
                .map(|number| {
                    let bytes = format!("room for {number:03}").into_bytes(); // 12 bytes
                    store.insert(name_of(&bytes), bytes, None)
                })
                .collect();
            let names: Vec<ValueName> = all.iter().map(|value| value.name).collect();
            assert!(names.iter().all(|name| store.keep_recent(*name, root(6))));
            drop(all);
            let here = names.iter().filter(|name| store.contains(**name)).count();
            store.forget_root(root(6));
            here
        };
        assert_eq!(count(240), 20);
        assert_eq!(count(216), 18);
        assert_eq!(count(0), LEAST_RECENT);
    }

    #[test]
    fn borrowed_data_go_with_their_root_and_leave_pins_alone() {
        let _turn = in_turn();
        let both = ["borrowed alone", "borrowed, and pinned"].map(enter);
        let names = [both[0].name, both[1].name];
        assert!(store().pin(names[1], root(4)));
        assert!(names.iter().all(|name| store().keep_recent(*name, root(3))));
        drop(both);
        assert!(names.iter().all(|name| store().contains(*name)));
        store().forget_root(root(3));
        let here = names.map(|name| store().contains(name));
        assert_eq!(here, [false, true]);
        store().forget_root(root(4));
        assert!(!store().contains(names[1]));
        assert!(!store().keep_recent(names[1], root(5)), "it is gone");
    }
}
