//! Loops on the node that runs them, with the types of the program.

use std::marker::PhantomData;

use super::{Loop, Part, PartOfLoop, Piece, places::Places};
use crate::{
    job::{
        Payload,
        codec::{self, CodecError},
        function::{self, Args, Call, Function, Prepared},
        kinds::{Carried, CarriedRef, Kinds},
        needs,
        record::Cx,
    },
    worker::{gate::note_unfit, scope::Scope},
};

/// A prepared call of that function, whose arguments are borrowed for `'p`.
pub trait CallOf<'p, F: Function>: Prepared<'p, Function = F, Out = F::Out> {}

impl<'p, F: Function, P: Prepared<'p, Function = F, Out = F::Out>> CallOf<'p, F> for P {}

/// What a loop makes of two results.
trait JoinResults<R>: Sync {
    /// The function, by its name.
    fn name(&self) -> Option<&'static str>;
    /// Puts two results together, as the next child of the invocation.
    fn join(&self, scope: &Scope<'_>, a: R, b: R) -> R;
}

/// Each result stays what it is.
struct NoJoin;

impl<R> JoinResults<R> for NoJoin {
    fn name(&self) -> Option<&'static str> {
        None
    }
    fn join(&self, _: &Scope<'_>, _: R, _: R) -> R {
        unreachable!("no function puts results together")
    }
}

/// A spawnable function puts results together.
struct JoinBy<'p, J, G: Function, Q>(J, PhantomData<fn(&'p G) -> Q>);

impl<'p, R, J, G, Q> JoinResults<R> for JoinBy<'p, J, G, Q>
where
    J: Fn(R, R) -> Q + Sync,
    G: Function<Out = R>,
    Q: CallOf<'p, G>,
{
    fn name(&self) -> Option<&'static str> {
        Some(G::VTABLE.info.name)
    }
    fn join(&self, scope: &Scope<'_>, a: R, b: R) -> R {
        let args = (self.0)(a, b).into_args();
        scope.child(|cx, index| G::call(cx, index, args))
    }
}

/// The calls of a loop: `call` prepares that of each element, here or where the arguments are written.
struct Calls<'p, C, F: Function, P, J> {
    call: C,
    join: J,
    results: Places<F::Out>,
    prepared: PhantomData<fn(&'p F) -> P>,
}

impl<'p, C, F, P, J> Calls<'p, C, F, P, J>
where
    C: Fn(usize) -> P + Sync,
    F: Function,
    P: CallOf<'p, F>,
    J: JoinResults<F::Out>,
{
    /// Runs the loop: `run` enters the pool, or goes on in the running job.
    fn run(
        count: usize,
        call: C,
        join: J,
        run: impl FnOnce(Call<'_, PartOfLoop>),
    ) -> impl Iterator<Item = Option<F::Out>> {
        const {
            assert!(
                size_of::<<F::Kinds as Kinds>::Back>() == 0,
                "a function with an argument by `&mut` cannot be called for each element of a loop"
            );
        }
        function::assert_registered(F::VTABLE);
        let calls = Calls {
            call,
            join,
            results: Places::new(count),
            prepared: PhantomData,
        };
        if count > 0 {
            // SAFETY: the only part, which ends before `run` does: the call holds the borrow.
            let part = unsafe { Part::whole(&calls, count) };
            run(Call::new((part,)));
        }
        calls.results.into_results()
    }

    /// The arguments of an element's call.
    #[inline]
    fn args(&self, at: usize) -> Args<'p, F> {
        (self.call)(at).into_args()
    }
}

/// Writes a part of what is being written on this thread.
fn piece(write: impl FnOnce() -> Result<Vec<u8>, CodecError>) -> Result<Piece, CodecError> {
    let (bytes, values) = needs::gather_of_part(write);
    let bytes = Payload::from(bytes?);
    Ok(Piece { bytes, values })
}

impl<'p, C, F, P, J> Loop for Calls<'p, C, F, P, J>
where
    C: Fn(usize) -> P + Sync,
    F: Function,
    P: CallOf<'p, F>,
    J: JoinResults<F::Out>,
{
    #[inline]
    unsafe fn run(&self, cx: Cx, index: u32, at: usize) {
        let result = F::call(cx, index, self.args(at));
        // SAFETY: the caller's promise.
        unsafe { self.results.put(at, result) }
    }

    unsafe fn join(&self, scope: &Scope<'_>, first: usize, second: usize) {
        // SAFETY: the caller's promise.
        let (a, b) = unsafe { (self.results.take(first), self.results.take(second)) };
        let (a, b) = (a.expect("it has run"), b.expect("it has run"));
        let joined = self.join.join(scope, a, b);
        // SAFETY: the caller's promise.
        unsafe { self.results.put(first, joined) }
    }

    fn function(&self) -> &'static str {
        F::VTABLE.info.name
    }

    fn joined_by(&self) -> Option<&'static str> {
        self.join.name()
    }

    fn call(&self, at: usize) -> Result<Piece, CodecError> {
        if function::is_unfit(F::VTABLE) {
            return Err(CodecError::Unfit);
        }
        let args = self.args(at);
        let sent = F::Kinds::sent(&args);
        let what = "serializing the arguments";
        let written = piece(|| codec::write_part::<<F::Kinds as Kinds>::Own, _>(what, &sent));
        if let Err(error) = &written
            && error.weight() > 0
        {
            note_unfit(F::VTABLE, error.weight(), error, true);
        }
        written
    }

    unsafe fn result(&self, at: usize) -> Result<Piece, CodecError> {
        // SAFETY: the caller's promise.
        let result = unsafe { self.results.look(at) }.expect("it has run");
        let what = "serializing the result";
        piece(|| codec::write_part::<Carried<F::Out>, _>(what, &CarriedRef(result)))
    }

    unsafe fn put(&self, at: usize, result: Piece) -> Result<(), CodecError> {
        let Carried(read) = codec::read("deserializing the result", &result.bytes)?;
        // SAFETY: the caller's promise.
        unsafe { self.results.put(at, read) };
        Ok(())
    }
}

fn all<R>(results: impl Iterator<Item = Option<R>>) -> Vec<R> {
    let each = |result: Option<R>| result.expect("each element has run");
    results.map(each).collect()
}

/// The calls of `par_map!`.
///
/// # Panics
/// Panics with the panic of a call.
#[track_caller]
pub fn par_map<'a, 'p, T: Sync, F: Function, P: CallOf<'p, F>>(
    all_elements: &'a [T],
    call: impl Fn(&'a T) -> P + Sync,
    run: impl FnOnce(Call<'_, PartOfLoop>),
) -> Vec<F::Out> {
    let call = |at: usize| call(&all_elements[at]);
    all(Calls::run(all_elements.len(), call, NoJoin, run))
}

/// The number of chunks of that size, and the chunk with a number.
///
/// # Panics
/// If `size` is zero.
#[track_caller]
fn chunks<'a, T: Sync>(all: &'a [T], size: usize) -> (usize, impl Fn(usize) -> &'a [T] + Sync) {
    assert!(
        size > 0,
        "a chunk of a parallel loop needs at least one element: its size is 0"
    );
    let chunk = move |at: usize| &all[at * size..all.len().min((at + 1) * size)];
    (all.len().div_ceil(size), chunk)
}

/// The calls of `par_chunks!`.
///
/// # Panics
/// If `size` is zero, or with the panic of a call.
#[track_caller]
pub fn par_chunks<'a, 'p, T: Sync, F: Function, P: CallOf<'p, F>>(
    elements: &'a [T],
    size: usize,
    call: impl Fn(&'a [T]) -> P + Sync,
    run: impl FnOnce(Call<'_, PartOfLoop>),
) -> Vec<F::Out> {
    let (count, chunk) = chunks(elements, size);
    all(Calls::run(count, |at| call(chunk(at)), NoJoin, run))
}

/// The calls of `par_reduce!`.
///
/// # Panics
/// Panics with the panic of a call.
#[track_caller]
pub fn par_reduce<'a, 'p, T: Sync, F: Function, P, G, Q>(
    elements: &'a [T],
    call: impl Fn(&'a T) -> P + Sync,
    join: impl Fn(F::Out, F::Out) -> Q + Sync,
    run: impl FnOnce(Call<'_, PartOfLoop>),
) -> Option<F::Out>
where
    P: CallOf<'p, F>,
    G: Function<Out = F::Out>,
    Q: CallOf<'p, G>,
{
    let call = |at: usize| call(&elements[at]);
    let join = JoinBy(join, PhantomData);
    Calls::run(elements.len(), call, join, run).next().flatten()
}

/// The calls of `par_reduce!` with a size of chunks.
///
/// # Panics
/// If `size` is zero, or with the panic of a call.
#[track_caller]
pub fn par_reduce_chunks<'a, 'p, T: Sync, F: Function, P, G, Q>(
    elements: &'a [T],
    size: usize,
    call: impl Fn(&'a [T]) -> P + Sync,
    join: impl Fn(F::Out, F::Out) -> Q + Sync,
    run: impl FnOnce(Call<'_, PartOfLoop>),
) -> Option<F::Out>
where
    P: CallOf<'p, F>,
    G: Function<Out = F::Out>,
    Q: CallOf<'p, G>,
{
    let (count, chunk) = chunks(elements, size);
    let join = JoinBy(join, PhantomData);
    Calls::run(count, |at| call(chunk(at)), join, run)
        .next()
        .flatten()
}
