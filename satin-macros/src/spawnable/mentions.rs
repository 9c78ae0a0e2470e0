//! Does this piece of the program mention that place?
//!
//! Decides where a sync is implied. It looks at tokens, so it also sees into macros and into `"{x}"`, and it may err on
//! the safe side. It may also miss a mention (one that a macro makes up): such a program does not compile, because until
//! the sync a spawned `let` is unassigned and a place is borrowed. Safety never rests on this file.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{Expr, ExprField, ExprIndex, ExprParen, ExprReference, ExprUnary, Member, UnOp};

/// The part of a place that can be told by its names: `s.cells[i].x` is `s.cells`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacePath(Vec<String>);

impl PlacePath {
    /// The path of a plain variable.
    pub fn variable(name: impl ToString) -> PlacePath {
        PlacePath(vec![name.to_string()])
    }

    /// The variable that the place belongs to.
    pub fn root(&self) -> &str {
        &self.0[0]
    }

    /// The path of a place, with what indexing and method calls hide left off. `None` if it belongs to no variable.
    pub fn of(place: &Expr) -> Option<PlacePath> {
        PlacePath::walk(place).map(|(path, _)| path)
    }

    /// The path so far, and whether fields after it can still be told apart.
    fn walk(place: &Expr) -> Option<(PlacePath, bool)> {
        match place {
            Expr::Path(path) => path
                .path
                .get_ident()
                .map(|name| (PlacePath::variable(name), true)),
            Expr::Field(ExprField { base, member, .. }) => {
                PlacePath::walk(base).map(|(mut path, exact)| {
                    if exact {
                        path.0.push(match member {
                            Member::Named(name) => name.to_string(),
                            Member::Unnamed(index) => index.index.to_string(),
                        });
                    }
                    (path, exact)
                })
            }
            Expr::Index(ExprIndex { expr, .. }) => {
                PlacePath::walk(expr).map(|(path, _)| (path, false))
            }
            Expr::Unary(ExprUnary {
                op: UnOp::Deref(_),
                expr,
                ..
            }) => PlacePath::walk(expr).map(|(path, _)| (path, false)),
            Expr::Paren(ExprParen { expr, .. }) => PlacePath::walk(expr),
            Expr::Reference(ExprReference { expr, .. }) => PlacePath::walk(expr),
            Expr::Group(group) => PlacePath::walk(&group.expr),
            _ => None,
        }
    }

    /// Whether the two may be the same memory: one is a part of the other.
    pub fn overlaps(&self, other: &PlacePath) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a == b)
    }
}

impl std::fmt::Display for PlacePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// Whether `tokens` mention any of `paths`.
pub fn mentions(tokens: TokenStream, paths: &[PlacePath]) -> bool {
    if paths.is_empty() {
        return false;
    }
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    (0..tokens.len()).any(|at| match &tokens[at] {
        TokenTree::Group(group) => mentions(group.stream(), paths),
        TokenTree::Literal(literal) => names_in_string(&literal.to_string())
            .any(|name| paths.iter().any(|path| path.root() == name)),
        TokenTree::Ident(_) if is_member(&tokens, at) => false,
        TokenTree::Ident(_) => {
            let mentioned = path_at(&tokens, at);
            paths.iter().any(|path| path.overlaps(&mentioned))
        }
        TokenTree::Punct(_) => false,
    })
}

fn is_dot(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == '.')
}

/// Whether the identifier at `at` is a field or a method: after one dot, not after the two of a range.
fn is_member(tokens: &[TokenTree], at: usize) -> bool {
    at >= 1 && is_dot(tokens, at - 1) && !(at >= 2 && is_dot(tokens, at - 2))
}

/// The longest path of fields that starts with the identifier at `at`.
fn path_at(tokens: &[TokenTree], mut at: usize) -> PlacePath {
    let mut path = vec![tokens[at].to_string()];
    while is_dot(tokens, at + 1) {
        let is_call = matches!(tokens.get(at + 3), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(field)) if !is_call => path.push(field.to_string()),
            Some(TokenTree::Literal(index)) => {
                path.extend(index.to_string().split('.').map(str::to_owned))
            }
            _ => break,
        }
        at += 2;
    }
    PlacePath(path)
}

/// The variables that a format string captures: `"{x:?} {y}"` has `x` and `y`.
fn names_in_string(literal: &str) -> impl Iterator<Item = &str> {
    let is_string = literal.ends_with(['"', '#']);
    let holes = is_string
        .then(|| literal.split('{').skip(1))
        .into_iter()
        .flatten();
    holes.flat_map(|hole| hole.split(|c: char| !(c.is_alphanumeric() || c == '_')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mentioned(program: &str, place: &str) -> bool {
        let path = PlacePath::of(&syn::parse_str(place).unwrap()).unwrap();
        mentions(program.parse().unwrap(), &[path])
    }

    #[test]
    fn variables_are_seen_wherever_they_stand() {
        for program in [
            "x + 1",
            "f(&x)",
            "println!(\"{x:?}\")",
            "S { x }",
            "0..x",
            "x.len()",
            "vec![x; 2]",
            "a[x]",
            "match x { _ => 1 }",
        ] {
            assert!(mentioned(program, "x"), "{program}");
        }
        for program in ["y", "a.x", "a.x()", "\"x\"", "'x'", "f(y.x)"] {
            assert!(!mentioned(program, "x"), "{program}");
        }
    }

    #[test]
    fn fields_are_told_apart() {
        for program in ["s.a", "s", "s.a.len()", "s.clear()", "s.a.0", "f(&mut s)"] {
            assert!(mentioned(program, "s.a[3]"), "{program}");
        }
        assert!(!mentioned("s.b.len()", "s.a"));
        assert!(!mentioned("p.0 + 1", "p.1"));
        assert!(mentioned("p.1 + 1", "p.1"));
    }
}
