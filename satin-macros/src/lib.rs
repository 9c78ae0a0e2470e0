//! stub
use proc_macro::TokenStream;
use quote::ToTokens;
#[proc_macro_attribute] #[allow(missing_docs)] pub fn spawnable(_a: TokenStream, item: TokenStream) -> TokenStream {
    match syn::parse::<syn::ItemImpl>(item.clone()) { Ok(mut i) => { for it in &mut i.items { if let syn::ImplItem::Fn(f) = it { f.attrs.retain(|a| !a.path().is_ident("spawn")) } } i.into_token_stream().into() } Err(_) => item }
}
#[proc_macro] #[allow(missing_docs)] pub fn spawn(i: TokenStream) -> TokenStream { i }
#[proc_macro] #[allow(missing_docs)] pub fn call(i: TokenStream) -> TokenStream { i }
#[proc_macro] #[allow(missing_docs)] pub fn seq(i: TokenStream) -> TokenStream { i }
#[proc_macro] #[allow(missing_docs)] pub fn sync(_: TokenStream) -> TokenStream { "()".parse().unwrap() }
#[proc_macro_attribute] #[allow(missing_docs)] pub fn main(_a: TokenStream, item: TokenStream) -> TokenStream { item }
