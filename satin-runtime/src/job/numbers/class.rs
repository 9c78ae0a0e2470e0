//! The types of numbers: how each is known, written into a block and read from it. One table, at the end.

use std::{any::TypeId, borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeSeed, Visitor},
    forward_to_deserialize_any,
    ser::Impossible,
};

use super::slices::{as_slice, as_slice_mut};

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

/// What a vector of numbers of the type `T` is read in: one number, or the bytes of all in a chunk of the same class.
pub(super) enum Piece<'de, T> {
    Number(T),
    Chunk(&'de [u8]),
}

struct PieceVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Piece<'de, T> {
    /// As a newtype of the number, which takes no more room: only [`WholeChunk`] knows better.
    #[inline]
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_newtype_struct("Piece", PieceVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for PieceVisitor<T> {
    type Value = Piece<'de, T>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("numbers")
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        T::deserialize(from).map(Piece::Number)
    }

    fn visit_borrowed_bytes<E: de::Error>(self, chunk: &'de [u8]) -> Result<Self::Value, E> {
        Ok(Piece::Chunk(chunk))
    }
}

/// All numbers of a chunk, to be read as a [`Piece`].
pub(super) struct WholeChunk<'de, E>(pub(super) &'de [u8], pub(super) PhantomData<E>);

impl<'de, E: de::Error> Deserializer<'de> for WholeChunk<'de, E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_borrowed_bytes(self.0)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// One number of a block, from which a number, or a newtype of one, can be read.
struct Number<T, E>(T, PhantomData<E>);

macro_rules! classes {
    ($($index:literal $name:ident $number:ident $write:ident $visit:ident ($($of:ident),+);)*) => {
        /// A type of numbers. The index is a part of the format.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(super) enum Class {
            $($name = $index,)*
        }

        impl Class {
            /// The class of a type, which may be a reference; `None` if it is no number.
            #[inline]
            pub(super) fn of<T>() -> Option<Class> {
                let this = typeid::of::<T>();
                $($(
                    if this == TypeId::of::<$of>() || this == TypeId::of::<&'static $of>() {
                        return Some(Class::$name);
                    }
                )+)*
                None
            }

            /// The class of the numbers that come in pieces of the type `P`, if it is one of pieces whose chunks lie in memory as
            /// they travel.
            #[inline]
            pub(super) fn of_pieces<P>() -> Option<Class> {
                let this = typeid::of::<P>();
                $($(
                    if this == typeid::of::<Piece<'static, $of>>() {
                        return (size_of::<$of>() == size_of::<$number>()).then_some(Class::$name);
                    }
                )+)*
                None
            }

            /// Copies the bytes of numbers to these numbers, of which there are as many. False if the types are no numbers that lie in
            /// memory as they travel, or the lengths differ.
            pub(super) fn copy_chunk<T: 'static>(chunk: &[u8], to: &mut [T]) -> bool {
                $($(
                    if let Some(numbers) = as_slice_mut::<T, $of>(to) {
                        return little_endian::copy::$of(chunk, numbers);
                    }
                )+)*
                false
            }

            pub(super) fn from_index(index: u8) -> Option<Class> {
                match index {
                    $($index => Some(Class::$name),)*
                    _ => None,
                }
            }

            /// The bytes that a number takes.
            #[inline]
            pub(super) fn size(self) -> usize {
                match self {
                    $(Class::$name => size_of::<$number>(),)*
                }
            }

            /// The bytes of a sequence of numbers of this class, if it is a slice, or as good as one.
            #[inline]
            pub(super) fn in_one_piece<I>(self, sequence: &I) -> Option<Cow<'_, [u8]>> {
                match self {
                    $(Class::$name => {
                        $(if let Some(numbers) = as_slice::<I, $of>(sequence) {
                            return Some(little_endian::$of(numbers));
                        })+
                        None
                    })*
                }
            }

            /// Reads a value from the bytes of one number.
            #[inline(always)]
            fn read_number<'de, T: DeserializeSeed<'de>, E: de::Error>(
                self,
                number: &[u8],
                seed: T,
            ) -> Result<T::Value, E> {
                match self {
                    $(Class::$name => {
                        let number = number.try_into().expect("as many bytes as a number takes");
                        seed.deserialize(Number(<$number>::from_le_bytes(number), PhantomData))
                    })*
                }
            }
        }

        /// Numbers that lie side by side, as bytes.
        mod little_endian {
            use super::Cow;

            /// The other way round.
            pub(super) mod copy {
                $($(
                    pub(in super::super) fn $of(chunk: &[u8], numbers: &mut [$of]) -> bool {
                        const SIZE: usize = size_of::<$number>();
                        if SIZE != size_of::<$of>() || chunk.len() != size_of_val(numbers) {
                            return false;
                        }
                        if cfg!(target_endian = "little") {
                            bytemuck::cast_slice_mut(numbers).copy_from_slice(chunk);
                        } else {
                            for (number, bytes) in numbers.iter_mut().zip(chunk.chunks_exact(SIZE)) {
                                let bytes = bytes.try_into().expect("chunks are that long");
                                *number = <$number>::from_le_bytes(bytes) as $of;
                            }
                        }
                        true
                    }
                )+)*
            }

            $($(
                /// Numbers that lie in memory as they travel are not copied.
                #[inline]
                pub(super) fn $of(numbers: &[$of]) -> Cow<'_, [u8]> {
                    if cfg!(target_endian = "little") && size_of::<$of>() == size_of::<$number>() {
                        Cow::Borrowed(bytemuck::cast_slice(numbers))
                    } else {
                        Cow::Owned(numbers.iter().flat_map(|&number| (number as $number).to_le_bytes()).collect())
                    }
                }
            )+)*
        }

        /// Appends numbers, each in as many bytes as it has.
        pub(super) struct AsInMemory<'b>(pub(super) &'b mut Vec<u8>);

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

        $(
            impl<'de, E: de::Error> Deserializer<'de> for Number<$number, E> {
                type Error = E;

                #[inline]
                fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
                    visitor.$visit(self.0)
                }

                #[inline]
                fn deserialize_newtype_struct<V: Visitor<'de>>(
                    self,
                    _: &'static str,
                    visitor: V,
                ) -> Result<V::Value, E> {
                    visitor.visit_newtype_struct(self)
                }

                fn is_human_readable(&self) -> bool {
                    false
                }

                forward_to_deserialize_any! {
                    bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
                    unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
                }
            }
        )*
    };
}

impl Class {
    /// Reads a value from the first number of a chunk of this class, `None` if there is none, and returns the rest of the chunk.
    #[inline]
    pub(super) fn read<'de, 'c, T: DeserializeSeed<'de>, E: de::Error>(
        self,
        chunk: &'c [u8],
        seed: T,
    ) -> Result<(Option<T::Value>, &'c [u8]), E> {
        // Of a number that is read as what it is the compiler knows the class, and leaves out all others.
        if let Some(own) = Class::of::<T::Value>()
            && own == self
        {
            let Some((number, rest)) = chunk.split_at_checked(own.size()) else {
                return Ok((None, chunk));
            };
            return Ok((Some(own.read_number(number, seed)?), rest));
        }
        let Some((number, rest)) = chunk.split_at_checked(self.size()) else {
            return Ok((None, chunk));
        };
        Ok((Some(self.read_other(number, seed)?), rest))
    }

    /// Reads a number into a type that is no number, or another one.
    #[inline(never)]
    fn read_other<'de, T: DeserializeSeed<'de>, E: de::Error>(
        self,
        number: &[u8],
        seed: T,
    ) -> Result<T::Value, E> {
        self.read_number(number, seed)
    }
}

classes! {
    0 U8 u8 serialize_u8 visit_u8 (u8);
    1 U16 u16 serialize_u16 visit_u16 (u16);
    2 U32 u32 serialize_u32 visit_u32 (u32);
    // Serde takes `usize` for `u64`, `isize` for `i64`.
    3 U64 u64 serialize_u64 visit_u64 (u64, usize);
    4 U128 u128 serialize_u128 visit_u128 (u128);
    5 I8 i8 serialize_i8 visit_i8 (i8);
    6 I16 i16 serialize_i16 visit_i16 (i16);
    7 I32 i32 serialize_i32 visit_i32 (i32);
    8 I64 i64 serialize_i64 visit_i64 (i64, isize);
    9 I128 i128 serialize_i128 visit_i128 (i128);
    10 F32 f32 serialize_f32 visit_f32 (f32);
    11 F64 f64 serialize_f64 visit_f64 (f64);
}
