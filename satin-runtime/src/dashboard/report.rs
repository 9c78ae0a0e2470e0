//! The report of a run: the dashboard's page, frozen, as one file that needs no server.

use super::{
    frame::{Frame, FrameState},
    page,
};
use crate::observe::history::History;

/// The report as HTML. A browser shows it from any place, also from a file.
///
/// # Panics
/// Never: the history holds nothing that JSON does not know.
#[must_use]
pub fn html(history: &History) -> String {
    let frame = Frame::next(history, &mut FrameState::default());
    let json = serde_json::to_string(&frame).expect("numbers and texts are JSON");
    page::frozen(&json)
}
