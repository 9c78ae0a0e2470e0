//! `satin-sim dag` as a program, and figures that the design promises, on a few graphs.

use std::process::{Command, Output};

use satin_sim::dag::{
    experiment::{self, Case, Contender, Report, Scenario, Settings, Size},
    graph::{Data, random},
    policy::Policy,
    report,
};

fn satin_sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_satin-sim"));
    command.arg("dag").args(arguments);
    command.env_remove("RUST_BACKTRACE");
    command.output().expect("satin-sim runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Four graphs, one of each method, at two bounds.
fn sample(jobs: u32, seed: u64) -> Report {
    let policies = [
        Policy::GtpC,
        Policy::PullRandom,
        Policy::Flow,
        Policy::FlowCopies,
    ];
    let settings = Settings {
        graphs: [4, 40, 77, 110]
            .map(|number| random::graph(number, 1000, seed))
            .to_vec(),
        cases: vec![Case {
            size: Size {
                processors: 5,
                tasks: 500,
            },
            data: Data::PerEdge(0.02),
            scenario: Scenario::Te1,
        }],
        contenders: policies
            .map(|policy| Contender {
                policy,
                detection: policy.own_detection(),
            })
            .to_vec(),
        bounds: vec![0.0, 0.6],
        seed,
        jobs,
    };
    experiment::run(&settings, &|_| ()).expect("no invariant is violated")
}

#[test]
fn figures_depend_on_the_seed_alone() {
    let report = sample(1, 1);
    assert_eq!(sample(3, 1), report);
    assert_ne!(sample(3, 2).cells, report.cells);
}

#[test]
fn a_few_graphs_keep_the_targets() {
    let report = sample(2, 1);
    let targets = report::targets(&report);
    assert_eq!(targets.len(), 4);
    for target in targets {
        assert!(target.is_kept(), "{target:?}");
    }
    // Without copies a death costs about twice as much, and starting again most.
    let extra: Vec<f64> = report.cells.iter().map(|cell| cell.extra_percent).collect();
    assert!(extra[0] > 50.0 && extra[2] > 1.3 * extra[3], "{extra:?}");
}

#[test]
fn a_factorisation_gives_a_table_and_files() {
    let folder = std::env::temp_dir().join(format!("satin-sim-dag-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (json, svg) = (folder.join("dag.json"), folder.join("dag.svg"));
    let output = satin_sim(&[
        "lu:6",
        "--size",
        "4x400",
        "--data",
        "output:0.1",
        "--json",
        json.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for part in [
        "4x400, te1",
        "one output, 0.1",
        "gtp/c/r",
        "flow-copies",
        "nothing was stuck",
    ] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    let json = std::fs::read_to_string(json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["cells"].as_array().unwrap().len(), 10);
    assert_eq!(json["cells"][0]["policy"], "gtp");
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn bad_input_is_an_error_that_says_what_to_do() {
    for (arguments, part) in [
        (
            &["nowhere.stg"][..],
            "there is no file or folder nowhere.stg; graphs are random, stg",
        ),
        (&["src"], "has no file that ends in .stg"),
        (&["Cargo.toml"], "Cargo.toml is no task graph"),
        (&["lu:3", "--json", "/nowhere/x"], "cannot write /nowhere/x"),
        (&["--full", "--sample", "3"], "cannot be used with"),
    ] {
        let output = satin_sim(arguments);
        let error = text(&output.stderr);
        assert!(
            !output.status.success() && error.contains(part),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn the_help_has_examples() {
    let output = satin_sim(&["--help"]);
    let help = text(&output.stdout);
    assert!(output.status.success() && help.contains("Examples:"));
    assert!(help.contains("satin-sim dag --full"));
}
