//! What a segment ends with: the children are settled, and their values go where they belong.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;

use super::super::group::Siblings;
use super::super::guards::{Assign, GroupEnd};
use super::super::hygiene::quote;
use super::{BlockState, ChildValue, Finish, Lower, OpenGroup, ValueTarget};

impl Lower<'_> {
    /// `sync!()`: ends this block's segment, and settles the groups of the blocks around it.
    pub(super) fn explicit_sync(&mut self) -> TokenStream {
        let mut out = self.sync_segment();
        let open: Vec<usize> = self
            .blocks
            .iter()
            .rev()
            .filter_map(|block| block.segment.group.as_ref().map(|group| group.number))
            .collect();
        open.into_iter()
            .for_each(|group| out.extend(self.groups.sync(group)));
        out
    }

    /// The sync at the end of a block.
    pub(super) fn sync_at_end(&mut self) -> TokenStream {
        let BlockState {
            declared,
            is_loop_body,
            segment,
            ..
        } = self.top();
        if *is_loop_body
            && let Some(OpenGroup {
                straight,
                joined: false,
                ..
            }) = &segment.group
            && let [(place, span)] = &straight[..]
            && declared.contains(place.root())
        {
            let message = format!(
                "`{place}` belongs to one round of this loop, so each round would wait for its own child and nothing would run in parallel: \
                 collect the results in a place declared before the loop"
            );
            let span = *span;
            self.errors.at_span(span, message);
        }
        self.sync_segment()
    }

    /// Settles every child of this block's segment and finishes its statements.
    pub(super) fn sync_segment(&mut self) -> TokenStream {
        let last = self.top().segment.last;
        let segment = std::mem::take(&mut self.top().segment);
        self.top().segment.last = last;
        let (guards, mut finishes) = (segment.guards, segment.finishes);
        let siblings = if guards.may_fail() {
            Siblings::MayFail
        } else {
            Siblings::Plain
        };
        let mut speculative = guards.may_fail();
        let group = segment.group.map(|group| {
            let plan = self.groups.get(group.number);
            speculative |= !guards.is_empty() && plan.may_fail();
            GroupEnd {
                name: plan.name.clone(),
                end: self.groups.end(group.number, siblings),
            }
        });
        let assign: Vec<Option<Assign>> = guards
            .iter()
            .map(|guard| {
                (!speculative).then(|| take_direct(&mut finishes, &guard.value)?.assign())?
            })
            .collect();
        let tried: Vec<Ident> = guards
            .iter()
            .filter(|guard| guard.speculative)
            .map(|guard| guard.value.clone())
            .collect();
        let base = self.fresh("base");
        let mut out = guards.settle(group, speculative, base, &assign);
        if speculative {
            out.extend(fail_if_cancelled(tried.iter()));
        }
        finishes
            .into_iter()
            .for_each(|finish| out.extend(finish.tokens(speculative)));
        out
    }
}

impl ValueTarget {
    /// The target of a value that is all of the statement.
    pub(super) fn assign(self) -> Option<Assign> {
        match self {
            ValueTarget::Nothing => Some(Assign::Nowhere),
            ValueTarget::Variable(name) => Some(Assign::To(name.to_token_stream())),
            ValueTarget::Assignment(place) => Some(Assign::To(place.to_token_stream())),
            ValueTarget::Pattern { .. } => None,
        }
    }
}

/// The target of the statement that is nothing but the child in `value`, taken out of the list.
pub(super) fn take_direct(finishes: &mut Vec<Finish>, value: &Ident) -> Option<ValueTarget> {
    let at = finishes.iter().position(|finish| {
        let only = matches!(&finish.values[..], [ChildValue::Guard { name, .. }] if name == value);
        only && finish.rest.is_none() && !matches!(finish.target, ValueTarget::Pattern { .. })
    })?;
    Some(finishes.remove(at).target)
}

/// After a speculative segment has been settled: returns with the failure, if there is one.
pub(super) fn fail_if_cancelled<'v>(values: impl Iterator<Item = &'v Ident>) -> TokenStream {
    let failures = values.map(|value| {
        quote! {
            if let ::core::option::Option::Some(child) = #value {
                if ::satin::__private::Speculative::failed(&child) { child?; }
            }
        }
    });
    quote! {
        if scope.cancelled() {
            #(#failures)*
            ::core::unreachable!("a failure cancels the others");
        }
    }
}

const SETTLED: &str = "every child has been settled";

impl Finish {
    pub(super) fn tokens(self, segment_is_speculative: bool) -> TokenStream {
        let values = self
            .values
            .iter()
            .map(|value| value.tokens(segment_is_speculative));
        let value = match &self.rest {
            Some(rest) => quote!(#rest(#(#values),*)),
            None => quote!(#(#values)*),
        };
        match self.target {
            ValueTarget::Nothing => quote!(let _ = #value;),
            ValueTarget::Variable(name) => quote!(#name = #value;),
            ValueTarget::Assignment(place) => quote!(#place = #value;),
            ValueTarget::Pattern {
                names,
                pat,
                diverge,
            } => match &names[..] {
                [] => quote!(let #pat = #value #diverge;),
                [name] => quote!(#name = { let #pat = #value #diverge; #name };),
                _ => quote!((#(#names),*) = { let #pat = #value #diverge; (#(#names),*) };),
            },
        }
    }
}

impl ChildValue {
    pub(super) fn tokens(&self, segment_is_speculative: bool) -> TokenStream {
        let (value, speculative) = match self {
            ChildValue::Collected(name) => return quote!(#name),
            ChildValue::Guard { name, .. } if !segment_is_speculative => return quote!(#name),
            ChildValue::Guard { name, speculative } | ChildValue::Late { name, speculative } => {
                (quote!(#name.expect(#SETTLED)), speculative)
            }
        };
        if *speculative {
            quote!(::satin::__private::Speculative::value(#value))
        } else {
            value
        }
    }
}
