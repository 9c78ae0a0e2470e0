//! The knowledge about the workers: how many have nothing to do, and how fast they finish hosted jobs.

use std::time::Duration;

/// The weight of the newest measurement in the averages of hosted jobs. Too small: a change of phase in
/// the program is noticed late. Too large: one odd job misleads.
const NEWEST: f64 = 0.25;

/// The average with the newest measurement in it.
fn average(before: Option<f64>, newest: f64) -> f64 {
    before.map_or(newest, |average| average + NEWEST * (newest - average))
}

/// The amount of work that the node can give away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spare {
    /// Workers here have nothing to do themselves.
    Nothing,
    /// So many hosted jobs can go: there are more than workers for them.
    Surplus(u32),
    /// As much as the workers can spare.
    Any,
}

/// How fast hosted jobs are done here.
#[derive(Default)]
struct DonePace {
    /// The average time of a hosted job, in seconds.
    each: Option<f64>,
    /// When the measurement under way began.
    mark: Duration,
    /// The number of jobs done since `mark`.
    done: u32,
}

/// The state of the workers, as far as they have told it.
#[derive(Default)]
pub(crate) struct Hands {
    /// Workers with nothing to do, as they last told.
    told: u32,
    /// The last hosted job that was given to the workers before they told, by the numbers of `given`.
    told_at: u64,
    /// The number of hosted jobs that were given to the workers so far.
    given: u64,
    /// Jobs given since they told, and not done.
    since: u32,
    /// Jobs given and not done.
    running: u32,
    /// Jobs whose values are on their way.
    coming: u32,
    /// The average time that hosted jobs wait for their values, in seconds.
    way: Option<f64>,
    pace: DonePace,
    /// The workers did something since that was asked last.
    moved: bool,
}

impl Hands {
    /// The number of workers that have nothing to do, and for which nothing is on its way.
    pub(crate) fn idle(&self) -> u32 {
        // The word of the workers may be old: jobs that were given since, or are on their way, have
        // found an idle worker.
        self.told.saturating_sub(self.since + self.coming)
    }

    /// Hosted jobs that wait for their values.
    pub(super) fn coming(&self) -> u32 {
        self.coming
    }

    /// Hosted jobs that the workers have.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    pub(crate) fn spare(&self) -> Spare {
        // Workers that were idle when they told get the jobs that came since; only what is
        // beyond that can go on.
        match self.since.checked_sub(self.told) {
            _ if self.told == 0 => Spare::Any,
            None | Some(0) => Spare::Nothing,
            Some(surplus) => Spare::Surplus(surplus),
        }
    }

    /// The workers say how many of them have nothing to do. True if they are fewer than before: some have found something.
    pub(super) fn tell(&mut self, workers: u32) -> bool {
        self.moved = true;
        let fewer = workers < self.told;
        self.told = workers;
        // The word includes all jobs given so far, so they are not taken off once more.
        self.told_at = self.given;
        self.since = 0;
        fewer
    }

    /// A job comes, and waits for its values.
    pub(super) fn expect(&mut self) {
        self.coming += 1;
    }

    /// A job that was coming will not go to the workers.
    pub(super) fn no_more_coming(&mut self) {
        self.coming -= 1;
    }

    /// Does a worker begin at once with the next job that is given?
    pub(super) fn begins_at_once(&self) -> bool {
        self.told > self.since || self.running == 0
    }

    /// Hosted jobs that wait for their values, beside those for which a worker waits.
    pub(super) fn coming_for_later(&self) -> u32 {
        let waiting = self.told.saturating_sub(self.since);
        self.coming.saturating_sub(waiting)
    }

    /// The values of a job have been waited for for so long.
    pub(super) fn note_way(&mut self, took: Duration) {
        self.way = Some(average(self.way, took.as_secs_f64()));
    }

    /// How long a hosted job waits for its values, on average, in seconds.
    pub(crate) fn way(&self) -> f64 {
        self.way.unwrap_or(0.0)
    }

    /// A job whose values are here goes to the workers; its number, in the order of such things.
    pub(super) fn give(&mut self, now: Duration) -> u64 {
        self.coming -= 1;
        self.given += 1;
        self.since += 1;
        self.running += 1;
        // The time in which no hosted job was here says nothing about how long one takes.
        if self.running == 1 {
            self.pace.mark = now;
        }
        self.given
    }

    /// A job goes to the workers only to be held for others: no worker that was idle is busy with it.
    pub(super) fn give_to_hold(&mut self) {
        self.coming -= 1;
        self.running += 1;
    }

    /// The workers do not have the job any more that was given to them under that number.
    pub(super) fn end(&mut self, given: u64) {
        self.running -= 1;
        // A job that was given before the workers told is in their word: only a later one was
        // counted.
        if given > self.told_at {
            self.since -= 1;
        }
    }

    /// A hosted job has come to its end.
    pub(crate) fn done(&mut self) {
        self.pace.done += 1;
    }

    /// Notes that the workers are not stuck: something has happened among them.
    pub(crate) fn move_on(&mut self) {
        self.moved = true;
    }

    /// Has anything happened among the workers since this was asked last?
    pub(crate) fn have_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Takes what was done since the last time into the average.
    pub(crate) fn measure(&mut self, now: Duration) {
        let pace = &mut self.pace;
        if pace.done > 0 {
            // Per job, over all workers: how fast a supply of jobs is used up.
            let took = now.saturating_sub(pace.mark).as_secs_f64() / f64::from(pace.done);
            pace.each = Some(average(pace.each, took));
            pace.mark = now;
            pace.done = 0;
        }
    }

    /// How long a hosted job takes here on average, in seconds, once one has been done.
    pub(crate) fn each(&self) -> Option<f64> {
        self.pace.each
    }
}
