//! A node whose workers can do nothing but wait withdraws a claim, or gives back what it has not begun.

use super::{
    super::{
        Action, Context, Rule,
        books::HERE,
        expiry::{Expiry, ran_out},
    },
    Repair, ReturnReason,
};

/// The silence of its workers, in patiences with claims, after which a node is taken for one whose workers
/// wait without any room on their stacks. Too small: in coarse programs work is done twice. Too large: such a
/// node waits.
const SILENT: u32 = 20;

impl Repair {
    /// Looks whether this node can do no more than wait. The orphan that it claims may be buried under the
    /// job that waits; and the jobs that it has taken in may be those that its peers wait for, who have no
    /// room on their stacks either.
    pub(crate) fn look_if_stuck(&mut self, cx: &mut Context<'_>) {
        let claim = cx.books.youngest_claim();
        let claim = claim.filter(|_| cx.config.obeys(Rule::Withdraw));
        let all_idle = cx.books.hands.idle() >= cx.view.me().threads;
        let patience = match (all_idle, claim) {
            // The owner is this very node, and all its workers are idle: the orphan lies below on
            // the same stack, and will not end before the claim is withdrawn. A short wait is for
            // an orphan that is about to be done.
            (true, Some(claim)) if claim.peer == HERE => cx.config.claim_patience / 10,
            (true, Some(_)) => cx.config.claim_patience,
            // The workers compute; or they wait, and have no room on their stacks for another job.
            (false, Some(_)) => cx.config.claim_patience * SILENT,
            // Without a claim there is only the other way out: hosted jobs go back to whoever waits
            // for them.
            (false, None) if cx.books.hands.running() > 0 && cx.books.waits() => {
                cx.config.claim_patience * SILENT
            }
            (_, None) => {
                // The workers have something to do, or nothing of this node is away: it will go on
                // by itself.
                self.withdraw_at = None;
                return;
            }
        };
        let at = cx.now + patience;
        // The wait begins anew whenever something happened among the workers. If not, this look
        // must not put the end off, for looks come with every turn.
        let before = self.withdraw_at.filter(|_| !cx.books.hands.have_moved());
        self.withdraw_at = Some(before.map_or(at, |before| before.min(at)));
    }

    pub(crate) fn withdraw_if_stuck(&mut self, cx: &mut Context<'_>) {
        if self.withdraw_at.is_none_or(|at| cx.now < at) {
            return;
        }
        self.withdraw_at = None;
        let claim = cx.books.youngest_claim();
        let Some(claim) = claim.filter(|_| cx.config.obeys(Rule::Withdraw)) else {
            // Hosted jobs that no worker can begin go back to where they are waited for.
            ran_out(Expiry::FullStack);
            cx.actions.push_back(Action::GiveBack);
            return;
        };
        ran_out(Expiry::Claim);
        cx.books.tally.withdrawn += 1;
        // The token is void first: an answer that is on its way changes nothing.
        let void = cx.config.obeys(Rule::Tokens);
        let away = cx.books.outstanding(claim).cloned();
        // The job, done here, must not be stolen by the node that still runs the orphan: it would
        // come to lie on top of that.
        if let Some(away) = &away
            && !self.over.is_past(cx.term, &away.job.name.id)
        {
            self.withdrawn.insert(away.job.name.id.clone(), claim.peer);
        }
        self.bring_back(cx, claim, ReturnReason::Withdrawn);
        match away {
            // Simulations leave the rule `Tokens` out here: the old token stays valid, and the
            // child is delivered twice.
            Some(away) if !void => cx.books.restore(claim, away),
            _ => self.let_go(cx, claim),
        }
    }
}
