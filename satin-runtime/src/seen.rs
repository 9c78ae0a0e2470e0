//! What people asked to see of this process's pool by settings: `SATIN_DASHBOARD`, `SATIN_REPORT`, `SATIN_TRACE`.
//!
//! The dashboard is there from the moment at which the node is in. Report and trace are written by the node that runs `main`: it looks from the
//! moment at which `main` begins there. Whatever goes wrong with them is said, and the run goes on.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(crate) use crate::window::Views;
pub use crate::window::WindowError;
use crate::{
    net::{Join, Network, Settings, user_credential},
    observe::lines,
    window::{Window, reachable},
    worker::Workers,
};

/// What is to be seen, and what shows it. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Shown>>);

#[derive(Default)]
struct Shown {
    views: Views,
    pool: Option<PoolOfNode>,
    window: Option<Window>,
    /// `main` runs here, or has run here.
    has_main: bool,
}

/// How this node's pool is looked at.
#[derive(Clone)]
struct PoolOfNode {
    name: String,
    credential: Option<PathBuf>,
    join: Join,
}

impl Seen {
    /// Nothing is shown yet.
    ///
    /// # Errors
    /// A file that is to be written in the end cannot be.
    pub(crate) fn new(views: Views) -> Result<Seen, WindowError> {
        views.check()?;
        Ok(Seen(Arc::new(Mutex::new(Shown {
            views,
            ..Shown::default()
        }))))
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the pool will be looked at, of which this process is about to become a node.
    pub(crate) fn will_join(&self, settings: &Settings) {
        self.lock().pool = Some(PoolOfNode {
            name: settings.pool.clone(),
            credential: settings.credential.clone(),
            join: Join::Hosts(Vec::new()),
        });
    }

    /// The node is in: shows the dashboard.
    pub(crate) fn node_is_in(&self, network: &Network) {
        let mut shown = self.lock();
        if let Some(pool) = &mut shown.pool {
            pool.join = Join::Hosts(vec![reachable(network.addr()).to_string()]);
        }
        if shown.views.dashboard.is_some() {
            shown.open_on_pool();
        }
    }

    /// `main` begins here, without a network: everything is shown.
    pub(crate) fn process_begins(&self, workers: &Workers) {
        let mut shown = self.lock();
        shown.has_main = true;
        if !shown.views.is_empty() && shown.window.is_none() {
            let name = format!("node-{}", std::process::id());
            let opened = Window::on_process(shown.views.clone(), &name, workers);
            shown.opened(opened);
        }
    }

    /// `main` begins on this node: looks for report and trace.
    pub(crate) fn main_begins(&self) {
        let mut shown = self.lock();
        shown.has_main = true;
        if !shown.views.is_empty() && shown.window.is_none() {
            shown.open_on_pool();
        }
    }

    /// The pool is about to end here, or has to be left: looks a last time, writes the files, and shows nothing any more.
    pub(crate) fn close(&self) {
        let mut shown = self.lock();
        let Some(mut window) = shown.window.take() else {
            return;
        };
        if shown.has_main {
            window.look_now();
        } else {
            window.write_nothing();
        }
        if let Err(error) = window.close() {
            tracing::warn!("{error}");
        }
    }
}

impl Shown {
    fn open_on_pool(&mut self) {
        let Some(pool) = self.pool.clone() else {
            return;
        };
        let opened = pool.open(self.views.clone());
        self.opened(opened);
    }

    fn opened(&mut self, opened: Result<Window, WindowError>) {
        match opened {
            Ok(window) => {
                if let Some(url) = window.url() {
                    lines::tell(format_args!("dashboard: {url}"));
                }
                self.window = Some(window);
            }
            Err(error) => tracing::warn!("{error}; the program runs without"),
        }
    }
}

impl PoolOfNode {
    fn open(self, views: Views) -> Result<Window, WindowError> {
        let credential = match self.credential {
            Some(path) => path,
            None => user_credential().map_err(crate::net::observer::ObserverError::from)?,
        };
        Window::on_pool(views, &self.name, Some(&self.name), self.join, &credential)
    }
}
