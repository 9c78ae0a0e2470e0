//! A window on a pool: what people asked to see of it (dashboard, report, trace), from a node's own process or from one that is no node.
//!
//! A window looks at the pool through a [`Watcher`]; at a process that is alone it looks without a network. When it is closed it writes the
//! files.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crossbeam::sync::{Parker, Unparker};

use crate::{
    dashboard::{Dashboard, Steering, report, trace},
    net::{
        Join,
        observer::ObserverError,
        sampler::Sampler,
        watcher::{Watcher, WatcherHandle, Watching},
    },
    observe::{
        events::{NodeFigures, unix_ms},
        history::{Gone, History},
        log,
        look::{Activity, KeptFigures, NodeLook, SeenNode, Span, WhyIdle},
    },
    worker::{PoolWatch, Workers},
};

/// What people asked to see of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Views {
    /// Where the dashboard is to listen.
    pub dashboard: Option<SocketAddr>,
    /// The file for the report, a page that stands alone.
    pub report: Option<PathBuf>,
    /// The file for the trace, for Perfetto.
    pub trace: Option<PathBuf>,
}

impl Views {
    /// Has nobody asked for anything?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Views::default()
    }

    /// Can the files be written? Asked before a long run, not after it.
    ///
    /// # Errors
    /// If one cannot: nothing of it has been changed.
    pub fn check(&self) -> Result<(), WindowError> {
        for path in [&self.report, &self.trace].into_iter().flatten() {
            let opened = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path);
            opened.map_err(|source| WindowError::file(path, source))?;
        }
        Ok(())
    }
}

/// Why something cannot be seen. The run goes on without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The pool cannot be looked at.
    #[error("cannot look at the pool: {0}")]
    Observer(#[from] ObserverError),
    /// The dashboard cannot be served; the text says why.
    #[error("{0}")]
    Dashboard(io::Error),
    /// A file cannot be written.
    #[error("cannot write {}: {source}; name a file in a directory that is there and that you may write to", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start a thread that looks: {0}")]
    Thread(io::Error),
}

impl WindowError {
    fn file(path: &Path, source: io::Error) -> WindowError {
        WindowError::File {
            path: path.into(),
            source,
        }
    }
}

/// A window on a pool, until it is closed or dropped.
pub struct Window {
    /// Goes first: it asks the source for what people want done.
    dashboard: Option<Dashboard>,
    source: WindowSource,
    history: Arc<Mutex<History>>,
    views: Views,
}

enum WindowSource {
    Pool(Watcher),
    Process(ProcessWatch),
}

impl Window {
    /// Opens a window on the pool of that name (`None`: whatever it is called), to be found as `join` says, with its credential. `title` is
    /// what people read.
    ///
    /// # Errors
    /// If the pool cannot be looked at, or the dashboard not be served.
    pub fn on_pool(
        views: Views,
        title: &str,
        pool: Option<&str>,
        join: Join,
        credential: &Path,
    ) -> Result<Window, WindowError> {
        let history = Arc::new(Mutex::new(History::new(title)));
        let watcher = Watcher::start(join, credential, pool, Arc::clone(&history))?;
        let steering: Arc<dyn Steering> = Arc::new(watcher.handle());
        Window::open(views, WindowSource::Pool(watcher), history, Some(steering))
    }

    /// Opens a window on the workers of this process, which is no node.
    pub(crate) fn on_process(
        views: Views,
        name: &str,
        workers: &Workers,
    ) -> Result<Window, WindowError> {
        let history = Arc::new(Mutex::new(History::new(name)));
        let watch = ProcessWatch::start(workers, name, Arc::clone(&history));
        let watch = watch.map_err(WindowError::Thread)?;
        Window::open(views, WindowSource::Process(watch), history, None)
    }

    fn open(
        views: Views,
        source: WindowSource,
        history: Arc<Mutex<History>>,
        steering: Option<Arc<dyn Steering>>,
    ) -> Result<Window, WindowError> {
        let serve = |addr| Dashboard::start(addr, Arc::clone(&history), steering);
        let dashboard = views.dashboard.map(serve).transpose();
        Ok(Window {
            dashboard: dashboard.map_err(WindowError::Dashboard)?,
            source,
            history,
            views,
        })
    }

    /// The URL of the dashboard, if there is one.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.dashboard.as_ref().map(Dashboard::url)
    }

    /// What has been seen so far, for those who know more.
    pub fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// What asks nodes to leave; `None` where there is no pool.
    #[must_use]
    pub fn steering(&self) -> Option<WatcherHandle> {
        match &self.source {
            WindowSource::Pool(watcher) => Some(watcher.handle()),
            WindowSource::Process(_) => None,
        }
    }

    /// Looks a last time, while the pool is still there.
    pub fn look_now(&self) {
        match &self.source {
            WindowSource::Pool(watcher) => watcher.handle().look_now(),
            WindowSource::Process(watch) => watch.look_now(),
        }
    }

    /// The files are for another node to write.
    pub(crate) fn write_nothing(&mut self) {
        (self.views.report, self.views.trace) = (None, None);
    }

    /// Looks no more, and writes the files.
    ///
    /// # Errors
    /// If a file cannot be written; the other is, all the same.
    pub fn close(self) -> Result<(), WindowError> {
        let Window {
            dashboard,
            source,
            history,
            views,
        } = self;
        drop(source);
        drop(dashboard);
        let history = lock(&history);
        let write = |path: &Path, text: String| {
            std::fs::write(path, text).map_err(|source| WindowError::file(path, source))
        };
        let report = (views.report.as_deref()).map(|path| write(path, report::html(&history)));
        let trace =
            (views.trace.as_deref()).map(|path| write(path, trace::perfetto(&history).to_string()));
        [report, trace].into_iter().flatten().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Steering for WatcherHandle {
    fn drain(&self, names: Vec<String>) -> Result<(), String> {
        WatcherHandle::drain(self, names)
    }
}

impl Watching for Arc<Mutex<History>> {
    fn nodes(&mut self, _: &str, nodes: &[SeenNode], now_ms: u64) {
        let mut history = lock(self);
        for node in nodes {
            history.note_node(node.clone(), now_ms);
        }
    }

    fn look(&mut self, node: &SeenNode, look: NodeLook, ahead_ms: i64) {
        lock(self).note_look(&node.name, look, -ahead_ms);
    }

    fn gone(&mut self, node: &SeenNode, how: Gone, now_ms: u64) {
        lock(self).note_gone(&node.name, how, now_ms);
    }

    fn lost(&mut self, why: &str, _: u64) {
        tracing::debug!("no node of the pool can be looked at: {why}");
    }
}

// ------------------------------------------------------------------------------------------------- a process that is alone

/// The time from one look at this process to the next.
const EVERY: Duration = Duration::from_millis(500);

/// Looks at the workers of this process until it is dropped.
struct ProcessWatch {
    process: Arc<Mutex<Process>>,
    is_over: Arc<AtomicBool>,
    thread: Option<(Unparker, JoinHandle<()>)>,
}

/// This process, as a node of a pool of its own.
struct Process {
    node: SeenNode,
    sampler: Sampler,
    watch: PoolWatch,
    began: Instant,
    idle_s: f64,
    next: u64,
    history: Arc<Mutex<History>>,
}

impl ProcessWatch {
    fn start(
        workers: &Workers,
        name: &str,
        history: Arc<Mutex<History>>,
    ) -> io::Result<ProcessWatch> {
        let process = Arc::new(Mutex::new(Process {
            node: SeenNode {
                name: name.into(),
                site: "default".into(),
                addr: (Ipv4Addr::LOCALHOST, 0).into(),
                threads: workers.threads() as u32,
                is_master: true,
                is_leaving: false,
            },
            sampler: Sampler::new(workers.watch()),
            watch: workers.watch(),
            began: Instant::now(),
            idle_s: 0.0,
            next: 0,
            history,
        }));
        let (parker, is_over) = (Parker::new(), Arc::new(AtomicBool::new(false)));
        let (unparker, over) = (parker.unparker().clone(), Arc::clone(&is_over));
        let looking = Arc::clone(&process);
        let thread = std::thread::Builder::new().name("satin-watcher".into());
        let thread = log::spawn(thread, move || {
            while !over.load(Ordering::Relaxed) {
                lock(&looking).look();
                parker.park_timeout(EVERY);
            }
        })?;
        Ok(ProcessWatch {
            process,
            is_over,
            thread: Some((unparker, thread)),
        })
    }

    fn look_now(&self) {
        lock(&self.process).look();
    }
}

impl Drop for ProcessWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some((unparker, thread)) = self.thread.take() {
            unparker.unpark();
            let _ = thread.join();
        }
    }
}

impl Process {
    fn look(&mut self) {
        let news = self.sampler.look(self.next);
        self.next = news.next;
        self.idle_s += idle_seconds(&news.spans);
        let is_running = self.watch.look_up();
        let why_idle = |activity: &Activity| match activity {
            Activity::Wait => Some(WhyIdle::WaitsForChild),
            Activity::Idle if is_running.is_none() => Some(WhyIdle::NoRootJob),
            Activity::Idle => Some(WhyIdle::NoWork),
            _ => None,
        };
        let now_ms = unix_ms();
        let look = NodeLook {
            now_ms,
            figures: NodeFigures {
                threads: self.node.threads,
                seconds: self.began.elapsed().as_secs_f64(),
                idle_s: self.idle_s,
                done: is_running.map(|progress| progress.done),
                ..NodeFigures::default()
            },
            spans: news.spans,
            arrows: news.arrows,
            functions: news.functions,
            why_idle: self.sampler.activities().iter().map(why_idle).collect(),
            sites: Vec::new(),
            kept: KeptFigures::default(),
            events: news.events,
            next: news.next,
        };
        let mut history = lock(&self.history);
        history.note_node(self.node.clone(), now_ms);
        history.note_look(&self.node.name, look, 0);
    }
}

/// The time in these spans in which nothing was to do.
fn idle_seconds(spans: &[Span]) -> f64 {
    let idle = spans
        .iter()
        .filter(|span| matches!(span.activity, Activity::Idle | Activity::Wait));
    idle.map(|span| f64::from(span.length_ms) / 1000.0).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_said_before_the_run() {
        let views = Views {
            report: Some("/nowhere/run.html".into()),
            ..Views::default()
        };
        let error = views.check().expect_err("no such directory").to_string();
        assert!(
            error.starts_with("cannot write /nowhere/run.html: "),
            "{error}"
        );
    }
}
