//! Finds the calls that spawn, and marks them.
//!
//! `fib(n - 1)` inside `fib`, `self.solve(d)` inside `solve`, `spawn!(even(n))`, `call!(..)` and `sync!()` are written in many
//! ways; after this pass each is a call of a *mark*, a name that no user writes, so that every later pass asks one question.
//! Knows nothing of where a call may stand: that is `check.rs`.

use proc_macro2::{Ident, Span, TokenStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Block, Expr, ExprCall, ExprMethodCall, ExprPath, Item, Macro, Path, Stmt, Token, parse_quote,
    parse_quote_spanned,
};

use super::errors::Errors;
use super::hygiene;
use super::parse::SpawnableFn;
use crate::in_place::{InPlace, Standing};

const SPAWN_OWN: &str = "__satin_spawn_own";
const SPAWN_OTHER: &str = "__satin_spawn_other";
const CALL_OWN: &str = "__satin_call_own";
const CALL_OTHER: &str = "__satin_call_other";
const SYNC: &str = "__satin_sync";
const LOOP: &str = "__satin_loop";

/// The treatment of a marked call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// A child that may run elsewhere.
    Spawn,
    /// A child that runs here and now.
    Call,
}

/// The callee of a marked call.
pub enum Callee<'e> {
    /// The function itself; a method's receiver is the first argument.
    Own(&'e Punctuated<Expr, Token![,]>),
    /// Another spawnable function: the call as it was written.
    Other(&'e Expr),
    /// A parallel loop: the macro as it was written, which has been read without an error.
    Loop(&'e Macro),
}

/// A call that the runtime is to hear of.
pub struct Marked<'e> {
    /// The treatment of the call.
    pub verb: Verb,
    /// The callee.
    pub callee: Callee<'e>,
}

impl<'e> Marked<'e> {
    /// The mark that `expr` is, if it is one.
    pub fn of(expr: &'e Expr) -> Option<Marked<'e>> {
        let Expr::Call(ExprCall { func, args, .. }) = expr else {
            return None;
        };
        let Expr::Path(ExprPath { path, .. }) = &**func else {
            return None;
        };
        let (verb, own) = match path.get_ident()?.to_string().as_str() {
            SPAWN_OWN => (Verb::Spawn, true),
            SPAWN_OTHER => (Verb::Spawn, false),
            CALL_OWN => (Verb::Call, true),
            CALL_OTHER => (Verb::Call, false),
            LOOP => {
                let Expr::Macro(mac) = args.first()? else {
                    return None;
                };
                let callee = Callee::Loop(&mac.mac);
                return Some(Marked {
                    verb: Verb::Call,
                    callee,
                });
            }
            _ => return None,
        };
        let callee = if own {
            Callee::Own(args)
        } else {
            Callee::Other(args.first()?)
        };
        Some(Marked { verb, callee })
    }

    /// The spawned call that `expr` is, and whether a `?` follows it.
    pub fn spawn(expr: &'e Expr) -> Option<(Callee<'e>, bool)> {
        let (call, speculative) = match expr {
            Expr::Try(tried) => (&*tried.expr, true),
            _ => (expr, false),
        };
        Marked::of(call)
            .filter(|mark| mark.verb == Verb::Spawn)
            .map(|mark| (mark.callee, speculative))
    }

    /// The expressions that are evaluated before the call.
    pub fn arguments(&self) -> Vec<&'e Expr> {
        match self.callee {
            Callee::Own(args) => args.iter().collect(),
            Callee::Other(Expr::Call(call)) => call.args.iter().collect(),
            Callee::Other(Expr::MethodCall(call)) => {
                std::iter::once(&*call.receiver).chain(&call.args).collect()
            }
            Callee::Other(_) | Callee::Loop(_) => Vec::new(),
        }
    }
}

/// Whether this statement is `sync!()`.
pub fn is_sync(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Expr(expr, _) if is_sync_expr(expr))
}

/// Whether this expression is `sync!()`.
pub fn is_sync_expr(expr: &Expr) -> bool {
    let Expr::Call(ExprCall { func, .. }) = expr else {
        return false;
    };
    matches!(&**func, Expr::Path(path) if path.path.is_ident(SYNC))
}

/// The marks that a search looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WantedMarks {
    Spawns,
    SpawnsAndCalls,
    Syncs,
}

struct MarkSearch {
    wanted: WantedMarks,
    found: Option<Span>,
}

impl<'ast> Visit<'ast> for MarkSearch {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        let hit = match self.wanted {
            WantedMarks::Spawns => Marked::of(expr).is_some_and(|mark| mark.verb == Verb::Spawn),
            WantedMarks::SpawnsAndCalls => Marked::of(expr).is_some(),
            WantedMarks::Syncs => is_sync_expr(expr),
        };
        if hit {
            self.found.get_or_insert(expr.span());
        }
        visit::visit_expr(self, expr);
    }
    fn visit_item(&mut self, _: &'ast Item) {}
}

fn search(wanted: WantedMarks, walk: impl FnOnce(&mut MarkSearch)) -> Option<Span> {
    let mut search = MarkSearch {
        wanted,
        found: None,
    };
    walk(&mut search);
    search.found
}

/// The place of the first spawned call in `expr`.
pub fn first_spawn(expr: &Expr) -> Option<Span> {
    search(WantedMarks::Spawns, |s| s.visit_expr(expr))
}

/// The place of the first spawned call in `stmt`.
pub fn first_spawn_in_stmt(stmt: &Stmt) -> Option<Span> {
    search(WantedMarks::Spawns, |s| s.visit_stmt(stmt))
}

/// Whether `expr` contains a call that the runtime is to hear of.
pub fn has_marks(expr: &Expr) -> bool {
    search(WantedMarks::SpawnsAndCalls, |s| s.visit_expr(expr)).is_some()
}

/// Whether `stmt` contains a call that the runtime is to hear of.
pub fn stmt_has_marks(stmt: &Stmt) -> bool {
    search(WantedMarks::SpawnsAndCalls, |s| s.visit_stmt(stmt)).is_some()
}

/// Whether `stmt` contains a `sync!()`, at any depth.
pub fn stmt_has_sync(stmt: &Stmt) -> bool {
    search(WantedMarks::Syncs, |s| s.visit_stmt(stmt)).is_some()
}

/// Whether `expr` contains a `sync!()`, at any depth.
pub fn has_sync(expr: &Expr) -> bool {
    search(WantedMarks::Syncs, |s| s.visit_expr(expr)).is_some()
}

/// A body whose calls are marked.
pub struct MarkedBody {
    /// The body, with marks.
    pub block: Block,
    /// The macros of satin in the body that were imported. They are gone now, so the compiler must be told that the
    /// imports are used.
    pub imported: Vec<Path>,
}

/// Marks every call of `job`'s body that the runtime is to hear of.
pub fn mark(job: &SpawnableFn, errors: &mut Errors) -> MarkedBody {
    let mut block = job.body.clone();
    Marker { job, errors }.visit_block_mut(&mut block);
    MarkedBody {
        block,
        imported: imported_macros(&job.body),
    }
}

/// The macros of satin in `block` that are called by an imported name.
pub fn imported_macros(block: &Block) -> Vec<Path> {
    struct Imported(Vec<Path>);
    impl<'ast> Visit<'ast> for Imported {
        fn visit_macro(&mut self, mac: &'ast Macro) {
            let imported = satin_macro(mac).is_some() && mac.path.get_ident().is_some();
            if imported && !self.0.contains(&mac.path) {
                self.0.push(mac.path.clone());
            }
        }
    }
    let mut imported = Imported(Vec::new());
    imported.visit_block(block);
    imported.0
}

/// The macros of satin that have a meaning of their own in the body of a spawnable function.
pub const SATIN_MACROS: [&str; 8] = [
    "spawn",
    "call",
    "seq",
    "sync",
    "par_map",
    "par_chunks",
    "par_reduce",
    "flow",
];

/// The macro of satin that `mac` is, by the last name of its path: `sync!`, `satin::sync!`.
pub fn satin_macro(mac: &Macro) -> Option<&'static str> {
    let name = &mac.path.segments.last()?.ident;
    SATIN_MACROS.into_iter().find(|known| name == known)
}

/// The expansion of a marked loop.
pub fn expand_loop(mac: &Macro, standing: Standing) -> TokenStream {
    let form = satin_macro(mac).and_then(InPlace::of);
    let form = form.expect("such a macro is marked as one");
    form.expand(mac.tokens.clone(), standing)
        .unwrap_or_else(syn::Error::into_compile_error)
}

/// `f(x)` becomes `prefix_f(x)`, `m::f(x)` becomes `m::prefix_f(x)`, `a.f(x)` becomes `a.prefix_f(x)`.
pub fn rename_callee(call: &mut Expr, prefix: &str) -> Result<(), syn::Error> {
    match call {
        Expr::MethodCall(ExprMethodCall {
            method,
            turbofish: None,
            ..
        }) => {
            *method = renamed(method, prefix);
            return Ok(());
        }
        Expr::Call(ExprCall { func, .. }) => {
            if let Expr::Path(path) = &mut **func {
                rename_path(path, prefix);
                return Ok(());
            }
        }
        Expr::Paren(paren) => return rename_callee(&mut paren.expr, prefix),
        Expr::Group(group) => return rename_callee(&mut group.expr, prefix),
        _ => {}
    }
    Err(syn::Error::new_spanned(
        call,
        "expected a call of a spawnable function by its name: `f(x)`, `module::f(x)`, `Type::f(x)` or `value.f(x)`",
    ))
}

/// `f` becomes `prefix_f`, `m::f` becomes `m::prefix_f`.
pub fn rename_path(path: &mut ExprPath, prefix: &str) {
    if let Some(last) = path.path.segments.last_mut() {
        last.ident = renamed(&last.ident, prefix);
    }
}

fn renamed(name: &Ident, prefix: &str) -> Ident {
    Ident::new(&format!("{prefix}{name}"), name.span())
}

/// `instead`, which stands in the place of `call`, after a mention of the function that `call` names without a path: if only that name was
/// imported, the compiler complains of the path that is missing, and not of an import without use.
pub fn with_mention(call: &Expr, instead: TokenStream) -> TokenStream {
    let path = match call {
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path,
            _ => return instead,
        },
        Expr::Path(path) => path,
        _ => return instead,
    };
    match path.path.get_ident() {
        Some(name) => hygiene::quote!({ let _ = #name; #instead }),
        None => instead,
    }
}

struct Marker<'a> {
    job: &'a SpawnableFn,
    errors: &'a mut Errors,
}

impl Marker<'_> {
    /// The arguments, if `expr` is a call of the function itself.
    fn own_call(&self, expr: &Expr) -> Option<Punctuated<Expr, Token![,]>> {
        match expr {
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else {
                    return None;
                };
                self.job.is_own_path(path).then(|| call.args.clone())
            }
            Expr::MethodCall(call) => {
                let on_self = matches!(&*call.receiver, Expr::Path(p) if p.path.is_ident("self"));
                let own = on_self && self.job.receiver.is_some() && call.method == self.job.name;
                own.then(|| {
                    let receiver = self.job.lend_receiver(&call.receiver);
                    std::iter::once(receiver)
                        .chain(call.args.iter().cloned())
                        .collect()
                })
            }
            Expr::Paren(paren) => self.own_call(&paren.expr),
            Expr::Group(group) => self.own_call(&group.expr),
            _ => None,
        }
    }

    fn marked(&self, verb: Verb, call: &Expr) -> Expr {
        let span = call.span();
        let own = self.own_call(call);
        let name = match (verb, &own) {
            (Verb::Spawn, Some(_)) => SPAWN_OWN,
            (Verb::Spawn, None) => SPAWN_OTHER,
            (Verb::Call, Some(_)) => CALL_OWN,
            (Verb::Call, None) => CALL_OTHER,
        };
        let name = Ident::new(name, span);
        match own {
            Some(args) => parse_quote_spanned!(span=> #name(#args)),
            None => parse_quote_spanned!(span=> #name(#call)),
        }
    }

    /// The expression that takes the place of a macro of satin's.
    fn replace_macro(&mut self, mac: &Macro) -> Option<Expr> {
        let name = satin_macro(mac)?;
        if name == "sync" {
            if !mac.tokens.is_empty() {
                self.errors.at(
                    &mac.tokens,
                    "`sync!()` takes no arguments: it waits for every child of this invocation",
                );
            }
            let sync = Ident::new(SYNC, mac.path.span());
            return Some(parse_quote!(#sync()));
        }
        if let Some(form) = InPlace::of(name) {
            return Some(match form.expand(mac.tokens.clone(), Standing::InJob) {
                Ok(_) => {
                    let mark = Ident::new(LOOP, mac.path.span());
                    parse_quote!(#mark(#mac))
                }
                Err(error) => {
                    self.errors.push(error);
                    parse_quote!(())
                }
            });
        }
        let call = syn::parse2::<Expr>(mac.tokens.clone()).and_then(|call| {
            let prefix = if name == "seq" {
                super::TWIN
            } else {
                super::COMPANION
            };
            let mut renamed = call.clone();
            rename_callee(&mut renamed, prefix).map(|()| (call, renamed))
        });
        match call {
            Ok((_, renamed)) if name == "seq" => Some(renamed),
            Ok((call, _)) => Some(self.marked(
                if name == "spawn" {
                    Verb::Spawn
                } else {
                    Verb::Call
                },
                &call,
            )),
            Err(error) => {
                let hint = if mac.tokens.is_empty() {
                    " (nothing is there)"
                } else {
                    ""
                };
                self.errors
                    .push(syn::Error::new(error.span(), format!("{error}{hint}")));
                Some(parse_quote!(()))
            }
        }
    }
}

impl VisitMut for Marker<'_> {
    fn visit_item_mut(&mut self, _: &mut Item) {}

    fn visit_stmt_mut(&mut self, stmt: &mut Stmt) {
        if let Stmt::Macro(mac) = stmt
            && let Some(expr) = self.replace_macro(&mac.mac)
        {
            *stmt = Stmt::Expr(expr, mac.semi_token);
        }
        visit_mut::visit_stmt_mut(self, stmt);
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        if let Expr::Macro(mac) = expr {
            if let Some(replacement) = self.replace_macro(&mac.mac) {
                *expr = replacement;
            }
        } else if self.own_call(expr).is_some() && !matches!(expr, Expr::Paren(_) | Expr::Group(_))
        {
            *expr = self.marked(Verb::Spawn, expr);
        }
        match expr {
            Expr::Call(mark) if is_loop(mark) => {}
            // The call inside the mark has been dealt with; its receiver and its arguments have not.
            Expr::Call(mark) if is_other(mark) => {
                if let Some(call) = mark.args.first_mut() {
                    self.visit_parts_of_call(call);
                }
            }
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }
}

impl Marker<'_> {
    fn visit_parts_of_call(&mut self, call: &mut Expr) {
        match call {
            Expr::Call(call) => call
                .args
                .iter_mut()
                .for_each(|arg| self.visit_expr_mut(arg)),
            Expr::MethodCall(call) => {
                self.visit_expr_mut(&mut call.receiver);
                call.args
                    .iter_mut()
                    .for_each(|arg| self.visit_expr_mut(arg));
            }
            Expr::Paren(paren) => self.visit_parts_of_call(&mut paren.expr),
            Expr::Group(group) => self.visit_parts_of_call(&mut group.expr),
            _ => {}
        }
    }
}

fn is_loop(mark: &ExprCall) -> bool {
    matches!(&*mark.func, Expr::Path(path) if path.path.is_ident(LOOP))
}

fn is_other(mark: &ExprCall) -> bool {
    matches!(&*mark.func, Expr::Path(path) if path.path.is_ident(SPAWN_OTHER) || path.path.is_ident(CALL_OTHER))
}
