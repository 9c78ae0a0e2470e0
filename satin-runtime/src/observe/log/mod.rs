//! The log: the subscriber of `tracing` that a program gets which has none, and the node that each line is of.
//!
//! A thread of a node carries the node's name and site, and hands them on to the threads that it starts through [`spawn`]; so a process with
//! several pools keeps their lines apart. Our own subscriber reads them from the thread. The subscriber of a program that has one finds them
//! in a span, `node`, with the fields `name` and `site`, in which the thread spends its life.

mod counted;
mod line;

use std::{
    cell::RefCell,
    io,
    sync::{Arc, PoisonError, RwLock},
    thread::{Builder, JoinHandle},
};

pub(crate) use counted::tell_counted;
use line::LineFormat;
pub(crate) use line::LogForm;
use tracing::{Span, span::EnteredSpan};
use tracing_subscriber::EnvFilter;

use super::lines;

/// The target of the span that a thread of a node is in.
const SPAN_TARGET: &str = "satin";

/// The node that a line of the log is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogNode {
    pub(crate) name: String,
    pub(crate) site: String,
    /// Are there other nodes, or may some come? Lines for people do not name the only one.
    pub(crate) has_network: bool,
}

thread_local! {
    static OF_THREAD: RefCell<Option<Arc<LogNode>>> = const { RefCell::new(None) };
}

/// The node of threads that are of none, such as those that the program has started: the last one that this process has begun to be.
static OF_PROCESS: RwLock<Option<Arc<LogNode>>> = RwLock::new(None);

/// The node that a line from this thread is of, if there is any yet.
fn node_here() -> Option<Arc<LogNode>> {
    let of_thread = OF_THREAD.try_with(|here| here.borrow().clone()).ok();
    of_thread.flatten().or_else(|| {
        let of_process = OF_PROCESS.read();
        of_process.unwrap_or_else(PoisonError::into_inner).clone()
    })
}

/// What threads of a node have in common.
#[derive(Clone)]
pub(crate) struct LogScope {
    node: Option<Arc<LogNode>>,
    span: Span,
}

impl LogScope {
    /// The scope of a node that begins; from now on lines of threads that are of no node are of this one.
    pub(crate) fn begin(node: LogNode) -> LogScope {
        let span = tracing::error_span!(
            target: SPAN_TARGET,
            "node",
            name = node.name,
            site = node.site
        );
        let node = Arc::new(node);
        let mut of_process = OF_PROCESS.write().unwrap_or_else(PoisonError::into_inner);
        *of_process = Some(Arc::clone(&node));
        LogScope {
            node: Some(node),
            span,
        }
    }

    /// The scope that this thread is in.
    fn here() -> LogScope {
        LogScope {
            node: OF_THREAD.with_borrow(Clone::clone),
            span: Span::current(),
        }
    }

    /// Enters the scope until the guard is dropped.
    pub(crate) fn enter(&self) -> LogScopeGuard {
        // A thread that ends, as that of `main` does when its pool ends at its exit, has no place for node or span any more.
        let before = OF_THREAD.try_with(|here| here.replace(self.node.clone()));
        let span = match before {
            Ok(_) => self.span.clone(),
            Err(_) => Span::none(),
        };
        LogScopeGuard {
            before: before.unwrap_or_default(),
            _span: span.entered(),
        }
    }
}

/// A thread is in a scope for as long as it has this.
pub(crate) struct LogScopeGuard {
    before: Option<Arc<LogNode>>,
    _span: EnteredSpan,
}

impl Drop for LogScopeGuard {
    fn drop(&mut self) {
        // A thread that ends may have no place for it any more.
        let _ = OF_THREAD.try_with(|here| here.replace(self.before.take()));
    }
}

/// Stands where a panic is one of Satin's own: at the top of a thread of the runtime, around a turn of the network thread. Such a panic ends
/// the process in builds with debug assertions, as tests are. Otherwise only its thread or turn is lost, and a test would pass.
pub(crate) struct PanicGuard;

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if cfg!(debug_assertions) && std::thread::panicking() {
            // The text of the panic has been printed.
            std::process::abort();
        }
    }
}

/// Starts a thread of the runtime, which is in the scope of this one.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn spawn<T: Send + 'static>(
    thread: Builder,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let scope = LogScope::here();
    thread.spawn(move || {
        let _seen = PanicGuard;
        let _in_scope = scope.enter();
        run()
    })
}

/// The filter that the text means, if it means one.
pub(crate) fn filter(text: &str) -> Option<EnvFilter> {
    // `EnvFilter` takes any text for the name of a target, and then all lines of others are silently left out.
    // The comma parts directives everywhere: `EnvFilter` knows none within the values of a span.
    text.split(',')
        .all(is_target_or_level)
        .then(|| EnvFilter::try_new(text).ok())
        .flatten()
}

/// Does the directive begin with nothing, a level, or a path such as `satin_runtime::net`?
fn is_target_or_level(directive: &str) -> bool {
    let target = directive.split(['=', '[']).next().unwrap_or_default();
    let is_name = |name: &str| !name.is_empty() && !name.contains([':', ' ']);
    target.trim().is_empty() || target.trim().split("::").all(is_name)
}

/// Starts the log, to stderr, unless the program has set up `tracing` itself: that subscriber stays then.
pub(crate) fn start(filter: EnvFilter, form: LogForm) {
    let is_for_eyes = form == LogForm::Text && lines::has_terminal();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| lines::BesideBar)
        .with_ansi(is_for_eyes)
        .event_format(LineFormat(form))
        .try_init();
}

#[cfg(test)]
mod tests;
