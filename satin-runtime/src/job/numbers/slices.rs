//! Which sequences lie in memory as a slice does, and which type is a vector of bytes.
//!
//! Serde hands a sequence over as an iterator of any type. If that is a slice in disguise, its numbers need not be taken one by
//! one. Rust has no stable way to ask that but by the ids of types, and none at all to use the answer without `unsafe`.

use std::{
    mem::{self, ManuallyDrop},
    slice,
};

/// The elements of a slice, of a vector, or of an iterator over a slice, if `I` is one of these, with elements of type `T`.
#[inline]
pub(super) fn as_slice<I, T: 'static>(sequence: &I) -> Option<&[T]> {
    let (this, at) = (typeid::of::<I>(), &raw const *sequence);
    if this == typeid::of::<&[T]>() {
        // SAFETY: the types are equal but for lifetimes, which are no part of a type's id and do not change its layout. `T` has
        // none, and that of the slice outlives `sequence`, which holds it, and is what the result borrows.
        Some(unsafe { *at.cast::<&[T]>() })
    } else if this == typeid::of::<&Vec<T>>() {
        // SAFETY: as above.
        Some(unsafe { *at.cast::<&Vec<T>>() })
    } else if this == typeid::of::<slice::Iter<'_, T>>() {
        // SAFETY: as above.
        Some(unsafe { &*at.cast::<slice::Iter<'_, T>>() }.as_slice())
    } else {
        None
    }
}

/// Bytes as a value of the type `T`, if that is the type of a vector of bytes.
#[inline]
pub(super) fn from_bytes<T>(bytes: Vec<u8>) -> Option<T> {
    if typeid::of::<T>() != typeid::of::<Vec<u8>>() {
        return None;
    }
    let bytes = ManuallyDrop::new(bytes);
    // SAFETY: the types are equal, as the type of a vector of bytes has no lifetime in which another could differ. The original
    // is not used again, and not dropped.
    Some(unsafe { mem::transmute_copy::<ManuallyDrop<Vec<u8>>, T>(&bytes) })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn slices_vectors_and_what_iterates_over_them_are_slices_and_nothing_else_is() {
        let numbers = vec![1u32, 2, 3];
        assert_eq!(as_slice::<_, u32>(&&numbers), Some(&numbers[..]));
        assert_eq!(as_slice::<_, u32>(&&numbers[1..]), Some(&numbers[1..]));
        let mut iter = numbers.iter();
        iter.next();
        assert_eq!(as_slice::<_, u32>(&iter), Some(&numbers[1..]));
        assert_eq!(as_slice::<_, i32>(&&numbers), None, "another type");
        assert_eq!(as_slice::<_, u32>(&numbers), None, "the vector itself");
        assert_eq!(as_slice::<_, u32>(&&[1u32, 2]), None, "an array");
        assert_eq!(as_slice::<_, u32>(&&VecDeque::from(numbers)), None);
    }

    #[test]
    fn a_vector_of_bytes_is_one_and_nothing_else_is() {
        assert_eq!(from_bytes::<Vec<u8>>(vec![1, 2]), Some(vec![1, 2]));
        assert_eq!(from_bytes::<Vec<i8>>(vec![1, 2]), None);
        assert_eq!(from_bytes::<Box<[u8]>>(vec![1, 2]), None);
    }
}
