//! The README and the pages of the book, as the tests look at them. Not all use all of it.
#![allow(dead_code)]

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page, and what stands in it.
#[derive(Default)]
pub struct Page {
    /// The path from the top of the repository.
    pub path: PathBuf,
    pub text: String,
    pub blocks: Vec<CodeBlock>,
    /// The targets of links and pictures, as they are written.
    pub links: Vec<String>,
    /// The names by which links reach the headings.
    pub anchors: Vec<String>,
}

/// A block of code.
#[derive(Default)]
pub struct CodeBlock {
    /// What follows the fence: `sh`, `rust,no_run`.
    pub language: String,
    pub text: String,
    /// The line of its fence, for messages.
    pub line: usize,
    /// The reason of the comment `<!-- not run: REASON -->` in the line before, which readers do not see.
    pub not_run: Option<String>,
}

/// The top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The README, and all pages of the book.
pub fn all() -> Vec<Page> {
    let mut paths = vec![PathBuf::from("README.md")];
    for entry in fs::read_dir(root().join("docs/src")).expect("the book") {
        let name = entry.expect("an entry").file_name();
        if Path::new(&name).extension().is_some_and(|is| is == "md") {
            paths.push(Path::new("docs/src").join(name));
        }
    }
    paths.sort();
    paths.iter().map(|path| Page::read(path)).collect()
}

impl Page {
    /// Reads a page, by its path from the top of the repository.
    pub fn read(path: &Path) -> Page {
        let text = fs::read_to_string(root().join(path)).expect("a page");
        let mut page = Page {
            path: path.into(),
            ..Page::default()
        };
        let mut heading = None;
        let mut comment = None;
        for (event, range) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let words = heading.take().expect("it has begun");
                    page.anchors.push(anchor(&words));
                }
                Event::Text(words) | Event::Code(words) if heading.is_some() => {
                    heading.as_mut().expect("just seen").push_str(&words);
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Html(html) => comment = reason(&html),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    let block = block(&text, range, language.into_string());
                    page.blocks.push(CodeBlock {
                        not_run: comment.take(),
                        ..block
                    });
                }
                Event::Start(Tag::HtmlBlock) | Event::End(TagEnd::HtmlBlock) => {}
                _ => comment = None,
            }
        }
        page.text = text;
        page
    }

    /// For messages: the place of a block.
    pub fn place(&self, block: &CodeBlock) -> String {
        format!("{}, line {}", self.path.display(), block.line)
    }
}

fn block(text: &str, range: Range<usize>, language: String) -> CodeBlock {
    let inside = text[range.clone()].lines().skip(1);
    let lines: Vec<&str> = inside.take_while(|line| line.trim() != "```").collect();
    CodeBlock {
        language,
        text: lines.join("\n"),
        line: text[..range.start].lines().count() + 1,
        not_run: None,
    }
}

fn reason(html: &str) -> Option<String> {
    let comment = html.trim().strip_prefix("<!-- not run: ")?;
    Some(comment.strip_suffix("-->")?.trim().to_owned())
}

/// The name of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
