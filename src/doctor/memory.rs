//! Memory: what may be pinned, what the control groups allow, shared memory, huge pages.
use super::finding::Finding;
use super::machine::{Machine, size};

/// `CAP_IPC_LOCK`: the limit of locked memory does not bind.
const IPC_LOCK: u32 = 14;
/// What is pinned to see whether it can be: a page, and what a few results take.
const PAGE: usize = 4 << 10;
const SOME: usize = 64 << 20;
const RAISE_MEMLOCK: &str = "ulimit -l unlimited | docker run --ulimit memlock=-1 --cap-add IPC_LOCK | \
     systemd: LimitMEMLOCK=infinity | Kubernetes: securityContext.capabilities.add: [IPC_LOCK]";

/// Whether memory can be pinned for network cards: tried, because the limit that is shown is not always the one that
/// counts.
pub(super) fn memlock(machine: &Machine) -> Vec<Finding> {
    let id = "memlock";
    let limits = machine.root.text("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown");
    let limit = soft.parse::<u64>().ok();
    let shown = limit.map_or_else(|| soft.to_owned(), size);
    let capable = machine.capable(IPC_LOCK);
    let bound = !capable && limit.is_some_and(|limit| limit < SOME as u64);
    let why = "network cards read and write pinned memory only: registering buffers will fail";
    let refused = |fact: String| vec![Finding::fail(id, fact).why(why).remedy(RAISE_MEMLOCK)];

    let tried = machine.probes.lock.map(|lock| (lock(PAGE), lock(SOME)));
    match tried {
        Some((Err(error), _)) => return refused(format!("cannot pin even 4 KiB ({error}); limit {shown}")),
        Some((Ok(()), Err(error))) => {
            return refused(format!("cannot pin 64 MiB ({error}); limit {shown}"));
        }
        None if bound => return refused(format!("can pin at most {shown}, and there is no CAP_IPC_LOCK")),
        None | Some((Ok(()), Ok(()))) => {}
    }
    let how = match (limit, capable) {
        (None, _) => format!("limit {shown}"),
        (Some(_), true) => format!("limit {shown}, which CAP_IPC_LOCK lifts"),
        (Some(_), false) => format!("limit {shown}"),
    };
    let fact = if tried.is_some() { format!("64 MiB could be pinned: {how}") } else { how };
    vec![Finding::ok(id, fact)]
}

/// A control group's file: in the process's own group, or as a container sees it.
fn group_file(machine: &Machine, controller: &str, file: &str) -> Option<String> {
    let groups = machine.root.text("/proc/self/cgroup").unwrap_or_default();
    let of = |wanted: &str| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            controllers.split(',').any(|c| c == wanted).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let v1 = of(controller).map(|path| (format!("/sys/fs/cgroup/{controller}"), path));
    let v2 = of("").map(|path| ("/sys/fs/cgroup".to_owned(), path));
    [v1, v2].into_iter().flatten().find_map(|(base, path)| {
        let own = machine.root.text(&format!("{base}/{path}/{file}"));
        own.or_else(|| machine.root.text(&format!("{base}/{file}")))
    })
}

/// What the control groups leave: memory, threads, RDMA objects.
pub(super) fn cgroup(machine: &Machine) -> Vec<Finding> {
    let id = "cgroup";
    let read =
        |controller: &str, files: [&str; 2]| files.iter().find_map(|f| group_file(machine, controller, f));
    let number =
        |controller: &str, files: [&str; 2]| read(controller, files).and_then(|n| n.parse::<u64>().ok());
    let mut findings = Vec::new();
    // The first versions' way to say "no limit" is a number close to 2^63.
    let memory = number("memory", ["memory.max", "memory.limit_in_bytes"]).filter(|limit| *limit < 1 << 60);
    let used = number("memory", ["memory.current", "memory.usage_in_bytes"]).unwrap_or(0);
    if let Some(limit) = memory {
        let fact = format!("{} of {} of the control group's memory are used", size(used), size(limit));
        findings.push(if used > limit - limit / 8 {
            Finding::warn(id, fact)
                .why("buffers count: the kernel kills processes of the group when it is full")
                .remedy(
                    "docker run --memory 8g | Kubernetes: resources.limits.memory | systemd: MemoryMax=8G",
                )
        } else {
            Finding::ok(id, fact)
        });
    }
    let tasks = number("pids", ["pids.max", "pids.max"]);
    let running = number("pids", ["pids.current", "pids.current"]).unwrap_or(0);
    if let Some(most) = tasks
        && most.saturating_sub(running) < 64
    {
        let fact = format!("{running} of {most} tasks of the control group are used");
        findings.push(
            Finding::warn(id, fact)
                .why("a node has a thread for each core and some more: starting them will fail")
                .remedy("docker run --pids-limit -1 | systemd: TasksMax=infinity"),
        );
    }
    findings.extend(rdma_objects(machine));
    if findings.is_empty() {
        findings.push(Finding::ok(id, "no control group limits memory, tasks or RDMA objects"));
    }
    findings
}

/// `rdma.max` and `rdma.current` have a line for each device: "mlx5_0 hca_handle=2 hca_object=2000".
fn rdma_objects(machine: &Machine) -> Option<Finding> {
    let most = group_file(machine, "rdma", "rdma.max")?;
    let current = group_file(machine, "rdma", "rdma.current")?;
    let value = |line: &str, key: &str| -> Option<u64> {
        line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
    };
    most.lines().find_map(|line| {
        let device = line.split_whitespace().next()?;
        let used = current.lines().find(|other| other.split_whitespace().next() == Some(device))?;
        let full = ["hca_handle", "hca_object"].into_iter().find_map(|key| {
            let (most, used) = (value(line, key)?, value(used, key)?);
            (used >= most).then(|| format!("{device}: {used} of {most} {key}s of the control group are used"))
        })?;
        let remedy = format!("echo '{device} hca_handle=max hca_object=max' > /sys/fs/cgroup/GROUP/rdma.max");
        Some(Finding::fail("cgroup", full).why("no queue pair or memory region can be made").remedy(remedy))
    })
}

/// Shared memory for processes of one host. nrdma's own has no name and does not count against `/dev/shm`.
pub(super) fn shm(machine: &Machine) -> Vec<Finding> {
    let id = "shm";
    let mounts = machine.root.text("/proc/self/mounts").unwrap_or_default();
    let mount = mounts.lines().find(|line| line.split_whitespace().nth(1) == Some("/dev/shm"));
    let options = mount.and_then(|line| line.split_whitespace().nth(3)).unwrap_or_default();
    let room = options.split(',').find_map(|option| option.strip_prefix("size=")).and_then(kibibytes);
    let shown = match (mount, room) {
        (None, _) => "there is no /dev/shm".to_owned(),
        (Some(_), None) => "/dev/shm has no limit of its own".to_owned(),
        (Some(_), Some(room)) => format!("/dev/shm has room for {}", size(room)),
    };
    let small = mount.is_none() || room.is_some_and(|room| room < 256 << 20);
    match machine.probes.memfd.map(|memfd| memfd()) {
        Some(Err(error)) => {
            vec![
                Finding::fail(id, format!("no memory file can be made ({error}); {shown}"))
                    .why("processes of one host share results by memory files: shm will not work")
                    .remedy(
                        "allow memfd_create in the seccomp profile: docker run --security-opt seccomp=FILE",
                    ),
            ]
        }
        _ if small => {
            vec![
                Finding::info(id, shown)
                    .why("nrdma's shared memory is memfd's and not bound by it; UCX's and MPI's is")
                    .remedy("docker run --shm-size=1g"),
            ]
        }
        Some(Ok(())) => vec![Finding::ok(id, format!("memory files work; {shown}"))],
        None => vec![Finding::ok(id, shown)],
    }
}

fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix('k').and_then(|n| n.parse::<u64>().ok()).map(|n| n.saturating_mul(1024))
}

/// Large buffers are faulted in and registered by the page.
pub(super) fn hugepages(machine: &Machine) -> Vec<Finding> {
    let id = "hugepages";
    let text = machine.root.text("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mode, _)| mode);
    match mode {
        Some("never") => vec![
            Finding::warn(id, "transparent huge pages are off (never)")
                .why("buffers of many MiB are faulted in and registered 4 KiB at a time, which can take seconds")
                .remedy("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        ],
        Some(mode) => vec![Finding::ok(id, format!("transparent huge pages: {mode}"))],
        None => vec![Finding::info(id, "this kernel has no transparent huge pages")],
    }
}
