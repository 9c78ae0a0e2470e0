//! Standard output and standard error of this process, by way of pipes.
//!
//! The thread `satin-output` waits for bytes, puts them into the ring, and writes them where they would have gone. A terminal that is stopped
//! stops those who print, as ever, and nobody else: the ring is not locked while something is written.

use std::{
    fs::File,
    io::{self, IsTerminal, Read, Write},
    os::fd::OwnedFd,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::Builder,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, ioctl_fionbio, ioctl_fionread},
    pipe::pipe,
    stdio::{dup2_stderr, dup2_stdout, stderr, stdout},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    OutputLine, OutputPage, OutputStream,
    ring::{LineSplitter, Ring},
};
use crate::observe::{events::unix_ms, lines::beside_bar, log};

/// Bytes that are taken from a pipe at once.
const PIECE: usize = 64 << 10;

/// Rounds in which the pipes are emptied at the end. Too small: the end of much output is lost. Too large: a child process that prints without
/// end keeps this one.
const LAST_ROUNDS: usize = 64;

/// Between two looks whether the pipes are empty. Too short: looking keeps the thread from reading. Too long: answers are late.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// An answer waits for so long for what was just printed. Too short: a busy machine's last lines are missing. Too long: a node whose terminal
/// is stopped answers late.
const MOMENT: Duration = Duration::from_millis(500);

/// Descriptors below that number are the standard ones.
const FIRST_FREE: i32 = 3;

static CAPTURE: OnceLock<Capture> = OnceLock::new();

struct Capture {
    /// Where the streams went before.
    stdout: File,
    stderr: File,
    state: Mutex<State>,
    /// Held by the one who writes what has been taken from the pipes, so that it stays in order.
    writing: Mutex<()>,
    /// The number of the next line.
    next: watch::Sender<u64>,
    is_finished: AtomicBool,
}

struct State {
    out: Channel,
    err: Channel,
    /// Lines of the log, which do not come through a pipe.
    log: LineSplitter,
    ring: Ring,
}

struct Channel {
    pipe: File,
    stream: OutputStream,
    lines: LineSplitter,
}

impl Channel {
    fn new(pipe: OwnedFd, stream: OutputStream) -> Channel {
        Channel {
            pipe: pipe.into(),
            stream,
            lines: LineSplitter::default(),
        }
    }

    /// Takes what is in the pipe, unless that is too much at once.
    fn pull(&mut self, ring: &mut Ring) -> Vec<u8> {
        let mut piece = [0; 4096];
        let mut taken = Vec::new();
        while taken.len() < PIECE {
            // An error is an empty pipe.
            let Ok(length @ 1..) = self.pipe.read(&mut piece) else {
                break;
            };
            let (piece, stream) = (&piece[..length], self.stream);
            self.lines.push(piece, |text| ring.push(line(stream, text)));
            taken.extend_from_slice(piece);
        }
        taken
    }

    fn is_empty(&self) -> bool {
        ioctl_fionread(&self.pipe).is_ok_and(|bytes| bytes == 0)
    }
}

fn line(stream: OutputStream, text: Vec<u8>) -> OutputLine {
    OutputLine {
        at_ms: unix_ms(),
        stream,
        text,
    }
}

impl Capture {
    /// Puts pipes in the place of the streams.
    fn begin() -> io::Result<Capture> {
        let keep = |fd: rustix::fd::BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, FIRST_FREE);
        let (before_out, before_err) = (keep(stdout())?, keep(stderr())?);
        let (from_out, to_out) = new_pipe()?;
        let (from_err, to_err) = new_pipe()?;
        dup2_stdout(&to_out)?;
        if let Err(error) = dup2_stderr(&to_err) {
            dup2_stdout(&before_out)?;
            return Err(error.into());
        }
        Ok(Capture {
            stdout: before_out.into(),
            stderr: before_err.into(),
            state: Mutex::new(State {
                out: Channel::new(from_out, OutputStream::Stdout),
                err: Channel::new(from_err, OutputStream::Stderr),
                log: LineSplitter::default(),
                ring: Ring::default(),
            }),
            writing: Mutex::new(()),
            next: watch::Sender::new(0),
            is_finished: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was printed, and writes it. The number of bytes that were taken.
    fn copy(&self) -> usize {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let State { out, err, ring, .. } = &mut *state;
        let (out, err) = (out.pull(ring), err.pull(ring));
        self.tell(ring);
        drop(state);
        if out.is_empty() && err.is_empty() {
            return 0;
        }
        beside_bar(|| {
            // Errors: the reader is gone, and nobody is left to be told.
            let _ = (&self.stdout).write_all(&out);
            let _ = (&self.stderr).write_all(&err);
        });
        out.len() + err.len()
    }

    /// Is all that has been printed in the ring?
    fn is_settled(&self) -> bool {
        let state = self.state();
        state.out.is_empty() && state.err.is_empty()
    }

    /// Lets those know who wait for lines.
    fn tell(&self, ring: &Ring) {
        let next = ring.next();
        self.next
            .send_if_modified(|told| std::mem::replace(told, next) != next);
    }

    /// The work of the thread: until the other ends are closed, as the process exits or has closed its streams.
    fn serve(&self, mut pipes: Vec<OwnedFd>) {
        while !pipes.is_empty() {
            let mut open: Vec<PollFd<'_>> = (pipes.iter())
                .map(|pipe| PollFd::new(pipe, PollFlags::IN))
                .collect();
            match poll(&mut open, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let is_over = |pipe: &PollFd<'_>| {
                let seen = pipe.revents();
                !seen.is_empty() && !seen.contains(PollFlags::IN)
            };
            let over: Vec<bool> = open.iter().map(is_over).collect();
            let mut over = over.into_iter();
            pipes.retain(|_| !over.next().unwrap_or(false));
            self.copy();
        }
    }

    fn finish(&self) {
        if self.is_finished.swap(true, Ordering::SeqCst) {
            return;
        }
        let _ = dup2_stdout(&self.stdout);
        let _ = dup2_stderr(&self.stderr);
        for _ in 0..LAST_ROUNDS {
            if self.copy() == 0 {
                break;
            }
        }
        self.copy();
    }
}

/// A pipe that child processes do not inherit, and whose reader does not wait.
fn new_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (from, to) = pipe()?;
    for end in [&from, &to] {
        fcntl_setfd(end, FdFlags::CLOEXEC)?;
    }
    ioctl_fionbio(&from, true)?;
    Ok((from, to))
}

/// Begins to keep what this process prints; again, nothing happens.
///
/// # Errors
/// The system does not give what is needed. Nothing has changed.
pub(crate) fn start() -> io::Result<()> {
    if CAPTURE.get().is_some() {
        return Ok(());
    }
    let capture = Capture::begin()?;
    let pipes: Result<Vec<OwnedFd>, Errno> = {
        let state = capture.state();
        let pipes = [&state.out, &state.err].map(|channel| &channel.pipe);
        let twice = pipes.map(|pipe| fcntl_dupfd_cloexec(pipe, FIRST_FREE));
        twice.into_iter().collect()
    };
    let pipes = pipes.inspect_err(|_| capture.finish())?;
    let capture = CAPTURE.get_or_init(|| capture);
    let thread = Builder::new().name("satin-output".into());
    let started = log::spawn(thread, move || capture.serve(pipes));
    started.map(drop).inspect_err(|_| capture.finish())
}

/// Writes what is still in the pipes, and lets the streams be as they were. To be called when the process exits.
pub(crate) fn finish() {
    if let Some(capture) = CAPTURE.get() {
        capture.finish();
    }
}

/// The lines from that number on.
pub(crate) fn page(since: u64) -> OutputPage {
    match CAPTURE.get() {
        Some(capture) => capture.state().ring.page(since),
        None => OutputPage::default(),
    }
}

/// Waits until there are lines from that number on, but not for longer than `most`.
pub(crate) async fn more_than(since: u64, most: Duration) {
    if let Some(capture) = CAPTURE.get() {
        let mut next = capture.next.subscribe();
        let _ = timeout(most, next.wait_for(|next| *next > since)).await;
    }
}

/// Waits until all that has been printed is in the ring, or for a moment: a terminal that is stopped is not waited for.
pub(crate) async fn settled() {
    let Some(capture) = CAPTURE.get() else { return };
    let settled = async {
        while !capture.is_settled() {
            sleep(LOOK_AGAIN).await;
        }
    };
    let _ = timeout(MOMENT, settled).await;
}

/// Is standard error a terminal, as the process was started?
pub(crate) fn is_terminal() -> bool {
    match CAPTURE.get() {
        Some(capture) => capture.stderr.is_terminal(),
        None => io::stderr().is_terminal(),
    }
}

/// The terminal behind standard error, if that is a pipe of ours now.
pub(crate) fn terminal() -> Option<console::Term> {
    let capture = CAPTURE.get()?;
    let twice = (capture.stderr.try_clone(), capture.stderr.try_clone());
    match twice {
        (Ok(read), Ok(write)) => Some(console::Term::read_write_pair(read, write)),
        _ => None,
    }
}

/// Writes a part of the log to where standard error goes. It is kept as what the process prints is, but takes no way through the pipe: a bar
/// that is on the screen would be drawn before it comes.
pub(crate) fn write_log(bytes: &[u8]) -> io::Result<usize> {
    let Some(capture) = CAPTURE.get() else {
        return io::stderr().write(bytes);
    };
    let written = (&capture.stderr).write(bytes)?;
    let mut state = capture.state();
    let State { log, ring, .. } = &mut *state;
    log.push(&bytes[..written], |text| {
        ring.push(line(OutputStream::Stderr, text));
    });
    capture.tell(&state.ring);
    Ok(written)
}

/// Writes what another node has printed to where standard error goes.
pub(crate) fn show(bytes: &[u8]) -> io::Result<()> {
    beside_bar(|| match CAPTURE.get() {
        Some(capture) => (&capture.stderr).write_all(bytes),
        None => io::stderr().write_all(bytes),
    })
}
