//! The last lines that were printed, numbered.

use std::collections::VecDeque;

use super::page::{OutputLine, OutputPage};

/// Bytes of all lines that are kept, their overhead included. Too small: what was printed while nobody asked is lost soon. Too large: memory of
/// each node, for text that nobody may want.
const KEPT: usize = 1 << 20;

/// Bytes of the longest line; a longer one is kept as several. Too small: lines are torn. Too large: one line pushes out all others.
const LONGEST: usize = 16 << 10;

/// Bytes of an answer. Too small: many round trips. Too large: more than an observer takes (`limits::GREETING`).
const PAGE: usize = 64 << 10;

/// Bytes that a line costs beside its text, about.
const OVERHEAD: usize = 64;

/// The last lines.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    lines: VecDeque<OutputLine>,
    /// The number of the first line that is still there.
    first: u64,
    bytes: usize,
}

impl Ring {
    pub(crate) fn push(&mut self, mut line: OutputLine) {
        // The order of a node's lines is that of their times too, whatever its clock does.
        if let Some(last) = self.lines.back() {
            line.at_ms = line.at_ms.max(last.at_ms);
        }
        self.bytes += line.text.len() + OVERHEAD;
        self.lines.push_back(line);
        while self.bytes > KEPT
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.text.len() + OVERHEAD;
            self.first += 1;
        }
    }

    /// The number that the next line will have.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// The lines from that number on, or those of them that are left; as many as fit. A number that has not come yet is one of a process that
    /// was here before: it means the first.
    pub(crate) fn page(&self, since: u64) -> OutputPage {
        let begin = match since {
            since if since > self.next() => self.first,
            since => since.max(self.first),
        };
        let (mut lines, mut bytes) = (Vec::new(), 0);
        for line in self.lines.iter().skip((begin - self.first) as usize) {
            bytes += line.text.len() + OVERHEAD;
            if bytes > PAGE && !lines.is_empty() {
                break;
            }
            lines.push(line.clone());
        }
        let mut page = OutputPage {
            is_kept: true,
            first: begin,
            lines,
            has_more: false,
        };
        page.has_more = page.next() < self.next();
        page
    }
}

/// Makes lines of what comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct LineSplitter(Vec<u8>);

impl LineSplitter {
    /// Adds the piece, and gives each line that is complete, or too long, to `line`.
    pub(crate) fn push(&mut self, piece: &[u8], mut line: impl FnMut(Vec<u8>)) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_complete) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let mut rest = text;
            while self.0.len() + rest.len() > LONGEST {
                let (now, later) = rest.split_at(LONGEST - self.0.len());
                self.0.extend_from_slice(now);
                line(std::mem::take(&mut self.0));
                rest = later;
            }
            self.0.extend_from_slice(rest);
            if is_complete {
                line(std::mem::take(&mut self.0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::page::OutputStream, *};

    fn line(text: &str) -> OutputLine {
        OutputLine {
            at_ms: 5,
            stream: OutputStream::Stdout,
            text: text.into(),
        }
    }

    fn texts(page: &OutputPage) -> Vec<&str> {
        let text = |line| str::from_utf8(line).expect("text");
        page.lines.iter().map(|line| text(&line.text)).collect()
    }

    #[test]
    fn lines_are_numbered_and_the_oldest_go_first() {
        let mut ring = Ring::default();
        assert_eq!(ring.page(0).next(), 0);
        ring.push(line("a"));
        ring.push(line("b"));
        assert_eq!(texts(&ring.page(0)), ["a", "b"]);
        assert_eq!(texts(&ring.page(1)), ["b"]);
        assert_eq!((ring.page(2).first, ring.page(2).lines.len()), (2, 0));
        // Another process was here before.
        assert_eq!(texts(&ring.page(77)), ["a", "b"]);
        let long = "x".repeat(LONGEST);
        for _ in 0..2 * KEPT / LONGEST {
            ring.push(line(&long));
        }
        assert!(ring.bytes <= KEPT && ring.bytes > KEPT / 2);
        let page = ring.page(1);
        assert_eq!(page.first, ring.first);
        assert!(page.first > 1 && page.has_more);
        let bytes: usize = page.lines.iter().map(|line| line.text.len()).sum();
        assert!(bytes <= PAGE, "{bytes}");
        // All that is there comes, page by page.
        let (mut next, mut count) = (page.next(), page.lines.len());
        while ring.page(next).has_more || next < ring.next() {
            let page = ring.page(next);
            assert_eq!(page.first, next);
            count += page.lines.len();
            next = page.next();
        }
        assert_eq!(count, ring.lines.len());
    }

    #[test]
    fn times_do_not_go_back() {
        let mut ring = Ring::default();
        for at_ms in [3, 9, 4] {
            ring.push(OutputLine { at_ms, ..line("") });
        }
        let page = ring.page(0);
        let times: Vec<u64> = page.lines.iter().map(|line| line.at_ms).collect();
        assert_eq!(times, [3, 9, 9]);
    }

    #[test]
    fn pieces_become_lines_and_too_long_ones_several() {
        let mut splitter = LineSplitter::default();
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for piece in [&b"on"[..], b"e\ntwo\n\nthr", b"ee", b"\xff\0\nrest"] {
            splitter.push(piece, |line| lines.push(line));
        }
        assert_eq!(lines, [&b"one"[..], b"two", b"", b"three\xff\0"]);
        splitter.push(b"\n", |line| lines.push(line));
        assert_eq!(lines.pop(), Some(b"rest".to_vec()));
        lines.clear();
        splitter.push(b"ab", |line| lines.push(line));
        splitter.push(&[b'x'; 2 * LONGEST], |line| lines.push(line));
        splitter.push(b"\n", |line| lines.push(line));
        let lengths: Vec<usize> = lines.iter().map(Vec::len).collect();
        assert_eq!(lengths, [LONGEST, LONGEST, 2]);
    }
}
