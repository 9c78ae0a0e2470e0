//! Leaving on purpose: finish what ends soon, hand over what is finished of the rest, go.

use std::time::Duration;

use super::{
    super::{
        Action, Context, Deal, HarvestReader, Message, Peer,
        expiry::{Expiry, ran_out},
        root::Roots,
    },
    Keeping, Repair,
};
use crate::job::{JobId, Saved};

/// The last part of the grace is for handing over: this share of it, and no more than so long. Too small: what was
/// saved is not in safe hands in time. Too large: jobs are given up that would have ended.
const HANDING_OVER: (f64, Duration) = (0.25, Duration::from_secs(2));

/// The time that is given to peers to acknowledge the last answers. Too small: answers are done again. Too
/// large: whoever has gone mute holds us up.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeavingStage {
    /// The node stays.
    Staying,
    /// Jobs that run may end until then.
    Finishing(Duration),
    /// Jobs that still run are being given up; they are waited for until then.
    GivingUp(Duration),
    /// The results are on their way to the heir.
    HandingOver(Duration),
    /// The last answers are on their way.
    LastWords(Duration),
    /// Goodbye has been said.
    Gone,
}

/// The answer to a request to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DepartureStep {
    /// The node begins to leave.
    Now,
    /// The node had begun before.
    Before,
    /// The node is alone, and has to go at once: there is nobody who could go on.
    Alone,
}

/// How far this node is with leaving.
pub(crate) struct Leaving {
    stage: LeavingStage,
    /// The end of the grace: the node goes then, whatever is left undone.
    end: Duration,
    /// `main` is being stopped here.
    yielding: bool,
    /// The workers are asked what there is of `main`'s root job, which began in that term.
    gathering: Option<u32>,
    /// Nodes that wait for the table of this one, which is to say what there is of `main`.
    asked: Vec<Peer>,
    /// The deals whose jobs were given up, and whose origins are still to be told.
    given: Vec<(Deal, JobId)>,
    /// The finished results that the node leaves behind.
    saved: Vec<Saved>,
    /// The number of results in `saved` that have been sent to an heir.
    handed: usize,
}

impl Default for Leaving {
    fn default() -> Leaving {
        Leaving {
            stage: LeavingStage::Staying,
            end: Duration::MAX,
            yielding: false,
            gathering: None,
            asked: Vec::new(),
            given: Vec::new(),
            saved: Vec::new(),
            handed: 0,
        }
    }
}

impl Leaving {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        match self.stage {
            LeavingStage::Staying | LeavingStage::Gone => None,
            LeavingStage::Finishing(until)
            | LeavingStage::GivingUp(until)
            | LeavingStage::HandingOver(until)
            | LeavingStage::LastWords(until) => Some(until.min(self.end)),
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.stage != LeavingStage::Staying
    }

    /// A request to leave within that time. On [`DepartureStep::Now`] the caller drains stealing and repair too.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        root: &mut Roots,
        grace: Duration,
    ) -> DepartureStep {
        let me = cx.view.me().peer;
        let end = cx.now + grace;
        let handing_over = grace.mul_f64(HANDING_OVER.0).min(HANDING_OVER.1);
        // A second request, as when a spot notice follows a signal, can shorten the grace, but not
        // prolong it.
        if self.is_leaving() {
            self.end = self.end.min(end);
            if let LeavingStage::Finishing(until) = &mut self.stage {
                *until = (*until).min(end.saturating_sub(handing_over));
            }
            return DepartureStep::Before;
        }
        // No node would be left to go on with the run: it ends with this one.
        let stays = |peer: Peer| peer != me && !cx.view.is_draining(peer);
        if !cx.view.members().any(|member| stays(member.peer)) {
            return DepartureStep::Alone;
        }
        root.drain(cx);
        // Asked before `main` stops. A worker that is busy on top of it may take long to unwind, and the next `main`, which
        // does not wait for that, is to find what is done.
        let term = cx.term;
        if root.runs_main() {
            let harvest = Action::Harvest {
                since: 0,
                reader: HarvestReader::Heir,
            };
            cx.actions.push_back(harvest);
        }
        // The successor is elected before this node leaves, so the pool is never without a master.
        self.yielding = root.abdicate(cx);
        self.gathering = self.yielding.then_some(term);
        self.end = end;
        self.stage = LeavingStage::Finishing(end.saturating_sub(handing_over));
        DepartureStep::Now
    }

    /// Is `main` being stopped here?
    pub(crate) fn is_yielding(&self) -> bool {
        self.yielding
    }

    /// `main` has stopped here. Returns its results, if they are to be found here until the node leaves.
    pub(crate) fn yielded(&mut self, saved: Vec<Saved>) -> Option<Vec<Saved>> {
        self.yielding = false;
        match self.stage {
            LeavingStage::Finishing(_) => Some(saved),
            _ => {
                self.saved.extend(saved);
                None
            }
        }
    }

    /// The workers have told what there is of `main`'s root job: the term in which it began, and the nodes that wait for that to be
    /// in the table.
    pub(crate) fn gathered(&mut self) -> Option<(u32, Vec<Peer>)> {
        let term = self.gathering.take()?;
        Some((term, std::mem::take(&mut self.asked)))
    }

    /// Must a node that asks for the whole table wait until there is more in it?
    pub(crate) fn must_wait(&mut self, from: Peer) -> bool {
        let waits = self.gathering.is_some();
        if waits {
            self.asked.push(from);
        }
        waits
    }

    /// Does what finished children left go to an heir, rather than stay here?
    pub(crate) fn takes(&mut self, saved: Vec<Saved>) -> Option<Vec<Saved>> {
        match self.stage {
            LeavingStage::Staying => Some(saved),
            _ => {
                // Kept here it would be lost with this node.
                self.saved.extend(saved);
                None
            }
        }
    }

    /// Takes the steps of leaving that are due, as many as it can. True in the turn in which goodbye is to be
    /// said.
    pub(crate) fn go_on(
        &mut self,
        cx: &mut Context<'_>,
        repair: &mut Repair,
        keeping: &mut Keeping,
    ) -> bool {
        // A stage may end as soon as it begins: a node that has nothing leaves within one turn.
        loop {
            let (now, end) = (cx.now, self.end);
            let over = |until: Duration| until.min(end) <= now;
            let next = match self.stage {
                LeavingStage::Staying | LeavingStage::Gone => return false,
                LeavingStage::Finishing(until) => {
                    // `main`, if it runs here, must have stopped: what is left of it goes to the
                    // heir too.
                    // What is kept here for others is gone with this node: they are bringing it home.
                    let keeps = !cx.books.kept_here.is_empty();
                    let at_rest = !self.yielding && !keeps && cx.books.is_at_rest();
                    if !at_rest && !over(until) {
                        return false;
                    }
                    self.given = repair.give_all_up(cx);
                    // Half of the rest is for the workers, that unwind; half for what they save,
                    // on its way to the heir.
                    let half = (self.end.saturating_sub(cx.now)) / 2;
                    LeavingStage::GivingUp(cx.now + half)
                }
                LeavingStage::GivingUp(until) => {
                    // The workers save as they unwind. A long leaf, which has no spawn or sync, is
                    // not waited for.
                    if self.yielding || cx.books.is_giving_up() {
                        if !over(until) {
                            return false;
                        }
                        ran_out(Expiry::GivingUp);
                    }
                    self.saved.extend(cx.books.legacy());
                    LeavingStage::HandingOver(self.end)
                }
                LeavingStage::HandingOver(until) => {
                    // A worker that was slow to unwind saves late: its results are sent after
                    // the others.
                    let mut rest = self.saved.split_off(self.handed);
                    let me = cx.view.me().peer.id.0;
                    // Of such a result a part is lost with this node.
                    rest.retain(|saved| saved.answer.kept().is_none_or(|kept| kept.at != me));
                    self.saved.extend(rest.iter().cloned());
                    self.handed = self.saved.len();
                    if !rest.is_empty() {
                        keeping.bequeath(cx, rest);
                    }
                    let is_sending = keeping.is_bequeathing() || keeping.is_keeping_aside();
                    let more = self.yielding || cx.books.is_giving_up() || is_sending;
                    if more {
                        if !over(until) {
                            return false;
                        }
                        ran_out(Expiry::HandingOver);
                    }
                    // Named only if it has everything: an origin that trusts the list does not
                    // do these jobs again.
                    let heir = keeping.heir().filter(|_| !keeping.is_bequeathing());
                    // Told in any case, at the end of the grace even without an heir: the origins
                    // do the jobs again.
                    self.tell_origins(cx, heir);
                    LeavingStage::LastWords(cx.now + LAST_WORDS)
                }
                LeavingStage::LastWords(until) => {
                    // An answer is kept until it is acknowledged: a node that goes before may take
                    // the only copy along.
                    if !cx.books.is_all_said() {
                        if !over(until) {
                            return false;
                        }
                        ran_out(Expiry::LastWords);
                    }
                    self.stage = LeavingStage::Gone;
                    return true;
                }
            };
            self.stage = next;
        }
    }

    fn tell_origins(&mut self, cx: &mut Context<'_>, heir: Option<Peer>) {
        for (deal, id) in std::mem::take(&mut self.given) {
            // Without an heir nothing is saved, and a list of it would lead to claims in vain.
            let below = (self.saved.iter())
                .filter(|saved| heir.is_some() && id.is_ancestor_of(&saved.name.id))
                .map(|saved| saved.name.clone());
            let abandon = Message::Abandon {
                token: deal.token,
                heir,
                below: below.collect(),
            };
            cx.actions.push_back(Action::Send(deal.peer, abandon));
        }
        // The heir has it, or nobody: it is not handed over twice.
        self.saved.clear();
        self.handed = 0;
    }
}
