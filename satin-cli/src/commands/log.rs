use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use anyhow::{Result, ensure};
use satin_runtime::{
    net::{NodeOutput, OutputNews, observer::SeenNode},
    observe::output::OutputLine,
};

use super::at::At;

/// Show what jobs and nodes of a running pool have printed, with the names of the nodes
#[derive(clap::Args)]
#[command(after_help = "\
Nodes keep their last lines (1 MiB each) if they were started with
SATIN_OUTPUT=kept or SATIN_OUTPUT=all; of others this command says that they do
not. Lines are in the order of the nodes' clocks. With --follow new lines and new
nodes are shown until Ctrl-C or the end of the pool.

Examples:
  satin log --join 192.0.2.7:7777 --credential pool.pem
  satin log --follow --join file:/shared/pool --credential pool.pem
  satin log --node delft-3 --join 192.0.2.7:7777 --credential pool.pem")]
pub struct Log {
    /// Go on with what is printed from now on
    #[arg(long, short)]
    follow: bool,
    /// Only of this node; may be given several times
    #[arg(long = "node", value_name = "NAME")]
    nodes: Vec<String>,
    #[command(flatten)]
    at: At,
}

impl Log {
    pub fn run(self) -> Result<ExitCode> {
        let observer = self.at.observer()?;
        let seen = observer.status()?.nodes;
        for name in &self.nodes {
            let is_there = seen.iter().any(|node| node.name == *name);
            // One that is followed may come.
            ensure!(
                is_there || self.follow,
                "no node is called `{name}`; `satin status` shows all nodes"
            );
        }
        let is_wanted = |node: &SeenNode| self.nodes.is_empty() || self.nodes.contains(&node.name);
        let mut printer = Printer::default();
        if self.follow {
            observer.follow_output(is_wanted, |news| printer.tell(&news))?;
        } else {
            let wanted: Vec<SeenNode> = seen.into_iter().filter(is_wanted).collect();
            for news in observer.output(&wanted) {
                printer.tell(&news);
            }
        }
        Ok(printer.code())
    }
}

/// Prints lines to stdout, and what is wrong to stderr.
#[derive(Default)]
struct Printer {
    lines: u64,
    /// Nodes whose lines are not to be had.
    silent: u64,
}

impl Printer {
    fn tell(&mut self, news: &OutputNews) {
        let name = &news.name;
        match &news.what {
            NodeOutput::Line(line) => {
                self.lines += 1;
                self.print(&news.prefix(), line);
            }
            NodeOutput::Dropped(count) => {
                eprintln!(
                    "{name}: {count} older lines are gone: a node keeps its last MiB; `satin log --follow` shows all from its start on"
                );
            }
            NodeOutput::NotKept => {
                self.silent += 1;
                eprintln!(
                    "{name} does not keep what it prints: start the nodes with SATIN_OUTPUT=kept in the environment, or with the flag \
                     `--output kept` of `satin node` and of programs; `SATIN_OUTPUT=kept satin run ..` does so for all nodes"
                );
            }
            NodeOutput::NoAnswer(why) => {
                self.silent += 1;
                eprintln!("{name} does not answer: {why}");
            }
        }
    }

    fn print(&self, prefix: &str, line: &OutputLine) {
        let mut stdout = io::stdout().lock();
        let text = match stdout.is_terminal() {
            true => for_terminal(&line.text).into_bytes(),
            false => without_colours(&line.text),
        };
        let whole = [prefix.as_bytes(), &text, b"\n"].concat();
        if stdout
            .write_all(&whole)
            .and_then(|()| stdout.flush())
            .is_err()
        {
            // Nobody reads any more, as with `satin log | head`.
            std::process::exit(0);
        }
    }

    /// A failure, if nothing was to be had.
    fn code(&self) -> ExitCode {
        match self.silent > 0 && self.lines == 0 {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        }
    }
}

/// The text without what would move the cursor or change more than colours: other people's jobs may print anything.
fn for_terminal(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut shown = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(character) = rest.chars().next() {
        let length = match colour(rest.as_bytes()) {
            Some(length) => {
                shown.push_str(&rest[..length]);
                length
            }
            None => {
                match character.is_control() && character != '\t' {
                    true => shown.extend(character.escape_default()),
                    false => shown.push(character),
                }
                character.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    shown
}

/// The bytes without the escape sequences for colours: files and other programs read them.
fn without_colours(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    let mut rest = line;
    while let [first, more @ ..] = rest {
        rest = match colour(rest) {
            Some(length) => &rest[length..],
            None => {
                plain.push(*first);
                more
            }
        };
    }
    plain
}

/// The length of the escape sequence for a colour that the text begins with, if it does.
fn colour(text: &[u8]) -> Option<usize> {
    let codes = text.strip_prefix(b"\x1b[")?;
    let is_code = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    let end = codes.iter().position(|byte| !is_code(byte))?;
    (codes[end] == b'm').then_some(b"\x1b[".len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_reach_a_terminal_and_other_control_characters_do_not() {
        let line = b"a\tb \x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;title\x07 \xff \xc3\xa9\r";
        assert_eq!(
            for_terminal(line),
            "a\tb \x1b[1;31mred\x1b[0m \\u{1b}[2J\\u{1b}]0;title\\u{7} \u{fffd} \u{e9}\\r"
        );
        assert_eq!(for_terminal(b"\x1b[31"), "\\u{1b}[31");
    }

    #[test]
    fn no_colours_reach_a_pipe_and_everything_else_does() {
        let line = b"a \x1b[1;31mred\x1b[0m \x1b[2J \xff\x1b[31";
        assert_eq!(without_colours(line), b"a red \x1b[2J \xff\x1b[31");
    }
}
