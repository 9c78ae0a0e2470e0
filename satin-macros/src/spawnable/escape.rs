//! May the children of a loop or a branch outlive it?
//!
//! `for x in xs { total += f(x); }` is parallel because its children are synced after the loop: the loop's
//! spawns *escape* to the block that the loop stands in. They may, if the places that they write were there before, and
//! no code inside looks at those.

use std::collections::HashSet;

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::visit::{self, Visit};
use syn::{Arm, Block, Expr, ExprForLoop, ExprLoop, ExprWhile, Item, Pat, PatIdent, Stmt};

use super::mark::{Marked, is_sync};
use super::mentions::{PlacePath, mentions};
use super::site::{DeferredStatement, is_place, reads};

/// The fate of the spawns in the blocks of a control-flow statement.
pub enum Escape {
    /// Each block syncs its own.
    Stays,
    /// The spawns join the segment of the enclosing block.
    Joins,
    /// The spawns would join, but the loop comes back to a look at this place.
    BackEdge(PlacePath),
}

/// Decides for `stmt`; `lent` says which places a marked call borrows mutably, `deferred` which assignments are no sites.
pub fn escape(
    stmt: &Stmt,
    lent: &dyn Fn(&Expr) -> Vec<PlacePath>,
    late_init: &HashSet<String>,
) -> Escape {
    let declared = declared_in(stmt);
    let mut inner = InnerSites {
        sites: Vec::new(),
        loops: 0,
        declared: &declared,
        lent,
        late_init,
    };
    inner.visit_stmt(stmt);
    let sites: Vec<InnerSite> = inner
        .sites
        .into_iter()
        .filter(|site| site.escapes)
        .collect();
    if sites.is_empty() || closed_inside(stmt, &sites) {
        return Escape::Stays;
    }
    let places: Vec<PlacePath> = sites.iter().filter_map(|site| site.path.clone()).collect();
    let looked_at = |place: &&PlacePath| mentions(repeated(stmt), std::slice::from_ref(place));
    match (places.iter().find(looked_at), is_loop(stmt)) {
        (None, _) => Escape::Joins,
        (Some(place), true) => Escape::BackEdge(place.clone()),
        (Some(_), false) => Escape::Stays,
    }
}

/// A site in a nested block.
struct InnerSite {
    path: Option<PlacePath>,
    lent: Vec<PlacePath>,
    statement: String,
    escapes: bool,
}

struct InnerSites<'a> {
    sites: Vec<InnerSite>,
    loops: u32,
    declared: &'a HashSet<String>,
    lent: &'a dyn Fn(&Expr) -> Vec<PlacePath>,
    late_init: &'a HashSet<String>,
}

impl InnerSites<'_> {
    fn statement(&mut self, statement: &Expr) {
        let Some(site) = DeferredStatement::of(statement) else {
            return;
        };
        if is_late_init(statement, self.late_init) {
            return;
        }
        let own_place = site
            .path
            .as_ref()
            .is_some_and(|path| self.declared.contains(path.root()));
        let own_borrow = self.loops == 0
            && borrowed(&site.deliver)
                .iter()
                .any(|path| self.declared.contains(path.root()));
        self.sites.push(InnerSite {
            escapes: !own_place && !own_borrow,
            path: site.path,
            lent: (self.lent)(&site.deliver),
            statement: statement.to_token_stream().to_string(),
        });
    }

    fn in_loop(&mut self, walk: impl FnOnce(&mut Self)) {
        self.loops += 1;
        walk(self);
        self.loops -= 1;
    }
}

impl<'ast> Visit<'ast> for InnerSites<'_> {
    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, _) = stmt {
            self.statement(expr);
        }
        visit::visit_stmt(self, stmt);
    }
    fn visit_arm(&mut self, arm: &'ast Arm) {
        self.statement(&arm.body);
        visit::visit_arm(self, arm);
    }
    fn visit_expr_for_loop(&mut self, expr: &'ast ExprForLoop) {
        self.in_loop(|this| visit::visit_expr_for_loop(this, expr));
    }
    fn visit_expr_while(&mut self, expr: &'ast ExprWhile) {
        self.in_loop(|this| visit::visit_expr_while(this, expr));
    }
    fn visit_expr_loop(&mut self, expr: &'ast ExprLoop) {
        self.in_loop(|this| visit::visit_expr_loop(this, expr));
    }
    fn visit_item(&mut self, _: &'ast Item) {}
}

/// `x = f(a)` where `x` was declared without a value: nothing to borrow yet, so no site but a late `let`.
pub fn is_late_init(statement: &Expr, late_init: &HashSet<String>) -> bool {
    let Expr::Assign(assign) = statement else {
        return false;
    };
    matches!(&*assign.left, Expr::Path(path) if path.path.get_ident().is_some_and(|name| late_init.contains(&name.to_string())))
}

/// The places that the arguments of the spawned calls in `expr` borrow by an explicit `&`.
fn borrowed(expr: &Expr) -> Vec<PlacePath> {
    struct Borrowed(Vec<PlacePath>);
    impl<'ast> Visit<'ast> for Borrowed {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            if let Some(mark) = Marked::of(expr) {
                let lent = mark
                    .arguments()
                    .into_iter()
                    .filter(|arg| matches!(arg, Expr::Reference(of) if is_place(&of.expr)));
                self.0.extend(lent.filter_map(PlacePath::of));
            }
            visit::visit_expr(self, expr);
        }
    }
    let mut found = Borrowed(Vec::new());
    found.visit_expr(expr);
    found.0
}

/// Whether some statement list in `stmt` syncs, or looks, after it has spawned.
fn closed_inside(stmt: &Stmt, sites: &[InnerSite]) -> bool {
    struct Lists<'a> {
        sites: &'a [InnerSite],
        closed: bool,
    }
    impl<'ast> Visit<'ast> for Lists<'_> {
        fn visit_block(&mut self, block: &'ast Block) {
            for (at, stmt) in block.stmts.iter().enumerate() {
                let tokens = stmt.to_token_stream().to_string();
                let spawned = self
                    .sites
                    .iter()
                    .filter(|site| tokens.contains(&site.statement));
                let watched: Vec<PlacePath> = spawned
                    .clone()
                    .flat_map(|site| site.path.iter().chain(&site.lent).cloned())
                    .collect();
                let closes = |later: &Stmt| is_sync(later) || mentions(reads(later), &watched);
                self.closed |= spawned.count() > 0 && block.stmts[at + 1..].iter().any(closes);
            }
            visit::visit_block(self, block);
        }
    }
    let mut lists = Lists {
        sites,
        closed: false,
    };
    lists.visit_stmt(stmt);
    lists.closed
}

fn is_loop(stmt: &Stmt) -> bool {
    matches!(
        stmt,
        Stmt::Expr(Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_), _)
    )
}

/// The part of a statement that runs while the children may be under way: all of it, but for the iterated expression of a
/// `for`, which is evaluated before.
fn repeated(stmt: &Stmt) -> TokenStream {
    let mut stmt = stmt.clone();
    if let Stmt::Expr(Expr::ForLoop(of), _) = &mut stmt {
        *of.expr = syn::parse_quote!(());
    }
    reads(&stmt)
}

/// Whether the `for` looks, before it starts, at a place that its children will write: `for i in 0..v.len() { v[i] = f(i); }`.
pub fn head_looks(of: &ExprForLoop) -> bool {
    struct Places(Vec<PlacePath>);
    impl<'ast> Visit<'ast> for Places {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            self.0
                .extend(DeferredStatement::of(expr).and_then(|site| site.path));
            visit::visit_expr(self, expr);
        }
    }
    let mut places = Places(Vec::new());
    places.visit_block(&of.body);
    let head = &of.expr;
    mentions(quote!(#head), &places.0)
}

/// Every name that a pattern in `stmt` binds.
pub fn declared_in(stmt: &Stmt) -> HashSet<String> {
    struct Names(HashSet<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
            self.0.insert(pat.ident.to_string());
            visit::visit_pat_ident(self, pat);
        }
    }
    let mut names = Names(HashSet::new());
    names.visit_stmt(stmt);
    names.0
}

/// The names that a pattern binds, in order, each with whether it is `mut`. A capitalised name is a constant or a unit variant.
pub fn bindings(pat: &Pat) -> Vec<PatIdent> {
    struct Names(Vec<PatIdent>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
            let constant = |name: &Ident| name.to_string().starts_with(char::is_uppercase);
            if pat.subpat.is_some() || pat.mutability.is_some() || !constant(&pat.ident) {
                self.0.push(PatIdent {
                    attrs: Vec::new(),
                    by_ref: pat.by_ref,
                    subpat: None,
                    ..pat.clone()
                });
            }
            visit::visit_pat_ident(self, pat);
        }
    }
    let mut names = Names(Vec::new());
    names.visit_pat(pat);
    names.0
}
