//! Lowers a body: from statements that spawn to statements that the runtime understands.
//!
//! The unit is the *segment*, the spawns of one block between two syncs. A child of a `let` is a guard of its own;
//! [`guards`](super::guards) tells in which order they are pushed. Children whose results go to places, and all those of
//! loops, share a [group](super::group). `README.md` goes through the forms one by one.

mod blocks;
mod control;
mod expressions;
mod statements;
mod sync;

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream};
use syn::visit::{self, Visit};
use syn::{Block, Expr, Item, Local, Pat, Type};

use super::errors::Errors;
use super::escape::bindings;
use super::group::Groups;
use super::guards::Guards;
use super::mentions::PlacePath;
use super::order;
use super::parse::SpawnableFn;
use super::reborrow::Reborrows;

/// The most children that one site of a group may have: an entry is a tuple of at most eight, one of them the operands.
const MOST_PER_SITE: usize = 7;

/// The statements of `body`, lowered.
pub fn lower(job: &SpawnableFn, body: &Block, errors: &mut Errors) -> TokenStream {
    let mut lower = Lower {
        job,
        errors,
        order_matters: order::matters(job.options.order, body),
        late_init: late_init(body),
        reborrows: Reborrows::find(job, body),
        groups: Groups::default(),
        blocks: Vec::new(),
        scope: false,
        names: 0,
    };
    let position = if job.returns_nothing() {
        GuardPosition::Statement
    } else {
        GuardPosition::Tail
    };
    let statements = lower.block(&body.stmts, BlockState::new(Hop::Nowhere), position);
    lower.groups.fill(statements)
}

/// The variables that are declared without a value.
fn late_init(body: &Block) -> HashSet<String> {
    struct Late(HashSet<String>);
    impl<'ast> Visit<'ast> for Late {
        fn visit_local(&mut self, local: &'ast Local) {
            if local.init.is_none() {
                self.0.extend(
                    bindings(&local.pat)
                        .iter()
                        .map(|name| name.ident.to_string()),
                );
            }
            visit::visit_local(self, local);
        }
        fn visit_item(&mut self, _: &'ast Item) {}
    }
    let mut late = Late(HashSet::new());
    late.visit_block(body);
    late.0
}

/// The use of an expression's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GuardPosition {
    /// No use: the expression is a statement.
    Statement,
    /// The function returns the value.
    Tail,
    /// Another expression uses the value.
    Value,
}

/// The segment to which a site of a block belongs whose place was there before the block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hop {
    /// The sites are synced in this block.
    Nowhere,
    /// The sites join the segment of the block around it.
    Outwards,
}

/// A block while it is lowered.
struct BlockState {
    hop: Hop,
    declared: HashSet<String>,
    is_loop_body: bool,
    segment: Segment,
}

impl BlockState {
    fn new(hop: Hop) -> BlockState {
        BlockState {
            hop,
            declared: HashSet::new(),
            is_loop_body: false,
            segment: Segment::default(),
        }
    }

    fn declaring(mut self, pat: &Pat) -> BlockState {
        self.declared
            .extend(bindings(pat).iter().map(|name| name.ident.to_string()));
        self
    }

    fn loop_body(mut self) -> BlockState {
        self.is_loop_body = true;
        self
    }
}

/// The spawns of one block since its last sync.
#[derive(Default)]
struct Segment {
    guards: Guards,
    group: Option<OpenGroup>,
    finishes: Vec<Finish>,
    /// Places that no statement may mention before the sync.
    watched: Vec<PlacePath>,
    /// Nor these, except to have another child write there.
    places: Vec<PlacePath>,
    /// The places that waiting statements hold until the sync, so that no other child may be told to write there.
    held: TokenStream,
    /// The fate of the statement just lowered.
    last: Last,
}

/// The fate of a statement that spawns.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Last {
    /// The children are among the guards of the segment.
    Planned,
    /// The only child before the sync: the call stands as it was written.
    CalledInPlace,
    /// The statement runs where it stands: calls that were planned before have to be pushed.
    #[default]
    Other,
}

impl Segment {
    fn is_empty(&self) -> bool {
        self.guards.is_empty() && self.group.is_none() && self.finishes.is_empty()
    }
}

/// A group that has been opened in this block.
#[derive(Clone)]
struct OpenGroup {
    number: usize,
    /// Sites that stand in this very block, each with its place.
    straight: Vec<(PlacePath, Span)>,
    /// Whether sites of inner blocks have joined.
    joined: bool,
    /// Names that have been declared since: the group's closure, which stands further up, cannot deliver there.
    declared_since: HashSet<String>,
    /// Places that have been read since: the closure borrows its targets from there on, also for the sites to come.
    read_since: TokenStream,
}

/// The rest of a statement, to be done when its children are done.
struct Finish {
    values: Vec<ChildValue>,
    /// The closure that holds the rest of the expression.
    rest: Option<Ident>,
    target: ValueTarget,
}

/// The place of a finished child's value.
enum ChildValue {
    /// The variable of its guard.
    Guard { name: Ident, speculative: bool },
    /// The variable that a group has delivered it to.
    Late { name: Ident, speculative: bool },
    /// The vector that an iterator form has filled.
    Collected(Ident),
}

/// The use that a statement makes of its value.
enum ValueTarget {
    Nothing,
    Variable(Ident),
    Assignment(Expr),
    Pattern {
        names: Vec<Ident>,
        pat: Box<Pat>,
        diverge: TokenStream,
    },
}

/// A spawned call, taken out of its expression.
#[derive(Clone)]
struct Spawn {
    /// The name that stands for its value in the rest of the expression.
    value: Ident,
    prepared: TokenStream,
    speculative: bool,
    /// The result's type, where the macro knows it.
    out: Option<Type>,
    /// True if the arguments are evaluated quickly: they have neither spawns nor blocks.
    is_quick: bool,
}

struct Lower<'a> {
    job: &'a SpawnableFn,
    errors: &'a mut Errors,
    /// Whether children of loops have to run in program order.
    order_matters: bool,
    late_init: HashSet<String>,
    reborrows: Reborrows,
    groups: Groups,
    blocks: Vec<BlockState>,
    /// Whether `frame` and `scope` exist here.
    scope: bool,
    names: usize,
}
