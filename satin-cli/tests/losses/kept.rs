//! A store of a test's own, and pools that are killed when something is in it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use satin_cli::{
    pool::{ALL_KILLED, LocalPool, Output, Plan, PoolOutcome},
    store::StoreUse,
};
use satin_runtime::net::Credential;
use tempfile::TempDir;

use crate::{
    common::{PATIENCE, finish, start},
    programs::{self, Program, this_executable},
};

/// A folder with a store, a credential, and what programs need.
pub struct Home {
    folder: TempDir,
    /// The store: the directory `kept`, unless it is on servers.
    url: String,
}

impl Home {
    pub fn new() -> Home {
        let folder = tempfile::tempdir().expect("a directory");
        let url = format!("file:{}", folder.path().join("kept").display());
        let home = Home { folder, url };
        Credential::write_new(&home.credential()).expect("written");
        home
    }

    /// The same with these servers.
    pub fn on_servers(mut self, url: String) -> Home {
        self.url = url;
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn credential(&self) -> PathBuf {
        self.path("pool.pem")
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The directory that is the store.
    pub fn store(&self) -> PathBuf {
        self.path("kept")
    }

    /// A pool of that program, which writes often.
    pub fn plan(&self, program: Program, sites: &str) -> Plan {
        self.plan_of(program.command(&this_executable()), sites)
    }

    pub fn plan_of(&self, command: Vec<OsString>, sites: &str) -> Plan {
        let env = [
            (programs::COUNT, self.path("count").into_os_string()),
            (programs::GATE, self.path("gate").into_os_string()),
            ("SATIN_STORE_EVERY", "0.05".into()),
            ("SATIN_MAX_CRASHES", "20".into()),
            ("SATIN_LOG", "warn".into()),
        ];
        Plan {
            threads: Some(1),
            store: Some(StoreUse::new(self.url.parse().expect("a URL")).expect("made")),
            credential: Some(self.credential()),
            env: env.map(|(name, value)| (name.into(), value)).into(),
            output: Output::Keep,
            ..Plan::new(command, sites.parse().expect("sites"))
        }
    }

    /// The leaves that all nodes together have done so far.
    pub fn leaves(&self) -> u64 {
        fs::metadata(self.path("count")).map_or(0, |file| file.len())
    }

    /// What `satin runs ls` says on stdout and on stderr.
    pub fn list(&self) -> (String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_satin"))
            .args(["runs", "ls", "--store", &self.url, "--credential"])
            .arg(self.credential())
            .env_remove("SATIN_POOL")
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    }

    /// The runs that the list has, without its header.
    pub fn runs(&self) -> Vec<String> {
        let (table, _) = self.list();
        table.lines().skip(1).map(str::to_owned).collect()
    }

    /// Is there a run that the same command would go on with?
    pub fn has_unfinished_run(&self) -> bool {
        self.runs().iter().any(|run| run.contains("unfinished"))
    }

    #[track_caller]
    pub fn is_empty(&self) {
        let (table, remark) = self.list();
        assert!(
            remark.starts_with("there are no runs in "),
            "{remark}{table}"
        );
        assert_eq!(table, "");
    }
}

/// The files below a directory, with their sizes, by path. Temporaries are none.
pub fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        // It may come later, or be gone already.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => left.push(entry.path()),
                Ok(metadata) => files.push((entry.path(), metadata.len())),
                Err(_) => {}
            }
        }
    }
    let is_temporary = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b".")
    };
    files.retain(|(path, _)| !is_temporary(path));
    files.sort();
    files
}

/// The bytes in the logs of a store.
pub fn logged(directory: &Path) -> u64 {
    let is_log = |path: &Path| path.components().any(|part| part.as_os_str() == "log");
    let files = files(directory).into_iter();
    files
        .filter(|(path, _)| is_log(path))
        .map(|(_, size)| size)
        .sum()
}

/// Lets a pool run until that is so.
#[track_caller]
pub fn run_until(pool: &mut LocalPool, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{}", pool.stderr());
        assert!(
            !pool.has_ended(),
            "it has ended too early: {}",
            pool.stderr()
        );
        let _ = pool.wait_for(Duration::from_millis(5), |_| false);
    }
}

/// Kills all nodes with these names. The end of the pool, which has not come to its end before.
#[track_caller]
pub fn kill(pool: LocalPool, nodes: &[&str]) -> PoolOutcome {
    for node in nodes {
        pool.signal(node, 9);
    }
    let outcome = finish(pool);
    assert_eq!(outcome.code, ALL_KILLED, "{outcome:#?}");
    outcome
}

/// Runs a pool until its nodes have logged so many bytes more, and kills them.
#[track_caller]
pub fn lose(home: &Home, plan: Plan, bytes: u64) -> PoolOutcome {
    let before = logged(home.folder());
    let sites = plan.sites.clone();
    let names = |site: &satin_cli::sites::Site| {
        let name = site.name.clone();
        (0..site.nodes).map(move |number| format!("{name}-{number}"))
    };
    let names: Vec<String> = sites.0.iter().flat_map(names).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut pool = start(plan);
    run_until(&mut pool, || logged(home.folder()) >= before + bytes);
    kill(pool, &names)
}

/// Those of a pool's words that tell that it goes on with a run.
pub const GOES_ON: &str = "goes on with run ";

/// The pool has ended well, and has told the answer once.
#[track_caller]
pub fn answers(outcome: &PoolOutcome, answer: &str) {
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let told = outcome.stdout.matches(answer).count();
    assert_eq!(told, 1, "expected {answer:?}: {outcome:#?}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome:#?}");
}

#[track_caller]
pub fn says(outcome: &PoolOutcome, words: &str) {
    assert!(
        outcome.stderr.contains(words),
        "expected {words:?}: {outcome:#?}"
    );
}

#[track_caller]
pub fn does_not_say(outcome: &PoolOutcome, words: &str) {
    assert!(
        !outcome.stderr.contains(words),
        "unexpected {words:?}: {outcome:#?}"
    );
}
