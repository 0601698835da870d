//! The directions of design: abi -> core <- transport, memory; `crate::` says who uses whom.
// All of this is test: what is not there shall fail it.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::fs;
use std::path::Path;

mod common;
use common::files;

/// What code in a file under src may name after `crate::`.
fn allowed(file: &str) -> Vec<String> {
    let mut parts = file.split('/');
    let own = match (parts.next(), parts.next()) {
        (Some(ring @ ("transport" | "memory")), Some(backend)) if parts.next().is_some() => {
            format!("{ring}::{backend}")
        }
        (Some(ring), _) => ring.to_owned(),
        (None, _) => unreachable!(),
    };
    let others: &[&str] = match own.split(':').next() {
        Some("abi") => &["core", "backends", "slot_makers"],
        Some("core") => &[],
        // The machine below a root directory, and what it is asked.
        Some("inventory.rs") => &["abi", "doctor", "sys", "transport"],
        Some("doctor") => &["sys::probe", "sys::rdma_device"],
        // Errors, and the trait that waiting is behind.
        Some("sys") => &["core::error", "core::transport"],
        // The traits, what they speak of, and the system.
        Some("transport" | "memory") => {
            &["core::error", "core::log", "core::memory", "core::slot", "core::transport", "sys"]
        }
        _ => panic!("src/{file} is in no ring"),
    };
    others.iter().map(|&other| other.to_owned()).chain([own]).collect()
}

/// The path after each `crate::`, and where it is, without comments and tests.
fn uses(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.lines().enumerate().take_while(|(_, line)| !line.trim_end().ends_with("mod tests {"));
    let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.flat_map(|(number, line)| line.split("crate::").skip(1).map(move |path| (number + 1, path)))
}

#[test]
fn every_ring_uses_what_it_may() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    let mut wrong = Vec::new();
    for path in files(&root) {
        let file = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let test =
            file.ends_with("tests.rs") || file.ends_with("conformance.rs") || file.starts_with("tests/");
        if test || file == "lib.rs" || file.starts_with("bin/") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (line, used) in uses(&text) {
            seen += 1;
            let fits =
                |name: &String| used.strip_prefix(name.as_str()).is_some_and(|rest| !rest.starts_with('_'));
            if !allowed(&file).iter().any(fits) {
                wrong.push(format!("src/{file}:{line} uses crate::{used}"));
            }
        }
        assert!(!text.contains("super::super::super::"), "src/{file} climbs out of its folder");
    }
    assert!(seen > 100, "only {seen} uses found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
