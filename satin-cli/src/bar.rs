//! The bar of a whole pool, as the events of its nodes tell how far it is.

use std::time::Duration;

use satin_runtime::{
    observe::{events::Event, lines},
    progress::{Progress, Words},
};

/// Is there a screen for a bar, and does the environment not say no?
#[must_use]
pub fn is_wanted() -> bool {
    let is_unwanted = std::env::var("SATIN_PROGRESS").as_deref() == Ok("no");
    lines::has_terminal() && !is_unwanted
}

/// Moves the bar as the event says; it goes when the root job is done.
pub fn follow(event: &Event) {
    match event {
        Event::Progress {
            done,
            seconds,
            is_guess,
            nodes,
        } => {
            let elapsed = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
            let progress = Progress::told(*done, elapsed, *is_guess);
            let nodes = *nodes;
            lines::show_bar(*done, Words { progress, nodes }.to_string());
        }
        Event::RootFinished { .. } => lines::clear_bar(),
        _ => {}
    }
}
