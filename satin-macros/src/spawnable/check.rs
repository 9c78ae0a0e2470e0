//! Refuses spawned calls where none may stand, and calls that look like a spawn but are none: never silently sequential.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, ExprClosure, ExprPath, Item, Macro, PatIdent, Stmt};

use super::errors::Errors;
use super::iterators::{FOLLOWERS, consumed_map, spawning_map};
use super::mark::{
    Callee, Marked, SATIN_MACROS, first_spawn, first_spawn_in_stmt, has_sync, is_sync_expr,
};
use super::parse::SpawnableFn;
use super::signature::may_fail;
use super::site::{delivers_to_no_place, is_place};

/// Complains about everything in the marked body that the next passes could not, or should not, lower.
pub fn check(job: &SpawnableFn, marked: &Block, errors: &mut Errors) {
    let mut check = Check {
        job,
        errors,
        name_is_taken: takes_name(job, marked),
    };
    check.statements(marked);
}

struct Check<'a> {
    job: &'a SpawnableFn,
    errors: &'a mut Errors,
    /// A variable has the function's name: that is the error, and not each mention of the variable.
    name_is_taken: bool,
}

/// Whether a variable in the body of a free function has the function's name.
fn takes_name(job: &SpawnableFn, body: &Block) -> bool {
    struct Takes<'a>(&'a Ident, bool);
    impl<'ast> Visit<'ast> for Takes<'_> {
        fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
            self.1 |= pat.ident == *self.0;
            visit::visit_pat_ident(self, pat);
        }
        fn visit_item(&mut self, _: &'ast Item) {}
    }
    let mut takes = Takes(&job.name, false);
    takes.visit_block(body);
    job.self_type.is_none() && takes.1
}

impl Check<'_> {
    fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.errors.at_span(span, message);
    }

    fn name(&self) -> &Ident {
        &self.job.name
    }

    fn statements(&mut self, block: &Block) {
        block.stmts.iter().for_each(|stmt| self.visit_stmt(stmt));
    }

    /// Reports an error if `expr` spawns.
    fn refuse(&mut self, expr: &Expr, message: impl std::fmt::Display) {
        if let Some(span) = first_spawn(expr) {
            self.at(span, message);
        }
    }

    /// An expression that must give a value: a spawn as the value of a branch could only be waited for in the branch.
    fn value(&mut self, expr: &Expr) {
        if let Some(span) = spawn_as_branch_value(expr) {
            self.at(
                span,
                "a spawned call cannot be the value of a branch, since it would be waited for right there: declare the variable before, and assign \
                 inside the branch: `let x; if c { x = f(a) } else { x = 0 }`",
            );
        }
    }

    fn cfg(&mut self, attrs: &[Attribute], spawn: Option<Span>) {
        let (Some(span), true) = (
            spawn,
            attrs
                .iter()
                .any(|attr| attr.path().is_ident("cfg") || attr.path().is_ident("cfg_attr")),
        ) else {
            return;
        };
        self.at(
            span,
            "a spawned call cannot stand in a statement under `#[cfg]`, which the macro cannot judge: put the `#[cfg]` on two versions of the whole function, or use `if cfg!(..)`",
        );
    }

    /// A call that looks recursive, but is not on `self`, or goes by another path.
    fn unrecognised(&mut self, span: Span, call: &str) {
        let name = self.name().clone();
        self.at(span, format!("is this a call of `{name}` itself? Write `spawn!({call})` to spawn it, or `call!({call})` to call it in place"));
    }

    /// A `?` on a call of the function itself, whose results cannot be failures.
    fn tried(&mut self, of: &syn::ExprTry) {
        let own = Marked::of(&of.expr).is_some_and(|mark| matches!(mark.callee, Callee::Own(_)));
        let output = &self.job.output;
        if own && !may_fail(output) {
            let message = format!(
                "`?` follows a spawned call that returns `{}`: leave it out, or let `{}` return a `Result`, an `Option` or a `ControlFlow`",
                quote::quote!(#output).to_string().replace(' ', ""),
                self.name(),
            );
            self.at(of.question_token.span(), message);
        }
    }

    fn iterator_form(&mut self, closure: &ExprClosure) {
        if let Some(span) = leaves(&closure.body) {
            self.at(span, "a closure that spawns cannot use `?` or `return`: write a `for` loop that pushes into a vector");
        }
        self.value(&closure.body);
        for input in &closure.inputs {
            self.visit_pat(input);
        }
        self.visit_expr(&closure.body);
    }
}

/// The place of a `?` or a `return` in a closure's body.
fn leaves(body: &Expr) -> Option<Span> {
    struct Leaves(Option<Span>);
    impl<'ast> Visit<'ast> for Leaves {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            match expr {
                Expr::Try(tried) => self.0 = Some(tried.question_token.span()),
                Expr::Return(of) => self.0 = Some(of.return_token.span()),
                Expr::Closure(_) => {}
                _ => visit::visit_expr(self, expr),
            }
        }
        fn visit_item(&mut self, _: &'ast Item) {}
    }
    let mut leaves = Leaves(None);
    leaves.visit_expr(body);
    leaves.0
}

/// The spawned call that is the value of one of the branches in `expr`.
fn spawn_as_branch_value(expr: &Expr) -> Option<Span> {
    struct Branches(Option<Span>);
    impl Branches {
        fn value_of(&mut self, value: &Expr) {
            match value {
                Expr::Block(of) => self.value_of_block(&of.block),
                Expr::If(_) | Expr::Match(_) => self.visit_expr(value),
                _ => self.0 = self.0.or_else(|| first_spawn(value)),
            }
        }
        fn value_of_block(&mut self, block: &Block) {
            if let Some(Stmt::Expr(value, None)) = block.stmts.last() {
                self.value_of(value);
            }
        }
    }
    impl<'ast> Visit<'ast> for Branches {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            match expr {
                Expr::If(of) => {
                    self.value_of_block(&of.then_branch);
                    if let Some((_, other)) = &of.else_branch {
                        self.value_of(other);
                    }
                }
                Expr::Match(of) => of.arms.iter().for_each(|arm| self.value_of(&arm.body)),
                Expr::Closure(_)
                | Expr::Loop(_)
                | Expr::While(_)
                | Expr::ForLoop(_)
                | Expr::Block(_)
                | Expr::Unsafe(_) => {}
                _ => visit::visit_expr(self, expr),
            }
        }
    }
    let mut branches = Branches(None);
    branches.visit_expr(expr);
    branches.0
}

impl<'ast> Visit<'ast> for Check<'_> {
    fn visit_item(&mut self, _: &'ast Item) {}

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        match stmt {
            Stmt::Local(local) => {
                self.cfg(&local.attrs, first_spawn_in_stmt(stmt));
                if let Some(init) = &local.init {
                    self.value(&init.expr);
                }
            }
            Stmt::Expr(expr, _) => {
                self.cfg(attributes(expr), first_spawn(expr));
                match expr {
                    Expr::Assign(assign) => self.value(&assign.right),
                    Expr::MethodCall(call) => call.args.iter().for_each(|arg| self.value(arg)),
                    _ => {}
                }
                if consumed_map(expr).is_none()
                    && let Some(span) = delivers_to_no_place(expr)
                {
                    self.at(
                        span,
                        "the result of a spawned call can only be delivered to a place (a variable, its fields, its elements): \
                         write `let x = f(..);` and give `x` away after the sync",
                    );
                }
            }
            Stmt::Item(_) | Stmt::Macro(_) => {}
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if let Some((_, closure)) = consumed_map(expr) {
            if let Expr::MethodCall(call) = expr {
                call.args.iter().for_each(|arg| self.visit_expr(arg));
                if let Expr::MethodCall(map) = &*call.receiver {
                    self.visit_expr(&map.receiver);
                }
            }
            return self.iterator_form(closure);
        }
        if let Some((map, _)) = spawning_map(expr) {
            let message = format!(
                "after a `.map(..)` that spawns comes at once what takes its values in: `.{}()`",
                FOLLOWERS
                    .join("()`, `.")
                    .replace("`, `.count()", "` or `.count()")
            );
            self.at(map.method.span(), message);
            return;
        }
        match expr {
            Expr::Closure(closure) => {
                self.refuse(
                    expr,
                    "a spawned call cannot stand in a closure, which may run at any time: write a loop, or `xs.iter().map(|x| f(x)).collect()`; `call!(..)` runs it in place",
                );
                if has_sync(expr) {
                    self.at(closure.span(), "`sync!()` cannot stand in a closure: write it in the function's own blocks");
                }
                return visit::visit_expr_closure(self, closure);
            }
            Expr::Async(_) => self.refuse(expr, "a spawned call cannot stand in an `async` block, which runs at another time: spawn before it"),
            Expr::Binary(of) if matches!(of.op, BinOp::And(_) | BinOp::Or(_)) => self.refuse(
                expr,
                "a spawned call cannot stand beside `&&` or `||`, which may skip it: write `let x = f(..);` before, or `call!(f(..))` to call it in place",
            ),
            Expr::While(of) => self.refuse(
                &of.cond,
                "a spawned call cannot stand in the condition of a `while`, which waits for it in every round: write `call!(f(..))`, or `loop { let x = f(..); if !x { break; } .. }`",
            ),
            Expr::Path(path) => self.function_as_value(path),
            Expr::Try(of) => self.tried(of),
            Expr::Call(call) if Marked::of(expr).is_none() && !is_sync_expr(expr) => {
                if let Expr::Path(path) = &*call.func {
                    self.other_path(path, expr);
                    call.args.iter().for_each(|arg| self.visit_expr(arg));
                    return;
                }
            }
            Expr::MethodCall(call) => {
                let looks_recursive = self.job.receiver.is_some() && call.method == *self.name() && is_place(&call.receiver);
                if looks_recursive {
                    let receiver = &call.receiver;
                    let text = quote::quote!(#receiver).to_string().replace(' ', "");
                    self.unrecognised(expr.span(), &format!("{text}.{}(..)", call.method));
                }
            }
            _ => {}
        }
        match Marked::of(expr) {
            // The callee of a mark has been recognised; only its arguments are looked at.
            Some(mark) => mark.arguments().into_iter().for_each(|arg| {
                self.value(arg);
                self.visit_expr(arg);
            }),
            None => visit::visit_expr(self, expr),
        }
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        if let Some(span) = self.spawn_in_tokens(mac.tokens.clone()) {
            self.at(
                span,
                "a spawned call cannot stand in another macro, whose meaning is unknown here: write `let x = f(..);` before, and use `x`",
            );
        }
    }

    fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
        if self.job.self_type.is_none() && pat.ident == *self.name() {
            let name = self.name().clone();
            self.at(pat.ident.span(), format!("a variable in `{name}` cannot be called `{name}` too, calls could not be told apart: give it another name"));
        }
        visit::visit_pat_ident(self, pat);
    }
}

impl Check<'_> {
    fn function_as_value(&mut self, path: &ExprPath) {
        if self.job.is_own_path(path) && !self.name_is_taken {
            let name = self.name().clone();
            self.at(path.span(), format!("`{name}` as a value would run in sequence: call it, in a loop or as `.map(|x| {name}(x))`"));
        }
    }

    /// Reports a call by another path, such as `m::fib(..)` in `fib`.
    fn other_path(&mut self, path: &ExprPath, call: &Expr) {
        let mut segments = path
            .path
            .segments
            .iter()
            .rev()
            .map(|segment| segment.ident.to_string());
        let same_name =
            path.qself.is_none() && segments.next().is_some_and(|last| *self.name() == last);
        let of = segments.next();
        let of_a_module = of
            .as_ref()
            .is_some_and(|of| of.starts_with(char::is_lowercase));
        let of_this_type = of.is_some() && of == self.job.type_name().map(Ident::to_string);
        if same_name && ((self.job.self_type.is_none() && of_a_module) || of_this_type) {
            let text = quote::quote!(#path).to_string().replace(' ', "");
            self.unrecognised(call.span(), &format!("{text}(..)"));
        }
    }

    /// The place where tokens of a macro call the function itself, or a macro of satin's.
    fn spawn_in_tokens(&self, tokens: TokenStream) -> Option<Span> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_punct = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
        let is_call = |at: usize| matches!(tokens.get(at), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
        (0..tokens.len()).find_map(|at| match &tokens[at] {
            TokenTree::Group(group) => self.spawn_in_tokens(group.stream()),
            TokenTree::Ident(name) => {
                let macro_of_satin = is_punct(at + 1, '!')
                    && SATIN_MACROS
                        .iter()
                        .any(|known| name == known && *known != "seq");
                let own =
                    name == self.name() && is_call(at + 1) && self.is_own_in_tokens(&tokens[..at]);
                (macro_of_satin || own).then(|| name.span())
            }
            _ => None,
        })
    }

    /// Whether the name after these tokens is the function's: a free `fib`, or `self.solve`, `Self::solve`.
    fn is_own_in_tokens(&self, before: &[TokenTree]) -> bool {
        let text: Vec<String> = before
            .iter()
            .rev()
            .take(3)
            .map(ToString::to_string)
            .collect();
        let text: Vec<&str> = text.iter().map(String::as_str).collect();
        match (&self.job.self_type, &text[..]) {
            (None, [".", ..] | [":", ..]) => false,
            (None, _) => true,
            (Some(_), [".", "self", ..]) => self.job.receiver.is_some(),
            (Some(_), [":", ":", of]) => {
                *of == "Self" || self.job.type_name().is_some_and(|name| name == of)
            }
            _ => false,
        }
    }
}

fn attributes(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Call(of) => &of.attrs,
        Expr::MethodCall(of) => &of.attrs,
        Expr::Assign(of) => &of.attrs,
        Expr::Binary(of) => &of.attrs,
        Expr::If(of) => &of.attrs,
        Expr::Match(of) => &of.attrs,
        Expr::Block(of) => &of.attrs,
        Expr::ForLoop(of) => &of.attrs,
        Expr::While(of) => &of.attrs,
        Expr::Loop(of) => &of.attrs,
        Expr::Return(of) => &of.attrs,
        Expr::Try(of) => &of.attrs,
        _ => &[],
    }
}
