//! Pools that things happen to: nodes are killed, stopped and asked to leave, others join, links break.

mod common;

use std::{process::Command, time::Duration};

use common::{PATIENCE, ended_well, faults, figures, finish, has, plan, run, start, wait_for};
use satin_cli::{
    pool::{Output, Plan, PoolOutcome},
    store::StoreUse,
    wan::WanLink,
};
use satin_runtime::observe::events::{Event, Record};

/// 3,125 leaves of 5 ms: some seconds for four nodes, whatever the machine.
const LEAVES: [&str; 4] = ["5", "5", "5000", "--sleep"];
const ANSWER: &str = "= 3125 leaves";

/// That example on these sites, without slow links, and what is to happen to it.
fn knary(sites: &str, what: &[&str]) -> Plan {
    Plan {
        wan: None,
        faults: faults(what),
        env: vec![
            // What runs may take as long as the whole program.
            ("SATIN_GRACE".into(), "1".into()),
            // Three masters that are killed one after the other may have run the same job, by chance.
            ("SATIN_MAX_CRASHES".into(), "20".into()),
        ],
        ..plan("knary", &LEAVES, sites)
    }
}

#[track_caller]
fn said(outcome: &PoolOutcome, line: &str) {
    let ends = |said: &str| said.starts_with("satin: ") && said.ends_with(line);
    assert!(
        outcome.stderr.lines().any(ends),
        "expected {line:?}: {outcome:#?}"
    );
}

/// A line that begins like that.
#[track_caller]
fn said_of(outcome: &PoolOutcome, line: &str) {
    let begins = |said: &str| said.starts_with(line);
    assert!(
        outcome.stderr.lines().any(begins),
        "expected {line:?}: {outcome:#?}"
    );
}

#[track_caller]
fn answers(outcome: &PoolOutcome) {
    assert!(outcome.stdout.contains(ANSWER), "{outcome:#?}");
    assert_eq!(outcome.code, 0, "{outcome:#?}");
}

/// The terms of all masters, as they came.
fn terms(outcome: &PoolOutcome) -> Vec<u32> {
    let term = |record: &Record| match record.event {
        Event::Master { term, .. } => Some(term),
        _ => None,
    };
    outcome.records.iter().filter_map(term).collect()
}

fn is_dead(event: &Event) -> bool {
    matches!(event, Event::Dead { .. })
}

#[test]
fn a_node_that_is_killed_takes_nothing_with_it() {
    let outcome = run(knary("a:1,b:3", &["kill b-1@0.5s"]));
    answers(&outcome);
    said(&outcome, " s: killed b-1");
    said(&outcome, " s: b-1 was found dead");
    said_of(&outcome, "satin: 1 killed, exit code 0");
    assert!(has(&outcome.records, "b-1", is_dead), "{outcome:#?}");
    assert!(
        !outcome.stderr.contains("too early"),
        "that was to be expected: {outcome:#?}"
    );
    assert!(!outcome.nodes["b-1"].success());
    assert!(outcome.nodes["b-2"].success());
}

/// The results that a pool of four keeps for others when one of them has been killed.
fn kept_after_a_death(buddy: &str) -> u64 {
    let mut plan = knary("a:4", &["kill a-1@2s"]);
    plan.env.push(("SATIN_BUDDY".into(), buddy.into()));
    plan.env.push(("SATIN_STORE_EVERY".into(), "0.1".into()));
    let outcome = run(plan);
    answers(&outcome);
    let kept = ["a-0", "a-2", "a-3"].map(|node| figures(&outcome, node).tally.kept);
    kept.into_iter().sum()
}

/// Some results are kept without buddies too: those of jobs that were stolen from the dead node. How many these are, and what the
/// node has finished when it is killed, depends on the machine, hence several attempts.
#[test]
fn what_a_killed_node_had_finished_is_found_at_its_buddy() {
    let attempt = || (kept_after_a_death("1"), kept_after_a_death("0"));
    let attempts = std::iter::repeat_with(attempt).take(8);
    let found = |&(with, without): &(u64, u64)| with > without + 3;
    let mut seen = Vec::new();
    let shown = attempts
        .inspect(|numbers| seen.push(*numbers))
        .any(|numbers| found(&numbers));
    assert!(shown, "kept with and without buddies: {seen:?}");
}

#[test]
fn a_whole_site_can_be_lost() {
    let outcome = run(knary("a:2,b:2", &["kill b@0.5s"]));
    answers(&outcome);
    said_of(&outcome, "satin: 2 killed, exit code 0");
}

#[test]
fn a_short_pause_is_no_death() {
    let outcome = run(knary("a:3", &["stop a-2@0.3s..1s"]));
    answers(&outcome);
    said(&outcome, " s: stopped a-2");
    said(&outcome, " s: continued a-2");
    assert!(!has(&outcome.records, "a-2", is_dead), "{outcome:#?}");
    assert!(figures(&outcome, "a-2").jobs > 0);
}

/// It is ended with the pool all the same.
#[test]
fn who_is_stopped_for_good_is_not_waited_for() {
    let outcome = run(knary("a:3", &["stop a-2@0.3s"]));
    answers(&outcome);
    said_of(&outcome, "satin: 1 stopped, exit code 0");
    assert!(!outcome.nodes["a-2"].success());
}

#[test]
fn who_joins_later_helps_also_at_a_new_site() {
    let outcome = run(knary("a:2", &["join a@0.2s", "join c@0.2s"]));
    answers(&outcome);
    said(&outcome, " s: started a-2");
    said(&outcome, " s: c-0 is in");
    said_of(&outcome, "satin: 2 started later, exit code 0");
    assert!(figures(&outcome, "a-2").jobs > 0);
    assert!(figures(&outcome, "c-0").jobs > 0);
}

/// Without any flag for slow links: relays are there as soon as a partition is to come.
#[test]
fn a_short_partition_loses_nothing() {
    let outcome = run(knary("a:1,b:2", &["partition a|b@0.3s..0.8s"]));
    answers(&outcome);
    said(&outcome, " s: a and b do not reach each other");
    said(&outcome, " s: a and b reach each other again");
    assert!(!outcome.records.iter().any(|record| is_dead(&record.event)));
}

/// What a firewall says that rejects is what a machine says on which a node was killed: each site would take the other for
/// dead at once, and the one without the master would elect another.
#[cfg(target_os = "linux")]
#[test]
fn who_is_behind_a_firewall_that_rejects_is_not_taken_for_gone() {
    let mut plan = knary("a:2,b:2", &["partition a|b@0.5s..3.5s reject"]);
    plan.env
        .push(("SATIN_PARTITION_WAIT".into(), "3600".into()));
    let outcome = run(plan);
    answers(&outcome);
    said(
        &outcome,
        " s: a and b do not reach each other: a firewall rejects everything",
    );
    said(&outcome, " s: a and b reach each other again");
    assert_eq!(terms(&outcome), [0], "{outcome:#?}");
    for node in ["a-0", "a-1", "b-0", "b-1"] {
        assert!(outcome.nodes[node].success(), "{node}: {outcome:#?}");
    }
}

/// Both sides of a cut that lasts longer than the wait see the store: there is one `main`, and one file.
#[test]
fn with_a_store_a_long_cut_makes_no_second_main() {
    let scratch = tempfile::tempdir().expect("a directory");
    let out = scratch.path().join("table.csv");
    let store = format!("file:{}", scratch.path().join("store").display());
    let out_text = out.to_str().expect("a name");
    let outcome = run(Plan {
        wan: None,
        faults: faults(&["partition a|b@1s..8s"]),
        store: Some(StoreUse::new(store.parse().expect("a URL")).expect("made")),
        env: vec![("SATIN_PARTITION_WAIT".into(), "3".into())],
        ..plan(
            "sweep",
            &["--steps", "2000000", "--out", out_text],
            "a:1,b:1",
        )
    });
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    said(&outcome, " s: a and b reach each other again");
    assert_eq!(outcome.stdout.matches("(ok)\n").count(), 1, "{outcome:#?}");
    let table = std::fs::read_to_string(&out).expect("published");
    assert_eq!(table.lines().count(), 1001);
    // The first `main` of the first epoch.
    let fence = std::fs::read_to_string(scratch.path().join(".table.csv.fence"));
    let fence = fence.expect("noted");
    assert!(fence.ends_with(" 0 0\n"), "{fence}");
}

/// What is away at the other site when the link breaks, and all that follows, goes through the third.
#[test]
fn two_sites_that_never_reach_each_other_again_work_through_a_third() {
    let mut plan = knary("a:1,b:1,c:1", &["partition a|b@1s"]);
    plan.wan = Some(WanLink {
        rtt: Duration::from_millis(10),
        ..WanLink::default()
    });
    let outcome = run(plan);
    answers(&outcome);
    said(&outcome, " s: a and b do not reach each other");
    assert!(!outcome.records.iter().any(|record| is_dead(&record.event)));
    for node in ["a-0", "b-0", "c-0"] {
        assert!(outcome.nodes[node].success(), "{node}: {outcome:#?}");
    }
}

/// Emulated links have no machine that could say that nobody listens any more: the launcher says it.
#[test]
fn the_only_node_of_its_site_that_is_killed_is_not_taken_for_a_partition() {
    let mut plan = knary("a:1,b:1", &["kill master@1s"]);
    plan.wan = Some(WanLink {
        rtt: Duration::from_millis(10),
        ..WanLink::default()
    });
    plan.env
        .push(("SATIN_PARTITION_WAIT".into(), "3600".into()));
    let outcome = run(plan);
    answers(&outcome);
    master(&outcome, 1);
}

#[test]
fn when_the_master_is_killed_another_node_gives_the_answer() {
    let outcome = run(knary("a:2,b:2", &["kill master@0.5s"]));
    answers(&outcome);
    said(&outcome, " s: killed a-0 (the master)");
    said(&outcome, " s: a-0 was found dead");
    let next = master(&outcome, 1);
    said(
        &outcome,
        &format!(" s: {next} is master now: `main` begins again there"),
    );
    assert_eq!(outcome.stdout.matches(ANSWER).count(), 1, "{outcome:#?}");
    let ended = |event: &Event| matches!(event, Event::PoolEnded { code: 0 });
    assert!(has(&outcome.records, next, ended), "{outcome:#?}");
}

/// Who was master in that term.
#[track_caller]
fn master(outcome: &PoolOutcome, term: u32) -> &str {
    let is_master =
        |record: &&Record| matches!(record.event, Event::Master { term: of, .. } if of == term);
    let record = outcome.records.iter().find(is_master);
    &record
        .unwrap_or_else(|| panic!("there was none: {outcome:#?}"))
        .name
}

/// And its successor, and the successor of that.
#[test]
fn masters_can_be_killed_one_after_the_other() {
    let outcome = run(knary(
        "a:2,b:3",
        &["kill master@0.3s", "kill master@2s", "kill master@4s"],
    ));
    answers(&outcome);
    assert_eq!(terms(&outcome), [0, 1, 2, 3], "{outcome:#?}");
}

#[track_caller]
fn left(outcome: &PoolOutcome, name: &str) {
    assert!(outcome.nodes[name].success(), "{outcome:#?}");
    let is_left = |event: &Event| matches!(event, Event::Left { .. });
    assert!(has(&outcome.records, name, is_left), "{outcome:#?}");
    assert!(!has(&outcome.records, name, is_dead), "{outcome:#?}");
}

#[test]
fn who_is_asked_to_leave_leaves_and_is_not_taken_for_dead() {
    let outcome = run(knary("a:2,b:2", &["drain b-1@0.5s"]));
    answers(&outcome);
    left(&outcome, "b-1");
    said(&outcome, " s: asked b-1 to leave");
    said_of(&outcome, "satin: 1 asked to leave, exit code 0");
}

#[test]
fn a_master_that_is_asked_to_leave_has_a_successor() {
    let outcome = run(knary("a:2,b:2", &["drain master@0.5s"]));
    answers(&outcome);
    left(&outcome, "a-0");
    let next = master(&outcome, 1);
    said(
        &outcome,
        &format!(" s: {next} is master now: `main` begins again there"),
    );
}

/// The program moves from one set of machines to another while it runs.
#[test]
fn a_whole_site_with_the_master_can_be_given_up() {
    let outcome = run(knary("a:2", &["join b@0", "join b@0", "drain a@0.8s"]));
    answers(&outcome);
    left(&outcome, "a-0");
    left(&outcome, "a-1");
    assert!(master(&outcome, 1).starts_with("b-"), "{outcome:#?}");
}

#[test]
fn nodes_can_be_asked_to_leave_from_outside() {
    let mut pool = start(knary("a:1,b:2", &[]));
    wait_for(&mut pool, |records| {
        has(records, "a-0", |event| {
            matches!(event, Event::RootStarted { .. })
        })
    });
    let addr = pool
        .records()
        .expect("readable")
        .iter()
        .find_map(|record| match record.event {
            Event::Node { addr, .. } => Some(addr.to_string()),
            _ => None,
        });
    let credential = pool.credential();
    let drain = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_satin"))
            .arg("drain")
            .args(arguments)
            .args(["--join", addr.as_deref().expect("a node"), "--credential"])
            .arg(&credential)
            .output()
            .expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), stderr)
    };
    let (done, said) = drain(&["c-7", "--pool", "knary"]);
    assert!(!done);
    assert!(
        said.contains("no node is called `c-7`; nodes: a-0, b-0, b-1"),
        "{said}"
    );
    let (done, said) = drain(&["b-0", "--pool", "another"]);
    assert!(
        !done && said.contains("belongs to the pool `knary`"),
        "{said}"
    );
    let (done, said) = drain(&["--site", "b", "--pool", "knary"]);
    assert!(done, "{said}");
    for name in ["b-0", "b-1"] {
        assert!(
            said.contains(&format!("{name} is about to leave\n")),
            "{said}"
        );
        assert!(said.contains(&format!("{name} has left\n")), "{said}");
    }
    let outcome = finish(pool);
    answers(&outcome);
    left(&outcome, "b-0");
    left(&outcome, "b-1");
}

#[test]
fn what_comes_too_late_is_told() {
    let quick = Plan {
        faults: faults(&["kill a-1@50s"]),
        ..plan("fib", &["20"], "a:2")
    };
    let outcome = run(quick);
    ended_well(&outcome);
    said(
        &outcome,
        "exit code 0; too late to happen, as the pool had ended: kill a-1@50s",
    );
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    for (flags, complaint) in [
        (["--kill", "s0-7@1s"], "no node or site `s0-7`"),
        (["--kill", "s0-1@1x"], "a time such as 30ms"),
        (["--kill", "s0-1"], "expected NODE@TIME"),
        (["--stop", "s0-1@3s..2s"], "before it begins"),
        (["--drain", "nowhere@1s"], "no node or site `nowhere`"),
        (["--join", "@1s"], "expected SITE@TIME"),
        (["--partition", "s0|s1@1s..2s"], "no site `s1`"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_satin"))
            .args(["run", "--nodes", "2"])
            .args(flags)
            .args(["--", "echo", "started"])
            .output()
            .expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{flags:?}");
        assert!(stderr.contains(complaint), "{flags:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
}

// ------------------------------------------------------------------------------------------- scripts that stand for nodes

/// Tells what a node tells when it is in.
const IN: &str = r#"
tell() { printf '{"event":"%s","name":"%s","site":"%s","at_ms":0%s}\n' "$1" "$SATIN_NAME" "$SATIN_SITE" "$2" >> "$SATIN_EVENTS"; }
tell node ",\"pid\":$$,\"addr\":\"$SATIN_LISTEN\",\"threads\":1"
case $SATIN_NAME in
    s0-0) tell master ;;
    *) tell joined ;;
esac
"#;

fn scripted(script: &str, what: &[&str]) -> Plan {
    let script = format!("{IN}{script}");
    Plan {
        output: Output::Keep,
        faults: faults(what),
        ..Plan::new(["sh", "-c", &script], "1x3".parse().expect("sites"))
    }
}

#[test]
fn the_code_and_the_words_are_those_of_the_last_master() {
    let script = r#"case $SATIN_NAME in
            s0-0) echo one; sleep 1000 ;;
            s0-1) echo before; until [ "$(grep -c before "$WORDS")" = 1 ]; do sleep 0.01; done
                  tell master ',"term":1'; echo two; echo complaint >&2; tell pool_ended ',"code":5'; exit 5 ;;
            s0-2) until grep -q pool_ended "$SATIN_EVENTS"; do sleep 0.01; done; echo after ;;
        esac"#;
    let words = tempfile::NamedTempFile::new().expect("a file");
    let mut plan = scripted(script, &["kill master@0"]);
    plan.env.push(("WORDS".into(), words.path().into()));
    let mut pool = start(plan);
    // What it printed before it was master has been read as such.
    wait_for(&mut pool, |records| {
        has(records, "s0-1", |event| {
            matches!(event, Event::Joined { .. })
        })
    });
    while !pool.stderr().contains("[s0-1 @ s0] before") || !pool.stderr().contains("killed s0-0") {
        pool.wait_for(Duration::from_millis(5), |_| false)
            .expect("readable");
    }
    std::fs::write(words.path(), "before\n").expect("written");
    let outcome = finish(pool);
    assert_eq!(outcome.code, 5, "{outcome:#?}");
    assert_eq!(outcome.stdout, "one\ntwo\n");
    said(&outcome, " s: killed s0-0 (the master)");
    said(
        &outcome,
        " s: s0-1 is master now: `main` begins again there",
    );
    said(&outcome, "satin: 1 killed, exit code 5");
    for line in ["[s0-1 @ s0] complaint", "[s0-2 @ s0] after"] {
        assert!(outcome.stderr.contains(line), "{}", outcome.stderr);
    }
    assert!(!outcome.stderr.contains("too early"), "{outcome:#?}");
}

#[test]
fn a_master_that_hands_over_and_goes_does_not_end_the_pool() {
    let script = r#"case $SATIN_NAME in
            s0-0) trap 'tell draining; tell left; exit 0' TERM; sleep 1000 & wait ;;
            s0-1) until grep -q left "$SATIN_EVENTS"; do sleep 0.01; done
                  sleep 0.3; tell master ',"term":1'; tell pool_ended ',"code":0' ;;
            s0-2) until grep -q pool_ended "$SATIN_EVENTS"; do sleep 0.01; done ;;
        esac"#;
    let outcome = run(scripted(script, &["drain master@0.1s"]));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    said(&outcome, " s: asked s0-0 (the master) to leave");
    said(&outcome, " s: s0-0 has left");
    said(&outcome, "satin: 1 asked to leave, exit code 0");
    assert!(!outcome.stderr.contains("too early"), "{outcome:#?}");
}

/// Nobody of those who live was ever let in: nobody can be master.
#[test]
fn when_nobody_is_left_who_could_be_master_the_pool_ends() {
    let script = "sleep 1000";
    let began = std::time::Instant::now();
    let outcome = run(scripted(
        script,
        &["stop s0-1@0", "kill s0-0@0.1s", "kill s0-2@0.2s"],
    ));
    assert_eq!(outcome.code, 128 + 9, "{outcome:#?}");
    said(
        &outcome,
        "nobody is left who could be master, stopping the others",
    );
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(outcome.nodes.len(), 3);
}

/// The others would wait for it for ever.
#[test]
fn a_node_that_fails_before_all_are_in_ends_the_pool() {
    let fails = r#"s0-2) until grep -q '"master"' "$SATIN_EVENTS"; do sleep 0.01; done; exit 3 ;;"#;
    let script = IN.replace("*) tell joined", &format!("{fails}\n    *) tell joined"));
    let script = format!("{script}sleep 1000");
    let plan = Plan {
        output: Output::Keep,
        ..Plan::new(["sh", "-c", &script], "1x3".parse().expect("sites"))
    };
    let outcome = run(plan);
    assert_eq!(outcome.code, 3, "{outcome:#?}");
    said(
        &outcome,
        "satin: s0-2 ended with exit code 3 before it was in the pool, which begins when all nodes are in: stopping the others",
    );
    assert!(!outcome.stderr.contains("too early"), "{outcome:#?}");
}

#[test]
fn who_comes_too_late_to_be_let_in_is_told_to_go() {
    let script = IN.replace("*) tell joined", "s0-3) tell stats ;;\n    *) tell joined")
        + r#"case $SATIN_NAME in
            s0-0) until grep -q stats "$SATIN_EVENTS"; do sleep 0.01; done; tell pool_ended ',"code":0' ;;
            s0-3) sleep 1000 ;;
            *) until grep -q pool_ended "$SATIN_EVENTS"; do sleep 0.01; done ;;
        esac"#;
    let outcome = run(Plan {
        output: Output::Keep,
        faults: faults(&["join s0@0"]),
        ..Plan::new(["sh", "-c", &script], "1x3".parse().expect("sites"))
    });
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    said(&outcome, " s: s0-3 came too late to be let in");
    assert!(!outcome.stderr.contains("does not end"), "{outcome:#?}");
    assert!(!outcome.stderr.contains("too early"), "{outcome:#?}");
}

/// It has nothing to hand over, and ends as any process does that SIGTERM ends.
#[test]
fn a_node_that_is_drained_before_it_is_in_has_not_failed() {
    let script = IN.replace("*) tell joined", "s0-3) ;;\n    *) tell joined")
        + r#"case $SATIN_NAME in
            s0-0) until [ -e "$STOP" ]; do sleep 0.01; done; tell pool_ended ',"code":0' ;;
            s0-3) exec sleep 1000 ;;
            *) until grep -q pool_ended "$SATIN_EVENTS"; do sleep 0.01; done ;;
        esac"#;
    let scratch = tempfile::tempdir().expect("a directory");
    let stop = scratch.path().join("stop");
    let mut plan = Plan {
        output: Output::Keep,
        faults: faults(&["join s0@0", "drain s0-3@0.1s"]),
        ..Plan::new(["sh", "-c", &script], "1x3".parse().expect("sites"))
    };
    plan.env.push(("STOP".into(), stop.clone().into()));
    let mut pool = start(plan);
    let began = std::time::Instant::now();
    while !pool.stderr().contains(" s: s0-3 left before it was in") {
        assert!(began.elapsed() < PATIENCE, "{}", pool.stderr());
        pool.wait_for(Duration::from_millis(5), |_| false)
            .expect("readable");
    }
    std::fs::write(stop, "").expect("written");
    let outcome = finish(pool);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(!outcome.stderr.contains("too early"), "{outcome:#?}");
}

#[test]
fn a_drained_node_that_fails_is_reported() {
    let script = r#"case $SATIN_NAME in
            s0-0) until [ -e "$STOP" ]; do sleep 0.01; done; tell pool_ended ',"code":0' ;;
            s0-1) trap 'exit 3' TERM; sleep 1000 & wait ;;
            s0-2) trap 'touch "$STOP"; exit 0' TERM; sleep 1000 & wait ;;
        esac"#;
    let scratch = tempfile::tempdir().expect("a directory");
    let mut plan = scripted(script, &["drain s0-1@0", "drain s0-2@2s"]);
    plan.env
        .push(("STOP".into(), scratch.path().join("stop").into()));
    let outcome = run(plan);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let reported = |name: &str| {
        let line = format!("satin: {name} ended with exit code");
        outcome.stderr.contains(&line)
    };
    assert!(reported("s0-1") && !reported("s0-2"), "{outcome:#?}");
}
