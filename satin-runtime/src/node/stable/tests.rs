//! Stories of stable storage: all nodes die, and others go on.
