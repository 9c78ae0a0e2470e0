//! The signatures that are spawnable, and how each argument travels.

use proc_macro2::{Ident, Span, TokenStream};
use quote::format_ident;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    FnArg, GenericParam, Lifetime, Pat, PatIdent, PatType, Receiver, ReturnType, Signature, Token,
    Type, TypeReference,
};

use super::errors::Errors;
use super::hygiene::quote;

/// The most arguments that a job may have, the receiver included.
const MOST_ARGUMENTS: usize = 12;

/// An argument, such as `mut n: u32`.
pub struct Param {
    /// `mut`, if the body may change it.
    pub mutability: Option<Token![mut]>,
    /// The argument's name.
    pub name: Ident,
    /// The argument's type, without the lifetime of an outermost `&`.
    pub ty: Type,
}

/// How an argument travels, by the tokens of its type: the compiler could not tell `&T` from a `T` that is a reference.
pub enum ArgumentKind<'t> {
    /// Moved; serialized for another node.
    Value(&'t Type),
    /// Borrowed (`T` may be a slice, `str`, `Path`); serialized from the borrow.
    Ref(&'t Type),
    /// Lent; another node's changes are copied back.
    Mut(&'t Type),
    /// A lent slice, by the type of its elements.
    MutSlice(&'t Type),
}

impl<'t> ArgumentKind<'t> {
    /// The kind of an argument of this type.
    pub fn of(ty: &'t Type) -> ArgumentKind<'t> {
        match ty {
            Type::Paren(inner) => ArgumentKind::of(&inner.elem),
            Type::Group(inner) => ArgumentKind::of(&inner.elem),
            Type::Reference(TypeReference {
                mutability, elem, ..
            }) => match (mutability.is_some(), &**elem) {
                (true, Type::Slice(slice)) => ArgumentKind::MutSlice(&slice.elem),
                (false, of) => ArgumentKind::Ref(of),
                (true, of) => ArgumentKind::Mut(of),
            },
            of => ArgumentKind::Value(of),
        }
    }

    /// Whether the argument is lent to the job, to be changed.
    pub fn is_lent(&self) -> bool {
        matches!(self, ArgumentKind::Mut(_) | ArgumentKind::MutSlice(_))
    }

    /// The kind of argument number `at` of the function that `marker` stands for.
    pub fn tokens(&self, marker: &TokenStream, at: usize) -> TokenStream {
        let name = match self {
            ArgumentKind::Value(_) => quote!(Value),
            ArgumentKind::Ref(_) => quote!(Ref),
            ArgumentKind::Mut(_) => quote!(Mut),
            ArgumentKind::MutSlice(_) => quote!(MutSlice),
        };
        quote!(::satin::__private::#name<#marker, #at>)
    }

    /// States the argument's type, once: a type that cannot travel is reported there, where it was written.
    pub fn declaration(&self, marker: &TokenStream, at: usize) -> TokenStream {
        let (name, ty) = match self {
            ArgumentKind::Ref(ty) => (quote!(BorrowedArgument), ty),
            ArgumentKind::Value(ty) | ArgumentKind::Mut(ty) | ArgumentKind::MutSlice(ty) => {
                (quote!(Argument), ty)
            }
        };
        quote! {
            impl ::satin::__private::#name<#at> for #marker {
                type Type = #ty;
            }
        }
    }
}

/// Whether a result of this type may be a failure, as far as can be told from its name.
pub fn may_fail(ty: &Type) -> bool {
    const NEVER: [&str; 19] = [
        "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
        "f32", "f64", "bool", "char", "String", "Vec", "Box",
    ];
    match ty {
        Type::Paren(inner) => may_fail(&inner.elem),
        Type::Group(inner) => may_fail(&inner.elem),
        Type::Tuple(_) | Type::Array(_) => false,
        Type::Path(path) => match path.path.segments.first() {
            Some(only) if path.path.segments.len() == 1 => {
                !NEVER.iter().any(|name| only.ident == name)
            }
            _ => true,
        },
        _ => true,
    }
}

/// The arguments after the receiver.
pub fn params(sig: &Signature, errors: &mut Errors) -> Vec<Param> {
    let typed = sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    let numbered = typed.enumerate();
    numbered
        .filter_map(|(at, typed)| param(at, typed, errors))
        .collect()
}

fn param(at: usize, PatType { pat, ty, .. }: &PatType, errors: &mut Errors) -> Option<Param> {
    match &**pat {
        Pat::Ident(PatIdent {
            by_ref: None,
            mutability,
            ident,
            subpat: None,
            ..
        }) => Some(Param {
            mutability: *mutability,
            name: ident.clone(),
            ty: elided(ty),
        }),
        Pat::Wild(wild) => Some(Param {
            mutability: None,
            name: format_ident!("_unused{}", at, span = wild.underscore_token.span()),
            ty: elided(ty),
        }),
        pat => {
            errors.at(pat, "an argument of a spawnable function needs a plain name: take it whole and write `let (a, b) = pair;` in the body");
            None
        }
    }
}

/// The type without the lifetime of its outermost `&`, which is the spawn's to choose.
fn elided(ty: &Type) -> Type {
    let mut ty = ty.clone();
    if let Type::Reference(reference) = &mut ty {
        reference.lifetime = None;
    }
    ty
}

/// The type with `lifetime` on its outermost `&`.
pub fn with_lifetime(ty: &Type, lifetime: &Lifetime) -> Type {
    let mut ty = ty.clone();
    if let Type::Reference(reference) = &mut ty {
        reference.lifetime = Some(lifetime.clone());
    }
    ty
}

/// The type with `Self` spelled out, for items outside the `impl` block.
pub fn without_self(ty: &Type, self_type: Option<&Type>) -> Type {
    struct SpellOut<'t>(&'t Type);
    impl VisitMut for SpellOut<'_> {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            match ty {
                Type::Path(path) if path.path.is_ident("Self") => *ty = self.0.clone(),
                _ => visit_mut::visit_type_mut(self, ty),
            }
        }
    }
    let mut ty = ty.clone();
    if let Some(self_type) = self_type {
        SpellOut(self_type).visit_type_mut(&mut ty);
    }
    ty
}

/// Complains about everything that a job's signature cannot have.
pub fn check(sig: &Signature, errors: &mut Errors) {
    check_qualifiers(sig, errors);
    for param in &sig.generics.params {
        match param {
            GenericParam::Lifetime(lifetime) if lifetime.bounds.is_empty() => {}
            other => errors.at(other, "a spawnable function cannot be generic, since other nodes find it by its name: write it for a concrete type"),
        }
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.at(
            clause,
            "a spawnable function cannot have a `where` clause: write it for concrete types",
        );
    }
    if sig.inputs.len() > MOST_ARGUMENTS {
        errors.at(&sig.inputs[MOST_ARGUMENTS], format!("a spawnable function has at most {MOST_ARGUMENTS} arguments: gather some in a struct"));
    }
    for input in &sig.inputs {
        match input {
            FnArg::Receiver(receiver) => check_receiver(receiver, errors),
            FnArg::Typed(typed) => check_argument(&typed.ty, errors),
        }
    }
    if let ReturnType::Type(_, output) = &sig.output {
        check_output(output, errors);
    }
}

fn check_qualifiers(sig: &Signature, errors: &mut Errors) {
    let instead = "remove it, and put what needs it in a function that this one calls";
    if let Some(token) = &sig.constness {
        errors.at(
            token,
            format!("a spawnable function cannot be `const`: {instead}"),
        );
    }
    if let Some(token) = &sig.asyncness {
        errors.at(token, format!("a spawnable function cannot be `async`, jobs run to their end on a worker: {instead}"));
    }
    if let Some(token) = &sig.unsafety {
        errors.at(token, format!("a spawnable function cannot be `unsafe`, nobody could keep its contract on another node: {instead}"));
    }
    if let Some(token) = &sig.abi {
        errors.at(
            token,
            format!("a spawnable function cannot be `extern`: {instead}"),
        );
    }
}

fn check_receiver(receiver: &Receiver, errors: &mut Errors) {
    if receiver.colon_token.is_some() {
        errors.at(
            receiver,
            "a spawnable method takes `self`, `&self` or `&mut self`",
        );
    }
    if let Some((_, Some(lifetime))) = &receiver.reference {
        check_lifetime(lifetime, errors);
    }
}

fn check_lifetime(lifetime: &Lifetime, errors: &mut Errors) {
    if lifetime.ident == "static" {
        errors.at(lifetime, "a job borrows its arguments until the sync, not for `'static`: write `&T`, or pass the value itself");
    }
}

fn check_argument(ty: &Type, errors: &mut Errors) {
    let inner = match ty {
        Type::Reference(TypeReference { lifetime, elem, .. }) => {
            if let Some(lifetime) = lifetime {
                check_lifetime(lifetime, errors);
            }
            elem
        }
        ty => ty,
    };
    if let Type::Reference(mutable) = ty
        && mutable.mutability.is_some()
        && matches!(&*mutable.elem, Type::Path(path) if path.path.is_ident("str"))
    {
        errors.at(
            ty,
            "`&mut str` cannot be sent to another node: take a `&mut String`",
        );
        return;
    }
    Refuse {
        errors,
        what: "an argument",
    }
    .visit_type(inner);
}

fn check_output(ty: &Type, errors: &mut Errors) {
    Refuse {
        errors,
        what: "a result",
    }
    .visit_type(ty);
}

/// Complains about what cannot stand inside a type that travels.
struct Refuse<'a> {
    errors: &'a mut Errors,
    what: &'static str,
}

impl Refuse<'_> {
    fn at(&mut self, span: Span, message: &str) {
        self.errors.at_span(
            span,
            format!("{} of a spawnable function {message}", self.what),
        );
    }
}

impl<'ast> Visit<'ast> for Refuse<'_> {
    fn visit_type(&mut self, ty: &'ast Type) {
        match ty {
            Type::ImplTrait(_) => self.at(ty.span(), "cannot be an `impl Trait`: name the type"),
            Type::TraitObject(_) => self.at(ty.span(), "cannot be a trait object, another node could not tell what it is: use an enum of the types that occur"),
            Type::Reference(_) => self.at(ty.span(), "cannot hold a reference except as an outermost `&` of an argument: use an owned type (`String`, `Vec<T>`, `Box<T>`)"),
            Type::Ptr(_) => self.at(ty.span(), "cannot be a raw pointer, it means nothing on another node: use an owned type"),
            Type::BareFn(_) => self.at(ty.span(), "cannot be a function pointer, it means nothing on another node: use an enum that says which function"),
            _ => visit::visit_type(self, ty),
        }
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        self.at(lifetime.span(), "cannot have a lifetime except on an outermost `&` of an argument: use the owned form of the type");
    }
}
