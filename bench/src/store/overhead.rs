//! The cost when nothing dies: programs with nothing kept, and with more and more of it.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::ValueEnum;
use satin_cli::sites::Sites;
use serde::{Deserialize, Serialize};

use super::{Bench, Panels, keeping::Keeping, show, table, verdict};
use crate::{
    chart,
    figures::Spread,
    programs::{Case, LIMIT, Program, Sizes},
};

/// A timed run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    bench: String,
    case: Case,
    nodes: u32,
    round: u32,
    #[serde(flatten)]
    keeping: Keeping,
    seconds: f64,
}

/// The ways that are compared; the first is what the others are compared with.
const WAYS: [Keeping; 5] = [
    Keeping::Off,
    Keeping::Harvest,
    tic(10.0),
    tic(1.0),
    tic(0.0),
];

const fn tic(every_s: f64) -> Keeping {
    Keeping::Store {
        every_s,
        grain_ms: super::keeping::GRAIN_MS,
    }
}

/// The numbers of nodes that were measured.
fn nodes(rows: &[&Row]) -> BTreeSet<u32> {
    rows.iter().map(|row| row.nodes).collect()
}

/// Measures all programs.
pub fn measure(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let args = bench.args;
    let mut sizes = Sizes {
        qap: args.qap("../satin-cli/tests/data/nug15.dat"),
        queens: 15,
        ..Sizes::default()
    };
    if args.quick {
        sizes = Sizes {
            fib: 38,
            queens: 13,
            tree: "T1".into(),
            deep: "T3".into(),
            levels: 5,
            jobs: 300_000,
            ..sizes
        };
    }
    let cases = match args.case[..] {
        [] => Case::value_variants(),
        _ => &args.case,
    };
    let programs = (cases.iter())
        .map(|case| Program::build(&bench.launcher, *case, &sizes))
        .collect::<Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for round in 1..=args.rounds() {
        for program in &programs {
            for &nodes in &args.nodes {
                // Each round another way goes first.
                let first = round as usize % WAYS.len();
                for keeping in WAYS.into_iter().cycle().skip(first).take(WAYS.len()) {
                    rows.push(timed(bench, program, nodes, round, keeping)?);
                }
            }
        }
    }
    Ok(rows)
}

fn timed(
    bench: &Bench<'_>,
    program: &Program,
    nodes: u32,
    round: u32,
    keeping: Keeping,
) -> Result<Row> {
    let sites = Sites::alike(1, nodes);
    let plan = keeping.plan(&bench.stores, program.words(), sites)?;
    let seconds = bench.launcher.run(plan, LIMIT, |_| Ok(()))?.seconds();
    eprintln!(
        "[overhead, round {round} of {}] {} on {nodes}, {keeping}: {seconds:.3} s",
        bench.args.rounds(),
        program.case.name()
    );
    Ok(Row {
        bench: "store".into(),
        case: program.case,
        nodes,
        round,
        keeping,
        seconds,
    })
}

/// The runs of a program.
fn runs(rows: &[&Row], case: Case, nodes: u32, keeping: Keeping) -> Vec<f64> {
    let is_it = |row: &&&Row| (row.case, row.nodes, row.keeping) == (case, nodes, keeping);
    let of = rows.iter().filter(is_it);
    of.map(|row| row.seconds).collect()
}

/// The shortest run, or that in the middle, in terms of the same of those without anything kept.
fn ratio(
    rows: &[&Row],
    case: Case,
    nodes: u32,
    keeping: Keeping,
    of: impl Fn(Spread) -> f64,
) -> Option<f64> {
    let figure = |keeping| {
        let runs = runs(rows, case, nodes, keeping);
        (!runs.is_empty()).then(|| of(Spread::of(runs)))
    };
    Some(figure(keeping)? / figure(Keeping::Off)?)
}

fn shortest(runs: Spread) -> f64 {
    runs.min
}

fn middle(runs: Spread) -> f64 {
    runs.median
}

/// The greatest ratio that is allowed, if any is.
fn most(case: Case, keeping: Keeping) -> Option<f64> {
    let store = match keeping {
        Keeping::Harvest => 0.0,
        Keeping::Store { every_s: 10.0, .. } => 1.01,
        Keeping::Store { every_s: 0.0, .. } => 1.025,
        Keeping::Off | Keeping::Store { .. } => return None,
    };
    Some(case.most().max(store))
}

/// Prints the ratios; the targets are those for one worker.
pub fn report(rows: &[&Row], said: &mut Vec<String>) {
    let names = WAYS.map(|keeping| keeping.to_string());
    let mut head = vec!["program", "nodes", "rounds", "off, s"];
    head.extend(names[1..].iter().map(String::as_str));
    let mut ratios = table(&head);
    for nodes in nodes(rows) {
        for case in Case::value_variants().iter().copied() {
            let off = runs(rows, case, nodes, Keeping::Off);
            if off.is_empty() {
                continue;
            }
            let cells = WAYS[1..].iter().map(|keeping| {
                let shortest = ratio(rows, case, nodes, *keeping, shortest)?;
                let middle = ratio(rows, case, nodes, *keeping, middle)?;
                Some(format!("{shortest:.3} ({middle:.3})"))
            });
            let cells = cells.map(|cell| cell.unwrap_or("-".into()));
            let first = [
                case.name().to_owned(),
                nodes.to_string(),
                off.len().to_string(),
                format!("{:.3}", Spread::of(off).min),
            ];
            ratios.add_row(first.into_iter().chain(cells));
            for keeping in WAYS {
                if nodes == 1
                    && let Some(most) = most(case, keeping)
                    && let Some(shortest) = ratio(rows, case, nodes, keeping, shortest)
                    && let Some(middle) = ratio(rows, case, nodes, keeping, middle)
                {
                    let what = format!(
                        "{}, one worker, {keeping}: {shortest:.4} of the time with nothing kept (medians: {middle:.4}), required \
                         at most {most}",
                        case.name()
                    );
                    verdict(said, what, shortest <= most);
                }
            }
        }
    }
    show(
        "overhead: the shortest run in terms of the shortest with nothing kept, and (the median in terms of the median)",
        ratios,
        1,
    );
}

/// A panel for each number of nodes: the ratios by program.
pub fn draw(rows: &[&Row], panels: &mut Panels) {
    for nodes in nodes(rows) {
        let points = WAYS[1..].iter().flat_map(|keeping| {
            let cases = Case::value_variants().iter().zip(1..);
            cases.filter_map(move |(case, number)| {
                let ratio = ratio(rows, *case, nodes, *keeping, middle)?;
                Some((keeping.to_string(), f64::from(number), ratio))
            })
        });
        let title = match nodes {
            1 => "overhead, one worker",
            _ => "overhead, two nodes",
        };
        let words = [
            title,
            "1 fib, 2 uts, 3 nqueens, 4 qap, 5 deep, 6 knary, 7 flow, 8 flat",
            "median over that with nothing kept",
        ];
        panels.add(words, 0.98..1.04, chart::lines(points));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minima_are_compared_with_those_of_the_same_program_and_nodes() {
        let row = |case, nodes, keeping, seconds| Row {
            bench: "store".into(),
            case,
            nodes,
            round: 1,
            keeping,
            seconds,
        };
        let sel = Keeping::every(0.0);
        let rows = [
            row(Case::Fib, 1, Keeping::Off, 2.0),
            row(Case::Fib, 1, Keeping::Off, 3.0),
            row(Case::Fib, 2, Keeping::Off, 1.0),
            row(Case::Uts, 1, Keeping::Off, 1.0),
            row(Case::Fib, 1, sel, 2.1),
            row(Case::Fib, 1, sel, 7.9),
            row(Case::Fib, 1, Keeping::every(10.0), 2.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(ratio(&rows, Case::Fib, 1, sel, shortest), Some(1.05));
        assert_eq!(ratio(&rows, Case::Fib, 1, sel, middle), Some(2.0));
        assert_eq!(ratio(&rows, Case::Uts, 1, sel, shortest), None);
        let mut said = Vec::new();
        report(&rows, &mut said);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("fib, one worker, TIC 10 s") && said[0].ends_with(": met"));
        assert!(said[1].contains("SEL: 1.0500") && said[1].ends_with(": missed"));
    }
}
