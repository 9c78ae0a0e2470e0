//! What costs a program much without a word: calls that run in sequence, and results that cannot be kept. Each place, or function,
//! is told of once.
//!
//! A spawnable function that is called like any other function waits for its result right there. Inside a job that is
//! rarely meant (`call!` says that it is); in ordinary code it is how a root job begins, and worth a word only where one
//! such call follows the other and none of them gave a second worker anything to do.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    panic::Location,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::job::function::short_name;

/// The place in the source from which a function is called.
pub(super) type CallSite = &'static Location<'static>;

/// Places that a thread remembers as told. Too few: a job that calls from more places takes a lock for each call.
const REMEMBERED: usize = 16;

/// Number of root jobs from one place, one after the other, that were not shared, before the user is told. Too small:
/// short programs are warned in vain. Too large: a program that runs in sequence is not warned.
const LONELY: u32 = 3;

/// Shorter root jobs are over before another worker could have helped.
const WORTH_SHARING: Duration = Duration::from_millis(10);

/// The time of a job from which on it is told that its result is not kept. Too small: words about programs whose jobs are all large, and
/// whose nodes hardly ever crash. Too large: people learn of it from a crash.
const WORTH_KEEPING: Duration = Duration::from_secs(10);

thread_local! {
    static RECENT: [Cell<*const Location<'static>>; REMEMBERED] =
        const { [const { Cell::new(ptr::null()) }; REMEMBERED] };
}

/// A job calls a spawnable function without `spawn!` or `call!`.
#[inline]
pub(super) fn plain_call(function: &'static str, place: CallSite) {
    let at = ptr::from_ref(place);
    let seat = at.addr() / align_of::<Location<'_>>() % REMEMBERED;
    if RECENT.with(|recent| recent[seat].replace(at)) != at {
        tell_of_plain_call(function, place);
    }
}

#[cold]
#[inline(never)]
fn tell_of_plain_call(function: &'static str, place: CallSite) {
    static TOLD: Mutex<BTreeSet<Key>> = Mutex::new(BTreeSet::new());
    if lock(&TOLD).insert(key(place)) {
        let name = short_name(function);
        tracing::warn!(
            "{place}: a job calls `{name}` and waits for it right there: write `spawn!({name}(..))` for a child that may run elsewhere, \
             or `call!({name}(..))` if it is to run in sequence (docs: \"Why is it not parallel?\")"
        );
    }
}

/// The figures of a root job.
pub(super) struct RootFigures {
    /// Time for which its caller waited.
    pub(super) took: Duration,
    /// Whether another worker, or another node, could have taken some of it.
    pub(super) had_helpers: bool,
    /// True if any job was stolen meanwhile.
    pub(super) was_shared: bool,
}

/// Ordinary code has called a spawnable function, and has its result.
pub(super) fn root_call(function: &'static str, place: CallSite, run: &RootFigures) {
    static LONELY_CALLS: Mutex<BTreeMap<Key, u32>> = Mutex::new(BTreeMap::new());
    if !run.had_helpers || run.took < WORTH_SHARING {
        return;
    }
    let mut calls = lock(&LONELY_CALLS);
    let lonely = calls.entry(key(place)).or_default();
    // A shared call takes back what earlier calls have counted; after the warning the count stops.
    if run.was_shared && *lonely < LONELY {
        *lonely = 0;
    } else if *lonely < LONELY {
        *lonely += 1;
        if *lonely == LONELY {
            let name = short_name(function);
            tracing::warn!(
                "{place}: {LONELY} calls of `{name}` ran one after the other, and no other worker found anything to do: each call from \
                 ordinary code waits for its result; call `spawn!({name}(..))` in a loop of one spawnable function instead \
                 (docs: \"Why is it not parallel?\")"
            );
        }
    }
}

/// A job took that long, and neither its result is kept, as that or the arguments have too many bytes, nor any below it.
pub(super) fn not_kept(function: &'static str, took: Duration) {
    static TOLD: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if took >= WORTH_KEEPING && lock(&TOLD).insert(function) {
        let name = short_name(function);
        tracing::warn!(
            "a job of `{name}` took {took:.0?}, and neither its result is kept nor any below it: if its node crashes it is done again. \
             Its arguments, or the result, have too many bytes: pass large values as `Shared` (docs: \"What happens when every machine dies\")"
        );
    }
}

/// The same place may have several `Location`s.
type Key = (&'static str, u32, u32);

fn key(place: CallSite) -> Key {
    (place.file(), place.line(), place.column())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
