//! Memory for large values. The system clears memory page by page as it is first written to, and with small pages that takes three times
//! as long as to write it: so long vectors ask for large ones (`madvise` of Linux, transparent huge pages). Such memory cannot grow in its
//! place: who knows how long a vector will be reserves that at once.
//!
//! Even with large pages fresh memory costs as much as a copy. So the buffers of large messages are kept for a moment when nobody has them
//! any more, and the next such message uses them: a [`Shelf`].

use std::{
    cmp::Reverse,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

/// Vectors of so many bytes ask for large pages, and are kept on the shelf. Too small: calls of the system for what has few pages. Too
/// large: some megabytes are cleared slowly.
const LARGE: usize = 4 << 20;

/// Buffers lie on the shelf for so long. Too short: none is there when the next message comes. Too long: the process seems to need memory
/// that it does not need any more.
const KEPT: Duration = Duration::from_secs(2);

/// The shelf holds so many bytes. Too small: large messages find nothing there. Too large: memory that others could use.
const MOST: usize = 1 << 30;

/// A buffer on the shelf is not used for less than this part of it. Too small: short messages keep long buffers in memory. Too large:
/// messages of changing lengths find nothing.
const LEAST_USE: f64 = 0.8;

/// Buffers that nobody has.
#[derive(Default)]
struct Shelf(Mutex<Buffers>);

#[derive(Default)]
struct Buffers {
    /// The buffers, all empty, and when each of them came; the one that came first is first.
    free: Vec<(Instant, Vec<u8>)>,
    /// A thread clears away what has been here for too long.
    is_swept: bool,
}

/// The shelf of this process.
static SHELF: Shelf = Shelf(Mutex::new(Buffers {
    free: Vec::new(),
    is_swept: false,
}));

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shortest buffer with room for so many bytes that is not much too long. Of equal ones the one that came last: those
    /// that are not needed are to grow old.
    fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut buffers = self.lock();
        let fits = |room: usize| room >= bytes && bytes as f64 >= LEAST_USE * room as f64;
        let rooms = (buffers.free.iter().enumerate())
            .map(|(at, (_, buffer))| (buffer.capacity(), Reverse(at)));
        let (_, Reverse(at)) = rooms.filter(|(room, _)| fits(*room)).min()?;
        Some(buffers.free.remove(at).1)
    }

    /// Lays a buffer down, unless there are too many. True if it is the first that is to be cleared away later.
    fn give(&self, mut buffer: Vec<u8>, now: Instant) -> bool {
        buffer.clear();
        let mut buffers = self.lock();
        let there: usize = (buffers.free.iter())
            .map(|(_, buffer)| buffer.capacity())
            .sum();
        if there + buffer.capacity() > MOST {
            drop(buffers); // to unmap a gibibyte takes a while
            return false;
        }
        buffers.free.push((now, buffer));
        !mem::replace(&mut buffers.is_swept, true)
    }

    /// Clears away what has been here for too long. The time of the next such buffer, if there is any; if there is none nobody need
    /// clear away again until [`Shelf::give`] says so.
    fn sweep(&self, now: Instant) -> Option<Instant> {
        let mut buffers = self.lock();
        let is_old = |(came, _): &(Instant, Vec<u8>)| now.saturating_duration_since(*came) >= KEPT;
        let old = buffers
            .free
            .iter()
            .take_while(|buffer| is_old(buffer))
            .count();
        let old: Vec<_> = buffers.free.drain(..old).collect();
        let next = buffers.free.first().map(|(came, _)| *came + KEPT);
        buffers.is_swept = next.is_some();
        drop(buffers);
        drop(old);
        next
    }

    /// Clears all away.
    fn clear(&self) {
        let buffers = mem::take(&mut *self.lock());
        drop(buffers); // when others can come to the shelf again
    }
}

/// A buffer that goes to the shelf when nobody has it any more.
struct LentRoom(Vec<u8>);

impl AsRef<[u8]> for LentRoom {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for LentRoom {
    fn drop(&mut self) {
        give(mem::take(&mut self.0));
    }
}

fn give(buffer: Vec<u8>) {
    if buffer.capacity() < LARGE || !SHELF.give(buffer, Instant::now()) {
        return;
    }
    let sweep = || {
        let mut next = Some(Instant::now() + KEPT);
        while let Some(at) = next {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            next = SHELF.sweep(Instant::now());
        }
    };
    if thread::Builder::new()
        .name("satin-shelf".into())
        .spawn(sweep)
        .is_err()
    {
        SHELF.clear(); // then nothing may stay: who would clear it away?
    }
}

/// The bytes, to be shared; the memory of many is used again.
pub(crate) fn share(bytes: Vec<u8>) -> Bytes {
    match bytes.capacity() >= LARGE {
        true => Bytes::from_owner(LentRoom(bytes)),
        false => bytes.into(),
    }
}

/// Reserves room for bytes that will be [shared](share), as [`Vec::try_reserve_exact`] does. False if there is not so much memory in one
/// piece.
#[inline]
pub(crate) fn reserve_shared(bytes: &mut Vec<u8>, more: usize) -> bool {
    let wanted = bytes.len().saturating_add(more);
    if bytes.capacity() >= wanted {
        return true;
    }
    if wanted >= LARGE
        && let Some(mut buffer) = SHELF.take(wanted)
    {
        buffer.extend_from_slice(bytes);
        give(mem::replace(bytes, buffer));
        return true;
    }
    let has_room = match more >= LARGE {
        true => bytes.try_reserve_exact(more).is_ok(),
        false => bytes.try_reserve(more).is_ok(), // small pieces: others will follow
    };
    // What grows by small pieces is to stay where it can be moved without a copy.
    if has_room && more >= LARGE {
        ask_for_large_pages(bytes);
    }
    has_room
}

/// Reserves room as [`Vec::reserve`] does.
#[inline]
pub(crate) fn reserve<T>(vector: &mut Vec<T>, more: usize) {
    if vector.capacity() - vector.len() < more {
        vector.reserve(more);
        // What grows by small pieces is to stay where it can be moved without a copy.
        if more.saturating_mul(size_of::<T>()) >= LARGE {
            ask_for_large_pages(vector);
        }
    }
}

/// Asks for large pages for what has been reserved, if it is much. If there are none it is as before.
#[inline]
pub(crate) fn ask_for_large_pages<T>(vector: &mut Vec<T>) {
    let spare = vector.spare_capacity_mut();
    if size_of_val(spare) >= LARGE {
        advise(spare.as_mut_ptr().cast(), size_of_val(spare));
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
#[cold]
fn advise(at: *mut u8, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    /// The size of a large page, as a rule; smaller ones, of the usual size, begin at such places too.
    const PAGE: usize = 2 << 20;
    let before = at.addr().next_multiple_of(PAGE) - at.addr();
    let whole = bytes.saturating_sub(before) / PAGE * PAGE;
    if whole > 0 {
        // SAFETY: the advice changes no byte, and the caller has this part of memory, which is not used yet, for itself.
        let _ = unsafe { madvise(at.wrapping_add(before).cast(), whole, Advice::LinuxHugepage) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise(_: *mut u8, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(megabytes: usize) -> Vec<u8> {
        Vec::with_capacity(megabytes << 20)
    }

    #[test]
    fn a_buffer_is_used_again_by_what_fills_most_of_it() {
        let (shelf, now) = (Shelf::default(), Instant::now());
        shelf.give(buffer(25), now);
        shelf.give(buffer(20), now);
        assert_eq!(shelf.take(15 << 20), None, "both are much too long");
        assert_eq!(shelf.take(26 << 20), None, "both are too short");
        let room = |wanted: usize| {
            shelf
                .take(wanted << 20)
                .map(|buffer| buffer.capacity() >> 20)
        };
        assert_eq!([room(20), room(20), room(20)], [Some(20), Some(25), None]);
    }

    #[test]
    fn what_is_not_needed_grows_old() {
        let (shelf, now) = (Shelf::default(), Instant::now());
        shelf.give(buffer(4), now);
        shelf.give(buffer(4), now + KEPT / 2);
        let used = shelf.take(4 << 20).expect("there are two");
        shelf.give(used, now + KEPT / 2);
        assert_eq!(shelf.sweep(now + KEPT), Some(now + KEPT / 2 + KEPT));
        assert!(shelf.take(4 << 20).is_some(), "one was used");
        assert_eq!(shelf.take(4 << 20), None, "the other is cleared away");
    }

    #[test]
    fn a_shelf_that_was_cleared_is_swept_again() {
        let (shelf, now) = (Shelf::default(), Instant::now());
        shelf.give(buffer(4), now);
        shelf.clear();
        assert_eq!(shelf.take(4 << 20), None);
        assert!(shelf.give(buffer(4), now), "it is to be cleared away");
    }

    #[test]
    fn what_is_on_the_shelf_is_empty() {
        let shelf = Shelf::default();
        shelf.give(vec![7; LARGE], Instant::now());
        assert_eq!(shelf.take(LARGE), Some(Vec::new()));
    }

    #[test]
    fn the_shelf_is_cleared_when_nothing_came_for_a_while() {
        let (shelf, now) = (Shelf::default(), Instant::now());
        assert!(shelf.give(buffer(4), now), "it is to be cleared away");
        assert!(
            !shelf.give(buffer(4), now + KEPT / 2),
            "somebody does that already"
        );
        assert_eq!(shelf.sweep(now), Some(now + KEPT));
        assert_eq!(shelf.sweep(now + KEPT), Some(now + KEPT / 2 + KEPT));
        assert_eq!(shelf.sweep(now + 2 * KEPT), None);
        assert!(
            shelf.give(buffer(4), now + 2 * KEPT),
            "nobody does it any more"
        );
    }

    #[test]
    fn bytes_that_are_shared_are_as_they_were_written() {
        let mut bytes = vec![1, 2, 3];
        let piece: Vec<u8> = (0..LARGE).map(|at| at as u8).collect();
        assert!(reserve_shared(&mut bytes, piece.len()));
        bytes.extend_from_slice(&piece);
        let shared = share(bytes);
        assert_eq!((&shared[..3], &shared[3..]), (&[1, 2, 3][..], &piece[..]));
    }

    #[test]
    fn a_long_vector_grows_as_any_other() {
        let mut bytes: Vec<u8> = Vec::new();
        let piece: Vec<u8> = (0..1 << 20).map(|at: u32| at as u8).collect();
        for _ in 0..9 {
            reserve(&mut bytes, piece.len());
            bytes.extend_from_slice(&piece);
        }
        assert!(bytes.chunks(piece.len()).all(|chunk| chunk == piece));
    }
}
