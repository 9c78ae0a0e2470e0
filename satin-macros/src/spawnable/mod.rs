//! `#[spawnable]`: parse -> analyse (where are spawns, where must a sync go) -> expand.
//!
//! | pass | file |
//! | --- | --- |
//! | read the item, refuse what cannot travel | `parse.rs`, `signature.rs` |
//! | mark the calls that spawn | `mark.rs` |
//! | refuse those in places where none may stand | `check.rs` |
//! | warn of loops that wait in each round | `waits.rs` |
//! | write iterator forms out as loops | `iterators.rs` |
//! | lower the body, statement by statement | `expand/` (blocks, statements, syncs, expressions, control flow), with `site.rs`, `escape.rs`, `mentions.rs`, `reborrow.rs`, `group.rs`, `order.rs` |
//! | the items around it | `items.rs`, `twin.rs`, `leaf.rs` |

mod check;
mod errors;
mod escape;
mod expand;
mod group;
mod guards;
mod hygiene;
mod items;
mod iterators;
mod leaf;
mod mark;
mod mentions;
mod order;
mod parse;
mod plain;
mod reborrow;
mod signature;
mod site;
mod twin;
mod waits;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::visit_mut::VisitMut;
use syn::{Block, Expr, ImplItemFn, Item, ItemFn, parse_quote};

use errors::Errors;
use items::Items;
use parse::{AttributeTarget, SpawnableFn, SpawnableOptions};

pub(crate) use hygiene::quote as hygienic_quote;
pub(crate) use mark::{rename_callee, rename_path, with_mention};

/// Prefix of the function that prepares a call for `spawn!`. Users read the name in the error of the compiler for
/// `use work::square; spawn!(square(i))`, and for functions without the attribute: the name says what to do.
pub(crate) const COMPANION: &str = "__not_spawnable_or_write_the_path__";
/// Prefix of the function that makes a task of a call, for `task!`.
pub(crate) const TASK: &str = "__task_not_spawnable_or_write_the_path__";
/// Prefix of the sequential twin.
const TWIN: &str = "__seq_not_spawnable_or_write_the_path__";
/// Prefix of all other items that an expansion makes. Other derives and macros begin their names with two underscores as well, and no name of
/// a local variable of theirs may be that of a static here.
const HIDDEN: &str = "__satin_";

/// The expansion of `#[spawnable(options)] item`.
pub fn spawnable(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let parsed = syn::parse2::<Item>(item.clone())
        .map_err(|error| errors.push(error))
        .ok();
    let options = syn::parse2::<SpawnableOptions>(options)
        .map_err(|error| errors.push(error))
        .unwrap_or_default();
    let expanded = parsed
        .and_then(|item| AttributeTarget::read(options, item, &mut errors))
        .map(|target| expand(target, &mut errors));
    match (errors.into_tokens(), expanded) {
        (None, Some(expanded)) => expanded,
        (errors, _) => {
            let stub = stub(item);
            quote!(#errors #stub)
        }
    }
}

fn expand(target: AttributeTarget, errors: &mut Errors) -> TokenStream {
    match target {
        AttributeTarget::Function(job) => {
            let Items { inside, outside } = expand_job(&job, errors);
            quote!(#inside #outside)
        }
        AttributeTarget::Impl(mut block, jobs) => {
            let items: Vec<Items> = jobs.iter().map(|job| expand_job(job, errors)).collect();
            let outside = items.iter().map(|items| &items.outside);
            let inside = items.iter().map(|items| &items.inside);
            block
                .items
                .push(syn::ImplItem::Verbatim(quote!(#(#inside)*)));
            quote!(#block #(#outside)*)
        }
    }
}

fn expand_job(job: &SpawnableFn, errors: &mut Errors) -> Items {
    let marked = mark::mark(job, errors);
    check::check(job, &marked.block, errors);
    let twin = twin::twin(job, &marked.block);
    let mut written_out = marked.block.clone();
    iterators::write_out(&mut written_out);
    let lowered = if errors.is_empty() {
        expand::lower(job, &written_out, errors)
    } else {
        TokenStream::new()
    };
    let lints: Vec<_> = job.lint_attrs().collect();
    let warnings = waits::warnings(&marked.block, &lints);
    let Items { inside, outside } = items::items(job, &marked, &twin, &lowered);
    Items {
        inside,
        outside: quote!(#outside #warnings),
    }
}

/// The item with empty bodies, so that neither its callers nor its statements are reported too.
fn stub(item: TokenStream) -> TokenStream {
    struct Empty;
    impl VisitMut for Empty {
        fn visit_item_fn_mut(&mut self, function: &mut ItemFn) {
            function.attrs.push(parse_quote!(#[allow(warnings)]));
            *function.block = nothing(&function.block);
        }
        fn visit_impl_item_fn_mut(&mut self, method: &mut ImplItemFn) {
            method.attrs.push(parse_quote!(#[allow(warnings)]));
            method.block = nothing(&method.block);
        }
    }
    fn nothing(instead_of: &Block) -> Block {
        let imported = mark::imported_macros(instead_of);
        parse_quote!({ #(use #imported as _;)* ::core::unreachable!() })
    }
    match syn::parse2::<Item>(plain(item.clone())) {
        Ok(mut item) => {
            Empty.visit_item_mut(&mut item);
            item.into_token_stream()
        }
        Err(_) => item,
    }
}

/// The expansion under the feature `serial`: the item without any of satin's attributes. A call from ordinary code begins
/// a sequential run, for which bounds start afresh.
pub fn serial(item: TokenStream) -> TokenStream {
    let begin = |block: &mut Block| {
        let begins = hygiene::quote!(let _run = ::satin::__private::Alone::begin(););
        *block = parse_quote!({ #begins #block });
    };
    let mut item = match syn::parse2::<Item>(item.clone()) {
        Ok(item) => item,
        Err(_) => return item,
    };
    match &mut item {
        Item::Fn(function) => begin(&mut function.block),
        Item::Impl(block) => {
            for method in parse::strip_spawn(block) {
                begin(&mut method.block);
            }
        }
        _ => {}
    }
    item.into_token_stream()
}

/// The item without any of satin's attributes.
fn plain(item: TokenStream) -> TokenStream {
    match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Impl(mut block)) => {
            parse::strip_spawn(&mut block);
            block.into_token_stream()
        }
        _ => item,
    }
}

/// The expansion of `seq!(f(x))` in ordinary code: a call of the sequential twin.
pub fn sequential(call: TokenStream) -> TokenStream {
    let renamed = syn::parse2::<Expr>(call).and_then(|call| {
        let mut renamed = call.clone();
        mark::rename_callee(&mut renamed, TWIN)?;
        Ok(with_mention(&call, renamed.into_token_stream()))
    });
    match renamed {
        // Within a job it is a part of that; elsewhere bounds start afresh for it.
        Ok(call) => hygiene::quote!({
            let _run = ::satin::__private::Alone::begin();
            #call
        }),
        Err(error) => error.into_compile_error(),
    }
}
