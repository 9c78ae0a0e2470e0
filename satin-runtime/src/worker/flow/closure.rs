//! The closure of a flow, as a function that can be called like a spawnable one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Mutex,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};

use super::{
    FlowCore,
    handles::{Flow, FlowState},
};
use crate::{
    job::{
        function::{Call, Function, Info, Registration, VTable},
        kinds::Kind,
        record::Cx,
    },
    worker::thread::Worker,
};

/// What runs a flow's closure: called once, by the worker that takes the flow.
pub struct Body<'s>(&'s mut (dyn FnMut(Cx, u32) + Send));

/// A flow, as a spawnable function. It stays in its process, while its tasks leave.
pub struct FlowBody;

// SAFETY: the vtable is that of the function.
unsafe impl Function for FlowBody {
    type Kinds = (Closure,);
    type Out = ();
    const VTABLE: &'static VTable = &FLOW;

    fn call(cx: Cx, index: u32, (body,): (Body<'_>,)) {
        (body.0)(cx, index);
    }
}

static FLOW: VTable = VTable::of::<FlowBody>(Info {
    name: concat!(
        env!("CARGO_PKG_NAME"),
        "@",
        env!("CARGO_PKG_VERSION"),
        " flow"
    ),
    signature: "(closure) -> ()",
    file: file!(),
    line: line!(),
});

inventory::submit! { Registration(&FLOW) }

/// The kind of argument that a closure is: none that travels.
pub struct Closure;

/// A closure, as serde is to see it: not at all.
pub struct Unsendable;

const STAYS_HERE: &str = "the closure of a flow stays in its process; its tasks can leave";

impl Serialize for Unsendable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom(STAYS_HERE))
    }
}

impl<'de> Deserialize<'de> for Unsendable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Unsendable, D::Error> {
        Err(D::Error::custom(STAYS_HERE))
    }
}

impl Kind for Closure {
    type Arg<'s> = Body<'s>;
    type Sent<'a> = Unsendable;
    type Own = Unsendable;
    type Back = ();

    fn sent(_: &Body<'_>) -> Unsendable {
        Unsendable
    }
    fn lend(_: &mut Option<Unsendable>) -> Body<'_> {
        unreachable!("{STAYS_HERE}")
    }
    fn give_back(_: Option<Unsendable>) {}
    fn copy_back(_: Body<'_>, (): ()) {}
    type Seen<'a> = ();
    fn relend<'a>(held: &'a mut Option<Body<'_>>) -> Body<'a> {
        Body(held.as_mut().expect("an argument is lent once").0)
    }
    fn seen(_: &Option<Body<'_>>) {}
}

/// Runs a flow: the macro `flow!`. `enter` calls its closure, as a root job or as a child of the running job.
///
/// # Panics
/// Panics with the panic of the closure or of a task; tasks that have not begun are not run then.
pub fn flow<R: Send>(
    closure: impl for<'g> FnOnce(&'g Flow<'g>) -> R + Send,
    enter: impl FnOnce(Call<'_, FlowBody>),
) -> R {
    let mut closure = Some(closure);
    let result = Mutex::new(None);
    let mut body = |cx: Cx, index: u32| {
        let closure = closure.take().expect("a flow runs once");
        let ended = run(cx, index, closure);
        *result.lock().expect("nobody panics with it") = Some(ended);
    };
    enter(Call::new((Body(&mut body),)));
    let result = result.into_inner().expect("nobody panics with it");
    result.expect("the flow has run")
}

/// A flow without workers: each task runs where it stands.
pub fn seq_flow<R>(closure: impl for<'g> FnOnce(&'g Flow<'g>) -> R) -> R {
    let state = FlowState::sequential();
    let flow = Flow::of(&state);
    closure(&flow)
}

fn run<R>(cx: Cx, index: u32, closure: impl for<'g> FnOnce(&'g Flow<'g>) -> R) -> R {
    let worker = Worker::of(cx.head);
    let mut core = FlowCore::new(worker, cx, index);
    core.is_marked = worker.is_marked(&core.frame);
    let core = core;
    core.begin(worker);
    let state = FlowState::new(worker, &core);
    let flow = Flow::of(&state);
    let result = catch_unwind(AssertUnwindSafe(|| closure(&flow)));
    if result.is_err() && !core.is_over(worker) {
        core.stop(worker.pool());
    }
    let may_not_unwind = AbortsIfUnwound;
    worker.wait_for_tasks(&core, || false);
    std::mem::forget(may_not_unwind);
    core.end(worker);
    state.forget();
    if let Some(panic) = core.take_panic() {
        resume_unwind(panic);
    }
    match result {
        Ok(result) if !core.is_over(worker) => result,
        Ok(_) => core.raise(),
        Err(payload) => resume_unwind(payload),
    }
}

/// Tasks point to their flow: it must not go before them.
struct AbortsIfUnwound;

impl Drop for AbortsIfUnwound {
    fn drop(&mut self) {
        eprintln!("satin: a flow was unwound before its tasks were over; this is a defect");
        std::process::abort();
    }
}
