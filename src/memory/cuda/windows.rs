//! What the driver wants to know before it makes an NT handle.
use std::ffi::c_void;
use std::ptr;

/// OBJECT_ATTRIBUTES of the Windows kernel (ntdef.h): no name, the process's default security.
#[repr(C)]
pub(super) struct ObjectAttributes {
    length: u32,
    root_directory: *mut c_void,
    object_name: *mut c_void,
    attributes: u32,
    security_descriptor: *mut c_void,
    security_quality_of_service: *mut c_void,
}

impl Default for ObjectAttributes {
    fn default() -> Self {
        #[allow(clippy::cast_possible_truncation)]
        let length = size_of::<Self>() as u32;
        Self {
            length,
            root_directory: ptr::null_mut(),
            object_name: ptr::null_mut(),
            attributes: 0,
            security_descriptor: ptr::null_mut(),
            security_quality_of_service: ptr::null_mut(),
        }
    }
}
