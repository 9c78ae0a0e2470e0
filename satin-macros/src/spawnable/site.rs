//! A statement that hands a child's result to a place: `total += f(x)`, `v[i] = f(x)`, `v.push(f(x))`; and the bare `f(x);`.
//!
//! Expressions beside the call (an index, other arguments) are *operands*: evaluated at the spawn, kept until the
//! delivery.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Arm, BinOp, Expr, ExprPath, Stmt, UnOp, parse_quote};

use super::mark::{Marked, first_spawn, has_marks};
use super::mentions::PlacePath;

/// A statement whose effect on a place can wait for the sync.
pub struct DeferredStatement {
    /// The place that is written; none for a bare `f(x);`.
    pub path: Option<PlacePath>,
    /// The operands, evaluated at the spawn, each with the name that `deliver` knows it by.
    pub operands: Vec<(Ident, Expr)>,
    /// Operands that are indices with more of the place behind them, `i` in `grid[i][j]` and `rows[i].push(..)`: the
    /// compiler must know their type where they are delivered, and it is taken to be `usize`.
    pub inner_indices: Vec<Ident>,
    /// The statement, with the operands' names in it and its spawned calls still marked.
    pub deliver: Expr,
    /// The statement's place in the source.
    pub span: Span,
}

impl DeferredStatement {
    /// The site that this statement is, if it is one.
    pub fn of(statement: &Expr) -> Option<DeferredStatement> {
        if Marked::spawn(statement).is_some() {
            return Some(DeferredStatement {
                path: None,
                operands: Vec::new(),
                inner_indices: Vec::new(),
                deliver: statement.clone(),
                span: statement.span(),
            });
        }
        let mut deliver = statement.clone();
        let (place, values) = parts(&mut deliver)?;
        if !is_place(place)
            || has_marks(place)
            || !values.iter().any(|value| has_direct_spawn(value))
        {
            return None;
        }
        let path = PlacePath::of(place)?;
        let whole = place.to_token_stream().to_string();
        let mut operands = Operands {
            place: whole,
            found: Vec::new(),
            inner_indices: Vec::new(),
        };
        let is_receiver = matches!(statement, Expr::MethodCall(_));
        operands.take_indices(place, is_receiver);
        let inner_indices = std::mem::take(&mut operands.inner_indices);
        values.into_iter().for_each(|value| operands.take(value));
        Some(DeferredStatement {
            path: Some(path),
            operands: operands.found,
            inner_indices,
            span: statement.span(),
            deliver,
        })
    }

    /// The expressions that the statement reads at the spawn: operands, and the arguments of its spawned calls.
    pub fn reads(&self) -> Expr {
        let mut reads: Vec<Expr> = self
            .operands
            .iter()
            .map(|(_, operand)| operand.clone())
            .collect();
        visit_marks(&self.deliver, &mut |mark| {
            reads.extend(mark.arguments().into_iter().cloned())
        });
        parse_quote!((#(#reads,)*))
    }
}

/// The place and the values of an assignment, a compound assignment or a method call.
fn parts(statement: &mut Expr) -> Option<(&mut Expr, Vec<&mut Expr>)> {
    match statement {
        Expr::Assign(assign) => Some((&mut assign.left, vec![&mut assign.right])),
        Expr::Binary(binary) if is_compound(&binary.op) => {
            Some((&mut binary.left, vec![&mut binary.right]))
        }
        Expr::MethodCall(call) if Marked::of(&call.receiver).is_none() => {
            Some((&mut call.receiver, call.args.iter_mut().collect()))
        }
        _ => None,
    }
}

fn is_compound(op: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

/// Whether `expr` names memory: a variable, and fields, elements and targets of places.
pub fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(ExprPath {
            qself: None, path, ..
        }) => path.get_ident().is_some(),
        Expr::Field(field) => is_place(&field.base),
        Expr::Index(index) => is_place(&index.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)) && is_place(&unary.expr),
        Expr::Paren(paren) => is_place(&paren.expr),
        Expr::Group(group) => is_place(&group.expr),
        _ => false,
    }
}

/// Whether `expr` spawns other than inside a block of its own.
fn has_direct_spawn(expr: &Expr) -> bool {
    struct Direct(bool);
    impl<'ast> Visit<'ast> for Direct {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            if Marked::spawn(expr).is_some() {
                self.0 = true;
            } else if !is_control_flow(expr) && !matches!(expr, Expr::Closure(_)) {
                visit::visit_expr(self, expr);
            }
        }
    }
    let mut direct = Direct(false);
    direct.visit_expr(expr);
    direct.0
}

/// Whether `expr` has blocks of its own, with statements that spawn by themselves.
pub fn is_control_flow(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::If(_)
            | Expr::Match(_)
            | Expr::Block(_)
            | Expr::Unsafe(_)
            | Expr::Loop(_)
            | Expr::While(_)
            | Expr::ForLoop(_)
    )
}

/// Takes out of a statement what is to be evaluated at the spawn.
struct Operands {
    /// The place that is written, as tokens: `best = max(best, f(x))` reads it at the delivery.
    place: String,
    found: Vec<(Ident, Expr)>,
    inner_indices: Vec<Ident>,
}

impl Operands {
    fn take(&mut self, expr: &mut Expr) {
        if !has_marks(expr) {
            if !self.stays(expr) {
                self.keep(expr);
            }
            return;
        }
        if Marked::spawn(expr).is_some() {
            return;
        }
        match expr {
            Expr::Binary(binary) => {
                self.take(&mut binary.left);
                self.take(&mut binary.right);
            }
            Expr::Call(call) => call.args.iter_mut().for_each(|arg| self.take(arg)),
            Expr::MethodCall(call) => {
                self.take(&mut call.receiver);
                call.args.iter_mut().for_each(|arg| self.take(arg));
            }
            Expr::Struct(literal) => {
                literal
                    .fields
                    .iter_mut()
                    .for_each(|field| self.take(&mut field.expr));
                if let Some(rest) = &mut literal.rest {
                    self.take(rest);
                }
            }
            Expr::Tuple(tuple) => tuple.elems.iter_mut().for_each(|elem| self.take(elem)),
            Expr::Array(array) => array.elems.iter_mut().for_each(|elem| self.take(elem)),
            Expr::Paren(inner) => self.take(&mut inner.expr),
            Expr::Group(inner) => self.take(&mut inner.expr),
            Expr::Unary(inner) => self.take(&mut inner.expr),
            Expr::Cast(inner) => self.take(&mut inner.expr),
            Expr::Reference(inner) => self.take(&mut inner.expr),
            Expr::Field(inner) => self.take(&mut inner.base),
            Expr::Index(index) => {
                self.take(&mut index.expr);
                self.take(&mut index.index);
            }
            _ => {}
        }
    }

    /// Takes the indices out of a place; `goes_on` if the place does not end here.
    fn take_indices(&mut self, place: &mut Expr, goes_on: bool) {
        match place {
            Expr::Index(index) => {
                self.take_indices(&mut index.expr, true);
                let is_number = !matches!(
                    &*index.index,
                    Expr::Range(_) | Expr::Tuple(_) | Expr::Reference(_)
                );
                let before = self.found.len();
                self.take(&mut index.index);
                if goes_on && is_number {
                    self.inner_indices
                        .extend(self.found[before..].iter().map(|(name, _)| name.clone()));
                }
            }
            Expr::Field(field) => self.take_indices(&mut field.base, true),
            Expr::Unary(unary) => self.take_indices(&mut unary.expr, true),
            Expr::Paren(paren) => self.take_indices(&mut paren.expr, goes_on),
            Expr::Group(group) => self.take_indices(&mut group.expr, goes_on),
            _ => {}
        }
    }

    /// True for an expression that means the same at the delivery as at the spawn, or is read there on purpose.
    fn stays(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Lit(_) => true,
            Expr::Path(path) => {
                let constant = |name: &Ident| name.to_string().starts_with(char::is_uppercase);
                path.path.get_ident().is_none_or(constant) || self.is_the_place(expr)
            }
            Expr::Call(call) => {
                call.args.iter().all(|arg| self.stays(arg))
                    && matches!(&*call.func, Expr::Path(path) if path.path.segments.len() > 1)
            }
            _ => self.is_the_place(expr),
        }
    }

    fn is_the_place(&self, expr: &Expr) -> bool {
        expr.to_token_stream().to_string() == self.place
    }

    fn keep(&mut self, expr: &mut Expr) {
        let name = format_ident!("o{}", self.found.len(), span = Span::mixed_site());
        let operand = std::mem::replace(expr, parse_quote!(#name));
        self.found.push((name, operand));
    }
}

/// Calls `visit` on every marked call in `expr` that is not an argument of another.
pub fn visit_marks<'e>(expr: &'e Expr, visit: &mut dyn FnMut(Marked<'e>)) {
    struct Marks<'v, 'e>(&'v mut dyn FnMut(Marked<'e>));
    impl<'e> Visit<'e> for Marks<'_, 'e> {
        fn visit_expr(&mut self, expr: &'e Expr) {
            match Marked::of(expr) {
                Some(mark) => (self.0)(mark),
                None => visit::visit_expr(self, expr),
            }
        }
    }
    Marks(visit).visit_expr(expr);
}

/// The tokens of `stmt` without the places that its sites will write: the places that it reads when it runs.
pub fn reads(stmt: &Stmt) -> TokenStream {
    struct Strip;
    impl Strip {
        fn strip(expr: &mut Expr) {
            if let Some(site) = DeferredStatement::of(expr) {
                *expr = site.reads();
            }
        }
    }
    impl VisitMut for Strip {
        fn visit_stmt_mut(&mut self, stmt: &mut Stmt) {
            if let Stmt::Expr(expr, _) = stmt {
                Strip::strip(expr);
            }
            visit_mut::visit_stmt_mut(self, stmt);
        }
        fn visit_arm_mut(&mut self, arm: &mut Arm) {
            Strip::strip(&mut arm.body);
            visit_mut::visit_arm_mut(self, arm);
        }
    }
    let mut stmt = stmt.clone();
    Strip.visit_stmt_mut(&mut stmt);
    quote!(#stmt)
}

/// The place of a spawn in a method call on a receiver that is not a place, `lookup(k).push(f(x))`.
pub fn delivers_to_no_place(statement: &Expr) -> Option<Span> {
    let Expr::MethodCall(call) = statement else {
        return None;
    };
    let deferred = call.args.iter().any(has_direct_spawn) && !has_marks(&call.receiver);
    if !deferred || is_place(&call.receiver) {
        return None;
    }
    call.args.iter().find_map(first_spawn)
}
