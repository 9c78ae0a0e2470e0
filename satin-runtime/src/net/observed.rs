//! The node's side of an observer's questions.

use std::{rc::Rc, time::Duration};

use quinn::{Connection, RecvStream, SendStream};

use super::{
    driver::{Driver, Net},
    limits,
    link::Close,
    observer::{ObserverAnswer, Question, SeenNode, next},
    wire::{self, Frames},
};
use crate::observe::{output, repeats};

/// Answers an observer as long as it wants.
pub(super) async fn serve(
    net: Rc<Net>,
    connection: Connection,
    (mut send, mut recv): (SendStream, RecvStream),
    mut frames: Frames,
) {
    frames.set_limit(limits::GREETING);
    loop {
        let question = match next(&mut recv, &mut frames).await {
            Ok(Some(question)) => question,
            Ok(None) => return,
            Err(error) => {
                let text = error.to_string();
                repeats::warn(
                    "closed the connection to an observer that sent malformed data",
                    connection.remote_address().ip(),
                    &text,
                );
                return connection.close(Close::Malformed.code(), text.as_bytes());
            }
        };
        if let Question::Output { since, waits } = question {
            if waits {
                output::more_than(since, limits::OUTPUT_WAIT).await;
            }
            output::settled().await;
        }
        let answer = net.turn(|driver, now| answer(driver, now, question));
        if send.write_all(&wire::frame(&answer)).await.is_err() {
            return;
        }
    }
}

fn answer(driver: &mut Driver, now: Duration, question: Question) -> ObserverAnswer {
    match question {
        Question::Status => {
            let view = driver.node.view();
            let master = driver.master().map(|master| master.peer.id);
            let seen = view.members().map(|member| SeenNode {
                name: member.name.to_string(),
                site: member.site.to_string(),
                addr: member.addr,
                threads: member.threads,
                is_master: Some(member.peer.id) == master,
                is_leaving: view.is_draining(member.peer),
            });
            ObserverAnswer::Status(seen.collect())
        }
        Question::Figures => match serde_json::to_string(&driver.figures_now(now)) {
            Ok(text) => ObserverAnswer::Figures(text),
            Err(error) => {
                ObserverAnswer::Staying(format!("its figures cannot be written: {error}"))
            }
        },
        Question::Look(since) => match serde_json::to_string(&driver.look(now, since)) {
            Ok(text) => ObserverAnswer::Look(text),
            Err(error) => {
                ObserverAnswer::Staying(format!("what it does cannot be written: {error}"))
            }
        },
        Question::Output { since, .. } => ObserverAnswer::Output(output::page(since)),
        Question::Stop => match driver.stop(now) {
            true => ObserverAnswer::Stopping,
            false => ObserverAnswer::Staying(
                "it is not the master of its pool any more: try again".into(),
            ),
        },
        Question::Drain { grace } => {
            if driver.drain(now, grace) {
                tracing::info!("an observer asks this node to leave");
                ObserverAnswer::Leaving
            } else {
                ObserverAnswer::Staying(
                    "it runs `main`, and no other node is there to take over; end it with Ctrl-C or SIGTERM".into(),
                )
            }
        }
    }
}
