//! `s3s-fs` on a thread of its own, with faults that tests ask for.

use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

use bytes::Bytes;
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1};
use hyper_util::rt::TokioIo;
use s3s::{
    Body,
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use s3s_fs::FileSystem;
use tokio::{net::TcpListener, sync::oneshot};

/// The bucket that is there.
pub const BUCKET: &str = "results";

const KEY: &str = "test-key";
const SECRET: &str = "test-secret";

/// Something that goes wrong with one request that writes an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The object is written, and the answer is lost.
    LoseAnswer,
    /// The server says that a competitor is about to write the object, who then does not.
    Conflict,
    /// The server is overloaded, and writes nothing.
    SlowDown,
}

/// A server with one bucket, and one key that may do everything. It ends with this value.
pub struct S3Server {
    addr: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    directory: tempfile::TempDir,
}

/// The server's state, for all connections.
struct State {
    service: S3Service,
    /// The directory with the bucket.
    root: PathBuf,
    /// Conditional writes of `s3s-fs` are not atomic, those of S3 are.
    writes: tokio::sync::Mutex<()>,
    /// What happens to the next requests that write.
    faults: Mutex<VecDeque<Fault>>,
    /// Conditions of requests are left out of account.
    forgets_conditions: AtomicBool,
    /// The requests: method and path.
    requests: Mutex<Vec<(Method, String)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for S3Server {
    fn default() -> S3Server {
        S3Server::start()
    }
}

impl S3Server {
    /// Starts it on this machine.
    ///
    /// # Panics
    /// The system has no directory, socket or thread for it.
    #[must_use]
    pub fn start() -> S3Server {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join(BUCKET)).expect("a bucket");
        let files = FileSystem::new(directory.path()).expect("a directory");
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let state = Arc::new(State {
            service: builder.build(),
            root: directory.path().to_owned(),
            writes: tokio::sync::Mutex::default(),
            faults: Mutex::default(),
            forgets_conditions: AtomicBool::new(false),
            requests: Mutex::default(),
        });
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let addr = socket.local_addr().expect("bound");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("threads");
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let listener = runtime.block_on(async move { TcpListener::from_std(socket) });
            runtime.spawn(accept(listener.expect("a socket"), serving));
            // An error: the test has panicked.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        });
        S3Server {
            addr,
            state,
            stop: Some(stop),
            thread: Some(thread),
            directory,
        }
    }

    /// The variables with which a process uses this server.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let pairs = [
            ("AWS_ENDPOINT_URL", format!("http://{}", self.addr)),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_ACCESS_KEY_ID", KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
            ("AWS_REGION", "eu-west-1".into()),
        ];
        let pairs = pairs.into_iter();
        pairs
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Lets the next requests that write an object go wrong, one in each of these ways.
    pub fn fail(&self, faults: &[Fault]) {
        locked(&self.state.faults).extend(faults);
    }

    /// Lets the server overwrite what it is asked to leave alone, as servers do that do not know conditional writes.
    pub fn forget_conditions(&self) {
        self.state.forgets_conditions.store(true, SeqCst);
    }

    /// The requests since the last call: methods and paths.
    pub fn requests(&self) -> Vec<(Method, String)> {
        std::mem::take(&mut *locked(&self.state.requests))
    }

    /// The bucket as a directory: each object is a file.
    #[must_use]
    pub fn bucket(&self) -> PathBuf {
        self.directory.path().join(BUCKET)
    }

    /// True if the text stands in anything that the server has written, or in the name of that.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        holds(self.directory.path(), text.as_bytes())
    }

    /// Ends the server.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(()); // it may have panicked
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn holds(directory: &Path, text: &[u8]) -> bool {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.flatten().any(|entry| {
        let path = entry.path();
        has(entry.file_name().as_encoded_bytes())
            || match path.is_dir() {
                true => holds(&path, text),
                false => has(&std::fs::read(&path).unwrap_or_default()),
            }
    })
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((socket, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { state.answer(request).await }
            });
            // An error: a lost answer, or a client that is gone.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

impl State {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
        let name = (request.method().clone(), request.uri().path().to_owned());
        let writes = request.method() == Method::PUT;
        locked(&self.requests).push(name);
        let fault = match writes {
            true => locked(&self.faults).pop_front(),
            false => None,
        };
        match fault {
            None => self.serve(request).await,
            Some(Fault::LoseAnswer) => {
                self.serve(request).await?;
                Err(io::Error::other("lost"))
            }
            Some(Fault::Conflict) => {
                Ok(refusal(StatusCode::CONFLICT, "ConditionalRequestConflict"))
            }
            Some(Fault::SlowDown) => Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
        }
    }

    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
        if self.forgets_conditions.load(SeqCst) {
            // The header is signed, so it has to stay.
            let _ = std::fs::remove_file(self.root.join(&request.uri().path()[1..]));
        }
        let conditional = request.headers().contains_key(header::IF_NONE_MATCH);
        let _guard = match conditional {
            true => Some(self.writes.lock().await),
            false => None,
        };
        let answer = self.service.call(request.map(Body::from)).await;
        answer.map_err(|error| io::Error::other(format!("{error:?}")))
    }
}

fn refusal(status: StatusCode, code: &str) -> Response<Body> {
    let text = format!("<Error><Code>{code}</Code><Message>as the test wishes</Message></Error>");
    let mut response = Response::new(Body::from(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
