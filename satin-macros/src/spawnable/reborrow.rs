//! Variables that borrow a place mutably: `left` and `right` of `let (left, right) = xs.split_at_mut(m);`, `chunk` of
//! `for chunk in xs.chunks_mut(100)`.
//!
//! A child that such a variable is lent to has the place lent too. So a mention of the place waits for the child,
//! where it would otherwise be refused by the borrow checker, in words that name no sync.
//!
//! Only what is sure to borrow is taken: a mention of the place would not compile anyhow, so nothing waits that need not.

use std::collections::{HashMap, HashSet};

use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprForLoop, Item, Local, Pat, PatIdent};

use super::escape::bindings;
use super::mentions::PlacePath;
use super::parse::SpawnableFn;

/// Methods between the borrow and its variable that hand the borrow on.
const PASSING: [&str; 9] = [
    "enumerate",
    "expect",
    "into_iter",
    "rev",
    "skip",
    "step_by",
    "take",
    "unwrap",
    "zip",
];

/// Methods named `.._mut` that borrow only for looks: through a `RefCell`.
const GUARDS: [&str; 1] = ["borrow_mut"];

/// For each such variable, the place that it borrows.
#[derive(Default)]
pub struct Reborrows(HashMap<String, PlacePath>);

impl Reborrows {
    /// The variables of `job`'s body, which is marked.
    pub fn find(job: &SpawnableFn, body: &Block) -> Reborrows {
        let mut find = Find::default();
        job.params.iter().for_each(|param| find.bind(&param.name));
        find.visit_block(body);
        let Find { found, unsure, .. } = find;
        // A name that stands for several things may stand for something else by now.
        let sure = found
            .into_iter()
            .filter(|(name, place)| !unsure.contains(name) && !unsure.contains(place.root()));
        Reborrows(sure.collect())
    }

    /// The places that are lent with `arg`, from the nearest to the one that all of it belongs to.
    pub fn lent_with(&self, arg: &Expr) -> Vec<PlacePath> {
        let name = match arg {
            Expr::Reference(of) if of.mutability.is_some() => PlacePath::of(&of.expr),
            Expr::Path(_) => PlacePath::of(arg),
            _ => None,
        };
        let mut places = Vec::new();
        let mut next = name.and_then(|name| self.0.get(name.root()));
        while let Some(place) = next.filter(|place| !places.contains(*place)) {
            places.push(place.clone());
            next = self.0.get(place.root());
        }
        places
    }
}

#[derive(Default)]
struct Find {
    found: HashMap<String, PlacePath>,
    bound: HashSet<String>,
    /// Names that are bound twice, or assigned to.
    unsure: HashSet<String>,
}

impl Find {
    fn bind(&mut self, name: &impl ToString) {
        let name = name.to_string();
        if !self.bound.insert(name.clone()) {
            self.unsure.insert(name);
        }
    }

    fn borrows(&mut self, pat: &Pat, value: &Expr) {
        if let Some(place) = borrowed(value) {
            for name in bindings(pat) {
                self.found.insert(name.ident.to_string(), place.clone());
            }
        }
    }
}

/// The place that the value of `expr` borrows mutably, if it is sure to.
fn borrowed(expr: &Expr) -> Option<PlacePath> {
    match expr {
        Expr::Paren(inner) => borrowed(&inner.expr),
        Expr::Try(tried) => borrowed(&tried.expr),
        Expr::Reference(of) if of.mutability.is_some() => PlacePath::of(&of.expr),
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            if name.ends_with("_mut") && !GUARDS.contains(&&*name) {
                PlacePath::of(&call.receiver).or_else(|| borrowed(&call.receiver))
            } else if PASSING.contains(&&*name) {
                borrowed(&call.receiver)
            } else {
                None
            }
        }
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Find {
    fn visit_local(&mut self, local: &'ast Local) {
        if let Some(init) = &local.init {
            self.borrows(&local.pat, &init.expr);
        }
        visit::visit_local(self, local);
    }
    fn visit_expr_for_loop(&mut self, of: &'ast ExprForLoop) {
        self.borrows(&of.pat, &of.expr);
        visit::visit_expr_for_loop(self, of);
    }
    fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
        self.bind(&pat.ident);
        visit::visit_pat_ident(self, pat);
    }
    fn visit_expr(&mut self, expr: &'ast Expr) {
        if let Expr::Assign(assign) = expr
            && let Expr::Path(path) = &*assign.left
            && let Some(name) = path.path.get_ident()
        {
            self.unsure.insert(name.to_string());
        }
        visit::visit_expr(self, expr);
    }
    fn visit_item(&mut self, _: &'ast Item) {}
}
