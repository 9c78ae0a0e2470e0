//! `satin-sim`: how would a pool of that size do, and does it stand what may happen to it?

use std::{
    collections::BTreeSet, fmt::Write as _, fs, ops::Range, path::PathBuf, process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use satin_runtime::node::{Policy, Rule, cluster::Shape, expiry::Expiry};
use satin_sim::{
    Report, Settings,
    classes::{About, CLASSES, Class, Standing},
    dag::command::Dag,
    faults::FaultKind,
    mutations::{Found, Mutations},
    parse::{self, Left},
    run,
    seeds::{self, Summary},
    sites,
    stories::{STORIES, Story},
    terminal::{StatusLine, clear_line, say},
    trial::{self, Options, Trial},
};
use serde::Serialize;
use strum::VariantArray;

/// Thousands of satin's nodes in one deterministic simulation.
///
/// Without --seeds: a pool of the given size computes a tree, and the figures are printed.
///
/// With --seeds: a pool, a program and faults (crashes, pauses, drains, joins, partitions, broken links) follow from each
/// seed; after every step the invariants of the design are checked. The exit code is 1 if an invariant was violated.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, after_help = more_help())]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    pool: Pool,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    faults: Faults,
    #[command(flatten)]
    output: Output,
}

const EXAMPLES: &str = "Examples:
  satin-sim --nodes 1000 --sites 10 --rtt 30ms     # how would such a pool do?
  satin-sim --nodes 16 --shape lu:9,9 --leaf 50ms  # and with the tasks of a flow?
  satin-sim --seeds 0..5000 --jobs 4               # does it stand faults?
  satin-sim --seed 4711 --trace                    # what happened in that seed?
  satin-sim --seed 4711 --trace --without flushed  # and without one of the rules?
  satin-sim --seeds 0..5000 --only pairs,bursts    # these classes of faults alone
  satin-sim --seeds 0..5000 --always cuts          # and this one in each seed
  satin-sim mutations --seeds 20000                # is every rule needed?
  satin-sim story poison --seeds 100               # how does that story end?
  satin-sim sites                                  # policies side by side
  satin-sim dag                                    # task graphs on processors that vary and die";

fn more_help() -> String {
    let mut text = String::from("Classes of faults (* is not tried without --with):\n");
    for About {
        name,
        what,
        standing,
        ..
    } in CLASSES
    {
        let star = if standing == Standing::Open { '*' } else { ' ' };
        let _ = writeln!(text, "  {star} {name:<11} {what}");
    }
    text.push_str("\nStories (* does not end well yet):\n");
    for story in STORIES {
        let star = if story.standing == Standing::Open {
            '*'
        } else {
            ' '
        };
        let _ = writeln!(text, "  {star} {:<11} {}", story.name, story.what);
    }
    text.push('\n');
    text.push_str(EXAMPLES);
    text
}

#[derive(Subcommand)]
enum Command {
    Dag(Dag),
    /// The experiment of `bench -- sites`: policies and round trips side by side.
    Sites {
        /// Number of seeds to average over.
        #[arg(long, default_value_t = 5)]
        runs: u64,
        #[command(flatten)]
        pool: Pool,
        #[command(flatten)]
        seed: Seed,
        #[command(flatten)]
        output: Output,
    },
    /// Tells a story with the usual settings and real time scales, over many seeds. The exit code is 1 if it goes wrong.
    Story {
        /// Names of stories; all stories if none is named.
        #[arg(value_parser = parse::story, value_name = "NAME")]
        names: Vec<Story>,
        /// Number of seeds, or a range of them.
        #[arg(long, value_parser = parse::seeds, default_value = "20")]
        seeds: Range<u64>,
    },
    /// Leaves one rule of repair out at a time: the seeds must find out. The exit code is 1 if they do not.
    Mutations {
        /// Number of seeds, or a range of them.
        #[arg(long, value_parser = parse::seeds, default_value = "2000")]
        seeds: Range<u64>,
        /// Number of threads.
        #[arg(long, default_value_t = seeds::threads())]
        jobs: u32,
        /// Only these rules.
        #[arg(long, value_parser = parse::named::<Rule>, value_name = "RULE,..", value_delimiter = ',')]
        without: Vec<Rule>,
        /// Spare the master from faults, and cut no node off.
        #[arg(long)]
        spare_master: bool,
    },
}

#[derive(Args)]
struct Faults {
    /// Try these seeds (A..B is without B).
    #[arg(long, value_parser = parse::seeds, value_name = "A..B", conflicts_with_all = ["Pool", "Seed", "Output", "trace"])]
    seeds: Option<Range<u64>>,
    /// Number of threads.
    #[arg(long, default_value_t = seeds::threads(), requires = "seeds")]
    jobs: u32,
    /// Print also how often each time of the protocol ran out.
    #[arg(long, requires = "seeds")]
    coverage: bool,
    /// Try the seed given by --seed, and print every event.
    #[arg(long, requires = "Seed", conflicts_with_all = ["Pool", "Output"])]
    trace: bool,
    /// Leave out rules of repair, or classes of faults.
    #[arg(long, value_parser = parse::left, value_name = "NAME,..", value_delimiter = ',', conflicts_with = "Pool")]
    without: Vec<Left>,
    /// Try these classes of faults too.
    #[arg(long, value_parser = parse::class, value_name = "CLASS,..", value_delimiter = ',', conflicts_with_all = ["Pool", "only"])]
    with: Vec<Class>,
    /// Only these classes, of all.
    #[arg(long, value_parser = parse::class, value_name = "CLASS,..", value_delimiter = ',', conflicts_with = "Pool")]
    only: Vec<Class>,
    /// These classes in each seed.
    #[arg(long, value_parser = parse::class, value_name = "CLASS,..", value_delimiter = ',', conflicts_with = "Pool")]
    always: Vec<Class>,
    /// Spare the master from faults, and cut no node off.
    #[arg(long, conflicts_with = "Pool")]
    spare_master: bool,
}

impl Faults {
    fn options(&self) -> Options {
        let mut without = BTreeSet::new();
        let mut classes = match self.only.is_empty() {
            true => Class::usual(),
            false => self.only.iter().copied().collect(),
        };
        let always: BTreeSet<Class> = self.always.iter().copied().collect();
        classes.extend(self.with.iter().chain(&always));
        for left in &self.without {
            match left {
                Left::Rule(rule) => without.insert(*rule),
                Left::Class(class) => classes.remove(class),
            };
        }
        Options {
            without,
            classes,
            always,
            spare_master: self.spare_master,
            trace: self.trace,
        }
    }
}

/// The arguments that lead to these options.
fn arguments(options: &Options) -> String {
    let rules = options.without.iter().copied().map(<&str>::from);
    let usual = Class::usual();
    let missing = usual.difference(&options.classes).map(|class| class.name());
    let more = options.classes.difference(&usual).map(|class| class.name());
    let mut text = String::new();
    for (flag, names) in [
        ("--without", rules.chain(missing).collect::<Vec<_>>()),
        ("--with", more.collect()),
        (
            "--always",
            options.always.iter().map(|class| class.name()).collect(),
        ),
    ] {
        if !names.is_empty() {
            let _ = write!(text, " {flag} {}", names.join(","));
        }
    }
    if options.spare_master {
        text.push_str(" --spare-master");
    }
    text
}

#[derive(Args)]
struct Seed {
    /// Seed of everything random: the same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Pool {
    /// Number of nodes, over all sites.
    #[arg(long, default_value_t = 16)]
    nodes: u32,
    /// Number of sites.
    #[arg(long, default_value_t = 4)]
    sites: u32,
    /// Number of workers of each node.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Round-trip time between sites.
    #[arg(long, value_parser = parse::duration, default_value = "30ms")]
    rtt: Duration,
    /// Round trip within a site.
    #[arg(long, value_parser = parse::duration, default_value = "200us")]
    near_rtt: Duration,
    /// Largest extra delay of a message between sites, each way.
    #[arg(long, value_parser = parse::duration, default_value = "0s")]
    jitter: Duration,
    /// Rate of each link between sites, in bytes a second; no limit if it is not given.
    #[arg(long)]
    rate: Option<u64>,
    /// Policy by which an idle node chooses whom to ask for work: crs, rs or mw.
    #[arg(long, value_parser = parse::named::<Policy>, default_value = "crs")]
    policy: Policy,
    /// Shape of the tree: knary:WIDTH,HEIGHT[,SERIAL], uts:BRANCHING,HEIGHT, flat:JOBS or random:WIDTH,HEIGHT[,RACES]; or a flow,
    /// flow:WIDTH,STEPS[,HEIGHT], of one form if it is called chains, wavefront, lu or dice.
    #[arg(long, value_parser = parse::shape, default_value = "knary:4,7")]
    shape: Shape,
    /// Time that a leaf takes.
    #[arg(long, value_parser = parse::duration, default_value = "10ms")]
    leaf: Duration,
    /// Time that an inner job takes before it spawns.
    #[arg(long, value_parser = parse::duration, default_value = "0s")]
    inner: Duration,
}

#[derive(Args)]
struct Output {
    /// Write the figures to this file too, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Pool {
    fn settings(&self, seed: &Seed) -> anyhow::Result<Settings> {
        anyhow::ensure!(
            self.sites > 0 && self.nodes >= self.sites && self.threads > 0,
            "every site needs a node, and every node a worker"
        );
        Ok(Settings {
            nodes: self.nodes,
            sites: self.sites,
            threads: self.threads,
            near: self.near_rtt,
            round_trip: self.rtt,
            jitter: self.jitter,
            rate: self.rate,
            policy: self.policy,
            shape: self.shape,
            leaf: self.leaf,
            inner: self.inner,
            seed: seed.seed,
            ..Settings::default()
        })
    }
}

impl Output {
    fn write(&self, figures: &impl Serialize) -> anyhow::Result<()> {
        let Some(file) = &self.json else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(figures)?;
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    match &cli.command {
        Some(Command::Dag(dag)) => return dag.run(),
        Some(Command::Sites {
            runs,
            pool,
            seed,
            output,
        }) => {
            let rows = sites::rows(&pool.settings(seed)?, (*runs).max(1));
            print_rows(&rows);
            output.write(&rows)?;
        }
        Some(Command::Story { names, seeds }) => return Ok(tell(names, seeds)),
        Some(Command::Mutations {
            seeds,
            jobs,
            without,
            spare_master,
        }) => return Ok(mutate(seeds, *jobs, without, *spare_master)),
        None => {
            let options = cli.faults.options();
            if let Some(seeds) = cli.faults.seeds.clone() {
                return Ok(try_seeds(seeds, &cli.faults));
            }
            if cli.faults.trace {
                return Ok(replay(cli.seed.seed, &options));
            }
            let report = run(&cli.pool.settings(&cli.seed)?);
            print_report(&report);
            cli.output.write(&report)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

// ---- faults

/// Silences panics of nodes: they are violations, and reported as such.
fn hush() {
    std::panic::set_hook(Box::new(|_| {}));
}

fn try_seeds(seeds: Range<u64>, faults: &Faults) -> ExitCode {
    hush();
    let options = &faults.options();
    let progress = progress(&seeds);
    let summary = seeds::run(seeds, faults.jobs, options, &progress);
    clear_line();
    print_summary(&summary);
    for trial in summary.violations.iter().take(5) {
        print_violation(trial, options);
    }
    if faults.coverage {
        print_coverage(&summary);
    }
    match summary.violated {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// How often each time of the protocol ran out.
fn print_coverage(summary: &Summary) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["time of the protocol", "ran out"]);
    for (limit, times) in Expiry::VARIANTS.iter().zip(summary.expired) {
        table.add_row([limit.to_string(), times.to_string()]);
    }
    say(&table);
}

fn tell(names: &[Story], seeds: &Range<u64>) -> ExitCode {
    let stories = if names.is_empty() {
        &STORIES[..]
    } else {
        names
    };
    let mut code = ExitCode::SUCCESS;
    for story in stories {
        say(&format!("{}: {}", story.name, story.what));
        let telling = (story.tell)(seeds.clone());
        say(&telling.figures);
        if telling.wrong.is_some() {
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// A line on stderr, now and then.
fn progress(seeds: &Range<u64>) -> impl Fn(&Summary) + Sync + use<> {
    let all = seeds.end - seeds.start;
    let line = StatusLine::new();
    move |summary: &Summary| {
        line.tell(|| {
            let rate = summary.seeds as f64 / summary.took.as_secs_f64();
            format!(
                "{} of {all} seeds, {} violations, {rate:.0} a second",
                summary.seeds, summary.violated
            )
        });
    }
}

fn print_violation(trial: &Trial, options: &Options) {
    let Some(violation) = &trial.violation else {
        return;
    };
    let arguments = arguments(options);
    let (seed, at) = (trial.seed, violation.at.as_secs_f64());
    let (invariant, sentence) = (violation.invariant, &violation.sentence);
    say(&format!(
        "seed {seed}: {invariant} at {at:.3} s: {sentence}\n  cargo run --release -p satin-sim -- --seed {seed} --trace{arguments}",
    ));
}

fn replay(seed: u64, options: &Options) -> ExitCode {
    let trial = trial::run(seed, options);
    match &trial.violation {
        None => {
            say(&format!("seed {seed}: nothing was violated"));
            ExitCode::SUCCESS
        }
        Some(_) => {
            print_violation(&trial, options);
            ExitCode::FAILURE
        }
    }
}

fn print_summary(summary: &Summary) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_string(), value]);
    };
    row("seeds", summary.seeds.to_string());
    row("violations", summary.violated.to_string());
    for (invariant, count) in &summary.of_each {
        row(&format!("  of {invariant}"), count.to_string());
    }
    for (kind, count) in FaultKind::VARIANTS.iter().zip(summary.faults) {
        row(&format!("  {kind}"), count.to_string());
    }
    let twice = summary.twice.as_secs_f64() / summary.needed.as_secs_f64().max(1e-9);
    row("work done twice", format!("{:.2} %", 100.0 * twice));
    row("jobs put back", summary.came_back.to_string());
    row("jobs done twice", summary.duplicates.to_string());
    row(
        "claims",
        format!("{}, {} withdrawn", summary.claims, summary.withdrawn),
    );
    row("results saved", summary.saved.to_string());
    row("nodes reborn", summary.reborn.to_string());
    row("masters chosen", summary.terms.to_string());
    row("several mains finished", summary.several_mains.to_string());
    for (invariant, (seeds, times)) in &summary.checked {
        let times = format!("in {seeds} seeds, {times} times");
        row(&format!("{invariant} checked"), times);
    }
    row("events simulated", summary.events.to_string());
    let seconds = summary.took.as_secs_f64();
    let each = 1e3 * seconds / summary.seeds.max(1) as f64;
    row("seconds", format!("{seconds:.1}, {each:.2} ms a seed"));
    say(&table);
}

fn mutate(seeds: &Range<u64>, jobs: u32, rules: &[Rule], spare_master: bool) -> ExitCode {
    hush();
    let options = Options {
        spare_master,
        ..Options::default()
    };
    let rules = if rules.is_empty() {
        Rule::VARIANTS
    } else {
        rules
    };
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["without", "found by", "after seeds", "how"]);
    let mut missed = 0;
    let mut mutations = Mutations::new(seeds.clone(), jobs, options);
    for rule in rules {
        let (found, tried) = mutations.check(*rule);
        let (by, how) = match found {
            Found::Violated {
                seed,
                invariant,
                sentence,
            } => (invariant, format!("seed {seed}: {sentence}")),
            Found::Twice(times) => (
                "work done twice",
                format!("{times:.2} times that with all rules"),
            ),
            Found::NotAtAll(times) => {
                missed += 1;
                (
                    "nobody",
                    format!("work done twice: {times:.2} times that with all rules"),
                )
            }
        };
        let name = <&str>::from(*rule);
        eprintln!("without {name}: found by {by} after {tried} seeds");
        let how: String = how.chars().take(90).collect();
        table.add_row([name, by, &tried.to_string(), &how]);
    }
    say(&table);
    let (violated, tried) = mutations.violated();
    say(&format!(
        "with all rules: {violated} violations in {tried} seeds"
    ));
    match missed + violated {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

// ---- figures

fn print_report(report: &Report) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_string(), value]);
    };
    let Report {
        nodes,
        sites,
        policy,
        rtt_ms,
        ..
    } = report;
    row(
        "pool",
        format!("{nodes} nodes, {sites} sites, {rtt_ms} ms, {policy}"),
    );
    row(
        "tree",
        format!("{} jobs, {} leaves", report.jobs, report.leaves),
    );
    row(
        "time",
        format!(
            "{:.3} s, ideal {:.3} s",
            report.seconds, report.ideal_seconds
        ),
    );
    row("efficiency", format!("{:.3}", report.efficiency));
    row("idle, each worker", format!("{:.3} s", report.idle_seconds));
    row(
        "jobs stolen",
        format!("{} near, {} far", report.stolen_near, report.stolen_far),
    );
    row(
        "messages, each node and second",
        format!(
            "{:.1}, {:.1} of them far",
            report.messages_per_node_and_second, report.far_messages_per_node_and_second
        ),
    );
    for (kind, count) in &report.messages {
        row(&format!("  {kind}"), count.to_string());
    }
    row("connections", report.connections.to_string());
    row("events simulated", report.events.to_string());
    say(&table);
}

fn print_rows(rows: &[sites::Row]) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([
        "policy",
        "round trip",
        "seconds",
        "efficiency",
        "of one site",
    ]);
    for row in rows {
        table.add_row([
            row.policy.to_string(),
            format!("{} ms", row.rtt_ms),
            format!("{:.3}", row.seconds),
            format!("{:.3}", row.efficiency),
            format!("{:.3}", row.vs_one_site),
        ]);
    }
    say(&table);
}
