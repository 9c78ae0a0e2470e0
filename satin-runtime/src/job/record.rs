//! The record of a job that waits to be run, 64 bytes, and the frame of an invocation that has spawned.
//!
//! A record lives in a slot of its worker's deque. Its fields belong to the owner until the job is taken;
//! `worker/README.md` tells which of them a thief may touch, and when. The address of the slot tells where the job
//! stands: slots lie in an area aligned to [`AREA`], whose first page belongs to the worker.

use std::{
    any::Any,
    cell::{Cell, UnsafeCell},
    mem::MaybeUninit,
    sync::atomic::{AtomicPtr, AtomicU32},
};

use crate::atomic::{AtomicU64, Ordering};

use super::function::VTable;

/// Size and alignment of a worker's area, in bytes of address space: its header, then its slots.
pub const AREA: usize = if usize::BITS == 64 { 1 << 31 } else { 1 << 24 };

/// Arguments and results up to this size and alignment stand in the record itself, larger ones are boxed.
const IN_PLACE: usize = 32;

/// A job's record in memory: 64 bytes in its owner's array.
#[repr(C, align(64))]
pub struct Slot {
    /// The function; written by a spawn.
    pub function: Cell<&'static VTable>,
    /// The invocation that spawned this job; written by a spawn.
    pub parent: Cell<*const Frame>,
    meta: Meta,
    /// For a speculative spawn its [`Judge`], until the result of a remote run takes this place.
    pub extra: AtomicPtr<()>,
    data: UnsafeCell<MaybeUninit<[u8; IN_PLACE]>>,
}

/// The stage of a job on its way. `Ready` covers private, public and just stolen: the deque knows the difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// In its owner's deque, or a thief has it and has not said so yet.
    Ready,
    /// Taken by the worker of this index, in the same pool.
    Taken(u32),
    /// The gate serializes the arguments; the owner must not touch them.
    Leaving,
    /// Another node has it; the arguments stay, the result will come as bytes.
    Away,
    /// The job may not leave, or left and came back undone: a thread that takes it off the gate's books has it.
    Returned,
    /// The result is in the data.
    Done,
    /// The payload of the panic is in the data.
    Panicked,
    /// The job was aborted: the data is empty.
    Aborted,
    /// The arguments are in the data, an `Answer` hangs on `extra`.
    Answered,
}

/// The depth of what must not leave this process: it has no id.
pub const STAYS: u16 = u16::MAX;
/// The depth of a job that has not been measured: below all others.
pub const UNKNOWN: u16 = 0;

/// The owner of the slot waits, parked: the thread that changes the state last wakes it.
const AWAITED: u64 = 1 << 63;
/// A thief should judge the result and stop the siblings if it is a failure.
const SPECULATIVE: u64 = 1 << 62;

impl SlotState {
    const fn bits(self) -> u64 {
        let (code, thief) = match self {
            SlotState::Ready => (0, 0),
            SlotState::Taken(thief) => (1, thief as u64),
            SlotState::Leaving => (2, 0),
            SlotState::Away => (3, 0),
            SlotState::Returned => (4, 0),
            SlotState::Done => (5, 0),
            SlotState::Panicked => (6, 0),
            SlotState::Aborted => (7, 0),
            SlotState::Answered => (8, 0),
        };
        code << 32 | thief << 40
    }

    fn from_bits(bits: u64) -> SlotState {
        match bits >> 32 & 0xff {
            0 => SlotState::Ready,
            1 => SlotState::Taken((bits >> 40) as u32 & 0xffff),
            2 => SlotState::Leaving,
            3 => SlotState::Away,
            4 => SlotState::Returned,
            5 => SlotState::Done,
            6 => SlotState::Panicked,
            7 => SlotState::Aborted,
            8 => SlotState::Answered,
            code => unreachable!("a job record in state {code}"),
        }
    }

    /// The owner's sync need not wait any longer.
    pub fn is_settled(self) -> bool {
        !matches!(
            self,
            SlotState::Ready
                | SlotState::Taken(_)
                | SlotState::Leaving
                | SlotState::Away
                | SlotState::Returned
        )
    }
}

/// State, flags and index of a job, in one word.
struct Meta(AtomicU64);

impl Meta {
    #[inline(always)]
    fn fill(&self, index: u32, flags: u64) {
        self.0.store(u64::from(index) | flags, Ordering::Relaxed);
    }

    #[inline(always)]
    fn index(&self) -> u32 {
        self.0.load(Ordering::Relaxed) as u32
    }

    fn has(&self, flag: u64) -> bool {
        self.0.load(Ordering::Relaxed) & flag != 0
    }

    #[inline(always)]
    fn exchange(&self, other: &Meta) {
        let meta = self.0.load(Ordering::Relaxed);
        self.0
            .store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
        other.0.store(meta, Ordering::Relaxed);
    }

    fn note_depth(&self, depth: u16) {
        let meta = self.0.load(Ordering::Relaxed) & !(u64::from(u16::MAX) << 40);
        self.0
            .store(meta | u64::from(depth) << 40, Ordering::Relaxed);
    }

    fn depth(&self) -> u16 {
        let meta = self.0.load(Ordering::Relaxed);
        match SlotState::from_bits(meta) {
            SlotState::Ready => (meta >> 40) as u16,
            _ => UNKNOWN,
        }
    }

    fn state(&self) -> SlotState {
        SlotState::from_bits(self.0.load(Ordering::Acquire))
    }

    fn enter(&self, state: SlotState) -> bool {
        let mut meta = self.0.load(Ordering::Relaxed);
        loop {
            let awaited = if state.is_settled() {
                0
            } else {
                meta & AWAITED
            };
            let kept = meta & (SPECULATIVE | u64::from(u32::MAX));
            let next = kept | state.bits() | awaited;
            // Release: a thread that sees the state sees the result. Acquire: the owner announced its wait before.
            match self
                .0
                .compare_exchange_weak(meta, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return meta & AWAITED != 0,
                Err(now) => meta = now,
            }
        }
    }

    fn announce_waiting(&self) -> bool {
        let mut meta = self.0.load(Ordering::Acquire);
        loop {
            if SlotState::from_bits(meta).is_settled() {
                return false;
            }
            match self.0.compare_exchange_weak(
                meta,
                meta | AWAITED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => meta = now,
            }
        }
    }
}

impl Slot {
    /// A slot that stands in no area, for a job that its maker runs itself.
    pub(crate) fn vacant(function: &'static VTable) -> Slot {
        Slot {
            function: Cell::new(function),
            parent: Cell::new(std::ptr::null()),
            meta: Meta(AtomicU64::new(0)),
            extra: AtomicPtr::new(std::ptr::null_mut()),
            data: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Fills in everything but the arguments.
    #[inline(always)]
    pub fn fill(
        &self,
        function: &'static VTable,
        parent: *const Frame,
        index: u32,
        judge: Option<&'static Judge>,
    ) {
        self.function.set(function);
        self.parent.set(parent);
        let flags = match judge {
            Some(judge) => {
                let judge = std::ptr::from_ref(judge).cast_mut().cast();
                self.extra
                    .store(judge, std::sync::atomic::Ordering::Relaxed);
                SPECULATIVE
            }
            None => 0,
        };
        self.meta.fill(index, flags);
    }

    /// The number of the job among its parent's children.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.meta.index()
    }

    /// The state, with whatever its last writer had written before.
    pub fn state(&self) -> SlotState {
        self.meta.state()
    }

    /// Moves to a state; true if the owner is parked and has to be woken.
    ///
    /// For a settled state this is the last access of a thread that is not the owner: neither slot nor parent may be
    /// touched after it.
    pub fn enter(&self, state: SlotState) -> bool {
        self.meta.enter(state)
    }

    /// Owner: notes how deep in the tree the job stands (the length of its id), before it makes it public.
    pub(crate) fn note_depth(&self, depth: u16) {
        self.meta.note_depth(depth);
    }

    /// The depth that was noted. To be believed only while the job is public; the job may be gone by the time it is read.
    pub(crate) fn depth(&self) -> u16 {
        self.meta.depth()
    }

    /// Does the owner wait, parked, for this job and nothing else? It may, a moment later.
    pub(crate) fn is_awaited(&self) -> bool {
        self.meta.has(AWAITED)
    }

    /// Announces that the owner is about to park. False if the job was settled meanwhile.
    pub fn announce_waiting(&self) -> bool {
        self.meta.announce_waiting()
    }

    /// The judge of a speculative spawn, as long as no remote answer has come.
    pub fn judge(&self) -> Option<&'static Judge> {
        let speculative = self.meta.has(SPECULATIVE);
        // SAFETY: `fill` stored a `&'static Judge` whenever it set the flag, and `extra` is overwritten only by an
        // answer, after which the judge is not asked for.
        speculative.then(|| unsafe {
            &*self
                .extra
                .load(std::sync::atomic::Ordering::Relaxed)
                .cast::<Judge>()
        })
    }

    /// Exchanges two jobs of one invocation.
    ///
    /// # Safety
    /// The two are the caller's alone, and have not begun.
    pub(crate) unsafe fn exchange(&self, other: &Slot) {
        debug_assert_eq!(self.parent, other.parent, "jobs of two invocations");
        self.function.swap(&other.function);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let judge = self.extra.load(relaxed);
        self.extra.store(other.extra.load(relaxed), relaxed);
        other.extra.store(judge, relaxed);
        self.meta.exchange(&other.meta);
        // SAFETY: the caller has both for itself; bytes are copied as they are, whatever they are.
        unsafe { self.data.get().swap(other.data.get()) }
    }

    /// As [`Slot::exchange`], of two jobs that differ in nothing but their index and their arguments.
    ///
    /// # Safety
    /// The conditions of `exchange` hold, and both slots hold a `T`.
    #[inline(always)]
    pub(crate) unsafe fn exchange_alike<T>(&self, other: &Slot) {
        debug_assert_eq!(self.parent, other.parent, "jobs of two invocations");
        debug_assert!(std::ptr::eq(self.function.get(), other.function.get()));
        // Atomic, as the gate may read the depth of a job that was public a moment ago.
        self.meta.exchange(&other.meta);
        let (here, there) = (self.data.get(), other.data.get());
        // SAFETY: as above; the data begins with a `T`, or with the pointer to its box.
        unsafe {
            if const { fits::<T>() } {
                here.cast::<MaybeUninit<T>>().swap(there.cast());
            } else {
                here.cast::<*mut T>().swap(there.cast());
            }
        }
    }

    /// Puts a value into the record, boxed if it does not fit.
    ///
    /// # Safety
    /// The caller has the data for itself, and it is empty.
    #[inline(always)]
    pub unsafe fn put<T>(&self, value: T) {
        let data = self.data.get().cast::<u8>();
        if const { fits::<T>() } {
            // SAFETY: the data is ours, large enough and aligned to 32, as `fits` says.
            unsafe { data.cast::<T>().write(value) }
        } else {
            // SAFETY: as above, for a pointer.
            unsafe { data.cast::<*mut T>().write(Box::into_raw(Box::new(value))) }
        }
    }

    /// Takes the value out of the record.
    ///
    /// # Safety
    /// The caller has the data for itself, and a `T` was put into it.
    #[inline(always)]
    pub unsafe fn take<T>(&self) -> T {
        let data = self.data.get().cast::<u8>();
        if const { fits::<T>() } {
            // SAFETY: a `T` is there, in place; the caller promises that it is read once.
            unsafe { data.cast::<T>().read() }
        } else {
            // SAFETY: a box of a `T` is there; the caller promises that it is taken once.
            unsafe { *Box::from_raw(data.cast::<*mut T>().read()) }
        }
    }

    /// Looks at the value in the record.
    ///
    /// # Safety
    /// A `T` was put into the data, and no thread takes it as long as the reference lives.
    pub unsafe fn peek<T>(&self) -> &T {
        let data = self.data.get().cast::<u8>();
        if const { fits::<T>() } {
            // SAFETY: a `T` is there, in place.
            unsafe { &*data.cast::<T>() }
        } else {
            // SAFETY: a box of a `T` is there.
            unsafe { &*data.cast::<*mut T>().read() }
        }
    }
}

const fn fits<T>() -> bool {
    size_of::<T>() <= IN_PLACE && align_of::<T>() <= IN_PLACE
}

/// Judges whether the result of a speculative job is a failure, in both forms that a result takes.
pub struct Judge {
    /// Looks at the result in the record. Its state is about to become `Done`.
    ///
    /// Unsafe to call unless a result of the judged function is in the slot.
    pub in_slot: unsafe fn(&Slot) -> bool,
    /// Looks at the bytes that a remote run sent.
    pub in_bytes: fn(&[u8]) -> bool,
}

/// An invocation that has spawned, on the stack of the worker that runs it.
///
/// Ids are read off the chain of frames, so a spawn builds none.
pub struct Frame {
    parent: *const Frame,
    index: u32,
    /// Flags in the lower half; in the upper one, once it has been measured, the length of the invocation's id.
    flags: AtomicU32,
}

/// Facts about a frame, as bits.
pub mod flag {
    /// The children of this invocation are to stop.
    pub const ABORT: u32 = 1;
    /// The bottom of a chain: first field of a `RootFrame`.
    pub const ROOT: u32 = 2;
    /// Entered by an ordinary call from within a job: jobs below have no id and stay in this process.
    pub const NESTED: u32 = 4;
    /// The invocation may have been run before: its children are looked up.
    pub const MARKED: u32 = 8;
    /// Below a marked invocation, but this one need not look anything up.
    pub const CLEAN: u32 = 16;
    /// With [`ABORT`]: results that are finished below are worth saving.
    pub const SAVE: u32 = 32;
    /// At the bottom: a child below has been given up, so whatever the job returns now is not its result.
    pub const TORN: u32 = 64;
    /// The invocation was under way at a beat.
    pub const SEEN: u32 = 128;
    /// The invocation lives long: results of its children are harvested.
    pub const HARVEST: u32 = 256;
    /// At the bottom: no other node will ever run a job of this chain again, so nothing is harvested.
    pub const FLEETING: u32 = 512;
    /// At the bottom: a closure of ordinary code is the root job, and calls its children one after the other.
    pub const CALLING: u32 = 1 << 15;
    /// Not at the bottom: the invocation of a flow's closure, the first field of what its tasks have in common.
    pub const FLOW: u32 = CALLING;
    /// The owner of the stack has known the name of this invocation without a walk further up, and perhaps still does.
    pub const NAMED: u32 = 1 << 14;
}

/// The bits of a frame's flags that hold its stride: between [`flag::FLEETING`] and [`flag::NAMED`].
const STRIDE: u32 = 0b1111 << 10;
const STRIDE_SHIFT: u32 = STRIDE.trailing_zeros();

impl Frame {
    /// The frame of an invocation that is about to spawn.
    #[inline(always)]
    #[must_use]
    pub fn new(cx: Cx, index: u32) -> Frame {
        Frame {
            parent: cx.parent,
            index,
            flags: AtomicU32::new(0),
        }
    }

    /// A frame that is not an invocation: the bottom of a chain, or a nested entry.
    pub(crate) fn special(parent: *const Frame, flags: u32) -> Frame {
        Frame {
            parent,
            index: 0,
            flags: AtomicU32::new(flags),
        }
    }

    /// True if that flag is up.
    #[inline(always)]
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(std::sync::atomic::Ordering::Relaxed) & flag != 0
    }

    /// True of the invocation of a flow's closure.
    pub(crate) fn is_flow(&self) -> bool {
        self.has(flag::FLOW) && !self.has(flag::ROOT)
    }

    /// Raises flags; true if one of them was down.
    pub(crate) fn raise(&self, flags: u32) -> bool {
        let before = self
            .flags
            .fetch_or(flags, std::sync::atomic::Ordering::Relaxed);
        before & flags != flags
    }

    /// How short its children have been lately, from which follows how many of them are tried at the harvest.
    pub(crate) fn stride(&self) -> u32 {
        (self.flags.load(std::sync::atomic::Ordering::Relaxed) & STRIDE) >> STRIDE_SHIFT
    }

    /// Owner: sets what [`Frame::stride`] gives, at most 15.
    pub(crate) fn set_stride(&self, stride: u32) {
        let change = (self.stride() ^ stride) << STRIDE_SHIFT & STRIDE;
        // Other threads may raise other flags meanwhile.
        self.flags
            .fetch_xor(change, std::sync::atomic::Ordering::Relaxed);
    }

    /// The length of the invocation's id, if it has been noted, or [`STAYS`].
    pub(crate) fn depth(&self) -> u16 {
        (self.flags.load(std::sync::atomic::Ordering::Relaxed) >> 16) as u16
    }

    /// Notes that length. All threads note the same.
    pub(crate) fn note_depth(&self, depth: u16) {
        self.flags
            .fetch_or(u32::from(depth) << 16, std::sync::atomic::Ordering::Relaxed);
    }

    /// The frame of the invocation that spawned this one.
    pub(crate) fn parent(&self) -> *const Frame {
        self.parent
    }

    /// The number of the child among its parent's children.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

/// The position at which a function runs: the next free slot, and the frame of the invocation that called it. Two words,
/// so that it travels in registers; the worker is found from the slot's address.
#[derive(Clone, Copy)]
pub struct Cx {
    /// The first slot that is free.
    pub(crate) head: *const Slot,
    /// The invocation that spawned the one that runs here.
    pub(crate) parent: *const Frame,
}

/// The payload that unwinds an aborted job. Not a panic: no hook runs, and no message appears.
pub struct Aborted;

/// How the run of a job ended, where it did not return.
pub type Payload = Box<dyn Any + Send>;

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        cell::UnsafeCell,
        sync::{Arc, Mutex, Notify},
        thread,
    };

    use super::*;

    struct Job {
        meta: Meta,
        result: UnsafeCell<u32>,
    }

    // SAFETY: `result` is accessed as the state allows: that is what is tested, by loom's cell.
    unsafe impl Sync for Job {}
    // SAFETY: as above.
    unsafe impl Send for Job {}

    fn job() -> Arc<Job> {
        Arc::new(Job {
            meta: Meta(AtomicU64::new(u64::from(7u32))),
            result: UnsafeCell::new(0),
        })
    }

    #[test]
    fn loom_the_result_is_seen_with_its_state() {
        loom::model(|| {
            let job = job();
            let thief = {
                let job = Arc::clone(&job);
                thread::spawn(move || {
                    job.meta.enter(SlotState::Taken(3));
                    // SAFETY: the thief has the job.
                    job.result.with_mut(|result| unsafe { *result = 42 });
                    job.meta.enter(SlotState::Done)
                })
            };
            while job.meta.state() != SlotState::Done {
                thread::yield_now();
            }
            // SAFETY: the job is done: its data is the owner's.
            assert_eq!(job.result.with(|result| unsafe { *result }), 42);
            assert!(
                !thief.join().expect("the thief ends"),
                "nobody announced a wait"
            );
            assert_eq!((job.meta.state(), job.meta.index()), (SlotState::Done, 7));
        });
    }

    #[test]
    fn loom_a_parked_owner_is_woken() {
        loom::model(|| {
            let job = job();
            let thief = {
                let job = Arc::clone(&job);
                thread::spawn(move || {
                    job.meta.enter(SlotState::Taken(3));
                    job.meta.enter(SlotState::Done)
                })
            };
            let parks = job.meta.announce_waiting();
            let wakes = thief.join().expect("the thief ends");
            assert_eq!(
                parks, wakes,
                "the owner parks exactly if the thief wakes it"
            );
        });
    }

    /// A job at home, the gate's books about it, and what wakes its owner.
    struct Home {
        job: Arc<Job>,
        returned: Mutex<bool>,
        bell: Notify,
    }

    impl Home {
        fn take(&self) -> bool {
            std::mem::take(&mut *self.returned.lock().expect("nobody panics"))
        }

        /// Comes back as in `Pool::come_back`.
        fn come_back(&self) {
            let mut returned = self.returned.lock().expect("nobody panics");
            *returned = true;
            let awaited = self.job.meta.enter(SlotState::Returned);
            drop(returned);
            if awaited {
                self.bell.notify();
            }
        }

        fn run(&self) {
            // SAFETY: who has taken the job has its data.
            self.job.result.with_mut(|result| unsafe { *result += 1 });
        }

        /// Waits as `Worker::wait` does.
        fn wait(&self) {
            let meta = &self.job.meta;
            loop {
                let state = meta.state();
                if state.is_settled() {
                    return;
                }
                if state == SlotState::Returned && self.take() {
                    return self.run();
                }
                if meta.announce_waiting() {
                    let now = meta.state();
                    if now != state || now == SlotState::Returned {
                        thread::yield_now();
                        continue;
                    }
                    self.bell.wait();
                }
            }
        }
    }

    /// The owner waits for a job that comes back, or has already, while another thread takes it if it is there. In the
    /// end the job has been run once, and the owner did not sleep for ever.
    fn comes_back(already: bool, to: impl Fn(&Home) + Copy + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let home = Arc::new(Home {
                job: job(),
                returned: Mutex::new(false),
                bell: Notify::new(),
            });
            home.job.meta.enter(SlotState::Away);
            let bring = if already {
                home.come_back();
                None
            } else {
                let home = Arc::clone(&home);
                Some(thread::spawn(move || home.come_back()))
            };
            let other = {
                let home = Arc::clone(&home);
                thread::spawn(move || {
                    if home.take() {
                        to(&home);
                    }
                })
            };
            home.wait();
            // SAFETY: the job is settled, or the owner has run it.
            assert_eq!(home.job.result.with(|result| unsafe { *result }), 1);
            bring.map(|bring| bring.join().expect("it ends"));
            other.join().expect("it ends");
        });
    }

    #[test]
    fn loom_a_job_that_came_back_is_run_once() {
        comes_back(false, |home| {
            home.job.meta.enter(SlotState::Taken(3));
            home.run();
            if home.job.meta.enter(SlotState::Done) {
                home.bell.notify();
            }
        });
    }

    #[test]
    fn loom_a_claim_by_a_thief_comes_back() {
        comes_back(true, |home| {
            home.job.meta.enter(SlotState::Taken(3));
            if home.job.meta.enter(SlotState::Away) {
                home.bell.notify(); // the owner may have to recall it
            }
            home.come_back();
        });
    }

    #[test]
    fn loom_a_job_may_leave_and_come_back_again() {
        comes_back(true, |home| {
            home.job.meta.enter(SlotState::Leaving);
            home.job.meta.enter(SlotState::Away);
            home.come_back();
        });
    }
}
