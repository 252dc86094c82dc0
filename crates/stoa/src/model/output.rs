//! What a prediction looks like: a table, JSON, a plot.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::failure::{Context as _, Result};

/// How results are shown.
#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Prints JSON instead of a table; times are in milliseconds, and null is a time that has no bound
    #[arg(long)]
    json: bool,
    /// Writes a plot too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl OutputArgs {
    pub(super) fn wants_plot(&self) -> bool {
        self.svg.is_some()
    }

    /// Shows a table, or what it is made of. The plot is made only if somebody wants it.
    pub(super) fn show(
        &self,
        rows: &[Vec<String>],
        json: &Value,
        svg: impl FnOnce() -> String,
    ) -> Result<()> {
        if let Some(file) = &self.svg {
            fs::write(file, svg()).context(format!("cannot write {}", file.display()))?;
        }
        let text = if self.json { format!("{json}\n") } else { table(rows) };
        io::stdout().write_all(text.as_bytes()).context("cannot print")
    }
}

/// Columns as wide as their widest cell: the first to the left, all others to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A time for people.
pub(super) fn ms(value: f64) -> String {
    match value {
        _ if value.is_infinite() => "overload".to_owned(),
        _ if value >= 1000.0 => format!("{value:.0}"),
        _ if value >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows =
            [["", "mean"], ["read", "1.00"], ["x", "12345.00"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "          mean\nread      1.00\nx     12345.00\n");
    }

    #[test]
    fn times_have_three_digits_or_more() {
        assert_eq!(
            [0.123, 99.9, 123.45, 5000.6, f64::INFINITY].map(ms),
            ["0.12", "99.90", "123.5", "5001", "overload"]
        );
    }
}
