//! The files in `deploy/` are what the programs that read them take, as far as that can be known without a cluster or a cloud.

use std::{
    collections::BTreeMap,
    fs,
    net::UdpSocket,
    path::{Path, PathBuf},
    process::Command,
};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::Job,
        core::v1::{ConfigMap, Container},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use satin_runtime::net::DrainWhen;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

mod common;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(deploy(name)).expect("readable")
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn checked<T: Serialize + DeserializeOwned>(name: &str) {
    let object = yaml(name);
    let typed: T = serde_json::from_value(object.clone()).expect("of that kind");
    assert_eq!(
        object,
        serde_json::to_value(&typed).expect("JSON"),
        "{name}"
    );
}

#[test]
fn systemd_takes_the_unit() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: systemd_takes_the_unit: there is no systemd-analyze");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    // The command has to be there, and here it is not installed.
    let there = format!("{} ", env!("CARGO_BIN_EXE_satin"));
    let unit = text("systemd/satin@.service").replace("/usr/local/bin/satin ", &there);
    let file = dir.path().join("satin@.service");
    fs::write(&file, unit).expect("written");
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let is_ours = |line: &str| line.contains("satin");
    assert!(
        output.status.success() && !said.lines().any(is_ours),
        "{said}"
    );
}

#[test]
fn a_unit_gives_a_node_more_time_than_its_grace() {
    let unit = text("systemd/satin@.service");
    let most = (unit.lines()).find_map(|line| line.strip_prefix("TimeoutStopSec="));
    let most = most.expect("the key").trim_end_matches('s');
    let most: u64 = most.parse().expect("a number");
    for (name, settings) in machines() {
        let grace: u64 = settings["SATIN_GRACE"].parse().expect("a number");
        assert!(most >= grace + 10, "{name}: {grace} s");
    }
}

/// The settings of every kind of machine that the unit is for.
fn machines() -> Vec<(&'static str, BTreeMap<String, String>)> {
    let of_cloud = |name: &'static str| {
        let config = yaml(&format!("spot/cloud-init-{name}.yaml"));
        let file = &config["write_files"][0]["content"];
        (name, variables(file.as_str().expect("settings")))
    };
    let example = ("example", variables(&text("systemd/example.env")));
    let clouds = ["aws", "google", "azure"].map(of_cloud);
    clouds.into_iter().chain([example]).collect()
}

#[test]
fn the_files_for_kubernetes_are_of_their_schemas() {
    checked::<HorizontalPodAutoscaler>("kubernetes/hpa.yaml");
    checked::<ConfigMap>("kubernetes/metrics-config.yaml");
    checked::<Job>("kubernetes/metrics-sidecar.yaml");
    let listed = yaml("kubernetes/kustomization.yaml");
    let resources = listed["resources"].as_array().expect("a list");
    for name in resources.iter().filter_map(Value::as_str) {
        let made_by_satin = name == "pool.yaml";
        assert!(
            made_by_satin || deploy("kubernetes").join(name).is_file(),
            "{name}"
        );
    }
    for name in [
        "keda-scaled-object.yaml",
        "pod-monitor.yaml",
        "prometheus-adapter-rule.yaml",
    ] {
        yaml(&format!("kubernetes/{name}"));
    }
}

fn satin_k8s(more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_satin"))
        .args(["k8s", "--image=i", "--name=fib"])
        .args(more)
        .output()
        .expect("satin starts");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn what_autoscalers_change_is_what_satin_k8s_makes() {
    let made = satin_k8s(&["--nodes=2"]);
    for name in ["kubernetes/hpa.yaml", "kubernetes/keda-scaled-object.yaml"] {
        let target = &yaml(name)["spec"]["scaleTargetRef"];
        assert_eq!(target["kind"], "Deployment");
        let name = target["name"].as_str().expect("a name");
        assert!(made.contains(&format!("name: {name}\n")), "{name}");
    }
}

/// The named ports of a container.
fn ports(container: &Container) -> BTreeMap<&str, i32> {
    let ports = container.ports.iter().flatten();
    ports
        .filter_map(|port| Some((port.name.as_deref()?, port.container_port)))
        .collect()
}

#[test]
fn the_files_for_autoscaling_go_together() {
    if Command::new("kubectl")
        .arg("version")
        .arg("--client")
        .output()
        .is_err()
    {
        println!("skipped: the_files_for_autoscaling_go_together: there is no kubectl");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    for file in fs::read_dir(deploy("kubernetes")).expect("files") {
        let file = file.expect("a file");
        fs::copy(file.path(), dir.path().join(file.file_name())).expect("copied");
    }
    let pool = satin_k8s(&["--nodes=1", "--liveness"]);
    fs::write(dir.path().join("pool.yaml"), pool).expect("written");
    let output = Command::new("kubectl")
        .arg("kustomize")
        .arg(dir.path())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let all = String::from_utf8(output.stdout).expect("text");
    let objects: Vec<Value> = (all.split("\n---\n"))
        .map(|text| serde_saphyr::from_str(text).expect("YAML"))
        .collect();
    let of_kind = |kind: &str| {
        let found = objects.iter().find(|object| object["kind"] == kind);
        found.unwrap_or_else(|| panic!("there is no {kind}"))
    };
    let deployment: Deployment =
        serde_json::from_value(of_kind("Deployment").clone()).expect("of that kind");
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    assert_eq!(
        replicas,
        Some(1),
        "autoscalers leave alone what has no pods"
    );
    let job: Job = serde_json::from_value(of_kind("Job").clone()).expect("of that kind");
    let pod = job.spec.expect("a spec").template.spec.expect("a spec");
    let node = &pod.containers[0];
    let sidecars = pod.init_containers.expect("a sidecar");
    let of_node = ports(node);
    let listens = ports(&sidecars[0])["metrics"];
    assert_eq!(pod.containers.len(), 1);
    for probe in [&node.readiness_probe, &node.liveness_probe] {
        let asked = probe.as_ref().and_then(|probe| probe.http_get.as_ref());
        let port = match &asked.expect("asks by HTTP").port {
            IntOrString::Int(port) => *port,
            // Kubernetes looks the name up among the ports of the same container.
            IntOrString::String(name) => of_node[name.as_str()],
        };
        // The dashboard itself listens on the loopback interface only, where no probe comes.
        assert_eq!(port, listens);
    }
    let settings = of_kind("ConfigMap")["data"]["default.conf"].as_str();
    let settings = settings.expect("the configuration of nginx");
    assert!(
        settings.contains(&format!("listen {listens};")),
        "{settings}"
    );
    let variables = node.env.iter().flatten();
    let dashboard: Vec<&str> = variables
        .filter(|row| row.name == "SATIN_DASHBOARD")
        .filter_map(|row| row.value.as_deref())
        .collect();
    let [dashboard] = dashboard[..] else {
        panic!("{dashboard:?}");
    };
    let (host, port) = dashboard.split_once(':').expect("an address");
    assert_eq!(host, "127.0.0.1");
    for path in ["/metrics", "/healthz"] {
        let passes = format!("location = {path} {{ proxy_pass http://localhost:{port};");
        assert!(settings.contains(&passes), "{settings}");
    }
    // One pod of the Job is scraped: each has the figures of the whole pool.
    let monitor = &of_kind("PodMonitor")["spec"];
    assert_eq!(monitor["podMetricsEndpoints"][0]["port"], "metrics");
    let labels = &monitor["selector"]["matchLabels"];
    assert_eq!(labels["batch.kubernetes.io/job-completion-index"], "0");
}

#[test]
fn cloud_init_is_yaml_and_its_commands_are_of_the_shell() {
    for name in ["aws", "google", "azure"] {
        let path = format!("spot/cloud-init-{name}.yaml");
        let config = yaml(&path);
        let commands = config["runcmd"].as_array().expect("commands");
        for command in commands.iter().filter_map(Value::as_str) {
            let status = Command::new("/bin/sh").args(["-n", "-c", command]).status();
            assert!(status.expect("a shell").success(), "{command}");
        }
        let file = &config["write_files"][0]["content"];
        let settings = variables(file.as_str().expect("settings"));
        let when = DrainWhen::parse(&settings["SATIN_DRAIN_WHEN"]).expect("valid");
        assert!(matches!(when, DrainWhen::Cloud { cloud, .. } if cloud.to_string() == name));
        // Images differ in what their packages are called: on Amazon Linux `curl` conflicts with what is there.
        assert_eq!(config["packages"], Value::Null, "{name}");
        // The machine that founds the pool has to be on its own list.
        let founder = "SATIN_JOIN=n1.internal:7777 and SATIN_LISTEN=0.0.0.0:7777.";
        assert!(text(&path).contains(founder), "{name}");
    }
}

/// The variables in a file of systemd.
fn variables(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.to_owned()))
        .collect()
}

/// The first machine of `example.env` is this one: only with an address to listen on it finds itself on the list.
#[test]
fn the_first_machine_of_the_example_founds_the_pool() {
    let dir = tempfile::tempdir().expect("a directory");
    let credential = dir.path().join("pool.pem");
    satin_runtime::net::Credential::write_new(&credential).expect("written");
    let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let here = |value: &str| {
        let value = value.replace("n1.example", "127.0.0.1");
        // The other machine is not there.
        let value = value.replace("n2.example:7777", &format!("127.0.0.1:{port}"));
        value.replace(":7777", &format!(":{port}"))
    };
    let settings = variables(&text("systemd/example.env"));
    for (listens, code) in [(true, 0), (false, 2)] {
        let set = settings
            .iter()
            .filter(|(name, _)| name.starts_with("SATIN_") && (listens || *name != "SATIN_LISTEN"));
        let output = Command::new(common::example("fib"))
            .arg("10")
            .envs(set.map(|(name, value)| (name, here(value))))
            .env("SATIN_CREDENTIAL", &credential)
            .env("SATIN_GIVE_UP", if listens { "100s" } else { "3s" })
            .current_dir(dir.path())
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
    }
}

#[test]
fn the_image_is_built_with_a_rust_that_is_new_enough() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"));
    let manifest = manifest.expect("readable");
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \""));
    let version = version.expect("a version").trim_end_matches('"');
    assert!(text("docker/Dockerfile").contains(&format!("ARG RUST={version}\n")));
}

/// A program that has Satin beside it, as the README says, finds it beside it in the image too.
#[test]
fn the_image_has_satin_where_programs_look_for_it() {
    let readme = fs::read_to_string(deploy("../README.md")).expect("readable");
    let (_, after) = readme
        .split_once("satin = { path = \"")
        .expect("a dependency");
    let (path, _) = after.split_once('"').expect("a path");
    let dockerfile = text("docker/Dockerfile");
    assert!(dockerfile.contains(&format!("--build-context satin={path} ")));
    let (_, build) = dockerfile.split_once(" AS build\n").expect("a stage");
    let word = |key: &str| {
        let line = build.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_else(|| panic!("{key} is missing"))
    };
    let program = Path::new(word("WORKDIR "));
    let satin = Path::new(word("COPY --from=satin . "));
    let from_program = program.parent().expect("a directory");
    assert_eq!(from_program.join(path.trim_start_matches("../")), satin);
    assert_eq!(word("COPY . "), ".");
    assert!(build.contains(&format!("target={}/target ", program.display())));
    // Without the build of Satin on the machine that builds.
    let ignored = fs::read_to_string(deploy("../.dockerignore")).expect("readable");
    assert!(ignored.lines().any(|line| line == "target"));
}
