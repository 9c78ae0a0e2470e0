//! What `satin k8s` prints is what Kubernetes takes: each object is read as the type that `k8s-openapi` makes of the published
//! schema (of Kubernetes 1.33), and written again. A field that the schema does not know, or whose form is another, is lost on the way
//! or refused, and the two differ.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        batch::v1::Job,
        core::v1::{Container, PodTemplateSpec, Secret, Service},
    },
    apimachinery::pkg::util::intstr::IntOrString,
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
                "Deployment" => checked::<Deployment>(object),
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
fn nodes_of_the_job_look_for_all_and_further_nodes_for_those_of_the_job() {
    let objects = objects(&["--name=fib"]);
    let (job, workers) = (of_kind(&objects, "Job"), of_kind(&objects, "Deployment"));
    assert_eq!(variable(job, "SATIN_JOIN"), "dns:fib:7777");
    assert_eq!(variable(workers, "SATIN_JOIN"), "dns:fib-main:7777");
    assert_eq!(workers["spec"]["replicas"], 0);
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

/// What Kubernetes does with a Job when a pod of it ends with an exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Complete,
    Failed,
    Replaced,
}

fn then(job: &Job, code: i32) -> Then {
    let spec = job.spec.as_ref().expect("a spec");
    if code == 0 {
        let rules = &spec.success_policy.as_ref().expect("a policy").rules;
        let any = |count| count == Some(1);
        let is_enough = rules
            .iter()
            .any(|rule| any(rule.succeeded_count) && rule.succeeded_indexes.is_none());
        return if is_enough {
            Then::Complete
        } else {
            Then::Replaced
        };
    }
    let rules = &spec.pod_failure_policy.as_ref().expect("a policy").rules;
    for rule in rules {
        let Some(codes) = &rule.on_exit_codes else {
            continue;
        };
        let is_listed = codes.values.contains(&code);
        if is_listed == (codes.operator == "In") {
            assert_eq!(rule.action, "FailJob");
            return Then::Failed;
        }
    }
    Then::Replaced
}

#[test]
fn the_job_ends_as_the_run_does_and_whoever_ends_before_is_replaced() {
    let objects = objects(&["--nodes=8"]);
    let job = of_kind(&objects, "Job");
    assert_eq!(variable(job, "SATIN_EXIT"), "run");
    let job: Job = serde_json::from_value(job.clone()).expect("a job");
    let spec = job.spec.as_ref().expect("a spec");
    // Only Indexed Jobs may have a policy of success.
    assert_eq!(spec.completion_mode.as_deref(), Some("Indexed"));
    assert_eq!((spec.completions, spec.parallelism), (Some(8), Some(8)));
    // A policy of failures is for pods that Kubernetes does not start again in their place.
    let pod = spec.template.spec.as_ref().expect("a spec");
    assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
    assert_eq!(then(&job, 0), Then::Complete);
    // An error of the program, nonsense, a panic, the end of the time.
    for code in [1, 2, 7, 101, 124] {
        assert_eq!(then(&job, code), Then::Failed, "{code}");
    }
    // An abort, a kill, a fault, and a node that was asked to leave.
    for code in [134, 137, 139, 143] {
        assert_eq!(then(&job, code), Then::Replaced, "{code}");
    }
}

#[test]
fn probes_ask_ports_of_their_own_container() {
    let objects = objects(&["--liveness"]);
    for kind in ["Job", "Deployment"] {
        let template = of_kind(&objects, kind)["spec"]["template"].clone();
        let template: PodTemplateSpec = serde_json::from_value(template).expect("a template");
        for container in &template.spec.expect("a spec").containers {
            let Container {
                ports,
                readiness_probe,
                liveness_probe,
                ..
            } = container;
            for probe in [readiness_probe, liveness_probe] {
                let asked = probe.as_ref().and_then(|probe| probe.http_get.as_ref());
                let port = &asked.expect("asks by HTTP").port;
                let is_it = |name: Option<&str>, number: i32| match port {
                    IntOrString::Int(port) => *port == number,
                    IntOrString::String(port) => name == Some(port),
                };
                let mut ports = ports.iter().flatten();
                assert!(
                    ports.any(|port| is_it(port.name.as_deref(), port.container_port)),
                    "{kind}: {port:?}"
                );
            }
        }
    }
}

#[test]
fn a_pod_has_more_time_to_leave_than_its_node() {
    for object in ["Job", "Deployment"] {
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

/// Two machines as two pods, whose names are those of the Services.
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
        // All pods are on the list of a pod of the Job, also of one that has no address yet that the name server knows.
        let [first, second] = ADDRESSES;
        let names = ["fib-main", "fib"].map(|name| format!("{first} {name}\n{second} {name}\n"));
        machines.set_names(&names.concat());
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

    /// Starts a pod of the Job, on the machine of its index, with the variables that are printed; the mounted credential is elsewhere.
    fn start(&self, index: usize, name: &str, program: &str, arguments: &[&str]) -> Pod {
        let object = of_kind(&self.objects, "Job");
        let env = &object["spec"]["template"]["spec"]["containers"][0]["env"];
        let mut command = self.machines.at(index, &example(program));
        command.args(arguments);
        for row in env.as_array().expect("variables") {
            if let (Some(name), Some(value)) = (row["name"].as_str(), row["value"].as_str()) {
                command.env(name, value);
            }
        }
        let log = || fs::File::create(self.file(name)).expect("made");
        command
            // Kubernetes sets it in each pod of an Indexed Job.
            .env("JOB_COMPLETION_INDEX", index.to_string())
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

    /// One that computes for some seconds, and ends well.
    fn start_long(&self, index: usize, name: &str) -> Pod {
        self.start(index, name, "knary", &["3", "6", "150000", "--sleep"])
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

impl Pod {
    /// As Kubernetes does before it takes a pod away.
    fn ask_to_leave(&self) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("kill runs").success());
    }
}

/// The second pod is there first, and founds nothing; it takes over when the first dies, and the next with that index joins it; when that has become
/// master and is asked to leave it is to be replaced, as the run goes on; and all who see the end of the run end as it does.
#[test]
fn pods_make_one_pool_whatever_dies_and_end_as_the_run_does() {
    let Some(pods) = Pods::new("pods_make_one_pool_whatever_dies_and_end_as_the_run_does") else {
        return;
    };
    let mut second = pods.start_long(1, "fib-1-a");
    // Longer than a node waits for another that goes before it on the list.
    pods.wait_until("a warning", || {
        pods.text("fib-1-a").contains("keeps trying")
    });
    assert!(!pods.text("events").contains("\"event\":\"master\""));
    let first = pods.start_long(0, "fib-0-a");
    pods.wait_for("master", "fib-0-a");
    pods.wait_for("joined", "fib-1-a");
    pods.wait_for("root_started", "fib-0-a");
    drop(first);
    pods.wait_for("master", "fib-1-a");
    let mut next = pods.start_long(0, "fib-0-b");
    pods.wait_for("joined", "fib-0-b");
    second.ask_to_leave();
    let code = pods.code(&mut second);
    assert_eq!(code, Some(143), "{}", pods.text("fib-1-a"));
    pods.wait_for("master", "fib-0-b");
    let mut last = pods.start_long(1, "fib-1-b");
    for (pod, name) in [(&mut next, "fib-0-b"), (&mut last, "fib-1-b")] {
        assert_eq!(pods.code(pod), Some(0), "{}", pods.text(name));
    }
    assert!(pods.text("fib-0-b").contains("= 216 leaves"));
}
