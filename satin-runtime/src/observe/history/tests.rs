use super::*;
use crate::observe::{
    events::NodeFigures,
    look::{Activity, Arrow, KeptFigures, SiteTraffic, Span, WhyIdle},
};

const T0: u64 = 1_700_000_000_000;

fn node(name: &str, site: &str) -> SeenNode {
    SeenNode {
        name: name.into(),
        site: site.into(),
        addr: "127.0.0.1:4100".parse().expect("an address"),
        threads: 2,
        is_master: false,
        is_leaving: false,
    }
}

fn look(now_ms: u64) -> NodeLook {
    NodeLook {
        now_ms,
        figures: NodeFigures {
            threads: 2,
            ..NodeFigures::default()
        },
        spans: Vec::new(),
        arrows: Vec::new(),
        functions: vec!["queens".into()],
        why_idle: vec![None, None],
        sites: Vec::new(),
        kept: KeptFigures::default(),
        events: Vec::new(),
        next: 0,
    }
}

fn span(worker: u32, start_ms: u64, length_ms: u32, activity: Activity) -> Span {
    Span {
        worker,
        start_ms,
        length_ms,
        activity,
        function: (activity == Activity::RunStolen).then_some(0),
    }
}

fn with_two_nodes() -> History {
    let mut history = History::new("lab");
    history.note_node(node("delft-1", "delft"), T0);
    history.note_node(node("leiden-1", "leiden"), T0);
    history
}

fn record(event: Event, name: &str, at_ms: u64) -> Record {
    let name = name.into();
    Record { event, name, at_ms }
}

fn dead(name: &str, at_ms: u64) -> Record {
    record(Event::Dead { site: "s".into() }, name, at_ms)
}

fn joined(name: &str, at_ms: u64) -> Record {
    record(Event::Joined { site: "s".into() }, name, at_ms)
}

fn texts(history: &History) -> Vec<String> {
    let (events, _) = history.events_since(0);
    events.into_iter().map(|event| event.text).collect()
}

#[test]
fn two_looks_make_rates_and_an_idle_share() {
    let mut history = with_two_nodes();
    let mut first = look(T0);
    first.figures.jobs = 10;
    history.note_look("delft-1", first, 0);
    assert_eq!(history.picture().nodes[0].idle_share, None);
    let mut second = look(T0 + 2_000);
    second.figures = NodeFigures {
        jobs: 30,
        bytes_sent: 4_000,
        bytes_received: 1_000,
        idle_s: 1.0,
        ..second.figures
    };
    history.note_look("delft-1", second, 0);
    let node = &history.picture().nodes[0];
    assert_eq!(node.jobs_per_s, 10.0);
    assert_eq!(node.bytes_sent_per_s, 2_000.0);
    assert_eq!(node.bytes_received_per_s, 500.0);
    // One second of two workers' two seconds.
    assert_eq!(node.idle_share, Some(0.25));
    assert_eq!(history.picture().totals.idle_share, Some(0.25));
}

#[test]
fn a_process_that_counts_anew_makes_no_rates() {
    let mut history = with_two_nodes();
    for (at, jobs) in [(0, 5), (1_000, 100), (2_000, 3)] {
        let mut look = look(T0 + at);
        look.figures.jobs = jobs;
        history.note_look("delft-1", look, 0);
    }
    let (_, last) = history.series().bins_from(0).last().expect("bins");
    assert_eq!(last.jobs, 95.0);
}

#[test]
fn times_of_a_look_are_moved_to_the_clock_of_the_collector() {
    let mut history = with_two_nodes();
    let mut ahead = look(T0 + 60_000);
    ahead.spans = vec![span(0, T0 + 59_000, 1_000, Activity::Run)];
    ahead.events = vec![dead("leiden-1", T0 + 59_500)];
    history.note_look("delft-1", ahead, -60_000);
    assert_eq!(history.spans_since(0).0[0].start_ms, T0 - 1_000);
    assert_eq!(history.events_since(0).0[0].at_ms, T0 - 500);
    assert_eq!(history.picture().now_ms, T0);
}

fn arrow_from(from: &str, [sent_ms, came_ms, ready_ms, begun_ms]: [u64; 4]) -> Arrow {
    Arrow {
        from: from.into(),
        worker: 1,
        function: "fib".into(),
        sent_ms,
        came_ms,
        ready_ms,
        begun_ms,
    }
}

/// The times of the one arrow that it has.
fn times(history: &History) -> [u64; 4] {
    let (arrows, _) = history.arrows_since(0);
    let [arrow] = arrows[..] else {
        panic!("one arrow, not {arrows:?}");
    };
    assert_eq!((arrow.from, arrow.node, arrow.worker), (0, 1, 1));
    assert_eq!(history.functions()[arrow.function as usize], "fib");
    [arrow.sent_ms, arrow.came_ms, arrow.ready_ms, arrow.begun_ms]
}

#[test]
fn each_end_of_an_arrow_is_moved_from_the_clock_of_its_own_node() {
    let mut history = with_two_nodes();
    history.note_look("delft-1", look(T0 + 60_100), -60_000);
    let mut behind = look(T0 - 5_000 + 200);
    let sent_ms = T0 + 60_110;
    let on_own_clock = [120, 150, 190].map(|at| T0 - 5_000 + at);
    let [came_ms, ready_ms, begun_ms] = on_own_clock;
    behind.arrows = vec![arrow_from(
        "delft-1",
        [sent_ms, came_ms, ready_ms, begun_ms],
    )];
    history.note_look("leiden-1", behind, 5_000);
    assert_eq!(times(&history), [110, 120, 150, 190].map(|at| T0 + at));
}

#[test]
fn an_arrow_never_ends_before_it_begins_and_comes_from_a_node_that_is_known() {
    let mut history = with_two_nodes();
    history.note_look("delft-1", look(T0 + 100), 0);
    let mut look = look(T0 + 200);
    look.arrows = vec![
        // Clocks are known to a few milliseconds only.
        arrow_from("delft-1", [123, 120, 150, 140].map(|at| T0 + at)),
        arrow_from("nobody", [T0 + 100; 4]),
        arrow_from("delft-1", [T0 + 9_999; 4]),
    ];
    history.note_look("leiden-1", look, 0);
    assert_eq!(times(&history), [120, 120, 140, 140].map(|at| T0 + at));
}

#[test]
fn an_arrow_of_which_it_is_not_known_when_it_was_sent_begins_when_it_came() {
    let mut history = with_two_nodes();
    let mut look = look(T0 + 200);
    // No look at the other node has come yet.
    look.arrows = vec![arrow_from(
        "delft-1",
        [100, 120, 150, 190].map(|at| T0 + at),
    )];
    history.note_look("leiden-1", look, 0);
    assert_eq!(times(&history), [120, 120, 150, 190].map(|at| T0 + at));
}

#[test]
fn spans_of_the_future_are_passed_over() {
    let mut history = with_two_nodes();
    let mut wrong = look(T0);
    wrong.spans = vec![
        span(0, T0 + 5_000, 1_000, Activity::Run),
        span(0, u64::MAX - 5, u32::MAX, Activity::Run),
    ];
    history.note_look("delft-1", wrong, 0);
    assert_eq!(history.spans_since(0).0, []);
}

#[test]
fn spans_that_go_on_are_one_span() {
    let mut history = with_two_nodes();
    for second in 0..3 {
        let mut look = look(T0 + 1_000 * (second + 1));
        look.spans = vec![span(1, T0 + 1_000 * second, 1_000, Activity::RunStolen)];
        history.note_look("delft-1", look, 0);
    }
    let (spans, _) = history.spans_since(0);
    assert_eq!(spans.len(), 1);
    assert_eq!((spans[0].start_ms, spans[0].length_ms), (T0, 3_000));
    let shares = &history.picture().nodes[0].activity;
    assert_eq!(shares.get("run_stolen"), Some(&1.0));
}

#[test]
fn an_event_that_several_nodes_tell_is_shown_once() {
    let mut history = with_two_nodes();
    for (teller, offset) in [("delft-1", 0), ("leiden-1", 400)] {
        let mut told = look(T0 + 9_000);
        told.events = vec![
            joined("delft-2", T0 + offset),
            dead("delft-2", T0 + 8_000 + offset),
        ];
        history.note_look(teller, told, 0);
    }
    assert_eq!(
        texts(&history),
        ["delft-2 in s joined", "delft-2 in s died"]
    );
}

#[test]
fn a_node_that_dies_comes_back_and_dies_has_died_twice() {
    let mut history = with_two_nodes();
    history.note_event(joined("delft-1", T0));
    history.note_event(dead("delft-1", T0 + 10_000));
    // A new master tells it again.
    history.note_event(dead("delft-1", T0 + 25_000));
    history.note_event(joined("delft-1", T0 + 40_000));
    history.note_event(dead("delft-1", T0 + 60_000));
    assert_eq!(texts(&history).len(), 4);
}

#[test]
fn nodes_that_have_gone_stay_as_rows() {
    let mut history = with_two_nodes();
    history.note_gone("delft-1", Gone::Left, T0 + 1_000);
    history.note_event(dead("leiden-1", T0 + 2_000));
    let states = |history: &History| {
        let nodes = history.picture().nodes;
        nodes.iter().map(|node| node.state).collect::<Vec<_>>()
    };
    assert_eq!(states(&history), [NodeState::Left, NodeState::Dead]);
    assert_eq!(history.picture().totals.nodes, 0);
    // The same name at the same address is back, at another it is another node.
    history.note_node(node("delft-1", "delft"), T0 + 3_000);
    let moved = SeenNode {
        addr: "127.0.0.1:4999".parse().expect("an address"),
        ..node("leiden-1", "leiden")
    };
    history.note_node(moved, T0 + 3_000);
    use NodeState::{Dead, Joined};
    assert_eq!(states(&history), [Joined, Dead, Joined]);
    // Old news changes nothing.
    history.note_event(dead("leiden-1", T0 + 2_500));
    assert_eq!(states(&history), [Joined, Dead, Joined]);
}

#[test]
fn a_node_that_is_silent_is_back_when_it_answers() {
    let mut history = with_two_nodes();
    history.note_gone("delft-1", Gone::Silent, T0 + 1_000);
    assert_eq!(history.state_of("delft-1"), Some(NodeState::NoAnswer));
    // Others still count it.
    history.note_node(node("delft-1", "delft"), T0 + 2_000);
    assert_eq!(history.state_of("delft-1"), Some(NodeState::NoAnswer));
    history.note_look("delft-1", look(T0 + 3_000), 0);
    assert_eq!(history.state_of("delft-1"), Some(NodeState::Joined));
}

#[test]
fn rows_of_nodes_that_have_gone_are_bounded() {
    let mut history = History::new("spot");
    for number in 0..2 * rows::GONE_ROWS as u64 {
        let name = format!("spot-{number}");
        history.note_node(node(&name, "spot"), T0 + number);
        let mut look = look(T0 + number);
        look.spans = vec![span(0, T0 + number - 1, 1, Activity::Run)];
        history.note_look(&name, look, 0);
        history.note_gone(&name, Gone::Dead, T0 + number);
    }
    let picture = history.picture();
    assert!(picture.nodes.len() <= rows::GONE_ROWS + 1);
    assert!(history.spans_since(0).0.len() <= rows::GONE_ROWS + 1);
    let (events, _) = history.events_since(0);
    assert_eq!(events.len(), 2 * rows::GONE_ROWS);
}

#[test]
fn events_are_bounded_and_cursors_pass_over_what_is_forgotten() {
    let mut history = with_two_nodes();
    let total = log::MAX_EVENTS as u64 + 10;
    for number in 0..total {
        history.note_event(joined(&format!("n{number}"), T0));
    }
    let (events, cursor) = history.events_since(0);
    assert_eq!((events.len(), cursor), (log::MAX_EVENTS, total));
    assert_eq!(history.events_since(cursor).0, []);
    assert_eq!(history.events_since(cursor - 3).0.len(), 3);
    assert_eq!(history.events_since(u64::MAX).0, []);
}

#[test]
fn reasons_of_idleness_are_summed_up_in_words() {
    let mut history = with_two_nodes();
    let mut idle = look(T0);
    idle.why_idle = vec![Some(WhyIdle::NoWork), None];
    history.note_look("delft-1", idle.clone(), 0);
    idle.why_idle = vec![Some(WhyIdle::WaitsForValue), Some(WhyIdle::NoWork)];
    idle.now_ms += 1_000;
    history.note_look("leiden-1", idle.clone(), 0);
    idle.figures.idle_s = 2.0;
    idle.now_ms += 1_000;
    history.note_look("leiden-1", idle, 0);
    let picture = history.picture();
    assert_eq!(
        picture.nodes[0].why,
        "1 of 2 workers idle: no other node has work to give"
    );
    assert_eq!(picture.why_idle[0].reason, WhyIdle::NoWork);
    assert_eq!(picture.why_idle[0].workers, 2);
    assert_eq!(picture.totals.hungry, 2);
    assert_eq!(
        picture.conclusion,
        "100 % idle; most often no other node has work to give"
    );
}

#[test]
fn the_run_is_summed_up_when_all_nodes_have_gone() {
    let mut history = with_two_nodes();
    for second in 0..=4 {
        let mut look = look(T0 + 1_000 * second);
        look.figures.seconds = second as f64;
        look.figures.idle_s = 0.5 * second as f64;
        look.why_idle = match second {
            4 => vec![None, Some(WhyIdle::NotWorthIt)],
            _ => vec![Some(WhyIdle::NoWork), None],
        };
        history.note_look("delft-1", look, 0);
    }
    history.note_gone("delft-1", Gone::Left, T0 + 4_000);
    history.note_gone("leiden-1", Gone::Left, T0 + 4_000);
    let picture = history.picture();
    assert_eq!(picture.totals.idle_share, None);
    assert_eq!(picture.nodes[0].run_idle_share, Some(0.25));
    let run = picture.run;
    assert_eq!((run.seconds, run.nodes, run.worker_seconds), (4.0, 2, 8.0));
    assert_eq!(run.idle_share, Some(0.25));
    let times = run.why_idle.iter().map(|time| (time.reason, time.seconds));
    let expected = [(WhyIdle::NoWork, 3.0), (WhyIdle::NotWorthIt, 1.0)];
    assert_eq!(times.collect::<Vec<_>>(), expected);
    assert_eq!(
        run.conclusion,
        "25 % idle; most often no other node has work to give"
    );
}

#[test]
fn figures_that_a_node_tells_at_its_end_count() {
    let mut history = with_two_nodes();
    history.note_look("delft-1", look(T0), 0);
    let figures = NodeFigures {
        jobs: 77,
        ..NodeFigures::default()
    };
    history.note_event(record(Event::Stats(figures), "delft-1", T0));
    assert_eq!(history.picture().totals.jobs, 77);
    assert_eq!(texts(&history), Vec::<String>::new());
}

#[test]
fn traffic_between_sites_is_what_the_better_informed_end_counted() {
    let mut history = with_two_nodes();
    let to = |site: &str, bytes_sent, bytes_received, taken, given| SiteTraffic {
        site: site.into(),
        bytes_sent,
        bytes_received,
        taken,
        given,
    };
    let mut delft = look(T0);
    delft.sites = vec![to("leiden", 700, 50, 1, 9), to("delft", 0, 0, 0, 0)];
    history.note_look("delft-1", delft, 0);
    let mut leiden = look(T0);
    leiden.sites = vec![to("delft", 80, 650, 8, 2)];
    history.note_look("leiden-1", leiden, 0);
    let pair = |from: &str, to: &str, bytes, jobs| TrafficPicture {
        from: from.into(),
        to: to.into(),
        bytes,
        jobs,
    };
    let expected = [
        pair("delft", "leiden", 700, 9),
        pair("leiden", "delft", 80, 2),
    ];
    assert_eq!(history.picture().traffic, expected);
}

#[test]
fn progress_comes_from_the_master_and_ends_with_the_root_job() {
    let mut history = with_two_nodes();
    let master = SeenNode {
        is_master: true,
        ..node("delft-1", "delft")
    };
    history.note_node(master, T0);
    let mut half = look(T0);
    half.figures.done = Some(0.5);
    half.events = vec![record(
        Event::Progress {
            done: 0.49,
            seconds: 12.0,
            is_guess: true,
            nodes: 2,
        },
        "delft-1",
        T0,
    )];
    history.note_look("delft-1", half, 0);
    let progress = history.picture().progress.expect("a root job runs");
    assert_eq!((progress.done, progress.seconds), (0.5, Some(12.0)));
    assert!(progress.is_guess);
    assert_eq!(texts(&history), Vec::<String>::new());
    let root = crate::job::RootTag { term: 0, number: 0 };
    let mut after = look(T0 + 1_000);
    after.events = vec![record(Event::RootFinished { root }, "delft-1", T0)];
    history.note_look("delft-1", after, 0);
    assert_eq!(history.picture().progress, None);
    assert_eq!(history.picture().master.as_deref(), Some("delft-1"));
}

#[test]
fn progress_goes_on_when_the_master_does_not() {
    let mut history = with_two_nodes();
    let root = |term| crate::job::RootTag { term, number: 0 };
    let started = |term| record(Event::RootStarted { root: root(term) }, "delft-1", T0);
    history.note_event(started(0));
    let progress = |history: &History| history.picture().progress;
    assert!(progress(&history).is_some_and(|now| now.is_guess && now.done == 0.0));
    let event = Event::Progress {
        done: 0.5,
        seconds: 12.0,
        is_guess: false,
        nodes: 2,
    };
    history.note_event(record(event, "delft-1", T0));
    history.note_gone("delft-1", Gone::Dead, T0);
    assert!(progress(&history).is_some_and(|now| now.is_guess && now.done == 0.5));
    history.note_event(started(1));
    assert!(progress(&history).is_some_and(|now| now.done == 0.5));
    let root = root(1);
    history.note_event(record(Event::RootFinished { root }, "delft-1", T0));
    assert_eq!(progress(&history), None);
}

#[test]
fn a_picture_comes_back_from_its_json_as_it_was() {
    let mut history = with_two_nodes();
    let mut told = look(T0);
    told.spans = vec![span(0, T0 - 100, 100, Activity::Run)];
    told.why_idle = vec![Some(WhyIdle::MemoryFull), None];
    told.kept.store_bytes = Some(5);
    history.note_look("delft-1", told, 0);
    let picture = history.picture();
    let text = serde_json::to_string(&picture).expect("JSON");
    assert!(text.contains(r#""state":"joined""#), "{text}");
    let read: Picture = serde_json::from_str(&text).expect("the same");
    assert_eq!(read, picture);
}

#[test]
fn looks_at_nodes_that_nobody_told_of_are_passed_over() {
    let mut history = History::new("lab");
    history.note_look("ghost", look(T0), 0);
    history.note_gone("ghost", Gone::Dead, T0);
    assert_eq!(history.picture().nodes, []);
}
