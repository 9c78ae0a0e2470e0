//! Line charts and tables of ratios as SVG, for the README.

use std::path::Path;

use anyhow::anyhow;
pub use plotters::prelude::SeriesLabelPosition as Legend;
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// A named line and its points.
pub struct Line {
    /// The name of the line, for the legend.
    pub name: String,
    /// The points, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// The texts and ranges beside the lines.
pub struct Axes<'a> {
    /// The title, above the chart.
    pub title: &'a str,
    /// The label of the x axis, below.
    pub x: &'a str,
    /// The label of the y axis, at the left.
    pub y: &'a str,
    /// The ends of the vertical axis.
    pub y_range: std::ops::Range<f64>,
    /// The place of the legend.
    pub legend: Legend,
}

/// Gathers points into lines by name, in the order of first mention. Those without a place, such as a ratio to a time that was too short to be
/// measured, are left out: axes that reach to infinity are never done.
pub fn lines(points: impl IntoIterator<Item = (String, f64, f64)>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let points = points.into_iter();
    for (name, x, y) in points.filter(|(_, x, y)| x.is_finite() && y.is_finite()) {
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((x, y)),
            None => lines.push(Line {
                name,
                points: vec![(x, y)],
            }),
        }
    }
    lines
}

/// The range of the points, which spans `least` in any case, with some room above.
pub fn range_of(lines: &[Line], least: std::ops::Range<f64>) -> std::ops::Range<f64> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let low = all().fold(least.start, |low, point| low.min(point.1));
    let high = all().fold(least.end, |high, point| high.max(point.1));
    low..high + (high - low) * 0.1
}

/// Draws the lines; those whose name ends in `simulated` are thin.
pub fn draw(path: &Path, axes: &Axes<'_>, lines: &[Line]) -> anyhow::Result<()> {
    let mut picture = String::new();
    paint(&mut picture, axes, lines).map_err(|error| anyhow!("cannot draw: {error}"))?;
    std::fs::write(path, picture)
        .map_err(|error| anyhow!("cannot write {}: {error}", path.display()))
}

/// Draws panels in rows of a given length, under a common title. A legend is in the first, and in each whose lines have other
/// names than those of the panel before.
pub fn draw_grid(
    path: &Path,
    title: &str,
    columns: usize,
    panels: &[(Axes<'_>, Vec<Line>)],
) -> anyhow::Result<()> {
    const PANEL: (u32, u32) = (340, 300);
    const TITLE: u32 = 40;
    let mut picture = String::new();
    let rows = panels.len().div_ceil(columns);
    let size = (PANEL.0 * columns as u32, TITLE + PANEL.1 * rows as u32);
    let mut paint = || -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        root.fill(&WHITE)?;
        let below = root.titled(title, ("sans-serif", 20))?;
        let areas = below.split_evenly((rows, columns));
        for (index, ((axes, lines), area)) in panels.iter().zip(&areas).enumerate() {
            let before = index.checked_sub(1).map(|before| &panels[before].1);
            let has_legend = before.is_none_or(|before| {
                let names = before.iter().map(|line| &line.name);
                !names.eq(lines.iter().map(|line| &line.name))
            });
            panel(area, axes, 15, lines, has_legend)?;
        }
        root.present()?;
        Ok(())
    };
    paint().map_err(|error| anyhow!("cannot draw: {error}"))?;
    std::fs::write(path, picture)
        .map_err(|error| anyhow!("cannot write {}: {error}", path.display()))
}

/// Draws a table of ratios, coloured: green up to 1, red above `most`. Where there is no ratio, the run has failed. Names of columns
/// may have two lines.
pub fn draw_ratios(
    path: &Path,
    title: &str,
    columns: &[String],
    rows: &[(String, Vec<Option<f64>>)],
    most: f64,
) -> anyhow::Result<()> {
    const CELL: (i32, i32) = (74, 24);
    const NAME: i32 = 170;
    const HEADER: i32 = 84;
    /// The title needs some room, too.
    const WIDTH_MIN: i32 = 540;
    let size = (
        (NAME + CELL.0 * columns.len() as i32 + 12).max(WIDTH_MIN) as u32,
        (HEADER + CELL.1 * rows.len() as i32 + 12) as u32,
    );
    let mut picture = String::new();
    let mut paint = || -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        root.fill(&WHITE)?;
        let write = |text: &str, size: i32, place: (i32, i32), side: HPos| {
            let style = ("sans-serif", size).into_font().color(&BLACK);
            let style = style.pos(Pos::new(side, VPos::Center));
            root.draw(&Text::new(text.to_owned(), place, style))
        };
        write(title, 19, (12, 18), HPos::Left)?;
        for (column, name) in (0..).zip(columns) {
            let x = NAME + CELL.0 * column + CELL.0 / 2;
            for (line, text) in (0..).zip(name.lines()) {
                write(text, 16, (x, 46 + 18 * line), HPos::Center)?;
            }
        }
        for (row, (name, ratios)) in (0..).zip(rows) {
            let top = HEADER + CELL.1 * row;
            write(name, 16, (12, top + CELL.1 / 2), HPos::Left)?;
            for (column, ratio) in (0..).zip(ratios) {
                let left = NAME + CELL.0 * column;
                let corners = [(left, top), (left + CELL.0 - 2, top + CELL.1 - 2)];
                let text = match ratio {
                    Some(ratio) => {
                        let colour = colour_of_ratio(*ratio, most).filled();
                        root.draw(&Rectangle::new(corners, colour))?;
                        format!("{ratio:.2}")
                    }
                    None => "failed".into(),
                };
                let middle = (left + CELL.0 / 2, top + CELL.1 / 2);
                write(&text, 16, middle, HPos::Center)?;
            }
        }
        root.present()?;
        Ok(())
    };
    paint().map_err(|error| anyhow!("cannot draw: {error}"))?;
    std::fs::write(path, picture)
        .map_err(|error| anyhow!("cannot write {}: {error}", path.display()))
}

/// The deeper, the further from 1; a factor of four has the full colour.
fn colour_of_ratio(ratio: f64, most: f64) -> RGBColor {
    let depth = (ratio.ln().abs() / 4.0_f64.ln()).min(1.0);
    let (full, share) = match ratio {
        ratio if ratio > most => (full_palette::RED_400, 0.25 + 0.75 * depth),
        ratio if ratio > 1.0 => (full_palette::YELLOW_200, 0.5),
        _ => (full_palette::GREEN_400, 0.15 + 0.85 * depth),
    };
    let mixed = |channel: u8| 255 - ((255.0 - f64::from(channel)) * share) as u8;
    RGBColor(mixed(full.0), mixed(full.1), mixed(full.2))
}

fn paint(
    picture: &mut String,
    axes: &Axes<'_>,
    lines: &[Line],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(picture, (760, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    panel(&root, axes, 20, lines, true)?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn panel(
    area: &Area<'_>,
    axes: &Axes<'_>,
    caption: u32,
    lines: &[Line],
    has_legend: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    const COLOURS: [RGBColor; 6] = [
        full_palette::BLUE_700,
        full_palette::ORANGE_800,
        full_palette::GREEN_700,
        full_palette::BLUE_300,
        full_palette::ORANGE_300,
        full_palette::GREEN_300,
    ];
    let x_max = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point.0))
        .fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(axes.title, ("sans-serif", caption))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..x_max * 1.02, axes.y_range.clone())?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .light_line_style(WHITE)
        .draw()?;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let width = if line.name.ends_with("simulated") {
            1
        } else {
            3
        };
        let style = colour.stroke_width(width);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(4))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    if has_legend {
        chart
            .configure_series_labels()
            .position(axes.legend.clone())
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_without_a_place_is_left_out() {
        let point = |y| ("S1/S0".to_owned(), 1.0, y);
        let of = lines([2.5, f64::INFINITY, f64::NAN].map(point));
        let [line] = &of[..] else {
            panic!("one line");
        };
        assert_eq!(line.points, [(1.0, 2.5)]);
        assert_eq!(range_of(&of, 0.5..2.5), 0.5..2.7);
        assert!(lines([point(f64::INFINITY)]).is_empty());
    }
}
