//! Stealing: who asks whom for work, and the books of what was stolen.
//!
//! * `thief`: an idle node asks whom its [`StealPolicy`] says; when a round of requests has failed it leaves lifelines,
//!   standing requests, and is silent. What it finds is for those too who hang on it.
//! * `victim`: takes the oldest jobs of its workers for whoever is next among those who ask.
//! * `orphans`: what becomes of it when a node dies or leaves; see `repair/README.md`.
//! * `books`: what went away is outstanding on one side and hosted on the other, under the token that the victim gave,
//!   until the answer has come and is acknowledged.
//! * `trips`: how far the others are.
//! * `numbers`: and what goes wrong if they are wrong.
//!
//! What this knows of the workers: how many have nothing to do, and which hosted jobs are done.

mod books;
mod crs;
mod mw;
mod numbers;
mod orphans;
mod policy;
mod rs;
mod thief;
mod trips;
mod victim;

#[cfg(test)]
mod tests;

pub use crs::Crs;
pub use mw::Mw;
pub use policy::{Around, StealPolicy};
pub use rs::Rs;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Action, Config, Context, HostKey, Message, Peer, Request, Taken, Then, Token, Wanted,
    expiry::{Limit, ran_out},
    links::Way,
    repair::given_up,
};
use crate::job::{Answer, Back, Fingerprint, JobId, Parcel, Saved};
use books::{Books, HERE, Job, Kind, NotSent, Source, State};
use numbers::{
    ACKNOWLEDGE_WAIT, ANSWERS_WAIT, ANSWERS_WAIT_MOST, BURY_REST, EARLY_RECALLS, ENOUGH, FAR_REST,
    PIECE_BYTES, RECONNECT,
};
pub(crate) use orphans::End;
use orphans::Why;
use thief::{Need, Reply, Thief};
use trips::Trips;
use victim::{Spare, Victim};

/// What is known of the workers.
#[derive(Default)]
struct Hands {
    /// So many had nothing to do when they last told.
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
}

impl Hands {
    /// So many have nothing to do, and nothing is on its way to them.
    fn idle(&self) -> u32 {
        self.told.saturating_sub(self.since + self.coming)
    }

    fn spare(&self) -> Spare {
        match self.since.checked_sub(self.told) {
            _ if self.told == 0 => Spare::Any,
            None | Some(0) => Spare::Nothing,
            Some(surplus) => Spare::Surplus(surplus),
        }
    }
}

/// What is to be said to a peer at the end of the turn, or a little later.
#[derive(Default)]
struct Outbox {
    due: Option<Duration>,
    answers: Vec<Token>,
    refused: Vec<Token>,
    acknowledge: Vec<Token>,
    recall: Vec<Token>,
    disown: Vec<Token>,
    have: Vec<Token>,
    claim: Vec<Wanted>,
    miss: Vec<Token>,
    begin: Vec<Token>,
    go: Vec<Token>,
}

impl Outbox {
    /// Somebody is held up by what is not said.
    fn is_urgent(&self) -> bool {
        !(self.recall.is_empty()
            && self.refused.is_empty()
            && self.disown.is_empty()
            && self.have.is_empty()
            && self.claim.is_empty()
            && self.miss.is_empty()
            && self.begin.is_empty()
            && self.go.is_empty())
    }
}

/// What was done about deaths and departures.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Jobs put back because the node that had them was gone, or gave them up.
    pub repairs: u64,
    /// Jobs that became orphans here, or whose results are kept here for others.
    pub orphans: u64,
    /// Results claimed.
    pub claims: u64,
    /// Claims that brought the result.
    pub hits: u64,
    /// Claims whose owner had it no more.
    pub misses: u64,
    /// Claims that were withdrawn, because nothing else was to be done.
    pub withdrawn: u64,
}

/// The books, and both sides of a theft.
pub struct Steal {
    books: Books,
    thief: Thief,
    victim: Victim,
    hands: Hands,
    trips: Trips,
    outboxes: BTreeMap<Peer, Outbox>,
    /// Recalls that overtook the jobs they are about.
    early_recalls: BTreeSet<(Peer, Token)>,
    /// The connection by which our lists went last.
    listed: BTreeMap<Peer, u64>,
    reconnect: BTreeMap<Peer, Duration>,
    told_hungry: bool,
    leaving: bool,
    /// This node is about to go: it takes no more.
    draining: bool,
    /// What was put back because a node is gone, and is not done again yet.
    repairs: BTreeSet<JobId>,
    /// Jobs whose claim was withdrawn, and from whom: they do not go back there.
    withdrawn: BTreeMap<JobId, Peer>,
    /// Orphans of these root jobs nobody wants.
    over: orphans::Over,
    /// This node has nothing to do but wait for claims: then it withdraws one.
    withdraw_at: Option<Duration>,
    /// The workers did something since that was looked at.
    moved: bool,
    /// Jobs here that have taken down nodes: others are to run them.
    held: Vec<(JobId, Fingerprint)>,
    held_since: BTreeMap<(JobId, Fingerprint), Duration>,
    release_at: Option<orphans::Release>,
    /// What was done about it all.
    tally: Tally,
}

impl Steal {
    pub(crate) fn new(config: &Config) -> Steal {
        Steal {
            books: Books::default(),
            thief: Thief::new(config),
            victim: Victim::default(),
            hands: Hands::default(),
            trips: Trips::default(),
            outboxes: BTreeMap::new(),
            early_recalls: BTreeSet::new(),
            listed: BTreeMap::new(),
            reconnect: BTreeMap::new(),
            told_hungry: false,
            leaving: false,
            draining: false,
            repairs: BTreeSet::new(),
            withdrawn: BTreeMap::new(),
            over: orphans::Over::default(),
            withdraw_at: None,
            moved: false,
            held: Vec::new(),
            held_since: BTreeMap::new(),
            release_at: None,
            tally: Tally::default(),
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let thief = self.thief.next_timeout();
        let victim = self.victim.next_timeout();
        let reconnect = self.reconnect.values().min().copied();
        let outboxes = self.outboxes.values().filter_map(|outbox| outbox.due).min();
        let release = self.release_at.map(orphans::Release::at);
        let all = [
            thief,
            victim,
            reconnect,
            outboxes,
            self.withdraw_at,
            release,
        ];
        all.into_iter().flatten().min()
    }

    /// What is due otherwise is done at the end of the turn.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let due = self.reconnect.iter().filter(|(_, at)| **at <= cx.now);
        let due: Vec<Peer> = due.map(|(peer, _)| *peer).collect();
        for peer in due {
            ran_out(Limit::Reconnect);
            self.reconnect.remove(&peer);
            self.reach(cx, peer);
        }
        self.withdraw_if_stuck(cx);
        self.release_if_due(cx);
    }

    /// The end of a turn: what it brought together is said.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        self.say(cx);
        if self.leaving {
            return;
        }
        self.claim_held(cx);
        self.release_if_due(cx);
        let backlog = self.hands.running.saturating_sub(cx.view.me().threads);
        let spare = match self.hands.spare() {
            Spare::Nothing if !self.held.is_empty() && cx.table.is_settled() => Spare::Surplus(1),
            spare => spare,
        };
        self.victim.serve(cx, spare, backlog);
        let need = Need {
            idle: self.hands.idle(),
            others: self.victim.hang_on(),
            running: self.hands.running,
        };
        match self.draining {
            true => self.thief.give_up(cx.now),
            false => self.thief.seek(cx, &self.trips, need),
        }
        self.look_if_stuck(cx);
        if let Some(hungry) = self.victim.is_asked()
            && hungry != self.told_hungry
        {
            self.told_hungry = hungry;
            cx.actions.push_back(Action::Hungry(hungry));
        }
    }

    /// Says what is due; all of it, if this is the last turn.
    fn say(&mut self, cx: &mut Context<'_>) {
        let mut outboxes = std::mem::take(&mut self.outboxes);
        outboxes.retain(|peer, outbox| {
            if self.leaving || self.is_due(cx, *peer, outbox) {
                self.say_to(cx, *peer, std::mem::take(outbox));
            }
            outbox.due.is_some()
        });
        self.outboxes = outboxes;
    }

    fn is_due(&self, cx: &Context<'_>, peer: Peer, outbox: &mut Outbox) -> bool {
        let mut wait = ACKNOWLEDGE_WAIT;
        if !outbox.answers.is_empty() {
            let round_trip = self.trips.to(cx.view, peer);
            let more = self.hands.running > 0 && self.thief.is_tiny(round_trip);
            wait = match more && outbox.answers.len() < ENOUGH {
                true => round_trip.mul_f64(ANSWERS_WAIT).min(ANSWERS_WAIT_MOST),
                false => Duration::ZERO,
            };
        }
        let due = outbox
            .due
            .map_or(cx.now + wait, |due| due.min(cx.now + wait));
        outbox.due = Some(due);
        outbox.is_urgent() || outbox.acknowledge.len() >= ENOUGH || due <= cx.now
    }

    fn say_to(&mut self, cx: &mut Context<'_>, peer: Peer, outbox: Outbox) {
        let epoch = cx.links.epoch(peer);
        let mut answers = Vec::with_capacity(outbox.answers.len() + outbox.refused.len());
        for token in outbox.answers {
            if let Some(key) = self.books.key(peer, token)
                && let Some(hosted) = self.books.hosted(key)
                && let State::Done(answer) = &hosted.state
                && let Some(waiter) = hosted.waiters.get_mut(&(peer, token))
            {
                waiter.sent = Ok(epoch);
                answers.push((token, answer.clone()));
            }
        }
        let refused = outbox.refused.into_iter();
        answers.extend(refused.map(|token| (token, refusal("this node leaves"))));
        fn some<T>(all: Vec<T>, message: fn(Vec<T>) -> Message) -> Option<Message> {
            (!all.is_empty()).then(|| message(all))
        }
        // Before the answers: who waits is to know what for.
        let have = some(outbox.have, Message::Have);
        let messages = [
            some(outbox.acknowledge, Message::Acknowledge),
            some(outbox.disown, Message::Disown),
            some(outbox.recall, Message::Recall),
            some(outbox.claim, Message::Claim),
            some(outbox.miss, Message::Miss),
            some(outbox.begin, Message::Begin),
            some(outbox.go, Message::Go),
        ];
        let messages = messages.into_iter().flatten();
        let answers = in_pieces(answers, |(_, answer)| answer.size());
        let answers = answers.into_iter().filter(|piece| !piece.is_empty());
        let answers = answers.map(Message::Answers);
        let all = have.into_iter().chain(answers).chain(messages);
        cx.actions
            .extend(all.map(|message| Action::Send(peer, message)));
    }

    fn outbox(&mut self, peer: Peer) -> &mut Outbox {
        self.outboxes.entry(peer).or_default()
    }

    // ---- links

    pub(crate) fn connected(
        &mut self,
        cx: &mut Context<'_>,
        peer: Peer,
        epoch: u64,
        round_trip: Option<Duration>,
    ) {
        self.reconnect.remove(&peer);
        if let Some(round_trip) = round_trip {
            self.trips.note(cx, peer, round_trip);
        }
        self.trips.connected(cx.view, peer);
        self.thief.connected(peer, epoch);
        self.victim.forget_before(peer, epoch);
        self.books.connected(peer, epoch);
        self.forget_early_recalls(peer);
        if self.books.concern(peer) {
            self.list(cx, peer, epoch);
        }
        // What went by an older connection may not have arrived.
        let waiting: Vec<(Token, HostKey)> = self.books.of(peer).collect();
        for (token, key) in waiting {
            if let Some(hosted) = self.books.hosted(key)
                && let Some(waiter) = hosted.waiters.get_mut(&(peer, token))
            {
                match &hosted.state {
                    State::Done(_) if matches!(waiter.sent, Ok(Some(sent)) if sent < epoch) => {
                        waiter.sent = Err(NotSent);
                        self.outbox(peer).answers.push(token);
                    }
                    State::Done(_) => {}
                    // Perhaps it was a theft, and the word that the job is here already was lost.
                    _ if !waiter.origin => self.outbox(peer).have.push(token),
                    _ if hosted.asks.is_some() => self.outbox(peer).begin.push(token),
                    _ => {}
                }
            }
        }
    }

    pub(crate) fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer, epoch: u64) {
        self.thief.forget_before(peer, epoch + 1);
        self.victim.forget_before(peer, epoch + 1);
        if cx.links.epoch(peer).is_none() {
            self.trips.disconnected(peer);
        }
        self.reach(cx, peer);
    }

    pub(crate) fn unreachable(&mut self, cx: &mut Context<'_>, peer: Peer) {
        self.thief.unreachable(peer);
        if self.books.concern(peer) && cx.view.is_alive(peer) {
            self.reconnect.insert(peer, cx.now + RECONNECT);
        }
    }

    /// Is something under way between here and there?
    pub(crate) fn concerns(&self, peer: Peer) -> bool {
        self.books.concern(peer)
    }

    /// If something is under way between here and there, a connection must stand.
    fn reach(&mut self, cx: &mut Context<'_>, peer: Peer) {
        if self.books.concern(peer)
            && let Way::Connect(addr) = cx.links.way(peer, cx.view)
        {
            let peer = Some(peer);
            let connect = Action::Connect { addr, peer };
            cx.links.watch(&connect);
            cx.actions.push_back(connect);
        }
    }

    pub(crate) fn round_trip(&mut self, cx: &mut Context<'_>, peer: Peer, round_trip: Duration) {
        self.trips.note(cx, peer, round_trip);
    }

    fn list(&mut self, cx: &mut Context<'_>, peer: Peer, epoch: u64) {
        self.listed.insert(peer, epoch);
        let lists = Message::Lists {
            outstanding: self.books.at(peer).map(|(token, _)| token).collect(),
            hosted: self.books.of(peer).map(|(token, _)| token).collect(),
        };
        cx.actions.push_back(Action::Send(peer, lists));
    }

    /// After a connection was made anew: what got lost with the old one?
    pub(crate) fn compare(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        (mut outstanding, mut hosted): (Vec<Token>, Vec<Token>),
    ) {
        let Some(epoch) = cx.links.epoch(from).filter(|_| cx.view.is_alive(from)) else {
            return;
        };
        if self.listed.get(&from) != Some(&epoch) {
            self.list(cx, from, epoch);
        }
        outstanding.sort_unstable();
        hosted.sort_unstable();
        // Thefts of which the thief knows nothing: the reply was lost. Those of this connection may be on their way.
        let lost = self.books.at(from).filter(|(token, away)| {
            let old = away.sent.is_some_and(|sent| sent < epoch);
            old && !away.answering && hosted.binary_search(token).is_err()
        });
        let lost: Vec<Token> = lost.map(|(token, _)| token).collect();
        for token in lost {
            self.bring_back(cx, from, token, Why::Lost);
        }
        // Jobs that the origin does not wait for: the acknowledgement, or the recall, was lost. Those that came by this
        // connection may have overtaken the list.
        let unwanted = self.books.of_before(from, epoch);
        let unwanted = unwanted.filter(|(token, _)| outstanding.binary_search(token).is_err());
        let unwanted: Vec<Token> = unwanted.map(|(token, _)| token).collect();
        for token in unwanted {
            self.unwait(cx, from, token);
        }
    }

    // ---- who is there

    pub(crate) fn joined(&mut self, cx: &mut Context<'_>, _peer: Peer) {
        self.thief.joined(cx);
    }

    /// This node is about to go: whatever it has of others they do again, and what others have of it is not wanted.
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>) {
        self.leaving = true;
        self.thief.close(cx);
        self.victim.close(cx);
        let hosted: Vec<HostKey> = self.books.hosted_keys().collect();
        for key in hosted {
            if let Some(hosted) = self.books.hosted(key)
                && !hosted.unwanted
                && !matches!(hosted.state, State::Done(..))
            {
                let waiters: Vec<(Peer, Token)> = hosted.waiters.keys().copied().collect();
                for (peer, token) in waiters.into_iter().filter(|(peer, _)| *peer != HERE) {
                    self.outbox(peer).refused.push(token);
                }
                self.abandon(cx, key);
            }
        }
        let away: Vec<(Peer, Token)> = self.books.all_away().collect();
        for (peer, token) in away.into_iter().filter(|(peer, _)| *peer != HERE) {
            self.books.back(peer, token);
            self.outbox(peer).recall.push(token);
        }
        self.say(cx);
    }

    /// A hosted job that had gone on is done here after all.
    fn restart(&mut self, cx: &mut Context<'_>, key: HostKey, back: Back) {
        if let Some(hosted) = self.books.hosted(key)
            && let State::Onwards(_, _, parcel) =
                std::mem::replace(&mut hosted.state, State::Coming)
        {
            let repair = back.repair;
            let parcel = Parcel { repair, ..*parcel };
            self.hands.coming += 1;
            if back.held {
                self.hold(cx, key, parcel);
            } else {
                self.start(cx, key, parcel);
            }
        }
    }

    /// Somebody does not wait for a hosted job any more.
    fn unwait(&mut self, cx: &mut Context<'_>, peer: Peer, token: Token) {
        let Some(key) = self.books.unwait(peer, token) else {
            return;
        };
        if let Some(hosted) = self.books.hosted(key)
            && hosted.waiters.is_empty()
            && !hosted.orphan
        {
            self.abandon(cx, key);
        } else {
            self.begin_unasked(cx, key);
        }
    }

    /// Nobody wants a hosted job any more: it is aborted, here or wherever it went.
    fn abandon(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let Some(hosted) = self.books.hosted(key) else {
            return;
        };
        match &hosted.state {
            State::Started => {
                if !hosted.unwanted {
                    self.books.disown(key);
                    cx.actions.push_back(Action::Abort(key));
                }
            }
            State::Onwards(peer, token, _) => {
                let (peer, token) = (*peer, *token);
                self.books.forget(key);
                self.books.back(peer, token);
                self.let_go(cx, peer, token);
            }
            State::Coming => {
                self.hands.coming -= 1;
                self.books.forget(key);
            }
            State::Done(..) => {
                self.books.forget(key);
            }
        }
    }

    /// Whoever has a job of ours need not go on.
    fn let_go(&mut self, cx: &mut Context<'_>, peer: Peer, token: Token) {
        if peer == HERE {
            self.unwait(cx, HERE, token);
        } else {
            self.outbox(peer).recall.push(token);
        }
    }

    // ---- workers

    pub(crate) fn idle(&mut self, workers: u32) {
        self.moved = true;
        if workers < self.hands.told {
            self.victim.look_again();
        }
        self.hands.told = workers;
        self.hands.told_at = self.hands.given;
        self.hands.since = 0;
    }

    pub(crate) fn public(&mut self) {
        self.victim.look_again();
    }

    pub(crate) fn took(&mut self, cx: &mut Context<'_>, request: u64, jobs: Vec<Taken>, left: u32) {
        let Some(asker) = self.victim.took(request, jobs.len()) else {
            for job in jobs {
                self.stay(cx, job);
            }
            return;
        };
        if jobs.is_empty() {
            return self.victim.wait(asker);
        }
        let too_far = !asker.near && self.is_fresh(cx.now, &jobs[0], asker.round_trip);
        let gone = !cx.view.is_alive(asker.peer) || self.leaving;
        let buries = jobs.iter().any(|job| self.would_bury(cx, asker.peer, job));
        let too_early = !cx.table.is_settled() && jobs.iter().any(|job| self.is_held(job));
        if too_far || gone || buries || too_early {
            for job in jobs {
                self.stay(cx, job);
            }
            if !gone {
                let wait = match buries || too_early {
                    true => BURY_REST.max(asker.round_trip),
                    false => asker.round_trip,
                };
                self.victim.pass_over(cx, asker, wait);
            }
            return;
        }
        if left > 0 {
            self.victim.look_again();
        }
        let to = asker.peer;
        let sent = cx.links.epoch(to);
        let mut leaving = Vec::with_capacity(jobs.len());
        for mut job in jobs {
            let (Taken::Own(_, parcel) | Taken::Hosted(_, parcel)) = &mut job;
            let above = self.books.crashes_above(&parcel.id);
            let victims = above + cx.table.victims((&parcel.id, parcel.fingerprint), cx.view);
            parcel.repair.crashes = parcel.repair.crashes.max(victims);
            self.no_more_held(&parcel.id, parcel.fingerprint);
            match job {
                Taken::Own(departure, parcel) => {
                    let source = (Source::Own(departure), Kind::Theft);
                    let token = self.books.away(to, source, Job::of(&parcel), sent);
                    self.books.count_above(to, token, above);
                    leaving.push((token, parcel));
                }
                Taken::Hosted(key, parcel) => {
                    self.ended(key);
                    let Some(hosted) = self.books.hosted(key) else {
                        continue;
                    };
                    if hosted.unwanted {
                        self.books.forget(key);
                    } else if hosted.is_waited_for_by(to) {
                        self.finish(cx, key, refusal("who waits for it asks for work"));
                    } else {
                        let source = (Source::Hosted(key), Kind::Theft);
                        let token = self.books.away(to, source, Job::of(&parcel), sent);
                        self.books.count_above(to, token, above);
                        if let Some(hosted) = self.books.hosted(key) {
                            hosted.held = false;
                            hosted.state = State::Onwards(to, token, Box::new(parcel.clone()));
                        }
                        leaving.push((token, parcel));
                    }
                }
            }
        }
        // What was handed back goes first, so that the thief does not look for work elsewhere.
        self.say(cx);
        let request = asker.request;
        for jobs in in_pieces(leaving, |(_, parcel)| parcel.arguments.len()) {
            let jobs = Message::Jobs {
                request,
                jobs,
                left,
            };
            cx.actions.push_back(Action::Send(to, jobs));
        }
    }

    /// A job of others that has come just now does not go to yet another site at once: it would only travel, and its
    /// answer all the way back.
    fn is_fresh(&mut self, now: Duration, job: &Taken, round_trip: Duration) -> bool {
        let Taken::Hosted(key, _) = job else {
            return false;
        };
        let hosted = self.books.hosted(*key);
        hosted.is_some_and(|hosted| now < hosted.since + FAR_REST * round_trip)
    }

    /// A repair does not go to a node that runs an orphan below it: there it would come to lie on top of what it will
    /// claim, and each would wait for the other.
    fn would_bury(&self, cx: &Context<'_>, thief: Peer, job: &Taken) -> bool {
        let (Taken::Own(_, parcel) | Taken::Hosted(_, parcel)) = job;
        let withdrawn = self.withdrawn.get(&parcel.id) == Some(&thief);
        parcel.repair.marked && (withdrawn || cx.table.runs_below(&parcel.id, thief))
    }

    /// Is it for others? Then it waits for the orphans that its new host is to know.
    fn is_held(&self, job: &Taken) -> bool {
        let (Taken::Own(_, parcel) | Taken::Hosted(_, parcel)) = job;
        let name = (parcel.id.clone(), parcel.fingerprint);
        self.held_since.contains_key(&name)
    }

    /// A job that was taken stays after all.
    fn stay(&mut self, cx: &mut Context<'_>, job: Taken) {
        match job {
            Taken::Own(departure, _) => cx
                .actions
                .push_back(Action::PutBack(departure, Back::default())),
            Taken::Hosted(key, parcel) => {
                let held = self.books.look(key).is_some_and(|hosted| hosted.held);
                cx.actions.push_back(match held {
                    true => Action::Hold(key, parcel),
                    false => Action::Start(key, parcel),
                });
            }
        }
    }

    /// The workers do not have it any more.
    fn ended(&mut self, key: HostKey) {
        if let Some(hosted) = self.books.hosted(key)
            && hosted.state == State::Started
        {
            self.hands.running -= 1;
            if hosted.started > self.hands.told_at {
                self.hands.since -= 1;
            }
        }
    }

    /// If it was given up, and was quicker, its answer is to be kept: it is returned.
    pub(crate) fn done(
        &mut self,
        cx: &mut Context<'_>,
        key: HostKey,
        answer: Answer,
    ) -> Option<Saved> {
        self.moved = true;
        self.ended(key);
        let hosted = self.books.hosted(key)?;
        if hosted.given_up && matches!(answer, Answer::Result { .. } | Answer::Panicked(_)) {
            let hosted = self.books.forget(key)?;
            return Some(Saved {
                id: hosted.id,
                fingerprint: hosted.fingerprint,
                root: hosted.root.fingerprint,
                answer,
            });
        }
        if hosted.unwanted {
            self.forget_unwanted(key);
        } else if hosted.state == State::Started {
            self.thief.done();
            self.finish(cx, key, answer);
        }
        None
    }

    /// The workers have stopped with a job that nobody wants: nobody will say that what came back below it is done.
    fn forget_unwanted(&mut self, key: HostKey) {
        if let Some(hosted) = self.books.forget(key) {
            self.forget_below(&hosted.id);
        }
    }

    // ---- what others say

    pub(crate) fn asked(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        request: Request,
        most: u32,
        lifeline: bool,
    ) {
        if !cx.view.is_alive(from) {
            return;
        }
        let round_trip = self.trips.to(cx.view, from);
        self.victim
            .ask(cx, (from, request), (most, lifeline), round_trip);
        if self.leaving {
            self.victim.close(cx);
        }
    }

    pub(crate) fn cut(&mut self, from: Peer, request: Request) {
        self.victim.remove(from, request);
    }

    /// Enters the jobs in the books as hosted; what is returned goes on once its values are here.
    pub(crate) fn arrived(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        (request, left): (Request, u32),
        jobs: Vec<(Token, Parcel)>,
    ) -> Vec<Then> {
        if !cx.view.is_alive(from) {
            return Vec::new();
        }
        let reply = Reply {
            found: !jobs.is_empty(),
            left,
            round_trip: self.trips.to(cx.view, from),
        };
        self.thief.answered(from, request, reply);
        if self.leaving || self.draining {
            let tokens = jobs.into_iter().map(|(token, _)| token);
            self.outbox(from).refused.extend(tokens);
            return Vec::new();
        }
        let came = cx.links.epoch(from).unwrap_or(0);
        let mut then = Vec::with_capacity(jobs.len());
        for (token, parcel) in jobs {
            if self.early_recalls.remove(&(from, token)) {
                continue;
            }
            if self.has_already(cx, (from, token), came, &parcel) {
                continue;
            }
            if let Some(key) = self.books.host(from, token, came, &parcel) {
                self.hands.coming += 1;
                then.push(Then::Start(key, parcel));
            }
        }
        then
    }

    /// Those of the answers that are still wanted go on once their values are here.
    pub(crate) fn answered(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        answers: Vec<(Token, Answer)>,
    ) -> Vec<Then> {
        if !cx.view.is_alive(from) {
            return Vec::new();
        }
        let mut then = Vec::with_capacity(answers.len());
        for (token, answer) in answers {
            self.outbox(from).acknowledge.push(token);
            if let Some(away) = self.books.outstanding(from, token)
                && !std::mem::replace(&mut away.answering, true)
            {
                then.push(Then::Answer(from, token, answer));
            }
        }
        then
    }

    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>, then: Then) {
        match then {
            Then::Start(key, parcel) => self.start(cx, key, parcel),
            Then::Refuse(key, name) => {
                if let Some(hosted) = self.books.hosted(key)
                    && hosted.state == State::Coming
                {
                    self.hands.coming -= 1;
                    self.finish(cx, key, refusal(&format!("nobody has {name:?} any more")));
                }
            }
            Then::Answer(peer, token, answer) => match answer {
                Answer::Refused(_) if self.has_survived(peer, token) => {
                    self.bring_back(cx, peer, token, Why::Refused);
                }
                Answer::Refused(_) | Answer::Aborted => {
                    self.bring_back(cx, peer, token, Why::Undone);
                }
                answer => self.take_answer(cx, peer, token, answer),
            },
            Then::Redo(peer, token, _) => self.bring_back(cx, peer, token, Why::Undone),
        }
    }

    /// Did that peer begin with a job that has taken down others? Then it has run it, and lives.
    fn has_survived(&mut self, peer: Peer, token: Token) -> bool {
        let away = self.books.look_away(peer, token);
        away.is_some_and(|away| away.begun && away.job.repair.crashes > 0)
    }

    /// The number of the root job of which that is a part.
    pub(crate) fn root_number_of(&self, then: &Then) -> u32 {
        match then {
            Then::Start(_, parcel) => parcel.id.root_number(),
            Then::Refuse(key, _) => self.books.look(*key).map_or(0, |job| job.id.root_number()),
            Then::Answer(peer, token, _) | Then::Redo(peer, token, _) => {
                let away = self.books.look_away(*peer, *token);
                away.map_or(0, |away| away.job.id.root_number())
            }
        }
    }

    /// A hosted job whose values are here goes to the workers.
    fn start(&mut self, cx: &mut Context<'_>, key: HostKey, parcel: Parcel) {
        let hosted = self.books.look(key);
        if hosted.is_none_or(|hosted| hosted.state != State::Coming) {
            return;
        }
        let victims = cx.table.victims((&parcel.id, parcel.fingerprint), cx.view);
        if victims >= cx.config.max_crashes {
            self.hands.coming -= 1;
            let story = given_up(&parcel.id, victims);
            return self.finish(cx, key, Answer::Panicked(story));
        }
        if self.asks_before(key, &parcel) {
            return;
        }
        if self.give(cx, key) {
            cx.actions.push_back(Action::Start(key, parcel));
        }
    }

    /// A hosted job that has taken down whoever had it is for others.
    fn hold(&mut self, cx: &mut Context<'_>, key: HostKey, parcel: Parcel) {
        if let Some(hosted) = self.books.hosted(key) {
            self.hands.coming -= 1;
            self.hands.running += 1;
            hosted.state = State::Started;
            // No worker that was idle is busy with it.
            hosted.started = 0;
            hosted.held = true;
            cx.actions.push_back(Action::Hold(key, parcel));
        }
    }

    /// The workers have it from now on. False if it has gone meanwhile.
    fn give(&mut self, cx: &Context<'_>, key: HostKey) -> bool {
        let hands = &mut self.hands;
        if let Some(hosted) = self.books.hosted(key)
            && hosted.state == State::Coming
        {
            hands.coming -= 1;
            hands.given += 1;
            hands.since += 1;
            hands.running += 1;
            hosted.state = State::Started;
            hosted.started = hands.given;
            hosted.since = cx.now;
            self.thief.started(cx.now, hands.running);
            self.victim.look_again();
            return true;
        }
        false
    }

    pub(crate) fn acknowledged(&mut self, from: Peer, tokens: &[Token]) {
        for token in tokens {
            if let Some(key) = self.books.key(from, *token)
                && let Some(hosted) = self.books.hosted(key)
                && matches!(hosted.state, State::Done(..))
            {
                self.books.unwait(from, *token);
                self.forget_if_idle(key);
            }
        }
    }

    pub(crate) fn recall(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            match self.books.key(from, *token) {
                Some(_) => self.unwait(cx, from, *token),
                // The job went by a stream of its own, and comes later.
                None => self.expect(from, *token),
            }
        }
    }

    /// A job that is not wanted any more will come, or has been answered already.
    fn expect(&mut self, from: Peer, token: Token) {
        self.early_recalls.insert((from, token));
        let of_peer = (from, Token(0))..=(from, Token(u64::MAX));
        if self.early_recalls.range(of_peer.clone()).count() > EARLY_RECALLS {
            let oldest = self.early_recalls.range(of_peer).next().copied();
            oldest.map(|oldest| self.early_recalls.remove(&oldest));
        }
    }

    fn forget_early_recalls(&mut self, peer: Peer) {
        self.early_recalls.retain(|(from, _)| *from != peer);
    }

    /// Enters what is in the books.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn inspect(&self, inspection: &mut super::inspect::Inspection) {
        self.books.inspect(inspection);
        inspection.unsaid = self.outboxes.len();
        inspection.undone = self.repairs.len() + self.withdrawn.len();
        inspection.tally = self.tally;
    }

    /// What was done about deaths and departures.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Is nothing of others here, and nothing of ours away?
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn is_settled(&self) -> bool {
        self.books.is_empty() && self.outboxes.is_empty()
    }
}

/// Jobs or answers, as many in each message as fit. If there are none, one message without any: a request is to be answered.
fn in_pieces<T>(all: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut pieces = vec![Vec::new()];
    let mut room = PIECE_BYTES;
    for one in all {
        let size = size(&one);
        if size > room
            && let Some([_, ..]) = pieces.last().map(Vec::as_slice)
        {
            pieces.push(Vec::new());
            room = PIECE_BYTES;
        }
        room = room.saturating_sub(size);
        if let Some(piece) = pieces.last_mut() {
            piece.push(one);
        }
    }
    pieces
}

fn refusal(why: &str) -> Answer {
    Answer::Refused(why.into())
}
