//! Pools that lose all their nodes, the stores that outlive them, and the flags and commands for that.

mod common;

use std::{
    path::PathBuf,
    process::{Command, Output},
    time::{Duration, Instant},
};

use common::{PATIENCE, example, faults, finish, plan, run, start};
use satin_cli::{
    pool::{ALL_KILLED, Plan, PoolOutcome},
    store::StoreUse,
};
use satin_runtime::{
    job::{Answer, Batch, Fingerprint, JobName, Saved, StoredFact},
    net::Credential,
    stable::{
        file::Directory,
        runs::{BeginRequest, EpochStart, LogName, Program, Resume, Runs, Stays},
    },
};

/// Far more than runs before the end.
const LONG: [&str; 4] = ["9", "9", "5000", "--sleep"];

/// That example on four nodes, which all are killed.
fn doomed(what: &[&str]) -> Plan {
    Plan {
        wan: None,
        faults: faults(what),
        ..plan("knary", &LONG, "a:2,b:2")
    }
}

fn last_line(stderr: &str) -> &str {
    stderr.lines().last().unwrap_or_default()
}

#[track_caller]
fn said(outcome: &PoolOutcome, line: &str) {
    let ends = |said: &str| said.starts_with("satin: ") && said.ends_with(line);
    let is_there = outcome.stderr.lines().any(ends);
    assert!(is_there, "expected {line:?}: {outcome:#?}");
}

/// No process of that group is left.
#[track_caller]
fn assert_gone(group: u32) {
    let pid = rustix::process::Pid::from_raw(group as i32).expect("not 0");
    let began = Instant::now();
    while rustix::process::test_kill_process_group(pid).is_ok() {
        assert!(began.elapsed() < PATIENCE, "{group} is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn all_nodes_can_be_killed_at_once() {
    let pool = start(doomed(&["kill all@0.5s", "join a@0.5s", "kill a-1@9s"]));
    let began = Instant::now();
    let nodes = ["a-0", "a-1", "b-0", "b-1"];
    let processes = nodes.map(|node| pool.process(node).expect("started"));
    let outcome = finish(pool);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}: {outcome:#?}");
    assert_eq!(outcome.code, ALL_KILLED, "{outcome:#?}");
    processes.into_iter().for_each(assert_gone);
    said(&outcome, " s: killed all 4 nodes");
    said(
        &outcome,
        "4 killed, exit code 137; too late to happen, as the pool had ended: join a@0.5s, kill a-1@9s",
    );
    let end = last_line(&outcome.stderr);
    assert!(end.contains("their work is lost"), "{outcome:#?}");
    let complaints = ["too early", "found dead", "nobody is left"];
    let is_quiet = complaints.iter().all(|text| !outcome.stderr.contains(text));
    assert!(is_quiet, "that was to be expected: {outcome:#?}");
}

#[test]
fn whoever_is_left_is_killed_too() {
    let outcome = run(doomed(&["stop b-1@0.2s", "kill a@0.2s", "kill all@0.5s"]));
    assert_eq!(outcome.code, ALL_KILLED, "{outcome:#?}");
    said(&outcome, " s: killed all 2 nodes");
    said(&outcome, "4 killed, 1 stopped, exit code 137");
}

#[test]
fn an_answer_that_was_given_before_stays_the_answer() {
    let outcome = run(Plan {
        wan: None,
        faults: faults(&["kill all@50s"]),
        ..plan("fib", &["20"], "a:2")
    });
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(!outcome.stderr.contains("killed all"), "{outcome:#?}");
}

#[test]
fn with_a_store_the_last_line_tells_how_to_go_on() {
    let scratch = tempfile::tempdir().expect("a directory");
    let url = format!("file:{}", scratch.path().join("store").display());
    let mut plan = doomed(&["kill all@0.2s"]);
    plan.store = Some(StoreUse::new(url.parse().expect("a URL")).expect("made"));
    let outcome = run(plan);
    assert_eq!(
        last_line(&outcome.stderr),
        format!(
            "satin: all nodes were killed; what they had finished is in {url}: the same command goes on from there"
        )
    );
}

// ------------------------------------------------------------------------------------------------------- the command

/// A place of its own for the state of the user who runs the command.
struct User(tempfile::TempDir);

impl User {
    fn new() -> User {
        User(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn credential(&self) -> PathBuf {
        self.path("state/satin/store.pem")
    }

    fn satin(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_satin"));
        command
            .current_dir(self.0.path())
            .env("XDG_STATE_HOME", self.path("state"));
        for variable in ["STORE", "RESUME", "STORE_FORCE", "CREDENTIAL", "POOL"] {
            command.env_remove(format!("SATIN_{variable}"));
        }
        command
    }

    /// Runs a command of words with spaces between.
    fn says(&self, words: &str) -> Output {
        let mut command = self.satin();
        command.args(words.split_whitespace());
        command.output().expect("it starts")
    }

    /// The output of a shell script that stands for the program.
    #[track_caller]
    fn run_script(&self, flags: &str, script: &str) -> String {
        let mut command = self.satin();
        command.args(["run", "--nodes", "1"]);
        command.args(flags.split_whitespace());
        let output = command.args(["--", "sh", "-c", script]).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{flags}: {output:?}");
        text(&output.stdout)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn refuses(user: &User, words: &str, complaint: &str) {
    let output = user.says(words);
    let stderr = text(&output.stderr);
    assert!(!output.status.success(), "{words}");
    assert!(stderr.contains(complaint), "{words}: {stderr}");
    assert!(output.stdout.is_empty(), "{words}: {output:?}");
}

#[test]
fn flags_that_make_no_sense_are_refused_before_anything_starts() {
    let user = User::new();
    for (flags, complaint) in [
        ("--store /scratch", "--store /scratch: expected file:PATH"),
        (
            "--resume",
            "--resume needs a store: add `--store URL`, or set SATIN_STORE",
        ),
        ("--resume 3f2a", "--resume needs a store"),
        ("--fresh", "--fresh needs a store"),
        ("--force", "--force needs a store"),
        ("--store file:s --resume --fresh", "cannot be used with"),
        ("--store file:s --fresh --force", "cannot be used with"),
        ("--store file:s --resume ../x", "expected the name of a run"),
        (
            "--store file:s --credential nowhere.pem",
            "nowhere.pem does not exist",
        ),
        ("--stop all@1s", "only `kill` happens to all nodes at once"),
        ("--drain all@1s", "only `kill` happens to all nodes at once"),
    ] {
        refuses(&user, &format!("run {flags} -- echo started"), complaint);
    }
}

#[test]
fn nodes_are_told_of_the_store() {
    let user = User::new();
    let tell = r#"echo "${SATIN_STORE-}|${SATIN_RESUME-}|${SATIN_STORE_FORCE-}""#;
    let here = user.0.path().canonicalize().expect("there");
    let url = format!("file:{}/kept", here.display());
    for (flags, told) in [
        ("", "||".to_owned()),
        ("--store file:kept", format!("{url}||")),
        ("--store file:kept --resume", format!("{url}|auto|")),
        (
            "--store file:kept --resume 00000000000f3f2a --force",
            format!("{url}|00000000000f3f2a|1"),
        ),
        ("--store file:kept --fresh", format!("{url}|no|")),
        (
            "--store satin://a:7800",
            "satin://a:7800?copies=1||".to_owned(),
        ),
    ] {
        assert_eq!(user.run_script(flags, tell).trim_end(), told, "{flags}");
    }
    let mut by_variable = user.satin();
    by_variable.env("SATIN_STORE", "file:kept");
    by_variable.args(["run", "--nodes", "1", "--fresh", "--", "sh", "-c", tell]);
    let output = by_variable.output().expect("it starts");
    assert_eq!(text(&output.stdout).trim_end(), format!("{url}|no|"));
}

#[test]
fn with_a_store_every_start_has_the_same_credential() {
    let user = User::new();
    let show = r#"cat "$SATIN_CREDENTIAL""#;
    let without = user.run_script("", show);
    assert!(
        !user.credential().exists(),
        "nothing is kept without a store"
    );
    let first = user.run_script("--store file:kept", show);
    let second = user.run_script("--store file:kept --fresh", show);
    assert_eq!(first, second);
    assert_ne!(first, without);
    let kept = std::fs::read_to_string(user.credential()).expect("kept");
    assert_eq!(first, kept);
    let own = user.path("own.pem");
    satin_runtime::net::Credential::write_new(&own).expect("written");
    let own = std::fs::read_to_string(own).expect("there");
    let given = user.run_script("--store file:kept --credential own.pem", show);
    assert_eq!(given, own);
    assert_eq!(user.run_script("--credential own.pem", show), own);
}

/// Two nodes with the store `kept` and these flags, and a program that takes long.
fn run_long(user: &User, flags: &[&str]) -> Output {
    let mut command = user.satin();
    command.args(["run", "--nodes", "2", "--threads", "1"]);
    command.args(["--store", "file:kept"]).args(flags).arg("--");
    command.arg(example("knary")).args(LONG);
    command.output().expect("it starts")
}

/// The whole pool is killed from the command line, and scripts can tell from the code.
#[test]
fn the_code_says_that_all_nodes_were_killed() {
    let user = User::new();
    let output = run_long(&user, &["--fresh", "--kill", "all@0.3s"]);
    assert_eq!(output.status.code(), Some(ALL_KILLED), "{output:?}");
    let stderr = text(&output.stderr);
    let end = last_line(&stderr);
    assert!(
        end.contains("/kept: the same command, without --fresh, goes on"),
        "{stderr}"
    );
}

// ------------------------------------------------------------------------------------------------------ satin runs

/// The runs in the directory `kept`, for those who have that credential.
fn runs(user: &User, credential: &str) -> Runs {
    let file = user.path(credential);
    if !file.exists() {
        Credential::write_new(&file).expect("written");
    }
    let credential = Credential::load(&file).expect("there");
    let store = Directory::open(user.path("kept")).expect("it can be written to");
    Runs::new(std::sync::Arc::new(store), credential.secret(), true)
}

fn begin(runs: &Runs, pool: &str, argument: &str, resume: Resume) -> EpochStart {
    let program = Program {
        hash: [1; 32],
        target: "x86_64-linux".into(),
        executable: [2; 32],
        command_line: vec!["--depth".into(), argument.into()],
        mixed_builds: false,
    };
    let request = BeginRequest {
        pool: pool.into(),
        program,
        resume,
        force: false,
        max_crashes: 3,
        by: "delft-0".into(),
        founder: rand::random::<u64>().into(),
    };
    runs.begin(&request).expect("it begins")
}

/// Writes results of jobs of the first root job that took 90 s each.
fn write(runs: &Runs, begun: &EpochStart, jobs: std::ops::Range<u32>) {
    let log = LogName {
        epoch: begun.epoch,
        node: 7,
        generation: 0,
    };
    let fact = |index: u32| StoredFact {
        saved: Saved {
            name: JobName::new([0, index].into_iter().collect(), Fingerprint(index.into())),
            root: Fingerprint(9),
            answer: Answer::result(b"result".to_vec().into(), Vec::new()),
        },
        took: Duration::from_secs(90),
    };
    let batch = Batch {
        facts: jobs.map(fact).collect(),
        ..Batch::default()
    };
    let mut writer = runs.writer(&begun.place, log);
    writer.append(batch).expect("written");
}

/// The cells of the row that begins like that.
#[track_caller]
fn row(output: &Output, name: &str) -> String {
    let stdout = text(&output.stdout);
    let row = stdout.lines().find(|line| line.starts_with(name));
    let row = row.unwrap_or_else(|| panic!("no {name}: {output:?}"));
    let words: Vec<&str> = row.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn a_store_without_runs_and_no_store_are_told_apart() {
    let user = User::new();
    std::fs::create_dir(user.path("kept")).expect("made");
    for (flags, said) in [
        ("", "there are no runs in file:/"),
        ("--pool fib", "there are no runs of the pool `fib` in"),
    ] {
        let output = user.says(&format!("runs ls --store file:kept {flags}"));
        assert!(output.status.success(), "{output:?}");
        assert!(text(&output.stderr).contains(said), "{output:?}");
    }
    refuses(
        &user,
        "runs ls --store file:slip",
        "the directory does not exist",
    );
    assert!(!user.path("slip").exists(), "it is not made");
    refuses(&user, "runs ls", "--store <URL>");
    refuses(
        &user,
        "runs ls --store kept",
        "--store kept: expected file:PATH",
    );
    if !cfg!(feature = "s3") {
        let how = "the command `satin` needs `cargo install satin-cli --features s3`";
        refuses(&user, "runs ls --store s3://bucket", how);
    }
    refuses(
        &user,
        "runs show 3f2a --store file:kept",
        "is called `3f2a`",
    );
}

#[test]
fn runs_are_listed_with_what_would_be_found_again() {
    let user = User::new();
    let (own, others) = (runs(&user, "own.pem"), runs(&user, "others.pem"));
    let first = begin(&own, "knary", "7", Resume::Auto);
    write(&own, &first, 0..4);
    let again = begin(&own, "knary", "7", Resume::Auto);
    assert_eq!(again.place, first.place, "it is resumed");
    let done = begin(&own, "fib", "42", Resume::Auto);
    own.finish(&done.place, 3, Stays::All).expect("noted");
    let foreign = begin(&others, "knary", "8", Resume::Auto);
    let listed = user.says("runs ls --store file:kept --credential own.pem");
    let name = |begun: &EpochStart| begun.place.run.to_string();
    let unfinished = row(&listed, &name(&first));
    assert!(unfinished.contains(" knary unfinished 0."), "{unfinished}");
    assert!(unfinished.contains(" s ago 2 4 6 min "), "{unfinished}");
    assert!(unfinished.ends_with(" B --depth 7"), "{unfinished}");
    assert!(row(&listed, &name(&done)).contains(" fib ended with 3 "));
    assert!(row(&listed, &name(&foreign)).contains(" knary unreadable - 1 - "));
    assert!(text(&listed.stderr).contains("started with another credential"));
    let of_pool = user.says("runs ls --store file:kept --credential own.pem --pool fib");
    assert_eq!(text(&of_pool.stdout).lines().count(), 2, "{of_pool:?}");
}

#[test]
fn all_about_a_run_is_shown() {
    let user = User::new();
    let own = runs(&user, "own.pem");
    let run = begin(&own, "knary", "7", Resume::Auto);
    write(&own, &run, 0..4);
    let name = run.place.run.to_string();
    let segment = user.path("kept/knary").join(&name).join("log");
    let log = std::fs::read_dir(segment).expect("there").flatten().next();
    let torn = log.expect("a log").path().join("00000000");
    let mut bytes = std::fs::read(&torn).expect("there");
    bytes.extend_from_slice(b"torn");
    std::fs::write(&torn, bytes).expect("written");
    let shown = user.says(&format!(
        "runs show {} --store file:kept --credential own.pem",
        &name[..9]
    ));
    assert!(shown.status.success(), "{shown:?}");
    assert_eq!(row(&shown, "run"), format!("run {name}"));
    assert_eq!(row(&shown, "command"), "command --depth 7");
    let stdout = text(&shown.stdout);
    for words in [
        "delft-0",
        "x86_64-linux",
        "00000000000000000000000000000007",
        "/00000000 ends early",
    ] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    assert_eq!(row(&shown, "root job"), "root job results worth");
    assert!(
        stdout
            .lines()
            .any(|line| line.split_whitespace().eq(["0", "4", "6", "min"])),
        "{stdout}"
    );
}

#[test]
fn a_run_that_may_be_going_on_is_not_removed_by_accident() {
    let user = User::new();
    let own = runs(&user, "own.pem");
    let (one, other) = (
        begin(&own, "knary", "7", Resume::No),
        begin(&own, "knary", "7", Resume::No),
    );
    let flags = "--store file:kept --credential own.pem";
    let (one, other) = (one.place.run.to_string(), other.place.run.to_string());
    refuses(
        &user,
        &format!("runs rm {one} {flags}"),
        "remove it with --force",
    );
    let both = format!("runs rm {one} --force nonsense {flags}");
    refuses(&user, &both, "is called `nonsense`");
    assert_eq!(own.list(None).expect("there").len(), 2, "all or none");
    let removed = user.says(&format!("runs rm {one} --force {flags}"));
    assert!(removed.status.success(), "{removed:?}");
    let left = own.list(None).expect("there");
    let left: Vec<String> = left.iter().map(|run| run.place.run.to_string()).collect();
    assert_eq!(left, [other]);
}

#[test]
fn a_pool_that_may_not_begin_its_run_ends_and_says_why() {
    let user = User::new();
    let output = run_long(&user, &["--resume", "0123456789abcdef"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("has no run 0123456789abcdef"), "{stderr}");
}

/// As a batch system does it at the end of its time.
#[test]
fn a_program_that_is_asked_to_end_writes_what_it_has() {
    let scratch = tempfile::tempdir().expect("a directory");
    let counted = scratch.path().join("leaves");
    let leaves = || std::fs::read(&counted).map_or(0, |bytes| bytes.len());
    let all = 3_usize.pow(5);
    let start = || {
        let mut command = Command::new(example("knary"));
        command.args(["5", "3", "20000", "--sleep", "--threads", "2", "--count"]);
        command.arg(&counted);
        command.env("XDG_STATE_HOME", scratch.path());
        command.env(
            "SATIN_STORE",
            format!("file:{}", scratch.path().join("store").display()),
        );
        // After the batch of the first second there would be none for an hour.
        command.env("SATIN_STORE_EVERY", "3600");
        command.spawn().expect("it starts")
    };
    let mut first = start();
    let began = Instant::now();
    while leaves() < all * 3 / 4 {
        assert!(began.elapsed() < PATIENCE, "{} leaves", leaves());
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
    let ended = first.wait().expect("it ends").code();
    assert_eq!(ended, Some(143));
    let second = start().wait().expect("it ends").code();
    assert_eq!(second, Some(0));
    // What the two workers were in is done again.
    let twice = leaves() - all;
    assert!(twice <= 20, "{twice} of {all} leaves were done twice");
}
