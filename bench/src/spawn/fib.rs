//! Fibonacci numbers without a cut-off: a job does next to nothing, so this measures the spawn itself.

use std::hint::black_box;

use super::Case;

pub struct Fib {
    n: u32,
}

impl Fib {
    pub fn new(n: u32) -> Self {
        Self { n }
    }
}

impl Case for Fib {
    fn title(&self) -> String {
        format!("fib({})", self.n)
    }

    // calls(n) = 1 + calls(n - 1) + calls(n - 2), with one call each for 0 and 1.
    fn calls(&self) -> u64 {
        2 * by_addition(self.n + 1) - 1
    }

    fn seq(&mut self) -> u64 {
        fib_seq(black_box(self.n))
    }

    fn satin(&mut self) -> u64 {
        fib_satin(black_box(self.n))
    }

    fn rayon(&mut self) -> u64 {
        fib_rayon(black_box(self.n))
    }

    fn chili(&mut self, scope: &mut chili::Scope<'_>) -> u64 {
        fib_chili(scope, black_box(self.n))
    }

    fn check(&self, answer: u64) -> bool {
        answer == by_addition(self.n)
    }
}

fn by_addition(n: u32) -> u64 {
    (0..n).fold((0, 1), |(this, next), _| (next, this + next)).0
}

fn fib_seq(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    fib_seq(n - 1) + fib_seq(n - 2)
}

#[satin::spawnable]
fn fib_satin(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    fib_satin(n - 1) + fib_satin(n - 2)
}

fn fib_rayon(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = rayon::join(|| fib_rayon(n - 1), || fib_rayon(n - 2));
    a + b
}

fn fib_chili(scope: &mut chili::Scope<'_>, n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = scope.join(|s| fib_chili(s, n - 1), |s| fib_chili(s, n - 2));
    a + b
}
