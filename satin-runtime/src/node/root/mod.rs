//! The root: which node is master, which root jobs are under way, and when the pool ends.
//!
//! Every node knows the term and the master of the day. The founder is master of term 0. The rules, and what
//! goes wrong without them:
//!
//! * **Masters are ordered**: the higher term goes before, and in one term the smaller (stamp, id). A
//!   node that hears of a better master follows it; a node that is told of a worse one answers with the better.
//!   Without an order two masters that met would both go on.
//! * **A master that is gone is replaced** by the first in line (`election`), as master of the next term. The
//!   new master tells everybody, asks everybody for its orphan table, and runs `main` from the start once all
//!   have answered or `CATCH_UP` is over. Without that question `main` would compute again what others have.
//! * **A master that hears of a better one yields**: it stops its `main`. Without that, a master that was
//!   only frozen would run it beside its successor.
//! * **A master in its next life stays master**, if no other node became master meanwhile: it is the same
//!   process with the same `main`. Without that, every false alarm would cost a restart.
//! * **The news spreads**: the new master tells everybody, and everybody who comes in later; a node
//!   to which it is news tells a few others. Without the second, two parts of a pool that meet again would not
//!   know that there are two masters.
//! * **A master that yields tells everybody**, as it did when it became master. Without that, a node that
//!   heard it last follows it on.
//! * **All ask now and then** (`ASK_AGAIN`): "you are master, are you not?" A node that
//!   follows another answers with that, and a master with the last root job that is over; a master asks any
//!   other node. Without that, a single word that was lost is never said again, and two masters that never talk
//!   to each other would both go on. A node that waits for those before it in line asks the first of them
//!   (`election`).
//! * **A branch is counted**: an election by no more than half of the nodes that were there before may have left another master on the other side
//!   of a cut. The side with fewer branches stays when the two meet ([`Side`]). Without that the side that has lost the first `main` would
//!   end it.
//! * **A node that comes over to another side is no master there**, though it may be known as one: its stamp is another one. Without that
//!   it would be named master of a pool that it has just come into.
//! * **Stamps of one term are larger than all of earlier ones.** Without that, two masters in a row could
//!   give the same.
//! * **A pool that has ended elects nobody**: a node that hears that `main` is over passes it on to those it
//!   is linked to, and answers with it any word that concerns masters. Without that, a node that missed the
//!   word would begin anew what is done.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use super::{
    Action, Context, Identity, Message, NodeEnd, NodeId, Notice, Peer, Rule, Side, View,
    expiry::{Expiry, ran_out},
    membership::{Absence, Membership},
};
use crate::job::{OrphanNews, RootName, RootRun};
use election::{Silent, Vacancy, VacancyStep};

mod election;

#[cfg(test)]
mod tests;

/// The longest wait until root jobs that are over are told to the others, together; longer in large pools
/// (see [`told_after`]). Too small: a message for each root job. Too large: others keep values and bounds for
/// longer.
const TELL_AFTER: Duration = Duration::from_millis(50);
/// The number of root jobs that are told in one message, at most.
const TELL_MOST: usize = 4096;
/// The wait of a new master for the others' tables. Too small: `main` computes again what a slow link has not
/// brought. Too large: a node that hangs delays everybody.
const CATCH_UP: Duration = Duration::from_secs(1);
/// The number of nodes that a node tells if the name of a master is news to it. Too small: a part of the pool
/// hears it late. Too large: noise.
const RELAYS: usize = 3;
/// The size of a pool up to which every node tells a newcomer who is master, not only the master. Too small:
/// a newcomer depends on the word of one. Too large: as many messages as there are nodes, for each newcomer.
const SMALL: usize = 64;
/// The time after which a node asks again whether what it believes of masters and root jobs is still so;
/// longer in large pools (see `crowd`). Too small: messages. Too large: a node that missed a word works for a
/// master that has yielded, or keeps what belongs to a root job that is over, for so long.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The time after which a master says that its root jobs wait for nodes, and says so again. Too small: words about nodes that are
/// on their way. Too large: people wonder why nothing happens.
const REMIND: Duration = Duration::from_secs(20);

/// The exit code of a pool whose run another goes on with: `EX_TEMPFAIL`.
const SUPERSEDED: i32 = 75;

/// The master and its root jobs.
pub struct Roots {
    /// The master of the day, as far as this node knows.
    master: Option<Identity>,
    /// The node that founded the pool; `None`: this one will.
    founder: Option<NodeId>,
    /// Counts the masters; the founder's is 0.
    term: u32,
    /// See [`Side::branches`].
    branches: u32,
    /// The last term in which `main` ran here, at whatever side of a cut: `main` runs in later ones only.
    last_run: Option<u32>,
    /// The highest stamp that this node has issued.
    issued: u64,
    /// `main` runs here: the node founded the pool or was elected, and has not yielded.
    runs_main: bool,
    /// Root jobs may start.
    released: bool,
    /// When people are told that root jobs wait for nodes.
    remind: Option<Duration>,
    /// Set while this node, as master, waits for what stands in the store.
    is_loading: bool,
    /// The pool has ended.
    ended: Option<Ended>,
    /// The master is gone, and nobody has taken its place yet.
    vacancy: Option<Vacancy>,
    silent: Silent,
    /// Set while this node, which has become master, asks the others before it runs `main`.
    catching_up: Option<CatchUp>,
    /// Root jobs that are over, and not told to the others yet.
    over: Vec<RootRun>,
    /// The last root job of `main` that was over here; its end is that of those before it too.
    last_over: Option<RootRun>,
    /// When the others are told of `over`.
    tell: Option<Duration>,
    /// The master before the one of the day has died.
    fallen: bool,
    /// Set while this node, as master, leaves its first root job to others; it holds that root job once it
    /// has begun.
    careful: Option<Option<RootName>>,
    /// The last root job of `main` that was over, whoever was master: no former master died of it, nor of those before.
    highest_over: Option<u32>,
    /// When the others are asked again, once this node is in.
    ask: Option<Duration>,
    /// True if the node that let this one in says that this one is master: it hears so together with the
    /// welcome.
    named_outside: bool,
}

/// The master whose `main` was the last, and how it ended.
#[derive(Clone, Copy)]
struct Ended {
    term: u32,
    master: NodeId,
    code: i32,
}

struct CatchUp {
    /// The nodes that have not answered yet.
    asked: BTreeSet<Peer>,
    /// When `main` is run without the answers that are missing.
    until: Duration,
}

/// The wait for more root jobs that are over: the master speaks no more often than a pool of that size can
/// bear.
fn told_after(members: usize) -> Duration {
    TELL_AFTER * crowd(members)
}

fn ask_after(cx: &Context<'_>) -> Duration {
    cx.config.paced(ASK_AGAIN) * crowd(cx.view.len())
}

/// The factor by which regular words are more seldom in a larger pool.
fn crowd(members: usize) -> u32 {
    1 + members as u32 / 64
}

/// The order of masters: of two the one with the smaller order is master.
fn order(term: u32, master: &Identity) -> (Reverse<u32>, u64, NodeId) {
    (Reverse(term), master.stamp, master.peer.id)
}

impl Roots {
    pub(crate) fn new(view: &View) -> Roots {
        // A pool that was formed beforehand has a master without an election: the eldest.
        let in_already = view
            .members()
            .filter(|member| member.stamp != Identity::NOT_YET);
        let master = in_already
            .min_by_key(|member| (member.stamp, member.peer))
            .cloned();
        let runs_main = (master.as_ref()).is_some_and(|master| master.peer == view.me().peer);
        Roots {
            founder: master.as_ref().map(|master| master.peer.id),
            runs_main,
            master,
            term: 0,
            branches: 0,
            last_run: runs_main.then_some(0),
            issued: 0,
            released: false,
            remind: None,
            is_loading: false,
            ended: None,
            vacancy: None,
            silent: Silent::default(),
            catching_up: None,
            over: Vec::new(),
            last_over: None,
            tell: None,
            fallen: false,
            careful: None,
            highest_over: None,
            ask: None,
            named_outside: false,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let vacancy = self.vacancy.as_ref().map(|vacancy| vacancy.look);
        let catching_up = (self.catching_up.as_ref())
            .filter(|catch_up| !catch_up.asked.is_empty())
            .map(|catch_up| catch_up.until);
        [self.tell, vacancy, catching_up, self.ask, self.remind]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>, membership: &Membership) {
        if self.tell.is_some_and(|tell| tell <= cx.now) {
            self.tell_over(cx);
        }
        if let Some(vacancy) = &mut self.vacancy {
            // Before the look: a node that slept must not elect itself while the word of its
            // successor lies unread.
            vacancy.wake(cx.now);
            if vacancy.look <= cx.now {
                self.look(cx, membership);
            }
        }
        let is_due = self.remind.take_if(|at| *at <= cx.now).is_some();
        if is_due && self.runs_main && !self.released {
            let (wanted, here) = (cx.config.nodes, cx.view.len());
            let text = format!(
                "root jobs begin when {wanted} nodes are in the pool (SATIN_NODES), which has {here} so far"
            );
            cx.actions.push_back(Action::Tell(Notice::Warning(text)));
            self.release(cx);
        }
        // A node that hangs must not keep the others from work.
        if let Some(catch_up) = &mut self.catching_up
            && catch_up.until <= cx.now
            && !catch_up.asked.is_empty()
        {
            ran_out(Expiry::CatchUp);
            catch_up.asked.clear();
            self.run_main_if_all_answered(cx);
        }
    }

    /// The master of the day; if that is this node, in its current life.
    pub(crate) fn master<'v>(&'v self, view: &'v View) -> Option<&'v Identity> {
        let master = self.master.as_ref()?;
        let me = view.me();
        // The same process in its next life stays master: its `main` runs on. One that has come in anew does not.
        Some(if is_same_member(master, me) {
            me
        } else {
            master
        })
    }

    pub(crate) fn is_master(&self, view: &View) -> bool {
        self.master(view)
            .is_some_and(|master| master.peer == view.me().peer)
    }

    /// The node that founded the pool.
    pub(crate) fn founder(&self, view: &View) -> NodeId {
        self.founder.unwrap_or(view.me().peer.id)
    }

    pub(crate) fn term(&self) -> u32 {
        self.term
    }

    pub(crate) fn branches(&self) -> u32 {
        self.branches
    }

    /// This side of a cut, as this node sees it.
    pub(crate) fn side(&self, view: &View) -> Side {
        let master = self.master(view);
        Side {
            branches: self.branches,
            term: self.term,
            master: master.map(|master| (master.stamp, master.peer.id)),
            has_master: master.is_some() && self.vacancy.is_none(),
            members: view.len() as u32,
        }
    }

    /// The term in which `main` runs here next, if that is to be this one: this node may have led a branch of that term, whose root jobs would be
    /// taken for those of the other `main`.
    fn term_to_run(&self, term: u32) -> u32 {
        (self.last_run).map_or(term, |last| term.max(last.saturating_add(1)))
    }

    /// The message that tells of the pool's end, once it has ended.
    pub(crate) fn ended_with(&self) -> Option<Message> {
        let Ended { term, master, code } = self.ended?;
        Some(Message::Ended { term, master, code })
    }

    /// The next place in the order of joining.
    pub(crate) fn issue_stamp(&mut self, view: &View) -> u64 {
        let stamps = view.members().map(|member| member.stamp);
        let taken = stamps.filter(|stamp| *stamp != Identity::NOT_YET).max();
        // Above all stamps of earlier terms, also of nodes that this master has never seen: two
        // masters in a row must not give the same.
        let of_term = u64::from(self.term) << 32;
        self.issued = self.issued.max(taken.unwrap_or(0)).max(of_term) + 1;
        self.issued
    }

    /// This node has founded the pool. Its `main` begins at once, unless it is to find first what stands in the store.
    pub(crate) fn founded(&mut self, cx: &mut Context<'_>, me: &Identity) {
        self.master = Some(me.clone());
        // It has left a side of a cut, and nobody has let it in.
        if self.term > 0 {
            self.term = self.term_to_run(self.term);
            return self.catch_up(cx);
        }
        self.runs_main = true;
        self.last_run = Some(self.term);
        self.is_loading = cx.config.has_store();
        if self.is_loading && !cx.config.obeys(Rule::LoadFirst) {
            self.loaded(cx);
        }
    }

    /// Does a pool whose master cannot open its run end? If the store failed, a master that is not the first goes on without.
    pub(crate) fn must_end(&self, is_refused: bool) -> bool {
        self.is_loading && (is_refused || self.term == 0)
    }

    /// The run is not for this pool, or its first master cannot reach the store: the pool ends. Without that, the next master
    /// would run `main` beside another pool's, or without the store that the user has asked for.
    pub(crate) fn cannot_begin(&mut self, cx: &mut Context<'_>, text: String) {
        let code = 1;
        self.tell_end(cx, code);
        // After the words to the others, and before the end: this node goes with either.
        cx.actions.push_back(Action::Tell(Notice::Failed(text)));
        cx.actions.push_back(Action::End(NodeEnd::Main(code)));
    }

    /// What stands in the store is in the table, or will not come: `main` begins.
    pub(crate) fn loaded(&mut self, cx: &mut Context<'_>) {
        if !std::mem::take(&mut self.is_loading) {
            return;
        }
        if self.catching_up.is_some() {
            self.run_main_if_all_answered(cx);
        } else if self.runs_main {
            let term = self.term;
            cx.actions.push_back(Action::RunMain { term });
            self.release(cx);
        }
    }

    /// Does `main` wait for what stands in the store?
    pub(crate) fn waits_for_store(&self) -> bool {
        self.is_loading
    }

    /// Another pool goes on with this run: this one ends.
    pub(crate) fn superseded(&mut self, cx: &mut Context<'_>) {
        self.run_is_over(cx, SUPERSEDED);
    }

    /// The store says that this run has come to its end elsewhere.
    pub(crate) fn run_is_over(&mut self, cx: &mut Context<'_>, code: i32) {
        if self.is_master(cx.view) {
            self.main_ended(cx, code);
        } else if self.ended.is_none() {
            let master = self.master.as_ref().map_or(cx.view.me(), |master| master);
            self.ended(cx, cx.view.me().peer, self.term, master.peer.id, code);
        }
    }

    /// Does this node wait for a master?
    pub(crate) fn has_lost_master(&self) -> bool {
        self.vacancy.is_some()
    }

    /// The store says that `main` goes on until then at least.
    pub(crate) fn main_goes_on(&mut self, until: Duration) {
        if let Some(vacancy) = &mut self.vacancy {
            vacancy.main_goes_on(until);
        }
    }

    /// Takes over the address that others are told of this node from now on.
    pub(crate) fn readdressed(&mut self, cx: &mut Context<'_>) {
        let me = cx.view.me();
        if let Some(master) = self.master.as_mut().filter(|old| old.peer == me.peer) {
            *master = me.clone();
        }
    }

    pub(crate) fn welcome(
        &mut self,
        me: NodeId,
        (branches, term): (u32, u32),
        founder: NodeId,
        members: &[Identity],
    ) {
        self.branches = branches;
        self.founder = Some(founder);
        // The list begins with the master.
        self.master = members.first().cloned();
        self.term = term;
        let master = self.master.as_ref();
        self.named_outside = master.is_some_and(|master| master.peer.id == me);
    }

    /// This node leaves its side of a cut: what it knows of masters and root jobs is of the past. Its `main` stops. (If it is not let in at the
    /// other side, and founds a pool again, that is one branch and one term further.)
    pub(crate) fn come_over(&mut self, cx: &mut Context<'_>) {
        if self.runs_main {
            cx.actions.push_back(Action::YieldMain);
        }
        if self.careful.is_some() {
            let news = OrphanNews::Careful(false);
            cx.actions.push_back(Action::Orphan(news));
        }
        *self = Roots {
            founder: self.founder,
            term: self.term.saturating_add(1),
            branches: self.branches.saturating_add(1),
            last_run: self.last_run,
            issued: self.issued,
            ended: self.ended,
            master: None,
            ..Roots::new(cx.view)
        };
    }

    /// Follows the master, as this node is in, or in its next life.
    pub(crate) fn come_in(&mut self, cx: &mut Context<'_>) {
        let Some(master) = self.master(cx.view).cloned() else {
            return;
        };
        let me = cx.view.me().peer;
        // The node was named master before it heard that it is in.
        if std::mem::take(&mut self.named_outside) {
            self.follow(cx, self.term, master);
        } else {
            say_who(cx, &master);
        }
        // Nodes that come in together do not ask together.
        let place = cx.view.members().filter(|other| other.peer <= me).count();
        let part = place as f64 / cx.view.len() as f64;
        self.ask = Some(cx.now + ask_after(cx).mul_f64(part));
        // The others have put the old life aside, and with it the word that this node is about to
        // leave.
        if me.generation > 0 && cx.view.is_draining(me) {
            to_others(cx, &Message::Draining);
        }
        self.release(cx);
    }

    /// Tells a peer that has come into the view what it must know.
    pub(crate) fn joined(&mut self, cx: &mut Context<'_>, peer: Peer) {
        // First: whether there is a vacancy decides who is named.
        self.reappear(cx, peer);
        if cx.view.is_draining(cx.view.me().peer) {
            cx.actions.push_back(Action::Send(peer, Message::Draining));
        }
        self.name_master(cx, peer);
        self.tell_last_over(cx, peer);
        self.release(cx);
    }

    /// Says again who is master: this node has begun another life, and the words of its former one may not
    /// have arrived.
    pub(crate) fn anew(&self, cx: &mut Context<'_>, peer: Peer) {
        self.name_master(cx, peer);
        self.tell_last_over(cx, peer);
    }

    /// A connection stands: what went over the one before it may be lost.
    pub(crate) fn connected(&self, cx: &mut Context<'_>, peer: Peer) {
        if cx.view.is_alive(peer) {
            self.tell_last_over(cx, peer);
        }
    }

    /// Is it time to ask the others whether what this node believes is still so? The master is asked at once.
    pub(crate) fn asks_again(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ask.is_none_or(|ask| cx.now < ask) {
            return false;
        }
        self.ask = Some(cx.now + ask_after(cx));
        // While a master is missing there is nothing to ask: the election asks the first in line
        // itself.
        if let Some(master) = self.master(cx.view).map(|master| master.peer)
            && self.vacancy.is_none()
        {
            let asked = match master == cx.view.me().peer {
                // A master asks any other node, or two masters that never talk to each other
                // would both go on.
                true => cx.view.random(cx.rng),
                false => Some(master).filter(|master| cx.view.is_alive(*master)),
            };
            if let Some(asked) = asked {
                self.tell_master(cx, asked);
            }
        }
        true
    }

    /// The last root job of `main` that is over, if this node is master.
    pub(crate) fn last_over(&self, view: &View) -> Option<RootRun> {
        // Numbers of another term are those of another run of `main`.
        let last = self.last_over.filter(|last| last.term == self.term);
        last.filter(|_| self.is_master(view))
    }

    /// Tells a peer which root jobs of `main` are over: it was not there, or not to be reached, when
    /// the others were told. Without that, such a node keeps bounds and values of the last root job as long
    /// as the pool lasts.
    fn tell_last_over(&self, cx: &mut Context<'_>, peer: Peer) {
        if let Some(last) = self.last_over(cx.view) {
            let over = Message::RootsDone(vec![last]);
            cx.actions.push_back(Action::Send(peer, over));
        }
    }

    fn name_master(&self, cx: &mut Context<'_>, peer: Peer) {
        // The welcome names the master. It may be out of date only if the master has changed,
        // or this node began another life.
        let other_than_usual = self.term > 0 || cx.view.me().peer.generation > 0;
        // In a large pool not everybody may speak to each newcomer.
        let entitled = self.is_master(cx.view) || cx.view.len() <= SMALL;
        if other_than_usual && entitled && self.vacancy.is_none() {
            self.tell_master(cx, peer);
        }
    }

    /// Ends a vacancy, if the peer is the master: it was declared dead, and is back in its next life; or this
    /// node was told of it, and it is in the view at last.
    fn reappear(&mut self, cx: &mut Context<'_>, peer: Peer) {
        let Some(master) = self.master.as_mut().filter(|old| old.peer.id == peer.id) else {
            return;
        };
        // A late word about an earlier life must not take the master back to that.
        let Some(identity) = cx.view.get(peer).filter(|new| new.peer >= master.peer) else {
            return;
        };
        // It has left this side of a cut, and is no master any more.
        if !is_same_member(master, identity) {
            self.vacancy = Some(Vacancy::new(cx.now, true));
            return;
        }
        self.vacancy = None;
        if *master != *identity {
            master.clone_from(identity);
            let master = identity.clone();
            say_who(cx, &master);
        }
    }

    pub(crate) fn tell_master(&self, cx: &mut Context<'_>, peer: Peer) {
        // A pool that has ended answers any question about masters with its end: no node may begin
        // anew.
        let told = self.ended_with().or_else(|| {
            let master = self.master(cx.view)?.clone();
            Some(self.named(master))
        });
        if let Some(told) = told {
            cx.actions.push_back(Action::Send(peer, told));
            // From another node than its master that word would not have been heeded.
            self.tell_last_over(cx, peer);
        }
    }

    /// The word that names the master of the day.
    fn named(&self, master: Identity) -> Message {
        Message::Master {
            term: self.term,
            branches: self.branches,
            master,
        }
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        // Once released, root jobs go on also when nodes leave.
        if self.released || !self.runs_main || self.is_loading {
            self.remind = None;
            return;
        }
        if cx.view.len() < cx.config.nodes as usize {
            self.remind.get_or_insert(cx.now + REMIND);
            return;
        }
        self.remind = None;
        self.released = true;
        cx.actions.push_back(Action::StartRoots);
    }

    /// A node is gone. If it was the master, another is elected.
    pub(crate) fn life_ended(
        &mut self,
        cx: &mut Context<'_>,
        who: &Identity,
        why: Absence,
        membership: &Membership,
    ) {
        // Silence can be a partition, and so can a firewall between two sites that answers for a machine. Other deaths say nothing about how many
        // were cut off.
        let is_far = who.site != cx.view.me().site;
        if why == Absence::Silent || why == Absence::Gone && is_far {
            self.silent.note(cx.now, who, self.vacancy.as_ref());
        }
        if let Some(catch_up) = &mut self.catching_up {
            // A node that dies will not answer, and must not be waited for.
            catch_up.asked.remove(&who.peer);
            self.run_main_if_all_answered(cx);
        }
        let master = self.master.as_ref();
        if master.is_some_and(|master| master.peer == who.peer) {
            // A master that left on purpose did not die of its root job.
            self.fallen = matches!(why, Absence::Silent | Absence::Gone);
        }
        // After the end of the pool its nodes go one by one: the master's going is no reason to
        // elect.
        if self.ended.is_none() && master.is_some_and(|master| master.peer == who.peer) {
            self.vacancy = Some(match why {
                // No partition: the next in line can act at once.
                Absence::Left | Absence::Gone => Vacancy::new(cx.now, false),
                Absence::Silent => Vacancy::new(cx.now, true),
                // The process lives on, and its `main` with it: it will be in the view in a moment.
                Absence::Reborn => Vacancy::until_it_appears(cx),
            });
        }
        // In any case: the one that is gone may have been first in line.
        self.look(cx, membership);
    }

    /// Notes a root job that `main` has called and whose result no node keeps: the predecessor of this master
    /// may have died of it.
    pub(crate) fn begins(&mut self, root: RootName) {
        // A root job that was over under an earlier master did not take that master down.
        let was_over = self
            .highest_over
            .is_some_and(|highest| root.number <= highest);
        if let Some(first @ None) = &mut self.careful
            && !was_over
        {
            *first = Some(root);
        }
    }

    /// A root job is over, here or elsewhere.
    pub(crate) fn is_over(&mut self, root: RootName) {
        if root.is_of_main() {
            self.highest_over = self.highest_over.max(Some(root.number));
        }
    }

    /// Looks whether it is time to elect a master, and does it.
    fn look(&mut self, cx: &mut Context<'_>, membership: &Membership) {
        let Some(vacancy) = &mut self.vacancy else {
            return;
        };
        match vacancy.step(cx, &self.silent, membership) {
            VacancyStep::Wait => {}
            VacancyStep::TellCutOff => cx.actions.push_back(Action::Tell(Notice::CutOff)),
            // The question is a word about the former master: a node that follows another answers
            // with that.
            VacancyStep::Ask(first) => self.tell_master(cx, first),
            VacancyStep::Act { is_branch } => {
                let me = cx.view.me().clone();
                if is_branch {
                    self.branches += 1;
                    cx.actions.push_back(Action::Tell(Notice::Branch));
                }
                self.follow(cx, self.term.saturating_add(1), me);
            }
            VacancyStep::Nobody if membership.is_left_behind() => {
                self.vacancy = None;
                cx.actions.push_back(Action::End(NodeEnd::Left));
            }
            VacancyStep::Nobody => {
                self.vacancy = None;
                if let Some(master) = &self.master {
                    let (name, site) = (&master.name, &master.site);
                    let remedy = if cx.config.has_store() {
                        "Start the pool again with the same command, and the run goes on with what is in the store"
                    } else {
                        "The run is lost: start the pool again"
                    };
                    let text = format!(
                        "the master, {name} at {site}, is gone, and nobody is left to take its place: all other nodes \
                         are about to leave. {remedy}",
                    );
                    // Kept as the end of the pool, so that others who ask are told, and nobody
                    // waits.
                    self.ended = Some(Ended {
                        term: self.term,
                        master: master.peer.id,
                        code: 1,
                    });
                    cx.actions.push_back(Action::Tell(Notice::Failed(text)));
                    cx.actions.push_back(Action::End(NodeEnd::Lost));
                }
            }
        }
    }

    /// Takes in that a peer says who is master.
    pub(crate) fn told(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        (branches, term): (u32, u32),
        master: Identity,
    ) {
        // Without a stamp a node is not in, so it can be no master.
        if master.stamp == Identity::NOT_YET {
            return;
        }
        // The sender has not heard that the pool has ended.
        if self.ended.is_some() {
            return self.tell_master(cx, from);
        }
        let old = self
            .master(cx.view)
            .map(|master| (order(self.term, master), master.peer));
        let (new, peer) = (order(term, &master), master.peer);
        let me = cx.view.me().peer;
        // This node was master at a side of a cut that it has left. The sender will hear of that.
        if peer.id == me.id && !is_same_member(&master, cx.view.me()) {
            return;
        }
        match old {
            // The sender follows a worse master: told so, it comes over, and tells others.
            Some((old, _)) if old < new => self.tell_master(cx, from),
            // No other node knows the lives of this one better; but the sender may have
            // followed another master until now.
            Some((old, _)) if old == new && peer.id == me.id => self.tell_last_over(cx, from),
            Some((old, known)) if old == new => {
                // The same master in a newer life.
                if peer.generation > known.generation {
                    self.follow(cx, term, master);
                }
            }
            _ => {
                self.branches = branches;
                let told = Message::Master {
                    term,
                    branches,
                    master: master.clone(),
                };
                let former = old.map(|(_, known)| known);
                let was_master = former == Some(me);
                self.follow(cx, term, master);
                // `follow` has told all others already.
                if peer.id == me.id {
                    return;
                }
                // A master that yields told everybody that it is master, so it
                // tells everybody that it is not.
                if was_master {
                    to_others(cx, &told);
                    return;
                }
                relay(cx, from, &told);
                // Perhaps only this node can tell the former master, which it has followed until
                // now.
                let former =
                    former.filter(|former| former.id != peer.id && cx.view.is_alive(*former));
                for concerned in [Some(peer), former].into_iter().flatten() {
                    if concerned != from {
                        let told = Action::Send(concerned, told.clone());
                        cx.actions.push_back(told);
                    }
                }
            }
        }
    }

    /// Follows that master from now on; perhaps it is this node.
    fn follow(&mut self, cx: &mut Context<'_>, term: u32, master: Identity) {
        let me = cx.view.me().clone();
        let is_me = master.peer.id == me.peer.id;
        // The sender may know an earlier life of this node.
        let master = if is_me { me } else { master };
        let term = if is_me { self.term_to_run(term) } else { term };
        self.term = term;
        cx.term = term;
        // A master that leaves hands over while it is alive: it has not fallen.
        let before = self.master.as_ref();
        self.fallen &= before.is_none_or(|before| !cx.view.is_alive(before.peer));
        self.master = Some(master.clone());
        self.vacancy = None;
        // A better master came while this one asked for tables: its `main` must not begin.
        self.catching_up = None;
        self.is_loading = false;
        // Two runs of `main` at once would compute everything twice, and both print.
        if self.runs_main && !is_me {
            self.runs_main = false;
            self.released = false;
            cx.actions.push_back(Action::YieldMain);
        }
        say_who(cx, &master);
        if is_me {
            to_others(cx, &self.named(master));
            // The sender did not know yet that this node is about to leave: the next in line
            // takes its place.
            if cx.view.is_draining(cx.view.me().peer) && self.abdicate_to_next(cx) {
                return;
            }
            self.catch_up(cx);
        } else if !cx.view.is_alive(master.peer) {
            // Told of by name only: if it never comes into the view, another is elected.
            self.vacancy = Some(Vacancy::until_it_appears(cx));
        }
    }

    /// Asks the others what they have. Then `main` begins.
    fn catch_up(&mut self, cx: &mut Context<'_>) {
        let me = cx.view.me().peer;
        let others = cx.view.members().map(|member| member.peer);
        self.catching_up = Some(CatchUp {
            asked: others.filter(|peer| *peer != me).collect(),
            until: cx.now + CATCH_UP,
        });
        self.is_loading = cx.config.has_store() && cx.config.obeys(Rule::LoadFirst);
        // No versions at all: each node answers with its whole table, or with an empty one.
        to_others(cx, &Message::Versions(Vec::new()));
        self.run_main_if_all_answered(cx);
    }

    /// Notes that a peer has told its orphan table.
    pub(crate) fn heard_table(&mut self, cx: &mut Context<'_>, from: Peer) {
        if let Some(catch_up) = &mut self.catching_up
            && catch_up.asked.remove(&from)
        {
            self.run_main_if_all_answered(cx);
        }
    }

    fn run_main_if_all_answered(&mut self, cx: &mut Context<'_>) {
        let all = |catch_up: &CatchUp| catch_up.asked.is_empty();
        if !self.is_loading && self.catching_up.as_ref().is_some_and(all) {
            self.run_main(cx);
        }
    }

    fn run_main(&mut self, cx: &mut Context<'_>) {
        self.catching_up = None;
        // The answers may come after the end of the pool.
        if self.ended.is_none() {
            self.runs_main = true;
            self.released = true;
            self.last_run = Some(self.term);
            let term = self.term;
            // The predecessor died, perhaps of its root job: the first one that no node keeps is
            // left to others, if there are others.
            let careful = (self.fallen && cx.view.len() > 1).then_some(None);
            // The workers keep the word until it is taken back.
            if careful.is_some() || self.careful.is_some() {
                let news = OrphanNews::Careful(careful.is_some());
                cx.actions.push_back(Action::Orphan(news));
            }
            self.careful = careful;
            cx.actions.push_back(Action::RunMain { term });
            cx.actions.push_back(Action::StartRoots);
        }
    }

    /// Tells all others that this node is about to leave; nodes that come in later are told when they do.
    pub(crate) fn drain(&mut self, cx: &mut Context<'_>) {
        if cx.view.set_draining(cx.view.me().peer) {
            to_others(cx, &Message::Draining);
        }
    }

    /// Does `main` run here?
    pub(crate) fn runs_main(&self) -> bool {
        self.runs_main
    }

    /// Has the next in line take the place of this node, which is about to leave, if it is master. True if
    /// `main` is being stopped here for that.
    pub(crate) fn abdicate(&mut self, cx: &mut Context<'_>) -> bool {
        let runs_main = self.runs_main;
        self.abdicate_to_next(cx) && runs_main
    }

    /// Makes the next in line master. False if this node is not master, or there is no other node.
    fn abdicate_to_next(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ended.is_some() || !self.is_master(cx.view) {
            return false;
        }
        let Some(master) = election::successor(cx.view).cloned() else {
            return false;
        };
        let term = self.term.saturating_add(1);
        let told = Message::Master {
            term,
            branches: self.branches,
            master: master.clone(),
        };
        // The others are told before this node follows: it will not be there to say it again.
        to_others(cx, &told);
        self.follow(cx, term, master);
        true
    }

    /// A node is about to leave.
    pub(crate) fn draining(&mut self, cx: &mut Context<'_>, from: Peer, membership: &Membership) {
        if cx.view.set_draining(from) {
            if let Some(who) = cx.view.get(from).cloned() {
                cx.actions.push_back(Action::Tell(Notice::Draining(who)));
            }
            // The one that is about to leave may have been first in line.
            self.look(cx, membership);
        }
    }

    pub(crate) fn finished(&mut self, cx: &mut Context<'_>, run: RootRun) {
        if run.name.is_of_main() {
            self.last_over = Some(run);
        }
        // The root job has ended, so the former master did not die of it: the following ones are run
        // as ever.
        if self.careful == Some(Some(run.name)) {
            self.careful = None;
            cx.actions
                .push_back(Action::Orphan(OrphanNews::Careful(false)));
        }
        self.over.push(run);
        let after = told_after(cx.view.len());
        // The first one sets the time: later ones do not put it off.
        self.tell.get_or_insert(cx.now + after);
        if self.over.len() >= TELL_MOST {
            self.tell_over(cx);
        }
    }

    fn tell_over(&mut self, cx: &mut Context<'_>) {
        self.tell = None;
        let over = std::mem::take(&mut self.over);
        if !over.is_empty() {
            to_others(cx, &Message::RootsDone(over));
        }
    }

    /// Ends the pool, as `main` is over here. False if another node runs `main` by now: nothing is over then.
    pub(crate) fn main_ended(&mut self, cx: &mut Context<'_>, code: i32) -> bool {
        if self.ended.is_none() {
            if !self.is_master(cx.view) {
                return false;
            }
            self.tell_end(cx, code);
            cx.actions.push_back(Action::End(NodeEnd::Main(code)));
        }
        true
    }

    /// The pool of this master is over: the others are told.
    fn tell_end(&mut self, cx: &mut Context<'_>, code: i32) {
        let (term, master) = (self.term, cx.view.me().peer.id);
        self.ended = Some(Ended { term, master, code });
        to_others(cx, &Message::Ended { term, master, code });
    }

    /// Takes in that the pool is over, from its master or from a node that has heard it from there.
    pub(crate) fn ended(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        term: u32,
        master: NodeId,
        code: i32,
    ) {
        // The end of a run that another master has begun anew is no end: that one's `main` goes on.
        let entitled = self
            .master
            .as_ref()
            .is_none_or(|known| term > self.term || term == self.term && master == known.peer.id);
        if entitled && self.ended.is_none() {
            self.ended = Some(Ended { term, master, code });
            self.vacancy = None;
            self.catching_up = None;
            let others = cx.view.members().map(|member| member.peer);
            // Passed on: a node that missed the word would elect itself, and begin anew what is
            // done. Only over connections that stand, as this process ends.
            let linked = others.filter(|peer| *peer != from && cx.links.epoch(*peer).is_some());
            for peer in linked {
                let told = Message::Ended { term, master, code };
                cx.actions.push_back(Action::Send(peer, told));
            }
            cx.actions.push_back(Action::End(NodeEnd::Pool(code)));
        }
    }
}

/// Are these lives of one node that has not come in anew between them? A node that comes over to the other side of a cut gets another stamp there.
fn is_same_member(one: &Identity, other: &Identity) -> bool {
    (one.peer.id, one.stamp) == (other.peer.id, other.stamp)
}

/// Tells the driver who is master.
fn say_who(cx: &mut Context<'_>, master: &Identity) {
    cx.actions.push_back(Action::Joined {
        me: cx.view.me().clone(),
        master: master.clone(),
    });
    // The user is told only when another node is master, not at every new life of it.
    if cx.view.set_master(master.peer.id) {
        let news = Notice::Master(master.clone());
        cx.actions.push_back(Action::Tell(news));
    }
}

/// Tells some others.
fn relay(cx: &mut Context<'_>, but: Peer, message: &Message) {
    let some = (0..RELAYS).filter_map(|_| cx.view.random(cx.rng));
    let some: BTreeSet<Peer> = some.filter(|peer| *peer != but).collect();
    for peer in some {
        cx.actions.push_back(Action::Send(peer, message.clone()));
    }
}

fn to_others(cx: &mut Context<'_>, message: &Message) {
    let me = cx.view.me().peer;
    for member in cx.view.members().filter(|member| member.peer != me) {
        let send = Action::Send(member.peer, message.clone());
        cx.actions.push_back(send);
    }
}
