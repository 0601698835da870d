//! `nrdma doctor`: what is in the way of RDMA on this machine, and whether bytes arrive as they were sent.
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::path::Path;

use nrdma::doctor::{self, Finding, Level};

use crate::args;
use crate::json::Json;
use crate::node::version;
use crate::{peer_check, selftest};

/// Columns of a line of text.
const WIDTH: usize = 80;
/// Where a fact begins.
const INDENT: usize = 17;
/// The root directory to look below, for tests of this command.
const ROOT: &str = "NRDMA_SYSROOT";
/// The version of the JSON document; a new one when a field changes its meaning or goes.
const SCHEMA: u64 = 1;

/// What there is to print, and the exit code.
pub(crate) fn run(options: &args::Doctor) -> (String, u8) {
    let root = std::env::var_os(ROOT).filter(|root| !root.is_empty());
    let mut findings = doctor::examine(root.as_ref().map_or(Path::new("/"), Path::new));
    // Another root is no machine that anything could be sent on.
    if options.selftest && root.is_none() {
        findings.extend(selftest::run());
    }
    if let Some(address) = &options.peer {
        findings.extend(peer_check::run(address));
    }
    let code = exit_code(&findings, options.strict);
    let text = if options.json {
        document(&findings, code).document()
    } else {
        text(&findings, &Style::of_stdout())
    };
    (text, code)
}

fn count(findings: &[Finding], level: Level) -> u64 {
    findings.iter().filter(|finding| finding.level == level).count() as u64
}

fn exit_code(findings: &[Finding], strict: bool) -> u8 {
    match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Fail) => 2,
        Some(Level::Warn) if strict => 1,
        _ => 0,
    }
}

fn document(findings: &[Finding], code: u8) -> Json {
    let one = |finding: &Finding| {
        let maybe = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Json::Object(vec![
            ("id", finding.id.into()),
            ("level", finding.level.name().to_lowercase().into()),
            ("fact", finding.fact.clone().into()),
            ("why", maybe(&finding.why).into()),
            ("remedy", maybe(&finding.remedy).into()),
        ])
    };
    let summary = [Level::Ok, Level::Info, Level::Warn, Level::Fail].map(|level| {
        let name = match level {
            Level::Ok => "ok",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        (name, Json::Integer(count(findings, level)))
    });
    Json::Object(vec![
        ("schema", SCHEMA.into()),
        ("version", version().into()),
        ("exit", u64::from(code).into()),
        ("summary", Json::Object(summary.to_vec())),
        ("findings", Json::List(findings.iter().map(one).collect())),
    ])
}

/// How things are set off from each other.
struct Style {
    colours: bool,
}

impl Style {
    /// Colours only where a terminal shows them and nobody minds (<https://no-color.org>).
    fn of_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { colours: io::stdout().is_terminal() && !unwanted && !dumb }
    }
    fn paint(&self, text: &str, code: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
    fn level(&self, level: Level) -> String {
        let code = match level {
            Level::Ok => "32",
            Level::Info => "36",
            Level::Warn => "33",
            Level::Fail => "1;31",
        };
        self.paint(&format!("{:<5}", level.name()), code)
    }
}

fn text(findings: &[Finding], style: &Style) -> String {
    let mut out = String::new();
    for finding in findings {
        // Writing to a string cannot fail.
        let _ = write!(out, "{} {:<10} ", style.level(finding.level), finding.id);
        out.push_str(&wrapped(&finding.fact, INDENT));
        if !finding.why.is_empty() {
            let _ = write!(out, "{:INDENT$}{} ", "", style.paint("why", "2"));
            out.push_str(&wrapped(&finding.why, INDENT + 4));
        }
        // A command stays in one line, so that it can be copied.
        for (number, command) in finding.remedy.split(" | ").filter(|command| !command.is_empty()).enumerate()
        {
            let word = if number == 0 { "do" } else { "or" };
            let _ = writeln!(
                out,
                "{:INDENT$}{}  {}",
                "",
                style.paint(word, "2"),
                style.paint(command.trim(), "1")
            );
        }
    }
    let [ok, info, warn, fail] =
        [Level::Ok, Level::Info, Level::Warn, Level::Fail].map(|level| count(findings, level));
    let verdict = match (fail, warn) {
        (0, 0) => "nothing is wrong",
        (0, _) => "works, but not at its best",
        _ => "something will not work",
    };
    let _ = writeln!(out, "\n{ok} ok, {info} info, {warn} WARN, {fail} FAIL: {verdict}");
    out
}

/// Text in lines that end before the last column; all but the first are indented.
fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut column = indent;
    for (number, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![
            Finding::ok("memlock", "limit unlimited"),
            Finding::warn("mtu", "x ".repeat(60).trim()).why("y ".repeat(50).trim()).remedy("a --b | c"),
        ]
    }

    #[test]
    fn lines_fit_into_80_columns_and_commands_stay_whole() {
        let text = text(&findings(), &Style { colours: false });
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.starts_with("ok    memlock    limit unlimited\nWARN  mtu        x x"));
        assert!(text.contains("\n                 do  a --b\n                 or  c\n"), "{text}");
        assert!(text.ends_with("1 ok, 0 info, 1 WARN, 0 FAIL: works, but not at its best\n"));
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn colours_do_not_move_columns() {
        let plain = text(&findings(), &Style { colours: false });
        let mut coloured = text(&findings(), &Style { colours: true });
        assert!(coloured.contains("\x1b[33mWARN"));
        for code in ["\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[1m", "\x1b[0m"] {
            coloured = coloured.replace(code, "");
        }
        assert_eq!(coloured, plain);
    }

    #[test]
    fn exit_codes() {
        let warn = findings();
        assert_eq!((exit_code(&warn, false), exit_code(&warn, true)), (0, 1));
        assert_eq!(exit_code(&[Finding::fail("x", "y")], false), 2);
        assert_eq!(exit_code(&warn[..1], true), 0);
    }

    #[test]
    fn the_document_says_what_there_is() {
        let text = document(&findings(), 1).document();
        for part in ["\"schema\": 1", "\"exit\": 1", "\"level\": \"warn\"", "\"why\": null", "\"warn\": 1"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
