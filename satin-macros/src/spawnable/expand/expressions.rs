//! Expressions with several spawns, and what is left of them at the sync.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, ExprReturn, Item, parse_quote};

use super::super::guards::Guards;
use super::super::hygiene::quote;
use super::super::mark::{Callee, Marked, Verb, expand_loop, has_marks, has_sync, rename_callee};
use super::super::site::is_control_flow;
use super::blocks::own_call;
use super::statements::is_quick;
use super::sync::fail_if_cancelled;
use super::{ChildValue, GuardPosition, Hop, Lower, Spawn};
use crate::in_place::Standing;

impl Lower<'_> {
    /// An expression whose value the function returns: a call of the function itself is a plain call.
    pub(super) fn tail(&mut self, expr: &Expr) -> TokenStream {
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
    pub(super) fn expr(&mut self, expr: &Expr) -> TokenStream {
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

    pub(super) fn several(&mut self, spawns: &[Spawn], remaining: &Expr) -> TokenStream {
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
    pub(super) fn extract(&mut self, expr: &Expr) -> (Vec<Spawn>, Expr) {
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
                    *expr = Expr::Verbatim(self.lower.call_in_place(&callee));
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

    /// A call that is waited for where it stands.
    fn call_in_place(&mut self, callee: &Callee<'_>) -> TokenStream {
        match callee {
            Callee::Loop(mac) => expand_loop(mac, Standing::InJob),
            _ => {
                let prepared = self.prepared(callee);
                quote!(scope.call(#prepared))
            }
        }
    }

    /// The call with its arguments, ready to be spawned or called.
    pub(super) fn prepared(&mut self, callee: &Callee<'_>) -> TokenStream {
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
                if let Err(error) = rename_callee(&mut call, super::super::COMPANION) {
                    self.errors.push(error);
                }
                call.to_token_stream()
            }
            Callee::Loop(mac) => expand_loop(mac, Standing::InJob),
        }
    }
}

/// Puts `with` where `name` stands.
pub(super) fn replace_name(mut expr: Expr, name: &Ident, with: &TokenStream) -> TokenStream {
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
