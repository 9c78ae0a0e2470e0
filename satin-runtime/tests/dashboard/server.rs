//! What the server answers.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use satin_runtime::{
    dashboard::{Dashboard, metrics},
    observe::history::{NodeState, Picture},
};
use serde_json::Value;

use super::{
    client::{Events, addr, ask, get},
    pool::MadeUp,
};

pub fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

pub fn show(pool: &MadeUp) -> Dashboard {
    Dashboard::start(loopback(), Arc::clone(&pool.history), None).expect("started")
}

#[test]
fn the_status_is_the_picture_of_the_pool() {
    let mut pool = MadeUp::new(4, 2, 2);
    pool.step();
    pool.step();
    pool.kill("leiden-2");
    let dashboard = show(&pool);
    let answer = get(addr(&dashboard), "/api/status");
    assert_eq!(answer.status, 200);
    assert!(
        answer.head.contains("content-type: application/json"),
        "{}",
        answer.head
    );
    let told: Picture = serde_json::from_str(&answer.body).expect("a picture");
    let picture = pool.history.lock().expect("held by nobody").picture();
    let expected = serde_json::to_string(&picture).expect("JSON");
    assert_eq!(answer.body.trim_end(), expected);
    assert_eq!(told.nodes[3].state, NodeState::Dead);
    assert_eq!(told.master.as_deref(), Some("delft-1"));
    assert_eq!(told.progress.map(|progress| progress.done), Some(0.008));
}

#[test]
fn the_page_is_one_file_that_loads_nothing_from_elsewhere() {
    let dashboard = show(&MadeUp::new(1, 1, 1));
    let answer = get(addr(&dashboard), "/");
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .head
            .contains("content-security-policy: default-src 'none'"),
        "{}",
        answer.head
    );
    let page = answer.body;
    for part in [
        "/*STYLE*/",
        "/*SCRIPT*/",
        "/*DATA*/",
        " src=",
        "@import",
        "url(",
        "https://",
    ] {
        assert!(!page.contains(part), "the page has {part}");
    }
    // The name space of its icon.
    assert_eq!(page.matches("http://").count(), 1);
    assert!(page.contains("new EventSource('api/live')"));
}

#[test]
fn health_and_unknown_paths_are_answered() {
    let dashboard = show(&MadeUp::new(1, 1, 1));
    assert_eq!(get(addr(&dashboard), "/healthz").status, 200);
    let missing = get(addr(&dashboard), "/favicon.ico");
    assert_eq!(missing.status, 404);
    assert!(missing.body.contains("/api/status"), "{}", missing.body);
}

#[test]
fn metrics_are_lines_that_prometheus_reads() {
    let mut pool = MadeUp::new(3, 2, 2);
    (0..3).for_each(|_| pool.step());
    pool.kill("leiden-1");
    let dashboard = show(&pool);
    let answer = get(addr(&dashboard), "/metrics");
    assert_eq!(answer.status, 200);
    let text = metrics(&pool.history.lock().expect("held by nobody"));
    assert_eq!(answer.body, text);
    let (mut families, mut series) = (HashSet::new(), HashSet::new());
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').expect("a kind");
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(families.insert(name), "{name} is declared twice");
        } else if !line.starts_with('#') {
            let (key, value) = line.rsplit_once(' ').expect("a value");
            value.parse::<f64>().expect("a number");
            let name = key.split('{').next().expect("a name");
            assert!(families.contains(name), "{line} stands before its type");
            assert!(series.insert(key), "{key} is told twice");
        }
    }
    for key in [
        r#"satin_nodes{state="dead"}"#,
        r#"satin_node_jobs_total{node="delft-2",site="delft"}"#,
        r#"satin_node_up{node="leiden-1",site="leiden"}"#,
        "satin_hungry",
        "satin_repairs_total",
    ] {
        assert!(series.contains(key), "no {key} in\n{text}");
    }
    assert!(text.contains("satin_nodes{state=\"joined\"} 2\n"), "{text}");
    assert!(text.contains("satin_workers 4\n"), "{text}");
}

#[test]
fn a_page_is_told_what_is_new_and_when_the_node_ends() {
    let mut pool = MadeUp::new(2, 2, 2);
    pool.step();
    let dashboard = show(&pool);
    let mut events = Events::open(addr(&dashboard));
    let frame = |(name, data): (String, String)| {
        let frame: Value = serde_json::from_str(&data).expect("JSON");
        (name, frame)
    };
    let (name, first) = frame(events.next().expect("a frame"));
    assert_eq!(name, "frame");
    assert_eq!(
        first["picture"]["nodes"].as_array().expect("nodes").len(),
        2
    );
    assert_eq!(first["events"].as_array().expect("events").len(), 2);
    assert!(!first["spans"].as_array().expect("spans").is_empty());
    // Without news the connection shows that it stands.
    assert_eq!(events.next().expect("a sign").0, "beat");
    pool.kill("leiden-1");
    pool.step();
    let mut later = events.by_ref().map(frame);
    let (_, second) = later.find(|(name, _)| name == "frame").expect("a frame");
    assert_eq!(second["events"][0]["text"], "leiden-1 in leiden died");
    assert_eq!(second["picture"]["nodes"][1]["state"], "dead");
    // No span of the first frame again, but those that went on.
    let new_spans = second["spans"].as_array().expect("spans").len() / 6;
    assert!((1..60).contains(&new_spans), "{new_spans}");
    drop(dashboard);
    let rest: Vec<String> = events.map(|(name, _)| name).collect();
    assert_eq!(rest.last().map(String::as_str), Some("end"), "{rest:?}");
}

#[test]
fn pages_that_open_themselves_again_and_again_are_refused() {
    let dashboard = show(&MadeUp::new(1, 1, 1));
    let mut open: Vec<Events> = (0..32).map(|_| Events::open(addr(&dashboard))).collect();
    for events in &mut open {
        events.next().expect("a frame");
    }
    assert_eq!(get(addr(&dashboard), "/api/live").status, 503);
    assert_eq!(get(addr(&dashboard), "/healthz").status, 200);
}

#[test]
fn other_names_of_this_machine_are_refused_on_loopback() {
    let dashboard = show(&MadeUp::new(1, 1, 1));
    let refused = ask(
        addr(&dashboard),
        "GET /api/status",
        &["Host: evil.example"],
        "",
    );
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("localhost"), "{}", refused.body);
    let own = ask(
        addr(&dashboard),
        "GET /api/status",
        &["Host: localhost:9"],
        "",
    );
    assert_eq!(own.status, 200);
}

#[test]
fn on_other_addresses_a_token_is_demanded() {
    let pool = MadeUp::new(1, 1, 1);
    let everywhere = (Ipv4Addr::UNSPECIFIED, 0).into();
    let dashboard = Dashboard::start(everywhere, Arc::clone(&pool.history), None).expect("started");
    let addr = addr(&dashboard);
    let (_, token) = dashboard.url().split_once("/?token=").expect("a token");
    assert_eq!(token.len(), 32);
    for path in [
        "/",
        "/api/status",
        "/api/live",
        "/metrics",
        "/?token=0",
        "/?token=",
    ] {
        let refused = get(addr, path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.body.contains("printed"), "{}", refused.body);
    }
    assert_eq!(get(addr, "/healthz").status, 200);
    assert_eq!(get(addr, &format!("/metrics?token={token}")).status, 200);
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(ask(addr, "GET /api/status", &[&bearer], "").status, 200);
    // The page keeps the token in a cookie, and takes it out of the address.
    let first = get(addr, &format!("/?token={token}"));
    assert_eq!(first.status, 303);
    let cookie = first
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let (cookie, rest) = cookie
        .expect("a cookie")
        .split_once(';')
        .expect("attributes");
    assert!(
        rest.contains("httponly") && rest.contains("samesite=strict"),
        "{rest}"
    );
    let with_cookie = format!("Cookie: other=1; {cookie}");
    assert_eq!(ask(addr, "GET /", &[&with_cookie], "").status, 200);
}

#[test]
fn an_address_in_use_is_an_error_that_says_what_to_do() {
    let pool = MadeUp::new(1, 1, 1);
    let dashboard = show(&pool);
    let again = Dashboard::start(addr(&dashboard), Arc::clone(&pool.history), None);
    let error = again.err().expect("in use").to_string();
    assert!(
        error.contains("choose another port, or 127.0.0.1:0"),
        "{error}"
    );
}
