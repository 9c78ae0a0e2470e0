//! What a person at a terminal reads: nodes whose stderr is a pseudo-terminal.

use std::{
    fs::File,
    io::{Read, Write},
    num::NonZeroU16,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Instant,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

mod common;

use common::{PATIENCE, example};

/// A node at a terminal of its own. Dropping it kills it.
struct Node {
    child: Child,
    shown: String,
    pieces: Receiver<Vec<u8>>,
}

/// Both ends of a pseudo-terminal: what the person sees, and what the program writes to.
fn terminal() -> (File, OwnedFd) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&screen).expect("granted");
    unlockpt(&screen).expect("unlocked");
    let path = ptsname(&screen, Vec::new()).expect("a name");
    let program = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
    (screen.into(), program.expect("opened"))
}

/// What comes on a screen, as it comes.
fn pieces_of(mut screen: File) -> Receiver<Vec<u8>> {
    let (sender, pieces) = channel();
    thread::spawn(move || {
        let mut piece = [0; 4096];
        // An error is the end: the program is gone.
        while let Ok(length @ 1..) = screen.read(&mut piece) {
            if sender.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    pieces
}

impl Node {
    fn start(name: &str, flags: &[&str], credential: &std::path::Path) -> Node {
        let (screen, program) = terminal();
        let mut command = Command::new(example("knary"));
        // Far more than the test waits for, in leaves that nobody waits for.
        command.args(["2", "100", "100000", "--sleep", "--threads", "1"]);
        command.args(["--nodes", "2", "--name", name, "--credential"]);
        command.arg(credential).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::from(program));
        let child = command.spawn().expect("it starts");
        drop(command);
        Node {
            child,
            shown: String::new(),
            pieces: pieces_of(screen),
        }
    }

    /// Waits until the terminal shows that.
    #[track_caller]
    fn shows(&mut self, what: &str) {
        let began = Instant::now();
        while !self.shown.contains(what) {
            let left = PATIENCE.saturating_sub(began.elapsed());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.shown += &String::from_utf8_lossy(&piece),
                Err(_) => panic!("`{what}` is not shown: {}", self.shown),
            }
        }
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it is there");
    }

    fn code(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address that the events file names.
fn address(events: &std::path::Path) -> String {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(events).unwrap_or_default();
        if let Some((_, rest)) = text.split_once("\"addr\":\"")
            && let Some((addr, _)) = rest.split_once('"')
        {
            return addr.into();
        }
        assert!(began.elapsed() < PATIENCE, "{text}");
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn who_is_waited_for_who_comes_and_who_goes_is_said() {
    let scratch = tempfile::tempdir().expect("a directory");
    let credential = scratch.path().join("pool.pem");
    satin_runtime::net::Credential::write_new(&credential).expect("written");
    let events = scratch.path().join("events");
    let log = events.to_str().expect("text");
    let listen = ["--listen", "127.0.0.1:0", "--events", log];
    let mut first = Node::start("first", &listen, &credential);
    first.shows("satin: 1 node in the pool; waiting for 1 more\r\n");
    let addr = address(&events);
    let mut second = Node::start("second", &["--join", &addr], &credential);
    first.shows("satin: second joined: 2 nodes in the pool\r\n");
    second.shows("satin: let in by first, the master\r\n");
    // The master goes; `main` does not.
    first.interrupt();
    first.shows("satin: leaving, which takes up to 20 s; Ctrl-C again goes at once\r\n");
    second.shows("satin: this node is master now: `main` begins again here\r\n");
    first.shows("satin: `main` now runs on second; `satin stop` ends the pool\r\n");
    assert_eq!(first.code(), Some(0));
    assert!(!first.shown.contains("begins again"), "{}", first.shown);
}

#[test]
fn who_is_alone_and_interrupted_says_so() {
    let scratch = tempfile::tempdir().expect("a directory");
    let credential = scratch.path().join("pool.pem");
    satin_runtime::net::Credential::write_new(&credential).expect("written");
    let mut alone = Node::start("alone", &["--listen", "127.0.0.1:0"], &credential);
    alone.shows("satin: 1 node in the pool; waiting for 1 more\r\n");
    alone.interrupt();
    alone.shows("satin: interrupted\r\n");
    assert_eq!(alone.code(), Some(130));
}

const ROWS: NonZeroU16 = NonZeroU16::new(30).unwrap();
const COLUMNS: NonZeroU16 = NonZeroU16::new(110).unwrap();

/// `satin top` on a screen of its own.
struct Top {
    child: Child,
    keyboard: File,
    screen: vt100::Parser,
    pieces: Receiver<Vec<u8>>,
}

impl Top {
    fn start(join: &str, credential: &std::path::Path) -> Top {
        let (screen, program) = terminal();
        let size = rustix::termios::Winsize {
            ws_row: ROWS.get(),
            ws_col: COLUMNS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&program, size).expect("a size");
        let handle = || Stdio::from(program.try_clone().expect("a second one"));
        let child = Command::new(env!("CARGO_BIN_EXE_satin"))
            .args(["top", "--join", join, "--credential"])
            .arg(credential)
            .stdin(handle())
            .stdout(handle())
            .stderr(handle())
            .spawn()
            .expect("it starts");
        let keyboard = screen.try_clone().expect("a second one");
        Top {
            child,
            keyboard,
            screen: vt100::Parser::new(ROWS, COLUMNS, 0),
            pieces: pieces_of(screen),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("pressed");
    }

    /// Waits until a line of the screen has all these words.
    #[track_caller]
    fn shows(&mut self, words: &[&str]) {
        let began = Instant::now();
        loop {
            let text = self.screen.screen().contents();
            let has_all = |line: &str| words.iter().all(|word| line.contains(word));
            if text.lines().any(has_all) {
                return;
            }
            let left = PATIENCE.saturating_sub(began.elapsed());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.screen.process(&piece),
                Err(_) => panic!("{words:?} are not shown:\n{text}"),
            }
        }
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn top_shows_who_is_in_and_asks_a_node_to_leave_after_a_question() {
    let scratch = tempfile::tempdir().expect("a directory");
    let credential = scratch.path().join("pool.pem");
    satin_runtime::net::Credential::write_new(&credential).expect("written");
    let events = scratch.path().join("events");
    let log = events.to_str().expect("text");
    let listen = ["--listen", "127.0.0.1:0", "--events", log];
    let first = Node::start("first", &listen, &credential);
    let addr = address(&events);
    let mut second = Node::start("second", &["--join", &addr], &credential);
    second.shows("satin: let in by first, the master\r\n");
    let mut top = Top::start(&addr, &credential);
    top.shows(&["first", "master"]);
    top.shows(&["second", "in"]);
    top.shows(&["pool knary: 2 nodes, 2 threads"]);
    top.press("d");
    top.shows(&["choose a node first"]);
    top.press("jjd");
    top.shows(&["ask second to leave? y: yes"]);
    // Any other key means no.
    top.press("n");
    top.shows(&["choose a node", "q end"]);
    top.press("d");
    top.shows(&["ask second to leave?"]);
    top.press("y");
    top.shows(&["asked to leave: second"]);
    assert_eq!(second.code(), Some(0));
    top.shows(&["second", "left"]);
    top.press("q");
    assert!(top.child.wait().expect("it ends").success());
    drop(first);
}

/// A program whose output is kept writes to a pipe, and its terminal shows what it did before, the bar too.
#[test]
fn a_terminal_is_one_though_the_output_is_kept() {
    let scratch = tempfile::tempdir().expect("a directory");
    let credential = scratch.path().join("pool.pem");
    satin_runtime::net::Credential::write_new(&credential).expect("written");
    let events = scratch.path().join("events");
    let log = events.to_str().expect("text");
    let flags = [
        "--output",
        "all",
        "--listen",
        "127.0.0.1:0",
        "--events",
        log,
    ];
    let mut first = Node::start("first", &flags, &credential);
    first.shows("satin: 1 node in the pool; waiting for 1 more\r\n");
    let addr = address(&events);
    let join = ["--output", "kept", "--log", "info", "--join", &addr];
    let mut second = Node::start("second", &join, &credential);
    first.shows("satin: second joined: 2 nodes in the pool\r\n");
    second.shows("this node is in the pool");
    // What the other node logs stands on this terminal, and the bar below it.
    first.shows("[second @ default] ");
    first.shows(" % in ");
    first.interrupt();
    first.shows("satin: leaving, which takes up to 20 s; Ctrl-C again goes at once\r\n");
    assert_eq!(first.code(), Some(0));
}
