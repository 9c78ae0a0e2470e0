//! The victim's side: which nodes ask, and which is served next.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{
    super::{
        Action, Context, Message, NodeId, Peer, Request, RequestKind,
        books::{Spare, lacking},
    },
    numbers::{ASKS_OF_A_PEER, FAR_PATIENCE, PASSED_OVER_MOST, PATIENCE},
    worth::{Worth, is_free, trial},
};
use crate::job::{ValueSize, Wants};

/// A node that wants a job.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) peer: Peer,
    pub(super) request: Request,
    /// The number of jobs that are asked for, at most.
    pub(super) most: u32,
    pub(super) kind: RequestKind,
    /// Whether the asker stands at this site.
    pub(super) near: bool,
    /// The epoch of the connection it came on: with that, it goes.
    epoch: u64,
    /// The round trip to the asker.
    pub(super) round_trip: Duration,
    /// When an ordinary request is answered at the latest, once it has begun to wait.
    until: Option<Duration>,
    /// How often it was passed over for others that hold what the next jobs mention.
    passed_over: u32,
    /// It does not want anything any more; what has been taken for it is sent all the same.
    is_cut: bool,
}

/// The question that the workers have been asked.
struct Taking {
    request: u64,
    most: u32,
    asker: Asker,
}

/// The side of a node that is asked for work.
#[derive(Default)]
pub(super) struct Victim {
    /// The requests that wait to be served, in the order of arrival.
    askers: VecDeque<Asker>,
    /// Requests that stand and hang on until then, because the jobs that were there were not for them.
    parked: Vec<(Duration, Asker)>,
    /// The question to the workers that is not answered yet.
    taking: Option<Taking>,
    /// The number of the last question to the workers.
    takes: u64,
    /// The workers were asked and had too little: they will say when there is something.
    armed: bool,
    /// They had too little for a node that asked ahead: there may be enough for one that has nothing to do.
    too_few: bool,
    /// Nodes for which there are tasks, as they keep what these need, even if workers here have nothing to do. Each with the number of the last
    /// question to the workers before they said so.
    kept_for: BTreeMap<NodeId, u64>,
    /// The values that the last job mentioned that left or could have: the next ones will do so as well, most likely.
    mentioned: Vec<ValueSize>,
}

impl Victim {
    pub(super) fn ask(
        &mut self,
        cx: &mut Context<'_>,
        peer: Peer,
        request: Request,
        most: u32,
        kind: RequestKind,
        round_trip: Duration,
    ) {
        let mut of_peer = self.askers.iter().filter(|asker| asker.peer == peer);
        // A peer that leaves more requests than it needs, by mistake, must not fill the memory
        // of this node.
        if let Some(oldest) = of_peer.next()
            && of_peer.count() + 1 >= ASKS_OF_A_PEER
        {
            let oldest = oldest.request;
            self.remove(peer, oldest);
            say_none(cx, peer, oldest);
        }
        // The last word of the workers may be old: an ordinary request asks them anew. A lifeline
        // can wait for their word.
        self.armed &= kind.stands();
        self.askers.push_back(Asker {
            peer,
            request,
            most: most.max(1),
            kind,
            near: cx.view.is_near(peer),
            epoch: cx.links.epoch(peer).unwrap_or(0),
            round_trip,
            until: None,
            passed_over: 0,
            is_cut: false,
        });
    }

    pub(super) fn remove(&mut self, peer: Peer, request: Request) {
        let is_it = |asker: &Asker| asker.peer == peer && asker.request == request;
        self.askers.retain(|asker| !is_it(asker));
        self.parked.retain(|(_, asker)| !is_it(asker));
        if let Some(taking) = self.taking.as_mut().filter(|taking| is_it(&taking.asker)) {
            taking.asker.is_cut = true;
        }
    }

    /// Forgets a peer whose life is over.
    pub(super) fn life_ended(&mut self, peer: Peer) {
        // Parked lifelines go back into the queue, so that one search finds all requests of the
        // peer.
        self.unpark(Duration::MAX);
        self.askers.retain(|asker| asker.peer != peer);
        self.kept_for.remove(&peer.id);
    }

    /// Requests by connections before this epoch are not to be answered any more.
    pub(super) fn forget_before(&mut self, peer: Peer, epoch: u64) {
        self.unpark(Duration::MAX);
        self.askers
            .retain(|asker| asker.peer != peer || asker.epoch >= epoch);
    }

    /// Puts back those who were to hang on until then, or earlier.
    fn unpark(&mut self, now: Duration) {
        let due = self.parked.extract_if(.., |(until, _)| *until <= now);
        self.askers.extend(due.map(|(_, asker)| asker));
    }

    /// Notes that the workers may have something to give: they can be asked again.
    pub(super) fn look_again(&mut self) {
        self.armed = false;
        self.too_few = false;
    }

    /// Notes that there are tasks which need what that node keeps.
    pub(super) fn kept_for(&mut self, keeper: NodeId) {
        self.kept_for.insert(keeper, self.takes);
    }

    /// Jobs that are about to leave mention these values, most likely.
    pub(super) fn next_mention(&mut self, values: Vec<ValueSize>) {
        self.mentioned = values;
    }

    /// Is any asker waiting? `None` while that is being found out.
    pub(super) fn is_asked(&self) -> Option<bool> {
        let parked = self.parked.iter().map(|(_, asker)| asker);
        let any = (self.askers.iter().chain(parked)).any(|asker| !asker.is_ahead());
        // The asker that is being served is in no queue: it may be satisfied in a moment, or wait
        // again.
        self.taking.is_none().then_some(any)
    }

    /// The number of nodes of this site whose lifelines hang here.
    pub(super) fn hang_on(&self) -> u32 {
        let hang = |asker: &&Asker| asker.kind == RequestKind::Lifeline && asker.near;
        let parked = self.parked.iter().map(|(_, asker)| asker);
        self.askers.iter().chain(parked).filter(hang).count() as u32
    }

    pub(super) fn next_timeout(&self) -> Option<Duration> {
        let until = self.askers.iter().filter_map(|asker| asker.until);
        let parked = self.parked.iter().map(|(until, _)| *until);
        until.chain(parked).min()
    }

    /// Serves the next asker, if there may be something. `backlog` is the number of hosted jobs that wait for
    /// a worker.
    pub(super) fn serve(
        &mut self,
        cx: &mut Context<'_>,
        spare: Spare,
        backlog: u32,
        worth: &mut Worth,
    ) {
        if self.parked.iter().any(|(until, _)| *until <= cx.now) {
            self.look_again();
            self.unpark(cx.now);
        }
        // The workers are asked one question at a time: the answer says what is left for the next
        // asker.
        if self.taking.is_some() || self.askers.is_empty() {
            return;
        }
        let is_keeper = |asker: &Asker| self.kept_for.contains_key(&asker.peer.id);
        if let Some(place) = self.askers.iter().position(is_keeper) {
            let keeper = self.askers.remove(place).expect("it is there");
            let most = keeper.most;
            // Others go first that have nothing to do, but for what it keeps.
            return self.take(cx, keeper, most, Wants::Kept, worth);
        }
        // Workers here are idle themselves, or have said that they have nothing: they are not asked
        // again.
        if spare == Spare::Nothing || self.armed {
            let now = cx.now;
            let armed = self.armed && spare != Spare::Nothing;
            self.askers.retain_mut(|asker| {
                // A lifeline waits for work, however long that takes.
                if asker.kind.stands() {
                    return true;
                }
                // Busy workers may be about to publish something: an ordinary request waits a
                // moment for that. If workers are idle there will be nothing, and the thief is told
                // at once.
                if armed {
                    let until = *asker.until.get_or_insert(now + patience(asker));
                    if now < until {
                        return true;
                    }
                }
                say_none(cx, asker.peer, asker.request);
                false
            });
            return;
        }
        self.let_rest(cx, worth);
        let is_left = |asker: &Asker| !self.too_few || !asker.is_ahead();
        if !self.askers.iter().any(is_left) {
            return;
        }
        let next = self.choose(cx, backlog);
        let most = match spare {
            // Hosted jobs that the own workers will need stay here.
            Spare::Surplus(surplus) => next.most.min(surplus),
            _ => next.most,
        };
        self.take(cx, next, most, Wants::Surplus, worth);
    }

    /// Asks the workers for jobs for that asker; if it asks ahead, for such as `ahead` says.
    fn take(
        &mut self,
        cx: &mut Context<'_>,
        next: Asker,
        most: u32,
        ahead: Wants,
        worth: &mut Worth,
    ) {
        self.takes += 1;
        let request = self.takes;
        let terms = worth.terms(cx.now, next.peer, next.round_trip);
        let terms = terms.with_at_hand(cx.books.holders.at_hand(cx.view, next.peer));
        let terms = match next.is_ahead() {
            true => terms.with_wants(ahead),
            false => terms,
        };
        if worth.tries(cx.now, next.peer) {
            let trial = Message::Trial(trial());
            cx.actions.push_back(Action::Send(next.peer, trial));
        }
        cx.actions.push_back(Action::Take {
            request,
            most,
            terms,
        });
        self.taking = Some(Taking {
            request,
            most,
            asker: next,
        });
    }

    /// Passes over those for whom jobs have just been looked at in vain.
    fn let_rest(&mut self, cx: &mut Context<'_>, worth: &Worth) {
        let askers = std::mem::take(&mut self.askers);
        for asker in askers {
            match worth.rests_until(cx.now, asker.peer) {
                Some(until) => {
                    self.pass_over(cx, asker, until.saturating_sub(cx.now), Message::NotWorth)
                }
                None => self.askers.push_back(asker),
            }
        }
    }

    /// Takes out the asker that is served next.
    fn choose(&mut self, cx: &Context<'_>, backlog: u32) -> Asker {
        // Those that have nothing to do first, and of them the own site: jobs that are given there are soon done, and soon back. Ordinary
        // requests before lifelines, as their senders wait. Of lifelines first the one that passes
        // most on; but of jobs that were given to this node to pass on, no asker gets more
        // than there is: the jobs would go round, away from the nodes that hang on this one.
        let rank = |asker: &Asker| {
            let too_much = backlog > 0 && asker.most > backlog;
            (asker.is_ahead(), !asker.near, asker.kind.stands(), too_much)
        };
        let more_first = |asker: &Asker| match asker.kind {
            RequestKind::Lifeline => Reverse(asker.most),
            _ => Reverse(0),
        };
        // Of equal rank the one first that need not fetch what the jobs mention.
        let lacks = |asker: &Asker| {
            let at_hand = cx.books.holders.at_hand(cx.view, asker.peer);
            let bytes = lacking(&self.mentioned, &at_hand);
            if is_free(bytes) { 0 } else { bytes }
        };
        let by_right = self.first(|asker| (rank(asker), more_first(asker)));
        let place = match self.mentioned.is_empty() || self.askers.len() == 1 {
            true => by_right,
            // It has waited for others that hold the values: now it gets them itself.
            false if self.askers[by_right].passed_over >= PASSED_OVER_MOST => by_right,
            false => self.first(|asker| (rank(asker), lacks(asker), more_first(asker))),
        };
        if place != by_right {
            self.askers[by_right].passed_over += 1;
        }
        self.askers.remove(place).expect("it is there")
    }

    /// The place of the first asker in that order; of equal ones, that of the one who came first.
    fn first<O: Ord>(&self, order: impl Fn(&Asker) -> O) -> usize {
        let askers = self.askers.iter().enumerate();
        let first = askers.min_by_key(|(_, asker)| order(asker));
        first.expect("somebody asks").0
    }

    /// Returns the asker for which the jobs were taken; `None` if that question is not under way.
    pub(super) fn took(&mut self, request: u64, found: usize) -> Option<Asker> {
        let taking = self.taking.take_if(|taking| taking.request == request)?;
        // Then, and only then, the workers will say when there is more.
        let is_short = found < taking.most as usize;
        self.too_few = is_short;
        // What there is for one that asks ahead says nothing of what an idle one gets.
        if !taking.asker.is_ahead() {
            self.armed = is_short;
        }
        let keeper = taking.asker.peer.id;
        if is_short
            && self
                .kept_for
                .get(&keeper)
                .is_some_and(|since| *since < request)
        {
            self.kept_for.remove(&keeper);
        }
        Some(taking.asker)
    }

    /// Passes over an asker that the jobs were not for: it is told so in those words, or hangs on for a while.
    pub(super) fn pass_over(
        &mut self,
        cx: &mut Context<'_>,
        asker: Asker,
        wait: Duration,
        words: impl FnOnce(Request) -> Message,
    ) {
        // Put back into the queue at once, it would be served with the same job again in this very
        // turn.
        if asker.is_cut {
            return;
        }
        if asker.kind.stands() {
            self.parked.push((cx.now + wait, asker));
        } else {
            cx.actions
                .push_back(Action::Send(asker.peer, words(asker.request)));
        }
    }

    /// Puts an asker back for which there was nothing.
    pub(super) fn wait(&mut self, asker: Asker) {
        // In front: it was first, and has not been served.
        if !asker.is_cut {
            self.askers.push_front(asker);
        }
    }

    /// Tells all askers that there is nothing.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        // Lifelines too: no work will ever come from here.
        self.unpark(Duration::MAX);
        for asker in self.askers.drain(..) {
            say_none(cx, asker.peer, asker.request);
        }
    }
}

impl Asker {
    /// Has it asked all others in vain?
    pub(crate) fn stands(&self) -> bool {
        self.kind == RequestKind::Lifeline
    }

    /// Does it ask for what its workers will do later?
    pub(super) fn is_ahead(&self) -> bool {
        self.kind == RequestKind::Ahead
    }
}

fn patience(asker: &Asker) -> Duration {
    if asker.near {
        PATIENCE
    } else {
        // A thief from afar has a long way back: a little more waiting may save it a second
        // journey.
        PATIENCE + asker.round_trip.mul_f64(FAR_PATIENCE)
    }
}

/// There is nothing for that request.
pub(super) fn none(request: Request) -> Message {
    Message::Jobs {
        request,
        jobs: Vec::new(),
        left: 0,
        sent_ms: 0,
    }
}

fn say_none(cx: &mut Context<'_>, peer: Peer, request: Request) {
    cx.actions.push_back(Action::Send(peer, none(request)));
}
