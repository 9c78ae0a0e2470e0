//! Samples of what the workers of a pool do, taken while somebody looks: a thread reads a byte of each worker now and then. Nothing is
//! taken, and no thread runs, while nobody looks.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    job::{
        HostedId,
        occupation::{Activity, Sighting},
    },
    observe::{
        arrows::{Arrows, ComingJob},
        events::{Record, unix_ms},
        log,
        timeline::{News, Timeline},
    },
    worker::PoolWatch,
};

/// The time from one sample to the next, for each worker. Too short: pools of many workers have spans that fill a network. Too
/// long: short jobs are not seen.
const PER_WORKER: Duration = Duration::from_millis(1);

/// The shortest time from one sample to the next. Too short: samples take time from workers. Too long: short jobs are not seen.
const SHORTEST: Duration = Duration::from_millis(10);

/// Nobody has looked for so long: no more samples are taken. Too short: gaps between two looks. Too long: samples that nobody sees.
const FORGOTTEN: Duration = Duration::from_secs(5);

const NEAR: u8 = 1;
const FAR: u8 = 2;

/// Takes samples of one pool.
#[derive(Clone)]
pub(crate) struct Sampler(Arc<SamplerState>);

struct SamplerState {
    watch: PoolWatch,
    arrows: Arc<Arrows>,
    timeline: Mutex<Timeline>,
    /// When somebody looked last; `None` while no samples are taken.
    looked: Mutex<Option<Instant>>,
    /// Which requests for work are under way.
    asking: AtomicU8,
}

impl Sampler {
    pub(crate) fn new(watch: PoolWatch) -> Sampler {
        Sampler(Arc::new(SamplerState {
            arrows: watch.arrows().unwrap_or_default(),
            watch,
            timeline: Mutex::default(),
            looked: Mutex::new(None),
            asking: AtomicU8::new(0),
        }))
    }

    /// Requests for work to nodes of this site, and of others, are under way.
    pub(crate) fn asking(&self, near: bool, far: bool) {
        let asking = if near { NEAR } else { 0 } | if far { FAR } else { 0 };
        self.0.asking.store(asking, Ordering::Relaxed);
    }

    /// Notes what happened, for those who look later.
    pub(crate) fn happened(&self, record: Record) {
        lock(&self.0.timeline).happened(record);
    }

    /// The workers are about to get that job of another node. `job` is called if somebody looks.
    pub(crate) fn comes(&self, key: HostedId, job: impl FnOnce() -> Option<ComingJob>) {
        if self.0.arrows.is_watched()
            && let Some(job) = job()
        {
            self.0.arrows.comes(key, job);
        }
    }

    /// What became known from that place on. Samples are taken from the first look on.
    pub(crate) fn look(&self, since: u64) -> News {
        let before = lock(&self.0.looked).replace(Instant::now());
        if before.is_none() {
            self.0.arrows.watch(true);
            self.sample();
            let sampler = self.clone();
            let thread = std::thread::Builder::new().name("satin-sampler".into());
            if let Err(error) = log::spawn(thread, move || while sampler.goes_on() {}) {
                *lock(&self.0.looked) = None;
                self.0.arrows.watch(false);
                tracing::warn!(
                    "cannot start a thread ({error}): nobody sees what the workers of this node do"
                );
            }
        }
        let mut timeline = lock(&self.0.timeline);
        for arrow in self.0.arrows.take() {
            timeline.arrow(arrow);
        }
        timeline.news(since, unix_ms())
    }

    /// What each worker does at this moment.
    pub(crate) fn activities(&self) -> Vec<Activity> {
        self.see().iter().map(|seen| seen.activity).collect()
    }

    fn see(&self) -> Vec<Sighting> {
        let mut all = self.0.watch.see().unwrap_or_default();
        let asking = self.0.asking.load(Ordering::Relaxed);
        for seen in &mut all {
            seen.activity = match seen.activity {
                Activity::Idle if asking & NEAR != 0 => Activity::StealNear,
                Activity::Idle if asking & FAR != 0 => Activity::StealFar,
                activity => activity,
            };
        }
        all
    }

    fn sample(&self) {
        let seen = self.see();
        lock(&self.0.timeline).sample(unix_ms(), &seen);
    }

    /// Takes a sample after a while; false when nobody looks any more, or the pool has ended.
    fn goes_on(&self) -> bool {
        let workers = lock(&self.0.timeline).workers() as u32;
        std::thread::sleep((PER_WORKER * workers).max(SHORTEST));
        let mut looked = lock(&self.0.looked);
        if looked.is_none_or(|looked| looked.elapsed() > FORGOTTEN) || self.0.watch.is_over() {
            *looked = None;
            self.0.arrows.watch(false);
            return false;
        }
        drop(looked);
        self.sample();
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
