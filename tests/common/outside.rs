//! Standing outside the gate of a pool: what is told there, and hands to take and bring jobs.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use satin::{
    Satin,
    job::{
        Answer, DepartureId, Fingerprint, History, HostedId, JobId, JobName, Offer, Parcel, Recall,
        RootRun, RootTag, Saved, Taken, VTable,
        codec::{self, Effort},
        number_of, registered,
    },
    spawn, spawnable, sync,
    worker::{Gate, Haul, Outside},
};
use serde::Serialize;

use super::{PATIENCE, wait_for};

/// A pool that keeps the result of each job that it looks at, however short.
pub fn pool(threads: usize) -> Satin {
    satin::builder()
        .threads(threads)
        .stack(16)
        .store_grain(Duration::ZERO)
        .build()
        .expect("a pool")
}

/// Counters that jobs raise and wait for.
static FLAGS: [AtomicU32; 512] = [const { AtomicU32::new(0) }; 512];

/// Some that nobody else uses.
pub fn flags<const N: usize>() -> [usize; N] {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let first = NEXT.fetch_add(N, SeqCst);
    std::array::from_fn(|place| first + place)
}

pub fn raise(flag: usize) {
    FLAGS[flag].fetch_add(1, SeqCst);
}

pub fn raised(flag: usize) -> u32 {
    FLAGS[flag].load(SeqCst)
}

pub fn await_flag(flag: usize) {
    wait_for("a flag", || raised(flag) > 0);
}

/// Spawns `children` that raise `ran` and return their number; says so at `ready`, and goes on at `on`.
#[spawnable]
pub fn family(children: u32, ready: usize, on: usize, ran: usize) -> u32 {
    let mut sum = 0;
    for child in 0..children {
        sum += spawn!(unit(child, ran));
    }
    raise(ready);
    await_flag(on);
    sync!();
    sum
}

/// See [`family`].
#[spawnable]
pub fn unit(number: u32, ran: usize) -> u32 {
    raise(ran);
    number
}

/// Keeps a worker busy from `begun` to `until`.
#[spawnable]
pub fn hold(begun: usize, until: usize) -> u32 {
    raise(begun);
    await_flag(until);
    1
}

#[derive(Debug, PartialEq)]
pub enum Told {
    Idle(u32),
    Public,
    Took(Vec<(DepartureId, Parcel)>),
    Done(HostedId, Answer),
    Recalled(DepartureId, Recall),
    Claimed(DepartureId, Parcel),
    Held(Vec<JobName>),
    Repaired(JobId),
    Saved(HostedId, Vec<Saved>),
    Result(RootTag, Saved),
    Yielded(Vec<Saved>),
    Started(RootTag),
    Finished(RootTag),
}

struct Ear(mpsc::Sender<Told>);

impl Ear {
    fn tell(&self, told: Told) {
        // Nobody listens any more if the test is over.
        let _ = self.0.send(told);
    }
}

impl Outside for Ear {
    fn idle(&self, workers: u32) {
        self.tell(Told::Idle(workers));
    }
    fn public(&self) {
        self.tell(Told::Public);
    }
    fn took(&self, _: u64, haul: Haul) {
        self.tell(Told::Took(own(haul)));
    }
    fn done(&self, key: HostedId, answer: Answer) {
        self.tell(Told::Done(key, answer));
    }
    fn recalled(&self, token: DepartureId, why: Recall) {
        self.tell(Told::Recalled(token, why));
    }
    fn claimed(&self, token: DepartureId, parcel: Parcel) {
        self.tell(Told::Claimed(token, parcel));
    }
    fn held(&self, jobs: Vec<JobName>) {
        self.tell(Told::Held(jobs));
    }
    fn repaired(&self, job: JobId) {
        self.tell(Told::Repaired(job));
    }
    fn saved(&self, key: HostedId, saved: Vec<Saved>) {
        self.tell(Told::Saved(key, saved));
    }
    fn root_result(&self, root: RootTag, saved: Saved, _: Duration) {
        self.tell(Told::Result(root, saved));
    }
    fn yielded(&self, saved: Vec<Saved>) {
        self.tell(Told::Yielded(saved));
    }
    fn offered(&self, _: Offer) {
        unreachable!("no test offers");
    }
    fn root_started(&self, root: RootRun) {
        self.tell(Told::Started(root.tag()));
    }
    fn root_finished(&self, root: RootRun) {
        self.tell(Told::Finished(root.tag()));
    }
}

pub fn listen(pool: &Satin) -> mpsc::Receiver<Told> {
    let (tell, told) = mpsc::channel();
    pool.gate().listen(Arc::new(Ear(tell)));
    pool.gate().harvest();
    told
}

/// The next thing of that kind that is told.
pub fn hear<T>(told: &mpsc::Receiver<Told>, wanted: impl Fn(&Told) -> Option<T>) -> T {
    loop {
        let next = told.recv_timeout(PATIENCE).expect("something is told");
        if let Some(found) = wanted(&next) {
            return found;
        }
    }
}

pub fn done(told: &mpsc::Receiver<Told>) -> (HostedId, Answer) {
    hear(told, |told| match told {
        Told::Done(key, answer) => Some((*key, answer.clone())),
        _ => None,
    })
}

/// The next time that so many jobs are held.
pub fn held(told: &mpsc::Receiver<Told>, jobs: usize) -> Vec<JobName> {
    hear(told, |told| match told {
        Told::Held(held) if held.len() == jobs => Some(held.clone()),
        _ => None,
    })
}

pub fn claimed(told: &mpsc::Receiver<Told>) -> (DepartureId, Parcel) {
    hear(told, |told| match told {
        Told::Claimed(token, parcel) => Some((*token, parcel.clone())),
        _ => None,
    })
}

pub fn own(haul: Haul) -> Vec<(DepartureId, Parcel)> {
    let jobs = haul.jobs.into_iter().map(|job| match job {
        Taken::Own(token, parcel) => (token, parcel),
        Taken::Hosted(key, _) => panic!("{key:?} is a hosted job"),
    });
    jobs.collect()
}

pub fn ids(jobs: &[(DepartureId, Parcel)]) -> Vec<String> {
    jobs.iter()
        .map(|(_, parcel)| parcel.id.to_string())
        .collect()
}

/// Takes until there is something.
pub fn take(gate: &Gate, most: u32) -> Haul {
    let since = Instant::now();
    loop {
        let haul = gate.take(most);
        if !haul.jobs.is_empty() {
            return haul;
        }
        assert!(since.elapsed() < PATIENCE, "no job");
        std::thread::yield_now();
    }
}

/// The departures of so many jobs, in the order in which they were taken.
pub fn departures(gate: &Gate, count: usize) -> Vec<DepartureId> {
    let mut departures = Vec::new();
    while departures.len() < count {
        let more = own(take(gate, count as u32));
        departures.extend(more.iter().map(|(departure, _)| *departure));
    }
    departures
}

/// Hears of two jobs that are recalled: which, and why, in the order of their departures.
pub fn two_recalled(told: &mpsc::Receiver<Told>) -> [(DepartureId, Recall); 2] {
    let recalled = |_| {
        hear(told, |told| match told {
            Told::Recalled(departure, why) => Some((*departure, *why)),
            _ => None,
        })
    };
    let mut both = [0, 1].map(recalled);
    both.sort_by_key(|(departure, _)| *departure);
    both
}

/// A value as it stands in the arguments of a job that borrows it.
pub fn borrowed<T: Serialize>(value: T) -> impl Serialize {
    (0_u8, value)
}

/// Arguments or a result as a vtable writes them.
pub fn written(value: &impl Serialize) -> Vec<u8> {
    codec::write("writing", value, Effort::ANY).expect("bytes")
}

/// A result as the function's vtable writes it: the arguments, none of them `&mut`, add nothing.
pub fn answer(result: u32) -> Answer {
    Answer::result(written(&result).into(), vec![])
}

/// Runs `outside` while `program` runs on the pool.
pub fn during<R: Send>(
    pool: &Satin,
    program: impl FnOnce() -> R + Send,
    outside: impl FnOnce(&Gate),
) -> R {
    let gate = pool.gate();
    std::thread::scope(|scope| {
        let program = scope.spawn(|| pool.run(program));
        outside(&gate);
        program.join().expect("the program does not panic")
    })
}

fn registered_as(function: &str) -> &'static VTable {
    let path = format!("::{function}");
    let mut all = registered()
        .iter()
        .filter(|(name, _)| name.ends_with(&path));
    let (_, vtable) = all.next().expect("a function");
    assert!(all.next().is_none(), "two functions are called {function}");
    vtable
}

/// What a job changes, as it stands in its arguments.
#[derive(serde::Serialize)]
pub enum Changed<T> {
    Here(T),
}

/// What a call of that function computes.
pub fn fingerprint(function: &str, arguments: &impl Serialize) -> Fingerprint {
    Fingerprint::of(registered_as(function).info.name, &written(arguments))
}

/// A call of that function, as it travels.
pub fn parcel(id: JobId, function: &str, arguments: &impl Serialize) -> Parcel {
    Parcel {
        id,
        function: number_of(registered_as(function)).expect("a number"),
        arguments: written(arguments).into(),
        fingerprint: fingerprint(function, arguments),
        needs: vec![],
        lent: vec![],
        keeps: false,
        owner: 0,
        term: 0,
        root: Fingerprint(0),
        history: History::default(),
    }
}
