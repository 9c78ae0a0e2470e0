//! A pool on Kubernetes: the objects that `kubectl apply` wants.
//!
//! * An Indexed Job whose pods are the nodes. Each pod ends with the exit code of the run (`SATIN_EXIT=run`), so the Job is
//!   complete once any of them says that the run has ended well, and has failed once one says that it has not; then
//!   Kubernetes ends the others. A pod that ends before the run is replaced. The pod with the index 0 founds the pool.
//! * A Deployment of further nodes, none at first. Autoscalers change the number of its replicas, which they cannot do with
//!   a Job. Its pods look for the Job's pods alone, and a node that is not on its own list founds nothing: Kubernetes starts
//!   them again when the run is over, and they must not begin it again.
//! * Two headless Services, which are names for these addresses: one for the Job's pods, and one for all.
//! * A Secret with the credential.
//!
//! Nothing here speaks to a cluster.

use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The UDP port of all nodes; each pod has an address of its own.
const PORT: u16 = 7777;

/// The TCP port of the dashboard, whose `/healthz` is asked whether the node is well.
const DASHBOARD_PORT: u16 = 8787;

/// The place of the credential in each pod.
const CREDENTIAL_DIR: &str = "/etc/satin";

/// Seconds between the node's grace and the pod's. Too short: a node is killed while it says goodbye. Too long: a node that
/// hangs keeps its machine.
const MARGIN_S: u32 = 10;

/// The longest name. Pods of an Indexed Job have it in a label of 63 letters, with their index; Deployments put hashes behind theirs.
const NAME_MAX: usize = 40;

/// Exit codes of a pod that are not the run's: the node has ended before the run (143), or a signal has ended the process, in which
/// case others repair what it did. The pod is replaced.
const NOT_AN_END: [i32; 7] = [132, 134, 135, 136, 137, 139, 143];

/// Pods that may be lost for each node, beside those that Kubernetes itself takes away, before the Job fails. Too small: a long run on
/// machines that come and go fails. Too large: a program that crashes at its start does so for hours.
const LOSSES_PER_NODE: u32 = 20;

/// The group that may read the credential, whatever user an image runs as. Any number does that no user of the image has by accident.
const GROUP: u32 = 65_532;

/// A pool on Kubernetes.
#[derive(Clone, Debug)]
pub struct KubernetesPool {
    /// The name of the pool, of which those of all objects are made.
    pub name: String,
    /// The namespace; `None`: that of `kubectl`.
    pub namespace: Option<String>,
    /// The image; its entry point is the program.
    pub image: String,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Number of nodes, with the one that runs `main`.
    pub nodes: u32,
    /// Cores of each node, as Kubernetes writes them: `4` or `500m`.
    pub cpus: Option<String>,
    /// Memory of each node, as Kubernetes writes it: `8Gi`.
    pub memory: Option<String>,
    /// The site of all nodes.
    pub site: Option<String>,
    /// The URL of the store.
    pub store: Option<String>,
    /// Seconds that a node may take to leave.
    pub grace_s: u32,
    /// Is a node killed that does not answer on the port of the dashboard?
    pub liveness: bool,
    /// More variables for all nodes.
    pub env: Vec<(String, String)>,
    /// The text of the credential file.
    pub credential: String,
}

/// The two kinds of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodRole {
    /// Of the Job.
    Main,
    /// Of the Deployment.
    Worker,
}

impl PodRole {
    fn name(self) -> &'static str {
        match self {
            PodRole::Main => "main",
            PodRole::Worker => "worker",
        }
    }
}

/// A pattern that a value must match, with what it is for people.
struct ValueForm {
    flag: &'static str,
    matches: fn(&str) -> bool,
    expected: &'static str,
}

const NAME: ValueForm = ValueForm {
    flag: "--name",
    matches: is_label,
    expected: "a name of at most 40 lower-case letters, digits and hyphens that begins with a letter",
};
const NAMESPACE: ValueForm = ValueForm {
    flag: "--namespace",
    matches: is_label,
    expected: "the name of a namespace",
};
const CPUS: ValueForm = ValueForm {
    flag: "--cpus",
    matches: |text| is_quantity(text, &["", "m"]),
    expected: "a number of cores such as 4, 0.5 or 500m",
};
const MEMORY: ValueForm = ValueForm {
    flag: "--memory",
    matches: |text| is_quantity(text, &["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]),
    expected: "bytes such as 8Gi or 512Mi",
};

impl ValueForm {
    fn check(&self, value: &str) -> Result<()> {
        let ValueForm { flag, expected, .. } = self;
        ensure!((self.matches)(value), "{flag} {value}: expected {expected}");
        Ok(())
    }
}

/// Is it a label of RFC 1035, as the names of Services are?
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= NAME_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(inner)
        && !text.ends_with('-')
}

fn is_quantity(text: &str, units: &[&str]) -> bool {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    number.parse::<f64>().is_ok_and(|number| number > 0.0) && units.contains(&unit)
}

impl KubernetesPool {
    /// The objects, in the order in which they are to be made.
    ///
    /// # Errors
    /// If a value is none that Kubernetes takes.
    pub fn objects(&self) -> Result<Vec<Value>> {
        self.check()?;
        Ok(vec![
            self.secret(),
            self.service(&self.name, json!({}), "the addresses of all nodes"),
            self.service(
                &self.main_service(),
                json!({ "app.kubernetes.io/component": PodRole::Main.name() }),
                "the addresses of the Job's nodes",
            ),
            self.job(),
            self.deployment(),
        ])
    }

    /// The objects as a text for `kubectl apply -f -`.
    ///
    /// # Errors
    /// If a value is none that Kubernetes takes.
    pub fn yaml(&self) -> Result<String> {
        let name = &self.name;
        let mut text = format!(
            "# A pool of {} nodes, for Kubernetes 1.31 or later. The Secret holds the pool's credential: keep this file like a password.\n\
             #   kubectl apply -f FILE\n\
             #   kubectl logs -f --tail=-1 -l app.kubernetes.io/instance={name},batch.kubernetes.io/job-completion-index=0\n\
             #   kubectl wait --for=condition=complete --timeout=-1s job/{name}\n\
             #   kubectl delete -f FILE\n",
            self.nodes
        );
        for object in self.objects()? {
            text += "---\n";
            let object = serde_saphyr::to_string(&object).context("cannot write YAML")?;
            text += &object;
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        Ok(text)
    }

    fn check(&self) -> Result<()> {
        let rows = [
            (NAME, Some(&self.name)),
            (NAMESPACE, self.namespace.as_ref()),
            (CPUS, self.cpus.as_ref()),
            (MEMORY, self.memory.as_ref()),
        ];
        for (form, value) in rows {
            value.map_or(Ok(()), |value| form.check(value))?;
        }
        ensure!(self.nodes >= 1, "--nodes 0: expected 1 or more");
        let graphic = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        ensure!(
            graphic(&self.image),
            "--image {:?}: expected the name of an image, such as registry.example/program:1",
            self.image
        );
        Ok(())
    }

    fn main_service(&self) -> String {
        format!("{}-main", self.name)
    }

    fn secret_name(&self) -> String {
        format!("{}-credential", self.name)
    }

    /// The labels that all objects have, and those of `more`.
    fn labels(&self, more: &Value) -> Value {
        let mut labels = json!({
            "app.kubernetes.io/name": "satin",
            "app.kubernetes.io/instance": self.name,
        });
        merge(&mut labels, more);
        labels
    }

    fn metadata(&self, name: &str) -> Value {
        let mut metadata = json!({ "name": name, "labels": self.labels(&json!({})) });
        if let Some(namespace) = &self.namespace {
            merge(&mut metadata, &json!({ "namespace": namespace }));
        }
        metadata
    }

    fn secret(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self.metadata(&self.secret_name()),
            "type": "Opaque",
            "stringData": { "pool.pem": self.credential },
        })
    }

    fn service(&self, name: &str, component: Value, what: &str) -> Value {
        let mut metadata = self.metadata(name);
        let what = json!({ "annotations": { "description": what } });
        merge(&mut metadata, &what);
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": "None",
                // A node has to be found before it is in.
                "publishNotReadyAddresses": true,
                "selector": self.labels(&component),
                "ports": [{ "name": "satin", "port": PORT, "protocol": "UDP" }],
            },
        })
    }

    fn job(&self) -> Value {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.metadata(&self.name),
            "spec": {
                "completionMode": "Indexed",
                "completions": self.nodes,
                "parallelism": self.nodes,
                "backoffLimit": self.nodes.saturating_mul(LOSSES_PER_NODE),
                // Any pod knows how the run has ended, wherever `main` was.
                "successPolicy": { "rules": [{ "succeededCount": 1 }] },
                // The program has ended with an error of its own: another start would end in the same way.
                "podFailurePolicy": { "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }],
                    },
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": "node",
                            "operator": "NotIn",
                            "values": NOT_AN_END,
                        },
                    },
                ] },
                "template": self.pod(PodRole::Main),
            },
        })
    }

    fn deployment(&self) -> Value {
        let role = json!({ "app.kubernetes.io/component": PodRole::Worker.name() });
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata(&format!("{}-worker", self.name)),
            "spec": {
                "replicas": 0,
                "selector": { "matchLabels": self.labels(&role) },
                "template": self.pod(PodRole::Worker),
            },
        })
    }

    fn pod(&self, role: PodRole) -> Value {
        let labels = self.labels(&json!({ "app.kubernetes.io/component": role.name() }));
        let mut pod = json!({
            "metadata": { "labels": labels },
            "spec": {
                "terminationGracePeriodSeconds": self.grace_s.saturating_add(MARGIN_S),
                // The variables of Services would begin with SATIN_ where a pool is called `satin`.
                "enableServiceLinks": false,
                "automountServiceAccountToken": false,
                "securityContext": {
                    "fsGroup": GROUP,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "topologySpreadConstraints": [{
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": { "matchLabels": self.labels(&json!({})) },
                }],
                "containers": [self.container(role)],
                "volumes": [{
                    "name": "credential",
                    "secret": { "secretName": self.secret_name(), "defaultMode": 0o440 },
                }],
            },
        });
        if role == PodRole::Main {
            merge(&mut pod["spec"], &json!({ "restartPolicy": "Never" }));
        }
        pod
    }

    fn container(&self, role: PodRole) -> Value {
        let mut container = json!({
            "name": "node",
            "image": self.image,
            "env": self.variables(role),
            "ports": [
                { "name": "satin", "containerPort": PORT, "protocol": "UDP" },
                { "name": "dashboard", "containerPort": DASHBOARD_PORT, "protocol": "TCP" },
            ],
            "readinessProbe": PROBE.clone(),
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
            },
            "volumeMounts": [{ "name": "credential", "mountPath": CREDENTIAL_DIR, "readOnly": true }],
        });
        if !self.arguments.is_empty() {
            merge(&mut container, &json!({ "args": self.arguments }));
        }
        if self.liveness {
            // A minute of silence: a node whose cores are all busy may be slow to answer.
            let mut probe = PROBE.clone();
            merge(
                &mut probe,
                &json!({ "periodSeconds": 20, "failureThreshold": 3, "initialDelaySeconds": 30 }),
            );
            merge(&mut container, &json!({ "livenessProbe": probe }));
        }
        let mut resources = json!({});
        for (key, value) in [("cpu", &self.cpus), ("memory", &self.memory)] {
            if let Some(value) = value {
                merge(&mut resources, &json!({ key: value }));
            }
        }
        if resources != json!({}) {
            // What is promised is what is used: workers keep all their cores busy.
            let resources = json!({ "resources": { "requests": resources, "limits": resources } });
            merge(&mut container, &resources);
        }
        container
    }

    fn variables(&self, role: PodRole) -> Vec<Value> {
        let join = match role {
            PodRole::Main => &self.name,
            PodRole::Worker => &self.main_service(),
        };
        let mut variables = vec![
            json!({ "name": "SATIN_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }),
        ];
        let mut set =
            |name: &str, value: String| variables.push(json!({ "name": name, "value": value }));
        set("SATIN_JOIN", format!("dns:{join}:{PORT}"));
        set("SATIN_LISTEN", format!("0.0.0.0:{PORT}"));
        set("SATIN_POOL", self.name.clone());
        set("SATIN_CREDENTIAL", format!("{CREDENTIAL_DIR}/pool.pem"));
        set("SATIN_GRACE", self.grace_s.to_string());
        set("SATIN_EXIT", "run".into());
        set("SATIN_DASHBOARD", format!("0.0.0.0:{DASHBOARD_PORT}"));
        if let Some(site) = &self.site {
            set("SATIN_SITE", site.clone());
        }
        if let Some(store) = &self.store {
            set("SATIN_STORE", store.clone());
        }
        for (name, value) in &self.env {
            set(name, value.clone());
        }
        variables
    }
}

/// The question whether a node is well. The dashboard answers it without a token.
static PROBE: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "httpGet": { "path": "/healthz", "port": "dashboard" },
        "periodSeconds": 10,
        "timeoutSeconds": 5,
    })
});

/// Puts the entries of one object into another.
fn merge(object: &mut Value, more: &Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_quantities_are_those_of_kubernetes() {
        for name in ["a", "fib-1", "my-pool"] {
            assert!(is_label(name), "{name}");
        }
        for name in ["", "A", "1a", "a_b", "a-", "a.b", &"a".repeat(41)] {
            assert!(!is_label(name), "{name}");
        }
        for (text, allowed) in [
            ("4", true),
            ("0.5", true),
            ("500m", true),
            ("0", false),
            ("m", false),
            ("4 ", false),
            ("4Gi", false),
        ] {
            assert_eq!(CPUS.check(text).is_ok(), allowed, "{text}");
        }
        for (text, allowed) in [
            ("8Gi", true),
            ("512Mi", true),
            ("1e3", false),
            ("8GB", false),
            ("-1Gi", false),
        ] {
            assert_eq!(MEMORY.check(text).is_ok(), allowed, "{text}");
        }
        let error = CPUS.check("four").expect_err("no number").to_string();
        assert_eq!(
            error,
            "--cpus four: expected a number of cores such as 4, 0.5 or 500m"
        );
    }
}
