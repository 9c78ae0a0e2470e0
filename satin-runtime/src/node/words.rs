//! Events, messages and actions in words: for people who read the trace of a simulated run, or the log of a real node (`SATIN_LOG=satin::node=trace`).

use std::fmt::Debug;

use super::{
    Action, Event, Message, Notice, Page, Peer, RequestKind, SheetChange, StorageOrder, Token,
    message::Cargo,
};
use crate::job::{Answer, Batch, JobId, Offer, OrphanNews, Parcel, Saved};

/// The longest text of what has no words of its own, in characters. Too short: nobody understands it. Too long: a line of the log is a page.
const LINE: usize = 80;

/// A node by the beginning of its number, with a dash for each life after the first. The numbers of simulated nodes are small, and decimal.
pub(crate) fn name(peer: Peer) -> String {
    let dashes = "'".repeat(peer.generation.min(9) as usize);
    match peer.id.0 >> 96 {
        number @ ..0x1_0000 => format!("{number}{dashes}"),
        number => format!("{number:08x}{dashes}"),
    }
}

/// The beginning of the debug form of what has no words of its own.
fn beginning(of: &impl Debug) -> String {
    let mut text = format!("{of:?}");
    text.truncate(
        text.char_indices()
            .nth(LINE)
            .map_or(text.len(), |(at, _)| at),
    );
    text
}

fn any_message(said: &Message) -> String {
    message(said).unwrap_or_else(|| beginning(said))
}

/// Any event in words, for the log.
pub(crate) fn told(told: &Event) -> String {
    match told {
        Event::Received {
            from,
            message: said,
            ..
        } => {
            format!("{} says: {}", name(*from), any_message(said))
        }
        _ => event(told).unwrap_or_else(|| beginning(told)),
    }
}

/// Any action in words, for the log.
pub(crate) fn wanted(wanted: &Action) -> String {
    match wanted {
        Action::Send(to, said) => {
            format!("says to {}: {}", name(*to), any_message(said))
        }
        _ => action(wanted, None).unwrap_or_else(|| beginning(wanted)),
    }
}

fn list<T>(items: &[T], word: impl Fn(&T) -> String) -> String {
    let words: Vec<String> = items.iter().map(word).collect();
    words.join(", ")
}

fn number(token: &Token) -> String {
    format!("#{}", token.0)
}

fn parcel(parcel: &Parcel) -> String {
    let mark = if parcel.history.marked {
        ", marked"
    } else {
        ""
    };
    let crashes = match parcel.history.crashes {
        0 => String::new(),
        crashes => format!(", {crashes} crashes"),
    };
    format!("{}{mark}{crashes}", parcel.id)
}

fn answer(answer: &Answer) -> &str {
    match answer {
        Answer::Result { .. } => "result",
        Answer::Panicked(story) => story,
        Answer::Refused(_) => "refused",
        Answer::Unfit(_) => "unfit",
        Answer::Aborted => "aborted",
    }
}

/// Bounds are numbers here, with a witness behind each.
fn offers(offers: &[Offer]) -> String {
    let all = list(offers, |offer| {
        let best = offer.value.first_chunk().copied().map(u64::from_le_bytes);
        let best = best.map_or("?".into(), |best| best.to_string());
        format!("{best} for root {}", offer.root.number)
    });
    format!("offers {all}")
}

fn jobs(jobs: &[(Token, Parcel)]) -> String {
    let all = list(jobs, |(token, job)| {
        format!("{} {}", number(token), parcel(job))
    });
    format!("jobs: {all}")
}

fn answers(answers: &[(Token, Answer)]) -> String {
    let all = list(answers, |(token, is)| {
        format!("{} {}", number(token), answer(is))
    });
    format!("answers: {all}")
}

fn saved(saved: &[Saved]) -> String {
    list(saved, |saved| saved.name.id.to_string())
}

fn page(page: &Page) -> String {
    let changes = list(&page.changes, |change| match change {
        SheetChange::Orphan { name, finished } => {
            let stage = if *finished { "finished" } else { "running" };
            format!("orphan {} {stage}", name.id)
        }
        SheetChange::Withdrawn(job) => format!("{} withdrawn", job.id),
        SheetChange::Flushed(peer) => format!("flushed {}", name(*peer)),
        SheetChange::Closed(id) => format!("closed {id}"),
        SheetChange::Deadly(job, who) => format!("{} has taken down {}", job.id, name(*who)),
        SheetChange::Harmless(job) => format!("{} is harmless", job.id),
    });
    let (after, version) = (page.after, page.version);
    format!("[{} {after}-{version}: {changes}]", name(page.owner))
}

/// A message in words; none for messages that only look after the membership.
pub(crate) fn message(message: &Message) -> Option<String> {
    use Message as M;
    Some(match message {
        M::Gossip(_) | M::Ping(_) | M::Pong(_) => return None,
        M::Steal { most, kind, .. } => match kind {
            RequestKind::Lifeline => "a lifeline".into(),
            RequestKind::Ahead => format!("asks for {most} ahead"),
            RequestKind::Now => format!("asks for {most} jobs"),
        },
        M::Jobs { jobs: all, .. } if all.is_empty() => "no jobs".into(),
        M::Jobs { jobs: all, .. } => jobs(all),
        M::Answers(all) => answers(all),
        M::Offers(all) | M::LargeOffers { offers: all, .. } => offers(all),
        M::OffersWith(best, Cargo::Jobs { jobs: all, .. }) => {
            format!("{} with {}", offers(best), jobs(all))
        }
        M::OffersWith(best, Cargo::Answers(all)) => {
            format!("{} with {}", offers(best), answers(all))
        }
        M::OffersWith(best, Cargo::Keep { number, saved: all }) => {
            format!("{} with keep ({number}): {}", offers(best), saved(all))
        }
        M::OffersWith(best, Cargo::Copies { saved: all, .. }) => {
            format!("{} with copies: {}", offers(best), saved(all))
        }
        M::Cut(_) => "asks no more".into(),
        M::Acknowledge(tokens) => format!("has {}", list(tokens, number)),
        M::Begin(tokens) => format!("may begin with {}?", list(tokens, number)),
        M::Go(tokens) => format!("begin with {}", list(tokens, number)),
        M::Recall(tokens) => format!("does not want {}", list(tokens, number)),
        M::Lists {
            outstanding,
            hosted,
        } => format!(
            "lists: outstanding {}, hosted {}",
            list(outstanding, number),
            list(hosted, number)
        ),
        M::Have(tokens) => format!("already has {}", list(tokens, number)),
        M::Disown(tokens) => format!("disowns {}", list(tokens, number)),
        M::Claim(wanted) => {
            let all = list(wanted, |wanted| {
                format!("{} {}", number(&wanted.token), wanted.name.id)
            });
            format!("claims {all}")
        }
        M::Miss(tokens) => format!("misses {}", list(tokens, number)),
        M::Table(pages) => format!("orphan table {}", list(pages, page)),
        M::Versions(versions) => {
            let all = list(versions, |(owner, version)| {
                format!("{} {version}", name(*owner))
            });
            format!("versions: {all}")
        }
        M::Keep { number, saved: all } => format!("keep ({number}): {}", saved(all)),
        M::Kept(number) => format!("kept ({number})"),
        M::Copies {
            number, saved: all, ..
        } => format!("copies ({number}): {}", saved(all)),
        M::Copied(number) => format!("copied ({number})"),
        M::Abandon { token, heir, below } => {
            let heir = heir.map_or("nobody".into(), name);
            let below = list(below, |job| job.id.to_string());
            format!("abandons {}, {heir} has {below}", number(token))
        }
        M::Draining => "drains".into(),
        M::Join { .. } => "asks to be let in".into(),
        M::Ask(master) => format!("says that {} is master", name(master.peer)),
        M::Welcome { stamp, term, .. } => format!("welcome, stamp {stamp}, term {term}"),
        M::Here { who, side, .. } => format!("is in as {}, at {side:?}", name(who.peer)),
        M::Goodbye => "goodbye".into(),
        M::DeclaredDead { peer, side } => {
            format!("{} was declared dead, says {side:?}", name(*peer))
        }
        M::GiveWay { side, to } => format!("our side gives way to {side:?} at {to}"),
        M::Master { term, master, .. } => format!("{} is master of term {term}", name(master.peer)),
        M::Ended { code, .. } => format!("the pool has ended with {code}"),
        M::RootsDone(tags) => {
            let all = list(tags, |tag| {
                format!("{} of term {}", tag.name.number, tag.term)
            });
            format!("roots done: {all}")
        }
        M::Missed { who, .. } => format!("misses {}", name(who.peer)),
        M::AreOver(roots) => {
            let all = list(roots, |root| root.number.to_string());
            format!("asks whether roots {all} are over")
        }
        other => beginning(other),
    })
}

/// The results in a batch, in words.
fn stored(batch: &Batch) -> String {
    let facts = batch.facts.iter().map(|fact| fact.saved.clone());
    saved(&facts.collect::<Vec<_>>())
}

/// An event from the workers, or main, for a node, in words.
pub(crate) fn event(event: &Event) -> Option<String> {
    Some(match event {
        Event::Done(key, is) => format!("hosted {} is done: {}", key.0, answer(is)),
        Event::Recalled(departure, why) => format!("recalls departure {}: {why:?}", departure.0),
        Event::Claimed(departure, job) => {
            format!("claims {} as departure {}", parcel(job), departure.0)
        }
        Event::Saved(key, all) => format!("hosted {} is given up; saved: {}", key.0, saved(all)),
        Event::RootStarted(tag) => format!("root {} of term {} starts", tag.name.number, tag.term),
        Event::RootFinished(tag) => {
            format!("root {} of term {} is done", tag.name.number, tag.term)
        }
        Event::RootResult(tag, ..) => format!("root {} has a result", tag.number),
        Event::Offered(offer) => offers(std::slice::from_ref(offer)),
        Event::Yielded(all) => format!("main has stopped; saved: {}", saved(all)),
        Event::MainEnded(code) => format!("main ends with {code}"),
        Event::RunOpened { run, batch } => {
            format!("has the run {run:?}; stored: {}", stored(batch))
        }
        Event::LogRead { peer, batch } => {
            format!("has read the log of {}: {}", name(*peer), stored(batch))
        }
        Event::Written {
            number, segment, ..
        } => format!("has written {number} to segment {segment}"),
        Event::NotWritten { number, text } => format!("has not written {number}: {text}"),
        Event::CannotOpenRun { text, .. } => format!("has no run: {text}"),
        Event::MainSeen { latest, is_own } => format!("sees main {latest:?}, own: {is_own}"),
        Event::NoLook => "does not see which main is the latest".into(),
        Event::RunIsOver(code) => format!("hears that the run is over with {code}"),
        Event::Superseded(epoch) => format!("hears of epoch {epoch}"),
        Event::MemoryFull(true) => "has no memory left".into(),
        Event::MemoryFull(false) => "has memory again".into(),
        Event::Drain(grace) => format!("is to go within {grace:?}"),
        Event::Connected { peer, .. } => format!("has a link to {}", name(peer.peer)),
        Event::Repaired(id) => format!("has done {id} again"),
        Event::Disconnected { peer, .. } => format!("loses the link to {}", name(*peer)),
        Event::Unreachable {
            peer: Some(peer), ..
        } => format!("does not reach {}", name(*peer)),
        _ => return None,
    })
}

/// An action of a node, in words; `away` is the job that is away, if the action is about one.
pub(crate) fn action(action: &Action, away: Option<JobId>) -> Option<String> {
    let id = away.map_or("a job".into(), |id| id.to_string());
    Some(match action {
        Action::Connect {
            peer: Some(peer), ..
        } => format!("dials {}", name(*peer)),
        Action::Disconnect(peer) => format!("closes the link to {}", name(*peer)),
        Action::Start(key, job) => format!("takes in {} as hosted {}", parcel(job), key.0),
        Action::Abort(key) => format!("aborts hosted {}", key.0),
        Action::Deliver(departure, is) => {
            format!("delivers {id} (departure {}): {}", departure.0, answer(is))
        }
        Action::Unfit(unfit) => format!("keeps function {}: {}", unfit.function, unfit.why),
        Action::PutBack(departure, back) => {
            let marked = if back.history.marked { ", marked" } else { "" };
            let at_once = if back.at_once { ", at once" } else { "" };
            let held = if back.held { ", held" } else { "" };
            let stays = if back.stays { ", stays" } else { "" };
            format!(
                "puts back {id} (departure {}){marked}{at_once}{held}{stays}",
                departure.0
            )
        }
        Action::Orphan(OrphanNews::Here(job)) => format!("knows orphan {}", job.id),
        Action::Orphan(OrphanNews::Gone(job)) => format!("forgets orphan {}", job.id),
        Action::Orphan(OrphanNews::Settled(settled)) => match settled {
            true => "knows that all orphans are announced".into(),
            false => "waits for orphans to be announced".into(),
        },
        Action::Orphan(OrphanNews::Careful(is)) => {
            format!("leaves root jobs of main to others: {is}")
        }
        Action::Orphan(OrphanNews::Deadly(job, is)) => format!("has {} as deadly: {is:?}", job.id),
        Action::Hold(key, job) => format!("holds {} as hosted {}", parcel(job), key.0),
        Action::Release => "may run what is held".into(),
        Action::ReleaseOne(job) => format!("may claim {}, which is held", job.id),
        Action::Harvest { since, reader } => {
            format!("asks for results since {since} ({reader:?})")
        }
        Action::Save(key) => format!("gives up hosted {}", key.0),
        Action::GiveBack => "gives back what has not begun".into(),
        Action::Joined { me, master } => {
            format!(
                "is in as {}; {} is master",
                name(me.peer),
                name(master.peer)
            )
        }
        Action::StartRoots => "may start roots".into(),
        Action::Storage(StorageOrder::Open { known, .. }) => {
            format!("looks for the run; knows {known:?}")
        }
        Action::Storage(StorageOrder::Write { number, batch, .. }) => {
            let offers = batch.offers.len();
            format!("writes {number}: {offers} bounds, {}", stored(batch))
        }
        Action::Storage(StorageOrder::LookAtMain { and, .. }) => {
            format!("looks at main: {and:?}")
        }
        Action::Storage(StorageOrder::Forget(segment)) => {
            format!("forgets segments before {segment}")
        }
        Action::Storage(StorageOrder::ReadLog { peer, .. }) => {
            format!("reads the log of {}", name(*peer))
        }
        Action::KeepRoots(keep) => format!("has results of roots kept by others: {keep}"),
        Action::RootKept(tag) => format!("knows that the result of root {} is kept", tag.number),
        Action::YieldMain => "is to stop main".into(),
        Action::RunMain { term } => format!("is to run main in term {term}"),
        Action::End(end) => format!("ends with {}", end.own_code()),
        Action::Tell(notice) => match notice {
            Notice::Joined(who) => format!("sees {} come", name(who.peer)),
            Notice::Left(who) => format!("sees {} leave", name(who.peer)),
            Notice::Dead(who) => format!("finds {} dead", name(who.peer)),
            Notice::Draining(who) => format!("hears that {} drains", name(who.peer)),
            Notice::CutOff => "is cut off from its master".into(),
            Notice::Branch => "begins a branch".into(),
            Notice::ComesOver => "comes over".into(),
            Notice::Master(who) => format!("has {} as master", name(who.peer)),
            Notice::Failed(text) | Notice::Warning(text) => text.clone(),
        },
        _ => return None,
    })
}
