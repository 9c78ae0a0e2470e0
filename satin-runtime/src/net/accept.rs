//! Being dialled: who is let in, and which of two connections survives; see `dial.rs`.

use std::{net::SocketAddr, rc::Rc, sync::atomic::Ordering::Relaxed, time::Instant};

use quinn::{Connection, Incoming, SendStream};
use tokio::time::timeout;

use super::{
    door::{Caller, Crowd, Reception},
    driver::{Driver, Net},
    greeting::{Failure, read_greeting, write_greeting},
    limits,
    link::Close,
    observed,
    wire::{Greeting, Hello, Reason, Refusal, Role},
};
use crate::{node::Identity, observe::repeats};

/// Number of callers that are answered before other tasks of this thread have their turn. Too small: callers wait. Too
/// large: a crowd of callers delays everything else.
const CALLERS_IN_A_ROW: usize = 16;

/// Lets in who may come in.
pub(super) async fn accept(net: Rc<Net>) {
    let mut in_a_row = 0;
    while let Some(incoming) = net.endpoint.accept().await {
        receive(&net, incoming);
        in_a_row += 1;
        if in_a_row == CALLERS_IN_A_ROW {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn receive(net: &Rc<Net>, incoming: Incoming) {
    let addr = incoming.remote_address();
    let caller = Caller {
        source: addr.ip(),
        is_proven: incoming.remote_address_validated(),
    };
    let reception = {
        let mut driver = net.driver.borrow_mut();
        let crowd = Crowd {
            connections: net.endpoint.open_connections(),
            ..driver.crowd
        };
        driver.sources.receive(caller, crowd, Instant::now())
    };
    match reception {
        Reception::Begin => {
            let under_way = UnderWay::begin(net, caller.is_proven);
            tokio::task::spawn_local(let_in(Rc::clone(net), incoming, under_way));
        }
        // Cannot fail: a caller that is not proven has had no retry.
        Reception::Prove => drop(incoming.retry()),
        Reception::Refuse(why) => {
            complain(net, addr, why);
            incoming.refuse();
        }
    }
}

/// A handshake that has begun and not come to its end.
struct UnderWay {
    net: Rc<Net>,
    is_proven: bool,
}

impl UnderWay {
    fn begin(net: &Rc<Net>, is_proven: bool) -> UnderWay {
        let under_way = UnderWay {
            net: Rc::clone(net),
            is_proven,
        };
        under_way.count(|handshakes| *handshakes += 1);
        under_way
    }

    fn count(&self, change: impl FnOnce(&mut usize)) {
        // The thread may be on its way out.
        let Ok(mut driver) = self.net.driver.try_borrow_mut() else {
            return;
        };
        let Crowd {
            unproven, proven, ..
        } = &mut driver.crowd;
        change(if self.is_proven { proven } else { unproven });
        let all = *unproven + *proven;
        driver.traffic.unfinished.store(all, Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.count(|handshakes| *handshakes = handshakes.saturating_sub(1));
    }
}

/// Logs that a caller was refused.
fn complain(net: &Rc<Net>, addr: SocketAddr, why: &str) {
    let driver = net.driver.borrow();
    driver.progress.refused(format!("{addr}: {why}"));
    repeats::warn("refused a connection", addr.ip(), why);
}

async fn let_in(net: Rc<Net>, incoming: Incoming, _under_way: UnderWay) {
    let addr = incoming.remote_address();
    let outcome = match timeout(limits::HANDSHAKE, greet(&net, incoming)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::Permanent("it sent no greeting in time".into())),
    };
    match outcome {
        Ok(()) | Err(Failure::Crossed(_)) => {}
        // The caller went away by itself: mostly because another connection between the two was faster.
        Err(Failure::Silence(why)) => tracing::debug!(%addr, "a caller went away: {why}"),
        Err(failure) => complain(&net, addr, failure.text()),
    }
}

/// The answer to a greeting.
enum GreetingVerdict {
    Welcome(Identity, u64, Greeting),
    Watch(Greeting),
    No(Failure, Refusal),
}

async fn greet(net: &Rc<Net>, incoming: Incoming) -> Result<(), Failure> {
    let called_at = incoming.local_ip();
    let connection = incoming.accept()?.await?;
    let (mut send, mut recv) = connection.accept_bi().await?;
    let (greeting, frames) = match read_greeting(&mut recv).await {
        Ok(greeting) => greeting,
        Err(failure) => {
            let reason = match &failure {
                Failure::Permanent(text) if text.contains("version") => Reason::Version,
                _ => Reason::Malformed,
            };
            decline(&connection, send, Refusal::new(reason, failure.text())).await;
            return Err(failure);
        }
    };
    let hello = match greeting {
        Greeting::Hello(hello) => hello,
        Greeting::Refused(refusal) => return Err(refusal.into()),
    };
    let (me, verdict) = net.turn(|driver, now| {
        if let (Some(ip), Ok(())) = (called_at, driver.door.check(&hello, driver.me())) {
            driver.dialled_at(now, ip);
        }
        (driver.me().peer, judge(driver, &hello))
    });
    match verdict {
        GreetingVerdict::No(failure, refusal) => {
            decline(&connection, send, refusal).await;
            Err(failure)
        }
        GreetingVerdict::Welcome(identity, epoch, answer) => {
            write_greeting(&mut send, &answer).await?;
            net.turn(|driver, now| {
                driver.establish(
                    net,
                    now,
                    me,
                    identity,
                    epoch,
                    connection,
                    (send, recv),
                    frames,
                )
            })
        }
        GreetingVerdict::Watch(answer) => {
            write_greeting(&mut send, &answer).await?;
            let serving = observed::serve(Rc::clone(net), connection, (send, recv), frames);
            tokio::task::spawn_local(serving);
            Ok(())
        }
    }
}

/// Refuses a greeting, and gives the other side time to hear it.
async fn decline(connection: &Connection, mut send: SendStream, refusal: Refusal) {
    let text = refusal.text.clone();
    let say = async {
        if write_greeting(&mut send, &Greeting::Refused(refusal))
            .await
            .is_ok()
        {
            let _ = send.finish();
            connection.closed().await;
        }
    };
    let _ = timeout(limits::GOODBYE, say).await;
    connection.close(Close::Refused.code(), text.as_bytes());
}

fn judge(driver: &mut Driver, hello: &Hello) -> GreetingVerdict {
    let no = |failure: Failure, refusal: Refusal| GreetingVerdict::No(failure, refusal);
    let who = |text: &str| format!("{}: {text}", hello.identity.name);
    if let Err(objection) = driver.door.check(hello, driver.me()) {
        let failure = match objection.reason {
            // The way in which a node finds out that it is on the list itself.
            Reason::Yourself => Failure::Crossed(0),
            _ => Failure::Permanent(who(&objection.here)),
        };
        return no(failure, objection.refusal());
    }
    if driver.is_over() {
        let text = "the pool is about to end";
        return no(Failure::Crossed(0), Refusal::new(Reason::Leaving, text));
    }
    let me = driver.me().clone();
    if hello.meant.is_some_and(|meant| meant != me.peer) {
        let text = "the node that was called is not here any more";
        return no(
            Failure::Crossed(0),
            Refusal::new(Reason::SomebodyElse, text),
        );
    }
    let peer = hello.identity.peer;
    if hello.role == Role::Observer {
        return GreetingVerdict::Watch(Greeting::Hello(Box::new(driver.door.hello(me, 0, None))));
    }
    if driver.node.view().len() >= limits::PEERS && !driver.node.view().is_alive(peer) {
        let text = format!("a pool has at most {} nodes", limits::PEERS);
        return no(
            Failure::Refused(Reason::Busy, who(&text)),
            Refusal::new(Reason::Busy, text),
        );
    }
    let crossed = |epoch| {
        let mut refusal = Refusal::new(
            Reason::Crossed,
            "another connection between the two goes before this one",
        );
        refusal.epoch = epoch;
        no(Failure::Crossed(0), refusal)
    };
    if let Some(link) = driver.links.get(&peer)
        && link.epoch / 2 >= hello.epoch / 2
    {
        return crossed(driver.epoch_of(peer.id));
    }
    let calling = driver.dials.get(&hello.identity.addr);
    if let Some(proposed) = calling.and_then(|dial| dial.proposed)
        && me.peer.id < peer.id
    {
        return crossed(proposed.max(driver.epoch_of(peer.id)));
    }
    if let Some(warning) = driver.door.other_command_line(hello) {
        repeats::warn("different arguments", &hello.identity.name, warning);
    }
    let epoch = driver.settle_epoch(peer.id, hello.epoch);
    let answer = Greeting::Hello(Box::new(driver.door.hello(me, epoch, Some(peer))));
    GreetingVerdict::Welcome(hello.identity.clone(), epoch, answer)
}
