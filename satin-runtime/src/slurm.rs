//! The place of this process in a Slurm job, from the variables that `srun` sets: `SATIN_JOIN=slurm` needs no other setting.
//!
//! All tasks of a step are nodes of one pool. Each finds out alone, and as all others do, where every task listens: at a
//! port that follows from the number of the job, plus the task's place on its machine. Nothing is sent and no file is
//! read. Only the variables are known here, not names, sockets or other nodes.

/// Ports from which jobs get theirs: below those that systems give to sockets that ask for any port.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Ports between those of one job and those of the next. Too few: tasks of a machine with many get ports of another
/// job. Too many: jobs with near numbers, which are the likeliest to share a machine, get the same ports.
const PORTS_OF_JOB: u16 = 64;

/// Tasks on one machine, and machines in a row of `SLURM_TASKS_PER_NODE`: more are a fault of the text.
const TASKS_MAX: u32 = 65_536;

/// A variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// What is asked for a variable: the environment, or a table in tests.
type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The job, and which of its tasks this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlurmTask {
    /// The machines, in Slurm's notation.
    pub(crate) machines: String,
    /// The number of tasks on each machine, in the order of the machines; none if Slurm does not say: then one each.
    tasks: Vec<u32>,
    /// The number of this task among those of its machine.
    local_id: u16,
    /// The number of the job, for the port.
    job: Option<u64>,
}

impl SlurmTask {
    /// The place of this process in its step of a job. `None` outside of a job.
    pub(crate) fn of_step(get: Get<'_>) -> Option<SlurmTask> {
        let of_step =
            get("SLURM_STEP_NODELIST").map(|machines| (machines, "SLURM_STEP_TASKS_PER_NODE"));
        let (machines, tasks) =
            of_step.or_else(|| Some((get("SLURM_JOB_NODELIST")?, "SLURM_TASKS_PER_NODE")))?;
        Some(SlurmTask::new(get, machines, tasks))
    }

    /// The whole job, for a command that is no node of the pool, and may be a step of its own.
    pub(crate) fn of_job(get: Get<'_>) -> Option<SlurmTask> {
        let machines = get("SLURM_JOB_NODELIST")?;
        let mut task = SlurmTask::new(get, machines, "SLURM_TASKS_PER_NODE");
        task.local_id = 0;
        Some(task)
    }

    fn new(get: Get<'_>, machines: String, tasks: &str) -> SlurmTask {
        let number = |name| get(name).and_then(|text| text.parse().ok());
        SlurmTask {
            machines,
            tasks: get(tasks)
                .and_then(|text| counts(&text))
                .unwrap_or_default(),
            local_id: get("SLURM_LOCALID")
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            job: number("SLURM_JOB_ID"),
        }
    }

    /// The port of the first task of each machine, unless a setting names another; `None` if the job has no number.
    pub(crate) fn first_port(&self) -> Option<u16> {
        let rows = u64::from((PORTS.end - PORTS.start) / PORTS_OF_JOB);
        let row = (self.job? % rows) as u16;
        Some(PORTS.start + row * PORTS_OF_JOB)
    }

    /// The port of this task, where the first one of the machine has `first`.
    pub(crate) fn own_port(&self, first: u16) -> u16 {
        first.saturating_add(self.local_id)
    }

    /// The port of the first task of each machine, where this one has `own`.
    pub(crate) fn first_of(&self, own: u16) -> u16 {
        own.saturating_sub(self.local_id)
    }

    /// The ports of the tasks on a machine, by its number.
    pub(crate) fn ports(&self, machine: usize, first: u16) -> impl Iterator<Item = u16> {
        let tasks = self.tasks.get(machine).copied().unwrap_or(1).max(1);
        let last = u32::from(first) + tasks;
        (u32::from(first)..last).map_while(|port| u16::try_from(port).ok())
    }
}

/// The workers of a node that has so many cores at its disposal, as far as it can tell: Slurm may have promised it fewer,
/// and share the machine among several tasks without a fence between them.
pub(crate) fn threads(get: Get<'_>, available: usize) -> usize {
    let number = |name| get(name).and_then(|text| text.parse::<usize>().ok());
    let promised = number("SLURM_CPUS_PER_TASK").or_else(|| {
        let tasks = counts(&get("SLURM_STEP_TASKS_PER_NODE")?)?;
        let here = *tasks.get(number("SLURM_NODEID")?)? as usize;
        let cores = number("SLURM_CPUS_ON_NODE")?;
        Some(cores / here.max(1))
    });
    promised.map_or(available, |promised| promised.clamp(1, available.max(1)))
}

/// The name of a pool's site, and what its name is followed by, so that no two jobs make one pool.
pub(crate) fn cluster(get: Get<'_>) -> Option<String> {
    get("SLURM_CLUSTER_NAME")
}

/// A name for the step, as Slurm prints it: `1234.0`.
pub(crate) fn step(get: Get<'_>) -> Option<String> {
    let job = get("SLURM_JOB_ID")?;
    Some(match get("SLURM_STEP_ID") {
        Some(step) => format!("{job}.{step}"),
        None => job,
    })
}

/// The numbers in Slurm's notation of repeated numbers: `2(x3),1` is 2, 2, 2, 1. `None` if it is not of that form.
fn counts(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (number, times) = match part.trim().split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (part.trim(), 1u32),
        };
        let number: u32 = number.parse().ok().filter(|number| *number <= TASKS_MAX)?;
        if times as usize + all.len() > TASKS_MAX as usize {
            return None;
        }
        all.extend(std::iter::repeat_n(number, times as usize));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn outside_of_a_job_there_is_no_task() {
        assert_eq!(SlurmTask::of_step(&job(&[])), None);
        assert_eq!(threads(&job(&[]), 8), 8);
    }

    #[test]
    fn repeated_numbers_are_written_out() {
        assert_eq!(counts("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(counts("4"), Some(vec![4]));
        for text in [
            "",
            "a",
            "2(x",
            "2(x3",
            "2(xa)",
            "1,,2",
            "1(x99999999)",
            "-1",
        ] {
            assert_eq!(counts(text), None, "{text}");
        }
    }

    #[test]
    fn every_task_knows_where_all_tasks_listen() {
        let variables = |local: &'static str| {
            [
                ("SLURM_STEP_NODELIST", "n[1-2]"),
                ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
                ("SLURM_JOB_ID", "1000"),
                ("SLURM_LOCALID", local),
            ]
        };
        for local in ["0", "1"] {
            let variables = variables(local);
            let task = SlurmTask::of_step(&job(&variables)).expect("a task");
            let first = task.first_port().expect("a port");
            let own = task.own_port(first);
            assert_eq!(task.first_of(own), first);
            let ports = |machine| task.ports(machine, first).collect::<Vec<_>>();
            assert_eq!((ports(0), ports(1)), (vec![first, first + 1], vec![first]));
            assert!(ports(0).contains(&own));
        }
    }

    #[test]
    fn jobs_with_near_numbers_have_ports_of_their_own() {
        let first = |number: u64| {
            let number = number.to_string();
            let variables = [("SLURM_JOB_NODELIST", "n1"), ("SLURM_JOB_ID", &*number)];
            let task = SlurmTask::of_step(&job(&variables)).expect("a task");
            task.first_port().expect("a port")
        };
        let mut seen: Vec<u16> = (1000..1100).map(first).collect();
        assert!(seen.iter().all(|port| PORTS.contains(port)));
        seen.sort_unstable();
        assert!(seen.windows(2).all(|two| two[1] - two[0] >= PORTS_OF_JOB));
    }

    #[test]
    fn a_command_beside_the_pool_sees_the_job_and_not_its_own_step() {
        let variables = [
            ("SLURM_STEP_NODELIST", "n2"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_TASKS_PER_NODE", "1(x2)"),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_LOCALID", "3"),
        ];
        let task = SlurmTask::of_job(&job(&variables)).expect("a job");
        assert_eq!((&*task.machines, task.own_port(5)), ("n[1-2]", 5));
    }

    #[test]
    fn workers_are_as_many_as_slurm_has_promised() {
        assert_eq!(threads(&job(&[("SLURM_CPUS_PER_TASK", "4")]), 16), 4);
        assert_eq!(threads(&job(&[("SLURM_CPUS_PER_TASK", "4")]), 2), 2);
        let shared = [
            ("SLURM_STEP_TASKS_PER_NODE", "1,4"),
            ("SLURM_NODEID", "1"),
            ("SLURM_CPUS_ON_NODE", "16"),
        ];
        assert_eq!(threads(&job(&shared), 16), 4);
        assert_eq!(threads(&job(&[("SLURM_CPUS_ON_NODE", "16")]), 64), 64);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r"[0-9,()x -]{0,16}") {
            let variables = [
                ("SLURM_STEP_NODELIST", "n"),
                ("SLURM_STEP_TASKS_PER_NODE", &*text),
                ("SLURM_LOCALID", &*text),
                ("SLURM_JOB_ID", &*text),
            ];
            let task = SlurmTask::of_step(&job(&variables)).expect("a task");
            let first = task.first_port().unwrap_or(65_535);
            prop_assert!(task.ports(0, first).count() <= 65_536);
            let _ = threads(&job(&variables), 3);
        }
    }
}
