//! The iterator form: `xs.iter().map(|x| f(x)).sum()` is written out as a loop that fills a vector, which other passes
//! lower like any loop: its children are under way together, and the vector is filled in order.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::visit_mut::{self, VisitMut};
use syn::{Arm, Block, Expr, ExprClosure, ExprMethodCall, Item, Local, Pat, Stmt, parse_quote};

use super::mark::first_spawn;
use super::site::is_control_flow;

const COLLECTED: &str = "__satin_collected_";

/// The methods that may follow `.map(..)`: each takes in all values, in order.
pub const FOLLOWERS: [&str; 13] = [
    "collect",
    "sum",
    "product",
    "min",
    "max",
    "min_by",
    "min_by_key",
    "max_by",
    "max_by_key",
    "fold",
    "reduce",
    "unzip",
    "count",
];

/// The closure of `RECV.map(|x| .. f(x) ..)`, if `expr` is such a call and spawns in it.
pub fn spawning_map(expr: &Expr) -> Option<(&ExprMethodCall, &ExprClosure)> {
    let Expr::MethodCall(call) = expr else {
        return None;
    };
    let (true, Some(Expr::Closure(closure)), 1) =
        (call.method == "map", call.args.first(), call.args.len())
    else {
        return None;
    };
    (closure.inputs.len() == 1 && first_spawn(&closure.body).is_some()).then_some((call, closure))
}

/// The spawning `.map(..)` that `expr` consumes at once: `RECV.map(..).sum()`.
pub fn consumed_map(expr: &Expr) -> Option<(&ExprMethodCall, &ExprClosure)> {
    let Expr::MethodCall(call) = expr else {
        return None;
    };
    FOLLOWERS
        .iter()
        .any(|follower| call.method == follower)
        .then(|| spawning_map(&call.receiver))
        .flatten()
}

/// Writes out every iterator form in `body`.
pub fn write_out(body: &mut Block) {
    WriteOut { number: 0 }.visit_block_mut(body);
}

struct WriteOut {
    number: usize,
}

impl WriteOut {
    /// Replaces the forms of one statement, and gives the loops that must run before it.
    fn loops_before(&mut self, stmt: &mut Stmt) -> Vec<Stmt> {
        let mut forms = Forms {
            number: &mut self.number,
            loops: Vec::new(),
        };
        match stmt {
            Stmt::Expr(expr, _) => forms.visit_expr_mut(expr),
            Stmt::Local(Local {
                init: Some(init), ..
            }) => forms.visit_expr_mut(&mut init.expr),
            _ => {}
        }
        forms.loops
    }
}

impl VisitMut for WriteOut {
    fn visit_block_mut(&mut self, block: &mut Block) {
        for mut stmt in std::mem::take(&mut block.stmts) {
            block.stmts.extend(self.loops_before(&mut stmt));
            block.stmts.push(stmt);
        }
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_arm_mut(&mut self, arm: &mut Arm) {
        let mut stmt = Stmt::Expr((*arm.body).clone(), None);
        let loops = self.loops_before(&mut stmt);
        if !loops.is_empty() {
            *arm.body = parse_quote!({ #(#loops)* #stmt });
        }
        visit_mut::visit_arm_mut(self, arm);
    }

    fn visit_item_mut(&mut self, _: &mut Item) {}
}

/// Finds the forms of one expression, not those in its blocks, which have statements of their own.
struct Forms<'a> {
    number: &'a mut usize,
    loops: Vec<Stmt>,
}

impl VisitMut for Forms<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::If(of) => return self.visit_expr_mut(&mut of.cond),
            Expr::Match(of) => return self.visit_expr_mut(&mut of.expr),
            Expr::ForLoop(of) => return self.visit_expr_mut(&mut of.expr),
            Expr::Closure(_) => return,
            other if is_control_flow(other) => return,
            _ => {}
        }
        visit_mut::visit_expr_mut(self, expr);
        let Some((map, closure)) = consumed_map(expr) else {
            return;
        };
        let collected = format_ident!("{}{}", COLLECTED, self.number, span = Span::mixed_site());
        *self.number += 1;
        self.loops
            .extend(filling_loop(&collected, &map.receiver, closure));
        if let Expr::MethodCall(call) = expr {
            *call.receiver = parse_quote!(#collected.into_iter());
        }
    }
}

/// `let mut collected = Vec::new(); for x in RECV { collected.push(BODY); }`
fn filling_loop(collected: &Ident, items: &Expr, closure: &ExprClosure) -> Vec<Stmt> {
    let body = &closure.body;
    let (before, value): (Vec<Stmt>, Expr) = match &**body {
        Expr::Block(of) => match of.block.stmts.split_last() {
            Some((Stmt::Expr(value, None), before)) => (before.to_vec(), value.clone()),
            _ => (of.block.stmts.clone(), parse_quote!(())),
        },
        _ => (Vec::new(), (**body).clone()),
    };
    let (pat, typed): (Pat, Option<Stmt>) = match closure.inputs.first() {
        Some(Pat::Type(typed)) => {
            let item = Ident::new("item", Span::mixed_site());
            (parse_quote!(#item), Some(parse_quote!(let #typed = #item;)))
        }
        Some(pat) => (pat.clone(), None),
        None => (parse_quote!(_), None),
    };
    vec![
        parse_quote!(let mut #collected = ::std::vec::Vec::new();),
        parse_quote!(for #pat in #items { #typed #(#before)* #collected.push(#value); }),
    ]
}

/// The vector that this `let` consumes, if it is one whose iterator form was written out.
pub fn collected_in(local: &Local) -> Option<Ident> {
    find(local.init.as_ref()?.expr.to_token_stream())
}

/// The vector that this `let` declares for an iterator form.
pub fn declared_collected(local: &Local) -> Option<Ident> {
    match &local.pat {
        Pat::Ident(pat) if pat.ident.to_string().starts_with(COLLECTED) => Some(pat.ident.clone()),
        _ => None,
    }
}

fn find(tokens: TokenStream) -> Option<Ident> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(name) if name.to_string().starts_with(COLLECTED) => Some(name),
        TokenTree::Group(group) => find(group.stream()),
        _ => None,
    })
}
