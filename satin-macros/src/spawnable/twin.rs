//! The sequential twin: the body as plain Rust, what `seq!` and `sequential_if` run.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, Item, Stmt, parse_quote, parse_quote_spanned, spanned::Spanned};

use super::mark::{
    Callee, Marked, expand_loop, is_sync, is_sync_expr, rename_callee, with_mention,
};
use super::parse::SpawnableFn;
use crate::in_place::Standing;

/// The body in which every spawned call is a call of a twin, and no `sync!()` is left.
pub fn twin(job: &SpawnableFn, marked: &Block) -> Block {
    let mut body = marked.clone();
    Unmark {
        name: job.twin(),
        is_method: job.self_type.is_some(),
    }
    .visit_block_mut(&mut body);
    body
}

struct Unmark {
    name: Ident,
    is_method: bool,
}

impl VisitMut for Unmark {
    fn visit_block_mut(&mut self, block: &mut Block) {
        block
            .stmts
            .retain(|stmt| !(is_sync(stmt) && matches!(stmt, Stmt::Expr(_, Some(_)))));
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let span = expr.span();
        if is_sync_expr(expr) {
            *expr = parse_quote_spanned!(span=> ());
        }
        let plain = Marked::of(expr).map(|mark| match mark.callee {
            Callee::Loop(mac) => {
                Expr::Verbatim(expand_loop(mac, Standing::Sequential(super::TWIN)))
            }
            Callee::Own(args) => {
                let mut name = self.name.clone();
                name.set_span(span);
                if self.is_method {
                    parse_quote_spanned!(span=> Self::#name(#args))
                } else {
                    parse_quote_spanned!(span=> #name(#args))
                }
            }
            Callee::Other(call) => {
                let mut renamed = call.clone();
                // A callee that cannot be renamed has been reported when it was marked.
                let _ = rename_callee(&mut renamed, super::TWIN);
                let plain = with_mention(call, renamed.into_token_stream());
                parse_quote!(#plain)
            }
        });
        if let Some(plain) = plain {
            *expr = plain;
        }
        visit_mut::visit_expr_mut(self, expr);
    }

    fn visit_item_mut(&mut self, _: &mut Item) {}
}
