//! The node: the conversations behind one door, for events and actions.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use rand::{SeedableRng, rngs::SmallRng};

use super::{
    Action, Arrival, Asking, Context, Event, Identity, JobCosts, Message, NodeId, Notice, Peer,
    ProtocolConfig, Rule, View, books, links, membership, relay, repair, root,
    route::{Parts, is_called_again, lacks_master},
    shared, stable, steal,
};
use crate::job::{Answer, HostedId, JobSample, Lattices, Offer, Tally};

/// A node of a pool.
pub struct Node {
    pub(super) config: ProtocolConfig,
    view: View,
    rng: SmallRng,
    actions: VecDeque<Action>,
    links: links::Links,
    relay: relay::Relay,
    now: Duration,
    membership: membership::Membership,
    root: root::Roots,
    pub(super) shared: shared::Values,
    pub(super) bounds: shared::Bounds,
    homes: shared::Homes,
    pub(super) steal: steal::Steal,
    pub(super) books: books::Books,
    pub(super) repair: repair::Repair,
    pub(super) table: repair::Table,
    spread: repair::Spread,
    keeping: repair::Keeping,
    leaving: repair::Leaving,
    pub(super) buddies: repair::Buddies,
    storage: stable::Storage,
    keeps_roots: bool,
    /// Messages that came before this node knew that it is in, with their senders.
    early: VecDeque<(Peer, Message)>,
    lattices: Box<dyn Lattices + Send>,
}

impl Node {
    /// A node that is to join a pool, or to found one, as `config` says. It begins at the first
    /// [`handle_timeout`](Node::handle_timeout).
    #[must_use]
    pub fn new(
        config: ProtocolConfig,
        me: Identity,
        lattices: Box<dyn Lattices + Send>,
        seed: u64,
        now: Duration,
    ) -> Node {
        Node::formed(config, View::new(me), lattices, seed, now)
    }

    /// A node of a pool that has been formed beforehand: it is in, as everybody is whom `view` shows. The member with
    /// the smallest stamp is master.
    #[must_use]
    pub fn formed(
        config: ProtocolConfig,
        view: View,
        lattices: Box<dyn Lattices + Send>,
        seed: u64,
        now: Duration,
    ) -> Node {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut books = books::Books::default();
        if config.has_store() {
            books.note_kept();
        }
        Node {
            membership: membership::Membership::new(&config, &view, &mut rng, now),
            root: root::Roots::new(&view),
            shared: shared::Values::default(),
            bounds: shared::Bounds::new(&config),
            homes: shared::Homes::default(),
            steal: steal::Steal::new(&config),
            books,
            repair: repair::Repair::default(),
            table: repair::Table::new(view.me().peer),
            spread: repair::Spread::default(),
            keeping: repair::Keeping::default(),
            leaving: repair::Leaving::default(),
            buddies: repair::Buddies::default(),
            storage: stable::Storage::default(),
            keeps_roots: false,
            config,
            view,
            rng,
            actions: VecDeque::new(),
            early: VecDeque::new(),
            links: links::Links::default(),
            relay: relay::Relay::default(),
            now,
            lattices,
        }
    }

    /// The next action; to be asked until there is none. Drivers hand in all events that are there before they
    /// ask: what these bring together is said in one message.
    ///
    /// A [`Action::Send`] to a peer without a connection comes after an [`Action::Connect`].
    pub fn poll_action(&mut self) -> Option<Action> {
        // The turn ends here, not with each event: all that the events of a turn have to say to one
        // peer goes in one message.
        if self.actions.is_empty() {
            let (mut cx, mut parts) = self.split(self.now);
            parts.flush(&mut cx);
        }
        loop {
            // The way is chosen when a message leaves, not when it is queued: a connection may
            // stand by now, or have broken.
            if let Action::Send(to, message) = self.actions.front()? {
                // No word goes to a life whose end has been dealt with, though the message was
                // queued before: it might bring a job along.
                if !message.is_about_membership() && !self.view.is_alive(*to) {
                    self.actions.pop_front();
                    continue;
                }
                match self.links.way(*to, &self.view) {
                    links::Way::Open | links::Way::Via(_) => {}
                    links::Way::Connect(addr) => {
                        let peer = Some(*to);
                        // The message stays in the queue, behind the connection that it needs.
                        self.actions.push_front(Action::Connect { addr, peer });
                    }
                    links::Way::Hold => {
                        if let Some(Action::Send(to, message)) = self.actions.pop_front() {
                            self.relay.hold(to, message);
                        }
                        continue;
                    }
                    // The peer has left the view, or was never in it: no address is known.
                    links::Way::None => {
                        self.actions.pop_front();
                        continue;
                    }
                }
            }
            let mut action = self.actions.pop_front()?;
            self.links.watch(&action);
            // Loaded at the last moment, so that a result brings the bounds as they are now.
            if let Action::Send(peer, message) = action {
                action = self.load(peer, message);
            }
            return Some(action);
        }
    }

    /// A message as it leaves: offers of bounds arrive no later than the results that came of them.
    pub(super) fn load(&mut self, to: Peer, message: Message) -> Action {
        let message = self.bounds.load(to, message, &self.books, &self.config);
        match self.links.way(to, &self.view) {
            // Wrapped last: the offers must be within the envelope.
            links::Way::Via(circuit) => {
                self.relay.used(self.now, to, &message);
                relay::wrap(self.view.me().peer, to, circuit, &message)
            }
            _ => Action::Send(to, message),
        }
    }

    /// The driver has something to say to a peer: see [`Action::SendPart`].
    pub fn send(&mut self, to: Peer, message: Message) {
        self.actions.push_back(Action::Send(to, message));
    }

    /// When [`handle_timeout`](Node::handle_timeout) is to be called, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let all = [
            self.membership.next_timeout(),
            self.relay.next_timeout(&self.links, &self.config),
            self.root.next_timeout(),
            self.shared.next_timeout(),
            self.bounds.next_timeout(),
            self.homes.next_timeout(),
            self.books.next_timeout(),
            self.steal.next_timeout(),
            self.repair.next_timeout(),
            self.table.next_timeout(),
            self.spread.next_timeout(),
            self.leaving.next_timeout(),
            self.keeping.next_timeout(),
            self.buddies.next_timeout(),
            self.storage.next_timeout(),
        ];
        all.into_iter().flatten().min()
    }

    /// The workers have seen how long jobs take.
    pub(crate) fn seen(&mut self, samples: &[JobSample]) {
        self.steal.seen(samples);
    }

    /// What jobs cost here and elsewhere, as far as that is known.
    pub(crate) fn costs(&self) -> JobCosts {
        self.steal.costs()
    }

    /// Which requests for work are under way.
    #[must_use]
    pub fn asking(&self) -> Asking {
        self.steal.asking(&self.view)
    }

    /// Is the memory full, so that no jobs of others are taken?
    #[must_use]
    pub fn has_full_memory(&self) -> bool {
        self.steal.has_full_memory()
    }

    /// Do jobs or answers that are here wait for shared values?
    #[must_use]
    pub fn waits_for_values(&self) -> bool {
        self.shared.waiting() > 0
    }

    /// How a hosted job came here from the node that gave it; `None` if that does not wait for it, or it is not here.
    #[must_use]
    pub fn arrival(&self, key: HostedId) -> Option<Arrival> {
        let hosted = self.books.look(key)?;
        Some(Arrival {
            from: hosted.origin()?,
            sent_ms: hosted.sent_ms,
            came: hosted.came,
        })
    }

    /// The number of further results that need not be told at once: a timeout is set, at which the node looks for them.
    #[must_use]
    pub fn may_wait(&self) -> u32 {
        self.steal.may_wait(&self.books)
    }

    /// Number of orphans that this node knows, its own included.
    #[must_use]
    pub fn orphans(&self) -> usize {
        self.table.orphan_count()
    }

    /// Number of results of other nodes that are kept here.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.buddies.len()
    }

    /// Counts of what this node did about deaths and departures.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.books.tally
    }

    /// Jobs put back because the node that had them was gone, or gave them up: how many of each function, by its number.
    #[must_use]
    pub fn repairs(&self) -> &BTreeMap<u32, u64> {
        self.books.repairs()
    }

    /// The value that an offer would be [joined](Lattices::join) with now.
    #[must_use]
    pub fn known(&self, offer: &Offer) -> Option<&[u8]> {
        self.bounds.known(offer)
    }

    /// The live nodes, as this node sees them.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    fn split(&mut self, now: Duration) -> (Context<'_>, Parts<'_>) {
        self.now = now;
        let context = Context {
            now,
            term: self.root.term(),
            config: &self.config,
            view: &mut self.view,
            rng: &mut self.rng,
            actions: &mut self.actions,
            links: &mut self.links,
            books: &mut self.books,
            table: &mut self.table,
            homes: &mut self.homes,
        };
        let parts = Parts {
            membership: &mut self.membership,
            relay: &mut self.relay,
            root: &mut self.root,
            shared: &mut self.shared,
            bounds: &mut self.bounds,
            steal: &mut self.steal,
            repair: &mut self.repair,
            spread: &mut self.spread,
            keeping: &mut self.keeping,
            leaving: &mut self.leaving,
            buddies: &mut self.buddies,
            storage: &mut self.storage,
            keeps_roots: &mut self.keeps_roots,
            early: &mut self.early,
            lattices: &*self.lattices,
        };
        (context, parts)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        let (mut cx, mut parts) = self.split(now);
        // Membership first: an election that is due looks at its suspects.
        parts.membership.handle_timeout(&mut cx, parts.root);
        let term = cx.term;
        parts.root.handle_timeout(&mut cx, parts.membership);
        // A wait that ends may make this node master.
        if cx.term != term {
            parts.keep_roots(&mut cx);
        }
        parts.shared.handle_timeout(&mut cx, parts.lattices);
        parts.bounds.handle_timeout(&mut cx);
        parts.forget_homes(&mut cx);
        parts.ask_again(&mut cx);
        parts.repair.handle_timeout(&mut cx);
        parts.look_for_ways(&mut cx);
        cx.table.handle_timeout(cx.actions, now);
        parts.spread.handle_timeout(&mut cx);
        parts.keeping.handle_timeout(&mut cx);
        parts.buddies.handle_timeout(&mut cx);
        if parts.storage.handle_timeout(&mut cx) {
            parts.root.loaded(&mut cx);
        }
        self.pass_on(now);
    }

    /// Takes in an event. The actions that follow are polled afterwards.
    pub fn handle(&mut self, now: Duration, event: Event) {
        let (mut cx, mut parts) = self.split(now);
        let cx = &mut cx;
        match event {
            Event::Connected {
                peer,
                epoch,
                round_trip,
            } => {
                let (who, epoch) = (peer.peer, links::epoch_of(epoch));
                // Before the new one is entered: words on the old one may be lost, and are to be
                // said again.
                parts.replaced(cx, who);
                cx.links.connected(who, epoch);
                parts.relay.connected(cx, who);
                parts.connected(cx, &peer, epoch, Some(round_trip));
            }
            Event::Disconnected { peer, epoch } => {
                let epoch = links::epoch_of(epoch);
                cx.links.disconnected(peer, epoch);
                // The end of a connection that another has replaced is no news.
                if !cx.links.is_stale(peer, epoch) {
                    parts.disconnected(cx, peer, epoch);
                }
            }
            Event::Unreachable { addr, peer, unsent } => {
                parts.unreachable(cx, addr, peer, unsent);
            }
            Event::Gone(peer) => parts.membership.gone(cx, peer),
            Event::Candidates { join, may_found } => {
                parts.membership.candidates(cx, join, may_found);
            }
            Event::RoundTrip(peer, round_trip) => parts.steal.round_trip(cx, peer, round_trip),
            Event::Received {
                from,
                epoch,
                message,
            } => {
                // A connection that has been replaced is not to be trusted any more: both sides
                // have compared their lists, and a late message would bring a job that has been put
                // back.
                if cx.links.counts(from, links::epoch_of(epoch)) {
                    parts.unwrap(cx, from, message);
                }
            }
            Event::Idle(workers) => cx.books.idle(workers),
            Event::Public => parts.steal.public(),
            Event::KeptFor(keeper) => parts.steal.kept_for(keeper),
            Event::MemoryFull(is_full) => parts.steal.memory_full(cx, is_full),
            Event::Took(took) => parts.took(cx, took),
            Event::Done(key, mut answer) => {
                if let Answer::Result {
                    kept: Some(kept), ..
                } = &mut answer
                {
                    kept.at = cx.view.me().peer.id.0;
                    if let Some(hosted) = cx.books.look(key) {
                        let root = hosted.root;
                        cx.books.kept_here.keep(root, kept);
                    }
                }
                parts.steal.done(cx, key, &answer);
                let saved = parts.repair.done(cx, key, answer);
                parts.save(cx, saved.into_iter().collect());
            }
            Event::PartsDone(parts_done) => steal::Steal::tell_parts(cx, &parts_done),
            Event::Recalled(departure, why) => parts.repair.recalled(cx, departure, why),
            Event::Claimed(departure, parcel) => {
                // The orphan's bounds count from now on: the answer will have been computed
                // under them.
                parts.bounds.belongs(cx, parcel.root_run());
                parts.repair.claimed(cx, departure, parcel);
            }
            Event::Saved(key, saved) => {
                parts.repair.saved(cx, key);
                parts.save(cx, saved);
            }
            Event::Held(names) => parts.repair.held(cx, names),
            Event::Harvested(reader, gathered) => parts.gathered(cx, reader, gathered),
            Event::Repaired(id) => parts.repair.repaired(cx, &id),
            Event::RunOpened { run, batch } => {
                parts.load(cx, batch);
                parts.storage.opened(cx, run);
                parts.root.loaded(cx);
            }
            Event::CannotOpenRun { text, is_refused } if parts.root.must_end(is_refused) => {
                parts.root.cannot_begin(cx, text);
            }
            Event::CannotOpenRun { text, .. } => {
                parts.storage.cannot_open(cx, &text);
                parts.root.loaded(cx);
            }
            Event::Written {
                number,
                segment,
                bytes,
            } => parts.storage.written(cx, number, segment, bytes),
            Event::NotWritten { number, text } => parts.storage.not_written(cx, number, text),
            Event::LogRead { peer, batch } => {
                parts.load(cx, batch);
                cx.table.log_read(cx.now, peer);
            }
            Event::NoLook => parts.storage.looked(),
            Event::Superseded(epoch) => {
                parts.storage.looked();
                let is_master = parts.root.is_master(cx.view);
                if (is_master || lacks_master(parts.root, parts.membership))
                    && cx.config.obeys(Rule::Epoch)
                {
                    let text = format!(
                        "another start of this program goes on with this run, as epoch {epoch}: this one ends"
                    );
                    cx.actions.push_back(Action::Tell(Notice::Warning(text)));
                    parts.root.superseded(cx);
                }
            }
            Event::MainSeen { latest, is_own } => {
                if let Some(time) = parts.storage.main_seen(cx, latest, is_own) {
                    parts.root.main_goes_on(cx.now + time);
                    parts.membership.main_goes_on(cx.now, time);
                }
            }
            Event::RunIsOver(code) => {
                parts.storage.looked();
                let text = format!(
                    "the run has come to its end at another side of a cut, with exit code {code}: this side ends too"
                );
                cx.actions.push_back(Action::Tell(Notice::Warning(text)));
                parts.root.run_is_over(cx, code);
            }
            Event::RootResult(tag, saved, patience) => {
                parts.storage.root(cx, &saved, parts.bounds);
                let steal = &*parts.steal;
                let is_waited_for = |view: &View, keeper| steal.distance(view, keeper) <= patience;
                parts.keeping.root(cx, tag, saved, is_waited_for);
            }
            Event::Yielded(saved) => {
                // A node that leaves waits for this word. Until it goes they are to be had here; then they go to its heir with
                // all others.
                if !parts.leaving.is_leaving() {
                    parts.save(cx, saved);
                } else if let Some(saved) = parts.leaving.yielded(saved) {
                    parts.repair.keep(cx, cx.term, saved);
                }
            }
            Event::Drain(grace) => {
                let then = stable::AfterLast::Leave(cx.now + grace);
                match parts.leaving.is_leaving() {
                    true => parts.go_after_last(cx, then),
                    false => parts.write_last_and_go(cx, then),
                }
            }
            Event::BrokenOff(code) => {
                parts.write_last_and_go(cx, stable::AfterLast::End(code));
            }
            Event::Readdressed(addr) => {
                if parts.membership.readdressed(cx, addr) {
                    parts.root.readdressed(cx);
                }
            }
            Event::PieceStored {
                name,
                offset,
                is_first,
            } => parts.shared.piece_stored(cx, name, offset, is_first),
            Event::Stored(name) => parts.shared.stored(cx, name),
            Event::Corrupt(name) => parts.shared.corrupt(cx, name),
            Event::Bring(kept) => parts.bring_kept(cx, &kept),
            Event::Prefetch {
                to,
                value,
                root,
                at,
            } => cx.tell_to_prefetch(NodeId(to), value, root, at.map(NodeId)),
            Event::Unneeded { at, names } => {
                cx.unneeded(cx.view.me().peer.id, NodeId(at), names);
            }
            Event::Offered(offer) => parts.bounds.offered(cx, offer, parts.lattices),
            Event::RootStarted(run) => {
                cx.homes.root_started(run.name);
                parts.shared.root_started(run.name);
                parts.repair.forget_other_root(cx, run.name);
                parts.bounds.root_started(cx, run);
                parts.root_begins(cx, run.name);
            }
            Event::RootFinished(run) => {
                cx.homes.root_finished(run.name);
                parts.root.finished(cx, run);
                // Orphans of a root job that the next master calls again are wanted.
                if !is_called_again(cx, run) {
                    parts.repair.close_root(cx, run.name);
                }
                parts.root_done(cx, run);
            }
            Event::MainEnded(code) => parts.main_ended(cx, code),
            Event::Leave => parts.go(cx),
        }
        self.pass_on(now);
    }

    /// Passes on what one conversation found out and others must know, until there is nothing left.
    pub(super) fn pass_on(&mut self, now: Duration) {
        loop {
            let (mut cx, mut parts) = self.split(now);
            let cx = &mut cx;
            // Changes of the view first, one at a time: what follows is said and done in the new
            // view.
            if let Some(change) = parts.membership.poll_change(cx) {
                parts.change(cx, change);
                cx.table.look_at_deadly_again();
            } else if let Some(then) = parts.shared.poll_ready() {
                parts.go_on(cx, then);
            } else if let Some((from, message)) = parts.take_early() {
                // A message at a time, after all changes of the view: the sender must be in it to
                // be heard.
                parts.receive(cx, from, message);
            } else if let Some(then) = parts.storage.has_written_last(cx) {
                parts.go_after_last(cx, then);
            } else if parts.leaving.go_on(cx, parts.repair, parts.keeping) {
                // Only when there is nothing else to pass on: what this turn brought is saved too.
                parts.go(cx);
            } else {
                // Last, when the view and the sheets are what they will be in this turn.
                (cx.table).tell_deadly(cx.actions, cx.view, cx.config.max_crashes);
                return;
            }
        }
    }

    /// The run that goes on, if the node knows it.
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn run_epoch(&self) -> Option<super::RunEpoch> {
        self.storage.run()
    }

    /// Has the node lost its master, and looks into the store whether that one's `main` goes on?
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn waits_for_main(&self) -> bool {
        self.storage.waits_for_main()
    }

    /// Does the node wait for a master?
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn lacks_master(&self) -> bool {
        lacks_master(&self.root, &self.membership)
    }

    /// The time between two signs of life of a `main`.
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn beat_time(&self) -> Duration {
        stable::beat_time(&self.config)
    }

    /// Does the batch that is on its way to the store lack room for what else the node has to write?
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn writes_full_batch(&self) -> bool {
        self.storage.writes_full_batch()
    }

    /// The side of a cut at which this node is, as it sees that.
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn side(&self) -> super::Side {
        self.root.side(&self.view)
    }

    /// The lives that fell silent, and that this node looks for.
    pub fn misses(&self) -> impl Iterator<Item = Peer> {
        self.membership.misses()
    }

    /// Is nothing under way between this node and others?
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.books.is_settled()
    }

    /// Declares a peer dead, as a story tells, where no failure detector runs.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn declare_dead(&mut self, now: Duration, peer: Peer) {
        let gone = self.view.remove(peer);
        let (mut cx, mut parts) = self.split(now);
        if let Some(gone) = gone {
            parts.life_ended(&mut cx, &gone, repair::LifeEnd::Died);
        }
        self.pass_on(now);
    }
}
