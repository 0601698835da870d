//! Names the shared library and keeps it loaded: link arguments only.
use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        if env::var_os("CARGO_FEATURE_CAPI").is_none() {
            let major = env!("CARGO_PKG_VERSION_MAJOR");
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnrdma.so.{major}");
        }
        // Threads of ours may still run inside the library when the host calls dlclose.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
