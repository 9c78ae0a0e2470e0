//! Random losses: a program, a store, pools and the moments at which all their nodes are killed follow from a seed. In the
//! end the answer must be right, and nothing may be left in the store.
//!
//! `cargo test` runs a few seeds. `SATIN_LOSSES=FROM..TO` names others (TO is not among them), which are told line by line:
//!
//! ```sh
//! SATIN_LOSSES=0..100 cargo test -p satin-cli --test losses random
//! ```
//!
//! A run *counts* only if a later start went on with what an earlier one had stored.

use std::{
    fmt::{self, Write as _},
    fs,
    net::Ipv4Addr,
    ops::Range,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use satin_cli::pool::{ALL_KILLED, Plan, PoolOutcome};

use crate::{
    common::{KNAPSACK, QAP, Random, SeedSeries, StoreProcess, example, faults, say, start, story},
    kept::{GOES_ON, Home},
    programs::{LEAF, Program},
};

const SERIES: SeedSeries = SeedSeries {
    variable: "SATIN_LOSSES",
    test: "losses",
};

/// What `cargo test` runs: all programs of this executable and some examples, on directories and on servers.
const SEEDS: [u64; 7] = [0, 1, 8, 14, 15, 18, 23];

/// A start that takes so long hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Nodes write no more often.
const SHORTEST_PERIOD: Duration = Duration::from_millis(50);

/// All nodes are killed within so long after all are in, unless the program is likely to be done by then.
const MOMENTS_MS: Range<u64> = 50..1500;

#[test]
fn random_losses_change_no_answer() {
    let seeds = SERIES.seeds(&SEEDS);
    let began = Instant::now();
    let (mut counted, mut wrong) = (0, Vec::new());
    for seed in &seeds {
        let scenario = Scenario::of(*seed);
        let series = scenario.run();
        say(&format!("{scenario}: {series}\n"));
        if !series.complaints.is_empty() {
            say(&format!("{}\n{}\n", series.story, SERIES.again(*seed)));
            wrong.push(*seed);
        } else if series.resumed > 0 {
            counted += 1;
        }
    }
    let runs = seeds.len();
    SERIES.sum_up(began, runs, counted, &wrong);
    assert!(
        2 * counted >= runs,
        "of {runs} runs, only {counted} were resumed: the programs are too small for this machine"
    );
}

// --------------------------------------------------------------------------------------------------------------- seeds

/// What follows from a seed.
struct Scenario {
    seed: u64,
    what: What,
    /// Seconds between two writes.
    every: &'static str,
    /// The nodes of each start, and when they are all killed; not those of the last.
    starts: Vec<(u64, Option<u64>)>,
    /// One of three servers is killed so long after that start.
    servers: Option<LostServer>,
}

struct LostServer {
    server: usize,
    start: usize,
    at_ms: u64,
}

enum What {
    Own(Program),
    Example(&'static Example),
}

struct Example {
    name: &'static str,
    arguments: &'static [&'static str],
    /// The time for which a fast machine of two cores is busy.
    least_ms: u64,
    /// Stands on stdout once.
    answer: &'static str,
}

const EXAMPLES: [Example; 8] = [
    Example {
        name: "fib",
        arguments: &["43"],
        least_ms: 1500,
        answer: "fib(43) = 433494437\n",
    },
    Example {
        name: "nqueens",
        arguments: &["15"],
        least_ms: 1500,
        answer: "nqueens(15) = 2279184 (ok)\n",
    },
    Example {
        name: "uts",
        arguments: &["--tree", "T3"],
        least_ms: 600,
        answer: "T3: 4112897 nodes, depth 1572, 3599034 leaves (ok)\n",
    },
    Example {
        name: "quicksort",
        arguments: &["20000000"],
        least_ms: 600,
        answer: "quicksort(20000000) in order, checksum 374a96419822445c\n",
    },
    Example {
        name: "tsp",
        arguments: &["--random", "64", "--seed", "3", "--cold"],
        least_ms: 1500,
        answer: "cost 6109 (proved optimal",
    },
    Example {
        name: QAP.name,
        arguments: QAP.arguments,
        least_ms: 1500,
        answer: QAP.answer,
    },
    Example {
        name: KNAPSACK.name,
        arguments: KNAPSACK.arguments,
        least_ms: 1500,
        answer: KNAPSACK.answer,
    },
    Example {
        name: RAYTRACER,
        arguments: &["--width", "480", "--height", "270", "--samples", "16"],
        least_ms: 1000,
        answer: "picture.png 480x270, checksum ",
    },
];

const RAYTRACER: &str = "raytracer";

impl Scenario {
    fn of(seed: u64) -> Scenario {
        let mut random = Random(seed);
        // In turn, so that any range has all.
        let own = Program::ALL.len();
        let what = match (seed % (own + EXAMPLES.len()) as u64) as usize {
            program if program < own => What::Own(Program::ALL[program]),
            example => What::Example(&EXAMPLES[example - own]),
        };
        let nodes = random.within(1..4);
        let every = ["0", "0.05", "0.25"][random.below(3)];
        let most = match &what {
            What::Own(program) => program.least_ms() / nodes,
            What::Example(example) => example.least_ms,
        };
        let first = MOMENTS_MS.start..MOMENTS_MS.end.min(most);
        let mut starts = vec![(nodes, Some(random.within(first.clone())))];
        for _ in 0..random.below(3) {
            let nodes = random.within(1..2 * nodes + 1);
            // Less is left to do.
            let later = first.start..first.end.midpoint(first.start);
            starts.push((nodes, Some(random.within(later))));
        }
        starts.push((random.within(1..2 * nodes + 1), None));
        let servers = random.one_in(3).then(|| LostServer {
            server: random.below(3),
            start: random.below(starts.len()),
            at_ms: random.within(0..most.min(MOMENTS_MS.end)),
        });
        Scenario {
            seed,
            what,
            every,
            starts,
            servers,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.what {
            What::Own(program) => program.name,
            What::Example(example) => example.name,
        };
        write!(f, "seed {}, {name}, every {} s", self.seed, self.every)?;
        for (nodes, killed) in &self.starts {
            write!(f, ", {nodes} nodes")?;
            if let Some(at) = killed {
                write!(f, " killed at {:.2} s", *at as f64 / 1000.0)?;
            }
        }
        if let Some(lost) = &self.servers {
            let at = lost.at_ms as f64 / 1000.0;
            write!(
                f,
                ", server {} killed in start {} at {at:.2} s",
                lost.server, lost.start
            )?;
        }
        Ok(())
    }
}

// ---------------------------------------------------------------------------------------------------------------- runs

/// What became of a scenario.
#[derive(Default)]
struct Series {
    seconds: f64,
    /// Starts that found results of earlier ones.
    resumed: usize,
    /// What the store had at each of them, in its own words.
    found: Vec<String>,
    /// The leaves that were done, and those that any run does.
    leaves: Option<(u64, u64)>,
    complaints: Vec<String>,
    /// Everything there is to know.
    story: String,
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s, ", self.seconds)?;
        match (&self.complaints[..], self.resumed) {
            ([], 0) => write!(f, "not counted: nothing was resumed")?,
            ([], _) => write!(f, "counted")?,
            (complaints, _) => write!(f, "WRONG: {}", complaints.join("; "))?,
        }
        for found in &self.found {
            write!(f, "; found {found}")?;
        }
        if let Some((done, needed)) = self.leaves {
            let again = done.saturating_sub(needed);
            write!(f, "; {again} of {needed} leaves done again")?;
        }
        Ok(())
    }
}

impl Scenario {
    fn run(&self) -> Series {
        let began = Instant::now();
        let mut series = Series::default();
        let mut home = Home::new();
        let mut servers = Vec::new();
        if self.servers.is_some() {
            servers = three_servers(&home);
            home = home.on_servers(url_of(&servers));
        }
        let mut servers: Vec<Option<StoreProcess>> = servers.into_iter().map(Some).collect();
        // Seconds of all workers until they were killed, and those of them that may be done again.
        let (mut worked, mut lost_most) = (0.0, 0.0);
        for (number, (nodes, killed)) in self.starts.iter().enumerate() {
            let lost = self.servers.as_ref().filter(|lost| lost.start == number);
            let plan = self.plan(&home, *nodes, *killed);
            let Some(outcome) = run(plan, lost, &mut servers, &mut series) else {
                break;
            };
            let _ = write!(series.story, "=== start {number}\n{}", story(&outcome));
            note_found(&outcome, worked, &mut series);
            let was_killed = outcome.stderr.contains(" s: killed ");
            if outcome.code != ALL_KILLED {
                self.judge_answer(&outcome, &mut series.complaints);
            } else if outcome.stderr.contains("panicked") {
                series.complaints.push("a panic before the kill".into());
            }
            if !was_killed {
                self.judge_end(&home, &outcome, &mut series.complaints);
                break;
            }
            // Perhaps after `main` was over. If the store has been told, the next start would be another run, even if what is stored of this one could
            // not be removed any more; if not, this one is resumed once more.
            if outcome.code != ALL_KILLED && !home.has_unfinished_run() {
                break;
            }
            let had = (nodes * killed.unwrap_or_default()) as f64 / 1000.0;
            worked += had;
            lost_most += self.most_lost(*nodes).as_secs_f64().min(had);
        }
        if let What::Own(program) = &self.what {
            let leaves = program.leaves.map(|needed| (home.leaves(), needed));
            series.leaves = leaves;
            if leaves.is_some_and(|(done, needed)| done < needed) {
                series
                    .complaints
                    .push(format!("only {leaves:?} leaves done"));
            }
            // A server that dies under a write holds that up, and with it all that comes after.
            let most = (lost_most / LEAF.as_secs_f64()) as u64;
            if self.servers.is_none() && leaves.is_some_and(|(done, needed)| done > needed + most) {
                series.complaints.push(format!(
                    "{leaves:?} leaves done, and only {most} may be done again"
                ));
            }
        }
        series.seconds = began.elapsed().as_secs_f64();
        series
    }

    /// The time of its workers that is done again, at most, when so many nodes are killed: for each the leaf under way and what it
    /// has done since it wrote last; and a second.
    fn most_lost(&self, nodes: u64) -> Duration {
        let every: f64 = self.every.parse().expect("a number");
        let period = Duration::from_secs_f64(every).max(SHORTEST_PERIOD);
        (period + LEAF) * nodes as u32 + Duration::from_secs(1)
    }

    fn plan(&self, home: &Home, nodes: u64, killed: Option<u64>) -> Plan {
        let sites = match nodes {
            1 => "a:1".to_owned(),
            _ => format!("a:{},b:{}", nodes.div_ceil(2), nodes / 2),
        };
        let mut plan = match &self.what {
            What::Own(program) => home.plan(*program, &sites),
            What::Example(of) => {
                let mut command = vec![example(of.name).into_os_string()];
                command.extend(of.arguments.iter().map(Into::into));
                if of.name == RAYTRACER {
                    command.extend(["--out".into(), home.path("picture.png").into()]);
                }
                home.plan_of(command, &sites)
            }
        };
        plan.env
            .push(("SATIN_STORE_EVERY".into(), self.every.into()));
        if let Some(at) = killed {
            plan.faults = faults(&[&format!("kill all@{at}ms")]);
        }
        plan
    }

    /// `main` is over.
    fn judge_answer(&self, outcome: &PoolOutcome, complaints: &mut Vec<String>) {
        if outcome.code != 0 {
            complaints.push(format!("exit code {}", outcome.code));
        }
        let answer = match &self.what {
            What::Own(program) => program.answer(),
            What::Example(example) => example.answer.into(),
        };
        match outcome.stdout.matches(&answer).count() {
            1 => {}
            times => complaints.push(format!("the right answer was told {times} times")),
        }
        if outcome.stderr.contains("panicked") {
            complaints.push("a panic".into());
        }
    }

    /// The pool has come to an end of its own.
    fn judge_end(&self, home: &Home, outcome: &PoolOutcome, complaints: &mut Vec<String>) {
        for (name, status) in &outcome.nodes {
            if !status.success() {
                complaints.push(format!("{name} ended with {status}"));
            }
        }
        let mut bad = vec![
            "too early",
            "nobody is left",
            "stays in the store",
            "begins a new run",
        ];
        if self.servers.is_none() {
            // A dead server may come back with what it has: the note that the run is over stays.
            bad.push("could be removed from the store");
        }
        for bad in bad {
            if outcome.stderr.contains(bad) {
                complaints.push(format!("stderr says {bad:?}"));
            }
        }
        let (runs, remark) = home.list();
        if !runs.is_empty() || !remark.contains("there are no runs in ") {
            complaints.push(format!("the store is not empty: {runs}{remark}"));
        }
        if let What::Example(of) = &self.what
            && of.name == RAYTRACER
            && fs::read(home.path("picture.png")).ok() != Some(undisturbed_picture(of.arguments))
        {
            complaints.push("the picture is another".into());
        }
    }
}

/// Runs a pool to its end, and kills a server on the way. `None` if there is no end.
fn run(
    plan: Plan,
    lost: Option<&LostServer>,
    servers: &mut [Option<StoreProcess>],
    series: &mut Series,
) -> Option<PoolOutcome> {
    let mut pool = start(plan);
    if let Some(lost) = lost {
        let at = Duration::from_millis(lost.at_ms);
        let _ = pool.wait_for(at, |_| false).expect("readable");
        servers[lost.server] = None;
    }
    let ended = pool.wait_for(LIMIT, |_| false).expect("readable") || pool.has_ended();
    if !ended {
        series
            .complaints
            .push(format!("no end within {} s", LIMIT.as_secs()));
        pool.stopper().stop(15);
    }
    let outcome = pool.wait().expect("readable");
    if !ended {
        series.story += &story(&outcome);
        return None;
    }
    Some(outcome)
}

/// `worked`: the seconds that workers have had so far.
fn note_found(outcome: &PoolOutcome, worked: f64, series: &mut Series) {
    let said = outcome.stderr.lines().find(|line| line.contains(GOES_ON));
    let found = said.and_then(|line| line.split_once("): "));
    if let Some((_, found)) = found {
        series.resumed += usize::from(!found.starts_with("0 results"));
        let found = found.split(" are in the store").next().unwrap_or(found);
        series.found.push(format!("{found} after {worked:.1} s"));
    }
}

/// Three processes, with their files in folders of that home.
pub fn three_servers(home: &Home) -> Vec<StoreProcess> {
    let server = |name: &str| {
        let folder = home.path(name);
        fs::create_dir(&folder).expect("made");
        fs::copy(home.credential(), folder.join("pool.pem")).expect("copied");
        StoreProcess::start(&folder, (Ipv4Addr::LOCALHOST, 0).into()).expect("it listens")
    };
    ["s0", "s1", "s2"].map(server).into()
}

/// The store that these servers are together, with two copies of each log.
pub fn url_of(servers: &[StoreProcess]) -> String {
    let addrs: Vec<String> = servers
        .iter()
        .map(|server| server.addr.to_string())
        .collect();
    format!("satin://{}?copies=2", addrs.join(","))
}

/// As one process draws it, alone.
pub fn undisturbed_picture(arguments: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a directory");
    let picture = folder.path().join("picture.png");
    let draw = |out: &Path| {
        let mut command = Command::new(example(RAYTRACER));
        command.args(arguments).arg("--out").arg(out);
        command.output().expect("it starts")
    };
    let alone = draw(&picture);
    assert!(alone.status.success(), "{alone:?}");
    fs::read(&picture).expect("a picture")
}
