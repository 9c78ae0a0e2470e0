//! What `satin k8s` prints is what Kubernetes takes: each object is read as the type that `k8s-openapi` makes of the published
//! schema (of Kubernetes 1.33), and written again. A field that the schema does not know, or whose form is another, is lost on the way
//! or refused, and the two differ.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{Secret, Service},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

mod common;

use common::{
    PATIENCE, example,
    machines::{ADDRESSES, TwoMachines},
};

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

// ----------------------------------------------------------------------------------------------------------- as pods

/// Two machines as two pods, whose names are those of the Services: the Job's pod is on the first.
struct Pods {
    machines: TwoMachines,
    objects: Vec<Value>,
    scratch: tempfile::TempDir,
}

/// A pod that runs. Dropping it kills it.
struct Pod(Child);

impl Pods {
    /// `None`, and says so, where this process may not make namespaces.
    fn new(test: &str) -> Option<Pods> {
        let Some(machines) = TwoMachines::new() else {
            println!("skipped: {test}: needs root and iproute2 for network namespaces");
            return None;
        };
        let [job, worker] = ADDRESSES;
        machines.set_names(&format!("{job} fib-main\n{job} fib\n{worker} fib\n"));
        let pods = Pods {
            machines,
            objects: objects(&["--name=fib", "--nodes=2"]),
            scratch: tempfile::tempdir().expect("a directory"),
        };
        let secret = of_kind(&pods.objects, "Secret")["stringData"]["pool.pem"].as_str();
        fs::write(pods.file("pool.pem"), secret.expect("text")).expect("written");
        Some(pods)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    /// Starts the container of an object, with the variables that are printed; the mounted credential is elsewhere.
    fn start(&self, kind: &str, name: &str) -> Pod {
        let object = of_kind(&self.objects, kind);
        let machine = usize::from(kind != "Job");
        let env = &object["spec"]["template"]["spec"]["containers"][0]["env"];
        let mut command = self.machines.at(machine, &example("knary"));
        command.args(["3", "6", "100000", "--sleep"]);
        for row in env.as_array().expect("variables") {
            if let (Some(name), Some(value)) = (row["name"].as_str(), row["value"].as_str()) {
                command.env(name, value);
            }
        }
        let log = || fs::File::create(self.file(name)).expect("made");
        command
            .env("SATIN_NAME", name)
            .env("SATIN_CREDENTIAL", self.file("pool.pem"))
            .env("SATIN_EVENTS", self.file("events"))
            .env("SATIN_THREADS", "1")
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log());
        Pod(command.spawn().expect("it starts"))
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Waits for an event of a node.
    #[track_caller]
    fn wait_for(&self, event: &str, name: &str) {
        let event = format!("\"event\":\"{event}\"");
        let name = format!("\"name\":\"{name}\"");
        self.wait_until(&event, || {
            let events = self.text("events");
            events
                .lines()
                .any(|line| line.contains(&event) && line.contains(&name))
        });
    }

    #[track_caller]
    fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let began = Instant::now();
        while !condition() {
            let events = self.text("events");
            assert!(began.elapsed() < PATIENCE, "{what} did not come: {events}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The exit code of a pod, at its end.
    #[track_caller]
    fn code(&self, pod: &mut Pod) -> Option<i32> {
        let mut code = None;
        self.wait_until("the end of a pod", || {
            match pod.0.try_wait().expect("a child") {
                Some(status) => {
                    code = status.code();
                    true
                }
                None => false,
            }
        });
        code
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The worker is there first and founds nothing; it takes over when the Job's pod dies; the Job's next pod joins it; and a worker that is started
/// anew when all is over does not begin again.
#[test]
fn pods_make_one_pool_whatever_dies() {
    let Some(pods) = Pods::new("pods_make_one_pool_whatever_dies") else {
        return;
    };
    let waits = |name: &str| {
        pods.wait_until("a warning", || pods.text(name).contains("keeps trying"));
        let masters = pods.text("events").matches("\"event\":\"master\"").count();
        let is_master = pods
            .text("events")
            .lines()
            .any(|line| line.contains("\"master\"") && line.contains(name));
        assert!(!is_master, "{masters} masters: {}", pods.text("events"));
    };
    let mut worker = pods.start("StatefulSet", "fib-worker-0");
    waits("fib-worker-0");
    let first = pods.start("Job", "fib-job-1");
    pods.wait_for("master", "fib-job-1");
    pods.wait_for("joined", "fib-worker-0");
    pods.wait_for("root_started", "fib-job-1");
    drop(first);
    pods.wait_for("master", "fib-worker-0");
    let mut second = pods.start("Job", "fib-job-2");
    pods.wait_for("joined", "fib-job-2");
    assert_eq!(
        pods.code(&mut worker),
        Some(0),
        "{}",
        pods.text("fib-worker-0")
    );
    assert_eq!(
        pods.code(&mut second),
        Some(0),
        "{}",
        pods.text("fib-job-2")
    );
    assert!(pods.text("fib-worker-0").contains("= 216 leaves"));
    let _again = pods.start("StatefulSet", "fib-worker-again");
    waits("fib-worker-again");
}
