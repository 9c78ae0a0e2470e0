//! Exits of the process, however they come about: `main` returns, code calls `std::process::exit`, or a signal asks
//! for it.
//!
//! A crash (a signal that kills, an abort) is no exit: there is no goodbye then, and the other nodes find out.

use std::{
    io::{self, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering},
        mpsc,
    },
    time::Duration,
};

pub(crate) use crate::codes::explained;
use crate::observe::{lines, log};
#[cfg(unix)]
use crate::observe::{log::PanicGuard, output};

/// Called once, with the exit code if the system tells it.
type Hook = Box<dyn FnOnce(Option<i32>) + Send>;

static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

fn take() -> Option<Hook> {
    HOOK.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Sets the hook that is called when the process exits; it replaces the hook before, if there was any.
pub(crate) fn at_exit(hook: impl FnOnce(Option<i32>) + Send + 'static) {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    *HOOK.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        register();
    }
}

/// Removes the hook: nothing is called when the process exits.
pub(crate) fn forget() {
    drop(take());
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn register() {
    use std::ffi::{c_int, c_void};

    // SAFETY: that is how glibc declares it (on_exit(3)); it keeps the function, which lives for ever.
    unsafe extern "C" {
        safe fn on_exit(hook: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    extern "C" fn hook(code: c_int, _: *mut c_void) {
        run(Some(code));
    }
    on_exit(hook, std::ptr::null_mut());
}

#[cfg(all(unix, not(all(target_os = "linux", target_env = "gnu"))))]
fn register() {
    use std::ffi::c_int;

    // SAFETY: that is how the C standard declares it; it keeps the function, which lives for ever.
    unsafe extern "C" {
        safe fn atexit(hook: extern "C" fn()) -> c_int;
    }
    extern "C" fn hook() {
        run(None);
    }
    atexit(hook);
}

#[cfg(not(unix))]
fn register() {}

#[cfg(unix)]
fn run(code: Option<i32>) {
    if let Some(hook) = take() {
        // The thread that exits has lost its variables by now, without which the log panics. And a panic must not unwind into the C library.
        let thread = std::thread::Builder::new().name("satin-goodbye".into());
        let goodbye = thread.spawn(move || {
            let _seen = PanicGuard;
            hook(code);
        });
        // Without a thread the hook has been dropped, and other nodes find out that this one is gone.
        let _ = goodbye.map(std::thread::JoinHandle::join);
        output::finish();
    }
}

/// True once a signal has asked the process to end: another thread will do so.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The code for the first request to end, once there was one. The process may be handing over what it does since then.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// Exits with this code; but if the process is asked to end already, with the code for that.
pub(crate) fn with(code: i32) -> ! {
    unless_requested();
    lines::clear_bar();
    std::process::exit(code);
}

/// Prints the error, and exits with this code; but if the process is asked to end already, with the code for that.
pub(crate) fn with_error(code: i32, error: &(dyn std::error::Error + 'static)) -> ! {
    unless_requested();
    lines::clear_bar();
    // The text may reach no reader: the terminal may be gone.
    let _ = writeln!(io::stderr(), "error: {}", explained(error));
    std::process::exit(code);
}

/// Prints the error, and exits with code 1; but if the process was asked to end and could not hand over what it did, with
/// the code for the request: a batch system that asks all nodes at once sees by it that the run did not come to its end.
pub(crate) fn with_failure(error: &(dyn std::error::Error + 'static)) -> ! {
    let code = match ASKED.load(Ordering::SeqCst) {
        0 => 1,
        asked => asked,
    };
    with_error(code, error)
}

/// The exit code of a process whose time is over, as that of timeout(1).
pub(crate) const TIME_IS_OVER: i32 = 124;

/// The exit code of a process that was interrupted, by Ctrl-C: that of SIGINT in a shell.
pub(crate) const INTERRUPTED: i32 = 130;

/// What a process says whose time is over.
#[derive(Debug)]
pub(crate) struct TimeIsOver {
    pub(crate) limit: Duration,
    /// Is what was finished in a store?
    pub(crate) has_store: bool,
}

impl std::fmt::Display for TimeIsOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = humantime::format_duration(self.limit);
        let then = match self.has_store {
            true => "the same command goes on with the run, which is in the store",
            false => {
                "what was computed is lost; allow more time, or keep what is finished in a store (SATIN_STORE)"
            }
        };
        write!(
            f,
            "the time limit of {limit} (SATIN_TIME_LIMIT) is over, so the run ends here: {then}"
        )
    }
}

/// The clock of a time limit; dropping it stops the clock.
pub(crate) struct TimeLimit(#[expect(dead_code, reason = "its end is the sign")] mpsc::Sender<()>);

/// Ends this process, which is no node of a pool, when so much time is over.
#[must_use]
pub(crate) fn after(limit: Duration) -> TimeLimit {
    let (on, off) = mpsc::channel::<()>();
    let wait = move || {
        if off.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout) {
            return; // `main` is over
        }
        let has_store = false; // only pools have one
        let why = TimeIsOver { limit, has_store };
        lines::clear_bar();
        let _ = writeln!(io::stderr(), "error: {why}");
        with(TIME_IS_OVER);
    };
    let thread = std::thread::Builder::new().name("satin-time-limit".into());
    if let Err(error) = log::spawn(thread, wait) {
        tracing::warn!("cannot start a thread ({error}): SATIN_TIME_LIMIT has no effect");
    }
    TimeLimit(on)
}

/// The exit code for the request to end, which may have come from elsewhere: then that of SIGTERM.
pub(crate) fn asked_code() -> i32 {
    match ASKED.load(Ordering::SeqCst) {
        0 => 143,
        asked => asked,
    }
}

fn unless_requested() {
    while REQUESTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// What has happened to a process that ends with that code.
fn word_for(code: i32) -> &'static str {
    match code {
        INTERRUPTED => "interrupted",
        143 => "asked to end",
        _ => "the terminal is gone",
    }
}

/// When a person or a system asks the process to end (Ctrl-C, SIGTERM, a terminal that is closed), `hand_over` is called:
/// true if the process will exit by itself once it has handed over what it does. If not, and at the second request, `stop`
/// is called with 130, 143 or 129, and then the process exits with that code. One more request exits at once.
pub(crate) fn on_request(
    hand_over: impl Fn() -> bool + Send + 'static,
    stop: impl Fn(i32) + Send + Sync + 'static,
) {
    let (listens, is_listening) = mpsc::channel();
    let wait = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let Ok(runtime) = runtime else { return };
        let Ok(mut requests) = runtime.block_on(async { Requests::new() }) else {
            return;
        };
        let _ = listens.send(());
        let mut code = runtime.block_on(requests.next());
        ASKED.store(code, Ordering::SeqCst);
        if hand_over() {
            code = runtime.block_on(requests.next());
        }
        REQUESTED.store(true, Ordering::SeqCst);
        lines::clear_bar();
        lines::say(format_args!("{}", word_for(code)));
        std::thread::scope(|scope| {
            let stopping = std::thread::Builder::new().spawn_scoped(scope, || {
                stop(code);
                std::process::exit(code);
            });
            if stopping.is_ok() {
                runtime.block_on(requests.next());
            }
            forget();
            std::process::exit(code);
        });
    };
    let thread = std::thread::Builder::new().name("satin-signals".into());
    let started = log::spawn(thread, wait);
    if started.is_err() || is_listening.recv().is_err() {
        tracing::warn!(
            "cannot wait for signals: Ctrl-C ends this node at once, and its jobs are not handed over"
        );
    }
}

#[cfg(unix)]
struct Requests {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// The terminal is gone. Not looked for where the process was started to ignore that, as `nohup` does.
    hangup: Option<tokio::signal::unix::Signal>,
}

/// Whether this process ignores SIGHUP, as one that was started by `nohup` does. Ask before anything waits for that signal.
#[must_use]
pub fn ignores_hangup() -> bool {
    const SIGHUP_BIT: u64 = 1;
    let mask = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    // If the mask cannot be read, the signal keeps its meaning: it ends the process.
    mask().is_none_or(|mask| mask & SIGHUP_BIT != 0)
}

#[cfg(unix)]
impl Requests {
    fn new() -> std::io::Result<Requests> {
        use tokio::signal::unix::{SignalKind, signal};
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
        Ok(Requests {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangup.transpose()?,
        })
    }

    async fn next(&mut self) -> i32 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => 143,
            _ = hangup => 129,
        }
    }
}

#[cfg(not(unix))]
struct Requests;

#[cfg(not(unix))]
impl Requests {
    fn new() -> std::io::Result<Requests> {
        Ok(Requests)
    }

    async fn next(&mut self) -> i32 {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        INTERRUPTED
    }
}
