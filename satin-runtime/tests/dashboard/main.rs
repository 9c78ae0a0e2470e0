//! The dashboard of a made-up pool: what its server answers and refuses, reports, traces, and the page in a browser.
//!
//! Times of the pool are made up. What takes real time is waited for by its condition.

mod browser;
mod client;
mod files;
mod page;
mod pool;
mod server;
mod steering;
mod wire;
