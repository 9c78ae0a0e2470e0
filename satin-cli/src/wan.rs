//! Slow links between sites, emulated on one machine without any privilege.
//!
//! A [relay](Wan::relay) is a UDP socket of the loopback interface. Datagrams that come in there go on to a node, and
//! the node's answers come back, each way with the delay, the loss and the rate of the [`WanLink`] between the two
//! sites. A node that dials relays instead of the nodes of other sites (see `satin_runtime::net::relay`) has all its
//! traffic with them emulated, and its traffic within the site untouched: protocols such as QUIC do not care about the
//! addresses that datagrams pass.
//!
//! Two threads do the work: the first receives and decides each datagram's fate, the second sends when its time has come.
//! The sender sleeps on a condition variable, whose timeouts are exact to some microseconds on Linux (event queues round
//! to milliseconds). The emulation does not know the contents of a datagram.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    hash::{BuildHasher, Hasher, RandomState},
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Registry, Token, Waker, unix::SourceFd};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

/// Properties of a link between two sites, for each direction by itself.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WanLink {
    /// The round trip; half of it each way.
    pub rtt: Duration,
    /// Bits a second, headers of IP and UDP included. Datagrams that come faster wait in a queue as long as a round trip
    /// (or [`QUEUE_MIN`]), and are lost beyond that.
    pub rate: Option<u64>,
    /// The share of datagrams that is lost, from 0 to 1.
    pub loss: f64,
    /// Largest variation of a datagram's delay, up or down. Datagrams keep their order, as on most real links: a
    /// datagram that would overtake waits.
    pub jitter: Duration,
}

/// The shortest queue in front of a link with a rate.
pub const QUEUE_MIN: Duration = Duration::from_millis(50);

/// Bytes of the headers of IP and UDP.
const HEADERS: usize = 28;

/// Number of clients of a relay that can get answers; datagrams of more clients are lost.
const FLOWS_MAX: usize = 4096;

/// The fate of datagrams between two sites that do not reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The datagrams are lost.
    Silence,
    /// The datagrams are lost, and a firewall says so: their sender hears (by ICMP) that no process listens. Only Linux names the
    /// sender of that answer. On other systems a node would take it for an answer of the other node's machine.
    Reject,
}

/// The traffic of a link, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkTraffic {
    /// Datagrams that arrived, or are on their way.
    pub datagrams: u64,
    /// Bytes in those datagrams, without headers.
    pub bytes: u64,
    /// Datagrams that were lost: by chance, in a full queue, or in a silent partition.
    pub lost: u64,
}

/// Emulated links, with their relays. Ends with the value.
pub struct Wan {
    shared: Arc<WanShared>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
}

struct WanShared {
    links: Mutex<WanLinks>,
    arrivals: Mutex<Arrivals>,
    departures: Mutex<DueDatagrams>,
    departure: Condvar,
}

/// The links that are not like all others are few, so a lock for all is enough: only one thread needs it often.
struct WanLinks {
    all: WanLink,
    by_pair: HashMap<(Arc<str>, Arc<str>), WanLink>,
    cut: Vec<(Arc<str>, Arc<str>, Cut)>,
    directions: BTreeMap<(Arc<str>, Arc<str>), usize>,
    state: Vec<Direction>,
    /// The sockets of relays, with the directions in which they send.
    doors: Vec<(usize, Arc<UdpSocket>)>,
    random: SmallRng,
}

struct Direction {
    from: Arc<str>,
    to: Arc<str>,
    link: WanLink,
    cut: Option<Cut>,
    /// The last bit of what was sent so far leaves then.
    busy_until: Instant,
    /// The arrival of the last datagram: later ones do not arrive before that.
    last: Instant,
    traffic: LinkTraffic,
}

#[derive(Default)]
struct Arrivals {
    new: Vec<DatagramRelay>,
    over: bool,
}

#[derive(Default)]
struct DueDatagrams {
    waiting: BinaryHeap<Reverse<DueDatagram>>,
    /// Number of datagrams so far: of those that are due at the same time the first goes first.
    number: u64,
    over: bool,
}

struct DueDatagram {
    due: Instant,
    number: u64,
    by: Arc<UdpSocket>,
    /// `None`: the socket is connected.
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
}

impl PartialEq for DueDatagram {
    fn eq(&self, other: &DueDatagram) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for DueDatagram {}
impl PartialOrd for DueDatagram {
    fn partial_cmp(&self, other: &DueDatagram) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DueDatagram {
    fn cmp(&self, other: &DueDatagram) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

struct DatagramRelay {
    socket: Arc<UdpSocket>,
    target: SocketAddr,
    /// Directions, as indices: there, and back.
    there: usize,
    back: usize,
    flows: HashMap<SocketAddr, Arc<UdpSocket>>,
}

/// A socket that we receive on.
#[derive(Clone)]
enum RelayPort {
    /// Clients of the relay send to the port.
    Relay(usize),
    /// The node behind the relay answers to that client here.
    Flow(usize, Arc<UdpSocket>, SocketAddr),
}

impl Wan {
    /// Links that all are like `link`, and no relay yet.
    ///
    /// # Errors
    /// If the system gives no event queue or thread.
    pub fn start(link: WanLink) -> io::Result<Wan> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let shared = Arc::new(WanShared {
            links: Mutex::new(WanLinks {
                all: link,
                by_pair: HashMap::new(),
                cut: Vec::new(),
                directions: BTreeMap::new(),
                state: Vec::new(),
                doors: Vec::new(),
                random: SmallRng::seed_from_u64(RandomState::new().build_hasher().finish()),
            }),
            arrivals: Mutex::default(),
            departures: Mutex::default(),
            departure: Condvar::new(),
        });
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let (receiving, sending) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            thread("wan-receive").spawn(move || receive(poll, &receiving))?,
            thread("wan-send").spawn(move || send(&sending))?,
        ];
        Ok(Wan {
            shared,
            waker,
            threads,
        })
    }

    /// A new relay by which the site `from` reaches the node at `target`, which is at the site `to`: the address to
    /// dial. Any number of nodes of the site may use it.
    ///
    /// # Errors
    /// If there is no more port or file.
    pub fn relay(&self, from: &str, to: &str, target: SocketAddr) -> io::Result<SocketAddr> {
        let socket = Arc::new(bind_door()?);
        let addr = socket.local_addr()?;
        let (there, back) = {
            let mut links = lock(&self.shared.links);
            let (there, back) = (links.direction(from, to), links.direction(to, from));
            links.doors.push((there, Arc::clone(&socket)));
            links.refresh();
            (there, back)
        };
        lock(&self.shared.arrivals).new.push(DatagramRelay {
            socket,
            target,
            there,
            back,
            flows: HashMap::new(),
        });
        self.waker.wake()?;
        Ok(addr)
    }

    /// Changes the properties of all links from now on. Datagrams under way arrive as they would have.
    pub fn set(&self, link: WanLink) {
        let mut links = lock(&self.shared.links);
        links.all = link;
        links.by_pair.clear();
        links.refresh();
    }

    /// The links between these two sites are like this from now on.
    pub fn set_between(&self, a: &str, b: &str, link: WanLink) {
        let mut links = lock(&self.shared.links);
        links.by_pair.insert((a.into(), b.into()), link);
        links.by_pair.insert((b.into(), a.into()), link);
        links.refresh();
    }

    /// No datagram leaves one of these sites for the other any more, until [`heal`](Wan::heal).
    pub fn partition(&self, a: &str, b: &str, cut: Cut) {
        let mut links = lock(&self.shared.links);
        links.cut.push((a.into(), b.into(), cut));
        links.refresh();
    }

    /// Does no datagram pass between these sites now?
    #[must_use]
    pub fn is_cut(&self, a: &str, b: &str) -> bool {
        lock(&self.shared.links).cut_between(a, b).is_some()
    }

    /// The end of one such partition between these sites; each of several has an end of its own.
    pub fn heal_between(&self, a: &str, b: &str, cut: Cut) {
        let mut links = lock(&self.shared.links);
        let mut cuts = links.cut.iter();
        if let Some(index) =
            cuts.position(|(one, other, kind)| (&**one, &**other, *kind) == (a, b, cut))
        {
            links.cut.remove(index);
        }
        links.refresh();
    }

    /// The end of all partitions.
    pub fn heal(&self) {
        let mut links = lock(&self.shared.links);
        links.cut.clear();
        links.refresh();
    }

    /// The traffic from one site to another so far.
    #[must_use]
    pub fn traffic(&self, from: &str, to: &str) -> LinkTraffic {
        let links = lock(&self.shared.links);
        let direction = links.directions.get(&(from.into(), to.into()));
        direction.map_or_else(LinkTraffic::default, |index| links.state[*index].traffic)
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        lock(&self.shared.arrivals).over = true;
        lock(&self.shared.departures).over = true;
        self.shared.departure.notify_all();
        let woken = self.waker.wake().is_ok();
        for thread in self.threads.drain(..) {
            // A thread that cannot be woken is left alone: it ends with the process.
            if woken {
                let _ = thread.join();
            }
        }
    }
}

impl WanLinks {
    fn direction(&mut self, from: &str, to: &str) -> usize {
        let pair: (Arc<str>, Arc<str>) = (from.into(), to.into());
        if let Some(index) = self.directions.get(&pair) {
            return *index;
        }
        let now = Instant::now();
        self.state.push(Direction {
            from: Arc::clone(&pair.0),
            to: Arc::clone(&pair.1),
            link: self.all,
            cut: None,
            busy_until: now,
            last: now,
            traffic: LinkTraffic::default(),
        });
        self.directions.insert(pair, self.state.len() - 1);
        self.refresh();
        self.state.len() - 1
    }

    /// Of a broken link behind a firewall that rejects, the firewall is heard.
    fn cut_between(&self, a: &str, b: &str) -> Option<Cut> {
        let cuts = self.cut.iter().filter(|(one, other, _)| {
            let pair = (&**one, &**other);
            pair == (a, b) || pair == (b, a)
        });
        cuts.map(|(_, _, cut)| *cut)
            .max_by_key(|cut| *cut == Cut::Reject)
    }

    fn refresh(&mut self) {
        let now = Instant::now();
        for index in 0..self.state.len() {
            let (from, to) = (&self.state[index].from, &self.state[index].to);
            let cut = self.cut_between(from, to);
            let pair = (Arc::clone(from), Arc::clone(to));
            let link = self.by_pair.get(&pair).copied().unwrap_or(self.all);
            let direction = &mut self.state[index];
            direction.cut = cut;
            if direction.link != link {
                direction.link = link;
                (direction.busy_until, direction.last) = (now, now);
            }
        }
        for (there, door) in &self.doors {
            // Loopback sockets do not fail at this. One that did would be as silent as a broken link.
            let _ = set_open(door, self.state[*there].cut != Some(Cut::Reject));
        }
    }

    /// The time at which a datagram of `bytes` bytes arrives, or `None` if it is lost.
    fn send(&mut self, direction: usize, bytes: usize, now: Instant) -> Option<Instant> {
        let direction = &mut self.state[direction];
        let due = direction.due(bytes, now, &mut self.random);
        match due {
            Some(_) => {
                direction.traffic.datagrams += 1;
                direction.traffic.bytes += bytes as u64;
            }
            None => direction.traffic.lost += 1,
        }
        due
    }
}

impl Direction {
    fn due(&mut self, bytes: usize, now: Instant, random: &mut SmallRng) -> Option<Instant> {
        let WanLink {
            rtt,
            rate,
            loss,
            jitter,
        } = self.link;
        if self.cut.is_some() || (loss > 0.0 && random.random_bool(loss.clamp(0.0, 1.0))) {
            return None;
        }
        let mut left = now;
        if let Some(rate) = rate {
            let begins = self.busy_until.max(now);
            if begins - now > rtt.max(QUEUE_MIN) {
                return None;
            }
            let bits = ((bytes + HEADERS) * 8) as f64;
            left = begins + Duration::from_secs_f64(bits / rate.max(1) as f64);
            self.busy_until = left;
        }
        let delay = rtt / 2;
        if jitter.is_zero() {
            return Some(left + delay);
        }
        let varied = match random.random_range(-1.0..=1.0_f64) {
            more if more >= 0.0 => delay + jitter.mul_f64(more),
            less => delay.saturating_sub(jitter.mul_f64(-less)),
        };
        self.last = self.last.max(left + varied);
        Some(self.last)
    }
}

/// Relays are at another address than nodes: what is said there, a firewall says and not a node's machine.
const FIREWALL: Ipv4Addr = match cfg!(target_os = "linux") {
    true => Ipv4Addr::new(127, 0, 0, 2),
    // Not all systems have more than one.
    false => Ipv4Addr::LOCALHOST,
};

/// The socket of a relay. A port that was not asked for would be lost when the socket is opened again (see [`set_open`]),
/// so the system is asked for one first, and then for that one.
fn bind_door() -> io::Result<UdpSocket> {
    loop {
        let addr = bind((FIREWALL, 0).into())?.local_addr()?;
        match bind(addr) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            outcome => return outcome,
        }
    }
}

/// A socket that is connected hears only the other end, here itself: what comes from others is for no socket, and the
/// system tells them so, as if none were there.
fn set_open(door: &UdpSocket, open: bool) -> io::Result<()> {
    match (open, door.peer_addr().is_err()) {
        (true, false) => Ok(rustix::net::connect_unspec(door)?),
        (false, true) => door.connect(door.local_addr()?),
        _ => Ok(()),
    }
}

fn bind(addr: SocketAddr) -> io::Result<UdpSocket> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // A burst must not be lost here, before the link has had its say. The system gives what it allows.
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = socket.set_send_buffer_size(BUFFER);
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

const BUFFER: usize = 4 << 20;

const WAKE: Token = Token(usize::MAX);

/// The longest datagram there is.
const DATAGRAM_MAX: usize = 65_535;

fn receive(mut poll: Poll, shared: &WanShared) {
    let mut relays: Vec<DatagramRelay> = Vec::new();
    let mut ports: Vec<RelayPort> = Vec::new();
    let mut events = Events::with_capacity(256);
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
            _ => {}
        }
        for event in &events {
            if event.token() == WAKE {
                let mut arrivals = lock(&shared.arrivals);
                if arrivals.over {
                    return;
                }
                for relay in arrivals.new.drain(..) {
                    ports.push(RelayPort::Relay(relays.len()));
                    let token = Token(ports.len() - 1);
                    if !register(poll.registry(), &relay.socket, token) {
                        ports.pop();
                        continue;
                    }
                    relays.push(relay);
                }
            } else if let Some(port) = ports.get(event.token().0).cloned() {
                drain(
                    &port,
                    &mut relays,
                    &mut ports,
                    poll.registry(),
                    &mut buffer,
                    shared,
                );
            }
        }
    }
}

fn register(registry: &Registry, socket: &UdpSocket, token: Token) -> bool {
    registry
        .register(
            &mut SourceFd(&socket.as_raw_fd()),
            token,
            Interest::READABLE,
        )
        .is_ok()
}

/// Takes everything that waits at a port.
fn drain(
    port: &RelayPort,
    relays: &mut [DatagramRelay],
    ports: &mut Vec<RelayPort>,
    registry: &Registry,
    buffer: &mut [u8],
    shared: &WanShared,
) {
    let mut departures = Vec::new();
    match port {
        RelayPort::Relay(index) => {
            let relay = &mut relays[*index];
            let socket = Arc::clone(&relay.socket);
            while let Some((length, client)) = next(|buffer| socket.recv_from(buffer), buffer) {
                let Some(flow) = relay.flow(*index, client, ports, registry) else {
                    continue;
                };
                let now = Instant::now();
                if let Some(due) = lock(&shared.links).send(relay.there, length, now) {
                    departures.push((due, flow, None, buffer[..length].to_vec()));
                }
            }
        }
        RelayPort::Flow(index, socket, client) => {
            let relay = &relays[*index];
            let receive = |buffer: &mut [u8]| socket.recv(buffer).map(|length| (length, *client));
            while let Some((length, client)) = next(receive, buffer) {
                let now = Instant::now();
                if let Some(due) = lock(&shared.links).send(relay.back, length, now) {
                    let by = Arc::clone(&relay.socket);
                    departures.push((due, by, Some(client), buffer[..length].to_vec()));
                }
            }
        }
    }
    if departures.is_empty() {
        return;
    }
    let mut queue = lock(&shared.departures);
    let first_due = |queue: &DueDatagrams| queue.waiting.peek().map(|first| first.0.due);
    let before = first_due(&queue);
    for (due, by, to, bytes) in departures {
        queue.number += 1;
        let number = queue.number;
        queue.waiting.push(Reverse(DueDatagram {
            due,
            number,
            by,
            to,
            bytes,
        }));
    }
    if first_due(&queue) != before {
        shared.departure.notify_one();
    }
}

impl DatagramRelay {
    /// The socket on which the node behind this relay answers to a client.
    fn flow(
        &mut self,
        index: usize,
        client: SocketAddr,
        ports: &mut Vec<RelayPort>,
        registry: &Registry,
    ) -> Option<Arc<UdpSocket>> {
        if let Some(flow) = self.flows.get(&client) {
            return Some(Arc::clone(flow));
        }
        if self.flows.len() >= FLOWS_MAX {
            return None;
        }
        let socket = bind((Ipv4Addr::LOCALHOST, 0).into()).ok()?;
        socket.connect(self.target).ok()?;
        let socket = Arc::new(socket);
        ports.push(RelayPort::Flow(index, Arc::clone(&socket), client));
        if !register(registry, &socket, Token(ports.len() - 1)) {
            ports.pop();
            return None;
        }
        self.flows.insert(client, Arc::clone(&socket));
        Some(socket)
    }
}

/// The next datagram that waits, if there is one.
fn next(
    mut receive: impl FnMut(&mut [u8]) -> io::Result<(usize, SocketAddr)>,
    buffer: &mut [u8],
) -> Option<(usize, SocketAddr)> {
    // Each error but the last is the answer to a datagram sent before (no process listens there): as many at most.
    for _ in 0..1024 {
        match receive(buffer) {
            Ok(datagram) => return Some(datagram),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(_) => {}
        }
    }
    None
}

fn send(shared: &WanShared) {
    // As exact as the clock: by default Linux lets threads sleep 50 microseconds longer to save wake-ups.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
    let mut queue = lock(&shared.departures);
    let mut due = Vec::new();
    loop {
        if queue.over {
            return;
        }
        let now = Instant::now();
        while let Some(Reverse(first)) = queue.waiting.peek()
            && first.due <= now
        {
            due.extend(queue.waiting.pop());
        }
        if !due.is_empty() {
            drop(queue);
            for Reverse(DueDatagram { by, to, bytes, .. }) in due.drain(..) {
                // A full buffer or a dead node loses datagrams, as everywhere.
                let _ = match to {
                    Some(to) => by.send_to(&bytes, to),
                    None => by.send(&bytes),
                };
            }
            queue = lock(&shared.departures);
            continue;
        }
        let wait = queue.waiting.peek().map(|first| first.0.due - now);
        queue = match wait {
            Some(wait) => {
                let woken = shared.departure.wait_timeout(queue, wait);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared
                .departure
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// Data under these locks cannot be left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
