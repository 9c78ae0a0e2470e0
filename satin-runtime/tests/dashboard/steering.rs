//! Requests that change the pool.

use std::sync::{Arc, Mutex};

use satin_runtime::dashboard::{Dashboard, Steering};

use super::{
    client::{Answer, addr, ask},
    pool::MadeUp,
    server::{loopback, show},
};

/// Notes who was asked to leave; `stubborn` stays.
#[derive(Default)]
pub struct Noted {
    pub asked: Mutex<Vec<String>>,
}

impl Steering for Noted {
    fn drain(&self, names: Vec<String>) -> Result<(), String> {
        if names.iter().any(|name| name == "delft-1") {
            return Err("delft-1 stays: no other node is there to take over".into());
        }
        self.asked.lock().expect("held by nobody").extend(names);
        Ok(())
    }
}

fn steered(pool: &MadeUp) -> (Dashboard, Arc<Noted>) {
    let noted = Arc::new(Noted::default());
    let steering: Arc<dyn Steering> = Arc::clone(&noted) as _;
    let dashboard = Dashboard::start(loopback(), Arc::clone(&pool.history), Some(steering));
    (dashboard.expect("started"), noted)
}

fn drain(dashboard: &Dashboard, body: &str) -> Answer {
    ask(addr(dashboard), "POST /api/drain", &["x-satin: 1"], body)
}

#[test]
fn nodes_and_sites_are_asked_to_leave() {
    let mut pool = MadeUp::new(6, 2, 1);
    pool.kill("leiden-3");
    let (dashboard, noted) = steered(&pool);
    let answer = drain(&dashboard, r#"{"node": "delft-2"}"#);
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, "asked to leave: delft-2\n")
    );
    assert_eq!(drain(&dashboard, r#"{"site": "leiden"}"#).status, 200);
    let asked = noted.asked.lock().expect("held by nobody");
    assert_eq!(*asked, ["delft-2", "leiden-1", "leiden-2"]);
}

#[test]
fn what_cannot_be_done_is_said() {
    let mut pool = MadeUp::new(4, 2, 1);
    pool.kill("leiden-2");
    pool.drain("leiden-1");
    let (dashboard, noted) = steered(&pool);
    for (body, status, words) in [
        (
            r#"{"node": "delft-1"}"#,
            409,
            "no other node is there to take over",
        ),
        (r#"{"node": "leiden-2"}"#, 409, "leiden-2 has gone"),
        (r#"{"node": "leiden-1"}"#, 409, "about to leave already"),
        (r#"{"node": "nobody"}"#, 404, "no node is called nobody"),
        (
            r#"{"site": "leiden"}"#,
            404,
            "no node of a site called leiden",
        ),
        (r#"{"nodes": []}"#, 400, r#"{"node": "NAME"}"#),
        ("", 400, "JSON"),
    ] {
        let answer = drain(&dashboard, body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert!(answer.body.contains(words), "{body}: {}", answer.body);
    }
    assert_eq!(noted.asked.lock().expect("held by nobody").len(), 0);
}

#[test]
fn other_pages_of_the_same_browser_change_nothing() {
    let (dashboard, noted) = steered(&MadeUp::new(2, 2, 1));
    let addr = addr(&dashboard);
    let body = r#"{"node": "leiden-1"}"#;
    let own = format!("Origin: http://{addr}");
    for (head, status) in [
        (vec![], 403),
        (vec!["Content-Type: text/plain"], 403),
        (vec!["x-satin: 1", "Origin: http://evil.example"], 403),
        (vec!["x-satin: 1", "Origin: null"], 403),
        (vec![own.as_str()], 403),
        (vec!["x-satin: 1", own.as_str()], 200),
    ] {
        let answer = ask(addr, "POST /api/drain", &head, body);
        assert_eq!(answer.status, status, "{head:?}: {}", answer.body);
    }
    assert_eq!(ask(addr, "GET /api/drain", &[], "").status, 405);
    assert_eq!(*noted.asked.lock().expect("held by nobody"), ["leiden-1"]);
}

#[test]
fn without_steering_the_page_shows_only() {
    let dashboard = show(&MadeUp::new(2, 2, 1));
    let answer = drain(&dashboard, r#"{"node": "leiden-1"}"#);
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("satin drain"), "{}", answer.body);
}
