//! UCX, which carries RDMA: where it is, which parts of it, and whether there is more than one.
use super::device;
use super::finding::Finding;
use super::machine::{Machine, Root};

const FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/opt/ucx/lib",
    "/opt/mellanox/ucx/lib",
];
/// The oldest that nrdma is tested with.
const OLDEST: (u32, u32) = (1, 13);

/// The library, and its modules that matter here.
pub(super) fn ucx(machine: &Machine) -> Vec<Finding> {
    let mut findings = copies(machine).into_iter().collect::<Vec<_>>();
    let devices = device::all(&machine.root);
    let Some(folder) = folder(machine) else {
        let fact = "libucp.so.0 is not in any library folder";
        findings.push(if devices.is_empty() {
            Finding::ok("ucx", format!("{fact}, and there is no RDMA device that would need it"))
        } else {
            Finding::warn("ucx", fact)
                .why("RDMA devices are used through UCX only: tcp is used between hosts instead")
                .remedy("apt-get install libucx0    # or NRDMA_UCX_LIB=/path/to/libucp.so.0")
        });
        return findings;
    };
    let version = version(&machine.root, &folder);
    let shown = version.map_or("UCX".to_owned(), |(major, minor)| format!("UCX {major}.{minor}"));
    if version.is_some_and(|version| version < OLDEST) {
        findings.push(
            Finding::warn("ucx", format!("{shown} in {folder} is older than {}.{}", OLDEST.0, OLDEST.1))
                .why("nrdma is not tested with it")
                .remedy("install a newer UCX and set NRDMA_UCX_LIB=/path/to/libucp.so.0"),
        );
    }
    let modules = modules(&machine.root, &folder);
    let has = |name: &str| modules.iter().any(|module| module == name);
    let missing = |name: &str, fact: &str, why: &str, remedy: &str| {
        let fact = format!("{shown} in {folder} has no module {name}, and there is {fact}");
        Finding::warn("ucx", fact).why(why).remedy(remedy)
    };
    if !devices.is_empty() && !has("ib") {
        findings.push(missing(
            "ib",
            "an RDMA device",
            "UCX cannot use the device",
            "apt-get install ibverbs-providers librdmacm1    # or a UCX built --with-verbs --with-rdmacm",
        ));
    }
    if machine.root.exists("/proc/driver/nvidia/version") && !has("cuda") {
        findings.push(missing(
            "cuda",
            "a GPU",
            "GPU memory goes through main memory: a network card does not reach it directly",
            "install a UCX built --with-cuda and set NRDMA_UCX_LIB=/path/to/libucp.so.0",
        ));
    }
    if findings.is_empty() {
        let list = if modules.is_empty() { "none".to_owned() } else { modules.join(" ") };
        findings.push(Finding::ok("ucx", format!("{shown} in {folder}, modules: {list}")));
    }
    findings
}

/// Two copies in one process do not find each other's modules.
fn copies(machine: &Machine) -> Option<Finding> {
    let maps = machine.root.text("/proc/self/maps").unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let mut copies: Vec<&str> = files.filter(|file| file.contains("/libucs.so")).collect();
    copies.sort_unstable();
    copies.dedup();
    (copies.len() > 1).then(|| {
        Finding::fail("ucx", format!("{} copies of UCX are loaded: {}", copies.len(), copies.join(", ")))
            .why("they do not find each other's modules, and connections hang")
            .remedy("use one UCX for all: NRDMA_UCX_LIB=/path/to/libucp.so.0, LD_LIBRARY_PATH")
    })
}

fn folder(machine: &Machine) -> Option<String> {
    if let Some(file) = machine.variable("NRDMA_UCX_LIB") {
        if machine.root.exists(&format!("{file}/libucp.so.0")) {
            return Some(file);
        }
        let (folder, _) = file.rsplit_once('/')?;
        return machine.root.exists(&file).then(|| folder.to_owned());
    }
    let path = machine.variable("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders = path.split(':').filter(|folder| !folder.is_empty()).chain(FOLDERS);
    folders.find(|folder| machine.root.exists(&format!("{folder}/libucp.so.0"))).map(str::to_owned)
}

/// "1.13" of the package's own files; the library's name does not tell.
fn version(root: &Root, folder: &str) -> Option<(u32, u32)> {
    let pc = root.text(&format!("{folder}/pkgconfig/ucx.pc"));
    let from_pc = pc.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("Version:")));
    let from_dpkg = || {
        let status = root.text("/var/lib/dpkg/status")?;
        let package = status.split("\n\n").find(|package| package.starts_with("Package: libucx0\n"))?;
        package.lines().find_map(|line| line.strip_prefix("Version:")).map(str::to_owned)
    };
    let text = from_pc.map(str::to_owned).or_else(|| folder.starts_with("/usr/lib").then(from_dpkg)?)?;
    let mut parts = text.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// "libuct_ib.so.0" is the module ib.
fn modules(root: &Root, folder: &str) -> Vec<String> {
    let files = root.list(&format!("{folder}/ucx"));
    let mut names: Vec<String> = files
        .iter()
        .filter_map(|file| Some(file.strip_prefix("libuct_")?.split_once(".so")?.0.to_owned()))
        .collect();
    names.dedup();
    names
}
