use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use satin_cli::{
    coded::Coded,
    stats::bytes,
    store::{self, STORE},
    tables::{align_right, table},
};
use satin_runtime::{
    codes,
    job::{JobId, RootName},
    net::Credential,
    stable::{
        StoreUrl,
        runs::{EpochDetails, LogDetails, RunPlace, RunState, Runs},
    },
};

/// Look at the runs in a store, and remove them
#[derive(clap::Args)]
#[command(after_help = "\
A run is there from its first start until its program ends, however often all
its nodes are lost. Those that were started with another credential are listed,
but cannot be read. The default is the credential that `satin run` keeps for you.

Examples:
  satin runs ls --store file:/shared/store
  satin runs ls --store file:/shared/store --pool program
  satin runs show 3f2a --store file:/shared/store
  satin runs rm 3f2a 77d0c1 --store file:/shared/store")]
pub struct RunsCommand {
    #[command(subcommand)]
    what: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// List the runs, the newest first
    Ls(StoreArgs),
    /// Show all about one run: its starts, its logs, its results
    Show {
        /// The run's name, or the beginning of it
        #[arg(value_name = "RUN")]
        run: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Remove runs: what their nodes had finished is gone then
    Rm {
        /// The runs' names, or the beginnings of them
        #[arg(value_name = "RUN", required = true)]
        runs: Vec<String>,
        /// Remove runs too that were written to a moment ago
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        store: StoreArgs,
    },
}

#[derive(clap::Args)]
struct StoreArgs {
    /// The store: file:PATH, satin://HOST:PORT[,HOST:PORT..] or s3://BUCKET[/PREFIX]
    #[arg(long, value_name = "URL", env = STORE, hide_env_values = true)]
    store: String,
    /// Credential file of the runs' pools [default: that of SATIN_CREDENTIAL, or the one that is kept for you]
    #[arg(long, value_name = "FILE")]
    credential: Option<PathBuf>,
    /// Only the runs of this pool
    #[arg(long, value_name = "NAME", env = "SATIN_POOL", hide_env_values = true)]
    pool: Option<String>,
}

impl RunsCommand {
    pub fn run(self) -> Result<ExitCode> {
        match self.what {
            Verb::Ls(store) => store.open()?.list()?,
            Verb::Show { run, store } => store.open()?.show(&run)?,
            Verb::Rm { runs, force, store } => store.open()?.remove(&runs, force)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl StoreArgs {
    fn open(self) -> Result<OpenStore> {
        let url = store::absolute(store::url(&self.store)?)?;
        let credential = store::credential(self.credential.as_deref())?;
        let credential = Credential::load(&credential)?;
        let stable = store::open(&url, &credential)?;
        Ok(OpenStore {
            runs: Runs::new(stable, credential.secret(), false),
            pool: self.pool.filter(|pool| !pool.is_empty()),
            url,
        })
    }
}

/// A store that is looked at.
struct OpenStore {
    url: StoreUrl,
    runs: Runs,
    /// The pool whose runs are meant; `None`: all.
    pool: Option<String>,
}

/// A run that was written to within this time may be going on. Too short: a run whose nodes finish nothing for a while is
/// taken for one that is over. Too long: people have to wait, or to force it.
const JUST_NOW: Duration = Duration::from_secs(60);

impl OpenStore {
    fn all(&self) -> Result<Vec<RunState>> {
        let runs = self.runs.list(self.pool.as_deref());
        runs.with_context(|| format!("cannot list the runs in {}", self.url))
    }

    fn list(&self) -> Result<()> {
        let all = self.all()?;
        if all.is_empty() {
            let of = self.pool.as_ref();
            let of = of.map_or(String::new(), |pool| format!(" of the pool `{pool}`"));
            eprintln!("there are no runs{of} in {}", self.url);
            return Ok(());
        }
        let mut table = table(&[
            "run", "pool", "state", "started", "epochs", "results", "worth", "size", "command",
        ]);
        for run in &all {
            table.add_row(self.row(run)?);
        }
        align_right(&mut table, |place| [4, 5, 6, 7].contains(&place));
        println!("{}", table.trim_fmt());
        if all.iter().any(|run| !run.readable) {
            eprintln!("{UNREADABLE}");
        }
        Ok(())
    }

    fn row(&self, run: &RunState) -> Result<Vec<String>> {
        let kept = match run.readable {
            true => Some(self.kept(&run.place)?),
            false => None,
        };
        let number = |of: fn(&Kept) -> String| kept.as_ref().map_or("-".into(), of);
        Ok(vec![
            run.place.run.to_string(),
            printable(&run.place.pool, 40),
            state(run),
            started(run),
            run.epochs.to_string(),
            number(|kept| kept.all().results.to_string()),
            number(|kept| kept.all().worth()),
            bytes(run.bytes),
            printable(&run.command_line.join(" "), 60),
        ])
    }

    fn kept(&self, place: &RunPlace) -> Result<Kept> {
        let loaded = self.runs.load(place, &|_| true);
        let loaded = loaded.with_context(|| format!("cannot read the run {}", place.run))?;
        let mut kept = Kept {
            torn: loaded.torn,
            ..Kept::default()
        };
        let facts = loaded.batch.facts.iter();
        kept.count(facts.map(|fact| (fact.saved.root_name(), &fact.saved.name.id, fact.took)));
        Ok(kept)
    }

    /// The run whose name begins like that.
    fn find(&self, name: &str) -> Result<RunState> {
        self.find_among(self.all()?, name).code(codes::RUN_NAME)
    }

    fn find_among(&self, mut all: Vec<RunState>, name: &str) -> Result<RunState> {
        all.retain(|run| run.place.run.to_string().starts_with(&name.to_lowercase()));
        match &all[..] {
            [run] => Ok(run.clone()),
            [] => bail!(
                "no run in {} is called `{name}`; `satin runs ls` shows those that are there",
                self.url
            ),
            several => {
                let names = several.iter().take(8);
                let names: Vec<_> = names.map(|run| run.place.run.to_string()).collect();
                bail!("`{name}` may be several runs: {}", names.join(", "))
            }
        }
    }

    fn show(&self, name: &str) -> Result<()> {
        let run = self.find(name)?;
        println!("run      {}", run.place.run);
        println!("pool     {}", printable(&run.place.pool, LONG));
        println!("state    {}", state(&run));
        println!("started  {}", started(&run));
        println!("size     {}", bytes(run.bytes));
        if run.readable {
            println!("command  {}", printable(&run.command_line.join(" "), LONG));
        }
        let details = self.runs.details(&run.place)?;
        show_epochs(&details.epochs);
        show_logs(&details.logs);
        match run.readable {
            true => show_kept(&self.kept(&run.place)?),
            false => eprintln!("{UNREADABLE}"),
        }
        Ok(())
    }

    fn remove(&self, names: &[String], force: bool) -> Result<()> {
        let mut runs = Vec::new();
        for name in names {
            let run = self.find(name)?;
            if !force {
                self.ensure_quiet(&run).code(codes::RUN_ALIVE)?;
            }
            runs.push(run);
        }
        for run in runs {
            let place = &run.place;
            let removed = self.runs.remove(place);
            removed.with_context(|| format!("cannot remove all of the run {}", place.run))?;
            eprintln!(
                "removed {} of the pool {}",
                place.run,
                printable(&place.pool, LONG)
            );
        }
        Ok(())
    }

    /// Refuses a run that may be going on.
    fn ensure_quiet(&self, run: &RunState) -> Result<()> {
        let written = store::last_written(&self.url, &run.place);
        if let Some(written) = written.filter(|_| run.done.is_none()) {
            let age = age(written);
            ensure!(
                age >= JUST_NOW,
                "the run {} was written to {} ago, so it may be going on; end its nodes, or remove it with --force",
                run.place.run,
                length(age)
            );
        }
        Ok(())
    }
}

/// The reasons why a run may be unreadable.
const UNREADABLE: &str = "unreadable: started with another credential (`--credential FILE`) or by another version of Satin, or \
                          what an interrupted removal has left";

/// The longest text from a store that is shown in full.
const LONG: usize = 2000;

/// What would be found again of a run.
#[derive(Default)]
struct Kept {
    /// What there is of each root job.
    roots: BTreeMap<RootName, KeptOfRoot>,
    /// Segments that end early.
    torn: Vec<String>,
}

/// What would be found again of a root job.
#[derive(Clone, Copy, Default)]
struct KeptOfRoot {
    /// Number of results below, or 1 for its own.
    results: usize,
    /// The time that their workers took for them, as far as that is known; the time of a result includes that of the results below it.
    work: Duration,
}

impl KeptOfRoot {
    fn worth(self) -> String {
        match self.work {
            Duration::ZERO => "-".into(),
            work => length(work),
        }
    }
}

impl Kept {
    /// Enters results: the root job and the id of each, and the time that it took.
    fn count<'a>(&mut self, results: impl Iterator<Item = (RootName, &'a JobId, Duration)>) {
        let mut results: Vec<_> = results.collect();
        // The order of ids puts a job before the jobs below it.
        results.sort_by_key(|(root, id, _)| (*root, *id));
        let mut around: Option<(RootName, &JobId)> = None;
        for (root, id, took) in results {
            let kept = self.roots.entry(root).or_default();
            kept.results += 1;
            if !around.is_some_and(|(of, around)| of == root && around.is_ancestor_of(id)) {
                kept.work += took;
                around = Some((root, id));
            }
        }
    }

    fn all(&self) -> KeptOfRoot {
        KeptOfRoot {
            results: self.roots.values().map(|root| root.results).sum(),
            work: self.roots.values().map(|root| root.work).sum(),
        }
    }
}

fn show_epochs(epochs: &[EpochDetails]) {
    if epochs.is_empty() {
        return;
    }
    let mut shown = table(&["epoch", "started", "by node", "on"]);
    for epoch in epochs {
        shown.add_row(vec![
            epoch.number.to_string(),
            epoch.started.map_or("-".into(), ago),
            printable(&epoch.by, 60),
            printable(&epoch.target, 60),
        ]);
    }
    println!("\n{}", shown.trim_fmt());
}

fn show_logs(logs: &[LogDetails]) {
    if logs.is_empty() {
        println!("\nno node has written anything");
        return;
    }
    let mut shown = table(&["log of epoch", "node", "life", "segments", "size"]);
    for log in logs {
        shown.add_row(vec![
            log.name.epoch.to_string(),
            format!("{:032x}", log.name.node),
            log.name.generation.to_string(),
            log.segments.to_string(),
            bytes(log.bytes),
        ]);
    }
    align_right(&mut shown, |place| [3, 4].contains(&place));
    println!("\n{}", shown.trim_fmt());
}

fn show_kept(kept: &Kept) {
    if !kept.roots.is_empty() {
        let mut shown = table(&["root job", "results", "worth"]);
        for (root, of_root) in &kept.roots {
            let (number, results) = (root.number.to_string(), of_root.results.to_string());
            shown.add_row([number, results, of_root.worth()]);
        }
        align_right(&mut shown, |place| [1, 2].contains(&place));
        println!("\n{}", shown.trim_fmt());
    }
    for segment in &kept.torn {
        println!(
            "\n{segment} ends early: its node died while it wrote, or the store has damaged it"
        );
    }
}

fn state(run: &RunState) -> String {
    match (run.readable, run.done) {
        (false, _) => "unreadable".into(),
        (true, Some(code)) => format!("ended with {code}"),
        (true, None) => "unfinished".into(),
    }
}

fn started(run: &RunState) -> String {
    match run.readable {
        true => ago(run.started),
        false => "-".into(),
    }
}

fn ago(time: SystemTime) -> String {
    format!("{} ago", length(age(time)))
}

/// The age of something; none, if another machine's clock is ahead.
fn age(time: SystemTime) -> Duration {
    time.elapsed().unwrap_or_default()
}

/// A time, with its largest unit that is not zero.
fn length(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

/// A text from a store, as it goes to a terminal: without control characters, and not too long.
fn printable(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = text.chars().take(most).map(plain).collect();
    if shown.len() < text.len() {
        shown.push_str("..");
    }
    shown
}

#[cfg(test)]
mod tests {
    use satin_runtime::job::Fingerprint;

    use super::*;

    #[test]
    fn times_have_a_unit_that_fits() {
        let shown = |seconds| length(Duration::from_secs_f64(seconds));
        for (seconds, text) in [
            (0.25, "0.2 s"),
            (75.0, "75 s"),
            (300.0, "5 min"),
            (9000.0, "2.5 h"),
            (864_000.0, "10 days"),
        ] {
            assert_eq!(shown(seconds), text);
        }
        let ahead = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(ago(ahead), "0.0 s ago");
    }

    #[test]
    fn the_time_of_a_result_includes_that_of_the_results_below_it() {
        let root = |number| RootName {
            number,
            fingerprint: Fingerprint(7),
        };
        let id = |path: &[u32]| path.iter().fold(JobId::ROOT, |id, child| id.child(*child));
        let ids = [[0, 1, 4], [0, 1, 5], [0, 2, 4], [1, 1, 5]].map(|path| id(&path));
        let around = id(&[0, 1]);
        let second = Duration::from_secs(1);
        let below = ids.iter().map(|id| (root(id.root_number()), id, second));
        let mut kept = Kept::default();
        kept.count(below.chain([(root(0), &around, 2 * second)]));
        let shown = |of: u32| {
            let KeptOfRoot { results, work } = kept.roots[&root(of)];
            (results, work)
        };
        assert_eq!(shown(0), (4, 3 * second));
        assert_eq!(shown(1), (1, second));
    }

    #[test]
    fn what_a_store_says_cannot_command_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n", 60), "a [2Jb ");
        assert_eq!(printable("abcdef", 3), "abc..");
    }
}
