//! What machines are told to do: scripts for any POSIX shell.
//!
//! A script travels on the standard input of `ssh`, and the command line there has nothing but [`bootstrap`], which
//! reads it. So the credential, and values of the environment, are on no command line that other users of the machine can see, and
//! the login shell there may be any. What stands behind the script on the standard input is for the script: the bytes of a program,
//! or the words by which a node is ended.
//!
//! A script talks to us in lines of its standard error that begin with [`MARK`]: all other output is the node's.

use std::fmt::Write as _;

use super::hosts::{Host, is_ours};

/// The first byte of a line that is for us, and no output of the program: the record separator of JSON text sequences (RFC 7464).
pub const MARK: u8 = 0x1e;

/// The end of the credential in the text of a script that people look at.
const HIDDEN: &str = "(the credential)";

/// Seconds between SIGTERM and SIGKILL when the connection to a node is lost, beyond the node's grace. Too short: a node
/// is killed while it hands over. Too long: a lost node keeps its machine busy.
const KILL_AFTER_S: u64 = 10;

/// Days after which a program that was not used is removed from a machine. Too short: it is copied again. Too long: every
/// build of a program stays on every machine.
const KEPT_DAYS: u32 = 14;

/// The command that runs a script of so many bytes, whatever the login shell is.
#[must_use]
pub fn bootstrap(script: &str) -> String {
    let length = script.len();
    // Block by block, `dd` might take what stands behind the script.
    format!("exec /bin/sh -c 'eval \"$(dd bs=1 count={length} 2>/dev/null)\"'")
}

/// The text as one word of a shell.
#[must_use]
pub fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The directory of the program, relative to [`Host::dir`].
fn programs(hash: &str) -> String {
    format!("$dir/programs/{hash}")
}

/// What all scripts begin with: the directory, which must be for its owner alone, as programs are run from it.
fn prologue(host: &Host) -> String {
    // A shell would expand the tilde, but not in quotes.
    let dir = host.dir.strip_prefix("~/").unwrap_or(&host.dir);
    let dir = quote(dir);
    format!(
        r#"umask 077
fail() {{ printf '\036fail %s\n' "$*" >&2; exit 1; }}
dir={dir}
case $dir in /*) ;; *) dir=$HOME/$dir ;; esac
mkdir -p "$dir/programs" || fail "cannot make the directory $dir; name another as \`dir\`"
for each in "$dir" "$dir/programs"; do
    [ -O "$each" ] || fail "$each belongs to another user; name another directory as \`dir\`"
    case $(ls -ld "$each") in
        d????w*|d???????w*) fail "others may write to $each; name a directory of your own as \`dir\`, or chmod 700 it" ;;
    esac
done
"#
    )
}

/// Looks at the machine: prints its kind, and whether it has the program. Removes what nodes left behind that were killed.
#[must_use]
pub fn probe(host: &Host, hash: &str, name: &str) -> String {
    let program = programs(hash);
    let name = quote(name);
    prologue(host)
        + &format!(
            r#"for left in "$dir"/run."$(uname -n)".*; do
    process=${{left##*.}}
    [ -d "$left" ] && ! kill -0 "$process" 2>/dev/null && rm -rf "$left"
done
find "$dir/programs" -mindepth 1 -maxdepth 1 -mtime +{KEPT_DAYS} -exec rm -rf {{}} + 2>/dev/null
echo "machine $(uname -m)"
name={name}
if [ -x "{program}/$name" ]; then touch "{program}"; echo "program there"; else echo "program missing"; fi
"#
        )
}

/// Keeps the bytes behind the script as the program.
#[must_use]
pub fn copy(host: &Host, hash: &str, name: &str, length: usize) -> String {
    let program = programs(hash);
    let name = quote(name);
    prologue(host)
        + &format!(
            r#"trap 'rm -f "$new"' EXIT
name={name}
new=$(mktemp "$dir/programs/new.XXXXXX") && cat >"$new" || fail "cannot write to $dir; is the disk full?"
[ "$(wc -c <"$new")" -eq {length} ] || fail "the program did not arrive whole in $dir"
chmod 700 "$new" && mkdir -p "{program}" && mv -f "$new" "{program}/$name" || fail "cannot write to $dir"
"#
        )
}

/// Removes the program from a machine on which no node was started.
#[must_use]
pub fn remove(host: &Host, hash: &str) -> String {
    let program = programs(hash);
    prologue(host) + &format!("rm -rf \"{program}\"\n")
}

/// A node, and what it needs.
pub struct NodeScript<'a> {
    /// The machine.
    pub host: &'a Host,
    /// The hash of the program.
    pub hash: &'a str,
    /// The name of the program.
    pub program: &'a str,
    /// The arguments of the program.
    pub arguments: &'a [String],
    /// The variables of the node, beside the credential and the events file.
    pub env: &'a [(String, String)],
    /// The text of the credential file.
    pub credential: &'a str,
    /// Is the program removed when the node has ended?
    pub clean: bool,
    /// The node's grace in seconds.
    pub grace_s: u64,
}

impl NodeScript<'_> {
    /// Runs the node: its output is that of the program; its events and its exit code come in marked lines. Words on the
    /// standard input are signals for it. When the standard input ends, so does the node.
    #[must_use]
    pub fn text(&self) -> String {
        self.with_credential(self.credential)
    }

    /// The same for people to look at.
    #[must_use]
    pub fn shown(&self) -> String {
        self.with_credential(HIDDEN)
    }

    fn with_credential(&self, credential: &str) -> String {
        let program = programs(self.hash);
        let name = quote(self.program);
        let clean = match self.clean {
            true => format!(r#" "{program}""#),
            false => String::new(),
        };
        let mut variables = String::new();
        for (name, value) in self.env {
            let _ = writeln!(variables, "export {name}={}", quote(value));
        }
        let credential = quote(credential);
        let arguments: Vec<String> = self.arguments.iter().map(|word| quote(word)).collect();
        let arguments = arguments.join(" ");
        let workdir = self.host.workdir.as_deref().map(quote);
        let workdir = workdir.unwrap_or_else(|| "\"$HOME\"".into());
        let kill_after_s = self.grace_s.saturating_add(KILL_AFTER_S);
        // The shell must outlive a broken connection, to remove the credential. Events come through a pipe that is open for reading as
        // well, so that neither end waits for the other; the line `.` ends them.
        prologue(self.host)
            + &format!(
                r#"trap '' PIPE
trap : HUP INT TERM
run=$dir/run.$(uname -n).$$
trap 'rm -rf "$run"{clean}' EXIT
rm -rf "$run" && mkdir "$run" && mkfifo "$run/events" || fail "cannot write to $dir"
printf '%s' {credential} >"$run/pool.pem" || fail "cannot write to $dir; is the disk full?"
{variables}export SATIN_CREDENTIAL="$run/pool.pem" SATIN_EVENTS="$run/events"
name={name}
cd {workdir} || fail "there is no directory "{workdir}"; correct \`workdir\`"
exec 3<&0 4<>"$run/events"
while IFS= read -r line <&4; do
    [ "$line" = . ] && break
    printf '\036%s\n' "$line" >&2
done &
events=$!
"{program}/$name" {arguments} </dev/null 3<&- 4>&- &
node=$!
{{
    while read -r word; do kill -s "$word" "$node"; done
    kill -s TERM "$node"; sleep {kill_after_s}; kill -s KILL "$node"
}} <&3 >/dev/null 2>&1 4>&- &
words=$!
while :; do
    wait "$node"; code=$?
    kill -0 "$node" 2>/dev/null || break
done
echo . >&4
wait "$events"
kill "$words" 2>/dev/null
printf '\036exit %s\n' "$code" >&2
exit "$code"
"#
            )
    }
}

/// The variables of this process that nodes get too: Satin's settings, but those that the launcher sets itself.
#[must_use]
pub fn inherited() -> Vec<(String, String)> {
    let text = |variable: (std::ffi::OsString, std::ffi::OsString)| {
        let (name, value) = variable;
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let is_wanted = |(name, _): &(String, String)| {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        plain && (name == "RUST_BACKTRACE" || (name.starts_with("SATIN_") && !is_ours(name)))
    };
    std::env::vars_os()
        .filter_map(text)
        .filter(is_wanted)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn any_text_is_one_word_of_the_shell() {
        for text in [
            "",
            "a b",
            "it's",
            "$HOME `x` \"y\"",
            "a\nb",
            "-n",
            "*",
            "plain-1.2",
        ] {
            let output = Command::new("/bin/sh")
                .args(["-c", &format!("printf %s {}", quote(text))])
                .output()
                .expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
    }

    #[test]
    fn a_script_is_read_to_its_last_byte_and_no_further() {
        let script = "echo one; cat";
        let mut shell = Command::new("/bin/sh")
            .args(["-c", &bootstrap(script)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut stdin = shell.stdin.take().expect("piped");
        stdin.write_all(script.as_bytes()).expect("read");
        stdin.write_all(b"two").expect("read");
        drop(stdin);
        let output = shell.wait_with_output().expect("ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo");
    }
}
