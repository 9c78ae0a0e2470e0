//! The arguments of tasks: handles with the mode in which they are used, and plain values.
//!
//! What may stand for an argument follows from its type in the function's signature: a `&T` is read ([`Reads`]), a `&mut T` or
//! `&mut [T]` changed ([`Changes`], [`ChangesAll`]), and any other is a value ([`Given`]). Of each the task holds a [`Part`], from
//! which the function's argument is lent once all versions that it needs are there.

use std::sync::{Arc, Weak};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, ser::SerializeSeq,
};

use super::{
    Flow, Handle,
    away::{DeliveredPart, MadeElsewhere, Missing, Origin, RemoteData, Risk, SecondRun},
    handles::NOTHING,
    prefetch::Show,
    task::TaskHead,
    version::Version,
    waiters::{Link, Waiters},
};
use crate::{
    job::{
        kinds::{
            Argument, Borrowed, BorrowedArgument, Carried, CarriedBack, CarriedLoan, CarriedMut,
            CarriedRef, CarriedSlice, Kind, Kinds, Lend, Mut, MutSlice, Ref, Travels, Value,
        },
        loans::{self, Lendable},
        outcome::OutcomePart,
    },
    worker::thread::quietly,
};

/// A handle that a task reads: [`r`].
pub struct Read<'g, T>(Handle<'g, T>);

/// A handle that a task changes: [`rw`].
pub struct Write<'g, T>(Handle<'g, T>);

/// Handles that a task reads as one list: [`many`].
pub struct ReadMany<'g, T>(Vec<Handle<'g, T>>);

/// The task reads this handle: for an argument `&T`, also `&[T]` of a handle of a `Vec<T>`, `&str` of one of a `String`.
pub fn r<T>(handle: Handle<'_, T>) -> Read<'_, T> {
    Read(handle)
}

/// The task changes this handle: for an argument `&mut T`, also `&mut [T]` of a handle of a `Vec<T>`. Who has read the handle before sees what
/// was there, and who uses it afterwards waits for this task.
pub fn rw<T>(handle: Handle<'_, T>) -> Write<'_, T> {
    Write(handle)
}

/// The task reads all of these handles: for an argument `&Many<T>`.
pub fn many<'g, T>(handles: impl IntoIterator<Item = Handle<'g, T>>) -> ReadMany<'g, T> {
    ReadMany(handles.into_iter().collect())
}

/// A list of values that a task reads, each where it is: the argument of a function of any number of inputs.
#[derive(Clone)]
pub struct Many<T>(Vec<Element<T>>);

/// A value of a list.
enum Element<T> {
    /// Of a flow of this process.
    Version(Arc<Version<T>>),
    /// Of nobody else, or it has come by its name.
    Value(Arc<T>),
}

impl<T> Clone for Element<T> {
    fn clone(&self) -> Element<T> {
        match self {
            Element::Version(version) => Element::Version(Arc::clone(version)),
            Element::Value(value) => Element::Value(Arc::clone(value)),
        }
    }
}

impl<T> Element<T> {
    fn look(&self) -> &T {
        match self {
            Element::Version(version) => version.look().expect(THERE),
            Element::Value(value) => value,
        }
    }

    /// `None` if another node keeps it, or it has come as bytes that nobody has read.
    fn peek(&self) -> Option<&T> {
        match self {
            Element::Version(version) => version.peek(),
            Element::Value(value) => Some(value),
        }
    }
}

impl<T> Many<T> {
    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values, in the order of the handles.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.iter().map(Element::look)
    }
}

impl<T> FromIterator<T> for Many<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Many<T> {
        let values = values.into_iter().map(Arc::new);
        Many(values.map(Element::Value).collect())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Many<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Serialize for Many<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // One by one: each counts, also where they are only measured.
        let mut list = to.serialize_seq(Some(self.len()))?;
        for element in &self.0 {
            list.serialize_element(element)?;
        }
        list.end()
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Serialize for Element<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let loan = match self {
            Element::Version(version) if loans::is_element() => {
                CarriedLoan::lent(self.peek(), &**version)
            }
            _ => CarriedLoan::of(self.look()),
        };
        loan.serialize(to)
    }
}

impl<'de, T: Serialize + DeserializeOwned + Send + Sync + 'static> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Many<T>, D::Error> {
        let values = Vec::<Borrowed<T>>::deserialize(from)?.into_iter();
        let elements = values.map(|value| match value {
            Borrowed::Own(value) => Arc::new(value),
            Borrowed::Lent(value) => value,
        });
        Ok(Many(elements.map(Element::Value).collect()))
    }
}

/// A task's argument `&T`.
#[diagnostic::on_unimplemented(
    message = "the function reads this argument, a `&{T}`: a task takes a handle of such data for it",
    label = "write `r(handle)`, or `many(handles)` for a `&Many<..>`; of a plain value `r(g.data(value))`"
)]
pub trait Reads<'g, T: ?Sized + 'static> {
    /// What the task holds of it.
    type Part: Part + LooksAt<T>;
    /// Binds the handle to the version that is the last one in the order of the program.
    fn read(self, flow: &Flow<'g>) -> Self::Part;
}

/// A task's argument `&mut T`.
#[diagnostic::on_unimplemented(
    message = "the function changes this argument, a `&mut {T}`: a task takes a handle of such data for it",
    label = "write `rw(handle)`, or `acc(handle)` to add; of a plain value `rw(g.data(value))`",
    note = "the type must be `Clone`: tasks that still read what was there before keep it"
)]
pub trait Changes<'g, T: 'static> {
    /// What the task holds of it.
    type Part: Part + Alters<T>;
    /// Binds the handle to the version that is the last one in the order of the program.
    fn change(self, flow: &Flow<'g>) -> Self::Part;
}

/// A task's argument `&mut [T]`.
#[diagnostic::on_unimplemented(
    message = "the function changes this argument, a `&mut [{T}]`: a task takes a handle of a `Vec<{T}>` for it",
    label = "write `rw(handle)`; of a plain value `rw(g.data(value))`",
    note = "the type must be `Clone`: tasks that still read what was there before keep it"
)]
pub trait ChangesAll<'g, T: 'static> {
    /// What the task holds of it.
    type Part: Part + Alters<Vec<T>>;
    /// Binds the handle to the version that is the last one in the order of the program.
    fn change_all(self, flow: &Flow<'g>) -> Self::Part;
}

/// What a task holds of one argument.
pub trait Part: Send + 'static {
    /// Shows the versions that must be there before the task can run, each with a link for it.
    fn inputs(&self, show: &mut dyn FnMut(&Waiters<TaskHead>, &Link<TaskHead>)) {
        let _ = show;
    }
    /// From now on the handle names what the task makes of it.
    fn install(&self, flow: &Flow<'_>) {
        let _ = flow;
    }
    /// All versions are there: the task is about to run.
    fn prepare(&mut self) {}
    /// The task has run, or is given up, and reads nothing any more. Before what it has made is shown: who changes next what this task has read finds
    /// it to be the only one's.
    fn release(&mut self) {}
    /// The task has run, as `made` says by whom, or is given up. What it has made can be used; the tasks that have waited for it are shown.
    fn end(&mut self, made: Option<Maker>, show: &mut Show<'_>) {
        let _ = (made, show);
    }
    /// The worker that has made what the task changes.
    fn maker_of_changed(&self) -> Option<u32> {
        None
    }
    /// The node that keeps what the task changes (`is_changed`) or only reads. Also asked of a task that still waits, by several threads at once: an
    /// implementation looks at versions alone, and at no link or cell.
    fn keeper(&self, is_changed: bool) -> Option<u128> {
        let _ = is_changed;
        None
    }
    /// Shows the versions that the task needs, and that other nodes keep.
    fn missing(&self, show: &mut dyn FnMut(Missing)) {
        let _ = show;
    }
    /// What it would take to make those again.
    fn risk(&self) -> Risk {
        Risk::default()
    }
    /// The task has run elsewhere, where something of what it has made is kept: puts that into its versions, which the caller shows. What the task
    /// needs stays, so that it can run again.
    fn put_elsewhere(&mut self, origin: &Origin<'_>, show: &mut dyn FnMut(MadeElsewhere)) {
        let _ = (origin, show);
    }
    /// The task has run again, or is given up. What it has made takes the place of what was lost.
    fn end_again(&mut self, again: &SecondRun<'_>) {
        let _ = again;
    }
}

/// Who has run a task: a worker, if it was one of this process.
pub type Maker = Option<u32>;

/// A part from which a `&T` can be lent.
pub trait LooksAt<T: ?Sized> {
    /// The value. It is there.
    fn look(&self) -> &T;
    /// The same as it stands in a task that leaves.
    fn sent(&self) -> CarriedLoan<'_, T> {
        CarriedLoan::of(self.look())
    }
}

/// A part from which a `&mut T` can be lent.
pub trait Alters<T> {
    /// The value, once it has been prepared.
    fn alter(&mut self) -> &mut T;
    /// What the task begins with, before it has been prepared.
    fn first(&self) -> First<'_, T>;
    /// The task has run elsewhere, and has made this of it.
    fn replace(&mut self, value: T);
    /// The task has run elsewhere, and has made this of it, which may be kept there.
    fn receive(&mut self, made: OutcomePart);
}

/// What a task begins with that changes it.
pub struct First<'a, T> {
    /// `None` if another node keeps it.
    value: Option<&'a T>,
    /// Others may read it.
    lent: Option<&'a dyn Lendable>,
}

impl<'a, T> First<'a, T> {
    /// What nobody else has.
    pub(super) fn of(value: &'a T) -> First<'a, T> {
        First {
            value: Some(value),
            lent: None,
        }
    }

    fn sent<V>(self, carry: impl FnOnce(&'a T) -> V) -> CarriedMut<'a, V> {
        let value = self.value.map(carry);
        match (value, self.lent) {
            (value, Some(lent)) => CarriedMut::lent(value, lent),
            (Some(value), None) => CarriedMut::of(value),
            (None, None) => unreachable!("{THERE}"),
        }
    }
}

const ONCE: &str = "an argument is lent once";

const MADE: &str = "the outcome of a task has a part for each of its `&mut` arguments";

const THERE: &str = "a task runs when its inputs are there";

/// A version that a task reads.
pub struct ReadPart<T> {
    version: Option<Arc<Version<T>>>,
    link: Link<TaskHead>,
}

// SAFETY: the link's cells belong to the creator of the task until it is entered, and to who closes the stack afterwards.
unsafe impl<T: Send + Sync> Send for ReadPart<T> {}

impl<T: Send + Sync + 'static> ReadPart<T> {
    fn of(handle: Handle<'_, T>, flow: &Flow<'_>) -> ReadPart<T> {
        ReadPart::of_version(flow.version(handle))
    }
}

impl<T> ReadPart<T> {
    pub(super) fn of_version(version: Arc<Version<T>>) -> ReadPart<T> {
        ReadPart {
            version: Some(version),
            link: Link::default(),
        }
    }

    fn there(&self) -> &T {
        let version = self.version.as_ref().expect(THERE);
        version.look().expect(THERE)
    }
}

impl<T: Send + Sync + 'static> Part for ReadPart<T> {
    fn inputs(&self, show: &mut dyn FnMut(&Waiters<TaskHead>, &Link<TaskHead>)) {
        if let Some(version) = &self.version {
            show(&version.waiters, &self.link);
        }
    }

    fn release(&mut self) {
        self.version = None;
    }

    fn keeper(&self, is_changed: bool) -> Option<u128> {
        let version = self.version.as_ref().filter(|_| !is_changed)?;
        version.away().map(RemoteData::at)
    }

    fn missing(&self, show: &mut dyn FnMut(Missing)) {
        self.version
            .iter()
            .for_each(|version| show_missing(version, show));
    }

    fn risk(&self) -> Risk {
        self.version.as_ref().map_or(Risk::default(), Version::risk)
    }
}

/// Shows the version, if another node keeps it.
fn show_missing<T: Send + Sync + 'static>(
    version: &Arc<Version<T>>,
    show: &mut dyn FnMut(Missing),
) {
    if version.is_missing() {
        show(Missing::new(version));
    }
}

impl<T: ?Sized + Lend<Owned: Send + Sync>> LooksAt<T> for ReadPart<T::Owned> {
    fn look(&self) -> &T {
        T::lend(self.there())
    }

    fn sent(&self) -> CarriedLoan<'_, T> {
        let version = self.version.as_deref().expect(THERE);
        CarriedLoan::lent(version.peek().map(T::lend), version)
    }
}

#[diagnostic::do_not_recommend]
impl<'g, T> Reads<'g, T> for Read<'g, T::Owned>
where
    T: ?Sized + Lend<Owned: Send + Sync> + 'static,
{
    type Part = ReadPart<T::Owned>;

    fn read(self, flow: &Flow<'g>) -> ReadPart<T::Owned> {
        ReadPart::of(self.0, flow)
    }
}

/// Versions that a task reads as a list.
pub struct ManyPart<T> {
    all: Many<T>,
    links: Vec<Link<TaskHead>>,
}

// SAFETY: as for `ReadPart`.
unsafe impl<T: Send + Sync> Send for ManyPart<T> {}

impl<T: Send + Sync + 'static> ManyPart<T> {
    fn of(handles: Vec<Handle<'_, T>>, flow: &Flow<'_>) -> ManyPart<T> {
        let versions: Vec<_> = (handles.into_iter())
            .map(|handle| flow.version(handle))
            .collect();
        ManyPart {
            links: versions.iter().map(|_| Link::default()).collect(),
            all: Many(versions.into_iter().map(Element::Version).collect()),
        }
    }
}

impl<T: Send + Sync + 'static> Part for ManyPart<T> {
    fn inputs(&self, show: &mut dyn FnMut(&Waiters<TaskHead>, &Link<TaskHead>)) {
        for (element, link) in self.all.0.iter().zip(&self.links) {
            if let Element::Version(version) = element {
                show(&version.waiters, link);
            }
        }
    }

    fn release(&mut self) {
        self.all.0.clear();
    }

    fn keeper(&self, is_changed: bool) -> Option<u128> {
        let mut versions = self.versions().filter(|_| !is_changed);
        versions.find_map(|version| version.away().map(RemoteData::at))
    }

    fn missing(&self, show: &mut dyn FnMut(Missing)) {
        self.versions()
            .for_each(|version| show_missing(version, show));
    }

    fn risk(&self) -> Risk {
        let risks = self.versions().map(Version::risk);
        risks.fold(Risk::default(), Risk::max)
    }
}

impl<T> ManyPart<T> {
    fn versions(&self) -> impl Iterator<Item = &Arc<Version<T>>> {
        self.all.0.iter().filter_map(|element| match element {
            Element::Version(version) => Some(version),
            Element::Value(_) => None,
        })
    }
}

/// The list stands in the task, but of its elements the names.
impl<T> LooksAt<Many<T>> for ManyPart<T> {
    fn look(&self) -> &Many<T> {
        &self.all
    }

    fn sent(&self) -> CarriedLoan<'_, Many<T>> {
        CarriedLoan::list(&self.all)
    }
}

#[diagnostic::do_not_recommend]
impl<'g, T> Reads<'g, Many<T>> for ReadMany<'g, T>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Part = ManyPart<T>;

    fn read(self, flow: &Flow<'g>) -> ManyPart<T> {
        ManyPart::of(self.0, flow)
    }
}

/// A version that a task makes of another one.
pub struct WritePart<T> {
    at: u32,
    from: Option<Arc<Version<T>>>,
    link: Link<TaskHead>,
    value: Option<T>,
    to: Option<Arc<Version<T>>>,
    /// What a task has made that has run elsewhere, where that is kept.
    late: Option<Box<LateArgument<T>>>,
}

/// What a task has made elsewhere.
enum LateArgument<T> {
    /// It has come, or is kept there.
    Delivered(DeliveredPart<T>),
    /// It is in this version, for which the task may run again.
    Put(Weak<Version<T>>),
}

// SAFETY: as for `ReadPart`.
unsafe impl<T: Send + Sync> Send for WritePart<T> {}

impl<T: Clone + Send + Sync + 'static> WritePart<T> {
    fn of(handle: Handle<'_, T>, flow: &Flow<'_>) -> WritePart<T> {
        WritePart::new(handle.place(), Some(flow.version(handle)))
    }
}

impl<T> WritePart<T> {
    /// What a task makes of a version that no handle names.
    pub(super) fn of_version(version: Arc<Version<T>>) -> WritePart<T> {
        WritePart::new(NOTHING, Some(version))
    }

    /// What a task makes for a handle without what is there.
    pub(super) fn of_nothing(handle: Handle<'_, T>) -> WritePart<T> {
        WritePart::new(handle.place(), None)
    }

    fn new(at: u32, from: Option<Arc<Version<T>>>) -> WritePart<T> {
        WritePart {
            at,
            from,
            link: Link::default(),
            value: None,
            to: Some(Version::empty()),
            late: None,
        }
    }

    /// The place of the handle.
    pub(super) fn place(&self) -> u32 {
        self.at
    }

    /// The version that the task makes, until it has ended.
    pub(super) fn makes(&self) -> Option<&Arc<Version<T>>> {
        self.to.as_ref()
    }

    /// The task works on this value.
    pub(super) fn begin_with(&mut self, value: T) {
        self.value = Some(value);
    }
}

impl<T: Travels + Clone + Send + Sync> Part for WritePart<T> {
    fn inputs(&self, show: &mut dyn FnMut(&Waiters<TaskHead>, &Link<TaskHead>)) {
        if let Some(from) = &self.from {
            show(&from.waiters, &self.link);
        }
    }

    fn install(&self, flow: &Flow<'_>) {
        if let (Some(from), Some(to)) = (&self.from, &self.to) {
            flow.replace(self.at, from, Arc::clone(to));
        }
    }

    /// If nobody else reads what was there before, the task works in place.
    fn prepare(&mut self) {
        if let Some(from) = self.from.take() {
            self.value = Version::take(from);
        }
    }

    fn release(&mut self) {
        self.from = None;
    }

    fn maker_of_changed(&self) -> Option<u32> {
        self.from.as_ref()?.maker()
    }

    fn keeper(&self, is_changed: bool) -> Option<u128> {
        let from = self.from.as_ref().filter(|_| is_changed)?;
        from.away().map(RemoteData::at)
    }

    fn missing(&self, show: &mut dyn FnMut(Missing)) {
        self.from.iter().for_each(|from| show_missing(from, show));
    }

    fn risk(&self) -> Risk {
        self.from.as_ref().map_or(Risk::default(), Version::risk)
    }

    fn put_elsewhere(&mut self, origin: &Origin<'_>, show: &mut dyn FnMut(MadeElsewhere)) {
        let Some(to) = self.to.take() else { return };
        let late = Box::new(LateArgument::Put(Arc::downgrade(&to)));
        let Some(LateArgument::Delivered(made)) = self.late.replace(late).map(|late| *late) else {
            unreachable!("{MADE}")
        };
        // SAFETY: the task is the one writer, and ends once.
        show(unsafe { MadeElsewhere::put(to, made, origin) });
        // Nobody reads what was there before: it is wanted only if the task is to run again.
        if let Some(from) = &self.from
            && Arc::strong_count(from) == 1
            && let Some(away) = from.away()
        {
            away.let_go(origin.pool);
        }
    }

    fn end_again(&mut self, again: &SecondRun<'_>) {
        if let Some(LateArgument::Put(version)) = self.late.as_deref() {
            again.put(version, self.value.take());
        }
    }

    fn end(&mut self, made: Option<Maker>, show: &mut Show<'_>) {
        let value = self.value.take();
        let Some(to) = self.to.take() else { return };
        match (made, value) {
            // SAFETY: the task is the one writer, and ends once.
            (Some(maker), Some(value)) => unsafe { to.put(value, maker) },
            (_, value) => quietly(|| drop(value)),
        }
        show.made(to);
    }
}

/// A task that was not made, or not ended, leaves nobody who waits.
impl<T> Drop for WritePart<T> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            // Who waits for it now is a task that has not been made either: its maker unwinds.
            to.waiters.close().show(|_| ());
        }
    }
}

impl<T: Travels + Send + Sync> Alters<T> for WritePart<T> {
    fn alter(&mut self) -> &mut T {
        self.value.as_mut().expect(THERE)
    }

    fn first(&self) -> First<'_, T> {
        match (&self.value, &self.from) {
            (Some(value), _) => First::of(value),
            (None, from) => {
                let from = from.as_deref().expect(THERE);
                let lent: &dyn Lendable = from;
                First {
                    value: from.peek(),
                    lent: Some(lent),
                }
            }
        }
    }

    fn replace(&mut self, value: T) {
        self.from = None;
        self.value = Some(value);
    }

    fn receive(&mut self, made: OutcomePart) {
        self.late = Some(Box::new(LateArgument::Delivered(DeliveredPart::read(made))));
    }
}

impl<'g, T: Travels + Clone + Send + Sync> Changes<'g, T> for Write<'g, T> {
    type Part = WritePart<T>;

    fn change(self, flow: &Flow<'g>) -> WritePart<T> {
        WritePart::of(self.0, flow)
    }
}

impl<'g, T> ChangesAll<'g, T> for Write<'g, Vec<T>>
where
    T: Clone + Send + Sync + 'static,
    Vec<T>: Travels,
{
    type Part = WritePart<Vec<T>>;

    fn change_all(self, flow: &Flow<'g>) -> WritePart<Vec<T>> {
        WritePart::of(self.0, flow)
    }
}

/// A value that a task takes.
pub struct Given<T>(Option<T>);

impl<T> Given<T> {
    /// Holds the value.
    pub fn new(value: T) -> Given<T> {
        Given(Some(value))
    }
}

impl<T: Send + 'static> Part for Given<T> {}

/// A part that lends an argument of that kind.
pub trait Lends<K: Kind> {
    /// The argument, once.
    fn lend(&mut self) -> K::Arg<'_>;
    /// The argument as it travels, before it is lent.
    fn sent(&self) -> K::Sent<'_>;
    /// The task has run elsewhere, and this has come back.
    fn take_back(&mut self, back: K::Back);
    /// The same, where what it has made has come in parts, of which some are kept there.
    fn take_part(&mut self, parts: &mut dyn Iterator<Item = OutcomePart>) {
        let _ = parts;
    }
}

impl<F: Argument<AT>, const AT: usize> Lends<Value<F, AT>> for Given<F::Type> {
    fn lend(&mut self) -> F::Type {
        self.0.take().expect(ONCE)
    }

    fn sent(&self) -> CarriedRef<'_, F::Type> {
        CarriedRef(self.0.as_ref().expect(ONCE))
    }

    fn take_back(&mut self, (): ()) {}
}

impl<F: BorrowedArgument<AT>, P: LooksAt<F::Type>, const AT: usize> Lends<Ref<F, AT>> for P {
    fn lend(&mut self) -> &F::Type {
        self.look()
    }

    fn sent(&self) -> CarriedLoan<'_, F::Type> {
        LooksAt::sent(self)
    }

    fn take_back(&mut self, (): ()) {}
}

impl<F: Argument<AT>, P: Alters<F::Type>, const AT: usize> Lends<Mut<F, AT>> for P {
    fn lend(&mut self) -> &mut F::Type {
        self.alter()
    }

    fn sent(&self) -> CarriedMut<'_, CarriedRef<'_, F::Type>> {
        self.first().sent(CarriedRef)
    }

    fn take_back(&mut self, Carried(value): Carried<F::Type>) {
        self.replace(value);
    }

    fn take_part(&mut self, parts: &mut dyn Iterator<Item = OutcomePart>) {
        self.receive(parts.next().expect(MADE));
    }
}

impl<F: Argument<AT>, P: Part + Alters<Vec<F::Type>>, const AT: usize> Lends<MutSlice<F, AT>>
    for P
{
    fn lend(&mut self) -> &mut [F::Type] {
        self.alter()
    }

    fn sent(&self) -> CarriedMut<'_, CarriedSlice<'_, F::Type>> {
        self.first().sent(|values| CarriedSlice(values))
    }

    fn take_back(&mut self, back: CarriedBack<F::Type>) {
        let Some(first) = self.first().value else {
            return self.replace(back.into_values());
        };
        match back.into_vec(first.len()) {
            Ok(values) => self.replace(values),
            Err(back) => {
                self.prepare();
                back.copy_to(self.alter());
            }
        }
    }

    fn take_part(&mut self, parts: &mut dyn Iterator<Item = OutcomePart>) {
        self.receive(parts.next().expect(MADE));
    }
}

/// What a task holds of all arguments of a function of these kinds.
pub trait Parts<K: Kinds>: Send + 'static {
    /// Shows the versions that must be there, each with a link.
    fn inputs(&self, show: &mut dyn FnMut(&Waiters<TaskHead>, &Link<TaskHead>));
    /// From now on the handles name what the task makes.
    fn install(&self, flow: &Flow<'_>);
    /// All versions are there.
    fn prepare(&mut self);
    /// The arguments, once.
    fn lend(&mut self) -> K::Args<'_>;
    /// The arguments as they travel, before they are lent.
    fn sent(&self) -> K::Sent<'_>;
    /// The task has run elsewhere, and this has come back.
    fn take_back(&mut self, back: K::Back);
    /// The task reads nothing any more.
    fn release(&mut self);
    /// The task is over, run as `made` says by whom; those that have waited for it are shown.
    fn end(&mut self, made: Option<Maker>, show: &mut Show<'_>);
    /// The worker that has made what the task changes: best run there.
    fn maker_of_changed(&self) -> Option<u32>;
    /// The node that keeps what the task changes, or else what it reads: best run there.
    fn keeper(&self) -> Option<u128>;
    /// Shows the versions that the task needs, and that other nodes keep.
    fn missing(&self, show: &mut dyn FnMut(Missing));
    /// What it would take to make those again.
    fn risk(&self) -> Risk;
    /// The task has run elsewhere, and has made this; some of it is kept there.
    fn take_parts(&mut self, parts: &mut dyn Iterator<Item = OutcomePart>);
    /// The task has run elsewhere: what it has made is put into its versions.
    fn put_elsewhere(&mut self, origin: &Origin<'_>, show: &mut dyn FnMut(MadeElsewhere));
    /// The task has run again, or is given up.
    fn end_again(&mut self, again: &SecondRun<'_>);
}

impl Parts<()> for () {
    fn inputs(&self, _: &mut dyn FnMut(&Waiters<TaskHead>, &Link<TaskHead>)) {}
    fn install(&self, _: &Flow<'_>) {}
    fn prepare(&mut self) {}
    fn lend(&mut self) {}
    fn sent(&self) {}
    fn take_back(&mut self, (): ()) {}
    fn release(&mut self) {}
    fn end(&mut self, _: Option<Maker>, _: &mut Show<'_>) {}
    fn maker_of_changed(&self) -> Option<u32> {
        None
    }
    fn keeper(&self) -> Option<u128> {
        None
    }
    fn missing(&self, _: &mut dyn FnMut(Missing)) {}
    fn risk(&self) -> Risk {
        Risk::default()
    }
    fn take_parts(&mut self, _: &mut dyn Iterator<Item = OutcomePart>) {}
    fn put_elsewhere(&mut self, _: &Origin<'_>, _: &mut dyn FnMut(MadeElsewhere)) {}
    fn end_again(&mut self, _: &SecondRun<'_>) {}
}

macro_rules! tuple_of_parts {
    ($($kind:ident $part:ident $name:ident $back:ident),+) => {
        impl<$($kind: Kind, $part: Part + Lends<$kind>),+> Parts<($($kind,)+)> for ($($part,)+) {
            fn inputs(&self, show: &mut dyn FnMut(&Waiters<TaskHead>, &Link<TaskHead>)) {
                let ($($name,)+) = self;
                $($name.inputs(show);)+
            }
            fn install(&self, flow: &Flow<'_>) {
                let ($($name,)+) = self;
                $($name.install(flow);)+
            }
            fn prepare(&mut self) {
                let ($($name,)+) = self;
                $($name.prepare();)+
            }
            fn lend(&mut self) -> <($($kind,)+) as Kinds>::Args<'_> {
                let ($($name,)+) = self;
                ($(Lends::<$kind>::lend($name),)+)
            }
            fn sent(&self) -> <($($kind,)+) as Kinds>::Sent<'_> {
                let ($($name,)+) = self;
                ($(Lends::<$kind>::sent($name),)+)
            }
            fn take_back(&mut self, back: <($($kind,)+) as Kinds>::Back) {
                let ($($name,)+) = self;
                let ($($back,)+) = back;
                $(Lends::<$kind>::take_back($name, $back);)+
            }
            fn release(&mut self) {
                let ($($name,)+) = self;
                $($name.release();)+
            }
            fn end(&mut self, made: Option<Maker>, show: &mut Show<'_>) {
                let ($($name,)+) = self;
                $($name.end(made, show);)+
            }
            fn maker_of_changed(&self) -> Option<u32> {
                let ($($name,)+) = self;
                None$(.or_else(|| $name.maker_of_changed()))+
            }
            fn keeper(&self) -> Option<u128> {
                let ($($name,)+) = self;
                let changed = None$(.or_else(|| $name.keeper(true)))+;
                changed$(.or_else(|| $name.keeper(false)))+
            }
            fn missing(&self, show: &mut dyn FnMut(Missing)) {
                let ($($name,)+) = self;
                $($name.missing(show);)+
            }
            fn risk(&self) -> Risk {
                let ($($name,)+) = self;
                Risk::default()$(.max($name.risk()))+
            }
            fn take_parts(&mut self, parts: &mut dyn Iterator<Item = OutcomePart>) {
                let ($($name,)+) = self;
                $(Lends::<$kind>::take_part($name, parts);)+
            }
            fn put_elsewhere(
                &mut self,
                origin: &Origin<'_>,
                show: &mut dyn FnMut(MadeElsewhere),
            ) {
                let ($($name,)+) = self;
                $($name.put_elsewhere(origin, show);)+
            }
            fn end_again(&mut self, again: &SecondRun<'_>) {
                let ($($name,)+) = self;
                $($name.end_again(again);)+
            }
        }
    };
}

tuple_of_parts!(A X a x);
tuple_of_parts!(A X a x, B Y b y);
tuple_of_parts!(A X a x, B Y b y, C Z c z);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w, E V e v);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w, E V e v, F U f u);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w, E V e v, F U f u, G T g t);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w, E V e v, F U f u, G T g t, H S h s);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w, E V e v, F U f u, G T g t, H S h s, I R i r);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w, E V e v, F U f u, G T g t, H S h s, I R i r, J Q j q);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w, E V e v, F U f u, G T g t, H S h s, I R i r, J Q j q, K P k p);
tuple_of_parts!(A X a x, B Y b y, C Z c z, D W d w, E V e v, F U f u, G T g t, H S h s, I R i r, J Q j q, K P k p, L O l o);

// Tasks that are called where they stand, in a flow without workers: each argument is bound, then all that is changed is opened, and closed again
// after the call.

#[doc(hidden)]
impl<'g, T: Send + Sync + 'static> Read<'g, T> {
    pub fn bind(self, flow: &Flow<'g>) -> ReadPart<T> {
        ReadPart::of(self.0, flow)
    }
}

#[doc(hidden)]
impl<T> ReadPart<T> {
    pub fn open(&mut self, _: &Flow<'_>) {}

    pub fn value(&mut self) -> &T {
        self.there()
    }

    pub fn close(self) {}
}

#[doc(hidden)]
impl<'g, T: Send + Sync + 'static> ReadMany<'g, T> {
    pub fn bind(self, flow: &Flow<'g>) -> ManyPart<T> {
        ManyPart::of(self.0, flow)
    }
}

#[doc(hidden)]
impl<T> ManyPart<T> {
    pub fn open(&mut self, _: &Flow<'_>) {}

    pub fn value(&mut self) -> &Many<T> {
        &self.all
    }

    pub fn close(self) {}
}

#[doc(hidden)]
impl<'g, T: Clone + Send + Sync + 'static> Write<'g, T> {
    pub fn bind(self, flow: &Flow<'g>) -> WritePart<T> {
        WritePart::of(self.0, flow)
    }
}

#[doc(hidden)]
impl<T: Travels + Clone + Send + Sync> WritePart<T> {
    pub fn open(&mut self, flow: &Flow<'_>) {
        self.install(flow);
        self.prepare();
    }

    pub fn value(&mut self) -> &mut T {
        self.alter()
    }

    pub fn close(mut self) {
        self.end(Some(None), &mut Show::nobody());
    }
}
