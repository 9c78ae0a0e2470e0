//! Sums: handles to which tasks add.
//!
//! Each such task works on a value of its own, which begins as nothing: it waits neither for the others nor for what was there. What they make is
//! added by tasks that stay in this process: as soon as there are two neighbours, in the order of the program, each the sum of as many, they are
//! one sum; so a closure holds few of them, however many tasks there are. Before the handle is used in another way the rest is added, from the last
//! one on, and the total to what was there. The order of additions follows from the number of tasks alone: a sum of floats does not depend
//! on who ran when.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    sync::Arc,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    Flow, Handle,
    arguments::{Alters, Changes, First, Maker, Part, ReadPart, WritePart},
    away::{MadeElsewhere, Origin, SecondRun},
    handles::ErasedVersion,
    prefetch::Show,
    version::Version,
};
use crate::job::{
    function::{Args, Function, Info, VTable},
    kinds::{Argument, BorrowedArgument, Mut, Ref},
    outcome::OutcomePart,
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

/// The task adds to this handle: for an argument `&mut T`. The function gets [nothing](Additive::nothing)
/// instead of what is there, and what it leaves is added. Such tasks wait neither for each other nor for what is there; who uses the handle in
/// another way waits for the sum. The order of the additions is that of the program, in a tree, whoever runs when.
///
/// A task may read the handle that it adds to, and then reads what was there.
pub fn acc<T>(handle: Handle<'_, T>) -> Add<'_, T> {
    Add(handle)
}

/// Data that travels, and that can be added up.
pub trait Summed: Additive + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Additive + Serialize + DeserializeOwned + Send + Sync + 'static> Summed for T {}

/// What a task holds of a handle that it adds to: a version of its own, and where that is which was there.
pub struct AddPart<T> {
    own: WritePart<T>,
    there: usize,
    /// What the task begins with, once it has been looked at: to be written, where the task leaves, or measured.
    nothing: OnceCell<T>,
}

impl<T: Summed> Part for AddPart<T> {
    fn install(&self, flow: &Flow<'_>) {
        if let Some(to) = self.own.makes() {
            flow.add_later(self.own.place(), self.there, Arc::clone(to));
        }
    }

    fn prepare(&mut self) {
        self.own
            .begin_with(self.nothing.take().unwrap_or_else(T::nothing));
    }

    fn end(&mut self, made: Option<Maker>, show: &mut Show<'_>) {
        self.own.end(made, show);
    }

    fn put_elsewhere(&mut self, origin: &Origin<'_>, show: &mut dyn FnMut(MadeElsewhere)) {
        self.own.put_elsewhere(origin, show);
    }

    fn end_again(&mut self, again: &SecondRun<'_>) {
        self.own.end_again(again);
    }
}

impl<T: Summed> Alters<T> for AddPart<T> {
    fn alter(&mut self) -> &mut T {
        self.own.alter()
    }

    fn first(&self) -> First<'_, T> {
        First::of(self.nothing.get_or_init(T::nothing))
    }

    fn receive(&mut self, made: OutcomePart) {
        self.own.receive(made);
    }

    fn replace(&mut self, value: T) {
        self.own.replace(value);
    }
}

impl<'g, T: Summed> Changes<'g, T> for Add<'g, T> {
    type Part = AddPart<T>;

    fn change(self, flow: &Flow<'g>) -> AddPart<T> {
        self.bind(flow)
    }
}

// Also for tasks that are called where they stand.

#[doc(hidden)]
impl<'g, T: Summed> Add<'g, T> {
    pub fn bind(self, flow: &Flow<'g>) -> AddPart<T> {
        let there = flow.add_up_to_now(self.0);
        let own = WritePart::of_nothing(self.0);
        let nothing = OnceCell::new();
        AddPart {
            own,
            there,
            nothing,
        }
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
        self.own.close();
    }
}

/// What tasks have made, or will make, that is to be added to a handle: sums, each with the number of times that it has been doubled, the largest
/// first.
pub(super) struct Addends {
    sums: Vec<(u32, ErasedVersion)>,
    add: AddVersions,
}

/// The sum of two versions.
type AddVersions = fn(&Flow<'_>, ErasedVersion, ErasedVersion) -> ErasedVersion;

impl Addends {
    pub(super) fn of<T: Summed>() -> Addends {
        Addends {
            sums: Vec::new(),
            add: |flow, to, more| flow.sum(typed::<T>(to), typed::<T>(more)),
        }
    }

    pub(super) fn push(&mut self, version: ErasedVersion) {
        self.sums.push((0, version));
    }

    /// Adds neighbours that are the sums of as many.
    pub(super) fn add_neighbours(&mut self, flow: &Flow<'_>) {
        while let [.., (left, _), (right, _)] = self.sums[..]
            && left == right
        {
            self.add_last_two(flow);
        }
    }

    fn add_last_two(&mut self, flow: &Flow<'_>) {
        if let Some((_, more)) = self.sums.pop()
            && let Some((doubled, to)) = self.sums.pop()
        {
            let sum = (self.add)(flow, to, more);
            self.sums.push((doubled + 1, sum));
        }
    }

    /// The version that is the sum of these and of the one that was there.
    pub(super) fn add_to(mut self, flow: &Flow<'_>, there: ErasedVersion) -> ErasedVersion {
        self.add_neighbours(flow);
        while self.sums.len() > 1 {
            self.add_last_two(flow);
        }
        match self.sums.pop() {
            Some((_, total)) => (self.add)(flow, there, total),
            None => there,
        }
    }
}

fn typed<T: Send + Sync + 'static>(version: ErasedVersion) -> Arc<Version<T>> {
    let version = version.downcast::<Version<T>>();
    version.expect("a handle has the type of its data")
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
        self.task_that_stays::<AddOf<T>, _>((to, ReadPart::of_version(more)));
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
