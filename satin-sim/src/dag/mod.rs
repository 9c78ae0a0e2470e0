//! Task graphs on processors that vary in speed and die: the scheduler GTP with copies and rewinding (Hernandez and Cole 2007),
//! pull, and what the design of flows does, side by side.
//!
//! Unlike the rest of this crate, these are models: nothing of the runtime runs in them. They say what the rules of the design are
//! worth, not what the runtime does. What the runtime does says [`nodes`], which runs the same graphs in the shipped code. `README.md` in
//! this folder has the words, the limits and the figures.
//!
//! * [`graph`]: graphs from files, of tiled programs, at random. [`world`]: processors and links that vary.
//! * [`policy`]: what is compared. [`sim`]: one run of a model, with its invariants. [`nodes`]: one run of the shipped code.
//! * [`experiment`]: all policies on all graphs. [`report`], [`chart`]: what came of it. [`command`]: `satin-sim dag`.
//!
//! ```
//! use satin_sim::dag::{graph, policy::Policy, sim, world::World};
//! use satin_sim::faults::Dice;
//!
//! let graph = graph::tiled::lu(4);
//! let flow = graph::FlowGraph::new(&graph, graph::Data::OneOutput(0.1), &mut Dice::new(1));
//! let world = World::uniform(&flow, 2);
//! let trial = sim::Trial {
//!     graph: &flow,
//!     world: &world,
//!     policy: Policy::Flow,
//!     detection: Policy::Flow.own_detection(),
//!     reference: 100.0,
//!     deaths: &[],
//!     seed: 1,
//! };
//! let outcome = sim::run(&trial)?;
//! assert!(outcome.makespan >= flow.critical_path());
//! # Ok::<(), sim::Violation>(())
//! ```

pub mod chart;
pub mod command;
pub mod experiment;
pub mod graph;
pub mod nodes;
pub mod policy;
pub mod report;
pub mod sim;
pub mod world;
