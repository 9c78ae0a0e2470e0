//! Stealing: which node asks which for work, and which is served.
//!
//! * `thief`: an idle node asks the node that its [`StealPolicy`] names; when a round of requests has
//!   failed it leaves lifelines, standing requests, and is silent. The jobs that it finds are for those
//!   too that hang on it.
//! * `victim`: takes the oldest jobs of its workers for the next of those that ask.
//! * `trips`: how far the others are.
//! * `worth`: whether a job is worth the way to the node that asks.
//! * `numbers`: the numbers of stealing, and what goes wrong if they are wrong.
//!
//! A theft ends here as soon as its jobs are in the books, on both sides: what becomes of them is the
//! business of `repair`, which this conversation does not know.

mod numbers;
mod policy;
mod thief;
mod trips;
mod victim;
mod worth;

#[cfg(test)]
mod tests;

pub use policy::{Around, StealPolicy};
pub use thief::Asking;
pub use worth::{JobCosts, Terms};

use std::{collections::BTreeMap, time::Duration};

use super::{
    Action, Context, Deal, HostedId, Lattices, Message, NodeId, Peer, ProtocolConfig, Request,
    RequestKind, Spent, Taken, Token, TookJobs, View,
    books::{Books, HERE, HostedState, JobSource, Outbox, Spare, Trip, in_pieces},
};
use crate::job::{Answer, JobLoad, JobSample, Parcel, ValueSize};
use numbers::{
    ACKNOWLEDGE_WAIT, ANSWERS_WAIT, ANSWERS_WAIT_MOST, BATCH, DEADLOCK_REST, ENOUGH, FAR_REST,
};
use thief::{Need, Reply, Thief};
use trips::Trips;
pub(crate) use victim::Asker;
use victim::Victim;
use worth::{TRIAL, Worth};

/// The two sides of a theft, as far as this node has a part in them.
pub struct Steal {
    thief: Thief,
    victim: Victim,
    trips: Trips,
    worth: Worth,
    /// Whether the workers were told that some node waits for work: see `satin::hungry`.
    told_hungry: bool,
    /// The memory of this node is nearly used up.
    is_full: bool,
}

impl Steal {
    pub(crate) fn new(config: &ProtocolConfig) -> Steal {
        Steal {
            thief: Thief::new(config),
            victim: Victim::default(),
            trips: Trips::default(),
            worth: Worth::new(config.judgement),
            told_hungry: false,
            is_full: false,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let both = [self.thief.next_timeout(), self.victim.next_timeout()];
        both.into_iter().flatten().min()
    }

    /// The end of a turn: what the workers can spare goes to those who ask, and if they have nothing to do others are asked.
    /// `only_for_others`: jobs are held here that this node is not to run; one is offered even if workers are idle.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>, only_for_others: bool) {
        // Jobs may have come back in this turn: nodes that asked in vain are served before this one
        // goes to rest.
        self.look_again_if_due(cx);
        let hands = &cx.books.hands;
        // More hosted jobs than workers: so many can go on to nodes that hang on this one.
        let backlog = hands.running().saturating_sub(cx.view.me().threads);
        let spare = match hands.spare() {
            // A held job is for others although workers are idle here: without this it would never
            // be offered.
            Spare::Nothing if only_for_others => Spare::Surplus(1),
            spare => spare,
        };
        // First the others, then this node itself: what it has need not be asked for elsewhere.
        self.victim.serve(cx, spare, backlog, &mut self.worth);
        let hands = &cx.books.hands;
        let need = Need {
            idle: hands.idle(),
            others: self.victim.hang_on(),
            running: hands.running(),
        };
        match cx.books.draining || self.is_full {
            // The node asks for work no more, but the requests under way still run out.
            true => self.thief.give_up(cx.now),
            false => self.thief.seek(cx, &self.trips, need),
        }
        if let Some(hungry) = self.victim.is_asked()
            // Told on a change only: the workers read it at every spawn, and this node looks at
            // every turn.
            && hungry != self.told_hungry
        {
            self.told_hungry = hungry;
            cx.actions.push_back(Action::Hungry(hungry));
        }
    }

    fn look_again_if_due(&mut self, cx: &mut Context<'_>) {
        if cx.books.take_look_again() {
            self.victim.look_again();
        }
    }

    /// Says what the books have for others and what is due; all of it, if this is the last turn.
    pub(crate) fn say(&mut self, cx: &mut Context<'_>) {
        let mut outboxes = std::mem::take(&mut cx.books.outboxes);
        outboxes.retain(|peer, outbox| {
            // A word that waits for more words would never be said by a node that is gone.
            if cx.books.leaving || self.is_due(cx, *peer, outbox) {
                let epoch = cx.links.epoch(*peer);
                let messages = cx.books.messages(*peer, epoch, std::mem::take(outbox));
                let messages = messages.map(|message| Action::Send(*peer, message));
                cx.actions.extend(messages);
            }
            // An outbox that was said is empty and without a time: it goes. The others keep theirs.
            outbox.due.is_some()
        });
        cx.books.outboxes = outboxes;
    }

    /// The number of further results of which this node need not hear at once. None, unless it holds answers back, until a timeout.
    pub(crate) fn may_wait(&self, books: &Books) -> u32 {
        let holding = (books.outboxes.values()).find(|outbox| !outbox.answers.is_empty());
        match holding {
            Some(Outbox {
                answers,
                due: Some(_),
                ..
            }) if books.hosts_for_one() => {
                let room = ENOUGH.saturating_sub(answers.len()) as u32;
                // Of the last one it hears.
                let more = room.min(self.thief.jobs_before_next_ask(&books.hands));
                more.saturating_sub(1)
            }
            _ => 0,
        }
    }

    fn is_due(&self, cx: &Context<'_>, peer: Peer, outbox: &mut Outbox) -> bool {
        // Acknowledgements only free memory, so they wait longest.
        let mut wait = ACKNOWLEDGE_WAIT;
        if !outbox.answers.is_empty() {
            let round_trip = self.trips.to(cx.view, peer);
            let hands = &cx.books.hands;
            let more = hands.running() > 0 && thief::is_tiny(hands, round_trip);
            // A tiny job costs less than the message with its answer. Of a larger one the owner may
            // wait at its sync: that answer goes at once.
            wait = match more && outbox.answers.len() < ENOUGH {
                true => (round_trip.max(BATCH).mul_f64(ANSWERS_WAIT)).min(ANSWERS_WAIT_MOST),
                false => Duration::ZERO,
            };
        }
        // The earliest word decides: a later acknowledgement must not hold an answer up.
        let due = outbox
            .due
            .map_or(cx.now + wait, |due| due.min(cx.now + wait));
        outbox.due = Some(due);
        outbox.is_urgent() || outbox.acknowledge.len() >= ENOUGH || due <= cx.now
    }

    // ---- links

    pub(crate) fn connected(
        &mut self,
        cx: &mut Context<'_>,
        peer: Peer,
        epoch: u64,
        round_trip: Option<Duration>,
    ) {
        if let Some(round_trip) = round_trip {
            self.trips.note(cx, peer, round_trip);
        }
        self.trips.connected(cx.view, peer);
        self.thief.connected(peer, epoch);
        // Requests by the old connection were given up by their senders, which ask anew.
        self.victim.forget_before(peer, epoch);
    }

    pub(crate) fn disconnected(&mut self, cx: &Context<'_>, peer: Peer, epoch: u64) {
        self.thief.forget_before(peer, epoch + 1);
        self.victim.forget_before(peer, epoch + 1);
        if cx.links.epoch(peer).is_none() {
            self.trips.disconnected(peer);
        }
    }

    pub(crate) fn unreachable(&mut self, peer: Peer) {
        self.thief.unreachable(peer);
    }

    pub(crate) fn round_trip(&mut self, cx: &mut Context<'_>, peer: Peer, round_trip: Duration) {
        self.trips.note(cx, peer, round_trip);
    }

    // ---- who is there

    pub(crate) fn joined(&mut self, cx: &Context<'_>) {
        self.thief.joined(cx);
    }

    /// The peer's life is over.
    pub(crate) fn life_ended(&mut self, peer: Peer) {
        self.thief.life_ended(peer);
        self.victim.life_ended(peer);
        self.trips.life_ended(peer);
        self.worth.life_ended(peer);
    }

    /// The memory of this node is nearly used up, or there is room again: as long as it is full it asks no other for work.
    pub(crate) fn memory_full(&mut self, cx: &mut Context<'_>, is_full: bool) {
        self.is_full = is_full;
        if is_full {
            self.thief.close(cx);
        }
    }

    /// Begins to leave: from here on the node asks no other for work.
    pub(crate) fn drain(&mut self, cx: &mut Context<'_>) {
        self.thief.close(cx);
    }

    /// Leaves at once: the node asks no other any more, and serves none.
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>) {
        self.thief.close(cx);
        self.victim.close(cx);
    }

    // ---- the victim's side

    pub(crate) fn public(&mut self) {
        self.victim.look_again();
    }

    /// There are tasks that need what that node keeps.
    pub(crate) fn kept_for(&mut self, keeper: NodeId) {
        self.victim.kept_for(keeper);
    }

    pub(crate) fn asked(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        request: Request,
        most: u32,
        kind: RequestKind,
    ) {
        let round_trip = self.trips.to(cx.view, from);
        self.victim.ask(cx, from, request, most, kind, round_trip);
        // No turn follows: the asker is told, rather than left waiting.
        if cx.books.leaving {
            self.victim.close(cx);
        }
    }

    pub(crate) fn cut(&mut self, from: Peer, request: Request) {
        self.victim.remove(from, request);
    }

    /// The workers have answered that request: the asker that it was for; `None` if that request is not under way.
    pub(crate) fn took(
        &mut self,
        cx: &mut Context<'_>,
        took: &TookJobs,
        lattices: &dyn Lattices,
    ) -> Option<Asker> {
        self.stay(cx, &took.not_worth);
        let taken = took
            .jobs
            .iter()
            .map(|(Taken::Own(_, parcel) | Taken::Hosted(_, parcel))| values_of(parcel, lattices));
        let stayed = took.not_worth.iter().map(|load| load.values.clone());
        let mut mentioned = taken.chain(stayed).peekable();
        if let Some(first) = mentioned.peek() {
            self.victim.next_mention(first.clone());
        }
        mentioned.for_each(|values| self.worth.mentioned(cx.now, &values));
        self.seen(&took.samples);
        self.look_again_if_due(cx);
        let asker = self.victim.took(took.request, took.jobs.len())?;
        // What is known of the dead is forgotten, and stays so.
        if !took.not_worth.is_empty() && cx.view.is_alive(asker.peer) {
            (self.worth).looked_in_vain(cx.now, asker.peer, took.not_worth.len());
        }
        Some(asker)
    }

    /// Are jobs of others, which came here, worth the way to that asker? The workers' own have been judged by the terms.
    pub(crate) fn are_worth(
        &mut self,
        cx: &mut Context<'_>,
        asker: &Asker,
        jobs: &[Taken],
        lattices: &dyn Lattices,
    ) -> bool {
        let terms = (self.worth).terms(cx.now, asker.peer, asker.round_trip);
        let terms = terms.with_at_hand(cx.books.holders.at_hand(cx.view, asker.peer));
        let loads = jobs.iter().filter_map(|job| match job {
            Taken::Own(..) => None,
            Taken::Hosted(key, parcel) => {
                let hosted = cx.books.look(*key).filter(|hosted| !hosted.held)?;
                let values = values_of(parcel, lattices);
                hosted.shape.map(|shape| JobLoad {
                    values,
                    ..shape.into()
                })
            }
        });
        let refused: Vec<JobLoad> = loads.filter(|load| !terms.accept(load)).collect();
        self.stay(cx, &refused);
        refused.is_empty()
    }

    /// What the workers have seen of jobs.
    pub(crate) fn seen(&mut self, samples: &[JobSample]) {
        samples.iter().for_each(|sample| self.worth.learn(sample));
    }

    /// Is there no room for jobs of others?
    pub(crate) fn has_full_memory(&self) -> bool {
        self.is_full
    }

    /// Which requests for work are under way.
    pub(crate) fn asking(&self, view: &View) -> Asking {
        self.thief.asking(view)
    }

    /// The round trip to that peer, as far as that is known.
    pub(crate) fn distance(&self, view: &View, peer: Peer) -> Duration {
        self.trips.to(view, peer)
    }

    /// What jobs cost here and elsewhere, as far as that is known.
    pub(crate) fn costs(&self) -> JobCosts {
        self.worth.costs()
    }

    /// These jobs stay, as they are not worth the way to the node that asked.
    fn stay(&mut self, cx: &mut Context<'_>, refused: &[JobLoad]) {
        cx.books.tally.not_worth += refused.len() as u64;
        (refused.iter()).for_each(|load| self.worth.wonder(cx.now, load));
    }

    /// Nothing that is here is worth the way to that asker: it is told so, or hangs on for a while.
    pub(crate) fn refuse(&mut self, cx: &mut Context<'_>, asker: Asker) {
        let wait = self.worth.refused(asker.peer, asker.round_trip);
        // What is not for this one may be for the next; and each is refused once.
        self.victim.look_again();
        self.victim.pass_over(cx, asker, wait, Message::NotWorth);
    }

    // ---- what jobs and their ways cost

    /// A hosted job has been done, perhaps.
    pub(crate) fn done(&mut self, cx: &mut Context<'_>, key: HostedId, answer: &Answer) {
        let (Some(hosted), Answer::Result { bytes, .. }) = (cx.books.look(key), answer) else {
            return;
        };
        let Some(shape) = hosted
            .shape
            .filter(|_| hosted.state == HostedState::Started)
        else {
            return;
        };
        let Some(begun) = hosted.begun else {
            return;
        };
        let mut took = cx.now.saturating_sub(begun);
        // Results of tiny jobs come together: when each of these jobs began is not known.
        if let Some(origin) = hosted.origin()
            && took <= ANSWERS_WAIT_MOST
            && thief::is_tiny(&cx.books.hands, self.trips.to(cx.view, origin))
            && let Some(each) = cx.books.hands.each()
        {
            took = Duration::from_secs_f64(each * f64::from(cx.view.me().threads.max(1)));
        }
        let sample = JobSample {
            shape,
            took,
            back: bytes.len() as u64,
        };
        if worth::is_much(&sample) {
            let spent = Spent {
                waited: begun.saturating_sub(hosted.came).as_micros() as u64,
                took: sample.took.as_micros() as u64,
            };
            let waiters = hosted.waiters.iter().filter(|(_, waiter)| waiter.origin);
            cx.actions.extend(waiters.map(|(deal, _)| {
                Action::Send(deal.peer, Message::Spent(vec![(deal.token, spent)]))
            }));
        }
        self.worth.learn(&sample);
    }

    /// Tells all that wait for hosted jobs how much of these is done: their origins, and those that claim them.
    pub(crate) fn tell_parts(cx: &mut Context<'_>, parts: &[(HostedId, u16)]) {
        let mut told: BTreeMap<Peer, Vec<(Token, u16)>> = BTreeMap::new();
        for (key, part) in parts {
            let Some(hosted) = cx.books.look(*key) else {
                continue;
            };
            for deal in hosted.waiters.keys() {
                if deal.peer == HERE {
                    let away = cx.books.look_away(*deal);
                    if let Some(JobSource::Own(departure)) = away.map(|away| away.source) {
                        cx.actions.push_back(Action::NotePart(departure, *part));
                    }
                } else if cx.view.is_alive(deal.peer) {
                    told.entry(deal.peer).or_default().push((deal.token, *part));
                }
            }
        }
        let told = told.into_iter();
        cx.actions
            .extend(told.map(|(peer, parts)| Action::Send(peer, Message::PartsDone(parts))));
    }

    /// A thief says how much of these jobs is done. A node that passed a job on tells those that wait for it there.
    pub(crate) fn parts_done(cx: &mut Context<'_>, from: Peer, parts: &[(Token, u16)]) {
        let mut onwards = Vec::new();
        for (token, part) in parts {
            let away = cx.books.look_away(Deal::new(from, *token));
            match away.map(|away| away.source) {
                Some(JobSource::Own(departure)) => {
                    cx.actions.push_back(Action::NotePart(departure, *part));
                }
                Some(JobSource::Hosted(key)) => onwards.push((key, *part)),
                None => {}
            }
        }
        Steal::tell_parts(cx, &onwards);
    }

    /// A thief says how long jobs took there.
    pub(crate) fn spent(cx: &mut Context<'_>, from: Peer, spent: &[(Token, Spent)]) {
        for (token, spent) in spent {
            if let Some(away) = cx.books.outstanding(Deal::new(from, *token))
                && let Some(trip) = &mut away.trip
            {
                let away = cx.now.saturating_sub(trip.since);
                trip.spent = Some(*spent).filter(|spent| spent.in_all() <= away);
            }
        }
    }

    /// Answers have come: what is not the time that the jobs took was their way.
    pub(crate) fn returned(&mut self, cx: &Context<'_>, from: Peer, answers: &[(Token, Answer)]) {
        for (token, answer) in answers {
            if let Answer::Result { bytes, .. } = answer
                && let Some(away) = cx.books.look_away(Deal::new(from, *token))
                && !away.answering
                && let Some(trip) = away.trip
                && let Some(spent) = trip.spent
            {
                let (shape, back) = (away.job.shape, bytes.len() as u64);
                let took = Duration::from_micros(spent.took);
                self.worth.learn(&JobSample { shape, took, back });
                let way = cx.now.saturating_sub(trip.since);
                let way = way.saturating_sub(spent.in_all() + self.trips.to(cx.view, from));
                // While what it borrowed was fetched it waited there.
                let moved = shape.own_bytes() + back;
                self.worth.moved(cx.now, from, moved, way);
            }
        }
    }

    /// The bytes of a trial have arrived there.
    pub(crate) fn tried(&mut self, cx: &Context<'_>, from: Peer, bytes: u64) {
        if let Some(since) = self.worth.tried(from).filter(|_| bytes == TRIAL as u64) {
            let way = cx.now.saturating_sub(since);
            let way = way.saturating_sub(self.trips.to(cx.view, from));
            self.worth.moved(cx.now, from, bytes, way);
        }
    }

    /// Has this node asked all others for work in vain?
    pub(crate) fn asks_in_vain(&self) -> bool {
        self.thief.asks_in_vain()
    }

    /// The workers had nothing: the asker waits.
    pub(crate) fn wait(&mut self, asker: Asker) {
        self.victim.wait(asker);
    }

    /// A job of others that has come just now does not go to yet another site at once: it would only travel, and its
    /// answer all the way back.
    pub(crate) fn is_too_fresh(&self, cx: &Context<'_>, asker: &Asker, job: &Taken) -> bool {
        let Taken::Hosted(key, _) = job else {
            return false;
        };
        let hosted = cx.books.look(*key).filter(|_| !asker.near);
        hosted.is_some_and(|hosted| cx.now < hosted.since + FAR_REST * asker.round_trip)
    }

    /// Serves that asker with nothing, as the job is not for it: it is told so, or
    /// hangs on for a while; for longer, if the job must wait.
    pub(crate) fn pass_over(&mut self, cx: &mut Context<'_>, asker: Asker, must_wait: bool) {
        let wait = match must_wait {
            true => DEADLOCK_REST.max(asker.round_trip),
            false => asker.round_trip,
        };
        self.victim.pass_over(cx, asker, wait, victim::none);
    }

    /// The jobs that are outstanding from now on are sent to that asker; so many more could have been taken.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        asker: &Asker,
        jobs: Vec<(Token, Parcel)>,
        left: u32,
    ) {
        // The workers have more, so the next asker can be served without their word.
        if left > 0 {
            self.victim.look_again();
        }
        // Answers and jobs that are handed back go first, so that the thief does not look for work elsewhere.
        self.say(cx);
        self.worth.accepted(asker.peer);
        for (token, _) in &jobs {
            if let Some(away) = cx.books.outstanding(Deal::new(asker.peer, *token)) {
                away.trip = Some(Trip {
                    since: cx.now,
                    spent: None,
                });
            }
        }
        for (_, parcel) in &jobs {
            // It fetches them before it begins, once: for the next job they are there.
            for name in &parcel.needs {
                (cx.books.holders).note(asker.peer, *name, parcel.root_run().name);
            }
        }
        for jobs in in_pieces(jobs, |(_, parcel)| parcel.arguments.len()) {
            let jobs = Message::Jobs {
                request: asker.request,
                jobs,
                left,
                // The node has no clock that others know: its driver fills that in.
                sent_ms: 0,
            };
            cx.actions.push_back(Action::Send(asker.peer, jobs));
        }
    }

    // ---- the thief's side

    /// A victim has jobs, but none is worth the way to here.
    pub(crate) fn refused(&mut self, cx: &mut Context<'_>, from: Peer, request: Request) {
        self.answered(cx, from, request, 0, &[]);
    }

    /// A victim has answered that request: with jobs, or without any.
    pub(crate) fn answered(
        &mut self,
        cx: &Context<'_>,
        from: Peer,
        request: Request,
        left: u32,
        jobs: &[(Token, Parcel)],
    ) {
        let reply = Reply {
            found: !jobs.is_empty(),
            are_tasks: jobs.iter().any(|(_, parcel)| parcel.keeps),
            left,
            round_trip: self.trips.to(cx.view, from),
        };
        self.thief.answered(from, request, reply);
    }
}

/// The values that a job mentions, as far as their sizes are known here.
fn values_of(parcel: &Parcel, lattices: &dyn Lattices) -> Vec<ValueSize> {
    let mentioned = parcel.needs.len() - parcel.lent_names().len();
    let lent = parcel.lent_names().iter().zip(&parcel.lent);
    let mentioned = parcel.needs[..mentioned].iter();
    let known = mentioned.filter_map(|name| Some((*name, lattices.value_size(*name)?)));
    // Of what it borrows the parcel tells the sizes: some of that is not here.
    let values = known.chain(lent.map(|(name, bytes)| (*name, *bytes)));
    values
        .map(|(name, bytes)| ValueSize { name, bytes })
        .collect()
}
