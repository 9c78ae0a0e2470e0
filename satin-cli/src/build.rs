//! Building the program that is to run.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// The target that cargo builds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildTarget {
    /// The example of this name: `--example NAME`.
    Example(String),
    /// The binary of this name: `--bin NAME`.
    Bin(String),
}

/// Options of the build; cargo decides on all others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BuildOptions {
    /// Package of the workspace that has the target.
    pub package: Option<String>,
    /// Features to build with.
    pub features: Vec<String>,
    /// Profile to build in. Default: `release`.
    pub profile: Option<String>,
}

/// A build that takes longer shows what it does.
const SILENT: Duration = Duration::from_secs(2);

/// Cargo, as it would be started by hand. A program that was itself started by `cargo run` has variables of its own package: of these build scripts
/// of libraries (ring) find that they have changed, and those libraries, and all that need them, would be built again at each change between the two.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_one_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Is that a variable by which cargo tells a program of which package it is?
fn is_of_one_package(variable: &str) -> bool {
    let begins = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ];
    begins.iter().any(|begin| variable.starts_with(begin)) || variable == "CARGO_PRIMARY_PACKAGE"
}

/// Builds it, in the workspace of the working directory, and says where the executable is. Silent, unless it fails or takes
/// long.
///
/// # Errors
/// Cargo cannot build the target, and has printed why.
pub fn build(target: &BuildTarget, options: &BuildOptions) -> Result<PathBuf> {
    let (kind, name) = match target {
        BuildTarget::Example(name) => ("example", name),
        BuildTarget::Bin(name) => ("bin", name),
    };
    let mut command = cargo();
    command
        .args(["build", "--message-format=json-render-diagnostics"])
        .args(["--profile", options.profile.as_deref().unwrap_or("release")])
        .arg(format!("--{kind}"))
        .arg(name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(package) = &options.package {
        command.args(["--package", package]);
    }
    for feature in &options.features {
        command.args(["--features", feature]);
    }
    {
        use std::io::IsTerminal;
        if std::io::stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
    }
    let mut cargo = command.spawn().context("cannot start cargo")?;
    let messages = cargo.stdout.take();
    let executable = std::thread::spawn({
        let (kind, name) = (kind, name.clone());
        move || messages.and_then(|messages| executable(messages, kind, &name))
    });
    let shown = show_if_long(cargo.stderr.take());
    let status = cargo.wait()?;
    if !status.success() {
        shown.show();
        bail!("cannot build the {kind} `{name}`");
    }
    let path = executable.join().ok().flatten();
    path.with_context(|| format!("cargo made no executable of the {kind} `{name}`"))
}

/// The last executable of that name that cargo tells of.
fn executable(messages: impl Read, kind: &str, name: &str) -> Option<PathBuf> {
    let mut path = None;
    for line in BufReader::new(messages).lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(&line) else {
            continue;
        };
        let target = &message["target"];
        let kinds = target["kind"].as_array();
        if target["name"] == *name
            && kinds.is_some_and(|kinds| kinds.iter().any(|one| one == kind))
            && let Some(executable) = message["executable"].as_str()
        {
            path = Some(PathBuf::from(executable));
        }
    }
    path
}

struct Shown {
    kept: Vec<u8>,
}

impl Shown {
    fn show(&self) {
        put(&self.kept);
    }
}

fn put(bytes: &[u8]) {
    let _ = std::io::stderr().lock().write_all(bytes);
}

/// Reads to the end; text that comes in the first seconds is shown only when they are over.
fn show_if_long(from: Option<impl Read + Send + 'static>) -> Shown {
    let mut shown = Shown { kept: Vec::new() };
    let Some(mut from) = from else { return shown };
    let (sender, pieces) = channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            if sender.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    let until = Instant::now() + SILENT;
    loop {
        match pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(piece) => shown.kept.extend(piece),
            Err(RecvTimeoutError::Disconnected) => return shown,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    shown.show();
    shown.kept.clear();
    for piece in pieces {
        put(&piece);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_does_not_hear_of_the_package_that_starts_it() {
        // Tests are started by a cargo.
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
        let command = cargo();
        let removed = |name: &str| {
            command
                .get_envs()
                .any(|(key, is)| key == name && is.is_none())
        };
        for name in [
            "CARGO_PKG_NAME",
            "CARGO_PKG_VERSION_MAJOR",
            "CARGO_MANIFEST_DIR",
        ] {
            assert!(removed(name), "{name}");
        }
        // What people set stays.
        for name in [
            "CARGO_TARGET_DIR",
            "CARGO_HOME",
            "CARGO_BUILD_JOBS",
            "CARGO_PROFILE_RELEASE_DEBUG",
        ] {
            assert!(!is_of_one_package(name), "{name}");
        }
    }
}
