//! A pool that is made up: nodes whose workers do random things, the same in each run.

use std::sync::{Arc, Mutex};

use satin_runtime::{
    job::Tally,
    observe::{
        events::{Event, NodeFigures, Record},
        history::{Gone, History},
        look::{Activity, Arrow, KeptFigures, NodeLook, SeenNode, SiteTraffic, Span, WhyIdle},
    },
};

/// The begin of its time, in milliseconds since 1970.
pub const BEGIN_MS: u64 = 1_790_000_000_000;

/// The time between two looks.
pub const LOOK_MS: u64 = 1_000;

pub const SITES: [&str; 4] = ["delft", "leiden", "amsterdam", "twente"];

/// A pool, and the history that is told of it.
pub struct MadeUp {
    pub history: Arc<Mutex<History>>,
    pub now_ms: u64,
    nodes: Vec<Node>,
    sites: usize,
    random: Random,
}

struct Node {
    seen: SeenNode,
    is_there: bool,
    figures: NodeFigures,
    traffic: Vec<SiteTraffic>,
    kept: KeptFigures,
    /// What each worker does now, and until when.
    workers: Vec<(Activity, u64)>,
    news: Vec<Record>,
}

/// splitmix64: the same numbers in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

impl MadeUp {
    /// A pool of so many nodes in the first of [`SITES`], with so many workers each.
    pub fn new(nodes: usize, sites: usize, threads: u32) -> MadeUp {
        MadeUp::since(BEGIN_MS, nodes, sites, threads)
    }

    /// The same, with another begin.
    pub fn since(begin_ms: u64, nodes: usize, sites: usize, threads: u32) -> MadeUp {
        let mut pool = MadeUp {
            history: Arc::new(Mutex::new(History::new("made-up"))),
            now_ms: begin_ms,
            nodes: Vec::new(),
            sites,
            random: Random(7),
        };
        for number in 0..nodes {
            pool.join(number, threads);
        }
        pool
    }

    fn join(&mut self, number: usize, threads: u32) {
        let site = SITES[number % self.sites];
        let seen = SeenNode {
            name: format!("{site}-{}", number / self.sites + 1),
            site: site.into(),
            addr: (
                [10, 0, (number % self.sites) as u8, 1],
                4000 + number as u16,
            )
                .into(),
            threads,
            is_master: number == 0,
            is_leaving: false,
        };
        let joined = record(Event::Joined { site: site.into() }, &seen.name, self.now_ms);
        self.tell(|history, now_ms| {
            history.note_node(seen.clone(), now_ms);
            history.note_event(joined);
        });
        let traffic = SITES[..self.sites].iter().map(|site| SiteTraffic {
            site: (*site).into(),
            ..SiteTraffic::default()
        });
        self.nodes.push(Node {
            traffic: traffic.collect(),
            is_there: true,
            figures: NodeFigures {
                threads,
                done: seen.is_master.then_some(0.0),
                ..NodeFigures::default()
            },
            kept: KeptFigures::default(),
            workers: vec![(Activity::Run, self.now_ms); threads as usize],
            news: Vec::new(),
            seen,
        });
    }

    fn tell(&mut self, tell: impl FnOnce(&mut History, u64)) {
        let mut history = self.history.lock().expect("no test panics with it");
        tell(&mut history, self.now_ms);
    }

    /// A second passes, and all nodes are looked at.
    pub fn step(&mut self) {
        self.now_ms += LOOK_MS;
        for place in 0..self.nodes.len() {
            if !self.nodes[place].is_there {
                continue;
            }
            let look = self.look(place);
            let name = self.nodes[place].seen.name.clone();
            self.tell(|history, _| history.note_look(&name, look, 0));
        }
    }

    /// The node dies, and another tells it.
    pub fn kill(&mut self, name: &str) {
        let site = self.node(name).seen.site.clone();
        self.node(name).is_there = false;
        let now_ms = self.now_ms;
        self.nodes[0]
            .news
            .push(record(Event::Dead { site }, name, now_ms));
        self.tell(|history, now_ms| history.note_gone(name, Gone::Dead, now_ms));
    }

    /// The node was asked to leave, and is about to.
    pub fn drain(&mut self, name: &str) {
        let site = self.node(name).seen.site.clone();
        self.node(name).seen.is_leaving = true;
        let seen = self.node(name).seen.clone();
        self.tell(|history, now_ms| {
            history.note_event(record(Event::Draining { site }, &seen.name, now_ms));
            history.note_node(seen, now_ms);
        });
    }

    /// `main` is over, and all nodes leave.
    pub fn end(&mut self) {
        let master = self.nodes[0].seen.name.clone();
        let ended = record(Event::PoolEnded { code: 0 }, &master, self.now_ms);
        self.tell(|history, _| history.note_event(ended));
        let staying = self.nodes.iter().filter(|node| node.is_there);
        for name in staying
            .map(|node| node.seen.name.clone())
            .collect::<Vec<_>>()
        {
            self.node(&name).is_there = false;
            self.tell(|history, now_ms| history.note_gone(&name, Gone::Left, now_ms));
        }
    }

    fn node(&mut self, name: &str) -> &mut Node {
        let mut nodes = self.nodes.iter_mut();
        nodes
            .find(|node| node.seen.name == name)
            .expect("a node of that name")
    }

    fn look(&mut self, place: usize) -> NodeLook {
        let (begin, end) = (self.now_ms - LOOK_MS, self.now_ms);
        let mut spans = Vec::new();
        let mut why_idle = Vec::new();
        for worker in 0..self.nodes[place].workers.len() {
            self.work(place, worker, begin, end, &mut spans);
            let (activity, _) = self.nodes[place].workers[worker];
            why_idle.push(self.reason(activity));
        }
        self.count(place, &spans);
        let arrows = self.arrows(place, &spans);
        let node = &mut self.nodes[place];
        NodeLook {
            now_ms: end,
            figures: node.figures,
            spans,
            arrows,
            functions: vec!["queens".into()],
            why_idle,
            sites: node.traffic.clone(),
            kept: node.kept,
            events: std::mem::take(&mut node.news),
            next: 0,
        }
    }

    /// Each stolen job came from another node, a part of a second before it began.
    fn arrows(&self, place: usize, spans: &[Span]) -> Vec<Arrow> {
        let begin_ms = self.now_ms - LOOK_MS;
        let is_stolen = |span: &&Span| {
            // What begins with the look goes on from before it.
            span.activity == Activity::RunStolen && span.start_ms > begin_ms
        };
        let stolen = spans
            .iter()
            .filter(is_stolen)
            .filter(|_| self.nodes.len() > 1);
        let arrows = stolen.map(|span| {
            let begun_ms = span.start_ms;
            // As if by chance, and the same in each run.
            let chance = begun_ms / 7 + u64::from(span.worker);
            let others = self.nodes.len() as u64 - 1;
            let from = (place as u64 + 1 + chance % others) as usize % self.nodes.len();
            let waited_ms = chance % 90;
            Arrow {
                from: self.nodes[from].seen.name.clone(),
                worker: span.worker,
                function: "queens".into(),
                sent_ms: begun_ms - waited_ms - chance % 40,
                came_ms: begun_ms - waited_ms,
                ready_ms: begun_ms - waited_ms / 2,
                begun_ms,
            }
        });
        arrows.collect()
    }

    fn work(&mut self, place: usize, worker: usize, begin: u64, end: u64, spans: &mut Vec<Span>) {
        let mut at = begin;
        while at < end {
            let (activity, until) = self.nodes[place].workers[worker];
            let stop = until.clamp(at, end);
            if stop > at {
                spans.push(Span {
                    worker: worker as u32,
                    start_ms: at,
                    length_ms: (stop - at) as u32,
                    activity,
                    function: (activity == Activity::RunStolen).then_some(0),
                });
            }
            if until <= end {
                let next = self.activity(place);
                let length = match next {
                    Activity::Run | Activity::RunStolen => 80 + self.random.below(900),
                    Activity::Idle | Activity::Wait => 20 + self.random.below(300),
                    _ => 5 + self.random.below(90),
                };
                self.nodes[place].workers[worker] = (next, stop + length);
            }
            at = stop;
        }
    }

    fn activity(&mut self, place: usize) -> Activity {
        // The last site has less to do.
        let is_poor = place % self.sites == self.sites - 1;
        match self.random.below(if is_poor { 130 } else { 100 }) {
            0..30 => Activity::Run,
            30..62 => Activity::RunStolen,
            62..72 => Activity::StealNear,
            72..77 => Activity::StealFar,
            77..84 => Activity::Wait,
            84..90 => Activity::Transfer,
            90..92 => Activity::Repair,
            _ => Activity::Idle,
        }
    }

    fn reason(&mut self, activity: Activity) -> Option<WhyIdle> {
        match activity {
            Activity::Run | Activity::RunStolen | Activity::Repair => None,
            Activity::Wait => Some(WhyIdle::WaitsForChild),
            Activity::Transfer => Some(WhyIdle::WaitsForValue),
            _ => Some(match self.random.below(4) {
                0 => WhyIdle::NotWorthIt,
                _ => WhyIdle::NoWork,
            }),
        }
    }

    fn count(&mut self, place: usize, spans: &[Span]) {
        let of = |activities: &[Activity]| {
            let spans = spans
                .iter()
                .filter(|span| activities.contains(&span.activity));
            (
                spans.clone().count() as u64,
                spans.map(|span| u64::from(span.length_ms)).sum::<u64>(),
            )
        };
        let (jobs, _) = of(&[Activity::RunStolen]);
        let idle = [
            Activity::Idle,
            Activity::StealNear,
            Activity::StealFar,
            Activity::Wait,
            Activity::Transfer,
        ];
        let (_, idle_ms) = of(&idle);
        let site = self.random.below(self.sites as u64) as usize;
        let moved = jobs * (2_000 + self.random.below(60_000));
        let now_ms = self.now_ms;
        let nodes = self.nodes.len();
        let has_lost = self.nodes.iter().any(|node| !node.is_there);
        let node = &mut self.nodes[place];
        if let Some(done) = node.figures.done {
            let progress = Event::Progress {
                done,
                seconds: node.figures.seconds,
                is_guess: false,
                nodes,
            };
            node.news.push(record(progress, &node.seen.name, now_ms));
        }
        node.figures.seconds += LOOK_MS as f64 / 1e3;
        node.figures.jobs += jobs;
        node.figures.given += jobs;
        node.figures.bytes_sent += moved;
        node.figures.bytes_received += moved / 2;
        node.figures.idle_s += idle_ms as f64 / 1e3;
        node.figures.steal_us_p50 = 210.0;
        node.figures.tally.add(&Tally {
            repairs: if has_lost { jobs / 3 } else { 0 },
            ..Tally::default()
        });
        node.figures.done = node.figures.done.map(|done| (done + 0.004).min(1.0));
        let traffic = &mut node.traffic[site];
        traffic.bytes_sent += moved;
        traffic.taken += jobs;
        node.kept.records += 1;
        node.kept.record_bytes += 900;
    }
}

fn record(event: Event, name: &str, at_ms: u64) -> Record {
    let name = name.into();
    Record { event, name, at_ms }
}
