//! Numbers travel as they lie in memory: a sequence of integers or floats is one piece of little-endian bytes, wherever in
//! a value it stands.
//!
//! A number alone is written as short as it is (postcard's variable-length integers). That is right for an index, and wrong
//! for a vector of a million numbers: each is looked at byte by byte, and random ones take more room than in memory. So
//! this module stands between the values of the user and postcard. It hands everything on but sequences, which it looks at by
//! the type of their elements. A sequence is written in one of two forms, as two variants of an enum:
//!
//! | form | what follows |
//! | --- | --- |
//! | 0, items | the number of elements, and each of them |
//! | 1, block | the [`Class`] of the numbers and how many there are; then chunks, byte strings of whole numbers |
//!
//! **What is a block:** a sequence of at least [`FEWEST`] numbers that are all of one of Rust's integer or float types. That
//! is what slices, vectors, boxes of slices, deques, sets, lists and heaps write, and what a `Serialize` of the user writes with
//! `collect_seq`. A byte string (`serialize_bytes`) is a sequence of `u8`.
//!
//! **What is not**, and is written item by item or field by field, as postcard does: fewer numbers; arrays, whose length is part
//! of their type; elements that are more, or less, than a number: `bool`, `char`, `NonZero`, options, newtypes, tuples, structs
//! (also those of numbers alone, as `struct Complex { re: f64, im: f64 }`), and references to references; and what a `Serialize`
//! of the user writes with `serialize_seq`, element by element.
//!
//! The numbers of a slice, a vector or an iterator over a slice are one chunk, which is copied in one piece. Those of other
//! sequences are collected in chunks of [`CHUNK`] bytes. So the same value is always the same bytes, on all machines: jobs and
//! shared values are known by a hash of their bytes.
//!
//! **What can be read.** A type reads what it has written, and what postcard lets it read of another type, but for these:
//! * From a block a type can read its elements if each of them is made of a number: of the type that was written, or of one that
//!   holds the value (but a `Vec<u8>` from a block of `u8` only); also in `NonZero` and in newtypes. An enum, a `bool`, a `char`,
//!   an option or a struct of one field cannot be read from a number, whatever postcard would make of its bytes.
//! * A byte string and a sequence of `u8` are the same, whichever is read; but a byte string is no text, and a sequence of pairs
//!   no map. A byte string can be borrowed from the bytes if it was written from a slice.
//!
//! Serde takes numbers from a block one by one, at some gigabytes a second. Where the type of a vector of numbers is known (`read_part`)
//! a block of the same numbers is copied in one piece; and of a `&mut [T]` that comes back, straight to its place (`Returned`).
//!
//! A length may be a lie. Nothing is allocated for elements that have not come, beyond a few thousand, and no sequence has more
//! items than the longest value has bytes, even if they take none.

mod class;
mod packing;
mod slices;
#[cfg(test)]
mod tests;
mod unpacking;

use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeSeed};

pub use self::unpacking::Returned;
pub(super) use self::unpacking::{read_part, read_returned};
use self::{class::Class, packing::Packing, unpacking::Unpacking};
use super::codec;

/// The fewest numbers that are written as a block. Too small: short lists of small numbers take more room. Too large: medium
/// ones are written slowly.
const FEWEST: usize = 16;

/// The bytes of numbers that are collected, and handed on together, where they do not lie side by side. Too small: the limits of
/// a writer are looked at too often. Too large: they are not in the nearest cache. A part of the format.
const CHUNK: usize = 16 << 10;

/// The enum that a sequence is written as.
const SEQUENCE: &str = "sequence";
const ITEMS: u32 = 0;
const BLOCK: u32 = 1;
const FORMS: &[&str] = &["items", "block"];

/// Writes a value.
pub(super) fn write<T: Serialize + ?Sized, S: Serializer>(
    value: &T,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.serialize(Packing(to))
}

/// Reads a value that [`write`] has written.
pub(super) fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Unpacking(PhantomData).deserialize(from)
}
