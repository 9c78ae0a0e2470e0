//! The forms that values of settings have: as text, and in `satin.toml`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

#[cfg(feature = "clap")]
use clap::builder::ValueParser;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};

/// A type of settings. In `satin.toml` a value stands as serde reads it, unless its form says otherwise.
pub trait Form: DeserializeOwned + Clone + Send + Sync + 'static {
    /// Arguments of a flag of this form.
    const ARGUMENTS: usize = 1;

    /// The value that a text means, if it means one.
    fn read(text: &str) -> Option<Self>;

    /// The text that [`Form::read`] reads as this value.
    fn write(&self) -> OsString;

    /// The parser of a flag of this form; `expected` says what a value may be.
    #[cfg(feature = "clap")]
    fn parser(expected: &'static str) -> ValueParser {
        let parse =
            move |text: &str| Self::read(text).ok_or_else(|| format!("expected {expected}"));
        ValueParser::new(parse)
    }

    /// Reads the value that stands in `satin.toml`.
    ///
    /// # Errors
    /// If there is another kind of value, or the value is out of range.
    fn in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }
}

macro_rules! by_itself {
    ($($number:ty),*) => {$(
        impl Form for $number {
            fn read(text: &str) -> Option<Self> {
                text.trim().parse().ok()
            }

            fn write(&self) -> OsString {
                self.to_string().into()
            }
        }
    )*};
}

by_itself!(usize, u32);

impl Form for String {
    fn read(text: &str) -> Option<Self> {
        Some(text.into())
    }

    fn write(&self) -> OsString {
        self.into()
    }
}

impl Form for PathBuf {
    fn read(text: &str) -> Option<Self> {
        Some(text.into())
    }

    fn write(&self) -> OsString {
        self.clone().into_os_string()
    }

    #[cfg(feature = "clap")]
    fn parser(_: &'static str) -> ValueParser {
        clap::value_parser!(PathBuf)
    }
}

/// What a text may be that says a time, here and on every command line.
pub const TIME: &str = "a number of seconds, or a time such as 30ms, 1.5s or 5m";

/// A number of seconds, with or without a fraction, or a time with its units: `1h 30m`. The file has either.
impl Form for Duration {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        match text.parse() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Err(_) => humantime::parse_duration(text).ok(),
        }
    }

    fn write(&self) -> OsString {
        self.as_secs_f64().to_string().into()
    }

    fn in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = match Written::deserialize(from)? {
            Written::Seconds(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Written::Text(text) => Self::read(&text),
        };
        read.ok_or_else(|| D::Error::custom(format_args!("expected {TIME}")))
    }
}

/// A time in `satin.toml`.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number of seconds, or a time such as 30ms, 1.5s or 5m"
)]
enum Written {
    Seconds(f64),
    Text(String),
}

/// A switch. Its flag has no argument.
impl Form for bool {
    const ARGUMENTS: usize = 0;

    fn read(text: &str) -> Option<Self> {
        match text.trim() {
            "1" | "true" | "on" | "yes" => Some(true),
            "" | "0" | "false" | "off" | "no" => Some(false),
            _ => None,
        }
    }

    fn write(&self) -> OsString {
        u8::from(*self).to_string().into()
    }
}

/// Reads a setting that stands in `satin.toml`.
pub(super) fn in_file<'de, D: Deserializer<'de>, F: Form>(from: D) -> Result<Option<F>, D::Error> {
    F::in_file(from).map(Some)
}
