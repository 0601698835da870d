//! Each in a process of its own, which is this test binary started again: the environment belongs to all tests.
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

const TASK: &str = "NRDMA_TEST_ENVIRONMENT";
const ADDED: [&CStr; 2] = [c"NRDMA_TEST_A=ours", c"NRDMA_TEST_B=ours"];

fn run(task: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--test-threads=1", "sys::environment::tests::child"]);
    command.env(TASK, task).env("NRDMA_TEST_B", "theirs").env("SECRET_X", "1").env("SECRET_Y", "2");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{task}: {}\n{text}", output.status);
}

fn get(name: &CStr) -> Option<String> {
    // SAFETY: nobody sets anything while this runs.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a C string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_str().unwrap().to_owned())
}

fn set(name: &CStr, value: &CStr) {
    // SAFETY: no other thread reads the environment now.
    assert_eq!(unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) }, 0);
}

fn unset(name: &CStr) {
    // SAFETY: no other thread reads the environment now.
    assert_eq!(unsafe { libc::unsetenv(name.as_ptr()) }, 0);
}

/// Not a test by itself: what the other process runs.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    match task.as_str() {
        "added" => added(),
        "replaced" => {
            changed(|| set(c"SECRET_X", c"9"), &[(c"SECRET_X", Some("9")), (c"SECRET_Y", Some("2"))])
        }
        "new" => changed(|| set(c"SECRET_Z", c"3"), &[(c"SECRET_Z", Some("3")), (c"SECRET_Y", Some("2"))]),
        "removed" => changed(|| unset(c"SECRET_X"), &[(c"SECRET_X", None), (c"SECRET_Y", Some("2"))]),
        "hidden" => hidden(),
        "race" => race(),
        other => panic!("{other}"),
    }
}

fn added() {
    let (array, before) = (variable().load(Ordering::Relaxed), entries(variable().load(Ordering::Relaxed)));
    let result = with(&ADDED, &[], || {
        assert_eq!(get(c"NRDMA_TEST_A").unwrap(), "ours");
        assert_eq!(get(c"NRDMA_TEST_B").unwrap(), "theirs");
        assert_eq!(get(c"SECRET_X").unwrap(), "1");
        with(&[], &["SECRET_X"], || assert_eq!(get(c"SECRET_X").unwrap(), "1"));
        7
    });
    assert_eq!(result, 7);
    assert_eq!(get(c"NRDMA_TEST_A"), None);
    assert_eq!(variable().load(Ordering::Relaxed), array);
    assert_eq!(entries(array), before);
    // The next time costs no memory.
    let published = || with(&ADDED, &[], || variable().load(Ordering::Relaxed));
    let first = published();
    assert_eq!(published(), first);
    set(c"NRDMA_TEST_B", c"other");
    let second = published();
    assert_ne!(second, first);
    assert_eq!(published(), second);
}

/// The host changes something meanwhile: that stays, and what is ours goes.
fn changed(change: fn(), want: &[(&CStr, Option<&str>)]) {
    with(&ADDED, &[], || {
        change();
        assert_eq!(get(c"NRDMA_TEST_A").unwrap(), "ours");
    });
    let check = || {
        for (name, value) in want {
            assert_eq!(get(name).as_deref(), *value, "{name:?}");
        }
        assert_eq!(get(c"NRDMA_TEST_A"), None);
        assert_eq!(get(c"NRDMA_TEST_B").unwrap(), "theirs");
    };
    check();
    // The C library goes on with it.
    set(c"NRDMA_TEST_C", c"more");
    set(c"NRDMA_TEST_C", c"even more");
    assert_eq!(get(c"NRDMA_TEST_C").unwrap(), "even more");
    check();
    unset(c"NRDMA_TEST_C");
    check();
}

fn hidden() {
    let secrets = || [get(c"SECRET_X"), get(c"SECRET_Y")];
    let before = secrets();
    let window = Window::open(&ADDED, &["SECRET_", "HIDDEN_"], 0);
    assert_eq!(secrets(), [None, None]);
    assert_eq!(get(c"NRDMA_TEST_A").unwrap(), "ours");
    set(c"NRDMA_TEST_B", c"changed");
    drop(window);
    assert_eq!(secrets(), before);
    assert_eq!(get(c"NRDMA_TEST_B").unwrap(), "changed");
}

/// Others read meanwhile, and always find what they look for.
fn race() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let reader = || {
        while !OVER.load(Ordering::Relaxed) {
            assert_eq!(get(c"SECRET_Y").unwrap(), "2");
            assert_eq!(get(c"NRDMA_TEST_B").unwrap(), "theirs");
            assert_eq!(get(c"NRDMA_TEST_NOTHING"), None);
        }
    };
    let readers: Vec<_> = (0..3).map(|_| thread::spawn(reader)).collect();
    for _ in 0..5000 {
        with(&ADDED, &[], || assert_eq!(get(c"NRDMA_TEST_A").unwrap(), "ours"));
    }
    OVER.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn additions_come_and_go() {
    run("added");
}

#[test]
fn what_the_host_changes_meanwhile_stays() {
    for task in ["replaced", "new", "removed"] {
        run(task);
    }
}

#[test]
fn nothing_of_an_untrusted_environment_is_seen() {
    run("hidden");
}

#[test]
fn others_may_read_meanwhile() {
    run("race");
}

#[test]
fn settings_are_read_when_trusted() {
    assert!(!is_secure());
    assert!(setting("PATH").is_some());
    assert!(setting("NRDMA_NO_SUCH_SETTING").is_none());
}
