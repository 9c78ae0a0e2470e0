//! The notice that tells a node to leave (`SATIN_DRAIN_WHEN`): a file, a URL, or the word of a cloud's metadata service that this
//! machine is about to be taken away.

use std::{path::Path, rc::Rc, time::Duration};

use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::{
    driver::Net,
    settings::{Cloud, DrainWhen},
};

/// Time between two looks for the notice. Too short: load for the server. Too long: a part of the notice is lost, which is thirty
/// seconds with Google and Azure, and two minutes with AWS.
fn pause(when: &DrainWhen) -> Duration {
    Duration::from_secs(match when {
        DrainWhen::File(_) => 1,
        DrainWhen::Cloud { .. } => 2,
        DrainWhen::Http(_) => 5,
    })
}

/// The longest time for one answer of a server. Too short: a busy server is not heard. Too long: see [`pause`].
const PATIENCE: Duration = Duration::from_secs(3);

/// Number of looks in a row that must fail before the user is warned. Too small: a warning for a metadata service that is about to
/// start. Too large: the machine is gone before the warning.
const FAILURES: u32 = 3;

/// Looks for the notice again and again, until it is there; then the node is asked to leave. If it cannot, because it is
/// master and no node would be left, it is asked again as long as the notice is there.
pub(super) async fn watch(net: Rc<Net>, when: DrainWhen) {
    let (mut warned, mut failures) = (false, 0_u32);
    loop {
        match is_there(&when).await {
            Ok(true) => {
                if net.turn(|driver, now| driver.drain(now, None)) {
                    tracing::info!(%when, "this node is asked to leave");
                    return;
                }
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(
                        %when,
                        "this node is asked to leave, but no other node is there to take over its work: it stays until another node joins"
                    );
                }
            }
            Ok(false) => {
                if failures >= FAILURES {
                    tracing::info!("the notice of SATIN_DRAIN_WHEN can be looked for again");
                }
                failures = 0;
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                if failures == FAILURES {
                    tracing::warn!(
                        "the notice of SATIN_DRAIN_WHEN cannot be looked for: {error}. This node looks again, but as long as that \
                         fails no notice is seen, and nothing is handed over before this machine goes"
                    );
                }
            }
        }
        if net.driver.borrow().is_over() {
            return;
        }
        sleep(pause(&when)).await;
    }
}

/// Whether the notice is there.
///
/// # Errors
/// Why nobody can know, in words for people.
async fn is_there(when: &DrainWhen) -> Result<bool, String> {
    let look: Box<dyn FnOnce() -> Result<bool, String> + Send> = match when.clone() {
        DrainWhen::File(path) => Box::new(move || exists(&path)),
        DrainWhen::Http(url) => Box::new(move || Ok(answers(&url))),
        DrainWhen::Cloud { cloud, at } => Box::new(move || cloud.takes_this_machine(&at)),
    };
    // A file may lie on a machine that does not answer.
    match timeout(PATIENCE * 3, tokio::task::spawn_blocking(look)).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("{when} does not answer")),
    }
}

/// Whether the file is there. A directory that is not there yet is no error: it may come with the file.
fn exists(path: &Path) -> Result<bool, String> {
    path.try_exists().map_err(|error| {
        format!(
            "{} cannot be looked at: {error}. Let this user search all directories on the path (under systemd the RuntimeDirectory of \
             a unit with DynamicUser is private to that unit)",
            path.display()
        )
    })
}

/// Whether it answers with status 200.
fn answers(url: &str) -> bool {
    let answer = minreq::get(url)
        .with_timeout(PATIENCE.as_secs())
        .with_max_redirects(0)
        .send_lazy();
    match answer {
        Ok(answer) => answer.status_code == 200,
        Err(error) => {
            tracing::debug!(url, "no notice: {error}");
            false
        }
    }
}

impl Cloud {
    /// Whether the metadata service at that address says that this machine is about to be taken away.
    fn takes_this_machine(self, at: &str) -> Result<bool, String> {
        match self {
            Cloud::Aws => aws(at),
            Cloud::Google => google(at),
            Cloud::Azure => azure(at),
        }
    }
}

/// The path is there only once a spot machine is to go. Version 2 of the service wants a token.
fn aws(at: &str) -> Result<bool, String> {
    let token = minreq::put(format!("{at}/latest/api/token"));
    let token = body(
        at,
        token.with_header("X-aws-ec2-metadata-token-ttl-seconds", "60"),
    )?;
    let url = format!("{at}/latest/meta-data/spot/instance-action");
    let notice = minreq::get(&url).with_header("X-aws-ec2-metadata-token", token.trim());
    match answer(at, notice)?.status_code {
        200 => Ok(true),
        404 => Ok(false),
        status => Err(format!("{url} answers with status {status}")),
    }
}

fn google(at: &str) -> Result<bool, String> {
    let asked = minreq::get(format!("{at}/computeMetadata/v1/instance/preempted"));
    let answer = body(at, asked.with_header("Metadata-Flavor", "Google"))?;
    Ok(answer.trim() == "TRUE")
}

/// Azure tells each machine of a scale set what is to happen to any of them: the notice for this one has its name.
fn azure(at: &str) -> Result<bool, String> {
    let ask = |path: &str| {
        let asked = minreq::get(format!("{at}{path}"));
        body(at, asked.with_header("Metadata", "true"))
    };
    let events = ask("/metadata/scheduledevents?api-version=2020-07-01")?;
    let events: ScheduledEvents = serde_json::from_str(&events)
        .map_err(|error| format!("{at} gives no list of scheduled events: {error}"))?;
    // A reboot, or a freeze for an update, is no end.
    let ends = |event: &&ScheduledEvent| matches!(&*event.kind, "Preempt" | "Terminate");
    let going: Vec<&String> = (events.list.iter().filter(ends))
        .flat_map(|event| &event.machines)
        .collect();
    if going.is_empty() {
        return Ok(false);
    }
    let me = ask("/metadata/instance/compute/name?api-version=2021-02-01&format=text")?;
    Ok(going
        .iter()
        .any(|name| name.eq_ignore_ascii_case(me.trim())))
}

/// What Azure plans for the machines of a scale set.
#[derive(Deserialize)]
struct ScheduledEvents {
    #[serde(rename = "Events")]
    list: Vec<ScheduledEvent>,
}

#[derive(Deserialize)]
struct ScheduledEvent {
    #[serde(rename = "EventType")]
    kind: String,
    #[serde(rename = "Resources", default)]
    machines: Vec<String>,
}

/// The body of an answer with status 200.
fn body(at: &str, request: minreq::Request) -> Result<String, String> {
    let answer = answer(at, request)?;
    match (answer.status_code, answer.as_str()) {
        (200, Ok(text)) => Ok(text.into()),
        (200, Err(error)) => Err(format!("{at} answers with no text: {error}")),
        (status, _) => Err(format!("{at} answers with status {status}")),
    }
}

fn answer(at: &str, request: minreq::Request) -> Result<minreq::Response, String> {
    let request = request.with_timeout(PATIENCE.as_secs());
    let answer = request.with_follow_redirects(false).send();
    answer.map_err(|error| format!("{at} does not answer: {error}"))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
    };

    use super::*;

    /// A server that answers once with each of these.
    fn server(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/notice", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a caller");
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        url
    }

    #[test]
    fn only_200_is_a_notice() {
        let url = server(&[
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        ]);
        let seen: Vec<bool> = (0..4).map(|_| answers(&url)).collect();
        assert_eq!(seen, [false, false, false, true]);
        assert!(!answers(&url), "nobody is there any more");
    }

    /// A metadata service: `answer` gets the first line and the headers of each request, in lower case, and gives status and body.
    fn metadata(answer: impl Fn(&str) -> (u16, &'static str) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = format!("http://{}", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a caller");
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let (status, body) = answer(&head.join("\n").to_lowercase());
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
            }
        });
        at
    }

    fn asked(
        cloud: Cloud,
        answer: impl Fn(&str) -> (u16, &'static str) + Send + 'static,
    ) -> Result<bool, String> {
        cloud.takes_this_machine(&metadata(answer))
    }

    #[test]
    fn aws_gives_a_token_and_has_the_path_only_when_the_machine_is_to_go() {
        let service = |status, body: &'static str| {
            move |head: &str| {
                if head.starts_with("put /latest/api/token http") {
                    let has_time = head.contains("\nx-aws-ec2-metadata-token-ttl-seconds: 60");
                    return if has_time { (200, "T-42") } else { (400, "") };
                }
                match head.contains("\nx-aws-ec2-metadata-token: t-42") {
                    true if head.starts_with("get /latest/meta-data/spot/instance-action http") => {
                        (status, body)
                    }
                    true => (404, ""),
                    false => (401, ""),
                }
            }
        };
        let notice = r#"{"action": "terminate", "time": "2026-01-01T00:00:00Z"}"#;
        assert_eq!(asked(Cloud::Aws, service(200, notice)), Ok(true));
        assert_eq!(asked(Cloud::Aws, service(404, "")), Ok(false));
        let refused = asked(Cloud::Aws, service(503, "")).expect_err("no answer");
        assert!(refused.contains("status 503"), "{refused}");
        let no_service = asked(Cloud::Aws, |_| (404, "")).expect_err("no metadata service");
        assert!(no_service.contains("status 404"), "{no_service}");
    }

    #[test]
    fn google_says_true_when_the_machine_is_to_go() {
        let service = |word: &'static str| {
            move |head: &str| match head.contains("\nmetadata-flavor: google") {
                true if head.starts_with("get /computemetadata/v1/instance/preempted http") => {
                    (200, word)
                }
                _ => (403, ""),
            }
        };
        assert_eq!(asked(Cloud::Google, service("TRUE\n")), Ok(true));
        assert_eq!(asked(Cloud::Google, service("FALSE")), Ok(false));
        asked(Cloud::Google, |_| (403, "TRUE")).expect_err("refused");
    }

    /// Azure tells all machines of a scale set what happens to one.
    #[test]
    fn azure_takes_this_machine_only_if_the_notice_has_its_name() {
        let service = |events: &'static str| {
            move |head: &str| {
                if !head.contains("\nmetadata: true") {
                    return (400, "");
                }
                match head.split_whitespace().nth(1).unwrap_or_default() {
                    "/metadata/scheduledevents?api-version=2020-07-01" => (200, events),
                    "/metadata/instance/compute/name?api-version=2021-02-01&format=text" => {
                        (200, "workers_7")
                    }
                    _ => (404, ""),
                }
            }
        };
        let row = |events: &'static str| asked(Cloud::Azure, service(events));
        let none = r#"{"DocumentIncarnation":1,"Events":[]}"#;
        let freeze = r#"{"DocumentIncarnation":2,"Events":[{"EventId":"1","EventType":"Freeze","Resources":["workers_7"]}]}"#;
        let other = r#"{"Events":[{"EventId":"1","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["workers_70","workers_1"]}]}"#;
        let this = r#"{"Events":[{"EventId":"1","EventType":"Preempt","Resources":["workers_1"]},
            {"EventId":"2","EventType":"Terminate","Resources":["Workers_7"]}]}"#;
        for (events, seen) in [(none, false), (freeze, false), (other, false), (this, true)] {
            assert_eq!(row(events), Ok(seen), "{events}");
        }
        row("<html>").expect_err("no list");
    }

    #[test]
    fn a_service_that_is_not_there_is_no_answer() {
        let nowhere = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = format!("http://{}", nowhere.local_addr().expect("bound"));
        drop(nowhere);
        for cloud in [Cloud::Aws, Cloud::Google, Cloud::Azure] {
            let error = cloud.takes_this_machine(&at).expect_err("nobody answers");
            assert!(error.contains(&at), "{error}");
        }
    }

    /// Root may look everywhere, but nobody may look through what is no directory.
    #[test]
    fn a_place_that_cannot_be_looked_at_is_no_answer() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert_eq!(exists(&file), Ok(true));
        assert_eq!(exists(&dir.path().join("gone")), Ok(false));
        assert_eq!(exists(&dir.path().join("not/yet")), Ok(false));
        let error = exists(&file.join("notice")).expect_err("no directory");
        assert!(error.contains("RuntimeDirectory"), "{error}");
    }
}
