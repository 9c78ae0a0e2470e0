//! No layer of this crate knows of one above it: the arrows that ARCHITECTURE.md draws are all there are.

use std::{collections::BTreeSet, fs, path::Path};

/// Each layer, and the parts of the crate that it may use.
const LAYERS: [(&str, &[&str]); 6] = [
    ("job", &["atomic", "job"]),
    ("observe", &["job", "observe"]),
    (
        "worker",
        &["atomic", "config", "exit", "job", "observe", "worker"],
    ),
    ("data", &["data", "job", "observe", "worker"]),
    ("node", &["job", "node"]),
    (
        "net",
        &["config", "data", "job", "net", "node", "observe", "worker"],
    ),
];

#[test]
fn no_layer_knows_of_one_above_it() {
    for (layer, may_use) in LAYERS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = sources(&folder.join(layer));
        assert!(!files.is_empty(), "{layer} is not there");
        for (path, text) in files {
            let strangers: Vec<String> = (used(&text).into_iter())
                .filter(|part| !may_use.contains(&part.as_str()))
                .collect();
            assert!(strangers.is_empty(), "{path} uses {strangers:?}");
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
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
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

/// The files below a folder, without tests: their paths and texts.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the source is here") {
        let path = entry.expect("a folder can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "tests" {
            files.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "stories.rs" {
            let text = fs::read_to_string(&path).expect("source is text");
            let tests = text.find("#[cfg(test)]\nmod tests {");
            let text = text[..tests.unwrap_or(text.len())].to_owned();
            files.push((path.display().to_string(), text));
        }
    }
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
