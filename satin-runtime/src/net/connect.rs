//! How connections come to stand: dialling, being dialled, the greeting, and which of two survives.
//!
//! The dialling node proposes a number for the connection; the dialled node decides it, and both know it before anything
//! else is said. The higher number survives. Numbers grow with each attempt, and the lowest bit says whether the node
//! with the smaller id has dialled, so two connections made at the same time have different numbers, and both sides
//! agree which of them goes. To avoid that case, a node with the smaller id that has greeted already refuses the other's
//! connection ([`Reason::Crossed`]): its own is on the way.

use std::{net::SocketAddr, rc::Rc, sync::atomic::Ordering::Relaxed, time::Instant};

use quinn::{Connection, ConnectionError, Incoming, RecvStream, SendStream, TransportErrorCode};
use tokio::time::{sleep, timeout};

use super::{
    door::{Caller, Crowd, Objection, Reception},
    driver::{Driver, DriverState, Net},
    limits,
    link::Close,
    observer, relay, socket,
    wire::{self, Frames, Greeting, Hello, Reason, Refusal, Role, WireError},
};
use crate::{
    node::{Event, Identity, Peer},
    observe::repeats,
};

/// Why an attempt came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// No answer came.
    Silence(String),
    /// We were refused, or refuse the other; trying again is of no use.
    Permanent(String),
    /// The other side refuses as things are now; that may change.
    Refused(Reason, String),
    /// The other side prefers another connection; the highest number it knows.
    Crossed(u64),
}

impl Failure {
    pub(super) fn text(&self) -> &str {
        match self {
            Failure::Silence(text) | Failure::Permanent(text) | Failure::Refused(_, text) => text,
            Failure::Crossed(_) => "both nodes called each other at the same time",
        }
    }
}

/// TLS alerts, as QUIC reports them.
const CRYPTO: std::ops::Range<u64> = 0x100..0x200;
const NO_COMMON_PROTOCOL: u64 = 0x100 + 120;

const CREDENTIALS: &str = "the two nodes do not hold the same credential: give all nodes a copy of the same file (SATIN_CREDENTIAL)";
const PROTOCOLS: &str =
    "it speaks another version of Satin's protocol: run the same version of Satin on all nodes";

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Failure {
        let of_code = |code: TransportErrorCode| match u64::from(code) {
            NO_COMMON_PROTOCOL => Some(Failure::Permanent(PROTOCOLS.into())),
            code if CRYPTO.contains(&code) => Some(Failure::Permanent(CREDENTIALS.into())),
            _ if code == TransportErrorCode::CONNECTION_REFUSED => Some(Failure::Refused(
                Reason::Busy,
                "too many connections were made at once, or it has no room for more".into(),
            )),
            _ => None,
        };
        let known = match &error {
            ConnectionError::VersionMismatch => Some(Failure::Permanent(
                "it speaks another version of QUIC".into(),
            )),
            ConnectionError::TransportError(error) => of_code(error.code),
            ConnectionError::ConnectionClosed(close) => of_code(close.error_code),
            ConnectionError::ApplicationClosed(close) => {
                let text = wire::printable(&String::from_utf8_lossy(&close.reason));
                Some(Failure::Silence(format!(
                    "it closed the connection: {text}"
                )))
            }
            ConnectionError::TimedOut => Some(Failure::Silence("nobody answers".into())),
            _ => None,
        };
        known.unwrap_or_else(|| Failure::Silence(error.to_string()))
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Failure {
        match error {
            WireError::Version(_) => Failure::Permanent(format!(
                "{error}: run the same version of Satin on all nodes"
            )),
            error => Failure::Permanent(format!("its greeting cannot be understood: {error}")),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal.reason {
            Reason::Crossed => Failure::Crossed(refusal.epoch),
            reason if reason.is_permanent() => Failure::Permanent(refusal.text),
            reason => Failure::Refused(reason, refusal.text),
        }
    }
}

/// The first frame that the other side sends, and what came after it.
pub(super) async fn read_greeting(recv: &mut RecvStream) -> Result<(Greeting, Frames), Failure> {
    let mut frames = Frames::new(limits::GREETING);
    loop {
        if let Some(body) = frames.next_frame()? {
            let greeting = Greeting::decode(body)?;
            frames.set_limit(limits::FRAME);
            return Ok((greeting, frames));
        }
        match recv.read_chunk(limits::LARGE, true).await {
            Ok(Some(chunk)) => frames.push(&chunk.bytes),
            Ok(None) => return Err(Failure::Silence("it hung up without a word".into())),
            Err(quinn::ReadError::ConnectionLost(error)) => return Err(error.into()),
            Err(error) => return Err(Failure::Silence(error.to_string())),
        }
    }
}

pub(super) async fn write_greeting(
    send: &mut SendStream,
    greeting: &Greeting,
) -> Result<(), Failure> {
    match send.write_all(&greeting.encode()).await {
        Ok(()) => Ok(()),
        Err(quinn::WriteError::ConnectionLost(error)) => Err(error.into()),
        Err(error) => Err(Failure::Silence(error.to_string())),
    }
}

// ------------------------------------------------------------------------------------------------------------- dialling

/// Begins to dial, unless that is under way.
pub(super) fn dial(net: &Rc<Net>, driver: &mut Driver, addr: SocketAddr, meant: Option<Peer>) {
    let known = driver.dials.contains_key(&addr);
    let dial = driver.dials.entry(addr).or_default();
    if !dial.meant.contains(&meant) {
        dial.meant.push(meant);
    }
    if !known {
        tokio::task::spawn_local(keep_dialling(Rc::clone(net), addr));
    }
}

async fn keep_dialling(net: Rc<Net>, addr: SocketAddr) {
    // The lowest number that the next attempt may have.
    let mut at_least = 0;
    let mut crossed = 0;
    loop {
        let outcome = attempt(&net, addr, at_least).await;
        match &outcome {
            Ok(()) => tracing::trace!(%addr, "dialled"),
            Err(failure) => tracing::debug!(%addr, "cannot connect: {}", failure.text()),
        }
        if let Err(Failure::Crossed(epoch)) = outcome
            && crossed < 8
        {
            crossed += 1;
            at_least = epoch + 1;
            // The other connection is on the way. It may come to nothing all the same.
            sleep(limits::CROSSED * crossed).await;
            if !net.driver.borrow().link_at(addr) {
                continue;
            }
        }
        return net.turn(|driver, now| dial_ended(driver, now, addr, &outcome));
    }
}

/// Tells the node what has become of an attempt. Whether there is to be another one is for the node to say.
fn dial_ended(
    driver: &mut Driver,
    now: std::time::Duration,
    addr: SocketAddr,
    outcome: &Result<(), Failure>,
) {
    let Some(mut dial) = driver.dials.remove(&addr) else {
        return;
    };
    let reached = |driver: &Driver, peer: &Option<Peer>| match peer {
        Some(peer) => driver.links.contains_key(peer),
        None => outcome.is_ok() || driver.link_at(addr),
    };
    dial.meant.retain(|peer| !reached(driver, peer));
    if let Err(Failure::Permanent(text)) = outcome
        && !dial.meant.is_empty()
    {
        let fresh = refused_for_good(driver, now, addr, text);
        if fresh {
            repeats::warn("cannot work with a node", addr, text);
        }
        if driver.is_over() {
            return;
        }
    }
    for peer in dial.meant {
        let unsent = peer.map_or_else(Vec::new, |peer| driver.take_waiting(peer));
        let unreachable = Event::Unreachable { addr, peer, unsent };
        driver.node.handle(now, unreachable);
    }
}

/// Notes that the node at `addr` refuses this node; a node that is refused by all candidates gives up. True if this is
/// the first refusal from there.
fn refused_for_good(
    driver: &mut Driver,
    now: std::time::Duration,
    addr: SocketAddr,
    text: &str,
) -> bool {
    let mine = driver.me().addr;
    let DriverState::Joining {
        candidates,
        refused,
        since,
    } = &mut driver.state
    else {
        return true;
    };
    let fresh = refused.insert(addr, text.into()).is_none();
    since.get_or_insert_with(Instant::now);
    // A node that a pool refuses does not found another.
    let join = candidates.clone();
    if join
        .iter()
        .all(|other| *other == mine || refused.contains_key(other))
    {
        give_up_joining(driver);
    } else if fresh {
        driver.node.handle(
            now,
            Event::Candidates {
                join,
                may_found: false,
            },
        );
    }
    fresh
}

/// Ends this node with an error that says why no node lets it in.
pub(super) fn give_up_joining(driver: &mut Driver) {
    let DriverState::Joining { refused, .. } = &driver.state else {
        return;
    };
    let each: Vec<String> = (refused.iter().take(3))
        .map(|(addr, text)| format!("the node at {addr}: {text}"))
        .collect();
    let text = format!("this node cannot join the pool. {}", each.join("; "));
    driver.fail(text);
}

async fn attempt(net: &Rc<Net>, addr: SocketAddr, at_least: u64) -> Result<(), Failure> {
    match timeout(limits::HANDSHAKE, attempt_patiently(net, addr, at_least)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::Silence("nobody answers".into())),
    }
}

async fn attempt_patiently(net: &Rc<Net>, addr: SocketAddr, at_least: u64) -> Result<(), Failure> {
    let route = relay::route(addr);
    let connecting = (net.endpoint)
        .connect_with(net.client.clone(), route, "satin")
        .map_err(|error| Failure::Silence(error.to_string()))?;
    let connection = tokio::select! {
        connected = connecting => connected?,
        () = nobody_listens(route) => return Err(Failure::Silence("nobody listens there".into())),
    };
    let refuse = |connection: &Connection, text: &str| {
        connection.close(Close::Refused.code(), text.as_bytes());
    };
    // Another connection may have been faster.
    let greeting = net.turn(|driver, _| {
        let door = Rc::clone(&driver.door);
        let me = driver.me().clone();
        let dial = driver.dials.get(&addr)?;
        let meant = match *dial.meant {
            [meant] => meant,
            _ => None,
        };
        if dial
            .meant
            .iter()
            .all(|peer| peer.is_some_and(|peer| driver.links.contains_key(&peer)))
        {
            return None;
        }
        let epoch = driver.propose_epoch(meant.map(|peer| peer.id), at_least);
        if let Some(dial) = driver.dials.get_mut(&addr) {
            dial.proposed = Some(epoch);
        }
        Some(door.hello(me, epoch, meant))
    });
    let Some(hello) = greeting else {
        connection.close(Close::Replaced.code(), b"another connection was faster");
        return Ok(());
    };
    let meant = hello.meant;
    let (mut send, mut recv) = connection.open_bi().await?;
    write_greeting(&mut send, &Greeting::Hello(Box::new(hello))).await?;
    let (greeting, frames) = read_greeting(&mut recv).await?;
    let other = match greeting {
        Greeting::Hello(hello) => hello,
        Greeting::Refused(refusal) => {
            connection.close(Close::Bye.code(), b"bye");
            return Err(refusal.into());
        }
    };
    let checked = net.turn(|driver, _| {
        driver.door.check(&other, driver.me())?;
        if let Some(warning) = driver.door.other_command_line(&other) {
            repeats::warn("another command line", &other.identity.name, warning);
        }
        Ok::<(), Objection>(())
    });
    if let Err(objection) = checked {
        refuse(&connection, &objection.there);
        return Err(match objection.reason.is_permanent() {
            true => Failure::Permanent(objection.here),
            false => Failure::Refused(objection.reason, objection.here),
        });
    }
    if meant.is_some_and(|meant| meant != other.identity.peer) {
        refuse(&connection, "you are not the node that was called");
        return Err(Failure::Refused(
            Reason::SomebodyElse,
            "another node is there now".into(),
        ));
    }
    net.turn(|driver, now| {
        driver.establish(
            net,
            now,
            other.identity,
            other.epoch,
            connection,
            (send, recv),
            frames,
        );
    });
    Ok(())
}

/// Returns when the machine at `addr` answers that no process listens there. An empty datagram is neither QUIC nor noise:
/// nodes pass it over.
pub(super) async fn nobody_listens(addr: SocketAddr) {
    let knock = async {
        let any: SocketAddr = match addr {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0; 16], 0).into(),
        };
        let socket = tokio::net::UdpSocket::bind(any).await?;
        socket.connect(addr).await?;
        socket.send(&[]).await?;
        socket.recv(&mut [0]).await
    };
    match knock.await {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
        _ => std::future::pending().await,
    }
}

/// Probes whether a process listens at that address.
pub(super) fn probe_peer(net: &Rc<Net>, addr: SocketAddr, peer: Peer) {
    let net = Rc::clone(net);
    tokio::task::spawn_local(async move {
        let route = relay::route(addr);
        if timeout(limits::HANDSHAKE, nobody_listens(route))
            .await
            .is_ok()
        {
            net.handle(Event::Gone(peer));
        }
    });
}

// --------------------------------------------------------------------------------------------------------- being dialled

/// Number of callers that are answered before other tasks of this thread have their turn. Too small: callers wait. Too
/// large: a crowd of callers delays everything else.
const CALLERS_IN_A_ROW: usize = 16;

/// Lets in who may come in.
pub(super) async fn accept(net: Rc<Net>) {
    let mut in_a_row = 0;
    while let Some(incoming) = net.endpoint.accept().await {
        receive(&net, incoming);
        in_a_row += 1;
        if in_a_row == CALLERS_IN_A_ROW {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn receive(net: &Rc<Net>, incoming: Incoming) {
    let addr = incoming.remote_address();
    let caller = Caller {
        source: addr.ip(),
        is_proven: incoming.remote_address_validated(),
    };
    let reception = {
        let mut driver = net.driver.borrow_mut();
        let crowd = Crowd {
            connections: net.endpoint.open_connections(),
            ..driver.crowd
        };
        driver.sources.receive(caller, crowd, Instant::now())
    };
    match reception {
        Reception::Begin => {
            let under_way = UnderWay::begin(net, caller.is_proven);
            tokio::task::spawn_local(let_in(Rc::clone(net), incoming, under_way));
        }
        // Cannot fail: a caller that is not proven has had no retry.
        Reception::Prove => drop(incoming.retry()),
        Reception::Refuse(why) => {
            complain(net, addr, why);
            incoming.refuse();
        }
    }
}

/// A handshake that has begun and not come to its end.
struct UnderWay {
    net: Rc<Net>,
    is_proven: bool,
}

impl UnderWay {
    fn begin(net: &Rc<Net>, is_proven: bool) -> UnderWay {
        let under_way = UnderWay {
            net: Rc::clone(net),
            is_proven,
        };
        under_way.count(|handshakes| *handshakes += 1);
        under_way
    }

    fn count(&self, change: impl FnOnce(&mut usize)) {
        // The thread may be on its way out.
        let Ok(mut driver) = self.net.driver.try_borrow_mut() else {
            return;
        };
        let Crowd {
            unproven, proven, ..
        } = &mut driver.crowd;
        change(if self.is_proven { proven } else { unproven });
        let all = *unproven + *proven;
        driver.traffic.unfinished.store(all, Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.count(|handshakes| *handshakes = handshakes.saturating_sub(1));
    }
}

/// Logs that a caller was refused.
fn complain(net: &Rc<Net>, addr: SocketAddr, why: &str) {
    let driver = net.driver.borrow();
    driver.progress.refused(format!("{addr}: {why}"));
    repeats::warn("refused a connection", addr.ip(), why);
}

async fn let_in(net: Rc<Net>, incoming: Incoming, _under_way: UnderWay) {
    let addr = incoming.remote_address();
    let outcome = match timeout(limits::HANDSHAKE, greet(&net, incoming)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::Permanent("it did not greet in time".into())),
    };
    match outcome {
        Ok(()) | Err(Failure::Crossed(_)) => {}
        // The caller went away by itself: mostly because another connection between the two was faster.
        Err(Failure::Silence(why)) => tracing::debug!(%addr, "a caller went away: {why}"),
        Err(failure) => complain(&net, addr, failure.text()),
    }
}

/// The answer to a greeting.
enum GreetingVerdict {
    Welcome(Identity, u64, Greeting),
    Watch(Greeting),
    No(Failure, Refusal),
}

async fn greet(net: &Rc<Net>, incoming: Incoming) -> Result<(), Failure> {
    let called_at = incoming.local_ip();
    let connection = incoming.accept()?.await?;
    let (mut send, mut recv) = connection.accept_bi().await?;
    let (greeting, frames) = match read_greeting(&mut recv).await {
        Ok(greeting) => greeting,
        Err(failure) => {
            let reason = match &failure {
                Failure::Permanent(text) if text.contains("version") => Reason::Version,
                _ => Reason::Malformed,
            };
            decline(&connection, send, Refusal::new(reason, failure.text())).await;
            return Err(failure);
        }
    };
    let hello = match greeting {
        Greeting::Hello(hello) => hello,
        Greeting::Refused(refusal) => return Err(refusal.into()),
    };
    let verdict = net.turn(|driver, now| {
        if let (Some(ip), Ok(())) = (called_at, driver.door.check(&hello, driver.me())) {
            driver.dialled_at(now, ip);
        }
        judge(driver, &hello)
    });
    match verdict {
        GreetingVerdict::No(failure, refusal) => {
            decline(&connection, send, refusal).await;
            Err(failure)
        }
        GreetingVerdict::Welcome(identity, epoch, answer) => {
            write_greeting(&mut send, &answer).await?;
            net.turn(|driver, now| {
                driver.establish(net, now, identity, epoch, connection, (send, recv), frames);
            });
            Ok(())
        }
        GreetingVerdict::Watch(answer) => {
            write_greeting(&mut send, &answer).await?;
            let serving = observer::serve(Rc::clone(net), connection, (send, recv), frames);
            tokio::task::spawn_local(serving);
            Ok(())
        }
    }
}

/// Refuses a greeting, and gives the other side time to hear it.
async fn decline(connection: &Connection, mut send: SendStream, refusal: Refusal) {
    let text = refusal.text.clone();
    let say = async {
        if write_greeting(&mut send, &Greeting::Refused(refusal))
            .await
            .is_ok()
        {
            let _ = send.finish();
            connection.closed().await;
        }
    };
    let _ = timeout(limits::GOODBYE, say).await;
    connection.close(Close::Refused.code(), text.as_bytes());
}

fn judge(driver: &mut Driver, hello: &Hello) -> GreetingVerdict {
    let no = |failure: Failure, refusal: Refusal| GreetingVerdict::No(failure, refusal);
    let who = |text: &str| format!("{}: {text}", hello.identity.name);
    if let Err(objection) = driver.door.check(hello, driver.me()) {
        let failure = match objection.reason {
            // The way in which a node finds out that it is on the list itself.
            Reason::Yourself => Failure::Crossed(0),
            _ => Failure::Permanent(who(&objection.here)),
        };
        return no(failure, objection.refusal());
    }
    if driver.is_over() {
        let text = "the pool is about to end";
        return no(Failure::Crossed(0), Refusal::new(Reason::Leaving, text));
    }
    let me = driver.me().clone();
    if hello.meant.is_some_and(|meant| meant != me.peer) {
        let text = "the node that was called is not here any more";
        return no(
            Failure::Crossed(0),
            Refusal::new(Reason::SomebodyElse, text),
        );
    }
    let peer = hello.identity.peer;
    if hello.role == Role::Observer {
        return GreetingVerdict::Watch(Greeting::Hello(Box::new(driver.door.hello(me, 0, None))));
    }
    if driver.node.view().len() >= limits::PEERS && !driver.node.view().is_alive(peer) {
        let text = format!("a pool has at most {} nodes", limits::PEERS);
        return no(
            Failure::Refused(Reason::Busy, who(&text)),
            Refusal::new(Reason::Busy, text),
        );
    }
    let crossed = |epoch| {
        let mut refusal = Refusal::new(
            Reason::Crossed,
            "another connection between the two goes before this one",
        );
        refusal.epoch = epoch;
        no(Failure::Crossed(0), refusal)
    };
    if let Some(link) = driver.links.get(&peer)
        && link.epoch / 2 >= hello.epoch / 2
    {
        return crossed(driver.epoch_of(peer.id));
    }
    let calling = driver.dials.get(&hello.identity.addr);
    if let Some(proposed) = calling.and_then(|dial| dial.proposed)
        && me.peer.id < peer.id
    {
        return crossed(proposed.max(driver.epoch_of(peer.id)));
    }
    if let Some(warning) = driver.door.other_command_line(hello) {
        repeats::warn("another command line", &hello.identity.name, warning);
    }
    let epoch = driver.settle_epoch(peer.id, hello.epoch);
    let answer = Greeting::Hello(Box::new(driver.door.hello(me, epoch, Some(peer))));
    GreetingVerdict::Welcome(hello.identity.clone(), epoch, answer)
}

/// Binds the socket of this node.
pub(super) fn bind(addr: SocketAddr) -> std::io::Result<std::net::UdpSocket> {
    socket::bind(addr)
}
