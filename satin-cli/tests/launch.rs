//! `satin launch` over a real `sshd`, which each test starts with a host key and a list of keys of its own: on two machines
//! where this process may make network namespaces, and else twice on the loopback interface.

use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpStream, UdpSocket},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

mod common;

use common::{
    PATIENCE, example,
    machines::{ADDRESSES, TwoMachines},
};
use rustix::process::{Pid, Signal, kill_process};

/// The TCP port of each `sshd` in a namespace.
const SSH_PORT: u16 = 2222;

/// Two machines that `ssh` reaches, and a directory of files that tests need. All goes when this is dropped.
struct Machines {
    /// The namespaces, if there are any.
    namespaces: Option<TwoMachines>,
    servers: Vec<Child>,
    ssh_port: u16,
    /// The UDP port of the first node.
    node_port: u16,
    scratch: tempfile::TempDir,
}

/// The server of OpenSSH, which wants to be started by its full path.
fn sshd() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    dirs.map(|dir| dir.join("sshd")).find(|file| file.is_file())
}

fn has(command: &str, version: &str) -> bool {
    let run = Command::new(command)
        .arg(version)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    run.is_ok()
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn make_key(file: &Path) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(file)
        .status();
    assert!(status.expect("ssh-keygen starts").success());
}

impl Machines {
    /// `None`, and says so, where there is no `sshd`.
    fn new(test: &str) -> Option<Machines> {
        let Some(sshd) = sshd().filter(|_| has("ssh", "-V") && has("ssh-keygen", "-?")) else {
            println!("skipped: {test}: needs sshd, ssh and ssh-keygen (Debian: openssh-server)");
            return None;
        };
        let scratch = tempfile::tempdir().expect("a directory");
        let namespaces = TwoMachines::new();
        let ssh_port = match namespaces {
            Some(_) => SSH_PORT,
            None => free_tcp_port(),
        };
        let mut machines = Machines {
            namespaces,
            servers: Vec::new(),
            ssh_port,
            node_port: free_udp_port(),
            scratch,
        };
        make_key(&machines.file("host"));
        make_key(&machines.file("me"));
        fs::copy(machines.file("me.pub"), machines.file("authorized")).expect("copied");
        machines.start_servers(&sshd);
        machines.write_known_hosts();
        Some(machines)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn address(&self, machine: usize) -> &'static str {
        match self.namespaces {
            Some(_) => ADDRESSES[machine],
            None => "127.0.0.1",
        }
    }

    fn start_servers(&mut self, sshd: &Path) {
        if rustix::process::geteuid().is_root() {
            // Where the server's unprivileged half lives; systems make it when they start theirs.
            let _ = fs::create_dir("/run/sshd");
        }
        let count = if self.namespaces.is_some() { 2 } else { 1 };
        for machine in 0..count {
            let config = format!(
                "ListenAddress {}:{}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
                 PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
                 MaxStartups 100\n",
                self.address(machine),
                self.ssh_port,
                self.file("host").display(),
                self.file("authorized").display(),
            );
            let file = self.file(&format!("sshd-{machine}"));
            fs::write(&file, config).expect("written");
            let mut command = self.at(machine, sshd);
            let log = fs::File::create(self.file("sshd.log")).expect("made");
            command.args(["-D", "-e", "-f"]).arg(&file);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let server = command.stderr(log).spawn().expect("sshd starts");
            self.servers.push(server);
            self.wait_for_server(machine);
        }
    }

    /// Waits until the server answers as it does to any client.
    fn wait_for_server(&mut self, machine: usize) {
        let address = format!("{}:{}", self.address(machine), self.ssh_port);
        let in_namespace = self.namespaces.is_some();
        wait_until("sshd", || {
            assert_eq!(
                self.servers[machine].try_wait().expect("a child"),
                None,
                "{}",
                fs::read_to_string(self.file("sshd.log")).unwrap_or_default()
            );
            match in_namespace {
                true => self
                    .at(machine, Path::new("ssh-keyscan"))
                    .args(["-p", &self.ssh_port.to_string(), self.address(machine)])
                    .output()
                    .is_ok_and(|output| !output.stdout.is_empty()),
                false => TcpStream::connect(&address).is_ok(),
            }
        });
    }

    /// The host key is written, not asked for.
    fn write_known_hosts(&self) {
        let key = fs::read_to_string(self.file("host.pub")).expect("a key");
        let lines: Vec<String> = (0..2)
            .map(|machine| format!("[{}]:{} {key}", self.address(machine), self.ssh_port))
            .collect();
        fs::write(self.file("known"), lines.concat()).expect("written");
    }

    /// A command on one of the machines.
    fn at(&self, machine: usize, program: &Path) -> Command {
        let mut command = match &self.namespaces {
            Some(machines) => machines.at(machine, program),
            None => Command::new(program),
        };
        command.current_dir(self.scratch.path());
        command
    }

    /// The file of hosts: nodes `a` and `b`, each with a directory of its own, as the machines share one disk here.
    fn hosts(&self) -> String {
        let options = format!(
            r#"["-F", "/dev/null", "-i", "{me}", "-o", "UserKnownHostsFile={known}", "-o", "IdentitiesOnly=yes"]"#,
            me = self.file("me").display(),
            known = self.file("known").display()
        );
        let mut text = format!(
            "[defaults]\nssh_port = {}\nssh_options = {options}\nthreads = 1\n",
            self.ssh_port
        );
        for (machine, name) in ["a", "b"].into_iter().enumerate() {
            text += &format!(
                "[[host]]\nhost = \"{}\"\nname = \"{name}\"\nsite = \"at-{name}\"\ndir = \"{}\"\n",
                self.address(machine),
                self.file(name).display()
            );
            if machine == 0 {
                text += &format!("listen_port = {}\n", self.node_port);
            }
        }
        text
    }

    fn write_hosts(&self) {
        fs::write(self.file("hosts.toml"), self.hosts()).expect("written");
    }

    /// `satin`, as somebody calls it on the first machine.
    fn satin(&self, words: &[&str]) -> Command {
        let mut command = self.at(0, Path::new(env!("CARGO_BIN_EXE_satin")));
        command.args(words);
        for variable in ["SATIN_CREDENTIAL", "SATIN_STORE", "SATIN_EVENTS"] {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null());
        command
    }

    fn launch(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.satin(&["launch", "--hosts", "hosts.toml"]);
        command.args(options).arg("--").arg(program).args(arguments);
        command
    }

    /// Starts a pool that works until it is ended, and waits until both nodes are in.
    fn start_long(&self) -> Running {
        self.write_hosts();
        let work = ["2", "100", "100000", "--sleep"];
        self.start(self.launch(&["--events", "events"], &example("knary"), &work))
    }

    fn start(&self, mut command: Command) -> Running {
        let open = |name: &str| fs::File::create(self.file(name)).expect("made");
        command.stdout(open("out")).stderr(open("err"));
        let child = command.process_group(0).spawn().expect("satin starts");
        let running = Running { child };
        wait_until("the work", || {
            let said = self.text("err");
            assert!(!said.contains("stopped"), "{said}");
            self.events().contains("\"root_started\"")
        });
        running
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    fn events(&self) -> String {
        self.text("events")
    }

    /// The process of that node.
    fn node(&self, name: &str) -> Pid {
        let events = self.events();
        let started = |line: &&str| {
            line.contains("\"event\":\"node\"") && line.contains(&format!("\"name\":\"{name}\""))
        };
        let line = events.lines().find(started).expect("it has started");
        let (_, rest) = line.split_once("\"pid\":").expect("a pid");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Pid::from_raw(digits.parse().expect("a number")).expect("a process")
    }

    /// Directories of nodes that run, or were left behind.
    fn runs(&self) -> Vec<PathBuf> {
        let entries = ["a", "b"].map(|dir| fs::read_dir(self.file(dir)).into_iter().flatten());
        let paths = entries.into_iter().flatten().flatten();
        let is_run = |path: &PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy();
            name.starts_with("run.")
        };
        paths.map(|entry| entry.path()).filter(is_run).collect()
    }

    fn wait_until_nothing_runs(&self) {
        wait_until("the end of all nodes", || self.runs().is_empty());
        for name in ["a", "b"] {
            let pid = self.node(name);
            wait_until("the end of its process", || {
                rustix::process::test_kill_process(pid).is_err()
            });
        }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // In a namespace the child is the server: `ip netns exec` becomes it.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn free_tcp_port() -> u16 {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let socket = std::net::TcpListener::bind(any).expect("a port");
    socket.local_addr().expect("an address").port()
}

fn free_udp_port() -> u16 {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let socket = UdpSocket::bind(any).expect("a port");
    socket.local_addr().expect("an address").port()
}

/// A `satin launch` that runs. Dropping it kills it; its nodes end by themselves.
struct Running {
    child: Child,
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    fn code(&mut self) -> Option<i32> {
        let mut code = None;
        wait_until("its end", || {
            match self.child.try_wait().expect("a child") {
                Some(status) => {
                    code = status.code();
                    true
                }
                None => false,
            }
        });
        code
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn run(mut command: Command) -> (String, String) {
    let output = command.output().expect("satin starts");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    (out, err)
}

#[track_caller]
fn fails(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().expect("satin starts");
    let (out, err) = texts(&output);
    assert!(!output.status.success(), "{out}{err}");
    assert_eq!(out, "");
    (output.status.code(), err)
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn two_machines_run_one_program_which_is_copied_only_when_it_has_changed() {
    let Some(machines) = Machines::new("two_machines_run_one_program") else {
        return;
    };
    machines.write_hosts();
    let program = machines.file("program");
    fs::copy(example("fib"), &program).expect("copied");
    let launch = || run(machines.launch(&["--events", "events"], &program, &["27"]));
    let (out, err) = launch();
    assert_eq!(out.matches("fib(27) = 196418").count(), 1, "{out}{err}");
    assert_eq!(err.matches("copied program").count(), 2, "{err}");
    let events = machines.events();
    assert!(
        events.contains("\"event\":\"joined\",\"site\":\"at-b\""),
        "{events}"
    );
    assert_eq!(events.matches("\"event\":\"stats\"").count(), 2, "{events}");
    assert!(machines.runs().is_empty(), "the credential is gone");
    for dir in ["a", "b"] {
        assert_eq!(mode(&machines.file(dir)), 0o700);
    }
    let (out, err) = launch();
    assert!(out.contains("fib(27) = 196418"), "{out}");
    assert!(!err.contains("copied"), "{err}");
    let mut changed = fs::OpenOptions::new()
        .append(true)
        .open(&program)
        .expect("open");
    changed.write_all(b"\n").expect("written");
    drop(changed);
    let (_, err) = launch();
    assert_eq!(err.matches("copied program").count(), 2, "{err}");
}

#[test]
fn ctrl_c_ends_all_nodes_and_the_credential_was_for_nobody_else() {
    let Some(machines) = Machines::new("ctrl_c_ends_all_nodes") else {
        return;
    };
    let mut running = machines.start_long();
    let runs = machines.runs();
    assert_eq!(runs.len(), 2, "{runs:?}");
    for run in &runs {
        assert_eq!(mode(run), 0o700);
        assert_eq!(mode(&run.join("pool.pem")), 0o600);
    }
    let secret = fs::read_to_string(runs[0].join("pool.pem")).expect("readable");
    let (_, secret) = secret.split_once("PRIVATE KEY-----\n").expect("a key");
    let secret = secret.lines().next().expect("a line");
    for line in command_lines() {
        assert!(!line.contains(secret), "the key is on a command line");
    }
    running.signal(Signal::INT);
    assert_eq!(running.code(), Some(130), "{}", machines.text("err"));
    assert!(machines.text("err").contains("asked to leave"));
    machines.wait_until_nothing_runs();
}

/// What all users of this machine can see.
fn command_lines() -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .collect()
}

#[test]
fn nodes_end_when_the_launcher_is_killed() {
    let Some(machines) = Machines::new("nodes_end_when_the_launcher_is_killed") else {
        return;
    };
    let mut running = machines.start_long();
    assert_eq!(machines.runs().len(), 2);
    running.signal(Signal::KILL);
    assert_eq!(running.code(), None);
    machines.wait_until_nothing_runs();
}

#[test]
fn the_pool_goes_on_when_the_first_machine_dies() {
    let Some(machines) = Machines::new("the_pool_goes_on_when_the_first_machine_dies") else {
        return;
    };
    machines.write_hosts();
    let work = ["3", "6", "100000", "--sleep"];
    let launch = machines.launch(&["--events", "events"], &example("knary"), &work);
    let mut running = machines.start(launch);
    kill_process(machines.node("a"), Signal::KILL).expect("it runs");
    assert_eq!(running.code(), Some(0), "{}", machines.text("err"));
    let (out, err) = (machines.text("out"), machines.text("err"));
    assert!(out.contains("= 216 leaves"), "{out}{err}");
    assert!(err.contains("b is master now"), "{err}");
    assert!(
        err.contains("a ended with exit code 137; the pool goes on"),
        "{err}"
    );
    machines.wait_until_nothing_runs();
}

#[test]
fn the_exit_code_is_that_of_main_and_clean_leaves_nothing() {
    let Some(machines) = Machines::new("the_exit_code_is_that_of_main") else {
        return;
    };
    machines.write_hosts();
    let (code, err) = fails(machines.launch(&["--clean"], &example("knary"), &["--no-such"]));
    assert_eq!(code, Some(2), "{err}");
    let (out, _) = run(machines.launch(&["--clean"], &example("fib"), &["20"]));
    assert!(out.contains("fib(20) = 6765"), "{out}");
    for dir in ["a", "b"] {
        let left = fs::read_dir(machines.file(dir).join("programs"));
        assert_eq!(left.expect("readable").count(), 0);
    }
}

#[test]
fn errors_say_what_to_do() {
    let Some(machines) = Machines::new("errors_say_what_to_do") else {
        return;
    };
    let with = |hosts: String| {
        fs::write(machines.file("hosts.toml"), hosts).expect("written");
        fails(machines.launch(&[], &example("fib"), &["20"])).1
    };
    let hosts = machines.hosts();
    make_key(&machines.file("other"));
    let key = machines.file("me").display().to_string();
    let other = machines.file("other").display().to_string();
    let port = format!("ssh_port = {}", machines.ssh_port);
    let known = machines.file("known").display().to_string();
    // Nothing listens at port 1; and the program is a header of the other kind of machine.
    let foreign = machines.file("foreign");
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(18, 0);
    header.extend(if cfg!(target_arch = "aarch64") {
        [62, 0]
    } else {
        [183, 0]
    });
    fs::write(&foreign, header).expect("written");
    let program = format!("threads = 1\nprogram = \"{}\"", foreign.display());
    for (hosts, expected) in [
        (hosts.replace(&port, "ssh_port = 1"), "cannot be reached"),
        (hosts.replace(&key, &other), "ssh-copy-id"),
        (hosts.replace(&known, "/dev/null"), "check the fingerprint"),
        (hosts.replace("dir = ", "dirs = "), "unknown field `dirs`"),
        (
            hosts.replace("dir = \"", "dir = \"/dev/null"),
            "name another as `dir`",
        ),
        (hosts.replace("threads = 1", &program), "was built for"),
        (
            hosts.replace("threads = 1", "workdir = \"/no/such/place\""),
            "correct `workdir`",
        ),
    ] {
        let error = with(hosts);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let error = with(hosts.replace(machines.address(1), "name.invalid"));
    assert!(error.contains("no such machine is known"), "{error}");
    assert!(error.contains("nothing has been started"), "{error}");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let Some(machines) = Machines::new("a_directory_that_others_may_write_to") else {
        return;
    };
    machines.write_hosts();
    let open = machines.file("b");
    fs::create_dir(&open).expect("made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("set");
    let (_, err) = fails(machines.launch(&[], &example("fib"), &["20"]));
    assert!(err.contains("others may write to"), "{err}");
}

#[test]
fn a_port_that_is_taken_is_an_error_that_names_the_key() {
    let Some(machines) = Machines::new("a_port_that_is_taken") else {
        return;
    };
    let _other = machines.start_long();
    let (code, err) = fails(machines.launch(&[], &example("fib"), &["20"]));
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("another `listen_port`"), "{err}");
}

#[test]
fn a_dry_run_shows_all_but_the_credential_and_touches_nothing() {
    let Some(machines) = Machines::new("a_dry_run_shows_all") else {
        return;
    };
    machines.write_hosts();
    let (out, _) = run(machines.launch(&["--dry-run"], &example("fib"), &["it's 20"]));
    assert_eq!(out.matches("exec /bin/sh -c").count(), 6, "{out}");
    assert!(out.contains(r"'it'\''s 20'"), "{out}");
    assert!(!out.contains("PRIVATE KEY"), "{out}");
    assert!(!machines.file("a").exists());
}

#[test]
fn the_examples_of_satin_launch_work() {
    let Some(machines) = Machines::new("the_examples_of_satin_launch_work") else {
        return;
    };
    machines.write_hosts();
    fs::copy(example("fib"), machines.file("program")).expect("copied");
    satin_runtime::net::Credential::write_new(&machines.file("pool.pem")).expect("written");
    let (help, _) = run(machines.satin(&["launch", "--help"]));
    let (_, examples) = help.split_once("Examples:\n").expect("examples");
    let document = include_str!("../../docs/src/running-on-ssh.md");
    let blocks = document.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("```").next());
    let examples = blocks.fold(examples.to_owned(), |all, block| all + block);
    let examples = examples.replace("\\\n", " ");
    let mut count = 0;
    for line in examples
        .lines()
        .filter(|line| line.trim().starts_with("satin launch"))
    {
        println!("{line}");
        let line = line.replace("./program 42", "./program 27");
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let (out, err) = run(machines.satin(&words));
        let is_dry = line.contains("--dry-run");
        assert!(is_dry || out.contains("fib(27) = 196418"), "{out}{err}");
        count += 1;
    }
    assert!(count >= 5, "{help}");
}
