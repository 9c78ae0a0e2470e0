//! A file per subcommand: its flags, and what it does with the library.

mod at;

pub mod drain;
pub mod keygen;
pub mod node;
pub mod run;
pub mod runs;
pub mod status;
pub mod stop;
pub mod store;
