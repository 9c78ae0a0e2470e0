//! Numbers travel as they lie in memory: a sequence of integers or floats is one piece of little-endian bytes, wherever in
//! a value it stands.
//!
//! A number alone is written as short as it is (postcard's variable-length integers). That is right for an index, and wrong
//! for a vector of a million numbers: each is looked at byte by byte, and random ones take more room than in memory. So
//! this module stands between the values of the user and postcard. It hands everything on but sequences, which it looks at by
//! the type of their elements. A sequence is written in one of three forms, as variants of an enum:
//!
//! | form | what follows |
//! | --- | --- |
//! | 0, items | the number of elements, and each of them |
//! | 1, block | the [`Class`] of the numbers and how many there are; then chunks, byte strings of whole numbers |
//! | 2, plain | the size of an element; then one byte string of whole elements |
//!
//! **What is a block:** a sequence of at least [`FEWEST`] numbers that are all of one of Rust's integer or float types. That
//! is what slices, vectors, boxes of slices, deques, sets, lists and heaps write, and what a `Serialize` of the user writes with
//! `collect_seq`. A byte string (`serialize_bytes`) is a sequence of `u8`.
//!
//! **What is plain:** a slice, vector or box of a slice, not empty, of a type that is `bytemuck::Pod` and is known as such: one that the
//! signature of a spawnable function mentions, or `satin::plain!` names (see [`plain`]). Also an array of numbers, as in
//! `Vec<[f32; 3]>`. The `Serialize` and `Deserialize` of such elements are not asked. A struct of fields of several sizes could not be
//! turned around for a big-endian machine, so there is no plain data on these. The programs of a pool agree on what is plain: it goes
//! into the hash by which nodes know that they run the same.
//!
//! **What is not**, and is written item by item or field by field, as postcard does: fewer numbers; arrays, whose length is part
//! of their type; elements that are more, or less, than a number: `bool`, `char`, `NonZero`, options, newtypes, tuples and structs
//! that are not plain, and references to references; a single element, plain or not; deques, sets and heaps of plain data; and what a
//! `Serialize` of the user writes with `serialize_seq`, element by element.
//!
//! The numbers of a slice, a vector or an iterator over a slice are one chunk, which is copied in one piece. Those of other
//! sequences are collected in chunks of [`CHUNK`] bytes. So the same value is always the same bytes, on all machines: jobs and
//! shared values are known by a hash of their bytes.
//!
//! **What can be read.** A type reads what it has written, and what postcard lets it read of another type, but for these:
//! * From a block a type can read its elements if each of them is made of a number: of the type that was written, or of one that
//!   holds the value; also in `NonZero` and in newtypes. An enum, a `bool`, a `char`,
//!   an option or a struct of one field cannot be read from a number, whatever postcard would make of its bytes.
//! * From plain data a type can read elements of the type that was written, and of no other. Their size is looked at; a type of the same size
//!   is taken for the same, as postcard would take it.
//! * A byte string and a sequence of `u8` are the same, whichever is read; but a byte string is no text, and a sequence of pairs
//!   no map. A byte string can be borrowed from the bytes if it was written from a slice.
//!
//! Serde takes elements one by one, at some gigabytes a second. Where a visitor of serde's makes a vector (which a box, an `Arc` and an
//! `Option` of one go through as well), a block or plain data is copied in one piece, into memory that is aligned for it (`vectors`). A
//! `&mut [T]` of numbers that comes back is copied straight to its place (`Returned`).
//!
//! A length may be a lie. Nothing is allocated for elements that have not come, beyond a few thousand, and no sequence has more
//! items than the longest value has bytes, even if they take none.

mod class;
mod packing;
pub mod plain;
#[cfg(all(test, not(loom)))]
mod plain_tests;
mod slices;
#[cfg(test)]
mod tests;
mod unpacking;
mod vectors;

use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeSeed};

pub use self::unpacking::Returned;
pub(super) use self::unpacking::read_returned;
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
const PLAIN: u32 = 2;
const FORMS: &[&str] = &["items", "block", "plain"];

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
