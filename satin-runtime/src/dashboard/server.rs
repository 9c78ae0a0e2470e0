//! The server of the page: a thread of its own, so that nothing it does is waited for by workers or by the network.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use tokio::{
    runtime::Builder,
    sync::{Semaphore, watch},
};

use super::{
    access::{self, Access},
    live,
    metrics::metrics,
    page,
    steering::{DrainRequest, Refusal, Steering},
};
use crate::observe::{history::History, log};

/// The number of pages that may be open at once. Too small: people shut each other out. Too large: a page that opens itself again and again slows the node
/// down.
const SEATS: usize = 32;

/// The time that pages get for the last frame, when the server stops. Too short: pages do not hear that the pool has ended. Too long: the program
/// ends late.
const LAST_FRAME: Duration = Duration::from_millis(300);

/// What the answers are made of.
pub(super) struct Shared {
    history: Arc<Mutex<History>>,
    steering: Option<Arc<dyn Steering>>,
    pub(super) access: Access,
    pub(super) seats: Arc<Semaphore>,
    pub(super) over: watch::Receiver<bool>,
}

impl Shared {
    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn can_drain(&self) -> bool {
        self.steering.is_some()
    }
}

/// A server that shows a pool. Dropping it stops it.
///
/// It answers `/` (the page), `/api/status` (the [`Picture`](crate::observe::history::Picture) as JSON), `/api/live` (server-sent events for the page),
/// `/metrics` (Prometheus), `/healthz`, and `POST /api/drain`.
pub struct Dashboard {
    url: String,
    over: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Dashboard {
    /// Starts a server at `addr` that shows `history`; port 0 takes one that is free. Without `steering` the page shows, and changes nothing. If
    /// `addr` is no loopback address, a token is demanded, which [`url`](Dashboard::url) has.
    ///
    /// # Errors
    /// The address cannot be listened at, or the system gives no thread; the text says what to do.
    pub fn start(
        addr: SocketAddr,
        history: Arc<Mutex<History>>,
        steering: Option<Arc<dyn Steering>>,
    ) -> io::Result<Dashboard> {
        let listener = listen(addr)?;
        let addr = listener.local_addr()?;
        let (over, is_over) = watch::channel(false);
        let access = Access::to(addr);
        let url = format!("http://{}/{}", host(addr), access.query());
        let shared = Arc::new(Shared {
            history,
            steering,
            access,
            seats: Arc::new(Semaphore::new(SEATS)),
            over: is_over,
        });
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let serve = move || {
            runtime.block_on(serve(listener, shared));
            // A steering that still waits for a node is not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("satin-dashboard".into());
        Ok(Dashboard {
            url,
            over,
            thread: Some(log::spawn(thread, serve)?),
        })
    }

    /// The URL for people, with the token if there is one.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        // Fails if the thread has ended: then there is nobody to tell.
        let _ = self.over.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(addr).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another program, or another node of this machine, listens there: choose another port, or {}:0 for one that is free",
                bracketed(addr)
            ),
            io::ErrorKind::AddrNotAvailable => {
                "this machine does not have that address: choose 127.0.0.1, or one of its own".into()
            }
            io::ErrorKind::PermissionDenied => {
                "this user may not listen at that port: choose one above 1023".into()
            }
            _ => "choose another address (SATIN_DASHBOARD)".into(),
        };
        let text = format!("cannot show the dashboard at {addr}: {error}; {remedy}");
        io::Error::new(error.kind(), text)
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn bracketed(addr: SocketAddr) -> String {
    match addr {
        SocketAddr::V4(addr) => addr.ip().to_string(),
        SocketAddr::V6(addr) => format!("[{}]", addr.ip()),
    }
}

/// The address for people: one that stands for all addresses of this machine cannot be opened elsewhere, its name can.
fn host(addr: SocketAddr) -> String {
    let name = hostname::get()
        .ok()
        .and_then(|name| name.into_string().ok());
    match name {
        Some(name) if addr.ip().is_unspecified() => format!("{name}:{}", addr.port()),
        _ => addr.to_string(),
    }
}

async fn serve(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    let mut over = shared.over.clone();
    let mut over_too = shared.over.clone();
    let serving = axum::serve(listener, routes(shared)).with_graceful_shutdown(async move {
        let _ = over.wait_for(|over| *over).await;
    });
    let deadline = async move {
        let _ = over_too.wait_for(|over| *over).await;
        tokio::time::sleep(LAST_FRAME).await;
    };
    tokio::select! {
        // Errors of single connections end those alone; `serve` itself has none.
        _ = serving => {}
        () = deadline => {}
    }
}

fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(|| async { Html(page::live()) }))
        .route("/api/status", get(status))
        .route("/api/live", get(live::live))
        .route("/api/drain", post(drain))
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(missing)
        .layer(from_fn_with_state(Arc::clone(&shared), access::check))
        .layer(from_fn(with_safe_headers))
        .with_state(shared)
}

async fn with_safe_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, page::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn missing() -> Refusal {
    let text = "nothing is here: the page is at /, others are /api/status, /api/live, /metrics, /healthz and POST /api/drain\n";
    (StatusCode::NOT_FOUND, text.into())
}

async fn status(State(shared): State<Arc<Shared>>) -> Response {
    let picture = shared.history().picture();
    match serde_json::to_string(&picture) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json + "\n").into_response(),
        Err(error) => {
            let text = format!("the status cannot be written: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

async fn show_metrics(State(shared): State<Arc<Shared>>) -> Response {
    let text = metrics(&shared.history());
    let form = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, form)], text).into_response()
}

async fn drain(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<String, Refusal> {
    let Some(steering) = shared.steering.clone() else {
        let text = "this dashboard shows only: ask nodes to leave by `satin drain`";
        return Err((StatusCode::FORBIDDEN, text.into()));
    };
    let names = DrainRequest::parse(&body)?.names(&shared.history())?;
    let told = names.join(", ");
    let asked = tokio::task::spawn_blocking(move || steering.drain(names)).await;
    match asked {
        Ok(Ok(())) => Ok(format!("asked to leave: {told}\n")),
        Ok(Err(why)) => Err((StatusCode::CONFLICT, why)),
        Err(error) => Err((
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("asking failed: {error}"),
        )),
    }
}
