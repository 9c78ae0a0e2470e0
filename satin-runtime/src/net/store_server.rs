//! A store for other machines: the five calls of [`Stable`] over QUIC, for peers that hold the pool's credential.
//!
//! Each request is a stream of its own. One thread serves all connections; what blocks runs on threads that wait for the
//! disk. All that a peer can make the server hold is limited, see [`limits`]: its connections, its streams, the bytes of
//! all requests and answers, and how long each may take.
//!
//! Knows no run, node or pool: whoever has the credential may do everything.

use std::{
    fs::{self, File, TryLockError},
    io,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use quinn::{
    Connection, Endpoint, Incoming, ReadExactError, RecvStream, SendStream, TokioRuntime, VarInt,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    credential::Credential,
    limits,
    socket::{self, Counted, Names},
    store_wire::{self, StoreRefusal, StoreReply, StoreRequest},
    transport,
};
use crate::{
    observe::log,
    stable::{Stable, StableError},
};

/// The name of the file in a server's directory that shows that a server uses it. No path in a store begins with a dot.
pub const LOCK: &str = ".satin-store-lock";

/// The unit in which memory is handed out.
const KIB: usize = 1024;

/// The code with which a connection ends.
const ENDED: VarInt = VarInt::from_u32(0);
const BROKEN: VarInt = VarInt::from_u32(1);

/// Reasons why a store is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreServerError {
    /// The address to listen on cannot be used.
    #[error("cannot listen on {addr}: {error}; choose another with --listen")]
    Listen {
        /// The address that was to be listened on.
        addr: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The system gives no thread, or what it needs.
    #[error("cannot start the thread of the store: {0}")]
    Thread(io::Error),
    /// Another server keeps its files in the directory.
    #[error(
        "another `satin store` keeps its files in {}: give this one a directory of its own", .0.display()
    )]
    Locked(PathBuf),
    /// The directory cannot be used.
    #[error("cannot keep files in {}: {error}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Makes a directory the server's own, for as long as the file is open; the directory is made if need be.
///
/// # Errors
/// Another server uses it, or it cannot be written to.
pub fn lock(dir: &Path) -> Result<File, StoreServerError> {
    let unusable = |error| StoreServerError::Directory {
        dir: dir.into(),
        error,
    };
    fs::create_dir_all(dir).map_err(unusable)?;
    let mut options = fs::OpenOptions::new();
    let file = (options.write(true).create(true).truncate(false)).open(dir.join(LOCK));
    let file = file.map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreServerError::Locked(dir.into())),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

/// A store that is being served. Dropping it ends that: requests that have arrived are answered first.
#[derive(Debug)]
pub struct StoreServer {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl StoreServer {
    /// Serves `files` at that address, to all who hold the credential. Port 0 stands for any free one.
    ///
    /// # Errors
    /// The address cannot be used, or the system gives no thread.
    pub fn start(
        listen: SocketAddr,
        credential: &Credential,
        files: Arc<dyn Stable>,
    ) -> Result<StoreServer, StoreServerError> {
        let unusable = |error| StoreServerError::Listen {
            addr: listen,
            error,
        };
        let socket = socket::bind(listen).map_err(unusable)?;
        socket.set_nonblocking(true).map_err(unusable)?;
        let addr = socket.local_addr().map_err(unusable)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StoreServerError::Thread)?;
        let endpoint = {
            let _inside = runtime.enter();
            endpoint(socket, credential).map_err(unusable)?
        };
        let (stop, stopped) = watch::channel(false);
        let reception = Arc::new(StoreReception::new(files));
        let thread = std::thread::Builder::new().name("satin-store".into());
        let serve = move || runtime.block_on(serve(endpoint, reception, stopped));
        let thread = log::spawn(thread, serve).map_err(StoreServerError::Thread)?;
        Ok(StoreServer {
            addr,
            stop,
            thread: Some(thread),
        })
    }

    /// The address at which it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends it: what was asked is done and answered, and nothing more is taken. Returns when all is over.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn endpoint(socket: UdpSocket, credential: &Credential) -> io::Result<Endpoint> {
    let names = Names::new(rand::random());
    let socket = Counted::new(socket, Arc::default(), names.clone())?;
    Endpoint::new_with_abstract_socket(
        transport::endpoint(&names),
        Some(transport::store_server(credential)),
        Arc::new(socket),
        Arc::new(TokioRuntime),
    )
}

/// The store, and what may be under way with it.
struct StoreReception {
    files: Arc<dyn Stable>,
    /// In [`KIB`].
    memory: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    /// Handshakes with addresses that may be spoofed, and with those that can be reached.
    unproven: Arc<Semaphore>,
    proven: Arc<Semaphore>,
}

impl StoreReception {
    fn new(files: Arc<dyn Stable>) -> StoreReception {
        let places = |count| Arc::new(Semaphore::new(count));
        StoreReception {
            files,
            memory: places(limits::STORE_MEMORY / KIB),
            connections: places(limits::STORE_CONNECTIONS),
            unproven: places(limits::UNPROVEN_HANDSHAKES),
            proven: places(limits::PROVEN_HANDSHAKES),
        }
    }
}

type Stopped = watch::Receiver<bool>;

/// Returns when the server is to end.
async fn asked_to_stop(stopped: &mut Stopped) {
    // An error: whoever could ask is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn serve(endpoint: Endpoint, reception: Arc<StoreReception>, mut stopped: Stopped) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = asked_to_stop(&mut stopped) => break,
            Some(_) = connections.join_next() => {}
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => receive(incoming, &reception, &stopped, &mut connections),
                None => break,
            }
        }
    }
    while connections.join_next().await.is_some() {}
    endpoint.close(ENDED, b"the store ends");
    let _ = timeout(limits::GOODBYE, endpoint.wait_idle()).await;
}

/// Begins a handshake, if there are not too many.
fn receive(
    incoming: Incoming,
    reception: &Arc<StoreReception>,
    stopped: &Stopped,
    connections: &mut JoinSet<()>,
) {
    let is_proven = incoming.remote_address_validated();
    let places = match is_proven {
        true => &reception.proven,
        false => &reception.unproven,
    };
    match Arc::clone(places).try_acquire_owned() {
        Ok(place) => {
            let (reception, stopped) = (Arc::clone(reception), stopped.clone());
            connections.spawn(let_in(incoming, place, reception, stopped));
        }
        Err(_) if is_proven => incoming.refuse(),
        // Cannot fail: a caller that is not proven has had no retry.
        Err(_) => drop(incoming.retry()),
    }
}

async fn let_in(
    incoming: Incoming,
    handshake: OwnedSemaphorePermit,
    reception: Arc<StoreReception>,
    mut stopped: Stopped,
) {
    let addr = incoming.remote_address();
    let connecting = async { timeout(limits::HANDSHAKE, incoming.into_future()).await };
    let connection = tokio::select! {
        () = asked_to_stop(&mut stopped) => return,
        connected = connecting => match connected {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return tracing::info!(%addr, "refused a connection: {error}"),
            Err(_) => return tracing::info!(%addr, "a handshake was given up"),
        }
    };
    drop(handshake);
    let Ok(_place) = Arc::clone(&reception.connections).try_acquire_owned() else {
        tracing::warn!(%addr, "refused a connection: there are {} already", limits::STORE_CONNECTIONS);
        return connection.close(BROKEN, b"too many connections");
    };
    tracing::info!(%addr, "connected");
    let why = attend(&connection, &reception, stopped).await;
    tracing::info!(%addr, "disconnected: {why}");
}

/// Answers the requests of one connection, until it or the server ends.
async fn attend(
    connection: &Connection,
    reception: &Arc<StoreReception>,
    mut stopped: Stopped,
) -> String {
    let mut requests = JoinSet::new();
    let why = loop {
        tokio::select! {
            () = asked_to_stop(&mut stopped) => break "the server ends".to_owned(),
            Some(_) = requests.join_next() => {}
            stream = connection.accept_bi() => match stream {
                Ok((send, recv)) => {
                    let (connection, reception) = (connection.clone(), Arc::clone(reception));
                    let stopped = stopped.clone();
                    requests.spawn(async move {
                        if let Err(error) = answer(send, recv, &reception, stopped).await {
                            let addr = connection.remote_address();
                            tracing::warn!(%addr, "closed a connection: {error}");
                            connection.close(BROKEN, error.as_bytes());
                        }
                    });
                }
                Err(error) => break error.to_string(),
            }
        }
    };
    while requests.join_next().await.is_some() {}
    why
}

/// Receives a request, does what it says, and waits until the answer has arrived. An error is a peer that breaks the rules.
async fn answer(
    mut send: SendStream,
    recv: RecvStream,
    reception: &Arc<StoreReception>,
    mut stopped: Stopped,
) -> Result<(), String> {
    let received = tokio::select! {
        // A request is received as a whole, or nothing of it is done.
        received = receive_request(recv, reception) => received?,
        () = asked_to_stop(&mut stopped) => None,
    };
    let Some((body, _memory)) = received else {
        return Ok(());
    };
    let files = Arc::clone(&reception.files);
    let perform = move || store_wire::encode_reply(&perform(&*files, &body));
    let reply = tokio::task::spawn_blocking(perform).await;
    let reply = reply.map_err(|_| "the store panicked".to_owned())?;
    let written = async {
        send.write_all(&reply).await.ok()?;
        send.finish().ok()
    };
    match timeout(time_for(reply.len()), written).await {
        Ok(Some(())) => {}
        // A peer that is gone does not need the answer.
        Ok(None) => return Ok(()),
        Err(_) => return Err("it does not take an answer".into()),
    }
    // An answer that is under way when the server ends has a moment to arrive; a peer that has died would never say so.
    let given_up = async {
        asked_to_stop(&mut stopped).await;
        sleep(limits::GOODBYE).await;
    };
    tokio::select! {
        _ = send.stopped() => {}
        () = given_up => {}
    }
    Ok(())
}

/// Time that a request or answer of that size may take.
pub(super) fn time_for(bytes: usize) -> Duration {
    limits::STORE_CALL + Duration::from_secs(bytes as u64) / limits::STORE_RATE
}

/// The body of a request, and the memory that is set aside for it and its answer. `None` if the peer has thought better.
async fn receive_request(
    mut recv: RecvStream,
    reception: &StoreReception,
) -> Result<Option<(Vec<u8>, OwnedSemaphorePermit)>, String> {
    let mut length = [0; store_wire::LENGTH];
    match timeout(limits::STORE_CALL, recv.read_exact(&mut length)).await {
        Ok(Ok(())) => {}
        Ok(Err(ReadExactError::FinishedEarly(1..))) => return Err("a request is cut off".into()),
        Ok(Err(_)) => return Ok(None),
        Err(_) => return Err("a request does not come".into()),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > store_wire::REQUEST {
        return Err(format!("a request is of {length} bytes"));
    }
    let kibs = (length + store_wire::REPLY).div_ceil(KIB) as u32;
    let memory = Arc::clone(&reception.memory).acquire_many_owned(kibs).await;
    let memory = memory.map_err(|_| "the server ends".to_owned())?;
    let whole = async {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = recv.read_chunk(limits::LARGE, true).await {
            if body.len() + chunk.bytes.len() > length {
                return Err(format!("a request is longer than its {length} bytes"));
            }
            body.extend_from_slice(&chunk.bytes);
        }
        // A shorter one: the peer has gone or given up meanwhile.
        Ok((body.len() == length).then_some(body))
    };
    match timeout(time_for(length), whole).await {
        Ok(body) => Ok(body?.map(|body| (body, memory))),
        Err(_) => Err("a request comes too slowly".into()),
    }
}

fn perform(files: &dyn Stable, body: &[u8]) -> Result<StoreReply, StoreRefusal> {
    let Some(request) = StoreRequest::decode(body) else {
        let text = "the request makes no sense, or its path is no path in a store";
        return Err(StoreRefusal::Failed(text.into()));
    };
    let done = carry_out(files, &request);
    done.map_err(|error| {
        if matches!(error, StableError::Failed { .. }) {
            tracing::warn!("a request fails: {error}");
        }
        error.into()
    })
}

fn carry_out(files: &dyn Stable, request: &StoreRequest<'_>) -> Result<StoreReply, StableError> {
    match *request {
        StoreRequest::Create { path, bytes } => {
            files.create(path, bytes).map(|()| StoreReply::Done)
        }
        StoreRequest::Append { path, bytes } => {
            files.append(path, bytes).map(|()| StoreReply::Done)
        }
        StoreRequest::Read { path, start, end } => {
            let longest = start.saturating_add(limits::STORE_PIECE as u64);
            let bytes = files.read(path, start..end.clamp(start, longest))?;
            Ok(StoreReply::Bytes(bytes.into()))
        }
        StoreRequest::List { prefix, after } => Ok(page(files.list(prefix)?, after)),
        StoreRequest::Delete { path } => files.delete(path).map(|()| StoreReply::Done),
    }
}

/// As many files behind `after` as fit in an answer.
fn page(list: Vec<(String, u64)>, after: &str) -> StoreReply {
    let mut files = Vec::new();
    let mut bytes = 0;
    for (path, size) in list {
        if *path <= *after {
            continue;
        }
        // Two numbers of at most ten bytes.
        bytes += path.len() + 20;
        if bytes > limits::STORE_PIECE {
            return StoreReply::Files { files, more: true };
        }
        files.push((path, size));
    }
    StoreReply::Files { files, more: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_too_long_comes_in_pages() {
        let all: Vec<(String, u64)> = (0..300_000)
            .map(|number| (format!("{}{number:08}", "a/".repeat(40)), number))
            .collect();
        let (mut seen, mut pages, mut after) = (Vec::new(), 0, String::new());
        loop {
            let reply = page(all.clone(), &after);
            assert!(store_wire::encode_reply(&Ok(reply.clone())).len() <= store_wire::REPLY);
            let StoreReply::Files { files, more } = reply else {
                panic!("files");
            };
            seen.extend(files);
            pages += 1;
            if !more {
                break;
            }
            after = seen.last().expect("no page is empty").0.clone();
        }
        assert_eq!(pages, 2);
        assert_eq!(seen, all);
    }

    #[test]
    fn a_directory_has_one_server() {
        let dir = std::env::temp_dir().join(format!("satin-lock-{}", std::process::id()));
        let first = lock(&dir).expect("nobody has it");
        let error = lock(&dir).expect_err("it is locked");
        assert!(
            error.to_string().contains("another `satin store`"),
            "{error}"
        );
        drop(first);
        lock(&dir).expect("nobody has it any more");
        fs::remove_dir_all(&dir).expect("removed");
    }
}
