//! The forms that values of settings have: as text, and in `satin.toml`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

#[cfg(feature = "clap")]
use clap::builder::ValueParser;
use serde::{Deserialize, de::DeserializeOwned};

/// A type of settings.
pub trait Form: Sized + Clone + Send + Sync + 'static {
    /// The value as it stands in `satin.toml`.
    type InFile: DeserializeOwned;

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

    /// The value that stands in the file, or why it is none.
    ///
    /// # Errors
    /// If the value is out of range.
    fn from_file(value: Self::InFile) -> Result<Self, String>;
}

macro_rules! by_itself {
    ($($number:ty),*) => {$(
        impl Form for $number {
            type InFile = $number;

            fn read(text: &str) -> Option<Self> {
                text.trim().parse().ok()
            }

            fn write(&self) -> OsString {
                self.to_string().into()
            }

            fn from_file(value: $number) -> Result<Self, String> {
                Ok(value)
            }
        }
    )*};
}

by_itself!(usize, u32);

impl Form for String {
    type InFile = String;

    fn read(text: &str) -> Option<Self> {
        Some(text.into())
    }

    fn write(&self) -> OsString {
        self.into()
    }

    fn from_file(value: String) -> Result<Self, String> {
        Ok(value)
    }
}

impl Form for PathBuf {
    type InFile = PathBuf;

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

    fn from_file(value: PathBuf) -> Result<Self, String> {
        Ok(value)
    }
}

/// A number of seconds, with or without a fraction.
impl Form for Duration {
    type InFile = f64;

    fn read(text: &str) -> Option<Self> {
        Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
    }

    fn write(&self) -> OsString {
        self.as_secs_f64().to_string().into()
    }

    fn from_file(seconds: f64) -> Result<Self, String> {
        Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
    }
}

/// A switch. Its flag has no argument.
impl Form for bool {
    type InFile = bool;

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

    fn from_file(value: bool) -> Result<Self, String> {
        Ok(value)
    }
}

/// Reads a setting that stands in `satin.toml`.
pub(super) fn in_file<'de, D, F>(from: D) -> Result<Option<F>, D::Error>
where
    D: serde::Deserializer<'de>,
    F: Form,
{
    let value = F::InFile::deserialize(from)?;
    let value = F::from_file(value).map_err(serde::de::Error::custom)?;
    Ok(Some(value))
}
