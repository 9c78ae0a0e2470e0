//! The page in a browser.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use satin_runtime::{
    dashboard::{Dashboard, Steering, report},
    observe::events::unix_ms,
};
use serde_json::{Value, json};

use super::{
    browser::Browser,
    client::addr,
    pool::{LOOK_MS, MadeUp},
    server::loopback,
    steering::Noted,
    wire::Wire,
};

/// A pool that runs in real time, beside the test.
struct Running {
    pool: Arc<std::sync::Mutex<MadeUp>>,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    /// A pool that has run for so many seconds already.
    fn start(nodes: usize, sites: usize, threads: u32, seconds: u64) -> Running {
        let begin_ms = unix_ms() - seconds * LOOK_MS;
        let mut pool = MadeUp::since(begin_ms, nodes, sites, threads);
        (0..seconds).for_each(|_| pool.step());
        let (pool, is_over) = (
            Arc::new(std::sync::Mutex::new(pool)),
            Arc::new(AtomicBool::new(false)),
        );
        let (stepped, over) = (Arc::clone(&pool), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut next = Instant::now();
            while !over.load(Ordering::Relaxed) {
                next += Duration::from_millis(LOOK_MS);
                thread::park_timeout(next.saturating_duration_since(Instant::now()));
                stepped.lock().expect("no test panics with it").step();
            }
        });
        Running {
            pool,
            is_over,
            thread: Some(thread),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut MadeUp) -> T) -> T {
        act(&mut self.pool.lock().expect("no test panics with it"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn cell(name: &str, state: &str) -> String {
    format!(
        "[...document.querySelectorAll('button.node')].some(cell => cell.getAttribute('aria-label').startsWith('{name}, ') && cell.dataset.state === '{state}')"
    )
}

fn has_event(text: &str) -> String {
    format!("document.getElementById('log').innerText.includes('{text}')")
}

#[test]
fn the_page_shows_a_death_and_drains_a_node() {
    let Some(browser) = Browser::start("the_page_shows_a_death_and_drains_a_node") else {
        return;
    };
    let running = Running::start(4, 2, 2, 40);
    let noted = Arc::new(Noted::default());
    let steering: Arc<dyn Steering> = Arc::clone(&noted) as _;
    let history = running.with(|pool| Arc::clone(&pool.history));
    let dashboard = Dashboard::start(loopback(), history, Some(steering)).expect("started");
    browser.resize(1440, 900);
    browser.open(dashboard.url());
    browser.wait_for("document.getElementById('link-text').textContent === 'live'");
    browser.wait_for("document.querySelectorAll('button.node[data-state=joined]').length === 4");
    browser.wait_for("stream.frames > 2 && stream.rows.length === 8");
    browser.resize(1440, 1900);
    look_at(&browser, "live-4-light");
    browser.resize(1440, 900);

    running.with(|pool| pool.kill("leiden-2"));
    browser.wait_for(&cell("leiden-2", "dead"));
    browser.wait_for(&has_event("leiden-2 in leiden died"));
    browser.wait_for("document.getElementById('tile-nodes').textContent === '3'");

    browser.click("button.node[aria-label^='delft-2,']");
    browser.click("#drain-node");
    browser.wait_for(
        "document.getElementById('confirm').open && document.activeElement.id === 'confirm-no'",
    );
    assert_eq!(
        browser.read("document.getElementById('confirm-title').textContent"),
        "Ask delft-2 to leave?"
    );
    browser.picture("confirm-light");
    // Who cancels changes nothing.
    browser.press("\u{e00c}");
    browser.wait_for("!document.getElementById('confirm').open");
    browser.click("#drain-node");
    browser.click("#confirm-yes");
    browser.wait_for("document.getElementById('toast').textContent === 'Asked to leave: delft-2'");
    assert_eq!(*noted.asked.lock().expect("held by nobody"), ["delft-2"]);
    running.with(|pool| pool.drain("delft-2"));
    browser.wait_for(&cell("delft-2", "draining"));
    browser.wait_for(&has_event("delft-2 in delft is about to leave"));

    for (scheme, width) in [
        ("dark", 1440),
        ("dark", 390),
        ("light", 390),
        ("light", 820),
    ] {
        browser.prefer(scheme);
        browser.resize(width, 4000);
        browser.wait_for(&format!(
            "document.documentElement.dataset.theme === '{scheme}'"
        ));
        // Nothing is wider than the screen.
        browser.wait_for(&format!("document.documentElement.scrollWidth <= {width}"));
        look_at(&browser, &format!("live-4-{width}-{scheme}"));
    }

    drop(dashboard);
    browser.wait_for("document.getElementById('link-text').textContent === 'ended'");
    assert_eq!(browser.read("failures"), 0);
}

/// The texts in sight whose contrast to what is below them is less than 4.5.
const PALE_TEXTS: &str = r#"(() => {
  const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const over = (colour, below) => {
    for (const one of [`rgb(${below.join()})`, colour]) { context.fillStyle = one; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const ground = (node) => over(getComputedStyle(node).backgroundColor, node.parentElement ? ground(node.parentElement) : [255, 255, 255]);
  const linear = (part) => (part <= 10 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) + 0.05;
  const contrast = (a, b) => Math.max(light(a) / light(b), light(b) / light(a));
  const pale = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    const text = texts.currentNode.data.trim();
    if (!text || !node.checkVisibility()) continue;
    const below = ground(node);
    const ratio = contrast(over(getComputedStyle(node).color, below), below);
    if (ratio < 4.5) pale.push(`${text}: ${ratio.toFixed(1)}`);
  }
  return pale;
})()"#;

/// The controls in sight that are smaller than 40 pixels.
const SMALL_CONTROLS: &str = r#"[...document.querySelectorAll('a, button, select, input, summary')]
  .filter((control) => control.checkVisibility() && control.getBoundingClientRect().right > 0)
  .filter((control) => { const { width, height } = control.getBoundingClientRect(); return width < 40 || height < 40; })
  .map((control) => control.outerHTML)"#;

#[test]
fn the_page_can_be_read_and_pressed() {
    let Some(browser) = Browser::start("the_page_can_be_read_and_pressed") else {
        return;
    };
    for nodes in [4, 60] {
        let running = Running::start(nodes, 2, 1, 20);
        running.with(|pool| pool.kill("leiden-2"));
        running.with(|pool| pool.drain("delft-2"));
        let history = running.with(|pool| Arc::clone(&pool.history));
        let steering: Arc<dyn Steering> = Arc::new(Noted::default()) as _;
        let dashboard = Dashboard::start(loopback(), history, Some(steering)).expect("started");
        for (scheme, width) in [
            ("light", 1440),
            ("dark", 1440),
            ("light", 390),
            ("dark", 390),
        ] {
            browser.prefer(scheme);
            browser.resize(width, 900);
            browser.open(dashboard.url());
            browser.wait_for(&cell("leiden-2", "dead"));
            browser.wait_for(&cell("delft-2", "draining"));
            browser.click("button.node");
            browser.wait_for("!document.getElementById('detail').hidden");
            let place = format!("{nodes} nodes, {scheme}, {width}");
            assert_eq!(browser.read(PALE_TEXTS), json!([]), "{place}");
            if width < 600 {
                assert_eq!(browser.read(SMALL_CONTROLS), json!([]), "{place}");
            }
        }
        assert_eq!(browser.read("failures"), 0);
    }
}

#[test]
fn a_young_run_fills_the_task_stream_and_all_views_have_one_order() {
    let Some(browser) =
        Browser::start("a_young_run_fills_the_task_stream_and_all_views_have_one_order")
    else {
        return;
    };
    // Nodes join by turns: delft-1, leiden-1, amsterdam-1, delft-2, ..
    let running = Running::start(36, 3, 1, 8);
    let history = running.with(|pool| Arc::clone(&pool.history));
    let dashboard = Dashboard::start(loopback(), history, None).expect("started");
    browser.resize(1440, 2600);
    browser.open(dashboard.url());
    browser.wait_for("stream.rows.length === 36");
    // An hour is to be shown: the first spans are at the left end nevertheless.
    let begin = browser.read("(stream.span = 3600000, rightEdge() - spanInSight() - pool.first)");
    assert!(begin.as_f64().expect("a time").abs() < 100.0, "{begin}");
    let orders = [
        "[...document.querySelectorAll('button.node')].map((cell) => cell.getAttribute('aria-label').split(',')[0])",
        "stream.rows.map((row) => row.node.name)",
        "[...document.querySelectorAll('#nodes-table tbody tr')].map((row) => row.cells[0].textContent)",
    ];
    let numbered = |site: &str| (1..=12).map(|number| format!("{site}-{number}")).collect();
    let in_order: Vec<Vec<String>> = ["amsterdam", "delft", "leiden"].map(numbered).into();
    for order in orders {
        assert_eq!(browser.read(order), json!(in_order.concat()), "{order}");
    }
    // Each arrow begins and ends in the middle of a row: of the node that gave the job, and of the worker that runs it.
    let ends = "stream.arrows.every(({ arrow, from, to }) => [[arrow.from, from], [arrow.node, to]].every(([node, [, y]]) => stream.rows.some((row) => row.node.id === node && row.y - $('stream').scrollTop + stream.rowHeight / 2 - 1 === y)))";
    look_at(&browser, "young");
    browser.wait_for(&format!("stream.arrows.length > 0 && {ends}"));
    assert_eq!(browser.read("failures"), 0);
}

#[test]
fn losses_are_folded_until_something_is_lost() {
    let Some(browser) = Browser::start("losses_are_folded_until_something_is_lost") else {
        return;
    };
    let running = Running::start(2, 1, 1, 0);
    let history = running.with(|pool| Arc::clone(&pool.history));
    let dashboard = Dashboard::start(loopback(), history, None).expect("started");
    browser.open(dashboard.url());
    browser.wait_for(&cell("delft-2", "joined"));
    let (is_open, note) = (
        "document.getElementById('kept-more').open",
        "document.getElementById('kept-note').textContent",
    );
    assert_eq!(browser.read(is_open), json!(false));
    assert_eq!(browser.read(note), "nothing was lost");
    running.with(|pool| pool.kill("delft-2"));
    browser.wait_for(is_open);
    browser.wait_for(&format!("{note}.startsWith('1 node died')"));
    // Opened once: who folds it again is not bothered.
    browser.click("#kept summary");
    let heard = browser.read("pool.heard");
    browser.wait_for(&format!("pool.heard > {heard}"));
    assert_eq!(browser.read(is_open), json!(false));
}

/// Takes a picture, once what is in sight has been drawn.
fn look_at(browser: &Browser, name: &str) {
    let frames = browser.read("stream.frames").as_u64().expect("a number");
    browser.wait_for(&format!("stream.frames > {frames} + 1"));
    browser.picture(name);
}

#[test]
fn the_page_says_that_the_connection_is_lost_and_finds_it_again() {
    let name = "the_page_says_that_the_connection_is_lost_and_finds_it_again";
    let Some(browser) = Browser::start(name) else {
        return;
    };
    let running = Running::start(2, 1, 1, 5);
    let history = running.with(|pool| Arc::clone(&pool.history));
    let dashboard = Dashboard::start(loopback(), history, None).expect("started");
    let wire = Wire::to(addr(&dashboard));
    browser.open(&format!("http://{}/", wire.addr));
    browser.wait_for("document.getElementById('link-text').textContent === 'live'");
    // A page that shows only has nothing to drain with.
    browser.click("button.node");
    browser.wait_for("document.getElementById('drain-node').hidden");
    wire.cut();
    browser.wait_for("!document.getElementById('banner').hidden && document.getElementById('banner').textContent.includes('connection to the pool is lost')");
    browser.picture("lost-light");
    running.with(|pool| pool.kill("delft-2"));
    wire.mend();
    browser.wait_for("document.getElementById('link-text').textContent === 'live'");
    browser.wait_for(&cell("delft-2", "dead"));
    // What was told before is there once: two joined, one died.
    assert_eq!(
        browser.read("[pool.events.length, document.querySelectorAll('#log li').length]"),
        json!([3, 3])
    );
    assert_eq!(browser.read("failures"), 0);
}

#[test]
fn the_task_stream_obeys_the_keyboard() {
    let Some(browser) = Browser::start("the_task_stream_obeys_the_keyboard") else {
        return;
    };
    let running = Running::start(3, 3, 2, 100);
    let history = running.with(|pool| Arc::clone(&pool.history));
    let dashboard = Dashboard::start(loopback(), history, None).expect("started");
    browser.open(dashboard.url());
    browser.wait_for("stream.rows.length === 6");
    browser.read("document.getElementById('stream').focus()");
    browser.press(" ");
    browser.wait_for(
        "stream.right !== null && document.getElementById('stream-pause').textContent === 'Follow'",
    );
    let right = browser.read("stream.right").as_f64().expect("a time");
    browser.press("\u{e012}");
    browser.wait_for(&format!("stream.right < {right}"));
    browser.press("-");
    browser.wait_for("document.getElementById('stream-span').textContent === '1 min 0 s'");
    browser.press("++");
    browser.wait_for("document.getElementById('stream-span').textContent === '10 s'");
    browser.press("\u{e010}");
    browser.wait_for("stream.right === null");
    browser.click("#legend button");
    browser.wait_for("stream.alone === 'run'");
    browser.wait_for("stream.arrows.length > 0");
    browser.click("#legend-arrows");
    browser.wait_for("stream.arrows.length === 0");
    assert_eq!(browser.read("failures"), 0);
}

#[test]
fn a_report_opens_from_a_file() {
    let Some(browser) = Browser::start("a_report_opens_from_a_file") else {
        return;
    };
    let mut pool = MadeUp::new(6, 3, 2);
    (0..240).for_each(|_| pool.step());
    pool.kill("leiden-2");
    pool.step();
    pool.end();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run.html");
    fs::write(
        &path,
        report::html(&pool.history.lock().expect("held by nobody")),
    )
    .expect("written");
    browser.resize(1440, 2000);
    browser.open(&format!("file://{}", path.display()));
    browser.wait_for("document.getElementById('link-text').textContent.startsWith('report of')");
    browser.wait_for("stream.frames > 0 && stream.rows.length === 12");
    browser.wait_for("stream.arrows.length === MOST_ARROWS && stream.arrowsInSight > MOST_ARROWS");
    browser.wait_for(&cell("leiden-2", "dead"));
    browser.wait_for(&has_event("leiden-2 in leiden died"));
    // The run as a whole, although nobody is there any more.
    assert_eq!(
        browser.read("document.getElementById('tile-nodes').textContent"),
        "6"
    );
    browser.wait_for("/^[0-9.]+$/.test(document.getElementById('tile-busy').textContent)");
    browser.wait_for("document.querySelectorAll('#reasons .bar').length > 0");
    assert_eq!(
        browser.read("document.querySelectorAll('.site header button:not([hidden])').length"),
        0
    );
    browser.picture("report-light");
    assert_eq!(browser.read("failures"), 0);
}

/// Measures, and asserts only that the page is alive: the figures are for people who read them.
#[test]
fn five_hundred_nodes_are_shown() {
    let Some(browser) = Browser::start("five_hundred_nodes_are_shown") else {
        return;
    };
    let running = Running::start(500, 4, 4, 30);
    running.with(|pool| pool.kill("leiden-7"));
    running.with(|pool| pool.drain("delft-9"));
    let history = running.with(|pool| Arc::clone(&pool.history));
    let dashboard = Dashboard::start(loopback(), history, None).expect("started");
    browser.resize(1440, 900);
    browser.open(dashboard.url());
    browser.wait_for(
        "document.querySelectorAll('button.node').length === 500 && stream.rows.length === 2000",
    );
    browser.resize(1440, 2600);
    look_at(&browser, "live-500-light");
    browser.resize(1440, 900);
    browser.read("document.getElementById('workers').scrollIntoView()");
    browser.wait_for("stream.isInSight && stream.frames > 3");
    let cpu = cpu_of_server();
    let begin = browser.read("[performance.now(), stream.frames]");
    browser.wait_for(&format!("performance.now() > {} + 15000", begin[0]));
    let end = browser.read("[performance.now(), stream.frames, performance.memory.usedJSHeapSize + 15 * [...pool.tracks.values()].reduce((sum, track) => sum + track.kinds.length, 0)]");
    let figure = |values: &Value, place: usize| values[place].as_f64().expect("a number");
    let seconds = (figure(&end, 0) - figure(&begin, 0)) / 1e3;
    let frames = figure(&end, 1) - figure(&begin, 1);
    println!(
        "500 nodes, 2000 workers: {:.1} frames per second, {:.0} MB of heap, server {:.1} % of a core",
        frames / seconds,
        figure(&end, 2) / 1e6,
        100.0 * (cpu_of_server() - cpu) / seconds
    );
    assert!(frames > 0.0);
    browser.prefer("dark");
    browser.wait_for("document.documentElement.dataset.theme === 'dark'");
    browser.resize(1440, 2600);
    look_at(&browser, "live-500-dark");
    assert_eq!(browser.read("failures"), 0);
}

/// The processor time of the server's thread so far, in seconds; 0 where the system does not tell.
fn cpu_of_server() -> f64 {
    // The name of a thread has 15 letters at most.
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    let paths = threads.flatten().map(|thread| thread.path());
    let of_server = paths.filter(|path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "satin-dashboard")
    });
    let stats = of_server.filter_map(|path| fs::read_to_string(path.join("schedstat")).ok());
    let nanoseconds = stats.filter_map(|stat| stat.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.sum::<f64>() / 1e9
}
