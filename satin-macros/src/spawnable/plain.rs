//! The types that a signature mentions, among which the compiler is to look for plain data.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{
    Expr, Type, TypeBareFn, TypeTraitObject,
    visit::{self, Visit},
};

use super::hygiene::quote;

/// Types that are known by their names alone to be numbers, which need not be found, or to be no plain data. Tuples are none either: the
/// compiler may lay them out as it likes.
const NEVER: [&str; 18] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64", "bool", "char", "str", "String",
];

/// Asks the compiler of each type in these whether it is plain data.
pub fn look<'t>(types: impl IntoIterator<Item = &'t Type>) -> TokenStream {
    let mut mentioned = Mentioned::default();
    for ty in types {
        mentioned.visit_type(ty);
    }
    let Mentioned { types, .. } = mentioned;
    if types.is_empty() {
        return TokenStream::new();
    }
    quote!(::satin::__private::look_for_plain! { #(#types),* })
}

#[derive(Default)]
struct Mentioned<'t> {
    types: Vec<&'t Type>,
    texts: Vec<String>,
}

impl<'t> Visit<'t> for Mentioned<'t> {
    fn visit_type(&mut self, ty: &'t Type) {
        let may_be = match ty {
            Type::Path(path) => !NEVER.iter().any(|name| path.path.is_ident(name)),
            Type::Array(_) | Type::Macro(_) => true,
            _ => false,
        };
        let text = ty.to_token_stream().to_string();
        if may_be && !self.texts.contains(&text) {
            self.types.push(ty);
            self.texts.push(text);
        }
        visit::visit_type(self, ty);
    }

    // What stands in these is no type of a value that travels.
    fn visit_expr(&mut self, _: &'t Expr) {}
    fn visit_type_bare_fn(&mut self, _: &'t TypeBareFn) {}
    fn visit_type_trait_object(&mut self, _: &'t TypeTraitObject) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mentioned(ty: &str) -> Vec<String> {
        let ty: Type = syn::parse_str(ty).expect("a type");
        let mut mentioned = Mentioned::default();
        mentioned.visit_type(&ty);
        mentioned.texts
    }

    #[test]
    fn types_inside_are_mentioned_and_numbers_are_not() {
        assert_eq!(mentioned("&mut [Complex]"), ["Complex"]);
        assert_eq!(mentioned("u64"), [""; 0]);
        assert_eq!(mentioned("&str"), [""; 0]);
        assert_eq!(
            mentioned("Result<Shared<Vec<[f32; 3]>>, (u8, a::Place)>"),
            [
                "Result < Shared < Vec < [f32 ; 3] > > , (u8 , a :: Place) >",
                "Shared < Vec < [f32 ; 3] > >",
                "Vec < [f32 ; 3] >",
                "[f32 ; 3]",
                "a :: Place",
            ]
        );
        assert_eq!(mentioned("[u8; size_of::<Hidden>()]").len(), 1);
        assert_eq!(mentioned("(Place, Place)"), ["Place"]);
    }
}
