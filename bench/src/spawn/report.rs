//! The report of `bench spawn`: rows of figures, the table, and the requirements.

use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{Case, CaseName, Impl, Variant};

/// The figures of one implementation of one case on one number of threads; a line of the JSON file.
#[derive(Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    case: CaseName,
    #[serde(skip)]
    title: String,
    #[serde(rename = "impl")]
    implementation: Impl,
    threads: usize,
    /// Elapsed time by the number of calls, not multiplied by the threads.
    ns_per_spawn: f64,
    /// Median by the median of the sequential one; `null` in JSON if that was not measured.
    ratio_to_seq: Option<f64>,
    ms_median: f64,
    ms_min: f64,
    ms_max: f64,
}

/// The rows of one case, from the times of every variant's rounds.
pub fn rows(
    name: CaseName,
    case: &dyn Case,
    variants: &[Variant<'_>],
    times: &[Vec<Duration>],
) -> Vec<Row> {
    let spreads: Vec<Spread> = times.iter().map(|times| Spread::of(times)).collect();
    let seq_ms = variants
        .iter()
        .position(|variant| variant.implementation == Impl::Seq)
        .map(|seq| spreads[seq].median_ms);
    variants
        .iter()
        .zip(&spreads)
        .map(|(variant, spread)| Row {
            bench: "spawn",
            case: name,
            title: case.title(),
            implementation: variant.implementation,
            threads: variant.threads(),
            ns_per_spawn: spread.median_ms * 1e6 / case.calls() as f64,
            ratio_to_seq: seq_ms.map(|seq_ms| spread.median_ms / seq_ms),
            ms_median: spread.median_ms,
            ms_min: spread.min_ms,
            ms_max: spread.max_ms,
        })
        .collect()
}

struct Spread {
    min_ms: f64,
    median_ms: f64,
    max_ms: f64,
}

impl Spread {
    /// The spread of at least one time; the median of an even number is the mean of the two in the middle.
    fn of(times: &[Duration]) -> Self {
        let mut ms: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let last = ms.len() - 1;
        Self {
            min_ms: ms[0],
            median_ms: (ms[last / 2] + ms[ms.len() / 2]) / 2.0,
            max_ms: ms[last],
        }
    }
}

/// The rows as a table for people.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "case",
        "impl",
        "threads",
        "ms median",
        "min..max",
        "ns per spawn",
        "ratio to seq",
    ]);
    for row in rows {
        table.add_row([
            row.title.clone(),
            name_of(row.implementation),
            row.threads.to_string(),
            format!("{:.2}", row.ms_median),
            format!("{:.2}..{:.2}", row.ms_min, row.ms_max),
            format!("{:.2}", row.ns_per_spawn),
            row.ratio_to_seq
                .map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The requirements of the project as lines of pass or miss, as far as what they need was measured.
pub fn requirements(rows: &[Row]) -> String {
    let all = Requirement::all();
    let lines: Vec<String> = all.iter().filter_map(|r| r.judge(rows)).collect();
    let left_out = match all.len() - lines.len() {
        0 => String::new(),
        n => format!(" ({n} of {} not measured in this run)", all.len()),
    };
    format!("Requirements{left_out}\n{}", lines.concat())
}

/// Satin's median, divided by a rival's on as many threads (on one, if it is sequential), has a limit.
struct Requirement {
    case: CaseName,
    threads: usize,
    rival: Impl,
    at_most: f64,
    /// The goal beyond that.
    aim: Option<f64>,
}

impl Requirement {
    fn all() -> Vec<Self> {
        use CaseName::{Fib, Flat, Nqueens, Quicksort, Tree};
        let new = |case, threads, rival, at_most, aim| Self {
            case,
            threads,
            rival,
            at_most,
            aim,
        };
        let mut all = vec![
            new(Fib, 1, Impl::Seq, 1.6, Some(1.26)),
            new(Fib, 2, Impl::Seq, 0.8, None),
            new(Nqueens, 1, Impl::Seq, 1.35, None),
        ];
        // Faster, but for the coarse leaves, where no library can be faster: there as fast, within 2 %.
        for (case, at_most) in [
            (Fib, 1.0),
            (Nqueens, 1.0),
            (Tree, 1.0),
            (Quicksort, 1.0),
            (Flat, 1.02),
        ] {
            for threads in [1, 2] {
                for rival in [Impl::Rayon, Impl::Chili] {
                    all.push(new(case, threads, rival, at_most, None));
                }
            }
        }
        all
    }

    /// The line that says whether this holds; `None` if one of the two was not measured.
    fn judge(&self, rows: &[Row]) -> Option<String> {
        let rival_threads = match self.rival {
            Impl::Seq => 1,
            _ => self.threads,
        };
        let median_ms = |implementation, threads| {
            rows.iter()
                .find(|row| {
                    (row.case, row.implementation, row.threads)
                        == (self.case, implementation, threads)
                })
                .map(|row| row.ms_median)
        };
        let ratio = median_ms(Impl::Satin, self.threads)? / median_ms(self.rival, rival_threads)?;
        let verdict = if ratio <= self.at_most {
            "pass"
        } else {
            "miss"
        };
        let aim = self
            .aim
            .map_or_else(String::new, |aim| format!(", aim {aim:.2}"));
        Some(format!(
            "  {verdict}  {:<9}  satin on {} / {:>5} on {rival_threads}  {ratio:6.3}  (at most {:.2}{aim})\n",
            name_of(self.case),
            self.threads,
            name_of(self.rival),
            self.at_most,
        ))
    }
}

/// A case's or an implementation's name as on the command line.
fn name_of(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .expect("no name is skipped on the command line")
        .get_name()
        .to_owned()
}
