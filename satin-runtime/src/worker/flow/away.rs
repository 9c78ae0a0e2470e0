//! Data that another node keeps: a task has run there, and its owner, this flow, has no more than their name.
//!
//! Who needs them here waits until they have been fetched. As long as they are not here, the task that has made them stays, with what it read
//! and with what it found in what it changed: if nobody has the data any more, it runs again, here, if need be after those before it. So
//! that this is never much, data are fetched without being needed once it would take long to make them again.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;

use super::{
    FlowCore,
    prefetch::Show,
    task::{TaskHead, TaskRef},
    version::Version,
    waiters::Waiting,
};
use crate::{
    job::{
        Back, Fingerprint, HeldValue, KeptElsewhere, RootName, ValueName, ValueSize,
        codec::{self, CodecError, Effort},
        kinds::{Carried, CarriedRef, Travels},
        loans::{Lendable, LentName},
        outcome::OutcomePart,
        record::Slot,
    },
    observe::repeats,
    worker::{pool::Pool, thread::quietly},
};

/// Time in which what nobody here has can be made again, at most, before it is fetched without being needed. Too short: data travel that
/// nobody will need. Too long: a death costs that much, for each piece of data that was there.
const MOST_AT_RISK: Duration = Duration::from_millis(250);

/// Tasks that must run one after the other to make it again, at most, before the same happens.
const MOST_IN_A_CHAIN: u32 = 32;

/// With so many the next task runs here: data that were asked for long ago have not come. Too few: a task more that waits. Too many: what a
/// chain holds is dropped one by one, on the stack.
const LONGEST_CHAIN: u32 = 256;

/// How data of a type become bytes, and bytes data.
struct DataForm<T> {
    read: fn(&[u8]) -> Result<T, CodecError>,
    write: fn(&T) -> Result<Vec<u8>, CodecError>,
}

impl<T: Travels> DataForm<T> {
    const fn new() -> DataForm<T> {
        DataForm {
            read: |bytes| {
                let read = codec::read::<Carried<T>>("deserializing data of a flow", bytes);
                read.map(|Carried(value)| value)
            },
            write: |value| {
                let what = "serializing data of a flow";
                codec::write_for::<Carried<T>, _>(what, &CarriedRef(value), Effort::ANY)
            },
        }
    }
}

/// A part of what a task has made elsewhere.
pub(super) enum DeliveredPart<T> {
    /// It has come.
    Here(T),
    /// It is kept there.
    Kept(ValueSize),
}

impl<T: Travels> DeliveredPart<T> {
    /// # Panics
    /// If what has come cannot be read.
    pub(super) fn read(part: OutcomePart) -> DeliveredPart<T> {
        match part {
            OutcomePart::Kept(kept) => DeliveredPart::Kept(kept),
            OutcomePart::Here(bytes) => match (DataForm::new().read)(&bytes) {
                Ok(value) => DeliveredPart::Here(value),
                Err(error) => panic!("{error}"),
            },
        }
    }
}

/// What it would take to make data again that are not here.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Risk {
    /// Time, as far as tasks have to run one after the other.
    time: Duration,
    /// Tasks that have to run one after the other.
    chain: u32,
}

impl Risk {
    /// The greater of both.
    pub(super) fn max(self, other: Risk) -> Risk {
        Risk {
            time: self.time.max(other.time),
            chain: self.chain.max(other.chain),
        }
    }

    /// That of what a task has made which took so long, and read what this is the risk of.
    pub(super) fn after(self, took: Duration) -> Risk {
        Risk {
            time: self.time.saturating_add(took),
            chain: self.chain.saturating_add(1),
        }
    }

    /// Should the data be fetched without being needed?
    fn is_much(self) -> bool {
        self.time > MOST_AT_RISK || self.chain > MOST_IN_A_CHAIN
    }

    /// Should no task that reads the data leave?
    pub(super) fn is_too_much(self) -> bool {
        self.chain > LONGEST_CHAIN
    }
}

/// Where data are that a task has made elsewhere, and what makes them again.
pub struct Origin<'p> {
    /// The node that keeps them.
    pub(super) at: u128,
    pub(super) root: RootName,
    pub(super) pool: &'p Pool,
    pub(super) risk: Risk,
    /// The task that has made them, and what else it has made.
    pub(super) task: Arc<OriginTask>,
}

/// The end of a task that has run a second time, as what it made elsewhere was lost.
pub struct SecondRun<'p> {
    pub(super) pool: &'p Pool,
    pub(super) core: &'p FlowCore,
    /// The name of its function.
    pub(super) function: &'static str,
    /// It has made it again; false if its flow is over.
    pub(super) made: bool,
}

impl SecondRun<'_> {
    /// What the task was to make for that version, if that is still wanted; nothing if its flow is over.
    pub(super) fn put<T>(&self, version: &Weak<Version<T>>, value: Option<T>) {
        let version = version.upgrade();
        let waited = match version.as_ref().and_then(|version| version.away()) {
            Some(away) => Some(away.remake(self, value)),
            None => {
                quietly(|| drop(value));
                None
            }
        };
        // Who has waited may change it in place.
        quietly(|| drop(version));
        if let Some(waited) = waited {
            waited.go_on(self.pool);
        }
    }
}

/// A task that has run elsewhere. It stays as long as what it has made is not here.
pub(super) struct OriginTask(Mutex<Option<TaskRef>>);

impl OriginTask {
    pub(super) fn new(task: TaskRef) -> OriginTask {
        OriginTask(Mutex::new(Some(task)))
    }

    /// Lets the task run again, unless it does already.
    fn run_again(&self, pool: &Pool) {
        if let Some(task) = lock(&self.0).take() {
            task.run_again(pool);
        }
    }
}

impl Drop for OriginTask {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.0).take() {
            task.free();
        }
    }
}

/// Data of a version that another node keeps.
pub(super) struct RemoteData<T> {
    value: ValueSize,
    at: u128,
    root: RootName,
    pool: Weak<Pool>,
    pub(super) risk: Risk,
    form: DataForm<T>,
    name: LentName,
    /// Their bytes, once they have come.
    bytes: OnceLock<HeldValue>,
    /// What these stand for, once somebody has looked.
    read: OnceLock<T>,
    /// What the task has made here when it ran again, with the name of that.
    remade: OnceLock<(T, LentName)>,
    state: Mutex<AwayState>,
}

struct AwayState {
    stage: AwayStage,
    waiting: Vec<Waiter>,
    /// `None` once the data are here.
    task: Option<Arc<OriginTask>>,
    /// The node keeps them for this flow.
    is_kept: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AwayStage {
    /// Nobody has asked for them.
    Away,
    /// They are being fetched.
    Asked,
    /// Nobody has them: the task runs again.
    Remade,
    /// They are here, or never will be.
    Over,
}

/// A party that waits for data of a version.
pub(in crate::worker) enum Waiter {
    /// A task that a worker was to run.
    Task(TaskRef),
    /// A task aside that came back undone.
    Aside(AsideTask),
    /// The closure of the flow, which counts as one of its tasks meanwhile.
    Closure(*const FlowCore),
}

/// A task in a slot aside, in the hands of nobody else.
#[derive(Clone, Copy)]
pub(in crate::worker) struct AsideTask {
    pub(in crate::worker) slot: *const Slot,
    /// How deep it stands in the tree, or that it stays.
    pub(in crate::worker) depth: u16,
    pub(in crate::worker) back: Back,
    pub(in crate::worker) fingerprint: Fingerprint,
}

// SAFETY: a task that waits is the waiter's alone until it goes on; a flow is shared by the threads of its pool, and lives as long as somebody of it waits.
unsafe impl Send for Waiter {}

/// Those who have waited for data that are here now, or never will be.
#[must_use]
pub(super) struct Waited(Vec<Waiter>);

impl Waited {
    /// They go on.
    pub(super) fn go_on(self, pool: &Pool) {
        for waiter in self.0 {
            if let Waiter::Task(_) | Waiter::Aside(_) = waiter {
                pool.boards.asked.coming.fetch_sub(1, Ordering::Relaxed);
            }
            waiter.go_on(pool);
        }
    }
}

impl Waiter {
    /// The data are here, or never will be.
    fn go_on(self, pool: &Pool) {
        match self {
            Waiter::Task(task) => pool.boards.push_here(pool, task),
            Waiter::Aside(task) => pool.go_on_aside(task),
            // SAFETY: the flow waits for us.
            Waiter::Closure(core) => unsafe { &*core }.one_less(pool),
        }
    }
}

impl<T: Travels> RemoteData<T> {
    fn new(value: ValueSize, origin: &Origin<'_>) -> RemoteData<T> {
        RemoteData {
            value,
            at: origin.at,
            root: origin.root,
            pool: origin.pool.boards.pool(),
            risk: origin.risk,
            form: DataForm::new(),
            name: LentName::kept(value),
            bytes: OnceLock::new(),
            read: OnceLock::new(),
            remade: OnceLock::new(),
            state: Mutex::new(AwayState {
                stage: AwayStage::Away,
                waiting: Vec::new(),
                task: Some(Arc::clone(&origin.task)),
                is_kept: true,
            }),
        }
    }
}

impl<T> RemoteData<T> {
    /// The node that keeps the data, or has kept them.
    pub(super) fn at(&self) -> u128 {
        self.at
    }

    /// Are they here?
    pub(super) fn is_here(&self) -> bool {
        self.bytes.get().is_some() || self.remade.get().is_some()
    }

    /// The data, if they are here.
    ///
    /// # Panics
    /// If they cannot be read, or reading them panics.
    pub(super) fn look(&self) -> Option<&T> {
        if let Some((value, _)) = self.remade.get() {
            return Some(value);
        }
        let bytes = self.bytes.get()?;
        Some(self.read.get_or_init(|| self.read(bytes)))
    }

    /// The data, if they are here and have been read.
    pub(super) fn peek(&self) -> Option<&T> {
        let remade = self.remade.get().map(|(value, _)| value);
        remade.or_else(|| self.read.get())
    }

    fn read(&self, bytes: &HeldValue) -> T {
        (self.form.read)(bytes.bytes()).unwrap_or_else(|error| {
            panic!("data of a flow, which another node has made, cannot be read: {error}")
        })
    }

    /// The data, taken out, if they are here.
    pub(super) fn take(mut self) -> Option<T> {
        if let Some((value, _)) = self.remade.take() {
            return Some(value);
        }
        let bytes = self.bytes.take()?;
        Some(match self.read.take() {
            Some(value) => value,
            None => self.read(&bytes),
        })
    }

    pub(super) fn named(&self) -> &LentName {
        self.remade.get().map_or(&self.name, |(_, name)| name)
    }

    fn state(&self) -> MutexGuard<'_, AwayState> {
        lock(&self.state)
    }

    /// The data have come, have been made again, or never will be. Gives who has waited.
    fn over(&self, pool: &Pool) -> Waited {
        let mut state = self.state();
        state.stage = AwayStage::Over;
        let (waiting, task) = (std::mem::take(&mut state.waiting), state.task.take());
        drop(state);
        self.let_go(pool);
        // What the task holds is dropped by code of the user.
        pool.clerk.run(move || quietly(|| drop(task)));
        Waited(waiting)
    }

    /// Nobody reads the data any more, unless a task is to run again: the node that keeps them may drop them when it has no more room.
    pub(super) fn let_go(&self, pool: &Pool) {
        if std::mem::take(&mut self.state().is_kept) {
            pool.tell(|outside| outside.unneeded(self.at, vec![self.value.name]));
        }
    }

    /// The task has run again, and has made this; nothing if its flow is over. Gives who has waited for it.
    pub(super) fn remake(&self, again: &SecondRun<'_>, value: Option<T>) -> Waited {
        match value.filter(|_| again.made) {
            Some(value) if !self.is_here() => {
                self.compare(again, &value);
                let _ = self.remade.set((value, LentName::default()));
            }
            value => quietly(|| drop(value)),
        }
        self.over(again.pool)
    }

    /// Is that what was lost?
    fn compare(&self, again: &SecondRun<'_>, value: &T) {
        if let Ok(Ok(bytes)) = codec::guard("serializing", || (self.form.write)(value))
            && blake3::hash(&bytes).as_bytes() != &self.value.name.0
        {
            let pool = again.pool;
            if pool.flow_strict {
                let panic = format!(
                    "`{}` has run a second time, as its result was lost, and its result is another one now: what it computes differs from node to \
                     node, or from time to time (SATIN_FLOW_STRICT)",
                    again.function
                );
                return again.core.panicked(pool, Box::new(panic));
            }
            repeats::warn(
                "a task has run a second time, as its result was lost, and its result is another one now",
                again.function,
                "what it computes differs from node to node, or from time to time",
            );
        }
    }
}

impl<T> Drop for RemoteData<T> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            self.let_go(&pool);
        }
    }
}

/// A version that a task has made elsewhere, and that nobody has seen yet.
pub struct MadeElsewhere(Arc<dyn MadeVersion>);

/// A version that a task makes.
trait MadeVersion: Bring + Lendable {}

impl<T: Travels + Send + Sync> MadeVersion for Version<T> {}

impl MadeElsewhere {
    /// Puts into the version what a task has made for it.
    ///
    /// # Safety
    /// As for [`Version::put`].
    pub(super) unsafe fn put<T: Travels + Send + Sync>(
        version: Arc<Version<T>>,
        made: DeliveredPart<T>,
        origin: &Origin<'_>,
    ) -> MadeElsewhere {
        // SAFETY: the caller's promise.
        unsafe {
            match made {
                DeliveredPart::Here(value) => version.put(value, None),
                DeliveredPart::Kept(kept) => version.put_away(RemoteData::new(kept, origin)),
            }
        }
        MadeElsewhere(version)
    }

    /// Shows the version to the tasks that wait for it.
    pub(super) fn show(self, pool: &Pool, show: &mut Show<'_>) {
        let waiting = self.0.close();
        let version: Arc<dyn Bring> = self.0.clone();
        version.note(pool);
        let at = self.0.at();
        show.waiting(self.0, at, waiting);
    }
}

/// A version whose data another node keeps, and that are not here.
pub struct Missing(Arc<dyn Bring>);

impl Missing {
    pub(super) fn new<T: Send + Sync + 'static>(version: &Arc<Version<T>>) -> Missing {
        Missing(Arc::<Version<T>>::clone(version))
    }

    /// How many bytes they are.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Their name.
    pub(super) fn name(&self) -> Option<ValueName> {
        self.0.name()
    }

    /// Fetches them. The waiter goes on when they are here, or never will be; false, and there is nothing to wait for, if that is so already.
    pub(super) fn want(&self, pool: &Pool, waiter: Option<Waiter>) -> bool {
        Arc::clone(&self.0).want(pool, waiter)
    }
}

/// A version whose data another node keeps, of whatever type.
pub(super) trait Bring: Send + Sync {
    /// The version has been made.
    fn close(&self) -> Waiting<TaskHead>;

    /// Notes where the data are, if another node keeps them. Fetches them without being asked, if it would take long to make them again.
    fn note(self: Arc<Self>, pool: &Pool);

    /// The name of the data.
    fn name(&self) -> Option<ValueName>;

    /// The node that keeps the data, if another does.
    fn at(&self) -> Option<u128>;

    /// The bytes of the data.
    fn bytes(&self) -> u64;

    /// Fetches the data. The waiter goes on when they are here, or never will be; false, and the waiter stays the caller's, if that is so
    /// already.
    fn want(self: Arc<Self>, pool: &Pool, waiter: Option<Waiter>) -> bool;

    /// The data have come, or nobody has them any more. Gives who has waited for them.
    fn arrived(&self, pool: &Pool, value: Option<HeldValue>) -> Waited;
}

impl<T: Send + Sync + 'static> Bring for Version<T> {
    fn close(&self) -> Waiting<TaskHead> {
        self.waiters.close()
    }

    fn note(self: Arc<Self>, pool: &Pool) {
        let Some(away) = self.away() else { return };
        let (at, is_much) = (away.at, away.risk.is_much());
        let version: Arc<dyn Bring> = self;
        pool.boards.asked.note(at, Arc::downgrade(&version));
        // A node that is about to leave may have been asked for all that it kept before.
        if is_much || pool.boards.is_gone(at) {
            version.want(pool, None);
        }
    }

    fn name(&self) -> Option<ValueName> {
        self.away().map(|away| away.value.name)
    }

    fn at(&self) -> Option<u128> {
        self.away().map(|away| away.at)
    }

    fn bytes(&self) -> u64 {
        self.away().map_or(0, |away| away.value.bytes)
    }

    fn want(self: Arc<Self>, pool: &Pool, waiter: Option<Waiter>) -> bool {
        let Some(away) = self.away() else {
            return false;
        };
        let mut state = away.state();
        if state.stage == AwayStage::Over {
            return false;
        }
        if let Some(Waiter::Task(_) | Waiter::Aside(_)) = waiter {
            pool.boards.asked.coming.fetch_add(1, Ordering::Relaxed);
        }
        state.waiting.extend(waiter);
        if state.stage != AwayStage::Away {
            return true;
        }
        state.stage = AwayStage::Asked;
        drop(state);
        let kept = |ticket| KeptElsewhere {
            ticket,
            name: away.value.name,
            at: away.at,
            root: away.root,
        };
        let version = Arc::clone(&self);
        pool.boards.asked.ask(pool, kept, version);
        true
    }

    fn arrived(&self, pool: &Pool, value: Option<HeldValue>) -> Waited {
        let nobody = Waited(Vec::new());
        let Some(away) = self.away() else {
            return nobody;
        };
        if let Some(value) = value {
            let _ = away.bytes.set(value);
            return away.over(pool);
        }
        let mut state = away.state();
        if state.waiting.is_empty() {
            // Fetched without being needed: who needs them will ask again, in vain.
            if state.stage == AwayStage::Asked {
                state.stage = AwayStage::Away;
            }
            return nobody;
        }
        state.stage = AwayStage::Remade;
        let task = state.task.clone();
        drop(state);
        if let Some(task) = task {
            task.run_again(pool);
        }
        nobody
    }
}

/// The data that have been asked for, by the numbers of the requests.
#[derive(Default)]
pub(super) struct DataRequests {
    next: AtomicU64,
    versions: DashMap<u64, Arc<dyn Bring>>,
    /// Nobody outside answers any more.
    are_in_vain: AtomicBool,
    /// What each node keeps.
    kept: DashMap<u128, KeptAt>,
    /// How many tasks wait for data.
    coming: AtomicUsize,
}

/// What a node keeps.
#[derive(Default)]
struct KeptAt {
    versions: Vec<Weak<dyn Bring>>,
    /// With so many it is time to look which are of use.
    most: usize,
}

impl DataRequests {
    fn ask(&self, pool: &Pool, kept: impl FnOnce(u64) -> KeptElsewhere, version: Arc<dyn Bring>) {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        self.versions.insert(ticket, version);
        let mut is_asked = false;
        pool.tell(|outside| is_asked = outside.bring(kept(ticket)));
        // SeqCst: either this is seen, or whoever sets it sees the ticket.
        if !is_asked || self.are_in_vain.load(Ordering::SeqCst) {
            self.arrived(pool, ticket, None);
        }
    }

    fn arrived(&self, pool: &Pool, ticket: u64, value: Option<HeldValue>) {
        let Some((_, version)) = self.versions.remove(&ticket) else {
            return;
        };
        let waiting = version.arrived(pool, value);
        match waiting.0.is_empty() {
            // It may be the last one to hold it, and code of the user drops the data.
            true => pool.clerk.run(move || quietly(|| drop(version))),
            // Who has waited holds it, and may change it in place.
            false => drop(version),
        }
        waiting.go_on(pool);
    }

    /// That node keeps the data of this version.
    fn note(&self, keeper: u128, version: Weak<dyn Bring>) {
        let mut kept = self.kept.entry(keeper).or_default();
        if kept.versions.len() >= kept.most.max(64) {
            kept.versions.retain(|version| version.strong_count() > 0);
            kept.most = 2 * kept.versions.len();
        }
        kept.versions.push(version);
    }

    /// How many tasks wait for data.
    pub(super) fn coming(&self) -> usize {
        self.coming.load(Ordering::Relaxed)
    }

    /// Nobody outside will answer any more.
    fn give_up(&self, pool: &Pool) {
        self.are_in_vain.store(true, Ordering::SeqCst);
        let tickets: Vec<u64> = self.versions.iter().map(|entry| *entry.key()).collect();
        for ticket in tickets {
            self.arrived(pool, ticket, None);
        }
    }
}

impl Pool {
    /// A value that was asked for has come, or nobody has it any more.
    pub(in crate::worker) fn brought(&self, ticket: u64, value: Option<HeldValue>) {
        self.boards.asked.arrived(self, ticket, value);
    }

    /// Fetches all that the node keeps.
    pub(in crate::worker) fn bring_all_from(&self, keeper: u128) {
        let Some((_, kept)) = self.boards.asked.kept.remove(&keeper) else {
            return;
        };
        let all: Vec<_> = kept.versions.iter().filter_map(Weak::upgrade).collect();
        for version in &all {
            Arc::clone(version).want(self, None);
        }
        self.clerk.run(move || quietly(|| drop(all)));
    }

    /// Fetches the data of that name. If nobody has them, they are made again by the first task here that needs them.
    pub(in crate::worker) fn bring_home(&self, name: ValueName) {
        let mut all = Vec::new();
        for kept in &self.boards.asked.kept {
            all.extend(kept.versions.iter().filter_map(Weak::upgrade));
        }
        for version in &all {
            if version.name() == Some(name) {
                Arc::clone(version).want(self, None);
            }
        }
        // Code of the user may drop the last of it.
        self.clerk.run(move || quietly(|| drop(all)));
    }

    /// What that node kept is lost with it.
    pub(in crate::worker) fn forget_kept_at(&self, keeper: u128) {
        self.boards.asked.kept.remove(&keeper);
    }

    /// Somebody outside listens.
    pub(in crate::worker) fn brings_again(&self) {
        self.boards.asked.are_in_vain.store(false, Ordering::SeqCst);
    }

    /// Nobody outside will bring anything any more.
    pub(in crate::worker) fn brings_nothing(&self) {
        self.boards.asked.give_up(self);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
