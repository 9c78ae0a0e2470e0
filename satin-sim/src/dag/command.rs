//! `satin-sim dag`: its arguments, its progress, and what it prints.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::Context;
use clap::Args;
use strum::VariantArray;

use super::{
    chart,
    experiment::{self, Case, Contender, Progress, Scenario, Settings, Size},
    graph::{Data, TaskGraph, random, stg, tiled},
    policy::{Detection, Policy},
    report,
    world::PROCESSORS_MAX,
};
use crate::{
    parse, seeds,
    terminal::{StatusLine, clear_line, say},
};

const EXAMPLES: &str = "Graphs:
  random                the methods of the Standard Task Graph Set
  stg                   its files: SATIN_DATA/stg, or ../shared/data/stg
  FILE or FOLDER        files of that format (*.stg)
  lu:N, cholesky:N      factorisations of N x N tiles
  gauss-seidel:N,SWEEPS sweeps over N x N blocks

Scenarios: te1: no processor dies; te2: one dies half way (both as in the paper on GTP); te2-twice: a second one dies, a twentieth
of the run later; te2-back, te2-twice-back: each comes back after a tenth of the run, with nothing.

A figure `13.4 (14.2) [3.84]` says: a death adds 13.4 % of time in the mean over graphs and bounds, 14.2 % at the worst bound;
without it a run takes 3.84 times the critical path.

Policies: all but satin and satin-always are models. satin is the shipped code: the runtime's nodes with imaginary workers. Nodes
that have nothing to do steal tasks, those first that need what they keep; large data stay where they were made. satin-always is the
same with SATIN_WORTH=always. A second table says what the nodes did. flow-means is flow for tasks of one function: what one takes is
not known before it has run, only the mean of those before it. These two are run only if they are named.

Examples:
  satin-sim dag                                         # a sample of graphs: two or three minutes
  satin-sim dag --policies flow,satin,satin-always --sample 3    # the shipped code beside the design
  satin-sim dag --full --json dag.json --svg dag.svg    # all 180 graphs
  satin-sim dag lu:10 --size 4xall --data output:0.1    # a tiled LU on 4 processors
  satin-sim dag stg --scenario te1,te2 --size 5x100     # the files of the Standard Task Graph Set
  satin-sim dag graph.stg --policies gtp/c/r,flow-copies --bounds 0,50";

/// Task graphs on processors that vary and die: GTP with copies and rewinding, pull, and the design of flows, side by side, as models;
/// and the shipped code.
///
/// The models say what the rules of the design are worth, the shipped code what the runtime does. Of models it is checked that nothing is
/// stuck, that a task runs again only if it was rewound, and that what is wanted has a holder or a writer that will run; of the shipped
/// code that it comes to its end, with the result of the program text. The exit code is 1 if one of these is violated.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Dag {
    /// Graphs: random, stg, a file, a folder, lu:N, cholesky:N or gauss-seidel:N,SWEEPS.
    #[arg(default_value = "random", value_parser = source)]
    graphs: Source,
    /// Take all graphs, not a sample.
    #[arg(long, conflicts_with = "sample")]
    full: bool,
    /// Number of graphs of the sample.
    #[arg(long, default_value_t = 12, value_name = "GRAPHS", value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// Processors and tasks, such as 5x500,20xall. The first tasks of each graph are taken; smaller graphs are left out.
    #[arg(long, value_parser = size, value_name = "PxN,..", value_delimiter = ',')]
    size: Vec<Size>,
    /// Time of sending, as a share of a mean task: edge:0.02 for each edge, or output:0.5 for the one output of a task.
    #[arg(long, value_parser = data, value_name = "DATA,..", value_delimiter = ',')]
    data: Vec<Data>,
    /// What happens to processors: te1, te2, te2-back, te2-twice, te2-twice-back.
    #[arg(long, value_parser = parse::named::<Scenario>, value_name = "NAME,..", value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// Only these policies: gtp, gtp/c, gtp/r, gtp/c/r, pull-random, pull-rank, flow, flow-copies, flow-means, satin, satin-always.
    #[arg(long, value_parser = parse::named::<Policy>, value_name = "NAME,..", value_delimiter = ',')]
    policies: Vec<Policy>,
    /// Bounds of the variation, in per cent: at 30, speeds are between 70 % and all.
    #[arg(long, value_parser = bound, default_value = "0,30,60,90", value_name = "PERCENT,..", value_delimiter = ',')]
    bounds: Vec<f64>,
    /// Seed of everything random: the same seed gives the same figures, whatever the number of threads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of threads.
    #[arg(long, default_value_t = seeds::threads())]
    jobs: u32,
    /// End with the exit code 1 if a target of the design is missed.
    #[arg(long)]
    accept: bool,
    /// Write the figures to this file too, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the figures.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Where graphs come from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    Random,
    Stg,
    Lu(usize),
    Cholesky(usize),
    GaussSeidel { blocks: usize, sweeps: usize },
    Path(PathBuf),
}

// ---- arguments

fn source(text: &str) -> Result<Source, String> {
    /// More would be millions of tasks.
    const TILES_MAX: usize = 64;
    let number = |text: &str| {
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=TILES_MAX).contains(number));
        number.ok_or(format!("{text} is no number from 1 to {TILES_MAX}"))
    };
    match text.split_once(':') {
        None if text == "random" => Ok(Source::Random),
        None if text == "stg" => Ok(Source::Stg),
        Some(("lu", tiles)) => Ok(Source::Lu(number(tiles)?)),
        Some(("cholesky", tiles)) => Ok(Source::Cholesky(number(tiles)?)),
        Some(("gauss-seidel", numbers)) => {
            let (blocks, sweeps) = numbers.split_once(',').unwrap_or((numbers, "1"));
            let (blocks, sweeps) = (number(blocks)?, number(sweeps)?);
            Ok(Source::GaussSeidel { blocks, sweeps })
        }
        _ => Ok(Source::Path(text.into())),
    }
}

fn size(text: &str) -> Result<Size, String> {
    let numbers = text.split_once('x');
    let numbers = numbers.and_then(|(processors, tasks)| {
        let tasks = match tasks {
            "all" => None,
            tasks => Some(tasks.parse().ok()?),
        };
        Some((processors.parse().ok()?, tasks))
    });
    match numbers {
        Some((processors, tasks))
            if (2..=PROCESSORS_MAX).contains(&processors)
                && tasks.is_none_or(|tasks| tasks > 1) =>
        {
            Ok(Size { processors, tasks })
        }
        _ => Err(format!(
            "a size is processors (2 to {PROCESSORS_MAX}) and tasks (2 or more, or all), such as 5x500 or 5xall"
        )),
    }
}

fn data(text: &str) -> Result<Data, String> {
    let wrong = || "data is edge:SHARE or output:SHARE, such as edge:0.02".to_string();
    let (kind, share) = text.split_once(':').ok_or_else(wrong)?;
    let share: f64 = share.parse().map_err(|_| wrong())?;
    if !(0.0..=100.0).contains(&share) {
        return Err("a share is between 0 and 100 times a mean task".into());
    }
    match kind {
        "edge" => Ok(Data::PerEdge(share)),
        "output" => Ok(Data::OneOutput(share)),
        _ => Err(wrong()),
    }
}

fn bound(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    let percent = percent.filter(|percent| (0.0..=95.0).contains(percent));
    let percent: f64 = percent.ok_or("a bound is a number of per cent from 0 to 95")?;
    Ok(percent / 100.0)
}

impl Dag {
    fn settings(&self) -> anyhow::Result<Settings> {
        let cases = self.cases()?;
        Ok(Settings {
            graphs: self.graphs(&cases)?,
            contenders: self.contenders(),
            cases,
            bounds: self.bounds.clone(),
            seed: self.seed,
            jobs: self.jobs,
        })
    }

    /// The rows of section 4 of the design, or all combinations of what was asked for.
    fn cases(&self) -> anyhow::Result<Vec<Case>> {
        // Graphs that somebody has named are taken whole.
        let of_design = |tasks| Some(tasks).filter(|_| self.graphs == Source::Random);
        let small = Size {
            processors: 5,
            tasks: of_design(500),
        };
        let large = Size {
            processors: 20,
            tasks: of_design(1000),
        };
        let (per_edge, one_output) = (Data::PerEdge(0.02), Data::OneOutput(0.5));
        if self.size.is_empty() && self.data.is_empty() && self.scenario.is_empty() {
            let rows = [
                (small, per_edge, Scenario::Te2),
                (small, per_edge, Scenario::Te2Back),
                (small, one_output, Scenario::Te2),
                (large, per_edge, Scenario::Te2),
                (large, one_output, Scenario::Te2),
            ];
            let rows = rows.map(|(size, data, scenario)| Case {
                size,
                data,
                scenario,
            });
            return Ok(rows.to_vec());
        }
        let or = |given: &[Size]| {
            if given.is_empty() {
                vec![small]
            } else {
                given.to_vec()
            }
        };
        let datas = if self.data.is_empty() {
            vec![per_edge]
        } else {
            self.data.clone()
        };
        let scenarios = match self.scenario.is_empty() {
            true => vec![Scenario::Te2],
            false => self.scenario.clone(),
        };
        let mut cases = Vec::new();
        for size in or(&self.size) {
            for &data in &datas {
                for &scenario in &scenarios {
                    anyhow::ensure!(
                        size.processors >= scenario.processors_min(),
                        "{} needs {} processors or more",
                        scenario.name(),
                        scenario.processors_min()
                    );
                    cases.push(Case {
                        size,
                        data,
                        scenario,
                    });
                }
            }
        }
        Ok(cases)
    }

    fn contenders(&self) -> Vec<Contender> {
        let is_chosen = |policy: &Policy| match self.policies.is_empty() {
            // Another setting of the shipped code, and the slowest of all; and a model for one question.
            true => ![Policy::SatinAlways, Policy::FlowMeans].contains(policy),
            false => self.policies.contains(policy),
        };
        let chosen = || Policy::VARIANTS.iter().copied().filter(is_chosen);
        let mut contenders: Vec<Contender> = chosen()
            .map(|policy| Contender {
                policy,
                detection: policy.own_detection(),
            })
            .collect();
        // Half of what flows gain is that they hear of deaths sooner: both with the delay of the other.
        let compared = [
            (Policy::GtpCR, Detection::Soon),
            (Policy::FlowCopies, Detection::AtPoints),
        ];
        if compared.iter().all(|(policy, _)| is_chosen(policy)) {
            contenders.extend(compared.map(|(policy, detection)| Contender { policy, detection }));
        }
        contenders
    }

    fn graphs(&self, cases: &[Case]) -> anyhow::Result<Vec<TaskGraph>> {
        // All rows are of the same graphs.
        let tasks = cases.iter().filter_map(|case| case.size.tasks).max();
        let tasks = tasks.unwrap_or_default();
        match &self.graphs {
            Source::Random => {
                // The set has graphs of 1,000 tasks; smaller ones are their first tasks.
                let tasks = tasks.max(1000);
                let numbers: Vec<usize> = (0..random::GRAPHS).collect();
                let numbers = self.sampled(numbers).into_iter();
                Ok(numbers
                    .map(|number| random::graph(number, tasks, self.seed))
                    .collect())
            }
            Source::Stg => {
                let root = std::env::var_os("SATIN_DATA");
                let root = root.map_or_else(|| PathBuf::from("../shared/data"), PathBuf::from);
                let graphs = stg::read(&root.join("stg"));
                let graphs =
                    graphs.context("set SATIN_DATA to a folder with a folder stg in it")?;
                Ok(self.sampled(of_size(graphs, tasks)?))
            }
            Source::Path(path) => {
                anyhow::ensure!(
                    path.exists(),
                    "there is no file or folder {}; graphs are random, stg, lu:N, cholesky:N, gauss-seidel:N,SWEEPS, a file or a folder",
                    path.display()
                );
                Ok(self.sampled(of_size(stg::read(path)?, tasks)?))
            }
            Source::Lu(tiles) => of_size(vec![tiled::lu(*tiles)], tasks),
            Source::Cholesky(tiles) => of_size(vec![tiled::cholesky(*tiles)], tasks),
            Source::GaussSeidel { blocks, sweeps } => {
                of_size(vec![tiled::gauss_seidel(*blocks, *sweeps)], tasks)
            }
        }
    }

    /// Evenly over all, so that each method has its share.
    fn sampled<T>(&self, all: Vec<T>) -> Vec<T> {
        let (count, sample) = (all.len(), self.sample as usize);
        if self.full || sample >= count {
            return all;
        }
        let is_taken = |index: usize| (index * sample) % count < sample;
        let taken = all
            .into_iter()
            .enumerate()
            .filter(|(index, _)| is_taken(*index));
        taken.map(|(_, graph)| graph).collect()
    }

    /// Runs the command.
    ///
    /// # Errors
    /// A graph cannot be read, a file not written, or an invariant was violated.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let start = Instant::now();
        let settings = self.settings()?;
        // An hour of work is not to end with a file that cannot be written.
        for file in [&self.json, &self.svg].into_iter().flatten() {
            check_writable(file)?;
        }
        let report = experiment::run(&settings, &progress());
        clear_line();
        let report = report.context(
            "an invariant was violated: the model is wrong, or a policy; of satin, the shipped code or its harness",
        )?;
        say(&format!(
            "{} graphs, {:.0} edges in the mean; bounds {} %; {} runs in {:.0} s, seed {}; nothing was stuck\n\
             extra time by a death, % (worst bound) [length without it, in critical paths]",
            report.graphs,
            report.mean_edges,
            bounds(&report.bounds),
            report.runs,
            start.elapsed().as_secs_f64(),
            report.seed,
        ));
        say(&report::table(&report));
        if let Some(table) = report::equal_delays(&report) {
            say(&"the same, with equal delays of detection");
            say(&table);
        }
        if let Some(table) = report::shipped(&report) {
            say(&"what the nodes of the shipped code did");
            say(&table);
        }
        let targets = report::targets(&report);
        if !targets.is_empty() {
            say(&report::target_table(&targets));
        }
        if let Some(file) = &self.json {
            let text = serde_json::to_string_pretty(&report)?;
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        if let Some(file) = &self.svg {
            chart::write(file, &report)?;
        }
        match self.accept && targets.iter().any(|target| !target.is_kept()) {
            true => Ok(ExitCode::FAILURE),
            false => Ok(ExitCode::SUCCESS),
        }
    }
}

/// The graphs that have so many tasks. A smaller one would stand in a row whose name says that it has as many.
fn of_size(mut graphs: Vec<TaskGraph>, tasks: usize) -> anyhow::Result<Vec<TaskGraph>> {
    let before = graphs.len();
    let most = graphs.iter().map(|graph| graph.tasks.len()).max();
    graphs.retain(|graph| graph.tasks.len() >= tasks);
    anyhow::ensure!(
        !graphs.is_empty(),
        "--size asks for {tasks} tasks, and the largest graph here has {}: ask for fewer, or for all (such as 5xall)",
        most.unwrap_or_default()
    );
    let left_out = before - graphs.len();
    if left_out > 0 {
        eprintln!("{left_out} of {before} graphs have fewer than {tasks} tasks, and are left out");
    }
    Ok(graphs)
}

// ---- output

fn check_writable(file: &Path) -> anyhow::Result<()> {
    let opened = fs::OpenOptions::new().append(true).create(true).open(file);
    opened.with_context(|| format!("cannot write {}", file.display()))?;
    Ok(())
}

fn bounds(bounds: &[f64]) -> String {
    let texts = bounds.iter().map(|bound| format!("{:.0}", 100.0 * bound));
    texts.collect::<Vec<_>>().join(", ")
}

/// A line on stderr, now and then.
fn progress() -> impl Fn(Progress) + Sync {
    let start = Instant::now();
    let line = StatusLine::new();
    move |Progress { done, all }| {
        line.tell(|| {
            let seconds = start.elapsed().as_secs_f64();
            let left = seconds * (all - done) as f64 / done.max(1) as f64;
            format!("{done} of {all} graphs and bounds, about {left:.0} s left")
        });
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        dag: Dag,
    }

    fn parsed(arguments: &str) -> Result<Dag, clap::Error> {
        let words = std::iter::once("dag").chain(arguments.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.dag)
    }

    #[test]
    fn the_examples_of_the_help_are_right() {
        let examples = EXAMPLES.lines().filter_map(|line| {
            let example = line.trim().strip_prefix("satin-sim dag")?;
            Some(example.split('#').next().unwrap_or_default())
        });
        let examples: Vec<&str> = examples.collect();
        assert_eq!(examples.len(), 6);
        for example in examples {
            let dag = parsed(example).unwrap_or_else(|error| panic!("{example}: {error}"));
            assert!(!dag.cases().unwrap().is_empty());
            assert!(!dag.contenders().is_empty());
        }
    }

    #[test]
    fn without_arguments_the_rows_are_those_of_the_design() {
        let dag = parsed("").unwrap();
        assert_eq!(dag.cases().unwrap().len(), 5);
        // All policies but two, and two with another delay.
        assert_eq!(dag.contenders().len(), Policy::VARIANTS.len() - 2 + 2);
        let policies = dag.contenders().into_iter().map(|is| is.policy);
        assert!(policies.clone().any(|policy| policy == Policy::Satin));
        assert!(policies.clone().all(|policy| policy != Policy::SatinAlways));
        let named = parsed("--policies satin-always").unwrap().contenders();
        assert_eq!(named[0].policy, Policy::SatinAlways);
        assert_eq!(dag.bounds, [0.0, 0.3, 0.6, 0.9]);
    }

    #[test]
    fn given_values_are_combined() {
        let dag = parsed("--size 5x50,20x80 --scenario te1,te2 --data edge:0.1").unwrap();
        assert_eq!(dag.cases().unwrap().len(), 4);
        let error = parsed("--size 2x50 --scenario te2-twice").unwrap().cases();
        assert_eq!(
            error.unwrap_err().to_string(),
            "te2-twice needs 3 processors or more"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (arguments, part) in [
            ("--size 5", "such as 5x500 or 5xall"),
            ("--size 5x1", "2 or more, or all"),
            ("--size 40x500", "2 to 32"),
            ("--data edge", "such as edge:0.02"),
            ("--bounds 99", "from 0 to 95"),
            ("--scenario te3", "expected one of te1"),
            ("--policies heft", "expected one of gtp"),
            ("lu:1000", "from 1 to 64"),
            ("--sample 0", "0 is not in 1.."),
        ] {
            let error = parsed(arguments).unwrap_err().to_string();
            assert!(error.contains(part), "{arguments}: {error}");
        }
    }

    #[test]
    fn a_sample_is_spread_over_all() {
        let dag = parsed("--sample 12").unwrap();
        let taken = dag.sampled((0..180).collect());
        let expected: Vec<i32> = (0..180).step_by(15).collect();
        assert_eq!(taken, expected);
        assert_eq!(
            parsed("--full").unwrap().sampled((0..180).collect()).len(),
            180
        );
    }
}
