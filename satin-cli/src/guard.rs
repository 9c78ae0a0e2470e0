//! The guard cleans up when this process cannot: a shell that waits at the end of a pipe. If the pipe closes without a
//! word, this process was killed; then the guard kills its nodes and removes its files.
//!
//! We may be killed after a node was started and before the guard was told. So on Linux it also looks for processes that
//! have the name of our directory in their environment, until there has been none for a while.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
groups=' '
while read -r what which; do
    case $what in
        group) groups="$groups$which " ;;
        gone)
            rest=' '
            for group in $groups; do
                if [ "$group" != "$which" ]; then rest="$rest$group "; fi
            done
            groups=$rest ;;
        over) exit 0 ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done 2>/dev/null
quiet=0
while [ -d /proc/self ] && [ $quiet -lt 3 ]; do
    quiet=$((quiet + 1))
    for environ in $(grep -lF -- "$1/" /proc/[0-9]*/environ 2>/dev/null); do
        process=${environ#/proc/}
        kill -s KILL "${process%/environ}" && quiet=0
    done 2>/dev/null
    sleep 0.2
done
rm -rf -- "$1"
"#;

pub struct ProcessGuard {
    process: Child,
    words: Option<ChildStdin>,
}

impl ProcessGuard {
    /// A guard of the directory `scratch`, and of no process yet.
    ///
    /// # Errors
    /// If there is no shell.
    pub fn start(scratch: &Path) -> io::Result<ProcessGuard> {
        let mut process = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "satin-guard"])
            .arg(scratch)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let words = process.stdin.take();
        Ok(ProcessGuard { process, words })
    }

    /// Puts a process group under guard.
    pub fn watch(&mut self, group: u32) {
        self.tell(&format!("group {group}\n"));
    }

    /// Takes a process group, which is gone, off the guard: another program may get its number from now on.
    pub fn forget(&mut self, group: u32) {
        self.tell(&format!("gone {group}\n"));
    }

    fn tell(&mut self, words: &str) {
        // Without a guard we go on: it is needed only if we are killed.
        let _ = self
            .words
            .as_mut()
            .map(|pipe| pipe.write_all(words.as_bytes()));
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        self.tell("over\n");
        drop(self.words.take());
        let _ = self.process.wait();
    }
}
