//! How much memory this process may use, and how much is left: the machine's or its cgroups'.
use std::fs;
use std::path::Path;

/// The machine's memory, or the smallest limit of the process's cgroups.
pub(crate) fn memory_limit() -> u64 {
    let machine = meminfo("MemTotal:").unwrap_or(u64::MAX);
    cgroups().map(|group| group.limit).fold(machine, u64::min)
}

/// What can still be had. A memory file has no limit of its own: taking more than this ends in the kernel
/// killing a process, perhaps the host.
pub(crate) fn memory_available() -> u64 {
    let machine = match (meminfo("MemAvailable:"), meminfo("SwapFree:")) {
        (Some(memory), swap) => memory.saturating_add(swap.unwrap_or(0)),
        (None, _) => u64::MAX,
    };
    cgroups().map(|group| group.limit.saturating_sub(group.used)).fold(machine, u64::min)
}

fn meminfo(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

struct Group {
    limit: u64,
    used: u64,
}

/// The process's cgroups that have a memory limit, and everything above them.
fn cgroups() -> impl Iterator<Item = Group> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups: Vec<_> = text.lines().flat_map(line_groups).collect();
    groups.into_iter()
}

fn line_groups(line: &str) -> Vec<Group> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (root, limit, usage, cache) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "),
        c if c.split(',').any(|c| c == "memory") => (
            "/sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file ",
        ),
        _ => return Vec::new(),
    };
    let read = |group: &Path, file: &str| {
        let group = group.strip_prefix("/").unwrap_or(group);
        fs::read_to_string(Path::new(root).join(group).join(file)).ok()
    };
    let number = |text: String| text.trim().parse::<u64>().ok();
    let group = |group: &Path| {
        let limit = read(group, limit).and_then(number)?;
        let used = read(group, usage).and_then(number).unwrap_or(0);
        // File pages that were not used lately are given back before anybody is killed.
        let stat = read(group, "memory.stat").unwrap_or_default();
        let cache = stat.lines().find_map(|l| l.strip_prefix(cache)).and_then(|n| n.trim().parse().ok());
        Some(Group { limit, used: used.saturating_sub(cache.unwrap_or(0)) })
    };
    Path::new(path).ancestors().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_memory_and_not_without_end() {
        assert!(memory_available() > 1 << 20);
        assert!(memory_limit() >= memory_available() / 2);
        assert!(memory_limit() < 1 << 50);
    }

    #[test]
    fn a_line_of_a_controller_without_memory_says_nothing() {
        assert!(line_groups("3:cpu,cpuacct:/user").is_empty());
        assert!(line_groups("rubbish").is_empty());
    }
}
