//! What `satin k8s` prints is what Kubernetes takes: each object is read as the type that `k8s-openapi` makes of the published
//! schema (of Kubernetes 1.33), and written again. A field that the schema does not know, or whose form is another, is lost on the way
//! or refused, and the two differ.

use std::process::Command;

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{Secret, Service},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

const IMAGE: [&str; 2] = ["--image", "registry.example/program:1"];

#[track_caller]
fn objects(more: &[&str]) -> Vec<Value> {
    let text = printed(more);
    let documents = text.split("\n---\n").skip(1);
    let object = |text: &str| serde_saphyr::from_str::<Value>(text).expect("YAML");
    documents.map(object).collect()
}

#[track_caller]
fn printed(more: &[&str]) -> String {
    let has_nodes = more.iter().any(|word| word.starts_with("--nodes"));
    let nodes: &[&str] = if has_nodes { &[] } else { &["--nodes=8"] };
    let output = Command::new(env!("CARGO_BIN_EXE_satin"))
        .arg("k8s")
        .args(IMAGE)
        .args(nodes)
        .args(more)
        .output()
        .expect("satin starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

/// The object as the schema has it.
#[track_caller]
fn checked<T: Serialize + DeserializeOwned>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).expect("of that kind");
    let again = serde_json::to_value(&typed).expect("JSON");
    assert_eq!(*object, again);
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("there is no {kind}"))
}

/// The value of a variable of the pod's container.
fn variable<'a>(object: &'a Value, name: &str) -> &'a Value {
    let env = &object["spec"]["template"]["spec"]["containers"][0]["env"];
    let mut rows = env.as_array().expect("variables").iter();
    let row = rows.find(|row| row["name"] == name);
    &row.unwrap_or_else(|| panic!("{name} is not set"))["value"]
}

#[test]
fn every_object_is_of_its_published_schema() {
    let all = [
        "--memory=8Gi",
        "--namespace=batch",
        "--name=fib",
        "--grace=60",
        "--liveness",
        "--site=east",
        "--store=satin://s1:7800",
        "--env",
        "RUST_BACKTRACE=1",
        "--env",
        "A=yes: \"0\"",
        "--",
        "42",
        "0",
        "true",
    ];
    for more in [&all[..], &[]] {
        let objects = objects(more);
        for object in &objects {
            match object["kind"].as_str().expect("a kind") {
                "Secret" => checked::<Secret>(object),
                "Service" => checked::<Service>(object),
                "Job" => checked::<Job>(object),
                "StatefulSet" => checked::<StatefulSet>(object),
                other => panic!("an object of the kind {other}"),
            }
        }
        assert_eq!(objects.len(), 5);
    }
}

#[test]
fn a_misspelt_field_would_be_found() {
    let objects = objects(&[]);
    let mut job = of_kind(&objects, "Job").clone();
    job["spec"]["template"]["spec"]["terminationGraceSeconds"] = 60.into();
    let typed: Job = serde_json::from_value(job.clone()).expect("a job");
    assert_ne!(job, serde_json::to_value(&typed).expect("JSON"));
}

#[test]
fn text_stays_text() {
    let objects = objects(&[
        "--env",
        "A=0123",
        "--env",
        "B=yes",
        "--env",
        "C=a: b # c",
        "--",
        "42",
        "true",
        "-x",
    ]);
    let job = of_kind(&objects, "Job");
    for (name, value) in [("A", "0123"), ("B", "yes"), ("C", "a: b # c")] {
        assert_eq!(variable(job, name), value);
    }
    let args = &job["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(*args, serde_json::json!(["42", "true", "-x"]));
}

#[test]
fn workers_look_for_the_node_of_the_job_alone_and_it_for_all() {
    let objects = objects(&["--name=fib"]);
    let (job, workers) = (of_kind(&objects, "Job"), of_kind(&objects, "StatefulSet"));
    assert_eq!(variable(job, "SATIN_JOIN"), "dns:fib:7777");
    assert_eq!(variable(workers, "SATIN_JOIN"), "dns:fib-main:7777");
    assert_eq!(workers["spec"]["replicas"], 7);
    // A Service is for the pods that have all of its labels.
    let selects = |service: &Value, object: &Value| {
        let selector = service["spec"]["selector"].as_object().expect("labels");
        let labels = &object["spec"]["template"]["metadata"]["labels"];
        selector.iter().all(|(key, value)| labels[key] == *value)
    };
    for (name, of_job, of_workers) in [("fib", true, true), ("fib-main", true, false)] {
        let mut services = objects.iter().filter(|object| object["kind"] == "Service");
        let service = services.find(|service| service["metadata"]["name"] == name);
        let service = service.expect("a service");
        assert_eq!(
            (selects(service, job), selects(service, workers)),
            (of_job, of_workers)
        );
        assert_eq!(service["spec"]["clusterIP"], "None");
    }
}

#[test]
fn a_pod_has_more_time_to_leave_than_its_node() {
    for object in ["Job", "StatefulSet"] {
        let objects = objects(&["--grace=60"]);
        let object = of_kind(&objects, object);
        assert_eq!(variable(object, "SATIN_GRACE"), "60");
        assert_eq!(
            object["spec"]["template"]["spec"]["terminationGracePeriodSeconds"],
            70
        );
    }
}

#[test]
fn each_pool_has_a_credential_of_its_own() {
    let credential = |more: &[&str]| {
        let objects = objects(more);
        let text = of_kind(&objects, "Secret")["stringData"]["pool.pem"]
            .as_str()
            .expect("text")
            .to_owned();
        satin_runtime::net::Credential::parse(text.as_bytes()).expect("a credential");
        text
    };
    assert_ne!(credential(&[]), credential(&[]));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pool.pem");
    satin_runtime::net::Credential::write_new(&file).expect("written");
    let given = credential(&["--credential", file.to_str().expect("text")]);
    assert_eq!(given, std::fs::read_to_string(&file).expect("readable"));
}

#[test]
fn one_node_needs_no_workers() {
    let objects = objects(&["--nodes=1"]);
    assert!(objects.iter().all(|object| object["kind"] != "StatefulSet"));
}

#[test]
fn what_kubernetes_would_refuse_is_refused_here() {
    for (flag, expected) in [
        ("--name=Fib", "--name Fib: expected a name"),
        ("--cpus=four", "expected a number of cores"),
        ("--memory=8GB", "expected bytes such as 8Gi"),
        ("--namespace=a_b", "--namespace a_b"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_satin"))
            .args(["k8s", "--image=i", "--nodes=2", flag])
            .output()
            .expect("satin starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(expected),
            "{flag}: {said}"
        );
    }
}

#[test]
fn the_examples_of_satin_k8s_work() {
    let help = Command::new(env!("CARGO_BIN_EXE_satin"))
        .args(["k8s", "--help"])
        .output()
        .expect("satin starts");
    let help = String::from_utf8(help.stdout).expect("text");
    let (_, examples) = help.split_once("Examples:\n").expect("examples");
    let document = include_str!("../../docs/src/running-on-kubernetes.md");
    let block = document
        .split("```sh\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let examples = format!("{examples}\n{}", block.expect("a command"));
    let examples = examples.replace("\\\n", " ");
    let examples: Vec<&str> = (examples.lines())
        .filter(|line| line.trim().starts_with("satin k8s"))
        .collect();
    assert_eq!(examples.len(), 3, "{examples:?}");
    for example in examples {
        let words = example
            .split_whitespace()
            .skip(1)
            .take_while(|word| *word != ">");
        let output = Command::new(env!("CARGO_BIN_EXE_satin"))
            .args(words)
            .output()
            .expect("satin starts");
        assert!(output.status.success(), "{example}");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains("kind: Job\n"), "{example}");
    }
}
