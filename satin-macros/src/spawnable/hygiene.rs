//! `quote!` for what the macro introduces.

/// Like [`quote::quote!`], but every name in it is one that the user's code cannot utter, nor hide.
macro_rules! quote {
    ($($tokens:tt)*) => {
        ::quote::quote_spanned!(::proc_macro2::Span::mixed_site()=> $($tokens)*)
    };
}
pub(crate) use quote;
