//! The kinds of arguments a spawnable function may take, and what becomes of each when its job leaves the process.
//!
//! The macro chooses the kind from the tokens of the parameter's type: one trait for `T`, `&T` and `&mut T` would
//! need overlapping impls.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};

/// One argument: how it is held here, owned by the node that took the job, and brought back.
pub trait Kind: 'static {
    /// What the function receives: `T`, `&'s T`, `&'s mut [T]`, ..
    type Arg<'s>: Serialize + Send;
    /// What another node makes of the bytes and keeps as long as the job runs there.
    type Own: DeserializeOwned + Send;
    /// What travels back beside the result: the changed value of a `&mut`, nothing otherwise.
    type Back: Serialize + DeserializeOwned + Send;

    /// Does anything travel back?
    const GIVES_BACK: bool = false;

    /// Lends the owned value to the function, on the node that took the job.
    fn lend(own: &mut Option<Self::Own>) -> Self::Arg<'_>;
    /// What is left of the owned value once the function has returned.
    fn give_back(own: Option<Self::Own>) -> Self::Back;
    /// Writes the changed value to where it was borrowed from. Called by the owner of the borrow, inside its sync.
    fn copy_back(arg: Self::Arg<'_>, back: Self::Back);

    /// What is seen of an argument after the call: as `Back`, borrowed.
    type Seen<'a>: Serialize;

    /// Lends an argument further, to a call that ends before whoever holds it looks at it again.
    fn relend<'a>(held: &'a mut Option<Self::Arg<'_>>) -> Self::Arg<'a>;
    /// Looks at it again.
    fn seen<'a>(held: &'a Option<Self::Arg<'_>>) -> Self::Seen<'a>;
}

const LENT: &str = "an argument is lent exactly once";

/// `T`: moved here, serialized elsewhere.
pub struct Value<T>(PhantomData<T>);
/// `&T`: borrowed here; elsewhere a copy lives as long as the job.
pub struct Ref<T>(PhantomData<T>);
/// `&[T]`.
pub struct RefSlice<T>(PhantomData<T>);
/// `&str`.
pub struct RefStr;
/// `&mut T`: borrowed here; elsewhere copied out, and copied back inside the sync.
pub struct Mut<T>(PhantomData<T>);
/// `&mut [T]`.
pub struct MutSlice<T>(PhantomData<T>);

impl<T: Serialize + DeserializeOwned + Send + 'static> Kind for Value<T> {
    type Arg<'s> = T;
    type Own = T;
    type Back = ();
    fn lend(own: &mut Option<T>) -> T {
        own.take().expect(LENT)
    }
    fn give_back(_: Option<T>) {}
    fn copy_back(_: T, (): ()) {}
    type Seen<'a> = ();
    fn relend(held: &mut Option<T>) -> T {
        held.take().expect(LENT)
    }
    fn seen(_: &Option<T>) {}
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Kind for Ref<T> {
    type Arg<'s> = &'s T;
    type Own = T;
    type Back = ();
    fn lend(own: &mut Option<T>) -> &T {
        own.as_ref().expect(LENT)
    }
    fn give_back(_: Option<T>) {}
    fn copy_back(_: &T, (): ()) {}
    type Seen<'a> = ();
    fn relend<'a>(held: &'a mut Option<&T>) -> &'a T {
        held.expect(LENT)
    }
    fn seen(_: &Option<&T>) {}
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Kind for RefSlice<T> {
    type Arg<'s> = &'s [T];
    type Own = Vec<T>;
    type Back = ();
    fn lend(own: &mut Option<Vec<T>>) -> &[T] {
        own.as_ref().expect(LENT)
    }
    fn give_back(_: Option<Vec<T>>) {}
    fn copy_back(_: &[T], (): ()) {}
    type Seen<'a> = ();
    fn relend<'a>(held: &'a mut Option<&[T]>) -> &'a [T] {
        held.expect(LENT)
    }
    fn seen(_: &Option<&[T]>) {}
}

impl Kind for RefStr {
    type Arg<'s> = &'s str;
    type Own = String;
    type Back = ();
    fn lend(own: &mut Option<String>) -> &str {
        own.as_ref().expect(LENT)
    }
    fn give_back(_: Option<String>) {}
    fn copy_back(_: &str, (): ()) {}
    type Seen<'a> = ();
    fn relend<'a>(held: &'a mut Option<&str>) -> &'a str {
        held.expect(LENT)
    }
    fn seen(_: &Option<&str>) {}
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Kind for Mut<T> {
    type Arg<'s> = &'s mut T;
    type Own = T;
    type Back = T;
    const GIVES_BACK: bool = true;
    fn lend(own: &mut Option<T>) -> &mut T {
        own.as_mut().expect(LENT)
    }
    fn give_back(own: Option<T>) -> T {
        own.expect(LENT)
    }
    fn copy_back(arg: &mut T, back: T) {
        *arg = back;
    }
    type Seen<'a> = &'a T;
    fn relend<'a>(held: &'a mut Option<&mut T>) -> &'a mut T {
        held.as_deref_mut().expect(LENT)
    }
    fn seen<'a>(held: &'a Option<&mut T>) -> &'a T {
        held.as_deref().expect(LENT)
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Kind for MutSlice<T> {
    type Arg<'s> = &'s mut [T];
    type Own = Vec<T>;
    type Back = Vec<T>;
    const GIVES_BACK: bool = true;
    fn lend(own: &mut Option<Vec<T>>) -> &mut [T] {
        own.as_mut().expect(LENT)
    }
    fn give_back(own: Option<Vec<T>>) -> Vec<T> {
        own.expect(LENT)
    }
    /// # Panics
    /// If the slice came back with another length, which only a corrupted frame can cause.
    fn copy_back(arg: &mut [T], back: Vec<T>) {
        assert_eq!(
            arg.len(),
            back.len(),
            "a `&mut [T]` argument came back with another length"
        );
        arg.iter_mut()
            .zip(back)
            .for_each(|(place, value)| *place = value);
    }
    type Seen<'a> = &'a [T];
    fn relend<'a>(held: &'a mut Option<&mut [T]>) -> &'a mut [T] {
        held.as_deref_mut().expect(LENT)
    }
    fn seen<'a>(held: &'a Option<&mut [T]>) -> &'a [T] {
        held.as_deref().expect(LENT)
    }
}

/// All arguments of a function: tuples of up to twelve [`Kind`]s.
pub trait Kinds: 'static {
    /// The tuple that the function receives.
    type Args<'s>: Serialize + Send;
    /// The tuple that another node decodes.
    type Own: DeserializeOwned + Send;
    /// `Own`, each element in an `Option` from which it can be lent.
    type Lent: Send;
    /// The tuple of what travels back.
    type Back: Serialize + DeserializeOwned + Send;
    /// Does anything travel back?
    const GIVES_BACK: bool;

    /// Prepares the decoded arguments for [`Kinds::lend`].
    fn hold(own: Self::Own) -> Self::Lent;
    /// Lends all arguments to the function.
    fn lend(held: &mut Self::Lent) -> Self::Args<'_>;
    /// What is left once the function has returned.
    fn give_back(held: Self::Lent) -> Self::Back;
    /// Copies every `&mut` argument back.
    fn copy_back(args: Self::Args<'_>, back: Self::Back);

    /// The arguments of a call, each in an `Option` from which it can be lent further.
    type Held<'s>;
    /// As `Back`, borrowed.
    type Seen<'a>: Serialize;

    /// Prepares the arguments of a call for [`Kinds::relend`].
    fn held(args: Self::Args<'_>) -> Self::Held<'_>;
    /// Lends them all, once.
    fn relend<'a>(held: &'a mut Self::Held<'_>) -> Self::Args<'a>;
    /// What the call has left in the `&mut` arguments.
    fn seen<'a>(held: &'a Self::Held<'_>) -> Self::Seen<'a>;
}

impl Kinds for () {
    type Args<'s> = ();
    type Own = ();
    type Lent = ();
    type Back = ();
    const GIVES_BACK: bool = false;
    fn hold((): ()) {}
    fn lend((): &mut ()) {}
    fn give_back((): ()) {}
    fn copy_back((): (), (): ()) {}
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
            type Own = ($($kind::Own,)+);
            type Lent = ($(Option<$kind::Own>,)+);
            type Back = ($($kind::Back,)+);
            const GIVES_BACK: bool = $($kind::GIVES_BACK)||+;
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
