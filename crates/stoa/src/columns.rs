//! Tables for people, as lines of text.

use std::fmt::Write as _;

/// The rows with columns below each other, each as wide as it has to be.
pub(crate) fn aligned<const COUNT: usize>(rows: &[[String; COUNT]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COUNT] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
