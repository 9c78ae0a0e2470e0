//! What `satin run` promises about processes, whatever they do: shell scripts stand for nodes here.

mod common;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use satin_cli::{
    pool::{Control, LocalPool, Output, Plan, PoolOutcome},
    sites::Sites,
    wan::WanLink,
};
use satin_runtime::observe::events::Event;

/// Far longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says that it listens, as a node does.
const LISTEN: &str = r#"
printf '{"event":"node","name":"%s","site":"%s","pid":%d,"addr":"%s","threads":%d,"at_ms":0}\n' \
    "$SATIN_NAME" "$SATIN_SITE" $$ "$SATIN_LISTEN" "$SATIN_THREADS" >> "$SATIN_EVENTS"
"#;

fn plan(script: &str, sites: &str) -> Plan {
    let script = format!("{LISTEN}{script}");
    Plan {
        output: Output::Keep,
        ..Plan::new(["sh", "-c", &script], sites.parse().expect("sites"))
    }
}

fn start(plan: Plan) -> LocalPool {
    LocalPool::start(plan, Control::new()).expect("the pool starts")
}

fn run(plan: Plan) -> PoolOutcome {
    start(plan).wait().expect("the pool ends")
}

/// Waits until so many nodes have come so far: the routes to one that has ended are removed.
fn all_have_read(nodes: usize) -> String {
    format!(
        r#"echo >> "$SATIN_CREDENTIAL.read"
           until [ "$(wc -l < "$SATIN_CREDENTIAL.read")" -ge {nodes} ]; do sleep 0.01; done"#
    )
}

/// Waits until all nodes of the pool are there.
fn all_listen(pool: &mut LocalPool, nodes: usize) {
    let listens = |event: &Event| matches!(event, Event::Node { .. });
    let there = pool.wait_for(PATIENCE, |records| {
        records
            .iter()
            .filter(|record| listens(&record.event))
            .count()
            == nodes
    });
    assert!(there.expect("readable"), "{:?}", pool.records());
}

/// No process of that group is left, not even one that nobody waited for.
fn assert_gone(group: u32) {
    let pid = rustix::process::Pid::from_raw(group as i32).expect("not 0");
    let began = Instant::now();
    while rustix::process::test_kill_process_group(pid).is_ok() {
        assert!(
            began.elapsed() < PATIENCE,
            "process group {group} is still there"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_masters_exit_code_and_output_are_those_of_the_pool() {
    let outcome = run(plan(
        r#"echo "I am $SATIN_NAME"; echo "oh, $SATIN_NAME" >&2
           if [ -z "$SATIN_JOIN" ]; then exit 7; fi"#,
        "amsterdam:1,delft:2",
    ));
    assert_eq!(outcome.code, 7);
    assert_eq!(outcome.stdout, "I am amsterdam-0\n");
    assert_eq!(outcome.nodes.len(), 3);
}

#[test]
fn every_node_knows_its_place_and_the_others_come_with_their_names() {
    // The master ends when the two others have listened.
    let outcome = run(plan(
        r#"echo "$SATIN_NAME $SATIN_SITE $SATIN_NODES $SATIN_THREADS $SATIN_STEAL${SATIN_POOL-none}"
           test -n "$SATIN_LISTEN" && test -z "$SATIN_WAN" && test -s "$SATIN_CREDENTIAL" || exit 9
           until [ "$(wc -l < "$SATIN_EVENTS")" -ge 3 ]; do sleep 0.01; done"#,
        "amsterdam:1,delft:2",
    )
    .with(|plan| {
        plan.threads = Some(3);
        plan.steal = Some("rs".into());
    }));
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(outcome.stdout, "amsterdam-0 amsterdam 3 3 rsnone\n");
    for line in [
        "[delft-0 @ delft] delft-0 delft 3 3 rsnone\n",
        "[delft-1 @ delft] delft-1 delft 3 3 rsnone\n",
    ] {
        assert!(outcome.stderr.contains(line), "{}", outcome.stderr);
    }
}

#[test]
fn the_credential_is_for_this_user_only_and_goes_with_the_pool() {
    let outcome = run(plan(
        r#"ls -l "$SATIN_CREDENTIAL"; echo "$SATIN_CREDENTIAL""#,
        "1x1",
    ));
    let (listed, path) = outcome.stdout.split_once('\n').expect("two lines");
    assert!(listed.starts_with("-rw-------"), "{listed}");
    let scratch = Path::new(path.trim()).parent().expect("a directory");
    assert!(!scratch.exists(), "{}", scratch.display());
}

#[test]
fn each_site_has_its_own_detours() {
    let script = format!(r#"cat "$SATIN_WAN"; {}"#, all_have_read(3));
    let outcome = run(plan(&script, "a:2,b:1").with(|plan| plan.wan = Some(WanLink::default())));
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let address = |name: &str| {
        let node = |event: &Event| match event {
            Event::Node { addr, .. } => Some(*addr),
            _ => None,
        };
        let record = outcome.records.iter().find(|record| record.name == name);
        let addr = record.and_then(|record| node(&record.event));
        addr.expect("it said where it listens").to_string()
    };
    // The master is at `a`: it reaches b-0 by a relay, and a-1 without.
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with(&address("b-0")));
    for name in ["a-0", "a-1"] {
        let line = format!("[b-0 @ b] {} ", address(name));
        assert!(outcome.stderr.contains(&line), "{}", outcome.stderr);
    }
}

#[test]
fn a_node_can_be_added_also_at_a_new_site() {
    let script = format!(
        r#"until [ -e "$STOP" ]; do sleep 0.01; done; cat "$SATIN_WAN" | wc -l; {}"#,
        all_have_read(4)
    );
    let stop = scratch("added");
    let mut pool = start(plan(&script, "a:1,b:1").with(|plan| {
        plan.wan = Some(WanLink::default());
        plan.env.push(("STOP".into(), stop.clone().into()));
    }));
    assert_eq!(pool.add("c").expect("added"), "c-0");
    assert_eq!(pool.add("a").expect("added"), "a-1");
    all_listen(&mut pool, 4);
    std::fs::write(&stop, "").expect("written");
    let outcome = pool.wait().expect("the pool ends");
    std::fs::remove_file(&stop).expect("removed");
    assert_eq!(outcome.nodes.len(), 4);
    // From a one reaches b-0 and c-0 by relays, from b a-0, a-1 and c-0, from c a-0, a-1 and b-0.
    assert_eq!(outcome.stdout.trim(), "2");
    for line in ["[a-1 @ a] 2", "[b-0 @ b] 3", "[c-0 @ c] 3"] {
        assert!(outcome.stderr.contains(line), "{}", outcome.stderr);
    }
}

#[test]
fn who_ends_early_is_reported() {
    let script = r#"case $SATIN_NAME in
            s0-0) until [ -e "$STOP" ]; do sleep 0.01; done ;;
            s0-1) exit 4 ;;
            s0-2) kill -9 $$ ;;
        esac"#;
    let stop = scratch("early");
    let mut pool = start(plan(script, "1x3").with(|plan| {
        plan.env.push(("STOP".into(), stop.clone().into()));
    }));
    all_listen(&mut pool, 3);
    std::fs::write(&stop, "").expect("written");
    let outcome = pool.wait().expect("the pool ends");
    std::fs::remove_file(&stop).expect("removed");
    assert_eq!(outcome.code, 0);
    for (name, how) in [
        ("s0-1", "ended with exit code 4"),
        ("s0-2", "was ended by signal 9"),
    ] {
        let said = |line: &str| line.starts_with(&format!("satin: {name} {how} too early, after "));
        assert!(outcome.stderr.lines().any(said), "{}", outcome.stderr);
    }
}

#[test]
fn when_the_master_is_killed_the_others_are_stopped() {
    let mut pool = start(plan("sleep 1000", "1x3"));
    all_listen(&mut pool, 3);
    pool.signal("s0-0", 9);
    let outcome = pool.wait().expect("the pool ends");
    assert_eq!(outcome.code, 128 + 9);
    assert!(
        outcome
            .stderr
            .contains("s0-0 (the master) was ended by signal 9")
    );
    assert_eq!(outcome.nodes.len(), 3);
}

#[test]
fn a_signal_is_passed_on_and_the_obstinate_are_killed_with_what_they_started() {
    let script = format!(
        r#"case $SATIN_NAME in
            s0-0) trap 'echo stopped; exit 3' TERM; {LISTEN} sleep 1000 & wait ;;
            s0-1) trap '' INT TERM; {LISTEN} sleep 1000; sleep 1000 ;;
        esac"#
    );
    let plan = Plan {
        output: Output::Keep,
        ..Plan::new(["sh", "-c", &script], Sites::alike(1, 2))
    };
    let mut pool = start(plan);
    all_listen(&mut pool, 2);
    let groups = ["s0-0", "s0-1"].map(|name| pool.process(name).expect("it was started"));
    // Not SIGINT: a shell whose parent ignores that one, as a job in the background does, cannot trap it.
    pool.stopper().stop(15);
    let outcome = pool.wait().expect("the pool ends");
    assert_eq!(outcome.code, 128 + 15);
    assert_eq!(outcome.stdout, "stopped\n");
    groups.into_iter().for_each(assert_gone);
}

#[test]
fn a_pool_that_is_dropped_is_gone() {
    let mut pool = start(plan("sleep 1000", "1x2"));
    all_listen(&mut pool, 2);
    let groups = ["s0-0", "s0-1"].map(|name| pool.process(name).expect("it was started"));
    drop(pool);
    groups.into_iter().for_each(assert_gone);
}

#[test]
fn a_program_that_ends_at_once_is_not_started_again_and_again() {
    let plan = Plan {
        output: Output::Keep,
        ..Plan::new(
            ["sh", "-c", "echo wrong flag >&2; exit 2"],
            Sites::alike(1, 4),
        )
    };
    let outcome = run(plan);
    assert_eq!(outcome.code, 2);
    assert_eq!(outcome.stderr, "wrong flag\n");
    assert_eq!(outcome.nodes.len(), 1);
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let plan = Plan::new(["/nonexistent/program"], Sites::alike(1, 2));
    let error = LocalPool::start(plan, Control::new())
        .err()
        .expect("no pool");
    assert!(format!("{error:#}").starts_with("cannot start /nonexistent/program: "));
}

#[test]
fn the_command_passes_arguments_and_code_on() {
    let output = Command::new(env!("CARGO_BIN_EXE_satin"))
        .args([
            "run",
            "--nodes",
            "1",
            "--",
            "sh",
            "-c",
            "echo \"$1\"; exit 5",
            "x",
            "--help",
        ])
        .output()
        .expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--help\n");
    assert_eq!(output.status.code(), Some(5));
    assert!(output.stderr.is_empty());
}

/// It would print its answer once for each process, as if all were well.
#[test]
fn a_program_that_is_never_a_node_is_told_of() {
    let outcome = run(Plan {
        output: Output::Keep,
        ..Plan::new(["/bin/echo", "hello"], Sites::alike(1, 2))
    });
    assert_eq!((outcome.code, &*outcome.stdout), (0, "hello\n"));
    let said = &outcome.stderr;
    assert!(
        said.starts_with("satin: /bin/echo was never a node of the pool: it ran alone"),
        "{said}"
    );
    assert!(said.contains("#[satin::main]"), "{said}");
    let both = run(plan(
        "until [ \"$(wc -l < \"$SATIN_EVENTS\")\" -ge 2 ]; do sleep 0.01; done",
        "1x2",
    ));
    assert!(
        both.stderr.contains("its 2 processes ran alone"),
        "{}",
        both.stderr
    );
    // What fails says so itself.
    let fails = run(plan("exit 2", "1x1"));
    assert_eq!((fails.code, &*fails.stderr), (2, ""));
}

/// With `#[satin::main]` the pool ends while the process exits, on a thread that has not much left.
#[test]
fn a_program_of_the_attribute_alone_says_its_answer_and_nothing_else() {
    let program = common::example("primes");
    let pool = run(Plan {
        output: Output::Keep,
        ..Plan::new([&program], Sites::alike(1, 2))
    });
    let said = (pool.code, &*pool.stdout, &*pool.stderr);
    assert_eq!(said, (0, "148933 primes\n", ""));
    let alone = Command::new(program).output().expect("it starts");
    assert!(alone.status.success());
    assert_eq!(String::from_utf8_lossy(&alone.stdout), "148933 primes\n");
    assert_eq!(String::from_utf8_lossy(&alone.stderr), "");
}

fn satin(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_satin"));
    for variable in ["SATIN_JOIN", "SATIN_LISTEN"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().expect("it starts")
}

#[test]
fn a_node_of_no_pool_is_an_error() {
    let output = satin(&["node", "--site", "delft", "--", "/bin/echo", "hello"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty());
    for word in ["error: ", "--listen", "--join"] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn a_node_that_does_not_use_satin_is_told_of() {
    let output = satin(&["node", "--join", "127.0.0.1:9", "--", "/bin/echo", "hello"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
    assert!(said.contains("/bin/echo does not use Satin"), "{said}");
}

/// The user has typed `--threads`, and knows nothing of a variable.
#[test]
fn errors_name_the_flags_of_satin_node() {
    let fib = common::example("fib").display().to_string();
    let node = ["node", "--join", "127.0.0.1:9", "--credential", "none.pem"];
    for (flags, expected) in [
        (["--threads", "0"], "error: --threads 0: expected"),
        (["--max-crashes", "0"], "error: --max-crashes 0: expected"),
        (
            ["--listen", "localhost"],
            "error: --listen localhost: expected",
        ),
    ] {
        let output = satin(&[&node[..], &flags, &["--", &fib, "20"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains(expected) && !said.contains("SATIN_"),
            "{said}"
        );
    }
    let output = satin(&[
        "node",
        "--join",
        "127.0.0.1:9",
        "--",
        &fib,
        "20",
        "--threads",
        "0",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("error: --threads 0: expected"), "{said}");
}

/// Neither Ctrl-C nor even SIGKILL leaves a process or a file behind.
#[test]
fn the_command_leaves_nothing_behind() {
    for (signal, code) in [(2, Some(130)), (15, Some(143)), (9, None)] {
        let events = scratch(&format!("left-{signal}"));
        let script = format!("{LISTEN}echo \"$SATIN_CREDENTIAL\"; sleep 1000 & sleep 1000");
        let mut satin = Command::new(env!("CARGO_BIN_EXE_satin"))
            .args(["run", "--sites", "2x1", "--wan-rtt", "1ms", "--events"])
            .arg(&events)
            .args(["--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let began = Instant::now();
        let nodes = loop {
            let text = std::fs::read_to_string(&events).unwrap_or_default();
            let pids: Vec<u32> = text
                .lines()
                .filter_map(|line| {
                    line.split("\"pid\":")
                        .nth(1)?
                        .split(',')
                        .next()?
                        .parse()
                        .ok()
                })
                .collect();
            if pids.len() == 2 {
                break pids;
            }
            assert!(began.elapsed() < PATIENCE, "{text}");
            std::thread::sleep(Duration::from_millis(5));
        };
        let pid = rustix::process::Pid::from_raw(satin.id() as i32).expect("not 0");
        let signal = rustix::process::Signal::from_named_raw(signal).expect("a signal");
        rustix::process::kill_process(pid, signal).expect("sent");
        let mut stdout = String::new();
        let mut pipe = satin.stdout.take().expect("piped");
        std::io::Read::read_to_string(&mut pipe, &mut stdout).expect("closed by all");
        let status = satin.wait().expect("ended");
        assert_eq!(status.code(), code);
        nodes.into_iter().for_each(assert_gone);
        let scratch = Path::new(stdout.trim()).parent().expect("a directory");
        let began = Instant::now();
        while scratch.exists() {
            assert!(began.elapsed() < PATIENCE, "{} is left", scratch.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(&events).expect("removed");
    }
}

#[test]
fn a_node_becomes_the_program_with_the_flags_in_its_environment() {
    let output = Command::new(env!("CARGO_BIN_EXE_satin"))
        .args([
            "node",
            "--join",
            "a:1,b:2",
            "--site",
            "delft",
            "--threads",
            "3",
            "--stats",
        ])
        .args([
            "--",
            "sh",
            "-c",
            "echo $SATIN_JOIN $SATIN_SITE $SATIN_THREADS $SATIN_STATS $SATIN_POOL; exit 6",
        ])
        .env("SATIN_POOL", "mine")
        .env("SATIN_SITE", "leiden")
        .output()
        .expect("it starts");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "a:1,b:2 delft 3 1 mine\n"
    );
    assert_eq!(output.status.code(), Some(6));
}

#[test]
fn a_credential_is_written_once_and_for_this_user() {
    use std::os::unix::fs::PermissionsExt;
    let file = scratch("credential");
    let keygen = || {
        let output = Command::new(env!("CARGO_BIN_EXE_satin"))
            .arg("keygen")
            .arg(&file)
            .output();
        output.expect("it starts").status.success()
    };
    assert!(keygen());
    let mode = std::fs::metadata(&file)
        .expect("written")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read(&file).expect("readable");
    assert!(!keygen(), "it is not overwritten");
    assert_eq!(std::fs::read(&file).expect("readable"), text);
    std::fs::remove_file(&file).expect("removed");
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("satin-test-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

trait With: Sized {
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
}

impl With for Plan {
    fn with(mut self, change: impl FnOnce(&mut Plan)) -> Plan {
        change(&mut self);
        self
    }
}
