//! The kinds of arguments a spawnable function may take, and what becomes of each when its job leaves the process.
//!
//! The macro chooses the kind from the tokens of the parameter's type: one trait for `T`, `&T` and `&mut T` would
//! need overlapping impls.
//!
//! A type that cannot travel is one error of the compiler, where the type is written. So the bound stands in one place, at
//! the `Type` of [`Argument`] or [`BorrowedArgument`], which the macro implements for each argument. The kinds name that
//! `Type` instead of the user's own, so that everything else holds by definition and adds no error of its own.

use std::{
    ffi::{CStr, CString, OsStr, OsString},
    marker::PhantomData,
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _},
    ser::Error as _,
};

use super::{
    ValueName,
    codec::{self, CodecError, Effort},
    fault,
    loans::{self, Lendable},
    numbers::{self, Returned},
};
/// Types whose values travel between nodes: all that can be serialized and deserialized.
///
/// Has methods instead of the two traits above it, which the compiler would report one by one as well.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel to another node, as arguments and results of spawned jobs do",
    label = "needs `Serialize` and `Deserialize`",
    note = "arguments of spawned jobs travel: derive Serialize and Deserialize, `#[derive(serde::Serialize, serde::Deserialize)]`, for each type of yours in it",
    note = "what can never travel (`std::io::Error`, open files, locks, references inside) stays out: take a path instead of a file, an owned type, the error's text"
)]
pub trait Travels: Sized + 'static {
    /// Writes the value as its `Serialize` does.
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error>;
    /// Reads a value as its `Deserialize` does.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
    /// Writes a sequence of values.
    fn write_all<S: Serializer>(all: &[Self], to: S) -> Result<S::Ok, S::Error>;
    /// Reads a sequence of values.
    fn read_all<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Self>, D::Error>;
    /// Reads a sequence of values that comes back.
    fn read_returned<'de, D: Deserializer<'de>>(from: D) -> Result<Returned<Self>, D::Error>;
}

impl<T: Serialize + DeserializeOwned + 'static> Travels for T {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.serialize(to).map_err(fault::within_type::<T, _>)
    }
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::deserialize(from).map_err(fault::within_type::<T, _>)
    }
    fn write_all<S: Serializer>(all: &[T], to: S) -> Result<S::Ok, S::Error> {
        all.serialize(to).map_err(fault::within_type::<T, _>)
    }
    fn read_all<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
        Vec::deserialize(from).map_err(fault::within_type::<T, _>)
    }
    fn read_returned<'de, D: Deserializer<'de>>(from: D) -> Result<Returned<T>, D::Error> {
        numbers::read_returned(from)
    }
}

/// Clones nothing. An `impl` for types that need `Unclonable<T>: Clone` is for no type at all; but the compiler, having
/// two to choose from, reports the trait itself as missing, in our words, instead of each bound of the only one.
struct Unclonable<T>(PhantomData<T>);

impl<T: Travels> Travels for T
where
    Unclonable<T>: Clone,
{
    fn write<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        unreachable!("for no type")
    }
    fn read<'de, D: Deserializer<'de>>(_: D) -> Result<T, D::Error> {
        unreachable!("for no type")
    }
    fn write_all<S: Serializer>(_: &[T], _: S) -> Result<S::Ok, S::Error> {
        unreachable!("for no type")
    }
    fn read_all<'de, D: Deserializer<'de>>(_: D) -> Result<Vec<T>, D::Error> {
        unreachable!("for no type")
    }
    fn read_returned<'de, D: Deserializer<'de>>(_: D) -> Result<Returned<T>, D::Error> {
        unreachable!("for no type")
    }
}

/// Types that a job may borrow: a copy that another node owns can be lent in their place.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel to another node, as arguments and results of spawned jobs do",
    label = "needs `Serialize` and `Deserialize`",
    note = "arguments of spawned jobs travel: derive Serialize and Deserialize, `#[derive(serde::Serialize, serde::Deserialize)]`, for each type of yours in it",
    note = "behind a `&` may stand any such type, and `[T]`, `str`, `Path`, `OsStr` and `CStr`"
)]
pub trait Lend: 'static {
    /// The type that another node reads from the bytes: `Vec<T>` for `[T]`, `String` for `str`, `T` itself for most.
    type Owned: Travels;

    /// Lends the copy.
    fn lend(owned: &Self::Owned) -> &Self;
    /// Writes the value as its `Serialize` does.
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error>;
}

macro_rules! lent_as {
    ($([$($of:tt)*] $borrowed:ty: $owned:ty),* $(,)?) => {$(
        impl $($of)* Lend for $borrowed {
            type Owned = $owned;
            fn lend(owned: &$owned) -> &$borrowed {
                owned
            }
            fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                self.serialize(to).map_err(fault::within_type::<Self, _>)
            }
        }
    )*};
}

lent_as! {
    [<T: Serialize + DeserializeOwned + 'static>] T: T,
    [<T: Serialize + DeserializeOwned + 'static>] [T]: Vec<T>,
    [] str: String,
    [] Path: PathBuf,
    [] OsStr: OsString,
    [] CStr: CString,
}

// For no type: see there.
impl<T: Lend<Owned = T> + Travels> Lend for T
where
    Unclonable<T>: Clone,
{
    type Owned = T;
    fn lend(owned: &T) -> &T {
        owned
    }
    fn write<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        unreachable!("for no type")
    }
}

/// A value as serde is to see it.
pub struct Carried<T>(pub T);
/// A value that is only looked at, as serde is to see it.
pub struct CarriedRef<'a, T>(pub &'a T);
/// A borrowed argument of a job, as serde is to see it.
pub struct CarriedLoan<'a, T: ?Sized> {
    /// `None` if it is not here: then it stands there by its name.
    value: Option<&'a T>,
    /// Others may borrow the same.
    lent: Option<&'a dyn Lendable>,
    /// It is a list of such.
    is_list: bool,
}
impl<'a, T: ?Sized> CarriedLoan<'a, T> {
    /// An argument that the job alone borrows.
    pub fn of(value: &'a T) -> CarriedLoan<'a, T> {
        CarriedLoan {
            value: Some(value),
            lent: None,
            is_list: false,
        }
    }

    /// A list of what others may borrow too: each element is a loan of its own.
    pub fn list(value: &'a T) -> CarriedLoan<'a, T> {
        CarriedLoan {
            is_list: true,
            ..CarriedLoan::of(value)
        }
    }

    /// An argument that others may borrow too; `None` if another node keeps it.
    pub fn lent(value: Option<&'a T>, lent: &'a dyn Lendable) -> CarriedLoan<'a, T> {
        CarriedLoan {
            value,
            lent: Some(lent),
            is_list: false,
        }
    }
}

/// A `&mut` argument of a job, as serde is to see it.
pub struct CarriedMut<'a, V> {
    /// `None` if it is not here: then it stands there by its name.
    value: Option<V>,
    /// Others may borrow what it is now.
    lent: Option<&'a dyn Lendable>,
}

impl<'a, V> CarriedMut<'a, V> {
    /// An argument that nobody else has.
    pub fn of(value: V) -> CarriedMut<'a, V> {
        CarriedMut {
            value: Some(value),
            lent: None,
        }
    }

    /// An argument of which others may borrow what it is now; `None` if another node keeps it.
    pub fn lent(value: Option<V>, lent: &'a dyn Lendable) -> CarriedMut<'a, V> {
        let lent = Some(lent);
        CarriedMut { value, lent }
    }
}

/// What is behind a borrowed argument, as serde is to see it.
struct CarriedLent<'a, T: ?Sized>(&'a T);
/// The elements of a borrowed slice, as serde is to see them.
pub struct CarriedSlice<'a, T>(pub &'a [T]);

impl<T: Travels> Serialize for Carried<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.write(to)
    }
}

impl<'de, T: Travels> Deserialize<'de> for Carried<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Carried)
    }
}

impl<T: Travels> Serialize for CarriedRef<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.write(to)
    }
}

impl<T: Lend + ?Sized> Serialize for CarriedLent<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.write(to)
    }
}

/// The form of an argument that is lent in the bytes of a job.
#[derive(Serialize, Deserialize)]
enum SentLoan<V> {
    Here(V),
    Named(ValueName),
}

impl<V> SentLoan<V> {
    /// What of this stands in the job that is being written on this thread.
    fn of<E: serde::ser::Error>(
        value: Option<V>,
        lent: Option<&dyn Lendable>,
    ) -> Result<SentLoan<V>, E> {
        let name = lent.map_or(Ok(None), loans::name_of);
        match (name.map_err(E::custom)?, value) {
            (Some(name), _) => Ok(SentLoan::Named(name)),
            (None, Some(value)) => Ok(SentLoan::Here(value)),
            (None, None) => Err(E::custom("another node keeps it")),
        }
    }
}

impl<T: Lend + ?Sized> Serialize for CarriedLoan<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let loan = SentLoan::of::<S::Error>(self.value.map(CarriedLent), self.lent)?;
        loans::as_list(self.is_list, || loan.serialize(to))
    }
}

impl<V: Serialize> Serialize for CarriedMut<'_, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        SentLoan::of::<S::Error>(self.value.as_ref(), self.lent)?.serialize(to)
    }
}

/// What another node has behind a borrowed argument.
pub enum Borrowed<T> {
    /// It came with the job.
    Own(T),
    /// It came by its name, and is lent to other jobs too.
    Lent(Arc<T>),
}

impl<T> Deref for Borrowed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Borrowed::Own(value) => value,
            Borrowed::Lent(value) => value,
        }
    }
}

impl<'de, T: Travels + Send + Sync> Deserialize<'de> for Borrowed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match SentLoan::<Carried<T>>::deserialize(from)? {
            SentLoan::Here(Carried(value)) => Ok(Borrowed::Own(value)),
            SentLoan::Named(name) => loans::read(name)
                .map(Borrowed::Lent)
                .map_err(D::Error::custom),
        }
    }
}

/// What another node has of a `&mut` argument.
pub struct Owned<C>(C);

impl<'de, C: DeserializeOwned> Deserialize<'de> for Owned<C> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match SentLoan::deserialize(from)? {
            SentLoan::Here(value) => Ok(Owned(value)),
            SentLoan::Named(name) => loans::read_own(name).map(Owned).map_err(D::Error::custom),
        }
    }
}

impl<T: Travels> Serialize for CarriedSlice<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        T::write_all(self.0, to)
    }
}

/// The form in which another node reads a slice.
pub struct CarriedVec<T>(Vec<T>);

impl<T: Travels> Serialize for CarriedVec<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        CarriedSlice(&self.0).serialize(to)
    }
}

impl<'de, T: Travels> Deserialize<'de> for CarriedVec<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read_all(from).map(CarriedVec)
    }
}

/// The form in which a changed slice comes back.
pub struct CarriedBack<T>(Returned<T>);

impl<T: Travels> CarriedBack<T> {
    /// Puts it where it was borrowed from.
    ///
    /// # Panics
    /// If it came back with another length, which only a corrupted frame can cause.
    pub fn copy_to(self, slice: &mut [T]) {
        self.0.copy_to(slice);
    }

    /// The values, however many they are.
    #[must_use]
    pub fn into_values(self) -> Vec<T> {
        self.0.into_vec()
    }

    /// The values, if they are a vector of that length.
    ///
    /// # Errors
    /// They are still bytes, or of another length.
    pub fn into_vec(self, length: usize) -> Result<Vec<T>, Self> {
        match self.0 {
            Returned::Values(values) if values.len() == length => Ok(values),
            other => Err(CarriedBack(other)),
        }
    }
}

impl<T: Travels> Serialize for CarriedBack<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Returned::Values(values) => CarriedSlice(values).serialize(to),
            // Only what a job has left in its own copy is sent.
            Returned::Block(_) => Err(S::Error::custom("it has come back already")),
        }
    }
}

impl<'de, T: Travels> Deserialize<'de> for CarriedBack<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read_returned(from).map(CarriedBack)
    }
}

/// A result, or a changed `&mut` argument, on the node where it was made.
pub trait Output {
    /// Writes it, as data of a flow are written.
    ///
    /// # Errors
    /// As [`codec::write`].
    fn write(&self) -> Result<Vec<u8>, CodecError>;
}

const WRITING_OUTPUT: &str = "serializing what a task has made";

impl<T: Travels> Output for Carried<T> {
    fn write(&self) -> Result<Vec<u8>, CodecError> {
        codec::write_for::<Carried<T>, _>(WRITING_OUTPUT, self, Effort::ANY)
    }
}

impl<T: Travels> Output for CarriedBack<T> {
    fn write(&self) -> Result<Vec<u8>, CodecError> {
        codec::write_for::<CarriedBack<T>, _>(WRITING_OUTPUT, self, Effort::ANY)
    }
}

/// The type of argument number `AT` of a function, where it is moved or lent to be changed; of a `&mut [T]` it is the `T`.
pub trait Argument<const AT: usize>: 'static {
    /// The argument's type, as the signature has it.
    type Type: Travels + Send;
}

/// The type behind the `&` of argument number `AT` of a function.
pub trait BorrowedArgument<const AT: usize>: 'static {
    /// The type behind the `&`, as the signature has it.
    type Type: ?Sized + Lend<Owned: Send + Sync> + Sync;
}

/// An argument: how it is held here, owned by the node that took the job, and brought back.
pub trait Kind: 'static {
    /// The type that the function receives: `T`, `&'s T`, `&'s mut [T]`, ..
    type Arg<'s>: Send;
    /// The form in which the argument is serialized.
    type Sent<'a>: Serialize;
    /// The type that another node reads from the bytes and keeps as long as the job runs there.
    type Own: DeserializeOwned + Send;
    /// The part that travels back beside the result: the changed value of a `&mut`, nothing otherwise.
    type Back: Serialize + DeserializeOwned + Send;

    /// Looks at an argument to serialize it.
    fn sent<'a>(arg: &'a Self::Arg<'_>) -> Self::Sent<'a>;
    /// Lends the owned value to the function, on the node that took the job.
    fn lend(own: &mut Option<Self::Own>) -> Self::Arg<'_>;
    /// Turns the owned value into the part that travels back, once the function has returned.
    fn give_back(own: Option<Self::Own>) -> Self::Back;
    /// Writes the changed value to where it was borrowed from. Called by the owner of the borrow, inside its sync.
    fn copy_back(arg: Self::Arg<'_>, back: Self::Back);

    /// Shows what travels back, if anything does.
    fn outputs(back: &Self::Back, each: &mut dyn FnMut(&dyn Output)) {
        let _ = (back, each);
    }

    /// The visible part of an argument after the call: as `Back`, borrowed.
    type Seen<'a>: Serialize;

    /// Lends an argument further, to a call that ends before the holder looks at the argument again.
    fn relend<'a>(held: &'a mut Option<Self::Arg<'_>>) -> Self::Arg<'a>;
    /// Looks at the argument again, after such a call.
    fn seen<'a>(held: &'a Option<Self::Arg<'_>>) -> Self::Seen<'a>;
}

const LENT: &str = "an argument is lent exactly once";

/// `T`: moved here, serialized elsewhere. Like all kinds it names the function and the argument's place.
pub struct Value<F, const AT: usize>(PhantomData<F>);
/// `&T`, `&[T]`, `&str`, `&Path`: borrowed here; elsewhere a copy lives as long as the job.
pub struct Ref<F, const AT: usize>(PhantomData<F>);
/// `&mut T`: borrowed here; elsewhere copied out, and copied back inside the sync.
pub struct Mut<F, const AT: usize>(PhantomData<F>);
/// `&mut [T]`: borrowed here; elsewhere copied out, and copied back inside the sync.
pub struct MutSlice<F, const AT: usize>(PhantomData<F>);

impl<F: Argument<AT>, const AT: usize> Kind for Value<F, AT> {
    type Arg<'s> = F::Type;
    type Sent<'a> = CarriedRef<'a, F::Type>;
    type Own = Carried<F::Type>;
    type Back = ();
    fn sent(arg: &F::Type) -> CarriedRef<'_, F::Type> {
        CarriedRef(arg)
    }
    fn lend(own: &mut Option<Self::Own>) -> F::Type {
        own.take().expect(LENT).0
    }
    fn give_back(_: Option<Self::Own>) {}
    fn copy_back(_: F::Type, (): ()) {}
    type Seen<'a> = ();
    fn relend(held: &mut Option<F::Type>) -> F::Type {
        held.take().expect(LENT)
    }
    fn seen(_: &Option<F::Type>) {}
}

impl<F: BorrowedArgument<AT>, const AT: usize> Kind for Ref<F, AT> {
    type Arg<'s> = &'s F::Type;
    type Sent<'a> = CarriedLoan<'a, F::Type>;
    type Own = Borrowed<<F::Type as Lend>::Owned>;
    type Back = ();
    fn sent<'a>(arg: &'a &F::Type) -> CarriedLoan<'a, F::Type> {
        CarriedLoan::of(arg)
    }
    fn lend(own: &mut Option<Self::Own>) -> &F::Type {
        F::Type::lend(own.as_ref().expect(LENT))
    }
    fn give_back(_: Option<Self::Own>) {}
    fn copy_back(_: &F::Type, (): ()) {}
    type Seen<'a> = ();
    fn relend<'a>(held: &'a mut Option<&F::Type>) -> &'a F::Type {
        held.expect(LENT)
    }
    fn seen(_: &Option<&F::Type>) {}
}

impl<F: Argument<AT>, const AT: usize> Kind for Mut<F, AT> {
    type Arg<'s> = &'s mut F::Type;
    type Sent<'a> = CarriedMut<'a, CarriedRef<'a, F::Type>>;
    type Own = Owned<Carried<F::Type>>;
    type Back = Carried<F::Type>;
    fn sent<'a>(arg: &'a &mut F::Type) -> Self::Sent<'a> {
        CarriedMut::of(CarriedRef(arg))
    }
    fn lend(own: &mut Option<Self::Own>) -> &mut F::Type {
        let Owned(Carried(value)) = own.as_mut().expect(LENT);
        value
    }
    fn give_back(own: Option<Self::Own>) -> Self::Back {
        own.expect(LENT).0
    }
    fn outputs(back: &Self::Back, each: &mut dyn FnMut(&dyn Output)) {
        each(back);
    }
    fn copy_back(arg: &mut F::Type, Carried(back): Self::Back) {
        *arg = back;
    }
    type Seen<'a> = CarriedRef<'a, F::Type>;
    fn relend<'a>(held: &'a mut Option<&mut F::Type>) -> &'a mut F::Type {
        held.as_deref_mut().expect(LENT)
    }
    fn seen<'a>(held: &'a Option<&mut F::Type>) -> Self::Seen<'a> {
        CarriedRef(held.as_deref().expect(LENT))
    }
}

impl<F: Argument<AT>, const AT: usize> Kind for MutSlice<F, AT> {
    type Arg<'s> = &'s mut [F::Type];
    type Sent<'a> = CarriedMut<'a, CarriedSlice<'a, F::Type>>;
    type Own = Owned<CarriedVec<F::Type>>;
    type Back = CarriedBack<F::Type>;
    fn sent<'a>(arg: &'a &mut [F::Type]) -> Self::Sent<'a> {
        CarriedMut::of(CarriedSlice(arg))
    }
    fn lend(own: &mut Option<Self::Own>) -> &mut [F::Type] {
        let Owned(CarriedVec(values)) = own.as_mut().expect(LENT);
        values
    }
    fn give_back(own: Option<Self::Own>) -> Self::Back {
        let Owned(CarriedVec(values)) = own.expect(LENT);
        CarriedBack(Returned::Values(values))
    }
    fn outputs(back: &Self::Back, each: &mut dyn FnMut(&dyn Output)) {
        each(back);
    }
    fn copy_back(arg: &mut [F::Type], back: Self::Back) {
        back.copy_to(arg);
    }
    type Seen<'a> = CarriedSlice<'a, F::Type>;
    fn relend<'a>(held: &'a mut Option<&mut [F::Type]>) -> &'a mut [F::Type] {
        held.as_deref_mut().expect(LENT)
    }
    fn seen<'a>(held: &'a Option<&mut [F::Type]>) -> Self::Seen<'a> {
        CarriedSlice(held.as_deref().expect(LENT))
    }
}

/// All arguments of a function: tuples of up to twelve [`Kind`]s.
pub trait Kinds: 'static {
    /// The tuple that the function receives.
    type Args<'s>: Send;
    /// The form in which the arguments are serialized.
    type Sent<'a>: Serialize;
    /// The tuple that another node decodes.
    type Own: DeserializeOwned + Send;
    /// `Own`, each element in an `Option` from which it can be lent.
    type Lent: Send;
    /// The tuple of what travels back.
    type Back: Serialize + DeserializeOwned + Send;
    /// Looks at the arguments to serialize them.
    fn sent<'a>(args: &'a Self::Args<'_>) -> Self::Sent<'a>;
    /// Prepares the decoded arguments for [`Kinds::lend`].
    fn hold(own: Self::Own) -> Self::Lent;
    /// Lends all arguments to the function.
    fn lend(held: &mut Self::Lent) -> Self::Args<'_>;
    /// Turns the owned values into the parts that travel back, once the function has returned.
    fn give_back(held: Self::Lent) -> Self::Back;
    /// Copies every `&mut` argument back.
    fn copy_back(args: Self::Args<'_>, back: Self::Back);
    /// Shows the changed `&mut` arguments, in their order.
    fn outputs(back: &Self::Back, each: &mut dyn FnMut(&dyn Output));

    /// The arguments of a call, each in an `Option` from which it can be lent further.
    type Held<'s>;
    /// The visible part of the arguments after the call: as `Back`, borrowed.
    type Seen<'a>: Serialize;

    /// Prepares the arguments of a call for [`Kinds::relend`].
    fn held(args: Self::Args<'_>) -> Self::Held<'_>;
    /// Lends all arguments further, once.
    fn relend<'a>(held: &'a mut Self::Held<'_>) -> Self::Args<'a>;
    /// The values that the call has left in the `&mut` arguments.
    fn seen<'a>(held: &'a Self::Held<'_>) -> Self::Seen<'a>;
}

impl Kinds for () {
    type Args<'s> = ();
    type Sent<'a> = ();
    type Own = ();
    type Lent = ();
    type Back = ();
    fn sent((): &()) {}
    fn hold((): ()) {}
    fn lend((): &mut ()) {}
    fn give_back((): ()) {}
    fn copy_back((): (), (): ()) {}
    fn outputs((): &(), _: &mut dyn FnMut(&dyn Output)) {}
    type Held<'s> = ();
    type Seen<'a> = ();
    fn held((): Self::Args<'_>) -> Self::Held<'_> {}
    fn relend((): &mut ()) {}
    fn seen((): &()) {}
}

macro_rules! tuple_of_kinds {
    ($($kind:ident $arg:ident $back:ident),+) => {
        impl<$($kind: Kind),+> Kinds for ($($kind,)+) {
            type Args<'s> = ($($kind::Arg<'s>,)+);
            type Sent<'a> = ($($kind::Sent<'a>,)+);
            type Own = ($($kind::Own,)+);
            type Lent = ($(Option<$kind::Own>,)+);
            type Back = ($($kind::Back,)+);
            fn sent<'a>(($($arg,)+): &'a Self::Args<'_>) -> Self::Sent<'a> {
                ($($kind::sent($arg),)+)
            }
            fn hold(($($arg,)+): Self::Own) -> Self::Lent {
                ($(Some($arg),)+)
            }
            fn lend(($($arg,)+): &mut Self::Lent) -> Self::Args<'_> {
                ($($kind::lend($arg),)+)
            }
            fn give_back(($($arg,)+): Self::Lent) -> Self::Back {
                ($($kind::give_back($arg),)+)
            }
            fn copy_back(($($arg,)+): Self::Args<'_>, ($($back,)+): Self::Back) {
                $($kind::copy_back($arg, $back);)+
            }
            fn outputs(($($back,)+): &Self::Back, each: &mut dyn FnMut(&dyn Output)) {
                $($kind::outputs($back, each);)+
            }
            type Held<'s> = ($(Option<$kind::Arg<'s>>,)+);
            type Seen<'a> = ($($kind::Seen<'a>,)+);
            fn held(($($arg,)+): Self::Args<'_>) -> Self::Held<'_> {
                ($(Some($arg),)+)
            }
            fn relend<'a>(($($arg,)+): &'a mut Self::Held<'_>) -> Self::Args<'a> {
                ($($kind::relend($arg),)+)
            }
            fn seen<'a>(($($arg,)+): &'a Self::Held<'_>) -> Self::Seen<'a> {
                ($($kind::seen($arg),)+)
            }
        }
    };
}

tuple_of_kinds!(A a x);
tuple_of_kinds!(A a x, B b y);
tuple_of_kinds!(A a x, B b y, C c z);
tuple_of_kinds!(A a x, B b y, C c z, D d w);
tuple_of_kinds!(A a x, B b y, C c z, D d w, E e v);
tuple_of_kinds!(A a x, B b y, C c z, D d w, E e v, F f u);
tuple_of_kinds!(A a x, B b y, C c z, D d w, E e v, F f u, G g t);
tuple_of_kinds!(A a x, B b y, C c z, D d w, E e v, F f u, G g t, H h s);
tuple_of_kinds!(A a x, B b y, C c z, D d w, E e v, F f u, G g t, H h s, I i r);
tuple_of_kinds!(A a x, B b y, C c z, D d w, E e v, F f u, G g t, H h s, I i r, J j q);
tuple_of_kinds!(A a x, B b y, C c z, D d w, E e v, F f u, G g t, H h s, I i r, J j q, K k p);
tuple_of_kinds!(A a x, B b y, C c z, D d w, E e v, F f u, G g t, H h s, I i r, J j q, K k p, L l o);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::codec::{self, Effort};

    #[test]
    fn vectors_and_slices_are_read_as_they_were_written() {
        fn there_and_back<T>(all: &[T])
        where
            T: Serialize + DeserializeOwned + Clone + PartialEq + std::fmt::Debug + 'static,
        {
            let owned = Carried(all.to_vec());
            let bytes = codec::write("writing", &CarriedSlice(all), Effort::ANY).expect("bytes");
            assert_eq!(
                codec::write("writing", &owned, Effort::ANY),
                Ok(bytes.clone())
            );
            let CarriedVec::<T>(read) = codec::read("reading", &bytes).expect("a slice");
            assert_eq!(read, all);
            let Carried(read) =
                codec::read::<Carried<Vec<T>>>("reading", &bytes).expect("a vector");
            assert_eq!(read, all);
            for effort in [Effort::ANY, Effort::QUICK] {
                let changed = CarriedMut::of(CarriedSlice(all));
                let Ok(bytes) = codec::write("writing", &changed, effort) else {
                    assert!(effort.most() < size_of_val(all) + 100);
                    continue;
                };
                let Owned(CarriedVec::<T>(read)) =
                    codec::read("reading", &bytes).expect("a changed slice");
                assert_eq!(read, all);
            }
        }
        for length in [0, 3, 100, 100_000] {
            there_and_back(&vec![7u8; length]);
            there_and_back(&vec![-7i8; length]);
            there_and_back(&vec![7.5f64; length]);
            there_and_back(&vec!["seven".to_owned(); length]);
        }
    }
}
