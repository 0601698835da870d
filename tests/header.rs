//! include/nrdma/nrdma.h is what cbindgen makes of src/abi, and says the crate's version and ids.
//! `NRDMA_HEADER=write cargo test --test header` renews it.
use std::path::PathBuf;
use std::{env, fs};

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("include/nrdma/nrdma.h")
}

/// Comments without what is for readers of Rust, on one line where they fit; negative numbers in parentheses.
fn tidy(header: &str) -> String {
    let mut out = String::new();
    let mut lines = header.lines().peekable();
    let mut after_blank = false;
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() == "/*" {
            let block: Vec<&str> =
                lines.by_ref().take_while(|line| line.trim() != "*/").map(str::trim).collect();
            let public = block.iter().take_while(|line| !line.starts_with("# ")).copied().collect::<Vec<_>>();
            out += &comment(indent, public.join("\n").trim_end());
            after_blank = false;
            continue;
        }
        let line = match line.strip_prefix("#define ").and_then(|rest| rest.split_once(" -")) {
            Some((name, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("#define {name} (-{digits})")
            }
            _ => line
                .replace("// extern \"C\"", "/* extern \"C\" */")
                .replace("// __cplusplus", "/* __cplusplus */")
                // cbindgen takes every signed size for one kind; a handle is none.
                .replace("ptrdiff_t handle;", "intptr_t handle;"),
        };
        if !(line.is_empty() && after_blank) {
            out += &line;
            out.push('\n');
        }
        after_blank = line.is_empty();
    }
    out
}

fn comment(indent: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let body = lines.join(&format!("\n{indent}   "));
    format!("{indent}/* {body} */\n")
}

#[test]
fn the_header_is_fresh_and_says_the_version() {
    let mut fresh = Vec::new();
    cbindgen::generate(env!("CARGO_MANIFEST_DIR")).expect("cbindgen").write(&mut fresh);
    let fresh = tidy(&String::from_utf8(fresh).expect("utf-8"));
    if env::var("NRDMA_HEADER").is_ok_and(|value| value == "write") {
        fs::create_dir_all(path().parent().expect("a folder")).expect("a folder");
        fs::write(path(), &fresh).expect("write the header");
    }
    let here = fs::read_to_string(path()).unwrap_or_default();
    let first = fresh.lines().zip(here.lines()).position(|(a, b)| a != b);
    assert!(
        here == fresh,
        "nrdma.h is stale from line {} on: NRDMA_HEADER=write cargo test --test header",
        first.unwrap_or_else(|| fresh.lines().count().min(here.lines().count())) + 1
    );
    for (name, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        assert!(fresh.contains(&format!("#define NRDMA_VERSION_{name} {value}\n")), "{name}");
    }
}
