//! The life of a job that is away: it leaves, and its answer is delivered; or it comes back undone, and is done again.

use super::{
    super::{
        Action, Context, Deal, DepartureId, Identity, NodeId, Peer, PendingArrival, RepairMode,
        Rule, Taken, Token,
        books::{HostedState, Job, JobSource, OutstandingKind},
    },
    LifeEnd, Repair, ReturnReason,
    crashes::is_company,
    given_up,
};
use crate::job::{Answer, Back, JobName, JobShape, Parcel, Recall, Unfit};

impl Repair {
    /// Is one of these jobs better not taken by that thief now? It would come to lie on top of what it will claim; or it
    /// is held for others until all orphans are known.
    pub(crate) fn must_wait(&self, cx: &Context<'_>, thief: Peer, jobs: &[Taken]) -> bool {
        // A held job may be an orphan somewhere: handed out before all live nodes have flushed, its
        // work would be done twice.
        let is_early = |job: &Taken| !cx.table.is_settled() && self.is_held(job);
        jobs.iter()
            .any(|job| self.would_deadlock(cx, thief, job) || is_early(job))
    }

    /// A repair does not go to a node that runs an orphan below it: there it would come to lie on top of what it will
    /// claim, and each would wait for the other.
    fn would_deadlock(&self, cx: &Context<'_>, thief: Peer, job: &Taken) -> bool {
        let (Taken::Own(_, parcel) | Taken::Hosted(_, parcel)) = job;
        // The node from which a claim was withdrawn may still run that orphan, in the middle of a
        // stack: the job must not come to lie on top of it there.
        let withdrawn = self.withdrawn.get(&parcel.id) == Some(&thief);
        parcel.history.marked && (withdrawn || cx.table.runs_below(&parcel.id, thief))
    }

    /// Enters jobs that were taken for that thief as outstanding. The jobs that can go are returned, with their
    /// tokens.
    pub(crate) fn depart(
        &mut self,
        cx: &mut Context<'_>,
        to: Peer,
        jobs: Vec<Taken>,
    ) -> Vec<(Token, Parcel)> {
        let (kind, sent) = (OutstandingKind::Theft, cx.links.epoch(to));
        let looks_up = Repair::looks_up(cx);
        let mut leaving = Vec::with_capacity(jobs.len());
        for mut job in jobs {
            let (Taken::Own(_, parcel) | Taken::Hosted(_, parcel)) = &mut job;
            // Counts go down the tree: without that, each level of a deadly job takes down as many
            // nodes again.
            let above = cx.books.crashes_above(&parcel.id);
            let name = parcel.name();
            let victims = above + cx.table.victims(&name, cx.view);
            parcel.history.crashes = parcel.history.crashes.max(victims);
            // From here on the job waits with the thief. If it comes back and is held again, its
            // time begins anew.
            self.no_more_held(&name);
            let history = parcel.history;
            let shape = JobShape::of(parcel);
            let entry = Job {
                name,
                history,
                shape,
            };
            match job {
                // Its thief would not look, nor the workers below it.
                Taken::Own(departure, _)
                    if looks_up && cx.table.has_result(&entry.name, cx.view) =>
                {
                    self.repairs.insert(entry.name.id.clone());
                    self.claim_at_owner(cx, departure, entry);
                }
                Taken::Own(departure, mut parcel) => {
                    parcel.history.marked |= looks_up && cx.table.is_anything_below(&parcel.id);
                    parcel.owner = cx.view.me().peer.id.0;
                    let source = JobSource::Own(departure);
                    let deal = cx.books.away(to, source, kind, entry, sent);
                    cx.books.count_above(deal, above);
                    leaving.push((deal.token, parcel));
                }
                Taken::Hosted(key, parcel) => {
                    // The workers gave it out, wanted or not: they do not have it any more.
                    cx.books.gone(key);
                    let Some(hosted) = cx.books.hosted(key) else {
                        continue;
                    };
                    // Aborted here before any worker had begun with it: nobody waits, so it
                    // ends here.
                    if hosted.unwanted {
                        cx.books.forget(key);
                    } else if hosted.is_waited_for_by(to) {
                        // The thief waits for this very job: refused, it does the job itself,
                        // without a round trip, and the two ends of the theft cannot wait for each
                        // other.
                        self.finish(cx, key, Answer::refused("who waits for it asks for work"));
                    } else {
                        let source = JobSource::Hosted(key);
                        let deal = cx.books.away(to, source, kind, entry, sent);
                        cx.books.count_above(deal, above);
                        // The parcel stays here: if the thief dies, the job is done again without
                        // asking its origin.
                        if let Some(hosted) = cx.books.hosted(key) {
                            hosted.held = false;
                            hosted.state = HostedState::Onwards(deal, Box::new(parcel.clone()));
                        }
                        leaving.push((deal.token, parcel));
                    }
                }
            }
        }
        leaving
    }

    /// Answers have come. Those that are still wanted are returned: they go on once their shared values are here.
    pub(crate) fn answered(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        answers: Vec<(Token, Answer)>,
    ) -> Vec<PendingArrival> {
        let mut then = Vec::with_capacity(answers.len());
        for (token, answer) in answers {
            // Acknowledged also if the token is void: the thief keeps the answer until it hears so,
            // for ever if it never did.
            let outbox = cx.books.outbox(from);
            // Recalled in this turn: the thief must not think that the answer was taken.
            if !outbox.recall.contains(&token) {
                outbox.acknowledge.push(token);
            }
            // An answer is said again after a connection broke. While its values are fetched, the
            // first one counts, and the second must not be delivered too.
            let deal = Deal::new(from, token);
            if let Some(away) = cx.books.outstanding(deal)
                && !std::mem::replace(&mut away.answering, true)
            {
                then.push(PendingArrival::Answer(deal, answer));
            }
        }
        then
    }

    /// A job that is away comes back undone.
    pub(super) fn bring_back(&mut self, cx: &mut Context<'_>, deal: Deal, why: ReturnReason) {
        // A stale token changes nothing: the job has come back, or been answered, another way.
        let Some(away) = cx.books.back(deal) else {
            return;
        };
        // The job that comes back may be given to a node that asked in vain before.
        cx.books.look_again();
        let survived = away.has_survived();
        let job = away.job;
        let mut back = Back {
            history: job.history,
            // Withdrawn: this node is idle, and the job is what it does instead. Refused: if its host
            // has survived it, no other need try first. Unreadable: looked up again, it would get the same answer.
            at_once: match why {
                ReturnReason::Withdrawn | ReturnReason::Unreadable => true,
                ReturnReason::Refused => survived,
                _ => false,
            },
            held: false,
            stays: false,
        };
        // A run elsewhere was cut short, so orphans may lie below it. A job that was lost on the
        // way, or not begun, has left none; one that was claimed has its mark already.
        let gone = matches!(why, ReturnReason::Ended(_) | ReturnReason::Abandoned);
        if gone {
            let marks = cx.config.repair != RepairMode::Naive && cx.config.obeys(Rule::Mark);
            back.history.marked |= marks;
            cx.books.count_repair(job.shape.function);
            // Of a root job that is over no end of a repair will be told: the repair would be
            // remembered for ever.
            if !self.over.is_past(cx.term, &job.name.id) {
                self.repairs.insert(job.name.id.clone());
            }
        }
        // Counted afresh, not added up: a node that was declared dead by mistake does not count any
        // more.
        let victims = away.above + cx.table.victims(&job.name, cx.view);
        back.history.crashes = victims;
        // Alone there is nobody to leave it to. What is needed at once does not wait 5 s.
        back.held = victims > 0 && !back.at_once && is_company(cx.view);
        back.stays = why == ReturnReason::Refused && !back.held;
        if why == ReturnReason::Missed {
            cx.books.tally.misses += 1;
        }
        match away.source {
            // The other side of a cut goes on with it, and may be here again before anybody else has nothing else to do.
            JobSource::Own(departure)
                if why == ReturnReason::Ended(LifeEnd::Silent) && back.history.marked =>
            {
                self.put_off(cx, departure, back, job);
            }
            JobSource::Own(departure) => cx.actions.push_back(Action::PutBack(departure, back)),
            JobSource::Hosted(key) => self.restart(cx, key, back),
        }
    }

    /// A job that is away comes back undone, as it cannot travel.
    pub(super) fn bring_home(&mut self, cx: &mut Context<'_>, deal: Deal, unfit: Unfit) {
        if cx.books.is_of_workers(deal) {
            cx.actions.push_back(Action::Unfit(unfit));
        }
        self.bring_back(cx, deal, ReturnReason::Refused);
    }

    /// The host of a job that is away could not run it. The node that owns the job runs it: other hosts might refuse it too, without end.
    pub(super) fn refused(&mut self, cx: &mut Context<'_>, deal: Deal, why: String) {
        if let Some(away) = cx.books.look_away(deal)
            && let JobSource::Hosted(key) = away.source
            // A job that has taken down other hosts, and not this one, is run here: its owner would hold it for others.
            && !away.has_survived()
        {
            cx.books.back(deal);
            return self.finish(cx, key, Answer::Refused(why));
        }
        self.bring_back(cx, deal, ReturnReason::Refused);
    }

    /// The answer of a job that was away is here, and whole.
    pub(super) fn take_answer(&mut self, cx: &mut Context<'_>, deal: Deal, answer: Answer) {
        let Some(away) = cx.books.back(deal) else {
            // It has come back, or is not wanted any more, while values were fetched for its answer.
            return cx.books.let_go(&answer);
        };
        cx.books.tally.hits += u64::from(away.kind == OutstandingKind::Claim);
        // A job that was given up ends in a panic that names its dead: those still count.
        if !matches!(answer, Answer::Panicked(_)) {
            cx.table.acquit(cx.now, &away.job.name.id);
        }
        // Of an orphan the answer is kept here.
        let keeps = match away.source {
            JobSource::Hosted(key) => cx.books.look(key).is_some_and(|hosted| hosted.orphan),
            JobSource::Own(_) => false,
        };
        // A claim came out of a repair: what others keep of it is closed with that repair.
        if away.kind == OutstandingKind::Theft && !keeps {
            self.close_if_kept(cx, &away.job.name.id);
        }
        self.close_below(cx, &away.job.name.id, keeps);
        self.answer_source(cx, away.source, answer);
    }

    fn answer_source(&mut self, cx: &mut Context<'_>, source: JobSource, answer: Answer) {
        match source {
            JobSource::Own(departure) => {
                let keeper = answer
                    .kept()
                    .and_then(|kept| cx.view.life_of(NodeId(kept.at)));
                cx.actions.push_back(Action::Deliver(departure, answer));
                // It had said so before it kept that.
                if let Some(keeper) = keeper.filter(|keeper| cx.view.is_draining(*keeper)) {
                    let leaves = Action::KeeperLeaves(keeper.id.0);
                    cx.actions.push_back(leaves);
                }
            }
            JobSource::Hosted(key) => self.finish(cx, key, answer),
        }
    }

    pub(super) fn give_up_on(
        &mut self,
        cx: &mut Context<'_>,
        gone: &Identity,
        token: Token,
        victims: u32,
    ) {
        let Some(away) = cx.books.back(Deal::new(gone.peer, token)) else {
            return;
        };
        // The story names the last victim here, where its name and site are still known.
        let last = format!(", {} at {} was the last;", gone.name, gone.site);
        let story = given_up(&away.job.name.id, victims).replacen(';', &last, 1);
        self.answer_source(cx, away.source, Answer::Panicked(story));
    }

    /// A job of ours that is away is not waited for any more.
    pub(crate) fn recalled(&mut self, cx: &mut Context<'_>, departure: DepartureId, why: Recall) {
        // The job has come back while the workers said so.
        let Some(deal) = cx.books.whereabouts(departure) else {
            self.late.take(|is, _| is == departure);
            return;
        };
        let Some(away) = cx.books.back(deal) else {
            return;
        };
        // A frame that is given up, on a drain or by a master that yields, is done again somewhere,
        // and will claim what its thieves have. A frame that was aborted will not.
        let wanted = why == Recall::Abandoned
            && cx.config.repair != RepairMode::Naive
            && cx.config.obeys(Rule::Disown);
        // Of a claim the orphan stays in its owner's table in any case.
        if wanted && away.kind == OutstandingKind::Theft {
            cx.books.outbox(deal.peer).disown.push(deal.token);
        } else {
            self.let_go(cx, deal);
        }
        cx.books.tally.duplicates += u64::from(why == Recall::Done);
        if why != Recall::Abandoned {
            cx.table.acquit(cx.now, &away.job.name.id);
            self.close_below(cx, &away.job.name.id, false);
            // The orphan is for nobody else: a new run of the parent does not ask for it, or runs the job again.
            if away.kind == OutstandingKind::Claim && cx.config.obeys(Rule::Closed) {
                cx.table.close(cx.now, &away.job.name.id);
                self.closed(cx, &away.job.name.id);
            }
        }
    }

    /// The peer that has a job of this node gives it up.
    pub(crate) fn abandoned(
        &mut self,
        cx: &mut Context<'_>,
        deal: Deal,
        heir: Option<Peer>,
        below: &[JobName],
    ) {
        // A node knows better what it keeps itself: it may be gone already.
        let other = |heir: &Peer| *heir != cx.view.me().peer && cx.view.is_alive(*heir);
        if let Some(heir) = heir.filter(other) {
            // Heard before the job comes back: its repair looks itself up at once, long before the
            // sheet of the heir gets here by gossip.
            cx.table.hear(cx.actions, cx.now, heir, below);
        }
        self.bring_back(cx, deal, ReturnReason::Abandoned);
    }
}
