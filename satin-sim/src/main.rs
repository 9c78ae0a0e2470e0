//! `satin-sim`: how would a pool of that size do?

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use satin_runtime::node::{Policy, cluster::Shape};
use satin_sim::{Report, Settings, parse, run, sites};
use serde::Serialize;

/// Thousands of satin's nodes in one deterministic simulation.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    pool: Pool,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand)]
enum Command {
    /// The experiment of `bench -- sites`: policies and round trips side by side.
    Sites {
        /// On average over so many seeds.
        #[arg(long, default_value_t = 5)]
        runs: u64,
        #[command(flatten)]
        pool: Pool,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args)]
struct Pool {
    /// Nodes, over all sites.
    #[arg(long, default_value_t = 16)]
    nodes: u32,
    /// Sites.
    #[arg(long, default_value_t = 4)]
    sites: u32,
    /// Workers of each node.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Round trip between sites.
    #[arg(long, value_parser = parse::duration, default_value = "30ms")]
    rtt: Duration,
    /// Round trip within a site.
    #[arg(long, value_parser = parse::duration, default_value = "200us")]
    near_rtt: Duration,
    /// Between sites each way takes up to so much longer.
    #[arg(long, value_parser = parse::duration, default_value = "0s")]
    jitter: Duration,
    /// Bytes a second on each link between sites.
    #[arg(long)]
    rate: Option<u64>,
    /// crs, rs or mw.
    #[arg(long, value_parser = parse::policy, default_value = "crs")]
    policy: Policy,
    /// knary:WIDTH,HEIGHT[,SERIAL], uts:BRANCHING,HEIGHT, flat:JOBS or random:WIDTH,HEIGHT[,RACES].
    #[arg(long, value_parser = parse::shape, default_value = "knary:4,7")]
    shape: Shape,
    /// How long a leaf takes.
    #[arg(long, value_parser = parse::duration, default_value = "10ms")]
    leaf: Duration,
    /// How long an inner job takes before it spawns.
    #[arg(long, value_parser = parse::duration, default_value = "0s")]
    inner: Duration,
    /// Of everything random: the same seed, the same run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Output {
    /// Write the figures there too.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Pool {
    fn settings(&self) -> anyhow::Result<Settings> {
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
            seed: self.seed,
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
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    }
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Some(Command::Sites { runs, pool, output }) = &cli.command {
        let rows = sites::rows(&pool.settings()?, (*runs).max(1));
        print_rows(&rows);
        output.write(&rows)
    } else {
        let report = run(&cli.pool.settings()?);
        print_report(&report);
        cli.output.write(&report)
    }
}

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
    println!("{table}");
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
    println!("{table}");
}
