//! Ports for nodes, chosen before the nodes start: relays and routes must stand first.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    ops::Range,
};

/// Below what systems give to sockets that ask for any port.
const PORTS: Range<u16> = 20_000..32_000;

/// A UDP port of the loopback interface that a node may bind. Other launchers leave the port alone as long as this value
/// lives: they look at the TCP port of the same number, which is taken.
pub struct Port {
    pub addr: SocketAddr,
    _claim: TcpListener,
}

impl Port {
    /// Claims a port that is not in use.
    ///
    /// # Errors
    /// No port is free.
    pub fn claim() -> io::Result<Port> {
        let start = RandomState::new().build_hasher().finish();
        let count = u64::from(PORTS.end - PORTS.start);
        let mut failure = io::Error::from(io::ErrorKind::AddrInUse);
        for step in 0..count {
            let port = PORTS.start + ((start % count + step) % count) as u16;
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            // The UDP socket only shows that the port is free; it is closed again at once, for the node to bind.
            match TcpListener::bind(addr).and_then(|claim| UdpSocket::bind(addr).map(|_| claim)) {
                Ok(claim) => {
                    return Ok(Port {
                        addr,
                        _claim: claim,
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_free_for_a_node_and_not_given_twice() {
        let ports: Vec<Port> = (0..50).map(|_| Port::claim().expect("a port")).collect();
        let mut numbers: Vec<u16> = ports.iter().map(|port| port.addr.port()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        UdpSocket::bind(ports[0].addr).expect("free");
    }
}
