//! Runs the examples as a user would, with small arguments, and looks at what they print and at their exit codes.
//!
//! Public problem instances are taken from the folder `SATIN_DATA`, or else from `../shared/data`; where there is none, the
//! tests that need it say so and pass.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Exit code of a program that reports an error of its own, such as a wrong answer or a bad file.
const FAILURE: i32 = 1;

/// Exit code of clap for arguments that make no sense.
const USAGE: i32 = 2;

const ALL: [&str; 22] = [
    "fib",
    "fib_expression",
    "nqueens",
    "quicksort",
    "uts",
    "tsp",
    "sat",
    "knary",
    "qap",
    "knapsack",
    "mergesort",
    "cilksort",
    "fft",
    "strassen",
    "mandelbrot",
    "treesum",
    "walks",
    "workflow",
    "lu",
    "cholesky",
    "gauss_seidel",
    "jacobi",
];

#[test]
fn fib_in_every_mode() {
    for example in ["fib", "fib_expression"] {
        run(example, ["20"])
            .succeeds()
            .prints("fib(20) = 6765\n")
            .prints("time ");
        run(example, ["0"]).succeeds().prints("fib(0) = 0\n");
        run(example, ["20", "--sequential"])
            .succeeds()
            .prints("fib(20) = 6765\n")
            .prints(" s sequential\n");
        run(example, ["20", "--compare"])
            .succeeds()
            .prints("fib(20) = 6765\n")
            .prints("(measured, ");
    }
}

/// On one worker jobs run in the order of the program text: the promising branch, which stands first there, gives its bound
/// to the others.
#[test]
fn one_worker_searches_what_the_sequential_program_searches() {
    let searches: [(&str, &[&str]); 6] = [
        ("knapsack", &["--items", "300"]),
        (
            "knapsack",
            &[
                "--items", "60", "--extra", "100", "--spread", "0", "--seed", "3",
            ],
        ),
        ("qap", &[]),
        ("sat", &["--random", "150", "--seed", "3"]),
        ("sat", &["--pigeons", "8"]),
        ("tsp", &["--random", "30", "--cold"]),
    ];
    for (example, arguments) in searches {
        let visited = |mode: &[&str]| {
            run(example, [arguments, mode].concat())
                .succeeds()
                .visited()
        };
        let (sequential, one) = (visited(&["--sequential"]), visited(&["--threads", "1"]));
        assert!(
            10 * one <= 11 * sequential,
            "{example} {arguments:?}: one worker visited {one} nodes, the sequential program {sequential}"
        );
    }
}

#[test]
fn as_many_threads_as_asked_for() {
    run("fib", ["20", "--threads", "1"])
        .succeeds()
        .prints("fib(20) = 6765\n");
    run("fib", ["20", "--threads", "4"])
        .succeeds()
        .prints("fib(20) = 6765\n");
}

#[test]
fn nqueens_of_several_sizes() {
    for (n, solutions) in [("1", 1), ("3", 0), ("8", 92), ("10", 724)] {
        run("nqueens", [n])
            .succeeds()
            .prints(&format!("nqueens({n}) = {solutions} (ok)\n"));
    }
    run("nqueens", ["9", "--compare"])
        .succeeds()
        .prints("nqueens(9) = 352 (ok)\n");
}

#[test]
fn a_sweep_writes_its_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.csv");
    let out = path.to_str().expect("a name");
    for parameters in ["2", "101"] {
        run(
            "sweep",
            ["--parameters", parameters, "--steps", "20000", "--out", out],
        )
        .succeeds()
        .prints(" chaotic (ok)\n");
        let table = fs::read_to_string(&path).expect("written");
        let lines: usize = parameters.parse().expect("a number");
        assert_eq!(table.lines().count(), lines + 1);
    }
    run("sweep", ["--parameters", "1"]).fails(USAGE, "1");
    let nowhere = directory.path().join("nowhere/table.csv");
    run(
        "sweep",
        [
            "--parameters",
            "2",
            "--steps",
            "20000",
            "--out",
            nowhere.to_str().expect("a name"),
        ],
    )
    .fails(FAILURE, "nowhere");
}

#[test]
fn sorts_of_nothing_little_and_much() {
    for example in ["quicksort", "mergesort", "cilksort"] {
        for n in ["0", "1", "2", "1000", "300000"] {
            run(example, [n])
                .succeeds()
                .prints(&format!("{example}({n}) in order"));
        }
        run(example, ["100000", "--seed", "5", "--compare"])
            .succeeds()
            .prints(&format!("{example}(100000) in order"));
    }
}

/// Spectra, too, are the same to the last bit, however they were computed.
#[test]
fn fft_of_one_sample_and_of_many() {
    for n in ["0", "1", "5", "15"] {
        let parallel = run("fft", [n]).succeeds();
        parallel.prints(&format!("fft(2^{n}) right, checksum "));
        let sequential = run("fft", [n, "--sequential"]).succeeds();
        assert_eq!(parallel.line("fft"), sequential.line("fft"));
    }
    run("fft", ["14", "--compare"])
        .succeeds()
        .prints("(measured, ");
    run("fft", ["29"]).fails(USAGE, "29");
}

#[test]
fn strassen_and_the_plain_product() {
    for n in ["1", "64", "65", "130", "256"] {
        run("strassen", [n])
            .succeeds()
            .prints(&format!("strassen({n}) right, checksum "));
        run("strassen", [n, "--plain"])
            .succeeds()
            .prints(&format!("plain({n}) right, checksum "));
    }
    run("strassen", ["128", "--seed", "2", "--compare"])
        .succeeds()
        .prints("(measured, ");
    run("strassen", ["0"]).fails(USAGE, "0");
}

/// Nothing but additions and products of 64 bits: all machines take the same number of steps.
#[test]
fn mandelbrot_takes_the_known_number_of_steps() {
    run("mandelbrot", ["8", "--compare"])
        .succeeds()
        .prints("mandelbrot(256 x 256) right, 4324824 steps, area 1.5211\n");
    run("mandelbrot", ["1", "--steps", "7"])
        .succeeds()
        .prints("mandelbrot(2 x 2) right");
    run("mandelbrot", ["16"]).fails(USAGE, "16");
}

#[test]
fn walks_over_all_data_in_all_ways() {
    for data in ["tree", "strings", "map", "graph"] {
        for by in ["ref", "value", "mut"] {
            let walk = ["2000", "--rounds", "2", "--data", data, "--by", by];
            run("walks", [&walk[..], &["--compare"]].concat())
                .succeeds()
                .prints("walks(2000) = ")
                .prints("(measured, ");
        }
    }
    run("walks", ["1", "--rounds", "0"])
        .succeeds()
        .prints("walks(1) = ");
    run("walks", ["0"]).fails(USAGE, "0");
}

#[test]
fn treesum_moves_the_tree_or_shares_it() {
    for how in [&[][..], &["--shared"]] {
        run("treesum", [&["20000"][..], how].concat())
            .succeeds()
            .prints("treesum(20000) = 9803927361871283201 (ok)\n");
        let small = ["7", "--seed", "3", "--work", "0", "--compare"];
        run("treesum", [&small[..], how].concat())
            .succeeds()
            .prints("(measured, ");
    }
    run("treesum", ["0"]).fails(USAGE, "0");
}

/// The factors, too, are the same to the last bit.
#[test]
fn factorizations_of_one_tile_and_of_many() {
    for (example, tasks) in [("lu", 46), ("cholesky", 30)] {
        for sizes in [["1", "1"], ["33", "33"], ["96", "32"], ["160", "40"]] {
            let sizes = ["--size", sizes[0], "--tile", sizes[1]];
            let parallel = run(example, sizes).succeeds();
            parallel.prints(" right, ").prints(" GFLOP/s\n");
            let sequential = run(example, sizes.iter().chain(&["--sequential"])).succeeds();
            assert_eq!(parallel.line(example), sequential.line(example));
        }
        let several = ["--size", "256", "--tile", "64", "--seed", "7"];
        for threads in ["1", "2", "4"] {
            let mode = ["--compare", "--threads", threads];
            run(example, several.iter().chain(&mode))
                .succeeds()
                .prints(&format!("{example}(256) right, {tasks} tasks, residual "))
                .prints("(measured, ");
        }
        run(example, ["--size", "0"]).fails(USAGE, "0");
    }
}

/// Of the four problems with one hot edge each the solutions sum up to a plate that is hot everywhere: so the centre of one has a quarter.
#[test]
fn the_centre_of_a_plate_has_a_quarter_of_the_heat() {
    for example in ["gauss_seidel", "jacobi"] {
        let plate = ["--size", "24", "--tile", "6", "--tolerance", "1e-9"];
        for mode in [
            &["--threads", "1"][..],
            &["--threads", "3"],
            &["--sequential"],
        ] {
            let run = run(
                example,
                [&plate[..], &["--sweeps", "100000"], mode].concat(),
            )
            .succeeds();
            run.prints(&format!("{example}(24) right after "))
                .prints(", centre 0.2500, ");
        }
    }
}

/// Each answer is compared with a program that knows no blocks.
#[test]
fn plates_in_blocks_are_plates_in_one_piece() {
    for example in ["gauss_seidel", "jacobi"] {
        for (size, tile) in [("2", "2"), ("7", "7"), ("6", "1"), ("40", "10")] {
            for (sweeps, every) in [("1", "1"), ("25", "10")] {
                let sizes = ["--size", size, "--tile", tile, "--sweeps", sweeps];
                let exact = ["--every", every, "--tolerance", "0"];
                let options = [&sizes[..], &exact, &["--compare"]].concat();
                run(example, options)
                    .succeeds()
                    .prints(&format!("{example}({size}) right after {sweeps} sweeps"));
            }
        }
    }
    run("jacobi", ["--tolerance=-1"]).fails(FAILURE, "--tolerance -1 is not a difference");
}

#[test]
fn tiles_must_fit() {
    for example in FLOWS {
        run(example, ["--size", "100", "--tile", "30"]).fails(
            FAILURE,
            "--tile 30 does not divide --size 100: 25 and 50 do",
        );
        run(example, ["--size", "100", "--tile", "128"])
            .fails(FAILURE, "--tile 128 is more than --size 100");
        run(example, ["--tile", "0"]).fails(USAGE, "0");
    }
}

#[test]
fn pictures_of_the_graphs_of_flows() {
    // Of LU with two tiles a side: four are made; then one factorization, two solutions, an update, and the last factorization, which waits for
    // the update.
    let file = Scratch::new("lu.dot", "");
    let path = file.path().display().to_string();
    run(
        "lu",
        ["--size", "64", "--tile", "32", "--dot", path.as_str()],
    )
    .succeeds()
    .prints("lu(64) right, 9 tasks");
    let graph = fs::read_to_string(file.path()).expect("it is written");
    assert_eq!(graph.matches("[label=").count(), 9);
    assert_eq!(graph.matches(" -> ").count(), 4 + 2 + 2 + 1);
    assert!(graph.starts_with("digraph lu {\n") && graph.ends_with("}\n"));
    assert!(graph.contains("t7 [label=\"update 1,1 step 0\""));
    assert!(graph.contains("  t7 -> t8;\n"));

    for (example, edges) in [
        ("cholesky", 3 + 1 + 1 + 1),
        // Two sweeps of four blocks. In the first each waits for those above and on its left, four in all; in the second each also for itself, and for
        // those below and on its right.
        ("gauss_seidel", 4 + (4 + 4 + 4)),
        // In the second each waits for itself and for two others.
        ("jacobi", 4 + 8),
    ] {
        let file = Scratch::new("it.dot", "");
        let path = file.path().display().to_string();
        let small = ["--size", "8", "--tile", "4", "--dot", path.as_str()];
        let sweeps: &[&str] = match example {
            "cholesky" => &[],
            _ => &["--sweeps", "2"],
        };
        run(example, [&small[..], sweeps].concat()).succeeds();
        let graph = fs::read_to_string(file.path()).expect("it is written");
        assert_eq!(graph.matches(" -> ").count(), edges, "{example}\n{graph}");
    }
    for example in FLOWS {
        run(
            example,
            ["--size", "8", "--tile", "4", "--dot", "no/such/it.dot"],
        )
        .fails(FAILURE, "cannot write the graph to no/such/it.dot");
        run(example, ["--size", "512", "--tile", "8", "--dot", "it.dot"])
            .fails(FAILURE, "no more than 2000 can be drawn");
    }
}

#[test]
fn uts_counts_a_published_tree() {
    run("uts", ["--tree", "T3"])
        .succeeds()
        .prints("T3: 4112897 nodes, depth 1572, 3599034 leaves (ok)\n");
}

#[test]
fn uts_counts_a_tree_of_ones_own() {
    // T1 cut at depth 6, in the options of the original program.
    let own = ["-t1", "-a3", "-d6", "-b4", "-r19"];
    let parallel = run("uts", own).succeeds();
    parallel.prints("custom tree: ").prints("depth 6, ");
    let sequential = run("uts", own.iter().chain(&["--sequential"])).succeeds();
    assert_eq!(parallel.line("custom tree"), sequential.line("custom tree"));
    for shape in ["linear", "cyclic"] {
        run("uts", ["-t", "geometric", "-a", shape, "-d", "5"])
            .succeeds()
            .prints("custom tree: ");
    }
    run("uts", ["-t0", "-b100", "-q0.1", "-m8"])
        .succeeds()
        .prints("custom tree: ");
}

#[test]
fn uts_refuses_trees_that_never_end() {
    run("uts", ["-t0", "-q0.2", "-m8"]).fails(FAILURE, "the tree may be infinite");
    run("uts", ["-t1", "-d0"]).fails(FAILURE, "--depth must be at least 1");
    run("uts", ["-t1", "-b-3"]).fails(FAILURE, "is not a number of children");
    run("uts", ["--tree", "T1", "-t1"]).fails(USAGE, "cannot be used with");
    run("uts", ["-d12"]).fails(USAGE, "--type");
    run("uts", ["--tree", "T4"]).fails(USAGE, "T3L");
}

#[test]
fn tsp_built_in() {
    run("tsp", NONE)
        .succeeds()
        .prints("cost 3323 (the known optimum)\n");
    run("tsp", ["--sequential"])
        .succeeds()
        .prints("cost 3323 (the known optimum)\n");
    run("tsp", ["--random", "20", "--compare"])
        .succeeds()
        .prints("proved optimal");
}

#[test]
fn tsp_of_public_instances() {
    let Some(data) = data("tsp") else { return };
    for (name, cost) in [
        ("burma14", 3323),
        ("ulysses16", 6859),
        ("gr17", 2085),
        ("gr21", 2707),
        ("bays29", 2020),
    ] {
        let file = data.join(name).with_extension("tsp");
        run("tsp", [file])
            .succeeds()
            .prints(&format!("cost {cost} (the known optimum)\n"));
    }
}

/// Distances without any geometry, where a wrong bound would show (the more so if the search begins cold), against dynamic programming.
#[test]
fn tsp_finds_the_optimum_of_arbitrary_matrices() {
    let mut random = Random(3);
    for cities in [3, 4, 5, 8, 10, 11, 12] {
        let matrix = symmetric(cities, |_, _| random.below(100));
        let mut text = format!(
            "TYPE: TSP\nDIMENSION: {cities}\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: UPPER_ROW\nEDGE_WEIGHT_SECTION\n"
        );
        for (row, cells) in matrix.iter().enumerate() {
            write_row(&mut text, &cells[row + 1..]);
        }
        let file = Scratch::new("arbitrary.tsp", &text);
        let expected = format!("cost {} (proved optimal", shortest_tour(&matrix));
        let path = file.path();
        run("tsp", [&path]).succeeds().prints(&expected);
        run("tsp", [path.as_os_str(), OsStr::new("--cold")])
            .succeeds()
            .prints(&expected);
    }
}

#[test]
fn tsp_reads_every_layout_of_a_matrix() {
    let matrix = symmetric(6, |a, b| (a * 7 + b * 11) % 13 + 1);
    let cost = shortest_tour(&matrix);
    for (format, columns) in [
        (
            "FULL_MATRIX",
            (|_, n| 0..n) as fn(usize, usize) -> std::ops::Range<usize>,
        ),
        ("UPPER_ROW", |row, n| row + 1..n),
        ("LOWER_ROW", |row, _| 0..row),
        ("UPPER_DIAG_ROW", |row, n| row..n),
        ("LOWER_DIAG_ROW", |row, _| 0..row + 1),
    ] {
        let mut text = format!(
            "DIMENSION : 6\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : {format}\nEDGE_WEIGHT_SECTION\n"
        );
        for (row, cells) in matrix.iter().enumerate() {
            write_row(&mut text, &cells[columns(row, 6)]);
        }
        text.push_str("EOF\n");
        let file = Scratch::new("layout.tsp", &text);
        run("tsp", [file.path()])
            .succeeds()
            .prints(&format!("cost {cost} (proved optimal"));
    }
}

#[test]
fn tsp_reads_every_kind_of_coordinates() {
    for (metric, perimeter) in [("EUC_2D", 40), ("CEIL_2D", 40), ("ATT", 16)] {
        let text = format!(
            "NAME: square\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: {metric}\nNODE_COORD_SECTION\n1 0 0\n2 10 10\n3 0 10\n4 1e1 0.0\nEOF\n"
        );
        let file = Scratch::new("square.tsp", &text);
        run("tsp", [file.path()])
            .succeeds()
            .prints(&format!("cost {perimeter} (proved optimal"));
    }
}

#[test]
fn tsp_says_what_is_wrong_with_a_file() {
    for (text, complaint) in [
        (
            "",
            "the file ends where EDGE_WEIGHT_SECTION or NODE_COORD_SECTION was expected",
        ),
        (
            "DIMENSION: two\n",
            "line 1: expected a DIMENSION of 3 to 64 cities, found `two`",
        ),
        (
            "DIMENSION: 65\n",
            "line 1: expected a DIMENSION of 3 to 64 cities, found `65`",
        ),
        ("TYPE: ATSP\n", "line 1: expected TYPE TSP, found `ATSP`"),
        (
            "NAME: x\n\nnonsense\n",
            "line 3: expected a keyword of TSPLIB, found `nonsense`",
        ),
        ("NODE_COORD_SECTION\n1 2 3\n", "the DIMENSION is missing"),
        (
            "DIMENSION: 3\nEDGE_WEIGHT_TYPE: MAN_2D\nNODE_COORD_SECTION\n",
            "EDGE_WEIGHT_TYPE `MAN_2D` is not known",
        ),
        (
            "DIMENSION: 3\nEDGE_WEIGHT_FORMAT: HEAP\nEDGE_WEIGHT_SECTION\n",
            "EDGE_WEIGHT_FORMAT `HEAP` is not known",
        ),
        (
            "DIMENSION: 3\nEDGE_WEIGHT_FORMAT: UPPER_ROW\nEDGE_WEIGHT_SECTION\n1 2\n-3\n",
            "line 5: expected a distance of at most 10000000, found `-3`",
        ),
        (
            "DIMENSION: 3\nEDGE_WEIGHT_FORMAT: UPPER_ROW\nEDGE_WEIGHT_SECTION\n1 2\n",
            "the file ends where a distance of at most 10000000 was expected",
        ),
        (
            "DIMENSION: 3\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n0 1 2\n1 0 3\n2 4 0\n",
            "the matrix is not symmetric in row 3, column 2",
        ),
        (
            "DIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n1 0 0\n3 1 1\n",
            "line 5: expected coordinates of city 2, found `3`",
        ),
    ] {
        let file = Scratch::new("bad.tsp", text);
        run("tsp", [file.path()])
            .fails(FAILURE, complaint)
            .fails(FAILURE, "bad.tsp");
    }
    run("tsp", ["--random", "65"]).fails(USAGE, "65");
}

#[test]
fn sat_built_in() {
    run("sat", ["--pigeons", "1"])
        .succeeds()
        .prints("\nUNSATISFIABLE\n");
    run("sat", ["--pigeons", "7"])
        .succeeds()
        .prints("\nUNSATISFIABLE\n");
    run("sat", ["--random", "60", "--compare"])
        .succeeds()
        .prints("SATISFIABLE\n");
}

#[test]
fn sat_of_public_instances() {
    let Some(data) = data("sat") else { return };
    let mut seen = 0;
    for file in fs::read_dir(data)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").path())
    {
        let name = file
            .file_name()
            .expect("entries have names")
            .to_string_lossy()
            .into_owned();
        if name.starts_with("uuf") {
            run("sat", [file]).succeeds().prints("\nUNSATISFIABLE\n");
        } else {
            run("sat", [file]).succeeds().prints("\nSATISFIABLE\nv ");
        }
        seen += 1;
    }
    assert!(seen > 0, "no formula in the folder");
}

#[test]
fn sat_finds_the_only_model() {
    let file = Scratch::new(
        "chain.cnf",
        "c a chain\np cnf 4 4\n1 0 -1 -2\n0\n2 3 0\n-3 -4 0\n%\n0\n",
    );
    run("sat", [file.path()])
        .succeeds()
        .prints("\nSATISFIABLE\nv 1 -2 3 -4 0\n");
}

#[test]
fn sat_of_formulas_that_are_decided_before_the_search() {
    for (text, answer) in [
        ("p cnf 0 0\n", "\nSATISFIABLE\nv 0\n"),
        ("p cnf 2 0\n", "\nSATISFIABLE\nv -1 -2 0\n"),
        ("p cnf 1 1\n0\n", "\nUNSATISFIABLE\n"),
        ("p cnf 1 2\n1 0\n-1 0\n", "\nUNSATISFIABLE\n"),
        ("p cnf 2 3\n1 1 0\n-1 2 2 0\n-2 -2 0\n", "\nUNSATISFIABLE\n"),
    ] {
        let file = Scratch::new("decided.cnf", text);
        run("sat", [file.path()]).succeeds().prints(answer);
    }
}

#[test]
fn sat_checks_the_answer_that_the_name_promises() {
    let file = Scratch::new("uf1.cnf", "p cnf 1 2\n1 0\n-1 0\n");
    run("sat", [file.path()]).fails(FAILURE, "wrong answer: UNSATISFIABLE, but there is a model");
    let file = Scratch::new("uuf1.cnf", "p cnf 1 1\n1 0\n");
    run("sat", [file.path()]).fails(FAILURE, "wrong answer: SATISFIABLE, but there is no model");
}

#[test]
fn sat_says_what_is_wrong_with_a_file() {
    for (text, complaint) in [
        (
            "",
            "the file ends where the header `p cnf VARIABLES CLAUSES` was expected",
        ),
        (
            "c\nq cnf 1 1\n",
            "line 2: expected the header `p cnf VARIABLES CLAUSES`, found `q`",
        ),
        (
            "p cnf many 1\n",
            "line 1: expected a number of variables, at most 1000000, found `many`",
        ),
        (
            "p cnf 2 1\n1 x 0\n",
            "line 2: expected a literal or 0, found `x`",
        ),
        (
            "p cnf 2 1\n1\n-3 0\n",
            "line 3: literal -3, but the header announces 2 variables",
        ),
        ("p cnf 2 1\n1 2\n", "the last clause does not end with a 0"),
        (
            "p cnf 2 2\n1 2 0\n",
            "the header announces 2 clauses, but there are 1",
        ),
    ] {
        let file = Scratch::new("bad.cnf", text);
        run("sat", [file.path()])
            .fails(FAILURE, complaint)
            .fails(FAILURE, "bad.cnf");
    }
    run("sat", ["--pigeons", "0"]).fails(USAGE, "0");
}

#[test]
fn knary_works_and_sleeps() {
    run("knary", ["4", "3", "10"])
        .succeeds()
        .prints("knary(4, 3) = 81 leaves of 10 us\n");
    run("knary", ["2", "3", "100", "--sleep", "--compare"])
        .succeeds()
        .prints("knary(2, 3) = 9 leaves of 100 us\n");
    run("knary", ["0", "5", "0"])
        .succeeds()
        .prints("knary(0, 5) = 1 leaves");
    run("knary", ["4", "3", "10", "--flow", "--compare"])
        .succeeds()
        .prints("knary(4, 3) = 81 leaves of 10 us\n");
    run("knary", ["3", "3", "--steps", "1000"])
        .succeeds()
        .prints("knary(3, 3) = 27 leaves of 1000 steps\n");
    let count = Scratch::new("count", "");
    let file = count.path().display().to_string();
    run("knary", ["2", "3", "0", "--count", &file]).succeeds();
    let length = fs::metadata(count.path()).expect("it is there").len();
    assert_eq!(length, 9, "a byte for each leaf");
    run("knary", ["6", "3", "10", "--tasks", "75", "--compare"])
        .succeeds()
        .prints("knary(6, 3) = 75 tasks of 10 us\n");
    run("knary", ["6", "3", "--steps", "9", "--tasks", "1"])
        .succeeds()
        .prints("knary(6, 3) = 1 tasks of 9 steps\n");
    run("knary", ["6", "0", "--tasks", "2"]).fails(FAILURE, "WIDTH");
    run("knary", ["64", "2", "0"]).fails(FAILURE, "2^64 leaves are too many");
}

#[test]
fn qap_of_public_instances() {
    let Some(data) = data("qap") else { return };
    run("qap", [data.join("nug12.dat")])
        .succeeds()
        .prints("cost 578 (the known optimum)\n");
    run(
        "qap",
        [data.join("nug12.dat").as_os_str(), OsStr::new("--compare")],
    )
    .succeeds()
    .prints("cost 578 ");
}

#[test]
fn knapsack_finds_what_dynamic_programming_finds() {
    for seed in 1..4 {
        let seed = seed.to_string();
        let small = ["--items", "30", "--spread", "100", "--seed", &seed];
        run("knapsack", small).succeeds().prints(" (the optimum)\n");
        run("knapsack", small.into_iter().chain(["--compare"]))
            .succeeds()
            .prints("(measured, ");
    }
    run("knapsack", ["--items", "0"]).fails(USAGE, "--items");
}

/// Matrices without any symmetry, where a wrong bound would show, against all permutations.
#[test]
fn qap_finds_the_optimum_of_arbitrary_matrices() {
    let mut random = Random(11);
    for size in 2..=7 {
        let mut matrix = || -> Vec<Vec<usize>> {
            (0..size)
                .map(|_| (0..size).map(|_| random.below(20)).collect())
                .collect()
        };
        let (flows, distances) = (matrix(), matrix());
        let mut text = format!("{size}\n\n");
        for row in flows.iter().chain(&distances) {
            write_row(&mut text, row);
        }
        let cost = cheapest_assignment(&flows, &distances, &mut Vec::new());
        let file = Scratch::new("arbitrary.dat", &text);
        run("qap", [file.path().as_os_str(), OsStr::new("--cold")])
            .succeeds()
            .prints(&format!("cost {cost} (proved optimal"));
        run("qap", [file.path()])
            .succeeds()
            .prints(&format!("cost {cost} (proved optimal"));
        file.beside("arbitrary.sln", &format!("{size} {cost}\n"));
        run("qap", [file.path()])
            .succeeds()
            .prints(&format!("cost {cost} (the known optimum)\n"));
        file.beside("arbitrary.sln", &format!("{size} {}\n", cost + 1));
        run("qap", [file.path()]).fails(FAILURE, "wrong answer");
    }
}

#[test]
fn qap_says_what_is_wrong_with_a_file() {
    for (text, complaint) in [
        (
            "",
            "the file ends where a number of facilities from 2 to 64 was expected",
        ),
        (
            "1\n0\n0\n",
            "line 1: expected a number of facilities from 2 to 64, found `1`",
        ),
        (
            "2\n0 1\n1 -1\n",
            "line 3: expected a flow of at most 10000000, found `-1`",
        ),
        (
            "2\n0 1\n1 0\n\n0 1\n",
            "the file ends where a distance of at most 10000000 was expected",
        ),
        (
            "2\n0 1 1 0\n0 1 1 0\n7\n",
            "line 4: expected the end of the file, found `7`",
        ),
    ] {
        let file = Scratch::new("bad.dat", text);
        run("qap", [file.path()])
            .fails(FAILURE, complaint)
            .fails(FAILURE, "bad.dat");
    }
}

/// The sum of a file's squares, in steps of which some can run at the same time.
const SQUARES: &str = r#"
[[step]]
name = "total"
reads = ["odd", "even"]
run = "cat odd even | awk '{ sum += $1 } END { print sum }'"

[[step]]
name = "odd"
reads = ["squares"]
run = "awk '$1 % 2 == 1' squares"

[[step]]
name = "even"
reads = ["squares"]
output = "out/even"
run = """
mkdir out
awk '$1 % 2 == 0' squares > out/even
"""

[[step]]
name = "squares"
files = ["numbers"]
run = "awk '{ print $1 * $1 }' numbers"
"#;

/// The outputs of a workflow, in a folder of its own.
fn output(folder: &Path, step: &str) -> String {
    fs::read_to_string(folder.join("steps").join(step)).expect("the step has an output")
}

#[test]
fn workflow_makes_what_depends_on_a_change_and_finds_the_rest() {
    for mode in [&[][..], &["--sequential"]] {
        let file = Scratch::new("squares.toml", SQUARES);
        file.beside("numbers", "1\n2\n3\n4\n");
        let folder = file.folder.path().join("made");
        let arguments = || {
            let own = [
                file.path().into_os_string(),
                "--outputs".into(),
                folder.clone().into(),
            ];
            own.into_iter().chain(mode.iter().map(Into::into))
        };
        let first = run("workflow", arguments()).succeeds();
        first.prints("squares.toml: 4 steps, 0 found, 4 made\ntotal  ");
        assert_eq!(output(&folder, "total"), "30\n");
        assert_eq!(output(&folder, "even"), "4\n16\n");
        run("workflow", arguments())
            .succeeds()
            .prints("4 steps, 4 found, 0 made\n");

        // All steps read the changed file, at first or second hand.
        file.beside("numbers", "1\n2\n3\n4\n6\n");
        run("workflow", arguments())
            .succeeds()
            .prints("4 steps, 0 found, 4 made\n");
        assert_eq!(output(&folder, "total"), "66\n");

        // The same squares from another command: what reads them is found.
        fs::write(file.path(), SQUARES.replace("$1 * $1", "$1 ^ 2")).expect("there is room");
        run("workflow", arguments())
            .succeeds()
            .prints("4 steps, 3 found, 1 made\n");

        // An output that somebody has changed is none.
        fs::write(folder.join("steps/total"), "67\n").expect("it is there");
        run("workflow", arguments())
            .succeeds()
            .prints("4 steps, 3 found, 1 made\n");
        assert_eq!(output(&folder, "total"), "66\n");
    }
}

#[test]
fn workflow_names_the_step_that_failed_and_keeps_the_rest() {
    let text = SQUARES.replace(
        "awk '$1 % 2 == 1' squares",
        "echo begun >&2; cat not-there; echo no odd numbers >&2; exit 3",
    );
    for mode in [
        &["--threads", "1"][..],
        &["--threads", "3"],
        &["--sequential"],
    ] {
        let file = Scratch::new("squares.toml", &text);
        file.beside("numbers", "1\n2\n");
        let folder = file.folder.path().join("made");
        let dot = file.folder.path().join("graph.dot");
        let arguments = || {
            let own = [
                file.path(),
                "--outputs".into(),
                folder.clone(),
                "--dot".into(),
                dot.clone(),
            ];
            (own.into_iter().map(PathBuf::into_os_string)).chain(mode.iter().map(Into::into))
        };
        run("workflow", arguments())
            .fails(
                FAILURE,
                "step `odd` failed: `echo begun >&2; cat not-there;",
            )
            .fails(FAILURE, "ended with exit status: 3\n")
            .fails(FAILURE, "\n    no odd numbers\n")
            .fails(FAILURE, "the same command goes on from there");
        assert_eq!(output(&folder, "squares"), "1\n4\n");
        let drawn = fs::read_to_string(&dot).expect("a picture");
        assert!(
            drawn.contains("\"odd\" [label=\"odd\", fillcolor=salmon]"),
            "{drawn}"
        );
        assert!(drawn.contains("\"squares\" -> \"odd\";"), "{drawn}");

        fs::write(file.path(), SQUARES).expect("there is room");
        let again = run("workflow", arguments()).succeeds();
        assert!(!again.stdout.contains(" 0 found"), "{again}");
        assert_eq!(output(&folder, "total"), "5\n");
        fs::write(file.path(), &text).expect("there is room");
    }
}

#[test]
fn workflow_of_a_command_that_leaves_no_output() {
    let text = "[[step]]\nname = \"a\"\nrun = \"echo what >&2\"\noutput = \"made.txt\"\n";
    let file = Scratch::new("none.toml", text);
    let folder = file.folder.path().join("made");
    let arguments = [file.path(), "--outputs".into(), folder];
    run("workflow", arguments)
        .fails(
            FAILURE,
            "step `a` failed: `echo what >&2` has left no file `made.txt`",
        )
        .fails(FAILURE, "\n    what\n");
}

#[test]
fn workflow_of_timed_steps() {
    let text = "[[step]]\nname = \"a\"\nseconds = 0.05\n[[step]]\nname = \"b\"\nseconds = 0.1\n\
        [[step]]\nname = \"c\"\nseconds = 0.05\nreads = [\"a\", \"b\"]\n";
    let file = Scratch::new("timed.toml", text);
    for how in [
        &["--compare"][..],
        &["--sequential"],
        &["--busy", "--threads", "2"],
    ] {
        let own = [file.path().into_os_string()].into_iter();
        run("workflow", own.chain(how.iter().map(Into::into)))
            .succeeds()
            .prints("timed.toml: 3 steps, 0 found, 3 made\n")
            .prints("critical path 0.150 s of 0.200 s: at most 1.3 times faster");
    }
}

/// A graph of the Standard Task Graph Set says how long its critical path is.
#[test]
fn workflow_of_public_graphs() {
    let Some(data) = data("stg") else { return };
    let mut seen = 0;
    for file in fs::read_dir(data).expect("the folder is there") {
        let file = file.expect("it can be read").path();
        for unit in ["0", "0.01"] {
            let arguments = [file.as_os_str(), OsStr::new("--unit"), OsStr::new(unit)];
            let outcome = run("workflow", arguments).succeeds();
            outcome.prints("critical path ");
            assert_eq!(
                outcome.stdout.contains(" s (ok) of "),
                unit != "0",
                "{outcome}"
            );
        }
        seen += 1;
    }
    assert!(seen > 0, "no graph in the folder");
}

#[test]
fn workflow_says_what_is_wrong_with_a_graph() {
    let graph = "2\n0 0 0\n1 5 1 0\n2 3 1 1\n3 0 1 2\n# CP Length : 8\n";
    let file = Scratch::new("small.stg", graph);
    run("workflow", [file.path()])
        .succeeds()
        .prints("critical path 0.008 s (ok) of 0.008 s");
    for (from, to, complaint) in [
        (
            "2\n",
            "two\n",
            "line 1: expected a number of tasks, at most 1000000, found `two`",
        ),
        ("1 5 1 0", "7 5 1 0", "line 3: expected task 1, found `7`"),
        (
            "2 3 1 1",
            "2 3 1 9",
            "line 4: expected a predecessor of task 2, one from 0 to 3, found `9`",
        ),
        (
            "2 3 1 1",
            "2 3 1 3",
            "these steps wait for each other in a circle, each for the next one: ",
        ),
        ("3 0 1 2\n", "", "the file ends where task 3 was expected"),
        (
            "3 0 1 2",
            "3 0 1 2 4",
            "line 5: expected the end of the file, found `4`",
        ),
        (
            "CP Length : 8",
            "CP Length : 9",
            "wrong answer: the critical path takes 8ms",
        ),
        (
            "CP Length : 8",
            "CP Length : long",
            "line 6: expected the length of the critical path, found `long`",
        ),
    ] {
        let file = Scratch::new("bad.stg", graph.replace(from, to));
        run("workflow", [file.path()]).fails(FAILURE, complaint);
    }
    run(
        "workflow",
        [file.path().as_os_str(), OsStr::new("--unit=-1")],
    )
    .fails(FAILURE, "--unit -1 is not a number of milliseconds");
}

#[test]
fn workflow_says_what_is_wrong_with_a_file() {
    let step = |rest: &str| format!("[[step]]\nname = \"a\"\n{rest}\n");
    let both = |first: &str, second: &str| {
        step(first) + "[[step]]\nname = \"b\"\nrun = \"true\"\n" + second + "\n"
    };
    for (text, complaint) in [
        (String::new(), "there is no [[step]]"),
        (
            step(""),
            "line 2: step `a` does nothing: give it `run = \"a command\"`, or `seconds = 0.5`",
        ),
        (
            step("run = \"true\"\nseconds = 1"),
            "line 2: step `a` has both `run` and `seconds`",
        ),
        (
            step("seconds = -1.0"),
            "line 3: expected a number of seconds, found `-1`",
        ),
        (step("runs = \"true\""), "unknown field `runs`"),
        (step("runs = \"true\""), "line 3"),
        (step("run = "), "line 3"),
        (
            both("run = \"true\"", "").replace("\"b\"", "\"a\""),
            "line 5: there is a step `a` already (line 2)",
        ),
        (
            both("run = \"true\"", "reads = [\"A\"]"),
            "line 7: step `b` reads `A`, but there is no step of that name: did you mean `a`?",
        ),
        (
            both("run = \"true\"", "reads = [\"x\", \"a\"]"),
            "line 7: step `b` reads `x`, but there is no step of that name",
        ),
        (
            both("run = \"true\"\nreads = [\"b\"]", "reads = [\"a\"]"),
            "line 2: these steps wait for each other in a circle, each for the next one: a -> b -> a",
        ),
        (
            step("run = \"true\"\nreads = [\"a\"]"),
            "each for the next one: a -> a",
        ),
        (
            both("run = \"true\"", "reads = [\"a\", \"a\"]"),
            "line 5: step `b` reads two things named `a`",
        ),
        (
            step("run = \"true\"\nfiles = [\"none\"]"),
            "line 4: step `a` reads a file that cannot be read",
        ),
        (
            step("run = \"true\"\noutput = \"../a\""),
            "line 4: `../a` cannot be an output",
        ),
        (
            step("run = \"true\"").replace("\"a\"", "\"a/b\""),
            "line 2: `a/b` cannot be the name of a step",
        ),
    ] {
        let file = Scratch::new("bad.toml", text);
        run("workflow", [file.path()])
            .fails(FAILURE, complaint)
            .fails(FAILURE, "bad.toml");
    }
    let file = Scratch::new("squares.toml", SQUARES);
    file.beside("numbers", "1\n");
    run(
        "workflow",
        [file.path().as_os_str(), OsStr::new("--compare")],
    )
    .fails(FAILURE, "it is for workflows of timed steps");
}

#[test]
fn help_has_examples() {
    for example in ALL {
        let help = run(example, ["--help"]).succeeds();
        help.prints("Usage: ")
            .prints("Examples:\n")
            .prints("--compare");
        let examples = help.stdout.split_once("Examples:\n").map(|(_, is)| is);
        let examples = examples.expect("just seen");
        for line in examples.lines().take_while(|line| line.starts_with("  ")) {
            assert!(line.len() <= 80, "a narrow terminal breaks {line:?}");
            let (command, remark) = line.split_once('#').unwrap_or((line, ""));
            let words = command.trim();
            let apart = remark.is_empty() || command.ends_with("  ");
            assert!(
                apart && !words.contains("  "),
                "the shell would take more than the command for arguments in {line:?}"
            );
        }
    }
}

#[test]
fn nonsense_is_refused() {
    for example in [
        "fib",
        "fib_expression",
        "nqueens",
        "quicksort",
        "knary",
        "mergesort",
        "cilksort",
        "fft",
        "strassen",
        "mandelbrot",
        "treesum",
        "walks",
    ] {
        run(example, ["many"]).fails(USAGE, "invalid value 'many'");
        run(example, ["-1"]).fails(USAGE, "-1");
    }
    run("fib", ["94"]).fails(USAGE, "94");
    run("nqueens", ["0"]).fails(USAGE, "0");
    for example in ALL {
        run(example, ["--sequential", "--compare"]).fails(USAGE, "cannot be used with");
    }
    for example in ["tsp", "sat", "qap", "workflow"] {
        run(example, ["no/such/file"]).fails(FAILURE, "cannot read no/such/file");
        let binary = Scratch::new("binary", b"\xff\xfe\x00\x01");
        run(example, [binary.path()]).fails(FAILURE, "cannot read");
    }
}

const NONE: [&str; 0] = [];

/// Those whose calls wait for data.
const FLOWS: [&str; 4] = ["lu", "cholesky", "gauss_seidel", "jacobi"];

/// What became of an example.
struct Outcome {
    command: String,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(example: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
    let mut command = Command::new(binary(example));
    command
        .args(args)
        .env_remove("RUST_BACKTRACE")
        .env_remove("RUST_LIB_BACKTRACE");
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the example starts");
    Outcome {
        command: format!("{command:?}"),
        code: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

impl Outcome {
    #[track_caller]
    fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    #[track_caller]
    fn prints(&self, expected: &str) -> &Self {
        assert!(
            self.stdout.contains(expected),
            "expected {expected:?} on stdout\n{self}"
        );
        self
    }

    #[track_caller]
    fn fails(&self, code: i32, complaint: &str) -> &Self {
        assert_eq!(self.code, Some(code), "{self}");
        assert!(
            self.stderr.contains(complaint),
            "expected {complaint:?} on stderr\n{self}"
        );
        self
    }

    /// The nodes of the search tree that the process says it has visited.
    #[track_caller]
    fn visited(&self) -> u64 {
        let nodes = self
            .line("visited ")
            .and_then(|line| line.split(' ').nth(1));
        let nodes = nodes.and_then(|nodes| nodes.replace(',', "").parse().ok());
        nodes.unwrap_or_else(|| panic!("expected the nodes visited\n{self}"))
    }

    fn line(&self, beginning: &str) -> Option<&str> {
        self.stdout.lines().find(|line| line.starts_with(beginning))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            command,
            code,
            stdout,
            stderr,
        } = self;
        write!(
            f,
            "{command}\nexit code {code:?}\n--- stdout\n{stdout}--- stderr\n{stderr}"
        )
    }
}

/// Cargo puts examples into a folder beside that of the tests: `examples/NAME` and `deps/THIS_TEST`.
fn binary(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("cargo puts tests into target/PROFILE/deps");
    let binary = profile
        .join("examples")
        .join(example)
        .with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        binary.exists(),
        "{} is not there. `cargo test` builds it; after `cargo test --test examples` alone, `cargo build --examples` does",
        binary.display()
    );
    binary
}

/// The folder of public instances of this kind.
fn data(kind: &str) -> Option<PathBuf> {
    let root = std::env::var_os("SATIN_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"),
        PathBuf::from,
    );
    let folder = root.join(kind);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!(
        "skipped: no {} (set SATIN_DATA to a folder with the public problem instances)",
        folder.display()
    );
    None
}

/// A file in a folder of its own that lasts as long as this value.
struct Scratch {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Scratch {
    fn new(name: &'static str, content: impl AsRef<[u8]>) -> Self {
        let scratch = Self {
            folder: tempfile::tempdir().expect("there is room for a folder"),
            name,
        };
        fs::write(scratch.path(), content).expect("there is room for a file");
        scratch
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    fn beside(&self, name: &str, content: &str) {
        fs::write(self.folder.path().join(name), content).expect("there is room for a file");
    }
}

/// A linear congruential generator (Knuth's MMIX): arbitrary, and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn write_row(text: &mut String, cells: &[usize]) {
    for cell in cells {
        write!(text, " {cell}").expect("strings can be written to");
    }
    text.push('\n');
}

fn symmetric(size: usize, mut cell: impl FnMut(usize, usize) -> usize) -> Vec<Vec<usize>> {
    let mut matrix = vec![vec![0; size]; size];
    let above_diagonal = (0..size).flat_map(|row| (row + 1..size).map(move |column| (row, column)));
    for (row, column) in above_diagonal {
        let value = cell(row, column);
        matrix[row][column] = value;
        matrix[column][row] = value;
    }
    matrix
}

/// Held and Karp's dynamic programming: for each set of cities and each city in it, the shortest path from city 0 through the
/// set that ends there.
fn shortest_tour(matrix: &[Vec<usize>]) -> usize {
    let n = matrix.len();
    let unreachable = usize::MAX / 2;
    let mut shortest = vec![vec![unreachable; n]; 1 << n];
    shortest[1][0] = 0;
    for visited in 1..1_usize << n {
        for last in (0..n).filter(|last| visited & (1 << last) != 0) {
            for next in (0..n).filter(|next| visited & (1 << next) == 0) {
                let length = shortest[visited][last] + matrix[last][next];
                let known = &mut shortest[visited | 1 << next][next];
                *known = length.min(*known);
            }
        }
    }
    (1..n)
        .map(|last| shortest[(1 << n) - 1][last] + matrix[last][0])
        .min()
        .unwrap_or(0)
}

/// The least cost of all assignments that begin with these locations.
fn cheapest_assignment(
    flows: &[Vec<usize>],
    distances: &[Vec<usize>],
    locations: &mut Vec<usize>,
) -> usize {
    let n = flows.len();
    if locations.len() == n {
        let cost = |a: usize| {
            (0..n)
                .map(|b| flows[a][b] * distances[locations[a]][locations[b]])
                .sum::<usize>()
        };
        return (0..n).map(cost).sum();
    }
    let mut cheapest = usize::MAX;
    for location in 0..n {
        if !locations.contains(&location) {
            locations.push(location);
            cheapest = cheapest.min(cheapest_assignment(flows, distances, locations));
            locations.pop();
        }
    }
    cheapest
}
