//! The macros of [satin](https://docs.rs/satin): use them through that crate.
#![cfg_attr(feature = "serial", allow(dead_code, unused_imports))]

mod main_attribute;
mod spawnable;

use proc_macro::TokenStream;

/// Makes calls of this function to itself run in parallel, on every core of every machine of the pool.
#[proc_macro_attribute]
pub fn spawnable(options: TokenStream, item: TokenStream) -> TokenStream {
    if cfg!(feature = "serial") { spawnable::plain(item.into()).into() } else { spawnable::spawnable(options.into(), item.into()).into() }
}

/// Runs `main` on the pool.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    if cfg!(feature = "serial") { item } else { main_attribute::main(options.into(), item.into()).into() }
}

/// Spawns.
#[proc_macro]
pub fn spawn(call: TokenStream) -> TokenStream {
    outside("spawn!(..)", call)
}

/// Calls.
#[proc_macro]
pub fn call(call: TokenStream) -> TokenStream {
    outside("call!(..)", call)
}

/// Runs in sequence.
#[proc_macro]
pub fn seq(call: TokenStream) -> TokenStream {
    if cfg!(feature = "serial") { call } else { spawnable::sequential(call.into()).into() }
}

/// Waits.
#[proc_macro]
pub fn sync(nothing: TokenStream) -> TokenStream {
    if cfg!(feature = "serial") { "()".parse().expect("it is an expression") } else { outside("sync!()", nothing) }
}

fn outside(what: &str, call: TokenStream) -> TokenStream {
    if cfg!(feature = "serial") {
        return call;
    }
    let message = format!("`{what}` works in a `#[spawnable]` function only, and there not inside another macro");
    syn::Error::new(proc_macro2::Span::call_site(), message).into_compile_error().into()
}
