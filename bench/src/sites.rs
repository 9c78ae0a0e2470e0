//! The cost of slow links: knary with sleeping leaves at four sites of four nodes, emulated on this machine by
//! `satin run`, for each steal policy; beside it a site of sixteen nodes, and the ideal.
//!
//! Leaves sleep, so that sixteen workers need no sixteen cores: the waiting of nodes for each other is measured.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use satin_cli::build;
use serde::{Deserialize, Serialize};

use crate::{chart, jsonl, launch};

/// knary at 4 sites x 4 nodes: run time over the ideal and over one site of 16, for each steal policy.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Round trips between sites, in milliseconds
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10, 30, 100])]
    rtt: Vec<u32>,
    /// Steal policies
    #[arg(long, value_delimiter = ',', default_values_t = ["crs".to_owned(), "rs".into(), "mw".into()])]
    policy: Vec<String>,
    /// Levels of the tree, of width 5: 6 levels are 15,625 leaves
    #[arg(long, default_value_t = 6)]
    depth: u32,
    /// Milliseconds that a leaf sleeps
    #[arg(long, default_value_t = 10)]
    leaf: u32,
    /// Runs of each kind; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also write the figures to this file, as JSON Lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the figures to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw the figures of the simulator too, from the file that `satin-sim sites --json` wrote
    #[arg(long, value_name = "FILE", requires = "svg")]
    simulated: Option<PathBuf>,
    /// Measure nothing: draw the figures that an earlier run wrote by --json
    #[arg(long, value_name = "FILE", requires = "svg")]
    from: Option<PathBuf>,
}

const WIDTH: u32 = 5;
const NODES: u32 = 16;

/// A line of the results.
#[derive(Serialize, Deserialize, Clone)]
pub struct Row {
    bench: String,
    case: String,
    #[serde(rename = "impl")]
    policy: String,
    rtt_ms: u32,
    seconds: f64,
    efficiency: f64,
    vs_one_site: f64,
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let (Some(file), Some(svg)) = (&args.from, &args.svg) {
        let rows: Vec<Row> = jsonl::read(file)?;
        return draw(svg, &rows, args.simulated.as_deref());
    }
    let programs = Programs::build()?;
    let ideal = f64::from(WIDTH.pow(args.depth)) * f64::from(args.leaf) / 1000.0 / f64::from(NODES);
    let measure = |sites: &str, rtt: u32, policy: &str| -> anyhow::Result<f64> {
        let mut times = (0..args.rounds)
            .map(|_| programs.knary(args, sites, rtt, policy))
            .collect::<anyhow::Result<Vec<_>>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    };
    let one_site = measure("1x16", 0, "crs")?;
    println!(
        "ideal {ideal:.2} s; one site of {NODES} nodes {one_site:.2} s, {:.3} of the ideal speed",
        ideal / one_site
    );
    let mut table = comfy_table::Table::new();
    table.set_header([
        "policy",
        "round trip ms",
        "seconds",
        "of ideal",
        "of one site",
    ]);
    let mut rows = Vec::new();
    for policy in &args.policy {
        for &rtt in &args.rtt {
            let seconds = measure("4x4", rtt, policy)?;
            let row = Row {
                bench: "sites".into(),
                case: "knary".into(),
                policy: policy.clone(),
                rtt_ms: rtt,
                seconds,
                efficiency: ideal / seconds,
                vs_one_site: one_site / seconds,
            };
            eprintln!(
                "{policy} {rtt} ms: {seconds:.2} s, {:.3} of one site",
                row.vs_one_site
            );
            table.add_row([
                policy.clone(),
                rtt.to_string(),
                format!("{seconds:.2}"),
                format!("{:.3}", row.efficiency),
                format!("{:.3}", row.vs_one_site),
            ]);
            rows.push(row);
        }
    }
    println!("{table}");
    println!("required of crs, of one site's speed: 0.97 at 10 ms, 0.90 at 100 ms");
    if let Some(path) = &args.json {
        jsonl::write(path, &rows)?;
    }
    if let Some(path) = &args.svg {
        draw(path, &rows, args.simulated.as_deref())?;
    }
    Ok(())
}

/// The programs under test, built for release beside this one.
struct Programs {
    satin: PathBuf,
    knary: PathBuf,
}

impl Programs {
    fn build() -> anyhow::Result<Programs> {
        let here = std::env::current_exe().context("cannot tell where this program lies")?;
        let release = here.parent().context("this program lies in no folder")?;
        for what in [
            ["-p", "satin-cli", "--bin", "satin"],
            ["-p", "satin-examples", "--example", "knary"],
        ] {
            let status = build::cargo()
                .args(["build", "--release", "--quiet"])
                .args(what)
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .context("cannot start cargo")?;
            ensure!(status.success(), "cargo build {} failed", what.join(" "));
        }
        let (satin, knary) = (
            release.join("satin"),
            release.join("examples").join("knary"),
        );
        for program in [&satin, &knary] {
            ensure!(
                program.exists(),
                "{} is not where this program is: start the bench by `cargo run --release -p bench -- sites`",
                program.display()
            );
        }
        Ok(Programs { satin, knary })
    }

    /// Seconds of one run, as its master says.
    fn knary(&self, args: &Args, sites: &str, rtt: u32, policy: &str) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.satin);
        command.args(["run", "--sites", sites, "--threads", "1", "--steal", policy]);
        if rtt > 0 {
            command.arg("--wan-rtt").arg(format!("{rtt}ms"));
        }
        command.arg("--").arg(&self.knary).arg("--sleep");
        command.args([args.depth, WIDTH, args.leaf * 1000].map(|number| number.to_string()));
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start satin run")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("satin run failed ({}):\n{text}", output.status);
        }
        launch::told_seconds(&text)
    }
}

/// Speed over the round trip, a line per policy; simulated ones dashed.
fn draw(path: &Path, rows: &[Row], simulated: Option<&Path>) -> anyhow::Result<()> {
    let mut lines = chart::lines(rows.iter().map(|row| {
        let name = format!("{} measured", row.policy);
        (name, f64::from(row.rtt_ms), row.efficiency)
    }));
    if let Some(file) = simulated {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let mut points = Vec::new();
        let all: Vec<serde_json::Value> = serde_json::from_str(&text)
            .with_context(|| format!("{}: not what satin-sim writes", file.display()))?;
        for row in all {
            let point = (
                row["impl"].as_str(),
                row["rtt_ms"].as_f64(),
                row["efficiency"].as_f64(),
            );
            let (Some(policy), Some(rtt), Some(efficiency)) = point else {
                bail!(
                    "{}: a row without impl, rtt_ms or efficiency",
                    file.display()
                );
            };
            points.push((format!("{policy} simulated"), rtt, efficiency));
        }
        lines.extend(chart::lines(points));
    }
    chart::draw(
        path,
        &chart::Axes {
            title: "knary, 4 sites x 4 nodes: speed over the ideal",
            x: "round trip between sites, ms",
            y: "speed / ideal",
            y_range: 0.0..1.05,
            legend: chart::Legend::LowerLeft,
        },
        &lines,
    )
}
