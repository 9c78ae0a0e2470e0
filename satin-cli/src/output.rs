//! The output of nodes.

use std::{
    io::{self, Read, Write},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use satin_runtime::observe::lines;

/// The output so far.
pub type Text = Arc<Mutex<Vec<u8>>>;

/// Reads what nodes print, in threads, until they close their ends.
pub struct Readers {
    sender: Sender<()>,
    ends: Receiver<()>,
    running: u32,
}

/// Bytes of the longest line; a longer line is cut in pieces, so that it cannot fill our memory.
const LINE_MAX: usize = 64 << 10;

impl Readers {
    pub fn new() -> Readers {
        let (sender, ends) = channel();
        Readers {
            sender,
            ends,
            running: 0,
        }
    }

    /// Puts each line after `prefix` and writes it to `to`.
    pub fn lines(&mut self, from: impl Read + Send + 'static, prefix: String, to: Sink) {
        let never = || false;
        self.lines_until(from, prefix, to.clone(), never, to);
    }

    /// As [`lines`](Readers::lines); but whenever `promoted` says so, what comes goes to `then` as it is, at once.
    pub fn lines_until(
        &mut self,
        mut from: impl Read + Send + 'static,
        prefix: String,
        to: Sink,
        mut promoted: impl FnMut() -> bool + Send + 'static,
        then: Sink,
    ) {
        self.thread(move || {
            let mut piece = [0; 4096];
            // The beginning of a line.
            let mut line = Vec::new();
            while let Ok(length @ 1..) = from.read(&mut piece) {
                line.extend_from_slice(&piece[..length]);
                if promoted() {
                    then.put_what_can_be(&mut line);
                    continue;
                }
                let mut written = 0;
                while let Some(end) = next_line(&line[written..]) {
                    to.put_line(&prefix, &line[written..written + end]);
                    written += end;
                }
                line.drain(..written);
            }
            if !line.is_empty() {
                to.put_line(&prefix, &line);
            }
        });
    }

    /// Copies all bytes to `to`.
    pub fn copy(&mut self, mut from: impl Read + Send + 'static, to: Sink) {
        self.thread(move || {
            let mut piece = [0; 4096];
            let mut waits = Vec::new();
            while let Ok(length @ 1..) = from.read(&mut piece) {
                waits.extend_from_slice(&piece[..length]);
                to.put_what_can_be(&mut waits);
            }
            to.put(&waits);
        });
    }

    fn thread(&mut self, read: impl FnOnce() + Send + 'static) {
        let sender = self.sender.clone();
        self.running += 1;
        std::thread::spawn(move || {
            read();
            let _ = sender.send(());
        });
    }

    /// Waits until all output has been read. The nodes have ended; processes that they left behind and that still
    /// hold their end of the pipe are not waited for.
    pub fn finish(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.running > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if self.ends.recv_timeout(left).is_err() {
                return;
            }
            self.running -= 1;
        }
    }
}

/// The end of the first line, if that is there in full, or too long.
fn next_line(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.map(|end| end + 1)
        .or_else(|| (bytes.len() >= LINE_MAX).then_some(LINE_MAX))
}

/// A destination of output.
#[derive(Clone)]
pub enum Sink {
    /// Memory: the output is kept.
    Kept(Text),
    /// The standard output of this process.
    Stdout,
    /// The standard error of this process.
    Stderr,
}

impl Sink {
    /// Writes the bytes in one piece.
    pub fn put(&self, bytes: &[u8]) {
        // If the reader of our output is gone, the rest is lost.
        let _ = match self {
            Sink::Kept(text) => {
                let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
                text.extend_from_slice(bytes);
                Ok(())
            }
            Sink::Stdout => lines::beside_bar(|| {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }),
            Sink::Stderr => lines::beside_bar(|| io::stderr().lock().write_all(bytes)),
        };
    }

    /// Writes the bytes, and takes them; the beginning of a line waits while there is a bar, which would be drawn behind it.
    fn put_what_can_be(&self, bytes: &mut Vec<u8>) {
        let is_shown = !matches!(self, Sink::Kept(_));
        let length = match is_shown && lines::has_bar() && bytes.len() < LINE_MAX {
            true => memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1),
            false => bytes.len(),
        };
        if length > 0 {
            self.put(&bytes[..length]);
            bytes.drain(..length);
        }
    }

    fn put_line(&self, prefix: &str, line: &[u8]) {
        let mut whole = [prefix.as_bytes(), line].concat();
        if whole.last() != Some(&b'\n') {
            whole.push(b'\n');
        }
        self.put(&whole);
    }
}

/// The contents, as text.
pub fn text(of: &Text) -> String {
    let bytes = of.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&bytes).into_owned()
}
