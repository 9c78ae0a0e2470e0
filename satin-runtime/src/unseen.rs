//! Instead of `seen`, where the feature `dashboard` is off: nothing is shown, and who asks for it is told so.

use std::{net::SocketAddr, path::PathBuf};

use crate::{
    net::{Network, Settings},
    worker::Workers,
};

/// What people asked to see of a pool.
#[derive(Default)]
pub(crate) struct Views {
    pub(crate) dashboard: Option<SocketAddr>,
    pub(crate) report: Option<PathBuf>,
    pub(crate) trace: Option<PathBuf>,
}

/// There are none.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {}

/// Nobody looks at the pool.
pub(crate) struct PoolAccess;

impl PoolAccess {
    pub(crate) fn of(_: &Settings) -> PoolAccess {
        PoolAccess
    }
}

/// Shows nothing.
#[derive(Clone, Default)]
pub(crate) struct Seen;

impl Seen {
    pub(crate) fn new(views: Views) -> Result<Seen, WindowError> {
        if views.dashboard.is_some() || views.report.is_some() || views.trace.is_some() {
            tracing::warn!(
                "this program shows no dashboard and writes no report or trace: it was built without the feature `dashboard` of satin"
            );
        }
        Ok(Seen)
    }

    pub(crate) fn node_is_in(&self, _: PoolAccess, _: &Network) {}

    pub(crate) fn process_begins(&self, _: &Workers) {}

    pub(crate) fn main_begins(&self) {}

    pub(crate) fn close(&self) {}
}
