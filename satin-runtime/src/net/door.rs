//! The checks that decide who gets in: the greeting's, and how often a source may knock.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    limits,
    wire::{Hello, Reason, Refusal, Role},
};
use crate::{
    config, job,
    node::{Identity, Peer},
    stable::runs::Program,
};

/// The properties that this node shows in its greeting, and expects of others.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) pool: String,
    program: [u8; 32],
    executable: [u8; 32],
    target: String,
    command_line: Vec<String>,
    mixed_builds: bool,
    has_store: bool,
}

/// The reason why a peer is refused, from both sides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Objection {
    pub(super) reason: Reason,
    /// The text for the log of this node.
    pub(super) here: String,
    /// The text for the log of the refused node.
    pub(super) there: String,
}

impl Objection {
    pub(super) fn refusal(&self) -> Refusal {
        Refusal::new(self.reason, self.there.clone())
    }
}

impl Door {
    /// Looks at the running process.
    pub(super) fn new(pool: String, has_store: bool) -> Door {
        let executable = match std::env::current_exe().and_then(|path| hash_file(&path)) {
            Ok(hash) => hash,
            Err(error) => {
                tracing::warn!(
                    "cannot read the executable of this process ({error}): nodes that run another build of it are not recognised"
                );
                [0; 32]
            }
        };
        Door {
            pool,
            program: job::program_hash(),
            executable,
            target: format!(
                "{}-{}-{}",
                std::env::consts::ARCH,
                std::env::consts::OS,
                if cfg!(target_env = "musl") {
                    "musl"
                } else {
                    ""
                }
            ),
            command_line: command_line(
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()),
            ),
            mixed_builds: std::env::var("SATIN_MIXED_BUILDS")
                .is_ok_and(|value| value.trim() == "1"),
            has_store,
        }
    }

    /// The program as a store knows it.
    pub(super) fn program(&self) -> Program {
        Program {
            hash: self.program,
            target: self.target.clone(),
            executable: self.executable,
            command_line: self.command_line.clone(),
            mixed_builds: self.mixed_builds,
        }
    }

    pub(super) fn hello(&self, identity: Identity, epoch: u64, meant: Option<Peer>) -> Hello {
        Hello {
            pool: self.pool.clone(),
            program: self.program,
            executable: self.executable,
            target: self.target.clone(),
            identity,
            role: Role::Member,
            command_line: self.command_line.clone(),
            epoch,
            meant,
            has_store: self.has_store,
        }
    }

    /// Can we work together?
    pub(super) fn check(&self, other: &Hello, me: &Identity) -> Result<(), Objection> {
        let object = |reason, here: String, there: String| {
            Err(Objection {
                reason,
                here,
                there,
            })
        };
        if other.identity.peer.id == me.peer.id {
            let text = "a node does not need a connection to itself";
            return object(Reason::Yourself, text.into(), text.into());
        }
        // An observer need not know what the pool is called.
        let asks_any = other.role == Role::Observer && other.pool.is_empty();
        if other.pool != self.pool && !asks_any {
            return object(
                Reason::Pool,
                format!(
                    "it belongs to the pool `{}`, and this node to `{}`",
                    other.pool, self.pool
                ),
                format!(
                    "that node belongs to the pool `{}`, and this one to `{}`. A pool is called like its program, unless \
                     --pool (SATIN_POOL) says otherwise: start the same program, call both pools the same, or join \
                     another",
                    self.pool, other.pool
                ),
            );
        }
        if other.role == Role::Observer {
            return Ok(());
        }
        if other.program != self.program {
            return object(
                Reason::Program,
                "it runs another program: its spawnable functions, or their arguments, are not the same".into(),
                "that node runs another program: its spawnable functions, or their arguments, are not the same; start \
                 the same program on all nodes, or give this pool another name with SATIN_POOL"
                    .into(),
            );
        }
        if other.target == self.target && other.executable != self.executable && !self.mixed_builds
        {
            return object(
                Reason::Executable,
                "it runs another build of the program".into(),
                "that node runs another build of the program; copy the same executable to all machines, or set \
                 SATIN_MIXED_BUILDS=1 on all nodes if you are sure that the types are the same"
                    .into(),
            );
        }
        // What such a node finishes would be lost with all nodes, although the user has been promised that it is not.
        if other.has_store != self.has_store {
            let (here, there) = match self.has_store {
                true => (
                    "it has none, and this node has one",
                    "that node has one, and this one has none",
                ),
                false => (
                    "it has one, and this node has none",
                    "that node has none, and this one has one",
                ),
            };
            let what = "all nodes of a pool use the same store, or none";
            return object(
                Reason::Store,
                format!("{what}: {here}"),
                format!("{what}: {there}; start all with the same --store (SATIN_STORE)"),
            );
        }
        Ok(())
    }

    /// Worth a warning: then the other `main` does something else.
    pub(super) fn other_command_line(&self, other: &Hello) -> Option<String> {
        let same = other.role == Role::Observer || other.command_line == self.command_line;
        (!same).then(|| {
            format!(
                "{} was started with other arguments than this node: `{}` instead of `{}`; start all nodes with the same \
                 arguments",
                other.identity.name,
                super::wire::printable(&other.command_line.join(" ")),
                self.command_line.join(" ")
            )
        })
    }
}

fn hash_file(path: &Path) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut std::fs::File::open(path)?, &mut hasher)?;
    Ok(hasher.finalize().into())
}

/// The program's own arguments: without its name, and without Satin's own flags, which may well differ between nodes.
fn command_line(words: impl Iterator<Item = String>) -> Vec<String> {
    let own_flags: Vec<(String, bool)> = config::flags().collect();
    let mut words = words.skip(1);
    let mut kept = Vec::new();
    let mut length = 0;
    while let Some(word) = words.next() {
        let (flag, has_value) = match word.split_once('=') {
            Some((flag, _)) => (flag, true),
            None => (&*word, false),
        };
        match own_flags.iter().find(|(own, _)| *own == flag) {
            Some((_, takes_value)) => {
                if *takes_value && !has_value {
                    words.next();
                }
            }
            None => {
                length += word.len() + 8;
                if length > limits::COMMAND_LINE {
                    break;
                }
                kept.push(word);
            }
        }
    }
    kept
}

/// Quota of handshakes that each source may begin.
#[derive(Default)]
pub(super) struct KnockQuota {
    /// The handshakes that each source has left, and when that was counted.
    left: HashMap<IpAddr, (f64, Instant)>,
}

impl KnockQuota {
    /// May it begin a handshake now?
    pub(super) fn admit(&mut self, source: IpAddr, now: Instant) -> bool {
        let full =
            Duration::from_secs_f64(limits::HANDSHAKES_AT_ONCE / limits::HANDSHAKES_PER_SECOND);
        if self.left.len() >= limits::SOURCES && !self.left.contains_key(&source) {
            self.left
                .retain(|_, (_, since)| now.duration_since(*since) < full);
            if self.left.len() >= limits::SOURCES {
                return false;
            }
        }
        let (left, since) = self
            .left
            .entry(source)
            .or_insert((limits::HANDSHAKES_AT_ONCE, now));
        let earned = now.duration_since(*since).as_secs_f64() * limits::HANDSHAKES_PER_SECOND;
        *left = (*left + earned).min(limits::HANDSHAKES_AT_ONCE);
        *since = now;
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }
}

/// A source that wants to begin a handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) source: IpAddr,
    /// True if the caller has shown that it can be reached at that address.
    pub(super) is_proven: bool,
}

/// The connections and handshakes that exist when a caller comes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Crowd {
    /// Handshakes under way, with addresses that are not proven, and with those that are.
    pub(super) unproven: usize,
    pub(super) proven: usize,
    /// Connections of all kinds, those handshakes included.
    pub(super) connections: usize,
}

/// The answer to a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reception {
    /// The handshake begins now.
    Begin,
    /// The caller is to call again with a token that only its true address receives. Nothing is kept meanwhile.
    Prove,
    Refuse(&'static str),
}

impl KnockQuota {
    /// Decides on a caller.
    pub(super) fn receive(&mut self, caller: Caller, crowd: Crowd, now: Instant) -> Reception {
        let Caller { source, is_proven } = caller;
        if crowd.connections >= limits::CONNECTIONS {
            return Reception::Refuse("there are too many connections");
        }
        // Before the sources are counted: the table is not filled with made-up addresses.
        if !is_proven && crowd.unproven >= limits::UNPROVEN_HANDSHAKES {
            return Reception::Prove;
        }
        if is_proven && crowd.proven >= limits::PROVEN_HANDSHAKES {
            return Reception::Refuse("too many handshakes are under way");
        }
        match self.admit(source, now) {
            true => Reception::Begin,
            false => Reception::Refuse("too many handshakes from this address in a second"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeId;

    fn identity(id: u128) -> Identity {
        Identity {
            peer: NodeId(id).first_life(),
            name: "n".into(),
            site: "s".into(),
            addr: ([127, 0, 0, 1], 1).into(),
            stamp: 0,
            threads: 1,
        }
    }

    #[test]
    fn the_same_program_in_the_same_pool_is_let_in_and_nothing_else() {
        let door = Door::new("p".into(), false);
        let hello = || door.hello(identity(2), 0, None);
        let reason = |hello: &Hello| door.check(hello, &identity(1)).map_err(|why| why.reason);
        assert_eq!(reason(&hello()), Ok(()));
        let mut other = hello();
        other.program[0] ^= 1;
        assert_eq!(reason(&other), Err(Reason::Program));
        other.role = Role::Observer;
        assert_eq!(
            reason(&other),
            Ok(()),
            "who only looks may be another program"
        );
        other.pool = "q".into();
        assert_eq!(reason(&other), Err(Reason::Pool));
        let mut build = hello();
        build.executable[0] ^= 1;
        assert_eq!(reason(&build), Err(Reason::Executable));
        build.target = "z80-cpm".into();
        assert_eq!(
            reason(&build),
            Ok(()),
            "another processor has another executable"
        );
        let with_store = Door::new("p".into(), true);
        assert_eq!(
            reason(&with_store.hello(identity(2), 0, None)),
            Err(Reason::Store)
        );
        assert_eq!(
            reason(&door.hello(identity(1), 0, None)),
            Err(Reason::Yourself)
        );
    }

    #[test]
    fn flags_of_satin_are_not_the_programs_arguments() {
        let words = "prog --listen 127.0.0.1:0 42 --site=delft --stats --depth 7 --join a:1";
        let line = command_line(words.split(' ').map(Into::into));
        assert_eq!(line, ["42", "--depth", "7"]);
        let long = std::iter::repeat_n("x".repeat(1000), 1000);
        assert!(command_line(long).len() <= limits::COMMAND_LINE / 1000);
    }

    #[test]
    fn a_source_that_knocks_too_often_waits_and_others_do_not() {
        let (mut sources, start) = (KnockQuota::default(), Instant::now());
        let source = |last| IpAddr::from([192, 0, 2, last]);
        let admitted = (0..10_000)
            .filter(|_| sources.admit(source(1), start))
            .count();
        assert_eq!(admitted, limits::HANDSHAKES_AT_ONCE as usize);
        assert!(sources.admit(source(2), start));
        let later = start + Duration::from_secs(1);
        let admitted = (0..10_000)
            .filter(|_| sources.admit(source(1), later))
            .count();
        assert_eq!(admitted, limits::HANDSHAKES_PER_SECOND as usize);
    }

    #[test]
    fn in_a_crowd_addresses_must_be_proven_and_nobody_else_pays_for_it() {
        let (mut sources, now) = (KnockQuota::default(), Instant::now());
        let caller = |last, is_proven| Caller {
            source: IpAddr::from([192, 0, 2, last]),
            is_proven,
        };
        let quiet = Crowd::default();
        let crowd = Crowd {
            unproven: limits::UNPROVEN_HANDSHAKES,
            ..quiet
        };
        assert_eq!(
            sources.receive(caller(1, false), quiet, now),
            Reception::Begin
        );
        for last in 2..=255 {
            let reception = sources.receive(caller(last, false), crowd, now);
            assert_eq!(reception, Reception::Prove);
        }
        assert_eq!(sources.left.len(), 1, "who has to prove itself is not kept");
        assert_eq!(
            sources.receive(caller(2, true), crowd, now),
            Reception::Begin
        );
        let full = Crowd {
            proven: limits::PROVEN_HANDSHAKES,
            ..quiet
        };
        let refused = sources.receive(caller(3, true), full, now);
        assert!(matches!(refused, Reception::Refuse(_)));
        assert_eq!(
            sources.receive(caller(3, false), full, now),
            Reception::Begin
        );
        let too_many = Crowd {
            connections: limits::CONNECTIONS,
            ..quiet
        };
        let refused = sources.receive(caller(3, false), too_many, now);
        assert!(matches!(refused, Reception::Refuse(_)));
    }

    #[test]
    fn many_sources_do_not_fill_the_memory() {
        let (mut sources, start) = (KnockQuota::default(), Instant::now());
        let source = |n: u32| IpAddr::from(n.to_be_bytes());
        let admitted = (0..20_000)
            .filter(|n| sources.admit(source(*n), start))
            .count();
        assert_eq!(admitted, limits::SOURCES);
        assert!(sources.admit(source(99_999), start + Duration::from_secs(9)));
        assert_eq!(sources.left.len(), 1);
    }
}
