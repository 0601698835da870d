//! What loading UCX does to the process it is loaded into: each test runs in a process of its own, which is this
//! test binary started again.
#![allow(clippy::indexing_slicing)]
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{mem, ptr, thread};

use super::ffi::{self, *};
use super::library::{self, Origin, Ucx, Version, ucx};
use super::status::Status;
use crate::core::error::{Kind, Result};
use crate::sys::runtime_dir::tests::Scratch;

const TASK: &str = "NRDMA_TEST_TASK";
/// What the host loads by itself.
const HOST: &str = "NRDMA_TEST_HOST";
/// Debian's.
const OLD: &str = "libucp.so.0";
/// The other one, from c_tests/fetch_ucx.sh.
const NEW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/build/ucx-1.22.0/libucx/lib/libucp.so.0");

/// Where Debian's is.
fn old_path() -> PathBuf {
    let folder = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    Path::new(&folder).join(OLD)
}

fn run(task: &str, settings: &[(&str, &str)]) -> Output {
    command(&std::env::current_exe().unwrap(), task, settings).output().unwrap()
}

fn command(program: &Path, task: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "--nocapture", "--test-threads=1", "transport::ucx::host_tests::child"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"UCX_")) {
        command.env_remove(name);
    }
    command.env(TASK, task).env_remove("NRDMA_UCX_LIB").stdin(Stdio::null());
    command.envs(settings.iter().copied());
    command
}

/// What the child wrote to stderr; it must have succeeded.
fn succeed(task: &str, settings: &[(&str, &str)]) -> String {
    succeeded(&run(task, settings), task, settings)
}

fn succeeded(output: &Output, task: &str, settings: &[(&str, &str)]) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{task} {settings:?}: {}\n{text}", output.status);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("1 passed"), "{out}");
    assert!(!out.contains("UCX"), "on the host's standard output: {out}");
    text
}

/// Not a test by itself: what the other process runs.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    match task.as_str() {
        "load" => load(),
        "secure" => secure(),
        "race" => race(),
        "adopt" => adopt(),
        "before" => before(),
        "refuse" => refuse(),
        "absent" => absent(),
        other => panic!("{other}"),
    }
}

// ---- what the host had ----

extern "C" fn on_signal(_signal: c_int) {}

fn action(signal: c_int) -> (usize, c_int) {
    // SAFETY: all zeroes is a valid action.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: `action` is writable.
    assert_eq!(unsafe { libc::sigaction(signal, ptr::null(), &mut action) }, 0);
    // Not what the C library adds by itself when it is given an action back.
    const SA_RESTORER: c_int = 0x0400_0000;
    (action.sa_sigaction, action.sa_flags & !SA_RESTORER)
}

fn handle(signal: c_int) {
    // SAFETY: all zeroes is a valid action.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(c_int) as *const () as usize;
    // SAFETY: a handler that does nothing.
    assert_eq!(unsafe { libc::sigaction(signal, &action, ptr::null_mut()) }, 0);
}

fn environment() -> (usize, Vec<Vec<u8>>) {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: nobody else is at it.
    let mut at = unsafe { environ };
    let first = at.addr();
    let mut all = Vec::new();
    loop {
        // SAFETY: at most the null at the end.
        let entry = unsafe { *at };
        if entry.is_null() {
            return (first, all);
        }
        // SAFETY: a C string.
        all.push(unsafe { CStr::from_ptr(entry) }.to_bytes().to_vec());
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
}

/// The first bytes of functions that UCX is known to write over.
fn code() -> BTreeMap<&'static str, [u8; 16]> {
    let names = [c"mmap", c"munmap", c"mremap", c"brk", c"sbrk", c"madvise", c"shmat", c"shmdt", c"dlopen"];
    let code = |name: &'static CStr| {
        // SAFETY: a name to look up.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?}");
        // SAFETY: functions are readable and longer than this.
        (name.to_str().unwrap(), unsafe { at.cast::<[u8; 16]>().read() })
    };
    names.into_iter().map(code).collect()
}

struct Host {
    actions: Vec<(usize, c_int)>,
    environment: (usize, Vec<Vec<u8>>),
    code: BTreeMap<&'static str, [u8; 16]>,
}

fn host() -> Host {
    let actions = (1..32).map(action).collect();
    Host { actions, environment: environment(), code: code() }
}

impl Host {
    fn is_as_before(&self) {
        let now = host();
        assert_eq!(now.actions, self.actions);
        assert_eq!(now.code, self.code);
        // Not shown: there may be secrets in it.
        assert!(now.environment == self.environment, "the environment has changed");
    }
}

/// Calls something of UCX that looks at the environment.
fn make(ucx: &Ucx, what: &str, work: impl FnOnce() -> ucs_status_t) -> Result<()> {
    library::shielded(&[], || Status(work()).check(ucx, what))
}

/// From the settings to a worker and back.
fn use_it(ucx: &Ucx, tls: Option<&CStr>) -> Result<()> {
    let mut config = ptr::null_mut();
    // SAFETY: `config` is writable; null means the defaults.
    make(ucx, "reading", || unsafe { ucx.ucp_config_read(c"NRDMA".as_ptr(), ptr::null(), &mut config) })?;
    // SAFETY: all three are live.
    let status =
        unsafe { ucx.ucp_config_modify(config, c"TLS".as_ptr(), tls.unwrap_or(c"tcp,self").as_ptr()) };
    assert_eq!(status, UCS_OK);
    let params = ucp_params_t {
        field_mask: UCP_PARAM_FIELD_FEATURES,
        features: UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
        ..Default::default()
    };
    let mut context = ptr::null_mut();
    let init = || {
        // SAFETY: all are live.
        unsafe { ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &mut context) }
    };
    let made = make(ucx, "opening", init);
    // SAFETY: not used any more.
    unsafe { ucx.ucp_config_release(config) };
    made?;
    let mut attr = ucp_context_attr_t { field_mask: UCP_ATTR_FIELD_MEMORY_TYPES, ..Default::default() };
    // SAFETY: all are live.
    assert_eq!(unsafe { ucx.ucp_context_query(context, &mut attr) }, UCS_OK);
    assert_eq!(attr.memory_types & 1, 1);
    work_on(ucx, context)
}

fn work_on(ucx: &Ucx, context: ucp_context_h) -> Result<()> {
    let params = ucp_worker_params_t {
        field_mask: UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        thread_mode: UCS_THREAD_MODE_SERIALIZED,
        ..Default::default()
    };
    let mut worker = ptr::null_mut();
    // SAFETY: all are live.
    make(ucx, "making a worker", || unsafe { ucx.ucp_worker_create(context, &params, &mut worker) })?;
    let mut efd = -1;
    // SAFETY: all are live.
    assert_eq!(unsafe { ucx.ucp_worker_get_efd(worker, &mut efd) }, UCS_OK);
    assert!(efd >= 0);
    // SAFETY: live.
    unsafe { ucx.ucp_worker_progress(worker) };
    map(ucx, context);
    // SAFETY: not used any more.
    unsafe { ucx.ucp_worker_destroy(worker) };
    // SAFETY: not used any more.
    unsafe { ucx.ucp_cleanup(context) };
    Ok(())
}

fn map(ucx: &Ucx, context: ucp_context_h) {
    let mut memory = vec![0_u8; 4096];
    let params = ucp_mem_map_params_t {
        field_mask: UCP_MEM_MAP_PARAM_FIELD_ADDRESS
            | UCP_MEM_MAP_PARAM_FIELD_LENGTH
            | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        address: memory.as_mut_ptr().cast(),
        length: memory.len(),
        memory_type: UCS_MEMORY_TYPE_HOST,
        ..Default::default()
    };
    let (mut memh, mut packed, mut len) = (ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: all are live, the memory until it is unmapped.
    assert_eq!(unsafe { ucx.ucp_mem_map(context, &params, &mut memh) }, UCS_OK);
    let mut attr = ucp_mem_attr_t {
        field_mask: UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH,
        ..Default::default()
    };
    // SAFETY: all are live.
    assert_eq!(unsafe { ucx.ucp_mem_query(memh, &mut attr) }, UCS_OK);
    assert_eq!((attr.address, attr.length), (params.address, params.length));
    // SAFETY: all are live.
    assert_eq!(unsafe { ucx.ucp_rkey_pack(context, memh, &mut packed, &mut len) }, UCS_OK);
    assert!(len > 0);
    // SAFETY: from ucp_rkey_pack.
    unsafe { ucx.ucp_rkey_buffer_release(packed) };
    // SAFETY: all are live.
    assert_eq!(unsafe { ucx.ucp_mem_unmap(context, memh) }, UCS_OK);
}

// ---- tasks ----

fn said(ucx: &Ucx) {
    eprintln!("found {} {:?} {}", ucx.version, ucx.origin, ucx.file.display());
}

fn load() {
    handle(libc::SIGSEGV);
    handle(libc::SIGHUP);
    // Names are looked up before they are compared: the first look-up may load something.
    let _ = host();
    let before = host();
    let ucx = ucx().unwrap();
    before.is_as_before();
    use_it(ucx, None).unwrap();
    // It has reasons, and gives them to nobody but us.
    let error = use_it(ucx, Some(c"nosuch")).unwrap_err();
    assert_eq!(error.kind, Kind::Unreachable);
    let words = "opening failed: No such device (UCX status -14): transport 'nosuch' is not available";
    let wanted = std::env::var_os("UCX_LOG_LEVEL").is_some();
    assert_eq!(error.text.starts_with(words), !wanted, "{error}");
    assert!(error.text.starts_with("opening failed: No such device (UCX status -14)"), "{error}");
    assert_eq!(error.text.lines().count(), 1, "{error}");
    before.is_as_before();
    assert!(ptr::eq(ucx, library::ucx().unwrap()));
    said(ucx);
}

/// With more rights than its user has.
fn secure() {
    assert!(crate::sys::environment::is_secure());
    assert!(crate::sys::environment::setting("NRDMA_UCX_LIB").is_none());
    load();
}

/// Other threads read the environment all the time, and find what they look for.
fn race() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let before = host();
    let reader = || {
        let mut reads = 0_u64;
        while !OVER.load(Ordering::Relaxed) || reads < 100 {
            // SAFETY: nobody sets anything.
            let found = unsafe { libc::getenv(c"NRDMA_TEST_TASK".as_ptr()) };
            assert!(!found.is_null());
            // SAFETY: a C string.
            assert_eq!(unsafe { CStr::from_ptr(found) }, c"race");
            // SAFETY: nobody sets anything.
            assert!(unsafe { libc::getenv(c"NRDMA_TEST_NOTHING".as_ptr()) }.is_null());
            reads += 1;
        }
    };
    let readers: Vec<_> = (0..4).map(|_| thread::spawn(reader)).collect();
    let ucx = ucx().unwrap();
    OVER.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    before.is_as_before();
    said(ucx);
}

fn open(path: &str) -> *mut c_void {
    let path = CString::new(path).unwrap();
    // SAFETY: a UCX.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

/// The host has loaded a UCX of its own.
fn adopt() {
    assert!(!open(&std::env::var(HOST).unwrap()).is_null());
    let before = host();
    let ucx = ucx().unwrap();
    assert_eq!(ucx.origin, Origin::Host);
    use_it(ucx, None).unwrap();
    before.is_as_before();
    said(ucx);
}

/// The host loads another UCX after us.
fn before() {
    let ucx = ucx().unwrap();
    let theirs = open(&std::env::var(HOST).unwrap());
    if theirs.is_null() {
        // SAFETY: a plain call.
        let why = unsafe { libc::dlerror() };
        // SAFETY: a C string, since the call above failed.
        let why = unsafe { CStr::from_ptr(why) };
        eprintln!("the host's: {}", why.to_string_lossy());
    } else {
        // SAFETY: a name to look up.
        let function = unsafe { libc::dlsym(theirs, c"ucp_get_version".as_ptr()) };
        eprintln!("the host's: {}", library::ask_version(function));
    }
    use_it(ucx, None).unwrap();
    said(ucx);
}

fn refuse() {
    let before = host();
    let error = ucx().err().unwrap();
    assert_eq!(error.text.lines().count(), 1, "{error}");
    before.is_as_before();
    // And once more: nothing is stuck.
    assert_eq!(ucx().err().unwrap().text, error.text);
    eprintln!("{:?}: {error}", error.kind);
}

fn absent() {
    let before = host();
    let error = library::open(c"libnrdma-no-ucx.so.0", None).err().unwrap();
    before.is_as_before();
    eprintln!("{:?}: {error}", error.kind);
}

// ---- tests ----

#[test]
fn the_host_is_as_it_was() {
    let text = succeed("load", &[]);
    assert!(text.contains("found 1.13.1 System /"), "{text}");
    assert!(!text.contains("UCX "), "{text}");
    let text = succeed("load", &[("NRDMA_UCX_LIB", NEW)]);
    assert!(!text.contains("UCX "), "{text}");
    assert!(text.contains(&format!("found 1.22.0 Setting {NEW}")), "{text}");
    // The folder will do.
    let folder = Path::new(NEW).parent().unwrap().to_str().unwrap();
    let text = succeed("load", &[("NRDMA_UCX_LIB", folder)]);
    assert!(text.contains(&format!("found 1.22.0 Setting {NEW}")), "{text}");
}

/// Even where the user asks for handlers: the host's come first.
#[test]
fn handlers_are_given_back() {
    for library in [OLD, NEW] {
        let settings =
            [("UCX_HANDLE_ERRORS", "bt"), ("UCX_DEBUG_SIGNO", "SIGUSR2"), ("NRDMA_UCX_LIB", library)];
        succeed("load", &settings);
    }
}

/// A program with the set-user-id bit, started by somebody who may not tell it what to load and where to write.
#[test]
fn an_untrusted_environment_says_nothing() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if !status.contains("Uid:\t0\t0\t") || status.contains("NoNewPrivs:\t1") {
        // There is no such program that this process could start.
        return;
    }
    let scratch = Scratch::new();
    let (program, log) = (scratch.0.join("program"), scratch.0.join("log"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&scratch.0, Permissions::from_mode(0o711)).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    let settings = [
        ("NRDMA_UCX_LIB", NEW),
        ("UCX_MEM_EVENTS", "y"),
        ("UCX_HANDLE_ERRORS", "bt"),
        ("UCX_LOG_FILE", log.to_str().unwrap()),
        ("UCX_TLS", "all"),
    ];
    let output = command(&program, "secure", &settings).uid(65534).current_dir("/").output().unwrap();
    let text = succeeded(&output, "secure", &settings);
    assert!(text.contains("found 1.13.1 System /"), "{text}");
    assert!(!log.exists());
}

/// The check of the check: this is what happens where the user wants it.
#[test]
fn what_the_user_sets_is_left_alone() {
    let output = run("load", &[("UCX_MEM_EVENTS", "y")]);
    assert!(!output.status.success(), "UCX no longer writes over the C library's functions");
    let output = run("load", &[("UCX_LOG_LEVEL", "warn"), ("UCX_LOG_FILE", "")]);
    assert!(output.status.success());
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("UCX"), "UCX no longer writes to standard output: {out}");
}

#[test]
fn others_may_read_the_environment_meanwhile() {
    for _ in 0..10 {
        succeed("race", &[]);
        succeed("race", &[("NRDMA_UCX_LIB", NEW)]);
    }
}

#[test]
fn the_hosts_own_is_adopted() {
    let old = old_path();
    let old = old.to_str().unwrap();
    let text = succeed("adopt", &[(HOST, NEW), ("NRDMA_UCX_LIB", old)]);
    assert!(text.contains(&format!("found 1.22.0 Host {NEW}")), "{text}");
    let text = succeed("adopt", &[(HOST, old), ("NRDMA_UCX_LIB", NEW)]);
    assert!(text.contains(&format!("found 1.13.1 Host {old}")), "{text}");
    let text = succeed("adopt", &[(HOST, NEW)]);
    assert!(text.contains("found 1.22.0 Host"), "{text}");
    // A part of it is enough: the other would not go with it.
    let part = NEW.replace("libucp", "libucs");
    let text = succeed("adopt", &[(HOST, &part), ("NRDMA_UCX_LIB", old)]);
    assert!(text.contains(&format!("found 1.22.0 Host {NEW}")), "{text}");
    let part = old.replace("libucp", "libuct");
    let text = succeed("adopt", &[(HOST, &part), ("NRDMA_UCX_LIB", NEW)]);
    assert!(text.contains("found 1.13.1 Host "), "{text}");
}

#[test]
fn a_host_that_comes_later_gets_ours() {
    let old = old_path();
    let old = old.to_str().unwrap();
    let text = succeed("before", &[(HOST, OLD), ("NRDMA_UCX_LIB", NEW)]);
    assert!(text.contains("the host's: 1.22.0"), "{text}");
    // By its path it could only have its own on our other parts of UCX: the loader refuses that.
    let text = succeed("before", &[(HOST, NEW)]);
    assert!(text.contains("undefined symbol"), "{text}");
    let text = succeed("before", &[(HOST, old), ("NRDMA_UCX_LIB", NEW)]);
    assert!(text.contains("undefined symbol"), "{text}");
}

/// Compiles a library called libucp.so.0; returns its path.
fn stub(scratch: &Scratch, source: &str) -> String {
    let (file, library) = (scratch.0.join("stub.c"), scratch.0.join(OLD));
    std::fs::write(&file, source).unwrap();
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libucp.so.0", "-o"])
        .arg(&library)
        .arg(&file)
        .status()
        .unwrap();
    assert!(status.success());
    library.to_str().unwrap().to_owned()
}

fn version_stub(version: [u32; 3]) -> String {
    let [major, minor, release] = version;
    format!(
        "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) {{ *a = {major}; *b = {minor}; *c = {release}; }}"
    )
}

#[test]
fn what_cannot_be_used_says_why() {
    let scratch = Scratch::new();
    let refused = |path: &str, words: &[&str]| {
        let text = succeed("refuse", &[("NRDMA_UCX_LIB", path)]);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    refused("/nonexistent/libucp.so.0", &["DriverMissing", "NRDMA_UCX_LIB", "/nonexistent/libucp.so.0"]);
    let library = scratch.0.join(OLD);
    std::fs::write(&library, "not a library").unwrap();
    refused(library.to_str().unwrap(), &["DriverMissing", "file too short"]);
    std::fs::write(&library, vec![b'#'; 5000]).unwrap();
    refused(library.to_str().unwrap(), &["DriverMissing", "invalid ELF header"]);
    std::fs::remove_file(&library).unwrap();
    refused(&stub(&scratch, "int nothing;"), &["DriverMissing", "is not UCX", "ucp_get_version"]);
    refused(
        &stub(&scratch, &version_stub([1, 12, 1])),
        &["VersionMismatch", "UCX 1.12.1", "too old", "1.13 or later"],
    );
    refused(
        &stub(&scratch, &version_stub([2, 0, 0])),
        &["VersionMismatch", "UCX 2.0.0", "1.13 or a later 1.x"],
    );
    refused(
        &stub(&scratch, &version_stub([1, 14, 0])),
        &["UCX 1.14.0 but lacks ucs_status_string, ucp_config_read,"],
    );
}

#[test]
fn a_host_without_ucx_is_told_what_to_do() {
    let text = succeed("absent", &[]);
    let words = ["DriverMissing", "libnrdma-no-ucx.so.0", "No such file", "libucx0", "NRDMA_UCX_LIB"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn versions_are_ordered() {
    let later = Version { release: 1, ..Version::new(1, 13) };
    assert!(later > Version::LEAST && Version::new(1, 12) < Version::LEAST);
    assert!(Version::new(1, 22) > later);
    assert_eq!(later.to_string(), "1.13.1");
    assert_eq!(ffi::UCP_API_MAJOR, 1);
}
