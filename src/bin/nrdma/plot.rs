//! A bench as a picture: latency and bandwidth over size, as SVG.
use std::fmt::Write;

use crate::bench::{Report, Row};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 470.0;
/// Of each of the two plots: left edge, width; both share top and height.
const PLOTS: [(f64, f64); 2] = [(80.0, 390.0), (580.0, 390.0)];
const TOP: f64 = 70.0;
const TALL: f64 = 310.0;
const OURS: &str = "#0b63ce";
const TAIL: &str = "#7fb2ee";
const THEIRS: &str = "#d1570a";

/// One line of a plot.
struct Line {
    name: String,
    colour: &'static str,
    dashed: bool,
    /// Sizes in bytes, and values.
    points: Vec<(f64, f64)>,
}

/// A number of bytes, short: "64 KiB".
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(scale, _)| bytes >= *scale) {
        Some((scale, unit)) => format!("{} {unit}", bytes / scale),
        None => format!("{bytes} B"),
    }
}

/// The whole picture.
pub(crate) fn svg(report: &Report) -> String {
    let over = |value: &dyn Fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        let point = |row: &Row| Some((row.bytes as f64, value(row).filter(|v| *v > 0.0)?));
        report.rows.iter().filter_map(point).collect()
    };
    let line = |name: &str, colour, dashed, points| Line { name: name.to_owned(), colour, dashed, points };
    let mut latency = vec![
        line("nrdma, median", OURS, false, over(&|row| Some(row.latency.p50.as_secs_f64() * 1e6))),
        line("nrdma, 99.9 %", TAIL, true, over(&|row| Some(row.latency.p999.as_secs_f64() * 1e6))),
    ];
    let mib = f64::from(1 << 20);
    let mut bandwidth = vec![line("nrdma", OURS, false, over(&|row| Some(row.bandwidth / mib)))];
    if let Some(tool) = report.against {
        let theirs = |value: &dyn Fn(&Row) -> Option<f64>| line(tool.name(), THEIRS, false, over(value));
        latency.push(theirs(&|row| Some(row.theirs?.latency?.as_secs_f64() * 1e6)));
        bandwidth.push(theirs(&|row| Some(row.theirs?.bandwidth? / mib)));
    }
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, (PLOTS[0].0, 28.0), "start", "font-size=\"17\" font-weight=\"bold\"", &report.title());
    let [left, right] = PLOTS;
    plot(&mut out, left, "Latency of one result at a time [us]", &latency);
    plot(&mut out, right, "Bandwidth with several under way [MiB/s]", &bandwidth);
    out.push_str("</svg>\n");
    out
}

/// A logarithmic axis.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// Where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()).max(1e-9)
    }
}

fn plot(out: &mut String, (left, wide): (f64, f64), title: &str, lines: &[Line]) {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    if points().next().is_none() {
        text(out, (left, TOP + 20.0), "start", "", "nothing was measured");
        return;
    }
    let range = |value: fn(&(f64, f64)) -> f64| {
        points().map(value).fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (first, last) = range(|point| point.0);
    let (least, most) = range(|point| point.1);
    let sizes = Axis { low: first, high: last.max(first * 2.0) };
    // Whole decades.
    let values =
        Axis { low: 10_f64.powf(least.log10().floor()), high: 10_f64.powf((most * 1.01).log10().ceil()) };
    let x = |bytes: f64| left + wide * sizes.place(bytes);
    let y = |value: f64| TOP + TALL * (1.0 - values.place(value));
    text(out, (left, TOP - 14.0), "start", "font-weight=\"bold\"", title);
    grid(out, (left, wide), &values, &y);
    for point in lines.first().into_iter().flat_map(|line| line.points.iter()).step_by(2) {
        let at = x(point.0);
        rule(out, (at, TOP), (at, TOP + TALL), "#ececec");
        text(out, (at, TOP + TALL + 18.0), "middle", "fill=\"#444\" font-size=\"11\"", &label(point.0));
    }
    text(out, (left + wide / 2.0, TOP + TALL + 38.0), "middle", "fill=\"#444\"", "size of a result");
    for (number, line) in lines.iter().filter(|line| !line.points.is_empty()).enumerate() {
        curve(out, line, &x, &y);
        let at = left + 140.0 * number as f64;
        let base = TOP + TALL + 62.0;
        let dash = if line.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} {:.1}h24\" stroke=\"{}\" stroke-width=\"2.5\"{dash}/>",
            base - 4.0,
            line.colour
        );
        text(out, (at + 30.0, base), "start", "font-size=\"12\"", &line.name);
    }
}

/// Horizontal rules, one for each decade, with its value.
fn grid(out: &mut String, (left, wide): (f64, f64), values: &Axis, y: &dyn Fn(f64) -> f64) {
    let mut decade = values.low;
    while decade <= values.high * 1.001 {
        let at = y(decade);
        rule(out, (left, at), (left + wide, at), "#d5d5d5");
        let shown = if decade >= 1.0 { format!("{decade:.0}") } else { format!("{decade}") };
        text(out, (left - 8.0, at + 4.0), "end", "fill=\"#444\" font-size=\"11\"", &grouped(&shown));
        decade *= 10.0;
    }
}

/// "1000000" as "1 000 000".
fn grouped(digits: &str) -> String {
    if digits.contains('.') {
        return digits.to_owned();
    }
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A whole number of bytes.
fn label(bytes: f64) -> String {
    size(bytes as u64)
}

fn curve(out: &mut String, line: &Line, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let mut path = String::new();
    for (number, (bytes, value)) in line.points.iter().enumerate() {
        let command = if number == 0 { 'M' } else { 'L' };
        // Writing to a string cannot fail.
        let _ = write!(path, "{command}{:.1} {:.1}", x(*bytes), y(*value));
    }
    let dash = if line.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    let _ = writeln!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\"{dash}/>",
        line.colour
    );
    for (bytes, value) in line.points.iter().filter(|_| !line.dashed) {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{}\"/>",
            x(*bytes),
            y(*value),
            line.colour
        );
    }
}

fn rule(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(out: &mut String, at: (f64, f64), anchor: &str, more: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" {more}>{words}</text>",
        at.0, at.1
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::report;

    #[test]
    fn the_picture_has_axes_units_and_a_line_for_each_tool() {
        let picture = svg(&report());
        for part in
            ["[us]", "[MiB/s]", "size of a result", "nrdma, median", "ucx_perftest", "8 B", "1 MiB", "</svg>"]
        {
            assert!(picture.contains(part), "{part} is missing");
        }
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }

    #[test]
    fn a_bench_of_one_size_or_none_is_a_picture_too() {
        let mut one = report();
        one.rows.truncate(1);
        assert!(!svg(&one).contains("NaN"));
        one.rows.clear();
        assert!(svg(&one).contains("nothing was measured"));
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([size(8), size(64 << 10), size(1 << 30)], ["8 B", "64 KiB", "1 GiB"]);
        assert_eq!([grouped("1000000"), grouped("100"), grouped("0.1")], ["1 000 000", "100", "0.1"]);
    }
}
