//! Bounds: values that only improve, for branch and bound.
//!
//! A bound keeps a value for each root job under way, in *cells*: a list that only grows, of which the first is in the
//! `static` itself. A cell belongs to one root job until no holder of that root job is left; then the next root job takes
//! the cell over. A reader compares the cell's owner with its own root job, and then a number: no lock, if the lattice
//! has numbers.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    lattice::{Lattice, Manners, Max, MaxWith, Min, MinWith, Portable},
    roots::{self, LiveRoot, NONE},
};
use crate::{
    job::{
        BoundName, Info, Lattices, Offer, RootName, ValueName,
        codec::{self, Effort},
    },
    observe::repeats,
    worker::{self, RootKey},
};

/// A value that only improves, known to all jobs of a root job: made by [`bound!`](https://docs.rs/satin).
///
/// An offer improves the value here at once, and on all other nodes soon. So jobs everywhere can leave out work that
/// cannot lead to a better solution. Results must not depend on *when* an offer is seen.
///
/// **Each root job starts afresh**, also if several run at the same time; and so does each `seq!` in ordinary code.
/// Outside of jobs there is no root job, so nothing can be offered. The value that can be got there is that of the last
/// root job that this thread has called (or of `seq!`), until it calls the next; a thread that has called none, such as a
/// thread that shows progress, sees the value of the latest root job in this process.
pub struct Bound<L: Lattice> {
    info: Info,
    name: OnceLock<BoundName>,
    first: Cell<L>,
}

/// The value for one root job.
struct Cell<L: Lattice> {
    /// The number of the root job.
    owner: AtomicU64,
    /// The measure of the best value. With [`EMPTY`] there is no value; with the number before, the measure is this or
    /// more.
    measure: AtomicU64,
    held: RwLock<HeldBound<L>>,
    next: OnceLock<Box<Cell<L>>>,
}

const EMPTY: u64 = u64::MAX;
const EXACT: std::ops::Range<u64> = 0..EMPTY - 1;

struct HeldBound<L: Lattice> {
    owner: Weak<LiveRoot>,
    best: Option<L::Value>,
}

impl<L: Lattice> Cell<L> {
    const fn new() -> Cell<L> {
        Cell {
            owner: AtomicU64::new(NONE),
            measure: AtomicU64::new(EMPTY),
            held: RwLock::new(HeldBound {
                owner: Weak::new(),
                best: None,
            }),
            next: OnceLock::new(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, HeldBound<L>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HeldBound<L>> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the cell that of `root`, if it belongs to no root job any more.
    fn take_over(&self, root: &Arc<LiveRoot>) -> bool {
        let mut held = self.write();
        let is_free = held.owner.strong_count() == 0;
        if is_free {
            self.owner.store(NONE, Ordering::Relaxed);
            *held = HeldBound {
                owner: Arc::downgrade(root),
                best: None,
            };
            self.measure.store(EMPTY, Ordering::Relaxed);
            // A reader that sees the new owner sees that the cell is empty.
            self.owner.store(root.number, Ordering::Release);
        }
        is_free
    }

    /// Joins a value into the cell, which is that of the caller's root job. `tell` hears of an improvement before any
    /// other thread can see it: work that is left out because of it, and done before other nodes hear of it, would be a
    /// result without its bound.
    fn join(&self, value: L::Value, tell: impl FnOnce(&L::Value)) -> bool {
        let mut held = self.write();
        let changed = match &mut held.best {
            Some(best) => L::join(best, value),
            none => {
                *none = Some(value);
                true
            }
        };
        if changed && let Some(best) = &held.best {
            tell(best);
            let measure = L::measure(best).map_or(0, |measure| measure.min(EXACT.end));
            self.measure.store(measure, Ordering::Relaxed);
        }
        changed
    }

    /// The answer of `look` on the best value, if there is one, and the cell is still of that root job.
    fn look<R>(&self, number: u64, look: impl FnOnce(&L::Value) -> R) -> Option<R> {
        if self.measure.load(Ordering::Relaxed) == EMPTY {
            return None;
        }
        let held = self.read();
        let is_owner = self.owner.load(Ordering::Relaxed) == number;
        held.best.as_ref().filter(|_| is_owner).map(look)
    }
}

impl<L: Lattice> Bound<L> {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(info: Info) -> Bound<L> {
        Bound {
            info,
            name: OnceLock::new(),
            first: Cell::new(),
        }
    }

    /// The best value so far, if any was offered.
    #[inline]
    pub fn get(&self) -> Option<L::Value> {
        let number = roots::shown_here();
        let cell = self.cell(number)?;
        let measure = cell.measure.load(Ordering::Relaxed);
        if measure == EMPTY {
            return None;
        }
        let by_number = EXACT.contains(&measure).then(|| L::of_measure(measure));
        by_number
            .flatten()
            .or_else(|| cell.look(number, L::Value::clone))
    }

    /// True if a job is superfluous that can find nothing better than `rank`. The lattice decides: [`Min`] and [`Max`]
    /// prune ranks that are strictly worse than the best value, [`MinWith`] and [`MaxWith`] ranks that are no better.
    ///
    /// For numbers of up to 64 bits this is an atomic load, and a look at which root job the thread works for.
    #[inline]
    pub fn prunes(&self, rank: &L::Rank) -> bool {
        let number = roots::shown_here();
        let Some(cell) = self.cell(number) else {
            return false;
        };
        match L::threshold(rank) {
            Some(threshold) if threshold < EMPTY => {
                cell.measure.load(Ordering::Relaxed) < threshold
            }
            _ => cell
                .look(number, |best| L::prunes(best, rank))
                .unwrap_or(false),
        }
    }

    /// Offers a value of any lattice. True if it was an improvement here. Outside of jobs nothing happens.
    pub fn join(&self, value: L::Value) -> bool {
        let is_worse = |cell: &Cell<L>| {
            let known = cell.measure.load(Ordering::Relaxed);
            L::measure(&value).is_some_and(|new| EXACT.contains(&new) && known <= new)
        };
        if self.cell(roots::here()).is_some_and(is_worse) || !L::is_value(&value) {
            return false;
        }
        let Some(root) = roots::root_here() else {
            tracing::debug!(bound = self.info.name, "an offer outside of a job is lost");
            return false;
        };
        self.cell_of(&root).join(value, |best| {
            if let Some(name) = root.name {
                worker::offer(|| self.as_offer(name, best));
            }
        })
    }

    fn as_offer(&self, root: RootName, best: &L::Value) -> Option<Offer> {
        let what = "serializing an offer";
        match codec::write_for::<L::Value, _>(what, best, Effort::ANY) {
            Ok(value) => Some(Offer {
                bound: self.name(),
                root,
                value,
            }),
            Err(error) => {
                repeats::warn("an offer to a bound is not sent", self.info.name, error);
                None
            }
        }
    }

    /// The cell of that root job, if it has one.
    #[inline]
    fn cell(&self, number: u64) -> Option<&Cell<L>> {
        if self.first.owner.load(Ordering::Acquire) == number {
            Some(&self.first).filter(|_| number != NONE)
        } else {
            self.later_cell(number)
        }
    }

    fn later_cell(&self, number: u64) -> Option<&Cell<L>> {
        self.cells()
            .find(|cell| cell.owner.load(Ordering::Acquire) == number && number != NONE)
    }

    fn cells(&self) -> impl Iterator<Item = &Cell<L>> {
        std::iter::successors(Some(&self.first), |cell| Some(&**cell.next.get()?))
    }

    /// The cell of that root job, a new one if need be.
    fn cell_of(&self, root: &Arc<LiveRoot>) -> &Cell<L> {
        /// Held while a cell is taken, so that no root job gets two.
        static TAKING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        check_names();
        if let Some(cell) = self.cell(root.number) {
            return cell;
        }
        let mut cell = &self.first;
        while !cell.take_over(root) {
            cell = cell.next.get_or_init(|| Box::new(Cell::new()));
        }
        cell
    }

    fn name(&self) -> BoundName {
        *self.name.get_or_init(|| {
            let mut hasher = blake3::Hasher::new();
            for text in [self.info.name, self.info.signature] {
                hasher
                    .update(&(text.len() as u64).to_le_bytes())
                    .update(text.as_bytes());
            }
            let mut first = [0; 8];
            first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
            BoundName(u64::from_le_bytes(first))
        })
    }
}

impl<L> Bound<L>
where
    L: Lattice<Rank = <L as Lattice>::Value>,
{
    /// Offers a value. True if it was an improvement here. Outside of jobs nothing happens.
    #[inline]
    pub fn offer(&self, value: L::Value) -> bool {
        self.join(value)
    }
}

macro_rules! with_solution {
    ($with:ident, $one:ident) => {
        impl<K: PartialOrd + Portable, W: Portable> Bound<$with<K, W>> {
            /// Offers a solution. True if it was an improvement here. Outside of jobs nothing happens.
            #[inline]
            pub fn offer(&self, cost: K, solution: W) -> bool {
                self.join((cost, solution))
            }

            /// The cost of the best solution so far, without the solution.
            #[inline]
            pub fn cost(&self) -> Option<K> {
                let number = roots::shown_here();
                let cell = self.cell(number)?;
                let measure = cell.measure.load(Ordering::Relaxed);
                let by_number = EXACT
                    .contains(&measure)
                    .then(|| $one::<K>::of_measure(measure));
                by_number
                    .flatten()
                    .or_else(|| cell.look(number, |(cost, _)| cost.clone()))
            }
        }
    };
}

with_solution!(MinWith, Min);
with_solution!(MaxWith, Max);

impl<L: Lattice<Value: fmt::Debug>> fmt::Debug for Bound<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("name", &self.info.name)
            .field("best", &self.get())
            .finish()
    }
}

/// A bound, whatever its lattice.
pub trait AnyBound: Sync {
    #[doc(hidden)]
    fn info(&self) -> Info;
    #[doc(hidden)]
    fn name(&self) -> BoundName;
    #[doc(hidden)]
    fn join(&self, have: &[u8], new: &[u8]) -> Option<Vec<u8>>;
    #[doc(hidden)]
    fn improve(&self, key: RootKey, new: &[u8]);
    #[doc(hidden)]
    fn manners(&self) -> Manners;
}

impl<L: Lattice> Bound<L> {
    fn decode(&self, bytes: &[u8]) -> Option<L::Value> {
        let read = codec::read("deserializing an offer", bytes);
        let value = read.and_then(|value| {
            codec::guard("comparing an offer", || Some(value).filter(L::is_value))
        });
        self.unless_refused(value).flatten()
    }

    /// The result of the user's code on an offer from another node, if it did not fail.
    fn unless_refused<R>(&self, result: Result<R, codec::CodecError>) -> Option<R> {
        match result {
            Ok(result) => Some(result),
            Err(error) => {
                repeats::warn(
                    "refused an offer that another node sent to a bound",
                    self.info.name,
                    error,
                );
                None
            }
        }
    }

    /// Joins by the numbers alone, where they decide.
    fn join_by_measure(&self, have: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let Some(measure) = L::measure_of_bytes(new) else {
            repeats::warn(
                "refused an offer that another node sent to a bound",
                self.info.name,
                "the offer does not begin with a number",
            );
            return None;
        };
        let is_better = L::measure_of_bytes(have).is_none_or(|known| measure < known);
        is_better.then(|| new.to_vec())
    }
}

impl<L: Lattice> AnyBound for Bound<L> {
    fn info(&self) -> Info {
        self.info
    }

    fn name(&self) -> BoundName {
        self.name()
    }

    fn join(&self, have: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        if L::manners() == Manners::PlainCost {
            return self.join_by_measure(have, new);
        }
        let other = self.decode(new)?;
        let Some(mut best) = self.decode(have) else {
            return Some(new.to_vec());
        };
        let joined = codec::guard("comparing an offer", || {
            let is_better = L::join(&mut best, other);
            is_better.then(|| codec::write("serializing an offer", &best, Effort::ANY))
        });
        let joined = self.unless_refused(joined)??;
        self.unless_refused(joined)
    }

    fn improve(&self, key: RootKey, new: &[u8]) {
        if let Some(value) = self.decode(new) {
            let cell = self.cell_of(&roots::root(key));
            self.unless_refused(codec::guard("comparing an offer", || {
                cell.join(value, |_| ())
            }));
        }
    }

    fn manners(&self) -> Manners {
        L::manners()
    }
}

/// An entry in the registry of bounds: [`bound!`](https://docs.rs/satin) submits one for each bound.
#[doc(hidden)]
pub struct BoundRegistration(pub &'static dyn AnyBound);

inventory::collect!(BoundRegistration);

/// All bounds of this program.
///
/// # Panics
/// If two bounds share a stable name: the message shows both places, and the cure.
fn registered() -> &'static HashMap<BoundName, &'static dyn AnyBound> {
    static REGISTRY: OnceLock<HashMap<BoundName, &'static dyn AnyBound>> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut names = HashMap::new();
        let mut all = HashMap::new();
        for BoundRegistration(bound) in inventory::iter::<BoundRegistration> {
            let here = bound.info();
            if let Some(there) = names.insert(here.name, here) {
                panic!(
                    "two bounds have the name `{}`: {}:{} and {}:{}; give one of them another, or put it in a module of \
                     its own",
                    here.name, there.file, there.line, here.file, here.line
                );
            }
            all.insert(bound.name(), *bound);
        }
        all
    })
}

fn check_names() {
    registered();
}

/// How bounds are joined, and which values are here: for a node.
///
/// # Panics
/// If two bounds share a stable name: the message shows both places, and the cure.
#[must_use]
pub fn lattices() -> impl Lattices + Send + 'static {
    check_names();
    Registered
}

struct Registered;

/// The better of two values of a bound, or `None` if the first is as good as the join. Runs code of the user if the
/// bound's [`manners`] are.
#[must_use]
pub fn join(bound: BoundName, have: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    // If this program does not know the bound, no job here asks for it.
    registered().get(&bound)?.join(have, new)
}

impl Lattices for Registered {
    fn join(&self, bound: BoundName, have: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        join(bound, have, new)
    }

    fn value_size(&self, name: ValueName) -> Option<u64> {
        super::store().size_of(name)
    }
}

/// Another node has found something better. `pool` is the [number](worker::Gate::number) of the one that works on that
/// root job here.
pub fn improve(pool: u64, offer: &Offer) {
    let key = RootKey {
        pool,
        name: offer.root,
    };
    match registered().get(&offer.bound) {
        Some(bound) => bound.improve(key, &offer.value),
        None => tracing::debug!(bound = offer.bound.0, "an offer for an unknown bound"),
    }
}

/// Does [`improve`] run code of the user for a bound of that name? Joining them does where it is not
/// [`Manners::PlainCost`] either.
#[must_use]
pub fn manners(bound: BoundName) -> Manners {
    // An unknown bound is passed over.
    (registered().get(&bound)).map_or(Manners::Plain, |bound| bound.manners())
}

/// The root job is over: bounds and the [store](super::store()) drop the values that they keep for it, and for all root
/// jobs of `main` before it. Values that its caller may still [`get`](Bound::get), if it was called in this process,
/// stay.
pub fn forget_root(pool: u64, root: RootName) {
    forget_bounds(pool, root);
    forget_values(pool, root);
}

/// The part of [`forget_root`] that concerns bounds: no code of the user runs. To be called after all earlier offers and
/// values for the root job.
pub fn forget_bounds(pool: u64, root: RootName) {
    roots::forget(RootKey { pool, name: root });
}

/// The part of [`forget_root`] that concerns the store: the decoded values are dropped by code of the user.
pub fn forget_values(pool: u64, root: RootName) {
    super::store().forget_root(RootKey { pool, name: root });
}
