//! Durations, rates and shares as people write them on a command line.

use std::time::Duration;

use satin_runtime::config::{Form, TIME};

/// A time as settings have it: a number of seconds, or `30ms`, `1.5s`, `1h 30m`.
///
/// # Errors
/// If it is none; the text says what is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    Form::read(text).ok_or_else(|| format!("expected {TIME}, not `{text}`"))
}

/// Bits a second: `100mbit`, `64kbit`, `1gbit`, `5000bit`.
///
/// # Errors
/// If it is none of these; the text says what is expected.
pub fn rate(text: &str) -> Result<u64, String> {
    let expected = || format!("expected a rate such as 100mbit, 64kbit or 1gbit, not `{text}`");
    let lower = text.to_lowercase();
    let (number, unit) = split(&lower).ok_or_else(expected)?;
    let factor = match unit.trim_end_matches("/s") {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(expected()),
    };
    let rate = number * factor;
    if (1.0..=1e15).contains(&rate) {
        Ok(rate as u64)
    } else {
        Err(expected())
    }
}

/// A share of all: `0.1%`, or `0.001`. Between 0 and 1.
///
/// # Errors
/// If it is neither; the text says what is expected.
pub fn share(text: &str) -> Result<f64, String> {
    let expected = || format!("expected a share such as 0.1% or 0.001, not `{text}`");
    let (number, unit) = split(text).ok_or_else(expected)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(expected()),
    };
    if share <= 1.0 {
        Ok(share)
    } else {
        Err(expected())
    }
}

/// A number of 0 or more, and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        assert_eq!(duration("30ms"), Ok(Duration::from_millis(30)));
        assert_eq!(duration("0.5 s"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(rate("100mbit"), Ok(100_000_000));
        assert_eq!(rate("1.5Gbit/s"), Ok(1_500_000_000));
        assert_eq!(share("0.1%"), Ok(0.001));
        assert_eq!(share("0.25"), Ok(0.25));
    }

    #[test]
    fn what_means_nothing() {
        for text in ["", "ms", "-1ms", "-1", "1e400s", "inf", "5 moons"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["100", "mbit", "0mbit", "1parsec"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["101%", "2", "-1%", "x"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
