//! The bridge between the gate and the node: events from the workers, and orders of the node for them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    },
    time::{Duration, Instant},
};

use crossbeam::queue::SegQueue;
use tokio::sync::{Notify, oneshot};

use super::limits;
use crate::{
    data::{self, Manners},
    job::{
        Answer, Back, BoundName, HeldValue, JobId, JobLoad, JobName, JobSample, JobTrip,
        KeptElsewhere, Offer, OrphanNews, Parcel, Recall, RootName, RootRun, RootTag, Saved, Unfit,
        ValueName, ValueSize, Wants, needs,
    },
    node::{
        DepartureId, Event, HarvestReader, HostedId, JobCosts, Lattices, NodeId, Taken, Terms,
        TookJobs,
    },
    worker::{Gate, Haul, Judge, Outside, Progress, RootKey},
};

/// For root jobs that begin or are over the network thread is woken once in that time. Too short: it is woken for each short root job. Too
/// long: people and other nodes hear late of them.
const PAUSE: Duration = Duration::from_millis(1);

/// After so many such events the network thread is woken all the same: they must not pile up.
const ROOTS: u32 = 256;

/// News that other threads have for the network thread. Any number of news ring the bell once.
pub(super) struct BridgeNews {
    queue: SegQueue<Event>,
    rung: AtomicBool,
    pub(super) bell: Notify,
    /// The network thread looks by itself soon: so many more results need not ring the bell.
    quiet: AtomicU32,
    /// Root jobs that have begun or ended since the network thread looked last.
    roots: AtomicU32,
    /// When it was woken for one, in microseconds since `began`.
    woken: AtomicU64,
    began: Instant,
    /// True once the network thread has ended: news are dropped.
    deaf: AtomicBool,
}

impl Default for BridgeNews {
    fn default() -> BridgeNews {
        BridgeNews {
            queue: SegQueue::new(),
            rung: AtomicBool::new(false),
            bell: Notify::new(),
            quiet: AtomicU32::new(0),
            roots: AtomicU32::new(0),
            woken: AtomicU64::new(0),
            began: Instant::now(),
            deaf: AtomicBool::new(false),
        }
    }
}

impl BridgeNews {
    pub(super) fn tell(&self, event: Event) {
        self.push(event);
        self.ring();
    }

    fn push(&self, event: Event) {
        if !self.deaf.load(Ordering::Relaxed) {
            self.queue.push(event);
        }
    }

    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.bell.notify_one();
        }
    }

    /// Tells the network thread of a result. It is not woken while it waits for more results.
    fn tell_result(&self, event: Event) {
        self.push(event);
        // Pairs with the fence of `look`: either this thread sees that nothing is quiet any more, or the network thread sees the event.
        fence(Ordering::SeqCst);
        let (quiet, less) = (&self.quiet, |quiet: u32| quiet.checked_sub(1));
        let can_wait = quiet.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if can_wait.is_err() {
            self.ring();
        }
    }

    /// Tells the network thread that a root job has begun, or is over. It is woken once for many of them, or looks by itself, once a second. No other
    /// node knows of a root job before a job of it leaves, and that is another event, which comes after this one.
    fn tell_of_root(&self, event: Event) {
        self.push(event);
        let now = self.began.elapsed().as_micros() as u64;
        let is_due = now >= self.woken.load(Ordering::Relaxed) + PAUSE.as_micros() as u64;
        if is_due || self.roots.fetch_add(1, Ordering::Relaxed) >= ROOTS {
            self.woken.store(now, Ordering::Relaxed);
            self.ring();
        }
    }

    /// The network thread is about to take all events: from here on each rings the bell.
    pub(super) fn look(&self) {
        self.quiet.store(0, Ordering::Relaxed);
        self.roots.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The network thread will look soon, by itself: so many more results need not ring the bell.
    pub(super) fn be_quiet(&self, results: u32) {
        self.quiet.store(results, Ordering::Relaxed);
    }

    /// Takes the oldest event. If there is none, the next event that comes rings the bell again.
    pub(super) fn next(&self) -> Option<Event> {
        self.queue.pop().or_else(|| {
            self.rung.swap(false, Ordering::AcqRel);
            self.queue.pop()
        })
    }

    pub(super) fn close(&self) {
        self.deaf.store(true, Ordering::Relaxed);
        while self.queue.pop().is_some() {}
    }
}

impl Outside for BridgeNews {
    fn idle(&self, workers: u32) {
        self.tell(Event::Idle(workers));
    }

    fn public(&self) {
        self.tell(Event::Public);
    }

    fn took(&self, request: u64, haul: Haul) {
        self.tell(took(request, haul));
    }

    fn done(&self, key: HostedId, answer: Answer) {
        let answer = match answer {
            Answer::Result { bytes, .. } if bytes.len() > limits::VALUE => {
                Answer::Refused(format!(
                    "its result has {} bytes, more than the {} that travel",
                    bytes.len(),
                    limits::VALUE
                ))
            }
            answer => answer,
        };
        self.tell_result(Event::Done(key, answer));
    }

    fn recalled(&self, departure: DepartureId, why: Recall) {
        self.tell(Event::Recalled(departure, why));
    }

    fn claimed(&self, departure: DepartureId, parcel: Parcel) {
        self.tell(Event::Claimed(departure, parcel));
    }

    fn held(&self, jobs: Vec<JobName>) {
        self.tell(Event::Held(jobs));
    }

    fn repaired(&self, job: JobId) {
        self.tell(Event::Repaired(job));
    }

    fn saved(&self, key: HostedId, saved: Vec<Saved>) {
        self.tell(Event::Saved(key, saved));
    }

    fn root_result(&self, root: RootTag, saved: Saved, patience: Duration) {
        self.tell(Event::RootResult(root, saved, patience));
    }

    fn yielded(&self, saved: Vec<Saved>) {
        self.tell(Event::Yielded(saved));
    }

    fn offered(&self, offer: Offer) {
        self.tell(Event::Offered(offer));
    }

    fn kept_for(&self, keeper: u128) {
        self.tell(Event::KeptFor(NodeId(keeper)));
    }

    fn bring(&self, kept: KeptElsewhere) -> bool {
        self.tell(Event::Bring(kept));
        true
    }

    fn prefetch(&self, to: u128, value: ValueSize, root: RootName, at: Option<u128>) {
        self.tell(Event::Prefetch {
            to,
            value,
            root,
            at,
        });
    }

    fn unneeded(&self, at: u128, names: Vec<ValueName>) {
        self.tell(Event::Unneeded { at, names });
    }

    fn keeps(&self, root: RootKey, values: &[HeldValue]) {
        for value in values {
            data::store().keep(value.name(), root);
        }
    }

    fn root_started(&self, root: RootRun) {
        self.tell_of_root(Event::RootStarted(root));
    }

    fn root_finished(&self, root: RootRun) {
        self.tell_of_root(Event::RootFinished(root));
    }
}

/// Lets those jobs go that are worth the way.
struct ByTerms(Terms);

impl Judge for ByTerms {
    fn accepts(&self, load: &JobLoad) -> bool {
        self.0.accept(load)
    }

    fn thief(&self) -> u128 {
        self.0.thief()
    }

    fn wants(&self) -> Wants {
        self.0.wants()
    }

    fn trip(&self, load: &JobLoad) -> JobTrip {
        self.0.trip(load)
    }
}

/// The event that tells the node which jobs the workers have given.
fn took(request: u64, haul: Haul) -> Event {
    Event::Took(TookJobs {
        request,
        jobs: haul.jobs,
        left: haul.left,
        not_worth: haul.not_worth,
        samples: haul.samples,
    })
}

/// The node's side of the gate.
///
/// Code of the user never runs here. Calls that may run some are made aside, by the clerk, and events that must not
/// overtake offers wait for them there.
pub(super) struct Bridge {
    gate: Gate,
    news: Arc<BridgeNews>,
    pub(super) joins: Arc<Joins>,
    /// Jobs of ours that are away.
    away: BTreeSet<DepartureId>,
    /// Jobs of others that are here.
    hosted: BTreeSet<HostedId>,
    pub(super) given: u64,
    pub(super) taken: u64,
}

impl Bridge {
    pub(super) fn new(gate: Gate, news: Arc<BridgeNews>, joins: Arc<Joins>) -> Bridge {
        Bridge {
            gate,
            news,
            joins,
            away: BTreeSet::new(),
            hosted: BTreeSet::new(),
            given: 0,
            taken: 0,
        }
    }

    /// Asks the workers for jobs. `None` if that takes longer: then it comes with the news.
    pub(super) fn take(&mut self, request: u64, most: u32, terms: Terms) -> Option<Event> {
        let judge: Arc<dyn Judge> = Arc::new(ByTerms(terms));
        let event = took(request, self.gate.take_for(request, most, &judge)?);
        self.note(&event);
        Some(event)
    }

    /// What the workers have seen of jobs since they were asked last.
    pub(super) fn samples(&self) -> Vec<JobSample> {
        self.gate.samples()
    }

    /// Bytes of the results of finished jobs that the workers keep.
    pub(super) fn harvested_bytes(&self) -> u64 {
        self.gate.harvested_bytes()
    }

    /// How far the root job is that runs here, if one does.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.gate.progress()
    }

    /// How much of the jobs of others is done, as far as that is known, in parts of 65,535.
    pub(super) fn parts_done(&self) -> Vec<(HostedId, u16)> {
        let parts = self.gate.parts_done().into_iter();
        parts
            .map(|(key, done)| (key, (done * f64::from(u16::MAX)) as u16))
            .collect()
    }

    pub(super) fn note_part(&self, departure: DepartureId, part: u16) {
        let done = f64::from(part) / f64::from(u16::MAX);
        self.gate.note_part(departure, done);
    }

    /// The workers know from now on what jobs cost.
    pub(super) fn know_costs(&self, costs: JobCosts) {
        self.gate
            .know_costs(Arc::new(move |shape, trip| costs.of(shape, trip)));
    }

    /// For that time the workers run no job that is away.
    pub(super) fn be_cautious(&self, time: Duration) {
        self.gate.be_cautious(time);
    }

    pub(super) fn start(&mut self, key: HostedId, parcel: Parcel) {
        self.hosted.insert(key);
        self.taken += 1;
        let held = self.keep_recent(&parcel);
        self.gate.after_offers(move |gate| {
            gate.host(key, parcel);
            drop(held); // the workers hold it
        });
    }

    /// Holds what the job borrows, and keeps it as one of the data that were borrowed last: others will borrow them too. What goes instead is
    /// dropped by code of the user.
    fn keep_recent(&self, parcel: &Parcel) -> Vec<HeldValue> {
        if parcel.lent.is_empty() {
            return Vec::new();
        }
        let root = RootKey {
            pool: self.gate.number(),
            name: parcel.root_run().name,
        };
        let lent = parcel.lent_names().to_vec();
        let held = needs::find_all(&lent);
        self.gate.aside(move || {
            for name in lent {
                data::store().keep_recent(name, root);
            }
        });
        held
    }

    pub(super) fn abort(&self, key: HostedId) {
        self.gate.after_offers(move |gate| gate.abort_hosted(key));
    }

    /// Notes an event before the node hears of it.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Done(key, _) | Event::Saved(key, _) => drop(self.hosted.remove(key)),
            Event::Claimed(departure, _) => drop(self.away.insert(*departure)),
            Event::Recalled(departure, _) => drop(self.away.remove(departure)),
            Event::Took(TookJobs { jobs, .. }) => jobs.iter().for_each(|job| match job {
                Taken::Own(departure, _) => {
                    self.away.insert(*departure);
                    self.given += 1;
                }
                Taken::Hosted(key, _) => {
                    self.hosted.remove(key);
                    // Who takes it counts it too.
                    self.given += 1;
                }
            }),
            _ => {}
        }
    }

    pub(super) fn deliver(&mut self, departure: DepartureId, answer: Answer) {
        self.away.remove(&departure);
        let news = Arc::clone(&self.news);
        self.gate.after_offers(move |gate| {
            // What the answer mentions has been fetched before.
            let kept = answer.kept().cloned();
            let is_taken = match data::store().hold(answer.needs()) {
                Some(values) => gate.deliver_with(departure, answer, values),
                // An answer that was kept here, longer than a value that it mentions: looked up again it would be the same.
                None => {
                    let at_once = true;
                    let back = Back {
                        at_once,
                        ..Back::default()
                    };
                    gate.put_back(departure, back);
                    false
                }
            };
            if let Some(kept) = kept.filter(|_| !is_taken) {
                let names = kept.values.iter().map(|value| value.name).collect();
                news.unneeded(kept.at, names);
            }
        });
    }

    pub(super) fn put_back(&mut self, departure: DepartureId, back: Back) {
        self.away.remove(&departure);
        self.gate.after_offers(move |gate| {
            gate.put_back(departure, back);
        });
    }

    /// Before the job comes back: it would be offered again.
    pub(super) fn unfit(&self, unfit: Unfit) {
        self.gate.after_offers(move |gate| gate.note_unfit(&unfit));
    }

    pub(super) fn orphan(&self, news: OrphanNews) {
        self.gate.after_offers(move |gate| gate.orphan(news));
    }

    pub(super) fn save(&self, key: HostedId) {
        self.gate.after_offers(move |gate| gate.save_hosted(key));
    }

    pub(super) fn harvest(&self, since: u64, reader: HarvestReader) {
        let news = Arc::clone(&self.news);
        // A result that is told has had its offers told before.
        (self.gate).after_offers(move |gate| {
            news.tell(Event::Harvested(reader, gate.gather(since)));
        });
    }

    pub(super) fn hold(&mut self, key: HostedId, parcel: Parcel) {
        self.hosted.insert(key);
        let held = self.keep_recent(&parcel);
        self.gate.after_offers(move |gate| {
            gate.hold(key, parcel);
            drop(held); // the workers hold it
        });
    }

    pub(super) fn release(&self) {
        self.gate.after_offers(Gate::release);
    }

    pub(super) fn release_one(&self, name: JobName) {
        self.gate.after_offers(move |gate| gate.release_one(&name));
    }

    pub(super) fn give_back(&self) {
        self.gate.after_offers(Gate::give_back);
    }

    pub(super) fn keep_roots(&self, keep: bool) {
        self.gate.after_offers(move |gate| gate.keep_roots(keep));
    }

    pub(super) fn root_kept(&self, root: RootTag) {
        self.gate.after_offers(move |gate| gate.root_kept(root));
    }

    // The next two go at once: a `main` that is to stop does not wait, and is begun again on its own thread.

    pub(super) fn stop_main(&self) {
        self.gate.stop_main();
    }

    pub(super) fn begin_main(&self, term: u32) {
        self.gate.begin_main(term);
    }

    pub(super) fn set_hungry(&self, hungry: bool) {
        self.gate.set_hungry(hungry);
    }

    pub(super) fn hold_roots(&self) {
        self.gate.hold_roots();
    }

    /// After the news of orphans that came before: root jobs look themselves up.
    pub(super) fn release_roots(&self) {
        self.gate.after_offers(Gate::release_roots);
    }

    /// Joins the pairs aside, on the clerk's thread. The receiver ends when that is done.
    pub(super) fn join(&self, pairs: Vec<Pair>) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        let joins = Arc::clone(&self.joins);
        self.gate.aside(move || {
            pairs.into_iter().for_each(|pair| joins.make(pair));
            let _ = done.send(()); // the thread may be on its way out
        });
        is_done
    }

    pub(super) fn improve(&self, offer: Offer) {
        let pool = self.gate.number();
        if data::manners(offer.bound) == Manners::Plain {
            self.gate.after_offers(move |_| data::improve(pool, &offer));
        } else {
            self.gate
                .aside_in_order(move || data::improve(pool, &offer));
        }
    }

    /// Shared values may go with it, and what they were decoded to is dropped by code of the user.
    pub(super) fn forget_root(&self, root: RootName) {
        let pool = self.gate.number();
        self.gate
            .after_offers(move |_| data::forget_bounds(pool, root));
        // The clerk may be about to enter values, so it is asked before the store is.
        if !self.gate.is_clerk_idle() || data::store().keeps_any() {
            self.gate.aside(move || data::forget_values(pool, root));
        }
    }

    /// Keeps a piece of a shared value; the fate of the value comes with the news. A worker may be decoding the value
    /// just now, for another root job, and the network thread does not wait for that.
    pub(super) fn store(&self, name: ValueName, root: RootName, lent: bool, piece: Piece) {
        let news = Arc::clone(&self.news);
        let root = RootKey {
            pool: self.gate.number(),
            name: root,
        };
        self.gate.aside(move || {
            let store = data::store();
            let Piece {
                offset,
                total,
                bytes,
            } = piece;
            news.tell(match store.put_part(name, offset, total, bytes) {
                data::PieceOutcome::More { is_first } => Event::PieceStored {
                    name,
                    offset,
                    is_first,
                },
                data::PieceOutcome::Stored => {
                    match lent {
                        true => store.keep_until_borrowed(name, root),
                        false => store.pin(name, root),
                    };
                    Event::Stored(name)
                }
                data::PieceOutcome::Corrupt => Event::Corrupt(name),
            });
        });
    }

    /// Drops the pieces of a value, after the pieces that came before have had their turn.
    pub(super) fn drop_pieces(&self, name: ValueName) {
        self.gate.aside(move || data::store().drop_pieces(name));
    }

    /// No job waits for these any more: they are data that jobs have borrowed.
    pub(super) fn borrowed(&self, names: Vec<ValueName>) {
        self.gate.aside(move || data::store().borrowed(&names));
    }

    /// A value that another node kept for the workers here has come, or is lost.
    pub(super) fn brought(&self, ticket: u64, value: Option<ValueName>) {
        self.gate.brought(ticket, value.and_then(needs::find));
    }

    /// Another node could not have that value, which is kept elsewhere for the workers here.
    pub(super) fn bring_home(&self, name: ValueName) {
        self.gate.bring_home(name);
    }

    /// That node is about to leave: what it keeps comes home.
    pub(super) fn keeper_leaves(&self, at: u128) {
        self.gate.keeper_leaves(at);
    }

    /// That node is gone, and with it what it kept.
    pub(super) fn keeper_gone(&self, at: u128) {
        self.gate.keeper_gone(at);
    }

    /// How many tasks of each function have run here again, as what they had made elsewhere was lost.
    pub(super) fn tasks_again(&self) -> BTreeMap<&'static str, u64> {
        self.gate.tasks_again()
    }

    /// The owner of these values can do without them.
    pub(super) fn drop_kept(&self, names: Vec<ValueName>) {
        self.gate.aside(move || data::store().drop_kept(&names));
    }

    /// No node outside will answer any more: the workers go on alone.
    pub(super) fn leave(&mut self) {
        for departure in std::mem::take(&mut self.away) {
            self.gate.put_back(departure, Back::default());
        }
        self.gate.call_home();
        for key in std::mem::take(&mut self.hosted) {
            self.gate.abort_hosted(key);
        }
        self.gate.set_hungry(false);
        self.gate.release_roots();
    }
}

/// A piece of a shared value.
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) total: u64,
    pub(super) bytes: Vec<u8>,
}

/// Two values of a bound, to be joined by code of the user.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    bound: BoundName,
    have: Vec<u8>,
    new: Vec<u8>,
}

/// Joins that code of the user has made of pairs, aside, kept until the node asks for them.
#[derive(Default)]
pub(super) struct Joins(Mutex<HashMap<Pair, Option<Vec<u8>>>>);

/// Number of joins that are kept for a node that does not ask for them after all: a value may have been improved
/// meanwhile. Too small: the node makes joins itself, on the network thread. Too large: memory.
const MOST_JOINS: usize = 256;

impl Joins {
    fn lock(&self) -> MutexGuard<'_, HashMap<Pair, Option<Vec<u8>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pair that code of the user has still to join before the node may see the offer.
    pub(super) fn missing(&self, offer: &Offer, have: Option<&[u8]>) -> Option<Pair> {
        if data::manners(offer.bound) != Manners::OfTheUser {
            return None;
        }
        let pair = Pair {
            bound: offer.bound,
            have: have?.to_vec(),
            new: offer.value.clone(),
        };
        (!self.lock().contains_key(&pair)).then_some(pair)
    }

    fn make(&self, pair: Pair) {
        let joined = data::join(pair.bound, &pair.have, &pair.new);
        let mut joins = self.lock();
        if joins.len() >= MOST_JOINS {
            joins.clear();
        }
        joins.insert(pair, joined);
    }
}

/// The answers of this process to questions of the node: joins of lattices, and values at hand.
pub(super) struct LocalLattices<L> {
    pub(super) lattices: L,
    pub(super) joins: Arc<Joins>,
}

impl<L: Lattices> Lattices for LocalLattices<L> {
    fn join(&self, bound: BoundName, have: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let pair = Pair {
            bound,
            have: have.to_vec(),
            new: new.to_vec(),
        };
        let made = self.joins.lock().remove(&pair);
        made.unwrap_or_else(|| self.lattices.join(bound, have, new))
    }

    fn value_size(&self, name: ValueName) -> Option<u64> {
        data::store().size_of(name)
    }
}
