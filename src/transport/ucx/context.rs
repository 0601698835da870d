//! UCX's view of the devices, and the memory that is registered with them.
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use super::ffi::*;
use super::library::Ucx;
use super::status::Status;
use crate::core::error::{Error, Kind, Result};

/// UCX's view of the devices that one worker uses. Registers memory, from any thread.
pub(super) struct Context {
    pub(super) ucx: &'static Ucx,
    pub(super) raw: ucp_context_h,
    /// A forked child must leave it alone.
    pid: u32,
}
// SAFETY: the context is made for workers of several threads, which has UCX lock it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// `settings`: names without their prefix, and values. The user's own, under NRDMA_UCX_, are read before.
    pub(super) fn new(ucx: &'static Ucx, settings: &[(&str, String)]) -> Result<Arc<Self>> {
        let mut config = ptr::null_mut();
        // SAFETY: C strings, and room for the answer.
        let read = unsafe { ucx.ucp_config_read(c"NRDMA".as_ptr(), ptr::null(), &mut config) };
        Status(read).check(ucx, "reading UCX's settings")?;
        for (name, value) in settings {
            let (Ok(name), Ok(value)) = (CString::new(*name), CString::new(value.as_str())) else { continue };
            // What this version does not know it can do without: later versions say so, 1.13 does not.
            // SAFETY: settings that were just made, and C strings.
            unsafe { ucx.ucp_config_modify(config, name.as_ptr(), value.as_ptr()) };
        }
        let params = ucp_params_t {
            field_mask: UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
            features: UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
            mt_workers_shared: 1,
            name: c"nrdma".as_ptr(),
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: all of it lives during the call.
        let made = unsafe { ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &mut raw) };
        // SAFETY: made above, and not used any more.
        unsafe { ucx.ucp_config_release(config) };
        Status(made).check(ucx, "opening the devices")?;
        Ok(Arc::new(Self { ucx, raw, pid: std::process::id() }))
    }

    /// Registers memory, which must live for as long as the answer does.
    pub(super) fn map(self: &Arc<Self>, address: usize, len: usize) -> Result<Mapped> {
        let params = ucp_mem_map_params_t {
            field_mask: UCP_MEM_MAP_PARAM_FIELD_ADDRESS
                | UCP_MEM_MAP_PARAM_FIELD_LENGTH
                | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
            address: ptr::with_exposed_provenance_mut(address),
            length: len,
            memory_type: UCS_MEMORY_TYPE_HOST,
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: room for the answer; the range is mapped, as the caller says.
        let mapped = unsafe { self.ucx.ucp_mem_map(self.raw, &params, &mut raw) };
        if let Err(error) = Status(mapped).check(self.ucx, &format!("registering {len} bytes")) {
            return Err(explain(error));
        }
        Ok(Mapped { context: Arc::clone(self), raw })
    }

    /// Whether this is not a forked child.
    pub(super) fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }
}

/// A registration that failed did so most likely for want of memory that may be locked.
fn explain(error: Error) -> Error {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: room for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        return error;
    }
    let text = format!(
        "{}; RLIMIT_MEMLOCK allows this process to lock {} bytes: raise it (ulimit -l unlimited, or \
         LimitMEMLOCK=infinity for a service)",
        error.text, limit.rlim_cur
    );
    Error::new(Kind::MemlockLimit, text)
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: what was made of it holds it, so nothing is left.
            unsafe { self.ucx.ucp_cleanup(self.raw) };
        }
    }
}

/// Registered memory; dropping it ends the registration: no device reads or writes the memory any more.
pub(super) struct Mapped {
    context: Arc<Context>,
    pub(super) raw: ucp_mem_h,
}
// SAFETY: only ever given to UCX, under the context's lock or a worker's owner.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// What a peer needs to write there.
    pub(super) fn pack(&self) -> Result<Vec<u8>> {
        let Context { ucx, raw, .. } = *self.context;
        let (mut bytes, mut len) = (ptr::null_mut(), 0);
        // SAFETY: both handles live; room for the answers.
        let packed = unsafe { ucx.ucp_rkey_pack(raw, self.raw, &mut bytes, &mut len) };
        Status(packed).check(ucx, "packing a key")?;
        // SAFETY: UCX just made these bytes.
        let key = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) }.to_vec();
        // SAFETY: not used any more.
        unsafe { ucx.ucp_rkey_buffer_release(bytes) };
        Ok(key)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.context.is_ours() {
            // SAFETY: made by this context; whoever still uses it holds it.
            unsafe { self.context.ucx.ucp_mem_unmap(self.context.raw, self.raw) };
        }
    }
}
