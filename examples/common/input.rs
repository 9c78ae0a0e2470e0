//! Input files made of words: every error says in which line, what was expected and what was there instead. And sizes that have to fit.

use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};

/// Reads the file and hands its text to `parse`; an error of either names the file.
pub fn parse_file<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("cannot use {}", path.display()))
}

/// The words of a text, each with the number of its line.
pub struct Words<'a> {
    words: Box<dyn Iterator<Item = (usize, &'a str)> + 'a>,
}

impl<'a> Words<'a> {
    pub fn new(text: &'a str) -> Self {
        Self::numbered(text.lines().zip(1..).map(|(line, number)| (number, line)))
    }

    /// From lines that know their numbers.
    pub fn numbered(lines: impl Iterator<Item = (usize, &'a str)> + 'a) -> Self {
        Self {
            words: Box::new(lines.flat_map(|(number, line)| {
                line.split_ascii_whitespace().map(move |w| (number, w))
            })),
        }
    }

    /// The next word as a `T`, described by `what` ("a distance") should it be something else.
    pub fn expect<T: FromStr>(&mut self, what: &str) -> anyhow::Result<T> {
        self.expect_valid(what, |_| true)
    }

    /// The next word as a `T` that is `valid`.
    pub fn expect_valid<T: FromStr>(
        &mut self,
        what: &str,
        valid: impl FnOnce(&T) -> bool,
    ) -> anyhow::Result<T> {
        let (line, word) = self
            .words
            .next()
            .with_context(|| format!("the file ends where {what} was expected"))?;
        word.parse()
            .ok()
            .filter(valid)
            .with_context(|| format!("line {line}: expected {what}, found `{word}`"))
    }

    /// Nothing but white space may be left.
    pub fn expect_end(&mut self) -> anyhow::Result<()> {
        match self.words.next() {
            Some((line, word)) => {
                bail!("line {line}: expected the end of the file, found `{word}`")
            }
            None => Ok(()),
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.words.next()
    }
}

/// The number of parts of length `--tile` in what has the length `--size`.
///
/// # Errors
/// If something is left.
pub fn parts(size: usize, tile: usize) -> anyhow::Result<usize> {
    let divides = |tile: &usize| size.is_multiple_of(*tile);
    if divides(&tile) {
        return Ok(size / tile);
    }
    let below = (1..=tile.min(size)).rev().find(divides).unwrap_or(1);
    match (tile..=size).find(divides) {
        Some(above) => bail!("--tile {tile} does not divide --size {size}: {below} and {above} do"),
        None => bail!("--tile {tile} is more than --size {size}"),
    }
}
