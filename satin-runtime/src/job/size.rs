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

/// Counts bytes.
pub(super) struct Sizer {
    bytes: u64,
    /// The parts that may still be looked at.
    steps: u32,
    /// The stack must not be used below this address.
    lowest: usize,
}

impl Sizer {
    /// Looks at that many parts, at most.
    pub(super) fn new(steps: u32, lowest: usize) -> Sizer {
        Sizer {
            bytes: 0,
            steps,
            lowest,
        }
    }

    /// The bytes that the value takes, about. An error if it has too many parts, is nested too deeply, or cannot be written.
    pub(super) fn size_of<T: Serialize + ?Sized>(mut self, value: &T) -> Result<u64, fmt::Error> {
        value.serialize(&mut self)?;
        Ok(self.bytes)
    }

    #[inline]
    fn add(&mut self, bytes: usize) -> fmt::Result {
        if stack_pointer() < self.lowest {
            return Err(fmt::Error);
        }
        self.steps = self.steps.checked_sub(1).ok_or(fmt::Error)?;
        self.bytes = self.bytes.saturating_add(bytes as u64);
        Ok(())
    }
}

macro_rules! numbers {
    ($($method:ident($number:ty);)*) => {
        $(
            #[inline]
            fn $method(self, _: $number) -> fmt::Result {
                self.add(size_of::<$number>())
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
        let before = self.bytes;
        let mut some = items.step_by(length / LOOKED_AT).take(LOOKED_AT);
        some.try_for_each(|item| item.serialize(&mut *self))?;
        let each = (self.bytes - before) as f64 / LOOKED_AT as f64;
        self.bytes = before.saturating_add((each * length as f64) as u64);
        Ok(())
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

    fn size(value: &impl Serialize) -> u64 {
        Sizer::new(1000, 0).size_of(value).expect("it has a size")
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
    fn of_rows_that_grow_the_middle_ones_count() {
        let rows: Vec<Vec<u8>> = (0..1600).map(|length| vec![0; length]).collect();
        let all: usize = (0..1600).map(|length| length + 1).sum();
        let off = size(&rows) as f64 / all as f64;
        assert!((0.9..1.1).contains(&off), "{off}");
    }

    #[test]
    fn a_value_of_very_many_parts_is_given_up() {
        let parts: BTreeMap<u32, u32> = (0..600).map(|key| (key, key)).collect();
        assert!(Sizer::new(1000, 0).size_of(&parts).is_err());
        assert!(Sizer::new(2000, 0).size_of(&parts).is_ok());
    }
}
