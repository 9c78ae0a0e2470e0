//! Stories of runs: begun, written, broken off, resumed, finished.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fs,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicI32, Ordering},
    },
    thread,
    time::Duration,
};

use super::*;
use crate::{
    job::{
        Answer, Batch, BoundName, Fingerprint, JobName, MainBeat, Offer, RootName, RunName, Saved,
        StoredFact, ValueBytes, ValueName,
    },
    stable::{
        file::Directory,
        memory::{Memory, StableCall},
    },
};

const SECRET: &[u8] = b"secret";

fn store() -> (Arc<Memory>, Runs) {
    let memory = Arc::new(Memory::new());
    let runs = Runs::new(memory.clone(), SECRET, false);
    (memory, runs)
}

fn request() -> BeginRequest {
    BeginRequest {
        pool: "pool".into(),
        program: Program {
            hash: [1; 32],
            target: "x86_64-linux-".into(),
            executable: [2; 32],
            command_line: vec!["--depth".into(), "7".into()],
            mixed_builds: false,
        },
        resume: Resume::Auto,
        force: false,
        max_crashes: 3,
        by: "node".into(),
        founder: rand::random::<u64>().into(),
    }
}

fn log(epoch: u32, node: u128) -> LogName {
    LogName {
        epoch,
        node,
        generation: 0,
    }
}

fn fact(path: &[u32], fingerprint: u64, answer: &str) -> StoredFact {
    StoredFact {
        saved: Saved {
            name: JobName::new(path.iter().copied().collect(), Fingerprint(fingerprint)),
            root: Fingerprint(9),
            answer: Answer::result(answer.as_bytes().into(), Vec::new()),
        },
        took: Duration::from_millis(5),
    }
}

fn offer(value: u8) -> Offer {
    Offer {
        bound: BoundName(1),
        root: RootName {
            number: 0,
            fingerprint: Fingerprint(9),
        },
        value: vec![value],
    }
}

fn batch(facts: &[StoredFact]) -> Batch {
    Batch {
        facts: facts.to_vec(),
        ..Batch::default()
    }
}

fn write(runs: &Runs, begun: &EpochStart, node: u128, facts: &[StoredFact]) {
    let mut writer = runs.writer(&begun.place, log(begun.epoch, node));
    writer.append(batch(facts)).expect("written");
}

fn load(runs: &Runs, place: &RunPlace) -> LoadedRun {
    runs.load(place, &|_| true).expect("it can be read")
}

fn segment(place: &RunPlace, log: LogName, segment: u32) -> String {
    place.path(RunFile::Segment(log, segment))
}

/// The latest `main` is the one that began last, whatever others leave in the store.
#[test]
fn each_main_has_a_later_number() {
    let (memory, runs) = store();
    let place = runs.begin(&request()).expect("begun").place;
    assert_eq!(runs.latest_main(&place).expect("read"), None);
    let mut first = runs.begin_main(&place, 0, 7).expect("begun");
    let second = runs.begin_main(&place, 0, 8).expect("begun");
    assert!(second.number > first.number);
    runs.beat(&place, &mut first).expect("it goes on");
    assert_eq!(runs.latest_main(&place).expect("read"), Some(second));
    let mut resumed = runs.begin_main(&place, 1, 9).expect("begun");
    for _ in 0..3 {
        runs.beat(&place, &mut resumed).expect("it goes on");
    }
    // Told twice: the first attempt was made, and not heard of.
    let mut again = MainBeat { beat: 2, ..resumed };
    runs.beat(&place, &mut again).expect("it goes on");
    assert_eq!(runs.latest_main(&place).expect("read"), Some(resumed));
    let beats = memory.files().into_keys();
    let beats: Vec<String> = beats.filter(|path| path.contains("/main/")).collect();
    assert_eq!(beats.len(), 3, "one for each `main`: {beats:?}");
    // Without the credential nobody begins one.
    let forged = format!("{}main/9-9/9", place.prefix());
    memory.create(&forged, b"nothing").expect("there is room");
    assert_eq!(runs.latest_main(&place).expect("read"), Some(resumed));
}

/// The sign of life that was listed is gone when it is read, as the next one has taken its place.
#[test]
fn a_beat_between_two_calls_makes_no_older_main_the_latest() {
    let (memory, runs) = store();
    let place = runs.begin(&request()).expect("begun").place;
    runs.begin_main(&place, 0, 7).expect("begun");
    let mut latest = runs.begin_main(&place, 0, 8).expect("begun");
    let store = Interrupted::before(memory, |call, path| {
        call == StableCall::Read && path.contains("/main/")
    });
    store.happens({
        let place = place.clone();
        move || runs.beat(&place, &mut latest).expect("it goes on")
    });
    let runs = Runs::new(store, SECRET, false);
    let seen = runs.latest_main(&place).expect("read");
    assert_eq!(seen, Some(MainBeat { beat: 1, ..latest }));
}

/// Nodes that are cut off read there how the run has ended, until the pool is started again.
#[test]
fn the_exit_code_stays_if_it_is_to() {
    let (memory, runs) = store();
    let place = runs.begin(&request()).expect("begun").place;
    runs.begin_main(&place, 0, 7).expect("begun");
    assert_eq!(runs.end(&place).expect("read"), None);
    runs.finish(&place, 3, Stays::Note).expect("removed");
    assert_eq!(runs.end(&place).expect("read"), Some(3));
    assert_eq!(memory.files().len(), 1);
    assert!(runs.list(None).expect("read").is_empty());
    let next = runs.begin(&request()).expect("begun").place;
    assert_ne!(next, place);
    assert_eq!(runs.end(&place).expect("read"), None);
}

#[test]
fn a_run_that_was_broken_off_goes_on_by_itself() {
    let (_, runs) = store();
    let first = runs.begin(&request()).expect("a new run");
    assert_eq!((first.epoch, first.remarks.len()), (0, 0));
    write(&runs, &first, 1, &[fact(&[0, 1], 1, "one")]);
    write(&runs, &first, 2, &[fact(&[0, 2], 2, "two")]);
    let second = runs.begin(&request()).expect("it is resumed");
    assert_eq!((&second.place, second.epoch), (&first.place, 1));
    assert_eq!(runs.epoch(&first.place).expect("there"), 1);
    let loaded = load(&runs, &second.place);
    assert_eq!(
        loaded.batch.facts,
        [fact(&[0, 1], 1, "one"), fact(&[0, 2], 2, "two")]
    );
    assert_eq!((loaded.logs, loaded.torn.len()), (2, 0));
    let own = runs.load(&second.place, &|log| log.node == 2);
    assert_eq!(own.expect("read").batch.facts, [fact(&[0, 2], 2, "two")]);
}

#[test]
fn a_finished_run_leaves_nothing_unless_it_is_to_be_kept() {
    let (memory, runs) = store();
    let first = runs.begin(&request()).expect("a new run");
    write(&runs, &first, 1, &[fact(&[0], 1, "one")]);
    runs.finish(&first.place, 0, Stays::Nothing)
        .expect("finished");
    assert!(memory.files().is_empty());
    assert!(matches!(
        runs.epoch(&first.place),
        Err(StableError::Missing(_))
    ));

    let second = runs.begin(&request()).expect("a new run");
    assert_ne!(second.place, first.place);
    write(&runs, &second, 1, &[fact(&[0], 1, "one")]);
    runs.finish(&second.place, 3, Stays::All).expect("finished");
    runs.finish(&second.place, 3, Stays::All)
        .expect("told twice");
    let listed = runs.list(None).expect("listed");
    assert_eq!((listed.len(), listed[0].done), (1, Some(3)));
    let third = runs.begin(&request()).expect("a new run");
    assert!(third.place != second.place && third.epoch == 0 && third.remarks.is_empty());
    let again = BeginRequest {
        resume: Resume::Run(second.place.run),
        ..request()
    };
    let error = runs.begin(&again).expect_err("it is finished").to_string();
    let expected = format!(
        "run {} is finished, with exit code 3; --fresh starts a new run",
        second.place.run
    );
    assert_eq!(error, expected);
}

/// The node that removes the run dies after any number of deletions.
#[test]
fn a_finished_run_whose_removal_is_interrupted_is_not_resumed() {
    for deletions in 0..5 {
        let (memory, runs) = store();
        let begun = runs.begin(&request()).expect("a new run");
        write(&runs, &begun, 1, &[fact(&[0], 1, "one")]);
        memory.fail_after(StableCall::Delete, deletions, 1);
        let finished = runs.finish(&begun.place, 0, Stays::Nothing);
        assert_eq!(finished.is_ok(), deletions >= 4);
        memory.fail(StableCall::Delete, 0);
        let next = runs.begin(&request()).expect("a new run");
        assert!(next.place != begun.place && next.remarks.is_empty());
        runs.remove(&begun.place).expect("removed");
        let left = memory.list(&begun.place.prefix()).expect("listed");
        assert!(left.is_empty());
    }
}

#[test]
fn those_with_another_credential_see_a_run_and_read_nothing() {
    let (memory, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    write(&runs, &begun, 1, &[fact(&[0], 1, "one")]);
    let others = Runs::new(memory.clone(), b"another", false);
    let listed = others.list(Some("pool")).expect("listed");
    assert_eq!(
        (listed.len(), listed[0].readable, listed[0].logs),
        (1, false, 1)
    );
    let next = others.begin(&request()).expect("a run of their own");
    assert_ne!(next.place, begun.place);
    let remark = format!(
        "run {} is not resumed: it was started with another credential, or its files are damaged",
        begun.place.run
    );
    assert_eq!(next.remarks, [remark]);
    let loaded = load(&others, &begun.place);
    assert_eq!((loaded.batch, loaded.torn.len()), (Batch::default(), 1));
    // Nor can a run be moved to another name.
    let moved = RunPlace {
        pool: "pool".into(),
        run: RunName(7),
    };
    for (path, bytes) in memory.files() {
        if let Some(rest) = path.strip_prefix(&begun.place.prefix()) {
            memory
                .create(&format!("{}{rest}", moved.prefix()), &bytes)
                .expect("new");
        }
    }
    assert_eq!(load(&runs, &moved).batch, Batch::default());
}

#[test]
fn sealed_runs_are_read_by_those_who_have_the_credential() {
    let memory = Arc::new(Memory::new());
    let runs = Runs::new(memory.clone(), SECRET, true);
    let begun = runs.begin(&request()).expect("a new run");
    write(&runs, &begun, 1, &[fact(&[0], 1, "a result in clear text")]);
    let shows = |text: &str| {
        let files = memory.files();
        files.values().any(|bytes| {
            bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        })
    };
    assert!(!shows("a result in clear text") && !shows("--depth"));
    let plain = Runs::new(memory.clone(), SECRET, false);
    let next = plain.begin(&request()).expect("it is resumed");
    assert_eq!((&next.place, next.epoch), (&begun.place, 1));
    assert_eq!(load(&plain, &begun.place).batch.facts.len(), 1);
}

#[test]
fn another_program_or_command_line_does_not_resume_and_says_why() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    write(&runs, &begun, 1, &[fact(&[0], 1, "one")]);
    type Change = fn(&mut Program);
    let changes: [(Change, &str); 3] = [
        (
            |program| program.hash = [7; 32],
            "by another program, or before this one was edited",
        ),
        (
            |program| program.executable = [7; 32],
            "by another build of the program",
        ),
        (
            |program| program.command_line = vec!["8\x1b".into()],
            "with other arguments: `--depth 7` instead of `8 `",
        ),
    ];
    for (change, why) in changes {
        let mut other = request();
        change(&mut other.program);
        other.force = true;
        let plan = runs.begin(&other).expect("a new run");
        assert_ne!(plan.place, begun.place);
        assert!(
            plan.remarks.iter().any(|remark| remark.contains(why)),
            "{:?}",
            plan.remarks
        );
        runs.remove(&plan.place).expect("removed");
        other.resume = Resume::Run(begun.place.run);
        let error = runs.begin(&other).expect_err("another program");
        assert!(matches!(error, BeginError::Different { .. }));
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_build_is_compared_with_those_of_its_target_in_all_epochs() {
    let (_, runs) = store();
    let begin = |target: &str, executable: u8, mixed_builds| {
        let mut request = request();
        request.max_crashes = 100;
        request.program.target = target.into();
        request.program.executable = [executable; 32];
        request.program.mixed_builds = mixed_builds;
        runs.begin(&request).expect("an epoch")
    };
    let first = begin("x86", 1, false);
    let second = begin("arm", 2, false);
    assert_eq!(
        (&second.place, second.epoch),
        (&first.place, 1),
        "a target that is new"
    );
    let third = begin("arm", 2, false);
    assert_eq!((&third.place, third.epoch), (&first.place, 2));
    let other = begin("arm", 3, false);
    assert_ne!(other.place, first.place);
    runs.remove(&other.place).expect("removed");
    let mixed = begin("arm", 3, true);
    assert_eq!((&mixed.place, mixed.epoch), (&first.place, 3));
    assert_ne!(
        begin("arm", 2, false).place,
        first.place,
        "the other build has been there"
    );
}

#[test]
fn of_the_runs_that_match_the_newest_goes_on_and_other_pools_are_left_alone() {
    let (_, runs) = store();
    let fresh = || {
        thread::sleep(Duration::from_millis(3));
        let request = BeginRequest {
            resume: Resume::No,
            ..request()
        };
        runs.begin(&request).expect("a new run")
    };
    let (older, newer) = (fresh(), fresh());
    let elsewhere = BeginRequest {
        pool: "my pool".into(),
        ..request()
    };
    let elsewhere = runs.begin(&elsewhere).expect("a new run");
    assert!(elsewhere.remarks.is_empty());
    assert_eq!(runs.begin(&request()).expect("resumed").place, newer.place);
    let listed: Vec<RunPlace> = (runs.list(Some("pool")).expect("listed").into_iter())
        .map(|state| state.place)
        .collect();
    assert_eq!(listed, [newer.place, older.place.clone()]);
    assert_eq!(runs.list(None).expect("listed").len(), 3);
    let named = BeginRequest {
        resume: Resume::Run(older.place.run),
        ..request()
    };
    assert_eq!(runs.begin(&named).expect("resumed").place, older.place);
    let missing = BeginRequest {
        resume: Resume::Run(RunName(1)),
        ..request()
    };
    let error = runs.begin(&missing).expect_err("no such run");
    assert_eq!(
        error.to_string(),
        "the pool `pool` has no run 0000000000000001; `satin runs ls` shows those that there are"
    );
}

#[test]
fn many_runs_are_not_told_of_one_by_one() {
    let (_, runs) = store();
    for number in 0..9 {
        let mut request = request();
        request.resume = Resume::No;
        request.program.command_line = vec![number.to_string()];
        runs.begin(&request).expect("a new run");
    }
    let remarks = runs.begin(&request()).expect("a new run").remarks;
    assert_eq!(
        (remarks.len(), &*remarks[5]),
        (6, "nor are 4 older runs of this pool")
    );
}

#[test]
fn a_run_that_comes_to_nothing_again_and_again_needs_force() {
    let (_, runs) = store();
    let first = runs.begin(&request()).expect("a new run");
    write(&runs, &first, 1, &[fact(&[0, 1], 1, "one")]);
    for epoch in 1..=3 {
        let begun = runs.begin(&request()).expect("it is resumed");
        assert_eq!((&begun.place, begun.epoch), (&first.place, epoch));
    }
    let error = runs.begin(&request()).expect_err("no progress");
    assert!(matches!(error, BeginError::NoProgress { epochs: 3, .. }));
    assert!(error.to_string().contains("--force") && error.to_string().contains("--fresh"));
    let forced = BeginRequest {
        force: true,
        ..request()
    };
    let begun = runs.begin(&forced).expect("by force");
    assert_eq!((&begun.place, begun.epoch), (&first.place, 4));
    write(&runs, &begun, 1, &[fact(&[0, 2], 1, "two")]);
    assert_eq!(runs.begin(&request()).expect("there was progress").epoch, 5);
}

#[test]
fn of_eight_resumes_at_once_one_goes_on() {
    let path = std::env::temp_dir().join(format!("satin-test-{:016x}", rand::random::<u64>()));
    let runs = || {
        Runs::new(
            Arc::new(Directory::open(&path).expect("written to")),
            SECRET,
            false,
        )
    };
    let first = runs().begin(&request()).expect("a new run");
    let ready = Barrier::new(8);
    let contend = || {
        let runs = runs();
        let found = runs.found(Some(&request().pool)).expect("listed");
        let plan = runs.plan(&request(), &found).expect("it can be resumed");
        ready.wait();
        runs.execute(&request(), plan)
    };
    let outcomes: Vec<Result<EpochStart, BeginError>> = thread::scope(|scope| {
        let contenders: Vec<_> = (0..8).map(|_| scope.spawn(contend)).collect();
        let outcomes = contenders
            .into_iter()
            .map(|one| one.join().expect("no panic"));
        outcomes.collect()
    });
    assert_eq!(runs().epoch(&first.place).expect("there"), 1);
    remove_directory(path);
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    for error in lost.into_iter().filter_map(Result::err) {
        assert!(
            matches!(error, BeginError::Race(run) if run == first.place.run),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("another start of this program resumes it just now")
        );
    }
}

fn remove_directory(path: PathBuf) {
    fs::remove_dir_all(path).expect("it is there");
}

#[test]
fn a_run_lives_and_dies_in_a_directory() {
    let path = std::env::temp_dir().join(format!("satin-test-{:016x}", rand::random::<u64>()));
    let runs = Runs::new(
        Arc::new(Directory::open(&path).expect("written to")),
        SECRET,
        true,
    );
    let mut strange = request();
    strange.pool = "../my pool/ä".into();
    let begun = runs.begin(&strange).expect("a new run");
    write(&runs, &begun, 1, &[fact(&[0, 1], 1, "one")]);
    let later_master = runs.begin(&strange).expect("the same pool");
    assert_eq!((&later_master.place, later_master.epoch), (&begun.place, 0));
    strange.founder += 1;
    let again = runs.begin(&strange).expect("resumed");
    assert_eq!(
        (&again.place, load(&runs, &again.place).batch.facts.len()),
        (&begun.place, 1)
    );
    let listed = runs.list(Some("../my pool/ä")).expect("listed");
    assert_eq!(
        (listed[0].epochs, listed[0].logs, listed[0].readable),
        (2, 1, true)
    );
    runs.finish(&again.place, 0, Stays::Nothing)
        .expect("finished");
    let left = fs::read_dir(&path).expect("the store is there").count();
    remove_directory(path);
    assert_eq!(left, 0);
}

#[test]
fn a_torn_segment_costs_what_is_behind_the_tear_and_no_more() {
    let (memory, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    for child in 0..3 {
        writer
            .append(batch(&[fact(&[0, child], 1, "a")]))
            .expect("written");
    }
    let first_three = writer.bytes();
    writer.next_segment();
    writer
        .append(batch(&[fact(&[0, 3], 1, "b")]))
        .expect("written");
    let path = segment(&begun.place, log(0, 1), 0);
    memory.damage(&path, |bytes| bytes[first_three as usize / 2] ^= 1);
    let loaded = load(&runs, &begun.place);
    assert_eq!(
        loaded.batch.facts,
        [fact(&[0, 0], 1, "a"), fact(&[0, 3], 1, "b")]
    );
    assert_eq!(loaded.torn, [path]);
}

/// A value of that many bytes.
fn value(number: u8, size: usize) -> ValueBytes {
    let bytes = vec![number; size];
    let name = ValueName(*blake3::hash(&bytes).as_bytes());
    ValueBytes { name, bytes }
}

fn mentioning(path: &[u32], values: &[&ValueBytes]) -> StoredFact {
    let mut fact = fact(path, 1, "a");
    fact.saved.answer = Answer::result(
        b"a".to_vec().into(),
        values.iter().map(|value| value.name).collect(),
    );
    fact
}

/// Appends the results; of these values the log asks for those that it lacks. Gives the number of values that it has asked for.
fn write_with(writer: &mut LogWriter, facts: &[StoredFact], values: &[&ValueBytes]) -> usize {
    let asked = Cell::new(0);
    let give = |name| {
        asked.set(asked.get() + 1);
        let value = values.iter().find(|value| value.name == name);
        Some(value?.bytes.clone())
    };
    writer.append_with(batch(facts), &give).expect("written");
    asked.get()
}

#[test]
fn values_stand_in_the_log_once_and_before_what_mentions_them() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    // Too large for one frame.
    let values = [value(1, 5 << 20), value(2, 5 << 20), value(3, 100)];
    let all: Vec<&ValueBytes> = values.iter().collect();
    let facts = [
        mentioning(&[0, 0], &all),
        mentioning(&[0, 1], &all[1..]),
        mentioning(&[0, 2], &[]),
    ];
    assert_eq!(write_with(&mut writer, &facts[..1], &all), 3);
    let bytes = writer.bytes();
    assert_eq!(write_with(&mut writer, &facts[1..], &all), 0);
    assert!(writer.bytes() < bytes + 1000);
    let mut loaded = load(&runs, &begun.place).batch;
    assert_eq!(loaded.facts, facts);
    let mut named = values.to_vec();
    for values in [&mut named, &mut loaded.values] {
        values.sort_by_key(|value| value.name);
    }
    assert_eq!(loaded.values, named);
    // What is loaded has the values that it mentions, and no others.
    write_with(&mut writer, &[fact(&[0], 1, "whole")], &[]);
    assert_eq!(load(&runs, &begun.place).batch.values, []);
}

#[test]
fn a_result_without_its_value_is_not_written() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    let (gone, there) = (value(1, 10), value(2, 10));
    let facts = [
        mentioning(&[0, 0], &[&gone, &there]),
        mentioning(&[0, 1], &[&there]),
    ];
    assert_eq!(write_with(&mut writer, &facts, &[&there]), 2);
    assert_eq!(load(&runs, &begun.place).batch.facts, facts[1..]);
}

#[test]
fn values_are_written_anew_with_what_is_alive() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    let value = value(1, 10);
    let (root, part) = (mentioning(&[0], &[&value]), mentioning(&[1, 0], &[&value]));
    let facts = [root, part];
    // Once for the results of root jobs, which are not written anew, and once for the others.
    assert_eq!(write_with(&mut writer, &facts, &[&value]), 2);
    writer.next_segment();
    assert_eq!(write_with(&mut writer, &facts[1..], &[&value]), 1);
    writer.forget_before(writer.segment()).expect("forgotten");
    assert_eq!(load(&runs, &begun.place).batch.facts, facts);
}

#[test]
fn a_large_value_is_not_forgotten_with_the_segments_before() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    write_with(&mut writer, &[fact(&[1, 0], 1, "before")], &[]);
    writer.next_segment();
    // The result that mentions it stands in the next segment.
    let large = value(1, SEGMENT as usize + 1);
    let mut batch = batch(&[mentioning(&[0, 0], &[&large])]);
    batch.values.push(large);
    let appended = writer.append(batch).expect("written");
    assert_eq!((appended.segment, writer.segment()), (1, 2));
    writer.forget_before(appended.segment).expect("forgotten");
    let left = load(&runs, &begun.place).batch;
    assert_eq!((left.facts.len(), left.values.len()), (1, 1));
}

#[test]
fn with_a_value_goes_what_mentions_it_and_not_what_is_below() {
    let (memory, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    let value = value(1, 10);
    write(&runs, &begun, 2, &[fact(&[0, 0, 0], 1, "below")]);
    write_with(&mut writer, &[mentioning(&[1, 0], &[&value])], &[&value]);
    // What follows goes to the next segment.
    memory.fail(StableCall::Append, 1);
    (writer.append(batch(&[fact(&[2, 0], 1, "never")]))).expect_err("it fails");
    write_with(&mut writer, &[mentioning(&[0, 0], &[&value])], &[&value]);
    assert_eq!(load(&runs, &begun.place).batch.facts.len(), 2);
    let path = segment(&begun.place, log(0, 1), 0);
    memory.damage(&path, |bytes| bytes[20] ^= 1);
    let left = load(&runs, &begun.place).batch.facts;
    assert_eq!(left, [fact(&[0, 0, 0], 1, "below")]);
}

#[test]
fn nothing_is_written_behind_an_append_that_failed() {
    let (memory, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    writer
        .append(batch(&[fact(&[0, 0], 1, "a")]))
        .expect("written");
    memory.tear(7);
    memory.fail(StableCall::Append, 1);
    let second = batch(&[fact(&[0, 1], 1, "b")]);
    assert!(matches!(
        writer.append(second.clone()),
        Err(StableError::Failed { .. })
    ));
    assert_eq!(writer.segment(), 1);
    writer.append(second.clone()).expect("written");
    let loaded = load(&runs, &begun.place);
    assert_eq!(
        loaded.batch.facts,
        [fact(&[0, 0], 1, "a"), fact(&[0, 1], 1, "b")]
    );
    assert_eq!(loaded.torn, [segment(&begun.place, log(0, 1), 0)]);
}

#[test]
fn segments_that_are_not_needed_any_more_are_forgotten() {
    let (memory, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    let nothing = writer.append(Batch::default()).expect("nothing to do");
    assert_eq!(nothing.bytes, 0);
    let mut bytes = Vec::new();
    for child in 0..3 {
        let appended = writer.append(batch(&[fact(&[0, child], 1, "a")]));
        bytes.push(appended.expect("written").bytes);
        writer.next_segment();
    }
    assert_eq!(writer.bytes(), bytes.iter().sum::<u64>());
    memory.fail(StableCall::Delete, 1);
    assert!(writer.forget_before(2).is_err());
    writer.forget_before(2).expect("tried again");
    assert_eq!(writer.bytes(), bytes[2]);
    assert_eq!(
        load(&runs, &begun.place).batch.facts,
        [fact(&[0, 2], 1, "a")]
    );
}

#[test]
fn results_of_root_jobs_are_not_forgotten_with_the_segments_around_them() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    for root in 0..2 {
        let (below, above) = (fact(&[root, 0], 1, "a"), fact(&[root], 1, "b"));
        writer.append(batch(&[below])).expect("written");
        writer.append(batch(&[above])).expect("written");
        writer.next_segment();
        writer.forget_before(writer.segment()).expect("forgotten");
    }
    assert_eq!(
        load(&runs, &begun.place).batch.facts,
        [fact(&[0], 1, "b"), fact(&[1], 1, "b")]
    );
}

#[test]
fn who_can_write_to_a_store_but_has_no_credential_neither_stops_a_run_nor_starts_one() {
    let (memory, runs) = store();
    let request = request();
    let begun = runs.begin(&request).expect("a new run");
    write(&runs, &begun, 1, &[fact(&[0, 1], 1, "one")]);
    for epoch in [1, 3, u32::MAX] {
        let path = begun.place.path(RunFile::Epoch(epoch));
        memory.create(&path, b"forged").expect("anybody can");
    }
    let later = runs.later_epoch(&begun.place, 0, request.founder);
    assert_eq!(later.expect("read"), None);
    let second = runs.begin(&self::request()).expect("it is resumed");
    assert_eq!((&second.place, second.epoch), (&begun.place, 2));
    let later = runs.later_epoch(&begun.place, 0, request.founder);
    assert_eq!(later.expect("read"), Some(2));
    let third = runs.begin(&self::request()).expect("it is resumed");
    assert_eq!((&third.place, third.epoch), (&begun.place, 4));
}

#[test]
fn the_masters_of_a_pool_begin_one_run() {
    let (_, runs) = store();
    let request = request();
    // Both have looked before either has begun.
    let plan = || runs.plan(&request, &[]).expect("a new run");
    let (one, other) = (plan(), plan());
    let one = runs.execute(&request, one).expect("begun");
    let other = runs.execute(&request, other).expect("the same");
    assert_eq!((&one.place, one.epoch), (&other.place, other.epoch));
    let resumed = runs.begin(&request).expect("the same once more");
    assert_eq!((&resumed.place, resumed.epoch), (&one.place, 0));
    let later = runs.later_epoch(&one.place, 0, request.founder);
    assert_eq!(later.expect("read"), None);
}

#[test]
fn a_pool_whose_run_another_has_taken_does_not_take_it_back() {
    let (_, runs) = store();
    let (earlier, later) = (request(), request());
    let begun = runs.begin(&earlier).expect("a new run");
    runs.begin(&later).expect("resumed");
    let error = runs.begin(&earlier).expect_err("it is the other's");
    assert!(matches!(error, BeginError::Race(run) if run == begun.place.run));
}

#[test]
fn the_next_start_removes_what_is_left_of_runs() {
    let (memory, runs) = store();
    // A node was still at its last batch when the run was removed.
    let begun = runs.begin(&request()).expect("a new run");
    runs.finish(&begun.place, 0, Stays::Nothing)
        .expect("removed");
    write(&runs, &begun, 1, &[fact(&[0, 1], 1, "one")]);
    // And a removal was interrupted.
    let other = runs.begin(&request()).expect("a new run");
    write(&runs, &other, 1, &[fact(&[0, 1], 1, "one")]);
    memory.fail(StableCall::Delete, 2);
    assert!(runs.finish(&other.place, 0, Stays::Nothing).is_err());
    // One that is to stay stays.
    let kept = runs.begin(&request()).expect("a new run");
    runs.finish(&kept.place, 0, Stays::All).expect("noted");
    let next = runs.begin(&request()).expect("a new run");
    let listed = runs.list(None).expect("listed");
    let names: BTreeSet<_> = listed.iter().map(|run| run.place.run).collect();
    assert_eq!(names, [next.place.run, kept.place.run].into());
}

/// Is it that call, of that path?
type IsCall = dyn Fn(StableCall, &str) -> bool + Send + Sync;

/// A store in which something happens just before one of the calls.
struct Interrupted {
    memory: Arc<Memory>,
    when: Box<IsCall>,
    what: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Interrupted {
    fn before(
        memory: Arc<Memory>,
        when: impl Fn(StableCall, &str) -> bool + Send + Sync + 'static,
    ) -> Arc<Interrupted> {
        Arc::new(Interrupted {
            memory,
            when: Box::new(when),
            what: Mutex::new(None),
        })
    }

    fn happens(&self, what: impl FnOnce() + Send + 'static) {
        *self.what.lock().expect("no panic") = Some(Box::new(what));
    }

    fn has_happened(&self) -> bool {
        self.what.lock().expect("no panic").is_none()
    }

    /// The store for that call.
    fn at(&self, call: StableCall, path: &str) -> &Memory {
        if (self.when)(call, path) {
            let what = self.what.lock().expect("no panic").take();
            // The interruption may call the store too.
            what.into_iter().for_each(|what| what());
        }
        &self.memory
    }
}

impl Stable for Interrupted {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
        self.at(StableCall::Create, path).create(path, bytes)
    }

    fn append(&self, path: &str, batch: &[u8]) -> Result<(), StableError> {
        self.at(StableCall::Append, path).append(path, batch)
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError> {
        self.at(StableCall::Read, path).read(path, range)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError> {
        self.at(StableCall::List, prefix).list(prefix)
    }

    fn delete(&self, path: &str) -> Result<(), StableError> {
        self.at(StableCall::Delete, path).delete(path)
    }
}

/// Whenever its batch comes, before or after the list of what is to be removed.
#[test]
fn a_node_that_writes_while_its_run_is_removed_takes_that_back() {
    // An epoch, a log with a segment of each kind, the manifest, the note of the end.
    for number in 0..5 {
        let left = AtomicI32::new(number);
        let store = Interrupted::before(Arc::default(), move |call, _| {
            call == StableCall::Delete && left.fetch_sub(1, Ordering::Relaxed) == 0
        });
        let runs = Runs::new(store.clone(), SECRET, false);
        let begun = runs.begin(&request()).expect("a new run");
        let mut writer = runs.writer(&begun.place, log(0, 1));
        let all = [fact(&[0], 1, "of a root job"), fact(&[0, 1], 1, "one")];
        writer.append(batch(&all)).expect("written");
        let (other, place) = (runs.clone(), begun.place.clone());
        store.happens(move || {
            writer.next_segment();
            writer.append(batch(&all)).expect("written");
            if other.is_removed(&place).expect("it answers") {
                writer.forget_all().expect("removed");
            }
        });
        runs.finish(&begun.place, 0, Stays::Nothing)
            .expect("removed");
        assert!(store.has_happened());
        let left: Vec<String> = store.memory.files().into_keys().collect();
        assert!(left.is_empty(), "before file {number}: {left:?}");
    }
}

#[test]
fn an_upper_result_suffices_for_those_below_it() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut other_root = fact(&[0, 1, 3], 1, "of another root job");
    other_root.saved.root = Fingerprint(10);
    write(
        &runs,
        &begun,
        1,
        &[fact(&[0, 1, 2], 1, "below"), fact(&[0, 10], 1, "beside")],
    );
    write(
        &runs,
        &begun,
        2,
        &[
            fact(&[0, 1], 1, "above"),
            fact(&[0, 1], 2, "other arguments"),
        ],
    );
    write(
        &runs,
        &begun,
        3,
        &[
            fact(&[0, 1], 1, "again"),
            fact(&[0, 1, 2, 0], 1, "below"),
            other_root.clone(),
        ],
    );
    let expected = [
        fact(&[0, 1], 1, "above"),
        fact(&[0, 1], 2, "other arguments"),
        fact(&[0, 10], 1, "beside"),
        other_root,
    ];
    assert_eq!(load(&runs, &begun.place).batch.facts, expected);
}

#[test]
fn a_long_log_is_tidied_while_it_is_read() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    let mut writer = runs.writer(&begun.place, log(0, 1));
    for above in 0..30 {
        let below: Vec<StoredFact> = (0..1000)
            .map(|child| fact(&[0, above, child], 1, ""))
            .collect();
        writer.append(batch(&below)).expect("written");
        writer
            .append(batch(&[fact(&[0, above], 1, "")]))
            .expect("written");
    }
    let loaded = load(&runs, &begun.place);
    let expected: Vec<StoredFact> = (0..30).map(|above| fact(&[0, above], 1, "")).collect();
    assert_eq!(loaded.batch.facts, expected);
}

#[test]
fn all_offers_are_loaded_each_once() {
    let (_, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    for (node, offers) in [(1, vec![offer(5), offer(3)]), (2, vec![offer(5), offer(1)])] {
        let mut writer = runs.writer(&begun.place, log(0, node));
        let batch = Batch {
            offers,
            ..Batch::default()
        };
        writer.append(batch).expect("written");
    }
    let offers = load(&runs, &begun.place).batch.offers;
    assert_eq!(offers, [offer(5), offer(3), offer(1)]);
}

#[test]
fn a_store_that_fails_is_told_from_a_run_that_is_not_there() {
    let (memory, runs) = store();
    let begun = runs.begin(&request()).expect("a new run");
    write(&runs, &begun, 1, &[fact(&[0], 1, "one")]);
    for call in [StableCall::Create, StableCall::Read, StableCall::List] {
        memory.fail(call, 1);
        assert!(
            matches!(runs.begin(&request()), Err(BeginError::Store(_))),
            "{call:?}"
        );
        assert_eq!(runs.epoch(&begun.place).expect("unchanged"), 0);
    }
    memory.fail(StableCall::Read, 1);
    assert!(runs.load(&begun.place, &|_| true).is_err());
    assert_eq!(load(&runs, &begun.place).batch.facts.len(), 1);
}

#[test]
fn what_is_to_be_resumed_is_read_as_it_is_shown() {
    for text in ["auto", "no", "0123456789abcdef"] {
        assert_eq!(text.parse::<Resume>().expect(text).to_string(), text);
    }
    for text in ["", "yes", "1", "+123456789abcdef", "0123456789abcdef0"] {
        assert_eq!(text.parse::<Resume>(), Err(ResumeError), "{text}");
    }
}
