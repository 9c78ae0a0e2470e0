//! What the nodes of a pool log. The program is this test itself, started again.
#![cfg(all(unix, not(feature = "serial")))]
#![forbid(unsafe_code)]

mod common;

use std::{
    collections::BTreeSet,
    fs::File,
    process::{Child, Command},
    time::Instant,
};

use common::PATIENCE;
use satin::{spawn, spawnable, sync};
use serde_json::Value;
use tempfile::TempDir;

/// What `main` of the program does.
const WAY: &str = "SATIN_TEST_WAY";

/// Logs on two nodes: each job waits until the other has begun.
#[spawnable]
fn meet(dir: String) {
    spawn!(say(dir.clone(), 1));
    spawn!(say(dir, 2));
    sync!();
}

#[spawnable]
fn say(dir: String, number: u32) {
    tracing::info!(number, "a job speaks");
    File::create(format!("{dir}/here-{number}")).expect("made");
    common::wait_for("the other job", || {
        std::fs::exists(format!("{dir}/here-{}", 3 - number)).is_ok_and(|exists| exists)
    });
}

/// Not a test: the program.
#[test]
fn program() {
    let Ok(way) = std::env::var(WAY) else {
        return;
    };
    satin::run(satin::Config::default(), || match &*way {
        "stay" => {
            println!("the master has begun");
            std::thread::sleep(PATIENCE);
        }
        dir => {
            tracing::info!("main speaks");
            meet(dir.into());
        }
    });
}

/// A process of the program. Dropping it kills it.
struct Node {
    name: &'static str,
    child: Child,
    said: std::path::PathBuf,
}

impl Node {
    fn start(dir: &TempDir, name: &'static str, way: &str, more: &[(&str, &str)]) -> Node {
        let at = |name: &str| dir.path().join(name);
        let said = at(&format!("said-{name}-{}", way.len()));
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "program", "--nocapture"]);
        let child = command
            .env(WAY, way)
            .env("SATIN_THREADS", "1")
            .env("SATIN_NAME", name)
            .env("SATIN_SITE", format!("site-of-{name}"))
            .env("SATIN_POOL", "log")
            .env("SATIN_JOIN", format!("file:{}", at("members").display()))
            .env("SATIN_CREDENTIAL", at("key"))
            .env("SATIN_LOG", "info")
            .envs(more.iter().copied())
            .stdout(File::create(at("printed")).expect("made"))
            .stderr(File::create(&said).expect("made"))
            .spawn()
            .expect("it starts");
        Node { name, child, said }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Waits for its end, whatever the exit code.
    fn ends(&mut self) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(
                since.elapsed() < PATIENCE,
                "{} stays: {}",
                self.name,
                self.said()
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// The lines of its log, each of which is JSON and of this node.
    #[track_caller]
    fn lines(&self) -> Vec<Value> {
        let said = self.said();
        let lines: Vec<Value> = said
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect();
        for line in &lines {
            assert_eq!(line["node"], self.name, "{line}");
            assert_eq!(line["site"], format!("site-of-{}", self.name), "{line}");
            for key in ["time", "level", "target", "message"] {
                assert!(line[key].is_string(), "{line}");
            }
        }
        lines
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn place() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    satin::net::Credential::write_new(&dir.path().join("key")).expect("written");
    dir
}

fn has(lines: &[Value], target: &str, message: &str) -> bool {
    let is = |line: &&Value| {
        let text = line["message"].as_str().unwrap_or_default();
        line["target"] == target && text.contains(message)
    };
    lines.iter().any(|line| is(&line))
}

#[test]
fn each_line_of_json_names_its_node_and_site() {
    let dir = place();
    let way = dir.path().to_str().expect("text");
    let more = [("SATIN_LOG_FORMAT", "json"), ("SATIN_NODES", "2")];
    let mut nodes = ["one", "two"].map(|name| Node::start(&dir, name, way, &more));
    for node in &mut nodes {
        assert_eq!(node.ends(), Some(0), "{}", node.said());
    }
    let lines = nodes.each_ref().map(Node::lines);
    let mut spoke = BTreeSet::new();
    for lines in &lines {
        // The network's thread, and a worker's.
        assert!(
            has(lines, "satin_runtime::net::driver", "is in the pool"),
            "{lines:?}"
        );
        assert!(has(lines, "log", "a job speaks"), "{lines:?}");
        let jobs = lines
            .iter()
            .filter(|line| line["message"] == "a job speaks");
        spoke.extend(jobs.filter_map(|line| line["fields"]["number"].as_u64()));
    }
    assert_eq!(spoke, BTreeSet::from([1, 2]));
    let mains = lines
        .iter()
        .filter(|lines| has(lines, "log", "main speaks"));
    assert_eq!(mains.count(), 1, "{lines:?}");
}

/// Events, messages and actions of a node are lines of its log, in words.
#[test]
fn the_protocol_can_be_read() {
    let dir = place();
    let way = dir.path().to_str().expect("text");
    let more = [
        ("SATIN_LOG_FORMAT", "json"),
        ("SATIN_NODES", "2"),
        ("SATIN_LOG", "satin::node=trace"),
    ];
    let mut nodes = ["one", "two"].map(|name| Node::start(&dir, name, way, &more));
    for node in &mut nodes {
        assert_eq!(node.ends(), Some(0), "{}", node.said());
    }
    let all = nodes.each_ref().map(Node::lines).concat();
    for words in [
        "asks to be let in",
        ": welcome, stamp 1, term 0",
        "takes in 0.",
        "is done: result",
        "may start roots",
        "says: the pool has ended with 0",
    ] {
        assert!(has(&all, "satin::node", words), "{words}: {all:?}");
    }
}

/// The thread of the store has lines too: the run goes on that was broken off.
#[test]
fn lines_of_the_stores_thread_name_the_node() {
    let dir = place();
    let store = format!("file:{}", dir.path().join("store").display());
    let more = [("SATIN_LOG_FORMAT", "json"), ("SATIN_STORE", &*store)];
    let mut first = Node::start(&dir, "one", "stay", &more);
    common::wait_for("the first start", || {
        let printed = std::fs::read_to_string(dir.path().join("printed"));
        printed.is_ok_and(|text| text.contains("has begun"))
    });
    let pid = first.child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(first.ends(), Some(143), "{}", first.said());
    for number in [1, 2] {
        // The jobs need not wait for each other on one node.
        File::create(dir.path().join(format!("here-{number}"))).expect("made");
    }
    let way = dir.path().to_str().expect("text");
    let mut second = Node::start(&dir, "one", way, &more);
    assert_eq!(second.ends(), Some(0), "{}", second.said());
    let lines = second.lines();
    assert!(
        has(&lines, "satin_runtime::net::storage", "goes on with run"),
        "{lines:?}"
    );
}

#[test]
fn a_form_that_there_is_not_is_an_error() {
    let dir = place();
    let mut node = Node::start(&dir, "one", "stay", &[("SATIN_LOG_FORMAT", "xml")]);
    assert_eq!(node.ends(), Some(2));
    assert_eq!(
        node.said(),
        "error: SATIN_LOG_FORMAT=\"xml\": expected text or json [satin explain S0101]\n"
    );
}
