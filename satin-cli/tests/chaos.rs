//! Pools that random things happen to: a program, a pool and faults follow from a seed, and the answer must be right.
//!
//! `cargo test` runs a few seeds. `SATIN_CHAOS=FROM..TO` names others (TO is not among them), which are told line by line:
//!
//! ```sh
//! SATIN_CHAOS=0..100 cargo test -p satin-cli --test chaos
//! ```
//!
//! A run *counts* only if all its faults happened before the root job was done, which the events say.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    path::Path,
    process::Command,
    sync::OnceLock,
    time::{Duration, Instant},
};

use common::{KNAPSACK, QAP, Random, SeedSeries, example, say, start, story};
use satin_cli::{
    faults::{self, Fault, What, Who},
    pool::{LocalPool, Output, Plan, PoolOutcome},
    sites::{Site, Sites},
    wan::{Cut, WanLink},
};
use satin_runtime::{
    job::RootTag,
    observe::events::{Event, Record},
};

const SERIES: SeedSeries = SeedSeries {
    variable: "SATIN_CHAOS",
    test: "chaos",
};

/// What `cargo test` runs: every program, nearly every kind of fault, and nothing that takes long to be noticed.
const SEEDS: [u64; 7] = [12, 18, 20, 21, 22, 24, 37];

/// A run that takes so long hangs. The longest that has a reason to take long: a long pause, and two elections that wait.
const LIMIT: Duration = Duration::from_secs(120);

/// Faults happen within so long after all nodes are in. Undisturbed, the programs run for longer, also on a fast machine.
const MOMENTS_MS: Range<u64> = 100..2500;

#[test]
fn random_faults_change_no_answer() {
    let seeds = SERIES.seeds(&SEEDS);
    let began = Instant::now();
    let (mut counted, mut wrong) = (0, Vec::new());
    for seed in &seeds {
        let scenario = Scenario::of(*seed);
        let run = scenario.run();
        say(&format!(
            "{scenario}: {:.1} s, {}\n",
            run.seconds, run.verdict
        ));
        match run.verdict {
            Verdict::Counted => counted += 1,
            Verdict::TooLate(_) => {}
            Verdict::Wrong(_) => {
                say(&format!("{}\n{}\n", run.story, SERIES.again(*seed)));
                wrong.push(*seed);
            }
        }
    }
    let runs = seeds.len();
    SERIES.sum_up(began, runs, counted, &wrong);
    assert!(
        2 * counted >= runs,
        "of {runs} runs, only in {counted} everything happened in time: the programs are too small for this machine"
    );
}

/// Nobody could tell anything from a pool that is gone.
#[test]
fn every_seed_leaves_a_node_alone() {
    for seed in 0..10_000 {
        let scenario = Scenario::of(seed);
        faults::check(&scenario.faults, &scenario.sites).expect("a pool that can be");
        let touched = Touched::by(scenario.kinds(), &scenario.sites);
        assert!(touched.worst() < scenario.sites.nodes(), "{scenario}");
    }
}

// --------------------------------------------------------------------------------------------------------------- seeds

/// What follows from a seed.
struct Scenario {
    seed: u64,
    program: Program,
    sites: Sites,
    /// Between sites, if there are several.
    link: Option<WanLink>,
    faults: Vec<Fault>,
}

#[derive(Clone, Copy)]
enum Program {
    /// So small that all that matters is what is stolen.
    Fib,
    /// Shared values, and a picture.
    Raytracer,
    /// Deep, and unforeseeable.
    Uts,
    /// A bound that all share.
    Tsp,
    /// Large arguments that are lent, `&mut`.
    Quicksort,
    Qap,
    Knapsack,
}

impl Program {
    const ALL: [Program; 7] = [
        Program::Fib,
        Program::Raytracer,
        Program::Uts,
        Program::Tsp,
        Program::Quicksort,
        Program::Qap,
        Program::Knapsack,
    ];

    fn name(self) -> &'static str {
        match self {
            Program::Fib => "fib",
            Program::Raytracer => "raytracer",
            Program::Uts => "uts",
            Program::Tsp => "tsp",
            Program::Quicksort => "quicksort",
            Program::Qap => QAP.name,
            Program::Knapsack => KNAPSACK.name,
        }
    }

    /// Some seconds for two cores, however many nodes share them.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Program::Fib => &["44"],
            Program::Raytracer => &["--width", "800", "--height", "450", "--samples", "16"],
            Program::Uts => &["-t", "binomial", "-b", "24000", "-r", "42"],
            Program::Tsp => &["--random", "64", "--seed", "3", "--cold"],
            Program::Quicksort => &["20000000"],
            Program::Qap => QAP.arguments,
            Program::Knapsack => KNAPSACK.arguments,
        }
    }

    /// What stands on stdout once, and nothing but figures after it.
    fn answer(self) -> &'static str {
        match self {
            Program::Fib => "fib(44) = 701408733\n",
            Program::Raytracer => "picture.png 800x450, checksum ",
            Program::Uts => "custom tree: 27824369 nodes, depth 3102, 24349322 leaves",
            Program::Tsp => "cost 6109 (proved optimal",
            Program::Quicksort => "quicksort(20000000) in order, checksum 374a96419822445c\n",
            Program::Qap => QAP.answer,
            Program::Knapsack => KNAPSACK.answer,
        }
    }
}

/// Those to whom something happens: named ones, and so many more at most who are hit because they are master then.
#[derive(Clone, Default)]
struct Touched {
    named: BTreeSet<String>,
    masters: u32,
}

impl Touched {
    fn by<'a>(what: impl IntoIterator<Item = &'a What>, sites: &Sites) -> Touched {
        let mut touched = Touched::default();
        for what in what {
            touched.add(what, sites);
        }
        touched
    }

    fn add(&mut self, what: &What, sites: &Sites) {
        match what {
            What::Kill(who) | What::Stop(who, _) | What::Drain(who) => match who {
                Who::Master => self.masters += 1,
                Who::Named(name) => match sites.0.iter().find(|site| site.name == *name) {
                    Some(site) => self.named.extend(nodes_of(site)),
                    None => _ = self.named.insert(name.clone()),
                },
            },
            What::KillAll | What::Join(_) | What::Partition(..) => {}
        }
    }

    /// How many they can be.
    fn worst(&self) -> u32 {
        self.named.len() as u32 + self.masters
    }
}

fn nodes_of(site: &Site) -> impl Iterator<Item = String> {
    (0..site.nodes).map(|number| format!("{}-{number}", site.name))
}

impl Scenario {
    fn of(seed: u64) -> Scenario {
        let mut random = Random(seed);
        // In turn, so that any range has all.
        let program = Program::ALL[(seed % Program::ALL.len() as u64) as usize];
        let count = random.within(1..4) as usize;
        let mut sites = Sites(
            ["a", "b", "c"][..count]
                .iter()
                .map(|name| Site {
                    name: (*name).into(),
                    nodes: 1,
                })
                .collect(),
        );
        for _ in count as u64..random.within(3..7) {
            sites.0[random.below(count)].nodes += 1;
        }
        let link = random.one_in(2).then(|| WanLink {
            rtt: Duration::from_millis(20),
            ..WanLink::default()
        });
        let mut scenario = Scenario {
            seed,
            program,
            sites,
            link: link.filter(|_| count > 1),
            faults: Vec::new(),
        };
        let mut moments: Vec<u64> = (0..random.within(1..5))
            .map(|_| random.within(MOMENTS_MS))
            .collect();
        moments.sort_unstable();
        for at in moments {
            let at = Duration::from_millis(at);
            // Not all can happen in any pool.
            while !scenario.add(at, &mut random) {}
        }
        scenario
    }

    fn kinds(&self) -> impl Iterator<Item = &What> {
        self.faults.iter().map(|fault| &fault.what)
    }

    /// One more fault at that moment. False if it would leave nobody alone.
    fn add(&mut self, at: Duration, random: &mut Random) -> bool {
        // Mostly one that is not gone already.
        let gone: Vec<What> = (self.kinds())
            .filter(|what| matches!(what, What::Kill(_) | What::Drain(_)))
            .cloned()
            .collect();
        let node = |random: &mut Random, others: &[What]| {
            let mut gone = gone.clone();
            gone.extend_from_slice(others);
            let gone = Touched::by(&gone, &self.sites).named;
            let all = self.sites.0.iter().flat_map(nodes_of);
            let all: Vec<String> = all.collect();
            let any = random.one_in(8) || gone.len() == all.len();
            let of: Vec<String> = (all.into_iter())
                .filter(|node| any || !gone.contains(node))
                .collect();
            Who::Named(of[random.below(of.len())].clone())
        };
        let site = |random: &mut Random| {
            let site = &self.sites.0[random.below(self.sites.0.len())];
            site.name.clone()
        };
        let somebody = |random: &mut Random| match random.one_in(4) {
            true => Who::Master,
            false => node(random, &[]),
        };
        let later = |ms: u64| Some(at + Duration::from_millis(ms));
        let what = match random.below(16) {
            0..3 => vec![What::Kill(node(random, &[]))],
            3..5 => vec![What::Kill(Who::Master)],
            5 => {
                let first = What::Kill(node(random, &[]));
                let second = What::Kill(node(random, std::slice::from_ref(&first)));
                vec![first, second]
            }
            6 => vec![What::Kill(Who::Named(site(random)))],
            7..9 => vec![What::Stop(
                somebody(random),
                later(random.within(300..1000)),
            )],
            9 => vec![What::Stop(
                somebody(random),
                later(random.within(8000..12_000)),
            )],
            10..12 => vec![What::Drain(somebody(random))],
            12 => vec![What::Drain(Who::Named(site(random)))],
            13 => {
                let (a, b) = (site(random), site(random));
                if a == b {
                    return false;
                }
                vec![What::Partition(
                    a,
                    b,
                    later(random.within(500..2000)),
                    Cut::Silence,
                )]
            }
            // A new site now and then.
            _ if random.one_in(3) => vec![What::Join("d".into())],
            _ => vec![What::Join(site(random))],
        };
        let touched = Touched::by(self.kinds().chain(&what), &self.sites);
        if touched.worst() >= self.sites.nodes() {
            return false;
        }
        self.faults
            .extend(what.into_iter().map(|what| Fault { at, what }));
        true
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| items.join(", ");
        let sites = (self.sites.0.iter()).map(|site| format!("{}:{}", site.name, site.nodes));
        write!(
            f,
            "seed {}, {} on {}{}, {}",
            self.seed,
            self.program.name(),
            list(sites.collect()).replace(", ", ","),
            if self.link.is_some() { " (far)" } else { "" },
            list(self.faults.iter().map(Fault::to_string).collect()),
        )
    }
}

// ---------------------------------------------------------------------------------------------------------------- runs

struct Run {
    seconds: f64,
    verdict: Verdict,
    /// Everything there is to know.
    story: String,
}

enum Verdict {
    /// All is well, and everything happened before the root job was done.
    Counted,
    /// All is well, but this did not.
    TooLate(String),
    /// What is not well.
    Wrong(Vec<String>),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Counted => f.write_str("counted"),
            Verdict::TooLate(what) => write!(f, "not counted: {what}"),
            Verdict::Wrong(complaints) => write!(f, "WRONG: {}", complaints.join("; ")),
        }
    }
}

impl Scenario {
    fn run(&self) -> Run {
        let folder = tempfile::tempdir().expect("a directory");
        let picture = folder.path().join("picture.png");
        // Whatever nodes put aside is here, and must be gone.
        let scratch = folder.path().join("scratch");
        std::fs::create_dir(&scratch).expect("a directory");

        let began = Instant::now();
        let mut pool = start(self.plan(&picture, &scratch));
        let home = pool.credential();
        let home = home.parent().expect("it is in a directory").to_owned();
        let ended = pool.wait_for(LIMIT, |_| false).expect("readable") || pool.has_ended();
        let seconds = began.elapsed().as_secs_f64();
        let processes = processes(&pool);
        let mut complaints = Vec::new();
        if !ended {
            complaints.push(format!("no end within {} s", LIMIT.as_secs()));
            pool.stopper().stop(15);
        }
        let outcome = pool.wait().expect("readable");

        if ended {
            self.judge(&outcome, &mut complaints);
            if matches!(self.program, Program::Raytracer) && outcome.code == 0 {
                let drawn = std::fs::read(&picture).unwrap_or_default();
                if drawn != *undisturbed_picture() {
                    complaints.push("the picture is another".into());
                }
            }
        }
        for (name, group) in processes {
            let group = rustix::process::Pid::from_raw(group as i32).expect("not 0");
            if rustix::process::test_kill_process_group(group).is_ok() {
                complaints.push(format!("a process of {name} is left"));
            }
        }
        if home.exists() {
            complaints.push(format!("{} is left", home.display()));
        }
        for left in std::fs::read_dir(&scratch).expect("readable").flatten() {
            complaints.push(format!("{} is left", left.path().display()));
        }
        let verdict = match self.too_late(&outcome) {
            _ if !complaints.is_empty() => Verdict::Wrong(complaints),
            Some(what) => Verdict::TooLate(what),
            None => Verdict::Counted,
        };
        Run {
            seconds,
            verdict,
            story: story(&outcome),
        }
    }

    fn plan(&self, picture: &Path, scratch: &Path) -> Plan {
        let mut program = vec![example(self.program.name()).into_os_string()];
        program.extend(self.program.arguments().iter().map(Into::into));
        if matches!(self.program, Program::Raytracer) {
            program.extend(["--out".into(), picture.into()]);
        }
        Plan {
            threads: Some(1),
            wan: self.link,
            faults: self.faults.clone(),
            env: [
                ("TMPDIR", scratch.as_os_str().to_owned()),
                // What is handed over may run for as long as the whole program.
                ("SATIN_GRACE", "1".into()),
                // Nobody heals what was killed: the wait for it would only make the runs longer.
                ("SATIN_PARTITION_WAIT", "4".into()),
                // A job of ours may be near every one of the deaths.
                ("SATIN_MAX_CRASHES", "20".into()),
            ]
            .map(|(name, value)| (name.into(), value))
            .into(),
            output: Output::Keep,
            ..Plan::new(program, self.sites.clone())
        }
    }

    /// What is not well about a pool that has ended.
    fn judge(&self, outcome: &PoolOutcome, complaints: &mut Vec<String>) {
        if outcome.code != 0 {
            complaints.push(format!("exit code {}", outcome.code));
        }
        match outcome.stdout.matches(self.program.answer()).count() {
            0 => complaints.push("no right answer".into()),
            1 => {}
            times => complaints.push(format!("the answer was told {times} times")),
        }
        let mut fates = Fates::of(&outcome.stderr);
        fates.stopped_too_long(self.root_done(&outcome.records));
        for (name, status) in &outcome.nodes {
            if !status.success() && !fates.dies(name) {
                complaints.push(format!("{name} ended with {status}"));
            }
            let line = format!("satin: {name} does not end though the pool has");
            if outcome.stderr.contains(&line) && !fates.dies(name) {
                complaints.push(format!("stderr says {line:?}"));
            }
        }
        for bad in ["panicked", "too early", "nobody is left", "no node joins"] {
            if outcome.stderr.contains(bad) {
                complaints.push(format!("stderr says {bad:?}"));
            }
        }
    }

    /// What happened only after the root job was done, if anything.
    fn too_late(&self, outcome: &PoolOutcome) -> Option<String> {
        if let Some((_, what)) = outcome.stderr.split_once("too late to happen") {
            return Some(format!("too late{}", what.trim_end()));
        }
        let Some(done) = self.root_done(&outcome.records) else {
            return Some("no root job was done".into());
        };
        let happened = Fates::happened(&outcome.stderr);
        if happened.is_empty() {
            return Some("nothing happened".into());
        }
        // Times are told in tenths of a second.
        let late = happened.into_iter().find(|(at, _)| at + 0.05 > done);
        late.map(|(at, what)| {
            format!("{what} at {at:.1} s, the root job was done after {done:.2} s")
        })
    }

    /// When that was, in seconds from the moment when all nodes of the plan were in, which is when the clock of the faults
    /// begins. Of a root job that more than one master had done, the first time.
    fn root_done(&self, records: &[Record]) -> Option<f64> {
        let is_in = |event: &Event| matches!(event, Event::Joined { .. } | Event::Master { .. });
        let since = |name: String| {
            let first = |record: &&Record| record.name == name && is_in(&record.event);
            records.iter().find(first).map(|record| record.at_ms)
        };
        let planned = self.sites.0.iter().flat_map(nodes_of);
        let all_in = planned.map(since).collect::<Option<Vec<u64>>>()?;
        let all_in = all_in.into_iter().max()?;
        let done = records.iter().filter_map(|record| match record.event {
            Event::RootFinished {
                root: RootTag { number, .. },
            } => Some((number, record.at_ms)),
            _ => None,
        });
        let (_, at) = done.min_by_key(|(number, at)| (std::cmp::Reverse(*number), *at))?;
        Some((at as f64 - all_in as f64) / 1000.0)
    }
}

/// What became of nodes, in the words of `satin run`.
#[derive(Default)]
struct Fates<'a> {
    killed: BTreeSet<&'a str>,
    /// Those that were never continued are killed with the pool.
    stopped: BTreeSet<&'a str>,
    /// When the others were continued.
    continued: BTreeMap<&'a str, f64>,
    /// Those that joined when nobody was left to let them in, and were told to go.
    late: BTreeSet<&'a str>,
    /// Those that were asked to leave before they were in, and did.
    early: BTreeSet<&'a str>,
}

impl Fates<'_> {
    fn of(stderr: &str) -> Fates<'_> {
        let mut fates = Fates::default();
        for (at, words) in told(stderr) {
            let mut words = words.split(' ');
            match (words.next(), words.next()) {
                (Some("killed"), Some(name)) => _ = fates.killed.insert(name),
                (Some("stopped"), Some(name)) => _ = fates.stopped.insert(name),
                (Some("continued"), Some(name)) => {
                    fates.stopped.remove(name);
                    fates.continued.insert(name, at);
                }
                (Some(name), Some("came")) => _ = fates.late.insert(name),
                (Some(name), Some("left")) => _ = fates.early.insert(name),
                _ => {}
            }
        }
        fates
    }

    /// Those that were continued when the others had gone already are a pool of their own, and are told to go.
    fn stopped_too_long(&mut self, root_done: Option<f64>) {
        let late = |(_, at): &(&&str, &f64)| root_done.is_some_and(|done| **at + 0.05 > done);
        let late = self.continued.iter().filter(late).map(|(name, _)| *name);
        self.late.extend(late);
    }

    fn dies(&self, name: &str) -> bool {
        [&self.killed, &self.stopped, &self.late, &self.early]
            .iter()
            .any(|names| names.contains(name))
    }

    /// What we did, and when.
    fn happened(stderr: &str) -> Vec<(f64, &str)> {
        let ours = |words: &str| {
            let begins = ["killed ", "stopped ", "asked ", "started "];
            begins.iter().any(|begin| words.starts_with(begin))
                || words.ends_with(" do not reach each other")
        };
        told(stderr).filter(|(_, words)| ours(words)).collect()
    }
}

/// Lines with a time: `satin: 2.5 s: killed a-1`.
fn told(stderr: &str) -> impl Iterator<Item = (f64, &str)> {
    stderr.lines().filter_map(|line| {
        let (time, words) = line.strip_prefix("satin: ")?.split_once(" s: ")?;
        Some((time.parse().ok()?, words))
    })
}

/// The process groups of all nodes that were ever started.
fn processes(pool: &LocalPool) -> BTreeMap<String, u32> {
    let names = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|site| (0..16).map(move |number| format!("{site}-{number}")));
    names
        .filter_map(|name| pool.process(&name).map(|process| (name, process)))
        .collect()
}

/// As one process draws it, alone.
fn undisturbed_picture() -> &'static Vec<u8> {
    static PICTURE: OnceLock<Vec<u8>> = OnceLock::new();
    PICTURE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a directory");
        let picture = folder.path().join("picture.png");
        let alone = Command::new(example("raytracer"))
            .args(Program::Raytracer.arguments())
            .arg("--out")
            .arg(&picture)
            .output()
            .expect("it starts");
        assert!(alone.status.success(), "{alone:?}");
        std::fs::read(&picture).expect("a picture")
    })
}
