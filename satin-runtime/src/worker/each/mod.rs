//! Parallel loops: `par_map!`, `par_chunks!`, `par_reduce!`. Each element is a job, and so is each half of a range of elements, down to
//! the single one: a thief takes the oldest, which is the largest, so the grain follows from who has nothing to do.
//!
//! All such ranges are jobs of one function, [`PartOfLoop`], whatever the types of the loop: on the node that runs the loop it goes
//! through a [`Loop`] that knows them ([`typed`]). A part that leaves is written as the calls of its elements, each the bytes of the
//! arguments of a registered function; the node that takes it runs these ([`hosted`]), and need not know the types either. So no type
//! has to be registered for a loop, and any spawnable function can stand in one.
//!
//! The tree depends on the number of elements alone. So the jobs of a loop have the same names in every run, as repair wants them, and
//! the results of a reduction are put together in the same order: sums of floats are the same on any number of nodes.

mod hosted;
mod places;
mod sequential;
mod typed;
mod wire;

use crate::job::{
    HeldValue, Payload,
    codec::CodecError,
    function::{Call, Function, Info, Registration, U0, VTable},
    record::{Cx, Frame},
};

pub(super) use self::hosted::NotHere;
pub use self::{
    sequential::{seq_chunks, seq_map, seq_reduce, seq_reduce_chunks},
    typed::{par_chunks, par_map, par_reduce, par_reduce_chunks},
};
use super::scope::Scope;

/// The calls of a loop, and a place for each result. Its types are known to the implementation only.
///
/// # Safety of the methods
/// An element's place belongs to the [`Part`] that has the element: the unsafe methods may be called by the owner of that part alone.
pub(crate) trait Loop: Sync {
    /// Runs the call of an element as child `index` of the invocation in `cx`, and puts the result in its place.
    ///
    /// # Safety
    /// The caller's part has the element.
    unsafe fn run(&self, cx: Cx, index: u32, at: usize);

    /// Puts the results at two places together, as another child of the invocation; the first is the place of what comes of it.
    ///
    /// # Safety
    /// The caller's part has both elements.
    unsafe fn join(&self, scope: &Scope<'_>, first: usize, second: usize);

    /// The name of the function that is called for each element.
    fn function(&self) -> &'static str;

    /// The name of the function that puts two results together; `None` if there is a result for each element.
    fn joined_by(&self) -> Option<&'static str>;

    /// Writes the arguments of an element's call.
    fn call(&self, at: usize) -> Result<Piece, CodecError>;

    /// Writes the result in an element's place.
    ///
    /// # Safety
    /// The caller's part has the element.
    unsafe fn result(&self, at: usize) -> Result<Piece, CodecError>;

    /// Puts a result, which has come as bytes, in an element's place.
    ///
    /// # Safety
    /// The caller's part has the element.
    unsafe fn put(&self, at: usize, result: Piece) -> Result<(), CodecError>;
}

/// The bytes of an element's call, or of a result, with the shared values that these mention.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) bytes: Payload,
    pub(crate) values: Vec<HeldValue>,
}

/// A range of a loop's elements, which no other part has.
pub struct Part<'s> {
    calls: &'s (dyn Loop + 's),
    from: usize,
    to: usize,
}

impl<'s> Part<'s> {
    /// All elements of a loop.
    ///
    /// # Safety
    /// No other part of the loop is alive.
    unsafe fn whole(calls: &'s (dyn Loop + 's), count: usize) -> Part<'s> {
        Part {
            calls,
            from: 0,
            to: count,
        }
    }

    fn split(self) -> (Part<'s>, Part<'s>) {
        let Part { calls, from, to } = self;
        let middle = middle(from, to);
        let part = |from, to| Part { calls, from, to };
        (part(from, middle), part(middle, to))
    }

    /// The places in which results are, once all has run.
    fn places(&self) -> std::ops::Range<usize> {
        match self.calls.joined_by() {
            Some(_) => self.from..self.to.min(self.from + 1),
            None => self.from..self.to,
        }
    }
}

/// Where a range of elements is halved: on every node, and in sequential programs too.
fn middle(from: usize, to: usize) -> usize {
    from + (to - from).div_ceil(2)
}

/// A part of a loop, as a spawnable function.
pub struct PartOfLoop;

// SAFETY: the vtable is that of the function.
unsafe impl Function for PartOfLoop {
    type Kinds = (wire::LoopPart,);
    type Out = ();
    const VTABLE: &'static VTable = &PART_OF_LOOP;

    #[inline]
    fn call(cx: Cx, index: u32, (part,): (Part<'_>,)) {
        match part.to - part.from {
            0 => {}
            // SAFETY: the part has the element.
            1 => unsafe { part.calls.run(cx, index, part.from) },
            _ => run_both_halves(cx, index, part),
        }
    }
}

/// Is it the function of all loops?
pub(super) fn is_loop(function: &VTable) -> bool {
    std::ptr::eq(function, &raw const PART_OF_LOOP)
}

static PART_OF_LOOP: VTable = VTable::of::<PartOfLoop>(Info {
    name: concat!(
        env!("CARGO_PKG_NAME"),
        "@",
        env!("CARGO_PKG_VERSION"),
        " par_map"
    ),
    signature: "(part of a loop) -> ()",
    file: file!(),
    line: line!(),
});

inventory::submit! { Registration(&PART_OF_LOOP) }

#[inline(never)]
fn run_both_halves(cx: Cx, index: u32, part: Part<'_>) {
    let frame = Frame::new(cx, index);
    let scope = Scope::new::<U0>(cx, &frame);
    let calls = part.calls;
    let (first, second) = part.split();
    let (left, right) = (first.from, second.from);
    let first = scope.plan(Call::<PartOfLoop>::new((first,)));
    let second = scope.plan(Call::<PartOfLoop>::new((second,)));
    let second = scope.spawn(second);
    scope.run(first);
    second.sync();
    if calls.joined_by().is_some() {
        // SAFETY: both halves have ended, and their elements are this part's again.
        unsafe { calls.join(&scope, left, right) };
    }
}
