//! The items that a spawnable function becomes: itself, its lowered body, its twin, its companion, its entry in the registry.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident};
use syn::{Attribute, Block, Expr, Lifetime, Path, Receiver, Type, TypeReference};

use super::hygiene::quote;
use super::leaf::{self, count_tokens};
use super::mark::{Marked, MarkedBody, Verb};
use super::parse::SpawnableFn;
use super::plain;
use super::signature::{ArgumentKind, with_lifetime, without_self};
use syn::visit::{self, Visit};

/// The most copies of a body, and the most tokens in all of them, that are expanded into one another.
const MOST_COPIES: usize = 8;
const MOST_TOKENS: usize = 500;

/// A job's items: those beside the function (or `impl` block), and those in its place.
pub struct Items {
    /// Types and statics: outside an `impl` block.
    pub outside: TokenStream,
    /// Functions: inside the `impl` block, if there is one.
    pub inside: TokenStream,
}

impl SpawnableFn {
    /// The type that stands for the function in the runtime.
    pub fn marker(&self) -> Ident {
        self.hidden("job")
    }

    /// The name of the sequential twin.
    pub fn twin(&self) -> Ident {
        format_ident!("{}{}", super::TWIN, self.name, span = Span::mixed_site())
    }

    /// `__satin_job_fib`, or `__satin_job_Board_solve` for a method: an item outside the `impl` block.
    fn hidden(&self, what: &str) -> Ident {
        match self.type_name() {
            Some(of) => self.inner(&format!("{what}_{of}")),
            None => self.inner(what),
        }
    }

    fn inner(&self, what: &str) -> Ident {
        let (prefix, span) = (super::HIDDEN, Span::mixed_site());
        format_ident!("{}{}_{}", prefix, what, self.name, span = span)
    }

    /// The path of one of the functions: `__satin_body_fib`, `<Board>::__satin_body_solve`.
    fn path_of(&self, function: &Ident) -> TokenStream {
        match &self.self_type {
            Some(of) => quote!(<#of>::#function),
            None => quote!(#function),
        }
    }

    /// Every argument by name, `self` first.
    fn arguments(&self) -> Vec<TokenStream> {
        let receiver = self
            .receiver
            .as_ref()
            .map(|receiver| receiver.self_token.to_token_stream());
        receiver
            .into_iter()
            .chain(self.params.iter().map(|param| param.name.to_token_stream()))
            .collect()
    }

    /// Every argument's type, the receiver's first.
    fn argument_types(&self) -> Vec<Type> {
        let spelled = |ty: &Type| without_self(ty, self.self_type.as_ref());
        let receiver = self
            .receiver
            .iter()
            .zip(&self.self_type)
            .map(|(receiver, of)| match &receiver.reference {
                None => of.clone(),
                Some((and_token, _)) => Type::Reference(TypeReference {
                    and_token: *and_token,
                    lifetime: None,
                    mutability: receiver.mutability,
                    elem: Box::new(of.clone()),
                }),
            });
        receiver
            .chain(self.params.iter().map(|param| spelled(&param.ty)))
            .collect()
    }

    /// `n: u32, xs: &[T]`, with `mut` where the body wants it.
    fn body_params(&self) -> Vec<TokenStream> {
        self.params
            .iter()
            .map(|param| {
                let (mutability, name, ty) = (&param.mutability, &param.name, &param.ty);
                quote!(#mutability #name: #ty)
            })
            .collect()
    }

    /// The receiver as the body has it, with its comma.
    fn body_receiver(&self) -> Option<TokenStream> {
        self.receiver.as_ref().map(|receiver| quote!(#receiver,))
    }

    /// The attributes that the hidden copies of the body need too: lint levels.
    pub fn lint_attrs(&self) -> impl Iterator<Item = &Attribute> {
        self.attrs.iter().filter(|attr| {
            ["allow", "warn", "deny", "forbid", "expect"]
                .iter()
                .any(|level| attr.path().is_ident(level))
        })
    }
}

/// All items that `job` becomes. `marked` is its body with the calls marked, `lowered` the body that the runtime is to
/// run.
pub fn items(job: &SpawnableFn, marked: &MarkedBody, twin: &Block, lowered: &TokenStream) -> Items {
    let (public, twin, companion, task) = (
        public(job, &marked.imported),
        twin_function(job, twin),
        companion(job),
        task(job),
    );
    let (entry, body) = bodies(job, &marked.block, lowered);
    let start = start(job, &marked.block);
    Items {
        inside: quote!(#public #start #entry #body #twin #companion #task),
        outside: registration(job),
    }
}

/// The function under its own name, as ordinary code calls it: a root job.
fn public(job: &SpawnableFn, imported: &[Path]) -> TokenStream {
    let SpawnableFn { attrs, vis, .. } = job;
    let mut sig = job.sig.clone();
    for (input, param) in sig.inputs.iter_mut().filter_map(typed).zip(&job.params) {
        let name = &param.name;
        *input.pat = syn::parse_quote!(#name);
    }
    if let Some(syn::FnArg::Receiver(Receiver {
        reference: None,
        mutability,
        ..
    })) = sig.inputs.first_mut()
    {
        *mutability = None;
    }
    let (marker, arguments) = (job.marker(), job.arguments());
    // The runtime tells where a call waits although it need not.
    let tracked = !attrs
        .iter()
        .any(|attr| attr.path().is_ident("track_caller"));
    let track_caller = tracked.then(|| quote!(#[track_caller]));
    quote! {
        #(#attrs)*
        #track_caller
        #vis #sig {
            #(use #imported as _;)*
            ::satin::__private::enter(::satin::__private::Call::<#marker<::satin::__private::U0>>::new((#(#arguments,)*)))
        }
    }
}

fn typed(input: &mut syn::FnArg) -> Option<&mut syn::PatType> {
    match input {
        syn::FnArg::Typed(typed) => Some(typed),
        syn::FnArg::Receiver(_) => None,
    }
}

/// The body that spawns, which may be expanded into itself, and the one place where that recursion starts over.
fn bodies(job: &SpawnableFn, marked: &Block, lowered: &TokenStream) -> (TokenStream, TokenStream) {
    let (entry, body) = (job.inner("entry"), job.inner("body"));
    let (receiver, params, output) = (job.body_receiver(), job.body_params(), &job.output);
    let entry_params = job.params.iter().map(|param| {
        let (name, ty) = (&param.name, &param.ty);
        quote!(#name: #ty)
    });
    let names = job.params.iter().map(|param| &param.name);
    let of = job.self_type.as_ref().map(|_| quote!(Self::));
    let self_argument = job.receiver.as_ref().map(|receiver| {
        let token = receiver.self_token;
        quote!(#token,)
    });
    let entry_receiver = job.receiver.as_ref().map(|receiver| {
        let mut receiver = receiver.clone();
        if receiver.reference.is_none() {
            receiver.mutability = None;
        }
        quote!(#receiver,)
    });
    let level = format_ident!("U{}", unroll_level(marked), span = Span::mixed_site());
    let sequential = job.options.sequential_if.as_ref().map(|condition| {
        let (twin, arguments) = (job.twin(), job.arguments());
        quote!(if #condition { return #of #twin(#(#arguments),*); })
    });
    let lints: Vec<&Attribute> = job.lint_attrs().collect();
    let entry = quote! {
        #[doc(hidden)]
        #[inline(never)]
        fn #entry(#entry_receiver cx: ::satin::__private::Cx, index: u32, #(#entry_params),*) -> #output {
            #of #body::<::satin::__private::#level>(#self_argument cx, index, #(#names),*)
        }
    };
    let body = quote! {
        #(#lints)*
        #[doc(hidden)]
        #[inline(always)]
        #[allow(warnings, clippy::all)]
        fn #body<L: ::satin::__private::Unroll>(#receiver cx: ::satin::__private::Cx, index: u32, #(#params),*) -> #output {
            #sequential
            #lowered
        }
    };
    (entry, body)
}

/// The beginning of the body. Where the expansion into itself ends, the tests by which most invocations end stand in the
/// caller: a leaf costs no call.
///
/// The tests are repeated in the body, so only conditions that may be evaluated twice come in question.
fn start(job: &SpawnableFn, marked: &Block) -> TokenStream {
    let (start, entry) = (job.inner("start"), job.inner("entry"));
    let (receiver, params, output) = (job.body_receiver(), job.body_params(), &job.output);
    let names = job.params.iter().map(|param| &param.name);
    let of = job.self_type.as_ref().map(|_| quote!(Self::));
    let self_argument = job.receiver.as_ref().map(|receiver| {
        let token = receiver.self_token;
        quote!(#token,)
    });
    let leaves = leaf::tests(job, marked);
    quote! {
        #[doc(hidden)]
        #[inline(always)]
        #[allow(warnings, clippy::all)]
        fn #start(#receiver cx: ::satin::__private::Cx, index: u32, #(#params),*) -> #output {
            #(#leaves)*
            #of #entry(#self_argument cx, index, #(#names),*)
        }
    }
}

fn twin_function(job: &SpawnableFn, body: &Block) -> TokenStream {
    let (vis, twin, output) = (&job.vis, job.twin(), &job.output);
    let (receiver, params) = (job.body_receiver(), job.body_params());
    let lints = job.lint_attrs();
    quote! {
        #(#lints)*
        #[doc(hidden)]
        #[allow(
            dead_code,
            non_snake_case,
            // Clippy's shorter forms do not spawn.
            clippy::let_and_return,
            clippy::needless_late_init,
            clippy::redundant_closure,
            clippy::vec_init_then_push,
        )]
        #vis fn #twin(#receiver #(#params),*) -> #output #body
    }
}

/// The function that `spawn!(fib(n))` in another function calls. The companion has the function's own visibility, while
/// the marker stays private.
fn companion(job: &SpawnableFn) -> TokenStream {
    let name = format_ident!(
        "{}{}",
        super::COMPANION,
        job.name,
        span = Span::mixed_site()
    );
    let lifetime = Lifetime::new("'s", Span::mixed_site());
    let receiver = job.receiver.as_ref().map(|receiver| {
        let (token, mutability) = (receiver.self_token, &receiver.mutability);
        match &receiver.reference {
            Some(_) => quote!(&#lifetime #mutability #token,),
            None => quote!(#token,),
        }
    });
    let params = job.params.iter().map(|param| {
        let (name, ty) = (&param.name, with_lifetime(&param.ty, &lifetime));
        quote!(#name: #ty)
    });
    let (vis, output, marker, arguments) = (&job.vis, &job.output, job.marker(), job.arguments());
    quote! {
        #[doc(hidden)]
        #[allow(dead_code, non_snake_case, private_interfaces, clippy::all)]
        #vis fn #name<#lifetime>(#receiver #(#params),*) -> impl ::satin::__private::Prepared<#lifetime, Out = #output> + use<#lifetime> {
            ::satin::__private::Call::<#marker<::satin::__private::U0>>::new((#(#arguments,)*))
        }
    }
}

/// The function that `task!(g, fib(n))` calls: it takes handles where the function borrows.
fn task(job: &SpawnableFn) -> TokenStream {
    let name = format_ident!("{}{}", super::TASK, job.name, span = Span::mixed_site());
    let of_flow = Lifetime::new("'g", Span::mixed_site());
    let types = job.argument_types();
    // Those of the function: the compiler names an argument that is missing.
    let receiver = (job.receiver.iter()).map(|_| format_ident!("value", span = Span::mixed_site()));
    let params = job.params.iter().map(|param| param.name.clone());
    let names: Vec<Ident> = receiver.chain(params).collect();
    let of_argument = |(name, ty): (&Ident, &Type)| match ArgumentKind::of(ty) {
        ArgumentKind::Value(ty) => (
            quote!(#name: #ty),
            quote!(::satin::__private::Given::new(#name)),
        ),
        ArgumentKind::Ref(ty) => (
            quote!(#name: impl ::satin::__private::Reads<#of_flow, #ty>),
            quote!(::satin::__private::Reads::<#of_flow, #ty>::read(#name, flow)),
        ),
        ArgumentKind::Mut(ty) => (
            quote!(#name: impl ::satin::__private::Changes<#of_flow, #ty>),
            quote!(::satin::__private::Changes::<#of_flow, #ty>::change(#name, flow)),
        ),
        ArgumentKind::MutSlice(ty) => (
            quote!(#name: impl ::satin::__private::ChangesAll<#of_flow, #ty>),
            quote!(::satin::__private::ChangesAll::<#of_flow, #ty>::change_all(#name, flow)),
        ),
    };
    let (params, parts): (Vec<_>, Vec<_>) = names.iter().zip(&types).map(of_argument).unzip();
    let (vis, marker) = (&job.vis, job.marker());
    let output = without_self(&job.output, job.self_type.as_ref());
    quote! {
        #[doc(hidden)]
        #[allow(dead_code, non_snake_case, private_interfaces, private_bounds, clippy::all)]
        #vis fn #name<#of_flow>(flow: &::satin::__private::Flow<#of_flow>, #(#params),*) -> ::satin::__private::Handle<#of_flow, #output> {
            flow.task::<#marker<::satin::__private::U0>, _>((#(#parts,)*))
        }
    }
}

/// The marker type, and what tells the runtime that the function exists.
fn registration(job: &SpawnableFn) -> TokenStream {
    let (marker, vtable) = (job.marker(), job.hidden("vtable"));
    let types = job.argument_types();
    let unrolled = quote!(#marker<::satin::__private::U0>);
    let numbered = || types.iter().map(ArgumentKind::of).enumerate();
    let kinds = numbered().map(|(at, kind)| kind.tokens(&unrolled, at));
    let declarations = numbered().map(|(at, kind)| kind.declaration(&unrolled, at));
    let output = without_self(&job.output, job.self_type.as_ref());
    let names: Vec<Ident> = (0..types.len())
        .map(|at| format_ident!("a{}", at, span = Span::mixed_site()))
        .collect();
    let (start, body) = (
        job.path_of(&job.inner("start")),
        job.path_of(&job.inner("body")),
    );
    let (first, others): (Vec<&Ident>, Vec<&Ident>) =
        names
            .iter()
            .enumerate()
            .fold(Default::default(), |(mut first, mut others), (at, name)| {
                if at == 0 && job.receiver.is_some() {
                    first.push(name)
                } else {
                    others.push(name)
                }
                (first, others)
            });
    let name = stable_name(job);
    let signature = signature_text(&types, &output);
    let plain = plain::look(types.iter().chain([&output]));
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types)]
        struct #marker<L>(::core::marker::PhantomData<L>);

        #(#declarations)*

        unsafe impl<L: ::satin::__private::Unroll> ::satin::__private::Function for #marker<L> {
            type Kinds = (#(#kinds,)*);
            type Out = #output;
            const VTABLE: &'static ::satin::__private::VTable = &#vtable;

            #[inline(always)]
            fn call(cx: ::satin::__private::Cx, index: u32, (#(#names,)*): ::satin::__private::Args<'_, Self>) -> #output {
                if L::LAST {
                    #start(#(#first,)* cx, index, #(#others),*)
                } else {
                    #body::<L::Next>(#(#first,)* cx, index, #(#others),*)
                }
            }
        }

        #[doc(hidden)]
        #[allow(non_upper_case_globals)]
        static #vtable: ::satin::__private::VTable = ::satin::__private::VTable::of::<#marker<::satin::__private::U0>>(::satin::__private::Info {
            name: #name,
            signature: #signature,
            file: ::core::file!(),
            line: ::core::line!(),
        });

        ::satin::__private::inventory::submit! { ::satin::__private::Registration(&#vtable) }

        #plain
    }
}

/// The name by which other nodes know the function.
fn stable_name(job: &SpawnableFn) -> TokenStream {
    if let Some(name) = &job.options.name {
        return name.to_token_stream();
    }
    let of = job
        .self_type
        .as_ref()
        .map(|of| format!("{}::", of.to_token_stream()))
        .unwrap_or_default();
    let name = format!("::{of}{}", job.name);
    quote!(
        ::core::concat!(::core::env!("CARGO_PKG_NAME"), "@", ::core::env!("CARGO_PKG_VERSION"), " ", ::core::module_path!(), #name)
    )
}

/// `(u32, &[T]) -> u64`: two builds that differ in it do not join the same pool.
fn signature_text(types: &[Type], output: &Type) -> String {
    let types: Vec<String> = types
        .iter()
        .map(|ty| ty.to_token_stream().to_string())
        .collect();
    format!("({}) -> {}", types.join(", "), output.to_token_stream())
}

/// How often the body is expanded into itself: LLVM does not inline recursion, and a small body is mostly the price
/// of its calls.
fn unroll_level(marked: &Block) -> usize {
    struct OwnCalls(usize);
    impl<'ast> Visit<'ast> for OwnCalls {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            let own = Marked::of(expr).is_some_and(|mark| {
                matches!(mark.verb, Verb::Spawn | Verb::Call)
                    && matches!(mark.callee, super::mark::Callee::Own(_))
            });
            self.0 += usize::from(own);
            visit::visit_expr(self, expr);
        }
    }
    let mut calls = OwnCalls(0);
    calls.visit_block(marked);
    let tokens = count_tokens(marked.to_token_stream());
    let copies = |level: u32| {
        (0..=level)
            .map(|depth| calls.0.saturating_pow(depth))
            .fold(0, usize::saturating_add)
    };
    let affordable = |level: &u32| {
        copies(*level) <= MOST_COPIES && tokens.saturating_mul(copies(*level)) <= MOST_TOKENS
    };
    (1..=2).rev().find(affordable).unwrap_or(0) as usize
}
