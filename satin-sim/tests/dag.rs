//! `satin-sim dag` as a program, and figures that the design promises, on a few graphs.

use std::process::{Command, Output};

use satin_sim::dag::{
    experiment::{self, Case, Cell, Contender, Report, Scenario, Settings, Size},
    graph::{Data, random, stg},
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
                tasks: Some(500),
            },
            data: Data::PerEdge(0.02),
            scenario: Scenario::Te2,
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

/// The shipped code and pull at random, on two graphs: a cell of the shipped code and one of pull for each case.
fn shipped(data: &[Data], scenarios: &[Scenario], jobs: u32) -> Vec<[Cell; 2]> {
    let size = Size {
        processors: 5,
        tasks: Some(300),
    };
    let cases = data.iter().flat_map(|data| {
        scenarios.iter().map(|scenario| Case {
            size,
            data: *data,
            scenario: *scenario,
        })
    });
    let settings = Settings {
        graphs: [4, 77]
            .map(|number| random::graph(number, 1000, 1))
            .to_vec(),
        cases: cases.collect(),
        contenders: [Policy::Satin, Policy::PullRandom]
            .map(|policy| Contender {
                policy,
                detection: policy.own_detection(),
            })
            .to_vec(),
        bounds: vec![0.0, 0.6],
        seed: 1,
        jobs,
    };
    let report = experiment::run(&settings, &|_| ()).expect("each run gives the right result");
    let (pairs, rest) = report.cells.as_chunks();
    assert!(rest.is_empty());
    pairs.to_vec()
}

const DEATHS: [Scenario; 4] = [
    Scenario::Te2,
    Scenario::Te2Back,
    Scenario::Te2Twice,
    Scenario::Te2TwiceBack,
];

#[test]
fn the_shipped_code_gives_the_same_figures_each_time() {
    let run = |jobs| shipped(&[Data::PerEdge(0.01)], &DEATHS, jobs);
    assert_eq!(run(1), run(3));
}

#[test]
fn the_shipped_code_loses_what_dead_nodes_would_have_done() {
    let rows = shipped(&[Data::PerEdge(0.0)], &DEATHS, 2);
    let [once, once_back, twice, twice_back] = &rows[..] else {
        panic!("{rows:?}");
    };
    for [satin, pull] in &rows {
        // What was done is at home; pull does it again.
        assert!(satin.extra_percent < pull.extra_percent, "{satin:?}");
        // A task that was under way on each node that died, if there was one.
        assert!((0.25..4.0).contains(&satin.rewound), "{satin:?}");
        let heard = satin.heard_percent.expect("nodes find out");
        assert!((0.5..2.0).contains(&heard), "{satin:?}");
    }
    let [one, one_back, two, two_back] =
        [once, once_back, twice, twice_back].map(|[satin, _]| satin.extra_percent);
    assert!(one > 3.0 && two > 2.0 * one, "{one} {two}");
    assert!(
        one_back < one && two_back < two / 2.0,
        "{one_back} {two_back}"
    );
    // Without data to move, thieves that pull are what nodes that steal are.
    assert!(
        (0.9..1.2).contains(&(once[0].nsl / once[1].nsl)),
        "{once:?}"
    );
    assert!(once[0].elsewhere_percent > Some(60.0), "{once:?}");
}

#[test]
fn much_data_make_runs_of_the_shipped_code_longer_and_keep_no_task_at_home() {
    let data = [0.0, 0.01, 0.5].map(Data::OneOutput);
    let rows = shipped(&data, &[Scenario::Te2], 2);
    let satin: Vec<&Cell> = rows.iter().map(|[satin, _]| satin).collect();
    let elsewhere: Vec<f64> = satin
        .iter()
        .map(|cell| cell.elsewhere_percent.expect("it is counted"))
        .collect();
    // What tasks make stays where it was made, and what others will read of it is on its way before: no task is held back for its data.
    let [none, little, much] = elsewhere[..] else {
        panic!("{elsewhere:?}");
    };
    assert!((none - little).abs() < 5.0, "{elsewhere:?}");
    assert!((much - little).abs() < 5.0, "{elsewhere:?}");
    let lengths: Vec<f64> = satin.iter().map(|cell| cell.nsl).collect();
    assert!(lengths[2] > 1.3 * lengths[1], "{lengths:?}");
    assert!(satin[2].moved > satin[1].moved + 0.05, "{satin:?}");
}

/// A row says how many tasks its graphs have: files with fewer are left out, and are not run under that name.
#[test]
fn a_size_is_that_of_all_graphs_or_an_error() {
    let folder = std::env::temp_dir().join(format!("satin-sim-stg-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, tasks) in [("small.stg", 20), ("large.stg", 40)] {
        let graph = random::graph(4, 1000, 1).first(tasks);
        std::fs::write(folder.join(name), stg::write(&graph)).unwrap();
    }
    let run = |size: &[&str]| {
        let path = folder.to_str().unwrap();
        let mut arguments = vec![path, "--policies", "flow", "--bounds", "0"];
        arguments.extend(size);
        satin_sim(&arguments)
    };
    let output = run(&["--size", "3x30", "--scenario", "te1,te2"]);
    let (table, told) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{told}");
    assert!(table.starts_with("1 graphs"), "{table}");
    assert!(table.contains("3x30, te1       -"), "{table}");
    assert!(
        told.contains("1 of 2 graphs have fewer than 30 tasks, and are left out"),
        "{told}"
    );
    let output = run(&["--size", "3x300"]);
    let told = text(&output.stderr);
    assert!(!output.status.success());
    assert!(
        told.contains("--size asks for 300 tasks, and the largest graph here has 40"),
        "{told}"
    );
    let whole = [&["--size", "3xall"][..], &[]].map(run);
    for (output, row) in whole.iter().zip(["3xall, te2", "5xall, te2"]) {
        let table = text(&output.stdout);
        assert!(table.starts_with("2 graphs"), "{table}");
        assert!(table.contains(row), "{table}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_factorisation_gives_a_table_and_files() {
    let folder = std::env::temp_dir().join(format!("satin-sim-dag-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (json, svg) = (folder.join("dag.json"), folder.join("dag.svg"));
    let output = satin_sim(&[
        "lu:6",
        "--size",
        "4xall",
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
        "4xall, te2",
        "one output, 0.1",
        "gtp/c/r",
        "flow-copies",
        "satin",
        "tasks elsewhere, %",
        "nothing was stuck",
    ] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    let json = std::fs::read_to_string(json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 11);
    assert_eq!(cells[0]["policy"], "gtp");
    assert!(cells[0]["elsewhere_percent"].is_null());
    let shipped = cells.iter().find(|cell| cell["policy"] == "satin");
    let shipped = shipped.expect("the shipped code is there");
    assert!(shipped["elsewhere_percent"].as_f64() > Some(0.0));
    assert_eq!(shipped["detection"], "nodes");
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
