//! The book's page of errors, section by section: `satin explain` prints it.

/// The page. (In this crate's folder lies a link to the page in `docs/src/`, as a published crate has its own folder only.)
pub const PAGE: &str = include_str!("../errors.md");

/// What the page says about one code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// The code, such as `S0309`.
    pub code: &'static str,
    /// The heading behind the code.
    pub title: &'static str,
    /// The heading of the group to which the section belongs.
    pub group: &'static str,
    body: &'static str,
}

/// All sections, in the order of the page.
#[must_use]
pub fn sections() -> Vec<Section> {
    let mut found = Vec::new();
    for group in PAGE.split("\n## ").skip(1) {
        let mut parts = group.split("\n### ");
        let name = parts.next().and_then(|head| head.lines().next());
        for part in parts {
            let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
            if let Some((code, title)) = heading.split_once(": ") {
                found.push(Section {
                    code,
                    title,
                    group: name.unwrap_or_default(),
                    body: body.trim(),
                });
            }
        }
    }
    found
}

/// The section of a code, however it is written: `S0309`, `s309`, `309`.
#[must_use]
pub fn find(code: &str) -> Option<Section> {
    let number = number(code)?;
    let is_it = |section: &Section| self::number(section.code) == Some(number);
    sections().into_iter().find(is_it)
}

fn number(code: &str) -> Option<u32> {
    let code = code.trim();
    code.strip_prefix(['S', 's']).unwrap_or(code).parse().ok()
}

/// Codes that are like one that does not exist: most like it first.
#[must_use]
pub fn near(code: &str) -> Vec<&'static str> {
    let code = code.trim().to_uppercase();
    let likeness = |known: &str| strsim::jaro_winkler(&code, known);
    let mut near: Vec<&str> = (sections().iter())
        .map(|section| section.code)
        .filter(|known| likeness(known) > LIKE)
        .collect();
    near.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)));
    near.truncate(MOST);
    near
}

/// A code that is less like a known one is not taken for it.
const LIKE: f64 = 0.85;

/// Codes that are suggested. More: nobody reads them. Fewer: the one that was meant may be missing.
const MOST: usize = 3;

/// All codes with their headings, by groups.
#[must_use]
pub fn list() -> String {
    let mut text = String::new();
    let mut group = "";
    for section in sections() {
        if section.group != group {
            let gap = if group.is_empty() { "" } else { "\n" };
            text += &format!("{gap}{}\n", section.group);
            group = section.group;
        }
        text += &format!("  {}  {}\n", section.code, section.title);
    }
    text + "\n`satin explain CODE` explains one.\n"
}

impl Section {
    /// The section as a terminal shows it: broken at words, links without their targets.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.code, self.title);
        let mut is_code = false;
        for line in self.body.lines() {
            if line.starts_with("```") {
                is_code = !is_code;
                continue;
            }
            let line = without_links(line);
            text += &match is_code {
                true => format!("    {line}\n"),
                false => wrapped(&line),
            };
        }
        text
    }
}

/// `[what](where)` becomes `what`.
fn without_links(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        let (kept, what) = before.rsplit_once('[').unwrap_or((before, ""));
        text.push_str(kept);
        text.push_str(what);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text + rest
}

/// Columns of the text: what every terminal has.
const COLUMNS: usize = 80;

fn wrapped(line: &str) -> String {
    let indent = if line.starts_with("* ") { "  " } else { "" };
    let mut text = String::new();
    let mut column = 0;
    for word in line.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            text.push('\n');
            text += indent;
            column = indent.len();
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += width;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use satin_runtime::codes;

    use super::*;

    #[test]
    fn each_code_has_a_section_and_each_section_a_code() {
        let codes: BTreeSet<&str> = codes::ALL.iter().map(|code| code.as_str()).collect();
        let sections = sections();
        let named: Vec<&str> = sections.iter().map(|section| section.code).collect();
        assert!(named.is_sorted(), "{named:?}");
        assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), codes);
        assert_eq!(named.len(), codes.len(), "a code has two sections");
        for section in sections {
            assert!(section.body.len() > 40, "{} says nothing", section.code);
        }
    }

    #[test]
    fn a_code_is_found_however_it_is_written() {
        let found = find("S0309").expect("there");
        assert_eq!(found.title, "this node cannot join the pool");
        assert_eq!(found.group, "Nodes and pools");
        for other in ["s309", " S0309 ", "309"] {
            assert_eq!(find(other), Some(found), "{other}");
        }
        assert_eq!(find("E0309"), None);
        assert_eq!(find("S0999"), None);
    }

    #[test]
    fn a_wrong_code_leads_to_those_that_are_like_it() {
        assert!(near("S0311x").contains(&"S0311"), "{:?}", near("S0311x"));
        assert!(near("O0101").contains(&"S0101"), "{:?}", near("O0101"));
        assert!(near("why").is_empty(), "{:?}", near("why"));
    }

    #[test]
    fn a_section_fits_a_terminal() {
        for section in sections() {
            let text = section.text();
            assert!(!text.contains("]("), "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest.is_some_and(|longest| longest <= COLUMNS), "{text}");
        }
        assert_eq!(without_links("see [a](b.md#c) and [d](e)."), "see a and d.");
        assert_eq!(wrapped("* a b"), "* a b\n");
    }
}
