//! Slots from Rust, on the fake CUDA driver of c_tests/fakes/cuda, which a C compiler builds here: codes that
//! no enum knows are told as numbers, and nothing is left. `ctest -L gpu` has the rest.
// All of this is test: what is not there shall fail it.
#![cfg(all(target_os = "linux", feature = "cuda", not(any(loom, tsan))))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use nrdma::abi::error::nrdma_last_error;
use nrdma::abi::gpu_buffer::{
    nrdma_gpu_buffer, nrdma_gpu_buffer_create, nrdma_gpu_buffer_destroy, nrdma_gpu_buffer_read,
    nrdma_gpu_buffer_slot, nrdma_gpu_buffer_write,
};
use nrdma::abi::gpu_config::{NRDMA_GPU_CUDA, NRDMA_MEMORY_VMM, nrdma_gpu_buffer_config};

/// Compiles the fake; its path.
fn fake() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("c_tests/fakes/cuda");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcuda.so.1");
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.cargo_metadata(false).target(&triple).host(&triple).opt_level(1).pic(true);
    let mut compile = build.get_compiler().to_command();
    compile.args(["-shared", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1", "-pthread", "-o"]).arg(&out);
    let files = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    compile.args(files.filter(|file| file.extension().is_some_and(|end| end == "c")));
    assert!(compile.args(["-ldl"]).status().unwrap().success());
    out
}

/// As fakes/fake_cuda.h has it.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
struct Stats {
    handles: c_int,
    maps: c_int,
    reservations: c_int,
    ctx_refs: c_int,
    contexts: c_int,
    streams: c_int,
    events: c_int,
    hostregs: c_int,
    fds: c_int,
    pending: c_int,
    violations: c_int,
    bytes: u64,
    copies: u64,
    flushes: u64,
    calls: u64,
}

struct Fake(*mut c_void);

impl Fake {
    fn function(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a library that stays loaded, and a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    }
    fn fail(&self, symbol: &CStr, k: c_uint, code: c_int) {
        type Fail = unsafe extern "C" fn(*const c_char, c_uint, c_int);
        // SAFETY: the function's type.
        let fail = unsafe { std::mem::transmute::<*mut c_void, Fail>(self.function(c"fakecuda_fail")) };
        // SAFETY: a C string.
        unsafe { fail(symbol.as_ptr(), k, code) };
    }
    fn left(&self) -> Stats {
        type Get = unsafe extern "C" fn(*mut Stats);
        // SAFETY: the function's type.
        let get = unsafe { std::mem::transmute::<*mut c_void, Get>(self.function(c"fakecuda_stats")) };
        let mut stats = Stats::default();
        // SAFETY: room for the struct.
        unsafe { get(&raw mut stats) };
        Stats { copies: 0, flushes: 0, calls: 0, ..stats }
    }
}

fn config(kind: i32) -> nrdma_gpu_buffer_config {
    // SAFETY: every field may be zero.
    let mut config = unsafe { std::mem::zeroed::<nrdma_gpu_buffer_config>() };
    config.struct_size = size_of::<nrdma_gpu_buffer_config>() as u64;
    (config.api, config.memory, config.slot_count, config.frame_bytes) = (NRDMA_GPU_CUDA, kind, 2, 5000);
    config
}

fn create(config: &nrdma_gpu_buffer_config) -> Result<*mut nrdma_gpu_buffer, (i32, String)> {
    let mut buffer = ptr::null_mut();
    // SAFETY: a config with its size, and room for a pointer.
    let status = unsafe { nrdma_gpu_buffer_create(config, &raw mut buffer) };
    if status == 0 {
        return Ok(buffer);
    }
    assert!(buffer.is_null());
    // SAFETY: a C string, until the next failing call.
    let text = unsafe { CStr::from_ptr(nrdma_last_error()) };
    Err((status, text.to_str().unwrap().to_owned()))
}

#[test]
fn the_drivers_codes_are_numbers() {
    let path = CString::new(fake().into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: the fake's start-up code only reads the environment.
    let fake = Fake(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) });
    assert!(!fake.0.is_null());
    for kind in 0..=NRDMA_MEMORY_VMM {
        let buffer = create(&config(kind)).unwrap();
        let mut bytes = *b"....";
        // SAFETY: a live buffer and four bytes.
        assert_eq!(unsafe { nrdma_gpu_buffer_write(buffer, 1, 4996, b"card".as_ptr().cast(), 4) }, 0);
        // SAFETY: a live buffer and room for four bytes.
        assert_eq!(unsafe { nrdma_gpu_buffer_read(buffer, 1, 4996, bytes.as_mut_ptr().cast(), 4) }, 0);
        assert_eq!(&bytes, b"card");
        // SAFETY: a live buffer.
        let slot = unsafe { nrdma_gpu_buffer_slot(buffer, 1) };
        // SAFETY: never null, and as long-lived as the buffer.
        assert_eq!(unsafe { (*slot).address } % 65536, 0);
        // SAFETY: not used again.
        unsafe { nrdma_gpu_buffer_destroy(buffer) };
        assert_eq!(fake.left(), Stats::default());
    }
    for symbol in [
        c"cuMemCreate",
        c"cuMemMap",
        c"cuCtxPushCurrent",
        c"cuDevicePrimaryCtxRetain",
        c"cuDeviceGetAttribute",
    ] {
        fake.fail(symbol, 1, 12345);
        let (status, text) = create(&config(NRDMA_MEMORY_VMM)).unwrap_err();
        assert!(status == -14 && text.contains("CUDA error 12345"), "{status} {text}");
        assert_eq!(fake.left(), Stats::default());
    }
}
