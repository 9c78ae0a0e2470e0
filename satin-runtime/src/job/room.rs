//! Memory for large values. The system clears memory page by page as it is first written to, and with small pages that takes three times
//! as long as to write it: so long vectors ask for large ones (`madvise` of Linux, transparent huge pages). Such memory cannot grow in its
//! place: who knows how long a vector will be reserves that at once.

/// Vectors of so many bytes ask for large pages. Too small: calls of the system for what has few pages. Too large: some megabytes are
/// cleared slowly.
const LARGE: usize = 4 << 20;

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
