//! An experiment as a picture: a panel for each row of the table, extra time over the bound, a line for each policy.

use std::{error::Error, fs, path::Path};

use anyhow::{Context, anyhow};
use plotters::prelude::*;
use strum::VariantArray;

use super::{
    experiment::{Cell, Report},
    policy::Policy,
};

const PANEL: (u32, u32) = (420, 340);
const COLUMNS: usize = 2;
/// GTP and GTP/c start again: their lines would press the others together.
const LEFT_OUT: [Policy; 2] = [Policy::Gtp, Policy::GtpC];
/// The colours of the policies that are shown, in the order in which they are named.
const COLOURS: [RGBColor; 9] = [
    full_palette::GREY_500,
    full_palette::BROWN_500,
    full_palette::ORANGE_300,
    full_palette::ORANGE_800,
    full_palette::BLUE_300,
    full_palette::BLUE_800,
    full_palette::CYAN_600,
    full_palette::GREEN_800,
    full_palette::GREEN_300,
];

/// Draws the experiment as SVG.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, report: &Report) -> anyhow::Result<()> {
    let picture = draw(report).map_err(|error| anyhow!("cannot draw: {error}"))?;
    fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))
}

fn draw(report: &Report) -> Result<String, Box<dyn Error>> {
    let shown = |cell: &&Cell| {
        cell.detection == cell.policy.own_detection() && !LEFT_OUT.contains(&cell.policy)
    };
    let cells: Vec<&Cell> = report.cells.iter().filter(shown).collect();
    let same =
        |a: &&Cell, b: &&Cell| (a.size, &a.data, a.scenario) == (b.size, &b.data, b.scenario);
    let rows: Vec<&[&Cell]> = cells.chunk_by(same).collect();
    let height = rows.len().div_ceil(COLUMNS).max(1);
    let mut picture = String::new();
    {
        let size = (PANEL.0 * COLUMNS as u32, 40 + PANEL.1 * height as u32);
        let root = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        root.fill(&WHITE)?;
        let title = "Time that a death adds, by policy [length without a death, in critical paths]";
        let below = root.titled(title, ("sans-serif", 20))?;
        for (row, area) in rows.iter().zip(below.split_evenly((height, COLUMNS))) {
            panel(&area, row)?;
        }
        root.present()?;
    }
    Ok(picture)
}

fn colour(policy: Policy) -> RGBColor {
    let shown = Policy::VARIANTS.iter();
    let mut shown = shown.filter(|policy| !LEFT_OUT.contains(policy));
    let place = shown.position(|shown| *shown == policy);
    COLOURS[place.unwrap_or_default() % COLOURS.len()]
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    row: &[&Cell],
) -> Result<(), Box<dyn Error>> {
    let points = || row.iter().flat_map(|cell| &cell.of_bounds);
    let right = points().fold(1.0, |most: f64, at| most.max(100.0 * at.bound));
    let top = points().fold(1.0, |most: f64, at| most.max(at.extra_percent));
    let low = points().fold(0.0, |least: f64, at| least.min(at.extra_percent));
    let first = row[0];
    let caption = format!("{}, {}, {}", first.size, first.data, first.scenario.name());
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(40)
        .y_label_area_size(44)
        // The names of the policies stand above the lines.
        .build_cartesian_2d(0.0..right * 1.02, low..low + (top - low) * 2.15)?;
    chart
        .configure_mesh()
        .x_desc("bound of the variation, %")
        .y_desc("extra time, %")
        .x_label_formatter(&|bound| format!("{bound:.0}"))
        .y_label_formatter(&|extra| format!("{extra:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    for cell in row {
        let colour = colour(cell.policy);
        let points = cell.of_bounds.iter();
        let points = points.map(|at| (100.0 * at.bound, at.extra_percent));
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style).point_size(3))?
            .label(format!("{} [{:.2}]", cell.policy.name(), cell.nsl))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::experiment::{AtBound, Scenario, Size};

    #[test]
    fn a_picture_has_a_line_for_each_policy() {
        let cell = |policy: Policy| Cell {
            size: Size {
                processors: 5,
                tasks: Some(500),
            },
            data: "0.02 per edge".into(),
            scenario: Scenario::Te2,
            policy,
            detection: policy.own_detection(),
            extra_percent: 13.0,
            worst_percent: 14.0,
            of_bounds: [0.0, 0.9]
                .map(|bound| AtBound {
                    bound,
                    extra_percent: 13.0,
                    nsl: 4.0,
                })
                .to_vec(),
            nsl: 4.0,
            nsl_with_death: 4.5,
            rewound: 1.0,
            copied: 0.0,
            moved: 0.1,
            elsewhere_percent: None,
            heard_percent: None,
        };
        let report = Report {
            graphs: 1,
            mean_edges: 1.0,
            bounds: vec![0.0, 0.9],
            seed: 1,
            runs: 4,
            cells: vec![cell(Policy::GtpCR), cell(Policy::Satin)],
        };
        let picture = draw(&report).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("gtp/c/r [4.00]"));
        assert!(picture.contains("satin [4.00]"));
        let all = Policy::VARIANTS.iter().copied();
        let shown: Vec<Policy> = all.filter(|policy| !LEFT_OUT.contains(policy)).collect();
        assert_eq!(shown.len(), COLOURS.len());
        assert_eq!(colour(Policy::SatinAlways), COLOURS[8]);
        assert!(picture.contains("5x500, 0.02 per edge, te2"));
    }
}
