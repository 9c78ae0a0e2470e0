//! What people asked to see of this process's pool by settings: `SATIN_DASHBOARD`, `SATIN_REPORT`, `SATIN_TRACE`.
//!
//! The dashboard is there from the moment at which the node is in. Report and trace are written by the node that runs `main`: it looks from the
//! moment at which `main` begins there. Whatever goes wrong with them is said, and the run goes on.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(crate) use crate::window::Views;
pub use crate::window::WindowError;
use crate::{
    net::{Join, Network, Settings, observer::ObserverError, user_credential},
    observe::lines,
    window::Window,
    worker::Workers,
};

/// What is to be seen, and what shows it. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<ViewState>>);

#[derive(Default)]
struct ViewState {
    views: Views,
    /// This node's pool, and where it is looked at.
    pool: Option<(PoolAccess, SocketAddr)>,
    window: Option<Window>,
    /// `main` runs here, or has run here.
    has_main: bool,
}

/// What an observer of this node's pool needs.
#[derive(Clone)]
pub(crate) struct PoolAccess {
    name: String,
    credential: Option<PathBuf>,
}

impl Seen {
    /// Nothing is shown yet.
    ///
    /// # Errors
    /// A file that is to be written in the end cannot be.
    pub(crate) fn new(views: Views) -> Result<Seen, WindowError> {
        views.check()?;
        Ok(Seen(Arc::new(Mutex::new(ViewState {
            views,
            ..ViewState::default()
        }))))
    }

    fn lock(&self) -> MutexGuard<'_, ViewState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node is in the pool: shows the dashboard.
    pub(crate) fn node_is_in(&self, access: PoolAccess, network: &Network) {
        let mut shown = self.lock();
        shown.pool = Some((access, network.local_addr()));
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

impl ViewState {
    fn open_on_pool(&mut self) {
        let Some((access, addr)) = self.pool.clone() else {
            return;
        };
        let opened = access.open(self.views.clone(), addr);
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

impl PoolAccess {
    pub(crate) fn of(settings: &Settings) -> PoolAccess {
        PoolAccess {
            name: settings.pool.clone(),
            credential: settings.credential.clone(),
        }
    }

    fn open(self, views: Views, addr: SocketAddr) -> Result<Window, WindowError> {
        let credential = match self.credential {
            Some(path) => path,
            None => user_credential().map_err(ObserverError::from)?,
        };
        let join = Join::Hosts(vec![addr.to_string()]);
        Window::on_pool(views, &self.name, Some(&self.name), join, &credential)
    }
}
