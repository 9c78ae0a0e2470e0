//! Macros that stand for one call, which is waited for where it stands: parallel loops and flows.

use proc_macro2::TokenStream;

use crate::flow::Flow;
use crate::loops::{LoopKind, ParallelLoop};

/// Where such a macro stands, and so how it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// In ordinary code: a root job.
    Outside,
    /// In the body of a spawnable function: a child that is waited for in place.
    InJob,
    /// In a program without spawns: calls of functions whose names have this prefix.
    Sequential(&'static str),
}

/// Such a macro.
#[derive(Clone, Copy)]
pub enum InPlace {
    /// `par_map!` and its kin.
    Loop(LoopKind),
    /// `flow!`.
    Flow,
}

impl InPlace {
    /// The macro of that name.
    pub fn of(name: &str) -> Option<InPlace> {
        match name {
            "flow" => Some(InPlace::Flow),
            name => LoopKind::of(name).map(InPlace::Loop),
        }
    }

    /// The expansion with these arguments.
    pub fn expand(self, arguments: TokenStream, standing: Standing) -> syn::Result<TokenStream> {
        match self {
            InPlace::Loop(kind) => ParallelLoop::parse(kind, arguments)?.expand(standing),
            InPlace::Flow => Ok(Flow::parse(arguments)?.expand(standing)),
        }
    }
}
