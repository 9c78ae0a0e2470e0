//! Which pool a command speaks to, and with what right.

use std::path::PathBuf;

use anyhow::{Context, Result};
use satin_cli::coded::Coded;
use satin_runtime::{
    codes,
    net::{Join, Observer},
    window::{Views, Window},
};

/// The flag of every command that cannot do without the credential.
#[derive(clap::Args)]
pub struct CredentialFile {
    /// The pool's credential file
    #[arg(
        long = "credential",
        value_name = "FILE",
        env = "SATIN_CREDENTIAL",
        hide_env_values = true
    )]
    pub path: PathBuf,
}

/// The flags of every command that speaks to a running pool.
#[derive(clap::Args)]
pub struct At {
    /// Any node of the pool: HOST:PORT[,HOST:PORT..], dns:NAME:PORT, file:PATH, or in its Slurm job slurm
    #[arg(long, value_name = "WHERE", env = "SATIN_JOIN", hide_env_values = true)]
    join: String,
    #[command(flatten)]
    credential: CredentialFile,
    /// The pool's name, to be sure that it is that one
    #[arg(long, value_name = "NAME", env = "SATIN_POOL", hide_env_values = true)]
    pool: Option<String>,
}

impl At {
    fn join(&self) -> Result<Join> {
        let join = Join::parse(&self.join).ok();
        let join = join.with_context(|| {
            format!(
                "--join {}: expected HOST:PORT[,HOST:PORT..], dns:NAME:PORT, file:PATH or slurm",
                self.join
            )
        });
        join.code(codes::WRONG_VALUE)
    }

    pub fn observer(&self) -> Result<Observer> {
        let join = self.join()?;
        let pool = self.pool.as_deref().filter(|name| !name.is_empty());
        Ok(Observer::new(join, &self.credential.path, pool)?)
    }

    /// A window on the pool of that name.
    pub fn window(&self, views: Views, name: &str) -> Result<Window> {
        let join = self.join()?;
        let credential = &self.credential.path;
        Ok(Window::on_pool(views, name, Some(name), join, credential)?)
    }
}
