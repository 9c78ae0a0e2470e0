//! Stores that do not have what was written to them, or take nothing more: the answer is right all the same.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    sync::LazyLock,
};

use satin_cli::pool::Plan;
use satin_runtime::observe::events::Event;

use crate::{
    common::{Random, finish, has, run, start, wait_for},
    kept::{GOES_ON, Home, answers, files, lose, says},
    programs::{BEST, CELLS, COUNT, GATE, GATED, Program, this_executable},
};

/// Enough for some batches of each node, and far less than a run writes.
const SOME: u64 = 600;

// ------------------------------------------------------------------------------------------------------- damaged files

/// What is done to a file.
type Damage = fn(&mut Vec<u8>, &mut Random);

fn cut_off(bytes: &mut Vec<u8>, random: &mut Random) {
    bytes.truncate(random.below(bytes.len()));
}

fn flip(bytes: &mut [u8], random: &mut Random) {
    let at = random.below(bytes.len());
    bytes[at] ^= 1 << random.below(8);
}

/// A run of two starts, each of two nodes, that were all killed.
fn lost_twice() -> Home {
    let home = Home::new();
    let first = lose(&home, home.plan(CELLS, "a:1,b:1"), SOME);
    assert!(!first.stdout.contains("cells "), "{first:#?}");
    let second = lose(&home, home.plan(CELLS, "a:1,b:1"), SOME);
    says(&second, "(start 2): ");
    home
}

fn copy(from: &Path, to: &Path) {
    for (file, _) in files(from) {
        let inside = file.strip_prefix(from).expect("it is inside");
        let place = to.join(inside);
        fs::create_dir_all(place.parent().expect("a directory")).expect("made");
        fs::copy(&file, &place).expect("copied");
    }
}

/// Goes on from copies of a store in which one file after the other is damaged. `damage` gets what is left of it.
#[track_caller]
fn one_file_after_the_other(seed: u64, damage: Damage) {
    let home = lost_twice();
    let whole = home.path("whole");
    fs::rename(home.store(), &whole).expect("moved");
    let mut random = Random(seed);
    let all = files(&whole);
    let logs = all.iter().filter(|(path, _)| is_log(path)).count();
    // The manifest, two epochs, and a log of each master at least.
    assert!(logs >= 2 && all.len() >= logs + 3, "{all:?}");
    // A node that was killed when it had just made its log has left it empty: there is nothing in it to be damaged.
    for (damaged, _) in all.into_iter().filter(|(_, size)| *size > 0) {
        let _ = fs::remove_dir_all(home.store());
        copy(&whole, &home.store());
        let place = home
            .store()
            .join(damaged.strip_prefix(&whole).expect("inside"));
        let mut bytes = fs::read(&place).expect("there");
        damage(&mut bytes, &mut random);
        fs::write(&place, bytes).expect("written");

        let outcome = run(quick(&home));
        answers(&outcome, &CELLS.answer());
        if damaged.ends_with("manifest") {
            says(&outcome, "begins a new run: ");
            says(&outcome, "or its files are damaged");
            // It is for people to remove it.
            let runs = home.runs();
            let is_unreadable = runs.iter().all(|run| run.contains(" unreadable "));
            assert!(runs.len() == 1 && is_unreadable, "{runs:?}: {outcome:#?}");
        } else {
            says(&outcome, GOES_ON);
            home.is_empty();
        }
    }
}

fn is_log(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "log")
}

/// The rest of that program, with workers enough for its sleeping leaves.
fn quick(home: &Home) -> Plan {
    Plan {
        threads: Some(8),
        ..home.plan(CELLS, "a:1")
    }
}

#[test]
fn any_file_may_be_cut_off() {
    one_file_after_the_other(1, cut_off);
}

#[test]
fn any_file_may_be_empty() {
    one_file_after_the_other(2, |bytes, _| bytes.clear());
}

#[test]
fn any_byte_may_be_another() {
    one_file_after_the_other(3, |bytes, random| flip(bytes, random));
}

/// What a node leaves that is killed while it creates a file.
#[test]
fn a_temporary_that_stays_does_no_harm() {
    let home = Home::new();
    lose(&home, home.plan(CELLS, "a:1"), SOME);
    for (file, _) in files(&home.store()) {
        let temporary = file.with_file_name(".tmp-0123456789abcdef");
        fs::write(temporary, b"a part").expect("written");
    }
    let outcome = run(quick(&home));
    answers(&outcome, &CELLS.answer());
    says(&outcome, GOES_ON);
    home.is_empty();
}

// --------------------------------------------------------------------------------------------- stores that go away

/// Nothing can be written any more, and nothing can be read.
#[test]
fn a_store_may_go_away_while_a_run_goes_on() {
    let home = Home::new();
    let mut pool = start(home.plan(CELLS, "a:1,b:1"));
    let begins = |event: &Event| matches!(event, Event::RootStarted { .. });
    wait_for(&mut pool, |records| has(records, "a-0", begins));
    fs::rename(home.store(), home.path("gone")).expect("moved");
    fs::write(home.store(), b"in its place").expect("written");
    let outcome = finish(pool);
    answers(&outcome, &CELLS.answer());
    says(&outcome, "it may be resumed if its files come back");
    // It comes back: the run is still there, as nobody could note its end, and only takes time.
    fs::remove_file(home.store()).expect("removed");
    fs::rename(home.path("gone"), home.store()).expect("moved");
    let again = run(quick(&home));
    answers(&again, &CELLS.answer());
    says(&again, GOES_ON);
    home.is_empty();
}

// ------------------------------------------------------------------------------------------------------- full disks

/// True if this process may mount file systems for itself.
static MAY_MOUNT: LazyLock<bool> = LazyLock::new(|| {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", "mount -t tmpfs none /mnt"]);
    unshare.output().is_ok_and(|output| output.status.success())
});

/// What `satin run` says of that program, with a store in a file system of so many KiB that it has for itself. `script` finds
/// the store in `$kept`, and begins `satin run` as `"$@"`.
fn on_a_small_disk(home: &Home, program: Program, kib: u32, script: &str) -> Option<Output> {
    if !*MAY_MOUNT {
        println!("skipped: full disks need root, for a mount namespace");
        return None;
    }
    fs::create_dir(home.store()).expect("made");
    let mount = format!("mount -t tmpfs -o size={kib}k,mode=700 none \"$1\" || exit 99");
    let script = format!("{mount}\nkept=$1\nshift\n{script}");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "100"]);
    command.args(["unshare", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(home.store());
    command.arg(env!("CARGO_BIN_EXE_satin"));
    command.args(["run", "--sites", "a:1,b:1", "--threads", "2"]);
    command.args(["--store", home.url(), "--credential"]);
    command.arg(home.credential()).arg("--");
    command.args(program.command(&this_executable()));
    command
        .env(COUNT, home.path("count"))
        .env(GATE, home.path("gate"))
        .env("SATIN_STORE_EVERY", "0.05")
        .env_remove("SATIN_POOL")
        .env_remove("SATIN_RESUME");
    Some(command.output().expect("it starts"))
}

#[track_caller]
fn is_right(program: Program, output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let stdout = text(&output.stdout);
    let told = stdout.matches(&program.answer()).count();
    assert_eq!(told, 1, "{output:?}");
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

/// The files of a run that begins fit, its logs do not.
#[test]
fn a_disk_may_be_full() {
    let home = Home::new();
    let script = "\"$@\"; code=$?; find \"$kept\" -type f >&2; exit $code";
    let Some(output) = on_a_small_disk(&home, CELLS, 16, script) else {
        return;
    };
    let stderr = is_right(CELLS, &output);
    assert!(
        stderr.contains("what is finished cannot be stored: ")
            && stderr.contains("No space left on device"),
        "{stderr}"
    );
    // Its end cannot be noted on a full disk either, unless what was there is removed without that.
    let stays = stderr.contains("could be removed from the store: ")
        || stderr.contains("its end is not in the store, so that it may be resumed: ");
    assert_eq!(stderr.contains("/manifest\n"), stays, "{stderr}");
}

/// Not even a run can begin: the error says so.
#[test]
fn a_disk_may_be_full_from_the_beginning() {
    let home = Home::new();
    let fill = "head -c 1000000 /dev/zero >\"$kept/ballast\" 2>/dev/null; exec \"$@\"";
    let Some(output) = on_a_small_disk(&home, CELLS, 64, fill) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{output:?}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!stdout.contains(&CELLS.answer()), "{output:?}");
    assert!(
        stderr.contains("the store cannot be written to (No space left on device"),
        "{stderr}"
    );
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// Room is made while the run goes on: what was not written goes with the next batch.
#[test]
fn a_full_disk_may_have_room_again() {
    let home = Home::new();
    let script = r#"
        said=$kept-said
        stored() { cat "$kept"/*/*/log/*/* 2>/dev/null | wc -c; }
        wait_for() { until "$@" >/dev/null 2>&1; do sleep 0.02; done; }
        both_write() { [ "$(ls -d "$kept"/*/*/log/* | wc -l)" = 2 ]; }
        has_more() { [ "$(stored)" -gt "$before" ]; }
        (
            wait_for both_write
            cat /dev/zero >"$kept/ballast" 2>/dev/null
            wait_for grep "cannot be stored" "$said"
            before=$(stored)
            rm "$kept/ballast"
            wait_for has_more
            touch "$SATIN_TEST_LOSSES_GATE"
        ) &
        "$@" 2>"$said"
        code=$?
        cat "$said" >&2
        exit $code"#;
    // The gate is opened once more is stored.
    let Some(output) = on_a_small_disk(&home, GATED, 256, script) else {
        return;
    };
    is_right(GATED, &output);
}

/// A bound whose offer is in a damaged log is offered again.
#[test]
fn an_optimum_survives_damage() {
    let home = Home::new();
    lose(&home, home.plan(BEST, "a:1,b:1"), SOME);
    let mut random = Random(4);
    let logs = files(&home.store()).into_iter();
    for (path, _) in logs.filter(|(path, _)| is_log(path)) {
        let mut bytes = fs::read(&path).expect("there");
        flip(&mut bytes, &mut random);
        fs::write(&path, bytes).expect("written");
    }
    let outcome = run(home.plan(BEST, "a:2,b:1"));
    answers(&outcome, &BEST.answer());
    says(&outcome, GOES_ON);
    home.is_empty();
}
