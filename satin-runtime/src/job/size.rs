//! How many bytes a value takes, found without writing it: of a long sequence a few elements are looked at, and stand for
//! the others.

use std::{fmt, fmt::Write as _};

use serde::{
    Serialize, Serializer,
    ser::{
        SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

use super::codec::stack_pointer;

/// The elements of a sequence that are looked at. Too small: rows of different lengths are taken for equal. Too large: a job
/// with many vectors is measured slowly.
const LOOKED_AT: usize = 16;

/// The entries of a map from one that is looked at to the next, at most: a map has no quick way to an entry in its middle.
const STRIDE: usize = 64;

/// Bytes of a block of numbers that are written as quickly as one part of another value.
const BLOCK_PART: u64 = 64;

/// The size of a value, about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Bytes: all, or those of the parts that were looked at.
    pub bytes: u64,
    /// Parts that are written one by one, of which these bytes consist: a measure of the time that writing takes.
    pub parts: u64,
    /// The parts were too many to be looked at: the value has more bytes.
    pub is_more: bool,
}

impl Size {
    /// The bytes, unless there are more.
    #[must_use]
    pub fn whole(self) -> Option<u64> {
        (!self.is_more).then_some(self.bytes)
    }
}

/// Counts bytes and parts.
pub(super) struct Sizer {
    bytes: u64,
    parts: u64,
    /// Parts were looked at that are no numbers.
    has_others: bool,
    /// The parts that may still be looked at.
    steps: u32,
    /// There were more.
    is_more: bool,
    /// The stack must not be used below this address.
    lowest: usize,
}

impl Sizer {
    /// Looks at that many parts, at most.
    pub(super) fn new(steps: u32, lowest: usize) -> Sizer {
        Sizer {
            bytes: 0,
            parts: 0,
            has_others: false,
            steps,
            is_more: false,
            lowest,
        }
    }

    /// The size of the value. An error if it is nested too deeply, or cannot be written.
    pub(super) fn size_of<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Size, fmt::Error> {
        match value.serialize(&mut self) {
            Err(error) if !self.is_more => Err(error),
            _ => Ok(Size {
                bytes: self.bytes,
                parts: self.parts,
                is_more: self.is_more,
            }),
        }
    }

    #[inline]
    fn add_number(&mut self, bytes: usize) -> fmt::Result {
        if stack_pointer() < self.lowest {
            return Err(fmt::Error);
        }
        let Some(steps) = self.steps.checked_sub(1) else {
            self.is_more = true;
            return Err(fmt::Error);
        };
        self.steps = steps;
        self.parts += 1;
        self.bytes = self.bytes.saturating_add(bytes as u64);
        Ok(())
    }

    #[inline]
    fn add(&mut self, bytes: usize) -> fmt::Result {
        self.has_others = true;
        self.add_number(bytes)
    }

    /// Looks at some of so many elements, which stand for all.
    fn sample(
        &mut self,
        length: usize,
        looked_at: impl FnOnce(&mut Self) -> Result<usize, fmt::Error>,
    ) -> fmt::Result {
        let (bytes, parts) = (self.bytes, self.parts);
        let had_others = std::mem::take(&mut self.has_others);
        let some = looked_at(self)?;
        let in_all = |some_of_it: u64| (some_of_it as f64 * length as f64 / some as f64) as u64;
        let (more_bytes, more_parts) = (in_all(self.bytes - bytes), in_all(self.parts - parts));
        self.bytes = bytes.saturating_add(more_bytes);
        self.parts = parts.saturating_add(match self.has_others {
            true => more_parts,
            false => more_bytes / BLOCK_PART,
        });
        self.has_others |= had_others;
        Ok(())
    }
}

macro_rules! numbers {
    ($($method:ident($number:ty);)*) => {
        $(
            #[inline]
            fn $method(self, _: $number) -> fmt::Result {
                self.add_number(size_of::<$number>())
            }
        )*
    };
}

impl Serializer for &mut Sizer {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
    }

    fn serialize_str(self, value: &str) -> fmt::Result {
        self.add(1 + value.len())
    }

    fn serialize_bytes(self, value: &[u8]) -> fmt::Result {
        self.add(1 + value.len())
    }

    fn serialize_none(self) -> fmt::Result {
        self.add(1)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> fmt::Result {
        self.add(1)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> fmt::Result {
        self.add(0)
    }

    fn serialize_unit_struct(self, _: &'static str) -> fmt::Result {
        self.add(0)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> fmt::Result {
        self.add(1)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> fmt::Result {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> fmt::Result {
        self.add(1)?;
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        self.add(1)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, fmt::Error> {
        self.add(1)?;
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        self.add(1)?;
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, fmt::Error> {
        self.add(1)?;
        Ok(self)
    }

    /// Slices, vectors and sets come this way.
    fn collect_seq<I: IntoIterator<Item: Serialize>>(self, items: I) -> fmt::Result {
        let mut items = items.into_iter();
        self.add(1)?;
        let length = match items.size_hint() {
            (least, Some(most)) if least == most => least,
            _ => 0,
        };
        if length <= LOOKED_AT {
            return items.try_for_each(|item| item.serialize(&mut *self));
        }
        self.sample(length, |sizer| {
            let mut some = items.step_by(length / LOOKED_AT).take(LOOKED_AT);
            some.try_for_each(|item| item.serialize(&mut *sizer))?;
            Ok(LOOKED_AT)
        })
    }

    fn collect_map<K: Serialize, V: Serialize, I: IntoIterator<Item = (K, V)>>(
        self,
        entries: I,
    ) -> fmt::Result {
        let mut entries = entries.into_iter();
        self.add(1)?;
        let length = match entries.size_hint() {
            (least, Some(most)) if least == most => least,
            _ => 0,
        };
        if length <= LOOKED_AT {
            return entries.try_for_each(|entry| entry.serialize(&mut *self));
        }
        self.sample(length, |sizer| {
            let stride = (length / LOOKED_AT).min(STRIDE);
            let mut some = entries.step_by(stride).take(LOOKED_AT);
            some.try_for_each(|entry| entry.serialize(&mut *sizer))?;
            // Entries lie apart, whatever they consist of.
            sizer.has_others = true;
            Ok(LOOKED_AT)
        })
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> fmt::Result {
        /// Counts what is written.
        struct Length(usize);

        impl fmt::Write for Length {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0 += text.len();
                Ok(())
            }
        }

        let mut length = Length(1);
        write!(length, "{value}")?;
        self.add(length.0)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! compounds {
    ($($compound:ident: $method:ident;)*) => {
        $(impl $compound for &mut Sizer {
            type Ok = ();
            type Error = fmt::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
                value.serialize(&mut **self)
            }

            fn end(self) -> fmt::Result {
                Ok(())
            }
        })*
    };
}

macro_rules! structs {
    ($($compound:ident)*) => {
        $(impl $compound for &mut Sizer {
            type Ok = ();
            type Error = fmt::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> fmt::Result {
                value.serialize(&mut **self)
            }

            fn end(self) -> fmt::Result {
                Ok(())
            }
        })*
    };
}

compounds! {
    SerializeSeq: serialize_element;
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
}

structs! { SerializeStruct SerializeStructVariant }

impl SerializeMap for &mut Sizer {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> fmt::Result {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
        value.serialize(&mut **self)
    }

    fn end(self) -> fmt::Result {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn size_of(value: &impl Serialize, steps: u32) -> Size {
        let size = Sizer::new(steps, 0).size_of(value);
        size.expect("it has a size")
    }

    fn size(value: &impl Serialize) -> u64 {
        size_of(value, 1000).whole().expect("it has few parts")
    }

    #[test]
    fn a_value_takes_about_what_lies_in_memory() {
        assert_eq!(size(&7u64), 8);
        assert_eq!(size(&(1.5f32, true, 'x')), 9);
        assert_eq!(size(&"four"), 5);
        assert_eq!(size(&Some(vec![1u16, 2])), 6);
        assert_eq!(size(&BTreeMap::from([(1u8, "a"), (2, "bc")])), 1 + 3 + 4);
    }

    #[test]
    fn a_long_sequence_is_not_looked_at_as_a_whole() {
        let million = vec![0u64; 1_000_000];
        assert_eq!(size(&million), 8_000_001);
        let rows = vec![million; 100];
        assert_eq!(size(&rows), 800_000_101);
    }

    #[test]
    fn a_long_map_is_not_looked_at_as_a_whole() {
        let map: BTreeMap<u64, &str> = (0..100_000).map(|key| (key, "seven..")).collect();
        assert_eq!(size(&map), 1_600_001);
    }

    #[test]
    fn of_rows_that_grow_the_middle_ones_count() {
        let rows: Vec<Vec<u8>> = (0..1600).map(|length| vec![0; length]).collect();
        let all: usize = (0..1600).map(|length| length + 1).sum();
        let off = size(&rows) as f64 / all as f64;
        assert!((0.9..1.1).contains(&off), "{off}");
    }

    #[test]
    fn numbers_are_a_block_and_strings_are_parts() {
        assert_eq!(size_of(&vec!["seven"; 10_000], 1000).parts, 10_001);
        let numbers = size_of(&vec![7u64; 10_000], 1000);
        assert_eq!(numbers.parts, 1 + 80_000 / BLOCK_PART);
    }

    #[test]
    fn of_a_value_of_very_many_parts_a_lower_bound_is_known() {
        #[derive(serde::Serialize)]
        struct Boxes(u64, Option<Box<Boxes>>);

        let boxes = (0..600).fold(None, |inner, _| Some(Box::new(Boxes(7, inner))));
        let size = size_of(&boxes, 1000);
        assert!(
            size.is_more && (4000..5000).contains(&size.bytes),
            "{size:?}"
        );
        assert_eq!(size_of(&boxes, 2000).whole(), Some(600 * 9 + 1));
    }
}
