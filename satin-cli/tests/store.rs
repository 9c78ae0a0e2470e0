//! Stores on servers: three in this process, of which one goes, and a `satin store` of its own.

mod common;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::Range,
    sync::{Arc, Barrier, Mutex},
    thread,
};

use common::StoreProcess;
use satin_runtime::{
    net::{
        Credential, StoreServer, storage_url,
        store_client::{RemoteStore, StoreThread},
    },
    stable::{Stable, StableError, StoreUrl},
};

const EPOCH: &str = "fib/run/epoch/0";

/// A store that forgets.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, Vec<u8>>>);

impl Stable for Memory {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
        let mut files = self.0.lock().expect("whole");
        if files.contains_key(path) {
            return Err(StableError::Exists(path.into()));
        }
        files.insert(path.into(), bytes.into());
        Ok(())
    }

    fn append(&self, path: &str, batch: &[u8]) -> Result<(), StableError> {
        let mut files = self.0.lock().expect("whole");
        files.entry(path.into()).or_default().extend(batch);
        Ok(())
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError> {
        let files = self.0.lock().expect("whole");
        let missing = || StableError::Missing(path.into());
        let bytes = files.get(path).ok_or_else(missing)?;
        let end = bytes.len().min(range.end as usize);
        Ok(bytes[end.min(range.start as usize)..end].to_vec())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError> {
        let files = self.0.lock().expect("whole");
        let fits = files.iter().filter(|(path, _)| path.starts_with(prefix));
        Ok(fits
            .map(|(path, bytes)| (path.clone(), bytes.len() as u64))
            .collect())
    }

    fn delete(&self, path: &str) -> Result<(), StableError> {
        self.0.lock().expect("whole").remove(path);
        Ok(())
    }
}

fn credential() -> Credential {
    let text = Credential::generate().expect("a key");
    Credential::parse(text.as_bytes()).expect("a credential")
}

fn serve(credential: &Credential, files: &Arc<Memory>) -> StoreServer {
    let files = Arc::clone(files) as Arc<dyn Stable>;
    StoreServer::start(([127, 0, 0, 1], 0).into(), credential, files).expect("a server")
}

/// The store that these servers are together.
fn open(addrs: &[SocketAddr], credential: &Credential) -> Arc<dyn Stable> {
    let servers: Vec<String> = addrs.iter().map(SocketAddr::to_string).collect();
    let url: StoreUrl = format!("satin://{}", servers.join(","))
        .parse()
        .expect("a URL");
    storage_url::open(&url, credential).expect("a store")
}

/// Three servers, and their addresses.
fn three(credential: &Credential) -> (Vec<StoreServer>, Vec<SocketAddr>) {
    let servers: Vec<_> = (0..3).map(|_| serve(credential, &Arc::default())).collect();
    let addrs = servers.iter().map(StoreServer::addr).collect();
    (servers, addrs)
}

#[test]
fn what_was_written_is_read_without_one_of_three_servers() {
    let credential = credential();
    for lost in 0..3 {
        let (mut servers, addrs) = three(&credential);
        let store = open(&addrs, &credential);
        store.create(EPOCH, b"me").expect("created");
        let log = |node: u32| format!("fib/run/log/0-{node}-0/00000000");
        for node in 0..8 {
            store.append(&log(node), b"one").expect("written");
            store.append(&log(node), b"two").expect("written");
        }
        servers.remove(lost).stop();
        // By the same process, and by one that comes later.
        for store in [&store, &open(&addrs, &credential)] {
            assert_eq!(store.read(EPOCH, 0..10).expect("there"), b"me");
            for node in 0..8 {
                assert_eq!(store.read(&log(node), 0..10).expect("there"), b"onetwo");
                assert_eq!(store.read(&log(node), 2..4).expect("there"), b"et");
            }
            assert_eq!(store.list("fib/run/log/").expect("a list").len(), 8);
        }
        // The run goes on.
        let exists = store.create(EPOCH, b"you").expect_err("there");
        assert!(matches!(exists, StableError::Exists(_)), "{exists}");
        store.create("fib/run/epoch/1", b"me").expect("created");
        for node in 0..8 {
            store.append(&log(node), b"six").expect("written");
            assert_eq!(store.read(&log(node), 0..10).expect("there"), b"onetwosix");
        }
    }
}

#[test]
fn of_eight_creators_one_succeeds() {
    let credential = credential();
    let (_servers, addrs) = three(&credential);
    let barrier = Barrier::new(8);
    let create = |name: u8| {
        let store = open(&addrs, &credential);
        // Connected, so that they all begin at once.
        store.list("").expect("a list");
        barrier.wait();
        match store.create(EPOCH, &[name]) {
            Ok(()) => Some(name),
            Err(StableError::Exists(_)) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let winners: Vec<u8> = thread::scope(|scope| {
        let creators: Vec<_> = (0..8)
            .map(|name| scope.spawn(move || create(name)))
            .collect();
        let won = creators.into_iter().map(|creator| creator.join());
        won.filter_map(|won| won.expect("no panic")).collect()
    });
    assert_eq!(winners.len(), 1, "{winners:?}");
    let store = open(&addrs, &credential);
    assert_eq!(store.read(EPOCH, 0..9).expect("there"), winners);
}

#[test]
fn a_process_without_the_credential_is_refused() {
    let (mine, other) = (credential(), credential());
    let files = Arc::<Memory>::default();
    let server = serve(&mine, &files);
    let error = open(&[server.addr()], &other).create(EPOCH, b"me");
    let error = error.expect_err("refused");
    assert!(error.to_string().contains("0 of 1 servers"), "{error}");
    assert!(files.0.lock().expect("whole").is_empty());
    open(&[server.addr()], &mine)
        .create(EPOCH, b"me")
        .expect("created");
}

#[test]
fn large_files_come_in_pieces_and_empty_ones_are_there() {
    let credential = credential();
    let server = serve(&credential, &Arc::default());
    let store = open(&[server.addr()], &credential);
    let bytes: Vec<u8> = (0..40 << 20).map(|at: u32| (at >> 12) as u8).collect();
    store
        .create("fib/run/value/large", &bytes)
        .expect("created");
    store.create("fib/run/value/none", b"").expect("created");
    assert!(
        store
            .read("fib/run/value/large", 0..u64::MAX)
            .expect("there")
            == bytes
    );
    let piece = store
        .read("fib/run/value/large", 5..20_000_000)
        .expect("there");
    assert!(piece == bytes[5..20_000_000]);
    assert_eq!(store.read("fib/run/value/none", 0..9).expect("there"), b"");
    assert_eq!(
        store
            .read("fib/run/value/large", 1 << 30..u64::MAX)
            .expect("there"),
        b""
    );
}

/// What a peer with the credential must not get at.
#[test]
fn no_path_leads_out_of_the_store() {
    let credential = credential();
    let server = serve(&credential, &Arc::default());
    let thread = StoreThread::start().expect("a thread");
    let store = RemoteStore::new(&server.addr().to_string(), &credential, &thread);
    for path in [
        "../escaped",
        "/etc/passwd",
        "a/../../b",
        ".satin-store-lock",
        "",
    ] {
        let error = store.create(path, b"me").expect_err("no path");
        assert!(error.to_string().contains("no path in a store"), "{error}");
    }
    store.create(EPOCH, b"me").expect("it answers all the same");
}

/// Everything that is acknowledged when a server is asked to end is there; nothing is done by halves.
#[test]
fn a_server_that_ends_has_done_what_it_acknowledged() {
    let credential = credential();
    let files = Arc::<Memory>::default();
    let server = serve(&credential, &files);
    let store = open(&[server.addr()], &credential);
    let path = "fib/run/log/0-a-0/00000000";
    store.append(path, &[0; 1000]).expect("written");
    let acknowledged = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let written = (1u64..).find(|_| store.append(path, &[0; 1000]).is_err());
            written.expect("the server ends")
        });
        server.stop();
        writing.join().expect("no panic")
    });
    let length = files.0.lock().expect("whole")[path].len() as u64;
    assert_eq!(length % 1000, 0);
    assert!(
        length >= acknowledged * 1000,
        "{length} bytes, {acknowledged} batches"
    );
}

// -------------------------------------------------------------------------------------------------------- the process

#[test]
fn a_store_that_is_started_again_has_what_was_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let key = dir.path().join("pool.pem");
    Credential::write_new(&key).expect("written");
    let credential = Credential::load(&key).expect("read");
    let process = StoreProcess::start(dir.path(), ([127, 0, 0, 1], 0).into()).expect("it listens");
    assert!(
        process.greeting.ends_with("0 runs, 0 KiB\n"),
        "{}",
        process.greeting
    );
    let addr = process.addr;
    let store = open(&[addr], &credential);
    store.create(EPOCH, b"me").expect("created");
    store
        .append("fib/run/log/0-a-0/00000000", &[7; 5000])
        .expect("written");

    let second = StoreProcess::start(dir.path(), ([127, 0, 0, 1], 0).into());
    let error = second.err().expect("the directory is taken");
    assert!(
        error.contains("another `satin store` keeps its files in"),
        "{error}"
    );

    assert_eq!(process.terminate(), Some(0));
    let process = StoreProcess::start(dir.path(), addr).expect("it listens again");
    assert!(
        process.greeting.ends_with("1 run, 5 KiB\n"),
        "{}",
        process.greeting
    );
    // The client finds its way back by itself.
    assert_eq!(store.read(EPOCH, 0..10).expect("there"), b"me");
    store
        .append("fib/run/log/0-a-0/00000000", &[8; 5])
        .expect("written");
    let log = store.read("fib/run/log/0-a-0/00000000", 4999..9999);
    assert_eq!(log.expect("there"), [7, 8, 8, 8, 8, 8]);
    assert_eq!(process.terminate(), Some(0));
}
