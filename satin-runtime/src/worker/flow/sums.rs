//! Sums: handles to which tasks add.
//!
//! Each such task works on a value of its own, which begins as nothing: it waits neither for the others nor for what was there. Before the
//! handle is used in another way, what they have made is added up by tasks that stay in this process: neighbours in the order of the program first,
//! level by level, and the total to what was there. The order of additions follows from the number of tasks alone, so a sum of floats does
//! not depend on who ran when.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    sync::Arc,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    Flow, Handle,
    arguments::{Alters, Changes, ChangesAll, Maker, Part, ReadPart, WritePart},
    task::TaskHead,
    version::Version,
};
use crate::job::{
    function::{Args, Function, Info, VTable},
    kinds::{Argument, BorrowedArgument, Mut, Ref},
    record::Cx,
};

/// Data that tasks may add to, each apart from the others: [`acc`].
#[diagnostic::on_unimplemented(
    message = "tasks cannot add to a `{Self}`, as `acc(handle)` says",
    label = "needs `satin::Additive`",
    note = "numbers, vectors and maps of them can be added up; for a type of yours implement `satin::Additive`, or let tasks change it in turn: `rw(handle)`"
)]
pub trait Additive: Clone {
    /// What changes nothing when it is added. A task begins with it.
    fn nothing() -> Self;

    /// Adds.
    fn add(&mut self, more: &Self);
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Additive for $number {
            fn nothing() -> $number {
                <$number>::default()
            }
            fn add(&mut self, more: &$number) {
                *self += *more;
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

/// Element by element; what only one of them has stays. A task begins with an empty vector.
impl<T: Additive> Additive for Vec<T> {
    fn nothing() -> Vec<T> {
        Vec::new()
    }

    fn add(&mut self, more: &Vec<T>) {
        let both = self.len().min(more.len());
        for (to, more) in self.iter_mut().zip(more) {
            to.add(more);
        }
        self.extend_from_slice(&more[both..]);
    }
}

impl<K: Clone + Ord, V: Additive> Additive for BTreeMap<K, V> {
    fn nothing() -> BTreeMap<K, V> {
        BTreeMap::new()
    }

    fn add(&mut self, more: &BTreeMap<K, V>) {
        for (key, more) in more {
            match self.get_mut(key) {
                Some(to) => to.add(more),
                None => drop(self.insert(key.clone(), more.clone())),
            }
        }
    }
}

impl<K: Clone + Eq + Hash, V: Additive, S: BuildHasher + Default + Clone> Additive
    for HashMap<K, V, S>
{
    fn nothing() -> HashMap<K, V, S> {
        HashMap::default()
    }

    fn add(&mut self, more: &HashMap<K, V, S>) {
        for (key, more) in more {
            match self.get_mut(key) {
                Some(to) => to.add(more),
                None => drop(self.insert(key.clone(), more.clone())),
            }
        }
    }
}

impl<A: Additive, B: Additive> Additive for (A, B) {
    fn nothing() -> (A, B) {
        (A::nothing(), B::nothing())
    }

    fn add(&mut self, more: &(A, B)) {
        self.0.add(&more.0);
        self.1.add(&more.1);
    }
}

/// A handle that a task adds to: [`acc`].
pub struct Add<'g, T>(Handle<'g, T>);

/// The task adds to this handle: for an argument `&mut T`, also `&mut [T]` of a handle of a `Vec<T>`. The function gets [nothing](Additive::nothing)
/// instead of what is there, and what it leaves is added. Such tasks wait neither for each other nor for what is there; who uses the handle in
/// another way waits for the sum. The order of the additions is that of the program, in a tree, whoever runs when.
pub fn acc<T>(handle: Handle<'_, T>) -> Add<'_, T> {
    Add(handle)
}

/// Data that travels, and that can be added up.
pub trait Summed: Additive + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Additive + Serialize + DeserializeOwned + Send + Sync + 'static> Summed for T {}

/// What a task holds of a handle that it adds to: a version of its own.
pub struct AddPart<T>(WritePart<T>);

impl<T: Summed> Part for AddPart<T> {
    fn install(&self, flow: &Flow<'_>) {
        if let Some(to) = self.0.makes() {
            flow.add_later(self.0.place(), Arc::clone(to));
        }
    }

    fn prepares_long(&self) -> bool {
        true
    }

    fn prepare(&mut self) {
        self.0.begin_with(T::nothing());
    }

    fn end(&mut self, made: Option<Maker>, show: &mut dyn FnMut(*const TaskHead)) {
        self.0.end(made, show);
    }
}

impl<T> Alters<T> for AddPart<T> {
    fn alter(&mut self) -> &mut T {
        self.0.alter()
    }
}

impl<'g, T: Summed> Changes<'g, T> for Add<'g, T> {
    type Part = AddPart<T>;

    fn change(self, flow: &Flow<'g>) -> AddPart<T> {
        self.bind(flow)
    }
}

impl<'g, T: Clone + Send + Sync + 'static> ChangesAll<'g, T> for Add<'g, Vec<T>>
where
    Vec<T>: Summed,
{
    type Part = AddPart<Vec<T>>;

    fn change_all(self, flow: &Flow<'g>) -> AddPart<Vec<T>> {
        self.bind(flow)
    }
}

// Also for tasks that are called where they stand.

#[doc(hidden)]
impl<'g, T: Summed> Add<'g, T> {
    pub fn bind(self, flow: &Flow<'g>) -> AddPart<T> {
        flow.must_have(self.0);
        AddPart(WritePart::of_nothing(self.0))
    }
}

#[doc(hidden)]
impl<T: Summed> AddPart<T> {
    pub fn open(&mut self, flow: &Flow<'_>) {
        self.install(flow);
        self.prepare();
    }

    pub fn value(&mut self) -> &mut T {
        self.alter()
    }

    pub fn close(self) {
        self.0.close();
    }
}

/// What tasks have made, or will make, that is to be added to a handle.
pub(super) struct Addends {
    versions: Vec<Arc<dyn Any + Send + Sync>>,
    add_up: AddUp,
}

/// Adds versions up, to the one that was there.
type AddUp = fn(&Flow<'_>, Vec<Arc<dyn Any + Send + Sync>>, Arc<dyn Any + Send + Sync>) -> Sum;

/// The version that is the sum.
type Sum = Arc<dyn Any + Send + Sync>;

impl Addends {
    pub(super) fn of<T: Summed>() -> Addends {
        Addends {
            versions: Vec::new(),
            add_up: add_up::<T>,
        }
    }

    pub(super) fn push<T: Summed>(&mut self, version: Arc<Version<T>>) {
        self.versions.push(version);
    }

    /// The version that is the sum of these and of the one that was there.
    pub(super) fn add_to(self, flow: &Flow<'_>, base: Sum) -> Sum {
        (self.add_up)(flow, self.versions, base)
    }
}

fn add_up<T: Summed>(flow: &Flow<'_>, versions: Vec<Sum>, base: Sum) -> Sum {
    let typed = |version: Sum| -> Arc<Version<T>> {
        let version = version.downcast::<Version<T>>();
        version.expect("a handle has the type of its data")
    };
    let mut level: Vec<_> = versions.into_iter().map(typed).collect();
    while level.len() > 1 {
        let mut pairs = level.into_iter();
        let mut sums = Vec::with_capacity(pairs.len().div_ceil(2));
        while let Some(left) = pairs.next() {
            sums.push(match pairs.next() {
                Some(right) => flow.sum(left, right),
                None => left,
            });
        }
        level = sums;
    }
    match level.pop() {
        Some(total) => flow.sum(typed(base), total),
        None => base,
    }
}

impl Flow<'_> {
    /// The sum of two versions, as a version: made by a task.
    fn sum<T: Summed>(&self, to: Arc<Version<T>>, more: Arc<Version<T>>) -> Arc<Version<T>> {
        if !self.is_parallel() {
            let mut sum = Version::take(to).expect(ADDED);
            sum.add(more.look().expect(ADDED));
            return Version::made(sum);
        }
        let to = WritePart::of_version(to);
        let sum = Arc::clone(to.makes().expect("it has not ended"));
        self.task_at_home::<AddOf<T>, _>((to, ReadPart::of_version(more)));
        sum
    }
}

const ADDED: &str = "where tasks run where they stand, what they add is there";

/// An addition, as a spawnable function. It is not registered: its tasks stay in this process.
struct AddOf<T>(PhantomData<fn() -> T>);

impl<T: Summed> Argument<0> for AddOf<T> {
    type Type = T;
}

impl<T: Summed> BorrowedArgument<1> for AddOf<T> {
    type Type = T;
}

// SAFETY: the vtable is that of the function.
unsafe impl<T: Summed> Function for AddOf<T> {
    type Kinds = (Mut<AddOf<T>, 0>, Ref<AddOf<T>, 1>);
    type Out = ();
    const VTABLE: &'static VTable = &VTable::of::<AddOf<T>>(Info {
        name: concat!(
            env!("CARGO_PKG_NAME"),
            "@",
            env!("CARGO_PKG_VERSION"),
            " add"
        ),
        signature: "(&mut T, &T) -> ()",
        file: file!(),
        line: line!(),
    });

    fn call(_: Cx, _: u32, (to, more): Args<'_, AddOf<T>>) {
        to.add(more);
    }
}
