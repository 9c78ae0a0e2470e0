//! Guards: the children of `let`s and bare calls, and in which order they are pushed, so that they run in program order.
//!
//! A call is *planned* where it stands: its arguments are evaluated, and it gets its number. As long as no other code
//! stands between them, calls stay planned; at the sync the later ones are pushed, the last of them first, and the first
//! is called. The next job that is popped is then the second. If other code runs in between, the planned calls are pushed
//! before it, so that thieves can take them meanwhile: the last first if no spawn follows, else as they come, and the
//! sync turns them round.

use proc_macro2::{Ident, TokenStream};

use super::hygiene::quote;

/// The names by which a child appears in the expansion.
pub struct ChildGuard {
    /// The variable of the planned call.
    pub call: Ident,
    /// The guard, once it is pushed.
    pub ticket: Ident,
    /// The variable of the child's value.
    pub value: Ident,
    /// A `?` follows the call.
    pub speculative: bool,
}

/// The target of a child's result.
pub enum Assign {
    /// The variable, or the place, that the statement names.
    To(TokenStream),
    /// No target: the result is dropped.
    Nowhere,
}

/// The statements that follow a statement in its segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// Statements that may spawn other children.
    Spawns,
    /// None that spawns.
    Nothing,
}

/// The order in which the pushed guards stand.
#[derive(Default)]
enum PushedGuards {
    /// No guards are pushed.
    #[default]
    None,
    /// The first in program order is the youngest.
    LastFirst,
    /// The last guard is the youngest; they begin at this position.
    AsTheyCame(Ident),
}

/// The guards of a segment, in program order.
#[derive(Default)]
pub struct Guards {
    all: Vec<ChildGuard>,
    /// Number of guards that are pushed; the others are planned.
    pushed: usize,
    order: PushedGuards,
}

/// The group that a segment has beside its guards: its variable, and the statement that ends it.
pub struct GroupEnd {
    pub name: Ident,
    pub end: TokenStream,
}

impl Guards {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ChildGuard> {
        self.all.iter()
    }

    /// Whether one of the calls has a `?`.
    pub fn may_fail(&self) -> bool {
        self.all.iter().any(|guard| guard.speculative)
    }

    pub fn are_planned(&self) -> bool {
        self.pushed < self.all.len()
    }

    /// Evaluates the call's arguments, without pushing the call.
    pub fn plan(&mut self, guard: ChildGuard, prepared: &TokenStream) -> TokenStream {
        let call = &guard.call;
        let planned = quote!(let #call = scope.plan(#prepared););
        self.all.push(guard);
        planned
    }

    /// Pushes what is planned. `base`: a name that is still free.
    pub fn push(&mut self, follows: Follows, base: Ident) -> TokenStream {
        let planned = &self.all[self.pushed..];
        if planned.is_empty() {
            return TokenStream::new();
        }
        let mut out = TokenStream::new();
        match (&self.order, follows) {
            (PushedGuards::None, Follows::Nothing) => {
                out.extend(planned.iter().rev().map(|guard| guard.spawn(None)));
                self.order = PushedGuards::LastFirst;
            }
            (PushedGuards::None | PushedGuards::LastFirst, _) => {
                out.extend(quote!(let #base = scope.position();));
                out.extend(planned.iter().map(|guard| guard.spawn(Some(&base))));
                self.order = PushedGuards::AsTheyCame(base);
            }
            (PushedGuards::AsTheyCame(base), _) => {
                out.extend(planned.iter().map(|guard| guard.spawn(Some(base))));
            }
        }
        self.pushed = self.all.len();
        out
    }

    /// Settles all of them, and the group. `speculative`: a child of the segment may fail and stop the others. `assign` says
    /// for each guard where its value goes; otherwise that becomes the variable `value`.
    pub fn settle(
        mut self,
        group: Option<GroupEnd>,
        speculative: bool,
        base: Ident,
        assign: &[Option<Assign>],
    ) -> TokenStream {
        let mut out = TokenStream::new();
        if self.pushed > 0 {
            out.extend(self.push(Follows::Spawns, base));
        }
        let result = |at: usize, from: TokenStream, declare: bool| {
            self.all[at].result(&from, speculative, assign[at].as_ref(), declare)
        };
        let synced = |at: usize| {
            let ticket = &self.all[at].ticket;
            match speculative {
                true => quote!(#ticket.try_sync()),
                false => quote!(#ticket.sync()),
            }
        };
        let count = self.all.len();
        match (&self.order, group) {
            (PushedGuards::None, Some(group)) => out.extend(group.end),
            (PushedGuards::None, None) => {
                out.extend((1..count).rev().map(|at| self.all[at].spawn(None)));
                for at in 0..count {
                    let call = &self.all[at].call;
                    let from = match (at, speculative) {
                        (0, true) => quote!(scope.try_run(#call)),
                        (0, false) => quote!(scope.run(#call)),
                        _ => synced(at),
                    };
                    out.extend(result(at, from, true));
                }
            }
            (PushedGuards::AsTheyCame(base), group) if count > 1 || group.is_some() => {
                for (guard, assign) in self.all.iter().zip(assign) {
                    let value = &guard.value;
                    out.extend(assign.is_none().then(|| quote!(let #value;)));
                }
                let in_order = (0..count).map(|at| result(at, synced(at), false));
                let last_first = (0..count).rev().map(|at| result(at, synced(at), false));
                let (turned, end) = match &group {
                    Some(GroupEnd { name, end }) => (quote!(#name.turned(#base);), end.clone()),
                    None => Default::default(),
                };
                out.extend(quote! {
                    if scope.turn(#base) {
                        #turned #(#in_order)* #end
                    } else {
                        #end #(#last_first)*
                    }
                });
            }
            (PushedGuards::LastFirst | PushedGuards::AsTheyCame(_), _) => {
                out.extend((0..count).map(|at| result(at, synced(at), true)));
            }
        }
        out
    }
}

impl ChildGuard {
    fn spawn(&self, base: Option<&Ident>) -> TokenStream {
        let ChildGuard { call, ticket, .. } = self;
        match (base, self.speculative) {
            (None, false) => quote!(let #ticket = scope.spawn(#call);),
            (None, true) => quote!(let #ticket = scope.spawn_speculative(#call);),
            (Some(base), false) => quote!(let #ticket = scope.spawn_above(#base, #call);),
            (Some(base), true) => {
                quote!(let #ticket = scope.spawn_speculative_above(#base, #call);)
            }
        }
    }

    fn result(
        &self,
        from: &TokenStream,
        speculative: bool,
        assign: Option<&Assign>,
        declare: bool,
    ) -> TokenStream {
        let value = &self.value;
        let check = (speculative && self.speculative).then(|| quote!(scope.check(&#value);));
        match assign {
            Some(Assign::To(place)) => quote!(#place = #from;),
            Some(Assign::Nowhere) => quote!(#from;),
            None if declare => quote!(let #value = #from; #check),
            None => quote!(#value = #from; #check),
        }
    }
}
