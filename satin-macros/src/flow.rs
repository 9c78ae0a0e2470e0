//! `flow!`: a closure whose tasks run as their data are there.

use proc_macro2::TokenStream;
use syn::Expr;

use crate::in_place::Standing;
use crate::loops::{expressions, misuse, without_groups};
use crate::spawnable::hygienic_quote as quote;

const USAGE: &str = "`flow!` takes a closure: `flow!(|g| { let x = task!(g, f(1)); g.take(x) })`";

/// A flow as it was written.
pub struct Flow {
    closure: Expr,
}

impl Flow {
    /// Reads the argument of the macro.
    pub fn parse(arguments: TokenStream) -> syn::Result<Flow> {
        let mut given = expressions(arguments.clone())?;
        match given.pop() {
            Some(closure)
                if given.is_empty() && matches!(without_groups(&closure), Expr::Closure(_)) =>
            {
                Ok(Flow { closure })
            }
            _ => Err(misuse(arguments, USAGE)),
        }
    }

    /// The flow, in the place of the macro. A sequential twin has workers all the same; a program without spawns has none.
    pub fn expand(&self, standing: Standing) -> TokenStream {
        let closure = &self.closure;
        match standing {
            Standing::Sequential("") => quote!(::satin::__private::seq_flow(#closure)),
            Standing::Outside | Standing::Sequential(_) => {
                quote!(::satin::__private::flow(#closure, |flow| ::satin::__private::enter(flow)))
            }
            Standing::InJob => {
                quote!(::satin::__private::flow(#closure, |flow| scope.call(flow)))
            }
        }
    }
}
