//! Which sequences lie in memory as a slice does, and which type is a vector of numbers.
//!
//! Serde hands a sequence over as an iterator of any type. If that is a slice in disguise, its numbers need not be taken one by
//! one. Rust has no stable way to ask that but by the ids of types, and none at all to use the answer without `unsafe`.

use std::{
    any::TypeId,
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

/// A slice to be written, with elements of type `T`, if that is the type of its elements.
#[inline]
pub(super) fn as_slice_mut<E: 'static, T: 'static>(slice: &mut [E]) -> Option<&mut [T]> {
    if TypeId::of::<E>() != TypeId::of::<T>() {
        return None;
    }
    let (at, length) = (slice.as_mut_ptr(), slice.len());
    // SAFETY: the types of the elements are equal, and neither has a lifetime. The result borrows what `slice` has borrowed.
    Some(unsafe { slice::from_raw_parts_mut(at.cast::<T>(), length) })
}

/// A vector of numbers as a value of the type `V`, if that is its type.
#[inline]
pub(super) fn from_vector<V, T: 'static>(numbers: Vec<T>) -> Option<V> {
    if typeid::of::<V>() != typeid::of::<Vec<T>>() {
        return None;
    }
    let numbers = ManuallyDrop::new(numbers);
    // SAFETY: the types are equal, as the type of such a vector has no lifetime in which another could differ. The original
    // is not used again, and not dropped.
    Some(unsafe { mem::transmute_copy::<ManuallyDrop<Vec<T>>, V>(&numbers) })
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
    fn a_vector_of_numbers_is_one_and_nothing_else_is() {
        assert_eq!(from_vector::<Vec<u8>, u8>(vec![1, 2]), Some(vec![1, 2]));
        assert_eq!(
            from_vector::<Vec<f64>, _>(vec![1.0, 2.0]),
            Some(vec![1.0, 2.0])
        );
        assert_eq!(from_vector::<Vec<i8>, u8>(vec![1, 2]), None);
        assert_eq!(from_vector::<Box<[u8]>, u8>(vec![1, 2]), None);
    }

    #[test]
    fn a_slice_is_written_as_what_it_is() {
        let mut numbers = [1u32, 2, 3];
        as_slice_mut::<_, u32>(&mut numbers[1..]).expect("of that type")[0] = 7;
        assert_eq!(numbers, [1, 7, 3]);
        assert_eq!(as_slice_mut::<_, i32>(&mut numbers), None);
    }
}
