//! Repair: what becomes of jobs when nodes die or leave. See `README.md` for the rules, and what goes wrong without each.
//!
//! * `table`: every node's map of job id -> who has that orphan's result, or is still computing it.
//! * `spread`: how the tables come to everybody.
//! * `keeping`: results that others keep: those of root jobs, and what a node leaves behind.
//! * `leaving`: how a node leaves on purpose.
//!
//! What happens to the thefts themselves is in [`super::steal`]: its books say who waits for what.

mod keeping;
mod leaving;
mod spread;
mod table;

#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;

pub(crate) use keeping::Keeping;
pub(crate) use leaving::{Given, Leaving};
pub(crate) use spread::Spread;
pub(crate) use table::{GIVEN_UP, Table, given_up};
