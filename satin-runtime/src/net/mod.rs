//! The protocol of `node` on QUIC: one thread per node, which owns the node, the socket and all connections.
//!
//! * [`settings`], [`discovery`]: the user's settings, and the addresses where the pool may be.
//! * [`credential`]: the key to the pool; [`wire`]: the bytes of messages; [`limits`]: their greatest numbers and sizes.
//! * `door`: the peers that we refuse; `greeting`, `dial` and `accept`: how connections come to stand, and which of two
//!   survives; `link`: the sending side of a connection; [`packed`]: large messages, compressed where that pays.
//! * `driver`: the owner of the [`Node`](crate::node::Node), its input and its output; `bridge`: events from the workers,
//!   and orders of the node for them; `departures`: the events that a new master has to tell.
//! * `thefts`: how long they take.
//! * [`observer`]: programs that look at a pool without being part of it; `observed`: the node's side of that; [`watcher`]: one that goes on looking;
//!   `output`: what nodes have printed, for observers and for the master's terminal; `sites`: what was exchanged with each site.
//! * `notice`: the sign that tells a node to leave; `memory`: whether there is room for further jobs.
//! * `network`: the thread, from its start to its end; `progress`: what other threads see of it; [`priority`]: its share of the processor.
//! * [`store_server`], [`store_client`]: a store on another machine, by its own protocol, `store_wire`; `s3_store`: one in a bucket
//!   (feature `s3`); [`storage_url`]: the store that a URL names.
//! * `transport`, `socket`: how QUIC and the socket under it are set up; [`relay`]: detours for emulated links.
//!
//! Decides nothing about jobs, members or masters: that is `node`'s.

mod accept;
mod bridge;
pub mod credential;
mod departures;
mod dial;
pub mod discovery;
mod door;
mod driver;
mod greeting;
mod interfaces;
pub mod limits;
mod link;
mod memory;
mod network;
mod notice;
mod observed;
pub mod observer;
mod output;
pub mod packed;
pub mod priority;
mod progress;
pub mod relay;
#[cfg(feature = "s3")]
pub mod s3_store;
pub(crate) mod sampler;
pub mod settings;
mod sites;
mod socket;
mod storage;
pub mod storage_url;
pub mod store_client;
pub mod store_server;
pub mod store_wire;
mod thefts;
mod transport;
mod user_credential;
pub mod watcher;
pub mod wire;

#[cfg(test)]
mod tests;

pub use credential::{Credential, CredentialError};
pub(crate) use network::Turn;
pub use network::{Handle, NetError, Network};
pub use observer::Observer;
pub use output::{NodeOutput, OutputNews};
pub use settings::{Cloud, DrainWhen, ExitRule, Join, Settings};
#[doc(hidden)]
pub use socket::{FirstFlight, first_flight};
pub use store_server::StoreServer;
pub use user_credential::user_credential;
pub use watcher::Watcher;
