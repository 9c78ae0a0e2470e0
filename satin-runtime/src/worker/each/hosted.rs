//! A part of a loop of another node: its calls are bytes, and so are the results.

use serde::{Deserialize, Deserializer, de::Error as _};
use std::panic::resume_unwind;

use super::{Loop, Part, Piece, places::Places, wire::PartRead};
use crate::{
    job::{
        codec::CodecError,
        function::{self, Packed, RemoteFailure, VTable},
        needs,
        record::Cx,
    },
    worker::{scope::Scope, thread::raise_abort},
};

/// The calls of a part that another node has sent.
pub struct HostedLoop {
    function: &'static VTable,
    joined_by: Option<&'static VTable>,
    calls: Vec<Piece>,
    results: Places<Piece>,
}

impl HostedLoop {
    /// All of it, as a part of its own.
    pub(super) fn whole(&mut self) -> Part<'_> {
        let count = self.calls.len();
        // SAFETY: this has been borrowed for as long as the part lives.
        unsafe { Part::whole(self, count) }
    }

    /// The results, once all of it has run: one, if they have been put together.
    pub(super) fn into_results(self) -> Vec<Piece> {
        let HostedLoop {
            joined_by, results, ..
        } = self;
        let most = if joined_by.is_some() { 1 } else { usize::MAX };
        results.into_results().flatten().take(most).collect()
    }

    /// Runs a function on arguments that are bytes, as child `index` of the invocation in `cx`.
    fn run_bytes(function: &'static VTable, cx: Cx, index: u32, arguments: &[u8]) -> Piece {
        match (function.run_bytes)(cx, index, arguments, false) {
            Ok(Packed { bytes, needs, .. }) => Piece {
                bytes: bytes.into(),
                // Those that are not found have gone, and then the bytes cannot be read; whoever tries says so.
                values: needs
                    .iter()
                    .filter_map(|value| needs::find(value.name))
                    .collect(),
            },
            Err(RemoteFailure::Panicked(payload)) => resume_unwind(payload),
            Err(RemoteFailure::Aborted) => raise_abort(),
            Err(RemoteFailure::Codec(error)) => {
                resume_unwind(Box::new(NotHere { function, error }))
            }
        }
    }
}

/// The payload that unwinds from a part of a loop that cannot run in bytes, as one of its calls cannot: not a panic, and the part goes home,
/// where it is run as it is.
pub(in crate::worker) struct NotHere {
    /// The function that is called.
    pub(in crate::worker) function: &'static VTable,
    /// What is wrong.
    pub(in crate::worker) error: CodecError,
}

impl Loop for HostedLoop {
    unsafe fn run(&self, cx: Cx, index: u32, at: usize) {
        let result = HostedLoop::run_bytes(self.function, cx, index, &self.calls[at].bytes);
        // SAFETY: the caller's promise.
        unsafe { self.results.put(at, result) }
    }

    unsafe fn join(&self, scope: &Scope<'_>, first: usize, second: usize) {
        let function = self.joined_by.expect("results that are put together");
        // SAFETY: the caller's promise.
        let (a, b) = unsafe { (self.results.take(first), self.results.take(second)) };
        let (a, b) = (a.expect("it has run"), b.expect("it has run"));
        // Two arguments are written one after the other.
        let arguments = [&a.bytes[..], &b.bytes[..]].concat();
        let _until_read = (a.values, b.values);
        let joined =
            scope.child(|cx, index| HostedLoop::run_bytes(function, cx, index, &arguments));
        // SAFETY: the caller's promise.
        unsafe { self.results.put(first, joined) }
    }

    fn function(&self) -> &'static str {
        self.function.info.name
    }

    fn joined_by(&self) -> Option<&'static str> {
        self.joined_by.map(|function| function.info.name)
    }

    fn call(&self, at: usize) -> Result<Piece, CodecError> {
        Ok(self.calls[at].clone())
    }

    unsafe fn result(&self, at: usize) -> Result<Piece, CodecError> {
        // SAFETY: the caller's promise.
        let result = unsafe { self.results.look(at) };
        Ok(result.expect("it has run").clone())
    }

    unsafe fn put(&self, at: usize, result: Piece) -> Result<(), CodecError> {
        // SAFETY: the caller's promise.
        unsafe { self.results.put(at, result) };
        Ok(())
    }
}

impl<'de> Deserialize<'de> for HostedLoop {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<HostedLoop, D::Error> {
        let PartRead {
            function,
            joined_by,
            calls,
        } = PartRead::deserialize(from)?;
        let find = |name: String| {
            let function = function::registered().get(name.as_str()).copied();
            function.ok_or_else(|| D::Error::custom(format_args!("there is no function `{name}`")))
        };
        Ok(HostedLoop {
            function: find(function)?,
            joined_by: joined_by.map(find).transpose()?,
            results: Places::new(calls.len()),
            calls,
        })
    }
}
