//! By which device to go.
use std::net::IpAddr;

use crate::core::error::{Error, Kind, Result};
use crate::sys::environment::setting;

/// A device, and how UCX is to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// UCX's names of transports.
    tls: String,
    /// UCX's name of the device.
    net: String,
    /// It writes into a peer's memory by itself.
    pub(super) writes: bool,
}

/// UCX's transports that write into a peer's memory in hardware.
const WRITING: [&str; 9] =
    ["rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ib"];
/// What may stand beside them: it only helps them to connect.
const BESIDE: [&str; 5] = ["ud", "ud_v", "ud_x", "ud_verbs", "ud_mlx5"];

impl Device {
    /// The device with that address, for links that somebody insists on.
    pub(super) fn of(at: IpAddr) -> Result<Self> {
        let net = crate::sys::interfaces::name_of(at).ok_or_else(|| {
            Error::new(Kind::Unreachable, format!("no interface of this host has the address {at}"))
        })?;
        Ok(Self::with("tcp", &net))
    }

    fn with(tls: &str, net: &str) -> Self {
        let user = |name: &str| setting(name).and_then(|value| value.into_string().ok());
        let tls = user("NRDMA_UCX_TLS").unwrap_or_else(|| tls.to_owned());
        let net = user("NRDMA_UCX_NET_DEVICES").unwrap_or_else(|| net.to_owned());
        let writes = writes(&tls);
        Self { tls, net, writes }
    }

    /// For UCX.
    pub(super) fn settings(&self) -> Vec<(&str, &str)> {
        let mut settings = vec![("TLS", self.tls.as_str()), ("NET_DEVICES", self.net.as_str())];
        if setting("NRDMA_UCX_KEEPALIVE_INTERVAL").is_none() {
            settings.push(("KEEPALIVE_INTERVAL", "2s"));
        }
        settings
    }

    /// In words.
    pub(super) fn describe(&self) -> String {
        format!("{} on {}", self.tls, self.net)
    }
}

/// Whether a peer's memory is only ever written to by hardware: where UCX does it in software it aborts the
/// process whose peer is killed meanwhile.
fn writes(tls: &str) -> bool {
    let mut names = tls.split(',').map(str::trim).peekable();
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
