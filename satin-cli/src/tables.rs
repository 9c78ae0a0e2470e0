//! Tables as all commands print them: columns without lines between them.

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
