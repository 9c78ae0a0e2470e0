//! Reads what the attribute stands on: options, functions, `impl` blocks. Complains about signatures in `signature.rs`.

use proc_macro2::Ident;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Block, Expr, ExprPath, FnArg, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, LitStr,
    Receiver, ReturnType, Signature, Token, Type, Visibility, parse_quote,
};

use super::errors::Errors;
use super::signature::{self, Param};

/// `#[spawnable(sequential_if = n < 20, name = "fibonacci")]`
#[derive(Default)]
pub struct SpawnableOptions {
    /// The condition under which the sequential twin is called instead.
    pub sequential_if: Option<Expr>,
    /// The stable name, where the one that the macro makes up is not good enough.
    pub name: Option<LitStr>,
    /// In which order the children of loops run, where the macro is not to decide.
    pub order: Option<OrderOption>,
}

/// The order in which a worker runs those children of a loop that have not been stolen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OrderOption {
    /// The order in which the program spawns them.
    Program,
    /// The last child first, where results are merely added up.
    Last,
}

impl Parse for OrderOption {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let order: Ident = input.parse()?;
        match order.to_string().as_str() {
            "program" => Ok(OrderOption::Program),
            "last" => Ok(OrderOption::Last),
            _ => Err(syn::Error::new(
                order.span(),
                format!("unknown order `{order}`: write `order = program` or `order = last`"),
            )),
        }
    }
}

impl Parse for SpawnableOptions {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut options = SpawnableOptions::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            let known = ["sequential_if", "name", "order"]
                .into_iter()
                .any(|known| key == known);
            if !known {
                return Err(syn::Error::new(
                    key.span(),
                    format!(
                        "unknown option `{key}`: write `sequential_if = <condition>`, `name = \"..\"` or `order = program`"
                    ),
                ));
            }
            if !input.peek(Token![=]) {
                return Err(syn::Error::new(
                    key.span(),
                    format!("`{key}` needs a value: `{key} = ..`"),
                ));
            }
            input.parse::<Token![=]>()?;
            if key == "name" {
                options.name = Some(input.parse()?);
            } else if key == "order" {
                options.order = Some(input.parse()?);
            } else {
                options.sequential_if = Some(input.parse()?);
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

/// A spawnable function or method, as the user wrote it.
pub struct SpawnableFn {
    /// The attributes above it, documentation too, without `#[spawn]`.
    pub attrs: Vec<Attribute>,
    /// The visibility of the function.
    pub vis: Visibility,
    /// The signature, untouched.
    pub sig: Signature,
    /// The function's name.
    pub name: Ident,
    /// The type that it is a method of.
    pub self_type: Option<Type>,
    /// The receiver: `self`, `&self`, `&mut self`.
    pub receiver: Option<Receiver>,
    /// The arguments after the receiver.
    pub params: Vec<Param>,
    /// The type of the result; `()` if none is written.
    pub output: Type,
    /// The function's body.
    pub body: Block,
    /// The options that the attribute gave.
    pub options: SpawnableOptions,
}

impl SpawnableFn {
    fn new(
        attrs: Vec<Attribute>,
        vis: Visibility,
        sig: Signature,
        body: Block,
        self_type: Option<Type>,
        options: SpawnableOptions,
        errors: &mut Errors,
    ) -> SpawnableFn {
        signature::check(&sig, errors);
        let receiver = sig.inputs.iter().find_map(|input| match input {
            FnArg::Receiver(receiver) => Some(receiver.clone()),
            FnArg::Typed(_) => None,
        });
        let params = signature::params(&sig, errors);
        let output = match &sig.output {
            ReturnType::Default => parse_quote!(()),
            ReturnType::Type(_, output) => (**output).clone(),
        };
        SpawnableFn {
            attrs,
            vis,
            name: sig.ident.clone(),
            sig,
            self_type,
            receiver,
            params,
            output,
            body,
            options,
        }
    }

    /// The last name of the type that this is a method of.
    pub fn type_name(&self) -> Option<&Ident> {
        match self.self_type.as_ref()? {
            Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
            _ => None,
        }
    }

    /// Whether `path` names this very function: `fib`, `Self::solve`, `Board::solve`.
    pub fn is_own_path(&self, path: &ExprPath) -> bool {
        if path.qself.is_some() {
            return false;
        }
        let mut segments = path
            .path
            .segments
            .iter()
            .rev()
            .map(|segment| &segment.ident);
        if path.path.leading_colon.is_some() || segments.next() != Some(&self.name) {
            return false;
        }
        match (&self.self_type, segments.next(), segments.next()) {
            (None, None, None) => true,
            (Some(_), Some(of), None) => of == "Self" || Some(of) == self.type_name(),
            _ => false,
        }
    }

    /// How `self` is handed to a child: a `&mut` is lent again rather than given away.
    pub fn lend_receiver(&self, receiver: &Expr) -> Expr {
        match &self.receiver {
            Some(Receiver {
                reference: Some(_),
                mutability: Some(_),
                ..
            }) => parse_quote!(&mut *#receiver),
            _ => receiver.clone(),
        }
    }

    /// Whether the function is written to give nothing back, so that its last expression is a statement.
    pub fn returns_nothing(&self) -> bool {
        matches!(self.sig.output, ReturnType::Default)
    }
}

/// The item on which the attribute stands.
pub enum AttributeTarget {
    /// A free function.
    Function(Box<SpawnableFn>),
    /// An `impl` block: the items that stay in it, and its spawnable methods.
    Impl(Box<ItemImpl>, Vec<SpawnableFn>),
}

impl AttributeTarget {
    /// Reads `item`. `None` if nothing sensible could be made of it; the errors say why.
    pub fn read(
        options: SpawnableOptions,
        item: Item,
        errors: &mut Errors,
    ) -> Option<AttributeTarget> {
        match item {
            Item::Fn(ItemFn {
                attrs,
                vis,
                sig,
                block,
                ..
            }) => Some(AttributeTarget::Function(Box::new(SpawnableFn::new(
                attrs, vis, sig, *block, None, options, errors,
            )))),
            Item::Impl(block) => read_impl(options, block, errors),
            other => {
                errors.at(other, "`#[spawnable]` goes on a function, or on an inherent `impl` block with `#[spawn]` on its jobs");
                None
            }
        }
    }
}

fn read_impl(
    options: SpawnableOptions,
    mut block: ItemImpl,
    errors: &mut Errors,
) -> Option<AttributeTarget> {
    if let Some((_, of, _)) = &block.trait_ {
        errors.at(of, "a trait impl cannot be spawnable: make the method inherent (`impl Type { .. }`) and call it from the trait's");
    }
    if !block.generics.params.is_empty() {
        errors.at(&block.generics, "a generic impl cannot be spawnable, since other nodes find a job by its name: write it for a concrete type");
    }
    if options.sequential_if.is_some() || options.name.is_some() || options.order.is_some() {
        errors.at(
            &block.self_ty,
            "the options of a method go on its `#[spawn(..)]`, not on the impl block",
        );
    }
    let mut jobs = Vec::new();
    let mut rest = Vec::new();
    for item in std::mem::take(&mut block.items) {
        match item {
            ImplItem::Fn(method) if method.attrs.iter().any(is_spawn) => {
                jobs.push(read_method(method, &block.self_ty, errors))
            }
            other => rest.push(other),
        }
    }
    if jobs.is_empty() && errors.is_empty() {
        errors.at_span(
            block.self_ty.span(),
            "no job in this impl block: write `#[spawn]` on each method that is one",
        );
    }
    block.items = rest;
    Some(AttributeTarget::Impl(Box::new(block), jobs))
}

fn is_spawn(attr: &Attribute) -> bool {
    attr.path()
        .segments
        .last()
        .is_some_and(|segment| segment.ident == "spawn")
}

fn read_method(method: ImplItemFn, self_type: &Type, errors: &mut Errors) -> SpawnableFn {
    let ImplItemFn {
        attrs,
        vis,
        sig,
        block,
        ..
    } = method;
    let (markers, attrs): (Vec<_>, Vec<_>) = attrs.into_iter().partition(is_spawn);
    let options = markers.iter().find_map(|attr| match &attr.meta {
        syn::Meta::Path(_) => None,
        _ => Some(attr.parse_args::<SpawnableOptions>()),
    });
    let options = options.transpose().unwrap_or_else(|error| {
        errors.push(error);
        None
    });
    SpawnableFn::new(
        attrs,
        vis,
        sig,
        block,
        Some(self_type.clone()),
        options.unwrap_or_default(),
        errors,
    )
}

/// Takes the `#[spawn]`s off, for the feature `serial`; returns the methods that had one.
pub fn strip_spawn(block: &mut ItemImpl) -> Vec<&mut ImplItemFn> {
    let mut spawned = Vec::new();
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item
            && method.attrs.iter().any(is_spawn)
        {
            method.attrs.retain(|attr| !is_spawn(attr));
            spawned.push(method);
        }
    }
    spawned
}
