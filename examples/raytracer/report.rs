//! What is known about a run besides its picture.

use std::time::{Duration, Instant};

use crate::render::Pixel;

/// A fingerprint of the picture (FNV-1a).
pub fn checksum(pixels: &[Pixel]) -> u32 {
    pixels.iter().flatten().fold(0x811c_9dc5, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// What it took to compute something.
pub struct Cost {
    pub wall: Duration,
    /// Of all threads of this process together; `None` where we do not know how to ask, or for less than the clock,
    /// which ticks in hundredths of a second, can tell.
    pub cpu: Option<Duration>,
}

impl Cost {
    pub fn of<R>(work: impl FnOnce() -> R) -> (R, Cost) {
        let (start, cpu_before) = (Instant::now(), cpu_time());
        let result = work();
        let wall = start.elapsed();
        let cpu = cpu_time()
            .zip(cpu_before)
            .map(|(after, before)| after.saturating_sub(before))
            .filter(|_| wall >= Duration::from_millis(200));
        (result, Cost { wall, cpu })
    }
}

/// Processor time of this process so far, from Linux' /proc.
fn cpu_time() -> Option<Duration> {
    parse_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// See proc_pid_stat(5): fields 14 and 15 are user and system time in ticks of USER_HZ, which is 100 on every
/// architecture that Rust runs on. The second field, the program's name, is in parentheses and may contain anything.
fn parse_stat(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name
        .split_whitespace()
        .skip(11)
        .map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(Duration::from_millis(10 * ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_strange_name() {
        let stat = "42 (a ) b) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(parse_stat(stat), Some(Duration::from_secs(2)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn the_checksum_tells_pictures_apart() {
        assert_eq!(checksum(&[]), 0x811c_9dc5);
        assert_ne!(checksum(&[[1, 2, 3]]), checksum(&[[1, 3, 2]]));
    }
}
