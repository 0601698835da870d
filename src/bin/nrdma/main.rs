//! The tool: shows what the library does, from the outside.
mod args;
mod canvas;
mod crew;
mod demo;
mod doctor;
mod help;
mod json;
mod node;
mod painting;
mod peer_check;
mod probe;
mod progress;
mod render;
mod scene;
mod selftest;
mod summary;
mod sys;
mod table;
mod worker;

use std::io::{self, Write};
use std::process::ExitCode;

const FAILED: u8 = 1;
/// As sysexits.h has it; 2 is what `doctor` says of a FAIL.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    match args::parse(std::env::args_os().skip(1)) {
        Ok(args::Command::Help(text)) => print(text),
        Ok(args::Command::Version) => print(&format!("nrdma {}\n", node::version())),
        Ok(args::Command::Demo(options)) => match demo::run(&options) {
            Ok(outcome) if outcome.complete => print(&outcome.text),
            Ok(outcome) => {
                print(&outcome.text);
                ExitCode::from(FAILED)
            }
            Err(why) => fail(&why, FAILED),
        },
        Ok(args::Command::Serve(options)) => match worker::serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => fail(&format!("serve: {why}"), FAILED),
        },
        Ok(args::Command::Doctor(options)) => {
            let (text, code) = doctor::run(&options);
            match print(&text) {
                ExitCode::SUCCESS => ExitCode::from(code),
                failed => failed,
            }
        }
        Ok(args::Command::Token) => match token() {
            Ok(token) => print(&token),
            Err(why) => fail(&format!("token: {why}"), FAILED),
        },
        Ok(args::Command::Worker(options)) => match worker::run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => fail(&format!("{}: {why}", options.name), FAILED),
        },
        Err(why) => fail(&why.to_string(), USAGE),
    }
}

/// A secret that nobody can guess: 32 random bytes in hexadecimal, and a line's end.
fn token() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.push('\n');
    Ok(text)
}

/// Prints; a reader that went away (`nrdma --help | head -1`) is no failure.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(&error.to_string(), FAILED),
        _ => ExitCode::SUCCESS,
    }
}

fn fail(why: &str, code: u8) -> ExitCode {
    // There is nobody left to tell when stderr is gone.
    let _ = writeln!(io::stderr(), "nrdma: {why}");
    ExitCode::from(code)
}
