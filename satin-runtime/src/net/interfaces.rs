//! The address that a node tells the others, if it listens on all of its addresses and no setting names any.
//!
//! The system is asked twice: for the address that its default route uses, and for the addresses of its interfaces. The
//! choice between them is a function of what it answered, [`choose`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// An address that was chosen among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) ip: IpAddr,
    /// Addresses that were not chosen and lead out of this machine too. If there are any, the choice may be wrong.
    pub(super) others: Vec<IpAddr>,
}

/// An address of this machine, and the name of its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    ip: IpAddr,
}

/// Addresses for asking which is the default route: any public address would do; these are reserved and in use nowhere
/// (RFC 5737, RFC 3849). Nothing is sent there.
const ANYWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Interfaces that containers and virtual machines of this machine hang on: other machines do not reach them.
const VIRTUAL: [&str; 8] = [
    "docker", "br-", "veth", "virbr", "cni", "flannel", "vmnet", "lxc",
];

/// The address that others are told of a node that listens on `unspecified`, an address that stands for all of its family
/// (the one of IPv6 for IPv4 too).
pub(super) fn own_address(unspecified: IpAddr) -> Choice {
    let routed = ANYWHERE
        .into_iter()
        .filter_map(|there| source_towards((there, 9).into()));
    let interfaces = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        tracing::warn!("cannot list the interfaces of this machine: {error}");
        Vec::new()
    });
    let interfaces = interfaces.into_iter().map(|interface| Interface {
        ip: interface.ip(),
        name: interface.name,
    });
    choose(
        unspecified,
        &routed.collect::<Vec<_>>(),
        interfaces.collect(),
    )
}

/// The address at which this machine reaches what listens at `addr` on it.
pub(super) fn reached_here(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    (ip, addr.port()).into()
}

/// The address that datagrams to `addr` come from. Sends none.
pub(super) fn source_towards(addr: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match addr {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(addr).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

/// Best first: the address of the default route, one of a real interface, one of a virtual interface. Of those the ones of
/// IPv4 go first, as sockets of both families reach them. With none of them only this machine is left.
fn choose(unspecified: IpAddr, routed: &[IpAddr], interfaces: Vec<Interface>) -> Choice {
    let can_be_dialled = |ip: &IpAddr| {
        let of_family = unspecified.is_ipv6() || ip.is_ipv4();
        of_family && !ip.is_loopback() && !ip.is_unspecified() && !is_link_local(*ip)
    };
    let rank = |interface: &Interface| {
        let is_virtual = VIRTUAL.iter().any(|name| interface.name.starts_with(name));
        let is_routed = routed.contains(&interface.ip);
        (!is_routed, is_virtual, interface.ip.is_ipv6())
    };
    let mut ranked = interfaces;
    // A list that the system did not give still has the default route in it.
    for ip in routed {
        if ranked.iter().all(|interface| interface.ip != *ip) {
            let name = String::new();
            ranked.push(Interface { name, ip: *ip });
        }
    }
    ranked.retain(|interface| can_be_dialled(&interface.ip));
    ranked.sort_by_key(rank);
    let mut ips = ranked.into_iter().map(|interface| interface.ip);
    let Some(ip) = ips.next() else {
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        return Choice {
            ip: loopback,
            others: Vec::new(),
        };
    };
    Choice {
        ip,
        others: ips.filter(|other| *other != ip).collect(),
    }
}

/// Such an address means something else on every interface.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_the_loopback_one() {
        let reached = |text: &str| reached_here(text.parse().expect("an address")).to_string();
        assert_eq!(reached("0.0.0.0:7"), "127.0.0.1:7");
        assert_eq!(reached("[::]:7"), "[::1]:7");
        assert_eq!(reached("192.0.2.1:7"), "192.0.2.1:7");
    }

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn interfaces(all: &[(&str, &str)]) -> Vec<Interface> {
        let interface = |(name, text): &(&str, &str)| Interface {
            name: (*name).into(),
            ip: ip(text),
        };
        all.iter().map(interface).collect()
    }

    #[track_caller]
    fn chooses(
        unspecified: IpAddr,
        routed: &[&str],
        all: &[(&str, &str)],
        expected: &str,
        others: &[&str],
    ) {
        let routed: Vec<IpAddr> = routed.iter().map(|text| ip(text)).collect();
        let choice = choose(unspecified, &routed, interfaces(all));
        let others: Vec<IpAddr> = others.iter().map(|text| ip(text)).collect();
        assert_eq!((choice.ip, choice.others), (ip(expected), others));
    }

    #[test]
    fn the_sole_address_that_leads_out_is_told() {
        let all = [
            ("lo", "127.0.0.1"),
            ("eth0", "192.0.2.7"),
            ("lo", "::1"),
            ("eth0", "fe80::1"),
        ];
        chooses(V4, &[], &all, "192.0.2.7", &[]);
        chooses(V6, &[], &all, "192.0.2.7", &[]);
    }

    #[test]
    fn the_default_route_goes_before_other_interfaces_and_those_before_virtual_ones() {
        let all = [
            ("docker0", "172.17.0.1"),
            ("eth0", "10.0.0.5"),
            ("wlan0", "192.168.1.5"),
            ("wlan0", "2001:db8::5"),
        ];
        chooses(
            V4,
            &["192.168.1.5", "2001:db8::5"],
            &all,
            "192.168.1.5",
            &["10.0.0.5", "172.17.0.1"],
        );
        chooses(V4, &[], &all, "10.0.0.5", &["192.168.1.5", "172.17.0.1"]);
        chooses(
            V6,
            &["2001:db8::5"],
            &all,
            "2001:db8::5",
            &["10.0.0.5", "192.168.1.5", "172.17.0.1"],
        );
    }

    #[test]
    fn a_machine_without_a_network_is_reached_by_itself() {
        chooses(V4, &[], &[("lo", "127.0.0.1")], "127.0.0.1", &[]);
        chooses(V4, &[], &[], "127.0.0.1", &[]);
    }

    #[test]
    fn the_default_route_counts_also_where_interfaces_are_not_listed() {
        chooses(V4, &["192.0.2.7"], &[], "192.0.2.7", &[]);
    }

    #[test]
    fn datagrams_to_this_machine_come_from_this_machine() {
        assert_eq!(
            source_towards(([127, 0, 0, 1], 9).into()),
            Some(ip("127.0.0.1"))
        );
    }
}
