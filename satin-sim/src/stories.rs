//! Stories with the usual settings and real time scales, told over many seeds: cases that random schedules, which are
//! short, seldom reach. `satin-sim story NAME` tells one.

use std::{fmt::Write, ops::Range, time::Duration};

use satin_runtime::node::{
    Event, MessageKind, ProtocolConfig, Tally,
    cluster::{Cluster, MainIs, Path, Program, Shape, Work, mix},
    inspect::InspectedStage,
};

use crate::classes::Standing;

/// The outcome of a story: its figures, and the faults that were found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Telling {
    /// A line for each variant.
    pub figures: String,
    /// The first thing that must not happen and did.
    pub wrong: Option<String>,
}

impl Telling {
    fn say(&mut self, line: &str) {
        let _ = writeln!(self.figures, "{line}");
    }

    fn require(&mut self, holds: bool, line: &str) {
        self.say(line);
        if !holds {
            self.wrong.get_or_insert_with(|| line.into());
        }
    }
}

/// A story: a run with given faults, and the outcome that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// The name on the command line.
    pub name: &'static str,
    /// The events of the story, and the outcome that must not come of them.
    pub what: &'static str,
    /// Does it end well? Those that do are told by the tests.
    pub standing: Standing,
    /// Tells it with these seeds.
    pub tell: fn(Range<u64>) -> Telling,
}

const fn story(
    name: &'static str,
    what: &'static str,
    standing: Standing,
    tell: fn(Range<u64>) -> Telling,
) -> Story {
    Story {
        name,
        what,
        standing,
        tell,
    }
}

/// All of them. A story whose fault has been mended becomes [`Standing::Tried`] here, and nowhere else.
pub const STORIES: [Story; 9] = [
    story(
        "fetch",
        "the master dies while all fetch a shared value: every run ends",
        Standing::Tried,
        fetch,
    ),
    story(
        "poison",
        "a leaf kills its host: it is given up before the whole pool is dead",
        Standing::Tried,
        poison,
    ),
    story(
        "false",
        "a host pauses for 20 s, three times: no crash is counted",
        Standing::Tried,
        false_deaths,
    ),
    story(
        "burst",
        "half of a pool dies at one moment: that is one crash for each job",
        Standing::Tried,
        burst,
    ),
    story(
        "flaky",
        "the link between two sites fails now and then: no crash is counted",
        Standing::Tried,
        flaky,
    ),
    story(
        "split",
        "a partition of 1, 9 and 12 minutes: all see one another again",
        Standing::Tried,
        split,
    ),
    story(
        "cut",
        "a partition of 20 and 60 s: one side comes over, and costs no more than its own work",
        Standing::Tried,
        cut,
    ),
    story(
        "newcomers",
        "newcomers on both sides of a partition have the smallest ids: all see one another again",
        Standing::Tried,
        newcomers,
    ),
    story(
        "growth",
        "one node after another leaves during one root job: tables do not grow",
        Standing::Tried,
        growth,
    ),
];

fn is_over(cluster: &Cluster) -> bool {
    (0..cluster.nodes()).any(|node| cluster.main_of(node) == MainIs::Over)
}

/// A pool at one site whose master computes a tree.
fn pool(seed: u64, nodes: u32, config: &ProtocolConfig, program: Program) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.form(config, &[("here", nodes)], 1);
    let program = cluster.program(program);
    cluster.set_main_everywhere(&[program], None);
    cluster
}

/// Ends a run in which no fault was brought: the panic of main, if it saw one, or that it has no end.
fn blame(cluster: &mut Cluster, limit: Duration) -> Option<String> {
    let ended = cluster.run_until(limit, is_over);
    let mut panics = (0..cluster.nodes()).flat_map(|node| cluster.panics(node));
    let panic = panics.next().cloned();
    panic.or_else(|| (!ended).then(|| format!("main has not ended {limit:?} later")))
}

/// How many runs went wrong, and the first of them.
#[derive(Default)]
struct Blames {
    runs: u32,
    wrong: u32,
    first: Option<String>,
}

impl Blames {
    fn add(&mut self, seed: u64, blame: Option<String>) {
        self.runs += 1;
        if let Some(blame) = blame {
            self.wrong += 1;
            self.first.get_or_insert(format!("seed {seed}: {blame}"));
        }
    }

    fn tell(self, telling: &mut Telling, what: &str) {
        let Blames { runs, wrong, first } = self;
        let first = first.map_or_else(String::new, |first| format!("; {first}"));
        telling.require(
            wrong == 0,
            &format!("{what}: {wrong} of {runs} runs went wrong{first}"),
        );
    }
}

fn fetch(seeds: Range<u64>) -> Telling {
    let mut telling = Telling::default();
    for nodes in [3, 4, 5, 6, 8, 12] {
        let mut blames = Blames::default();
        for seed in seeds.clone() {
            let config = ProtocolConfig {
                claim_patience: Duration::from_millis(100),
                ..ProtocolConfig::default()
            };
            let mut cluster = Cluster::new(seed);
            cluster.wire.near = Path::new(Duration::from_millis(20));
            cluster.form(&config, &[("here", nodes)], 1);
            cluster.share(vec![7; 1000]);
            let program = Program::new(knary(3), Duration::from_millis(500)).seeded(seed);
            let program = cluster.program(program);
            cluster.set_main_everywhere(&[program], None);
            let wants = |cluster: &Cluster| cluster.traffic.of(MessageKind::Want).all() >= 1;
            cluster.run_until(Duration::from_secs(20), wants);
            cluster.run_for(Duration::from_millis(8));
            cluster.crash(0);
            blames.add(seed, blame(&mut cluster, Duration::from_secs(600)));
        }
        blames.tell(&mut telling, &format!("{nodes} nodes"));
    }
    telling
}

fn knary(height: u32) -> Shape {
    Shape::Knary {
        width: 4,
        height,
        serial: 0,
    }
}

/// A leaf of a tree, found by going down by chance.
fn some_leaf(program: &Program, seed: u64) -> Work {
    let mut work = program.root();
    let mut dice = seed;
    while work.height > 0 {
        dice = mix(dice);
        work = program.child(work, (dice % 4) as u32, 0);
    }
    work
}

fn poison(seeds: Range<u64>) -> Telling {
    let config = ProtocolConfig::default();
    let mut telling = Telling::default();
    for nodes in [6, 8, 12] {
        let (mut blames, mut most) = (Blames::default(), 0);
        for seed in seeds.clone() {
            let mut program = Program::new(knary(3), Duration::from_millis(500)).seeded(seed);
            program.poison = Some(some_leaf(&program, seed).seed);
            let mut cluster = pool(seed, nodes, &config, program);
            let all_dead = |cluster: &Cluster| (0..nodes).all(|node| !cluster.is_alive(node));
            let end = |cluster: &Cluster| all_dead(cluster) || is_over(cluster);
            cluster.run_until(Duration::from_secs(2000), end);
            let dead = (0..nodes).filter(|node| !cluster.is_alive(*node)).count();
            most = most.max(dead);
            let gave_up = cluster.endings().iter().any(|ending| ending.panicked);
            // A master may have been the first to run it, and an orphan of it and its repair may have run side by side.
            let few = dead <= config.max_crashes as usize + 2;
            let story = || format!("{dead} nodes died, and the job was given up: {gave_up}");
            blames.add(seed, (!gave_up || !few).then(story));
        }
        let what = format!("a poisonous leaf in {nodes} nodes, at most {most} died");
        blames.tell(&mut telling, &what);
    }
    telling
}

/// A node that runs a job of another which is no orphan.
fn host_of_others(cluster: &Cluster) -> Option<u32> {
    (1..cluster.nodes()).find(|node| {
        let books = cluster.node(*node).inspect();
        let started = |stage| stage == InspectedStage::Started;
        let mut hosted = books.hosted.iter();
        hosted.any(|job| started(job.stage) && !job.orphan && !job.waiters.is_empty())
    })
}

fn false_deaths(seeds: Range<u64>) -> Telling {
    let mut blames = Blames::default();
    let pause = Duration::from_secs(20);
    for seed in seeds {
        let program = Program::new(Shape::Flat { jobs: 2 }, Duration::from_secs(300));
        let mut cluster = pool(seed, 5, &ProtocolConfig::default(), program);
        for _ in 0..3 {
            cluster.run_for(pause);
            if let Some(host) = host_of_others(&cluster) {
                cluster.freeze(host);
                cluster.run_for(pause);
                cluster.thaw(host);
            }
        }
        blames.add(seed, blame(&mut cluster, Duration::from_secs(2000)));
    }
    let mut telling = Telling::default();
    blames.tell(&mut telling, "three pauses of 20 s and no death");
    telling
}

fn burst(seeds: Range<u64>) -> Telling {
    /// A way in which a node ends.
    type End = fn(&mut Cluster, u32);
    let mut telling = Telling::default();
    let ends: [(&str, End); 2] = [
        ("silent nodes", Cluster::isolate),
        ("killed processes", Cluster::crash),
    ];
    for (what, end) in ends {
        let mut blames = Blames::default();
        for seed in seeds.clone() {
            let program = Program::new(Shape::Flat { jobs: 8 }, Duration::from_secs(30));
            let mut cluster = pool(seed, 16, &ProtocolConfig::default(), program);
            cluster.run_for(Duration::from_secs(10));
            for node in (0..16).filter(|node| node % 2 == 1) {
                end(&mut cluster, node);
            }
            let over = |cluster: &Cluster| cluster.main_of(0) == MainIs::Over;
            let ended = cluster.run_until(Duration::from_secs(250), over);
            let panic = cluster.panics(0).first().cloned();
            let hangs = (!ended).then(|| "main has not ended".into());
            blames.add(seed, panic.or(hangs));
        }
        blames.tell(&mut telling, &format!("8 of 16 {what} at once"));
    }
    telling
}

fn flaky(seeds: Range<u64>) -> Telling {
    let mut telling = Telling::default();
    for times in [3, 5, 8] {
        let mut blames = Blames::default();
        for seed in seeds.clone() {
            let mut cluster = Cluster::new(seed);
            cluster.form(&ProtocolConfig::default(), &[("a", 3), ("b", 2)], 1);
            let program = Program::new(Shape::Flat { jobs: 8 }, Duration::from_secs(120));
            let program = cluster.program(program);
            cluster.set_main_everywhere(&[program], None);
            for _ in 0..times {
                cluster.run_for(Duration::from_secs(30));
                cluster.partition("a", "b");
                cluster.run_for(Duration::from_secs(20));
                cluster.heal();
            }
            blames.add(seed, blame(&mut cluster, Duration::from_secs(1500)));
        }
        let what = format!("{times} outages of 20 s and no death");
        blames.tell(&mut telling, &what);
    }
    telling
}

/// Does every node that is there see every other? Who does not, whom.
fn apart(cluster: &Cluster) -> Option<String> {
    let there = || (0..cluster.nodes()).filter(|node| cluster.is_alive(*node));
    there().find_map(|node| {
        let view = cluster.node(node).view();
        let missed = there().find(|other| !view.is_alive(cluster.peer(*other)));
        missed.map(|other| format!("node {node} does not see node {other}"))
    })
}

/// Two sites with two nodes each, and a long root job.
fn two_sites(seed: u64, scrambled: u32, config: &ProtocolConfig) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.scramble(scrambled);
    cluster.form(config, &[("a", 2), ("b", 2)], 1);
    let program = Program::new(knary(6), Duration::from_secs(3));
    let program = cluster.program(program);
    cluster.set_main_everywhere(&[program], None);
    cluster.run_for(Duration::from_secs(5));
    cluster
}

fn split(seeds: Range<u64>) -> Telling {
    let mut telling = Telling::default();
    for minutes in [1, 9, 12] {
        let mut blames = Blames::default();
        for seed in seeds.clone() {
            let mut cluster = two_sites(seed, 0, &ProtocolConfig::default());
            cluster.partition("a", "b");
            cluster.run_for(Duration::from_secs(60 * minutes));
            cluster.heal();
            cluster.run_for(Duration::from_secs(300));
            blames.add(seed, apart(&cluster));
        }
        let what = format!("five minutes after a partition of {minutes} minutes");
        blames.tell(&mut telling, &what);
    }
    telling
}

fn newcomers(seeds: Range<u64>) -> Telling {
    let mut blames = Blames::default();
    for seed in seeds {
        let config = ProtocolConfig {
            partition_wait: Duration::from_secs(5),
            ..ProtocolConfig::default()
        };
        // Numbers 4 and 5 become the ids 2 and 3: all others but two are larger.
        let mut cluster = two_sites(seed, 6, &config);
        cluster.partition("a", "b");
        cluster.run_for(Duration::from_secs(40));
        cluster.join(&config, "a", 1, 0);
        cluster.join(&config, "b", 1, 2);
        cluster.run_for(Duration::from_secs(20));
        cluster.heal();
        cluster.run_for(Duration::from_secs(500));
        blames.add(seed, apart(&cluster));
    }
    let mut telling = Telling::default();
    blames.tell(
        &mut telling,
        "eight minutes after a partition in which two came in",
    );
    telling
}

fn growth(seeds: Range<u64>) -> Telling {
    const ROUNDS: u32 = 120;
    /// Results that are kept for each job under way: of a frame that was given up all finished children are, two at most of three.
    const MOST: f64 = 8.0;
    let mut telling = Telling::default();
    let config = ProtocolConfig {
        max_crashes: 100_000,
        ..ProtocolConfig::default()
    };
    for seed in seeds.start..seeds.end.min(seeds.start + 2) {
        let shape = Shape::Knary {
            width: 3,
            height: 10,
            serial: 0,
        };
        let program = Program::new(shape, Duration::from_millis(25)).seeded(seed);
        let mut cluster = pool(seed, 6, &config, program);
        let (mut most, mut share, mut rounds) = (0, 0.0, 0);
        while rounds < ROUNDS && cluster.main_of(0) != MainIs::Over {
            cluster.run_for(Duration::from_millis(1500));
            rounds += 1;
            cluster.join(&config, "here", 1, 0);
            cluster.run_for(Duration::from_millis(300));
            cluster.tell(rounds, Event::Drain(Duration::from_secs(1)));
            let (kept, under_way) = (cluster.kept(), cluster.unsettled());
            most = most.max(kept);
            share = f64::max(share, kept as f64 / under_way.max(1) as f64);
        }
        let line = format!(
            "{rounds} drains in one root job: at most {most} results are kept, and {share:.1} for each job under way"
        );
        telling.require(share <= MOST, &line);
    }
    telling
}

/// The sites of a pool, with their sizes. The master is at the first.
type Layout = &'static [(&'static str, u32)];

/// The work of a run in the story of the cuts, in seconds.
const CUT_WORK: f64 = 1000.0;

/// What happens in a run of that story.
#[derive(Clone, Copy)]
enum Cut {
    /// All sites are cut off from each other for so many seconds.
    Heals(f64),
    /// All but the first site are gone, and come in anew so many seconds later.
    Restarts(f64),
}

/// What a run of that story came to.
#[derive(Default)]
struct CutRun {
    /// Work beyond what had to be done, in hundredths of that.
    extra: f64,
    seconds: f64,
    /// Lives that ended at the side that has the master, and elsewhere.
    reborn: [u32; 2],
    tally: Tally,
}

/// One side of a partition comes over to the other once that is over. What must be done again is no more than what that side did
/// while it was cut off, and a little; what a restart of that side would cost stands beside it.
fn cut(seeds: Range<u64>) -> Telling {
    let mut telling = Telling::default();
    let layouts: [(Layout, [f64; 2]); 4] = [
        (&[("a", 8), ("b", 8)], [15.0, 30.0]),
        (&[("a", 15), ("b", 1)], [6.0, 8.0]),
        (&[("a", 1), ("b", 15)], [f64::INFINITY; 2]),
        (&[("a", 5), ("b", 5), ("c", 6)], [20.0, 40.0]),
    ];
    for (layout, most) in layouts {
        for (time, most) in [20.0, 60.0].into_iter().zip(most) {
            let all = |how| -> Vec<CutRun> {
                (seeds.clone())
                    .map(|seed| cut_run(layout, how, seed))
                    .collect()
            };
            let (runs, restarts) = (all(Cut::Heals(time)), all(Cut::Restarts(time)));
            let mean = |runs: &[CutRun], of: &dyn Fn(&CutRun) -> f64| {
                runs.iter().map(of).sum::<f64>() / runs.len() as f64
            };
            let extra = mean(&runs, &|run| run.extra);
            let worst = runs.iter().map(|run| run.extra).fold(0.0, f64::max);
            let count = |of: fn(&Tally) -> u64| mean(&runs, &|run| of(&run.tally) as f64);
            let sizes: Vec<String> = layout.iter().map(|(_, nodes)| nodes.to_string()).collect();
            telling.require(
                extra <= most,
                &format!(
                    "{} nodes, {time} s: extra work {extra:.1} % (at most {worst:.0}; a restart {:.1} %), {:.1} s (a restart {:.1} s); \
                     ended lives {:.1} with the master, {:.1} without; claims {:.0}, of which {:.0} hit, {:.0} miss, {:.0} withdrawn; \
                     orphans {:.0}, repairs {:.0}",
                    sizes.join(" | "),
                    mean(&restarts, &|run| run.extra),
                    mean(&runs, &|run| run.seconds),
                    mean(&restarts, &|run| run.seconds),
                    mean(&runs, &|run| f64::from(run.reborn[0])),
                    mean(&runs, &|run| f64::from(run.reborn[1])),
                    count(|tally| tally.claims),
                    count(|tally| tally.hits),
                    count(|tally| tally.misses),
                    count(|tally| tally.withdrawn),
                    count(|tally| tally.orphans),
                    count(|tally| tally.repairs),
                ),
            );
        }
    }
    telling
}

fn cut_run(layout: Layout, how: Cut, seed: u64) -> CutRun {
    let config = ProtocolConfig::default();
    let mut cluster = Cluster::new(seed);
    cluster.form(&config, layout, 1);
    let shape = Shape::Knary {
        width: 4,
        height: 6,
        serial: 0,
    };
    let program = Program::new(shape, Duration::from_secs_f64(CUT_WORK / 4096.0)).seeded(seed);
    let program = cluster.program(program);
    cluster.set_main_everywhere(&[program], None);
    cluster.run_for(Duration::from_secs(10));
    let nodes = cluster.nodes();
    match how {
        Cut::Heals(time) => {
            for (place, (a, _)) in layout.iter().enumerate() {
                layout[..place]
                    .iter()
                    .for_each(|(b, _)| cluster.partition(a, b));
            }
            cluster.run_for(Duration::from_secs_f64(time));
            cluster.heal();
        }
        Cut::Restarts(time) => {
            (layout[0].1..nodes).for_each(|node| cluster.crash(node));
            cluster.run_for(Duration::from_secs_f64(time));
            for (site, size) in &layout[1..] {
                (0..*size).for_each(|_| {
                    cluster.join(&config, site, 1, 0);
                });
            }
        }
    }
    cluster.run_until(Duration::from_secs(3000), is_over);
    let all = 0..cluster.nodes();
    let busy: f64 = (all.clone())
        .map(|node| cluster.effort(node).busy.as_secs_f64())
        .sum();
    let mut run = CutRun {
        extra: 100.0 * (busy - CUT_WORK) / CUT_WORK,
        seconds: cluster.now().as_secs_f64(),
        ..CutRun::default()
    };
    for node in all {
        let place = usize::from(node >= layout[0].1);
        run.reborn[place] += cluster.peer(node).generation;
        run.tally.add(&cluster.node(node).tally());
    }
    run
}
