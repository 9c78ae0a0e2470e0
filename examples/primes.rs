//! Counts primes: the program of the README, word for word.

/// Counts primes: halves the range until it is short.
#[satin::spawnable]
fn primes(from: u64, to: u64) -> u64 {
    if to - from < 1000 {
        return (from..to).filter(|n| is_prime(*n)).count() as u64;
    }
    let middle = (from + to) / 2;
    primes(from, middle) + primes(middle, to)
}

fn is_prime(n: u64) -> bool {
    n > 1
        && (2..)
            .take_while(|d| d * d <= n)
            .all(|d| !n.is_multiple_of(d))
}

#[satin::main]
fn main() {
    println!("{} primes", primes(0, 2_000_000));
}
