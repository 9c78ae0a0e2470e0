//! Whether a job is worth the way to another node, and back. See README.md beside this file.

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::super::{
    Judgement, Peer,
    books::{HeldNames, lacking},
};
use crate::job::{
    JobCost, JobLoad, JobSample, JobShape, JobTrip, ValueName, ValueSize, Wants, function::stays,
};

/// Bytes, there and back, that cost next to nothing beside the messages, if the arguments say nothing of the work. Too small: work of irregular
/// trees, whose jobs are mostly tiny and now and then huge, is kept at home. Too large: small jobs with much data make the pool slow.
const FREE: f64 = 16e3;

/// The most bytes, there and back, that are risked for a function, or over a link, of which nothing is known. Too small:
/// there may be no such job. Too large: the first theft is a loss that shows.
const RISK: f64 = 64e3;

/// The part of a job's time that its way may take. Too small: jobs stay although others could do them. Too large: a job
/// of which too much is thought makes the pool slower than one node.
const SHARE: f64 = 0.5;

/// The same of a task whose large results stay where it runs: what moves there is of use to the tasks after it. Too small: tasks stay,
/// and all their data with them. Too large: nodes wait for data longer than they compute. (`satin-sim dag` tells.)
const SHARE_IF_KEPT: f64 = 2.0;

/// A job may leave if its way takes no more than this part of the time in which no job of its function has ended, although one waits:
/// whatever is known of the function, or not. Too small: a program of few long jobs stays on one node. Too large: see [`SHARE`].
const SHARE_OF_SILENCE: f64 = 0.1;

/// Values may move to a node that lacks them if their way takes no more than this part of the time for which jobs have mentioned
/// them: that long, it is thought, jobs will go on to do so. Too small: the jobs stay that many nodes could do. Too large: a
/// program that ends soon waits for values that were of no use to it.
const SHARE_OF_USE: f64 = 0.25;

/// The rate, in bytes a second, that a link is thought to have for values in use as long as it has not been measured: some cannot
/// be tried. Too small: values stay. Too large: many bytes move over a link that turns out to be slow.
const UNMEASURED: f64 = 1e6;

/// A value that no job has mentioned for so long is new when one does again. Too short: a program that has pauses waits with each
/// phase anew. Too long: what lies between two phases counts as use.
const UNUSED: Duration = Duration::from_secs(20);

/// The number of values of which it is known since when jobs mention them. Too small: values are taken for new, and stay. Too large:
/// memory.
const MOST_USES: usize = 1024;

/// Arguments of at least so many bytes tell how much work there is; of smaller ones the depth in the tree does.
const TELLING: u64 = 4 << 10;

/// The seconds that reading and writing a byte take, at both ends together.
const CODEC: f64 = 2e-9;

/// The seconds that reading and writing a part takes: an item, a string, a box. 64 bytes of numbers count as a part, so that this is
/// [`CODEC`] for them. Too small: maps and strings are carried about for longer than they take here. Too large: they stay.
const PART: f64 = 64.0 * CODEC;

/// The weight of the newest sample. Too small: a program's next phase is judged by the one before. Too large: chance decides.
const NEWEST: f64 = 0.25;

/// A rate that has not been measured for so long is measured again before it counts. Too short: bytes are sent for nothing. Too long:
/// a link that was busy once is avoided for long.
const STALE: Duration = Duration::from_secs(20);

/// Deeper jobs are taken for jobs of this depth. Too small: large and small jobs are one. Too large: deep trees are long in being
/// judged.
const DEEPEST: u16 = 64;

/// No link is faster, in bytes a second.
const FASTEST: f64 = 2e10;

/// The wait of a lifeline after a refusal, or this part of its round trip if that is longer; it doubles with each further one. Too
/// short: workers are asked in vain. Too long: work that has become worth it is found late.
const PAUSE: Duration = Duration::from_millis(1);

/// See [`PAUSE`].
const PAUSE_FAR: f64 = 0.25;

/// The longest such wait. Too short: see [`PAUSE`]; too long as well.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// For each job that was not worth the way to a node, no job is looked at for that node for so long: such a job is taken from its
/// owner, who may be about to run it, and comes back by a slower way. Too short: that costs the owners more than a hundredth of their
/// time. Too long: work that is worth it is found late.
const REST: Duration = Duration::from_millis(1);

/// The bytes that are sent to find out the rate of a link.
pub(super) const TRIAL: usize = 512 << 10;

/// A trial that was not answered for so long is made again.
const TRIAL_AGAIN: Duration = Duration::from_secs(10);

/// What a function's jobs took that looked alike.
#[derive(Clone, Copy, PartialEq, Debug)]
struct RunningMean {
    /// Bytes of the arguments.
    bytes: f64,
    /// Seconds.
    took: f64,
    /// Bytes of the result and of changed arguments.
    back: f64,
}

impl RunningMean {
    fn learn(&mut self, newest: RunningMean) {
        for (mean, newest) in [
            (&mut self.bytes, newest.bytes),
            (&mut self.took, newest.took),
            (&mut self.back, newest.back),
        ] {
            *mean += NEWEST * (newest - *mean);
        }
    }
}

/// How a quantity grows from one place to the next, as far as places lie beyond what was seen: logarithms.
struct Growth {
    /// Towards lower places.
    down: RangeInclusive<f64>,
    /// Towards higher ones.
    up: RangeInclusive<f64>,
    /// If one place was seen only.
    usual: f64,
}

const LN_2: f64 = std::f64::consts::LN_2;

/// Time by the logarithm of the size to the base of two. It grows with the size, and at least as fast when jobs get smaller:
/// what is not known is thought to be less.
const BY_SIZE: Growth = Growth {
    down: LN_2..=1.5 * LN_2,
    up: 0.0..=LN_2,
    usual: LN_2,
};

/// Jobs that are larger than all that were seen, by so much, may take more than in proportion, as products of matrices do: as much more as
/// the sizes below say. A logarithm: four times as large. Too small: the largest jobs stay until one of them has been done. Too
/// large: a wrong slope says that short jobs are long.
const NEXT_LARGER: f64 = 2.0;

/// The sizes that tell that slope are so far apart at least: a logarithm. Too small: chance decides. Too large: there are none.
const FAR_APART: f64 = 1.5;

/// The steepest such slope: products of matrices take time by the power 1.5 of their size.
const STEEPEST: f64 = 1.5 * LN_2;

/// Time and bytes by depth: a level halves them, as a rule.
const BY_DEPTH: Growth = Growth {
    down: -2.0 * LN_2..=0.0,
    up: -4.0 * LN_2..=0.0,
    usual: -LN_2,
};

/// The value at `x` of what was seen at `points`, in their order.
fn at(points: &[(f64, f64)], x: f64, growth: &Growth) -> Option<f64> {
    let after = points.partition_point(|(place, _)| *place < x);
    let slope = |a: (f64, f64), b: (f64, f64)| (b.1 - a.1) / (b.0 - a.0).max(1e-9);
    let (from, slope) = match (after.checked_sub(1).map(|at| points[at]), points.get(after)) {
        (None, None) => return None,
        (Some(low), Some(high)) => (low, slope(low, *high)),
        (None, Some(first)) => {
            let slope = points
                .get(1)
                .map_or(growth.usual, |next| slope(*first, *next));
            (
                *first,
                slope.clamp(*growth.down.start(), *growth.down.end()),
            )
        }
        (Some(last), None) => {
            let before = points.len().checked_sub(2).map(|at| points[at]);
            let slope = before.map_or(growth.usual, |before| slope(before, last));
            (last, slope.clamp(*growth.up.start(), *growth.up.end()))
        }
    };
    Some(from.1 + slope * (x - from.0))
}

/// The logarithm of the time at the logarithm of a size, from times that were seen.
fn by_size(points: &[(f64, f64)], size: f64) -> Option<f64> {
    let known = at(points, size, &BY_SIZE)?;
    let &(largest, time) = points.last()?;
    let apart = |&&(size, _): &&(f64, f64)| largest - size >= FAR_APART;
    let Some((smaller, its_time)) = points.iter().rev().find(apart) else {
        return Some(known);
    };
    let slope = ((time - its_time) / (largest - smaller)).min(STEEPEST);
    let beyond = (size - largest).clamp(0.0, NEXT_LARGER);
    Some(known + (slope - LN_2).max(0.0) * beyond)
}

/// What is known of a function.
#[derive(Clone, PartialEq, Default, Debug)]
struct FunctionCosts {
    /// By the logarithm of the bytes of the arguments, where they tell.
    by_size: BTreeMap<u16, RunningMean>,
    /// By depth, where they do not.
    by_depth: BTreeMap<u16, RunningMean>,
    /// By depth, where they have too many parts to be measured: of the bytes lower bounds are known.
    of_many_parts: BTreeMap<u16, RunningMean>,
    /// Since when a job of it waits, and none has ended.
    silent_since: Option<Duration>,
}

impl FunctionCosts {
    fn learn(&mut self, sample: &JobSample) {
        self.silent_since = None;
        let JobSample { shape, took, back } = sample;
        let newest = RunningMean {
            bytes: shape.bytes as f64,
            took: took.as_secs_f64().max(1e-9),
            back: *back as f64,
        };
        let depth = shape.depth.min(DEEPEST);
        let means = match shape.bytes >= TELLING {
            _ if shape.is_more => self.of_many_parts.entry(depth),
            true => self.by_size.entry(shape.bytes.ilog2() as u16),
            false => self.by_depth.entry(depth),
        };
        let is_known = |mean: &mut RunningMean| mean.learn(newest);
        means.and_modify(is_known).or_insert(newest);
    }

    /// The seconds that a job takes, and the bytes that come back; `None` if nothing is known.
    fn of(&self, shape: &JobShape) -> Option<(f64, f64)> {
        if shape.bytes < TELLING && !shape.is_more {
            return by_depth(&self.by_depth, shape);
        }
        let of_many_parts = by_depth(&self.of_many_parts, shape);
        if shape.is_more && of_many_parts.is_some() {
            return of_many_parts;
        }
        let Some(known) = self.of_size(shape) else {
            return of_many_parts;
        };
        // Beyond the sizes that were seen the depth may know better: less, to be cautious.
        let largest = self.by_size.last_key_value();
        let is_beyond = largest.is_none_or(|(_, mean)| mean.bytes < shape.bytes as f64);
        Some(match of_many_parts {
            Some((took, back)) if is_beyond => (took.min(known.0), back.max(known.1)),
            _ => known,
        })
    }

    /// The same, by the size of the arguments.
    fn of_size(&self, shape: &JobShape) -> Option<(f64, f64)> {
        let means: Vec<&RunningMean> = self.by_size.values().collect();
        let points: Vec<(f64, f64)> = (means.iter())
            .map(|mean| (mean.bytes.log2(), mean.took.ln()))
            .collect();
        let bytes = shape.bytes as f64;
        let took = by_size(&points, bytes.log2())?.exp();
        let off = |mean: &RunningMean| (mean.bytes / bytes).ln().abs();
        let nearest = means.into_iter().min_by(|a, b| off(a).total_cmp(&off(b)))?;
        Some((took, nearest.back / nearest.bytes * bytes))
    }
}

/// The same, by the depth of the job.
fn by_depth(means: &BTreeMap<u16, RunningMean>, shape: &JobShape) -> Option<(f64, f64)> {
    let of = |quantity: fn(&RunningMean) -> f64| -> Option<f64> {
        let points: Vec<(f64, f64)> = (means.iter())
            .map(|(depth, mean)| (f64::from(*depth), quantity(mean).max(1e-9).ln()))
            .collect();
        at(&points, f64::from(shape.depth.min(DEEPEST)), &BY_DEPTH).map(f64::exp)
    };
    Some((of(|mean| mean.took)?, of(|mean| mean.back)?))
}

/// What is known of all functions, by their numbers.
type Functions = BTreeMap<u32, FunctionCosts>;

/// The link to a peer.
#[derive(Clone, Copy, Debug, Default)]
struct LinkModel {
    /// Bytes a second, and when that was measured.
    rate: Option<(f64, Duration)>,
    /// When bytes were sent to find it out.
    tried: Option<Duration>,
    /// Refusals in a row.
    refusals: u32,
    /// No job is looked at for that peer before.
    rests_until: Duration,
}

/// For how long jobs have mentioned a value.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Use {
    since: Duration,
    last: Duration,
}

/// The use of all values of which it is known.
type Uses = BTreeMap<ValueName, Use>;

/// What a job must fulfil to leave for one thief, at one moment. By default nothing is known.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Terms {
    judgement: Judgement,
    functions: Arc<Functions>,
    uses: Arc<Uses>,
    /// The values that need not move there.
    at_hand: Vec<HeldNames>,
    now: Duration,
    /// The number of the thief's node.
    to: u128,
    /// What it is to get, of what is worth its way.
    wants: Wants,
    link: LinkSpeed,
}

/// What a link does, as far as that is known.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct LinkSpeed {
    /// The round trip, in seconds.
    round_trip: f64,
    /// Bytes a second.
    rate: Option<f64>,
}

impl LinkSpeed {
    /// The seconds that so many bytes take at that rate.
    fn way_at(self, moved: f64, rate: f64) -> f64 {
        self.round_trip + moved * (1.0 / rate + CODEC)
    }

    /// The seconds that so many bytes take, if little is thought of a link of which nothing is known.
    fn way(self, moved: f64) -> f64 {
        match self.rate {
            Some(rate) => self.way_at(moved, rate),
            None if moved <= RISK => self.round_trip,
            None => self.way_at(moved - RISK, UNMEASURED),
        }
    }
}

/// What jobs cost here and elsewhere, as far as that is known.
#[derive(Clone, Debug)]
pub struct JobCosts {
    functions: Arc<Functions>,
    /// Bytes a second to nodes, by their numbers.
    rates: BTreeMap<u128, f64>,
}

impl JobCosts {
    /// What a job of that shape costs that has gone that way.
    #[must_use]
    pub fn of(&self, shape: &JobShape, trip: &JobTrip) -> Option<JobCost> {
        let (took, back) = self.functions.get(&shape.function)?.of(shape)?;
        let link = LinkSpeed {
            round_trip: trip.round_trip.as_secs_f64(),
            rate: self.rates.get(&trip.to).copied(),
        };
        let way = link.way(trip.there as f64 + comes_home(shape, took, back));
        Some(JobCost {
            took: Duration::try_from_secs_f64(took).ok()?,
            way: Duration::try_from_secs_f64(way).unwrap_or(Duration::MAX),
        })
    }
}

/// The seconds that reading and writing so many bytes takes more because of the parts of which such a job's arguments consist. What comes
/// back is thought to be alike.
fn codec_of_parts(load: &JobLoad, moved: f64) -> f64 {
    let bytes = load.shape.bytes as f64;
    (load.parts as f64 * PART - bytes * CODEC).max(0.0) * moved / bytes.max(1.0)
}

/// What comes home of so many bytes which a job gives that took so many seconds: large results of a task stay where it ran.
fn comes_home(shape: &JobShape, took: f64, back: f64) -> f64 {
    let took = Duration::try_from_secs_f64(took).unwrap_or(Duration::MAX);
    match shape.keeps && stays(back as u64, took) {
        true => 0.0,
        false => back,
    }
}

impl Terms {
    /// For a thief that has these values at hand.
    pub(super) fn with_at_hand(self, at_hand: Vec<HeldNames>) -> Terms {
        Terms { at_hand, ..self }
    }

    /// For a thief that is to get that.
    pub(super) fn with_wants(self, wants: Wants) -> Terms {
        Terms { wants, ..self }
    }

    /// Is that job worth the way?
    #[must_use]
    pub fn accept(&self, load: &JobLoad) -> bool {
        if self.judgement == Judgement::Always {
            return true;
        }
        let shape = &load.shape;
        let values = self.values_for_it_alone(load);
        let costs = self.functions.get(&shape.function);
        let since = costs.and_then(|costs| costs.silent_since);
        // Whatever was thought of the function: for so long none of its jobs has ended.
        let waits = since.map_or(0.0, |since| self.now.saturating_sub(since).as_secs_f64());
        let Some((took, back)) = costs.and_then(|costs| costs.of(shape)) else {
            // As much may come back.
            let moved = 2.0 * shape.own_bytes() as f64 + values;
            return moved <= RISK || self.way(moved) <= SHARE_OF_SILENCE * waits;
        };
        // What it makes of data that have to move there will be needed where they are now, most likely.
        let at_home = self.part_at_home(load);
        let stays = comes_home(shape, took, back) < back;
        let back = if stays { back * at_home } else { back };
        let share = if shape.keeps { SHARE_IF_KEPT } else { SHARE };
        let moved = shape.own_bytes() as f64 + back + values;
        // Where the arguments tell how little there is to do, it stays.
        let is_free = moved <= FREE && shape.bytes < TELLING;
        let way = self.way(moved) + codec_of_parts(load, shape.own_bytes() as f64 + back);
        is_free || way <= (share * took).max(SHARE_OF_SILENCE * waits)
    }

    /// The part of the data that the job borrows which is not at the thief; all, if it borrows none.
    fn part_at_home(&self, load: &JobLoad) -> f64 {
        match load.shape.lent {
            0 => 1.0,
            lent => (lacking(&load.values, &self.at_hand) as f64 / lent as f64).min(1.0),
        }
    }

    /// The bytes of these values that are not at the thief.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn lacking(&self, values: &[ValueSize]) -> u64 {
        lacking(values, &self.at_hand)
    }

    /// What the thief is to get, of what is worth its way.
    #[must_use]
    pub fn wants(&self) -> Wants {
        self.wants
    }

    /// The number of the thief's node.
    #[must_use]
    pub fn thief(&self) -> u128 {
        self.to
    }

    /// The way of such a job to the thief.
    #[must_use]
    pub fn trip(&self, load: &JobLoad) -> JobTrip {
        JobTrip {
            to: self.to,
            round_trip: Duration::try_from_secs_f64(self.link.round_trip).unwrap_or(Duration::MAX),
            there: load
                .shape
                .own_bytes()
                .saturating_add(lacking(&load.values, &self.at_hand)),
        }
    }

    /// Bytes of the values that move there with this job, and for which it has to be worth that by itself: those that have not been in use
    /// for so long that others will follow. What is not here either does not count: it moves wherever the job runs.
    fn values_for_it_alone(&self, load: &JobLoad) -> f64 {
        let is_here = |value: &&ValueSize| !load.absent.contains(&value.name);
        let values = load.values.iter().filter(is_here).map(std::slice::from_ref);
        let lacking =
            values.map(|value| (self.used_for(value[0].name), lacking(value, &self.at_hand)));
        let mut lacking: Vec<(Duration, u64)> = lacking.filter(|(_, bytes)| *bytes > 0).collect();
        // What has been in use for longest first: it pays for the way of all.
        lacking.sort_unstable_by_key(|(used, _)| Reverse(*used));
        let (mut for_all, mut alone) = (0.0, 0.0);
        for (used, bytes) in lacking {
            let with_it = for_all + bytes as f64;
            let rate = self.link.rate.unwrap_or(UNMEASURED);
            let way = self.link.way_at(with_it, rate);
            match way <= SHARE_OF_USE * used.as_secs_f64() {
                true => for_all = with_it,
                false => alone += bytes as f64,
            }
        }
        alone
    }

    /// For how long jobs have mentioned that value.
    fn used_for(&self, name: ValueName) -> Duration {
        let used = self.uses.get(&name);
        used.map_or(Duration::ZERO, |used| self.now.saturating_sub(used.since))
    }

    /// The seconds that so many bytes take; over a link of which nothing is known little goes, and nothing else.
    fn way(&self, moved: f64) -> f64 {
        match self.link.rate {
            Some(rate) => self.link.way_at(moved, rate),
            None if moved <= RISK => 0.0,
            None => f64::INFINITY,
        }
    }
}

/// What is sent to find out the rate of a link: it cannot be compressed.
pub(super) fn trial() -> Vec<u8> {
    let mut bytes = vec![0; TRIAL];
    SmallRng::seed_from_u64(0).fill(&mut bytes[..]);
    bytes
}

/// Are so many bytes next to nothing?
pub(super) fn is_free(bytes: u64) -> bool {
    bytes as f64 <= FREE
}

/// Did so much move that the way is worth measuring?
pub(super) fn is_much(sample: &JobSample) -> bool {
    (sample.shape.own_bytes() + sample.back) as f64 > FREE
}

/// What a node has learnt of its program's jobs and of its links.
#[derive(Clone, Debug, Default)]
pub(super) struct Worth {
    judgement: Judgement,
    functions: Arc<Functions>,
    uses: Arc<Uses>,
    links: BTreeMap<Peer, LinkModel>,
    /// A job was seen that moves much: rates of links matter.
    moves_much: bool,
}

impl Worth {
    /// Knows nothing yet.
    pub(super) fn new(judgement: Judgement) -> Worth {
        Worth {
            judgement,
            ..Worth::default()
        }
    }

    /// A job has run, here or elsewhere.
    pub(super) fn learn(&mut self, sample: &JobSample) {
        self.moves_much |= is_much(sample);
        let functions = Arc::make_mut(&mut self.functions);
        functions
            .entry(sample.shape.function)
            .or_default()
            .learn(sample);
    }

    /// A job stays.
    pub(super) fn wonder(&mut self, now: Duration, load: &JobLoad) {
        let JobLoad { shape, values, .. } = load;
        let values: u64 = values.iter().map(|value| value.bytes).sum();
        // Of a job that is far larger than all that were seen much is thought to come back, although nothing has moved much so far.
        let costs = self.functions.get(&shape.function);
        let back = costs
            .and_then(|costs| costs.of(shape))
            .map_or(0.0, |(_, back)| back);
        let moved = shape
            .own_bytes()
            .saturating_add(values)
            .saturating_add(back as u64);
        self.moves_much |= !is_free(moved);
        let is_new = |costs: &FunctionCosts| costs.silent_since.is_none();
        if self.functions.get(&shape.function).is_none_or(is_new) {
            let functions = Arc::make_mut(&mut self.functions);
            let costs = functions.entry(shape.function).or_default();
            costs.silent_since = Some(now);
        }
    }

    /// A job that leaves, or stays, mentions these values.
    pub(super) fn mentioned(&mut self, now: Duration, values: &[ValueSize]) {
        if values.is_empty() {
            return;
        }
        let uses = Arc::make_mut(&mut self.uses);
        for value in values {
            let fresh = Use {
                since: now,
                last: now,
            };
            let used = uses.entry(value.name).or_insert(fresh);
            if used.last + UNUSED < now {
                *used = fresh;
            }
            used.last = now;
        }
        if uses.len() > MOST_USES {
            uses.retain(|_, used| now <= used.last + UNUSED);
        }
        while uses.len() > MOST_USES {
            let oldest = uses.iter().min_by_key(|(_, used)| used.last);
            let oldest = oldest.map(|(name, _)| *name);
            oldest.map(|name| uses.remove(&name));
        }
    }

    /// So many bytes have moved between this node and that peer, in that time.
    pub(super) fn moved(&mut self, now: Duration, peer: Peer, bytes: u64, took: Duration) {
        if (bytes as f64) < RISK {
            return; // latency says nothing of the rate
        }
        // The mean is that of the time for a byte: of the rates one that is far too high, as where the time of a job that has waited was
        // taken off, would decide alone.
        let newest = (took.as_secs_f64() / bytes as f64).max(1.0 / FASTEST);
        let link = self.links.entry(peer).or_default();
        let pace = match link.rate {
            Some((rate, at)) if now < at + STALE => {
                let pace = 1.0 / rate;
                pace + NEWEST * (newest - pace)
            }
            _ => newest,
        };
        link.rate = Some((1.0 / pace, now));
    }

    /// What jobs cost here and elsewhere.
    pub(super) fn costs(&self) -> JobCosts {
        let rate = |(peer, link): (&Peer, &LinkModel)| link.rate.map(|(rate, _)| (peer.id.0, rate));
        JobCosts {
            functions: Arc::clone(&self.functions),
            rates: self.links.iter().filter_map(rate).collect(),
        }
    }

    /// The terms for that peer.
    pub(super) fn terms(&self, now: Duration, peer: Peer, round_trip: Duration) -> Terms {
        let rate = self.links.get(&peer).and_then(|link| link.rate);
        Terms {
            judgement: self.judgement,
            functions: Arc::clone(&self.functions),
            uses: Arc::clone(&self.uses),
            at_hand: Vec::new(),
            now,
            to: peer.id.0,
            wants: Wants::Any,
            link: LinkSpeed {
                round_trip: round_trip.as_secs_f64(),
                rate: rate.map(|(rate, _)| rate),
            },
        }
    }

    /// Is the link to that peer to be tried? Then a trial begins.
    pub(super) fn tries(&mut self, now: Duration, peer: Peer) -> bool {
        if !self.moves_much || self.judgement == Judgement::Always {
            return false; // the rate of the link changes nothing
        }
        let link = self.links.entry(peer).or_default();
        let is_known = link.rate.is_some_and(|(_, at)| now < at + STALE);
        let is_tried = link.tried.is_some_and(|at| now < at + TRIAL_AGAIN);
        let tries = !is_known && !is_tried;
        if tries {
            link.tried = Some(now);
        }
        tries
    }

    /// The trial of a link has come to its end; when it had begun.
    pub(super) fn tried(&mut self, peer: Peer) -> Option<Duration> {
        self.links.get_mut(&peer)?.tried.take()
    }

    /// Nothing that is here was worth the way to that peer: how long to wait until its next try.
    pub(super) fn refused(&mut self, peer: Peer, round_trip: Duration) -> Duration {
        let link = self.links.entry(peer).or_default();
        let first = PAUSE.max(round_trip.mul_f64(PAUSE_FAR));
        let pause = first * 2u32.pow(link.refusals.min(16));
        link.refusals += 1;
        pause.min(LONGEST_PAUSE)
    }

    /// So many jobs have been looked at that are not worth the way to that peer.
    pub(super) fn looked_in_vain(&mut self, now: Duration, peer: Peer, jobs: usize) {
        let rest = (REST * u32::try_from(jobs).unwrap_or(u32::MAX)).min(LONGEST_PAUSE);
        self.links.entry(peer).or_default().rests_until = now + rest;
    }

    /// Until when no job is looked at for that peer, if that is still to come.
    pub(super) fn rests_until(&self, now: Duration, peer: Peer) -> Option<Duration> {
        let link = self.links.get(&peer)?;
        (link.rests_until > now).then_some(link.rests_until)
    }

    /// A job goes to that peer.
    pub(super) fn accepted(&mut self, peer: Peer) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.refusals = 0;
        }
    }

    pub(super) fn life_ended(&mut self, peer: Peer) {
        self.links.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeId;

    #[test]
    fn a_job_that_stays_for_what_may_come_back_has_its_link_tried() {
        let mut worth = Worth::default();
        // The leaves of a tree of 2^60, which give eight bytes back.
        worth.learn(&JobSample {
            shape: shape(60, 2),
            took: 10 * MS,
            back: 8,
        });
        assert!(!worth.tries(HERE, peer()), "nothing moves much");
        let large = load(2, 2);
        assert!(!worth.terms(HERE, peer(), MS).accept(&large));
        worth.wonder(HERE, &large);
        assert!(worth.tries(HERE, peer()));
        worth.moved(MS, peer(), TRIAL as u64, 100 * MS);
        assert!(worth.terms(MS, peer(), MS).accept(&large));
    }

    #[test]
    fn a_large_result_that_stays_costs_nothing_where_the_data_are_it_is_made_of() {
        let mut worth = Worth::default();
        worth.moved(HERE, peer(), 1 << 20, 100 * MS); // 10 MiB a second
        let data = ValueSize {
            name: ValueName([7; 32]),
            bytes: 1 << 20,
        };
        // A mebibyte of its own, and one that it borrows.
        let load = |keeps| {
            let shape = JobShape {
                keeps,
                lent: data.bytes,
                ..shape(1, 2 << 20)
            };
            JobLoad {
                values: vec![data],
                ..shape.into()
            }
        };
        let second = 1000 * MS;
        // Of a second's work 5 MB are not too large to go home.
        for (back, [goes, goes_if_it_stays, goes_without_data]) in [
            (1 << 20, [true, true, true]),
            (4_900_000, [false, true, true]),
            (20 << 20, [false, true, false]),
        ] {
            let mut worth = worth.clone();
            worth.learn(&JobSample {
                shape: load(false).shape,
                took: second,
                back,
            });
            let accepts = |keeps, held: &[ValueName]| {
                let held = held.iter().copied().collect();
                let terms = worth.terms(HERE, peer(), MS);
                terms
                    .with_at_hand(vec![Arc::new(held)])
                    .accept(&load(keeps))
            };
            let there = [data.name];
            assert_eq!(accepts(false, &there), goes, "{back}");
            assert_eq!(accepts(true, &there), goes_if_it_stays, "{back}");
            assert_eq!(accepts(true, &[]), goes_without_data, "{back}");
        }
    }

    const HERE: Duration = Duration::ZERO;
    const MS: Duration = Duration::from_millis(1);

    fn peer() -> Peer {
        NodeId(7).first_life()
    }

    fn shape(depth: u16, bytes: u64) -> JobShape {
        JobShape {
            function: 3,
            depth,
            bytes,
            is_more: false,
            lent: 0,
            keeps: false,
        }
    }

    #[test]
    fn a_tree_that_is_too_large_to_be_measured_is_judged_by_its_depth() {
        let mut worth = Worth::default();
        worth.moved(HERE, peer(), 1 << 20, MS); // a gigabyte a second
        let learn = |worth: &mut Worth, shape, took| {
            worth.learn(&JobSample {
                shape,
                took,
                back: 8,
            });
        };
        let accepts = |worth: &Worth, shape: JobShape| {
            let terms = worth.terms(HERE, peer(), HERE);
            terms.accept(&shape.into())
        };
        let tree = |depth| JobShape {
            is_more: true,
            ..shape(depth, 50_000)
        };
        assert!(!accepts(&worth, tree(2)), "nothing is known");
        learn(&mut worth, shape(9, 8 << 10), MS);
        assert!(
            accepts(&worth, tree(2)),
            "six times as large, six times as long"
        );
        learn(&mut worth, tree(3), MS / 100);
        assert!(!accepts(&worth, tree(2)), "trees are quick");
        // Also one whose size is known, as long as none so large was seen.
        assert!(!accepts(&worth, shape(2, 50_000)));
        learn(&mut worth, shape(9, 60_000), 7 * MS);
        assert!(accepts(&worth, shape(2, 50_000)));
        assert!(!accepts(&worth, tree(2)));
    }

    /// A job that mentions no value.
    fn load(depth: u16, bytes: u64) -> JobLoad {
        shape(depth, bytes).into()
    }

    /// Jobs of these bytes there and back took so many seconds.
    fn knows(seen: &[(u64, f64)]) -> Worth {
        let mut worth = Worth::default();
        for (bytes, took) in seen {
            worth.learn(&JobSample {
                shape: shape(1, *bytes),
                took: Duration::from_secs_f64(*took),
                back: *bytes,
            });
        }
        worth
    }

    /// Terms for a link of that rate and round trip.
    fn terms(worth: &mut Worth, rate: f64, round_trip: Duration) -> Terms {
        let bytes = 10_000_000;
        worth.moved(
            HERE,
            peer(),
            bytes,
            Duration::from_secs_f64(bytes as f64 / rate),
        );
        worth.terms(HERE, peer(), round_trip)
    }

    #[test]
    fn what_is_small_goes_anywhere() {
        let mut worth = knows(&[]);
        assert!(terms(&mut worth, 1e6, 100 * MS).accept(&load(9, 100)));
        worth.learn(&JobSample {
            shape: shape(9, 100),
            took: Duration::from_nanos(100),
            back: 8,
        });
        assert!(terms(&mut worth, 1e6, 100 * MS).accept(&load(9, 100)));
    }

    #[test]
    fn a_few_numbers_that_are_sorted_soon_stay() {
        let mut worth = knows(&[(1_000_000, 0.01)]);
        let terms = terms(&mut worth, 1e9, MS);
        assert!(!terms.accept(&load(9, 7_000)), "70 us of work");
        assert!(terms.accept(&load(9, 1_000)), "that says nothing");
    }

    #[test]
    fn of_an_unknown_function_little_is_risked() {
        let terms = terms(&mut knows(&[]), 1e9, MS);
        assert!(terms.accept(&load(1, 30_000)));
        assert!(!terms.accept(&load(1, 1_000_000)));
    }

    #[test]
    fn where_all_jobs_are_worth_their_way_each_goes_and_no_link_is_tried() {
        let mut worth = Worth::new(Judgement::Always);
        worth.wonder(HERE, &load(1, 1 << 30));
        assert!(worth.terms(HERE, peer(), MS).accept(&load(1, 1 << 30)));
        worth.learn(&JobSample {
            shape: shape(1, 1 << 30),
            took: MS,
            back: 1 << 30,
        });
        assert!(worth.terms(HERE, peer(), MS).accept(&load(1, 1 << 30)));
        assert!(!worth.tries(HERE, peer()));
    }

    #[test]
    fn a_long_job_of_an_unknown_function_goes_after_a_while() {
        let mut worth = knows(&[]);
        terms(&mut worth, 1e8, MS);
        let megabyte = load(1, 1_000_000);
        worth.wonder(HERE, &megabyte);
        // There and back take 25 ms.
        let accepts = |now| worth.terms(now, peer(), MS).accept(&megabyte);
        assert!(!accepts(100 * MS));
        assert!(accepts(300 * MS), "whatever it does, it does it for long");
        // Now it is known to be short.
        worth.learn(&JobSample {
            shape: megabyte.shape,
            took: MS,
            back: 8,
        });
        assert!(!worth.terms(400 * MS, peer(), MS).accept(&megabyte));
    }

    #[test]
    fn a_sort_stays_at_home_and_a_product_goes() {
        // A million numbers of 8 bytes are sorted in 80 ms; matrices of 8 MB are multiplied in 2 s.
        let (sort, product) = (knows(&[(8_000_000, 0.08)]), knows(&[(8_000_000, 2.0)]));
        let gigabit = 1.25e8;
        assert!(!terms(&mut sort.clone(), gigabit, MS).accept(&load(1, 8_000_000)));
        assert!(terms(&mut product.clone(), gigabit, MS).accept(&load(1, 8_000_000)));
        // Over a slow line the product stays as well.
        assert!(!terms(&mut product.clone(), 1e6, 100 * MS).accept(&load(1, 8_000_000)));
    }

    #[test]
    fn a_far_thief_needs_more_work() {
        let mut worth = knows(&[(100_000, 0.05)]);
        assert!(terms(&mut worth, 1e9, MS).accept(&load(1, 100_000)));
        assert!(!terms(&mut worth, 1e9, 100 * MS).accept(&load(1, 100_000)));
    }

    #[test]
    fn other_sizes_are_judged_by_those_that_were_seen() {
        // Work grows with the square of the size.
        let seen = [(100_000, 0.001), (200_000, 0.004), (400_000, 0.016)];
        let worth = knows(&seen);
        let (_, costs) = worth.functions.first_key_value().expect("a function");
        let took = |bytes| costs.of(&shape(1, bytes)).expect("known").0;
        assert!(
            (took(283_000) - 0.008).abs() < 0.001,
            "between: {}",
            took(283_000)
        );
        let next = took(1_600_000);
        assert!(
            (0.12..0.13).contains(&next),
            "the next larger ones: as far as the power of 1.5, {next}"
        );
        let beyond = took(16_000_000) / next;
        assert!(
            (9.0..11.0).contains(&beyond),
            "beyond: no more than in proportion, {beyond}"
        );
        assert!(took(50_000) < 0.0005, "below: less than in proportion");
        let (_, back) = costs.of(&shape(1, 1_000_000)).expect("known");
        assert!((back - 1e6).abs() < 1.0, "as many bytes come back: {back}");
    }

    #[test]
    fn sizes_that_are_near_to_each_other_tell_no_slope() {
        // Twice as large, three times as long: that may be chance.
        let worth = knows(&[(200_000, 0.004), (400_000, 0.012)]);
        let (_, costs) = worth.functions.first_key_value().expect("a function");
        let (took, _) = costs.of(&shape(1, 800_000)).expect("known");
        assert!((0.023..0.025).contains(&took), "in proportion: {took}");
    }

    #[test]
    fn small_arguments_tell_by_their_depth() {
        let mut worth = Worth::default();
        // A picture in quarters: each level has a quarter of the work and of the picture.
        for depth in 2..5 {
            let part = 0.25f64.powi(i32::from(depth));
            worth.learn(&JobSample {
                shape: shape(depth, 40),
                took: Duration::from_secs_f64(10.0 * part),
                back: (1e8 * part) as u64,
            });
        }
        let (_, costs) = worth.functions.first_key_value().expect("a function");
        let (took, back) = costs.of(&shape(1, 40)).expect("known");
        assert!(
            (2.4..2.6).contains(&took) && (2.4e7..2.6e7).contains(&back),
            "{took} {back}"
        );
        let (took, _) = costs.of(&shape(6, 40)).expect("known");
        assert!(took < 0.01, "{took}");
        // 2 s of work for 25 MB: over 100 Mbit/s that is no gain.
        assert!(!terms(&mut worth.clone(), 1.25e7, MS).accept(&load(1, 40)));
        assert!(terms(&mut worth.clone(), 1.25e8, MS).accept(&load(1, 40)));
    }

    #[test]
    fn many_parts_take_longer_than_their_bytes() {
        let mut worth = knows(&[(2_000_000, 0.09)]);
        let mut accepts = |parts| {
            let load = JobLoad {
                parts,
                ..load(1, 2_000_000)
            };
            terms(&mut worth, 1e9, MS).accept(&load)
        };
        assert!(accepts(2_000_000 / 64), "an array of numbers");
        assert!(!accepts(2 * 2_000_000 / 14), "a list of short strings");
    }

    #[test]
    fn what_was_wrong_is_forgotten() {
        let mut worth = knows(&[(1_000_000, 10.0)]);
        assert!(terms(&mut worth, 1e8, MS).accept(&load(1, 1_000_000)));
        for _ in 0..40 {
            worth.learn(&JobSample {
                shape: shape(1, 1_000_000),
                took: MS,
                back: 0,
            });
        }
        assert!(!terms(&mut worth, 1e8, MS).accept(&load(1, 1_000_000)));
    }

    #[test]
    fn a_slow_link_is_measured_again_after_a_while() {
        let mut worth = knows(&[(1_000_000, 1.0)]);
        worth.moved(HERE, peer(), 1_000_000, Duration::from_secs(1));
        let accepts = |worth: &Worth, now| worth.terms(now, peer(), MS).accept(&load(1, 1_000_000));
        assert!(!worth.tries(STALE / 2, peer()));
        assert!(worth.tries(STALE, peer()));
        assert!(!accepts(&worth, STALE));
        worth.moved(STALE, peer(), TRIAL as u64, MS);
        assert!(
            accepts(&worth, STALE),
            "what was measured long ago counts no more"
        );
    }

    #[test]
    fn one_wrong_rate_does_not_open_a_slow_link() {
        // 2 MB there and back over 100 Mbit/s take 160 ms.
        let mut worth = knows(&[(1_000_000, 0.2)]);
        let slow = 12_500_000;
        worth.moved(HERE, peer(), slow, 1000 * MS);
        worth.moved(HERE, peer(), slow, Duration::ZERO);
        assert!(!worth.terms(HERE, peer(), MS).accept(&load(1, 1_000_000)));
        // One that is right opens a fast one, if there are some.
        for _ in 0..8 {
            worth.moved(HERE, peer(), slow, 10 * MS);
        }
        assert!(worth.terms(HERE, peer(), MS).accept(&load(1, 1_000_000)));
    }

    #[test]
    fn a_known_function_that_is_silent_is_taken_for_slow() {
        let mut worth = knows(&[(1_000_000, 0.001)]);
        let accepts = |worth: &mut Worth, now| {
            worth.moved(HERE, peer(), 10_000_000, 100 * MS);
            worth.terms(now, peer(), MS).accept(&load(1, 1_000_000))
        };
        worth.wonder(HERE, &load(1, 1_000_000));
        assert!(!accepts(&mut worth, 100 * MS));
        assert!(
            accepts(&mut worth, 1000 * MS),
            "for a second none has ended"
        );
    }

    #[test]
    fn a_link_is_tried_when_much_is_to_move_and_not_all_the_time() {
        let mut worth = knows(&[(100, 1.0)]);
        let is_tried = |worth: &mut Worth, now| worth.tries(now, peer());
        assert!(!is_tried(&mut worth, HERE), "no job moves much");
        let mut worth = knows(&[(1_000_000, 1.0)]);
        assert!(is_tried(&mut worth, HERE));
        assert!(!is_tried(&mut worth, MS));
        assert!(is_tried(&mut worth, TRIAL_AGAIN), "it was lost");
        worth.moved(TRIAL_AGAIN, peer(), TRIAL as u64, MS);
        assert!(!is_tried(&mut worth, 2 * TRIAL_AGAIN), "the rate is known");
    }

    fn value(number: u8, bytes: u64) -> ValueSize {
        let name = ValueName([number; 32]);
        ValueSize { name, bytes }
    }

    /// A job with few arguments that mentions a value of 10 MB: over 100 MB a second that takes 120 ms.
    fn mentions(number: u8) -> JobLoad {
        JobLoad {
            values: vec![value(number, 10_000_000)],
            ..load(1, 100)
        }
    }

    /// Jobs with few arguments took so many seconds, and the link has 100 MB a second.
    fn takes(took: f64) -> Worth {
        let mut worth = knows(&[(100, took)]);
        worth.moved(HERE, peer(), 10_000_000, 100 * MS);
        worth
    }

    #[test]
    fn a_value_counts_for_a_thief_that_lacks_it() {
        let terms = takes(0.1).terms(HERE, peer(), MS);
        assert!(terms.accept(&load(1, 100)), "it mentions none");
        assert!(!terms.accept(&mentions(1)));
        let held: HeldNames = Arc::new([value(1, 0).name].into());
        let terms = terms.with_at_hand(vec![held]);
        assert!(terms.accept(&mentions(1)), "it lies there");
        assert!(!terms.accept(&mentions(2)), "another does not");
    }

    #[test]
    fn what_is_not_here_either_moves_wherever_the_job_runs() {
        let terms = takes(0.1).terms(HERE, peer(), MS);
        let reads_two = |absent: &[u64]| {
            let values = [1, 2].map(|number| value(number, 10_000_000));
            let absent = absent
                .iter()
                .map(|number| values[*number as usize - 1].name);
            JobLoad {
                shape: shape(1, 100),
                parts: 0,
                absent: absent.collect(),
                values: values.to_vec(),
            }
        };
        assert!(!terms.accept(&reads_two(&[])));
        assert!(!terms.accept(&reads_two(&[1])), "the other is here");
        assert!(terms.accept(&reads_two(&[1, 2])));
        // What the thief has already does not make up for what it has not.
        let held: HeldNames = Arc::new([value(1, 0).name].into());
        let terms = terms.with_at_hand(vec![held]);
        assert!(!terms.accept(&reads_two(&[1])));
        assert!(terms.accept(&reads_two(&[2])));
    }

    #[test]
    fn a_job_of_much_work_takes_its_value_along_at_once() {
        assert!(takes(1.0).terms(HERE, peer(), MS).accept(&mentions(1)));
        // Of an unknown function little is risked, in values too.
        let mut worth = knows(&[]);
        assert!(!terms(&mut worth, 1e8, MS).accept(&mentions(1)));
        let small = JobLoad {
            values: vec![value(1, 50_000)],
            ..load(1, 100)
        };
        assert!(terms(&mut worth, 1e8, MS).accept(&small));
    }

    #[test]
    fn a_value_that_many_small_jobs_mention_moves_after_a_while() {
        let mut worth = takes(0.01);
        let accepts = |worth: &Worth, now| worth.terms(now, peer(), MS).accept(&mentions(1));
        worth.mentioned(HERE, &mentions(1).values);
        assert!(!accepts(&worth, 400 * MS));
        assert!(
            accepts(&worth, 500 * MS),
            "in use for four times as long as it takes"
        );
        // One that is new with each job pays with none.
        worth.mentioned(500 * MS, &mentions(2).values);
        let mut both = mentions(1);
        both.values.push(value(2, 10_000_000));
        assert!(!worth.terms(500 * MS, peer(), MS).accept(&both));
        both.values[1].bytes = 100;
        assert!(
            worth.terms(500 * MS, peer(), MS).accept(&both),
            "that is next to nothing"
        );
        // After a pause it is new again.
        let later = 2 * UNUSED;
        worth.mentioned(later, &mentions(1).values);
        worth.moved(later, peer(), 10_000_000, 100 * MS);
        assert!(!accepts(&worth, later));
    }

    #[test]
    fn a_link_that_cannot_be_tried_is_taken_for_slow() {
        let mut worth = knows(&[(100, 0.01)]);
        worth.mentioned(HERE, &mentions(1).values);
        let accepts = |now| worth.terms(now, peer(), MS).accept(&mentions(1));
        assert!(!accepts(5_000 * MS));
        assert!(accepts(50_000 * MS));
    }

    #[test]
    fn the_way_of_a_job_that_is_away_is_known_once_its_result_and_the_link_are() {
        let load = mentions(1);
        let trip = Worth::default().terms(HERE, peer(), 100 * MS).trip(&load);
        assert_eq!(trip.there, 10_000_100);
        let way = |worth: &Worth| worth.costs().of(&load.shape, &trip).map(|cost| cost.way);
        assert_eq!(way(&Worth::default()), None);
        // 10 MB there, 20 MB back.
        let mut worth = Worth::default();
        worth.learn(&JobSample {
            shape: load.shape,
            took: MS,
            back: 20_000_000,
        });
        let unmeasured = way(&worth).expect("known");
        assert!(
            unmeasured > 30_000 * MS,
            "a link of which nothing is known is slow: {unmeasured:?}"
        );
        worth.moved(HERE, peer(), 10_000_000, 100 * MS);
        let measured = way(&worth).expect("known");
        assert!((400 * MS..500 * MS).contains(&measured), "{measured:?}");
        // Who has the value needs the arguments only, and small ones take the round trip.
        let held: HeldNames = Arc::new([value(1, 0).name].into());
        let at_hand = Worth::default()
            .terms(HERE, peer(), MS)
            .with_at_hand(vec![held]);
        assert_eq!(at_hand.trip(&load).there, 100);
        let small = takes(0.01).costs().of(&load.shape, &at_hand.trip(&load));
        assert!(small.is_some_and(|cost| cost.way < 2 * MS), "{small:?}");
    }

    #[test]
    fn many_values_in_use_pay_for_each_other_no_more_than_once() {
        let mut worth = takes(0.01);
        let ten: Vec<ValueSize> = (0..10).map(|number| value(number, 10_000_000)).collect();
        worth.mentioned(HERE, &ten);
        let mut load = load(1, 100);
        load.values = ten;
        let accepts = |now| worth.terms(now, peer(), MS).accept(&load);
        assert!(!accepts(500 * MS), "enough for one of them");
        assert!(accepts(5000 * MS));
    }

    #[test]
    fn the_uses_that_are_known_are_bounded() {
        let mut worth = Worth::default();
        for number in 0..2 * MOST_USES as u64 {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            let name = ValueName(name);
            worth.mentioned(number as u32 * MS, &[ValueSize { name, bytes: 1 }]);
        }
        assert_eq!(worth.uses.len(), MOST_USES);
    }
}
