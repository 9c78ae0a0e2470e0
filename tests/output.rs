//! What nodes print reaches those who ask for it, and where it went before. The program is this test itself, started again.
#![cfg(all(unix, not(feature = "serial")))]
#![forbid(unsafe_code)]

mod common;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::{PATIENCE, wait_for};
use satin::{
    net::{Join, NodeOutput, Observer, OutputNews},
    spawn, spawnable, sync,
};
use tempfile::TempDir;

/// What `main` of the program does.
const WAY: &str = "SATIN_TEST_WAY";

/// Number of lines of the one who prints much.
const MANY: u32 = 100_000;

/// A job on each of two nodes: each waits until the other has begun and the test says go, and prints as the last thing that it does.
#[spawnable]
fn both(dir: String) {
    spawn!(speak(dir.clone(), 1));
    spawn!(speak(dir, 2));
    sync!();
}

#[spawnable]
fn speak(dir: String, number: u32) {
    File::create(format!("{dir}/here-{number}")).expect("made");
    wait_for("the other job", || {
        exists(&dir, &format!("here-{}", 3 - number)) && exists(&dir, "go")
    });
    let name = satin::node().name;
    println!("job {number} prints on {name}");
    eprintln!("job {number} complains on {name}");
}

fn exists(dir: &str, name: &str) -> bool {
    std::fs::exists(Path::new(dir).join(name)).is_ok_and(|exists| exists)
}

/// Not a test: the program.
#[test]
fn program() {
    let Ok(way) = std::env::var(WAY) else {
        return;
    };
    let dir = std::env::var("SATIN_TEST_DIR").expect("set");
    satin::run(satin::Config::default(), || match &*way {
        "both" => both(dir.clone()),
        "much" => {
            for number in 0..MANY {
                println!("line {number} of {MANY}: the quick brown fox jumps over the lazy dog");
            }
            let mut stdout = std::io::stdout();
            stdout.write_all(b"\xff\x00\n").expect("printed");
            File::create(format!("{dir}/printed")).expect("made");
            wait_for("the end", || exists(&dir, "over"));
            let child = Command::new("echo").arg("a child prints").status();
            assert!(child.is_ok_and(|status| status.success()));
            print!("no end of the line");
        }
        other => panic!("{other}?"),
    });
}

/// A process of the program. Dropping it kills it.
struct Node {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Node {
    fn start(dir: &TempDir, name: &str, way: &str, more: &[(&str, &str)]) -> Node {
        let at = |name: &str| dir.path().join(name);
        let (stdout, stderr) = (at(&format!("{name}.out")), at(&format!("{name}.err")));
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "program", "--nocapture"]);
        let child = command
            .env(WAY, way)
            .env("SATIN_TEST_DIR", dir.path())
            .env("SATIN_THREADS", "1")
            .env("SATIN_NAME", name)
            .env("SATIN_SITE", "delft")
            .env("SATIN_POOL", "output")
            .env("SATIN_JOIN", members(dir))
            .env("SATIN_CREDENTIAL", at("key"))
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).expect("made"))
            .stderr(File::create(&stderr).expect("made"))
            .spawn()
            .expect("it starts");
        Node {
            child,
            stdout,
            stderr,
        }
    }

    fn ends(&mut self) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            let said = text(&self.stderr);
            assert!(since.elapsed() < PATIENCE, "it stays: {said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn place() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    satin::net::Credential::write_new(&dir.path().join("key")).expect("written");
    dir
}

fn members(dir: &TempDir) -> String {
    format!("file:{}", dir.path().join("members").display())
}

fn observer(dir: &TempDir) -> Observer {
    let join = Join::parse(&members(dir)).expect("valid");
    Observer::new(join, &dir.path().join("key"), None).expect("an observer")
}

/// What the nodes of the pool have printed, asked from outside.
fn output(dir: &TempDir) -> Vec<OutputNews> {
    let observer = observer(dir);
    let nodes = observer.status().expect("a pool").nodes;
    observer.output(&nodes)
}

fn is_line(news: &OutputNews, name: &str, text: &str) -> bool {
    let is_text = |line: &[u8]| String::from_utf8_lossy(line) == text;
    news.name == name && matches!(&news.what, NodeOutput::Line(line) if is_text(&line.text))
}

/// The lines of the job that a node ran: on one of both, whichever that was.
fn said_by(path: &Path, what: &str, name: &str) -> String {
    let lines: Vec<String> = (1..=2)
        .map(|number| format!("job {number} {what} on {name}"))
        .collect();
    let all = text(path);
    let said = lines
        .iter()
        .filter(|line| all.lines().any(|other| other == **line));
    let said: Vec<&String> = said.collect();
    assert_eq!(said.len(), 1, "{name}: {all}");
    said[0].clone()
}

#[test]
fn what_other_nodes_print_is_shown_by_the_master_to_the_last_line() {
    let dir = place();
    let more = [("SATIN_OUTPUT", "all"), ("SATIN_NODES", "2")];
    File::create(dir.path().join("go")).expect("made");
    let mut one = Node::start(&dir, "one", "both", &more);
    wait_for("the founder", || {
        !text(&dir.path().join("members")).is_empty()
    });
    let mut two = Node::start(&dir, "two", "both", &more);
    for node in [&mut one, &mut two] {
        assert_eq!(node.ends(), Some(0), "{}", text(&node.stderr));
    }
    // Each has printed where it was started, as ever.
    let _ = said_by(&one.stdout, "prints", "one");
    let _ = said_by(&one.stderr, "complains", "one");
    let printed = said_by(&two.stdout, "prints", "two");
    let complained = said_by(&two.stderr, "complains", "two");
    // And the master has shown the other's, once, and on standard error: its standard output is the program's.
    let shown = text(&one.stderr);
    for line in [printed, complained] {
        let prefixed = format!("[two @ delft] {line}");
        let count = shown.lines().filter(|line| *line == prefixed).count();
        assert_eq!(count, 1, "{prefixed}: {shown}");
        assert!(!text(&one.stdout).contains(&line));
        assert!(!text(&two.stderr).contains("[one @ delft]"));
    }
}

#[test]
fn much_output_is_copied_byte_for_byte_and_the_last_of_it_is_kept() {
    let dir = place();
    let mut node = Node::start(&dir, "one", "much", &[("SATIN_OUTPUT", "kept")]);
    let name = dir.path().to_str().expect("text");
    // Nobody reads, and the program goes on.
    wait_for("the output", || exists(name, "printed"));
    let news = output(&dir);
    let dropped = match &news[0].what {
        NodeOutput::Dropped(count) => *count,
        other => panic!("{other:?}"),
    };
    assert!(
        news[1..]
            .iter()
            .all(|news| matches!(news.what, NodeOutput::Line(_)))
    );
    let last = format!(
        "line {} of {MANY}: the quick brown fox jumps over the lazy dog",
        MANY - 1
    );
    assert!(
        is_line(&news[news.len() - 2], "one", &last),
        "{:?}",
        news.last()
    );
    match &news[news.len() - 1].what {
        NodeOutput::Line(line) => assert_eq!(line.text, b"\xff\x00"),
        other => panic!("{other:?}"),
    }
    let kept = news.len() as u64 - 1;
    // The harness prints a few lines before.
    let all = u64::from(MANY) + 1;
    assert!(
        (all..all + 10).contains(&(dropped + kept)),
        "{dropped} + {kept}"
    );
    assert!(kept < all / 2, "{kept}");
    File::create(dir.path().join("over")).expect("made");
    assert_eq!(node.ends(), Some(0), "{}", text(&node.stderr));
    let bytes = std::fs::read(&node.stdout).expect("read");
    let mut expected = Vec::new();
    for number in 0..MANY {
        let line =
            format!("line {number} of {MANY}: the quick brown fox jumps over the lazy dog\n");
        expected.extend(line.into_bytes());
    }
    expected.extend(b"\xff\x00\na child prints\nno end of the line");
    let begin = bytes
        .windows(7)
        .position(|seven| seven == b"line 0 ")
        .expect("there");
    assert!(bytes[begin..].starts_with(&expected), "{}", bytes.len());
}

#[test]
fn output_that_is_not_kept_is_not_to_be_had() {
    let dir = place();
    let mut node = Node::start(&dir, "one", "much", &[]);
    let name = dir.path().to_str().expect("text");
    wait_for("the output", || exists(name, "printed"));
    let news = output(&dir);
    assert_eq!(news.len(), 1);
    assert_eq!(news[0].what, NodeOutput::NotKept);
    File::create(dir.path().join("over")).expect("made");
    assert_eq!(node.ends(), Some(0));
    assert!(text(&node.stdout).contains(&format!("line {} of {MANY}", MANY - 1)));
}

/// Lines come while the pool runs, of nodes that come later too, and the reader ends with the pool.
#[test]
fn output_is_followed_to_the_end_of_the_pool() {
    let dir = place();
    let more = [
        ("SATIN_OUTPUT", "kept"),
        ("SATIN_NODES", "2"),
        ("SATIN_LOG", "info"),
    ];
    let mut one = Node::start(&dir, "one", "both", &more);
    wait_for("the founder", || {
        !text(&dir.path().join("members")).is_empty()
    });
    let (sender, news) = std::sync::mpsc::channel();
    let observer = observer(&dir);
    wait_for("the pool", || observer.status().is_ok());
    let following = std::thread::spawn(move || {
        observer.follow_output(|_| true, |news| sender.send(news).expect("somebody reads"))
    });
    // The reader has begun: the log of the first node is kept too.
    let first = news.recv_timeout(PATIENCE).expect("a line");
    assert_eq!(first.name, "one");
    let mut two = Node::start(&dir, "two", "both", &more);
    let mut all = vec![first];
    while all.last().is_some_and(|news| news.name != "two") {
        all.push(news.recv_timeout(PATIENCE).expect("a line of the other"));
    }
    File::create(dir.path().join("go")).expect("made");
    for node in [&mut one, &mut two] {
        assert_eq!(node.ends(), Some(0), "{}", text(&node.stderr));
    }
    following
        .join()
        .expect("no panic")
        .expect("the pool was there");
    all.extend(news);
    assert!(
        !all.iter()
            .any(|news| matches!(news.what, NodeOutput::Dropped(_)))
    );
    // Lines that are printed as the pool ends may be missing; none comes twice.
    for (index, news) in all.iter().enumerate() {
        let is_job = matches!(&news.what, NodeOutput::Line(line) if line.text.starts_with(b"job"));
        assert!(!is_job || !all[..index].contains(news), "{all:?}");
    }
}

/// The error with which a process ends is not lost on its way.
#[test]
fn errors_at_the_start_are_shown() {
    let dir = place();
    std::fs::remove_file(dir.path().join("key")).expect("removed");
    let mut node = Node::start(&dir, "one", "both", &[("SATIN_OUTPUT", "kept")]);
    assert_eq!(node.ends(), Some(2));
    let said = text(&node.stderr);
    assert!(
        said.starts_with("error: ") && said.contains("key"),
        "{said}"
    );
}

#[test]
fn a_use_that_there_is_not_is_an_error() {
    let dir = place();
    let mut node = Node::start(&dir, "one", "both", &[("SATIN_OUTPUT", "both")]);
    assert_eq!(node.ends(), Some(2));
    assert_eq!(
        text(&node.stderr),
        "error: SATIN_OUTPUT=\"both\": expected own, kept or all [satin explain S0101]\n"
    );
}
