//! The table of all settings: a new setting is a row here, and its use.

/// Calls the macro `$then` with a row for each setting: documentation, key in `satin.toml`, form, variable of
/// the environment, name of the flag's value, help, default in words, and what the value may be. From these rows
/// come [`Config`](crate::config::Config) and all that reads it, `satin::Args` with its `--help`, the methods of
/// `satin::Builder`, and, held by a test, the table in `docs/src/settings.md`.
macro_rules! settings {
    ($then:ident) => {
        $then! {
            /// Worker threads. Too many compete for the cores, too few leave some idle. Default: the cores that this
            /// process may use.
            threads: usize, "SATIN_THREADS", "N",
                "Worker threads",
                "the cores that this process may use", "a number of workers, 1 or more";
            /// Addresses at which to find the pool: `HOST:PORT[,HOST:PORT..]`, `dns:NAME:PORT`, `file:PATH` or `slurm`. (Of the pods of
            /// an Indexed Job of Kubernetes that join by a name only the first one founds a pool.) Default: none.
            join: String, "SATIN_JOIN", "WHERE",
                "Where to find the pool: `HOST:PORT[,HOST:PORT..]`, `dns:NAME:PORT` (every address the name has), `file:PATH` \
                 (members append themselves) or `slurm`",
                "this process alone", "HOST:PORT[,HOST:PORT..], dns:NAME:PORT, file:PATH or slurm";
            /// The address to listen on, `IP:PORT`. With an address and nowhere to find a pool the node founds one. Default: no
            /// network, or with `join` any port of the address from which this machine reaches the pool; the loopback
            /// interface's where no other node has been reached yet.
            listen: String, "SATIN_LISTEN", "IP:PORT",
                "Address to listen on; with it and nowhere to join, the node founds a pool",
                "with `--join` any port of the address from which this machine reaches the pool; with `slurm` a port that follows from the job's number", "IP:PORT";
            /// The address that other nodes are told. Default: the one that the node listens on. Needed behind a translator of
            /// addresses.
            advertise: String, "SATIN_ADVERTISE", "IP:PORT",
                "Address that other nodes are told",
                "the listening one; where that is `0.0.0.0` or `[::]`, the one that leads to the pool, or that of the default route",
                "IP:PORT";
            /// The site: nodes of one site have fast links between them. Where it is wrong, work travels far that could stay
            /// near. Default: `default`.
            site: String, "SATIN_SITE", "NAME",
                "Name of the site: nodes of one site have fast links between them",
                "`default`", "a name";
            /// The credential file, the same for all nodes. No pool without one; `satin keygen` writes it.
            credential: PathBuf, "SATIN_CREDENTIAL", "FILE",
                "Credential file of the pool, as `satin keygen` writes it",
                "none; a pool needs one, which with `slurm` is by default the user's own", "the path of a file";
            /// The pool's name; nodes of another are refused. Default: the program's name.
            pool: String, "SATIN_POOL", "NAME",
                "Name of the pool; nodes of another are refused",
                "the program's name", "a name";
            /// Number of nodes at which the master starts its first root job. Too many, and it waits for ever. Default: 1.
            nodes: u32, "SATIN_NODES", "N",
                "Number of nodes at which the first root job starts",
                "1", "a number of nodes, 1 or more";
            /// Time for which the node looks for its pool before it ends with an error. Too short, and it
            /// ends while the first nodes are still starting. Default: it looks for ever.
            give_up: Duration, "SATIN_GIVE_UP", "TIME",
                "Time, such as `5m`, for which the node looks for its pool before it ends with exit code 2",
                "it looks for ever", "a number of seconds, or a time such as 30ms, 1.5s or 5m";
            /// Steal policy, which says whom an idle node asks for work: `crs`, `rs` or `mw`. Default: `crs`.
            steal: String, "SATIN_STEAL", "POLICY",
                "Whom an idle node asks for work: `crs` (its own site, and beside that one request to another site), `rs` (any \
                 node) or `mw` (the master only)",
                "`crs`", "crs, rs or mw";
            /// Which jobs are worth their way to another node: `learnt` (those that take long beside the way of their bytes, as far
            /// as that is known) or `always` (all that are asked for: for measurements, and for programs all of whose jobs
            /// are). With `always` a program that moves much is slower in a pool than on one machine. Default: `learnt`.
            worth: String, "SATIN_WORTH", "JOBS",
                "Which jobs are worth their way to another node: `learnt` (those that take long beside the way of their bytes) or \
                 `always` (all that are asked for)",
                "`learnt`", "learnt or always";
            /// The name that people call this node. Default: host name and process number.
            name: String, "SATIN_NAME", "NAME",
                "Name of this node",
                "host name and process number", "a name";
            /// Number of jobs on other nodes, 1 or 0, that a worker which has nothing else to do than to wait for one of them runs
            /// too, if the answer is thought to come later: the first one counts. With 0 jobs run once, and a slow or far node is
            /// waited for. Default: 1.
            duplicate: u32, "SATIN_DUPLICATE", "N",
                "Number of jobs on other nodes, 1 or 0, that a worker which only waits for one runs too, if that is thought to be sooner",
                "1", "1 or 0";
            /// Time that a node which is asked to leave may take to finish what it can and to hand over the rest. Too short, and work is given up that was nearly done; longer than what a system
            /// waits before it kills, and nothing is handed over. Default: 20 s.
            grace: Duration, "SATIN_GRACE", "TIME",
                "Time, such as `1m`, that a node may take to leave when it is asked to",
                "20 s", "a number of seconds, or a time such as 30ms, 1.5s or 5m";
            /// Notice at which the node leaves: `aws`, `google` or `azure`, once the cloud's metadata service says that this spot
            /// machine goes (`aws=http://HOST:PORT` for one at another address); `file:PATH`, once the file exists; or `http://..`,
            /// once that answers with status 200. Default: never.
            drain_when: String, "SATIN_DRAIN_WHEN", "WHAT",
                "Notice at which the node leaves: `aws`, `google` or `azure`, once that cloud says that this spot machine goes (asked \
                 every 2 s); `file:PATH`, once it exists (looked for each second); or `http://HOST/..`, once it answers with status \
                 200 (asked every 5 s; no https)",
                "never", "aws, google, azure, file:PATH or http://HOST[:PORT]/PATH";
            /// What the exit code of a node says that does not run `main` to its end: `own` (how the node ended: 0 once the pool has
            /// ended, or once it has left as it was asked to) or `run` (how the run ended, on whichever node; 143 if this node ended
            /// before the run). With `own` a system that starts lost nodes anew cannot tell a node that left from the end of the run.
            /// Default: `own`.
            exit: String, "SATIN_EXIT", "WHOSE",
                "What the exit code of a node says that does not run `main`: `own` (0 once the pool has ended, or the node has left) or `run` \
                 (the exit code of the run, or 143 if the node ended before the run)",
                "`own`", "own or run";
            /// Time after which the pool ends, with exit code 124: counted from the start of the node that runs `main` then. Too short, and the
            /// run is cut off, so that with a store the same command has to go on; too long, and what hangs holds its machines. Default: none.
            time_limit: Duration, "SATIN_TIME_LIMIT", "TIME",
                "Time, such as `30m`, after which the pool ends with exit code 124, counted from the start of the node that runs `main`",
                "none", "a number of seconds, or a time such as 30m, above 0";
            /// Treatment of jobs whose origin is gone: `running` (they run on), `finished` (only their finished children are
            /// kept) or `naive` (nothing is kept); the last two to compare with. Default: `running`.
            repair: String, "SATIN_REPAIR", "MODE",
                "What is done with jobs whose origin is gone: `running` (they run on), `finished` (only their finished children \
                 are kept) or `naive` (nothing is kept); the last two to compare with",
                "`running`", "running, finished or naive";
            /// Nodes that one job may take down before it is given up with a panic. Default: 3.
            max_crashes: u32, "SATIN_MAX_CRASHES", "N",
                "Number of nodes that one job may take down before it is given up with a panic; and of starts of a run in a row that may end before anything is stored",
                "3", "a number of nodes, 1 or more";
            /// Time that the part of a broken pool that is without the master waits before it elects its own. Too short, and a short break of the network makes two pools; too long, and the loss of the
            /// master's site is made good late. Default: 30 s.
            partition_wait: Duration, "SATIN_PARTITION_WAIT", "TIME",
                "Time, such as `1m`, before the part of a broken pool that is without the master elects its own",
                "30 s", "a number of seconds, or a time such as 30ms, 1.5s or 5m";
            /// File to which the node appends what happens, a JSON object per line. Default: nothing is written.
            events: PathBuf, "SATIN_EVENTS", "FILE",
                "File to which the node appends what happens, as JSON Lines",
                "none", "the path of a file";
            /// Number of neighbours to which copies of finished results go, so that a crash costs a period of work and not all
            /// that lay on the stacks: 1, or 0 for none. Default: 1.
            buddy: u32, "SATIN_BUDDY", "N",
                "Number of neighbours, 1 or 0, to which copies of finished results go in case that this node crashes",
                "1", "1 or 0";
            /// The store in which finished results survive when all nodes die: `file:PATH`, a directory that all nodes see;
            /// `satin://HOST:PORT,..`, servers that `satin store` runs; or, with the feature `s3`, `s3://BUCKET[/PREFIX]`.
            /// Default: none.
            store: String, "SATIN_STORE", "URL",
                "Where finished results survive when all nodes die: `file:PATH` (a directory that all nodes see), \
                 `satin://HOST:PORT[,HOST:PORT..][?copies=N]` (servers, see `satin store`), `s3://BUCKET[/PREFIX]` (feature `s3`)",
                "none", "file:PATH, satin://HOST:PORT[,HOST:PORT..][?copies=N] or s3://BUCKET[/PREFIX]";
            /// The run in the store to go on with: `auto`, the newest one of this program with this command line that is not
            /// done; `no`, a new one; or a run's name. Default: `auto`.
            resume: String, "SATIN_RESUME", "RUN",
                "The run in the store to go on with: `auto` (the newest one of this program with this command line that is not \
                 done), `no` (begin a new one) or a run's name",
                "`auto`", "auto, no or the 16 digits of a run";
            /// Go on with a run although its last starts all ended before anything was stored. Default: no.
            store_force: bool, "SATIN_STORE_FORCE", "SWITCH",
                "Go on with a run although its last starts all ended before anything was stored",
                "no", "1 or 0";
            /// Keep what is stored of a run when that is done. Default: no, it is removed.
            store_keep: bool, "SATIN_STORE_KEEP", "SWITCH",
                "Keep what is stored of a run when the run is done",
                "no", "1 or 0";
            /// Seal what is stored, so that only those who have the credential can read it. Default: yes in S3, else no; it
            /// costs little.
            store_seal: bool, "SATIN_STORE_SEAL", "SWITCH",
                "Seal what is stored, so that only holders of the credential can read it",
                "0; 1 in S3", "1 or 0";
            /// Period in which finished results are sent to a neighbour, and written to the store if there is one; 0: as soon as the last were written. Too short, and there is traffic for nothing; too long,
            /// and a crash costs that time of each worker. Default: 2 s for the neighbour, 10 s for the store, 60 s for one in S3.
            store_every: Duration, "SATIN_STORE_EVERY", "TIME",
                "Time, such as `5s`, after which finished results are sent to a neighbour, and written to the store, again; 0: as soon \
                 as the last were written",
                "2 s; to the store 10 s, in S3 60 s", "a number of seconds, or a time such as 30ms, 1.5s or 5m";
            /// Shortest time that a job takes whose result is kept, so that it is not lost with its node. Too short, and keeping takes time and memory; too long, and more is done again. Default: 1 ms.
            store_grain: Duration, "SATIN_STORE_GRAIN", "TIME",
                "Time, such as `1ms`, that a job takes at least whose result is kept in case that its node is lost",
                "1 ms", "a number of seconds, or a time such as 30ms, 1.5s or 5m";
            /// Tasks of a flow that are not over while its closure makes more of them; beyond, the worker that runs the closure runs some first.
            /// Too small, and workers run out of tasks; too large, and a long flow takes memory. Default: 65536.
            flow_window: usize, "SATIN_FLOW_WINDOW", "TASKS",
                "Tasks of a flow that are not over while its closure makes more; beyond, its worker runs tasks first",
                "65536", "a number of tasks, 1 or more";
            /// End a flow with a panic if a task that runs again, as what it made was lost, makes something else now. Default: no, a warning
            /// says so.
            flow_strict: bool, "SATIN_FLOW_STRICT", "SWITCH",
                "End a flow with a panic, and not with a warning, if a task that runs again makes something else than before",
                "no", "1 or 0";
            /// Memory of this process, such as `1GiB`, for data that tasks of flows have read or made here last, beside what is kept because
            /// others need it; what it was decoded to takes about as much again. Too small, and data are fetched or made again; too large, and
            /// it is not there for the program. Default: 256 MiB.
            flow_data: String, "SATIN_FLOW_DATA", "SIZE",
                "Memory, such as `1GiB`, for data that tasks of flows have read or made here last; what it was decoded to takes about \
                 as much again",
                "256MiB", "a size such as 1GiB or 500MB";
            /// Stack of a worker in MiB, reserved and committed as it is used. Too small, and deep recursion ends in a
            /// panic that says so; too large, and the address space of a small machine runs out. Default: 256.
            stack: usize, "SATIN_STACK", "MIB",
                "Stack of each worker in MiB, reserved, committed as it is used",
                "256", "a number of MiB, 1 or more";
            /// Memory of this process, such as `8GiB`, near which the node takes no further jobs of others; `no` for none. The limits of the
            /// control groups that the process is in count as well, unless it is `no`. Too small, and the node does not help; too large, and
            /// the system kills it. Default: the limits of the control groups.
            memory: String, "SATIN_MEMORY", "SIZE",
                "Memory of this process, such as `8GiB`: from nine tenths of it on the node takes no jobs of others until there is room again; \
                 `no`: it is not looked at",
                "the limits of the control groups that the process is in, which count beside a size too", "a size such as 8GiB or 500MB, above 0, or no";
            /// Whether the node that runs `main` shows on stderr how far it is: `auto` (a bar on a terminal, else a line every 30 s) or `no`. A
            /// program that asks for `satin::progress()` shows it in its own way. Default: `auto`.
            progress: String, "SATIN_PROGRESS", "HOW",
                "How far the program is, on stderr: `auto` (a bar on a terminal, else a line every 30 s) or `no`",
                "`auto`", "auto or no";
            /// Where the dashboard listens, a page that shows the whole pool: `IP:PORT`, port 0 for one that is free. A program on any node may
            /// show it; the URL is printed. Where the address is no loopback one, those who open it need the token in the URL.
            /// Default: none.
            dashboard: String, "SATIN_DASHBOARD", "IP:PORT",
                "Where this node shows the dashboard of the pool, such as `127.0.0.1:8787`; the URL is printed",
                "none", "an address and a port, such as 127.0.0.1:8787";
            /// File for a report on the run, a page that stands alone; the node that runs `main` writes it when that ends. Default: none.
            report: PathBuf, "SATIN_REPORT", "FILE",
                "File for a report on the run (HTML), which the node that runs `main` writes at the end",
                "none", "the path of a file";
            /// File for a trace of the run, for ui.perfetto.dev; the node that runs `main` writes it when that ends. Default: none.
            trace: PathBuf, "SATIN_TRACE", "FILE",
                "File for a trace of the run (for ui.perfetto.dev), which the node that runs `main` writes at the end",
                "none", "the path of a file";
            /// What becomes of what jobs and nodes print: `own` (each node prints where it was started), `kept` (each node also keeps its
            /// last lines, for `satin log`) or `all` (and the node that runs `main` shows what the others print). With `kept` and
            /// `all` the program's standard output and error are pipes, not terminals. Only on Unix. Default: `own`.
            output: String, "SATIN_OUTPUT", "WHOSE",
                "What becomes of what jobs and nodes print: `own` (each node prints where it was started), `kept` (each also keeps its \
                 last lines for `satin log`) or `all` (and the node that runs `main` shows what the others print)",
                "`own`", "own, kept or all";
            /// Print the table of figures at the end. Default: no.
            stats: bool, "SATIN_STATS", "SWITCH",
                "Print what each worker did at the end",
                "no", "1 or 0";
            /// The `tracing` filter of the log on stderr. Default: `warn`.
            log: String, "SATIN_LOG", "FILTER",
                "`tracing` filter of the log on stderr, such as `info` or `satin_runtime=debug`",
                "`warn`", "a tracing filter such as `info`, `satin=debug` or, for everything, `trace`";
            /// The form of the log's lines: `text` or `json` (an object per line, with time, level, node, site, target, message and
            /// fields). Default: `text`.
            log_format: String, "SATIN_LOG_FORMAT", "FORM",
                "Form of the log's lines: `text` or `json` (an object per line)",
                "`text`", "text or json";
        }
    };
}

pub(crate) use settings;
