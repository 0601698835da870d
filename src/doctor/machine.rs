//! The files below a root, and what only the running kernel can answer.
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::sys::probe;

/// A directory that stands for "/".
#[derive(Debug, Clone)]
pub(super) struct Root(PathBuf);

impl Root {
    /// Where an absolute path is below this root.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
    /// A file's text without white space at its ends; None when it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }
    pub(super) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.path(path)).ok()
    }
    /// A file that holds one decimal number.
    pub(super) fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }
    /// The names in a directory, in order; none when it cannot be read.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
    pub(super) fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path(path)).is_ok()
    }
    /// A path without links, as seen from this root.
    pub(super) fn resolved(&self, path: &str) -> Option<PathBuf> {
        let real = fs::canonicalize(self.path(path)).ok()?;
        let root = fs::canonicalize(&self.0).ok()?;
        Some(Path::new("/").join(real.strip_prefix(root).ok()?))
    }
}

/// What is tried rather than read. None: not to be had below another root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probes {
    /// Pins so many bytes, and lets them go again.
    pub(super) lock: Option<fn(usize) -> io::Result<()>>,
    /// Makes a memory file of 64 KiB with pages.
    pub(super) memfd: Option<fn() -> io::Result<()>>,
    /// Opens a device for reading and writing.
    pub(super) open: fn(&Path) -> io::Result<()>,
}

/// What the checks look at.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) root: Root,
    pub(super) probes: Probes,
}

impl Machine {
    pub(super) fn new(root: &Path) -> Self {
        let here = root == Path::new("/");
        let probes = Probes {
            lock: here.then_some(probe::lock as fn(usize) -> io::Result<()>),
            memfd: here.then_some(probe::memfd as fn() -> io::Result<()>),
            open,
        };
        Self { root: Root(root.to_owned()), probes }
    }

    /// A variable of the process's environment as it started.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let bytes = self.root.bytes("/proc/self/environ")?;
        let entry = bytes
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")))?;
        let value = String::from_utf8_lossy(entry).into_owned();
        (!value.is_empty()).then_some(value)
    }

    /// Whether the process has a capability, by its number.
    pub(super) fn capable(&self, capability: u32) -> bool {
        let status = self.root.text("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        mask >> capability & 1 == 1
    }
}

fn open(path: &Path) -> io::Result<()> {
    File::options().read(true).write(true).open(path).map(drop)
}

/// A number of bytes, for people.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, scale)) = UNITS.into_iter().find(|(_, scale)| bytes >= *scale) else {
        return format!("{bytes} B");
    };
    if bytes.is_multiple_of(scale) {
        return format!("{} {unit}", bytes / scale);
    }
    format!("{:.1} {unit}", bytes as f64 / scale as f64)
}
