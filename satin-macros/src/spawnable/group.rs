//! Groups: any number of children whose results go to places, and the one closure that takes them there.
//!
//! The closure stands before the first spawn, and it has an arm for each site, also for those that come later. So the
//! statements of a group are written with *holes*, which are filled when the whole body is known.

use proc_macro2::{Group as TokenGroup, Ident, Span, TokenStream, TokenTree};
use quote::format_ident;

use super::hygiene::quote;

const HOLE: &str = "__satin_hole_";

/// A group of a body: sites that share one closure.
pub struct GroupPlan {
    /// The variable that holds it.
    pub name: Ident,
    /// The variable that holds its closure: apart, because an unwinding takes its address.
    delivery: Ident,
    /// Declares the variables that later statements of the segment are delivered to.
    before: TokenStream,
    /// The group's sites, in the order of the source.
    pub arms: Vec<Arm>,
}

/// The delivery of the results of a site.
pub struct Arm {
    /// Takes apart what a settled entry gives.
    pub pattern: TokenStream,
    /// Brings it to its place.
    pub deliver: TokenStream,
    /// Names for the results when one of them has failed, `_` for those that cannot.
    pub failed_pattern: TokenStream,
    /// Returns with the failure; empty if no call of the site has a `?`.
    pub fail: TokenStream,
    /// For a mere `count += f(..)` where the order of the children does not matter: asks the type of the place whether
    /// the order of their results does.
    pub order: Option<TokenStream>,
}

/// The nature of the guards in a group's segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Siblings {
    /// The calls have no `?`.
    Plain,
    /// A guard may fail, and stop the group's children.
    MayFail,
}

/// All groups of a body, and the holes that wait for them.
#[derive(Default)]
pub struct Groups {
    plans: Vec<GroupPlan>,
    holes: Vec<Hole>,
}

#[derive(Clone, Copy)]
enum Hole {
    Open(usize),
    Entry(usize, usize),
    Sync(usize),
    End(usize, Siblings),
}

impl Groups {
    /// A new group, by its number.
    pub fn add(&mut self) -> usize {
        let number = self.plans.len();
        let name = format_ident!("group{}", number, span = Span::mixed_site());
        let delivery = format_ident!("delivery{}", number, span = Span::mixed_site());
        self.plans.push(GroupPlan {
            name,
            delivery,
            before: TokenStream::new(),
            arms: Vec::new(),
        });
        number
    }

    /// The group of that number.
    pub fn get(&mut self, group: usize) -> &mut GroupPlan {
        &mut self.plans[group]
    }

    /// The statements that open the group.
    pub fn open(&mut self, group: usize) -> TokenStream {
        self.hole(Hole::Open(group))
    }

    /// The statement that waits for its children; the group stays usable.
    pub fn sync(&mut self, group: usize) -> TokenStream {
        self.hole(Hole::Sync(group))
    }

    /// The statement that waits for its children and gives the places back.
    pub fn end(&mut self, group: usize, siblings: Siblings) -> TokenStream {
        self.hole(Hole::End(group, siblings))
    }

    /// The statement that adds an entry for a new site.
    pub fn push(&mut self, group: usize, entry: &TokenStream, arm: Arm) -> TokenStream {
        self.plans[group].arms.push(arm);
        let hole = self.hole(Hole::Entry(group, self.plans[group].arms.len() - 1));
        let name = &self.plans[group].name;
        quote!(#name.push(#hole(#entry));)
    }

    fn hole(&mut self, hole: Hole) -> TokenStream {
        let name = format_ident!("{}{}", HOLE, self.holes.len());
        self.holes.push(hole);
        quote!(#name)
    }

    /// The tokens with every hole filled.
    pub fn fill(&self, tokens: TokenStream) -> TokenStream {
        let mut filled = TokenStream::new();
        let mut tokens = tokens.into_iter();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => {
                    let mut inner = TokenGroup::new(group.delimiter(), self.fill(group.stream()));
                    inner.set_span(group.span());
                    filled.extend([TokenTree::Group(inner)]);
                }
                TokenTree::Ident(name) => match self.find(&name) {
                    None => filled.extend([TokenTree::Ident(name)]),
                    Some(Hole::Open(group)) => filled.extend(self.plans[group].opening()),
                    Some(Hole::Sync(group)) => {
                        let (plain, tried) = (quote!(sync), quote!(try_sync));
                        let settling = self.plans[group].settling(&plain, &tried, Siblings::Plain);
                        filled.extend(settling);
                    }
                    Some(Hole::End(group, siblings)) => {
                        let (plain, tried) = (quote!(end), quote!(try_end));
                        filled.extend(self.plans[group].settling(&plain, &tried, siblings));
                    }
                    Some(Hole::Entry(group, site)) => {
                        if let Some(TokenTree::Group(entry)) = tokens.next() {
                            filled
                                .extend(self.plans[group].variant(site, self.fill(entry.stream())));
                        }
                    }
                },
                other => filled.extend([other]),
            }
        }
        filled
    }

    fn find(&self, name: &Ident) -> Option<Hole> {
        let number: usize = name.to_string().strip_prefix(HOLE)?.parse().ok()?;
        self.holes.get(number).copied()
    }
}

impl GroupPlan {
    /// Adds a variable that the group's closure can deliver to, although the statement that needs it comes later.
    pub fn declare(&mut self, variable: &TokenStream) {
        self.before.extend(variable.clone());
    }

    /// `Either::B(Either::A(inner))`: how the entries, and the results, of one site are told from those of the others.
    fn variant(&self, site: usize, inner: TokenStream) -> TokenStream {
        let last = self.arms.len() - 1;
        let innermost = if site < last {
            quote!(::satin::__private::Either::A(#inner))
        } else {
            inner
        };
        (0..site.min(last)).fold(
            innermost,
            |inner, _| quote!(::satin::__private::Either::B(#inner)),
        )
    }

    fn opening(&self) -> TokenStream {
        let GroupPlan {
            name,
            delivery,
            before,
            arms,
        } = self;
        let deliver = if let [
            Arm {
                pattern, deliver, ..
            },
        ] = &arms[..]
        {
            quote!(|#pattern| { #deliver })
        } else {
            let arms = arms.iter().enumerate().map(|(site, arm)| {
                let pattern = self.variant(site, arm.pattern.clone());
                let deliver = &arm.deliver;
                quote!(#pattern => { #deliver })
            });
            quote!(|done| match done { #(#arms)* })
        };
        let constructor = match &arms[..] {
            [
                Arm {
                    order: Some(order), ..
                },
            ] => quote!(ordered(#order, #deliver)),
            _ => quote!(new(#deliver)),
        };
        quote! {
            #before
            let mut #delivery = ::satin::__private::Delivery::#constructor;
            let mut #name = ::satin::__private::Group::new(&scope, &mut #delivery);
        }
    }

    /// Whether one of its calls has a `?`.
    pub fn may_fail(&self) -> bool {
        self.arms.iter().any(|arm| !arm.fail.is_empty())
    }

    fn settling(
        &self,
        plain: &TokenStream,
        tried: &TokenStream,
        siblings: Siblings,
    ) -> TokenStream {
        let name = &self.name;
        if !self.may_fail() {
            return match siblings {
                Siblings::Plain => quote!(#name.#plain();),
                // The group's children may be stopped, but cannot fail themselves.
                Siblings::MayFail => quote!(let _ = #name.#tried();),
            };
        }
        let arms = self.arms.iter().enumerate().map(|(site, arm)| {
            let pattern = self.variant(site, arm.failed_pattern.clone());
            let fail = &arm.fail;
            quote!(#pattern => { #fail })
        });
        quote! {
            if let ::core::option::Option::Some(done) = #name.#tried() {
                match done { #(#arms)* }
                ::core::unreachable!("a group stops at a failure");
            }
        }
    }
}
