//! Programs on one process and on pools: seconds, and the ratio of the two.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use satin_cli::{
    pool::{Output, Plan},
    sites::{Site, Sites},
    wan::WanLink,
};
use serde::{Deserialize, Serialize};

use super::Args;
use crate::{
    chart,
    figures::Ratio,
    launch::{self, Launcher},
};

/// The greatest ratio of pool and one process that is allowed.
const MOST: f64 = 1.05;

/// Ratio of pool and one process beyond which, with [`START`] more, a run is ended and has no time. Too small: cells that are bad
/// have no figure. Too large: they take hours.
const PATIENCE: f64 = 20.0;
/// Time that a run may take beyond [`PATIENCE`] times that of one process, for the start of the nodes and the input.
const START: Duration = Duration::from_secs(30);

/// The round trip of the links over which programs that run long are to gain, in milliseconds.
const FAR: f64 = 10.0;

/// A pool is compared with the process that ran before it, and with that after it if no more than so many runs later. Too few: pools are
/// compared with one run. Too many: the machine has become faster or slower since.
const SOON: usize = 2;

/// The programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// Merge sort of 2,000,000 numbers by value
    Mergesort,
    /// Merge sort of 20,000,000 numbers in place, with a buffer
    Cilksort,
    /// Quicksort of 20,000,000 numbers in place
    Quicksort,
    /// Fourier transform of 2^20 samples by value
    Fft,
    /// Strassen's product of matrices of 1024 x 1024, by value
    Strassen,
    /// The same of 2048 x 2048
    Strassen2048,
    /// The product of the matrices of 1024 x 1024 by quarters that are borrowed
    Matmul,
    /// The Mandelbrot set by tiles, 2048 x 2048
    Mandelbrot,
    /// The sum of a tree of 1,000,000 nodes whose parts are moved
    Treesum,
    /// The sum of the same tree as a shared value
    Treeshared,
    /// The queens on a board of 13 x 13: done before a message has been to a far site and back a few times
    Nqueens,
    /// The queens on a board of 15 x 15
    Nqueens15,
    /// A tree of leaves of 40 us
    Knary,
    /// A tree of 1,000,000 boxes, borrowed
    TreeRef,
    /// A tree of 1,000,000 boxes, moved, and back in the result
    TreeValue,
    /// A tree of 1,000,000 boxes, changed in place
    TreeMut,
    /// A list of 1,000,000 strings, borrowed
    StringsRef,
    /// A list of 1,000,000 strings, moved, and back in the result
    StringsValue,
    /// A list of 1,000,000 strings, changed in place
    StringsMut,
    /// A map of 1,000,000 strings, borrowed
    MapRef,
    /// A map of 1,000,000 strings, moved, and back in the result
    MapValue,
    /// A map of 1,000,000 strings, changed in place
    MapMut,
    /// A graph of 1,000,000 vertices, borrowed
    GraphRef,
    /// A graph of 1,000,000 vertices, moved, and back in the result
    GraphValue,
    /// A graph of 1,000,000 vertices, changed in place
    GraphMut,
}

impl Case {
    /// The name, as the command line and the results have it.
    fn name(self) -> String {
        self.to_possible_value()
            .expect("no case is hidden")
            .get_name()
            .to_owned()
    }

    fn example(self) -> &'static str {
        match self {
            Case::Mergesort => "mergesort",
            Case::Cilksort => "cilksort",
            Case::Quicksort => "quicksort",
            Case::Fft => "fft",
            Case::Strassen | Case::Strassen2048 | Case::Matmul => "strassen",
            Case::Mandelbrot => "mandelbrot",
            Case::Treesum | Case::Treeshared => "treesum",
            Case::Nqueens | Case::Nqueens15 => "nqueens",
            Case::Knary => "knary",
            _ => "walks",
        }
    }

    /// The data of a walk, and how jobs get them.
    fn walk(self) -> Option<[&'static str; 2]> {
        Some(match self {
            Case::TreeRef => ["tree", "ref"],
            Case::TreeValue => ["tree", "value"],
            Case::TreeMut => ["tree", "mut"],
            Case::StringsRef => ["strings", "ref"],
            Case::StringsValue => ["strings", "value"],
            Case::StringsMut => ["strings", "mut"],
            Case::MapRef => ["map", "ref"],
            Case::MapValue => ["map", "value"],
            Case::MapMut => ["map", "mut"],
            Case::GraphRef => ["graph", "ref"],
            Case::GraphValue => ["graph", "value"],
            Case::GraphMut => ["graph", "mut"],
            _ => return None,
        })
    }

    /// The arguments. `program` is the executable: knary measures its steps, once, so that all runs have the same work.
    fn arguments(self, program: &Path, is_quick: bool) -> Result<Vec<String>> {
        let (small, usual, options): (_, _, &[&str]) = match self {
            Case::Mergesort => ("100000", "2000000", &[]),
            Case::Cilksort | Case::Quicksort => ("500000", "20000000", &[]),
            Case::Fft => ("14", "20", &[]),
            Case::Strassen => ("256", "1024", &[]),
            Case::Strassen2048 => ("256", "2048", &[]),
            Case::Matmul => ("256", "1024", &["--plain"]),
            Case::Mandelbrot => ("9", "11", &[]),
            Case::Treesum => ("20000", "1000000", &[]),
            Case::Treeshared => ("20000", "1000000", &["--shared"]),
            Case::Nqueens => ("12", "13", &[]),
            Case::Nqueens15 => ("12", "15", &[]),
            Case::Knary => ("4", "6", &["6", "40", "--steps"]),
            _ => ("20000", "1000000", &[]),
        };
        let size = if is_quick { small } else { usual };
        let options = options.iter().map(|option| option.to_string());
        let mut arguments: Vec<String> = std::iter::once(size.to_owned()).chain(options).collect();
        if let Some([data, by]) = self.walk() {
            arguments.extend(["--data", data, "--by", by].map(String::from));
        }
        if self == Case::Knary {
            let steps = launch::steps(program, Duration::from_micros(40))?;
            arguments.push(steps.to_string());
        }
        Ok(arguments)
    }

    /// Does the program do so much with so little data that a pool is to be as good as threads?
    fn gains(self) -> bool {
        use Case::{Knary, Mandelbrot, Nqueens, Nqueens15, Strassen, Strassen2048};
        matches!(
            self,
            Nqueens | Nqueens15 | Mandelbrot | Strassen | Strassen2048 | Knary
        )
    }
}

/// The emulated link between two sites.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Link {
    rtt_ms: f64,
    /// In each direction.
    bits_per_s: u64,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = self.bits_per_s as f64 / 1e6;
        match mbit < 1000.0 {
            true => write!(f, "{} ms\n{mbit} Mbit/s", self.rtt_ms),
            false => write!(f, "{} ms\n{} Gbit/s", self.rtt_ms, mbit / 1e3),
        }
    }
}

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Place {
    /// Number of nodes; 1: a process without a network.
    nodes: u32,
    /// Workers of each node.
    threads: u32,
    /// The link between the two sites of the pool; `None`: there is one site.
    link: Option<Link>,
}

impl Place {
    /// One process without a network.
    fn process(threads: u32) -> Place {
        Place {
            nodes: 1,
            threads,
            link: None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { nodes, threads, .. } = self;
        match (self.nodes, self.link) {
            (1, _) if *threads == 1 => f.write_str("one process, 1 thread"),
            (1, _) => write!(f, "one process, {threads} threads"),
            (_, None) => write!(f, "{nodes} nodes, one site"),
            (_, Some(link)) => {
                write!(f, "{nodes} nodes, {}", link.to_string().replace('\n', " "))
            }
        }
    }
}

/// A run; a line of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    bench: String,
    case: Case,
    #[serde(flatten)]
    place: Place,
    round: u32,
    /// The time of the computation; `None` if the run failed.
    seconds: Option<f64>,
}

/// Runs every program at every place, in rounds.
///
/// # Errors
/// If a program cannot be built, does not run in one process, or a signal came.
pub fn measure(args: &Args, launcher: &Launcher) -> Result<Vec<Row>> {
    let cases = match args.case.as_slice() {
        [] => Case::value_variants(),
        chosen => chosen,
    };
    let programs = (cases.iter())
        .map(|case| Program::build(launcher, *case, args.quick))
        .collect::<Result<Vec<_>>>()?;
    let places = places(args);
    let mut rows = Vec::new();
    for round in 1..=args.rounds() {
        for program in &programs {
            let mut expected = None;
            for place in &places {
                let run = program.run(launcher, *place, &mut expected);
                launcher.go_on()?;
                let case = program.case.name();
                // Without the time in one process there is nothing to compare with.
                if place.nodes == 1
                    && let Err(error) = run
                {
                    return Err(error.context(case));
                }
                let said = match &run {
                    Ok(seconds) => format!("{seconds:.3} s"),
                    Err(error) => format!("failed: {error:#}"),
                };
                eprintln!("[{round}/{}] {case}, {place}: {said}", args.rounds());
                rows.push(Row {
                    bench: "worth".into(),
                    case: program.case,
                    place: *place,
                    round,
                    seconds: run.ok(),
                });
            }
        }
    }
    Ok(rows)
}

/// The pools of each link, and before them what they are compared with: one process; and, where [`gains`] asks for it, one with as many
/// workers as a whole pool, if there are cores for them.
fn places(args: &Args) -> Vec<Place> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let in_pools = args.nodes.iter().map(|nodes| nodes * args.threads);
    let in_pools: Vec<u32> = in_pools.filter(|threads| *threads <= cores).collect();
    let mut places = Vec::new();
    let links = args.rtt.iter().flat_map(|rtt| {
        args.rate.iter().map(|rate| Link {
            rtt_ms: rtt.as_secs_f64() * 1000.0,
            bits_per_s: *rate,
        })
    });
    for link in std::iter::once(None).chain(links.map(Some)) {
        if link.is_none_or(|link| link.rtt_ms == FAR) {
            places.extend(in_pools.iter().map(|threads| Place::process(*threads)));
        }
        places.push(Place::process(args.threads));
        places.extend(args.nodes.iter().map(|nodes| Place {
            nodes: *nodes,
            threads: args.threads,
            link,
        }));
    }
    places
}

/// What the first run of a program, in one process, says of the others.
struct Expected {
    /// All lines before the time.
    answer: String,
    seconds: f64,
}

/// An example of this workspace with its arguments.
struct Program {
    case: Case,
    path: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    fn build(launcher: &Launcher, case: Case, is_quick: bool) -> Result<Program> {
        let path = launcher.example(case.example())?;
        let arguments = case.arguments(&path, is_quick)?;
        Ok(Program {
            case,
            arguments,
            path,
        })
    }

    /// Seconds of one run, as the program tells them. The answer must be that of the first run, which sets what is expected.
    fn run(
        &self,
        launcher: &Launcher,
        place: Place,
        expected: &mut Option<Expected>,
    ) -> Result<f64> {
        let text = match (place.nodes, &expected) {
            (1, _) | (_, None) => self.alone(place.threads)?,
            (_, Some(Expected { seconds, .. })) => {
                let limit = START + Duration::from_secs_f64(PATIENCE * seconds);
                self.in_pool(launcher, place, limit)?
            }
        };
        let seconds = launch::told_seconds(&text)?;
        let (answer, _) = text.split_once("\ntime ").unwrap_or((&text, ""));
        let expected = expected.get_or_insert_with(|| Expected {
            answer: answer.to_owned(),
            seconds,
        });
        ensure!(
            answer == expected.answer,
            "the answer is:\n{answer}\nnot:\n{}",
            expected.answer
        );
        Ok(seconds)
    }

    fn alone(&self, threads: u32) -> Result<String> {
        let output = Command::new(&self.path)
            .args(&self.arguments)
            .env("SATIN_THREADS", threads.to_string())
            .output()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{} failed ({}):\n{text}{}",
            self.path.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text)
    }

    fn in_pool(&self, launcher: &Launcher, place: Place, limit: Duration) -> Result<String> {
        let words = std::iter::once(self.path.clone().into_os_string());
        let words = words.chain(self.arguments.iter().map(OsString::from));
        let site = |name: &str, nodes| Site {
            name: name.into(),
            nodes,
        };
        let there = place.nodes / 2;
        let sites = match place.link {
            None => vec![site("here", place.nodes)],
            Some(_) => vec![site("here", place.nodes - there), site("there", there)],
        };
        let wan = place.link.map(|link| WanLink {
            rtt: Duration::from_secs_f64(link.rtt_ms / 1000.0),
            rate: Some(link.bits_per_s),
            ..WanLink::default()
        });
        let plan = Plan {
            threads: Some(place.threads),
            wan,
            output: Output::Keep,
            ..Plan::new(words, Sites(sites))
        };
        let story = launcher.run(plan, limit, |_| Ok(()))?;
        Ok(story.stdout().to_owned())
    }
}

/// A pool's nodes, and the threads of each.
type Pool = (u32, u32);

/// All runs, in their order.
struct Rounds<'a>(&'a [Row]);

impl Rounds<'_> {
    /// The minimum.
    fn seconds(&self, case: Case, place: Place) -> Option<f64> {
        let here = (self.0.iter()).filter(|row| row.case == case && row.place == place);
        here.filter_map(|row| row.seconds).min_by(f64::total_cmp)
    }

    /// The time at that place over the time in one process with so many threads.
    fn ratio(&self, case: Case, place: Place, threads: u32) -> Option<Ratio> {
        Ratio::of(self.ratios_of(case, place, threads))
    }

    /// That ratio in each round.
    fn ratios_of(&self, case: Case, place: Place, threads: u32) -> Vec<f64> {
        let process = Place::process(threads);
        let runs: Vec<&Row> = self.0.iter().filter(|row| row.case == case).collect();
        let ratio = |(at, row): (usize, &&Row)| {
            let beside = |other: &&Row| {
                let is_it = other.place == process && other.round == row.round;
                other.seconds.filter(|_| is_it)
            };
            let before = runs[..at].iter().rev().find_map(beside);
            let after = runs[at + 1..].iter().take(SOON).find_map(beside);
            let all: Vec<f64> = before.into_iter().chain(after).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            Some(row.seconds? / mean).filter(|_| !all.is_empty())
        };
        let there = (runs.iter().enumerate()).filter(|(_, row)| row.place == place);
        there.filter_map(ratio).collect()
    }

    /// The ratio over all links.
    fn ratio_of_all(&self, case: Case, (nodes, threads): Pool) -> Option<Ratio> {
        Ratio::of(self.links().into_iter().flat_map(|link| {
            let place = Place {
                nodes,
                threads,
                link,
            };
            self.ratios_of(case, place, threads)
        }))
    }

    fn cases(&self) -> Vec<Case> {
        distinct(self.0.iter().map(|row| row.case))
    }

    fn pools(&self) -> Vec<Pool> {
        let pools = self.0.iter().filter(|row| row.place.nodes > 1);
        distinct(pools.map(|row| (row.place.nodes, row.place.threads)))
    }

    fn links(&self) -> Vec<Option<Link>> {
        let pools = self.0.iter().filter(|row| row.place.nodes > 1);
        distinct(pools.map(|row| row.place.link))
    }

    /// A value for each case and pool, a row each, and each link.
    fn grid<T>(&self, cell: impl Fn(Case, Place) -> T) -> Vec<(Case, Pool, Vec<T>)> {
        let (pools, links) = (self.pools(), self.links());
        let rows = self.cases().into_iter().flat_map(|case| {
            let pools = pools.clone().into_iter();
            pools.map(move |(nodes, threads)| (case, nodes, threads))
        });
        rows.map(|(case, nodes, threads)| {
            let places = links.iter().map(|link| Place {
                nodes,
                threads,
                link: *link,
            });
            let cells = places.map(|place| cell(case, place)).collect();
            (case, (nodes, threads), cells)
        })
        .collect()
    }

    fn ratios(&self) -> Vec<(Case, Pool, Vec<Option<Ratio>>)> {
        self.grid(|case, place| self.ratio(case, place, place.threads))
    }

    /// The names of the links.
    fn headers(&self) -> Vec<String> {
        let name = |link: Option<Link>| link.map_or("one\nsite".into(), |link| link.to_string());
        self.links().into_iter().map(name).collect()
    }
}

/// In the order of first mention.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

pub fn report(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let rounds = Rounds(rows);
    println!("seconds, minima of the rounds:");
    println!("{}", seconds_table(&rounds));
    println!(
        "pool / one process with the threads of one node, just before and after; `!`: above {MOST}, `failed`: no run came to its end:"
    );
    println!("{}", ratio_table(&rounds));
    let cells = rounds.grid(|case, place| {
        let ratio = rounds.ratio(case, place, place.threads);
        (case, place, ratio)
    });
    let cells: Vec<_> = cells.into_iter().flat_map(|(.., cells)| cells).collect();
    let ratios = (cells.iter()).filter_map(|(case, place, ratio)| Some((case, place, (*ratio)?)));
    let worst = ratios
        .clone()
        .max_by(|one, other| one.2.mean.total_cmp(&other.2.mean));
    let above = ratios
        .clone()
        .filter(|(.., ratio)| ratio.mean > MOST)
        .count();
    let certain = ratios.filter(|(.., ratio)| ratio.low > MOST).count();
    let failed = cells.iter().filter(|(.., ratio)| ratio.is_none()).count();
    if let Some((case, place, ratio)) = worst {
        println!("worst: {}, {place}: {ratio}", case.name());
    }
    println!(
        "{above} of {} cells above {MOST} ({certain} with 95 %), {failed} without a time: {}",
        cells.len(),
        verdict(above + failed == 0)
    );
    for line in gains(&rounds) {
        println!("{line}");
    }
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn seconds_table(rounds: &Rounds<'_>) -> Table {
    let text = |seconds: Option<f64>| seconds.map_or("failed".into(), |s| format!("{s:.3}"));
    let processes = rounds.0.iter().filter(|row| row.place.nodes == 1);
    let processes = distinct(processes.map(|row| row.place));
    let mut headers = vec!["program".to_owned(), "nodes".into()];
    headers.extend(processes.iter().map(|process| match process.threads {
        1 => "one process\n1 thread".into(),
        threads => format!("one process\n{threads} threads"),
    }));
    headers.extend(rounds.headers());
    let mut table = table(headers);
    for (case, (nodes, _), cells) in rounds.grid(|case, place| rounds.seconds(case, place)) {
        let alone = (processes.iter()).map(|process| text(rounds.seconds(case, *process)));
        let start = [case.name(), nodes.to_string()].into_iter().chain(alone);
        table.add_row(start.chain(cells.into_iter().map(text)));
    }
    align(table)
}

fn ratio_table(rounds: &Rounds<'_>) -> Table {
    let mut headers = vec!["program".to_owned(), "nodes".into(), "all links".into()];
    headers.extend(rounds.headers());
    let mut table = table(headers);
    for (case, pool, ratios) in rounds.ratios() {
        let cells = ratios.into_iter().map(|ratio| match ratio {
            Some(Ratio { mean, .. }) if mean > MOST => format!("{mean:.2} !"),
            Some(Ratio { mean, .. }) => format!("{mean:.2}  "),
            None => "failed".into(),
        });
        let all = rounds.ratio_of_all(case, pool);
        let all = all.map_or("failed".into(), |ratio| ratio.to_string());
        let start = [case.name(), pool.0.to_string(), all];
        table.add_row(start.into_iter().chain(cells));
    }
    align(table)
}

fn table(headers: Vec<String>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_header(headers);
    table
}

fn align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Of the programs that gain: pools over one process with as many workers in all, at one site and at the first link of 10 ms with
/// the greatest rate.
fn gains(rounds: &Rounds<'_>) -> Vec<String> {
    /// Runs that last as long are to gain from a far node too, in seconds.
    const LONG: f64 = 2.0;
    let far = (rounds.links().into_iter().flatten())
        .filter(|link| link.rtt_ms == FAR)
        .max_by_key(|link| link.bits_per_s);
    let mut lines = Vec::new();
    for case in rounds.cases().into_iter().filter(|case| case.gains()) {
        for (nodes, threads) in rounds.pools() {
            let place = |link| Place {
                nodes,
                threads,
                link,
            };
            let ratio = |link| rounds.ratio(case, place(link), nodes * threads);
            if let Some(ratio) = ratio(None) {
                lines.push(format!(
                    "{}: {} / one process of as many threads {ratio}, required at most 1.10: {}",
                    case.name(),
                    place(None),
                    verdict(ratio.mean <= 1.1)
                ));
            }
            let Some(far) = far else { continue };
            let process = Place::process(nodes * threads);
            let is_long = (rounds.seconds(case, process)).is_some_and(|seconds| seconds > LONG);
            if let (true, Some(ratio)) = (is_long, ratio(Some(far))) {
                lines.push(format!(
                    "{}: {} / one process of as many threads {ratio}, required at most 1.3: {}",
                    case.name(),
                    place(Some(far)),
                    verdict(ratio.mean <= 1.3)
                ));
            }
        }
    }
    lines
}

/// The ratios, coloured.
pub fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    let rounds = Rounds(rows);
    let ratios = rounds.ratios();
    ensure!(!ratios.is_empty(), "no runs of programs to draw");
    let rows = ratios.into_iter().map(|(case, (nodes, _), ratios)| {
        let name = format!("{}, {nodes} nodes", case.name());
        let means = ratios.into_iter().map(|ratio| Some(ratio?.mean));
        (name, means.collect())
    });
    chart::draw_ratios(
        path,
        "time of a pool / time of one process with the threads of one node",
        &rounds.headers(),
        &rows.collect::<Vec<_>>(),
        MOST,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link {
        rtt_ms: 10.0,
        bits_per_s: 100_000_000,
    };

    fn row(round: u32, place: Place, seconds: Option<f64>) -> Row {
        Row {
            bench: "worth".into(),
            case: Case::Fft,
            place,
            round,
            seconds,
        }
    }

    /// Two nodes.
    fn pool(link: Option<Link>) -> Place {
        Place {
            nodes: 2,
            threads: 1,
            link,
        }
    }

    #[test]
    fn a_pool_is_compared_with_the_process_beside_it() {
        let [alone, near, far] = [Place::process(1), pool(None), pool(Some(LINK))];
        let rows = [
            row(1, alone, Some(2.0)),
            row(1, near, Some(1.5)),
            row(1, far, None),
            row(1, alone, Some(4.0)),
            row(1, far, Some(2.0)),
            // The machine is slower now: no run of another round is beside one of this.
            row(2, alone, Some(9.0)),
            row(2, Place::process(2), Some(1.0)),
            row(2, near, Some(3.0)),
        ];
        let rounds = Rounds(&rows);
        let of = |place| rounds.ratios_of(Case::Fft, place, 1);
        assert_eq!((of(near), of(far)), (vec![0.5, 3.0 / 9.0], vec![0.5]));
        let [in_near, in_far] = [near, far].map(|place| Ratio::of(of(place)));
        assert_eq!(
            rounds.ratios(),
            [(Case::Fft, (2, 1), vec![in_near, in_far])]
        );
        let all = rounds.ratio_of_all(Case::Fft, (2, 1));
        assert_eq!(all, Ratio::of([0.5, 3.0 / 9.0, 0.5]));
        assert_eq!(rounds.headers(), ["one\nsite", "10 ms\n100 Mbit/s"]);
        let seconds = rounds.seconds(Case::Fft, near);
        assert_eq!(seconds, Some(1.5), "the minimum");
    }

    #[test]
    fn a_pool_of_which_no_run_ended_has_no_ratio() {
        let rows = [
            row(1, Place::process(1), Some(2.0)),
            row(1, pool(None), None),
        ];
        let rounds = Rounds(&rows);
        assert_eq!(rounds.ratios(), [(Case::Fft, (2, 1), vec![None])]);
        assert_eq!(rounds.ratio_of_all(Case::Fft, (2, 1)), None);
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let row = row(1, pool(Some(LINK)), Some(0.25));
        let text = serde_json::to_string(&row).expect("it can be written");
        let read: Row = serde_json::from_str(&text).expect("it can be read");
        assert_eq!((read.place, read.seconds), (row.place, row.seconds));
    }
}
