use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tracing::Dispatch;

use super::{line::LineFormat, *};

/// Memory that a subscriber writes to.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn subscriber(&self, form: LogForm) -> Dispatch {
        let paper = self.clone();
        Dispatch::new(
            tracing_subscriber::fmt()
                .with_writer(move || paper.clone())
                .with_ansi(false)
                .event_format(LineFormat(form))
                .finish(),
        )
    }

    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().expect("no panic");
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(Into::into).collect()
    }
}

fn node(name: &str) -> LogNode {
    LogNode {
        name: name.into(),
        site: "delft".into(),
        has_network: true,
    }
}

/// Logs what `log` does.
fn lines_of(form: LogForm, log: impl FnOnce()) -> Vec<String> {
    let paper = Paper::default();
    tracing::dispatcher::with_default(&paper.subscriber(form), log);
    paper.lines()
}

/// This test is itself the process that ends so.
#[test]
fn a_panic_of_a_thread_of_the_runtime_ends_the_process() {
    const INSIDE: &str = "SATIN_TEST_PANIC_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        let thread = spawn(Builder::new(), || panic!("as asked")).expect("a thread");
        let _ = thread.join();
        return;
    }
    let name = "observe::log::tests::a_panic_of_a_thread_of_the_runtime_ends_the_process";
    let test = std::env::current_exe().expect("this test");
    let inside = std::process::Command::new(test)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&inside.stderr);
    assert!(said.contains("as asked"), "{said}");
    assert_eq!(inside.status.success(), !cfg!(debug_assertions), "{said}");
}

#[test]
fn a_line_of_json_has_what_collectors_look_for() {
    let lines = lines_of(LogForm::Json, || {
        let _in_scope = LogScope::begin(node("delft-1")).enter();
        let _around = tracing::info_span!("around", depth = 3).entered();
        tracing::info!(jobs = 7_u64, name = %"other", part = 0.5, is_new = true, "a \"word\"");
    });
    let line: Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!(line["level"], "INFO");
    assert_eq!(
        (&line["node"], &line["site"]),
        (&"delft-1".into(), &"delft".into())
    );
    assert_eq!(line["target"], module_path!());
    assert_eq!(line["message"], "a \"word\"");
    let fields = serde_json::json!({"jobs": 7, "name": "other", "part": 0.5, "is_new": true});
    assert_eq!(line["fields"], fields);
    assert_eq!(line["spans"], serde_json::json!([["around", "depth=3"]]));
    let time = line["time"].as_str().expect("text");
    assert!(
        time.starts_with("20") && time.ends_with('Z') && time.contains('T'),
        "{time}"
    );
}

#[test]
fn a_line_of_text_names_the_node_and_hides_our_span() {
    let lines = lines_of(LogForm::Text, || {
        let _in_scope = LogScope::begin(node("delft-2")).enter();
        let _around = tracing::info_span!("around", depth = 3).entered();
        tracing::info!(jobs = 7, "begun");
    });
    let end = format!(
        "  INFO delft-2@delft around{{depth=3}}: {}: begun jobs=7",
        module_path!()
    );
    assert!(lines[0].ends_with(&end), "{lines:?}");
    let alone = LogNode {
        has_network: false,
        ..node("only")
    };
    let lines = lines_of(LogForm::Text, || {
        let _in_scope = LogScope::begin(alone).enter();
        tracing::info!("begun");
    });
    let end = format!("  INFO {}: begun", module_path!());
    assert!(lines[0].ends_with(&end), "{lines:?}");
}

#[test]
fn threads_are_of_the_node_of_the_thread_that_starts_them() {
    let paper = Paper::default();
    let log = |of: &str| {
        let (dispatch, text) = (paper.subscriber(LogForm::Json), of.to_owned());
        let run = move || tracing::dispatcher::with_default(&dispatch, || tracing::info!("{text}"));
        let thread = spawn(Builder::new(), run).expect("a thread");
        thread.join().expect("no panic");
    };
    let outer = LogScope::begin(node("outer"));
    let inner = LogScope::begin(node("inner"));
    let in_outer = outer.enter();
    log("outer");
    let in_inner = inner.enter();
    log("inner");
    drop(in_inner);
    log("outer");
    drop(in_outer);
    let lines = paper.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in lines {
        let line: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(line["node"], line["message"]);
    }
}

/// A subscriber of the program's own, which knows nothing of threads, finds the node in a span.
#[test]
fn a_span_tells_other_subscribers() {
    let paper = Paper::default();
    let writer = paper.clone();
    let theirs = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(theirs, || {
        let _in_scope = LogScope::begin(node("delft-3")).enter();
        tracing::warn!("here");
    });
    let said = paper.lines().concat();
    assert!(
        said.contains(r#"node{name="delft-3" site="delft"}"#),
        "{said}"
    );
}

#[test]
fn warnings_that_say_the_same_again_are_counted() {
    let again = |server: u32| tracing::warn!(server, "the store does not answer");
    let lines = lines_of(LogForm::Text, || {
        for _ in 0..50 {
            again(1);
            again(2);
        }
        tracing::info!("and on");
        tell_counted(true);
    });
    let told: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split_once("tests: ").map(|(_, told)| told))
        .collect();
    assert_eq!(
        told,
        [
            "the store does not answer server=1",
            "the store does not answer server=2",
            "and on"
        ]
    );
    let sum = "98 more warnings in 0 s like this: the store does not answer server=1";
    assert!(lines[3].ends_with(sum), "{lines:?}");
}

#[test]
fn what_is_no_filter_is_not_taken_for_a_target() {
    for text in [
        "info",
        "",
        "warn,satin_runtime=debug",
        "satin=trace,my_program::inner=info",
        "[node{name=\"a\"}]=info,off",
        "satin_runtime[node]=2",
    ] {
        assert!(filter(text).is_some(), "{text}");
    }
    for text in [
        "everything:yes",
        "info,everything:yes",
        "satin=loud",
        "log all",
        "satin=trace, my_program::inner=info", // `EnvFilter` takes no space there
        "::=info",
    ] {
        assert!(filter(text).is_none(), "{text}");
    }
}
