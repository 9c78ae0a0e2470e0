//! Jobs that came back from another site that fell silent. It may only be cut off, and go on with them: they are done last, so that after the cut
//! their results are there before anybody has begun with them. See `README.md`.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{
        Action, Context, DepartureId,
        books::Job,
        expiry::{Expiry, ran_out},
    },
    Repair,
};
use crate::job::Back;

/// The time between two such jobs that a node with nothing else to do begins: its workers take the first, and say so. Too small: it begins with
/// more than it has workers. Too large: they wait.
const PACE: Duration = Duration::from_millis(5);

/// The jobs that are done last. For the workers they are still away.
#[derive(Default)]
pub(super) struct Late {
    /// By their depths. The smallest come first: of a large one that has been begun when the other side comes over more was done in vain.
    jobs: BTreeMap<(usize, DepartureId), LateJob>,
    /// When one may be begun again.
    next: Duration,
    look_at: Option<Duration>,
}

struct LateJob {
    back: Back,
    job: Job,
    /// When it came back.
    since: Duration,
}

impl Late {
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.look_at
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Takes out those jobs.
    pub(super) fn take(
        &mut self,
        which: impl Fn(DepartureId, &Job) -> bool,
    ) -> Vec<(DepartureId, Job)> {
        let taken = (self.jobs).extract_if(.., |(_, departure), late| which(*departure, &late.job));
        taken
            .map(|((_, departure), late)| (departure, late.job))
            .collect()
    }
}

impl Repair {
    /// A job that has come back is done last.
    pub(super) fn put_off(
        &mut self,
        cx: &mut Context<'_>,
        departure: DepartureId,
        back: Back,
        job: Job,
    ) {
        let since = cx.now;
        let place = (job.name.id.depth(), departure);
        self.late.jobs.insert(place, LateJob { back, job, since });
    }

    /// A node has nothing else to do: one of the jobs that were put off goes to the workers.
    pub(crate) fn do_one_late(&mut self, cx: &mut Context<'_>) {
        if let Some(((_, departure), late)) = self.late.jobs.pop_last() {
            if late.back.held {
                // The others could have had it since.
                self.held_since.insert(late.job.name, late.since);
            }
            cx.actions.push_back(Action::PutBack(departure, late.back));
            // Others wait for jobs.
            cx.books.look_again();
        }
    }

    /// Looks whether jobs that were put off are to be done now. `in_vain` says that this node has asked all others for work.
    pub(super) fn look_at_late(&mut self, cx: &mut Context<'_>, in_vain: bool) {
        let since = self.late.jobs.values().map(|late| late.since).min();
        let until = since.map(|since| since + cx.config.partition_wait.saturating_mul(2));
        self.late.look_at = until;
        let Some(until) = until else {
            return;
        };
        let is_due = until <= cx.now;
        if is_due {
            ran_out(Expiry::Late);
        }
        if is_due || cx.books.draining {
            while self.late.len() > 0 {
                self.do_one_late(cx);
            }
        } else if in_vain && cx.books.hands.idle() > 0 && self.held.is_empty() {
            if self.late.next <= cx.now {
                self.do_one_late(cx);
                self.late.next = cx.now + PACE;
            }
            self.late.look_at = Some(until.min(self.late.next));
        }
    }
}
