//! Every exported function is on the export list, and declared and described in the header.
// All of this is test: what is not there shall fail it.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The identifier in front of the first parenthesis.
fn called(declaration: &str) -> Option<&str> {
    declaration.split('(').next()?.rsplit([' ', '*', '\n']).next()
}

/// What src/abi exports.
fn exported() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/abi")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        for function in text.split("#[unsafe(no_mangle)]").skip(1) {
            let (_, rest) = function.split_once(" fn ").unwrap();
            names.insert(called(rest).unwrap().to_owned());
        }
    }
    names
}

/// What the header declares, each with the line above it.
fn declared(header: &str) -> Vec<(&str, &str)> {
    let mut declarations = Vec::new();
    for (at, _) in header.match_indices("\nNRDMA_API") {
        let rest = header[at + 1..].trim_start_matches("NRDMA_API").trim_start();
        declarations.push((called(rest).unwrap(), header[..at].lines().next_back().unwrap_or_default()));
    }
    declarations
}

#[test]
fn every_export_is_listed_and_described() {
    let (exported, header, list) = (exported(), read("include/nrdma/nrdma.h"), read("c_tests/symbols.txt"));
    let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
    assert_eq!(exported, listed, "c_tests/symbols.txt: NRDMA_SYMBOLS=write ctest -R elf.symbols");
    let declared = declared(&header);
    let names: BTreeSet<String> = declared.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(exported, names, "nrdma.h");
    for (name, above) in declared {
        assert!(above.ends_with("*/"), "{name} has no comment in nrdma.h");
    }
    assert!(exported.len() >= 50 && exported.iter().all(|name| name.starts_with("nrdma_")));
}
