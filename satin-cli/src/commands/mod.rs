//! A file per subcommand: its flags, and what it does with the library.

pub mod drain;
pub mod keygen;
pub mod node;
pub mod run;
pub mod runs;
pub mod store;
