//! Plain text tables and numbers for people.
use std::fmt::Write;

/// Lays out rows in columns; the first two are words (to the left), the others numbers (to the right). The first
/// row is the heading.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|s| s.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let width = *width;
            let gap = if column == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = if column < 2 {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Bytes in the unit that suits them.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = "KiB";
    for larger in UNITS.into_iter().skip(1) {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}

/// A number, or a dash for zero.
pub(crate) fn count(value: u64) -> String {
    if value == 0 { "-".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text =
            columns(&[row(["host", "engine", "n"]), row(["a", "shm", "12"]), row(["long name", "-", "3"])]);
        assert_eq!(text, "host       engine   n\na          shm     12\nlong name  -        3\n");
        assert_eq!(columns(&[]), "");
    }

    #[test]
    fn bytes_take_a_fitting_unit() {
        let all = [0, 1023, 1024, 64 << 10, 5 << 20, 3 << 30].map(bytes);
        assert_eq!(all, ["0 B", "1023 B", "1.0 KiB", "64.0 KiB", "5.0 MiB", "3.0 GiB"]);
    }

    #[test]
    fn zero_is_a_dash() {
        assert_eq!((count(0), count(7)), ("-".to_owned(), "7".to_owned()));
    }
}
