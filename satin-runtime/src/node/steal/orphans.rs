//! What becomes of thefts when a node dies or leaves: the rules of `repair/README.md`, as far as the books are
//! concerned.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use super::{
    super::{
        Action, Context, Departure, HostKey, Identity, Peer, RepairMode, Rule, Token, View,
        expiry::{Limit, ran_out},
    },
    Steal,
    books::{HERE, Job, Kind, Source, State},
};
use crate::{
    job::{Answer, Back, Fingerprint, JobId, Parcel, Recall, RootName, RootTag, Saved},
    node::{
        message::Wanted,
        repair::{Given, given_up},
    },
};

/// A node whose workers say nothing at all for so many times the patience with claims may be one whose workers wait
/// without any room on their stacks. Too small: in coarse programs work is done twice. Too large: such a node waits.
const SILENT: u32 = 20;

/// A node keeps the results of so many root jobs, the last ones. Too small: a `main` that is started again does older
/// ones again. Too large: memory, as long as `main` runs.
const ROOT_RESULTS: u32 = 4096;

/// A job that has taken down nodes waits so long for another node before it is run where it is. Too small: the job takes down
/// the node that waits for it, and what that node knows. Too large: after a crash a job waits although nobody else is free.
const HELD: Duration = Duration::from_secs(5);

/// And then so long until everybody has been told. Too small: a death that nobody counts. Too large: the same wait.
const TOLD: Duration = Duration::from_millis(500);

/// What becomes of held jobs, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    /// Others are told that this node will run them.
    Blame(Duration),
    /// They are run.
    Run(Duration),
}

impl Release {
    pub(super) fn at(self) -> Duration {
        let (Release::Blame(at) | Release::Run(at)) = self;
        at
    }
}

/// Is there anybody else who could run something?
fn is_company(view: &View) -> bool {
    let me = view.me().peer;
    let mut others = view.members().filter(|member| member.peer != me);
    others.any(|member| !view.is_draining(member.peer))
}

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It died: whatever it ran may be the reason.
    Died,
    /// It left on purpose, or goes on as the next generation.
    Left,
    /// It lives on: it is this node that goes on as the next generation.
    Ours,
}

/// Why a job comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// Whoever had it is gone.
    Ended(End),
    /// It never arrived.
    Lost,
    /// It was not run there.
    Undone,
    /// It was begun there, and refused: its host did not die of it.
    Refused,
    /// Whoever had it gave it up; what was done of it is kept.
    Abandoned,
    /// The orphan is not there any more.
    Missed,
    /// This node has nothing else to run.
    Withdrawn,
}

/// Root jobs that are over, the last few.
#[derive(Default)]
pub(super) struct Over {
    tags: BTreeSet<RootTag>,
    /// In the order in which they ended.
    order: VecDeque<RootTag>,
}

impl Over {
    fn insert(&mut self, tag: RootTag) {
        let tag = Over::name(tag);
        if self.tags.insert(tag) {
            self.order.push_back(tag);
        }
        if self.order.len() > ROOT_RESULTS as usize
            && let Some(oldest) = self.order.pop_front()
        {
            self.tags.remove(&oldest);
        }
    }

    /// Root jobs of other threads are not called again in the next term.
    fn name(tag: RootTag) -> RootTag {
        match tag.number < RootName::OTHERS {
            true => tag,
            false => RootTag { term: 0, ..tag },
        }
    }

    /// Is the root job over of which that job is a part? A root job itself never is: its result stays.
    fn is_past(&self, term: u32, id: &JobId) -> bool {
        let number = id.path().next().filter(|_| !is_root(id));
        number.is_some_and(|number| self.tags.contains(&Over::name(RootTag { term, number })))
    }
}

fn is_root(id: &JobId) -> bool {
    id.path().nth(1).is_none()
}

impl Steal {
    /// The peer's life is over: what it hosted is done again, what is hosted for it becomes an orphan.
    pub(crate) fn sever(&mut self, cx: &mut Context<'_>, gone: &Identity, end: End) {
        let peer = gone.peer;
        // First the announcements, then that they are all; and both before anything is looked up.
        let waiting: Vec<(Token, HostKey)> = self.books.of(peer).collect();
        for (token, key) in waiting {
            let origin = self.books.hosted(key);
            let origin = origin.and_then(|hosted| hosted.waiters.get(&(peer, token)).copied());
            self.books.unwait(peer, token);
            match origin {
                Some(waiter) if waiter.origin => self.bereave(cx, key),
                _ => self.forget_if_idle(key),
            }
        }
        // Sheets are written in all modes: at departures, and for root jobs.
        if end != End::Ours {
            let died = end == End::Died;
            cx.table.bury((cx.actions, cx.now), peer, died);
            let strict = cx.config.obeys(Rule::Flushed);
            cx.table.settle(cx.actions, cx.view, strict);
        }
        let away: Vec<Token> = self.books.at(peer).map(|(token, _)| token).collect();
        let away = away.into_iter().filter(|_| cx.config.obeys(Rule::PutBack));
        for token in away {
            let victims = match end {
                End::Died => self.blame(cx, peer, token),
                End::Left | End::Ours => 0,
            };
            if victims >= cx.config.max_crashes {
                self.give_up_on(cx, gone, (token, victims));
            } else {
                self.bring_back(cx, peer, token, Why::Ended(end));
            }
        }
        self.thief.sever(peer);
        self.victim.sever(peer);
        self.trips.sever(peer);
        self.outboxes.remove(&peer);
        self.listed.remove(&peer);
        self.forget_early_recalls(peer);
        self.reconnect.remove(&peer);
    }

    /// The origin of a hosted job does not wait for it any more, but somebody will: it is an orphan.
    fn bereave(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let Some(hosted) = self.books.hosted(key) else {
            return;
        };
        if hosted.unwanted || hosted.orphan {
            return;
        }
        let others_wait = !hosted.waiters.is_empty();
        let done = match &hosted.state {
            State::Done(Answer::Refused(_) | Answer::Aborted) => None,
            State::Done(_) => Some(true),
            State::Onwards(..) => Some(false),
            // It has not been worked on, and what it needs may be gone.
            State::Coming => None,
            State::Started => Some(false),
        };
        match (cx.config.repair, done) {
            (RepairMode::Naive, _) | (_, None) => {
                if !others_wait {
                    self.abandon(cx, key);
                } else {
                    self.begin_unasked(cx, key);
                }
            }
            (RepairMode::Finished, Some(false)) if !others_wait => {
                if hosted.state == State::Started {
                    self.give_up(cx, key);
                } else {
                    self.adopt(cx, key, false);
                }
            }
            (_, Some(finished)) => self.adopt(cx, key, finished),
        }
    }

    /// It is an orphan of this node from now on.
    fn adopt(&mut self, cx: &mut Context<'_>, key: HostKey, finished: bool) {
        let over = |hosted: &super::books::Hosted| {
            self.over.is_past(cx.term, &hosted.id) || cx.homes.is_gone(cx.view, hosted.root)
        };
        if (self.books.look(key)).is_some_and(|hosted| hosted.waiters.is_empty() && over(hosted)) {
            return self.abandon(cx, key);
        }
        if !self.books.orphan(key) {
            // There is another of that name, which is as good.
            if self
                .books
                .hosted(key)
                .is_some_and(|hosted| hosted.waiters.is_empty())
            {
                self.abandon(cx, key);
            }
            return;
        }
        self.tally.orphans += 1;
        let Some(hosted) = self.books.look(key) else {
            return;
        };
        let id = hosted.id.clone();
        if cx.config.obeys(Rule::Announce) {
            let name = (&id, hosted.fingerprint);
            cx.table.announce((cx.actions, cx.now), name, finished);
        }
        if finished {
            self.drop_spare(cx, &id);
        }
    }

    /// Somebody has the result of that job: some of what is kept here, at or below it, is useless.
    fn drop_spare(&mut self, cx: &mut Context<'_>, id: &JobId) {
        if cx.config.obeys(Rule::Closed) {
            for key in self.books.orphans_below(id) {
                self.drop_if_spare(cx, key);
            }
        }
    }

    /// A result that is kept here goes if nobody will ask for it: somebody has that of a job around it, or keeps it too. Of
    /// root jobs there are to be two.
    fn drop_if_spare(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let Some(hosted) = self.books.look(key).filter(|hosted| hosted.orphan) else {
            return;
        };
        let (id, fingerprint) = (&hosted.id, hosted.fingerprint);
        let is_kept = matches!(hosted.state, State::Done(_)) && !is_root(id);
        let is_spare =
            cx.table.is_covered(id, cx.view) || cx.table.is_kept_before(id, fingerprint, cx.view);
        if is_kept && is_spare {
            self.withdraw_entry(cx, key);
        }
    }

    /// The workers are to stop with it, and to save what is finished below it.
    fn give_up(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let save = cx.config.obeys(Rule::Save);
        self.books.disown(key);
        self.books.give_up(key);
        cx.actions.push_back(match save {
            true => Action::Save(key),
            false => Action::Abort(key),
        });
    }

    /// The workers have given a hosted job up.
    pub(crate) fn saved(&mut self, key: HostKey) {
        self.ended(key);
        self.forget_unwanted(key);
    }

    // ---- leaving

    /// This node is about to go: it takes no more, and gives back what it has not begun.
    pub(crate) fn drain(&mut self, cx: &mut Context<'_>) {
        self.draining = true;
        self.thief.close(cx);
        cx.actions.push_back(Action::GiveBack);
    }

    /// Does nothing run here for others, and nothing elsewhere for this node?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.books.is_at_rest()
    }

    /// What still runs is given up; those who wait for it are to be told.
    pub(crate) fn give_all_up(&mut self, cx: &mut Context<'_>) -> Vec<Given> {
        let mut given = Vec::new();
        let keys: Vec<HostKey> = self.books.hosted_keys().collect();
        for key in keys {
            let Some(hosted) = self.books.hosted(key).filter(|hosted| !hosted.unwanted) else {
                continue;
            };
            let state = hosted.state.clone();
            if matches!(state, State::Done(_)) {
                continue;
            }
            let name = (hosted.id.clone(), hosted.fingerprint);
            let waiters: Vec<((Peer, Token), bool)> = (hosted.waiters.iter())
                .map(|(waiter, is)| (*waiter, is.origin))
                .collect();
            cx.table.withdraw((cx.actions, cx.now), (&name.0, name.1));
            for ((peer, token), origin) in waiters {
                self.books.unwait(peer, token);
                match (peer == HERE, origin) {
                    (true, _) => self.bring_back(cx, HERE, token, Why::Missed),
                    (false, true) => given.push(Given {
                        origin: peer,
                        token,
                    }),
                    (false, false) => self.outbox(peer).miss.push(token),
                }
            }
            match state {
                State::Started => self.give_up(cx, key),
                State::Onwards(peer, token, _) => {
                    self.books.forget(key);
                    self.books.back(peer, token);
                    self.outbox(peer).disown.push(token);
                }
                State::Coming | State::Done(_) => self.abandon(cx, key),
            }
        }
        given
    }

    /// Have the workers not stopped yet with what was given up?
    pub(crate) fn is_giving_up(&self) -> bool {
        self.books.is_giving_up()
    }

    /// The finished orphans that are here.
    pub(crate) fn legacy(&self) -> Vec<Saved> {
        self.books.legacy()
    }

    /// Has everybody whose answer is here said that it has it?
    pub(crate) fn is_all_said(&self) -> bool {
        self.outboxes.is_empty() && self.books.is_all_said()
    }

    /// Whoever had a job of ours gives it up.
    pub(crate) fn abandoned(
        &mut self,
        cx: &mut Context<'_>,
        (from, token): (Peer, Token),
        heir: Option<Peer>,
        below: &[(JobId, Fingerprint)],
    ) {
        // What this node keeps itself it knows better: it may be gone already.
        let other = |heir: &Peer| *heir != cx.view.me().peer && cx.view.is_alive(*heir);
        if let Some(heir) = heir.filter(other) {
            cx.table.hear((cx.actions, cx.now), heir, below);
        }
        self.bring_back(cx, from, token, Why::Abandoned);
    }

    /// The names of root jobs whose results are kept here.
    pub(crate) fn root_results(&self) -> Vec<(JobId, Fingerprint)> {
        self.books.root_results()
    }

    /// Is the result of that root job kept here? Or may it be: it was run here for a master that has not said yet that it has it.
    pub(crate) fn keeps(&self, root: RootName) -> bool {
        let id = JobId::ROOT.child(root.number);
        self.books.find(&id, root.fingerprint).is_some()
    }

    /// The root job whose result, or part of it, that answer brings to a claimant; not of a theft.
    pub(crate) fn claimed_of(&self, peer: Peer, token: Token) -> Option<u32> {
        let hosted = self.books.look(self.books.key(peer, token)?)?;
        let waiter = hosted.waiters.get(&(peer, token))?;
        (!waiter.origin).then(|| hosted.id.root_number())
    }

    /// What is kept here under that name.
    pub(crate) fn kept(&mut self, id: &JobId, fingerprint: Fingerprint) -> Option<Saved> {
        let key = self.books.orphan_of(id, fingerprint)?;
        let answer = self.answer_of(key)?;
        let root = self.books.look(key)?.root.fingerprint;
        let id = id.clone();
        Some(Saved {
            id,
            fingerprint,
            root,
            answer,
        })
    }

    /// Results that somebody will claim.
    pub(crate) fn keep(&mut self, cx: &mut Context<'_>, saved: Vec<Saved>) {
        for saved in saved {
            let name = (saved.id.clone(), saved.fingerprint);
            let before = self.books.orphan_of(&name.0, name.1);
            let Some(key) = self.books.keep(&saved) else {
                continue;
            };
            // Whoever waits for the one that runs gets what is there.
            if let Some(before) = before {
                self.hand_over(cx, before, key);
            }
            self.adopt(cx, key, true);
            if is_root(&name.0) {
                self.limit_root_results(cx);
            }
        }
    }

    /// Of the results of root jobs that are kept here the oldest go, if they are too large together.
    fn limit_root_results(&mut self, cx: &mut Context<'_>) {
        let results = self.books.root_results_by_size();
        let mut bytes: usize = results.iter().map(|(_, size)| size).sum();
        let newest = results.last().map(|(key, _)| *key);
        for (key, size) in results {
            if bytes <= cx.config.root_results || Some(key) == newest {
                return;
            }
            bytes -= size;
            self.withdraw_entry(cx, key);
        }
    }

    /// An orphan that still runs is not needed any more: whoever waits for it gets the answer that came another way.
    fn hand_over(&mut self, cx: &mut Context<'_>, old: HostKey, new: HostKey) {
        let Some(hosted) = self.books.hosted(old) else {
            return;
        };
        let name = (&hosted.id, hosted.fingerprint);
        cx.table.withdraw((cx.actions, cx.now), name);
        let waiters: Vec<((Peer, Token), u64)> = (hosted.waiters.iter())
            .map(|(waiter, is)| (*waiter, is.came))
            .collect();
        self.books.no_orphan(old);
        for ((peer, token), came) in waiters {
            self.books.unwait(peer, token);
            if peer != HERE {
                self.books.wait(new, (peer, token), came, false);
                self.outbox(peer).answers.push(token);
            } else if let Some(answer) = self.answer_of(new) {
                self.take_answer(cx, HERE, token, answer);
            }
        }
        self.abandon(cx, old);
    }

    // ---- jobs that come back

    /// A job that is away comes back undone.
    pub(super) fn bring_back(&mut self, cx: &mut Context<'_>, peer: Peer, token: Token, why: Why) {
        let Some(away) = self.books.back(peer, token) else {
            return;
        };
        self.victim.look_again();
        let job = away.job;
        let mut back = Back {
            repair: job.repair,
            at_once: matches!(why, Why::Withdrawn | Why::Refused),
            held: false,
        };
        let gone = matches!(why, Why::Ended(_) | Why::Abandoned);
        if gone {
            let marks = cx.config.repair != RepairMode::Naive && cx.config.obeys(Rule::Mark);
            back.repair.marked |= marks;
            self.tally.repairs += 1;
            if !self.over.is_past(cx.term, &job.id) {
                self.repairs.insert(job.id.clone());
            }
        }
        let victims = away.above + cx.table.victims((&job.id, job.fingerprint), cx.view);
        back.repair.crashes = victims;
        back.held = victims > 0 && !back.at_once && is_company(cx.view);
        if why == Why::Missed {
            self.tally.misses += 1;
        }
        match away.source {
            Source::Own(departure) => cx.actions.push_back(Action::PutBack(departure, back)),
            Source::Hosted(key) => self.restart(cx, key, back),
        }
    }

    /// If that peer had begun a job of this node when it died, everybody is told so. How many nodes the job has taken down by
    /// now.
    fn blame(&mut self, cx: &mut Context<'_>, peer: Peer, token: Token) -> u32 {
        let away = self.books.outstanding(peer, token);
        let Some(away) = away.filter(|away| away.kind == Kind::Theft && away.begun) else {
            return 0;
        };
        let name = (&away.job.id, away.job.fingerprint);
        cx.table.blame(cx.now, name, peer);
        away.above + cx.table.victims(name, cx.view)
    }

    fn give_up_on(
        &mut self,
        cx: &mut Context<'_>,
        gone: &Identity,
        (token, victims): (Token, u32),
    ) {
        let Some(away) = self.books.back(gone.peer, token) else {
            return;
        };
        let last = format!(", {} at {} was the last;", gone.name, gone.site);
        let story = given_up(&away.job.id, victims).replacen(';', &last, 1);
        self.answer_source(cx, away.source, Answer::Panicked(story));
    }

    /// The answer of a job that was away is here, and whole.
    pub(super) fn take_answer(
        &mut self,
        cx: &mut Context<'_>,
        peer: Peer,
        token: Token,
        answer: Answer,
    ) {
        if let Some(away) = self.books.back(peer, token) {
            self.tally.hits += u64::from(away.kind == Kind::Claim);
            if !matches!(answer, Answer::Panicked(_)) {
                cx.table.acquit(cx.now, &away.job.id);
            }
            // Of an orphan the answer is kept here.
            let keeps = match away.source {
                Source::Hosted(key) => self.books.look(key).is_some_and(|hosted| hosted.orphan),
                Source::Own(_) => false,
            };
            if away.kind == Kind::Theft && !keeps {
                self.close_if_kept(cx, &away.job.id);
            }
            self.close_below(cx, &away.job.id, keeps);
            self.answer_source(cx, away.source, answer);
        }
    }

    fn answer_source(&mut self, cx: &mut Context<'_>, source: Source, answer: Answer) {
        match source {
            Source::Own(departure) => cx.actions.push_back(Action::Deliver(departure, answer)),
            Source::Hosted(key) => self.finish(cx, key, answer),
        }
    }

    /// The answer of a hosted job is to be sent to all who wait for it, and to be kept for who may claim it.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>, key: HostKey, answer: Answer) {
        let Some(hosted) = self.books.hosted(key) else {
            return;
        };
        let undone = matches!(answer, Answer::Refused(_) | Answer::Aborted);
        if matches!(answer, Answer::Result { .. }) {
            cx.table.acquit(cx.now, &hosted.id);
        }
        hosted.state = State::Done(answer);
        let waiters: Vec<((Peer, Token), bool)> = (hosted.waiters.iter())
            .map(|(waiter, is)| (*waiter, is.origin))
            .collect();
        let kept = (hosted.orphan && !undone).then(|| hosted.id.clone());
        if hosted.orphan {
            let name = (&hosted.id, hosted.fingerprint);
            if undone {
                cx.table.withdraw((cx.actions, cx.now), name);
            } else if cx.config.obeys(Rule::Announce) {
                cx.table.announce((cx.actions, cx.now), name, true);
            }
        }
        if undone {
            self.books.no_orphan(key);
        } else {
            let (id, keeps) = (hosted.id.clone(), hosted.orphan);
            self.close_below(cx, &id, keeps);
        }
        for ((peer, token), origin) in waiters {
            match (peer == HERE, undone && !origin) {
                (true, true) => {
                    self.books.unwait(HERE, token);
                    self.bring_back(cx, HERE, token, Why::Missed);
                }
                (true, false) => {
                    self.books.unwait(HERE, token);
                    if let Some(answer) = self.answer_of(key) {
                        self.take_answer(cx, HERE, token, answer);
                    }
                }
                (false, true) => {
                    self.books.unwait(peer, token);
                    self.outbox(peer).miss.push(token);
                }
                (false, false) => self.outbox(peer).answers.push(token),
            }
        }
        self.forget_if_idle(key);
        if let Some(id) = kept {
            self.drop_spare(cx, &id);
        }
    }

    fn answer_of(&mut self, key: HostKey) -> Option<Answer> {
        match &self.books.hosted(key)?.state {
            State::Done(answer) => Some(answer.clone()),
            _ => None,
        }
    }

    /// A hosted job that is done, and that nobody waits for or may claim, is forgotten.
    pub(super) fn forget_if_idle(&mut self, key: HostKey) {
        if let Some(hosted) = self.books.hosted(key)
            && hosted.waiters.is_empty()
            && !hosted.orphan
            && matches!(hosted.state, State::Done(_))
        {
            self.books.forget(key);
        }
    }

    // ---- what is over

    /// A job of this node is done: what others keep of it, from runs of it that did not come to their end, nobody wants.
    fn close_if_kept(&mut self, cx: &mut Context<'_>, id: &JobId) {
        if cx.config.obeys(Rule::Closed) && cx.table.is_anything_at(id) {
            cx.table.close(cx.now, id);
            self.closed(cx, id);
        }
    }

    /// A job is done that may have repairs below it: nobody wants what they could have claimed. If its own result is kept here,
    /// for others, that is wanted.
    fn close_below(&mut self, cx: &mut Context<'_>, id: &JobId, keeps: bool) {
        for repair in self.forget_below(id) {
            if cx.config.obeys(Rule::Closed) && !(keeps && repair == *id) {
                cx.table.close(cx.now, &repair);
                self.closed(cx, &repair);
            }
        }
    }

    /// What came back at or below that job is not waited for here any more. The repairs among it are returned.
    pub(super) fn forget_below(&mut self, id: &JobId) -> Vec<JobId> {
        if self.repairs.is_empty() && self.withdrawn.is_empty() {
            return Vec::new();
        }
        while let Some((withdrawn, _)) = self.withdrawn.range(id.clone()..).next()
            && id.is_ancestor_of(withdrawn)
        {
            let withdrawn = withdrawn.clone();
            self.withdrawn.remove(&withdrawn);
        }
        let repairs: Vec<JobId> = (self.repairs.range(id.clone()..))
            .take_while(|repair| id.is_ancestor_of(repair))
            .cloned()
            .collect();
        for repair in &repairs {
            self.repairs.remove(repair);
        }
        repairs
    }

    /// Somebody has the result of that job: no orphan at or below it is wanted. The result of a root job stays, in case
    /// `main` is started again.
    pub(crate) fn closed(&mut self, cx: &mut Context<'_>, id: &JobId) {
        for key in self.books.orphans_below(id) {
            let stays = |hosted: &super::books::Hosted| {
                is_root(&hosted.id) && matches!(hosted.state, State::Done(_))
            };
            if !self.books.look(key).is_some_and(stays) {
                self.withdraw_entry(cx, key);
            }
        }
    }

    /// Others have announced these orphans: what they have finished makes some of what is kept here useless.
    pub(crate) fn heard_of(&mut self, cx: &mut Context<'_>, orphans: &[JobId]) {
        for id in orphans {
            if cx.table.is_finished(id, cx.view) {
                self.drop_spare(cx, id);
            }
        }
    }

    /// Others have announced these orphans. Those of a root job that is over nobody will want; the master says so to whoever
    /// missed the end of it, and of root jobs of other threads everybody who knows.
    pub(crate) fn close_past(&mut self, cx: &mut Context<'_>, orphans: &[JobId], is_master: bool) {
        let past = orphans.iter().filter(|id| {
            let may = is_master || id.root_number() >= RootName::OTHERS;
            may && self.over.is_past(cx.term, id)
        });
        let numbers: BTreeSet<u32> = past.filter_map(|id| id.path().next()).collect();
        for number in numbers {
            if cx.config.obeys(Rule::Closed) {
                cx.table.close(cx.now, &JobId::ROOT.child(number));
            }
        }
    }

    /// The root jobs of which orphans are here.
    pub(crate) fn roots_of_orphans(&self) -> impl Iterator<Item = RootName> + '_ {
        self.books.roots_of_orphans()
    }

    /// That root job is under way nowhere any more.
    pub(crate) fn forget_root(&mut self, cx: &mut Context<'_>, root: RootName) {
        cx.table.acquit(cx.now, &JobId::ROOT.child(root.number));
        self.forget_undone(|number| number == root.number);
        for key in self.books.orphans_below(&JobId::ROOT.child(root.number)) {
            if self
                .books
                .look(key)
                .is_some_and(|hosted| hosted.root == root)
            {
                self.withdraw_entry(cx, key);
            }
        }
    }

    /// A root job of this node is over: whoever is not told so finds it in the table.
    pub(crate) fn close_root(&mut self, cx: &mut Context<'_>, root: RootName) {
        let id = JobId::ROOT.child(root.number);
        cx.table.acquit(cx.now, &id);
        if cx.config.obeys(Rule::Closed) && cx.table.is_anything_below(&id) {
            cx.table.close(cx.now, &id);
        }
    }

    /// A root job is over. Its own result stays, in case `main` is started again.
    pub(crate) fn root_over(&mut self, cx: &mut Context<'_>, tag: RootTag) {
        let root = JobId::ROOT.child(tag.number);
        self.forget_undone(|number| {
            number == tag.number || number < tag.number && tag.number < RootName::OTHERS
        });
        if let Some(oldest) = tag.number.checked_sub(ROOT_RESULTS) {
            for key in self.books.orphans_below(&JobId::ROOT.child(oldest)) {
                self.withdraw_entry(cx, key);
            }
        }
        cx.table.acquit(cx.now, &root);
        if tag.number < RootName::OTHERS {
            cx.table.acquit_before(cx.now, tag.number);
        }
        self.over.insert(tag);
        self.closed(cx, &root);
    }

    /// Root jobs of these numbers are over, and so is all that came back of them.
    fn forget_undone(&mut self, is_over: impl Fn(u32) -> bool) {
        self.withdrawn.retain(|id, _| !is_over(id.root_number()));
        self.repairs.retain(|id| !is_over(id.root_number()));
    }

    /// An orphan is not to be had here any more. Who waits for it already gets it.
    fn withdraw_entry(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let Some(hosted) = self.books.hosted(key) else {
            return;
        };
        let name = (&hosted.id, hosted.fingerprint);
        cx.table.withdraw((cx.actions, cx.now), name);
        let unwanted = hosted.waiters.is_empty();
        self.books.no_orphan(key);
        if unwanted {
            self.abandon(cx, key);
        }
    }

    // ---- what the workers say

    /// A job that had come back is done here.
    pub(crate) fn repaired(&mut self, cx: &mut Context<'_>, id: &JobId) {
        self.close_below(cx, id, false);
    }

    /// A marked job of ours is an orphan somewhere.
    pub(crate) fn claimed(&mut self, cx: &mut Context<'_>, departure: Departure, parcel: Parcel) {
        self.moved = true;
        let mut job = Job::of(&parcel);
        if !cx.config.obeys(Rule::Fingerprint) {
            job.fingerprint = cx.table.any(&job.id).unwrap_or(job.fingerprint);
        }
        let me = cx.table.me();
        let owner = cx.table.owner(&job.id, job.fingerprint, cx.view);
        let source = (Source::Own(departure), Kind::Claim);
        let back = Back {
            repair: job.repair,
            at_once: true,
            held: false,
        };
        let mine = || self.books.orphan_of(&job.id, job.fingerprint);
        match owner {
            Some(owner) if owner == me => {
                let Some(key) = mine() else {
                    cx.actions.push_back(Action::PutBack(departure, back));
                    return;
                };
                self.tally.claims += 1;
                let token = self.books.away(HERE, source, job, None);
                self.books.wait(key, (HERE, token), 0, false);
                if let Some(answer) = self.answer_of(key) {
                    self.books.unwait(HERE, token);
                    self.take_answer(cx, HERE, token, answer);
                }
            }
            Some(owner) => {
                self.tally.claims += 1;
                let (id, fingerprint) = (job.id.clone(), job.fingerprint);
                let sent = cx.links.epoch(owner);
                let token = self.books.away(owner, source, job, sent);
                let wanted = Wanted {
                    token,
                    id,
                    fingerprint,
                };
                self.outbox(owner).claim.push(wanted);
            }
            // It went while the workers told us.
            None => {
                cx.actions.push_back(Action::PutBack(departure, back));
            }
        }
    }

    /// A job of ours that is away is not waited for any more.
    pub(crate) fn recalled(&mut self, cx: &mut Context<'_>, departure: Departure, why: Recall) {
        let Some((peer, token)) = self.books.whereabouts(departure) else {
            return;
        };
        let Some(away) = self.books.back(peer, token) else {
            return;
        };
        let wanted = why == Recall::Abandoned
            && cx.config.repair != RepairMode::Naive
            && cx.config.obeys(Rule::Disown);
        if wanted && away.kind == Kind::Theft {
            self.outbox(peer).disown.push(token);
        } else {
            self.let_go(cx, peer, token);
        }
        if why == Recall::Unwanted {
            cx.table.acquit(cx.now, &away.job.id);
            self.close_below(cx, &away.job.id, false);
            // Its orphan waits for nobody else: whoever runs its parent again does not ask for it, or does it again.
            if away.kind == Kind::Claim && cx.config.obeys(Rule::Closed) {
                cx.table.close(cx.now, &away.job.id);
                self.closed(cx, &away.job.id);
            }
        }
    }

    // ---- what others say

    /// A thief that has the job already says so, instead of doing it once more.
    pub(super) fn has_already(
        &mut self,
        cx: &mut Context<'_>,
        (from, token): (Peer, Token),
        came: u64,
        parcel: &Parcel,
    ) -> bool {
        if !parcel.repair.marked || !cx.config.obeys(Rule::Have) {
            return false;
        }
        if self.books.key(from, token).is_some() {
            return true; // a token is given once
        }
        let Some(key) = self.books.find(&parcel.id, parcel.fingerprint) else {
            return false;
        };
        self.books.wait(key, (from, token), came, false);
        self.outbox(from).have.push(token);
        if let Some(hosted) = self.books.hosted(key)
            && matches!(hosted.state, State::Done(_))
        {
            self.outbox(from).answers.push(token);
        }
        true
    }

    // ---- jobs that take down whoever runs them

    /// All the jobs that are held here. If no other node takes them soon, they are run here after all.
    pub(crate) fn held(&mut self, cx: &mut Context<'_>, names: Vec<(JobId, Fingerprint)>) {
        if names.len() > self.held.len() {
            self.victim.look_again();
        }
        self.held = names;
        let since = self.held.iter().map(|name| {
            let since = self.held_since.entry(name.clone());
            *since.or_insert(cx.now)
        });
        // One that was about to leave, and stayed, does not begin anew.
        let first = since.min().map(|first| first + cx.config.paced(HELD));
        self.release_at = match (first, self.release_at) {
            (_, run @ Some(Release::Run(_))) => run,
            (first, _) => first.map(Release::Blame),
        };
        if self.held.is_empty() {
            let old = 2 * cx.config.paced(HELD);
            (self.held_since).retain(|_, since| *since + old > cx.now);
        }
    }

    /// A job leaves: if it is held once more, others are asked once more.
    pub(super) fn no_more_held(&mut self, id: &JobId, fingerprint: Fingerprint) {
        if !self.held_since.is_empty() {
            self.held_since.remove(&(id.clone(), fingerprint));
        }
    }

    /// What is held here, and is an orphan somewhere, is claimed there.
    pub(super) fn claim_held(&mut self, cx: &mut Context<'_>) {
        // Said once; the workers tell what is still held then.
        self.held.retain(|(id, fingerprint)| {
            let claimed = cx.table.owner(id, *fingerprint, cx.view).is_some();
            if claimed {
                cx.actions
                    .push_back(Action::ReleaseOne(id.clone(), *fingerprint));
            }
            !claimed
        });
    }

    /// Nobody has taken what is held here: it is run here. Before, everybody is told what it was if this node dies now.
    pub(super) fn release_if_due(&mut self, cx: &mut Context<'_>) {
        let alone = !is_company(cx.view);
        match self.release_at {
            Some(_) if alone => self.release(cx),
            Some(Release::Blame(at) | Release::Run(at)) if at <= cx.now => {
                ran_out(Limit::Held);
                // Of what has been held since nobody has been told.
                if self.blame_self(cx) {
                    self.release_at = Some(Release::Run(cx.now + cx.config.paced(TOLD)));
                } else {
                    self.release(cx);
                }
            }
            _ => {}
        }
    }

    /// What is held here takes down this node, if it dies from now on. True if that is news.
    fn blame_self(&self, cx: &mut Context<'_>) -> bool {
        let me = cx.view.me().peer;
        let mut news = false;
        for (id, fingerprint) in &self.held {
            news |= cx.table.blame(cx.now, (id, *fingerprint), me);
        }
        news
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        self.books.release();
        self.release_at = None;
        self.held_since.clear();
        cx.actions.push_back(Action::Release);
    }

    /// A hosted job that has taken down nodes: its origin is asked first, so that it knows that the job has begun here.
    pub(super) fn asks_before(&mut self, key: HostKey, parcel: &Parcel) -> bool {
        if parcel.repair.crashes == 0 {
            return false;
        }
        let Some(hosted) = self.books.hosted(key).filter(|hosted| !hosted.may_begin) else {
            return false;
        };
        let origins = hosted.waiters.iter().filter(|(_, is)| is.origin);
        let origins: Vec<(Peer, Token)> = origins.map(|(waiter, _)| *waiter).collect();
        if origins.is_empty() {
            return false;
        }
        hosted.asks = Some(Box::new(parcel.clone()));
        for (origin, token) in origins {
            self.outbox(origin).begin.push(token);
        }
        true
    }

    /// Nobody is left who could give it leave to begin, but others wait for it.
    pub(super) fn begin_unasked(&mut self, cx: &mut Context<'_>, key: HostKey) {
        let hosted = self.books.look(key);
        if hosted.is_some_and(|hosted| !hosted.waiters.values().any(|waiter| waiter.origin)) {
            self.begin_here(cx, key);
        }
    }

    /// If that hosted job has waited for leave to begin, it begins.
    fn begin_here(&mut self, cx: &mut Context<'_>, key: HostKey) {
        if let Some(hosted) = self.books.hosted(key)
            && let Some(parcel) = hosted.asks.take()
        {
            hosted.may_begin = true;
            self.start(cx, key, *parcel);
        }
    }

    /// A thief has a worker for these jobs: from now on its death counts.
    pub(crate) fn begin(&mut self, from: Peer, tokens: &[Token]) {
        for token in tokens {
            match self.books.outstanding(from, *token) {
                Some(away) => {
                    away.begun = true;
                    self.outbox(from).go.push(*token);
                }
                // It has come back, or been answered, another way.
                None => self.outbox(from).recall.push(*token),
            }
        }
    }

    /// Their origin knows that they begin here.
    pub(crate) fn go(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            if let Some(key) = self.books.key(from, *token) {
                self.begin_here(cx, key);
            }
        }
    }

    pub(crate) fn have(&mut self, from: Peer, tokens: &[Token]) {
        for token in tokens {
            self.tally.claims += u64::from(self.books.is_claim(from, *token));
        }
    }

    pub(crate) fn disowned(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            match self.books.unwait(from, *token) {
                Some(key) => self.bereave(cx, key),
                // It has not come yet, so nothing is lost.
                None => self.expect(from, *token),
            }
        }
    }

    pub(crate) fn claim(&mut self, cx: &mut Context<'_>, from: Peer, wanted: Vec<Wanted>) {
        let came = cx.links.epoch(from).unwrap_or(0);
        for Wanted {
            token,
            id,
            fingerprint,
        } in wanted
        {
            if self.early_recalls.remove(&(from, token)) || self.books.key(from, token).is_some() {
                continue;
            }
            let Some(key) = self.books.orphan_of(&id, fingerprint) else {
                self.outbox(from).miss.push(token);
                continue;
            };
            self.books.wait(key, (from, token), came, false);
            if let Some(hosted) = self.books.hosted(key)
                && matches!(hosted.state, State::Done(_))
            {
                self.outbox(from).answers.push(token);
            }
        }
    }

    pub(crate) fn missed(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {
        for token in tokens {
            if let Some(away) = self.books.outstanding(from, *token) {
                let name = (&away.job.id, away.job.fingerprint);
                cx.table.miss(cx.actions, from, name);
                self.bring_back(cx, from, *token, Why::Missed);
            }
        }
    }

    // ---- withdrawing

    /// Has this node nothing to do but wait? What it claims may be buried under what waits; and what it has taken in may be
    /// what its peers wait for, who have no room on their stacks either.
    pub(super) fn look_if_stuck(&mut self, cx: &mut Context<'_>) {
        let claim = self.books.youngest_claim();
        let claim = claim.filter(|_| cx.config.obeys(Rule::Withdraw));
        let all_idle = self.hands.idle() >= cx.view.me().threads;
        let patience = match (all_idle, claim) {
            (true, Some((HERE, _))) => cx.config.claim_patience / 10,
            (true, Some(_)) => cx.config.claim_patience,
            // They compute; or they wait, and have no room on their stacks for anything else.
            (false, Some(_)) => cx.config.claim_patience * SILENT,
            (false, None) if self.hands.running > 0 && self.books.waits() => {
                cx.config.claim_patience * SILENT
            }
            (_, None) => {
                self.withdraw_at = None;
                return;
            }
        };
        let at = cx.now + patience;
        let before = self
            .withdraw_at
            .filter(|_| !std::mem::take(&mut self.moved));
        self.withdraw_at = Some(before.map_or(at, |before| before.min(at)));
    }

    pub(super) fn withdraw_if_stuck(&mut self, cx: &mut Context<'_>) {
        if self.withdraw_at.is_none_or(|at| cx.now < at) {
            return;
        }
        self.withdraw_at = None;
        let claim = self.books.youngest_claim();
        let Some((owner, token)) = claim.filter(|_| cx.config.obeys(Rule::Withdraw)) else {
            // Hosted jobs that no worker can begin go back to where they are waited for.
            ran_out(Limit::FullStack);
            cx.actions.push_back(Action::GiveBack);
            return;
        };
        ran_out(Limit::Claim);
        self.tally.withdrawn += 1;
        // The token is void first: an answer that is on its way changes nothing.
        let void = cx.config.obeys(Rule::Tokens);
        let away = self.books.outstanding(owner, token).cloned();
        if let Some(away) = &away
            && !self.over.is_past(cx.term, &away.job.id)
        {
            self.withdrawn.insert(away.job.id.clone(), owner);
        }
        self.bring_back(cx, owner, token, Why::Withdrawn);
        match away {
            Some(away) if !void => self.books.restore(owner, token, away),
            _ => self.let_go(cx, owner, token),
        }
    }
}
