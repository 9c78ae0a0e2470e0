//! The thief's side: which nodes were asked, when to give up, and which lifelines hang where.

use std::time::Duration;

use rand::RngExt;

use super::{
    super::{
        Action, Context, Message, Peer, ProtocolConfig, Request, RequestKind, View,
        books::Hands,
        expiry::{Expiry, ran_out},
    },
    numbers::{
        AHEAD, BATCH, LENT_SHARE, LONG, MOST, REQUEST_PATIENCE, REQUEST_ROUND_TRIPS, RETRY_FIRST,
        RETRY_LAST, SAID_ANEW, TINY,
    },
    policy::{self, Around, StealPolicy},
    trips::Trips,
};

/// The requests for work that are under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asking {
    /// To a node of the same site.
    pub near: bool,
    /// To a node of another site.
    pub far: bool,
}

/// A request under way.
#[derive(Clone, Debug)]
struct OpenRequest {
    peer: Peer,
    request: Request,
    /// The epoch of the connection it went by; `None` while it waits for one.
    epoch: Option<u64>,
    /// When the request is given up.
    until: Duration,
}

#[derive(Default)]
struct Lane {
    /// The ordinary request under way.
    asked: Option<OpenRequest>,
    /// The number of requests that have failed since the last jobs were found.
    failed: u32,
    /// The node that gave jobs last, and how many more it had.
    giver: Option<(Peer, u32)>,
    /// The standing requests that were left with other nodes.
    lifelines: Vec<OpenRequest>,
    /// The lifelines of this lane have been chosen, and none of them was lost since.
    moored: bool,
}

/// How much work is wanted, and for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// Workers with nothing to do.
    pub(super) idle: u32,
    /// Nodes that hang on this one: what is found is for them too.
    pub(super) others: u32,
    /// Hosted jobs that the workers have.
    pub(super) running: u32,
}

/// The answer of a victim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// Whether jobs came.
    pub(super) found: bool,
    /// Whether they are tasks of a flow.
    pub(super) are_tasks: bool,
    /// The number of jobs that the victim has beside those, about.
    pub(super) left: u32,
    /// The round trip to the victim.
    pub(super) round_trip: Duration,
}

/// The number of hosted jobs that are done in so many seconds; none, if nothing is known of them.
fn done_in(hands: &Hands, seconds: f64) -> f64 {
    (hands.each()).map_or(0.0, |each| seconds / each.max(1e-7))
}

/// The number of hosted jobs that are done while one message with jobs comes after the other; none, if they are not tiny.
fn cover(hands: &Hands, round_trip: Duration) -> f64 {
    match is_tiny(hands, round_trip) {
        true => done_in(hands, round_trip.max(BATCH).as_secs_f64()),
        false => 0.0,
    }
}

/// Are hosted jobs done faster than a message comes and goes?
pub(super) fn is_tiny(hands: &Hands, round_trip: Duration) -> bool {
    done_in(hands, round_trip.as_secs_f64()) >= TINY
}

/// The side of a node that looks for work.
pub(super) struct Thief {
    policy: Box<dyn StealPolicy>,
    lanes: Vec<Lane>,
    /// The number of the last request.
    requests: u64,
    /// When a resting node asks once more.
    retry: Option<Duration>,
    /// The pause before that; it doubles each time, up to [`RETRY_LAST`].
    pause: Duration,
    /// A request for more of the tiny jobs, before the last ones are done.
    tiny: Option<OpenRequest>,
    /// The node that the last tasks of a flow came from.
    flow: Option<Peer>,
    /// The request for the next ones, which stands there.
    next_tasks: Option<OpenRequest>,
    /// The node that the last jobs came from, if it had more, and the round trip to it.
    giver: Option<(Peer, Duration)>,
    /// The number of nodes in the pool when this node went to rest.
    crowd: usize,
}

impl Thief {
    pub(super) fn new(config: &ProtocolConfig) -> Thief {
        let policy = policy::of(config.policy);
        Thief {
            lanes: (0..policy.lanes()).map(|_| Lane::default()).collect(),
            policy,
            requests: 0,
            retry: None,
            pause: RETRY_FIRST,
            tiny: None,
            flow: None,
            next_tasks: None,
            giver: None,
            crowd: 0,
        }
    }

    /// Have all been asked in vain, so that lifelines hang there?
    pub(super) fn asks_in_vain(&self) -> bool {
        self.lanes.iter().all(|lane| lane.moored)
    }

    /// Which requests are under way; lifelines, which wait for others to have work, aside.
    pub(super) fn asking(&self, view: &View) -> Asking {
        let asked = self.lanes.iter().filter_map(|lane| lane.asked.as_ref());
        asked.fold(Asking::default(), |asking, ask| {
            let is_near = view.is_near(ask.peer);
            Asking {
                near: asking.near || is_near,
                far: asking.far || !is_near,
            }
        })
    }

    pub(super) fn next_timeout(&self) -> Option<Duration> {
        let asked = self.lanes.iter().filter_map(|lane| lane.asked.as_ref());
        let expire = asked.chain(&self.tiny).map(|ask| ask.until);
        expire.chain(self.retry).min()
    }

    // ---- looking for work

    /// Asks the nodes that are to be asked now.
    pub(super) fn seek(&mut self, cx: &mut Context<'_>, trips: &Trips, need: Need) {
        cx.books.hands.measure(cx.now);
        // Requests that ran out leave their lane free for another victim in this same turn.
        self.give_up(cx.now);
        // Lifelines of a node that has work would draw jobs away from nodes that have none.
        if need.idle == 0 {
            self.rest(cx);
        } else {
            self.hunt(cx, trips, need);
        }
        self.fetch_tiny(cx, trips, need);
        self.ask_for_next_tasks(cx, trips);
    }

    /// Cuts all lifelines: there is work here.
    fn rest(&mut self, cx: &mut Context<'_>) {
        self.retry = None;
        self.pause = RETRY_FIRST;
        for lane in &mut self.lanes {
            // The next time without work begins with requests again, not with lifelines.
            lane.failed = 0;
            lane.moored = false;
            for lifeline in lane.lifelines.drain(..) {
                let cut = Message::Cut(lifeline.request);
                cx.actions.push_back(Action::Send(lifeline.peer, cut));
            }
        }
    }

    fn hunt(&mut self, cx: &mut Context<'_>, trips: &Trips, need: Need) {
        // A slow retry remains: lifelines may be lost, and the node that holds one may never have
        // work.
        if self.retry.is_some_and(|retry| retry <= cx.now) {
            self.retry = None;
            self.pause = (self.pause * 2).min(RETRY_LAST);
            self.try_once_more(cx);
        }
        let mut rests = true;
        for lane in 0..self.lanes.len() {
            // A lane has one request under way at a time: see [`StealPolicy`].
            if self.lanes[lane].asked.is_some() {
                rests = false;
                continue;
            }
            // After a round in vain the lane goes over to lifelines: an idle pool must be silent.
            if self.lanes[lane].failed < self.policy.round(lane, cx.view)
                && let Some(victim) = self.victim(cx, trips, lane)
            {
                let most = self.most(cx, trips, victim, lane, need);
                self.lanes[lane].asked = Some(self.ask(cx, trips, victim, most, RequestKind::Now));
                rests = false;
            } else if !self.lanes[lane].moored {
                self.moor(cx, trips, lane, need);
            }
        }
        if rests && self.retry.is_none() {
            self.crowd = cx.view.len();
            // By chance, so that the nodes of an idle pool do not all ask at the same moment.
            let around = cx.rng.random_range(0.75..1.25);
            self.retry = Some(cx.now + self.pause.mul_f64(around));
        }
    }

    fn victim(&self, cx: &mut Context<'_>, trips: &Trips, lane: usize) -> Option<Peer> {
        let around = Around {
            view: cx.view,
            far: trips.far(),
            giver: self.lanes[lane].giver,
        };
        self.policy.victim(lane, &around, cx.rng)
    }

    /// Leaves the lifelines of a lane.
    fn moor(&mut self, cx: &mut Context<'_>, trips: &Trips, lane: usize, need: Need) {
        self.lanes[lane].moored = true;
        for (peer, others) in self.policy.lifelines(lane, cx.view, cx.rng) {
            let hang = |lifeline: &OpenRequest| lifeline.peer == peer;
            // A lifeline that still hangs there is enough: a second one would bring jobs twice.
            if !self.lanes[lane].lifelines.iter().any(hang) {
                let most = self.most(cx, trips, peer, lane, need);
                // A lifeline also brings jobs for those that hang on this node: a burst of work
                // passes through it.
                let most = most.max(others).min(MOST);
                let lifeline = self.ask(cx, trips, peer, most, RequestKind::Lifeline);
                self.lanes[lane].lifelines.push(lifeline);
            }
        }
    }

    fn try_once_more(&mut self, cx: &Context<'_>) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let round = self.policy.round(number, cx.view);
            // A single further request in each lane: if it fails too, the lane rests again.
            lane.failed = lane.failed.min(round.saturating_sub(1));
        }
    }

    fn most(&self, cx: &Context<'_>, trips: &Trips, victim: Peer, lane: usize, need: Need) -> u32 {
        let share = self.policy.share(lane, cx.view);
        // Of tiny jobs twice as many as are done until more can come: the workers go on while the next
        // request travels.
        let tiny = 2.0 * cover(&cx.books.hands, trips.to(cx.view, victim));
        let most = (need.idle + need.others).max(share).max(tiny as u32);
        most.min(MOST)
    }

    fn ask(
        &mut self,
        cx: &mut Context<'_>,
        trips: &Trips,
        peer: Peer,
        most: u32,
        kind: RequestKind,
    ) -> OpenRequest {
        self.requests += 1;
        let request = Request(self.requests);
        let steal = Message::Steal {
            request,
            most,
            kind,
        };
        cx.actions.push_back(Action::Send(peer, steal));
        // Longer over a long link; and the first request pays for the connection too.
        let patience = REQUEST_PATIENCE + REQUEST_ROUND_TRIPS * trips.to(cx.view, peer);
        OpenRequest {
            peer,
            request,
            epoch: cx.links.epoch(peer),
            until: cx.now + patience,
        }
    }

    /// Asks for more before it is needed: if the jobs here will be done sooner than others come, or if somebody hangs
    /// on this node in vain while it knows where there are more.
    fn fetch_tiny(&mut self, cx: &mut Context<'_>, trips: &Trips, need: Need) {
        // Without a job under way the ordinary request asks already. Only a node that said that it
        // has more is worth it.
        let giver = self.giver.filter(|_| need.running > 0);
        let Some((giver, round_trip)) = giver.filter(|_| self.tiny.is_none()) else {
            return;
        };
        let cover = cover(&cx.books.hands, round_trip);
        let soon_done = cover > 0.0 && f64::from(need.running) <= cover;
        let most = if soon_done { 2.0 * cover } else { 0.0 };
        // Nodes that hang here in vain are served too, as this node knows where there is more.
        let most = (most as u32).max(need.others).min(MOST);
        if most > 0 {
            self.tiny = Some(self.ask(cx, trips, giver, most, RequestKind::Now));
        }
    }

    /// The number of hosted jobs that can be done until this node has to ask for more of them.
    pub(super) fn jobs_before_next_ask(&self, hands: &Hands) -> u32 {
        let running = hands.running();
        match self.giver.filter(|_| self.tiny.is_none()) {
            Some((_, round_trip)) => running.saturating_sub(cover(hands, round_trip) as u32),
            None => running,
        }
    }

    /// Leaves a request for tasks of a flow before workers have nothing to do, so that the data of the next ones travel while the last ones
    /// run. Tasks do not spawn work for the workers of this node as jobs of a tree do: without it each would wait for its data.
    fn ask_for_next_tasks(&mut self, cx: &mut Context<'_>, trips: &Trips) {
        // A job that is no task has work of its own for the workers here, which would wait behind the tasks.
        let Some(flow) = self.flow.filter(|_| cx.books.hosts_tasks_alone()) else {
            return self.cut_next_tasks(cx);
        };
        // Now and then it is said anew: tasks come from another node meanwhile, or it was lost.
        let is_old = |ask: &OpenRequest| ask.peer != flow || ask.until <= cx.now;
        if self.next_tasks.as_ref().is_some_and(is_old) {
            self.cut_next_tasks(cx);
        }
        let hands = &cx.books.hands;
        if self.next_tasks.is_some()
            || hands.idle() > 0
            || cx.books.lent() as f64 > LENT_SHARE * cx.config.flow_data as f64
            || cx.links.epoch(flow).is_none()
        {
            return;
        }
        let workers = cx.view.me().threads.max(1);
        let comes = trips.to(cx.view, flow).as_secs_f64() + hands.way();
        let cover = done_in(hands, comes);
        if cover < LONG * f64::from(workers) {
            return;
        }
        let ahead = (cover.ceil() as u32).min(AHEAD * workers);
        let most = ahead.saturating_sub(cx.books.for_later());
        if most > 0 {
            let ask = self.ask(cx, trips, flow, most.min(MOST), RequestKind::Ahead);
            let until = cx.now + SAID_ANEW;
            self.next_tasks = Some(OpenRequest { until, ..ask });
        }
    }

    fn cut_next_tasks(&mut self, cx: &mut Context<'_>) {
        if let Some(ask) = self.next_tasks.take() {
            let cut = Message::Cut(ask.request);
            cx.actions.push_back(Action::Send(ask.peer, cut));
        }
    }

    // ---- what comes of it

    /// Jobs came, or the word that there are none.
    pub(super) fn answered(&mut self, from: Peer, request: Request, reply: Reply) {
        let Reply {
            found,
            are_tasks,
            left,
            round_trip,
        } = reply;
        // The answer to a request that was given up meanwhile finds no request, but its jobs are
        // taken.
        let is_it = |ask: &OpenRequest| ask.peer == from && ask.request == request;
        if self.tiny.take_if(|ask| is_it(ask)).is_some() && !found {
            // The jobs that it had beside are gone by now.
            self.giver = None;
        }
        if are_tasks {
            self.flow = Some(from);
        }
        if self.next_tasks.take_if(|ask| is_it(ask)).is_some() && !found {
            // It goes, or none of its tasks is worth the way.
            self.flow = None;
        }
        for lane in &mut self.lanes {
            let asked = lane.asked.take_if(|ask| is_it(ask)).is_some();
            let before = lane.lifelines.len();
            // With an answer a request is over, lifelines too.
            lane.lifelines.retain(|lifeline| !is_it(lifeline));
            let hung = lane.lifelines.len() < before;
            if found {
                // The lifeline that brought the jobs is used up: another is to be left when this
                // node rests again.
                lane.moored &= !hung;
                lane.failed = 0;
                // A node that has more is asked again, before chance decides.
                if asked || (hung && left > 0) {
                    lane.giver = (left > 0).then_some((from, left));
                }
            } else if asked {
                // A round is made of ordinary requests: an empty answer to a lifeline is no
                // failure.
                lane.failed += 1;
                lane.giver.take_if(|(giver, _)| *giver == from);
            }
        }
        if found {
            self.giver = (left > 0).then_some((from, round_trip));
            // The pool has work again: the next rest begins with short pauses.
            self.pause = RETRY_FIRST;
            self.retry = None;
        }
    }

    /// Gives up requests that will not be answered any more.
    pub(super) fn give_up(&mut self, now: Duration) {
        for lane in &mut self.lanes {
            if lane.asked.take_if(|ask| ask.until <= now).is_some() {
                // A failure like an answer without jobs: otherwise a victim that stands still would
                // block the lane for ever.
                ran_out(Expiry::Request);
                lane.failed += 1;
                lane.giver = None;
            }
        }
        if self.tiny.take_if(|ask| ask.until <= now).is_some() {
            self.giver = None;
        }
    }

    fn lose(&mut self, lost: impl Fn(&OpenRequest) -> bool) {
        for lane in &mut self.lanes {
            if lane.asked.take_if(|ask| lost(ask)).is_some() {
                lane.failed += 1;
                lane.giver = None;
            }
            let before = lane.lifelines.len();
            lane.lifelines.retain(|lifeline| !lost(lifeline));
            // A lifeline that was lost must be left anew, or no burst of work will wake this node.
            lane.moored &= lane.lifelines.len() == before;
        }
        self.tiny.take_if(|ask| lost(ask));
        self.next_tasks.take_if(|ask| lost(ask));
    }

    /// Forgets a peer whose life is over.
    pub(super) fn life_ended(&mut self, peer: Peer) {
        self.lose(|ask| ask.peer == peer);
        for lane in &mut self.lanes {
            lane.giver.take_if(|(giver, _)| *giver == peer);
        }
        self.giver.take_if(|(giver, _)| *giver == peer);
        self.flow.take_if(|flow| *flow == peer);
    }

    /// Requests by connections before this epoch are lost.
    pub(super) fn forget_before(&mut self, peer: Peer, epoch: u64) {
        self.lose(|ask| ask.peer == peer && ask.epoch.is_some_and(|asked| asked < epoch));
    }

    /// Notes the epoch of a new connection: the requests that waited for one went by it.
    pub(super) fn connected(&mut self, peer: Peer, epoch: u64) {
        self.forget_before(peer, epoch);
        let asked = self.lanes.iter_mut().flat_map(|lane| {
            let lifelines = lane.lifelines.iter_mut();
            lane.asked.iter_mut().chain(lifelines)
        });
        for ask in asked.chain(&mut self.tiny).chain(&mut self.next_tasks) {
            if ask.peer == peer {
                ask.epoch.get_or_insert(epoch);
            }
        }
    }

    /// Gives up requests that wait for a connection to that peer: none can be made.
    pub(super) fn unreachable(&mut self, peer: Peer) {
        self.lose(|ask| ask.peer == peer && ask.epoch.is_none());
    }

    /// Asks once more when new nodes are in, if the pool has grown much.
    pub(super) fn joined(&mut self, cx: &Context<'_>) {
        if cx.view.len() >= 2 * self.crowd {
            self.crowd = cx.view.len();
            for lane in &mut self.lanes {
                // Lifelines stand in a ring of all nodes, which has other neighbours now.
                lane.moored = false;
            }
            self.try_once_more(cx);
        }
    }

    /// Ends all requests: the node asks for no more work.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        self.rest(cx);
        self.cut_next_tasks(cx);
        self.tiny = None;
        self.flow = None;
        self.giver = None;
    }
}
