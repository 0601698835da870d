//! The command line.
use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::prelude::*;

use crate::help;
use crate::render::Size;
use crate::scene::Scene;

const MAX_HOSTS: u32 = 64;
const MAX_EDGE: u32 = 16_384;

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help(&'static str),
    Version,
    Demo(Demo),
    /// Started by `demo`; not for people.
    Worker(Worker),
    Serve(Worker),
    Token,
    Doctor(Doctor),
}

/// `nrdma doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doctor {
    pub(crate) peer: Option<String>,
    pub(crate) strict: bool,
    pub(crate) json: bool,
    pub(crate) selftest: bool,
}

/// `nrdma demo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Demo {
    pub(crate) hosts: u32,
    pub(crate) scene: Scene,
    pub(crate) out: PathBuf,
    pub(crate) transports: Option<String>,
    pub(crate) connect: Vec<String>,
    pub(crate) timeout_ms: u32,
    pub(crate) kill_one: bool,
    pub(crate) verify: bool,
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            hosts: 3,
            scene: Scene { size: Size { width: 1280, height: 720 }, edge: 128 },
            out: PathBuf::from("frame.png"),
            transports: None,
            connect: Vec::new(),
            timeout_ms: 0,
            kill_one: false,
            verify: true,
        }
    }
}

/// `nrdma worker ADDRESS`: runs fragments for the node at the address until its standard input ends. `nrdma serve
/// ADDRESS`: for whoever connects there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Worker {
    pub(crate) address: String,
    pub(crate) name: String,
    pub(crate) threads: u32,
    pub(crate) transports: Option<String>,
    pub(crate) timeout_ms: u32,
}

/// Reads a command line, without the program's name.
pub(crate) fn parse<I>(arguments: I) -> Result<Command, lexopt::Error>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let mut parser = lexopt::Parser::from_args(arguments);
    let name = match parser.next()? {
        None | Some(Short('h') | Long("help")) => return Ok(Command::Help(help::OVERVIEW)),
        Some(Short('V') | Long("version")) => return Ok(Command::Version),
        Some(Value(name)) => name.string()?,
        Some(other) => return Err(other.unexpected()),
    };
    match name.as_str() {
        "demo" => demo(&mut parser),
        "worker" => worker(&mut parser, "worker"),
        "serve" => worker(&mut parser, "serve"),
        "doctor" => doctor(&mut parser),
        "token" => match parser.next()? {
            None => Ok(Command::Token),
            Some(Short('h') | Long("help")) => Ok(Command::Help(help::TOKEN)),
            Some(other) => Err(other.unexpected()),
        },
        "help" => Ok(Command::Help(help::OVERVIEW)),
        _ => Err(format!("there is no command {name:?}; see nrdma --help").into()),
    }
}

fn demo(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut demo = Demo::default();
    let mut hosts = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help(help::DEMO)),
            Long("hosts") => hosts = Some(between("--hosts", parser.value()?.parse()?, 0, MAX_HOSTS)?),
            Long("connect") => demo.connect.push(parser.value()?.string()?),
            Long("timeout") => demo.timeout_ms = parser.value()?.parse()?,
            Long("size") => demo.scene.size = parser.value()?.parse_with(size)?,
            Long("tile") => demo.scene.edge = between("--tile", parser.value()?.parse()?, 8, 1024)?,
            Long("out") => demo.out = parser.value()?.into(),
            Long("transport") => demo.transports = Some(parser.value()?.string()?),
            Long("kill-one") => demo.kill_one = true,
            Long("no-verify") => demo.verify = false,
            other => return Err(other.unexpected()),
        }
    }
    demo.hosts = hosts.unwrap_or(if demo.connect.is_empty() { demo.hosts } else { 0 });
    if demo.kill_one && demo.hosts == 0 {
        return Err("--kill-one needs a worker: use --hosts 1 or more".into());
    }
    Ok(Command::Demo(demo))
}

fn doctor(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut doctor = Doctor { peer: None, strict: false, json: false, selftest: true };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help(help::DOCTOR)),
            Long("peer") => doctor.peer = Some(parser.value()?.string()?),
            Long("strict") => doctor.strict = true,
            Long("json") => doctor.json = true,
            Long("no-selftest") => doctor.selftest = false,
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Doctor(doctor))
}

fn worker(parser: &mut lexopt::Parser, command: &str) -> Result<Command, lexopt::Error> {
    let mut worker = Worker::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help(help::SERVE)),
            Long("name") => worker.name = parser.value()?.string()?,
            Long("threads") => worker.threads = parser.value()?.parse()?,
            Long("timeout") => worker.timeout_ms = parser.value()?.parse()?,
            Long("transport") => worker.transports = Some(parser.value()?.string()?),
            Value(address) if worker.address.is_empty() => worker.address = address.string()?,
            other => return Err(other.unexpected()),
        }
    }
    if worker.address.is_empty() {
        return Err(format!("{command}: the address is missing").into());
    }
    Ok(if command == "serve" { Command::Serve(worker) } else { Command::Worker(worker) })
}

fn between(option: &str, value: u32, least: u32, most: u32) -> Result<u32, lexopt::Error> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(format!("{option} takes {least} to {most}, not {value}").into())
}

fn size(text: &str) -> Result<Size, String> {
    let edges = text.split_once(['x', 'X']).map(|(width, height)| (width.parse(), height.parse()));
    let Some((Ok(width), Ok(height))) = edges else {
        return Err("a size is two numbers with an x between them, as in 1280x720".to_owned());
    };
    let fits = |edge| (1..=MAX_EDGE).contains(&edge);
    if !fits(width) || !fits(height) {
        return Err(format!("each edge is 1 to {MAX_EDGE} pixels"));
    }
    Ok(Size { width, height })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Command, String> {
        parse(text.split_whitespace()).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults() {
        assert_eq!(line("demo"), Ok(Command::Demo(Demo::default())));
        assert_eq!(line(""), Ok(Command::Help(help::OVERVIEW)));
        assert_eq!(line("--version"), Ok(Command::Version));
        for (command, text) in
            [("demo", help::DEMO), ("serve", help::SERVE), ("token", help::TOKEN), ("doctor", help::DOCTOR)]
        {
            assert_eq!(line(&format!("{command} --help")), Ok(Command::Help(text)));
            assert!(text.starts_with(&format!("nrdma {command}: ")) && text.contains("Usage: "));
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{command}");
        }
    }

    #[test]
    fn every_option() {
        let given = line(
            "demo --hosts 5 --size 640x360 --out a.png --tile 64 --transport shm --kill-one --no-verify \
             --connect a:1 --connect b:2 --timeout 700",
        );
        let expected = Demo {
            hosts: 5,
            scene: Scene { size: Size { width: 640, height: 360 }, edge: 64 },
            out: "a.png".into(),
            transports: Some("shm".to_owned()),
            connect: vec!["a:1".to_owned(), "b:2".to_owned()],
            timeout_ms: 700,
            kill_one: true,
            verify: false,
        };
        assert_eq!(given, Ok(Command::Demo(expected)));
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        for (given, word) in [
            ("demo --frobnicate", "--frobnicate"),
            ("demo extra", "extra"),
            ("paint", "paint"),
            ("demo --hosts 65", "0 to 64"),
            ("demo --hosts -1", "-1"),
            ("demo --tile 7", "8 to 1024"),
            ("demo --size 12", "1280x720"),
            ("demo --size 0x7", "1 to 16384"),
            ("demo --size 1x99999999999", "1280x720"),
            ("demo --hosts 0 --kill-one", "--kill-one"),
            ("worker", "address"),
        ] {
            let text = line(given).unwrap_err();
            assert!(text.contains(word), "{given}: {text}");
        }
    }

    #[test]
    fn a_worker_takes_its_address() {
        let given = line("worker unix:/tmp/a --name w --threads 2 --transport shm");
        let expected = Worker {
            address: "unix:/tmp/a".to_owned(),
            name: "w".to_owned(),
            threads: 2,
            transports: Some("shm".to_owned()),
            timeout_ms: 0,
        };
        assert_eq!(given, Ok(Command::Worker(expected)));
    }

    #[test]
    fn doctors() {
        let plain = Doctor { peer: None, strict: false, json: false, selftest: true };
        assert_eq!(line("doctor"), Ok(Command::Doctor(plain)));
        let all = Doctor { peer: Some("a:1".to_owned()), strict: true, json: true, selftest: false };
        assert_eq!(line("doctor --peer a:1 --strict --json --no-selftest"), Ok(Command::Doctor(all)));
        assert!(line("doctor --peer").is_err() && line("doctor x").is_err());
    }

    #[test]
    fn servers_and_tokens() {
        let expected = Worker { address: "lo:0".to_owned(), timeout_ms: 9, ..Worker::default() };
        assert_eq!(line("serve lo:0 --timeout 9"), Ok(Command::Serve(expected)));
        assert!(line("serve").unwrap_err().contains("serve: the address"));
        assert_eq!(line("token"), Ok(Command::Token));
        assert!(line("token 5").is_err());
        let Ok(Command::Demo(demo)) = line("demo --connect a:1") else { panic!("no demo") };
        assert_eq!(demo.hosts, 0);
        let Ok(Command::Demo(demo)) = line("demo --connect a:1 --hosts 2") else { panic!("no demo") };
        assert_eq!(demo.hosts, 2);
    }
}
