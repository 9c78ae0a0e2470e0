//! The examples of the help texts, of the README and of the docs are run as they are printed there, on two machines: two
//! network namespaces, 192.0.2.7 and 192.0.2.9, with a cable between them.
//!
//! The commands are taken from the texts, not repeated here. Only what is computed is made smaller.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

mod common;
mod pages;

use common::{
    PATIENCE, example,
    machines::{ADDRESSES, TwoMachines},
};
use pages::CodeBlock;

const COMMANDS: [&str; 15] = [
    "",
    "run",
    "launch",
    "k8s",
    "node",
    "status",
    "top",
    "dashboard",
    "log",
    "drain",
    "stop",
    "keygen",
    "runs",
    "store",
    "explain",
];

const COLUMNS: usize = 80;

/// A help text, as a terminal of 80 columns shows it.
fn help(command: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_satin"))
        .args(command.split_whitespace())
        .arg("--help")
        .env("COLUMNS", COLUMNS.to_string())
        .output()
        .expect("satin starts");
    String::from_utf8(output.stdout).expect("text")
}

/// The commands in a text, with their continued lines: those that begin with one of the words that users type.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let begins = ["satin ", "srun ", "scp "];
        if !begins
            .iter()
            .any(|word| line.trim_start().starts_with(word))
        {
            continue;
        }
        let mut command = line.trim().to_owned();
        while let Some(begun) = command.strip_suffix('\\') {
            let next = lines.next().expect("a continued line").trim();
            command = format!("{} {next}", begun.trim_end());
        }
        found.push(command);
    }
    found
}

/// From "Examples" on: what stands above it are descriptions and usage.
fn examples_of(command: &str) -> Vec<String> {
    let text = help(command);
    let (_, examples) = text
        .split_once("Examples:\n")
        .unwrap_or_else(|| panic!("`satin {command} --help` has no examples"));
    let found = commands(examples);
    assert!(!found.is_empty(), "{text}");
    found
}

/// A terminal that is narrower than an example breaks it in pieces, which the shell then runs one by one.
#[test]
fn examples_can_be_pasted_from_a_terminal_of_80_columns() {
    for command in COMMANDS {
        let text = help(command);
        let (_, examples) = text.split_once("Examples:\n").expect("examples");
        for line in examples.lines() {
            assert!(line.len() <= COLUMNS, "`satin {command} --help`: {line}");
        }
        for example in commands(examples) {
            let quotes = example.matches('\'').count();
            assert!(quotes % 2 == 0, "broken: {example}");
            if let Some((_, words)) = example.split_once("satin node") {
                assert!(words.contains(" -- "), "broken: {example}");
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- machines

/// Two namespaces with a cable between them, a directory for each, and what the examples expect to find. They go when this
/// is dropped, also by a panic.
struct Machines {
    two: TwoMachines,
    scratch: tempfile::TempDir,
}

/// The names that the examples give to machines.
const HOSTS: [&str; 2] = ["n1 n7 MACHINE", "n2 node1"];

impl Machines {
    /// `None`, and says so, where this process may not make namespaces.
    fn new(test: &str) -> Option<Machines> {
        let Some(two) = TwoMachines::new() else {
            println!("skipped: {test} needs root and iproute2 for network namespaces");
            return None;
        };
        let hosts = ADDRESSES.iter().zip(HOSTS);
        let hosts: String = hosts
            .map(|(address, names)| format!("{address} {names}\n"))
            .collect();
        two.set_names(&hosts);
        let machines = Machines {
            two,
            scratch: tempfile::tempdir().expect("a directory"),
        };
        for machine in 0..2 {
            machines.set_up(machine);
        }
        Some(machines)
    }

    fn set_up(&self, machine: usize) {
        fs::create_dir(self.home(machine)).expect("made");
        let bin = self.scratch.path().join("bin");
        if machine == 0 {
            fs::create_dir(&bin).expect("made");
            fs::create_dir(self.scratch.path().join("shared")).expect("made");
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_satin"), bin.join("satin"))
                .expect("linked");
            // Both machines have one disk here: what is copied is there already.
            script(&bin.join("scp"), "exit 0");
            script(&bin.join("ssh"), "shift; exec \"$@\"");
            script(&bin.join("srun"), "shift 2; exec \"$@\"");
        }
    }

    /// The directory that commands run in, one for each machine.
    fn home(&self, machine: usize) -> PathBuf {
        self.scratch.path().join(["here", "there"][machine])
    }

    fn events(&self) -> PathBuf {
        self.scratch.path().join("events")
    }

    /// The program that examples call `./program`, and a credential.
    fn install(&self, program: &str) {
        for machine in 0..2 {
            let file = self.home(machine).join("program");
            if !file.exists() {
                fs::copy(example(program), file).expect("copied");
            }
        }
        self.give_credential();
    }

    fn give_credential(&self) {
        let file = self.home(0).join("pool.pem");
        if !file.exists() {
            satin_runtime::net::Credential::write_new(&file).expect("written");
        }
        let _ = fs::copy(&file, self.home(1).join("pool.pem"));
    }

    /// A shell command, as somebody types it on that machine.
    fn command(&self, machine: usize, text: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.scratch.path().join("bin");
        let text = text.replace(
            "/shared/",
            &format!("{}/shared/", self.scratch.path().display()),
        );
        let mut command = self.two.at(machine, Path::new("sh"));
        command
            .args(["-c", &text])
            .current_dir(self.home(machine))
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("SATIN_EVENTS", self.events())
            .env("XDG_STATE_HOME", self.scratch.path().join("state"))
            .env("SATIN_THREADS", "1")
            .env("SLURM_JOB_NODELIST", "n[1-2]");
        command
    }

    fn start(&self, machine: usize, text: &str) -> Started {
        self.start_with(machine, text, &[])
    }

    fn start_with(&self, machine: usize, text: &str, more: &[(&str, &str)]) -> Started {
        let said = tempfile::NamedTempFile::new_in(self.scratch.path()).expect("a file");
        let child = self
            .command(machine, text)
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(appending(said.path()))
            .stderr(appending(said.path()))
            .process_group(0)
            .spawn()
            .expect("ip starts");
        Started {
            child,
            text: text.into(),
            said,
        }
    }

    /// How many lines of the events file have that in them.
    fn events_with(&self, what: &str) -> usize {
        let text = fs::read_to_string(self.events()).unwrap_or_default();
        text.lines().filter(|line| line.contains(what)).count()
    }

    #[track_caller]
    fn wait_for(&self, event: &str, count: usize, all: &mut [Started]) {
        let began = Instant::now();
        while self.events_with(event) < count {
            for started in all.iter_mut() {
                let ended = started.child.try_wait().expect("a child");
                let failed = ended.is_some_and(|status| !status.success());
                assert!(
                    !failed && began.elapsed() < PATIENCE,
                    "{count} x {event} did not come; {ended:?}: {}",
                    started.tell()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What is printed on one and on the other does not overwrite each other.
fn appending(path: &Path) -> fs::File {
    let file = fs::OpenOptions::new().append(true).open(path);
    file.expect("open")
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// A command that runs. Dropping it kills it with what it has started.
struct Started {
    child: Child,
    text: String,
    said: tempfile::NamedTempFile,
}

impl Started {
    fn said(&self) -> String {
        fs::read_to_string(self.said.path()).unwrap_or_default()
    }

    fn tell(&self) -> String {
        format!("$ {}\n{}", self.text, self.said())
    }

    /// Waits until what it has said is so.
    #[track_caller]
    fn says_until(&self, is_so: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !is_so(&self.said()) {
            assert!(began.elapsed() < PATIENCE, "{}", self.tell());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn status(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "it does not end: {}",
                self.tell()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it has ended well.
    #[track_caller]
    fn succeeds(&mut self) {
        let status = self.status();
        assert!(status.success(), "{status}: {}", self.tell());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok();
        if let (Ok(None), Some(pid)) = (
            self.child.try_wait(),
            pid.and_then(rustix::process::Pid::from_raw),
        ) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- examples

/// What is computed is made smaller; else the command is as it was printed.
fn smaller(command: &str) -> String {
    command.replace("./program 42", "./program 27")
}

/// What follows a flag.
fn value<'c>(command: &'c str, flag: &str) -> Option<&'c str> {
    let mut words = command.split_whitespace().skip_while(|word| *word != flag);
    words.nth(1)
}

/// What examples of `satin node` make together: the founder, those that join it, and commands that all machines run.
fn run_nodes(test: &str, examples: &[String]) {
    let nodes: Vec<&String> = (examples.iter())
        .filter(|text| text.contains("satin node"))
        .collect();
    let is_joiner = |text: &str| {
        value(text, "--join").is_some_and(|at| at.starts_with(ADDRESSES[0]) && !at.contains(','))
    };
    let joiners: Vec<&String> = nodes
        .iter()
        .copied()
        .filter(|text| is_joiner(text))
        .collect();
    for founder in nodes.iter().filter(|text| !is_joiner(text)) {
        let Some(machines) = Machines::new(test) else {
            return;
        };
        machines.install("fib");
        println!("{founder}");
        // The same command everywhere, or the ones that join; or nobody joins.
        let others: Vec<&String> = match value(founder, "--join") {
            Some(_) => vec![founder],
            None => joiners.clone(),
        };
        let count: usize = match value(founder, "--nodes") {
            Some(nodes) => nodes.parse().expect("a number"),
            None => 1 + others.len().min(1),
        };
        let nodes = count.to_string();
        let more = [("SATIN_NODES", &*nodes)];
        let mut all = vec![machines.start_with(0, &smaller(founder), &more)];
        machines.wait_for("\"event\":\"node\"", 1, &mut all);
        for number in 1..count {
            let other = others[(number - 1) % others.len()];
            println!("{other}");
            all.push(machines.start_with(1, &smaller(other), &more));
        }
        machines.wait_for("\"event\":\"pool_ended\",\"code\":0", 1, &mut all);
        all.iter_mut().for_each(Started::succeeds);
        // The master tells of all others, and one node alone has printed the answer.
        assert_eq!(
            machines.events_with("\"event\":\"joined\""),
            count - 1,
            "{}",
            all[0].tell()
        );
        let answers = all
            .iter()
            .filter(|node| node.said().contains("fib(27) = 196418"));
        assert_eq!(
            answers.count(),
            1,
            "{}",
            all.iter().map(Started::tell).collect::<String>()
        );
    }
}

/// A pool as an example expects it that speaks to one: a master at 192.0.2.7:7777, or where the example looks, and nodes of these names at that site
/// on the other machine. It has far more to do than a test waits for.
fn start_pool(machines: &Machines, example: &str, names: &[&str], site: &str) -> Vec<Started> {
    machines.install("knary");
    println!("{example}");
    let join = value(example, "--join").expect("somewhere");
    let pool = value(example, "--pool").unwrap_or("program");
    // In leaves that nobody waits for.
    let work = "./program 2 100 100000 --sleep";
    let join = match join.strip_prefix("file:") {
        Some(_) => join.to_owned(),
        None => format!("{}:7777", ADDRESSES[0]),
    };
    // Nothing is printed by that work but the log.
    let variables = match example.starts_with("satin log") {
        true => "SATIN_OUTPUT=kept SATIN_LOG=info ",
        false => "",
    };
    let node = |join: &str, listen: &str, site: &str, name: &str| {
        format!(
            "{variables}satin node {join} {listen} --site {site} --name {name} --pool {pool} --credential pool.pem -- {work}"
        )
    };
    let found = if join.starts_with("file:") {
        format!("--join {join}")
    } else {
        String::new()
    };
    let more = [("SATIN_NODES", &*(names.len() + 1).to_string())];
    let mut all = vec![machines.start_with(
        0,
        &node(&found, "--listen 0.0.0.0:7777", "elsewhere", "master"),
        &more,
    )];
    machines.wait_for("\"event\":\"node\"", 1, &mut all);
    for name in names {
        all.push(machines.start_with(1, &node(&format!("--join {join}"), "", site, name), &more));
    }
    machines.wait_for("\"event\":\"joined\"", names.len(), &mut all);
    machines.wait_for("\"event\":\"root_started\"", 1, &mut all);
    all
}

/// An example of `satin drain` asks nodes to leave that are called as it says, and run where it says.
fn run_drain(test: &str, drain: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    let names: Vec<&str> = drain
        .split_whitespace()
        .skip(2)
        .take_while(|word| !word.starts_with("--"))
        .collect();
    let site = value(drain, "--site").unwrap_or("default");
    let leaving = if names.is_empty() {
        vec!["there-1", "there-2"]
    } else {
        names
    };
    let mut all = start_pool(&machines, drain, &leaving, site);
    machines.start(1, drain).succeeds();
    for left in &mut all[1..] {
        left.succeeds();
    }
    assert_eq!(machines.events_with("\"event\":\"left\""), leaving.len());
}

/// An example of `satin status` shows who is in; with `--watch` until the pool has ended.
fn run_status(test: &str, status: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    let mut all = start_pool(&machines, status, &["there-1"], "there");
    let mut shown = machines.start(1, status);
    let is_whole = |said: &str| ["master", "there-1"].iter().all(|name| said.contains(name));
    if !status.contains("--watch") {
        shown.succeeds();
        assert!(is_whole(&shown.said()), "{}", shown.tell());
        return;
    }
    shown.says_until(is_whole);
    // Both nodes go, and nobody is left to be looked at.
    all.clear();
    assert!(!shown.status().success());
    assert!(shown.said().contains("answers"), "{}", shown.tell());
}

/// An example of `satin dashboard` serves a page until it is asked to end, and then writes what it is to write.
fn run_dashboard(test: &str, dashboard: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    let _all = start_pool(&machines, dashboard, &["there-1"], "there");
    // In the place of the shell, so that it gets the signal.
    let mut shown = machines.start(1, &format!("exec {dashboard}"));
    shown.says_until(|said| said.contains("http://127.0.0.1:"));
    let pid = rustix::process::Pid::from_child(&shown.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    shown.succeeds();
    if let Some(report) = value(dashboard, "--report") {
        let report = fs::read_to_string(machines.home(1).join(report)).expect("written");
        assert!(report.starts_with("<!doctype html>"), "{report:.200}");
    }
}

/// An example of `satin log` shows what the nodes have printed; with `--follow` until the pool has ended.
fn run_log(test: &str, log: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    let only = value(log, "--node");
    let there = only.unwrap_or("there-1");
    let mut all = start_pool(&machines, log, &[there], "there");
    let mut shown = machines.start(1, log);
    let lines_of = |said: &str, prefix: &str| said.lines().any(|line| line.starts_with(prefix));
    let is_whole = |said: &str| {
        let master = lines_of(said, "[master @ elsewhere] ");
        lines_of(said, &format!("[{there} @ there] ")) && master == only.is_none()
    };
    if !log.contains("--follow") {
        shown.succeeds();
        assert!(is_whole(&shown.said()), "{}", shown.tell());
        return;
    }
    shown.says_until(is_whole);
    all.clear();
    shown.succeeds();
}

/// An example of `satin stop` ends a pool.
fn run_stop(test: &str, stop: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    let mut all = start_pool(&machines, stop, &["there-1"], "there");
    let mut stopped = machines.start(1, stop);
    stopped.succeeds();
    assert!(
        stopped
            .said()
            .contains("master (the master) has ended the pool")
    );
    assert_eq!(all[0].status().code(), Some(143), "{}", all[0].tell());
    all[1].succeeds();
}

/// An example of `satin run` runs on one machine. What it names is a program that only waits; cargo has built it.
fn run_run(test: &str, run: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    println!("{run}");
    let home = machines.home(0);
    let waits = format!("exec {} 3 5 150000 --sleep", example("knary").display());
    let program = home.join("program");
    script(&program, &waits);
    let named = ["--example", "--bin"]
        .into_iter()
        .find_map(|flag| Some((flag, value(run, flag)?)));
    let cargo = home.join("cargo");
    let message = named.map_or(String::new(), |(flag, name)| {
        format!(
            r#"{{"target":{{"kind":["{}"],"name":"{name}"}},"executable":"{}"}}"#,
            flag.trim_start_matches('-'),
            program.display()
        )
    });
    script(&cargo, &format!("echo '{message}'"));
    let is_killed = run.contains("--kill all@");
    let mut run = machines.start_with(0, run, &[("CARGO", &cargo.display().to_string())]);
    if is_killed {
        assert_eq!(run.status().code(), Some(137), "{}", run.tell());
        assert!(
            run.said().contains("the same command goes on"),
            "{}",
            run.tell()
        );
        return;
    }
    run.succeeds();
    assert!(run.said().contains("125 leaves"), "{}", run.tell());
}

/// An example of `satin runs` looks at a store in which there are runs of the names that it gives.
fn run_runs(test: &str, example: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    println!("{example}");
    let url = value(example, "--store").expect("a store");
    let shared = machines.scratch.path().join("shared");
    let store = shared.join(url.strip_prefix("file:/shared/").expect("a directory"));
    fs::create_dir(&store).expect("made");
    let names = example.split_whitespace().skip(3);
    for name in names.take_while(|word| !word.starts_with("--")) {
        abandoned_run(&store, name);
    }
    machines.start(0, example).succeeds();
}

/// A run that others have left behind an hour ago, whose name begins like that.
fn abandoned_run(store: &Path, name: &str) {
    let run = store.join("program").join(format!("{name:0<16}"));
    fs::create_dir_all(&run).expect("made");
    let manifest = fs::File::create(run.join("manifest")).expect("written");
    let then = std::time::SystemTime::now() - Duration::from_secs(3600);
    manifest.set_modified(then).expect("set");
}

/// An example of `satin store` serves until it is asked to end.
fn run_store(test: &str, store: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    machines.give_credential();
    println!("{store}");
    // The signal is for the server, not for the shell.
    let mut server = machines.start(0, &format!("exec {}", store.replace("/data", "data")));
    let began = Instant::now();
    while !server.said().contains("listening on") {
        assert!(began.elapsed() < PATIENCE, "{}", server.tell());
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    server.succeeds();
}

fn run_all(test: &str, examples: &[String]) {
    run_nodes(test, examples);
    for example in examples {
        if example.starts_with("satin drain") {
            run_drain(test, example);
        } else if example.starts_with("satin status") {
            run_status(test, example);
        } else if example.starts_with("satin log") {
            run_log(test, example);
        } else if example.starts_with("satin stop") {
            run_stop(test, example);
        } else if example.starts_with("satin dashboard") {
            run_dashboard(test, example);
        } else if example.starts_with("satin runs") {
            run_runs(test, example);
        } else if example.starts_with("satin run") && !example.ends_with("--help") {
            run_run(test, example);
        } else if example.starts_with("satin store") {
            run_store(test, example);
        } else if ["satin launch", "satin k8s", "satin top"]
            .iter()
            .any(|begin| example.starts_with(begin))
        {
            println!("{example}: see tests/launch.rs, tests/kubernetes.rs, tests/terminal.rs");
        } else if ["satin keygen", "satin explain"]
            .iter()
            .any(|begin| example.starts_with(begin))
        {
            let Some(machines) = Machines::new(test) else {
                return;
            };
            machines.start(0, example).succeeds();
        } else if example.ends_with("--help") {
            help(
                example
                    .trim_start_matches("satin")
                    .trim_end_matches("--help"),
            );
        } else {
            assert!(
                example.contains("satin node"),
                "no test knows how to run `{example}`: teach it to `run_all`, or, in a page, write `<!-- not run: REASON -->` before it"
            );
        }
    }
}

#[test]
fn the_examples_of_satin_work() {
    run_all("the_examples_of_satin_work", &examples_of(""));
}

#[test]
fn the_examples_of_satin_node_work() {
    run_all("the_examples_of_satin_node_work", &examples_of("node"));
}

#[test]
fn the_examples_of_satin_keygen_work() {
    let mut examples = examples_of("keygen");
    // The founder on the other machine has somebody to work with.
    examples.extend(
        examples_of("")
            .into_iter()
            .filter(|text| text.contains("--join")),
    );
    run_all("the_examples_of_satin_keygen_work", &examples);
}

#[test]
fn the_examples_of_satin_explain_work() {
    run_all(
        "the_examples_of_satin_explain_work",
        &examples_of("explain"),
    );
}

#[test]
fn the_examples_of_satin_drain_work() {
    run_all("the_examples_of_satin_drain_work", &examples_of("drain"));
}

#[test]
fn the_examples_of_satin_log_work() {
    run_all("the_examples_of_satin_log_work", &examples_of("log"));
}

#[test]
fn the_examples_of_satin_status_work() {
    run_all("the_examples_of_satin_status_work", &examples_of("status"));
}

#[test]
fn the_examples_of_satin_dashboard_work() {
    run_all(
        "the_examples_of_satin_dashboard_work",
        &examples_of("dashboard"),
    );
}

#[test]
fn the_examples_of_satin_stop_work() {
    run_all("the_examples_of_satin_stop_work", &examples_of("stop"));
}

#[test]
fn the_examples_of_satin_store_work() {
    run_all("the_examples_of_satin_store_work", &examples_of("store"));
}

#[test]
fn the_examples_of_satin_run_work() {
    run_all("the_examples_of_satin_run_work", &examples_of("run"));
}

#[test]
fn the_examples_of_satin_runs_work() {
    run_all("the_examples_of_satin_runs_work", &examples_of("runs"));
}

// ---------------------------------------------------------------------------------------------------- README and book

/// What a reader types: without comments, with the commands of the built `satin` in the place of cargo's.
fn typed(block: &CodeBlock) -> String {
    let mut text = String::new();
    for line in block.text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        // That is what runs this test.
        if line.starts_with('#') || line == "cargo test --workspace" {
            continue;
        }
        text += &line.replace("cargo run --release --bin satin -- ", "satin ");
        text.push('\n');
    }
    text
}

/// A block that does not only speak to pools runs as a whole, as it is pasted into a shell.
fn run_script(test: &str, script_text: &str) {
    let Some(machines) = Machines::new(test) else {
        return;
    };
    println!("{script_text}");
    machines.install("fib");
    let primes = example("primes");
    let build = format!(
        "[ \"$1\" = build ] && mkdir -p target/release && cp {} target/release",
        primes.display()
    );
    script(&machines.scratch.path().join("bin/cargo"), &build);
    let mut run = machines.start(0, &format!("set -e\n{}", smaller(script_text)));
    run.succeeds();
    let said = run.said();
    for (program, answer) in [
        ("./program 42", "fib(27) = 196418"),
        ("release/primes", "148933 primes"),
    ] {
        let runs = script_text.matches(program).count();
        assert_eq!(said.matches(answer).count(), runs, "{}", run.tell());
    }
}

/// What is run at once: a block as it stands, or commands that belong together.
enum Piece {
    Script(String),
    Commands(Vec<String>),
}

/// The pieces of a block: a founder and those that join it run together, other commands by themselves.
fn pieces(block: &CodeBlock) -> Vec<Piece> {
    let text = typed(block);
    let is_for_pools = |line: &str| line.starts_with("satin ") || line.starts_with(' ');
    if !text.lines().all(is_for_pools) {
        return vec![Piece::Script(text)];
    }
    let is_node = |command: &String| command.contains("satin node");
    let (nodes, others): (Vec<String>, Vec<String>) =
        commands(&text).into_iter().partition(is_node);
    let groups = std::iter::once(nodes).chain(others.into_iter().map(|other| vec![other]));
    groups
        .filter(|group| !group.is_empty())
        .map(Piece::Commands)
        .collect()
}

/// Threads that run commands. More: they compete for the cores. Fewer: each waits for the times that examples give.
const RUNNERS: usize = 4;

#[test]
fn the_commands_of_the_readme_and_the_book_work() {
    let test = "the_commands_of_the_readme_and_the_book_work";
    let mut seen = BTreeSet::new();
    let mut work = Vec::new();
    let mut not_run = 0;
    for page in pages::all() {
        for block in page.blocks.iter().filter(|block| block.language == "sh") {
            if block.not_run.is_some() {
                not_run += 1;
                continue;
            }
            for piece in pieces(block) {
                let name = match &piece {
                    Piece::Script(text) => text.clone(),
                    Piece::Commands(commands) => commands.join("\n"),
                };
                // Several pages give the same command.
                if seen.insert(name) {
                    work.push((page.place(block), piece));
                }
            }
        }
    }
    assert!(work.len() > 20, "{seen:?}");
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let run = || {
            while let Some((place, piece)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                println!("{place}:");
                match piece {
                    Piece::Script(text) => run_script(test, text),
                    Piece::Commands(commands) => run_all(test, commands),
                }
            }
        };
        for _ in 0..RUNNERS {
            scope.spawn(run);
        }
    });
    println!("{not_run} blocks are not run here: the comment before each says why");
}
