//! Blocks: their statements in segments, and where each segment ends.

use proc_macro2::{Ident, Span, TokenStream};
use quote::format_ident;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, ExprReturn, Item, Stmt, Token};

use super::super::escape::{Escape, escape};
use super::super::hygiene::quote;
use super::super::iterators::collected_in;
use super::super::mark::{
    Callee, Marked, first_spawn, has_marks, is_sync, stmt_has_marks, stmt_has_sync,
};
use super::super::mentions::{PlacePath, mentions};
use super::super::parse::SpawnableFn;
use super::super::site::{DeferredStatement, is_control_flow, reads, visit_marks};
use super::statements::{cannot_wait, is_silent};
use super::{BlockState, GuardPosition, Hop, Last, Lower, ValueTarget};

impl Lower<'_> {
    pub(super) fn fresh(&mut self, prefix: &str) -> Ident {
        self.names += 1;
        format_ident!("{}{}", prefix, self.names - 1, span = Span::mixed_site())
    }

    pub(super) fn top(&mut self) -> &mut BlockState {
        self.blocks
            .last_mut()
            .expect("statements are lowered in a block")
    }

    /// The statements of a block, without its braces.
    pub(super) fn block(
        &mut self,
        stmts: &[Stmt],
        state: BlockState,
        position: GuardPosition,
    ) -> TokenStream {
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
    pub(super) fn tail_that_waits(
        &mut self,
        stmt: &Stmt,
        position: GuardPosition,
    ) -> Option<TokenStream> {
        let Stmt::Expr(expr, None) = stmt else {
            return None;
        };
        if position == GuardPosition::Statement
            || self.top().segment.is_empty()
            || first_spawn(expr).is_none()
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
    pub(super) fn may_wait_for_scope(&self, stmt: &Stmt, rest: &[Stmt]) -> bool {
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

    pub(super) fn escape(&self, stmt: &Stmt) -> Escape {
        escape(stmt, &|expr| self.lent(expr), &self.late_init)
    }

    /// The places that the spawned calls of `expr` borrow mutably, also by a variable that borrows them.
    pub(super) fn lent_at_all(&self, expr: &Expr) -> Vec<PlacePath> {
        let mut lent = self.lent(expr);
        visit_marks(expr, &mut |mark| {
            for arg in mark.arguments() {
                lent.extend(self.reborrows.lent_with(arg));
            }
        });
        lent
    }

    /// The lent variables that an argument names.
    pub(super) fn lent(&self, expr: &Expr) -> Vec<PlacePath> {
        struct Lent<'a> {
            job: &'a SpawnableFn,
            found: Vec<PlacePath>,
        }
        impl<'ast> Visit<'ast> for Lent<'_> {
            fn visit_expr(&mut self, expr: &'ast Expr) {
                if let Some(mark) = Marked::of(expr) {
                    let kinds = match mark.callee {
                        Callee::Own(_) => self.job.lent_arguments(),
                        Callee::Other(_) | Callee::Loop(_) => Vec::new(),
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
    pub(super) fn must_sync_before(&mut self, stmt: &Stmt, position: GuardPosition) -> bool {
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
    pub(super) fn leaves_this_block(&self, stmt: &Stmt) -> bool {
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
    pub(super) fn home_of(&self, path: Option<&PlacePath>) -> usize {
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
    pub(super) fn bare_joins_group(&self) -> bool {
        let top = self
            .blocks
            .last()
            .expect("statements are lowered in a block");
        top.hop == Hop::Outwards || top.segment.group.is_some()
    }
}

pub(super) fn else_if_heads_spawn(expr: &Expr) -> bool {
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
pub(super) fn needs_scope(stmt: &Stmt, position: GuardPosition) -> bool {
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
pub(super) fn own_call(expr: &Expr) -> Option<&Punctuated<Expr, Token![,]>> {
    match Marked::of(expr)?.callee {
        Callee::Own(args) => Some(args),
        Callee::Other(_) | Callee::Loop(_) => None,
    }
}

/// The places that the sites of `stmt` write, at any depth; none for a bare call.
pub(super) fn sites_within(stmt: &Stmt) -> Vec<Option<PlacePath>> {
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

pub(super) fn places_written(stmt: &Stmt) -> Vec<PlacePath> {
    sites_within(stmt).into_iter().flatten().collect()
}
