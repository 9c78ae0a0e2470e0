//! A flood of first flights from as many addresses as there are: on loopback every address of 127/8 can be a source.

use std::net::Ipv4Addr;

use rustls::{
    Side,
    crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
    quic::{ClientConnection, Keys, Version},
};

use super::*;

/// Addresses that begin a handshake, each once.
const SOURCES: u32 = 20_000;

/// Bytes of memory that a flood may cost. It took 312 MiB when each source got a handshake.
const MOST_MEMORY: u64 = 64 << 20;

/// A client's hello, as rustls writes it for QUIC.
fn client_hello() -> Vec<u8> {
    let tls = gullible_tls(super::super::credential::ALPN);
    let name = ServerName::try_from("satin").expect("a name");
    // The only transport parameter: initial_source_connection_id, which is empty.
    let params = vec![0x0f, 0];
    let connection = ClientConnection::new(Arc::new(tls), Version::V1, name, params);
    let mut hello = Vec::new();
    connection.expect("a client").write_hs(&mut hello);
    hello
}

/// A first flight with that name for its connection.
fn first_flight(hello: &[u8], name: [u8; 8]) -> Vec<u8> {
    const NUMBER: usize = 4;
    const TAG: usize = 16;
    const WHOLE: usize = 1200;
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("of TLS 1.3");
    let quic = suite.quic.expect("ring has it for QUIC");
    let keys = Keys::initial(Version::V1, suite, quic, &name, Side::Client).local;
    // Long header, initial, four bytes of packet number; version 1; the names, of which ours is empty; no token.
    let mut header = vec![0xc3, 0, 0, 0, 1, 8];
    header.extend(name);
    header.extend([0, 0]);
    let rest = WHOLE - header.len() - 2;
    header.extend((0x4000 | rest as u16).to_be_bytes());
    header.extend([0; NUMBER]);
    let mut payload = vec![0x06, 0];
    payload.extend((0x4000 | hello.len() as u16).to_be_bytes());
    payload.extend(hello);
    payload.resize(rest - NUMBER - TAG, 0);
    let tag = keys.packet.encrypt_in_place(0, &header, &mut payload);
    payload.extend(tag.expect("encrypted").as_ref());
    let at = header.len() - NUMBER;
    let (first, number) = header.split_at_mut(1);
    let sample = &payload[..keys.header.sample_len()];
    (keys.header)
        .encrypt_in_place(sample, &mut first[0], &mut number[at - 1..])
        .expect("encrypted");
    [header, payload].concat()
}

/// Sends a first flight from each source, as fast as they can be sent.
fn flood(to: SocketAddr) {
    let hello = client_hello();
    for source in 0..SOURCES {
        let [_, a, b, c] = (source + 256).to_be_bytes();
        let from = Ipv4Addr::new(127, a + 1, b, c);
        let socket = UdpSocket::bind((from, 0)).expect("every address of 127/8 is ours");
        let name = (u64::from(source) << 32 | 0x5a71).to_be_bytes();
        // Flights for which the node has no room are lost.
        let _ = socket.send_to(&first_flight(&hello, name), to);
    }
}

/// A figure of this process in bytes, as Linux tells it.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with(what));
    let figure = line.and_then(|line| line.split_whitespace().nth(1));
    figure
        .and_then(|kib| kib.parse::<u64>().ok())
        .expect("a figure")
        << 10
}

#[test]
fn a_flood_of_first_flights_costs_little_and_keeps_nobody_out() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: only Linux has all of 127/8");
    }
    let key = Key::new();
    let events = std::env::temp_dir().join(format!("satin-flood-{}.jsonl", std::process::id()));
    let first = start(Settings {
        events: Some(events.clone()),
        ..settings("founder", &key, None)
    });
    assert!(first.network.wait_until_in().expect("a pool"));
    let second = start(settings("second", &key, Some(first.addr())));
    assert!(!second.network.wait_until_in().expect("let in"));
    first.wait_for_nodes(2);
    // From here on the peak is counted anew.
    std::fs::write("/proc/self/clear_refs", "5").expect("it is our own");
    let before = memory("VmRSS");
    let to = first.addr();
    let attacker = std::thread::spawn(move || flood(to));
    let newcomer = start(settings("newcomer", &key, Some(to)));
    assert!(!newcomer.network.wait_until_in().expect("let in"));
    attacker.join().expect("no panic");
    first.wait_for_nodes(3);
    second.wait_for_nodes(3);
    let more = memory("VmHWM").saturating_sub(before);
    assert!(more < MOST_MEMORY, "the flood took {} MiB", more >> 20);
    let told = std::fs::read_to_string(&events).expect("the founder writes it");
    let _ = std::fs::remove_file(&events);
    assert!(!told.contains("dead"), "{told}");
    // The unfinished handshakes are gone, and so is the memory that they held.
    wait_for("the end of the handshakes", || {
        first.network.unfinished() == 0
    });
    first.is_unharmed(&key);
}

#[test]
fn a_first_flight_is_understood() {
    let key = Key::new();
    let node = founder(&key);
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let flight = first_flight(&client_hello(), *b"a flight");
    socket.send_to(&flight, node.addr()).expect("sent");
    let mut answer = [0; 2048];
    let length = socket.recv(&mut answer).expect("an answer");
    assert!(
        length >= 1200,
        "the first half of the handshake, in {length} bytes"
    );
    assert_eq!(node.network.noise(), 0);
}
