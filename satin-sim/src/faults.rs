//! Faults that happen to a pool, with their times. A [`Schedule`] follows from a seed.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use satin_runtime::node::{
    Event, ProtocolConfig,
    cluster::{Cluster, MainIs, Path, mix},
};
use strum::{Display, EnumCount, EnumDiscriminants, VariantArray};

use crate::classes::Class;

/// Random numbers that depend on a seed alone.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of that seed.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(mix(seed))
    }

    fn throw(&mut self) -> u64 {
        self.0 = mix(self.0);
        self.0
    }

    /// A random number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.throw() % bound
    }

    /// A random number of at least 0 and below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.throw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with a chance of `percent`.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A random duration between two.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = (to - from).as_micros() as u64;
        from + Duration::from_micros(self.below(span + 1))
    }

    /// A random element of `these`.
    ///
    /// # Panics
    /// The slice is empty.
    pub fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len() as u64) as usize]
    }
}

/// The choice of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// The master of the moment.
    Master,
    /// Any other, chosen by that number.
    Other(u64),
    /// Any, chosen by that number.
    Any(u64),
}

/// A fault, with the numbers by which its place is chosen.
#[derive(Clone, Copy, PartialEq, Debug, EnumDiscriminants)]
#[strum_discriminants(
    name(FaultKind),
    doc = "The kind of a fault.",
    allow(missing_docs),
    derive(Display, EnumCount, VariantArray),
    strum(serialize_all = "lowercase")
)]
pub enum Fault {
    /// A node dies without a word.
    Crash(Who),
    /// A node stops, as by SIGSTOP, and goes on after this time.
    Freeze(Who, Duration),
    /// A node is told to go within this time.
    Drain(Who, Duration),
    /// All nodes of a site are.
    #[strum_discriminants(strum(serialize = "drained site"))]
    DrainSite(u64, Duration),
    /// A node comes in at a site.
    Join(u64),
    /// No message passes between two sites, for this time.
    Partition(u64, Duration),
    /// No message passes to and from a node, for this time.
    #[strum_discriminants(strum(serialize = "isolation"))]
    Isolate(Who, Duration),
    /// The link between two nodes breaks; the second notices this much later.
    #[strum_discriminants(strum(serialize = "broken link"))]
    Break(u64, Duration),
    /// The network becomes as bad as this, until everything heals.
    #[strum_discriminants(strum(serialize = "bad network"))]
    Network {
        /// The share of gossip that is lost.
        loss: f64,
        /// Largest extra time of a message, each way.
        jitter: Duration,
    },
    /// No message passes between two nodes, for this time.
    #[strum_discriminants(strum(serialize = "pair cut"))]
    PairCut(u64, Duration),
    /// No message passes from one node to another, for this time.
    #[strum_discriminants(strum(serialize = "one-way cut"))]
    WayCut(u64, Duration),
    /// A share of the nodes, in percent, dies at once.
    Burst(u64, u64),
    /// A node goes at once, also one that drains.
    Leave(u64),
    /// Another thread of the master calls a root job.
    #[strum_discriminants(strum(serialize = "other root"))]
    OtherRoot(u64),
    /// `main` does not want the root job any more that it waits for, and calls it again.
    Cancel,
    /// Any node dies: rather one that drains, or is about to come in.
    #[strum_discriminants(strum(serialize = "crash of any"))]
    CrashAny(u64),
    /// No message passes between two nodes any more, and that does not heal.
    #[strum_discriminants(strum(serialize = "lasting cut"))]
    LastingCut(u64),
    /// The nodes of a site do not reach the store, for this time.
    #[strum_discriminants(strum(serialize = "store out of reach"))]
    HideStore(u64, Duration),
    /// Any node stops for this time: rather a node that drains, or is about to come in.
    #[strum_discriminants(strum(serialize = "freeze of any"))]
    FreezeAny(u64, Duration),
    /// Any node is told to go within this time: rather a node that has been told already, or is about to come in.
    #[strum_discriminants(strum(serialize = "drain of any"))]
    DrainAny(u64, Duration),
    /// Each node reaches only its neighbours in a line, for this time: some pairs have no third that reaches both.
    Line(u64, Duration),
    /// A node drops the shared value that it has fetched, or data that tasks have borrowed.
    #[strum_discriminants(strum(serialize = "forgotten value"))]
    Forget(u64),
    /// A node dies that keeps data for others.
    #[strum_discriminants(strum(serialize = "crash of a keeper"))]
    CrashKeeper(u64),
    /// No message passes between two sites, for this time, whatever else is cut and heals.
    #[strum_discriminants(strum(serialize = "link cut"))]
    LinkCut(u64, Duration),
    /// No message passes between the site of a node and all others, for this time.
    #[strum_discriminants(strum(serialize = "site cut"))]
    SiteCut(Who, Duration),
    /// No message passes between any two sites; each of these cuts ends within this time.
    #[strum_discriminants(strum(serialize = "cut of all"))]
    AllCut(u64, Duration),
}

impl Fault {
    /// True if a node may be lost, or taken for lost, by that fault.
    #[must_use]
    pub fn harms(&self) -> bool {
        !matches!(
            self,
            Fault::Join(_) | Fault::OtherRoot(_) | Fault::Cancel | Fault::Forget(_)
        )
    }

    /// The time after which the fault is over, if it is to last that long before all heals.
    fn lasts(&self) -> Option<Duration> {
        match self {
            Fault::LinkCut(_, time) | Fault::SiteCut(_, time) | Fault::AllCut(_, time) => {
                Some(*time)
            }
            _ => None,
        }
    }

    /// The kind of the fault.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.into()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind();
        match self {
            Fault::Crash(who) => write!(f, "{name} of {who:?}"),
            Fault::Freeze(who, time) => write!(f, "{name} of {who:?} for {time:?}"),
            Fault::DrainAny(_, grace) => write!(f, "{name} within {grace:?}"),
            Fault::Drain(who, grace) => write!(f, "{name} of {who:?} within {grace:?}"),
            Fault::DrainSite(_, grace) => write!(f, "{name} within {grace:?}"),
            Fault::Partition(_, time) => write!(f, "{name} for {time:?}"),
            Fault::Isolate(who, time) | Fault::SiteCut(who, time) => {
                write!(f, "{name} of {who:?} for {time:?}")
            }
            Fault::Join(_)
            | Fault::Leave(_)
            | Fault::OtherRoot(_)
            | Fault::Cancel
            | Fault::CrashAny(_)
            | Fault::LastingCut(_)
            | Fault::Forget(_)
            | Fault::CrashKeeper(_) => write!(f, "{name}"),
            Fault::PairCut(_, time)
            | Fault::WayCut(_, time)
            | Fault::Line(_, time)
            | Fault::HideStore(_, time)
            | Fault::LinkCut(_, time)
            | Fault::AllCut(_, time)
            | Fault::FreezeAny(_, time) => {
                write!(f, "{name} for {time:?}")
            }
            Fault::Burst(_, percent) => write!(f, "{name} of {percent} %"),
            Fault::Break(_, later) => write!(f, "{name}, noticed {later:?} later"),
            Fault::Network { loss, jitter } => {
                write!(f, "{name}: loses {loss:.2}, jitters by {jitter:?}")
            }
        }
    }
}

/// The faults of a seed, with their times.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// The faults with their times, in the order of time.
    pub faults: Vec<(Duration, Fault)>,
    /// The time of healing: from then on all messages pass, all nodes run and none dies any more.
    pub heal: Duration,
}

/// The times to which those of faults are fitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Time for which the pool works, about.
    pub works: Duration,
    /// The time between two probes.
    pub probe: Duration,
    /// Time for which a silent node is suspected.
    pub suspicion: Duration,
    /// Time for which a part of the pool waits before it chooses a master.
    pub wait: Duration,
    /// Factor by which a quarter of the faults last longer.
    pub stretch: u32,
}

/// The faults that a class adds to a schedule.
struct Adds {
    /// The greatest number of such faults.
    most: u32,
    /// Chance of each of them, in percent.
    percent: u64,
    /// The fault, of a number that picks and a duration.
    fault: fn(u64, Duration) -> Fault,
}

impl Adds {
    fn of(class: Class) -> Option<Adds> {
        let adds = |most, percent, fault| Adds {
            most,
            percent,
            fault,
        };
        Some(match class {
            Class::Others => adds(3, 40, |pick, _| Fault::OtherRoot(pick)),
            Class::Cancels => adds(3, 40, |_, _| Fault::Cancel),
            Class::Joins => adds(4, 30, |pick, _| Fault::Join(pick)),
            Class::Bursts => adds(1, 25, |pick, _| Fault::Burst(pick, 40 + mix(pick) % 56)),
            Class::Undone => adds(3, 30, |pick, time| match mix(pick) % 3 {
                0 => Fault::CrashAny(pick),
                1 => Fault::FreezeAny(pick, time / 2),
                _ => Fault::DrainAny(pick, time / 8),
            }),
            Class::Leaves => adds(2, 25, |pick, _| Fault::Leave(pick)),
            Class::Partitions => adds(2, 20, |pick, time| Fault::Partition(pick, 3 * time)),
            Class::Pairs => adds(3, 20, Fault::PairCut),
            Class::Ways => adds(3, 20, Fault::WayCut),
            Class::Stores => adds(1, 30, |pick, time| Fault::HideStore(pick, 4 * time)),
            Class::Lines => adds(1, 30, |pick, time| Fault::Line(pick, 2 * time)),
            Class::Lasting => adds(1, 15, |pick, _| Fault::LastingCut(pick)),
            Class::Forgets => adds(4, 40, |pick, _| Fault::Forget(pick)),
            Class::Keeps => adds(7, 80, |pick, _| Fault::CrashKeeper(pick)),
            _ => return None,
        })
    }
}

/// The time for sides to meet and come together, and longer than that in which one finds all of the other dead.
pub(crate) const HEALING: Duration = Duration::from_secs(3);

/// The chance of a pool whose master is alone at its site, in percent.
pub(crate) const SOLO: u64 = 6;

/// Cuts between sites that a class adds to a schedule, with their times.
fn cuts(class: Class, dice: &mut Dice, span: Span) -> Vec<(Duration, Fault)> {
    let chance = match class {
        Class::Flaps => 10,
        Class::Threes => 20,
        Class::Edges => 15,
        Class::Solo => SOLO,
        _ => 0,
    };
    if !dice.chance(chance) {
        return Vec::new();
    }
    let at = dice.between(Duration::ZERO, span.works);
    let pick = dice.throw();
    match class {
        Class::Flaps => {
            let every = dice.between(2 * span.probe, 10 * span.probe);
            let mut flap = |count| {
                let share = 0.2 + 0.7 * dice.fraction();
                let cut = Fault::LinkCut(pick, every.mul_f64(share));
                (at + count * every, cut)
            };
            (0..5 + pick as u32 % 16).map(&mut flap).collect()
        }
        Class::Threes => {
            let time = dice.between(span.suspicion, 2 * span.wait);
            vec![(at, Fault::AllCut(pick, time))]
        }
        Class::Edges => {
            let edge = dice.one_of(&[span.suspicion, span.wait, span.suspicion + span.wait]);
            let time = edge + dice.between(Duration::ZERO, 6 * span.probe) - 2 * span.probe;
            let cut = match dice.chance(50) {
                true => Fault::LinkCut(pick, time),
                false => Fault::SiteCut(Who::Any(pick), time),
            };
            vec![(at, cut)]
        }
        _ => {
            let time = dice.between(span.suspicion / 2, 2 * span.wait);
            vec![(at, Fault::SiteCut(Who::Master, time))]
        }
    }
}

/// The faults that are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allow {
    /// Faults may hit the master too.
    pub master: bool,
    /// Faults may cut nodes off: partitions and isolation, which no node survives without an election or a rebirth.
    pub partitions: bool,
}

impl Schedule {
    /// The schedule of a seed: mostly a few faults, sometimes many, within a time in which the pool works.
    #[must_use]
    pub fn random(dice: &mut Dice, works: Duration, suspicion: Duration, allow: Allow) -> Schedule {
        let count = match dice.below(10) {
            0..=3 => 1,
            4..=6 => 2,
            7..=8 => 3 + dice.below(2),
            _ => 5 + dice.below(4),
        };
        let mut faults = Vec::new();
        let mut last = Duration::ZERO;
        for _ in 0..count {
            // A fault may come at the same moment as the one before, or a moment later.
            let at = match dice.below(10) {
                0 => last,
                1 => last + dice.between(Duration::ZERO, Duration::from_millis(20)),
                2 => last + dice.between(Duration::ZERO, 3 * suspicion),
                _ => dice.between(Duration::ZERO, works),
            };
            last = at;
            faults.push((at, Schedule::fault(dice, suspicion, allow)));
        }
        faults.sort_by_key(|(at, _)| *at);
        let heal = dice.between(Duration::ZERO, 4 * suspicion);
        let mut schedule = Schedule { faults, heal };
        schedule.heal += schedule.end();
        schedule
    }

    /// Adds the faults of a class: each of up to `most` faults with that chance, now and then just after another fault.
    fn add(&mut self, dice: &mut Dice, span: Span, adds: &Adds) {
        for _ in 0..adds.most {
            if !dice.chance(adds.percent) {
                continue;
            }
            let near = dice.below(self.faults.len() as u64 + 1) as usize;
            let at = match self.faults.get(near) {
                Some((other, _)) if dice.chance(60) => {
                    *other + dice.between(Duration::ZERO, span.suspicion)
                }
                _ => dice.between(Duration::ZERO, span.works),
            };
            let pick = dice.throw();
            let time = dice.between(span.suspicion / 4, 16 * span.suspicion);
            let time = time * if dice.chance(25) { span.stretch } else { 1 };
            self.faults.push((at, (adds.fault)(pick, time)));
        }
    }

    /// The schedule of the same seed, in which nothing goes wrong but the way between sites.
    #[must_use]
    pub fn of_cuts(mut self, dice: &mut Dice, span: Span) -> Schedule {
        self.faults.retain(|(_, fault)| !fault.harms());
        let mut at = dice.between(Duration::ZERO, span.works);
        for _ in 0..dice.one_of(&[1, 1, 1, 2, 3]) {
            let pick = dice.throw();
            // Not so long that some nodes are found dead, and others are not: then nodes of both sides are reborn.
            let time = match dice.chance(20) {
                true => dice.between(Duration::ZERO, span.suspicion / 2),
                false => span.suspicion + dice.between(HEALING, 4 * span.wait),
            };
            // No third site reaches both sides, and says late that a node lives.
            let cuts = match pick % 3 {
                0 => (0..3).map(|link| Fault::LinkCut(link, time)).collect(),
                _ => vec![Fault::SiteCut(Who::Any(pick), time)],
            };
            self.faults.extend(cuts.into_iter().map(|cut| (at, cut)));
            // A cut in the midst of healing is one of other classes.
            at += time + span.suspicion + HEALING;
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self.heal = self.end();
        self.outlast()
    }

    /// All that lasts ends before all heals.
    fn outlast(mut self) -> Schedule {
        for (at, fault) in &self.faults {
            let over = fault.lasts().map_or(*at, |time| *at + time);
            self.heal = self.heal.max(over);
        }
        self
    }

    /// The schedule of the same seed, with the faults that these classes bring.
    #[must_use]
    pub fn with(mut self, classes: &BTreeSet<Class>, seed: u64, span: Span) -> Schedule {
        let healing = self.heal.saturating_sub(self.end());
        for class in classes {
            if let Some(adds) = Adds::of(*class) {
                self.add(&mut class.dice(seed), span, &adds);
            }
            (self.faults).extend(cuts(*class, &mut class.dice(seed), span));
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self.heal = self.end() + healing;
        self.outlast()
    }

    fn end(&self) -> Duration {
        self.faults.last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    fn fault(dice: &mut Dice, suspicion: Duration, allow: Allow) -> Fault {
        let pick = dice.throw();
        let who = match allow.master {
            true if pick.is_multiple_of(4) => Who::Master,
            true => Who::Any(pick),
            false => Who::Other(pick),
        };
        let pause = match dice.below(4) {
            0 => dice.between(Duration::ZERO, suspicion / 4),
            1 => dice.between(suspicion / 4, suspicion),
            _ => dice.between(suspicion, 8 * suspicion),
        };
        let grace = dice.between(Duration::ZERO, 2 * suspicion);
        match dice.below(100) {
            0..=30 => Fault::Crash(who),
            31..=46 => Fault::Freeze(who, pause),
            47..=60 => Fault::Drain(who, grace),
            61..=64 => Fault::DrainSite(pick, grace),
            65..=76 => Fault::Join(pick),
            77..=81 if allow.partitions => Fault::Partition(pick, 2 * pause),
            82..=85 if allow.partitions => Fault::Isolate(who, 2 * pause),
            77..=94 => Fault::Break(pick, dice.between(Duration::ZERO, suspicion / 2)),
            _ => Fault::Network {
                loss: dice.below(60) as f64 / 100.0,
                jitter: dice.between(Duration::ZERO, suspicion / 8),
            },
        }
    }
}

/// Greatest number of nodes in all, unless there are more from the beginning: no more join.
const NODES: u32 = 12;
/// The number of nodes that may join a larger pool.
const MORE: u32 = 4;

/// Brings faults to a pool, and remembers what was done.
#[derive(Clone, Debug)]
pub struct Mischief {
    config: ProtocolConfig,
    threads: u32,
    nesting: usize,
    spare_master: bool,
    /// Greatest number of nodes in all.
    most: u32,
    /// When the frozen go on, and when what was cut passes again.
    ends: Vec<(Duration, Ended)>,
    /// Nodes that were told to go.
    pub drained: Vec<u32>,
    /// Number of times that each [`FaultKind`] was done.
    pub done: [u64; FaultKind::COUNT],
    /// Number of nodes that died.
    pub deaths: u64,
    /// Number of faults after which a live node may be taken for dead.
    pub absences: u64,
    /// When links between sites were cut, and until when.
    pub cuts: Vec<(Duration, Duration)>,
    /// The programs that other threads than main's call.
    pub programs: Vec<u32>,
    /// How slow a newcomer is, of that number.
    pub slowness: fn(u64) -> f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Frozen(u32),
    Cut,
    /// Of the link between two sites, by their places in the list of all.
    Link(usize, usize),
    Hidden,
}

impl Ended {
    fn is_cut(self) -> bool {
        matches!(self, Ended::Cut | Ended::Link(..))
    }
}

impl Mischief {
    /// Mischief for a pool of so many nodes with that configuration.
    #[must_use]
    pub fn new(
        config: &ProtocolConfig,
        nodes: u32,
        threads: u32,
        nesting: usize,
        spare_master: bool,
    ) -> Mischief {
        Mischief {
            config: config.clone(),
            threads,
            nesting,
            spare_master,
            most: NODES.max(nodes + MORE),
            ends: Vec::new(),
            drained: Vec::new(),
            done: [0; FaultKind::COUNT],
            deaths: 0,
            absences: 0,
            cuts: Vec::new(),
            programs: Vec::new(),
            slowness: |_| 1.0,
        }
    }

    /// The time at which the next fault that lasts is over.
    #[must_use]
    pub fn next_end(&self) -> Option<Duration> {
        self.ends.iter().map(|(at, _)| *at).min()
    }

    /// Ends the faults whose time is over.
    pub fn end(&mut self, cluster: &mut Cluster) {
        let now = cluster.now();
        let (over, left) = self.ends.iter().partition(|(at, _)| *at <= now);
        self.ends = left;
        let over: Vec<(Duration, Ended)> = over;
        for (_, ended) in over {
            match ended {
                Ended::Frozen(node) => {
                    if cluster.is_frozen(node) {
                        cluster.thaw(node);
                    }
                }
                Ended::Hidden => {
                    if let Some(store) = cluster.store_mut() {
                        store.hidden_from.clear();
                    }
                }
                Ended::Cut | Ended::Link(..) => self.end_cut(cluster, ended),
            }
        }
    }

    /// The link between two sites heals by itself, unless there is a cut of another kind; those heal with the last of all.
    fn end_cut(&self, cluster: &mut Cluster, ended: Ended) {
        let mut left = self.ends.iter().filter(|(_, other)| other.is_cut());
        if left.clone().next().is_none() {
            cluster.heal();
        } else if let Ended::Link(a, b) = ended
            && left.all(|(_, other)| *other != Ended::Cut && *other != ended)
        {
            let [a, b] = [a, b].map(|site| cluster.sites()[site].clone());
            cluster.heal_sites(&a, &b);
        }
    }

    /// Ends all faults at once.
    pub fn heal(&mut self, cluster: &mut Cluster) {
        self.ends.clear();
        if let Some(store) = cluster.store_mut() {
            store.hidden_from.clear();
        }
        for node in 0..cluster.nodes() {
            if cluster.is_frozen(node) {
                cluster.thaw(node);
            }
        }
        cluster.wire.near = Path {
            loss: 0.0,
            jitter: Duration::ZERO,
            ..cluster.wire.near
        };
        cluster.wire.far = Path {
            loss: 0.0,
            jitter: Duration::ZERO,
            ..cluster.wire.far
        };
        cluster.heal();
    }

    /// Nodes that are in and have not been told to go.
    fn stay(&self, cluster: &Cluster) -> Vec<u32> {
        let all = 0..cluster.nodes();
        let is_in = |node: &u32| cluster.is_alive(*node) && cluster.joined(*node).is_some();
        all.filter(|node| is_in(node) && !self.drained.contains(node))
            .collect()
    }

    fn who(&self, cluster: &Cluster, who: Who) -> Option<u32> {
        let stay = self.stay(cluster);
        let is_master = |node: &u32| is_master(cluster, *node);
        let (few, pick): (Vec<u32>, u64) = match who {
            Who::Master => (stay.into_iter().filter(is_master).collect(), 0),
            Who::Any(pick) => (stay, pick),
            Who::Other(pick) => (
                stay.into_iter().filter(|node| !is_master(node)).collect(),
                pick,
            ),
        };
        let place = pick.checked_rem(few.len() as u64)?;
        Some(few[place as usize])
    }

    /// Two of three times a node that drains, or is about to come in, if there is one; otherwise any.
    fn undone(&self, cluster: &Cluster, pick: u64) -> Option<u32> {
        let alive = || (0..cluster.nodes()).filter(|node| cluster.is_alive(*node));
        let undone = |node: &u32| self.drained.contains(node) || cluster.joined(*node).is_none();
        let few = Mischief::one_of(alive().filter(undone), pick / 3);
        let few = few.filter(|_| !pick.is_multiple_of(3));
        few.or_else(|| Mischief::one_of(alive(), pick))
    }

    /// A node that keeps data for others.
    fn keeper(&self, cluster: &Cluster, pick: u64) -> Option<u32> {
        let keeps = |node: &u32| {
            let spared = self.spare_master && is_master(cluster, *node);
            cluster.keeps_data(*node).0 > 0 && !spared
        };
        Mischief::one_of(self.stay(cluster).into_iter().filter(keeps), pick)
    }

    fn one_of(all: impl Iterator<Item = u32>, pick: u64) -> Option<u32> {
        let all: Vec<u32> = all.collect();
        let place = pick.checked_rem(all.len() as u64)?;
        Some(all[place as usize])
    }

    /// The site of one of these nodes, and those of them that are there.
    fn site_of(cluster: &Cluster, nodes: &[u32], pick: u64) -> Option<(Arc<str>, Vec<u32>)> {
        let site = |node: u32| Arc::clone(&cluster.node(node).view().me().site);
        let chosen = site(Mischief::one_of(nodes.iter().copied(), pick)?);
        let there = nodes.iter().copied().filter(|node| site(*node) == chosen);
        let there = there.collect();
        Some((chosen, there))
    }

    /// Two different nodes.
    fn pair(all: &[u32], pick: u64) -> Option<(u32, u32)> {
        let count = all.len() as u64;
        let steps = 1 + (pick / count.max(1)).checked_rem(count.saturating_sub(1))?;
        let first = pick % count;
        Some((all[first as usize], all[((first + steps) % count) as usize]))
    }

    /// Brings a fault about, if that leaves a node; returns in words what was done.
    pub fn bring(&mut self, cluster: &mut Cluster, fault: Fault) -> Option<String> {
        let done = match fault {
            Fault::Crash(who) => self.crash_one(cluster, self.who(cluster, who)?),
            Fault::CrashAny(pick) => self.crash_one(cluster, self.undone(cluster, pick)?),
            Fault::Freeze(who, time) => self.freeze(cluster, self.who(cluster, who)?, time),
            Fault::FreezeAny(pick, time) => self.freeze(cluster, self.undone(cluster, pick)?, time),
            Fault::Drain(who, grace) => self.drain_one(cluster, self.who(cluster, who)?, grace),
            Fault::DrainAny(pick, grace) => {
                self.drain_one(cluster, self.undone(cluster, pick)?, grace)
            }
            Fault::DrainSite(pick, grace) => self.drain_site(cluster, pick, grace),
            Fault::Join(pick) => self.join(cluster, pick),
            Fault::Partition(pick, time) => self.partition(cluster, pick, time),
            Fault::Isolate(who, time) => self.isolate(cluster, self.who(cluster, who)?, time),
            Fault::Break(pick, later) => Mischief::break_link(cluster, pick, later),
            Fault::PairCut(pick, time) => self.cut_pair(cluster, pick, time),
            Fault::WayCut(pick, time) => self.cut_way(cluster, pick, time),
            Fault::LastingCut(pick) => self.cut_for_good(cluster, pick),
            Fault::Line(pick, time) => self.line_up(cluster, pick, time),
            Fault::HideStore(pick, time) => self.hide_store(cluster, pick, time),
            Fault::Burst(pick, percent) => self.burst(cluster, pick, percent),
            Fault::Leave(pick) => self.leave(cluster, pick),
            Fault::OtherRoot(pick) => self.call_other(cluster, pick),
            Fault::Cancel => self.cancel(cluster),
            Fault::Forget(pick) => Mischief::forget(cluster, pick),
            Fault::CrashKeeper(pick) => self.crash_one(cluster, self.keeper(cluster, pick)?),
            Fault::LinkCut(pick, time) => self.cut_link(cluster, pick, time),
            Fault::SiteCut(who, time) => self.cut_site(cluster, self.who(cluster, who)?, time),
            Fault::AllCut(pick, time) => self.cut_all(cluster, pick, time),
            Fault::Network { loss, jitter } => Some(Mischief::spoil_network(cluster, loss, jitter)),
        }?;
        self.done[fault.kind() as usize] += 1;
        Some(done)
    }

    // ---- to nodes

    /// Is there another that is in and stays?
    fn leaves_somebody(&self, cluster: &Cluster, node: u32) -> bool {
        self.stay(cluster).iter().any(|other| *other != node)
    }

    fn crash_one(&mut self, cluster: &mut Cluster, node: u32) -> Option<String> {
        if !self.leaves_somebody(cluster, node) {
            return None;
        }
        self.crash(cluster, node);
        Some(format!("node {node} dies"))
    }

    fn crash(&mut self, cluster: &mut Cluster, node: u32) {
        cluster.crash(node);
        self.deaths += 1;
    }

    fn freeze(&mut self, cluster: &mut Cluster, node: u32, time: Duration) -> Option<String> {
        if cluster.is_frozen(node) {
            return None;
        }
        cluster.freeze(node);
        self.absences += 1;
        let end = cluster.now() + time;
        self.ends.push((end, Ended::Frozen(node)));
        Some(format!("node {node} stops for {time:?}"))
    }

    fn drain_one(&mut self, cluster: &mut Cluster, node: u32, grace: Duration) -> Option<String> {
        if cluster.is_frozen(node) || !self.leaves_somebody(cluster, node) {
            return None;
        }
        self.drain(cluster, node, grace);
        Some(format!("node {node} is to go within {grace:?}"))
    }

    fn drain(&mut self, cluster: &mut Cluster, node: u32, grace: Duration) {
        self.goes(node);
        cluster.tell(node, Event::Drain(grace));
    }

    fn goes(&mut self, node: u32) {
        if !self.drained.contains(&node) {
            self.drained.push(node);
        }
    }

    fn drain_site(&mut self, cluster: &mut Cluster, pick: u64, grace: Duration) -> Option<String> {
        let stay = self.stay(cluster);
        let (chosen, mut go) = Mischief::site_of(cluster, &stay, pick)?;
        go.retain(|node| !cluster.is_frozen(*node));
        let spared = self.spare_master && go.iter().any(|node| is_master(cluster, *node));
        if spared || go.is_empty() || go.len() == stay.len() {
            return None;
        }
        for node in &go {
            self.drain(cluster, *node, grace);
        }
        Some(format!(
            "site {chosen} with nodes {go:?} is to go within {grace:?}"
        ))
    }

    fn join(&mut self, cluster: &mut Cluster, pick: u64) -> Option<String> {
        let stay = self.stay(cluster);
        let through = Mischief::one_of(stay.iter().copied(), pick)?;
        if cluster.nodes() >= self.most {
            return None;
        }
        let site = cluster.node(through).view().me().site.clone();
        let others = stay.iter().filter(|other| **other != through);
        let known = std::iter::once(&through).chain(others);
        let config = ProtocolConfig {
            join: known.map(|node| cluster.addr(*node)).collect(),
            may_found: false,
            ..self.config.clone()
        };
        let node = self.boot(cluster, &config, &site, pick);
        Some(format!("node {node} comes to {site}"))
    }

    /// Starts a node; how slow it is follows from `pick`.
    fn boot(&self, cluster: &mut Cluster, config: &ProtocolConfig, site: &str, pick: u64) -> u32 {
        let node = cluster.boot(config, site, self.threads);
        cluster.set_nesting(node, self.nesting);
        cluster.do_jobs_twice(node);
        cluster.set_slowness(node, (self.slowness)(pick));
        node
    }

    /// All nodes die at once. Returns how many they were.
    pub fn crash_all(&self, cluster: &mut Cluster) -> u64 {
        let nodes = 0..cluster.nodes();
        let alive: Vec<u32> = nodes.filter(|node| cluster.is_alive(*node)).collect();
        alive.iter().for_each(|node| cluster.crash(*node));
        alive.len() as u64
    }

    /// So many nodes are started: one founds a pool, and the others join.
    pub fn start_anew(&self, cluster: &mut Cluster, sites: &[&str], nodes: u32) {
        let founder = cluster.nodes();
        let founds = ProtocolConfig {
            nodes: 1,
            join: Vec::new(),
            may_found: true,
            ..self.config.clone()
        };
        self.boot(cluster, &founds, sites[0], u64::from(founder));
        let joins = ProtocolConfig {
            join: vec![cluster.addr(founder)],
            may_found: false,
            ..founds
        };
        for place in 1..nodes {
            let (site, pick) = (sites[place as usize % sites.len()], founder + place);
            self.boot(cluster, &joins, site, u64::from(pick));
        }
    }

    /// Kills a share of the nodes, in percent, but never all.
    fn burst(&mut self, cluster: &mut Cluster, pick: u64, percent: u64) -> Option<String> {
        let mut stay = self.stay(cluster);
        let count = stay.len() as u64;
        let die = (count * percent / 100).min(count.saturating_sub(1));
        let mut dice = Dice::new(pick);
        let mut dead = Vec::new();
        for _ in 0..die {
            let node = stay.swap_remove(dice.below(stay.len() as u64) as usize);
            if !(self.spare_master && is_master(cluster, node)) {
                self.crash(cluster, node);
                dead.push(node);
            }
        }
        (!dead.is_empty()).then(|| format!("nodes {dead:?} die at once"))
    }

    fn leave(&mut self, cluster: &mut Cluster, pick: u64) -> Option<String> {
        let is_in = |node: &u32| {
            let goes = cluster.is_alive(*node) && !cluster.is_frozen(*node);
            goes && cluster.joined(*node).is_some()
        };
        let node = Mischief::one_of((0..cluster.nodes()).filter(is_in), pick)?;
        if !self.leaves_somebody(cluster, node) {
            return None;
        }
        self.goes(node);
        cluster.leave(node);
        Some(format!("node {node} leaves at once"))
    }

    fn call_other(&mut self, cluster: &mut Cluster, pick: u64) -> Option<String> {
        let node = self.who(cluster, Who::Master)?;
        let runs = cluster.main_of(node) == MainIs::Running && !cluster.is_frozen(node);
        let program = Mischief::one_of(self.programs.iter().copied(), pick);
        let program = program.filter(|_| runs)?;
        let tag = cluster.start_other(node, program);
        Some(format!(
            "another thread of node {node} calls program {program} as {tag:?}"
        ))
    }

    fn cancel(&self, cluster: &mut Cluster) -> Option<String> {
        let node = self.who(cluster, Who::Master)?;
        let is_done = !cluster.is_frozen(node) && cluster.cancel_root(node);
        is_done.then(|| format!("main of node {node} cancels its root job, and calls it again"))
    }

    fn forget(cluster: &mut Cluster, pick: u64) -> Option<String> {
        let alive = (0..cluster.nodes()).filter(|node| cluster.is_alive(*node));
        let few: Vec<u32> = alive
            .filter(|node| cluster.has_fetched_shared(*node) || cluster.has_borrowed(*node))
            .collect();
        let node = Mischief::one_of(few.into_iter(), pick)?;
        if cluster.has_fetched_shared(node) {
            cluster.forget_shared(node);
        }
        cluster.forget_borrowed(node);
        Some(format!("node {node} drops what it has fetched"))
    }

    // ---- to the network

    fn cut_until(&mut self, end: Duration) {
        self.absences += 1;
        self.ends.push((end, Ended::Cut));
    }

    /// Cuts a site off from all others, or from a single other.
    fn partition(&mut self, cluster: &mut Cluster, pick: u64, time: Duration) -> Option<String> {
        let sites = cluster.sites().to_vec();
        if sites.len() < 2 {
            return None;
        }
        let cut = (pick % sites.len() as u64) as usize;
        let others = (0..sites.len()).filter(|other| *other != cut);
        let most = if pick.is_multiple_of(3) {
            1
        } else {
            sites.len()
        };
        for other in others.take(most) {
            cluster.partition(&sites[cut], &sites[other]);
        }
        self.cut_until(cluster.now() + time);
        Some(format!("{} is cut off for {time:?}", sites[cut]))
    }

    /// Cuts the link between two sites, which heals without the others.
    fn cut_sites(&mut self, cluster: &mut Cluster, a: usize, b: usize, time: Duration) -> String {
        let (a, b) = (a.min(b), a.max(b));
        let [one, other] = [a, b].map(|site| cluster.sites()[site].clone());
        cluster.partition(&one, &other);
        self.absences += 1;
        let end = cluster.now() + time;
        self.cuts.push((cluster.now(), end));
        self.ends.push((end, Ended::Link(a, b)));
        format!("the link between {one} and {other} is cut for {time:?}")
    }

    fn cut_link(&mut self, cluster: &mut Cluster, pick: u64, time: Duration) -> Option<String> {
        let sites: Vec<u32> = (0..cluster.sites().len() as u32).collect();
        let (a, b) = Mischief::pair(&sites, pick)?;
        Some(self.cut_sites(cluster, a as usize, b as usize, time))
    }

    fn cut_site(&mut self, cluster: &mut Cluster, node: u32, time: Duration) -> Option<String> {
        let site = cluster.node(node).view().me().site.clone();
        let sites = 0..cluster.sites().len();
        let (mine, others): (Vec<usize>, Vec<usize>) =
            sites.partition(|place| *cluster.sites()[*place] == *site);
        for other in &others {
            self.cut_sites(cluster, mine[0], *other, time);
        }
        (!others.is_empty()).then(|| format!("{site}, with node {node}, is cut off for {time:?}"))
    }

    fn cut_all(&mut self, cluster: &mut Cluster, pick: u64, time: Duration) -> Option<String> {
        let sites = cluster.sites().len();
        if sites < 3 {
            return None;
        }
        let mut dice = Dice::new(pick);
        let mut done = Vec::new();
        for (a, b) in (0..sites).flat_map(|a| (a + 1..sites).map(move |b| (a, b))) {
            let time = dice.between(time / 8, time);
            done.push(self.cut_sites(cluster, a, b, time));
        }
        Some(done.join("; "))
    }

    fn hide_store(&mut self, cluster: &mut Cluster, pick: u64, time: Duration) -> Option<String> {
        let (chosen, hidden) = Mischief::site_of(cluster, &self.stay(cluster), pick)?;
        let store = cluster.store_mut()?;
        store.hidden_from.extend(hidden);
        store.was_hidden = true;
        self.ends.push((cluster.now() + time, Ended::Hidden));
        Some(format!("{chosen} does not reach the store for {time:?}"))
    }

    fn isolate(&mut self, cluster: &mut Cluster, node: u32, time: Duration) -> Option<String> {
        cluster.isolate(node);
        self.cut_until(cluster.now() + time);
        Some(format!("node {node} is cut off for {time:?}"))
    }

    fn break_link(cluster: &mut Cluster, pick: u64, later: Duration) -> Option<String> {
        let links = cluster.links();
        let place = pick.checked_rem(links.len() as u64)?;
        let (a, b) = links[place as usize];
        cluster.break_link(a, b, later);
        Some(format!(
            "the link between {a} and {b} breaks; {b} notices {later:?} later"
        ))
    }

    fn cut_pair(&mut self, cluster: &mut Cluster, pick: u64, time: Duration) -> Option<String> {
        let (a, b) = Mischief::pair(&self.stay(cluster), pick)?;
        cluster.cut_way(a, b);
        cluster.cut_way(b, a);
        self.cut_until(cluster.now() + time);
        Some(format!("nothing passes between {a} and {b} for {time:?}"))
    }

    fn cut_way(&mut self, cluster: &mut Cluster, pick: u64, time: Duration) -> Option<String> {
        let (a, b) = Mischief::pair(&self.stay(cluster), pick)?;
        cluster.cut_way(a, b);
        self.cut_until(cluster.now() + time);
        Some(format!("nothing passes from {a} to {b} for {time:?}"))
    }

    fn line_up(&mut self, cluster: &mut Cluster, pick: u64, time: Duration) -> Option<String> {
        let mut line = self.stay(cluster);
        if line.len() < 4 {
            return None;
        }
        line.sort_by_key(|node| mix(pick ^ u64::from(*node)));
        let far = line.iter().enumerate().flat_map(|(place, node)| {
            let others = line.iter().skip(place + 2);
            others.flat_map(|other| [(*node, *other), (*other, *node)])
        });
        cluster.cut_ways(far);
        self.cut_until(cluster.now() + time);
        Some(format!(
            "nodes {line:?} reach only their neighbours for {time:?}"
        ))
    }

    fn cut_for_good(&mut self, cluster: &mut Cluster, pick: u64) -> Option<String> {
        let (a, b) = Mischief::pair(&self.stay(cluster), pick)?;
        cluster.cut_for_good(a, b);
        self.absences += 1;
        Some(format!("nothing passes between {a} and {b} any more"))
    }

    fn spoil_network(cluster: &mut Cluster, loss: f64, jitter: Duration) -> String {
        for path in [&mut cluster.wire.near, &mut cluster.wire.far] {
            path.loss = loss;
            path.jitter = jitter;
        }
        format!("{loss} of all gossip is lost, the rest is up to {jitter:?} late")
    }
}

fn is_master(cluster: &Cluster, node: u32) -> bool {
    cluster.node(node).view().master() == cluster.peer(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_schedule() {
        let schedule = |seed| {
            let span = Span {
                works: Duration::from_secs(2),
                probe: Duration::from_millis(50),
                suspicion: Duration::from_millis(200),
                wait: Duration::from_secs(1),
                stretch: 10,
            };
            let allow = Allow {
                master: true,
                partitions: true,
            };
            Schedule::random(&mut Dice::new(seed), span.works, span.suspicion, allow).with(
                &Class::all(),
                seed,
                span,
            )
        };
        let mut kinds = [0; FaultKind::COUNT];
        for seed in 0..2000 {
            let one = schedule(seed);
            assert_eq!(one, schedule(seed));
            assert!(one.faults.iter().all(|(at, _)| *at <= one.heal));
            for (_, fault) in one.faults {
                kinds[fault.kind() as usize] += 1;
            }
        }
        assert!(kinds.iter().all(|count| *count > 50), "{kinds:?}");
    }

    #[test]
    fn cuts_of_all_sites_end_apart() {
        let config = ProtocolConfig::default();
        let mut cluster = Cluster::new(1);
        cluster.form(&config, &[("a", 1), ("b", 1), ("c", 1)], 1);
        let mut mischief = Mischief::new(&config, 3, 1, 6, false);
        let cut = Fault::AllCut(7, Duration::from_secs(2));
        assert!(mischief.bring(&mut cluster, cut).is_some());
        let whole = |cluster: &Cluster| {
            let pairs = [(0, 1), (0, 2), (1, 2)].into_iter();
            pairs.filter(|(a, b)| cluster.reaches(*a, *b)).count()
        };
        let mut seen = vec![whole(&cluster)];
        while let Some(over) = mischief.next_end() {
            cluster.run_for(over - cluster.now());
            mischief.end(&mut cluster);
            seen.push(whole(&cluster));
        }
        assert_eq!(seen, [0, 1, 2, 3]);
    }
}
