//! Collects errors, so that a user sees all of them at once.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The errors that were found so far.
#[derive(Default)]
pub struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds an error to the others.
    pub fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            none => *none = Some(error),
        }
    }

    /// Adds an error that underlines `tokens`.
    pub fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds an error that underlines `span`.
    pub fn at_span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// The `compile_error!`s, if there is anything to complain about.
    pub fn into_tokens(self) -> Option<TokenStream> {
        self.0.map(|errors| errors.into_compile_error())
    }

    /// Whether nothing was found wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
