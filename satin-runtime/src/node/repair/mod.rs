//! Repair: what becomes of jobs when nodes die or leave. See `README.md` for the rules, and what goes wrong without each.
//!
//! * `table`: every node's map of job id -> who has that orphan's result, or is still computing it.
//! * `spread`: how the tables come to everybody.
//!
//! What happens to the thefts themselves is in [`super::steal`]: its books say who waits for what.

mod spread;
mod table;

pub(crate) use spread::Spread;
pub(crate) use table::Table;
