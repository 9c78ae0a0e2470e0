//! `bound!`: statics that only improve.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{
    Attribute, Ident, Token, Type, Visibility,
    parse::{Parse, ParseStream},
    spanned::Spanned,
};

use crate::spawnable::hygienic_quote as quote;

/// The expansion of `bound! { bounds }`.
pub fn bound(bounds: TokenStream) -> TokenStream {
    match syn::parse2::<BoundItems>(bounds) {
        Ok(BoundItems(bounds)) => bounds.into_iter().map(BoundItem::into_tokens).collect(),
        Err(error) => error.into_compile_error(),
    }
}

struct BoundItems(Vec<BoundItem>);

/// `/// documentation`, `pub static NAME: Lattice;`
struct BoundItem {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: Ident,
    lattice: Type,
}

impl Parse for BoundItems {
    fn parse(input: ParseStream) -> syn::Result<BoundItems> {
        if input.is_empty() {
            return Err(syn::Error::new(
                Span::call_site(),
                "no bound: write `static NAME: Min<u64>;`",
            ));
        }
        let mut bounds = Vec::new();
        while !input.is_empty() {
            bounds.push(input.parse()?);
        }
        Ok(BoundItems(bounds))
    }
}

impl Parse for BoundItem {
    fn parse(input: ParseStream) -> syn::Result<BoundItem> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        if !input.peek(Token![static]) {
            return Err(input.error("a bound is a static: write `static NAME: Min<u64>;`"));
        }
        input.parse::<Token![static]>()?;
        if input.peek(Token![mut]) {
            return Err(input.error("a bound is not `mut`: jobs improve it by `NAME.offer(..)`"));
        }
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        let lattice = input.parse()?;
        if input.peek(Token![=]) {
            return Err(input.error(
                "a bound has no value to begin with: each root job starts it afresh, and may offer one first",
            ));
        }
        input.parse::<Token![;]>()?;
        Ok(BoundItem {
            attributes,
            visibility,
            name,
            lattice,
        })
    }
}

impl BoundItem {
    fn into_tokens(self) -> TokenStream {
        let BoundItem {
            attributes,
            visibility,
            name,
            lattice,
        } = self;
        let path = format!("::{name}");
        // Errors in the lattice are shown at its own tokens.
        let bound = quote_spanned!(lattice.span()=> ::satin::__private::Bound<#lattice>);
        let written = lattice.to_token_stream().to_string();
        quote! {
            #(#attributes)*
            #visibility static #name: #bound =
                ::satin::__private::Bound::new(::satin::__private::Info {
                    name: ::core::concat!(
                        ::core::env!("CARGO_PKG_NAME"), "@", ::core::env!("CARGO_PKG_VERSION"), " ", ::core::module_path!(), #path
                    ),
                    signature: #written,
                    file: ::core::file!(),
                    line: ::core::line!(),
                });
            ::satin::__private::inventory::submit! {
                ::satin::__private::BoundRegistration(&#name)
            }
        }
    }
}
