//! Programs that are timed with something switched on and off: examples of this workspace, and their arguments.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::launch::{self, Launcher};

/// A longer run of one of the programs has hung.
pub const LIMIT: Duration = Duration::from_secs(600);

/// The programs.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// Fibonacci numbers: nothing but spawns
    Fib,
    /// Unbalanced Tree Search
    Uts,
    /// The queens on a board
    Nqueens,
    /// The quadratic assignment problem: branch and bound
    Qap,
    /// Unbalanced Tree Search on a deep tree
    Deep,
    /// A tree of leaves of 40 us
    Knary,
    /// A flow of 2,801 tasks, most of them of 1 ms
    Flow,
    /// A flat loop of jobs of 1 us
    Flat,
}

/// How large the programs are.
pub struct Sizes {
    /// Index of the Fibonacci number.
    pub fib: u32,
    /// Queens.
    pub queens: u32,
    /// The tree of [`Case::Uts`].
    pub tree: String,
    /// The tree of [`Case::Deep`].
    pub deep: String,
    /// The instance of [`Case::Qap`], in the format of QAPLIB; `None`: nug14, which is built in.
    pub qap: Option<PathBuf>,
    /// Levels of [`Case::Knary`], of width 6.
    pub levels: u32,
    /// Jobs of [`Case::Flat`].
    pub jobs: u32,
}

impl Default for Sizes {
    /// Some seconds each on one worker; nqueens and qap are shorter.
    fn default() -> Sizes {
        Sizes {
            fib: 43,
            queens: 14,
            tree: "T1L".into(),
            deep: "T3L".into(),
            qap: None,
            levels: 6,
            jobs: 3_000_000,
        }
    }
}

impl Case {
    /// The name, as the command line and the results have it.
    pub fn name(self) -> &'static str {
        match self {
            Case::Fib => "fib",
            Case::Uts => "uts",
            Case::Nqueens => "nqueens",
            Case::Qap => "qap",
            Case::Deep => "deep",
            Case::Knary => "knary",
            Case::Flow => "flow",
            Case::Flat => "flat",
        }
    }

    /// The example that is run.
    pub fn example(self) -> &'static str {
        match self {
            Case::Fib => "fib",
            Case::Uts | Case::Deep => "uts",
            Case::Nqueens => "nqueens",
            Case::Qap => "qap",
            Case::Knary | Case::Flow | Case::Flat => "knary",
        }
    }

    /// The greatest ratio of times that is allowed, with harvesting over without.
    pub fn most(self) -> f64 {
        match self {
            Case::Fib | Case::Uts | Case::Nqueens | Case::Qap | Case::Knary | Case::Flow => 1.01,
            Case::Deep => 1.03,
            Case::Flat => 1.05,
        }
    }

    /// The arguments for runs that are timed. `program` is the example's executable: knary measures its steps, once, so that
    /// all runs have the same work.
    fn arguments(self, program: &Path, sizes: &Sizes) -> Result<Vec<OsString>> {
        let knary = |levels: u32, width: u32, micros: u64| {
            let steps = launch::steps(program, Duration::from_micros(micros))?;
            let numbers = [levels, width, micros as u32].map(|number| number.to_string());
            let steps = ["--steps".to_owned(), steps.to_string()];
            Ok(numbers.into_iter().chain(steps).map(Into::into).collect())
        };
        Ok(match self {
            Case::Fib => vec![sizes.fib.to_string().into()],
            Case::Nqueens => vec![sizes.queens.to_string().into()],
            Case::Uts => vec!["--tree".into(), sizes.tree.clone().into()],
            Case::Deep => vec!["--tree".into(), sizes.deep.clone().into()],
            Case::Qap => sizes.qap.iter().map(Into::into).collect(),
            Case::Knary => return knary(sizes.levels, 6, 40),
            Case::Flow => {
                let mut words = knary(4, 7, 1000)?;
                words.push("--flow".into());
                return Ok(words);
            }
            Case::Flat => return knary(1, sizes.jobs, 1),
        })
    }
}

/// A program with its arguments.
pub struct Program {
    /// Which one.
    pub case: Case,
    /// The executable.
    pub path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Builds it.
    ///
    /// # Errors
    /// If it cannot be built, or its steps cannot be measured.
    pub fn build(launcher: &Launcher, case: Case, sizes: &Sizes) -> Result<Program> {
        let path = launcher.example(case.example())?;
        Ok(Program {
            case,
            arguments: case.arguments(&path, sizes)?,
            path,
        })
    }

    /// The command line: the executable and its arguments.
    pub fn words(&self) -> Vec<OsString> {
        let program = std::iter::once(self.path.clone().into_os_string());
        program.chain(self.arguments.iter().cloned()).collect()
    }
}
