//! Reading: hands on all that is read but sequences and byte strings, which may be blocks.

use std::{fmt, marker::PhantomData, mem};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{
        self, DeserializeOwned, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess,
        Visitor,
    },
};

use super::{
    super::{
        fault::{self, Why},
        payload,
        trial::{self, FieldsTrial},
    },
    BLOCK, Class, FORMS, ITEMS, PLAIN, SEQUENCE,
    class::{Piece, WholeChunk},
    codec::LARGEST,
    plain::PlainVisitor,
    vectors,
};

/// The most elements that are expected because the bytes say so, before any of them has come. Too small: vectors grow in more
/// steps. Too large: a short message takes much memory.
const MOST_EXPECTED: usize = 4096;

/// Hands on all but sequences. Around a deserializer, what gives access to the parts of a value, or a seed or
/// visitor, all of which see to it that the parts below are read in the same way.
pub(super) struct Unpacking<D>(pub(super) D);

/// Reads a changed slice that has come back. What lies in memory as it has travelled stays a part of what is read, if that is
/// shared, until it is copied to its place.
pub(in crate::job) fn read_returned<'de, T: DeserializeOwned + 'static, D: Deserializer<'de>>(
    from: D,
) -> Result<Returned<T>, D::Error> {
    if Class::of_pieces::<Piece<'static, T>>().is_none() {
        return Vec::deserialize(from).map(Returned::Values);
    }
    from.deserialize_seq(ReturnedVisitor(PhantomData))
}

/// The elements of a changed slice that has come back.
pub enum Returned<T> {
    /// The elements themselves.
    Values(Vec<T>),
    /// Numbers, as they lie in memory.
    Block(Bytes),
}

impl<T: 'static> Returned<T> {
    /// The elements as a vector.
    pub(in crate::job) fn into_vec(self) -> Vec<T> {
        match self {
            Returned::Values(values) => values,
            Returned::Block(numbers) => {
                let length = numbers.len() / size_of::<T>().max(1);
                let mut values = Vec::<T>::with_capacity(length);
                // SAFETY: a block is made of numbers alone, there is room for so many, and zeros are a number.
                unsafe {
                    values.as_mut_ptr().write_bytes(0, length);
                    values.set_len(length);
                }
                Returned::<T>::Block(numbers).copy_to(&mut values);
                values
            }
        }
    }

    /// Writes the elements to their places.
    ///
    /// # Panics
    /// If there are more or fewer places than elements.
    pub(in crate::job) fn copy_to(self, places: &mut [T]) {
        const LENGTH: &str = "a `&mut [T]` argument came back with another length";
        match self {
            Returned::Values(values) => {
                assert_eq!(places.len(), values.len(), "{LENGTH}");
                (places.iter_mut().zip(values)).for_each(|(place, value)| *place = value);
            }
            Returned::Block(numbers) => assert!(Class::copy_chunk(&numbers, places), "{LENGTH}"),
        }
    }
}

struct ReturnedVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned + 'static> Visitor<'de> for ReturnedVisitor<T> {
    type Value = Returned<T>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a sequence of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pieces: A) -> Result<Returned<T>, A::Error> {
        let (mut numbers, mut chunks) = (Vec::new(), Vec::new());
        while let Some(piece) = pieces.next_element()? {
            match piece {
                Piece::Number(number) => numbers.push(number),
                Piece::Chunk(chunk) => chunks.push(chunk),
            }
        }
        Ok(match (&*chunks, numbers) {
            ([], numbers) => Returned::Values(numbers),
            ([chunk], _) => Returned::Block(
                payload::part(chunk, 0.0).unwrap_or_else(|| Bytes::copy_from_slice(chunk)),
            ),
            (chunks, _) => Returned::Block(chunks.concat().into()),
        })
    }
}

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
        deserialize_bool deserialize_char deserialize_str deserialize_string
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_unit
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        fault::note(Why::AsksFormat, "", "");
        self.0.deserialize_identifier(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        fault::note(Why::AsksFormat, "", "");
        self.0.deserialize_any(Unpacking(visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        fault::note(Why::AsksFormat, "", "");
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

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        (self.0).deserialize_enum(SEQUENCE, FORMS, BytesVisitor(visitor))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.deserialize_bytes(visitor)
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
        let visitor = StructVisitor {
            visitor,
            of: Some(name),
            fields: &[],
        };
        (self.0).deserialize_tuple_struct(name, length, visitor)
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
        let visitor = StructVisitor {
            visitor,
            of: Some(name),
            fields,
        };
        (self.0).deserialize_struct(name, fields, visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        if !trial::expects_enum(name, variants) {
            return Err(other_shape());
        }
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
        if parts.size_hint().is_some_and(|entries| entries > LARGEST) {
            return Err(too_many());
        }
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
        self.0.size_hint().map(|entries| entries.min(MOST_EXPECTED))
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
        let visitor = StructVisitor {
            visitor,
            of: None,
            fields: &[],
        };
        self.0.tuple_variant(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = StructVisitor {
            visitor,
            of: None,
            fields,
        };
        self.0.struct_variant(fields, visitor)
    }
}

/// Reads a struct, or the fields of a variant: an error names the field.
struct StructVisitor<V> {
    visitor: V,
    /// The name of the struct; `None` for a variant.
    of: Option<&'static str>,
    /// The names of the fields, if they have names.
    fields: &'static [&'static str],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StructVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(text)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        let trial = trial::of_fields(self.of);
        let mut fields = Fields {
            parts,
            of: self.of.unwrap_or_default(),
            names: self.fields,
            read: 0,
            most: trial.as_ref().map_or(usize::MAX, FieldsTrial::most),
        };
        let value = self.visitor.visit_seq(&mut fields);
        let read = fields.read;
        match trial {
            Some(trial) if !trial.is_as_written(read) => Err(other_shape()),
            _ => value,
        }
    }
}

/// The fields of a struct, or of a variant.
struct Fields<A> {
    parts: A,
    /// The name of the struct.
    of: &'static str,
    names: &'static [&'static str],
    /// How many have been read.
    read: usize,
    /// So many were written at most, if that is known.
    most: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Fields<A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let at = self.read;
        self.read += 1;
        if at >= self.most {
            return Err(other_shape());
        }
        let read = self.parts.next_element_seed(Unpacking(seed));
        let name = || self.names.get(at).copied().unwrap_or_default();
        read.map_err(|error| fault::within(error, self.of, name()))
    }

    fn size_hint(&self) -> Option<usize> {
        self.parts.size_hint()
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
            (PLAIN, plain) => plain.tuple_variant(usize::MAX, PlainVisitor(self.0)),
            (other, _) => Err(unknown_form(other)),
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
        if left > LARGEST {
            return Err(too_many());
        }
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
        Some(self.left.min(MOST_EXPECTED))
    }
}

/// Reads a block, for a visitor that expects a sequence.
struct BlockVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for BlockVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        let mut block = Block::begin(fields)?;
        match vectors::of_block::<V, _>(block.class, || block.next_chunk())? {
            Some(vector) => Ok(vector),
            None => self.0.visit_seq(block),
        }
    }
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
    /// Reads what a block begins with, and its first chunk.
    fn begin(mut fields: A) -> Result<Self, A::Error> {
        let class = fields.next_element()?.and_then(Class::from_index);
        let class = class.ok_or_else(|| de::Error::custom("a block of unknown numbers"))?;
        let left = fields.next_element()?.unwrap_or(0);
        let (chunk, left) = next_chunk(class, left, &mut fields)?;
        Ok(Block {
            class,
            chunk,
            left,
            chunks: fields,
        })
    }

    /// The next chunk; `None` after the last.
    fn next_chunk(&mut self) -> Result<Option<&'de [u8]>, A::Error> {
        if self.chunk.is_empty() {
            (self.chunk, self.left) = next_chunk(self.class, self.left, &mut self.chunks)?;
        }
        let chunk = mem::take(&mut self.chunk);
        Ok((!chunk.is_empty()).then_some(chunk))
    }
}

/// The next chunk of a block, empty if there is none, and the number of numbers in further ones.
#[cold]
fn next_chunk<'de, A: SeqAccess<'de>>(
    class: Class,
    left: usize,
    chunks: &mut A,
) -> Result<(&'de [u8], usize), A::Error> {
    if left == 0 {
        return Ok((&[], 0));
    }
    let chunk: &'de [u8] = chunks.next_element()?.unwrap_or_default();
    let (count, size) = (chunk.len() / class.size(), class.size());
    if count == 0 || count > left || !chunk.len().is_multiple_of(size) {
        return Err(de::Error::custom("a block with a piece of a number"));
    }
    Ok((chunk, left - count))
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Block<'de, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        if self.chunk.is_empty() {
            (self.chunk, self.left) = next_chunk(self.class, self.left, &mut self.chunks)?;
        }
        if Class::of_pieces::<T::Value>() == Some(self.class) && !self.chunk.is_empty() {
            let chunk = std::mem::take(&mut self.chunk);
            return seed.deserialize(WholeChunk(chunk, PhantomData)).map(Some);
        }
        let (number, rest) = self.class.read(self.chunk, seed)?;
        self.chunk = rest;
        Ok(number)
    }

    /// The numbers of this chunk are there; of others that is only said.
    fn size_hint(&self) -> Option<usize> {
        let here = self.chunk.len() / self.class.size();
        Some(here.saturating_add(self.left.min(MOST_EXPECTED)))
    }
}

/// Reads a sequence in either form, for a visitor that expects bytes.
struct BytesVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for BytesVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, sequence: A) -> Result<V::Value, A::Error> {
        match sequence.variant()? {
            // To postcard a number of `u8`s and each of them are the same as a byte string.
            (ITEMS, items) => self.0.visit_borrowed_bytes(items.newtype_variant()?),
            (BLOCK, block) => block.tuple_variant(usize::MAX, BytesBlockVisitor(self.0)),
            (other, _) => Err(unknown_form(other)),
        }
    }
}

/// Reads a block, for a visitor that expects bytes.
struct BytesBlockVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for BytesBlockVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        let mut block = Block::begin(fields)?;
        if block.class != Class::U8 {
            return Err(de::Error::custom("a block of other numbers than bytes"));
        }
        if block.left == 0 {
            return self.0.visit_borrowed_bytes(block.chunk);
        }
        let mut bytes = block.chunk.to_vec();
        while block.left > 0 {
            (block.chunk, block.left) = next_chunk(block.class, block.left, &mut block.chunks)?;
            bytes.extend_from_slice(block.chunk);
        }
        self.0.visit_byte_buf(bytes)
    }
}

/// What that is has been noted.
#[cold]
fn other_shape<E: de::Error>() -> E {
    E::custom("another struct or variant than was written")
}

#[cold]
fn unknown_form<E: de::Error>(form: u32) -> E {
    E::custom(format_args!("a sequence of the unknown form {form}"))
}

#[cold]
fn too_many<E: de::Error>() -> E {
    E::custom("more elements than there can be")
}
