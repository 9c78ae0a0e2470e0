//! The memory of this node (`SATIN_MEMORY`): where it is nearly used up the node asks for no further jobs, until there is room again.
//!
//! Looked at are the process itself, if the setting gives it a limit, and the control groups that it is in, as the system kills by their
//! limits. Knows Linux only; elsewhere nothing is measured.

use std::{
    fs, io,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use indicatif::HumanBytes;
use tokio::time::sleep;

use super::{driver::Net, settings::MemoryLimit};
use crate::node::Event;

/// Between two looks. Too short: files are read for nothing. Too long: jobs come for which there is no room.
const LOOK: Duration = Duration::from_millis(250);

/// From this part of the limit on the node asks for no jobs. Too small: memory lies idle. Too large: the jobs that are under way have no room
/// to grow.
const FULL: f64 = 0.9;

/// Below this part it asks again. Too small: the node is idle for long. Too large: it stops and goes on all the time.
const FREE: f64 = 0.8;

/// A limit of a control group that is no smaller is none: version 1 writes a very large number.
const NO_LIMIT: u64 = 1 << 60;

/// Where the system tells what this process, and its control groups, use.
struct SystemFiles<'p> {
    /// `/proc/self`
    process: &'p Path,
    /// `/sys/fs/cgroup`
    groups: &'p Path,
}

/// Something with a limit of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gauge {
    limit: u64,
    source: GaugeSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GaugeSource {
    /// The resident memory of the process, in this file.
    Process(PathBuf),
    /// The control group in this directory.
    Group {
        dir: PathBuf,
        names: &'static GroupNames,
    },
}

/// The names of what a control group tells.
#[derive(Debug, PartialEq, Eq)]
struct GroupNames {
    limit: &'static str,
    used: &'static str,
    /// The row of `memory.stat` with the bytes of files that were not used of late: the system takes those away before it kills.
    cached: &'static str,
}

/// Control groups of version 2.
static UNIFIED: GroupNames = GroupNames {
    limit: "memory.max",
    used: "memory.current",
    cached: "inactive_file",
};

/// Control groups of version 1.
static LEGACY: GroupNames = GroupNames {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file",
};

/// The fullest of the gauges.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MemoryLevel<'g> {
    gauge: &'g Gauge,
    used: u64,
}

/// Watches the memory as long as the node lives, and tells the node when it is full and when it is not any more.
pub(super) async fn watch(net: Rc<Net>, limit: MemoryLimit) {
    let system = SystemFiles {
        process: Path::new("/proc/self"),
        groups: Path::new("/sys/fs/cgroup"),
    };
    let mut gauges = system.gauges(limit);
    if let (MemoryLimit::Bytes(_), true) = (limit, gauges.is_empty()) {
        tracing::warn!("SATIN_MEMORY has no effect: this system does not tell what a process uses");
    }
    let mut is_full = false;
    while !gauges.is_empty() && !net.driver.borrow().is_over() {
        // A system that is out of memory may be long in answering.
        let look = move || {
            let change = change(fullest(&gauges), is_full);
            (gauges, change)
        };
        let Ok((again, change)) = tokio::task::spawn_blocking(look).await else {
            return;
        };
        gauges = again;
        if let Some(text) = change {
            is_full = !is_full;
            match is_full {
                true => tracing::warn!("{text}"),
                false => tracing::info!("{text}"),
            }
            net.handle(Event::MemoryFull(is_full));
        }
        sleep(LOOK).await;
    }
}

/// The gauge that is fullest, of those that can be read.
fn fullest(gauges: &[Gauge]) -> Option<MemoryLevel<'_>> {
    let levels = gauges.iter().filter_map(|gauge| {
        let used = gauge.used().ok()?;
        Some(MemoryLevel { gauge, used })
    });
    levels.max_by(|a, b| a.part().total_cmp(&b.part()))
}

/// What is to be said if a node that was full, or not, is that no more. A node of which that cannot be read any more is not full: nothing would
/// ever say that it has room again.
fn change(level: Option<MemoryLevel<'_>>, is_full: bool) -> Option<String> {
    match level {
        Some(level) => level.change(is_full),
        None => is_full.then(|| {
            "what this process uses cannot be read any more: it takes jobs again".to_owned()
        }),
    }
}

impl MemoryLevel<'_> {
    fn part(&self) -> f64 {
        self.used as f64 / self.gauge.limit as f64
    }

    /// What is to be said if a node that was full, or not, is that no more.
    fn change(&self, was_full: bool) -> Option<String> {
        let MemoryLevel { gauge, used } = self;
        let (used, limit) = (HumanBytes(*used), HumanBytes(gauge.limit));
        match was_full {
            false if self.part() >= FULL => Some(format!(
                "this node uses {used} of {limit}, the limit of {gauge}: it takes no jobs of other nodes until it is below {}; give it more \
                 memory, or let it do less at a time (fewer SATIN_THREADS, smaller jobs)",
                HumanBytes((gauge.limit as f64 * FREE) as u64)
            )),
            true if self.part() < FREE => Some(format!(
                "this node uses {used} of {limit}, and takes jobs again"
            )),
            _ => None,
        }
    }
}

impl SystemFiles<'_> {
    /// What is to be watched under that setting.
    fn gauges(&self, limit: MemoryLimit) -> Vec<Gauge> {
        let own = match limit {
            MemoryLimit::None => return Vec::new(),
            MemoryLimit::OfSystem => None,
            MemoryLimit::Bytes(limit) => Some(Gauge {
                limit,
                source: GaugeSource::Process(self.process.join("status")),
            }),
        };
        let own = own.filter(|own| own.used().is_ok());
        own.into_iter().chain(self.groups()).collect()
    }

    /// The control groups with a limit that this process is in.
    fn groups(&self) -> Vec<Gauge> {
        let Ok(memberships) = fs::read_to_string(self.process.join("cgroup")) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for line in memberships.lines() {
            // `0::/PATH` of version 2, `4:memory:/PATH` of version 1.
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let names = match controllers {
                "" => &UNIFIED,
                _ if controllers.split(',').any(|name| name == "memory") => &LEGACY,
                _ => continue,
            };
            let mount = match controllers {
                "" => self.groups.into(),
                _ => self.groups.join("memory"),
            };
            let group = mount.join(path.trim_start_matches('/'));
            // A limit holds for all below. In a container the path may be one that is seen outside only; then the mount is the group.
            let up = group
                .ancestors()
                .take_while(|dir| dir.starts_with(&mount))
                .map(Path::to_path_buf);
            found.extend(up.filter_map(|dir| Gauge::of_group(dir, names)));
        }
        found
    }
}

impl Gauge {
    /// The group in that directory, if it has a limit.
    fn of_group(dir: PathBuf, names: &'static GroupNames) -> Option<Gauge> {
        // Version 2 writes `max` where there is none.
        let limit = number(&dir.join(names.limit)).ok()?;
        let source = GaugeSource::Group { dir, names };
        (1..NO_LIMIT)
            .contains(&limit)
            .then_some(Gauge { limit, source })
    }

    /// The bytes that are used now.
    fn used(&self) -> io::Result<u64> {
        match &self.source {
            GaugeSource::Process(status) => {
                let text = fs::read_to_string(status)?;
                row(&text, "VmRSS:")
                    .map(|kib| kib << 10)
                    .ok_or_else(unreadable)
            }
            GaugeSource::Group { dir, names } => {
                let used = number(&dir.join(names.used))?;
                let stat = fs::read_to_string(dir.join("memory.stat"))?;
                Ok(used.saturating_sub(row(&stat, names.cached).unwrap_or(0)))
            }
        }
    }
}

impl std::fmt::Display for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            GaugeSource::Process(_) => f.write_str("SATIN_MEMORY"),
            GaugeSource::Group { dir, .. } => write!(f, "its control group {}", dir.display()),
        }
    }
}

fn number(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?
        .trim()
        .parse()
        .map_err(|_| unreadable())
}

fn unreadable() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The number that follows that name at the beginning of a line.
fn row(text: &str, name: &str) -> Option<u64> {
    let mut rows = text.lines().map(str::split_whitespace);
    rows.find_map(|mut words| match words.next() {
        Some(first) if first == name => words.next()?.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A system that tells what the test says.
    struct FakeSystem(TempDir);

    impl FakeSystem {
        /// The process is in these groups.
        fn new(memberships: &str) -> FakeSystem {
            let system = FakeSystem(TempDir::new().expect("a directory"));
            system.write("proc/cgroup", memberships);
            system
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            let dir = path.parent().expect("a directory");
            fs::create_dir_all(dir).expect("made");
            fs::write(path, text).expect("written");
        }

        fn gauges(&self, limit: MemoryLimit) -> Vec<Gauge> {
            let files = SystemFiles {
                process: &self.0.path().join("proc"),
                groups: &self.0.path().join("groups"),
            };
            files.gauges(limit)
        }

        fn uses(&self, mib: u64) {
            let text = format!("Name:\tsatin\nVmPeak:\t9 kB\nVmRSS:\t  {} kB\n", mib << 10);
            self.write("proc/status", &text);
        }

        /// A group of version 2, with 8 MiB of files among what it uses.
        fn group(&self, path: &str, limit: &str, mib: u64) {
            let used = format!("{}\n", mib << 20);
            self.write(&format!("groups/{path}memory.max"), limit);
            self.write(&format!("groups/{path}memory.current"), &used);
            let stat = format!("anon 1\ninactive_file {}\nactive_file 2\n", 8 * MIB);
            self.write(&format!("groups/{path}memory.stat"), &stat);
        }
    }

    fn limits(gauges: &[Gauge]) -> Vec<u64> {
        gauges.iter().map(|gauge| gauge.limit / MIB).collect()
    }

    #[test]
    fn groups_of_version_2_count_with_all_above_them() {
        let system = FakeSystem::new("0::/batch/job7\n");
        system.group("batch/job7/", &format!("{}\n", 100 * MIB), 58);
        system.group("batch/", &format!("{}\n", 400 * MIB), 388);
        system.write("groups/memory.stat", "anon 1\n"); // the root has no limit
        let gauges = system.gauges(MemoryLimit::OfSystem);
        assert_eq!(limits(&gauges), [100, 400]);
        assert_eq!(gauges[0].used().expect("read"), 50 * MIB);
        // The fullest one counts.
        let level = fullest(&gauges).expect("two levels");
        assert_eq!((level.gauge, level.used), (&gauges[1], 380 * MIB));
        let text = level.change(false).expect("it is full");
        let told = "uses 380.00 MiB of 400.00 MiB, the limit of its control group";
        assert!(
            text.contains(told) && text.contains("below 320.00 MiB"),
            "{text}"
        );
        assert!(system.gauges(MemoryLimit::None).is_empty());
    }

    #[test]
    fn a_group_without_a_limit_does_not_count() {
        let system = FakeSystem::new("0::/user\n");
        system.group("user/", "max\n", 58);
        assert!(system.gauges(MemoryLimit::OfSystem).is_empty());
        let nothing = FakeSystem::new("");
        assert!(nothing.gauges(MemoryLimit::Bytes(MIB)).is_empty());
    }

    #[test]
    fn in_a_container_the_mount_is_the_group() {
        let system = FakeSystem::new("0::/../../seen/outside/only\n");
        system.group("", &format!("{}\n", 64 * MIB), 30);
        assert_eq!(limits(&system.gauges(MemoryLimit::OfSystem)), [64]);
    }

    #[test]
    fn groups_of_version_1_count() {
        let system = FakeSystem::new("5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n");
        let of_1 = |path: &str, limit: u64| {
            system.write(
                &format!("groups/memory/{path}memory.limit_in_bytes"),
                &format!("{limit}\n"),
            );
            system.write(
                &format!("groups/memory/{path}memory.usage_in_bytes"),
                "9000000\n",
            );
            let stat = "inactive_file 1\ntotal_inactive_file 1000000\n";
            system.write(&format!("groups/memory/{path}memory.stat"), stat);
        };
        of_1("a/b/", 50 * MIB);
        of_1("", 9_223_372_036_854_771_712);
        let gauges = system.gauges(MemoryLimit::OfSystem);
        assert_eq!(limits(&gauges), [50]);
        assert_eq!(gauges[0].used().expect("read"), 8_000_000);
    }

    #[test]
    fn a_full_node_whose_gauge_is_gone_takes_jobs_again() {
        assert!(change(None, true).is_some());
        assert_eq!(change(None, false), None);
    }

    #[test]
    fn a_full_node_is_full_until_there_is_room() {
        let system = FakeSystem::new("");
        system.uses(50);
        let gauges = system.gauges(MemoryLimit::Bytes(100 * MIB));
        let mut is_full = false;
        let mut told = Vec::new();
        for mib in [50, 89, 90, 95, 85, 80, 79, 89, 120] {
            system.uses(mib);
            let level = fullest(&gauges).expect("a level");
            let change = level.change(is_full);
            is_full ^= change.is_some();
            told.extend(change.map(|text| (mib, is_full, text)));
        }
        let changes: Vec<_> = told
            .iter()
            .map(|(mib, is_full, _)| (*mib, *is_full))
            .collect();
        assert_eq!(changes, [(90, true), (79, false), (120, true)]);
        assert!(
            told[0].2.contains("the limit of SATIN_MEMORY"),
            "{}",
            told[0].2
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_uses_memory() {
        let system = SystemFiles {
            process: Path::new("/proc/self"),
            groups: Path::new("/sys/fs/cgroup"),
        };
        let gauges = system.gauges(MemoryLimit::Bytes(1));
        let own = gauges.first().expect("the process");
        let ballast = vec![1_u8; 64 << 20];
        assert!(own.used().expect("read") > ballast.len() as u64);
        for group in &gauges[1..] {
            assert!(
                group.used().expect("read") > ballast.len() as u64,
                "{group}"
            );
        }
    }
}
