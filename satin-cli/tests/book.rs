//! The README and the book hold together: no page is left out, no link leads nowhere, and no code escapes the tests. The commands
//! of the pages are run by `help.rs`, their Rust by the doctests of the crate `satin`.

use std::{collections::BTreeSet, fs, path::Path};

mod pages;

use pages::Page;

/// What stands behind the hash of a link is a heading of the page that it leads to.
fn check_link(page: &Page, link: &str, all: &[Page]) -> Result<(), String> {
    if link.contains("://") {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.path.parent().expect("a page lies in a folder");
    let target = match file {
        "" => page.path.clone(),
        file => folder.join(file),
    };
    if !pages::root().join(&target).exists() {
        return Err(format!("there is no {}", target.display()));
    }
    let is_there = anchor.is_empty()
        || (all.iter())
            .filter(|other| other.path == target)
            .any(|other| other.anchors.iter().any(|is| is == anchor));
    match is_there {
        true => Ok(()),
        false => Err(format!("{} has no heading #{anchor}", target.display())),
    }
}

#[test]
fn every_link_leads_somewhere() {
    let all = pages::all();
    let mut wrong = Vec::new();
    for page in &all {
        for link in &page.links {
            if let Err(why) = check_link(page, link, &all) {
                wrong.push(format!("{}: ({link}): {why}", page.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// mdBook shows what its summary names, and nothing else; it does not copy what lies outside of its folder.
#[test]
fn the_summary_names_every_page_once() {
    let summary = Page::read(Path::new("docs/src/SUMMARY.md"));
    let named: BTreeSet<&str> = summary.links.iter().map(String::as_str).collect();
    assert_eq!(named.len(), summary.links.len(), "a page is named twice");
    let all = pages::all();
    let book = || all.iter().filter(|page| page.path.starts_with("docs/src"));
    let names = book().map(|page| page.path.file_name().and_then(|name| name.to_str()));
    let there: BTreeSet<&str> = names
        .map(|name| name.expect("text"))
        .filter(|name| *name != "SUMMARY.md")
        .collect();
    assert_eq!(named, there);
    for page in book() {
        let outside = page.links.iter().find(|link| link.starts_with(".."));
        assert_eq!(outside, None, "{} links outside", page.path.display());
    }
}

/// Rust that no doctest compiles becomes wrong one day.
#[test]
fn all_rust_of_the_pages_is_compiled() {
    let documents = fs::read_to_string(pages::root().join("src/lib.rs")).expect("the crate");
    for page in pages::all() {
        for block in &page.blocks {
            let place = page.place(block);
            let language = &block.language;
            assert!(!language.is_empty(), "{place}: say of which language it is");
            assert_ne!(language, "rs", "{place}: is not compiled: write `rust`");
            assert!(!language.contains("ignore"), "{place}: is not compiled");
            if language.split(',').any(|word| word == "rust") {
                let include = format!("include_str!(\"../{}\")", page.path.display());
                assert!(
                    documents.contains(&include),
                    "{place}: add {include} in src/lib.rs"
                );
            }
        }
    }
}

/// `help.rs` runs the program that readers are told to write.
#[test]
fn the_first_program_is_an_example() {
    let example = fs::read_to_string(pages::root().join("examples/primes.rs")).expect("the file");
    let (_, example) = example.split_once("\n\n").expect("a head");
    for path in ["README.md", "docs/src/first-program.md"] {
        let page = Page::read(Path::new(path));
        let program = page
            .blocks
            .iter()
            .find(|block| block.text.contains("primes(0, "));
        assert_eq!(program.expect(path).text.trim(), example.trim(), "{path}");
    }
}

/// A code that no error has any more leads readers astray.
#[test]
fn every_code_is_that_of_an_error() {
    let codes = pages::root().join("satin-runtime/src/codes.rs");
    let codes = fs::read_to_string(codes).expect("the codes");
    let mut sources = String::new();
    for folder in ["satin-runtime/src", "satin-cli/src"] {
        read_all(&pages::root().join(folder), &mut sources);
    }
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
    let words: Vec<&str> = sources.split(|c| !is_in_name(c)).collect();
    let names = codes
        .lines()
        .filter_map(|line| line.trim().split_once(" = \"S"));
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let uses = words.iter().filter(|word| **word == name).count();
        assert!(uses > 1, "{name} is the code of no error");
    }
}

/// The tables of panics, warnings and errors of the compiler give messages as they are: whoever searches for one finds it.
#[test]
fn the_messages_of_the_tables_are_those_of_the_sources() {
    let mut sources = String::new();
    for folder in [
        "satin-runtime/src",
        "satin-macros/src",
        "tests/compile_fail",
    ] {
        read_all(&pages::root().join(folder), &mut sources);
    }
    let sources: String = sources.split("\\\n").map(str::trim_start).collect();
    let page = Page::read(Path::new("docs/src/errors.md")).text;
    let (_, tables) = page.split_once("## Panics").expect("tables");
    let messages = tables.lines().filter_map(|line| line.strip_prefix("| "));
    let mut count = 0;
    for message in messages.filter_map(|line| line.split(" | ").next()) {
        // What stands between is the program's own, or said otherwise.
        let pieces = message.replace("..", "`");
        for piece in pieces.split(['`', ',', ';', ':', '(', ')']).map(str::trim) {
            if piece.len() > 8 && !piece.starts_with("---") {
                assert!(
                    sources.contains(piece),
                    "{message}: no source says `{piece}`"
                );
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count}");
}

fn read_all(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read_all(&path, text);
        } else if path
            .extension()
            .is_some_and(|is| is == "rs" || is == "stderr")
        {
            *text += &fs::read_to_string(path).expect("text");
        }
    }
}
