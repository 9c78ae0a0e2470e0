//! Statements that spawn, form by form.

use std::collections::HashSet;

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Local, Pat, PatIdent, PatType, Stmt, Token, parse_quote};

use super::super::escape::{bindings, is_late_init};
use super::super::group::Arm;
use super::super::guards::{ChildGuard, Follows, Guards};
use super::super::hygiene::quote;
use super::super::iterators::{self, collected_in};
use super::super::mark::{
    Callee, Marked, first_spawn, has_marks, is_sync, stmt_has_marks, stmt_has_sync,
};
use super::super::mentions::{PlacePath, mentions};
use super::super::order;
use super::super::site::{DeferredStatement, is_control_flow, reads};
use super::blocks::places_written;
use super::{
    ChildValue, Finish, GuardPosition, Hop, Last, Lower, MOST_PER_SITE, OpenGroup, Spawn,
    ValueTarget,
};

impl Lower<'_> {
    pub(super) fn statement(
        &mut self,
        stmt: &Stmt,
        position: GuardPosition,
        rest: &[Stmt],
    ) -> TokenStream {
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

    pub(super) fn declare(&mut self, pat: &Pat) {
        let names = bindings(pat).into_iter().map(|name| name.ident.to_string());
        let block = self.top();
        for name in names {
            if let Some(group) = &mut block.segment.group {
                group.declared_since.insert(name.clone());
            }
            block.declared.insert(name);
        }
    }

    pub(super) fn expression_statement(
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

    pub(super) fn immediate_statement(&mut self, expr: &Expr) -> TokenStream {
        let lowered = self.expr(expr);
        quote!(#lowered;)
    }

    pub(super) fn local(&mut self, local: &Local, rest: &[Stmt]) -> TokenStream {
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
            || first_spawn(&init.expr).is_none()
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
    pub(super) fn deferred(
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
    pub(super) fn guard(&mut self, guards: &mut Guards, spawn: Spawn) -> TokenStream {
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
    pub(super) fn push_planned(&mut self, stmt: &Stmt, rest: &[Stmt]) -> TokenStream {
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
    pub(super) fn syncs_next(&mut self, rest: &[Stmt], would_watch: &[PlacePath]) -> bool {
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
    pub(super) fn rest_closure(
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
    pub(super) fn late_child(
        &mut self,
        group: usize,
        spawn: Spawn,
        out: &mut TokenStream,
    ) -> ChildValue {
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
    pub(super) fn group_children(
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
    pub(super) fn group_site(&mut self, site: &DeferredStatement) -> Option<TokenStream> {
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
    pub(super) fn operands(
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
    pub(super) fn open_group(&mut self, home: usize, out: &mut TokenStream) -> usize {
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
    pub(super) fn collected_let(&mut self, local: &Local) -> TokenStream {
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
pub(super) fn cannot_wait(expr: &Expr) -> bool {
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

pub(super) fn leaves(tokens: TokenStream) -> bool {
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
pub(super) fn is_quick(callee: &Callee<'_>) -> bool {
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
        Callee::Loop(_) => return false,
    }
    !slow.0
}

/// True if the statement runs no code.
pub(super) fn is_silent(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Item(_) => true,
        Stmt::Local(local) => local.init.is_none(),
        _ => false,
    }
}

pub(super) fn is_speculative(expr: &Expr) -> bool {
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
pub(super) fn declaration(attrs: &[syn::Attribute], pat: &Pat, names: &[PatIdent]) -> TokenStream {
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

pub(super) fn target(pat: &Pat, names: &[PatIdent], diverge: Option<TokenStream>) -> ValueTarget {
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
