//! In which order the children of a loop run on the worker that spawned them: program order, or the last one first, which saves
//! turning them round.
//!
//! Program order keeps the promise of a search: the branch that the text puts first is looked at first. Where a loop
//! only adds numbers up, and the body neither looks at a bound nor stops siblings with `?`, no program can tell the
//! difference, so the last child runs first. `#[spawnable(order = ..)]` decides otherwise.

use proc_macro2::{Ident, TokenStream};
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprMethodCall, ExprTry, Macro};

use super::{hygiene::quote, mark::Marked, parse::OrderOption, site::DeferredStatement};

/// Does the order in which children run matter to this body, as far as one can see?
pub fn matters(order: Option<OrderOption>, body: &Block) -> bool {
    match order {
        Some(order) => order == OrderOption::Program,
        None => {
            let mut search = SearchSigns(false);
            search.visit_block(body);
            search.0
        }
    }
}

/// Finds what makes a body a search: a `?`, or a call of a method of a static, such as `BEST.prunes(..)`.
struct SearchSigns(bool);

impl<'ast> Visit<'ast> for SearchSigns {
    fn visit_expr_try(&mut self, _: &'ast ExprTry) {
        self.0 = true;
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.0 |= is_static(&call.receiver);
        visit::visit_expr_method_call(self, call);
    }

    /// The code hidden in an unknown macro may do anything.
    fn visit_macro(&mut self, mac: &'ast Macro) {
        let name = mac.path.segments.last().map(|last| last.ident.to_string());
        self.0 |= name.is_none_or(|name| !HARMLESS.contains(&name.as_str()));
    }
}

/// Macros that hide neither, whatever their arguments are.
const HARMLESS: [&str; 12] = [
    "sync",
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "panic",
    "unreachable",
    "matches",
    "vec",
    "println",
];

/// True for a static, `BEST` or `bounds::BEST`.
fn is_static(receiver: &Expr) -> bool {
    let Expr::Path(path) = receiver else {
        return false;
    };
    let last = path.path.segments.last().map(|last| last.ident.to_string());
    last.is_some_and(|name| {
        name.chars().any(char::is_uppercase) && !name.chars().any(char::is_lowercase)
    })
}

/// For a mere `count += f(..)` (or `|=`, `&=`, `^=`) on a variable or its field: what asks the type of the place whether the
/// order of delivery matters. For unsigned numbers it does not.
pub fn of_delivery(
    site: &DeferredStatement,
    has_operands: bool,
    children: &[(Ident, TokenStream, bool)],
) -> Option<TokenStream> {
    let Expr::Binary(binary) = &site.deliver else {
        return None;
    };
    let method = match binary.op {
        BinOp::AddAssign(_) => quote!(sum),
        BinOp::BitOrAssign(_) | BinOp::BitAndAssign(_) | BinOp::BitXorAssign(_) => quote!(bits),
        _ => return None,
    };
    let is_mere = !has_operands
        && matches!(children, [(_, _, false)])
        && Marked::of(&binary.right).is_some()
        && is_variable(&binary.left);
    let place = &binary.left;
    is_mere.then(|| {
        quote!({
            use ::satin::__private::{Accumulate as _, AccumulateInOrder as _};
            (&::satin::__private::Place::of(&#place)).#method()
        })
    })
}

/// `count` or `self.stats.count`: looking at it does nothing.
fn is_variable(place: &Expr) -> bool {
    match place {
        Expr::Path(path) => path.path.get_ident().is_some(),
        Expr::Field(field) => is_variable(&field.base),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[test]
    fn a_search_is_told_from_a_count() {
        let count: Block = parse_quote!({
            let mut n = 0;
            for square in free.iter() {
                assert!(square < MOST);
                n += queens(square);
            }
            n
        });
        assert!(!matters(None, &count));
        assert!(matters(Some(OrderOption::Program), &count));
        let searches: [Block; 4] = [
            parse_quote!({
                if BEST.prunes(&bound) {
                    return 0;
                }
            }),
            parse_quote!({
                for at in 0..n {
                    sum += f(at, bounds::BEST.get());
                }
            }),
            parse_quote!({
                f(n)?;
            }),
            parse_quote!({
                sum += prune!(n);
            }),
        ];
        for search in searches {
            assert!(matters(None, &search));
            assert!(!matters(Some(OrderOption::Last), &search));
        }
    }
}
