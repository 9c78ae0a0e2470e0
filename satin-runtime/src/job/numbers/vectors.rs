//! Vectors, which are read in one piece: what lies in the bytes as it lies in memory need not be taken one by one.
//!
//! Serde has a visitor take the elements of a sequence, whatever it makes of them. That of `Vec<T>` makes the vector of them all.
//! Its type has no name outside of serde, but an id, and a `Vec<T>` that is asked to read itself shows it.

use std::{any::TypeId, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, Visitor},
    forward_to_deserialize_any,
};

use super::{
    class::Class,
    slices::{ErasedValue, append},
};

/// The visitor that makes a `Vec<T>` of a sequence.
#[inline]
pub(super) fn visitor_of<T: DeserializeOwned>() -> Option<TypeId> {
    match Vec::<T>::deserialize(VectorProbe) {
        Err(Asked(visitor)) => visitor,
        Ok(_) => None,
    }
}

/// Tells the type of the visitor that a sequence is to be read by.
struct VectorProbe;

/// That type, as an error; `None` if no sequence is to be read.
#[derive(Debug)]
struct Asked(Option<TypeId>);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a type was only asked for")
    }
}

impl std::error::Error for Asked {}

impl de::Error for Asked {
    fn custom<T: fmt::Display>(_: T) -> Asked {
        Asked(None)
    }
}

impl<'de> Deserializer<'de> for VectorProbe {
    type Error = Asked;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
        Err(Asked(None))
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
        Err(Asked(Some(typeid::of::<V>())))
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct tuple tuple_struct map struct enum identifier ignored_any
    }
}

macro_rules! number_vectors {
    ($($number:ident)*) => {
        /// Reads the chunks of a block in one piece each, if the visitor makes a vector of numbers of that class, and these lie in
        /// the bytes as they do in memory. `None` is the end of the chunks.
        #[inline]
        pub(super) fn of_block<'de, V: Visitor<'de>, E>(
            class: Class,
            mut next_chunk: impl FnMut() -> Result<Option<&'de [u8]>, E>,
        ) -> Result<Option<V::Value>, E> {
            $(
                if visitor_of::<$number>() == Some(typeid::of::<V>()) {
                    // On a small machine a `usize` is less than the number that it travels as.
                    let is_as_in_memory = cfg!(target_endian = "little") && size_of::<$number>() == class.size();
                    if Class::of::<$number>() != Some(class) || !is_as_in_memory {
                        return Ok(None);
                    }
                    let mut numbers: Vec<$number> = Vec::new();
                    while let Some(chunk) = next_chunk()? {
                        append(&mut numbers, chunk);
                    }
                    return Ok(ErasedValue::vector(numbers).into_type());
                }
            )*
            Ok(None)
        }
    };
}

number_vectors! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }
