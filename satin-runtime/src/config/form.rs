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

/// A number of seconds, with or without a fraction, or a time with its units: `1h 30m`.
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
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
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
