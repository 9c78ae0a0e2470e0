//! Which run a start goes on with: another build, program, command line or credential; two starts at once; lost servers; a
//! picture.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use satin_cli::pool::{LocalPool, Plan, PoolOutcome};
use satin_runtime::net::Credential;

use crate::{
    common::{PATIENCE, example, finish, run, start},
    kept::{GOES_ON, Home, answers, does_not_say, files, kill, logged, lose, run_until, says},
    programs::{
        BEST, CELLS, GATED, LEAVES, Program, SUMS, SWEEPS, TABLES, bodies, this_executable,
    },
    series::{three_servers, undisturbed_picture, url_of},
};

/// Enough for some batches, and far less than a run writes.
const SOME: u64 = 400;

/// With workers enough for its sleeping leaves.
fn quick(plan: Plan) -> Plan {
    Plan {
        threads: Some(8),
        ..plan
    }
}

// ---------------------------------------------------------------------------------------------------- fewer and more

/// Killed on that many nodes, and resumed on others.
#[track_caller]
fn lost_and_resumed(program: Program, sites: &str, other_sites: &str) {
    let home = Home::new();
    let lost = lose(&home, home.plan(program, sites), SOME);
    assert!(!lost.stdout.contains(&program.answer()), "{lost:#?}");
    let done = home.leaves();
    let outcome = run(home.plan(program, other_sites));
    answers(&outcome, &program.answer());
    says(&outcome, GOES_ON);
    home.is_empty();
    if let Some(needed) = program.leaves {
        let again = home.leaves() - needed;
        assert!(again < done, "{again} of {done} leaves were done again");
    }
}

#[test]
fn failures_survive_on_fewer_nodes() {
    lost_and_resumed(SUMS, "a:2,b:1", "a:1");
}

#[test]
fn flows_survive_on_fewer_nodes() {
    lost_and_resumed(SWEEPS, "a:2,b:1", "a:1");
}

#[test]
fn mutable_borrows_survive_on_more_nodes() {
    lost_and_resumed(CELLS, "a:1", "a:1,b:1");
}

#[test]
fn shared_values_survive_on_fewer_nodes() {
    lost_and_resumed(TABLES, "a:2", "a:1");
}

/// The second root job of [`TABLES`] gives values that its leaves have made.
#[test]
fn values_in_results_survive_with_them() {
    let home = Home::new();
    let plan = home.plan(TABLES, "a:1,b:1");
    let mut pool = start(plan);
    run_until(&mut pool, || home.leaves() > LEAVES + LEAVES / 4);
    let before = logged(home.folder());
    run_until(&mut pool, || logged(home.folder()) > before + SOME);
    kill(pool, &["a-0", "b-0"]);
    let done = home.leaves();
    let outcome = run(home.plan(TABLES, "c:2"));
    answers(&outcome, &TABLES.answer());
    says(&outcome, GOES_ON);
    home.is_empty();
    let again = home.leaves() - 2 * LEAVES;
    assert!(
        again < done - LEAVES,
        "{again} of {done} leaves were done again"
    );
}

#[test]
fn bounds_survive_on_more_nodes() {
    lost_and_resumed(BEST, "a:1,b:1", "a:2,b:2");
}

/// The leaves of which nothing is kept yet at any moment, at most: those of invocations that began a moment ago, and the one under way.
const YOUNG: u64 = 24;

/// Every result is kept, and one write follows the other. So no more is lost than was done since the last write but one.
#[track_caller]
fn loses_what_a_write_takes(program: Program) {
    let home = Home::new();
    let mut plan = home.plan(program, "a:1");
    for name in ["SATIN_STORE_EVERY", "SATIN_STORE_GRAIN"] {
        plan.env.push((name.into(), "0".into()));
    }
    let mut pool = start(plan);
    // How much had been written, and the leaves that were done when that was seen: now, and at the two writes before.
    let (mut written, mut seen) = (0, [0; 3]);
    run_until(&mut pool, || {
        let now = logged(home.folder());
        if now > written {
            written = now;
            seen = [home.leaves(), seen[0], seen[1]];
        }
        seen[2] > LEAVES / 4
    });
    kill(pool, &["a-0"]);
    let done = home.leaves();
    let outcome = run(home.plan(program, "a:1"));
    answers(&outcome, &program.answer());
    says(&outcome, GOES_ON);
    let again = home.leaves() - program.leaves.expect("a program that does as many as ever");
    assert!(
        again <= done - seen[2] + YOUNG,
        "{again} of {done} leaves were done again, {} of them before the last write but one",
        seen[2]
    );
}

#[test]
fn a_tree_that_is_written_at_once_loses_what_a_write_takes() {
    loses_what_a_write_takes(TABLES);
}

#[test]
fn a_flow_that_is_written_at_once_loses_what_a_write_takes() {
    loses_what_a_write_takes(SWEEPS);
}

#[test]
fn a_picture_is_the_same_bit_for_bit() {
    let home = Home::new();
    let small = ["--width", "320", "--height", "180", "--samples", "16"];
    let picture = home.path("picture.png");
    let mut command: Vec<OsString> = vec![example("raytracer").into()];
    command.extend(small.map(OsString::from));
    command.extend(["--out".into(), picture.clone().into()]);
    lose(&home, home.plan_of(command.clone(), "a:1,b:1"), SOME);
    assert!(!picture.exists(), "it was killed too late");
    let outcome = run(home.plan_of(command, "a:2,b:1"));
    answers(&outcome, "picture.png 320x180, checksum ");
    says(&outcome, GOES_ON);
    let drawn = fs::read(&picture).expect("a picture");
    assert!(drawn == undisturbed_picture(&small), "it is another");
    home.is_empty();
}

// ------------------------------------------------------------------------------------------------------- what differs

/// The executable with other bytes in place of some.
fn edit(executable: &Path, [from, to]: [Vec<u8>; 2], edited: &Path) {
    let mut bytes = fs::read(executable).expect("there");
    let at: Vec<usize> = memchr::memmem::find_iter(&bytes, &from).collect();
    assert!(!at.is_empty(), "{from:?} is not in the executable");
    for at in at {
        bytes[at..at + to.len()].copy_from_slice(&to);
    }
    // Another file: a process that ended a moment ago may still hold the former.
    let _ = fs::remove_file(edited);
    fs::write(edited, bytes).expect("written");
    let executable = fs::Permissions::from_mode(0o700);
    fs::set_permissions(edited, executable).expect("its owner's");
}

#[test]
fn an_edited_body_begins_anew() {
    let home = Home::new();
    let executable = home.path("program");
    let plan = |sites| home.plan_of(CELLS.command(&executable), sites);
    let [body, other] = bodies(7);
    edit(
        &this_executable(),
        [body.clone(), body.clone()],
        &executable,
    );
    lose(&home, plan("a:1"), SOME);

    edit(&this_executable(), [body.clone(), other], &executable);
    let edited = run(quick(plan("a:1")));
    answers(&edited, &CELLS.answer_of_body(7));
    does_not_say(&edited, GOES_ON);
    says(&edited, "begins a new run: run ");
    says(
        &edited,
        "is not resumed: it was started by another build of the program",
    );
    assert_eq!(home.runs().len(), 1, "the first is still there");

    edit(&this_executable(), [body.clone(), body], &executable);
    let first = run(quick(plan("a:1")));
    answers(&first, &CELLS.answer());
    says(&first, GOES_ON);
    home.is_empty();
}

#[test]
fn another_program_of_that_name_begins_anew() {
    let home = Home::new();
    let executable = home.path("program");
    let plan = |argument: &str| {
        let command = [executable.clone().into_os_string(), argument.into()];
        home.plan_of(command.into(), "a:1")
    };
    fs::copy(example("fib"), &executable).expect("copied");
    lose(&home, plan("46"), SOME);
    fs::remove_file(&executable).expect("removed");
    fs::copy(example("quicksort"), &executable).expect("copied");
    let outcome = run(plan("46"));
    answers(&outcome, "quicksort(46) in order");
    does_not_say(&outcome, GOES_ON);
    says(&outcome, "started by another program, or before this one");
    assert_eq!(home.runs().len(), 1);
}

#[test]
fn another_command_line_begins_anew() {
    let home = Home::new();
    let command = || CELLS.command(&this_executable());
    lose(&home, home.plan_of(command(), "a:1"), SOME);
    let mut longer = command();
    longer.push("nothing".into());
    let outcome = run(quick(home.plan_of(longer, "a:1")));
    answers(&outcome, &CELLS.answer());
    does_not_say(&outcome, GOES_ON);
    says(
        &outcome,
        "is not resumed: it was started with other arguments: `programs::cells --exact --nocapture` instead of \
         `programs::cells --exact --nocapture nothing`",
    );
    let first = run(quick(home.plan_of(command(), "a:1")));
    answers(&first, &CELLS.answer());
    says(&first, GOES_ON);
    home.is_empty();
}

#[test]
fn another_credential_begins_anew() {
    let home = Home::new();
    let plan = || quick(home.plan(CELLS, "a:1"));
    lose(&home, home.plan(CELLS, "a:1"), SOME);
    let other = home.path("other.pem");
    Credential::write_new(&other).expect("written");
    let outcome = run(Plan {
        credential: Some(other),
        ..plan()
    });
    answers(&outcome, &CELLS.answer());
    does_not_say(&outcome, GOES_ON);
    says(&outcome, "it was started with another credential");
    let first = run(plan());
    answers(&first, &CELLS.answer());
    says(&first, GOES_ON);
    home.is_empty();
}

// -------------------------------------------------------------------------------------------------- two starts at once

/// Waits until one of two pools has ended: its number.
#[track_caller]
fn first_to_end(pools: &mut [LocalPool; 2]) -> usize {
    let began = Instant::now();
    loop {
        for (number, pool) in pools.iter_mut().enumerate() {
            let _ = pool.wait_for(Duration::from_millis(5), |_| false);
            if pool.has_ended() {
                return number;
            }
        }
        let said = || pools.each_ref().map(LocalPool::stderr);
        assert!(began.elapsed() < PATIENCE, "{:#?}", said());
    }
}

/// One of them is told that the other was faster, or finds out later that another start goes on with its run.
#[track_caller]
fn has_lost(outcome: &PoolOutcome) {
    assert!(!outcome.stdout.contains("gated 0"), "{outcome:#?}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome:#?}");
    match outcome.code {
        75 => {}
        code => {
            assert_ne!(code, 0, "{outcome:#?}");
            says(
                outcome,
                "another start of this program resumes it just now; let that one go on",
            );
        }
    }
}

#[track_caller]
fn one_of_two_goes_on(sites: &str) {
    let home = Home::new();
    lose(&home, home.plan(GATED, "a:1"), SOME);
    let barrier = Barrier::new(2);
    let begin = || {
        barrier.wait();
        start(home.plan(GATED, sites))
    };
    let mut pools = thread::scope(|scope| {
        let pools = [scope.spawn(begin), scope.spawn(begin)];
        pools.map(|pool| pool.join().expect("it starts"))
    });
    let loser = first_to_end(&mut pools);
    fs::write(home.path("gate"), b"open").expect("written");
    let [first, second] = pools.map(finish);
    let [lost, won] = match loser {
        0 => [first, second],
        _ => [second, first],
    };
    has_lost(&lost);
    answers(&won, &GATED.answer());
    says(&won, GOES_ON);
    home.is_empty();
}

#[test]
fn of_two_starts_of_one_node_one_goes_on() {
    one_of_two_goes_on("a:1");
}

#[test]
fn of_two_starts_of_two_nodes_one_goes_on() {
    one_of_two_goes_on("a:2");
}

/// A pool that was taken for dead works until it hears of the other.
#[test]
fn a_later_start_takes_the_run_from_a_pool_that_is_alive() {
    let home = Home::new();
    let mut first = start(home.plan(GATED, "a:1"));
    run_until(&mut first, || logged(&home.store()) > SOME);
    let second = start(home.plan(GATED, "a:1"));
    let first = finish(first);
    assert_eq!(first.code, 75, "{first:#?}");
    has_lost(&first);
    fs::write(home.path("gate"), b"open").expect("written");
    let second = finish(second);
    answers(&second, &GATED.answer());
    says(&second, GOES_ON);
    home.is_empty();
}

// ------------------------------------------------------------------------------------------------------------- servers

#[test]
fn of_three_servers_one_may_be_lost() {
    let home = Home::new();
    let servers = three_servers(&home);
    let home = home.on_servers(url_of(&servers));
    let mut servers: Vec<_> = servers.into_iter().map(Some).collect();
    let mut pool = start(home.plan(CELLS, "a:1,b:1"));
    run_until(&mut pool, || logged(home.folder()) > SOME);
    // The first that has a log.
    let has_log = |server: &usize| logged(&home.path(&format!("s{server}"))) > 0;
    let lost = (0..3).find(has_log).expect("one has some");
    servers[lost] = None;
    // One batch more, unless both nodes are waiting already until it is clear that the server does not answer. That may take longer
    // than the run.
    let before = logged(home.folder());
    let is_late = || home.leaves() > LEAVES + LEAVES / 4;
    run_until(&mut pool, || logged(home.folder()) > before || is_late());
    kill(pool, &["a-0", "b-0"]);

    let outcome = run(home.plan(CELLS, "a:2,b:1"));
    answers(&outcome, &CELLS.answer());
    says(&outcome, GOES_ON);
    home.is_empty();
    let others = (0..3).filter(|server| *server != lost);
    for server in others {
        let left = files(&home.path(&format!("s{server}/kept")));
        // The note that the run is over, for the case that the lost one comes back.
        let is_note = |(path, _): &(std::path::PathBuf, u64)| path.ends_with("done");
        assert!(left.iter().all(is_note), "{left:?}");
    }
}
