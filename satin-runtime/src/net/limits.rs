//! The limits of messages between nodes, and the consequences at each limit.
//!
//! A node that holds the pool's credential may still be broken: a limit keeps its mistakes from harming the others.

use std::time::Duration;

/// The longest frame on a control stream. A longer header closes that connection before anything is allocated.
pub const FRAME: usize = 16 << 20;

/// Messages with more bytes than that go on a stream of their own, so that short ones overtake them. Less, and the streams
/// cost more than the waiting; more, and a steal waits for a result's megabytes.
pub const LARGE: usize = 64 << 10;

/// The longest arguments or result of one job. A longer result sends the job back to where it came from, and there it is
/// run; a job with longer arguments stays at home.
pub const VALUE: usize = crate::job::codec::LARGEST;

/// The longest message on a stream of its own: a [`VALUE`] and what stands around it. It is sent and received in
/// pieces as they fit in the windows; a longer one closes the connection.
pub const TRANSFER: usize = VALUE + FRAME;

/// Large messages under way at once, for each connection and direction. Others wait for their turn.
pub const TRANSFERS: usize = 16;

/// The longest greeting. It carries a command line, which is cut so that it fits.
pub const GREETING: usize = 256 << 10;

/// Bytes of the longest command line in a greeting; the rest is not compared.
pub const COMMAND_LINE: usize = 64 << 10;

/// The longest name of a node, site or pool, in bytes.
pub const NAME: usize = super::settings::NAME_MAX;

/// Peers that a node may know: the members of a pool. A node that comes beyond that is refused.
pub const PEERS: usize = super::settings::NODES_MAX as usize;

/// Number of connections kept open. Beyond that, the connections that have been silent longest are closed, as soon
/// as they have been so for [`SILENT`]; they are made again for the next message. Each costs about 50 KiB and a packet a
/// few seconds.
pub const LINKS: usize = 1024;

/// Time without messages after which a connection may be closed to make room. Too short: connections are closed that are
/// needed again at once. Too long: there are more than [`LINKS`] for long.
pub const SILENT: Duration = Duration::from_secs(10);

/// Connections, of members or not, that others may have to this node at once. Further ones are refused at the door.
pub const CONNECTIONS: usize = 8192;

/// Handshakes a second that one source address may begin, after the first [`HANDSHAKES_AT_ONCE`]. A handshake costs
/// about half a millisecond, so a source can take an eighth of the network thread at most. Many nodes of one machine, or
/// behind one address translator, share the limit: nodes above it try again a little later.
pub const HANDSHAKES_PER_SECOND: f64 = 256.0;

/// Handshakes that one source address may begin at once, when it has been quiet.
pub const HANDSHAKES_AT_ONCE: f64 = 512.0;

/// Source addresses of which handshakes are counted. At that number the ones that have been quiet are forgotten, and
/// if none has been, new ones are refused.
pub const SOURCES: usize = 16_384;

/// Handshakes under way with addresses that may be spoofed: a spoofed one costs as much as a real one, some 20 KiB until
/// [`HANDSHAKE`] has passed. At that number callers are sent back once, to prove that they can be reached (a stateless
/// retry, which costs them a round trip and us nothing). Fewer, and a pool that starts at once pays the round trip; more,
/// and an attacker takes so many times 20 KiB.
pub const UNPROVEN_HANDSHAKES: usize = 64;

/// Handshakes under way with addresses that can be reached. Beyond that, callers are refused, and come again.
pub const PROVEN_HANDSHAKES: usize = 1024;

/// First flights a second that are looked at, and as many again that bring the proof of a retry. Flights beyond that
/// are dropped as they are read from the socket, so that nodes that are in are served first. A flight costs some 50
/// microseconds, so all of them cost two fifths of the network thread at most; a caller whose flight was dropped sends it
/// again.
pub const FLIGHTS_PER_SECOND: f64 = 4096.0;

/// First flights at once, when it has been quiet.
pub const FLIGHTS_AT_ONCE: f64 = 1024.0;

/// Bytes of callers that wait to be let in or refused: of one, and of all.
pub const INCOMING: (u64, u64) = (64 << 10, 4 << 20);

/// Between two looks at what was warned of and only counted.
pub const SUMS: Duration = Duration::from_secs(10);

/// A handshake, the greeting included, that takes longer is given up.
pub const HANDSHAKE: Duration = Duration::from_secs(5);

/// Bytes that may wait for one peer that takes nothing. If the peer has taken nothing for [`IDLE`] then, the connection
/// is closed, as if broken: both sides compare their books when it is made again.
pub const WAITING: usize = if cfg!(test) { 4 << 20 } else { 256 << 20 };

/// Messages that may wait for one peer to which no connection stands. Beyond that the oldest are dropped.
pub const WAITING_MESSAGES: usize = 65_536;

/// Time that a node whose connection goes waits for the other's, when two nodes have called each other at the same time,
/// times the number of such attempts. Too short: they cross again. Too long: a connection that is lost on its way is
/// replaced late.
pub const CROSSED: Duration = Duration::from_millis(50);

/// Time after which a node that is refused by a node, and let in by none, gives up. Too short: a node that comes while
/// another leaves gives up. Too long: an error shows late.
pub const REFUSED: Duration = Duration::from_secs(5);

/// Time without a sign of life after which a connection has broken. Too short: a busy machine loses its connections. Too
/// long: a death is noticed late.
pub const IDLE: Duration = Duration::from_secs(10);

/// The time between two messages that say how far jobs of others are. Too short: traffic for nothing. Too long: what people see is old.
pub const PARTS: Duration = Duration::from_secs(1);

/// Longest time for which a node holds back its answer to an observer that waits for output. Too short: observers ask for nothing. Too long, that is
/// longer than [`HANDSHAKE`]: they think that the node does not answer.
pub const OUTPUT_WAIT: Duration = Duration::from_secs(3);
const _: () = assert!(OUTPUT_WAIT.as_secs() < HANDSHAKE.as_secs());

/// Longest time for reading the last lines that a node has printed when the pool ends. Too short: lines are missing that came over a slow link.
/// Too long: a program waits at its end for a node that does not answer.
pub const LAST_OUTPUT: Duration = Duration::from_millis(1500);

/// A quiet connection says so often that it is there.
pub const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// Longest time for leaving, whatever settings and observers say. A node that needs longer need not leave.
pub const GRACE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Longest time for saying goodbye: messages are to arrive, but dead peers are not waited for.
pub const GOODBYE: Duration = Duration::from_secs(1);

/// Time in which the store is to say that the run is done. Too short: a run that is done is resumed, as when one of several
/// servers died a moment ago, which takes [`IDLE`] and [`STORE_CONNECT`] to be found out. Too long: the process of a program
/// that is done stays.
pub const FINISH: Duration = Duration::from_secs(20);
const _: () = assert!(FINISH.as_secs() > IDLE.as_secs() + STORE_CONNECT.as_secs());

/// Time in which the batch that a node was writing when it ended is to be in the store. Too short: a part of it stays there when
/// the run is removed meanwhile. Too long: the process of a node that is done stays.
pub const CLOSE_LOG: Duration = Duration::from_secs(2);

/// The longest file, or batch, that a store server takes in one request. A longer one is refused by the client already.
pub const STORE_BYTES: usize = 256 << 20;

/// Bytes of a request to a store around the file's own: a path, lengths.
pub const STORE_HEADER: usize = 8 << 10;

/// The longest path in a store, in bytes.
pub const STORE_PATH: usize = 1024;

/// Bytes of a file that a store server sends in one answer, and of a list. Smaller: more round trips. Larger: more memory
/// for each request.
pub const STORE_PIECE: usize = 16 << 20;

/// Requests that one connection to a store may have under way.
pub const STORE_STREAMS: u32 = 4;

/// Connections to a store server at once. Further ones are refused, and come again.
pub const STORE_CONNECTIONS: usize = 1024;

/// Bytes of all requests and answers that a store server holds at once. Requests beyond that wait for their turn. At least
/// a request of [`STORE_BYTES`] and its answer; more lets more of them be under way.
pub const STORE_MEMORY: usize = 1 << 30;

/// A store that does not let us in within that time does not answer.
pub const STORE_CONNECT: Duration = Duration::from_secs(3);

/// A store that does not answer a request within that time has failed; large requests may take [`STORE_RATE`] longer. Too
/// short: a busy disk looks dead. Too long: the writer waits while results pile up.
pub const STORE_CALL: Duration = Duration::from_secs(20);

/// Bytes a second that a connection to a store carries at least.
pub const STORE_RATE: u32 = 1 << 20;

/// A call of S3 that fails is repeated for that time, by the client for S3. Too short: an overloaded server looks dead. At most
/// [`STORE_CALL`], after which the whole call has failed.
pub const S3_RETRY: Duration = Duration::from_secs(10);

/// Times that a call of S3 is repeated.
pub const S3_RETRIES: usize = 8;

/// Time for which a connection to S3 is kept without use. Too short: each call makes a new one. Too long: a call goes out on
/// one that something on the way has forgotten.
pub const S3_IDLE: Duration = Duration::from_secs(10);

/// Time for which a store that has failed is not called again. Too short: each call waits for a dead server. Too long: a
/// server that is back is missed.
pub const STORE_ALONE: Duration = Duration::from_secs(5);
