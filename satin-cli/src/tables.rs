//! Tables as all commands print them: columns without lines between them.

use std::ops::Range;

use comfy_table::{CellAlignment, Table, presets};

/// A table with that header.
#[must_use]
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Aligns those columns to the right, by their numbers.
pub fn align_right(table: &mut Table, is_number: impl Fn(usize) -> bool) {
    for (place, column) in table.column_iter_mut().enumerate() {
        if is_number(place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The table as text. Where a line would be longer than `width`, dispensable columns are left out, the first ones first, until it fits. All
/// columns but those at the places `text` are aligned to the right.
#[must_use]
pub fn fitting(
    mut header: Vec<&str>,
    mut rows: Vec<Vec<String>>,
    text: &Range<usize>,
    dispensable: &[&str],
    width: Option<usize>,
) -> String {
    let mut text: Vec<bool> = (0..header.len())
        .map(|place| text.contains(&place))
        .collect();
    let mut dispensable = dispensable.iter();
    loop {
        let mut shown = table(&header);
        for cells in &rows {
            shown.add_row(cells);
        }
        align_right(&mut shown, |place| !text[place]);
        let shown = shown.trim_fmt();
        let is_long = |line: &str| width.is_some_and(|width| line.chars().count() > width);
        if !shown.lines().any(is_long) {
            return shown;
        }
        let place = dispensable.find_map(|name| header.iter().position(|title| title == name));
        let Some(place) = place else {
            return shown;
        };
        header.remove(place);
        text.remove(place);
        for cells in &mut rows {
            cells.remove(place);
        }
    }
}

/// The width of the terminal, for one of the standard streams that may be one.
#[must_use]
pub fn width(is_terminal: bool) -> Option<usize> {
    let size = is_terminal.then(ratatui::crossterm::terminal::size)?;
    size.ok().map(|(columns, _)| columns.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_important_columns_go_until_the_table_fits() {
        let strings = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        let shown = |width| {
            let rows = vec![strings(&["n1", "1234", "12", "1 %"])];
            let header = vec!["node", "sent", "up", "idle"];
            fitting(header, rows, &(0..1), &["none", "up", "sent"], width)
        };
        let header = |width| shown(width).lines().next().map(str::to_owned);
        assert_eq!(header(None).as_deref(), Some("node  sent  up  idle"));
        assert_eq!(header(Some(20)).as_deref(), Some("node  sent  up  idle"));
        assert_eq!(header(Some(19)).as_deref(), Some("node  sent  idle"));
        assert_eq!(header(Some(15)).as_deref(), Some("node  idle"));
        assert_eq!(header(Some(3)).as_deref(), Some("node  idle"));
    }
}
