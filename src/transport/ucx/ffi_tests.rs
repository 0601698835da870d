//! The mirror of UCX's header against the header itself: a C compiler checks every size, offset, constant and
//! signature.
#![allow(clippy::indexing_slicing)]
use std::fmt::Write as _;
use std::path::Path;

use super::ffi;
use super::functions::FUNCTIONS;
use super::messages;
use crate::sys::runtime_dir::tests::Scratch;

/// The headers of a later UCX.
const LATER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/build/ucx-1.22.0/libucx/include");

fn c_name(rust: &str) -> &str {
    match rust {
        "c_void" => "void",
        "c_char" => "char",
        "c_int" => "int",
        "c_uint" => "unsigned",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "" => "void",
        other => other,
    }
}

/// `*mut *const T` is C's `const T * *`.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    match (rust.strip_prefix("*mut "), rust.strip_prefix("*const ")) {
        (Some(to), _) => format!("{} *", c_type(to)),
        (_, Some(to)) if !to.trim().starts_with('*') => format!("const {} *", c_type(to)),
        (_, Some(to)) => format!("{} *const *", c_type(to)),
        (None, None) => c_name(rust).to_owned(),
    }
}

fn signature(arguments: &[&str], result: &str, middle: &str) -> String {
    let arguments: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
    format!("{} {middle}({})", c_type(result), arguments.join(", "))
}

fn assertions() -> String {
    let mut out = String::from(
        "#include <stdarg.h>\n#include <stddef.h>\n#include <ucp/api/ucp.h>\n#include <ucs/debug/log_def.h>\n",
    );
    let mut say = |what: String, name: &str| writeln!(out, "_Static_assert({what}, \"{name}\");").unwrap();
    for (name, size, fields) in ffi::STRUCTS {
        say(format!("sizeof({name}) == {size}"), name);
        for (field, at) in *fields {
            say(format!("offsetof({name}, {field}) == {at}"), &format!("{name}.{field}"));
        }
    }
    for (name, value) in ffi::CONSTANTS {
        say(format!("(long long){name} == {value}"), name);
    }
    for (name, arguments, result) in ffi::CALLBACKS {
        let ours = signature(arguments, result, "(*)");
        say(format!("__builtin_types_compatible_p({name}, {ours})"), name);
    }
    for (name, arguments, result) in FUNCTIONS {
        let ours = signature(arguments, result, "");
        say(format!("__builtin_types_compatible_p(__typeof__({name}), {ours})"), name);
    }
    for (name, value) in [
        ("UCS_LOG_FUNC_RC_STOP", messages::STOP),
        ("UCS_LOG_FUNC_RC_CONTINUE", messages::CONTINUE),
        ("UCS_LOG_LEVEL_ERROR", messages::ERROR),
        ("UCS_LOG_LEVEL_WARN", messages::WARN),
    ] {
        say(format!("(long long){name} == {value}"), name);
    }
    let handler = "ucs_log_func_rc_t (*)(const char *, unsigned, const char *, ucs_log_level_t, \
                   const ucs_log_component_config_t *, const char *, va_list)";
    say(format!("__builtin_types_compatible_p(ucs_log_func_t, {handler})"), "ucs_log_func_t");
    let push = "void (ucs_log_func_t)";
    say(
        format!("__builtin_types_compatible_p(__typeof__(ucs_log_push_handler), {push})"),
        "ucs_log_push_handler",
    );
    for (name, size) in [
        ("ucs_log_func_rc_t", 4),
        ("ucs_log_level_t", 4),
        ("ucs_status_t", size_of::<ffi::ucs_status_t>()),
        ("ucs_thread_mode_t", size_of::<ffi::ucs_thread_mode_t>()),
        ("ucs_memory_type_t", size_of::<ffi::ucs_memory_type_t>()),
        ("ucp_err_handling_mode_t", size_of::<ffi::ucp_err_handling_mode_t>()),
        ("ucp_datatype_t", size_of::<ffi::ucp_datatype_t>()),
        ("((ucp_request_param_t*)0)->cb", size_of::<ffi::ucp_request_cb_t>()),
    ] {
        say(format!("sizeof({name}) == {size}"), name);
    }
    out
}

fn compiles(folder: &Path, include: &str, source: &str) -> bool {
    let file = folder.join("layout.c");
    std::fs::write(&file, source).unwrap();
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.cargo_metadata(false).target(&triple).host(&triple).opt_level(0).out_dir(folder);
    build
        .warnings(false)
        .extra_warnings(false)
        .include(include)
        .file(&file)
        .std("gnu11")
        .try_compile("layout")
        .is_ok()
}

#[test]
fn the_mirror_is_the_header() {
    let scratch = Scratch::new();
    let source = assertions();
    assert!(source.lines().count() > 280, "{}", source.lines().count());
    let version =
        |major, minor| format!("_Static_assert(UCP_API_VERSION == UCP_VERSION({major}, {minor}), \"\");");
    let ours = version(ffi::UCP_API_MAJOR, ffi::UCP_API_MINOR);
    assert!(
        compiles(&scratch.0, "/usr/include", &format!("{source}{ours}")),
        "the C compiler sees it otherwise (see above), or libucx-dev 1.13 is not installed"
    );
    // Structs may have grown, at their ends.
    let grown =
        |line: &str| if line.contains("(sizeof(ucp_") { line.replace("==", ">=") } else { line.to_owned() };
    let later: Vec<_> = source.lines().map(grown).collect();
    assert!(
        compiles(&scratch.0, LATER, &format!("{}\n{}", later.join("\n"), version(1, 22))),
        "the C compiler sees it otherwise (see above), or c_tests/fetch_ucx.sh was not run"
    );
    // Each kind of assertion can fail.
    for (right, wrong) in [
        ("offsetof(ucp_ep_params_t, name) == ", "offsetof(ucp_ep_params_t, name) == 1 + "),
        ("sizeof(ucp_mem_attr_t) == ", "sizeof(ucp_mem_attr_t) == 1 + "),
        ("(long long)UCP_FEATURE_AM == 64", "(long long)UCP_FEATURE_AM == 65"),
        ("__typeof__(ucp_worker_progress), unsigned (", "__typeof__(ucp_worker_progress), int ("),
        ("ucp_err_handler_cb_t, void (*)(void *,", "ucp_err_handler_cb_t, void (*)(const void *,"),
    ] {
        let changed = source.replace(right, wrong);
        assert_ne!(changed, source, "no {right}");
        assert!(!compiles(&scratch.0, "/usr/include", &changed), "{wrong} was not noticed");
    }
}
