//! A browser without a window: Chromium, by the WebDriver protocol of its `chromedriver`. Five of the protocol's requests are all that is needed here; the
//! crates for it bring a second HTTP client.

use std::{
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// The time for which a condition is waited for. Too short: a busy machine fails. Too long: an error takes that time.
const PATIENCE: Duration = Duration::from_secs(90);

/// The time between two looks at a condition.
const POLL: Duration = Duration::from_millis(50);

/// No connection to anywhere but the page, and a profile that starts empty.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-precise-memory-info",
    "--hide-scrollbars",
];

/// The name by which the protocol calls the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// One browser at a time: several would slow each other down, and what they measure.
static ONE: Mutex<()> = Mutex::new(());

pub struct Browser {
    driver: Child,
    /// The URL of the session.
    session: String,
    _profile: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Browser {
    /// `None`, and a line that says so, where there is no browser.
    pub fn start(test: &str) -> Option<Browser> {
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut driver) = started else {
            println!(
                "skipped: {test}: no chromedriver (Debian: apt install chromium chromium-driver)"
            );
            return None;
        };
        let port = port_of(&mut driver);
        let profile = tempfile::tempdir().expect("a directory");
        let profile_flag = format!("--user-data-dir={}", profile.path().display());
        let flags: Vec<&str> = FLAGS.into_iter().chain([profile_flag.as_str()]).collect();
        let options = json!({ "browserName": "chrome", "goog:chromeOptions": { "args": flags } });
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let opened = post(
            &format!("http://{addr}/session"),
            &json!({ "capabilities": { "alwaysMatch": options } }),
        );
        let Some(id) = opened["sessionId"].as_str() else {
            println!(
                "skipped: {test}: chromedriver cannot start Chromium: {}",
                opened["message"]
            );
            end(&mut driver);
            return None;
        };
        let session = format!("http://{addr}/session/{id}");
        Some(Browser {
            driver,
            session,
            _profile: profile,
            _turn: turn,
        })
    }

    pub fn open(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    pub fn resize(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    pub fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &features);
    }

    fn devtools(&self, command: &str, parameters: &Value) {
        self.post(
            "goog/cdp/execute",
            &json!({ "cmd": command, "params": parameters }),
        );
    }

    /// The value of an expression in the page.
    pub fn read(&self, expression: &str) -> Value {
        self.post(
            "execute/sync",
            &json!({ "script": format!("return {expression}"), "args": [] }),
        )
    }

    /// Waits until the expression is true.
    pub fn wait_for(&self, expression: &str) {
        let begin = Instant::now();
        while self.read(expression) != json!(true) {
            assert!(
                begin.elapsed() < PATIENCE,
                "waited in vain for {expression}; the page says {}",
                self.read("document.body.innerText")
            );
            thread::sleep(POLL);
        }
    }

    /// Clicks as a mouse does: what is hidden or covered is an error.
    pub fn click(&self, selector: &str) {
        let found = self.post(
            "element",
            &json!({ "using": "css selector", "value": selector }),
        );
        let id = found[ELEMENT]
            .as_str()
            .unwrap_or_else(|| panic!("no {selector}: {found}"));
        let clicked = self.post(&format!("element/{id}/click"), &json!({}));
        assert_eq!(clicked, Value::Null, "{selector}");
    }

    /// Presses keys where the focus is.
    pub fn press(&self, keys: &str) {
        let keys = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [
                json!({ "type": "keyDown", "value": key }),
                json!({ "type": "keyUp", "value": key }),
            ]
        });
        let keys: Vec<Value> = keys.collect();
        self.post(
            "actions",
            &json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] }),
        );
    }

    /// Takes a picture if `SATIN_SCREENSHOTS` names a directory for it: for people who look at the page.
    pub fn picture(&self, name: &str) {
        let Some(directory) = std::env::var_os("SATIN_SCREENSHOTS") else {
            return;
        };
        let taken = value_of(minreq::get(format!("{}/screenshot", self.session)));
        let data = taken.as_str().expect("a picture");
        std::fs::write(
            Path::new(&directory).join(format!("{name}.png")),
            from_base64(data),
        )
        .expect("written");
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        post(&format!("{}/{path}", self.session), body)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium; the driver would do so as well.
        let _ = minreq::delete(&self.session).with_timeout(20).send();
        end(&mut self.driver);
    }
}

fn end(driver: &mut Child) {
    let _ = driver.kill();
    let _ = driver.wait();
}

/// The driver chooses a port, and says which.
fn port_of(driver: &mut Child) -> u16 {
    let output = BufReader::new(driver.stdout.take().expect("a pipe"));
    for line in output.lines().map_while(Result::ok) {
        let told = line.split("on port ").nth(1);
        let port = told.and_then(|rest| rest.trim_end_matches('.').parse().ok());
        if let Some(port) = port.filter(|_| line.contains("started successfully")) {
            return port;
        }
    }
    panic!("chromedriver ended before it said at which port it listens");
}

fn post(url: &str, body: &Value) -> Value {
    value_of(minreq::post(url).with_body(body.to_string()))
}

/// The value of an answer; of a refusal what it says.
fn value_of(request: minreq::Request) -> Value {
    let answer = request.with_timeout(PATIENCE.as_secs()).send();
    let answer = answer.expect("an answer of chromedriver");
    let mut answer: Value = serde_json::from_slice(answer.as_bytes()).expect("JSON");
    answer["value"].take()
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let text = text.trim_end_matches('=').as_bytes();
    let groups = text.chunks(4).flat_map(|group| {
        let bits = group.iter().enumerate().fold(0u32, |bits, (place, byte)| {
            bits | u32::from(value(*byte)) << (18 - 6 * place)
        });
        bits.to_be_bytes()[1..group.len()].to_vec()
    });
    groups.collect()
}
