//! Jobs that take down whoever runs them: who is blamed, who may run such a job, and when it is given up.

use std::time::Duration;

use super::{
    super::{
        Action, Context, Deal, HostedId, Peer, Taken, Token, View,
        books::OutstandingKind,
        expiry::{Expiry, ran_out},
    },
    Repair,
};
use crate::job::{JobName, Parcel};

/// The wait of a job that has taken down nodes for another node, before it is run where it is. Too small: the
/// job takes down the node that waits for it, and what that node knows. Too large: after a crash a job waits
/// although nobody else is free.
const HELD: Duration = Duration::from_secs(5);

/// The wait after that, until everybody has been told whom the job takes down next. Too small: a
/// death that nobody counts. Too large: the held job waits longer for nothing.
const TOLD: Duration = Duration::from_millis(500);

/// The next step with held jobs, and when it is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    /// Tell the other nodes that this node will run them.
    Blame(Duration),
    /// Run them.
    Run(Duration),
}

impl Release {
    pub(super) fn at(self) -> Duration {
        let (Release::Blame(at) | Release::Run(at)) = self;
        at
    }
}

/// Is there anybody else who could run something?
pub(super) fn is_company(view: &View) -> bool {
    let me = view.me().peer;
    let mut others = view.members().filter(|member| member.peer != me);
    others.any(|member| !view.is_draining(member.peer))
}

impl Repair {
    /// If the peer had begun a job of this node when it died, everybody is told so. How many nodes the job has taken down by
    /// now.
    pub(super) fn blame(&mut self, cx: &mut Context<'_>, deal: Deal) -> u32 {
        let away = cx.books.outstanding(deal);
        // A claim has not been run by its owner for this node, and a job that did not begin cannot
        // have taken it down: when half of a pool dies at one moment, the jobs on their way there
        // are not to blame.
        let Some(away) = away.filter(|away| away.kind == OutstandingKind::Theft && away.begun)
        else {
            return 0;
        };
        let name = &away.job.name;
        // Written on the sheet, not in the books: the count must outlive this node too.
        cx.table.blame(cx.now, name, deal.peer);
        away.above + cx.table.victims(name, cx.view)
    }

    /// All the jobs that are held here. If no other node takes them soon, they are run here after all.
    pub(crate) fn held(&mut self, cx: &mut Context<'_>, names: Vec<JobName>) {
        // A node that asked in vain may be served with what is held for others.
        if names.len() > self.held.len() {
            cx.books.look_again();
        }
        self.held = names;
        let since = self.held.iter().map(|name| {
            // The workers tell all names each time, so the first time counts.
            let since = self.held_since.entry(name.clone());
            *since.or_insert(cx.now)
        });
        // A job that was about to leave, and stayed, does not wait all over again.
        let first = since.min().map(|first| first + cx.config.paced(HELD));
        self.release_at = match (first, self.release_at) {
            // The others have been told, and the end of that wait is set: a new name does not
            // put it off.
            (_, run @ Some(Release::Run(_))) => run,
            (first, _) => first.map(Release::Blame),
        };
        if self.held.is_empty() {
            let old = 2 * cx.config.paced(HELD);
            // A job that left for a thief may be told as held again soon after. Older times are of
            // no use.
            (self.held_since).retain(|_, since| *since + old > cx.now);
        }
    }

    /// A job leaves: if it is held once more, others are asked once more.
    pub(super) fn no_more_held(&mut self, name: &JobName) {
        self.held_since.remove(name);
    }

    /// Runs the held jobs that no other node has taken. Before, all nodes are told which jobs it was if this node dies now.
    pub(super) fn release_if_due(&mut self, cx: &mut Context<'_>) {
        let alone = !is_company(cx.view);
        match self.release_at {
            // The others for whom the jobs were held are gone, and nobody is there to be told
            // either.
            Some(_) if alone => self.release(cx),
            Some(Release::Blame(at) | Release::Run(at)) if at <= cx.now => {
                ran_out(Expiry::Held);
                // Of what has been held since nobody has been told.
                if self.blame_self(cx) {
                    self.release_at = Some(Release::Run(cx.now + cx.config.paced(TOLD)));
                } else {
                    // All held jobs were told before: a second wait would tell nothing new.
                    self.release(cx);
                }
            }
            _ => {}
        }
    }

    /// Writes on the own sheet that the held jobs take down this node, if it dies from now on. True if that is news.
    fn blame_self(&self, cx: &mut Context<'_>) -> bool {
        // The own life counts only once it is over: nodes that live are not counted as victims.
        let me = cx.view.me().peer;
        let mut news = false;
        for name in &self.held {
            news |= cx.table.blame(cx.now, name, me);
        }
        news
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        cx.books.release();
        self.release_at = None;
        self.held_since.clear();
        cx.actions.push_back(Action::Release);
    }

    /// A hosted job that has taken down nodes: its origin is asked first, so that it knows that the job has begun here.
    pub(super) fn asks_before(cx: &mut Context<'_>, key: HostedId, parcel: &Parcel) -> bool {
        // A theft counts as the beginning unless the job has taken down nodes: a question would
        // cost all other jobs a round trip.
        if parcel.history.crashes == 0 {
            return false;
        }
        // The leave was given before, and the job starts.
        let Some(hosted) = cx.books.hosted(key).filter(|hosted| !hosted.may_begin) else {
            return false;
        };
        let origins = hosted.waiters.iter().filter(|(_, is)| is.origin);
        let origins: Vec<Deal> = origins.map(|(deal, _)| *deal).collect();
        // Claimants only: nobody is left who could give leave.
        if origins.is_empty() {
            return false;
        }
        hosted.asks = Some(Box::new(parcel.clone()));
        // A job has one origin as a rule; the first leave will do.
        for deal in origins {
            cx.books.outbox(deal.peer).begin.push(deal.token);
        }
        true
    }

    /// Begins a hosted job whose origin is gone, and cannot give it leave, while others wait for it.
    pub(super) fn begin_unasked(&mut self, cx: &mut Context<'_>, key: HostedId) {
        let hosted = cx.books.look(key);
        // As long as an origin waits, its leave is on its way, or is asked for again by a new
        // connection.
        if hosted.is_some_and(|hosted| !hosted.waiters.values().any(|waiter| waiter.origin)) {
            self.begin_here(cx, key);
        }
    }

    /// If that hosted job has waited for leave to begin, it begins.
    fn begin_here(&mut self, cx: &mut Context<'_>, key: HostedId) {
        if let Some(hosted) = cx.books.hosted(key)
            // Leave may come twice, after a new connection: the parcel is there only once.
            && let Some(parcel) = hosted.asks.take()
        {
            hosted.may_begin = true;
            self.start(cx, key, *parcel);
        }
    }

    /// A thief has a worker for these jobs: from now on its death counts.
    pub(crate) fn begin(cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            match cx.books.outstanding(Deal::new(from, *token)) {
                Some(away) => {
                    // Noted before leave is given: if the thief dies as soon as it begins, the job
                    // is blamed.
                    away.begun = true;
                    cx.books.outbox(from).go.push(*token);
                }
                // The job has come back, or been answered, another way.
                None => cx.books.outbox(from).recall.push(*token),
            }
        }
    }

    /// The origin of these jobs knows that they begin here.
    pub(crate) fn go(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            if let Some(key) = cx.books.key(Deal::new(from, *token)) {
                self.begin_here(cx, key);
            }
        }
    }

    /// Are jobs held here for others, and are all orphans that they may claim known here?
    pub(crate) fn offers_held(&self, cx: &Context<'_>) -> bool {
        // Handed out earlier, a job might run again that is an orphan of a node which has not
        // flushed yet.
        !self.held.is_empty() && cx.table.is_settled()
    }

    /// Is that job only for others?
    pub(super) fn is_held(&self, job: &Taken) -> bool {
        let (Taken::Own(_, parcel) | Taken::Hosted(_, parcel)) = job;
        self.held_since.contains_key(&parcel.name())
    }
}
