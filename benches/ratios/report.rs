//! Bars, what was measured against them, and how that is shown.
use std::fmt::Write;

/// One promise about speed.
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The largest value that keeps the promise.
    pub(crate) most: f64,
    pub(crate) run: fn() -> Measured,
}

/// A value and the figures that it was made from, or the reason why there is none.
pub(crate) type Measured = Result<Value, Skipped>;

pub(crate) struct Value {
    pub(crate) value: f64,
    pub(crate) detail: String,
}

/// Why a bar could not be measured here.
pub(crate) struct Skipped(pub(crate) String);

impl<T: std::fmt::Display> From<T> for Skipped {
    fn from(why: T) -> Self {
        Self(why.to_string())
    }
}

/// A line of the table.
pub(crate) struct Row {
    bar: &'static Bar,
    measured: Measured,
}

impl Row {
    pub(crate) fn of(bar: &'static Bar) -> Self {
        Self { bar, measured: (bar.run)() }
    }

    fn met(&self) -> Option<bool> {
        self.measured.as_ref().ok().map(|measured| measured.value <= self.bar.most)
    }

    pub(crate) fn line(&self) -> String {
        let (value, detail) = match &self.measured {
            Ok(measured) => (format!("{:.3}", measured.value), measured.detail.as_str()),
            Err(why) => ("-".to_owned(), why.0.as_str()),
        };
        let met = match self.met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "skipped",
        };
        format!(
            "{:14}  {:51}  {:>6}  {value:>8}  {met:7}  {detail}",
            self.bar.name, self.bar.what, self.bar.most
        )
    }
}

pub(crate) fn heading() -> String {
    format!("{:14}  {:51}  {:>6}  {:>8}  {:7}  from", "bar", "what", "most", "measured", "met")
}

pub(crate) fn closing(rows: &[Row]) -> String {
    let count = |met| rows.iter().filter(|row| row.met() == met).count();
    format!("{} met, {} not met, {} skipped", count(Some(true)), count(Some(false)), count(None))
}

pub(crate) fn json(rows: &[Row]) -> String {
    let mut text = String::from("[\n");
    for (i, row) in rows.iter().enumerate() {
        let (value, met, detail) = match (&row.measured, row.met()) {
            (Ok(measured), Some(met)) => (measured.value.to_string(), met.to_string(), &measured.detail),
            (Ok(measured), None) => (measured.value.to_string(), "null".to_owned(), &measured.detail),
            (Err(why), _) => ("null".to_owned(), "null".to_owned(), &why.0),
        };
        let end = if i + 1 == rows.len() { "\n" } else { ",\n" };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "  {{\"name\": {}, \"what\": {}, \"most\": {}, \"measured\": {value}, \"met\": {met}, \"from\": {}}}{end}",
            quoted(row.bar.name),
            quoted(row.bar.what),
            row.bar.most,
            quoted(detail),
        );
    }
    text.push_str("]\n");
    text
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The middle of the values; 0 of none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Measures a ratio three times, both sides each time, and takes the median.
pub(crate) fn ratio(mut sides: impl FnMut() -> Result<(f64, f64, String), Skipped>) -> Measured {
    let mut all = Vec::new();
    for _ in 0..3 {
        let (ours, theirs, detail) = sides()?;
        all.push((ours / theirs, detail));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (value, detail) = all.swap_remove(1);
    Ok(Value { value, detail })
}

/// Seconds, in the unit that suits them.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
