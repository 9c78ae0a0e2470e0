//! How the processes of a pool come to their ends. The program is this test itself, started again.
#![cfg(all(unix, not(feature = "serial")))]
#![forbid(unsafe_code)]

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use common::{PATIENCE, Watchdog};
use satin::{spawn, spawnable, sync};
use tempfile::TempDir;

/// What `main` of the program does.
const WAY: &str = "SATIN_TEST_WAY";

#[spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let x = fib(n - 1);
    let y = fib(n - 2);
    sync!();
    x + y
}

/// Ten jobs that take so long each.
#[spawnable]
fn wait(ms: u64) {
    for _ in 0..10 {
        spawn!(pause(ms));
    }
    sync!();
}

/// Jobs of a node fail all at the same line; those of the other do not come to an end.
#[spawnable]
fn fragile(jobs: u32) {
    for _ in 0..jobs {
        spawn!(leaf());
    }
    sync!();
}

#[spawnable]
fn leaf() {
    assert!(satin::node().name != "two", "broken on purpose");
    std::thread::sleep(Duration::from_millis(20));
}

/// Many jobs, each of which takes long on one node only.
#[spawnable]
fn uneven(jobs: u32) {
    for _ in 0..jobs {
        spawn!(slow_on_two());
    }
    sync!();
}

#[spawnable]
fn slow_on_two() {
    let ms = if satin::node().name == "two" {
        10_000
    } else {
        10
    };
    std::thread::sleep(Duration::from_millis(ms));
}

#[spawnable]
fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Not a test: the program.
#[test]
fn program() {
    let Ok(way) = std::env::var(WAY) else {
        return;
    };
    if way == "plain" {
        // No `#[satin::main]`, no `satin::run`.
        println!("alone: {}", fib(20));
        std::process::exit(0);
    }
    if way == "run-error" {
        let failed: Result<u64, u64> = satin::run(satin::Config::default(), || Err(fib(20)));
        std::process::exit(if failed.is_err() { 3 } else { 0 });
    }
    if way == "error" {
        let failed: Result<u64, u64> = satin::__private::main(|| Err(fib(20)));
        assert_eq!(failed, Err(6765));
        // What the standard library does with an error.
        std::process::exit(3);
    }
    satin::run(satin::Config::default(), || {
        assert_eq!(fib(20), 6765);
        println!("the master has begun");
        match &*way {
            "return" => {}
            "panic" => panic!("as asked"),
            "exit" => std::process::exit(7),
            "stay" => std::thread::sleep(PATIENCE),
            // The first master does not come to an end by itself.
            "once" if satin::node().name == "one" => std::thread::sleep(PATIENCE),
            "once" => {}
            "fragile" => fragile(10_000),
            "uneven" => uneven(10_000),
            "work" => wait(PATIENCE.as_millis() as u64 / 10),
            other => panic!("{other}?"),
        }
    });
}

struct Node {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    /// What has been read of that.
    heard: String,
}

impl Node {
    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn wait(&mut self) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            if since.elapsed() > PATIENCE / 2 {
                let _ = self.child.kill();
                panic!("it does not end: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The exit code, or what happened instead.
    fn code(&mut self) -> Result<i32, ExitStatus> {
        let status = self.wait();
        status.code().ok_or(status)
    }

    fn said(&mut self) -> String {
        self.stderr.read_to_string(&mut self.heard).expect("text");
        self.heard.clone()
    }

    /// Waits until it knows itself that it is in the pool: others know it before. Who is asked to leave until then is alone.
    fn wait_until_in(&mut self) {
        self.wait_until_said("this node is in the pool");
    }

    fn wait_until_said(&mut self, words: &str) {
        while !self.heard.contains(words) {
            let read = self.stderr.read_line(&mut self.heard).expect("text");
            assert!(read > 0, "it ends without \"{words}\": {}", self.heard);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Pool {
    dir: TempDir,
    way: &'static str,
}

impl Pool {
    fn new(way: &'static str) -> Pool {
        let dir = TempDir::new().expect("a directory");
        satin::net::Credential::write_new(&dir.path().join("key")).expect("written");
        Pool { dir, way }
    }

    fn start(&self, name: &str, nodes: u32, key: &str) -> Node {
        self.start_with(name, nodes, key, &[])
    }

    fn start_with(&self, name: &str, nodes: u32, key: &str, more: &[(&str, &str)]) -> Node {
        let program = std::env::current_exe().expect("this test");
        let mut command = match satin_runtime::exit::ignores_hangup() && unignores_hangup() {
            true => {
                let mut command = Command::new("env");
                command.arg(UNIGNORE).arg(program);
                command
            }
            false => Command::new(program),
        };
        command.args(["--exact", "program", "--nocapture"]);
        self.start_as(command, name, nodes, key, more)
    }

    fn start_as(
        &self,
        mut command: Command,
        name: &str,
        nodes: u32,
        key: &str,
        more: &[(&str, &str)],
    ) -> Node {
        let at = |name: &str| self.dir.path().join(name);
        let join = format!("file:{}", at("members").display());
        let mut child = command
            .env(WAY, self.way)
            .env("SATIN_THREADS", "1")
            .env("SATIN_NAME", name)
            .env("SATIN_POOL", "exits")
            .env("SATIN_JOIN", join)
            .env("SATIN_NODES", nodes.to_string())
            .env("SATIN_CREDENTIAL", at(key))
            .env("SATIN_EVENTS", at("events"))
            .env("SATIN_LOG", "satin_runtime=debug")
            .envs(more.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stderr = child.stderr.take().expect("piped");
        Node {
            child,
            stderr: BufReader::new(stderr),
            heard: String::new(),
        }
    }

    fn events(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("events")).unwrap_or_default()
    }

    /// Waits for an event; `node`, which is to live until then, says what it knows if it does not come.
    fn wait_for(&self, event: &str, node: &mut Node) {
        let since = Instant::now();
        while !self.events().contains(event) {
            let ended = node.child.try_wait().expect("a child");
            if ended.is_some() || since.elapsed() > PATIENCE / 2 {
                let _ = node.child.kill();
                let (events, said) = (self.events(), node.said());
                panic!("{event} did not come; {ended:?}\n{events}\n{said}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The master first.
    fn two(&self) -> (Node, Node) {
        let mut master = self.start("one", 2, "key");
        self.wait_for("\"master\"", &mut master);
        let member = self.start("two", 2, "key");
        (master, member)
    }
}

/// The parent of the tests may ignore SIGHUP, and what it starts inherits that.
const UNIGNORE: &str = "--default-signal=HUP";

/// Can this machine's `env` put that right?
fn unignores_hangup() -> bool {
    let tried = Command::new("env").args([UNIGNORE, "true"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}

#[test]
fn the_pool_ends_with_main_however_it_ends() {
    let _watchdog = Watchdog::new("the_pool_ends_with_main_however_it_ends");
    for (way, code) in [("return", 0), ("panic", 101), ("exit", 7)] {
        let pool = Pool::new(way);
        let (mut master, mut member) = pool.two();
        assert_eq!(master.code(), Ok(code), "{way}: {}", master.said());
        assert_eq!(member.code(), Ok(0), "{way}: {}", member.said());
        let ended = format!("{{\"event\":\"pool_ended\",\"code\":{code},");
        assert!(pool.events().contains(&ended), "{way}: {}", pool.events());
    }
}

/// The setting by which all nodes end with the code of the run.
const OF_RUN: (&str, &str) = ("SATIN_EXIT", "run");

#[test]
fn every_node_ends_with_the_code_of_the_run_if_a_setting_says_so() {
    let _watchdog = Watchdog::new("every_node_ends_with_the_code_of_the_run_if_a_setting_says_so");
    for (way, code) in [("return", 0), ("panic", 101), ("exit", 7), ("error", 3)] {
        let pool = Pool::new(way);
        let mut master = pool.start_with("one", 2, "key", &[OF_RUN]);
        pool.wait_for("\"master\"", &mut master);
        let mut member = pool.start_with("two", 2, "key", &[OF_RUN]);
        assert_eq!(master.code(), Ok(code), "{way}: {}", master.said());
        assert_eq!(member.code(), Ok(code), "{way}: {}", member.said());
    }
}

/// A system that starts anew what has not come to its end must not take a node that has left for the end of the run.
#[test]
fn a_node_that_ends_before_the_run_says_so_if_a_setting_says_so() {
    let _watchdog = Watchdog::new("a_node_that_ends_before_the_run_says_so_if_a_setting_says_so");
    let pool = Pool::new("once");
    let mut master = pool.start_with("one", 2, "key", &[OF_RUN]);
    pool.wait_for("\"master\"", &mut master);
    let mut member = pool.start_with("two", 2, "key", &[OF_RUN]);
    pool.wait_for("root_finished", &mut master);
    member.wait_until_in();
    let mut third = pool.start_with("three", 2, "key", &[OF_RUN]);
    third.wait_until_in();
    member.signal("-TERM");
    assert_eq!(member.code(), Ok(143), "{}", member.said());
    // It hands `main` over.
    pool.wait_for(&about("left", "two"), &mut master);
    master.signal("-TERM");
    assert_eq!(master.code(), Ok(143), "{}", master.said());
    assert_eq!(third.code(), Ok(0), "{}", third.said());
    assert!(pool.events().contains(&about("master", "three")));
}

#[test]
fn a_node_that_is_asked_to_leave_hands_over_and_the_others_go_on() {
    let _watchdog = Watchdog::new("a_node_that_is_asked_to_leave_hands_over_and_the_others_go_on");
    for (signal, alone) in [("-TERM", 143), ("-INT", 130), ("-HUP", 129)] {
        if signal == "-HUP" && satin_runtime::exit::ignores_hangup() && !unignores_hangup() {
            println!("skipped: SIGHUP, which the parent of the tests ignores");
            continue;
        }
        let pool = Pool::new("stay");
        let (mut master, mut member) = pool.two();
        pool.wait_for("root_finished", &mut master);
        member.wait_until_in();
        member.signal(signal);
        assert_eq!(member.code(), Ok(0), "{}", member.said());
        pool.wait_for(&about("left", "two"), &mut master);
        assert!(pool.events().contains(&about("draining", "two")));
        assert!(!pool.events().contains("\"dead\""));
        let mut another = pool.start("three", 2, "key");
        pool.wait_for(&about("joined", "three"), &mut master);
        // Its `main` sleeps, and is not waited for.
        master.signal(signal);
        assert_eq!(master.code(), Ok(0), "{}", master.said());
        pool.wait_for(&about("master", "three"), &mut another);
        pool.wait_for(&about("left", "one"), &mut another);
        // Nobody is left to hand over to.
        another.signal(signal);
        assert_eq!(another.code(), Ok(alone), "{}", another.said());
        assert!(pool.events().contains(&format!(
            "{{\"event\":\"pool_ended\",\"code\":{alone},\"name\":\"three\""
        )));
    }
}

/// Neither the name server is waited for nor the pool that it may name, and the log has its say to the end.
#[test]
fn a_node_whose_pool_has_no_address_ends_when_it_is_asked_to() {
    let _watchdog = Watchdog::new("a_node_whose_pool_has_no_address_ends_when_it_is_asked_to");
    let pool = Pool::new("stay");
    let nobody = [("SATIN_JOIN", "name.invalid:7")];
    let mut node = pool.start_with("one", 1, "key", &nobody);
    node.wait_until_said("cannot join the pool yet");
    node.signal("-TERM");
    assert_eq!(node.code(), Ok(143), "{}", node.said());
    let said = node.said();
    for wrong in ["panicked", "does not end in time"] {
        assert!(!said.contains(wrong), "{said}");
    }
}

/// What runs would take far longer than the test, and the grace longer still.
#[test]
fn who_is_asked_twice_goes_at_once() {
    let _watchdog = Watchdog::new("who_is_asked_twice_goes_at_once");
    let pool = Pool::new("work");
    let (mut master, mut member) = pool.two();
    pool.wait_for("root_started", &mut master);
    member.signal("-INT");
    pool.wait_for(&about("draining", "two"), &mut master);
    member.signal("-INT");
    assert_eq!(member.code(), Ok(130), "{}", member.said());
    pool.wait_for(&about("left", "two"), &mut master);
    master.signal("-INT");
    assert_eq!(master.code(), Ok(130), "{}", master.said());
}

/// As when a batch system takes all machines back at once. The member's job takes far longer than the detection of a death.
#[test]
fn who_is_asked_and_finds_no_node_to_hand_over_to_says_so_by_its_code() {
    let _watchdog =
        Watchdog::new("who_is_asked_and_finds_no_node_to_hand_over_to_says_so_by_its_code");
    for (has_store, remedy) in [
        (false, "The run is lost"),
        (true, "goes on with what is in the store"),
    ] {
        let pool = Pool::new("uneven");
        let place = format!("file:{}", pool.dir.path().join("store").display());
        let store = [("SATIN_STORE", &*place)];
        let more = if has_store { &store[..] } else { &[] };
        let mut master = pool.start_with("one", 2, "key", more);
        pool.wait_for("\"master\"", &mut master);
        let mut member = pool.start_with("two", 2, "key", more);
        pool.wait_for("root_finished", &mut master);
        // Time for a theft of what `main` does next: a member with nothing to do would just leave.
        std::thread::sleep(Duration::from_secs(1));
        member.signal("-TERM");
        pool.wait_for(&about("draining", "two"), &mut master);
        master.signal("-KILL");
        let code = member.code();
        let said = member.said();
        assert_eq!(code, Ok(143), "{said}");
        assert!(said.contains(remedy), "{said}");
    }
}

/// Nothing is made where it was, and all is in order when it is back.
#[test]
fn a_store_that_is_moved_while_the_run_goes_on_is_noticed() {
    let _watchdog = Watchdog::new("a_store_that_is_moved_while_the_run_goes_on_is_noticed");
    let pool = Pool::new("work");
    let at = |name: &str| pool.dir.path().join(name);
    let (store, elsewhere) = (at("store"), at("elsewhere"));
    let url = format!("file:{}", store.display());
    let more = [("SATIN_STORE", &*url), ("SATIN_STORE_EVERY", "0")];
    let mut node = pool.start_with("one", 1, "key", &more);
    pool.wait_for("root_started", &mut node);
    std::fs::rename(&store, &elsewhere).expect("moved");
    node.wait_until_said("is not in the store any more");
    assert!(!store.exists());
    std::fs::rename(&elsewhere, &store).expect("moved back");
    node.wait_until_said("is in the store again");
}

/// As `nohup` starts it: then a terminal that is closed is nothing to it. Were it a request, the one after it would be the
/// second, which is not waited for.
#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    let _watchdog = Watchdog::new("a_hangup_that_is_ignored_stays_ignored");
    let pool = Pool::new("work");
    let mut master = pool.start("one", 2, "key");
    pool.wait_for("\"master\"", &mut master);
    let mut command = Command::new("sh");
    let script = "trap '' HUP; exec \"$0\" --exact program --nocapture";
    command
        .args(["-c", script])
        .arg(std::env::current_exe().expect("this test"));
    let mut member = pool.start_as(command, "two", 2, "key", &[("SATIN_GRACE", "1")]);
    pool.wait_for("root_started", &mut master);
    member.signal("-HUP");
    member.signal("-TERM");
    pool.wait_for(&about("draining", "two"), &mut master);
    assert_eq!(member.code(), Ok(0), "{}", member.said());
}

/// Also where it ends `main`, which is on another node; and of several that fail at one line only the first.
#[test]
fn a_panic_of_a_job_is_told_once_on_its_node_and_once_by_main() {
    let _watchdog = Watchdog::new("a_panic_of_a_job_is_told_once_on_its_node_and_once_by_main");
    let pool = Pool::new("fragile");
    let (mut master, mut member) = pool.two();
    assert_eq!(master.code(), Ok(101));
    assert_eq!(member.code(), Ok(0));
    let told = |said: &str| {
        said.lines()
            .filter(|line| line.contains("broken on purpose"))
            .count()
    };
    let (here, there) = (master.said(), member.said());
    assert_eq!((told(&here), told(&there)), (1, 1), "{here}\n{there}");
    assert!(there.contains("a job on two panics, job 1."), "{there}");
    let line = here
        .lines()
        .find(|line| line.contains("broken on purpose"))
        .unwrap_or_default();
    assert!(
        line.starts_with("error: a job panicked on another node: broken on purpose (job 1."),
        "{line}"
    );
    assert!(line.ends_with(" on node two"), "{line}");
}

/// Each node would run it alone, and print its own answer.
#[test]
fn a_program_that_never_becomes_a_node_is_refused() {
    let _watchdog = Watchdog::new("a_program_that_never_becomes_a_node_is_refused");
    let pool = Pool::new("plain");
    let mut node = pool.start("one", 1, "key");
    assert_eq!(node.code(), Ok(2));
    let said = node.said();
    for word in ["error: SATIN_JOIN=\"file:", "#[satin::main]", "satin::run("] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn a_variable_that_is_no_setting_is_warned_of() {
    let _watchdog = Watchdog::new("a_variable_that_is_no_setting_is_warned_of");
    let pool = Pool::new("return");
    let more = [("SATIN_THREAD", "1"), ("SATIN_LOG", "warn")];
    let mut node = pool.start_with("one", 1, "key", &more);
    assert_eq!(node.code(), Ok(0));
    let said = node.said();
    assert!(
        said.contains("SATIN_THREAD is no setting of Satin: did you mean SATIN_THREADS?"),
        "{said}"
    );
}

/// The event, without the numbers that it may have.
fn about(event: &str, name: &str) -> String {
    match event {
        "master" => format!(",\"term\":1,\"name\":\"{name}\""),
        event => format!("{{\"event\":\"{event}\",\"site\":\"default\",\"name\":\"{name}\""),
    }
}

#[test]
fn when_the_master_dies_another_node_runs_main() {
    let _watchdog = Watchdog::new("when_the_master_dies_another_node_runs_main");
    let pool = Pool::new("once");
    let (mut master, mut member) = pool.two();
    pool.wait_for("root_finished", &mut master);
    master.signal("-KILL");
    assert_eq!(member.code(), Ok(0), "{}", member.said());
    let events = pool.events();
    let at = |what: &str| {
        let place = events.find(what);
        place.unwrap_or_else(|| panic!("{what} is missing: {events}"))
    };
    let ended = at("{\"event\":\"pool_ended\",\"code\":0,\"name\":\"two\"");
    assert!(at(&about("dead", "one")) < ended);
    assert!(at(&about("master", "two")) < ended);
}

#[test]
fn a_node_leaves_when_it_is_given_notice() {
    let _watchdog = Watchdog::new("a_node_leaves_when_it_is_given_notice");
    let pool = Pool::new("stay");
    let notice = pool.dir.path().join("notice");
    let mut master = pool.start("one", 2, "key");
    pool.wait_for("\"master\"", &mut master);
    let when = format!("file:{}", notice.display());
    let mut member = pool.start_with("two", 2, "key", &[("SATIN_DRAIN_WHEN", &when)]);
    pool.wait_for("root_finished", &mut master);
    std::fs::write(&notice, "").expect("written");
    assert_eq!(member.code(), Ok(0), "{}", member.said());
    pool.wait_for(&about("left", "two"), &mut master);
}

/// A cloud's metadata service says first what happens to another machine of the set, and then to this one.
#[test]
fn a_node_leaves_when_its_cloud_takes_its_machine() {
    let _watchdog = Watchdog::new("a_node_leaves_when_its_cloud_takes_its_machine");
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    let when = format!("azure=http://{}", service.local_addr().expect("bound"));
    let (asked, asks) = mpsc::channel();
    std::thread::spawn(move || {
        let mut looks = 0;
        for stream in service.incoming() {
            let mut stream = stream.expect("a caller");
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let body = match head[0].contains("/compute/name?") {
                true => "set_1".to_owned(),
                false => {
                    looks += 1;
                    let machine = if looks > 2 { "set_1" } else { "set_0" };
                    let _ = asked.send(());
                    format!(r#"{{"Events":[{{"EventType":"Preempt","Resources":["{machine}"]}}]}}"#)
                }
            };
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    let pool = Pool::new("stay");
    let mut master = pool.start("one", 2, "key");
    pool.wait_for("\"master\"", &mut master);
    let mut member = pool.start_with("two", 2, "key", &[("SATIN_DRAIN_WHEN", &when)]);
    assert_eq!(member.code(), Ok(0), "{}", member.said());
    pool.wait_for(&about("left", "two"), &mut master);
    assert!(asks.try_iter().count() > 2, "it left for another machine");
}

/// As under systemd, where the directory of another unit is private: the node must not wait in silence for what it cannot see.
#[test]
fn a_notice_that_cannot_be_looked_for_is_warned_of_once() {
    let _watchdog = Watchdog::new("a_notice_that_cannot_be_looked_for_is_warned_of_once");
    let pool = Pool::new("stay");
    // Root may look into every directory, so this one is a file.
    let when = format!("file:{}/notice", pool.dir.path().join("key").display());
    let mut node = pool.start_with("one", 1, "key", &[("SATIN_DRAIN_WHEN", &when)]);
    let warned = "the notice of SATIN_DRAIN_WHEN cannot be looked for: ";
    while !node.heard.contains(warned) {
        let read = node.stderr.read_line(&mut node.heard).expect("text");
        assert!(read > 0, "no warning: {}", node.heard);
    }
    node.signal("-TERM");
    assert_eq!(node.code(), Ok(143));
    assert_eq!(node.said().matches(warned).count(), 1);
}

/// Who joins later does not knock at its door any more.
#[test]
fn the_dead_are_struck_from_the_list_of_members() {
    let _watchdog = Watchdog::new("the_dead_are_struck_from_the_list_of_members");
    let pool = Pool::new("stay");
    let (mut master, member) = pool.two();
    pool.wait_for("root_finished", &mut master);
    let members = || {
        let text = std::fs::read_to_string(pool.dir.path().join("members")).expect("a list");
        text.lines().count()
    };
    assert_eq!(members(), 2);
    member.signal("-KILL");
    pool.wait_for(&about("dead", "two"), &mut master);
    let since = Instant::now();
    while members() != 1 {
        assert!(since.elapsed() < PATIENCE / 2, "it stays on the list");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As `#[satin::main]` does it: the exit code is known only after `main` has returned.
#[test]
fn the_pool_ends_with_the_code_of_an_error_that_main_returns() {
    let _watchdog = Watchdog::new("the_pool_ends_with_the_code_of_an_error_that_main_returns");
    for way in ["error", "run-error"] {
        let pool = Pool::new(way);
        let (mut master, mut member) = pool.two();
        assert_eq!(master.code(), Ok(3), "{}", master.said());
        assert_eq!(member.code(), Ok(0), "{}", member.said());
        let ended = "{\"event\":\"pool_ended\",\"code\":3,";
        assert!(pool.events().contains(ended), "{way}: {}", pool.events());
    }
}

#[test]
fn a_process_that_is_alone_ends_when_its_time_is_over() {
    let _watchdog = Watchdog::new("a_process_that_is_alone_ends_when_its_time_is_over");
    let pool = Pool::new("work");
    let alone = [("SATIN_JOIN", ""), ("SATIN_TIME_LIMIT", "200ms")];
    let mut node = pool.start_with("one", 1, "key", &alone);
    assert_eq!(node.code(), Ok(124));
    let (said, told) = (
        node.said(),
        "error: the time limit of 200ms (SATIN_TIME_LIMIT) is over",
    );
    assert!(said.contains(told), "{said}");
}

#[test]
fn who_is_not_let_in_exits_with_an_error_that_says_why() {
    let _watchdog = Watchdog::new("who_is_not_let_in_exits_with_an_error_that_says_why");
    let pool = Pool::new("stay");
    satin::net::Credential::write_new(&pool.dir.path().join("other")).expect("written");
    let (mut master, _member) = pool.two();
    pool.wait_for("root_finished", &mut master);
    let mut stranger = pool.start("stranger", 2, "other");
    assert_eq!(stranger.code(), Ok(2));
    let said = stranger.said();
    assert!(
        said.contains("error: this node cannot join the pool"),
        "{said}"
    );
    assert!(said.contains("SATIN_CREDENTIAL"), "{said}");
    let mut stranger = pool.start_with("stranger", 2, "other", &[OF_RUN]);
    assert_eq!(stranger.code(), Ok(143), "{}", stranger.said());
    let mut nobody = pool.start_with("nobody", 2, "missing", &[OF_RUN]);
    assert_eq!(nobody.code(), Ok(2));
    assert!(nobody.said().contains("satin keygen"));
}
