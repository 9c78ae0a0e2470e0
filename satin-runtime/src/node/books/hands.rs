//! What is known of the workers: how many have nothing to do, and how fast they finish hosted jobs.

use std::time::Duration;

/// How much the newest measurement counts in the average time of a hosted job. Too small: a change of phase in the
/// program is noticed late. Too large: one odd job misleads.
const NEWEST: f64 = 0.25;

/// How much the node can give away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spare {
    /// Workers here have nothing to do themselves.
    Nothing,
    /// That many hosted jobs: more than there are workers for.
    Surplus(u32),
    /// As much as the workers can spare.
    Any,
}

/// How fast hosted jobs are done here.
#[derive(Default)]
struct DonePace {
    /// On average, in seconds.
    each: Option<f64>,
    /// When the measurement under way began.
    mark: Duration,
    /// Jobs done since.
    done: u32,
}

/// The state of the workers, as far as they have told it.
#[derive(Default)]
pub(crate) struct Hands {
    /// Workers with nothing to do, as they last told.
    told: u32,
    /// Hosted jobs are numbered as they are given to them; this was the last before they told.
    told_at: u64,
    given: u64,
    /// Jobs given since they told, and not done.
    since: u32,
    /// Jobs given and not done.
    running: u32,
    /// Jobs whose values are on their way.
    coming: u32,
    pace: DonePace,
    /// The workers did something since that was asked last.
    moved: bool,
}

impl Hands {
    /// The number of workers that have nothing to do, and for which nothing is on its way.
    pub(crate) fn idle(&self) -> u32 {
        self.told.saturating_sub(self.since + self.coming)
    }

    /// Hosted jobs that the workers have.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    pub(crate) fn spare(&self) -> Spare {
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
        self.told_at = self.given;
        self.since = 0;
        fewer
    }

    /// A job comes, and waits for its values.
    pub(crate) fn expect(&mut self) {
        self.coming += 1;
    }

    /// A job that was coming will not go to the workers.
    pub(crate) fn no_more_coming(&mut self) {
        self.coming -= 1;
    }

    /// A job whose values are here goes to the workers; its number, in the order of such things.
    pub(crate) fn give(&mut self, now: Duration) -> u64 {
        self.coming -= 1;
        self.given += 1;
        self.since += 1;
        self.running += 1;
        if self.running == 1 {
            self.pace.mark = now;
        }
        self.given
    }

    /// A job goes to the workers only to be held for others: no worker that was idle is busy with it.
    pub(crate) fn give_to_hold(&mut self) {
        self.coming -= 1;
        self.running += 1;
    }

    /// The workers do not have the job any more that was given to them under that number.
    pub(super) fn end(&mut self, given: u64) {
        self.running -= 1;
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
            let took = (now - pace.mark).as_secs_f64() / f64::from(pace.done);
            let each = pace.each.map_or(took, |each| each + NEWEST * (took - each));
            pace.each = Some(each);
            pace.mark = now;
            pace.done = 0;
        }
    }

    /// How long a hosted job takes here on average, in seconds, once one has been done.
    pub(crate) fn each(&self) -> Option<f64> {
        self.pace.each
    }
}
