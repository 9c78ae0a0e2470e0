use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Result;
use satin_runtime::window::Views;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::at::At;

/// Show a running pool in a browser, until Ctrl-C
#[derive(clap::Args)]
#[command(after_help = "\
The pool itself is as it was: nothing has to be set at its nodes. What happened
before this command was started is not shown.

Examples:
  satin dashboard --join 192.0.2.7:7777 --credential pool.pem
  satin dashboard --join file:/shared/pool --credential pool.pem \\
    --listen 127.0.0.1:0 --report run.html")]
pub struct DashboardCommand {
    /// Where the dashboard listens; if that is no loopback address, the URL that is printed has a token
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8787")]
    listen: SocketAddr,
    /// Write a report to this file at the end, a page that can be passed on
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write a trace to this file at the end, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

impl DashboardCommand {
    pub fn run(self) -> Result<ExitCode> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let pool = self.at.observer()?.status()?.name;
        let views = Views {
            dashboard: Some(self.listen),
            report: self.report,
            trace: self.trace,
        };
        views.check()?;
        let window = self.at.window(views, &pool)?;
        if let Some(url) = window.url() {
            println!("{url}");
        }
        let _ = signals.forever().next();
        window.close()?;
        Ok(ExitCode::SUCCESS)
    }
}
