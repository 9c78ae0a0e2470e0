//! What touches several conversations: messages and events on their way to them, and the sequences in which a life or a root job ends.

use std::{
    collections::{BTreeSet, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use super::{
    Action, Context, Deal, HarvestReader, Identity, Message, NodeId, Notice, Peer, PendingArrival,
    Rule, TookJobs, books, membership, message::Cargo, relay, repair, root, shared, stable, steal,
};
use crate::job::{
    Batch, Gathered, JobId, KeptElsewhere, Lattices, Offer, RootName, RootRun, Saved, ValueName,
};

/// The number of messages that are kept until this node knows that it is in; others are lost, as if their
/// senders had been early. Too small: a newcomer misses words. Too large: memory.
const EARLY_MOST: usize = 1024;

/// The conversations, apart, so that they can be used side by side.
pub(super) struct Parts<'n> {
    pub(super) membership: &'n mut membership::Membership,
    pub(super) relay: &'n mut relay::Relay,
    pub(super) root: &'n mut root::Roots,
    pub(super) shared: &'n mut shared::Values,
    pub(super) bounds: &'n mut shared::Bounds,
    pub(super) steal: &'n mut steal::Steal,
    pub(super) repair: &'n mut repair::Repair,
    pub(super) spread: &'n mut repair::Spread,
    pub(super) keeping: &'n mut repair::Keeping,
    pub(super) leaving: &'n mut repair::Leaving,
    pub(super) buddies: &'n mut repair::Buddies,
    pub(super) storage: &'n mut stable::Storage,
    pub(super) keeps_roots: &'n mut bool,
    pub(super) early: &'n mut VecDeque<(Peer, Message)>,
    pub(super) lattices: &'n dyn Lattices,
}

impl Parts<'_> {
    /// The end of a turn: what it brought together is said, and work is sought or given.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        for (from, then) in self.storage.take_put_off(cx) {
            // The job may have been recalled meanwhile.
            if let PendingArrival::Start(key, _) = &then
                && cx.books.look(*key).is_some_and(books::Hosted::is_coming)
            {
                self.bring(cx, from, then);
            }
        }
        for kept in cx.books.take_loose() {
            let names = kept.values.iter().map(|value| value.name).collect();
            cx.unneeded(cx.view.me().peer.id, NodeId(kept.at), names);
        }
        // First the answers and recalls of this turn: peers wait for them.
        self.steal.say(cx);
        // In the last turn nothing new is begun.
        if !cx.books.leaving {
            self.shared.go_on_prefetching(cx, self.lattices);
            self.repair.flush(cx, self.steal.asks_in_vain());
            let only_for_others = self.repair.offers_held(cx);
            self.steal.flush(cx, only_for_others);
            self.repair.look_if_stuck(cx);
            self.buddies.look(cx, self.root.is_master(cx.view));
            let mastery = self.root.is_master(cx.view).then(|| stable::Mastery {
                founder: self.root.founder(cx.view),
                main_waits: self.root.waits_for_store(),
            });
            let lacks_master = lacks_master(self.root, self.membership);
            self.storage.look(cx, mastery, lacks_master);
        }
        // Last: all of this turn's orphans go in one piece of news.
        self.spread.look(cx);
    }

    /// The workers have given these jobs away, or nothing: they go to the thief that asked, or stay after all.
    pub(super) fn took(&mut self, cx: &mut Context<'_>, took: TookJobs) {
        // An answer to a question that is not under way: there is no asker to take the jobs for.
        let Some(asker) = self.steal.took(cx, &took, self.lattices) else {
            return repair::Repair::stay(cx, took.jobs);
        };
        let TookJobs {
            jobs,
            left,
            not_worth,
            ..
        } = took;
        // The asker may have died since. A job that is sent to the dead is put back by nobody.
        let is_gone = !cx.view.is_alive(asker.peer) || cx.books.leaving;
        let Some(first) = jobs.first() else {
            return match not_worth.is_empty() || is_gone {
                true => {
                    // It has asked all others in vain.
                    if asker.stands() {
                        self.repair.do_one_late(cx);
                    }
                    self.steal.wait(asker);
                }
                false => self.steal.refuse(cx, asker),
            };
        };
        if !is_gone && !self.steal.are_worth(cx, &asker, &jobs, self.lattices) {
            repair::Repair::stay(cx, jobs);
            return self.steal.refuse(cx, asker);
        }
        let is_too_fresh = self.steal.is_too_fresh(cx, &asker, first);
        let must_wait = self.repair.must_wait(cx, asker.peer, &jobs);
        if is_gone || is_too_fresh || must_wait {
            repair::Repair::stay(cx, jobs);
            if !is_gone {
                self.steal.pass_over(cx, asker, must_wait);
            }
            return;
        }
        let jobs = self.repair.depart(cx, asker.peer, jobs);
        self.steal.send(cx, &asker, jobs, left);
    }

    // ---- links

    /// A connection stands, direct or by a circuit.
    pub(super) fn connected(
        &mut self,
        cx: &mut Context<'_>,
        peer: &Identity,
        epoch: u64,
        round_trip: Option<Duration>,
    ) {
        self.steal.connected(cx, peer.peer, epoch, round_trip);
        self.repair.connected(cx, peer.peer, epoch);
        self.membership.connected(cx, peer, epoch, self.root);
        self.root.connected(cx, peer.peer);
        // What was said on a connection that broke may be lost, and a node that knows no run writes nothing.
        if self.root.is_master(cx.view) && cx.view.is_alive(peer.peer) {
            self.storage.welcome(cx, peer.peer);
        }
    }

    /// Another connection is about to take the place of the one that stands, if one does.
    pub(super) fn replaced(&mut self, cx: &mut Context<'_>, peer: Peer) {
        if cx.links.epoch(peer).is_some() {
            self.bounds.disconnected(peer);
            self.shared.disconnected(cx, peer);
            self.broken(cx, peer);
        }
    }

    pub(super) fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer, epoch: u64) {
        self.bounds.disconnected(peer);
        self.shared.disconnected(cx, peer);
        self.steal.disconnected(cx, peer, epoch);
        self.repair.disconnected(cx, peer);
        self.membership.disconnected(cx, peer, epoch);
        self.broken(cx, peer);
        // A peer that is being called through others keeps its epochs: a circuit must have a
        // higher one.
        if !cx.view.is_alive(peer) && !cx.links.is_astray(peer) {
            cx.links.forget(peer);
        }
    }

    /// Ends the circuits that went through that peer.
    fn broken(&mut self, cx: &mut Context<'_>, peer: Peer) {
        for (other, epoch) in self.relay.disconnected(cx, peer) {
            self.disconnected(cx, other, epoch);
        }
    }

    pub(super) fn unreachable(
        &mut self,
        cx: &mut Context<'_>,
        addr: SocketAddr,
        peer: Option<Peer>,
        unsent: Vec<Message>,
    ) {
        // On the way in addresses are dialled before it is known who is there.
        let Some(peer) = peer else {
            return self.membership.unreachable(cx, addr, None);
        };
        cx.links.unreachable(peer);
        // Messages that waited for the connection come back, and may not be said at all.
        self.bounds.disconnected(peer);
        // On the way in the view is empty: any node that this one was told of is to be reached.
        let wanted = cx.view.is_alive(peer) || self.membership.is_searching();
        let by_circuit = cx.links.circuit(peer).is_some();
        // Over a circuit the peer is reached: that no direct connection can be made is no news.
        if !by_circuit {
            self.steal.unreachable(peer);
            self.repair.unreachable(cx, peer);
            self.membership.unreachable(cx, addr, Some(peer));
        }
        if wanted && cx.links.direct(peer).is_none() {
            self.relay.lose(cx, peer, addr, unsent);
        }
    }

    /// Ends the circuits, and gives up the peers, whose time has come.
    pub(super) fn look_for_ways(&mut self, cx: &mut Context<'_>) {
        let due = self.relay.handle_timeout(cx);
        for (peer, epoch) in due.ended {
            self.disconnected(cx, peer, epoch);
        }
        for peer in due.cut_off {
            self.membership.cut_off(cx, peer);
        }
    }

    /// Takes in a message; if another node has passed it on, under its real sender's name.
    pub(super) fn unwrap(&mut self, cx: &mut Context<'_>, mut from: Peer, mut message: Message) {
        use relay::Heard;
        while let Message::Relay(envelope) = message {
            // The relay lives, whatever it passes on.
            self.membership.heard(cx, from);
            match self.relay.heard(cx, from, envelope) {
                Heard::Nothing => return,
                Heard::Stands(other, circuit, round_trip) => {
                    // A new circuit is a new connection: circuits through the old one have ended,
                    // and words may be lost.
                    self.broken(cx, other.peer);
                    self.bounds.disconnected(other.peer);
                    self.connected(cx, &other, circuit.epoch, round_trip);
                    return self.shared.disconnected(cx, other.peer);
                }
                Heard::Ended(peer, epoch) => return self.disconnected(cx, peer, epoch),
                Heard::Message(other, inside) => (from, message) = (other, inside),
            }
        }
        self.receive_or_keep(cx, from, message);
    }

    // ---- who is there

    pub(super) fn change(&mut self, cx: &mut Context<'_>, change: membership::MemberChange) {
        use membership::MemberChange;
        match change {
            MemberChange::Joined => {
                let me = cx.view.me().peer;
                // The first life has the name that the table was made with. In a later one the
                // sheet goes on under the new name, and circuits do not.
                if cx.table.me() != me {
                    cx.table.rename(cx.actions, cx.now, me);
                    self.spread.rename();
                    self.relay.clear(cx);
                }
                self.storage.come_in(cx);
                self.root.come_in(cx);
                self.keep_roots(cx);
            }
            MemberChange::In(peer) => {
                // A node that is back was not taken down by any job.
                cx.table.came_back(cx.now, peer);
                self.steal.joined(cx);
                self.root.joined(cx, peer);
                self.look_after_roots(cx);
                // Rule `Welcome`: without the table a joiner's stolen jobs look themselves up in
                // vain. The master alone gives it, or every node would.
                if self.root.is_master(cx.view) {
                    self.spread.welcome(cx, peer);
                    self.storage.welcome(cx, peer);
                }
            }
            MemberChange::Out(gone, why) => {
                // Repair before election: a new master that begins at once must find the orphans in
                // the table.
                // A cut is one between sites.
                let end = match why.into() {
                    repair::LifeEnd::Silent if gone.site == cx.view.me().site => {
                        repair::LifeEnd::Died
                    }
                    end => end,
                };
                self.life_ended(cx, &gone, end);
                self.root.life_ended(cx, &gone, why, self.membership);
                self.look_after_roots(cx);
            }
            MemberChange::Over(mates) => {
                // The other `main` may never call the root jobs that this side's has begun.
                self.shared.forget_roots(cx, |root| root.is_of_main());
                for mate in &mates {
                    self.life_ended(cx, mate, repair::LifeEnd::Left);
                }
                // Circuits stand between lives, and what waits was said to the life before.
                self.relay.clear(cx);
                self.early.clear();
                cx.actions.push_back(Action::Tell(Notice::ComesOver));
                self.repair.come_over(cx);
                self.root.come_over(cx);
                self.storage.come_over();
                self.keep_roots(cx);
            }
            MemberChange::Anew(peer) => {
                // Other nodes have dealt with the end of this node's old life: on this side it must
                // end too, or what this node runs would be no orphan, and its origins would do all
                // of it again.
                if cx.config.obeys(Rule::Rebirth)
                    && let Some(other) = cx.view.get(peer).cloned()
                {
                    self.life_ended(cx, &other, repair::LifeEnd::Ours);
                }
                cx.table.came_back(cx.now, peer);
                self.steal.joined(cx);
                self.root.anew(cx, peer);
            }
        }
    }

    pub(super) fn life_ended(
        &mut self,
        cx: &mut Context<'_>,
        gone: &Identity,
        end: repair::LifeEnd,
    ) {
        // Circuits through the dead first: what follows is said to others by ways that still exist.
        for (other, epoch) in self.relay.forget(cx, gone.peer) {
            self.disconnected(cx, other, epoch);
        }
        cx.books.holders.life_ended(gone.peer);
        self.shared.life_ended(cx, gone.peer);
        self.bounds.life_ended(cx, gone.peer);
        cx.homes.life_ended(cx.now, gone.peer);
        // Copies of what the dead one had are announced with the orphans, before anybody looks for them.
        let died = end.is_death();
        for (term, saved) in self.buddies.life_ended(gone.peer, died) {
            self.repair.keep(cx, term, saved);
        }
        let is_master = self.root.is_master(cx.view);
        if died && (self.storage).reads_log(cx, gone.peer, is_master) {
            cx.table.await_log(gone.peer);
        }
        // Results that the dead one had taken, and of which this node keeps a part, are announced then, too. If only this node's old life is
        // over, the peer goes on with them.
        if end != repair::LifeEnd::Ours {
            let left = cx.books.kept_here.taker_gone(gone.peer.id);
            self.repair.keep_left_behind(cx, left.results);
            if !left.rest.is_empty() {
                cx.unneeded(gone.peer.id, cx.view.me().peer.id, left.rest);
            }
        }
        self.repair.life_ended(cx, gone, end);
        self.steal.life_ended(gone.peer);
        self.keeping.life_ended(cx, gone.peer);
    }

    /// Keeps what stands in the store, as if another node had left it.
    pub(super) fn load(&mut self, cx: &mut Context<'_>, batch: Batch) {
        let (late, offers) = self.bounds.divide(cx, batch.offers);
        // Bounds first: the results were computed under them.
        self.bounds.loaded(cx, offers, self.lattices);
        let facts = batch.facts.into_iter().map(|fact| fact.saved);
        self.repair.keep_stored(cx, cx.term, facts.collect());
        self.keep_bounds(cx, late);
    }

    /// Keeps bounds of root jobs that are over beside their results, which have come with them and go first.
    fn keep_bounds(&mut self, cx: &Context<'_>, late: Vec<Offer>) {
        let late = late.into_iter().filter(|offer| cx.books.keeps(offer.root));
        self.bounds.keep(late.collect(), self.lattices);
    }

    /// The workers have told what they have gathered.
    pub(super) fn gathered(
        &mut self,
        cx: &mut Context<'_>,
        reader: HarvestReader,
        mut gathered: Gathered,
    ) {
        if reader != HarvestReader::Storage {
            // The values may be gone with this node. What is below such a result is there too.
            (gathered.facts).retain(|fact| fact.saved.answer.needs().is_empty());
        }
        // The bounds of root jobs that are over are forgotten, but those beside the results of the root jobs themselves: what a
        // worker or a `main` that yielded still has of them is not worth keeping.
        let is_over = |id: &JobId| self.repair.is_over(cx.term, id);
        gathered.facts.retain(|fact| !is_over(&fact.saved.name.id));
        match reader {
            HarvestReader::Buddy => self.buddies.gathered(cx, gathered),
            HarvestReader::Heir => self.gathered_of_main(cx, gathered),
            HarvestReader::Storage => {
                (cx.books).retain_newly_kept(|name| name.id.is_root_job() || !is_over(&name.id));
                self.storage.gathered(cx, gathered, self.bounds);
            }
        }
    }

    /// What this node, which leaves, has of `main`'s root job is to be had here until it goes.
    fn gathered_of_main(&mut self, cx: &mut Context<'_>, gathered: Gathered) {
        let Some((term, asked)) = self.leaving.gathered() else {
            return;
        };
        // Hosted jobs go on here as long as there is time: what is below them is not for others yet.
        let hosted: Vec<_> = (gathered.under.iter())
            .filter(|job| !job.is_root_job())
            .collect();
        let facts = gathered.facts.into_iter().map(|fact| fact.saved);
        let of_main =
            facts.filter(|fact| !hosted.iter().any(|job| job.is_ancestor_of(&fact.name.id)));
        self.repair.keep(cx, term, of_main.collect());
        for peer in asked {
            self.spread.versions(cx, peer, &[]);
        }
    }

    /// Goes when what is finished here is in the store; at once if there is none.
    pub(super) fn write_last_and_go(&mut self, cx: &mut Context<'_>, then: stable::AfterLast) {
        if !self.storage.writes_last(cx, then) {
            self.go_after_last(cx, then);
        }
    }

    pub(super) fn go_after_last(&mut self, cx: &mut Context<'_>, then: stable::AfterLast) {
        match then {
            stable::AfterLast::Leave(end) => self.drain(cx, end.saturating_sub(cx.now)),
            stable::AfterLast::End(code) => self.main_ended(cx, code),
        }
    }

    /// The end of the pool; or, if another node runs `main` by now, of this node's part.
    pub(super) fn main_ended(&mut self, cx: &mut Context<'_>, code: i32) {
        if !self.root.main_ended(cx, code) {
            self.go(cx);
        }
    }

    /// This node leaves within that time.
    fn drain(&mut self, cx: &mut Context<'_>, grace: Duration) {
        match self.leaving.begin(cx, self.root, grace) {
            repair::DepartureStep::Now => {
                self.steal.drain(cx);
                repair::Repair::drain(cx);
                if self.leaving.is_yielding() {
                    repair::Repair::disown_main(cx);
                }
            }
            repair::DepartureStep::Before => {}
            // No node could take over anything.
            repair::DepartureStep::Alone => self.go(cx),
        }
    }

    /// Says goodbye, whatever is left undone.
    pub(super) fn go(&mut self, cx: &mut Context<'_>) {
        self.steal.leave(cx);
        self.repair.leave(cx);
        // The outboxes go out before the goodbye: after it nobody listens.
        self.steal.say(cx);
        self.membership.leave(cx);
    }

    /// Results that outlive their jobs' parents stay here, or go to the heir of this node.
    pub(super) fn save(&mut self, cx: &mut Context<'_>, saved: Vec<Saved>) {
        if saved.is_empty() {
            return;
        }
        if let Some(saved) = self.leaving.takes(saved) {
            self.repair.keep(cx, cx.term, saved);
        }
    }

    /// After a change of the view: are results of root jobs to be kept by others, and do enough nodes keep them?
    fn look_after_roots(&mut self, cx: &mut Context<'_>) {
        self.keep_roots(cx);
        // Without a death or a kept result there is nothing to look after.
        if !cx.config.obeys(Rule::Replicate) || cx.table.is_blank() {
            return;
        }
        for name in cx.books.root_results() {
            let owners = cx.table.owners(&name);
            // A result with one owner dies with it. The only owner sees to a second one, so that
            // not all nodes do.
            if owners.len() == 1
                && let Some(saved) = repair::Repair::kept(cx, &name)
            {
                self.keeping.again(cx, saved, &owners);
            }
        }
    }

    /// The master keeps the results of root jobs, if there is anybody to keep them with.
    pub(super) fn keep_roots(&mut self, cx: &mut Context<'_>) {
        let keep = self.root.is_master(cx.view) && (cx.view.len() > 1 || cx.config.has_store());
        // Alone, `main` need not wait for keepers, and the workers need not write results down.
        if keep != *self.keeps_roots {
            *self.keeps_roots = keep;
            cx.actions.push_back(Action::KeepRoots(keep));
        }
    }

    pub(super) fn root_begins(&mut self, cx: &mut Context<'_>, root: RootName) {
        let is_kept = cx.table.owner(&root.job_name(), cx.view).is_some();
        // A root job whose result is kept is claimed, not run: it takes nobody down.
        if root.is_of_main() && !is_kept {
            self.root.begins(root);
        }
    }

    pub(super) fn root_done(&mut self, cx: &mut Context<'_>, run: RootRun) {
        // The word of a `main` that is being stopped: the next one calls the same root job, and
        // wants what is kept below.
        if is_called_again(cx, run) {
            return;
        }
        self.repair.root_over(cx, run.tag());
        self.buddies.root_over(run.name);
        self.root.is_over(run.name);
        let Parts {
            bounds, keeping, ..
        } = self;
        bounds.root_done(run, &|root| needs_bounds(cx.books, keeping, root));
        self.shared.root_done(cx, run.name);
        (cx.books.holders).forget_roots(|other| run.name.ends(other));
        (cx.books.kept_here).forget_roots(|other| run.name.ends(other));
        cx.actions.push_back(Action::ForgetRoot(run.name));
    }

    /// The root jobs of which anything is here.
    fn known_roots(&self, books: &books::Books) -> impl Iterator<Item = RootName> {
        (self.bounds.roots())
            .chain(self.shared.roots())
            .chain(self.buddies.roots())
            .chain(books.roots_of_orphans())
            .chain(books.holders.roots())
            .chain(books.kept_here.roots())
    }

    /// Asks for words that were lost: who is master, which root jobs are over.
    pub(super) fn ask_again(&mut self, cx: &mut Context<'_>) {
        if !self.root.asks_again(cx) {
            return;
        }
        let known: BTreeSet<_> = self.known_roots(cx.books).collect();
        // Other nodes may have asked for a value, or offered a bound, of a root job that is
        // over here, and no message will say so.
        let over = cx.homes.own_over(cx.view, &known);
        for run in over.into_iter().chain(self.root.last_over(cx.view)) {
            self.root_done(cx, run);
        }
        let asked = cx.homes.ask(cx.now, cx.view, &known);
        cx.actions.extend(asked);
        let Parts {
            bounds, keeping, ..
        } = self;
        let gone = bounds.sweep(&|root| needs_bounds(cx.books, keeping, root));
        // Not those of `main`, with which all before them end: a new `main` may be at those again. They go with the next
        // one of their number, or a higher one, that ends.
        let gone = gone.into_iter().filter(|root| !root.is_of_main());
        cx.actions.extend(gone.map(Action::ForgetRoot));
    }

    /// Forgets root jobs of processes that did not come back: no word will ever end them.
    pub(super) fn forget_homes(&mut self, cx: &mut Context<'_>) {
        let orphaned = (cx.homes).orphaned(cx.now, cx.view, self.known_roots(cx.books));
        for root in orphaned {
            self.repair.forget_root(cx, root);
            self.buddies.root_over(root);
            self.bounds.forget(root);
            self.shared.forget_roots(cx, |other| other == root);
            cx.books.holders.forget_roots(|other| other == root);
            cx.books.kept_here.forget_roots(|other| other == root);
            cx.actions.push_back(Action::ForgetRoot(root));
        }
    }

    /// Lets an arrival go on once its shared values are here; they may be already.
    fn bring(&mut self, cx: &mut Context<'_>, from: Peer, then: PendingArrival) {
        if matches!(then, PendingArrival::Start(..)) && cx.table.is_loading(cx.view) {
            return self.storage.put_off(from, then);
        }
        let root_number = cx.books.root_number_of(&then);
        let ready = (self.shared).bring(cx, from, root_number, then, self.lattices);
        if let Some(then) = ready {
            self.repair.go_on(cx, then);
        }
    }

    /// Brings a value that another node keeps for this one.
    pub(super) fn bring_kept(&mut self, cx: &mut Context<'_>, kept: &KeptElsewhere) {
        let KeptElsewhere { name, root, .. } = *kept;
        self.shared.root_started(root);
        // What this node keeps is here, or nowhere; and nodes that have borrowed a value outlive its keeper.
        let is_other = |peer: &Peer| *peer != cx.view.me().peer;
        let keeper = cx.view.life_of(NodeId(kept.at)).filter(is_other);
        let borrowers = cx.books.holders.of(name).filter(is_other);
        let then = PendingArrival::Local(kept.ticket, name);
        let ready = match keeper.or_else(|| borrowers.min()) {
            _ if self.lattices.holds(name) => Some(then),
            Some(holder) => (self.shared).bring(cx, holder, root.number, then, self.lattices),
            None => Some(PendingArrival::Lost(kept.ticket, name)),
        };
        if let Some(then) = ready {
            self.repair.go_on(cx, then);
        }
    }

    /// An arrival goes on, as its values are here. One that was here before the others came may have had to make room.
    pub(super) fn go_on(&mut self, cx: &mut Context<'_>, then: PendingArrival) {
        let is_here = |name: &ValueName| self.lattices.holds(*name);
        if let PendingArrival::Start(key, parcel) = &then
            && !parcel.lent.is_empty()
            && !parcel.needs.iter().all(is_here)
            && let Some(origin) = cx.books.look(*key).and_then(books::Hosted::origin)
        {
            return self.bring(cx, origin, then);
        }
        let borrowed = then.borrowed().to_vec();
        self.repair.go_on(cx, then);
        if !borrowed.is_empty() {
            cx.actions.push_back(Action::Borrowed(borrowed));
        }
    }

    /// The next message that was put aside, if it can be heard now.
    pub(super) fn take_early(&mut self) -> Option<(Peer, Message)> {
        if self.early.is_empty() || self.membership.is_searching() {
            return None;
        }
        let mut early = self.early.iter();
        let next = early.position(|(from, _)| !self.membership.awaits(*from))?;
        self.early.remove(next)
    }

    /// Puts a message aside until this node knows that it is in, and that the sender is. Words about membership are heard before.
    fn receive_or_keep(&mut self, cx: &mut Context<'_>, from: Peer, message: Message) {
        // The welcome may be overtaken: nodes that heard of this one by gossip speak to it already.
        let waits = self.membership.is_searching() || self.membership.awaits(from);
        if message.is_about_membership() || !waits {
            self.receive(cx, from, message);
        } else if self.early.len() < EARLY_MOST {
            self.early.push_back((from, message));
        }
    }

    pub(super) fn receive(&mut self, cx: &mut Context<'_>, from: Peer, message: Message) {
        use Message as M;
        self.membership.heard(cx, from);
        // Rule `Liveness`: jobs from a life that is over here would stay in the books, as its end has been dealt with.
        let alive = cx.view.is_alive(from) || !cx.config.obeys(Rule::Liveness);
        if !message.is_about_membership() && !alive {
            return;
        }
        match message {
            M::Steal {
                request,
                most,
                kind,
            } => self.steal.asked(cx, from, request, most, kind),
            M::Jobs {
                request,
                jobs,
                left,
                sent_ms,
            } => {
                for (_, parcel) in &jobs {
                    // Before the job starts: its workers must know the bounds of its root job.
                    self.bounds.belongs(cx, parcel.root_run());
                }
                (self.steal).answered(cx, from, request, left, &jobs);
                for arrival in self.repair.arrived(cx, from, sent_ms, jobs) {
                    self.bring(cx, from, arrival);
                }
            }
            M::NotWorth(request) => self.steal.refused(cx, from, request),
            M::Cut(request) => self.steal.cut(from, request),
            M::Spent(spent) => steal::Steal::spent(cx, from, &spent),
            M::PartsDone(parts) => steal::Steal::parts_done(cx, from, &parts),
            M::Trial(bytes) => {
                let arrived = Message::TrialArrived(bytes.len() as u64);
                cx.actions.push_back(Action::Send(from, arrived));
            }
            M::TrialArrived(bytes) => self.steal.tried(cx, from, bytes),
            M::Answers(answers) => {
                self.steal.returned(cx, from, &answers);
                for arrival in self.repair.answered(cx, from, answers) {
                    self.bring(cx, from, arrival);
                }
            }
            M::Acknowledge(tokens) => repair::Repair::acknowledged(cx, from, &tokens),
            M::Recall(tokens) => self.repair.recall(cx, from, &tokens),
            M::Lists {
                outstanding,
                hosted,
            } => self.repair.compare(cx, from, outstanding, hosted),
            M::Gossip(packet) => self.membership.gossip(cx, from, &packet, self.root),
            M::Join { who, toward } => {
                self.membership
                    .join(cx, from, who, toward, self.root, self.bounds);
            }
            M::Ask(master) => self.membership.ask(cx, from, &master),
            M::Welcome {
                stamp,
                term,
                branches,
                founder,
                members,
                draining,
                offers,
                lost,
            } => {
                // A second welcome, after the first was taken for lost, changes nothing.
                if self.membership.is_searching() {
                    let me = cx.view.me().peer.id;
                    (self.root).welcome(me, (branches, term), founder, &members);
                    cx.term = term;
                    (self.membership).welcome(cx, stamp, members, draining, lost, self.root);
                    cx.books.come_in(term);
                    if cx.config.obeys(Rule::ForgetTime) {
                        self.bounds.come_in();
                    }
                    self.bounds.learn(cx, from, offers, self.lattices);
                }
            }
            M::Here { who, side, asks } => {
                self.membership.here(cx, from, who, side, asks, self.root);
            }
            M::DeclaredDead { peer, side } => {
                let life = cx.view.me().peer;
                self.membership
                    .declared_dead(cx, from, peer, side, self.root);
                // A node on its way in begins another life at once. Circuits stand between lives.
                if cx.view.me().peer != life {
                    self.relay.clear(cx);
                }
            }
            M::GiveWay { side, to } => {
                self.membership
                    .told_to_give_way(cx, from, side, to, self.root);
            }
            M::Missed { who, side } => self.membership.missed(cx, who, side, self.root),
            M::Ping(number) => self.membership.ping(cx, from, number, self.root),
            // A pong says only that its sender lives, which has been noted. A relayed message has
            // been taken out of its envelope before.
            M::Pong(_) | M::Relay(_) => {}
            M::Goodbye => self.membership.goodbye(cx, from),
            // A master of the other side of a cut is none here.
            M::Master { term, .. } if !self.membership.hears(cx, from, term, self.root) => {}
            M::Master {
                term,
                branches,
                master,
            } => {
                // The welcome names the master, and comes with the view that such a word is judged
                // by.
                if !self.membership.is_searching()
                    && (self.membership).counts(cx, from, (branches, term), &master, self.root)
                {
                    let before = self.root.master(cx.view).map(|master| master.peer.id);
                    self.root.told(cx, from, (branches, term), master);
                    // Another `main` counts its root jobs anew, in a later term or, after a
                    // partition, in the same.
                    if self.root.master(cx.view).map(|master| master.peer.id) != before {
                        self.bounds.begin_again();
                    }
                    self.keep_roots(cx);
                }
            }
            M::Draining => {
                self.root.draining(cx, from, self.membership);
                // A node that leaves keeps nothing any more: another is asked.
                self.keeping.life_ended(cx, from);
                cx.actions.push_back(Action::KeeperLeaves(from.id.0));
            }
            M::Ended { term, master, code } => self.root.ended(cx, from, term, master, code),
            M::Run { run, version } => self.storage.told(cx, from, run, version),
            M::RootsDone(runs) => {
                // After a partition there may be two mains in one term: a root job that is over for
                // the other one is not over for this one.
                let master = self.root.master(cx.view).map(|master| master.peer);
                for run in runs {
                    if !run.name.is_of_main() || master == Some(from) {
                        self.root_done(cx, run);
                    }
                }
            }
            M::AreOver(roots) => {
                if let Some(over) = cx.homes.asked(cx.view, &roots) {
                    cx.actions.push_back(Action::Send(from, over));
                }
            }
            M::Want {
                name,
                root,
                offset,
                how,
                lent,
            } => {
                let want = shared::Want {
                    name,
                    root,
                    offset,
                    how,
                    lent,
                };
                self.shared.wanted(cx, from, want, self.lattices);
            }
            M::Part {
                name,
                offset,
                total,
                bytes,
            } => self.shared.part(cx, from, name, offset, total, bytes),
            M::Elsewhere(name, peer) => self.shared.elsewhere(cx, from, name, peer),
            M::Soon(name) => self.shared.soon(cx, from, name),
            M::Unavailable(name) => {
                // If this node has not asked for it, a thief says so that gives its job back, and may get that again as long as no worker here
                // runs it. (It may be a value whose keeper is not known any more.)
                let is_of_thief = !self.shared.is_fetching(name)
                    || cx.books.holders.keepers(name).next().is_some();
                self.shared.unavailable(cx, from, name);
                if is_of_thief && !self.lattices.holds(name) {
                    cx.actions.push_back(Action::BringHome(name));
                }
            }
            M::Available(name) => self.shared.available(cx, from, name),
            M::Waits {
                name,
                who,
                whom,
                hops,
            } => {
                let waits = shared::Waits {
                    name,
                    who,
                    whom,
                    hops,
                };
                self.shared.waits(cx, from, waits);
            }
            M::Prefetch(wanted) => self.shared.prefetch(cx, from, wanted),
            M::NotPrefetched(name) => cx.books.holders.lacks(from, name),
            M::Unneeded(names) => cx.unneeded(from.id, cx.view.me().peer.id, names),
            M::Have(tokens) => repair::Repair::have(cx, from, &tokens),
            M::Begin(tokens) => repair::Repair::begin(cx, from, &tokens),
            M::Go(tokens) => self.repair.go(cx, from, &tokens),
            M::Disown(tokens) => self.repair.disowned(cx, from, &tokens),
            M::Claim(wanted) => self.repair.claim(cx, from, wanted),
            M::Miss(tokens) => self.repair.missed(cx, from, &tokens),
            M::Table(pages) => {
                self.spread.table(cx, from, pages);
                // Closings before announcements: what is closed need not be compared with what was
                // announced.
                for id in cx.table.take_closed() {
                    self.repair.closed(cx, &id);
                }
                let announced = cx.table.take_announced();
                self.repair.heard_of(cx, &announced);
                let is_master = self.root.is_master(cx.view);
                self.repair.close_past(cx, &announced, is_master);
                // Last: `main` may begin now, and is to find what these pages said.
                self.root.heard_table(cx, from);
            }
            // A new master asks like that.
            M::Versions(theirs) if theirs.is_empty() && self.leaving.must_wait(from) => {}
            M::Versions(theirs) => self.spread.versions(cx, from, &theirs),
            // A node that leaves keeps nothing: the sender, which has missed that, is to ask another.
            M::Keep { .. } | M::Copies { .. } if self.leaving.is_leaving() => {
                cx.actions.push_back(Action::Send(from, M::Draining));
            }
            M::Keep { number, saved } => {
                // Kept first, said then: `Kept` is a promise.
                self.save(cx, saved);
                cx.actions.push_back(Action::Send(from, M::Kept(number)));
            }
            M::Kept(number) => self.keeping.kept(cx, from, number),
            M::Copies {
                number,
                under,
                mut saved,
            } => {
                // The word may have been on its way when the root job ended.
                saved.retain(|fact| !self.repair.is_over(cx.term, &fact.name.id));
                self.buddies.copies(cx, from, number, &under, saved);
            }
            M::Copied(number) => self.buddies.copied(from, number),
            M::Abandon { token, heir, below } => {
                let deal = Deal::new(from, token);
                self.repair.abandoned(cx, deal, heir, &below);
            }
            M::Offers(offers) => self.bounds.improve(cx, from, offers, self.lattices),
            M::OffersWith(offers, cargo @ Cargo::Keep { .. }) => {
                self.receive(cx, from, cargo.into());
                let (late, offers) = self.bounds.divide(cx, offers);
                self.keep_bounds(cx, late);
                self.bounds.improve(cx, from, offers, self.lattices);
            }
            M::OffersWith(offers, cargo) => {
                // Bounds first: the job prunes by them, and the result was computed under them.
                self.bounds.improve(cx, from, offers, self.lattices);
                self.receive(cx, from, cargo.into());
            }
            M::LargeOffers { version, offers } => {
                self.bounds.improve(cx, from, offers, self.lattices);
                cx.actions.push_back(Action::Send(from, M::Had(version)));
            }
            M::Had(version) => self.bounds.had(from, version),
        }
    }
}

/// Does the node wait for a master? One that has left its side of a cut waits to be let in.
pub(super) fn lacks_master(root: &root::Roots, membership: &membership::Membership) -> bool {
    root.has_lost_master() || membership.founds_later()
}

/// Does the master of the day call that root job again? Then what is kept below it is wanted, though a `main` of an
/// earlier term, which has not been stopped yet, has its result.
pub(super) fn is_called_again(cx: &Context<'_>, run: RootRun) -> bool {
    run.name.is_of_main() && run.term < cx.term
}

/// Are the bounds of that root job, which is over, still to be had here?
fn needs_bounds(books: &books::Books, keeping: &repair::Keeping, root: RootName) -> bool {
    // The node that was to keep the result may not have it: if it is sent once more, so are the bounds. And whoever waits
    // for a part of that root job may not have heard of the end. (A result that is kept here is hosted.)
    keeping.hands_out(root) || books.hosts(root)
}
