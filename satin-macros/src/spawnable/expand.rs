//! Lowers a body: from statements that spawn to statements that the runtime understands.
//!
//! The unit is the *segment*, the spawns of one block between two syncs. A child of a `let` is a guard of its own;
//! [`guards`](super::guards) tells in which order they are pushed. Children whose results go to places, and all those of
//! loops, share a [group](super::group). `README.md` goes through the forms one by one.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Block, Expr, ExprReturn, Item, Local, Pat, PatIdent, PatType, Stmt, Token, Type, parse_quote,
};

use super::errors::Errors;
use super::escape::{self, Escape, bindings, escape, is_late_init};
use super::group::{Arm, Groups, Siblings};
use super::guards::{Assign, ChildGuard, Follows, GroupEnd, Guards};
use super::hygiene::quote;
use super::iterators::{self, collected_in};
use super::mark::{
    Callee, Marked, Verb, has_marks, has_sync, is_sync, rename_callee, stmt_has_marks,
    stmt_has_sync,
};
use super::mentions::{PlacePath, mentions};
use super::order;
use super::parse::SpawnableFn;
use super::reborrow::Reborrows;
use super::signature::ArgumentKind;
use super::site::{DeferredStatement, is_control_flow, reads, visit_marks};

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

// ------------------------------------------------------------------------------------------------------------- blocks
impl Lower<'_> {
    fn fresh(&mut self, prefix: &str) -> Ident {
        self.names += 1;
        format_ident!("{}{}", prefix, self.names - 1, span = Span::mixed_site())
    }

    fn top(&mut self) -> &mut BlockState {
        self.blocks
            .last_mut()
            .expect("statements are lowered in a block")
    }

    /// The statements of a block, without its braces.
    fn block(&mut self, stmts: &[Stmt], state: BlockState, position: GuardPosition) -> TokenStream {
        let scope_before = self.scope;
        self.blocks.push(state);
        let mut out = TokenStream::new();
        for (at, stmt) in stmts.iter().enumerate() {
            let rest = &stmts[at + 1..];
            let position = match stmt {
                Stmt::Expr(_, None) if rest.is_empty() => position,
                _ => GuardPosition::Statement,
            };
            if self.must_sync_before(stmt, position) {
                out.extend(self.sync_segment());
            }
            if !self.scope && needs_scope(stmt, position) && !self.may_wait_for_scope(stmt, rest) {
                self.scope = true;
                out.extend(quote! {
                    let frame = ::satin::__private::Frame::new(cx, index);
                    let scope = ::satin::__private::Scope::new::<L>(cx, &frame);
                });
            }
            if let Some(tail) = self.tail_that_waits(stmt, position) {
                out.extend(tail);
                continue;
            }
            self.top().segment.last = Last::Other;
            let lowered = self.statement(stmt, position, rest);
            if self.top().segment.last == Last::Other && !is_silent(stmt) {
                out.extend(self.push_planned(stmt, rest));
            }
            if let Some(group) = &mut self.top().segment.group {
                group.read_since.extend(reads(stmt));
            }
            if position != GuardPosition::Statement && !self.top().segment.is_empty() {
                let result = self.fresh("result");
                let sync = self.sync_at_end();
                out.extend(quote!(let #result = #lowered; #sync #result));
            } else {
                out.extend(lowered);
            }
        }
        out.extend(self.sync_at_end());
        self.blocks.pop();
        self.scope = scope_before;
        out
    }

    /// A value at the end of a block that has children under way: its own children come after those.
    fn tail_that_waits(&mut self, stmt: &Stmt, position: GuardPosition) -> Option<TokenStream> {
        let Stmt::Expr(expr, None) = stmt else {
            return None;
        };
        if position == GuardPosition::Statement
            || self.top().segment.is_empty()
            || super::mark::first_spawn(expr).is_none()
            || matches!(expr, Expr::Reference(_) | Expr::Return(_))
            || is_control_flow(expr)
            || cannot_wait(expr)
        {
            return None;
        }
        let result = self.fresh("result");
        let target = ValueTarget::Variable(result.clone());
        let lowered = self.deferred(expr, target, Vec::new(), &[], &|value| value);
        let sync = self.sync_at_end();
        Some(quote!(#lowered let #result; #sync #result))
    }

    /// A leaf should build no frame: a branch that spawns builds its own, if nothing after it needs one.
    fn may_wait_for_scope(&self, stmt: &Stmt, rest: &[Stmt]) -> bool {
        let Stmt::Expr(expr, _) = stmt else {
            return false;
        };
        let head_spawns = match expr {
            Expr::If(of) => {
                has_marks(&of.cond)
                    || matches!(&of.else_branch, Some((_, other)) if !matches!(&**other, Expr::Block(_)) && else_if_heads_spawn(other))
            }
            Expr::Match(of) => {
                has_marks(&of.expr)
                    || of.arms.iter().any(|arm| {
                        arm.guard
                            .as_ref()
                            .is_some_and(|(_, guard)| has_marks(guard))
                    })
            }
            Expr::Block(_) | Expr::Unsafe(_) => false,
            _ => true,
        };
        !head_spawns
            && !rest.iter().any(stmt_has_marks)
            && !matches!(self.escape(stmt), Escape::Joins)
    }

    fn escape(&self, stmt: &Stmt) -> Escape {
        escape(stmt, &|expr| self.lent(expr), &self.late_init)
    }

    /// The places that the spawned calls of `expr` borrow mutably, also by a variable that borrows them.
    fn lent_at_all(&self, expr: &Expr) -> Vec<PlacePath> {
        let mut lent = self.lent(expr);
        visit_marks(expr, &mut |mark| {
            for arg in mark.arguments() {
                lent.extend(self.reborrows.lent_with(arg));
            }
        });
        lent
    }

    /// The lent variables that an argument names.
    fn lent(&self, expr: &Expr) -> Vec<PlacePath> {
        struct Lent<'a> {
            job: &'a SpawnableFn,
            found: Vec<PlacePath>,
        }
        impl<'ast> Visit<'ast> for Lent<'_> {
            fn visit_expr(&mut self, expr: &'ast Expr) {
                if let Some(mark) = Marked::of(expr) {
                    let kinds = match mark.callee {
                        Callee::Own(_) => self.job.lent_arguments(),
                        Callee::Other(_) => Vec::new(),
                    };
                    for (at, arg) in mark.arguments().into_iter().enumerate() {
                        let by_type = kinds.get(at).copied().unwrap_or(false);
                        let by_sight =
                            matches!(arg, Expr::Reference(of) if of.mutability.is_some());
                        if by_type || by_sight {
                            self.found.extend(PlacePath::of(arg));
                        }
                    }
                }
                visit::visit_expr(self, expr);
            }
        }
        let mut lent = Lent {
            job: self.job,
            found: Vec::new(),
        };
        lent.visit_expr(expr);
        lent.found
    }

    /// Whether the segment must end before this statement.
    fn must_sync_before(&mut self, stmt: &Stmt, position: GuardPosition) -> bool {
        let segment = &self
            .blocks
            .last()
            .expect("statements are lowered in a block")
            .segment;
        if segment.is_empty() || is_sync(stmt) {
            return false;
        }
        let tail_without_spawns = position != GuardPosition::Statement && !stmt_has_marks(stmt);
        if tail_without_spawns || (stmt_has_sync(stmt) && !segment.guards.is_empty()) {
            return true;
        }
        if self.leaves_this_block(stmt) {
            return true;
        }
        let reads = match stmt {
            Stmt::Local(local) => match collected_in(local) {
                Some(_) => TokenStream::new(),
                None => quote!(#stmt),
            },
            _ => reads(stmt),
        };
        let writes: Vec<PlacePath> = places_written(stmt);
        if mentions(segment.held.clone(), &writes) {
            return true;
        }
        if let Some(group) = &segment.group {
            let new: Vec<PlacePath> = writes
                .iter()
                .filter(|place| !segment.places.contains(place))
                .cloned()
                .collect();
            let declared = new
                .iter()
                .any(|place| group.declared_since.contains(place.root()));
            if declared || mentions(group.read_since.clone(), &new) || mentions(reads.clone(), &new)
            {
                return true;
            }
        }
        let writes_watched = writes.iter().any(|place| {
            segment
                .watched
                .iter()
                .any(|watched| watched.overlaps(place))
        });
        writes_watched
            || mentions(reads.clone(), &segment.watched)
            || mentions(reads, &segment.places)
    }

    /// True if children of this statement belong to a segment further out. The children of this block must be settled
    /// first: last in, first out.
    fn leaves_this_block(&self, stmt: &Stmt) -> bool {
        let here = self.blocks.len() - 1;
        let goes_out = |path: Option<&PlacePath>| self.home_of(path) < here;
        match stmt {
            Stmt::Expr(expr, _) if is_control_flow(expr) => {
                matches!(self.escape(stmt), Escape::Joins)
                    && sites_within(stmt)
                        .iter()
                        .any(|path| goes_out(path.as_ref()))
            }
            Stmt::Expr(expr, _) => match DeferredStatement::of(expr) {
                Some(site) if site.path.is_some() || self.bare_joins_group() => {
                    goes_out(site.path.as_ref())
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The block whose segment a child belongs to that writes `path` (none: a bare call).
    fn home_of(&self, path: Option<&PlacePath>) -> usize {
        let mut home = self.blocks.len() - 1;
        while home > 0
            && self.blocks[home].hop == Hop::Outwards
            && !path.is_some_and(|path| self.blocks[home].declared.contains(path.root()))
        {
            home -= 1;
        }
        home
    }

    /// Whether a bare call in this place is a child of a group: in a loop or branch that it outlives, or after a group's
    /// children.
    fn bare_joins_group(&self) -> bool {
        let top = self
            .blocks
            .last()
            .expect("statements are lowered in a block");
        top.hop == Hop::Outwards || top.segment.group.is_some()
    }
}

fn else_if_heads_spawn(expr: &Expr) -> bool {
    match expr {
        Expr::If(of) => {
            has_marks(&of.cond)
                || of
                    .else_branch
                    .as_ref()
                    .is_some_and(|(_, other)| else_if_heads_spawn(other))
        }
        _ => false,
    }
}

/// Whether this statement needs `frame` and `scope`; a plain call of the function itself at the very end does not.
fn needs_scope(stmt: &Stmt, position: GuardPosition) -> bool {
    struct Needs(bool);
    impl<'ast> Visit<'ast> for Needs {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            self.0 |= Marked::of(expr).is_some();
            visit::visit_expr(self, expr);
        }
        fn visit_expr_return(&mut self, of: &'ast ExprReturn) {
            match of.expr.as_deref().and_then(own_call) {
                Some(args) => args.iter().for_each(|arg| self.visit_expr(arg)),
                None => visit::visit_expr_return(self, of),
            }
        }
        fn visit_item(&mut self, _: &'ast Item) {}
    }
    let mut needs = Needs(false);
    match stmt {
        Stmt::Expr(expr, _) if position == GuardPosition::Tail => match own_call(expr) {
            Some(args) => args.iter().for_each(|arg| needs.visit_expr(arg)),
            None => needs.visit_expr(expr),
        },
        _ => needs.visit_stmt(stmt),
    }
    needs.0
}

/// The arguments, if `expr` is a call of the function itself and nothing more.
fn own_call(expr: &Expr) -> Option<&Punctuated<Expr, Token![,]>> {
    match Marked::of(expr)?.callee {
        Callee::Own(args) => Some(args),
        Callee::Other(_) => None,
    }
}

/// The places that the sites of `stmt` write, at any depth; none for a bare call.
fn sites_within(stmt: &Stmt) -> Vec<Option<PlacePath>> {
    struct Sites(Vec<Option<PlacePath>>);
    impl<'ast> Visit<'ast> for Sites {
        fn visit_stmt(&mut self, stmt: &'ast Stmt) {
            if let Stmt::Expr(expr, _) = stmt {
                self.0
                    .extend(DeferredStatement::of(expr).map(|site| site.path));
            }
            visit::visit_stmt(self, stmt);
        }
        fn visit_arm(&mut self, arm: &'ast syn::Arm) {
            self.0
                .extend(DeferredStatement::of(&arm.body).map(|site| site.path));
            visit::visit_arm(self, arm);
        }
    }
    let mut sites = Sites(Vec::new());
    sites.visit_stmt(stmt);
    sites.0
}

fn places_written(stmt: &Stmt) -> Vec<PlacePath> {
    sites_within(stmt).into_iter().flatten().collect()
}

// --------------------------------------------------------------------------------------------------------- statements
impl Lower<'_> {
    fn statement(&mut self, stmt: &Stmt, position: GuardPosition, rest: &[Stmt]) -> TokenStream {
        if is_sync(stmt) {
            return self.explicit_sync();
        }
        if let Stmt::Local(local) = stmt {
            if let (Some(collected), Some(group)) = (
                iterators::declared_collected(local),
                &self.top().segment.group,
            ) {
                let group = group.number;
                self.groups
                    .get(group)
                    .declare(&quote!(let mut #collected = ::std::vec::Vec::new();));
                return TokenStream::new();
            }
            self.declare(&local.pat);
        }
        match stmt {
            Stmt::Local(local) if collected_in(local).is_some() => self.collected_let(local),
            _ if !stmt_has_marks(stmt) && !stmt_has_sync(stmt) => stmt.to_token_stream(),
            Stmt::Local(local) => self.local(local, rest),
            Stmt::Expr(Expr::Return(of), semi) => {
                let value = of.expr.as_ref().map(|value| self.tail(value));
                quote!(return #value #semi)
            }
            Stmt::Expr(expr, semi) if position == GuardPosition::Statement => {
                self.expression_statement(expr, semi.as_ref(), rest)
            }
            Stmt::Expr(expr, _) if position == GuardPosition::Tail => self.tail(expr),
            Stmt::Expr(expr, _) => self.expr(expr),
            Stmt::Item(_) | Stmt::Macro(_) => stmt.to_token_stream(),
        }
    }

    fn declare(&mut self, pat: &Pat) {
        let names = bindings(pat).into_iter().map(|name| name.ident.to_string());
        let block = self.top();
        for name in names {
            if let Some(group) = &mut block.segment.group {
                group.declared_since.insert(name.clone());
            }
            block.declared.insert(name);
        }
    }

    fn expression_statement(
        &mut self,
        expr: &Expr,
        semi: Option<&Token![;]>,
        rest: &[Stmt],
    ) -> TokenStream {
        if is_control_flow(expr) {
            let lowered = self.control_statement(expr);
            return quote!(#lowered #semi);
        }
        if is_late_init(expr, &self.late_init)
            && let Expr::Assign(assign) = expr
            && has_marks(&assign.right)
        {
            return self.deferred(
                &assign.right,
                ValueTarget::Assignment((*assign.left).clone()),
                PlacePath::of(&assign.left).into_iter().collect(),
                rest,
                &|value| {
                    let place = &assign.left;
                    quote!(#place = #value;)
                },
            );
        }
        let site = DeferredStatement::of(expr).filter(|site| !cannot_wait(&site.deliver));
        match site {
            Some(site) if site.path.is_some() || self.bare_joins_group() => {
                match self.group_site(&site) {
                    Some(lowered) => lowered,
                    None => self.immediate_statement(expr),
                }
            }
            Some(_) => self.deferred(
                expr,
                ValueTarget::Nothing,
                Vec::new(),
                rest,
                &|value| quote!(#value;),
            ),
            None => self.immediate_statement(expr),
        }
    }

    fn immediate_statement(&mut self, expr: &Expr) -> TokenStream {
        let lowered = self.expr(expr);
        quote!(#lowered;)
    }

    fn local(&mut self, local: &Local, rest: &[Stmt]) -> TokenStream {
        let Some(init) = &local.init else {
            return local.to_token_stream();
        };
        let diverge = init.diverge.as_ref().map(|(_, diverge)| {
            let diverge = self.expr(diverge);
            quote!(else #diverge)
        });
        let Local { attrs, pat, .. } = local;
        let by_ref = bindings(pat).iter().any(|name| name.by_ref.is_some());
        let borrows = matches!(&*init.expr, Expr::Reference(_));
        if by_ref
            || borrows
            || is_control_flow(&init.expr)
            || cannot_wait(&init.expr)
            || super::mark::first_spawn(&init.expr).is_none()
        {
            let value = self.expr(&init.expr);
            return quote!(#(#attrs)* let #pat = #value #diverge;);
        }
        let names = bindings(pat);
        let watched = names
            .iter()
            .map(|name| PlacePath::variable(&name.ident))
            .collect();
        let target = target(pat, &names, diverge.clone());
        let declaration = declaration(attrs, pat, &names);
        let lowered = self.deferred(
            &init.expr,
            target,
            watched,
            rest,
            &|value| quote!(#(#attrs)* let #pat = #value #diverge;),
        );
        match self.top().segment.last {
            Last::CalledInPlace => lowered,
            _ => quote!(#lowered #declaration),
        }
    }

    /// A `let`, a bare call, or the first assignment of a variable: its children are guards, and the rest of it waits.
    /// `in_place` writes the statement for the case that nothing has to wait.
    fn deferred(
        &mut self,
        expr: &Expr,
        target: ValueTarget,
        watched: Vec<PlacePath>,
        rest: &[Stmt],
        in_place: &dyn Fn(TokenStream) -> TokenStream,
    ) -> TokenStream {
        let lent = self.lent_at_all(expr);
        let would_watch: Vec<PlacePath> = watched.iter().chain(&lent).cloned().collect();
        if self.top().segment.is_empty()
            && !is_speculative(expr)
            && self.syncs_next(rest, &would_watch)
        {
            self.top().segment.last = Last::CalledInPlace;
            let value = self.expr(expr);
            return in_place(value);
        }
        let (spawns, remaining) = self.extract(expr);
        let mut out = TokenStream::new();
        let rest_name = self.rest_closure(&spawns, &remaining, &mut out);
        let values = match self.top().segment.group.clone() {
            Some(group) => spawns
                .into_iter()
                .map(|spawn| self.late_child(group.number, spawn, &mut out))
                .collect(),
            None => {
                let mut guards = std::mem::take(&mut self.top().segment.guards);
                let values = spawns.into_iter().map(|spawn| {
                    let value = ChildValue::Guard {
                        name: spawn.value.clone(),
                        speculative: spawn.speculative,
                    };
                    out.extend(self.guard(&mut guards, spawn));
                    value
                });
                let values = values.collect();
                self.top().segment.guards = guards;
                values
            }
        };
        let segment = &mut self.top().segment;
        segment.last = Last::Planned;
        segment.finishes.push(Finish {
            values,
            rest: rest_name,
            target,
        });
        segment.watched.extend(would_watch);
        segment.held.extend(quote!(#expr));
        out
    }

    /// Plans a child.
    fn guard(&mut self, guards: &mut Guards, spawn: Spawn) -> TokenStream {
        let mut out = TokenStream::new();
        if !spawn.is_quick {
            // Thieves may take the calls that were planned before while the arguments are evaluated.
            out.extend(guards.push(Follows::Spawns, self.fresh("base")));
        }
        let Spawn {
            value,
            prepared,
            speculative,
            ..
        } = spawn;
        let guard = ChildGuard {
            call: self.fresh("c"),
            ticket: self.fresh("t"),
            value,
            speculative,
        };
        out.extend(guards.plan(guard, &prepared));
        out
    }

    /// Pushes what was planned before `stmt`, which is about to run.
    fn push_planned(&mut self, stmt: &Stmt, rest: &[Stmt]) -> TokenStream {
        if !self.top().segment.guards.are_planned() {
            return TokenStream::new();
        }
        let mut later = rest.iter().take_while(|stmt| !is_sync(stmt));
        let follows = if stmt_has_marks(stmt) || later.any(stmt_has_marks) {
            Follows::Spawns
        } else {
            Follows::Nothing
        };
        let base = self.fresh("base");
        self.top().segment.guards.push(follows, base)
    }

    /// True if the statement after this one begins with a sync, so that no thief could take the last child in time.
    fn syncs_next(&mut self, rest: &[Stmt], would_watch: &[PlacePath]) -> bool {
        match rest {
            [] => self.top().hop == Hop::Nowhere || self.top().segment.group.is_none(),
            [next, ..] if is_sync(next) => true,
            [next, ..] => {
                let tail_without_spawns =
                    rest.len() == 1 && matches!(next, Stmt::Expr(_, None)) && !stmt_has_marks(next);
                let writes_watched = places_written(next)
                    .iter()
                    .any(|place| would_watch.iter().any(|watched| watched.overlaps(place)));
                tail_without_spawns
                    || writes_watched
                    || stmt_has_sync(next)
                    || mentions(reads(next), would_watch)
                    || self.must_sync_before(next, GuardPosition::Statement)
            }
        }
    }

    /// The closure that does at the sync what stands around the calls; none if nothing does.
    fn rest_closure(
        &mut self,
        spawns: &[Spawn],
        remaining: &Expr,
        out: &mut TokenStream,
    ) -> Option<Ident> {
        if let [only] = spawns
            && matches!(remaining, Expr::Path(path) if path.path.is_ident(&only.value))
        {
            return None;
        }
        let name = self.fresh("rest");
        let params = spawns.iter().map(
            |Spawn {
                 value,
                 out,
                 speculative,
                 ..
             }| match out {
                Some(ty) if *speculative => {
                    quote!(#value: <#ty as ::satin::__private::Speculative>::Value)
                }
                Some(ty) => quote!(#value: #ty),
                None => quote!(#value),
            },
        );
        out.extend(quote!(let #name = |#(#params),*| #remaining;));
        Some(name)
    }

    /// A child of a `let` that comes after a group's: it goes through the group, which delivers to a hidden variable.
    fn late_child(&mut self, group: usize, spawn: Spawn, out: &mut TokenStream) -> ChildValue {
        let name = self.fresh("late");
        self.groups
            .get(group)
            .declare(&quote!(let mut #name = ::core::option::Option::None;));
        let Spawn {
            value,
            prepared,
            speculative,
            ..
        } = spawn;
        let deliver = quote!(#name = ::core::option::Option::Some(#value););
        let children = vec![(value, prepared, speculative)];
        out.extend(self.group_children(group, children, None, deliver, None));
        ChildValue::Late { name, speculative }
    }

    /// Spawns the children of one entry, and pushes it.
    fn group_children(
        &mut self,
        group: usize,
        children: Vec<(Ident, TokenStream, bool)>,
        operands: Option<(TokenStream, TokenStream)>,
        deliver: TokenStream,
        order: Option<TokenStream>,
    ) -> TokenStream {
        let mut out = TokenStream::new();
        let (mut entries, mut patterns, mut failed, mut fails) =
            (Vec::new(), Vec::new(), Vec::new(), TokenStream::new());
        if let Some((keep, names)) = operands {
            entries.push(keep);
            patterns.push(names);
            failed.push(quote!(_));
        }
        let name = self.groups.get(group).name.clone();
        for (value, prepared, speculative) in children {
            let ticket = self.fresh("t");
            let ticket_entry = if speculative {
                out.extend(quote!(let #ticket = #name.spawn_speculative(#prepared);));
                failed.push(quote!(#value));
                fails.extend(
                    quote!(if ::satin::__private::Speculative::failed(&#value) { #value?; }),
                );
                quote!(::satin::__private::Spec(#ticket))
            } else {
                out.extend(quote!(let #ticket = #name.spawn(#prepared);));
                failed.push(quote!(_));
                quote!(#ticket)
            };
            entries.push(ticket_entry);
            patterns.push(quote!(#value));
        }
        let tuple = |parts: Vec<TokenStream>| match &parts[..] {
            [only] => only.clone(),
            _ => quote!((#(#parts),*)),
        };
        let arm = Arm {
            pattern: tuple(patterns),
            deliver,
            failed_pattern: if fails.is_empty() {
                quote!(_)
            } else {
                tuple(failed)
            },
            fail: fails,
            order,
        };
        out.extend(self.groups.push(group, &tuple(entries), arm));
        out
    }

    /// A statement that writes a place, or a bare call among such. `None` if it has too many children for one entry.
    fn group_site(&mut self, site: &DeferredStatement) -> Option<TokenStream> {
        let home = self.home_of(site.path.as_ref());
        let here = self.blocks.len() - 1;
        let (spawns, remaining) = self.extract(&site.deliver);
        if spawns.len() > MOST_PER_SITE {
            return None;
        }
        let mut out = TokenStream::new();
        let operands = self.operands(site, &mut out);
        let mut children = Vec::new();
        let inner_indices = &site.inner_indices;
        let mut deliver = quote!(#(let #inner_indices: usize = #inner_indices;)*);
        for Spawn {
            value,
            prepared,
            speculative,
            out: ty,
            ..
        } in spawns
        {
            let call = self.fresh("call");
            out.extend(quote!(let #call = #prepared;));
            if let Some(ty) = ty {
                deliver.extend(quote!(let #value: #ty = #value;));
            }
            if speculative {
                deliver
                    .extend(quote!(let #value = ::satin::__private::Speculative::value(#value);));
            }
            children.push((value, quote!(#call), speculative));
        }
        let simple = matches!((&site.path, &children[..]), (None, [(_, _, false)]));
        deliver = if simple {
            TokenStream::new()
        } else {
            quote!(#deliver #remaining;)
        };
        let group = self.open_group(home, &mut out);
        let lent = self.lent_at_all(&site.deliver);
        let opened = self.blocks[home]
            .segment
            .group
            .as_mut()
            .expect("the group has just been opened");
        match &site.path {
            Some(path) if home == here => opened.straight.push((path.clone(), site.span)),
            _ => opened.joined = true,
        }
        let segment = &mut self.blocks[home].segment;
        segment.places.extend(site.path.clone());
        segment.watched.extend(lent);
        let order = match self.order_matters {
            true => None,
            false => order::of_delivery(site, operands.is_some(), &children),
        };
        out.extend(self.group_children(group, children, operands, deliver, order));
        Some(out)
    }

    /// Evaluates the operands of a site; returns the value that keeps them, and the pattern that gives them back.
    fn operands(
        &mut self,
        site: &DeferredStatement,
        out: &mut TokenStream,
    ) -> Option<(TokenStream, TokenStream)> {
        if site.operands.is_empty() {
            return None;
        }
        let keep = self.fresh("keep");
        let values = site.operands.iter().map(|(_, value)| value);
        let names = site.operands.iter().map(|(name, _)| name);
        out.extend(quote!(let #keep = ::satin::__private::Keep((#(#values,)*));));
        Some((quote!(#keep), quote!((#(#names,)*))))
    }

    /// The group of the block at `home`, opened here if it is this block's and not yet open.
    fn open_group(&mut self, home: usize, out: &mut TokenStream) -> usize {
        if let Some(open) = &self.blocks[home].segment.group {
            return open.number;
        }
        let number = self.groups.add();
        out.extend(self.groups.open(number));
        self.blocks[home].segment.group = Some(OpenGroup {
            number,
            straight: Vec::new(),
            joined: false,
            declared_since: HashSet::new(),
            read_since: TokenStream::new(),
        });
        number
    }

    /// `let v = collected.into_iter().sum();`: waits for the loop that fills `collected`.
    fn collected_let(&mut self, local: &Local) -> TokenStream {
        let names = bindings(&local.pat);
        let (Some(collected), Some(init), true) = (
            collected_in(local),
            &local.init,
            self.top().segment.group.is_some(),
        ) else {
            return local.to_token_stream();
        };
        if init.diverge.is_some() || cannot_wait(&init.expr) {
            let sync = self.sync_segment();
            return quote!(#sync #local);
        }
        let rest = self.fresh("rest");
        let value = &init.expr;
        let declaration = declaration(&local.attrs, &local.pat, &names);
        let segment = &mut self.top().segment;
        segment
            .watched
            .extend(names.iter().map(|name| PlacePath::variable(&name.ident)));
        let target = target(&local.pat, &names, None);
        segment.finishes.push(Finish {
            values: vec![ChildValue::Collected(collected.clone())],
            rest: Some(rest.clone()),
            target,
        });
        quote!(let #rest = |#collected: ::std::vec::Vec<_>| #value; #declaration)
    }
}

/// Whether the expression leaves the function or the loop on its way, so that it cannot be put off.
fn cannot_wait(expr: &Expr) -> bool {
    struct Blank;
    impl VisitMut for Blank {
        fn visit_expr_mut(&mut self, expr: &mut Expr) {
            if Marked::spawn(expr).is_some() || Marked::of(expr).is_some() {
                *expr = parse_quote!(());
            } else {
                visit_mut::visit_expr_mut(self, expr);
            }
        }
    }
    let mut rest = expr.clone();
    Blank.visit_expr_mut(&mut rest);
    leaves(rest.to_token_stream())
}

fn leaves(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => ["return", "break", "continue", "await"]
            .iter()
            .any(|leave| word == leave),
        TokenTree::Punct(punct) => punct.as_char() == '?',
        TokenTree::Group(group) => leaves(group.stream()),
        TokenTree::Literal(_) => false,
    })
}

/// Whether the arguments of a call have neither spawns nor blocks.
fn is_quick(callee: &Callee<'_>) -> bool {
    struct Slow(bool);
    impl<'ast> Visit<'ast> for Slow {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            self.0 |= Marked::of(expr).is_some() || is_control_flow(expr);
            visit::visit_expr(self, expr);
        }
    }
    let mut slow = Slow(false);
    match callee {
        Callee::Own(args) => args.iter().for_each(|arg| slow.visit_expr(arg)),
        Callee::Other(call) => slow.visit_expr(call),
    }
    !slow.0
}

/// True if the statement runs no code.
fn is_silent(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Item(_) => true,
        Stmt::Local(local) => local.init.is_none(),
        _ => false,
    }
}

fn is_speculative(expr: &Expr) -> bool {
    struct Tried(bool);
    impl<'ast> Visit<'ast> for Tried {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            match Marked::spawn(expr) {
                Some((_, speculative)) => self.0 |= speculative,
                None => visit::visit_expr(self, expr),
            }
        }
    }
    let mut tried = Tried(false);
    tried.visit_expr(expr);
    tried.0
}

/// Declares what `pat` binds, without a value.
fn declaration(attrs: &[syn::Attribute], pat: &Pat, names: &[PatIdent]) -> TokenStream {
    match pat {
        Pat::Type(PatType { pat, ty, .. }) if matches!(&**pat, Pat::Ident(_)) => {
            quote!(#(#attrs)* let #pat: #ty;)
        }
        _ => {
            let attrs = quote!(#(#attrs)*);
            quote!(#(#attrs let #names;)*)
        }
    }
}

fn target(pat: &Pat, names: &[PatIdent], diverge: Option<TokenStream>) -> ValueTarget {
    struct Immutable;
    impl VisitMut for Immutable {
        fn visit_pat_ident_mut(&mut self, pat: &mut PatIdent) {
            pat.mutability = None;
            visit_mut::visit_pat_ident_mut(self, pat);
        }
    }
    let plain = match pat {
        Pat::Type(typed) => &typed.pat,
        pat => pat,
    };
    match plain {
        Pat::Ident(PatIdent {
            ident,
            subpat: None,
            ..
        }) if diverge.is_none() && names.len() == 1 => ValueTarget::Variable(ident.clone()),
        Pat::Wild(_) => ValueTarget::Nothing,
        _ => {
            let mut pat = Box::new(pat.clone());
            Immutable.visit_pat_mut(&mut pat);
            ValueTarget::Pattern {
                names: names.iter().map(|name| name.ident.clone()).collect(),
                pat,
                diverge: diverge.unwrap_or_default(),
            }
        }
    }
}

// --------------------------------------------------------------------------------------------------------------- sync
impl Lower<'_> {
    /// `sync!()`: ends this block's segment, and settles the groups of the blocks around it.
    fn explicit_sync(&mut self) -> TokenStream {
        let mut out = self.sync_segment();
        let open: Vec<usize> = self
            .blocks
            .iter()
            .rev()
            .filter_map(|block| block.segment.group.as_ref().map(|group| group.number))
            .collect();
        open.into_iter()
            .for_each(|group| out.extend(self.groups.sync(group)));
        out
    }

    /// The sync at the end of a block.
    fn sync_at_end(&mut self) -> TokenStream {
        let BlockState {
            declared,
            is_loop_body,
            segment,
            ..
        } = self.top();
        if *is_loop_body
            && let Some(OpenGroup {
                straight,
                joined: false,
                ..
            }) = &segment.group
            && let [(place, span)] = &straight[..]
            && declared.contains(place.root())
        {
            let message = format!(
                "`{place}` belongs to one round of this loop, so each round would wait for its own child and nothing would run in parallel: \
                 collect the results in a place declared before the loop"
            );
            let span = *span;
            self.errors.at_span(span, message);
        }
        self.sync_segment()
    }

    /// Settles every child of this block's segment and finishes its statements.
    fn sync_segment(&mut self) -> TokenStream {
        let last = self.top().segment.last;
        let segment = std::mem::take(&mut self.top().segment);
        self.top().segment.last = last;
        let (guards, mut finishes) = (segment.guards, segment.finishes);
        let siblings = if guards.may_fail() {
            Siblings::MayFail
        } else {
            Siblings::Plain
        };
        let mut speculative = guards.may_fail();
        let group = segment.group.map(|group| {
            let plan = self.groups.get(group.number);
            speculative |= !guards.is_empty() && plan.may_fail();
            GroupEnd {
                name: plan.name.clone(),
                end: self.groups.end(group.number, siblings),
            }
        });
        let assign: Vec<Option<Assign>> = guards
            .iter()
            .map(|guard| {
                (!speculative).then(|| take_direct(&mut finishes, &guard.value)?.assign())?
            })
            .collect();
        let tried: Vec<Ident> = guards
            .iter()
            .filter(|guard| guard.speculative)
            .map(|guard| guard.value.clone())
            .collect();
        let base = self.fresh("base");
        let mut out = guards.settle(group, speculative, base, &assign);
        if speculative {
            out.extend(fail_if_cancelled(tried.iter()));
        }
        finishes
            .into_iter()
            .for_each(|finish| out.extend(finish.tokens(speculative)));
        out
    }
}

impl ValueTarget {
    /// The target of a value that is all of the statement.
    fn assign(self) -> Option<Assign> {
        match self {
            ValueTarget::Nothing => Some(Assign::Nowhere),
            ValueTarget::Variable(name) => Some(Assign::To(name.to_token_stream())),
            ValueTarget::Assignment(place) => Some(Assign::To(place.to_token_stream())),
            ValueTarget::Pattern { .. } => None,
        }
    }
}

/// The target of the statement that is nothing but the child in `value`, taken out of the list.
fn take_direct(finishes: &mut Vec<Finish>, value: &Ident) -> Option<ValueTarget> {
    let at = finishes.iter().position(|finish| {
        let only = matches!(&finish.values[..], [ChildValue::Guard { name, .. }] if name == value);
        only && finish.rest.is_none() && !matches!(finish.target, ValueTarget::Pattern { .. })
    })?;
    Some(finishes.remove(at).target)
}

/// After a speculative segment has been settled: returns with the failure, if there is one.
fn fail_if_cancelled<'v>(values: impl Iterator<Item = &'v Ident>) -> TokenStream {
    let failures = values.map(|value| {
        quote! {
            if let ::core::option::Option::Some(child) = #value {
                if ::satin::__private::Speculative::failed(&child) { child?; }
            }
        }
    });
    quote! {
        if scope.cancelled() {
            #(#failures)*
            ::core::unreachable!("a failure cancels the others");
        }
    }
}

const SETTLED: &str = "every child has been settled";

impl Finish {
    fn tokens(self, segment_is_speculative: bool) -> TokenStream {
        let values = self
            .values
            .iter()
            .map(|value| value.tokens(segment_is_speculative));
        let value = match &self.rest {
            Some(rest) => quote!(#rest(#(#values),*)),
            None => quote!(#(#values)*),
        };
        match self.target {
            ValueTarget::Nothing => quote!(let _ = #value;),
            ValueTarget::Variable(name) => quote!(#name = #value;),
            ValueTarget::Assignment(place) => quote!(#place = #value;),
            ValueTarget::Pattern {
                names,
                pat,
                diverge,
            } => match &names[..] {
                [] => quote!(let #pat = #value #diverge;),
                [name] => quote!(#name = { let #pat = #value #diverge; #name };),
                _ => quote!((#(#names),*) = { let #pat = #value #diverge; (#(#names),*) };),
            },
        }
    }
}

impl ChildValue {
    fn tokens(&self, segment_is_speculative: bool) -> TokenStream {
        let (value, speculative) = match self {
            ChildValue::Collected(name) => return quote!(#name),
            ChildValue::Guard { name, .. } if !segment_is_speculative => return quote!(#name),
            ChildValue::Guard { name, speculative } | ChildValue::Late { name, speculative } => {
                (quote!(#name.expect(#SETTLED)), speculative)
            }
        };
        if *speculative {
            quote!(::satin::__private::Speculative::value(#value))
        } else {
            value
        }
    }
}

// -------------------------------------------------------------------------------------------------------- expressions
impl Lower<'_> {
    /// An expression whose value the function returns: a call of the function itself is a plain call.
    fn tail(&mut self, expr: &Expr) -> TokenStream {
        match expr {
            Expr::If(_) | Expr::Match(_) | Expr::Block(_) | Expr::Unsafe(_) => {
                self.control(expr, GuardPosition::Tail, Hop::Nowhere)
            }
            Expr::Return(ExprReturn {
                expr: Some(value), ..
            }) => {
                let value = self.tail(value);
                quote!(return #value)
            }
            _ => match own_call(expr) {
                Some(args) if !self.scope => {
                    let args: Vec<TokenStream> = args.iter().map(|arg| self.expr(arg)).collect();
                    let marker = self.job.marker();
                    quote!(<#marker<L> as ::satin::__private::Function>::call(cx, index, (#(#args,)*)))
                }
                _ => self.expr(expr),
            },
        }
    }

    /// An expression whose value is needed here and now: all its calls are spawned, the last one is called, and all are
    /// settled.
    fn expr(&mut self, expr: &Expr) -> TokenStream {
        if !has_marks(expr) && !has_sync(expr) {
            return expr.to_token_stream();
        }
        match expr {
            Expr::Return(_) => return self.tail(expr),
            Expr::Let(of) => {
                let mut of = of.clone();
                *of.expr = Expr::Verbatim(self.expr(&of.expr));
                return of.to_token_stream();
            }
            _ if is_control_flow(expr) => {
                return self.control(expr, GuardPosition::Value, Hop::Nowhere);
            }
            _ => {}
        }
        let (spawns, remaining) = self.extract(expr);
        match &spawns[..] {
            [] => remaining.to_token_stream(),
            [
                Spawn {
                    value,
                    prepared,
                    speculative,
                    ..
                },
            ] => {
                let tried = speculative.then(|| quote!(?));
                replace_name(remaining, value, &quote!(scope.call(#prepared)#tried))
            }
            _ => self.several(&spawns, &remaining),
        }
    }

    fn several(&mut self, spawns: &[Spawn], remaining: &Expr) -> TokenStream {
        let speculative = spawns.iter().any(|spawn| spawn.speculative);
        let (mut out, mut guards) = (TokenStream::new(), Guards::default());
        for spawn in spawns {
            out.extend(self.guard(&mut guards, spawn.clone()));
        }
        let assign: Vec<_> = spawns.iter().map(|_| None).collect();
        let base = self.fresh("base");
        out.extend(guards.settle(None, speculative, base, &assign));
        if speculative {
            out.extend(fail_if_cancelled(
                spawns
                    .iter()
                    .filter(|spawn| spawn.speculative)
                    .map(|spawn| &spawn.value),
            ));
            for Spawn {
                value, speculative, ..
            } in spawns
            {
                let got = ChildValue::Guard {
                    name: value.clone(),
                    speculative: *speculative,
                }
                .tokens(true);
                out.extend(quote!(let #value = #got;));
            }
        }
        quote!({ #out #remaining })
    }

    /// Takes the spawned calls out of `expr` and puts names in their places; lowers everything in it that is no spawn.
    fn extract(&mut self, expr: &Expr) -> (Vec<Spawn>, Expr) {
        struct Extract<'l, 'a> {
            lower: &'l mut Lower<'a>,
            spawns: Vec<Spawn>,
        }
        impl VisitMut for Extract<'_, '_> {
            fn visit_expr_mut(&mut self, expr: &mut Expr) {
                if let Some((callee, speculative)) = Marked::spawn(expr) {
                    let out =
                        matches!(callee, Callee::Own(_)).then(|| self.lower.job.output.clone());
                    let is_quick = is_quick(&callee);
                    let prepared = self.lower.prepared(&callee);
                    let value = self.lower.fresh("s");
                    *expr = parse_quote!(#value);
                    self.spawns.push(Spawn {
                        value,
                        prepared,
                        speculative,
                        out,
                        is_quick,
                    });
                } else if let Some(Marked {
                    verb: Verb::Call,
                    callee,
                }) = Marked::of(expr)
                {
                    let prepared = self.lower.prepared(&callee);
                    *expr = Expr::Verbatim(quote!(scope.call(#prepared)));
                } else if is_control_flow(expr) {
                    *expr = Expr::Verbatim(self.lower.expr(expr));
                } else {
                    visit_mut::visit_expr_mut(self, expr);
                }
            }
            fn visit_item_mut(&mut self, _: &mut Item) {}
        }
        let mut remaining = expr.clone();
        let mut extract = Extract {
            lower: self,
            spawns: Vec::new(),
        };
        extract.visit_expr_mut(&mut remaining);
        (extract.spawns, remaining)
    }

    /// The call with its arguments, ready to be spawned or called.
    fn prepared(&mut self, callee: &Callee<'_>) -> TokenStream {
        match callee {
            Callee::Own(args) => {
                let args: Vec<TokenStream> = args.iter().map(|arg| self.expr(arg)).collect();
                let marker = self.job.marker();
                quote!(::satin::__private::Call::<#marker<L>>::new((#(#args,)*)))
            }
            Callee::Other(call) => {
                let mut call = (*call).clone();
                match &mut call {
                    Expr::Call(call) => call
                        .args
                        .iter_mut()
                        .for_each(|arg| *arg = Expr::Verbatim(self.expr(arg))),
                    Expr::MethodCall(call) => {
                        *call.receiver = Expr::Verbatim(self.expr(&call.receiver));
                        call.args
                            .iter_mut()
                            .for_each(|arg| *arg = Expr::Verbatim(self.expr(arg)));
                    }
                    _ => {}
                }
                if let Err(error) = rename_callee(&mut call, super::COMPANION) {
                    self.errors.push(error);
                }
                call.to_token_stream()
            }
        }
    }
}

/// Puts `with` where `name` stands.
fn replace_name(mut expr: Expr, name: &Ident, with: &TokenStream) -> TokenStream {
    struct Replace<'a>(&'a Ident, &'a TokenStream);
    impl VisitMut for Replace<'_> {
        fn visit_expr_mut(&mut self, expr: &mut Expr) {
            if matches!(expr, Expr::Path(path) if path.path.is_ident(self.0)) {
                *expr = Expr::Verbatim(self.1.clone());
            } else {
                visit_mut::visit_expr_mut(self, expr);
            }
        }
    }
    Replace(name, with).visit_expr_mut(&mut expr);
    expr.to_token_stream()
}

// ------------------------------------------------------------------------------------------------------- control flow
impl Lower<'_> {
    /// A loop or a branch that stands as a statement: its children may outlive it.
    fn control_statement(&mut self, expr: &Expr) -> TokenStream {
        let stmt = Stmt::Expr(expr.clone(), None);
        let hop = match self.escape(&stmt) {
            Escape::Joins => Hop::Outwards,
            Escape::Stays => Hop::Nowhere,
            Escape::BackEdge(place) => {
                let span = super::mark::first_spawn(expr).unwrap_or_else(|| expr.span());
                self.errors.at_span(
                    span,
                    format!(
                        "this loop looks at `{place}` again before the children that it has spawned have been synced: write `sync!();` after the spawn \
                         (each round then waits for its child), or do not look at `{place}` in the loop"
                    ),
                );
                Hop::Nowhere
            }
        };
        let mut out = TokenStream::new();
        if hop == Hop::Outwards {
            if let Expr::ForLoop(of) = expr
                && escape::head_looks(of)
            {
                let items = self.fresh("items");
                let head = self.expr(&of.expr);
                out.extend(quote!(let #items = ::core::iter::IntoIterator::into_iter(#head);));
                let mut of = of.clone();
                *of.expr = parse_quote!(#items);
                self.open_homes(&stmt, &mut out);
                out.extend(self.control(&Expr::ForLoop(of), GuardPosition::Statement, hop));
                return out;
            }
            self.open_homes(&stmt, &mut out);
        }
        out.extend(self.control(expr, GuardPosition::Statement, hop));
        out
    }

    /// Opens this block's group, if children of `stmt` will join it.
    fn open_homes(&mut self, stmt: &Stmt, out: &mut TokenStream) {
        let here = self.blocks.len() - 1;
        let inner = escape::declared_in(stmt);
        let outer = |path: &Option<PlacePath>| {
            !path
                .as_ref()
                .is_some_and(|path| inner.contains(path.root()))
        };
        let joins = sites_within(stmt)
            .iter()
            .any(|path| outer(path) && self.home_of(path.as_ref()) == here);
        if joins {
            self.open_group(here, out);
            if let Some(group) = &mut self.top().segment.group {
                group.joined = true;
            }
        }
    }

    fn control(&mut self, expr: &Expr, position: GuardPosition, hop: Hop) -> TokenStream {
        match expr {
            Expr::If(of) => {
                let attrs = &of.attrs;
                let cond = self.expr(&of.cond);
                let mut state = BlockState::new(hop);
                if let Expr::Let(cond) = &*of.cond {
                    state = state.declaring(&cond.pat);
                }
                let then = self.block(&of.then_branch.stmts, state, position);
                let otherwise = of.else_branch.as_ref().map(|(_, other)| {
                    let other = self.control(other, position, hop);
                    quote!(else #other)
                });
                quote!(#(#attrs)* if #cond { #then } #otherwise)
            }
            Expr::Match(of) => {
                let attrs = &of.attrs;
                let scrutinee = self.expr(&of.expr);
                let arms: Vec<TokenStream> = of
                    .arms
                    .iter()
                    .map(|arm| self.arm(arm, position, hop))
                    .collect();
                quote!(#(#attrs)* match #scrutinee { #(#arms)* })
            }
            Expr::Block(of) => {
                let (attrs, label) = (&of.attrs, &of.label);
                let body = self.block(&of.block.stmts, BlockState::new(hop), position);
                quote!(#(#attrs)* #label { #body })
            }
            Expr::Unsafe(of) => {
                let attrs = &of.attrs;
                let body = self.block(&of.block.stmts, BlockState::new(hop), position);
                quote!(#(#attrs)* unsafe { #body })
            }
            Expr::Loop(of) => {
                let (attrs, label) = (&of.attrs, &of.label);
                let body = self.block(
                    &of.body.stmts,
                    BlockState::new(hop).loop_body(),
                    GuardPosition::Statement,
                );
                quote!(#(#attrs)* #label loop { #body })
            }
            Expr::While(of) => {
                let (attrs, label) = (&of.attrs, &of.label);
                let cond = self.expr(&of.cond);
                let mut state = BlockState::new(hop).loop_body();
                if let Expr::Let(cond) = &*of.cond {
                    state = state.declaring(&cond.pat);
                }
                let body = self.block(&of.body.stmts, state, GuardPosition::Statement);
                quote!(#(#attrs)* #label while #cond { #body })
            }
            Expr::ForLoop(of) => {
                let (attrs, label, pat) = (&of.attrs, &of.label, &of.pat);
                let items = self.expr(&of.expr);
                let body = self.block(
                    &of.body.stmts,
                    BlockState::new(hop).declaring(pat).loop_body(),
                    GuardPosition::Statement,
                );
                quote!(#(#attrs)* #label for #pat in #items { #body })
            }
            other => self.expr(other),
        }
    }

    fn arm(&mut self, arm: &syn::Arm, position: GuardPosition, hop: Hop) -> TokenStream {
        let (attrs, pat) = (&arm.attrs, &arm.pat);
        let guard = arm.guard.as_ref().map(|(_, guard)| {
            let guard = self.expr(guard);
            quote!(if #guard)
        });
        let body = match &*arm.body {
            Expr::Block(of) if of.label.is_none() && of.attrs.is_empty() => of.block.stmts.clone(),
            body => vec![Stmt::Expr(body.clone(), None)],
        };
        let body = self.block(&body, BlockState::new(hop).declaring(pat), position);
        quote!(#(#attrs)* #pat #guard => { #body })
    }
}

impl SpawnableFn {
    /// Tells for each argument, the receiver first, whether it is lent to be changed.
    fn lent_arguments(&self) -> Vec<bool> {
        let receiver = self
            .receiver
            .as_ref()
            .map(|receiver| receiver.reference.is_some() && receiver.mutability.is_some());
        receiver
            .into_iter()
            .chain(
                self.params
                    .iter()
                    .map(|param| ArgumentKind::of(&param.ty).is_lent()),
            )
            .collect()
    }
}
