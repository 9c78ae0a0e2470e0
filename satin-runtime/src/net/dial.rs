//! Dialling another node, and which of two connections survives; being dialled is told in `accept.rs`.
//!
//! The dialling node proposes a number for the connection; the dialled node decides it, and both know it before anything
//! else is said. The higher number survives. Numbers grow with each attempt, and the lowest bit says whether the node
//! with the smaller id has dialled, so two connections made at the same time have different numbers, and both sides
//! agree which of them goes. To avoid that case, a node with the smaller id that has greeted already refuses the other's
//! connection ([`Reason::Crossed`]): its own is on the way.

use std::{net::SocketAddr, rc::Rc, time::Instant};

use quinn::Connection;
use tokio::time::{sleep, timeout};

use super::{
    door::Objection,
    driver::{Driver, DriverState, Net},
    greeting::{Failure, NO_ANSWER, NO_PROCESS, nobody_listens, read_greeting, write_greeting},
    limits,
    link::Close,
    relay,
    wire::{Greeting, Reason},
};
use crate::{
    codes,
    node::{Event, Peer},
    observe::repeats,
};

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
    if let DriverState::Joining { tried, .. } = &mut driver.state {
        match outcome {
            Ok(()) => drop(tried.remove(&addr)),
            Err(failure) => drop(tried.insert(addr, failure.text().into())),
        }
    }
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
        driver.tell(now, unreachable);
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
        ..
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
        driver.tell(
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
    driver.fail(codes::with_code(text, Some(codes::NOT_LET_IN)));
}

async fn attempt(net: &Rc<Net>, addr: SocketAddr, at_least: u64) -> Result<(), Failure> {
    match timeout(limits::HANDSHAKE, attempt_patiently(net, addr, at_least)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::Silence(NO_ANSWER.into())),
    }
}

async fn attempt_patiently(net: &Rc<Net>, addr: SocketAddr, at_least: u64) -> Result<(), Failure> {
    let route = relay::route(addr);
    let connecting = (net.endpoint)
        .connect_with(net.client.clone(), route, "satin")
        .map_err(|error| Failure::Silence(error.to_string()))?;
    let connection = tokio::select! {
        connected = connecting => connected?,
        () = nobody_listens(addr) => return Err(Failure::Silence(NO_PROCESS.into())),
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
    let (me, meant) = (hello.identity.peer, hello.meant);
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
            repeats::warn("different arguments", &other.identity.name, warning);
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
        // The other side may not know of all connections that stood here. What came by one with such a number would be taken for late.
        let peer = other.identity.peer;
        if driver.has_stood(peer.id, other.epoch) && !driver.links.contains_key(&peer) {
            connection.close(
                Close::Replaced.code(),
                b"a connection with that number has stood",
            );
            return Err(Failure::Crossed(driver.epoch_of(peer.id)));
        }
        driver.establish(
            net,
            now,
            me,
            other.identity,
            other.epoch,
            connection,
            (send, recv),
            frames,
        )
    })
}

/// Probes whether a process listens at that address.
pub(super) fn probe_peer(net: &Rc<Net>, addr: SocketAddr, peer: Peer) {
    let net = Rc::clone(net);
    tokio::task::spawn_local(async move {
        if timeout(limits::HANDSHAKE, nobody_listens(addr))
            .await
            .is_ok()
        {
            net.handle(Event::Gone(peer));
        }
    });
}
