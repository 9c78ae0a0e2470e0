//! A store on another machine, as a [`Stable`]: see `store_server.rs` for the other side.
//!
//! One thread keeps the connections to all servers of a store; calls come from other threads, and wait. A connection is
//! made when it is needed. A server that has failed is left alone for a while, so that not each call waits for it.

use std::{
    io,
    net::SocketAddr,
    ops::Range,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use bytes::Bytes;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, ReadToEndError, VarInt, WriteError,
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, oneshot},
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    credential::Credential,
    greeting, limits, socket,
    store_server::time_for,
    store_wire::{self, StoreRefusal, StoreReply, StoreRequest},
    transport,
};
use crate::{
    observe::log,
    stable::{Stable, StableError},
};

/// Addresses of one name that are tried.
const ADDRESSES: usize = 8;

/// The thread that keeps the connections. Dropping it closes them.
pub struct StoreThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives none, or not what it needs.
    pub fn start() -> io::Result<Arc<StoreThread>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("satin-stores".into());
        let thread = log::spawn(thread, move || {
            // An error: whoever could stop it is gone.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Arc::new(StoreThread {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        }))
    }

    /// Does something on the thread, and waits for it. `None` if the thread has died.
    pub(super) fn wait_for<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // The caller waits for it.
            let _ = done.send(call.await);
        });
        result.recv().ok()
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One server. All calls block, and must not be made on a thread of an asynchronous runtime.
pub struct RemoteStore {
    line: Arc<Line>,
    thread: Arc<StoreThread>,
}

impl RemoteStore {
    /// The server at `HOST:PORT`. Does not connect yet.
    #[must_use]
    pub fn new(server: &str, credential: &Credential, thread: &Arc<StoreThread>) -> RemoteStore {
        let line = Line {
            server: server.into(),
            client: transport::store_client(credential),
            state: Mutex::default(),
        };
        RemoteStore {
            line: Arc::new(line),
            thread: Arc::clone(thread),
        }
    }

    fn ask(&self, request: &StoreRequest<'_>) -> Result<StoreReply, StableError> {
        let failed = |error| StableError::Failed {
            path: request.path().into(),
            error,
        };
        let Some(bytes) = request.encode() else {
            let text = format!(
                "a store takes at most {} bytes at once",
                limits::STORE_BYTES
            );
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, text)));
        };
        let line = Arc::clone(&self.line);
        let again = request.can_be_repeated();
        let call = async move { line.call(bytes, again).await };
        let answer = self.thread.wait_for(call);
        let answer = answer.unwrap_or_else(|| Err(io::Error::other("its thread has died")));
        match answer.map_err(failed)? {
            Ok(reply) => Ok(reply),
            Err(StoreRefusal::Exists) => Err(StableError::Exists(request.path().into())),
            Err(StoreRefusal::Missing) => Err(StableError::Missing(request.path().into())),
            Err(StoreRefusal::Failed(text)) => Err(failed(io::Error::other(text))),
        }
    }

    fn senseless(path: &str) -> StableError {
        StableError::Failed {
            path: path.into(),
            error: io::Error::new(io::ErrorKind::InvalidData, NO_SENSE),
        }
    }

    fn tell(&self, request: &StoreRequest<'_>) -> Result<(), StableError> {
        match self.ask(request)? {
            StoreReply::Done => Ok(()),
            _ => Err(RemoteStore::senseless(request.path())),
        }
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        let line = Arc::clone(&self.line);
        self.thread.wait_for(async move { line.close().await });
    }
}

const NO_SENSE: &str = "its answer makes no sense";

impl Stable for RemoteStore {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
        self.tell(&StoreRequest::Create { path, bytes })
    }

    fn append(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
        self.tell(&StoreRequest::Append { path, bytes })
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError> {
        let mut all = Vec::new();
        loop {
            let start = range.start + all.len() as u64;
            let end = range.end.min(start + limits::STORE_PIECE as u64).max(start);
            let StoreReply::Bytes(piece) = self.ask(&StoreRequest::Read { path, start, end })?
            else {
                return Err(RemoteStore::senseless(path));
            };
            if piece.len() as u64 > end - start {
                return Err(RemoteStore::senseless(path));
            }
            all.extend_from_slice(&piece);
            if (piece.len() as u64) < end - start || end >= range.end {
                return Ok(all);
            }
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError> {
        let mut all: Vec<(String, u64)> = Vec::new();
        loop {
            let after = all.last().map_or("", |(path, _)| path);
            let reply = self.ask(&StoreRequest::List { prefix, after })?;
            let StoreReply::Files { files, more } = reply else {
                return Err(RemoteStore::senseless(prefix));
            };
            let is_empty = files.is_empty();
            all.extend(files);
            if !more {
                return Ok(all);
            }
            if is_empty {
                return Err(RemoteStore::senseless(prefix));
            }
        }
    }

    fn delete(&self, path: &str) -> Result<(), StableError> {
        self.tell(&StoreRequest::Delete { path })
    }
}

// ----------------------------------------------------------------------------------------------------- the connection

/// The connection to a server, if there is one.
struct Line {
    server: String,
    client: ClientConfig,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    open: Option<OpenLine>,
    /// The server is left alone until then, for that reason.
    alone: Option<(Instant, String)>,
}

struct OpenLine {
    /// Lives as long as the connection.
    endpoint: Endpoint,
    connection: Connection,
}

/// The failure of a call.
enum CallFailure {
    /// The connection was lost before the answer came.
    Lost(String),
    /// The server does not answer, or nonsense.
    Failed(io::Error),
}

impl From<ConnectionError> for CallFailure {
    fn from(error: ConnectionError) -> CallFailure {
        CallFailure::Lost(error.to_string())
    }
}

impl Line {
    /// Says goodbye, so that the server does not wait for us when it ends.
    async fn close(&self) {
        if let Some(open) = self.state.lock().await.open.take() {
            open.connection.close(VarInt::from_u32(0), b"bye");
            let _ = timeout(limits::GOODBYE, open.endpoint.wait_idle()).await;
        }
    }

    /// Asks the server, a second time on a new connection if the first was lost and the question allows it.
    async fn call(
        &self,
        request: Bytes,
        again: bool,
    ) -> io::Result<Result<StoreReply, StoreRefusal>> {
        let mut may_repeat = again;
        loop {
            let connection = self.connection().await?;
            let call = exchange(&connection, request.clone());
            let failure = match timeout(time_for(request.len()), call).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(CallFailure::Lost(_))) if may_repeat => {
                    may_repeat = false;
                    continue;
                }
                Ok(Err(CallFailure::Lost(reason))) => io::Error::other(reason),
                Ok(Err(CallFailure::Failed(error))) => error,
                Err(_) => io::Error::new(io::ErrorKind::TimedOut, "no answer came"),
            };
            connection.close(VarInt::from_u32(1), b"no answer came");
            self.state.lock().await.leave_alone(&failure);
            return Err(failure);
        }
    }

    async fn connection(&self) -> io::Result<Connection> {
        let mut state = self.state.lock().await;
        if let Some(open) = &state.open
            && open.connection.close_reason().is_none()
        {
            return Ok(open.connection.clone());
        }
        state.open = None;
        if let Some((until, why)) = &state.alone
            && *until > Instant::now()
        {
            return Err(io::Error::other(format!("it failed a moment ago: {why}")));
        }
        let dialled = timeout(limits::STORE_CONNECT, self.dial()).await;
        let timed_out = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer came"));
        match dialled.unwrap_or_else(timed_out) {
            Ok(open) => {
                let connection = open.connection.clone();
                tracing::info!(server = self.server, "connected to a server of the store");
                state.open = Some(open);
                state.alone = None;
                Ok(connection)
            }
            Err(error) => {
                state.leave_alone(&error);
                Err(error)
            }
        }
    }

    /// Dials all addresses of the server at once; the first that answers counts.
    async fn dial(&self) -> io::Result<OpenLine> {
        let addresses = tokio::net::lookup_host(&self.server).await?;
        let mut dialled = JoinSet::new();
        for addr in addresses.take(ADDRESSES) {
            dialled.spawn(dial(addr, self.client.clone()));
        }
        let mut outcome = Err(io::Error::other("its name has no address"));
        while let Some(dialled) = dialled.join_next().await {
            outcome = dialled.unwrap_or_else(|error| Err(io::Error::other(error)));
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

impl LineState {
    fn leave_alone(&mut self, error: &io::Error) {
        let until = Instant::now() + limits::STORE_ALONE;
        self.alone = Some((until, error.to_string()));
    }
}

async fn dial(addr: SocketAddr, client: ClientConfig) -> io::Result<OpenLine> {
    let endpoint = socket::client_endpoint(addr)?;
    let connecting = endpoint.connect_with(client, addr, "satin");
    let connecting = connecting.map_err(io::Error::other)?;
    let connection = tokio::select! {
        connected = connecting => connected.map_err(io::Error::other)?,
        () = greeting::nobody_listens(addr) => {
            let text = "no process listens there";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
        }
    };
    Ok(OpenLine {
        endpoint,
        connection,
    })
}

/// Sends a request, and waits for its answer.
async fn exchange(
    connection: &Connection,
    request: Bytes,
) -> Result<Result<StoreReply, StoreRefusal>, CallFailure> {
    let (mut send, mut recv) = connection.open_bi().await?;
    match send.write_chunk(request).await {
        Ok(()) => {}
        Err(WriteError::ConnectionLost(error)) => return Err(error.into()),
        Err(error) => return Err(CallFailure::Failed(io::Error::other(error))),
    }
    // Cannot fail: nothing has finished the stream before.
    let _ = send.finish();
    let answer = match recv.read_to_end(store_wire::REPLY).await {
        Ok(answer) => answer,
        Err(ReadToEndError::Read(quinn::ReadError::ConnectionLost(error))) => {
            return Err(error.into());
        }
        Err(error) => return Err(CallFailure::Failed(io::Error::other(error))),
    };
    let answer = store_wire::decode_reply(&answer);
    answer.ok_or_else(|| CallFailure::Failed(io::Error::new(io::ErrorKind::InvalidData, NO_SENSE)))
}
