//! What the source of this crate promises about itself: the arrows that ARCHITECTURE.md draws are all there are, the protocol is
//! pure, and the glossary's types exist.

use std::{collections::BTreeSet, fs, path::Path};

/// Each layer, and the parts of the crate that it may use.
const LAYERS: [(&str, &[&str]); 8] = [
    ("job", &["atomic", "job"]),
    ("observe", &["job", "observe"]),
    ("dashboard", &["dashboard", "job", "observe"]),
    (
        "worker",
        &["atomic", "config", "exit", "job", "observe", "worker"],
    ),
    ("data", &["data", "job", "observe", "worker"]),
    ("node", &["job", "node"]),
    ("stable", &["job", "stable"]),
    (
        "net",
        &[
            "codes", "config", "data", "exit", "fence", "job", "net", "node", "observe", "slurm",
            "stable", "worker",
        ],
    ),
];

#[test]
fn no_layer_knows_of_one_above_it() {
    for (layer, may_use) in LAYERS {
        for (path, text) in files_of(layer) {
            let Some(code) = without_tests(&path, &text) else {
                continue;
            };
            let strangers: Vec<String> = (used(code).into_iter())
                .filter(|part| !may_use.contains(&part.as_str()))
                .collect();
            assert!(strangers.is_empty(), "{path} uses {strangers:?}");
        }
    }
}

/// "No socket, no clock, no thread, no randomness of its own", and nothing whose order differs from run to run. In the tests of
/// the protocol neither.
#[test]
fn the_protocol_keeps_its_promise() {
    let forbidden = [
        "std::time::Instant",
        "Instant::now",
        "SystemTime",
        "std::thread",
        "thread::spawn",
        "HashMap",
        "HashSet",
        "std::env",
        "UdpSocket",
        "TcpStream",
        "tokio",
        "rand::rng(",
        "thread_rng",
        "OsRng",
    ];
    for (path, text) in files_of("node") {
        for word in forbidden {
            assert!(!text.contains(word), "{word} in {path}");
        }
    }
}

/// Who asks whom for work, and what becomes of a job then, are told apart; both keep the books, which know neither.
#[test]
fn stealing_and_repair_know_nothing_of_each_other() {
    for (room, others) in [
        ("node/steal", &["repair::", "Repair", "cx.table"][..]),
        ("node/repair", &["steal::", "Steal", "Thief", "Victim"]),
        ("node/books", &["repair::", "steal::"]),
    ] {
        for (path, text) in files_of(room) {
            let is_test = path.ends_with("tests.rs") || path.ends_with("stories.rs");
            for line in code_lines(&text).filter(|_| !is_test) {
                let stranger = others.iter().find(|other| line.contains(**other));
                assert_eq!(stranger, None, "{path}: {line}");
            }
        }
    }
}

#[test]
fn use_trees_are_read() {
    let text = "use crate::{\n    job::{Answer, JobId},\n    node,\n};\n// crate::never\nfn f() { crate::exit::now() }";
    let names: Vec<String> = used(text).into_iter().collect();
    assert_eq!(names, ["exit", "job", "node"]);
}

/// The parts of the crate that a file mentions: the names behind `crate::`, in `use` trees too.
fn used(text: &str) -> BTreeSet<String> {
    let code: String = code_lines(text).flat_map(|line| [line, "\n"]).collect();
    let mut parts = BTreeSet::new();
    for behind in code.split("crate::").skip(1) {
        match behind.strip_prefix('{') {
            Some(tree) => parts.extend(branches(tree)),
            None => parts.extend(first_name(behind)),
        }
    }
    parts
}

/// The first names of the branches of a `use` tree whose brace is open.
fn branches(tree: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut depth, mut begins) = (0, true);
    for (at, character) in tree.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            letter if begins && letter.is_alphabetic() => {
                names.extend(first_name(&tree[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn first_name(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|letter| is_of_name(*letter))
        .collect();
    (!name.is_empty()).then_some(name)
}

/// The lines of a text that are no comments.
fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines();
    lines.filter(|line| !line.trim_start().starts_with("//"))
}

/// The text without the tests at its end; `None` if the file has nothing else.
fn without_tests<'t>(path: &str, text: &'t str) -> Option<&'t str> {
    let is_test =
        path.contains("/tests/") || path.ends_with("tests.rs") || path.ends_with("stories.rs");
    let tests = text.find("#[cfg(test)]\nmod tests {");
    (!is_test).then(|| &text[..tests.unwrap_or(text.len())])
}

/// The files of a part of the source: their paths below `src`, and their texts.
fn files_of(part: &str) -> Vec<(String, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![source.join(part)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the source is here") {
            let path = entry.expect("a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("source is text");
                let path = path.strip_prefix(&source).expect("below the source");
                files.push((path.display().to_string(), text));
            }
        }
    }
    assert!(!files.is_empty(), "{part} is not there");
    files
}

/// GLOSSARY.md says where each word's type is.
#[test]
fn the_glossary_is_true() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let glossary = fs::read_to_string(crate_root.join("../GLOSSARY.md")).expect("the glossary");
    let rows = glossary.lines().filter(|line| line.contains("` in `"));
    let mut words = 0;
    for row in rows {
        for entry in row.split("` in `").collect::<Vec<_>>().windows(2) {
            let name = entry[0].rsplit('`').next().expect("a name before");
            let file = entry[1].split('`').next().expect("a file behind");
            let text = fs::read_to_string(crate_root.join("src").join(file));
            let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
            let is_there = ["struct", "enum", "trait"].iter().any(|kind| {
                let definition = format!("{kind} {name}");
                let mut places = text.match_indices(&definition);
                // The name ends there: `Node` is not `NodeInfo`.
                places.any(|(at, _)| !text[at + definition.len()..].starts_with(is_of_name))
            });
            assert!(is_there, "{name} is not in {file}");
            words += 1;
        }
    }
    assert!(words > 20, "{words} words were found");
}

/// A room with a README names its files there, and ARCHITECTURE.md, which names the rooms, stays short.
#[test]
fn the_rooms_name_their_files() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = crate_root.join("src");
    for room in [
        "job",
        "data",
        "worker",
        "observe",
        "dashboard",
        "node",
        "stable",
        "net",
    ] {
        let readme = fs::read_to_string(source.join(room).join("README.md")).expect("a README");
        for entry in fs::read_dir(source.join(room)).expect("the room is there") {
            let name = entry.expect("a folder can be read").file_name();
            let name = name.to_str().expect("text");
            let stem = name.strip_suffix(".rs").unwrap_or(name);
            let is_said = ["", ".rs", "/"]
                .iter()
                .any(|end| readme.contains(&format!("`{stem}{end}`")));
            let needs_no_row = ["mod", "README.md", "tests", "stories"].contains(&stem);
            assert!(is_said || needs_no_row, "{room}/README.md lacks {name}");
        }
    }
    let map = fs::read_to_string(crate_root.join("../ARCHITECTURE.md")).expect("the map");
    let words = map.split_whitespace().count();
    assert!(words <= 3500, "ARCHITECTURE.md has {words} words");
}
