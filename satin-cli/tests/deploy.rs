//! The files in `deploy/` are what the programs that read them take, as far as that can be known without a cluster or a cloud.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    autoscaling::v2::HorizontalPodAutoscaler, batch::v1::Job, core::v1::ConfigMap,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

mod common;

use common::PATIENCE;

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
fn systemd_takes_the_units() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: systemd_takes_the_units: there is no systemd-analyze");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    for (unit, command) in [
        ("systemd/satin@.service", "/usr/local/bin/satin "),
        ("spot/spot-notice@.service", "/usr/local/bin/spot-notice "),
    ] {
        // The command has to be there, and here it is not installed.
        let there = format!("{} ", env!("CARGO_BIN_EXE_satin"));
        let unit_text = text(unit).replace(command, &there);
        let file = dir
            .path()
            .join(Path::new(unit).file_name().expect("a name"));
        fs::write(&file, unit_text).expect("written");
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&file)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let ours: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("satin") || line.contains("spot-notice"))
            .collect();
        assert!(output.status.success() && ours.is_empty(), "{unit}: {said}");
    }
}

#[test]
fn a_unit_gives_a_node_more_time_than_its_grace() {
    let unit = text("systemd/satin@.service");
    let number = |text: &str, key: &str| -> u64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .expect("the key");
        line.trim_end_matches('s').parse().expect("a number")
    };
    let grace = number(&text("systemd/example.env"), "SATIN_GRACE=");
    assert!(number(&unit, "TimeoutStopSec=") >= grace + 10);
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

#[test]
fn what_autoscalers_change_is_what_satin_k8s_makes() {
    let output = Command::new(env!("CARGO_BIN_EXE_satin"))
        .args(["k8s", "--image=i", "--nodes=2", "--name=fib"])
        .output()
        .expect("satin starts");
    let made = String::from_utf8(output.stdout).expect("text");
    for name in ["kubernetes/hpa.yaml", "kubernetes/keda-scaled-object.yaml"] {
        let target = &yaml(name)["spec"]["scaleTargetRef"];
        assert_eq!(target["kind"], "StatefulSet");
        let name = target["name"].as_str().expect("a name");
        assert!(made.contains(&format!("name: {name}\n")), "{name}");
    }
}

#[test]
fn cloud_init_is_yaml_and_its_commands_are_of_the_shell() {
    for cloud in ["aws", "google", "azure"] {
        let config = yaml(&format!("spot/cloud-init-{cloud}.yaml"));
        let commands = config["runcmd"].as_array().expect("commands");
        for command in commands.iter().filter_map(Value::as_str) {
            let status = Command::new("/bin/sh").args(["-n", "-c", command]).status();
            assert!(status.expect("a shell").success(), "{command}");
        }
        let file = &config["write_files"][0]["content"];
        let settings = file.as_str().expect("settings");
        assert!(
            settings.contains("SATIN_DRAIN_WHEN=file:/run/satin/notice"),
            "{settings}"
        );
    }
}

/// A metadata service that answers as a cloud does: `answer` gets the number of requests for the notice so far, and the
/// request's first line and headers. Its address, and the number of these requests.
fn metadata(
    answer: impl Fn(usize, &str) -> (u16, &'static str) + Send + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut lines = BufReader::new(&stream).lines();
            let head: Vec<String> = lines
                .by_ref()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let head = head.join("\n");
            let (status, body) = answer(count.load(Ordering::SeqCst), &head);
            let is_look = !head.starts_with("PUT") && !head.contains("/compute/name?");
            count.fetch_add(usize::from(is_look), Ordering::SeqCst);
            let _ = write!(
                stream,
                "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    (format!("http://{address}"), asked)
}

/// Runs `spot-notice` until it has made the file, which is not to be before the third look.
#[track_caller]
fn notices(cloud: &str, (service, asked): &(String, Arc<AtomicUsize>)) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run/notice");
    let mut child = Command::new(deploy("spot/spot-notice"))
        .arg(cloud)
        .arg(&file)
        .env("SPOT_METADATA", service)
        .env("SPOT_EVERY", "0.05")
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{cloud}: no notice");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success() && file.exists(), "{cloud}");
    assert_eq!(asked.load(Ordering::SeqCst), 3, "{cloud}");
}

#[test]
fn spot_notices_of_the_clouds_become_a_file() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: spot_notices_of_the_clouds_become_a_file: there is no curl");
        return;
    }
    let has = |head: &str, header: &str| head.to_lowercase().contains(&header.to_lowercase());
    let aws = metadata(
        move |asked, head| match head.starts_with("PUT /latest/api/token") {
            true if has(head, "X-aws-ec2-metadata-token-ttl-seconds: ") => (200, "a-token"),
            false if !has(head, "X-aws-ec2-metadata-token: a-token") => (401, ""),
            false if asked < 2 => (404, ""),
            false => (
                200,
                r#"{"action": "terminate", "time": "2026-01-01T00:00:00Z"}"#,
            ),
            true => (400, ""),
        },
    );
    notices("aws", &aws);
    let google = metadata(
        move |asked, head| match has(head, "Metadata-Flavor: Google") {
            true if asked < 2 => (200, "FALSE"),
            true => (200, "TRUE"),
            false => (403, ""),
        },
    );
    notices("google", &google);
    // Each machine of a scale set is told of the events of all.
    let azure = metadata(move |asked, head| match has(head, "Metadata: true") {
        true if head.contains("/metadata/instance/compute/name?") => (200, "set_1"),
        true if asked < 1 => (
            200,
            r#"{"DocumentIncarnation":1,"Events":[{"EventType":"Freeze","Resources":["set_1"]}]}"#,
        ),
        true if asked < 2 => (
            200,
            r#"{"DocumentIncarnation":2,"Events":[{"EventType":"Preempt","Resources":["set_11","set_0"]},{"EventType":"Reboot","Resources":["set_1"]}]}"#,
        ),
        true => (
            200,
            r#"{"DocumentIncarnation":3,"Events":[{"EventId": "1", "EventType": "Preempt", "Resources": ["set_0", "SET_1"]}]}"#,
        ),
        false => (400, ""),
    });
    notices("azure", &azure);
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
