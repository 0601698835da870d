//! The picture of rates, as SVG.
use std::fmt::Write;

use crate::rates::{self, Rate};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 66.0;
/// The sizes at the two ends, as powers of two.
const FIRST: f64 = 11.0;
const LAST: f64 = 25.0;

/// A line of the picture: what it compares with, how it is called, and its colour.
const LINES: [(&str, &str, &str); 2] = [
    ("ib_write_bw", "engine ucx on rc_verbs (Soft-RoCE, emulated machine) / ib_write_bw", "#0b5fa5"),
    ("ucx_perftest", "engine tcp on loopback / ucx_perftest ucp_am_bw over tcp", "#b8500a"),
];

/// Draws the best of each size as lines, all others as dots, and bars as dashes.
pub(crate) fn svg(rates: &[Rate]) -> String {
    let shown: Vec<&Rate> =
        rates.iter().filter(|rate| LINES.iter().any(|line| line.0 == rate.against)).collect();
    let most = shown.iter().map(|rate| rate.ratio()).fold(1.2, f64::max);
    let most = (most * 5.0).ceil() / 5.0;
    let mut out = Picture { text: String::new(), most };
    out.frame();
    for (number, (against, label, colour)) in LINES.iter().enumerate() {
        let of = |rates: &[&Rate]| -> Vec<Rate> {
            rates.iter().filter(|rate| rate.against == *against).map(|rate| (*rate).clone()).collect()
        };
        let all = of(&shown);
        out.legend(number, label, colour);
        for rate in &all {
            out.dot(rate, colour, 3.0, 0.35);
        }
        let mut best = of(&rates::best(rates));
        best.sort_by_key(|rate| rate.bytes);
        out.line(&best, colour);
        for rate in &best {
            out.dot(rate, colour, 4.5, 1.0);
            out.bar(rate, colour);
            out.value(rate, colour, if number == 0 { 20.0 } else { -11.0 });
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
        out.text
    )
}

/// A number of bytes in binary units.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

struct Picture {
    text: String,
    /// The ratio at the upper edge.
    most: f64,
}

impl Picture {
    fn add(&mut self, what: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{what}");
    }

    fn x(bytes: usize) -> f64 {
        LEFT + ((bytes as f64).log2() - FIRST) / (LAST - FIRST) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ratio: f64) -> f64 {
        TOP + (1.0 - ratio / self.most) * (HEIGHT - TOP - BOTTOM)
    }

    fn frame(&mut self) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut tick = 0.0;
        while tick <= self.most + 1e-9 {
            let y = self.y(tick);
            let ink = if (tick - 1.0_f64).abs() < 1e-9 { "#666666" } else { "#dddddd" };
            self.add(&format!("<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"{ink}\"/>"));
            self.add(&format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick:.1}</text>",
                LEFT - 8.0,
                y + 4.0
            ));
            tick += 0.2;
        }
        for bytes in (12..=24).step_by(2).map(|power| 1_usize << power) {
            let x = Self::x(bytes);
            self.add(&format!("<path d=\"M{x:.1} {bottom}v5\" stroke=\"#333333\"/>"));
            self.add(&format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 20.0,
                size(bytes)
            ));
        }
        self.add(&format!("<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#333333\"/>"));
        self.add(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">size of a result (bytes, logarithmic), 8 under way</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 18.0
        ));
        let middle = f64::midpoint(TOP, bottom);
        self.add(&format!(
            "<text transform=\"translate(22 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">rate, ours / yardstick</text>"
        ));
    }

    fn legend(&mut self, number: usize, label: &str, colour: &str) {
        let y = 22.0 + 18.0 * number as f64;
        self.add(&format!("<path d=\"M{LEFT} {y}h24\" stroke=\"{colour}\" stroke-width=\"2.5\"/>"));
        self.add(&format!("<text x=\"{:.1}\" y=\"{:.1}\">{label}</text>", LEFT + 32.0, y + 4.0));
    }

    fn line(&mut self, rates: &[Rate], colour: &str) {
        let points: Vec<String> = rates
            .iter()
            .map(|rate| format!("{:.1},{:.1}", Self::x(rate.bytes), self.y(rate.ratio())))
            .collect();
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>",
            points.join(" ")
        ));
    }

    fn dot(&mut self, rate: &Rate, colour: &str, radius: f64, ink: f64) {
        let (x, y) = (Self::x(rate.bytes), self.y(rate.ratio()));
        self.add(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\" fill-opacity=\"{ink}\"/>"
        ));
    }

    /// What was promised, where something was.
    fn bar(&mut self, rate: &Rate, colour: &str) {
        let Some(least) = rates::bar(rate) else { return };
        let (x, y) = (Self::x(rate.bytes), self.y(least));
        self.add(&format!(
            "<path d=\"M{:.1} {y:.1}h44\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"/>",
            x - 22.0
        ));
    }

    fn value(&mut self, rate: &Rate, colour: &str, below: f64) {
        let (x, y) = (Self::x(rate.bytes), self.y(rate.ratio()) + below);
        self.add(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{colour}\">{:.2}</text>",
            rate.ratio()
        ));
    }
}
