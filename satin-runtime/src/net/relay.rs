//! Detours for trying things out: a launcher that emulates slow links between sites puts relays between them, and tells
//! each node by which relay it reaches whom.
//!
//! Nodes advertise their real addresses. Only when one dials does it ask [`route`] where to send the datagrams; QUIC
//! cares neither about the address they take on the way nor about the one they seem to come from.

use std::{fs, net::SocketAddr, path::Path, path::PathBuf, sync::LazyLock};

/// The variable that names the file of detours: a line each, `ADDRESS RELAY`. The file may be replaced at any time, and
/// must be replaced as a whole (written beside it, then renamed). Not meant to be set by hand: `satin run` does.
pub const VARIABLE: &str = "SATIN_WAN";

static FILE: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| std::env::var_os(VARIABLE).map(PathBuf::from));

/// The address to which datagrams for the node at `addr` are sent: its relay if it has one, else `addr` itself. To be
/// asked whenever a node dials or probes another; reads the file each time, if there is one.
#[must_use]
pub fn route(addr: SocketAddr) -> SocketAddr {
    match &*FILE {
        Some(file) => route_by(file, addr),
        None => addr,
    }
}

fn route_by(file: &Path, addr: SocketAddr) -> SocketAddr {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            tracing::warn!(
                "{VARIABLE}={}: {error}; dialling {addr} directly",
                file.display()
            );
            return addr;
        }
    };
    let detours = text.lines().filter_map(|line| {
        let (to, relay) = line.split_once(' ')?;
        Some((to.parse::<SocketAddr>().ok()?, relay.trim().parse().ok()?))
    });
    detours
        .into_iter()
        .find_map(|(to, relay)| (to == addr).then_some(relay))
        .unwrap_or(addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_in_the_file_make_a_detour() {
        let file = std::env::temp_dir().join(format!("satin-routes-{}", std::process::id()));
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        fs::write(
            &file,
            "127.0.0.1:1 127.0.0.1:91\nnonsense\n127.0.0.1:2 127.0.0.1:92\n",
        )
        .expect("written");
        assert_eq!(route_by(&file, addr(2)), addr(92));
        assert_eq!(route_by(&file, addr(1)), addr(91));
        assert_eq!(route_by(&file, addr(3)), addr(3));
        fs::remove_file(&file).expect("removed");
        assert_eq!(route_by(&file, addr(1)), addr(1));
        assert_eq!(route(addr(1)), addr(1), "the variable is not set");
    }
}
