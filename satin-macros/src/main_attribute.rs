//! `#[satin::main]`

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{ItemFn, ReturnType};

use crate::spawnable::hygienic_quote as quote;

/// The expansion of `#[satin::main] item`.
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    match wrap(options, item) {
        Ok(main) => main.into_token_stream(),
        Err(error) => error.into_compile_error(),
    }
}

fn wrap(options: TokenStream, item: TokenStream) -> syn::Result<ItemFn> {
    if !options.is_empty() {
        return Err(syn::Error::new_spanned(options, "`#[satin::main]` has no options: configure the pool by `SATIN_*` variables or `satin.toml`"));
    }
    let mut main: ItemFn = syn::parse2(item)?;
    if let Some(argument) = main.sig.inputs.first() {
        return Err(syn::Error::new_spanned(argument, "`main` takes no arguments: read `std::env::args()`, or call `satin::run` in a plain `main`"));
    }
    if let Some(token) = &main.sig.asyncness {
        return Err(syn::Error::new_spanned(token, "`#[satin::main]` goes on a plain `fn main`: jobs block, they are not awaited"));
    }
    let body = &main.block;
    let output = match &main.sig.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, output) => output.to_token_stream(),
    };
    let wrapped = quote!({ ::satin::__private::main(|| -> #output #body) });
    *main.block = syn::parse2(wrapped)?;
    Ok(main)
}
