//! Numbers travel as they lie in memory: a sequence of integers or floats is one piece of little-endian bytes, wherever in
//! a value it stands.
//!
//! A number alone is written as short as it is (postcard's variable-length integers). That is right for an index, and wrong
//! for a vector of a million numbers: each is looked at byte by byte, and random ones take more room than in memory. So
//! this module stands between the values of the user and postcard. It hands everything on but sequences, which it looks at by
//! the type of their elements. A sequence is written as one of two variants:
//!
//! | variant | what follows |
//! | --- | --- |
//! | 0, items | the number of elements, and each of them |
//! | 1, block | the [`Class`] of the numbers and how many there are; then chunks, byte strings of whole numbers |
//!
//! What reads a block need not know how it was written: it is given numbers of that class one by one, and takes those that
//! its type can hold, as from any format of serde. So sender and receiver may use different types, and nothing here
//! depends on how the bytes are aligned.

use std::{any::TypeId, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{
        self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
        Visitor,
    },
    ser::{
        self, Impossible, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
        SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
    },
};

/// The fewest numbers that are written as a block. Too small: short lists of small numbers take more room. Too large: medium
/// ones are written slowly.
const FEWEST: usize = 16;

/// The bytes of numbers that are collected, and handed on together. Too small: the limits of a writer are looked at too often.
/// Too large: they are not in the nearest cache.
const CHUNK: usize = 16 << 10;

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
    T::deserialize(Unpacking(from))
}

/// The methods of a serializer that takes numbers only.
macro_rules! refuse_all_else {
    () => {
        refuse_all_else! {
            serialize_bool(bool) -> ();
            serialize_char(char) -> ();
            serialize_str(&str) -> ();
            serialize_bytes(&[u8]) -> ();
            serialize_none() -> ();
            serialize_unit() -> ();
            serialize_unit_struct(&'static str) -> ();
            serialize_unit_variant(&'static str, u32, &'static str) -> ();
            serialize_seq(Option<usize>) -> Self::SerializeSeq;
            serialize_tuple(usize) -> Self::SerializeTuple;
            serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
            serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
            serialize_map(Option<usize>) -> Self::SerializeMap;
            serialize_struct(&'static str, usize) -> Self::SerializeStruct;
            serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
        }
        fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), fmt::Error> {
            Err(fmt::Error)
        }
        fn serialize_newtype_struct<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            _: &T,
        ) -> Result<(), fmt::Error> {
            Err(fmt::Error)
        }
        fn serialize_newtype_variant<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: &T,
        ) -> Result<(), fmt::Error> {
            Err(fmt::Error)
        }
    };
    ($($method:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(fn $method(self, $(_: $argument),*) -> Result<$result, fmt::Error> {
            Err(fmt::Error)
        })*
    };
}

macro_rules! classes {
    ($($index:literal $name:ident $number:ident $write:ident ($($of:ty),+);)*) => {
        /// A type of numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        enum Class {
            $($name = $index,)*
        }

        impl Class {
            /// The class of a type, which may be a reference; `None` if it is no number.
            #[inline]
            fn of<T>() -> Option<Class> {
                let this = typeid::of::<T>();
                $($(
                    if this == TypeId::of::<$of>() || this == TypeId::of::<&'static $of>() {
                        return Some(Class::$name);
                    }
                )+)*
                None
            }

            fn from_index(index: u8) -> Option<Class> {
                match index {
                    $($index => Some(Class::$name),)*
                    _ => None,
                }
            }

            /// The bytes that a number takes.
            fn size(self) -> usize {
                match self {
                    $(Class::$name => size_of::<$number>(),)*
                }
            }
        }

        /// Appends numbers, each in as many bytes as it has.
        struct AsInMemory<'b>(&'b mut Vec<u8>);

        impl Serializer for AsInMemory<'_> {
            type Ok = ();
            type Error = fmt::Error;
            type SerializeSeq = Impossible<(), fmt::Error>;
            type SerializeTuple = Impossible<(), fmt::Error>;
            type SerializeTupleStruct = Impossible<(), fmt::Error>;
            type SerializeTupleVariant = Impossible<(), fmt::Error>;
            type SerializeMap = Impossible<(), fmt::Error>;
            type SerializeStruct = Impossible<(), fmt::Error>;
            type SerializeStructVariant = Impossible<(), fmt::Error>;

            $(
                #[inline]
                fn $write(self, number: $number) -> Result<(), fmt::Error> {
                    self.0.extend_from_slice(&number.to_le_bytes());
                    Ok(())
                }
            )*

            refuse_all_else!();
        }

        impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Block<'de, A> {
            type Error = A::Error;

            #[inline]
            fn next_element_seed<T: DeserializeSeed<'de>>(
                &mut self,
                seed: T,
            ) -> Result<Option<T::Value>, A::Error> {
                if self.chunk.is_empty() && !self.find_chunk()? {
                    return Ok(None);
                }
                match self.class {
                    $(Class::$name => {
                        let Some((number, rest)) = self.chunk.split_first_chunk() else {
                            return Ok(None);
                        };
                        self.chunk = rest;
                        let number = <$number>::from_le_bytes(*number);
                        seed.deserialize(number.into_deserializer()).map(Some)
                    })*
                }
            }

            fn size_hint(&self) -> Option<usize> {
                Some(self.left + self.chunk.len() / self.class.size())
            }
        }
    };
}

classes! {
    0 U8 u8 serialize_u8 (u8);
    1 U16 u16 serialize_u16 (u16);
    2 U32 u32 serialize_u32 (u32);
    // Serde takes `usize` for `u64`, `isize` for `i64`.
    3 U64 u64 serialize_u64 (u64, usize);
    4 U128 u128 serialize_u128 (u128);
    5 I8 i8 serialize_i8 (i8);
    6 I16 i16 serialize_i16 (i16);
    7 I32 i32 serialize_i32 (i32);
    8 I64 i64 serialize_i64 (i64, isize);
    9 I128 i128 serialize_i128 (i128);
    10 F32 f32 serialize_f32 (f32);
    11 F64 f64 serialize_f64 (f64);
}

/// The numbers of a block that have not been read yet.
struct Block<'de, A> {
    class: Class,
    /// Whole numbers of that class.
    chunk: &'de [u8],
    /// The number of numbers in further chunks.
    left: usize,
    chunks: A,
}

impl<'de, A: SeqAccess<'de>> Block<'de, A> {
    /// Goes on to the next chunk; false if there is none.
    #[cold]
    fn find_chunk(&mut self) -> Result<bool, A::Error> {
        if self.left == 0 {
            return Ok(false);
        }
        let chunk: &'de [u8] = self.chunks.next_element()?.unwrap_or_default();
        let (count, size) = (chunk.len() / self.class.size(), self.class.size());
        if count == 0 || count > self.left || !chunk.len().is_multiple_of(size) {
            return Err(de::Error::custom("a block with a piece of a number"));
        }
        (self.chunk, self.left) = (chunk, self.left - count);
        Ok(true)
    }
}

/// Bytes, as serde is to see them.
struct Bytes<'b>(&'b [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

// ---- writing

/// Hands on all that is written but sequences.
struct Packing<S>(S);

/// A part of a value, on its way to [`Packing`].
struct Packed<'a, T: ?Sized>(&'a T);

/// A value of several parts, each of which goes through [`Packing`].
struct Compound<C>(C);

impl<T: Serialize + ?Sized> Serialize for Packed<'_, T> {
    #[inline]
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Packing(to))
    }
}

macro_rules! hand_on {
    ($($method:ident($($name:ident: $argument:ty),*) -> $result:ty;)*) => {
        $(
            #[inline]
            fn $method(self, $($name: $argument),*) -> Result<$result, S::Error> {
                self.0.$method($($name),*)
            }
        )*
    };
}

macro_rules! hand_on_compounds {
    ($($method:ident($($name:ident: $argument:ty),*) -> $result:ident;)*) => {
        $(
            #[inline]
            fn $method(self, $($name: $argument),*) -> Result<Self::$result, S::Error> {
                self.0.$method($($name),*).map(Compound)
            }
        )*
    };
}

impl<S: Serializer> Serializer for Packing<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Compound<S::SerializeTupleVariant>;
    type SerializeTuple = Compound<S::SerializeTuple>;
    type SerializeTupleStruct = Compound<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Compound<S::SerializeTupleVariant>;
    type SerializeMap = Compound<S::SerializeMap>;
    type SerializeStruct = Compound<S::SerializeStruct>;
    type SerializeStructVariant = Compound<S::SerializeStructVariant>;

    hand_on! {
        serialize_bool(value: bool) -> S::Ok;
        serialize_i8(value: i8) -> S::Ok;
        serialize_i16(value: i16) -> S::Ok;
        serialize_i32(value: i32) -> S::Ok;
        serialize_i64(value: i64) -> S::Ok;
        serialize_i128(value: i128) -> S::Ok;
        serialize_u8(value: u8) -> S::Ok;
        serialize_u16(value: u16) -> S::Ok;
        serialize_u32(value: u32) -> S::Ok;
        serialize_u64(value: u64) -> S::Ok;
        serialize_u128(value: u128) -> S::Ok;
        serialize_f32(value: f32) -> S::Ok;
        serialize_f64(value: f64) -> S::Ok;
        serialize_char(value: char) -> S::Ok;
        serialize_str(value: &str) -> S::Ok;
        serialize_bytes(value: &[u8]) -> S::Ok;
        serialize_none() -> S::Ok;
        serialize_unit() -> S::Ok;
        serialize_unit_struct(name: &'static str) -> S::Ok;
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str) -> S::Ok;
    }

    hand_on_compounds! {
        serialize_tuple(length: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct;
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, length: usize) -> SerializeTupleVariant;
        serialize_map(length: Option<usize>) -> SerializeMap;
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct;
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, length: usize) -> SerializeStructVariant;
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Packed(value))
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_struct(name, &Packed(value))
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        (self.0).serialize_newtype_variant(name, index, variant, &Packed(value))
    }

    /// The number of elements is the first field of the variant.
    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        let unknown = || ser::Error::custom("a sequence does not know how many elements it has");
        let length = length.ok_or_else(unknown)?;
        let form = FORMS[ITEMS as usize];
        let mut fields = (self.0).serialize_tuple_variant(SEQUENCE, ITEMS, form, length + 1)?;
        fields.serialize_field(&length)?;
        Ok(Compound(fields))
    }

    fn collect_seq<I>(self, items: I) -> Result<S::Ok, S::Error>
    where
        I: IntoIterator<Item: Serialize>,
    {
        let mut items = items.into_iter();
        let length = match items.size_hint() {
            (least, Some(most)) if least == most => Some(least),
            _ => None,
        };
        if let Some(class) = Class::of::<I::Item>()
            && let Some(length) = length
            && length >= FEWEST
        {
            return write_block(self.0, class, length, items);
        }
        let mut sequence = self.serialize_seq(length)?;
        items.try_for_each(|item| sequence.serialize_element(&item))?;
        SerializeSeq::end(sequence)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Writes so many numbers of that class.
fn write_block<S: Serializer>(
    to: S,
    class: Class,
    length: usize,
    mut numbers: impl Iterator<Item: Serialize>,
) -> Result<S::Ok, S::Error> {
    let per_chunk = CHUNK / class.size();
    let (form, fields) = (FORMS[BLOCK as usize], 2 + length.div_ceil(per_chunk));
    let mut fields = to.serialize_tuple_variant(SEQUENCE, BLOCK, form, fields)?;
    fields.serialize_field(&(class as u8))?;
    fields.serialize_field(&length)?;
    let (mut left, mut chunk) = (length, Vec::with_capacity(CHUNK.min(length * class.size())));
    while left > 0 {
        let mut some = numbers.by_ref().take(per_chunk.min(left));
        (some.try_for_each(|number| number.serialize(AsInMemory(&mut chunk))))
            .map_err(ser::Error::custom)?;
        let count = chunk.len() / class.size();
        if count == 0 {
            return Err(ser::Error::custom("a sequence ends before its end"));
        }
        fields.serialize_field(&Bytes(&chunk))?;
        chunk.clear();
        left -= count;
    }
    fields.end()
}

impl<C: SerializeTupleVariant> SerializeSeq for Compound<C> {
    type Ok = C::Ok;
    type Error = C::Error;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.0.serialize_field(&Packed(value))
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.0.end()
    }
}

macro_rules! compound {
    ($($of:ident $method:ident($($name:ident)?);)*) => {$(
        impl<C: $of> $of for Compound<C> {
            type Ok = C::Ok;
            type Error = C::Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($name: &'static str,)?
                value: &T,
            ) -> Result<(), C::Error> {
                self.0.$method($($name,)? &Packed(value))
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.0.end()
            }
        }
    )*};
}

compound! {
    SerializeTuple serialize_element();
    SerializeTupleStruct serialize_field();
    SerializeTupleVariant serialize_field();
    SerializeStruct serialize_field(name);
    SerializeStructVariant serialize_field(name);
}

impl<C: SerializeMap> SerializeMap for Compound<C> {
    type Ok = C::Ok;
    type Error = C::Error;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.0.serialize_key(&Packed(key))
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.0.serialize_value(&Packed(value))
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.0.end()
    }
}

// ---- reading

/// Hands on all that is read but sequences. Around a deserializer, what gives access to the parts of a value, or a seed or
/// visitor, all of which see to it that the parts below are read in the same way.
struct Unpacking<D>(D);

macro_rules! hand_back {
    ($($method:ident)*) => {
        $(
            #[inline]
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
                self.0.$method(visitor)
            }
        )*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Unpacking<D> {
    type Error = D::Error;

    hand_back! {
        deserialize_bool deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_unit deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Unpacking(visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_ignored_any(Unpacking(visitor))
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Unpacking(visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        (self.0).deserialize_newtype_struct(name, Unpacking(visitor))
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        (self.0).deserialize_enum(SEQUENCE, FORMS, SequenceVisitor(visitor))
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(length, Unpacking(visitor))
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        (self.0).deserialize_tuple_struct(name, length, Unpacking(visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Unpacking(visitor))
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        (self.0).deserialize_struct(name, fields, Unpacking(visitor))
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        (self.0).deserialize_enum(name, variants, Unpacking(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Unpacking<T> {
    type Value = T::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T::Value, D::Error> {
        self.0.deserialize(Unpacking(from))
    }
}

/// Values of several parts, the only ones that deserializers get such a visitor for.
impl<'de, V: Visitor<'de>> Visitor<'de> for Unpacking<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Unpacking(from))
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Unpacking(from))
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Unpacking(parts))
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Unpacking(parts))
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Unpacking(parts))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Unpacking<A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Unpacking(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Unpacking<A> {
    type Error = A::Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        self.0.next_key_seed(Unpacking(seed))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(Unpacking(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Unpacking<A> {
    type Error = A::Error;
    type Variant = Unpacking<A::Variant>;

    #[inline]
    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Self::Variant), A::Error> {
        let (value, variant) = self.0.variant_seed(seed)?;
        Ok((value, Unpacking(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Unpacking<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.0.newtype_variant_seed(Unpacking(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, Unpacking(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Unpacking(visitor))
    }
}

/// Reads a sequence in either form, for a visitor that expects one.
struct SequenceVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for SequenceVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, sequence: A) -> Result<V::Value, A::Error> {
        match sequence.variant()? {
            // How many fields there are is said by the first of them.
            (ITEMS, items) => items.tuple_variant(usize::MAX, ItemsVisitor(self.0)),
            (BLOCK, block) => block.tuple_variant(usize::MAX, BlockVisitor(self.0)),
            (other, _) => Err(de::Error::custom(format_args!(
                "a sequence of the unknown form {other}"
            ))),
        }
    }
}

/// Reads a sequence of items.
struct ItemsVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for ItemsVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<V::Value, A::Error> {
        let left = fields.next_element()?.unwrap_or(0);
        self.0.visit_seq(Items { fields, left })
    }
}

/// The items of a sequence that have not been read yet.
struct Items<A> {
    fields: A,
    left: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        self.fields.next_element_seed(Unpacking(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// Reads a block.
struct BlockVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for BlockVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<V::Value, A::Error> {
        let class = fields.next_element()?.and_then(Class::from_index);
        let class = class.ok_or_else(|| de::Error::custom("a block of unknown numbers"))?;
        let left = fields.next_element()?.unwrap_or(0);
        self.0.visit_seq(Block {
            class,
            chunk: &[],
            left,
            chunks: fields,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    use proptest::{collection::vec, prelude::*};
    use serde::de::DeserializeOwned;

    use super::*;

    fn written<T: Serialize>(value: &T) -> Vec<u8> {
        postcard::to_stdvec(&Packed(value)).expect("it can be written")
    }

    fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> postcard::Result<T> {
        let mut from = postcard::Deserializer::from_bytes(bytes);
        let value = read(&mut from)?;
        assert_eq!(from.finalize()?, b"", "all bytes belong to the value");
        Ok(value)
    }

    fn there_and_back<T: Serialize + DeserializeOwned>(value: &T) -> T {
        from_bytes(&written(value)).expect("what was written can be read")
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
    enum Tree {
        Leaf,
        Numbers(Vec<u64>),
        Pair(Box<Tree>, Box<Tree>),
        Named {
            names: BTreeMap<String, Vec<i16>>,
            all: Vec<Tree>,
            maybe: Option<Vec<f64>>,
        },
    }

    fn tree() -> impl Strategy<Value = Tree> {
        let numbers = vec(any::<u64>(), 0..40).prop_map(Tree::Numbers);
        let leaf = prop_oneof![Just(Tree::Leaf), numbers];
        leaf.prop_recursive(4, 40, 4, |inner| {
            let names =
                proptest::collection::btree_map("[a-c]{0,3}", vec(any::<i16>(), 0..40), 0..3);
            let maybe = proptest::option::of(vec(-1e9..1e9f64, 0..40));
            let named = (names, vec(inner.clone(), 0..4), maybe);
            prop_oneof![
                (inner.clone(), inner)
                    .prop_map(|(left, right)| Tree::Pair(Box::new(left), Box::new(right))),
                named.prop_map(|(names, all, maybe)| Tree::Named { names, all, maybe }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(tree in tree()) {
            prop_assert_eq!(there_and_back(&tree), tree);
        }

        #[test]
        fn whatever_comes_is_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let _ = read::<Tree, _>(&mut postcard::Deserializer::from_bytes(&bytes));
        }
    }

    #[test]
    fn numbers_of_each_class_are_written_as_they_lie_in_memory() {
        macro_rules! each {
            ($($class:ident $number:ty),*) => {$(
                let numbers: Vec<$number> = (0..100u8).map(|i| <$number>::try_from(i).expect("small")).collect();
                let bytes = written(&numbers);
                let in_memory: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                assert!(bytes.ends_with(&in_memory), stringify!($number));
                assert_eq!(bytes.len() - in_memory.len(), 4 + usize::from(in_memory.len() > 127));
                assert_eq!(there_and_back(&numbers), numbers);
                assert_eq!(Class::of::<$number>(), Some(Class::$class));
                assert_eq!(Class::from_index(Class::$class as u8), Some(Class::$class));
            )*};
        }
        each!(U8 u8, U16 u16, U32 u32, U64 u64, U128 u128, U64 usize);
        each!(I8 i8, I16 i16, I32 i32, I64 i64, I128 i128, I64 isize, F32 f32, F64 f64);
        assert_eq!(Class::of::<char>(), None);
    }

    #[test]
    fn few_numbers_are_written_as_short_as_they_are() {
        assert_eq!(written(&vec![7u64; 3]), [0, 3, 7, 7, 7]);
        assert_eq!(written(&vec![7u64; FEWEST]).len(), 5 + 8 * FEWEST);
    }

    #[test]
    fn any_sequence_of_numbers_is_a_block_and_any_can_be_read_from_it() {
        let numbers: VecDeque<u32> = (0..1000).collect();
        let bytes = written(&(1u8, &numbers, "after"));
        assert_eq!(bytes.len(), 1 + (1 + 1 + 2 + 2 + 4000) + 6);
        let (before, set, after): (u8, BTreeSet<u64>, String) = from_bytes(&bytes).expect("a set");
        assert_eq!((before, after.as_str()), (1, "after"));
        assert!(set.into_iter().eq(0..1000));
        // What does not fit is an error, as with any format of serde.
        assert!(from_bytes::<(u8, Vec<u8>, String)>(&bytes).is_err());
        assert!(from_bytes::<(u8, Vec<String>, String)>(&bytes).is_err());
    }

    #[test]
    fn slices_and_boxes_are_blocks_too() {
        let numbers = [1.5f64; 100];
        let as_slice = written(&numbers.as_slice());
        assert_eq!(as_slice.len(), 1 + 1 + 1 + 2 + 800);
        let boxed: Box<[f64]> = from_bytes(&as_slice).expect("a box");
        assert_eq!(written(&boxed), as_slice);
        assert_eq!(*boxed, numbers);
    }

    #[test]
    fn long_sequences_are_written_in_chunks() {
        for length in [CHUNK / 8 - 1, CHUNK / 8, CHUNK / 8 + 1, 100_000] {
            let numbers: Vec<u64> = (0..length as u64).collect();
            assert_eq!(there_and_back(&numbers), numbers);
            assert_eq!(there_and_back(&(numbers, 7u8)).1, 7);
        }
    }

    #[test]
    fn a_block_that_is_none_is_refused() {
        let bytes = written(&vec![1u64; 20]);
        assert_eq!(bytes[..5], [BLOCK as u8, Class::U64 as u8, 20, 0xa0, 0x01]);
        let refused = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            let read = read::<Vec<u64>, _>(&mut postcard::Deserializer::from_bytes(&bytes));
            assert!(read.is_err(), "byte {at} = {byte}");
        };
        refused(0, 2); // a form that there is not
        refused(1, 12); // of what class?
        refused(2, 19); // fewer numbers than bytes
        refused(2, 21); // more
        refused(3, 0xa1); // a piece of a number
        refused(3, 0xa8); // more bytes than there are
    }

    #[test]
    fn a_sequence_of_values_of_no_size_does_not_take_memory() {
        let many = vec![(); 1_000_000];
        assert_eq!(written(&many).len(), 4);
        assert_eq!(there_and_back(&many).len(), 1_000_000);
    }
}
