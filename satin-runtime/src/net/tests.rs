//! Networks in one process, over real sockets: peers that get in, peers that do not, and the nodes that are in already.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, RecvStream, SendStream,
    crypto::rustls::QuicClientConfig,
};
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

mod flood;

use super::{
    Credential, ExitRule, Join, NetError, Network, Observer, Settings,
    door::Door,
    limits,
    link::{Link, write_large},
    observer::{Parting, SeenNode},
    settings::MemoryLimit,
    transport,
    watcher::{Watcher, Watching},
    wire::{self, Frames, Greeting, Hello, Reason, Refusal, Role},
};
use crate::{
    config::Config,
    job::ValueName,
    node::{Identity, Judgement, Message, NodeId, Peer, Policy, RepairMode},
    observe::{
        events,
        history::Gone,
        look::{Activity, NodeLook, WhyIdle},
        output::OutputUse,
        standing::{NodeInfo, Standing},
    },
    worker::Workers,
};

/// Longest wait of a test here: a test that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A credential file that goes with the test.
struct Key(PathBuf);

impl Key {
    fn new() -> Key {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "satin-net-{}-{}.pem",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        Credential::write_new(&path).expect("written");
        Key(path)
    }

    fn credential(&self) -> Credential {
        Credential::load(&self.0).expect("just written")
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A node: the network first, so that it goes first.
struct TestNode {
    network: Network,
    standing: Arc<Standing>,
    workers: Workers,
}

impl TestNode {
    fn addr(&self) -> SocketAddr {
        self.network.addr()
    }

    fn wait_for_nodes(&self, nodes: usize) {
        wait_for("the nodes", || self.standing.now().nodes == nodes);
    }

    fn wait_for_refusal(&self, what: &str) {
        wait_for(what, || {
            self.network
                .refusals()
                .iter()
                .any(|text| text.contains(what))
        });
    }

    /// Checks that the node still lets in nodes that belong to it.
    fn is_unharmed(&self, key: &Key) {
        let more = start(settings("guest", key, Some(self.addr())));
        assert!(!more.network.wait_until_in().expect("let in"));
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn settings(name: &str, key: &Key, join: Option<SocketAddr>) -> Settings {
    Settings {
        join: join.map(|addr| Join::Hosts(vec![addr.to_string()])),
        listen: None,
        advertise: None,
        site: "here".into(),
        credential: Some(key.0.clone()),
        pool: "tests".into(),
        nodes: 1,
        policy: Policy::Crs,
        judgement: Judgement::Learnt,
        name: name.into(),
        threads: 1,
        events: None,
        grace: Duration::from_secs(5),
        repair: RepairMode::Running,
        copy_every: Duration::ZERO,
        store: None,
        max_crashes: 3,
        give_up: None,
        time_limit: None,
        partition_wait: Duration::from_secs(30),
        drain_when: None,
        output: OutputUse::Own,
        exit: ExitRule::default(),
        memory: MemoryLimit::None,
        flow_data: 256 << 20,
        sources: crate::config::SettingSources::default(),
    }
}

fn start(settings: Settings) -> TestNode {
    try_start(settings).expect("a network")
}

fn try_start(settings: Settings) -> Result<TestNode, NetError> {
    let config = Config {
        threads: Some(1),
        ..Config::default()
    };
    let config = config.resolve().expect("settings");
    let workers = Workers::start(&config, || ()).expect("workers");
    let info = NodeInfo::alone(settings.name.clone(), settings.site.clone(), 1);
    let standing = Arc::new(Standing::new(info));
    let network = Network::start(settings, workers.gate(), Arc::clone(&standing), |_| ())?;
    Ok(TestNode {
        network,
        standing,
        workers,
    })
}

fn founder(key: &Key) -> TestNode {
    let node = start(settings("founder", key, None));
    assert!(
        node.network.wait_until_in().expect("a pool"),
        "it is master"
    );
    node
}

/// A founder and a second node, which know each other.
fn two_nodes(key: &Key) -> (TestNode, TestNode) {
    let first = founder(key);
    let second = start(settings("second", key, Some(first.addr())));
    second.network.wait_until_in().expect("let in");
    first.wait_for_nodes(2);
    second.wait_for_nodes(2);
    (first, second)
}

fn error_of(settings: Settings) -> String {
    match start(settings).network.wait_until_in() {
        Err(NetError::Failed(text)) => text,
        other => panic!("it was to be refused: {other:?}"),
    }
}

#[test]
fn two_tasks_of_a_batch_system_on_one_host_are_told_to_be_one() {
    let key = Key::new();
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let listen = other.local_addr().expect("bound");
    let told = |join| {
        let settings = Settings {
            join: Some(join),
            listen: Some(listen),
            ..settings("second", &key, None)
        };
        let config = Config {
            threads: Some(1),
            ..Config::default()
        };
        let workers = Workers::start(&config.resolve().expect("settings"), || ()).expect("workers");
        let info = NodeInfo::alone("second".into(), "here".into(), 1);
        let standing = Arc::new(Standing::new(info));
        match Network::start(settings, workers.gate(), standing, |_| ()) {
            Err(error @ NetError::Listen { .. }) => error.to_string(),
            other => panic!("the port is taken: {:?}", other.err()),
        }
    };
    assert!(told(Join::Slurm).contains("perhaps another step of this job"));
    assert!(!told(Join::Hosts(vec![listen.to_string()])).contains("srun"));
}

// ------------------------------------------------------------------------------------------------------------- strangers

/// A peer that speaks the protocol by hand.
struct Stranger {
    runtime: tokio::runtime::Runtime,
    endpoint: Endpoint,
    client: ClientConfig,
}

impl Stranger {
    fn new(client: ClientConfig) -> Stranger {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let endpoint = {
            let _inside = runtime.enter();
            Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket")
        };
        Stranger {
            runtime,
            endpoint,
            client,
        }
    }

    fn with(key: &Key) -> Stranger {
        Stranger::new(transport::client(&key.credential()))
    }

    async fn connect(&self, to: SocketAddr) -> Result<Connection, ConnectionError> {
        let connecting = self.endpoint.connect_with(self.client.clone(), to, "satin");
        connecting.expect("an address").await
    }

    /// Opens the control stream with these bytes and reads the answer.
    fn greet(
        &self,
        to: SocketAddr,
        greeting: &[u8],
    ) -> (Connection, SendStream, RecvStream, Greeting) {
        self.runtime.block_on(async {
            let connection = self.connect(to).await.expect("the handshake is in order");
            let (mut send, mut recv) = connection.open_bi().await.expect("a stream");
            send.write_all(greeting).await.expect("written");
            let mut frames = Frames::new(limits::GREETING);
            let answer = loop {
                if let Some(body) = frames.next_frame().expect("a frame") {
                    break Greeting::decode(body).expect("a greeting");
                }
                let chunk = recv.read_chunk(1 << 16, true).await.expect("an answer");
                frames.push(&chunk.expect("an answer").bytes);
            };
            (connection, send, recv, answer)
        })
    }

    fn refusal(&self, to: SocketAddr, greeting: &[u8]) -> Refusal {
        match self.greet(to, greeting).3 {
            Greeting::Refused(refusal) => refusal,
            Greeting::Hello(hello) => panic!("it was to be refused: {hello:?}"),
        }
    }

    fn reason_of_close(&self, connection: &Connection) -> String {
        let closed = async { tokio::time::timeout(PATIENCE, connection.closed()).await };
        self.runtime
            .block_on(closed)
            .expect("it is closed")
            .to_string()
    }
}

fn hello(id: u128, addr: SocketAddr) -> Hello {
    let identity = Identity {
        peer: NodeId(id).first_life(),
        name: "stranger".into(),
        site: "elsewhere".into(),
        addr,
        stamp: Identity::NOT_YET,
        threads: 1,
    };
    Door::new("tests".into(), false).hello(identity, 2, None)
}

fn nowhere() -> SocketAddr {
    ([127, 0, 0, 1], 9).into()
}

fn encode(hello: Hello) -> Vec<u8> {
    Greeting::Hello(Box::new(hello)).encode()
}

/// A verifier that accepts any certificate.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// TLS without a certificate, which accepts any.
fn gullible_tls(protocol: &[u8]) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    tls
}

/// A peer without a certificate, which accepts any.
fn without_certificate(protocol: &[u8]) -> Stranger {
    let quic = QuicClientConfig::try_from(gullible_tls(protocol)).expect("QUIC");
    Stranger::new(ClientConfig::new(Arc::new(quic)))
}

// ----------------------------------------------------------------------------------------------------------------- tests

/// A user who waits until a node tells its address, and then begins others, has them look into a file that names it.
#[test]
fn a_file_names_a_node_as_soon_as_it_says_where_it_is() {
    let key = Key::new();
    let file = key.0.with_extension("pool");
    let settings = Settings {
        listen: None,
        join: Some(Join::File(file.clone())),
        ..settings("one", &key, None)
    };
    let node = start(settings);
    let lines = std::fs::read_to_string(&file).expect("there");
    let line = format!("{}\n", node.addr());
    // The node may write there once more until it is gone.
    drop(node);
    let _ = std::fs::remove_file(&file);
    assert_eq!(lines, line);
}

#[test]
fn nodes_find_each_other_through_any_member_and_leave_again() {
    let key = Key::new();
    let first = founder(&key);
    let second = start(settings("second", &key, Some(first.addr())));
    assert!(!second.network.wait_until_in().expect("let in"));
    let third = start(settings("third", &key, Some(second.addr())));
    assert!(!third.network.wait_until_in().expect("let in"));
    for node in [&first, &second, &third] {
        node.wait_for_nodes(3);
        let info = node.standing.now();
        assert_eq!(info.master, "founder");
        assert_eq!(info.is_master, info.name == "founder");
    }
    drop(second);
    first.wait_for_nodes(2);
    third.wait_for_nodes(2);
    first.network.handle().end(7);
    assert_eq!(third.network.wait_until_over().expect("a regular end"), 0);
    assert_eq!(first.network.wait_until_over().expect("a regular end"), 7);
}

#[test]
fn many_nodes_at_once_become_one_pool() {
    let key = Key::new();
    let first = founder(&key);
    let others: Vec<TestNode> = (0..7)
        .map(|n| start(settings(&format!("n{n}"), &key, Some(first.addr()))))
        .collect();
    for other in &others {
        assert!(!other.network.wait_until_in().expect("let in"));
    }
    first.wait_for_nodes(8);
    others.iter().for_each(|other| other.wait_for_nodes(8));
    assert_eq!(first.network.refused(), 0, "{:?}", first.network.refusals());
}

#[test]
fn another_credential_is_refused_on_both_sides() {
    let (key, other) = (Key::new(), Key::new());
    let node = founder(&key);
    let text = error_of(settings("wrong", &other, Some(node.addr())));
    assert!(text.contains("do not hold the same credential"), "{text}");
    node.wait_for_refusal("do not hold the same credential");
    node.is_unharmed(&key);
}

#[test]
fn without_a_certificate_nobody_gets_past_the_handshake() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = without_certificate(super::credential::ALPN);
    let error = stranger.runtime.block_on(async {
        // The client's half of the handshake may be done before the server has looked at its certificate.
        match stranger.connect(node.addr()).await {
            Ok(connection) => connection.closed().await,
            Err(error) => error,
        }
    });
    assert!(
        matches!(error, ConnectionError::ConnectionClosed(_)),
        "{error}"
    );
    node.wait_for_refusal("do not hold the same credential");
    node.is_unharmed(&key);
}

#[test]
fn another_pool_is_refused_on_both_sides() {
    let key = Key::new();
    let node = founder(&key);
    let other = Settings {
        pool: "others".into(),
        ..settings("wrong", &key, Some(node.addr()))
    };
    let text = error_of(other);
    assert!(
        text.contains("belongs to the pool `tests`, and this one to `others`"),
        "{text}"
    );
    node.wait_for_refusal("wrong: it belongs to the pool `others`");
    node.is_unharmed(&key);
}

#[test]
fn another_program_or_build_is_refused() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let mut other = hello(1, nowhere());
    other.program[0] ^= 1;
    let refusal = stranger.refusal(node.addr(), &encode(other));
    assert_eq!(refusal.reason, Reason::Program);
    assert!(refusal.text.contains("another program"), "{}", refusal.text);
    node.wait_for_refusal("stranger: it runs another program");
    let mut other = hello(1, nowhere());
    other.executable[0] ^= 1;
    let refusal = stranger.refusal(node.addr(), &encode(other));
    assert_eq!(refusal.reason, Reason::Executable);
    assert!(
        refusal.text.contains("SATIN_MIXED_BUILDS=1"),
        "{}",
        refusal.text
    );
    node.wait_for_refusal("stranger: it runs another build");
    node.is_unharmed(&key);
}

#[test]
fn another_version_is_refused() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let mut greeting = encode(hello(1, nowhere()));
    greeting[4 + 5] = 238;
    let refusal = stranger.refusal(node.addr(), &greeting);
    assert_eq!(refusal.reason, Reason::Version);
    assert!(refusal.text.contains("version 238"), "{}", refusal.text);
    node.wait_for_refusal("it speaks version 238 of the protocol");
    // A version so new that it is another protocol for TLS.
    let newer = without_certificate(b"satin/2");
    let error = newer.runtime.block_on(newer.connect(node.addr()));
    assert!(
        matches!(error, Err(ConnectionError::ConnectionClosed(_))),
        "{error:?}"
    );
    node.wait_for_refusal("another version of Satin's protocol");
    node.is_unharmed(&key);
}

#[test]
fn who_calls_a_node_that_is_not_there_any_more_is_told_so() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let mut hello = hello(1, nowhere());
    hello.meant = Some(Peer {
        id: NodeId(77),
        generation: 3,
    });
    let refusal = stranger.refusal(node.addr(), &encode(hello));
    assert_eq!(refusal.reason, Reason::SomebodyElse);
    assert_eq!(node.network.refused(), 0, "it is nobody's fault");
}

#[test]
fn what_is_not_quic_is_dropped_and_counted() {
    let key = Key::new();
    let node = founder(&key);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for n in 0..50u8 {
        let noise: Vec<u8> = (0..=n).map(|byte| byte.wrapping_mul(n)).collect();
        socket.send_to(&noise, node.addr()).expect("sent");
    }
    wait_for("the noise", || node.network.noise() >= 50);
    node.is_unharmed(&key);
    assert_eq!(node.network.noise(), 50, "QUIC is no noise");
}

#[test]
fn a_frame_of_a_gigabyte_closes_the_connection_and_nothing_else() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let header = (1u32 << 30).to_le_bytes();
    let refusal = stranger.refusal(node.addr(), &header);
    assert_eq!(refusal.reason, Reason::Malformed);
    assert!(
        refusal.text.contains("a frame of 1073741824 bytes"),
        "{}",
        refusal.text
    );
    node.wait_for_refusal("a frame of 1073741824 bytes, where at most 262144");
    // And once it is in.
    let (connection, mut send, _recv, answer) =
        stranger.greet(node.addr(), &encode(hello(1, nowhere())));
    assert!(matches!(answer, Greeting::Hello(_)));
    stranger
        .runtime
        .block_on(send.write_all(&header))
        .expect("written");
    let reason = stranger.reason_of_close(&connection);
    assert!(reason.contains("a frame of 1073741824 bytes"), "{reason}");
    node.wait_for_refusal("a frame of 1073741824 bytes, where at most 16777216");
    node.is_unharmed(&key);
}

#[test]
fn nonsense_on_any_stream_closes_the_connection_with_a_reason() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    for (id, way) in [
        (1, "control"),
        (2, "large"),
        (3, "datagram"),
        (4, "message in a datagram"),
    ] {
        let (connection, mut send, _recv, _) =
            stranger.greet(node.addr(), &encode(hello(id, nowhere())));
        stranger.runtime.block_on(async {
            match way {
                "control" => send
                    .write_all(&[3, 0, 0, 0, 0xff, 0xff, 0xff])
                    .await
                    .expect("written"),
                "large" => {
                    let mut stream = connection.open_uni().await.expect("a stream");
                    stream.write_all(&[0xff; 100]).await.expect("written");
                    stream.finish().expect("open");
                }
                "datagram" => connection
                    .send_datagram(vec![0xff; 9].into())
                    .expect("sent"),
                _ => {
                    let goodbye = wire::encode(&Message::Goodbye);
                    connection.send_datagram(goodbye.into()).expect("sent");
                }
            }
        });
        let reason = stranger.reason_of_close(&connection);
        assert!(
            reason.contains("cannot be decoded")
                || reason.contains("ends in the middle")
                || reason.contains("out of bounds"),
            "{way}: {reason}"
        );
    }
    assert_eq!(node.network.refused(), 4);
    node.is_unharmed(&key);
}

#[test]
fn a_flood_of_handshakes_does_not_keep_others_out_for_long() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let many = 2 * limits::HANDSHAKES_AT_ONCE as usize;
    let refused = stranger.runtime.block_on(async {
        let mut attempts = tokio::task::JoinSet::new();
        for _ in 0..many {
            let connecting =
                stranger
                    .endpoint
                    .connect_with(stranger.client.clone(), node.addr(), "satin");
            attempts.spawn(async {
                match connecting.expect("an address").await {
                    Err(ConnectionError::ConnectionClosed(close)) => {
                        close.error_code == quinn::TransportErrorCode::CONNECTION_REFUSED
                    }
                    _ => false,
                }
            });
        }
        let mut refused = 0;
        while let Some(attempt) = attempts.join_next().await {
            refused += usize::from(attempt.expect("no panic"));
        }
        refused
    });
    // How many are refused depends on how fast the others prove their address (`door` has the limits); all are counted.
    wait_for("the count", || node.network.refused() >= refused as u64);
    node.is_unharmed(&key);
}

#[test]
fn a_newer_connection_takes_the_place_of_an_older_one() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let greet = |epoch: u64| {
        let mut hello = hello(1, nowhere());
        hello.epoch = epoch;
        stranger.greet(node.addr(), &encode(hello))
    };
    let (first, _send, _recv, answer) = greet(2);
    let Greeting::Hello(answer) = answer else {
        panic!("let in");
    };
    assert_eq!(answer.epoch / 2, 1);
    // The same number again: that is an old one that comes late.
    let Greeting::Refused(refusal) = greet(2).3 else {
        panic!("not let in");
    };
    assert_eq!(
        (refusal.reason, refusal.epoch),
        (Reason::Crossed, answer.epoch)
    );
    assert_eq!(first.close_reason(), None);
    let (second, _send, _recv, newer) = greet(refusal.epoch + 1);
    let Greeting::Hello(newer) = newer else {
        panic!("let in");
    };
    assert!(newer.epoch > answer.epoch);
    assert!(stranger.reason_of_close(&first).contains("took its place"));
    assert_eq!(second.close_reason(), None);
    assert_eq!(node.network.refused(), 0);
}

/// The sending side of a connection by which a stranger was let in.
fn link_to(node: &TestNode, stranger: &Stranger) -> (Connection, Link, RecvStream) {
    let hello = hello(1, nowhere());
    let identity = hello.identity.clone();
    let (connection, send, recv, _) = stranger.greet(node.addr(), &encode(hello));
    let now = std::time::Instant::now();
    let link = Link::new(
        identity,
        2,
        connection.clone(),
        send,
        now,
        &std::rc::Rc::default(),
    );
    (connection, link, recv)
}

#[test]
fn a_connection_is_closed_if_too_much_waits_and_nothing_is_taken() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let (connection, mut link, _recv) = link_to(&node, &stranger);
    let now = std::time::Instant::now();
    let part = |length: usize| Message::Part {
        name: ValueName([7; 32]),
        offset: 0,
        total: 0,
        bytes: vec![0; length],
    };
    let late = |seconds: u64| now + limits::IDLE + Duration::from_secs(seconds);
    let fill = 2 * limits::WAITING / (1 << 20);
    (0..fill).for_each(|_| link.send(&part(1 << 20)));
    assert!(!link.is_stuck(now), "the node is given time to take it");
    // The node reads: that it takes something counts, however much waits.
    let body = link.next_large().expect("a part");
    stranger.runtime.block_on(async {
        let written = write_large(&connection, body, &link.traffic).await;
        written.expect("it is read");
    });
    assert!(!link.is_stuck(late(1)));
    assert!(!link.is_stuck(late(2)));
    assert!(link.is_stuck(late(1) + limits::IDLE + Duration::from_secs(1)));
    while link.waiting() > limits::WAITING {
        link.next_large();
        link.traffic.under_way.set(0);
    }
    assert!(!link.is_stuck(late(60)));
}

#[test]
fn a_message_that_was_packed_for_a_slow_link_is_understood() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let (connection, mut link, _recv) = link_to(&node, &stranger);
    link.traffic.note_rate(1e3);
    for fill in [7, 8] {
        link.send(&Message::Trial(vec![fill; 1 << 20]));
        let body = link.next_large().expect("a large message");
        let bytes_before = connection.stats().udp_tx.bytes;
        stranger.runtime.block_on(async {
            let written = write_large(&connection, body, &link.traffic).await;
            written.expect("it is read");
        });
        let bytes = connection.stats().udp_tx.bytes - bytes_before;
        assert!(bytes < 100_000, "a megabyte took {bytes} bytes");
    }
    assert_eq!(connection.close_reason(), None, "it was understood");
}

#[test]
fn a_broken_connection_is_made_again_and_nobody_dies_of_it() {
    let key = Key::new();
    let (first, second) = {
        let first = founder(&key);
        let second = start(settings("second", &key, Some(first.addr())));
        assert!(!second.network.wait_until_in().expect("let in"));
        (first, second)
    };
    first.wait_for_nodes(2);
    assert_eq!(first.network.connections(), 1);
    // A stranger takes the second node's place, and hangs up.
    let stranger = Stranger::with(&key);
    let mut hello = hello(second.standing.now().id, second.addr());
    hello.epoch = 100;
    let (connection, _send, _recv, answer) = stranger.greet(first.addr(), &encode(hello));
    assert!(matches!(answer, Greeting::Hello(_)));
    connection.close(0u32.into(), b"bye");
    stranger.runtime.block_on(stranger.endpoint.wait_idle());
    wait_for("a new connection", || first.network.connections() >= 3);
    wait_for("a new connection", || second.network.connections() >= 2);
    for node in [&first, &second] {
        assert_eq!(node.standing.now().nodes, 2);
    }
    first.network.handle().end(0);
    assert_eq!(second.network.wait_until_over().expect("a regular end"), 0);
}

#[test]
fn a_node_that_finds_no_pool_gives_up_when_it_is_told_to() {
    let key = Key::new();
    let text = error_of(Settings {
        give_up: Some(Duration::from_millis(1)),
        ..settings("lonely", &key, Some(nowhere()))
    });
    assert!(text.contains("--give-up, SATIN_GIVE_UP"), "{text}");
    assert!(text.contains(&nowhere().to_string()), "{text}");
}

#[test]
fn a_node_whose_pool_has_no_address_gives_up_when_it_is_told_to() {
    let key = Key::new();
    let started = try_start(Settings {
        give_up: Some(Duration::from_millis(1)),
        join: Some(Join::Hosts(vec!["nowhere.invalid:7777".into()])),
        ..settings("lonely", &key, None)
    });
    let text = started.err().expect("it has no address").to_string();
    assert!(text.contains("--give-up, SATIN_GIVE_UP"), "{text}");
}

// --------------------------------------------------------------------------------------------------------------- observers

fn observer(key: &Key, pool: &str, at: SocketAddr) -> Observer {
    let join = Join::Hosts(vec![at.to_string()]);
    Observer::new(join, &key.0, (!pool.is_empty()).then_some(pool)).expect("an observer")
}

#[test]
fn an_observer_sees_who_is_in_and_takes_no_part() {
    let key = Key::new();
    let (first, second) = two_nodes(&key);
    // Any node will do.
    for at in [first.addr(), second.addr()] {
        let pool = observer(&key, "tests", at).status().expect("an answer");
        assert_eq!(pool.name, "tests");
        let seen = pool.nodes;
        let names: Vec<_> = seen
            .iter()
            .map(|seen| (&*seen.name, seen.is_master, seen.is_leaving))
            .collect();
        assert_eq!(names, [("founder", true, false), ("second", false, false)]);
        assert_eq!(seen[1].addr, second.addr());
    }
    assert_eq!(first.standing.now().nodes, 2);
}

#[test]
fn an_observer_needs_the_credential_and_the_name_of_the_pool() {
    let (key, other) = (Key::new(), Key::new());
    let first = founder(&key);
    let error = |observer: Observer| observer.status().expect_err("refused").to_string();
    let text = error(observer(&other, "tests", first.addr()));
    assert!(text.contains("SATIN_CREDENTIAL"), "{text}");
    let text = error(observer(&key, "others", first.addr()));
    assert!(text.contains("belongs to the pool `tests`"), "{text}");
    let text = error(observer(&key, "tests", nowhere()));
    assert!(text.contains("no process listens there"), "{text}");
    // Who gives no name means whatever runs there.
    let pool = observer(&key, "", first.addr()).status().expect("let in");
    assert_eq!(pool.name, "tests");
}

#[test]
fn an_observer_hears_what_nodes_have_counted() {
    let key = Key::new();
    let first = founder(&key);
    let observer = observer(&key, "tests", first.addr());
    let mut nodes = observer.status().expect("an answer").nodes;
    nodes.push(SeenNode {
        addr: nowhere(),
        ..nodes[0].clone()
    });
    let figures = observer.figures(&nodes);
    let own = figures[0].expect("an answer");
    assert_eq!(own.threads, 1);
    assert!(own.seconds > 0.0 && own.idle_s <= own.seconds, "{own:?}");
    assert_eq!(figures[1], None, "nobody is there");
    let later = observer.figures(&nodes)[0].expect("an answer");
    assert!(later.seconds > own.seconds && later.idle_s >= own.idle_s);
}

#[test]
fn an_observer_ends_the_pool() {
    let key = Key::new();
    let (first, second) = two_nodes(&key);
    // Any node knows which one to ask.
    let observer = observer(&key, "", second.addr());
    assert_eq!(observer.stop().expect("it ends").name, "founder");
    assert_eq!(first.network.wait_until_over().expect("a good end"), 143);
    assert_eq!(second.network.wait_until_over().expect("a good end"), 0);
    assert!(observer.stop().is_err(), "nobody is left");
}

#[test]
fn a_node_ends_when_its_time_is_over_in_its_pool_or_outside() {
    let key = Key::new();
    let join = Some(nowhere());
    for (name, join) in [("founder", None), ("outside", join)] {
        let node = start(Settings {
            time_limit: Some(Duration::from_millis(50)),
            ..settings(name, &key, join)
        });
        let over = node.network.wait_until_over().expect("a good end");
        assert_eq!(over, 124, "{name}");
    }
}

#[test]
fn a_node_that_an_observer_asks_to_leave_leaves() {
    let key = Key::new();
    let first = founder(&key);
    let second = start(settings("second", &key, Some(first.addr())));
    second.network.wait_until_in().expect("let in");
    first.wait_for_nodes(2);
    let observer = observer(&key, "tests", first.addr());
    let nodes = observer.status().expect("an answer").nodes;
    let mut steps = Vec::new();
    observer
        .drain(&nodes[1..], None, |seen, departure| {
            steps.push((seen.name.clone(), departure));
        })
        .expect("it leaves");
    let step = |departure| ("second".to_owned(), departure);
    assert_eq!(steps, [step(Parting::Leaving), step(Parting::Left)]);
    assert_eq!(second.network.wait_until_over().expect("a good end"), 0);
    first.wait_for_nodes(1);
    // No node is left to take over from the master.
    let error = observer
        .drain(&nodes[..1], None, |_, _| ())
        .expect_err("it stays");
    assert!(
        error
            .to_string()
            .starts_with("founder stays: it runs `main`"),
        "{error}"
    );
    assert!(first.network.is_master());
}

#[test]
fn an_observer_that_says_nonsense_is_hung_up_on() {
    let key = Key::new();
    let node = founder(&key);
    let stranger = Stranger::with(&key);
    let mut greeting = hello(7, nowhere());
    greeting.role = Role::Observer;
    let (connection, mut send, _recv, answer) = stranger.greet(node.addr(), &encode(greeting));
    assert!(matches!(answer, Greeting::Hello(_)));
    let nonsense = [&3u32.to_le_bytes()[..], &[9, 9, 9]].concat();
    stranger
        .runtime
        .block_on(send.write_all(&nonsense))
        .expect("written");
    let reason = stranger.reason_of_close(&connection);
    assert!(reason.contains("cannot be decoded"), "{reason}");
    assert!(node.network.is_master(), "and nothing else happened");
}

/// What a watcher has told, in order, and the latest of each node.
#[derive(Default, Clone)]
struct Told(Arc<Mutex<ToldSoFar>>);

#[derive(Default)]
struct ToldSoFar {
    names: Vec<String>,
    looks: BTreeMap<String, Vec<NodeLook>>,
    gone: Vec<(String, Gone)>,
}

impl Told {
    /// Waits until it is so.
    fn until(&self, what: &str, is_so: impl Fn(&ToldSoFar) -> bool) {
        let since = Instant::now();
        while !is_so(&self.0.lock().expect("no panic")) {
            assert!(since.elapsed() < Duration::from_secs(60), "never: {what}");
            std::thread::yield_now();
        }
    }
}

impl Watching for Told {
    fn nodes(&mut self, pool: &str, nodes: &[SeenNode], _: u64) {
        assert_eq!(pool, "tests");
        let names = nodes.iter().map(|node| node.name.clone());
        self.0.lock().expect("no panic").names = names.collect();
    }

    fn look(&mut self, node: &SeenNode, look: NodeLook, _: i64) {
        let mut told = self.0.lock().expect("no panic");
        told.looks.entry(node.name.clone()).or_default().push(look);
    }

    fn gone(&mut self, node: &SeenNode, how: Gone, _: u64) {
        let mut told = self.0.lock().expect("no panic");
        if how != Gone::Silent {
            told.gone.push((node.name.clone(), how));
        }
    }

    fn lost(&mut self, _: &str, _: u64) {}
}

#[test]
fn a_watcher_sees_what_workers_do_what_happens_and_who_leaves_at_its_word() {
    let key = Key::new();
    let (first, second) = two_nodes(&key);
    let told = Told::default();
    let join = Join::Hosts(vec![second.addr().to_string()]);
    let watcher = Watcher::start(join, &key.0, Some("tests"), told.clone()).expect("it can look");
    let idle_spans = |looks: &[NodeLook]| {
        let spans = looks.iter().flat_map(|look| &look.spans);
        let idle = spans.filter(|span| span.length_ms > 0 && span.activity != Activity::Run);
        idle.count()
    };
    told.until("both nodes are seen to be idle", |told| {
        let looks = ["founder", "second"].map(|name| told.looks.get(name));
        told.names == ["founder", "second"]
            && (looks.iter()).all(|looks| looks.is_some_and(|looks| idle_spans(looks) > 0))
    });
    told.until(
        "the master tells that the second joined, once",
        |told| match told.looks.get("founder") {
            None => false,
            Some(looks) => {
                let events = looks.iter().flat_map(|look| &look.events);
                let joined = |record: &&events::Record| {
                    record.name == "second" && matches!(record.event, events::Event::Joined { .. })
                };
                events.filter(joined).count() == 1
            }
        },
    );
    {
        let told = told.0.lock().expect("no panic");
        let last = told.looks["founder"].last().expect("a look");
        assert_eq!(last.why_idle, [Some(WhyIdle::NoRootJob)]);
        assert!(last.figures.seconds > 0.0);
        let with_others = last.sites.iter().find(|traffic| traffic.site == "here");
        assert!(
            with_others.is_some_and(|traffic| traffic.bytes_sent > 0),
            "{:?}",
            last.sites
        );
    }
    let steering = watcher.handle();
    let error = steering
        .drain(vec!["third".into()])
        .expect_err("nobody is called so");
    assert_eq!(error, "no node of the pool is called `third`");
    steering
        .drain(vec!["second".into()])
        .expect("it is asked to leave");
    told.until("the second has left", |told| {
        told.gone == [("second".to_owned(), Gone::Left)]
    });
    assert_eq!(second.network.wait_until_over().expect("a good end"), 0);
    drop(watcher);
    assert!(steering.drain(vec!["founder".into()]).is_err());
    first.wait_for_nodes(1);
}

/// Each step lets the worker fall idle: that is news for the very turn in which the node answers a look.
#[test]
fn every_look_is_answered_while_workers_begin_and_end() {
    let key = Key::new();
    let node = founder(&key);
    let join = Join::Hosts(vec![node.addr().to_string()]);
    let observer = Observer::new(join, &key.0, Some("tests")).expect("it can look");
    let pool = observer.status().expect("it is there");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| (0..300).all(|_| observer.figures(&pool.nodes)[0].is_some()));
        while !looks.is_finished() {
            runtime.block_on(node.workers.spawn(|| ()));
        }
        assert!(looks.join().expect("no panic"), "a look was not answered");
    });
}
