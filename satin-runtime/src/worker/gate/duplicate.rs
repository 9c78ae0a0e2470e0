//! Nobody waits for what it could do sooner: a worker that has nothing else to do than to wait for a job on another node runs it a
//! second time, from its arguments as bytes, if the answer is thought to come later than that takes. The first answer counts, and
//! the other run is told to stop.
//!
//! The second run knows nothing of the tree: it stands below a nested entry, so that its jobs have no ids, stay in this
//! process, and are in nobody's way: neither in the books of nodes nor among the results that are kept.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::{
    super::{
        each::NotHere,
        pool::Pool,
        thread::{Bottom, Worker},
    },
    hosted::{message, named},
    ledger::{AbsentPlace, FrameRef, SlotRef, lock},
    pack::export,
};
use crate::job::{
    Answer, DepartureId, History, JobCost, JobShape, JobTrip, Recall,
    codec::Effort,
    function::{Packed, RemoteFailure, VTable},
    record::{Cx, Frame, Slot, flag},
};

/// What a job of that shape costs that has gone that way, if that is known. Called from any thread; must be quick, and must not call
/// the gate.
pub type Costs = Arc<dyn Fn(&JobShape, &JobTrip) -> Option<JobCost> + Send + Sync>;

/// What is known of costs.
#[derive(Default)]
pub(super) struct KnownCosts {
    costs: Mutex<Option<Costs>>,
    /// Until then no job is run a second time.
    cautious_until: Mutex<Option<Instant>>,
}

impl KnownCosts {
    pub(super) fn learn(&self, costs: Costs) {
        *lock(&self.costs) = Some(costs);
    }

    pub(super) fn be_cautious(&self, time: Duration) {
        *lock(&self.cautious_until) = Instant::now().checked_add(time);
    }

    /// The rest of that time.
    fn caution(&self) -> Duration {
        let until = *lock(&self.cautious_until);
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    fn of(&self, shape: &JobShape, trip: &JobTrip) -> Option<JobCost> {
        let costs = lock(&self.costs).clone();
        costs?(shape, trip)
    }
}

/// An answer that is to come sooner than so many times the time that the job takes here is waited for. Too small: jobs are done twice
/// for nothing, as estimates are wrong. Too large: workers wait for what they could do.
const GAIN: f64 = 1.25;

/// An answer is late if it has not come for so many times the job's time after it was expected. Too small and too large: see [`GAIN`].
const LATE: f64 = 2.0;

/// Time after which a late answer is late at the soonest, unless the job is short beside its way. Too small: its host may be dead and not
/// known to be, and if the job has killed it, this node is the next. Too large: a slow node is waited for.
const LATE_AT_LEAST: Duration = Duration::from_secs(10);

/// The pause before the next look at a job of which nothing is known yet.
const UNKNOWN: Duration = Duration::from_millis(1);

/// A node is far away at such a round trip: an answer that cannot be here for so long is not waited for if nothing is known of the job, as
/// the worker would do nothing. Too small: jobs that take as long as a round trip are done twice. Too large: workers wait for short jobs.
const FAR_AWAY: Duration = Duration::from_millis(5);

/// When an answer is expected, as far as that is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// How long ago the job left.
    pub(super) away: Duration,
    /// The answer is away for so long at least.
    pub(super) round_trip: Duration,
    /// What it costs here, and so probably there.
    pub(super) cost: Option<JobCost>,
}

impl Expected {
    /// How long to wait until it is worth doing the job here; zero if it is now.
    pub(super) fn patience(&self) -> Duration {
        let Some(JobCost { took, way }) = self.cost else {
            return match self.round_trip.saturating_sub(self.away) > FAR_AWAY {
                true => Duration::ZERO,
                false => UNKNOWN,
            };
        };
        let expected = way.saturating_add(took);
        let left = expected.saturating_sub(self.away);
        if left > took.mul_f64(GAIN) {
            return Duration::ZERO;
        }
        // To do a short job costs less than to wait for word from afar, which may take another round trip to come.
        let is_short = self.round_trip > FAR_AWAY.max(took.mul_f64(GAIN));
        let least = match is_short {
            true => Duration::ZERO,
            false => LATE_AT_LEAST,
        };
        let late = expected + took.mul_f64(LATE).max(least);
        late.saturating_sub(self.away)
    }
}

/// The second run of a job that is away.
#[derive(Default)]
pub(super) enum Duplicate {
    /// There is none.
    #[default]
    None,
    /// Its arguments are being written. If the job comes back meanwhile, it waits until that is done.
    Writing,
    /// It runs below that frame.
    Running(FrameRef),
}

impl Duplicate {
    /// The job is not away any more: the second run stops.
    pub(super) fn stop(&self, pool: &Pool) {
        if let Duplicate::Running(FrameRef(frame)) = self {
            // SAFETY: the frame lives as long as its entry, which is under the caller's lock.
            pool.stop_children(unsafe { &**frame }, flag::ABORT);
        }
    }
}

/// A job that is away, as its second run needs it.
struct AwayJobWritten {
    departure: DepartureId,
    function: &'static VTable,
    index: u32,
    packed: Packed,
}

impl Pool {
    /// How long the way of so many bytes takes which a job of that function needs, from that node, if that is known.
    pub(in crate::worker) fn way_of(
        &self,
        function: u32,
        bytes: u64,
        from: u128,
    ) -> Option<Duration> {
        let shape = JobShape {
            function,
            depth: 0,
            bytes,
            is_more: false,
            lent: bytes,
            keeps: true,
        };
        let trip = JobTrip {
            to: from,
            round_trip: Duration::ZERO,
            there: bytes,
        };
        self.ledger.costs.of(&shape, &trip).map(|cost| cost.way)
    }

    /// How long a worker that has nothing else to do is to wait for a job that is away before it does the job itself; `None`: for ever.
    pub(in crate::worker) fn patience(&self, slot: *const Slot) -> Option<Duration> {
        if !self.duplicates {
            return None;
        }
        let absent = lock(&self.ledger.absent);
        let AbsentPlace::Away(departure) = absent.places.get(&SlotRef(slot))? else {
            return None;
        };
        let away = absent.away.get(departure)?;
        if away.back.history != History::default() {
            return None; // it may have taken down a node, or has an answer somewhere
        }
        // Under the lock nobody answers it, or brings it back.
        if !self.boards.is_complete(slot) {
            return None;
        }
        let (shape, trip, since) = (away.shape?, away.trip, away.since);
        drop(absent);
        let expected = Expected {
            away: since.elapsed(),
            round_trip: trip.round_trip,
            cost: self.ledger.costs.of(&shape, &trip),
        };
        Some(expected.patience().max(self.ledger.costs.caution()))
    }

    /// The arguments of a job that is away, and its departure. The caller is its owner.
    fn write_again(&self, slot: *const Slot) -> Option<AwayJobWritten> {
        let place = SlotRef(slot);
        let mut absent = lock(&self.ledger.absent);
        let AbsentPlace::Away(departure) = *absent.places.get(&place)? else {
            return None;
        };
        absent.away.get_mut(&departure)?.duplicate = Duplicate::Writing;
        drop(absent);
        // SAFETY: the job is away: its arguments are there, and nobody takes them, as it does not come back while they are
        // written.
        let job = unsafe { &*slot };
        let (function, index) = (job.function.get(), job.index());
        let packed = export(job, Effort::ANY).map(|(packed, _)| packed);
        let mut absent = lock(&self.ledger.absent);
        if let Some(away) = absent.away.get_mut(&departure) {
            away.duplicate = Duplicate::None;
            if let Some(back) = away.came_back.take() {
                self.back_from(absent, departure, back);
                return None;
            }
        }
        drop(absent);
        let packed = packed.ok()?;
        Some(AwayJobWritten {
            departure,
            function,
            index,
            packed,
        })
    }

    /// Enters the second run's frame. False if the job is not away any more.
    fn enter_duplicate(&self, departure: DepartureId, frame: *const Frame) -> bool {
        let mut absent = lock(&self.ledger.absent);
        let away = absent.away.get_mut(&departure);
        away.map(|away| away.duplicate = Duplicate::Running(FrameRef(frame)))
            .is_some()
    }

    /// The second run is over: its frame is about to die. If it has an answer, and is the first, that counts.
    fn end_duplicate(&self, departure: DepartureId, answer: Option<Answer>) -> bool {
        let mut absent = lock(&self.ledger.absent);
        let Some(away) = absent.away.get_mut(&departure) else {
            return false;
        };
        away.duplicate = Duplicate::None;
        let Some(answer) = answer else {
            return false;
        };
        let away = absent.strike_away(departure);
        drop(absent);
        let whole = answer.into();
        // SAFETY: the job was away, and nobody else has it now: the slot waits for us.
        let job = unsafe { &*away.slot.0 };
        self.keep_answer(job, away.fingerprint, &whole, away.since.elapsed());
        self.judge(away.slot, whole);
        self.tell(|outside| outside.recalled(departure, Recall::Done));
        true
    }
}

impl Worker {
    /// Runs a job that is away, and that this worker waits for, a second time, on top of what waits from `head` downwards. `written` is called
    /// when the slot is not looked at any more.
    pub(in crate::worker) fn duplicate(
        &self,
        slot: *const Slot,
        frame: *const Frame,
        head: *const Slot,
        written: impl FnOnce(),
    ) {
        let pool = self.pool();
        let again = pool.write_again(slot);
        written();
        let Some(AwayJobWritten {
            departure,
            function,
            index,
            packed,
        }) = again
        else {
            return;
        };
        let nested = Frame::special(frame, flag::NESTED);
        let parent = &raw const nested;
        if !pool.enter_duplicate(departure, parent) {
            return;
        }
        self.counters.duplicates.add(1);
        let bottom = Bottom {
            head,
            parent,
            index,
            marked: false,
            part: None,
        };
        let run = || (function.run_bytes)(Cx { head, parent }, index, &packed.bytes, false);
        let answer = match self.on_bottom(bottom, None, run) {
            // The values that it mentions may be gone before it is read: rare, and not worth the care.
            Ok(packed) if packed.needs.is_empty() => Some(packed.into()),
            Err(RemoteFailure::Panicked(payload)) if payload.is::<NotHere>() => None,
            Err(RemoteFailure::Panicked(payload)) => {
                let text = message(&*payload);
                let id = self.place_of(frame, index).map(|place| place.id);
                Some(Answer::Panicked(match id {
                    Some(id) => named(text, &id),
                    None => text.into(),
                }))
            }
            Ok(_) | Err(RemoteFailure::Codec(_) | RemoteFailure::Aborted) => None,
        };
        let is_first = pool.end_duplicate(departure, answer);
        tracing::debug!(
            is_first,
            function = function.info.name,
            "a job that is away has been run here"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn patience(away: Duration, way: Duration, took: Duration) -> Duration {
        let cost = Some(JobCost { took, way });
        let round_trip = way;
        Expected {
            away,
            round_trip,
            cost,
        }
        .patience()
    }

    #[test]
    fn of_an_unknown_job_the_round_trip_is_not_waited_for() {
        let patience = |away, round_trip| {
            Expected {
                away,
                round_trip,
                cost: None,
            }
            .patience()
        };
        assert_eq!(patience(3 * MS, 100 * MS), Duration::ZERO);
        // It may be here in a moment.
        assert_eq!(patience(97 * MS, 100 * MS), UNKNOWN);
        assert_eq!(patience(200 * MS, 100 * MS), UNKNOWN);
        assert_eq!(patience(Duration::ZERO, MS), UNKNOWN);
    }

    #[test]
    fn what_has_just_left_for_far_away_is_done_here() {
        assert_eq!(patience(MS, 10 * MS, 3 * MS), Duration::ZERO);
    }

    #[test]
    fn what_is_soon_back_is_waited_for() {
        assert_eq!(patience(2 * MS, 2 * MS, MS), LATE_AT_LEAST + MS);
        assert_eq!(
            patience(MS, MS / 10, 100 * MS),
            LATE_AT_LEAST + 99 * MS + MS / 10
        );
    }

    #[test]
    fn a_short_job_that_is_late_from_afar_is_done_here() {
        assert_eq!(patience(10 * MS, 10 * MS, 3 * MS), 9 * MS);
        assert_eq!(patience(400 * MS, 400 * MS, 4 * MS), 12 * MS);
        assert_eq!(patience(412 * MS, 400 * MS, 4 * MS), Duration::ZERO);
    }

    #[test]
    fn what_is_late_is_done_here() {
        assert_eq!(patience(10_200 * MS, MS, 100 * MS), Duration::ZERO);
        assert_eq!(patience(40_000 * MS, MS, 10_000 * MS), Duration::ZERO);
    }

    #[test]
    fn caution_ends() {
        let costs = KnownCosts::default();
        assert_eq!(costs.caution(), Duration::ZERO);
        costs.be_cautious(1000 * MS);
        assert!(costs.caution() > Duration::ZERO && costs.caution() <= 1000 * MS);
        costs.be_cautious(Duration::ZERO);
        assert_eq!(costs.caution(), Duration::ZERO);
    }

    #[test]
    fn of_the_unknown_more_may_be_known_soon() {
        let expected = Expected {
            away: 1000 * MS,
            round_trip: MS,
            cost: None,
        };
        assert_eq!(expected.patience(), UNKNOWN);
    }
}
