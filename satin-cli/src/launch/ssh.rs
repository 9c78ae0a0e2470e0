//! The system's `ssh`: how it is called, and what its failures mean.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Output, Stdio},
};

use super::{
    hosts::Host,
    script::{MARK, bootstrap, quote},
};

/// The exit code of `ssh` itself, when it has no connection or has lost it.
pub const SSH_FAILED: i32 = 255;

/// Arguments that stand behind those of the user: of two values of an option the first one counts. No question is asked, as there are
/// many machines and one terminal; a machine that does not answer is given up after 10 s (too short: far or busy machines are missed;
/// too long: the command hangs), and one that died is noticed after 45 s.
const OPTIONS: [&str; 4] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
];

/// A machine that cannot be used, and what to do. No node runs there.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// There is no `ssh` here.
    #[error("cannot start ssh: {0}; install the OpenSSH client (Debian: openssh-client)")]
    NoSsh(io::Error),
    /// The machine has no name that is known here.
    #[error(
        "{host}: no such machine is known; correct `host`, or add it to ~/.ssh/config ({said})"
    )]
    Unknown {
        /// The machine.
        host: String,
        /// The words of `ssh`.
        said: String,
    },
    /// The machine does not answer.
    #[error(
        "{host}: cannot be reached; is it up, and does its sshd listen there? Try `{command}` ({said})"
    )]
    Unreachable {
        /// The machine.
        host: String,
        /// A command for people to try.
        command: String,
        /// The words of `ssh`.
        said: String,
    },
    /// The machine accepts no key that `ssh` has without asking.
    #[error(
        "{host}: accepts none of your keys, and nobody is asked for a password here; copy a key with `ssh-copy-id {host}`, or \
         unlock yours with `ssh-add`; `{command}` must work without a question ({said})"
    )]
    NoKey {
        /// The machine.
        host: String,
        /// A command for people to try.
        command: String,
        /// The words of `ssh`.
        said: String,
    },
    /// The key of the machine is not known, or another than it was.
    #[error(
        "{host}: its host key is not known here, or has changed; run `{command}` once and check the fingerprint ({said})"
    )]
    HostKey {
        /// The machine.
        host: String,
        /// A command for people to try.
        command: String,
        /// The words of `ssh`.
        said: String,
    },
    /// A script has failed there, and has said why.
    #[error("{host}: {fault}")]
    Failed {
        /// The machine.
        host: String,
        /// The words of the script.
        fault: String,
    },
    /// Something else.
    #[error("{host}: `{command}` fails: {said}")]
    Other {
        /// The machine.
        host: String,
        /// A command for people to try.
        command: String,
        /// The words of `ssh`, or of the machine.
        said: String,
    },
}

/// The command that logs in at that machine, but for what is run there.
fn words(host: &Host) -> Vec<String> {
    let mut words: Vec<String> = host.ssh_options.clone();
    if let Some(port) = host.ssh_port {
        words.extend(["-p".into(), port.to_string()]);
    }
    for option in OPTIONS {
        words.extend(["-o".into(), option.into()]);
    }
    words.extend(["-T".into(), "--".into(), host.destination()]);
    words
}

/// The command for people to see.
#[must_use]
pub fn shown(host: &Host, script: &str) -> String {
    let words: Vec<String> = words(host).iter().map(|word| quote(word)).collect();
    format!("ssh {} {}", words.join(" "), quote(&bootstrap(script)))
}

/// A command for people to try whether they get in.
fn attempt(host: &Host) -> String {
    let mut words = vec!["ssh".to_owned()];
    words.extend(host.ssh_options.iter().map(|word| quote(word)));
    if let Some(port) = host.ssh_port {
        words.push(format!("-p {port}"));
    }
    words.push(host.destination());
    words.push("true".into());
    words.join(" ")
}

/// Starts a script on that machine; its standard input is open.
///
/// # Errors
/// If there is no `ssh`.
pub fn start(host: &Host, script: &str) -> Result<Child, SshError> {
    let mut child = Command::new("ssh")
        .args(words(host))
        .arg(bootstrap(script))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for us: the nodes are told by words.
        .process_group(0)
        .spawn()
        .map_err(SshError::NoSsh)?;
    if let Some(stdin) = &mut child.stdin {
        // A connection that fails is told by the exit code.
        let _ = stdin.write_all(script.as_bytes());
    }
    Ok(child)
}

/// Runs a script on that machine with those bytes behind it: what it prints.
///
/// # Errors
/// If the machine cannot be reached, or the script fails.
pub fn run(host: &Host, script: &str, behind: &[u8]) -> Result<String, SshError> {
    let mut child = start(host, script)?;
    if let Some(mut stdin) = child.stdin.take() {
        // Scripts print a few lines, which the pipe holds, so nobody waits for the other.
        let _ = stdin.write_all(behind);
    }
    let output = child.wait_with_output().map_err(SshError::NoSsh)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failure(host, &output)),
    }
}

/// The words behind `fail` in a marked line.
#[must_use]
pub fn fault(line: &[u8]) -> Option<String> {
    let words = line.strip_prefix(&[MARK])?.strip_prefix(b"fail ")?;
    Some(String::from_utf8_lossy(words).trim().to_owned())
}

fn failure(host: &Host, output: &Output) -> SshError {
    let stderr = &output.stderr;
    if let Some(fault) = stderr.split(|byte| *byte == b'\n').find_map(fault) {
        let host = host.to_string();
        return SshError::Failed { host, fault };
    }
    let text = String::from_utf8_lossy(stderr);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = lines
        .next_back()
        .map_or_else(|| output.status.to_string(), str::to_owned);
    match output.status.code() {
        Some(SSH_FAILED) => refusal(host, &text, said),
        _ => SshError::Other {
            host: host.to_string(),
            command: attempt(host),
            said,
        },
    }
}

/// What the words of `ssh` mean. OpenSSH has said the same for twenty years, in English whatever the language of the user.
fn refusal(host: &Host, text: &str, said: String) -> SshError {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let (command, host) = (attempt(host), host.to_string());
    if has(&["Could not resolve hostname"]) {
        SshError::Unknown { host, said }
    } else if has(&[
        "Host key verification failed",
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
    ]) {
        SshError::HostKey {
            host,
            command,
            said,
        }
    } else if has(&["Permission denied", "Too many authentication failures"]) {
        SshError::NoKey {
            host,
            command,
            said,
        }
    } else if has(&[
        "Connection refused",
        "timed out",
        "No route to host",
        "unreachable",
        "Connection closed",
        "Connection reset",
    ]) {
        SshError::Unreachable {
            host,
            command,
            said,
        }
    } else {
        SshError::Other {
            host,
            command,
            said,
        }
    }
}

/// The name or address that `ssh` dials for that machine, as its configuration says: an alias means nothing to other machines.
///
/// # Errors
/// If there is no `ssh`, or it does not accept its options.
pub fn address(host: &Host) -> Result<String, SshError> {
    let output = Command::new("ssh")
        .arg("-G")
        .args(words(host))
        .stdin(Stdio::null())
        .output()
        .map_err(SshError::NoSsh)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| line.strip_prefix("hostname "));
    match found {
        Some(name) if output.status.success() => Ok(name.trim().to_owned()),
        _ => Err(failure(host, &output)),
    }
}
