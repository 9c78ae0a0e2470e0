//! `task!`: a call in a flow, as a task.
//!
//! `task!(g, m::f(rw(a), r(b), 3))` calls what `#[spawnable]` has made beside `f` for this, with the flow as one more argument. In a
//! program without spawns it is the call itself, with the values in the places of the handles.

use proc_macro2::{Ident, Span, TokenStream};
use quote::format_ident;
use syn::{
    Expr, ExprCall, Token,
    parse::{Parse, ParseStream},
    spanned::Spanned,
};

use crate::spawnable::{TASK, hygienic_quote as quote, rename_callee};

const USAGE: &str = "`task!` takes the flow and a call of a spawnable function: `task!(g, f(rw(a), r(b), 3))`, `task!(g, module::f(3))`, \
    `task!(g, Type::method(r(value)))`";

/// A task as it was written.
struct Task {
    flow: Expr,
    call: ExprCall,
}

impl Parse for Task {
    fn parse(input: ParseStream<'_>) -> syn::Result<Task> {
        let usage = |span: Span| syn::Error::new(span, USAGE);
        if input.is_empty() {
            return Err(usage(input.span()));
        }
        let flow: Expr = input.parse()?;
        if input.is_empty() {
            return Err(usage(flow.span()));
        }
        input.parse::<Token![,]>()?;
        let call: Expr = input.parse()?;
        input.parse::<Option<Token![,]>>()?;
        match call {
            Expr::Call(call) if input.is_empty() => Ok(Task { flow, call }),
            Expr::MethodCall(call) => Err(syn::Error::new_spanned(
                call,
                "a method is called by its path in a task: `task!(g, Type::method(r(value), ..))`, as the value is that of a handle",
            )),
            other => Err(usage(other.span())),
        }
    }
}

/// The expansion of the macro.
pub fn expand(arguments: TokenStream, is_serial: bool) -> TokenStream {
    syn::parse2::<Task>(arguments)
        .and_then(|task| match is_serial {
            true => Ok(task.in_place()),
            false => task.made(),
        })
        .unwrap_or_else(syn::Error::into_compile_error)
}

impl Task {
    fn made(self) -> syn::Result<TokenStream> {
        let Task { flow, mut call } = self;
        call.args.insert(0, syn::parse_quote!(#flow));
        let mut call = Expr::Call(call);
        rename_callee(&mut call, TASK)?;
        Ok(quote!(#call))
    }

    /// The call where it stands.
    fn in_place(self) -> TokenStream {
        let Task { flow, call } = self;
        let function = &call.func;
        let name = |at: usize| format_ident!("argument{at}", span = Span::mixed_site());
        let names: Vec<Ident> = (0..call.args.len()).map(name).collect();
        let is_handle: Vec<bool> = call.args.iter().map(is_handle).collect();
        let of_handles = || {
            names
                .iter()
                .zip(&is_handle)
                .filter(|(_, is)| **is)
                .map(|(name, _)| name)
        };
        let (open, close) = (of_handles(), of_handles());
        let arguments = call.args.iter();
        // Bound when all arguments have been evaluated, as those of a task are.
        let bind = names.iter().zip(&is_handle).map(|(name, is)| match is {
            true => quote!(#name.bind(flow)),
            false => quote!(#name),
        });
        let given = names.iter().zip(&is_handle).map(|(name, is)| match is {
            true => quote!(#name.value()),
            false => quote!(#name),
        });
        quote! {{
            let flow: &::satin::__private::Flow<'_> = #flow;
            let (#(#names,)*) = (#(#arguments,)*);
            #[allow(unused_mut)]
            let (#(mut #names,)*) = (#(#bind,)*);
            #(#open.open(flow);)*
            let result = #function(#(#given),*);
            #(#close.close();)*
            flow.data(result)
        }}
    }
}

/// Is the argument `r(..)`, `rw(..)`, `acc(..)` or `many(..)`?
fn is_handle(argument: &Expr) -> bool {
    let Expr::Call(call) = argument else {
        return false;
    };
    let Expr::Path(path) = &*call.func else {
        return false;
    };
    let name = path.path.segments.last().map(|last| &last.ident);
    name.is_some_and(|name| ["r", "rw", "acc", "many"].iter().any(|mode| name == mode))
}
