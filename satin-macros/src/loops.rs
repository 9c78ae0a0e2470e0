//! `par_map!`, `par_chunks!`, `par_reduce!`: loops whose elements are calls of a spawnable function.
//!
//! The function must be named, since nothing leads from a function as a value to what `#[spawnable]` has registered for it; so these are
//! macros, which rename it as `spawn!` does. They stand in ordinary code, where the loop is a root job, and in bodies of spawnable
//! functions, where it is a child of the running job that is waited for in place.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident};
use syn::{
    Expr, ExprClosure, Stmt, Token,
    parse::{ParseStream, Parser},
    punctuated::Punctuated,
};

use crate::in_place::Standing;
use crate::spawnable::{
    COMPANION, hygienic_quote as quote, rename_callee, rename_path, with_mention,
};

/// A form of parallel loop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LoopKind {
    /// `par_map!(&xs, f)`
    Map,
    /// `par_chunks!(&xs, size, f)`
    Chunks,
    /// `par_reduce!(&xs, f, join)`, `par_reduce!(&xs, size, f, join)`
    Reduce,
}

impl LoopKind {
    /// The form that the macro of that name has.
    pub fn of(name: &str) -> Option<LoopKind> {
        match name {
            "par_map" => Some(LoopKind::Map),
            "par_chunks" => Some(LoopKind::Chunks),
            "par_reduce" => Some(LoopKind::Reduce),
            _ => None,
        }
    }

    fn usage(self) -> &'static str {
        match self {
            LoopKind::Map => {
                "`par_map!` takes a slice and a spawnable function: `par_map!(&xs, f)`, or `par_map!(&xs, |x| f(x, &more))`"
            }
            LoopKind::Chunks => {
                "`par_chunks!` takes a slice, the size of a chunk, and a spawnable function of a slice: `par_chunks!(&xs, 1000, f)`, or \
                 `par_chunks!(&xs, 1000, |part| f(part, &more))`"
            }
            LoopKind::Reduce => {
                "`par_reduce!` takes a slice, a spawnable function, and another that puts two results together: \
                 `par_reduce!(&xs, f, join)`, or `par_reduce!(&xs, 1000, f, join)` for an `f` of chunks of 1000"
            }
        }
    }
}

/// A parallel loop as it was written.
pub struct ParallelLoop {
    elements: Expr,
    size: Option<Expr>,
    call: Expr,
    join: Option<Expr>,
}

impl ParallelLoop {
    /// Reads the arguments of the macro.
    pub fn parse(kind: LoopKind, arguments: TokenStream) -> syn::Result<ParallelLoop> {
        let mut given = expressions(arguments.clone())?;
        let count = given.len();
        let fits = match kind {
            LoopKind::Map => count == 2,
            LoopKind::Chunks => count == 3,
            LoopKind::Reduce => count == 3 || count == 4,
        };
        if !fits {
            return Err(misuse(arguments, kind.usage()));
        }
        let join = (kind == LoopKind::Reduce).then(|| given.remove(count - 1));
        let call = given.remove(given.len() - 1);
        let size = (given.len() == 2).then(|| given.remove(1));
        let elements = given.remove(0);
        let read = ParallelLoop {
            elements,
            size,
            call,
            join,
        };
        // Of all ways the companions demand most.
        read.closure(COMPANION)?;
        read.joining(COMPANION)?;
        Ok(read)
    }

    /// The loop, in the place of the macro.
    pub fn expand(&self, standing: Standing) -> syn::Result<TokenStream> {
        let prefix = match standing {
            Standing::Sequential(prefix) => prefix,
            Standing::Outside | Standing::InJob => COMPANION,
        };
        let ParallelLoop { elements, size, .. } = self;
        let size = size.iter();
        let closure = self.closure(prefix)?;
        let join = self.joining(prefix)?;
        let join = join.iter();
        let name = format_ident!(
            "{}_{}{}",
            if standing == Standing::Sequential(prefix) {
                "seq"
            } else {
                "par"
            },
            match (&self.join, &self.size) {
                (Some(_), _) => "reduce",
                (None, Some(_)) => "chunks",
                (None, None) => "map",
            },
            if self.join.is_some() && self.size.is_some() {
                "_chunks"
            } else {
                ""
            },
        );
        let run = match standing {
            Standing::Outside => quote!(, |part| ::satin::__private::enter(part)),
            Standing::InJob => quote!(, |part| scope.call(part)),
            Standing::Sequential(_) => TokenStream::new(),
        };
        let call =
            quote!(::satin::__private::#name(#elements #(, #size)*, #closure #(, #join)* #run));
        Ok(match standing {
            // Beside it stands the sequential one.
            Standing::InJob => call,
            _ => self.with_mentions(call),
        })
    }

    /// The loop after a mention of its functions.
    fn with_mentions(&self, mut instead: TokenStream) -> TokenStream {
        let called = match without_groups(&self.call) {
            Expr::Closure(closure) => without_groups(&closure.body),
            path => path,
        };
        for function in [Some(called), self.join.as_ref()].into_iter().flatten() {
            instead = with_mention(function, instead);
        }
        instead
    }

    /// The closure that calls the function with that prefix.
    fn closure(&self, prefix: &str) -> syn::Result<TokenStream> {
        match without_groups(&self.call) {
            Expr::Closure(closure) => {
                let mut closure = closure.clone();
                let mut body = only_expression(&closure)?;
                rename_callee(&mut body, prefix).map_err(|error| {
                    let what = "what else is to be done for an element goes into that function";
                    syn::Error::new(error.span(), format!("{error}; {what}"))
                })?;
                *closure.body = body;
                Ok(closure.into_token_stream())
            }
            Expr::Path(path) => {
                let mut path = path.clone();
                rename_path(&mut path, prefix);
                Ok(quote!(|element| #path(element)))
            }
            other => Err(syn::Error::new_spanned(
                other,
                "expected a spawnable function by its name, `f` or `module::f`, or a closure that calls one: `|x| f(x, &more)`",
            )),
        }
    }

    /// The closure that puts two results together.
    fn joining(&self, prefix: &str) -> syn::Result<Option<TokenStream>> {
        let Some(join) = &self.join else {
            return Ok(None);
        };
        let Expr::Path(path) = without_groups(join) else {
            return Err(syn::Error::new_spanned(
                join,
                "results are put together by a spawnable function of two results, by its name: `fn add(a: u64, b: u64) -> u64`; no closure \
                 can be sent to another node",
            ));
        };
        let mut path = path.clone();
        rename_path(&mut path, prefix);
        Ok(Some(quote!(|a, b| #path(a, b))))
    }
}

/// The arguments of a macro that takes expressions.
pub fn expressions(arguments: TokenStream) -> syn::Result<Vec<Expr>> {
    let list = |input: ParseStream| Punctuated::<Expr, Token![,]>::parse_terminated(input);
    Ok(list.parse2(arguments)?.into_iter().collect())
}

/// The error for arguments that are not what a macro takes.
pub fn misuse(arguments: TokenStream, usage: &str) -> syn::Error {
    let place = if arguments.is_empty() {
        quote!(x).into_iter().collect()
    } else {
        arguments
    };
    syn::Error::new_spanned(place, usage)
}

/// The expression without the groups and parentheses around it.
pub fn without_groups(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => without_groups(&group.expr),
        Expr::Paren(paren) => without_groups(&paren.expr),
        other => other,
    }
}

/// The expression that is all of the closure's body.
fn only_expression(closure: &ExprClosure) -> syn::Result<Expr> {
    match &*closure.body {
        Expr::Block(block) => match &block.block.stmts[..] {
            [Stmt::Expr(only, None)] => Ok(only.clone()),
            _ => Err(syn::Error::new_spanned(
                block,
                "the closure of a parallel loop is one call of a spawnable function, `|x| f(x, &more)`: what else is to be done for an \
                 element goes into that function",
            )),
        },
        body => Ok(body.clone()),
    }
}
