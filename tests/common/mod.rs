//! The remote thief: a thread that plays another node at the gate of a pool.
//!
//! It takes jobs from pool `a` as bytes, finds their function again by name, runs them in pool `b`, and brings the
//! answers back. By habit it also loses some, refuses some, and puts some back, as networks do.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod outside;

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use satin::{
    Satin,
    job::{
        Answer, Back, DepartureId, Fingerprint, HeldValue, History, HostedId, JobId, JobName,
        KeptElsewhere, OrphanNews, Parcel, Recall, RootName, Saved, Taken, ValueName, ValueSize,
        by_number,
    },
    worker::{Outside, RootKey},
};

/// How long anything may take before a test gives up: only a watchdog.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until that holds, which `what` names.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    wait_within(PATIENCE, what, condition);
}

/// The same, for so long at most: less than [`PATIENCE`], if a [`Watchdog`] would end the process before it is told what did not happen.
pub fn wait_within(patience: Duration, what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < patience, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// A small generator (splitmix64): the same numbers for the same seed, everywhere.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The finalizer of splitmix64.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What the thief does with the jobs it takes, in percent of them; the rest runs in the other pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    pub seed: u64,
    /// Brought back at once.
    pub put_back: u64,
    /// Answered with a refusal.
    pub refuse: u64,
    /// Kept for a while, then put back: the node that had it died.
    pub lose: u64,
    /// Kept until it is recalled or everything ends: a node that never answers.
    pub hoard: u64,
    /// Of the jobs that the other pool has run, those whose answers are kept for a while: others overtake them.
    pub late: u64,
    /// Run by the other pool while the first believes that it died: it does the job again, with a mark, and may claim
    /// what it meets of it. Half of them are given up on the way.
    pub orphan: u64,
    /// So many jobs at most are in the other pool at once; 0 means 4.
    pub most: usize,
    /// The other pool may refuse.
    pub may_refuse: bool,
    /// In one of that number of polls the pools get a beat, see `Gate::beat`; 0 means in none.
    pub beat: u64,
    /// Until so many jobs have left, leaves give way to the thief: see [`give_way`].
    pub wanted: usize,
    /// Of what the other pool keeps of results, the part that it has no more when the first pool needs it, or a job of it.
    pub forget: u64,
}

/// Thieves that have not got what they want.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// For the leaves of a program whose jobs are to leave: lets a thief run that waits for one.
///
/// On a busy machine the program would be over before the thief's thread runs at all, again and again.
pub fn give_way() {
    if WAITING.load(SeqCst) > 0 {
        std::thread::yield_now();
    }
}

/// Counts in [`WAITING`] as long as it lives.
struct Waits;

impl Waits {
    fn new() -> Waits {
        WAITING.fetch_add(1, SeqCst);
        Waits
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, SeqCst);
    }
}

/// A job that was taken.
#[derive(Clone, Debug)]
pub struct Departed {
    pub id: JobId,
    pub function: &'static str,
    pub fingerprint: Fingerprint,
    pub arguments: Vec<u8>,
    /// It borrows data by name.
    pub borrows: bool,
}

/// What the thief did.
#[derive(Debug, Default)]
pub struct Report {
    pub taken: Vec<Departed>,
    /// Ran in the other pool, and the answer was wanted.
    pub travelled: usize,
    /// Of these, those whose answers were late.
    pub late: usize,
    /// Brought back undone, in whatever way.
    pub returned: usize,
    /// Were away when their parent stopped wanting them.
    pub recalled: usize,
    /// Ended in the other pool as aborted.
    pub aborted: usize,
    /// Ended in the other pool with a panic.
    pub panicked: usize,
    /// Claims that were answered, and wanted.
    pub claimed: usize,
    /// Results of finished children below jobs that were given up.
    pub saved: usize,
    /// Parts of results that the other pool kept and that the first one has asked for.
    pub brought: usize,
    /// The same of those that were gone.
    pub forgotten: usize,
    /// Data that the other pool may fetch before a task comes that needs them.
    pub prefetched: usize,
}

/// What those outside the thief's thread can see while it is at work.
#[derive(Default)]
pub struct Watch {
    pub taken: AtomicUsize,
    pub recalled: AtomicUsize,
    at_work: AtomicBool,
    stop: AtomicBool,
}

/// Runs `program` on pool `a`, with a thief that carries its jobs to `b`.
pub fn beside<R>(
    a: &Satin,
    b: &Satin,
    habits: Habits,
    program: impl FnOnce(&Watch) -> R,
) -> (R, Report) {
    let watch = Watch::default();
    std::thread::scope(|scope| {
        let thief = scope.spawn(|| Thief::new(a, b, habits, &watch).work());
        let result = {
            let _stop = StopAtEnd(&watch);
            while !watch.at_work.load(SeqCst) {
                std::thread::yield_now();
            }
            a.run(|| program(&watch))
        };
        (result, thief.join().expect("the thief does not panic"))
    })
}

struct StopAtEnd<'w>(&'w Watch);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, SeqCst);
    }
}

/// Repeats `program` until `enough` says so of a run's report; each run is checked by the program itself.
pub fn until(
    a: &Satin,
    b: &Satin,
    habits: Habits,
    enough: impl Fn(&Report) -> bool,
    mut program: impl FnMut(),
) -> Report {
    let since = Instant::now();
    for round in 0.. {
        let habits = Habits {
            seed: habits.seed + round,
            wanted: habits.wanted.max(1) + round as usize,
            ..habits
        };
        let ((), report) = beside(a, b, habits, |_| program());
        if enough(&report) {
            return report;
        }
        if since.elapsed() > PATIENCE {
            break;
        }
    }
    panic!("of all runs in {PATIENCE:?}, none was as the test wants it");
}

/// The program is right when jobs travel, when some come back undone, and when some are lost with their node. `pools` makes two, the first
/// with that number of workers.
pub fn travels(pools: impl Fn(usize) -> (Satin, Satin), mut program: impl FnMut()) {
    for workers in [1, 2] {
        let (a, b) = pools(workers);
        let bad = Habits {
            seed: 7,
            put_back: 20,
            refuse: 20,
            lose: 20,
            beat: 1,
            ..Habits::default()
        };
        let crashing = Habits {
            seed: 8,
            lose: 10,
            orphan: 60,
            beat: 8,
            ..Habits::default()
        };
        for habits in [Habits::default(), bad, crashing] {
            let (travelled, returned, claimed) = (Cell::new(0), Cell::new(0), Cell::new(0));
            let enough = |report: &Report| {
                travelled.update(|sum| sum + report.travelled);
                returned.update(|sum| sum + report.returned);
                claimed.update(|sum| sum + report.claimed);
                travelled.get() > 0
                    && (habits.refuse == 0 || returned.get() > 0)
                    && (habits.orphan == 0 || claimed.get() > 0)
            };
            until(&a, &b, habits, enough, &mut program);
        }
    }
}

/// What the pools tell the thief.
enum Told {
    /// The other pool is done with a job, which it hosts under the number of its departure.
    Done(HostedId, Answer),
    /// The first pool does not want it any more.
    Recalled(DepartureId),
    /// The first pool has met an orphan.
    Claimed(DepartureId, Parcel),
    /// The other pool has given a job up.
    Saved(HostedId, Vec<Saved>),
    /// The other pool keeps parts of a result.
    Keeps(Vec<HeldValue>),
    /// The first pool needs one of them.
    Bring(KeptElsewhere),
    /// It can do without these.
    Unneeded(Vec<ValueName>),
    /// The other pool will need this, which the first one has.
    Prefetch(ValueSize),
}

/// The other pool hosts a job under the number of its departure.
fn hosted_as(token: DepartureId) -> HostedId {
    HostedId(token.0)
}

struct Ear(mpsc::Sender<Told>);

// Nobody listens any more if the test has failed.
impl Outside for Ear {
    fn done(&self, key: HostedId, answer: Answer) {
        let _ = self.0.send(Told::Done(key, answer));
    }

    fn recalled(&self, token: DepartureId, _: Recall) {
        let _ = self.0.send(Told::Recalled(token));
    }

    fn claimed(&self, token: DepartureId, parcel: Parcel) {
        let _ = self.0.send(Told::Claimed(token, parcel));
    }

    fn saved(&self, key: HostedId, saved: Vec<Saved>) {
        let _ = self.0.send(Told::Saved(key, saved));
    }

    fn keeps(&self, _: RootKey, values: &[HeldValue]) {
        let _ = self.0.send(Told::Keeps(values.to_vec()));
    }

    fn bring(&self, kept: KeptElsewhere) -> bool {
        self.0.send(Told::Bring(kept)).is_ok()
    }

    fn unneeded(&self, _: u128, names: Vec<ValueName>) {
        let _ = self.0.send(Told::Unneeded(names));
    }

    fn prefetch(&self, _: u128, value: ValueSize, _: RootName, at: Option<u128>) {
        assert!(at.is_none(), "the other pool keeps it itself");
        let _ = self.0.send(Told::Prefetch(value));
    }
}

/// A job that the other pool does, or has done, and the first one does again.
#[derive(Default)]
struct Orphan {
    answer: Option<Answer>,
    claims: Vec<DepartureId>,
}

struct Thief<'t> {
    a: &'t Satin,
    b: &'t Satin,
    habits: Habits,
    watch: &'t Watch,
    waits: Option<Waits>,
    rng: Rng,
    report: Report,
    hosted: HashSet<DepartureId>,
    orphans: HashMap<JobName, Orphan>,
    /// Those that the other pool runs, and the poll at which it gives them up.
    running: HashMap<DepartureId, (JobName, u64)>,
    /// Kept jobs, and the poll at which they are put back.
    kept: Vec<(DepartureId, u64)>,
    /// Kept answers, and the poll at which they are delivered.
    late: Vec<(DepartureId, Answer, u64)>,
    recalled: HashSet<DepartureId>,
    /// Answers that nobody wanted: they must turn out to be recalled.
    unwanted: HashSet<DepartureId>,
    /// Parts of results that the other pool keeps.
    parts: HashMap<ValueName, Vec<HeldValue>>,
    told: mpsc::Receiver<Told>,
}

impl<'t> Thief<'t> {
    fn new(a: &'t Satin, b: &'t Satin, habits: Habits, watch: &'t Watch) -> Self {
        let (tell, told) = mpsc::channel();
        let ear = Arc::new(Ear(tell));
        a.gate().listen(ear.clone());
        b.gate().listen(ear);
        a.gate().harvest();
        b.gate().harvest();
        Thief {
            a,
            b,
            habits,
            watch,
            waits: (habits.wanted > 0).then(Waits::new),
            rng: Rng(habits.seed),
            report: Report::default(),
            hosted: HashSet::new(),
            orphans: HashMap::new(),
            running: HashMap::new(),
            kept: Vec::new(),
            late: Vec::new(),
            recalled: HashSet::new(),
            unwanted: HashSet::new(),
            parts: HashMap::new(),
            told,
        }
    }

    fn work(mut self) -> Report {
        let mut poll = 0;
        while !self.watch.stop.load(SeqCst) {
            poll += 1;
            self.watch.at_work.store(true, SeqCst);
            let busy = self.hear(poll) | self.fetch(poll);
            if self.habits.beat > 0 && self.rng.below(self.habits.beat) == 0 {
                self.a.gate().beat();
                self.b.gate().beat();
            }
            if !busy {
                std::thread::yield_now();
            }
        }
        self.waits = None;
        let since = Instant::now();
        while !self.hosted.is_empty() || !self.kept.is_empty() || !self.late.is_empty() {
            assert!(
                since.elapsed() < PATIENCE,
                "{} hosted jobs do not end",
                self.hosted.len()
            );
            if !self.hear(u64::MAX) {
                std::thread::yield_now();
            }
        }
        self.hear(u64::MAX);
        assert!(
            self.unwanted.is_subset(&self.recalled),
            "an answer was refused, but the job not recalled"
        );
        self.report.recalled = self.recalled.len();
        self.report
    }

    /// Passes recalls and answers on. True if there was anything.
    fn hear(&mut self, poll: u64) -> bool {
        let mut busy = false;
        while let Ok(told) = self.told.try_recv() {
            busy = true;
            match told {
                Told::Recalled(token) => self.recalled(token),
                Told::Done(key, answer) => self.done(DepartureId(key.0), answer, poll),
                Told::Claimed(token, parcel) => self.claimed(token, &parcel),
                Told::Saved(key, saved) => self.saved(DepartureId(key.0), saved),
                Told::Keeps(values) => {
                    for value in values {
                        self.parts.entry(value.name()).or_default().push(value);
                    }
                }
                Told::Bring(kept) => self.bring(kept),
                Told::Prefetch(value) => {
                    self.report.prefetched += 1;
                    // Who reads it may have run meanwhile; or else it is here.
                    let held = satin::data::store().hold(&[value.name]);
                    let held = held.and_then(|mut values| values.pop());
                    assert!(held.is_none_or(|held| held.bytes().len() as u64 == value.bytes));
                }
                Told::Unneeded(names) => {
                    for name in names {
                        let values = self.parts.get_mut(&name);
                        values.and_then(Vec::pop);
                    }
                }
            }
        }
        for (token, (_, give_up)) in &mut self.running {
            if *give_up <= poll {
                *give_up = u64::MAX;
                self.b.gate().save_hosted(hosted_as(*token));
            }
        }
        while let Some(place) = self.kept.iter().position(|(_, until)| *until <= poll) {
            busy = true;
            let (token, _) = self.kept.swap_remove(place);
            self.bring_back(token);
        }
        while let Some(place) = self.late.iter().position(|(.., until)| *until <= poll) {
            busy = true;
            let (token, answer, _) = self.late.swap_remove(place);
            if self.deliver_done(token, answer) {
                self.report.late += 1;
            }
        }
        busy
    }

    /// The first pool needs what the other one keeps.
    fn bring(&mut self, kept: KeptElsewhere) {
        if self.rng.below(100) < self.habits.forget {
            self.parts.remove(&kept.name);
        }
        // Somebody else may have it.
        let value = satin::data::store().hold(&[kept.name]);
        self.report.brought += 1;
        self.report.forgotten += usize::from(value.is_none());
        let value = value.and_then(|mut values| values.pop());
        self.a.gate().brought(kept.ticket, value);
    }

    fn recalled(&mut self, token: DepartureId) {
        assert!(self.recalled.insert(token), "recalled twice");
        self.watch.recalled.fetch_add(1, SeqCst);
        if self.hosted.contains(&token) {
            self.b.gate().abort_hosted(hosted_as(token));
        }
    }

    fn done(&mut self, token: DepartureId, answer: Answer, poll: u64) {
        assert!(self.hosted.remove(&token), "done twice");
        if let Some((name, _)) = self.running.remove(&token) {
            return self.orphan_done(name, answer);
        }
        match &answer {
            Answer::Aborted => self.report.aborted += 1,
            Answer::Panicked(_) => self.report.panicked += 1,
            Answer::Result { .. } => {}
            Answer::Refused(_) | Answer::Unfit(_)
                if self.habits.may_refuse || self.habits.forget > 0 => {}
            Answer::Refused(why) => panic!("the other pool refused a job: {why}"),
            Answer::Unfit(unfit) => panic!("the other pool refused a job: {}", unfit.why),
        }
        let Habits { late, .. } = self.habits;
        if late > 0 && self.rng.below(100) < late {
            let until = poll.saturating_add(self.rng.below(200));
            self.late.push((token, answer, until));
        } else {
            self.deliver_done(token, answer);
        }
    }

    /// Delivers what the other pool has made of a job. True if it was wanted.
    fn deliver_done(&mut self, token: DepartureId, answer: Answer) -> bool {
        let undone = matches!(answer, Answer::Refused(_) | Answer::Unfit(_));
        let wanted = self.deliver(token, answer);
        if wanted {
            *if undone {
                &mut self.report.returned
            } else {
                &mut self.report.travelled
            } += 1;
        }
        wanted
    }

    fn claimed(&mut self, token: DepartureId, parcel: &Parcel) {
        assert!(parcel.history.marked, "only marked jobs claim");
        let name = parcel.name();
        let Some(orphan) = self.orphans.get_mut(&name) else {
            return self.withdraw(token); // it has just been given up
        };
        if self.rng.below(4) == 0 {
            self.withdraw(token);
        } else if let Some(answer) = orphan.answer.clone() {
            self.answer_claim(token, answer);
        } else {
            orphan.claims.push(token);
        }
    }

    fn orphan_done(&mut self, name: JobName, answer: Answer) {
        if matches!(answer, Answer::Refused(_) | Answer::Unfit(_)) {
            return self.orphan_gone(&name);
        }
        let orphan = self.orphans.entry(name).or_default();
        let claims = std::mem::take(&mut orphan.claims);
        orphan.answer = Some(answer.clone());
        for claim in claims {
            self.answer_claim(claim, answer.clone());
        }
    }

    /// A run of it has ended without a result; perhaps it is not the only one.
    fn orphan_gone(&mut self, name: &JobName) {
        let mut others = self.running.values();
        let orphan = &self.orphans[name];
        if orphan.answer.is_none() && others.all(|(other, _)| other != name) {
            self.a.gate().orphan(OrphanNews::Gone(name.clone()));
            let orphan = self.orphans.remove(name);
            for claim in orphan.map_or(vec![], |orphan| orphan.claims) {
                self.withdraw(claim);
            }
        }
    }

    /// The other pool has given a job up, but this is left of it.
    fn saved(&mut self, token: DepartureId, saved: Vec<Saved>) {
        assert!(self.hosted.remove(&token), "done twice");
        let (name, _) = self.running.remove(&token).expect("it is an orphan");
        for saved in saved {
            self.report.saved += 1;
            let id = &saved.name.id;
            assert!(name.id.is_ancestor_of(id) && *id != name.id);
            let here = OrphanNews::Here(saved.name.clone());
            self.a.gate().orphan(here);
            // It may be claimed already: it was an orphan itself.
            self.orphan_done(saved.name, saved.answer);
        }
        self.orphan_gone(&name);
    }

    fn answer_claim(&mut self, token: DepartureId, answer: Answer) {
        if self.deliver(token, answer) {
            self.report.claimed += 1;
        }
    }

    fn withdraw(&mut self, token: DepartureId) {
        let history = History {
            marked: true,
            crashes: 1,
        };
        let back = Back {
            history,
            at_once: true,
            held: false,
            stays: false,
        };
        if !self.a.gate().put_back(token, back) {
            self.unwanted.insert(token);
        }
    }

    /// The other pool runs the job, and so does the first.
    fn orphan(&mut self, token: DepartureId, parcel: Parcel, poll: u64) {
        let name = parcel.name();
        self.a.gate().orphan(OrphanNews::Here(name.clone()));
        // Sometimes those who do it again do not know yet that there is nothing else.
        let settled = self.rng.below(2) == 0;
        self.a.gate().orphan(OrphanNews::Settled(settled));
        self.orphans.entry(name.clone()).or_default();
        let give_up = match self.rng.below(2) {
            0 => poll.saturating_add(self.rng.below(200)),
            _ => u64::MAX,
        };
        self.running.insert(token, (name, give_up));
        self.hosted.insert(token);
        self.b.gate().host(hosted_as(token), parcel.clone());
        let history = History {
            marked: true,
            crashes: parcel.history.crashes + 1,
        };
        let back = Back {
            history,
            at_once: self.rng.below(2) == 0,
            held: false,
            stays: false,
        };
        if !self.a.gate().put_back(token, back) {
            self.unwanted.insert(token);
        }
    }

    fn deliver(&mut self, token: DepartureId, answer: Answer) -> bool {
        // Over the wire and back.
        let answer: Answer = postcard::from_bytes(&postcard::to_stdvec(&answer).unwrap()).unwrap();
        let wanted = self.a.gate().deliver(token, answer.clone());
        assert!(!self.a.gate().deliver(token, answer), "answered twice");
        if !wanted {
            self.unwanted.insert(token);
        }
        wanted
    }

    fn bring_back(&mut self, token: DepartureId) {
        if self.a.gate().put_back(token, Back::default()) {
            self.report.returned += 1;
        } else {
            self.unwanted.insert(token);
        }
    }

    fn fetch(&mut self, poll: u64) -> bool {
        let most = if self.habits.most == 0 {
            4
        } else {
            self.habits.most
        };
        if self.hosted.len() + self.kept.len() >= most {
            return false;
        }
        let Some(Taken::Own(token, parcel)) = self.a.gate().take(1).jobs.pop() else {
            return false;
        };
        // Over the wire.
        let sent = postcard::to_stdvec(&parcel).unwrap();
        let parcel: Parcel = postcard::from_bytes(&sent).unwrap();
        let Parcel {
            id,
            function,
            arguments,
            fingerprint,
            needs,
            lent,
            ..
        } = &parcel;
        // Both pools have one store. What is not there is a part of a result that is gone.
        if !(needs.iter()).all(|name| satin::data::store().contains(*name)) {
            assert!(self.habits.forget > 0);
            let refused = self.deliver(token, Answer::refused("data are gone"));
            self.report.returned += usize::from(refused);
            return true;
        }
        let function = by_number(*function).expect("a function");
        let name = function.info.name;
        assert_eq!(
            *fingerprint,
            Fingerprint::of(name, arguments).within(parcel.root)
        );
        self.report.taken.push(Departed {
            id: id.clone(),
            function: name,
            fingerprint: *fingerprint,
            arguments: arguments.to_vec(),
            borrows: !lent.is_empty(),
        });
        if self.report.taken.len() == self.habits.wanted {
            self.waits = None;
        }
        self.watch.taken.fetch_add(1, SeqCst);
        let Habits {
            put_back,
            refuse,
            lose,
            hoard,
            orphan,
            ..
        } = self.habits;
        let dice = self.rng.below(100);
        if dice < put_back {
            self.bring_back(token);
        } else if dice < put_back + refuse {
            let refused = self.deliver(token, Answer::Refused("no room".into()));
            self.report.returned += usize::from(refused);
        } else if dice < put_back + refuse + lose {
            self.kept
                .push((token, poll.saturating_add(self.rng.below(200))));
        } else if dice < put_back + refuse + lose + hoard {
            self.kept.push((token, u64::MAX));
        } else if dice < put_back + refuse + lose + hoard + orphan {
            self.orphan(token, parcel, poll);
        } else {
            self.hosted.insert(token);
            self.b.gate().host(hosted_as(token), parcel);
        }
        true
    }
}

/// Ends the process if a test hangs.
pub struct Watchdog {
    _end: mpsc::Sender<()>,
}

impl Watchdog {
    pub fn new(name: impl std::fmt::Display + Send + 'static) -> Watchdog {
        let (end, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Past the capture of a test's output, which an abort would lose.
                let _ = writeln!(std::io::stderr(), "{name} hangs");
                std::process::abort();
            }
        });
        Watchdog { _end: end }
    }
}
