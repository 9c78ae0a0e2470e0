//! Two network namespaces that stand for two machines.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// The addresses of the two.
pub const ADDRESSES: [&str; 2] = ["192.0.2.7", "192.0.2.9"];

pub fn ip(words: &str) -> bool {
    let run = Command::new("ip")
        .args(words.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    run.is_ok_and(|status| status.success())
}

/// The namespaces, with a cable between them. They go when this is dropped, also by a panic.
pub struct TwoMachines([String; 2]);

impl TwoMachines {
    /// `None` where this process may not make any.
    pub fn new() -> Option<TwoMachines> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        remove_leftovers();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |machine| format!("satin-{}-m{number}{machine}", std::process::id());
        let machines = TwoMachines([name("a"), name("b")]);
        let [a, b] = &machines.0;
        if !ip(&format!("netns add {a}")) || !ip(&format!("netns add {b}")) {
            return None;
        }
        assert!(ip(&format!(
            "-n {a} link add eth0 type veth peer name eth0 netns {b}"
        )));
        for (name, address) in machines.0.iter().zip(ADDRESSES) {
            assert!(ip(&format!("-n {name} addr add {address}/24 dev eth0")));
            assert!(ip(&format!("-n {name} link set lo up")));
            assert!(ip(&format!("-n {name} link set eth0 up")));
        }
        Some(machines)
    }

    /// Gives both machines these lines for names.
    pub fn set_names(&self, lines: &str) {
        for name in &self.0 {
            // `ip netns exec` puts this in the place of /etc/hosts.
            fs::create_dir_all(etc(name)).expect("made");
            let text = format!("127.0.0.1 localhost\n{lines}");
            fs::write(etc(name).join("hosts"), text).expect("written");
        }
    }

    /// A command on one of the machines. Its process is the child: `ip netns exec` becomes it.
    pub fn at(&self, machine: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.0[machine]])
            .arg(program);
        command
    }
}

impl Drop for TwoMachines {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns del {name}"));
            let _ = fs::remove_dir_all(etc(name));
        }
    }
}

fn etc(name: &str) -> PathBuf {
    Path::new("/etc/netns").join(name)
}

/// Namespaces of tests that were killed.
fn remove_leftovers() {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name
            .strip_prefix("satin-")
            .and_then(|rest| rest.split('-').next());
        let is_left = |process: &str| {
            process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists()
        };
        if process.is_some_and(is_left) {
            ip(&format!("netns del {name}"));
            let _ = fs::remove_dir_all(etc(&name));
        }
    }
}
