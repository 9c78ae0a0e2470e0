//! `SATIN_JOIN=slurm` on a real Slurm of one machine, which this test starts with a configuration of its own, as
//! Debian's packages have it: several tasks on a machine, and no setting but that one. `slurm.sh` has three machines, and the faults.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

mod common;

use common::{PATIENCE, example};

/// A cluster of one machine. All goes when this is dropped.
struct Cluster {
    daemons: Vec<Child>,
    scratch: tempfile::TempDir,
}

/// A program of Slurm: Debian puts the daemons where only root looks.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ports that are free at this moment, all different.
fn free_ports<const N: usize>() -> [u16; N] {
    let sockets: [_; N] =
        std::array::from_fn(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    sockets.map(|socket| socket.local_addr().expect("an address").port())
}

/// The number of a cluster's first job: as ports follow from it, no two clusters on this machine may have the same.
fn first_job() -> u32 {
    static CLUSTERS: AtomicU32 = AtomicU32::new(0);
    let cluster = CLUSTERS.fetch_add(1, Ordering::Relaxed);
    1 + std::process::id() % 1_000_000 * 30 + cluster * 10
}

impl Cluster {
    /// `None`, and says so, where there is no Slurm, or no right to start it.
    fn new(test: &str) -> Option<Cluster> {
        let programs = ["munged", "slurmctld", "slurmd", "srun", "sinfo", "scancel"];
        if programs.iter().any(|name| find(name).is_none()) {
            // The same words whichever is missing: `.ci/expected-tests` has them.
            println!(
                "skipped: {test}: needs Slurm (Debian: slurmctld, slurmd, slurm-client, munge)"
            );
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            println!("skipped: {test}: needs root, as Slurm starts tasks for other users");
            return None;
        }
        let mut cluster = Cluster {
            daemons: Vec::new(),
            scratch: tempfile::tempdir().expect("a directory"),
        };
        cluster.configure();
        cluster.start();
        Some(cluster)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn configure(&self) {
        let [controller, daemon] = free_ports();
        let dir = self.scratch.path().display();
        for name in ["state", "spool", "home", "store"] {
            fs::create_dir(self.file(name)).expect("made");
        }
        let text = format!(
            "ClusterName=delft\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={controller}\nSlurmdPort={daemon}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={dir}/munge.sock\nCredType=cred/munge\n\
             StateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool\nSlurmctldPidFile={dir}/slurmctld.pid\n\
             SlurmdPidFile={dir}/slurmd.pid\nSlurmctldLogFile={dir}/slurmctld.log\nSlurmdLogFile={dir}/slurmd.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nJobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\nSlurmdParameters=config_overrides\nReturnToService=2\n\
             NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 RealMemory=100\n\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE\n\
             FirstJobId={}\n",
            first_job()
        );
        fs::write(self.file("slurm.conf"), text).expect("written");
        // Without a plugin that looks for cgroups: there may be none.
        fs::write(self.file("cgroup.conf"), "CgroupPlugin=cgroup/v1\n").expect("written");
        let key = self.file("munge.key");
        fs::write(&key, [7; 128]).expect("written");
        let private = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        fs::set_permissions(&key, private).expect("set");
    }

    fn start(&mut self) {
        let flag = |flag: &str, name: &str| format!("--{flag}={}", self.file(name).display());
        let munge = [
            "--force".to_owned(),
            "-F".into(),
            flag("socket", "munge.sock"),
            flag("key-file", "munge.key"),
            flag("pid-file", "munged.pid"),
            flag("log-file", "munged.log"),
            flag("seed-file", "munge.seed"),
        ];
        self.daemon("munged", &munge);
        wait_until("munged", || self.file("munge.sock").exists());
        self.daemon("slurmctld", &["-D".into()]);
        self.daemon("slurmd", &["-D".into(), "-N".into(), "localhost".into()]);
        wait_until("an idle machine", || {
            let states = self.command("sinfo", &["-h", "-o", "%T"]).output();
            states.is_ok_and(|output| output.stdout.starts_with(b"idle\n"))
        });
    }

    fn daemon(&mut self, name: &str, arguments: &[String]) {
        let program = find(name).expect("it is there");
        let log = || fs::File::create(self.file(&format!("{name}.out"))).expect("made");
        let daemon = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", self.file("slurm.conf"))
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn();
        self.daemons.push(daemon.expect("it starts"));
    }

    /// A command of somebody who uses the cluster, and has set `SATIN_JOIN=slurm` and nothing else. (Where the events go is for us.)
    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(find(name).unwrap_or_else(|| name.into()));
        command
            .args(arguments)
            .env("SLURM_CONF", self.file("slurm.conf"))
            .env("HOME", self.file("home"))
            .env_remove("XDG_STATE_HOME")
            .env("SATIN_JOIN", "slurm")
            .env("SATIN_EVENTS", self.file("events"))
            .current_dir(self.scratch.path())
            .stdin(Stdio::null());
        for variable in [
            "SATIN_CREDENTIAL",
            "SATIN_LISTEN",
            "SATIN_STORE",
            "SATIN_THREADS",
        ] {
            command.env_remove(variable);
        }
        command
    }

    fn srun(&self, tasks: &str, program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.command("srun", &[tasks]);
        command.arg(program).args(arguments);
        command
    }

    fn events(&self) -> String {
        fs::read_to_string(self.file("events")).unwrap_or_default()
    }

    fn log(&self) -> String {
        let names = ["slurmctld.log", "slurmd.log"];
        let texts = names.map(|name| fs::read_to_string(self.file(name)).unwrap_or_default());
        texts.concat()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Steps that still run end with the machine's daemon and their `srun`.
        let _ = self.command("scancel", &["--state=RUNNING"]).output();
        for daemon in self.daemons.iter_mut().rev() {
            let pid = rustix::process::Pid::from_child(daemon);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for daemon in &mut self.daemons {
            let began = Instant::now();
            while matches!(daemon.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(10)
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Values of a key in the lines of the events file that have these words.
fn values(events: &str, words: &str, key: &str) -> Vec<String> {
    let lines = events.lines().filter(|line| line.contains(words));
    let value = |line: &str| {
        let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
        Some(rest.split('"').next()?.to_owned())
    };
    lines.filter_map(value).collect()
}

#[test]
fn srun_makes_a_pool_of_all_tasks_without_another_setting() {
    let Some(cluster) = Cluster::new("srun_makes_a_pool_of_all_tasks") else {
        return;
    };
    // All tasks are in before the work begins, so that each of them is seen.
    // The command of the docs, with three tasks of one machine for four machines.
    let document = include_str!("../../docs/src/running-on-slurm.md");
    let command = "export SATIN_JOIN=slurm\nsrun -N4 ./program 42\n";
    assert!(document.contains(&format!("```sh\n{command}```")));
    let command = command.replace(
        "-N4 ./program 42",
        &format!("-n3 {} 27", example("fib").display()),
    );
    let mut srun = cluster.command("/bin/sh", &["-c", &command]);
    srun.env_remove("SATIN_JOIN").env("SATIN_NODES", "3");
    let output = srun.output().expect("srun starts");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}{}", cluster.log());
    assert_eq!(out.matches("fib(27) = 196418").count(), 1, "{out}{err}");
    let events = cluster.events();
    assert_eq!(
        values(&events, "\"event\":\"joined\"", "site"),
        ["delft", "delft"],
        "{events}"
    );
    let mut ports = values(&events, "\"event\":\"node\"", "addr");
    ports.sort();
    ports.dedup();
    assert_eq!(ports.len(), 3, "{events}");
    // One core for each task, as Slurm has promised.
    assert_eq!(
        events.matches("\"threads\":1,\"name\"").count(),
        3,
        "{events}"
    );
    let credential = cluster.file("home/.local/state/satin/store.pem");
    let mode = fs::metadata(credential).expect("made by one of them");
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn two_jobs_at_once_are_two_pools() {
    let Some(cluster) = Cluster::new("two_jobs_at_once_are_two_pools") else {
        return;
    };
    let start = |name: &str| {
        let mut srun = cluster.srun("-n2", &example("knary"), &["3", "5", "20000", "--sleep"]);
        srun.env("SATIN_NODES", "2")
            .env("SATIN_EVENTS", cluster.file(name));
        srun.stdout(Stdio::piped()).stderr(Stdio::piped());
        srun.spawn().expect("srun starts")
    };
    for (name, srun) in [("one", start("one")), ("two", start("two"))] {
        let output = srun.wait_with_output().expect("it ends");
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{out}{err}{}", cluster.log());
        assert_eq!(out.matches("= 125 leaves").count(), 1, "{out}{err}");
        let events = fs::read_to_string(cluster.file(name)).expect("readable");
        assert_eq!(
            events.matches("\"event\":\"joined\"").count(),
            1,
            "{events}"
        );
    }
}

#[test]
fn a_job_that_is_preempted_keeps_what_it_has_done() {
    let Some(cluster) = Cluster::new("a_job_that_is_preempted") else {
        return;
    };
    let store = format!("file:{}", cluster.file("store").display());
    let work = ["4", "5", "40000", "--sleep"];
    let srun = || {
        let mut srun = cluster.srun("-n2", &example("knary"), &work);
        srun.env("SATIN_STORE", &store)
            .env("SATIN_NODES", "2")
            .env("SATIN_LOG", "info");
        srun.stdout(Stdio::piped()).stderr(Stdio::piped());
        srun
    };
    let first = srun().spawn().expect("srun starts");
    // A few percent: subtrees are done, and their results can be kept.
    wait_until("some progress", || {
        cluster.events().matches("\"event\":\"progress\"").count() >= 5
    });
    // What Slurm sends to all tasks before it takes their machines, and at the end of their time.
    let cancel = cluster
        .command("scancel", &["--signal=TERM", "--state=RUNNING"])
        .output();
    assert!(cancel.expect("scancel starts").status.success());
    let output = first.wait_with_output().expect("it ends");
    let (out, err) = texts(&output);
    assert!(!output.status.success(), "{out}{err}");
    let output = srun().output().expect("srun starts");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}{}", cluster.log());
    assert!(err.contains("goes on with run"), "{out}{err}");
    assert!(!err.contains(": 0 results are in the store"), "{out}{err}");
    assert!(out.contains("= 625 leaves"), "{out}{err}");
}
