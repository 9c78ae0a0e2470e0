//! `satin run` and `satin runs` with a store in a bucket, as users type it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use s3_tests::S3Server;

/// All leaves of the tree: 4 levels of 4 children.
const LEAVES: u64 = 256;

/// The directory of executables, with `satin` and the example in it, both built with the feature.
fn built() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "-p",
        "satin-cli",
        "-p",
        "satin",
        "-p",
        "satin-examples",
    ]);
    build.args(["--features", "satin-cli/s3,satin/s3"]);
    build.args(["--bin", "satin", "--example", "knary"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo starts").success());
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.parent().and_then(Path::parent);
    profile
        .expect("cargo puts tests into target/PROFILE/deps")
        .to_owned()
}

struct User {
    executables: PathBuf,
    home: tempfile::TempDir,
    server: S3Server,
}

impl User {
    fn satin(&self, words: &str) -> Output {
        let mut command = Command::new(self.executables.join("satin"));
        for (variable, _) in std::env::vars() {
            if variable.starts_with("SATIN_") || variable.starts_with("AWS_") {
                command.env_remove(variable);
            }
        }
        command.envs(self.server.variables());
        command.env("XDG_STATE_HOME", self.home.path());
        command.env("SATIN_STORE_EVERY", "0.3");
        command.args(words.split_whitespace());
        command.output().expect("it starts")
    }

    /// Runs the example, which appends a byte to `count` for each leaf.
    fn run(&self, flags: &str) -> Output {
        let program = self.executables.join("examples/knary");
        let (program, count) = (program.display(), self.count().display().to_string());
        self.satin(&format!(
            "run {flags} --threads 1 --store s3://results/runs -- {program} 4 4 100000 --sleep --count {count}"
        ))
    }

    fn count(&self) -> PathBuf {
        self.home.path().join("count")
    }

    fn leaves(&self) -> u64 {
        std::fs::metadata(self.count()).map_or(0, |file| file.len())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_pool_that_was_killed_as_a_whole_goes_on_from_the_bucket() {
    let user = User {
        executables: built(),
        home: tempfile::tempdir().expect("a directory"),
        server: S3Server::start(),
    };
    let killed = user.run("--sites a:2,b:2 --kill all@3s");
    assert_eq!(killed.status.code(), Some(137), "{killed:?}");
    let before = user.leaves();
    // By default nobody reads it who has not the credential.
    assert!(user.server.holds("knary"), "the name of the pool is seen");
    for word in ["--sleep", "100000"] {
        assert!(!user.server.holds(word), "{word}");
    }
    let listed = user.satin("runs ls --store s3://results/runs");
    let rows = text(&listed.stdout);
    assert!(
        rows.contains("knary") && rows.contains("unfinished"),
        "{listed:?}"
    );
    let resumed = user.run("--sites c:3");
    assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
    assert!(
        text(&resumed.stderr).contains("goes on with run"),
        "{resumed:?}"
    );
    assert!(
        text(&resumed.stdout).contains(&LEAVES.to_string()),
        "{resumed:?}"
    );
    let again = (user.leaves() - before).saturating_sub(LEAVES - before.min(LEAVES));
    println!("{before} leaves before all nodes were killed; {again} were done again");
    // Four workers lose a period of 0.3 s, a write and the leaves that they were in: of 0.1 s each.
    assert!(before > 60 && again < 50, "{before} leaves, {again} again");
    let listed = user.satin("runs ls --store s3://results/runs");
    assert!(
        text(&listed.stderr).contains("there are no runs"),
        "{listed:?}"
    );
    let refused = user.satin("runs ls --store s3://nothing");
    assert!(
        text(&refused.stderr).contains("has no such bucket"),
        "{refused:?}"
    );
}
