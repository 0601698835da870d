//! What the shell scripts of the tests must not do.
// All of this is test: what is not there shall fail it.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::fs;
use std::path::Path;

mod common;
use common::files;

/// Whether the last command of a pipe may end before it has read everything: what writes to it then dies of SIGPIPE,
/// sometimes, and with pipefail that is the pipe's status.
fn leaves_early(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let short =
        |word: &str, letter| word.starts_with('-') && !word.starts_with("--") && word.contains(letter);
    match words.next() {
        Some("head") => true,
        Some("grep") => {
            words.take_while(|word| word.starts_with('-')).any(|word| short(word, 'q') || short(word, 'm'))
        }
        _ => false,
    }
}

fn early_leavers(script: &str) -> Vec<usize> {
    let lines = script.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#'));
    let pipes = lines.filter(|(_, line)| line.replace("||", "").split('|').skip(1).any(leaves_early));
    pipes.map(|(number, _)| number + 1).collect()
}

#[test]
fn no_pipe_ends_early_under_pipefail() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("c_tests");
    let scripts =
        files(&root).into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "sh"));
    let scripts: Vec<_> = scripts.map(|path| (fs::read_to_string(&path).unwrap(), path)).collect();
    // A folder with one such script has others that it sources.
    let strict: Vec<_> = scripts.iter().filter(|(text, _)| text.contains("pipefail")).collect();
    assert!(strict.len() >= 4, "the scripts are not where they are looked for");
    let mut wrong = Vec::new();
    for (text, path) in &scripts {
        let folder = path.parent();
        if text.contains("pipefail") || strict.iter().any(|(_, other)| other.parent() == folder) {
            wrong.extend(early_leavers(text).iter().map(|line| format!("{}:{line}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "these pipes fail now and then: {wrong:#?}");
}

#[test]
fn early_leavers_are_seen() {
    assert_eq!(
        early_leavers("a | grep -q b\n# a | head\na || grep -q b\na | grep b | sed -n 1p\na|head -n 1"),
        [1, 5]
    );
}
