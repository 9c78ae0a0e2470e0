//! Warns of loops that wait for a child in each round, so that no two of them are ever under way at once.
//!
//! ```text
//! for job in jobs {
//!     let score = spawn!(try_out(job))?;
//!     best = best.max(score);     // mentions `score`: waits, in every round
//! }
//! ```
//!
//! On stable Rust a macro cannot warn; the use of something that is deprecated can.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Item, Local, Stmt};

use super::escape::bindings;
use super::mark::{Marked, Verb, is_sync_expr};
use super::mentions::{PlacePath, mentions};

const MESSAGE: &str = "each round of this loop waits for its child, so nothing runs in parallel: collect the results in a place declared before \
    the loop (`results.push(..)`) and look at them after it; write `call!(..)` if a round needs the one before. See \"Why is it not parallel?\" in the \
    documentation of satin";

/// Items that make the compiler warn of each such loop in `marked`. `lints` are the levels that the user has set.
pub fn warnings(marked: &Block, lints: &[&Attribute]) -> TokenStream {
    let mut waits = Waits(Vec::new());
    waits.visit_block(marked);
    waits.0.into_iter().map(|at| warning(at, lints)).collect()
}

fn warning(at: Span, lints: &[&Attribute]) -> TokenStream {
    let at = Span::mixed_site().located_at(at);
    quote_spanned! {at=>
        #(#lints)*
        const _: () = {
            #[deprecated(note = #MESSAGE)]
            #[allow(non_upper_case_globals)]
            const not_parallel: () = ();
            not_parallel
        };
    }
}

/// The places where the only child of a loop's round is spawned, for each loop that waits for that child in the round.
struct Waits(Vec<Span>);

impl Waits {
    fn round(&mut self, body: &Block) {
        let mut seen = LoopRound::default();
        seen.visit_block(body);
        let ([only], false) = (&seen.spawns[..], seen.syncs) else {
            return; // several children are under way at once, or the user has said where to wait
        };
        if body
            .stmts
            .iter()
            .enumerate()
            .any(|(at, stmt)| waits_here(stmt, &body.stmts[at + 1..]))
        {
            self.0.push(*only);
        }
    }
}

/// Whether the child of `stmt` is waited for at once, or by one of the statements after it.
fn waits_here(stmt: &Stmt, rest: &[Stmt]) -> bool {
    match stmt {
        Stmt::Local(Local {
            pat,
            init: Some(init),
            ..
        }) if spawns(&init.expr) => {
            let names: Vec<PlacePath> = bindings(pat)
                .iter()
                .map(|name| PlacePath::variable(&name.ident))
                .collect();
            init.diverge.is_some()
                || rest
                    .iter()
                    .any(|stmt| mentions(stmt.to_token_stream(), &names))
        }
        Stmt::Expr(Expr::If(of), _) => spawns(&of.cond),
        Stmt::Expr(Expr::Match(of), _) => spawns(&of.expr),
        _ => false,
    }
}

fn spawns(expr: &Expr) -> bool {
    let mut seen = LoopRound::default();
    seen.visit_expr(expr);
    !seen.spawns.is_empty()
}

/// The spawns and syncs of a loop's round.
#[derive(Default)]
struct LoopRound {
    spawns: Vec<Span>,
    syncs: bool,
}

impl<'ast> Visit<'ast> for LoopRound {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        if Marked::of(expr).is_some_and(|mark| mark.verb == Verb::Spawn) {
            self.spawns.push(expr.span());
        }
        self.syncs |= is_sync_expr(expr);
        visit::visit_expr(self, expr);
    }
    fn visit_item(&mut self, _: &'ast Item) {}
}

impl<'ast> Visit<'ast> for Waits {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::ForLoop(of) => self.round(&of.body),
            Expr::While(of) => self.round(&of.body),
            Expr::Loop(of) => self.round(&of.body),
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
    fn visit_item(&mut self, _: &'ast Item) {}
}
