//! The thread pools of every library under test, made alike and made once.
//!
//! Each library is configured and entered here, and nowhere else.

use std::num::NonZeroUsize;

use anyhow::Context as _;

/// Stack of every thread that runs a measured program, in bytes. Reserved, not committed, so it costs nothing
/// where it is not needed; chili has no way to set that of its workers.
pub const STACK_BYTES: usize = 256 << 20;

/// A pool per library, all with the same number of threads.
pub struct Pools {
    threads: NonZeroUsize,
    satin: satin::Satin,
    rayon: rayon::ThreadPool,
    chili: chili::ThreadPool,
}

impl Pools {
    /// Starts all pools with `threads` threads each. Idle, they use no processor.
    pub fn new(threads: NonZeroUsize) -> anyhow::Result<Self> {
        let rayon = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.get())
            .stack_size(STACK_BYTES)
            .build()
            .with_context(|| format!("cannot start a rayon pool of {threads} threads"))?;
        let chili = chili::ThreadPool::with_config(chili::Config {
            thread_count: Some(threads),
            ..chili::Config::default()
        });
        let satin = satin::builder()
            .threads(threads.get())
            .build()
            .with_context(|| format!("cannot start a satin pool of {threads} threads"))?;
        Ok(Self {
            threads,
            satin,
            rayon,
            chili,
        })
    }

    /// The number of threads that compute in each of the pools.
    pub fn threads(&self) -> usize {
        self.threads.get()
    }

    /// Runs `work` so that the spawnable functions it calls run on the satin pool.
    pub fn satin<R>(&self, work: impl FnOnce() -> R) -> R {
        self.satin.run(work)
    }

    /// Runs `work` on a thread of the rayon pool.
    pub fn rayon<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.rayon.install(work)
    }

    /// Runs `work` on this thread, which chili counts as one of its pool's.
    pub fn chili<R>(&self, work: impl FnOnce(&mut chili::Scope<'_>) -> R) -> R {
        work(&mut self.chili.scope())
    }
}
