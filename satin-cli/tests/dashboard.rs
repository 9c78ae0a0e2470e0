//! The dashboard of a pool of real processes: a node is killed, one is asked to leave from the page, and in the end report and trace tell of it.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use satin_cli::{
    pool::{Control, LocalPool, Output, Plan},
    sites::Sites,
};
use satin_runtime::window::Views;
use serde_json::{Value, json};

// The chromedriver of the tests of the page itself.
#[allow(
    dead_code,
    reason = "the tests of the page want more than the tests of a pool"
)]
#[path = "../../satin-runtime/tests/dashboard/browser.rs"]
mod browser;
mod common;

use browser::Browser;
use common::{PATIENCE, example};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A pool at two sites that has more to do than the test waits for, in jobs of two seconds, with a dashboard, a report and a trace.
fn start(scratch: &Path) -> LocalPool {
    let program = example("knary");
    let arguments = ["2", "2000", "1000", "--sleep"].map(Into::into);
    let program = std::iter::once(program.into_os_string()).chain(arguments);
    let sites = "delft:2,leiden:2".parse::<Sites>().expect("two sites");
    let plan = Plan {
        threads: Some(1),
        output: Output::Keep,
        views: Views {
            dashboard: Some(([127, 0, 0, 1], 0).into()),
            report: Some(scratch.join("run.html")),
            trace: Some(scratch.join("run.json")),
        },
        ..Plan::new(program, sites)
    };
    LocalPool::start(plan, Control::new()).expect("started")
}

/// Lets the launcher work until it is so.
#[track_caller]
fn until(pool: &mut LocalPool, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < PATIENCE,
            "never: {what}\n{}",
            pool.stderr()
        );
        let look = Duration::from_millis(20);
        pool.wait_for(look, |_| false).expect("events");
    }
}

/// The pool, as the dashboard tells it to programs.
fn status(url: &str) -> Value {
    let answer = minreq::get(format!("{url}api/status")).send();
    let answer = answer.expect("an answer");
    serde_json::from_str(answer.as_str().expect("text")).expect("JSON")
}

/// All that a page is told when it is opened.
fn frame(url: &str) -> Value {
    let live = minreq::get(format!("{url}api/live")).send_lazy();
    let lines = BufReader::new(live.expect("an answer")).lines();
    let mut data =
        lines.filter_map(|line| Some(line.expect("text").strip_prefix("data: ")?.to_owned()));
    serde_json::from_str(&data.next().expect("a frame")).expect("JSON")
}

/// Has that frame an arrow from a node at a time at which it is known what that node did?
fn has_arrow(frame: &Value) -> bool {
    let numbers = |name: &str| -> Vec<i64> {
        let numbers = frame[name].as_array().expect("numbers").iter();
        numbers.map(|it| it.as_i64().expect("a number")).collect()
    };
    let spans = numbers("spans");
    numbers("arrows").chunks(8).any(|arrow| {
        let (from, node, sent) = (arrow[0], arrow[1], arrow[4] - arrow[5]);
        let knows = |span: &[i64]| span[0] == from && span[2] <= sent;
        assert_ne!(from, node);
        spans.chunks(6).any(knows)
    })
}

fn state(status: &Value, name: &str) -> String {
    let nodes = status["nodes"].as_array().expect("nodes");
    let node = nodes.iter().find(|node| node["name"] == name);
    node.and_then(|node| node["state"].as_str())
        .unwrap_or_default()
        .into()
}

/// What is written of the pool in the end tells of all nodes.
fn end(pool: LocalPool, scratch: &Path) {
    pool.stopper().stop(SIGTERM);
    pool.wait().expect("it ends");
    let report = fs::read_to_string(scratch.join("run.html")).expect("written");
    let trace = fs::read_to_string(scratch.join("run.json")).expect("written");
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    for name in ["delft-0", "delft-1", "leiden-0", "leiden-1"] {
        assert!(report.contains(name), "{name} is in the report");
        let is_named = |event: &&Value| {
            event["args"]["name"]
                .as_str()
                .is_some_and(|it| it.starts_with(name))
        };
        assert!(events.iter().any(|event| is_named(&event)), "{name}");
    }
    // What workers ran: slices have the name of the function, except for the moment in which a worker takes a job.
    let ran = events
        .iter()
        .filter(|event| event["cat"] == "run" || event["cat"] == "run_stolen");
    let names: BTreeSet<&str> = ran.filter_map(|slice| slice["name"].as_str()).collect();
    assert!(names.contains("knary"), "{names:?}");
    let known = BTreeSet::from(["knary", "run", "run_stolen"]);
    assert!(names.is_subset(&known), "{names:?}");
    let ids = |phase: &str| -> BTreeSet<u64> {
        let ends = events.iter().filter(|event| event["ph"] == phase);
        ends.filter_map(|event| event["id"].as_u64()).collect()
    };
    assert!(!ids("s").is_empty(), "jobs have gone from node to node");
    assert_eq!(ids("s"), ids("f"));
    assert!(report.contains(r#""functions":["knary"]"#));
}

#[test]
fn programs_see_who_dies_and_ask_nodes_to_leave() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut pool = start(scratch.path());
    let url = pool.dashboard().expect("a dashboard").to_owned();
    let is = |name: &'static str, wanted: &'static str| {
        let url = url.clone();
        move || state(&status(&url), name) == wanted
    };
    until(&mut pool, "all four run something", || {
        let status = status(&url);
        let nodes = status["nodes"].as_array().expect("nodes");
        let runs = |node: &&Value| {
            node["activity"]["run"].is_f64() || node["activity"]["run_stolen"].is_f64()
        };
        nodes.iter().filter(runs).count() == 4
    });
    until(&mut pool, "a job has come from another node", || {
        has_arrow(&frame(&url))
    });
    assert_eq!(status(&url)["master"], "delft-0");
    let metrics = minreq::get(format!("{url}metrics"))
        .send()
        .expect("metrics");
    assert!(
        metrics
            .as_str()
            .expect("text")
            .contains("satin_nodes{state=\"joined\"} 4")
    );
    pool.signal("leiden-1", SIGKILL);
    until(&mut pool, "a dead node is shown", is("leiden-1", "dead"));
    let asked = minreq::post(format!("{url}api/drain"))
        .with_header("X-Satin", "1")
        .with_body(json!({ "node": "delft-1" }).to_string())
        .send()
        .expect("an answer");
    assert_eq!(asked.status_code, 200, "{:?}", asked.as_str());
    until(&mut pool, "it has left", is("delft-1", "left"));
    end(pool, scratch.path());
}

/// By the environment alone: a program that runs by itself, and one that is a node. Both say where the dashboard is, and leave report and trace.
#[test]
fn any_program_shows_what_its_environment_asks_for() {
    let scratch = tempfile::tempdir().expect("a directory");
    let credential = scratch.path().join("pool.pem");
    satin_runtime::net::Credential::write_new(&credential).expect("written");
    for is_node in [false, true] {
        let [report, trace] =
            ["html", "json"].map(|end| scratch.path().join(format!("{is_node}.{end}")));
        let mut program = Command::new(example("fib"));
        program
            .arg("32")
            .env("SATIN_DASHBOARD", "127.0.0.1:0")
            .env("SATIN_REPORT", &report)
            .env("SATIN_TRACE", &trace)
            .env("SATIN_NAME", "node-of-test");
        if is_node {
            program.env("SATIN_LISTEN", "127.0.0.1:0");
            program.env("SATIN_CREDENTIAL", &credential);
        }
        let ended = program.output().expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
        assert!(
            said.contains("satin: dashboard: http://127.0.0.1:"),
            "{said}"
        );
        let page = fs::read_to_string(report).expect("written");
        let name = if is_node { "node-of-test" } else { "node-" };
        assert!(page.starts_with("<!doctype html>") && page.contains(name));
        let trace = fs::read_to_string(trace).expect("written");
        let trace: Value = serde_json::from_str(&trace).expect("JSON");
        assert!(trace["traceEvents"].is_array());
    }
    // What cannot be written is said before anything is computed.
    let refused = Command::new(example("fib"))
        .arg("60")
        .env("SATIN_REPORT", "/nowhere/run.html")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("cannot write /nowhere/run.html") && said.contains("S0314"),
        "{said}"
    );
    // An address that is taken takes the dashboard away, not the program.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let ended = Command::new(example("fib"))
        .arg("20")
        .env(
            "SATIN_DASHBOARD",
            taken.local_addr().expect("bound").to_string(),
        )
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && said.contains("the program runs without"),
        "{said}"
    );
}

#[test]
fn a_person_sees_who_dies_and_asks_a_node_to_leave() {
    let Some(browser) = Browser::start("a_person_sees_who_dies_and_asks_a_node_to_leave") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let mut pool = start(scratch.path());
    browser.resize(1440, 900);
    let url = pool.dashboard().expect("a dashboard").to_owned();
    browser.open(&url);
    let shows = |name: &str, state: &str| {
        format!(
            "[...document.querySelectorAll('button.node')].some(cell => cell.getAttribute('aria-label').startsWith('{name}, ') && cell.dataset.state === '{state}')"
        )
    };
    let is_true = |expression: String| {
        let browser = &browser;
        move || browser.read(&expression) == json!(true)
    };
    let all = "document.querySelectorAll('button.node[data-state=joined]').length === 4".to_owned();
    until(&mut pool, "four nodes", is_true(all));
    until(&mut pool, "a job has come from another node", || {
        has_arrow(&frame(&url))
    });
    let arrows = "pool.arrows.length > 0".to_owned();
    until(&mut pool, "arrows", is_true(arrows));
    pool.signal("leiden-1", SIGKILL);
    until(&mut pool, "a death", is_true(shows("leiden-1", "dead")));
    browser.click("button.node[aria-label^='delft-1,']");
    browser.click("#drain-node");
    browser.click("#confirm-yes");
    until(&mut pool, "a departure", is_true(shows("delft-1", "left")));
    end(pool, scratch.path());
}
