//! The policies that are compared, and when they learn of a death.

use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

/// A policy: which processor does which task when, and what happens when a processor dies.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
    serde::Serialize,
)]
pub enum Policy {
    /// Plans at rescheduling points; starts again from nothing when a processor dies.
    #[strum(serialize = "gtp")]
    #[serde(rename = "gtp")]
    Gtp,
    /// The same with copies: what was sent serves others too.
    #[strum(serialize = "gtp/c")]
    #[serde(rename = "gtp/c")]
    GtpC,
    /// GTP that rewinds what is lost and needed.
    #[strum(serialize = "gtp/r")]
    #[serde(rename = "gtp/r")]
    GtpR,
    /// GTP with copies that rewinds.
    #[strum(serialize = "gtp/c/r")]
    #[serde(rename = "gtp/c/r")]
    GtpCR,
    /// A processor without work takes a task at random.
    #[strum(serialize = "pull-random")]
    #[serde(rename = "pull-random")]
    PullRandom,
    /// A processor without work takes the task with the longest way to the end.
    #[strum(serialize = "pull-rank")]
    #[serde(rename = "pull-rank")]
    PullRank,
    /// What the design of flows says, without F15.
    #[strum(serialize = "flow")]
    #[serde(rename = "flow")]
    Flow,
    /// Flows that copy in the background what is costly to do again (F15).
    #[strum(serialize = "flow-copies")]
    #[serde(rename = "flow-copies")]
    FlowCopies,
    /// Flows of tasks of one function: what each of them takes is not known before it has run, only the mean of those before it, of each processor.
    #[strum(serialize = "flow-means")]
    #[serde(rename = "flow-means")]
    FlowMeans,
    /// The shipped code: nodes that have nothing to do steal tasks that are worth their way.
    #[strum(serialize = "satin")]
    #[serde(rename = "satin")]
    Satin,
    /// The shipped code with `SATIN_WORTH=always`: all tasks are worth their way.
    #[strum(serialize = "satin-always")]
    #[serde(rename = "satin-always")]
    SatinAlways,
}

/// What a policy does again after a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recovery {
    /// Everything.
    StartAgain,
    /// What is lost and needed (GTP/r; F12).
    Rewind,
}

/// How a policy gives tasks to processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placing {
    /// A plan of all tasks, made at rescheduling points.
    Plan,
    /// Processors take what is ready, in the order of rank or at random.
    Pull { by_rank: bool },
    /// The owner grants tasks, also ahead of their inputs.
    Grant,
    /// Nodes steal: no model.
    Steal,
}

impl Policy {
    /// The name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    pub(super) fn placing(self) -> Placing {
        match self {
            Policy::Gtp | Policy::GtpC | Policy::GtpR | Policy::GtpCR => Placing::Plan,
            Policy::PullRandom => Placing::Pull { by_rank: false },
            Policy::PullRank => Placing::Pull { by_rank: true },
            Policy::Flow | Policy::FlowCopies | Policy::FlowMeans => Placing::Grant,
            Policy::Satin | Policy::SatinAlways => Placing::Steal,
        }
    }

    /// Does the shipped code run, and no model of a policy?
    #[must_use]
    pub fn is_shipped(self) -> bool {
        self.placing() == Placing::Steal
    }

    pub(super) fn recovery(self) -> Recovery {
        match self {
            Policy::Gtp | Policy::GtpC => Recovery::StartAgain,
            _ => Recovery::Rewind,
        }
    }

    /// Is who received a version a holder of it? Without copies only its writer is.
    pub(super) fn receivers_hold(self) -> bool {
        !matches!(self, Policy::Gtp | Policy::GtpR)
    }

    /// Is it known what each task takes on each processor, or only the mean?
    pub(super) fn knows_costs(self) -> bool {
        self != Policy::FlowMeans
    }

    /// Are versions copied in the background?
    pub(super) fn copies(self) -> bool {
        self == Policy::FlowCopies
    }

    /// When the policy learns of a death if nothing else is said: GTP looks at its rescheduling points, Satin's nodes after 1 %.
    #[must_use]
    pub fn own_detection(self) -> Detection {
        match self.placing() {
            Placing::Plan => Detection::AtPoints,
            Placing::Pull { .. } | Placing::Grant => Detection::Soon,
            Placing::Steal => Detection::Nodes,
        }
    }
}

/// When a policy learns of a death.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Detection {
    /// At the next rescheduling point: they are a tenth of the reference time apart.
    AtPoints,
    /// After a hundredth of the reference time.
    Soon,
    /// When the nodes of the shipped code find out.
    Nodes,
}

impl Detection {
    /// Time between two rescheduling points, as a share of the reference time.
    pub(super) const PERIOD: f64 = 0.1;
    /// Time until a death is known, as a share of the reference time.
    pub(super) const SOON: f64 = 0.01;
}
