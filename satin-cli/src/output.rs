//! What nodes print.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

/// What was printed so far.
pub type Text = Arc<Mutex<Vec<u8>>>;

/// Reads what nodes print, in threads, until they close their ends.
pub struct Readers {
    sender: Sender<()>,
    ends: Receiver<()>,
    running: u32,
}

/// A longer line is cut in pieces: nothing may fill our memory.
const LINE_MAX: u64 = 64 << 10;

impl Readers {
    pub fn new() -> Readers {
        let (sender, ends) = channel();
        Readers {
            sender,
            ends,
            running: 0,
        }
    }

    /// Puts each line after `prefix` and writes it to `to`, or to stderr.
    pub fn lines(&mut self, from: impl Read + Send + 'static, prefix: String, to: Option<Text>) {
        self.thread(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            loop {
                line.clear();
                line.extend_from_slice(prefix.as_bytes());
                match from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                if line.last() != Some(&b'\n') {
                    line.push(b'\n');
                }
                put(&line, to.as_ref());
            }
        });
    }

    /// Copies everything to `to`.
    pub fn copy(&mut self, mut from: impl Read + Send + 'static, to: Text) {
        self.thread(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut piece) {
                put(&piece[..length], Some(&to));
            }
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

    /// Waits until everything has been read. The nodes have ended; what they left behind and still holds its end of the
    /// pipe is not waited for.
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

/// Writes to `to`, or else to stderr, in one piece.
pub fn put(bytes: &[u8], to: Option<&Text>) {
    match to {
        Some(text) => text
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes),
        None => {
            let _ = io::stderr().lock().write_all(bytes);
        }
    }
}

/// What is in there, as text.
pub fn text(of: &Text) -> String {
    let bytes = of.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&bytes).into_owned()
}
