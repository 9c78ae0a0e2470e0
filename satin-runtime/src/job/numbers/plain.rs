//! Plain data of the user: types that derive `bytemuck::Pod`, whose sequences travel as they lie in memory.
//!
//! The compiler knows whether a type is `Pod` only where the type is written, and no `Serialize` can ask. So the macro asks for each
//! type that a spawnable function's signature mentions ([`Probe`]), and the answers are collected while the program is
//! linked. Which types are plain data is thus the same for the whole program, wherever in a value a sequence stands.

use std::{
    any::{TypeId, type_name},
    fmt,
    marker::PhantomData,
    sync::OnceLock,
};

use bytemuck::Pod;
#[doc(hidden)]
pub use inventory;
use serde::{
    Serialize, Serializer,
    de::{self, DeserializeOwned, DeserializeSeed, SeqAccess, Visitor},
    ser::SerializeTupleVariant,
};

use super::{
    FORMS, PLAIN, SEQUENCE,
    class::Class,
    packing::Bytes,
    slices::{Disguised, ErasedValue, append},
    vectors::visitor_of,
};

/// A type of plain data, which is erased.
#[derive(Clone, Copy)]
pub struct PlainType(&'static dyn Erased);

impl fmt::Debug for PlainType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// What can be done with sequences of a type of plain data.
trait Erased: Sync {
    fn name(&self) -> &'static str;
    fn size(&self) -> usize;
    fn ids(&self) -> Ids;
    /// The bytes of a sequence, if it is a slice of this type.
    fn bytes<'a>(&self, sequence: Disguised<'a>) -> Option<&'a [u8]>;
    /// A `Vec<T>` of the elements that lie in these bytes.
    fn vector(&self, bytes: &[u8]) -> ErasedValue;
    /// A `T` of as many bytes.
    fn element(&self, bytes: &[u8]) -> ErasedValue;
}

/// The types by which serde shows that it has to do with a type of plain data.
struct Ids {
    /// Sequences that are a slice.
    slices: [TypeId; 3],
    /// The seed of an element.
    seed: TypeId,
    /// The visitor that makes a vector.
    visitor: Option<TypeId>,
    is_number: bool,
}

struct Of<T>(PhantomData<fn() -> T>);

impl<T: Pod + DeserializeOwned> Erased for Of<T> {
    fn name(&self) -> &'static str {
        type_name::<T>()
    }

    fn size(&self) -> usize {
        size_of::<T>()
    }

    fn ids(&self) -> Ids {
        Ids {
            slices: Disguised::ids::<T>(),
            seed: TypeId::of::<PhantomData<T>>(),
            visitor: visitor_of::<T>(),
            is_number: Class::of::<T>().is_some(),
        }
    }

    fn bytes<'a>(&self, sequence: Disguised<'a>) -> Option<&'a [u8]> {
        sequence.slice::<T>().map(bytemuck::cast_slice)
    }

    fn vector(&self, bytes: &[u8]) -> ErasedValue {
        let mut all: Vec<T> = Vec::new();
        append(&mut all, bytes);
        ErasedValue::vector(all)
    }

    fn element(&self, bytes: &[u8]) -> ErasedValue {
        ErasedValue::element(bytemuck::pod_read_unaligned::<T>(bytes))
    }
}

/// Asks whether a type is plain data, or a sequence of it behind a name of the user's own (`type Samples = Vec<Complex>`). Where
/// one of these constants does not exist, as a bound does not hold, that of [`NotPlain`] is found.
pub struct Probe<T: ?Sized>(PhantomData<T>);

impl<T: Pod + DeserializeOwned> Probe<T> {
    /// The type itself.
    pub const ITSELF: Option<PlainType> = Some(PlainType(&Of::<T>(PhantomData)));
}

impl<T: Pod + DeserializeOwned> Probe<Vec<T>> {
    /// The type of the vector's elements.
    pub const IN_VECTOR: Option<PlainType> = Probe::<T>::ITSELF;
}

impl<T: Pod + DeserializeOwned> Probe<Box<[T]>> {
    /// The type of the elements of the slice in the box.
    pub const IN_BOX: Option<PlainType> = Probe::<T>::ITSELF;
}

/// The answers for all types of which a [`Probe`] does not know better.
pub trait NotPlain {
    /// The type is no plain data.
    const ITSELF: Option<PlainType> = None;
    /// The type is no vector of plain data.
    const IN_VECTOR: Option<PlainType> = None;
    /// The type is no boxed slice of plain data.
    const IN_BOX: Option<PlainType> = None;
}

impl<T: ?Sized> NotPlain for Probe<T> {}

/// Types that the user says to be plain data.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not known to be plain data, whose sequences travel as they lie in memory",
    label = "needs `bytemuck::Pod`, `Serialize` and `Deserialize`",
    note = "derive them all: `#[derive(Clone, Copy, serde::Serialize, serde::Deserialize, bytemuck::Pod, bytemuck::Zeroable)]` and `#[repr(C)]`",
    note = "what has padding, a `bool`, a `char`, an enum or a pointer inside cannot be plain data: without `satin::plain!` it travels field by field"
)]
pub trait IsPlain {
    /// The type, erased.
    const ITSELF: PlainType;
}

impl<T: Pod + DeserializeOwned + Serialize> IsPlain for T {
    const ITSELF: PlainType = PlainType(&Of::<T>(PhantomData));
}

/// Clones nothing: with two `impl`s to choose from, the compiler reports the missing trait in our words.
struct Unclonable<T>(PhantomData<T>);

impl<T> IsPlain for T
where
    Unclonable<T>: Clone,
{
    const ITSELF: PlainType = unreachable!();
}

/// The type that the user says to be plain data.
#[must_use]
pub const fn plain_type<T: IsPlain>() -> Option<PlainType> {
    Some(T::ITSELF)
}

/// An entry in the list of plain data: what was found in one signature.
pub struct PlainTypes(pub &'static [Option<PlainType>]);

inventory::collect!(PlainTypes);

/// Looks for plain data among types, as expansions of `#[spawnable]` do.
#[doc(hidden)]
#[macro_export]
macro_rules! look_for_plain {
    ($($of:ty),+ $(,)?) => {
        const _: () = {
            #[allow(unused_imports)]
            use $crate::job::plain::NotPlain as _;
            $crate::job::plain::inventory::submit! {
                $crate::job::plain::PlainTypes(&[$(
                    $crate::job::plain::Probe::<$of>::ITSELF,
                    $crate::job::plain::Probe::<$of>::IN_VECTOR,
                    $crate::job::plain::Probe::<$of>::IN_BOX,
                )+])
            }
        };
    };
}

/// Says of types that they are plain data, where no spawnable function mentions them.
///
/// A type that derives [`bytemuck::Pod`](https://docs.rs/bytemuck/latest/bytemuck/trait.Pod.html) is plain data: any bytes are a value of
/// it, and there is no gap between its fields. Slices, vectors and boxed slices of such a type travel in one piece, as they lie in memory:
/// in `&[T]`, `&mut [T]`, `Vec<T>`, `Box<[T]>`, in results, in `Shared` values, and in structs, enums and options
/// that are or hold one. That is so by itself if a spawnable function of the program mentions the type in its signature (as `T`, `&[T]`,
/// `Shared<Vec<T>>`, ..). If the type occurs only inside another one, name it here, once in the program; so is an array of numbers that
/// occurs only there.
///
/// ```
/// # use satin_runtime as satin;
/// # use serde::{Deserialize, Serialize};
/// #[derive(Clone, Copy, Serialize, Deserialize, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C)]
/// struct Vertex {
///     place: [f32; 3],
///     color: [u8; 4],
/// }
///
/// satin::plain!(Vertex);
///
/// /// Signatures mention this type only.
/// #[derive(Serialize, Deserialize)]
/// struct Mesh {
///     vertices: Vec<Vertex>,
///     triangles: Vec<[u32; 3]>, // a `[u32; 3]` is plain data too, once it is named
/// }
///
/// satin::plain!([u32; 3]);
/// ```
///
/// For elements of such sequences `Serialize` and `Deserialize` are not called: a field that serde skips travels too. A single value, a
/// deque, a set or a map is written field by field, as ever. On big-endian machines everything is; they do not join a pool of
/// little-endian ones if the program has plain data.
#[macro_export]
macro_rules! plain {
    ($($of:ty),+ $(,)?) => {
        const _: () = {
            $crate::job::plain::inventory::submit! {
                $crate::job::plain::PlainTypes(&[$($crate::job::plain::plain_type::<$of>()),+])
            }
        };
    };
}

/// All plain data of this program, but numbers, which need not be found.
///
/// None where the memory is big-endian: the fields of a struct cannot be swapped without knowing them, so there they are written
/// one by one. Programs with other plain data do not work together, see [`program_hash`](crate::job::program_hash).
fn all() -> impl Iterator<Item = (PlainType, Ids)> {
    let found = inventory::iter::<PlainTypes>.into_iter();
    let found = found.flat_map(|PlainTypes(found)| found.iter().flatten());
    let with_ids = found.map(|plain| (*plain, plain.0.ids()));
    with_ids.filter(|(plain, ids)| {
        cfg!(target_endian = "little") && plain.0.size() > 0 && !ids.is_number
    })
}

/// The names and the sizes of all plain data of this program, sorted.
pub(in crate::job) fn names_and_sizes() -> Vec<(&'static str, usize)> {
    let mut all: Vec<_> = all()
        .map(|(plain, _)| (plain.0.name(), plain.0.size()))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The plain data to which a type belongs that serde hands over: a slice in disguise, a seed for an element, or the visitor that
/// makes a vector.
#[inline]
fn find(id: TypeId) -> Option<PlainType> {
    static TABLE: OnceLock<Vec<(TypeId, PlainType)>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = Vec::new();
        for (plain, ids) in all() {
            let others = [Some(ids.seed), ids.visitor].into_iter().flatten();
            table.extend(ids.slices.into_iter().chain(others).map(|id| (id, plain)));
        }
        table.sort_unstable_by_key(|(id, _)| *id);
        table.dedup_by_key(|(id, _)| *id);
        table
    });
    // Most programs have no plain data.
    if table.is_empty() {
        return None;
    }
    let at = table.binary_search_by_key(&id, |(id, _)| *id).ok()?;
    Some(table[at].1)
}

/// The bytes of a slice of plain data, at least one element, and the size of an element.
pub(super) struct Piece<'a> {
    bytes: &'a [u8],
    size: usize,
}

/// The bytes of a sequence, if it is a slice of plain data. However few they are: whether a `Serialize` of the user is asked depends
/// on types alone.
#[inline]
pub(super) fn in_one_piece<I>(sequence: &I) -> Option<Piece<'_>> {
    let plain = find(typeid::of::<I>())?;
    let bytes = plain.0.bytes(Disguised::new(sequence))?;
    let size = plain.0.size();
    (!bytes.is_empty()).then_some(Piece { bytes, size })
}

/// Writes plain data.
pub(super) fn write<S: Serializer>(to: S, piece: &Piece<'_>) -> Result<S::Ok, S::Error> {
    let form = FORMS[PLAIN as usize];
    let mut fields = to.serialize_tuple_variant(SEQUENCE, PLAIN, form, 2)?;
    fields.serialize_field(&piece.size)?;
    fields.serialize_field(&Bytes(piece.bytes))?;
    fields.end()
}

/// Reads plain data, for a visitor that expects a sequence.
pub(super) struct PlainVisitor<V>(pub(super) V);

impl<'de, V: Visitor<'de>> Visitor<'de> for PlainVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<V::Value, A::Error> {
        let size = fields.next_element()?.unwrap_or(0usize);
        let bytes: &'de [u8] = fields.next_element()?.unwrap_or_default();
        // Nothing is multiple of 0 but 0.
        if bytes.is_empty() || !bytes.len().is_multiple_of(size) {
            return Err(de::Error::custom("plain data with a piece of an element"));
        }
        if let Some(plain) = find(typeid::of::<V>())
            && plain.0.size() == size
            && let Some(vector) = plain.0.vector(bytes).into_type()
        {
            return Ok(vector);
        }
        self.0.visit_seq(Elements {
            bytes,
            size,
            error: PhantomData,
        })
    }
}

/// The elements that have not been read yet. They are read one by one by what is no vector, such as a deque.
struct Elements<'de, E> {
    bytes: &'de [u8],
    /// The bytes of an element.
    size: usize,
    error: PhantomData<E>,
}

impl<'de, E: de::Error> SeqAccess<'de> for Elements<'de, E> {
    type Error = E;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, _: T) -> Result<Option<T::Value>, E> {
        let Some((element, rest)) = self.bytes.split_at_checked(self.size) else {
            return Ok(None);
        };
        self.bytes = rest;
        // The seed decides how a value is read: that of the type itself does so by its `Deserialize`, others do as they like.
        let plain = find(typeid::of::<T>()).filter(|plain| plain.0.size() == self.size);
        let value = plain.and_then(|plain| plain.0.element(element).into_type());
        let other = || de::Error::custom("plain data of another type than is expected");
        value.map(Some).ok_or_else(other)
    }

    /// All of them have come.
    fn size_hint(&self) -> Option<usize> {
        Some(self.bytes.len() / self.size)
    }
}
