//! Requests that change the pool.

use axum::http::StatusCode;
use serde::Deserialize;

use crate::observe::history::{History, NodeState};

/// The hands of the dashboard: what it may do to the pool.
pub trait Steering: Send + Sync {
    /// Asks these nodes to leave, and returns when they have been asked; may block for as long as that takes.
    ///
    /// # Errors
    /// The text says for people which node stays, and why.
    fn drain(&self, names: Vec<String>) -> Result<(), String>;
}

/// The body of `POST /api/drain`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DrainRequest {
    /// The name of a node.
    Node(String),
    /// The name of a site: all of its nodes.
    Site(String),
}

/// An answer that is no success.
pub(super) type Refusal = (StatusCode, String);

impl DrainRequest {
    pub(super) fn parse(body: &[u8]) -> Result<DrainRequest, Refusal> {
        serde_json::from_slice(body).map_err(|error| {
            let text = format!(
                r#"the body must be {{"node": "NAME"}} or {{"site": "NAME"}}, as JSON: {error}"#
            );
            (StatusCode::BAD_REQUEST, text)
        })
    }

    /// The names of the nodes that are meant.
    pub(super) fn names(self, history: &History) -> Result<Vec<String>, Refusal> {
        match self {
            DrainRequest::Node(name) => match history.state_of(&name) {
                Some(NodeState::Joined | NodeState::NoAnswer) => Ok(vec![name]),
                Some(NodeState::Draining) => refuse(format!("{name} is about to leave already")),
                Some(NodeState::Left | NodeState::Dead) => refuse(format!("{name} has gone")),
                None => missing(format!(
                    "no node is called {name}: GET /api/status lists the nodes"
                )),
            },
            DrainRequest::Site(site) => match history.staying_in(&site) {
                names if names.is_empty() => missing(format!(
                    "no node of a site called {site} is in the pool: GET /api/status lists the sites"
                )),
                names => Ok(names),
            },
        }
    }
}

fn refuse<T>(text: String) -> Result<T, Refusal> {
    Err((StatusCode::CONFLICT, text))
}

fn missing<T>(text: String) -> Result<T, Refusal> {
    Err((StatusCode::NOT_FOUND, text))
}
