//! Finds the tests at the start of a body by which a leaf ends: `if n < 2 { return n.into(); }`,
//! `let Some(left) = tree.left.as_deref() else { return 0; };`.
//!
//! Such tests are repeated where the body is called, so that a leaf costs no call. Repeating is right only where a
//! condition may be evaluated twice and moves nothing: comparisons of plain values, no calls but a few well-known ones.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Block, Expr, LocalInit, Stmt, Type};

use super::parse::SpawnableFn;

/// The most tokens of a test.
const MOST_TOKENS: usize = 60;

/// Types whose values a condition can use without moving them.
const PLAIN: [&str; 17] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64", "bool", "char", "str",
];

/// Methods that look and do not touch.
const LOOKING: [&str; 8] = [
    "as_deref",
    "as_ref",
    "count_ones",
    "is_empty",
    "is_none",
    "is_power_of_two",
    "is_some",
    "len",
];

/// The tests at the start of the body.
pub fn tests<'b>(job: &SpawnableFn, body: &'b Block) -> Vec<&'b Stmt> {
    body.stmts
        .iter()
        .take_while(|stmt| is_test(job, stmt))
        .collect()
}

fn is_test(job: &SpawnableFn, stmt: &Stmt) -> bool {
    let (condition, exit) = match stmt {
        Stmt::Expr(Expr::If(test), _) if test.attrs.is_empty() && test.else_branch.is_none() => {
            (&*test.cond, &test.then_branch)
        }
        Stmt::Local(local) if local.attrs.is_empty() => match &local.init {
            Some(LocalInit {
                expr,
                diverge: Some((_, exit)),
                ..
            }) => match &**exit {
                Expr::Block(exit) => (&**expr, &exit.block),
                _ => return false,
            },
            _ => return false,
        },
        _ => return false,
    };
    let returns = matches!(exit.stmts.last(), Some(Stmt::Expr(Expr::Return(_), _)));
    returns
        && count_tokens(stmt.to_token_stream()) <= MOST_TOKENS
        && is_plain(&exit.to_token_stream())
        && is_repeatable(job, condition)
}

/// True if the tokens hold nothing that must not stand in a program twice, or that an earlier pass has marked.
fn is_plain(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().all(|token| match token {
        TokenTree::Group(group) => is_plain(&group.stream()),
        TokenTree::Ident(ident) => {
            let name = ident.to_string();
            !name.starts_with("__")
                && !["static", "fn", "use", "const", "satin"].contains(&name.as_str())
        }
        _ => true,
    })
}

/// May be evaluated twice, and moves nothing.
fn is_repeatable(job: &SpawnableFn, expr: &Expr) -> bool {
    let all = |exprs: &[&Expr]| exprs.iter().all(|expr| is_repeatable(job, expr));
    match expr {
        Expr::Lit(_) => true,
        Expr::Path(path) => path.path.get_ident().is_some_and(|name| {
            let constant = name
                .to_string()
                .chars()
                .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
            constant
                || job
                    .params
                    .iter()
                    .any(|param| param.name == *name && is_plain_type(&param.ty))
        }),
        Expr::Paren(inner) => all(&[&inner.expr]),
        Expr::Field(field) => all(&[&field.base]),
        Expr::Reference(reference) => reference.mutability.is_none() && all(&[&reference.expr]),
        Expr::Tuple(tuple) => tuple.elems.iter().all(|elem| is_repeatable(job, elem)),
        Expr::Unary(unary) => all(&[&unary.expr]),
        Expr::Cast(cast) => all(&[&cast.expr]) && is_plain_type(&cast.ty),
        Expr::Binary(binary) => !is_assignment(&binary.op) && all(&[&binary.left, &binary.right]),
        Expr::MethodCall(call) => {
            call.args.is_empty()
                && LOOKING.iter().any(|name| call.method == name)
                && all(&[&call.receiver])
        }
        _ => false,
    }
}

fn is_assignment(op: &syn::BinOp) -> bool {
    // `+=` and its like are the operators of two or three characters that end in a lone `=`.
    let text = op.to_token_stream().to_string();
    text.ends_with('=') && !["==", "!=", "<=", ">="].contains(&text.as_str())
}

fn is_plain_type(ty: &Type) -> bool {
    match ty {
        Type::Reference(_) => true,
        Type::Path(path) => path
            .path
            .get_ident()
            .is_some_and(|name| PLAIN.iter().any(|plain| name == plain)),
        _ => false,
    }
}

/// The tokens of an expansion, with those in groups.
pub(super) fn count_tokens(tokens: TokenStream) -> usize {
    tokens
        .into_iter()
        .map(|token| match token {
            proc_macro2::TokenTree::Group(group) => 2 + count_tokens(group.stream()),
            _ => 1,
        })
        .sum()
}
