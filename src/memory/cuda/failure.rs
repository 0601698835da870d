//! What the driver answered, as a number: a newer driver knows codes that we do not.
use crate::core::error::{Error, Kind};

pub(super) const INVALID_VALUE: u32 = 1;
pub(super) const OUT_OF_MEMORY: u32 = 2;
const STUB: u32 = 34;
const NO_DEVICE: u32 = 100;
const NOT_SUPPORTED: u32 = 801;

/// A call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// With the driver's code.
    Code { call: &'static str, code: u32 },
    /// The driver is too old to have it.
    Missing { call: &'static str },
}

impl Failure {
    /// The driver's code; None when the call is not there.
    pub(super) fn code(self) -> Option<u32> {
        match self {
            Self::Code { code, .. } => Some(code),
            Self::Missing { .. } => None,
        }
    }

    /// As an error: what was tried, with the numbers, and what the driver said.
    pub(super) fn error(self, tried: impl AsRef<str>) -> Error {
        let tried = tried.as_ref();
        match self {
            Self::Code { call, code } => {
                let kind = match code {
                    OUT_OF_MEMORY => Kind::OutOfMemory,
                    NOT_SUPPORTED => Kind::NotSupported,
                    _ => Kind::DriverError,
                };
                Error::new(kind, format!("{tried}: {call} failed with CUDA error {}", name(code)))
            }
            Self::Missing { call } => {
                let text = format!("{tried}: this CUDA driver is too old, it has no {call}");
                Error::new(Kind::NotSupported, text)
            }
        }
    }

    /// As the reason why there is no CUDA at all.
    pub(super) fn no_cuda(self) -> Error {
        let why = match self.code() {
            Some(STUB) => {
                "the libcuda that was loaded is the toolkit's stub; take its folder out of \
                LD_LIBRARY_PATH"
            }
            Some(NO_DEVICE) => {
                "the driver sees no GPU: look at nvidia-smi, CUDA_VISIBLE_DEVICES, and the \
                container's --gpus"
            }
            _ => "the driver does not start: look at nvidia-smi and dmesg",
        };
        let said = match self {
            Self::Code { call, code } => format!("{call}: CUDA error {}", name(code)),
            Self::Missing { call } => format!("there is no {call}"),
        };
        Error::new(
            Kind::DriverMissing,
            format!("no CUDA ({said}): {why}; host memory needs none: NRDMA_GPU_HOST_FALLBACK"),
        )
    }
}

/// The number with its name, where we know it.
fn name(code: u32) -> String {
    let words = match code {
        1 => "invalid value",
        2 => "out of memory",
        3 => "not initialized",
        4 => "driver shut down",
        34 => "stub library",
        46 => "device unavailable",
        100 => "no device",
        101 => "invalid device",
        201 => "invalid context",
        205 => "map failed",
        304 => "operating system",
        400 => "invalid handle",
        700 => "illegal address",
        709 => "context is destroyed",
        712 => "host memory already registered",
        719 => "launch failed",
        800 => "not permitted",
        801 => "not supported",
        802 => "system not ready",
        803 => "driver mismatch: kernel module and library are of different versions",
        999 => "unknown",
        _ => return code.to_string(),
    };
    format!("{code} ({words})")
}
