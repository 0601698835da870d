//! By which device to go.
use std::ffi::CStr;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::library;
use crate::core::error::{Error, Kind, Result};
use crate::sys::environment::setting;
use crate::sys::interfaces::{interfaces, name_of};
use crate::sys::rdma_choice::{self, Address, Choice, Wanted};
use crate::sys::rdma_device;

/// A device, and how UCX is to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// UCX's names of transports.
    tls: String,
    /// UCX's name of the device.
    net: String,
    /// Of the device's addresses, the one to use.
    gid_index: Option<u32>,
    /// For logs.
    words: String,
    /// It writes into a peer's memory by itself.
    pub(super) writes: bool,
}

/// UCX's transports that write into a peer's memory in hardware.
const WRITING: [&str; 9] = ["rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ib"];
/// What may stand beside them: it only helps them to connect.
const BESIDE: [&str; 5] = ["ud", "ud_v", "ud_x", "ud_verbs", "ud_mlx5"];
/// What a link over an RDMA device uses: by these exact names, or UCX would take unreliable datagrams to see whether
/// the peer lives, and lose it.
const RDMA: &str = "rc_verbs";
const RDMA_MLX5: &str = "rc_mlx5,rc_verbs";

/// Seconds of silence after which the system looks whether the peer of a TCP connection of UCX's is there. This very
/// number tells those from the host's; UCX has no better mark that works in 1.13, which rounds it down.
pub(super) const KEEP_IDLE: RangeInclusive<i32> = 7212..=7213;
/// The same for UCX, which takes it from the environment only.
const MARK: &CStr = c"UCX_TCP_KEEPIDLE=7213s";

impl Device {
    /// The device to use for links by that address of ours. `insisted`: one without RDMA will do.
    pub(super) fn choose(at: IpAddr, insisted: bool) -> Result<Self> {
        // First, for it costs less than to load UCX.
        let device = match (rdma(at), insisted) {
            (Ok(choice), _) => Self::with_choice(&choice),
            (Err(_), true) => Self::without_rdma(at)?,
            (Err(why), false) => return Err(Error::new(Kind::NotSupported, why)),
        };
        library::ucx()?;
        Ok(device)
    }

    fn with_choice(choice: &Choice) -> Self {
        let gid_index = choice.gid.as_ref().map(|gid| gid.index);
        let driver = std::fs::read_link(format!("/sys/class/infiniband/{}/device/driver", choice.device));
        let mlx5 = driver.is_ok_and(|driver| driver.ends_with("mlx5_core"));
        let tls = if mlx5 { RDMA_MLX5 } else { RDMA };
        Self::new(tls, &choice.name(), gid_index, choice.words())
    }

    fn without_rdma(at: IpAddr) -> Result<Self> {
        let net = name_of(at).ok_or_else(|| {
            Error::new(Kind::Unreachable, format!("no interface of this host has the address {at}"))
        })?;
        let words = format!("{net}, without RDMA");
        Ok(Self::new("tcp", &net, None, words))
    }

    /// What the user says wins.
    fn new(tls: &str, net: &str, gid_index: Option<u32>, words: String) -> Self {
        let tls = user("TLS").unwrap_or_else(|| tls.to_owned());
        let net = user("NET_DEVICES").unwrap_or_else(|| net.to_owned());
        let writes = writes(&tls);
        Self { tls, net, gid_index, words, writes }
    }

    /// For UCX.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![("TLS", self.tls.clone()), ("NET_DEVICES", self.net.clone())];
        // A link tells by itself who died: the connection beside it hangs up, and the node asks whoever is quiet.
        // UCX's own probes would find out nothing more, and end links whose hosts are merely too busy to answer.
        if user("KEEPALIVE_INTERVAL").is_none() {
            settings.push(("KEEPALIVE_INTERVAL", "inf".to_owned()));
        }
        settings
    }

    /// For UCX, which takes these from the environment only. What is there already stays.
    pub(super) fn environment(&self) -> Vec<&'static CStr> {
        [MARK].into_iter().chain(self.gid_setting()).collect()
    }

    fn gid_setting(&self) -> Option<&'static CStr> {
        const INDICES: [&CStr; 16] = [
            c"UCX_IB_GID_INDEX=0",
            c"UCX_IB_GID_INDEX=1",
            c"UCX_IB_GID_INDEX=2",
            c"UCX_IB_GID_INDEX=3",
            c"UCX_IB_GID_INDEX=4",
            c"UCX_IB_GID_INDEX=5",
            c"UCX_IB_GID_INDEX=6",
            c"UCX_IB_GID_INDEX=7",
            c"UCX_IB_GID_INDEX=8",
            c"UCX_IB_GID_INDEX=9",
            c"UCX_IB_GID_INDEX=10",
            c"UCX_IB_GID_INDEX=11",
            c"UCX_IB_GID_INDEX=12",
            c"UCX_IB_GID_INDEX=13",
            c"UCX_IB_GID_INDEX=14",
            c"UCX_IB_GID_INDEX=15",
        ];
        // Beyond these UCX chooses by itself.
        INDICES.get(usize::try_from(self.gid_index?).ok()?).copied()
    }

    /// What both ends must have in common to meet.
    pub(super) fn kind(&self) -> &str {
        if self.writes { "rdma" } else { &self.tls }
    }

    /// For logs.
    pub(super) fn describe(&self) -> String {
        format!("{} over {}", self.tls, self.words)
    }
}

/// The user's own setting of UCX for us.
fn user(name: &str) -> Option<String> {
    setting(&format!("NRDMA_UCX_{name}"))?.into_string().ok()
}

/// The RDMA port with an address. Err: why there is none that can be used.
fn rdma(at: IpAddr) -> Result<Choice, String> {
    let devices = rdma_device::devices(&rdma_device::root());
    let addresses: Vec<Address> = interfaces()
        .unwrap_or_default()
        .into_iter()
        .map(|interface| Address { interface: interface.name, ip: interface.address })
        .collect();
    rdma_choice::choose(&devices, &addresses, &Wanted::Address(at))
}

/// Whether a peer's memory is only ever written to by hardware: where UCX does it in software it aborts the
/// process whose peer is killed meanwhile.
fn writes(tls: &str) -> bool {
    let mut names = tls.split(',').map(str::trim);
    let any = tls.split(',').any(|name| WRITING.contains(&name.trim()));
    any && names.all(|name| WRITING.contains(&name) || BESIDE.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::writes;

    #[test]
    fn only_hardware_writes() {
        for tls in ["rc", "rc_verbs", "dc,ud", "rc_x, ud_x", "ib"] {
            assert!(writes(tls), "{tls}");
        }
        for tls in ["tcp", "rc,tcp", "all", "", "ud", "^tcp", "rc,sm", "rc,cma"] {
            assert!(!writes(tls), "{tls}");
        }
    }
}
