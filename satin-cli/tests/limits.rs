//! What stops a run, or a part of it, and keeps it within bounds: in pools of real processes.

mod common;

use std::time::Duration;

use common::{ended_well, plan, run};
use satin_cli::{pool::Plan, store::StoreUse};
use satin_runtime::net::Credential;
use tempfile::TempDir;

#[test]
fn a_search_ends_when_its_time_is_over_and_the_pool_goes_on() {
    let outcome = run(plan("anytime", &["--within", "1s"], "2x2"));
    ended_well(&outcome);
    for text in [
        "the run was not done after 1s: its jobs have been stopped",
        "the most so far\n",
        "of those below 100000: 77031, 350 steps (ok)\n",
    ] {
        assert!(outcome.stdout.contains(text), "{text:?}: {outcome:#?}");
    }
}

/// A program of some seconds on a pool of four, with a time limit for each start, and what it keeps in that directory.
fn limited(scratch: &TempDir) -> Plan {
    let url = format!("file:{}", scratch.path().join("store").display());
    let credential = scratch.path().join("pool.pem");
    if !credential.exists() {
        let text = Credential::generate().expect("a key");
        std::fs::write(&credential, text).expect("written");
    }
    Plan {
        time_limit: Some(Duration::from_secs(3)),
        wan: None,
        store: Some(StoreUse::new(url.parse().expect("a URL")).expect("made")),
        credential: Some(credential),
        ..plan("knary", &["6", "5", "1500", "--sleep"], "2x2")
    }
}

#[test]
fn a_run_that_takes_too_long_ends_and_the_same_command_goes_on_with_it() {
    let scratch = TempDir::new().expect("a directory");
    let mut ended = 0;
    loop {
        let outcome = run(limited(&scratch));
        if outcome.code == 0 {
            assert!(
                outcome.stdout.contains("knary(6, 5) = 15625 leaves"),
                "{outcome:#?}"
            );
            break;
        }
        assert_eq!(outcome.code, 124, "{outcome:#?}");
        let told = "the time limit of 3s (SATIN_TIME_LIMIT) is over, so the run ends here: the same command goes on";
        assert!(outcome.stderr.contains(told), "{outcome:#?}");
        ended += 1;
        assert!(ended < 60, "the run does not come any further");
    }
    assert!(ended > 0, "the limit was too long for this test");
}
