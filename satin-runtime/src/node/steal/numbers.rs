//! The numbers of stealing. Each doc says what goes wrong if the number is too small or too large.

use std::time::Duration;

/// Jobs for one request, at most. Too small: tiny jobs cannot keep a link busy. Too large: a thief sits on
/// jobs that others could run, and a reply holds up what comes after it.
pub(super) const MOST: u32 = 512;

/// Failed requests at the own site until a node relies on its lifelines there; no more than there are other nodes. Too
/// small: work that is there is found late. Too large: an idle site is noisy, and its victims are distracted.
pub(super) const NEAR_ROUND: u32 = 4;

/// The same for other sites, where every failure costs a long round trip.
pub(super) const FAR_ROUND: u32 = 2;

/// A victim whose workers are busy and have published nothing keeps an ordinary request for so long: they may be about
/// to. Too small: fine-grained programs look as if they had no work. Too large: a thief waits for a victim in a long leaf
/// while others have jobs.
pub(super) const PATIENCE: Duration = Duration::from_micros(500);

/// The share of its round trip that a thief from afar is waited for longer, on top of [`PATIENCE`]. Too
/// small: it travels in vain. Too large: it could have asked another node meanwhile.
pub(super) const FAR_PATIENCE: f64 = 0.25;

/// After a failed round the first request follows so late; each later one twice as late as the one before. Too small:
/// noise. Too large: if a lifeline fails to wake a node, it sleeps that long.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(50);

/// The longest pause between the slow retries of an idle pool. Too small: an idle pool is not silent. Too
/// large: what lifelines miss is found late.
pub(super) const RETRY_LAST: Duration = Duration::from_secs(4);

/// The time, besides [`REQUEST_ROUND_TRIPS`], after which a request is given up: the victim did not know this
/// node yet, or stands still. Too small: a loaded victim is asked twice. Too large: a thief waits
/// for nothing.
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_millis(250);

/// See [`REQUEST_PATIENCE`]; the first request to a peer pays for the connection too.
pub(super) const REQUEST_ROUND_TRIPS: u32 = 5;

/// Standing requests of one peer, at most; the oldest is answered then. More would be a mistake of the peer.
pub(super) const ASKS_OF_A_PEER: usize = 8;

/// The number of times that an asker is passed over for others that hold the values of the next jobs. Too small: values are
/// sent about that need not be. Too large: a node that lacks them waits for long while others have plenty.
pub(super) const PASSED_OVER_MOST: u32 = 3;

/// The number of hosted jobs in a round trip from which on more are fetched ahead. Too small: jobs
/// wait here that others could have run. Too large: workers wait for the network between small jobs.
pub(super) const TINY: f64 = 1.0;

/// Tiny jobs are asked for, and answered, in batches of so much time, where a round trip is shorter. Too small: a message costs more than the jobs
/// in it. Too large: jobs wait here that others could have run, and owners wait at their syncs.
pub(super) const BATCH: Duration = Duration::from_micros(500);

/// The tasks of a flow that a node has besides those that its workers run, for each worker, at most. Too small: workers wait for data. Too large:
/// tasks wait here that others could have run.
pub(super) const AHEAD: u32 = 2;

/// If the tasks that a node has borrow more than this share of the bytes for which it has room (`SATIN_FLOW_DATA`), it asks for none ahead: data
/// that have come must not go before their task begins. Too small: workers wait for large data. Too large: such data are fetched twice.
pub(super) const LENT_SHARE: f64 = 0.5;

/// A request for the next tasks stands for so long before it is said anew. Too small: messages. Too large: one that was lost is missed for long.
pub(super) const SAID_ANEW: Duration = Duration::from_secs(5);

/// If tasks come, with their data, in less than this part of the time that one takes, they are asked for when workers have nothing to do.
/// Too small: long tasks wait at a node, while others have nothing to do. Too large: workers wait for data.
pub(super) const LONG: f64 = 0.02;

/// A node of this site whose round trip is longer than this, and than [`SUSPECT_SHARE`] of that to the nearest other
/// site, may have a wrong site name. Too small: busy networks look like wrong names.
pub(super) const SUSPECT: Duration = Duration::from_millis(10);

/// The shortest of so many round trips says how far away a node is. Too small: a machine that is busy when nodes join looks like a wrong name. Too
/// large: wrong names are told of late.
pub(super) const MEASURED: u32 = 10;

/// Sites that are nearer to each other than this may as well be one: no name is wrong. Too small: a busy machine with
/// several "sites" looks as if names were wrong.
pub(super) const APART: Duration = Duration::from_millis(2);

/// See [`SUSPECT`].
pub(super) const SUSPECT_SHARE: f64 = 0.5;

/// The round trip to a node of the own site, before one has been measured.
pub(super) const NEAR_ROUND_TRIP: Duration = Duration::from_micros(500);

/// The round trip to a node of another site, before any has been measured.
pub(super) const FAR_ROUND_TRIP: Duration = Duration::from_millis(30);

/// Answers of tiny jobs wait for more of them, while there are more, for so much of a round trip, or of [`BATCH`] if that is longer. Too small: a
/// message for each. Too large: the owner waits at its sync.
pub(super) const ANSWERS_WAIT: f64 = 0.5;

/// The longest wait of such answers, however far the owner is. Too small: over long links a message for each.
/// Too large: the owner waits at its sync.
pub(super) const ANSWERS_WAIT_MOST: Duration = Duration::from_millis(5);

/// The number of answers, or acknowledgements, that are sent without waiting for more. Too small: many
/// messages. Too large: late answers.
pub(super) const ENOUGH: usize = 64;

/// Acknowledgements wait so long for more of them, or for something else that is to be said: they only free memory.
/// Too small: a message for each answer. Too large: answers are kept for longer than need be, and sent again when a
/// connection breaks.
pub(super) const ACKNOWLEDGE_WAIT: Duration = Duration::from_millis(20);

/// The number of nodes of other sites to which connections stand, from which on a node mostly asks
/// among them: a new connection costs both sides a handshake, and the thief two round trips more. Too small:
/// work spreads along few paths. Too large: in a pool of thousands every node is connected to every other.
pub(super) const FAR_ACQUAINTANCES: usize = 8;

/// The share of requests that go to a stranger all the same. Too small: no new node is ever met. Too large:
/// see [`FAR_ACQUAINTANCES`].
pub(super) const FAR_STRANGERS: f64 = 0.05;

/// A far victim that has so many more jobs is asked again; otherwise chance decides. Too small: of the trees of a
/// recursive program, one victim after another is plundered. Too large: the one source of a flat loop is not found
/// again.
pub(super) const FAR_RICH: u32 = 64;

/// A hosted job goes on to another site only after it has waited here for so many of the asker's round trips. Too small:
/// at the end of a computation jobs travel from site to site and nobody does them. Too large: they wait for a busy node
/// while others are idle.
pub(super) const FAR_REST: u32 = 1;

/// The wait of a lifeline whose node runs an orphan below the repair that is next in line, before that is
/// tried again. Too small: the repair is taken and put back all the time. Too large: a node is idle although
/// the next job would be for it.
pub(super) const DEADLOCK_REST: Duration = Duration::from_millis(20);
