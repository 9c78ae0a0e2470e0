use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Result;
use satin_cli::errors::{self, Section};
use satin_runtime::codes::{self, CodedError};

/// Explain the code of an error, or list all codes
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  satin explain
  satin explain S0309")]
pub struct Explain {
    /// The code at the end of an error, such as S0309
    code: Option<String>,
}

impl Explain {
    pub fn run(self) -> Result<ExitCode> {
        let text = match &self.code {
            Some(code) => find(code)?.text(),
            None => errors::list(),
        };
        // A reader such as `head` may have enough.
        let _ = io::stdout().write_all(text.as_bytes());
        Ok(ExitCode::SUCCESS)
    }
}

fn find(code: &str) -> Result<Section> {
    errors::find(code).ok_or_else(|| {
        let near = match errors::near(code) {
            near if near.is_empty() => String::new(),
            near => format!(", but there is {}", near.join(", ")),
        };
        let text = format!("no error has the code `{code}`{near}; `satin explain` lists all");
        CodedError::new(codes::NO_SUCH_CODE, text).into()
    })
}
