//! The ways in which finished work is kept, and the stores in which it is.

use std::{cell::Cell, ffi::OsString, fmt, path::Path, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use satin_cli::{
    pool::Plan,
    sites::Sites,
    store::{self, StoreUse},
};
use satin_runtime::{
    net::Credential,
    stable::{StoreUrl, runs::Runs},
};
use serde::{Deserialize, Serialize};

use crate::launch::Repair;

/// A way in which finished work is kept.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "keeping", rename_all = "lowercase")]
pub enum Keeping {
    /// Nothing is kept.
    Off,
    /// Workers harvest; neither a neighbour nor a store gets it.
    Harvest,
    /// A store is written to; neighbours get copies too, as is the default.
    Store {
        /// The period, in seconds; 0 is SEL.
        every_s: f64,
        /// The shortest time of a job whose result is kept, in milliseconds.
        grain_ms: f64,
    },
}

/// The default of `SATIN_STORE_GRAIN`, in milliseconds.
pub const GRAIN_MS: f64 = 1.0;

impl Keeping {
    /// A store that is written to in that period, in seconds; 0 is SEL.
    pub fn every(every_s: f64) -> Keeping {
        Keeping::Store {
            every_s,
            grain_ms: GRAIN_MS,
        }
    }

    /// A plan for that program, with a worker per node and a new store.
    ///
    /// # Errors
    /// If the store cannot be made.
    pub fn plan(self, stores: &Stores, words: Vec<OsString>, sites: Sites) -> Result<Plan> {
        self.plan_in(stores.fresh()?, stores, words, sites)
    }

    /// The same with a store that is there already.
    ///
    /// # Errors
    /// If the working directory is needed, and is gone.
    pub fn plan_in(
        self,
        url: StoreUrl,
        stores: &Stores,
        words: Vec<OsString>,
        sites: Sites,
    ) -> Result<Plan> {
        let repair = match self {
            Keeping::Off => Repair::Naive,
            Keeping::Harvest | Keeping::Store { .. } => Repair::Running,
        };
        let mut plan = repair.plan(words, sites);
        let mut set = |name: &str, value: String| plan.env.push((name.into(), value.into()));
        match self {
            Keeping::Off => {}
            Keeping::Harvest => set("SATIN_BUDDY", "0".into()),
            Keeping::Store { every_s, grain_ms } => {
                set("SATIN_STORE_EVERY", every_s.to_string());
                set("SATIN_STORE_GRAIN", (grain_ms / 1000.0).to_string());
                plan.store = Some(StoreUse::new(url)?);
                plan.credential = Some(stores.credential.clone());
            }
        }
        Ok(plan)
    }
}

impl fmt::Display for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Keeping::Off => f.write_str("off"),
            Keeping::Harvest => f.write_str("harvest"),
            Keeping::Store { every_s, grain_ms } => {
                match every_s {
                    0.0 => f.write_str("SEL")?,
                    _ => write!(f, "TIC {every_s} s")?,
                }
                match grain_ms {
                    GRAIN_MS => Ok(()),
                    _ => write!(f, ", grain {grain_ms} ms"),
                }
            }
        }
    }
}

/// Directories for stores, which go with this value, and the credential of all their pools.
pub struct Stores {
    folder: tempfile::TempDir,
    credential: PathBuf,
    made: Cell<u32>,
}

impl Stores {
    /// Stores below that directory, or below that for temporary files.
    ///
    /// # Errors
    /// If nothing can be written there.
    pub fn new(below: Option<&Path>) -> Result<Stores> {
        let below = below.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = tempfile::Builder::new()
            .prefix("satin-bench-store-")
            .tempdir_in(&below);
        let folder =
            folder.with_context(|| format!("cannot make a directory below {}", below.display()))?;
        let credential = folder.path().join("credential.pem");
        Credential::write_new(&credential)?;
        Ok(Stores {
            folder,
            credential,
            made: Cell::new(0),
        })
    }

    /// A store in which nothing is.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn fresh(&self) -> Result<StoreUrl> {
        self.made.set(self.made.get() + 1);
        let directory = self.folder.path().join(self.made.get().to_string());
        std::fs::create_dir(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(StoreUrl::File(directory))
    }

    /// The runs in that store.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub fn runs(&self, url: &StoreUrl) -> Result<Runs> {
        let credential = Credential::load(&self.credential)?;
        let stable = store::open(url, &credential)?;
        Ok(Runs::new(stable, credential.secret(), false))
    }
}

/// A time as a duration; `seconds` is not negative.
pub fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_named_as_kaapi_names_them() {
        assert_eq!(Keeping::every(10.0).to_string(), "TIC 10 s");
        assert_eq!(Keeping::every(0.1).to_string(), "TIC 0.1 s");
        assert_eq!(Keeping::every(0.0).to_string(), "SEL");
        let coarse = Keeping::Store {
            every_s: 0.0,
            grain_ms: 10.0,
        };
        assert_eq!(coarse.to_string(), "SEL, grain 10 ms");
    }

    #[test]
    fn only_a_way_with_a_store_has_one() {
        let stores = Stores::new(None).expect("a directory");
        let plan = |keeping: Keeping| {
            let words = vec!["program".into()];
            let plan = keeping.plan(&stores, words, Sites::alike(1, 2));
            plan.expect("a plan")
        };
        assert_eq!(plan(Keeping::Off).store, None);
        assert_eq!(plan(Keeping::Harvest).store, None);
        let (first, second) = (plan(Keeping::every(0.0)), plan(Keeping::every(1.0)));
        assert!(first.store.is_some() && first.store != second.store);
        assert_eq!(first.credential, second.credential);
    }
}
