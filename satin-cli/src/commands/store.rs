use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result};
use satin_runtime::{
    config::Config,
    net::{Credential, StoreServer, store_server},
    stable::{Stable, file::Directory},
};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::at::CredentialFile;

/// Keep the finished work of runs: a run goes on from there after the loss of all its nodes
#[derive(clap::Args)]
#[command(after_help = "\
Nodes write to the server what they have finished. Started on machines that
survive the nodes, three servers keep each result on two of them:
--store satin://s1:7800,s2:7800,s3:7800?copies=2. Of three servers one may be
lost; of two none, if a run is to go on.

A process that has the credential may read and remove all that is kept. Ctrl-C
or SIGTERM ends the server as soon as it has answered what it was asked.

Examples:
  for all machines that reach this one:
    satin store --dir /data --listen 0.0.0.0:7800 --credential pool.pem
  for nodes on this machine; SATIN_LOG=info shows who connects:
    satin store --dir kept --credential pool.pem")]
pub struct Store {
    /// The directory that holds the files; it is made if need be
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The address for nodes to call; port 0 stands for any free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7800")]
    listen: SocketAddr,
    #[command(flatten)]
    credential: CredentialFile,
}

impl Store {
    pub fn run(self) -> Result<ExitCode> {
        Config::load()?.start_log()?;
        // Before it says that it listens: who reads that may send a signal at once.
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let ending = Arc::new(AtomicBool::new(false));
        let credential = Credential::load(&self.credential.path)?;
        let _lock = store_server::lock(&self.dir)?;
        let files = Arc::new(Directory::open(&self.dir)?);
        let kept = kept(&*files, &self.dir)?;
        let server = StoreServer::start(self.listen, &credential, files)?;
        eprintln!(
            "satin store: listening on {}, keeps files in {}, {kept}",
            server.addr(),
            self.dir.display(),
        );
        signals.forever().next().context("no signal can come")?;
        // A second signal ends the process at once.
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&ending))?;
        }
        ending.store(true, Ordering::SeqCst);
        server.stop();
        eprintln!("satin store: ended");
        Ok(ExitCode::SUCCESS)
    }
}

/// The number of runs that are kept, and their size.
fn kept(files: &dyn Stable, dir: &Path) -> Result<String> {
    let files = files.list("");
    let files = files.with_context(|| format!("cannot read {}", dir.display()))?;
    let runs: BTreeSet<&str> = (files.iter())
        .filter_map(|(path, _)| path.match_indices('/').nth(1).map(|(end, _)| &path[..end]))
        .collect();
    let bytes: u64 = files.iter().map(|(_, size)| size).sum();
    let runs = match runs.len() {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    Ok(format!("{runs}, {}", size(bytes)))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        1_048_576..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}
