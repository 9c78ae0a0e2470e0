//! Writing: hands on all that is written but sequences of numbers and byte strings.

use std::fmt;

use serde::{
    Serialize, Serializer,
    ser::{
        self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

use super::{
    super::{
        fault::{self, Why},
        trial::{Shape, meet},
    },
    BLOCK, CHUNK, Class, FEWEST, FORMS, ITEMS, SEQUENCE,
    class::AsInMemory,
    codec::LARGEST,
    plain,
};

/// Bytes, as serde is to see them.
pub(super) struct Bytes<'b>(pub(super) &'b [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

/// A serializer that hands on all but sequences.
pub(super) struct Packing<S>(pub(super) S);

/// A part of a value, on its way to [`Packing`].
struct Packed<'a, T: ?Sized>(&'a T);

/// A value of several parts, each of which goes through [`Packing`].
pub(super) struct Compound<C> {
    to: C,
    /// The name of its type, if it has one.
    of: &'static str,
    announced: usize,
    written: usize,
}

impl<C> Compound<C> {
    #[inline]
    fn new(to: C, of: &'static str, announced: usize) -> Compound<C> {
        Compound {
            to,
            of,
            announced,
            written: 0,
        }
    }

    /// All parts have been written. An error if they are others than were announced: the reader would take what follows for one of them.
    #[inline]
    fn finish<E: ser::Error>(self) -> Result<C, E> {
        let Compound {
            to,
            of,
            announced,
            written,
        } = self;
        if announced == written {
            return Ok(to);
        }
        Err(fault::raise(Why::Count { announced, written }, of, ""))
    }
}

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
        serialize_none() -> S::Ok;
        serialize_unit() -> S::Ok;
        serialize_unit_struct(name: &'static str) -> S::Ok;
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        meet(Shape::of_variant(name, index, variant, 0));
        self.0.serialize_unit_variant(name, index, variant)
    }

    #[inline]
    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        let to = self.0.serialize_tuple(length)?;
        Ok(Compound::new(to, "", length))
    }

    #[inline]
    fn serialize_tuple_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        meet(Shape::of_struct(name, length));
        let to = self.0.serialize_tuple_struct(name, length)?;
        Ok(Compound::new(to, name, length))
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        meet(Shape::of_variant(name, index, variant, length));
        let to = (self.0).serialize_tuple_variant(name, index, variant, length)?;
        Ok(Compound::new(to, name, length))
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        let length = length.ok_or_else(|| fault::raise(Why::NoLength, "", ""))?;
        let to = self.0.serialize_map(Some(length))?;
        Ok(Compound::new(to, "", length))
    }

    #[inline]
    fn serialize_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        meet(Shape::of_struct(name, length));
        let to = self.0.serialize_struct(name, length)?;
        Ok(Compound::new(to, name, length))
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        meet(Shape::of_variant(name, index, variant, length));
        let to = (self.0).serialize_struct_variant(name, index, variant, length)?;
        Ok(Compound::new(to, name, length))
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
        meet(Shape::of_variant(name, index, variant, 1));
        (self.0).serialize_newtype_variant(name, index, variant, &Packed(value))
    }

    /// Bytes are written as a sequence of them: postcard writes both alike, and there are types that write one and read the
    /// other.
    fn serialize_bytes(self, bytes: &[u8]) -> Result<S::Ok, S::Error> {
        if bytes.len() < FEWEST {
            let form = FORMS[ITEMS as usize];
            return (self.0).serialize_newtype_variant(SEQUENCE, ITEMS, form, &Bytes(bytes));
        }
        write_piece(self.0, Class::U8, bytes)
    }

    /// The number of elements is the first field of the variant.
    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        let length = length.ok_or_else(|| fault::raise(Why::NoLength, "", ""))?;
        if length > LARGEST {
            return Err(ser::Error::custom("a sequence of too many elements"));
        }
        let form = FORMS[ITEMS as usize];
        let mut fields = (self.0).serialize_tuple_variant(SEQUENCE, ITEMS, form, length + 1)?;
        fields.serialize_field(&length)?;
        Ok(Compound::new(fields, "", length))
    }

    fn collect_seq<I>(self, items: I) -> Result<S::Ok, S::Error>
    where
        I: IntoIterator<Item: Serialize>,
    {
        let class = Class::of::<I::Item>();
        if let Some(class) = class
            && let Some(bytes) = class.in_one_piece(&items)
            && bytes.len() >= FEWEST * class.size()
        {
            return write_piece(self.0, class, &bytes);
        }
        if class.is_none()
            && let Some(piece) = plain::in_one_piece(&items)
        {
            return plain::write(self.0, &piece);
        }
        let mut items = items.into_iter();
        let length = match items.size_hint() {
            (least, Some(most)) if least == most => Some(least),
            _ => None,
        };
        if let Some(class) = class
            && let Some(length) = length
            && length >= FEWEST
        {
            return write_pieces(self.0, class, length, items);
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

/// Begins a block of so many numbers, in so many chunks.
fn begin_block<S: Serializer>(
    to: S,
    class: Class,
    length: usize,
    chunks: usize,
) -> Result<S::SerializeTupleVariant, S::Error> {
    let form = FORMS[BLOCK as usize];
    let mut fields = to.serialize_tuple_variant(SEQUENCE, BLOCK, form, 2 + chunks)?;
    fields.serialize_field(&(class as u8))?;
    fields.serialize_field(&length)?;
    Ok(fields)
}

/// Writes numbers that lie side by side.
fn write_piece<S: Serializer>(to: S, class: Class, bytes: &[u8]) -> Result<S::Ok, S::Error> {
    let mut fields = begin_block(to, class, bytes.len() / class.size(), 1)?;
    fields.serialize_field(&Bytes(bytes))?;
    fields.end()
}

/// Collects numbers and writes them, a chunk at a time.
fn write_pieces<S: Serializer>(
    to: S,
    class: Class,
    length: usize,
    mut numbers: impl Iterator<Item: Serialize>,
) -> Result<S::Ok, S::Error> {
    let per_chunk = CHUNK / class.size();
    let mut fields = begin_block(to, class, length, length.div_ceil(per_chunk))?;
    let (mut left, mut chunk) = (length, Vec::new());
    while left > 0 {
        let count = per_chunk.min(left);
        chunk.clear();
        chunk.reserve_exact(count * class.size());
        (numbers.by_ref().take(count))
            .try_for_each(|number| number.serialize(AsInMemory(&mut chunk)))
            .map_err(ser::Error::custom)?;
        if chunk.len() != count * class.size() {
            return Err(ser::Error::custom("a sequence ends before its end"));
        }
        fields.serialize_field(&Bytes(&chunk))?;
        left -= count;
    }
    match numbers.next() {
        None => fields.end(),
        Some(_) => Err(ser::Error::custom("a sequence goes on after its end")),
    }
}

/// The name, if there is one.
macro_rules! named {
    () => {
        ""
    };
    ($name:ident) => {
        $name
    };
}

macro_rules! compound {
    ($($of:ident $method:ident by $through:ident $field:ident($($name:ident)?) $(or $skip:ident)?;)*) => {$(
        impl<C: $through> $of for Compound<C> {
            type Ok = C::Ok;
            type Error = C::Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($name: &'static str,)?
                value: &T,
            ) -> Result<(), C::Error> {
                self.written += 1;
                let within = |error| fault::within(error, self.of, named!($($name)?));
                self.to.$field($($name,)? &Packed(value)).map_err(within)
            }

            $(
                fn $skip(&mut self, name: &'static str) -> Result<(), C::Error> {
                    Err(fault::raise(Why::LeftOut, self.of, name))
                }
            )?

            #[inline]
            fn end(self) -> Result<C::Ok, C::Error> {
                self.finish()?.end()
            }
        }
    )*};
}

compound! {
    SerializeSeq serialize_element by SerializeTupleVariant serialize_field();
    SerializeTuple serialize_element by SerializeTuple serialize_element();
    SerializeTupleStruct serialize_field by SerializeTupleStruct serialize_field();
    SerializeTupleVariant serialize_field by SerializeTupleVariant serialize_field();
    SerializeStruct serialize_field by SerializeStruct serialize_field(name) or skip_field;
    SerializeStructVariant serialize_field by SerializeStructVariant serialize_field(name) or skip_field;
}

impl<C: SerializeMap> SerializeMap for Compound<C> {
    type Ok = C::Ok;
    type Error = C::Error;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.written += 1;
        self.to.serialize_key(&Packed(key))
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.to.serialize_value(&Packed(value))
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.finish()?.end()
    }
}
