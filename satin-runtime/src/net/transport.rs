//! How QUIC is set up.

use std::{sync::Arc, time::Duration};

use quinn::{
    AckFrequencyConfig, ClientConfig, EndpointConfig, ServerConfig, TransportConfig, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};

use super::{
    credential::{Credential, STORE_ALPN},
    limits,
    socket::Names,
};

/// Bytes that one stream may have under way: a gigabit a second over 100 milliseconds, and some.
const STREAM_WINDOW: u32 = 16 << 20;
/// Bytes that one connection may have under way.
const WINDOW: u32 = 64 << 20;
/// Bytes of datagrams that may wait: they carry gossip only, and the rest may be lost.
const DATAGRAMS: usize = 1 << 20;

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let idle = limits::IDLE.try_into().expect("seconds fit");
    // If an acknowledgement is held back for long, the loss of the last packet is found late, and steals are all last
    // packets.
    let mut acks = AckFrequencyConfig::default();
    acks.max_ack_delay(Some(Duration::from_millis(5)));
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(limits::TRANSFERS as u32))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .datagram_receive_buffer_size(Some(DATAGRAMS))
        .datagram_send_buffer_size(DATAGRAMS)
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(limits::KEEP_ALIVE))
        .initial_rtt(Duration::from_millis(100))
        .ack_frequency_config(Some(acks));
    Arc::new(config)
}

pub(super) fn client(credential: &Credential) -> ClientConfig {
    calling(credential.client(), transport())
}

pub(super) fn server(credential: &Credential) -> ServerConfig {
    called(credential.server(), transport())
}

fn calling(crypto: Arc<QuicClientConfig>, transport: Arc<TransportConfig>) -> ClientConfig {
    let mut config = ClientConfig::new(crypto);
    config.transport_config(transport);
    config
}

fn called(crypto: Arc<QuicServerConfig>, transport: Arc<TransportConfig>) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(crypto);
    config
        .transport_config(transport)
        // Callers that wait to be let in or refused, which happens at once.
        .max_incoming(1024)
        .incoming_buffer_size(limits::INCOMING.0)
        .incoming_buffer_size_total(limits::INCOMING.1);
    config
}

/// Bytes that one connection to a store may have under way: half a gigabit a second over 30 milliseconds. Too small: far
/// stores are slow. Too large: so many bytes of each connection wait in the server's memory.
const STORE_WINDOW: u32 = 2 << 20;

fn store_transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let idle = limits::IDLE.try_into().expect("seconds fit");
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(limits::STORE_STREAMS))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STORE_WINDOW))
        .receive_window(VarInt::from_u32(STORE_WINDOW))
        .send_window(u64::from(STORE_WINDOW))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(limits::KEEP_ALIVE))
        .initial_rtt(Duration::from_millis(100));
    Arc::new(config)
}

/// For calling a store.
pub(super) fn store_client(credential: &Credential) -> ClientConfig {
    calling(credential.client_for(STORE_ALPN), store_transport())
}

/// For a store that is called.
pub(super) fn store_server(credential: &Credential) -> ServerConfig {
    called(credential.server_for(STORE_ALPN), store_transport())
}

pub(super) fn endpoint(names: &Names) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    let names = names.clone();
    config
        .cid_generator(move || Box::new(names.clone()))
        // The bit by which QUIC is told from other things stays what it is.
        .grease_quic_bit(false);
    config
}
