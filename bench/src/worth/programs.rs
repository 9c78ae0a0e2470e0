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
    launch::{self, Launcher},
};

/// The greatest ratio of pool and one process that is allowed.
const MOST: f64 = 1.05;

/// Ratio of pool and one process beyond which, with [`START`] more, a run is ended and has no time. Too small: cells that are bad
/// have no figure. Too large: they take hours.
const PATIENCE: f64 = 20.0;
/// Time that a run may take beyond [`PATIENCE`] times that of one process, for the start of the nodes and the input.
const START: Duration = Duration::from_secs(30);

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
        }
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
        };
        let size = if is_quick { small } else { usual };
        let options = options.iter().map(|option| option.to_string());
        let mut arguments: Vec<String> = std::iter::once(size.to_owned()).chain(options).collect();
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

/// One process first; one with as many workers as a whole pool, if there are cores for them; then the pools.
fn places(args: &Args) -> Vec<Place> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let process = |threads| Place {
        nodes: 1,
        threads,
        link: None,
    };
    let in_pools = args.nodes.iter().map(|nodes| nodes * args.threads);
    let in_pools = in_pools.filter(|threads| *threads <= cores);
    let mut places: Vec<Place> = std::iter::once(args.threads)
        .chain(in_pools)
        .map(process)
        .collect();
    let links = args.rtt.iter().flat_map(|rtt| {
        args.rate.iter().map(|rate| Link {
            rtt_ms: rtt.as_secs_f64() * 1000.0,
            bits_per_s: *rate,
        })
    });
    for link in std::iter::once(None).chain(links.map(Some)) {
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
        let mut arguments = case.arguments(&path, is_quick)?;
        // The time is to be without that of the other nodes' coming.
        arguments.push("--gathered".into());
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

/// The minima of the rounds.
struct Minima<'a>(&'a [Row]);

impl Minima<'_> {
    fn seconds(&self, case: Case, place: Place) -> Option<f64> {
        let here = (self.0.iter()).filter(|row| row.case == case && row.place == place);
        here.filter_map(|row| row.seconds).min_by(f64::total_cmp)
    }

    /// The time at that place over the time in one process with so many threads.
    fn ratio(&self, case: Case, place: Place, threads: u32) -> Option<f64> {
        let process = Place {
            nodes: 1,
            threads,
            link: None,
        };
        Some(self.seconds(case, place)? / self.seconds(case, process)?)
    }

    fn cases(&self) -> Vec<Case> {
        distinct(self.0.iter().map(|row| row.case))
    }

    /// The pools, by size and threads.
    fn pools(&self) -> Vec<(u32, u32)> {
        let pools = self.0.iter().filter(|row| row.place.nodes > 1);
        distinct(pools.map(|row| (row.place.nodes, row.place.threads)))
    }

    fn links(&self) -> Vec<Option<Link>> {
        let pools = self.0.iter().filter(|row| row.place.nodes > 1);
        distinct(pools.map(|row| row.place.link))
    }

    /// A value for each case and pool, a row each, and each link.
    fn grid<T>(&self, cell: impl Fn(Case, Place) -> T) -> Vec<(Case, u32, Vec<T>)> {
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
            (case, nodes, cells)
        })
        .collect()
    }

    fn ratios(&self) -> Vec<(Case, u32, Vec<Option<f64>>)> {
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
    let minima = Minima(rows);
    println!("seconds, minima of the rounds:");
    println!("{}", seconds_table(&minima));
    println!(
        "pool / one process with the threads of one node; `!`: above {MOST}, `failed`: no run came to its end:"
    );
    println!("{}", ratio_table(&minima));
    let cells = minima.grid(|case, place| {
        let ratio = minima.ratio(case, place, place.threads);
        (case, place, ratio)
    });
    let cells: Vec<_> = cells.into_iter().flat_map(|(.., cells)| cells).collect();
    let ratios = (cells.iter()).filter_map(|(case, place, ratio)| Some((case, place, (*ratio)?)));
    let worst = ratios
        .clone()
        .max_by(|one, other| one.2.total_cmp(&other.2));
    let above = ratios.filter(|(.., ratio)| *ratio > MOST).count();
    let failed = cells.iter().filter(|(.., ratio)| ratio.is_none()).count();
    if let Some((case, place, ratio)) = worst {
        println!("worst: {}, {place}: {ratio:.3}", case.name());
    }
    println!(
        "{above} of {} cells above {MOST}, {failed} without a time: {}",
        cells.len(),
        verdict(above + failed == 0)
    );
    for line in gains(&minima) {
        println!("{line}");
    }
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn seconds_table(minima: &Minima<'_>) -> Table {
    let text = |seconds: Option<f64>| seconds.map_or("failed".into(), |s| format!("{s:.3}"));
    let processes = minima.0.iter().filter(|row| row.place.nodes == 1);
    let processes = distinct(processes.map(|row| row.place));
    let mut headers = vec!["program".to_owned(), "nodes".into()];
    headers.extend(processes.iter().map(|process| match process.threads {
        1 => "one process\n1 thread".into(),
        threads => format!("one process\n{threads} threads"),
    }));
    headers.extend(minima.headers());
    let mut table = table(headers);
    for (case, nodes, cells) in minima.grid(|case, place| minima.seconds(case, place)) {
        let alone = (processes.iter()).map(|process| text(minima.seconds(case, *process)));
        let start = [case.name(), nodes.to_string()].into_iter().chain(alone);
        table.add_row(start.chain(cells.into_iter().map(text)));
    }
    align(table)
}

fn ratio_table(minima: &Minima<'_>) -> Table {
    let mut headers = vec!["program".to_owned(), "nodes".into()];
    headers.extend(minima.headers());
    let mut table = table(headers);
    for (case, nodes, ratios) in minima.ratios() {
        let cells = ratios.into_iter().map(|ratio| match ratio {
            Some(ratio) if ratio > MOST => format!("{ratio:.2} !"),
            Some(ratio) => format!("{ratio:.2}  "),
            None => "failed".into(),
        });
        table.add_row([case.name(), nodes.to_string()].into_iter().chain(cells));
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
fn gains(minima: &Minima<'_>) -> Vec<String> {
    /// Runs that last as long are to gain from a far node too, in seconds.
    const LONG: f64 = 2.0;
    let far = (minima.links().into_iter().flatten())
        .filter(|link| link.rtt_ms == 10.0)
        .max_by_key(|link| link.bits_per_s);
    let mut lines = Vec::new();
    for case in minima.cases().into_iter().filter(|case| case.gains()) {
        for (nodes, threads) in minima.pools() {
            let place = |link| Place {
                nodes,
                threads,
                link,
            };
            let ratio = |link| minima.ratio(case, place(link), nodes * threads);
            if let Some(ratio) = ratio(None) {
                lines.push(format!(
                    "{}: {} / one process of as many threads {ratio:.2}, required at most 1.10: {}",
                    case.name(),
                    place(None),
                    verdict(ratio <= 1.1)
                ));
            }
            let Some(far) = far else { continue };
            let process = Place {
                nodes: 1,
                threads: nodes * threads,
                link: None,
            };
            let is_long = (minima.seconds(case, process)).is_some_and(|seconds| seconds > LONG);
            if let (true, Some(ratio)) = (is_long, ratio(Some(far))) {
                lines.push(format!(
                    "{}: {} / one process of as many threads {ratio:.2}, required at most 1.3: {}",
                    case.name(),
                    place(Some(far)),
                    verdict(ratio <= 1.3)
                ));
            }
        }
    }
    lines
}

/// The ratios, coloured.
pub fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    let minima = Minima(rows);
    let ratios = minima.ratios();
    ensure!(!ratios.is_empty(), "no runs of programs to draw");
    let rows = ratios.into_iter().map(|(case, nodes, ratios)| {
        let name = format!("{}, {nodes} nodes", case.name());
        (name, ratios)
    });
    chart::draw_ratios(
        path,
        "time of a pool / time of one process with the threads of one node",
        &minima.headers(),
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

    fn row(nodes: u32, threads: u32, link: Option<Link>, seconds: Option<f64>) -> Row {
        Row {
            bench: "worth".into(),
            case: Case::Fft,
            place: Place {
                nodes,
                threads,
                link,
            },
            round: 1,
            seconds,
        }
    }

    #[test]
    fn the_fastest_rounds_are_compared() {
        let rows = [
            row(1, 1, None, Some(3.0)),
            row(1, 2, None, Some(1.0)),
            row(2, 1, None, Some(1.5)),
            row(2, 1, Some(LINK), None),
            row(1, 1, None, Some(2.0)),
            row(2, 1, None, Some(5.0)),
            row(2, 1, Some(LINK), None),
        ];
        let ratios = Minima(&rows).ratios();
        assert_eq!(ratios, [(Case::Fft, 2, vec![Some(0.75), None])]);
        assert_eq!(Minima(&rows).headers(), ["one\nsite", "10 ms\n100 Mbit/s"]);
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let row = row(2, 1, Some(LINK), Some(0.25));
        let text = serde_json::to_string(&row).expect("it can be written");
        let read: Row = serde_json::from_str(&text).expect("it can be read");
        assert_eq!((read.place, read.seconds), (row.place, row.seconds));
    }
}
