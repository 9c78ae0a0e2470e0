//! Which sequences lie in memory as a slice does, and how vectors are made of bytes.
//!
//! Serde hands a sequence over as an iterator of any type, and wants a value of any type. If these are a slice and a vector in
//! disguise, their elements need not be taken one by one. Rust has no stable way to ask that but by the ids of types, and none at all to
//! use the answer without `unsafe`.

use std::{
    any::{Any, TypeId},
    marker::PhantomData,
    ptr, slice,
};

use bytemuck::Pod;

use crate::job::room;

/// A sequence of a type that is known by its id only.
#[derive(Clone, Copy)]
pub(super) struct Disguised<'a> {
    id: TypeId,
    /// A value of that type, which lives as long as `'a`.
    at: *const (),
    lives: PhantomData<&'a ()>,
}

impl<'a> Disguised<'a> {
    #[inline]
    pub(super) fn new<I>(sequence: &'a I) -> Disguised<'a> {
        Disguised {
            id: typeid::of::<I>(),
            at: (&raw const *sequence).cast(),
            lives: PhantomData,
        }
    }

    /// The types that are a slice of `T`s in disguise: a slice, a vector, and an iterator over a slice.
    #[inline]
    pub(super) fn ids<T: 'static>() -> [TypeId; 3] {
        [
            TypeId::of::<&[T]>(),
            TypeId::of::<&Vec<T>>(),
            TypeId::of::<slice::Iter<'_, T>>(),
        ]
    }

    /// The elements, if the sequence is a slice in disguise, with elements of type `T`.
    #[inline]
    pub(super) fn slice<T: 'static>(self) -> Option<&'a [T]> {
        let [slice, vector, iterator] = Disguised::ids::<T>();
        if self.id == slice {
            // SAFETY: the types are equal but for lifetimes, which are no part of a type's id and do not change its layout. `T` has
            // none, and that of the slice outlives the sequence, which holds it, and as long as which the result is borrowed.
            Some(unsafe { *self.at.cast::<&[T]>() })
        } else if self.id == vector {
            // SAFETY: as above.
            Some(unsafe { *self.at.cast::<&Vec<T>>() })
        } else if self.id == iterator {
            // SAFETY: as above.
            Some(unsafe { &*self.at.cast::<slice::Iter<'_, T>>() }.as_slice())
        } else {
            None
        }
    }
}

/// The elements of a slice, of a vector, or of an iterator over a slice, if `I` is one of these, with elements of type `T`.
#[inline]
pub(super) fn as_slice<I, T: 'static>(sequence: &I) -> Option<&[T]> {
    Disguised::new(sequence).slice()
}

/// Appends the elements that lie in these bytes, which may be anywhere in memory. A part of an element is left out.
#[inline]
pub(super) fn append<T: Pod>(to: &mut Vec<T>, bytes: &[u8]) {
    let count = bytes.len().checked_div(size_of::<T>()).unwrap_or(0);
    room::reserve(to, count);
    // SAFETY: there is room for so many elements behind those that are there, and no other part of the program has it. Any bytes are
    // an element of plain data, and so many are read as there are.
    unsafe {
        let end = to.as_mut_ptr().add(to.len());
        ptr::copy_nonoverlapping(bytes.as_ptr(), end.cast(), count * size_of::<T>());
        to.set_len(to.len() + count);
    }
}

/// A value made of bytes, with its type erased: an element of plain data, or a vector of them.
pub(super) struct ErasedValue(Box<dyn Any>);

impl ErasedValue {
    #[inline]
    pub(super) fn element<T: Pod>(element: T) -> ErasedValue {
        ErasedValue(Box::new(element))
    }

    #[inline]
    pub(super) fn vector<T: Pod>(vector: Vec<T>) -> ErasedValue {
        ErasedValue(Box::new(vector))
    }

    /// The value, if `T` is its type.
    #[inline]
    pub(super) fn into_type<T>(self) -> Option<T> {
        if (*self.0).type_id() != typeid::of::<T>() {
            return None;
        }
        // SAFETY: the box was made of a value of this type: the types are equal but for lifetimes, and those of plain data mean
        // nothing, as any bytes are a value.
        Some(*unsafe { Box::from_raw(Box::into_raw(self.0).cast::<T>()) })
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
    fn what_was_made_is_of_its_type_and_of_no_other() {
        let vector = || ErasedValue::vector(vec![1u8, 2]);
        assert_eq!(vector().into_type::<Vec<u8>>(), Some(vec![1, 2]));
        assert_eq!(vector().into_type::<Vec<i8>>(), None);
        assert_eq!(vector().into_type::<Box<[u8]>>(), None);
        assert_eq!(ErasedValue::element(7u8).into_type::<u8>(), Some(7));
        assert_eq!(ErasedValue::element(7u8).into_type::<i8>(), None);
    }

    #[test]
    fn elements_are_taken_from_bytes_that_lie_anywhere() {
        let bytes: Vec<u8> = (0..65).collect();
        for from in 0..8 {
            let mut numbers = vec![7u64];
            append(&mut numbers, &bytes[from..]);
            let whole = bytes[from..].chunks_exact(8);
            let expected = whole.map(|number| u64::from_ne_bytes(number.try_into().expect("8")));
            assert!(numbers[1..].iter().copied().eq(expected));
            assert_eq!((numbers[0], numbers.len()), (7, 8 + usize::from(from < 2)));
        }
        let mut nothing = vec![()];
        append(&mut nothing, &bytes);
        assert_eq!(nothing.len(), 1);
    }

    #[test]
    fn a_slice_is_written_as_what_it_is() {
        let mut numbers = [1u32, 2, 3];
        as_slice_mut::<_, u32>(&mut numbers[1..]).expect("of that type")[0] = 7;
        assert_eq!(numbers, [1, 7, 3]);
        assert_eq!(as_slice_mut::<_, i32>(&mut numbers), None);
    }
}
