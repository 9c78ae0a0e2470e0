//! Plain sockets at both ends.

use std::{net::UdpSocket, time::Duration, time::Instant};

use super::*;

/// Two ends in two sites, and the relay that the first uses. The second knows the first by the address it saw.
struct Path {
    wan: Wan,
    near: UdpSocket,
    far: UdpSocket,
}

/// Long enough for anything that is still to come.
const PATIENCE: Duration = Duration::from_secs(10);

impl Path {
    fn new(link: WanLink) -> Path {
        let wan = Wan::start(link).expect("started");
        let end = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            socket.set_read_timeout(Some(PATIENCE)).expect("set");
            socket
        };
        let (near, far) = (end(), end());
        let target = far.local_addr().expect("bound");
        let relay = wan.relay("a", "b", target).expect("a relay");
        near.connect(relay).expect("connected");
        Path { wan, near, far }
    }

    /// Sends numbered datagrams of that size, `at_once` of them at a time, and returns the numbers that come at the far
    /// end. (Datagrams that the sockets cannot hold would be lost too, so not too many at a time.)
    fn stream(&self, count: u32, size: usize, at_once: u32) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut bytes = vec![0; size];
        let mut buffer = [0; 2048];
        for first in (0..count).step_by(at_once as usize) {
            let before = self.wan.traffic("a", "b");
            let batch = first..count.min(first + at_once);
            for number in batch.clone() {
                bytes[..4].copy_from_slice(&number.to_be_bytes());
                self.near.send(&bytes).expect("sent");
            }
            for _ in 0..self.settle(&before, batch.len() as u32) {
                let length = self.far.recv(&mut buffer).expect("a datagram");
                assert_eq!(length, size);
                numbers.push(u32::from_be_bytes(buffer[..4].try_into().expect("four")));
            }
        }
        numbers
    }

    /// Waits until the relay has decided on `count` more datagrams, and returns how many of them will arrive.
    fn settle(&self, before: &LinkTraffic, count: u32) -> u64 {
        let began = Instant::now();
        loop {
            let now = self.wan.traffic("a", "b");
            let (arriving, lost) = (now.datagrams - before.datagrams, now.lost - before.lost);
            if arriving + lost >= u64::from(count) {
                return arriving;
            }
            assert!(began.elapsed() < PATIENCE, "the relay stands still");
            std::thread::yield_now();
        }
    }

    fn ping(&self) -> Duration {
        let began = Instant::now();
        self.near.send(b"ping").expect("sent");
        let mut buffer = [0; 16];
        let (length, from) = self.far.recv_from(&mut buffer).expect("a ping");
        assert_eq!(&buffer[..length], b"ping");
        self.far.send_to(b"pong", from).expect("answered");
        let length = self.near.recv(&mut buffer).expect("a pong");
        assert_eq!(&buffer[..length], b"pong");
        began.elapsed()
    }
}

#[test]
fn a_round_trip_takes_as_long_as_it_is_said_to() {
    let rtt = Duration::from_millis(20);
    let path = Path::new(WanLink {
        rtt,
        ..WanLink::default()
    });
    let mut pings: Vec<_> = (0..20).map(|_| path.ping()).collect();
    pings.sort();
    assert!(pings[0] >= rtt, "{pings:?}");
    // On a quiet machine the median is 0.1 ms above; other tests run beside this one.
    assert!(pings[10] < rtt + Duration::from_millis(5), "{pings:?}");
}

#[test]
fn without_a_delay_it_is_a_plain_relay() {
    let path = Path::new(WanLink::default());
    assert!(path.ping() < PATIENCE);
    assert_eq!(path.stream(200, 1200, 32), (0..200).collect::<Vec<_>>());
}

#[test]
fn as_much_is_lost_as_it_is_said_to() {
    let path = Path::new(WanLink {
        loss: 0.1,
        ..WanLink::default()
    });
    let came = path.stream(5000, 64, 32).len();
    // Four standard deviations are 85.
    assert!((4400..4600).contains(&came), "{came} of 5000 came");
    assert_eq!(path.wan.traffic("a", "b").lost as usize, 5000 - came);
}

#[test]
fn jitter_keeps_the_order() {
    let path = Path::new(WanLink {
        rtt: Duration::from_millis(10),
        jitter: Duration::from_millis(5),
        ..WanLink::default()
    });
    let pings: Vec<_> = (0..30).map(|_| path.ping()).collect();
    let (least, most) = (pings.iter().min(), pings.iter().max());
    let spread = most.zip(least).map(|(most, least)| *most - *least);
    assert!(spread > Some(Duration::from_millis(2)), "{pings:?}");
    assert_eq!(path.stream(500, 64, 32), (0..500).collect::<Vec<_>>());
}

#[test]
fn a_rate_is_kept_and_its_queue_has_an_end() {
    let path = Path::new(WanLink {
        rate: Some(10_000_000),
        ..WanLink::default()
    });
    // 50 datagrams of 1,250 bytes with their headers are half a megabit: 50 ms.
    let began = Instant::now();
    let came = path.stream(50, 1250 - HEADERS, 50);
    assert_eq!(came.len(), 50);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(49), "{took:?}");
    // 80 of them at once do not fit in the queue of 50 ms, which holds 62,500 bytes.
    let came = path.stream(240, 1250 - HEADERS, 80).len();
    assert!((150..240).contains(&came), "{came} of 240 came");
}

#[test]
fn a_partition_stops_everything_and_healing_ends_it() {
    let path = Path::new(WanLink::default());
    path.ping();
    path.wan.partition("b", "a", Cut::Silence);
    assert!(path.stream(20, 64, 20).is_empty());
    let client = {
        // Datagrams from the node behind the relay do not come back either.
        path.wan.heal();
        path.near.send(b"hello").expect("sent");
        path.far.recv_from(&mut [0; 16]).expect("a datagram").1
    };
    path.wan.partition("a", "b", Cut::Silence);
    path.far.send_to(b"lost", client).expect("sent");
    let began = Instant::now();
    while path.wan.traffic("b", "a").lost == 0 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    path.wan.partition("a", "c", Cut::Silence);
    path.wan.heal();
    path.ping();
}

/// While a firewall rejects everything, a relay says what a machine says on which no process listens.
#[cfg(target_os = "linux")]
#[test]
fn a_firewall_rejects_until_its_partition_ends() {
    let path = Path::new(WanLink::default());
    path.ping();
    let rejected = |near: &UdpSocket| {
        near.send(b"anybody?").expect("sent");
        near.recv(&mut [0; 16]).map_err(|error| error.kind())
    };
    let refused = Err(io::ErrorKind::ConnectionRefused);
    path.wan.partition("b", "a", Cut::Silence);
    path.wan.partition("a", "b", Cut::Reject);
    assert_eq!(rejected(&path.near), refused);
    // A relay that is made now rejects as well.
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    near.set_read_timeout(Some(PATIENCE)).expect("set");
    let target = path.far.local_addr().expect("bound");
    near.connect(path.wan.relay("b", "a", target).expect("a relay"))
        .expect("connected");
    assert_eq!(rejected(&near), refused);
    path.wan.heal_between("a", "b", Cut::Reject);
    assert!(path.wan.is_cut("a", "b"));
    assert!(path.stream(20, 64, 20).is_empty(), "silence is left");
    path.wan.heal_between("b", "a", Cut::Silence);
    path.ping();
}

#[test]
fn links_change_at_run_time_and_pair_by_pair() {
    let path = Path::new(WanLink::default());
    let slow = WanLink {
        rtt: Duration::from_millis(40),
        ..WanLink::default()
    };
    path.wan.set_between("b", "c", slow);
    path.ping();
    path.wan.set_between("b", "a", slow);
    assert!(path.ping() >= slow.rtt);
    path.wan.set(WanLink {
        rtt: Duration::from_millis(15),
        ..slow
    });
    assert!(path.ping() >= Duration::from_millis(15));
}

#[test]
fn several_clients_each_get_their_own_answers() {
    let path = Path::new(WanLink::default());
    let relay = path.near.peer_addr().expect("connected");
    let clients: Vec<UdpSocket> = (0..10)
        .map(|number: u8| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            socket.set_read_timeout(Some(PATIENCE)).expect("set");
            socket.send_to(&[number], relay).expect("sent");
            socket
        })
        .collect();
    let mut buffer = [0; 16];
    for _ in &clients {
        let (length, from) = path.far.recv_from(&mut buffer).expect("a datagram");
        path.far.send_to(&buffer[..length], from).expect("answered");
    }
    for (number, client) in clients.iter().enumerate() {
        let length = client.recv(&mut buffer).expect("an answer");
        assert_eq!(buffer[..length], [number as u8]);
    }
}

#[test]
fn a_node_that_is_not_there_is_silence() {
    let path = Path::new(WanLink::default());
    let gone = {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.local_addr().expect("bound")
    };
    let relay = path.wan.relay("a", "b", gone).expect("a relay");
    for _ in 0..10 {
        path.near.send_to(b"anybody?", relay).expect("sent");
    }
    path.ping();
}
