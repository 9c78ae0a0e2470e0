//! A seed: a pool, a program, faults, healing, and the invariants that must hold all the while.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use satin_runtime::node::{
    Notice, Peer, Policy, ProtocolConfig, RepairMode, Rule,
    cluster::{
        Cluster, FlowForm, ImaginaryStore, MainIs, OtherRoot, Path, Program, Shape, Wire, mix,
    },
    expiry::{self, Expired},
    inspect::Inspection,
};
use strum::{EnumCount, VariantArray};

use crate::{
    classes::Class,
    faults::{Allow, Dice, FaultKind, Mischief, SOLO, Schedule, Span},
    invariants::{self, Cuts, Invariant, Run, Seen, Violation},
    pace::Pace,
};

/// Virtual time after the healing within which the root jobs must be done. Virtual time is cheap.
const PATIENCE: Duration = Duration::from_secs(180);
/// Factor on the time of one worker for all the work, which is added to the limits: a worker may be left alone with all
/// of it, be slow, and begin anew.
const ALONE: u32 = 10;
/// Virtual time after that within which everything must be at rest: facts about a process that does not come back go
/// after a minute, and a moment before that a node may ask for them once more.
const REST: Duration = Duration::from_secs(200);
/// Virtual time after that within which every node must have ended.
const END: Duration = Duration::from_secs(60);
/// More events than this are a pool that talks to itself, unless they are no more than [`EVENTS_A_SECOND`].
const EVENTS: u64 = 3_000_000;
/// Events a second that nodes without work may cause: they may idle for hours.
const EVENTS_A_SECOND: u64 = 500;
/// Events that the nodes may cause in a period of copies while they have work, for hours too: two each, of a dozen.
const EVENTS_A_PERIOD: f64 = 24.0;

/// The options of a trial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Rules that are left out.
    pub without: BTreeSet<Rule>,
    /// The classes of faults that there may be.
    pub classes: BTreeSet<Class>,
    /// Those of them that each seed draws.
    pub always: BTreeSet<Class>,
    /// True if the master is spared from faults, and no node is cut off.
    pub spare_master: bool,
    /// True if the events are printed.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            without: BTreeSet::new(),
            classes: Class::usual(),
            always: BTreeSet::new(),
            spare_master: false,
            trace: false,
        }
    }
}

impl Options {
    /// The dice of a class that a seed has, with a chance of `percent`, if the options allow the class.
    fn dice(&self, class: Class, percent: u64, seed: u64) -> Option<Dice> {
        let may = self.classes.contains(&class) && (!self.spare_master || class.spares_master());
        let mut dice = class.dice(seed);
        let is = may && (dice.chance(percent) || self.always.contains(&class));
        is.then_some(dice)
    }

    /// The classes from which schedules draw.
    fn allowed(&self) -> BTreeSet<Class> {
        let all = self.classes.iter().copied();
        all.filter(|class| !self.spare_master || class.spares_master())
            .collect()
    }
}

/// The outcome of a trial.
#[derive(Clone, PartialEq, Debug)]
pub struct Trial {
    /// The seed of the trial.
    pub seed: u64,
    /// The violation, if there was any.
    pub violation: Option<Violation>,
    /// Number of faults done, by kind.
    pub faults: [u64; FaultKind::COUNT],
    /// Time computed beyond what the program needs.
    pub twice: Duration,
    /// Time that the program needs.
    pub needed: Duration,
    /// Number of claims made.
    pub claims: u64,
    /// Number of jobs put back.
    pub came_back: u64,
    /// Jobs that were away and were done by who waited for them.
    pub duplicates: u64,
    /// Number of results saved.
    pub saved: u64,
    /// Number of claims withdrawn.
    pub withdrawn: u64,
    /// Nodes that went on as the next generation.
    pub reborn: u64,
    /// The term of the last master.
    pub term: u32,
    /// Mains that came to their end.
    pub mains: u64,
    /// How often each time of the protocol ran out.
    pub expired: Expired,
    /// Number of events simulated.
    pub events: u64,
    /// Virtual time until the root jobs were done.
    pub time: Duration,
    /// How often each invariant had something to check, of those whose conditions hold in some seeds only.
    pub checked: BTreeMap<&'static str, u64>,
}

/// The pool and the program of a seed.
struct TrialSetting {
    config: ProtocolConfig,
    sites: Vec<(&'static str, u32)>,
    threads: u32,
    nesting: usize,
    programs: Vec<Program>,
    wire: Wire,
    keep_after: Duration,
    shy: Option<Duration>,
    /// One job in so many is worth the way to another node; 0: all.
    picky: u64,
    /// How slow a node is, by its number.
    slowness: fn(u64) -> f64,
    /// Time that the network threads of some nodes need for a message; at ten probes a second no longer than they can
    /// keep up with.
    handling: Duration,
    /// Clocks differ, by that number.
    clocks: Option<u64>,
    /// Factor on the usual time until everything must be done.
    patience: u32,
    /// The shared value that all jobs need, if they do.
    shared: Option<Vec<u8>>,
    /// The store, if there is one, and when all nodes die.
    store: Option<(ImaginaryStore, Vec<TrialLoss>)>,
    /// A node's number, by bits exclusive or, is in its id.
    scrambled: u32,
    schedule: Schedule,
    /// What is to be known of a run in which nothing goes wrong but the way between sites.
    cuts: Option<Cuts<'static>>,
}

/// All nodes die at once, and so many others are started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct TrialLoss {
    at: Duration,
    nodes: u32,
    /// Does the store answer nothing from then on?
    silences: bool,
}

/// Messages with more bytes than one of these may be overtaken.
const STRAYS: [usize; 5] = [0, 60, 150, 300, 1000];

/// One in so many seeds is a pool of forty nodes: some of them need as much time as a hundred others. (A hundred nodes take minutes of their time
/// to tell each other which deaths they have announced, longer than seeds wait for rest.)
const MANY: u64 = 1000;

/// The chance of a seed in which only the way between sites goes wrong, in percent.
const CUTS: u64 = 4;
/// The factor on its work, which is to outlast the cuts.
const CUT_WORK: u32 = 10;

const SITES: [&str; 3] = ["amsterdam", "delft", "leiden"];

impl TrialSetting {
    fn of(seed: u64, options: &Options) -> TrialSetting {
        let mut dice = Dice::new(seed);
        let nodes = 2 + dice.below(5) as u32;
        let sites = 1 + dice.below(u64::from(nodes.min(3))) as u32;
        let mut cuts = options.dice(Class::Cuts, CUTS, seed);
        let many = options.dice(Class::Many, 100, seed);
        let many = many.and_then(|mut dice| (dice.below(MANY) == 1).then_some(40));
        let nodes = many.unwrap_or(nodes);
        let solo = options.dice(Class::Solo, SOLO, seed).is_some();
        let sites = TrialSetting::sites(nodes, sites, solo);
        let config = ProtocolConfig {
            probe_period: Duration::from_millis(100),
            suspicion: Duration::from_millis(400),
            partition_wait: Duration::from_secs(2),
            redial: Duration::from_millis(800),
            cut_off: Duration::from_secs(4),
            claim_patience: dice.between(Duration::from_millis(1), Duration::from_millis(200)),
            max_crashes: 1000,
            hurry: 10,
            copy_every: Duration::ZERO,
            without: options.without.clone(),
            ..ProtocolConfig::default()
        };
        let pace = Pace::of(options.dice(Class::Long, 2, seed));
        let config = pace.config(config);
        let threads = 1 + u32::from(dice.chance(40));
        let nesting = dice.one_of(&[6, 12, 64]);
        let near = Path::new(dice.between(Duration::from_micros(50), Duration::from_millis(2)));
        let far = Path::new(dice.between(Duration::from_millis(2), Duration::from_millis(60)));
        // Values that need a quarter of a minute for each step.
        let heavy = pace.is_long() && options.dice(Class::Shared, 30, seed).is_some();
        let rate = heavy.then_some(250_000);
        let (near, far) = (Path { rate, ..near }, Path { rate, ..far });
        let jobs = 1 + dice.below(3) / 2;
        let mut programs: Vec<Program> = (0..jobs)
            .map(|_| TrialSetting::program(&mut dice))
            .collect();
        for program in &mut programs {
            TrialSetting::adapt(program, seed, options);
            pace.stretch(program);
            program.leaf *= many.map_or(1, |nodes| nodes / 6);
            if cuts.is_some() {
                program.leaf *= CUT_WORK;
                program.inner *= CUT_WORK;
            }
        }
        let needed: Duration = programs.iter().map(|is| is.sequential().time).sum();
        let works = needed.mul_f64(1.2) / (nodes * threads) + Duration::from_millis(50);
        let allow = Allow {
            master: !options.spare_master,
            partitions: !options.spare_master,
        };
        let schedule = Schedule::random(&mut dice, works, config.suspicion, allow);
        let span = Span {
            works,
            probe: config.probe_period,
            suspicion: config.suspicion,
            wait: config.partition_wait,
            stretch: pace.faults,
        };
        let schedule = schedule.with(&options.allowed(), seed, span);
        let schedule = match &mut cuts {
            Some(dice) => schedule.of_cuts(dice, span),
            None => schedule,
        };
        let shallow = options.dice(Class::Shallow, 40, seed);
        let slow = options.dice(Class::Slow, 50, seed).is_some();
        let busy = options.dice(Class::Busy, 30, seed);
        let clocks = options.dice(Class::Clocks, 50, seed).is_some();
        let ids = options.dice(Class::Ids, 80, seed);
        let shared = options.dice(Class::Shared, 85, seed);
        let mut config = TrialSetting::modes(config, seed, options);
        let mut wire = TrialSetting::wire(near, far, pace, seed, options);
        if cuts.is_some() {
            // A node that says late, or from afar, that it lives may be found dead without a cut.
            wire.gossip_late = Duration::ZERO;
            wire.far.round_trip = wire.far.round_trip.min(config.probe_period / 10);
            // Cuts beside a store are among the faults of other seeds.
            config.store_every = None;
        }
        let store = config.store_every.and_then(|_| {
            let dice = options.dice(Class::Stores, 100, seed)?;
            Some(TrialSetting::store(dice, works * pace.faults, nodes.min(6)))
        });
        TrialSetting {
            cuts: (cuts.is_some())
                .then(|| TrialSetting::only_cuts(&programs, &config, nodes, threads)),
            store,
            config,
            sites,
            threads,
            nesting: shallow.map_or(nesting, |mut dice| dice.one_of(&[2, 2, 3, 4, 5])),
            programs,
            wire,
            keep_after: Duration::from_millis(dice.one_of(&[0, 0, 50])),
            shy: dice
                .chance(20)
                .then(|| dice.between(Duration::ZERO, Duration::from_millis(3))),
            picky: (options.dice(Class::Worth, 25, seed))
                .map_or(0, |mut dice| dice.one_of(&[2, 4, 10])),
            // A slow node computes for longer than the program needs.
            slowness: match slow && cuts.is_none() {
                true => |pick| 0.3 + (mix(pick) % 40) as f64 / 10.0,
                false => |_| 1.0,
            },
            handling: busy.map_or(Duration::ZERO, |mut dice| {
                dice.between(Duration::from_micros(20), Duration::from_millis(1))
            }),
            clocks: clocks.then_some(seed),
            patience: pace.patience,
            shared: shared.map(|mut dice| {
                let bytes = if heavy { 4 << 20 } else { 1 + dice.below(300) };
                vec![seed as u8; bytes as usize]
            }),
            scrambled: ids.map_or(0, |mut dice| dice.below(16) as u32),
            schedule,
        }
    }

    fn only_cuts(
        programs: &[Program],
        config: &ProtocolConfig,
        founders: u32,
        threads: u32,
    ) -> Cuts<'static> {
        let is_left_to_chance = |program: &Program| match program.shape {
            // The side that stays does not have what the owner of a flow had.
            Shape::Best { .. } | Shape::Flow { .. } => true,
            Shape::Random { races, .. } => races > 0,
            _ => program.bounded,
        };
        let pieces = programs
            .iter()
            .map(|program| program.leaf.max(program.inner));
        Cuts {
            links: &[],
            founders,
            threads,
            longest: pieces.max().unwrap_or_default(),
            moment: config.partition_wait / 2,
            is_fair: config.repair != RepairMode::Naive && !programs.iter().any(is_left_to_chance),
        }
    }

    /// The sites of a pool, with the numbers of their nodes; is the master alone at its own?
    fn sites(nodes: u32, sites: u32, solo: bool) -> Vec<(&'static str, u32)> {
        let alone = u32::from(solo);
        let (nodes, sites) = (nodes - alone, (sites - alone.min(sites - 1)).max(1));
        let shares = (0..sites).map(|site| nodes / sites + u32::from(site < nodes % sites));
        let all = (0..alone).map(|_| 1).chain(shares);
        SITES.into_iter().zip(all).collect()
    }

    /// Other ways to repair and to steal.
    fn modes(mut config: ProtocolConfig, seed: u64, options: &Options) -> ProtocolConfig {
        if let Some(mut dice) = options.dice(Class::Modes, 50, seed) {
            let modes = [
                RepairMode::Running,
                RepairMode::Running,
                RepairMode::Finished,
            ];
            config.repair = match dice.chance(4) {
                true => RepairMode::Naive,
                false => dice.one_of(&modes),
            };
            let policies = [
                Policy::Crs,
                Policy::Crs,
                Policy::Crs,
                Policy::Rs,
                Policy::Mw,
            ];
            config.policy = dice.one_of(&policies);
            // A node hardly ever finds no way to a peer that others see for the usual time, so the limit is lowered. It
            // must not be shorter than some calls by circuit: then two nodes that never reach each other directly are
            // reborn without end.
            if dice.chance(20) && config.hurry > 1 {
                config.cut_off /= 4;
            }
        }
        if options.dice(Class::Crashes, 80, seed).is_some() {
            config.max_crashes = ProtocolConfig::default().max_crashes;
        }
        if let Some(mut dice) = options.dice(Class::Copies, 60, seed) {
            config.copy_every = Duration::from_millis(dice.one_of(&[5, 20, 100, 1000]));
        }
        if let Some(mut dice) = options.dice(Class::Stores, 40, seed)
            && config.repair != RepairMode::Naive
        {
            config.store_every = Some(Duration::from_millis(dice.one_of(&[0, 20, 100, 1000])));
            // Imaginary results are small: so are the limits, or they would never be reached.
            config.store_batch = dice.one_of(&[200, 2000, config.store_batch]);
            config.store_log = dice.one_of(&[0, 200, 2000, config.store_log]);
        }
        if let Some(mut dice) = options.dice(Class::Room, 50, seed) {
            // What imaginary tasks make has 100 bytes, 20,000 or 2.5 MiB.
            config.flow_data = dice.one_of(&[0, 150, 25_000, 3 << 20, 6 << 20]);
        }
        // Nodes know what may be overtaken, and leave room for the envelopes of relays, as with the usual numbers.
        if let Some(mut dice) = options.dice(Class::Stray, 50, seed) {
            config.may_stray = dice.one_of(&STRAYS) / 2;
        }
        config
    }

    /// The store of a seed, and the moments at which all nodes die.
    fn store(mut dice: Dice, works: Duration, nodes: u32) -> (ImaginaryStore, Vec<TrialLoss>) {
        let latency = dice.between(Duration::from_micros(50), Duration::from_millis(100));
        let mut store = ImaginaryStore::new(latency);
        store.failing = dice.one_of(&[0, 0, 10, 50]);
        store.is_silent = dice.chance(4);
        let mut losses: Vec<TrialLoss> = (0..dice.one_of(&[0, 1, 1, 2]))
            .map(|_| TrialLoss {
                at: dice.between(Duration::ZERO, works.mul_f64(1.2)),
                nodes: 1 + dice.below(u64::from(2 * nodes)) as u32,
                silences: dice.chance(6),
            })
            .collect();
        losses.sort_unstable();
        (store, losses)
    }

    /// The wire of a seed: delays, losses and reorderings of messages.
    fn wire(near: Path, far: Path, pace: Pace, seed: u64, options: &Options) -> Wire {
        let mut wire = Wire::default();
        wire.near = near;
        wire.far = far;
        wire.idle_timeout = pace.idle_timeout();
        wire.rejects = options.dice(Class::Rejects, 25, seed).is_some();
        wire.late = options.dice(Class::Late, 80, seed).is_some();
        if let Some(mut dice) = options.dice(Class::Stray, 50, seed) {
            wire.large = dice.one_of(&STRAYS);
            wire.stray = dice.between(Duration::from_millis(1), Duration::from_millis(400));
        }
        if let Some(mut dice) = options.dice(Class::Gossip, 50, seed) {
            wire.gossip_twice = 0.3;
            wire.gossip_late = dice.between(Duration::from_millis(1), Duration::from_secs(2));
        }
        wire
    }

    /// Adds flows, searches, panics and bounds to a program.
    fn adapt(program: &mut Program, seed: u64, options: &Options) {
        let seed = seed ^ program.seed;
        let mut flows = options.dice(Class::Flows, 25, seed);
        if let Some(dice) = &mut flows {
            TrialSetting::flow(program, dice);
            if let Some(mut dice) = options.dice(Class::Keeps, 75, seed) {
                program.keeps = dice.one_of(&[30, 70, 100]);
            }
        } else if let Some(mut dice) = options.dice(Class::Bounds, 40, seed) {
            program.shape = TrialSetting::search(&mut dice);
            program.feeds = false;
            let whole = dice.between(Duration::from_millis(100), Duration::from_secs(6));
            program.leaf = TrialSetting::leaf(program, whole);
        }
        if let Some(mut dice) = options.dice(Class::Panics, 10, seed)
            && !matches!(program.shape, Shape::Best { .. })
        {
            // Chance decides which child of a race is run at all, and the work of jobs that feed on results is not known
            // beforehand.
            if let Shape::Random { races, .. } = &mut program.shape {
                *races = 0;
            }
            program.feeds = false;
            program.panics = dice.one_of(&[20, 100]);
        }
        // Chance decides which leaves of a race are run at all.
        program.bounded = options.classes.contains(&Class::Bounds)
            && !matches!(program.shape, Shape::Random { races: 1.., .. });
        // Jobs that offer bounds are not done twice.
        program.bounded &= flows.is_none_or(|mut dice| dice.chance(30));
    }

    /// Makes a program one of flows, of at most two thousand jobs.
    fn flow(program: &mut Program, dice: &mut Dice) {
        let whole = dice.between(Duration::from_millis(100), Duration::from_secs(6));
        let forms = FlowForm::VARIANTS.len() as u64;
        loop {
            let form = FlowForm::VARIANTS.get(dice.below(2 * forms) as usize);
            program.shape = Shape::Flow {
                form: form.copied(),
                width: 1 + dice.below(5) as u32,
                steps: 1 + dice.below(5) as u32,
                height: 1 + dice.below(3) as u32,
            };
            if (3..2000).contains(&program.sequential().jobs) {
                break;
            }
        }
        program.leaf = TrialSetting::leaf(program, whole);
    }

    fn search(dice: &mut Dice) -> Shape {
        Shape::Best {
            width: 2 + dice.below(2) as u32,
            height: 3 + dice.below(2) as u32,
        }
    }

    /// Time of a leaf, if all together take `whole`.
    fn leaf(program: &Program, whole: Duration) -> Duration {
        let leaf = whole.as_secs_f64() / program.sequential().leaves as f64;
        Duration::from_secs_f64(leaf).min(Duration::from_secs(1))
    }

    /// Small enough for a thousand of them in a second, and as long as a few suspicions.
    fn program(dice: &mut Dice) -> Program {
        let races = dice.one_of(&[0, 0, 20, 50]);
        let shape = match dice.below(10) {
            0..=4 => Shape::Random {
                width: 2 + dice.below(3) as u32,
                height: 3 + dice.below(2) as u32,
                races,
            },
            5 => Shape::Uts {
                branching: 1.6,
                height: 8,
            },
            6 => Shape::Knary {
                width: 2 + dice.below(3) as u32,
                height: 2 + dice.below(2) as u32,
                serial: dice.below(2) as u32,
            },
            7 => Shape::Flat {
                jobs: 1 + dice.below(20) as u32,
            },
            _ => TrialSetting::search(dice),
        };
        let mut program = Program::new(shape, Duration::from_millis(1)).seeded(dice.below(1 << 32));
        program.feeds = dice.chance(30);
        program.changing = dice.chance(30);
        program.inner = Duration::from_micros(dice.below(3000));
        // Together the leaves take about that time.
        let whole = dice.between(Duration::from_millis(100), Duration::from_secs(6));
        program.leaf = TrialSetting::leaf(&program, whole);
        if program.sequential().jobs > 2000 {
            return TrialSetting::program(dice);
        }
        program
    }
}

/// Tries one seed. A panic of the nodes is a violation too.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Trial {
    let mut trial = Trial {
        seed,
        violation: None,
        faults: [0; FaultKind::COUNT],
        twice: Duration::ZERO,
        needed: Duration::ZERO,
        claims: 0,
        came_back: 0,
        duplicates: 0,
        saved: 0,
        withdrawn: 0,
        reborn: 0,
        term: 0,
        mains: 0,
        expired: Expired::default(),
        events: 0,
        time: Duration::ZERO,
        checked: BTreeMap::new(),
    };
    let _ = expiry::take();
    let mut stage = TrialStage::new(seed, options);
    let outcome = catch_unwind(AssertUnwindSafe(|| stage.play(&mut trial)));
    let at = stage.cluster.now();
    trial.violation = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(Violation {
                invariant: "panic",
                sentence: text.unwrap_or("a panic").into(),
                at,
            })
        }
    };
    trial.faults = stage.mischief.done;
    trial.expired = expiry::take();
    trial.events = stage.cluster.steps;
    let invariants = stage.invariants.iter();
    let checked = invariants.filter_map(|is| Some((is.name(), is.checked()?)));
    trial.checked = checked.collect();
    trial
}

/// A trial under way: its pool, its faults and its checks.
struct TrialStage {
    cluster: Cluster,
    mischief: Mischief,
    schedule: Schedule,
    invariants: Vec<Box<dyn Invariant>>,
    right: Vec<u64>,
    /// Does a leaf panic?
    panics: bool,
    needed: Duration,
    /// Factor on the usual time until everything must be done.
    patience: u32,
    books: Inspection,
    /// Events a second that are no chatter.
    calm: u64,
    trace: bool,
    /// When all nodes die, the first moment last.
    losses: Vec<TrialLoss>,
    /// Nodes that died with all others.
    lost: u64,
    /// Where nodes are started then.
    sites: Vec<&'static str>,
    config: ProtocolConfig,
    /// All nodes have died, and no other fault was brought since then.
    undisturbed: bool,
    /// What is to be known of a run in which nothing goes wrong but the way between sites.
    cuts: Option<Cuts<'static>>,
}

impl TrialStage {
    fn new(seed: u64, options: &Options) -> TrialStage {
        let setting = TrialSetting::of(seed, options);
        let mut cluster = Cluster::new(seed);
        cluster.count_runs();
        cluster.scramble(setting.scrambled);
        if let Some(seed) = setting.clocks {
            cluster.differ_clocks(seed);
        }
        cluster.wire = setting.wire;
        cluster.keep_after = setting.keep_after;
        let mut losses = Vec::new();
        if let Some((store, all)) = setting.store {
            cluster.set_store(store);
            cluster.keep_journal();
            losses = all;
            losses.reverse();
        }
        cluster.form(&setting.config, &setting.sites, setting.threads);
        for node in 0..cluster.nodes() {
            cluster.set_nesting(node, setting.nesting);
            cluster.do_jobs_twice(node);
            cluster.set_shy(node, setting.shy);
            cluster.set_picky(node, setting.picky);
            cluster.set_slowness(node, (setting.slowness)(seed ^ u64::from(node)));
            if mix(seed ^ u64::from(node)).is_multiple_of(2) {
                cluster.set_handling(node, setting.handling);
            }
        }
        if let Some(bytes) = setting.shared {
            cluster.share(bytes);
        }
        let programs: Vec<u32> = (setting.programs.iter())
            .map(|program| cluster.program(program.clone()))
            .collect();
        if cluster.store().is_some() {
            cluster.know_results();
        }
        let outcomes = programs.iter().map(|program| cluster.outcome(*program));
        let (right, times): (Vec<u64>, Vec<Duration>) = outcomes
            .map(|outcome| (outcome.result, outcome.time))
            .unzip();
        if options.trace {
            let (sites, threads, nesting) = (&setting.sites, setting.threads, setting.nesting);
            let pool = format!("{sites:?}, {threads} workers each, up to {nesting} frames deep");
            cluster.say("pool", &pool);
            if cluster.wire.rejects {
                cluster.say(
                    "pool",
                    "what is cut off seems to say that nobody listens there",
                );
            }
            let ids = (0..cluster.nodes()).map(|node| (cluster.peer(node).id.0 >> 96).to_string());
            let ids: Vec<String> = ids.collect();
            cluster.say(
                "pool",
                &format!("the ids of nodes 0, 1, .. are {}", ids.join(", ")),
            );
            for program in &setting.programs {
                cluster.say("root", &format!("{program:?}"));
            }
            for (at, fault) in &setting.schedule.faults {
                cluster.say("planned", &format!("{at:?}: {fault}"));
            }
            for loss in &losses {
                cluster.say("planned", &format!("{loss:?}"));
            }
            cluster.say(
                "planned",
                &format!("{:?}: all heals", setting.schedule.heal),
            );
        }
        cluster.trace = options.trace;
        cluster.set_main_everywhere(&programs, None);
        let (config, spare) = (&setting.config, options.spare_master);
        let copying = match config.copy_every.as_secs_f64() {
            0.0 => 0.0,
            every => EVENTS_A_PERIOD / every,
        };
        let (nodes, threads) = (cluster.nodes(), setting.threads);
        let mut mischief = Mischief::new(config, nodes, threads, setting.nesting, spare);
        mischief.programs.clone_from(&programs);
        mischief.slowness = setting.slowness;
        TrialStage {
            mischief,
            panics: setting.programs.iter().any(Program::has_panic),
            cluster,
            schedule: setting.schedule,
            invariants: invariants::all(),
            right,
            needed: times.iter().sum(),
            patience: setting.patience,
            books: Inspection::default(),
            calm: EVENTS_A_SECOND + copying as u64,
            trace: options.trace,
            losses,
            lost: 0,
            sites: setting.sites.iter().map(|(site, _)| *site).collect(),
            config: setting.config,
            undisturbed: false,
            cuts: setting.cuts,
        }
    }

    fn say(&self, what: &str) {
        if self.trace {
            self.cluster.say("=========", what);
        }
    }

    fn play(&mut self, trial: &mut Trial) -> Result<(), Violation> {
        let faults = std::mem::take(&mut self.schedule.faults);
        for (at, fault) in faults {
            self.lose_all_before(at)?;
            self.run_until(at, |_| false)?;
            if let Some(done) = self.mischief.bring(&mut self.cluster, fault) {
                self.say(&done);
                self.undisturbed &= !fault.harms();
            }
        }
        self.lose_all_before(self.schedule.heal)?;
        self.run_until(self.schedule.heal, |_| false)?;
        self.say("all heals");
        self.mischief.heal(&mut self.cluster);

        let start = self.cluster.now();
        let limit = start + self.patience * PATIENCE + ALONE * self.work_with(|_| true);
        let done = self.run_until(limit, TrialStage::is_done)?;
        trial.time = self.cluster.now();
        if done {
            self.say("the root jobs are done");
            // A main that has yielded may have called more root jobs than the one that came to its end. What belongs to those is
            // kept until that one calls a root job of such a number.
            self.cluster.outlast_other_mains();
        }
        let start = self.cluster.now();
        let rests = done && self.run_until(start + self.patience * REST, TrialStage::rests)?;
        self.account(trial);
        self.check_end(done, rests, trial)?;
        self.say("main ends");
        self.cluster.end_main(0);
        // A node that is cut off for good does all the work alone.
        let limit = self.cluster.now() + self.patience * END + ALONE * self.work_with(|_| true);
        if !self.run_until(limit, |stage| stage.running().next().is_none())? {
            let left: Vec<u32> = self.running().collect();
            let sentence = format!("main has ended, but nodes {left:?} have not");
            return Err(self.violation("I7", sentence));
        }
        let violated = invariants::first_violated(&mut self.invariants, |invariant| {
            invariant.check_over(&self.cluster)
        });
        self.none_but(violated)
    }

    /// All nodes die, and others are started, as often as that is to happen before that moment.
    fn lose_all_before(&mut self, moment: Duration) -> Result<(), Violation> {
        while let Some(loss) = self.losses.pop_if(|loss| loss.at < moment) {
            self.run_until(loss.at, |_| false)?;
            self.say("all nodes die");
            self.lost += self.mischief.crash_all(&mut self.cluster);
            if let Some(store) = self.cluster.store_mut() {
                store.is_silent |= loss.silences;
            }
            let sites = &self.sites;
            (self.mischief).start_anew(&mut self.cluster, sites, loss.nodes);
            self.undisturbed = self.cluster.is_network_whole();
        }
        Ok(())
    }

    /// Nodes of the pool; a node that never found its way in, because whom it knew has died, is none.
    fn running(&self) -> impl Iterator<Item = u32> {
        let nodes = 0..self.cluster.nodes();
        nodes.filter(|node| self.cluster.is_alive(*node) && self.cluster.joined(*node).is_some())
    }

    /// Time that `main`'s programs need, and the root jobs that other threads have called.
    fn work_with(&self, which: impl Fn(&OtherRoot) -> bool) -> Duration {
        let others = (0..self.cluster.nodes()).flat_map(|node| self.cluster.others(node));
        let others = others.filter(|(_, other)| which(other));
        let others = others.map(|(_, other)| self.cluster.outcome(other.program).time);
        self.needed + others.sum::<Duration>()
    }

    /// True if neither a main nor a call of another thread is under way, and a main has come to its end on a node that
    /// still runs.
    fn is_done(&self) -> bool {
        let is = |is: MainIs| self.running().any(|node| self.cluster.main_of(node) == is);
        let mut others = self.running().flat_map(|node| self.cluster.others(node));
        is(MainIs::Over) && !is(MainIs::Running) && others.all(|(_, other)| other.outcome.is_some())
    }

    /// True if every node has done its work and knows what the others have, and the nodes that were told to go are gone.
    fn rests(&self) -> bool {
        let drained = |node: u32| self.mischief.drained.contains(&node);
        if self
            .running()
            .any(|node| drained(node) || !self.cluster.is_empty(node))
        {
            return false;
        }
        let running: Vec<u32> = self.running().collect();
        if invariants::differing_views(&self.cluster, &running).is_some() {
            return false;
        }
        let books = self.books();
        let at_rest = |(_, books): &(u32, Inspection)| books.under_way() == 0;
        books.iter().all(at_rest) && invariants::strange_belief(&self.cluster, &books).is_none()
    }

    fn comes_over(&self) -> bool {
        let mut nodes = 0..self.cluster.nodes();
        nodes.any(|node| invariants::comes_over(&self.cluster, node) > 0)
    }

    fn books(&self) -> Vec<(u32, Inspection)> {
        let nodes = self.running();
        nodes
            .map(|node| (node, self.cluster.node(node).inspect()))
            .collect()
    }

    /// Runs until that time, or until the condition holds, which is looked at now and then. True if it holds.
    fn run_until(
        &mut self,
        end: Duration,
        condition: impl Fn(&TrialStage) -> bool,
    ) -> Result<bool, Violation> {
        let mut look = 0u32;
        loop {
            look += 1;
            if look % 16 == 1 && condition(self) {
                return Ok(true);
            }
            let next = self.cluster.next_at();
            if let Some(over) = self.mischief.next_end()
                && over <= end
                && next.is_none_or(|next| next > over)
            {
                self.cluster.run_for(over - self.cluster.now());
                self.say("something is over");
                self.mischief.end(&mut self.cluster);
                continue;
            }
            if next.is_none_or(|next| next > end) {
                self.cluster.run_for(end - self.cluster.now());
                return Ok(condition(self));
            }
            self.cluster.step();
            self.check_step()?;
        }
    }

    fn check_step(&mut self) -> Result<(), Violation> {
        let chatter = self.calm * self.cluster.now().as_secs();
        if self.cluster.steps > EVENTS.max(chatter) {
            let sentence = format!("node {:?} has no rest", self.cluster.touched);
            return Err(self.violation("I7", sentence));
        }
        let Some(node) = self
            .cluster
            .touched
            .filter(|node| self.cluster.is_alive(*node))
        else {
            return Ok(());
        };
        self.cluster.node(node).inspect_into(&mut self.books);
        let seen = Seen {
            cluster: &self.cluster,
            node,
            books: &self.books,
            panics: self.panics,
            config: &self.config,
            undisturbed: self.undisturbed,
        };
        let violated = invariants::first_violated(&mut self.invariants, |invariant| {
            invariant.check_step(&seen)
        });
        self.none_but(violated)
    }

    fn check_end(&mut self, done: bool, rests: bool, trial: &Trial) -> Result<(), Violation> {
        let books = self.books();
        let run = Run {
            cluster: &self.cluster,
            right: &self.right,
            panics: self.panics,
            drained: &self.mischief.drained,
            done,
            rests,
            books: &books,
            ends: self.reasons(trial),
            apart: self.mischief.absences > 0 || self.comes_over(),
            cuts: self.cuts.map(|cuts| Cuts {
                links: &self.mischief.cuts,
                // What was done for a root job that is cancelled is done again.
                is_fair: cuts.is_fair && self.mischief.done[FaultKind::Cancel as usize] == 0,
                ..cuts
            }),
            twice: trial.twice,
        };
        let violated =
            invariants::first_violated(&mut self.invariants, |invariant| invariant.check_end(&run));
        self.none_but(violated)
    }

    /// The violation of that invariant, if there is one.
    fn none_but(&self, violated: Option<(&'static str, String)>) -> Result<(), Violation> {
        match violated {
            None => Ok(()),
            Some((name, sentence)) => Err(self.violation(name, sentence)),
        }
    }

    /// Reasons to run a job again.
    fn reasons(&self, trial: &Trial) -> u64 {
        let nodes = 0..self.cluster.nodes();
        let tally = nodes.map(|node| self.cluster.node(node).inspect().tally);
        let tally: u64 = tally.map(|tally| tally.withdrawn + tally.misses).sum();
        let notices = (0..self.cluster.nodes()).flat_map(|node| self.cluster.notices(node));
        let ended: BTreeSet<Peer> = notices
            .filter_map(|notice| match notice {
                Notice::Dead(who) | Notice::Left(who) => Some(who.peer),
                _ => None,
            })
            .collect();
        ended.len() as u64 + tally + u64::from(trial.term) + self.lost
    }

    fn account(&self, trial: &mut Trial) {
        let nodes = 0..self.cluster.nodes();
        let mut busy = Duration::ZERO;
        for node in nodes {
            let effort = self.cluster.effort(node);
            busy += effort.busy;
            trial.claims += effort.claims;
            trial.came_back += effort.came_back;
            trial.duplicates += effort.duplicates;
            trial.saved += effort.saved;
            trial.withdrawn += self.cluster.node(node).inspect().tally.withdrawn;
            trial.reborn += u64::from(self.cluster.peer(node).generation);
        }
        trial.mains = self.cluster.endings().len() as u64;
        let endings = self.cluster.endings().iter();
        trial.term = endings.map(|ending| ending.term).max().unwrap_or(0);
        // Root jobs that other threads have called are lost with their process.
        trial.needed = self.work_with(|other| other.outcome.is_some());
        trial.twice = busy.saturating_sub(trial.needed);
    }

    fn violation(&self, invariant: &'static str, sentence: String) -> Violation {
        let failed = |notice: &Notice| matches!(notice, Notice::Failed(_));
        let mut nodes = 0..self.cluster.nodes();
        let failed = nodes.find_map(|node| {
            let mut notices = self.cluster.notices(node).iter();
            notices.find(|notice| failed(notice)).cloned()
        });
        let sentence = match failed {
            Some(Notice::Failed(text)) => format!("{sentence}; a node said: {text}"),
            _ => sentence,
        };
        Violation {
            invariant,
            sentence,
            at: self.cluster.now(),
        }
    }
}
