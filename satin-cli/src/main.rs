//! The command `satin`, which runs programs on pools.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use satin_cli::coded;

mod commands;

/// Runs programs written with satin on many machines, and tries them out on one
#[derive(Parser)]
#[command(version, propagate_version = true, max_term_width = 110)]
#[command(after_help = "\
Examples:
  satin run --sites 2x2 --wan-rtt 30ms --example fib -- 42
  satin launch --hosts hosts.toml -- ./program 42
  satin keygen pool.pem
  satin node --listen 0.0.0.0:7777 --credential pool.pem -- ./program 42
  satin node --join 192.0.2.7:7777 --credential pool.pem -- ./program 42
  satin status --join 192.0.2.7:7777 --credential pool.pem
  satin dashboard --join 192.0.2.7:7777 --credential pool.pem
  satin log --follow --join 192.0.2.7:7777 --credential pool.pem
  satin drain --site delft --join 192.0.2.7:7777 --credential pool.pem
  satin stop --join 192.0.2.7:7777 --credential pool.pem
  satin runs ls --store file:/shared/store
  satin store --dir /data --listen 0.0.0.0:7800 --credential pool.pem
  satin explain S0309")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Run),
    Launch(commands::launch::LaunchCommand),
    K8s(commands::k8s::K8s),
    Node(commands::node::NodeCommand),
    Status(commands::status::Status),
    Top(commands::top::Top),
    Dashboard(commands::dashboard::DashboardCommand),
    Log(commands::log::Log),
    Drain(commands::drain::Drain),
    Stop(commands::stop::Stop),
    Keygen(commands::keygen::Keygen),
    Runs(commands::runs::RunsCommand),
    Store(commands::store::Store),
    Explain(commands::explain::Explain),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(run) => run.run(),
        Command::Launch(launch) => launch.run(),
        Command::K8s(k8s) => k8s.run(),
        Command::Node(node) => node.run(),
        Command::Status(status) => status.run(),
        Command::Top(top) => top.run(),
        Command::Dashboard(dashboard) => dashboard.run(),
        Command::Log(log) => log.run(),
        Command::Drain(drain) => drain.run(),
        Command::Stop(stop) => stop.run(),
        Command::Keygen(keygen) => keygen.run(),
        Command::Runs(runs) => runs.run(),
        Command::Store(store) => store.run(),
        Command::Explain(explain) => explain.run(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {}", coded::explained(&error));
        ExitCode::FAILURE
    })
}
