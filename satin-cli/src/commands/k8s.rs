use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use satin_cli::{kubernetes::KubernetesPool, units};
use satin_runtime::net::Credential;

/// Print the objects of a pool on Kubernetes, for `kubectl apply`
#[derive(clap::Args)]
#[command(override_usage = "satin k8s --image IMAGE --nodes N [OPTIONS] [-- ARGS]...")]
#[command(after_help = "\
The nodes are the pods of a Job, which is complete when the run has ended well,
and has failed when the run has. A Deployment adds nodes while the pool works:
`kubectl scale` changes their number, which is 0 at first. Pods that are asked
to leave hand over their jobs. The entry point of the image is the program.
Nothing is sent to a cluster by this command.

What is printed holds the pool's credential: keep it like a password.

Examples:
  satin k8s --image registry.example/program:1 --nodes 8 --cpus 4 -- 42
  satin k8s --image registry.example/program:1 --nodes 8 --cpus 4 \\
    --memory 8Gi --namespace batch --name fib --grace 1m -- 42")]
pub struct K8s {
    /// The image, whose entry point is the program
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Number of nodes, with the one that runs `main`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// The name of the pool, and the beginning of the names of all objects
    #[arg(long, value_name = "NAME", default_value = "satin")]
    name: String,
    /// The namespace [default: that of kubectl]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Cores of each node, such as 4 [default: whatever is free, and as many workers as the machine has cores]
    #[arg(long, value_name = "CORES")]
    cpus: Option<String>,
    /// Memory of each node, such as 8Gi
    #[arg(long, value_name = "BYTES")]
    memory: Option<String>,
    /// The site of all nodes
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// The store: satin://HOST:PORT[,HOST:PORT..], s3://BUCKET[/PREFIX], or file:PATH on a volume that you add
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Time, such as 1m, that a node may take to leave; its pod is killed 10 s later
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::duration)]
    grace: Duration,
    /// Kill a node that does not answer for a minute; needs a program with the dashboard in it
    #[arg(long)]
    liveness: bool,
    /// A variable for all nodes; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// The pool's credential file [default: a new credential]
    #[arg(long, value_name = "FILE")]
    credential: Option<PathBuf>,
    /// Arguments of the program
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("expected NAME=VALUE")?;
    Ok((name.into(), value.into()))
}

/// Kubernetes knows whole seconds only: those that begin count.
fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}

impl K8s {
    pub fn run(self) -> Result<ExitCode> {
        let credential = match &self.credential {
            Some(file) => {
                Credential::load(file)?;
                std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read {}", file.display()))?
            }
            None => Credential::generate()?,
        };
        let pool = KubernetesPool {
            name: self.name,
            namespace: self.namespace,
            image: self.image,
            arguments: self.arguments,
            nodes: self.nodes,
            cpus: self.cpus,
            memory: self.memory,
            site: self.site,
            store: self.store,
            grace_s: whole_seconds(self.grace),
            liveness: self.liveness,
            env: self.env,
            credential,
        };
        print!("{}", pool.yaml()?);
        Ok(ExitCode::SUCCESS)
    }
}
