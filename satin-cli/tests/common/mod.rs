//! What tests of whole pools have in common. Not all use all of it.
#![allow(dead_code)]

use std::{
    ffi::OsString,
    fmt::Write as _,
    io::{BufRead, BufReader, Write as _},
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use satin_cli::{
    build,
    faults::Fault,
    pool::{Control, LocalPool, Output, Plan, PoolOutcome},
    wan::WanLink,
};
use satin_runtime::observe::events::{Event, NodeFigures, Record};

pub mod machines;

/// Far longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// An example's executable. `cargo test --workspace` has built it before any test runs; otherwise it is built here, once.
pub fn example(name: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.parent().and_then(Path::parent);
    let profile = profile.expect("cargo puts tests into target/PROFILE/deps");
    let executable = profile.join("examples").join(name);
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if executable.exists() {
        return executable;
    }
    // With the features of the whole workspace, whose libraries are there.
    let mut cargo = build::cargo();
    cargo.args(["build", "--quiet", "--workspace", "--example", name]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "the example {name} builds");
    executable
}

/// An example on some sites, one worker per node, with the round trip of a continent between the sites.
pub fn plan(name: &str, arguments: &[&str], sites: &str) -> Plan {
    let program = std::iter::once(example(name).into_os_string());
    let program = program.chain(arguments.iter().map(OsString::from));
    Plan {
        threads: Some(1),
        wan: Some(WanLink {
            rtt: Duration::from_millis(30),
            ..WanLink::default()
        }),
        output: Output::Keep,
        ..Plan::new(program, sites.parse().expect("sites"))
    }
}

/// An example that searches, on an instance that takes some seconds, and what stands on stdout once if the answer is right:
/// both examples check themselves that the witness of the bound is worth what the bound says, and end with an error if not.
pub struct Search {
    pub name: &'static str,
    pub arguments: &'static [&'static str],
    pub answer: &'static str,
}

/// Nugent, Vollmann, Ruml (1968), from QAPLIB. Cold: whatever is found is found in the search. All that its root job leaves
/// behind is a bound with a witness.
pub const QAP: Search = Search {
    name: "qap",
    arguments: &[
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/nug15.dat"),
        "--cold",
    ],
    answer: "cost 1150 (the known optimum)\n",
};

/// Its root job leaves a bound with a witness, and a result: both are the same value.
pub const KNAPSACK: Search = Search {
    name: "knapsack",
    arguments: &[
        "--items", "200", "--extra", "100", "--spread", "0", "--seed", "6",
    ],
    answer: "value 67257 (the optimum)\n",
};

/// What is to happen, as `satin run` names it: `kill a-1@2s`.
pub fn faults(faults: &[&str]) -> Vec<Fault> {
    let fault = |text: &&str| text.parse().expect("a fault");
    faults.iter().map(fault).collect()
}

pub fn start(plan: Plan) -> LocalPool {
    LocalPool::start(plan, Control::new()).expect("the pool starts")
}

#[track_caller]
pub fn run(plan: Plan) -> PoolOutcome {
    finish(start(plan))
}

/// Waits for the end, but not for ever.
#[track_caller]
pub fn finish(mut pool: LocalPool) -> PoolOutcome {
    pool.wait_for(PATIENCE, |_| false).expect("readable");
    if !pool.has_ended() {
        let records = format!("{:#?}", pool.records());
        panic!("the pool does not end: {records}\n{}", pool.stderr());
    }
    pool.wait().expect("the pool ends")
}

/// Waits until that has happened.
#[track_caller]
pub fn wait_for(pool: &mut LocalPool, happened: impl Fn(&[Record]) -> bool) {
    let there = pool.wait_for(PATIENCE, happened).expect("readable");
    assert!(there, "{:#?}", pool.records());
}

pub fn has(records: &[Record], name: &str, what: impl Fn(&Event) -> bool) -> bool {
    let is = |record: &Record| record.name == name && what(&record.event);
    records.iter().any(is)
}

/// The pool ended well, on all nodes.
#[track_caller]
pub fn ended_well(outcome: &PoolOutcome) {
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(
        outcome
            .nodes
            .values()
            .all(std::process::ExitStatus::success),
        "{outcome:#?}"
    );
    let last = |record: &Record| record.event == Event::PoolEnded { code: 0 };
    assert!(outcome.records.iter().any(last), "{outcome:#?}");
}

pub fn figures(outcome: &PoolOutcome, name: &str) -> NodeFigures {
    let of = |record: &Record| match record.event {
        Event::Stats(figures) if record.name == name => Some(figures),
        _ => None,
    };
    let figures = outcome.records.iter().find_map(of);
    figures.unwrap_or_else(|| panic!("{name} told no figures: {outcome:#?}"))
}

/// Prints at once, and whether the test passes or not.
pub fn say(words: &str) {
    let _ = std::io::stderr().write_all(words.as_bytes());
}

/// A test that tries seeds, one after the other: the variable that chooses them, and the name of the test's executable.
pub struct SeedSeries {
    pub variable: &'static str,
    pub test: &'static str,
}

impl SeedSeries {
    /// The seeds that are to be tried: those of the variable, or these.
    pub fn seeds(&self, otherwise: &[u64]) -> Vec<u64> {
        let variable = self.variable;
        match std::env::var(variable) {
            Ok(text) => range(&text)
                .unwrap_or_else(|| panic!("{variable}={text:?}: expected FROM..TO, such as 0..100"))
                .collect(),
            Err(_) => otherwise.to_vec(),
        }
    }

    /// The command that repeats a run.
    pub fn again(&self, seed: u64) -> String {
        let SeedSeries { variable, test } = self;
        let next = seed + 1;
        format!("{variable}={seed}..{next} cargo test -p satin-cli --test {test} random")
    }

    /// Says how the runs went, and fails if some went wrong.
    #[track_caller]
    pub fn sum_up(&self, began: Instant, runs: usize, counted: usize, wrong: &[u64]) {
        say(&format!(
            "{runs} runs in {:.0} s: {counted} counted, {} wrong\n",
            began.elapsed().as_secs_f64(),
            wrong.len()
        ));
        let list: Vec<String> = wrong.iter().map(|seed| self.again(*seed)).collect();
        assert!(list.is_empty(), "to see them again:\n{}", list.join("\n"));
    }
}

fn range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// All that a pool has told.
pub fn story(outcome: &PoolOutcome) -> String {
    let mut story = format!("exit code {}\n--- events\n", outcome.code);
    for record in &outcome.records {
        let (at, name) = (record.at_ms, &record.name);
        let _ = writeln!(story, "{at:6} ms {name}: {:?}", record.event);
    }
    story += "--- ends\n";
    for (name, status) in &outcome.nodes {
        let _ = writeln!(story, "{name}: {status}");
    }
    story + "--- stdout\n" + &outcome.stdout + "--- stderr\n" + &outcome.stderr
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same on every machine, in every version.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.within(0..limit as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A `satin store`, with its files in `kept` and the credential `pool.pem`. Dropping it kills it.
pub struct StoreProcess {
    child: Child,
    said: BufReader<ChildStderr>,
    pub addr: SocketAddr,
    /// The line that it has begun with.
    pub greeting: String,
}

impl StoreProcess {
    pub fn start(dir: &Path, listen: SocketAddr) -> Result<StoreProcess, String> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_satin"))
            .args(["store", "--listen", &listen.to_string(), "--dir"])
            .arg(dir.join("kept"))
            .arg("--credential")
            .arg(dir.join("pool.pem"))
            .env_remove("SATIN_LOG")
            .current_dir(dir)
            .stderr(Stdio::piped())
            .spawn()
            .expect("satin starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut greeting = String::new();
        said.read_line(&mut greeting).expect("text");
        let addr = greeting
            .strip_prefix("satin store: listening on ")
            .and_then(|rest| rest.split(',').next()?.parse().ok());
        match addr {
            Some(addr) => Ok(StoreProcess {
                child,
                said,
                addr,
                greeting,
            }),
            None => {
                child.wait().expect("it ends");
                Err(greeting)
            }
        }
    }

    /// Asks it to end, and returns its exit code.
    pub fn terminate(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let mut rest = String::new();
        while self.said.read_line(&mut rest).expect("text") > 0 {}
        let code = self.child.wait().expect("it ends").code();
        assert_eq!(rest, "satin store: ended\n");
        code
    }
}

impl Drop for StoreProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
