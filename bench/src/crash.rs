//! The cost of a crash: knary at several sites while a node, a site or the master is killed, for each way to repair.
//!
//! For each run: how much longer it took than it would have at best with those who were left, when the death was known, and how
//! many leaves were done again. Dead nodes tell nothing, so each leaf is counted in a file when it is done.
//!
//! With `running` and `finished` a neighbour of the dead node has copies of what that had by its last period: its own results and
//! those that others had given it. So at most what all workers did in a period is done again. Neighbours are of the same site
//! as a rule: when all of a site dies, most copies die too.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use satin::observe::events::Event;
use satin_cli::{
    faults::{Fault, What, Who},
    pool::Plan,
    sites::Sites,
    units,
    wan::WanLink,
};
use serde::{Deserialize, Serialize};

use crate::{
    chart,
    figures::{ideal, median, median_of_some},
    files::Files,
    launch::{Knary, Launcher, Repair, Work},
};

/// knary while nodes are killed: extra time, time until it is known, leaves done again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The ideal is the time of the undisturbed run, stretched from the kill on for the workers that are gone. Leaves that were done \
more than once are counted by knary itself, on all nodes, dead ones included. When a node dies alone, its neighbour has copies of \
the results that it had by its last period (--every), its own and those that others gave it: what all workers did in a period is \
to be done again at most. A run that is not much longer than a period says nothing about that.

Examples:
  bench crash --svg crash.svg                            # all: 40 minutes
  bench crash --compute                                  # leaves that compute
  bench crash --sites 2x2 --depth 4 --runs 1 --at 50     # a short one
  bench crash --repair running --victim master
  bench crash --repair running --every 1s                # copies each second
  bench crash --from crash.jsonl --svg crash.svg         # draws them again")]
pub struct Args {
    /// Sites and their nodes, with one worker each
    #[arg(long, default_value = "4x4")]
    sites: Sites,
    /// Round-trip time between sites
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = units::duration)]
    rtt: Duration,
    /// Treatment of the jobs of nodes that are gone
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Repair::Running, Repair::Finished, Repair::Naive])]
    repair: Vec<Repair>,
    /// Nodes that are killed
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Victim::Node, Victim::Site, Victim::Master])]
    victim: Vec<Victim>,
    /// Moments of the kill, in percent of the time of the undisturbed run
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [25, 50, 75], value_parser = clap::value_parser!(u32).range(1..100))]
    at: Vec<u32>,
    #[command(flatten)]
    work: Work,
    /// Milliseconds that a leaf takes [default: 20, or 2 if it computes]
    #[arg(long, value_name = "MS")]
    leaf: Option<u32>,
    /// Period in which copies of finished results go to neighbours: SATIN_STORE_EVERY
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::duration)]
    every: Duration,
    /// Runs of each kind; the medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    #[command(flatten)]
    files: Files,
}

/// The nodes that are killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Victim {
    /// The last node of the last site
    Node,
    /// All nodes of the last site
    Site,
    /// The node that runs `main`
    Master,
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Victim::Node => "node",
            Victim::Site => "site",
            Victim::Master => "master",
        }
    }
}

/// A line of the results: medians of some runs, each column for itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    bench: String,
    case: String,
    #[serde(rename = "impl")]
    repair: Repair,
    sites: String,
    rtt_ms: f64,
    victim: Victim,
    /// Moment of the kill, in percent of the undisturbed time.
    at_percent: u32,
    runs: usize,
    /// Run time of the undisturbed run, in seconds.
    undisturbed_s: f64,
    /// When it was killed, since the root job was called.
    killed_s: f64,
    seconds: f64,
    ideal_s: f64,
    /// Time beyond the ideal, in seconds.
    extra_s: f64,
    /// Extra time in percent of the undisturbed time.
    extra_percent: f64,
    /// Time from the kill until the master said `dead`, of the last of the victims, in seconds.
    detection_s: Option<f64>,
    /// Time from the kill until another node ran `main`, in seconds.
    main_again_s: Option<f64>,
    /// Period of the copies, in seconds.
    every_s: Option<f64>,
    /// Leaves that were done more than once.
    again: f64,
    /// The time that a worker takes for these, in seconds.
    again_s: Option<f64>,
    /// The most that is allowed of that; `None` if copies may have died with the node.
    again_most_s: Option<f64>,
    /// Leaves that were done again, in percent of the leaves of the tree.
    again_percent: f64,
}

/// The work that may be done again beyond a period and a leaf of each worker, in seconds of a worker.
const AGAIN_SLACK_S: f64 = 1.0;

/// The figures of a run.
struct Figures {
    killed_s: f64,
    seconds: f64,
    ideal_s: f64,
    detection_s: Option<f64>,
    main_again_s: Option<f64>,
    again: f64,
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> Result<()> {
    let (rows, failed) = match args.files.earlier()? {
        Some(rows) => (rows, 0),
        None => measure(args)?,
    };
    println!("{}", table(&rows));
    for verdict in verdicts(&rows) {
        println!("{verdict}");
    }
    args.files.write(&rows, draw)?;
    ensure!(failed == 0, "{failed} runs failed, and are not counted");
    Ok(())
}

/// A kind of run: how it repairs, and whom the kill hits.
#[derive(Clone, Copy)]
struct Kind {
    repair: Repair,
    victim: Victim,
    at: u32,
}

/// The rows, and how many runs failed.
fn measure(args: &Args) -> Result<(Vec<Row>, usize)> {
    ensure!(
        args.sites.nodes() > 1,
        "--sites: somebody must be left when a node is killed"
    );
    ensure!(
        args.sites.0.len() > 1 || !args.victim.contains(&Victim::Site),
        "--sites: somebody must be left when a site is killed; name two sites, or add --victim node,master"
    );
    let launcher = args.work.launcher()?;
    let ms = args.leaf.unwrap_or(if args.work.compute { 2 } else { 20 });
    let knary = args.work.build(&launcher, ms)?;
    let bench = Bench {
        args,
        launcher,
        knary,
    };

    let undisturbed = bench.undisturbed()?;
    let mut kinds = Vec::new();
    for &repair in &args.repair {
        for &victim in &args.victim {
            kinds.extend(args.at.iter().map(|&at| Kind { repair, victim, at }));
        }
    }
    let all = kinds.len() * args.runs as usize;
    let mut results: Vec<Vec<Figures>> = kinds.iter().map(|_| Vec::new()).collect();
    let (mut number, mut failed) = (0, 0);
    // Round by round, so that what else this machine does hits all kinds alike.
    for _ in 0..args.runs {
        for (kind, results) in kinds.iter().zip(&mut results) {
            number += 1;
            let Kind { repair, victim, at } = kind;
            let what = format!(
                "[{number}/{all}] {repair}, {} killed at {at} %",
                victim.name()
            );
            match bench.crash(*kind, undisturbed) {
                Ok(figures) => {
                    eprintln!("{}: {}", what, figures.in_words());
                    results.push(figures);
                }
                Err(error) => {
                    bench.launcher.go_on()?;
                    eprintln!("{what}: {error:#}");
                    failed += 1;
                }
            }
        }
    }
    let rows = kinds
        .iter()
        .zip(&results)
        .filter(|(_, results)| !results.is_empty())
        .map(|(kind, results)| bench.row(*kind, undisturbed, results));
    Ok((rows.collect(), failed))
}

struct Bench<'a> {
    args: &'a Args,
    launcher: Launcher,
    knary: Knary,
}

impl Bench<'_> {
    fn link(&self) -> Option<WanLink> {
        let rtt = self.args.rtt;
        (!rtt.is_zero() && self.args.sites.0.len() > 1).then(|| WanLink {
            rtt,
            ..WanLink::default()
        })
    }

    fn plan(&self, repair: Repair) -> Plan {
        let mut plan = self.knary.plan(self.args.sites.clone(), repair);
        plan.wan = self.link();
        let every = self.args.every.as_secs_f64().to_string();
        plan.env.push(("SATIN_STORE_EVERY".into(), every.into()));
        plan
    }

    /// Seconds of a run that nothing happens to.
    fn undisturbed(&self) -> Result<f64> {
        let times = (0..self.args.runs).map(|_| {
            let plan = self.plan(Repair::Running);
            let (story, done) = self.knary.run(&self.launcher, plan, |_| Ok(()))?;
            let seconds = story.seconds();
            eprintln!("undisturbed: {seconds:.2} s");
            if done > self.knary.leaves() {
                eprintln!(
                    "{} leaves were done again though nothing happened: is this machine too busy?",
                    done - self.knary.leaves()
                );
            }
            Ok(seconds)
        });
        Ok(median(times.collect::<Result<Vec<_>>>()?))
    }

    fn crash(&self, kind: Kind, undisturbed: f64) -> Result<Figures> {
        let at = Duration::from_secs_f64(undisturbed * f64::from(kind.at) / 100.0);
        let victims = self.victims(kind.victim)?;
        let mut plan = self.plan(kind.repair);
        plan.faults = victims
            .iter()
            .map(|name| Fault {
                at,
                what: What::Kill(Who::Named(name.clone())),
            })
            .collect();
        let (story, done) = self.knary.run(&self.launcher, plan, |_| Ok(()))?;

        let nodes = self.args.sites.nodes();
        let began_ms = story.all_in_ms(nodes as usize);
        let began_ms = began_ms.context("not all nodes came in")?;
        let killed_ms = began_ms + at.as_millis() as u64;
        let killed_s = story.since_start(killed_ms);
        let seconds = story.seconds();
        ensure!(
            (0.0..seconds).contains(&killed_s),
            "killed {killed_s:.2} s after the start of a run of {seconds:.2} s: it does not count"
        );
        let left = self.knary.at_once(nodes - victims.len() as u32);
        let phases = [(0.0, self.knary.at_once(nodes)), (killed_s, left)];
        let since_kill = |at_ms: u64| story.since_start(at_ms) - killed_s;
        let dead = |event: &Event| matches!(event, Event::Dead { .. });
        Ok(Figures {
            killed_s,
            seconds,
            ideal_s: ideal(undisturbed, &phases),
            detection_s: story.last_of_firsts(&victims, dead).map(since_kill),
            main_again_s: story.main_again_ms().map(since_kill),
            again: (done - self.knary.leaves()) as f64,
        })
    }

    /// The names of the victims.
    fn victims(&self, victim: Victim) -> Result<Vec<String>> {
        let sites = &self.args.sites.0;
        let (first, last) = sites.first().zip(sites.last()).context("no sites")?;
        Ok(match victim {
            Victim::Node => vec![format!("{}-{}", last.name, last.nodes - 1)],
            Victim::Site => (0..last.nodes)
                .map(|number| format!("{}-{number}", last.name))
                .collect(),
            Victim::Master => vec![format!("{}-0", first.name)],
        })
    }

    fn row(&self, kind: Kind, undisturbed_s: f64, results: &[Figures]) -> Row {
        let middle = |figure: fn(&Figures) -> f64| median(results.iter().map(figure));
        let extra_s = middle(|run| run.seconds - run.ideal_s);
        let again = middle(|run| run.again);
        let case = match self.args.work.compute {
            true => "knary computing",
            false => "knary sleeping",
        };
        let every_s = self.args.every.as_secs_f64();
        let leaf_s = self.knary.leaf().as_secs_f64();
        let workers = f64::from(self.args.sites.nodes());
        let sites = self.args.sites.0.iter();
        let sites: Vec<String> = sites
            .map(|site| format!("{}:{}", site.name, site.nodes))
            .collect();
        Row {
            bench: "crash".into(),
            case: case.into(),
            repair: kind.repair,
            sites: sites.join(","),
            rtt_ms: self.args.rtt.as_secs_f64() * 1000.0,
            victim: kind.victim,
            at_percent: kind.at,
            runs: results.len(),
            undisturbed_s,
            killed_s: middle(|run| run.killed_s),
            seconds: middle(|run| run.seconds),
            ideal_s: middle(|run| run.ideal_s),
            extra_s,
            extra_percent: extra_s / undisturbed_s * 100.0,
            detection_s: median_of_some(results.iter().map(|run| run.detection_s)),
            main_again_s: median_of_some(results.iter().map(|run| run.main_again_s)),
            every_s: Some(every_s),
            again,
            again_s: Some(again * leaf_s),
            again_most_s: (kind.victim != Victim::Site && kind.repair != Repair::Naive)
                .then_some(workers * (every_s + leaf_s) + AGAIN_SLACK_S),
            again_percent: again / self.knary.leaves() as f64 * 100.0,
        }
    }
}

impl Figures {
    fn in_words(&self) -> String {
        format!(
            "{:.2} s, ideal {:.2} s, known after {} s, {} leaves again",
            self.seconds,
            self.ideal_s,
            or_dash(self.detection_s),
            self.again
        )
    }
}

fn or_dash(seconds: Option<f64>) -> String {
    seconds.map_or("-".into(), |seconds| format!("{seconds:.2}"))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "repair",
        "killed",
        "at %",
        "seconds",
        "ideal",
        "extra s",
        "extra %",
        "known after s",
        "main again s",
        "leaves again",
        "%",
    ]);
    for row in rows {
        table.add_row([
            row.repair.to_string(),
            row.victim.name().into(),
            row.at_percent.to_string(),
            format!("{:.2}", row.seconds),
            format!("{:.2}", row.ideal_s),
            format!("{:.2}", row.extra_s),
            format!("{:.1}", row.extra_percent),
            or_dash(row.detection_s),
            or_dash(row.main_again_s),
            format!("{:.0}", row.again),
            format!("{:.1}", row.again_percent),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The requirements, and whether they are met. Requirements on figures that were not measured are left out.
fn verdicts(rows: &[Row]) -> Vec<String> {
    /// Greatest extra time, as a share of the run.
    const EXTRA: f64 = 0.05;
    const KNOWN_S: f64 = 3.0;
    const MAIN_AGAIN_S: f64 = 5.0;
    let mut said = Vec::new();
    let mut say = |what: String, met: bool| {
        said.push(format!("{what}: {}", if met { "met" } else { "missed" }));
    };
    let running = |victim: Victim| {
        let is_it = move |row: &&Row| row.repair == Repair::Running && row.victim == victim;
        rows.iter().filter(is_it)
    };
    for row in running(Victim::Node) {
        let Some(detection) = row.detection_s else {
            continue;
        };
        let most = detection + EXTRA * row.undisturbed_s;
        say(
            format!(
                "running, a node killed at {} %: extra {:.2} s, required at most {most:.2} s (detection and 5 % of the run)",
                row.at_percent, row.extra_s
            ),
            row.extra_s <= most,
        );
    }
    for row in [Victim::Node, Victim::Master].into_iter().flat_map(running) {
        let Some((again, most)) = row.again_s.zip(row.again_most_s) else {
            continue;
        };
        say(
            format!(
                "running, {} killed at {} %: {again:.2} s of a worker done again, required at most {most:.2} s (workers x (period + \
                 leaf) + 1 s)",
                row.victim.name(),
                row.at_percent,
            ),
            again <= most,
        );
    }
    // Deaths of single machines: a whole site is found out by fewer nodes, and has no such bound.
    let single = || rows.iter().filter(|row| row.victim != Victim::Site);
    if let Some(seconds) = single().filter_map(|row| row.detection_s).reduce(f64::max) {
        say(
            format!(
                "the death of a node is known after {seconds:.2} s at most, required {KNOWN_S} s"
            ),
            seconds <= KNOWN_S,
        );
    }
    if let Some(seconds) = single().filter_map(|row| row.main_again_s).reduce(f64::max) {
        say(
            format!("main runs again after {seconds:.2} s at most, required {MAIN_AGAIN_S} s"),
            seconds <= MAIN_AGAIN_S,
        );
    }
    let mean_again = |repair: Repair| {
        let of = rows.iter().filter(|row| row.repair == repair);
        let (count, sum) = of.fold((0, 0.0), |(count, sum), row| {
            (count + 1, sum + row.again_percent)
        });
        (count > 0).then(|| sum / f64::from(count))
    };
    let all = [Repair::Running, Repair::Finished, Repair::Naive].map(mean_again);
    if let [Some(running), Some(finished), Some(naive)] = all {
        say(
            format!(
                "leaves done again, mean of all rows: running {running:.1} %, finished {finished:.1} %, naive {naive:.1} %; required in this order"
            ),
            running < finished && finished < naive,
        );
    }
    said
}

type FigureOf = fn(&Row) -> f64;

/// A column of panels per victim: above the extra time, below the leaves done again, over the moment of the kill.
fn draw(path: &std::path::Path, rows: &[Row]) -> Result<()> {
    let victims: Vec<Victim> = [Victim::Node, Victim::Site, Victim::Master]
        .into_iter()
        .filter(|victim| rows.iter().any(|row| row.victim == *victim))
        .collect();
    let repairs: Vec<Repair> = [Repair::Running, Repair::Finished, Repair::Naive]
        .into_iter()
        .filter(|repair| rows.iter().any(|row| row.repair == *repair))
        .collect();
    let first = rows.first().context("no figures to draw")?;
    let of: [(&str, FigureOf); 2] = [
        ("extra time, % of the run", |row| row.extra_percent),
        ("leaves done again, %", |row| row.again_percent),
    ];
    let mut panels = Vec::new();
    let captions: Vec<String> = (victims.iter())
        .map(|victim| match victim {
            Victim::Node => "one node killed".to_owned(),
            Victim::Site => "one site killed".into(),
            Victim::Master => "the master killed".into(),
        })
        .collect();
    for (y, figure) in of {
        // The same scale for all victims.
        let least = rows.iter().map(figure).fold(0.0, f64::min);
        let most = rows.iter().map(figure).fold(1.0, f64::max);
        for (victim, caption) in victims.iter().zip(&captions) {
            // A line for each way to repair, though there may be no figures: each has its colour in all panels.
            let lines = repairs.iter().map(|repair| {
                let is_of = |row: &&Row| row.victim == *victim && row.repair == *repair;
                let points = rows.iter().filter(is_of);
                chart::Line {
                    name: repair.to_string(),
                    points: points
                        .map(|row| (f64::from(row.at_percent), figure(row)))
                        .collect(),
                }
            });
            let axes = chart::Axes {
                title: caption,
                x: "killed at, % of the run",
                y,
                y_range: least * 1.1..most * 1.1,
                legend: chart::Legend::UpperLeft,
            };
            panels.push((axes, lines.collect()));
        }
    }
    let title = format!("{} at {}: what a crash costs", first.case, first.sites);
    chart::draw_grid(path, &title, victims.len(), &panels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(repair: Repair, victim: Victim, extra_s: f64, again_percent: f64) -> Row {
        Row {
            bench: "crash".into(),
            case: "knary sleeping".into(),
            repair,
            sites: "s0:4,s1:4".into(),
            rtt_ms: 10.0,
            victim,
            at_percent: 50,
            runs: 1,
            undisturbed_s: 20.0,
            killed_s: 10.0,
            seconds: 20.0 + extra_s,
            ideal_s: 20.0,
            extra_s,
            extra_percent: extra_s * 5.0,
            detection_s: Some(2.0),
            main_again_s: (victim == Victim::Master).then_some(5.5),
            every_s: Some(1.0),
            again: again_percent * 100.0,
            again_s: Some(again_percent * 2.0),
            again_most_s: (repair == Repair::Running).then_some(9.0),
            again_percent,
        }
    }

    #[test]
    fn requirements_are_judged_by_the_rows_they_are_about() {
        use Repair::{Finished, Naive, Running};
        let rows = [
            row(Running, Victim::Node, 2.9, 1.0),
            row(Running, Victim::Master, 9.0, 1.0),
            row(Finished, Victim::Node, 9.0, 4.0),
            row(Naive, Victim::Node, 9.0, 3.0),
        ];
        let said = verdicts(&rows);
        assert_eq!(said.len(), 6, "{said:?}");
        assert!(said[0].contains("at most 3.00 s") && said[0].ends_with(": met"));
        for again in &said[1..3] {
            let judged = again.contains("2.00 s of a worker") && again.contains("at most 9.00 s");
            assert!(judged && again.ends_with(": met"), "{again}");
        }
        assert!(said[3].contains("2.00 s at most") && said[3].ends_with(": met"));
        assert!(said[4].contains("5.50 s at most") && said[4].ends_with(": missed"));
        assert!(said[5].ends_with(": missed"), "naive did less again");
        assert!(
            verdicts(&rows[..1])
                .iter()
                .all(|line| !line.contains("naive"))
        );
        assert_eq!(verdicts(&[]), Vec::<String>::new());
    }

    #[test]
    fn rows_come_back_from_a_file_and_are_drawn() {
        let folder = tempfile::tempdir().expect("a folder");
        let (json, svg) = (folder.path().join("rows"), folder.path().join("svg"));
        let rows = [
            row(Repair::Running, Victim::Node, -0.1, 1.0),
            row(Repair::Naive, Victim::Master, 9.0, 30.0),
        ];
        crate::jsonl::write(&json, &rows).expect("written");
        let read: Vec<Row> = crate::jsonl::read(&json).expect("read");
        assert_eq!(format!("{read:?}"), format!("{rows:?}"));
        draw(&svg, &read).expect("drawn");
        let picture = std::fs::read_to_string(&svg).expect("a picture");
        for words in ["one node killed", "the master killed", "running", "naive"] {
            assert!(picture.contains(words), "{words}");
        }
        assert!(!picture.contains("one site killed"));
    }
}
