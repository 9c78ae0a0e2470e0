//! Tables of an experiment, and the targets of the design.

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};

use super::{
    experiment::{Cell, Report, Scenario},
    policy::{Detection, Policy},
};

/// Cells row by row: those of the same size, data and scenario.
fn rows(report: &Report) -> Vec<&[Cell]> {
    let same = |a: &Cell, b: &Cell| (a.size, &a.data, a.scenario) == (b.size, &b.data, b.scenario);
    report.cells.chunk_by(same).collect()
}

fn find(row: &[Cell], policy: Policy, detection: Detection) -> Option<&Cell> {
    let mut cells = row.iter();
    cells.find(|cell| cell.policy == policy && cell.detection == detection)
}

fn title(cell: &Cell) -> String {
    let Cell {
        size,
        data,
        scenario,
        ..
    } = cell;
    format!("{size}, {}\n{data}", scenario.name())
}

fn figures(cell: Option<&Cell>) -> String {
    cell.map_or(String::new(), |cell| match cell.scenario.has_deaths() {
        true => format!(
            "{:.1} ({:.1})\n[{:.3}]",
            cell.extra_percent, cell.worst_percent, cell.nsl
        ),
        false => format!("-\n[{:.3}]", cell.nsl),
    })
}

/// The table of section 4 of the design: every policy with the delay of detection that is its own.
#[must_use]
pub fn table(report: &Report) -> Table {
    let own = |cell: &&Cell| cell.detection == cell.policy.own_detection();
    let rows = rows(report);
    let first = rows.first().copied().unwrap_or_default();
    let policies: Vec<Policy> = first.iter().filter(own).map(|cell| cell.policy).collect();
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let names = policies.iter().map(|policy| policy.name());
    table.set_header(std::iter::once("scenario").chain(names));
    for row in rows {
        let cells = policies.iter().map(|&policy| {
            let cell = find(row, policy, policy.own_detection());
            figures(cell)
        });
        table.add_row(std::iter::once(title(&row[0])).chain(cells));
    }
    table
}

/// The columns at equal delays of detection.
const EQUAL: [(Policy, Detection, &str); 4] = [
    (Policy::GtpCR, Detection::AtPoints, "gtp/c/r\nat points"),
    (
        Policy::FlowCopies,
        Detection::AtPoints,
        "flow-copies\nat points",
    ),
    (Policy::GtpCR, Detection::Soon, "gtp/c/r\nafter 1 %"),
    (
        Policy::FlowCopies,
        Detection::Soon,
        "flow-copies\nafter 1 %",
    ),
];

/// GTP/c/r and flows that copy, with the same delay of detection. None if they were not both run.
#[must_use]
pub fn equal_delays(report: &Report) -> Option<Table> {
    let rows = rows(report);
    let first = rows.first()?;
    let is_there = |&(policy, detection, _): &(Policy, Detection, &str)| {
        find(first, policy, detection).is_some()
    };
    if !EQUAL.iter().all(is_there) {
        return None;
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(std::iter::once("scenario").chain(EQUAL.map(|(_, _, name)| name)));
    for row in rows {
        let cells = EQUAL.map(|(policy, detection, _)| figures(find(row, policy, detection)));
        table.add_row(std::iter::once(title(&row[0])).chain(cells));
    }
    Some(table)
}

/// What the shipped code did, beside the model of flows. None if it was not run.
#[must_use]
pub fn shipped(report: &Report) -> Option<Table> {
    if !report.cells.iter().any(|cell| cell.policy.is_shipped()) {
        return None;
    }
    let is_shown = |cell: &&Cell| {
        let is_compared = [Policy::Flow, Policy::FlowCopies].contains(&cell.policy);
        cell.detection == cell.policy.own_detection() && (cell.policy.is_shipped() || is_compared)
    };
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([
        "scenario",
        "policy",
        "length",
        "tasks elsewhere, %",
        "data a task moves,\nmean tasks",
        "begun again",
        "death known after,\n% of the reference",
    ]);
    for cell in report.cells.iter().filter(is_shown) {
        let percent = |percent: Option<f64>| percent.map_or("-".into(), |is| format!("{is:.2}"));
        table.add_row([
            title(cell).replace('\n', ", "),
            cell.policy.name().into(),
            format!("{:.3}", cell.nsl),
            percent(cell.elsewhere_percent),
            format!("{:.3}", cell.moved),
            format!("{:.1}", cell.rewound),
            percent(cell.heard_percent),
        ]);
    }
    Some(table)
}

/// A target of the design, and what was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// The row.
    pub of: String,
    /// What is measured.
    pub what: String,
    /// The value.
    pub value: f64,
    /// The largest value that keeps the target.
    pub most: f64,
}

impl Target {
    /// Is it kept?
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.value <= self.most
    }
}

/// The targets B4 and B7 of the design, for the rows and columns that were run. That nothing is stuck is an invariant. With equal
/// delays of detection the design has no target; the length beside that of GTP/c/r is held to what B4 allows without a death.
#[must_use]
pub fn targets(report: &Report) -> Vec<Target> {
    let mut targets = Vec::new();
    for row in rows(report) {
        let mut target = |what: &str, value, most| {
            targets.push(Target {
                of: title(&row[0]).replace('\n', ", "),
                what: what.into(),
                value,
                most,
            });
        };
        let own = |policy: Policy| find(row, policy, policy.own_detection());
        let Some(copies) = own(Policy::FlowCopies) else {
            continue;
        };
        if let Some((mean, worst)) = most_extra(&row[0]) {
            target("B4: mean extra time, %", copies.extra_percent, mean);
            target("B4: worst bound, %", copies.worst_percent, worst);
        }
        if let Some(gtp) = own(Policy::GtpC) {
            target("B4: length over that of gtp/c", copies.nsl / gtp.nsl, 1.02);
        }
        if let Some(flow) = own(Policy::Flow) {
            target("B7: length over that of flow", copies.nsl / flow.nsl, 1.02);
        }
        for (detection, what) in [
            (
                Detection::AtPoints,
                "length with a death over that of gtp/c/r, both at points",
            ),
            (
                Detection::Soon,
                "length with a death over that of gtp/c/r, both after 1 %",
            ),
        ] {
            let flow = find(row, Policy::FlowCopies, detection);
            let gtp = find(row, Policy::GtpCR, detection);
            if let (Some(flow), Some(gtp), true) = (flow, gtp, copies.scenario.has_deaths()) {
                target(what, flow.nsl_with_death / gtp.nsl_with_death, 1.02);
            }
        }
    }
    targets
}

/// The most extra time in the mean and at the worst bound, for which the design has targets.
fn most_extra(cell: &Cell) -> Option<(f64, f64)> {
    match (cell.scenario, cell.size.processors) {
        (Scenario::Te2 | Scenario::Te2Back, 5) => Some((14.0, 15.5)),
        (Scenario::Te2 | Scenario::Te2Back, 20) => Some((4.0, 6.0)),
        _ => None,
    }
}

/// The targets as a table.
#[must_use]
pub fn target_table(targets: &[Target]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["scenario", "target", "measured", "at most", ""]);
    for target in targets {
        let verdict = if target.is_kept() { "kept" } else { "missed" };
        table.add_row([
            target.of.clone(),
            target.what.clone(),
            format!("{:.3}", target.value),
            format!("{:.3}", target.most),
            verdict.into(),
        ]);
    }
    table
}
