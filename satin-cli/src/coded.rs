//! Codes for errors that are texts: by its code a person finds what the book says about an error.

use anyhow::Result;
use satin_runtime::codes::{self, CodedError, ErrorCode};

/// A result whose error gets a code.
pub trait Coded<T> {
    /// The same; an error has that code from here on, unless it or one of its causes has one already.
    ///
    /// # Errors
    /// The same, as a single text.
    fn code(self, code: ErrorCode) -> Result<T>;
}

impl<T> Coded<T> for Result<T> {
    fn code(self, code: ErrorCode) -> Result<T> {
        self.map_err(|error| match codes::of(error.as_ref()) {
            Some(_) => error,
            None => CodedError::new(code, format_args!("{error:#}")).into(),
        })
    }
}

/// The text of an error with its causes, and its code.
#[must_use]
pub fn explained(error: &anyhow::Error) -> String {
    codes::with_code(format_args!("{error:#}"), codes::of(error.as_ref()))
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn the_first_code_counts_whatever_is_said_around_it() {
        let found: Result<()> = Err(anyhow!("no node is called `a`"));
        let found = found.code(codes::NODE_NAME).context("satin drain");
        let found = found.code(codes::WRONG_VALUE).expect_err("it was one");
        let text = "satin drain: no node is called `a` [satin explain S0605]";
        assert_eq!(explained(&found), text);
        assert_eq!(explained(&anyhow!("why")), "why");
    }
}
