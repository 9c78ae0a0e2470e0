//! Stores in a bucket: files made of objects, runs made of files, and what is said when something is wrong.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use s3_tests::{BUCKET, Fault, S3Server};
use satin_runtime::{
    job::{Answer, Batch, Fingerprint, JobName, Saved, StoredFact},
    net::s3_store::S3Store,
    stable::{
        Stable, StableError,
        runs::{BeginRequest, EpochStart, LogName, Program, Resume, Runs, Stays},
    },
};

/// The longest time in which a call fails, and the test with it on a busy machine: see `limits::STORE_CALL`.
const BOUND: Duration = Duration::from_secs(30);

const SEGMENT: &str = "fib/run/log/0-a-0/00000000";

fn open(server: &S3Server) -> S3Store {
    S3Store::open(BUCKET, "a/b", server.variables()).expect("it can be used")
}

fn paths(store: &dyn Stable, prefix: &str) -> Vec<String> {
    let files = store.list(prefix).expect("it can be listed");
    files.into_iter().map(|(path, _)| path).collect()
}

/// The number of requests since the last call that have this method.
fn count(server: &S3Server, method: &str) -> usize {
    let requests = server.requests();
    requests.iter().filter(|(of, _)| of == method).count()
}

#[test]
fn what_is_written_is_there_for_others() {
    let server = S3Server::start();
    let (here, there) = (open(&server), open(&server));
    here.create("fib/run/manifest", b"first").expect("new");
    for batch in [&b"one"[..], b"two", b"", b"six"] {
        here.append(SEGMENT, batch).expect("written");
    }
    let read = |range| there.read(SEGMENT, range).expect("there");
    assert_eq!(read(0..u64::MAX), b"onetwosix");
    for (range, bytes) in [
        (0..3, &b"one"[..]),
        (2..4, b"et"),
        (2..7, b"etwos"),
        (3..6, b"two"),
        (4..4, b""),
        (8..100, b"x"),
        (9..100, b""),
        (50..100, b""),
    ] {
        assert_eq!(read(range.clone()), bytes, "{range:?}");
    }
    let listed = there.list("fib/run/").expect("there");
    let expected = [(SEGMENT.to_owned(), 9), ("fib/run/manifest".into(), 5)];
    assert_eq!(listed, expected);
    assert_eq!(there.list("").expect("there"), expected);
    assert_eq!(paths(&there, "fib/run/m"), ["fib/run/manifest"]);
    assert_eq!(paths(&there, "fib/run/x"), Vec::<String>::new());
    // Another process goes on with the file.
    there.append(SEGMENT, b"ten").expect("written");
    assert_eq!(here.read(SEGMENT, 6..99).expect("there"), b"sixten");
    there.delete(SEGMENT).expect("deleted");
    there.delete(SEGMENT).expect("deleted before");
    let error = here.read(SEGMENT, 0..1).expect_err("gone");
    assert!(matches!(error, StableError::Missing(_)), "{error}");
    assert_eq!(paths(&here, ""), ["fib/run/manifest"]);
    here.delete("fib/run/manifest").expect("deleted");
    assert!(paths(&here, "").is_empty());
}

#[test]
fn a_file_that_was_created_can_be_appended_to() {
    let server = S3Server::start();
    let store = open(&server);
    store.create("p/file", b"begin").expect("new");
    store.append("p/file", b"end").expect("written");
    store.append("p/file2", b"another").expect("written");
    assert_eq!(store.read("p/file", 3..7).expect("there"), b"inen");
    let sizes = [("p/file".to_owned(), 8), ("p/file2".into(), 7)];
    assert_eq!(store.list("p/").expect("there"), sizes);
    store.delete("p/file").expect("deleted");
    assert_eq!(paths(&store, "p/"), ["p/file2"]);
}

#[test]
fn a_file_ends_at_its_first_gap() {
    let server = S3Server::start();
    let store = open(&server);
    for batch in [b"one", b"two", b"six"] {
        store.append("p/file", batch).expect("written");
    }
    let piece = |offset: u32| server.bucket().join(format!("a/b/p/file@{offset:016x}"));
    std::fs::remove_file(piece(3)).expect("there");
    // Objects of others' have no part in it.
    std::fs::write(piece(3).with_extension("old"), "two").expect("written");
    let last = server.bucket().join("a/b/p/file@ffffffffffffffff");
    std::fs::write(last, "two").expect("written");
    std::fs::write(server.bucket().join("a/b/p/file@3"), "two").expect("written");
    assert_eq!(store.read("p/file", 0..100).expect("there"), b"one");
    let other = open(&server);
    assert_eq!(other.list("p/file").expect("there"), [("p/file".into(), 3)]);
    store.delete("p/file").expect("deleted");
    assert!(!piece(6).exists());
}

#[test]
fn what_is_no_path_is_refused() {
    let server = S3Server::start();
    let store = open(&server);
    for path in [
        "",
        "/p",
        "p/",
        "p//f",
        "p/../f",
        "p/.f",
        "p/f@0000000000000000",
        "p/ä",
    ] {
        store.create(path, b"x").expect_err("no path");
        store.append(path, b"x").expect_err("no path");
        store.read(path, 0..1).expect_err("no path");
        store.delete(path).expect_err("no path");
    }
    assert!(paths(&store, "").is_empty());
}

/// More than one page of a list, and more than one request for deletions.
#[test]
fn a_long_log_is_read_and_removed_as_a_whole() {
    let server = S3Server::start();
    let store = open(&server);
    let directory = server.bucket().join("a/b/p");
    std::fs::create_dir_all(&directory).expect("made");
    for piece in 0..2500_u32 {
        let name = format!("log@{:016x}", piece * 4);
        std::fs::write(directory.join(name), piece.to_le_bytes()).expect("written");
    }
    let bytes = store.read("p/log", 0..u64::MAX).expect("there");
    let expected: Vec<u8> = (0..2500_u32).flat_map(u32::to_le_bytes).collect();
    assert!(bytes == expected, "{} bytes", bytes.len());
    assert_eq!(store.list("").expect("there"), [("p/log".into(), 10_000)]);
    store.delete("p/log").expect("deleted");
    assert!(paths(&store, "").is_empty());
}

#[test]
fn a_batch_is_one_request() {
    let server = S3Server::start();
    let store = open(&server);
    store.append(SEGMENT, b"one").expect("written");
    server.requests();
    for _ in 0..5 {
        store.append(SEGMENT, b"two").expect("written");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 5, "{requests:?}");
}

// ---------------------------------------------------------------------------------------------------------- creation

/// Even if all write the same.
#[test]
fn of_twenty_creators_one_succeeds() {
    let server = S3Server::start();
    for round in 0..5 {
        let path = format!("fib/run/epoch/{round}");
        let barrier = Barrier::new(20);
        let create = |_| {
            let store = open(&server);
            barrier.wait();
            match store.create(&path, b"the same") {
                Ok(()) => true,
                Err(StableError::Exists(_)) => false,
                Err(error) => panic!("{error}"),
            }
        };
        let won: Vec<bool> = thread::scope(|scope| {
            let creators: Vec<_> = (0..20)
                .map(|name| scope.spawn(move || create(name)))
                .collect();
            let joined = creators.into_iter().map(|creator| creator.join());
            joined.map(|won| won.expect("no panic")).collect()
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
    }
}

#[test]
fn a_creator_whose_answer_is_lost_has_created_the_file() {
    let server = S3Server::start();
    let store = open(&server);
    server.fail(&[Fault::LoseAnswer]);
    store.create("p/file", b"mine").expect("created");
    let error = open(&server).create("p/file", b"mine").expect_err("there");
    assert!(matches!(error, StableError::Exists(_)), "{error}");
    server.fail(&[Fault::LoseAnswer]);
    let error = store.create("p/file", b"mine").expect_err("there");
    assert!(matches!(error, StableError::Exists(_)), "{error}");
}

/// The server says so too while another creates, who then fails.
#[test]
fn a_conflict_with_nobody_is_tried_again() {
    let server = S3Server::start();
    let store = open(&server);
    server.fail(&[Fault::Conflict, Fault::Conflict]);
    store.create("p/file", b"mine").expect("created");
    assert_eq!(store.read("p/file", 0..9).expect("there"), b"mine");
}

#[test]
fn an_overloaded_server_is_asked_again() {
    let server = S3Server::start();
    let store = open(&server);
    server.fail(&[Fault::SlowDown, Fault::SlowDown, Fault::LoseAnswer]);
    store.append(SEGMENT, b"one").expect("written");
    server.fail(&[Fault::SlowDown]);
    store.create("p/file", b"mine").expect("created");
    assert_eq!(store.read(SEGMENT, 0..9).expect("there"), b"one");
}

#[test]
fn a_server_that_overwrites_what_it_should_not_is_found_out() {
    let server = S3Server::start();
    server.forget_conditions();
    let error = open(&server).create("p/file", b"mine").expect_err("no use");
    let text = error.to_string();
    assert!(text.contains("`If-None-Match`"), "{text}");
    assert!(
        text.contains("use S3 of AWS, a server of another"),
        "{text}"
    );
}

#[test]
fn whether_the_server_excludes_is_checked_once() {
    let server = S3Server::start();
    let store = open(&server);
    store.create("p/one", b"1").expect("created");
    assert_eq!(count(&server, "PUT"), 2);
    store.create("p/two", b"2").expect("created");
    assert_eq!(count(&server, "PUT"), 1);
}

// ---------------------------------------------------------------------------------------------------------- failures

/// The store cannot be opened, and the text says what to do. In time.
#[track_caller]
fn refuses(bucket: &str, variables: Vec<(String, String)>, texts: &[&str]) {
    let began = Instant::now();
    let opened = S3Store::open(bucket, "a", variables).map(|_| ());
    let text = opened.expect_err("it cannot be used").to_string();
    for expected in texts {
        assert!(text.contains(expected), "expected {expected:?}: {text}");
    }
    assert!(text.starts_with(&format!("s3://{bucket}/a: ")), "{text}");
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

/// The variables of the server, with these instead.
fn with(server: &S3Server, changed: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut variables = server.variables();
    for (name, value) in changed {
        variables.retain(|(known, _)| known != name);
        variables.push(((*name).to_owned(), (*value).to_owned()));
    }
    variables
}

#[test]
fn a_wrong_key_a_wrong_bucket_and_wrong_urls_are_told() {
    let server = S3Server::start();
    let no_bucket = "has no such bucket: make it, or correct the store's URL, AWS_ENDPOINT_URL";
    refuses("nothing", server.variables(), &["NoSuchBucket", no_bucket]);
    let other_key = "refuses the key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to one that";
    let wrong = [("AWS_SECRET_ACCESS_KEY", "guessed")];
    refuses(
        BUCKET,
        with(&server, &wrong),
        &["SignatureDoesNotMatch", other_key],
    );
    let wrong = [("AWS_ACCESS_KEY_ID", "guessed")];
    refuses(BUCKET, with(&server, &wrong), &[other_key]);
    let half = [("AWS_SECRET_ACCESS_KEY", "")];
    refuses(BUCKET, with(&server, &half), &["AWS_SECRET_ACCESS_KEY"]);
    let plain = [("AWS_ALLOW_HTTP", "")];
    refuses(
        BUCKET,
        with(&server, &plain),
        &["or set AWS_ALLOW_HTTP=true"],
    );
}

/// No provider of cryptography has to be set up for the process.
#[test]
fn a_server_without_encryption_does_not_pass_for_one_with() {
    let server = S3Server::start();
    let url = server.variables()[0].1.replace("http:", "https:");
    let changed = [("AWS_ENDPOINT_URL", &*url), ("AWS_ALLOW_HTTP", "")];
    refuses(
        BUCKET,
        with(&server, &changed),
        &["InvalidContentType", "cannot be used from here"],
    );
}

#[test]
fn without_a_key_the_text_names_the_variables() {
    let server = S3Server::start();
    // Where a machine of AWS would get its key.
    let none = [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1"),
    ];
    let said =
        "there is no key for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on every node";
    refuses(BUCKET, with(&server, &none), &[said]);
}

#[test]
fn a_server_that_is_gone_is_told_in_time() {
    let mut server = S3Server::start();
    let store = open(&server);
    store.append(SEGMENT, b"one").expect("written");
    server.stop();
    type Call = fn(&S3Store) -> Result<(), StableError>;
    let calls: [Call; 4] = [
        |store| store.append(SEGMENT, b"two"),
        |store| store.create("p/file", b"x"),
        |store| store.read(SEGMENT, 0..1).map(|_| ()),
        |store| store.delete(SEGMENT),
    ];
    thread::scope(|scope| {
        for call in calls {
            let store = &store;
            scope.spawn(move || {
                let began = Instant::now();
                let text = call(store).expect_err("nobody is there").to_string();
                assert!(text.contains("Connection refused"), "{text}");
                assert!(text.contains("cannot be used from here"), "{text}");
                assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
            });
        }
    });
    refuses(
        BUCKET,
        server.variables(),
        &["cannot be used from here", "AWS_ENDPOINT_URL"],
    );
}

#[test]
fn a_server_that_is_silent_is_told_in_time() {
    let server = S3Server::start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let url = format!("http://{}", silent.local_addr().expect("bound"));
    let changed = [("AWS_ENDPOINT_URL", &*url)];
    refuses(
        BUCKET,
        with(&server, &changed),
        &["no answer came in 20 s", &url],
    );
}

// -------------------------------------------------------------------------------------------------------------- runs

fn begin(runs: &Runs) -> EpochStart {
    let request = BeginRequest {
        pool: "fib".into(),
        program: Program {
            hash: [1; 32],
            target: "x86_64-linux".into(),
            executable: [2; 32],
            command_line: vec!["--depth".into(), "seven".into()],
            mixed_builds: false,
        },
        resume: Resume::Auto,
        force: false,
        max_crashes: 3,
        by: "delft-0".into(),
        founder: rand::random::<u64>().into(),
    };
    runs.begin(&request).expect("it begins")
}

fn fact(index: u32) -> StoredFact {
    StoredFact {
        saved: Saved {
            name: JobName::new([0, index].into_iter().collect(), Fingerprint(index.into())),
            root: Fingerprint(9),
            answer: Answer::result(
                format!("a result in clear text {index}")
                    .into_bytes()
                    .into(),
                Vec::new(),
            ),
        },
        took: Duration::from_millis(5),
    }
}

/// Writes a batch for each of these results to a log of its own for each node.
fn write(runs: &Runs, begun: &EpochStart, node: u128, facts: std::ops::Range<u32>) {
    let log = LogName {
        epoch: begun.epoch,
        node,
        generation: 0,
    };
    let mut writer = runs.writer(&begun.place, log);
    for index in facts {
        let batch = Batch {
            facts: vec![fact(index)],
            ..Batch::default()
        };
        writer.append(batch).expect("written");
    }
}

#[test]
fn a_run_is_begun_resumed_loaded_and_removed() {
    let server = S3Server::start();
    let runs = |seals| Runs::new(Arc::new(open(&server)), b"secret", seals);
    let first = begin(&runs(true));
    write(&runs(true), &first, 1, 0..20);
    write(&runs(true), &first, 2, 20..40);
    let second = begin(&runs(true));
    assert_eq!((&second.place, second.epoch), (&first.place, 1));
    assert_eq!(runs(true).epoch(&first.place).expect("there"), 1);
    write(&runs(true), &second, 1, 40..50);
    let loaded = runs(true).load(&second.place, &|_| true).expect("read");
    assert_eq!((loaded.logs, loaded.torn.len()), (3, 0));
    let facts: Vec<StoredFact> = (0..50).map(fact).collect();
    assert_eq!(loaded.batch.facts, facts);
    // Nobody reads it without the credential; without the seal everybody does.
    for text in ["clear text", "--depth", "delft-0"] {
        assert!(!server.holds(text), "{text}");
    }
    let strangers = Runs::new(Arc::new(open(&server)), b"guessed", true);
    let seen = strangers.load(&second.place, &|_| true).expect("listed");
    assert_eq!((seen.batch, seen.torn.len()), (Batch::default(), 3));
    write(&runs(false), &second, 3, 0..1);
    assert!(server.holds("clear text"));
    // A batch that is put elsewhere does not count.
    let log = format!("{}log/0-{:032x}-0/00000000", first.place.prefix(), 1);
    let piece = server.bucket().join(format!("a/b/{log}@{:016x}", 0));
    let length = std::fs::metadata(&piece).expect("there").len();
    let next = server.bucket().join(format!("a/b/{log}@{length:016x}"));
    std::fs::copy(&piece, &next).expect("copied");
    let loaded = runs(true).load(&second.place, &|log| log.node == 1 && log.epoch == 0);
    let loaded = loaded.expect("read");
    assert_eq!((loaded.batch.facts.len(), loaded.torn.len()), (1, 1));
    let listed = runs(true).list(None).expect("listed");
    assert_eq!((listed.len(), listed[0].epochs, listed[0].logs), (1, 2, 4));
    runs(true)
        .finish(&first.place, 0, Stays::Nothing)
        .expect("finished");
    assert!(paths(&open(&server), "").is_empty());
}
