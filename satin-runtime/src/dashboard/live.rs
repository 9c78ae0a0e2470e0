//! Server-sent events: frames while the page is open.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures_util::stream;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    frame::{Frame, FrameState},
    server::Shared,
};

/// The time between two frames. Shorter than that between two looks: frames without news. Longer: what happened is seen late.
const EVERY: Duration = Duration::from_secs(1);

/// A page that is open.
struct Listener {
    shared: Arc<Shared>,
    told: FrameState,
    version: Option<u64>,
    ticks: Interval,
    over: watch::Receiver<bool>,
    has_ended: bool,
    _seat: OwnedSemaphorePermit,
}

/// `GET /api/live`.
pub(super) async fn live(State(shared): State<Arc<Shared>>) -> Response {
    let Ok(seat) = Arc::clone(&shared.seats).try_acquire_owned() else {
        let text = "too many pages of this dashboard are open: close one, or ask another node\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let mut ticks = interval(EVERY);
    // A page that does not read gets what it missed in one frame.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = Listener {
        over: shared.over.clone(),
        shared,
        told: FrameState::default(),
        version: None,
        ticks,
        has_ended: false,
        _seat: seat,
    };
    let events = stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(events).into_response()
}

impl Listener {
    /// A frame if there is news, else a sign that the connection stands; at the end of the node a last frame.
    async fn next(&mut self) -> Option<Event> {
        if self.has_ended {
            return None;
        }
        tokio::select! {
            _ = self.ticks.tick() => {}
            // An error: the server has been dropped.
            _ = self.over.wait_for(|over| *over) => self.has_ended = true,
        }
        let frame = {
            let history = self.shared.history();
            let is_news = self.version.replace(history.version()) != Some(history.version());
            is_news.then(|| Frame::next(&history, &mut self.told))
        };
        let name = if self.has_ended { "end" } else { "frame" };
        let event = Event::default();
        Some(match frame {
            // A frame holds numbers and texts: nothing that JSON does not know.
            Some(frame) => {
                let frame = frame.with_steering(self.shared.can_drain());
                let json = serde_json::to_string(&frame).unwrap_or_default();
                event.event(name).data(json)
            }
            None if self.has_ended => event.event(name).data("{}"),
            None => event.event("beat").data("{}"),
        })
    }
}
