//! Runs whose nodes are all killed, and what becomes of them: on other nodes, from damaged stores, as another program.
//!
//! * `programs`: the programs that are killed: this executable, started again;
//! * `kept`: a store of a test's own, and pools that are killed when something is in it;
//! * `series`: random losses, which follow from a seed;
//! * `damage`: files that are cut off or changed, disks that are full, stores that go away;
//! * `resumes`: another build, program, command line or credential; two starts at once; servers of which one is lost.

#[path = "../common/mod.rs"]
mod common;

mod damage;
mod kept;
mod programs;
mod resumes;
mod series;
