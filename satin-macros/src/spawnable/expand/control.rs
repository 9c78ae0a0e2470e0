//! Loops, branches and matches.

use proc_macro2::TokenStream;
use syn::spanned::Spanned;
use syn::{Expr, Stmt, parse_quote};

use super::super::escape::{self, Escape};
use super::super::hygiene::quote;
use super::super::mark::first_spawn;
use super::super::mentions::PlacePath;
use super::super::parse::SpawnableFn;
use super::super::signature::ArgumentKind;
use super::blocks::sites_within;
use super::{BlockState, GuardPosition, Hop, Lower};

impl Lower<'_> {
    /// A loop or a branch that stands as a statement: its children may outlive it.
    pub(super) fn control_statement(&mut self, expr: &Expr) -> TokenStream {
        let stmt = Stmt::Expr(expr.clone(), None);
        let hop = match self.escape(&stmt) {
            Escape::Joins => Hop::Outwards,
            Escape::Stays => Hop::Nowhere,
            Escape::BackEdge(place) => {
                let span = first_spawn(expr).unwrap_or_else(|| expr.span());
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
    pub(super) fn open_homes(&mut self, stmt: &Stmt, out: &mut TokenStream) {
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

    pub(super) fn control(
        &mut self,
        expr: &Expr,
        position: GuardPosition,
        hop: Hop,
    ) -> TokenStream {
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

    pub(super) fn arm(&mut self, arm: &syn::Arm, position: GuardPosition, hop: Hop) -> TokenStream {
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
    pub(super) fn lent_arguments(&self) -> Vec<bool> {
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
